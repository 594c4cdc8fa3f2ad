/*
 * The driver of a source's slots. Its invariant: the first link alone asks
 * Redis, one exchange at a time.
 *
 * Whatever changes the slots posts a step to the reactor of the first link's
 * client. A step sends what is to be sent now, or sets the timer. The links of
 * the source's other caches wait until the first one has left; then the next
 * one goes on with the same slots: the source's name does not depend on the
 * client.
 */
#include "source/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/list.h"
#include "base/random.h"
#include "client/probe.h"
#include "source/slots.h"

/* From the exchange that takes a slot to the begin of its load. */
#define MARGIN_MS 1000

/* Loads begin without a slot if Redis takes longer to answer than this part of
 * the time after which it counts as silent. */
#define PATIENCE_PART 10

#define KEY_SUFFIX ":loads"
#define NAME_BYTES 16

struct shed_fleet {
    /* set at creation */
    struct shed_mutex *mu; /* the source's */
    void (*wake)(struct shed_source *source);
    struct shed_source *source;
    char name[NAME_BYTES + 1]; /* by which Redis knows this source */
    char budget[SHED_DIGITS], life_ms[SHED_DIGITS];
    /* under mu */
    char key[SHED_NAME_MAX_BYTES + sizeof(KEY_SUFFIX)]; /* "": not known yet */
    struct shed_slots slots;
    struct shed_list links;
    bool was_away;       /* as it was last told */
    uint64_t changed_us; /* when that changed */
};

struct shed_fleet_link {
    /* set at creation */
    struct shed_fleet *fleet;
    struct shed_cache *cache;
    struct shed_timer *timer;
    struct shed_post post;
    /* under the fleet's mu */
    struct shed_node node;
    /* reactor thread only */
    struct shed_call call;
    bool is_leaving;
    struct shed_latch left;
};

/* The link that asks Redis; NULL: there is none. */
static struct shed_fleet_link *first_locked(const struct shed_fleet *f)
{
    return f->links.first != NULL
               ? shed_container_of(f->links.first, struct shed_fleet_link, node)
               : NULL;
}

/* Have the first link look. */
static void kick_locked(struct shed_fleet *f)
{
    struct shed_fleet_link *link = first_locked(f);

    if (link != NULL)
        shed_reactor_wake(link->cache->client->reactor, &link->post);
}

/* -------------------------------------------------------------- the source */

void shed_fleet_want(struct shed_fleet *f, size_t wanted)
{
    if (wanted == f->slots.wanted)
        return;
    shed_slots_want(&f->slots, wanted);
    kick_locked(f);
}

bool shed_fleet_may_begin(const struct shed_fleet *f)
{
    return shed_slots_may_begin(&f->slots);
}

uint64_t shed_fleet_begin(struct shed_fleet *f)
{
    kick_locked(f);
    return shed_slots_begin(&f->slots, shed_now_us());
}

void shed_fleet_end(struct shed_fleet *f, uint64_t cost_us)
{
    shed_slots_end(&f->slots, cost_us);
    kick_locked(f);
}

struct shed_fleet_state shed_fleet_look(const struct shed_fleet *f)
{
    return (struct shed_fleet_state){f->slots.in_use, f->slots.budget};
}

/* --------------------------------------------------------------- the links */

static void step(struct shed_fleet_link *link);

/* Returns: false if the reply is not what the script returns. */
static bool read_answer(const struct shed_reply *reply,
                        const struct shed_slots_exchange *asked,
                        struct shed_slots_answer *answer)
{
    long long slots = shed_reply_integer(shed_reply_at(reply, 0));
    long long in_use = shed_reply_integer(shed_reply_at(reply, 1));
    long long others = shed_reply_integer(shed_reply_at(reply, 2));

    *answer = (struct shed_slots_answer){(size_t)slots, (size_t)in_use,
                                         (size_t)others};
    return slots >= (long long)asked->keep && slots <= (long long)asked->want &&
           in_use >= slots && others >= 0;
}

/* The slots have changed: tell it if Redis is away now, as why says, or is
 * back, and wake the source. */
