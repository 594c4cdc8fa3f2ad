/* fleet_loads with several processes: never more loads at a time than the
 * budget; and what happens when a process dies with slots, or Redis loses or
 * ends them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/bare.h"
#include "support/answers.h"
#include "support/child.h"
#include "support/fixture.h"

enum { WORKERS = 3, THREADS = 6, BUDGET = 2, MAX_LOADS = 4 };

/* The library takes Redis for away after a tenth of it; a test that counts
 * loads must not see that because the machine was slow. */
#define SILENCE_MS 600000

/* One process, whose threads get a new key each time. */
struct worker {
    pid_t pid;
    atomic_uint loads, gets, failures;
    atomic_uint is_loading;
    atomic_bool may_answer; /* its loads may answer */
    uint64_t load_timeout_ms;
};

/* In memory that all processes share. */
struct fleet {
    atomic_uint alive, most_alive; /* loads, in all processes */
    atomic_bool is_over;
    struct worker workers[WORKERS];
};

static struct server server;
static struct fleet *fleet;
static uint64_t fleet_loads = BUDGET;

/* ------------------------------------------------------------- in a worker */

static void raise_to(atomic_uint *most, unsigned value)
{
    unsigned seen = atomic_load(most);

    while (seen < value && !atomic_compare_exchange_weak(most, &seen, value))
        ;
}

static void load(void *user, void *thread, struct shed_load *load)
{
    struct worker *w = user;

    (void)thread;
    raise_to(&fleet->most_alive, atomic_fetch_add(&fleet->alive, 1) + 1);
    atomic_fetch_add(&w->loads, 1);
    atomic_fetch_add(&w->is_loading, 1);
    do
        usleep(1000); /* the query */
    while (!atomic_load(&w->may_answer));
    for (size_t i = 0; i < load->count; i++)
        answer_row(load, i, load->keys[i].key);
    atomic_fetch_sub(&w->is_loading, 1);
    atomic_fetch_sub(&fleet->alive, 1);
    shed_load_done(load);
}

struct reader {
    pthread_t thread;
    struct worker *worker;
    struct shed_cache *cache;
    unsigned number;
};

static void get_once(struct reader *r, unsigned round)
{
    struct shed_value *value = NULL;
    char key[48];

    snprintf(key, sizeof(key), "%d.%u.%u", (int)getpid(), r->number, round);
    if (shed_get(r->cache, shed_str(key), NULL, &value, NULL) != SHED_OK ||
        value->size != strlen(key) ||
        memcmp(value->data, key, strlen(key)) != 0)
        atomic_fetch_add(&r->worker->failures, 1);
    shed_value_unref(value);
    atomic_fetch_add(&r->worker->gets, 1);
}

static void *read_on(void *arg)
{
    struct reader *r = arg;

    for (unsigned round = 0; !atomic_load(&fleet->is_over); round++)
        get_once(r, round);
    return NULL;
}

static void open_all(struct worker *w, struct shed_client **client,
                     struct shed_source **source, struct shed_cache **cache)
{
    struct shed_client_options co = bare_client();
    struct shed_source_options so = bare_source();
    struct shed_cache_options options = bare_cache();

    co.command_timeout_ms = SILENCE_MS;
    so.max_loads = MAX_LOADS;
    so.max_batch = 2;
    so.load_timeout_ms = w->load_timeout_ms;
    so.fleet_loads = fleet_loads;
    options.timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
    if (shed_client_open(server.uri, &co, client, NULL) != SHED_OK ||
        shed_source_open_batch(load, w, &so, source, NULL) != SHED_OK ||
        shed_cache_open(*client, "t", *source, &options, cache, NULL) !=
            SHED_OK)
        _exit(1);
}

static _Noreturn void work(struct worker *w)
{
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct reader readers[THREADS];
    struct shed_cache *cache = NULL;

    open_all(w, &client, &source, &cache);
    for (unsigned i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.worker = w, .cache = cache, .number = i};
        if (pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) != 0)
            _exit(1);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(readers[i].thread, NULL);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    _exit(0);
}

/* ------------------------------------------------------------- in the test */

static void set_up(void)
{
    fleet = share_memory(sizeof(*fleet));
    for (size_t i = 0; i < WORKERS; i++) {
        atomic_store(&fleet->workers[i].may_answer, true);
        fleet->workers[i].load_timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
    }
    server = (struct server){.has_clock = true};
    server_start(&server);
}

static void start_worker(size_t i)
{
    pid_t pid = fork_child();

    if (pid == 0)
        work(&fleet->workers[i]);
    fleet->workers[i].pid = pid; /* not in the child, the memory is shared */
}

static void start_workers(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        start_worker(i);
}

/* Let the workers end, and expect that all of their gets were answered. */
static void tear_down(void)
{
    atomic_store(&fleet->is_over, true);
    for (size_t i = 0; i < WORKERS; i++) {
        struct worker *w = &fleet->workers[i];
        if (w->pid == 0)
            continue;
        expect_success(w->pid);
        ck_assert_uint_eq(atomic_load(&w->failures), 0);
    }
    server_check_ttls(&server);
    server_stop(&server);
    munmap(fleet, sizeof(*fleet));
}

/* Wait until each worker has made this many more gets. */
static void expect_gets(unsigned more)
{
    unsigned before[WORKERS];

    for (size_t i = 0; i < WORKERS; i++)
        before[i] = atomic_load(&fleet->workers[i].gets);
    for (size_t i = 0; i < WORKERS; i++)
        if (fleet->workers[i].pid != 0)
            WAIT_FOR(atomic_load(&fleet->workers[i].gets) >= before[i] + more);
}

