/*
 * Calls each function of the public headers that neither demo/hello nor
 * program.c calls, with a real Redis, and checks the result. It is valid C and
 * C++.
 *
 * usage: calls REDIS-URI
 */
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/async.h>
#include <snowshed/event.h>
#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

static struct shed_error err; /* of the last call */

/* End the program unless the call had this code. */
static void expect(const char *call, enum shed_code code, enum shed_code wanted)
{
    if (code == wanted)
        return;
    (void)fprintf(stderr, "calls: %s: %s, not %s: %s\n", call,
                  shed_code_name(code), shed_code_name(wanted),
                  code != SHED_OK ? err.reason : "");
    exit(1);
}

#define MUST(call) expect(#call, call, SHED_OK)

static void require(int holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "calls: it does not hold that %s\n", what);
    exit(1);
}

/* --------------------------------------------------------------- the cache */

static int is_key(const struct shed_load *load, size_t i, const char *text)
{
    struct shed_bytes key = load->keys[i].key;

    return key.size == strlen(text) && memcmp(key.data, text, key.size) == 0;
}

static void answer_key(const struct shed_load *load, size_t i,
                       struct shed_answer *answer)
{
    if (shed_load_remaining_ms(load) == 0)
        answer->reason = "too late";
    else if (load->is_probe)
        answer->reason = "it has no breaker";
    else if (is_key(load, i, "null"))
        answer->kind = SHED_ANSWER_NULL;
    else if (is_key(load, i, "long")) {
        answer->kind = SHED_ANSWER_TOO_BIG;
        answer->reason = "it is long";
    } else if (is_key(load, i, "failed"))
        answer->reason = "on purpose";
    else if (load->keys[i].old_version != NULL)
        answer->kind = SHED_ANSWER_UNMODIFIED;
    else {
        answer->kind = SHED_ANSWER_ROW;
        answer->row = shed_str("loaded");
    }
}

static void load_rows(void *user, void *thread, struct shed_load *load)
{
    const uint64_t version = 1;
    const struct shed_bytes tag = shed_str("red");

    (void)user;
    (void)thread;
    for (size_t i = 0; i < load->count; i++) {
        struct shed_answer answer = SHED_ANSWER_INIT;
        answer.version = &version;
        answer.ttl_ms = 60000;
        answer.tags = &tag;
        answer.tags_count = 1;
        answer_key(load, i, &answer);
        shed_load_answer(load, i, &answer);
    }
    shed_load_done(load);
}

static void invalidate_all(struct shed_cache *cache)
{
    const struct shed_bytes keys[] = {shed_str("row"), shed_str("null"),
                                      shed_str("long"), shed_str("failed")};

    MUST(shed_invalidate_many(cache, keys, sizeof(keys) / sizeof(*keys),
                              SHED_TIMEOUT_DEFAULT, &err));
}

static struct shed_value *get(struct shed_cache *cache, const char *key,
                              enum shed_code wanted)
{
    struct shed_value *value;

    expect(key, shed_get(cache, shed_str(key), NULL, &value, &err), wanted);
    return value;
}

static int holds_text(const struct shed_value *value, const char *text)
{
    return value->size == strlen(text) &&
           memcmp(value->data, text, strlen(text)) == 0;
}

static void use_answers(struct shed_cache *cache)
{
    struct shed_value *value = get(cache, "null", SHED_OK);

    require(strcmp(shed_kind_name(value->kind), "null") == 0,
            "the row is NULL");
    shed_value_unref(value);
    require(get(cache, "long", SHED_ETOOBIG) == NULL, "a failure has no value");
    require(get(cache, "failed", SHED_ESOURCE) == NULL, "nor has this one");
}

/* With a row that is in Redis. */
static void use_terms(struct shed_cache *cache)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_item items[2];
    struct shed_value *value;

    items[0].key = shed_str("row");
    items[1].key = shed_str("not loaded");
    options.only_cached = 1;
    MUST(shed_get(cache, items[0].key, &options, &value, &err));
    shed_value_unref(value);
    expect("shed_get_many", shed_get_many(cache, items, 2, &options, &err),
           SHED_EMISS);
    require(items[0].code == SHED_OK && items[1].code == SHED_EMISS,
            "one of the two is not cached");
    shed_value_unref(items[0].value);
}

static void require_row(struct shed_cache *cache, const char *text)
{
    struct shed_value *value = get(cache, "row", SHED_OK);

    require(holds_text(value, text), "the row is the one expected");
    shed_value_unref(value);
}

