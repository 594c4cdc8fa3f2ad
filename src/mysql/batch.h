/*
 * The keys of a load as a query wants them, each once, and the answers that
 * follow from its rows.
 */
#ifndef SHED_MYSQL_BATCH_H
#define SHED_MYSQL_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "query.h"
#include "statement.h"

struct shed_mysql_asked {
    const void *data;
    size_t size;
    size_t index; /* in the load */
    struct shed_mysql_integer number;
    struct shed_mysql_asked *twin; /* the same key again */
    size_t rows;                   /* that the query had for it */
};

struct shed_mysql_batch {
    struct shed_load *load;
    struct shed_mysql_asked *keys;
    struct shed_mysql_asked **distinct; /* sorted by bytes */
    size_t distinct_count;
    size_t strays; /* rows for a key that was not asked for */
    bool is_integer;
};

/* Take the keys of load. Those that no row can have (no integers, say) fail
 * here. Returns: false if memory is out. What is left is given to fini. */
SHED_MUST_CHECK bool shed_mysql_batch_init(struct shed_mysql_batch *batch,
                                           struct shed_load *load,
                                           bool is_integer);
void shed_mysql_batch_fini(struct shed_mysql_batch *batch);

/* For shed_mysql_select_run; user is the batch. */
void shed_mysql_batch_parameter(void *batch, size_t i,
                                struct shed_mysql_parameter *out);
void shed_mysql_batch_row(void *batch, const struct shed_mysql_row *row);

/* Forget the rows so far, to run the query again. */
void shed_mysql_batch_restart(struct shed_mysql_batch *batch);

/* The result was read to its end: answer the keys without a row. */
void shed_mysql_batch_finish(struct shed_mysql_batch *batch);

/* There is no result: fail all keys that were to be asked for. */
void shed_mysql_batch_fail(struct shed_mysql_batch *batch, const char *reason);

#endif
