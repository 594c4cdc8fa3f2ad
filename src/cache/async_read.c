/*
 * The GETs of asynchronous calls, over the session. Its untracked connections
 * serve them, unless Redis is to announce changes of what is read, which then
 * becomes near. Its invariant: nobody joins a GET that has been sent, because a
 * caller may be given only what was current during its call.
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
    struct shed_list askers[2];   /* of the GET under way, and of the next */
    unsigned char waiting;        /* the latter */
    bool is_shared;
    bool is_tracked;
    unsigned repeats;
    size_t size;
    char key[];
};

/* Reactor thread only. */
struct shed_async_reads {
    struct shed_cache *cache;
    struct shed_async_read *first, **last; /* to be sent */
    struct shed_async_read *later;         /* again, in a moment */
    struct shed_map shared;
    struct shed_map_node *chains[CHAINS];
};

static struct shed_asker *asker_of(struct shed_node *node)
{
    return shed_container_of(node, struct shed_asker, node);
}

static void put(struct shed_asker *asker, struct shed_list *list)
{
    asker->list = list;
    shed_list_append(list, &asker->node);
}

static struct shed_asker *take(struct shed_list *list)
{
    struct shed_node *node = shed_list_pop(list);

    if (node == NULL)
        return NULL;
    asker_of(node)->list = NULL;
    return asker_of(node);
}

static struct shed_list *waiting_of(struct shed_async_read *r)
{
    return &r->askers[r->waiting];
}

/* Have its GET sent at the end of this turn. */
static void add(struct shed_async_reads *rs, struct shed_async_read *r)
{
    r->next = NULL;
    *rs->last = r;
    rs->last = &r->next;
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

static void destroy(struct shed_async_read *r)
{
    struct shed_async *async = r->reads->cache->async;

    if (r->is_shared)
        shed_map_remove(&r->reads->shared, &r->node);
    free(r);
    shed_async_drop(async);
}

/* ------------------------------------------------------------------ answers */

/* Whether changes since before the GET was sent are announced, unless an epoch
 * has ended since then. Another server, to which a redirection led, may be one
 * of which that is not known. */
static bool is_announced(const struct shed_async_read *r)
{
    struct shed_client *client = r->reads->cache->client;
    struct shed_bytes key = shed_bytes(r->key, r->size);

    if (!shed_cache_takes_near(r->reads->cache) || r->call.redirects > 0)
        return false;
    return r->is_tracked ? shed_session_is_on(shed_client_session(client, key))
                         : shed_client_hears_all(client, key);
}

/* Give those who asked what has come; the others are next. */
static void answer(struct shed_async_read *r,
                   const struct shed_call_result *result)
{
    struct shed_list *asked = &r->askers[!r->waiting];
    struct shed_asker *first = take(asked), *other;
    struct shed_error why;
    enum shed_code code;

    if (first != NULL) {
        code = shed_async_get_judge(first, result, is_announced(r), &why);
        while ((other = take(asked)) != NULL)
            shed_async_get_take(other, code, &why, first);
        shed_async_get_take(first, code, &why, NULL);
    }
    r->repeats = 0;
    if (waiting_of(r)->first != NULL)
        add(r->reads, r);
    else
        destroy(r);
}

/* Have the GET sent again in a moment; callers may join it until then. */
static void repeat(struct shed_async_read *r)
{
    struct shed_async_reads *rs = r->reads;
    struct shed_asker *asker;

    while ((asker = take(&r->askers[!r->waiting])) != NULL)
        put(asker, waiting_of(r));
    r->repeats++;
    r->next = rs->later;
    rs->later = r;
    shed_async_flush_later(rs->cache->async);
}

static void on_reply(void *arg, const struct shed_call_result *result)
{
    struct shed_async_read *r = arg;
    struct shed_async_reads *rs = r->reads;
    struct shed_async *async = rs->cache->async;

    shed_async_hold(async);
    if (shed_call_may_repeat(result, r->repeats)) {
        repeat(r);
    } else {
        answer(r, result);
        shed_async_flush(rs);
    }
    shed_async_drop(async);
}

/* ---------------------------------------------------------------- questions */

static void send_get(struct shed_async_read *r)
{
    const struct shed_cache *cache = r->reads->cache;
    bool *is_let_through = asker_of(waiting_of(r)->first)->is_let_through;
    struct shed_args args;

    r->is_tracked =
        shed_cache_takes_near(cache) &&
        !shed_client_hears_all(cache->client, shed_bytes(r->key, r->size));
    args = shed_args_of("GET", NULL);
    args.is_guarded = is_let_through == NULL || !*is_let_through;
    args.is_untracked = !r->is_tracked;
    args.is_followed = true;
    args.is_repeated = r->repeats < SHED_CALL_REPEATS;
    shed_args_add(&args, r->key, r->size);
    r->waiting = !r->waiting;
    shed_client_send(cache->client, &r->call, &args, on_reply, r);
    /* a cluster's servers have a gate each */
    if (is_let_through != NULL && cache->client->address->seeds == NULL)
        *is_let_through |= !r->call.is_refused;
}

/* While they waited, the GET before may have begun a flight. */
static void leave_for_flight(struct shed_async_read *r)
{
    struct shed_node *node = waiting_of(r)->first, *after;

    for (; node != NULL; node = after) {
        struct shed_asker *asker = asker_of(node);
        after = node->after;
        if (!shed_async_get_can_fly(asker))
            continue;
        shed_async_leave(asker);
        shed_async_get_take(asker, SHED_OK, NULL, NULL);
    }
}

void shed_async_flush(struct shed_async_reads *rs)
{
    struct shed_async_read *r = rs->first, *next;

    if (r == NULL)
        return;
    if (!shed_client_knows_servers(rs->cache->client, NULL)) {
        shed_async_flush_later(rs->cache->async);
        return;
    }
    rs->first = NULL;
    rs->last = &rs->first;
    for (; r != NULL; r = next) {
        next = r->next;
        leave_for_flight(r);
        if (waiting_of(r)->first != NULL)
            send_get(r);
        else
            destroy(r);
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

bool shed_async_ask(struct shed_async_reads *rs, struct shed_asker *asker,
                    const struct shed_key *key, bool may_share)
{
    struct shed_map_key wanted = shed_map_key(key->redis);
    struct shed_map_node *node =
        may_share ? shed_map_find(&rs->shared, wanted) : NULL;
    struct shed_async_read *r =
        node != NULL ? shed_container_of(node, struct shed_async_read, node)
                     : create(rs, wanted, may_share);

    if (r == NULL)
        return false;
    put(asker, waiting_of(r));
    return true;
}

void shed_async_leave(struct shed_asker *asker)
{
    if (asker->list != NULL)
        shed_list_remove(asker->list, &asker->node);
    asker->list = NULL;
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
