/* The text of a query, its "(?)", and integer keys. Pure. */
#ifndef SHED_MYSQL_QUERY_H
#define SHED_MYSQL_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

/* A query, cut at its "(?)". */
struct shed_mysql_query {
    char *text;       /* the whole of it */
    size_t head_size; /* of the bytes before "(?)" */
};

/* Find the one "(?)" that stands outside of quotes and comments.
 * Returns: SHED_OK and *out, to be given to fini; SHED_EINVAL (none, two,
 * another '?', a quote or comment without end), SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_mysql_query_parse(const char *text, struct shed_mysql_query *out,
                       struct shed_error *err);
void shed_mysql_query_fini(struct shed_mysql_query *query);

/* The number of keys for which a query is expanded that is to take count of
 * them: rounded up to a power of two, and to max at most. So the server has a
 * handful of statements to keep, instead of one for each size of batch. */
size_t shed_mysql_query_room(size_t count, size_t max);

/* The query with room placeholders, terminated, to be freed; its length in
 * *size. Returns NULL when memory is out. */
char *shed_mysql_query_expand(const struct shed_mysql_query *query, size_t room,
                              size_t *size);

struct shed_mysql_integer {
    uint64_t bits; /* two's complement where it is negative */
    bool is_unsigned;
};

/* Parse a decimal integer of 64 bits, signed or not, as the server would write
 * it: "42", "-7"; not "042", "+1", "-0", " 1". One number has one key, so that
 * it has one entry. */
bool shed_mysql_integer_parse(const void *key, size_t size,
                              struct shed_mysql_integer *out);

/* Write it so: at most SHED_MYSQL_INTEGER_BYTES, not terminated.
 * Returns the length. */
#define SHED_MYSQL_INTEGER_BYTES 20
size_t shed_mysql_integer_write(char *out,
                                const struct shed_mysql_integer *value);

#endif
