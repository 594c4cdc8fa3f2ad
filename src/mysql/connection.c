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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

/* Our own list of error numbers: the header of each library lacks some of the
 * other's. A number outside the ranges of both libraries comes from the
 * server. */
enum {
    CLIENT_ERROR_MIN = 2000,
    CLIENT_ERROR_MAX = 2999,
    CONNECTOR_C_ERROR_MIN = 5000, /* MariaDB's library */
    CONNECTOR_C_ERROR_MAX = 5999,
    CONNECT_SOCKET_FAILED = 2002,
    CONNECT_HOST_FAILED = 2003,
    SERVER_GONE = 2006,
    CLIENT_NO_MEMORY = 2008,
    SERVER_LOST = 2013,
    OUT_OF_SYNC = 2014,
    SERVER_LOST_EXTENDED = 2055,
    PLUGIN_CANNOT_LOAD = 2059,
    RECORD_CHANGED = 1020, /* MariaDB, innodb_snapshot_isolation */
    TOO_MANY_CONNECTIONS = 1040,
    SHUTDOWN_IN_PROGRESS = 1053,
    NO_SUCH_THREAD = 1094,
    NOT_OUR_THREAD = 1095,
    TOO_MANY_USER_CONNECTIONS = 1203,
    LOCK_WAIT_TIMEOUT = 1205,
    DEADLOCK = 1213,
    LIMIT_REACHED = 1226,
    UNKNOWN_STATEMENT = 1243,
    COLLATIONS_OF_TWO = 1267,
    COLLATIONS_OF_THREE = 1270,
    COLLATIONS_OF_MANY = 1271,
    OPTION_PREVENTS = 1290,
    INVALID_CHARACTERS = 1300,
    WRONG_FIELD_VALUE = 1366,
    WRONG_VALUE_FOR_TYPE = 1411,
    WRONG_VALUE = 1525,
    NEEDS_REPREPARE = 1615,
    READ_ONLY_TRANSACTION = 1792,
    READ_ONLY_MODE = 1836,
    CONNECTION_KILLED = 1927,
    STATEMENT_TIMEOUT = 1969,     /* MariaDB */
    QUERY_TIMEOUT = 3024,         /* MySQL */
    CANNOT_CONVERT = 3854,        /* both from MySQL, for a key with */
    IMPOSSIBLE_CONVERSION = 3988, /* characters that the column lacks */
    IDLE_TIMEOUT = 4031
};

enum { MS_PER_S = 1000, NS_PER_MS = 1000000 };

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

/* Uptime is in whole seconds, and both ends of it are rounded. */
enum { UPTIME_SLACK_MS = 2000 };

enum { SQL_BYTES = 256 };

/* --------------------------------------------------------------- failures */

static bool is_client_error(unsigned number)
{
    return (number >= CLIENT_ERROR_MIN && number <= CLIENT_ERROR_MAX) ||
           (number >= CONNECTOR_C_ERROR_MIN && number <= CONNECTOR_C_ERROR_MAX);
}

/* Whether the connection is lost. */
static bool is_lost(unsigned number)
{
    return number == SERVER_GONE || number == SERVER_LOST ||
           number == SERVER_LOST_EXTENDED;
}

/* Whether none could be made. */
static bool is_unconnected(unsigned number)
{
    return number == CONNECT_SOCKET_FAILED || number == CONNECT_HOST_FAILED;
}

static bool is_among(const unsigned *numbers, size_t count, unsigned number)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/* Whether reading again on a new connection can help: the old connection or its
 * statement is gone, or the server has changed its role. */
static bool is_passing(unsigned number)
{
    static const unsigned numbers[] = {
        SERVER_GONE,       SERVER_LOST,           OUT_OF_SYNC,
        UNKNOWN_STATEMENT, SERVER_LOST_EXTENDED,  SHUTDOWN_IN_PROGRESS,
        OPTION_PREVENTS,   READ_ONLY_TRANSACTION, READ_ONLY_MODE,
        CONNECTION_KILLED, NEEDS_REPREPARE,       IDLE_TIMEOUT};

    return is_among(numbers, sizeof(numbers) / sizeof(*numbers), number);
}

bool shed_mysql_is_overload(unsigned number)
{
    return number == TOO_MANY_CONNECTIONS ||
           number == TOO_MANY_USER_CONNECTIONS || number == LIMIT_REACHED;
}

