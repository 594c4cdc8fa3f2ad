/* The tags of a cache. Its invariant: whatever was noted makes an entry from
 * before it a miss, by its tag or by the floor. */
#include "known/tags.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"

struct shed_tag {
    struct shed_map_node in_map;
    struct shed_node in_order;
    uint64_t position;
    unsigned char tag[];
};

/* --------------------------------------------------------------- the sets */

static void init_set(struct shed_tag_set *set)
{
    memset(set, 0, sizeof(*set));
    shed_map_init(&set->map, set->chains, SHED_TAGS_CHAINS);
}

static struct shed_tag *find(const struct shed_tag_set *set, const void *tag,
                             size_t size)
{
    struct shed_map_node *node =
        shed_map_find(&set->map, shed_map_key(tag, size));

    return node != NULL ? shed_container_of(node, struct shed_tag, in_map)
                        : NULL;
}

/* The set is not empty. */
static struct shed_tag *oldest(const struct shed_tag_set *set)
{
    return shed_container_of(set->order.first, struct shed_tag, in_order);
}

/* Returns: NULL when memory is out. */
static struct shed_tag *add(struct shed_tag_set *set, struct shed_bytes tag)
{
    struct shed_tag *g = malloc(sizeof(*g) + tag.size);

    if (g == NULL)
        return NULL;
    g->position = 0;
    if (tag.size > 0)
        memcpy(g->tag, tag.data, tag.size);
    g->in_map.key = shed_map_key(g->tag, tag.size);
    shed_map_insert(&set->map, &g->in_map);
    shed_list_append(&set->order, &g->in_order);
    set->count++;
    return g;
}

static void destroy(struct shed_tag_set *set, struct shed_tag *g)
{
    shed_map_remove(&set->map, &g->in_map);
    shed_list_remove(&set->order, &g->in_order);
    set->count--;
    free(g);
}

static void destroy_all(struct shed_tag_set *set)
{
    while (set->count > 0)
        destroy(set, oldest(set));
}

/* -------------------------------------------------------------- the tags */

void shed_tags_init(struct shed_tags *gs, size_t limit)
{
    gs->limit = limit;
    gs->newest = gs->floor = 0;
    init_set(&gs->known);
    init_set(&gs->held);
}

void shed_tags_fini(struct shed_tags *gs)
{
    destroy_all(&gs->known);
    destroy_all(&gs->held);
}

void shed_tags_forget(struct shed_tags *gs)
{
    destroy_all(&gs->known);
    gs->newest = gs->floor = 0;
}

static void raise_floor(struct shed_tags *gs, uint64_t position)
{
    if (position > gs->floor)
        gs->floor = position;
    /* the list is nearly in the order of positions; what is left behind a
       higher one goes later */
    while (gs->known.count > 0 && oldest(&gs->known)->position <= gs->floor)
        destroy(&gs->known, oldest(&gs->known));
}

static void note_tag(struct shed_tags *gs, struct shed_bytes tag,
                     uint64_t position)
{
    struct shed_tag *g = find(&gs->known, tag.data, tag.size);

    if (g == NULL)
        g = add(&gs->known, tag);
    if (g == NULL) {
        raise_floor(gs, position);
        return;
    }
    if (position <= g->position)
        return;
    g->position = position;
    shed_list_remove(&gs->known.order, &g->in_order);
    shed_list_append(&gs->known.order, &g->in_order);
    if (gs->known.count > gs->limit)
        raise_floor(gs, oldest(&gs->known)->position);
}

void shed_tags_note(struct shed_tags *gs, struct shed_bytes tag,
                    uint64_t position)
{
    if (position > gs->newest)
        gs->newest = position;
    if (position <= gs->floor)
        return;
    if (tag.size == 0)
        raise_floor(gs, position);
    else
        note_tag(gs, tag, position);
}

bool shed_tags_hold(struct shed_tags *gs, struct shed_bytes tag)
{
    return add(&gs->held, tag) != NULL;
}

void shed_tags_release(struct shed_tags *gs, struct shed_bytes tag)
{
    struct shed_tag *g = find(&gs->held, tag.data, tag.size);

    if (g != NULL)
        destroy(&gs->held, g);
}

static bool admits_tag(const struct shed_tags *gs, uint64_t position,
                       const unsigned char *tag, size_t size)
{
    const struct shed_tag *g = find(&gs->known, tag, size);

    return (g == NULL || g->position <= position) &&
           (gs->held.count == 0 || find(&gs->held, tag, size) == NULL);
}

bool shed_tags_admit(const struct shed_tags *gs,
                     const struct shed_entry_tags *entry)
{
    const unsigned char *tag;
    size_t at = 0, size;

    if (entry->position >= shed_tags_horizon(gs))
        return true;
    if (entry->position < gs->floor ||
        (gs->held.count > 0 && find(&gs->held, "", 0) != NULL))
        return false;
    while ((tag = shed_entry_next_tag(entry->tags, entry->tags_size, &at,
                                      &size)) != NULL)
        if (!admits_tag(gs, entry->position, tag, size))
            return false;
    return true;
}

uint64_t shed_tags_position(const struct shed_tags *gs, struct shed_bytes tag)
{
    const struct shed_tag *g = find(&gs->known, tag.data, tag.size);

    if (tag.size == 0)
        return gs->floor;
    return g != NULL ? g->position : 0;
}

uint64_t shed_tags_horizon(const struct shed_tags *gs)
{
    return gs->held.count > 0 ? UINT64_MAX : gs->newest;
}
