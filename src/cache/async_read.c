/*
 * The GETs of asynchronous calls, over the session, whose untracked
 * connections serve them. Its invariant: nobody joins a GET that has been sent,
 * because a caller may be given only what was current during its call.
 *
 * GETs are sent at the end of a turn of the loop, so that those who ask for a
 * key in one turn share one. While a GET of a key is under way, all who ask
 * share the next: one command for Redis, and one reply to parse.
 */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "base/map.h"
#include "cache/pending.h"
#include "cache/look.h"

/* Chains are short: keys that are being read at this moment. */
#define CHAINS ((size_t)4096)

struct shed_async_read {
    struct shed_async_reads *reads;
    struct shed_call call;
    struct shed_map_node node;    /* in the map if it is shared */
    struct shed_async_read *next; /* to be sent */
    struct shed_list askers;
    bool is_shared;
    bool is_sent;
    bool is_held; /* in no list, until an older one of its key is answered */
    unsigned repeats;
    size_t size;
    char key[];
};

/* Reactor thread only. */
struct shed_async_reads {
    struct shed_cache *cache;
    struct shed_async_read *first, **last; /* to be sent */
    struct shed_async_read *later;         /* again, in a moment */
    size_t held;
    struct shed_map shared;
    struct shed_map_node *chains[CHAINS];
};

static struct shed_async_read *read_of(struct shed_map_node *node)
{
    return node != NULL ? shed_container_of(node, struct shed_async_read, node)
                        : NULL;
}

static struct shed_asker *asker_of(struct shed_node *node)
{
    return node != NULL ? shed_container_of(node, struct shed_asker, node)
                        : NULL;
}

/* The newest of a key is the one that is not sent, if there is one. */
static struct shed_async_read *find(const struct shed_async_reads *rs,
                                    struct shed_map_key key)
{
    return read_of(shed_map_find(&rs->shared, key));
}

static void add(struct shed_async_reads *rs, struct shed_async_read *r)
{
    r->next = NULL;
    *rs->last = r;
    rs->last = &r->next;
}

/* Let go of the one that waits for this one. */
static void release_next(struct shed_async_read *r)
{
    struct shed_async_read *newest =
        r->is_shared && r->reads->held > 0 ? find(r->reads, r->node.key) : NULL;

    if (newest == NULL || !newest->is_held)
        return;
    newest->is_held = false;
    r->reads->held--;
    add(r->reads, newest);
}

/* ------------------------------------------------------------------ answers */

static void destroy(struct shed_async_read *r)
{
    if (r->is_shared)
        shed_map_remove(&r->reads->shared, &r->node);
    free(r);
}

/* Give those who asked what has come. */
static void answer(struct shed_async_read *r,
                   const struct shed_call_result *result)
{
    struct shed_asker *first = asker_of(shed_list_pop(&r->askers)), *other;
    struct shed_list others = r->askers;
    struct shed_error why;
    enum shed_code code;

    for (struct shed_node *n = others.first; n != NULL; n = n->after)
        asker_of(n)->read = NULL;
    release_next(r);
    destroy(r);
    if (first != NULL) {
        first->read = NULL;
        code = shed_async_get_judge(first, result, &why);
        while ((other = asker_of(shed_list_pop(&others))) != NULL)
            shed_async_get_take(other, code, &why, first);
        shed_async_get_take(first, code, &why, NULL);
    }
}

static void on_reply(void *arg, const struct shed_call_result *result)
{
    struct shed_async_read *r = arg;
    struct shed_async_reads *rs = r->reads;

    if (shed_async_may_repeat(result, r->repeats)) {
        r->repeats++;
        r->is_sent = false; /* a caller may join it again */
        r->next = rs->later;
        rs->later = r;
        shed_async_flush_later(rs->cache->async);
        return;
    }
    answer(r, result);
    shed_async_flush(rs);
    shed_async_drop(rs->cache->async);
}

/* ---------------------------------------------------------------- questions */

