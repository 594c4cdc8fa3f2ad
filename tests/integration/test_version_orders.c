/* Puts with row versions, loads by sources that lag, and invalidations, in
 * random orders. While a key is not invalidated, neither the version in Redis
 * nor that of a row which is given out goes back.
 *
 * And all kinds of writes by two processes, of which one loses its connections,
 * with a source that reads the present: no get that begins after a write has
 * been told of is given an older row. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ageing.h"
#include "support/fixture.h"
#include "support/random.h"

#define PROCESSES 2
#define READERS (2 * PROCESSES)
#define MAX_AGE_MS 5000
#define AGE_MS (2 * MAX_AGE_MS)
#define KEY_BYTES 32
#define PARKED_MAX 8

/* A load that has read its version and is not answered yet. */
struct held_load {
    struct shed_load *load;
    uint64_t version;
};

struct process {
    struct peer peer;
    uint64_t told; /* the newest version that it has told of */
};

/* A get that may not have what Redis has. */
struct reader {
    struct process *process;
    pthread_t thread;
    bool is_running;
    atomic_bool is_done;
    uint64_t oldest;       /* the lowest version that it may be given */
    uint64_t oldest_stale; /* of a stale one */
    enum shed_code code;
    struct shed_error error;
    struct shed_value *value;
};

static struct process processes[PROCESSES];
static struct reader readers[READERS];
static char key[KEY_BYTES];      /* a new one for each order */
static char name[KEY_BYTES + 8]; /* in Redis */
static uint64_t floor_version;   /* the highest since the last invalidation */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
/* under mu */
static struct held_load parked[PARKED_MAX];
static size_t parked_count;
static uint64_t next_version; /* that a load reads */

/* ------------------------------------------------------------------- source */

static void park(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    pthread_mutex_lock(&mu);
    ck_assert_uint_lt(parked_count, PARKED_MAX);
    parked[parked_count++] = (struct held_load){load, next_version};
    pthread_mutex_unlock(&mu);
}

static size_t count_parked(void)
{
    size_t count;

    pthread_mutex_lock(&mu);
    count = parked_count;
    pthread_mutex_unlock(&mu);
    return count;
}

static void read_from_now_on(uint64_t version)
{
    pthread_mutex_lock(&mu);
    next_version = version;
    pthread_mutex_unlock(&mu);
}

static void answer_held(const struct held_load *p)
{
    struct shed_answer answer = SHED_ANSWER_INIT;
    char row[KEY_BYTES];

    snprintf(row, sizeof(row), "%llu", (unsigned long long)p->version);
    answer.kind = SHED_ANSWER_ROW;
    answer.row = shed_str(row);
    answer.version = &p->version;
    answer.tags_count = 1;
    for (size_t i = 0; i < p->load->count; i++) {
        answer.tags = &p->load->keys[i].key;
        shed_load_answer(p->load, i, &answer);
    }
    shed_load_done(p->load);
}

static void answer_all(void)
{
    struct held_load now[PARKED_MAX];
    size_t count;

    pthread_mutex_lock(&mu);
    memcpy(now, parked, sizeof(now));
    count = parked_count;
    parked_count = 0;
    pthread_mutex_unlock(&mu);
    for (size_t i = 0; i < count; i++)
        answer_held(&now[i]);
}

/* --------------------------------------------------------------- up, down */

static void open_cache(void)
{
    shed_cache_close(fixture.cache);
    shed_source_close(fixture.source);
    EXPECT_OK(shed_source_open_batch(park, NULL, &fixture.source_options,
                                     &fixture.source, NULL));
    EXPECT_OK(shed_cache_open(fixture.client, "t", fixture.source,
                              &fixture.cache_options, &fixture.cache, NULL));
}

/* The first one connects to the proxy, if there is one. */
static void open_processes(void)
{
    put(fixture.cache, "clock", "row");
    for (size_t i = 0; i < PROCESSES; i++) {
        peer_open(&processes[i].peer, &fixture);
        fixture.uri = NULL;
        WAIT_FOR(knows_the_clock(processes[i].peer.cache));
    }
    for (size_t i = 0; i < READERS; i++)
        readers[i].process = &processes[i % PROCESSES];
}

static void up(void)
{
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture_open(&fixture);
    open_cache();
    open_processes();
}

