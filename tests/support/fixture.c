/* The table and the cache on it. */
#include "support/fixture.h"

#include "cache/cache.h"
#include "support/bare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fixture fixture;

/* ------------------------------------------------------------------- table */

static bool begins(const void *key, size_t size, const char *word)
{
    return size >= strlen(word) && memcmp(key, word, strlen(word)) == 0;
}

/* row has room for a key and "@VERSION". */
static void answer_by_key(struct shed_answer *answer, struct shed_bytes asked,
                          char *row, uint64_t version)
{
    static const char big[4096];
    const char *key = asked.data;

    if (begins(key, asked.size, "absent"))
        answer->kind = SHED_ANSWER_ABSENT;
    else if (begins(key, asked.size, "null"))
        answer->kind = SHED_ANSWER_NULL;
    else if (begins(key, asked.size, "fail"))
        answer->reason = "the table is on fire";
    else if (begins(key, asked.size, "garbled"))
        answer->reason = "the table\n\033[31m is on fire";
    else {
        answer->kind = SHED_ANSWER_ROW;
        if (begins(key, asked.size, "big"))
            answer->row = shed_bytes(big, sizeof(big));
        else if (!begins(key, asked.size, "empty")) {
            memcpy(row, key, asked.size);
            asked.size +=
                (size_t)snprintf(row + asked.size, 32, "@%" PRIu64, version);
            answer->row = shed_bytes(row, asked.size);
        }
    }
}

/* With the table's mu held. */
static void answer_as_set(const struct table *t, struct shed_load *load,
                          size_t i, uint64_t version)
{
    const struct shed_wanted *wanted = &load->keys[i];
    const struct shed_bytes tags[] = {shed_str("all"),
                                      shed_bytes(wanted->key.data, 1)};
    struct shed_answer answer = SHED_ANSWER_INIT;
    char row[SHED_KEY_MAX_BYTES + 32];

    if (t->is_failing)
        answer.reason = "the table is on fire";
    else if (t->is_empty)
        answer.kind = SHED_ANSWER_ABSENT;
    else if (t->has_versions && wanted->old_version != NULL &&
             *wanted->old_version == version)
        answer.kind = SHED_ANSWER_UNMODIFIED;
    else
        answer_by_key(&answer, wanted->key, row, version);
    answer.version = t->has_versions ? &version : NULL;
    answer.tags = tags;
    answer.tags_count = t->has_tags ? 2 : 0;
    if (t->has_ttl)
        answer.ttl_ms = t->ttl_ms > 0 ? t->ttl_ms : SHED_TTL_NONE;
    shed_load_answer(load, i, &answer);
}

static void finish(struct table *t, struct shed_load *load, unsigned version)
{
    pthread_mutex_lock(&t->mu);
    for (size_t i = 0; i < load->count; i++)
        answer_as_set(t, load, i, version);
    t->running--;
    pthread_mutex_unlock(&t->mu);
    shed_load_done(load);
}

static bool park_locked(struct table *t, struct shed_load *load)
{
    if (!t->is_held || !t->is_async || t->parked_count == TABLE_PARKED_MAX)
        return false;
    t->parked[t->parked_count++] = (struct parked){load, t->version};
    return true;
}

void table_load(void *user, void *thread, struct shed_load *load)
{
    struct table *t = user;
    unsigned version;
    bool is_parked;

    (void)thread;
    pthread_mutex_lock(&t->mu);
    version = t->version;
    t->loads++;
    t->keys += (unsigned)load->count;
    if (++t->running > t->most_running)
        t->most_running = t->running;
    is_parked = park_locked(t, load);
    while (!is_parked && t->is_held)
        pthread_cond_wait(&t->changed, &t->mu);
    pthread_mutex_unlock(&t->mu);
    if (!is_parked)
        finish(t, load, version);
}

void table_hold(struct table *t)
{
    pthread_mutex_lock(&t->mu);
    t->is_held = true;
    pthread_mutex_unlock(&t->mu);
}

void table_release(struct table *t)
{
    pthread_mutex_lock(&t->mu);
    t->is_held = false;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mu);
    /* nothing is parked any longer */
    for (size_t i = 0; i < t->parked_count; i++)
        finish(t, t->parked[i].load, t->parked[i].version);
    t->parked_count = 0;
}

void table_update(struct table *t)
{
    pthread_mutex_lock(&t->mu);
    t->version++;
    pthread_mutex_unlock(&t->mu);
}

void table_set_version(struct table *t, unsigned version)
{
    pthread_mutex_lock(&t->mu);
    t->version = version;
    pthread_mutex_unlock(&t->mu);
}

