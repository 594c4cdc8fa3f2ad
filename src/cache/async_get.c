/*
 * Gets that do not block. What they do is what get.c and get_slow.c do; here
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
#include "cache/async.h"
#include "cache/get.h"

#define US_PER_MS 1000

enum phase {
    NEW,
    LEARNING,  /* the log of tags is read before its GETs are sent */
    LOOKING,   /* its GETs are under way */
    FLYING,    /* its flights, and perhaps the GETs of the soft timeout */
    ANSWERED,  /* they have answered; or the log is read to judge that */
    LAST_LOOK, /* the GETs after a load that failed */
    OVER
};

/* Of a get of many keys; arrays of its count. */
struct many {
    struct get *get;
    struct shed_item *items;   /* the program's */
    struct shed_error *errors; /* the same, or NULL */
    struct shed_key *keys;
    struct shed_look *looks;
    struct shed_caller *callers;
    size_t count;
    struct shed_asker askers[]; /* their indices count from 1 */
};

struct get {
    struct shed_pending pending; /* first */
    struct many *many;           /* NULL: it has one key */
    struct shed_latch latch;     /* of the flights */
    uint64_t start_us;
    uint32_t timeout_ms, soft_timeout_ms;
    uint32_t reads;  /* under way */
    uint32_t misses; /* see shed_slow_begin */
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
    if (asker->index == 0)
        return shed_container_of(asker, struct get, asker);
    return shed_container_of(asker - (asker->index - 1), struct many, askers[0])
        ->get;
}

/* Which of its keys it asks for. */
static size_t index_of(const struct shed_asker *asker)
{
    return asker->index > 0 ? asker->index - 1 : 0;
}

