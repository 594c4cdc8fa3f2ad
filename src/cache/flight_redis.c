/*
 * A flight's calls to Redis. Its invariants: at most one call and one renewal
 * are under way; each that ends makes exactly one event.
 *
 * Design notes
 *
 * All that a flight does in Redis are five scripts on one entry (src/redis/):
 * acquire, publish, fail, release (a fail without a marker) and renew. Each is
 * one round trip and atomic, and each can be sent again after a lost reply:
 * acquire recognises its own lease by process and flight number, publish finds
 * its own value and reports it as another's, fail and renew compare.
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
 * invalidate the record too.
 *
 * What is read is checked before it is believed: an entry must have our magic
 * and format, the right length, and a checksum that is seeded with the key. One
 * that does not is replaced only if it still begins with the bytes that were
 * seen, which the next acquire sends along.
 */
#include "cache/flight_redis.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"
#include "cache/entry_value.h"
#include "cache/flight_load.h"
#include "cache/freshness.h"

#define US_PER_MS 1000
/* Waiters look every 150 ms at least; a failure is kept for them for much
 * longer than that, because a busy machine makes looks late. */
#define LATE_LOOK_MS 5000
#define FAILURE_JITTER_PCT 50 /* of failure_ttl_ms, at most */

/* A lease names its holder where other entries have size, cost and checksum. */
_Static_assert(SHED_ENTRY_PROCESS_AT + SHED_PROCESS_BYTES ==
                   SHED_ENTRY_HEAD_BYTES,
               "a process id fits its place in a lease record");

void shed_flight_redis_tell(const struct shed_flight_redis *x,
                            enum shed_event_kind kind, enum shed_code outcome,
                            uint64_t duration_us, const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = x->settings->name,
                                     .key = x->user_key,
                                     .duration_us = duration_us,
                                     .reason = reason};

    shed_events_tell(x->settings->events, &event);
}

/* ---------------------------------------------------------------- replies */

static void drop_entry(struct shed_flight_redis *x)
{
    shed_value_unref(x->entry);
    x->entry = NULL;
}

/* An error reply, or none at all. */
static void on_trouble(struct shed_flight_redis *x, uint64_t request,
                       struct shed_reply *reply, enum shed_trouble trouble,
                       const struct shed_error *err)
{
    struct shed_flight_event event = {
        .type = SHED_EV_TROUBLE, .request = request, .trouble = trouble};

    if (reply != NULL) {
        const char *text = shed_reply_error(reply);
        event.trouble = shed_reply_trouble(reply);
        (void)shed_fail(&x->error, shed_reply_code(reply), "Redis: %s",
                        text != NULL ? text : "a reply of an unknown form");
    } else {
        x->error = *err;
    }
    x->on_event(x->arg, event);
}

/* Keep the beginning of a corrupt entry: the next acquire replaces an entry
 * that begins with it. */
static void remember_corrupt(struct shed_flight_redis *x,
                             const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    x->seen_size = size < sizeof(x->seen) ? size : sizeof(x->seen);
    if (x->seen_size > 0)
        memcpy(x->seen, bytes, x->seen_size);
    shed_flight_redis_tell(x, SHED_EVENT_CORRUPT_ENTRY, SHED_EREDIS, 0,
                           "its length or checksum is wrong");
}

static bool fail_corrupt(struct shed_flight_redis *x)
{
    (void)shed_fail(
        &x->error, SHED_EREDIS,
        "the entry in Redis is corrupt, and so is what replaced it");
    return false;
}

/* Keep the entry that is the second element of a reply. Returns: false if it
 * does not decode. */
static bool take_entry(struct shed_flight_redis *x, struct shed_reply *reply)
{
    struct shed_reply *bytes = shed_reply_take(reply, 1);
    struct shed_freshness_times times;
    uint64_t now_ms;
    enum shed_entry_state state;

    drop_entry(x);
    x->entry = shed_entry_value(x->settings->session, x->key, bytes, &times,
                                &now_ms, &state);
    if (x->entry != NULL) {
        shed_kept_keep_entry(x->settings->kept, x->key, x->mark, x->entry,
                             &times, now_ms);
        shed_entry_value_count(x->settings->counters, x->entry);
        return true;
    }
    if (state == SHED_ENTRY_CORRUPT)
        remember_corrupt(x, bytes);
    shed_reply_free(bytes);
    return fail_corrupt(x);
}

