/*
 * A flight's calls to Redis. Its invariants: at most one call and one renewal
 * are under way; each that ends makes exactly one event.
 *
 * Design notes
 *
 * All that a flight does in Redis are scripts on one entry (src/redis/):
 * acquire, publish, fail, release (a fail without a marker) and renew.
 * Each is one round trip and atomic. Before acquire, which takes up to six
 * commands, goes the one that is probably enough: SET NX, where the first
 * caller has found nothing; GET, behind a push or where it has found a lease.
 * What that does not decide, acquire does. Each call can be sent again after a
 * lost reply: acquire recognises its own lease by process and flight number,
 * publish finds its own value and reports it as another's, the others compare.
 *
 * The lease of the memcache paper (see flight.c) is a record under the value's
 * own key. It carries a data version of 128 random bits: publish stores only if
 * the version is still there. So any DEL of the key, by any program, revokes
 * the right to store what is being loaded, and no clock takes part in that.
 *
 * A value that is to be refreshed stays where it is, to be read meanwhile. The
 * lease of the refresh is such a record under a key of its own; its publish
 * replaces the value only if that still has the nonce which acquire has seen,
 * and the record its data version. A DEL of the entry takes the nonce away, and
 * invalidate the record too. A value that ends by its own ttl meanwhile is
 * marked so and kept until then, because Redis would not tell its end from a
 * DEL: by the flight, with a renewal at that time, or by any other acquire.
 */
#include "flight/flight_redis.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/value.h"
#include "flight/flight_publish.h"
#include "flight/flight_reply.h"
#include "entry/freshness.h"

/* Waiters look every 150 ms at least; a failure is kept for them for much
 * longer than that, because a busy machine makes looks late. */
#define LATE_LOOK_MS 5000
#define FAILURE_JITTER_PCT 50 /* of failure_ttl_ms, at most */

/* A lease names its holder where other entries have size, cost and checksum. */
_Static_assert(SHED_ENTRY_PROCESS_AT + SHED_PROCESS_BYTES ==
                   SHED_ENTRY_HEAD_BYTES,
               "a process id fits its place in a lease record");

/* ---------------------------------------------------------------- replies */

static void on_call(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_exchange *x = arg;

    x->on_event(x->arg, shed_flight_reply_event(x, result));
}

static void on_renewed(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_exchange *x = arg;
    struct shed_flight_event event = {.type = SHED_EV_RENEWED,
                                      .request = x->renew_request};

    if (shed_reply_integer(result->reply) == 0) {
        event.type = SHED_EV_LEASE_LOST;
        shed_count(&x->shared->cache->counters.leases_lost, 1);
    }
    x->on_event(x->arg, event);
}

/* --------------------------------------------------------------- requests */

static void add_holder(struct shed_args *args,
                       const struct shed_flight_exchange *x)
{
    shed_args_add(args, x->shared->cache->client->process, SHED_PROCESS_BYTES);
    shed_args_add(args, x->number, sizeof(x->number));
}

static void put_call(struct shed_flight_exchange *x,
                     const struct shed_args *args)
{
    shed_client_send(x->shared->cache->client, &x->call, args, on_call, x);
}

/* Where our lease is. */
static struct shed_entry_key lease_key(const struct shed_flight_exchange *x)
{
    return x->is_refresh ? x->refresh_key : x->key;
}

/* Begin a call about our lease; a renewal of that of a refresh looks at the
 * value as well. */
static void begin_lease(struct shed_args *args, enum shed_script script,
                        const struct shed_flight_exchange *x)
{
    bool has_value = script == SHED_SCRIPT_RENEW && x->is_refresh;
    struct shed_entry_key key = lease_key(x);

    shed_script_begin(args, script, has_value ? "2" : "1");
    shed_args_add(args, key.at, key.size);
    if (has_value)
        shed_args_add(args, x->key.at, x->key.size);
}

static bool is_due(const struct shed_flight_exchange *x)
{
    static const unsigned char none[sizeof(x->due)];

    return memcmp(x->due, none, sizeof(none)) != 0;
}

