/*
 * A connection that asks: runs the query for a set of keys, and reads the
 * result row by row.
 */
#ifndef SHED_MYSQL_SESSION_H
#define SHED_MYSQL_SESSION_H

#include <stdbool.h>

#include "mysql/batch.h"
#include "mysql/column.h"
#include "mysql/connection.h"
#include "mysql/query.h"

/* What the query selects. */
struct shed_mysql_columns {
    struct shed_mysql_column key;
    unsigned version, tags; /* the numbers of these columns; 0: none */
};

struct shed_mysql_session {
    struct shed_mysql_connection connection;
    const struct shed_mysql_query *query;
    bool are_columns_known;
    struct shed_mysql_columns columns;
};

/*
 * Ask for the keys of a part that the key column can hold, over the open
 * connection, and give the rows to the part as they come. The column's type is
 * learnt by preparing the query. If it has changed, that is a failure that
 * passes.
 *
 * Returns: true when the whole result was read and the server has reported no
 * error; false: the rows so far must not be trusted, and the connection must be
 * abandoned, unless the failure, which is all zero on entry, is_kept.
 */
SHED_MUST_CHECK bool shed_mysql_session_ask(struct shed_mysql_session *s,
                                            struct shed_mysql_part *part,
                                            struct shed_mysql_failure *failure);

/* Close the connection. failure: that of the last command; NULL: nothing is
 * under way. */
void shed_mysql_session_close(struct shed_mysql_session *s,
                              const struct shed_mysql_failure *failure);

#endif
