/*
 * Runs the query for a set of keys, with prepared statements that are kept with
 * the connection, and reads the result row by row.
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

/* The query, and what a source does with it; the same for all its threads. */
struct shed_mysql_select {
    struct shed_mysql_query query;
    size_t max_keys;
};

/* The statements of one connection; all zero: none. */
struct shed_mysql_statements {
    MYSQL_STMT *of_room[SHED_MYSQL_ROOMS]; /* [n]: for 2 to the n keys, or
                                              max_keys if that is less */
    struct shed_mysql_cells *cells; /* the buffers of a row. Once bound, they
                                       live as long as the statements: Oracle's
                                       library writes to them in the next
                                       execution, before they are bound again */
    bool is_column_known;
    struct shed_mysql_column column; /* the key column */
};

/* A key to be bound. */
struct shed_mysql_parameter {
    const void *data; /* the bytes, or a struct shed_mysql_integer's bits */
    size_t size;
    bool is_unsigned;
};

/* A row of the result; valid only during the call to which it is passed. */
struct shed_mysql_row {
    const void *key;
    size_t key_size;
    const void *value; /* NULL if is_null, or if there is a problem */
    size_t value_size;
    bool is_null;
    bool is_too_big;     /* the problem: value_limit_bytes */
    const char *problem; /* why there is no value; NULL: none */
    bool has_version;
    uint64_t version;
    const char *tags; /* between spaces and commas */
    size_t tags_size;
};

/* One run of the query, on an open connection. */
struct shed_mysql_run {
    const struct shed_mysql_select *select;
    struct shed_mysql_statements *statements; /* of the connection */
    struct shed_mysql_connection *connection;
    size_t count;             /* of the keys, 1 to max_keys */
    size_t value_limit_bytes; /* a longer value is a problem of its row */
    /* Provide key i, where i is less than count. */
    void (*parameter)(void *user, size_t i, struct shed_mysql_parameter *out);
    /* Take a row; called for each as it comes. */
    void (*row)(void *user, const struct shed_mysql_row *row);
    void *user;
    uint64_t
        began_ms; /* when the last command began; set by the functions below */
};

/*
 * Learn the type of the key column, by preparing a statement for the run's
 * keys, unless it is known on this connection. With is_again it is learnt in
 * any case, because servers do not report that a table was altered.
 *
 * Returns: false on a failure, or if the column suits no key.
 */
SHED_MUST_CHECK bool shed_mysql_run_learn(struct shed_mysql_run *run,
                                          bool is_again,
                                          struct shed_mysql_failure *failure);

/*
 * Run the query; the key column must be known. If the column's type has
 * changed, that is a passing failure.
 *
 * Returns: true when the whole result was read and the server has reported no
 * error; false: the rows so far must not be trusted, and the connection must be
 * abandoned, unless the failure is_kept.
 */
SHED_MUST_CHECK bool shed_mysql_run_query(struct shed_mysql_run *run,
                                          struct shed_mysql_failure *failure);

/* Free the statements of a connection, which must be closed before; otherwise
 * this would wait for the rest of an unread result. */
void shed_mysql_statements_drop(struct shed_mysql_statements *statements);

#endif
