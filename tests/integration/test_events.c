/* Events: each kind is reported when it happens, with the name, the key and the
 * reason, on one thread, and not more often than promised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/event.h>
#include <snowshed/lock.h>

#include "client/client.h"
#include "entry/entry.h"
#include "support/ageing.h"
#include "support/child.h"
#include "support/fixture.h"

#define EVENTS_MAX 4096
#define TEXT_BYTES 320

/* ------------------------------------------------------------ what was told */

struct seen {
    enum shed_event_kind kind;
    enum shed_code outcome;
    uint64_t duration_us, count, about;
    char name[TEXT_BYTES], key[TEXT_BYTES], reason[TEXT_BYTES];
};

static struct {
    pthread_mutex_t mu;
    /* under mu */
    size_t count;
    struct seen event[EVENTS_MAX];
    bool is_called; /* a hook is running */
    pthread_t thread;
    size_t lines;
    enum shed_log_level level[EVENTS_MAX];
    char line[EVENTS_MAX][2 * TEXT_BYTES];
} told = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void copy_text(char *out, struct shed_bytes text)
{
    snprintf(out, TEXT_BYTES, "%.*s", (int)text.size, (const char *)text.data);
}

/* All are called on one thread, one at a time. */
static void check_thread_locked(void)
{
    ck_assert(!told.is_called);
    if (told.count + told.lines > 0)
        ck_assert(pthread_equal(told.thread, pthread_self()));
    told.thread = pthread_self();
}

static void on_event(void *user, const struct shed_event *e)
{
    struct seen *seen;

    ck_assert_ptr_eq(user, &told);
    ck_assert_uint_eq(e->size, sizeof(*e));
    ck_assert_ptr_nonnull(e->reason);
    pthread_mutex_lock(&told.mu);
    check_thread_locked();
    told.is_called = true;
    ck_assert_uint_lt(told.count, EVENTS_MAX);
    seen = &told.event[told.count++];
    *seen = (struct seen){.kind = e->kind,
                          .outcome = e->outcome,
                          .duration_us = e->duration_us,
                          .count = e->count,
                          .about = e->about};
    copy_text(seen->name, e->name);
    copy_text(seen->key, e->key);
    copy_text(seen->reason, shed_str(e->reason));
    told.is_called = false;
    pthread_mutex_unlock(&told.mu);
}

static void on_log(void *user, enum shed_log_level level, const char *text)
{
    ck_assert_ptr_eq(user, &told);
    pthread_mutex_lock(&told.mu);
    check_thread_locked();
    ck_assert_uint_lt(told.lines, EVENTS_MAX);
    told.level[told.lines] = level;
    snprintf(told.line[told.lines++], sizeof(told.line[0]), "%s", text);
    pthread_mutex_unlock(&told.mu);
}

/* The i-th event of a kind; NULL: none. Events are never removed. */
static const struct seen *find(enum shed_event_kind kind, size_t i)
{
    const struct seen *found = NULL;

    pthread_mutex_lock(&told.mu);
    for (size_t j = 0; j < told.count && found == NULL; j++)
        if (told.event[j].kind == kind && i-- == 0)
            found = &told.event[j];
    pthread_mutex_unlock(&told.mu);
    return found;
}

/* Wait for the i-th event of a kind. */
static const struct seen *await(enum shed_event_kind kind, size_t i)
{
    WAIT_FOR(find(kind, i) != NULL);
    return find(kind, i);
}

static void expect_seen(const struct seen *seen, const char *name,
                        const char *key, enum shed_code outcome,
                        const char *reason)
{
    ck_assert_str_eq(seen->name, name);
    ck_assert_str_eq(seen->key, key);
    ck_assert_msg(seen->outcome == outcome && strstr(seen->reason, reason),
                  "%s: %s", shed_code_name(seen->outcome), seen->reason);
    ck_assert_uint_eq(seen->count, 1);
    ck_assert_uint_eq(seen->about, seen->kind);
}

