/*
 * The load queue. Its invariants: a load begins only if admission.h lets it;
 * every job settles exactly once, with no lock held.
 *
 * Design notes
 *
 * The bound is what protects the database: a load counts from the moment when
 * it is taken from the queue until shed_load_done, however long that is and on
 * whatever thread. So queries that were given up on, and still run in the
 * server, count as well, if the source finishes its load only when they have
 * ended.
 *
 * Jobs that come together are queued under one hold of the lock, so they stay
 * together, up to max_batch. A loader that would take less than a full batch
 * while other loads run waits for up to batch_wait_ms (gather_locked); one
 * loader at a time does that, and the others sleep.
 *
 * Threads are started when a job comes and none is idle, up to max_loads; they
 * stay until the source is closed. idle counts threads, running counts loads;
 * they are independent, because a load can outlive its function.
 *
 * A job that has waited until its deadline is settled by the loader that finds
 * it, without a load. If memory for a load is out, the first job fails, so that
 * the queue moves. When the breaker opens, all that is queued is settled as
 * refused, which leaves no failure marker behind. So what is in the queue while
 * it is half-open has passed it since. A probe that begins always ends with a
 * verdict: its deadline is the cache's, not that of a caller, and
 * shed_load_done counts whoever still waits. One that is late in the queue was
 * never tried, and makes room for another.
 */
#include "source/load.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/process.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/stats.h"
#include "base/thread.h"
#include "entry/key.h"
#include "source/admission.h"
#include "source/load_batch.h"

/* The ranges that snowshed.h states. */
#define LOADS_MAX 1024
#define BATCH_MAX 10000
#define BATCH_WAIT_MAX_MS 1000
#define QUEUE_MAX 10000000
#define TIMEOUT_MAX_MS 3600000
#define FLEET_LOADS_MAX 100000

/* A job for which callers wait goes before all that are loaded in the
 * background, so that nobody waits for a refresh. Refreshes have no share of
 * their own: a row whose refresh is never begun is given out as
 * long as its windows allow, and is then a miss, for which a caller waits. */
enum { LANE_CALLERS, LANE_BACKGROUND, LANES };

struct shed_source {
    /* set at creation */
    shed_load_one_fn *load_one; /* or NULL, and load */
    shed_load_fn *load;
    void *user;
    pid_t pid;
    struct shed_source_options options;
    struct shed_callers callers; /* waiting is atomic */

    struct shed_mutex mu;
    pthread_cond_t work;  /* a batch can be taken (wakes one loader), or the
                             source is over (wakes all) */
    pthread_cond_t grown; /* the batch being gathered need not wait longer */
    /* under mu */
    size_t refs; /* of the program, and of caches */
    struct shed_list caches;
    struct shed_list lanes[LANES]; /* the jobs that wait, in their order */
    size_t queued;                 /* in both lanes */
    struct shed_admission admission;
    pthread_t *threads;
    size_t thread_count;
    size_t idle;       /* threads without a load */
    bool is_gathering; /* a thread is waiting for its batch to grow */
};

/* Nobody has a hold on it, and nothing is queued or under way. */
static bool is_over_locked(const struct shed_source *s)
{
    return s->refs == 0 && s->queued == 0 && s->admission.running == 0;
}

/* Wake the thread that has something to do now, or all if that is to end. */
static void wake_locked(struct shed_source *s)
{
    size_t queued = s->queued, batch = (size_t)s->options.max_batch;

    shed_admission_want(&s->admission, queued / batch + (queued % batch > 0));
    if (s->is_gathering) {
        if (s->admission.running == 0 || queued >= batch)
            pthread_cond_signal(&s->grown);
    } else if (queued > 0 && shed_admission_may_begin(&s->admission)) {
        pthread_cond_signal(&s->work);
    }
    if (is_over_locked(s))
        pthread_cond_broadcast(&s->work);
}

