/*
 * What stays when memory is full: the hit ratio of the store behind near and
 * local rows (known/local.c, SIEVE in 16 shards) beside LRU and S3-FIFO with
 * room for as many rows. S3-FIFO is that of J. Yang, Y. Zhang, Z. Qiu, Y. Yue,
 * K. V. Rashmi, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.
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

/* --------------------------------------------------------------- the queues */

/* A queue of ids in the order in which they came, linked by arrays that all
 * queues of a cache share: an id is in one of them at most. */
struct links {
    uint32_t *before, *after;
};

struct queue {
    uint32_t first, last;
    size_t count;
};

static struct links create_links(void)
{
    return (struct links){bench_allocate(ids, sizeof(uint32_t)),
                          bench_allocate(ids, sizeof(uint32_t))};
}

static void destroy_links(struct links *l)
{
    free(l->before);
    free(l->after);
}

static void append(struct links *l, struct queue *q, uint32_t id)
{
    l->before[id] = q->last;
    l->after[id] = NOBODY;
    *(q->last != NOBODY ? &l->after[q->last] : &q->first) = id;
    q->last = id;
    q->count++;
}

static void take_out(struct links *l, struct queue *q, uint32_t id)
{
    uint32_t before = l->before[id], after = l->after[id];

    *(before != NOBODY ? &l->after[before] : &q->first) = after;
    *(after != NOBODY ? &l->before[after] : &q->last) = before;
    q->count--;
}

/* Take the oldest out. */
static uint32_t shift(struct links *l, struct queue *q)
{
    uint32_t id = q->first;

    take_out(l, q, id);
    return id;
}

/* ---------------------------------------------------------------------- LRU */

struct lru {
    struct links links;
    struct queue queue;
    bool *has;
};

static bool get_lru(struct lru *c, size_t room, uint32_t id)
{
    bool is_hit = c->has[id];

    if (is_hit)
        take_out(&c->links, &c->queue, id);
    else if (c->queue.count == room)
        c->has[shift(&c->links, &c->queue)] = false;
    append(&c->links, &c->queue, id);
    c->has[id] = true;
    return is_hit;
}

/* ------------------------------------------------------------------ S3-FIFO */

enum place { AWAY, SMALL, MAIN, GHOST };
enum { USES_MAX = 3, SMALL_PART = 10 };

struct s3 {
    struct links links;
    struct queue queue[GHOST + 1];
    unsigned char *place, *uses;
};

static void put_s3(struct s3 *c, enum place place, uint32_t id)
{
    append(&c->links, &c->queue[place], id);
    c->place[id] = (unsigned char)place;
}

/* Of the main queue; what was used goes round again. */
static void evict_main(struct s3 *c)
{
    for (;;) {
        uint32_t id = shift(&c->links, &c->queue[MAIN]);
        c->place[id] = AWAY;
        if (c->uses[id] == 0)
            return;
        c->uses[id]--;
        put_s3(c, MAIN, id);
    }
}

/* Of the small queue; what was used more than once goes to the main one. */
static void evict_small(struct s3 *c, size_t room)
{
    uint32_t id = shift(&c->links, &c->queue[SMALL]);

    if (c->uses[id] > 1) {
        c->uses[id] = 0;
        put_s3(c, MAIN, id);
        return;
    }
    put_s3(c, GHOST, id);
    if (c->queue[GHOST].count > room - room / SMALL_PART)
        c->place[shift(&c->links, &c->queue[GHOST])] = AWAY;
}

static bool get_s3(struct s3 *c, size_t room, uint32_t id)
{
    bool was_ghost;

    if (c->place[id] == SMALL || c->place[id] == MAIN) {
        if (c->uses[id] < USES_MAX)
            c->uses[id]++;
        return true;
    }
    while (c->queue[SMALL].count + c->queue[MAIN].count >= room)
        if (c->queue[SMALL].count >= room / SMALL_PART)
            evict_small(c, room);
        else
            evict_main(c);
    was_ghost = c->place[id] == GHOST;
    if (was_ghost)
        take_out(&c->links, &c->queue[GHOST], id);
    c->uses[id] = 0;
    put_s3(c, was_ghost ? MAIN : SMALL, id);
    return false;
}

/* ---------------------------------------------------------------- the store */

static bool get_local(struct shed_local *local, uint32_t id)
{
    static const char payload[VALUE_BYTES];
    char name[32];
    int size = snprintf(name, sizeof(name), "bench:{%u}", id);
    struct shed_bytes key = {name, (size_t)size};
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
    static struct shed_counters counters;
    struct shed_local *local = shed_local_create(bytes, 1, &rule, &counters);

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

static void print(const char *name, double of_lru, double of_s3,
                  double of_local, double counted)
{
    double ratio = of_local / of_lru;
    const struct bench_figure figure = {
        "", strcmp(name, "zipf") == 0 ? 1.05 : 0, true, true};

    (void)printf("%-5s %8.3f %8.3f %8.3f %13.3f %14.3f\n", name,
                 of_lru / counted, of_s3 / counted, of_local / counted,
                 of_s3 / of_lru,
                 bench_note(&ratio, 1, figure, "hit ratio / LRU, %s", name));
    (void)fflush(stdout);
}

static void measure(const char *name, uint32_t (*next)(size_t i),
                    size_t requests, size_t bytes, size_t room)
{
    struct shed_local *local = create_local(bytes);
    struct lru lru = {.links = create_links(),
                      .has = bench_allocate(ids, sizeof(bool))};
    struct s3 s3 = {.links = create_links(),
                    .place = bench_allocate(ids, 1),
                    .uses = bench_allocate(ids, 1)};
    double of_local = 0, of_lru = 0, of_s3 = 0;
    double counted = (double)(requests - requests / 2);

    for (size_t i = 0; i < requests; i++) {
        uint32_t id = next(i);
        bool is_counted = i >= requests / 2;
        of_local += get_local(local, id) && is_counted;
        of_lru += get_lru(&lru, room, id) && is_counted;
        of_s3 += get_s3(&s3, room, id) && is_counted;
    }
    print(name, of_lru, of_s3, of_local, counted);
    shed_local_destroy(local);
    destroy_links(&lru.links);
    destroy_links(&s3.links);
    free(lru.has);
    free(s3.place);
    free(s3.uses);
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
                 "%-5s %8s %8s %8s %13s %14s\n",
                 requests, room, KEYS, "", "LRU", "S3-FIFO", "snowshed",
                 "S3-FIFO / LRU", "snowshed / LRU");
    measure("zipf", next_zipf, requests, bytes, room);
    measure("new", next_new, requests, bytes, room);
    measure("scan", next_scan, requests, bytes, room);
    return EXIT_SUCCESS;
}
