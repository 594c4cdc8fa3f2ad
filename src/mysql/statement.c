/*
 * Prepared statements. Its one invariant: a question succeeds only if the
 * server has ended the result without an error; otherwise the caller discards
 * the rows that the part was given.
 */
#include "mysql/statement.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/error.h"

enum { LARGEST_BATCH = 10000 }; /* of struct shed_source_options */

_Static_assert((1 << (SHED_MYSQL_ROOMS - 1)) >= LARGEST_BATCH,
               "each batch has a room");

enum {
    COLUMN_KEY,
    COLUMN_VALUE,
    COLUMNS_MIN,
    COLUMNS_MAX = 4, /* with the version and the tags */
    /* Most values fit, and are read in one step. Numbers and times always fit;
     * their length is known only after conversion to text. */
    VALUE_FIRST_BYTES = 4096,
    TAGS_BYTES = 4096,
    VERSION_BYTES = sizeof("18446744073709551615"),
    DECIMAL = 10,
    /* One tag more than an entry may have is enough for the key to fail. */
    TAGS_ROOM = SHED_TAGS_MAX + 1,
    PROBLEM_BYTES = 120
};

/* The buffers that the columns of a row are read into. */
struct shed_mysql_cells {
    MYSQL_BIND bind[COLUMNS_MAX];
    unsigned long size[COLUMNS_MAX];
    shed_mysql_flag is_null[COLUMNS_MAX];
    uint64_t version;
    char version_text[VERSION_BYTES];
    char key[SHED_KEY_MAX_BYTES];
    char value[VALUE_FIRST_BYTES];
    char tags[TAGS_BYTES];
    struct shed_bytes tag[TAGS_ROOM]; /* in tags */
    char problem[PROBLEM_BYTES];
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

/* Read what a statement selects, as the server's last answer described it. */
static enum shed_code read_columns(MYSQL_STMT *stmt,
                                   struct shed_mysql_columns *out,
                                   struct shed_error *err)
{
    unsigned count = mysql_stmt_field_count(stmt);
    enum shed_code code;
    MYSQL_RES *meta;

    *out = (struct shed_mysql_columns){0};
    if (count < COLUMNS_MIN)
        return shed_fail(err, SHED_ESOURCE,
                         "MySQL: the query selects %u columns, it must select "
                         "the key, the value, and perhaps version and tags",
                         count);
    meta = mysql_stmt_result_metadata(stmt);
    if (meta == NULL)
        return shed_fail_nomem(err, "a result");
    code = shed_mysql_column_read(mysql_fetch_field_direct(meta, COLUMN_KEY),
                                  &out->key, err);
    for (unsigned i = COLUMNS_MIN; i < count && code == SHED_OK; i++)
        code = read_extra(mysql_fetch_field_direct(meta, i), i, out, err);
    mysql_free_result(meta);
    return code;
}

/* ---------------------------------------------------------------- prepare */

/* Statements are made for powers of two, so the server keeps a few of them
 * instead of one for each size of batch. Returns: the power for this many
 * keys. */
static size_t power_of(size_t count)
{
    size_t power = 0;

    assert(count > 0);
    while (((size_t)1 << power) < count)
        power++;
    assert(power < SHED_MYSQL_ROOMS);
    return power;
}

/* The number of placeholders of the statement for this many keys. */
static size_t room_of(size_t count)
{
    return (size_t)1 << power_of(count);
}

/* The place where that statement is kept. */
static MYSQL_STMT **place_of(struct shed_mysql_session *s, size_t count)
{
    return &s->of_room[power_of(count)];
}

static void drop(MYSQL_STMT **stmt)
{
    if (*stmt != NULL)
        (void)mysql_stmt_close(*stmt);
    *stmt = NULL;
}

static bool prepare(struct shed_mysql_session *s, MYSQL_STMT *stmt, size_t room,
                    struct shed_mysql_failure *failure)
{
    char *text = shed_mysql_query_expand(s->query, room);
    int failed;

