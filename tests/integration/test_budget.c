/* The time of one call: soft_timeout_ms, after which a row that is no longer
 * fresh is good enough, and the one budget of everything that a call tries. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cache/pending.h"
#include "flight/flights.h"
#include "redis/link.h"
#include "support/calls.h"

/* One that has passed when a flight has begun, and one that no test reaches. */
#define SOON_MS 1
#define NEVER_MS 3600000
#define FAILURE_MS 60000 /* the longest that there is */

static atomic_uint gets_sent;    /* counts GETs, of one key or many */
static atomic_uint gets_to_fail; /* of the next ones */
static atomic_uint departures;   /* of callers from their flights */

/* The deadline of the call whose time is short; 0 until its first wait. */
static atomic_bool is_calling;
static _Atomic uint64_t budget_ms;
static atomic_uint waits;

/* No wait of a call may go beyond the first one's deadline. */
static void check_budget(uint64_t deadline_ms)
{
    if (!is_calling)
        return;
    if (budget_ms == 0)
        budget_ms = deadline_ms;
    ck_assert_uint_le(deadline_ms, budget_ms);
    waits++;
}

static bool fails(void)
{
    gets_sent++;
    if (gets_to_fail == 0)
        return false;
    gets_to_fail--;
    return true;
}

/* The linker replaces the functions by these. */
WRAPPED(shed_links_call);
WRAPPED(shed_async_ask);
WRAPPED(shed_async_set_due);
WRAPPED(shed_flights_leave);

enum shed_code __wrap_shed_links_call(struct shed_links *links,
                                      const struct shed_args *commands,
                                      size_t count, struct shed_reply **replies,
                                      struct shed_link_use *use, unsigned *sent,
                                      uint64_t deadline_ms,
                                      struct shed_error *err)
{
    check_budget(deadline_ms);
    if (fails())
        return shed_fail(err, SHED_EREDIS, "the server is silent");
    return __real_shed_links_call(links, commands, count, replies, use, sent,
                                  deadline_ms, err);
}

bool __wrap_shed_async_ask(struct shed_async_reads *reads,
                           struct shed_asker *asker, const struct shed_key *key,
                           bool may_share)
{
    return !fails() && __real_shed_async_ask(reads, asker, key, may_share);
}

void __wrap_shed_async_set_due(struct shed_pending *pending, uint64_t at_ms)
{
    check_budget(at_ms);
    __real_shed_async_set_due(pending, at_ms);
}

bool __wrap_shed_flights_leave(struct shed_caller *caller, enum shed_leave how)
{
    bool has_left = __real_shed_flights_leave(caller, how);

    departures += has_left;
    return has_left;
}

static struct shed_get_options soft(uint64_t soft_timeout_ms)
{
    struct shed_get_options o = get_defaults;

    o.soft_timeout_ms = soft_timeout_ms;
    return o;
}

static void set_held(bool is_held)
{
    pthread_mutex_lock(&fixture.table.mu);
    fixture.table.is_held = is_held;
    pthread_mutex_unlock(&fixture.table.mu);
}

/* Let k be past its ttl, and hold its loads. */
static void hold_old(void)
{
    age_k(PAST_TTL_MS);
    table_hold(&fixture.table);
}

static void open_peer(struct peer *peer)
{
    peer_open(peer, &fixture);
    WAIT_FOR(knows_the_clock(peer->cache));
}

/* ------------------------------------------------------------ soft timeout */

static bool gets_old_sooner_than(uint64_t soft_timeout_ms)
{
    uint64_t begun_ms = shed_now_ms();

    expect_with("k", soft(soft_timeout_ms), "k@1", SHED_ORIGIN_STALE);
    return shed_now_ms() - begun_ms < soft_timeout_ms;
}

