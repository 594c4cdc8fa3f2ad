/* Fifty processes that lose their server at the same moment, and retry: each
 * gets through again, and none is in the way of the others. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "support/bare.h"
#include "support/answers.h"
#include "support/child.h"
#include "support/server.h"
#include "support/testing.h"

enum { PROCESSES = 50, ROUNDS = 2, SILENCE_MS = 60000 };

/* One process; in memory that all share. */
struct worker {
    atomic_uint hits;  /* gets that Redis answered */
    atomic_uint holds; /* of the lock, which all want; acquired and released */
    atomic_uint refused; /* either was, because Redis was away */
};

static struct server server;
static struct worker *workers;

/* ------------------------------------------------------------- in a worker */

static void load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < load->count; i++)
        answer_row(load, i, shed_str("row"));
    shed_load_done(load);
}

static void get(struct worker *w, struct shed_cache *cache)
{
    struct shed_value *value = NULL;

    if (shed_get(cache, shed_str("k"), NULL, &value, NULL) != SHED_OK)
        _exit(1);
    if (value->origin == SHED_ORIGIN_REDIS)
        atomic_fetch_add(&w->hits, 1);
    shed_value_unref(value);
}

static void hold(struct worker *w, struct shed_lock *lock)
{
    enum shed_code code = shed_lock_acquire(lock, scaled_ms(1000), NULL);

    if (code == SHED_OK)
        code = shed_lock_release(lock, NULL);
    atomic_fetch_add(&w->holds, code == SHED_OK);
    atomic_fetch_add(&w->refused, code == SHED_EREDIS);
}

static _Noreturn void work(struct worker *w)
{
    struct shed_client_options co = bare_client();
    struct shed_cache_options o = bare_cache();
    struct shed_source *source = NULL;
    struct shed_client *client = NULL;
    struct shed_cache *cache = NULL;
    struct shed_lock *lock = NULL;

    co.connect_timeout_ms = scaled_ms(SILENCE_MS);
    co.command_timeout_ms = scaled_ms(SILENCE_MS);
    o.timeout_ms = scaled_ms(SILENCE_MS);
    if (shed_client_open(server.uri, &co, &client, NULL) != SHED_OK ||
        shed_source_open_batch(load, NULL, BARE_SOURCE, &source, NULL) !=
            SHED_OK ||
        shed_cache_open(client, "t", source, &o, &cache, NULL) != SHED_OK ||
        shed_lock_open(client, shed_str("l"), NULL, &lock, NULL) != SHED_OK)
        _exit(1);
    for (;; usleep(5000)) {
        get(w, cache);
        hold(w, lock);
    }
}

/* ------------------------------------------------------------- in the test */

/* Each gets through once more. */
static void wait_for_all(void)
{
    unsigned hits[PROCESSES], holds[PROCESSES];

    for (size_t i = 0; i < PROCESSES; i++) {
        hits[i] = atomic_load(&workers[i].hits);
        holds[i] = atomic_load(&workers[i].holds);
    }
    for (size_t i = 0; i < PROCESSES; i++)
        WAIT_FOR(atomic_load(&workers[i].hits) > hits[i] &&
                 atomic_load(&workers[i].holds) > holds[i]);
}

/* And to a server that is back nobody connects more often than it needs to. */
TEST(fifty_processes_that_lose_their_server_all_get_through_again)
{
    enum { CONNECTIONS = 4 }; /* two of the session, and those of a thread */
    char text[32];

    workers = share_memory(PROCESSES * sizeof(*workers));
    server_start(&server);
    for (size_t i = 0; i < PROCESSES; i++)
        if (fork_child() == 0)
            work(&workers[i]);
    wait_for_all();
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned refused[PROCESSES];
        for (size_t i = 0; i < PROCESSES; i++)
            refused[i] = atomic_load(&workers[i].refused);
        server_kill(&server);
        for (size_t i = 0; i < PROCESSES; i++)
            WAIT_FOR(atomic_load(&workers[i].refused) > refused[i]);
        server_start_again(&server);
        wait_for_all();
        server_info(&server, "total_connections_received", text, sizeof(text));
        ck_assert_uint_le(strtoul(text, NULL, 10), CONNECTIONS * PROCESSES);
    }
    server_stop(&server);
}

int main(void)
{
    return run_tests("retries");
}
