/*
 * A flight with what it is driven by: its callers (table.h), its machine
 * (flight.h), its calls to Redis, its load, and its timer. What the machine
 * wants becomes calls of these, and what comes back its events. Reactor thread
 * only, but for the functions that say otherwise.
 */
#ifndef SHED_FLIGHT_TASK_H
#define SHED_FLIGHT_TASK_H

#include <stdatomic.h>
#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "base/container.h"
#include "base/latch.h"
#include "entry/entry.h"
#include "entry/freshness.h"
#include "entry/key.h"
#include "entry/parts.h"
#include "flight/flight.h"
#include "flight/table.h"
#include "known/delivery.h"
#include "known/local.h"
#include "known/tag_log.h"
#include "redis/reactor.h"
#include "redis/session.h"
#include "source/load.h"

/* All flights of a cache. */
struct shed_flights {
    /* set at creation */
    struct shed_cache *cache;
    struct shed_flight_policy policy;
    /* of the options; record_ms is how long a lease record lives */
    char lease_ms[SHED_DIGITS], record_ms[SHED_DIGITS], grace_ms[SHED_DIGITS];
    struct shed_table *table;
    struct shed_timer *wake;    /* wakes the source after a turn of the loop */
    struct shed_timer *publish; /* and has what was loaded published */
    struct shed_source_watcher watcher;
    struct shed_listener listener; /* of the cache's keys */
    char prefix[SHED_NAME_MAX_BYTES + 2];
    /* atomic */
    atomic_size_t holds;    /* one for each task, and one until the close */
    struct shed_latch idle; /* nobody has one */
    /* reactor thread only */
    bool is_listed; /* listener is */
    bool is_closing;
    struct shed_list to_publish; /* tasks (flight_publish.c) */
    bool may_claim; /* Redis has executed a script: a lease that is taken
                       without one can be ended */
    struct shed_pace pace;
};

/* Give up a hold. */
static inline void shed_flights_drop(struct shed_flights *flights)
{
    if (atomic_fetch_sub(&flights->holds, 1) == 1)
        shed_latch_count_down(&flights->idle, 1);
}

struct shed_flight_task {
    /* set at creation */
    struct shed_waiters waiters; /* its key is behind this struct */
    struct shed_flights *flights;
    struct shed_post post; /* of its start, and of the end of its load */
    struct shed_entry_key key,
        refresh_key;            /* the latter of a refresh's lease */
    struct shed_bytes user_key; /* as its callers know it; in key */
    unsigned char number[4];    /* of the flight, as the scripts want it */
    /* set by the owner before the start */
    unsigned char due[SHED_ENTRY_IDENTITY_BYTES]; /* a value that is to be
                                                     replaced though it may be
                                                     fresh; zero: none */
    bool is_background;
    bool is_revoked; /* the value in Redis is a miss by one of its tags */
    /* reactor thread only */
    struct shed_flight flight;
    struct shed_timer *timer;
    bool is_out;              /* of the table */
    struct shed_error error;  /* what went wrong last */
    struct shed_value *entry; /* what was found in Redis */

    /* its load: the job, with what came of it until the next load */
    struct shed_job job;
    struct shed_row_version old_version; /* of the value that our lease is to
                                            refresh; not known: it has none, or
                                            there is no such value */
    struct shed_local_mark load_mark;    /* from before the load */
    uint64_t position; /* of the log of tags, when the load began */
    uint64_t news;     /* of the same */
    uint64_t fresh_ms; /* how long what was loaded is */
    bool is_loading;

    /* its calls */
    struct shed_call call; /* acquire, and what goes before it; fail, release;
                              publish, of all in published */
    struct shed_call renew_call;
    enum shed_flight_send sent; /* what call is */
    uint64_t call_request, renew_request;
    enum shed_flight_first first; /* what is still to go before an acquire */
    struct shed_delivery_write delivered;
    struct shed_local_mark mark; /* from before call */
    struct shed_node node;       /* in a list while it is_publishing */
    struct shed_list published;
    bool is_publishing;

