/*
 * A program that was compiled with the first headers of 0.3, linked with the
 * present library: frozen-0.3/ has those headers, and is never changed. It sets
 * every option and reads every field of a result at its old offset, and checks
 * by what the library says or does that the field is still the same.
 *
 * usage: test_frozen REDIS-URI; or SHED_TEST_REDIS
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>
#ifdef WITH_MYSQL
#include <snowshed/mysql.h>
#endif

/* This is compiled with the frozen headers, not with the present ones. */
_Static_assert(sizeof(struct shed_client_options) == 21 * sizeof(uint64_t),
               "the frozen struct shed_client_options has 21 fields");

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static unsigned failures;

static void require(int holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "frozen: %s\n", what);
    failures++;
}

static void must(enum shed_code code, const struct shed_error *err,
                 const char *what)
{
    if (code == SHED_OK)
        return;
    (void)fprintf(stderr, "frozen: %s: %s: %s\n", what, shed_code_name(code),
                  err->reason);
    exit(1);
}

/* ----------------------------------------------------------------- options */

/* A field of an options struct that takes a number. */
struct field {
    size_t offset;
    const char *name; /* as it appears in a complaint */
};

typedef enum shed_code open_fn(const void *options, struct shed_error *err);

/* A number that is too large is refused with the field's name. If a field has
 * moved, another name is reported, or nothing is refused. */
static void check_fields(const void *defaults, size_t size,
                         const struct field *fields, size_t count,
                         open_fn *open)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t copy[32]; /* aligned for structs that begin with a size_t */
        const uint64_t too_large = UINT64_MAX;
        struct shed_error err = {SHED_OK, ""};
        memcpy(copy, defaults, size);
        memcpy((char *)copy + fields[i].offset, &too_large, sizeof(too_large));
        require(open(copy, &err) == SHED_EINVAL &&
                    strstr(err.reason, fields[i].name) != NULL,
                fields[i].name);
    }
}

static const char *redis_uri;
static struct shed_client *client;
static struct shed_source *source;

static enum shed_code open_client(const void *options, struct shed_error *err)
{
    struct shed_client *out;
    enum shed_code code = shed_client_open(redis_uri, options, &out, err);

    shed_client_close(out);
    return code;
}

static void load(void *user, void *thread, struct shed_load *l)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < l->count; i++) {
        struct shed_answer answer = SHED_ANSWER_INIT;
        answer.row = l->keys[i].key;
        answer.kind =
            answer.row.size == 6 && memcmp(answer.row.data, "absent", 6) == 0
                ? SHED_ANSWER_ABSENT
                : SHED_ANSWER_ROW;
        shed_load_answer(l, i, &answer);
    }
    shed_load_done(l);
}

static enum shed_code open_source(const void *options, struct shed_error *err)
{
    struct shed_source *out;
    enum shed_code code =
        shed_source_open_batch(load, NULL, options, &out, err);

    shed_source_close(out);
    return code;
}

static enum shed_code open_cache(const void *options, struct shed_error *err)
{
    struct shed_cache *out;
    enum shed_code code =
        shed_cache_open(client, "frozen", source, options, &out, err);

    shed_cache_close(out);
    return code;
}

static enum shed_code open_lock(const void *options, struct shed_error *err)
{
    struct shed_lock *out;
    enum shed_code code =
        shed_lock_open(client, shed_str("frozen"), options, &out, err);

    shed_lock_close(out);
    return code;
}

#define FIELD(type, field, prefix)                                             \
    {                                                                          \
        offsetof(struct type, field), prefix " " #field                        \
    }
#define CHECK_FIELDS(type, defaults, open, ...)                                \
    do {                                                                       \
        static const struct field fields[] = {__VA_ARGS__};                    \
        const struct type unchanged = defaults;                                \
        check_fields(&unchanged, sizeof(unchanged), fields, LENGTH(fields),    \
                     open);                                                    \
    } while (0)

