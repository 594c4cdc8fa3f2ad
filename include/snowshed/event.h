/*
 * What happens inside a client, reported as it happens: for metrics, traces and
 * alarms of your own.
 *
 *     static void on_event(void *user, const struct shed_event *event)
 *     {
 *         if (event->kind == SHED_EVENT_LOCK_LOST)
 *             atomic_fetch_add((atomic_ulong *)user, 1);
 *     }
 *     ...
 *     options.on_event = on_event;
 *     options.event_user = &losses;
 *
 * The statistics (snowshed/stats.h) count everything; events say which key or
 * lock it was, and why. A hit is not an event, unless it is stale. What an
 * operator should see is passed to on_log as well, as one line of text (how
 * often: SHED_LOG_INTERVAL_MS).
 *
 * Growth: a newer library may know more kinds, which come after those listed
 * here, and more fields, which come after those declared here; no field moves
 * and no kind changes its number. So ignore a kind that you do not know. Before
 * reading a field that was not in the first version of the struct, check that
 * size covers it: the library may be older than the header.
 */
#ifndef SNOWSHED_EVENT_H
#define SNOWSHED_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * on_event is told of at most this many events of one kind in each second, by
 * one client; a kind's failures (outcome other than SHED_OK) are counted apart
 * from its successes, and so are those for which the line of another speaks
 * (see LOAD_FINISHED). The rest are left out, reported as one
 * SHED_EVENT_SUPPRESSED at the end of the second, and counted in
 * events_left_out of struct shed_client_status.
 */
#define SHED_EVENTS_PER_SECOND 20

/*
 * on_log is for people. The first line of a kind comes at once. What follows in
 * this time is held back; then one line comes for all of it, with the text of
 * the last, the highest level, and the number of the others:
 *
 *     stale row served: item, key 42: it is past its ttl (and 1234 more of this
 *     kind in the last 10 s)
 *
 * Lines and numbers add up to all that has happened. Failures of a kind are
 * counted apart from its successes. What is left when the client is closed is
 * told before. Of changes of state (CONNECTED and DISCONNECTED together,
 * BREAKER, FLEET) and of the LOCK_ kinds, up to ten lines pass in this time,
 * because each is news.
 */
#define SHED_LOG_INTERVAL_MS 10000

/* What happened. At each kind: what its fields hold, where that does not follow
 * from the struct; and the level at which on_log is told, if it is. */
