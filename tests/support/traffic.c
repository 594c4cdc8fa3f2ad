/* See traffic.h. */
#include "support/traffic.h"

#include <stdio.h>
#include <string.h>

#include "support/answers.h"
#include "support/awaited.h"
#include "support/pulse.h"

/* How much later than its deadline a call may end on a busy machine. */
#define SLACK_MS 2000

static const char *name_of(unsigned i, char key[16])
{
    snprintf(key, 16, "w%u", i);
    return key;
}

static void note(struct traffic *t, atomic_uint *counter, const char *what,
                 const char *key, const char *detail)
{
    if (atomic_fetch_add(counter, 1) == 0)
        snprintf(t->last, sizeof(t->last), "%s: %s: %s", what, key, detail);
}

/* ------------------------------------------------------------------ source */

/* Loads take a moment, so that they overlap. */
#define LOAD_US 1000

static void load(void *user, void *thread, struct shed_load *batch)
{
    struct traffic *t = user;
    unsigned running = atomic_fetch_add(&t->running, 1) + 1;
    unsigned most = atomic_load(&t->most_running);
    char row[32];

    (void)thread;
    while (running > most &&
           !atomic_compare_exchange_weak(&t->most_running, &most, running))
        ;
    atomic_fetch_add(&t->loads, 1);
    for (size_t i = 0; i < batch->count; i++) {
        char key[16] = "";
        unsigned number;
        memcpy(key, batch->keys[i].key.data, batch->keys[i].key.size);
        number = (unsigned)atoi(key + 1);
        snprintf(row, sizeof(row), "%s@%u", key,
                 atomic_load(&t->version[number]));
        answer_row(batch, i, shed_str(row));
    }
    usleep(LOAD_US);
    atomic_fetch_sub(&t->running, 1);
    shed_load_done(batch);
}

/* ----------------------------------------------------------------- threads */

/* One in two asynchronous reads is of two keys, of which the other is ignored.
 */
static enum shed_code get(struct traffic *t, struct shed_cache *cache,
                          const char *key, struct shed_value **value,
                          struct shed_error *err)
{
    struct shed_item items[] = {{.key = shed_bytes(key, strlen(key))},
                                {.key = shed_str("w0")}};
    enum shed_code code;

    if (!t->is_async)
        return shed_get(cache, items[0].key, NULL, value, err);
    if (atomic_load(&t->reads) % 2 == 0)
        return awaited_get(cache, items[0].key, NULL, value, err);
    code = awaited_get_many(cache, items, 2, NULL, err);
    *value = items[0].value;
    shed_value_unref(items[1].value);
    return code;
}

/* Read a row. Returns: its version; 0: none was given out. */
static unsigned read_row(struct traffic *t, struct shed_cache *cache,
                         const char *key)
{
    struct shed_value *value = NULL;
    struct shed_error err = {0};
    uint64_t begin_ms = shed_now_ms();
    char row[32] = "", expected[32];
    unsigned version = 0;

    if (get(t, cache, key, &value, &err) != SHED_OK) {
        note(t, &t->failed, "failed", key, err.reason);
    } else {
        if (value->size < sizeof(row))
            memcpy(row, value->data, value->size);
        version = (unsigned)strtoul(row + strcspn(row, "@") + 1, NULL, 10);
        snprintf(expected, sizeof(expected), "%s@%u", key, version);
        if (strcmp(row, expected) != 0 || version == 0)
            note(t, &t->wrong, "wrong", key, row);
    }
    shed_value_unref(value);
    if (shed_now_ms() - begin_ms >
        scaled_ms(TRAFFIC_TIMEOUT_MS) + scaled_ms(SLACK_MS))
        note(t, &t->late, "late", key, "a read");
    atomic_fetch_add(&t->reads, 1);
    return version;
}

struct reader {
    struct traffic *t;
    size_t client;
    unsigned first;
};

static void *read_rows(void *arg)
{
    enum { PAUSE_US = 200, STEP = 7 };
    struct reader *r = arg;
    struct traffic *t = r->t;

    for (unsigned i = r->first; !atomic_load(&t->is_stopping); i += STEP) {
        unsigned k = i % TRAFFIC_KEYS, version;
        unsigned least = r->client == 0 ? atomic_load(&t->ended[k])
                                        : atomic_load(&t->confirmed[k]);
        char key[16], detail[64];
        version = read_row(t, t->peer[r->client].cache, name_of(k, key));
        snprintf(detail, sizeof(detail), "%u is older than %u, client %zu",
                 version, least, r->client);
        if (version > 0 && version < least)
            note(t, &t->old, "old", key, detail);
        usleep(PAUSE_US);
    }
    free(r);
    return NULL;
}

static enum shed_code change(struct traffic *t, const char *key,
                             unsigned version, struct shed_error *err)
{
    struct shed_cache *cache = t->peer[0].cache;
    struct shed_bytes name = shed_bytes(key, strlen(key));
    char row[32];

    if (!t->is_async)
        return shed_invalidate(cache, name, 0, err);
    if (version % 2 == 0)
        return awaited_invalidate(cache, name, 0, err);
    snprintf(row, sizeof(row), "%s@%u", key, version);
    return awaited_put(cache, name, shed_str(row), NULL, err);
}