bool shed_mysql_is_conflict(unsigned number)
{
    static const unsigned numbers[] = {RECORD_CHANGED, LOCK_WAIT_TIMEOUT,
                                       DEADLOCK, STATEMENT_TIMEOUT,
                                       QUERY_TIMEOUT};

    return is_among(numbers, sizeof(numbers) / sizeof(*numbers), number);
}

bool shed_mysql_is_by_key(unsigned number, const char *sqlstate)
{
    /* SQLSTATE: cardinality violation (a subquery with two rows), data
     * exception, and whatever a user's function signals. */
    static const char *const classes[] = {"21", "22", "45"};
    /* These have the general SQLSTATE HY000, at least in some versions. */
    static const unsigned numbers[] = {
        COLLATIONS_OF_TWO,  COLLATIONS_OF_THREE, COLLATIONS_OF_MANY,
        INVALID_CHARACTERS, WRONG_FIELD_VALUE,   WRONG_VALUE_FOR_TYPE,
        WRONG_VALUE,        CANNOT_CONVERT,      IMPOSSIBLE_CONVERSION};

    if (is_client_error(number))
        return false;
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
        if (strncmp(sqlstate, classes[i], strlen(classes[i])) == 0)
            return true;
    return is_among(numbers, sizeof(numbers) / sizeof(*numbers), number);
}

void shed_mysql_failure_set(struct shed_mysql_failure *failure,
                            const struct shed_mysql_config *config,
                            unsigned number, const char *text,
                            uint64_t waited_ms)
{
    uint64_t timeout_ms = (uint64_t)config->read_timeout_s * MS_PER_S;
    enum shed_code code;

    failure->number = number;
    failure->is_kept = failure->is_by_key = false;
    failure->is_timeout = is_lost(number) && waited_ms >= timeout_ms;
    failure->is_passing = is_passing(number) && !failure->is_timeout;
    code = number == CLIENT_NO_MEMORY ? SHED_ENOMEM : SHED_ESOURCE;
    if (failure->is_timeout)
        (void)shed_fail(&failure->error, code,
                        "MySQL: no answer for %" PRIu64 " ms: %s (%u)",
                        waited_ms, text, number);
    else if (is_unconnected(number) &&
             waited_ms >= (uint64_t)config->connect_timeout_s * MS_PER_S)
        (void)shed_fail(&failure->error, code,
                        "MySQL: no answer to connect for %" PRIu64
                        " ms: %s (%u)",
                        waited_ms, text, number);
    else if (number == PLUGIN_CANNOT_LOAD)
        (void)shed_fail(&failure->error, code,
                        "MySQL: the client library lacks the plugin by which "
                        "this user logs in (Oracle's version 9 has no "
                        "mysql_native_password): install it, or use MariaDB "
                        "Connector/C (%u): %s",
                        number, text);
    else
        (void)shed_fail(&failure->error, code, "MySQL: %s (%u)", text, number);
}

void shed_mysql_failure_take(struct shed_mysql_failure *failure,
                             const struct shed_mysql_config *config,
                             MYSQL *mysql, MYSQL_STMT *stmt, uint64_t waited_ms)
{
    /* Connector/C reports the error that ends a result only in the
     * connection. */
    if (stmt != NULL && mysql_stmt_errno(stmt) != 0)
        shed_mysql_failure_set(failure, config, mysql_stmt_errno(stmt),
                               mysql_stmt_error(stmt), waited_ms);
    else
        shed_mysql_failure_set(failure, config, mysql_errno(mysql),
                               mysql_error(mysql), waited_ms);
}

/* A command that began at began_ms failed on the connection. */
static void note_failure(struct shed_mysql_connection *c, uint64_t began_ms,
                         struct shed_mysql_failure *failure)
{
    shed_mysql_failure_take(failure, c->config, c->mysql, NULL,
                            shed_now_ms() - began_ms);
}

/* ---------------------------------------------------------------- opening */

