/*
 * Flights under way. Its invariants: a flight's machine is stepped on the
 * reactor thread only; a flight is freed only when it is over, out of the
 * table, and nothing that was sent for it is still to come back.
 *
 * Design notes
 *
 * A task is a flight with what it is driven by: its callers (table.h), its
 * calls to Redis (flight_redis.h), its timer and its load. drive() is the only
 * place that steps a machine. It gives it one event, performs what comes out,
 * in the order of the fields, and goes on while performing has made another
 * event at once: a load that the source refused, or a caller that joined while
 * the flight was ending. Everything else comes back later, as a reply, a timer,
 * a push or a post, so drive() is never entered twice.
 *
 * Callers join from their own threads, under a lock of the table, while the
 * machine runs. They meet at one number: before each step the machine is told
 * the number of the newest caller. At the end the flight is taken out of the
 * table only if nobody waits there, under the same lock, so a caller either is
 * answered by this flight or finds no flight and makes one.
 *
 * A task is made and put into the table by a caller's thread, and started by a
 * post. Tasks that one call has made are posted together; a load that a step
 * wants is queued, and the source is woken by a timer of 0 ms, after everything
 * else of this turn of the loop. So keys that were asked for together, or whose
 * leases were granted together, are loaded in one batch.
 */
#include "cache/flights.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"
#include "cache/flight_load.h"

/* A lease record outlives the longest load, by as much as it takes to publish
 * what was loaded. */
#define RECORD_MARGIN_MS 5000

/* After a refresh that failed the process tries again once the failure marker
 * is gone, and not at each hit while Redis refuses the lease. */
#define PAUSE_MIN_MS 200

struct shed_flights {
    /* set at creation */
    struct shed_client *client;
    struct shed_cache_options options;
    struct shed_counters *counters;
    struct shed_flight_policy policy;
    struct shed_flight_redis_settings settings;
    struct shed_flight_load_settings loads;
    struct shed_table *table;
    struct shed_listener listener; /* of the cache's keys */
    char prefix[SHED_NAME_MAX_BYTES + 2];
    /* reactor thread only */
    bool is_closing;
    struct shed_pace pace;

    pthread_mutex_t mu;
    pthread_cond_t idle;
    /* under mu */
    size_t tasks;
};

/* One flight, its callers, and what it is driven by. */
struct task {
    struct shed_waiters waiters;
    struct shed_flights *flights;
    struct shed_post post; /* its start */
    struct shed_key key;   /* its redis points behind this struct */
    /* reactor thread only */
    struct shed_flight flight;
    struct shed_flight_redis exchange; /* with Redis */
    struct shed_flight_load load;
    struct shed_timer *timer;
    /* set at creation */
    bool is_behind;
    bool is_revoked; /* the value in Redis is a miss by one of its groups */
};

/* ---------------------------------------------------------------- answers */

/* Nobody has the value yet. */
static void set_origin(const struct task *task,
                       const struct shed_flight_act *act,
                       struct shed_value *value)
{
    if (act->has_waited && value->origin == SHED_ORIGIN_REDIS)
        value->origin = SHED_ORIGIN_WAITED;
    if (act->answer == SHED_ANSWER_LOADED) {
        value->origin = SHED_ORIGIN_LOAD;
        value->fresh_ms = task->exchange.fresh_ms;
    }
}

static void answer(struct task *task, const struct shed_flight_act *act)
{
    struct shed_value *value = NULL;
    bool is_anybody;

    if (act->answer == SHED_ANSWER_ENTRY)
        value = task->exchange.entry;
    else if (act->answer != SHED_ANSWER_FAILURE)
        value = task->load.loaded.value;
    if (value != NULL)
        set_origin(task, act, value);
    is_anybody =
        shed_table_answer(task->flights->table, &task->waiters,
                          act->answer_upto, value, &task->exchange.error);
    assert(!is_anybody || value == NULL || value != task->load.loaded.value ||
           !task->load.loaded.is_unmodified);
    (void)is_anybody;
}

/* --------------------------------------------------------------- the drive */

static void destroy(struct task *task)
{
    struct shed_flights *fs = task->flights;

    assert(!shed_flight_redis_is_busy(&task->exchange));
    shed_flight_redis_fini(&task->exchange);
    shed_flight_load_fini(&task->load);
    shed_timer_destroy(task->timer);
    free(task);
    pthread_mutex_lock(&fs->mu);
    assert(fs->tasks > 0);
    if (--fs->tasks == 0)
        pthread_cond_broadcast(&fs->idle);
    pthread_mutex_unlock(&fs->mu);
}

