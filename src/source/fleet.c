/*
 * The driver of a source's slots. Its invariant: the first link alone asks
 * Redis, one exchange at a time.
 *
 * Whatever changes the slots posts a step to the reactor of the first link's
 * client. A step sends what is to be sent now, or sets the timer. The links of
 * the source's other caches wait until the first one has left; then the next
 * one goes on with the same slots, whose ids do not depend on the client.
 */
#include "source/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/random.h"
#include "client/probe.h"
#include "source/slots.h"

/* From the exchange that takes a slot to the begin of its load. */
#define MARGIN_MS 1000

/* Loads begin without a slot if Redis takes longer to answer than this part of
 * the time after which it counts as silent. */
#define PATIENCE_PART 10

#define KEY_SUFFIX ":loads"

struct shed_fleet {
    /* set at creation */
    void (*wake)(struct shed_source *source);
    struct shed_source *source;
    char budget[SHED_DIGITS], life_ms[SHED_DIGITS];

    struct shed_mutex mu;
    /* under mu */
    char key[SHED_NAME_MAX_BYTES + sizeof(KEY_SUFFIX)]; /* "": not known yet */
    struct shed_slots slots;
    struct shed_fleet_link *links;
    uint64_t changed_us; /* when slots.is_away last did */
    struct shed_slot elements[];
};

struct shed_fleet_link {
    /* set at creation */
    struct shed_fleet *fleet;
    struct shed_client *client;
    const char *cache_name;
    struct shed_counters *counters;
    struct shed_timer *timer;
    struct shed_post post;
    /* under the fleet's mu */
    struct shed_fleet_link *next;
    bool is_posted;
    /* reactor thread only */
    struct shed_call call;
    struct shed_slots_exchange exchange;
    struct shed_latch *end; /* set when it is to leave */
};

/* Have the first link look. */
static void kick_locked(struct shed_fleet *f)
{
    struct shed_fleet_link *link = f->links;

    if (link == NULL || link->is_posted)
        return;
    link->is_posted = true;
    shed_reactor_post(link->client->reactor, &link->post);
}

/* -------------------------------------------------------------- the source */

void shed_fleet_want(struct shed_fleet *f, size_t wanted)
{
    if (f == NULL)
        return;
    shed_mutex_lock(&f->mu);
    if (wanted != f->slots.wanted) {
        shed_slots_want(&f->slots, wanted);
        kick_locked(f);
    }
    shed_mutex_unlock(&f->mu);
}

bool shed_fleet_may_begin(struct shed_fleet *f)
{
    bool may_begin;

    if (f == NULL)
        return true;
    shed_mutex_lock(&f->mu);
    may_begin = shed_slots_may_begin(&f->slots);
    shed_mutex_unlock(&f->mu);
    return may_begin;
}

size_t shed_fleet_begin(struct shed_fleet *f, uint64_t *waited_us)
{
    size_t slot;

    *waited_us = 0;
    if (f == NULL)
        return SHED_SLOTS_NONE;
    shed_mutex_lock(&f->mu);
    slot = shed_slots_begin(&f->slots, shed_now_us(), waited_us);
    kick_locked(f);
    shed_mutex_unlock(&f->mu);
    return slot;
}

void shed_fleet_end(struct shed_fleet *f, size_t slot, uint64_t cost_us)
{
    if (f == NULL)
        return;
    shed_mutex_lock(&f->mu);
    shed_slots_end(&f->slots, slot, cost_us);
    kick_locked(f);
    shed_mutex_unlock(&f->mu);
}

struct shed_fleet_state shed_fleet_look(struct shed_fleet *f)
{
    struct shed_fleet_state state = {0, 0};

    if (f == NULL)
        return state;
    shed_mutex_lock(&f->mu);
    state = (struct shed_fleet_state){f->slots.in_use, f->slots.budget};
    shed_mutex_unlock(&f->mu);
    return state;
}

/* --------------------------------------------------------------- the links */

static void step(struct shed_fleet_link *link);

/* Returns: false if the reply is not what the script returns. */
static bool read_answer(const struct shed_reply *reply,
                        struct shed_slots_answer *answer)
{
    long long taken = shed_reply_integer(shed_reply_at(reply, 0));
    long long in_use = shed_reply_integer(shed_reply_at(reply, 1));
    long long waiting = shed_reply_integer(shed_reply_at(reply, 2));

    *answer = (struct shed_slots_answer){(size_t)taken, (size_t)in_use,
                                         (size_t)waiting};
    return taken >= 0 && in_use >= 0 && waiting >= 0;
}

/* The slots have changed from was_away: count and tell that, and wake the
 * source. why: SHED_OK, or why Redis is away. */
static void follow(struct shed_fleet_link *link, bool was_away,
                   const struct shed_error *why)
{
    struct shed_fleet *f = link->fleet;
    bool is_away = why->code != SHED_OK;
    uint64_t now_us = shed_now_us();

    if (is_away != was_away) {
        const struct shed_event event = {.kind = SHED_EVENT_FLEET,
                                         .outcome = why->code,
                                         .name = shed_str(link->cache_name),
                                         .duration_us = now_us - f->changed_us,
                                         .reason = why->reason};
        f->changed_us = now_us;
        shed_count(&link->counters->fleet_failures, is_away);
        shed_events_tell(link->client->events, &event);
    }
    f->wake(f->source);
}

