/*
 * The engine of a lock: it steps the lock's machine on the home reactor,
 * carries out the acts, and calls back.
 */
#ifndef SHED_LOCK_ENGINE_H
#define SHED_LOCK_ENGINE_H

#include <stdatomic.h>

#include "base/mutex.h"
#include "client/client.h"
#include "lock/machine.h"

/* The range of a lease, as lock.h states it. */
#define SHED_LEASE_MIN_MS 10
#define SHED_LEASE_MAX_MS 86400000

/* One lock's access to one server. */
struct shed_lock_server {
    /* set at creation */
    struct shed_client *client;
    struct shed_lock *lock;
    /* the voter's; it belongs to the client's reactor while it is under way,
     * otherwise to the home reactor */
    struct shed_exchange *exchange;

    struct shed_call call;
    struct shed_ack ack;
    struct shed_post go;
    struct shed_listener listener; /* the client's reactor */
    struct shed_post told;
    atomic_uint news; /* to be told by that post: a bit for each event */
};

struct shed_lock {
    /* set at creation */
    pid_t pid;
    struct shed_client *home;
    struct shed_lock_options options;
    struct shed_lock_spec spec;
    const char *name; /* in the first of the spec's keys */
    size_t name_size;
    size_t count;
    struct shed_voter *voter; /* count of them, behind the servers */

    struct shed_lock_counters counters;

    struct shed_mutex mu;
    /* under mu */
    struct shed_lock_machine machine;
    uint64_t timer_at_ms;      /* the timer runs until then */
    struct shed_error refusal; /* of the machine's facts */

    /* home reactor */
    struct shed_timer *timer;

    struct shed_lock_server server[]; /* count */
};

/* engine.c */

/* Make a step, and do what it and earlier ones have decided. Home reactor. */
void shed_lock_drive(struct shed_lock *lock, enum shed_lock_event event,
                     size_t server);

/* Have the engine make a step. Any thread. */
void shed_lock_wake(struct shed_lock *lock);

/* Under mu, any thread. To be called after a change to the machine: wakes the
 * engine if it has something to do. */
void shed_lock_changed_locked(struct shed_lock *lock);

/* Add a request whose caller waits, and send its command in this thread if it
 * is the next one and may go over a link. Returns: whether that was the answer;
 * if not, the request's latch tells of it. */
SHED_MUST_CHECK bool shed_lock_ask_here(struct shed_lock *lock,
                                        struct shed_lock_request *request);

/* Count and report how an acquire or a release has ended. Any thread. */
void shed_lock_count(struct shed_lock *lock,
                     const struct shed_lock_request *request);

/* server.c */

/* Begin and stop to listen for changes, on the client's reactor. To stop, no
 * exchange may be under way. */
void shed_lock_server_open(void *server);
void shed_lock_server_close(void *server);

/* Have the lock make a step because of this event, on its home reactor; never
 * before this returns. Any thread. */
void shed_lock_server_tell(struct shed_lock_server *server,
                           enum shed_lock_event event);

/* Run the exchange, and tell the lock when it has ended. No exchange may be
 * under way. */
void shed_lock_server_ask(struct shed_lock_server *server);

/* open.c */

/* Whether a handle can be used. Returns: SHED_OK; SHED_EINVAL (NULL),
 * SHED_EFORKED. */
enum shed_code shed_lock_check(const struct shed_lock *lock,
                               struct shed_error *err);

#endif