/* Keep the error of a failure marker, of the key or of its refresh. Returns:
 * false if it does not decode. */
static bool take_marker(struct shed_flight_redis *x,
                        const struct shed_reply *reply, bool is_refresh)
{
    struct shed_entry entry;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);
    enum shed_code code = SHED_ESOURCE;

    if (bytes == NULL ||
        shed_entry_decode(is_refresh ? x->refresh_key : x->key, bytes, size,
                          &entry) != SHED_ENTRY_OK) {
        remember_corrupt(x, reply);
        return fail_corrupt(x);
    }
    if (entry.row_version == SHED_ETOOBIG)
        code = SHED_ETOOBIG;
    (void)shed_fail(&x->error, code, "a load failed a moment ago: %.*s",
                    (int)(entry.payload_size < SHED_REASON_BYTES
                              ? entry.payload_size
                              : SHED_REASON_BYTES),
                    (const char *)entry.payload);
    return true;
}

/* Copy a data version or nonce. Returns: false if there is none. */
static bool take_token(unsigned char token[SHED_ENTRY_VERSION_BYTES],
                       const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    if (bytes == NULL || size != SHED_ENTRY_VERSION_BYTES)
        return false;
    memcpy(token, bytes, size);
    return true;
}

static struct shed_row_version take_row_version(const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    if (bytes == NULL || size != SHED_ENTRY_TAIL_BYTES)
        return (struct shed_row_version){.is_known = false};
    return (struct shed_row_version){shed_entry_get_u64(bytes), true};
}

static void take_lease(struct shed_flight_redis *x,
                       const struct shed_reply *reply)
{
    struct shed_counters *c = x->settings->counters;
    const struct shed_reply *how = shed_reply_at(reply, 2);

    (void)take_token(x->version, shed_reply_at(reply, 1));
    x->is_refresh = take_token(x->replaced, shed_reply_at(reply, 3));
    x->old_version = take_row_version(shed_reply_at(reply, 4));
    x->seen_size = 0;
    if (shed_reply_begins(how, "takeover")) {
        shed_count(&c->leases_taken_over, 1);
        shed_flight_redis_tell(x, SHED_EVENT_TAKEOVER, SHED_OK, 0,
                               "its loader was dead, or silent for a lease");
    } else if (!shed_reply_begins(how, "mine")) {
        shed_count(x->is_refresh ? &c->refreshes : &c->leases_won, 1);
    }
    if (shed_reply_begins(how, "foreign"))
        shed_count(&c->foreign_entries, 1);
    if (shed_reply_begins(how, "corrupt"))
        shed_count(&c->corrupt_entries, 1);
}

static uint64_t not_negative(const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    return number > 0 ? (uint64_t)number : 0;
}

static void on_acquired(void *arg, struct shed_reply *reply,
                        enum shed_trouble trouble, const struct shed_error *err)
{
    struct shed_flight_redis *x = arg;
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    struct shed_flight_event event = {.request = x->call_request};

    if (shed_reply_begins(kind, "LEAD")) {
        take_lease(x, reply);
        event.type = SHED_EV_LEAD;
    } else if (shed_reply_begins(kind, "HIT")) {
        event.type = take_entry(x, reply) ? SHED_EV_HIT : SHED_EV_CORRUPT;
        event.age_ms = x->entry != NULL ? x->entry->age_ms : 0;
    } else if (shed_reply_begins(kind, "FAILED")) {
        bool is_refresh = shed_reply_at(reply, 2) != NULL;
        event.type = take_marker(x, shed_reply_at(reply, 1), is_refresh)
                         ? SHED_EV_MARKER
                         : SHED_EV_CORRUPT;
    } else if (shed_reply_begins(kind, "WAIT")) {
        event.type = SHED_EV_WAIT;
        event.is_refresh = shed_reply_at(reply, 3) != NULL;
        event.wait_ms = not_negative(shed_reply_at(reply, 1));
        event.age_ms = not_negative(shed_reply_at(reply, 2));
    } else {
        on_trouble(x, x->call_request, reply, trouble, err);
        return;
    }
    x->on_event(x->arg, event);
}

/* A row that our load found unmodified, and only its bytes come from Redis. */
static enum shed_flight_event_type take_kept(struct shed_flight_redis *x,
                                             struct shed_reply *reply)
{
    if (!take_entry(x, reply))
        return SHED_EV_INVALIDATED;
    x->entry->origin = SHED_ORIGIN_LOAD;
    x->entry->fresh_ms = x->fresh_ms;
    return SHED_EV_SUPERSEDED;
}