static void down(void)
{
    for (size_t i = 0; i < PROCESSES; i++)
        peer_close(&processes[i].peer);
    fixture_down(&fixture);
}

/* -------------------------------------------------------------- in Redis */

/* The row version of the value there; -1: there is none. */
static long long version_there(void)
{
    static const char script[] =
        "local b = redis.call('GET', KEYS[1]) "
        "if not b or string.sub(b, 6, 6) ~= 'V' then return -1 end "
        "return struct.unpack('>I4', string.sub(b, 61, 64))";

    return server_int(&fixture.server, "EVAL %s 1 %s", script, name);
}

/* Make a value old, if there is one. It may be removed at any moment, where an
 * invalidation is delivered late. */
static void age_value(void)
{
    static const char script[] =
        "local b = redis.call('GET', KEYS[1]) "
        "if not b or string.sub(b, 6, 6) ~= 'V' then return 0 end "
        "local x, y = struct.unpack('>I8I8', string.sub(b, 41, 56)) "
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
    r->code = shed_get(r->process->peer.cache, shed_str(key), &options,
                       &r->value, &r->error);
    atomic_store(&r->is_done, true);
    return NULL;
}

/* version: what a load would read now. */
static void begin(struct reader *r, uint64_t version)
{
    struct shed_stats stats = stats_of(r->process->peer.cache);
    uint64_t waiting = stats.waits + stats.joins;
    size_t before = count_parked();

    if (r->is_running)
        return;
    age_value();
    read_from_now_on(version);
    r->is_running = true;
    r->is_done = false;
    r->oldest_stale = r->oldest = floor_version;
    start_thread(&r->thread, run_reader, r);
    WAIT_FOR((stats = stats_of(r->process->peer.cache),
              count_parked() > before || atomic_load(&r->is_done) ||
                  stats.waits + stats.joins > waiting));
}

static uint64_t version_of(const struct shed_value *value)
{
    char text[KEY_BYTES] = "";

    ck_assert_int_eq(value->kind, SHED_KIND_ROW);
    ck_assert_uint_lt(value->size, sizeof(text));
    memcpy(text, value->data, value->size);
    return strtoull(text, NULL, 10);
}

/* One that has failed was given nothing. */
static void judge(struct reader *r)
{
    uint64_t oldest, version;

    if (r->code != SHED_OK)
        return;
    version = version_of(r->value);
    oldest =
        r->value->origin == SHED_ORIGIN_STALE ? r->oldest_stale : r->oldest;
    ck_assert_msg(version >= oldest,
                  "a get of %s was given version %llu after %llu, origin %d",
                  key, (unsigned long long)version, (unsigned long long)oldest,
                  r->value->origin);
    shed_value_unref(r->value);
}

static void end(struct reader *r)
{
    if (!r->is_running)
        return;
    while (!atomic_load(&r->is_done)) {
        WAIT_FOR(atomic_load(&r->is_done) || count_parked() > 0);
        answer_all();
    }
    pthread_join(r->thread, NULL);
    r->is_running = false;
    judge(r);
}

/* The row that was put, or a later one, is there from now on. */
static void put_row(struct shed_cache *cache, uint64_t version)
{
    char row[KEY_BYTES];

    snprintf(row, sizeof(row), "%llu", (unsigned long long)version);
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
        readers[i].oldest = readers[i].oldest_stale = 0;
}

static void begin_order(void)
{
    static unsigned number;

    snprintf(key, sizeof(key), "k%u", number++);
    snprintf(name, sizeof(name), "t:{%s}", key);
    floor_version = 0;
}

static void end_order(void)
{
    for (size_t i = 0; i < READERS; i++)
        end(&readers[i]);
}

/* ------------------------------------------------------------ random orders */

#define RANDOM_ORDERS 100
#define RANDOM_STEPS 12
#define VERSIONS 9

static void do_random_step(uint64_t *seed)
{
    uint64_t draw = random_next(seed);
    struct shed_cache *cache = processes[draw / 16 % PROCESSES].peer.cache;
    struct reader *reader = &readers[draw / 64 % READERS];
    uint64_t version = 1 + draw / 256 % VERSIONS;

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
    for (uint64_t order = 0; order < RANDOM_ORDERS; order++) {
        uint64_t seed = order;

        begin_order();
        for (unsigned i = 0; i < RANDOM_STEPS; i++)
            do_random_step(&seed);
        end_order();
        check();
    }
    ck_assert_uint_gt(stats_of(processes[0].peer.cache).load_failures, 0);
}

