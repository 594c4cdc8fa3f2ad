/* Several processes on one Redis: one load per expiry for all of them, and what
 * happens to a load whose process dies or is stopped. While they continuously
 * read one hot row, a refresh costs one load for all of them, no reader waits
 * for it, and a refresher that dies is replaced. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ageing.h"
#include "support/answers.h"
#include "support/bare.h"
#include "support/child.h"
#include "support/fixture.h"

#define WORKERS_MAX 6

/* One worker, which gets "k" whenever it is told to, or in a loop. */
struct worker {
    pid_t pid;
    atomic_uint round;   /* the round to run */
    atomic_uint done;    /* the last round that ended */
    atomic_int code;     /* of the last round */
    atomic_uint version; /* of the row that it got */
    atomic_int origin;
    atomic_bool knows_age;
    atomic_uint_least64_t done_ms;
    atomic_bool is_ready; /* connected, with pushes if they are wanted */
    atomic_uint is_loading;
    atomic_bool may_answer; /* its loads may answer */
    atomic_uint_least64_t superseded, invalidated;
    atomic_uint_least64_t waits; /* so far, updated while it waits */
    /* in a loop: the gets since it knows the server's clock, and those of them
     * that were not hits */
    atomic_uint gets, misses;
};

/* In memory that all processes share, including the table. */
struct fleet {
    atomic_uint version;
    atomic_uint loads;
    atomic_uint_least64_t load_ms; /* when the last one began */
    atomic_bool is_failing;        /* all loads */
    bool is_reading;               /* in a loop */
    struct worker workers[WORKERS_MAX];
};

static struct server server;
static struct fleet *fleet;
static struct shed_cache_options options;
static enum shed_wait wait_by = SHED_WAIT_AUTO;

/* ------------------------------------------------------------- in a worker */

static void load(void *user, void *thread, struct shed_load *load)
{
    struct worker *w = user;
    unsigned version = atomic_load(&fleet->version);

    (void)thread;
    atomic_store(&fleet->load_ms, shed_now_ms());
    atomic_fetch_add(&fleet->loads, 1);
    atomic_fetch_add(&w->is_loading, 1);
    while (!atomic_load(&w->may_answer))
        usleep(500);
    for (size_t i = 0; i < load->count; i++)
        if (atomic_load(&fleet->is_failing))
            answer_failed(load, i, "the table is on fire");
        else
            answer_row(load, i, shed_bytes(&version, sizeof(version)));
    atomic_fetch_sub(&w->is_loading, 1);
    shed_load_done(load);
}

static void get_once(struct worker *w, struct shed_cache *cache)
{
    struct shed_value *value = NULL;
    unsigned version = 0;
    enum shed_code code = shed_get(cache, shed_str("k"), NULL, &value, NULL);

    if (code == SHED_OK) {
        memcpy(&version, value->data, sizeof(version));
        atomic_store(&w->origin, (int)value->origin);
        atomic_store(&w->knows_age, value->age_ms > 0);
    }
    shed_value_unref(value);
    atomic_store(&w->done_ms, shed_now_ms());
    atomic_store(&w->version, version);
    atomic_store(&w->code, code);
}

static void read_once(struct worker *w, struct shed_cache *cache)
{
    unsigned before = atomic_load(&w->gets);
    int origin;

    get_once(w, cache);
    if (atomic_load(&w->code) != SHED_OK)
        _exit(1);
    origin = atomic_load(&w->origin);
    if (before > 0 && origin != SHED_ORIGIN_REDIS &&
        origin != SHED_ORIGIN_STALE)
        atomic_fetch_add(&w->misses, 1);
    if (before > 0 || atomic_load(&w->knows_age))
        atomic_fetch_add(&w->gets, 1);
}

static struct shed_cache *told_of;

static void *tell_waits(void *arg)
{
    struct worker *w = arg;
    struct shed_stats stats;

    for (;; usleep(2000))
        if (shed_stats_read(told_of, &stats, sizeof(stats), NULL) == SHED_OK)
            atomic_store(&w->waits, stats.waits);
    return NULL;
}

static _Noreturn void work(struct worker *w)
{
    struct shed_source *source = NULL;
    struct shed_client *client = NULL;
    struct shed_client_options co = bare_client();
    struct shed_cache *cache = NULL;
    pthread_t teller;

    co.command_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    co.wait = wait_by;
    if (shed_client_open(server.uri, &co, &client, NULL) != SHED_OK ||
        shed_source_open_batch(load, w, BARE_SOURCE, &source, NULL) !=
            SHED_OK ||
        shed_cache_open(client, "t", source, &options, &cache, NULL) != SHED_OK)
        _exit(1);
    told_of = cache;
    if (pthread_create(&teller, NULL, tell_waits, w) != 0)
        _exit(1);
    atomic_store(&w->is_ready, true);
    for (; fleet->is_reading; usleep(200))
        read_once(w, cache);
    for (unsigned round = 0;;) {
        struct shed_stats stats;
        if (atomic_load(&w->round) == round) {
            usleep(500);
            continue;
        }
        get_once(w, cache);
        if (shed_stats_read(cache, &stats, sizeof(stats), NULL) == SHED_OK) {
            atomic_store(&w->superseded, stats.publishes_superseded);
            atomic_store(&w->invalidated, stats.publishes_invalidated);
        }
        atomic_store(&w->done, ++round);
    }
}

