/* The type of a query's key column, and which keys it can hold. Pure. */
#ifndef SHED_MYSQL_COLUMN_H
#define SHED_MYSQL_COLUMN_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "mysql/compat.h"

enum shed_mysql_kind {
    SHED_MYSQL_OTHER,   /* the server compares it in another way than keys */
    SHED_MYSQL_BYTES,   /* text, or bytes */
    SHED_MYSQL_TIME,    /* a DATE or DATETIME */
    SHED_MYSQL_INTEGER, /* of at most 64 bits */
    SHED_MYSQL_DECIMAL  /* without fraction: an integer, too */
};

struct shed_mysql_column {
    enum shed_mysql_kind kind;
    bool is_unsigned;
    size_t size; /* of a TIME, as it is written; of a DECIMAL, the most digits;
                    else 0 */
};

/* Read the type from a column's metadata. Returns: SHED_OK; SHED_ESOURCE if it
 * suits no key, and err names the column. */
SHED_MUST_CHECK enum shed_code
shed_mysql_column_read(const MYSQL_FIELD *field, struct shed_mysql_column *out,
                       struct shed_error *err);

/* Whether the same keys fit both. */
bool shed_mysql_column_is_same(const struct shed_mysql_column *a,
                               const struct shed_mysql_column *b);

/* Whether its keys are integers; otherwise they are strings. */
bool shed_mysql_column_is_integer(const struct shed_mysql_column *column);

/* Whether a row of the column can have this key. A string that the server would
 * have to convert to the column's type does not count: the server would then
 * compare floating-point numbers or texts, and read the whole table (MySQL
 * manual, "Type Conversion in Expression Evaluation"). An integer is written as
 * the server writes it: "42", "-7"; not "042", "+1", "-0", " 1". So a number
 * has only one key, and only one entry. number: set to the key if the column is
 * an INTEGER, of 64 bits with or without a sign as the column's are. */
bool shed_mysql_column_holds(const struct shed_mysql_column *column,
                             struct shed_bytes key, uint64_t *number);

#endif
