/* The type of a query's key column, and which keys it can hold. Pure. */
#ifndef SHED_MYSQL_COLUMN_H
#define SHED_MYSQL_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mysql/compat.h"
#include "mysql/query.h"

enum shed_mysql_kind {
    SHED_MYSQL_OTHER,  /* the server compares it in another way than keys */
    SHED_MYSQL_BYTES,  /* text, bytes, or a time */
    SHED_MYSQL_NUMBER, /* an integer type */
    SHED_MYSQL_DIGITS  /* DECIMAL without fraction: an integer, read as text */
};

struct shed_mysql_column {
    enum shed_mysql_kind kind;
    unsigned type;     /* enum enum_field_types */
    bool is_unsigned;  /* how a NUMBER is read */
    uint64_t greatest; /* of NUMBER and DIGITS */
    uint64_t least;    /* their least value, without its minus sign */
    size_t time_size;  /* of a DATE or DATETIME, as it is written; else 0 */
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
 * manual, "Type Conversion in Expression Evaluation"). number: set to the key
 * if the column holds integers. */
bool shed_mysql_column_holds(const struct shed_mysql_column *column,
                             const void *key, size_t size,
                             struct shed_mysql_integer *number);

#endif
