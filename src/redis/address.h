/* Where Redis is and who we are to it: the parsed URI, and the socket address
 * that it resolves to. */
#ifndef SHED_REDIS_ADDRESS_H
#define SHED_REDIS_ADDRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include <snowshed/snowshed.h>

struct shed_address {
    /* set at creation */
    char *text;            /* for error texts: without user and password */
    char *user, *password; /* NULL without */
    char *host, *port;     /* NULL with a unix socket */
    char db[24];           /* in decimal; empty for the first */
    /* under mu */
    pthread_mutex_t mu;
    struct sockaddr_storage name;
    socklen_t name_size;
};

/* Parse a URI (its grammar stands at shed_client_open) and resolve it.
 * Returns: SHED_OK and *out; SHED_EINVAL, SHED_EREDIS (the name does not
 * resolve), SHED_ENOMEM. */
SHED_MUST_CHECK int shed_address_create(const char *uri,
                                        struct shed_address **out,
                                        struct shed_error *err);
void shed_address_destroy(struct shed_address *address);

/* Copy out, and replace, what the host name resolves to; any thread. */
socklen_t shed_address_get(struct shed_address *address,
                           struct sockaddr_storage *out);
void shed_address_set(struct shed_address *address, const struct sockaddr *name,
                      socklen_t size);

#endif
