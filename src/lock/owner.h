/* Threads as owners of locks: an identity that is never reused, and whether its
 * thread has ended. */
#ifndef SHED_LOCK_OWNER_H
#define SHED_LOCK_OWNER_H

#include <stdbool.h>

struct shed_owner;

/* The calling thread. Returns: NULL when out of memory. The reference is not
 * counted: it is valid while the thread runs. */
struct shed_owner *shed_owner_self(void);

/* Keep an owner beyond the end of its thread; NULL is allowed. */
struct shed_owner *shed_owner_ref(struct shed_owner *owner);
void shed_owner_unref(struct shed_owner *owner);

bool shed_owner_has_ended(const struct shed_owner *owner);

#endif