/* Wait for the first event of a kind, which is of this key of the cache. */
static const struct seen *expect_entry(enum shed_event_kind kind,
                                       const char *key, enum shed_code outcome,
                                       const char *reason)
{
    const struct seen *seen = await(kind, 0);

    expect_seen(seen, "t", key, outcome, reason);
    return seen;
}

/* The first event of a kind that is not a success; NULL: there is none. */
static const struct seen *find_failed(enum shed_event_kind kind)
{
    const struct seen *seen = find(kind, 0);

    for (size_t i = 1; seen != NULL && seen->outcome == SHED_OK; i++)
        seen = find(kind, i);
    return seen;
}

static bool is_stale(const char *key)
{
    struct shed_value *value = NULL;
    bool is;

    EXPECT_OK(shed_get(fixture.cache, shed_str(key), NULL, &value, NULL));
    is = value->origin == SHED_ORIGIN_STALE;
    shed_value_unref(value);
    return is;
}

/* Whether the log has a line with these words and this level. */
static bool has_line(const char *words, enum shed_log_level level)
{
    bool has = false;

    pthread_mutex_lock(&told.mu);
    for (size_t i = 0; i < told.lines; i++)
        has |= strstr(told.line[i], words) != NULL && told.level[i] == level;
    pthread_mutex_unlock(&told.mu);
    return has;
}

/* How many of a kind were reported, or reported as left out. */
static uint64_t accounted_for(enum shed_event_kind kind, uint64_t *singly)
{
    uint64_t sum = 0;

    *singly = 0;
    pthread_mutex_lock(&told.mu);
    for (size_t i = 0; i < told.count; i++) {
        const struct seen *e = &told.event[i];
        if (e->about != kind)
            continue;
        sum += e->count;
        *singly += e->kind == kind;
    }
    pthread_mutex_unlock(&told.mu);
    return sum;
}

static void init(void)
{
    fixture.client_options.on_event = on_event;
    fixture.client_options.event_user = &told;
    fixture.client_options.on_log = on_log;
    fixture.client_options.log_user = &told;
}

static void up(void)
{
    init();
    fixture_open(&fixture);
    (void)await(SHED_EVENT_CONNECTED, 0);
}

/* -------------------------------------------------------- the connection */

TEST(connects_and_disconnects_are_told_with_their_reason)
{
    const struct seen *seen;

    up();
    seen = await(SHED_EVENT_CONNECTED, 0);
    ck_assert_ptr_nonnull(strstr(seen->reason, fixture.server.socket));
    ck_assert_ptr_nonnull(strstr(seen->reason, ", as process "));
    ck_assert_ptr_nonnull(strstr(seen->reason, fixture.client->process));
    ck_assert_str_eq(seen->name, "");
    server_kill(&fixture.server);
    seen = await(SHED_EVENT_DISCONNECTED, 0);
    EXPECT_CODE(seen->outcome, SHED_EREDIS);
    ck_assert_uint_gt(seen->duration_us, 0);
    ck_assert_uint_gt(strlen(seen->reason), 0);
    server_start_again(&fixture.server);
    (void)await(SHED_EVENT_CONNECTED, 1);
    server_do(&fixture.server, "CONFIG SET requirepass hunter2");
    fixture.server.password = "hunter2";
    server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
    WAIT_FOR(has_line("refused by Redis", SHED_LOG_ERROR));
    ck_assert(has_line("connected to Redis", SHED_LOG_INFO));
    ck_assert(has_line("without Redis", SHED_LOG_WARNING));
    /* the connection may have been lost before it was refused */
    for (size_t i = 1; seen->outcome != SHED_EDENIED; i++)
        seen = await(SHED_EVENT_DISCONNECTED, i);
    fixture_close(&fixture);
    server_stop(&fixture.server);
}

