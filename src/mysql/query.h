/* The text of a query, and its "(?)". Pure. */
#ifndef SHED_MYSQL_QUERY_H
#define SHED_MYSQL_QUERY_H

#include <stddef.h>

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

#endif
