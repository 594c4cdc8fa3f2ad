/* Where a server is and who we are there, from a mysql:// URI. */
#ifndef SHED_MYSQL_URI_H
#define SHED_MYSQL_URI_H

#include <snowshed/snowshed.h>

struct shed_mysql_uri {
    const char *user;     /* NULL: the program's own */
    const char *password; /* NULL: none */
    const char *host;     /* NULL: by socket */
    const char *socket;   /* NULL: by TCP */
    const char *database;
    unsigned port;
    /* what the texts stand in */
    char *text;
    size_t text_size;
};

/* Parse mysql://[user[:password]@]host[:port]/database, or without host and
 * with ?socket=/path. No reason quotes the URI: a password stands in it.
 * Returns: SHED_OK and *out, to be given to fini; SHED_EINVAL, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code shed_mysql_uri_parse(const char *text,
                                                    struct shed_mysql_uri *out,
                                                    struct shed_error *err);

/* Free it; nothing of the password stays in memory. What parse failed on, or
 * all zero, may be given too. */
void shed_mysql_uri_fini(struct shed_mysql_uri *uri);

#endif