static void send_get(struct shed_async_read *r)
{
    struct shed_client *client = r->reads->cache->client;
    struct shed_args args;

    shed_args_begin(&args, "GET");
    args.is_guarded = true;
    args.is_untracked = true;
    args.is_followed = true;
    args.is_repeated = r->repeats < SHED_ASYNC_REPEATS;
    shed_args_add(&args, r->key, r->size);
    r->is_sent = true;
    shed_client_send(client, &r->call, &args, on_reply, r);
}

/* Whether another GET of the key is under way, for somebody. */
static bool must_wait(struct shed_async_read *r)
{
    struct shed_map_node *older =
        r->is_shared ? shed_map_find_next(&r->node) : NULL;

    return older != NULL && r->askers.first != NULL &&
           read_of(older)->askers.first != NULL;
}

/* While they waited, the GET before may have begun a flight. */
static void leave_for_flight(struct shed_async_read *r)
{
    struct shed_list askers = r->askers;
    struct shed_node *node;

    r->askers = (struct shed_list){NULL, NULL};
    while ((node = shed_list_pop(&askers)) != NULL) {
        struct shed_asker *asker = asker_of(node);
        if (!shed_async_get_can_fly(asker)) {
            shed_list_append(&r->askers, node);
            continue;
        }
        asker->read = NULL;
        shed_async_get_take(asker, SHED_OK, NULL, NULL);
    }
}

void shed_async_flush(struct shed_async_reads *rs)
{
    struct shed_client *client = rs->cache->client;
    struct shed_async_read *r = rs->first, *next;

    if (r == NULL)
        return;
    if (!shed_client_knows_servers(client, NULL)) {
        shed_async_flush_later(rs->cache->async);
        return;
    }
    rs->first = NULL;
    rs->last = &rs->first;
    for (; r != NULL; r = next) {
        next = r->next;
        r->next = NULL;
        r->is_held = must_wait(r);
        rs->held += r->is_held;
        if (r->is_held)
            continue;
        leave_for_flight(r);
        if (r->askers.first == NULL) {
            destroy(r);
            shed_async_drop(rs->cache->async);
        } else {
            send_get(r);
        }
    }
}

void shed_async_send_again(struct shed_async_reads *rs)
{
    struct shed_async_read *r;

    while ((r = rs->later) != NULL) {
        rs->later = r->next;
        add(rs, r);
    }
}

static struct shed_async_read *create(struct shed_async_reads *rs,
                                      struct shed_map_key key, bool is_shared)
{
    struct shed_async_read *r = malloc(sizeof(*r) + key.size);

    if (r == NULL)
        return NULL;
    memset(r, 0, sizeof(*r));
    memcpy(r->key, key.at, key.size);
    r->reads = rs;
    r->size = key.size;
    r->is_shared = is_shared;
    r->node.key = key;
    r->node.key.at = r->key;
    if (is_shared)
        shed_map_insert(&rs->shared, &r->node);
    add(rs, r);
    shed_async_hold(rs->cache->async);
    return r;
}

bool shed_async_ask(struct shed_async_reads *rs, struct shed_asker *asker,
                    const struct shed_key *key, bool may_share)
{
    struct shed_map_key wanted = shed_map_key(key->redis, key->redis_size);
    struct shed_async_read *r = may_share ? find(rs, wanted) : NULL;

    if (r == NULL || r->is_sent)
        r = create(rs, wanted, may_share);
    if (r == NULL)
        return false;
    asker->read = r;
    shed_list_append(&r->askers, &asker->node);
    return true;
}

void shed_async_leave(struct shed_asker *asker)
{
    struct shed_async_read *r = asker->read;

    if (r == NULL)
        return;
    shed_list_remove(&r->askers, &asker->node);
    asker->read = NULL;
    if (r->askers.first == NULL)
        release_next(r);
}

/* ----------------------------------------------------------- begin and end */

struct shed_async_reads *shed_async_reads_create(struct shed_cache *cache)
{
    struct shed_async_reads *rs = calloc(1, sizeof(*rs));

    if (rs == NULL)
        return NULL;
    rs->cache = cache;
    rs->last = &rs->first;
    shed_map_init(&rs->shared, rs->chains, CHAINS);
    return rs;
}

void shed_async_reads_destroy(struct shed_async_reads *rs)
{
    free(rs);
}
