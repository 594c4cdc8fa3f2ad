/*
 * The health of a server behind a mutex. Its invariant: each call that has
 * entered leaves once, and what it tells is counted in the term in which it
 * entered.
 *
 * A hit takes some ten microseconds, on many threads. So while nothing speaks
 * against the server nothing is locked: to enter is to read a word, and a
 * success is added to a counter, which is passed on to the breaker once per
 * slice of its window, or before a failure is. All else is under mu. A hit pays
 * 90 instructions for it, of 6600 (callgrind, a Release build); without a
 * breaker, two comparisons.
 */
#include "redis/gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/random.h"
#include "wire/address.h"

struct shed_gate {
    /* set at creation */
    struct shed_address *address;
    bool has_breaker; /* else there is nothing to count */
    shed_gate_fn *on_breaker;
    void *arg;
    /* set before the first connection; NULL: there is no session */
    shed_gate_move_fn *on_move;
    void *on_move_arg;
    /* atomic; what the health says */
    _Atomic uint64_t clear_term; /* the breaker's, while all guarded calls may
                                    pass; else 0 */
    _Atomic uint64_t slice_end_ms;
    atomic_uint term;
    atomic_bool is_silent;
    atomic_bool is_hearing; /* it must be told of each answer */
    /* atomic; what it is told later */
    _Atomic uint64_t heard_ms; /* of the last answer */

    struct shed_mutex mu;
    /* under mu */
    struct shed_health health;
    struct shed_error failure; /* of the last try, or how it fell silent */
    char call_failure[SHED_REASON_BYTES]; /* of the last guarded call */
    uint64_t refused;

    /* atomic; away from the words that each call reads */
    _Atomic uint64_t successes; /* of clear_term, since they were passed on */
};

static uint64_t clear_term(const struct shed_gate *g)
{
    return atomic_load_explicit(&g->clear_term, memory_order_relaxed);
}

/* Successes of a slice that has ended are passed on as of its end. */
static void pass_on_locked(struct shed_gate *g, uint64_t now_ms)
{
    uint64_t end_ms =
        atomic_load_explicit(&g->slice_end_ms, memory_order_relaxed);
    uint64_t count =
        atomic_exchange_explicit(&g->successes, 0, memory_order_relaxed);

    if (count > 0)
        shed_breaker_add_successes(&g->health.breaker, clear_term(g), count,
                                   now_ms < end_ms ? now_ms : end_ms - 1);
}

/* Let the health know what has only been noted. Returns: the time. */
static uint64_t lock(struct shed_gate *g)
{
    uint64_t now_ms;

    shed_mutex_lock(&g->mu);
    now_ms = shed_now_ms();
    g->health.heard_ms =
        atomic_load_explicit(&g->heard_ms, memory_order_relaxed);
    pass_on_locked(g, now_ms);
    return now_ms;
}

/* Let all threads see what has changed. Returns: whether the server has fallen
 * silent. */
static bool unlock(struct shed_gate *g, uint64_t now_ms)
{
    const struct shed_health *h = &g->health;
    bool is_silent = h->state == SHED_HEALTH_SILENT;
    bool was_silent = atomic_load(&g->is_silent);

    atomic_store_explicit(&g->slice_end_ms,
                          shed_breaker_slice_end_ms(&h->breaker, now_ms),
                          memory_order_relaxed);
    atomic_store_explicit(&g->clear_term,
                          shed_health_is_clear(h) ? h->breaker.term : 0,
                          memory_order_relaxed);
    atomic_store(&g->term, h->term);
    atomic_store(&g->is_silent, is_silent);
    atomic_store(&g->is_hearing, is_silent || h->failures > 0);
    if (h->heard_ms > atomic_load(&g->heard_ms))
        atomic_store(&g->heard_ms, h->heard_ms);
    shed_mutex_unlock(&g->mu);
    return is_silent && !was_silent;
}

struct shed_address *shed_gate_address(const struct shed_gate *g)
{
    return g->address;
}

/* ------------------------------------------------------------- connections */

static enum shed_code refuse_locked(const struct shed_gate *g,
                                    enum shed_health_state state,
                                    struct shed_error *err)
{
    if (state == SHED_HEALTH_SILENT)
        return shed_fail(err, SHED_EREDIS,
                         "%s; calls do without it until it answers the client",
                         g->failure.reason);
    return shed_fail(err, g->failure.code, "%s", g->failure.reason);
}

