/*
 * A get as a call: get_slow.c's steps, each after an event. Its invariant: a
 * get ends when no GET and no flight refers to it.
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

enum phase {
    NEW,
    LEARNING, /* the log of tags is read before its GET is sent */
    LOOKING,  /* its GET is under way */
    FLYING,   /* its flight, and perhaps the GET of the soft timeout */
    ANSWERED, /* that has answered */
    JUDGING,  /* the log of tags is read to judge the answer */
    LAST_LOOK /* the GET after a load that failed */
};

struct get {
    struct shed_pending pending; /* first */
    struct shed_key_get get;
    struct shed_asker asker;
    struct shed_tag_learner learner;
    char name[]; /* of the key in Redis */
};

_Static_assert(sizeof(struct get) <= 384 || sizeof(void *) != 8,
               "a hundred thousand calls may be outstanding");

static struct get *get_of(struct shed_pending *pending)
{
    return shed_container_of(pending, struct get, pending);
}

static struct get *owner_of(struct shed_asker *asker)
{
    return shed_container_of(asker, struct get, asker);
}

/* ------------------------------------------------------------------- ends */

static void end(struct get *g)
{
    shed_get_end_reading(&g->get);
    g->pending.code = g->get.code;
    g->pending.why = g->get.caller.why;
    shed_async_end(&g->pending, g->get.value);
}

static void finish(struct get *g)
{
    shed_slow_end(&g->get);
    if (g->asker.is_let_through == NULL) /* else the get of many keys does */
        shed_get_count(&g->get);
    end(g);
}

/* Nobody wants what it brings. The pending's code and why are set. */
static void stop(struct get *g)
{
    struct shed_caller *caller = &g->get.caller;

    shed_tag_log_leave(g->get.cache->tag_log, &g->learner);
    shed_async_leave(&g->asker);
    shed_get_end_reading(&g->get);
    if (g->pending.phase == FLYING) {
        shed_slow_leave(&g->get);
        return; /* it is answered in a moment */
    }
    shed_count(&g->get.cache->counters.misses_ended, g->get.is_miss);
    shed_value_unref(g->get.look.value);
    shed_value_unref(g->get.is_flying ? caller->value : NULL);
    free(caller->why);
    shed_value_unref(g->get.value);
    shed_async_end(&g->pending, NULL);
}

/* ------------------------------------------------------------------- reads */

static void on_learnt(struct shed_tag_learner *learner,
                      const struct shed_error *why);

static void learn(struct get *g, enum phase phase)
{
    g->pending.phase = (unsigned char)phase;
    shed_tag_log_await(g->get.cache->tag_log, &g->learner, on_learnt);
    shed_async_set_due(
        &g->pending,
        phase == LEARNING
            ? shed_look_until_ms(g->get.cache, &g->get.key, &g->get.terms)
            : shed_terms_deadline_ms(&g->get.terms));
}

/* Ask Redis for the key. Returns: false: there is nothing to wait for. */
static bool ask(struct get *g, bool is_second)
{
    struct shed_error why;
    bool may_share;

    shed_look_begin(g->get.cache, &g->get.key, &g->get.look);
    if (g->get.look.is_missed && !shed_cache_takes_local(g->get.cache))
        return false; /* whatever GET would find is of no use */
    /* the one that is shared may have begun before an invalidation that this
       call must see */
    may_share = !is_second && shed_terms_may_share(&g->get.terms) &&
                !g->get.look.is_missed;
    if (shed_async_ask(g->pending.cache->async_reads, &g->asker, &g->get.key,
                       may_share))
        return true;
    (void)shed_fail(&why, SHED_ENOMEM, "out of memory for a read");
    if (!is_second)
        shed_get_fail(&g->get, &why);
    return false;
}

/* GET once more, if there may be an old value. Returns: whether to wait. */
static bool look_again(struct get *g)
{
    return shed_slow_may_have_old(&g->get) && ask(g, true);
}

/* -------------------------------------------------------------- the flight */

static void on_answer(struct shed_caller *caller)
{
    struct get *g = shed_container_of(caller, struct get, get.caller);

    shed_async_wake(&g->pending, SHED_ASYNC_ANSWERED);
}