static struct shed_session *session_of(const struct shed_flight_exchange *x)
{
    return shed_client_session(x->shared->cache->client, x->key.at,
                               x->key.size);
}

static void send_acquire(struct shed_flight_exchange *x)
{
    const struct shed_flight_shared *shared = x->shared;
    unsigned char version[SHED_ENTRY_VERSION_BYTES];
    struct shed_args args;
    char epoch[SHED_DIGITS];

    shed_random_unique(version, sizeof(version));
    shed_script_begin(&args, SHED_SCRIPT_ACQUIRE, "2");
    shed_args_add(&args, x->key.at, x->key.size);
    shed_args_add(&args, x->refresh_key.at, x->refresh_key.size);
    args.is_guarded = true;
    shed_args_add(&args, version, sizeof(version));
    add_holder(&args, x);
    x->epoch = shed_session_epoch(session_of(x));
    shed_args_add_number(&args, epoch, x->epoch);
    shed_args_add_text(&args, shared->lease_ms);
    shed_args_add_text(&args, shared->record_ms);
    shed_args_add_text(&args, shared->grace_ms);
    shed_args_add(&args, x->seen, x->seen_size);
    shed_args_add(&args, x->due, is_due(x) ? sizeof(x->due) : 0);
    shed_args_add_text(&args, x->has_waited ? "waited" : "");
    put_call(x, &args);
}

static void on_first(void *arg, const struct shed_call_result *result);

/* Redis tracks the key for the session as it does by acquire. Returns: false:
 * there are no pushes, without which a wait for the lease that may be there
 * cannot begin. */
static bool look(struct shed_flight_exchange *x)
{
    struct shed_args args;

    if (!shed_session_is_on(session_of(x)))
        return false;
    shed_args_begin(&args, "GET");
    args.is_guarded = args.is_followed = true;
    shed_args_add(&args, x->key.at, x->key.size);
    shed_client_send(x->shared->cache->client, &x->call, &args, on_first, x);
    return true;
}

/* Take the lease of a key that has nothing. Its times are by our estimate of
 * the server's clock, which is behind it by a few ms at most: the lease ends
 * that much sooner. Returns: false: that clock is not known, or no script has
 * been executed yet, with which the lease could be ended. */
static bool claim(struct shed_flight_exchange *x)
{
    const struct shed_flight_shared *shared = x->shared;
    struct shed_client *client = shared->cache->client;
    uint64_t now_ms = shed_client_server_lowest_ms(client, x->key.at,
                                                   x->key.size, shed_now_ms());
    unsigned char lease[SHED_ENTRY_HEADER_BYTES];
    struct shed_args args;

    if (!shared->may_claim || now_ms == 0)
        return false;
    shed_random_unique(x->version, sizeof(x->version));
    x->epoch = shed_session_epoch(session_of(x));
    x->is_refresh = false;
    shed_entry_encode_lease(x->version, client->process, x->number, x->epoch,
                            now_ms, shared->cache->options.lease_ms, lease);
    shed_args_begin(&args, "SET");
    args.is_guarded = args.is_followed = true;
    shed_args_add(&args, x->key.at, x->key.size);
    shed_args_add(&args, lease, sizeof(lease));
    shed_args_add_text(&args, "NX");
    shed_args_add_text(&args, "PX");
    shed_args_add_text(&args, shared->record_ms);
    shed_client_send(client, &x->call, &args, on_first, x);
    return true;
}

static void send_first(struct shed_flight_exchange *x)
{
    bool is_sent = (x->first == SHED_FIRST_SET && claim(x)) ||
                   (x->first == SHED_FIRST_GET && look(x));

    if (!is_sent)
        send_acquire(x);
}

static void on_first(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_exchange *x = arg;
    struct shed_flight_event event;

    if (shed_flight_reply_decides(x, result, &event)) {
        x->on_event(x->arg, event);
        return;
    }
    /* where SET has found something, GET tells what */
    x->first = x->first == SHED_FIRST_SET ? SHED_FIRST_GET : SHED_FIRST_NOTHING;
    send_first(x);
}