/* Why an exchange has failed. */
static struct shed_error failure_of(const struct shed_call_result *result)
{
    const struct shed_reply *reply = result->reply;
    const char *text = shed_reply_error(reply);
    struct shed_error why;

    if (reply == NULL)
        return *result->why;
    (void)shed_fail(&why, shed_reply_code(reply), "Redis: %s",
                    text != NULL ? text : "a reply of an unknown form");
    return why;
}

static void on_answer(void *arg, const struct shed_call_result *result)
{
    struct shed_fleet_link *link = arg;
    struct shed_fleet *f = link->fleet;
    struct shed_error why = {SHED_OK, ""};
    struct shed_slots_answer answer;
    bool was_away;

    shed_mutex_lock(&f->mu);
    was_away = f->slots.is_away;
    if (read_answer(result->reply, &answer)) {
        shed_slots_answered(&f->slots, &answer, shed_now_us(),
                            shed_random_jitter());
    } else {
        why = failure_of(result);
        shed_slots_failed(&f->slots, shed_now_ms(), shed_random_jitter());
    }
    shed_mutex_unlock(&f->mu);
    follow(link, was_away, &why);
    step(link);
}

static uint64_t patience_ms(const struct shed_fleet_link *link)
{
    return link->client->command_timeout_ms / PATIENCE_PART + 1;
}

static void send_exchange(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    const struct shed_slots_exchange *x = &link->exchange;
    char passed[SHED_DIGITS];
    struct shed_args args;

    shed_script_begin(&args, SHED_SCRIPT_SLOTS, "1");
    shed_args_add_text(&args, f->key);
    shed_args_add_text(&args, f->slots.name);
    shed_args_add_text(&args, f->budget);
    shed_args_add_text(&args, f->life_ms);
    shed_args_add_text(&args, x->give);
    shed_args_add_text(&args, x->keep);
    shed_args_add_text(&args, x->take);
    shed_args_add_number(&args, passed, x->passed_ms);
    shed_timer_set(link->timer, patience_ms(link));
    shed_client_send(link->client, &link->call, &args, on_answer, link);
}

/* Leave, if there is nothing left to do. Returns: whether it has left; link may
 * be freed then. */
static bool try_end(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    struct shed_fleet_link **at = &f->links;
    bool has_ended;

    shed_mutex_lock(&f->mu);
    has_ended = link->call.fn == NULL && !link->is_posted &&
                (f->links != link || link->next != NULL || f->slots.is_away ||
                 shed_slots_is_idle(&f->slots));
    if (has_ended) {
        while (*at != link)
            at = &(*at)->next;
        *at = link->next;
        if (f->links == NULL)
            shed_slots_go_without(&f->slots);
        kick_locked(f);
    }
    shed_mutex_unlock(&f->mu);
    if (!has_ended)
        return false;
    shed_timer_destroy(link->timer);
    shed_latch_count_down(link->end, 1);
    return true;
}

/* Do what is to be done now. */
static void step(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    uint64_t delay_ms = UINT64_MAX;
    bool sends = false;

    if (link->end != NULL && try_end(link))
        return;
    if (link->call.fn != NULL)
        return;
    shed_mutex_lock(&f->mu);
    if (f->links == link)
        sends = shed_slots_next(&f->slots, shed_now_ms(), &link->exchange,
                                &delay_ms);
    shed_mutex_unlock(&f->mu);
    if (sends)
        send_exchange(link);
    else if (delay_ms != UINT64_MAX)
        shed_timer_set(link->timer, delay_ms);
    else
        shed_timer_stop(link->timer);
    if (!sends && link->end != NULL)
        (void)try_end(link);
}

static void on_post(struct shed_post *post)
{
    struct shed_fleet_link *link =
        shed_container_of(post, struct shed_fleet_link, post);

    shed_mutex_lock(&link->fleet->mu);
    link->is_posted = false;
    shed_mutex_unlock(&link->fleet->mu);
    step(link);
}

/* Redis does not answer in time: go on without it until it does. */
static void give_up(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    struct shed_error why;
    bool was_away;

    (void)shed_fail(&why, SHED_EREDIS, "Redis has not answered within %llu ms",
                    (unsigned long long)patience_ms(link));
    shed_mutex_lock(&f->mu);
    was_away = f->slots.is_away;
    shed_slots_go_without(&f->slots);
    shed_mutex_unlock(&f->mu);
    follow(link, was_away, &why);
}

static void on_timer(void *arg)
{
    struct shed_fleet_link *link = arg;

    if (link->call.fn != NULL)
        give_up(link);
    step(link);
}

/* ----------------------------------------------------------- begin and end */

