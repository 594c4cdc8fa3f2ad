/* The one place where demos connect to the database. */
#include "place.h"

#define CONNECT_TIMEOUT_MS 5000
#define ANSWER_TIMEOUT_MS 60000 /* above the server's wait for a row's lock */

static const char *server_uri;

enum shed_code place_use(const char *uri, struct shed_error *err)
{
    MYSQL *mysql = mysql_init(NULL);
    enum shed_code code;

    server_uri = uri;
    code = place_connect(mysql, 0, err);
    mysql_close(mysql);
    return code;
}

enum shed_code place_connect(MYSQL *mysql, unsigned long flags,
                             struct shed_error *err)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    options.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    options.read_timeout_ms = ANSWER_TIMEOUT_MS;
    return shed_mysql_connect(mysql, server_uri, &options, flags, err);
}
