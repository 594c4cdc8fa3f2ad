/*
 * The reactor's session with Redis: a connection for commands and, unless
 * waiting is by timer alone, one for pushes. Keys that the commands read are
 * tracked by the server (CLIENT TRACKING, redirected to the second connection)
 * and a change of one is announced. A push is a hint, no more: it may come
 * twice, late, or not at all.
 *
 * The second connection is also subscribed to the channel of this process,
 * which is how others see that it lives.
 *
 * Reactor thread only, but for create and the functions that say otherwise.
 */
#ifndef SHED_REDIS_SESSION_H
#define SHED_REDIS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "redis/pipe.h"
#include "redis/script.h"

/* The id by which others name this process: hexadecimal digits. */
#define SHED_PROCESS_BYTES 16

struct shed_session;

struct shed_session_hooks {
    void *arg;
    /* A tracked key has changed, or vanished. */
    void (*on_change)(void *arg, const char *key, size_t size);
    /* Pushes have begun, or ended, or some may have been lost: callers
     * that wait for one must look. */
    void (*on_epoch)(void *arg);
    /* The connection for commands is there (NULL), or could not be made or was
     * lost: why. */
    void (*on_standing)(void *arg, const struct shed_error *why);
    /* Every few seconds. */
    void (*on_tick)(void *arg);
};

/* process is SHED_PROCESS_BYTES of text. Returns: SHED_OK, SHED_ENOMEM.
 */
SHED_MUST_CHECK enum shed_code
shed_session_create(struct shed_reactor *reactor, struct shed_address *address,
                    const struct shed_client_options *options,
                    const char *process, const struct shed_session_hooks *hooks,
                    struct shed_session **out, struct shed_error *err);
void shed_session_open(struct shed_session *session);

/* The loop frees it. NULL is allowed. */
void shed_session_close(struct shed_session *session);

/* In a forked child: close its copies of the sockets. */
void shed_session_forget(struct shed_session *session);

/* The connection for commands, whose reads are tracked. */
struct shed_pipe *shed_session_pipe(struct shed_session *session);

/* Whether changes are announced now. */
bool shed_session_is_on(const struct shed_session *session);

/* Whether it is known if changes are announced: false from the beginning until
 * the server has said so, or has been found not to. on_epoch tells when that
 * changes. Any thread. */
bool shed_session_is_settled(const struct shed_session *session);

/* Post it when that is settled. Not to be asked when it is. */
void shed_session_await(struct shed_session *session, struct shed_post *post);

/* Whether this process is subscribed to its channel now. */
bool shed_session_has_channel(const struct shed_session *session);

/* How others see that this process lives: it is subscribed to its channel on
 * a run of the server. Blanks while it is not, or the run is not known. */
#define SHED_RUN_BYTES 16

struct shed_identity {
    char process[SHED_PROCESS_BYTES];
    char run[SHED_RUN_BYTES];
};

/* Any thread. */
void shed_session_identify(struct shed_session *session,
                           struct shed_identity *identity);

/* Whether both are connected to one server, as far as it tells. Any thread. */
bool shed_session_is_same_server(struct shed_session *a,
                                 struct shed_session *b);

/* For how long the server has been running at least, ms, up to two seconds less
 * than it has; UINT64_MAX if it does not say. Any thread. */
uint64_t shed_session_server_age_ms(const struct shed_session *session);

/* The server's clock, ms since 1970, as last heard of; 0 if never. Any
 * thread. */
uint64_t shed_session_server_ms(const struct shed_session *session);

#endif
