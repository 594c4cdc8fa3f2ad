/* The loop. Its invariant: posts run in the order of posting, and all of them
 * before stop returns. */
#include "redis/reactor.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/error.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/thread.h"

struct shed_reactor {
    uv_loop_t loop;
    uv_async_t wake;
    pthread_t thread;

    struct shed_mutex mu;
    /* under mu */
    struct shed_post *first;
    struct shed_post **last;
    bool is_stopping;
};

struct shed_timer {
    struct shed_reactor *reactor;
    bool is_in_loop; /* false until the timer is first set */
    uv_timer_t uv;
    void (*run)(void *arg);
    void *arg;
};

static struct shed_post *take_posts(struct shed_reactor *r, bool *is_stopping)
{
    struct shed_post *posts;

    shed_mutex_lock(&r->mu);
    posts = r->first;
    r->first = NULL;
    r->last = &r->first;
    *is_stopping = r->is_stopping;
    shed_mutex_unlock(&r->mu);
    return posts;
}

/* What a post posts runs in the next turn. */
static void on_wake(uv_async_t *wake)
{
    bool is_stopping;
    struct shed_post *next;

    for (struct shed_post *post = take_posts(wake->data, &is_stopping);
         post != NULL; post = next) {
        next = post->next;
        atomic_store(&post->is_posted, false);
        post->run(post);
    }
    /* with the last handle closed, uv_run returns */
    if (is_stopping && !uv_is_closing((uv_handle_t *)wake))
        uv_close((uv_handle_t *)wake, NULL);
}

static void *run_loop(void *arg)
{
    struct shed_reactor *r = arg;

    shed_thread_mark(SHED_THREAD_LOOP);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void finish_loop(struct shed_reactor *r)
{
    uv_close((uv_handle_t *)&r->wake, NULL);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&r->loop);
}

/* For the first loop of the process libuv opens three descriptors, and aborts
 * the program if it does not get them. So as many and a few more are tried here
 * before. */
static bool has_descriptors(void)
{
    enum { PAIRS = 3 };
    int ends[PAIRS][2];
    size_t count = 0;

    while (count < PAIRS &&
           socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[count]) == 0)
        count++;
    for (size_t i = 0; i < count; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    return count == PAIRS;
}

enum shed_code shed_reactor_start(struct shed_reactor **out,
                                  struct shed_error *err)
{
    struct shed_reactor *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (r == NULL)
        return shed_fail_nomem(err, "the reactor");
    r->last = &r->first;
    if (shed_mutex_init(&r->mu, SHED_RANK_REACTOR) != 0)
        goto fail_memory;
    if (!has_descriptors() || uv_loop_init(&r->loop) != 0)
        goto fail_mutex;
    if (uv_async_init(&r->loop, &r->wake, on_wake) != 0)
        goto fail_loop;
    r->wake.data = r;
    if (shed_thread_start(&r->thread, run_loop, r) != 0) {
        finish_loop(r);
        goto fail_mutex;
    }
    *out = r;
    return SHED_OK;

fail_loop:
    (void)uv_loop_close(&r->loop);
fail_mutex:
    shed_mutex_destroy(&r->mu);
fail_memory:
    free(r);
    return shed_fail(err, SHED_EBUSY,
                     "no thread or descriptor is available for the client");
}

void shed_reactor_stop(struct shed_reactor *r)
{
    if (r == NULL)
        return;
    shed_mutex_lock(&r->mu);
    r->is_stopping = true;
    shed_mutex_unlock(&r->mu);
    (void)uv_async_send(&r->wake);
    (void)pthread_join(r->thread, NULL);
    (void)uv_loop_close(&r->loop);
    shed_mutex_destroy(&r->mu);
    free(r);
}

void shed_reactor_forget(struct shed_reactor *r)
{
    free(r);
}

void shed_reactor_post(struct shed_reactor *r, struct shed_post *post)
{
    post->next = NULL;
    shed_reactor_post_all(r, post);
}

void shed_reactor_wake(struct shed_reactor *r, struct shed_post *post)
{
    if (!atomic_exchange(&post->is_posted, true))
        shed_reactor_post(r, post);
}

void shed_reactor_post_all(struct shed_reactor *r, struct shed_post *posts)
{
    bool was_empty;

    if (posts == NULL)
        return;
    shed_mutex_lock(&r->mu);
    was_empty = r->first == NULL;
    *r->last = posts;
    while (*r->last != NULL)
        r->last = &(*r->last)->next;
    shed_mutex_unlock(&r->mu);
    if (was_empty)
        (void)uv_async_send(&r->wake);
}

struct waiting_post {
    struct shed_post post;
    struct shed_latch latch;
    void (*run)(void *arg);
    void *arg;
};

static void run_waiting(struct shed_post *post)
{
    struct waiting_post *w = (struct waiting_post *)(void *)post;

    w->run(w->arg);
    shed_latch_count_down(&w->latch, 1);
}

void shed_reactor_run(struct shed_reactor *r, void (*run)(void *arg), void *arg)
{
    struct waiting_post w = {.post = {.run = run_waiting},
                             .latch = SHED_LATCH_INIT(1),
                             .run = run,
                             .arg = arg};

    shed_reactor_post(r, &w.post);
    (void)shed_latch_wait(&w.latch, UINT64_MAX);
}

bool shed_reactor_is_current(const struct shed_reactor *r)
{
    return pthread_equal(pthread_self(), r->thread) != 0;
}

void *shed_reactor_loop(struct shed_reactor *r)
{
    return &r->loop;
}

static void on_timer(uv_timer_t *uv)
{
    struct shed_timer *t = uv->data;

    t->run(t->arg);
}

struct shed_timer *shed_timer_create(struct shed_reactor *r,
                                     void (*run)(void *arg), void *arg)
{
    struct shed_timer *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->reactor = r;
    t->run = run;
    t->arg = arg;
    return t;
}

void shed_timer_set(struct shed_timer *t, uint64_t delay_ms)
{
    assert(shed_reactor_is_current(t->reactor));
    if (!t->is_in_loop) {
        (void)uv_timer_init(&t->reactor->loop, &t->uv); /* cannot fail */
        t->uv.data = t;
        t->is_in_loop = true;
    }
    /* the loop's time may be stale after long work in this turn */
    uv_update_time(&t->reactor->loop);
    (void)uv_timer_start(&t->uv, on_timer, delay_ms, 0);
}

void shed_timer_stop(struct shed_timer *t)
{
    if (t->is_in_loop)
        (void)uv_timer_stop(&t->uv);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void shed_timer_destroy(struct shed_timer *t)
{
    if (t != NULL && t->is_in_loop)
        uv_close((uv_handle_t *)&t->uv, on_timer_closed);
    else
        free(t);
}
