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

static struct handles {
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *cache;
    struct shed_lock *lock;
} h;

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

static void close_all(struct handles *all)
{
    shed_lock_close(all->lock);
    shed_cache_close(all->cache);
    shed_source_close(all->source);
    shed_client_close(all->client);
    *all = (struct handles){0};
}

static void ignore_event(void *user, const struct shed_event *event)
{
    (void)user;
    (void)event;
}

/* The breakers do not open, and gets share what one finds when several are
 * under way. */
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

static enum shed_code open_all(struct handles *all, struct shed_error *err)
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
    code = shed_client_open(has_tls ? tls_uri : server.uri, &client,
                            &all->client, err);
    if (code == SHED_OK)
        code = shed_source_open_batch(load, NULL, &source, &all->source, err);
    if (code == SHED_OK)
        code = shed_cache_open(all->client, "alloc", all->source, &cache,
                               &all->cache, err);
    if (code == SHED_OK)
        code = shed_lock_open(all->client, shed_str("alloc"), NULL, &all->lock,
                              err);
    return code;
}

/* ------------------------------------------------------------------- calls */

enum call {
    NOTHING,
    PUT,
    PUT_TAGGED, /* and a version */
    PUT_ASYNC,
    PUT_OLD, /* an entry that get_young does not take */
    GET,
    GET_YOUNG,
    GET_ASYNC,
    GET_MANY,
    GET_MANY_ASYNC,
    INVALIDATE,
    INVALIDATE_MANY,
    INVALIDATE_TAGS,
    INVALIDATE_ASYNC,
    EXPIRE,
    FORGET_SCRIPTS,
    ACQUIRE,
    RELEASE,
    ACQUIRE_AND_RELEASE, /* a lock that is held already is entered again */
    ACQUIRE_ASYNC, /* refused or not, it is answered before the lock closes */
    CLOSE_AND_OPEN
};

enum { OLD_MS = 100000, MAX_AGE_MS = OLD_MS / 2 };

static enum shed_code put(enum call what, struct shed_error *err)
{
    static const struct shed_bytes tags[] = {{"red", 3}, {"blue", 4}};
    static const uint64_t version = 1;
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;
    enum shed_code code;

    options.version = what == PUT_TAGGED ? &version : NULL;
    if (what == PUT_TAGGED || what == PUT_ASYNC) {
        options.tags = tags;
        options.tags_count = 2;
    }
    code = (what == PUT_ASYNC ? awaited_put : shed_put)(
        h.cache, shed_str("a"), shed_str("row"), &options, err);
    if (code == SHED_OK && what == PUT_OLD)
        age_entry(&server, "alloc:{a}", OLD_MS);
    return code;
}

static enum shed_code get(enum call what, struct shed_error *err)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    enum shed_code code;

    options.max_age_ms = what == GET_YOUNG ? MAX_AGE_MS : 0;
    code = (what == GET_ASYNC ? awaited_get : shed_get)(h.cache, shed_str("a"),
                                                        &options, &value, err);
    shed_value_unref(value);
    return code;
}

static enum shed_code get_many(enum call what, struct shed_error *err)
{
    struct shed_item items[KEYS] = {
        {.key = {"a", 1}}, {.key = {"b", 1}}, {.key = {"c", 1}}};
    enum shed_code code =
        (what == GET_MANY_ASYNC ? awaited_get_many : shed_get_many)(
            h.cache, items, KEYS, NULL, err);

    for (size_t i = 0; i < KEYS; i++)
        shed_value_unref(items[i].value);
    return code;
}

static void ignore(void *user, struct shed_lock *lock, enum shed_code code,
                   const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    (void)code;
    (void)reason;
}

static enum shed_code make(enum call what, struct shed_error *err)
{
    static const struct shed_bytes keys[] = {{"a", 1}, {"b", 1}, {"c", 1}},
                                   tags[] = {{"red", 3}, {"blue", 4}};
    enum shed_code code = SHED_OK;

    switch (what) {
    case NOTHING:
        return SHED_OK;
    case PUT:
    case PUT_TAGGED:
    case PUT_ASYNC:
    case PUT_OLD:
        return put(what, err);
    case GET:
    case GET_YOUNG:
    case GET_ASYNC:
        return get(what, err);
    case GET_MANY:
    case GET_MANY_ASYNC:
        return get_many(what, err);
    case INVALIDATE:
        return shed_invalidate(h.cache, keys[0], 0, err);
    case INVALIDATE_MANY:
        return shed_invalidate_many(h.cache, keys, KEYS, 0, err);
    case INVALIDATE_TAGS:
        return shed_invalidate_tags(h.cache, tags, 2, 0, err);
    case INVALIDATE_ASYNC:
        return awaited_invalidate(h.cache, keys[0], 0, err);
    case EXPIRE:
        return shed_expire(h.cache, keys[0], 0, 0, err);
    case FORGET_SCRIPTS:
        server_do(&server, "SCRIPT FLUSH");
        return SHED_OK;
    case ACQUIRE:
    case ACQUIRE_AND_RELEASE:
        code = shed_lock_acquire(h.lock, PATIENT_MS, err);
        if (code != SHED_OK || what == ACQUIRE)
            return code;
        return shed_lock_release(h.lock, err);
    case RELEASE:
        return shed_lock_release(h.lock, err);
    case ACQUIRE_ASYNC:
        return shed_lock_acquire_async(h.lock, 0, ignore, NULL, err);
    case CLOSE_AND_OPEN:
        close_all(&h);
        return open_all(&h, err);
    }
    return code;
}

