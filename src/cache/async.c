/*
 * The asynchronous calls of a cache. Its invariants: a call is stepped by the
 * reactor thread alone; it is handed over once, when it is in no list and not
 * in the heap any more.
 *
 * Calls that are submitted or woken are listed, and the first of them posts. So
 * what comes between two turns of the loop is stepped in one: the GETs of all
 * go out with one write.
 */
#include "cache/pending.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/value.h"
#include "client/client.h"

struct shed_async {
    /* set at creation */
    struct shed_cache *cache;
    struct shed_post post;
    struct shed_timer *timer;
    /* reactor thread only */
    struct shed_heap due;
    uint64_t timer_ms;        /* when the timer expires; UINT64_MAX: not set */
    uint64_t again_ms;        /* when reads are sent again; UINT64_MAX: none */
    size_t holds;             /* of calls that have started, and of reads */
    bool is_closing, is_idle; /* idle: for good */
    struct shed_pending *ended, **last_ended; /* to go into their queues, and */
    uint64_t ended_weight;                    /* to leave calls, */
    struct shed_post hand_over;               /* then */
    struct shed_latch idle;          /* opened when nothing is under way */
    char apart[SHED_CPU_LINE_BYTES]; /* from what callers write */

    /* atomic */
    _Atomic uint64_t calls; /* not handed over yet, by their weights; of calls
                               that go into queues, at the end of the turn */

    struct shed_mutex mu;
    /* under mu */
    struct shed_pending *first, **last; /* with events; NULL: post is not posted
                                         */
};

/* ----------------------------------------------------------------- events */

/* Returns: whether it is the first of the list: then post is to be posted. */
static bool list_locked(struct shed_pending *p, unsigned events)
{
    struct shed_async *a = p->cache->async;
    bool is_first = a->first == NULL;

    p->events |= (unsigned char)events;
    if (p->is_listed)
        return false;
    p->is_listed = true;
    p->next = NULL;
    if (is_first)
        a->last = &a->first;
    *a->last = p;
    a->last = &p->next;
    return is_first;
}

/* It posts under the mutex: once the list is out of it, the call may end, and
 * its cache and client be closed. */
static void wake_locked(struct shed_pending *p, unsigned events)
{
    struct shed_async *a = p->cache->async;

    if (list_locked(p, events))
        shed_reactor_post(a->cache->client->reactor, &a->post);
}

void shed_async_wake(struct shed_pending *p, unsigned events)
{
    struct shed_async *a = p->cache->async;

    shed_mutex_lock(&a->mu);
    wake_locked(p, events);
    shed_mutex_unlock(&a->mu);
}

void shed_async_hold(struct shed_async *a)
{
    a->holds++;
}

/* The timer may be left over from a call that has ended, and expire once more
 * before it is destroyed: the end is told once. */
void shed_async_drop(struct shed_async *a)
{
    if (--a->holds == 0 && a->is_closing && atomic_load(&a->calls) == 0 &&
        !a->is_idle) {
        a->is_idle = true;
        shed_latch_count_down(&a->idle, 1);
    }
}

/* ------------------------------------------------------------------- time */

static struct shed_pending *pending_of(struct shed_heap_node *node)
{
    return shed_container_of(node, struct shed_pending, due);
}

static void forget_due(struct shed_pending *p)
{
    if (p->has_due)
        shed_heap_remove(&p->cache->async->due, &p->due);
    p->has_due = false;
}

/* The timer is not stopped, or set later, when the first call ends: it finds
 * nothing then. */
static void set_timer(struct shed_async *a)
{
    uint64_t at_ms = a->again_ms;

    if (a->due.first != NULL && a->due.first->at_ms < at_ms)
        at_ms = a->due.first->at_ms;
    if (at_ms >= a->timer_ms)
        return;
    a->timer_ms = at_ms;
    shed_timer_set(a->timer, shed_left_ms(at_ms, shed_now_ms()));
}

void shed_async_set_due(struct shed_pending *p, uint64_t at_ms)
{
    forget_due(p);
    p->due.at_ms = at_ms;
    p->has_due = true;
    shed_heap_insert(&p->cache->async->due, &p->due);
    set_timer(p->cache->async);
}

void shed_async_flush_later(struct shed_async *a)
{
    if (a->again_ms == UINT64_MAX)
        a->again_ms = shed_now_ms() + SHED_CALL_PAUSE_MS;
    set_timer(a);
}

