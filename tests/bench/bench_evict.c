/*
 * What stays when memory is full: the hit ratio of the store behind near and
 * local rows (known/local.c, SIEVE in 16 shards) beside LRU with room for as
 * many rows.
 *
 *   zipf    1,000,000 keys, of which the n-th is asked for as often as 1/n^0.99
 *   new     what is new is popular: the ranks move on to a new key with every
 *           20th request, and every fifth request is for a key that nobody
 *           asks for again, as in the caches of social media
 *   scan    zipf, and after each 200,000 requests a job reads 50,000 keys in
 *           their order, as on disks of file servers
 *
 * There is room for 1 percent of the 1,000,000 keys. Nothing is counted before
 * the caches have been full for a while.
 *
 * usage: bench_evict [REQUESTS [SEED]]
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/value.h"
#include "bench.h"
#include "known/local.h"

enum {
    KEYS = 1000000,
    VALUE_BYTES = 100,
    NEW_EVERY = 20,
    ONCE_EVERY = 5,
    SCAN_EVERY = 200000,
    SCAN_KEYS = 50000,
    NOBODY = 0
};

static size_t ids; /* of keys, from 1; NOBODY is none */

/* ---------------------------------------------------------------------- LRU */

/* A queue of ids in the order of their last use, linked by arrays. */
struct lru {
    uint32_t *before, *after;
    bool *has;
    uint32_t first, last;
    size_t count;
};

static void take_out(struct lru *c, uint32_t id)
{
    uint32_t before = c->before[id], after = c->after[id];

    *(before != NOBODY ? &c->after[before] : &c->first) = after;
    *(after != NOBODY ? &c->before[after] : &c->last) = before;
    c->has[id] = false;
    c->count--;
}

static bool get_lru(struct lru *c, size_t room, uint32_t id)
{
    bool is_hit = c->has[id];

    if (is_hit)
        take_out(c, id);
    else if (c->count == room)
        take_out(c, c->first);
    c->before[id] = c->last;
    c->after[id] = NOBODY;
    *(c->last != NOBODY ? &c->after[c->last] : &c->first) = id;
    c->last = id;
    c->has[id] = true;
    c->count++;
    return is_hit;
}

/* ---------------------------------------------------------------- the store */

static bool get_local(struct shed_local *local, uint32_t id)
{
    static const char payload[VALUE_BYTES];
    char name[32];
    int size = snprintf(name, sizeof(name), "bench:{%u}", id);
    struct shed_entry_key key = {name, (size_t)size};
    struct shed_local_row row;
    bool is_hit = shed_local_find(local, key, 0, &row);

    if (!is_hit) {
        row = (struct shed_local_row){
            .value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_REDIS,
                                       payload, sizeof(payload)),
            .ttl_ms = UINT32_MAX};
        if (row.value == NULL)
            bench_die("out of memory");
        shed_local_keep(local, key, shed_local_mark(local, key), &row, 0);
    }
    shed_value_unref(row.value);
    return is_hit;
}

static struct shed_local *create_local(size_t bytes)
{
    static const struct shed_freshness_rule rule;
    struct shed_local *local = shed_local_create(bytes, 1, &rule);

    if (local == NULL)
        bench_die("out of memory");
    return local;
}

/* Its size when it is full of rows. */
static struct shed_local_size fill(size_t bytes)
{
    struct shed_local *local = create_local(bytes);
    struct shed_local_size size;

    for (uint32_t id = 1; id < KEYS / 4; id++)
        (void)get_local(local, id);
    size = shed_local_size(local);
    shed_local_destroy(local);
    return size;
}

/* The memory in which it keeps this many rows, about. */
static size_t bytes_of(size_t rows)
{
    struct shed_local_size full = fill((size_t)16 << 20);

    return full.bytes / full.rows * rows;
}

/* ------------------------------------------------------------ the workloads */

static uint64_t random_state;

