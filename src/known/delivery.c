/*
 * The delivery of undelivered writes. Its invariants: a write that was added
 * leaves the set only when Redis has carried it out, or a later one that does
 * as much; or it is told as dropped. A key is in the set at most once, with the
 * strongest write that it still needs.
 *
 * Failed writes are numbered. A delivery, or another write of the key, makes up
 * for all writes that had failed before it was sent. A write that fails later
 * needs another delivery.
 *
 * Deliveries go over the session, one script each, so many at a time that a
 * long list costs few round trips and a caller's flight never waits behind much
 * of it. After a failure one goes alone, with a growing pause between, until
 * Redis takes it.
 *
 * A failover to a replica takes back what that had not received yet. So what
 * has been carried out is remembered, the newest undelivered_limit writes of
 * the last failover_memory_ms, and goes once more to a server that is another
 * run. A repeated invalidation costs a load at most. Tags need none of it: a
 * log that has lost its end is noticed by each reader (tag_log.h).
 *
 * A full set refuses more keys, and the caller is told. To distrust all keys
 * of the cache instead would send every read to the database, at the moment
 * when Redis has just come back and the database has to be spared.
 */
#include "known/delivery.h"

#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mutex.h"
#include "base/random.h"
#include "entry/entry.h"
#include "entry/key.h"
#include "known/tag_log.h"

#define WINDOW 64
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000
#define US_PER_MS 1000
/* Enough for short chains at the largest limit that snowshed.h allows. */
#define CHAINS ((size_t)4096)

/* One write that is undelivered, or remembered. */
struct letter {
    /* set at creation */
    struct shed_delivery *delivery;
    struct shed_bytes user_key; /* in name; of a tag: the tag */
    /* under mu */
    struct shed_map_node in_map;
    struct shed_node in_order; /* of the set, unless it is under way; or of
                                  what is remembered */
    enum shed_wish wish;
    uint64_t number;   /* of the newest failed write of the key */
    bool is_under_way; /* being delivered */
    bool is_told; /* that it is undelivered; else a former server has carried
                     it out */
    uint64_t since_us;
    /* reactor thread only */
    struct shed_call call;
    uint64_t sent; /* what number was when the call began */
    char name[];   /* of the refresh lease, which begins with that of the key;
                      of a tag: its name */
};

struct shed_delivery {
    /* set at creation */
    struct shed_cache *cache;
    uint64_t memory_us;
    size_t limit; /* of the set, and of what is remembered */
    struct shed_post wake;
    atomic_size_t count; /* of the set; written under mu */

    struct shed_mutex mu;
    /* under mu */
    uint64_t last;          /* the number of the newest failed write */
    struct shed_list order; /* of the set, in which it is to be sent */
    struct shed_map map;    /* of the set */
    struct shed_map_node *chains[CHAINS];
    struct shed_list memory; /* of what was carried out, oldest first */
    size_t remembered;

    /* reactor thread only */
    struct shed_timer *timer;
    struct shed_listener listener;
    bool is_pausing;   /* the timer runs */
    unsigned changes;  /* of the server that were acted upon */
    size_t under_way;  /* deliveries */
    unsigned failures; /* in a row */
    bool is_closing;
    bool has_given_up;     /* then: nothing more is sent */
    struct shed_latch end; /* then: waits for the last delivery */
};

/* ----------------------------------------------------------------- the set */

size_t shed_delivery_count(const struct shed_delivery *ob)
{
    return atomic_load_explicit(&ob->count, memory_order_relaxed);
}

static unsigned changes_of(const struct shed_delivery *ob)
{
    return shed_client_server_changes(ob->cache->client);
}

static struct letter *letter_of(struct shed_node *node)
{
    return shed_container_of(node, struct letter, in_order);
}

static struct shed_bytes key_of(const struct letter *letter)
{
    return shed_bytes(letter->name, letter->in_map.key.size);
}

/* A tag is nothing else, so that never changes. */
static bool is_tag(const struct letter *letter)
{
    return letter->wish == SHED_WISH_TAG;
}

/* Returns: NULL if the key is not in the set. */
static struct letter *find_locked(const struct shed_delivery *ob,
                                  struct shed_bytes key)
{
    struct shed_map_node *node = shed_map_find(&ob->map, shed_map_key(key));

