/* Four processes with near caches read a few rows without a pause, while
 * redis-cli and other clients change them, connections are killed, Redis is
 * emptied, and its tracking table is smaller than what is read. near_ms is far
 * longer than the test: a row that stayed near after a push that was lost, or
 * became near by a late answer, would never be seen to change. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

#include "support/answers.h"
#include "support/bare.h"
#include "support/child.h"
#include "support/random.h"
#include "support/server.h"
#include "support/testing.h"

enum {
    PROCESSES = 4,
    HOT = 8,       /* rows that are changed */
    KEYS = 300,    /* that are read */
    TRACKED = 100, /* by Redis, at most */
    ROUNDS = 120,
    CHANGES = 12,   /* of a round, at most */
    COLD_PART = 50, /* of the reads, one that is of any key */
    ACT_PART = 200  /* of the reads, one behind which a process writes */
};

static struct shared {
    atomic_uint committed[KEYS];
    atomic_uint floor[HOT]; /* what all processes have seen */
    struct {
        atomic_uint seen[HOT]; /* what its last get has given */
        atomic_uint too_old, near_hits;
    } process[PROCESSES];
} * shared;

static struct server server;
static bool by_prefix; /* Redis announces all changes of the cache */

/* ------------------------------------------------------------ in a process */

static void load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < load->count; i++) {
        unsigned key =
            (unsigned)strtoul((const char *)load->keys[i].key.data, NULL, 10);
        char text[16];
        snprintf(text, sizeof(text), "%u",
                 atomic_load(&shared->committed[key]));
        answer_row(load, i, shed_str(text));
    }
    shed_load_done(load);
}

static struct shed_cache *open_cache(void)
{
    struct shed_cache_options options = bare_cache();
    struct shed_client_options o = bare_client();
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_cache *cache = NULL;

    o.tracking_prefix = by_prefix ? "t:" : NULL;
    options.near_bytes = 4 << 20;
    options.near_ms = 3600000;
    options.ttl_ms = 3600000;
    if (shed_client_open(server.uri, &o, &client, NULL) != SHED_OK ||
        shed_source_open_batch(load, NULL, BARE_SOURCE, &source, NULL) !=
            SHED_OK ||
        shed_cache_open(client, "t", source, &options, &cache, NULL) != SHED_OK)
        abort();
    return cache;
}

/* Returns: 0 if it failed. */
static unsigned read_row(struct shed_cache *cache, struct shed_bytes key)
{
    struct shed_value *value;
    char text[16] = "";

    if (shed_get(cache, key, NULL, &value, NULL) != SHED_OK)
        return 0;
    memcpy(text, value->data, value->size);
    shed_value_unref(value);
    return (unsigned)strtoul(text, NULL, 10);
}

/* Returns: the version that this process must see from now on. */
static unsigned write_row(struct shed_cache *cache, unsigned i,
                          struct shed_bytes key)
{
    unsigned version = atomic_fetch_add(&shared->committed[i], 1) + 1;

    return shed_invalidate(cache, key, 0, NULL) == SHED_OK ? version : 0;
}

/* Only the first process writes: a write drops what its process has kept, and
 * would hide that nobody announced a change. */
static void read_rows(unsigned number)
{
    struct shed_cache *cache = open_cache();
    unsigned told[HOT] = {0}; /* by this process */
    uint64_t random = number;
    struct shed_stats stats;
    char key[8];

    for (unsigned gets = 0;; gets++) {
        uint64_t drawn = random_next(&random);
        unsigned i = (unsigned)(drawn / COLD_PART %
                                (drawn % COLD_PART == 0 ? KEYS : HOT));
        unsigned floor = i < HOT ? atomic_load(&shared->floor[i]) : 0, version;
        snprintf(key, sizeof(key), "%u", i);
        version = read_row(cache, shed_str(key));
        if (i >= HOT || version == 0)
            continue;
        if (version < floor || version < told[i])
            atomic_fetch_add(&shared->process[number].too_old, 1);
        atomic_store(&shared->process[number].seen[i], version);
        if (gets % ACT_PART != 0)
            continue;
        if (number == 0)
            told[i] = write_row(cache, i, shed_str(key));
        if (shed_stats_read(cache, &stats, sizeof(stats), NULL) == SHED_OK)
            atomic_store(&shared->process[number].near_hits,
                         (unsigned)stats.near_hits);
    }
}

/* ------------------------------------------------------------- the changes */

static void change(uint64_t random)
{
    unsigned i = (unsigned)(random % HOT);
    char command[128];

    atomic_fetch_add(&shared->committed[i], 1);
    if (random / HOT % 4 != 0) {
        server_do(&server, "DEL t:{%u}", i);
        return;
    }
    snprintf(command, sizeof(command),
             "redis-cli -s %s UNLINK 't:{%u}' >/dev/null", server.socket, i);
    ck_assert_int_eq(system(command), 0);
}

static const char *const troubles[] = {
    "CLIENT KILL TYPE pubsub",
    "CLIENT KILL TYPE normal SKIPME yes",
    "FLUSHALL",
    "CLIENT PAUSE 20 ALL",
    "PING",
};

static bool have_all_seen(const unsigned *versions)
{
    for (unsigned p = 0; p < PROCESSES; p++)
        for (unsigned i = 0; i < HOT; i++)
            if (atomic_load(&shared->process[p].seen[i]) < versions[i])
                return false;
    return true;
}

static void run_round(uint64_t *random)
{
    uint64_t trouble = random_next(random);
    unsigned changes = (unsigned)(1 + random_next(random) % CHANGES);
    unsigned versions[HOT];

    for (unsigned n = 0; n < changes; n++) {
        if (n == trouble / 8 % changes)
            freeReplyObject(server_run(
                &server,
                troubles[trouble % (sizeof(troubles) / sizeof(*troubles))]));
        change(random_next(random));
    }
    for (unsigned i = 0; i < HOT; i++)
        versions[i] = atomic_load(&shared->committed[i]);
    WAIT_FOR(have_all_seen(versions));
    for (unsigned i = 0; i < HOT; i++)
        atomic_store(&shared->floor[i], versions[i]);
}

TEST_EACH(each_change_is_seen_by_every_process, 0, 2)
{
    uint64_t random = 1;

    by_prefix = _i == 1;
    shared = share_memory(sizeof(*shared));
    for (unsigned i = 0; i < KEYS; i++)
        atomic_store(&shared->committed[i], 1);
    server_start(&server);
    server_do(&server, "CONFIG SET tracking-table-max-keys %d", TRACKED);
    for (unsigned number = 0; number < PROCESSES; number++)
        if (fork_child() == 0)
            read_rows(number);
    for (unsigned n = 0; n < ROUNDS; n++)
        run_round(&random);
    for (unsigned number = 0; number < PROCESSES; number++) {
        ck_assert_uint_eq(atomic_load(&shared->process[number].too_old), 0);
        ck_assert_uint_gt(atomic_load(&shared->process[number].near_hits), 100);
    }
    server_stop(&server);
}

int main(void)
{
    return run_tests("near_hunt");
}
