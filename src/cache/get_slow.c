/*
 * The slow path of a get, for one key as for many: callers join flights and
 * wait at one latch. Its invariant: when it returns, no flight refers to one of
 * its callers.
 *
 * What it does is cut into steps that do not wait. Below them is the procedure
 * that waits in between; async_get.c has the other one, which is told of
 * events.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/value.h"
#include "cache/get.h"

static bool is_of_redis(const struct shed_value *value)
{
    return value != NULL && shed_value_header(value) != NULL;
}

size_t shed_slow_misses(const struct shed_gets *g)
{
    size_t misses = 0;

    for (size_t i = 0; i < g->count; i++)
        misses += shed_get_is_miss(&g->items[i]);
    return misses;
}

static void fail(struct shed_caller *caller, const struct shed_error *why)
{
    free(caller->why);
    caller->code = why->code;
    caller->why = shed_error_keep(why);
}

void shed_get_fail(struct shed_gets *g, size_t i, const struct shed_error *why)
{
    g->items[i].code = why->code;
    fail(&g->callers[i], why);
}

/* Those among them whose entry is one by its tags. */
static size_t count_tag_misses(const struct shed_gets *g)
{
    size_t misses = 0;

    for (size_t i = 0; i < g->count; i++)
        misses += shed_get_is_miss(&g->items[i]) && g->looks[i].is_revoked;
    return misses;
}

static struct shed_error timed_out(enum shed_awaited awaited)
{
    struct shed_error why;

    static const char *const waits[] = {
        [SHED_AWAITS_REDIS] = "for Redis to answer",
        [SHED_AWAITS_HOLDER] = "for a load of the key by another process",
        [SHED_AWAITS_QUEUE] =
            "in the source's queue, behind other loads (see its max_loads)",
        [SHED_AWAITS_LOAD] =
            "for a load of the key by this process, which goes on",
    };

    (void)shed_fail(&why, SHED_ETIMEDOUT,
                    "the deadline passed while the call waited %s",
                    waits[awaited]);
    return why;
}

/* The value that is too old for the call, or a miss by its tags. */
static struct shed_aged aged_value(const struct shed_look *look)
{
    if (look->found != SHED_FOUND_AGED)
        return (struct shed_aged){.identity = NULL};
    return (struct shed_aged){look->aged, look->is_revoked};
}

/* Where the source's breaker refuses loads, a flight is only of use to a call
 * that has to wait for the load of another, whose breaker may be closed. If
 * there is a row to fall back on, or Redis has not even a lease, the call ends
 * here: a lease would be taken only to be given back. */
static enum shed_code ask_breaker(struct shed_cache *cache,
                                  const struct shed_gets *g, size_t i,
                                  struct shed_error *err)
{
    const struct shed_look *look = &g->looks[i];
    enum shed_code code;

    if (look->old == NULL && (look->found != SHED_FOUND_NOTHING ||
                              shed_flights_has(cache->flights, &g->keys[i])))
        return SHED_OK;
    code = shed_source_ask_breaker(cache->source, err);
    if (code != SHED_OK)
        shed_count(&cache->counters.loads_refused, 1);
    return code;
}

/* One that cannot join has failed and is counted down. */
void shed_slow_join(struct shed_cache *cache, struct shed_gets *g,
                    struct shed_latch *latch)
{
    struct shed_post *starts = NULL;

    for (size_t i = 0; i < g->count; i++) {
        struct shed_caller *caller = &g->callers[i];
        struct shed_error why;
        enum shed_code code;
        if (!shed_get_is_miss(&g->items[i]))
            continue;
        caller->latch = latch;
        code = ask_breaker(cache, g, i, &why);
        if (code == SHED_OK)
            code = shed_flights_join(cache->flights, &g->keys[i],
                                     aged_value(&g->looks[i]), caller, &starts,
                                     &why);
        if (code == SHED_OK)
            continue; /* from here on the flight writes to the caller */
        fail(caller, &why);
        shed_latch_count_down(latch, 1);
    }
    shed_flights_start(cache->flights, starts);
}

