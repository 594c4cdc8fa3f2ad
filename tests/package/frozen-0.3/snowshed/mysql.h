/*
 * The MySQL source, which loads missing entries with a SELECT; connections of
 * the program's own, from the same URI; and the fencing guard, by which a
 * transaction refuses the writes of a holder that has lost its lock.
 *
 * Library snowshed-mysql. It works with Oracle's libmysqlclient and MariaDB
 * Connector/C, against MySQL and MariaDB servers. (From version 9 on, Oracle's
 * library logs in to a MariaDB server only with the plugin
 * mysql_native_password, in Debian's mysql-client-core.)
 *
 * A handle of the client library is a MYSQL *, here void *, because the two
 * libraries name its struct differently. One thread at a time uses a handle. As
 * mysql.h demands, call mysql_library_init before there are other threads
 * (shed_client_open starts one), and mysql_thread_end in each thread before it
 * ends.
 *
 * The first use of the client library in a process, which may be a call of this
 * header, sets SIGPIPE to be ignored, unless the program has a handler. The
 * library does that itself, and the program's own connections rely on it. No
 * function of this header needs it: set it as you like afterwards.
 *
 * Threads, memory, fork, failure: as in snowshed.h.
 */
#ifndef SNOWSHED_MYSQL_H
#define SNOWSHED_MYSQL_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fill it with SHED_MYSQL_OPTIONS_INIT. Texts are copied. */
struct shed_mysql_options {
    size_t size;
    /* How the source loads; NULL for the defaults. The callbacks in it must be
     * NULL. Its load_timeout_ms is the time limit of each query in the server.
     */
    const struct shed_source_options *source;
    uint64_t connect_timeout_ms; /* [1000, 600000], whole seconds */
    uint64_t read_timeout_ms;    /* [1000, 3600000], whole seconds; if the
                                    server is silent this long, or accepts
                                    nothing, the connection is closed, and a
                                    source kills its query */
    const char *tls_ca;   /* file with the authority's certificate; if given,
                             TLS is required and the server is verified */
    const char *tls_cert; /* file with our certificate; needs tls_key */
    const char *tls_key;  /* file with our private key */
};

#define SHED_MYSQL_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_mysql_options), NULL, 2000, 10000, NULL, NULL, NULL \
    }

/*
 * Open a source that runs a query for the keys of a batch.
 *
 * uri is mysql://[user[:password]@]host[:port]/database or
 * mysql://[user[:password]@]/database?socket=/path. Percent-encode special
 * characters; an IPv6 address is in brackets. A host is reached by TCP,
 * localhost too. query selects the key, the value, and perhaps a version and
 * tags, and contains "(?)" once, which is expanded to the keys of a batch:
 *
 *     SELECT id, name FROM item WHERE id IN (?)
 *     SELECT id, name, version FROM item WHERE id IN (?)
 *     SELECT id, name, version, CONCAT('shop-', shop_id, ',kind-', kind)
 *         FROM item WHERE id IN (?)
 *
 * The key is the first column: the one that the query compares with the keys,
 * unchanged. Its type tells which keys can have a row; other keys ("042" for an
 * integer) are absent without a query. Where values are not compared as they
 * are written (FLOAT, DOUBLE, TIMESTAMP, TIME, BIT, JSON), every load fails and
 * says so. A string key is compared byte for
 * byte: where the collation returns another key's row ("ABC" for "abc"), the
 * key fails and says so. So give the column a binary collation (utf8mb4_bin).
 *
 * The value is passed on as the server writes it as text (118, 39.33). For
 * several columns select one expression, such as JSON_OBJECT('name', name,
 * 'stock', stock). When the query changes, give the cache another name, because
 * the entries of the old query remain.
 *
 * The version is an integer that grows with each change of the row (see struct
 * shed_answer). It is for puts with a version, and spares Redis a row that a
 * refresh finds unmodified. NULL, or a negative number, is none.
 *
 * The tags, up to 4096 bytes, are separated by spaces or commas; where rows
 * have no version, select CAST(NULL AS SIGNED) before them. "No such row" has
 * no tags: after an INSERT invalidate the key, too.
 *
 * A key without a row is absent, a key with two rows fails, and a row whose
 * value is NULL is SHED_KIND_NULL. An error of the server fails the keys of the
 * batch. If the error depends on the keys, the batch is asked for again in
 * halves, so that only the bad key fails; at most 6 * log2(batch) such queries
 * are made.
 *
 * Each loader thread has a connection of its own, in autocommit and utf8mb4,
 * opened by its first load. While the server cannot be reached, one thread at a
 * time tries to connect, with pauses that grow from 50 ms to 5 s. Other loads
 * fail at once ("the next try is in 1888 ms"), but a half-open breaker's load
 * does not heed the pause.
 *
 * Returns: SHED_OK and *out, to be closed with shed_source_close. SHED_EINVAL
 * also: uri, query. The reason never quotes the URI.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_source_open(const char *uri, const char *query,
                       const struct shed_mysql_options *options,
                       struct shed_source **out, struct shed_error *err);

/* ------------------------------------------------------------- connecting */