static void follow_locked(const struct shed_fleet_link *link,
                          const struct shed_error *why)
{
    struct shed_fleet *f = link->fleet;
    uint64_t now_us = shed_now_us();

    if (f->slots.is_away != f->was_away) {
        const struct shed_event event = {.kind = SHED_EVENT_FLEET,
                                         .outcome = why->code,
                                         .name = shed_str(link->cache->name),
                                         .duration_us = now_us - f->changed_us,
                                         .reason = why->reason};
        f->was_away = f->slots.is_away;
        f->changed_us = now_us;
        shed_count(&link->cache->counters.fleet_failures, f->was_away);
        shed_events_tell(link->cache->client->events, &event);
    }
    f->wake(f->source);
}

static void on_answer(void *arg, const struct shed_call_result *result)
{
    struct shed_fleet_link *link = arg;
    struct shed_fleet *f = link->fleet;
    struct shed_error why = {SHED_OK, ""};
    struct shed_slots_answer answer;
    bool has_failed = !read_answer(result->reply, &f->slots.asked, &answer);

    if (has_failed)
        (void)shed_call_failure(result, &why);
    shed_mutex_lock(f->mu);
    shed_slots_settle(&f->slots, has_failed ? NULL : &answer, shed_now_us(),
                      shed_random_jitter());
    follow_locked(link, &why);
    shed_mutex_unlock(f->mu);
    step(link);
}

static uint64_t patience_ms(const struct shed_fleet_link *link)
{
    return link->cache->client->command_timeout_ms / PATIENCE_PART + 1;
}

static void send_exchange(struct shed_fleet_link *link,
                          const struct shed_slots_exchange *x)
{
    const struct shed_fleet *f = link->fleet;
    const uint64_t numbers[] = {x->passed_ms, x->keep, x->want};
    char digits[sizeof(numbers) / sizeof(*numbers)][SHED_DIGITS];
    struct shed_args args;

    shed_script_begin(&args, SHED_SCRIPT_SLOTS, "1");
    shed_args_add_text(&args, f->key);
    args.is_untracked = true;
    shed_args_add_text(&args, f->name);
    shed_args_add_text(&args, f->budget);
    shed_args_add_text(&args, f->life_ms);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        shed_args_add_number(&args, digits[i], numbers[i]);
    shed_timer_set(link->timer, patience_ms(link));
    shed_client_send(link->cache->client, &link->call, &args, on_answer, link);
}

/* Leave, if there is nothing left to do. Returns: whether it has left; link may
 * be freed then. */
static bool try_leave(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    bool has_left;

    if (!link->is_leaving || link->call.fn != NULL)
        return false;
    shed_mutex_lock(f->mu);
    has_left = !atomic_load(&link->post.is_posted) &&
               (first_locked(f) != link || link->node.after != NULL ||
                f->slots.is_away || shed_slots_is_idle(&f->slots));
    if (has_left) {
        shed_list_remove(&f->links, &link->node);
        if (f->links.first == NULL)
            shed_slots_go_without(&f->slots);
        kick_locked(f);
    }
    shed_mutex_unlock(f->mu);
    if (has_left) {
        shed_timer_destroy(link->timer);
        shed_latch_count_down(&link->left, 1);
    }
    return has_left;
}

/* Do what is to be done now. */
static void step(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    uint64_t delay_ms = UINT64_MAX;
    struct shed_slots_exchange x;
    bool sends = false;

    if (try_leave(link) || link->call.fn != NULL)
        return;
    shed_mutex_lock(f->mu);
    if (first_locked(f) == link)
        sends = shed_slots_next(&f->slots, shed_now_ms(), &x, &delay_ms);
    shed_mutex_unlock(f->mu);
    if (sends)
        send_exchange(link, &x);
    else if (delay_ms != UINT64_MAX)
        shed_timer_set(link->timer, delay_ms);
    else
        shed_timer_stop(link->timer);
    if (!sends)
        (void)try_leave(link);
}

static void on_post(struct shed_post *post)
{
    step(shed_container_of(post, struct shed_fleet_link, post));
}

/* Redis does not answer in time: go on without it until it does. */
static void give_up(struct shed_fleet_link *link)
{
    struct shed_fleet *f = link->fleet;
    struct shed_error why;

    (void)shed_fail(&why, SHED_EREDIS, "Redis has not answered within %llu ms",
                    (unsigned long long)patience_ms(link));
    shed_mutex_lock(f->mu);
    shed_slots_go_without(&f->slots);
    follow_locked(link, &why);
    shed_mutex_unlock(f->mu);
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
                                     struct shed_mutex *mu,
                                     void (*wake)(struct shed_source *source),
                                     struct shed_source *source)
{
    struct shed_fleet *f = calloc(1, sizeof(*f));
    uint64_t name, life_ms = o->load_timeout_ms + MARGIN_MS;

