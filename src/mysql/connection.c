/*
 * Connections. Two invariants: a connection on which anything failed is closed
 * and never repaired, since a late reply would answer the next query; and a
 * query that may still run in the server is remembered until it is known to be
 * over, because the limit on queries depends on that.
 */
#include "mysql/connection.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

enum { MS_PER_S = 1000 };

/* The pauses between two looks at a killed query, and between two attempts to
 * reach a server. */
enum {
    KILL_MIN_MS = 1,
    KILL_MAX_MS = 100,
    REACH_MIN_MS = 20,
    REACH_MAX_MS = 1000
};

/* A server rounds its limits to seconds (lock_wait_timeout) and checks them
 * only from time to time, and its clock and ours were read at different
 * instants. */
enum { LIMIT_SLACK_MS = 2000 };

enum { SQL_BYTES = 256 };

/* --------------------------------------------------------------- failures */

/* The numbers of errors that are more than a failure. Our own list: the headers
 * of each library lack some of the other's. */
static const struct {
    unsigned number;
    enum shed_mysql_cause cause;
} causes[] = {
    {2002, SHED_MYSQL_UNREACHABLE}, /* by a socket */
    {2003, SHED_MYSQL_UNREACHABLE}, /* by TCP */
    {2006, SHED_MYSQL_LOST},        /* gone before the command */
    {2013, SHED_MYSQL_LOST},        /* lost during it */
    {2026, SHED_MYSQL_LOST},        /* the same over TLS, in Connector/C */
    {2055, SHED_MYSQL_LOST},        /* the same, with its errno */
    {1053, SHED_MYSQL_SESSION},     /* shutdown in progress */
    {1243, SHED_MYSQL_SESSION},     /* unknown prepared statement */
    {1290, SHED_MYSQL_SESSION},     /* an option of the server prevents it */
    {1615, SHED_MYSQL_SESSION},     /* the statement must be prepared again */
    {1792, SHED_MYSQL_SESSION},     /* a read-only transaction */
    {1836, SHED_MYSQL_SESSION},     /* read-only mode */
    {1927, SHED_MYSQL_SESSION},     /* connection killed (MariaDB) */
    {2014, SHED_MYSQL_SESSION},     /* commands out of sync */
    {2057, SHED_MYSQL_SESSION},     /* the statement has other columns now */
    {4031, SHED_MYSQL_SESSION},     /* idle for too long (MySQL) */
    {1040, SHED_MYSQL_FULL},        /* too many connections */
    {1203, SHED_MYSQL_FULL},        /* the same, of this user */
    {1226, SHED_MYSQL_FULL},        /* a limit of this user's */
    {1020, SHED_MYSQL_CONFLICT},    /* record changed (MariaDB,
                                       innodb_snapshot_isolation) */
    {1205, SHED_MYSQL_CONFLICT},    /* lock wait timeout */
    {1213, SHED_MYSQL_CONFLICT},    /* deadlock */
    {1969, SHED_MYSQL_CONFLICT},    /* statement timeout (MariaDB) */
    {3024, SHED_MYSQL_CONFLICT},    /* query timeout (MySQL) */
    /* These have the general SQLSTATE HY000, at least in some versions. */
    {1267, SHED_MYSQL_KEYS}, /* the collations of two do not mix */
    {1270, SHED_MYSQL_KEYS}, /* of three */
    {1271, SHED_MYSQL_KEYS}, /* of many */
    {1300, SHED_MYSQL_KEYS}, /* invalid characters */
    {1366, SHED_MYSQL_KEYS}, /* wrong value for a field */
    {1411, SHED_MYSQL_KEYS}, /* for a type */
    {1525, SHED_MYSQL_KEYS}, /* wrong value */
    {3854, SHED_MYSQL_KEYS}, /* both from MySQL, for a key with */
    {3988, SHED_MYSQL_KEYS}, /* characters that the column lacks */
    {1094, SHED_MYSQL_NO_THREAD},
    {1095, SHED_MYSQL_NO_THREAD}, /* another user's */
    {2008, SHED_MYSQL_NO_MEMORY},
};

/* Whether the server reported the error, not a client library. */
static bool is_from_server(unsigned number)
{
    enum {
        CLIENT_MIN = 2000,
        CLIENT_MAX = 2999,
        CONNECTOR_C_MIN = 5000, /* MariaDB's library */
        CONNECTOR_C_MAX = 5999
    };

    return number != 0 && !(number >= CLIENT_MIN && number <= CLIENT_MAX) &&
           !(number >= CONNECTOR_C_MIN && number <= CONNECTOR_C_MAX);
}

