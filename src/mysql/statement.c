/*
 * Prepared statements. Its one invariant: a run succeeds only if the server has
 * ended the result without an error; otherwise the caller discards the rows
 * that it was given.
 */
#include "mysql/statement.h"

#include <assert.h>
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
    COLUMNS_MAX = 4, /* with the version and the tags */
    /* Most values fit, and are read in one step. Numbers and times always fit;
     * their length is known only after conversion to text. */
    VALUE_FIRST_BYTES = 4096,
    TAGS_BYTES = 4096,
    PROBLEM_BYTES = 120
};

/* The buffers that the columns of a row are read into. */
struct shed_mysql_cells {
    MYSQL_BIND bind[COLUMNS_MAX];
    unsigned long size[COLUMNS_MAX];
    shed_mysql_flag is_null[COLUMNS_MAX];
    shed_mysql_flag is_cut[COLUMNS_MAX];
    bool is_number; /* the key is read into number */
    struct shed_mysql_integer number;
    unsigned version_at, tags_at; /* their columns; 0: the query has none */
    struct shed_mysql_integer version;
    char key[SHED_KEY_MAX_BYTES];
    char value[VALUE_FIRST_BYTES];
    char tags[TAGS_BYTES];
    char problem[PROBLEM_BYTES];
};

/* The last command, which began at began_ms, failed. */
static void note_failure(const struct shed_mysql_run *run, MYSQL_STMT *stmt,
                         uint64_t began_ms, struct shed_mysql_failure *failure)
{
    const struct shed_mysql_connection *c = run->connection;

    shed_mysql_failure_take(failure, c->config, c->mysql, stmt,
                            shed_now_ms() - began_ms);
}

static bool fail_here(struct shed_mysql_failure *failure, enum shed_code code,
                      const char *reason)
{
    *failure = (struct shed_mysql_failure){0};
    (void)shed_fail(&failure->error, code, "%s", reason);
    return false;
}

static bool fail_passing(struct shed_mysql_failure *failure, const char *reason)
{
    bool is_done = fail_here(failure, SHED_ESOURCE, reason);

    failure->is_passing = true;
    return is_done;
}

/* Read the key column, as the server's last answer described it. */
static bool read_column(MYSQL_STMT *stmt, struct shed_mysql_column *out,
                        struct shed_mysql_failure *failure)
{
    MYSQL_RES *meta = mysql_stmt_result_metadata(stmt);

    if (meta == NULL)
        return fail_here(failure, SHED_ENOMEM, "out of memory for a result");
    shed_mysql_column_read(mysql_fetch_field_direct(meta, COLUMN_KEY), out);
    mysql_free_result(meta);
    return true;
}

/* What the query selects behind the key and the value, as the last answer of
 * the server described it: the numbers of the columns that have these names; 0:
 * it selects none. */
struct extras {
    unsigned version, tags;
    struct shed_mysql_column version_column;
};

static bool fail_column(struct shed_mysql_failure *failure, const char *name)
{
    *failure = (struct shed_mysql_failure){0};
    (void)shed_fail(
        &failure->error, SHED_ESOURCE,
        "MySQL: behind the key and the value the query selects "
        "\"%s\", where it may select \"version\" and \"tags\", each "
        "once (as in: revision AS version)",
        name);
    return false;
}

static bool read_extra(const MYSQL_FIELD *field, unsigned column,
                       struct extras *out, struct shed_mysql_failure *failure)
{
    if (out->tags == 0 && strcasecmp(field->name, "tags") == 0) {
        out->tags = column;
        return true;
    }
    if (out->version > 0 || strcasecmp(field->name, "version") != 0)
        return fail_column(failure, field->name);
    out->version = column;
    shed_mysql_column_read(field, &out->version_column);
    return out->version_column.kind == SHED_MYSQL_NUMBER ||
           fail_here(
               failure, SHED_ESOURCE,
               "MySQL: the column \"version\" that the query selects must "
               "be of an integer type");
}

