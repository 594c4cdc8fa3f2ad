/* The database of the load test: one connection, one query. */
#include "database.h"

#include <snowshed/mysql.h>

#include <mysql.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for a query: its frame and an id with its comma for each key. */
#define QUERY_BYTES (256 + PAGE_MAX * 22)

#define LANE "avalanche"
#define FILES "sql/schema.sql, sql/items.sql and sql/capacity.sql"

struct database {
    MYSQL *mysql;
    char query[QUERY_BYTES];
};

#define CONNECT_TIMEOUT_MS 5000
#define ANSWER_TIMEOUT_MS 60000 /* above the server's wait for a row's lock */

static const char *server_uri;

static enum shed_code connect_server(MYSQL *mysql, struct shed_error *err)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    options.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    options.read_timeout_ms = ANSWER_TIMEOUT_MS;
    return shed_mysql_connect(mysql, server_uri, &options, 0, err);
}

enum shed_code database_use(const char *uri, struct shed_error *err)
{
    MYSQL *mysql = mysql_init(NULL);
    enum shed_code code;

    server_uri = uri;
    code = connect_server(mysql, err);
    mysql_close(mysql);
    return code;
}

struct database *database_open(char *why, size_t size)
{
    struct database *db = calloc(1, sizeof(*db));
    struct shed_error err;

    if (db == NULL) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    db->mysql = mysql_init(NULL);
    if (connect_server(db->mysql, &err) != SHED_OK) {
        (void)snprintf(why, size, "database: %s", err.reason);
        database_close(db);
        return NULL;
    }
    return db;
}

void database_close(struct database *db)
{
    if (db == NULL)
        return;
    mysql_close(db->mysql);
    free(db);
}

static void explain(struct database *db, char *why, size_t size)
{
    unsigned number = mysql_errno(db->mysql);
    bool is_missing =
        number == ER_NO_SUCH_TABLE || number == ER_SP_DOES_NOT_EXIST;

    (void)snprintf(why, size, "database: %s%s", mysql_error(db->mysql),
                   is_missing ? " (load " FILES ")" : "");
}

bool database_set_capacity(struct database *db, uint64_t slots,
                           uint64_t load_ms, char *why, size_t why_size)
{
    (void)snprintf(db->query, sizeof(db->query),
                   "CALL set_capacity('" LANE "', %llu, %llu)",
                   (unsigned long long)slots,
                   (unsigned long long)load_ms * 1000);
    if (mysql_query(db->mysql, db->query) == 0)
        return true;
    explain(db, why, why_size);
    return false;
}

/* The ids are numbers, so nothing has to be quoted. The derived table costs the
 * work once, whatever the number of rows. */
static void write_query(struct database *db, const uint64_t *ids, size_t count)
{
    char *at = db->query;
    size_t left = sizeof(db->query);
    int n = snprintf(at, left,
                     "SELECT i.id, CONCAT_WS('|', i.name, i.price_cents, "
                     "i.stock, i.description) FROM (SELECT db_work('" LANE
                     "') AS worked) AS cost JOIN item AS i ON i.id IN (");

    for (size_t i = 0; i < count; i++) {
        at += n;
        left -= (size_t)n;
        n = snprintf(at, left, "%llu%s", (unsigned long long)ids[i],
                     i + 1 < count ? "," : ")");
    }
}

static void keep_row(const uint64_t *ids, size_t count, struct row *rows,
                     MYSQL_ROW row, size_t size)
{
    uint64_t id = strtoull(row[0], NULL, 10);

    size = size < ROW_BYTES ? size : ROW_BYTES;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] != id)
            continue;
        rows[i].is_there = true;
        rows[i].size = size;
        memcpy(rows[i].text, row[1], size);
    }
}

static bool run_query(struct database *db, const uint64_t *ids, size_t count,
                      struct row *rows)
{
    MYSQL_RES *result;
    MYSQL_ROW row;

    if (mysql_query(db->mysql, db->query) != 0 ||
        (result = mysql_store_result(db->mysql)) == NULL)
        return false;
    while ((row = mysql_fetch_row(result)) != NULL)
        keep_row(ids, count, rows, row, mysql_fetch_lengths(result)[1]);
    mysql_free_result(result);
    return mysql_errno(db->mysql) == 0;
}

bool database_load(struct database *db, struct record *record,
                   const uint64_t *ids, size_t count, struct row *rows,
                   char *why, size_t why_size)
{
    bool is_good;

    for (size_t i = 0; i < count; i++)
        rows[i].is_there = false;
    write_query(db, ids, count);
    record_query_begin(record, count);
    is_good = run_query(db, ids, count, rows);
    record_query_end(record);
    if (!is_good)
        explain(db, why, why_size);
    return is_good;
}

bool database_set_price(struct database *db, uint64_t id, uint64_t price)
{
    (void)snprintf(db->query, sizeof(db->query),
                   "UPDATE item SET price_cents = %llu WHERE id = %llu",
                   (unsigned long long)price, (unsigned long long)id);
    return mysql_query(db->mysql, db->query) == 0;
}

uint64_t row_price(const char *text, size_t size)
{
    const char *end = text + size, *at = memchr(text, '|', size);
    uint64_t price = 0;

    for (at = at != NULL ? at + 1 : end; at < end && *at >= '0' && *at <= '9';
         at++)
        price = price * 10 + (uint64_t)(*at - '0');
    return price;
}

/* The second column of the first row, as a number; 0 on failure. */
static uint64_t show(struct database *db, const char *what)
{
    MYSQL_RES *result;
    MYSQL_ROW row;
    uint64_t value = 0;

    if (mysql_query(db->mysql, what) != 0 ||
        (result = mysql_store_result(db->mysql)) == NULL)
        return 0;
    if ((row = mysql_fetch_row(result)) != NULL)
        value = strtoull(row[1], NULL, 10);
    mysql_free_result(result);
    return value;
}

/* Halved, because db_work counts as another SELECT. */
uint64_t database_queries(struct database *db)
{
    return show(db, "SHOW GLOBAL STATUS LIKE 'Com_select'") / 2;
}

uint64_t database_connections_max(struct database *db)
{
    return show(db, "SHOW GLOBAL VARIABLES LIKE 'max_connections'");
}

uint64_t database_connections(struct database *db)
{
    return show(db, "SHOW GLOBAL STATUS LIKE 'Threads_connected'");
}
