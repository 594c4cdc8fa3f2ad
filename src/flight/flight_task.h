/*
 * A flight with what it is driven by: its callers, its machine (flight.h), its
 * calls to Redis, its load, and its timer. What the machine wants becomes calls
 * of these, and what comes back its events. Reactor thread only, but for the
 * functions that say otherwise.
 */
#ifndef SHED_FLIGHT_TASK_H
#define SHED_FLIGHT_TASK_H

#include <stdatomic.h>
#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "base/latch.h"
#include "base/map.h"
#include "base/mutex.h"
#include "entry/entry.h"
#include "entry/freshness.h"
#include "entry/key.h"
#include "entry/parts.h"
#include "flight/caller.h"
#include "flight/flight.h"
#include "known/delivery.h"
#include "known/local.h"
#include "known/tag_log.h"
#include "redis/reactor.h"
#include "redis/session.h"
#include "source/load.h"

/* Who may come to a flight's key while it is under way. */
enum shed_flight_role {
    SHED_FLIGHT_DETACHED,   /* any other flight */
    SHED_FLIGHT_BACKGROUND, /* any but another one in the background */
    SHED_FLIGHT_JOINABLE    /* none: callers join this one */
};

/* A key has a flight only while it is missing, so chains stay short even with
 * tens of thousands of flights. */
#define SHED_FLIGHT_CHAINS ((size_t)4096)

/* Of so many keys it is remembered when what their flights have brought ends.
 * A place has SHED_ROW_END_BITS of that time in ms, and above it bits of the
 * key's hash. */
#define SHED_ROW_ENDS ((size_t)1024)
#define SHED_ROW_END_BITS 40

/* All flights of a cache. */
struct shed_flights {
    /* set at creation */
    struct shed_cache *cache;
    struct shed_flight_policy policy;
    /* of the options; record_ms is how long a lease record lives */
    char lease_ms[SHED_DIGITS], record_ms[SHED_DIGITS], grace_ms[SHED_DIGITS];
    struct shed_callers *callers;  /* of its source: bounds who waits */
    struct shed_timer *turn;       /* has that begin, after a turn of the loop,
                                      which is in to_load and to_publish */
    struct shed_listener listener; /* of the cache's keys */
    char prefix[SHED_NAME_MAX_BYTES + 2];
    /* atomic */
    struct shed_latch end; /* of each task, and of the open cache */
    atomic_size_t count;   /* in the table; read without a lock by each hit */
    _Atomic uint64_t row_end[SHED_ROW_ENDS]; /* 0: of none */

    struct shed_mutex mu;
    /* under mu */
    struct shed_map table;
    struct shed_map_node *chains[SHED_FLIGHT_CHAINS];
    /* reactor thread only */
    bool is_closing;
    struct shed_list to_load;    /* jobs */
    struct shed_list to_publish; /* tasks (flight_publish.c) */
    bool may_claim; /* Redis has executed a script: a lease that is taken
                       without one can be ended */
    struct shed_pace pace;
};

struct shed_flight_task {
    /* set at creation */
    struct shed_map_node in_table; /* its key is behind this struct */
    struct shed_flights *flights;
    struct shed_post post; /* of its start, and of the end of its load */
    struct shed_bytes key, refresh_key; /* the latter of a refresh's lease */
    struct shed_bytes user_key;         /* as its callers know it; in key */
    unsigned char number[4]; /* of the flight, as the scripts want it */
    unsigned char due[SHED_ENTRY_IDENTITY_BYTES]; /* a value that is to be
                                                     replaced though it may be
                                                     fresh; zero: none */
    bool is_forced;  /* there is one, so others need not wait for this flight */
    bool is_revoked; /* the value in Redis is a miss by one of its tags */

    /* atomic */
    atomic_bool has_begun; /* its load has left the source's queue */

    /* under the flights' mu */
    enum shed_flight_role role;