static void check_options(void)
{
#define F(field) FIELD(shed_client_options, field, "client")
    CHECK_FIELDS(shed_client_options, SHED_CLIENT_OPTIONS_INIT, open_client,
                 F(connect_timeout_ms), F(command_timeout_ms),
                 F(reconnect_min_ms), F(reconnect_max_ms), F(links), F(wait),
                 F(breaker.failure_pct), F(breaker.min_calls),
                 F(breaker.window_ms), F(breaker.open_ms),
                 F(breaker.open_max_ms), F(breaker.probes), F(breaker.slow_ms));
#undef F
#define F(field) FIELD(shed_source_options, field, "source")
    CHECK_FIELDS(shed_source_options, SHED_SOURCE_OPTIONS_INIT, open_source,
                 F(max_loads), F(max_batch), F(batch_wait_ms), F(queue_limit),
                 F(load_timeout_ms), F(adaptive_loads), F(breaker.failure_pct),
                 F(breaker.min_calls), F(breaker.window_ms), F(breaker.open_ms),
                 F(breaker.open_max_ms), F(breaker.probes), F(callers_limit),
                 F(fleet_loads));
#undef F
#define F(field) FIELD(shed_cache_options, field, "cache")
    CHECK_FIELDS(shed_cache_options, SHED_CACHE_OPTIONS_INIT, open_cache,
                 F(ttl_ms), F(ttl_jitter_pct), F(negative_ttl_ms),
                 F(failure_ttl_ms), F(lease_ms), F(timeout_ms),
                 F(value_limit_bytes), F(redis_down), F(refresh_after_pct),
                 F(stale_while_revalidate_ms), F(stale_if_error_ms),
                 F(undelivered_limit), F(failover_memory_ms),
                 F(soft_timeout_ms), F(tags_limit), F(local_bytes));
#undef F
#define F(field) FIELD(shed_lock_options, field, "lock")
    CHECK_FIELDS(shed_lock_options, SHED_LOCK_OPTIONS_INIT, open_lock,
                 F(algorithm), F(lease_ms), F(watchdog_ms), F(fair),
                 F(death_grace_ms), F(exact_key));
#undef F
}

#ifdef WITH_MYSQL
static enum shed_code open_mysql(const void *options, struct shed_error *err)
{
    struct shed_source *out;
    enum shed_code code = shed_mysql_source_open(
        "mysql://u@/d?socket=/no/socket", "SELECT k, v FROM t WHERE k IN (?)",
        options, &out, err);

    shed_source_close(out);
    return code;
}

static void check_mysql_options(void)
{
    struct shed_mysql_options o = SHED_MYSQL_OPTIONS_INIT;
    struct shed_source_options s = SHED_SOURCE_OPTIONS_INIT;
    struct shed_error err = {SHED_OK, ""};

#define F(field) FIELD(shed_mysql_options, field, "MySQL")
    CHECK_FIELDS(shed_mysql_options, SHED_MYSQL_OPTIONS_INIT, open_mysql,
                 F(connect_timeout_ms), F(read_timeout_ms));
#undef F
    s.max_batch = UINT64_MAX;
    o.source = &s;
    require(open_mysql(&o, &err) == SHED_EINVAL &&
                strstr(err.reason, "max_batch") != NULL,
            "mysql source");
    o = (struct shed_mysql_options)SHED_MYSQL_OPTIONS_INIT;
    o.tls_ca = "/no/file";
    require(open_mysql(&o, &err) == SHED_OK, "MySQL tls_ca");
    o.tls_cert = "/no/file";
    require(open_mysql(&o, &err) == SHED_EINVAL, "MySQL tls_cert");
    o.tls_key = "/no/file";
    require(open_mysql(&o, &err) == SHED_OK, "MySQL tls_key");
}
#endif

/* --------------------------------------------------------------- callbacks */

static atomic_int marks[5]; /* each callback gets its own as user */

static void on_log(void *user, enum shed_log_level level, const char *text)
{
    marks[0] += user == &marks[0] && level == SHED_LOG_INFO &&
                strstr(text, "connected") != NULL;
}

static void *on_thread_start(void *user)
{
    marks[1] += user == &marks[1];
    return &marks[2];
}

static void on_thread_stop(void *user, void *thread)
{
    marks[2] += user == &marks[1] && thread == &marks[2];
}

static void on_close(void *user)
{
    marks[3] += user == &marks[1];
}

static void on_lost(void *user, struct shed_lock *lock,
                    const struct shed_error *reason)
{
    (void)lock;
    marks[4] += user == &marks[4] && reason->code == SHED_ELOST;
}

static void open_all(void)
{
    struct shed_client_options co = SHED_CLIENT_OPTIONS_INIT;
    struct shed_source_options so = SHED_SOURCE_OPTIONS_INIT;
    struct shed_error err;

    co.on_log = on_log;
    co.log_user = &marks[0];
    must(shed_client_open(redis_uri, &co, &client, &err), &err, "client");
    so.thread_start = on_thread_start;
    so.thread_stop = on_thread_stop;
    so.on_close = on_close;
    must(shed_source_open_batch(load, &marks[1], &so, &source, &err), &err,
         "source");
}