static bool read_extras(MYSQL_STMT *stmt, struct extras *out,
                        struct shed_mysql_failure *failure)
{
    unsigned columns = mysql_stmt_field_count(stmt);
    MYSQL_RES *meta;
    bool is_read = true;

    *out = (struct extras){0};
    if (columns <= COLUMN_VALUE + 1)
        return true;
    meta = mysql_stmt_result_metadata(stmt);
    if (meta == NULL)
        return fail_here(failure, SHED_ENOMEM, "out of memory for a result");
    for (unsigned i = COLUMN_VALUE + 1; i < columns && is_read; i++)
        is_read =
            read_extra(mysql_fetch_field_direct(meta, i), i, out, failure);
    mysql_free_result(meta);
    return is_read;
}

/* ---------------------------------------------------------------- prepare */

/* Check that the server reads the query as we do; if not, the user has to
 * change it. */
static bool check_shape(MYSQL_STMT *stmt, size_t room,
                        struct shed_mysql_failure *failure)
{
    unsigned columns = mysql_stmt_field_count(stmt);
    char reason[PROBLEM_BYTES];
    struct extras extras;

    if (mysql_stmt_param_count(stmt) != room)
        return fail_here(
            failure, SHED_ESOURCE,
            "MySQL: the query may have no parameters besides \"(?)\"");
    if (columns <= COLUMN_VALUE) {
        (void)snprintf(reason, sizeof(reason),
                       "MySQL: the query selects %u columns, it must select "
                       "the key, the value, and perhaps version and tags",
                       columns);
        return fail_here(failure, SHED_ESOURCE, reason);
    }
    return read_extras(stmt, &extras, failure);
}

static bool prepare(const struct shed_mysql_run *run, MYSQL_STMT *stmt,
                    size_t room, struct shed_mysql_failure *failure)
{
    uint64_t began_ms = shed_now_ms();
    size_t size = 0;
    char *text = shed_mysql_query_expand(&run->select->query, room, &size);
    int failed;

    if (text == NULL)
        return fail_here(failure, SHED_ENOMEM, "out of memory for a query");
    failed = mysql_stmt_prepare(stmt, text, (unsigned long)size);
    free(text);
    if (failed != 0) {
        note_failure(run, stmt, began_ms, failure);
        return false;
    }
    return check_shape(stmt, room, failure);
}

/* The number of keys of the run's statement. */
static size_t room_of(const struct shed_mysql_run *run)
{
    assert(run->count > 0 && run->count <= run->select->max_keys);
    return shed_mysql_query_room(run->count, run->select->max_keys);
}

/* The place where the run's statement is kept. */
static MYSQL_STMT **place_of(const struct shed_mysql_run *run)
{
    size_t room = room_of(run), power = 0;

    while (((size_t)1 << power) < room)
        power++;
    assert(power < SHED_MYSQL_ROOMS);
    return &run->statements->of_room[power];
}

static void drop(MYSQL_STMT **stmt)
{
    if (*stmt != NULL)
        (void)mysql_stmt_close(*stmt);
    *stmt = NULL;
}

/* Get the run's statement, and prepare it if necessary. NULL on failure. */
static MYSQL_STMT *take_statement(const struct shed_mysql_run *run,
                                  struct shed_mysql_failure *failure)
{
    MYSQL_STMT **stmt = place_of(run);

    if (*stmt != NULL)
        return *stmt;
    *stmt = mysql_stmt_init(run->connection->mysql);
    if (*stmt == NULL) {
        (void)fail_here(failure, SHED_ENOMEM, "out of memory for a statement");
        return NULL;
    }
    return prepare(run, *stmt, room_of(run), failure) ? *stmt : NULL;
}

void shed_mysql_statements_drop(struct shed_mysql_statements *statements)
{
    for (size_t i = 0; i < SHED_MYSQL_ROOMS; i++)
        drop(&statements->of_room[i]);
    free(statements->cells);
    statements->cells = NULL;
    statements->is_column_known = false;
}