/* node may be NULL. */
static struct shed_job *job_of(struct shed_node *node)
{
    return node != NULL ? shed_container_of(node, struct shed_job, node) : NULL;
}

/* ---------------------------------------------------------------- the queue */

static struct shed_list *lane_of(struct shed_source *s,
                                 const struct shed_job *job)
{
    return &s->lanes[job->is_background ? LANE_BACKGROUND : LANE_CALLERS];
}

static void push_locked(struct shed_source *s, struct shed_job *job)
{
    shed_list_append(lane_of(s, job), &job->node);
    job->is_queued = true;
    s->queued++;
}

static void remove_locked(struct shed_source *s, struct shed_job *job)
{
    shed_list_remove(lane_of(s, job), &job->node);
    job->is_queued = false;
    s->queued--;
}

/* Take the next job. Returns: NULL if there is none. */
static struct shed_job *pop_locked(struct shed_source *s)
{
    struct shed_job *job = job_of(s->lanes[LANE_CALLERS].first);

    if (job == NULL)
        job = job_of(s->lanes[LANE_BACKGROUND].first);
    if (job != NULL)
        remove_locked(s, job);
    return job;
}

/* Take the oldest job in the background, if its deadline has passed at now_ms;
 * at UINT64_MAX each has. Returns: NULL if there is none. */
static struct shed_job *take_background_locked(struct shed_source *s,
                                               uint64_t now_ms)
{
    struct shed_job *job = job_of(s->lanes[LANE_BACKGROUND].first);

    if (job == NULL || job->deadline_ms > now_ms)
        return NULL;
    remove_locked(s, job);
    return job;
}

/* ------------------------------------------------------- jobs without a load
 */

/* Add a job that no load answers to the list of jobs that have ended. One that
 * is late has failed, all others are refused. */
static void end_job(struct shed_list *ended, struct shed_job *job,
                    enum shed_code code, const char *why)
{
    job->loaded = (struct shed_loaded){.failed_keys = 1,
                                       .is_refused = code != SHED_ETIMEDOUT};
    (void)shed_fail(&job->loaded.error, code, "%s", why);
    shed_list_append(ended, &job->node);
}

/* The same for one that the breaker has let into the queue. */
static void drop_job_locked(struct shed_source *s, struct shed_list *ended,
                            struct shed_job *job, enum shed_code code,
                            const char *why)
{
    end_job(ended, job, code, why);
    shed_breaker_return(&s->admission.breaker, 1);
}

/* No lock may be held. */
static void settle_all(struct shed_list *ended)
{
    struct shed_job *job;

    while ((job = job_of(shed_list_pop(ended))) != NULL)
        job->settle(job);
}

/* ------------------------------------------------------ the end of a load */

/* The breaker has opened or closed, after so long. */
static void tell_breaker_locked(const struct shed_source *s, bool is_open,
                                uint64_t after_ms, const char *reason)
{
    struct shed_event event = {.kind = SHED_EVENT_BREAKER,
                               .outcome = is_open ? SHED_ESOURCE : SHED_OK,
                               .duration_us = after_ms * 1000,
                               .reason = reason};

    for (struct shed_node *n = s->caches.first; n != NULL; n = n->after) {
        const struct shed_cache *cache =
            shed_container_of(n, struct shed_cache, in_source);
        event.name = shed_str(cache->name);
        shed_events_tell(cache->client->events, &event);
    }
}

/* Learn from a load. If the breaker opens, all that is queued is refused. */
static void learn_locked(struct shed_source *s,
                         const struct shed_admitted *load,
                         struct shed_list *ended)
{
    uint64_t changed_ms = s->admission.breaker.changed_ms;
    struct shed_error why;
    struct shed_job *job;
    bool is_open;

    if (!shed_admission_learn(&s->admission, load, &why))
        return;
    is_open = s->admission.breaker.state == SHED_BREAKER_OPEN;
    tell_breaker_locked(s, is_open, shed_now_ms() - changed_ms,
                        is_open ? why.reason : "the source's breaker closed");
    while (is_open && (job = pop_locked(s)) != NULL)
        end_job(ended, job, SHED_ESOURCE, why.reason);
}

