/*
 * One lock's access to one server: runs the voter's exchange on the reactor of
 * the server's client, and tells the lock, on its home reactor (the first
 * client's), when it has ended and when the key has changed.
 *
 * Home reactor thread only, except open and close.
 */
#ifndef SHED_LOCK_SERVER_H
#define SHED_LOCK_SERVER_H

#include <stdatomic.h>

#include "client/client.h"
#include "lock/machine.h"

struct shed_lock_server {
    /* set at creation */
    struct shed_client *client;
    struct shed_reactor *home;
    size_t count; /* of the lock's servers */
    void *lock;
    /* called on the home reactor: ANSWERED, CHANGE or EPOCH */
    void (*tell)(struct shed_lock_server *server, enum shed_lock_event event);
    /* belongs to the client's reactor while it is under way, otherwise to the
     * home reactor */
    struct shed_exchange *exchange;

    struct shed_call call;
    struct shed_ack ack;
    struct shed_post go;
    struct shed_listener listener; /* the client's reactor */
    struct shed_post told;
    atomic_uint news; /* to be told by that post */
};

/* Begin to listen for changes. The fields "set at creation" must be set. Not on
 * a reactor thread. */
void shed_lock_server_open(struct shed_lock_server *server);

/* Stop listening for changes. No exchange may be under way. Not on a reactor
 * thread. */
void shed_lock_server_close(struct shed_lock_server *server);

/* Run the exchange; the lock is told that it has ended, never before this
 * function returns. No exchange may be under way. */
void shed_lock_server_ask(struct shed_lock_server *server);

#endif