enum shed_code shed_gate_connect(struct shed_gate *g,
                                 enum shed_health_user user,
                                 struct shed_health_try *try,
                                 struct shed_error *err)
{
    uint64_t now_ms = lock(g);
    enum shed_health_state state =
        shed_health_connect(&g->health, user, now_ms, try);
    enum shed_code code =
        state == SHED_HEALTH_UP ? SHED_OK : refuse_locked(g, state, err);

    (void)unlock(g, now_ms);
    return code;
}

void shed_gate_tell(struct shed_gate *g, enum shed_health_event_type type,
                    const struct shed_health_try *try, uint64_t since_ms,
                    const struct shed_error *why)
{
    struct shed_health_event event = {.type = type, .since_ms = since_ms};
    uint64_t now_ms = lock(g), round = g->health.round;
    unsigned term = g->health.term;
    bool is_reached, is_over;

    if (try != NULL)
        event.try = *try;
    is_reached =
        type == SHED_HEALTH_REACHED && event.try.user == SHED_HEALTH_LINK;
    shed_health_tell(&g->health, &event, now_ms, shed_random_jitter());
    is_over = g->health.term != term;
    if (is_over)
        (void)shed_fail(&g->failure, SHED_EREDIS, "Redis %s was not a primary",
                        g->address->text);
    else if (why != NULL && g->health.round != round)
        g->failure = *why;
    is_over |= unlock(g, now_ms);
    if (g->on_move != NULL && (is_reached || is_over))
        g->on_move(g->on_move_arg, is_reached);
}

void shed_gate_hear(struct shed_gate *g, uint64_t now_ms)
{
    if (atomic_load_explicit(&g->heard_ms, memory_order_relaxed) != now_ms)
        atomic_store_explicit(&g->heard_ms, now_ms, memory_order_relaxed);
    if (!atomic_load_explicit(&g->is_hearing, memory_order_relaxed))
        return;
    shed_gate_tell(g, SHED_HEALTH_HEARD, NULL, 0, NULL);
}

unsigned shed_gate_term(const struct shed_gate *g)
{
    return atomic_load(&g->term);
}

uint64_t shed_gate_pause_left_ms(struct shed_gate *g)
{
    uint64_t now_ms = lock(g);
    uint64_t left_ms = shed_health_pause_left_ms(&g->health, now_ms);

    (void)unlock(g, now_ms);
    return left_ms;
}

/* ------------------------------------------------------------------- calls */

bool shed_gate_is_silent(const struct shed_gate *g)
{
    return atomic_load_explicit(&g->is_silent, memory_order_relaxed);
}

enum shed_code shed_gate_fail_silent(struct shed_gate *g,
                                     struct shed_error *err)
{
    enum shed_code code;

    shed_mutex_lock(&g->mu);
    code = refuse_locked(g, SHED_HEALTH_SILENT, err);
    shed_mutex_unlock(&g->mu);
    return code;
}

/* The breaker's refusal. */
static void fail_open_locked(const struct shed_gate *g, uint64_t now_ms,
                             struct shed_error *err)
{
    const struct shed_breaker *b = &g->health.breaker;

    if (b->state == SHED_BREAKER_OPEN)
        (void)shed_fail(
            err, SHED_EREDIS,
            "the breaker before Redis %s is open, and tries again in %llu ms; "
            "the last failure: %s",
            g->address->text,
            (unsigned long long)shed_left_ms(b->until_ms, now_ms),
            g->call_failure);
    else
        (void)shed_fail(err, SHED_EREDIS,
                        "the breaker before Redis %s is half-open and lets "
                        "only a few calls through; the last failure: %s",
                        g->address->text, g->call_failure);
}

static void fail_call_locked(struct shed_gate *g, enum shed_health_state state,
                             uint64_t now_ms, struct shed_error *err)
{
    if (state == SHED_HEALTH_OPEN) {
        g->refused++;
        fail_open_locked(g, now_ms, err);
    } else if (state == SHED_HEALTH_PAUSED) {
        (void)shed_fail(
            err, SHED_EREDIS,
            "Redis %s cannot work now: %s (asked again in %llu ms)",
            g->address->text, g->call_failure,
            (unsigned long long)shed_left_ms(g->health.work_ms, now_ms));
    } else {
        (void)refuse_locked(g, state, err);
    }
}

bool shed_gate_enter(struct shed_gate *g, struct shed_health_pass *pass,
                     struct shed_error *err)
{
    enum shed_health_state state;
    uint64_t now_ms;