    if (text == NULL) {
        (void)shed_fail_nomem(&failure->error, "a query");
        return false;
    }
    shed_mysql_connection_begin(&s->connection);
    failed = mysql_stmt_prepare(stmt, text, (unsigned long)strlen(text));
    free(text);
    if (failed != 0) {
        shed_mysql_connection_explain(&s->connection, stmt, failure);
        return false;
    }
    /* or the server reads the query in another way than we do */
    if (mysql_stmt_param_count(stmt) == room)
        return true;
    (void)shed_fail(&failure->error, SHED_ESOURCE,
                    "MySQL: the query may have no parameters besides \"(?)\"");
    return false;
}

/* Get the statement for this many keys, and prepare it if necessary. NULL on
 * failure. */
static MYSQL_STMT *take_statement(struct shed_mysql_session *s, size_t count,
                                  struct shed_mysql_failure *failure)
{
    MYSQL_STMT **stmt = place_of(s, count);

    if (*stmt != NULL)
        return *stmt;
    *stmt = mysql_stmt_init(s->connection.mysql);
    if (*stmt == NULL) {
        (void)shed_fail_nomem(&failure->error, "a statement");
        return NULL;
    }
    return prepare(s, *stmt, room_of(count), failure) ? *stmt : NULL;
}

void shed_mysql_session_close(struct shed_mysql_session *s,
                              const struct shed_mysql_failure *failure)
{
    if (failure != NULL)
        shed_mysql_connection_abandon(&s->connection, failure);
    shed_mysql_connection_close(&s->connection);
    /* not before: to close a statement is to wait for the rest of its result */
    for (size_t i = 0; i < SHED_MYSQL_ROOMS; i++)
        drop(&s->of_room[i]);
    free(s->cells);
    s->cells = NULL;
    s->are_columns_known = false;
}

/* Learn what the query selects, by preparing it for this many keys. */
static bool learn(struct shed_mysql_session *s, size_t count,
                  struct shed_mysql_failure *failure)
{
    MYSQL_STMT *stmt;

    s->are_columns_known = false;
    drop(place_of(s, count));
    stmt = take_statement(s, count, failure);
    if (stmt == NULL)
        return false;
    s->are_columns_known =
        read_columns(stmt, &s->columns, &failure->error) == SHED_OK;
    failure->is_kept = !s->are_columns_known;
    return s->are_columns_known;
}

/* ---------------------------------------------------------------- execute */

static void bind_key(MYSQL_BIND *bind, const struct shed_mysql_column *column,
                     const struct shed_mysql_asked *asked)
{
    const struct shed_bytes *key = &asked->key;

    if (column->kind == SHED_MYSQL_INTEGER)
        shed_mysql_bind_number(bind, &asked->number, column->is_unsigned);
    else
        /* as text, so that the column's own collation is used and its index,
         * too; a column of bytes compares bytes; sizes are explicit, so zero
         * bytes are allowed */
        shed_mysql_bind_bytes(bind,
                              column->kind == SHED_MYSQL_DECIMAL
                                  ? MYSQL_TYPE_NEWDECIMAL
                                  : MYSQL_TYPE_STRING,
                              key->data, key->size);
}

static bool execute(struct shed_mysql_session *s, MYSQL_STMT *stmt,
                    const struct shed_mysql_part *part,
                    struct shed_mysql_failure *failure)
{
    bool is_done;
    size_t count = part->asked_count, room = room_of(count);
    MYSQL_BIND *binds = calloc(room, sizeof(*binds));

    if (binds == NULL) {
        (void)shed_fail_nomem(&failure->error, "a query");
        return false;
    }
    /* unused placeholders repeat the last key */
    for (size_t i = 0; i < room; i++)
        bind_key(&binds[i], &s->columns.key,
                 &part->keys[i < count ? i : count - 1]);
    shed_mysql_connection_begin(&s->connection);
    is_done = mysql_stmt_bind_param(stmt, binds) == 0 &&
              mysql_stmt_execute(stmt) == 0;
    if (!is_done)
        shed_mysql_connection_explain(&s->connection, stmt, failure);
    free(binds);
    return is_done;
}

/* ----------------------------------------------------------------- fetch */

/* The server prepares a statement again when its table has been altered (MySQL
 * manual, "Caching of Prepared Statements and Stored Programs"), and sends the
 * new types with the result: other keys may fit from then on. */
static bool check_columns(struct shed_mysql_session *s, MYSQL_STMT *stmt,
                          struct shed_mysql_failure *failure)
{
    struct shed_mysql_columns now;

