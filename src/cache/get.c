/*
 * The get of one key that blocks, and the terms of all gets. Its invariants:
 * nothing is sent for a call whose arguments are wrong; a hit costs one GET at
 * most, in the caller's thread, or over the loop, where others share it.
 */
#include "cache/get.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/value.h"
#include "cache/await.h"

/* ------------------------------------------------------------------- terms */

SHED_CHECK_OPTIONS(shed_get_options);

static enum shed_code check_options(const struct shed_get_options *o,
                                    struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->soft_timeout_ms, 0, SHED_TIMEOUT_MAX_MS, "get soft_timeout_ms"},
        {o->max_age_ms, 0, SHED_TTL_MAX_MS, "get max_age_ms"},
        {o->only_cached, 0, 1, "get only_cached"},
        {o->allow_stale, SHED_STALE_DEFAULT, SHED_STALE_ALLOWED,
         "get allow_stale"},
    };

    return shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);
}

enum shed_code shed_get_take_options(const struct shed_cache *cache,
                                     const struct shed_get_options *options,
                                     bool is_async, struct shed_terms *out,
                                     struct shed_error **errors,
                                     struct shed_error *err)
{
    struct shed_get_options o = SHED_GET_OPTIONS_INIT;
    bool takes_local;
    enum shed_code code = shed_options_take(&o, sizeof(o), options,
                                            "struct shed_get_options", err);

    if (code == SHED_OK)
        code = shed_cache_check_call(cache, o.timeout_ms, is_async, err);
    if (code == SHED_OK && options != NULL)
        code = check_options(&o, err);
    if (code != SHED_OK)
        return code;
    if (errors != NULL)
        *errors = o.errors;
    takes_local =
        shed_cache_takes_local(cache) && o.allow_stale != SHED_STALE_NEVER;
    *out = (struct shed_terms){
        .max_age_ms = o.max_age_ms,
        .allow_stale = (unsigned char)o.allow_stale,
        .has_own_rule = o.max_age_ms > 0 || o.allow_stale != SHED_STALE_DEFAULT,
        .takes_local = takes_local,
        .only_cached = o.only_cached != 0,
        .timeout_ms = (uint32_t)(o.timeout_ms > 0 ? o.timeout_ms
                                                  : cache->options.timeout_ms),
        .soft_timeout_ms =
            (uint32_t)(o.soft_timeout_ms > 0 ? o.soft_timeout_ms
                                             : cache->options.soft_timeout_ms)};
    /* the call may need an old value to fall back on; or what a flight under
       way will answer may be ruled out, or not needed */
    out->looks_first = shed_terms_rule(out, cache).if_error_ms > 0 ||
                       takes_local || o.max_age_ms > 0 || o.only_cached != 0 ||
                       o.allow_stale == SHED_STALE_ALLOWED;
    return SHED_OK;
}

/* --------------------------------------------------------------- the get */

bool shed_get_looks_first(const struct shed_cache *cache,
                          const struct shed_terms *terms,
                          const struct shed_key *key)
{
    if (!shed_tag_log_is_known(cache->tag_log))
        return true;
    return terms->looks_first ||
           (!shed_flights_has(cache->flights, key) &&
            !shed_flights_is_over(cache->flights, key, terms->start_us / 1000));
}

void shed_get_count(const struct shed_key_get *g)
{
    struct shed_counters *c = &g->cache->counters;
    uint64_t us = shed_now_us() - g->terms.start_us;

    if (!g->is_miss && g->code == SHED_OK)
        shed_histogram_add(&c->hit_us, us);
    else if (g->is_miss && !g->terms.only_cached)
        shed_histogram_add(&c->miss_us, us);
    shed_count_code(c, g->code);
}

void shed_get_end_reading(struct shed_key_get *g)
{
    if (g->is_reader)
        atomic_fetch_sub_explicit(&g->cache->readers, 1, memory_order_relaxed);
    g->is_reader = false;
}

/* While there are no more callers than links, each sends a GET of its own: a
 * shared one costs its callers a wake-up, and the wait for the GET before it.
 * Where callers are more, threads outnumber connections, and what counts is how
 * little is done for each call. A GET that is to make its row near goes over
 * the loop in any case. Counts it among the readers. */
