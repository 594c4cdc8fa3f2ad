/*
 * Whether a load may begin. Its invariants: at most max_loads loads are under
 * way, from begin to end; none begins while as many are as the adaptive limit
 * allows, nor without a slot of the fleet's budget, if there is one and Redis
 * answers; no key is let in while the breaker is open.
 */
#include "source/admission.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

void shed_admission_init(struct shed_admission *a,
                         const struct shed_source_options *options,
                         struct shed_fleet *fleet)
{
    *a = (struct shed_admission){.options = options, .fleet = fleet};
    shed_concurrency_init(&a->concurrency, (size_t)options->max_loads);
    shed_breaker_init(&a->breaker, &options->breaker, 0, shed_now_ms());
}

size_t shed_admission_limit(const struct shed_admission *a)
{
    return a->options->adaptive_loads != 0
               ? shed_concurrency_limit(&a->concurrency)
               : (size_t)a->options->max_loads;
}

/* ------------------------------------------------------------ keys: a pass */

/* Say why no key is let in. */
static enum shed_code refuse(const struct shed_admission *a, uint64_t now_ms,
                             struct shed_error *err)
{
    uint64_t left_ms = shed_left_ms(a->breaker.until_ms, now_ms);

    if (a->breaker.state == SHED_BREAKER_OPEN)
        return shed_fail(err, SHED_ESOURCE,
                         "the source's breaker is open, and tries again in "
                         "%llu ms; the last failure: %s",
                         (unsigned long long)left_ms, a->last_failure);
    return shed_fail(err, SHED_ESOURCE,
                     "the source's breaker is half-open and lets only a few "
                     "keys through; the last failure: %s",
                     a->last_failure);
}

enum shed_code shed_admission_pass(struct shed_admission *a, bool takes,
                                   struct shed_error *err)
{
    uint64_t now_ms = shed_now_ms();
    bool may_pass = takes ? shed_breaker_pass(&a->breaker, now_ms)
                          : shed_breaker_has_pass(&a->breaker, now_ms);

    return may_pass ? SHED_OK : refuse(a, now_ms, err);
}

/* -------------------------------------------------- loads: begin, and end */

void shed_admission_want(struct shed_admission *a, size_t batches)
{
    size_t limit = shed_admission_limit(a);
    size_t room = limit > a->running ? limit - a->running : 0;

    shed_fleet_want(a->fleet, batches < room ? batches : room);
}

bool shed_admission_may_begin(const struct shed_admission *a)
{
    return a->running < shed_admission_limit(a) &&
           shed_fleet_may_begin(a->fleet);
}

void shed_admission_begin(struct shed_admission *a, struct shed_admitted *out)
{
    assert(a->running < a->options->max_loads);
    *out = (struct shed_admitted){.alive = ++a->running,
                                  .number = ++a->begun,
                                  .term = a->breaker.term,
                                  .is_probe = a->breaker.state ==
                                              SHED_BREAKER_HALF_OPEN,
                                  .waited_us = shed_fleet_begin(a->fleet)};
}

/* What the adaptive limit learns. */
static void measure(struct shed_admission *a, const struct shed_admitted *load)
{
    const struct shed_concurrency_sample s = {
        .latency_us = load->cost_us,
        .keys = load->keys,
        .alive = load->alive,
        .is_lone = load->alive == 1 && load->number == a->begun,
        .has_failed = load->failure != NULL};

    if (a->options->adaptive_loads != 0)
        shed_concurrency_add(&a->concurrency, &s, shed_now_us(),
                             shed_wall_ms());
}

/* What the breaker learns. A load that took too long counts as failed, whatever
 * it answered. */
static bool judge(struct shed_admission *a, const struct shed_admitted *load,
                  uint64_t now_ms)
{
    uint64_t cost_ms = load->cost_us / 1000;
    uint64_t slow_ms = a->breaker.rule.slow_ms;
    bool is_late = cost_ms > a->options->load_timeout_ms ||
                   (slow_ms > 0 && cost_ms > slow_ms);
    const struct shed_breaker_sample s = {.term = load->term,
                                          .passes = load->keys,
                                          .id = load->id,
                                          .has_failed =
                                              load->failure != NULL || is_late};

    if (!shed_breaker_add(&a->breaker, &s, now_ms, shed_random_jitter()))
        return false;
    if (load->failure != NULL)
        (void)snprintf(a->last_failure, sizeof(a->last_failure), "%s",
                       load->failure);
    else
        (void)snprintf(a->last_failure, sizeof(a->last_failure),
                       "it took %llu ms, longer than load_timeout_ms or "
                       "breaker.slow_ms",
                       (unsigned long long)cost_ms);
    return true;
}

bool shed_admission_learn(struct shed_admission *a,
                          const struct shed_admitted *load,
                          struct shed_error *why)
{
    uint64_t now_ms = shed_now_ms();

    shed_fleet_end(a->fleet, load->cost_us);
    if (load->keys == 0)
        return false;
    measure(a, load);
    if (!judge(a, load, now_ms))
        return false;
    (void)refuse(a, now_ms, why);
    return true;
}

void shed_admission_end(struct shed_admission *a)
{
    assert(a->running > 0);
    a->running--;
}