static void must(enum call what)
{
    struct shed_error err = {SHED_OK, ""};

    ck_assert_msg(make(what, &err) == SHED_OK, "%d: %s", what, err.reason);
}

static void up(bool with_options)
{
    has_options = with_options;
    must(CLOSE_AND_OPEN);
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
 * left; prepare is made before each call. There must be one. */
static void sweep(enum call prepare, enum call call)
{
    struct shed_error err;
    enum shed_code code;
    bool has_failed = true;

    for (int n = 0; has_failed; n++) {
        err = (struct shed_error){SHED_OK, ""};
        must(prepare);
        scarcity_begin(n);
        code = make(call, &err);
        has_failed = scarcity_end();
        ck_assert_msg(has_failed ? is_bearable(code, &err) : code == SHED_OK,
                      "%d after %d: %d: %s", call, prepare, n, err.reason);
        ck_assert(has_failed || n > 0);
    }
}

/* What is prepared, and the call. */
struct pair {
    enum call prepare, call;
};

TEST_EACH(every_call_bears_that_memory_is_out, 0, 2)
{
    static const struct pair pairs[] = {{NOTHING, PUT},
                                        {FORGET_SCRIPTS, PUT},
                                        {NOTHING, GET},
                                        {INVALIDATE, GET},
                                        {PUT_OLD, GET_YOUNG},
                                        {NOTHING, INVALIDATE},
                                        {NOTHING, INVALIDATE_MANY},
                                        {NOTHING, INVALIDATE_TAGS},
                                        {FORGET_SCRIPTS, INVALIDATE_TAGS},
                                        {INVALIDATE_TAGS, GET},
                                        {INVALIDATE, GET_MANY},
                                        {PUT, GET_MANY},
                                        {NOTHING, PUT_TAGGED},
                                        {PUT_TAGGED, GET},
                                        {PUT_TAGGED, INVALIDATE_TAGS},
                                        {PUT_TAGGED, EXPIRE},
                                        {EXPIRE, GET},
                                        {NOTHING, ACQUIRE_AND_RELEASE},
                                        {ACQUIRE, RELEASE},
                                        {NOTHING, ACQUIRE_ASYNC},
                                        {NOTHING, GET_ASYNC},
                                        {NOTHING, GET_MANY_ASYNC},
                                        {NOTHING, PUT_ASYNC},
                                        {NOTHING, INVALIDATE_ASYNC}};

    up(_i);
    for (size_t i = 0; i < COUNT_OF(pairs); i++)
        sweep(pairs[i].prepare, pairs[i].call);
}

/* Whatever fails, no lease is left behind that others would have to wait for.
 */
static bool succeeds_at_once(enum call call)
{
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code = make(call, &err);

    ck_assert_msg(code != SHED_ETIMEDOUT, "%s", err.reason);
    return code == SHED_OK;
}

/* The same for the library's own threads, until a call ends before any of their
 * allocations has failed. What they cannot do is then done without Redis, or
 * fails; the next call succeeds, once failure markers have ended. Returns: how
 * many have failed. */
static int sweep_threads(enum call prepare, enum call call)
{
    scarcity_spare_replies(true); /* a lost connection can leave a lease */
    for (int n = 0;; n++) {
        struct shed_error err = {SHED_OK, ""};
        enum shed_code code;
        bool has_failed;
        WAIT_FOR(make(prepare, &err) == SHED_OK);
        scarcity_begin_elsewhere(n);
        code = make(call, &err);
        has_failed = scarcity_end_elsewhere();
        ck_assert_msg(is_bearable(code, &err) || code == SHED_EREDIS ||
                          code == SHED_ESOURCE,
                      "%d: %s", n, err.reason);
        WAIT_FOR(succeeds_at_once(call));
        if (!has_failed)
            return n;
    }
}

TEST_EACH(every_thread_of_the_library_bears_that_memory_is_out, 0, 2)
{
    static const struct pair pairs[] = {{INVALIDATE, GET},
                                        {INVALIDATE, GET_MANY},
                                        {PUT_OLD, GET_YOUNG},
                                        {INVALIDATE_TAGS, GET_MANY},
                                        {INVALIDATE, ACQUIRE_AND_RELEASE},
                                        {INVALIDATE, GET_ASYNC},
                                        {PUT, GET_ASYNC},
                                        {INVALIDATE_TAGS, GET_MANY_ASYNC},
                                        {INVALIDATE, PUT_ASYNC},
                                        {PUT, INVALIDATE_ASYNC}};

    up(_i);
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        int failed = sweep_threads(pairs[i].prepare, pairs[i].call);
        ck_assert(failed > 0 || pairs[i].call == ACQUIRE_AND_RELEASE);
    }
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
static bool run_readers(int n)
{
    struct reader readers[READERS] = {0};
    bool has_failed;

    scarcity_begin_elsewhere(n);
    for (size_t i = 0; i < READERS; i++) {
        readers[i].cache = h.cache;
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
    bool has_failed = true;

    up(true);
    must(PUT);
    for (int n = 0; has_failed; n++) {
        has_failed = run_readers(n);
        ck_assert_uint_eq(atomic_load(&h.cache->readers), 0);
        must(GET);
        ck_assert(has_failed || n > READERS);
    }
}

/* ----------------------------------------------------------- without Redis */

static size_t undelivered(void)
{
    return shed_delivery_count(h.cache->delivery);
}

/* As sweep does, but a call need not succeed without Redis. */
static void sweep_without_redis(enum call call)
{
    bool has_failed = true;

    for (int n = 0; has_failed; n++) {
        struct shed_error err = {SHED_OK, ""};
        enum shed_code code;
        scarcity_begin(n);
        code = make(call, &err);
        has_failed = scarcity_end();
        ck_assert_msg(is_bearable(code, &err) || code == SHED_EREDIS, "%d: %s",
                      n, err.reason);
        ck_assert(has_failed || n > 0);
    }
}

/* With rows that the process has kept. */
TEST(without_redis_every_call_bears_that_memory_is_out)
{
    static const enum call calls[] = {
        GET, GET_MANY, PUT_TAGGED, INVALIDATE, GET, INVALIDATE_TAGS, GET_MANY};

    up(true);
    must(GET_MANY);
    server_kill(&server);
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        sweep_without_redis(calls[i]);
    server_start_again(&server);
    WAIT_FOR(undelivered() == 0);
    must(GET);
}

static void refuse_writes(bool is_refusing)
{
    server_do(&server, "CONFIG SET min-replicas-to-write %d", is_refusing);
}

/* What the call says of the invalidation is true. */
TEST(an_invalidation_that_memory_does_not_suffice_to_keep_says_so)
{
    struct shed_error err = {SHED_OK, ""};
    bool was_kept = false, was_dropped = false;

    up(false);
    must(INVALIDATE);
    refuse_writes(true);
    for (int n = 0; !was_kept; n++) {
        enum shed_code code;
        scarcity_begin(n);
        code = make(INVALIDATE, &err);
        (void)scarcity_end();
        ck_assert_int_ne(code, SHED_OK);
        was_kept =
            strstr(err.reason, "undelivered until Redis takes it") != NULL;
        was_dropped |= !was_kept;
        ck_assert_msg(undelivered() == was_kept, "%d: %s", n, err.reason);
    }
    ck_assert(was_dropped);
    refuse_writes(false);
    WAIT_FOR(undelivered() == 0);
}

static enum shed_code get_new(struct shed_error *err)
{
    WAIT_FOR(make(INVALIDATE, err) == SHED_OK);
    return make(GET, err);
}

TEST(without_random_bytes_nothing_is_opened_put_or_locked)
{
    struct handles none = {0};
    struct shed_error err;

    up(false);
    EXPECT_OK(get_new(&err));
    scarcity_of_random_bytes(true);
    EXPECT_CODE(open_all(&none, &err), SHED_EBUSY);
    EXPECT_CODE(make(PUT, &err), SHED_EBUSY);
    EXPECT_CODE(make(ACQUIRE_AND_RELEASE, &err), SHED_EBUSY);
    EXPECT_OK(get_new(&err));
    scarcity_of_random_bytes(false);
    must(PUT);
    must(ACQUIRE_AND_RELEASE);
    close_all(&none);
}

TEST(without_threads_nothing_is_opened_and_nothing_loaded)
{
    struct handles none = {0};
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code;

    up(false);
    scarcity_of_threads(true);
    ck_assert_int_ne(open_all(&none, &err), SHED_OK);
    code = get_new(&err);
    ck_assert_msg(code == SHED_ENOMEM || code == SHED_ESOURCE ||
                      code == SHED_EBUSY,
                  "%d %s", code, err.reason);
    scarcity_of_threads(false);
    EXPECT_OK(get_new(&err));
    close_all(&none);
}

TEST_EACH(every_open_bears_that_memory_is_out, 0, 2)
{
    has_options = _i;
    sweep(NOTHING, CLOSE_AND_OPEN);
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
    use_tls();
    sweep(NOTHING, CLOSE_AND_OPEN);
    must(PUT);
    sweep(CLOSE_AND_OPEN, GET);
    sweep(NOTHING, PUT);
    sweep(INVALIDATE, GET);
    sweep(NOTHING, ACQUIRE_AND_RELEASE);
    close_all(&h);
    certificates_remove(dir);
}

static void start_server(void)
{
    server = (struct server){0};
    server_start(&server);
}

static void stop_all(void)
{
    close_all(&h);
    server_stop(&server);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), start_server, stop_all);
    return run_tests("alloc");
}
