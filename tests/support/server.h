/* A private redis-server on a unix socket, in a directory of its own, and a
 * proxy in front of it that spoils replies. Both end with the test, however the
 * test ends. */
#ifndef SERVER_H
#define SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <pthread.h>

#include <hiredis/hiredis.h>

#define SERVER_PATH_BYTES 64
#define SERVER_URI_BYTES (SERVER_PATH_BYTES + 8)
#define SERVER_OPTIONS_MAX 20
#define SERVER_TLS_OPTIONS 10

struct server {
    char dir[32];
    char socket[SERVER_PATH_BYTES];
    char uri[SERVER_URI_BYTES];
    const char *options[SERVER_OPTIONS_MAX]; /* additional; ends with NULL */
    const char *password;
    const char *sentinel;     /* its configuration, if it is one */
    const char *certificates; /* a directory (certificates.h): it speaks TLS,
                                 too, at tls_port of 127.0.0.1, as server.pem;
                                 NULL: it does not */
    unsigned tls_port;
    bool has_clock; /* of its own, for server_skew */
    bool is_old;    /* with has_clock: when it starts for the first time, its
                       clock says that it has run for an hour, so that it has a
                       vote in a quorum at once */
    pid_t pid;
    pid_t guardian; /* removes dir */
    int guarded;    /* a descriptor that stays open while dir is needed */
};

/* Start it and wait until it answers; the test fails if it does not. Set
 * options, password, certificates and has_clock first. */
void server_start(struct server *s);

/* Add an option with its value, or NULL; before the start. */
void server_add_option(struct server *s, const char *name, const char *value);

/* Kill it and remove its directory, if there is one. */
void server_stop(struct server *s);

/* End it with SIGKILL. */
void server_kill(struct server *s);

/* Start a killed server with the same options; it is empty. */
void server_start_again(struct server *s);

/* Stop the process with SIGSTOP. */
void server_freeze(struct server *s);

/* Let it continue. */
void server_thaw(struct server *s);

/* From now on its wall clock is so far ahead of the machine's. */
void server_skew(struct server *s, int64_t seconds);

/* Let it fail to save its data, so that it refuses writes (MISCONF) until it is
 * told that it need not: stop-writes-on-bgsave-error. */
void server_fail_to_save(const struct server *s);

/* A port of 127.0.0.1 that nobody listens on, for a server's options. */
unsigned server_free_port(void);

/* A new connection, logged in. NULL: it failed. */
redisContext *server_connect(const struct server *s);

/* Run a command, in hiredis's format (including %b), on a new connection. An
 * error reply is returned like any other; the test fails if none comes. */
redisReply *server_run(const struct server *s, const char *format, ...);

/* Run a command that must not fail, and return its integer; or ignore that. */
long long server_int(const struct server *s, const char *format, ...);
#define server_do(...) ((void)server_int(__VA_ARGS__))

/* Send a command whose reply may take a while, on a connection of its own; and
 * wait for the reply, and close that. */
redisContext *server_send(const struct server *s, const char *format, ...);
void server_await(redisContext *c);

/* The value of a field of INFO, cut to size; the test fails if there is no such
 * field. */
void server_info(const struct server *s, const char *field, char *value,
                 size_t size);

/* How often a command, for example "get", has been executed. */
long long server_calls(const struct server *s, const char *command);

/* How many lines of CLIENT LIST contain text. */
int server_clients(const struct server *s, const char *text);

/* Whether a replica has all that its primary has. */
bool server_follows(const struct server *replica);

/* Cut a replica off from its primary, which goes on without it; and let it
 * follow again. */
void server_cut_replica(const struct server *replica,
                        const struct server *primary);
void server_join_replica(const struct server *replica);

/* Fail if a key of the server has no time to live, unless it is the log of a
 * cache's tags. */
void server_check_ttls(const struct server *s);

enum proxy_mode {
    PROXY_PASS,
    PROXY_DELAY,    /* each chunk of replies is passed on after delay_ms */
    PROXY_DRIP,     /* one byte every delay_ms */
    PROXY_CUT,      /* the first byte of a reply, then the connection ends */
    PROXY_CUT_ONE,  /* the same for the next reply only; then PASS */
    PROXY_ANSWER,   /* text in place of the server's reply */
    PROXY_DOUBLE,   /* each chunk of replies is sent a second time before the
                       next request is passed on */
    PROXY_STAND_IN, /* only replies to GET and scripts are sent twice, and the
                       next request is not passed on; replies to the set-up are
                       not doubled, so a new connection begins in step */
    PROXY_DROP,     /* requests are passed on, replies are not */
    PROXY_DROP_LEASES, /* the same for SET NX and scripts alone */
    PROXY_HOLD_ONE, /* the next call of a script is held back, with what comes
                       behind it on its connection, until proxy_release, also if
                       the client leaves; then PASS */
    PROXY_STALL,    /* every n-th chunk of requests is held back for a random
                       time of at most delay_ms */
    PROXY_SWALLOW,  /* requests are not passed on */
    PROXY_SWALLOW_SUBSCRIBE, /* the same for requests that contain SUBSCRIBE */
    PROXY_DROP_PUSHES,       /* as DROP, on connections that have subscribed */
    PROXY_PART, /* nothing passes on connections of sentinels and replicas, and
                   of the node of a cluster whose id is text */
    PROXY_BLACKHOLE /* connections are closed, and no other is made: connecting
                       hangs, as behind a firewall that drops packets; needs
                       is_tcp */
};

#define PROXY_PAIRS_MAX 64

struct proxy {
    bool is_tcp; /* set before it listens: at port of 127.0.0.1, not at socket;
                    it leads to the server's tls_port, if it has one */
    const struct server *server;
    char socket[SERVER_PATH_BYTES];
    unsigned port;
    char uri[SERVER_URI_BYTES];
    int listener;
    int filler; /* BLACKHOLE: what fills the queue of the listener */
    pthread_t thread;
    const char *text; /* for ANSWER, PART: to be set in another mode */
    atomic_int mode;
    atomic_uint delay_ms;
    atomic_uint every; /* DELAY, STALL: only every n-th chunk; 0: all chunks */
    atomic_uint accepted;
    atomic_uint requests; /* chunks of requests */
    atomic_bool is_deaf;  /* BLACKHOLE: it accepts nothing any longer */
    atomic_bool is_stopping;
    atomic_int
        holds; /* HOLD_ONE: 1: it holds a request; 2: it is to cut off the
                  client of that; 3: it has; 4: to pass it on; 0: passed */
};

/* Start a proxy: proxy_listen and proxy_serve. */
void proxy_start(struct proxy *p, const struct server *s);

/* Create its address. */
void proxy_listen(struct proxy *p, const struct server *s);

/* Start its thread. A test that forks must do so before, because a child may
 * inherit a lock of the allocator that the thread held (AddressSanitizer's
 * allocator does not release it in the child). */
void proxy_serve(struct proxy *p);

/* Change its mode; text, if not NULL, is what ANSWER sends from now on. */
void proxy_set(struct proxy *p, enum proxy_mode mode, unsigned delay_ms,
               const char *text);

/* With HOLD_ONE: wait until a request is held; close the connection of the
 * client that has sent it; pass it on, and wait until the server has it. */
void proxy_wait_held(struct proxy *p);
void proxy_cut_off(struct proxy *p);
void proxy_release(struct proxy *p);
void proxy_stop(struct proxy *p);

#endif
