/* Two writers of a row, of which one or both could not tell Redis. When they
 * have, nobody reads an older row, in whichever order they did. */
#include "cache/cache.h"
#include "support/fixture.h"

static struct proxy proxy;

static size_t undelivered_of(const struct shed_cache *cache)
{
    return shed_delivery_count(cache->delivery);
}

/* Commit a version of which Redis is not told yet. */
static void write_and_miss(struct shed_cache *cache)
{
    enum shed_code code;

    table_update(&fixture.table);
    code = invalidate_code(cache, "k");
    ck_assert(code == SHED_EREDIS || code == SHED_ETIMEDOUT);
    ck_assert_uint_eq(undelivered_of(cache), 1);
}

TEST(two_writers_that_redis_missed_leave_no_older_row)
{
    struct peer writer, reader;

    fixture_open(&fixture);
    peer_open(&writer, &fixture);
    peer_open(&reader, &fixture);
    expect_text(reader.cache, "k", "k@1");
    refuse_writes();
    write_and_miss(fixture.cache);
    write_and_miss(writer.cache);
    expect_text(fixture.cache, "k", "k@3");
    expect_text(writer.cache, "k", "k@3");
    expect_origin(reader.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    accept_writes();
    WAIT_FOR(
        (expect_text(fixture.cache, "k", "k@3"),
         expect_text(writer.cache, "k", "k@3"),
         undelivered_of(fixture.cache) + undelivered_of(writer.cache) == 0));
    for (unsigned i = 0; i < 5; i++) {
        expect_text(reader.cache, "k", "k@3");
        expect_text(writer.cache, "k", "k@3");
        expect_text(fixture.cache, "k", "k@3");
    }
    peer_close(&reader);
    peer_close(&writer);
}

/* The other writer's invalidation does not make up for the one that failed: a
 * row was loaded between the two. */
TEST(a_writer_that_was_cut_off_is_heard_after_one_that_was_not)
{
    struct peer writer;

    fixture_hurry(&fixture, 200);
    fixture_add_proxy(&fixture, &proxy);
    fixture_open(&fixture);
    fixture.uri = NULL;
    fixture.client_options.command_timeout_ms = FIXTURE_SILENCE_MS;
    peer_open(&writer, &fixture);
    expect_text(writer.cache, "k", "k@1");
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    invalidate(writer.cache, "k");
    expect_text(writer.cache, "k", "k@1");
    write_and_miss(fixture.cache);
    expect_text(writer.cache, "k", "k@1");
    expect_text(fixture.cache, "k", "k@2");
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@2"),
              undelivered_of(fixture.cache) == 0));
    for (unsigned i = 0; i < 5; i++) {
        expect_text(writer.cache, "k", "k@2");
        expect_text(fixture.cache, "k", "k@2");
    }
    peer_close(&writer);
}

int main(void)
{
    return run_fixture_tests("two_writers");
}
