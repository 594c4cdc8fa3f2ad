/*
 * What the replies to a flight's calls mean. Its invariant: what is read is
 * checked before it is believed. An entry must have our magic and format, the
 * right length, and a checksum that is seeded with the key. One that does not
 * is replaced only if it still begins with the bytes that were seen, which the
 * next acquire sends along.
 */
#include "flight/flight_task.h"

#include <string.h>

#include "base/error.h"
#include "base/value.h"
#include "entry/entry_value.h"

static void drop_entry(struct shed_flight_task *t)
{
    shed_value_unref(t->entry);
    t->entry = NULL;
}

struct shed_flight_event
shed_flight_reply_trouble(struct shed_flight_task *t,
                          const struct shed_call_result *result)
{
    return (struct shed_flight_event){.type = SHED_EV_TROUBLE,
                                      .trouble =
                                          shed_call_failure(result, &t->error)};
}

/* Keep the beginning of a corrupt entry: the next acquire replaces an entry
 * that begins with it. */
static void remember_corrupt(struct shed_flight_task *t,
                             const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    t->seen_size = size < sizeof(t->seen) ? size : sizeof(t->seen);
    if (t->seen_size > 0)
        memcpy(t->seen, bytes, t->seen_size);
    shed_flight_task_tell(t, SHED_EVENT_CORRUPT_ENTRY, SHED_EREDIS,
                          "its length or checksum is wrong");
}

static bool fail_corrupt(struct shed_flight_task *t)
{
    (void)shed_fail(
        &t->error, SHED_EREDIS,
        "the entry in Redis is corrupt, and so is what replaced it");
    return false;
}

/* Its callers will find it to be a miss by one of its tags. */
static bool is_revoked(const struct shed_flight_task *t)
{
    struct shed_tag_log *tag_log = t->flights->cache->tag_log;

    return tag_log != NULL &&
           !shed_tag_log_admits(tag_log, shed_value_header(t->entry));
}

static void keep_entry(struct shed_flight_task *t, struct shed_value *entry,
                       const struct shed_freshness_times *times,
                       uint64_t now_ms)
{
    drop_entry(t);
    t->entry = entry;
    shed_local_keep_entry(t->flights->cache->local, t->key, t->mark, entry,
                          times, now_ms);
    if (!is_revoked(t))
        shed_entry_value_count(&t->flights->cache->counters, entry);
}

static uint64_t server_ms(const struct shed_flight_task *t)
{
    return shed_client_server_ms(t->flights->cache->client, t->key);
}

/* Keep the entry that is the second element of a reply. Returns: false if it
 * does not decode. */
static bool take_entry(struct shed_flight_task *t, struct shed_reply *reply)
{
    struct shed_reply *bytes = shed_reply_take(reply, 1);
    struct shed_freshness_times times;
    uint64_t now_ms = server_ms(t);
    enum shed_entry_state state;
    struct shed_value *entry =
        shed_entry_value(t->key, bytes, now_ms, &times, &state);

    if (entry != NULL) {
        keep_entry(t, entry, &times, now_ms);
        return true;
    }
    drop_entry(t);
    if (state == SHED_ENTRY_CORRUPT)
        remember_corrupt(t, bytes);
    shed_reply_free(bytes);
    return fail_corrupt(t);
}

/* Keep the error of a failure marker, of the key or of its refresh. Returns:
 * false if it does not decode. */
static bool take_marker(struct shed_flight_task *t,
                        const struct shed_reply *reply, bool is_refresh)
{
    struct shed_entry entry;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);
    enum shed_code code = SHED_ESOURCE;

    if (bytes == NULL ||
        shed_entry_decode(is_refresh ? t->refresh_key : t->key, bytes, size,
                          &entry) != SHED_ENTRY_OK) {
        remember_corrupt(t, reply);
        return fail_corrupt(t);
    }
    if (entry.row_version == SHED_ETOOBIG)
        code = SHED_ETOOBIG;
    (void)shed_fail(&t->error, code, "a load failed a moment ago: %.*s",
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
    return (struct shed_row_version){.number = shed_entry_get_u64(bytes),
                                     .is_known = true};
}

