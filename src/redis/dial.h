/* Connecting in the caller's own thread, which waits for it. */
#ifndef SHED_REDIS_DIAL_H
#define SHED_REDIS_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "redis/wire.h"

/*
 * Connect wire, which is closed, and set the connection up, until deadline_ms
 * (shed_now_ms). *is_silent: nothing came from the server until then.
 *
 * Returns: SHED_OK; SHED_EREDIS, SHED_EDENIED, SHED_EBUSY (descriptors),
 * SHED_ENOMEM: wire is closed.
 */
SHED_MUST_CHECK int shed_dial(struct shed_wire *wire,
                              struct shed_address *address,
                              uint64_t deadline_ms, bool *is_silent,
                              struct shed_error *err);

/* Wait until a socket can be read or written (poll's events). Returns: what it
 * can, 0 at the deadline. */
int shed_dial_wait(int fd, short events, uint64_t deadline_ms);

#endif
