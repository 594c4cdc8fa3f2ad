/*
 * Questions. The one invariant: a question succeeds only if the server has
 * ended the result without an error; otherwise the caller discards the rows
 * that the part was given.
 *
 * Design notes.
 *
 * The keys are written into the query's text, as decimal digits or as
 * hexadecimal ones: no key can contain anything that ends a literal. So the
 * server has no statements of ours to keep, one for each size of batch, and it
 * writes what it sends as text itself; with a prepared statement the client
 * library does, and not all libraries write a number alike.
 *
 * Nevertheless the query is prepared once for each connection. That shows what
 * it selects before it is run, and whether the server finds the "(?)" where we
 * do.
 */
#include "mysql/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/error.h"

enum {
    COLUMN_KEY,
    COLUMN_VALUE,
    COLUMNS_MIN,
    DECIMAL = 10,
    /* One tag more than an entry may have is enough for the key to fail. */
    TAGS_ROOM = SHED_TAGS_MAX + 1,
    PROBLEM_BYTES = 120
};

/* ---------------------------------------------------------------- columns */

static enum shed_code read_extra(const MYSQL_FIELD *field, unsigned column,
                                 struct shed_mysql_columns *out,
                                 struct shed_error *err)
{
    if (out->tags == 0 && strcasecmp(field->name, "tags") == 0)
        out->tags = column;
    else if (out->version == 0 && strcasecmp(field->name, "version") == 0)
        out->version = column;
    else
        return shed_fail(
            err, SHED_ESOURCE,
            "MySQL: behind the key and the value the query selects "
            "\"%s\", where it may select \"version\" and \"tags\", each "
            "once (as in: revision AS version)",
            field->name);
    return SHED_OK;
}

/* Read what the query selects. result: NULL if it selects nothing. */
static enum shed_code read_columns(MYSQL_RES *result,
                                   struct shed_mysql_columns *out,
                                   struct shed_error *err)
{
    unsigned count = result != NULL ? mysql_num_fields(result) : 0;
    enum shed_code code;

    *out = (struct shed_mysql_columns){0};
    if (count < COLUMNS_MIN)
        return shed_fail(err, SHED_ESOURCE,
                         "MySQL: the query selects %u columns, it must select "
                         "the key, the value, and perhaps version and tags",
                         count);
    code = shed_mysql_column_read(mysql_fetch_field_direct(result, COLUMN_KEY),
                                  &out->key, err);
    for (unsigned i = COLUMNS_MIN; i < count && code == SHED_OK; i++)
        code = read_extra(mysql_fetch_field_direct(result, i), i, out, err);
    return code;
}

/* Read what a prepared query selects. */
static bool read_prepared(struct shed_mysql_session *s, MYSQL_STMT *stmt,
                          struct shed_mysql_failure *failure)
{
    MYSQL_RES *columns = mysql_stmt_result_metadata(stmt);

    if (mysql_stmt_param_count(stmt) != 1)
        (void)shed_fail(
            &failure->error, SHED_ESOURCE,
            "MySQL: the query may have no parameters besides \"(?)\"");
    else
        s->are_columns_known =
            read_columns(columns, &s->columns, &failure->error) == SHED_OK;
    mysql_free_result(columns);
    failure->is_kept = !s->are_columns_known;
    return s->are_columns_known;
}

/* Learn what the query selects, by preparing it. */
static bool learn(struct shed_mysql_session *s,
                  struct shed_mysql_failure *failure)
{
    const char *text = s->query->text;
    MYSQL_STMT *stmt = mysql_stmt_init(s->connection.mysql);
    bool is_done = false;

    s->are_columns_known = false;
    if (stmt == NULL) {
        (void)shed_fail_nomem(&failure->error, "a statement");
        return false;
    }
    shed_mysql_connection_begin(&s->connection);
    if (mysql_stmt_prepare(stmt, text, (unsigned long)strlen(text)) == 0)
        is_done = read_prepared(s, stmt, failure);
    else
        shed_mysql_connection_explain(&s->connection, failure);
    (void)mysql_stmt_close(stmt);
    return is_done;
}