/* ------------------------------------------------------------- in the test */

static void make_fleet(void)
{
    fleet = share_memory(sizeof(*fleet));
    atomic_store(&fleet->version, 1);
    options.timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
    options.ttl_jitter_pct = 0;
    server_start(&server);
}

static void start_workers(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct worker *w = &fleet->workers[i];
        pid_t pid = fork_child();
        if (pid == 0)
            work(w);
        w->pid = pid; /* not in the child, because the memory is shared */
    }
    for (size_t i = 0; i < count; i++)
        WAIT_FOR(atomic_load(&fleet->workers[i].is_ready));
    if (wait_by == SHED_WAIT_AUTO)
        WAIT_FOR(server_clients(&server, "flags=t") == (int)count);
}

static void start_fleet(size_t count)
{
    make_fleet();
    start_workers(count);
}

static void stop_fleet(void)
{
    for (size_t i = 0; i < WORKERS_MAX; i++)
        kill_child(fleet->workers[i].pid);
    server_check_ttls(&server);
    server_stop(&server);
    munmap(fleet, sizeof(*fleet));
}

static void go(size_t i)
{
    atomic_fetch_add(&fleet->workers[i].round, 1);
}

static void let_answer(size_t i)
{
    atomic_store(&fleet->workers[i].may_answer, true);
}

static bool is_done(size_t i)
{
    struct worker *w = &fleet->workers[i];

    return atomic_load(&w->done) == atomic_load(&w->round);
}

static void check_worker(size_t i, unsigned version)
{
    WAIT_FOR(is_done(i));
    EXPECT_OK(atomic_load(&fleet->workers[i].code));
    ck_assert_uint_eq(atomic_load(&fleet->workers[i].version), version);
}

/* Make the first worker load, and all others wait for it. */
static void start_load_and_waiters(size_t count)
{
    go(0);
    WAIT_FOR(atomic_load(&fleet->workers[0].is_loading) == 1);
    for (size_t i = 1; i < count; i++)
        go(i);
    /* the first and each waiter have called acquire */
    WAIT_FOR(server_calls(&server, "evalsha") >= (long long)count);
}

static void signal_leader(int number)
{
    int status;

    ck_assert_int_eq(kill(fleet->workers[0].pid, number), 0);
    if (number == SIGSTOP) {
        waitpid(fleet->workers[0].pid, &status, WUNTRACED);
        ck_assert(WIFSTOPPED(status));
    }
}

/* -------------------------------------------------------------------- tests */

TEST(one_load_per_expiry_for_all_processes)
{
    enum { COUNT = 5, EXPIRIES = 20 };

    start_fleet(COUNT);
    for (size_t i = 0; i < COUNT; i++)
        let_answer(i);
    for (unsigned round = 1; round <= EXPIRIES; round++) {
        for (size_t i = 0; i < COUNT; i++)
            go(i);
        for (size_t i = 0; i < COUNT; i++)
            check_worker(i, round);
        ck_assert_uint_eq(atomic_load(&fleet->loads), round);
        atomic_store(&fleet->version, round + 1);
        /* as after an expiry */
        ck_assert_int_eq(server_int(&server, "DEL t:{k}"), 1);
    }
}

/* The lease of the record lasts for another minute; that the holder is gone is
 * known from its channel, which has no subscriber. */
TEST(a_killed_leader_is_replaced_long_before_its_lease_ends)
{
    enum { COUNT = 4, LEASE_MS = 60000, TAKEOVER_MAX_MS = 20000 };
    uint64_t kill_ms, taken_ms;

    options.lease_ms = LEASE_MS * scaled_ms(1);
    start_fleet(COUNT);
    for (size_t i = 1; i < COUNT; i++)
        let_answer(i);
    start_load_and_waiters(COUNT);
    kill_ms = shed_now_ms();
    signal_leader(SIGKILL);
    for (size_t i = 1; i < COUNT; i++)
        check_worker(i, 1);
    taken_ms = atomic_load(&fleet->load_ms) - kill_ms;
    printf("the next load began %llu ms after the kill\n",
           (unsigned long long)taken_ms);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 2);
    ck_assert_uint_lt(taken_ms, scaled_ms(TAKEOVER_MAX_MS));
}