    *pass = (struct shed_health_pass){.term = clear_term(g)};
    if (pass->term != 0)
        return true;
    now_ms = lock(g);
    state = shed_health_pass(&g->health, now_ms, pass);
    if (state != SHED_HEALTH_UP)
        fail_call_locked(g, state, now_ms, err);
    (void)unlock(g, now_ms);
    return state == SHED_HEALTH_UP;
}

static void remember_failure_locked(struct shed_gate *g,
                                    const struct shed_health_end *end)
{
    const char *reason =
        end->why != NULL ? end->why->reason : shed_reply_error(end->refusal);

    if (reason != NULL)
        (void)snprintf(g->call_failure, sizeof(g->call_failure), "%s", reason);
    else
        (void)snprintf(g->call_failure, sizeof(g->call_failure),
                       "a call took %llu ms",
                       (unsigned long long)(end->ended_ms - end->began_ms));
}

static void tell_breaker_locked(struct shed_gate *g, uint64_t now_ms,
                                uint64_t after_ms)
{
    bool is_open = g->health.breaker.state == SHED_BREAKER_OPEN;
    struct shed_error text;

    if (g->on_breaker == NULL)
        return;
    if (is_open) {
        fail_open_locked(g, now_ms, &text);
    } else {
        (void)shed_fail(&text, SHED_OK, "the breaker before Redis %s closed",
                        g->address->text);
    }
    g->on_breaker(g->arg, is_open, after_ms, text.reason);
}

void shed_gate_leave(struct shed_gate *g, const struct shed_health_pass *pass,
                     const struct shed_health_end *end)
{
    enum shed_health_told told = shed_health_judge(&g->health, end);
    bool is_clear = pass->term == clear_term(g), has_changed;
    uint64_t now_ms, changed_ms;

    if (!g->has_breaker && is_clear && end->refusal == NULL)
        return;
    if (told == SHED_HEALTH_TOLD_SUCCESS && is_clear &&
        end->ended_ms <
            atomic_load_explicit(&g->slice_end_ms, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&g->successes, 1, memory_order_relaxed);
        return;
    }
    if (told == SHED_HEALTH_TOLD_NOTHING && is_clear &&
        shed_health_waited_ms(end) == 0)
        return;
    now_ms = lock(g);
    changed_ms = g->health.breaker.changed_ms;
    has_changed =
        shed_health_learn(&g->health, pass, end, now_ms, shed_random_jitter());
    if (told == SHED_HEALTH_TOLD_FAILURE ||
        (told == SHED_HEALTH_TOLD_NOTHING && has_changed))
        remember_failure_locked(g, end);
    if (has_changed)
        tell_breaker_locked(g, now_ms, now_ms - changed_ms);
    (void)unlock(g, now_ms);
}

/* ------------------------------------------------------------ begin and end */

enum shed_code shed_gate_create(struct shed_address *address,
                                const struct shed_client_options *options,
                                shed_gate_fn *on_breaker, void *arg,
                                struct shed_gate **out, struct shed_error *err)
{
    struct shed_gate *g = calloc(1, sizeof(*g));
    uint64_t now_ms = shed_now_ms();

    *out = NULL;
    if (g == NULL || shed_mutex_init(&g->mu, SHED_RANK_GATE) != 0) {
        free(g);
        return shed_fail_nomem(err, "a client");
    }
    g->address = address;
    g->has_breaker = options->breaker.failure_pct > 0;
    g->on_breaker = on_breaker;
    g->arg = arg;
    shed_health_init(&g->health, options, now_ms);
    shed_mutex_lock(&g->mu);
    (void)unlock(g, now_ms);
    *out = g;
    return SHED_OK;
}

void shed_gate_follow(struct shed_gate *g, shed_gate_move_fn *on_move,
                      void *arg)
{
    g->on_move = on_move;
    g->on_move_arg = arg;
    g->health.has_session = true;
}

void shed_gate_destroy(struct shed_gate *g)
{
    if (g == NULL)
        return;
    shed_mutex_destroy(&g->mu);
    free(g);
}

void shed_gate_read(struct shed_gate *g, struct shed_gate_status *out)
{
    uint64_t now_ms = lock(g);

    out->breaker = shed_breaker_read(&g->health.breaker, now_ms);
    out->refused = g->refused;
    (void)unlock(g, now_ms);
}