    if (f == NULL)
        return NULL;
    shed_random_unique(&name, sizeof(name));
    f->mu = mu;
    f->wake = wake;
    f->source = source;
    shed_write_digits(f->budget, o->fleet_loads);
    shed_write_digits(f->life_ms, life_ms);
    if (o->fleet_name != NULL)
        (void)snprintf(f->key, sizeof(f->key), "%s" KEY_SUFFIX, o->fleet_name);
    (void)snprintf(f->name, sizeof(f->name), "%016llx",
                   (unsigned long long)name);
    shed_slots_init(&f->slots, (size_t)o->fleet_loads, life_ms);
    return f;
}

void shed_fleet_destroy(struct shed_fleet *f)
{
    free(f);
}

static const char *database_of(const struct shed_address *address)
{
    return address->db[0] != '\0' ? address->db : "0";
}

/* Slots in two Redis servers would be two budgets. Servers are compared as the
 * URIs name them, because neither may have been reached yet. */
static enum shed_code check_server_locked(const struct shed_fleet *f,
                                          const struct shed_cache *cache,
                                          struct shed_error *err)
{
    const struct shed_fleet_link *first = first_locked(f);
    const struct shed_address *one, *other = cache->client->address;

    if (first == NULL)
        return SHED_OK;
    one = first->cache->client->address;
    if (strcmp(one->text, other->text) == 0 &&
        strcmp(database_of(one), database_of(other)) == 0)
        return SHED_OK;
    return shed_fail(err, SHED_EINVAL,
                     "the source's fleet_loads are counted in one Redis: "
                     "cache %s uses %s, database %s, and cache %s %s, "
                     "database %s: open a source for each",
                     first->cache->name, one->text, database_of(one),
                     cache->name, other->text, database_of(other));
}

static void add_locked(struct shed_fleet *f, struct shed_fleet_link *link)
{
    shed_list_append(&f->links, &link->node);
    if (f->key[0] == '\0')
        (void)snprintf(f->key, sizeof(f->key), "%s" KEY_SUFFIX,
                       link->cache->name);
    if (first_locked(f) == link) {
        shed_slots_attach(&f->slots);
        f->was_away = false;
        f->changed_us = shed_now_us();
        kick_locked(f);
    }
}

enum shed_code shed_fleet_join(struct shed_fleet *f, struct shed_cache *cache,
                               struct shed_fleet_link **out,
                               struct shed_error *err)
{
    struct shed_fleet_link *link;
    enum shed_code code;

    *out = NULL;
    if (f->slots.budget == 0)
        return SHED_OK;
    link = calloc(1, sizeof(*link));
    if (link != NULL)
        link->timer = shed_timer_create(cache->client->reactor, on_timer, link);
    if (link == NULL || link->timer == NULL) {
        free(link);
        return shed_fail_nomem(err, "a cache");
    }
    link->fleet = f;
    link->cache = cache;
    link->post.run = on_post;
    shed_latch_init(&link->left, 1);
    shed_mutex_lock(f->mu);
    code = check_server_locked(f, cache, err);
    if (code == SHED_OK)
        add_locked(f, link);
    shed_mutex_unlock(f->mu);
    if (code == SHED_OK) {
        *out = link;
        return SHED_OK;
    }
    shed_timer_destroy(link->timer); /* it is not in the loop yet */
    free(link);
    return code;
}

static void leave_on_reactor(void *arg)
{
    struct shed_fleet_link *link = arg;

    link->is_leaving = true;
    step(link);
}

enum shed_code shed_fleet_probe(const struct shed_fleet *f,
                                struct shed_client *client,
                                uint64_t deadline_ms, struct shed_error *err)
{
    if (f->slots.budget == 0)
        return SHED_OK;
    return shed_probe(client, "fleet", shed_str(f->key), shed_str(f->key),
                      deadline_ms, err);
}

void shed_fleet_leave(struct shed_fleet_link *link)
{
    if (link == NULL)
        return;
    shed_reactor_run(link->cache->client->reactor, leave_on_reactor, link);
    (void)shed_latch_wait(&link->left, UINT64_MAX);
    free(link);
}
