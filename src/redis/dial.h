/*
 * Connects in the caller's own thread, which waits for it, and decides for all
 * shared connections when not to try. Any thread.
 */
#ifndef SHED_REDIS_DIAL_H
#define SHED_REDIS_DIAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "redis/conn.h"

struct shed_dialler {
    /* set at creation */
    struct shed_address *address;
    uint64_t connect_timeout_ms;
    uint64_t reconnect_min_ms, reconnect_max_ms;
    /* atomic */
    atomic_uint failures; /* in a row, weighted */
    /* shed_now_ms; since when no try was answered, unless the server was heard
     * of later */
    _Atomic uint64_t silent_since_ms;
    /* under mu */
    pthread_mutex_t mu;
    uint64_t retry_ms; /* shed_now_ms; no try before this time */
    struct shed_error last;
};

/* address must outlive the dialler. Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_dialler_init(struct shed_dialler *dialler, struct shed_address *address,
                  const struct shed_client_options *options,
                  struct shed_error *err);
void shed_dialler_fini(struct shed_dialler *dialler);

/*
 * Connect conn, which is closed, and set it up, until deadline_ms (shed_now_ms)
 * or the connect timeout, unless there is a pause after a failure. Touches
 * everything in conn except its queue. Afterwards receiving on it may block
 * (shed_wire_fill_waiting).
 *
 * Returns: SHED_OK; SHED_EREDIS, SHED_EDENIED, SHED_EBUSY (descriptors),
 * SHED_ENOMEM: conn is closed. *was_tried: to the end, neither prevented by a
 * pause nor cut short by deadline_ms.
 */
SHED_MUST_CHECK enum shed_code shed_dial(struct shed_dialler *dialler,
                                         struct shed_conn *conn,
                                         uint64_t deadline_ms, bool *was_tried,
                                         struct shed_error *err);

/* To be called when a connection got an answer (hear), or has failed because it
 * got none for the whole command timeout (hear_nothing). */
void shed_dialler_hear(struct shed_dialler *dialler, uint64_t now_ms);
void shed_dialler_hear_nothing(struct shed_dialler *dialler,
                               const struct shed_conn_failure *failure);

/* End the pause, because another connection to the server has been made. */
void shed_dialler_go_on(struct shed_dialler *dialler);

/* Leave the server that was reached in this term, because it is not a
 * primary. */
void shed_dialler_leave(struct shed_dialler *dialler, unsigned term);

/* Wait until a socket can be read or written (poll's events). Returns: the
 * events that are ready, 0 at the deadline. */
int shed_dial_wait(int fd, short events, uint64_t deadline_ms);

#endif
