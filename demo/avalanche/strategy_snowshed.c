/* The same with snowshed: the query is in a source, and the rest is
 * shed_get. */
#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategies.h"
#include "database.h"

#define KEY_BYTES 24

struct process {
    const struct settings *settings;
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    /* when the record began that these are subtracted from */
    _Atomic uint64_t start_us;
    _Atomic uint64_t misses_before, stored_before;
};

/* A value begins with the magic, the format, and its type in byte 5. */
static size_t snowshed_row(const char *bytes, size_t size)
{
    return size > 64 && bytes[5] == 'V' ? 64 : 0;
}

/* What a loader thread has. */
struct loader {
    struct database *db; /* NULL: the next load opens it */
};

static void *start_loader(void *user)
{
    (void)user;
    return calloc(1, sizeof(struct loader)); /* NULL: its loads fail */
}

static void stop_loader(void *user, void *thread)
{
    struct loader *loader = thread;

    (void)user;
    if (loader != NULL)
        database_close(loader->db);
    free(loader);
}

static struct database *open_database(struct loader *loader, char *why,
                                      size_t size)
{
    if (loader == NULL)
        return NULL;
    if (loader->db == NULL)
        loader->db = database_open(why, size);
    return loader->db;
}

static void load(void *user, void *thread, struct shed_load *load)
{
    struct process *p = user;
    size_t count = load->count;
    uint64_t *ids = calloc(count, sizeof(*ids));
    struct row *rows = calloc(count, sizeof(*rows));
    char why[160] = "out of memory";
    struct database *db = open_database(thread, why, sizeof(why));
    bool is_good = ids != NULL && rows != NULL && db != NULL;

    for (size_t i = 0; is_good && i < count; i++) {
        struct shed_bytes asked = load->keys[i].key;
        const char *key = asked.data;
        char text[KEY_BYTES] = "";
        memcpy(text, key, asked.size < KEY_BYTES ? asked.size : KEY_BYTES - 1);
        ids[i] = strtoull(text, NULL, 10);
    }
    is_good = is_good && database_load(db, p->settings->record, ids, count,
                                       rows, why, sizeof(why));
    for (size_t i = 0; i < count; i++) {
        struct shed_answer answer = SHED_ANSWER_INIT;
        answer.reason = why;
        if (is_good && rows[i].is_there) {
            answer.kind = SHED_ANSWER_ROW;
            answer.row = shed_bytes(rows[i].text, rows[i].size);
        } else if (is_good)
            answer.kind = SHED_ANSWER_ABSENT;
        shed_load_answer(load, i, &answer);
    }
    free(ids);
    free(rows);
    shed_load_done(load);
}

/* How many callers have waited for a load (misses_ended), and how many rows
 * were stored (published), by the library's own count. */
static struct shed_stats count(const struct process *p)
{
    const struct shed_stats none = {0};
    struct shed_stats stats;
    struct shed_error err;

    return shed_stats_read(p->cache, &stats, sizeof(stats), &err) == SHED_OK
               ? stats
               : none;
}

static void close_snowshed(void *arg)
{
    struct process *p = arg;

    if (p->cache != NULL) {
        struct shed_stats now = count(p);
        atomic_fetch_add(&p->settings->record->waited,
                         now.misses_ended - atomic_load(&p->misses_before));
        atomic_fetch_add(&p->settings->record->stored,
                         now.published - atomic_load(&p->stored_before));
    }
    shed_cache_close(p->cache);
    shed_source_close(p->source);
    shed_client_close(p->client);
    free(p);
}