void table_fail(struct table *t, bool is_failing)
{
    pthread_mutex_lock(&t->mu);
    t->is_failing = is_failing;
    pthread_mutex_unlock(&t->mu);
}

unsigned table_loads(struct table *t)
{
    unsigned loads;

    pthread_mutex_lock(&t->mu);
    loads = t->loads;
    pthread_mutex_unlock(&t->mu);
    return loads;
}

unsigned table_running(struct table *t)
{
    unsigned running;

    pthread_mutex_lock(&t->mu);
    running = t->running;
    pthread_mutex_unlock(&t->mu);
    return running;
}

/* ----------------------------------------------------------------- fixture */

static void set_defaults(struct fixture *r)
{
    *r = (struct fixture){.table = {.mu = PTHREAD_MUTEX_INITIALIZER,
                                    .changed = PTHREAD_COND_INITIALIZER,
                                    .version = 1},
                          .client_options = bare_client(),
                          .source_options = bare_source(),
                          .cache_options = bare_cache()};
    r->cache_options.ttl_jitter_pct = 0;
    r->cache_options.timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
    r->client_options.connect_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    r->client_options.command_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
}

void fixture_init(struct fixture *r)
{
    set_defaults(r);
    server_start(&r->server);
}

void fixture_init_tls(struct fixture *r, const char *certificates)
{
    set_defaults(r);
    r->server.certificates = certificates;
    server_start(&r->server);
    snprintf(r->tls_uri, sizeof(r->tls_uri), "rediss://localhost:%u",
             r->server.tls_port);
    snprintf(r->tls_ca, sizeof(r->tls_ca), "%s/ca.pem", certificates);
    r->uri = r->tls_uri;
    r->client_options.tls_ca = r->tls_ca;
}

void fixture_hurry(struct fixture *r, uint64_t silence_ms)
{
    r->client_options.connect_timeout_ms = scaled_ms(silence_ms);
    r->client_options.command_timeout_ms = scaled_ms(silence_ms);
}

void fixture_add_proxy(struct fixture *r, struct proxy *proxy)
{
    *proxy = (struct proxy){0};
    proxy_start(proxy, &r->server);
    r->proxy = proxy;
    r->uri = proxy->uri;
}

static void open_client(struct fixture *r, struct shed_client **client,
                        struct shed_cache **cache)
{
    struct shed_error err = {0};

    ck_assert_msg(shed_client_open(r->uri != NULL ? r->uri : r->server.uri,
                                   &r->client_options, client, &err) == SHED_OK,
                  "%s", err.reason);
    ck_assert_msg(shed_cache_open(*client, "t", r->source, &r->cache_options,
                                  cache, &err) == SHED_OK,
                  "%s", err.reason);
}

void fixture_open(struct fixture *r)
{
    struct shed_error err = {0};

    ck_assert_msg(shed_source_open_batch(table_load, &r->table,
                                         &r->source_options, &r->source,
                                         &err) == SHED_OK,
                  "%s", err.reason);
    open_client(r, &r->client, &r->cache);
}

void fixture_close(struct fixture *r)
{
    shed_cache_close(r->cache);
    shed_source_close(r->source);
    shed_client_close(r->client);
    r->cache = NULL;
    r->source = NULL;
    r->client = NULL;
}

void fixture_up(struct fixture *r)
{
    fixture_init(r);
    fixture_open(r);
}

void fixture_down(struct fixture *r)
{
    fixture_close(r);
    if (r->proxy != NULL)
        proxy_stop(r->proxy);
    r->proxy = NULL;
    if (r->server.pid != 0)
        server_check_ttls(&r->server);
    server_stop(&r->server);
}

void fixture_set_up(void)
{
    fixture_init(&fixture);
}

void fixture_tear_down(void)
{
    fixture_down(&fixture);
}

void peer_open(struct peer *p, struct fixture *r)
{
    open_client(r, &p->client, &p->cache);
}

void peer_close(struct peer *p)
{
    shed_cache_close(p->cache);
    shed_client_close(p->client);
    *p = (struct peer){.client = NULL};
}

void wait_for_pushes(struct fixture *r)
{
    WAIT_FOR(server_clients(&r->server, "flags=t") > 0);
}

/* ------------------------------------------------------------- expectations */

void check_text(struct shed_value *value, const char *text)
{
    const char *row;
    size_t size;

    ck_assert_ptr_nonnull(value);
    ck_assert_int_eq(value->kind, SHED_KIND_ROW);
    size = value->size;
    row = size > 0 ? value->data : "";
    ck_assert_msg(size == strlen(text) && memcmp(row, text, size) == 0,
                  "'%.*s' and not '%s'", (int)size, row, text);
}

