/* What a source learns from its loads: how many it may run at a time, and
 * whether the breaker lets any begin. */
#include "source/load_source.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "source/load_batch.h"

void shed_job_fail(struct shed_job *job, enum shed_code code, const char *why,
                   bool is_refused)
{
    struct shed_loaded loaded = {.failed_keys = 1, .is_refused = is_refused};

    (void)shed_fail(&loaded.error, code, "%s", why);
    job->settle(job, &loaded);
}

enum shed_code shed_source_fail_open(const struct shed_source *s,
                                     struct shed_error *err)
{
    uint64_t left_ms = shed_left_ms(s->breaker.until_ms, shed_now_ms());

    if (s->breaker.state == SHED_BREAKER_OPEN)
        return shed_fail(err, SHED_ESOURCE,
                         "the source's breaker is open, and tries again in "
                         "%llu ms; the last failure: %s",
                         (unsigned long long)left_ms, s->last_failure);
    return shed_fail(err, SHED_ESOURCE,
                     "the source's breaker is half-open and lets only a few "
                     "keys through; the last failure: %s",
                     s->last_failure);
}

enum shed_code shed_source_ask_breaker(struct shed_source *s,
                                       struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (s->options.breaker_failure_pct == 0)
        return SHED_OK;
    pthread_mutex_lock(&s->mu);
    if (!shed_breaker_has_pass(&s->breaker, shed_now_ms()))
        code = shed_source_fail_open(s, err);
    pthread_mutex_unlock(&s->mu);
    return code;
}

void shed_source_watch(struct shed_source *s,
                       struct shed_source_watcher *watcher)
{
    pthread_mutex_lock(&s->mu);
    watcher->next = s->watchers;
    s->watchers = watcher;
    pthread_mutex_unlock(&s->mu);
}

void shed_source_unwatch(struct shed_source *s,
                         struct shed_source_watcher *watcher)
{
    struct shed_source_watcher **at = &s->watchers;

    pthread_mutex_lock(&s->mu);
    while (*at != watcher)
        at = &(*at)->next;
    *at = watcher->next;
    pthread_mutex_unlock(&s->mu);
}

static void tell_locked(struct shed_source *s, uint64_t after_ms)
{
    bool is_open = s->breaker.state == SHED_BREAKER_OPEN;
    struct shed_error text = {SHED_OK, ""};

    if (is_open)
        (void)shed_source_fail_open(s, &text);
    for (struct shed_source_watcher *w = s->watchers; w != NULL; w = w->next)
        w->on_breaker(w, is_open, after_ms,
                      is_open ? text.reason : "the source's breaker closed");
}

/* What the breaker learns from a load. A load that was too slow has failed,
 * whatever it answers. Returns: the jobs that it refuses, by next. */
static struct shed_job *judge_locked(struct shed_source *s,
                                     const struct shed_load *load, uint64_t id,
                                     bool has_failed, uint64_t cost_us)
{
    uint64_t now_ms = shed_now_ms(), changed_ms = s->breaker.changed_ms;
    bool is_late = cost_us / 1000 > s->options.load_timeout_ms;
    const struct shed_breaker_sample sample = {.term = load->term,
                                               .passes = load->count,
                                               .id = id,
                                               .has_failed =
                                                   has_failed || is_late};

    if (!shed_breaker_add(&s->breaker, &sample, now_ms, shed_random_jitter()))
        return NULL;
    (void)snprintf(s->last_failure, sizeof(s->last_failure), "%s",
                   has_failed ? load->answers[0].error.reason
                              : "it took longer than its load_timeout_ms");
    tell_locked(s, now_ms - changed_ms);
    return s->breaker.state == SHED_BREAKER_OPEN
               ? shed_load_queue_take_all(&s->queue)
               : NULL;
}

static void learn_locked(struct shed_source *s, const struct shed_load *load,
                         bool has_failed, uint64_t now_us)
{
    const struct shed_concurrency_sample sample = {
        .latency_us = now_us - load->start_us,
        .keys = load->count,
        .alive = load->alive,
        .is_lone = load->alive == 1 && load->number == s->begun,
        .has_failed = has_failed};

    if (s->options.adaptive_loads != 0)
        shed_concurrency_add(&s->concurrency, &sample, now_us, shed_wall_ms());
}

void shed_source_learn(struct shed_source *s, const struct shed_load *load,
                       uint64_t id, bool has_failed, uint64_t now_us)
{
    struct shed_error why = {SHED_ESOURCE, ""};
    struct shed_job *refused, *next;

    pthread_mutex_lock(&s->mu);
    learn_locked(s, load, has_failed, now_us);
    refused = judge_locked(s, load, id, has_failed, now_us - load->start_us);
    if (refused != NULL)
        (void)shed_source_fail_open(s, &why);
    pthread_mutex_unlock(&s->mu);
    for (; refused != NULL; refused = next) {
        next = refused->next;
        shed_job_fail(refused, SHED_ESOURCE, why.reason, true);
    }
}
