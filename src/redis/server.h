/*
 * One server: whether it may be used, and the connections to it. It knows
 * nothing of keys, nor of other servers.
 */
#ifndef SHED_REDIS_SERVER_H
#define SHED_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/mutex.h"
#include "redis/gate.h"
#include "redis/link.h"
#include "redis/session.h"

/* Whether the session is connected. */
enum shed_standing {
    SHED_STANDING_UNKNOWN,
    SHED_STANDING_UP,
    SHED_STANDING_DOWN,
    SHED_STANDING_REFUSED
};

/* Called with the server, on the reactor thread, except on_breaker. */
struct shed_server_hooks {
    /* as of a session */
    void (*on_change)(void *server, const char *key, size_t size);
    void (*on_epoch)(void *server);
    /* The standing has changed. why: NULL if it is connected now. before_us:
     * how long it was so before, 0: it was not connected before either. */
    void (*on_standing)(void *server, const struct shed_error *why,
                        uint64_t before_us);
    /* as of a session */
    void (*on_lack)(void *server, enum shed_lack lack, const char *text);
    /* as of a gate */
    shed_gate_fn *on_breaker;
    /* as of a session; NULL is allowed */
    bool (*on_elsewhere)(void *server, struct shed_call *call,
                         const struct shed_reply *reply);
};

struct shed_server {
    /* set at creation */
    struct shed_reactor *reactor;
    struct shed_address *address;
    struct shed_gate *gate;
    struct shed_links *links;
    struct shed_session *session;
    void (*on_standing)(void *server, const struct shed_error *why,
                        uint64_t before_us);
    /* its owner's */
    void *owner;
    size_t place; /* among its servers */
    /* its owner's, on the reactor thread only */
    unsigned changes; /* of its runs that were heard of */
    bool is_open;     /* its session is */

    struct shed_mutex mu;
    /* under mu */
    enum shed_standing standing;
    uint64_t standing_since_us;
    struct shed_error last; /* why it was last down */
};

/* Borrows reactor, holds address, and calls hooks with itself. Its session is
 * to be opened. process and epochs are as of shed_session_create. Any thread.
 * Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_server_create(struct shed_reactor *reactor, struct shed_address *address,
                   const struct shed_client_options *options,
                   const char *process, _Atomic uint32_t *epochs,
                   const struct shed_server_hooks *hooks, void *owner,
                   struct shed_server **out, struct shed_error *err);

/* Close the session: afterwards it must not be used. Reactor thread. */
void shed_server_close(struct shed_server *server);

/* Destroy it after close, when no call is under way. In a forked child, instead
 * of close and destroy: shed_server_forget. NULL is allowed. */
void shed_server_destroy(struct shed_server *server);
void shed_server_forget(struct shed_server *server);

struct shed_server_status {
    bool is_up;             /* connected, and set up */
    uint64_t since_us;      /* shed_now_us */
    struct shed_error last; /* why it was last down */
    struct shed_gate_status gate;
};

/* Any thread. */
void shed_server_read(struct shed_server *server,
                      struct shed_server_status *out);

#endif
