/* Running out of memory is an ordinary error: every allocation of the calling
 * thread fails once, in turn, then those of the library's threads, and the
 * handles stay as they were. So are threads that cannot be started, and random
 * bytes that are not to be had. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <sys/random.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>

#include "cache/cache.h"
#include "support/ageing.h"
#include "support/server.h"
#include "support/testing.h"

#define KEYS 3
#define PATIENT_MS 20000

/* Allocations until the one that fails; negative: none fails. */
static _Thread_local int countdown = -1;
static _Thread_local bool has_failed;

/* The same for the threads of the library, whose order is by chance. */
static _Thread_local bool is_tester;
static atomic_int countdown_of_all = -1;
static atomic_bool has_one_failed;

static atomic_bool is_without_random, is_without_threads;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg);
ssize_t __real_getrandom(void *out, size_t size, unsigned flags);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg)
{
    return atomic_load(&is_without_threads)
               ? EAGAIN
               : __real_pthread_create(out, attr, run, arg);
}

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
    if (!atomic_load(&is_without_random))
        return __real_getrandom(out, size, flags);
    errno = EAGAIN;
    return -1;
}

static bool fails_elsewhere(void)
{
    if (is_tester || atomic_load(&countdown_of_all) < 0 ||
        atomic_fetch_sub(&countdown_of_all, 1) != 0)
        return false;
    atomic_store(&has_one_failed, true);
    return true;
}

static bool fails_now(void)
{
    if (fails_elsewhere())
        return true;
    if (countdown < 0 || countdown-- > 0)
        return false;
    has_failed = true;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    return fails_now() ? NULL : __real_realloc(at, size);
}

static struct server server;

struct handles {
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_lock *lock;
};

static void load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < shed_load_count(load); i++)
        shed_load_value(load, i, shed_str("row"));
    for (size_t i = 0; i < shed_load_count(load); i++)
        shed_load_tag(load, i, shed_str("red"));
    shed_load_done(load);
}

static void close_all(struct handles *h)
{
    shed_lock_close(h->lock);
    shed_cache_close(h->cache);
    shed_source_close(h->source);
    shed_client_close(h->client);
    *h = (struct handles){NULL, NULL, NULL, NULL};
}

static enum shed_code open_all(struct handles *h, struct shed_error *err)
{
    struct shed_cache_options options = SHED_CACHE_OPTIONS_INIT;
    enum shed_code code = shed_client_open(server.uri, NULL, &h->client, err);

    options.groups = 10;
    if (code == SHED_OK)
        code = shed_source_open(load, NULL, NULL, &h->source, err);
    options.failure_ttl_ms = 1;
    if (code == SHED_OK)
        code = shed_cache_open(h->client, "alloc", h->source, &options,
                               &h->cache, err);
    if (code == SHED_OK)
        code =
            shed_lock_open(h->client, shed_str("alloc"), NULL, &h->lock, err);
    return code;
}

static enum shed_code invalidate(struct handles *h, struct shed_error *err)
{
    return shed_invalidate(h->cache, shed_str("a"), 0, err);
}

static enum shed_code invalidate_many(struct handles *h, struct shed_error *err)
{
    static const struct shed_bytes keys[] = {{"a", 1}, {"b", 1}, {"c", 1}};

    return shed_invalidate_many(h->cache, keys, 3, 0, err);
}

static enum shed_code put(struct handles *h, struct shed_error *err)
{
    return shed_put(h->cache, shed_str("a"), shed_str("row"), 0, err);
}

static enum shed_code invalidate_tags(struct handles *h, struct shed_error *err)
{
    static const struct shed_bytes tags[] = {{"red", 3}, {"blue", 4}};

    return shed_invalidate_tags(h->cache, tags, 2, 0, err);
}

static enum shed_code forget_scripts(struct handles *h, struct shed_error *err)
{
    (void)h;
    (void)err;
    server_do(&server, "SCRIPT FLUSH");
    return SHED_OK;
}

static enum shed_code get(struct handles *h, struct shed_error *err)
{
    struct shed_value *value = NULL;
    enum shed_code code = shed_get(h->cache, shed_str("a"), 0, &value, err);

    shed_value_unref(value);
    return code;
}

enum { OLD_MS = 100000, MAX_AGE_MS = OLD_MS / 2 };

static enum shed_code put_old(struct handles *h, struct shed_error *err)
{
    enum shed_code code = put(h, err);

    if (code == SHED_OK)
        age_entry(&server, "alloc:{a}", OLD_MS);
    return code;
}

static enum shed_code get_young(struct handles *h, struct shed_error *err)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    enum shed_code code;

    options.max_age_ms = MAX_AGE_MS;
    code = shed_get_with(h->cache, shed_str("a"), &options, &value, err);
    shed_value_unref(value);
    return code;
}

