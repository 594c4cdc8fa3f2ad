/*
 * Runs the query for a set of keys, with prepared statements that are kept with
 * the connection, and reads the result row by row.
 */
#ifndef SHED_MYSQL_STATEMENT_H
#define SHED_MYSQL_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mysql/batch.h"
#include "mysql/column.h"
#include "mysql/compat.h"
#include "mysql/connection.h"
#include "mysql/query.h"

/* Statements are made for powers of two up to this many keys: more than the
 * 10000 of the largest batch. */
#define SHED_MYSQL_ROOMS 15

/* What the query selects. */
struct shed_mysql_columns {
    struct shed_mysql_column key;
    unsigned version, tags; /* the numbers of these columns; 0: none */
};

/* A connection and its statements. */
struct shed_mysql_session {
    struct shed_mysql_connection connection;
    const struct shed_mysql_query *query;
    MYSQL_STMT *of_room[SHED_MYSQL_ROOMS]; /* [n]: for 2 to the n keys */
    struct shed_mysql_cells *cells; /* the buffers of a row. Once bound, they
                                       live as long as the statements: Oracle's
                                       library writes to them in the next
                                       execution, before they are bound again */
    bool are_columns_known;
    struct shed_mysql_columns columns;
};

/*
 * Ask for the keys of a part that the key column can hold, over the open
 * connection, and give the rows to the part as they come. The column's type is
 * learnt by preparing a statement. If it has changed, that is a failure that
 * passes.
 *
 * Returns: true when the whole result was read and the server has reported no
 * error; false: the rows so far must not be trusted, and the connection must be
 * abandoned, unless the failure, which is all zero on entry, is_kept.
 */
SHED_MUST_CHECK bool shed_mysql_session_ask(struct shed_mysql_session *s,
                                            struct shed_mysql_part *part,
                                            struct shed_mysql_failure *failure);

/* Close the connection, and free its statements. failure: that of the last
 * command; NULL: nothing is under way. */
void shed_mysql_session_close(struct shed_mysql_session *s,
                              const struct shed_mysql_failure *failure);

#endif