static void write_row(struct traffic *t, unsigned k)
{
    uint64_t begin_ms = shed_now_ms();
    struct shed_error err = {0};
    unsigned version = atomic_fetch_add(&t->version[k], 1) + 1;
    enum shed_code code;
    char key[16];

    name_of(k, key);
    code = change(t, key, version, &err);
    if (code == SHED_OK)
        atomic_store(&t->confirmed[k], version);
    else
        atomic_fetch_add(&t->refused, 1);
    atomic_store(&t->ended[k], version);
    if (shed_now_ms() - begin_ms >
        scaled_ms(TRAFFIC_TIMEOUT_MS) + scaled_ms(SLACK_MS))
        note(t, &t->late, "late", key, "a write");
    atomic_fetch_add(&t->writes, 1);
}

static void *write_rows(void *arg)
{
    enum { PAUSE_US = 1000, STEP = 11 };
    struct traffic *t = arg;

    for (unsigned i = 0; !atomic_load(&t->is_stopping); i += STEP) {
        write_row(t, i % TRAFFIC_KEYS);
        usleep(PAUSE_US);
    }
    return NULL;
}

/* --------------------------------------------------------------- interface */

static void open_all(struct traffic *t, struct fixture *f)
{
    struct shed_source *source = f->source;

    f->cache_options.timeout_ms = scaled_ms(TRAFFIC_TIMEOUT_MS);
    f->source_options.max_loads = TRAFFIC_LOADS;
    EXPECT_OK(
        shed_source_open_batch(load, t, &f->source_options, &t->source, NULL));
    f->source = t->source;
    for (int i = 0; i < 2; i++)
        peer_open(&t->peer[i], f);
    f->source = source;
}

void traffic_start(struct traffic *t, struct fixture *f, bool is_async)
{
    *t = (struct traffic){.is_async = is_async};
    for (unsigned i = 0; i < TRAFFIC_KEYS; i++)
        atomic_store(&t->version[i], 1);
    open_all(t, f);
    start_thread(&t->writer, write_rows, t);
    for (size_t i = 0; i < 2; i++)
        for (unsigned r = 0; r < TRAFFIC_READERS; r++) {
            struct reader *reader = malloc(sizeof(*reader));
            ck_assert_ptr_nonnull(reader);
            *reader = (struct reader){t, i, r * TRAFFIC_KEYS / 2};
            start_thread(&t->reader[i][r], read_rows, reader);
        }
    traffic_go_on(t);
}

void traffic_go_on(struct traffic *t)
{
    unsigned reads = atomic_load(&t->reads), writes = atomic_load(&t->writes);

    WAIT_FOR(atomic_load(&t->reads) > reads + 10 * TRAFFIC_KEYS &&
             atomic_load(&t->writes) > writes + TRAFFIC_KEYS);
}

void traffic_stop(struct traffic *t)
{
    atomic_store(&t->is_stopping, true);
    pthread_join(t->writer, NULL);
    for (size_t i = 0; i < 2; i++)
        for (unsigned r = 0; r < TRAFFIC_READERS; r++)
            pthread_join(t->reader[i][r], NULL);
}

unsigned traffic_count_old(struct traffic *t)
{
    unsigned old = 0;

    for (unsigned k = 0; k < TRAFFIC_KEYS; k++)
        for (size_t i = 0; i < 2; i++) {
            char key[16];
            old += read_row(t, t->peer[i].cache, name_of(k, key)) <
                   atomic_load(&t->confirmed[k]);
        }
    return old;
}

void traffic_close(struct traffic *t)
{
    for (int i = 0; i < 2; i++)
        peer_close(&t->peer[i]);
    shed_source_close(t->source);
}

void traffic_check(struct traffic *t, bool are_writes_kept)
{
    ck_assert_msg(atomic_load(&t->wrong) == 0 && atomic_load(&t->late) == 0 &&
                      atomic_load(&t->failed) == 0 &&
                      (atomic_load(&t->old) == 0 || !are_writes_kept),
                  "of %u reads %u wrong, %u late, %u failed, %u old: %s",
                  atomic_load(&t->reads), atomic_load(&t->wrong),
                  atomic_load(&t->late), atomic_load(&t->failed),
                  atomic_load(&t->old), t->last);
    ck_assert_uint_le(atomic_load(&t->most_running), TRAFFIC_LOADS);
}

/* The reply to a command about the key. Returns: -1: an error; for a moment a
 * cluster may be down, or a node may not have the key any more. */
static long long ask(const struct server *server, const char *command,
                     const char *key)
{
    redisReply *reply = server_run(server, command, key);
    long long answer = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;

    freeReplyObject(reply);
    return answer;
}

bool gives_hits(struct shed_cache *cache, const struct server *server,
                const char *key)
{
    struct shed_value *value = NULL;
    bool is_hit = shed_get(cache, shed_bytes(key, strlen(key)), NULL, &value,
                           NULL) == SHED_OK &&
                  value->origin == SHED_ORIGIN_REDIS;

    shed_value_unref(value);
    return is_hit && ask(server, "EXISTS t:{%s}", key) == 1;
}

void expect_hits_soon(struct shed_cache *cache, const struct server *server,
                      const char *key)
{
    enum { SOON_MS = 1000, STEPS = 10 /* each of which may be held up */ };
    uint64_t begin_ms = shed_now_ms(), after_ms;
    struct pulse pulse = {0};

    pulse_start(&pulse);
    WAIT_FOR(ask(server, "DEL t:{%s}", key) >= 0);
    WAIT_FOR(gives_hits(cache, server, key));
    after_ms = shed_now_ms() - begin_ms;
    pulse_stop(&pulse);
    fprintf(stderr, "hits %u ms after there was a new primary\n",
            (unsigned)after_ms);
    ck_assert_uint_lt(after_ms,
                      scaled_ms(SOON_MS) + STEPS * pulse_longest_ms(&pulse));
}