static void use_put(struct shed_cache *cache)
{
    struct shed_put_options options = SHED_PUT_OPTIONS_INIT;
    const uint64_t version = 2;
    struct shed_value *value, *again;

    MUST(shed_put(cache, shed_str("row"), shed_str("put"), NULL, &err));
    value = get(cache, "row", SHED_OK);
    again = shed_value_ref(value);
    shed_value_unref(value);
    require(holds_text(again, "put"), "what was put is found");
    require(strcmp(shed_origin_name(again->origin), "redis") == 0,
            "it is in Redis");
    require(again->age_ms < 600000, "it is young");
    require(again->fresh_ms <= 300000, "it is fresh for its ttl");
    shed_value_unref(again);
    use_terms(cache);
    options.version = &version;
    MUST(shed_put(cache, shed_str("versioned"), shed_str("row"), &options,
                  &err));
    MUST(shed_expire(cache, shed_str("row"), 0, SHED_TIMEOUT_DEFAULT, &err));
    invalidate_all(cache);
    require_row(cache, "loaded");
}

static void require_line(struct shed_cache **caches, size_t cache_count,
                         struct shed_lock **locks, size_t lock_count,
                         const char *line)
{
    size_t length =
        shed_stats_prometheus(caches, cache_count, locks, lock_count, NULL, 0);
    char *text = (char *)malloc(length + 1);

    require(text != NULL, "there is memory");
    require(shed_stats_prometheus(caches, cache_count, locks, lock_count, text,
                                  length + 1) == length,
            "the text is as long as it said");
    require(strstr(text, line) != NULL, line);
    free(text);
}

static void use_cache_stats(struct shed_cache *cache)
{
    struct shed_cache *caches[] = {cache};
    struct shed_stats stats;

    MUST(shed_stats_read(cache, &stats, sizeof(stats), &err));
    require(stats.puts == 2 && stats.hits == 3, "two puts and three hits");
    require_line(caches, 1, NULL, 0,
                 "snowshed_puts_total{cache=\"calls\"} 2\n");
}

struct answer {
    int calls;
    enum shed_code code;
    char text[8];
};

static void note_answer(void *user, enum shed_code code,
                        struct shed_value *value,
                        const struct shed_error *reason)
{
    struct answer *answer = (struct answer *)user;

    (void)reason;
    answer->calls++;
    answer->code = code;
    if (value != NULL && value->size < sizeof(answer->text))
        memcpy(answer->text, value->data, value->size);
    shed_value_unref(value);
}

/* The answers are collected as an event loop would. */
static void collect(struct shed_queue *queue, size_t count)
{
    struct pollfd ready = {shed_queue_fd(queue), POLLIN, 0};

    while (count > 0) {
        require(poll(&ready, 1, 10000) == 1, "the queue becomes readable");
        count -= shed_queue_collect(queue, count);
    }
    require(poll(&ready, 1, 0) == 0, "the queue is empty");
}

static void use_async_gets(struct shed_cache *cache)
{
    struct answer got = {0, SHED_OK, ""};
    struct shed_item item = {{NULL, 0}, NULL, SHED_OK};
    struct shed_queue *queue = NULL;
    struct shed_pending *pending = NULL;
    struct shed_then then = {note_answer, &got, NULL};

    MUST(shed_queue_open(&queue, &err));
    then.queue = queue;
    MUST(shed_get_async(cache, shed_str("async"), NULL, &then, NULL, &pending,
                        &err));
    collect(queue, 1);
    require(got.calls == 1 && got.code == SHED_OK && got.text[0] != 0,
            "done is called with the row");
    MUST(shed_get_async(cache, shed_str("async"), NULL, &then, NULL, &pending,
                        &err));
    (void)shed_cancel(pending);
    collect(queue, 1);
    item.key = shed_str("async");
    MUST(shed_get_many_async(cache, &item, 1, NULL, &then, NULL, &err));
    collect(queue, 1);
    require(item.code == SHED_OK && item.value != NULL, "the item is answered");
    shed_value_unref(item.value);
    MUST(shed_put_async(cache, shed_str("async"), shed_str("put"), NULL, &then,
                        NULL, &err));
    collect(queue, 1);
    require(got.calls == 4 && got.code == SHED_OK, "the row is put");
    MUST(shed_invalidate_async(cache, shed_str("async"), 0, &then, NULL, &err));
    collect(queue, 1);
    require(got.calls == 5 && got.code == SHED_OK, "the row is invalidated");
    shed_queue_close(queue);
}

static void use_tags(struct shed_client *client, struct shed_source *source)
{
    struct shed_cache_options options = SHED_CACHE_OPTIONS_INIT;
    struct shed_put_options put = SHED_PUT_OPTIONS_INIT;
    const struct shed_bytes tags[] = {shed_str("red"), shed_str("blue")};
    struct shed_cache *cache = NULL;

    options.tags_limit = 10;
    MUST(shed_cache_open(client, "calls-tags", source, &options, &cache, &err));
    put.tags = tags;
    put.tags_count = 2;
    MUST(shed_put(cache, shed_str("row"), shed_str("put"), &put, &err));
    require_row(cache, "put");
    MUST(shed_invalidate_tags(cache, tags, 2, SHED_TIMEOUT_DEFAULT, &err));
    require_row(cache, "loaded");
    MUST(shed_invalidate_all(cache, SHED_TIMEOUT_DEFAULT, &err));
    shed_cache_close(cache);
}

