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
 * caller has found nothing; GET, behind a push or where it has found a lease;
 * GET and then SET NX, where it has not looked. What that does not decide,
 * acquire does. Each call can be sent again after a lost reply: acquire
 * recognises its own lease by process and flight number, publish finds its own
 * value and reports it as another's, the others compare.
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
#include "flight/flight_task.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"

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
    struct shed_flight_task *t = arg;

    shed_flight_task_drive(t, shed_flight_reply_event(t, result));
}

static void on_renewed(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_task *t = arg;
    struct shed_flight_event event = {.type = SHED_EV_RENEWED};

    if (shed_reply_integer(result->reply) == 0) {
        event.type = SHED_EV_LEASE_LOST;
        shed_count(&t->flights->cache->counters.leases_lost, 1);
    }
    shed_flight_task_drive(t, event);
}

/* --------------------------------------------------------------- requests */

static void add_holder(struct shed_args *args, const struct shed_flight_task *t)
{
    shed_args_add(args, t->flights->cache->client->process, SHED_PROCESS_BYTES);
    shed_args_add(args, t->number, sizeof(t->number));
}

static void put_call(struct shed_flight_task *t, const struct shed_args *args)
{
    shed_client_send(t->flights->cache->client, &t->call, args, on_call, t);
}

/* Where our lease is. */
static struct shed_bytes lease_key(const struct shed_flight_task *t)
{
    return t->is_refresh ? t->refresh_key : t->key;
}

/* Begin a call about our lease; a renewal of that of a refresh looks at the
 * value as well. */
static void begin_lease(struct shed_args *args, enum shed_script script,
                        const struct shed_flight_task *t)
{
    bool has_value = script == SHED_SCRIPT_RENEW && t->is_refresh;
    struct shed_bytes key = lease_key(t);

    shed_script_begin(args, script, has_value ? "2" : "1");
    shed_args_add(args, key.data, key.size);
    if (has_value)
        shed_args_add(args, t->key.data, t->key.size);
}

static void send_acquire(struct shed_flight_task *t)
{
    const struct shed_flights *flights = t->flights;
    unsigned char version[SHED_ENTRY_VERSION_BYTES];
    struct shed_args args;
    char epoch[SHED_DIGITS];

    shed_random_unique(version, sizeof(version));
    shed_script_begin(&args, SHED_SCRIPT_ACQUIRE, "2");
    shed_args_add(&args, t->key.data, t->key.size);
    shed_args_add(&args, t->refresh_key.data, t->refresh_key.size);
    args.is_guarded = true;
    shed_args_add(&args, version, sizeof(version));
    add_holder(&args, t);
    t->epoch = shed_session_epoch(shed_flight_task_session(t));
    shed_args_add_number(&args, epoch, t->epoch);
    shed_args_add_text(&args, flights->lease_ms);
    shed_args_add_text(&args, flights->record_ms);
    shed_args_add_text(&args, flights->grace_ms);
    shed_args_add(&args, t->seen, t->seen_size);
    shed_args_add(&args, t->due, t->is_forced ? sizeof(t->due) : 0);
    shed_args_add_text(&args, t->flight.had_holder ? "waited" : "");
    put_call(t, &args);
}

static void on_first(void *arg, const struct shed_call_result *result);

/* Redis tracks the key for the session as it does by acquire. Returns: false:
 * there are no pushes, without which a wait for the lease that may be there
 * cannot begin. */
static bool look(struct shed_flight_task *t)
{
    struct shed_args args;

    if (!shed_session_is_on(shed_flight_task_session(t)))
        return false;
    args = shed_args_of("GET", NULL);
    args.is_guarded = args.is_followed = true;
    shed_args_add(&args, t->key.data, t->key.size);
    shed_client_send(t->flights->cache->client, &t->call, &args, on_first, t);
    return true;
}

/* Take the lease of a key that has nothing. Its times are by our estimate of
 * the server's clock, which is behind it by a few ms at most: the lease ends
 * that much sooner. Returns: false: that clock is not known, or no script has
 * been executed yet, with which the lease could be ended. */
static bool claim(struct shed_flight_task *t)
{
    const struct shed_flights *flights = t->flights;
    struct shed_client *client = flights->cache->client;
    uint64_t now_ms =
        shed_client_server_lowest_ms(client, t->key, shed_now_ms());
    unsigned char lease[SHED_ENTRY_HEADER_BYTES];
    struct shed_args args;

    if (!flights->may_claim || now_ms == 0)
        return false;
    shed_random_unique(t->version, sizeof(t->version));
    t->epoch = shed_session_epoch(shed_flight_task_session(t));
    t->is_refresh = false;
    shed_entry_encode_lease(t->version, client->process, t->number, t->epoch,
                            now_ms, flights->cache->options.lease_ms, lease);
    args = shed_args_of("SET", NULL);
    args.is_guarded = args.is_followed = true;
    shed_args_add(&args, t->key.data, t->key.size);
    shed_args_add(&args, lease, sizeof(lease));
    shed_args_add_text(&args, "NX");
    shed_args_add_text(&args, "PX");
    shed_args_add_text(&args, flights->record_ms);
    shed_client_send(client, &t->call, &args, on_first, t);
    return true;
}

