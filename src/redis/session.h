/*
 * The reactor's session with Redis: a connection for commands and, unless
 * waiting is by timer only, one for pushes. The server tracks the keys that the
 * commands read (CLIENT TRACKING, redirected to the second connection) and
 * announces their changes. A push is only a hint: it may come twice, late, or
 * not at all.
 *
 * Commands that read what need not be announced have connections of their own,
 * because tracking a key costs Redis more than a GET. The first is made by the
 * first of these commands, and further ones while hundreds are under way:
 * Redis works for one while this process reads what came by another. With a
 * tracking_prefix the connection for pushes asks for the changes of all keys
 * that begin with it, read or not (BCAST).
 *
 * An epoch is the time between two losses of a connection. The second
 * connection is subscribed to the channel of this process,
 * snowshed:process:ID, and to that of the epoch, snowshed:process:ID.EPOCH: by
 * these, others see that the process is alive, and that it still waits for the
 * replies of that epoch. The name of a further channel,
 * snowshed:process:ID:HOST:PID, tells people where it is.
 *
 * Reactor thread only, except create and the functions that say otherwise.
 */
#ifndef SHED_REDIS_SESSION_H
#define SHED_REDIS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "redis/acks.h"
#include "redis/lacks.h"
#include "redis/link.h"
#include "redis/pipe.h"
#include "redis/server_run.h"
#include "wire/script.h"

/* The id by which others name this process: hexadecimal digits. */
#define SHED_PROCESS_BYTES 16

/* Before it, the name of the channel of a process. */
#define SHED_PROCESS_CHANNEL "snowshed:process:"

struct shed_server;
struct shed_session;

/* Called with the server, on the reactor thread, except on_breaker. */
struct shed_server_hooks {
    /* A tracked key has changed, or vanished. */
    void (*on_change)(void *server, const char *key, size_t size);
    /* Pushes have begun or ended, or some may have been lost: those that wait
     * for one must look. Without pushes: Redis is back. */
    void (*on_epoch)(void *server);
    /* The standing has changed. why: NULL if it is connected now. before_us:
     * how long it was so before, 0: it was not connected before either. */
    void (*on_standing)(void *server, const struct shed_error *why,
                        uint64_t before_us);
    /* The server refuses a command; once for each. text: its error. */
    void (*on_lack)(void *server, enum shed_lack lack, const char *text);
    /* as of a gate */
    shed_gate_fn *on_breaker;
    /* as of a pipe; NULL is allowed */
    bool (*on_elsewhere)(void *server, struct shed_call *call,
                         const struct shed_reply *reply);
};

/* See server.h. */
struct shed_server {
    /* set at creation */
    struct shed_reactor *reactor;
    struct shed_address *address;
    struct shed_gate *gate;
    struct shed_links *links;
    struct shed_session *session;
    struct shed_server_hooks hooks;
    /* its owner's */
    void *owner;
    size_t place; /* among its servers */
    /* its owner's, on the reactor thread only */
    unsigned changes;       /* of its runs that were heard of */
    bool is_open;           /* its session is */
    struct shed_call watch; /* asks it for the epoch of its cluster */
};

struct shed_server_status {
    bool is_up;             /* connected, and set up */
    uint64_t since_us;      /* shed_now_us */
    struct shed_error last; /* why it was last down */
    struct shed_gate_status gate;
};

/* Of a server that has all else. options' tracking_prefix is borrowed. process:
 * SHED_PROCESS_BYTES of text; epochs: the number of its last epoch on any
 * server. Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_session_create(struct shed_server *server,
                    const struct shed_client_options *options,
                    const char *process, _Atomic uint32_t *epochs,
                    struct shed_session **out, struct shed_error *err);
void shed_session_open(struct shed_session *session);

/* Close the session; the loop frees it. NULL is allowed. */
void shed_session_close(struct shed_session *session);

/* In a forked child: close its copies of the sockets. */
void shed_session_forget(struct shed_session *session);

/* As shed_pipe_call, over one of its connections. */
void shed_session_call(struct shed_session *session, struct shed_call *call,
                       const struct shed_args *args, shed_pipe_fn *fn,
                       void *arg);

/* Whether no call is under way over it, no post waits for it, and none of its
 * own is to run. */
bool shed_session_is_idle(const struct shed_session *session);

/* Whether it is connected, and what its gate says. Any thread. */
void shed_session_read(struct shed_session *session,
                       struct shed_server_status *out);

/* The connection for commands, whose reads are tracked. */
struct shed_pipe *shed_session_pipe(struct shed_session *session);

/* A reply over an untracked connection reads as another call's: drop them all;
 * new ones follow. */
void shed_session_doubt(struct shed_session *session);

/* What asks for acknowledgements by replicas. */
struct shed_acks *shed_session_acks(struct shed_session *session);

/* Whether changes are announced now. */
bool shed_session_is_on(const struct shed_session *session);

/* Whether changes of all keys with the client's tracking_prefix are announced.
 * on_epoch is called when they no longer are. */
bool shed_session_is_broadcast(const struct shed_session *session);

/* Whether it is known if changes are announced: false until the server has
 * confirmed it, or it has turned out that it will not. on_epoch is called when
 * this changes. Any thread. */
bool shed_session_is_settled(const struct shed_session *session);

/* Have post run when that is settled; to be called only before. */
void shed_session_await(struct shed_session *session, struct shed_post *post);

/* The number of this epoch, which is that of no other one of the process; on
 * its way between two epochs, of the next one. 0: nobody can see whether it
 * lasts, because the last try to subscribe to its channel has failed. */
uint32_t shed_session_epoch(const struct shed_session *session);

/* End an epoch, unless it has ended, though no connection is lost: a lease that
 * names it could not be ended. */
void shed_session_end_epoch(struct shed_session *session, uint32_t epoch);

/* How others see that this process is alive: it is subscribed to its channel on
 * this run of the server. Blanks while it is not subscribed or the run is
 * unknown. */
struct shed_identity {
    char process[SHED_PROCESS_BYTES];
    char run[SHED_RUN_BYTES];
};

/* Any thread. */
void shed_session_identify(struct shed_session *session,
                           struct shed_identity *identity);

/* Whether both sessions are connected to the same server, as far as that is
 * known. Any thread. */
bool shed_session_is_same_server(struct shed_session *a,
                                 struct shed_session *b);

/* See shed_server_run_age_ms. INFO is answered before what is sent over
 * shed_session_pipe, so then the age is unknown only if it was refused for
 * now. */
uint64_t shed_session_server_age_ms(const struct shed_session *session);

/* See server_run.h. on_epoch is called after each change. */
unsigned shed_session_server_changes(const struct shed_session *session);

/* Ask again for the age if it is not known, and say in err why. Returns: as
 * shed_server_run_explain. */
enum shed_code shed_session_learn_age(struct shed_session *session,
                                      struct shed_error *err);

#endif
