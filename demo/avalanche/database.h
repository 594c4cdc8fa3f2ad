/* The one query that all strategies of the load test run, and the capacity of
 * the server, which sql/capacity.sql limits. */
#ifndef DEMO_DATABASE_H
#define DEMO_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "record.h"
#include "strategies.h"

struct database;

/* Set the URI for all connections of the process, and try it by connecting
 * once. The URI is not copied. Returns: as shed_mysql_connect; SHED_EINVAL for
 * a wrong URI. */
enum shed_code database_use(const char *uri, struct shed_error *err);

/* Connect. Returns NULL on failure, with the reason in why. */
struct database *database_open(char *why, size_t size);
void database_close(struct database *db);

/* Let this many queries work at a time (0: no limit), for this long each.
 * Returns false on failure, with the reason in why. */
bool database_set_capacity(struct database *db, uint64_t slots,
                           uint64_t load_ms, char *why, size_t why_size);

/* Select the rows of ids, in this order, within the capacity. Returns false on
 * failure, with the reason in why. */
bool database_load(struct database *db, struct record *record,
                   const uint64_t *ids, size_t count, struct row *rows,
                   char *why, size_t why_size);

/* How many queries of all clients the server has begun. */
uint64_t database_queries(struct database *db);

/* Returns how many connections the server allows, and how many are open. */
uint64_t database_connections_max(struct database *db);
uint64_t database_connections(struct database *db);

/* Give an item another price. */
bool database_set_price(struct database *db, uint64_t id, uint64_t price);

#endif