static void send_fail(struct shed_flight_exchange *x)
{
    uint64_t ttl_ms =
        shed_freshness_ttl_ms(x->shared->cache->options.failure_ttl_ms,
                              FAILURE_JITTER_PCT, shed_random_jitter());
    struct shed_entry entry = {
        .type = SHED_ENTRY_FAILURE,
        .row_version = x->error.code,
        .payload = (const unsigned char *)x->error.reason,
        .payload_size = strnlen(x->error.reason, SHED_REASON_BYTES)};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_entry_parts parts;
    struct shed_args args;
    char ttl[SHED_DIGITS], kept[SHED_DIGITS];

    shed_random_unique(nonce, sizeof(nonce));
    shed_entry_encode(lease_key(x), &entry, nonce, &parts);
    begin_lease(&args, SHED_SCRIPT_FAIL, x);
    shed_args_add(&args, x->version, sizeof(x->version));
    add_holder(&args, x);
    shed_args_add(&args, parts.head, sizeof(parts.head));
    shed_args_add(&args, parts.tail, sizeof(parts.tail));
    shed_args_add(&args, entry.payload, entry.payload_size);
    shed_args_add_number(&args, ttl, ttl_ms);
    shed_args_add_number(
        &args, kept, x->sent == SHED_SEND_RELEASE ? 0 : ttl_ms + LATE_LOOK_MS);
    put_call(x, &args);
}

static void on_delivered(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_exchange *x = arg;

    if (shed_reply_integer(result->reply) < 0) {
        x->on_event(x->arg, shed_flight_reply_trouble(x, result));
        return;
    }
    shed_delivery_settle(x->shared->cache->delivery, x->key.at, x->key.size,
                         x->delivered);
    send_acquire(x);
}

/* What acquire would find may be older than an invalidation that Redis has
 * missed. So that goes first, and while it cannot, Redis is done without.
 * Returns: whether there is one. */
static bool send_missed(struct shed_flight_exchange *x)
{
    struct shed_args args;

    if (!shed_delivery_find(x->shared->cache->delivery, x->key.at, x->key.size,
                            &x->delivered))
        return false;
    shed_delivery_begin(&args, x->delivered.wish, x->refresh_key.at,
                        x->key.size, "0");
    args.is_guarded = true;
    shed_client_send(x->shared->cache->client, &x->call, &args, on_delivered,
                     x);
    return true;
}

static void send_call(struct shed_flight_exchange *x)
{
    if (x->sent == SHED_SEND_PUBLISH)
        shed_flight_publish(x);
    else if (x->sent != SHED_SEND_ACQUIRE)
        send_fail(x);
    else if (!send_missed(x))
        send_first(x);
}

void shed_flight_redis_send(struct shed_flight_exchange *x,
                            enum shed_flight_send what, uint64_t request)
{
    assert(x->call.fn == NULL && !x->is_publishing);
    x->sent = what;
    x->call_request = request;
    if (what == SHED_SEND_ACQUIRE)
        x->old_version.is_known = false; /* also if nothing can be acquired */
    x->mark = shed_local_mark(x->shared->cache->local, x->key);
    send_call(x);
}

void shed_flight_redis_renew(struct shed_flight_exchange *x, uint64_t request)
{
    struct shed_client *client = x->shared->cache->client;
    struct shed_args args;
    char epoch[SHED_DIGITS];

    if (x->renew_call.fn != NULL)
        return; /* the last one is still under way */
    x->renew_request = request;
    begin_lease(&args, SHED_SCRIPT_RENEW, x);
    shed_args_add(&args, x->version, sizeof(x->version));
    add_holder(&args, x);
    shed_args_add_text(&args, x->shared->lease_ms);
    x->epoch = shed_session_epoch(session_of(x));
    shed_args_add_number(&args, epoch, x->epoch);
    shed_client_send(client, &x->renew_call, &args, on_renewed, x);
}

bool shed_flight_redis_is_busy(const struct shed_flight_exchange *x)
{
    return x->call.fn != NULL || x->is_publishing || x->renew_call.fn != NULL;
}

void shed_flight_redis_fini(struct shed_flight_exchange *x)
{
    shed_value_unref(x->entry);
    x->entry = NULL;
}