static struct shed_value *get_with(struct shed_cache *cache, const char *key,
                                   const struct shed_get_options *options)
{
    struct shed_value *value = NULL;
    struct shed_error err = {0};
    enum shed_code code = shed_get(cache, shed_str(key), options, &value, &err);

    ck_assert_msg(code == SHED_OK, "%s: %s: %s", key, shed_code_name(code),
                  err.reason);
    return value;
}

static struct shed_value *get(struct shed_cache *cache, const char *key)
{
    return get_with(cache, key, NULL);
}

void expect_text(struct shed_cache *cache, const char *key, const char *text)
{
    struct shed_value *value = get(cache, key);

    check_text(value, text);
    shed_value_unref(value);
}

void expect_get(struct shed_cache *cache, const char *key,
                const struct shed_get_options *options, const char *text,
                enum shed_origin origin)
{
    struct shed_value *value = get_with(cache, key, options);

    check_text(value, text);
    ck_assert_int_eq(value->origin, origin);
    shed_value_unref(value);
}

void expect_origin(struct shed_cache *cache, const char *key, const char *text,
                   enum shed_origin origin)
{
    expect_get(cache, key, NULL, text, origin);
}

bool gets_from(struct shed_cache *cache, const char *key,
               const struct shed_get_options *options, enum shed_origin origin)
{
    struct shed_value *value = NULL;
    bool is_so =
        shed_get(cache, shed_str(key), options, &value, NULL) == SHED_OK &&
        value->origin == origin;

    shed_value_unref(value);
    return is_so;
}

bool gets_k(enum shed_origin origin)
{
    struct shed_value *value = NULL;
    bool is_so =
        shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL) == SHED_OK &&
        value->origin == origin;

    if (value != NULL)
        check_text(value, "k@1");
    shed_value_unref(value);
    return is_so;
}

enum shed_code get_code(struct shed_cache *cache, const char *key)
{
    struct shed_value *value = NULL;
    enum shed_code code = shed_get(cache, shed_str(key), NULL, &value, NULL);

    shed_value_unref(value);
    return code;
}

enum shed_code invalidate_code(struct shed_cache *cache, const char *key)
{
    return shed_invalidate(cache, shed_str(key), 0, NULL);
}

void expect_kind(struct shed_cache *cache, const char *key, enum shed_kind kind)
{
    struct shed_value *value = get(cache, key);

    ck_assert_int_eq(value->kind, kind);
    ck_assert_uint_eq(value->size, 0);
    ck_assert_ptr_null(value->data);
    shed_value_unref(value);
}

void expect_code(struct shed_cache *cache, const char *key, enum shed_code code,
                 struct shed_error *err)
{
    struct shed_value *value = NULL;
    struct shed_error unused = {0};

    if (err == NULL)
        err = &unused;
    ck_assert_int_eq(shed_get(cache, shed_str(key), NULL, &value, err), code);
    ck_assert_ptr_null(value);
    ck_assert_int_eq(err->code, code);
    ck_assert_uint_gt(strlen(err->reason), 0);
}

bool has_row(struct shed_cache *cache, const char *key, const char *text)
{
    struct shed_value *value = get(cache, key);
    size_t size = value->size;
    bool is = size == strlen(text) && memcmp(value->data, text, size) == 0;

    shed_value_unref(value);
    return is;
}

bool has_text(struct shed_cache *cache, const char *text)
{
    return has_row(cache, "k", text);
}

void refuse_writes(void)
{
    server_do(&fixture.server, "CONFIG SET min-replicas-to-write 1");
}

void accept_writes(void)
{
    server_do(&fixture.server, "CONFIG SET min-replicas-to-write 0");
}

size_t undelivered(void)
{
    return shed_delivery_count(fixture.cache->delivery);
}

unsigned long long gauge(struct shed_cache *cache, const char *name)
{
    static char text[65536];
    char line[128];
    const char *at;

    snprintf(line, sizeof(line), "\nsnowshed_%s{cache=\"t\"} ", name);
    ck_assert_uint_lt(
        shed_stats_prometheus(&cache, 1, NULL, 0, text, sizeof(text)),
        sizeof(text));
    at = strstr(text, line);
    ck_assert_ptr_nonnull(at);
    return strtoull(at + strlen(line), NULL, 10);
}

bool knows_the_clock(struct shed_cache *cache)
{
    struct shed_value *value = get(cache, "clock");
    uint64_t age_ms = value->age_ms;

    shed_value_unref(value);
    return age_ms > 0;
}

