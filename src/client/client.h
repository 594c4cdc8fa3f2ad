/*
 * The inside of a client: what its caches and locks use. It is counted: the
 * program has one hold, and each cache and each lock has another. Dropping the
 * last hold closes the client.
 */
#ifndef SHED_CLIENT_H
#define SHED_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/events.h"
#include "client/listeners.h"
#include "redis/server.h"

struct shed_client {
    /* set at creation */
    pid_t pid;
    struct shed_address *address; /* of the URI */
    struct shed_reactor *reactor;
    struct shed_server *server; /* the server there */
    struct shed_listeners *listeners;
    struct shed_events *events;
    char process[SHED_PROCESS_BYTES + 1]; /* how others name this process */
    uint64_t command_timeout_ms;
    size_t links_limit; /* to one server */
    bool has_channel;   /* false: only timers end its waits */
    /* atomic */
    atomic_uint holds;
    _Atomic uint32_t last_flight; /* the number of the newest flight */
};

/* Whether it is connected to Redis, and set up. Any thread. */
bool shed_client_is_up(struct shed_client *client);

/* Returns: SHED_OK; SHED_EFORKED in a child of the process that opened it. */
SHED_MUST_CHECK enum shed_code
shed_client_check(const struct shed_client *client, struct shed_error *err);

/* The same for a call that blocks. Returns: also SHED_EINVAL on a thread of the
 * library. */
SHED_MUST_CHECK enum shed_code
shed_client_check_call(const struct shed_client *client,
                       struct shed_error *err);

/* Longest timeout of a call. */
#define SHED_TIMEOUT_MAX_MS 3600000

/* As shed_client_check_call, and check the timeout_ms that the call is given; 0
 * stands for its default. */
SHED_MUST_CHECK enum shed_code
shed_client_check_timed_call(const struct shed_client *client,
                             uint64_t timeout_ms, struct shed_error *err);

/* Take another hold. Any thread; returns client. */
struct shed_client *shed_client_ref(struct shed_client *client);

/* Drop a hold. Any thread: on a reactor, the client is closed by another
 * thread. NULL is allowed. */
void shed_client_unref(struct shed_client *client);

#endif
