/* Puts with row versions, loads by sources that lag, and invalidations, in
 * random orders. While a key is not invalidated, neither the version in Redis
 * nor that of a row which is given out goes back. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ageing.h"
#include "support/fixture.h"
#include "support/random.h"

enum {
    PROCESSES = 2,
    READERS = 2 * PROCESSES,
    ORDERS = 100,
    STEPS = 12,
    VERSIONS = 9,
    MAX_AGE_MS = 5000,
    AGE_MS = 2 * MAX_AGE_MS,
    KEY_BYTES = 32
};

/* A get that may not have what Redis has. */
struct reader {
    struct shed_cache *cache;
    pthread_t thread;
    bool is_running;
    atomic_bool is_done;
    uint64_t oldest; /* the lowest version that it may be given */
    enum shed_code code;
    struct shed_value *value;
};

static struct peer peers[PROCESSES];
static struct reader readers[READERS];
static char key[KEY_BYTES];      /* a new one for each order */
static char name[KEY_BYTES + 8]; /* in Redis */
static uint64_t floor_version;   /* the highest since the last invalidation */

/* Loads read their version when they begin, and are held until a reader ends.
 */
static void up(void)
{
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.table.has_versions = true;
    fixture.table.is_async = true;
    fixture_open(&fixture);
    put(fixture.cache, "clock", "row");
    for (size_t i = 0; i < PROCESSES; i++) {
        peer_open(&peers[i], &fixture);
        WAIT_FOR(knows_the_clock(peers[i].cache));
    }
    for (size_t i = 0; i < READERS; i++)
        readers[i].cache = peers[i % PROCESSES].cache;
    table_hold(&fixture.table);
}

/* -------------------------------------------------------------- in Redis */

#define IF_VALUE                                                               \
    "local b = redis.call('GET', KEYS[1]) "                                    \
    "if not b or string.sub(b, 6, 6) ~= 'V' then return -1 end "

/* The row version of the value there; -1: there is none. */
static long long version_there(void)
{
    static const char script[] =
        IF_VALUE "return struct.unpack('>I4', string.sub(b, 61, 64))";

    return server_int(&fixture.server, "EVAL %s 1 %s", script, name);
}

/* Make a value old, if there is one. */
static void age_value(void)
{
    static const char script[] =
        IF_VALUE "local x, y = struct.unpack('>I8I8', string.sub(b, 41, 56)) "
                 "redis.call('SETRANGE', KEYS[1], 40, "
                 "struct.pack('>I8I8', x - ARGV[1], y - ARGV[1])) return 1";

    (void)server_int(&fixture.server, "EVAL %s 1 %s %d", script, name, AGE_MS);
}

static void check(void)
{
    long long there = version_there();

    ck_assert_msg(there >= (long long)floor_version || floor_version == 0,
                  "version %lld after %llu", there,
                  (unsigned long long)floor_version);
    if (there > 0)
        floor_version = (uint64_t)there;
}

/* -------------------------------------------------------------------- steps */

static void *run_reader(void *arg)
{
    struct reader *r = arg;
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;

    options.max_age_ms = MAX_AGE_MS;
    r->code = shed_get(r->cache, shed_str(key), &options, &r->value, NULL);
    atomic_store(&r->is_done, true);
    return NULL;
}

static uint64_t waiting(const struct reader *r)
{
    struct shed_stats stats = stats_of(r->cache);

    return stats.waits + stats.joins;
}

/* version: what a load would read now. */
static void begin(struct reader *r, unsigned version)
{
    uint64_t before = waiting(r);
    unsigned held = table_running(&fixture.table);

    if (r->is_running)
        return;
    age_value();
    table_set_version(&fixture.table, version);
    r->is_running = true;
    r->is_done = false;
    r->oldest = floor_version;
    start_thread(&r->thread, run_reader, r);
    WAIT_FOR(table_running(&fixture.table) > held || atomic_load(&r->is_done) ||
             waiting(r) > before);
}

/* One that has failed was given nothing. */
static void judge(struct reader *r)
{
    char text[KEY_BYTES + 8] = "";
    uint64_t version;

    if (r->code != SHED_OK)
        return;
    ck_assert_int_eq(r->value->kind, SHED_KIND_ROW);
    ck_assert_uint_lt(r->value->size, sizeof(text));
    memcpy(text, r->value->data, r->value->size);
    version = strtoull(strchr(text, '@') + 1, NULL, 10);
    ck_assert_msg(version >= r->oldest, "%s after %llu, origin %d", text,
                  (unsigned long long)r->oldest, r->value->origin);
    shed_value_unref(r->value);
}

static void end(struct reader *r)
{
    if (!r->is_running)
        return;
    while (!atomic_load(&r->is_done)) {
        WAIT_FOR(atomic_load(&r->is_done) || table_running(&fixture.table) > 0);
        table_release(&fixture.table);
        table_hold(&fixture.table);
    }
    pthread_join(r->thread, NULL);
    r->is_running = false;
    judge(r);
}

/* The row that was put, or a later one, is there from now on. */
static void put_row(struct shed_cache *cache, uint64_t version)
{
    char row[KEY_BYTES + 8];

    snprintf(row, sizeof(row), "%s@%llu", key, (unsigned long long)version);
    EXPECT_OK(shed_put(cache, shed_str(key), shed_str(row), AT_VERSION(version),
                       NULL));
    if (floor_version < version)
        floor_version = version;
}

static void forget(struct shed_cache *cache)
{
    invalidate(cache, key);
    floor_version = 0;
    for (size_t i = 0; i < READERS; i++)
        readers[i].oldest = 0;
}

static void do_step(uint64_t draw)
{
    struct shed_cache *cache = peers[draw / 16 % PROCESSES].cache;
    struct reader *reader = &readers[draw / 64 % READERS];
    unsigned version = 1 + (unsigned)(draw / 256 % VERSIONS);

    if (draw % 16 < 4)
        put_row(cache, version);
    else if (draw % 16 < 5)
        forget(cache);
    else if (draw % 16 < 6)
        EXPECT_OK(shed_expire(cache, shed_str(key), 0, 0, NULL));
    else if (draw % 16 < 11)
        begin(reader, version);
    else
        end(reader);
    check();
}

TEST(no_random_order_brings_back_a_version)
{
    up();
    for (uint64_t order = 0; order < ORDERS; order++) {
        uint64_t seed = order;

        snprintf(key, sizeof(key), "k%u", (unsigned)order);
        snprintf(name, sizeof(name), "t:{%s}", key);
        floor_version = 0;
        for (unsigned i = 0; i < STEPS; i++)
            do_step(random_next(&seed));
        for (size_t i = 0; i < READERS; i++)
            end(&readers[i]);
        check();
    }
    ck_assert_uint_gt(stats_of(peers[0].cache).load_failures, 0);
    for (size_t i = 0; i < PROCESSES; i++)
        peer_close(&peers[i]);
    table_release(&fixture.table);
}

int main(void)
{
    return run_fixture_tests("version_orders");
}