    /* reactor thread only */
    struct shed_list callers;
    uint64_t last_number;
    uint64_t left_number; /* of the newest caller that has left it to go on and
                             is not answered; 0: there is none */
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
    enum shed_flight_send sent;   /* what call is */
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

/* Make a flight, JOINABLE or BACKGROUND, in the table, whose mu is held; it
 * starts in the next turn of the loop. Any thread. Returns: NULL when out of
 * memory. */
struct shed_flight_task *shed_flight_task_create_locked(
    struct shed_flights *flights, const struct shed_key *key,
    const struct shed_seen *seen, enum shed_flight_role role);

/* With the server that has the key. Reactor thread. */
static inline struct shed_session *
shed_flight_task_session(const struct shed_flight_task *task)
{
    return shed_client_session(task->flights->cache->client, task->key);
}

/* When the lease was taken under which this or another process loads, as far as
 * is known; UINT64_MAX: nobody does. */
uint64_t shed_flight_task_load_began_ms(const struct shed_flight_task *task);

enum shed_awaited shed_flight_task_awaited(const struct shed_flight_task *task);

/* The key may have changed in Redis. */
void shed_flight_task_push(struct shed_flight_task *task);

/* An epoch of the session has ended or begun. */
void shed_flight_task_epoch(struct shed_flight_task *task);

/* The cache is being closed: do not wait, nor pause. */
void shed_flight_task_hurry(struct shed_flight_task *task);

/* Step the machine, and do what it wants. Each call and load that has ended
 * comes here. */
void shed_flight_task_drive(struct shed_flight_task *task,
                            struct shed_flight_event event);

/* Tell the client's events of something about this key. */
void shed_flight_task_tell(const struct shed_flight_task *task,
                           enum shed_event_kind kind, enum shed_code outcome,
                           const char *reason);

/* ----------------------------------------- table.c: who waits for a flight */

/* The number of the newest caller that waits, or has left the flight to go on;
 * 0 for none. */
uint64_t shed_table_newest(const struct shed_flight_task *task);

/* Answer the callers up to a number: each gets a reference of value or, if that
 * is NULL, error. Returns: false if there was nobody. */
bool shed_table_answer(struct shed_flight_task *task, uint64_t upto,
                       struct shed_value *value,
                       const struct shed_error *error);

/* Remember that what the flight has brought ends at this time (shed_now_ms); 0:
 * it has brought nothing. */
void shed_table_note_end(struct shed_flight_task *task, uint64_t end_ms);

/* From now on no caller joins this flight, and another one may work in the
 * background. */
void shed_table_detach(struct shed_flight_task *task);

/* Take a flight that has no callers out of the table. */
void shed_table_remove(struct shed_flight_task *task);

/* Visit the flights of a key, or all if it is NULL, detached ones included;
 * visit may remove the flight that is passed to it. */
void shed_table_each(struct shed_flights *flights,
                     const struct shed_map_key *key,
                     void (*visit)(struct shed_flight_task *task));

/* ---------------------------------------------------------- flight_load.c */

/* Load, with all else that this turn of the loop brings. The end becomes an
 * event, never before the return. */
void shed_flight_load_start(struct shed_flight_task *task);

/* A caller waits now for what is loaded. */
void shed_flight_load_hasten(struct shed_flight_task *task);

/* Drop what was loaded. */
void shed_flight_load_drop(struct shed_flight_task *task);

/* --------------------------------------------------------- flight_redis.c */

/* Send ACQUIRE, PUBLISH, FAIL or RELEASE. Its reply becomes an event, never
 * before the return. No other may be under way. */
void shed_flight_redis_send(struct shed_flight_task *task,
                            enum shed_flight_send what);

/* Send a renewal, unless the last one is still under way. */
void shed_flight_redis_renew(struct shed_flight_task *task);

/* Publish what was loaded, soon; until the reply is_publishing is set. */
void shed_flight_publish(struct shed_flight_task *task);

/* Send what is to be published. */
void shed_flight_publish_all(struct shed_flights *flights);

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
