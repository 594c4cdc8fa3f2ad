/* The inside of a client: what its caches use. */
#ifndef SHED_CLIENT_H
#define SHED_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cache/flights.h"
#include "client/hall.h"
#include "redis/link.h"

/* How the client stands with Redis. */
enum shed_standing {
    SHED_STANDING_UNKNOWN,
    SHED_STANDING_UP,
    SHED_STANDING_DOWN,
    SHED_STANDING_REFUSED
};

struct shed_client {
    /* set at creation */
    pid_t pid;
    struct shed_address *address;
    struct shed_links *links;
    struct shed_airport airport;
    struct shed_hall *hall;
    uint64_t command_timeout_ms;
    bool has_channel; /* unless it waits by timer alone */
    void (*on_log)(void *user, enum shed_log_level level, const char *text);
    void *log_user;
    pthread_mutex_t mu;
    /* under mu */
    enum shed_standing standing;
    struct shed_error last; /* why it was last not up */
};

/* Whether it is connected. Any thread. */
bool shed_client_is_up(struct shed_client *client);

/* Returns: SHED_OK; SHED_EFORKED in a child of the process that opened it. */
SHED_MUST_CHECK int shed_client_check(const struct shed_client *client,
                                      struct shed_error *err);

#endif