static void fly(struct get *g)
{
    const struct shed_terms *terms = &g->get.terms;

    g->pending.phase = FLYING;
    g->pending.is_softly = shed_terms_are_soft(terms);
    shed_slow_join(&g->get);
    if (g->pending.is_softly)
        shed_slow_leave_old(
            &g->get, shed_left_ms(shed_now_ms(), terms->soft_timeout_ms));
    shed_async_set_due(&g->pending, g->pending.is_softly
                                        ? shed_terms_soft_deadline_ms(terms)
                                        : shed_terms_deadline_ms(terms));
}

/* At the soft timeout. */
static void leave_softly(struct get *g)
{
    g->pending.is_softly = false;
    shed_async_set_due(&g->pending, shed_terms_deadline_ms(&g->get.terms));
    if (!look_again(g))
        shed_slow_leave_old(&g->get, UINT64_MAX);
}

static void look_last(struct get *g)
{
    g->pending.phase = LAST_LOOK;
    if (look_again(g))
        shed_async_set_due(&g->pending, shed_terms_deadline_ms(&g->get.terms));
    else
        finish(g);
}

static void take_answer(struct get *g, const struct shed_error *why)
{
    shed_slow_take_answer(&g->get, why);
    if (shed_get_is_open(&g->get))
        fly(g);
    else
        look_last(g);
}

static void answered(struct get *g)
{
    shed_async_leave(&g->asker);
    if (shed_slow_needs_log(&g->get))
        learn(g, JUDGING);
    else
        take_answer(g, NULL);
}

/* -------------------------------------------------------------- first look */

static void looked(struct get *g)
{
    if (g->get.look.must_learn) {
        learn(g, LEARNING);
        return;
    }
    shed_get_end_reading(&g->get);
    shed_slow_begin(&g->get);
    if (shed_get_is_open(&g->get))
        fly(g);
    else
        look_last(g);
}

static void look(struct get *g)
{
    g->pending.phase = LOOKING;
    g->get.look.must_learn = false;
    if (shed_get_looks_first(g->get.cache, &g->get.terms, &g->get.key) &&
        ask(g, false))
        shed_async_set_due(
            &g->pending,
            shed_look_until_ms(g->get.cache, &g->get.key, &g->get.terms));
    else
        looked(g);
}

static void start(struct get *g)
{
    if (g->get.is_looked) {
        looked(g);
        return;
    }
    g->get.value = shed_look_near(g->get.cache, shed_key_bytes(&g->get.key),
                                  &g->get.terms);
    if (g->get.value != NULL)
        end(g);
    else if (!shed_tag_log_is_known(g->get.cache->tag_log))
        learn(g, LEARNING);
    else
        look(g);
}

/* At the end of the time for a GET, or because the log could not be read. */
static void give_up_looking(struct get *g, const struct shed_error *why)
{
    shed_async_leave(&g->asker);
    shed_get_take_look(&g->get, why);
    g->get.look.must_learn = false;
    looked(g);
}

bool shed_async_get_can_fly(struct shed_asker *asker)
{
    const struct get *g = owner_of(asker);

    return g->pending.phase == LOOKING &&
           !shed_get_looks_first(g->get.cache, &g->get.terms, &g->get.key);
}

enum shed_code shed_async_get_judge(struct shed_asker *asker,
                                    const struct shed_call_result *result,
                                    bool is_announced, struct shed_error *why)
{
    struct get *g = owner_of(asker);
    struct shed_terms terms = g->get.terms;

    if (g->pending.phase != LOOKING)
        terms = shed_slow_second_terms(&g->get.terms);
    if (result->reply == NULL) {
        *why = *result->why;
        return why->code;
    }
    *result->is_taken = true;
    g->get.look.mark.is_announced = is_announced;
    return shed_look_at(g->get.cache, &g->get.key, &terms, result->reply, NULL,
                        &g->get.look, why);
}

static void take(struct get *g, enum shed_code code,
                 const struct shed_error *why)
{
    if (g->pending.phase != LOOKING) {
        if (g->pending.phase == FLYING)
            shed_slow_leave_old(&g->get, UINT64_MAX);
        else
            finish(g);
        return;
    }
    shed_get_take_look(&g->get, code != SHED_OK ? why : NULL);
    looked(g);
}

