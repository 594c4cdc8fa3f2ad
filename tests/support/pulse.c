/* See pulse.h. */
#include "support/pulse.h"

#include <unistd.h>

#include "support/testing.h"

void pulse_note(struct pulse *p, uint64_t ms)
{
    uint64_t longest_ms = atomic_load(&p->longest_ms);

    while (ms > longest_ms &&
           !atomic_compare_exchange_weak(&p->longest_ms, &longest_ms, ms))
        ;
}

static void *beat(void *arg)
{
    enum { NAP_US = 1000 };
    struct pulse *p = arg;

    while (!atomic_load(&p->is_over)) {
        uint64_t now_ms;

        usleep(NAP_US);
        now_ms = shed_now_ms();
        pulse_note(p, now_ms - atomic_exchange(&p->last_ms, now_ms));
    }
    return NULL;
}

void pulse_start(struct pulse *p)
{
    atomic_store(&p->is_over, false);
    atomic_store(&p->last_ms, shed_now_ms());
    pulse_reset(p);
    start_thread(&p->thread, beat, p);
}

void pulse_stop(struct pulse *p)
{
    atomic_store(&p->is_over, true);
    ck_assert_int_eq(pthread_join(p->thread, NULL), 0);
}

void pulse_reset(struct pulse *p)
{
    atomic_store(&p->longest_ms, 0);
}

uint64_t pulse_longest_ms(struct pulse *p)
{
    uint64_t last_ms = atomic_load(&p->last_ms), now_ms = shed_now_ms();

    /* the thread may not have run since the machine was stopped */
    if (now_ms > last_ms)
        pulse_note(p, now_ms - last_ms);
    return atomic_load(&p->longest_ms);
}