static long long has_slots_in_redis(void)
{
    return server_int(&server, "EXISTS t:loads");
}

/* ------------------------------------------------------------------- tests */

TEST(never_more_loads_are_alive_than_the_budget_and_each_process_gets_some)
{
    enum { GETS = 100 };

    start_workers();
    expect_gets(GETS);
    ck_assert_uint_le(atomic_load(&fleet->most_alive), BUDGET);
    for (size_t i = 0; i < WORKERS; i++)
        ck_assert_uint_gt(atomic_load(&fleet->workers[i].loads), 0);
}

/* What the tests above would show if the budget did nothing. */
TEST(without_it_the_sum_is_more)
{
    fleet_loads = 0;
    start_workers();
    WAIT_FOR(atomic_load(&fleet->most_alive) > BUDGET);
}

TEST(all_slots_are_given_back_at_the_end)
{
    enum { GETS = 20 };

    start_workers();
    expect_gets(GETS);
    atomic_store(&fleet->is_over, true);
    for (size_t i = 0; i < WORKERS; i++) {
        ck_assert_int_eq(waitpid(fleet->workers[i].pid, NULL, 0),
                         fleet->workers[i].pid);
        fleet->workers[i].pid = 0;
    }
    ck_assert_int_eq(has_slots_in_redis(), 0);
}

enum { DEAD_LOAD_MS = 1000, STEP_S = 3600 };

/* A process dies with all the slots. */
static void use_up_and_die(void)
{
    struct worker *dead = &fleet->workers[0];

    dead->load_timeout_ms = DEAD_LOAD_MS;
    atomic_store(&dead->may_answer, false);
    start_worker(0);
    WAIT_FOR(atomic_load(&dead->is_loading) == BUDGET);
    kill_child(dead->pid);
    dead->pid = 0;
    atomic_store(&fleet->alive, 0);
}

static void expect_loads_of_another(void)
{
    start_worker(1);
    WAIT_FOR(atomic_load(&fleet->workers[1].loads) > 0);
    expect_gets(1);
}

TEST(a_process_that_is_killed_leaves_its_slots_for_a_load_time)
{
    enum { MARGIN_MS = 1000 };
    uint64_t begin_ms = shed_now_ms();

    use_up_and_die();
    expect_loads_of_another();
    ck_assert_uint_ge(shed_now_ms() - begin_ms, DEAD_LOAD_MS + MARGIN_MS);
}

static long long waiting_in_redis(void)
{
    return server_int(&server, "ZCOUNT t:loads -inf (0");
}

TEST(a_process_that_is_killed_while_it_waits_counts_for_a_moment_only)
{
    enum { MOMENT_MS = 2000 };
    struct worker *busy = &fleet->workers[0], *dead = &fleet->workers[1];
    uint64_t begin_ms;

    atomic_store(&busy->may_answer, false);
    start_worker(0);
    WAIT_FOR(atomic_load(&busy->is_loading) == BUDGET);
    start_worker(1);
    WAIT_FOR(waiting_in_redis() == 2); /* the first one wants more, too */
    kill_child(dead->pid);
    dead->pid = 0;
    begin_ms = shed_now_ms();
    WAIT_FOR(waiting_in_redis() < 2);
    ck_assert_uint_le(shed_now_ms() - begin_ms, scaled_ms(MOMENT_MS));
    atomic_store(&busy->may_answer, true);
}

TEST(a_clock_that_is_set_back_does_not_prolong_the_slots_of_the_dead)
{
    server_skew(&server, STEP_S);
    use_up_and_die();
    server_skew(&server, 0);
    expect_loads_of_another();
}

/* The script's calls, of which a waiting process makes several a second. */
static void expect_asks(void)
{
    enum { ASKS = 20 };
    long long before = server_calls(&server, "evalsha");

    WAIT_FOR(server_calls(&server, "evalsha") >= before + ASKS);
}

TEST(a_clock_that_is_set_does_not_end_the_slots_of_loads_under_way)
{
    struct worker *busy = &fleet->workers[0];

    atomic_store(&busy->may_answer, false);
    start_worker(0);
    start_worker(1);
    atomic_store(&fleet->workers[1].may_answer, false);
    WAIT_FOR(atomic_load(&fleet->alive) == BUDGET);
    expect_asks();
    server_skew(&server, STEP_S);
    expect_asks();
    server_skew(&server, -STEP_S);
    expect_asks();
    ck_assert_uint_eq(atomic_load(&fleet->most_alive), BUDGET);
    atomic_store(&busy->may_answer, true);
    atomic_store(&fleet->workers[1].may_answer, true);
    expect_gets(1);
}

TEST(all_is_answered_though_redis_loses_its_data)
{
    enum { FLUSHES = 10, GETS = 10 };

    start_workers();
    for (unsigned i = 0; i < FLUSHES; i++) {
        expect_gets(GETS);
        server_do(&server, "FLUSHALL");
    }
    expect_gets(GETS);
}

TEST(all_is_answered_though_redis_is_killed_and_the_budget_holds_after_it)
{
    enum { GETS = 20 };
    uint64_t end_ms;

    start_workers();
    expect_gets(GETS);
    server_kill(&server);
    expect_gets(GETS);
    server_start_again(&server);
    for (end_ms = test_deadline_ms();;) {
        atomic_store(&fleet->most_alive, 0);
        expect_gets(GETS);
        if (atomic_load(&fleet->most_alive) <= BUDGET && has_slots_in_redis())
            break;
        ck_assert_uint_lt(shed_now_ms(), end_ms);
    }
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("fleet_deaths");
}
