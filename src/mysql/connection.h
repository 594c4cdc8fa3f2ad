/* One thread's connection to the server: opening it, the state in which it may
 * be used, and ending a query that has outlived its connection. */
#ifndef SHED_MYSQL_CONNECTION_H
#define SHED_MYSQL_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "mysql/compat.h"
#include "mysql/config.h"

#define SHED_MYSQL_SERVER_BYTES 256

/* A connection, as its server identifies it. */
struct shed_mysql_place {
    unsigned long id; /* its number in the server; 0: none */
    char server[SHED_MYSQL_SERVER_BYTES]; /* host name, port and server_id */
    uint64_t opened_ms;
    uint64_t started_s; /* of the server, by its own clock; 0: unknown */
    uint64_t opened_s;  /* likewise of the connection */
};

struct shed_mysql_connection {
    const struct shed_mysql_config *config;
    MYSQL *mysql; /* NULL: closed */
    struct shed_mysql_place place;
    /* a connection that was lost while a query may have run on it */
    struct shed_mysql_place lost;
    uint64_t lost_over_ms; /* by then the server's limit has ended the query */
    bool is_lost_by_peer;  /* the other side closed it; it was not a timeout */
};

/* Why a command failed. */
struct shed_mysql_failure {
    unsigned number; /* the server's or the client library's; 0: ours */
    bool is_passing; /* the same query may succeed on a new connection */
    bool is_timeout; /* the server was silent for the whole timeout */
    bool is_kept;    /* the connection can be used as before */
    bool is_by_key;  /* is_kept, and the query failed because of its keys
                        or their rows */
    struct shed_error error; /* SHED_ESOURCE or SHED_ENOMEM, with the reason */
};

/* Connect a handle that is not connected. mysql may be NULL, which means out of
 * memory. flags: as for mysql_real_connect. */
SHED_MUST_CHECK bool
shed_mysql_handle_connect(MYSQL *mysql, const struct shed_mysql_config *config,
                          unsigned long flags,
                          struct shed_mysql_failure *failure);

/* Open a closed connection, with utf8mb4, autocommit and the statement limit.
 */
SHED_MUST_CHECK bool
shed_mysql_connection_open(struct shed_mysql_connection *c,
                           struct shed_mysql_failure *failure);

/* Whether it is open, in autocommit, and outside of a transaction, so that
 * reads return current rows. */
bool shed_mysql_connection_is_fit(const struct shed_mysql_connection *c);

/* Close it while no query is under way. Does nothing if it is closed. */
void shed_mysql_connection_close(struct shed_mysql_connection *c);

/* Close it after the failure of a command that began at began_ms. A query that
 * may still run in the server is noted in lost. */
void shed_mysql_connection_abandon(struct shed_mysql_connection *c,
                                   const struct shed_mysql_failure *failure,
                                   uint64_t began_ms);

/* Make sure that no query runs in the server on the lost connection: kill it
 * over a new connection, which stays open. Blocks: until the server confirms
 * that the lost connection is gone, or its statement limit has passed. */
void shed_mysql_connection_end_lost(struct shed_mysql_connection *c);

/* Describe a failure by the server's or the library's error number and text.
 * waited_ms: how long the failing call took. */
void shed_mysql_failure_set(struct shed_mysql_failure *failure,
                            const struct shed_mysql_config *config,
                            unsigned number, const char *text,
                            uint64_t waited_ms);

/* Describe the last failure of a connection, or of a statement on it; stmt is
 * NULL without one. */
void shed_mysql_failure_take(struct shed_mysql_failure *failure,
                             const struct shed_mysql_config *config,
                             MYSQL *mysql, MYSQL_STMT *stmt,
                             uint64_t waited_ms);

/* Whether the error is due to the keys, so that other keys may not cause it. */
bool shed_mysql_is_by_key(unsigned number, const char *sqlstate);

/* Whether others were in the way of a transaction's statement, which may
 * succeed if the whole transaction is repeated. */
bool shed_mysql_is_conflict(unsigned number);

/* Whether the error says that the server accepts no more connections. */
bool shed_mysql_is_overload(unsigned number);

#endif