    return node != NULL ? shed_container_of(node, struct letter, in_map) : NULL;
}

bool shed_delivery_find(struct shed_delivery *ob, struct shed_bytes key,
                        struct shed_delivery_write *out)
{
    const struct letter *letter;

    /* A thread that has been told of a failed write sees the new count. */
    if (shed_delivery_count(ob) == 0)
        return false;
    shed_mutex_lock(&ob->mu);
    letter = find_locked(ob, key);
    if (letter != NULL && out != NULL)
        *out = (struct shed_delivery_write){letter->wish, ob->last,
                                            changes_of(ob)};
    shed_mutex_unlock(&ob->mu);
    return letter != NULL;
}

struct shed_delivery_write shed_delivery_mark(struct shed_delivery *ob,
                                              enum shed_wish wish)
{
    struct shed_delivery_write write = {.wish = wish,
                                        .changes = changes_of(ob)};

    shed_mutex_lock(&ob->mu);
    write.number = ob->last;
    shed_mutex_unlock(&ob->mu);
    return write;
}

/* ----------------------------------------------------------------- events */

static void tell(struct shed_delivery *ob, enum shed_event_kind kind,
                 struct shed_bytes key, enum shed_code outcome,
                 uint64_t duration_us, const char *reason)
{
    const struct shed_event event = {.kind = kind,
                                     .outcome = outcome,
                                     .name = shed_str(ob->cache->name),
                                     .key = key,
                                     .duration_us = duration_us,
                                     .reason = reason};

    shed_events_tell(ob->cache->client->events, &event);
}

static void tell_delivered(struct shed_delivery *ob,
                           const struct letter *letter)
{
    struct shed_counters *counters = &ob->cache->counters;

    if (!letter->is_told) {
        shed_count(&counters->invalidations_repeated, 1);
        return;
    }
    if (letter->wish != SHED_WISH_EXPIRE)
        shed_count(is_tag(letter) ? &counters->tag_invalidations
                                  : &counters->invalidations,
                   1);
    shed_count(&counters->invalidations_delivered, 1);
    tell(ob, SHED_EVENT_INVALIDATION_DELIVERED, letter->user_key, SHED_OK,
         shed_now_us() - letter->since_us, "");
}

static void tell_dropped(struct shed_delivery *ob, struct shed_bytes key,
                         enum shed_code outcome, const char *reason)
{
    shed_count(&ob->cache->counters.invalidations_dropped, 1);
    tell(ob, SHED_EVENT_INVALIDATION_DROPPED, key, outcome, 0, reason);
}

/* ------------------------------------------------- what is remembered */

/* Something is remembered. */
static struct letter *take_oldest_locked(struct shed_delivery *ob)
{
    ob->remembered--;
    return letter_of(shed_list_pop(&ob->memory));
}

/* Takes over the letter of a write that has been carried out. */
static void remember_locked(struct shed_delivery *ob, struct letter *letter)
{
    uint64_t now_us = shed_now_us();

    if (is_tag(letter) || ob->memory_us == 0 || ob->limit == 0) {
        free(letter);
        return;
    }
    letter->since_us = now_us;
    letter->is_told = false;
    shed_list_append(&ob->memory, &letter->in_order);
    ob->remembered++;
    while (ob->remembered > ob->limit ||
           now_us - letter_of(ob->memory.first)->since_us > ob->memory_us)
        free(take_oldest_locked(ob));
}

/* Have a write of the letter's key in the set: the letter, which is taken over,
 * unless there is one. A tag is held for as long. Returns: the one in the set;
 * NULL: there is none, and *refusal says why. */
static struct letter *insert_locked(struct shed_delivery *ob,
                                    struct letter *letter, const char **refusal)
{
    struct letter *present = find_locked(ob, key_of(letter));

    if (present != NULL) {
        present->number = ++ob->last;
        if (letter->wish > present->wish)
            present->wish = letter->wish;
        free(letter);
        return present;
    }
    if (ob->count >= ob->limit) {
        *refusal = "undelivered_limit is reached";
    } else if (is_tag(letter) &&
               !shed_tag_log_hold(ob->cache->tag_log, letter->user_key)) {
        *refusal = "out of memory";
    } else {
        letter->number = ++ob->last;
        shed_map_insert(&ob->map, &letter->in_map);
        shed_list_append(&ob->order, &letter->in_order);
        ob->count++;
        return letter;
    }
    free(letter);
    return NULL;
}

