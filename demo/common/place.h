/* Where the database of a demo is, from a mysql:// URI. */
#ifndef DEMO_PLACE_H
#define DEMO_PLACE_H

#include <mysql.h>

#include <snowshed/mysql.h>

/* Set the URI, which is not copied and which every connection of the process
 * uses, and try it: connect once. Returns: as shed_mysql_connect; SHED_EINVAL
 * is a wrong URI. */
enum shed_code place_use(const char *uri, struct shed_error *err);

/* Connect a handle there; flags are mysql_real_connect's. Returns: as
 * shed_mysql_connect. */
enum shed_code place_connect(MYSQL *mysql, unsigned long flags,
                             struct shed_error *err);

#endif
