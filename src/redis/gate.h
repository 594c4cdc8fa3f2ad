/*
 * Whether Redis is asked: the breaker before the calls of one client, for all
 * its connections together.
 *
 * What is guarded (shed_args.is_guarded) enters before it is sent, and leaves
 * with how it ended, by which the breaker opens and closes. It refuses what
 * begins, and what can be kept for later: reads, acquires, writes. What ends
 * something that was begun (a publish, a renewal, a release) is not guarded: it
 * is always sent, because it shortens the trouble of others, and does not
 * count.
 *
 * Any thread.
 */
#ifndef SHED_REDIS_GATE_H
#define SHED_REDIS_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/breaker.h"
#include "redis/reply.h"

struct shed_gate;

/* Called when the breaker has opened or closed, after it was closed, or was
 * not, for after_ms. It must not call the gate. */
typedef void shed_gate_fn(void *arg, bool is_open, uint64_t after_ms,
                          const char *reason);

/* where is the server's address, which must outlive the gate.
 * Returns: SHED_OK and *out, which is NULL if the options want no breaker;
 * SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_gate_create(const struct shed_client_options *options, const char *where,
                 shed_gate_fn *on_change, void *arg, struct shed_gate **out,
                 struct shed_error *err);

/* NULL is allowed. */
void shed_gate_destroy(struct shed_gate *gate);

/* Whether a call may be sent. It must leave if so, with the same term.
 * Returns: false: SHED_EREDIS is in err, which may be NULL. */
bool shed_gate_enter(struct shed_gate *gate, uint64_t *term,
                     struct shed_error *err);

/* How a call has ended. */
struct shed_gate_end {
    bool was_tried; /* false: there is a pause after a failure, or the caller's
                       deadline came before it was known how it would end */
    /* shed_now_ms, of the wait for it */
    uint64_t began_ms, ended_ms;
    const struct shed_error *why;     /* NULL: it was answered */
    const struct shed_reply *refusal; /* an answer that says that Redis cannot
                                         work now; NULL: none does */
};

void shed_gate_leave(struct shed_gate *gate, uint64_t term,
                     const struct shed_gate_end *end);

struct shed_gate_status {
    struct shed_breaker_status breaker;
    uint64_t refused; /* calls */
};

/* NULL is allowed: it is closed. */
void shed_gate_read(struct shed_gate *gate, struct shed_gate_status *out);

#endif