void invalidate(struct shed_cache *cache, const char *key)
{
    struct shed_error err = {0};

    ck_assert_msg(shed_invalidate(cache, shed_str(key), 0, &err) == SHED_OK,
                  "%s", err.reason);
}

void put(struct shed_cache *cache, const char *key, const char *text)
{
    struct shed_error err = {0};

    ck_assert_msg(shed_put(cache, shed_str(key), shed_str(text), NULL, &err) ==
                      SHED_OK,
                  "%s", err.reason);
}

struct shed_stats stats_of(struct shed_cache *cache)
{
    struct shed_stats stats;

    EXPECT_OK(shed_stats_read(cache, &stats, sizeof(stats), NULL));
    return stats;
}

struct shed_client_status status_of(struct shed_client *client)
{
    struct shed_client_status status;

    EXPECT_OK(shed_client_status_read(client, &status, sizeof(status), NULL));
    return status;
}

/* ------------------------------------------------------------------ getters */

static void *run_getter(void *arg)
{
    struct getter *g = arg;

    g->code = shed_get(g->cache, shed_bytes(g->key, strlen(g->key)),
                       WITHIN(g->timeout_ms), &g->value, &g->error);
    return NULL;
}

void getter_start(struct getter *g, struct shed_cache *cache, const char *key)
{
    g->cache = cache;
    g->key = key;
    start_thread(&g->thread, run_getter, g);
}

void getter_hold(struct getter *g, struct fixture *r, const char *key)
{
    table_hold(&r->table);
    getter_start(g, r->cache, key);
    WAIT_FOR(table_running(&r->table) == 1);
}

void getter_join(struct getter *g)
{
    pthread_join(g->thread, NULL);
}

void getter_expect(struct getter *g, const char *text, enum shed_origin origin)
{
    getter_join(g);
    ck_assert_msg(g->code == SHED_OK, "%s: %s", g->key, g->error.reason);
    check_text(g->value, text);
    ck_assert_int_eq(g->value->origin, origin);
    shed_value_unref(g->value);
}

/* The peer waits for a load of r's cache. */
static void make_wait(struct peer *p, struct fixture *r, const char *key)
{
    uint64_t before = stats_of(p->cache).waits;
    struct getter here = {0}, there = {0};
    char row[64];

    snprintf(row, sizeof(row), "%s@1", key);
    invalidate(r->cache, key);
    getter_hold(&here, r, key);
    getter_start(&there, p->cache, key);
    WAIT_FOR(stats_of(p->cache).waits > before);
    table_release(&r->table);
    getter_expect(&here, row, SHED_ORIGIN_LOAD);
    getter_expect(&there, row, SHED_ORIGIN_WAITED);
}

void peer_expect_push(struct peer *p, struct fixture *r, const char *key)
{
    uint64_t before = stats_of(p->cache).pushes;

    WAIT_FOR((make_wait(p, r, key), stats_of(p->cache).pushes > before));
}

void fixture_expect_push(struct fixture *r)
{
    struct peer peer;

    peer_open(&peer, r);
    WAIT_FOR(server_clients(&r->server, "flags=t") == 2);
    peer_expect_push(&peer, r, "k");
    peer_close(&peer);
}

/* ----------------------------------------------------------------- readers */

struct reader {
    const struct readers *common;
    pthread_t thread;
    unsigned number;
};

static void *read_own_keys(void *arg)
{
    const struct reader *r = arg;
    const struct readers *c = r->common;
    char key[32], text[40];

    for (unsigned i = 0; i < c->gets; i++) {
        struct shed_value *value = NULL;
        uint64_t timeout_ms =
            c->timeout_max_ms > 0 ? 1 + i % c->timeout_max_ms : 0;

        snprintf(key, sizeof(key), "k%u.%u", r->number, i % c->keys);
        snprintf(text, sizeof(text), "%s@1", key);
        if (shed_get(c->cache, shed_str(key), WITHIN(timeout_ms), &value,
                     NULL) == SHED_OK)
            check_text(value, text);
        shed_value_unref(value);
    }
    return NULL;
}

void readers_run(const struct readers *common)
{
    struct reader *readers = calloc(common->threads, sizeof(*readers));

    ck_assert_ptr_nonnull(readers);
    for (unsigned i = 0; i < common->threads; i++) {
        readers[i] = (struct reader){.common = common, .number = i};
        start_thread(&readers[i].thread, read_own_keys, &readers[i]);
    }
    for (unsigned i = 0; i < common->threads; i++)
        pthread_join(readers[i].thread, NULL);
    free(readers);
}