/* The flight is over: take it out of the table. Returns: false if it is out,
 * to be freed when its last call is back; true if a caller joined just now. */
static bool goes_on(struct task *task)
{
    if (task->waiters.key == NULL)
        return false; /* out of the table already */
    if (!shed_table_remove(task->flights->table, &task->waiters))
        return true;
    task->waiters.key = NULL;
    return false;
}

/* The position comes before the load, so that the row has all that was
 * committed before that invalidation. The source is not told the version of a
 * revoked row: "unmodified" would renew the entry, and not its position. */
static bool start_load(struct task *task, uint64_t request)
{
    const struct shed_row_version none = {.is_known = false};
    struct shed_group_log *groups = task->flights->settings.groups;

    if (groups != NULL)
        task->exchange.position = task->load.position =
            shed_group_log_position(groups);
    return shed_flight_load_start(&task->load, request,
                                  task->is_revoked ? none
                                                   : task->exchange.old_version,
                                  &task->exchange.error);
}

static void perform(struct task *task, const struct shed_flight_act *act,
                    struct shed_flight_event *next)
{
    if (act->detach)
        shed_table_detach_waiters(task->flights->table, &task->waiters);
    if (act->answer != SHED_ANSWER_NOTHING)
        answer(task, act);
    if (act->set_timer)
        shed_timer_set(task->timer, act->timer_ms);
    switch (act->send) {
    case SHED_SEND_NOTHING:
        break;
    case SHED_SEND_LOAD:
        if (!start_load(task, act->request))
            *next = (struct shed_flight_event){.type = SHED_EV_LOAD_REFUSED,
                                               .request = act->request};
        break;
    case SHED_SEND_RENEW:
        shed_flight_redis_renew(&task->exchange, act->request);
        break;
    case SHED_SEND_PUBLISH:
        task->exchange.has_callers = task->flight.newest > 0;
        shed_flight_redis_send(&task->exchange, act->send, act->request);
        break;
    case SHED_SEND_ACQUIRE:
    case SHED_SEND_FAIL:
    case SHED_SEND_RELEASE:
        task->exchange.has_waited = shed_flight_has_waited(&task->flight);
        shed_flight_redis_send(&task->exchange, act->send, act->request);
        break;
    }
}

/* Redis could not take what was loaded. */
static void note_unpublished(const struct task *task)
{
    const struct shed_error *why = &task->exchange.error;

    shed_count(&task->flights->counters->unpublished, 1);
    shed_flight_redis_tell(&task->exchange, SHED_EVENT_PUBLISH_REFUSED,
                           why->code != SHED_OK ? why->code : SHED_EREDIS, 0,
                           why->reason);
}

/* What the source does is noted where the load is queued and begun. A waiter
 * looks in Redis from time to time, which is not what it waits for. */
static void note_awaited(struct task *task)
{
    const struct shed_flight *f = &task->flight;
    bool is_loading = f->state == SHED_FLIGHT_LOADING;
    bool is_asking =
        f->state == SHED_FLIGHT_WAITING || f->state == SHED_FLIGHT_ACQUIRING;
    bool has_holder = is_asking && f->waits > 0 && f->troubles == 0;

    atomic_store(&task->waiters.load_began_ms,
                 has_holder || is_loading ? f->leased_ms : UINT64_MAX);
    if (!is_loading)
        atomic_store(&task->waiters.awaited,
                     has_holder ? SHED_AWAITS_HOLDER : SHED_AWAITS_REDIS);
}

