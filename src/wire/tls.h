/*
 * TLS to Redis, without a socket: what the peer has sent goes in, what is to be
 * sent to it comes out. Nothing here waits. Only tls.c sees OpenSSL.
 *
 * A server that connections share, and a connection, which one thread at a time
 * uses.
 */
#ifndef SHED_WIRE_TLS_H
#define SHED_WIRE_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

/* ---------------------------------------------------------------- a server */

struct shed_tls_server;

/*
 * Whom to believe and who we are (tls_ca, tls_cert and tls_key of the options),
 * and the last session, which later connections resume. text names the server
 * in reasons and is borrowed.
 *
 * Returns: SHED_OK and *out; SHED_EINVAL (a file that cannot be used),
 * SHED_ENOMEM.
 */
SHED_MUST_CHECK enum shed_code
shed_tls_server_create(const char *text,
                       const struct shed_client_options *options,
                       struct shed_tls_server **out, struct shed_error *err);

/* Another server by the same files, with sessions of its own. Returns: NULL
 * when out of memory. */
struct shed_tls_server *
shed_tls_server_like(const struct shed_tls_server *other, const char *text);

/* Destroy it after its connections; NULL is allowed. In a forked child what
 * OpenSSL has stays, because another thread may have been changing it. */
void shed_tls_server_destroy(struct shed_tls_server *server);

/* ------------------------------------------------------------ a connection */

struct shed_tls;

/* Begin a handshake. The certificate must be for host, a name or an IP address.
 * Returns: SHED_OK and *out; SHED_ENOMEM, SHED_EREDIS. */
SHED_MUST_CHECK enum shed_code shed_tls_create(struct shed_tls_server *server,
                                               const char *host,
                                               struct shed_tls **out,
                                               struct shed_error *err);

/* Destroy it; NULL is allowed. In a forked child, as the server. */
void shed_tls_destroy(struct shed_tls *tls);

/* Whether the handshake has ended: the peer is the one that it should be. */
bool shed_tls_is_open(const struct shed_tls *tls);

/* Take a part of what is to be sent, one record of 16 kB at most; *taken is 0
 * while the handshake lasts. Returns: SHED_OK; SHED_EREDIS, SHED_ENOMEM: close
 * the connection. */
SHED_MUST_CHECK enum shed_code shed_tls_write(struct shed_tls *tls,
                                              const char *plain, size_t size,
                                              size_t *taken,
                                              struct shed_error *err);

/* The bytes for the peer since the last clear, also those of the handshake;
 * *out is borrowed until the next call. Returns: how many. */
size_t shed_tls_output(const struct shed_tls *tls, const char **out);

/* They have all been sent. */
void shed_tls_clear(struct shed_tls *tls);

/* Put in what the peer has sent, if sealed_size is not 0, and read: until *got
 * is 0, because nothing more is complete. plain may be where sealed is. Returns
 * as write does, and also if the peer refuses us or is not the one that it
 * should be: the reason says why. */
SHED_MUST_CHECK enum shed_code
shed_tls_read(struct shed_tls *tls, const char *sealed, size_t sealed_size,
              char *plain, size_t size, size_t *got, struct shed_error *err);

#endif
