/* A hot key that ends by its own time to live costs one load for each time,
 * for any number of threads and processes, and whatever a client believes of
 * the server's clock. What is counted are loads and the entries that they have
 * stored, so that a slow machine changes neither. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/stats.h>

#include "client/client.h"
#include "wire/address.h"
#include "support/bare.h"
#include "support/answers.h"
#include "support/child.h"
#include "support/server.h"
#include "support/testing.h"

enum {
    LOADS = 14, /* of each case */
    THREADS_MAX = 64,
    PROCESSES_MAX = 4,
    TTL_MS = 40,
    LOAD_MS = 5,
    SILENCE_MS = 60000,
    LEASE_MS = 100000,
    TRIES = 5
};

struct scene {
    unsigned processes, threads;
    bool is_absent; /* there is no such row */
    uint64_t refresh_after_pct, revalidate_ms, if_error_ms;
    uint64_t load_ms; /* 0: LOAD_MS */
    int skew_ms;      /* of the estimate of the server's clock */
};

/* In memory that all processes share. */
struct fleet {
    atomic_uint loads, ready;
    atomic_bool may_begin, is_over;
    struct shed_stats stats[PROCESSES_MAX];
};

static struct server server;
static struct fleet *fleet;

/* ------------------------------------------------------------ in a process */

static const struct scene *scene;
static struct shed_cache *cache;

/* Whether a row is loaded again while the old one is there. */
static bool is_refreshed(void)
{
    return scene->refresh_after_pct + scene->revalidate_ms +
               scene->if_error_ms >
           0;
}

static void load(void *user, void *thread, struct shed_load *l)
{
    (void)user;
    (void)thread;
    if (atomic_fetch_add(&fleet->loads, 1) + 1 >= LOADS)
        atomic_store(&fleet->is_over, true);
    /* what a load costs */
    usleep((scene->load_ms > 0 ? (unsigned)scene->load_ms : LOAD_MS) * 1000);
    for (size_t i = 0; i < l->count; i++)
        if (scene->is_absent)
            answer_absent(l, i);
        else
            answer_row(l, i, shed_str("row"));
    shed_load_done(l);
}

static void *read_on(void *arg)
{
    while (!atomic_load(&fleet->may_begin))
        usleep(1000);
    while (!atomic_load(&fleet->is_over)) {
        struct shed_value *value = NULL;
        if (shed_get(cache, shed_str("k"), NULL, &value, NULL) != SHED_OK)
            _exit(2);
        shed_value_unref(value);
        usleep(200);
    }
    return arg;
}

static void read_stats(struct shed_stats *out)
{
    if (shed_stats_read(cache, out, sizeof(*out), NULL) != SHED_OK)
        _exit(3);
}

/* Until the loads that are under way have been stored, or refused. */
static void settle(struct shed_stats *out)
{
    uint64_t end_ms = test_deadline_ms();

    do {
        usleep(1000);
        read_stats(out);
    } while (shed_now_ms() < end_ms &&
             out->leases_won + out->refreshes + out->leases_taken_over >
                 out->published + out->publishes_invalidated +
                     out->publishes_superseded);
}

static struct shed_cache_options options_of_scene(void)
{
    struct shed_cache_options o = bare_cache();

    o.ttl_ms = o.negative_ttl_ms = TTL_MS;
    o.ttl_jitter_pct = 0;
    o.timeout_ms = scaled_ms(SILENCE_MS);
    o.lease_ms = LEASE_MS;
    o.refresh_after_pct = scene->refresh_after_pct;
    o.stale_while_revalidate_ms = scene->revalidate_ms;
    o.stale_if_error_ms = scene->if_error_ms;
    return o;
}

static _Noreturn void work(size_t me)
{
    struct shed_client_options co = bare_client();
    struct shed_cache_options o = options_of_scene();
    struct shed_source *source = NULL;
    struct shed_client *client = NULL;
    pthread_t thread[THREADS_MAX];

    co.command_timeout_ms = scaled_ms(SILENCE_MS);
    if (shed_client_open(server.uri, &co, &client, NULL) != SHED_OK ||
        shed_source_open_batch(load, NULL, BARE_SOURCE, &source, NULL) !=
            SHED_OK ||
        shed_cache_open(client, "t", source, &o, &cache, NULL) != SHED_OK)
        _exit(1);
    atomic_fetch_add(&client->address->clock.offset_ms, scene->skew_ms);
    for (unsigned i = 0; i < scene->threads; i++)
        if (pthread_create(&thread[i], NULL, read_on, NULL) != 0)
            _exit(1);
    atomic_fetch_add(&fleet->ready, 1);
    for (unsigned i = 0; i < scene->threads; i++)
        (void)pthread_join(thread[i], NULL);
    settle(&fleet->stats[me]);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    _exit(0);
}

