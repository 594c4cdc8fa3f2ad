/*
 * The keys of a load as a query wants them, each once, and the answers that
 * follow from its rows.
 */
#ifndef SHED_MYSQL_BATCH_H
#define SHED_MYSQL_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "mysql/query.h"
#include "mysql/statement.h"

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
    struct shed_mysql_asked **distinct;
    size_t distinct_count;
    bool is_integer;
};

/* Some of the keys, as a query asks for them: the first asked_count. */
struct shed_mysql_part {
    struct shed_mysql_batch *batch;
    struct shed_mysql_asked **keys; /* among the batch's distinct ones */
    size_t count;
    size_t asked_count; /* those that the column can hold, sorted by bytes */
    size_t strays;      /* rows for a key that was not asked for */
};

/* Take the keys of load. Those that no row can have (no integers, say) are
 * absent here. Returns: false if memory is out. What is left is given to fini.
 */
SHED_MUST_CHECK bool shed_mysql_batch_init(struct shed_mysql_batch *batch,
                                           struct shed_load *load,
                                           bool is_integer);
void shed_mysql_batch_fini(struct shed_mysql_batch *batch);

/* All of them. */
struct shed_mysql_part shed_mysql_batch_whole(struct shed_mysql_batch *batch);

/* Begin to ask for a part, or begin again: choose the keys that the column can
 * hold, forget the rows so far. */
void shed_mysql_part_start(struct shed_mysql_part *part,
                           const struct shed_mysql_column *column);

/* For a struct shed_mysql_run, whose user is the part. */
void shed_mysql_part_parameter(void *part, size_t i,
                               struct shed_mysql_parameter *out);
void shed_mysql_part_row(void *part, const struct shed_mysql_row *row);

/* The result was read to its end: answer the keys without a row. The part is
 * left with those of which it cannot be told, because a row of another key was
 * returned for one that was asked for, which may be theirs. If only one was
 * asked for, it is, and fails. */
void shed_mysql_part_finish(struct shed_mysql_part *part);

/* The keys of the part that were asked for, in two halves. */
void shed_mysql_part_halve(const struct shed_mysql_part *part,
                           struct shed_mysql_part halves[2]);

/* There is no result: fail what is left in the part. */
void shed_mysql_part_fail(struct shed_mysql_part *part, const char *reason);

/* Fail what finish has left in it. */
void shed_mysql_part_fail_strays(struct shed_mysql_part *part);

#endif