static void drive(struct task *task, struct shed_flight_event event)
{
    bool again = true;

    assert(shed_reactor_is_current(task->flights->client->reactor));
    while (again) {
        struct shed_flight_event next = {.type = SHED_EV_START};
        struct shed_flight_act act;
        if (task->waiters.key != NULL)
            task->flight.newest =
                shed_table_newest(task->flights->table, &task->waiters);
        task->flight.has_pushes =
            shed_session_is_on(task->flights->client->session);
        /* a cache that is being closed waits for loads, for nothing else */
        task->flight.is_behind = task->is_behind && !task->flights->is_closing;
        act = shed_flight_step(&task->flight, &event, shed_now_ms(),
                               shed_random_jitter());
        if (event.type == SHED_EV_WAIT && task->flight.waits == 1 &&
            !task->is_behind)
            shed_count(&task->flights->counters->waits, 1);
        /* one that was invalidated is counted where that is heard */
        if (act.answer == SHED_ANSWER_UNPUBLISHED &&
            event.type != SHED_EV_INVALIDATED)
            note_unpublished(task);
        note_awaited(task);
        perform(task, &act, &next);
        event = next;
        again = next.type != SHED_EV_START ||
                (task->flight.state == SHED_FLIGHT_OVER && goes_on(task));
    }
    if (task->waiters.key == NULL &&
        !shed_flight_redis_is_busy(&task->exchange) && !task->load.is_busy)
        destroy(task);
}

static void on_event(void *arg, struct shed_flight_event event)
{
    drive(arg, event);
}

static void on_load(void *arg, struct shed_flight_event event)
{
    struct task *task = arg;

    if (event.type != SHED_EV_LOADED)
        task->exchange.error = task->load.loaded.error;
    drive(task, event);
}

static void on_timer(void *arg)
{
    struct task *task = arg;

    if (task->flight.state == SHED_FLIGHT_ABANDONED ||
        task->flight.state == SHED_FLIGHT_OVER)
        return;
    if (task->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&task->flights->counters->polls, 1);
    if (task->flight.state == SHED_FLIGHT_LOADING &&
        shed_now_ms() >= task->flight.load_deadline_ms)
        (void)shed_fail(&task->exchange.error, SHED_ESOURCE,
                        "the source has not answered within its load timeout");
    drive(task, (struct shed_flight_event){.type = SHED_EV_TIMER});
}

static void push(struct task *task)
{
    if (task->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&task->flights->counters->pushes, 1);
    if (task->flight.state == SHED_FLIGHT_WAITING ||
        task->flight.state == SHED_FLIGHT_ACQUIRING)
        drive(task, (struct shed_flight_event){.type = SHED_EV_PUSH});
}

static struct shed_flights *flights_of(struct shed_listener *listener)
{
    return shed_container_of(listener, struct shed_flights, listener);
}

static void on_change(struct shed_listener *listener, const char *key,
                      size_t key_size)
{
    struct shed_table *table = flights_of(listener)->table;
    size_t size = shed_entry_key_size(key, key_size);
    struct shed_waiters *waiters = shed_table_next_of(table, NULL, key, size);

    while (waiters != NULL) {
        struct shed_waiters *next =
            shed_table_next_of(table, waiters, key, size);
        push(shed_container_of(waiters, struct task, waiters));
        waiters = next;
    }
}

static void push_waiters(struct shed_waiters *waiters)
{
    push(shed_container_of(waiters, struct task, waiters));
}

static void on_epoch(struct shed_listener *listener)
{
    shed_table_each(flights_of(listener)->table, push_waiters);
}

/* -------------------------------------------------------- begin and end */

static void start(struct shed_post *post)
{
    struct task *task = shed_container_of(post, struct task, post);
    struct shed_session *session = task->flights->client->session;

    /* until then a lease could not name our channel, and would not be taken
       over if we died */
    if (!shed_session_is_settled(session)) {
        shed_session_await(session, post);
        return;
    }
    drive(task, (struct shed_flight_event){.type = SHED_EV_START});
}

static struct task *create_task(struct shed_flights *fs,
                                const struct shed_key *key)
{
    struct task *task = calloc(1, sizeof(*task) + key->redis_size +
                                      SHED_ENTRY_REFRESH_SUFFIX_BYTES);
    size_t refresh_size;
    char *name;

    if (task == NULL)
        return NULL;
    task->timer = shed_timer_create(fs->client->reactor, on_timer, task);
    if (task->timer == NULL) {
        free(task);
        return NULL;
    }
    name = (char *)(task + 1);
    refresh_size = shed_entry_refresh_key(key->redis, key->redis_size, name);
    task->key = *key;
    task->key.redis = name;
    task->waiters.key = task->key.redis;
    task->waiters.key_size = key->redis_size;
    task->flights = fs;
    task->post.run = start;
    task->exchange = (struct shed_flight_redis){
        .settings = &fs->settings,
        .key = {task->key.redis, task->key.redis_size},
        .refresh_key = {task->key.redis, refresh_size},
        .user_key = {task->key.redis + task->key.at, task->key.size},
        .loaded = &task->load.loaded,
        .on_event = on_event,
        .arg = task};
    task->load = (struct shed_flight_load){.settings = &fs->loads,
                                           .key = task->exchange.user_key,
                                           .redis_key = task->exchange.key,
                                           .waiters = &task->waiters,
                                           .on_event = on_load,
                                           .arg = task};
    shed_entry_put_u64(task->exchange.number,
                       atomic_fetch_add(&fs->client->last_flight, 1) + 1);
    shed_flight_init(&task->flight, &fs->policy, &fs->pace);
    pthread_mutex_lock(&fs->mu);
    fs->tasks++;
    pthread_mutex_unlock(&fs->mu);
    return task;
}

