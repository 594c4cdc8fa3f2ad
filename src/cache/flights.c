/*
 * Flights under way. Its invariants: a flight's machine is stepped on the
 * reactor thread only; a flight is freed only when it is over, out of the
 * table, and nothing that was sent for it is still to come back.
 */
#include "cache/flights.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"

/* A lease record outlives the longest load, by as much as it takes to publish
 * what was loaded. */
#define RECORD_MARGIN_MS 5000

struct shed_flights {
    /* set at creation */
    struct shed_airport *airport;
    struct shed_source *source;
    struct shed_cache_options options;
    struct shed_counters *counters;
    struct shed_flight_policy policy;
    struct shed_flight_redis_settings settings;
    struct shed_timer *wake; /* wakes the source after a turn of the loop */

    pthread_mutex_t mu;
    pthread_cond_t idle;
    /* under mu */
    size_t runs;
};

/* One flight, its callers, and what it is made of. */
struct run {
    struct shed_waiters waiters; /* first: a run is found by its waiters */
    struct shed_flights *flights;
    struct shed_post post; /* its start, or its load's end */
    struct shed_key key;   /* redis points behind this struct */
    /* reactor thread only */
    struct shed_flight flight;
    struct shed_flight_redis exchange; /* with Redis */
    struct shed_timer *timer;
    uint64_t load_request;
    bool is_loading;
    /* handed over with post */
    struct shed_job job;
    struct shed_loaded loaded;
};

static void drive(struct run *run, struct shed_flight_event event);

/* ---------------------------------------------------------------- answers */

static void give(struct shed_caller *caller, struct shed_value *value,
                 const struct shed_error *error)
{
    if (value != NULL) {
        caller->code = SHED_OK;
        caller->value = shed_value_ref(value);
    } else {
        caller->code = error->code;
        caller->error = *error;
    }
    shed_latch_count_down(caller->latch, 1); /* caller is gone now */
}

static void answer(struct run *run, enum shed_flight_answer what, uint64_t upto)
{
    struct shed_value *value = NULL;
    struct shed_caller *caller, *next;

    if (what == SHED_ANSWER_ENTRY)
        value = run->exchange.entry;
    else if (what != SHED_ANSWER_FAILURE)
        value = run->loaded.value;
    if (what == SHED_ANSWER_LOADED)
        value->origin = SHED_FROM_LOAD;
    caller = shed_table_take(run->flights->airport->table, &run->waiters, upto);
    for (; caller != NULL; caller = next) {
        next = caller->next;
        give(caller, value, &run->exchange.error);
    }
}

static void drop_loaded(struct run *run)
{
    shed_value_unref(run->loaded.value);
    run->loaded.value = NULL;
}

/* ---------------------------------------------------------------- the load */

static void count_load(struct shed_counters *c, const struct shed_loaded *l)
{
    if (l->batch_keys > 0) {
        shed_count(&c->loads, 1);
        shed_histogram_add(&c->load_us, l->cost_us);
        shed_histogram_add(&c->batch_keys, l->batch_keys);
    }
    shed_count(&c->loaded_keys, 1);
    if (l->value == NULL)
        shed_count(&c->load_failures, 1);
}

static void on_loaded(struct shed_post *post)
{
    struct run *run =
        (struct run *)(void *)((char *)post - offsetof(struct run, post));
    struct shed_flight_event event = {.type = SHED_EV_LOADED,
                                      .request = run->load_request};

    run->is_loading = false;
    count_load(run->flights->counters, &run->loaded);
    if (run->loaded.value == NULL) {
        event.type = SHED_EV_LOAD_FAILED;
        run->exchange.error = run->loaded.error;
    }
    drive(run, event);
}

static void settle(struct shed_job *job, struct shed_loaded *loaded)
{
    struct run *run =
        (struct run *)(void *)((char *)job - offsetof(struct run, job));

    run->loaded = *loaded;
    run->post.run = on_loaded;
    shed_reactor_post(run->flights->airport->reactor, &run->post);
}

/* Returns: false if the source refused. */
static bool start_load(struct run *run, uint64_t request)
{
    const struct shed_flights *r = run->flights;

    drop_loaded(run);
    run->load_request = request;
    run->job = (struct shed_job){
        .key = run->key.redis + run->key.at,
        .key_size = run->key.size,
        .deadline_ms =
            shed_deadline_ms(shed_now_ms(), r->policy.load_timeout_ms),
        .value_limit_bytes = (size_t)r->options.value_limit_bytes,
        .settle = settle};
    if (shed_source_queue(r->source, &run->job, &run->exchange.error) !=
        SHED_OK)
        return false;
    run->is_loading = true;
    shed_timer_set(r->wake, 0); /* with what else this turn brings */
    return true;
}

static void wake_source(void *arg)
{
    struct shed_flights *r = arg;

    shed_source_wake(r->source);
}