static enum shed_code get_many(struct handles *h, struct shed_error *err)
{
    struct shed_item items[KEYS] = {{{"a", 1}, NULL, SHED_OK},
                                    {{"b", 1}, NULL, SHED_OK},
                                    {{"c", 1}, NULL, SHED_OK}};
    enum shed_code code = shed_get_many(h->cache, items, KEYS, 0, err);

    for (size_t i = 0; i < KEYS; i++)
        shed_value_unref(items[i].value);
    return code;
}

static enum shed_code acquire(struct handles *h, struct shed_error *err)
{
    return shed_lock_acquire(h->lock, PATIENT_MS, err);
}

static enum shed_code release(struct handles *h, struct shed_error *err)
{
    return shed_lock_release(h->lock, err);
}

/* If the lock is already held, it is entered again and left again. */
static enum shed_code acquire_and_release(struct handles *h,
                                          struct shed_error *err)
{
    enum shed_code code = acquire(h, err);

    return code == SHED_OK ? release(h, err) : code;
}

static void ignore(void *user, struct shed_lock *lock, enum shed_code code,
                   const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    (void)code;
    (void)reason;
}

/* Whether refused or not, it is answered before the lock is closed. */
static enum shed_code acquire_async(struct handles *h, struct shed_error *err)
{
    return shed_lock_acquire_async(h->lock, 0, ignore, NULL, err);
}

static enum shed_code close_and_open(struct handles *h, struct shed_error *err)
{
    close_all(h);
    return open_all(h, err);
}

/* An unknown script is sent again by its text; without memory for that, the
 * call gets the server's answer. */
static bool is_bearable(enum shed_code code, const struct shed_error *err)
{
    return code == SHED_ENOMEM || code == SHED_EBUSY || code == SHED_OK ||
           (code == SHED_EREDIS && strstr(err->reason, "NOSCRIPT") != NULL);
}

/* Fail the first allocation of call, then the second, and so on until none is
 * left; prepare runs before each call. Returns the number of allocations. */
static int sweep(struct handles *h,
                 enum shed_code (*prepare)(struct handles *,
                                           struct shed_error *),
                 enum shed_code (*call)(struct handles *, struct shed_error *))
{
    for (int n = 0;; n++) {
        struct shed_error err = {SHED_OK, ""};
        enum shed_code code;
        if (prepare != NULL)
            ck_assert_msg(prepare(h, &err) == SHED_OK, "%s", err.reason);
        has_failed = false;
        countdown = n;
        code = call(h, &err);
        countdown = -1;
        if (!has_failed) {
            ck_assert_msg(code == SHED_OK, "%s", err.reason);
            return n;
        }
        ck_assert_msg(is_bearable(code, &err), "%d: %s", n, err.reason);
    }
}

START_TEST(every_call_bears_that_memory_is_out)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_int_gt(sweep(&h, NULL, put), 0);
    ck_assert_int_gt(sweep(&h, forget_scripts, put), 0);
    ck_assert_int_gt(sweep(&h, NULL, get), 0);
    ck_assert_int_gt(sweep(&h, invalidate, get), 0);
    ck_assert_int_gt(sweep(&h, put_old, get_young), 0);
    ck_assert_int_gt(sweep(&h, NULL, invalidate), 0);
    ck_assert_int_gt(sweep(&h, NULL, invalidate_many), 0);
    ck_assert_int_gt(sweep(&h, NULL, invalidate_tags), 0);
    ck_assert_int_gt(sweep(&h, forget_scripts, invalidate_tags), 0);
    ck_assert_int_gt(sweep(&h, invalidate_tags, get), 0);
    ck_assert_int_gt(sweep(&h, invalidate, get_many), 0);
    ck_assert_int_gt(sweep(&h, put, get_many), 0);
    ck_assert_int_gt(sweep(&h, NULL, acquire_and_release), 0);
    ck_assert_int_gt(sweep(&h, acquire, release), 0);
    ck_assert_int_gt(sweep(&h, NULL, acquire_async), 0);
    close_all(&h);
}
END_TEST

/* Whatever fails, no lease is left behind that others would have to wait for.
 */
static bool succeeds_at_once(struct handles *h,
                             enum shed_code (*call)(struct handles *,
                                                    struct shed_error *))
{
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code = call(h, &err);

    ck_assert_msg(code != SHED_ETIMEDOUT, "%s", err.reason);
    return code == SHED_OK;
}

/* The same for the library's own threads, until a call ends before any of their
 * allocations has failed. What they cannot do is then done without Redis, or
 * fails; the next call succeeds, once failure markers have ended. */
