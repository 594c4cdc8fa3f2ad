/* mysql.h, and the differences between Oracle's libmysqlclient and MariaDB
 * Connector/C: the type of a flag, how TLS is required, how reconnection is
 * forbidden; and how parameters and columns are bound. The only file that
 * includes mysql.h. */
#ifndef SHED_MYSQL_COMPAT_H
#define SHED_MYSQL_COMPAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <mysql.h>

/* The type that MYSQL_BIND's is_null and error point to. */
#if defined(MARIADB_PACKAGE_VERSION) || MYSQL_VERSION_ID < 80001
typedef my_bool shed_mysql_flag;
#else
typedef bool shed_mysql_flag;
#endif

#ifdef MARIADB_PACKAGE_VERSION

/* Require TLS, and a server with a valid certificate for its name. Returns 0 on
 * success. */
static inline int shed_mysql_require_tls(MYSQL *mysql)
{
    shed_mysql_flag on = 1;

    return mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &on) |
           mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &on);
}

/* Forbid reconnection: the new connection would have lost the settings and the
 * statements of the session. Returns 0 on success. */
static inline int shed_mysql_forbid_reconnect(MYSQL *mysql)
{
    shed_mysql_flag off = 0;

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

/* Bind a number of 64 bits, to be read by the library, or written if it is a
 * column of a result. */
static inline void shed_mysql_bind_number(MYSQL_BIND *bind,
                                          const uint64_t *number,
                                          bool is_unsigned)
{
    memset(bind, 0, sizeof(*bind));
    bind->buffer_type = MYSQL_TYPE_LONGLONG;
    bind->is_unsigned = is_unsigned;
    bind->buffer_length = sizeof(*number);
    bind->buffer = (void *)(uintptr_t)number;
}

/* The same for bytes; bind stays where it is. type: MYSQL_TYPE_BLOB;
 * MYSQL_TYPE_STRING, where they are text in the connection's character set. */
static inline void shed_mysql_bind_bytes(MYSQL_BIND *bind,
                                         enum enum_field_types type,
                                         const void *data, size_t size)
{
    memset(bind, 0, sizeof(*bind));
    bind->buffer_type = type;
    bind->buffer = (void *)(uintptr_t)data;
    bind->buffer_length = (unsigned long)size;
    bind->length_value = (unsigned long)size;
    bind->length = &bind->length_value;
}

#endif
