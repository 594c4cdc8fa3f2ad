/*
 * One flight, and what it is driven by. Its invariants: the machine is stepped
 * on the reactor thread only; the flight is over only when it is out of the
 * table, and nothing that was sent for it is still to come back.
 *
 * Design notes
 *
 * drive() is the only place that steps a machine. It gives it one event, and
 * performs what comes out, in the order of the fields. Everything else comes
 * back later, as a reply, a timer, a push or a post, so drive() is never
 * entered twice.
 *
 * Callers join and leave between steps: before each the machine is told the
 * number of the newest. So nobody waits for a flight that is over, and it is
 * taken out of the table in the same step.
 */
#include "flight/flight_task.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"

void shed_flight_task_tell(const struct shed_flight_task *t,
                           enum shed_event_kind kind, enum shed_code outcome,
                           const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = shed_str(t->flights->cache->name),
                                     .key = t->user_key,
                                     .reason = reason};

    shed_events_tell(t->flights->cache->client->events, &event);
}

/* ---------------------------------------------------------------- answers */

/* Nobody has the value yet. */
static void set_origin(const struct shed_flight_task *t,
                       const struct shed_flight_act *act,
                       struct shed_value *value)
{
    if (act->has_waited && value->origin == SHED_ORIGIN_REDIS)
        value->origin = SHED_ORIGIN_WAITED;
    if (act->answer == SHED_ANSWER_LOADED) {
        value->origin = SHED_ORIGIN_LOAD;
        value->fresh_ms = t->fresh_ms;
    }
}

static void note_end(struct shed_flight_task *t, const struct shed_value *value)
{
    const struct shed_freshness_rule *rule = &t->flights->cache->rule;

    shed_table_note_end(
        t, value != NULL && value->fresh_ms > 0
               ? shed_now_ms() + shed_freshness_kept_ms(rule, value->fresh_ms)
               : 0);
}

static void answer(struct shed_flight_task *t,
                   const struct shed_flight_act *act)
{
    struct shed_value *value = NULL;
    bool is_anybody;

    if (act->answer == SHED_ANSWER_ENTRY)
        value = t->entry;
    else if (act->answer != SHED_ANSWER_FAILURE)
        value = t->job.loaded.value;
    if (value != NULL)
        set_origin(t, act, value);
    note_end(t, value);
    is_anybody = shed_table_answer(t, act->answer_upto, value, &t->error);
    assert(!is_anybody || value == NULL || value != t->job.loaded.value ||
           !t->job.loaded.is_unmodified);
    (void)is_anybody;
}

/* A waiter looks in Redis from time to time, which is not what it waits for. */
static bool has_holder(const struct shed_flight *f)
{
    return (f->state == SHED_FLIGHT_WAITING ||
            f->state == SHED_FLIGHT_ACQUIRING) &&
           f->waits > 0 && f->troubles == 0;
}

uint64_t shed_flight_task_load_began_ms(const struct shed_flight_task *t)
{
    return t->flight.state == SHED_FLIGHT_LOADING || has_holder(&t->flight)
               ? t->flight.leased_ms
               : UINT64_MAX;
}

enum shed_awaited shed_flight_task_awaited(const struct shed_flight_task *t)
{
    if (t->flight.state == SHED_FLIGHT_LOADING)
        return atomic_load(&t->has_begun) ? SHED_AWAITS_LOAD
                                          : SHED_AWAITS_QUEUE;
    return has_holder(&t->flight) ? SHED_AWAITS_HOLDER : SHED_AWAITS_REDIS;
}

/* --------------------------------------------------------------- the drive */

static uint64_t news_of(const struct shed_flight_task *t)
{
    struct shed_tag_log *tag_log = t->flights->cache->tag_log;

    return tag_log != NULL ? shed_tag_log_news(tag_log) : 0;
}

static void perform(struct shed_flight_task *t,
                    const struct shed_flight_act *act)
{
    if (act->detach)
        shed_table_detach(t);
    if (act->answer != SHED_ANSWER_NOTHING)
        answer(t, act);
    if (act->set_timer)
        shed_timer_set(t->timer, act->timer_ms);
    if (act->leaves_lease)
        shed_session_end_epoch(shed_flight_task_session(t), t->epoch);
    switch (act->send) {
    case SHED_SEND_NOTHING:
        break;
    case SHED_SEND_LOAD:
        shed_flight_load_start(t);
        break;
    case SHED_SEND_RENEW:
        shed_flight_redis_renew(t);
        break;
    default:
        t->first = act->first;
        shed_flight_redis_send(t, act->send);
    }
}

/* Redis could not take what was loaded. */
static void note_unpublished(const struct shed_flight_task *t)
{
    const struct shed_error *why = &t->error;

    shed_count(&t->flights->cache->counters.unpublished, 1);
    shed_flight_task_tell(t, SHED_EVENT_PUBLISH_REFUSED,
                          why->code != SHED_OK ? why->code : SHED_EREDIS,
                          why->reason);
}

/* Whether something is still to come back. */
static bool is_busy(const struct shed_flight_task *t)
{
    return t->call.fn != NULL || t->is_publishing || t->renew_call.fn != NULL ||
           t->is_loading;
}

