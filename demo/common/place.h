/* Where the database of a demo is, from a mysql:// URI. */
#ifndef DEMO_PLACE_H
#define DEMO_PLACE_H

#include <mysql.h>

#include <snowshed/mysql.h>

/* Set the URI for all connections of the process, and try it by connecting
 * once. The URI is not copied. Returns: as shed_mysql_connect; SHED_EINVAL for
 * a wrong URI. */
enum shed_code place_use(const char *uri, struct shed_error *err);

/* Connect a handle there; flags: as for mysql_real_connect. Returns: as
 * shed_mysql_connect. */
enum shed_code place_connect(MYSQL *mysql, unsigned long flags,
                             struct shed_error *err);

#endif