static bool reads_alone(struct shed_key_get *g)
{
    struct shed_cache *cache = g->cache;
    size_t before =
        atomic_fetch_add_explicit(&cache->readers, 1, memory_order_relaxed);

    g->is_reader = true;
    return !shed_cache_takes_near(cache) &&
           (before < cache->client->links_limit ||
            !shed_terms_may_share(&g->terms)) &&
           shed_tag_log_is_known(cache->tag_log);
}

/* By a GET in this thread. Returns: whether that was enough. */
static bool get_here(struct shed_key_get *g, struct shed_error *why)
{
    if (!shed_get_looks_first(g->cache, &g->terms, &g->key) || !reads_alone(g))
        return false;
    g->code = shed_look(g->cache, &g->key, &g->terms, &g->look, why);
    shed_get_end_reading(g);
    g->is_looked = true;
    g->value = shed_look_take(&g->look, SHED_LOOK_ANSWERS);
    if (shed_get_is_open(g) && g->terms.only_cached && !g->look.must_learn) {
        shed_slow_begin(g);
        (void)shed_fail(why, g->code, "%s", shed_error_kept(g->caller.why));
        shed_slow_end(g);
        free(g->caller.why);
    }
    return !shed_get_is_open(g);
}

static enum shed_code await(struct shed_key_get *g, struct shed_error *why)
{
    struct shed_await *await = shed_await_create(1);
    struct shed_pending *p = NULL;
    struct shed_key_get *mine;

    if (await != NULL)
        p = shed_async_get_create(g->cache, &g->key, &g->terms, NULL);
    if (p == NULL) {
        free(await);
        shed_get_end_reading(g);
        return shed_fail_nomem(why, "a get");
    }
    mine = shed_async_get_of(p);
    shed_look_share(g->cache, &g->key, &g->look, &mine->look);
    mine->is_looked = g->is_looked;
    mine->is_reader = g->is_reader;
    mine->caller.is_counted = true;
    return shed_await_one(
        await, p, shed_terms_deadline_ms(&g->terms) + SHED_AWAIT_READ_LATE_MS,
        &g->value, why);
}

/* As a call that this thread waits for, which goes on from there. */
static enum shed_code get_there(struct shed_key_get *g, struct shed_error *why)
{
    enum shed_code code = await(g, why);

    if (code != SHED_OK) /* perhaps the thread has left it */
        return shed_look_fall_back(g->cache, &g->key, &g->look, code,
                                   why->reason, &g->value);
    shed_value_unref(g->look.value);
    return SHED_OK;
}

/* Get a key that has no row near by its cache's rule, or a call with options.
 */
static enum shed_code get(struct shed_cache *cache, struct shed_bytes key,
                          const struct shed_get_options *options,
                          struct shed_value **out, struct shed_error *err)
{
    struct shed_named_key named;
    struct shed_terms terms;
    struct shed_key_get g;
    struct shed_error why;
    enum shed_code code =
        shed_get_take_options(cache, options, false, &terms, NULL, err);

    if (code != SHED_OK)
        return code;
    if (options != NULL)
        *out = shed_look_near(cache, key, &terms);
    if (*out != NULL)
        return SHED_OK;
    terms.start_us = shed_now_us();
    shed_key_name(cache->name, key, &named);
    g = (struct shed_key_get){.cache = cache, .key = named.key, .terms = terms};
    if (get_here(&g, &why))
        shed_get_count(&g);
    else
        g.code = get_there(&g, &why);
    *out = g.value;
    if (g.code != SHED_OK && err != NULL)
        *err = why;
    return g.code;
}

enum shed_code shed_get(struct shed_cache *cache, struct shed_bytes key,
                        const struct shed_get_options *options,
                        struct shed_value **out, struct shed_error *err)
{
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_get: out is NULL");
    *out = NULL;
    code =
        shed_cache_check_key_call(cache, key, SHED_TIMEOUT_DEFAULT, false, err);
    if (code != SHED_OK)
        return code;
    if (options == NULL) /* to read the defaults takes longer than this */
        *out = shed_look_near_by(cache, key, &cache->rule, false);
    return *out != NULL ? SHED_OK : get(cache, key, options, out, err);
}