static void on_timer(void *arg)
{
    struct shed_async *a = arg;
    uint64_t now_ms = shed_now_ms();

    shed_async_hold(a);
    while (a->due.first != NULL && a->due.first->at_ms <= now_ms) {
        struct shed_pending *p = pending_of(a->due.first);
        forget_due(p);
        p->step(p, SHED_ASYNC_DUE);
    }
    a->timer_ms = UINT64_MAX;
    if (a->again_ms <= now_ms) {
        a->again_ms = UINT64_MAX;
        shed_async_send_again(a->cache->async_reads);
    }
    shed_async_flush(a->cache->async_reads);
    set_timer(a);
    shed_async_drop(a);
}

/* --------------------------------------------------------- begin and end */

static void stop(struct shed_pending *p, bool is_cancelled)
{
    struct shed_error error;

    p->is_stopped = true;
    p->code = is_cancelled
                  ? shed_fail(&error, SHED_ETIMEDOUT, "the call was cancelled")
                  : shed_fail(&error, SHED_ECLOSED, "the cache was closed");
    free(p->why);
    p->why = shed_error_keep(&error);
}

/* At the end of a turn of the loop: its thread wakes that of a queue once. */
static void hand_over(struct shed_post *post)
{
    struct shed_async *a =
        shed_container_of(post, struct shed_async, hand_over);
    struct shed_pending *p = a->ended, *next;

    a->ended = NULL;
    /* before a done, which may call */
    (void)atomic_fetch_sub(&a->calls, a->ended_weight);
    a->ended_weight = 0;
    while (p != NULL) {
        struct shed_queue *queue = p->then.queue;
        struct shed_pending *first = p;
        while (p->next != NULL && p->next->then.queue == queue)
            p = p->next;
        next = p->next;
        p->next = NULL;
        shed_queue_add(queue, first, &p->next);
        p = next;
    }
    shed_async_drop(a);
}

static void hand_over_soon(struct shed_pending *p)
{
    struct shed_async *a = p->cache->async;

    if (a->ended == NULL) {
        a->last_ended = &a->ended;
        shed_async_hold(a);
        shed_reactor_post(a->cache->client->reactor, &a->hand_over);
    }
    a->ended_weight += p->weight;
    p->next = NULL;
    *a->last_ended = p;
    a->last_ended = &p->next;
}

static void finish(struct shed_pending *p)
{
    struct shed_async *a = p->cache->async;

    if (p->then.queue != NULL) {
        hand_over_soon(p);
    } else {
        /* before done, which may call */
        (void)atomic_fetch_sub(&a->calls, p->weight);
        shed_pending_tell(p);
    }
    shed_async_drop(a);
}

/* One that is listed has been cancelled a moment ago, perhaps: its memory is
 * needed until it is taken out of the list. */
void shed_async_end(struct shed_pending *p, struct shed_value *value)
{
    struct shed_async *a = p->cache->async;
    bool is_listed;

    forget_due(p);
    p->value = value;
    shed_mutex_lock(&a->mu);
    is_listed = p->is_listed;
    atomic_store(&p->is_ended, true);
    shed_mutex_unlock(&a->mu);
    if (!is_listed)
        finish(p);
}

static void end_cancelled(struct shed_pending *p)
{
    shed_value_unref(p->value);
    p->value = NULL;
    stop(p, true);
}

/* Take it out of the list, and step it. Returns: the next of the list. */
static struct shed_pending *run_one(struct shed_pending *p)
{
    struct shed_async *a = p->cache->async;
    struct shed_pending *next;
    unsigned events;
    bool is_ended, is_cancelled;

    shed_mutex_lock(&a->mu);
    next = p->next;
    events = p->events;
    is_ended = p->is_ended;
    is_cancelled = p->is_cancelled;
    p->events = 0;
    p->is_listed = false;
    shed_mutex_unlock(&a->mu);
    if (is_ended) {
        if (is_cancelled)
            end_cancelled(p);
        finish(p);
        return next;
    }
    if (events & SHED_ASYNC_START)
        shed_async_hold(a);
    if (!p->is_stopped && (is_cancelled || a->is_closing))
        stop(p, is_cancelled);
    p->step(p, events);
    return next;
}

static void run(struct shed_post *post)
{
    struct shed_async *a = shed_container_of(post, struct shed_async, post);
    struct shed_pending *p;

    shed_async_hold(a);
    shed_mutex_lock(&a->mu);
    p = a->first;
    a->first = NULL;
    shed_mutex_unlock(&a->mu);
    while (p != NULL)
        p = run_one(p);
    shed_async_flush(a->cache->async_reads);
    shed_async_drop(a);
}