/* xorshift64*, of S. Vigna */
static double draw(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)(random_state * UINT64_C(2685821657736338717) >> 11) /
           (double)(UINT64_C(1) << 53);
}

static double part_of_rank[KEYS]; /* of the requests, this rank and above */

static void fill_ranks(void)
{
    double sum = 0;

    for (size_t i = 0; i < KEYS; i++)
        part_of_rank[i] = sum += pow((double)(i + 1), -0.99);
    for (size_t i = 0; i < KEYS; i++)
        part_of_rank[i] /= sum;
}

/* From 0; the smaller, the more often. */
static uint32_t draw_rank(void)
{
    double at = draw();
    uint32_t low = 0, high = KEYS - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part_of_rank[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t next_zipf(size_t i)
{
    (void)i;
    return 1 + draw_rank();
}

/* New keys have higher ids than old ones. Keys that nobody asks for again have
 * the highest. */
static uint32_t next_new(size_t i)
{
    uint32_t newest = (uint32_t)(KEYS + i / NEW_EVERY);

    if (i % ONCE_EVERY == 0)
        return (uint32_t)(ids - 1 - i / ONCE_EVERY);
    return newest - draw_rank();
}

static uint32_t next_scan(size_t i)
{
    size_t in = i % (SCAN_EVERY + SCAN_KEYS);

    if (in < SCAN_EVERY)
        return 1 + draw_rank();
    return (uint32_t)(1 + (i / (SCAN_EVERY + SCAN_KEYS) * SCAN_KEYS + in -
                           SCAN_EVERY) %
                              KEYS);
}

/* -------------------------------------------------------------- the measure */

static void print(const char *name, double of_lru, double of_local,
                  double counted)
{
    double ratio = of_local / of_lru;
    const struct bench_figure figure = {
        "", strcmp(name, "zipf") == 0 ? 1.05 : 0, true, true};

    (void)printf("%-5s %8.3f %8.3f %14.3f\n", name, of_lru / counted,
                 of_local / counted,
                 bench_note(&ratio, 1, figure, "hit ratio / LRU, %s", name));
    (void)fflush(stdout);
}

static void measure(const char *name, uint32_t (*next)(size_t i),
                    size_t requests, size_t bytes, size_t room)
{
    struct shed_local *local = create_local(bytes);
    struct lru lru = {.before = bench_allocate(ids, sizeof(uint32_t)),
                      .after = bench_allocate(ids, sizeof(uint32_t)),
                      .has = bench_allocate(ids, sizeof(bool))};
    double of_local = 0, of_lru = 0;
    double counted = (double)(requests - requests / 2);

    for (size_t i = 0; i < requests; i++) {
        uint32_t id = next(i);
        bool is_counted = i >= requests / 2;
        of_local += get_local(local, id) && is_counted;
        of_lru += get_lru(&lru, room, id) && is_counted;
    }
    print(name, of_lru, of_local, counted);
    shed_local_destroy(local);
    free(lru.before);
    free(lru.after);
    free(lru.has);
}

int main(int argc, char **argv)
{
    size_t requests = bench_number(argc, argv, 1, 10000000, UINT32_MAX / 2);
    size_t bytes, room;

    random_state = bench_number(argc, argv, 2, 1, SIZE_MAX);
    ids = KEYS + requests / NEW_EVERY + requests / ONCE_EVERY + 2;
    fill_ranks();
    bytes = bytes_of(KEYS / 100);
    room = fill(bytes).rows;
    (void)printf("hit ratio of the second half of %zu requests, with room for "
                 "%zu of %d keys\n"
                 "%-5s %8s %8s %14s\n",
                 requests, room, KEYS, "", "LRU", "snowshed", "snowshed / LRU");
    measure("zipf", next_zipf, requests, bytes, room);
    measure("new", next_new, requests, bytes, room);
    measure("scan", next_scan, requests, bytes, room);
    return EXIT_SUCCESS;
}
