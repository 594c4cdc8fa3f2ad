/* An asynchronous call, and the queue that it goes to when it has ended. */
#ifndef SHED_CACHE_PENDING_H
#define SHED_CACHE_PENDING_H

#include <snowshed/async.h>

/* The beginning of every call. */
struct shed_pending {
    struct shed_then then;
    struct shed_pending *next; /* in a queue */
    /* the end */
    enum shed_code code;
    struct shed_value *value;
    struct shed_error *why; /* its own; NULL: memory for it was out */
    void (*destroy)(struct shed_pending *pending);
};

/* Check what follows a call. Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code shed_pending_check(const struct shed_then *then,
                                                  struct shed_error *err);

/* Call the done of a call that has ended, and destroy it. */
void shed_pending_tell(struct shed_pending *pending);

/* Add a call that has ended to its queue. Any thread. */
void shed_queue_add(struct shed_queue *queue, struct shed_pending *pending);

#endif