/* Returns 0 if the library accepts all of them. */
static int set_options(MYSQL *mysql, const struct shed_mysql_config *config)
{
    unsigned protocol =
        config->uri.socket != NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    unsigned no_files = 0; /* a server must not read files of this machine */
    int failed =
        mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol) |
        mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &no_files) |
        mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4") |
        mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT,
                      &config->connect_timeout_s) |
        mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &config->read_timeout_s) |
        mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &config->read_timeout_s) |
        shed_mysql_forbid_reconnect(mysql);

    if (config->tls_ca != NULL)
        failed |= mysql_options(mysql, MYSQL_OPT_SSL_CA, config->tls_ca) |
                  shed_mysql_require_tls(mysql);
    if (config->tls_cert != NULL)
        failed |= mysql_options(mysql, MYSQL_OPT_SSL_CERT, config->tls_cert) |
                  mysql_options(mysql, MYSQL_OPT_SSL_KEY, config->tls_key);
    return failed;
}

/* Run a statement without a result. */
static bool run(struct shed_mysql_connection *c, const char *sql,
                struct shed_mysql_failure *failure)
{
    uint64_t began_ms = shed_now_ms();

    if (mysql_query(c->mysql, sql) == 0)
        return true;
    note_failure(c, began_ms, failure);
    return false;
}

/* Run a query, and copy a column of its first row to out, cut to fit. */
static bool ask(struct shed_mysql_connection *c, const char *sql,
                unsigned column, char *out, size_t size,
                struct shed_mysql_failure *failure)
{
    uint64_t began_ms = shed_now_ms();
    MYSQL_RES *result = NULL;
    MYSQL_ROW row = NULL;

    out[0] = '\0';
    if (mysql_query(c->mysql, sql) == 0)
        result = mysql_store_result(c->mysql);
    if (result == NULL) {
        note_failure(c, began_ms, failure);
        return false;
    }
    if (column < mysql_num_fields(result))
        row = mysql_fetch_row(result);
    if (row != NULL && row[column] != NULL)
        (void)snprintf(out, size, "%s", row[column]);
    mysql_free_result(result);
    return true;
}

/* Ask when the server was started, and what time it is there: UUID_SHORT has
 * the second of the start in its bits 24 to 55 (MySQL manual, "Miscellaneous
 * Functions"). A server without that function is judged by its uptime alone. */
static bool ask_start(struct shed_mysql_connection *c,
                      struct shed_mysql_failure *failure)
{
    char text[SQL_BYTES], *end = text;
    bool is_known = ask(c,
                        "SELECT CONCAT(UUID_SHORT() >> 24 & 0xffffffff, ' ', "
                        "UNIX_TIMESTAMP())",
                        0, text, sizeof(text), failure);

    c->place.started_s = strtoull(text, &end, 10);
    c->place.opened_s = strtoull(end, NULL, 10);
    return is_known || !is_client_error(failure->number);
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
    char sql[SQL_BYTES];

    if (version != NULL && strstr(version, "MariaDB") != NULL)
        (void)snprintf(sql, sizeof(sql),
                       "SET SESSION autocommit = 1, SESSION lock_wait_timeout "
                       "= %" PRIu64 ", SESSION max_statement_time = %" PRIu64
                       ".%03" PRIu64,
                       limit_s, limit_ms / MS_PER_S, limit_ms % MS_PER_S);
    else
        (void)snprintf(sql, sizeof(sql),
                       "SET SESSION autocommit = 1, SESSION lock_wait_timeout "
                       "= %" PRIu64 ", SESSION max_execution_time = %" PRIu64,
                       limit_s, limit_ms);
    return run(c, sql, failure) &&
           ask(c, "SELECT CONCAT_WS(' ', @@hostname, @@port, @@server_id)", 0,
               c->place.server, sizeof(c->place.server), failure) &&
           ask_start(c, failure);
}