/* ------------------------------------------------------ writes of all kinds */

#define WRITE_ORDERS 30

static struct proxy proxy; /* of the first process */
static uint64_t committed;

static void up_with_faults(void)
{
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_while_revalidate_ms = STALE_MS;
    fixture.cache_options.stale_if_error_ms = STALE_MS;
    fixture.cache_options.redis_down = SHED_REDIS_DOWN_STALE;
    fixture.cache_options.tags_limit = 4;
    fixture_open(&fixture);
    open_cache();
    fixture_add_proxy(&fixture, &proxy);
    open_processes();
}

enum tell {
    TELL_PUT_VERSION,
    TELL_PUT,
    TELL_INVALIDATE,
    TELL_TAG,
    TELL_ALL,
    TELL_EXPIRE,
    TELL_NOTHING,
    TELLS
};

static enum shed_code put_committed(struct shed_cache *cache, bool has_version)
{
    const struct shed_bytes tag = shed_str(key);
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;
    char row[KEY_BYTES];

    snprintf(row, sizeof(row), "%llu", (unsigned long long)committed);
    options.version = has_version ? &committed : NULL;
    options.tags = &tag;
    options.tags_count = 1;
    return shed_put(cache, shed_str(key), shed_str(row), &options, NULL);
}

static enum shed_code tell(struct shed_cache *cache, enum tell how)
{
    const struct shed_bytes tag = shed_str(key);

    switch (how) {
    case TELL_PUT_VERSION:
    case TELL_PUT:
        return put_committed(cache, how == TELL_PUT_VERSION);
    case TELL_INVALIDATE:
        return shed_invalidate(cache, tag, 0, NULL);
    case TELL_TAG:
        return shed_invalidate_tags(cache, &tag, 1, 0, NULL);
    case TELL_ALL:
        return shed_invalidate_all(cache, 0, NULL);
    case TELL_EXPIRE:
        return shed_expire(cache, tag, 0, 0, NULL);
    default:
        return SHED_OK;
    }
}

/* A write that has failed is kept, and counts for its own process, as one of a
 * tag does, because others have to hear of it. */
static void write_row(struct process *p, enum tell how)
{
    enum shed_code code;

    read_from_now_on(++committed);
    code = tell(p->peer.cache, how);
    if (how == TELL_EXPIRE || how == TELL_NOTHING)
        return;
    p->told = committed;
    if (code == SHED_OK && how != TELL_TAG && how != TELL_ALL)
        floor_version = committed;
}

static void read_row(struct reader *r)
{
    bool was_running = r->is_running;

    begin(r, committed);
    if (was_running)
        return;
    if (r->oldest < r->process->told)
        r->oldest = r->process->told;
    /* the kept row of a process that is cut off */
    r->oldest_stale =
        r->process == &processes[0] ? r->process->told : r->oldest;
}

static void do_random_write(uint64_t *seed)
{
    uint64_t draw = random_next(seed);
    struct reader *reader = &readers[draw / 16 % READERS];

    if (draw % 16 < 2)
        proxy_set(&proxy, draw / 64 % 2 == 0 ? PROXY_CUT : PROXY_CUT_ONE, 0,
                  NULL);
    else if (draw % 16 < 4)
        proxy_set(&proxy, PROXY_PASS, 0, NULL);
    else if (draw % 16 < 8)
        write_row(reader->process, draw / 64 % TELLS);
    else if (draw % 16 < 13)
        read_row(reader);
    else
        end(reader);
}

TEST(no_random_writes_are_followed_by_an_older_row)
{
    up_with_faults();
    for (uint64_t order = 0; order < WRITE_ORDERS; order++) {
        uint64_t seed = order;

        begin_order();
        committed = 1;
        for (size_t i = 0; i < PROCESSES; i++)
            processes[i].told = 0;
        for (unsigned i = 0; i < 2 * RANDOM_STEPS; i++)
            do_random_write(&seed);
        proxy_set(&proxy, PROXY_PASS, 0, NULL);
        end_order();
    }
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), fixture_set_up, down);
    return run_tests("version_orders");
}
