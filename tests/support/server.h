/* A redis-server of the test's own, in a directory of its own, on a unix
 * socket; and a proxy before it that spoils replies. Both end with the test,
 * however that ends. */
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
#define SERVER_OPTIONS_MAX 16

struct server {
    char dir[32];
    char socket[SERVER_PATH_BYTES];
    char uri[SERVER_URI_BYTES];
    const char *options[SERVER_OPTIONS_MAX]; /* beyond ours; ends with NULL */
    const char *password;
    pid_t pid;
    pid_t guardian; /* removes dir */
    int guarded;    /* open as long as dir is needed */
};

/* Start it and wait until it answers; a server that does not is a failure.
 * Fill options and password before. */
void server_start(struct server *s);
void server_stop(struct server *s);

/* SIGKILL, and again as it was but empty. */
void server_kill(struct server *s);
void server_start_again(struct server *s);

void server_freeze(struct server *s);
void server_thaw(struct server *s);

/* One command, in hiredis's format (so %b too), on a connection of its own;
 * error replies come back as such, no reply is a failure. */
redisReply *server_run(const struct server *s, const char *format, ...);

/* The same where the reply must be no error: its integer, or nothing. */
long long server_int(const struct server *s, const char *format, ...);
void server_do(const struct server *s, const char *format, ...);

/* The value of a field of INFO, cut to size; a field that is not there is a
 * failure. */
void server_info(const struct server *s, const char *field, char *value,
                 size_t size);

/* How often a command has been executed: "get", "evalsha". */
long long server_calls(const struct server *s, const char *command);

/* How many clients' CLIENT LIST lines hold text. */
int server_clients(const struct server *s, const char *text);

/* Fail if a key of the server has no time to live. */
void server_check_ttls(const struct server *s);

enum proxy_mode {
    PROXY_PASS,
    PROXY_DELAY,    /* each read of the server's is passed on after delay_ms */
    PROXY_DRIP,     /* one byte every delay_ms */
    PROXY_CUT,      /* the first byte of a reply, then the end */
    PROXY_CUT_ONE,  /* of the next reply; then PASS */
    PROXY_ANSWER,   /* text in place of what the server says */
    PROXY_DOUBLE,   /* each read of the server's is kept, and comes again before
                       the next request is passed on */
    PROXY_STAND_IN, /* the same of replies to GET and scripts only, and that
                       request is not passed on; without the set-up's replies
                       doubled, a new connection is in step */
    PROXY_DROP,     /* requests go, replies do not come */
    PROXY_SWALLOW,  /* requests do not come through */
    PROXY_SWALLOW_SUBSCRIBE /* the same, of those that name it */
};

#define PROXY_PAIRS_MAX 64

struct proxy {
    const struct server *server;
    char socket[SERVER_PATH_BYTES];
    char uri[SERVER_URI_BYTES];
    int listener;
    pthread_t thread;
    const char *text; /* set while the mode is another */
    atomic_int mode;
    atomic_uint delay_ms;
    atomic_uint every; /* DELAY: one read in so many; 0 and 1: each */
    atomic_uint accepted;
    atomic_uint requests; /* reads from clients */
    atomic_bool is_stopping;
};

/* start is listen, which makes the address, and serve, which makes a thread: a
 * test that forks has to fork between them, lest a child inherit a lock of the
 * allocator's that the thread held (AddressSanitizer's does not see to it). */
void proxy_start(struct proxy *p, const struct server *s);
void proxy_listen(struct proxy *p, const struct server *s);
void proxy_serve(struct proxy *p);
void proxy_set(struct proxy *p, enum proxy_mode mode, unsigned delay_ms,
               const char *text);
void proxy_stop(struct proxy *p);

#endif