/* Redis has carried a write of the set out, which is out of the order. */
static void settle_locked(struct shed_delivery *ob, struct letter *letter)
{
    shed_map_remove(&ob->map, &letter->in_map);
    ob->count--;
    if (is_tag(letter))
        shed_tag_log_release(ob->cache->tag_log, letter->user_key);
    tell_delivered(ob, letter);
    remember_locked(ob, letter);
}

/* What was carried out is undelivered again. Takes the letter over. */
static void repeat_locked(struct shed_delivery *ob, struct letter *letter)
{
    const char *unused;

    if (insert_locked(ob, letter, &unused) == NULL)
        shed_count(&ob->cache->counters.invalidations_dropped, 1);
}

/* The server is another one: what the former ones were told is undelivered. */
static void repeat_lost(struct shed_delivery *ob)
{
    uint64_t now_us = shed_now_us();

    shed_mutex_lock(&ob->mu);
    while (ob->remembered > 0) {
        struct letter *letter = take_oldest_locked(ob);
        if (now_us - letter->since_us > ob->memory_us)
            free(letter);
        else
            repeat_locked(ob, letter);
    }
    shed_mutex_unlock(&ob->mu);
}

/* --------------------------------------------------------------- delivery */

static void deliver(struct shed_delivery *ob);

static void pause_delivery(struct shed_delivery *ob)
{
    if (ob->is_pausing || ob->is_closing)
        return;
    ob->is_pausing = true;
    shed_timer_set(ob->timer,
                   shed_backoff_equal_ms(ob->failures++, PAUSE_MIN_MS,
                                         PAUSE_MAX_MS, shed_random_jitter()));
}

/* Reply -1: no integer, so it was not carried out. */
static void on_delivered(void *arg, const struct shed_call_result *result)
{
    struct letter *letter = arg;
    struct shed_delivery *ob = letter->delivery;
    bool is_delivered = shed_reply_integer(result->reply) >= 0;

    shed_mutex_lock(&ob->mu);
    if (is_delivered && is_tag(letter))
        shed_tag_log_note(ob->cache->tag_log, letter->user_key,
                          (uint64_t)shed_reply_integer(result->reply));
    letter->is_under_way = false;
    if (is_delivered && letter->number == letter->sent)
        settle_locked(ob, letter);
    else
        shed_list_append(&ob->order, &letter->in_order);
    shed_mutex_unlock(&ob->mu);
    ob->under_way--;
    if (is_delivered) {
        ob->failures = 0;
    } else {
        ob->has_given_up = ob->is_closing;
        pause_delivery(ob);
    }
    deliver(ob);
}

static void send_letter(struct shed_delivery *ob, struct letter *letter,
                        enum shed_wish wish)
{
    char mark[SHED_DIGITS];
    struct shed_args args;

    if (wish == SHED_WISH_TAG) {
        shed_tag_log_mark(ob->cache->tag_log, mark);
        shed_tag_log_write(ob->cache->tag_log, letter->user_key, mark, &args);
    } else {
        shed_delivery_begin(&args, wish, key_of(letter), "0");
    }
    args.is_guarded = !ob->is_closing; /* the last try is made in any case */
    if (ob->is_closing)
        shed_client_hurry(ob->cache->client, &args);
    ob->under_way++;
    shed_client_send(ob->cache->client, &letter->call, &args, on_delivered,
                     letter);
}

/* The first one of the order. Returns: NULL if there is none. */
static struct letter *next_letter(struct shed_delivery *ob,
                                  enum shed_wish *wish)
{
    struct letter *letter = NULL;
    struct shed_node *node;

    shed_mutex_lock(&ob->mu);
    node = shed_list_pop(&ob->order);
    if (node != NULL) {
        letter = letter_of(node);
        letter->is_under_way = true;
        letter->sent = letter->number;
        *wish = letter->wish;
    }
    shed_mutex_unlock(&ob->mu);
    return letter;
}

