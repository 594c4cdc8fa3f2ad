/* The query for items, as text: the ids are numbers, and there is nothing to be
 * quoted. */
#include "database.h"

#include <errno.h>
#include <inttypes.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

#define QUERY_BYTES (512 + DB_ITEMS_MAX * 21)
/* After this the server is taken to be silent, and the connection is closed. */
#define SERVER_LATE_MS 100
#define MARIADB_STATEMENT_TIMEOUT 1969 /* not in every client's header */
#define MYSQL_STATEMENT_TIMEOUT 3024

/* The server's limit for the statement is set as MariaDB and as MySQL know it;
 * each takes the other's for a comment. The derived table is computed once,
 * whatever the number of rows. */
static size_t write_query(char *query, const char *lane, const uint64_t *ids,
                          size_t count, uint64_t limit_ms)
{
    int used = snprintf(
        query, QUERY_BYTES,
        "/*M!100100 SET STATEMENT max_statement_time = %" PRIu64 ".%03" PRIu64
        " FOR */ SELECT /*+ MAX_EXECUTION_TIME(%" PRIu64 ") */ id, "
        "JSON_OBJECT('name', name, 'price_cents', price_cents, 'stock', stock) "
        "FROM %s%s%sitem WHERE id IN (",
        limit_ms / 1000, limit_ms % 1000, limit_ms,
        lane != NULL ? "(SELECT db_work('" : "", lane != NULL ? lane : "",
        lane != NULL ? "') AS done) AS work JOIN " : "");

    for (size_t i = 0; i < count; i++)
        used += snprintf(query + used, QUERY_BYTES - (size_t)used,
                         "%" PRIu64 "%c", ids[i], i + 1 < count ? ',' : ')');
    return (size_t)used;
}

static enum statement_code fail(struct statements *s)
{
    MYSQL *mysql = statements_mysql(s);
    unsigned number = mysql_errno(mysql);

    if (number == MARIADB_STATEMENT_TIMEOUT ||
        number == MYSQL_STATEMENT_TIMEOUT || number == ER_LOCK_WAIT_TIMEOUT)
        return STATEMENT_LATE;
    return statements_fail(s, number, mysql_error(mysql));
}

static bool is_answered(MYSQL *mysql, uint64_t wait_ms)
{
    struct pollfd ready = {.fd = (int)mysql->net.fd, .events = POLLIN};
    int status;

    do
        status = poll(&ready, 1, (int)wait_ms);
    while (status == -1 && errno == EINTR);
    return status == 1;
}

static enum statement_code take_rows(struct statements *s, db_take_item *take,
                                     void *user)
{
    MYSQL *mysql = statements_mysql(s);
    MYSQL_RES *result = mysql_store_result(mysql);
    MYSQL_ROW row;

    if (result == NULL)
        return fail(s);
    while ((row = mysql_fetch_row(result)) != NULL)
        take(user, strtoull(row[0], NULL, 10), row[1],
             mysql_fetch_lengths(result)[1]);
    mysql_free_result(result);
    return STATEMENT_OK;
}

enum statement_code db_read_items(struct statements *s, const char *lane,
                                  const uint64_t *ids, size_t count,
                                  uint64_t deadline_ms, db_take_item *take,
                                  void *user)
{
    MYSQL *mysql = statements_mysql(s);
    uint64_t limit_ms = wait_left_ms(deadline_ms);
    char query[QUERY_BYTES];
    size_t size = write_query(query, lane, ids, count, limit_ms);

    if (mysql_send_query(mysql, query, size) != 0)
        return fail(s);
    if (!is_answered(mysql, limit_ms + SERVER_LATE_MS)) {
        (void)statements_fail(s, 0, "no answer before the deadline");
        return STATEMENT_LATE;
    }
    if (mysql_read_query_result(mysql) != 0)
        return fail(s);
    return take_rows(s, take, user);
}