/* -------------------------------------------------------------- the loads */

TEST(a_load_is_told_with_its_key_and_duration)
{
    up();
    expect_text(fixture.cache, "42", "42@1");
    ck_assert_str_eq(
        expect_entry(SHED_EVENT_LOAD_FINISHED, "42", SHED_OK, "")->reason, "");
    fixture_down(&fixture);
    ck_assert_uint_eq(told.lines, 1); /* connected */
}

TEST(a_failed_load_is_told_with_the_reason_of_the_source)
{
    up();
    expect_code(fixture.cache, "fail1", SHED_ESOURCE, NULL);
    expect_entry(SHED_EVENT_LOAD_FINISHED, "fail1", SHED_ESOURCE,
                 "the table is on fire");
    WAIT_FOR(has_line("load failed: t, key fail1: the table is on fire",
                      SHED_LOG_WARNING));
}

TEST(a_stale_row_that_is_served_is_an_event)
{
    const struct seen *seen;

    init();
    fixture.cache_options.ttl_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_while_revalidate_ms = AGEING_TTL_MS;
    fixture.cache_options.stale_if_error_ms = 3 * AGEING_TTL_MS;
    fixture_open(&fixture);
    expect_text(fixture.cache, "42", "42@1");
    age_entry(&fixture.server, "t:{42}", AGEING_TTL_MS * 3 / 2);
    table_fail(&fixture.table, true);
    WAIT_FOR(is_stale("42")); /* once the client knows the server's clock */
    seen = expect_entry(SHED_EVENT_STALE_SERVED, "42", SHED_OK, "");
    ck_assert_uint_ge(seen->duration_us, AGEING_TTL_MS * 1000);
    WAIT_FOR(
        has_line("stale row served: t, key 42: it is past", SHED_LOG_INFO));
    (void)await(SHED_EVENT_LOAD_FINISHED, 1);
    age_entry(&fixture.server, "t:{42}", AGEING_TTL_MS);
    ck_assert(is_stale("42"));
    WAIT_FOR(find_failed(SHED_EVENT_STALE_SERVED) != NULL);
    expect_seen(find_failed(SHED_EVENT_STALE_SERVED), "t", "42", SHED_ESOURCE,
                "the table is on fire");
    ck_assert(!has_line("stale row served", SHED_LOG_WARNING));
}

/* More than may be reported in a second. */
enum { FAILING = 3 * SHED_EVENTS_PER_SECOND };

static void *get_failing(void *unused)
{
    struct shed_item items[FAILING] = {0};
    char text[FAILING][24];

    (void)unused;
    for (size_t i = 0; i < FAILING; i++) {
        snprintf(text[i], sizeof(text[i]), "fail%zu", i);
        items[i].key = shed_str(text[i]);
    }
    EXPECT_CODE(shed_get_many(fixture.cache, items, FAILING, NULL, NULL),
                SHED_ESOURCE);
    return NULL;
}

/* Keys that fail in a few loads: the first key alone, and then all that have
 * queued up behind it. */
static void fail_many(void)
{
    pthread_t thread;

    fixture.source_options.max_loads = 1;
    fixture.cache_options.failure_ttl_ms = 60000;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    start_thread(&thread, get_failing, NULL);
    WAIT_FOR(server_int(&fixture.server, "DBSIZE") == FAILING);
    table_release(&fixture.table);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_le(table_loads(&fixture.table), SHED_EVENTS_PER_SECOND);
}

/* For how many lines those with these words speak: themselves, and the numbers
 * of the others. */
static uint64_t spoken_for(const char *words)
{
    uint64_t sum = 0;

    pthread_mutex_lock(&told.mu);
    for (size_t i = 0; i < told.lines; i++) {
        const char *more = strstr(told.line[i], " (and ");
        if (strstr(told.line[i], words) == NULL)
            continue;
        sum += 1 + (more != NULL ? strtoull(more + 6, NULL, 10) : 0);
    }
    pthread_mutex_unlock(&told.mu);
    return sum;
}