/* -------------------------------------------------------------- statistics */

/* Check that the next counter of Prometheus' text has this name and value; the
 * text has them in the order of the struct. Returns: what follows it. */
static const char *check_counter(const char *at, const char *prefix,
                                 const char *field, uint64_t value)
{
    char wanted[128];
    const char *type = strstr(at, "# TYPE "), *sample;

    (void)snprintf(wanted, sizeof(wanted), "# TYPE %s%s_total counter\n",
                   prefix, field);
    if (type == NULL || strncmp(type, wanted, strlen(wanted)) != 0) {
        require(0, field);
        return at;
    }
    sample = strstr(type, "} ");
    require(sample != NULL && strtoull(sample + 2, NULL, 10) == value, field);
    return type + strlen(wanted);
}

/* Check that a histogram adds up, and has the same count as the text. */
static void check_histogram(const char *text, const char *name,
                            const struct shed_histogram *h, uint64_t least)
{
    char wanted[128];
    const char *line;
    uint64_t sum = 0;

    for (size_t i = 0; i < SHED_BUCKETS; i++)
        sum += h->bucket[i];
    (void)snprintf(wanted, sizeof(wanted), "\n%s_count{", name);
    line = strstr(text, wanted);
    line = line != NULL ? strstr(line, "} ") : NULL;
    require(line != NULL && strtoull(line + 2, NULL, 10) == h->count &&
                h->count == sum && sum >= least && h->sum >= h->count,
            name);
}

static void check_stats(struct shed_cache *cache)
{
    static char text[65536];
    struct shed_stats s;
    const char *at = text;
    struct shed_error err;

    must(shed_stats_read(cache, &s, sizeof(s), &err), &err, "stats");
    require(shed_stats_prometheus(&cache, 1, NULL, 0, text, sizeof(text)) <
                sizeof(text),
            "the text is too long");
#define CHECK(field, help) at = check_counter(at, "snowshed_", #field, s.field);
    SHED_COUNTERS(CHECK)
#undef CHECK
    check_histogram(text, "snowshed_hit_seconds", &s.hit_us, 3);
    check_histogram(text, "snowshed_miss_seconds", &s.miss_us, 2);
    check_histogram(text, "snowshed_load_seconds", &s.load_us, 1);
    check_histogram(text, "snowshed_batch_keys", &s.batch_keys, 1);
    require(s.hits == 4 && s.puts == 1 && s.invalidations == 2,
            "what was done");
    require(s.batch_keys.sum == s.loaded_keys, "keys per load");
}