static struct shed_asker *asker_at(struct get *g, size_t i)
{
    return g->many != NULL ? &g->many->askers[i] : &g->asker;
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
    if (g->many != NULL) {
        const struct many *m = g->many;
        v->terms.errors = m->errors;
        v->gets = (struct shed_gets){m->items,   m->keys,  m->looks,
                                     m->callers, m->count, &v->terms};
        return;
    }
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

static void leave_reads(struct get *g, const struct view *v)
{
    for (size_t i = 0; i < v->gets.count; i++)
        shed_async_leave(asker_at(g, i));
    g->reads = 0;
}

static void count_end(struct get *g, const struct view *v)
{
    struct shed_counters *c = &v->cache->counters;
    uint64_t us = shed_now_us() - g->start_us;

    if (g->misses == 0 && v->item.code == SHED_OK)
        shed_histogram_add(&c->hit_us, us);
    else if (g->misses > 0 && !g->only_cached)
        shed_histogram_add(&c->miss_us, us);
    shed_count_code(c, v->item.code);
}

static void destroy_many(struct many *m)
{
    for (size_t i = 0; m->callers != NULL && i < m->count; i++)
        free(m->callers[i].why);
    free(m->keys);
    free(m->looks);
    free(m->callers);
    free(m);
}

static void finish_many(struct get *g, struct view *v)
{
    struct shed_error why;

    v->item.code = shed_get_conclude(v->cache, &v->gets, &why);
    if (v->item.code != SHED_OK)
        g->pending.why = shed_error_keep(&why);
    destroy_many(g->many);
}

static void finish(struct get *g, struct view *v)
{
    if (g->misses > 0)
        shed_slow_end(v->cache, &v->gets, g->misses);
    g->phase = OVER;
    if (g->many != NULL) {
        finish_many(g, v);
        return;
    }
    count_end(g, v);
    g->pending.why = g->caller.why;
}

/* Nobody wants what it brings. code and why are set. */
static void stop(struct get *g, struct view *v)
{
    if (g->is_learning)
        shed_async_unlearn(&g->pending);
    g->is_learning = false;
    leave_reads(g, v);
    if (g->phase == FLYING) {
        shed_slow_leave_all(v->cache, &v->gets, &g->latch);
        return; /* it is answered in a moment */
    }
    shed_count(&v->cache->counters.misses_ended, g->misses);
    for (size_t i = 0; i < v->gets.count; i++) {
        struct shed_item *item = &v->gets.items[i];
        const struct shed_caller *caller = &v->gets.callers[i];
        drop_look(&v->gets.looks[i]);
        shed_value_unref(caller->latch != NULL ? caller->value : NULL);
        shed_value_unref(item->value);
        item->value = NULL;
        item->code = g->pending.code;
    }
    if (g->many != NULL)
        destroy_many(g->many);
    else
        free(g->caller.why);
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

/* Ask Redis for item i. Returns: false: there is nothing to wait for. */
static bool ask(struct get *g, struct view *v, size_t i, bool is_second)
{
    const struct shed_key *key = &v->gets.keys[i];
    struct shed_look *look = &v->gets.looks[i];
    struct shed_error why;
    bool may_share;

    shed_look_begin(v->cache, key, look);
    if (look->is_missed && !shed_cache_takes_local(v->cache))
        return false; /* whatever GET would find is of no use */
    may_share = !is_second && shed_look_may_share(v->cache, &v->terms, look);
    if (!shed_async_ask(g->pending.async, asker_at(g, i), key, may_share)) {
        (void)shed_fail(&why, SHED_ENOMEM, "out of memory for a read");
        if (!is_second)
            shed_get_fail(&v->gets, i, &why);
        return false;
    }
    g->reads++;
    return true;
}

/* GET once more what may have an old value. Returns: whether to wait. */
static bool look_again(struct get *g, struct view *v, bool is_soft)
{
    for (size_t i = 0; i < v->gets.count; i++) {
        const struct shed_item *item = &v->gets.items[i];
        if ((shed_get_is_miss(item) || !is_soft) &&
            shed_slow_may_have_old(v->cache, &v->gets, i))
            (void)ask(g, v, i, true);
    }
    return g->reads > 0;
}

/* ------------------------------------------------------------- the flights */

static void on_answered(struct shed_latch *latch)
{
    struct get *g = shed_container_of(latch, struct get, latch);

    shed_async_wake(&g->pending, SHED_ASYNC_ANSWERED);
}

static void fly(struct get *g, struct view *v)
{
    const struct shed_terms *terms = &v->terms;
    bool may_look = false;

    for (size_t i = 0; i < v->gets.count; i++)
        may_look |= shed_slow_may_have_old(v->cache, &v->gets, i);
    shed_latch_init(&g->latch, shed_slow_misses(&v->gets));
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
    if (!look_again(g, v, true))
        shed_slow_leave_old(v->cache, &v->gets, &g->latch, UINT64_MAX);
}

static void look_last(struct get *g, struct view *v)
{
    g->phase = LAST_LOOK;
    if (look_again(g, v, false))
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
    leave_reads(g, v);
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
    g->misses = (uint32_t)shed_slow_begin(v->cache, &v->gets);
    if (g->misses == 0)
        finish(g, v);
    else if (shed_slow_misses(&v->gets) > 0)
        fly(g, v);
    else
        look_last(g, v);
}

/* Until when to wait for the GETs. */
static void set_look_due(struct get *g, struct view *v)
{
    uint64_t until_ms = 0;

    for (size_t i = 0; i < v->gets.count; i++) {
        uint64_t one_ms =
            shed_look_until_ms(v->cache, &v->gets.keys[i], &v->terms);
        until_ms = one_ms > until_ms ? one_ms : until_ms;
    }
    shed_async_set_due(&g->pending, until_ms);
}

static void look(struct get *g, struct view *v)
{
    bool is_again = g->must_learn;

    g->phase = LOOKING;
    g->must_learn = false;
    for (size_t i = 0; i < v->gets.count; i++)
        if (shed_get_is_miss(&v->gets.items[i]) &&
            (!is_again || v->gets.looks[i].must_learn) &&
            (g->many != NULL ||
             shed_get_looks_first(v->cache, &v->terms, &v->gets.keys[i])))
            (void)ask(g, v, i, false);
    if (g->reads > 0)
        set_look_due(g, v);
    else
        looked(g, v);
}

static void start(struct get *g, struct view *v)
{
    for (size_t i = 0; i < v->gets.count; i++)
        v->gets.items[i].value = shed_look_near(
            v->cache, &v->gets.keys[i], v->terms.rule, v->terms.only_cached);
    if (v->item.value != NULL)
        g->phase = OVER;
    else if (v->cache->tag_log != NULL &&
             !shed_tag_log_is_known(v->cache->tag_log))
        learn(g, v, LEARNING);
    else
        look(g, v);
}

/* The GET of item i has failed, or was not sent. */
static void do_without(struct view *v, size_t i, const struct shed_error *why)
{
    struct shed_look *look = &v->gets.looks[i];
    enum shed_code code = shed_look_without_redis(v->cache, &v->gets.keys[i],
                                                  &v->terms, why, look);

    if (code != SHED_OK)
        shed_get_fail(&v->gets, i, why);
    v->gets.items[i].value = look->value;
    look->value = NULL;
}

static void take_first(struct get *g, struct view *v, size_t i,
                       const struct shed_read *read)
{
    struct shed_look *look = &v->gets.looks[i];

    g->must_learn |= look->must_learn;
    if (read->code != SHED_OK) {
        do_without(v, i, &read->error);
        return;
    }
    v->gets.items[i].value = look->value;
    look->value = NULL;
}

/* At the end of the time for GETs, or because the log could not be read. */
static void give_up_looking(struct get *g, struct view *v,
                            const struct shed_error *why)
{
    for (size_t i = 0; i < v->gets.count; i++) {
        struct shed_asker *asker = asker_at(g, i);
        if (!shed_get_is_miss(&v->gets.items[i]) ||
            (g->phase == LOOKING && asker->read == NULL))
            continue;
        shed_async_leave(asker);
        do_without(v, i, why);
    }
    g->reads = 0;
    g->must_learn = false;
    looked(g, v);
}

void shed_async_get_judge(struct shed_asker *asker,
                          const struct shed_call_result *result,
                          struct shed_read *out)
{
    struct get *g = owner_of(asker);
    size_t i = index_of(asker);
    struct view v;
    struct shed_terms terms;

    open_view(g, &v);
    terms = g->phase == LOOKING ? v.terms : shed_slow_second_terms(&v.terms);
    out->look = v.gets.looks[i];
    if (result->reply == NULL) {
        out->code = result->why->code;
        out->error = *result->why;
        return;
    }
    *result->is_taken = true;
    out->code = shed_look_at(v.cache, &v.gets.keys[i], &terms, result->reply,
                             NULL, &out->look, &out->error);
}

/* Its last GET has been answered. */
static void read_all(struct get *g, struct view *v)
{
    if (g->phase == LOOKING)
        looked(g, v);
    else if (g->phase == FLYING)
        shed_slow_leave_old(v->cache, &v->gets, &g->latch, UINT64_MAX);
    else
        finish(g, v);
}

void shed_async_get_take(struct shed_asker *asker, const struct shed_read *read,
                         bool is_shared)
{
    struct get *g = owner_of(asker);
    size_t i = index_of(asker);
    struct shed_look *look;
    struct view v;

    open_view(g, &v);
    look = &v.gets.looks[i];
    if (is_shared)
        shed_look_share(v.cache, &v.gets.keys[i], &read->look, look);
    else
        *look = read->look;
    g->reads--;
    if (g->phase == LOOKING)
        take_first(g, &v, i, read);
    else
        shed_slow_take_second(look);
    if (g->reads == 0)
        read_all(g, &v);
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
        leave_reads(g, v);
        finish(g, v);
    } else if (g->is_softly) {
        leave_softly(g, v);
    } else {
        leave_reads(g, v);
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

static struct get *create(const struct shed_cache *cache,
                          const struct shed_key *key,
                          const struct shed_terms *terms)
{
    bool has_rule = terms->rule != &cache->rule;
    size_t before = has_rule ? sizeof(*terms->rule) : 0;
    struct get *g = malloc(sizeof(*g) + before + key->redis_size);

    if (g == NULL)
        return NULL;
    memset(g, 0, sizeof(*g));
    g->pending.step = step;
    g->pending.weight = 1;
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
    return g;
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
    struct get *g;
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
    g = create(cache, &named.key, &terms);
    if (g == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    return shed_async_submit(cache->async, &g->pending, then, pending, err);
}

static struct many *create_many(const struct shed_cache *cache,
                                struct shed_item *items, size_t count,
                                const struct shed_terms *terms)
{
    struct many *m = calloc(1, sizeof(*m) + count * sizeof(m->askers[0]));

    if (m == NULL)
        return NULL;
    m->items = items;
    m->errors = terms->errors;
    m->count = count;
    m->keys = shed_get_name_keys(cache, items, count);
    m->looks = calloc(count + 1, sizeof(*m->looks));
    m->callers = calloc(count + 1, sizeof(*m->callers));
    for (size_t i = 0; i < count; i++) {
        m->askers[i].index = i + 1;
        items[i].code = SHED_OK;
    }
    if (m->looks != NULL && m->callers != NULL &&
        (m->keys != NULL || count == 0))
        return m;
    destroy_many(m);
    return NULL;
}

enum shed_code shed_get_many_async(struct shed_cache *cache,
                                   struct shed_item *items, size_t count,
                                   const struct shed_get_options *options,
                                   const struct shed_then *then,
                                   struct shed_pending **pending,
                                   struct shed_error *err)
{
    const struct shed_key none = {.redis = "", .redis_size = 0};
    struct shed_freshness_rule rule;
    struct shed_terms terms;
    struct many *m;
    struct get *g;
    enum shed_code code = shed_async_check(then, err);

    if (pending != NULL)
        *pending = NULL;
    if (code == SHED_OK)
        code = shed_get_take_options(cache, options, true, &rule, &terms, err);
    if (code == SHED_OK)
        code = shed_get_check_items(items, count, err);
    if (code != SHED_OK)
        return code;
    m = create_many(cache, items, count, &terms);
    g = m != NULL ? create(cache, &none, &terms) : NULL;
    if (g == NULL) {
        if (m != NULL)
            destroy_many(m);
        return shed_fail_nomem(err, "an asynchronous call");
    }
    g->pending.weight = (unsigned short)(count > 0 ? count : 1);
    g->many = m;
    m->get = g;
    code = shed_async_submit(cache->async, &g->pending, then, pending, err);
    if (code != SHED_OK)
        destroy_many(m);
    return code;
}
