/* Running out of memory is an ordinary error: every allocation of the calling
 * thread fails once, in turn, then those of the library's threads, and the
 * handles stay as they were. So are threads that cannot be started, and random
 * bytes that are not to be had. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "cache/cache.h"
#include "support/awaited.h"
#include "support/bare.h"
#include "support/ageing.h"
#include "support/certificates.h"
#include "support/scarcity.h"
#include "support/server.h"
#include "support/testing.h"

#define KEYS 3
#define PATIENT_MS 20000

static struct server server;

/* Whether the clients, sources and caches have every option that does more.
 */
static bool has_options;

/* Whether Redis is reached by TLS; OpenSSL's own allocations do not fail here
 * (test_tls lets them). */
static bool has_tls;
static char tls_uri[SERVER_URI_BYTES];
static const char *tls_ca;
static char dir[] = "/tmp/shed-alloc-XXXXXX";

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
    const struct shed_bytes tag = shed_str("red");
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = SHED_ANSWER_ROW;
    answer.row = shed_str("row");
    answer.tags = &tag;
    answer.tags_count = 1;
    for (size_t i = 0; i < load->count; i++)
        shed_load_answer(load, i, &answer);
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

static void ignore_event(void *user, const struct shed_event *event)
{
    (void)user;
    (void)event;
}

/* The breakers do not open, and each GET is shared. */
static void set_options(struct shed_client_options *client,
                        struct shed_source_options *source,
                        struct shed_cache_options *cache)
{
    enum { HALF_PCT = 50, NEVER = 1000000, LONG_MS = 1000000 };

    client->links = 1;
    client->on_event = ignore_event;
    client->breaker.failure_pct = HALF_PCT;
    client->breaker.min_calls = NEVER;
    source->adaptive_loads = 1;
    source->breaker.failure_pct = HALF_PCT;
    source->breaker.min_calls = NEVER;
    source->callers_limit = NEVER;
    source->fleet_loads = 2;
    cache->redis_down = SHED_REDIS_DOWN_STALE;
    cache->refresh_after_pct = 50;
    cache->stale_while_revalidate_ms = LONG_MS / 2;
    cache->stale_if_error_ms = LONG_MS;
    cache->soft_timeout_ms = PATIENT_MS;
}

static enum shed_code open_all(struct handles *h, struct shed_error *err)
{
    struct shed_client_options client = bare_client();
    struct shed_source_options source = bare_source();
    struct shed_cache_options cache = bare_cache();
    enum shed_code code;

    cache.tags_limit = 10;
    cache.failure_ttl_ms = 1;
    if (has_options)
        set_options(&client, &source, &cache);
    if (has_tls)
        client.tls_ca = tls_ca;
    code = shed_client_open(has_tls ? tls_uri : server.uri, &client, &h->client,
                            err);
    if (code == SHED_OK)
        code = shed_source_open_batch(load, NULL, &source, &h->source, err);
    if (code == SHED_OK)
        code = shed_cache_open(h->client, "alloc", h->source, &cache, &h->cache,
                               err);
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
    return shed_put(h->cache, shed_str("a"), shed_str("row"), NULL, err);
}

static const struct shed_bytes tags[] = {{"red", 3}, {"blue", 4}};

static enum shed_code put_tagged(struct handles *h, struct shed_error *err)
{
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;
    const uint64_t version = 1;

    options.version = &version;
    options.tags = tags;
    options.tags_count = 2;
    return shed_put(h->cache, shed_str("a"), shed_str("row"), &options, err);
}

static enum shed_code expire(struct handles *h, struct shed_error *err)
{
    return shed_expire(h->cache, shed_str("a"), 0, 0, err);
}

static enum shed_code invalidate_tags(struct handles *h, struct shed_error *err)
{
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
    enum shed_code code = shed_get(h->cache, shed_str("a"), NULL, &value, err);

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
    code = shed_get(h->cache, shed_str("a"), &options, &value, err);
    shed_value_unref(value);
    return code;
}

/* get_all: shed_get_many, or the same by asynchronous calls. */
static enum shed_code
get_items(struct handles *h,
          enum shed_code (*get_all)(struct shed_cache *, struct shed_item *,
                                    size_t, const struct shed_get_options *,
                                    struct shed_error *),
          struct shed_error *err)
{
    struct shed_item items[KEYS] = {{{"a", 1}, NULL, SHED_OK},
                                    {{"b", 1}, NULL, SHED_OK},
                                    {{"c", 1}, NULL, SHED_OK}};
    enum shed_code code = get_all(h->cache, items, KEYS, NULL, err);

