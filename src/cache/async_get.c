/*
 * A get that does not block. What it does is what get.c and get_slow.c do; here
 * the steps follow events instead of waits. Its invariant: a get ends when no
 * GET and no flight refers to it.
 *
 * A call keeps what it cannot do without, because 100,000 of them may be under
 * way. What the steps want beside that is made on the stack for each (struct
 * view).
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/value.h"
#include "cache/pending.h"
#include "cache/get.h"

#define US_PER_MS 1000

enum phase {
    NEW,
    LEARNING,  /* the log of tags is read before its GETs are sent */
    LOOKING,   /* its GET is under way */
    FLYING,    /* its flight, and perhaps the GET of the soft timeout */
    ANSWERED,  /* that has answered; or the log is read to judge the answer */
    LAST_LOOK, /* the GET after a load that failed */
    OVER
};

struct get {
    struct shed_pending pending; /* first */
    struct shed_latch latch;     /* of the flight */
    uint64_t start_us;
    uint32_t timeout_ms, soft_timeout_ms;
    bool is_miss; /* see shed_slow_begin */
    bool is_part; /* of a get of many keys, which counts it */
    unsigned char phase;
    bool is_softly; /* FLYING: until the soft timeout */
    bool has_rule;  /* of its own, before the key */
    bool is_learning;
    bool must_learn;
    bool only_cached, looks_first, takes_local;
    unsigned short key_size, redis_size;
    struct shed_look look;
    struct shed_caller caller;
    struct shed_asker asker;
    _Alignas(struct shed_freshness_rule) char bytes[];
};

/* What the steps want. */
struct view {
    struct shed_cache *cache;
    struct shed_gets gets;
    struct shed_terms terms;
    struct shed_item item;
    struct shed_key key;
};

static struct get *get_of(struct shed_pending *pending)
{
    return shed_container_of(pending, struct get, pending);
}

static struct get *owner_of(struct shed_asker *asker)
{
    return shed_container_of(asker, struct get, asker);
}

static void open_view(struct get *g, struct view *v)
{
    struct shed_cache *cache = shed_async_cache(g->pending.async);
    const char *name = g->bytes;

    v->cache = cache;
    v->terms = (struct shed_terms){.rule = &cache->rule,
                                   .only_cached = g->only_cached,
                                   .looks_first = g->looks_first,
                                   .takes_local = g->takes_local,
                                   .timeout_ms = g->timeout_ms,
                                   .soft_timeout_ms = g->soft_timeout_ms};
    if (g->has_rule) {
        v->terms.rule = (const struct shed_freshness_rule *)(void *)g->bytes;
        name += sizeof(struct shed_freshness_rule);
    }
    shed_get_begin(&v->terms, g->start_us / US_PER_MS);
    v->key = (struct shed_key){.redis = name,
                               .redis_size = g->redis_size,
                               .at = (size_t)g->redis_size - g->key_size - 1,
                               .size = g->key_size};
    v->item =
        (struct shed_item){.value = g->pending.value, .code = g->pending.code};
    v->gets = (struct shed_gets){&v->item,   &v->key, &g->look,
                                 &g->caller, 1,       &v->terms};
}

/* After a step. */
static void close_view(struct get *g, const struct view *v)
{
    g->pending.value = v->item.value;
    g->pending.code = v->item.code;
    if (g->phase == OVER)
        shed_async_end(&g->pending);
}

/* ------------------------------------------------------------------- ends */

static void drop_look(struct shed_look *look)
{
    shed_value_unref(look->value);
    shed_value_unref(look->old);
    shed_value_unref(look->aged_value);
    *look = (struct shed_look){.value = NULL};
}

static void count_end(struct get *g, const struct view *v)
{
    struct shed_counters *c = &v->cache->counters;
    uint64_t us = shed_now_us() - g->start_us;

    if (!g->is_miss && v->item.code == SHED_OK)
        shed_histogram_add(&c->hit_us, us);
    else if (g->is_miss && !g->only_cached)
        shed_histogram_add(&c->miss_us, us);
    shed_count_code(c, v->item.code);
}