/* Programs that this one starts must not inherit the socket. */
static void set_cloexec(int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags >= 0)
        (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

bool shed_mysql_handle_connect(MYSQL *mysql,
                               const struct shed_mysql_config *config,
                               unsigned long flags,
                               struct shed_mysql_failure *failure)
{
    const struct shed_mysql_uri *uri = &config->uri;
    uint64_t began_ms = shed_now_ms();

    if (mysql == NULL || set_options(mysql, config) != 0) {
        *failure = (struct shed_mysql_failure){0};
        (void)shed_fail_nomem(&failure->error, "a MySQL connection");
        return false;
    }
    if (mysql_real_connect(mysql, uri->host, uri->user, uri->password,
                           uri->database, uri->port, uri->socket,
                           flags) == NULL) {
        shed_mysql_failure_take(failure, config, mysql, NULL,
                                shed_now_ms() - began_ms);
        return false;
    }
    set_cloexec((int)mysql->net.fd);
    return true;
}

bool shed_mysql_connection_open(struct shed_mysql_connection *c,
                                struct shed_mysql_failure *failure)
{
    bool is_open;

    assert(c->mysql == NULL && c->config != NULL);
    c->mysql = mysql_init(NULL);
    is_open = shed_mysql_handle_connect(c->mysql, c->config, 0, failure);
    if (is_open) {
        c->place.id = mysql_thread_id(c->mysql);
        c->place.opened_ms = shed_now_ms();
        is_open = set_session(c, failure);
    }
    if (is_open && !shed_mysql_connection_is_fit(c)) {
        *failure = (struct shed_mysql_failure){0};
        (void)shed_fail(&failure->error, SHED_ESOURCE,
                        "MySQL: the server did not switch to autocommit");
        is_open = false;
    }
    if (!is_open)
        shed_mysql_connection_close(c);
    return is_open;
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
                                   const struct shed_mysql_failure *failure,
                                   uint64_t began_ms)
{
    /* An error from the server ends the query. Without one the query may go on,
     * whether the connection broke or we stopped reading. */
    if (failure->number == 0 || is_client_error(failure->number)) {
        c->lost = c->place;
        c->lost_over_ms = shed_deadline_ms(
            began_ms, c->config->statement_limit_ms + LIMIT_SLACK_MS);
        c->is_lost_by_peer = is_lost(failure->number) && !failure->is_timeout;
    }
    shed_mysql_connection_close(c);
}

/* Whether nobody listens at the address. Only the text shows it: the error
 * number is the same for every failure to connect, but both libraries end the
 * text with the errno in parentheses. */
static bool is_refused(const struct shed_mysql_failure *failure)
{
    char refused[SQL_BYTES], missing[SQL_BYTES];

    (void)snprintf(refused, sizeof(refused), "(%d)", ECONNREFUSED);
    (void)snprintf(missing, sizeof(missing), "(%d)", ENOENT);
    return is_unconnected(failure->number) &&
           (strstr(failure->error.reason, refused) != NULL ||
            strstr(failure->error.reason, missing) != NULL);
}

/* Whether the server was started after the lost connection was opened. Then it
 * has started to number connections from the beginning again, and the one that
 * we would kill may belong to somebody else. */
static bool has_restarted(const char *uptime_s, uint64_t age_ms)
{
    uint64_t up_ms = strtoull(uptime_s, NULL, 10) * MS_PER_S;

    return up_ms + UPTIME_SLACK_MS < age_ms;
}

/* The same by the server's clock, which also shows a restart that was sooner
 * than the slack. After 16 million calls of UUID_SHORT the second of the start
 * moves on, but not to that of a connection. */
static bool has_started_since(const struct shed_mysql_connection *c)
{
    return c->lost.started_s != 0 && c->place.started_s != c->lost.started_s &&
           c->place.started_s >= c->lost.opened_s;
}

/* Kill the lost connection over the open one.
 * Returns: true if it is known to be gone. */
static bool kill_lost(struct shed_mysql_connection *c)
{
    struct shed_mysql_failure failure = {0};
    char text[SQL_BYTES];

    if (strcmp(c->place.server, c->lost.server) != 0)
        return false; /* another server, which does not have our query */
    if (c->place.id == c->lost.id || has_started_since(c))
        return true;
    if (!ask(c, "SHOW GLOBAL STATUS LIKE 'Uptime'", 1, text, sizeof(text),
             &failure)) {
        shed_mysql_connection_close(c);
        return false;
    }
    if (has_restarted(text, shed_now_ms() - c->lost.opened_ms))
        return true;
    (void)snprintf(text, sizeof(text), "KILL CONNECTION %lu", c->lost.id);
    if (run(c, text, &failure))
        return false; /* still being killed: look again */
    if (is_client_error(failure.number))
        shed_mysql_connection_close(c);
    return failure.number == NO_SUCH_THREAD || failure.number == NOT_OUR_THREAD;
}

static void pause_ms(uint64_t ms)
{
    struct timespec left = {(time_t)(ms / MS_PER_S),
                            (long)(ms % MS_PER_S) * NS_PER_MS};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
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
        else
            pause_ms(wait_ms < left_ms ? wait_ms : left_ms);
    }
}
