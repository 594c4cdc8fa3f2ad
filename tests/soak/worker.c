/* A process of the soak. Its invariant: a mark of the history is raised only
 * after what it says has been done. */
#include "soak/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <snowshed/event.h>
#include <snowshed/lock.h>
#include <snowshed/mysql.h>
#include <snowshed/stats.h>

#include "base/clock.h"
#include "soak/calls.h"
#include "support/bare.h"
#include "support/testing.h"

enum {
    SOFT_TIMEOUT_MS = 20,
    FAILOVER_MEMORY_MS = 60000,
    ABSENT_EVERY = 20, /* of the reads is one of a key that has no row */
    /* The numbers of processes. The first two live as long as the run: PLAIN
     * has nothing that is off by default, FULL has all that can hold memory or
     * connections: breakers, a limit that adapts, kept rows, soft timeouts. */
    PLAIN = 0,
    FULL = 1,
    BREAKER = 2,
    FAILER = 3
};

_Static_assert((int)PLAIN < (int)SOAK_LASTING && (int)FULL < (int)SOAK_LASTING,
               "both are judged");

const char *const soak_policies[SOAK_WORKERS] = {[PLAIN] = "plain",
                                                 [FULL] = "full",
                                                 [BREAKER] = "breakers",
                                                 [FAILER] = "fail"};

/* The row is read first, and then its load takes a while. */
#define QUERY                                                                  \
    "SELECT id, CONCAT(version, IF(SLEEP(RAND() * 0.03) = 0, '', '')), "       \
    "version, tag AS tags FROM item WHERE id IN (?)"

/* ------------------------------------------------------------------ read */

static void *read_on(void *arg)
{
    struct soak_thread *t = arg;

    while (!soak_is_over(t->worker)) {
        /* many of the reads are of one key */
        unsigned key = (unsigned)soak_draw(t, SOAK_KEYS + SOAK_SHORT_KEYS);
        while (soak_cache_of(key) == SOAK_LONG && key < SOAK_KEYS &&
               soak_reader_of(key) != t->worker->number)
            key = key + 1 < SOAK_KEYS ? key + 1 : SOAK_SHORT_KEYS;
        if (soak_draw(t, ABSENT_EVERY) == 0)
            soak_read(t, SOAK_KEYS);
        else
            soak_read(t, key < SOAK_KEYS ? key : 0);
        usleep((useconds_t)soak_draw(t, SOAK_PAUSE_US));
    }
    return NULL;
}

/* ------------------------------------------------------------------ lock */

/* Count what only the statistics tell, since the last time. */
static void count_more(const struct soak_worker *w,
                       struct shed_stats last[SOAK_CACHES])
{
    struct soak_history *h = w->history;
    struct shed_stats stats;

    for (unsigned i = 0; i < SOAK_CACHES; i++) {
        if (shed_stats_read(w->caches[i], &stats, sizeof(stats), NULL) !=
            SHED_OK)
            continue;
        atomic_fetch_add(&h->account.kept[w->number],
                         stats.local_hits - last[i].local_hits);
        atomic_fetch_add(&h->repeated, stats.invalidations_repeated -
                                           last[i].invalidations_repeated);
        atomic_fetch_add(&h->fleet.waits,
                         stats.fleet_waits - last[i].fleet_waits);
        last[i] = stats;
    }
}

static void *lock_on(void *arg)
{
    struct soak_thread *t = arg;
    struct soak_worker *w = t->worker;
    struct soak_history *h = w->history;
    struct shed_stats last[SOAK_CACHES] = {0};

    while (!soak_is_over(w)) {
        uint64_t before = atomic_load(&h->fence);
        struct shed_fence fence = {0};
        struct soak_try call = soak_begin_call(w, SOAK_LOCK);
        count_more(w, last);
        atomic_store(&h->allocated[w->number], soak_sample_allocated());
        if (!soak_end_call(
                w, &call,
                shed_lock_acquire(w->lock, SOAK_TIMEOUT_MS, &call.err)))
            continue;
        if (shed_lock_fence(w->lock, &fence, NULL) == SHED_OK &&
            fence.number <= before)
            soak_report(h, SOAK_FENCE, 0, 0, 0);
        soak_raise_to(&h->fence, fence.number);
        usleep((useconds_t)soak_draw(t, 20 * SOAK_PAUSE_US));
        if (shed_lock_release(w->lock, NULL) == SHED_OK)
            atomic_fetch_add(&h->locks, 1);
        usleep((useconds_t)soak_draw(t, 100 * SOAK_PAUSE_US));
    }
    return NULL;
}

/* ------------------------------------------------------------------ begin */

/* What is off by default is on in some of the processes. */
static void set_source_options(const struct soak_worker *w,
                               struct shed_source_options *so)
{
    so->load_timeout_ms = scaled_ms(SOAK_LOAD_MS);
    so->fleet_loads = SOAK_FLEET_LOADS;
    so->max_batch = SOAK_BATCH;
    so->adaptive_loads = w->number == FULL || w->number == BREAKER;
    if (w->number != PLAIN) {
        so->breaker.failure_pct = 50;
        so->breaker.min_calls = 5;
        so->breaker.window_ms = 1000;
        so->breaker.open_ms = 100;
    }
}

