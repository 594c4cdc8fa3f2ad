/*
 * Joins the callers of a key to the one flight that this process has for it.
 *
 * A caller lives on its thread's stack, or in an asynchronous call. It is
 * linked to its flight's waiters until it is taken, to be answered, or leaves,
 * at its deadline.
 *
 * Any thread, except the functions that say otherwise.
 */
#ifndef SHED_TABLE_H
#define SHED_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/latch.h"
#include "base/list.h"
#include "base/map.h"
#include "source/load.h"

struct shed_table;
struct shed_waiters;

/* What a flight waits for. A caller that leaves at its deadline gets this as
 * the reason. */
enum shed_awaited {
    SHED_AWAITS_REDIS,  /* a connection, or the answer to a command */
    SHED_AWAITS_HOLDER, /* another flight has the lease, and loads */
    SHED_AWAITS_QUEUE,  /* the source is busy with other loads */
    SHED_AWAITS_LOAD    /* the source is loading it */
};

struct shed_caller {
    /* Set by the caller: what follows the answer. The caller may be gone when
     * it has. */
    union {
        struct shed_latch *latch; /* a thread waits: it is counted down by 1 */
        void (*on_answer)(struct shed_caller *caller); /* or any thread calls
                                                          it */
    };
    bool has_thread; /* that waits */
    /* the answer */
    unsigned char awaited; /* what the flight waited for when the caller left:
                              an enum shed_awaited */
    unsigned short shard;  /* used by the table */
    enum shed_code code;
    struct shed_value *value;
    struct shed_error *why; /* of a failure (shed_error_keep), its owner's to
                               free */
    uint64_t load_began_ms; /* what the flight knew of its load when the caller
                               joined; UINT64_MAX: nothing */
    /* used by the table, under the shard's mu */
    struct shed_waiters *waiters; /* NULL once taken */
    struct shed_node node;
    uint64_t number;
};

/* The caller has been answered. */
static inline void shed_caller_tell(struct shed_caller *caller)
{
    if (caller->has_thread)
        shed_latch_count_down(caller->latch, 1);
    else
        caller->on_answer(caller);
}

/* What a caller that leaves its flight wants of it. */
enum shed_leave {
    SHED_LEAVE_GIVES_UP, /* nothing: without a caller there is no need to load
                          */
    SHED_LEAVE_GOES_ON /* that it does all it would have done for the caller */
};

/* Who may come to a flight's key while it is under way. */
enum shed_flight_role {
    SHED_FLIGHT_DETACHED,   /* any other flight */
    SHED_FLIGHT_BACKGROUND, /* any but another one in the background */
    SHED_FLIGHT_JOINABLE    /* none: callers join this one */
};

/* The callers of one flight; part of the flight's memory. */
struct shed_waiters {
    /* set at creation */
    struct shed_map_node node; /* its key, as Redis has it */
    bool is_forced; /* a value is in Redis, but too old for the first caller */
    /* atomic, set by what drives the flight */
    _Atomic enum shed_awaited awaited;
    _Atomic uint64_t load_began_ms; /* when the lease was taken under which this
                                       or another process loads; UINT64_MAX:
                                       nobody does, as far as is known */
    /* under the shard's mu */
    enum shed_flight_role role;
    struct shed_list callers;
    uint64_t last_number;
    uint64_t left_number; /* of the newest caller that has left it to go on and
                             is not answered; 0: there is none */
};

enum shed_join {
    SHED_JOIN_NONE,   /* there is no flight to be joined */
    SHED_JOIN_JOINED, /* the caller waits for one */
    SHED_JOIN_ADDED,  /* it waits for the one that was added for it */
    SHED_JOIN_FULL    /* as many callers wait as may */
};

/* callers bounds those that wait, and counts them; it outlives the table.
 * Returns NULL when out of memory. */
struct shed_table *shed_table_create(struct shed_callers *callers);

/* The table must be empty. NULL is allowed. */
void shed_table_destroy(struct shed_table *table);

/* Whether the key has a flight of this role, or a joinable one. Returns: false
 * also if least is JOINABLE, and Redis has a value that would do for a caller
 * as well. */
bool shed_table_has(struct shed_table *table, const char *key, size_t size,
                    enum shed_flight_role least);

/* Join the key's flight. If there is none, add the joinable flight of waiters,
 * unless that is NULL, and join it. */
enum shed_join shed_table_join(struct shed_table *table, const char *key,
                               size_t size, struct shed_waiters *waiters,
                               struct shed_caller *caller);

/* Add the flight of waiters, which becomes one in the background, unless the
 * key has such a flight, or a joinable one. Returns: true if it was added. */
bool shed_table_insert_background(struct shed_table *table,
                                  struct shed_waiters *waiters);

/* Leave the flight. Returns: true if caller was still waiting; it has left, and
 * its awaited is set. False if it was or is about to be answered, and told so
 * soon. */
bool shed_table_leave(struct shed_table *table, struct shed_caller *caller,
                      enum shed_leave how);

/* The number of the newest caller that waits, or has left the flight to go on;
 * 0 for none. forgets: nothing goes on for callers that have left. */
uint64_t shed_table_newest(struct shed_table *table,
                           struct shed_waiters *waiters, bool forgets);

/* Answer the callers up to a number: each gets a reference of value or, if that
 * is NULL, error. Returns: false if there was nobody. */
bool shed_table_answer(struct shed_table *table, struct shed_waiters *waiters,
                       uint64_t upto, struct shed_value *value,
                       const struct shed_error *error);

/* Make new callers of the key start another flight. */
void shed_table_detach(struct shed_table *table, const char *key, size_t size);

/* From now on no caller joins this flight, and another one may work in the
 * background. */
void shed_table_detach_waiters(struct shed_table *table,
                               struct shed_waiters *waiters);

/* Take a flight out of the table, unless a caller waits for it, or has left it
 * to go on. Returns: false if one does. */
bool shed_table_remove(struct shed_table *table, struct shed_waiters *waiters);

/* Visit all flights, or those of a key, detached ones included; visit may
 * remove the flight that is passed to it. Only on the thread that removes
 * flights. */
void shed_table_each(struct shed_table *table,
                     void (*visit)(struct shed_waiters *waiters));
void shed_table_each_of(struct shed_table *table, const char *key, size_t size,
                        void (*visit)(struct shed_waiters *waiters));

#endif