static enum shed_mysql_cause cause_of(unsigned number, const char *sqlstate)
{
    /* Cardinality violation (a subquery with two rows), data exception, and
     * whatever a user's function signals. */
    static const char *const of_keys[] = {"21", "22", "45"};

    for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++)
        if (causes[i].number == number)
            return causes[i].cause;
    for (size_t i = 0; i < sizeof(of_keys) / sizeof(*of_keys); i++)
        if (is_from_server(number) &&
            strncmp(sqlstate, of_keys[i], strlen(of_keys[i])) == 0)
            return SHED_MYSQL_KEYS;
    return SHED_MYSQL_OTHER_CAUSE;
}

void shed_mysql_failure_set(struct shed_mysql_failure *failure,
                            const struct shed_mysql_config *config,
                            unsigned number, const char *sqlstate,
                            const char *text, uint64_t waited_ms)
{
    struct shed_error *error = &failure->error;
    enum shed_mysql_cause cause = cause_of(number, sqlstate);

    if (cause == SHED_MYSQL_LOST &&
        waited_ms >= (uint64_t)config->read_timeout_s * MS_PER_S)
        cause = SHED_MYSQL_SILENT;
    *failure = (struct shed_mysql_failure){.number = number, .cause = cause};
    if (cause == SHED_MYSQL_SILENT ||
        (cause == SHED_MYSQL_UNREACHABLE &&
         waited_ms >= (uint64_t)config->connect_timeout_s * MS_PER_S))
        (void)shed_fail(error, SHED_ESOURCE,
                        "MySQL: no answer%s for %" PRIu64 " ms: %s (%u)",
                        cause == SHED_MYSQL_SILENT ? "" : " to connect",
                        waited_ms, text, number);
    else
        (void)shed_fail(
            error, cause == SHED_MYSQL_NO_MEMORY ? SHED_ENOMEM : SHED_ESOURCE,
            "MySQL: %s (%u)", text, number);
}

/* What the library finds itself is the statement's alone; what ends a result is
 * in Connector/C the connection's alone. */
void shed_mysql_connection_explain(const struct shed_mysql_connection *c,
                                   MYSQL_STMT *stmt,
                                   struct shed_mysql_failure *failure)
{
    uint64_t waited_ms = shed_now_ms() - c->silent_ms;

    if (stmt != NULL && mysql_errno(c->mysql) == 0)
        shed_mysql_failure_set(failure, c->config, mysql_stmt_errno(stmt),
                               mysql_stmt_sqlstate(stmt),
                               mysql_stmt_error(stmt), waited_ms);
    else
        shed_mysql_failure_set(failure, c->config, mysql_errno(c->mysql),
                               mysql_sqlstate(c->mysql), mysql_error(c->mysql),
                               waited_ms);
}

void shed_mysql_connection_begin(struct shed_mysql_connection *c)
{
    c->began_ms = c->silent_ms = shed_now_ms();
}

/* ---------------------------------------------------------------- opening */

/* Returns 0 if the library accepts all of them. */
static int set_options(MYSQL *mysql, const struct shed_mysql_config *config)
{
    unsigned protocol =
        config->uri.socket != NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    unsigned no_files = 0; /* a server must not read files of this machine */
    const struct {
        enum mysql_option name;
        const void *value; /* NULL: not set */
    } options[] = {{MYSQL_OPT_PROTOCOL, &protocol},
                   {MYSQL_OPT_LOCAL_INFILE, &no_files},
                   {MYSQL_SET_CHARSET_NAME, "utf8mb4"},
                   {MYSQL_OPT_CONNECT_TIMEOUT, &config->connect_timeout_s},
                   {MYSQL_OPT_READ_TIMEOUT, &config->read_timeout_s},
                   {MYSQL_OPT_WRITE_TIMEOUT, &config->read_timeout_s},
                   {MYSQL_OPT_SSL_CA, config->tls_ca},
                   {MYSQL_OPT_SSL_CERT, config->tls_cert},
                   {MYSQL_OPT_SSL_KEY, config->tls_key}};
    int failed = shed_mysql_forbid_reconnect(mysql);

    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
        if (options[i].value != NULL)
            failed |= mysql_options(mysql, options[i].name, options[i].value);
    if (config->tls_ca != NULL)
        failed |= shed_mysql_require_tls(mysql);
    return failed;
}

