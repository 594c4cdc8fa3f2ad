/*
 * Runs the query for a set of keys, by prepared statements that are kept with
 * the connection, and reads its result row by row.
 */
#ifndef SHED_MYSQL_STATEMENT_H
#define SHED_MYSQL_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mysql/column.h"
#include "mysql/compat.h"
#include "mysql/connection.h"
#include "mysql/query.h"

/* Statements are made for powers of two up to this many keys: more than the
 * 10000 of the largest batch. */
#define SHED_MYSQL_ROOMS 15

/* The same for all threads of a source. */
struct shed_mysql_select {
    struct shed_mysql_query query;
    bool is_integer; /* the keys are */
    size_t max_keys;
    size_t value_limit_bytes;
};

/* The statements of one connection; all zero: none. */
struct shed_mysql_statements {
    MYSQL_STMT *of_room[SHED_MYSQL_ROOMS]; /* by the power of two */
    bool is_column_known;
    struct shed_mysql_column column; /* of the keys */
};

/* A key to be bound. */
struct shed_mysql_parameter {
    const void *data; /* the bytes, or a struct shed_mysql_integer's bits */
    size_t size;
    bool is_unsigned;
};

/* A row of the result; valid during the call that is given it. */
struct shed_mysql_row {
    const void *key;
    size_t key_size;
    const void *value; /* NULL if is_null, or if problem says why */
    size_t value_size;
    bool is_null;
    bool is_too_big; /* for the source's limit, as problem says */
    const char *problem;
};

typedef void shed_mysql_row_fn(void *user, const struct shed_mysql_row *row);

/*
 * Learn the type of the key column, by a statement for count keys, unless it is
 * known on this connection. With is_again it is learnt in any case: nobody says
 * when a table is altered.
 *
 * Returns: false on a failure, and where keys of the source's mode are not
 * asked for in such a column.
 */
SHED_MUST_CHECK bool
shed_mysql_select_learn(const struct shed_mysql_select *select,
                        struct shed_mysql_statements *statements,
                        struct shed_mysql_connection *c, size_t count,
                        bool is_again, struct shed_mysql_failure *failure);

/*
 * Run the query on an open connection whose key column is known;
 * parameter(user, i, out) tells the keys, 1 to max_keys. Rows are passed to row
 * as they come. That the column has another type by now is a passing failure.
 *
 * Returns: true when the whole result was read and the server has reported no
 * error; false: what was passed so far is not to be trusted, and the
 * connection is to be abandoned, unless the failure is_kept. *began_ms is
 * when its last command began.
 */
SHED_MUST_CHECK bool shed_mysql_select_run(
    const struct shed_mysql_select *select,
    struct shed_mysql_statements *statements, struct shed_mysql_connection *c,
    size_t count,
    void (*parameter)(void *user, size_t i, struct shed_mysql_parameter *out),
    shed_mysql_row_fn *row, void *user, uint64_t *began_ms,
    struct shed_mysql_failure *failure);

/* Free the statements of a connection that has been closed: after it, so that
 * nothing of an unread result is waited for. */
void shed_mysql_statements_drop(struct shed_mysql_statements *statements);

#endif