struct shed_fleet *shed_fleet_create(const struct shed_source_options *o,
                                     void (*wake)(struct shed_source *source),
                                     struct shed_source *source)
{
    /* loads under way, and slots of earlier ones that are to be given back */
    size_t capacity = 2 * (size_t)o->max_loads;
    struct shed_fleet *f =
        calloc(1, sizeof(*f) + capacity * sizeof(*f->elements));
    uint64_t name, life_ms = o->load_timeout_ms + MARGIN_MS;

    if (f == NULL || shed_mutex_init(&f->mu, SHED_RANK_FLEET) != 0) {
        free(f);
        return NULL;
    }
    if (shed_random_token(&name, sizeof(name), NULL) != SHED_OK)
        name = shed_random_jitter();
    f->wake = wake;
    f->source = source;
    shed_write_digits(f->budget, o->fleet_loads);
    shed_write_digits(f->life_ms, life_ms);
    if (o->fleet_name != NULL)
        (void)snprintf(f->key, sizeof(f->key), "%s" KEY_SUFFIX, o->fleet_name);
    shed_slots_init(&f->slots, (size_t)o->fleet_loads, life_ms, name,
                    f->elements, capacity);
    return f;
}

void shed_fleet_destroy(struct shed_fleet *f)
{
    if (f == NULL)
        return;
    shed_mutex_destroy(&f->mu);
    free(f);
}

static const char *database_of(const struct shed_address *address)
{
    return address->db[0] != '\0' ? address->db : "0";
}

/* Slots in two Redis servers would be two budgets. Servers are compared as the
 * URIs name them, because neither may have been reached yet. */
static enum shed_code check_server_locked(const struct shed_fleet *f,
                                          const struct shed_fleet_link *link,
                                          struct shed_error *err)
{
    const struct shed_address *one, *other = link->client->address;

    if (f->links == NULL)
        return SHED_OK;
    one = f->links->client->address;
    if (strcmp(one->text, other->text) == 0 &&
        strcmp(database_of(one), database_of(other)) == 0)
        return SHED_OK;
    return shed_fail(err, SHED_EINVAL,
                     "the source's fleet_loads are counted in one Redis: "
                     "cache %s uses %s, database %s, and cache %s %s, "
                     "database %s: open a source for each",
                     f->links->cache_name, one->text, database_of(one),
                     link->cache_name, other->text, database_of(other));
}

/* Add a link behind the others. */
static enum shed_code add_locked(struct shed_fleet *f,
                                 struct shed_fleet_link *link,
                                 struct shed_error *err)
{
    struct shed_fleet_link **at = &f->links;
    enum shed_code code = check_server_locked(f, link, err);

    if (code != SHED_OK)
        return code;
    while (*at != NULL)
        at = &(*at)->next;
    *at = link;
    if (f->key[0] == '\0')
        (void)snprintf(f->key, sizeof(f->key), "%s" KEY_SUFFIX,
                       link->cache_name);
    if (f->links == link) {
        shed_slots_attach(&f->slots);
        f->changed_us = shed_now_us();
    }
    return SHED_OK;
}

enum shed_code shed_fleet_join(struct shed_fleet *f, struct shed_cache *cache,
                               struct shed_fleet_link **out,
                               struct shed_error *err)
{
    struct shed_fleet_link *link;
    enum shed_code code;

    *out = NULL;
    if (f == NULL)
        return SHED_OK;
    link = calloc(1, sizeof(*link));
    if (link != NULL)
        link->timer = shed_timer_create(cache->client->reactor, on_timer, link);
    if (link == NULL || link->timer == NULL) {
        free(link);
        return shed_fail_nomem(err, "a cache");
    }
    link->fleet = f;
    link->client = cache->client;
    link->cache_name = cache->name;
    link->counters = &cache->counters;
    link->post.run = on_post;
    shed_mutex_lock(&f->mu);
    code = add_locked(f, link, err);
    shed_mutex_unlock(&f->mu);
    if (code != SHED_OK) {
        shed_timer_destroy(link->timer); /* it is not in the loop yet */
        free(link);
        return code;
    }
    *out = link;
    return SHED_OK;
}

struct leaving {
    struct shed_fleet_link *link;
    struct shed_latch *latch;
};

static void leave_on_reactor(void *arg)
{
    struct leaving *l = arg;

    l->link->end = l->latch;
    step(l->link);
}

enum shed_code shed_fleet_probe(const struct shed_fleet *f,
                                struct shed_client *client,
                                uint64_t deadline_ms, struct shed_error *err)
{
    if (f == NULL)
        return SHED_OK;
    return shed_probe(client, SHED_USE_FLEET,
                      shed_bytes(f->key, strlen(f->key) - strlen(KEY_SUFFIX)),
                      deadline_ms, err);
}

void shed_fleet_leave(struct shed_fleet_link *link)
{
    struct shed_latch latch = SHED_LATCH_INIT(1);
    struct leaving l = {link, &latch};

    if (link == NULL)
        return;
    shed_reactor_run(link->client->reactor, leave_on_reactor, &l);
    (void)shed_latch_wait(&latch, UINT64_MAX);
    free(link);
}
