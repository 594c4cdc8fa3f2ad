/* Several processes that continuously read one hot row: a refresh costs one
 * load for all of them, no reader waits for it, and a refresher that dies is
 * replaced. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/bare.h"
#include "support/answers.h"
#include "support/ageing.h"
#include "support/child.h"
#include "support/fixture.h"

#define WORKERS 3

/* One process, which gets "k" in a loop. */
struct worker {
    pid_t pid;
    atomic_uint version;    /* of the last row that it got */
    atomic_uint gets;       /* gets since it knows the server's clock */
    atomic_uint waits;      /* those of them that were not hits */
    atomic_uint is_loading; /* loads under way */
};

/* In memory that all processes share, including the table. */
struct fleet {
    atomic_uint version;
    atomic_uint loads;
    atomic_bool may_answer; /* loads may answer */
    struct worker workers[WORKERS];
};

static struct server server;
static struct fleet *fleet;
static struct shed_cache_options options;

/* ------------------------------------------------------------- in a worker */

static void load(void *user, void *thread, struct shed_load *load)
{
    struct worker *w = user;
    unsigned version = atomic_load(&fleet->version);

    (void)thread;
    atomic_fetch_add(&fleet->loads, 1);
    atomic_fetch_add(&w->is_loading, 1);
    while (!atomic_load(&fleet->may_answer))
        usleep(500);
    for (size_t i = 0; i < load->count; i++)
        answer_row(load, i, shed_bytes(&version, sizeof(version)));
    atomic_fetch_sub(&w->is_loading, 1);
    shed_load_done(load);
}

static void get_once(struct worker *w, struct shed_cache *cache)
{
    struct shed_value *value = NULL;
    unsigned version;
    enum shed_origin origin;

    if (shed_get(cache, shed_str("k"), NULL, &value, NULL) != SHED_OK)
        _exit(1);
    memcpy(&version, value->data, sizeof(version));
    origin = value->origin;
    if (atomic_load(&w->gets) > 0 && origin != SHED_ORIGIN_REDIS &&
        origin != SHED_ORIGIN_STALE)
        atomic_fetch_add(&w->waits, 1);
    if (value->age_ms > 0 || atomic_load(&w->gets) > 0)
        atomic_fetch_add(&w->gets, 1);
    shed_value_unref(value);
    atomic_store(&w->version, version);
}

static _Noreturn void work(struct worker *w)
{
    struct shed_source *source = NULL;
    struct shed_client *client = NULL;
    struct shed_client_options co = bare_client();
    struct shed_cache *cache = NULL;

    co.command_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    if (shed_client_open(server.uri, &co, &client, NULL) != SHED_OK ||
        shed_source_open_batch(load, w, BARE_SOURCE, &source, NULL) !=
            SHED_OK ||
        shed_cache_open(client, "t", source, &options, &cache, NULL) != SHED_OK)
        _exit(1);
    for (;;) {
        get_once(w, cache);
        usleep(200);
    }
}

/* ------------------------------------------------------------- in the test */

static void start_fleet(uint64_t refresh_after_pct, uint64_t revalidate_ms)
{
    enum { LEASE_MS = 100000 };

    fleet = share_memory(sizeof(*fleet));
    atomic_store(&fleet->version, 1);
    atomic_store(&fleet->may_answer, true);
    options = bare_cache();
    options.timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
    options.ttl_ms = AGEING_TTL_MS;
    options.refresh_after_pct = refresh_after_pct;
    options.stale_while_revalidate_ms = revalidate_ms;
    options.lease_ms = LEASE_MS;
    server_start(&server);
    for (size_t i = 0; i < WORKERS; i++) {
        struct worker *w = &fleet->workers[i];
        pid_t pid = fork_child();
        if (pid == 0)
            work(w);
        w->pid = pid; /* not in the child, because the memory is shared */
    }
    WAIT_FOR(server_clients(&server, "flags=t") == WORKERS);
    for (size_t i = 0; i < WORKERS; i++)
        WAIT_FOR(atomic_load(&fleet->workers[i].gets) > 0);
}