static void on_published(void *arg, struct shed_reply *reply,
                         enum shed_trouble trouble,
                         const struct shed_error *err)
{
    struct shed_flight_redis *x = arg;
    struct shed_counters *c = x->settings->counters;
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    struct shed_flight_event event = {.request = x->call_request};

    if (shed_reply_begins(kind, "STORED")) {
        event.type = SHED_EV_STORED;
        shed_count(&c->published, 1);
    } else if (shed_reply_begins(kind, "KEPT")) {
        event.type = take_kept(x, reply);
        shed_count(&c->published, 1);
    } else if (shed_reply_begins(kind, "SUPERSEDED")) {
        event.type =
            take_entry(x, reply) ? SHED_EV_SUPERSEDED : SHED_EV_INVALIDATED;
        shed_count(&c->publishes_superseded, 1);
        shed_flight_redis_tell(x, SHED_EVENT_PUBLISH_REFUSED, SHED_ELOST, 0,
                               "another value was stored while it was loaded");
    } else if (shed_reply_begins(kind, "INVALIDATED")) {
        event.type = SHED_EV_INVALIDATED;
        shed_kept_drop(x->settings->kept, x->key);
        shed_count(&c->publishes_invalidated, 1);
        shed_flight_redis_tell(x, SHED_EVENT_PUBLISH_REFUSED, SHED_ELOST, 0,
                               "the key was invalidated while it was loaded");
    } else {
        on_trouble(x, x->call_request, reply, trouble, err);
        return;
    }
    x->on_event(x->arg, event);
}

static void on_ended(void *arg, struct shed_reply *reply,
                     enum shed_trouble trouble, const struct shed_error *err)
{
    struct shed_flight_redis *x = arg;
    struct shed_flight_event event = {.type = SHED_EV_ENDED,
                                      .request = x->call_request};

    (void)err;
    /* x->error stays the load's, for the marker of the next try */
    if (shed_reply_integer(reply) < 0) {
        event.type = SHED_EV_TROUBLE;
        event.trouble = reply != NULL ? shed_reply_trouble(reply) : trouble;
    }
    x->on_event(x->arg, event);
}

static void on_renewed(void *arg, struct shed_reply *reply,
                       enum shed_trouble trouble, const struct shed_error *err)
{
    struct shed_flight_redis *x = arg;
    struct shed_flight_event event = {.type = SHED_EV_RENEWED,
                                      .request = x->renew_request};

    (void)trouble;
    (void)err;
    if (shed_reply_integer(reply) == 0) {
        event.type = SHED_EV_LEASE_LOST;
        shed_count(&x->settings->counters->leases_lost, 1);
    }
    x->on_event(x->arg, event);
}

static void on_call(void *arg, struct shed_reply *reply,
                    enum shed_trouble trouble, const struct shed_error *err)
{
    struct shed_flight_redis *x = arg;

    if (x->sent == SHED_SEND_ACQUIRE)
        on_acquired(arg, reply, trouble, err);
    else if (x->sent == SHED_SEND_PUBLISH)
        on_published(arg, reply, trouble, err);
    else
        on_ended(arg, reply, trouble, err);
}

/* --------------------------------------------------------------- requests */

static void add_holder(struct shed_args *args,
                       const struct shed_flight_redis *x)
{
    shed_args_add(args, x->settings->process, SHED_PROCESS_BYTES);
    shed_args_add(args, x->number, sizeof(x->number));
}

static void add_parts(struct shed_args *args,
                      const struct shed_entry_parts *parts,
                      const struct shed_entry *entry)
{
    shed_args_add(args, parts->head, sizeof(parts->head));
    shed_args_add(args, parts->tail, sizeof(parts->tail));
    shed_args_add(args, entry->payload, entry->payload_size);
}

static void put_call(struct shed_flight_redis *x, const struct shed_args *args)
{
    shed_pipe_call(shed_session_pipe(x->settings->session), &x->call, args,
                   on_call, x);
}

/* Begin a call about the entry and its refresh. */
static void begin(struct shed_args *args, enum shed_script script,
                  const struct shed_flight_redis *x)
{
    shed_script_begin(args, script, "2");
    shed_args_add(args, x->key.at, x->key.size);
    shed_args_add(args, x->refresh_key.at, x->refresh_key.size);
}

