/*
 * The price service of service.c in C++17, which raises a shop's prices under a
 * lock with its fence. It needs sql/product.sql and sql/fence.sql.
 *
 *     c++ -std=c++17 service.cpp -o service_cpp \
 *         $(pkg-config --cflags --libs snowshed-mysql)
 *     ./service_cpp [REDIS-URI [MYSQL-URI]]
 */
#include <cstdio>
#include <exception>
#include <memory>
#include <mysql.h>
#include <snowshed/mysql.hpp>
#include <string>

#define COLUMNS                                                                \
    "JSON_OBJECT('name', name, 'cents', cents), version,"                      \
    " CONCAT('shop-', shop_id) AS tags FROM product "
#define RAISE "UPDATE product SET cents = cents + 1, version = version + 1 "

static void run(MYSQL *mysql, const char *statement)
{
    if (mysql_query(mysql, statement) != 0)
        throw std::runtime_error(std::string("MySQL: ") + mysql_error(mysql));
}

static shed::cache open_prices(const shed::client &client,
                               const std::string &mysql)
{
    shed_source_options s = SHED_SOURCE_OPTIONS_INIT;
    shed_mysql_options m = SHED_MYSQL_OPTIONS_INIT;
    shed_cache_options o = SHED_CACHE_OPTIONS_SERVE_STALE;
    s.max_loads = 8;          // times the processes: what MySQL can bear
    s.load_timeout_ms = 2000; // MySQL ends a query that takes longer
    m.source = &s;
    auto source = shed::mysql_source::open(
        mysql, "SELECT id, " COLUMNS "WHERE id IN (?)", &m);
    return shed::cache::open(client, "price", source.value(), &o).value();
}

static void print_price(const shed::cache &prices, shed_get_options options)
{
    auto value = prices.get("1", options).value(); // throws if there is none
    std::printf("%s %s, from: %s\n", shed_kind_name(value.kind()),
                std::string(value.view()).c_str(),
                shed_origin_name(value.origin()));
}

static void raise_price(const shed::cache &prices, MYSQL *mysql)
{
    std::unique_ptr<MYSQL_RES, decltype(&mysql_free_result)> rows(
        nullptr, mysql_free_result);
    run(mysql, "BEGIN");
    run(mysql, RAISE "WHERE id = 1");
    run(mysql, "SELECT " COLUMNS "WHERE id = 1");
    rows.reset(mysql_store_result(mysql));
    run(mysql, "COMMIT"); // if this throws, see the invalidation in main
    if (MYSQL_ROW row = rows ? mysql_fetch_row(rows.get()) : nullptr)
        prices.put("1", row[0], {{row[2]}, std::stoull(row[1])}).value();
}

static void raise_shop(const shed::client &client, const shed::cache &prices,
                       MYSQL *mysql)
{
    auto lock = shed::lock::open(client, "shop-1").value();
    auto hold = lock.acquire(2000).value(); // released at the end
    run(mysql, "BEGIN");
    shed::mysql_fence(mysql, "shop-1", lock.fence().value()).value();
    run(mysql, RAISE "WHERE shop_id = 1");
    run(mysql, "COMMIT");
    prices.invalidate_tags({"shop-1"}).value();
}

int main(int argc, char **argv)
try {
    shed_client_options c = SHED_CLIENT_OPTIONS_INIT;
    shed_get_options page = SHED_GET_OPTIONS_INIT, sale = page;
    std::string uri = argc > 2 ? argv[2] : "mysql://shop:secret@localhost/shop";
    std::unique_ptr<MYSQL, decltype(&mysql_close)> mysql(mysql_init(nullptr),
                                                         mysql_close);
    c.on_log = shed_log_stderr;
    sale.allow_stale = SHED_STALE_NEVER; // a page may show an old price
    auto client =
        shed::client::open(argc > 1 ? argv[1] : "redis://localhost", &c)
            .value();
    auto prices = open_prices(client, uri);
    shed::mysql_connect(mysql.get(), uri).value();
    print_price(prices, page);
    try {
        raise_price(prices, mysql.get());
        raise_shop(client, prices, mysql.get());
    } catch (...) { // the row may have changed all the same
        mysql_query(mysql.get(), "ROLLBACK");
        (void)prices.invalidate("1");
        throw;
    }
    print_price(prices, sale);
    std::fputs(shed::stats_prometheus({&prices}).c_str(), stdout);
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