static void finish(struct get *g, struct view *v)
{
    if (g->is_miss)
        shed_slow_end(v->cache, &v->gets, 1);
    g->phase = OVER;
    if (!g->is_part)
        count_end(g, v);
    g->pending.why = g->caller.why;
}

/* Nobody wants what it brings. code and why are set. */
static void stop(struct get *g, struct view *v)
{
    if (g->is_learning)
        shed_async_unlearn(&g->pending);
    g->is_learning = false;
    shed_async_leave(&g->asker);
    if (g->phase == FLYING) {
        shed_slow_leave_all(v->cache, &v->gets, &g->latch);
        return; /* it is answered in a moment */
    }
    shed_count(&v->cache->counters.misses_ended, g->is_miss);
    drop_look(&g->look);
    shed_value_unref(g->caller.latch != NULL ? g->caller.value : NULL);
    free(g->caller.why);
    shed_value_unref(v->item.value);
    v->item.value = NULL;
    v->item.code = g->pending.code;
    g->phase = OVER;
}

/* ------------------------------------------------------------------- reads */

static void learn(struct get *g, const struct view *v, enum phase phase)
{
    g->phase = (unsigned char)phase;
    g->is_learning = true;
    shed_async_learn(&g->pending);
    shed_async_set_due(&g->pending, v->terms.deadline_ms);
}

/* Ask Redis for the key. Returns: false: there is nothing to wait for. */
static bool ask(struct get *g, struct view *v, bool is_second)
{
    struct shed_error why;
    bool may_share;

    shed_look_begin(v->cache, &v->key, &g->look);
    if (g->look.is_missed && !shed_cache_takes_local(v->cache))
        return false; /* whatever GET would find is of no use */
    may_share =
        !is_second && shed_look_may_share(v->cache, &v->terms, &g->look);
    if (shed_async_ask(g->pending.async, &g->asker, &v->key, may_share))
        return true;
    (void)shed_fail(&why, SHED_ENOMEM, "out of memory for a read");
    if (!is_second)
        shed_get_fail(&v->gets, 0, &why);
    return false;
}

/* GET once more, if there may be an old value. Returns: whether to wait. */
static bool look_again(struct get *g, struct view *v)
{
    return shed_slow_may_have_old(v->cache, &v->gets, 0) && ask(g, v, true);
}

/* -------------------------------------------------------------- the flight */

static void on_answered(struct shed_latch *latch)
{
    struct get *g = shed_container_of(latch, struct get, latch);

    shed_async_wake(&g->pending, SHED_ASYNC_ANSWERED);
}

static void fly(struct get *g, struct view *v)
{
    const struct shed_terms *terms = &v->terms;
    bool may_look = shed_slow_may_have_old(v->cache, &v->gets, 0);

    shed_latch_init(&g->latch, 1);
    g->latch.on_zero = on_answered;
    g->phase = FLYING;
    g->is_softly = terms->soft_deadline_ms < terms->deadline_ms;
    shed_slow_join(v->cache, &v->gets, &g->latch);
    if (g->is_softly && !may_look)
        shed_slow_leave_old(v->cache, &v->gets, &g->latch,
                            shed_left_ms(shed_now_ms(), g->soft_timeout_ms));
    shed_async_set_due(&g->pending, g->is_softly ? terms->soft_deadline_ms
                                                 : terms->deadline_ms);
}

/* At the soft timeout. */
static void leave_softly(struct get *g, struct view *v)
{
    g->is_softly = false;
    shed_async_set_due(&g->pending, v->terms.deadline_ms);
    if (!look_again(g, v))
        shed_slow_leave_old(v->cache, &v->gets, &g->latch, UINT64_MAX);
}

static void look_last(struct get *g, struct view *v)
{
    g->phase = LAST_LOOK;
    if (look_again(g, v))
        shed_async_set_due(&g->pending, v->terms.deadline_ms);
    else
        finish(g, v);
}

static void take_answers(struct get *g, struct view *v,
                         const struct shed_error *why)
{
    shed_slow_take_answers(v->cache, &v->gets, why);
    if (shed_slow_misses(&v->gets) > 0)
        fly(g, v);
    else
        look_last(g, v);
}

