/* The keys of a load in the form that a query needs, and the answers that
 * follow from the rows. */
#ifndef SHED_MYSQL_BATCH_H
#define SHED_MYSQL_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/source.h>

#include "mysql/column.h"

/* A key of the load. */
struct shed_mysql_asked {
    struct shed_bytes key;
    size_t index;    /* in the load */
    uint64_t number; /* if the column is an INTEGER */
    size_t rows;     /* that the query returned for it */
};

/* The keys of a load, or some of them. The query asks for the first
 * asked_count of them. */
struct shed_mysql_part {
    struct shed_load *load;
    size_t value_limit_bytes; /* the longest value that any key may have */
    struct shed_mysql_asked *keys;
    size_t count;
    size_t asked_count; /* the keys that the column can hold, sorted by bytes */
    bool has_strays;    /* there were rows for keys that were not asked for */
};

/* Take the keys of load. Returns false when out of memory; otherwise
 * pass *whole to fini. */
SHED_MUST_CHECK bool shed_mysql_part_init(struct shed_mysql_part *whole,
                                          struct shed_load *load);

/* Free what init has allocated; the parts of the whole are then invalid. */
void shed_mysql_part_fini(struct shed_mysql_part *whole);

/* Begin to ask for a part, or begin again: choose the keys that the column can
 * hold, answer the others as absent, and forget the rows so far. */
void shed_mysql_part_start(struct shed_mysql_part *part,
                           const struct shed_mysql_column *column);

/* Take a row, and answer its key with it. */
void shed_mysql_part_row(struct shed_mysql_part *part, struct shed_bytes key,
                         const struct shed_answer *row);

/* To be called when the result was read to its end: answer the keys without a
 * row. Afterwards the part contains the keys that are still open because a
 * stray may be their row. */
void shed_mysql_part_finish(struct shed_mysql_part *part);

/* Divide a part into halves; with one key, the first half is empty. */
void shed_mysql_part_halve(const struct shed_mysql_part *part,
                           struct shed_mysql_part halves[2]);

/* Fail the keys of the part. */
void shed_mysql_part_fail(struct shed_mysql_part *part, const char *reason);

#endif
