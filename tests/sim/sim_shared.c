/* Compiled for each of the simulations with its own struct sim, which
 * SIM_HEADER declares. */
#define _GNU_SOURCE /* program_invocation_name */
#include SIM_HEADER

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"
#include "support/testing.h"

/* ----------------------------------------------------------------- chance */

uint64_t sim_draw(struct sim *s, uint64_t below)
{
    uint64_t z = random_next(&s->random);

    return below > 0 ? z % below : z;
}

bool sim_chance(struct sim *s, unsigned pct)
{
    return pct > 0 && sim_draw(s, 100) < pct;
}

uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high)
{
    return low + sim_draw(s, high - low + 1);
}

/* ----------------------------------------------------------------- events */

void sim_plan(struct sim *s, uint64_t delay_ms, struct sim_event event)
{
    if (s->event_count == SIM_EVENTS)
        sim_fail(s, "more events than fit");
    event.at_ms = s->now_ms + delay_ms;
    event.order = ++s->event_order;
    s->event[s->event_count++] = event;
}

struct sim_event sim_take_next(struct sim *s)
{
    struct sim_event next;
    size_t best = 0;

    for (size_t i = 1; i < s->event_count; i++)
        if (s->event[i].at_ms < s->event[best].at_ms ||
            (s->event[i].at_ms == s->event[best].at_ms &&
             s->event[i].order < s->event[best].order))
            best = i;
    next = s->event[best];
    s->event[best] = s->event[--s->event_count];
    return next;
}

/* -------------------------------------------------------------- schedules */

void sim_run_mode(const struct sim_mode *mode, uint64_t runs)
{
    static struct sim sim;
    const char *only = getenv("SHED_SIM_MODE");
    uint64_t first = number_in("SHED_SIM_SEED", 1);

    if (only != NULL && strcmp(only, mode->name) != 0)
        return;
    runs = number_in("SHED_SIM_RUNS", runs);
    if (getenv("SHED_SIM_SEED") != NULL)
        runs = 1;
    for (uint64_t seed = first; seed < first + runs; seed++)
        sim_run(&sim, mode, seed);
}

void sim_fail(const struct sim *sim, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ck_abort_msg("%s, at %llu ms. Again: SHED_SIM_MODE=%s SHED_SIM_SEED=%llu "
                 "SHED_SIM_TRACE=1 %s",
                 text, (unsigned long long)sim->now_ms, sim->mode->name,
                 (unsigned long long)sim->seed, program_invocation_name);
    abort();
}
