/*
 * Asks how many replicas have what a key holds (GET, INCRBY 0, then WAIT).
 * While WAIT waits the server answers nothing else on its connection, so it has
 * a connection of its own, which is made when it is first needed. One WAIT at a
 * time serves all who have asked until it is sent.
 *
 * Reactor thread only, except create.
 */
#ifndef SHED_REDIS_ACKS_H
#define SHED_REDIS_ACKS_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "redis/pipe.h"

struct shed_acks;

/* A question. Its memory is the caller's, and stays until fn is called. */
struct shed_ack {
    struct shed_ack *next;
    /* the question */
    const char *key;
    size_t key_size;
    const unsigned char *token; /* to be found in the key's value */
    size_t token_size;
    const char *counter; /* at the same server; it stays as it is */
    size_t counter_size;
    uint64_t replicas; /* how many to wait for */
    void (*fn)(void *arg, const struct shed_ack *ack);
    void *arg;
    /* the answer */
    bool is_there;       /* the value had the token */
    uint64_t count;      /* of replicas that have what the server had then */
    uint64_t timeout_ms; /* for how long they were waited for, at most */
    struct shed_error error; /* SHED_OK, or why there is no answer */

    struct shed_call read, write;
};

/* Nothing is connected yet. Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_acks_create(struct shed_reactor *reactor, struct shed_gate *gate,
                 const struct shed_client_options *options,
                 struct shed_acks **out, struct shed_error *err);

/* Set the fields of the question before. fn is called exactly once, never
 * before this returns. */
void shed_acks_ask(struct shed_acks *acks, struct shed_ack *ack);

/* Whether nothing is asked. */
bool shed_acks_is_idle(const struct shed_acks *acks);

/* Its connection, to be driven as the session's own two are. */
struct shed_pipe *shed_acks_pipe(struct shed_acks *acks);

/* Close for good; nothing may be asked. NULL is allowed. */
void shed_acks_close(struct shed_acks *acks);

#endif
