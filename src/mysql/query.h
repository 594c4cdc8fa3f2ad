/* The text of a query, its "(?)", and integer keys. Pure. */
#ifndef SHED_MYSQL_QUERY_H
#define SHED_MYSQL_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

/* A query, and where its "(?)" is. */
struct shed_mysql_query {
    char *text;
    size_t head_size; /* bytes before "(?)" */
    size_t mark_size; /* bytes of "(?)", which may have blanks in it */
};

/* Find the only "(?)"; "( ? )" is one, too. Returns: SHED_OK and *out, to be
 * passed to fini; SHED_EINVAL (none, two), SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_mysql_query_parse(const char *text, struct shed_mysql_query *out,
                       struct shed_error *err);

/* Free it; it may be all zero. */
void shed_mysql_query_fini(struct shed_mysql_query *query);

/* Write the query with room placeholders. Returns the text, to be freed; NULL
 * when out of memory. */
char *shed_mysql_query_expand(const struct shed_mysql_query *query,
                              size_t room);

/* An integer of 64 bits, signed or not. */
struct shed_mysql_integer {
    uint64_t bits; /* two's complement if it is negative */
    bool is_unsigned;
};

/* Parse a decimal integer that is written as the server writes it: "42", "-7";
 * not "042", "+1", "-0", " 1". So a number has only one key, and only one
 * entry. Returns false if the key is not such an integer. */
bool shed_mysql_integer_parse(const void *key, size_t size,
                              struct shed_mysql_integer *out);

#endif