/* --------------------------------------------------------------- the drive */

static void destroy(struct run *run)
{
    struct shed_flights *r = run->flights;

    shed_flight_redis_fini(&run->exchange);
    drop_loaded(run);
    shed_timer_destroy(run->timer);
    free(run);
    pthread_mutex_lock(&r->mu);
    if (--r->runs == 0)
        pthread_cond_broadcast(&r->idle);
    pthread_mutex_unlock(&r->mu);
}

/* Returns: false if it is out of the table, to be freed when the last call is
 * back; true if somebody came in the last moment. */
static bool goes_on(struct run *run)
{
    if (run->waiters.key == NULL)
        return false; /* out of the table already */
    if (!shed_table_remove(run->flights->airport->table, &run->waiters))
        return true;
    run->waiters.key = NULL;
    return false;
}

static void perform(struct run *run, const struct shed_flight_act *act,
                    struct shed_flight_event *next)
{
    if (act->detach)
        shed_table_detach_waiters(run->flights->airport->table, &run->waiters);
    if (act->answer != SHED_ANSWER_NOTHING)
        answer(run, act->answer, act->answer_upto);
    if (act->set_timer)
        shed_timer_set(run->timer, act->timer_ms);
    switch (act->send) {
    case SHED_SEND_NOTHING:
        break;
    case SHED_SEND_LOAD:
        if (!start_load(run, act->request))
            *next = (struct shed_flight_event){.type = SHED_EV_LOAD_REFUSED,
                                               .request = act->request};
        break;
    case SHED_SEND_RENEW:
        shed_flight_redis_renew(&run->exchange, act->request);
        break;
    case SHED_SEND_ACQUIRE:
    case SHED_SEND_PUBLISH:
    case SHED_SEND_FAIL:
    case SHED_SEND_RELEASE:
        shed_flight_redis_send(&run->exchange, act->send, act->request);
        break;
    }
}

static void drive(struct run *run, struct shed_flight_event event)
{
    const struct shed_flight_event none = {.type = SHED_EV_START};
    bool again = true;

    while (again) {
        struct shed_flight_event next = none;
        struct shed_flight_act act;
        if (run->waiters.key != NULL)
            run->flight.newest =
                shed_table_newest(run->flights->airport->table, &run->waiters);
        run->flight.has_pushes =
            shed_session_is_on(run->flights->airport->session);
        act = shed_flight_step(&run->flight, &event, shed_now_ms(),
                               shed_random_jitter());
        if (event.type == SHED_EV_WAIT && run->flight.waits == 1)
            shed_count(&run->flights->counters->waits, 1);
        /* one that was invalidated has a counter of its own */
        if (act.answer == SHED_ANSWER_UNPUBLISHED &&
            event.type != SHED_EV_INVALIDATED)
            shed_count(&run->flights->counters->unpublished, 1);
        perform(run, &act, &next);
        event = next;
        again = next.type != SHED_EV_START ||
                (run->flight.state == SHED_FLIGHT_OVER && goes_on(run));
    }
    if (run->waiters.key == NULL &&
        !shed_flight_redis_is_busy(&run->exchange) && !run->is_loading)
        destroy(run);
}

static void on_event(void *arg, struct shed_flight_event event)
{
    drive(arg, event);
}

static void on_timer(void *arg)
{
    struct run *run = arg;

    if (run->flight.state == SHED_FLIGHT_ABANDONED ||
        run->flight.state == SHED_FLIGHT_OVER)
        return;
    if (run->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&run->flights->counters->polls, 1);
    if (run->flight.state == SHED_FLIGHT_LOADING &&
        shed_now_ms() >= run->flight.load_deadline_ms)
        (void)shed_fail(&run->exchange.error, SHED_ESOURCE,
                        "the source has not answered within its load timeout");
    drive(run, (struct shed_flight_event){.type = SHED_EV_TIMER});
}

static void push(struct run *run)
{
    if (run->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&run->flights->counters->pushes, 1);
    if (run->flight.state == SHED_FLIGHT_WAITING ||
        run->flight.state == SHED_FLIGHT_ACQUIRING)
        drive(run, (struct shed_flight_event){.type = SHED_EV_PUSH});
}

void shed_flights_on_change(void *arg, const char *key, size_t size)
{
    struct shed_airport *airport = arg;
    struct shed_waiters *waiters =
        shed_table_next_of(airport->table, NULL, key, size);

    while (waiters != NULL) {
        struct shed_waiters *next =
            shed_table_next_of(airport->table, waiters, key, size);
        push((struct run *)(void *)waiters);
        waiters = next;
    }
}

static void push_waiters(struct shed_waiters *waiters)
{
    push((struct run *)(void *)waiters);
}

void shed_flights_on_epoch(void *arg)
{
    struct shed_airport *airport = arg;

    shed_table_each(airport->table, push_waiters);
}

