/* Connects in the caller's own thread, which waits for it. Any thread. */
#ifndef SHED_REDIS_DIAL_H
#define SHED_REDIS_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/conn.h"
#include "redis/gate.h"

/*
 * Connect conn, which is closed, and set it up, until deadline_ms (shed_now_ms)
 * or the connect timeout, if the gate lets it. Touches everything in conn
 * except its queue. Afterwards receiving on it may block
 * (shed_wire_fill).
 *
 * Returns: SHED_OK; SHED_EREDIS, SHED_EDENIED, SHED_EBUSY (descriptors),
 * SHED_ENOMEM: conn is closed. *was_tried: to the end, neither prevented by the
 * gate nor cut short by deadline_ms.
 */
SHED_MUST_CHECK enum shed_code shed_dial(struct shed_gate *gate,
                                         struct shed_conn *conn,
                                         uint64_t deadline_ms, bool *was_tried,
                                         struct shed_error *err);

#endif