void shed_async_get_take(struct shed_asker *asker, enum shed_code code,
                         const struct shed_error *why, struct shed_asker *from)
{
    struct get *g = owner_of(asker);

    if (from != NULL)
        shed_look_share(g->get.cache, &g->get.key, &owner_of(from)->get.look,
                        &g->get.look);
    take(g, code, why);
}

/* ------------------------------------------------------------------ events */

static void learnt(struct get *g, const struct shed_error *why)
{
    if (g->pending.phase == JUDGING)
        take_answer(g, why);
    else if (why != NULL)
        give_up_looking(g, why);
    else
        look(g);
}

static void on_learnt(struct shed_tag_learner *learner,
                      const struct shed_error *why)
{
    struct get *g = shed_container_of(learner, struct get, learner);
    struct shed_async_reads *reads = g->get.cache->async_reads;

    learnt(g, why);
    shed_async_flush(reads);
}

/* Its time is over, or the soft part of it. */
static void expire(struct get *g)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_ETIMEDOUT,
                    "the deadline passed while the call waited for Redis to "
                    "answer");
    if (g->pending.phase == LEARNING || g->pending.phase == JUDGING) {
        shed_tag_log_leave(g->get.cache->tag_log, &g->learner);
        learnt(g, &why);
    } else if (g->pending.phase == LOOKING) {
        give_up_looking(g, &why);
    } else if (g->pending.phase == LAST_LOOK) {
        shed_async_leave(&g->asker);
        finish(g);
    } else if (g->pending.is_softly) {
        leave_softly(g);
    } else {
        shed_async_leave(&g->asker);
        shed_slow_leave(&g->get);
    }
}

static void step(struct shed_pending *pending, unsigned events)
{
    struct get *g = get_of(pending);

    if (events & SHED_ASYNC_ANSWERED)
        g->pending.phase = ANSWERED;
    if (g->pending.is_stopped)
        stop(g);
    else if (events & SHED_ASYNC_START)
        start(g);
    else if (events & SHED_ASYNC_ANSWERED)
        answered(g);
    else if (events & SHED_ASYNC_DUE)
        expire(g);
}

/* ------------------------------------------------------------------ begin */

struct shed_pending *shed_async_get_create(struct shed_cache *cache,
                                           const struct shed_key *key,
                                           const struct shed_terms *terms,
                                           bool *is_let_through)
{
    struct get *g = malloc(sizeof(*g) + key->redis.size);

    if (g == NULL)
        return NULL;
    memset(g, 0, sizeof(*g));
    g->pending.cache = cache;
    g->pending.step = step;
    g->asker.is_let_through = is_let_through;
    g->get.cache = cache;
    g->get.terms = *terms;
    g->get.caller.on_answer = on_answer;
    g->get.key = *key;
    g->get.key.redis.data = memcpy(g->name, key->redis.data, key->redis.size);
    return &g->pending;
}

struct shed_key_get *shed_async_get_of(struct shed_pending *pending)
{
    return &get_of(pending)->get;
}

enum shed_code shed_get_async(struct shed_cache *cache, struct shed_bytes key,
                              const struct shed_get_options *options,
                              const struct shed_then *then,
                              struct shed_value **near,
                              struct shed_pending **pending,
                              struct shed_error *err)
{
    struct shed_terms terms;
    struct shed_named_key named;
    struct shed_pending *p;
    enum shed_code code = shed_async_check(then, pending, err);

    if (near != NULL)
        *near = NULL;
    if (code == SHED_OK)
        code = shed_cache_check_key_call(cache, key, SHED_TIMEOUT_DEFAULT, true,
                                         err);
    if (code == SHED_OK)
        code = shed_get_take_options(cache, options, true, &terms, NULL, err);
    if (code != SHED_OK)
        return code;
    if (near != NULL)
        *near = shed_look_near(cache, key, &terms);
    if (near != NULL && *near != NULL)
        return SHED_OK;
    terms.start_us = shed_now_us();
    shed_key_name(cache->name, key, &named);
    p = shed_async_get_create(cache, &named.key, &terms, NULL);
    if (p == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    code = shed_async_submit(p, 1, then, pending, err);
    if (code != SHED_OK)
        free(p);
    return code;
}
