/*
 * The load queue. Its invariants: at most max_loads loads are under way, those
 * included whose function has returned and will answer later; none begins while
 * as many are as the adaptive limit allows, nor while the breaker is open, nor
 * without a slot of the fleet's budget, if the source has one and Redis
 * answers; every job settles exactly once, with no lock held.
 *
 * Design notes
 *
 * The bound is what protects the database: a load counts from the moment when
 * it is taken from the queue until shed_load_done, however long that is and on
 * whatever thread. So queries that were given up on, and still run in the
 * server, count as well, if the source finishes its load only when they have
 * ended.
 *
 * Jobs are queued one by one and made ready all at once, by shed_source_wake.
 * Loaders take ready ones only, so jobs that came together stay together, up to
 * max_batch. A loader that would take less than a full batch while other loads
 * run waits for up to batch_wait_ms (gather_locked); one loader at a time does
 * that, and the others sleep.
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
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/stats.h"
#include "base/thread.h"
#include "source/load_batch.h"
#include "source/load_options.h"
#include "source/load_source.h"

/* How many loads may be under way now. */
static size_t limit_locked(const struct shed_source *s)
{
    return s->options.adaptive_loads != 0
               ? shed_concurrency_limit(&s->concurrency)
               : (size_t)s->options.max_loads;
}

/* Whether a load may begin now, if there is anything to load. */
static bool may_begin_locked(const struct shed_source *s)
{
    return s->running < limit_locked(s) && shed_fleet_may_begin(s->fleet);
}

static size_t ready_locked(const struct shed_source *s)
{
    return shed_load_queue_ready(&s->queue);
}

/* How many loads could begin now, if the fleet's budget allows them. */
static size_t wanted_locked(const struct shed_source *s)
{
    size_t limit = limit_locked(s), batch = (size_t)s->options.max_batch;
    size_t room = limit > s->running ? limit - s->running : 0;
    size_t ready = ready_locked(s);
    size_t batches = ready / batch + (ready % batch > 0);

    return batches < room ? batches : room;
}

/* Wake the thread that has something to do now. */
static void wake_locked(struct shed_source *s)
{
    shed_fleet_want(s->fleet, wanted_locked(s));
    if (s->is_gathering) {
        if (s->running == 0 || ready_locked(s) >= s->options.max_batch)
            pthread_cond_signal(&s->grown);
    } else if (ready_locked(s) > 0 && may_begin_locked(s)) {
        pthread_cond_signal(&s->work);
    }
    if (shed_load_queue_count(&s->queue) == 0 && s->running == 0)
        pthread_cond_broadcast(&s->quiet);
}

/* ------------------------------------------------------ the end of a load */

void shed_load_done(struct shed_load *load)
{
    struct shed_source *s = load->source;
    uint64_t now_us = shed_now_us();
    uint64_t id = shed_load_id(load); /* its keys are gone when it is settled */
    bool has_failed = shed_load_settle(load, now_us - load->start_us);

    shed_fleet_end(s->fleet, load->slot, now_us - load->start_us);
    if (load->count > 0)
        shed_source_learn(s, load, id, has_failed, now_us);
    shed_load_destroy(load);
    pthread_mutex_lock(&s->mu);
    assert(s->running > 0);
    s->running--;
    wake_locked(s);
    pthread_mutex_unlock(&s->mu);
}

/* ------------------------------------------------------------- the batches */

/* Move a job to the list of those whose deadline passed in the queue. */
static void be_late_locked(struct shed_source *s, struct shed_job *job,
                           struct shed_job **late)
{
    job->next = *late;
    *late = job;
    shed_breaker_return(&s->breaker, 1);
}

/* Move jobs from the queue to load, or to the list *late if their deadline has
 * passed. The load's deadline is that of its last job, and at most
 * load_timeout_ms away. */
static void fill_locked(struct shed_source *s, struct shed_load *load,
                        size_t capacity, struct shed_job **late)
{
    uint64_t now_ms = shed_now_ms(), last_ms = 0;
    struct shed_job *job;

    /* which may be for long behind those that go first */
    while ((job = shed_load_queue_drop(&s->queue, now_ms)) != NULL)
        be_late_locked(s, job, late);
    while (load->count < capacity &&
           (job = shed_load_queue_pop(&s->queue)) != NULL) {
        if (job->deadline_ms <= now_ms) {
            be_late_locked(s, job, late);
            continue;
        }
        job->waited_us = load->count == 0 ? load->waited_us : 0;
        if (job->begin != NULL)
            job->begin(job, load->count == 0);
        load->jobs[load->count++] = job;
        if (job->deadline_ms > last_ms)
            last_ms = job->deadline_ms;
    }
    load->deadline_ms = shed_deadline_ms(now_ms, s->options.load_timeout_ms);
    if (last_ms < load->deadline_ms)
        load->deadline_ms = last_ms;
}