static void stop_fleet(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        kill_child(fleet->workers[i].pid);
    server_check_ttls(&server);
    server_stop(&server);
    munmap(fleet, sizeof(*fleet));
}

static void kill_worker(size_t i)
{
    kill_child(fleet->workers[i].pid);
    fleet->workers[i].pid = 0;
}

static unsigned loading(void)
{
    unsigned sum = 0;

    for (size_t i = 0; i < WORKERS; i++)
        sum += atomic_load(&fleet->workers[i].is_loading);
    return sum;
}

static size_t loader(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (atomic_load(&fleet->workers[i].is_loading) > 0)
            return i;
    ck_abort_msg("nobody loads");
}

static void await_version(unsigned version)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (fleet->workers[i].pid != 0)
            WAIT_FOR(atomic_load(&fleet->workers[i].version) == version);
}

/* Everybody goes on reading the old row during the load. */
static void expect_reads_go_on(void)
{
    enum { GETS = 20 };

    for (size_t i = 0; i < WORKERS; i++) {
        struct worker *w = &fleet->workers[i];
        unsigned gets = atomic_load(&w->gets);
        if (w->pid != 0)
            WAIT_FOR(atomic_load(&w->gets) >= gets + GETS);
    }
}

/* Make the row old once, and let it be refreshed. Loads are held until every
 * process has asked for the lease. */
static void refresh_once(uint64_t age_ms, unsigned version)
{
    unsigned loads = atomic_load(&fleet->loads);
    long long asked = server_calls(&server, "evalsha");

    atomic_store(&fleet->version, version);
    atomic_store(&fleet->may_answer, false);
    age_entry(&server, "t:{k}", age_ms);
    WAIT_FOR(server_calls(&server, "evalsha") >= asked + WORKERS);
    WAIT_FOR(loading() > 0);
    expect_reads_go_on();
    ck_assert_uint_eq(loading(), 1);
    atomic_store(&fleet->may_answer, true);
    await_version(version);
    ck_assert_uint_eq(atomic_load(&fleet->loads), loads + 1);
}

static void expect_no_waits(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        ck_assert_uint_eq(atomic_load(&fleet->workers[i].waits), 0);
}

/* ------------------------------------------------------------------- tests */

TEST(a_hot_row_costs_one_load_per_refresh_and_nobody_waits)
{
    enum { REFRESHES = 30 };

    start_fleet(AGEING_DUE_PCT, 0);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 1);
    for (unsigned i = 1; i <= REFRESHES; i++)
        refresh_once(AGEING_DUE_MS, i + 1);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 1 + REFRESHES);
    expect_no_waits();
}

TEST(a_stale_row_costs_one_load_and_nobody_waits)
{
    enum { REFRESHES = 10 };

    start_fleet(0, AGEING_TTL_MS);
    for (unsigned i = 1; i <= REFRESHES; i++)
        refresh_once(AGEING_TTL_MS, i + 1);
    expect_no_waits();
}

TEST(a_refresher_that_is_killed_is_replaced_and_nobody_waits)
{
    size_t dead;

    start_fleet(AGEING_DUE_PCT, 0);
    atomic_store(&fleet->version, 2);
    atomic_store(&fleet->may_answer, false);
    age_entry(&server, "t:{k}", AGEING_DUE_MS);
    WAIT_FOR(loading() == 1);
    dead = loader();
    kill_worker(dead);
    atomic_store(&fleet->workers[dead].is_loading, 0);
    WAIT_FOR(loading() == 1); /* long before the lease ends */
    expect_reads_go_on();
    atomic_store(&fleet->may_answer, true);
    await_version(2);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 3);
    expect_no_waits();
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), NULL, stop_fleet);
    return run_tests("refresh_fleet");
}
