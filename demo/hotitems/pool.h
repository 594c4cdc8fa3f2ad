/* A bounded pool of connections, of whatever kind. */
#ifndef HOTITEMS_POOL_H
#define HOTITEMS_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_MAX 1000

struct pool {
    size_t most; /* connections at a time, set by init */
    void (*close)(void *connection);
    pthread_mutex_t mu;
    pthread_cond_t given_back;
    /* under mu */
    size_t open, idle_count;
    void *idle[POOL_MAX];
};

void pool_init(struct pool *p, size_t most, void (*close)(void *connection));
void pool_fini(struct pool *p); /* all have been given back */

/* Take an idle connection, or the right to open one (NULL). Returns false at
 * the deadline. */
bool pool_take(struct pool *p, uint64_t deadline_ms, void **out);

/* NULL gives back the right to one that has been closed. */
void pool_give_back(struct pool *p, void *connection);

void pool_close_idle(struct pool *p);

#endif