static void end(struct shed_delivery *ob)
{
    shed_timer_destroy(ob->timer);
    shed_listeners_remove(ob->cache->client->listeners, &ob->listener);
    shed_latch_count_down(&ob->end, 1);
}

/* Send what may be sent now. */
static void deliver(struct shed_delivery *ob)
{
    size_t window = ob->failures == 0 ? WINDOW : 1;

    while (!ob->is_pausing && !ob->has_given_up && ob->under_way < window) {
        enum shed_wish wish = SHED_WISH_INVALIDATE;
        struct letter *letter = next_letter(ob, &wish);
        if (letter == NULL)
            break;
        send_letter(ob, letter, wish);
    }
    if (ob->is_closing && ob->under_way == 0)
        end(ob);
}

static void on_timer(void *arg)
{
    struct shed_delivery *ob = arg;

    ob->is_pausing = false;
    ob->has_given_up = ob->is_closing;
    if (!ob->has_given_up)
        deliver(ob);
}

/* Redis may be back. */
static void on_epoch(struct shed_listener *listener)
{
    struct shed_delivery *ob =
        shed_container_of(listener, struct shed_delivery, listener);

    if (ob->changes != changes_of(ob)) {
        ob->changes = changes_of(ob);
        repeat_lost(ob);
    }
    if (ob->is_pausing)
        shed_timer_stop(ob->timer);
    ob->is_pausing = false;
    if (shed_client_is_up(ob->cache->client))
        deliver(ob);
    else
        pause_delivery(ob);
}

static void on_wake(struct shed_post *post)
{
    struct shed_delivery *ob =
        shed_container_of(post, struct shed_delivery, wake);

    if (!ob->listener.is_added)
        (void)shed_listeners_add(ob->cache->client->listeners, &ob->listener);
    deliver(ob);
}

/* ----------------------------------------------------------------- writes */

void shed_delivery_begin(struct shed_args *args, enum shed_wish wish,
                         struct shed_bytes key, const char *in_ms)
{
    bool is_expiry = wish == SHED_WISH_EXPIRE;

    shed_script_begin(
        args, is_expiry ? SHED_SCRIPT_EXPIRE : SHED_SCRIPT_INVALIDATE, "2");
    shed_args_add(args, key.data, key.size);
    shed_args_add(args, key.data, key.size + SHED_ENTRY_REFRESH_SUFFIX_BYTES);
    if (is_expiry)
        shed_args_add_text(args, in_ms);
}

void shed_delivery_settle(struct shed_delivery *ob, struct shed_bytes key,
                          struct shed_delivery_write write)
{
    struct letter *letter;

    if (shed_delivery_count(ob) == 0)
        return;
    shed_mutex_lock(&ob->mu);
    letter = find_locked(ob, key);
    /* one that is under way ends with its call */
    if (letter != NULL && !letter->is_under_way &&
        letter->number <= write.number && letter->wish <= write.wish) {
        shed_list_remove(&ob->order, &letter->in_order);
        settle_locked(ob, letter);
    }
    shed_mutex_unlock(&ob->mu);
}

/* Returns: NULL when memory is out. */
static struct letter *create_letter(struct shed_delivery *ob,
                                    const struct shed_key *key,
                                    enum shed_wish wish)
{
    struct letter *letter = calloc(1, sizeof(*letter) + key->redis.size +
                                          SHED_ENTRY_REFRESH_SUFFIX_BYTES);

    if (letter == NULL)
        return NULL;
    (void)shed_entry_refresh_key(key->redis, letter->name);
    letter->in_map.key =
        shed_map_key(shed_bytes(letter->name, key->redis.size));
    letter->delivery = ob;
    letter->wish = wish;
    letter->since_us = shed_now_us();
    letter->user_key = shed_bytes(letter->name + key->at, key->size);
    return letter;
}

static void remember(struct shed_delivery *ob, const struct shed_key *key,
                     struct shed_delivery_write write)
{
    struct letter *letter = create_letter(ob, key, write.wish);
    bool is_lost; /* perhaps carried out by the former server */

