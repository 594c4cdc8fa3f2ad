/*
 * The budget of loads that a source shares with those of other processes: asks
 * Redis for slots (slots.h), over the session of one of the source's caches.
 *
 * The functions for the source are called with its lock held, which guards the
 * fleet, too. A source without such a budget has a fleet that nobody joins.
 */
#ifndef SHED_FLEET_H
#define SHED_FLEET_H

#include <stdbool.h>

#include <snowshed/source.h>

#include "base/mutex.h"
#include "entry/parts.h"

struct shed_fleet;      /* of a source */
struct shed_fleet_link; /* of a cache */

/* options: of the source, checked. mu: its lock, with which wake is called when
 * loads may begin that could not before. Returns: NULL when out of memory. */
struct shed_fleet *shed_fleet_create(const struct shed_source_options *options,
                                     struct shed_mutex *mu,
                                     void (*wake)(struct shed_source *source),
                                     struct shed_source *source);

/* No cache may have joined. NULL is allowed. */
void shed_fleet_destroy(struct shed_fleet *fleet);

/* ----------------------------------------------------------- for the source */

/* How many loads could begin now, with slots. */
void shed_fleet_want(struct shed_fleet *fleet, size_t wanted);

/* Whether a load may begin now. */
bool shed_fleet_may_begin(const struct shed_fleet *fleet);

/* A load begins. Returns: how long it has waited for a slot, in us. */
uint64_t shed_fleet_begin(struct shed_fleet *fleet);

/* A load has ended, after cost_us. */
void shed_fleet_end(struct shed_fleet *fleet, uint64_t cost_us);

struct shed_fleet_state {
    size_t loads; /* of all processes, as seen last */
    size_t limit; /* 0: there is no budget */
};
struct shed_fleet_state shed_fleet_look(const struct shed_fleet *fleet);

/* ----------------------------------------------------------- for its caches */

/* Let the fleet use the client of this cache, which must outlive the link. The
 * first cache of a source gives the budget its name, if the options do not.
 * Returns: SHED_OK, with *out NULL if the source has no budget; SHED_ENOMEM;
 * SHED_EINVAL: the client's Redis is not that of the caches that have joined.
 */
SHED_MUST_CHECK enum shed_code shed_fleet_join(struct shed_fleet *fleet,
                                               struct shed_cache *cache,
                                               struct shed_fleet_link **out,
                                               struct shed_error *err);

/* Check that the client's user has the rights that a budget needs, once a cache
 * has joined. Returns: as shed_probe; SHED_OK without a budget. */
SHED_MUST_CHECK enum shed_code shed_fleet_probe(const struct shed_fleet *fleet,
                                                struct shed_client *client,
                                                uint64_t deadline_ms,
                                                struct shed_error *err);

/* Let go of the client. No load of the cache may be under way. The last one to
 * leave gives all slots back; it blocks for one round trip, and at most until
 * Redis counts as silent. NULL is allowed. */
void shed_fleet_leave(struct shed_fleet_link *link);

#endif