/* --------------------------------------------------------------- the query */

/* Write the query for the keys of a part. Returns the text, to be freed; NULL
 * when out of memory. */
static char *write_query(const struct shed_mysql_session *s,
                         const struct shed_mysql_part *part, size_t *size)
{
    const struct shed_mysql_query *query = s->query;
    const char *prefix = shed_mysql_column_prefix(&s->columns.key);
    char *text = NULL, hex[2 * SHED_KEY_MAX_BYTES + 1];
    FILE *out = open_memstream(&text, size);

    if (out == NULL)
        return NULL;
    (void)fwrite(query->text, 1, query->head_size, out);
    for (size_t i = 0; i < part->asked_count; i++) {
        const struct shed_bytes *key = &part->keys[i].key;
        (void)fputs(i == 0 ? "(" : ",", out);
        if (prefix == NULL) {
            (void)fwrite(key->data, 1, key->size, out);
        } else {
            (void)mysql_hex_string(hex, key->data, (unsigned long)key->size);
            (void)fputs(prefix, out);
            (void)fputs(hex, out);
        }
    }
    (void)fputs(")", out);
    (void)fputs(query->text + query->head_size + query->mark_size, out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* --------------------------------------------------------------- the rows */

/* The server compares as integers what it may send with leading zeros
 * (ZEROFILL), which keys do not have. */
static struct shed_bytes read_key(const struct shed_mysql_column *column,
                                  const char *text, unsigned long size)
{
    if (text == NULL) /* no key is empty, so the row belongs to none */
        return shed_bytes("", 0);
    for (; shed_mysql_column_is_integer(column) && size > 1 && *text == '0';
         size--)
        text++;
    return shed_bytes(text, size);
}

/* Set the version to *number, unless it is below 0, so that all of them can be
 * compared. Returns false if it is no number. */
static bool set_version(const char *text, uint64_t *number,
                        struct shed_answer *answer)
{
    char *end;

    if (text == NULL || *text == '-')
        return true;
    errno = 0;
    *number = strtoull(text, &end, DECIMAL);
    if (errno != 0 || end == text || *end != '\0') {
        answer->reason = "MySQL: the column \"version\" that the query selects "
                         "must be an integer of at most 64 bits";
        return false;
    }
    answer->version = number;
    return true;
}

/* Set the tags, which are between spaces and commas, and are kept in tag. */
static void set_tags(const char *text, size_t size,
                     struct shed_bytes tag[TAGS_ROOM],
                     struct shed_answer *answer)
{
    answer->tags = tag;
    for (size_t at = 0, begin = 0; at <= size && answer->tags_count < TAGS_ROOM;
         at++) {
        if (at < size && text[at] != ',' && text[at] != ' ')
            continue;
        if (at > begin)
            tag[answer->tags_count++] = shed_bytes(text + begin, at - begin);
        begin = at + 1;
    }
}

/* Set the value, or say in problem why there is none. */
static void set_value(const char *value, unsigned long size, size_t limit_bytes,
                      char problem[PROBLEM_BYTES], struct shed_answer *answer)
{
    if (value == NULL) {
        answer->kind = SHED_ANSWER_NULL;
    } else if (size > limit_bytes) {
        (void)snprintf(problem, PROBLEM_BYTES,
                       "MySQL: the value has %lu bytes, value_limit_bytes is "
                       "%zu",
                       size, limit_bytes);
        answer->reason = problem;
        answer->kind = SHED_ANSWER_TOO_BIG;
    } else {
        answer->kind = SHED_ANSWER_ROW;
        answer->row = shed_bytes(value, size);
    }
}

/* Pass on a row. */
static void pass_row(const struct shed_mysql_columns *columns, MYSQL_ROW row,
                     const unsigned long *sizes, struct shed_mysql_part *part)
{
    struct shed_answer answer = SHED_ANSWER_INIT;
    struct shed_bytes tag[TAGS_ROOM];
    char problem[PROBLEM_BYTES];
    uint64_t version;

    if (columns->tags > 0)
        set_tags(row[columns->tags], sizes[columns->tags], tag, &answer);
    if (columns->version == 0 ||
        set_version(row[columns->version], &version, &answer))
        set_value(row[COLUMN_VALUE], sizes[COLUMN_VALUE],
                  part->value_limit_bytes, problem, &answer);
    shed_mysql_part_row(
        part, read_key(&columns->key, row[COLUMN_KEY], sizes[COLUMN_KEY]),
        &answer);
}

/* The table may have been altered since the columns were learnt: other keys may
 * fit from then on. */
static bool check_columns(struct shed_mysql_session *s, MYSQL_RES *result,
                          struct shed_mysql_failure *failure)
{
    struct shed_mysql_columns now;

    if (read_columns(result, &now, &failure->error) != SHED_OK)
        return false;
    if (!shed_mysql_column_is_same(&now.key, &s->columns.key)) {
        (void)shed_fail(&failure->error, SHED_ESOURCE,
                        "MySQL: the type of the key column changed");
        failure->cause = SHED_MYSQL_SESSION;
        return false;
    }
    s->columns = now;
    return true;
}

/* Read the result to its end. */
static bool read_result(struct shed_mysql_session *s, MYSQL_RES *result,
                        struct shed_mysql_part *part,
                        struct shed_mysql_failure *failure)
{
    struct shed_mysql_connection *c = &s->connection;
    MYSQL_ROW row;

    if (!check_columns(s, result, failure))
        return false;
    while ((row = mysql_fetch_row(result)) != NULL) {
        pass_row(&s->columns, row, mysql_fetch_lengths(result), part);
        c->silent_ms = shed_now_ms();
    }
    if (mysql_errno(c->mysql) == 0)
        return true;
    shed_mysql_connection_explain(c, failure);
    return false;
}

/* Run the query; the columns are known. */
static bool run_query(struct shed_mysql_session *s,
                      struct shed_mysql_part *part,
                      struct shed_mysql_failure *failure)
{
    MYSQL *mysql = s->connection.mysql;
    MYSQL_RES *result = NULL;
    size_t size = 0;
    char *text = write_query(s, part, &size);
    bool is_done = false;

    if (text == NULL) {
        (void)shed_fail_nomem(&failure->error, "a query");
        return false;
    }
    shed_mysql_connection_begin(&s->connection);
    if (mysql_real_query(mysql, text, (unsigned long)size) == 0)
        result = mysql_use_result(mysql);
    free(text);
    if (result != NULL)
        is_done = read_result(s, result, part, failure);
    else
        shed_mysql_connection_explain(&s->connection, failure);
    mysql_free_result(result); /* which waits for what was not read */
    failure->is_kept = failure->cause == SHED_MYSQL_KEYS &&
                       mysql->status == MYSQL_STATUS_READY;
    return is_done;
}

bool shed_mysql_session_ask(struct shed_mysql_session *s,
                            struct shed_mysql_part *part,
                            struct shed_mysql_failure *failure)
{
    bool was_known = s->are_columns_known;

    if (!was_known && !learn(s, failure))
        return false;
    shed_mysql_part_start(part, &s->columns.key);
    /* If no key fits, the table may have been altered since, which servers do
     * not report. */
    if (part->asked_count == 0 && was_known) {
        if (!learn(s, failure))
            return false;
        shed_mysql_part_start(part, &s->columns.key);
    }
    return part->asked_count == 0 || run_query(s, part, failure);
}

void shed_mysql_session_close(struct shed_mysql_session *s,
                              const struct shed_mysql_failure *failure)
{
    if (failure != NULL)
        shed_mysql_connection_abandon(&s->connection, failure);
    shed_mysql_connection_close(&s->connection);
    s->are_columns_known = false;
}