TEST_EACH(a_query_that_fails_is_one_line_with_and_without_on_event, 0, 2)
{
    init();
    if (_i == 1)
        fixture.client_options.on_event = NULL;
    fail_many();
    fixture_down(&fixture);
    ck_assert(has_line("load failed: t, key fail", SHED_LOG_WARNING));
    ck_assert(has_line(" more: the table is on fire", SHED_LOG_WARNING));
    ck_assert_uint_eq(spoken_for("load failed: "), table_loads(&fixture.table));
}

TEST(every_key_of_a_query_that_fails_is_an_event)
{
    uint64_t singly;

    init();
    fail_many();
    fixture_down(&fixture);
    ck_assert_uint_eq(accounted_for(SHED_EVENT_LOAD_FINISHED, &singly),
                      FAILING);
    ck_assert_uint_ge(singly, SHED_EVENTS_PER_SECOND);
    EXPECT_CODE(await(SHED_EVENT_SUPPRESSED, 0)->outcome, SHED_ESOURCE);
}

TEST(a_hit_is_no_event)
{
    enum { GETS = 50 };
    size_t before;

    up();
    expect_text(fixture.cache, "42", "42@1");
    (void)await(SHED_EVENT_LOAD_FINISHED, 0);
    before = told.count;
    for (int i = 0; i < GETS; i++)
        expect_origin(fixture.cache, "42", "42@1", SHED_ORIGIN_REDIS);
    fixture_down(&fixture);
    ck_assert_uint_eq(told.count, before);
}

/* A process that holds the lease of "k" until it is killed. */
static pid_t start_loader(void)
{
    pid_t pid = fork_child();

    if (pid == 0) {
        struct shed_value *value = NULL;
        table_hold(&fixture.table);
        fixture_open(&fixture);
        (void)!shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL);
        _exit(1);
    }
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{k}") == 1);
    return pid;
}

TEST(the_takeover_of_a_dead_loader_is_told)
{
    init();
    kill_child(start_loader());
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    ck_assert_uint_gt(
        strlen(expect_entry(SHED_EVENT_TAKEOVER, "k", SHED_OK, "")->reason), 0);
    WAIT_FOR(has_line("load taken over: t, key k: ", SHED_LOG_WARNING));
}

/* ------------------------------------------------------------- the entries */

/* What happens while a value is loaded, and how its publish ends. */
static const struct {
    enum shed_code outcome;
    enum shed_origin origin;
    enum shed_log_level level;
    const char *text, *reason;
} refused[] = {
    {SHED_ELOST, SHED_ORIGIN_UNPUBLISHED, SHED_LOG_INFO, "42@1", "invalidated"},
    {SHED_ELOST, SHED_ORIGIN_REDIS, SHED_LOG_INFO, "put", "another value"},
    {SHED_EREDIS, SHED_ORIGIN_UNPUBLISHED, SHED_LOG_WARNING, "42@1", "OOM"}};

TEST_EACH(a_value_that_is_not_stored_is_told, 0, COUNT_OF(refused))
{
    struct getter getter = {0};

    up();
    getter_hold(&getter, &fixture, "42"); /* until the table is released */
    if (_i == 0)
        invalidate(fixture.cache, "42");
    else if (_i == 1)
        put(fixture.cache, "42", "put");
    else
        server_do(&fixture.server, "CONFIG SET maxmemory 1");
    table_release(&fixture.table);
    getter_expect(&getter, refused[_i].text, refused[_i].origin);
    expect_entry(SHED_EVENT_PUBLISH_REFUSED, "42", refused[_i].outcome,
                 refused[_i].reason);
    WAIT_FOR(has_line("publish refused: t, key 42: ", refused[_i].level));
    if (_i == 0)
        expect_entry(SHED_EVENT_INVALIDATED, "42", SHED_OK, "");
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
}

