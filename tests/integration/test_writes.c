/* Puts, invalidations and failed loads on a real Redis: what may be answered
 * and kept afterwards. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "entry/entry.h"
#include "support/ageing.h"
#include "support/fixture.h"

/* -------------------------------------------------------------------- puts */

TEST(what_was_put_is_got_without_a_load)
{
    fixture_open(&fixture);
    put(fixture.cache, "k", "mine");
    expect_origin(fixture.cache, "k", "mine", SHED_ORIGIN_REDIS);
    put(fixture.cache, "k", "");
    expect_origin(fixture.cache, "k", "", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(table_loads(&fixture.table), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).puts, 2);
}

TEST(a_put_is_read_by_another_client)
{
    struct peer peer;

    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    expect_text(peer.cache, "k", "k@1");
    put(fixture.cache, "k", "mine");
    expect_origin(peer.cache, "k", "mine", SHED_ORIGIN_REDIS);
    peer_close(&peer);
}

TEST(a_put_ends_a_load_under_way)
{
    struct getter before = {0};

    fixture_open(&fixture);
    getter_hold(&before, &fixture, "k");
    put(fixture.cache, "k", "mine");
    table_release(&fixture.table);
    getter_expect(&before, "mine", SHED_ORIGIN_REDIS);
    expect_origin(fixture.cache, "k", "mine", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).publishes_superseded, 1);
}

/* The load is so slow that what superseded it is no longer fresh either. */
TEST(a_row_that_is_over_is_not_the_answer_of_a_load_that_it_superseded)
{
    struct getter before = {0};

    fixture.cache_options.stale_while_revalidate_ms = STALE_MS;
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture_open(&fixture);
    getter_hold(&before, &fixture, "k");
    put(fixture.cache, "k", "mine");
    age_entry(&fixture.server, "t:{k}", PAST_TTL_MS);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(stats_of(fixture.cache).publishes_superseded, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).publishes_invalidated, 1);
    expect_origin(fixture.cache, "k", "mine", SHED_ORIGIN_STALE);
}

/* ----------------------------------------------------------- invalidations */

TEST(after_an_invalidation_the_row_is_read_again)
{
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    expect_text(fixture.cache, "k", "k@1");
    invalidate(fixture.cache, "k");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    expect_text(fixture.cache, "k", "k@2");
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 1);
}

TEST(an_invalidation_ends_absence_too)
{
    fixture_open(&fixture);
    expect_kind(fixture.cache, "absent", SHED_KIND_ABSENT);
    invalidate(fixture.cache, "absent");
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{absent}"), 0);
}

/* By an invalidation, a plain DEL, or a flush. */
TEST_EACH(nothing_loaded_before_an_invalidation_is_kept_after_it, 0, 3)
{
    static const char *const commands[] = {NULL, "DEL t:{k}", "FLUSHALL"};
    struct getter before = {0};

    fixture_open(&fixture);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    if (commands[_i] == NULL)
        invalidate(fixture.cache, "k");
    else
        server_do(&fixture.server, commands[_i]);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}"), 0);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).publishes_invalidated, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).unpublished, 0);
    ck_assert_uint_eq(stats_of(fixture.cache).published, 1);
}

/* That load is by this client (0), or another one (1). */
TEST_EACH(a_caller_after_an_invalidation_does_not_wait_for_the_older_load, 0, 2)
{
    struct getter before = {0}, after = {0};
    struct peer peer;

    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    table_hold(&fixture.table);
    getter_start(&before, _i == 0 ? fixture.cache : peer.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    table_update(&fixture.table);
    invalidate(fixture.cache, "k");
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 2);
    table_release(&fixture.table);
    getter_expect(&after, "k@2", SHED_ORIGIN_LOAD);
    getter_join(&before);
    EXPECT_OK(before.code);
    shed_value_unref(before.value);
    expect_text(fixture.cache, "k", "k@2");
    expect_text(peer.cache, "k", "k@2");
    ck_assert_uint_eq(stats_of(fixture.cache).joins, 0);
    peer_close(&peer);
}

