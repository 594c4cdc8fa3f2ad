/* The connection that was given back last is taken first. */
#include "pool.h"

#include <assert.h>

#include "wait.h"

void pool_init(struct pool *p, size_t most, void (*close)(void *connection))
{
    assert(most <= POOL_MAX);
    p->most = most;
    p->close = close;
    p->open = p->idle_count = 0;
    wait_init(&p->mu, &p->given_back);
}

void pool_fini(struct pool *p)
{
    pool_close_idle(p);
    assert(p->open == 0);
    (void)pthread_cond_destroy(&p->given_back);
    (void)pthread_mutex_destroy(&p->mu);
}

bool pool_take(struct pool *p, uint64_t deadline_ms, void **out)
{
    bool is_in_time = true, has_place;

    *out = NULL;
    (void)pthread_mutex_lock(&p->mu);
    while (p->idle_count == 0 && p->open == p->most && is_in_time)
        is_in_time = wait_until(&p->given_back, &p->mu, deadline_ms);
    has_place = p->idle_count > 0 || p->open < p->most;
    if (p->idle_count > 0)
        *out = p->idle[--p->idle_count];
    else if (has_place)
        p->open++;
    (void)pthread_mutex_unlock(&p->mu);
    return has_place;
}

void pool_give_back(struct pool *p, void *connection)
{
    (void)pthread_mutex_lock(&p->mu);
    if (connection != NULL)
        p->idle[p->idle_count++] = connection;
    else
        p->open--;
    (void)pthread_cond_signal(&p->given_back);
    (void)pthread_mutex_unlock(&p->mu);
}

void pool_close_idle(struct pool *p)
{
    (void)pthread_mutex_lock(&p->mu);
    while (p->idle_count > 0) {
        p->close(p->idle[--p->idle_count]);
        p->open--;
    }
    (void)pthread_cond_broadcast(&p->given_back);
    (void)pthread_mutex_unlock(&p->mu);
}