TEST(a_corrupt_entry_is_told_and_replaced)
{
    up();
    put(fixture.cache, "42", "row");
    server_do(&fixture.server, "SETRANGE t:{42} 64 R");
    expect_text(fixture.cache, "42", "42@1");
    expect_entry(SHED_EVENT_CORRUPT_ENTRY, "42", SHED_EREDIS, "");
    WAIT_FOR(has_line("corrupt entry: t, key 42: ", SHED_LOG_WARNING));
}

/* The reason of a get that fails. */
static const char *failure_of(const char *key)
{
    static struct shed_error err;
    struct shed_value *value = NULL;

    EXPECT_CODE(shed_get(fixture.cache, shed_str(key), NULL, &value, &err),
                SHED_ESOURCE);
    return err.reason;
}

TEST(a_reason_of_the_source_is_one_printable_line_everywhere)
{
    redisReply *marker;

    init();
    fixture.cache_options.failure_ttl_ms = 60000;
    fixture_open(&fixture);
    ck_assert_str_eq(failure_of("garbled"), "the table??[31m is on fire");
    WAIT_FOR(has_line("load failed: t, key garbled: the table??[31m is on fire",
                      SHED_LOG_WARNING));
    WAIT_FOR(server_int(&fixture.server, "STRLEN t:{garbled}") >
             SHED_ENTRY_HEADER_BYTES);
    marker = server_run(&fixture.server, "GETRANGE t:{garbled} 64 -1");
    ck_assert_str_eq(marker->str, "the table??[31m is on fire");
    freeReplyObject(marker);
}

TEST(so_is_the_reason_of_a_marker_that_anybody_wrote)
{
    static const unsigned char nonce[SHED_ENTRY_VERSION_BYTES] = "a nonce";
    static const char text[] = "burns\n\033[31m";
    const struct shed_entry entry = {.type = SHED_ENTRY_FAILURE,
                                     .payload = (const unsigned char *)text,
                                     .payload_size = strlen(text)};
    struct shed_entry_parts parts;
    unsigned char times[16] = {0};

    up();
    shed_entry_encode((struct shed_bytes){"t:{k}", strlen("t:{k}")}, &entry,
                      nonce, &parts);
    shed_entry_put_u64(times + 8, UINT64_MAX >> 1);
    server_do(&fixture.server, "SET t:{k} %b%b%b%s PX 60000", parts.head,
              sizeof(parts.head), times, sizeof(times), parts.tail,
              sizeof(parts.tail), text);
    ck_assert_str_eq(failure_of("k"),
                     "a load failed a moment ago: burns??[31m");
}

/* --------------------------------------------------------------- the locks */

/* Open the lock job, with a lease that is longer than any test, and acquire
 * it. */
static struct shed_lock *acquire(void)
{
    enum { LEASE_MS = 600000 };
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *lock = NULL;

    o.lease_ms = LEASE_MS;
    o.watchdog_ms = 0;
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("job"), &o, &lock, NULL));
    EXPECT_OK(shed_lock_acquire(lock, scaled_ms(FIXTURE_TIMEOUT_MS), NULL));
    return lock;
}

static struct shed_lock *up_locked(void)
{
    up();
    return acquire();
}

/* Wait for the first event of a kind, which is of the lock. */
static const struct seen *expect_lock(enum shed_event_kind kind,
                                      enum shed_code outcome,
                                      const char *reason)
{
    const struct seen *seen = await(kind, 0);

    expect_seen(seen, "job", "", outcome, reason);
    return seen;
}

