/*
 * A connection that threads share for calls which they wait for.
 *
 * A thread that finds it idle uses it as if it were its own: send, wait,
 * receive. That thread leads. One that comes while it is led queues its
 * command, sends it at once if the socket is free, and waits at a latch; the
 * leader receives for all, and hands over to one of those that still wait when
 * it has its own reply.
 *
 * Any thread.
 */
#ifndef SHED_REDIS_SHARED_H
#define SHED_REDIS_SHARED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/latch.h"
#include "base/mutex.h"
#include "wire/conn.h"
#include "redis/dial.h"

struct shed_shared {
    struct shed_gate *gate; /* set at creation */

    struct shed_mutex mu;
    pthread_cond_t written; /* is_writing has ended, and is_awaited */
    /* under mu */
    bool is_led;           /* a thread receives, or connects, for all */
    bool is_writing;       /* a thread sends without mu: wire.out is its own */
    bool is_awaited;       /* the leader waits for it */
    bool is_open;          /* the connection is set up */
    bool is_unsent;        /* the socket was full: the leader sends the rest */
    bool is_out_of_step;   /* the leader is to close the connection */
    uint64_t connection;   /* counted: which it is */
    uint64_t doubt_ms;     /* shed_now_ms; not to be doubted before */
    uint64_t last_used_ms; /* when somebody last found it idle */
    struct shed_request *settled; /* latches to be released when mu is free */

    /* Its queue is under mu, what is being sent is the writer's, the rest is
     * the leader's; with neither of them, all of it is under mu. */
    struct shed_conn conn;
};

/* No connection is made yet. Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_shared_init(struct shed_shared *shared, struct shed_gate *gate,
                 const struct shed_client_options *options,
                 struct shed_error *err);

/* No call may be under way. */
void shed_shared_fini(struct shed_shared *shared);

enum shed_outcome {
    SHED_OUTCOME_NONE,  /* queued, or sent */
    SHED_OUTCOME_DONE,  /* all its replies are there */
    SHED_OUTCOME_LOST,  /* the connection went; error says how */
    SHED_OUTCOME_LEADER /* still without its replies, and now to lead the link
                         */
};

/* Calls of a thread, formatted, and what comes of them. The thread may read
 * what is marked with *, after end. */
struct shed_request {
    /* what is to be sent: set before begin, and left alone */
    struct shed_buffer bytes;
    struct shed_conn_call *calls;
    size_t count;
    struct shed_reply **replies; /* as many */
    uint64_t deadline_ms;        /* shed_now_ms */
    bool is_away; /* until end its thread is elsewhere, and cannot lead */
    /* * of all times that it begins; at first false and 0 */
    bool was_tried; /* one that failed was tried to the end: see shed_dial */
    uint64_t began_ms, ended_ms; /* shed_now_ms, of the wait for replies */
    /* set by begin */
    struct shed_latch latch; /* opened when the outcome is set */
    size_t received;
    struct shed_error error;
    /* under mu until the latch is released */
    enum shed_outcome outcome;
    bool has_latch;
    uint64_t connection; /* * from which the replies came, counted */
    bool was_connected;  /* * it was there already, and may have been dead */
    bool was_unsent;     /* * of a failure: there was no connection */
    struct shed_request *next; /* in the list of threads to wake */
};

/*
 * Send a request: its replies are there when end has returned, or the deadline
 * has passed. It must stay until then. A thread that is_away between the two,
 * because it has requests on several connections, waits for nothing in begin:
 * others lead the connection, and nobody waits for it.
 */
void shed_shared_begin(struct shed_shared *shared,
                       struct shed_request *request);

/*
 * Returns: SHED_OK and the replies of all calls; else replies holds NULLs:
 * SHED_ETIMEDOUT (the deadline), SHED_EREDIS (no connection, or lost, or no
 * reply within the command timeout), SHED_EDENIED, SHED_EBUSY, SHED_ENOMEM.
 */
SHED_MUST_CHECK enum shed_code shed_shared_end(struct shed_shared *shared,
                                               struct shed_request *request,
                                               struct shed_error *err);

/* A reply that came by this connection reads as the answer to another call:
 * close it, but not more often than once in a while. */
void shed_shared_doubt(struct shed_shared *shared, uint64_t connection);

/* End the connection, because the server is silent: calls that wait on it fail.
 */
void shed_shared_cut(struct shed_shared *shared);

/* Close the connection if nobody has used it for this long. */
void shed_shared_close_idle(struct shed_shared *shared, uint64_t idle_ms);

#endif
