/*
 * The query's "(?)" is found by its text alone. Its one invariant: the server
 * finds the same. Where the two differ, because it is in quotes or in a
 * comment, or because the query has another '?', the statement's number of
 * parameters shows it (statement.c).
 */
#include "mysql/query.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define BLANKS " \t\r\n\f\v"

/* ------------------------------------------------------------ placeholder */

/* Returns the size of the placeholder at "at"; 0 if there is none. */
static size_t size_of_mark(const char *at)
{
    const char *end = at;

    for (const char *part = "(?)"; *part != '\0'; part++) {
        end += part[0] == '(' ? 0 : strspn(end, BLANKS);
        if (*end++ != *part)
            return 0;
    }
    return (size_t)(end - at);
}

/* Find the placeholder in the query's text. */
static enum shed_code find_placeholder(const char *text,
                                       struct shed_mysql_query *out,
                                       struct shed_error *err)
{
    for (const char *at = text; *at != '\0'; at++) {
        size_t mark_size = size_of_mark(at);
        if (mark_size > 0 && out->mark_size > 0)
            return shed_fail(err, SHED_EINVAL,
                             "MySQL query: it has two \"(?)\" and must have "
                             "one");
        if (mark_size > 0) {
            out->head_size = (size_t)(at - text);
            out->mark_size = mark_size;
        }
    }
    if (out->mark_size == 0)
        return shed_fail(err, SHED_EINVAL,
                         "MySQL query: it has no \"(?)\" for the keys");
    return SHED_OK;
}

enum shed_code shed_mysql_query_parse(const char *text,
                                      struct shed_mysql_query *out,
                                      struct shed_error *err)
{
    enum shed_code code;

    *out = (struct shed_mysql_query){0};
    code = find_placeholder(text, out, err);
    if (code != SHED_OK)
        return code;
    out->text = strdup(text);
    if (out->text == NULL)
        return shed_fail_nomem(err, "a MySQL query");
    return SHED_OK;
}

void shed_mysql_query_fini(struct shed_mysql_query *query)
{
    free(query->text);
    *query = (struct shed_mysql_query){0};
}

/* -------------------------------------------------------------- expansion */

char *shed_mysql_query_expand(const struct shed_mysql_query *query, size_t room)
{
    const char *tail = query->text + query->head_size + query->mark_size;
    size_t list_size = 2 * room + 1; /* "(" and a "?," each, the last a "?)" */
    size_t tail_size = strlen(tail);
    char *out = malloc(query->head_size + list_size + tail_size + 1);
    char *at;

    assert(room > 0);
    if (out == NULL)
        return NULL;
    memcpy(out, query->text, query->head_size);
    at = out + query->head_size;
    *at++ = '(';
    for (size_t i = 0; i < room; i++) {
        *at++ = '?';
        *at++ = ',';
    }
    at[-1] = ')';
    memcpy(at, tail, tail_size + 1);
    return out;
}
