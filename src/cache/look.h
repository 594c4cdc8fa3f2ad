/*
 * What the reply to a GET is worth to a call: an answer, or a value to fall
 * back on, and whether it is to be refreshed behind the callers. Any thread.
 */
#ifndef SHED_LOOK_H
#define SHED_LOOK_H

#include "cache/cache.h"

/* At most one of the two is set; references of the owner's. */
struct shed_look {
    struct shed_value *value; /* answers the call */
    struct shed_value *old;   /* answers it if the load fails */
};

/* Judge the reply to a GET of key, which is freed or taken over, and begin a
 * refresh if it is due. Returns: SHED_OK, where *out without a value sends the
 * call on to the slow path; SHED_EDENIED, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_look_at(struct shed_cache *cache, const struct shed_key *key,
             struct shed_reply *reply, const struct shed_link_use *use,
             struct shed_look *out, struct shed_error *err);

/* After the slow path has ended with code: hand the old value to *out if it may
 * be given out instead, else release it. Returns: the code of the call. */
SHED_MUST_CHECK enum shed_code shed_look_fall_back(struct shed_cache *cache,
                                                   struct shed_look *look,
                                                   enum shed_code code,
                                                   struct shed_value **out);

#endif