static int
sweep_threads(struct handles *h,
              enum shed_code (*prepare)(struct handles *, struct shed_error *),
              enum shed_code (*call)(struct handles *, struct shed_error *))
{
    is_tester = true;
    for (int n = 0;; n++) {
        struct shed_error err = {SHED_OK, ""};
        enum shed_code code;
        WAIT_FOR(prepare(h, &err) == SHED_OK);
        atomic_store(&has_one_failed, false);
        atomic_store(&countdown_of_all, n);
        code = call(h, &err);
        atomic_store(&countdown_of_all, -1);
        ck_assert_msg(is_bearable(code, &err) || code == SHED_EREDIS ||
                          code == SHED_ESOURCE,
                      "%d: %s", n, err.reason);
        WAIT_FOR(succeeds_at_once(h, call));
        if (!atomic_load(&has_one_failed))
            return n;
    }
}

START_TEST(every_thread_of_the_library_bears_that_memory_is_out)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_int_gt(sweep_threads(&h, invalidate, get), 0);
    ck_assert_int_gt(sweep_threads(&h, invalidate, get_many), 0);
    ck_assert_int_gt(sweep_threads(&h, put_old, get_young), 0);
    ck_assert_int_ge(sweep_threads(&h, invalidate, acquire_and_release), 0);
    close_all(&h);
}
END_TEST

static void refuse_writes(bool is_refusing)
{
    server_do(&server, "CONFIG SET min-replicas-to-write %d", is_refusing);
}

static size_t pending(struct handles *h)
{
    return shed_outbox_count(h->cache->outbox);
}

/* What the call says of the invalidation is true. */
START_TEST(an_invalidation_that_memory_does_not_suffice_to_keep_says_so)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};
    bool was_kept = false, was_dropped = false;

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_int_eq(invalidate(&h, &err), SHED_OK);
    refuse_writes(true);
    for (int n = 0; !was_kept; n++) {
        enum shed_code code;
        countdown = n;
        code = invalidate(&h, &err);
        countdown = -1;
        ck_assert_int_ne(code, SHED_OK);
        was_kept = strstr(err.reason, "kept until Redis takes it") != NULL;
        was_dropped |= !was_kept;
        ck_assert_msg(pending(&h) == was_kept, "%d: %s", n, err.reason);
    }
    ck_assert(was_dropped);
    refuse_writes(false);
    WAIT_FOR(pending(&h) == 0);
    close_all(&h);
}
END_TEST

static enum shed_code get_new(struct handles *h, struct shed_error *err)
{
    WAIT_FOR(invalidate(h, err) == SHED_OK);
    return get(h, err);
}

START_TEST(without_random_bytes_nothing_is_opened_put_or_locked)
{
    struct handles h = {NULL, NULL, NULL, NULL}, none = h;
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_int_eq(get_new(&h, &err), SHED_OK);
    atomic_store(&is_without_random, true);
    ck_assert_int_eq(open_all(&none, &err), SHED_EBUSY);
    ck_assert_int_eq(put(&h, &err), SHED_EBUSY);
    ck_assert_int_eq(acquire_and_release(&h, &err), SHED_EBUSY);
    ck_assert_int_eq(get_new(&h, &err), SHED_OK);
    atomic_store(&is_without_random, false);
    ck_assert_int_eq(put(&h, &err), SHED_OK);
    ck_assert_int_eq(acquire_and_release(&h, &err), SHED_OK);
    close_all(&none);
    close_all(&h);
}
END_TEST

START_TEST(without_threads_nothing_is_opened_and_nothing_loaded)
{
    struct handles h = {NULL, NULL, NULL, NULL}, none = h;
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code;

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    atomic_store(&is_without_threads, true);
    ck_assert_int_ne(open_all(&none, &err), SHED_OK);
    code = get_new(&h, &err);
    ck_assert_msg(code == SHED_ENOMEM || code == SHED_ESOURCE ||
                      code == SHED_EBUSY,
                  "%d %s", code, err.reason);
    atomic_store(&is_without_threads, false);
    ck_assert_msg(get_new(&h, &err) == SHED_OK, "%s", err.reason);
    close_all(&none);
    close_all(&h);
}
END_TEST

START_TEST(every_open_bears_that_memory_is_out)
{
    struct handles h = {NULL, NULL, NULL, NULL};

    ck_assert_int_gt(sweep(&h, NULL, close_and_open), 0);
    close_all(&h);
}
END_TEST

static void start_server(void)
{
    server = (struct server){0};
    server_start(&server);
}

static void stop_server(void)
{
    server_stop(&server);
}

int main(void)
{
    TCase *tc = tcase_create("alloc");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_checked_fixture(tc, start_server, stop_server);
    tcase_add_test(tc, every_call_bears_that_memory_is_out);
    tcase_add_test(tc, every_open_bears_that_memory_is_out);
    tcase_add_test(tc, every_thread_of_the_library_bears_that_memory_is_out);
    tcase_add_test(
        tc, an_invalidation_that_memory_does_not_suffice_to_keep_says_so);
    tcase_add_test(tc, without_random_bytes_nothing_is_opened_put_or_locked);
    tcase_add_test(tc, without_threads_nothing_is_opened_and_nothing_loaded);
    return run_tests("alloc", tc);
}
