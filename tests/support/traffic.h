/* Threads that read and change rows while something happens to Redis, and check
 * each row that they are given. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "support/fixture.h"

enum {
    TRAFFIC_KEYS = 120,
    TRAFFIC_READERS = 2,
    TRAFFIC_TIMEOUT_MS = 3000,
    TRAFFIC_LOADS = 2 /* max_loads, less than there are readers */
};

struct traffic {
    bool is_async; /* by calls that do not block; half of their writes are puts
                      and half of their reads of two keys */
    /* two clients: the first changes rows and reads, the second reads */
    struct peer peer[2];
    struct shed_source *source;
    pthread_t writer, reader[2][TRAFFIC_READERS];
    atomic_bool is_stopping;
    /* of the rows: committed; and changed by a write that was confirmed, which
     * all must see, or that has ended, which its process must see */
    atomic_uint version[TRAFFIC_KEYS];
    atomic_uint confirmed[TRAFFIC_KEYS], ended[TRAFFIC_KEYS];
    /* counted */
    atomic_uint loads, reads, writes;
    atomic_uint running, most_running; /* loads at a time */
    atomic_uint old;                   /* rows older than that */
    atomic_uint wrong;   /* rows of another key, or never written */
    atomic_uint late;    /* calls that ended after their deadline */
    atomic_uint failed;  /* reads */
    atomic_uint refused; /* writes that were not confirmed */
    char last[320];      /* why one of these was counted */
};

/* Open two clients with the fixture's URI and options, and start the threads.
 */
void traffic_start(struct traffic *t, struct fixture *f, bool is_async);

/* Wait until each thread has done much more. */
void traffic_go_on(struct traffic *t);

/* End the threads. */
void traffic_stop(struct traffic *t);

/* How many rows that a client reads now are older than confirmed; after
 * traffic_stop. */
unsigned traffic_count_old(struct traffic *t);

void traffic_close(struct traffic *t);

/* No row was wrong, no call late, no read failed, no load beyond TRAFFIC_LOADS
 * at a time, and, where all writes are kept, no row old. */
void traffic_check(struct traffic *t, bool are_writes_kept);

/* Whether hits come from a server: a key of it is stored there and read. */
bool gives_hits(struct shed_cache *cache, const struct server *server,
                const char *key);

/* A server has just become a primary: wait until a process has hits there, and
 * not at the former primary, which may still answer as one; 1 s at most. */
void expect_hits_soon(struct shed_cache *cache, const struct server *server,
                      const char *key);

#endif