TEST(after_the_soft_timeout_a_call_gets_the_old_row_and_the_load_goes_on)
{
    calls_up(0, STALE_MS);
    hold_old();
    expect_with("k", soft(SOON_MS), "k@1", SHED_ORIGIN_STALE);
    WAIT_FOR(table_running(&fixture.table) == 1);
    expect_with("k", soft(SOON_MS), "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 2);
    /* a load that has taken too long is not waited for; a call that waits does
       so for all of its time */
    WAIT_FOR(gets_old_sooner_than(scaled_ms(100)));
    table_release(&fixture.table);
    WAIT_FOR(stats_of(fixture.cache).published == 3); /* without a get */
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(loads(), 1);
    ck_assert_uint_eq(stats_of(fixture.cache).errors_timeout, 0);
}

/* The life that a lease has left tells how old it is. */
TEST(a_load_of_another_process_is_not_waited_for_either)
{
    struct shed_get_options patient = soft(NEVER_MS / 2);
    struct call other, mine;
    struct peer peer;

    patient.timeout_ms = NEVER_MS;
    calls_init(0, STALE_MS);
    fixture.source_options.load_timeout_ms = NEVER_MS;
    calls_open();
    open_peer(&peer);
    hold_old();
    call_start(&other, peer.cache, get_defaults);
    WAIT_FOR(table_running(&fixture.table) == 1);
    usleep(SHED_LEASE_ALIVE_MS * 1000); /* before that nobody asks */
    server_do(&fixture.server, "PEXPIRE t:{k}:refresh %d", NEVER_MS / 4);
    expect_with("k", soft(SOON_MS), "k@1", SHED_ORIGIN_STALE);
    WAIT_FOR(stats_of(fixture.cache).waits == 1);
    call_start(&mine, fixture.cache, patient);
    WAIT_FOR(departures == 2);
    call_expect(&mine, "k@1");
    table_release(&fixture.table);
    call_expect(&other, "k@2");
    peer_close(&peer);
}

TEST(the_option_of_the_cache_holds_for_calls_that_have_none)
{
    struct call call;

    calls_init(0, STALE_MS);
    fixture.cache_options.soft_timeout_ms = SOON_MS;
    calls_open();
    hold_old();
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_STALE);
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    WAIT_FOR(table_running(&fixture.table) == 1);
    call_start(&call, fixture.cache, soft(NEVER_MS));
    WAIT_FOR(stats_of(fixture.cache).misses == 2 + 3);
    table_release(&fixture.table);
    call_expect(&call, "k@2");
}

TEST(a_load_that_is_quick_enough_is_waited_for)
{
    calls_up(0, STALE_MS);
    age_k(PAST_TTL_MS);
    expect_with("k", soft(NEVER_MS - 1), "k@2", SHED_ORIGIN_LOAD);
}

/* And in a cache without a window: the same options may be meant for several.
 */
TEST_EACH(without_an_old_row_to_give_a_call_waits, 0, 2)
{
    struct call call;

    calls_up(0, _i == 0 ? STALE_MS : 0);
    hold_old();
    if (_i == 0)
        invalidate(fixture.cache, "k");
    call_start(&call, fixture.cache, soft(SOON_MS));
    WAIT_FOR(table_running(&fixture.table) == 1);
    table_release(&fixture.table);
    call_expect(&call, "k@2");
    ck_assert_uint_eq(departures, 0);
}

