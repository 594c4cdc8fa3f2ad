/*
 * What type the key column of a query has, and which keys it can hold. Pure.
 */
#ifndef SHED_MYSQL_COLUMN_H
#define SHED_MYSQL_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mysql/compat.h"
#include "mysql/query.h"

enum shed_mysql_kind {
    SHED_MYSQL_OTHER,  /* no key is compared with it as it is meant */
    SHED_MYSQL_BYTES,  /* text, or bytes */
    SHED_MYSQL_NUMBER, /* an integer type, or YEAR */
    SHED_MYSQL_DIGITS, /* DECIMAL without fraction: an integer, read as text */
    SHED_MYSQL_DATE,   /* DATE and DATETIME */
    SHED_MYSQL_DATETIME
};

struct shed_mysql_column {
    enum shed_mysql_kind kind;
    unsigned type;     /* enum enum_field_types */
    bool is_unsigned;  /* how a NUMBER is read */
    uint64_t greatest; /* of NUMBER and DIGITS */
    uint64_t least;    /* the same below zero, without its sign */
    unsigned decimals; /* of a DATETIME's seconds */
};

/* Take what the metadata of a result say of its first column. */
void shed_mysql_column_read(const MYSQL_FIELD *field,
                            struct shed_mysql_column *out);

bool shed_mysql_column_is_same(const struct shed_mysql_column *a,
                               const struct shed_mysql_column *b);

/* Why keys of this mode, integers or strings, are not asked for in such a
 * column; NULL if they are. */
const char *shed_mysql_column_problem(const struct shed_mysql_column *column,
                                      bool is_integer);

/* Whether a row of the column can have this key. What a server would have to
 * convert first is none: it would compare numbers or times as floating-point
 * numbers or as text then, and read the whole table for it. */
bool shed_mysql_column_holds_integer(const struct shed_mysql_column *column,
                                     const struct shed_mysql_integer *key);
bool shed_mysql_column_holds_string(const struct shed_mysql_column *column,
                                    const void *key, size_t size);

#endif
