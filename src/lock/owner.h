/* Threads as owners of locks: an identity that is not used again, and whether
 * its thread has ended. */
#ifndef SHED_LOCK_OWNER_H
#define SHED_LOCK_OWNER_H

#include <stdbool.h>

struct shed_owner;

/* The calling thread. Returns: NULL when memory is out. Not counted: valid
 * while the thread runs. */
struct shed_owner *shed_owner_self(void);

/* Keep one beyond its thread's end; NULL is allowed. */
struct shed_owner *shed_owner_ref(struct shed_owner *owner);
void shed_owner_unref(struct shed_owner *owner);

bool shed_owner_has_ended(const struct shed_owner *owner);

#endif