/* The reason for an event: the caller falls back on its old value. */
static void ran_late(struct shed_caller *caller)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_ETIMEDOUT,
                    "the load takes longer than soft_timeout_ms, and goes on");
    fail(caller, &why);
}

bool shed_slow_may_have_old(const struct shed_cache *cache,
                            const struct shed_gets *g, size_t i)
{
    const struct shed_item *item = &g->items[i];

    return !g->looks[i].is_known && g->looks[i].old == NULL &&
           g->terms->looks_first &&
           (shed_get_is_miss(item) || item->code == SHED_ESOURCE ||
            item->code == SHED_EBUSY) &&
           !shed_delivery_has(cache->delivery, &g->keys[i]);
}

struct shed_terms shed_slow_second_terms(const struct shed_terms *terms)
{
    struct shed_terms second = *terms;

    second.only_cached = true; /* begin nothing */
    second.is_second = true;
    second.takes_local = false;
    return second;
}

void shed_slow_take_second(struct shed_look *look)
{
    if (look->value == NULL)
        return;
    look->old = look->value;
    look->value = NULL;
}

void shed_slow_leave_old(struct shed_cache *cache, struct shed_gets *g,
                         struct shed_latch *latch, uint64_t begun_ms)
{
    for (size_t i = 0; i < g->count; i++) {
        struct shed_caller *caller = &g->callers[i];
        if (caller->latch == NULL || g->looks[i].old == NULL ||
            caller->load_began_ms > begun_ms ||
            !shed_flights_leave(cache->flights, caller, SHED_LEAVE_GOES_ON))
            continue;
        ran_late(caller);
        shed_latch_count_down(latch, 1);
    }
}

void shed_slow_leave_all(struct shed_cache *cache, struct shed_gets *g,
                         struct shed_latch *latch)
{
    for (size_t i = 0; i < g->count; i++) {
        struct shed_caller *caller = &g->callers[i];
        struct shed_error why;
        if (caller->latch == NULL ||
            !shed_flights_leave(cache->flights, caller, SHED_LEAVE_GIVES_UP))
            continue;
        why = timed_out(caller->awaited);
        fail(caller, &why);
        shed_latch_count_down(latch, 1);
    }
}

/* What flights have found in Redis is judged by the log of tags. A call that
 * joined a flight at once may not have read it. */
bool shed_slow_needs_log(const struct shed_cache *cache,
                         const struct shed_gets *g)
{
    bool is_needed = false;

    for (size_t i = 0; i < g->count && cache->tag_log != NULL; i++)
        if (g->callers[i].latch != NULL && is_of_redis(g->callers[i].value))
            is_needed = true;
    return is_needed && !shed_tag_log_is_known(cache->tag_log);
}

/* A load that has read an older row than Redis has ends its flight with
 * SHED_ELOST. To the program the source has failed. */
static void take_failure(struct shed_look *look, struct shed_caller *caller)
{
    if (caller->code != SHED_ELOST)
        return;
    look->is_source_older = true;
    caller->code = SHED_ESOURCE;
    if (caller->why != NULL)
        caller->why->code = SHED_ESOURCE;
}

void shed_slow_take_answers(struct shed_cache *cache, struct shed_gets *g,
                            const struct shed_error *why)
{
    for (size_t i = 0; i < g->count; i++) {
        struct shed_caller *caller = &g->callers[i];
        if (caller->latch == NULL)
            continue;
        caller->latch = NULL;
        if (why != NULL && is_of_redis(caller->value)) {
            shed_value_unref(caller->value);
            caller->value = NULL;
            fail(caller, why);
        }
        if (caller->value != NULL &&
            !shed_look_is_young(cache, &g->keys[i], g->terms, &g->looks[i],
                                caller->value)) {
            shed_value_unref(caller->value);
            caller->value = NULL;
            continue;
        }
        take_failure(&g->looks[i], caller);
        g->items[i].code = caller->code;
        g->items[i].value = caller->value;
    }
}