TEST(a_hold_is_told_from_its_begin_to_its_release)
{
    struct shed_lock *lock = up_locked();

    ck_assert_uint_gt(
        expect_lock(SHED_EVENT_LOCK_ACQUIRED, SHED_OK, "")->duration_us, 0);
    ck_assert_ptr_null(find(SHED_EVENT_LOCK_RELEASED, 0));
    EXPECT_OK(shed_lock_release(lock, NULL));
    ck_assert_uint_gt(
        expect_lock(SHED_EVENT_LOCK_RELEASED, SHED_OK, "")->duration_us, 0);
    shed_lock_close(lock);
    fixture_down(&fixture);
    ck_assert_ptr_null(find(SHED_EVENT_LOCK_TAKEN_OVER, 0));
    ck_assert_ptr_null(find(SHED_EVENT_LOCK_LOST, 0));
    ck_assert_ptr_null(find(SHED_EVENT_LOCK_ACQUIRED, 1));
    ck_assert_ptr_null(find(SHED_EVENT_LOCK_RELEASED, 1));
}

TEST(a_hold_that_ends_with_its_handle_is_told)
{
    shed_lock_close(up_locked());
    expect_lock(SHED_EVENT_LOCK_RELEASED, SHED_OK, "");
}

/* Its lease ends, or somebody removes it. */
TEST_EACH(a_hold_that_is_lost_is_told, 0, 2)
{
    struct shed_lock *lock = up_locked();

    if (_i == 0) {
        (void)!shed_lock_extend(lock, 10, NULL); /* it may be over at once */
        WAIT_FOR(server_int(&fixture.server, "EXISTS lock:{job}") == 0);
    } else {
        ck_assert_int_eq(server_int(&fixture.server, "DEL lock:{job}"), 1);
    }
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    ck_assert_uint_gt(
        expect_lock(SHED_EVENT_LOCK_LOST, SHED_ELOST, "")->duration_us, 0);
    WAIT_FOR(has_line("lock lost: job: ", SHED_LOG_WARNING));
    shed_lock_close(lock);
    fixture_down(&fixture);
    ck_assert_ptr_null(find(SHED_EVENT_LOCK_LOST, 1));
}

/* Also that of a handle which is closed. */
TEST_EACH(a_release_that_redis_does_not_confirm_is_told_with_its_reason, 0, 2)
{
    struct shed_lock *lock = up_locked();

    server_do(&fixture.server, "CONFIG SET min-replicas-to-write 1");
    if (_i == 0)
        EXPECT_CODE(shed_lock_release(lock, NULL), SHED_EREDIS);
    else
        shed_lock_close(lock);
    expect_lock(SHED_EVENT_LOCK_RELEASED, SHED_EREDIS, "NOREPLICAS");
    WAIT_FOR(
        has_line("lock release not confirmed: job: Redis", SHED_LOG_WARNING));
    server_do(&fixture.server, "CONFIG SET min-replicas-to-write 0");
    if (_i == 0)
        shed_lock_close(lock);
}

/* A process that holds the lock until it is killed. */
static pid_t start_holder(void)
{
    pid_t pid = fork_child();

    if (pid == 0) {
        fixture_open(&fixture);
        (void)acquire();
        for (;;)
            pause();
    }
    WAIT_FOR(server_int(&fixture.server, "EXISTS lock:{job}") == 1);
    return pid;
}

TEST(a_lock_that_is_taken_from_a_dead_holder_is_told)
{
    init();
    kill_child(start_holder());
    fixture_open(&fixture);
    shed_lock_close(acquire());
    expect_lock(SHED_EVENT_LOCK_TAKEN_OVER, SHED_OK, "");
    expect_lock(SHED_EVENT_LOCK_ACQUIRED, SHED_OK, "");
    WAIT_FOR(has_line("lock taken over: job: ", SHED_LOG_WARNING));
}

/* -------------------------------------------------------------- the limits */

#define STORM 1000

static void invalidate_storm(void)
{
    static struct shed_bytes keys[STORM];
    static char text[STORM][8];

    for (size_t i = 0; i < STORM; i++) {
        snprintf(text[i], sizeof(text[i]), "%zu", i);
        keys[i] = shed_str(text[i]);
    }
    EXPECT_OK(shed_invalidate_many(fixture.cache, keys, STORM, 0, NULL));
}