bool shed_mysql_run_learn(struct shed_mysql_run *run, bool is_again,
                          struct shed_mysql_failure *failure)
{
    struct shed_mysql_statements *known = run->statements;
    MYSQL_STMT *stmt;

    run->began_ms = shed_now_ms();
    if (known->is_column_known && !is_again)
        return true;
    known->is_column_known = false;
    drop(place_of(run));
    stmt = take_statement(run, failure);
    if (stmt == NULL || !read_column(stmt, &known->column, failure))
        return false;
    *failure = (struct shed_mysql_failure){.is_kept = true};
    known->is_column_known =
        shed_mysql_column_check(&known->column, &failure->error) == SHED_OK;
    return known->is_column_known;
}

/* --------------------------------------------------------------- execute */

static void bind_parameter(MYSQL_BIND *bind, bool is_integer,
                           const struct shed_mysql_parameter *parameter)
{
    memset(bind, 0, sizeof(*bind));
    /* the library does not write to it; MYSQL_BIND is also for results */
    bind->buffer = (void *)(uintptr_t)parameter->data;
    if (is_integer) {
        bind->buffer_type = MYSQL_TYPE_LONGLONG;
        bind->is_unsigned = parameter->is_unsigned;
        return;
    }
    /* as text in the connection's character set, so that the column's own
     * collation is used and its index, too; a column of bytes compares bytes;
     * sizes are explicit, so zero bytes are allowed */
    bind->buffer_type = MYSQL_TYPE_STRING;
    bind->buffer_length = (unsigned long)parameter->size;
    bind->length_value = (unsigned long)parameter->size;
    bind->length = &bind->length_value;
}

static bool execute(const struct shed_mysql_run *run, MYSQL_STMT *stmt,
                    struct shed_mysql_failure *failure)
{
    bool is_integer = shed_mysql_column_is_integer(&run->statements->column);
    size_t room = room_of(run);
    MYSQL_BIND *binds = calloc(room, sizeof(*binds));
    uint64_t began_ms = shed_now_ms();
    struct shed_mysql_parameter one;
    bool is_done;

    if (binds == NULL)
        return fail_here(failure, SHED_ENOMEM, "out of memory for a query");
    /* unused placeholders repeat the last key */
    for (size_t i = 0; i < room; i++) {
        run->parameter(run->user, i < run->count ? i : run->count - 1, &one);
        bind_parameter(&binds[i], is_integer, &one);
    }
    is_done = mysql_stmt_bind_param(stmt, binds) == 0 &&
              mysql_stmt_execute(stmt) == 0;
    if (!is_done)
        note_failure(run, stmt, began_ms, failure);
    free(binds);
    return is_done;
}

/* ----------------------------------------------------------------- fetch */

static void bind_number(MYSQL_BIND *bind, struct shed_mysql_integer *number)
{
    bind->buffer_type = MYSQL_TYPE_LONGLONG;
    bind->buffer = &number->bits;
    bind->buffer_length = sizeof(number->bits);
    bind->is_unsigned = number->is_unsigned;
}

static struct shed_mysql_cells *
take_cells(struct shed_mysql_statements *statements)
{
    if (statements->cells == NULL)
        statements->cells = calloc(1, sizeof(*statements->cells));
    return statements->cells;
}