/* ------------------------------------------------------------- in the test */

static void run_fleet(struct shed_stats *sum)
{
    pid_t pid[PROCESSES_MAX];

    *sum = (struct shed_stats){0};
    server_start(&server);
    for (size_t i = 0; i < scene->processes; i++) {
        pid[i] = fork_child();
        if (pid[i] == 0)
            work(i);
    }
    WAIT_FOR(atomic_load(&fleet->ready) == scene->processes);
    atomic_store(&fleet->may_begin, true);
    for (size_t i = 0; i < scene->processes; i++) {
        const struct shed_stats *s = &fleet->stats[i];
        expect_success(pid[i]);
        sum->published += s->published;
        sum->publishes_invalidated += s->publishes_invalidated;
        sum->publishes_superseded += s->publishes_superseded;
        sum->leases_won += s->leases_won;
        sum->refreshes += s->refreshes;
    }
    server_check_ttls(&server);
    server_stop(&server);
}

/* Where the machine stops for longer than Redis keeps a value that ends under
 * its refresh, a load is in vain: then it is tried again. */
static void count_loads(struct shed_stats *sum, uint64_t *lasted_ms)
{
    unsigned tries = is_refreshed() ? TRIES : 1;

    do {
        uint64_t began_ms = shed_now_ms();
        fleet = share_memory(sizeof(*fleet));
        run_fleet(sum);
        *lasted_ms = shed_now_ms() - began_ms;
    } while (atomic_load(&fleet->loads) != sum->published && --tries > 0);
}

static const struct scene scenes[] = {
    {.processes = 1, .threads = 1},
    {.processes = 1, .threads = 16},
    {.processes = 1, .threads = 64},
    {.processes = 4, .threads = 8},
    {.processes = 1, .threads = 1, .is_absent = true},
    {.processes = 1, .threads = 16, .is_absent = true},
    {.processes = 4, .threads = 8, .is_absent = true},
    {.processes = 1, .threads = 4, .skew_ms = 15},
    {.processes = 1, .threads = 4, .skew_ms = -5},
    {.processes = 4, .threads = 4, .skew_ms = 15},
    {.processes = 1, .threads = 16, .revalidate_ms = 1000},
    {.processes = 4, .threads = 4, .revalidate_ms = 1000},
    {.processes = 1, .threads = 16, .if_error_ms = 1000},
    {.processes = 1, .threads = 16, .refresh_after_pct = 50},
    /* a refresh that outlasts the row */
    {1, 16, .refresh_after_pct = 75, .load_ms = 30},
    {4, 4, .refresh_after_pct = 75, .load_ms = 30},
    /* and the stale window */
    {1, 16, .revalidate_ms = 10, .load_ms = 30},
    {4, 4, .revalidate_ms = 10, .load_ms = 30, .skew_ms = 15},
};

TEST_EACH(each_end_of_a_hot_key_costs_one_load, 0, COUNT_OF(scenes))
{
    struct shed_stats sum;
    uint64_t lasted_ms;
    unsigned loads;

    scene = &scenes[_i];
    count_loads(&sum, &lasted_ms);
    loads = atomic_load(&fleet->loads);
    ck_assert_msg(loads == sum.published && sum.publishes_invalidated == 0 &&
                      sum.publishes_superseded == 0,
                  "%u loads, %llu stored, %llu invalidated, %llu superseded",
                  loads, (unsigned long long)sum.published,
                  (unsigned long long)sum.publishes_invalidated,
                  (unsigned long long)sum.publishes_superseded);
    ck_assert_uint_eq(sum.leases_won + sum.refreshes, loads);
    if (!is_refreshed()) {
        ck_assert_uint_eq(sum.refreshes, 0);
        ck_assert_uint_le(loads, lasted_ms / TTL_MS + 1);
    }
}

int main(void)
{
    return run_tests("expiries");
}
