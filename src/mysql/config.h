/*
 * The settings of connections: the URI, the timeouts and the TLS files of
 * struct shed_mysql_options, checked and copied.
 */
#ifndef SHED_MYSQL_CONFIG_H
#define SHED_MYSQL_CONFIG_H

#include <stdint.h>

#include <snowshed/mysql.h>

#include "base/uri.h"

/* The server and the account that a mysql:// URI names. */
struct shed_mysql_uri {
    const char *user;     /* NULL: the name that the program runs under */
    const char *password; /* NULL: none */
    const char *host;     /* NULL: by socket */
    const char *socket;   /* NULL: by TCP */
    const char *database;
    unsigned port;
    struct shed_uri parts; /* which the texts are parts of */
};

/* Parse mysql://[user[:password]@]host[:port]/database, or without host and
 * with ?socket=/path. Reasons never quote the URI, because it may contain a
 * password. Returns: SHED_OK and *out, to be passed to fini; SHED_EINVAL,
 * SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code shed_mysql_uri_parse(const char *text,
                                                    struct shed_mysql_uri *out,
                                                    struct shed_error *err);

/* Wipe and free it. It may be all zero, or one for which parse has failed. */
void shed_mysql_uri_fini(struct shed_mysql_uri *uri);

struct shed_mysql_config {
    struct shed_mysql_uri uri;
    unsigned connect_timeout_s;
    unsigned read_timeout_s;
    uint64_t statement_limit_ms; /* after which the server ends a query */
    char *tls_ca;                /* these may be NULL */
    char *tls_cert;
    char *tls_key;
};

/* Check the caller's options (NULL: the defaults), parse the URI, and copy what
 * concerns connections. *taken: all options, whose texts are the caller's.
 * Returns: SHED_OK, SHED_EINVAL, SHED_ENOMEM; *out must be passed to fini in
 * any case. */
SHED_MUST_CHECK enum shed_code
shed_mysql_config_init(struct shed_mysql_config *out, const char *uri,
                       const struct shed_mysql_options *given,
                       struct shed_mysql_options *taken,
                       struct shed_error *err);

/* Free it; it may be all zero. */
void shed_mysql_config_fini(struct shed_mysql_config *config);

#endif
