/*
 * One thread's connection to the server: how it is opened, in which state it
 * may be used, and how a query is ended that outlived its connection.
 */
#ifndef SHED_MYSQL_CONNECTION_H
#define SHED_MYSQL_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "mysql/compat.h"
#include "mysql/config.h"

#define SHED_MYSQL_SERVER_BYTES 256

/* Which connection of which server. */
struct shed_mysql_place {
    unsigned long id; /* the server's number of it; 0: none */
    char server[SHED_MYSQL_SERVER_BYTES]; /* what the server says it is */
    uint64_t opened_ms;
};

struct shed_mysql_connection {
    const struct shed_mysql_config *config;
    MYSQL *mysql; /* NULL: closed */
    struct shed_mysql_place place;
    /* a connection that was lost while a query may have run on it */
    struct shed_mysql_place lost;
    uint64_t lost_over_ms; /* the server's limit has ended it by then */
    bool is_lost_by_peer;  /* it was closed on us, not by a timeout */
};

/* Why the server did not do as asked. */
struct shed_mysql_failure {
    unsigned number;         /* the server's or the client library's; 0: ours */
    bool is_passing;         /* on a new connection the same query may work */
    bool is_timeout;         /* the server said nothing for the whole timeout */
    bool is_kept;            /* the connection is as before, and can be used */
    bool is_by_key;          /* so it is, and the query failed for what its keys
                                or their rows are */
    struct shed_error error; /* SHED_ESOURCE or SHED_ENOMEM, with the reason */
};

/* Connect a handle that is not connected. mysql may be NULL: then memory is
 * out. flags are mysql_real_connect's. */
SHED_MUST_CHECK bool
shed_mysql_handle_connect(MYSQL *mysql, const struct shed_mysql_config *config,
                          unsigned long flags,
                          struct shed_mysql_failure *failure);

/* Open a closed connection: utf8mb4, autocommit, statement time limit. */
SHED_MUST_CHECK bool
shed_mysql_connection_open(struct shed_mysql_connection *c,
                           struct shed_mysql_failure *failure);

/* Whether it is open, in autocommit, and in no transaction: what is read then
 * is the present. */
bool shed_mysql_connection_is_fit(const struct shed_mysql_connection *c);

/* Close it when no query is under way. Closed already: nothing. */
void shed_mysql_connection_close(struct shed_mysql_connection *c);

/* Close it after a failure of a command that began at began_ms. If the query
 * may still run in the server, that is noted in lost. */
void shed_mysql_connection_abandon(struct shed_mysql_connection *c,
                                   const struct shed_mysql_failure *failure,
                                   uint64_t began_ms);

/* See to it that no query runs in the server on the lost connection: kill it,
 * over a new connection, which stays open. Blocks: until it is confirmed gone,
 * or has ended by the server's own limit. */
void shed_mysql_connection_end_lost(struct shed_mysql_connection *c);

/* Describe a failure by an error number and text of the server's or the
 * library's. waited_ms is how long the failing call took. */
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

/* The number and the SQLSTATE of an error say that other keys may not meet it.
 */
bool shed_mysql_is_by_key(unsigned number, const char *sqlstate);

/* The number says that the server has no room for us. */
bool shed_mysql_is_overload(unsigned number);

#endif
