/* A primary with two replicas on ports of 127.0.0.1, and three sentinels that
 * watch them. */
#ifndef WATCHED_H
#define WATCHED_H

#include "support/server.h"

#define WATCHED_SERVERS 3
#define WATCHED_SENTINELS 3
#define WATCHED_NAME "main"

struct watched {
    struct server server[WATCHED_SERVERS]; /* the first is the primary at first
                                            */
    struct server sentinel[WATCHED_SENTINELS];
    unsigned port[WATCHED_SERVERS], sentinel_port[WATCHED_SENTINELS];
    /* set before the start; NULL: none */
    unsigned down_ms; /* how long the primary is away before it is replaced; 0:
                         a short time */
    const char *sentinel_password;
    bool
        has_proxy; /* in front of the first server, by whose port all know it */
    const char *certificates; /* a directory of certificates_make: all of them
                                 speak TLS, also with each other */
    struct proxy proxy;
    char uri[256];
};

/* Start all, and wait until each sentinel knows everybody. */
void watched_start(struct watched *w);
void watched_stop(struct watched *w);

/* Wait until at least two sentinels name a server other than not, which answers
 * as a primary. Returns: which; not WATCHED_SERVERS: any will do. */
size_t watched_primary(const struct watched *w, size_t not );

/* Let the sentinels make another server the primary. Returns: which. */
size_t watched_fail_over(const struct watched *w, size_t from);

#endif
