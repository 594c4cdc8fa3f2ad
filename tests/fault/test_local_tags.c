/* SHED_REDIS_DOWN_STALE with tags: what a process has invalidated by a tag,
 * or as a whole, it does not give out of what it has kept, whether Redis was
 * told, could not be told, or is told later. */
#include <stdio.h>
#include <string.h>

#include "base/value.h"
#include "cache/cache.h"
#include "known/tag_log.h"
#include "support/ageing.h"
#include "support/fixture.h"

static struct proxy proxy;

static void init(void)
{
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_STALE;
    fixture.cache_options.tags_limit = 100;
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.table.has_tags = true;
}

/* For a Redis that is silent, but keeps its data. */
static void init_proxy(void)
{
    init();
    fixture_hurry(&fixture, 100);
    fixture_add_proxy(&fixture, &proxy);
}

static enum shed_code invalidate_all(void)
{
    return shed_invalidate_all(fixture.cache, 0, NULL);
}

static enum shed_code invalidate_tag(void)
{
    const struct shed_bytes tag = shed_str("k");

    return shed_invalidate_tags(fixture.cache, &tag, 1, 0, NULL);
}

static enum shed_code invalidate_tags(void)
{
    const struct shed_bytes tags[] = {shed_str("other"), shed_str("all")};

    return shed_invalidate_tags(fixture.cache, tags, 2, 0, NULL);
}

static enum shed_code (*const writes[])(void) = {invalidate_all, invalidate_tag,
                                                 invalidate_tags};

/* Open, with a log of tags that has a position. */
static void up(void)
{
    const struct shed_bytes tag = shed_str("earlier");

    fixture_open(&fixture);
    WAIT_FOR(shed_invalidate_tags(fixture.cache, &tag, 1, 0, NULL) == SHED_OK);
}

static bool is_kept(const char *key, bool is_entry)
{
    struct shed_local_row row;
    char name[32];
    bool is_it;

    snprintf(name, sizeof(name), "t:{%s}", key);
    if (!shed_local_find(fixture.cache->local,
                         (struct shed_bytes){name, strlen(name)}, shed_now_ms(),
                         &row))
        return false;
    is_it = (shed_value_header(row.value) != NULL) == is_entry;
    shed_value_unref(row.value);
    return is_it;
}

/* Get a row until it is kept as Redis has it: at first the clock of the server
 * is not known. */
static void have_entry(const char *key, const char *text)
{
    WAIT_FOR((expect_text(fixture.cache, key, text), is_kept(key, true)));
}

static void expect_from(const char *key, const char *text,
                        enum shed_origin origin, unsigned loads)
{
    unsigned loads_before = table_loads(&fixture.table);

    expect_origin(fixture.cache, key, text, origin);
    ck_assert_uint_eq(table_loads(&fixture.table) - loads_before, loads);
}

static void expect_kept(const char *key, const char *text)
{
    expect_from(key, text, SHED_ORIGIN_STALE, 0);
}

static void expect_loaded(const char *key, const char *text)
{
    expect_from(key, text, SHED_ORIGIN_UNPUBLISHED, 1);
}

/* ------------------------------------------------------ while Redis is there
 */

/* What was loaded, and not read from Redis since, as "kk", has no entry to be
 * judged by. */
TEST_EACH(what_redis_was_told_of_is_not_given_out, 0, COUNT_OF(writes))
{
    init();
    up();
    have_entry("k", "k@1");
    have_entry("l", "l@1");
    expect_text(fixture.cache, "kk", "kk@1");
    ck_assert(is_kept("kk", false));
    table_update(&fixture.table);
    WAIT_FOR(writes[_i]() == SHED_OK);
    server_kill(&fixture.server);
    expect_loaded("k", "k@2");
    expect_kept("k", "k@2");
    expect_loaded("kk", "kk@2");
    expect_kept("kk", "kk@2");
    if (writes[_i] == invalidate_tag)
        expect_kept("l", "l@1");
    else
        expect_loaded("l", "l@2");
}

