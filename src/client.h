/* The inside of a client: what its caches use. */
#ifndef SHED_CLIENT_H
#define SHED_CLIENT_H

#include <sys/types.h>

#include "lock/hall.h"
#include "redis/link.h"
#include "runner.h"

struct shed_client {
    /* set at creation */
    pid_t pid;
    struct shed_address *address;
    struct shed_links *links;
    struct shed_airport airport;
    struct shed_hall *hall;
    uint64_t command_timeout_ms;
};

/* Returns: SHED_OK; SHED_EFORKED in a child of the process that opened it. */
SHED_MUST_CHECK int shed_client_check(const struct shed_client *client,
                                      struct shed_error *err);

#endif
