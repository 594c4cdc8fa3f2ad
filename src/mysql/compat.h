/* mysql.h, and the differences between Oracle's libmysqlclient and MariaDB
 * Connector/C: how TLS is required, and how reconnection is forbidden. The only
 * file that includes mysql.h. */
#ifndef SHED_MYSQL_COMPAT_H
#define SHED_MYSQL_COMPAT_H

#include <stdbool.h>

#include <mysql.h>

#ifdef MARIADB_PACKAGE_VERSION

/* Require TLS, and a server with a valid certificate for its name. Returns 0 on
 * success. */
static inline int shed_mysql_require_tls(MYSQL *mysql)
{
    my_bool on = 1;

    return mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &on) |
           mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &on);
}

/* Forbid reconnection: the new connection would have lost the settings and the
 * statements of the session. Returns 0 on success. */
static inline int shed_mysql_forbid_reconnect(MYSQL *mysql)
{
    my_bool off = 0;

    return mysql_options(mysql, MYSQL_OPT_RECONNECT, &off);
}

/* Whether the connection reconnects by itself. */
static inline bool shed_mysql_reconnects(const MYSQL *mysql)
{
    return mysql->options.reconnect != 0;
}

#else

static inline int shed_mysql_require_tls(MYSQL *mysql)
{
    unsigned mode = SSL_MODE_VERIFY_IDENTITY;

    return mysql_options(mysql, MYSQL_OPT_SSL_MODE, &mode);
}

/* Not by the option: since 8.0.34 it writes a warning to standard error. */
static inline int shed_mysql_forbid_reconnect(MYSQL *mysql)
{
    mysql->reconnect = false;
    return 0;
}

/* Not by mysql_get_option, which writes the same warning. */
static inline bool shed_mysql_reconnects(const MYSQL *mysql)
{
    return mysql->reconnect;
}

#endif

#endif