    if (letter == NULL)
        return;
    shed_mutex_lock(&ob->mu);
    is_lost = write.changes != changes_of(ob);
    if (is_lost)
        repeat_locked(ob, letter);
    else
        remember_locked(ob, letter);
    shed_mutex_unlock(&ob->mu);
    if (is_lost)
        shed_reactor_wake(ob->cache->client->reactor, &ob->wake);
}

/* A failure is told under the lock, so that this is before its delivery. */
static void add(struct shed_delivery *ob, const struct shed_key *key,
                enum shed_wish wish, struct shed_error *why)
{
    const struct shed_error cause = *why;
    struct letter *letter = create_letter(ob, key, wish);
    const char *refusal = "out of memory";

    shed_mutex_lock(&ob->mu);
    if (letter != NULL)
        letter = insert_locked(ob, letter, &refusal);
    if (letter != NULL && !letter->is_told) {
        letter->is_told = true;
        shed_count(&ob->cache->counters.invalidations_undelivered, 1);
        tell(ob, SHED_EVENT_INVALIDATION_UNDELIVERED, letter->user_key,
             cause.code, 0, cause.reason);
    }
    shed_mutex_unlock(&ob->mu);
    shed_reactor_wake(ob->cache->client->reactor, &ob->wake);
    if (letter != NULL) {
        (void)shed_fail(why, cause.code, "undelivered until Redis takes it: %s",
                        cause.reason);
        return;
    }
    tell_dropped(ob, shed_key_bytes(key), cause.code, refusal);
    (void)shed_fail(why, cause.code,
                    SHED_DELIVERY_DROPPED " (%s), so call again: %s", refusal,
                    cause.reason);
}

void shed_delivery_follow_up(struct shed_delivery *ob,
                             const struct shed_key *key,
                             struct shed_delivery_write write,
                             struct shed_error *why)
{
    if (why->code == SHED_OK) {
        shed_delivery_settle(ob, key->redis, write);
        if (write.wish != SHED_WISH_TAG)
            remember(ob, key, write);
    } else if (why->code != SHED_ENOMEM) {
        add(ob, key, write.wish, why);
    }
}

/* ----------------------------------------------------------- begin and end */

struct shed_delivery *shed_delivery_create(struct shed_cache *cache)
{
    struct shed_delivery *ob = calloc(1, sizeof(*ob));

    if (ob == NULL || shed_mutex_init(&ob->mu, SHED_RANK_DELIVERY) != 0) {
        free(ob);
        return NULL;
    }
    ob->timer = shed_timer_create(cache->client->reactor, on_timer, ob);
    if (ob->timer == NULL) {
        shed_mutex_destroy(&ob->mu);
        free(ob);
        return NULL;
    }
    ob->cache = cache;
    ob->memory_us = cache->options.failover_memory_ms * US_PER_MS;
    ob->wake.run = on_wake;
    ob->listener =
        (struct shed_listener){.key = shed_str(""), /* no key has this name */
                               .on_epoch = on_epoch};
    ob->limit = (size_t)cache->options.undelivered_limit;
    shed_map_init(&ob->map, ob->chains, CHAINS);
    shed_latch_init(&ob->end, 1);
    ob->changes = changes_of(ob);
    shed_reactor_wake(cache->client->reactor, &ob->wake); /* to listen */
    return ob;
}

static void close_on_reactor(void *arg)
{
    struct shed_delivery *ob = arg;

    ob->is_closing = true;
    ob->is_pausing = false;
    ob->failures = 0;
    shed_timer_set(ob->timer, ob->cache->options.timeout_ms);
    deliver(ob);
}

static void drop_all(struct shed_delivery *ob)
{
    struct letter *letter;
    enum shed_wish unused;

    while ((letter = next_letter(ob, &unused)) != NULL) {
        tell_dropped(ob, letter->user_key, SHED_ECLOSED,
                     "the cache was closed before Redis took it");
        free(letter);
    }
    while (ob->remembered > 0)
        free(take_oldest_locked(ob));
}

void shed_delivery_close(struct shed_delivery *ob)
{
    if (ob == NULL)
        return;
    shed_reactor_run(ob->cache->client->reactor, close_on_reactor, ob);
    (void)shed_latch_wait(&ob->end, UINT64_MAX);
    drop_all(ob);
    shed_mutex_destroy(&ob->mu);
    free(ob);
}