/* The database was restored: its versions begin again. */
TEST_EACH(it_makes_room_for_rows_of_lower_versions, 0, COUNT_OF(writes))
{
    init();
    fixture.table.has_versions = true;
    fixture.table.version = 7;
    up();
    have_entry("k", "k@7");
    table_set_version(&fixture.table, 1);
    WAIT_FOR(writes[_i]() == SHED_OK);
    server_kill(&fixture.server);
    expect_loaded("k", "k@1");
    expect_kept("k", "k@1");
}

/* ------------------------------------------------------- while Redis is away
 */

TEST_EACH(without_redis_it_drops_what_is_kept, 0, COUNT_OF(writes))
{
    init();
    up();
    have_entry("k", "k@1");
    server_kill(&fixture.server);
    expect_loaded("kk", "kk@1");
    table_update(&fixture.table);
    expect_kept("k", "k@1");
    expect_kept("kk", "kk@1");
    EXPECT_CODE(writes[_i](), SHED_EREDIS);
    ck_assert_uint_eq(shed_local_size(fixture.cache->local).rows, 0);
    expect_loaded("k", "k@2");
    expect_loaded("kk", "kk@2");
    table_update(&fixture.table);
    for (int i = 0; i < 10; i++) {
        expect_kept("k", "k@2");
        expect_kept("kk", "kk@2");
    }
}

/* A load of the row from before it is under way when it fails. */
static void hold_load_and_write(struct getter *before,
                                enum shed_code (*fn)(void))
{
    server_kill(&fixture.server);
    getter_hold(before, &fixture, "k");
    table_update(&fixture.table);
    EXPECT_CODE(fn(), SHED_EREDIS);
}

TEST_EACH(a_load_from_before_it_is_not_kept, 0, COUNT_OF(writes))
{
    struct getter before = {0};

    init();
    up();
    hold_load_and_write(&before, writes[_i]);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(shed_local_size(fixture.cache->local).rows, 0);
    expect_loaded("k", "k@2");
    expect_kept("k", "k@2");
}

TEST_EACH(callers_who_come_after_it_get_no_load_from_before, 0,
          COUNT_OF(writes))
{
    struct getter before = {0}, after = {0};

    init();
    up();
    hold_load_and_write(&before, writes[_i]);
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    getter_expect(&after, "k@2", SHED_ORIGIN_UNPUBLISHED);
}

/* -------------------------------------------------------------- its return */

/* Redis still has the rows, and hears of the invalidation at last. */
TEST_EACH(when_redis_is_back_nothing_from_before_is_given_out, 0,
          COUNT_OF(writes))
{
    init_proxy();
    up();
    have_entry("k", "k@1");
    expect_text(fixture.cache, "kk", "kk@1");
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    expect_kept("k", "k@1");
    table_update(&fixture.table);
    ck_assert_int_ne(writes[_i](), SHED_OK);
    expect_text(fixture.cache, "k", "k@2");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@2"),
              expect_text(fixture.cache, "kk", "kk@2"), undelivered() == 0));
    have_entry("k", "k@2");
    have_entry("kk", "kk@2");
    table_update(&fixture.table);
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    expect_kept("k", "k@2");
    expect_kept("kk", "kk@2");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

/* A row that was loaded before its delivery is older than its position. */
TEST_EACH(what_was_kept_before_the_delivery_is_not_trusted_after_it, 0,
          COUNT_OF(writes))
{
    init_proxy();
    up();
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    ck_assert_int_ne(writes[_i](), SHED_OK);
    expect_loaded("k", "k@1");
    expect_kept("k", "k@1");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(undelivered() == 0);
    table_update(&fixture.table);
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    expect_loaded("k", "k@2");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

int main(void)
{
    return run_fixture_tests("local_tags");
}