/* Wait for the batch to grow. While other loads run the database is busy
 * anyway, so nothing is lost by it: batches grow under an avalanche, and a
 * single miss waits for nothing. */
static void gather_locked(struct shed_source *s)
{
    uint64_t end_ms = shed_deadline_ms(shed_now_ms(), s->options.batch_wait_ms);
    uint64_t left_ms = s->options.batch_wait_ms;

    s->is_gathering = true;
    while (left_ms > 0 && s->running > 0 &&
           ready_locked(s) < s->options.max_batch) {
        shed_cond_wait(&s->grown, &s->mu, left_ms);
        left_ms = shed_left_ms(end_ms, shed_now_ms());
    }
    s->is_gathering = false;
}

/* Settle what is late, then load the rest. */
static void run_batch(struct shed_source *s, struct shed_load *load,
                      struct shed_job *late, void *thread)
{
    for (struct shed_job *next; late != NULL; late = next) {
        next = late->next;
        shed_job_fail(late, SHED_ETIMEDOUT,
                      "the load waited in the queue until its deadline", false);
    }
    load->start_us = shed_now_us();
    if (load->count > 0)
        s->load(s->user, thread, load);
    else
        shed_load_done(load);
}

static void *run_loader(void *arg);

/* Start a loader. (A SIGPIPE that a source raises stays pending in it.) */
static int start_thread_locked(struct shed_source *s)
{
    int failure =
        shed_thread_start(&s->threads[s->thread_count], run_loader, s);

    if (failure == 0) {
        s->thread_count++;
        s->idle++;
    }
    return failure;
}

/* Start a thread if none is idle and there may be one more. Returns: false if
 * there is no thread at all. */
static bool staff_locked(struct shed_source *s)
{
    if (s->idle == 0 && s->thread_count < s->options.max_loads)
        (void)start_thread_locked(s);
    return s->thread_count > 0;
}

/* Without memory for a load one job fails, so that there is progress. */
static void fail_first_locked(struct shed_source *s)
{
    struct shed_job *job = shed_load_queue_pop(&s->queue);

    shed_breaker_return(&s->breaker, 1);
    s->running++;
    pthread_mutex_unlock(&s->mu);
    shed_job_fail(job, SHED_ENOMEM, "out of memory for a load", false);
    pthread_mutex_lock(&s->mu);
    s->running--;
    wake_locked(s);
}

/* Take a batch and load it. A load counts as running from here to its
 * shed_load_done; this thread is without one when its function returns. */
static void load_next_locked(struct shed_source *s, void *thread)
{
    struct shed_job *late = NULL;
    struct shed_load *load = NULL;
    size_t capacity;

    gather_locked(s);
    /* the breaker has opened meanwhile */
    if (ready_locked(s) == 0 || !shed_fleet_may_begin(s->fleet))
        return;
    capacity = ready_locked(s) < s->options.max_batch
                   ? ready_locked(s)
                   : (size_t)s->options.max_batch;
    load = shed_load_create(s, capacity);
    if (load == NULL) {
        fail_first_locked(s);
        return;
    }
    load->slot = shed_fleet_begin(s->fleet, &load->waited_us);
    fill_locked(s, load, capacity, &late);
    load->alive = ++s->running;
    load->number = ++s->begun;
    load->term = s->breaker.term;
    load->is_probe = s->breaker.state == SHED_BREAKER_HALF_OPEN;
    assert(s->running <= s->options.max_loads && s->idle > 0);
    s->idle--;
    if (ready_locked(s) > 0 && may_begin_locked(s))
        (void)staff_locked(s);
    wake_locked(s);
    pthread_mutex_unlock(&s->mu);
    run_batch(s, load, late, thread);
    pthread_mutex_lock(&s->mu);
    s->idle++;
}

