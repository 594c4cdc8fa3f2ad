/* The shared memory of a showing. Only atomics: a process that is killed
 * between any two instructions leaves nothing locked. */
#include "showing.h"

#include <time.h>

#define LOOK_MS 1 /* between two looks at another process's data */

struct showing *showing_create(uint64_t buyers)
{
    uint64_t size = sizeof(struct showing) + buyers * sizeof(struct visit);
    struct showing *h = (struct showing *)(void *)shared_bytes(size);

    h->buyers = buyers;
    h->size = size;
    record_reset(&h->record);
    return h;
}

void showing_destroy(struct showing *h)
{
    shared_bytes_free((unsigned char *)h, h->size);
}

struct showing *showing_of(struct record *record)
{
    return (struct showing *)(void *)record;
}

void showing_sleep_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};

    while (nanosleep(&t, &t) != 0)
        ;
}

bool showing_claim(struct showing *h, uint64_t first, uint64_t count,
                   uint64_t *index)
{
    for (uint64_t i = first; i < first + count; i++) {
        int outside = STEP_OUTSIDE;
        *index = i;
        if (atomic_compare_exchange_strong(&h->visit[i].step, &outside,
                                           STEP_DOOR))
            return true;
    }
    return false;
}

void showing_arrive(struct showing *h, struct visit *v, enum step step,
                    uint64_t stay_ms)
{
    unsigned stop = AT(step);

    atomic_store(&v->step, (int)step);
    showing_sleep_ms(stay_ms);
    while ((v->plan.stops & stop) != 0 &&
           (atomic_load(&v->passes) & stop) == 0 &&
           !atomic_load(&h->record.is_over))
        showing_sleep_ms(LOOK_MS);
}

void showing_tell(struct visit *v, enum answer answer)
{
    atomic_store(&v->told_us, demo_now_us());
    atomic_store(&v->answer, (int)answer);
    atomic_store(&v->step, STEP_EXIT);
}

void showing_let_pass(struct visit *v, unsigned steps)
{
    atomic_fetch_or(&v->passes, steps);
}

bool showing_await(const struct showing *h, const struct visit *v,
                   enum step step, uint64_t patience_ms)
{
    uint64_t deadline_us = demo_now_us() + patience_ms * 1000;

    while (atomic_load(&v->step) < (int)step) {
        if (atomic_load(&h->record.errors) > 0 || demo_now_us() > deadline_us)
            return false;
        showing_sleep_ms(LOOK_MS);
    }
    return true;
}

uint64_t showing_count_at(const struct showing *h, enum step step)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < h->buyers; i++)
        count += atomic_load(&h->visit[i].step) == (int)step;
    return count;
}

uint64_t showing_count(const struct showing *h, enum answer answer)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < h->buyers; i++)
        count += atomic_load(&h->visit[i].step) != STEP_OUTSIDE &&
                 atomic_load(&h->visit[i].answer) == (int)answer;
    return count;
}
