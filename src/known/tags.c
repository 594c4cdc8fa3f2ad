/* The tags of a cache. Its invariant: whatever was noted makes an entry from
 * before it a miss, by its tag or by the floor. */
#include "known/tags.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct shed_tag {
    struct shed_tag *chain;
    struct shed_tag *before, *after; /* in the list, the oldest first */
    uint64_t position;
    size_t size;
    unsigned char tag[];
};

/* --------------------------------------------------------------- the sets */

static struct shed_tag **chain_of(struct shed_tag_set *set, const void *tag,
                                  size_t size)
{
    return &set->chains[XXH3_64bits(tag, size) % SHED_TAGS_CHAINS];
}

static struct shed_tag *find(const struct shed_tag_set *set, const void *tag,
                             size_t size)
{
    struct shed_tag *g = set->chains[XXH3_64bits(tag, size) % SHED_TAGS_CHAINS];

    while (g != NULL && (g->size != size || memcmp(g->tag, tag, size) != 0))
        g = g->chain;
    return g;
}

static void append(struct shed_tag_set *set, struct shed_tag *g)
{
    g->before = set->end;
    g->after = NULL;
    if (set->end != NULL)
        set->end->after = g;
    else
        set->first = g;
    set->end = g;
}

static void unlink_tag(struct shed_tag_set *set, struct shed_tag *g)
{
    if (g->before != NULL)
        g->before->after = g->after;
    else
        set->first = g->after;
    if (g->after != NULL)
        g->after->before = g->before;
    else
        set->end = g->before;
}

/* Returns: NULL when memory is out. */
static struct shed_tag *add(struct shed_tag_set *set, struct shed_bytes tag)
{
    struct shed_tag *g = malloc(sizeof(*g) + tag.size);
    struct shed_tag **chain;

    if (g == NULL)
        return NULL;
    g->position = 0;
    g->size = tag.size;
    if (tag.size > 0)
        memcpy(g->tag, tag.data, tag.size);
    chain = chain_of(set, g->tag, g->size);
    g->chain = *chain;
    *chain = g;
    append(set, g);
    set->count++;
    return g;
}

static void destroy(struct shed_tag_set *set, struct shed_tag *g)
{
    struct shed_tag **at = chain_of(set, g->tag, g->size);

    while (*at != g)
        at = &(*at)->chain;
    *at = g->chain;
    unlink_tag(set, g);
    set->count--;
    free(g);
}

static void destroy_all(struct shed_tag_set *set)
{
    while (set->first != NULL)
        destroy(set, set->first);
}

/* -------------------------------------------------------------- the tags */

void shed_tags_init(struct shed_tags *gs, size_t limit)
{
    memset(gs, 0, sizeof(*gs));
    gs->limit = limit;
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
    while (gs->known.first != NULL && gs->known.first->position <= gs->floor)
        destroy(&gs->known, gs->known.first);
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
    unlink_tag(&gs->known, g);
    append(&gs->known, g);
    if (gs->known.count > gs->limit)
        raise_floor(gs, gs->known.first->position);
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
