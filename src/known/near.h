/*
 * What makes rows near (local.h): it asks Redis, over the session whose reads
 * are tracked, whether an entry that a GET has found is still there. From then
 * on Redis announces its end. Of keys with the client's tracking_prefix all
 * changes are announced: then the GET itself is enough.
 *
 * The GET itself goes over a link in its caller's thread, which is quicker for
 * the caller, and is not tracked: tracking ends without a word with the
 * connection, and nobody watches an idle link. The question asks for the header
 * of the entry alone, which tells it from all others.
 */
#ifndef SHED_NEAR_H
#define SHED_NEAR_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "entry/key.h"
#include "entry/parts.h"
#include "known/local.h"

struct shed_near;

/* Returns: NULL when out of memory. Of cache, whose local rows it serves, it
 * borrows. */
struct shed_near *shed_near_create(struct shed_cache *cache);

/* Wait for the questions under way. No call of the cache is. Afterwards only
 * the two functions that tell of pushes may be called, and destroy. */
void shed_near_close(struct shed_near *near);
void shed_near_destroy(struct shed_near *near);

/* A GET has found the row of this key, which was kept: let it become near. mark
 * is of before the GET, header the entry's. Any thread. */
void shed_near_ask(struct shed_near *near, const struct shed_key *key,
                   struct shed_local_mark mark, const void *header);

/* Take a row that is near, which a call may be given as rule says (of a row of
 * the cache; not of "no such row", which is given out until its ttl ends).
 * Returns: a reference, or NULL; *is_due: it is to be refreshed. */
struct shed_value *shed_near_get(struct shed_near *near, struct shed_bytes key,
                                 const struct shed_freshness_rule *rule,
                                 bool *is_due);

/* Add the hits since it was last called to the cache's counters. Any thread. */
void shed_near_count(struct shed_near *near);

/* Redis has announced a change of this key of the cache, NAME:{..., or
 * announcements have begun, ended or been lost. Reactor thread; near may be
 * NULL. */
void shed_near_change(struct shed_near *near, struct shed_bytes key);
void shed_near_epoch(struct shed_near *near);

#endif