static void *run_loader(void *arg)
{
    struct shed_source *s = arg;
    void *thread = NULL;

    shed_thread_mark(SHED_THREAD_LOADER);
    if (s->options.thread_start != NULL)
        thread = s->options.thread_start(s->user);
    pthread_mutex_lock(&s->mu);
    while (!s->is_stopping) {
        if (ready_locked(s) == 0 || s->is_gathering || !may_begin_locked(s))
            pthread_cond_wait(&s->work, &s->mu);
        else
            load_next_locked(s, thread);
    }
    pthread_mutex_unlock(&s->mu);
    if (s->options.thread_stop != NULL)
        s->options.thread_stop(s->user, thread);
    return NULL;
}

/* Whether the queue takes one more job, in the place of another if need be. */
static bool has_room_locked(const struct shed_source *s,
                            const struct shed_job *job)
{
    return shed_load_queue_count(&s->queue) < s->options.queue_limit ||
           (!job->is_behind && s->queue.behind.count > 0);
}

/* Returns: the job whose place it takes, or NULL. */
static struct shed_job *push_locked(struct shed_source *s, struct shed_job *job)
{
    struct shed_job *dropped = NULL;

    if (shed_load_queue_count(&s->queue) >= s->options.queue_limit) {
        dropped = shed_load_queue_drop(&s->queue, UINT64_MAX);
        shed_breaker_return(&s->breaker, 1);
    }
    shed_load_queue_push(&s->queue, job);
    return dropped;
}

enum shed_code shed_source_queue(struct shed_source *s, struct shed_job *job,
                                 struct shed_error *err)
{
    enum shed_code code = SHED_OK;
    struct shed_job *dropped = NULL;

    pthread_mutex_lock(&s->mu);
    if (!has_room_locked(s, job))
        code = shed_fail(err, SHED_EBUSY,
                         "the source's queue is full: %zu keys wait for a load "
                         "(see its queue_limit)",
                         shed_load_queue_count(&s->queue));
    else if (!staff_locked(s))
        code = shed_fail(err, SHED_ENOMEM,
                         "no thread could be started for a load");
    else if (!shed_breaker_pass(&s->breaker, shed_now_ms()))
        code = shed_source_fail_open(s, err);
    if (code == SHED_OK)
        dropped = push_locked(s, job);
    pthread_mutex_unlock(&s->mu);
    if (dropped != NULL)
        shed_job_fail(dropped, SHED_EBUSY,
                      "the source's queue is full, and callers go first (see "
                      "its queue_limit)",
                      true);
    return code;
}

/* What is ready may have become more. */
static void go_on_locked(struct shed_source *s)
{
    /* a thread that was idle when they were queued may have taken others */
    if (ready_locked(s) > 0)
        (void)staff_locked(s);
    wake_locked(s);
}

void shed_source_wake(struct shed_source *s)
{
    pthread_mutex_lock(&s->mu);
    shed_load_queue_wake(&s->queue);
    go_on_locked(s);
    pthread_mutex_unlock(&s->mu);
}

void shed_source_hasten(struct shed_source *s, struct shed_job *job)
{
    pthread_mutex_lock(&s->mu);
    if (shed_load_queue_hasten(&s->queue, job))
        go_on_locked(s);
    pthread_mutex_unlock(&s->mu);
}

/* The fleet lets loads begin. */
static void go_on(struct shed_source *s)
{
    pthread_mutex_lock(&s->mu);
    go_on_locked(s);
    pthread_mutex_unlock(&s->mu);
}

enum shed_code shed_source_submit(struct shed_source *s, struct shed_job *job,
                                  struct shed_error *err)
{
    enum shed_code code = shed_source_queue(s, job, err);

    if (code == SHED_OK)
        shed_source_wake(s);
    return code;
}

struct shed_fleet *shed_source_fleet(struct shed_source *s)
{
    return s->fleet;
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
        .callers_limit = s->callers.limit,
        .fleet = shed_fleet_look(s->fleet)};

    pthread_mutex_lock(&s->mu);
    state.loads = s->running;
    state.loads_limit = limit_locked(s);
    state.queued = shed_load_queue_count(&s->queue);
    state.breaker = shed_breaker_read(&s->breaker, shed_now_ms());
    pthread_mutex_unlock(&s->mu);
    return state;
}