static void take_lease(struct shed_flight_task *t,
                       const struct shed_reply *reply)
{
    struct shed_counters *c = &t->flights->cache->counters;
    const struct shed_reply *how = shed_reply_at(reply, 2);

    (void)take_token(t->version, shed_reply_at(reply, 1));
    t->is_refresh = take_token(t->replaced, shed_reply_at(reply, 3));
    t->old_version = take_row_version(shed_reply_at(reply, 5));
    t->seen_size = 0;
    if (shed_reply_begins(how, "takeover")) {
        shed_count(&c->leases_taken_over, 1);
        shed_flight_task_tell(
            t, SHED_EVENT_TAKEOVER, SHED_OK,
            "its loader was dead, or silent for a whole lease");
    } else if (!shed_reply_begins(how, "mine")) {
        shed_count(t->is_refresh ? &c->refreshes : &c->leases_won, 1);
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

static struct shed_flight_event acquired(struct shed_flight_task *t,
                                         const struct shed_call_result *result)
{
    struct shed_reply *reply = result->reply;
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    struct shed_flight_event event = {0};

    t->flights->may_claim |= kind != NULL;
    if (shed_reply_begins(kind, "LEAD")) {
        take_lease(t, reply);
        event.type = SHED_EV_LEAD;
        event.is_refresh = t->is_refresh;
        event.wait_ms = not_negative(shed_reply_at(reply, 4));
    } else if (shed_reply_begins(kind, "HIT")) {
        event.type = take_entry(t, reply) ? SHED_EV_HIT : SHED_EV_CORRUPT;
        event.age_ms = t->entry != NULL ? t->entry->age_ms : 0;
    } else if (shed_reply_begins(kind, "FAILED")) {
        bool is_refresh = shed_reply_at(reply, 2) != NULL;
        event.type = take_marker(t, shed_reply_at(reply, 1), is_refresh)
                         ? SHED_EV_MARKER
                         : SHED_EV_CORRUPT;
    } else if (shed_reply_begins(kind, "WAIT")) {
        event.type = SHED_EV_WAIT;
        event.is_refresh = shed_reply_at(reply, 3) != NULL;
        event.wait_ms = not_negative(shed_reply_at(reply, 1));
        event.age_ms = not_negative(shed_reply_at(reply, 2));
        event.may_be_older = event.age_ms < SHED_LEASE_ALIVE_MS;
    } else {
        return shed_flight_reply_trouble(t, result);
    }
    return event;
}

/* A value that GET has found, if acquire would find it fresh. */
static bool take_found(struct shed_flight_task *t,
                       const struct shed_call_result *result, uint64_t now_ms)
{
    struct shed_freshness_times times;
    enum shed_entry_state state;
    struct shed_value *entry =
        shed_entry_value(t->key, result->reply, now_ms, &times, &state);

    if (entry == NULL)
        return false;
    *result->is_taken = true;
    if (now_ms >= times.until_ms ||
        shed_entry_has_identity(shed_value_header(entry), t->due)) {
        shed_value_unref(entry);
        return false;
    }
    keep_entry(t, entry, &times, now_ms);
    return true;
}

/* A lease that GET has found is to be waited for, without a look at whether its
 * holder lives, if that has just written it. */
static bool is_just_taken(const struct shed_reply *reply, uint64_t now_ms,
                          struct shed_flight_event *event)
{
    struct shed_entry lease;

    if (!shed_entry_is_lease(reply, &lease) || lease.written_ms > now_ms ||
        now_ms >= lease.until_ms)
        return false;
    event->age_ms = now_ms - lease.written_ms;
    event->wait_ms = lease.until_ms - now_ms;
    event->may_be_older = true;
    return event->age_ms < SHED_LEASE_ALIVE_MS;
}

/* What GET has found. */
static bool looked(struct shed_flight_task *t,
                   const struct shed_call_result *result,
                   struct shed_flight_event *event)
{
    uint64_t now_ms = server_ms(t);

    if (now_ms == 0) /* its clock is not known */
        return false;
    event->type = SHED_EV_WAIT;
    if (is_just_taken(result->reply, now_ms, event))
        return true;
    if (!take_found(t, result, now_ms))
        return false;
    event->type = SHED_EV_HIT;
    event->age_ms = t->entry->age_ms;
    return true;
}

/* Whether SET has taken the lease. */
static bool claimed(struct shed_flight_task *t, const struct shed_reply *reply,
                    struct shed_flight_event *event)
{
    if (!shed_reply_begins(reply, "OK"))
        return false;
    shed_count(&t->flights->cache->counters.leases_won, 1);
    event->type = SHED_EV_LEAD;
    return true;
}

bool shed_flight_reply_decides(struct shed_flight_task *t,
                               const struct shed_call_result *result,
                               struct shed_flight_event *event)
{
    *event = (struct shed_flight_event){0};
    if (result->reply == NULL) {
        *event = shed_flight_reply_trouble(t, result);
        return true;
    }
    return t->first == SHED_FIRST_SET ? claimed(t, result->reply, event)
                                      : looked(t, result, event);
}

/* A row that our load found unmodified, and only its bytes come from Redis. */
static enum shed_flight_event_type take_kept(struct shed_flight_task *t,
                                             struct shed_reply *reply)
{
    if (!take_entry(t, reply))
        return SHED_EV_INVALIDATED;
    t->entry->origin = SHED_ORIGIN_LOAD;
    t->entry->fresh_ms = t->fresh_ms;
    return SHED_EV_SUPERSEDED;
}

static struct shed_flight_event published(struct shed_flight_task *t,
                                          const struct shed_call_result *result)
{
    struct shed_counters *c = &t->flights->cache->counters;
    struct shed_reply *reply = result->reply;
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    struct shed_flight_event event = {0};

    if (shed_reply_begins(kind, "STORED")) {
        event.type = SHED_EV_STORED;
        shed_count(&c->published, 1);
    } else if (shed_reply_begins(kind, "KEPT")) {
        event.type = take_kept(t, reply);
        shed_count(&c->published, 1);
    } else if (shed_reply_begins(kind, "SUPERSEDED")) {
        event.type =
            take_entry(t, reply) ? SHED_EV_SUPERSEDED : SHED_EV_INVALIDATED;
        shed_count(&c->publishes_superseded, 1);
        shed_flight_task_tell(t, SHED_EVENT_PUBLISH_REFUSED, SHED_ELOST,
                              "another value was stored while it was loaded");
    } else if (shed_reply_begins(kind, "INVALIDATED")) {
        event.type = SHED_EV_INVALIDATED;
        shed_local_drop(t->flights->cache->local, t->key);
        shed_count(&c->publishes_invalidated, 1);
        shed_flight_task_tell(t, SHED_EVENT_PUBLISH_REFUSED, SHED_ELOST,
                              "the key was invalidated while it was loaded");
    } else {
        return shed_flight_reply_trouble(t, result);
    }
    return event;
}

static struct shed_flight_event ended(const struct shed_call_result *result)
{
    struct shed_flight_event event = {.type = SHED_EV_ENDED};
    struct shed_error unused; /* the task's stays the load's, for the marker of
                                 the next try */

    if (shed_reply_integer(result->reply) < 0) {
        event.type = SHED_EV_TROUBLE;
        event.trouble = shed_call_failure(result, &unused);
    }
    return event;
}

struct shed_flight_event
shed_flight_reply_event(struct shed_flight_task *t,
                        const struct shed_call_result *result)
{
    if (t->sent == SHED_SEND_ACQUIRE)
        return acquired(t, result);
    if (t->sent == SHED_SEND_PUBLISH)
        return published(t, result);
    return ended(result);
}