static void destroy(struct shed_flight_task *t)
{
    struct shed_flights *flights = t->flights;

    assert(!is_busy(t));
    shed_value_unref(t->entry);
    shed_flight_load_drop(t);
    shed_timer_destroy(t->timer);
    free(t);
    shed_latch_count_down(&flights->end, 1);
}

void shed_flight_task_drive(struct shed_flight_task *t,
                            struct shed_flight_event event)
{
    struct shed_flight_act act;

    assert(shed_reactor_is_current(t->flights->cache->client->reactor));
    /* a cache that is being closed waits for loads, for nothing else */
    if (t->flights->is_closing) {
        t->left_number = 0;
        t->flight.is_background = false;
    }
    t->flight.newest = shed_table_newest(t);
    t->flight.is_outdated = news_of(t) != t->news;
    t->flight.has_pushes = shed_session_is_on(shed_flight_task_session(t));
    act = shed_flight_step(&t->flight, &event, shed_now_ms(),
                           shed_random_jitter());
    /* callers wait for another flight: if that is a refresh of this
       process, its load is no longer in the background */
    if (event.type == SHED_EV_WAIT && t->flight.newest > 0)
        shed_table_each(t->flights, &t->in_table.key, shed_flight_load_hasten);
    if (event.type == SHED_EV_WAIT && t->flight.waits == 1 &&
        !t->flight.is_background)
        shed_count(&t->flights->cache->counters.waits, 1);
    if (event.type == SHED_EV_TIMER && act.answer == SHED_ANSWER_FAILURE)
        (void)shed_fail(&t->error, SHED_ESOURCE,
                        "the source has not answered within load_timeout_ms");
    /* one that was invalidated is counted where that is heard */
    if (act.answer == SHED_ANSWER_UNPUBLISHED &&
        event.type != SHED_EV_INVALIDATED)
        note_unpublished(t);
    perform(t, &act);
    if (t->flight.state == SHED_FLIGHT_OVER && !t->is_out) {
        shed_table_remove(t);
        t->is_out = true;
    }
    if (t->is_out && !is_busy(t))
        destroy(t);
}

static void step(struct shed_flight_task *t, enum shed_flight_event_type type)
{
    shed_flight_task_drive(t, (struct shed_flight_event){.type = type});
}

static void on_timer(void *arg)
{
    struct shed_flight_task *t = arg;
    enum shed_flight_state state = t->flight.state;

    if (state == SHED_FLIGHT_ABANDONED || state == SHED_FLIGHT_OVER)
        return;
    if (state == SHED_FLIGHT_WAITING)
        shed_count(&t->flights->cache->counters.polls, 1);
    step(t, SHED_EV_TIMER);
}

void shed_flight_task_push(struct shed_flight_task *t)
{
    if (t->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&t->flights->cache->counters.pushes, 1);
    if (t->flight.state == SHED_FLIGHT_WAITING ||
        t->flight.state == SHED_FLIGHT_ACQUIRING)
        step(t, SHED_EV_PUSH);
}

void shed_flight_task_epoch(struct shed_flight_task *t)
{
    if (t->flight.state != SHED_FLIGHT_OVER)
        step(t, SHED_EV_EPOCH);
}

void shed_flight_task_hurry(struct shed_flight_task *t)
{
    if (t->flight.state == SHED_FLIGHT_WAITING ||
        t->flight.state == SHED_FLIGHT_PAUSING)
        step(t, SHED_EV_TIMER);
}

/* -------------------------------------------------------- begin and end */

static void start(struct shed_post *post)
{
    struct shed_flight_task *t =
        shed_container_of(post, struct shed_flight_task, post);
    /* until then a lease could not name our channel, and would not be taken
       over if we died */
    if (shed_client_settles(t->flights->cache->client, t->key, post))
        step(t, SHED_EV_START);
}

struct shed_flight_task *shed_flight_task_create_locked(
    struct shed_flights *flights, const struct shed_key *key,
    const struct shed_seen *seen, enum shed_flight_role role)
{
    struct shed_client *client = flights->cache->client;
    struct shed_flight_task *t = calloc(1, sizeof(*t) + key->redis.size +
                                               SHED_ENTRY_REFRESH_SUFFIX_BYTES);
    char *name;

    if (t == NULL)
        return NULL;
    t->timer = shed_timer_create(client->reactor, on_timer, t);
    if (t->timer == NULL) {
        free(t);
        return NULL;
    }
    name = (char *)(t + 1);
    t->refresh_key = shed_entry_refresh_key(key->redis, name);
    t->key = shed_bytes(name, key->redis.size);
    t->user_key = shed_bytes(name + key->at, key->size);
    t->in_table.key = shed_map_key(t->key);
    t->role = role;
    t->flights = flights;
    t->post.run = start;
    shed_entry_put_u32(t->number,
                       atomic_fetch_add(&client->last_flight, 1) + 1);
    shed_flight_init(&t->flight, &flights->policy, &flights->pace);
    t->flight.first = seen->first;
    t->flight.is_background = role == SHED_FLIGHT_BACKGROUND;
    t->is_revoked = seen->is_revoked;
    t->is_forced = seen->aged != NULL;
    if (t->is_forced)
        memcpy(t->due, seen->aged, sizeof(t->due));
    shed_map_insert(&flights->table, &t->in_table);
    atomic_fetch_add(&flights->count, 1);
    shed_latch_count_up(&flights->end);
    shed_reactor_post(client->reactor, &t->post);
    return t;
}