static void answered(struct get *g, struct view *v)
{
    shed_async_leave(&g->asker);
    if (shed_slow_needs_log(v->cache, &v->gets))
        learn(g, v, ANSWERED);
    else
        take_answers(g, v, NULL);
}

/* -------------------------------------------------------------- first look */

static void looked(struct get *g, struct view *v)
{
    if (g->must_learn) {
        learn(g, v, LEARNING);
        return;
    }
    g->is_miss = shed_slow_begin(v->cache, &v->gets) > 0;
    if (!g->is_miss)
        finish(g, v);
    else if (shed_slow_misses(&v->gets) > 0)
        fly(g, v);
    else
        look_last(g, v);
}

static void look(struct get *g, struct view *v)
{
    g->phase = LOOKING;
    g->must_learn = false;
    if (shed_get_looks_first(v->cache, &v->terms, &v->key) && ask(g, v, false))
        shed_async_set_due(&g->pending,
                           shed_look_until_ms(v->cache, &v->key, &v->terms));
    else
        looked(g, v);
}

static void start(struct get *g, struct view *v)
{
    v->item.value =
        shed_look_near(v->cache, &v->key, v->terms.rule, v->terms.only_cached);
    if (v->item.value != NULL)
        g->phase = OVER;
    else if (v->cache->tag_log != NULL &&
             !shed_tag_log_is_known(v->cache->tag_log))
        learn(g, v, LEARNING);
    else
        look(g, v);
}

static void take_look(struct get *g, struct view *v)
{
    v->item.value = g->look.value;
    g->look.value = NULL;
}

/* The GET has failed, or was not sent. */
static void do_without(struct get *g, struct view *v,
                       const struct shed_error *why)
{
    enum shed_code code =
        shed_look_without_redis(v->cache, &v->key, &v->terms, why, &g->look);

    if (code != SHED_OK)
        shed_get_fail(&v->gets, 0, why);
    take_look(g, v);
}

/* At the end of the time for a GET, or because the log could not be read. */
static void give_up_looking(struct get *g, struct view *v,
                            const struct shed_error *why)
{
    shed_async_leave(&g->asker);
    do_without(g, v, why);
    g->must_learn = false;
    looked(g, v);
}

void shed_async_get_judge(struct shed_asker *asker,
                          const struct shed_call_result *result,
                          struct shed_read *out)
{
    struct get *g = owner_of(asker);
    struct view v;
    struct shed_terms terms;

    open_view(g, &v);
    terms = g->phase == LOOKING ? v.terms : shed_slow_second_terms(&v.terms);
    out->look = g->look;
    if (result->reply == NULL) {
        out->code = result->why->code;
        out->error = *result->why;
        return;
    }
    *result->is_taken = true;
    out->code = shed_look_at(v.cache, &v.key, &terms, result->reply, NULL,
                             &out->look, &out->error);
}

static void take(struct get *g, struct view *v, const struct shed_read *read)
{
    if (g->phase != LOOKING) {
        shed_slow_take_second(&g->look);
        if (g->phase == FLYING)
            shed_slow_leave_old(v->cache, &v->gets, &g->latch, UINT64_MAX);
        else
            finish(g, v);
        return;
    }
    g->must_learn = g->look.must_learn;
    if (read->code != SHED_OK)
        do_without(g, v, &read->error);
    else
        take_look(g, v);
    looked(g, v);
}

void shed_async_get_take(struct shed_asker *asker, const struct shed_read *read,
                         bool is_shared)
{
    struct get *g = owner_of(asker);
    struct view v;

    open_view(g, &v);
    if (is_shared)
        shed_look_share(v.cache, &v.key, &read->look, &g->look);
    else
        g->look = read->look;
    take(g, &v, read);
    close_view(g, &v);
}

/* ------------------------------------------------------------------ events */