void shed_load_done(struct shed_load *load)
{
    struct shed_load_batch *batch = shed_load_batch_of(load);
    struct shed_source *s = batch->source;
    struct shed_admitted *admitted = &batch->admitted;
    struct shed_list refused = {NULL, NULL};
    struct shed_error failure;

    admitted->cost_us = shed_now_us() - batch->start_us;
    admitted->keys = load->count;
    admitted->id = shed_load_batch_id(batch); /* before its keys are gone */
    if (shed_load_batch_settle(batch, &failure))
        admitted->failure = failure.reason;
    shed_mutex_lock(&s->mu);
    learn_locked(s, admitted, &refused);
    shed_mutex_unlock(&s->mu);
    settle_all(&refused);
    shed_load_batch_destroy(batch);
    shed_mutex_lock(&s->mu);
    shed_admission_end(&s->admission);
    wake_locked(s);
    shed_mutex_unlock(&s->mu);
}

/* ------------------------------------------------------------- the batches */

static void be_late_locked(struct shed_source *s, struct shed_job *job,
                           struct shed_list *late)
{
    drop_job_locked(s, late, job, SHED_ETIMEDOUT,
                    "the load waited in the queue until its deadline");
}

/* Move jobs from the queue to batch, or to the list late if their deadline has
 * passed. The batch's deadline is that of its last job, and at most
 * load_timeout_ms away. */
static void fill_locked(struct shed_source *s, struct shed_load_batch *batch,
                        size_t capacity, struct shed_list *late)
{
    uint64_t now_ms = shed_now_ms(), last_ms = 0;
    struct shed_job *job;

    /* which may be for long behind those that go first */
    while ((job = take_background_locked(s, now_ms)) != NULL)
        be_late_locked(s, job, late);
    while (batch->load.count < capacity && (job = pop_locked(s)) != NULL) {
        if (job->deadline_ms <= now_ms) {
            be_late_locked(s, job, late);
            continue;
        }
        if (job->begin != NULL)
            job->begin(job, batch->load.count == 0, batch->admitted.waited_us);
        shed_load_batch_add(batch, job);
        if (job->deadline_ms > last_ms)
            last_ms = job->deadline_ms;
    }
    batch->deadline_ms = shed_deadline_ms(now_ms, s->options.load_timeout_ms);
    if (last_ms < batch->deadline_ms)
        batch->deadline_ms = last_ms;
}

/* Wait for the batch to grow. While other loads run the database is busy
 * anyway, so nothing is lost by it: batches grow under an avalanche, and a
 * single miss waits for nothing. */
static void gather_locked(struct shed_source *s)
{
    uint64_t end_ms = shed_deadline_ms(shed_now_ms(), s->options.batch_wait_ms);

    s->is_gathering = true;
    while (s->admission.running > 0 && s->queued < s->options.max_batch &&
           shed_cond_wait(&s->grown, &s->mu, end_ms))
        ;
    s->is_gathering = false;
}

static void load_each(struct shed_source *s, struct shed_load *load,
                      void *thread)
{
    for (size_t i = 0; i < load->count; i++) {
        struct shed_answer answer = SHED_ANSWER_INIT;
        s->load_one(s->user, thread, load->keys[i].key, &answer);
        shed_load_answer(load, i, &answer);
    }
    shed_load_done(load);
}

static void run_batch(struct shed_source *s, struct shed_load_batch *batch,
                      void *thread)
{
    batch->start_us = shed_now_us();
    if (batch->load.count > 0 && s->load != NULL)
        s->load(s->user, thread, &batch->load);
    else
        load_each(s, &batch->load, thread);
}

static void *run_loader(void *arg);