enum shed_code shed_source_status_read(struct shed_source *source,
                                       struct shed_source_status *out,
                                       size_t size, struct shed_error *err)
{
    struct shed_source_status all = {0};
    struct shed_breaker_status breaker;
    enum shed_code code = shed_stats_check("shed_source_status_read", source,
                                           out, size, sizeof(all), err);

    if (code != SHED_OK)
        return code;
    if (source->pid != getpid())
        return shed_fail(err, SHED_EFORKED,
                         "the source was opened before this process was "
                         "forked: open a new one");
    breaker = shed_source_look(source).breaker;
    all.breaker = breaker.state;
    all.breaker_opened = breaker.openings;
    all.breaker_left_ms = breaker.left_ms;
    memcpy(out, &all, size);
    return SHED_OK;
}

/* -------------------------------------------------------- begin and end */

/* Make the lock and its condition variables. Returns: 0, or an errno. */
static int init_sync(struct shed_source *s)
{
    enum { CONDITIONS = 3 };
    pthread_cond_t *conds[CONDITIONS] = {&s->work, &s->grown, &s->quiet};
    size_t made = 0;
    int failure = pthread_mutex_init(&s->mu, NULL);

    if (failure != 0)
        return failure;
    while (made < CONDITIONS && failure == 0) {
        failure = shed_cond_init(conds[made]);
        if (failure == 0)
            made++;
    }
    if (failure == 0)
        return 0;
    while (made > 0)
        pthread_cond_destroy(conds[--made]);
    pthread_mutex_destroy(&s->mu);
    return failure;
}

enum shed_code shed_source_open(shed_load_fn *load, void *user,
                                const struct shed_source_options *options,
                                struct shed_source **out,
                                struct shed_error *err)
{
    struct shed_source_options o = SHED_SOURCE_OPTIONS_INIT;
    struct shed_source *s = NULL;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_source_open: out is NULL");
    *out = NULL;
    if (load == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_source_open: load is NULL");
    code = shed_source_options_take(&o, options, err);
    if (code != SHED_OK)
        return code;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        goto fail;
    s->load = load;
    s->user = user;
    s->pid = getpid();
    s->options = o;
    s->callers = (struct shed_callers){(size_t)o.callers_limit,
                                       (size_t)o.key_callers_limit, 0};
    s->refs = 1;
    shed_load_queue_init(&s->queue);
    shed_concurrency_init(&s->concurrency, (size_t)o.max_loads);
    shed_source_options_breaker(&o, &s->breaker, shed_now_ms());
    if (o.fleet_loads > 0) {
        s->fleet = shed_fleet_create(&s->options, go_on, s);
        if (s->fleet == NULL)
            goto fail;
    }
    s->threads = calloc((size_t)o.max_loads, sizeof(*s->threads));
    if (s->threads == NULL || init_sync(s) != 0)
        goto fail;
    *out = s;
    return SHED_OK;

fail:
    if (s != NULL) {
        free(s->threads);
        shed_fleet_destroy(s->fleet);
    }
    free(s);
    return shed_fail_nomem(err, "a source");
}

void shed_source_ref(struct shed_source *s)
{
    pthread_mutex_lock(&s->mu);
    s->refs++;
    pthread_mutex_unlock(&s->mu);
}

static void destroy_source(struct shed_source *s)
{
    for (size_t i = 0; i < s->thread_count; i++)
        (void)pthread_join(s->threads[i], NULL);
    if (s->options.on_close != NULL)
        s->options.on_close(s->user);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->grown);
    pthread_cond_destroy(&s->quiet);
    pthread_mutex_destroy(&s->mu);
    free(s->threads);
    shed_fleet_destroy(s->fleet);
    free(s);
}

/* Wait for loads under way, then end. */
static void *end_source(void *source)
{
    struct shed_source *s = source;

    pthread_mutex_lock(&s->mu);
    while (shed_load_queue_count(&s->queue) > 0 || s->running > 0)
        pthread_cond_wait(&s->quiet, &s->mu);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mu);
    destroy_source(s);
    return NULL;
}

void shed_source_unref(struct shed_source *s)
{
    bool is_last;

    pthread_mutex_lock(&s->mu);
    assert(s->refs > 0);
    is_last = --s->refs == 0;
    pthread_mutex_unlock(&s->mu);
    if (is_last)
        shed_thread_close(SHED_THREAD_LOOP | SHED_THREAD_LOADER, end_source, s);
}

void shed_source_close(struct shed_source *source)
{
    /* a forked child has none of the threads, and a mutex may be locked there
     * for ever */
    if (source != NULL && source->pid == getpid())
        shed_source_unref(source);
}

uint64_t shed_source_load_timeout_ms(const struct shed_source *s)
{
    return s->options.load_timeout_ms;
}
