/*
 * The MySQL source: missing entries come from a SELECT. And the fencing guard,
 * by which a transaction refuses the writes of those who lost their lock.
 * Library snowshed-mysql; works with Oracle's libmysqlclient and MariaDB
 * Connector/C, against MySQL and MariaDB servers. From version 9 on Oracle's
 * library does not have mysql_native_password, by which MariaDB lets users in
 * unless told otherwise: it needs the plugin of that name then (in Debian's
 * mysql-client-core), or logging in fails.
 */
#ifndef SNOWSHED_MYSQL_H
#define SNOWSHED_MYSQL_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What keys are; it must suit the type of the key column, see below. */
enum shed_mysql_key {
    SHED_MYSQL_KEY_STRING = 0, /* bytes, compared byte for byte: for a column of
                              text or bytes, DATE or DATETIME */
    SHED_MYSQL_KEY_INTEGER = 1 /* decimal integers of 64 bits, "42": for a
                              column of an integer type, YEAR or DECIMAL(n,0) */
};

/* Fill it with SHED_MYSQL_OPTIONS_INIT. Texts are copied. */
struct shed_mysql_options {
    size_t size;
    /* How it loads; NULL for the defaults. Its callbacks must be NULL. Its
     * load_timeout_ms is each query's time limit in the server. */
    const struct shed_source_options *source;
    uint64_t key;                /* enum shed_mysql_key */
    uint64_t connect_timeout_ms; /* [1000, 600000], whole seconds */
    uint64_t read_timeout_ms;    /* [1000, 3600000], whole seconds; a server
                                    that is silent this long is left, its
                                    query killed */
    uint64_t write_timeout_ms;   /* [1000, 3600000], whole seconds */
    uint64_t value_limit_bytes;  /* [1, 256 MiB]; a longer value is
                                    SHED_ETOOBIG for its key; set it to the
                                    cache's */
    const char *tls_ca;   /* file of the authority's certificate; with it TLS
                             is required and the server is verified */
    const char *tls_cert; /* file of our certificate; with tls_key */
    const char *tls_key;  /* file of our private key */
};

#define SHED_MYSQL_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_mysql_options), NULL, SHED_MYSQL_KEY_STRING, 2000,  \
            10000, 10000, 1048576, NULL, NULL, NULL                            \
    }

/*
 * Open a source that runs query for the keys of a batch.
 *
 * uri is mysql://[user[:password]@]host[:port]/database or
 * mysql://[user[:password]@]/database?socket=/path; percent-encode what is
 * special. A host is reached by TCP, localhost too. query selects two columns,
 * the key and the value, and holds one
 * "(?)" which is expanded to the keys of a batch:
 *
 *     SELECT id, name FROM item WHERE id IN (?)
 *
 * A key without a row is absent, one with two rows fails, a row whose value is
 * NULL is SHED_KIND_NULL. An error of the server fails the keys of the batch;
 * if it is one that depends on the keys (a character that the column's
 * character set has not, say), the batch is asked for again in halves, so that
 * only that key fails. Queries for halves are bounded, to six for each time
 * that a batch can be halved; beyond it, keys fail together with the odd ones
 * among them. Loader threads have a connection each, opened with the first load
 * (so the server need not be up now), in autocommit, utf8mb4, opened again
 * after a failure.
 *
 * The first column that query selects has to be the one that it compares with
 * the keys, as it is in the table: its type tells which keys a row can have.
 * The others are absent and not asked for, since a server converts them first,
 * and can read the whole table for that: integers beyond the type's range or
 * not written as the server writes them ("042", "+42", "42.0", "-0"), and, in a
 * column of DATE or DATETIME, what is not written as "2024-02-29" or
 * "2024-02-29 23:59:59" (with as many decimals as the column has). Where
 * options' key does not suit the column, and for types that are not compared as
 * they are written (FLOAT, DOUBLE, DECIMAL with a fraction, TIMESTAMP, TIME,
 * BIT, JSON), every load fails and says so.
 *
 * A string key is compared byte for byte with the column's: where the collation
 * lets the server return another one ("ABC" for "abc"), the key fails and says
 * so, unless that other one was asked for as well. (Which key it is, is found
 * by halves, too.) So give the column a binary collation (utf8mb4_bin).
 *
 * The first use of the client library in a process, which may be this call,
 * sets SIGPIPE to be ignored; that is the library's doing, and the program's
 * own connections rely on it (with Oracle's library a connection that the
 * server has closed raises SIGPIPE). So here SIGPIPE does not stay at its
 * default; a handler of yours stays. Neither the source nor the guard needs it
 * ignored: set it as you like afterwards.
 *
 * Returns: SHED_OK and *out, to be closed with shed_source_close; SHED_EINVAL
 * (uri, query, options), SHED_ENOMEM; then *out is NULL.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_source_open(const char *uri, const char *query,
                       const struct shed_mysql_options *options,
                       struct shed_source **out, struct shed_error *err);

/* ---------------------------------------------------------------- fencing */

/*
 * Accept a fencing token for a resource, or refuse it because a newer one has
 * been accepted; in the caller's transaction, before what it protects:
 *
 *     if (shed_lock_fence(lock, &fence, &err) == SHED_OK &&
 *         mysql_query(mysql, "BEGIN") == 0 &&
 *         shed_mysql_fence(mysql, shed_str("stock:7"), &fence, &newest, &err)
 * == SHED_OK)
 *         ... UPDATE ..., COMMIT
 *     else
 *         ROLLBACK
 *
 * A token is accepted if its number is higher than any accepted before, or is
 * the last one's and so is its owner. Until the transaction ends, later holders
 * wait for it here; a ROLLBACK takes the acceptance back. So of the writes that
 * are guarded by one resource, none of an older holder is committed after one
 * of a newer holder: at READ COMMITTED and REPEATABLE READ, whatever became of
 * the lock. It needs the table of sql/fence.sql, on the server and in the
 * database of the connection, and two statements' round trips (prepared, as
 * values are bound: four).
 *
 * Call it before any read of the transaction: it may wait, and what is read
 * after it has in it what earlier holders wrote; a snapshot of REPEATABLE READ
 * that was opened before it has not. Take several resources always in the same
 * order, or transactions deadlock. A ROLLBACK TO a savepoint before it takes
 * the acceptance back too.
 *
 * mysql is the caller's connection, a MYSQL * of mysql.h (void * because the
 * two libraries name its struct differently), with a transaction open (or
 * autocommit off), without automatic reconnection, and with no result unread.
 * It is left usable, and the guard raises no SIGPIPE. resource is 1 to 255
 * bytes. *newest (newest may be NULL) gets the newest number accepted for the
 * resource, 0 if it could not be read.
 *
 * Blocks: for the server, and for other transactions on the same resource, as
 * long as innodb_lock_wait_timeout lets it.
 * Threads: the connection is used as mysql.h demands: by one thread at a time.
 * Returns: SHED_OK: write, then COMMIT. Else ROLLBACK: SHED_ELOST: the token is
 * too old: the lock is another's by now, or this is its lawful holder and Redis
 * has lost its numbers. Nobody has to tell these apart: release the lock,
 * shed_lock_advance to *newest (which never lowers a number; without it the
 * second case fails until Redis' clock has come there), and acquire again.
 * SHED_ETIMEDOUT: a conflict (deadlock, lock wait timeout):
 * repeat the whole transaction. SHED_ESOURCE: the server failed. SHED_EINVAL,
 * SHED_ENOMEM.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_fence(void *mysql, struct shed_bytes resource,
                 const struct shed_fence *fence, uint64_t *newest,
                 struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
