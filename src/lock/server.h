/*
 * One lock's access to one server: runs the voter's exchange on the reactor of
 * the server's client, and tells the lock's home reactor (the first client's)
 * how it ended and when the key has changed.
 *
 * Home reactor thread only, except open and close.
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
    /* called on the home reactor: the exchange has ended; the key may have
     * changed (is_epoch: because the session has) */
    void (*on_answer)(struct shed_lock_server *server);
    void (*on_change)(struct shed_lock_server *server, bool is_epoch);
    void *arg;
    /* belongs to the client's reactor while it is under way, otherwise to the
     * home reactor */
    struct shed_exchange *exchange;

    struct shed_call call;
    struct shed_ack ack;
    struct shed_post go, back;
    /* the client's reactor; the flags atomic */
    struct shed_listener listener;
    struct shed_post change;
    atomic_bool is_changing, is_epoch;
};

/* Begin to listen for changes. The fields "set at creation", exchange and its
 * spec must be set. Not on a reactor thread. */
void shed_lock_server_open(struct shed_lock_server *server);

/* Stop listening for changes. No exchange may be under way. Not on a reactor
 * thread. */
void shed_lock_server_close(struct shed_lock_server *server);

/* Run the exchange; on_answer follows, never before this function returns. No
 * exchange may be under way. */
void shed_lock_server_ask(struct shed_lock_server *server);

#endif
