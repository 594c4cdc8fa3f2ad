/*
 * One flight, and what it is driven by. Its invariants: the machine is stepped
 * on the reactor thread only; the flight is over only when it is out of the
 * table, and nothing that was sent for it is still to come back.
 *
 * Design notes
 *
 * drive() is the only place that steps a machine. It gives it one event,
 * performs what comes out, in the order of the fields, and goes on while
 * performing has made another event at once: a load that the source refused, or
 * a caller that joined while the flight was ending. Everything else comes back
 * later, as a reply, a timer, a push or a post, so drive() is never entered
 * twice.
 *
 * Callers join from their own threads, under a lock of the table, while the
 * machine runs. They meet at one number: before each step the machine is told
 * the number of the newest caller. At the end the flight is taken out of the
 * table only if nobody waits there, under the same lock, so a caller either is
 * answered by this flight or finds no flight and makes one.
 */
#include "flight/flight_task.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"

/* With the server that has the key. */
static struct shed_session *session_of(const struct shed_flight_task *task)
{
    return shed_client_session(task->shared->cache->client,
                               task->exchange.key.at, task->exchange.key.size);
}

/* ---------------------------------------------------------------- answers */

/* Nobody has the value yet. */
static void set_origin(const struct shed_flight_task *task,
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

static void answer(struct shed_flight_task *task,
                   const struct shed_flight_act *act)
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
        shed_table_answer(task->shared->table, &task->waiters, act->answer_upto,
                          value, &task->exchange.error);
    assert(!is_anybody || value == NULL || value != task->load.loaded.value ||
           !task->load.loaded.is_unmodified);
    (void)is_anybody;
}

/* --------------------------------------------------------------- the drive */

/* The flight is over: take it out of the table. Returns: false if it is out,
 * to be freed when its last call is back; true if a caller joined just now. */
static bool goes_on(struct shed_flight_task *task)
{
    if (task->waiters.node.key.at == NULL)
        return false; /* out of the table already */
    if (!shed_table_remove(task->shared->table, &task->waiters))
        return true;
    task->waiters.node.key.at = NULL;
    return false;
}

static uint64_t news_of(const struct shed_flight_task *task)
{
    struct shed_tag_log *tag_log = task->shared->cache->tag_log;

    return tag_log != NULL ? shed_tag_log_news(tag_log) : 0;
}

/* The position comes before the load, so that the row has all that was
 * committed before that invalidation. The source is not told the version of a
 * revoked row: "unmodified" would renew the entry, and not its position. */
static bool start_load(struct shed_flight_task *task, uint64_t request)
{
    const struct shed_row_version none = {.is_known = false};
    struct shed_tag_log *tag_log = task->shared->cache->tag_log;

    if (tag_log != NULL)
        task->exchange.position = task->load.position =
            shed_tag_log_position(tag_log);
    task->news = news_of(task);
    task->load.is_background = task->is_background;
    return shed_flight_load_start(&task->load, request,
                                  task->is_revoked ? none
                                                   : task->exchange.old_version,
                                  &task->exchange.error);
}

/* Callers wait for another flight: if that is a refresh of this process, its
 * load is no longer in the background. */
static void hasten_refresh(const struct shed_flight_task *task)
{
    struct shed_table *table = task->shared->table;
    const struct shed_map_key *key = &task->waiters.node.key;
    struct shed_waiters *w = NULL;

    while ((w = shed_table_next_of(table, w, key->at, key->size)) != NULL)
        shed_flight_load_hasten(
            &shed_container_of(w, struct shed_flight_task, waiters)->load);
}

static void perform(struct shed_flight_task *task,
                    const struct shed_flight_act *act,
                    struct shed_flight_event *next)
{
    if (act->detach)
        shed_table_detach_waiters(task->shared->table, &task->waiters);
    if (act->answer != SHED_ANSWER_NOTHING)
        answer(task, act);
    if (act->set_timer)
        shed_timer_set(task->timer, act->timer_ms);
    if (act->leaves_lease)
        shed_session_end_epoch(session_of(task), task->exchange.epoch);
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
        task->exchange.has_waited = shed_flight_has_waited(&task->flight);
        task->exchange.first = act->first;
        shed_flight_redis_send(&task->exchange, act->send, act->request);
        break;
    case SHED_SEND_FAIL:
    case SHED_SEND_RELEASE:
        shed_flight_redis_send(&task->exchange, act->send, act->request);
        break;
    }
}

/* Redis could not take what was loaded. */
static void note_unpublished(const struct shed_flight_task *task)
{
    const struct shed_error *why = &task->exchange.error;

    shed_count(&task->shared->cache->counters.unpublished, 1);
    shed_flight_tell(&task->exchange, SHED_EVENT_PUBLISH_REFUSED,
                     why->code != SHED_OK ? why->code : SHED_EREDIS, 0,
                     why->reason);
}

/* What the source does is noted where the load is queued and begun. A waiter
 * looks in Redis from time to time, which is not what it waits for. */
static void note_awaited(struct shed_flight_task *task)
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

