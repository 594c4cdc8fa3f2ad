/* Where the database of a demo is, from a mysql:// URI. */
#ifndef DEMO_PLACE_H
#define DEMO_PLACE_H

#include <mysql.h>
#include <stdbool.h>
#include <stddef.h>

/* Parse mysql://[user[:password]@]host[:port]/database[?socket=/path], with its
 * percent-encoding, once; every connection of the process uses it.
 * Returns: NULL, or what is wrong with it. */
const char *place_parse(const char *uri);

/* Connect a handle there; flags are mysql_real_connect's. Returns false, and
 * mysql_error says why. */
bool place_connect(MYSQL *mysql, unsigned long flags);

#endif