TEST(a_caller_after_a_del_gets_the_new_row)
{
    struct getter before = {0}, after = {0};

    fixture_open(&fixture);
    getter_hold(&before, &fixture, "k");
    table_update(&fixture.table);
    ck_assert_int_eq(server_int(&fixture.server, "DEL t:{k}"), 1);
    getter_start(&after, fixture.cache, "k");
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    getter_expect(&after, "k@2", SHED_ORIGIN_LOAD);
}

static atomic_bool is_stopping;

static void *read_on(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_stopping))
        (void)get_code(fixture.cache, "k");
    return NULL;
}

/* A row that is returned after an invalidation is never older than it, whether
 * there are links for all threads or they share GETs. */
TEST_EACH(own_writes_are_seen_among_readers, 0, 2)
{
    enum { READERS = 4, WRITES = 300 };
    pthread_t readers[READERS];
    char text[32];

    if (_i > 0)
        fixture.client_options.links = 1;
    fixture_open(&fixture);
    for (int i = 0; i < READERS; i++)
        start_thread(&readers[i], read_on, NULL);
    for (unsigned i = 2; i < WRITES; i++) {
        table_update(&fixture.table);
        invalidate(fixture.cache, "k");
        snprintf(text, sizeof(text), "k@%u", i);
        expect_text(fixture.cache, "k", text);
    }
    atomic_store(&is_stopping, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
}

/* ------------------------------------------------------------ failed loads */

TEST(the_sources_reason_reaches_all_callers_here)
{
    struct getter getters[5] = {0};

    fixture_open(&fixture);
    table_hold(&fixture.table);
    for (size_t i = 0; i < 5; i++)
        getter_start(&getters[i], fixture.cache, "fail");
    WAIT_FOR(stats_of(fixture.cache).misses == 5 &&
             table_running(&fixture.table) == 1);
    table_release(&fixture.table);
    for (size_t i = 0; i < 5; i++) {
        getter_join(&getters[i]);
        EXPECT_CODE(getters[i].code, SHED_ESOURCE);
        ck_assert_str_eq(getters[i].error.reason, "the table is on fire");
    }
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).load_failures, 1);
    ck_assert_uint_eq(stats_of(fixture.cache).errors_source, 5);
}

TEST(waiters_elsewhere_hear_of_a_failed_load)
{
    struct getter here = {0}, there = {0};
    struct peer peer;

    fixture.cache_options.failure_ttl_ms = 60000;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    getter_hold(&here, &fixture, "fail");
    getter_start(&there, peer.cache, "fail");
    WAIT_FOR(stats_of(peer.cache).waits == 1);
    table_release(&fixture.table);
    getter_join(&here);
    getter_join(&there);
    EXPECT_CODE(here.code, SHED_ESOURCE);
    EXPECT_CODE(there.code, SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(there.error.reason, "the table is on fire"));
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    peer_close(&peer);
}

TEST_EACH(a_failed_load_is_tried_again_after_its_ttl, 0, 2)
{
    fixture.cache_options.failure_ttl_ms = _i == 0 ? 100 : 0;
    fixture_open(&fixture);
    expect_code(fixture.cache, "fail", SHED_ESOURCE, NULL);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    if (_i == 0)
        WAIT_FOR((expect_code(fixture.cache, "fail", SHED_ESOURCE, NULL),
                  table_loads(&fixture.table) == 2));
    else
        expect_code(fixture.cache, "fail", SHED_ESOURCE, NULL);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
}

TEST(a_load_past_its_timeout_fails_its_callers_and_frees_the_key)
{
    struct shed_error err = {0};

    fixture.source_options.load_timeout_ms = 50;
    fixture.cache_options.failure_ttl_ms = 1;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    expect_code(fixture.cache, "k", SHED_ESOURCE, &err);
    ck_assert_ptr_nonnull(strstr(err.reason, "load_timeout_ms"));
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k}") == 0);
    /* a load begins unless the call's time is over before a thread is ready */
    WAIT_FOR((get_code(fixture.cache, "k") != SHED_EINVAL &&
              table_running(&fixture.table) == 2));
    table_release(&fixture.table);
}

int main(void)
{
    return run_fixture_tests("writes");
}
