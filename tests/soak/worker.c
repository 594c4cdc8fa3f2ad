/* A process of the soak. Its invariant: a mark of the history is raised only
 * after what it says has been done. */
#include "soak/worker.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#include <snowshed/lock.h>
#include <snowshed/mysql.h>
#include <snowshed/stats.h>

#include "base/clock.h"
#include "mysql/compat.h"
#include "support/random.h"

enum {
    READERS = 3,
    KEY_BYTES = 12,
    SOFT_TIMEOUT_MS = 20,
    PAUSE_US = 300,
    TOLD_MAX = 10,     /* calls that are told of */
    ABSENT_EVERY = 20, /* of the reads is one of a key that has no row */
    /* the numbers of processes */
    KEEPER = 2,
    FAILER = 3
};

const char *const soak_policies[SOAK_WORKERS] = {
    "plain", "breakers", [KEEPER] = "stale", [FAILER] = "fail"};

/* The row is read first, and then its load takes a while. */
#define QUERY                                                                  \
    "SELECT id, CONCAT(version, IF(SLEEP(RAND() * 0.03) = 0, '', '')), "       \
    "version FROM item WHERE id IN (?)"

struct worker {
    struct soak_history *history;
    const struct soak_place *place;
    unsigned number;
    uint64_t seed;
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_lock *lock;
};

struct thread {
    struct worker *worker;
    uint64_t random;
};

static uint64_t draw(struct thread *t, uint64_t below)
{
    return random_next(&t->random) % below;
}

static struct shed_bytes name_key(unsigned key, char text[KEY_BYTES])
{
    (void)snprintf(text, KEY_BYTES, "%u", key + 1);
    return shed_str(text);
}

static bool is_over(const struct worker *w)
{
    return atomic_load(&w->history->is_over);
}

/* ------------------------------------------------------------------ read */

static unsigned version_of(const struct shed_value *value)
{
    char text[24] = "";
    size_t size = shed_value_size(value);

    if (size < sizeof(text) && size > 0)
        memcpy(text, shed_value_data(value), size);
    return (unsigned)strtoul(text, NULL, 10);
}

/* Half of the calls have no options. */
static struct shed_get_options draw_options(struct thread *t)
{
    struct shed_get_options o = SHED_GET_OPTIONS_INIT;

    o.timeout_ms = SOAK_TIMEOUT_MS;
    switch (draw(t, 10)) {
    case 0:
        o.max_age_ms = SOAK_MAX_AGE_MS;
        break;
    case 1:
        o.only_cached = 1;
        break;
    case 2:
        o.allow_stale = SHED_STALE_NEVER;
        break;
    case 3:
        o.allow_stale = SHED_STALE_ALLOWED;
        break;
    case 4:
        o.soft_timeout_ms = 1 + draw(t, 30);
    }
    return o;
}

struct call {
    struct soak_call counted;
    struct shed_error err; /* for the call to set */
};

/* A call is about to be made. */
static struct call begin_call(const struct worker *w, enum soak_work work)
{
    return (struct call){.counted = soak_begin(&w->history->account, work,
                                               w->number, shed_now_ms())};
}

/* It has ended. Returns: whether it has succeeded. */
static bool end_call(const struct worker *w, const struct call *call,
                     enum shed_code code)
{
    struct soak_account *account = &w->history->account;
    uint64_t now_ms = shed_now_ms();
    enum soak_end how = soak_end(account, &call->counted, code, now_ms);

    if (how != SOAK_FINE &&
        atomic_load(&account->unexplained) + atomic_load(&account->late) <=
            TOLD_MAX)
        fprintf(stderr,
                "soak: process %u: one of its %s %s, after %llu ms: %s: %s\n",
                w->number, soak_works[call->counted.work],
                how == SOAK_LATE ? "was late" : "failed for no known reason",
                (unsigned long long)(now_ms - call->counted.begun_ms),
                shed_code_name(code), call->err.reason);
    return code == SHED_OK;
}