/* Run a statement without a result. */
static bool run(struct shed_mysql_connection *c, const char *sql,
                struct shed_mysql_failure *failure)
{
    shed_mysql_connection_begin(c);
    if (mysql_query(c->mysql, sql) == 0)
        return true;
    shed_mysql_connection_explain(c, NULL, failure);
    return false;
}

/* Ask who the server is, when it was started, and what time it is there.
 * UUID_SHORT has the second of the start in its bits 24 to 55 (MySQL manual,
 * "Miscellaneous Functions"). A server without it remains unknown. */
static bool ask_place(struct shed_mysql_connection *c,
                      struct shed_mysql_failure *failure)
{
    enum { STARTED, OPENED, SERVER, COLUMNS, DECIMAL = 10 };
    struct shed_mysql_place *place = &c->place;
    MYSQL_RES *result = NULL;
    MYSQL_ROW row = NULL;

    *place = (struct shed_mysql_place){.id = mysql_thread_id(c->mysql)};
    if (run(c,
            "SELECT UUID_SHORT() >> 24 & 0xffffffff, UNIX_TIMESTAMP(), "
            "CONCAT_WS(' ', @@hostname, @@port, @@server_id)",
            failure)) {
        result = mysql_store_result(c->mysql);
        if (result == NULL)
            shed_mysql_connection_explain(c, NULL, failure);
    }
    if (result == NULL && is_from_server(failure->number)) {
        *failure = (struct shed_mysql_failure){0};
        return true;
    }
    if (result == NULL)
        return false;
    if (mysql_num_fields(result) == COLUMNS)
        row = mysql_fetch_row(result);
    if (row != NULL && row[STARTED] != NULL && row[OPENED] != NULL) {
        place->started_s = strtoull(row[STARTED], NULL, DECIMAL);
        place->opened_s = strtoull(row[OPENED], NULL, DECIMAL);
        (void)snprintf(place->server, sizeof(place->server), "%s",
                       row[SERVER] != NULL ? row[SERVER] : "");
    }
    mysql_free_result(result);
    return true;
}

/* Set up the session: each read has a snapshot of its own, and no statement
 * runs for ever. Waits for metadata locks need their own limit, because not
 * every server includes them in the statement's. */
static bool set_session(struct shed_mysql_connection *c,
                        struct shed_mysql_failure *failure)
{
    uint64_t limit_ms = c->config->statement_limit_ms;
    uint64_t limit_s = (limit_ms + MS_PER_S - 1) / MS_PER_S;
    const char *version = mysql_get_server_info(c->mysql);
    bool is_mariadb = version != NULL && strstr(version, "MariaDB") != NULL;
    char sql[SQL_BYTES];

    (void)snprintf(sql, sizeof(sql),
                   "SET SESSION autocommit = 1, SESSION lock_wait_timeout = "
                   "%" PRIu64 ", SESSION %s %" PRIu64,
                   limit_s,
                   is_mariadb ? "max_statement_time = 0.001 *"
                              : "max_execution_time =",
                   limit_ms);
    return run(c, sql, failure) && ask_place(c, failure);
}

bool shed_mysql_connection_connect(struct shed_mysql_connection *c,
                                   unsigned long flags,
                                   struct shed_mysql_failure *failure)
{
    const struct shed_mysql_uri *uri = &c->config->uri;

    if (c->mysql == NULL || set_options(c->mysql, c->config) != 0) {
        (void)shed_fail_nomem(&failure->error, "a MySQL connection");
        return false;
    }
    shed_mysql_connection_begin(c);
    if (mysql_real_connect(c->mysql, uri->host, uri->user, uri->password,
                           uri->database, uri->port, uri->socket,
                           flags) == NULL) {
        shed_mysql_connection_explain(c, NULL, failure);
        return false;
    }
    /* programs that this one starts must not inherit the socket */
    (void)fcntl((int)c->mysql->net.fd, F_SETFD, FD_CLOEXEC);
    return true;
}

bool shed_mysql_connection_open(struct shed_mysql_connection *c,
                                struct shed_mysql_failure *failure)
{
    assert(c->mysql == NULL && c->config != NULL);
    c->mysql = mysql_init(NULL);
    if (shed_mysql_connection_connect(c, 0, failure) &&
        set_session(c, failure)) {
        if (shed_mysql_connection_is_fit(c))
            return true;
        (void)shed_fail(&failure->error, SHED_ESOURCE,
                        "MySQL: the server did not switch to autocommit");
    }
    shed_mysql_connection_close(c);
    return false;
}

