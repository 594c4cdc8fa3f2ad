/*
 * The gate before one server: its health (health.h), as all its connections and
 * callers share it. What passes the gate says how it ended, from which the
 * health is learnt.
 *
 * Any thread, except where a function says otherwise.
 */
#ifndef SHED_REDIS_GATE_H
#define SHED_REDIS_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "redis/health.h"

struct shed_address;
struct shed_gate;

/* Called when the breaker has opened or closed, after it was closed, or was
 * not, for after_ms. It must not call the gate. */
typedef void shed_gate_fn(void *arg, bool is_open, uint64_t after_ms,
                          const char *reason);

/* Called when the server was left or has fallen silent, and when a link has
 * reached it. */
typedef void shed_gate_move_fn(void *arg, bool is_reached);

/* address is the server's, which must outlive the gate. on_breaker may be NULL.
 * Returns: SHED_OK and *out; SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_gate_create(struct shed_address *address,
                 const struct shed_client_options *options,
                 shed_gate_fn *on_breaker, void *arg, struct shed_gate **out,
                 struct shed_error *err);

/* NULL is allowed. */
void shed_gate_destroy(struct shed_gate *gate);

/* There is a session, which tries to reach a server that is silent. To be
 * called before the first connection. */
void shed_gate_follow(struct shed_gate *gate, shed_gate_move_fn *on_move,
                      void *arg);

struct shed_address *shed_gate_address(const struct shed_gate *gate);

/* ----------------------------------------------------------- connections */

/* Whether to connect. Returns: SHED_OK and *try, whose end is to be told; else
 * err says why not, with the code of the last failure. */
SHED_MUST_CHECK enum shed_code shed_gate_connect(struct shed_gate *gate,
                                                 enum shed_health_user user,
                                                 struct shed_health_try *try,
                                                 struct shed_error *err);

/* Tell what happened to the connection of a try. try and since_ms are as of
 * struct shed_health_event, or NULL and 0; why is the failure, NULL if it is
 * none. */
void shed_gate_tell(struct shed_gate *gate, enum shed_health_event_type type,
                    const struct shed_health_try *try, uint64_t since_ms,
                    const struct shed_error *why);

/* The same for SHED_HEALTH_HEARD, at next to no cost. */
void shed_gate_hear(struct shed_gate *gate, uint64_t now_ms);

/* The present term. */
unsigned shed_gate_term(const struct shed_gate *gate);

/* What is left of the session's pause. */
uint64_t shed_gate_pause_left_ms(struct shed_gate *gate);

/* ----------------------------------------------------------------- calls */

/* Whether the server is silent: then no call is sent. */
bool shed_gate_is_silent(const struct shed_gate *gate);

/* How it fell silent, and that it is not asked. Returns: SHED_EREDIS. */
enum shed_code shed_gate_fail_silent(struct shed_gate *gate,
                                     struct shed_error *err);

/* Whether a guarded call may be sent. It must leave if so, with the same pass.
 * Returns: false: SHED_EREDIS is in err, which may be NULL. */
bool shed_gate_enter(struct shed_gate *gate, struct shed_health_pass *pass,
                     struct shed_error *err);

void shed_gate_leave(struct shed_gate *gate,
                     const struct shed_health_pass *pass,
                     const struct shed_health_end *end);

struct shed_gate_status {
    struct shed_breaker_status breaker;
    uint64_t refused; /* calls, by the breaker */
};

void shed_gate_read(struct shed_gate *gate, struct shed_gate_status *out);

#endif