static void drive(struct shed_flight_task *task, struct shed_flight_event event)
{
    bool again = true;

    assert(shed_reactor_is_current(task->shared->cache->client->reactor));
    while (again) {
        struct shed_flight_event next = {.type = SHED_EV_START};
        struct shed_flight_act act;
        if (task->waiters.node.key.at != NULL)
            task->flight.newest =
                shed_table_newest(task->shared->table, &task->waiters);
        task->flight.is_outdated = news_of(task) != task->news;
        task->flight.has_pushes = shed_session_is_on(session_of(task));
        /* a cache that is being closed waits for loads, for nothing else */
        task->flight.is_background =
            task->is_background && !task->shared->is_closing;
        act = shed_flight_step(&task->flight, &event, shed_now_ms(),
                               shed_random_jitter());
        if (event.type == SHED_EV_WAIT && task->flight.newest > 0)
            hasten_refresh(task);
        if (event.type == SHED_EV_WAIT && task->flight.waits == 1 &&
            !task->is_background)
            shed_count(&task->shared->cache->counters.waits, 1);
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
    if (task->waiters.node.key.at == NULL &&
        !shed_flight_redis_is_busy(&task->exchange) && !task->load.is_busy)
        task->shared->on_over(task);
}

static void on_event(void *arg, struct shed_flight_event event)
{
    drive(arg, event);
}

static void on_load(void *arg, struct shed_flight_event event)
{
    struct shed_flight_task *task = arg;

    if (event.type != SHED_EV_LOADED)
        task->exchange.error = task->load.loaded.error;
    drive(task, event);
}

static void on_timer(void *arg)
{
    struct shed_flight_task *task = arg;

    if (task->flight.state == SHED_FLIGHT_ABANDONED ||
        task->flight.state == SHED_FLIGHT_OVER)
        return;
    if (task->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&task->shared->cache->counters.polls, 1);
    if (task->flight.state == SHED_FLIGHT_LOADING &&
        shed_now_ms() >= task->flight.load_deadline_ms)
        (void)shed_fail(&task->exchange.error, SHED_ESOURCE,
                        "the source has not answered within load_timeout_ms");
    drive(task, (struct shed_flight_event){.type = SHED_EV_TIMER});
}

void shed_flight_task_push(struct shed_flight_task *task)
{
    if (task->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&task->shared->cache->counters.pushes, 1);
    if (task->flight.state == SHED_FLIGHT_WAITING ||
        task->flight.state == SHED_FLIGHT_ACQUIRING)
        drive(task, (struct shed_flight_event){.type = SHED_EV_PUSH});
}

void shed_flight_task_epoch(struct shed_flight_task *task)
{
    if (task->flight.state != SHED_FLIGHT_OVER)
        drive(task, (struct shed_flight_event){.type = SHED_EV_EPOCH});
}

void shed_flight_task_hurry(struct shed_flight_task *task)
{
    if (task->flight.state == SHED_FLIGHT_WAITING ||
        task->flight.state == SHED_FLIGHT_PAUSING)
        drive(task, (struct shed_flight_event){.type = SHED_EV_TIMER});
}

/* -------------------------------------------------------- begin and end */

static void start(struct shed_post *post)
{
    struct shed_flight_task *task =
        shed_container_of(post, struct shed_flight_task, post);
    /* until then a lease could not name our channel, and would not be taken
       over if we died */
    if (shed_client_settles(task->shared->cache->client, task->exchange.key.at,
                            task->exchange.key.size, post))
        drive(task, (struct shed_flight_event){.type = SHED_EV_START});
}

struct shed_flight_task *
shed_flight_task_create(struct shed_flight_shared *shared,
                        const struct shed_key *key)
{
    struct shed_flight_task *task = calloc(
        1, sizeof(*task) + key->redis_size + SHED_ENTRY_REFRESH_SUFFIX_BYTES);
    size_t refresh_size;
    char *name;

    if (task == NULL)
        return NULL;
    task->timer =
        shed_timer_create(shared->cache->client->reactor, on_timer, task);
    if (task->timer == NULL) {
        free(task);
        return NULL;
    }
    name = (char *)(task + 1);
    refresh_size = shed_entry_refresh_key(key->redis, key->redis_size, name);
    task->waiters.node.key = shed_map_key(name, key->redis_size);
    task->shared = shared;
    task->post.run = start;
    task->exchange =
        (struct shed_flight_exchange){.shared = shared,
                                      .key = {name, key->redis_size},
                                      .refresh_key = {name, refresh_size},
                                      .user_key = {name + key->at, key->size},
                                      .loaded = &task->load.loaded,
                                      .on_event = on_event,
                                      .arg = task};
    task->load = (struct shed_flight_load){.shared = shared,
                                           .key = task->exchange.user_key,
                                           .redis_key = task->exchange.key,
                                           .waiters = &task->waiters,
                                           .on_event = on_load,
                                           .arg = task};
    shed_entry_put_u32(
        task->exchange.number,
        atomic_fetch_add(&shared->cache->client->last_flight, 1) + 1);
    shed_flight_init(&task->flight, &shared->policy, &shared->pace);
    return task;
}

void shed_flight_task_destroy(struct shed_flight_task *task)
{
    assert(!shed_flight_redis_is_busy(&task->exchange));
    shed_flight_redis_fini(&task->exchange);
    shed_flight_load_fini(&task->load);
    shed_timer_destroy(task->timer);
    free(task);
}
