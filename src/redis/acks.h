/*
 * Asks how many replicas have what a key holds (GET, INCRBY 0, then WAIT).
 * While WAIT waits the server answers nothing else on its connection, so it has
 * a connection of its own, which is made when it is first needed. One WAIT at a
 * time serves all who have asked until it is sent.
 *
 * Reactor thread only.
 */
#ifndef SHED_REDIS_ACKS_H
#define SHED_REDIS_ACKS_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "redis/pipe.h"

/* How much longer than for other connections a reply over its connection may
 * take: an idle Redis looks ten times per second whether a WAIT is over. */
#define SHED_ACKS_LATE_MS 1000

/* Part of its owner. */
struct shed_acks {
    /* the owner's */
    struct shed_pipe *pipe; /* for these questions alone */
    uint64_t timeout_ms;    /* of WAIT */
    /* its own */
    struct shed_ack *waiting; /* for the next WAIT */
    struct shed_ack *asked;   /* served by the one under way */
    struct shed_call wait;
};

/* A question. Its memory is the caller's, and stays until fn is called. */
struct shed_ack {
    struct shed_ack *next;
    /* the question */
    struct shed_bytes key;
    struct shed_bytes token;   /* to be found in the key's value */
    struct shed_bytes counter; /* at the same server; it stays as it is */
    uint64_t replicas;         /* how many to wait for */
    void (*fn)(void *arg, const struct shed_ack *ack);
    void *arg;
    /* the answer */
    bool is_there;       /* the value had the token */
    uint64_t count;      /* of replicas that have what the server had then */
    uint64_t timeout_ms; /* for how long they were waited for, at most */
    struct shed_error error; /* SHED_OK, or why there is no answer */

    struct shed_call read, write;
    unsigned left; /* replies that have not come, that to WAIT included */
};

/* Set the fields of the question before. fn is called exactly once, never
 * before this returns. */
void shed_acks_ask(struct shed_acks *acks, struct shed_ack *ack);

#endif