static void check_lock_stats(struct shed_lock *lock)
{
    static char text[65536];
    struct shed_lock_stats s;
    const char *at = text;
    struct shed_error err;

    must(shed_lock_stats_read(lock, &s, sizeof(s), &err), &err, "lock stats");
    require(shed_stats_prometheus(NULL, 0, &lock, 1, text, sizeof(text)) <
                sizeof(text),
            "the text is too long");
#define CHECK(field, help)                                                     \
    at = check_counter(at, "snowshed_lock_", #field, s.field);
    SHED_LOCK_COUNTERS(CHECK)
#undef CHECK
    check_histogram(text, "snowshed_lock_wait_seconds", &s.wait_us, 2);
    check_histogram(text, "snowshed_lock_hold_seconds", &s.hold_us, 2);
    require(s.acquired == 2 && s.released == 1 && s.lost == 1,
            "what the lock did");
}

/* ----------------------------------------------------------------- results */

static void check_gets(struct shed_cache *cache)
{
    struct shed_item items[2] = {{.key = {"kept", 4}}, {.key = {"absent", 6}}};
    struct shed_value *value;
    struct shed_error err;

    must(shed_invalidate(cache, shed_str("kept"), SHED_TIMEOUT_DEFAULT, &err),
         &err, "invalidate");
    must(shed_invalidate(cache, shed_str("absent"), 0, &err), &err,
         "invalidate");
    must(shed_get(cache, shed_str("kept"), NULL, &value, &err), &err, "get");
    require(value->kind == SHED_KIND_ROW && value->origin == SHED_ORIGIN_LOAD,
            "a loaded row");
    shed_value_unref(value);
    must(shed_get(cache, shed_str("absent"), NULL, &value, &err), &err, "get");
    require(value->kind == SHED_KIND_ABSENT, "an absent row");
    shed_value_unref(value);
    must(shed_put(cache, shed_str("kept"), shed_str("put"), NULL, &err), &err,
         "put");
    for (int i = 0; i < 3; i++) {
        must(shed_get(cache, shed_str("kept"), NULL, &value, &err), &err,
             "get");
        require(value->origin == SHED_ORIGIN_REDIS && value->size == 3,
                "a hit");
        shed_value_unref(value);
    }
    must(shed_get_many(cache, items, 2, NULL, &err), &err, "get_many");
    require(items[0].code == SHED_OK && items[0].value->size == 3 &&
                items[1].value->kind == SHED_KIND_ABSENT,
            "struct shed_item");
    shed_value_unref(items[0].value);
    shed_value_unref(items[1].value);
}

static void check_status(void)
{
    struct shed_client_status status;
    struct shed_error err = {SHED_OK, ""};

    must(shed_client_status_read(client, &status, sizeof(status), &err), &err,
         "status");
    require(status.is_up == 1 && status.last.code == SHED_OK &&
                status.last.reason[0] == '\0',
            "struct shed_client_status");
    require(shed_client_open("nonsense", NULL, &client, &err) == SHED_EINVAL &&
                err.code == SHED_EINVAL && strlen(err.reason) > 0,
            "struct shed_error");
}

/* One hold that is released, and one whose lease ends. */
static void check_lock(void)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    const struct timespec moment = {0, 1000000};
    struct shed_fence fence = {0, {0}};
    struct shed_lock *lock;
    struct shed_error err;
    unsigned char any = 0;

    o.lease_ms = 60000;
    o.watchdog_ms = 0;
    o.on_lost = on_lost;
    o.user = &marks[4];
    must(shed_lock_open(client, shed_str("frozen"), &o, &lock, &err), &err,
         "lock");
    must(shed_lock_acquire(lock, 60000, &err), &err, "acquire");
    must(shed_lock_fence(lock, &fence, &err), &err, "fence");
    for (size_t i = 0; i < sizeof(fence.owner); i++)
        any |= fence.owner[i];
    require(fence.number > 0 && any != 0, "struct shed_fence");
    must(shed_lock_release(lock, &err), &err, "release");
    must(shed_lock_acquire(lock, 60000, &err), &err, "acquire again");
    must(shed_lock_extend(lock, 10, &err), &err, "extend");
    while (atomic_load(&marks[4]) == 0)
        (void)nanosleep(&moment, NULL);
    require(shed_lock_release(lock, &err) == SHED_ELOST, "a lost lock");
    check_lock_stats(lock);
    shed_lock_close(lock);
}

static void check_codes(void)
{
#define CHECK(code) require(strcmp(shed_code_name(code), #code) == 0, #code);
    CHECK(SHED_OK)
    CHECK(SHED_EINVAL)
    CHECK(SHED_ENOMEM)
    CHECK(SHED_ETIMEDOUT)
    CHECK(SHED_EBUSY)
    CHECK(SHED_EREDIS)
    CHECK(SHED_ESOURCE)
    CHECK(SHED_ETOOBIG)
    CHECK(SHED_EDENIED)
    CHECK(SHED_ECLOSED)
    CHECK(SHED_EFORKED)
    CHECK(SHED_ELOST)
#undef CHECK
}

int main(int argc, char **argv)
{
    struct shed_cache_options o = SHED_CACHE_OPTIONS_INIT;
    struct shed_cache *cache;
    struct shed_client *opened;
    struct shed_error err;

    redis_uri = argc > 1 ? argv[1] : getenv("SHED_TEST_REDIS");
    if (redis_uri == NULL)
        return 2;
    open_all();
    check_codes();
    check_options();
#ifdef WITH_MYSQL
    check_mysql_options();
#endif
    o.timeout_ms = 60000;
    must(shed_cache_open(client, "frozen", source, &o, &cache, &err), &err,
         "cache");
    check_gets(cache);
    check_stats(cache);
    check_lock();
    opened = client;
    check_status();
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(opened);
    for (size_t i = 0; i < LENGTH(marks); i++)
        require(atomic_load(&marks[i]) > 0,
                "a callback was not called with its user");
    if (failures == 0)
        (void)puts("What was compiled for 0.3 works as it did.");
    return failures == 0 ? 0 : 1;
}
