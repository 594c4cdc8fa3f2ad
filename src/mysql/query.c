/*
 * Reads SQL only as far as is needed to distinguish a placeholder from one in
 * quotes or comments (MySQL manual, "String Literals" and "Comments"). Its one
 * invariant: the server finds the same "(?)". Where the two could differ
 * (ANSI_QUOTES, NO_BACKSLASH_ESCAPES), the statement's number of parameters
 * shows it.
 */
#include "mysql/query.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define BLANKS " \t\r\n\f\v"

enum { DECIMAL = 10 };

/* ------------------------------------------------------------ placeholder */

/* Returns what follows the quoted text at "at"; NULL if the text has no end. A
 * doubled quote means one quote in the text; here it reads as two adjacent
 * texts, which end at the same place. */
static const char *skip_quoted(const char *at)
{
    char quote = *at++;

    for (; *at != '\0'; at++) {
        if (*at == quote)
            return at + 1;
        if (*at == '\\' && quote != '`' && *++at == '\0')
            return NULL;
    }
    return NULL;
}

static const char *skip_line(const char *at)
{
    return at + strcspn(at, "\n");
}

/* Returns what follows the comment at "at"; NULL if it has no end. The server
 * executes the contents of an executable comment, so only its opening is
 * skipped. */
static const char *skip_comment(const char *at)
{
    const char *end;

    if (at[2] == '!' || strncmp(at + 2, "M!", 2) == 0)
        return at + sizeof("/*") - 1;
    end = strstr(at + 2, "*/");
    return end != NULL ? end + 2 : NULL;
}

/* "-- " begins a comment, "--1" is arithmetic. */
static bool is_dashes(const char *at)
{
    return strncmp(at, "--", 2) == 0 &&
           (at[2] == '\0' || strchr(BLANKS, at[2]) != NULL);
}

/* Returns what follows the token at "at"; NULL if it has no end. */
static const char *skip_token(const char *at)
{
    if (*at == '\'' || *at == '"' || *at == '`')
        return skip_quoted(at);
    if (*at == '#' || is_dashes(at))
        return skip_line(at);
    if (strncmp(at, "/*", 2) == 0)
        return skip_comment(at);
    return at + 1;
}

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
    for (const char *at = text; *at != '\0';) {
        size_t mark_size = size_of_mark(at);
        if (mark_size > 0) {
            if (out->mark_size > 0)
                return shed_fail(err, SHED_EINVAL,
                                 "MySQL query: it has two \"(?)\" and must "
                                 "have one");
            out->head_size = (size_t)(at - text);
            out->mark_size = mark_size;
            at += mark_size;
            continue;
        }
        if (*at == '?')
            return shed_fail(
                err, SHED_EINVAL,
                "MySQL query: a '?' must be in \"(?)\", which the keys "
                "replace");
        at = skip_token(at);
        if (at == NULL)
            return shed_fail(err, SHED_EINVAL,
                             "MySQL query: a quote or comment has no end");
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

size_t shed_mysql_query_room(size_t count, size_t max)
{
    size_t room = 1;

    while (room < count && room < max)
        room *= 2;
    return room < max ? room : max;
}

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

/* --------------------------------------------------------------- integers */

/* Read the digits of a number without a sign or leading zeros. */
static bool parse_digits(const char *digits, size_t size, uint64_t *out)
{
    uint64_t value = 0;

    if (size == 0 || (digits[0] == '0' && size > 1))
        return false;
    for (size_t i = 0; i < size; i++) {
        uint64_t digit = (uint64_t)(unsigned char)digits[i] - '0';
        if (digit >= DECIMAL || value > (UINT64_MAX - digit) / DECIMAL)
            return false;
        value = value * DECIMAL + digit;
    }
    *out = value;
    return true;
}

bool shed_mysql_integer_parse(const void *key, size_t size,
                              struct shed_mysql_integer *out)
{
    const char *text = key;
    bool is_negative = size > 0 && text[0] == '-';
    uint64_t value;

    if (!parse_digits(text + is_negative, size - is_negative, &value))
        return false;
    if (is_negative && (value == 0 || value > (uint64_t)INT64_MAX + 1))
        return false;
    out->bits = is_negative ? ~value + 1 : value;
    out->is_unsigned = !is_negative;
    return true;
}