static void *open_cache(const struct strategy *strategy,
                        const struct settings *settings, char *why, size_t size)
{
    struct shed_client_options client = SHED_CLIENT_OPTIONS_INIT;
    struct shed_source_options source = SHED_SOURCE_OPTIONS_INIT;
    struct shed_cache_options cache = SHED_CACHE_OPTIONS_INIT;
    struct process *p = calloc(1, sizeof(*p));
    struct shed_error err = {SHED_ENOMEM, "out of memory"};

    if (p == NULL)
        goto fail;
    p->settings = settings;
    client.command_timeout_ms = settings->command_timeout_ms;
    source.max_loads = settings->max_loads;
    source.thread_start = start_loader;
    source.thread_stop = stop_loader;
    cache.ttl_ms = settings->ttl_ms;
    cache.negative_ttl_ms = settings->negative_ttl_ms;
    cache.lease_ms = settings->lease_ms;
    if (strategy == &strategy_refresh) {
        cache.stale_while_revalidate_ms = settings->stale_ms;
        cache.stale_if_error_ms = settings->stale_ms;
    } else {
        cache.refresh_after_pct = 0; /* rows shall expire */
    }
    if (shed_client_open(settings->redis_uri, &client, &p->client, &err) ||
        shed_source_open_batch(load, p, &source, &p->source, &err) ||
        shed_cache_open(p->client, "item", p->source, &cache, &p->cache, &err))
        goto fail;
    return p;
fail:
    (void)snprintf(why, size, "%s", err.reason);
    if (p != NULL)
        close_snowshed(p);
    return NULL;
}

static void *enter_snowshed(void *process, char *why, size_t size)
{
    (void)why;
    (void)size;
    return process;
}

static void leave_snowshed(void *thread)
{
    (void)thread;
}

static void describe(const struct shed_value *value, struct got *got)
{
    if (value->kind == SHED_KIND_ROW)
        got->price = row_price(value->data, value->size);
}

/* The record may have begun again since the last call. */
static void follow_record(struct process *p)
{
    uint64_t start_us = p->settings->record->start_us;

    if (atomic_load(&p->start_us) != start_us &&
        atomic_exchange(&p->start_us, start_us) != start_us) {
        struct shed_stats now = count(p);
        atomic_store(&p->misses_before, now.misses_ended);
        atomic_store(&p->stored_before, now.published);
    }
}

static bool get_snowshed(void *thread, const uint64_t *ids, size_t count,
                         struct got *got, char *why, size_t size)
{
    struct process *p = thread;
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_item items[PAGE_MAX];
    char keys[PAGE_MAX][KEY_BYTES];
    struct shed_error err;
    enum shed_code code;

    options.timeout_ms = p->settings->timeout_ms;
    follow_record(p);
    for (size_t i = 0; i < count; i++) {
        int n =
            snprintf(keys[i], KEY_BYTES, "%llu", (unsigned long long)ids[i]);
        items[i] = (struct shed_item){.key = shed_bytes(keys[i], (size_t)n)};
    }
    if (count == 1)
        code =
            shed_get(p->cache, items[0].key, &options, &items[0].value, &err);
    else
        code = shed_get_many(p->cache, items, count, &options, &err);
    if (count == 1 && code == SHED_OK)
        describe(items[0].value, got);
    for (size_t i = 0; i < count; i++)
        shed_value_unref(items[i].value);
    if (code != SHED_OK)
        (void)snprintf(why, size, "%s", err.reason);
    return code == SHED_OK;
}

static bool invalidate_snowshed(void *thread, uint64_t id, char *why,
                                size_t size)
{
    struct process *p = thread;
    struct shed_error err;
    char key[KEY_BYTES];
    int n = snprintf(key, sizeof(key), "%llu", (unsigned long long)id);

    if (shed_invalidate(p->cache, shed_bytes(key, (size_t)n),
                        p->settings->timeout_ms, &err) == SHED_OK)
        return true;
    (void)snprintf(why, size, "%s", err.reason);
    return false;
}

static bool has_told_all(void *thread)
{
    struct process *p = thread;
    struct shed_stats stats;
    struct shed_error err;

    return shed_stats_read(p->cache, &stats, sizeof(stats), &err) == SHED_OK &&
           stats.invalidations_undelivered == stats.invalidations_delivered;
}

const struct strategy strategy_snowshed = {
    "snowshed",          "item:{",       "}",
    snowshed_row,        open_cache,     close_snowshed,
    enter_snowshed,      leave_snowshed, get_snowshed,
    invalidate_snowshed, has_told_all};

const struct strategy strategy_refresh = {
    "snowshed-refresh",  "item:{",       "}",
    snowshed_row,        open_cache,     close_snowshed,
    enter_snowshed,      leave_snowshed, get_snowshed,
    invalidate_snowshed, has_told_all};
