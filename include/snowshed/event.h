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
 * Events say which key or lock it was, and why; the statistics
 * (snowshed/stats.h) count everything. A hit is an event only if it is stale.
 * What an operator should see is passed to on_log as well, as a line of text.
 *
 * A newer library may know more kinds and more fields, always at the end:
 * ignore a kind that you do not know, and read a field that was added later
 * only if size covers it.
 */
#ifndef SNOWSHED_EVENT_H
#define SNOWSHED_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/* on_event is told of at most this many events of one kind per second and
 * client, successes and failures (outcome other than SHED_OK) apart. The rest
 * is reported as one SHED_EVENT_SUPPRESSED at the end of the second, and
 * counted in events_left_out of struct shed_client_status. */
#define SHED_EVENTS_PER_SECOND 20

/*
 * on_log gets the first line of a kind at once, and then one line per interval
 * with the text of the last event and the number of the others:
 *
 *     stale row served: item, key 42: it is past its ttl (and 1234 more of this
 *     kind in the last 10 s)
 *
 * Together the lines and their numbers cover every event; what is pending is
 * written when the client closes. Successes and failures of a kind are counted
 * apart. Of changes of state (CONNECTED and DISCONNECTED, BREAKER, FLEET) and
 * of the LOCK_ kinds, up to ten lines pass per interval.
 */
#define SHED_LOG_INTERVAL_MS 10000

/* What happened: what the fields of struct shed_event hold, and the level of
 * the line in the log, if there is one. */
enum shed_event_kind {
    /* count events of the kind about were left out. outcome: of the last one */
    SHED_EVENT_SUPPRESSED = 0,
    /* The client is connected to Redis. reason: to which address, and the name
     * of the process in leases and locks; duration: of the disconnection. INFO
     */
    SHED_EVENT_CONNECTED = 1,
    /* The connection was lost, could not be made, or is refused; reported once
     * until that changes. outcome: SHED_EREDIS, SHED_EDENIED or another;
     * duration: of the connection. WARNING; ERROR with SHED_EDENIED */
    SHED_EVENT_DISCONNECTED = 2,
    /* The source is done with a key. outcome: how (SHED_ELOST: it read a lower
     * version of the row than Redis has); duration: of the load. WARNING if it
     * failed: one line for all keys that failed alike in one load */
    SHED_EVENT_LOAD_FINISHED = 3,
    /* This process took over the load of a key whose loader was dead, or had
     * been silent for a lease. WARNING. */
    SHED_EVENT_TAKEOVER = 4,
    /* A loaded value was given to its callers and not stored. outcome:
     * SHED_ELOST: the key was invalidated or stored meanwhile, INFO; else why
     * Redis could not take it, WARNING */
    SHED_EVENT_PUBLISH_REFUSED = 5,
    /* An entry with a wrong length or checksum was found in Redis, and is
     * loaded again. outcome: SHED_EREDIS. WARNING */
    SHED_EVENT_CORRUPT_ENTRY = 6,
    /* This process invalidated a key, or a tag: then key is the tag, or empty
     * for all entries, here and in the INVALIDATION_ events. */
    SHED_EVENT_INVALIDATED = 7,
    /* A hold of a lock began. duration: how long the acquire took. */
    SHED_EVENT_LOCK_ACQUIRED = 8,
    /* A hold that begins was taken from a dead holder before its lease had
     * ended. WARNING. */
    SHED_EVENT_LOCK_TAKEN_OVER = 9,
    /* A hold ended with its release. duration: of the hold. outcome: SHED_OK;
     * or why Redis did not confirm it, WARNING */
    SHED_EVENT_LOCK_RELEASED = 10,
    /* A hold was lost. outcome: SHED_ELOST; duration: how long it lasted.
     * WARNING. */
    SHED_EVENT_LOCK_LOST = 11,
    /* A circuit breaker opened (WARNING) or closed (INFO, SHED_OK). outcome
     * when it opens: SHED_ESOURCE for a source's; SHED_EREDIS for the one
     * before Redis, where name is empty. duration: for how long it was closed
     * before, or how long ago it first opened */
    SHED_EVENT_BREAKER = 12,
    /* Redis could not be told of an invalidation, a put or an expiry, which
     * will be delivered. outcome: why. WARNING */
    SHED_EVENT_INVALIDATION_UNDELIVERED = 13,
    /* It was delivered. duration: for how long it was undelivered. INFO */
    SHED_EVENT_INVALIDATION_DELIVERED = 14,
    /* It was given up: an old row can be read until its ttl ends. outcome: why;
     * SHED_ECLOSED: the cache was closed first. ERROR */
    SHED_EVENT_INVALIDATION_DROPPED = 15,
    /* A call was given a stale or a local row. outcome: SHED_OK: at once, while
     * it is loaded again; else how the GET failed, or how the call would have
     * ended (SHED_ETIMEDOUT after its soft timeout, too); duration: the age of
     * the row. INFO */
    SHED_EVENT_STALE_SERVED = 16,
    /* The loads of a source do not keep to fleet_loads, because Redis refuses,
     * is away or slow: outcome why, WARNING; or they do again: INFO. duration:
     * of the time before */
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
 * Called with each event on the client's thread, one at a time, after the
 * event, with no lock held; for a lock of several clients, on the thread of the
 * first. Everything else on that thread waits: return soon. The functions that
 * read a status or statistics, and shed_lock_acquire_async, may be called. It
 * is not called after the last handle of the client has been closed.
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