/* A process that asks before its connections exist takes no lease that would
 * not name its channel. */
TEST(a_process_that_dies_in_its_first_load_is_replaced_too)
{
    enum { LEASE_MS = 60000 };

    options.lease_ms = LEASE_MS * scaled_ms(1);
    make_fleet();
    go(0);
    let_answer(1);
    start_workers(2);
    WAIT_FOR(atomic_load(&fleet->workers[0].is_loading) == 1);
    signal_leader(SIGKILL);
    go(1);
    check_worker(1, 1);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 2);
}

TEST(a_stopped_leader_is_replaced_once_and_does_no_harm_later)
{
    enum { COUNT = 4, LEASE_MS = 2000 };

    options.lease_ms = scaled_ms(LEASE_MS);
    start_fleet(COUNT);
    for (size_t i = 1; i < COUNT; i++)
        let_answer(i);
    start_load_and_waiters(COUNT);
    signal_leader(SIGSTOP);
    for (size_t i = 1; i < COUNT; i++)
        check_worker(i, 1);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 2);
    atomic_store(&fleet->version, 2);
    let_answer(0);
    signal_leader(SIGCONT);
    check_worker(0, 1); /* the row that its successor has published */
    ck_assert_uint_eq(atomic_load(&fleet->workers[0].superseded), 1);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 2);
}

TEST(what_a_leader_loaded_before_a_del_is_never_published_however_late)
{
    enum { COUNT = 2, LEASE_MS = 200 };

    options.lease_ms = scaled_ms(LEASE_MS);
    start_fleet(COUNT);
    let_answer(1);
    go(0);
    WAIT_FOR(atomic_load(&fleet->workers[0].is_loading) == 1);
    signal_leader(SIGSTOP);
    atomic_store(&fleet->version, 2);
    ck_assert_int_eq(server_int(&server, "DEL t:{k}"), 1);
    let_answer(0);
    signal_leader(SIGCONT);
    check_worker(0, 1); /* it had asked before the DEL */
    ck_assert_int_eq(atomic_load(&fleet->workers[0].origin),
                     SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_eq(atomic_load(&fleet->workers[0].invalidated), 1);
    ck_assert_int_eq(server_int(&server, "EXISTS t:{k}"), 0);
    go(1);
    check_worker(1, 2);
    go(0);
    check_worker(0, 2);
}

TEST(waiters_are_woken_by_the_publish)
{
    enum { COUNT = 6 };
    uint64_t answer_ms, last_ms = 0;

    start_fleet(COUNT);
    start_load_and_waiters(COUNT);
    answer_ms = shed_now_ms();
    let_answer(0);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t done_ms;
        check_worker(i, 1);
        done_ms = atomic_load(&fleet->workers[i].done_ms);
        last_ms = done_ms > last_ms ? done_ms : last_ms;
    }
    printf("the last of %d processes had its answer %llu ms after the load\n",
           COUNT, (unsigned long long)(last_ms - answer_ms));
    ck_assert_uint_eq(atomic_load(&fleet->loads), 1);
}

TEST(waiters_get_their_answer_though_pushes_are_killed_all_the_time)
{
    enum { COUNT = 4, KILLS = 50 };
    uint64_t end_ms;

    start_fleet(COUNT);
    start_load_and_waiters(COUNT);
    for (int i = 0; i < KILLS; i++)
        (void)server_int(&server, "CLIENT KILL TYPE pubsub");
    let_answer(0);
    for (size_t i = 1; i < COUNT; i++)
        let_answer(i); /* a leader whose channel is gone may be replaced */
    end_ms = test_deadline_ms();
    while (!is_done(0) || !is_done(1) || !is_done(2) || !is_done(3)) {
        (void)server_int(&server, "CLIENT KILL TYPE pubsub");
        ck_assert_uint_lt(shed_now_ms(), end_ms);
    }
    for (size_t i = 0; i < COUNT; i++)
        check_worker(i, 1);
    WAIT_FOR(server_clients(&server, "flags=t") == COUNT);
}

/* Each would fail by itself, one after the other, if it found no marker when it
 * looks: those that wait look at times of their own. */
static void fail_once_for_all(enum shed_wait wait)
{
    enum { COUNT = 6, TTL_MS = 1 };

    options.failure_ttl_ms = TTL_MS;
    wait_by = wait;
    start_fleet(COUNT);
    atomic_store(&fleet->is_failing, true);
    start_load_and_waiters(COUNT);
    for (size_t i = 1; i < COUNT; i++)
        WAIT_FOR(atomic_load(&fleet->workers[i].waits) == 1);
    for (size_t i = 0; i < COUNT; i++)
        let_answer(i);
    for (size_t i = 0; i < COUNT; i++) {
        WAIT_FOR(is_done(i));
        EXPECT_CODE(atomic_load(&fleet->workers[i].code), SHED_ESOURCE);
    }
    ck_assert_uint_eq(atomic_load(&fleet->loads), 1);
    go(1); /* it did not wait for that load, and makes one of its own */
    WAIT_FOR(is_done(1));
    ck_assert_uint_eq(atomic_load(&fleet->loads), 2);
}

