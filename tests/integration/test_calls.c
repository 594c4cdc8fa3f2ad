/* What one call asks for: a greatest age, no load, or rows that are no longer
 * fresh. Entries are made old by moving their times. */
#include <string.h>

#include "client/client.h"
#include "redis/session.h"
#include "support/ageing.h"
#include "support/calls.h"

static bool is_clock_hidden;

/* The linker replaces the function by this. */
WRAPPED(shed_client_server_ms);

uint64_t __wrap_shed_client_server_ms(struct shed_client *client,
                                      struct shed_bytes key)
{
    return is_clock_hidden ? 0 : __real_shed_client_server_ms(client, key);
}

#define YOUNG (*GET_WITH(.max_age_ms = MAX_AGE_MS))
#define ONLY_CACHED (*GET_WITH(.only_cached = 1))
#define WITH_STALE(which) (*GET_WITH(.allow_stale = SHED_STALE_##which))

static void spoil_k(void)
{
    server_do(&fixture.server, "SETRANGE t:{k} 64 x");
}

/* -------------------------------------------------------------- max_age_ms */

TEST(a_row_that_is_too_old_for_the_call_is_replaced)
{
    calls_up(0, 0);
    age_k(MAX_AGE_MS / 2);
    expect_with("k", YOUNG, "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(loads(), 0);
    age_k(OLD_MS - MAX_AGE_MS / 2);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    expect_with("k", YOUNG, "k@3", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).refreshes, 1);
    expect_origin(fixture.cache, "k", "k@3", SHED_ORIGIN_REDIS);
    expect_with("k", YOUNG, "k@3", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(loads(), 1);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{k}:refresh"), 0);
}

/* A push wakes the flight that waits, and what it finds is that row. */
TEST(a_row_that_is_too_old_for_the_call_does_not_end_its_flight)
{
    struct peer peer;
    struct call mine, others;
    long long asked;

    calls_up(0, 0);
    peer_open(&peer, &fixture);
    WAIT_FOR(knows_the_clock(peer.cache));
    age_k(OLD_MS);
    table_hold(&fixture.table);
    call_start(&mine, fixture.cache, YOUNG);
    WAIT_FOR(table_running(&fixture.table) == 1);
    call_start(&others, peer.cache, YOUNG);
    WAIT_FOR(stats_of(peer.cache).waits == 1);
    asked = server_calls(&fixture.server, "evalsha");
    server_do(&fixture.server, "PEXPIRE t:{k} 600000");
    WAIT_FOR(stats_of(peer.cache).pushes > 0 &&
             server_calls(&fixture.server, "evalsha") > asked);
    table_release(&fixture.table);
    call_expect(&mine, "k@2");
    call_expect(&others, "k@2");
    ck_assert_uint_eq(stats_of(peer.cache).waits, 1);
    peer_close(&peer);
}

TEST(calls_of_many_clients_for_a_younger_row_share_one_load)
{
    enum { PEERS = 3 };
    struct peer peers[PEERS];
    struct call calls[PEERS];
    unsigned origins[SHED_ORIGIN_WAITED + 1] = {0};
    long long asked;

    calls_up(0, 0);
    for (size_t i = 0; i < PEERS; i++) {
        peer_open(&peers[i], &fixture);
        WAIT_FOR(knows_the_clock(peers[i].cache));
    }
    age_k(OLD_MS);
    table_hold(&fixture.table);
    asked = server_calls(&fixture.server, "evalsha");
    for (size_t i = 0; i < PEERS; i++)
        call_start(&calls[i], peers[i].cache, YOUNG);
    WAIT_FOR(server_calls(&fixture.server, "evalsha") >= asked + PEERS);
    WAIT_FOR(table_running(&fixture.table) == 1);
    table_release(&fixture.table);
    for (size_t i = 0; i < PEERS; i++) {
        call_join(&calls[i]);
        check_text(calls[i].value, "k@2");
        origins[calls[i].value->origin]++;
        shed_value_unref(calls[i].value);
    }
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_eq(origins[SHED_ORIGIN_LOAD], 1);
    ck_assert_uint_eq(origins[SHED_ORIGIN_WAITED], PEERS - 1);
    for (size_t i = 0; i < PEERS; i++)
        peer_close(&peers[i]);
}

TEST(others_get_the_row_that_is_being_replaced)
{
    struct call call;

    calls_up(0, 0);
    age_k(OLD_MS);
    table_hold(&fixture.table);
    call_start(&call, fixture.cache, YOUNG);
    WAIT_FOR(table_running(&fixture.table) == 1);
    for (int i = 0; i < 100; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    table_release(&fixture.table);
    call_expect(&call, "k@2");
}

TEST(an_answer_that_is_too_old_is_not_handed_out)
{
    struct getter getter = {0};
    struct call call;
    struct peer peer;

    calls_overtake(&getter, &peer);
    call_start(&call, fixture.cache, YOUNG);
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    table_release(&fixture.table);
    call_expect(&call, "k@2");
    getter_expect(&getter, "put", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(stats_of(fixture.cache).misses_ended,
                      stats_of(fixture.cache).misses);
    peer_close(&peer);
}

/* As in a failover: GET finds nothing (0) or a row that is too old (1), and
 * then there is an earlier one. */
TEST_EACH(a_row_that_comes_back_during_the_call_is_not_taken_for_a_new_one, 0,
          2)
{
    static struct proxy proxy;
    struct call call;
    redisReply *row;

    calls_init(0, 0);
    fixture_add_proxy(&fixture, &proxy);
    calls_open();
    age_k(OLD_MS);
    row = server_run(&fixture.server, "GET t:{k}");
    if (_i == 0)
        server_int(&fixture.server, "DEL t:{k}");
    else
        age_k(1);
    proxy_set(&proxy, PROXY_HOLD_ONE, 0, NULL);
    call_start(&call, fixture.cache, YOUNG);
    proxy_wait_held(&proxy);
    server_do(&fixture.server, "SET t:{k} %b PX 600000", row->str, row->len);
    freeReplyObject(row);
    proxy_release(&proxy);
    call_expect(&call, _i == 0 ? "k@2" : "k@3");
}

TEST(no_such_row_has_an_age_too)
{
    calls_up(0, 0);
    expect_absent("absent", YOUNG);
    age_entry(&fixture.server, "t:{absent}", MAX_AGE_MS / 2);
    expect_absent("absent", YOUNG);
    ck_assert_uint_eq(loads(), 1);
    age_entry(&fixture.server, "t:{absent}", OLD_MS);
    expect_absent("absent", YOUNG);
    ck_assert_uint_eq(loads(), 2);
}

TEST(nothing_older_is_handed_out_when_the_load_fails)
{
    calls_up(STALE_MS, 2 * STALE_MS);
    age_k(AGEING_TTL_MS + STALE_MS);
    table_fail(&fixture.table, true);
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    expect_failure("k", YOUNG, SHED_ESOURCE);
}

/* What snowshed.h says of max_age_ms: a second call takes what there is. */
TEST(after_the_load_has_failed_a_call_can_take_what_there_is)
{
    static const uint64_t ages_ms[] = {OLD_MS, PAST_TTL_MS - OLD_MS, STALE_MS};
    static const enum shed_origin origins[] = {
        SHED_ORIGIN_REDIS, SHED_ORIGIN_STALE, SHED_ORIGIN_STALE};
    const struct shed_get_options options =
        *GET_WITH(.only_cached = 1, .allow_stale = SHED_STALE_ALLOWED);

    calls_up(STALE_MS, 2 * STALE_MS);
    table_fail(&fixture.table, true);
    for (size_t i = 0; i < sizeof(ages_ms) / sizeof(*ages_ms); i++) {
        age_k(ages_ms[i]);
        expect_failure("k", YOUNG, SHED_ESOURCE);
        expect_with("k", options, "k@1", origins[i]);
    }
}

TEST(nothing_older_is_handed_out_because_stale_rows_are_allowed)
{
    const struct shed_get_options options =
        *GET_WITH(.max_age_ms = AGEING_TTL_MS + STALE_MS,
                  .allow_stale = SHED_STALE_ALLOWED);

    calls_up(2 * STALE_MS, 0);
    table_hold(&fixture.table);
    age_k(AGEING_TTL_MS + STALE_MS / 2);
    expect_with("k", options, "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    age_k(AGEING_TTL_MS + STALE_MS * 3 / 2);
    expect_with("k", options, "k@3", SHED_ORIGIN_LOAD);
}

TEST(a_row_of_unknown_age_is_too_old)
{
    calls_up(0, 0);
    table_update(&fixture.table);
    is_clock_hidden = true;
    expect_with("k", YOUNG, "k@2", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(loads(), 1);
    is_clock_hidden = false;
}

TEST(a_corrupt_entry_is_replaced_by_a_young_one)
{
    calls_up(0, 0);
    age_k(OLD_MS);
    spoil_k();
    expect_with("k", YOUNG, "k@2", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(stats_of(fixture.cache).corrupt_entries, 1);
}

/* ------------------------------------------------------------- only_cached */

TEST(a_call_that_may_not_load_takes_what_redis_has)
{
    struct shed_stats before, after;
    long long gets, sets;

    calls_up(0, 0);
    expect_absent("absent", get_defaults);
    server_do(&fixture.server, "LPUSH t:{list} a");
    gets = server_calls(&fixture.server, "get");
    sets = server_calls(&fixture.server, "set");
    expect_with("k", ONLY_CACHED, "k@1", SHED_ORIGIN_REDIS);
    expect_absent("absent", ONLY_CACHED);
    before = stats_of(fixture.cache);
    expect_failure("new", ONLY_CACHED, SHED_EMISS);
    expect_failure("list", ONLY_CACHED, SHED_EMISS); /* a foreign entry */
    after = stats_of(fixture.cache);
    ck_assert_int_eq(server_calls(&fixture.server, "get"), gets + 4);
    ck_assert_int_eq(server_calls(&fixture.server, "set"), sets);
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{new}"), 0);
    /* a miss is counted, and is no error */
    ck_assert_uint_eq(after.misses, before.misses + 2);
    ck_assert_uint_eq(after.misses_ended, before.misses_ended + 2);
    ck_assert_uint_eq(after.errors_other, before.errors_other);
    ck_assert_uint_eq(after.miss_us.count, before.miss_us.count);
    server_do(&fixture.server, "DEL t:{list}");
}

TEST(it_does_not_wait_for_a_load_that_is_under_way)
{
    struct getter getter = {0};

    calls_up(0, 0);
    getter_hold(&getter, &fixture, "new");
    expect_failure("new", ONLY_CACHED, SHED_EMISS);
    ck_assert_uint_eq(stats_of(fixture.cache).joins, 0);
    table_release(&fixture.table);
    getter_expect(&getter, "new@1", SHED_ORIGIN_LOAD);
}

TEST(it_refreshes_nothing)
{
    long long scripts;

    calls_up(STALE_MS, 0);
    age_k(PAST_TTL_MS);
    scripts = server_calls(&fixture.server, "evalsha");
    for (int i = 0; i < 100; i++)
        expect_with("k", ONLY_CACHED, "k@1", SHED_ORIGIN_STALE);
    /* if it had begun a flight, the cache would know of it by now */
    expect_origin(fixture.cache, "other", "other@2", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(server_calls(&fixture.server, "evalsha"),
                     scripts + 1); /* its publish */
    ck_assert_uint_eq(loads(), 1);
}

TEST(rows_that_may_not_be_handed_out_are_misses)
{
    struct shed_get_options options = ONLY_CACHED;

    calls_up(0, STALE_MS);
    age_k(PAST_TTL_MS); /* within stale_if_error_ms, but nothing has failed */
    expect_failure("k", options, SHED_EMISS);
    options.allow_stale = SHED_STALE_ALLOWED;
    expect_with("k", options, "k@1", SHED_ORIGIN_STALE);
    options.max_age_ms = MAX_AGE_MS;
    expect_failure("k", options, SHED_EMISS);
    spoil_k();
    expect_failure("k", ONLY_CACHED, SHED_EMISS);
    ck_assert_uint_eq(loads(), 0);
}

TEST(an_error_of_redis_is_no_miss)
{
    static struct proxy proxy;

    calls_init(0, 0);
    fixture_add_proxy(&fixture, &proxy);
    calls_open();
    proxy_set(&proxy, PROXY_ANSWER, 0, "-LOADING Redis is loading\r\n");
    expect_failure("k", ONLY_CACHED, SHED_EREDIS);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

TEST(without_redis_nothing_is_known)
{
    calls_up(0, 0);
    server_kill(&fixture.server);
    expect_failure("k", ONLY_CACHED, SHED_EREDIS);
    expect_with("k", YOUNG, "k@1", SHED_ORIGIN_UNPUBLISHED);
    expect_with("k", WITH_STALE(ALLOWED), "k@1", SHED_ORIGIN_UNPUBLISHED);
    server_start_again(&fixture.server);
}

/* ------------------------------------------------------------- allow_stale */

TEST(any_row_that_redis_has_is_good_enough_if_the_call_says_so)
{
    calls_up(0, STALE_MS); /* so that Redis keeps it */
    age_k(AGEING_TTL_MS * 2);
    table_hold(&fixture.table);
    do
        expect_with("k", WITH_STALE(ALLOWED), "k@1", SHED_ORIGIN_STALE);
    while (table_running(&fixture.table) == 0);
    expect_with("k", WITH_STALE(ALLOWED), "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
    ck_assert_uint_eq(loads(), 1);
}

TEST(it_is_given_out_even_where_others_wait_for_its_load)
{
    struct getter getter = {0};

    calls_up(0, 0);
    age_k(PAST_TTL_MS);
    getter_hold(&getter, &fixture, "k");
    expect_with("k", WITH_STALE(ALLOWED), "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    getter_expect(&getter, "k@2", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(loads(), 1);
}

TEST(a_call_that_wants_no_stale_row_waits_and_would_rather_fail)
{
    calls_up(STALE_MS, STALE_MS);
    age_k(PAST_TTL_MS);
    expect_with("k", WITH_STALE(NEVER), "k@2", SHED_ORIGIN_LOAD);
    age_k(PAST_TTL_MS);
    table_fail(&fixture.table, true);
    expect_failure("k", WITH_STALE(NEVER), SHED_ESOURCE);
    expect_with("k", get_defaults, "k@2", SHED_ORIGIN_STALE);
}

TEST(no_such_row_is_not_stale_for_any_call)
{
    calls_up(STALE_MS, STALE_MS);
    expect_absent("absent", get_defaults);
    age_entry(&fixture.server, "t:{absent}", PAST_TTL_MS);
    expect_absent("absent", WITH_STALE(ALLOWED));
    ck_assert_uint_eq(loads(), 2);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 0);
    table_fail(&fixture.table, true);
    expect_absent("absent", get_defaults);
    age_entry(&fixture.server, "t:{absent}", PAST_TTL_MS);
    expect_failure("absent", get_defaults, SHED_ESOURCE);
    expect_failure("absent", WITH_STALE(ALLOWED), SHED_ESOURCE);
}

/* ---------------------------------------------------------------- fresh_ms */

static uint64_t fresh_ms_of(const char *key, struct shed_get_options options)
{
    struct shed_value *value = NULL;
    uint64_t fresh_ms;

    EXPECT_OK(shed_get(fixture.cache, shed_str(key), &options, &value, NULL));
    fresh_ms = value->fresh_ms;
    shed_value_unref(value);
    return fresh_ms;
}

TEST(a_value_says_how_long_it_is_fresh)
{
    calls_up(STALE_MS, 0);
    ck_assert_uint_eq(fresh_ms_of("new", get_defaults), AGEING_TTL_MS);
    age_k(OLD_MS);
    ck_assert_uint_lt(fresh_ms_of("k", get_defaults),
                      AGEING_TTL_MS - MAX_AGE_MS);
    ck_assert_uint_gt(fresh_ms_of("k", get_defaults), AGEING_TTL_MS / 4);
    is_clock_hidden = true;
    ck_assert_uint_eq(fresh_ms_of("k", get_defaults), 0);
    is_clock_hidden = false;
    age_k(PAST_TTL_MS - OLD_MS);
    ck_assert_uint_eq(fresh_ms_of("k", ONLY_CACHED), 0); /* it is stale */
    server_kill(&fixture.server);
    ck_assert_uint_eq(fresh_ms_of("k", get_defaults), 0); /* not published */
    server_start_again(&fixture.server);
}

/* ---------------------------------------------------------------- get_many */

enum { KEYS = 5 };

static void set_up_many(struct shed_item items[KEYS])
{
    static const char *const keys[KEYS] = {"k", "clock", "absent", "bad",
                                           "new"};

    calls_up(0, 0);
    expect_absent("absent", get_defaults);
    expect_text(fixture.cache, "bad", "bad@1");
    server_do(&fixture.server, "SETRANGE t:{bad} 64 x");
    age_k(OLD_MS);
    for (size_t i = 0; i < KEYS; i++)
        items[i] = (struct shed_item){.key = shed_str(keys[i])};
}

static void unref_all(struct shed_item items[KEYS])
{
    for (size_t i = 0; i < KEYS; i++)
        shed_value_unref(items[i].value);
}

TEST(the_terms_hold_for_each_key_of_many)
{
    static const char *const texts[KEYS] = {"k@2", "clock@1", "", "bad@2",
                                            "new@2"};
    struct shed_get_options options = YOUNG;
    struct shed_item items[KEYS];

    set_up_many(items);
    EXPECT_OK(shed_get_many(fixture.cache, items, KEYS, &options, NULL));
    for (size_t i = 0; i < KEYS; i++) {
        EXPECT_OK(items[i].code);
        if (texts[i][0] != '\0')
            check_text(items[i].value, texts[i]);
    }
    ck_assert_int_eq(items[2].value->kind, SHED_KIND_ABSENT);
    ck_assert_int_eq(items[1].value->origin, SHED_ORIGIN_REDIS);
    unref_all(items);
}

TEST(many_that_may_not_load_are_hits_or_misses)
{
    static const enum shed_code codes[KEYS] = {SHED_OK, SHED_OK, SHED_OK,
                                               SHED_EMISS, SHED_EMISS};
    struct shed_get_options options = ONLY_CACHED;
    struct shed_item items[KEYS];
    struct shed_error err = {0};
    unsigned before;

    set_up_many(items);
    before = table_loads(&fixture.table);
    EXPECT_CODE(shed_get_many(fixture.cache, items, KEYS, &options, &err),
                SHED_EMISS);
    ck_assert_ptr_nonnull(strstr(err.reason, "items[3]: "));
    for (size_t i = 0; i < KEYS; i++) {
        ck_assert_int_eq(items[i].code, codes[i]);
        ck_assert_int_eq(items[i].value != NULL, codes[i] == SHED_OK);
    }
    ck_assert_uint_eq(table_loads(&fixture.table), before);
    unref_all(items);
}

/* ----------------------------------------------------------------- options */

static void expect_refused(struct shed_get_options options, const char *field)
{
    struct shed_value *value = NULL;
    struct shed_item item = {.key = shed_str("k")};
    struct shed_error err = {0};

    EXPECT_CODE(shed_get(fixture.cache, shed_str("k"), &options, &value, &err),
                SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, field) != NULL, "%s", err.reason);
    EXPECT_CODE(shed_get_many(fixture.cache, &item, 1, &options, &err),
                SHED_EINVAL);
    EXPECT_CODE(item.code, SHED_EINVAL);
}

TEST(wrong_options_are_refused)
{
    calls_up(0, 0);
    expect_refused(*GET_WITH(.timeout_ms = UINT64_MAX), "timeout_ms");
    expect_refused(*GET_WITH(.max_age_ms = UINT64_MAX), "max_age_ms");
    expect_refused(*GET_WITH(.only_cached = 2), "only_cached");
    expect_refused(*GET_WITH(.allow_stale = 3), "allow_stale");
    expect_refused((struct shed_get_options){.size = 1},
                   "struct shed_get_options");
}

int main(void)
{
    return run_fixture_tests("calls");
}
