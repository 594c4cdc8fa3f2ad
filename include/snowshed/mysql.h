/*
 * The MySQL source: missing entries come from a SELECT. Library
 * snowshed-mysql; works with Oracle's libmysqlclient and MariaDB Connector/C,
 * against MySQL and MariaDB servers.
 */
#ifndef SNOWSHED_MYSQL_H
#define SNOWSHED_MYSQL_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

enum shed_mysql_key {
    SHED_MYSQL_STRING = 0, /* keys are bytes; compared byte for byte */
    SHED_MYSQL_INTEGER = 1 /* keys are decimal integers of 64 bits: "42" */
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
                                    that says nothing for so long is left, its
                                    query killed */
    uint64_t write_timeout_ms;   /* [1000, 3600000], whole seconds */
    uint64_t value_limit_bytes;  /* [1, 256 MiB]; a longer value fails its key;
                                    set it to the cache's */
    const char *tls_ca;   /* file of the authority's certificate; with it TLS
                             is required and the server is verified */
    const char *tls_cert; /* file of our certificate; with tls_key */
    const char *tls_key;  /* file of our private key */
};

#define SHED_MYSQL_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_mysql_options), NULL, SHED_MYSQL_STRING, 2000,      \
            10000, 10000, 1048576, NULL, NULL, NULL                            \
    }

/*
 * Open a source that runs query for the keys of a batch.
 *
 * uri is mysql://[user[:password]@]host[:port]/database or
 * mysql://[user[:password]@]/database?socket=/path; percent-encode what is
 * special. query selects two columns, the key and the value, and holds one
 * "(?)" which is expanded to the keys of a batch:
 *
 *     SELECT id, name FROM item WHERE id IN (?)
 *
 * A key without a row is absent, a row whose value is NULL is SHED_NULL, any
 * error of the server fails the keys of the batch. Loader threads have a
 * connection each, opened with the first load (so the server need not be up
 * now), in autocommit, utf8mb4, opened anew after a failure. A string key is
 * compared byte for byte with the column's: where the collation lets the
 * server return another one ("ABC" for "abc"), the keys of the batch that have
 * no row fail and say so, unless that other one was asked for as well. So give
 * the column a binary collation (utf8mb4_bin).
 *
 * Returns: SHED_OK and *out, to be closed with shed_source_close; SHED_EINVAL
 * (uri, query, options), SHED_ENOMEM; then *out is NULL.
 */
SHED_API SHED_MUST_CHECK int
shed_mysql_source_open(const char *uri, const char *query,
                       const struct shed_mysql_options *options,
                       struct shed_source **out, struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