/* That GET fails, and the one at the soft timeout finds the row. */
TEST(but_a_call_that_allows_stale_rows_does_not)
{
    struct shed_get_options options = soft(SOON_MS);

    options.allow_stale = SHED_STALE_ALLOWED;
    calls_init(0, 0);
    fixture.source_options.load_timeout_ms = NEVER_MS;
    calls_open();
    hold_old();
    gets_to_fail = 1;
    expect_with("k", options, "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(departures, 1);
    table_release(&fixture.table);
}

/* The call has left its flight while another process loads. That process dies,
 * and so does its lease, so nothing reports the end of the load. */
TEST(what_goes_on_takes_over_from_a_loader_that_is_lost)
{
    struct call other;
    struct peer peer;

    calls_up(0, STALE_MS);
    fixture.table.is_async = true;
    open_peer(&peer);
    hold_old();
    call_start(&other, peer.cache, get_defaults);
    WAIT_FOR(table_running(&fixture.table) == 1);
    expect_with("k", soft(SOON_MS), "k@1", SHED_ORIGIN_STALE);
    WAIT_FOR(stats_of(fixture.cache).waits == 1);
    set_held(false); /* for the next load */
    server_do(&fixture.server, "DEL t:{k}:refresh");
    WAIT_FOR(stats_of(fixture.cache).published == 3);
    table_release(&fixture.table);
    call_expect(&other, "k@2");
    ck_assert_uint_eq(loads(), 2);
    peer_close(&peer);
}

TEST(closing_a_cache_does_not_wait_for_what_another_loads)
{
    struct call other, mine;
    struct peer peer;

    calls_up(0, STALE_MS);
    open_peer(&peer);
    hold_old();
    call_start(&other, fixture.cache, get_defaults);
    WAIT_FOR(table_running(&fixture.table) == 1);
    call_start(&mine, peer.cache, soft(SOON_MS));
    call_expect(&mine, "k@1");
    peer_close(&peer); /* with the load still held */
    ck_assert_uint_eq(table_running(&fixture.table), 1);
    table_release(&fixture.table);
    call_expect(&other, "k@2");
}

struct many {
    pthread_t thread;
    struct shed_item items[3];
    enum shed_code code;
};

static void *get_many(void *arg)
{
    struct many *m = arg;
    const struct shed_get_options options = soft(SOON_MS);

    m->code = shed_get_many(fixture.cache, m->items, 3, &options, NULL);
    return NULL;
}

TEST(of_many_keys_each_has_its_old_row_or_waits)
{
    struct many m = {.items = {{.key = {"k", 1}},
                               {.key = {"new", 3}},
                               {.key = {"clock", 5}}}};

    calls_up(0, STALE_MS);
    hold_old();
    start_thread(&m.thread, get_many, &m);
    WAIT_FOR(departures == 1);
    WAIT_FOR(table_running(&fixture.table) > 0);
    table_release(&fixture.table);
    pthread_join(m.thread, NULL);
    EXPECT_OK(m.code);
    check_text(m.items[0].value, "k@1");
    ck_assert_int_eq(m.items[0].value->origin, SHED_ORIGIN_STALE);
    check_text(m.items[1].value, "new@2");
    check_text(m.items[2].value, "clock@1");
    for (size_t i = 0; i < 3; i++)
        shed_value_unref(m.items[i].value);
}

/* ----------------------------------------------------- an old row unseen */

/* Redis did not answer GET, and is well again. */
TEST(a_failed_load_finds_the_old_row_that_get_did_not_see)
{
    calls_init(0, STALE_MS);
    fixture.cache_options.failure_ttl_ms = FAILURE_MS;
    calls_open();
    age_k(PAST_TTL_MS);
    table_fail(&fixture.table, true);
    gets_to_fail = 1;
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), 1);
    gets_to_fail = 1; /* now it meets the failure marker */
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(loads(), 1);
    gets_to_fail = 2;
    expect_failure("k", get_defaults, SHED_ESOURCE);
}

/* What the second GET finds counts as what it is, and once. */
TEST(a_row_that_was_stored_meanwhile_is_given_and_counted_as_fresh)
{
    struct getter getter = {0};
    struct shed_stats before, after;
    struct peer peer;

    calls_up(0, STALE_MS);
    peer_open(&peer, &fixture);
    invalidate(fixture.cache, "k");
    table_hold(&fixture.table);
    table_fail(&fixture.table, true);
    before = stats_of(fixture.cache);
    gets_to_fail = 1;
    getter_start(&getter, fixture.cache, "k");
    WAIT_FOR(table_running(&fixture.table) == 1);
    put(peer.cache, "k", "put");
    table_release(&fixture.table);
    getter_expect(&getter, "put", SHED_ORIGIN_REDIS);
    after = stats_of(fixture.cache);
    ck_assert_uint_eq(after.misses - before.misses, 1);
    ck_assert_uint_eq(after.hits - before.hits, 1);
    ck_assert_uint_eq(after.stale, before.stale);
    peer_close(&peer);
}

TEST(a_stale_row_that_the_second_get_finds_is_counted_once)
{
    calls_up(STALE_MS, STALE_MS);
    age_k(PAST_TTL_MS);
    table_fail(&fixture.table, true);
    gets_to_fail = 1;
    expect_with("k", get_defaults, "k@1", SHED_ORIGIN_STALE);
    ck_assert_uint_eq(stats_of(fixture.cache).stale, 1);
}