/*
 * Connect a handle of the program's to the server that a URI names: for the
 * program's own writes, and for shed_mysql_fence.
 *
 *     MYSQL *mysql = mysql_init(NULL);
 *
 *     options.read_timeout_ms = 60000; // above innodb_lock_wait_timeout
 *     if (shed_mysql_connect(mysql, uri, &options, 0, &err) != SHED_OK)
 *         fprintf(stderr, "%s\n", err.reason);
 *     ...
 *     mysql_close(mysql);
 *
 * Of the options, the timeouts and the TLS files are used. client_flags are
 * those of mysql_real_connect. The connection's character set is utf8mb4, it
 * does not reconnect by itself, the server cannot ask it for files, and
 * programs that this one starts do not inherit it. Settings that the program
 * made with mysql_options stay in effect.
 *
 * A statement that waits for a row lock longer than read_timeout_ms loses its
 * connection; for a COMMIT it is then unknown whether it took effect. So make
 * read_timeout_ms longer than the server's innodb_lock_wait_timeout (50 s by
 * default).
 *
 * mysql comes from mysql_init, unconnected. It may be NULL: then the call fails
 * with SHED_ENOMEM.
 *
 * Ownership: the caller closes the handle, whether or not this call succeeds.
 * Until then the client library keeps a copy of the password in it.
 * Blocks: for the lookup of the host name, for connect_timeout_ms, and for
 * read_timeout_ms at each step of a slow login.
 *
 * Returns: SHED_OK. SHED_ESOURCE: the server cannot be reached, refuses the
 * user or has no such database, or a TLS file or the server's certificate is
 * wrong: close the handle, and try again later; mysql_errno(mysql) has the
 * number. SHED_EINVAL also: the handle is connected already. The reason never
 * holds the password.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_connect(void *mysql, const char *uri,
                   const struct shed_mysql_options *options,
                   unsigned long client_flags, struct shed_error *err);

/* ---------------------------------------------------------------- fencing */

/*
 * Accept a fencing token for a resource, or refuse it because a newer one has
 * been accepted. Call it in a transaction, before the writes that it protects:
 *
 *     if (shed_lock_fence(lock, &fence, &err) == SHED_OK &&
 *         mysql_query(mysql, "BEGIN") == 0 &&
 *         shed_mysql_fence(mysql, shed_str("stock:7"), &fence, &newest,
 *                          &err) == SHED_OK)
 *         ... UPDATE ..., COMMIT
 *     else
 *         ROLLBACK
 *
 * resource, 1 to 255 bytes, is a name of yours for what is written. All who
 * write it take their tokens from one and the same lock. One lock may guard
 * many resources.
 *
 * A token is accepted if its number is higher than any that was accepted
 * before, or if it is the last accepted token again. Until the transaction
 * ends, later holders wait for it here; a ROLLBACK undoes the acceptance. So
 * none of an older holder's writes is committed after one of a newer holder's:
 * at READ COMMITTED and REPEATABLE READ, whatever has happened to the lock. It
 * needs the table of sql/fence.sql in the connection's database, and takes four
 * round trips.
 *
 * Call it before the transaction reads anything: a snapshot of REPEATABLE READ
 * that was opened before does not have what earlier holders wrote. Take several
 * resources always in the same order, or transactions deadlock.
 *
 * mysql is connected, with an open transaction (or autocommit off), without
 * automatic reconnection, and without an unread result. It stays usable.
 * *newest (newest may be NULL) gets the newest number accepted for the
 * resource, 0 if it could not be read.
 *
 * Blocks: for the server, and for other transactions on the same resource, at
 * most for innodb_lock_wait_timeout.
 * Returns: SHED_OK: write, then COMMIT. Otherwise ROLLBACK. SHED_ELOST: the
 * token is too old: the lock has another holder by now, or Redis has lost its
 * numbers. In both cases release the lock (ignore the result), call
 * shed_lock_advance with *newest, and acquire again. SHED_ETIMEDOUT: a conflict
 * (deadlock, lock wait timeout): repeat the transaction, with the same token
 * while the lock is held. SHED_ESOURCE: the server failed.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_fence(void *mysql, struct shed_bytes resource,
                 const struct shed_fence *fence, uint64_t *newest,
                 struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
