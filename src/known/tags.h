/*
 * Which entries are misses because a tag of theirs was invalidated: all
 * entries of a cache, or those with a tag. Pure: no clock, no lock, no I/O.
 *
 * Invalidations of tags are numbered by Redis; the number is a *position*,
 * and only grows. An entry carries the newest position that its loader knew
 * when the load began. Whatever had been committed before that invalidation is
 * in the row. So an entry is a miss if one of its tags was invalidated at a
 * higher position; and a loader that knows less than it could writes entries
 * that look older than they are, never newer.
 *
 * The number of tags is bounded. Beyond the bound one of the oldest is
 * forgotten, and everything from before its position is a miss: that can cost a
 * load, never give out an old row.
 */
#ifndef SHED_TAGS_H
#define SHED_TAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/list.h"
#include "base/map.h"
#include "entry/entry.h"

/* Positions are below it: in Redis they are doubles, and from there on not
 * every integer is one. */
#define SHED_TAGS_POSITION_END ((uint64_t)1 << 53)

/* Enough for short chains at the usual limits. */
#define SHED_TAGS_CHAINS ((size_t)4096)

struct shed_tags {
    size_t limit;
    uint64_t newest;        /* position that is known */
    uint64_t floor;         /* an entry from before this position is a miss */
    struct shed_list known; /* the tags with a position, the oldest first */
    size_t count;           /* of known */
    size_t held; /* how many tags have an invalidation that is not numbered
                    yet: their entries are misses */
    struct shed_map map; /* of the tags that are known or held */
    struct shed_map_node *chains[SHED_TAGS_CHAINS];
};

/* Begin without any; it knows at most limit tags. */
void shed_tags_init(struct shed_tags *tags, size_t limit);
void shed_tags_fini(struct shed_tags *tags);

/* A tag was invalidated at a position. A tag of no bytes is all entries. When
 * memory is out, everything from before is a miss. */
void shed_tags_note(struct shed_tags *tags, struct shed_bytes tag,
                    uint64_t position);

/* Begin again without any that has a position. */
void shed_tags_forget(struct shed_tags *tags);

/* Make the entries of a tag misses until it is released, because the position
 * of its invalidation is not known yet. Returns: false when memory is out. A
 * tag must not be held twice. */
SHED_MUST_CHECK bool shed_tags_hold(struct shed_tags *tags,
                                    struct shed_bytes tag);
void shed_tags_release(struct shed_tags *tags, struct shed_bytes tag);

/* Whether an entry is not a miss by one of its tags. */
bool shed_tags_admit(const struct shed_tags *tags,
                     const struct shed_entry_tags *entry);

/* The newest position at which a tag is known to have been invalidated; 0:
 * none. Of a tag that is forgotten it is not known. */
uint64_t shed_tags_position(const struct shed_tags *tags,
                            struct shed_bytes tag);

/* The position from which on an entry needs no look at its tags; UINT64_MAX
 * while a tag is held. */
uint64_t shed_tags_horizon(const struct shed_tags *tags);

#endif
