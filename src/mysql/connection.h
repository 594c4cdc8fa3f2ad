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
    uint64_t started_s; /* of the server, by its own clock; 0: unknown */
    uint64_t opened_s;  /* likewise of the connection */
};

struct shed_mysql_connection {
    const struct shed_mysql_config *config;
    MYSQL *mysql; /* NULL: closed */
    struct shed_mysql_place place;
    uint64_t began_ms;  /* the last command, see begin */
    uint64_t silent_ms; /* since when it waits for the server */
    /* a connection that was lost while a query may have run on it */
    struct shed_mysql_place lost;
    uint64_t lost_over_ms; /* by then the server's limit has ended the query */
    bool is_lost_by_peer;  /* the other side closed it; it was not a timeout */
};

/* What an error means for the one who gets it. */
enum shed_mysql_cause {
    SHED_MYSQL_OTHER_CAUSE,
    SHED_MYSQL_UNREACHABLE,
    SHED_MYSQL_LOST,      /* the other side closed the connection */
    SHED_MYSQL_SILENT,    /* no answer for the whole timeout */
    SHED_MYSQL_SESSION,   /* the session or its statement is gone, or the server
                             has changed its role */
    SHED_MYSQL_FULL,      /* the server accepts no more connections */
    SHED_MYSQL_CONFLICT,  /* others were in the way: the whole transaction may
                             succeed if it is repeated */
    SHED_MYSQL_KEYS,      /* other keys may not cause it */
    SHED_MYSQL_NO_THREAD, /* there is none to be killed, or not of ours */
    SHED_MYSQL_NO_MEMORY
};

/* Why a command failed. */
struct shed_mysql_failure {
    unsigned number; /* the server's or the client library's; 0: ours */
    enum shed_mysql_cause cause;
    bool is_kept;            /* the connection can be used as before */
    struct shed_error error; /* SHED_ESOURCE or SHED_ENOMEM, with the reason */
};

/* In the following functions, failure is all zero on entry. */

/* Connect c->mysql, a handle that is not connected; NULL means out of memory.
 * flags: as for mysql_real_connect. */
SHED_MUST_CHECK bool
shed_mysql_connection_connect(struct shed_mysql_connection *c,
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

/* Note that a command is sent now. */
void shed_mysql_connection_begin(struct shed_mysql_connection *c);

/* Close it while no query is under way. Does nothing if it is closed. */
void shed_mysql_connection_close(struct shed_mysql_connection *c);

/* Close it after the failure of the last command. A query that may still run
 * in the server is noted in lost. */
void shed_mysql_connection_abandon(struct shed_mysql_connection *c,
                                   const struct shed_mysql_failure *failure);

/* Make sure that no query runs in the server on the lost connection: kill it
 * over a new connection, which stays open. Blocks: until the server confirms
 * that the lost connection is gone, or its statement limit has passed. */
void shed_mysql_connection_end_lost(struct shed_mysql_connection *c);

/* Describe the failure of the last command on a connection, or of stmt if that
 * is not NULL. */
void shed_mysql_connection_explain(const struct shed_mysql_connection *c,
                                   MYSQL_STMT *stmt,
                                   struct shed_mysql_failure *failure);

/* Describe an error of the server's or the library's by its number, SQLSTATE
 * and text. waited_ms: how long the failing call took. */
void shed_mysql_failure_set(struct shed_mysql_failure *failure,
                            const struct shed_mysql_config *config,
                            unsigned number, const char *sqlstate,
                            const char *text, uint64_t waited_ms);

#endif