static void do_without_load(struct shed_gets *g)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_EMISS,
                    "Redis has no value that the call may be given, and with "
                    "only_cached it does not load");
    for (size_t i = 0; i < g->count; i++)
        if (shed_get_is_miss(&g->items[i]))
            shed_get_fail(g, i, &why);
}

size_t shed_slow_begin(struct shed_cache *cache, struct shed_gets *g)
{
    size_t misses = shed_slow_misses(g);

    if (misses == 0)
        return 0;
    shed_count(&cache->counters.misses, misses);
    shed_count(&cache->counters.tag_misses, count_tag_misses(g));
    if (g->terms->only_cached)
        do_without_load(g);
    return misses;
}

void shed_slow_end(struct shed_cache *cache, struct shed_gets *g, size_t misses)
{
    shed_count(&cache->counters.misses_ended, misses);
    for (size_t i = 0; i < g->count; i++)
        g->items[i].code = shed_look_fall_back(
            cache, &g->keys[i], &g->looks[i], g->items[i].code,
            shed_error_kept(g->callers[i].why), &g->items[i].value);
}

/* -------------------------------------------------- the call that blocks */

/* GET once more what may have an old value, to fall back on; it can be a fresh
 * one by now. */
static void look_again(struct shed_cache *cache, struct shed_gets *g)
{
    const struct shed_terms terms = shed_slow_second_terms(g->terms);
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < g->count && code == SHED_OK; i++) {
        struct shed_look *look = &g->looks[i];
        struct shed_error unused;
        if (!shed_slow_may_have_old(cache, g, i))
            continue;
        code = shed_look(cache, &g->keys[i], &terms, look, &unused);
        shed_slow_take_second(look);
    }
}

static bool may_look_again(const struct shed_cache *cache,
                           const struct shed_gets *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (shed_get_is_miss(&g->items[i]) &&
            shed_slow_may_have_old(cache, g, i))
            return true;
    return false;
}

static bool has_old(const struct shed_gets *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->looks[i].old != NULL)
            return true;
    return false;
}

/* Wait until the soft timeout, for items with old values. */
static void wait_softly(struct shed_cache *cache, struct shed_gets *g,
                        struct shed_latch *latch)
{
    const struct shed_terms *terms = g->terms;

    if (may_look_again(cache, g) &&
        !shed_latch_wait(latch, terms->soft_deadline_ms))
        look_again(cache, g);
    if (!has_old(g))
        return;
    shed_slow_leave_old(cache, g, latch,
                        shed_left_ms(shed_now_ms(), terms->soft_timeout_ms));
    if (!shed_latch_wait(latch, terms->soft_deadline_ms))
        shed_slow_leave_old(cache, g, latch, UINT64_MAX);
}

static void wait_for_flights(struct shed_cache *cache, struct shed_gets *g,
                             size_t misses)
{
    const struct shed_terms *terms = g->terms;
    enum shed_code code = SHED_OK;
    struct shed_latch latch;
    struct shed_error why;

    shed_latch_init(&latch, misses);
    shed_slow_join(cache, g, &latch);
    if (terms->soft_deadline_ms < terms->deadline_ms)
        wait_softly(cache, g, &latch);
    if (!shed_latch_wait(&latch, terms->deadline_ms)) {
        shed_slow_leave_all(cache, g, &latch);
        (void)shed_latch_wait(&latch, UINT64_MAX);
    }
    if (shed_slow_needs_log(cache, g))
        code = shed_tag_log_learn(cache->tag_log, terms->deadline_ms, &why);
    shed_slow_take_answers(cache, g, code != SHED_OK ? &why : NULL);
}

/* Each round ends with answers, or at the deadline. */
static void wait_in_rounds(struct shed_cache *cache, struct shed_gets *g)
{
    size_t misses;

    while ((misses = shed_slow_misses(g)) > 0)
        wait_for_flights(cache, g, misses);
}

void shed_get_slow(struct shed_cache *cache, struct shed_gets *g)
{
    size_t misses = shed_slow_begin(cache, g);

    if (misses == 0)
        return;
    wait_in_rounds(cache, g);
    look_again(cache, g);
    shed_slow_end(cache, g, misses);
}