static void send_first(struct shed_flight_task *t)
{
    bool is_sent =
        (t->first == SHED_FIRST_SET && claim(t)) ||
        ((t->first == SHED_FIRST_GET || t->first == SHED_FIRST_BOTH) &&
         look(t));

    if (!is_sent)
        send_acquire(t);
}

/* Where SET has found something, GET tells what. */
static enum shed_flight_first next_first(enum shed_flight_first first,
                                         bool is_nil)
{
    if (first == SHED_FIRST_SET)
        return SHED_FIRST_GET;
    return first == SHED_FIRST_BOTH && is_nil ? SHED_FIRST_SET
                                              : SHED_FIRST_NOTHING;
}

static void on_first(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_task *t = arg;
    struct shed_flight_event event;
    bool is_nil = shed_reply_is_nil(result->reply); /* it may be taken */

    if (shed_flight_reply_decides(t, result, &event)) {
        shed_flight_task_drive(t, event);
        return;
    }
    t->first = next_first(t->first, is_nil);
    send_first(t);
}

static void send_fail(struct shed_flight_task *t)
{
    uint64_t ttl_ms =
        shed_freshness_ttl_ms(t->flights->cache->options.failure_ttl_ms,
                              FAILURE_JITTER_PCT, shed_random_jitter());
    struct shed_entry entry = {
        .type = SHED_ENTRY_FAILURE,
        .row_version = t->error.code,
        .payload = (const unsigned char *)t->error.reason,
        .payload_size = strnlen(t->error.reason, SHED_REASON_BYTES)};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_entry_parts parts;
    struct shed_args args;
    char ttl[SHED_DIGITS], kept[SHED_DIGITS];

    shed_random_unique(nonce, sizeof(nonce));
    shed_entry_encode(lease_key(t), &entry, nonce, &parts);
    begin_lease(&args, SHED_SCRIPT_FAIL, t);
    shed_args_add(&args, t->version, sizeof(t->version));
    add_holder(&args, t);
    shed_args_add(&args, parts.head, sizeof(parts.head));
    shed_args_add(&args, parts.tail, sizeof(parts.tail));
    shed_args_add(&args, entry.payload, entry.payload_size);
    shed_args_add_number(&args, ttl, ttl_ms);
    shed_args_add_number(
        &args, kept, t->sent == SHED_SEND_RELEASE ? 0 : ttl_ms + LATE_LOOK_MS);
    put_call(t, &args);
}

static void on_delivered(void *arg, const struct shed_call_result *result)
{
    struct shed_flight_task *t = arg;

    if (shed_reply_integer(result->reply) < 0) {
        shed_flight_task_drive(t, shed_flight_reply_trouble(t, result));
        return;
    }
    shed_delivery_settle(t->flights->cache->delivery, t->key, t->delivered);
    send_acquire(t);
}

/* What acquire would find may be older than an invalidation that Redis has
 * missed. So that goes first, and while it cannot, Redis is done without.
 * Returns: whether there is one. */
static bool send_missed(struct shed_flight_task *t)
{
    struct shed_args args;

    if (!shed_delivery_find(t->flights->cache->delivery, t->key, &t->delivered))
        return false;
    shed_delivery_begin(&args, t->delivered.wish, t->key, "0");
    args.is_guarded = true;
    shed_client_send(t->flights->cache->client, &t->call, &args, on_delivered,
                     t);
    return true;
}

void shed_flight_redis_send(struct shed_flight_task *t,
                            enum shed_flight_send what)
{
    assert(t->call.fn == NULL && !t->is_publishing);
    t->sent = what;
    if (what == SHED_SEND_ACQUIRE)
        t->old_version.is_known = false; /* also if nothing can be acquired */
    t->mark = shed_local_mark(t->flights->cache->local, t->key);
    if (what == SHED_SEND_PUBLISH)
        shed_flight_publish(t);
    else if (what != SHED_SEND_ACQUIRE)
        send_fail(t);
    else if (!send_missed(t))
        send_first(t);
}

void shed_flight_redis_renew(struct shed_flight_task *t)
{
    struct shed_client *client = t->flights->cache->client;
    struct shed_args args;
    char epoch[SHED_DIGITS];

    if (t->renew_call.fn != NULL)
        return; /* the last one is still under way */
    begin_lease(&args, SHED_SCRIPT_RENEW, t);
    shed_args_add(&args, t->version, sizeof(t->version));
    add_holder(&args, t);
    shed_args_add_text(&args, t->flights->lease_ms);
    t->epoch = shed_session_epoch(shed_flight_task_session(t));
    shed_args_add_number(&args, epoch, t->epoch);
    shed_client_send(client, &t->renew_call, &args, on_renewed, t);
}
