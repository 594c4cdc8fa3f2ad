/*
 * The MySQL source, which loads missing entries with a SELECT; connections of
 * the program's own, from the same URI; and the fencing guard, by which a
 * transaction refuses the writes of a holder that has lost its lock.
 *
 * Library snowshed-mysql. It works with Oracle's libmysqlclient and MariaDB
 * Connector/C, against MySQL and MariaDB servers. From version 9 on, Oracle's
 * library does not include mysql_native_password, by which users log in to a
 * MariaDB server unless it is configured otherwise: it needs the plugin of that
 * name then (in Debian's mysql-client-core), or logging in fails.
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

/* The kind of keys. It must suit the type of the key column: see
 * shed_mysql_source_open. */
enum shed_mysql_key {
    SHED_MYSQL_KEY_STRING = 0, /* bytes, compared byte for byte: for a column of
                                  text or bytes, DATE or DATETIME */
    SHED_MYSQL_KEY_INTEGER = 1 /* decimal integers of 64 bits, "42": for a
                                  column of an integer type, YEAR or
                                  DECIMAL(n,0) */
};

/* Fill it with SHED_MYSQL_OPTIONS_INIT. Texts are copied. */
struct shed_mysql_options {
    size_t size;
    /* How the source loads; NULL for the defaults. The callbacks in it must be
     * NULL. Its load_timeout_ms is the time limit of each query in the server.
     */
    const struct shed_source_options *source;
    uint64_t key;                /* enum shed_mysql_key */
    uint64_t connect_timeout_ms; /* [1000, 600000], whole seconds */
    uint64_t read_timeout_ms;    /* [1000, 3600000], whole seconds; if the
                                    server is silent this long, the connection
                                    is closed, and a source kills its query */
    uint64_t write_timeout_ms;   /* [1000, 3600000], whole seconds */
    uint64_t value_limit_bytes;  /* [1, 256 MiB]; a longer value fails its key
                                    with SHED_ETOOBIG; set it to the cache's
                                    limit */
    const char *tls_ca;   /* file with the authority's certificate; if given,
                             TLS is required and the server is verified */
    const char *tls_cert; /* file with our certificate; needs tls_key */
    const char *tls_key;  /* file with our private key */
};

#define SHED_MYSQL_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_mysql_options), NULL, SHED_MYSQL_KEY_STRING, 2000,  \
            10000, 10000, 1048576, NULL, NULL, NULL                            \
    }

