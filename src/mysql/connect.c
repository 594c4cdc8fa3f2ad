/* Connections for the program's own use, from the same URI and options as a
 * source. Its one invariant: the password is copied only for this call (and by
 * the client library). */
#include <snowshed/mysql.h>

#include "base/error.h"
#include "mysql/compat.h"
#include "mysql/config.h"
#include "mysql/connection.h"
#include "mysql/sigpipe.h"

enum { ALREADY_CONNECTED = 2058 }; /* in both libraries */

static enum shed_code connect_quietly(MYSQL *mysql,
                                      const struct shed_mysql_config *config,
                                      unsigned long flags,
                                      struct shed_error *err)
{
    struct shed_mysql_connection c = {.config = config, .mysql = mysql};
    struct shed_mysql_failure failure = {0};
    struct shed_mysql_sigpipe sigpipe;
    bool is_connected;

    shed_mysql_sigpipe_block(&sigpipe);
    is_connected = shed_mysql_connection_connect(&c, flags, &failure);
    shed_mysql_sigpipe_restore(&sigpipe);
    if (is_connected)
        return SHED_OK;
    if (failure.number == ALREADY_CONNECTED)
        return shed_fail(err, SHED_EINVAL,
                         "MySQL connect: the handle is already connected");
    return shed_fail(err, failure.error.code, "%s", failure.error.reason);
}

enum shed_code shed_mysql_connect(void *mysql, const char *uri,
                                  const struct shed_mysql_options *options,
                                  unsigned long client_flags,
                                  struct shed_error *err)
{
    struct shed_mysql_config config;
    struct shed_mysql_options o;
    enum shed_code code;

    if (uri == NULL)
        return shed_fail(err, SHED_EINVAL, "MySQL connect: uri is NULL");
    code = shed_mysql_config_init(&config, uri, options, &o, err);
    if (code == SHED_OK)
        code = connect_quietly(mysql, &config, client_flags, err);
    shed_mysql_config_fini(&config);
    return code;
}