enum shed_code
shed_flights_join(struct shed_flights *fs, const struct shed_key *key,
                  struct shed_aged aged, struct shed_caller *caller,
                  struct shed_post **starts, struct shed_error *err)
{
    enum shed_join join =
        shed_table_join(fs->table, key->redis, key->redis_size, caller);
    struct task *task;

    if (join == SHED_JOIN_NONE) {
        task = create_task(fs, key);
        if (task == NULL)
            return shed_fail_nomem(err, "a flight");
        if (aged.identity != NULL) {
            task->waiters.is_forced = true;
            task->is_revoked = aged.is_revoked;
            memcpy(task->exchange.due, aged.identity,
                   sizeof(task->exchange.due));
        }
        join = shed_table_insert(fs->table, &task->waiters, caller);
        if (join == SHED_JOIN_ADDED) {
            task->post.next = *starts;
            *starts = &task->post;
            return SHED_OK;
        }
        destroy(task);
    }
    shed_count(join == SHED_JOIN_JOINED ? &fs->counters->joins
                                        : &fs->counters->callers_refused,
               1);
    return shed_table_code(join, err);
}

void shed_flights_refresh(struct shed_flights *fs, const struct shed_key *key,
                          const unsigned char *identity)
{
    struct task *task;

    if (shed_table_is_busy(fs->table, key->redis, key->redis_size))
        return;
    task = create_task(fs, key);
    if (task == NULL)
        return;
    task->is_behind = true;
    if (identity != NULL)
        memcpy(task->exchange.due, identity, sizeof(task->exchange.due));
    if (shed_table_insert_behind(fs->table, &task->waiters))
        shed_reactor_post(fs->client->reactor, &task->post);
    else
        destroy(task);
}

void shed_flights_start(struct shed_flights *fs, struct shed_post *starts)
{
    shed_reactor_post_all(fs->client->reactor, starts);
}

bool shed_flights_has(struct shed_flights *fs, const struct shed_key *key)
{
    return shed_table_has(fs->table, key->redis, key->redis_size);
}

bool shed_flights_leave(struct shed_flights *fs, struct shed_caller *caller,
                        enum shed_leave how)
{
    return shed_table_leave(fs->table, caller, how);
}

void shed_flights_detach(struct shed_flights *fs, const struct shed_key *key)
{
    shed_table_detach(fs->table, key->redis, key->redis_size);
}

void shed_flights_detach_all(struct shed_flights *fs)
{
    shed_table_detach_all(fs->table);
}

/* What belongs to the reactor. */
struct opening {
    struct shed_flights *flights;
    enum shed_code code;
    struct shed_error *err;
};

static void open_on_reactor(void *arg)
{
    struct opening *o = arg;
    struct shed_flights *fs = o->flights;

    if (!shed_listeners_add(fs->client->listeners, &fs->listener))
        o->code = shed_fail(o->err, SHED_EINVAL,
                            "cache name: this client has a cache of that name");
}

static void hurry(struct shed_waiters *waiters)
{
    struct task *task = shed_container_of(waiters, struct task, waiters);

    shed_table_forget(task->flights->table, waiters);
    if (task->flight.state == SHED_FLIGHT_WAITING ||
        task->flight.state == SHED_FLIGHT_PAUSING)
        drive(task, (struct shed_flight_event){.type = SHED_EV_TIMER});
}

/* End those that only watch or pause. */
static void hurry_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    fs->is_closing = true;
    shed_table_each(fs->table, hurry);
}

static void close_on_reactor(void *arg)
{
    struct shed_flights *fs = arg;

    shed_listeners_remove(fs->client->listeners, &fs->listener);
    shed_timer_destroy(fs->loads.wake);
}