/* -------------------------------------------------------- begin and end */

static void start(struct shed_post *post)
{
    struct run *run =
        (struct run *)(void *)((char *)post - offsetof(struct run, post));
    struct shed_session *session = run->flights->airport->session;

    /* a lease that names no channel outlives its holder */
    if (!shed_session_is_settled(session)) {
        shed_session_await(session, post);
        return;
    }
    run->timer =
        shed_timer_create(run->flights->airport->reactor, on_timer, run);
    if (run->timer == NULL) {
        (void)shed_fail_nomem(&run->exchange.error, "a flight's timer");
        do
            answer(run, SHED_ANSWER_FAILURE, UINT64_MAX);
        while (goes_on(run));
        destroy(run);
        return;
    }
    drive(run, (struct shed_flight_event){.type = SHED_EV_START});
}

static struct run *create_run(struct shed_flights *r,
                              const struct shed_key *key)
{
    struct run *run = calloc(1, sizeof(*run) + key->redis_size);

    if (run == NULL)
        return NULL;
    memcpy(run + 1, key->redis, key->redis_size);
    run->key = *key;
    run->key.redis = (char *)(run + 1);
    run->waiters.key = run->key.redis;
    run->waiters.key_size = key->redis_size;
    run->flights = r;
    run->post.run = start;
    run->exchange =
        (struct shed_flight_redis){.settings = &r->settings,
                                   .key = {run->key.redis, run->key.redis_size},
                                   .loaded = &run->loaded,
                                   .on_event = on_event,
                                   .arg = run};
    shed_entry_put_u64(run->exchange.number,
                       atomic_fetch_add(&r->airport->last_flight, 1) + 1);
    shed_flight_init(&run->flight, &r->policy);
    return run;
}

int shed_flights_join(struct shed_flights *r, const struct shed_key *key,
                      struct shed_caller *caller, struct shed_post **starts,
                      struct shed_error *err)
{
    struct shed_table *table = r->airport->table;
    struct run *run;

    if (shed_table_join(table, key->redis, key->redis_size, caller)) {
        shed_count(&r->counters->joins, 1);
        return SHED_OK;
    }
    run = create_run(r, key);
    if (run == NULL)
        return shed_fail_nomem(err, "a flight");
    pthread_mutex_lock(&r->mu);
    r->runs++;
    pthread_mutex_unlock(&r->mu);
    if (shed_table_insert(table, &run->waiters, caller)) {
        run->post.next = *starts;
        *starts = &run->post;
        return SHED_OK;
    }
    shed_count(&r->counters->joins, 1);
    destroy(run);
    return SHED_OK;
}

void shed_flights_start(struct shed_flights *r, struct shed_post *starts)
{
    shed_reactor_post_all(r->airport->reactor, starts);
}

static void create_timer(void *arg)
{
    struct shed_flights *r = arg;

    r->wake = shed_timer_create(r->airport->reactor, wake_source, r);
}

static void destroy_timer(void *arg)
{
    struct shed_flights *r = arg;

    shed_timer_destroy(r->wake);
}

int shed_flights_create(struct shed_airport *airport,
                        struct shed_source *source,
                        const struct shed_cache_options *options,
                        struct shed_counters *counters,
                        struct shed_flights **out, struct shed_error *err)
{
    struct shed_flights *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (r == NULL)
        return shed_fail_nomem(err, "a cache");
    r->airport = airport;
    r->source = source;
    r->options = *options;
    r->counters = counters;
    r->policy = (struct shed_flight_policy){
        .lease_ms = options->lease_ms,
        .load_timeout_ms = shed_source_load_timeout_ms(source),
        .load_when_down = options->redis_down == SHED_DOWN_SOURCE};
    shed_flight_redis_settings_init(
        &r->settings, airport->session, airport->process, &r->options, counters,
        r->policy.load_timeout_ms + options->lease_ms + RECORD_MARGIN_MS);
    if (pthread_mutex_init(&r->mu, NULL) != 0)
        goto fail;
    if (shed_cond_init(&r->idle) != 0)
        goto fail_mutex;
    shed_reactor_run(airport->reactor, create_timer, r);
    if (r->wake == NULL)
        goto fail_cond;
    *out = r;
    return SHED_OK;

fail_cond:
    pthread_cond_destroy(&r->idle);
fail_mutex:
    pthread_mutex_destroy(&r->mu);
fail:
    free(r);
    return shed_fail_nomem(err, "a cache");
}

void shed_flights_close(struct shed_flights *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->mu);
    while (r->runs > 0)
        pthread_cond_wait(&r->idle, &r->mu);
    pthread_mutex_unlock(&r->mu);
    shed_reactor_run(r->airport->reactor, destroy_timer, r);
    pthread_cond_destroy(&r->idle);
    pthread_mutex_destroy(&r->mu);
    free(r);
}
