/*
 * The settings of connections: the URI, the timeouts and the TLS files of
 * struct shed_mysql_options, checked and copied.
 */
#ifndef SHED_MYSQL_CONFIG_H
#define SHED_MYSQL_CONFIG_H

#include <stdint.h>

#include <snowshed/mysql.h>

#include "mysql/uri.h"

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