static bool bind_cells(MYSQL_STMT *stmt, const struct shed_mysql_column *column,
                       const struct extras *extras,
                       struct shed_mysql_cells *cells)
{
    memset(cells->bind, 0, sizeof(cells->bind));
    for (size_t i = 0; i < COLUMNS_MAX; i++) {
        cells->bind[i].length = &cells->size[i];
        cells->bind[i].is_null = &cells->is_null[i];
        cells->bind[i].error = &cells->is_cut[i];
        cells->bind[i].buffer_type = MYSQL_TYPE_STRING;
    }
    cells->bind[COLUMN_KEY].buffer = cells->key;
    cells->bind[COLUMN_KEY].buffer_length = sizeof(cells->key);
    cells->bind[COLUMN_VALUE].buffer = cells->value;
    cells->bind[COLUMN_VALUE].buffer_length = sizeof(cells->value);
    /* as a number, because ZEROFILL would pad a text with zeros */
    cells->is_number = column->kind == SHED_MYSQL_NUMBER;
    cells->number.is_unsigned = column->is_unsigned;
    if (cells->is_number)
        bind_number(&cells->bind[COLUMN_KEY], &cells->number);
    cells->version_at = extras->version;
    cells->version.is_unsigned = extras->version_column.is_unsigned;
    if (cells->version_at > 0)
        bind_number(&cells->bind[cells->version_at], &cells->version);
    cells->tags_at = extras->tags;
    if (cells->tags_at > 0) {
        cells->bind[cells->tags_at].buffer = cells->tags;
        cells->bind[cells->tags_at].buffer_length = sizeof(cells->tags);
    }
    return mysql_stmt_bind_result(stmt, cells->bind) == 0;
}

/* Read a value that did not fit. Returns it, to be freed; or NULL, with the
 * problem in cells. */
