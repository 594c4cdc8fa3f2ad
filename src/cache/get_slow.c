/*
 * The steps of a get that is a miss: it joins a flight, and takes the answer.
 * No step waits; async_get.c takes them after events.
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

static void fail(struct shed_caller *caller, const struct shed_error *why)
{
    free(caller->why);
    caller->code = why->code;
    caller->why = shed_error_keep(why);
}

void shed_get_fail(struct shed_key_get *g, const struct shed_error *why)
{
    g->code = why->code;
    fail(&g->caller, why);
}

void shed_get_take_look(struct shed_key_get *g, const struct shed_error *why)
{
    if (why != NULL && shed_look_without_redis(g->cache, &g->key, &g->terms,
                                               why, &g->look) != SHED_OK)
        shed_get_fail(g, why);
    g->value = shed_look_take(&g->look, SHED_LOOK_ANSWERS);
}

static struct shed_error timed_out(unsigned char awaited)
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

/* What GET has found, as far as a flight needs to know. If there was none, the
 * row that a flight has brought is over, or a flight is that was to be joined.
 */
static struct shed_seen seen(const struct shed_look *look)
{
    struct shed_seen s = {.aged = NULL};

    if (look->found == SHED_FOUND_AGED)
        s = (struct shed_seen){.aged = look->aged,
                               .is_revoked = look->is_revoked};
    else if (look->found == SHED_FOUND_LEASE)
        s.first = SHED_FIRST_GET;
    else if (look->found == SHED_FOUND_NOTHING)
        s.first = SHED_FIRST_SET;
    else if (look->found == SHED_FOUND_UNKNOWN)
        s.first = SHED_FIRST_BOTH;
    return s;
}

/* Where the source's breaker refuses loads, a flight is only of use to a call
 * that has to wait for the load of another, whose breaker may be closed. If
 * there is a row to fall back on, or Redis has not even a lease, the call ends
 * here: a lease would be taken only to be given back. */
static enum shed_code ask_breaker(const struct shed_key_get *g,
                                  struct shed_error *err)
{
    struct shed_cache *cache = g->cache;
    const struct shed_look *look = &g->look;
    enum shed_code code;

    if (!shed_look_has(look, SHED_LOOK_OLD) &&
        (look->found != SHED_FOUND_NOTHING ||
         shed_flights_has(cache->flights, &g->key)))
        return SHED_OK;
    code = shed_source_ask_breaker(cache->source, err);
    if (code != SHED_OK)
        shed_count(&cache->counters.loads_refused, 1);
    return code;
}

void shed_slow_join(struct shed_key_get *g)
{
    struct shed_caller *caller = &g->caller;
    struct shed_error why;
    enum shed_code code;

    g->is_flying = true;
    code = ask_breaker(g, &why);
    if (code == SHED_OK)
        code = shed_flights_join(g->cache->flights, &g->key, seen(&g->look),
                                 caller, &why);
    if (code == SHED_OK)
        return; /* from here on the flight writes to the caller */
    fail(caller, &why);
    caller->on_answer(caller);
}

/* The reason for an event: the caller falls back on its old value. */
static void ran_late(struct shed_caller *caller)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_ETIMEDOUT,
                    "the load takes longer than soft_timeout_ms, and goes on");
    fail(caller, &why);
}

bool shed_slow_may_have_old(const struct shed_key_get *g)
{
    return g->is_miss && !g->look.is_known && g->look.value == NULL &&
           g->terms.looks_first &&
           (shed_get_is_open(g) || g->code == SHED_ESOURCE ||
            g->code == SHED_EBUSY) &&
           !shed_delivery_find(g->cache->delivery, g->key.redis, NULL);
}

struct shed_terms shed_slow_second_terms(const struct shed_terms *terms)
{
    struct shed_terms second = *terms;

    second.only_cached = true; /* begin nothing */
    second.is_second = true;
    second.takes_local = false;
    return second;
}

void shed_slow_leave_old(struct shed_key_get *g, uint64_t begun_ms)
{
    struct shed_caller *caller = &g->caller;

    if (!g->is_flying || !shed_look_has(&g->look, SHED_LOOK_OLD) ||
        caller->load_began_ms > begun_ms ||
        !shed_flights_leave(caller, SHED_LEAVE_GOES_ON))
        return;
    ran_late(caller);
    caller->on_answer(caller);
}

void shed_slow_leave(struct shed_key_get *g)
{
    struct shed_caller *caller = &g->caller;
    struct shed_error why;

    if (!g->is_flying || !shed_flights_leave(caller, SHED_LEAVE_GIVES_UP))
        return;
    why = timed_out(caller->awaited);
    fail(caller, &why);
    caller->on_answer(caller);
}

/* What flights have found in Redis is judged by the log of tags. A call that
 * joined a flight at once may not have read it. */
bool shed_slow_needs_log(const struct shed_key_get *g)
{
    return g->is_flying && is_of_redis(g->caller.value) &&
           !shed_tag_log_is_known(g->cache->tag_log);
}

void shed_slow_take_answer(struct shed_key_get *g, const struct shed_error *why)
{
    struct shed_caller *caller = &g->caller;

    if (!g->is_flying)
        return;
    g->is_flying = false;
    if (why != NULL && is_of_redis(caller->value)) {
        shed_value_unref(caller->value);
        caller->value = NULL;
        fail(caller, why);
    }
    if (caller->value != NULL &&
        !shed_look_is_young(g->cache, &g->key, &g->terms, &g->look,
                            caller->value)) {
        shed_value_unref(caller->value);
        caller->value = NULL;
        return;
    }
    g->code = caller->code;
    g->value = caller->value;
}

static void do_without_load(struct shed_key_get *g)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_EMISS,
                    "Redis has no value that the call may be given, and with "
                    "only_cached it does not load");
    shed_get_fail(g, &why);
}

void shed_slow_begin(struct shed_key_get *g)
{
    if (!shed_get_is_open(g))
        return;
    g->is_miss = true;
    shed_count(&g->cache->counters.misses, 1);
    shed_count(&g->cache->counters.tag_misses, g->look.is_revoked);
    if (g->terms.only_cached)
        do_without_load(g);
}

void shed_slow_end(struct shed_key_get *g)
{
    if (!g->is_miss)
        return;
    shed_count(&g->cache->counters.misses_ended, 1);
    g->code = shed_look_fall_back(g->cache, &g->key, &g->look, g->code,
                                  shed_error_kept(g->caller.why), &g->value);
}
