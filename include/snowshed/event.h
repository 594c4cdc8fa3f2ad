/*
 * What happens inside a client, as it happens:
 *
 *     static void on_event(void *user, const struct shed_event *event)
 *     {
 *         if (event->kind == SHED_EVENT_LOCK_LOST)
 *             atomic_fetch_add((atomic_ulong *)user, 1);
 *     }
 *
 * Events say which key or lock it was, and why; the statistics (stats.h) count
 * everything. A hit is an event only if it is stale.
 *
 * A newer library may have more kinds and fields: ignore a kind that you do not
 * know, and read a field that was added later only if size covers it.
 */
#ifndef SNOWSHED_EVENT_H
#define SNOWSHED_EVENT_H

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most events of one kind per second and client that on_event gets, successes
 * and failures apart. The others become one SHED_EVENT_SUPPRESSED at the end of
 * the second. */
#define SHED_EVENTS_PER_SECOND 20

/*
 * on_log gets the first line of a kind (successes and failures apart) at once
 * (of CONNECTED, DISCONNECTED, BREAKER, FLEET, LACKING and the LOCK_ kinds: the
 * first ten), and then one per interval, with the last told event and the
 * others' number:
 *
 *     stale row served: item, key 42: it is past its ttl (and 1234 more of this
 *     kind in the last 10 s)
 */
#define SHED_LOG_INTERVAL_MS 10000

/* What happened; outcome and duration_us, if not SHED_OK and 0; the level of
 * the line in the log, if it has one. */
enum shed_event_kind {
    /* Events were left out. outcome: of the last */
    SHED_EVENT_SUPPRESSED,
    /* reason: the address, and the name of this process in leases and locks;
     * duration: of the disconnection. INFO */
    SHED_EVENT_CONNECTED,
    /* The connection was lost, could not be made, or is refused; once until
     * that changes. outcome: why; duration: of the connection. WARNING; ERROR
     * with SHED_EDENIED */
    SHED_EVENT_DISCONNECTED,
    /* A key was loaded. outcome: how; duration: of the load. WARNING if it
     * failed, one line for all keys that failed alike in one load */
    SHED_EVENT_LOAD_FINISHED,
    /* This process took over a load from one that is dead, or was silent for a
     * lease. WARNING */
    SHED_EVENT_TAKEOVER,
    /* A loaded value was given to its callers and not stored. outcome:
     * SHED_ELOST: the key was invalidated or stored meanwhile, INFO; else why
     * Redis could not take it, WARNING */
    SHED_EVENT_PUBLISH_REFUSED,
    /* An entry has a wrong length or checksum, and is loaded again. outcome:
     * SHED_EREDIS. WARNING */
    SHED_EVENT_CORRUPT_ENTRY,
    /* This process invalidated a key; or a tag: then key is the tag, or empty
     * for all entries, here and in the INVALIDATION_ events */
    SHED_EVENT_INVALIDATED,
    /* A hold of a lock began. duration: of the acquire */
    SHED_EVENT_LOCK_ACQUIRED,
    /* It was taken from a dead holder before its lease had ended. WARNING */
    SHED_EVENT_LOCK_TAKEN_OVER,
    /* A hold was released. duration: of it. outcome: why Redis did not confirm
     * that, WARNING */
    SHED_EVENT_LOCK_RELEASED,
    /* A hold was lost. outcome: SHED_ELOST; duration: of the hold. WARNING */
    SHED_EVENT_LOCK_LOST,
    /* A breaker opened (outcome: SHED_ESOURCE; or SHED_EREDIS, with an empty
     * name; WARNING) or closed (INFO). duration: for how long it was closed, or
     * since it first opened */
    SHED_EVENT_BREAKER,
    /* A write is undelivered. outcome: why. WARNING */
    SHED_EVENT_INVALIDATION_UNDELIVERED,
    /* It was delivered. duration: for how long it was undelivered. INFO */
    SHED_EVENT_INVALIDATION_DELIVERED,
    /* It was given up: an old row can be read until its ttl ends. outcome: why
     * (SHED_ECLOSED: the cache was closed). ERROR */
    SHED_EVENT_INVALIDATION_DROPPED,
    /* A call was given a stale or a local row. outcome: SHED_OK: at once; else
     * how the GET or the call failed (SHED_ETIMEDOUT after its soft timeout);
     * duration: the age of the row. INFO */
    SHED_EVENT_STALE_SERVED,
    /* A source's loads do not keep to fleet_loads, because Redis does not
     * answer (outcome: why; WARNING), or do again (INFO). duration: of the
     * time before */
    SHED_EVENT_FLEET,
    /* Redis refuses a command without which the library goes on; once for each
     * command and server. outcome: SHED_EDENIED; reason: the command, and what
     * its lack costs. WARNING */
    SHED_EVENT_LACKING
};

struct shed_event {
    size_t size; /* as the library knows the struct */
    enum shed_event_kind kind;
    enum shed_code outcome;
    struct shed_bytes name; /* of the cache or lock; empty: of neither */
    struct shed_bytes key;  /* of the entry; empty: none */
    uint64_t duration_us;
    const char *reason; /* for people; its wording may change; never NULL */
    uint64_t count;     /* SUPPRESSED: how many were left out; else 1 */
    uint64_t about;     /* SUPPRESSED: the enum shed_event_kind of these; else
                           kind */
};

/* Called with each event on the client's thread, one at a time. Return soon:
 * everything else on that thread waits. event is gone when it returns. */
typedef void shed_event_fn(void *user, const struct shed_event *event);

/* Returns: "lock lost", say. */
SHED_API const char *shed_event_kind_name(enum shed_event_kind kind);

#ifdef __cplusplus
}
#endif

#endif
