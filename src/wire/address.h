/* Where a server is, and as which user to connect: the parsed URI, and the
 * socket address that it resolves to. */
#ifndef SHED_WIRE_ADDRESS_H
#define SHED_WIRE_ADDRESS_H

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <snowshed/snowshed.h>

#include "base/mutex.h"
#include "base/uri.h"
#include "wire/reply.h"
#include "wire/server_clock.h"

/* In a URI. */
#define SHED_SENTINELS_MAX ((size_t)15)
#define SHED_SEEDS_MAX ((size_t)64)

/* Room for any path. The name of a longer host is cut: it would leave no room
 * for the rest of a reason. */
#define SHED_ADDRESS_TEXT_BYTES 160

struct addrinfo;
struct shed_tls_server;

struct shed_address {
    /* set at creation */
    char text[SHED_ADDRESS_TEXT_BYTES]; /* for reasons: without user and
                                           password; cut if it is longer */
    const char *user, *password;        /* NULL if absent */
    const char *host, *port;            /* NULL for a unix socket */
    /* The sentinels that say where the primary called host is, and how to log
     * in to them (NULL: not). NULL: none. */
    struct shed_place *sentinels;
    const char *sentinel_user, *sentinel_password;
    /* The nodes of a cluster that are asked first. NULL: it is no cluster. */
    struct shed_place *seeds;
    struct shed_place *places; /* one of these, or host and port */
    size_t count;              /* of them */
    bool is_node;              /* of a cluster, by its map */
    bool is_guide; /* it is only asked where others are: a sentinel, or any node
                      of a cluster */
    char db[24];   /* in decimal; empty for database 0, in which connections
                      begin, because a proxy may refuse SELECT */
    struct shed_uri uri;         /* holds the texts that places do not */
    bool is_tls;                 /* set at creation */
    struct shed_tls_server *tls; /* set before the first connection, if so */
    /* atomic */
    atomic_uint refs;
    atomic_bool is_role_refused; /* we have no right to ROLE */
    atomic_bool is_mget_refused; /* nor to MGET */
    atomic_bool is_in_cluster;   /* and its URI says nothing of one */
    struct shed_server_clock clock;
    struct shed_mutex mu;
    pthread_cond_t looked_up;
    /* under mu */
    struct sockaddr_storage name;
    socklen_t name_size; /* 0: the host name has never been resolved */
    struct sockaddr_storage
        refused;                   /* the last one that no connection reached */
    socklen_t refused_size;        /* 0: none */
    struct shed_error why;         /* why it could not be resolved */
    char primary[SHED_HOST_BYTES]; /* what its sentinels call it last */
    unsigned looked_up_term; /* the server's term (health.h) of the last lookup
                                that has ended */
};

/* Parse a URI (shed_client_open has the grammar) and try to resolve its host.
 * Returns: SHED_OK and *out; SHED_EINVAL, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code shed_address_create(const char *uri,
                                                   struct shed_address **out,
                                                   struct shed_error *err);

/* Prepare TLS, if the URI asks for it; to be called before the first
 * connection. Returns: SHED_OK; SHED_EINVAL (the options), SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_address_use_tls(struct shed_address *address,
                     const struct shed_client_options *options,
                     struct shed_error *err);

/* A node of the cluster, or a sentinel, that base names, or others like them.
 * base has its user, password and TLS, and must stay. A host name is looked up
 * before the first connection. Returns: SHED_OK and *out; SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_address_create_at(const struct shed_address *base,
                       const struct shed_place *at, struct shed_address **out,
                       struct shed_error *err);

/* The functions below may be called on any thread. */

/* Look up its host name, or that of the primary as its sentinels call it, which
 * is noted; else NULL. Blocks while that takes. Returns: what shed_address_set
 * takes, to be given to freeaddrinfo; NULL: err says why. */
struct addrinfo *shed_address_find(struct shed_address *address,
                                   const struct shed_place *primary,
                                   struct shed_error *err);

/* Look up its host name, and set what was found. */
void shed_address_resolve(struct shed_address *address);

/* It is freed when the last of those who hold it has given it back. NULL is
 * allowed for unref. */
struct shed_address *shed_address_ref(struct shed_address *address);
void shed_address_unref(struct shed_address *address);

/* Copy the socket address that the host name resolves to, and the host whose
 * certificate the server must have: that of the URI, or of the primary as its
 * sentinels call it. Returns: SHED_OK; SHED_EREDIS: it has never been resolved,
 * err says why. */
SHED_MUST_CHECK enum shed_code shed_address_get(struct shed_address *address,
                                                struct sockaddr_storage *out,
                                                socklen_t *size,
                                                char host[SHED_HOST_BYTES],
                                                struct shed_error *err);

/* Whether the host name has been resolved. */
bool shed_address_is_known(struct shed_address *address);

/* Record the end of a lookup of the host name that began in this term: with the
 * socket addresses that were found, or, if list is NULL, with this failure.
 * Then the last address is kept; so it is if a lookup of a later term has
 * ended. The address in use becomes the first of the list, or the one after the
 * address that was refused. */
void shed_address_set(struct shed_address *address, unsigned term,
                      const struct addrinfo *list, const char *failure);

/* Record that no connection to the address in use could be made: the next
 * lookup goes on to another address of the name, if it has one. localhost is
 * often ::1 before it is 127.0.0.1, and a server may listen at one of them. */
void shed_address_refuse(struct shed_address *address);

/* Whether the address in use is the one that was refused last. */
bool shed_address_is_refused(struct shed_address *address);

/* Whether connections of this term, the present one, can be to an address that
 * is not in list, which a lookup has found. */
bool shed_address_is_elsewhere(struct shed_address *address, unsigned term,
                               const struct addrinfo *list);

/* Wait until the session's lookup in this term has ended, or until
 * deadline_ms. */
void shed_address_await(struct shed_address *address, unsigned term,
                        uint64_t deadline_ms);

#endif