static char *fetch_long_value(MYSQL_STMT *stmt, struct shed_mysql_cells *cells)
{
    unsigned long size = cells->size[COLUMN_VALUE];
    shed_mysql_flag is_null = 0, is_cut = 0;
    char *value = malloc(size);
    MYSQL_BIND bind;

    memset(&bind, 0, sizeof(bind));
    bind.buffer_type = MYSQL_TYPE_STRING;
    bind.buffer = value;
    bind.buffer_length = size;
    bind.length = &size;
    bind.is_null = &is_null;
    bind.error = &is_cut;
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

static void set_key(struct shed_mysql_cells *cells, struct shed_mysql_row *row)
{
    row->key = cells->key;
    /* no key is empty or that long, so the row belongs to none */
    if (cells->is_null[COLUMN_KEY] ||
        cells->size[COLUMN_KEY] > sizeof(cells->key))
        row->key_size = 0;
    else if (cells->is_number)
        row->key_size = shed_mysql_integer_write(cells->key, &cells->number);
    else
        row->key_size = cells->size[COLUMN_KEY];
}

/* Set the row's value, or the problem with it. Returns the memory of a long
 * value, to be freed. */
static char *set_value(const struct shed_mysql_run *run, MYSQL_STMT *stmt,
                       struct shed_mysql_cells *cells,
                       struct shed_mysql_row *row)
{
    size_t limit_bytes = run->value_limit_bytes;
    unsigned long size = cells->size[COLUMN_VALUE];
    char *long_value;

    row->is_null = cells->is_null[COLUMN_VALUE] != 0;
    if (row->is_null)
        return NULL;
    row->value_size = size;
    if (size > limit_bytes) {
        (void)snprintf(cells->problem, sizeof(cells->problem),
                       "MySQL: the value has %lu bytes, value_limit_bytes is "
                       "%zu",
                       size, limit_bytes);
        row->problem = cells->problem;
        row->is_too_big = true;
        return NULL;
    }
    if (size <= sizeof(cells->value)) {
        row->value = cells->value;
        return NULL;
    }
    long_value = fetch_long_value(stmt, cells);
    row->value = long_value;
    row->problem = long_value == NULL ? cells->problem : NULL;
    return long_value;
}

/* A version below 0 is none, so that all of them can be compared. */
static void set_version(const struct shed_mysql_cells *cells,
                        struct shed_mysql_row *row)
{
    bool is_negative =
        !cells->version.is_unsigned && cells->version.bits > INT64_MAX;

    row->has_version = cells->version_at > 0 && !is_negative &&
                       cells->is_null[cells->version_at] == 0;
    row->version = cells->version.bits;
}

/* A row that lacks one of its tags could not be invalidated by it. */
static void set_tags(struct shed_mysql_cells *cells, struct shed_mysql_row *row)
{
    if (cells->tags_at == 0 || cells->is_null[cells->tags_at] != 0)
        return;
    row->tags = cells->tags;
    row->tags_size = cells->size[cells->tags_at];
    if (row->tags_size <= sizeof(cells->tags))
        return;
    row->tags_size = 0;
    row->problem = "MySQL: the row's tags have more than 4096 bytes";
}

/* Pass on the row that was fetched. */
static void pass_row(const struct shed_mysql_run *run, MYSQL_STMT *stmt,
                     struct shed_mysql_cells *cells)
{
    struct shed_mysql_row row = {0};
    char *long_value = set_value(run, stmt, cells, &row);

    set_key(cells, &row);
    set_version(cells, &row);
    set_tags(cells, &row);
    run->row(run->user, &row);
    free(long_value);
}

/* The server prepares a statement again when its table has been altered (MySQL
 * manual, "Caching of Prepared Statements and Stored Programs"), and sends the
 * new types with the result: other keys may fit from then on. */
static bool check_column(MYSQL_STMT *stmt,
                         const struct shed_mysql_column *expected,
                         struct shed_mysql_failure *failure)
{
    struct shed_mysql_column column;

    if (!read_column(stmt, &column, failure))
        return false;
    if (shed_mysql_column_is_same(&column, expected))
        return true;
    return fail_passing(failure, "MySQL: the type of the key column changed");
}

/* Read the result to its end. */
static bool fetch(const struct shed_mysql_run *run, MYSQL_STMT *stmt,
                  struct shed_mysql_failure *failure)
{
    const struct shed_mysql_column *column = &run->statements->column;
    struct shed_mysql_cells *cells = take_cells(run->statements);
    uint64_t began_ms = shed_now_ms();
    struct extras extras;
    int status;

    if (cells == NULL)
        return fail_here(failure, SHED_ENOMEM, "out of memory for a result");
    if (!check_column(stmt, column, failure) ||
        !read_extras(stmt, &extras, failure))
        return false;
    if (!bind_cells(stmt, column, &extras, cells)) {
        note_failure(run, stmt, began_ms, failure);
        return false;
    }
    while ((status = mysql_stmt_fetch(stmt)) == 0 ||
           status == MYSQL_DATA_TRUNCATED) {
        pass_row(run, stmt, cells);
        began_ms = shed_now_ms();
    }
    /* If a statement was ended by its time limit or by KILL, the rows can end
     * as if complete, with the error only in the last packet. */
    if (status == MYSQL_NO_DATA && mysql_stmt_errno(stmt) == 0 &&
        mysql_errno(run->connection->mysql) == 0 &&
        mysql_stmt_free_result(stmt) == 0)
        return true;
    note_failure(run, stmt, began_ms, failure);
    return false;
}

/* Find out whether the statement failed because of its keys. If so, close it,
 * because an unread rest of its result would block the connection. */
static void blame_keys(const struct shed_mysql_run *run,
                       struct shed_mysql_failure *failure)
{
    MYSQL *mysql = run->connection->mysql;
    MYSQL_STMT **stmt = place_of(run);
    const char *sqlstate = mysql_stmt_errno(*stmt) != 0
                               ? mysql_stmt_sqlstate(*stmt)
                               : mysql_sqlstate(mysql);

    if (failure->number == 0 || mysql->status != MYSQL_STATUS_READY ||
        !shed_mysql_is_by_key(failure->number, sqlstate))
        return;
    failure->is_kept = failure->is_by_key = true;
    drop(stmt);
}

bool shed_mysql_run_query(struct shed_mysql_run *run,
                          struct shed_mysql_failure *failure)
{
    MYSQL_STMT *stmt;

    assert(run->statements->is_column_known);
    run->began_ms = shed_now_ms();
    stmt = take_statement(run, failure);
    if (stmt == NULL)
        return false;
    run->began_ms = shed_now_ms();
    if (execute(run, stmt, failure) && fetch(run, stmt, failure))
        return true;
    blame_keys(run, failure);
    return false;
}
