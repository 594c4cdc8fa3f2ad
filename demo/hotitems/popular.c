/* Space-Saving. A scan of 256 counters costs less than the request around it;
 * a hash in front of it would pay off with more. */
#include "popular.h"

#include <stdlib.h>
#include <string.h>

static void halve_locked(struct popular *p, uint64_t now_ms)
{
    size_t kept = 0;

    if (now_ms - p->halved_ms < POPULAR_HALF_LIFE_MS)
        return;
    p->halved_ms = now_ms;
    for (size_t i = 0; i < p->used; i++) {
        p->key[i].count /= 2;
        p->key[i].error /= 2;
        if (p->key[i].count > 0)
            p->key[kept++] = p->key[i];
    }
    p->used = kept;
}

/* The counter of id, or the one that it takes over: the lowest, whose count it
 * inherits as the error of its own. */
static struct popular_key *find_locked(struct popular *p, uint64_t id)
{
    struct popular_key *lowest = &p->key[0];

    for (size_t i = 0; i < p->used; i++) {
        if (p->key[i].id == id)
            return &p->key[i];
        if (p->key[i].count < lowest->count)
            lowest = &p->key[i];
    }
    if (p->used < POPULAR_KEYS) {
        p->key[p->used] = (struct popular_key){.id = id};
        return &p->key[p->used++];
    }
    *lowest = (struct popular_key){id, lowest->count, lowest->count};
    return lowest;
}

void popular_count(struct popular *p, uint64_t id, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&p->mu);
    halve_locked(p, now_ms);
    find_locked(p, id)->count++;
    (void)pthread_mutex_unlock(&p->mu);
}

static int compare(const void *left, const void *right)
{
    const struct popular_key *a = left, *b = right;

    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

size_t popular_list(struct popular *p, struct popular_key *keys, size_t max,
                    uint64_t now_ms)
{
    struct popular_key sorted[POPULAR_KEYS];
    size_t count;

    (void)pthread_mutex_lock(&p->mu);
    halve_locked(p, now_ms);
    count = p->used;
    memcpy(sorted, p->key, count * sizeof(*sorted));
    (void)pthread_mutex_unlock(&p->mu);
    qsort(sorted, count, sizeof(*sorted), compare);
    if (count > max)
        count = max;
    memcpy(keys, sorted, count * sizeof(*keys));
    return count;
}