enum shed_event_kind {
    /* count events of the kind about were left out, because there were too many
     * or memory ran out. outcome: that of the last of them; successes and
     * failures are reported apart. on_log is not told: its lines have numbers
     * of their own. */
    SHED_EVENT_SUPPRESSED = 0,
    /* The client is connected to Redis. reason: to which address, and as which
     * process, by which leases and locks name their holder; duration: for how
     * long it was not connected. INFO. */
    SHED_EVENT_CONNECTED = 1,
    /* The connection was lost, or could not be made, or Redis refuses the
     * client; reported once until that changes. outcome: SHED_EREDIS,
     * SHED_EDENIED or another; duration: for how long it was connected.
     * WARNING; ERROR with SHED_EDENIED. */
    SHED_EVENT_DISCONNECTED = 2,
    /* The source is done with a key. outcome: how (SHED_ELOST: it read a lower
     * version of the row than Redis has, see struct shed_answer); duration: how
     * long the load of its batch took. WARNING if it failed: one line for all
     * keys of a cache that failed for the same reason in one load. */
    SHED_EVENT_LOAD_FINISHED = 3,
    /* This process took over the load of a key whose loader was dead, or had
     * been silent for a lease. WARNING. */
    SHED_EVENT_TAKEOVER = 4,
    /* A loaded value was given to its callers and not stored. outcome:
     * SHED_ELOST if the key was invalidated, or another value was stored, while
     * it was loaded, which is normal, INFO; else why Redis could not take it,
     * WARNING. */
    SHED_EVENT_PUBLISH_REFUSED = 5,
    /* An entry whose length or checksum is wrong was found in Redis. It is
     * loaded again and replaced. outcome: SHED_EREDIS. WARNING. */
    SHED_EVENT_CORRUPT_ENTRY = 6,
    /* This process invalidated a key, or a tag: then key is its tag, or empty
     * for all entries; so it is in the INVALIDATION_ events. */
    SHED_EVENT_INVALIDATED = 7,
    /* A hold of a lock began. duration: how long the acquire took. */
    SHED_EVENT_LOCK_ACQUIRED = 8,
    /* A hold that begins was taken from a dead holder before its lease had
     * ended. WARNING. */
    SHED_EVENT_LOCK_TAKEN_OVER = 9,
    /* A hold ended with its release. duration: how long it lasted. outcome:
     * SHED_OK; SHED_EREDIS or another if Redis did not confirm it, and then
     * reason says why, WARNING. */
    SHED_EVENT_LOCK_RELEASED = 10,
    /* A hold was lost. outcome: SHED_ELOST; duration: how long it lasted.
     * WARNING. */
    SHED_EVENT_LOCK_LOST = 11,
    /* A circuit breaker opened (WARNING), from closed or again from half-open,
     * or closed (INFO, SHED_OK). outcome when it opens: SHED_ESOURCE for that
     * of a cache's source; SHED_EREDIS for that before Redis, where name is
     * empty. duration: if it was closed before, for how long; if it was
     * half-open, how long ago it first opened. */
    SHED_EVENT_BREAKER = 12,
    /* Redis could not be told of an invalidation (or of a put or an expiry),
     * which will be delivered. outcome: why. WARNING. */
    SHED_EVENT_INVALIDATION_UNDELIVERED = 13,
    /* Redis has been told of one that was undelivered. duration: for how long.
     * INFO.
     */
    SHED_EVENT_INVALIDATION_DELIVERED = 14,
    /* One was given up: an old row can be read until its ttl ends. outcome: why
     * Redis was not told; SHED_ECLOSED: the cache was closed first. ERROR. */
    SHED_EVENT_INVALIDATION_DROPPED = 15,
    /* A call was given a row that is no longer fresh, or one that the process
     * had kept, because Redis did not answer. outcome: SHED_OK if it was given
     * at once, while it is loaded again; else how the GET has failed, or what
     * the call would have ended with, SHED_ETIMEDOUT after its soft timeout
     * too; duration: the age of the row. INFO. */
    SHED_EVENT_STALE_SERVED = 16,
    /* The loads of a cache's source do not keep to fleet_loads, because Redis
     * refuses, or is away or slow: outcome why, WARNING; or they do again:
     * INFO. duration: how long it was the other way. */
    SHED_EVENT_FLEET = 17
};

struct shed_event {
    size_t size; /* of the struct, as the library knows it */
    enum shed_event_kind kind;
    enum shed_code outcome; /* SHED_OK, unless the kind says otherwise */
    struct shed_bytes name; /* of the cache or lock; empty if of neither */
    struct shed_bytes key;  /* of the entry; empty if of none */
    uint64_t duration_us;   /* 0 unless the kind says what it is */
    const char *reason;     /* terminated text without secrets or payloads, for
                               people; its wording may change; never NULL */
    uint64_t count;         /* SUPPRESSED: how many were left out; else 1 */
    uint64_t about;         /* SUPPRESSED: the enum shed_event_kind that they
                               were of; else kind */
};

/*
 * Called with each event, if it is set in the options of a client.
 *
 * It is called on the client's own thread, one event at a time, in the order in
 * which they happened there, with no lock held; for a lock of several clients,
 * on the thread of the first. Everything else on that thread waits meanwhile.
 * The call comes after the event, whose subject may have changed again. It must
 * return soon. A function that blocks returns SHED_EINVAL in it;
 * shed_client_status_read, shed_source_status_read, the statistics and
 * shed_lock_acquire_async may be called; snowshed.h says what no callback may
 * do. It is not called after the last handle of the client has been closed.
 *
 * event and everything that it points to are gone when it returns.
 */
typedef void shed_event_fn(void *user, const struct shed_event *event);

/* Returns: a kind in words, "lock lost" say; static, never NULL. */
SHED_API const char *shed_event_kind_name(enum shed_event_kind kind);

#ifdef __cplusplus
}
#endif

#endif
