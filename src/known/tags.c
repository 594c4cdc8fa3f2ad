/* The tags of a cache. Its invariant: whatever was noted makes an entry from
 * before it a miss, by its tag or by the floor. */
#include "known/tags.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"

/* Known or held. */
struct shed_tag {
    struct shed_map_node in_map;
    struct shed_node in_order;
    uint64_t position; /* the newest; 0: it is not known */
    bool is_held;
    unsigned char tag[];
};

static struct shed_tag *find(const struct shed_tags *gs, struct shed_bytes tag)
{
    struct shed_map_node *node = shed_map_find(&gs->map, shed_map_key(tag));

    return node != NULL ? shed_container_of(node, struct shed_tag, in_map)
                        : NULL;
}

/* Returns: NULL when memory is out. */
static struct shed_tag *find_or_add(struct shed_tags *gs, struct shed_bytes tag)
{
    struct shed_tag *g = find(gs, tag);

    if (g == NULL)
        g = calloc(1, sizeof(*g) + tag.size);
    if (g == NULL || g->in_map.key.at != NULL)
        return g;
    if (tag.size > 0)
        memcpy(g->tag, tag.data, tag.size);
    g->in_map.key = shed_map_key(shed_bytes(g->tag, tag.size));
    shed_map_insert(&gs->map, &g->in_map);
    return g;
}

static void remove_unused(struct shed_tags *gs, struct shed_tag *g)
{
    if (g->position > 0 || g->is_held)
        return;
    shed_map_remove(&gs->map, &g->in_map);
    free(g);
}

/* One is known. */
static struct shed_tag *oldest(const struct shed_tags *gs)
{
    return shed_container_of(gs->known.first, struct shed_tag, in_order);
}

static void forget_oldest(struct shed_tags *gs)
{
    struct shed_tag *g = oldest(gs);

    (void)shed_list_pop(&gs->known);
    gs->count--;
    g->position = 0;
    remove_unused(gs, g);
}

void shed_tags_init(struct shed_tags *gs, size_t limit)
{
    memset(gs, 0, sizeof(*gs));
    gs->limit = limit;
    shed_map_init(&gs->map, gs->chains, SHED_TAGS_CHAINS);
}

void shed_tags_fini(struct shed_tags *gs)
{
    struct shed_map_node *node = shed_map_next(&gs->map, NULL);

    while (node != NULL) {
        struct shed_tag *g = shed_container_of(node, struct shed_tag, in_map);
        node = shed_map_next(&gs->map, node);
        free(g);
    }
}

void shed_tags_forget(struct shed_tags *gs)
{
    while (gs->count > 0)
        forget_oldest(gs);
    gs->newest = gs->floor = 0;
}

static void raise_floor(struct shed_tags *gs, uint64_t position)
{
    if (position > gs->floor)
        gs->floor = position;
    /* the list is nearly in the order of positions; what is left behind a
       higher one goes later */
    while (gs->count > 0 && oldest(gs)->position <= gs->floor)
        forget_oldest(gs);
}

static void note_tag(struct shed_tags *gs, struct shed_bytes tag,
                     uint64_t position)
{
    struct shed_tag *g = find_or_add(gs, tag);

    if (g == NULL) {
        raise_floor(gs, position);
        return;
    }
    if (position <= g->position)
        return;
    if (g->position > 0) {
        shed_list_remove(&gs->known, &g->in_order);
        gs->count--;
    }
    g->position = position;
    shed_list_append(&gs->known, &g->in_order);
    gs->count++;
    if (gs->count > gs->limit)
        raise_floor(gs, oldest(gs)->position);
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
    struct shed_tag *g = find_or_add(gs, tag);

    if (g == NULL)
        return false;
    g->is_held = true;
    gs->held++;
    return true;
}

void shed_tags_release(struct shed_tags *gs, struct shed_bytes tag)
{
    struct shed_tag *g = find(gs, tag);

    if (g == NULL || !g->is_held)
        return;
    g->is_held = false;
    gs->held--;
    remove_unused(gs, g);
}

/* The tag of no bytes is never known: it raises the floor. */
static bool admits_tag(const struct shed_tags *gs, uint64_t position,
                       struct shed_bytes tag)
{
    const struct shed_tag *g = find(gs, tag);

    return g == NULL || (g->position <= position && !g->is_held);
}

bool shed_tags_admit(const struct shed_tags *gs,
                     const struct shed_entry_tags *entry)
{
    const unsigned char *tag;
    size_t at = 0, size;

    if (entry->position >= shed_tags_horizon(gs))
        return true;
    if (entry->position < gs->floor ||
        !admits_tag(gs, entry->position, shed_str("")))
        return false;
    while ((tag = shed_entry_next_tag(entry->tags, entry->tags_size, &at,
                                      &size)) != NULL)
        if (!admits_tag(gs, entry->position, shed_bytes(tag, size)))
            return false;
    return true;
}

uint64_t shed_tags_position(const struct shed_tags *gs, struct shed_bytes tag)
{
    const struct shed_tag *g = find(gs, tag);

    if (tag.size == 0)
        return gs->floor;
    return g != NULL ? g->position : 0;
}

uint64_t shed_tags_horizon(const struct shed_tags *gs)
{
    return gs->held > 0 ? UINT64_MAX : gs->newest;
}
