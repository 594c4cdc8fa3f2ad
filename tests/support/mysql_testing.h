/* What the tests of the MySQL source share: an administrator's connection,
 * sources in a database of their own, and keys that are loaded. */
#ifndef MYSQL_TESTING_H
#define MYSQL_TESTING_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/mysql.h>

#include "base/latch.h"
#include "base/value.h"
#include "cache/load.h"
#include "mysql/compat.h"
#include "mysql/connection.h"
#include "support/testing.h"

enum { TEXT_BYTES = 512 };

/* A server, and a database on it that nobody else uses. */
struct site {
    MYSQL *admin;
    char uri[TEXT_BYTES]; /* of the database */
    char database[64];
};

/* Use the server of this URI; what is missing fails the test. */
void open_site(struct site *site, const char *uri);

/* The table word, of which the rows 'a' and 'b' have 'A' and 'B'. */
void make_words(struct site *site);

/* Drop the database and leave. */
void close_site(struct site *site);

/* Run a statement as the administrator. */
void run_sql(struct site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The first column of the first row, as a number. */
unsigned long ask_sql(struct site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Wait until a number that the server tells is as wanted. */
void wait_sql(struct site *site, unsigned long wanted, const char *sql);

/* Make a table num of the numbers from 0 up to count, in n. */
void make_numbers(struct site *site, unsigned count);

/* Servers differ. In SQL, in parentheses, of the session that it is run in: the
 * sum of the variables of its status with a name like this; and how often it
 * has done this with statements: "Prepare", "Execute", "Close". Both are to be
 * used before the next call. */
bool is_mariadb(const struct site *site);
const char *session_sum(const struct site *site, const char *name);
const char *session_count(const struct site *site, const char *command);

/* How many connections of the site's sources there are; sleepers: those that
 * run a query with SLEEP in it. */
unsigned long count_connections(struct site *site);
unsigned long count_sleepers(struct site *site);
void wait_sleepers(struct site *site, unsigned long wanted);

/* The id of the one connection that there is. */
unsigned long only_connection(struct site *site);

struct shed_source *open_source(struct site *site, const char *query,
                                const struct shed_mysql_options *options);

/* A connection such as a source's thread has. */
void open_connection(struct site *site, struct shed_mysql_connection *c,
                     struct shed_mysql_config *config);
void close_connection(struct shed_mysql_connection *c,
                      struct shed_mysql_config *config);

/* A key that is loaded. */
struct ask {
    struct shed_job job;
    struct shed_latch gate;
    struct shed_loaded loaded;
};

/* Begin to load a key; a batch is queued key by key, then woken. */
void begin_ask(struct shed_source *source, struct ask *ask, const void *key,
               size_t size);
void end_ask(struct ask *ask);

/* Load one key, or several as one batch; every one of them settles. */
void load_key(struct shed_source *source, struct ask *ask, const char *key);
void load_keys(struct shed_source *source, struct ask *asks,
               const char *const *keys, size_t count);

/* What was loaded; each gives the value back. */
void assert_row(struct ask *ask, const void *data, size_t size);
void assert_text(struct ask *ask, const char *text);
void assert_kind(struct ask *ask, enum shed_kind kind);
void assert_failure(struct ask *ask, const char *why);

#endif