    if (read_columns(stmt, &now, &failure->error) != SHED_OK)
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

static void bind_text(MYSQL_BIND *bind, void *data, size_t size)
{
    shed_mysql_bind_bytes(bind, MYSQL_TYPE_STRING, data, size);
}

static bool bind_cells(const struct shed_mysql_session *s, MYSQL_STMT *stmt,
                       struct shed_mysql_failure *failure)
{
    const struct shed_mysql_columns *columns = &s->columns;
    struct shed_mysql_cells *cells = s->cells;
    MYSQL_BIND *bind = cells->bind;

    memset(bind, 0, sizeof(cells->bind));
    bind_text(&bind[COLUMN_VALUE], cells->value, sizeof(cells->value));
    bind_text(&bind[COLUMN_KEY], cells->key, sizeof(cells->key));
    if (columns->version > 0)
        bind_text(&bind[columns->version], cells->version_text,
                  sizeof(cells->version_text));
    if (columns->tags > 0)
        bind_text(&bind[columns->tags], cells->tags, sizeof(cells->tags));
    for (size_t i = 0; i < COLUMNS_MAX; i++) {
        bind[i].length = &cells->size[i];
        bind[i].is_null = &cells->is_null[i];
    }
    if (mysql_stmt_bind_result(stmt, bind) == 0)
        return true;
    shed_mysql_connection_explain(&s->connection, stmt, failure);
    return false;
}

/* Read a value that did not fit. Returns it, to be freed; or NULL, with the
 * problem in cells. */
static char *fetch_long_value(MYSQL_STMT *stmt, struct shed_mysql_cells *cells)
{
    unsigned long size = cells->size[COLUMN_VALUE];
    char *value = malloc(size);
    MYSQL_BIND bind;

    bind_text(&bind, value, size);
    if (value == NULL)
        (void)snprintf(cells->problem, sizeof(cells->problem),
                       "out of memory for a value of %lu bytes", size);
    else if (mysql_stmt_fetch_column(stmt, &bind, COLUMN_VALUE, 0) == 0)
        return value;
    else
        (void)snprintf(cells->problem, sizeof(cells->problem),
                       "MySQL: the value could not be read (%u)",
                       mysql_stmt_errno(stmt));
    free(value);
    return NULL;
}

/* The server may write integers with leading zeros (ZEROFILL), which keys do
 * not have. */
static struct shed_bytes read_key(const struct shed_mysql_column *column,
                                  const struct shed_mysql_cells *cells)
{
    size_t size = cells->size[COLUMN_KEY];
    const char *key = cells->key;

    /* no key is empty or that long, so the row belongs to none */
    if (cells->is_null[COLUMN_KEY] || size > sizeof(cells->key))
        size = 0;
    for (; shed_mysql_column_is_integer(column) && size > 1 && *key == '0';
         size--)
        key++;
    return shed_bytes(key, size);
}

/* Set the version, unless it is below 0, so that all of them can be compared.
 * Returns false if it is no number. */
static bool set_version(unsigned column, struct shed_mysql_cells *cells,
                        struct shed_answer *answer)
{
    size_t size =
        column > 0 && !cells->is_null[column] ? cells->size[column] : 0;
    char *text = cells->version_text, *end = text;

    if (size == 0 || text[0] == '-')
        return true;
    errno = 0;
    if (size < sizeof(cells->version_text)) {
        text[size] = '\0';
        if (strspn(text, "0123456789") == size) /* no blanks, no sign */
            cells->version = strtoull(text, &end, DECIMAL);
    }
    if (errno != 0 || end != text + size) {
        answer->reason = "MySQL: the column \"version\" that the query selects "
                         "must be an integer of at most 64 bits";
        return false;
    }
    answer->version = &cells->version;
    return true;
}

/* Set the tags, which are between spaces and commas. Returns false if the row
 * lacks one: it could not be invalidated by it. */
static bool set_tags(unsigned column, struct shed_mysql_cells *cells,
                     struct shed_answer *answer)
{
    size_t size =
        column > 0 && !cells->is_null[column] ? cells->size[column] : 0;

    if (size > sizeof(cells->tags)) {
        answer->reason = "MySQL: the row's tags have more than 4096 bytes";
        return false;
    }
    answer->tags = cells->tag;
    for (size_t at = 0, begin = 0; at <= size && answer->tags_count < TAGS_ROOM;
         at++) {
        if (at < size && cells->tags[at] != ',' && cells->tags[at] != ' ')
            continue;
        if (at > begin)
            cells->tag[answer->tags_count++] =
                shed_bytes(cells->tags + begin, at - begin);
        begin = at + 1;
    }
    return true;
}

/* Set the value, or why there is none. Returns the memory of a long one, to be
 * freed. */
static char *set_value(MYSQL_STMT *stmt, size_t limit_bytes,
                       struct shed_mysql_cells *cells,
                       struct shed_answer *answer)
{
    unsigned long size = cells->size[COLUMN_VALUE];
    char *long_value = NULL;