static void learnt(struct get *g, struct view *v, const struct shed_error *why)
{
    g->is_learning = false;
    if (g->phase == ANSWERED)
        take_answers(g, v, why);
    else if (why != NULL)
        give_up_looking(g, v, why);
    else
        look(g, v);
}

/* Its time is over, or the soft part of it. */
static void expire(struct get *g, struct view *v)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_ETIMEDOUT,
                    "the deadline passed while the call waited for Redis to "
                    "answer");
    if (g->is_learning) {
        shed_async_unlearn(&g->pending);
        learnt(g, v, &why);
    } else if (g->phase == LOOKING) {
        give_up_looking(g, v, &why);
    } else if (g->phase == LAST_LOOK) {
        shed_async_leave(&g->asker);
        finish(g, v);
    } else if (g->is_softly) {
        leave_softly(g, v);
    } else {
        shed_async_leave(&g->asker);
        shed_slow_leave_all(v->cache, &v->gets, &g->latch);
    }
}

static void step(struct shed_pending *pending, unsigned events)
{
    struct get *g = get_of(pending);
    struct view v;

    open_view(g, &v);
    if (events & SHED_ASYNC_ANSWERED)
        g->phase = ANSWERED;
    if (g->pending.is_stopped)
        stop(g, &v);
    else if (events & SHED_ASYNC_START)
        start(g, &v);
    else if (events & SHED_ASYNC_ANSWERED)
        answered(g, &v);
    else if (events & SHED_ASYNC_LEARNT)
        learnt(g, &v, shed_async_learnt(g->pending.async));
    else if (events & SHED_ASYNC_DUE)
        expire(g, &v);
    close_view(g, &v);
}

/* ------------------------------------------------------------------ begin */

struct shed_pending *shed_async_get_create(const struct shed_cache *cache,
                                           const struct shed_key *key,
                                           const struct shed_terms *terms,
                                           bool is_part)
{
    bool has_rule = terms->rule != &cache->rule;
    size_t before = has_rule ? sizeof(*terms->rule) : 0;
    struct get *g = malloc(sizeof(*g) + before + key->redis_size);

    if (g == NULL)
        return NULL;
    memset(g, 0, sizeof(*g));
    g->pending.step = step;
    g->pending.weight = !is_part; /* the get of many has its own */
    g->is_part = is_part;
    g->start_us = shed_now_us();
    g->timeout_ms = (uint32_t)terms->timeout_ms;
    g->soft_timeout_ms = (uint32_t)terms->soft_timeout_ms;
    g->only_cached = terms->only_cached;
    g->looks_first = terms->looks_first;
    g->takes_local = terms->takes_local;
    g->has_rule = has_rule;
    g->redis_size = (unsigned short)key->redis_size;
    g->key_size = (unsigned short)key->size;
    if (has_rule)
        memcpy(g->bytes, terms->rule, before);
    memcpy(g->bytes + before, key->redis, key->redis_size);
    return &g->pending;
}

enum shed_code shed_get_async(struct shed_cache *cache, struct shed_bytes key,
                              const struct shed_get_options *options,
                              const struct shed_then *then,
                              struct shed_value **near,
                              struct shed_pending **pending,
                              struct shed_error *err)
{
    struct shed_freshness_rule rule;
    struct shed_terms terms;
    struct shed_named_key named;
    struct shed_pending *p;
    enum shed_code code = shed_async_check(then, err);

    if (near != NULL)
        *near = NULL;
    if (pending != NULL)
        *pending = NULL;
    if (code == SHED_OK)
        code = shed_get_take_options(cache, options, true, &rule, &terms, err);
    if (code == SHED_OK)
        code = shed_cache_check_key(key, "key", err);
    if (code != SHED_OK)
        return code;
    shed_key_name(cache->name, key, &named);
    if (near != NULL)
        *near =
            shed_look_near(cache, &named.key, terms.rule, terms.only_cached);
    if (near != NULL && *near != NULL)
        return SHED_OK;
    p = shed_async_get_create(cache, &named.key, &terms, false);
    if (p == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    code = shed_async_submit(cache->async, p, then, pending, err);
    if (code != SHED_OK)
        free(p);
    return code;
}
