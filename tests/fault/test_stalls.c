/* Four processes that write and read the same rows, each over connections of
 * which one or another stalls, so that commands arrive up to 2.5 s late, long
 * after their calls have given up: once a write has returned SHED_OK, nobody
 * reads an older row. (After an invalidation by tag this holds in its own
 * process; another one hears of it when its connections let it.) */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "base/random.h"
#include "support/bare.h"
#include "support/child.h"
#include "support/server.h"
#include "support/testing.h"

enum {
    PROCESSES = 4,
    WRITERS = 3,
    READERS = 3, /* of a process */
    KEYS = 26,
    STALL_MS = 2500,
    STALL_EVERY = 25, /* chunks of requests */
    WRITE_MS = 100,   /* the longest timeout of a write */
    FAILED_MIN = 800, /* writes that have to fail, and reads to succeed */
    READS_MIN = 3000
};

/* A row, in memory that all share. Its versions count from 1. */
struct row {
    pthread_mutex_t writing;
    atomic_uint committed;
    atomic_uint told; /* of the last write that has returned SHED_OK */
};

static struct shared {
    struct row row[KEYS];
    atomic_uint reads, writes, failed, stale;
} * shared;

static struct server server;

/* of a process */
static struct shed_cache *cache;
static atomic_uint told_here[KEYS]; /* by tag */

/* ------------------------------------------------------------ in a process */

static struct shed_bytes key_of(size_t i)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyz";

    return shed_bytes(&names[i], 1);
}

static size_t index_of(struct shed_bytes key)
{
    return (size_t)(*(const char *)key.data - 'a');
}

static struct row *row_of(struct shed_bytes key)
{
    return &shared->row[index_of(key)];
}

static void load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < load->count; i++) {
        struct shed_bytes key = load->keys[i].key;
        uint64_t version = atomic_load(&row_of(key)->committed);
        struct shed_answer answer = SHED_ANSWER_INIT;
        char text[24];
        snprintf(text, sizeof(text), "%" PRIu64, version);
        answer.kind = SHED_ANSWER_ROW;
        answer.row = shed_str(text);
        answer.version = &version;
        answer.tags = &key;
        answer.tags_count = 1;
        shed_load_answer(load, i, &answer);
    }
    shed_load_done(load);
}

static enum shed_code put(struct shed_bytes key, uint64_t version,
                          bool has_version, uint64_t timeout_ms)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    char text[16];

    snprintf(text, sizeof(text), "%u", (unsigned)version);
    o.timeout_ms = timeout_ms;
    o.version = has_version ? &version : NULL;
    o.tags = &key;
    o.tags_count = 1;
    return shed_put(cache, key, shed_str(text), &o, NULL);
}

/* Tell Redis of a new version, in one of the ways. Every other row is never
 * invalidated by its tag, which would end a late put of it, too. Returns:
 * whether Redis said that it has it. */
static bool tell(struct shed_bytes key, unsigned version)
{
    uint64_t timeout_ms = 1 + shed_random_jitter() % scaled_ms(WRITE_MS);
    atomic_uint *told = &row_of(key)->told;
    enum shed_code code;

    switch (shed_random_jitter() % (index_of(key) % 2 == 0 ? 3 : 4)) {
    case 0:
        code = put(key, version, false, timeout_ms);
        break;
    case 1:
        code = put(key, version, true, timeout_ms);
        break;
    case 2:
        code = shed_invalidate(cache, key, timeout_ms, NULL);
        break;
    default:
        code = shed_invalidate_tags(cache, &key, 1, timeout_ms, NULL);
        told = &told_here[index_of(key)];
    }
    if (code == SHED_OK)
        atomic_store(told, version);
    return code == SHED_OK;
}

static void *write_rows(void *unused)
{
    for (;;) {
        struct shed_bytes key = key_of(shed_random_jitter() % KEYS);
        struct row *row = row_of(key);
        unsigned version;
        bool is_told;

        pthread_mutex_lock(&row->writing);
        version = atomic_fetch_add(&row->committed, 1) + 1;
        is_told = tell(key, version);
        pthread_mutex_unlock(&row->writing);
        atomic_fetch_add(is_told ? &shared->writes : &shared->failed, 1);
        usleep(20000);
    }
    return unused;
}

static void *read_rows(void *unused)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;

    options.timeout_ms = scaled_ms(500);
    for (;;) {
        struct shed_bytes key = key_of(shed_random_jitter() % KEYS);
        unsigned told = atomic_load(&row_of(key)->told);
        unsigned told_by_tag = atomic_load(&told_here[index_of(key)]);
        struct shed_value *value = NULL;
        char text[16] = "";

        if (shed_get(cache, key, &options, &value, NULL) == SHED_OK) {
            memcpy(text, value->data, value->size);
            atomic_fetch_add(&shared->reads, 1);
            if (strtoul(text, NULL, 10) <
                (told > told_by_tag ? told : told_by_tag))
                atomic_fetch_add(&shared->stale, 1);
        }
        shed_value_unref(value);
        usleep(500);
    }
    return unused;
}

/* Half of the processes take a connection for dead before what it holds back
 * goes on. */
static _Noreturn void work(size_t process)
{
    struct shed_client_options client_options = bare_client();
    struct shed_cache_options options = bare_cache();
    struct shed_source *source = NULL;
    struct shed_client *client = NULL;
    struct proxy proxy = {.is_tcp = true};
    pthread_t thread;

    proxy_start(&proxy, &server);
    client_options.command_timeout_ms =
        scaled_ms(process % 2 == 0 ? 300 : 4000);
    options.tags_limit = 100;
    if (shed_client_open(proxy.uri, &client_options, &client, NULL) ||
        shed_source_open_batch(load, NULL, BARE_SOURCE, &source, NULL) ||
        shed_cache_open(client, "t", source, &options, &cache, NULL))
        _exit(1);
    atomic_store(&proxy.every, STALL_EVERY);
    proxy_set(&proxy, PROXY_STALL, STALL_MS, NULL);
    for (size_t i = 0; i < WRITERS; i++)
        if (pthread_create(&thread, NULL, write_rows, NULL) != 0)
            _exit(1);
    for (size_t i = 0; i < READERS; i++)
        if (pthread_create(&thread, NULL, read_rows, NULL) != 0)
            _exit(1);
    for (;;)
        pause();
}

/* ------------------------------------------------------------------ the test
 */

static void share_rows(void)
{
    pthread_mutexattr_t attributes;

    shared = share_memory(sizeof(*shared));
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    for (size_t i = 0; i < KEYS; i++)
        pthread_mutex_init(&shared->row[i].writing, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

TEST(nobody_reads_an_older_row_than_a_write_that_returned)
{
    pid_t workers[PROCESSES];

    share_rows();
    server_start(&server);
    for (size_t i = 0; i < PROCESSES; i++) {
        workers[i] = fork_child();
        if (workers[i] == 0)
            work(i);
    }
    WAIT_FOR(atomic_load(&shared->failed) >= FAILED_MIN &&
             atomic_load(&shared->reads) >= READS_MIN);
    for (size_t i = 0; i < PROCESSES; i++)
        kill_child(workers[i]);
    ck_assert_uint_eq(atomic_load(&shared->stale), 0);
    ck_assert_uint_gt(atomic_load(&shared->writes), 0);
    server_stop(&server);
}

int main(void)
{
    return run_tests("stalls");
}
