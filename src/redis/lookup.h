/*
 * Looks up the host name of an address in a thread of its own, or asks the
 * sentinels where the primary is. Reactor thread only, but for
 * shed_lookup_wait.
 */
#ifndef SHED_REDIS_LOOKUP_H
#define SHED_REDIS_LOOKUP_H

#include <netdb.h>

#include "wire/address.h"
#include "redis/reactor.h"

struct shed_lookup;

/* Called once by the loop, when the lookup has ended; it must not be used
 * afterwards. term is the one with which it was started. list is borrowed;
 * NULL: it failed, and failure says why. */
typedef void shed_lookup_fn(void *arg, unsigned term,
                            const struct addrinfo *list, const char *failure);

/* Start a lookup; fn is never called before this returns. Returns: NULL when
 * out of memory or threads. */
struct shed_lookup *shed_lookup_start(struct shed_reactor *reactor,
                                      struct shed_address *address,
                                      unsigned term, shed_lookup_fn *fn,
                                      void *arg);

/* The same in the calling thread, which waits for it: address has the outcome.
 * Any thread. */
void shed_lookup_wait(struct shed_address *address);

/* Do not call its fn. The lookup ends by itself, however long that takes, and
 * nothing waits for it: the reactor may be gone by then. NULL
 * is allowed. */
void shed_lookup_abandon(struct shed_lookup *lookup);

#endif