/* Where our lease is. */
static struct shed_entry_key lease_key(const struct shed_flight_redis *x)
{
    return x->is_refresh ? x->refresh_key : x->key;
}

/* Begin a call about our lease. */
static void begin_lease(struct shed_args *args, enum shed_script script,
                        const struct shed_flight_redis *x)
{
    struct shed_entry_key key = lease_key(x);

    shed_script_begin(args, script, "1");
    shed_args_add(args, key.at, key.size);
}

/* A new data version or nonce. Where the kernel has no random bytes, jitter
 * must do: the number only has to differ from all others, nobody tries to guess
 * it. */
static void draw(unsigned char token[SHED_ENTRY_VERSION_BYTES])
{
    struct shed_error unused;

    if (shed_random_token(token, SHED_ENTRY_VERSION_BYTES, &unused) == SHED_OK)
        return;
    for (size_t i = 0; i < SHED_ENTRY_VERSION_BYTES; i++)
        token[i] = (unsigned char)shed_random_jitter();
}

static bool is_due(const struct shed_flight_redis *x)
{
    static const unsigned char none[sizeof(x->due)];

    return memcmp(x->due, none, sizeof(none)) != 0;
}

static void send_acquire(struct shed_flight_redis *x)
{
    const struct shed_flight_redis_settings *r = x->settings;
    unsigned flags =
        shed_session_has_channel(r->session) ? SHED_ENTRY_HAS_CHANNEL : 0;
    unsigned char flag_bytes[] = {0, (unsigned char)flags};
    unsigned char version[SHED_ENTRY_VERSION_BYTES];
    struct shed_args args;

    x->old_version.is_known = false;
    draw(version);
    begin(&args, SHED_SCRIPT_ACQUIRE, x);
    args.is_guarded = true;
    shed_args_add(&args, version, sizeof(version));
    add_holder(&args, x);
    shed_args_add(&args, flag_bytes, sizeof(flag_bytes));
    shed_args_add_text(&args, r->lease_ms);
    shed_args_add_text(&args, r->record_ms);
    shed_args_add_text(&args, r->grace_ms);
    shed_args_add(&args, x->seen, x->seen_size);
    shed_args_add(&args, x->due, is_due(x) ? sizeof(x->due) : 0);
    shed_args_add_text(&args, x->has_waited ? "waited" : "");
    put_call(x, &args);
}

/* How long what was loaded is fresh, and how long Redis keeps it: "no such row"
 * is not kept beyond its freshness. */
static void add_ttls(struct shed_args *args, struct shed_flight_redis *x,
                     char fresh[SHED_DIGITS], char kept[SHED_DIGITS])
{
    const struct shed_cache_options *o = x->settings->options;
    bool is_absent = x->loaded->value->kind == SHED_KIND_ABSENT;
    uint64_t fresh_ms = shed_flight_load_ttl_ms(x->loaded, o);

    x->fresh_ms = fresh_ms;
    shed_args_add_number(args, fresh, fresh_ms);
    shed_args_add_number(
        args, kept,
        is_absent ? fresh_ms
                  : shed_freshness_kept_ms(&x->settings->rule, fresh_ms));
}

static void send_publish(struct shed_flight_redis *x)
{
    const struct shed_value *v = x->loaded->value;
    uint64_t cost_ms = x->loaded->cost_us / US_PER_MS;
    bool has_version =
        x->loaded->version.is_known && v->kind != SHED_KIND_ABSENT;
    struct shed_entry entry = {
        .type = v->kind == SHED_KIND_ABSENT ? SHED_ENTRY_NEGATIVE
                                            : SHED_ENTRY_VALUE,
        .flags = (v->kind == SHED_KIND_NULL ? SHED_ENTRY_NULL : 0) |
                 (has_version ? SHED_ENTRY_ROW_VERSION : 0),
        .row_version = has_version ? x->loaded->version.number : 0,
        .cost_ms = cost_ms < UINT32_MAX ? (uint32_t)cost_ms : UINT32_MAX,
        .position = x->position,
        .payload = v->data,
        .payload_size = v->size};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_entry_parts parts;
    struct shed_args args;
    char fresh[SHED_DIGITS], kept[SHED_DIGITS];

    if (x->settings->groups != NULL) {
        entry.flags |= SHED_ENTRY_POSITION;
        entry.flags |= x->loaded->tags != NULL ? SHED_ENTRY_TAGS : 0;
        entry.tags = x->loaded->tags;
        entry.tags_size = x->loaded->tags_size;
    }
    draw(nonce);
    shed_entry_encode(x->key, &entry, nonce, &parts);
    begin(&args, SHED_SCRIPT_PUBLISH, x);
    shed_args_add(&args, x->version, sizeof(x->version));
    add_parts(&args, &parts, &entry);
    add_ttls(&args, x, fresh, kept);
    shed_args_add(&args, x->replaced, x->is_refresh ? sizeof(x->replaced) : 0);
    shed_args_add_text(&args, !x->loaded->is_unmodified ? ""
                              : x->has_callers          ? "keep and get"
                                                        : "keep");
    shed_args_add(&args, entry.tags, entry.tags_size);
    put_call(x, &args);
}

