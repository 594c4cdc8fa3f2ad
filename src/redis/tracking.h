/*
 * What one connection asks Redis to announce (CLIENT TRACKING): changes of the
 * keys that were read over it, or of all keys with a prefix. Another connection
 * hears them, so it is asked again whenever that is a new one.
 *
 * Reactor thread only.
 */
#ifndef SHED_REDIS_TRACKING_H
#define SHED_REDIS_TRACKING_H

#include <stdbool.h>

#include "redis/pipe.h"

#define SHED_CLIENT_ID_BYTES 24 /* in decimal, with a 0 */

/* Part of its owner. */
struct shed_tracking {
    /* the owner's */
    struct shed_pipe *pipe; /* that asks */
    const char *prefix;     /* NULL: of keys that are read over pipe */
    const char *listener;   /* the client id of the connection that hears */
    void (*on_answer)(void *arg, const struct shed_reply *reply);
    void *arg;
    /* its own */
    struct shed_call off, on;
    char asked[SHED_CLIENT_ID_BYTES]; /* the listener, when it was sent */
};

/* Ask. on_answer is called with the reply, or NULL if the connection was lost;
 * not if the listener is another one by then: then it asks again. */
void shed_tracking_ask(struct shed_tracking *tracking);

#endif
