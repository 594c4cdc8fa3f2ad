/* The server and the account that a mysql:// URI names. */
#ifndef SHED_MYSQL_URI_H
#define SHED_MYSQL_URI_H

#include <snowshed/snowshed.h>

#include "base/uri.h"

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

#endif