static void wake_source(void *source)
{
    shed_source_wake(source);
}

static enum shed_code open_parts(struct shed_flights *fs,
                                 struct shed_error *err)
{
    struct opening o = {fs, SHED_OK, err};

    if (pthread_mutex_init(&fs->mu, NULL) != 0)
        return shed_fail_nomem(err, "a cache");
    if (shed_cond_init(&fs->idle) != 0) {
        o.code = shed_fail_nomem(err, "a cache");
        goto fail_mutex;
    }
    fs->table = shed_table_create(shed_source_callers(fs->loads.source));
    fs->loads.wake =
        shed_timer_create(fs->client->reactor, wake_source, fs->loads.source);
    if (fs->table == NULL || fs->loads.wake == NULL) {
        o.code = shed_fail_nomem(err, "a cache");
        goto fail;
    }
    shed_reactor_run(fs->client->reactor, open_on_reactor, &o);
    if (o.code == SHED_OK) {
        shed_flight_load_settings_open(&fs->loads);
        return SHED_OK;
    }
fail:
    shed_timer_destroy(fs->loads.wake);
    shed_table_destroy(fs->table);
    pthread_cond_destroy(&fs->idle);
fail_mutex:
    pthread_mutex_destroy(&fs->mu);
    return o.code;
}

enum shed_code shed_flights_create(
    struct shed_client *client, struct shed_source *source, const char *prefix,
    const struct shed_cache_options *options, struct shed_counters *counters,
    struct shed_outbox *outbox, struct shed_group_log *groups,
    struct shed_kept *kept, struct shed_flights **out, struct shed_error *err)
{
    struct shed_flights *fs = calloc(1, sizeof(*fs));
    enum shed_code code;

    *out = NULL;
    if (fs == NULL)
        return shed_fail_nomem(err, "a cache");
    fs->client = client;
    fs->options = *options;
    fs->counters = counters;
    fs->policy = (struct shed_flight_policy){
        .lease_ms = options->lease_ms,
        .load_timeout_ms = shed_source_load_timeout_ms(source),
        .load_when_down = options->redis_down != SHED_REDIS_DOWN_FAIL,
        .refresh_when_down = kept != NULL,
        .pause_ms = options->failure_ttl_ms > PAUSE_MIN_MS
                        ? options->failure_ttl_ms
                        : PAUSE_MIN_MS};
    (void)snprintf(fs->prefix, sizeof(fs->prefix), "%s", prefix);
    fs->settings = (struct shed_flight_redis_settings){
        .session = client->session,
        .process = client->process,
        .options = &fs->options,
        .counters = counters,
        .events = client->events,
        .outbox = outbox,
        .groups = groups,
        .kept = kept,
        .name = {fs->prefix, strlen(fs->prefix) - 1}}; /* less the colon */
    shed_flight_redis_settings_init(&fs->settings, fs->policy.load_timeout_ms +
                                                       options->lease_ms +
                                                       RECORD_MARGIN_MS);
    fs->loads = (struct shed_flight_load_settings){
        .reactor = client->reactor,
        .source = source,
        .counters = counters,
        .events = client->events,
        .name = fs->settings.name,
        .kept = kept,
        .options = &fs->options,
        .timeout_ms = fs->policy.load_timeout_ms,
        .value_limit_bytes = (size_t)options->value_limit_bytes};
    fs->listener = (struct shed_listener){.key = fs->prefix,
                                          .key_size = strlen(fs->prefix),
                                          .is_prefix = true,
                                          .on_change = on_change,
                                          .on_epoch = on_epoch};
    code = open_parts(fs, err);
    if (code == SHED_OK)
        *out = fs;
    else
        free(fs);
    return code;
}

void shed_flights_close(struct shed_flights *fs)
{
    if (fs == NULL)
        return;
    shed_reactor_run(fs->client->reactor, hurry_on_reactor, fs);
    pthread_mutex_lock(&fs->mu);
    while (fs->tasks > 0)
        pthread_cond_wait(&fs->idle, &fs->mu);
    pthread_mutex_unlock(&fs->mu);
    shed_flight_load_settings_close(&fs->loads);
    shed_reactor_run(fs->client->reactor, close_on_reactor, fs);
    shed_table_destroy(fs->table);
    pthread_cond_destroy(&fs->idle);
    pthread_mutex_destroy(&fs->mu);
    free(fs);
}