static void read_once(struct thread *t, unsigned key)
{
    const struct worker *w = t->worker;
    struct shed_get_options asked = draw_options(t);
    struct soak_floor floor = soak_floor(w->history, key);
    struct shed_value *value = NULL;
    char text[KEY_BYTES];
    struct call call = begin_call(w, SOAK_READ);

    floor.is_keeper = w->number == KEEPER;
    if (end_call(w, &call,
                 shed_get_with(w->cache, name_key(key, text), &asked, &value,
                               &call.err))) {
        soak_count_answer(&w->history->account, w->number, value);
        soak_judge(w->history, key, &floor, &asked, version_of(value), value);
    }
    shed_value_unref(value);
}

/* A key without a row never gets one. */
static void read_absent(struct thread *t)
{
    const struct worker *w = t->worker;
    struct shed_value *value = NULL;
    char text[KEY_BYTES];
    struct call call = begin_call(w, SOAK_READ);

    if (end_call(w, &call,
                 shed_get(w->cache, name_key(SOAK_KEYS, text), SOAK_TIMEOUT_MS,
                          &value, &call.err))) {
        soak_count_answer(&w->history->account, w->number, value);
        if (shed_value_kind(value) != SHED_KIND_ABSENT)
            soak_report(w->history, SOAK_UNKNOWN, SOAK_KEYS, version_of(value),
                        0);
    }
    shed_value_unref(value);
}

static void *read_on(void *arg)
{
    struct thread *t = arg;

    while (!is_over(t->worker)) {
        /* half of the reads are of one key */
        unsigned key = (unsigned)draw(t, 2 * (uint64_t)SOAK_KEYS);
        if (draw(t, ABSENT_EVERY) == 0)
            read_absent(t);
        else
            read_once(t, key < SOAK_KEYS ? key : 0);
        usleep((useconds_t)draw(t, PAUSE_US));
    }
    return NULL;
}

/* ----------------------------------------------------------------- write */

/* Repeat it until it succeeds. A repetition does no harm, even a late one. */
static void commit(const struct worker *w, MYSQL **mysql, unsigned key,
                   unsigned version)
{
    char sql[128];

    (void)snprintf(sql, sizeof(sql),
                   "UPDATE item SET version = GREATEST(version, %u) "
                   "WHERE id = %u",
                   version, key + 1);
    while (*mysql == NULL || mysql_query(*mysql, sql) != 0) {
        if (is_over(w))
            return;
        if (*mysql != NULL)
            mysql_close(*mysql);
        *mysql = mysql_init(NULL);
        if (*mysql != NULL && shed_mysql_connect(*mysql, w->place->mysql_uri,
                                                 NULL, 0, NULL) != SHED_OK)
            usleep(PAUSE_US);
    }
    atomic_store(&w->history->key[key].committed_ms[version % SOAK_VERSIONS],
                 shed_now_ms());
    soak_raise(&w->history->key[key].committed, version);
}

/* As another program would, which knows nothing of snowshed. */
static bool delete_plainly(const struct worker *w, const char *text)
{
    const struct timeval patience = {.tv_sec = 2};
    redisContext *c =
        redisConnectUnixWithTimeout(w->place->redis_socket, patience);
    redisReply *reply = NULL;
    bool is_done;

    if (c != NULL && c->err == 0 && redisSetTimeout(c, patience) == REDIS_OK)
        reply = redisCommand(c, "DEL soak:{%s}", text);
    is_done = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
    freeReplyObject(reply);
    redisFree(c);
    return is_done;
}

static bool put_row(const struct worker *w, unsigned key, unsigned version)
{
    char text[KEY_BYTES], row[KEY_BYTES];
    struct call call;
    bool is_done;

    if (!soak_begin_put(w->history, key, version))
        return false;
    (void)snprintf(row, sizeof(row), "%u", version);
    call = begin_call(w, SOAK_WRITE);
    is_done =
        end_call(w, &call,
                 shed_put_version(w->cache, name_key(key, text), shed_str(row),
                                  version, SOAK_TIMEOUT_MS, &call.err));
    soak_end_put(w->history, key, is_done);
    if (is_done)
        atomic_fetch_add(&w->history->puts, 1);
    return is_done;
}