    for (size_t i = 0; i < KEYS; i++)
        shed_value_unref(items[i].value);
    return code;
}

static enum shed_code get_many(struct handles *h, struct shed_error *err)
{
    return get_items(h, shed_get_many, err);
}

static enum shed_code get_async(struct handles *h, struct shed_error *err)
{
    struct shed_value *value = NULL;
    enum shed_code code =
        awaited_get(h->cache, shed_str("a"), NULL, &value, err);

    shed_value_unref(value);
    return code;
}

static enum shed_code get_many_async(struct handles *h, struct shed_error *err)
{
    return get_items(h, awaited_get_many, err);
}

static enum shed_code put_async(struct handles *h, struct shed_error *err)
{
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;

    options.tags = tags;
    options.tags_count = 2;
    return awaited_put(h->cache, shed_str("a"), shed_str("row"), &options, err);
}

static enum shed_code invalidate_async(struct handles *h,
                                       struct shed_error *err)
{
    return awaited_invalidate(h->cache, shed_str("a"), 0, err);
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
 * call gets the server's answer. A release whose answer cannot be read is made
 * once more, and finds that the lock is gone. A call that has made its own
 * connection, because another thread had the link at that moment, is not made
 * again. */
static bool is_bearable(enum shed_code code, const struct shed_error *err)
{
    static const char *const reasons[] = {"NOSCRIPT", "by this release",
                                          "out of memory for its replies",
                                          "memory is out"};

    if (code == SHED_ENOMEM || code == SHED_EBUSY || code == SHED_OK)
        return true;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (code == SHED_EREDIS && strstr(err->reason, reasons[i]) != NULL)
            return true;
    return false;
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
        scarcity_begin(n);
        code = call(h, &err);
        if (!scarcity_end()) {
            ck_assert_msg(code == SHED_OK, "%s", err.reason);
            return n;
        }
        ck_assert_msg(is_bearable(code, &err), "%d: %s", n, err.reason);
    }
}

TEST_EACH(every_call_bears_that_memory_is_out, 0, 2)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};

    has_options = _i;
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
    ck_assert_int_gt(sweep(&h, NULL, put_tagged), 0);
    ck_assert_int_gt(sweep(&h, put_tagged, get), 0);
    ck_assert_int_gt(sweep(&h, put_tagged, invalidate_tags), 0);
    ck_assert_int_gt(sweep(&h, put_tagged, expire), 0);
    ck_assert_int_gt(sweep(&h, expire, get), 0);
    ck_assert_int_gt(sweep(&h, NULL, acquire_and_release), 0);
    ck_assert_int_gt(sweep(&h, acquire, release), 0);
    ck_assert_int_gt(sweep(&h, NULL, acquire_async), 0);
    ck_assert_int_gt(sweep(&h, NULL, get_async), 0);
    ck_assert_int_gt(sweep(&h, NULL, get_many_async), 0);
    ck_assert_int_gt(sweep(&h, NULL, put_async), 0);
    ck_assert_int_gt(sweep(&h, NULL, invalidate_async), 0);
    close_all(&h);
}

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
    scarcity_spare_replies(true); /* a lost connection can leave a lease */
    for (int n = 0;; n++) {
        struct shed_error err = {SHED_OK, ""};
        enum shed_code code;
        bool has_failed;
        WAIT_FOR(prepare(h, &err) == SHED_OK);
        scarcity_begin_elsewhere(n);
        code = call(h, &err);
        has_failed = scarcity_end_elsewhere();
        ck_assert_msg(is_bearable(code, &err) || code == SHED_EREDIS ||
                          code == SHED_ESOURCE,
                      "%d: %s", n, err.reason);
        WAIT_FOR(succeeds_at_once(h, call));
        if (!has_failed)
            return n;
    }
}

TEST_EACH(every_thread_of_the_library_bears_that_memory_is_out, 0, 2)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};

    has_options = _i;
    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_int_gt(sweep_threads(&h, invalidate, get), 0);
    ck_assert_int_gt(sweep_threads(&h, invalidate, get_many), 0);
    ck_assert_int_gt(sweep_threads(&h, put_old, get_young), 0);
    ck_assert_int_gt(sweep_threads(&h, invalidate_tags, get_many), 0);
    ck_assert_int_ge(sweep_threads(&h, invalidate, acquire_and_release), 0);
    ck_assert_int_gt(sweep_threads(&h, invalidate, get_async), 0);
    ck_assert_int_gt(sweep_threads(&h, put, get_async), 0);
    ck_assert_int_gt(sweep_threads(&h, invalidate_tags, get_many_async), 0);
    ck_assert_int_gt(sweep_threads(&h, invalidate, put_async), 0);
    ck_assert_int_gt(sweep_threads(&h, put, invalidate_async), 0);
    close_all(&h);
}