TEST(a_storm_is_told_as_a_few_and_a_number)
{
    uint64_t begin_ms, seconds, singly = 0;
    const struct seen *seen;

    up();
    begin_ms = shed_now_ms();
    invalidate_storm();
    seconds = (shed_now_ms() - begin_ms) / 1000 + 1;
    WAIT_FOR(accounted_for(SHED_EVENT_INVALIDATED, &singly) == STORM);
    ck_assert_uint_eq(status_of(fixture.client).events_left_out,
                      STORM - singly);
    ck_assert_uint_ge(singly, SHED_EVENTS_PER_SECOND);
    ck_assert_uint_le(singly, seconds * SHED_EVENTS_PER_SECOND);
    seen = await(SHED_EVENT_SUPPRESSED, 0);
    ck_assert_uint_eq(seen->about, SHED_EVENT_INVALIDATED);
    ck_assert_uint_gt(seen->count, 1);
    ck_assert_uint_gt(strlen(seen->reason), 0);
    ck_assert_uint_eq(told.lines, 1); /* invalidations get no line */
}

TEST(what_was_left_out_is_told_before_the_end)
{
    uint64_t singly = 0;

    up();
    invalidate_storm();
    fixture_down(&fixture);
    ck_assert_uint_eq(accounted_for(SHED_EVENT_INVALIDATED, &singly), STORM);
}

TEST(failures_are_told_though_successes_are_many)
{
    enum { KEYS = 2 * SHED_EVENTS_PER_SECOND + 1 };
    struct shed_item items[KEYS];
    char text[KEYS][8];

    up();
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(text[i], sizeof(text[i]), "%s%zu",
                 i == KEYS - 1 ? "fail" : "k", i);
        items[i].key = shed_str(text[i]);
    }
    EXPECT_CODE(shed_get_many(fixture.cache, items, KEYS, NULL, NULL),
                SHED_ESOURCE);
    for (size_t i = 0; i < KEYS; i++)
        shed_value_unref(items[i].value);
    WAIT_FOR(has_line("load failed: t, key fail", SHED_LOG_WARNING));
}

/* ------------------------------------------------------- what a hook may do */

static void on_event_that_asks(void *user, const struct shed_event *event)
{
    struct shed_client_status status;
    struct shed_stats stats;

    (void)user;
    if (event->kind != SHED_EVENT_LOAD_FINISHED)
        return;
    EXPECT_OK(
        shed_client_status_read(fixture.client, &status, sizeof(status), NULL));
    EXPECT_OK(shed_stats_read(fixture.cache, &stats, sizeof(stats), NULL));
    ck_assert_uint_eq(stats.loaded_keys, 1);
    pthread_mutex_lock(&told.mu);
    told.count++;
    pthread_mutex_unlock(&told.mu);
}

TEST(a_hook_may_read_the_status_and_the_statistics)
{
    init();
    fixture.client_options.on_event = on_event_that_asks;
    fixture.client_options.on_log = NULL;
    fixture_open(&fixture);
    expect_text(fixture.cache, "42", "42@1");
    fixture_down(&fixture);
    ck_assert_uint_eq(told.count, 1);
}

TEST(each_kind_has_a_name)
{
    for (int i = SHED_EVENT_SUPPRESSED; i <= SHED_EVENT_FLEET; i++)
        for (int j = SHED_EVENT_SUPPRESSED; j < i; j++)
            ck_assert_str_ne(shed_event_kind_name((enum shed_event_kind)i),
                             shed_event_kind_name((enum shed_event_kind)j));
    ck_assert_str_eq(shed_event_kind_name((enum shed_event_kind)1000),
                     "unknown event");
}

int main(void)
{
    return run_fixture_tests("events");
}
