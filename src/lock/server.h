/*
 * A server, as one lock reaches it: runs its voter's exchange over the
 * client's reactor, and tells the lock's home reactor, which is the first
 * client's, how that ended and when the key has changed.
 *
 * Home reactor thread only, but for open and close.
 */
#ifndef SHED_LOCK_SERVER_H
#define SHED_LOCK_SERVER_H

#include <stdatomic.h>

#include "client/client.h"
#include "lock/protocol.h"

struct shed_lock_server {
    /* set at creation */
    struct shed_client *client;
    struct shed_reactor *home;
    size_t count; /* of the lock's servers */
    /* what to call, on the home reactor: the exchange has ended; the key may
     * have changed, and with is_epoch, the session too */
    void (*on_answer)(struct shed_lock_server *server);
    void (*on_change)(struct shed_lock_server *server, bool is_epoch);
    void *arg;
    /* whose reactor's turn it is while it is under way; else home's */
    struct shed_exchange *exchange;

    struct shed_call call;
    struct shed_post go, back;
    /* the client's reactor; the flags atomic */
    struct shed_listener listener;
    struct shed_post change;
    atomic_bool is_changing, is_epoch;
};

/* Begin to hear of changes. The fields set at creation and exchange are set,
 * with its spec. Not on a reactor thread. */
void shed_lock_server_open(struct shed_lock_server *server);

/* Hear of no more changes. No exchange may be under way. Not on a reactor
 * thread. */
void shed_lock_server_close(struct shed_lock_server *server);

/* Run the exchange; on_answer follows, never before the return. None may
 * be under way. */
void shed_lock_server_ask(struct shed_lock_server *server);

#endif