static void use_cache(struct shed_client *client)
{
    struct shed_source *source = NULL;
    struct shed_cache *cache = NULL;

    MUST(shed_source_open_batch(load_rows, NULL, NULL, &source, &err));
    MUST(shed_cache_open(client, "calls", source, NULL, &cache, &err));
    MUST(shed_cache_probe(cache, 0, &err));
    invalidate_all(cache);
    use_answers(cache);
    use_put(cache);
    use_cache_stats(cache);
    use_async_gets(cache);
    shed_cache_close(cache);
    use_tags(client, source);
    shed_source_close(source);
}

/* ---------------------------------------------------------------- the lock */

static void use_hold(struct shed_lock *lock)
{
    struct shed_fence fence, later;

    MUST(shed_lock_acquire(lock, 10000, &err));
    MUST(shed_lock_extend(lock, 60000, &err));
    require(shed_lock_remaining_ms(lock) > 30000, "the lease was extended");
    MUST(shed_lock_fence(lock, &fence, &err));
    MUST(shed_lock_release(lock, &err));
    MUST(shed_lock_advance(lock, fence.number + 1000, &err));
    MUST(shed_lock_acquire(lock, 10000, &err));
    MUST(shed_lock_fence(lock, &later, &err));
    require(later.number > fence.number + 1000, "the number was advanced");
    MUST(shed_lock_release(lock, &err));
}

struct done {
    sem_t is_done;
    enum shed_code code;
};

static void note_done(void *user, struct shed_lock *lock, enum shed_code code,
                      const struct shed_error *reason)
{
    struct done *done = (struct done *)user;

    (void)lock;
    (void)reason;
    done->code = code;
    (void)sem_post(&done->is_done);
}

static void use_async(struct shed_lock *lock)
{
    struct done done;

    require(sem_init(&done.is_done, 0, 0) == 0, "there is a semaphore");
    MUST(shed_lock_acquire_async(lock, 10000, note_done, &done, &err));
    while (sem_wait(&done.is_done) != 0)
        continue;
    expect("the callback", done.code, SHED_OK);
    require(shed_lock_cancel(lock, &done) == 0, "it is too late to cancel");
    MUST(shed_lock_release_async(lock, note_done, &done, &err));
    while (sem_wait(&done.is_done) != 0)
        continue;
    expect("the callback", done.code, SHED_OK);
    (void)sem_destroy(&done.is_done);
}

static void use_lock_stats(struct shed_lock *lock)
{
    struct shed_lock *locks[] = {lock};
    struct shed_lock_stats stats;

    MUST(shed_lock_stats_read(lock, &stats, sizeof(stats), &err));
    require(stats.acquired == 3 && stats.released == 3, "there were 3 holds");
    require_line(NULL, 0, locks, 1,
                 "snowshed_lock_acquired_total{lock=\"calls\"} 3\n");
}

static void use_lock(struct shed_client *client)
{
    struct shed_lock *lock = NULL;

    MUST(shed_lock_open(client, shed_str("calls"), NULL, &lock, &err));
    MUST(shed_lock_probe(lock, 0, &err));
    use_hold(lock);
    use_async(lock);
    use_lock_stats(lock);
    shed_lock_close(lock);
}

/* A quorum of one server, which is the smallest. */
static void use_quorum(struct shed_client *client)
{
    struct shed_lock *lock = NULL;

    MUST(shed_lock_open_quorum(&client, 1, shed_str("calls:quorum"), NULL,
                               &lock, &err));
    MUST(shed_lock_acquire(lock, 10000, &err));
    MUST(shed_lock_release(lock, &err));
    shed_lock_close(lock);
}

/* To be called after an acquire, which waits until the client is connected. */
static void use_status(struct shed_client *client)
{
    struct shed_client_status status;

    MUST(shed_client_status_read(client, &status, sizeof(status), &err));
    require(status.is_up == 1, "the client is connected");
    require(status.breaker == SHED_BREAKER_CLOSED, "its breaker is closed");
}

int main(int argc, char **argv)
{
    struct shed_client *client = NULL;
    char version[32], escaped[8];

    if (argc < 2)
        return 2;
    (void)snprintf(version, sizeof(version), "%d.%d.%d", SHED_VERSION_MAJOR,
                   SHED_VERSION_MINOR, SHED_VERSION_PATCH);
    require(strcmp(shed_event_kind_name(SHED_EVENT_CONNECTED),
                   "connected to Redis") == 0,
            "an event has the name of its kind");
    require(strcmp(shed_version(), version) == 0,
            "the library has the version of its header");
    require(shed_escape(shed_str("\n"), escaped, sizeof(escaped)) == 4 &&
                strcmp(escaped, "\\x0a") == 0,
            "a key can be printed");
    shed_log_stderr(NULL, SHED_LOG_INFO, "calls begins");
    MUST(shed_client_open(argv[1], NULL, &client, &err));
    use_lock(client);
    use_quorum(client);
    use_status(client);
    use_cache(client);
    shed_client_close(client);
    return 0;
}
