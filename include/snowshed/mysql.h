/*
 * The MySQL source, which loads missing rows with a SELECT; connections for the
 * program's own writes; and the fencing guard, which refuses the writes of a
 * holder that has lost its lock.
 *
 * Library snowshed-mysql, for Oracle's libmysqlclient and MariaDB Connector/C.
 *
 * A MYSQL * is void * here, because the libraries name its struct differently.
 * One thread at a time uses it. These libraries demand
 * mysql_library_init before there are other threads (shed_client_open starts
 * one), and mysql_thread_end before a thread ends. Their first use, perhaps by
 * a call of this header, sets SIGPIPE to be ignored, unless the program has a
 * handler; set it as you like afterwards.
 */
#ifndef SNOWSHED_MYSQL_H
#define SNOWSHED_MYSQL_H

#include <snowshed/lock.h>
#include <snowshed/source.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shed_mysql_options {
    size_t size;
    /* How the source loads; NULL for the defaults. The callbacks in it must be
     * NULL. load_timeout_ms is the time limit of each query in the server. */
    const struct shed_source_options *source;
    uint64_t connect_timeout_ms; /* 1000..600000 (2000), whole seconds */
    uint64_t read_timeout_ms;    /* 1000..3600000 (10000), whole seconds; if the
                                    server is silent this long, the connection
                                    is closed, and a source kills its query */
    const char *tls_ca;   /* file with the authority's certificate; if given,
                             TLS is required and the server is verified */
    const char *tls_cert; /* file with our certificate; needs tls_key */
    const char *tls_key;  /* its private key */
};

#define SHED_MYSQL_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_mysql_options), NULL, 2000, 10000, NULL, NULL, NULL \
    }

/*
 * Open a source that runs a query for the keys of a batch.
 *
 * uri is mysql://[user[:password]@]host[:port]/database (by TCP, localhost too;
 * an IPv6 address in brackets) or
 * mysql://[user[:password]@]/database?socket=/path; percent-encode special
 * characters. query contains "(?)" once, for the keys, and selects the key,
 * the value, and then perhaps columns that are called version and tags:
 *
 *     SELECT id, name FROM item WHERE id IN (?)
 *     SELECT id, name, revision AS version, CONCAT('shop-', shop_id) AS tags
 *         FROM item WHERE id IN (?)
 *
 * - The key is the column that is compared with the keys, unchanged: integers,
 *   DECIMAL(n,0), text, bytes, DATE or DATETIME; with another type every load
 *   fails. Keys not in the type's form ("042" for an integer) are absent
 *   without a query. Give texts a binary collation (utf8mb4_bin): where the
 *   collation returns another key's row ("ABC" for "abc"), the key fails.
 * - The value is passed on as the server writes it as text (118, 39.33). For
 *   several columns select one expression, such as JSON_OBJECT('name', name).
 *   When the query changes, change the cache's name: its entries remain.
 * - The version is as in struct shed_answer; NULL or below 0: none.
 * - The tags, up to 4096 bytes, are separated by spaces or commas: "garden
 *   tools" is two tags here, and one to shed_invalidate_tags. "No such row" has
 *   no tags: after an INSERT invalidate the key, too.
 *
 * A key without a row is absent, a key with two rows fails, and a value NULL is
 * SHED_KIND_NULL. An error of the server fails the batch; if it depends on the
 * keys, halves are asked for again, so that only the bad key fails.
 *
 * Each loader thread has a connection of its own, in autocommit and utf8mb4.
 * While the server cannot be reached, one thread at a time tries to connect,
 * with pauses of 50 ms to 5 s; other loads fail at once.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_source_open(const char *uri, const char *query,
                       const struct shed_mysql_options *options,
                       struct shed_source **out, struct shed_error *err);

/*
 * Connect a handle of mysql_init to the server that uri names, for the
 * program's own writes and for shed_mysql_fence. Close it with mysql_close,
 * also if this fails.
 *
 * Of the options, source is not used; client_flags are those of
 * mysql_real_connect, and what mysql_options has set stays in effect. The
 * connection is in utf8mb4, does not reconnect by itself, gives the server no
 * files, and is not inherited by other programs.
 *
 * Let read_timeout_ms exceed innodb_lock_wait_timeout (50 s by default): a
 * statement that waits longer for a row lock loses its connection, and of a
 * COMMIT nobody knows whether it took effect.
 *
 * Blocks: for the lookup of the host name, for connect_timeout_ms, and for
 * read_timeout_ms at each step of a slow login.
 * Returns: also SHED_ESOURCE: the server cannot be reached or refuses us, or
 * TLS fails; mysql_errno(mysql) has the number. SHED_EINVAL: it is connected
 * already. SHED_ENOMEM: mysql is NULL, too.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_connect(void *mysql, const char *uri,
                   const struct shed_mysql_options *options,
                   unsigned long client_flags, struct shed_error *err);

/*
 * Accept a fencing token for a resource, or refuse it because a newer one has
 * been accepted. Call it in a transaction before anything else (an older
 * snapshot of REPEATABLE READ lacks what earlier holders wrote):
 *
 *     if (shed_lock_fence(lock, &fence, &err) == SHED_OK &&
 *         mysql_query(mysql, "BEGIN") == 0 &&
 *         shed_mysql_fence(mysql, shed_str("stock:7"), &fence, &newest,
 *                          &err) == SHED_OK)
 *         ... UPDATE ..., COMMIT
 *     else
 *         ROLLBACK
 *
 * resource is a name of yours for what is written, 1 to 255 bytes; it need not
 * be the lock's. All who write it take their tokens from the same lock, which
 * may guard many resources. Accept several in the same order everywhere, or
 * transactions deadlock.
 *
 * A token is accepted if its number is higher than any accepted before, or if
 * it is the last accepted token again. Later holders wait for the end of the
 * transaction; a ROLLBACK undoes the acceptance. So no write of an older holder
 * is committed after one of a newer holder, whatever happens to the lock (at
 * READ COMMITTED and REPEATABLE READ).
 *
 * mysql needs the table of sql/fence.sql (installed as
 * share/snowshed/fence.sql), an open transaction (or autocommit off), no
 * automatic reconnection and no unread result. *newest (may be NULL) gets the
 * newest number accepted for the resource, 0 if it could not be read.
 *
 * Blocks: for four round trips, and for other transactions on the resource, at
 * most for innodb_lock_wait_timeout.
 * Returns: SHED_OK: write, then COMMIT. Otherwise ROLLBACK. SHED_ELOST: the
 * token is too old: another holds the lock, or Redis has lost its numbers: call
 * shed_lock_advance with *newest, as described there. SHED_ETIMEDOUT: a
 * conflict (deadlock, lock wait timeout): repeat the transaction, with the same
 * token while the lock is held. SHED_ESOURCE: the server failed.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_mysql_fence(void *mysql, struct shed_bytes resource,
                 const struct shed_fence *fence, uint64_t *newest,
                 struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
