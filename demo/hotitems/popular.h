/*
 * The most wanted keys of late, in little memory: the Space-Saving sketch
 * (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k
 * Elements in Data Streams", 2005), whose counts are halved every
 * POPULAR_HALF_LIFE_MS so that what was hot yesterday makes room.
 */
#ifndef HOTITEMS_POPULAR_H
#define HOTITEMS_POPULAR_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define POPULAR_KEYS 256 /* keys that are counted at a time */
#define POPULAR_HALF_LIFE_MS 10000

struct popular_key {
    uint64_t id;
    uint64_t count; /* at most error more than it was wanted */
    uint64_t error;
};

struct popular { /* {.mu = PTHREAD_MUTEX_INITIALIZER} at first */
    pthread_mutex_t mu;
    /* under mu */
    size_t used;
    uint64_t halved_ms;
    struct popular_key key[POPULAR_KEYS];
};

/* Any thread. */
void popular_count(struct popular *p, uint64_t id, uint64_t now_ms);

/* Copy the first of them, most wanted first. Returns how many, max at most. */
size_t popular_list(struct popular *p, struct popular_key *keys, size_t max,
                    uint64_t now_ms);

#endif