int shed_cancel(struct shed_pending *p)
{
    struct shed_async *a;
    bool is_in_time;

    if (p == NULL || atomic_load(&p->is_ended))
        return 0;
    a = p->cache->async;
    if (shed_client_check(a->cache->client, NULL) != SHED_OK)
        return 0; /* it is the parent's */
    shed_mutex_lock(&a->mu);
    /* it may have ended since that was read */
    is_in_time = !p->is_ended && !p->is_cancelled;
    if (is_in_time) {
        p->is_cancelled = true;
        wake_locked(p, SHED_ASYNC_STOP);
    }
    shed_mutex_unlock(&a->mu);
    return is_in_time;
}

enum shed_code shed_async_check(const struct shed_then *then,
                                struct shed_pending **pending,
                                struct shed_error *err)
{
    if (pending != NULL)
        *pending = NULL;
    if (then == NULL || then->done == NULL)
        return shed_fail(err, SHED_EINVAL, "%s is NULL",
                         then == NULL ? "then" : "then->done");
    return SHED_OK;
}

void shed_async_begin(struct shed_pending *first)
{
    struct shed_async *a = first->cache->async;
    struct shed_pending *next;
    bool is_first = false;

    shed_mutex_lock(&a->mu);
    for (struct shed_pending *p = first; p != NULL; p = next) {
        next = p->next;
        is_first |= list_locked(p, SHED_ASYNC_START);
    }
    shed_mutex_unlock(&a->mu);
    /* without the mutex, for which the reactor would wait as soon as it has
     * been woken; nobody closes the cache while this call uses it */
    if (is_first)
        shed_reactor_post(a->cache->client->reactor, &a->post);
}

enum shed_code shed_async_submit(struct shed_pending *p, size_t keys,
                                 const struct shed_then *then,
                                 struct shed_pending **out,
                                 struct shed_error *err)
{
    struct shed_async *a = p->cache->async;
    uint64_t limit = p->cache->options.async_limit;

    if (atomic_fetch_add(&a->calls, keys) + keys > limit) {
        (void)atomic_fetch_sub(&a->calls, keys);
        return shed_fail(err, SHED_EBUSY,
                         "%llu keys of asynchronous calls are under way, or "
                         "would be (see the cache's async_limit)",
                         (unsigned long long)limit);
    }
    if (out != NULL)
        *out = p; /* before it can end */
    p->weight = (unsigned short)keys;
    p->then = *then;
    p->next = NULL;
    shed_async_begin(p);
    return SHED_OK;
}

enum shed_code shed_async_create(struct shed_cache *cache,
                                 struct shed_async **out,
                                 struct shed_error *err)
{
    struct shed_async *a = calloc(1, sizeof(*a));

    *out = NULL;
    if (a == NULL || shed_mutex_init(&a->mu, SHED_RANK_ASYNC) != 0) {
        free(a);
        return shed_fail_nomem(err, "a cache");
    }
    a->cache = cache;
    a->post.run = run;
    a->hand_over.run = hand_over;
    a->timer_ms = a->again_ms = UINT64_MAX;
    shed_latch_init(&a->idle, 1);
    a->timer = shed_timer_create(cache->client->reactor, on_timer, a);
    if (a->timer == NULL) {
        shed_async_destroy(a);
        return shed_fail_nomem(err, "a cache");
    }
    *out = a;
    return SHED_OK;
}

/* All calls go into the list of events, and are stopped when run_one takes them
 * out. */
static void close_on_reactor(void *arg)
{
    struct shed_async *a = arg;

    shed_async_hold(a);
    a->is_closing = true;
    while (a->due.first != NULL) {
        struct shed_pending *p = pending_of(a->due.first);
        forget_due(p);
        shed_async_wake(p, SHED_ASYNC_STOP);
    }
    shed_async_drop(a);
}

static void end_on_reactor(void *arg)
{
    struct shed_async *a = arg;

    shed_timer_destroy(a->timer);
}

void shed_async_close(struct shed_async *a)
{
    struct shed_reactor *reactor;

    if (a == NULL)
        return;
    reactor = a->cache->client->reactor;
    shed_reactor_run(reactor, close_on_reactor, a);
    (void)shed_latch_wait(&a->idle, UINT64_MAX);
    shed_reactor_run(reactor, end_on_reactor, a);
}

void shed_async_destroy(struct shed_async *a)
{
    if (a == NULL)
        return;
    shed_mutex_destroy(&a->mu);
    free(a);
}