/* Start a thread if none is idle and there may be one more. (A SIGPIPE that a
 * source raises stays pending in it.) Returns: false if there is no thread at
 * all. */
static bool staff_locked(struct shed_source *s)
{
    if (s->idle == 0 && s->thread_count < s->options.max_loads &&
        shed_thread_start(&s->threads[s->thread_count], run_loader, s) == 0) {
        s->thread_count++;
        s->idle++;
    }
    return s->thread_count > 0;
}

/* Take a batch and load it. A load counts as running from here to its
 * shed_load_done; this thread is without one when its function returns. */
static void load_next_locked(struct shed_source *s, void *thread)
{
    struct shed_list ended = {NULL, NULL};
    struct shed_load_batch *batch;
    size_t capacity;

    gather_locked(s);
    /* meanwhile the breaker may have opened, or the limit have fallen */
    if (s->queued == 0 || !shed_admission_may_begin(&s->admission))
        return;
    capacity = s->queued < s->options.max_batch ? s->queued
                                                : (size_t)s->options.max_batch;
    batch = shed_load_batch_create(s, capacity);
    if (batch == NULL) { /* one job fails, so that there is progress */
        drop_job_locked(s, &ended, pop_locked(s), SHED_ENOMEM,
                        "out of memory for a load");
        shed_mutex_unlock(&s->mu);
        settle_all(&ended);
        shed_mutex_lock(&s->mu);
        wake_locked(s);
        return;
    }
    shed_admission_begin(&s->admission, &batch->admitted);
    batch->load.is_probe = batch->admitted.is_probe;
    fill_locked(s, batch, capacity, &ended);
    assert(s->idle > 0);
    s->idle--;
    if (s->queued > 0 && shed_admission_may_begin(&s->admission))
        (void)staff_locked(s);
    wake_locked(s);
    shed_mutex_unlock(&s->mu);
    settle_all(&ended);
    run_batch(s, batch, thread);
    shed_mutex_lock(&s->mu);
    s->idle++;
}

static void *run_loader(void *arg)
{
    struct shed_source *s = arg;
    void *thread = NULL;

    shed_thread_mark(SHED_THREAD_LOADER);
    if (s->options.thread_start != NULL)
        thread = s->options.thread_start(s->user);
    shed_mutex_lock(&s->mu);
    while (!is_over_locked(s)) {
        if (s->queued == 0 || s->is_gathering ||
            !shed_admission_may_begin(&s->admission))
            pthread_cond_wait(&s->work, &s->mu.mutex);
        else
            load_next_locked(s, thread);
    }
    shed_mutex_unlock(&s->mu);
    if (s->options.thread_stop != NULL)
        s->options.thread_stop(s->user, thread);
    return NULL;
}

/* Queue a job, in a full queue in place of a background one if callers wait for
 * it. Whichever is not queued ends. */
static void queue_locked(struct shed_source *s, struct shed_job *job,
                         struct shed_list *ended)
{
    bool is_full = s->queued >= s->options.queue_limit;
    enum shed_code code;
    struct shed_error why;

    if (is_full &&
        (job->is_background || s->lanes[LANE_BACKGROUND].first == NULL))
        code = shed_fail(&why, SHED_EBUSY,
                         "the source's queue is full: %zu keys wait for a load "
                         "(see its queue_limit)",
                         s->queued);
    else if (!staff_locked(s))
        code = shed_fail(&why, SHED_ENOMEM,
                         "no thread could be started for a load");
    else
        code = shed_admission_pass(&s->admission, true, &why);
    if (code != SHED_OK) {
        end_job(ended, job, code, why.reason);
        return;
    }
    if (is_full) {
        drop_job_locked(s, ended, take_background_locked(s, UINT64_MAX),
                        SHED_EBUSY,
                        "the source's queue is full, and callers go first (see "
                        "its queue_limit)");
    }
    push_locked(s, job);
}

