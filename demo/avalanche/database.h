/* The one query that all strategies of the load test run. */
#ifndef DEMO_DATABASE_H
#define DEMO_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record.h"
#include "common/strategies.h"

struct database;

/* Connect. Returns NULL on failure, with the reason in why. */
struct database *database_open(char *why, size_t size);
void database_close(struct database *db);

/* Select the rows of ids, in their order. It costs record's load_ms besides,
 * once, as a slow query would. Returns false on failure, with why set. */
bool database_load(struct database *db, struct record *record,
                   const uint64_t *ids, size_t count, struct row *rows,
                   char *why, size_t why_size);

/* A counter of the server's: SHOW GLOBAL STATUS. */
uint64_t database_status(struct database *db, const char *name);

#endif
