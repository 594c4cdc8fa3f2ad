/* Where a server is, and as which user to connect: the parsed URI, and the
 * socket address that it resolves to. */
#ifndef SHED_REDIS_ADDRESS_H
#define SHED_REDIS_ADDRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <snowshed/snowshed.h>

#include "base/uri.h"
#include "redis/server_clock.h"

#define SHED_SENTINELS_MAX ((size_t)15)

struct addrinfo;
struct shed_gate;
struct shed_tls_server;

struct shed_address {
    /* set at creation */
    char *text;                  /* for reasons: without user and password */
    const char *user, *password; /* NULL if absent */
    const char *host, *port;     /* NULL for a unix socket */
    /* The sentinels that say where the primary called host is, as they are
     * written in the URI, and how to log in to them (NULL: not). NULL: none. */
    const char *sentinels, *sentinel_user, *sentinel_password;
    bool is_sentinel;    /* it is one of these itself */
    char db[24];         /* in decimal; empty for database 0 */
    struct shed_uri uri; /* holds all of the above except port */
    char port_text[sizeof("4294967295")];
    /* set before the first connection: called when the server was left or has
     * fallen silent, and when a shared connection has reached it; NULL: nobody
     * is told */
    void (*on_move)(void *arg, bool is_reached);
    void *on_move_arg;
    bool is_tls;                 /* set at creation */
    struct shed_tls_server *tls; /* set before the first connection, if so */
    struct shed_gate *gate;      /* of guarded commands; NULL: all are sent */
    /* atomic */
    atomic_bool is_role_refused; /* we have no right to ROLE */
    atomic_uint term;            /* grows each time the server is left */
    _Atomic uint64_t heard_ms;   /* shed_now_ms, of the last answer; 0: it is
                                    silent */
    struct shed_server_clock clock;
    pthread_mutex_t mu;
    pthread_cond_t looked_up;
    /* under mu */
    struct sockaddr_storage name;
    socklen_t name_size;       /* 0: the host name has never been resolved */
    struct shed_error why;     /* why it could not be resolved */
    struct shed_error silence; /* how it fell silent */
    unsigned looked_up_term;   /* the term of the last lookup that has ended */
    unsigned left_count;       /* how often servers were left in a row */
    uint64_t left_ms;          /* when the last one was left, shed_now_ms */
    uint64_t pause_end_ms;     /* no connection before this time */
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
/* Cut the first sentinel off a list, and try to resolve its host. Blocks while
 * that is looked up. Returns: SHED_OK and *out; SHED_EINVAL, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_address_next_sentinel(char **list, const char *user, const char *password,
                           struct shed_address **out, struct shed_error *err);

/* Destroy it; NULL is allowed. */
void shed_address_destroy(struct shed_address *address);

/* The functions below may be called on any thread. */

/* Copy the socket address that the host name resolves to. Returns: SHED_OK;
 * SHED_EREDIS: it has never been resolved, err says why. */
SHED_MUST_CHECK enum shed_code shed_address_get(struct shed_address *address,
                                                struct sockaddr_storage *out,
                                                socklen_t *size,
                                                struct shed_error *err);

/* Whether the host name has been resolved. */
bool shed_address_is_known(struct shed_address *address);

/* Record the end of a lookup of the host name that began in this term: with a
 * socket address, or, if name is NULL, with this failure. Then the last address
 * is kept; so it is if a lookup of a later term has ended. */
void shed_address_set(struct shed_address *address, unsigned term,
                      const struct sockaddr *name, socklen_t size,
                      const char *failure);

/* Whether connections of this term can be to an address that is not in list,
 * which a lookup has found. */
bool shed_address_is_elsewhere(struct shed_address *address, unsigned term,
                               const struct addrinfo *list);

/* Wait until the session's lookup in the present term has ended, or until
 * deadline_ms. */
void shed_address_await(struct shed_address *address, uint64_t deadline_ms);

/* Leave the server that was reached in this term, because it is not a primary,
 * or because the host name leads elsewhere.
 * Connections of the term are no longer used, and the host name is looked up
 * again: at once the first time; after a pause that grows from min_ms to max_ms
 * if this happens repeatedly. */
void shed_address_leave(struct shed_address *address, unsigned term,
                        uint64_t min_ms, uint64_t max_ms);

/* The present term. */
unsigned shed_address_term(const struct shed_address *address);

/* What is left of the pause before the next connection. */
uint64_t shed_address_pause_ms(struct shed_address *address);

/*
 * Whether the server is silent. It is from when a connection has had no answer
 * for a whole timeout, and no other had one in the later half of it, until the
 * session's connection has been answered, or has failed in another way. Until
 * then only the session tries to reach it; calls do without it.
 */
static inline bool shed_address_is_silent(const struct shed_address *address)
{
    return atomic_load_explicit(&address->heard_ms, memory_order_relaxed) == 0;
}

/* An answer came, whatever it says. */
static inline void shed_address_hear(struct shed_address *address,
                                     uint64_t now_ms)
{
    if (atomic_load_explicit(&address->heard_ms, memory_order_relaxed) !=
        now_ms)
        atomic_store_explicit(&address->heard_ms, now_ms, memory_order_relaxed);
}

/* A connection has had no answer since since_ms, for a whole timeout: failure
 * says which. Without on_move nothing changes, because nobody would try. */
void shed_address_hear_nothing(struct shed_address *address, uint64_t since_ms,
                               const struct shed_error *failure);

/* How the server fell silent, and that it is not asked. Returns: SHED_EREDIS.
 */
enum shed_code shed_address_fail_silent(struct shed_address *address,
                                        struct shed_error *err);

#endif
