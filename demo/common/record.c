/* The shared record: atomics alone, so that a process that is killed in the
 * middle leaves nothing locked. */
#include "record.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

unsigned char *shared_bytes(size_t size)
{
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED)
        err(EXIT_FAILURE, "no shared memory");
    return bytes;
}

void shared_bytes_free(unsigned char *bytes, size_t size)
{
    (void)munmap(bytes, size);
}

struct record *record_create(void)
{
    return (struct record *)(void *)shared_bytes(sizeof(struct record));
}

void record_reset(struct record *r)
{
    memset((void *)r, 0, sizeof(*r));
    r->start_us = demo_now_us();
}

void record_destroy(struct record *r)
{
    shared_bytes_free((unsigned char *)r, sizeof(*r));
}

uint64_t demo_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void raise_to(_Atomic uint64_t *at, uint64_t value)
{
    uint64_t seen = atomic_load(at);

    while (seen < value && !atomic_compare_exchange_weak(at, &seen, value))
        ;
}

static size_t bucket_of(uint64_t us)
{
    unsigned power = 0;
    size_t bucket;

    while (us >> power >= 32)
        power++;
    /* below 32 us a bucket is a microsecond */
    bucket = power == 0 ? (size_t)us : power * 16 + (size_t)(us >> power);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The lowest time that is counted there. */
static uint64_t bucket_us(size_t bucket)
{
    if (bucket < 32)
        return bucket;
    return (uint64_t)(16 + bucket % 16) << (bucket / 16 - 1);
}

void histogram_add(struct histogram *h, uint64_t us)
{
    atomic_fetch_add(&h->bucket[bucket_of(us)], 1);
    atomic_fetch_add(&h->count, 1);
    raise_to(&h->max_us, us);
}

double histogram_ms(const struct histogram *h, double part)
{
    uint64_t count = atomic_load(&h->count), seen = 0;
    uint64_t wanted = (uint64_t)((double)count * part);
    uint64_t max_us = atomic_load(&h->max_us), us = max_us;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS && seen <= wanted; i++) {
        seen += atomic_load(&h->bucket[i]);
        if (seen > wanted)
            us = bucket_us(i + 1) - 1;
    }
    return (double)(us < max_us ? us : max_us) / 1000;
}

static struct slot *slot_now(struct record *r)
{
    uint64_t i = (demo_now_us() - r->start_us) / (SLOT_MS * 1000);

    return &r->slot[i < SLOTS ? i : SLOTS - 1];
}

void record_call(struct record *r, uint64_t start_us)
{
    uint64_t us = demo_now_us() - start_us;

    atomic_fetch_add(&r->calls, 1);
    histogram_add(&r->latency, us);
    raise_to(&slot_now(r)->worst_us, us);
}

void record_error(struct record *r, const char *text)
{
    atomic_fetch_add(&r->errors, 1);
    if (!atomic_flag_test_and_set(&r->has_error))
        (void)snprintf(r->first_error, sizeof(r->first_error), "%s", text);
}

void record_query_begin(struct record *r, size_t keys)
{
    int64_t under_way;

    atomic_fetch_add(&r->queries, 1);
    atomic_fetch_add(&r->queried_keys, keys);
    atomic_fetch_add(&slot_now(r)->queries, 1);
    under_way = atomic_fetch_add(&r->under_way, 1) + 1;
    raise_to(&r->most_under_way, under_way > 0 ? (uint64_t)under_way : 0);
    atomic_store(&r->last_load_start_us, demo_now_us());
    atomic_store(&r->loading_pid, (int32_t)getpid());
    atomic_fetch_add(&r->load_starts, 1);
}

void record_query_end(struct record *r)
{
    int32_t mine = (int32_t)getpid();

    atomic_fetch_sub(&r->under_way, 1);
    atomic_compare_exchange_strong(&r->loading_pid, &mine, 0);
    atomic_store(&r->last_load_end_us, demo_now_us());
}
