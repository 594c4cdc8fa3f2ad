/* Own writes, by several threads, while Redis refuses writes, loses connections
 * and its data: what a call has invalidated, a key, a tag or everything, no get
 * that begins after it gives out, whether Redis could be told or not. */
#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "support/fixture.h"
#include "support/random.h"

enum { WRITES = 400, READERS = 3, KEYS = 3 };

static const char *const keys[KEYS] = {"ka", "kb", "l"};

/* For each key the newest version of which an invalidation has returned. */
static atomic_uint floors[KEYS];
static atomic_bool is_over;
static atomic_uint gets, too_old;

static void raise_floor(size_t key, unsigned version)
{
    unsigned before = atomic_load(&floors[key]);

    while (before < version &&
           !atomic_compare_exchange_weak(&floors[key], &before, version))
        ;
}

/* ------------------------------------------------------------- the threads */

static void *read_again_and_again(void *seed)
{
    uint64_t random = (uintptr_t)seed;

    while (!atomic_load(&is_over)) {
        size_t key = random_next(&random) % KEYS;
        unsigned floor = atomic_load(&floors[key]), version = 0;
        struct shed_value *value = NULL;
        if (shed_get(fixture.cache, shed_str(keys[key]), NULL, &value, NULL) !=
            SHED_OK)
            continue;
        const char *text = memchr(value->data, '@', value->size);
        for (text++; text < (const char *)value->data + value->size; text++)
            version = version * 10 + (unsigned)(*text - '0');
        shed_value_unref(value);
        atomic_fetch_add(&gets, 1);
        if (version < floor)
            atomic_fetch_add(&too_old, 1);
    }
    return NULL;
}

static unsigned update(void)
{
    unsigned version;

    pthread_mutex_lock(&fixture.table.mu);
    version = ++fixture.table.version;
    pthread_mutex_unlock(&fixture.table.mu);
    return version;
}

/* Commit a version, and invalidate what it has changed. */
static void write_one(uint64_t random)
{
    struct shed_bytes tag = shed_str(random & 1 ? "k" : "l");
    unsigned version = update();
    size_t key = random / 8 % KEYS;
    struct shed_error err = {0};
    enum shed_code code;

    switch (random / 2 % 4) {
    case 0:
        code = shed_invalidate_all(fixture.cache, 0, &err);
        break;
    case 1:
        code = shed_invalidate(fixture.cache, shed_str(keys[key]), 0, &err);
        break;
    default:
        code = shed_invalidate_tags(fixture.cache, &tag, 1, 0, &err);
    }
    ck_assert_msg(code == SHED_OK ||
                      strstr(err.reason, "undelivered until") != NULL,
                  "%s", err.reason);
    for (size_t i = 0; i < KEYS; i++)
        if (random / 2 % 4 == 0 || (random / 2 % 4 == 1 && i == key) ||
            (random / 2 % 4 > 1 && keys[i][0] == *(const char *)tag.data))
            raise_floor(i, version);
}

/* ------------------------------------------------------------ the troubles */

static const char *const troubles[] = {
    "CONFIG SET min-replicas-to-write 1",
    "CONFIG SET min-replicas-to-write 0",
    "CONFIG SET min-replicas-to-write 0",
    "CLIENT KILL TYPE pubsub",
    "CLIENT KILL TYPE normal SKIPME yes",
    "DEL t:tags",
    "FLUSHALL",
    "PING",
};

static void make_trouble(uint64_t random)
{
    size_t count = sizeof(troubles) / sizeof(*troubles);

    freeReplyObject(server_run(&fixture.server, troubles[random % count]));
}

static void run(enum shed_redis_down redis_down)
{
    pthread_t readers[READERS];
    uint64_t random = 1;

    fixture.cache_options.redis_down = redis_down;
    fixture.cache_options.tags_limit = 3;
    fixture.table.has_tags = true;
    fixture_open(&fixture);
    for (size_t i = 0; i < READERS; i++)
        start_thread(&readers[i], read_again_and_again,
                     (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < WRITES; i++) {
        unsigned before = atomic_load(&gets);
        write_one(random_next(&random));
        if (i % 4 == 0)
            make_trouble(random_next(&random));
        WAIT_FOR(atomic_load(&gets) > before);
        ck_assert_uint_eq(atomic_load(&too_old), 0);
    }
    accept_writes();
    WAIT_FOR(undelivered() == 0);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    ck_assert_uint_eq(atomic_load(&too_old), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_dropped, 0);
}

TEST_EACH(nothing_older_than_an_own_write_is_read, 0, 2)
{
    run(_i == 0 ? SHED_REDIS_DOWN_SOURCE : SHED_REDIS_DOWN_STALE);
}

int main(void)
{
    return run_fixture_tests("own_writes");
}