TEST(waiters_that_poll_fail_with_the_load_and_do_not_load_in_turn)
{
    fail_once_for_all(SHED_WAIT_POLL);
}

TEST(waiters_with_pushes_fail_with_the_load_and_do_not_load_in_turn)
{
    fail_once_for_all(SHED_WAIT_AUTO);
}

/* ------------------------------------------------------- a row that is hot */

enum { READERS = 3 };

static void let_all_answer(bool may_answer)
{
    for (size_t i = 0; i < READERS; i++)
        atomic_store(&fleet->workers[i].may_answer, may_answer);
}

static void start_readers(uint64_t refresh_after_pct, uint64_t revalidate_ms)
{
    options.ttl_ms = AGEING_TTL_MS;
    options.refresh_after_pct = refresh_after_pct;
    options.stale_while_revalidate_ms = revalidate_ms;
    options.lease_ms = 100000;
    make_fleet();
    fleet->is_reading = true;
    let_all_answer(true);
    start_workers(READERS);
    for (size_t i = 0; i < READERS; i++)
        WAIT_FOR(atomic_load(&fleet->workers[i].gets) > 0);
}

static unsigned loading(void)
{
    unsigned sum = 0;

    for (size_t i = 0; i < READERS; i++)
        sum += atomic_load(&fleet->workers[i].is_loading);
    return sum;
}

static size_t loader(void)
{
    for (size_t i = 0; i < READERS; i++)
        if (atomic_load(&fleet->workers[i].is_loading) > 0)
            return i;
    ck_abort_msg("nobody loads");
}

static void await_version(unsigned version)
{
    for (size_t i = 0; i < READERS; i++)
        if (fleet->workers[i].pid != 0)
            WAIT_FOR(atomic_load(&fleet->workers[i].version) == version);
}

/* Everybody goes on reading the old row during the load. */
static void expect_reads_go_on(void)
{
    enum { GETS = 20 };

    for (size_t i = 0; i < READERS; i++) {
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
    let_all_answer(false);
    age_entry(&server, "t:{k}", age_ms);
    WAIT_FOR(server_calls(&server, "evalsha") >= asked + READERS);
    WAIT_FOR(loading() > 0);
    expect_reads_go_on();
    ck_assert_uint_eq(loading(), 1);
    let_all_answer(true);
    await_version(version);
    ck_assert_uint_eq(atomic_load(&fleet->loads), loads + 1);
}

static void expect_no_waits(void)
{
    for (size_t i = 0; i < READERS; i++)
        ck_assert_uint_eq(atomic_load(&fleet->workers[i].misses), 0);
}

TEST(a_hot_row_costs_one_load_per_refresh_and_nobody_waits)
{
    enum { REFRESHES = 30 };

    start_readers(AGEING_DUE_PCT, 0);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 1);
    for (unsigned i = 1; i <= REFRESHES; i++)
        refresh_once(AGEING_DUE_MS, i + 1);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 1 + REFRESHES);
    expect_no_waits();
}

TEST(a_stale_row_costs_one_load_and_nobody_waits)
{
    enum { REFRESHES = 10 };

    start_readers(0, AGEING_TTL_MS);
    for (unsigned i = 1; i <= REFRESHES; i++)
        refresh_once(AGEING_TTL_MS, i + 1);
    expect_no_waits();
}

TEST(a_refresher_that_is_killed_is_replaced_and_nobody_waits)
{
    size_t dead;

    start_readers(AGEING_DUE_PCT, 0);
    atomic_store(&fleet->version, 2);
    let_all_answer(false);
    age_entry(&server, "t:{k}", AGEING_DUE_MS);
    WAIT_FOR(loading() == 1);
    dead = loader();
    kill_child(fleet->workers[dead].pid);
    fleet->workers[dead].pid = 0;
    atomic_store(&fleet->workers[dead].is_loading, 0);
    WAIT_FOR(loading() == 1); /* long before the lease ends */
    expect_reads_go_on();
    let_all_answer(true);
    await_version(2);
    ck_assert_uint_eq(atomic_load(&fleet->loads), 3);
    expect_no_waits();
}

int main(void)
{
    options = bare_cache();
    tcase_add_checked_fixture(test_case(), NULL, stop_fleet);
    return run_tests("fleet");
}
