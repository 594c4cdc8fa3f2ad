/* The shared record: only atomics, so that a process that is killed leaves
 * nothing locked. */
#include "record.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

unsigned char *shared_bytes(size_t size)
{
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED)
        err(EXIT_FAILURE, "no shared memory");
    return bytes;
}

struct record *record_create(void)
{
    return (struct record *)(void *)shared_bytes(sizeof(struct record));
}

void record_reset(struct record *r)
{
    int64_t under_way = atomic_load(&r->under_way); /* these will end */

    memset((void *)r, 0, sizeof(*r));
    atomic_store(&r->under_way, under_way);
    r->start_us = demo_now_us();
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
    histogram_add(&slot_now(r)->latency, us);
}

void record_error(struct record *r, const char *text)
{
    atomic_fetch_add(&r->errors, 1);
    if (!atomic_flag_test_and_set(&r->has_error))
        (void)snprintf(r->first_error, sizeof(r->first_error), "%s", text);
}

void record_sleep(struct record *r, uint64_t us)
{
    uint64_t start_us = demo_now_us(), slept_us;

    demo_nap(us);
    slept_us = demo_now_us() - start_us;
    histogram_raise(&r->sleep_late_us, slept_us > us ? slept_us - us : 0);
}

void record_query_begin(struct record *r, size_t keys)
{
    int64_t under_way;

    atomic_fetch_add(&r->queries, 1);
    atomic_fetch_add(&r->queried_keys, keys);
    atomic_fetch_add(&slot_now(r)->queries, 1);
    under_way = atomic_fetch_add(&r->under_way, 1) + 1;
    histogram_raise(&r->most_under_way,
                    under_way > 0 ? (uint64_t)under_way : 0);
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