/* There may be more jobs, or the fleet lets loads begin. */
static void go_on_locked(struct shed_source *s)
{
    if (s->queued > 0)
        (void)staff_locked(s);
    wake_locked(s);
}

void shed_source_submit(struct shed_source *s, struct shed_list *jobs)
{
    struct shed_list ended = {NULL, NULL};
    struct shed_job *job;

    shed_mutex_lock(&s->mu);
    while ((job = job_of(shed_list_pop(jobs))) != NULL)
        queue_locked(s, job, &ended);
    go_on_locked(s);
    shed_mutex_unlock(&s->mu);
    settle_all(&ended);
}

void shed_source_hasten(struct shed_source *s, struct shed_job *job)
{
    bool moves;

    shed_mutex_lock(&s->mu);
    moves = job->is_background && job->is_queued;
    if (moves)
        remove_locked(s, job);
    job->is_background = false;
    if (moves)
        push_locked(s, job);
    shed_mutex_unlock(&s->mu);
}

enum shed_code shed_source_ask_breaker(struct shed_source *s,
                                       struct shed_error *err)
{
    enum shed_code code;

    if (s->options.breaker.failure_pct == 0)
        return SHED_OK;
    shed_mutex_lock(&s->mu);
    code = shed_admission_pass(&s->admission, false, err);
    shed_mutex_unlock(&s->mu);
    return code;
}

struct shed_fleet *shed_source_fleet(struct shed_source *s)
{
    return s->admission.fleet;
}

struct shed_callers *shed_source_callers(struct shed_source *s)
{
    return &s->callers;
}

struct shed_source_state shed_source_look(struct shed_source *s)
{
    struct shed_source_state state = {
        .queue_limit = (size_t)s->options.queue_limit,
        .callers = atomic_load(&s->callers.waiting),
        .callers_limit = s->callers.limit};

    shed_mutex_lock(&s->mu);
    state.loads = s->admission.running;
    state.loads_limit = shed_admission_limit(&s->admission);
    state.queued = s->queued;
    state.breaker = shed_breaker_read(&s->admission.breaker, shed_now_ms());
    state.fleet = shed_fleet_look(s->admission.fleet);
    shed_mutex_unlock(&s->mu);
    return state;
}

/* -------------------------------------------------------- begin and end */

SHED_CHECK_OPTIONS(shed_source_options);

static enum shed_code check_options(const struct shed_source_options *o,
                                    struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->max_loads, 1, LOADS_MAX, "source max_loads"},
        {o->max_batch, 1, BATCH_MAX, "source max_batch"},
        {o->batch_wait_ms, 0, BATCH_WAIT_MAX_MS, "source batch_wait_ms"},
        {o->queue_limit, 1, QUEUE_MAX, "source queue_limit"},
        {o->load_timeout_ms, 1, TIMEOUT_MAX_MS, "source load_timeout_ms"},
        {o->adaptive_loads, 0, 1, "source adaptive_loads"},
        {o->callers_limit, 0, QUEUE_MAX, "source callers_limit"},
        {o->fleet_loads, 0, FLEET_LOADS_MAX, "source fleet_loads"},
    };

    enum shed_code code =
        shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);

    if (code == SHED_OK)
        code = shed_breaker_check(&o->breaker, err);
    if (code == SHED_OK && o->fleet_name != NULL)
        code =
            shed_key_check_cache_name(o->fleet_name, "source fleet_name", err);
    return code;
}

/* Make the lock and its condition variables. Returns: whether it could. */
static bool init_sync(struct shed_source *s)
{
    if (shed_mutex_init(&s->mu, SHED_RANK_SOURCE) != 0)
        return false;
    if (shed_cond_init(&s->work) == 0) {
        if (shed_cond_init(&s->grown) == 0)
            return true;
        pthread_cond_destroy(&s->work);
    }
    shed_mutex_destroy(&s->mu);
    return false;
}