/* ------------------------------------------------------------ shared reads */

enum { READERS = 6, GETS = 3 };

struct reader {
    pthread_t thread;
    struct shed_cache *cache;
    enum shed_code code[GETS];
    struct shed_value *value[GETS];
    struct shed_error err[GETS];
};

static void *read_often(void *user)
{
    struct shed_get_options patient = SHED_GET_OPTIONS_INIT;
    struct reader *r = user;

    patient.timeout_ms = PATIENT_MS;
    for (size_t i = 0; i < GETS; i++)
        r->code[i] = shed_get(r->cache, shed_str("a"), &patient, &r->value[i],
                              &r->err[i]);
    return NULL;
}

/* Each get succeeds, or says that memory is out, and none is late. */
static void expect_gets(struct reader *r)
{
    for (size_t i = 0; i < GETS; i++) {
        ck_assert_msg(is_bearable(r->code[i], &r->err[i]), "%s",
                      r->err[i].reason);
        if (r->code[i] == SHED_OK)
            ck_assert_mem_eq(r->value[i]->data, "row", 3);
        shed_value_unref(r->value[i]);
    }
}

/* Returns: whether an allocation of the readers has failed. */
static bool run_readers(struct handles *h, int n)
{
    struct reader readers[READERS] = {0};
    bool has_failed;

    scarcity_begin_elsewhere(n);
    for (size_t i = 0; i < READERS; i++) {
        readers[i].cache = h->cache;
        start_thread(&readers[i].thread, read_often, &readers[i]);
    }
    for (size_t i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_join(readers[i].thread, NULL), 0);
    has_failed = scarcity_end_elsewhere();
    for (size_t i = 0; i < READERS; i++)
        expect_gets(&readers[i]);
    return has_failed;
}

TEST(readers_that_share_a_get_bear_that_memory_is_out)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};
    bool has_failed = true;

    has_options = true;
    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_msg(put(&h, &err) == SHED_OK, "%s", err.reason);
    for (int n = 0; has_failed; n++) {
        has_failed = run_readers(&h, n);
        ck_assert_msg(get(&h, &err) == SHED_OK, "%s", err.reason);
        ck_assert(has_failed || n > READERS);
    }
    close_all(&h);
}

/* ----------------------------------------------------------- without Redis */

static bool is_bearable_without_redis(enum shed_code code,
                                      const struct shed_error *err)
{
    return is_bearable(code, err) || code == SHED_EREDIS;
}

static size_t undelivered(struct handles *h)
{
    return shed_delivery_count(h->cache->delivery);
}

/* As sweep does, but a call need not succeed without Redis. */
static int sweep_without_redis(struct handles *h,
                               enum shed_code (*call)(struct handles *,
                                                      struct shed_error *))
{
    bool has_failed = true;
    int n;

    for (n = 0; has_failed; n++) {
        struct shed_error err = {SHED_OK, ""};
        enum shed_code code;
        scarcity_begin(n);
        code = call(h, &err);
        has_failed = scarcity_end();
        ck_assert_msg(is_bearable_without_redis(code, &err), "%d: %s", n,
                      err.reason);
    }
    return n;
}

/* With rows that the process has kept. */
TEST(without_redis_every_call_bears_that_memory_is_out)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};

    has_options = true;
    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_msg(get_many(&h, &err) == SHED_OK, "%s", err.reason);
    server_kill(&server);
    ck_assert_int_gt(sweep_without_redis(&h, get), 1);
    ck_assert_int_gt(sweep_without_redis(&h, get_many), 1);
    ck_assert_int_gt(sweep_without_redis(&h, put_tagged), 1);
    ck_assert_int_gt(sweep_without_redis(&h, invalidate), 1);
    ck_assert_int_gt(sweep_without_redis(&h, get), 1);
    ck_assert_int_gt(sweep_without_redis(&h, invalidate_tags), 1);
    ck_assert_int_gt(sweep_without_redis(&h, get_many), 1);
    server_start_again(&server);
    WAIT_FOR(undelivered(&h) == 0);
    ck_assert_msg(get(&h, &err) == SHED_OK, "%s", err.reason);
    close_all(&h);
}