static void tell(struct thread *t, unsigned key)
{
    struct worker *w = t->worker;
    struct soak_key *k = &w->history->key[key];
    unsigned version = atomic_load(&k->committed);
    char text[KEY_BYTES];
    struct shed_bytes name = name_key(key, text);
    struct call call = begin_call(w, SOAK_WRITE);

    switch (draw(t, 8)) {
    case 0:
        atomic_fetch_add(&w->history->untold, 1); /* it invalidates nothing */
        break;
    case 1:
        if (!end_call(w, &call,
                      shed_expire(w->cache, name, SOAK_TIMEOUT_MS, &call.err)))
            break;
        atomic_store(&k->expired_ms, shed_now_ms());
        soak_raise(&k->expired, version);
        break;
    case 2:
    case 3:
        if (put_row(w, key, version))
            soak_raise(&k->told, version);
        break;
    case 4:
    case 5:
        if (delete_plainly(w, text))
            soak_raise(&k->told, version);
        break;
    default:
        if (end_call(
                w, &call,
                shed_invalidate(w->cache, name, SOAK_TIMEOUT_MS, &call.err)))
            soak_raise(&k->told, version);
    }
}

static void *write_on(void *arg)
{
    struct thread *t = arg;
    struct worker *w = t->worker;
    MYSQL *mysql = NULL;

    for (unsigned key = w->number; key < SOAK_KEYS; key += SOAK_WORKERS)
        soak_inherit(w->history, key);
    while (!is_over(w)) {
        unsigned key =
            (unsigned)draw(t, SOAK_KEYS / SOAK_WORKERS) * SOAK_WORKERS +
            w->number;
        struct soak_key *k = &w->history->key[key];
        /* what the previous process sent may have been executed or not */
        unsigned version = atomic_load(&k->begun);
        if (atomic_load(&k->committed) == version)
            soak_raise(&k->begun, ++version);
        commit(w, &mysql, key, version);
        if (is_over(w))
            break;
        tell(t, key);
        atomic_fetch_add(&w->history->writes, 1);
        read_once(t, key); /* its own write */
        usleep((useconds_t)draw(t, 40 * PAUSE_US));
    }
    if (mysql != NULL)
        mysql_close(mysql);
    return NULL;
}

/* ------------------------------------------------------------------ lock */

/* The first process lives as long as the run. */
static void note_memory(const struct worker *w)
{
    if (w->number == 0)
        atomic_store(&w->history->allocated, mallinfo2().uordblks);
}

/* Count what was answered from kept rows since the last time. */
static void count_kept(const struct worker *w, uint64_t *last)
{
    struct shed_stats stats;

    if (shed_stats_read(w->cache, &stats, sizeof(stats), NULL) != SHED_OK)
        return;
    atomic_fetch_add(&w->history->account.kept[w->number],
                     stats.kept_hits - *last);
    *last = stats.kept_hits;
}

static void *lock_on(void *arg)
{
    struct thread *t = arg;
    struct worker *w = t->worker;
    struct soak_history *h = w->history;
    uint64_t kept = 0;

    while (!is_over(w)) {
        uint64_t before = atomic_load(&h->fence);
        struct shed_fence fence = {0};
        struct call call = begin_call(w, SOAK_LOCK);
        count_kept(w, &kept);
        note_memory(w);
        if (!end_call(w, &call,
                      shed_lock_acquire(w->lock, SOAK_TIMEOUT_MS, &call.err)))
            continue;
        if (shed_lock_fence(w->lock, &fence, NULL) == SHED_OK &&
            fence.number <= before)
            soak_report(h, SOAK_FENCE, 0, 0, 0);
        while (before < fence.number &&
               !atomic_compare_exchange_weak(&h->fence, &before, fence.number))
            ;
        usleep((useconds_t)draw(t, 20 * PAUSE_US));
        if (shed_lock_release(w->lock, NULL) == SHED_OK)
            atomic_fetch_add(&h->locks, 1);
        usleep((useconds_t)draw(t, 100 * PAUSE_US));
    }
    return NULL;
}