/*
 * Open a source that runs a query for the keys of a batch.
 *
 * uri is mysql://[user[:password]@]host[:port]/database or
 * mysql://[user[:password]@]/database?socket=/path. Percent-encode special
 * characters; the user and password end at the last '@' before a '?'. An IPv6
 * address is in brackets. A host is reached by TCP, localhost too. query
 * selects the key, the value, and perhaps a version and tags, and contains
 * "(?)" once (with blanks in it or not), which is expanded to the keys of a
 * batch:
 *
 *     SELECT id, name FROM item WHERE id IN (?)
 *
 * A third column, of an integer type, is the version of the row, for
 * a shed_put with a version, and spares Redis a row that a refresh finds
 * unmodified:
 *
 *     SELECT id, name, version FROM item WHERE id IN (?)
 *
 * It must grow with each change of the row (see struct shed_answer). A version
 * that is NULL, or negative, is none.
 *
 * A fourth column, of up to 4096 bytes, has the row's tags, for
 * shed_invalidate_tags, with spaces or commas between them; where rows have no
 * version, the third is CAST(NULL AS SIGNED):
 *
 *     SELECT id, name, version, CONCAT('shop-', shop_id, ',kind-', kind)
 *     FROM item WHERE id IN (?)
 *
 * "No such row" has no tags: after an INSERT invalidate the key, too.
 *
 * The value is passed on as the server writes it as text (118, 39.33,
 * 2024-02-29 01:02:03). For several columns select one expression, such as
 * JSON_OBJECT('name', name, 'stock', stock); when the query changes, give the
 * cache another name, because the entries of the old query remain.
 *
 * A key without a row is absent, a key with two rows fails, and a row whose
 * value is NULL is SHED_KIND_NULL. An error of the server fails the keys of the
 * batch. If the error depends on the keys (a character that is not in the
 * column's character set, say), the batch is asked for again in halves, so that
 * only that key fails. There are at most six such queries for each time that
 * the batch can be halved; beyond that, keys fail together with the odd ones
 * among them. Each loader thread has a connection of its own, in autocommit and
 * utf8mb4. It is opened by the thread's first load, so the server need not be
 * up now, and again after a failure.
 *
 * While the server cannot be reached, or accepts no more connections, one
 * thread at a time tries to connect, with pauses between the attempts: the
 * first is 50 ms, each is twice as long as the one before, up to 5 s, and all
 * are shortened at random by up to a half. Loads that need a connection
 * meanwhile fail at once ("the next try is in 1888 ms"); they count for the
 * source's breaker as failed. A load by which a half-open breaker tests the
 * server does not heed the pause: with a breaker, the server is used again as
 * soon as that lets a load through; without, by the first load after the pause.
 *
 * The first column that the query selects must be the one that it compares with
 * the keys, unchanged: its type tells which keys a row can have. Other keys are
 * absent, and the server is not asked for them, because it would convert them
 * first and could read the whole table to compare them. These are: integers
 * beyond the type's range, or not written as the server writes them ("042",
 * "+42", "42.0", "-0"); and for DATE and DATETIME, what is not written as
 * "2024-02-29" or "2024-02-29 23:59:59" (with as many decimals as the column
 * has). If the options' key does not suit the column, or its values are not
 * compared as they are written (FLOAT, DOUBLE, DECIMAL with a fraction,
 * TIMESTAMP, TIME, BIT, JSON), every load fails and says so.
 *
 * A string key is compared with the column's byte for byte. If the collation
 * lets the server return another key's row ("ABC" for "abc"), the key fails and
 * says so, unless the other key was asked for as well. (Such keys are found by
 * halves, too.) So give the column a binary collation (utf8mb4_bin).
 *
 * The first use of the client library in a process, which may be this call,
 * sets SIGPIPE to be ignored. That is what the library does, and the program's
 * own connections rely on it: with Oracle's library, writing to a connection
 * that the server has closed raises SIGPIPE. So SIGPIPE does not stay at its
 * default; a handler of the program's stays. No function of this header needs
 * it ignored: set it as you like afterwards.
 *
 * Returns: SHED_OK and *out, to be closed with shed_source_close. SHED_EINVAL
 * (uri, query, options) or SHED_ENOMEM, and *out is NULL; the reason never
 * quotes the URI.
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
 * uri is as in shed_mysql_source_open. options may be NULL; the timeouts and
 * the TLS files are used as for a source, and the rest has no effect.
 * client_flags are those of mysql_real_connect: 0, or CLIENT_FOUND_ROWS, say.
 * The connection's character set is utf8mb4, it does not reconnect by itself,
 * the server cannot ask it for files (LOAD DATA LOCAL), and programs that this
 * one starts do not inherit it. The session has the server's defaults. Other
 * settings that the program made with mysql_options before stay in effect.
 *
 * A statement can wait for another transaction's row lock as long as the
 * server's innodb_lock_wait_timeout allows, 50 s by default. If read_timeout_ms
 * is less (its default is 10 s), such a statement ends with the loss of the
 * connection; for a COMMIT it is then unknown whether it took effect. Make
 * read_timeout_ms longer than the server's limit.
 *
 * mysql is a MYSQL * (see shed_mysql_fence) from mysql_init that is not
 * connected. It may be NULL: then the call fails with SHED_ENOMEM, so that the
 * result of mysql_init need not be checked.
 *
 * Ownership: the handle stays the caller's, which closes it with mysql_close
 * whether or not this call succeeds. Until then the client library keeps a copy
 * of the password in it.
 * Blocks: for the lookup of the host name, for connect_timeout_ms, and for
 * read_timeout_ms at each step of a login that the server answers slowly.
 * Threads: any; a handle is used by one thread at a time. As mysql.h demands,
 * call mysql_library_init before there are other threads (shed_client_open
 * starts one), and mysql_thread_end in each thread before it ends. No SIGPIPE
 * is raised.
 *
 * Returns: SHED_OK. SHED_ESOURCE: the server cannot be reached, refuses the
 * user, or has no such database, or a TLS file or the server's certificate is
 * wrong: close the handle, and try again later. SHED_EINVAL: uri or options are
 * wrong, or the handle is connected already. SHED_ENOMEM. The reason never
 * holds the password. mysql_errno(mysql) is the number of the server's or the
 * client library's error.
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
 * resource is a name of yours for what is written. All who write it take their
 * tokens from one and the same lock, because tokens of different locks cannot
 * be compared. One lock may guard many resources.
 *
 * A token is accepted if its number is higher than any that was accepted
 * before, or if it is the last accepted token again: the same number and owner.
 * Until the transaction ends, later holders wait for it here; a ROLLBACK undoes
 * the acceptance. So of the writes that one resource guards, none of an older
 * holder is committed after one of a newer holder: at READ COMMITTED and
 * REPEATABLE READ, whatever has happened to the lock. It needs the table of
 * sql/fence.sql in the connection's database, and takes four round trips: two
 * statements, each prepared and executed.
 *
 * Call it before the transaction reads anything. It may wait for earlier
 * holders, and what is read after it includes what they wrote; a snapshot of
 * REPEATABLE READ that was opened before it does not. Take several resources
 * always in the same order, or transactions deadlock. A ROLLBACK TO a savepoint
 * that was set before it undoes the acceptance too.
 *
 * mysql is a MYSQL * of mysql.h (void *, because the two libraries name its
 * struct differently), as from shed_mysql_connect: a connection with an open
 * transaction (or autocommit off), without automatic reconnection, and without
 * an unread result. It stays usable. resource is 1 to 255 bytes. *newest
 * (newest may be NULL) gets the newest number accepted for the resource, 0 if
 * it could not be read.
 *
 * Blocks: for the server, and for other transactions on the same resource, at
 * most for innodb_lock_wait_timeout.
 * Threads: the connection is used as mysql.h demands, by one thread at a time.
 * No SIGPIPE is raised.
 * Returns: SHED_OK: write, then COMMIT. Otherwise ROLLBACK. SHED_ELOST: the
 * token is too old. Either the lock has another holder by now, or this is its
 * lawful holder and Redis has lost its numbers. Both are handled alike: release
 * the lock (ignore the result), shed_lock_advance to *newest (which never
 * lowers a number; without it, the second case fails until Redis' clock has
 * reached that number), and acquire again. SHED_ETIMEDOUT: a conflict
 * (deadlock, lock wait timeout): repeat the whole transaction, with the same
 * token while the lock is held. SHED_ESOURCE: the server failed. SHED_EINVAL,
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