static void send_fail(struct shed_flight_redis *x)
{
    uint64_t ttl_ms =
        shed_freshness_ttl_ms(x->settings->options->failure_ttl_ms,
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

    draw(nonce);
    shed_entry_encode(lease_key(x), &entry, nonce, &parts);
    begin_lease(&args, SHED_SCRIPT_FAIL, x);
    shed_args_add(&args, x->version, sizeof(x->version));
    add_holder(&args, x);
    add_parts(&args, &parts, &entry);
    shed_args_add_number(&args, ttl, ttl_ms);
    shed_args_add_number(
        &args, kept, x->sent == SHED_SEND_RELEASE ? 0 : ttl_ms + LATE_LOOK_MS);
    put_call(x, &args);
}

static void on_delivered(void *arg, struct shed_reply *reply,
                         enum shed_trouble trouble,
                         const struct shed_error *err)
{
    struct shed_flight_redis *x = arg;

    if (shed_reply_integer(reply) < 0) {
        on_trouble(x, x->call_request, reply, trouble, err);
        return;
    }
    shed_outbox_settle(x->settings->outbox, x->key.at, x->key.size,
                       x->delivered);
    send_acquire(x);
}

/* What acquire would find may be older than an invalidation that Redis has
 * missed. So that goes first, and while it cannot, Redis is done without.
 * Returns: whether there is one. */
static bool send_missed(struct shed_flight_redis *x)
{
    struct shed_args args;

    if (!shed_outbox_find(x->settings->outbox, x->key.at, x->key.size,
                          &x->delivered))
        return false;
    begin(&args, shed_outbox_script(x->delivered.wish), x);
    args.is_guarded = true;
    shed_pipe_call(shed_session_pipe(x->settings->session), &x->call, &args,
                   on_delivered, x);
    return true;
}

static void send_call(struct shed_flight_redis *x)
{
    if (x->sent == SHED_SEND_PUBLISH)
        send_publish(x);
    else if (x->sent != SHED_SEND_ACQUIRE)
        send_fail(x);
    else if (!send_missed(x))
        send_acquire(x);
}

void shed_flight_redis_send(struct shed_flight_redis *x,
                            enum shed_flight_send what, uint64_t request)
{
    assert(x->call.fn == NULL);
    assert(what != SHED_SEND_PUBLISH || x->loaded->value != NULL);
    x->sent = what;
    x->call_request = request;
    x->mark = shed_kept_mark(x->settings->kept, x->key);
    send_call(x);
}

void shed_flight_redis_renew(struct shed_flight_redis *x, uint64_t request)
{
    struct shed_args args;

    if (x->renew_call.fn != NULL)
        return; /* the last one is still under way */
    x->renew_request = request;
    begin_lease(&args, SHED_SCRIPT_RENEW, x);
    shed_args_add(&args, x->version, sizeof(x->version));
    add_holder(&args, x);
    shed_args_add_text(&args, x->settings->lease_ms);
    shed_pipe_call(shed_session_pipe(x->settings->session), &x->renew_call,
                   &args, on_renewed, x);
}

bool shed_flight_redis_is_busy(const struct shed_flight_redis *x)
{
    return x->call.fn != NULL || x->renew_call.fn != NULL;
}

void shed_flight_redis_fini(struct shed_flight_redis *x)
{
    drop_entry(x);
}

void shed_flight_redis_settings_init(struct shed_flight_redis_settings *s,
                                     uint64_t record_ms)
{
    s->rule = shed_freshness_rule_of_cache(s->options);
    shed_write_digits(s->lease_ms, s->options->lease_ms);
    shed_write_digits(s->grace_ms, s->options->grace_ms);
    shed_write_digits(s->record_ms, record_ms);
}