    if (cells->is_null[COLUMN_VALUE]) {
        answer->kind = SHED_ANSWER_NULL;
        return NULL;
    }
    answer->reason = cells->problem;
    if (size > limit_bytes) {
        (void)snprintf(cells->problem, sizeof(cells->problem),
                       "MySQL: the value has %lu bytes, value_limit_bytes is "
                       "%zu",
                       size, limit_bytes);
        answer->kind = SHED_ANSWER_TOO_BIG;
        return NULL;
    }
    if (size > sizeof(cells->value)) {
        long_value = fetch_long_value(stmt, cells);
        if (long_value == NULL)
            return NULL;
    }
    answer->kind = SHED_ANSWER_ROW;
    answer->row =
        shed_bytes(long_value != NULL ? long_value : cells->value, size);
    return long_value;
}

/* Pass on the row that was fetched. */
static void pass_row(struct shed_mysql_session *s, MYSQL_STMT *stmt,
                     struct shed_mysql_part *part)
{
    struct shed_answer row = SHED_ANSWER_INIT;
    struct shed_mysql_cells *cells = s->cells;
    char *long_value = NULL;

    if (set_version(s->columns.version, cells, &row) &&
        set_tags(s->columns.tags, cells, &row))
        long_value = set_value(stmt, part->value_limit_bytes, cells, &row);
    shed_mysql_part_row(part, read_key(&s->columns.key, cells), &row);
    free(long_value);
}

/* Read the result to its end. */
static bool fetch(struct shed_mysql_session *s, MYSQL_STMT *stmt,
                  struct shed_mysql_part *part,
                  struct shed_mysql_failure *failure)
{
    int status = 0;

    if (s->cells == NULL)
        s->cells = calloc(1, sizeof(*s->cells));
    if (s->cells == NULL) {
        (void)shed_fail_nomem(&failure->error, "a result");
        return false;
    }
    if (!check_columns(s, stmt, failure) || !bind_cells(s, stmt, failure))
        return false;
    while (status == 0 || status == MYSQL_DATA_TRUNCATED) {
        s->connection.silent_ms = shed_now_ms();
        status = mysql_stmt_fetch(stmt);
        if (status == 0 || status == MYSQL_DATA_TRUNCATED)
            pass_row(s, stmt, part);
    }
    /* If a statement was ended by its time limit or by KILL, the rows can end
     * as if complete, with the error only in the last packet. */
    if (status == MYSQL_NO_DATA && mysql_stmt_errno(stmt) == 0 &&
        mysql_errno(s->connection.mysql) == 0 &&
        mysql_stmt_free_result(stmt) == 0)
        return true;
    shed_mysql_connection_explain(&s->connection, stmt, failure);
    return false;
}

/* Run the query; the columns are known. */
static bool query(struct shed_mysql_session *s, struct shed_mysql_part *part,
                  struct shed_mysql_failure *failure)
{
    MYSQL_STMT *stmt = take_statement(s, part->asked_count, failure);

    if (stmt == NULL)
        return false;
    if (execute(s, stmt, part, failure) && fetch(s, stmt, part, failure))
        return true;
    /* If the keys are to blame, close the statement, because an unread rest of
     * its result would block the connection. */
    if (failure->cause == SHED_MYSQL_KEYS &&
        s->connection.mysql->status == MYSQL_STATUS_READY) {
        drop(place_of(s, part->asked_count));
        failure->is_kept = true;
    }
    return false;
}

bool shed_mysql_session_ask(struct shed_mysql_session *s,
                            struct shed_mysql_part *part,
                            struct shed_mysql_failure *failure)
{
    bool was_known = s->are_columns_known;

    if (!was_known && !learn(s, part->count, failure))
        return false;
    shed_mysql_part_start(part, &s->columns.key);
    /* If no key fits, the table may have been altered since, which servers do
     * not report. */
    if (part->asked_count == 0 && was_known) {
        if (!learn(s, part->count, failure))
            return false;
        shed_mysql_part_start(part, &s->columns.key);
    }
    return part->asked_count == 0 || query(s, part, failure);
}
