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

struct shed_servers; /* servers.c */

struct shed_client {
    /* set at creation */
    pid_t pid;
    struct shed_address *address; /* of the URI */
    struct shed_reactor *reactor;
    struct shed_servers *servers;
    struct shed_listeners *listeners;
    struct shed_events *events;
    char process[SHED_PROCESS_BYTES + 1]; /* how others name this process */
    char *tracking_prefix;                /* NULL: there is none */
    uint64_t command_timeout_ms;
    size_t links_limit; /* to one server */
    bool has_channel;   /* false: only timers end its waits */
    /* atomic */
    atomic_uint holds;
    _Atomic uint32_t last_flight; /* the number of the newest flight */
    _Atomic uint32_t last_epoch;  /* of any session */
};

/* ------------------------------------------------------- commands and keys
 *
 * A command goes to the server that has its key: its first argument, or of a
 * script's call the first key. */

/* The server that has a key, held until it is given back. Any thread. */
struct shed_server *shed_client_hold(struct shed_client *client,
                                     struct shed_bytes key);
void shed_client_give_back(struct shed_client *client,
                           struct shed_server *server);

/* Wait until it is known which servers there are, or that nobody tells it for
 * now, or until deadline_ms (shed_now_ms). shed_client_call does so itself. */
void shed_client_wait(struct shed_client *client, uint64_t deadline_ms);

/* See shed_session_is_settled, of that server's session. Any thread. */
bool shed_client_is_settled(struct shed_client *client, struct shed_bytes key);

/* The same; if not, post will run when it may be, to look again. Reactor
 * thread. */
bool shed_client_settles(struct shed_client *client, struct shed_bytes key,
                         struct shed_post *post);

/* Whether it is known which servers there are, or that nobody tells it for now;
 * if not, post will run then, unless it is NULL. Reactor thread. */
bool shed_client_knows_servers(struct shed_client *client,
                               struct shed_post *post);

/* Whether all changes of the key are announced, see shed_session_is_broadcast.
 * Reactor thread. */
bool shed_client_hears_all(struct shed_client *client, struct shed_bytes key);

/* The session with that server, for this turn of the loop. Reactor thread. */
struct shed_session *shed_client_session(struct shed_client *client,
                                         struct shed_bytes key);

/* Whether one script may have both keys: always, unless the servers are a
 * cluster, which wants them in one slot. Any thread. */
bool shed_client_is_one_slot(const struct shed_client *client,
                             struct shed_bytes a, struct shed_bytes b);

/* As shed_pipe_call, over that session. Reactor thread. */
void shed_client_send(struct shed_client *client, struct shed_call *call,
                      const struct shed_args *args, shed_pipe_fn *fn,
                      void *arg);

/* Have the session to which a command would go connect now, if it pauses after
 * a failure. Reactor thread. */
void shed_client_hurry(struct shed_client *client,
                       const struct shed_args *args);

/* As shed_links_call, to the server that has the first command's key, which has
 * those of the others, too. Any thread. */
SHED_MUST_CHECK enum shed_code
shed_client_call(struct shed_client *client, const struct shed_args *commands,
                 size_t count, struct shed_reply **replies,
                 struct shed_link_use *use, unsigned *sent,
                 uint64_t deadline_ms, struct shed_error *err);

/* As shed_links_doubt, for the command of that key. use NULL: it went over the
 * session, on whose thread this is called; its untracked connections are
 * dropped. The tracked one carries scripts, whose replies have numbers: that of
 * the flight which follows shows whether it is out of step. Else any thread. */
void shed_client_doubt(struct shed_client *client, struct shed_bytes key,
                       const struct shed_link_use *use);

/* What the clock of the server that has a key will be at least when ours is
 * at_ms; 0: unknown. Any thread. */
uint64_t shed_client_server_lowest_ms(struct shed_client *client,
                                      struct shed_bytes key, uint64_t at_ms);

/* The clock of the server that has a key, ms since 1970; 0: unknown. Any
 * thread. */
uint64_t shed_client_server_ms(struct shed_client *client,
                               struct shed_bytes key);

/* How often a server was found to be another run, or to have been replaced: it
 * may lack what the former one has carried out. Any thread. */
unsigned shed_client_server_changes(struct shed_client *client);

/* ------------------------------------------------------------------ servers
 *
 * For client.c and calls.c. */

/* Make client->servers, for its address, to which shed_address_use_tls has
 * given these options; a cluster's seeds are asked first. The texts of the
 * other options are borrowed. Nothing is connected yet. Any thread. Returns:
 * SHED_OK; SHED_ENOMEM: they are to be destroyed in any case. */
SHED_MUST_CHECK enum shed_code
shed_servers_create(struct shed_client *client,
                    const struct shed_client_options *options,
                    struct shed_error *err);

/* Connect; and close what is connected. Reactor thread. */
void shed_servers_open(struct shed_servers *servers);
void shed_servers_close(struct shed_servers *servers);

/* Destroy them after close; in a forked child instead of both. NULL is
 * allowed. */
void shed_servers_destroy(struct shed_servers *servers, bool is_forked);

/* The server, held, to which a reply of another one leads that says that the
 * key is elsewhere; the map is asked for, too. is_ask: set if it is only to be
 * asked for now. Returns: NULL: the reply leads nowhere, or there is no memory
 * for the server. Any thread. */
struct shed_server *shed_servers_follow(struct shed_client *client,
                                        const struct shed_server *from,
                                        const struct shed_reply *reply,
                                        bool *is_ask);

/* The key that decides which server a command goes to. */
struct shed_bytes shed_servers_key(const struct shed_args *args);

/* Report what has become of a server, as the hooks of that name say; arg is the
 * server. For servers.c. */
void shed_client_tell_standing(const struct shed_server *server,
                               const struct shed_error *why,
                               uint64_t before_us);
void shed_client_tell_lack(void *arg, enum shed_lack lack, const char *text);
void shed_client_tell_breaker(void *arg, bool is_open, uint64_t after_ms,
                              const char *reason);

/* ------------------------------------------------------------------- states */

/* Whether it is connected to Redis, and set up. Any thread. */
bool shed_client_is_up(struct shed_client *client);

/* The state of its server, or of a cluster as if it was one. Any thread. */
void shed_client_read(struct shed_client *client,
                      struct shed_server_status *out);

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