/* Exactly one of the functions is not NULL, unless the call is wrong. */
static enum shed_code open_source(shed_load_one_fn *load_one,
                                  shed_load_fn *load, void *user,
                                  const struct shed_source_options *options,
                                  struct shed_source **out,
                                  struct shed_error *err)
{
    struct shed_source_options o = SHED_SOURCE_OPTIONS_INIT;
    struct shed_source *s = NULL;
    struct shed_fleet *fleet;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_source_open: out is NULL");
    *out = NULL;
    if (load_one == NULL && load == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_source_open: load is NULL");
    code = shed_options_take(&o, sizeof(o), options,
                             "struct shed_source_options", err);
    if (code == SHED_OK)
        code = check_options(&o, err);
    if (code != SHED_OK)
        return code;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return shed_fail_nomem(err, "a source");
    s->load_one = load_one;
    s->load = load;
    s->user = user;
    s->pid = shed_process_id();
    s->options = o;
    if (load_one != NULL)
        s->options.max_batch = 1;
    s->callers = (struct shed_callers){(size_t)o.callers_limit, 0};
    s->refs = 1;
    fleet = shed_fleet_create(&s->options, &s->mu, go_on_locked, s);
    shed_admission_init(&s->admission, &s->options, fleet);
    s->threads = calloc((size_t)o.max_loads, sizeof(*s->threads));
    if (fleet == NULL || s->threads == NULL || !init_sync(s)) {
        free(s->threads);
        shed_fleet_destroy(fleet);
        free(s);
        return shed_fail_nomem(err, "a source");
    }
    *out = s;
    return SHED_OK;
}

enum shed_code shed_source_open(shed_load_one_fn *load, void *user,
                                const struct shed_source_options *options,
                                struct shed_source **out,
                                struct shed_error *err)
{
    return open_source(load, NULL, user, options, out, err);
}

enum shed_code shed_source_open_batch(shed_load_fn *load, void *user,
                                      const struct shed_source_options *options,
                                      struct shed_source **out,
                                      struct shed_error *err)
{
    return open_source(NULL, load, user, options, out, err);
}

void shed_source_ref(struct shed_source *s, struct shed_cache *cache)
{
    shed_mutex_lock(&s->mu);
    s->refs++;
    shed_list_append(&s->caches, &cache->in_source);
    shed_mutex_unlock(&s->mu);
}

/* The threads end when nothing is left to do. */
static void *end_source(void *source)
{
    struct shed_source *s = source;

    shed_mutex_lock(&s->mu);
    wake_locked(s);
    for (size_t i = 0; i < s->thread_count; i++) {
        pthread_t thread = s->threads[i];
        shed_mutex_unlock(&s->mu); /* it may have to start another one */
        (void)pthread_join(thread, NULL);
        shed_mutex_lock(&s->mu);
    }
    shed_mutex_unlock(&s->mu);
    if (s->options.on_close != NULL)
        s->options.on_close(s->user);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->grown);
    shed_mutex_destroy(&s->mu);
    free(s->threads);
    shed_fleet_destroy(s->admission.fleet);
    free(s);
    return NULL;
}

void shed_source_unref(struct shed_source *s, struct shed_cache *cache)
{
    bool is_last;

    shed_mutex_lock(&s->mu);
    assert(s->refs > 0);
    if (cache != NULL)
        shed_list_remove(&s->caches, &cache->in_source);
    is_last = --s->refs == 0;
    shed_mutex_unlock(&s->mu);
    if (is_last)
        shed_thread_close(SHED_THREAD_LOOP | SHED_THREAD_LOADER, end_source, s);
}

void shed_source_close(struct shed_source *source)
{
    /* a forked child has none of the threads, and a mutex may be locked there
     * for ever */
    if (source != NULL && source->pid == shed_process_id())
        shed_source_unref(source, NULL);
}

uint64_t shed_source_load_timeout_ms(const struct shed_source *s)
{
    return s->options.load_timeout_ms;
}
