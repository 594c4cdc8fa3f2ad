/* The same with snowshed: the query is in a source, and the rest is
 * shed_get. */
#include <snowshed/snowshed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strategies.h"
#include "database.h"

#define TIMEOUT_MS 30000
#define KEY_BYTES 24

struct process {
    const struct settings *settings;
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
};

/* A value begins with the magic, the format, and its type in byte 5. */
static size_t snowshed_row(const char *bytes, size_t size)
{
    return size > 64 && bytes[5] == 'V' ? 64 : 0;
}

static void *start_loader(void *user)
{
    char why[160];

    (void)user;
    return database_open(why, sizeof(why)); /* NULL: its loads fail */
}

static void stop_loader(void *user, void *db)
{
    (void)user;
    database_close(db);
}

static void load(void *user, void *db, struct shed_load *load)
{
    struct process *p = user;
    size_t count = shed_load_count(load);
    uint64_t *ids = calloc(count, sizeof(*ids));
    struct row *rows = calloc(count, sizeof(*rows));
    char why[160] = "no connection to the database";
    bool is_good = ids != NULL && rows != NULL && db != NULL;

    for (size_t i = 0; is_good && i < count; i++) {
        struct shed_bytes asked = shed_load_key(load, i);
        const char *key = asked.data;
        char text[KEY_BYTES] = "";
        memcpy(text, key, asked.size < KEY_BYTES ? asked.size : KEY_BYTES - 1);
        ids[i] = strtoull(text, NULL, 10);
    }
    is_good = is_good && database_load(db, p->settings->record, ids, count,
                                       rows, why, sizeof(why));
    for (size_t i = 0; i < count; i++) {
        if (!is_good)
            shed_load_fail(load, i, why);
        else if (rows[i].is_there)
            shed_load_value(load, i, shed_bytes(rows[i].text, rows[i].size));
        else
            shed_load_absent(load, i);
    }
    free(ids);
    free(rows);
    shed_load_done(load);
}

static void close_snowshed(void *arg)
{
    struct process *p = arg;

    shed_cache_close(p->cache);
    shed_source_close(p->source);
    shed_client_close(p->client);
    free(p);
}

static void *open_snowshed(const struct settings *settings, char *why,
                           size_t size)
{
    struct shed_source_options source = SHED_SOURCE_OPTIONS_INIT;
    struct shed_cache_options cache = SHED_CACHE_OPTIONS_INIT;
    struct process *p = calloc(1, sizeof(*p));
    struct shed_error err = {SHED_ENOMEM, "memory is out"};

    if (p == NULL)
        goto fail;
    p->settings = settings;
    source.max_loads = settings->max_loads;
    source.thread_start = start_loader;
    source.thread_stop = stop_loader;
    cache.ttl_ms = settings->ttl_ms;
    cache.negative_ttl_ms = settings->negative_ttl_ms;
    cache.lease_ms = settings->lease_ms;
    if (shed_client_open(settings->redis_uri, NULL, &p->client, &err) ||
        shed_source_open(load, p, &source, &p->source, &err) ||
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

static bool get_snowshed(void *thread, const uint64_t *ids, size_t count,
                         bool *did_load, char *why, size_t size)
{
    struct process *p = thread;
    struct shed_item items[PAGE_MAX];
    char keys[PAGE_MAX][KEY_BYTES];
    struct shed_error err;
    enum shed_code code;

    (void)did_load; /* the loader threads query, never the caller's */
    for (size_t i = 0; i < count; i++) {
        int n =
            snprintf(keys[i], KEY_BYTES, "%llu", (unsigned long long)ids[i]);
        items[i] = (struct shed_item){.key = shed_bytes(keys[i], (size_t)n)};
    }
    if (count == 1)
        code =
            shed_get(p->cache, items[0].key, TIMEOUT_MS, &items[0].value, &err);
    else
        code = shed_get_many(p->cache, items, count, TIMEOUT_MS, &err);
    for (size_t i = 0; i < count; i++)
        shed_value_unref(items[i].value);
    if (code != SHED_OK)
        (void)snprintf(why, size, "%s", err.reason);
    return code == SHED_OK;
}

const struct strategy strategy_snowshed = {
    "snowshed",     "item:{%llu}",  snowshed_row,   open_snowshed,
    close_snowshed, enter_snowshed, leave_snowshed, get_snowshed};