bool shed_mysql_connection_is_fit(const struct shed_mysql_connection *c)
{
    return c->mysql != NULL &&
           (c->mysql->server_status & SERVER_STATUS_AUTOCOMMIT) != 0 &&
           (c->mysql->server_status & SERVER_STATUS_IN_TRANS) == 0;
}

void shed_mysql_connection_close(struct shed_mysql_connection *c)
{
    if (c->mysql != NULL)
        mysql_close(c->mysql);
    c->mysql = NULL;
}

/* ---------------------------------------------------- what is lost, alive */

void shed_mysql_connection_abandon(struct shed_mysql_connection *c,
                                   const struct shed_mysql_failure *failure)
{
    /* An error from the server ends the query. Without one the query may go on,
     * whether the connection broke or we stopped reading. */
    if (!is_from_server(failure->number)) {
        c->lost = c->place;
        c->lost_over_ms = shed_deadline_ms(
            c->began_ms, c->config->statement_limit_ms + LIMIT_SLACK_MS);
        c->is_lost_by_peer = failure->cause == SHED_MYSQL_LOST;
    }
    shed_mysql_connection_close(c);
}

/* Whether nobody listens at the address. Only the text shows it: the error
 * number is the same for every failure to connect, but both libraries end the
 * text with the errno in parentheses. */
static bool is_refused(const struct shed_mysql_failure *failure)
{
    static const int numbers[] = {ECONNREFUSED, ENOENT};
    char text[SQL_BYTES];

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        (void)snprintf(text, sizeof(text), "(%d)", numbers[i]);
        if (strstr(failure->error.reason, text) != NULL)
            return failure->cause == SHED_MYSQL_UNREACHABLE;
    }
    return false;
}

/* Kill the lost connection over the open one. Not unless that leads to the same
 * start of the same server: another has not got our query, and a server that
 * was restarted numbers connections from the beginning again, so the one that
 * we would kill may be somebody else's.
 * Returns: true if it is known to be gone. */
static bool kill_lost(struct shed_mysql_connection *c)
{
    const struct shed_mysql_place *here = &c->place, *lost = &c->lost;
    struct shed_mysql_failure failure = {0};
    char sql[SQL_BYTES];

    if (strcmp(here->server, lost->server) != 0 || lost->started_s == 0)
        return false;
    /* After 16 million calls of UUID_SHORT the second of the start moves on,
     * but not to that of a connection. An earlier one shows that the server's
     * clock was set back. */
    if (here->started_s != lost->started_s)
        return here->started_s >= lost->opened_s;
    if (here->id == lost->id)
        return true;
    (void)snprintf(sql, sizeof(sql), "KILL CONNECTION %lu", lost->id);
    if (run(c, sql, &failure))
        return false; /* still being killed: look again */
    if (!is_from_server(failure.number))
        shed_mysql_connection_close(c);
    return failure.cause == SHED_MYSQL_NO_THREAD;
}

/* Try once to end the lost query. Returns true if it is over; else *wait_ms is
 * how long to wait before the next attempt. */
static bool try_to_end(struct shed_mysql_connection *c, unsigned attempt,
                       uint64_t *wait_ms)
{
    struct shed_mysql_failure failure = {0};
    uint64_t random = shed_random_jitter();

    if (c->mysql == NULL && !shed_mysql_connection_open(c, &failure)) {
        *wait_ms =
            shed_backoff_equal_ms(attempt, REACH_MIN_MS, REACH_MAX_MS, random);
        /* The server closed the connection, and now nobody listens there: it is
         * dead, and so are its queries. A timeout would not prove that: the
         * network may be cut. */
        return c->is_lost_by_peer && is_refused(&failure);
    }
    *wait_ms = shed_backoff_equal_ms(attempt, KILL_MIN_MS, KILL_MAX_MS, random);
    return kill_lost(c);
}

void shed_mysql_connection_end_lost(struct shed_mysql_connection *c)
{
    uint64_t wait_ms = 0, left_ms;

    for (unsigned attempt = 0; c->lost.id != 0; attempt++) {
        left_ms = shed_left_ms(c->lost_over_ms, shed_now_ms());
        if (left_ms == 0 || try_to_end(c, attempt, &wait_ms))
            c->lost.id = 0;
        else /* a signal may end the pause, which does no harm */
            (void)poll(NULL, 0, (int)(wait_ms < left_ms ? wait_ms : left_ms));
    }
}
