/* A connection to MySQL with prepared statements. All results are numbers. */
#ifndef DEMO_STATEMENTS_H
#define DEMO_STATEMENTS_H

#include <mysql.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/mysql.h>

/* The outcome of a statement. */
enum statement_code {
    STATEMENT_OK,
    STATEMENT_NONE,      /* no such row */
    STATEMENT_DUPLICATE, /* a unique key already has it */
    STATEMENT_AGAIN,     /* the transaction lost against another: repeat it */
    STATEMENT_BUSY,      /* no connection became free before the deadline */
    STATEMENT_LATE,      /* the server did not answer before the deadline */
    STATEMENT_FAILED     /* the server failed: see statements_why */
};

/* Parameters or results of one statement. */
#define STATEMENT_NUMBERS_MAX 6

/* Statements of one connection. */
#define STATEMENTS_MAX 16

struct statements;

/* Connect, as shed_mysql_connect does. texts are at most STATEMENTS_MAX, and
 * live as long. files: those to load if a table is missing. Returns NULL on
 * failure, with the reason in why. */
struct statements *statements_open(const char *uri,
                                   const struct shed_mysql_options *options,
                                   const char *const *texts, const char *files,
                                   char *why, size_t size);
void statements_close(struct statements *s);

MYSQL *statements_mysql(struct statements *s);
const char *statements_why(const struct statements *s);

/* What an error of the server or its client library means. Unless it is a
 * conflict, the connection is broken from then on. */
enum statement_code statements_fail(struct statements *s, unsigned number,
                                    const char *text);
bool statements_is_broken(const struct statements *s);

/* Before a connection is kept for later, and after. Returns false if the server
 * has closed it meanwhile. */
void statements_rest(struct statements *s);
bool statements_wake(struct statements *s);

/* Run a text that selects nothing. */
enum statement_code statements_run(struct statements *s, const char *text);

/* Execute number which. Its parameters are numbers and, if text is not NULL, a
 * last one that is text. STATEMENT_NONE: no row matched. */
enum statement_code statements_change(struct statements *s, size_t which,
                                      const uint64_t *numbers,
                                      const char *text);
uint64_t statements_inserted(const struct statements *s, size_t which);

/* The same for one that selects: the first rows, most of them at most, of this
 * many columns each. */
enum statement_code statements_select(struct statements *s, size_t which,
                                      const uint64_t *numbers, const char *text,
                                      uint64_t *rows, size_t columns,
                                      size_t most);

/* Pass the fencing guard, first in a transaction. Returns: STATEMENT_OK,
 * STATEMENT_AGAIN, or STATEMENT_FAILED with err. That is SHED_ELOST if the
 * guard has refused; *newest is the number because of which it has, else 0. */
enum statement_code statements_pass_guard(struct statements *s,
                                          const char *resource,
                                          const struct shed_fence *fence,
                                          uint64_t *newest,
                                          struct shed_error *err);

/* End a transaction: COMMIT if code is STATEMENT_OK, else, or if that fails,
 * ROLLBACK. Returns code, or the outcome of the COMMIT. */
enum statement_code statements_settle(struct statements *s,
                                      enum statement_code code);

#endif