static void refuse_writes(bool is_refusing)
{
    server_do(&server, "CONFIG SET min-replicas-to-write %d", is_refusing);
}

/* What the call says of the invalidation is true. */
TEST(an_invalidation_that_memory_does_not_suffice_to_keep_says_so)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};
    bool was_kept = false, was_dropped = false;

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    EXPECT_OK(invalidate(&h, &err));
    refuse_writes(true);
    for (int n = 0; !was_kept; n++) {
        enum shed_code code;
        scarcity_begin(n);
        code = invalidate(&h, &err);
        (void)scarcity_end();
        ck_assert_int_ne(code, SHED_OK);
        was_kept =
            strstr(err.reason, "undelivered until Redis takes it") != NULL;
        was_dropped |= !was_kept;
        ck_assert_msg(undelivered(&h) == was_kept, "%d: %s", n, err.reason);
    }
    ck_assert(was_dropped);
    refuse_writes(false);
    WAIT_FOR(undelivered(&h) == 0);
    close_all(&h);
}

static enum shed_code get_new(struct handles *h, struct shed_error *err)
{
    WAIT_FOR(invalidate(h, err) == SHED_OK);
    return get(h, err);
}

TEST(without_random_bytes_nothing_is_opened_put_or_locked)
{
    struct handles h = {NULL, NULL, NULL, NULL}, none = h;
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    EXPECT_OK(get_new(&h, &err));
    scarcity_of_random_bytes(true);
    EXPECT_CODE(open_all(&none, &err), SHED_EBUSY);
    EXPECT_CODE(put(&h, &err), SHED_EBUSY);
    EXPECT_CODE(acquire_and_release(&h, &err), SHED_EBUSY);
    EXPECT_OK(get_new(&h, &err));
    scarcity_of_random_bytes(false);
    EXPECT_OK(put(&h, &err));
    EXPECT_OK(acquire_and_release(&h, &err));
    close_all(&none);
    close_all(&h);
}

TEST(without_threads_nothing_is_opened_and_nothing_loaded)
{
    struct handles h = {NULL, NULL, NULL, NULL}, none = h;
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code;

    ck_assert_msg(open_all(&h, &err) == SHED_OK, "%s", err.reason);
    scarcity_of_threads(true);
    ck_assert_int_ne(open_all(&none, &err), SHED_OK);
    code = get_new(&h, &err);
    ck_assert_msg(code == SHED_ENOMEM || code == SHED_ESOURCE ||
                      code == SHED_EBUSY,
                  "%d %s", code, err.reason);
    scarcity_of_threads(false);
    ck_assert_msg(get_new(&h, &err) == SHED_OK, "%s", err.reason);
    close_all(&none);
    close_all(&h);
}

TEST_EACH(every_open_bears_that_memory_is_out, 0, 2)
{
    struct handles h = {NULL, NULL, NULL, NULL};

    has_options = _i;
    ck_assert_int_gt(sweep(&h, NULL, close_and_open), 0);
    close_all(&h);
}

static void use_tls(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    certificates_make(dir);
    server_stop(&server);
    server = (struct server){.certificates = dir};
    server_start(&server);
    snprintf(tls_uri, sizeof(tls_uri), "rediss://localhost:%u",
             server.tls_port);
    tls_ca = certificates_path(dir, "ca.pem");
    has_tls = true;
}

TEST(over_tls_opens_and_calls_bear_that_memory_is_out)
{
    struct handles h = {NULL, NULL, NULL, NULL};
    struct shed_error err = {SHED_OK, ""};

    use_tls();
    ck_assert_int_gt(sweep(&h, NULL, close_and_open), 0);
    ck_assert_msg(put(&h, &err) == SHED_OK, "%s", err.reason);
    ck_assert_int_gt(sweep(&h, close_and_open, get), 0);
    ck_assert_int_gt(sweep(&h, NULL, put), 0);
    ck_assert_int_gt(sweep(&h, invalidate, get), 0);
    ck_assert_int_gt(sweep(&h, NULL, acquire_and_release), 0);
    close_all(&h);
    certificates_remove(dir);
}

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
    tcase_add_checked_fixture(test_case(), start_server, stop_server);
    return run_tests("alloc");
}