static void on_event(void *user, const struct shed_event *event)
{
    const struct soak_worker *w = user;

    if (event->kind == SHED_EVENT_FLEET)
        soak_fleet_tell(&w->history->fleet, w->number,
                        event->outcome != SHED_OK, shed_now_ms());
}

static void set_client_options(struct soak_worker *w,
                               struct shed_client_options *co)
{
    co->on_event = on_event;
    co->event_user = w;
    co->command_timeout_ms = SOAK_AHEAD_MS;
    if (w->number == FULL || w->number == BREAKER) {
        co->breaker.failure_pct = 50;
        co->breaker.min_calls = 5;
        co->breaker.window_ms = 1000;
        co->breaker.open_ms = 100;
    }
}

static bool open_cache(struct soak_worker *w, enum soak_cache cache)
{
    struct shed_cache_options o = bare_cache();

    o.ttl_ms = w->history->ttl_ms[cache];
    o.refresh_after_pct = cache == SOAK_SHORT ? SOAK_REFRESH_AFTER_PCT : 0;
    o.stale_while_revalidate_ms = SOAK_REVALIDATE_MS;
    o.stale_if_error_ms = SOAK_IF_ERROR_MS;
    o.soft_timeout_ms = w->is_keeper ? SOFT_TIMEOUT_MS : 0;
    o.tags_limit = 2 * SOAK_TAGS;
    o.failover_memory_ms = FAILOVER_MEMORY_MS;
    if (w->is_keeper)
        o.redis_down = SHED_REDIS_DOWN_STALE;
    if (w->number == FAILER)
        o.redis_down = SHED_REDIS_DOWN_FAIL;
    return shed_cache_open(w->client, cache == SOAK_SHORT ? "soak" : "long",
                           w->source, &o, &w->caches[cache], NULL) == SHED_OK;
}

static bool open_all(struct soak_worker *w)
{
    struct shed_source_options so = bare_source();
    struct shed_mysql_options mo = SHED_MYSQL_OPTIONS_INIT;
    struct shed_client_options co = bare_client();

    set_source_options(w, &so);
    mo.source = &so;
    set_client_options(w, &co);
    return shed_client_open(w->place->redis_uri, &co, &w->client, NULL) ==
               SHED_OK &&
           shed_mysql_source_open(w->place->mysql_uri, QUERY, &mo, &w->source,
                                  NULL) == SHED_OK &&
           open_cache(w, SOAK_SHORT) && open_cache(w, SOAK_LONG) &&
           shed_lock_open(w->client, shed_str("soak"), NULL, &w->lock, NULL) ==
               SHED_OK;
}

static void close_all(const struct soak_worker *w)
{
    shed_lock_close(w->lock);
    for (unsigned i = 0; i < SOAK_CACHES; i++)
        shed_cache_close(w->caches[i]);
    shed_source_close(w->source);
    shed_client_close(w->client);
}

/* Of a build with AddressSanitizer, which names what was not freed. */
__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

_Noreturn void soak_work(struct soak_history *history,
                         const struct soak_place *place, unsigned number,
                         uint64_t seed)
{
    struct soak_worker w = {.history = history,
                            .place = place,
                            .number = number,
                            .begun_ms = shed_now_ms(),
                            .is_keeper = number == FULL};
    /* the last one only in the first process */
    void *(*const roles[])(void *) = {soak_write_on, lock_on, read_on,
                                      read_on,       read_on, soak_watch_on};
    struct soak_thread thread[sizeof(roles) / sizeof(*roles)];
    pthread_t id[sizeof(roles) / sizeof(*roles)];
    size_t count = sizeof(roles) / sizeof(*roles) - (number > 0);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    soak_fleet_tell(&history->fleet, number, false, shed_now_ms());
    /* a process that opens a cache asks what was invalidated before */
    for (unsigned key = 0; key < SOAK_KEYS; key++)
        atomic_store(&w.own[key], atomic_load(&history->key[key].grouped));
    history->before[number] =
        soak_sample_take(getpid(), soak_sample_allocated());
    if (!open_all(&w))
        _exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) {
        thread[i] = (struct soak_thread){&w, (seed + i + 1) * 2654435761U + 1};
        if (pthread_create(&id[i], NULL, roles[i], &thread[i]) != 0)
            _exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(id[i], NULL);
    close_all(&w);
    history->after[number] =
        soak_sample_take(getpid(), soak_sample_allocated());
    if (__lsan_do_recoverable_leak_check != NULL &&
        __lsan_do_recoverable_leak_check() != 0)
        _exit(EXIT_FAILURE);
    _exit(EXIT_SUCCESS);
}