/* ------------------------------------------------------------------ begin */

/* What is off by default is on in some of the processes. */
static void set_source_options(const struct worker *w,
                               struct shed_source_options *so)
{
    so->adaptive_loads = w->number == 1 || w->number == 2;
    if (w->number == 1 || w->number == 3) {
        so->breaker_failure_pct = 50;
        so->breaker_min_loads = 5;
        so->breaker_window_ms = 1000;
        so->breaker_open_ms = 100;
        so->breaker_open_max_ms = 1000;
    }
}

static void set_client_options(const struct worker *w,
                               struct shed_client_options *co)
{
    co->command_timeout_ms = SOAK_AHEAD_MS;
    co->reconnect_max_ms = SOAK_AHEAD_MS;
    if (w->number == 1) {
        co->redis_breaker_failure_pct = 50;
        co->redis_breaker_min_calls = 5;
        co->redis_breaker_window_ms = 1000;
        co->redis_breaker_open_ms = 100;
        co->redis_breaker_open_max_ms = 1000;
    }
}

static bool open_cache(struct worker *w)
{
    struct shed_source_options so = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options mo = SHED_MYSQL_OPTIONS_INIT;
    struct shed_cache_options o = SHED_CACHE_OPTIONS_INIT;
    struct shed_client_options co = SHED_CLIENT_OPTIONS_INIT;

    set_source_options(w, &so);
    mo.source = &so;
    mo.key = SHED_MYSQL_KEY_INTEGER;
    set_client_options(w, &co);
    o.ttl_ms = SOAK_TTL_MS;
    o.refresh_after_ms = SOAK_REFRESH_AFTER_MS;
    o.stale_while_revalidate_ms = SOAK_REVALIDATE_MS;
    o.stale_if_error_ms = SOAK_IF_ERROR_MS;
    o.soft_timeout_ms = w->number == KEEPER ? SOFT_TIMEOUT_MS : 0;
    if (w->number == KEEPER)
        o.redis_down = SHED_REDIS_DOWN_STALE;
    if (w->number == FAILER)
        o.redis_down = SHED_REDIS_DOWN_FAIL;
    return shed_client_open(w->place->redis_uri, &co, &w->client, NULL) ==
               SHED_OK &&
           shed_mysql_source_open(w->place->mysql_uri, QUERY, &mo, &w->source,
                                  NULL) == SHED_OK &&
           shed_cache_open(w->client, "soak", w->source, &o, &w->cache, NULL) ==
               SHED_OK &&
           shed_lock_open(w->client, shed_str("soak"), NULL, &w->lock, NULL) ==
               SHED_OK;
}

_Noreturn void soak_work(struct soak_history *history,
                         const struct soak_place *place, unsigned number,
                         uint64_t seed)
{
    struct worker w = {.history = history, .place = place, .number = number};
    void *(*const roles[])(void *) = {write_on, lock_on};
    struct thread thread[READERS + 2];
    pthread_t id[READERS + 2];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!open_cache(&w))
        _exit(EXIT_FAILURE);
    for (size_t i = 0; i < READERS + 2; i++) {
        thread[i] = (struct thread){&w, (seed + i + 1) * 2654435761U + 1};
        if (pthread_create(&id[i], NULL, i < 2 ? roles[i] : read_on,
                           &thread[i]) != 0)
            _exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < READERS + 2; i++)
        pthread_join(id[i], NULL);
    shed_lock_close(w.lock);
    shed_cache_close(w.cache);
    shed_source_close(w.source);
    shed_client_close(w.client);
    _exit(EXIT_SUCCESS);
}
