/*
 * A process with a cache and locks for the tests of the tool to look at. It
 * reads commands from standard input, one per line, and answers each with "ok"
 * or a reason. If it ends without "quit" it leaves what a killed process
 * leaves.
 *
 *     get KEY       KEY tells what the source says: absent, null, fail, hang,
 *                   or a row "row of KEY"
 *     hang KEY      the same in a thread; the load does not end
 *     put KEY TEXT  \xNN for bytes
 *     lock NAME     and fair NAME, exact NAME, stamp NAME: hold it
 *     want NAME     wait for a fair one in a thread
 *     free NAME     release the last that was taken
 *
 * usage: cli_maker REDIS-URI CACHE [plain]
 * plain: the cache has no tags.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/lock.h>
#include <snowshed/source.h>

#include "base/clock.h"
#include "cli/text.h"
#include "support/bare.h"

#define MARKER_TTL_MS 60000 /* longer than any test looks at them */
#define STALE_MS 60000
#define WAIT_MS 600000

static struct shed_client *client;
static struct shed_cache *cache;
static struct shed_lock *last;

static bool begins(struct shed_bytes key, const char *word)
{
    return key.size >= strlen(word) &&
           memcmp(key.data, word, strlen(word)) == 0;
}

static void load_row(void *user, void *thread, struct shed_bytes key,
                     struct shed_answer *answer)
{
    static const struct shed_bytes red = {"red", 3}, wild = {"\033\377", 2};
    static const uint64_t most = UINT64_MAX;
    static _Thread_local char row[64];

    (void)user;
    (void)thread;
    while (begins(key, "hang"))
        (void)pause();
    if (begins(key, "absent"))
        answer->kind = SHED_ANSWER_ABSENT;
    else if (begins(key, "null"))
        answer->kind = SHED_ANSWER_NULL;
    else if (begins(key, "fail"))
        answer->reason = "the table \033[31mis locked";
    else if (begins(key, "row")) {
        (void)snprintf(row, sizeof(row), "row of %.*s", (int)key.size,
                       (const char *)key.data);
        answer->kind = SHED_ANSWER_ROW;
        answer->row = shed_str(row);
        answer->version = begins(key, "row-max") ? &most : NULL;
        answer->tags = begins(key, "row-red") ? &red : &wild;
        answer->tags_count = begins(key, "row-red") || begins(key, "row-wild");
    }
}

static const struct shed_get_options patient = {.size = sizeof(patient),
                                                .timeout_ms = WAIT_MS};

static void *get_slowly(void *key)
{
    struct shed_value *value = NULL;
    struct shed_error err;

    if (shed_get(cache, shed_str(key), &patient, &value, &err) != SHED_OK)
        (void)fprintf(stderr, "cli_maker: %s\n", err.reason);
    shed_value_unref(value);
    return NULL;
}

static void *want(void *name)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *lock;
    struct shed_error err;

    options.fair = 1;
    if (shed_lock_open(client, shed_str(name), &options, &lock, &err) ==
            SHED_OK &&
        shed_lock_acquire(lock, WAIT_MS, &err) != SHED_OK)
        (void)fprintf(stderr, "cli_maker: %s\n", err.reason);
    return NULL;
}

static enum shed_code begin(void *(*run)(void *), char *text)
{
    pthread_t thread;

    return pthread_create(&thread, NULL, run, strdup(text)) == 0 ? SHED_OK
                                                                 : SHED_EBUSY;
}

static enum shed_code hold(const char *how, const char *name,
                           struct shed_error *err)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;
    enum shed_code code;

    options.fair = strcmp(how, "fair") == 0;
    options.exact_key = strcmp(how, "exact") == 0;
    if (strcmp(how, "stamp") == 0)
        options.algorithm = SHED_LOCK_TIMESTAMP;
    code = shed_lock_open(client, shed_str(name), &options, &last, err);
    if (code == SHED_OK)
        code = shed_lock_acquire(last, 0, err);
    return code;
}

static enum shed_code obey(const char *verb, char *word, char *text,
                           struct shed_error *err)
{
    struct shed_value *value = NULL;
    enum shed_code code;

    if (strcmp(verb, "get") == 0) {
        code = shed_get(cache, shed_str(word), &patient, &value, err);
        shed_value_unref(value);
        return code == SHED_ESOURCE ? SHED_OK : code;
    }
    if (strcmp(verb, "put") == 0)
        return shed_put(cache, shed_str(word),
                        shed_bytes(text, cli_unescape(text)), NULL, err);
    if (strcmp(verb, "expire") == 0)
        return shed_expire(cache, shed_str(word), 0, WAIT_MS, err);
    if (strcmp(verb, "hang") == 0)
        return begin(get_slowly, word);
    if (strcmp(verb, "want") == 0)
        return begin(want, word);
    if (strcmp(verb, "free") == 0)
        return shed_lock_release(last, err);
    return hold(verb, word, err);
}

int main(int argc, char **argv)
{
    struct shed_cache_options options = bare_cache();
    struct shed_source_options many = bare_source();
    struct shed_source *source;
    struct shed_error err;
    char line[4096], verb[16], word[1024], text[2048];

    options.failure_ttl_ms = options.negative_ttl_ms = MARKER_TTL_MS;
    options.tags_limit = argc == 3 ? 100 : 0;
    options.stale_while_revalidate_ms = STALE_MS;
    many.max_batch = 1;
    many.max_loads = 16;
    if (argc < 3 || shed_client_open(argv[1], BARE_CLIENT, &client, &err) ||
        shed_source_open(load_row, NULL, &many, &source, &err) ||
        shed_cache_open(client, argv[2], source, &options, &cache, &err)) {
        (void)fprintf(stderr, "cli_maker: cannot begin\n");
        return 2;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        text[0] = '\0';
        if (sscanf(line, "%15s %1023s %2047[^\n]", verb, word, text) < 2)
            break;
        if (obey(verb, word, text, &err) == SHED_OK)
            (void)puts("ok");
        else
            (void)puts(err.reason);
        (void)fflush(stdout);
    }
    _exit(0);
}
