/* Shared by the tests of MySQL: an administrator's connection, sources on a
 * private database, and keys to load. */
#ifndef MYSQL_TESTING_H
#define MYSQL_TESTING_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/mysql.h>

#include "base/latch.h"
#include "base/value.h"
#include "source/load.h"
#include "mysql/compat.h"
#include "mysql/connection.h"
#include "support/testing.h"

enum { TEXT_BYTES = 512 };

/* A server, and a database of the test's own on it. */
struct site {
    MYSQL *admin;
    char uri[TEXT_BYTES]; /* of the database */
    char database[64];
};

/* Use the server of this URI, and create the database. Without a server the
 * test fails. */
void open_site(struct site *site, const char *uri);

/* Create the table word, with the values 'A' and 'B' for the keys 'a' and 'b'.
 */
void make_words(struct site *site);

/* Connect a copy of the site once more; to be closed by mysql_close(admin). */
void join_site(struct site *site);

/* Connect again, after the server was restarted. */
void reopen_site(struct site *site);

/* Drop the database and disconnect. */
void close_site(struct site *site);

/* A connection such as any program has, which may send several statements at
 * once; to be closed by mysql_close. */
MYSQL *join_program(const struct site *site);

/* Run a statement on it; and return the first column of the first row, as a
 * number. */
void say(MYSQL *mysql, const char *sql);
unsigned long ask(MYSQL *mysql, const char *sql);

/* Run a file as the command-line client does: a statement ends at a line that
 * ends with the delimiter. */
void load_sql(struct site *site, const char *path);

/* Run a statement as the administrator. */
void run_sql(struct site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the first column of the first row, as a number. */
unsigned long ask_sql(struct site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns a counter of the server, such as Com_stmt_execute. */
unsigned long ask_status(struct site *site, const char *name);

/* Make a user that has no privileges, or take them from him. */
void make_user(struct site *site, const char *user);

/* Wait until a query returns the wanted number. */
void wait_sql(struct site *site, unsigned long wanted, const char *sql);

/* Create the table num, with the numbers from 0 to count - 1 in n. */
void make_numbers(struct site *site, unsigned count);

bool is_mariadb(const struct site *site);

/* SQL, in parentheses, for the sum of the session's status variables with a
 * name like this; servers differ. Valid until the next call of this or the next
 * function. */
const char *session_sum(const struct site *site, const char *name);

/* The same for the number of times that the session has done this with a
 * prepared statement: "Prepare", "Execute", "Close". */
const char *session_count(const struct site *site, const char *command);

/* Returns the number of connections to the database, besides the
 * administrator's. */
unsigned long count_connections(struct site *site);

/* Returns the number of connections that run a query with SLEEP in it. */
unsigned long count_sleepers(struct site *site);

/* Wait until that number is as wanted. */
void wait_sleepers(struct site *site, unsigned long wanted);

/* Returns the id of the only connection. */
unsigned long only_connection(struct site *site);

struct shed_source *open_source(struct site *site, const char *query,
                                const struct shed_mysql_options *options);

/* What differs from a bare source with the default options; 0: nothing. */
struct terms {
    uint64_t max_loads; /* with 1 there is one connection: otherwise a second
                           one may take the next load before the first has come
                           to rest */
    uint64_t max_batch, load_timeout_ms;
    uint64_t timeout_ms; /* to connect and to read */
    struct shed_breaker_options breaker;
    const char *user; /* not the administrator */
};

struct shed_source *open_with(struct site *site, const char *query,
                              const struct terms *terms);
#define OPEN_WITH(site, query, ...)                                            \
    open_with(site, query, &(const struct terms){__VA_ARGS__})

/* The URI of the site's database for another user, without a password. */
const char *uri_for(const struct site *site, const char *user);

/* Open a connection such as a source's thread has. */
void open_connection(struct site *site, struct shed_mysql_connection *c,
                     struct shed_mysql_config *config);

/* Close it. */
void close_connection(struct shed_mysql_connection *c,
                      struct shed_mysql_config *config);

/* A key to be loaded. */
struct ask {
    struct shed_job job;
    struct shed_latch gate;
    struct shed_loaded loaded;
};

/* Begin to load a key. */
void begin_ask(struct shed_source *source, struct ask *ask, const void *key,
               size_t size);

/* The same where Redis has a row of this version. */
void begin_ask_again(struct shed_source *source, struct ask *ask,
                     const void *key, size_t size, uint64_t old_version);

/* Wait until the load is done. */
void end_ask(struct ask *ask);

/* Load a key. */
void load_key(struct shed_source *source, struct ask *ask, const char *key);

/* Load keys as one batch. */
void load_keys(struct shed_source *source, struct ask *asks,
               const char *const *keys, size_t count);

/* Check what was loaded, and release the value. */
void assert_row(struct ask *ask, const void *data, size_t size);
void assert_text(struct ask *ask, const char *text);
void assert_kind(struct ask *ask, enum shed_kind kind);
void assert_failure(struct ask *ask, const char *why);

/* Loads fail, with MySQL's reasons, while the server is away and for a pause
 * after it; wait until one does not. */
void wait_loaded(struct shed_source *source, const char *key, const char *text);

/* Create the table of the fencing guard. */
void make_fence(struct site *site);

/* Load a key, and expect this text; or that the load fails, as above. */
void expect_loaded(struct shed_source *source, const char *key,
                   const char *text);
void expect_unloaded(struct shed_source *source, const char *key,
                     const char *why);

#endif