TEST(of_many_keys_each_finds_its_own)
{
    struct shed_item items[] = {{.key = {"k", 1}}, {.key = {"new", 3}}};

    calls_up(0, STALE_MS);
    age_k(PAST_TTL_MS);
    table_fail(&fixture.table, true);
    gets_to_fail = 1;
    EXPECT_CODE(shed_get_many(fixture.cache, items, 2, NULL, NULL),
                SHED_ESOURCE);
    EXPECT_OK(items[0].code);
    check_text(items[0].value, "k@1");
    EXPECT_CODE(items[1].code, SHED_ESOURCE);
    shed_value_unref(items[0].value);
}

/* It is found while the load goes on, at the soft timeout. */
TEST(an_overdue_load_finds_it_too)
{
    calls_init(0, STALE_MS);
    fixture.source_options.load_timeout_ms = NEVER_MS;
    calls_open();
    hold_old();
    gets_to_fail = 1;
    expect_with("k", soft(SOON_MS), "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
}

TEST(what_get_has_seen_is_not_looked_for_again)
{
    calls_up(0, STALE_MS);
    invalidate(fixture.cache, "k");
    table_fail(&fixture.table, true);
    gets_sent = 0;
    expect_failure("k", get_defaults, SHED_ESOURCE);
    ck_assert_uint_eq(gets_sent, 1);
}

/* -------------------------------------------------------------- the budget */

static enum shed_code get_in(uint64_t timeout_ms, uint64_t soft_timeout_ms,
                             uint64_t max_age_ms, struct shed_value **value)
{
    struct shed_get_options options = soft(soft_timeout_ms);
    enum shed_code code;

    options.timeout_ms = timeout_ms;
    options.max_age_ms = max_age_ms;
    *value = NULL;
    budget_ms = 0;
    waits = 0;
    is_calling = true;
    code = shed_get(fixture.cache, shed_str("k"), &options, value, NULL);
    is_calling = false;
    return code;
}

TEST(what_a_call_tries_shares_one_deadline)
{
    struct shed_value *value;

    calls_up(0, STALE_MS);
    hold_old();
    /* GET, the soft timeout, the old row */
    EXPECT_OK(get_in(NEVER_MS, SOON_MS, 0, &value));
    check_text(value, "k@1");
    shed_value_unref(value);
    ck_assert_uint_eq(waits, 3);
    /* GET, the deadline, the old row; GET can take all of a short time */
    for (uint64_t ms = 1; get_in(ms, 0, 0, &value) != SHED_OK; ms *= 2)
        ck_assert_uint_lt(ms, NEVER_MS / 2);
    check_text(value, "k@1");
    shed_value_unref(value);
    ck_assert_uint_eq(waits, 2);
    table_release(&fixture.table);
}

static void *get_young(void *arg)
{
    struct shed_value **value = arg;

    EXPECT_OK(get_in(NEVER_MS, 0, MAX_AGE_MS, value));
    ck_assert_uint_eq(waits, 3); /* GET, the flight, its own flight */
    return NULL;
}

TEST(a_call_that_goes_round_again_does_too)
{
    struct getter getter = {0};
    struct shed_value *value;
    struct peer peer;
    pthread_t thread;

    calls_overtake(&getter, &peer);
    start_thread(&thread, get_young, &value);
    WAIT_FOR(stats_of(fixture.cache).joins == 1);
    table_release(&fixture.table);
    pthread_join(thread, NULL);
    check_text(value, "k@2");
    shed_value_unref(value);
    getter_expect(&getter, "put", SHED_ORIGIN_REDIS);
    peer_close(&peer);
}

TEST(a_silent_redis_does_not_prolong_a_call)
{
    struct shed_value *value;

    calls_up(STALE_MS, STALE_MS);
    server_freeze(&fixture.server); /* the connection's time is far longer */
    EXPECT_CODE(get_in(SOON_MS, SOON_MS, 0, &value), SHED_ETIMEDOUT);
    EXPECT_CODE(get_in(SOON_MS, 0, MAX_AGE_MS, &value), SHED_ETIMEDOUT);
    server_thaw(&fixture.server);
}

int main(void)
{
    return run_fixture_tests("budget");
}
