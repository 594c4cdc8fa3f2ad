/* What misses cost Redis, by its own count, commands in scripts included. */
#include "support/fixture.h"

static struct peer peer;

static const char *const names[] = {"get", "set", "evalsha", "pttl",
                                    "pubsub|numsub"};

enum { GET, SET, EVALSHA, PTTL, NUMSUB, NAMES };

struct calls {
    long long of[NAMES];
};

static struct calls calls_now(void)
{
    struct calls calls;

    for (size_t i = 0; i < NAMES; i++)
        calls.of[i] = server_calls(&fixture.server, names[i]);
    return calls;
}

static long long since(const struct calls *before, size_t i)
{
    return server_calls(&fixture.server, names[i]) - before->of[i];
}

static void up(void)
{
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    WAIT_FOR(status_of(fixture.client).is_up && status_of(peer.client).is_up);
    expect_text(fixture.cache, "warm", "warm@1");
    expect_text(peer.cache, "warm", "warm@1");
    WAIT_FOR(knows_the_clock(fixture.cache) && knows_the_clock(peer.cache));
}

static void down(void)
{
    peer_close(&peer);
    fixture_down(&fixture);
}

TEST(a_load_costs_six_commands)
{
    struct calls before;

    up();
    before = calls_now();
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(since(&before, GET), 2); /* the caller's, the publish's */
    ck_assert_int_eq(since(&before, SET), 2); /* the lease, the row */
    ck_assert_int_eq(since(&before, EVALSHA), 1);
    ck_assert_int_eq(since(&before, PTTL), 0);
    ck_assert_int_eq(since(&before, NUMSUB), 0);
}

/* Whether a caller who comes behind the loader reads the key until it has the
 * row, and calls no script. It does so within half a grace; a busy machine
 * makes it late. */
static bool waits_by_reading(const char *key, const char *text)
{
    struct getter holder = {0}, waiter = {0};
    struct calls before = calls_now();

    getter_hold(&holder, &fixture, key);
    getter_start(&waiter, peer.cache, key);
    WAIT_FOR(since(&before, GET) >= 3);
    table_release(&fixture.table);
    getter_expect(&holder, text, SHED_ORIGIN_LOAD);
    getter_expect(&waiter, text, SHED_ORIGIN_WAITED);
    return since(&before, GET) <= 5 && since(&before, EVALSHA) == 1 &&
           since(&before, SET) == 2;
}

TEST(who_comes_behind_the_loader_reads_and_calls_no_script)
{
    enum { TRIES = 50 };
    char key[16], text[20];
    int i = 0;

    up();
    do {
        ck_assert_int_lt(i, TRIES);
        (void)snprintf(key, sizeof(key), "k%d", i++);
        (void)snprintf(text, sizeof(text), "%s@1", key);
    } while (!waits_by_reading(key, text));
}

int main(void)
{
    tcase_set_timeout(test_case(), 120);
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("commands");
}
