/* The map. Its invariants: each slot has a node, which is used; a node's count
 * is that of its slots; an answer that is not a map changes nothing. */
#include "client/cluster_map.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static uint16_t owner_of(const struct shed_cluster_map *m, size_t slot)
{
    return atomic_load_explicit(&m->owner[slot], memory_order_relaxed);
}

static bool is_at(const struct shed_cluster_node *node,
                  const struct shed_place *at)
{
    return node->is_used && shed_place_is_same(&node->at, at);
}

size_t shed_cluster_map_find(struct shed_cluster_map *m,
                             const struct shed_place *at, uint64_t now_ms)
{
    size_t empty = SHED_CLUSTER_NODES_MAX;

    for (size_t i = SHED_CLUSTER_NODES_MAX; i-- > 0;) {
        if (is_at(&m->node[i], at))
            return i;
        if (!m->node[i].is_used)
            empty = i;
    }
    if (empty < SHED_CLUSTER_NODES_MAX)
        m->node[empty] = (struct shed_cluster_node){
            .is_used = true, .at = *at, .idle_ms = now_ms};
    return empty;
}

void shed_cluster_map_forget(struct shed_cluster_map *m, size_t i)
{
    assert(m->node[i].slots == 0);
    m->node[i].is_used = false;
}

void shed_cluster_map_init(struct shed_cluster_map *m,
                           const struct shed_place *at, uint64_t now_ms)
{
    size_t first = shed_cluster_map_find(m, at, now_ms);

    m->node[first].slots = SHED_HASH_SLOTS;
    m->ask_ms = now_ms;
}

/* -------------------------------------------------------------- when to ask */

void shed_cluster_map_ask(struct shed_cluster_map *m, uint64_t now_ms)
{
    m->asked_ms = now_ms;
    m->is_hurried = m->is_doubted = m->is_redirected = false;
}

/* At once, unless it has just been asked. */
static bool ask_soon(struct shed_cluster_map *m, uint64_t now_ms)
{
    uint64_t at_ms = m->asked_ms + SHED_MAP_SOON_MS;

    if (at_ms < now_ms)
        at_ms = now_ms;
    m->is_hurried = true;
    if (at_ms >= m->ask_ms)
        return false;
    m->ask_ms = at_ms;
    return true;
}

/* Another node is to be asked. */
static void doubt(struct shed_cluster_map *m, uint64_t now_ms)
{
    m->is_doubted = true;
    m->ask_ms = UINT64_MAX;
    (void)ask_soon(m, now_ms);
}

bool shed_cluster_map_hurry(struct shed_cluster_map *m,
                            const struct shed_redirect *redirect, bool is_down,
                            uint64_t now_ms)
{
    m->is_doubted |= is_down;
    if (redirect != NULL) {
        m->is_redirected = true;
        m->redirect = *redirect;
    }
    return ask_soon(m, now_ms);
}

/* -------------------------------------------------------------- an answer */

/* first, last, {host, port, ...}, replicas */
struct range {
    size_t first, last;
    struct shed_place at;
};

/* A host that the node does not tell is its own; with '?' it does not know it
 * either. */
static bool read_host(const struct shed_reply *part, const char *own,
                      char host[SHED_HOST_BYTES])
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(part, &size);

    if (shed_reply_is_nil(part) || (bytes != NULL && size == 0))
        return snprintf(host, SHED_HOST_BYTES, "%s", own) < SHED_HOST_BYTES;
    return shed_reply_copy(part, host, SHED_HOST_BYTES) && host[0] != '?';
}

static bool read_range(const struct shed_reply *part, const char *own,
                       struct range *out)
{
    const struct shed_reply *node = shed_reply_at(part, 2);
    long long first = shed_reply_integer(shed_reply_at(part, 0));
    long long last = shed_reply_integer(shed_reply_at(part, 1));
    long long port = shed_reply_integer(shed_reply_at(node, 1));

    if (first < 0 || last < first || last >= SHED_HASH_SLOTS || port <= 0 ||
        port > UINT16_MAX ||
        !read_host(shed_reply_at(node, 0), own, out->at.host))
        return false;
    out->first = (size_t)first;
    out->last = (size_t)last;
    (void)snprintf(out->at.port, sizeof(out->at.port), "%u", (unsigned)port);
    return true;
}

static bool is_map(const struct shed_reply *reply, const char *own)
{
    struct range range;

    for (size_t i = 0; i < shed_reply_count(reply); i++)
        if (!read_range(shed_reply_at(reply, i), own, &range))
            return false;
    return shed_reply_count(reply) > 0;
}

/* Returns: whether a slot has changed hands. */
static bool give(struct shed_cluster_map *m, const struct range *range,
                 size_t node, uint64_t now_ms)
{
    bool has_moved = false;

    for (size_t slot = range->first; slot <= range->last; slot++) {
        struct shed_cluster_node *before = &m->node[owner_of(m, slot)];
        if (before == &m->node[node])
            continue;
        before->slots--;
        before->idle_ms = now_ms;
        m->node[node].slots++;
        m->node[node].has_gained = true;
        atomic_store(&m->owner[slot], (uint16_t)node);
        has_moved = true;
    }
    return has_moved;
}

/* The answer contradicts a redirection that is newer. */
static bool is_contradicted(const struct shed_cluster_map *m)
{
    const struct shed_redirect *r = &m->redirect;

    return m->is_redirected && !is_at(&m->node[owner_of(m, r->slot)], &r->to);
}

struct shed_cluster_change
shed_cluster_map_take(struct shed_cluster_map *m,
                      const struct shed_reply *reply, const char *host,
                      uint64_t now_ms, bool (*may_own)(void *arg, size_t i),
                      void *arg)
{
    struct shed_cluster_change change = {.is_valid = is_map(reply, host)};
    bool had_slots[SHED_CLUSTER_NODES_MAX], was_known = m->is_known;
    struct range range;

    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++)
        had_slots[i] = m->node[i].is_used && m->node[i].slots > 0;
    for (size_t i = 0; change.is_valid && i < shed_reply_count(reply); i++) {
        size_t node;
        (void)read_range(shed_reply_at(reply, i), host, &range);
        node = shed_cluster_map_find(m, &range.at, now_ms);
        if (node < SHED_CLUSTER_NODES_MAX &&
            (may_own == NULL || may_own(arg, node)))
            change.has_moved |= give(m, &range, node, now_ms);
    }
    for (size_t i = 0; was_known && i < SHED_CLUSTER_NODES_MAX; i++)
        change.was_replaced |= had_slots[i] && m->node[i].slots == 0;
    m->is_known |= change.is_valid;
    m->ask_ms = now_ms + SHED_MAP_EVERY_MS;
    if (!change.is_valid || is_contradicted(m))
        doubt(m, now_ms);
    else if (m->is_hurried && !m->is_redirected)
        (void)ask_soon(m, now_ms);
    m->is_redirected = false;
    return change;
}