    /* its lease */
    uint32_t epoch; /* that it names */
    unsigned char version[SHED_ENTRY_VERSION_BYTES];
    bool is_refresh; /* it is that of a refresh */
    unsigned char replaced[SHED_ENTRY_VERSION_BYTES]; /* then: nonce of the
                                                         value */
    unsigned char seen[SHED_ENTRY_HEADER_BYTES];      /* of a corrupt entry */
    size_t seen_size;
};

/* Make a flight that is in no table yet. Any thread. Returns: NULL when out of
 * memory. */
struct shed_flight_task *shed_flight_task_create(struct shed_flights *flights,
                                                 const struct shed_key *key);

/* It must be over, or not have been started. Any thread in the latter case. */
void shed_flight_task_destroy(struct shed_flight_task *task);

static inline struct shed_flight_task *
shed_flight_task_of(struct shed_waiters *waiters)
{
    return shed_container_of(waiters, struct shed_flight_task, waiters);
}

/* With the server that has the key. Reactor thread. */
static inline struct shed_session *
shed_flight_task_session(const struct shed_flight_task *task)
{
    return shed_client_session(task->flights->cache->client, task->key.at,
                               task->key.size);
}

/* The key may have changed in Redis. */
void shed_flight_task_push(struct shed_waiters *waiters);

/* An epoch of the session has ended or begun. */
void shed_flight_task_epoch(struct shed_waiters *waiters);

/* The cache is being closed: do not wait, nor pause. */
void shed_flight_task_hurry(struct shed_waiters *waiters);

/* Step the machine, and do what it wants. Each call and load that has ended
 * comes here. */
void shed_flight_task_drive(struct shed_flight_task *task,
                            struct shed_flight_event event);

/* Tell the client's events of something about this key. */
void shed_flight_task_tell(const struct shed_flight_task *task,
                           enum shed_event_kind kind, enum shed_code outcome,
                           const char *reason);

/* ---------------------------------------------------------- flight_load.c */

/* Queue the load. The source is woken after everything else of this turn of the
 * loop. Its end becomes an event with the number of the request, never before
 * the return. Returns: false if the source refused, as the task's error says.
 */
bool shed_flight_load_start(struct shed_flight_task *task);

/* A caller waits now for what is loaded. */
void shed_flight_load_hasten(struct shed_waiters *waiters);

/* Drop what was loaded. */
void shed_flight_load_drop(struct shed_flight_task *task);

/* --------------------------------------------------------- flight_redis.c */

/* Send ACQUIRE, PUBLISH, FAIL or RELEASE. Its reply becomes an event with the
 * number of the request, never before the return. No other may be under way. */
void shed_flight_redis_send(struct shed_flight_task *task,
                            enum shed_flight_send what, uint64_t request);

/* Send a renewal, unless the last one is still under way. */
void shed_flight_redis_renew(struct shed_flight_task *task, uint64_t request);

/* Publish what was loaded, soon; until the reply is_publishing is set. */
void shed_flight_publish(struct shed_flight_task *task);

/* For the timer publish of a cache's flights, whose argument is the struct
 * shed_flights: send what is to be published. */
void shed_flight_publish_all(void *flights);

/* ----------------------------------- flight_reply.c: what comes back
 *
 * What a reply carries (an entry, an error, the right to load) is kept in the
 * task. */

/* The event of what came of ACQUIRE, PUBLISH, FAIL or RELEASE, whichever was
 * sent. */
struct shed_flight_event
shed_flight_reply_event(struct shed_flight_task *task,
                        const struct shed_call_result *result);

/* The event of what came of the command that goes first, in place of an
 * acquire. Returns: false: it has not decided. */
bool shed_flight_reply_decides(struct shed_flight_task *task,
                               const struct shed_call_result *result,
                               struct shed_flight_event *event);

/* The event of an error reply, or of none at all; sets the task's error. */
struct shed_flight_event
shed_flight_reply_trouble(struct shed_flight_task *task,
                          const struct shed_call_result *result);

#endif
