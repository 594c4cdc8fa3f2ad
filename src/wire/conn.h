/*
 * One connection to Redis: the socket, how it begins, which call each reply
 * answers, and when it counts as dead. One thread at a time uses it.
 *
 * It has no thread and no loop: its owner waits for shed_conn_want() until
 * shed_conn_due_ms(), and tells it what the time is; or has shed_conn_step do
 * that, where a thread may wait.
 */
#ifndef SHED_WIRE_CONN_H
#define SHED_WIRE_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "wire/setup.h"
#include "wire/wire.h"

/* Replies that may be expected at a time; further calls are refused. A power
 * of two, because the ring counts with a mask. */
#define SHED_CONN_CALLS_MAX ((size_t)1 << 20)

enum shed_conn_state {
    SHED_CONN_CLOSED,     /* no socket; start opens one */
    SHED_CONN_CONNECTING, /* the socket is not known to be connected yet */
    SHED_CONN_SETTING_UP, /* the set-up is not all answered */
    SHED_CONN_OPEN,       /* set up: what is queued may be sent */
    SHED_CONN_FAILED      /* no longer of use: failure says why; close it */
};

/* A reply that is expected. */
struct shed_conn_call {
    void *owner;  /* NULL: nobody wants the reply now */
    size_t index; /* which of the owner's replies it is */
    /* A script's call, to be repeated if the server does not know the script.
     * Borrowed until the reply is there. NULL: do not, a script goes by text at
     * once. */
    const struct shed_args *again;
    bool is_repeat; /* set by match */
    /* set by send */
    uint64_t number; /* of a script's call, repeated by its reply; 0: none */
    uint64_t since_ms;
};

/* Calls without a reply, oldest first, and bytes that nobody has begun to
 * send. {0} is an empty one. */
struct shed_conn_queue {
    struct shed_conn_call *call; /* a ring */
    size_t capacity, first, count;
    struct shed_buffer bytes;
    uint64_t heard_ms;                   /* when the last reply came */
    const struct shed_script_text *text; /* of the script repeated last */
    bool is_last_look; /* silent for too long, and looked at once more */
};

/* Why a connection is FAILED. */
struct shed_conn_failure {
    struct shed_error error;
    enum shed_trouble trouble; /* what it means for a call that was made */
    bool is_silent;            /* nothing came for a whole timeout */
    uint64_t since_ms;         /* is_silent: when that began */
    bool is_no_primary;        /* by the server's own account */
};

struct shed_conn {
    /* set at creation */
    struct shed_address *address;
    uint64_t connect_timeout_ms, command_timeout_ms;

    struct shed_conn_queue queue;
    uint64_t last_number; /* of a script's call */

    enum shed_conn_state state;
    unsigned term;   /* of the server, when the socket was opened */
    uint64_t end_ms; /* CONNECTING, SETTING_UP: when it has taken too long */
    struct shed_wire wire;
    struct shed_setup setup;
    struct shed_conn_failure failure;
};

/* A closed connection. It borrows address. */
void shed_conn_init(struct shed_conn *conn, struct shed_address *address,
                    const struct shed_client_options *options);

/* Close it and free what it has. No call may be in its queue whose owner waits
 * for it. */
void shed_conn_fini(struct shed_conn *conn);

/* ------------------------------------------------- from socket to set up
 *
 * Afterwards the state may be FAILED. */

/* Begin to connect a closed one. term is the server's, in which the host name
 * was looked up. */
void shed_conn_start(struct shed_conn *conn, unsigned term, uint64_t now_ms);

/* What to wait for: POLLIN, POLLOUT. */
short shed_conn_want(const struct shed_conn *conn);

/* When shed_conn_tick is to be called if nothing happens before. UINT64_MAX:
 * not at all. */
uint64_t shed_conn_due_ms(const struct shed_conn *conn);

/* The socket is ready for events (poll's; an error counts as POLLIN). Connects
 * and sets up; once it is open, sends what is queued and reads once: the
 * replies are then for shed_conn_next. */
void shed_conn_ready(struct shed_conn *conn, int events, uint64_t now_ms);

/* Wait until it is ready or due, and do that; for no longer than until end_ms.
 * Returns: false: nothing has happened. */
bool shed_conn_step(struct shed_conn *conn, uint64_t end_ms);

/* See whether it has been silent for too long. Something may have been read
 * then: shed_conn_next. */
void shed_conn_tick(struct shed_conn *conn, uint64_t now_ms);

/* Declare it dead: *why is kept, the socket is left open until close. */
void shed_conn_fail(struct shed_conn *conn, enum shed_trouble trouble,
                    const struct shed_error *why);

/* Each of its replies answers another call than the oldest one: declare it
 * dead. */
void shed_conn_fail_out_of_step(struct shed_conn *conn);

/* Close the socket. What is queued stays, and goes over the next one; what was
 * sent and not answered does not reach the server any more, where that can be
 * helped. */
void shed_conn_close(struct shed_conn *conn);

/* ------------------------------------------------------------ the queue */

/* Queue a command, in any state, as shed_buffer_append makes it, and the call
 * of its reply; NULL: it is answered by pushes. Returns: SHED_OK; SHED_ENOMEM,
 * SHED_EBUSY: nothing is queued. */
SHED_MUST_CHECK enum shed_code
shed_conn_send_args(struct shed_conn *conn, const struct shed_args *args,
                    const struct shed_conn_call *call, uint64_t now_ms,
                    struct shed_error *err);

/* Queue what is in more behind what is queued, and empty it. Returns:
 * SHED_OK; SHED_ENOMEM, SHED_EBUSY: more is unchanged. */
SHED_MUST_CHECK enum shed_code
shed_conn_send_queue(struct shed_conn *conn, struct shed_conn_queue *more,
                     struct shed_error *err);

/* After a failure: take the oldest call out of a queue; nothing of it will be
 * sent. Returns: false when there is none, and the queue is empty. */
bool shed_conn_pop(struct shed_conn_queue *queue, struct shed_conn_call *call);

/* When the oldest call counts as unanswered; UINT64_MAX without a call. Replies
 * to those before it are signs of life. */
uint64_t shed_conn_silent_at_ms(const struct shed_conn *conn);

/* --------------------------------------------------------------- replies */

/* What has been read. */
enum shed_conn_event {
    SHED_CONN_NOTHING,
    SHED_CONN_REPLY, /* to *call, which is out of the queue */
    SHED_CONN_PUSH   /* no call expects it: a push, or an error */
};

/* The next of it: nothing until the socket is ready, or if the connection has
 * FAILED, perhaps by what was read. Ownership: *reply is the caller's. */
enum shed_conn_event shed_conn_next(struct shed_conn *conn, uint64_t now_ms,
                                    struct shed_reply **reply,
                                    struct shed_conn_call *call);

/* --------------------------------------------------------------- failover */

/* Whether the server has been left since the socket was opened, as term is
 * another one now. *why is set if so. */
bool shed_conn_is_left(const struct shed_conn *conn, unsigned term,
                       struct shed_error *why);

#endif
