/* Options of clients, caches and locks: a number that is too large is refused
 * with the name of its field. Those of sources are in test_load and
 * test_mysql_query. */
#include <stddef.h>
#include <string.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "support/testing.h"

/* Nothing is asked of Redis here. */
#define URI "unix:/no/socket"

static struct shed_client *client;
static struct shed_source *source;

static void load(void *user, void *thread, struct shed_bytes key,
                 struct shed_answer *answer)
{
    (void)user;
    (void)thread;
    (void)key;
    (void)answer;
}

static enum shed_code open_client(const void *options, struct shed_error *err)
{
    struct shed_client *out;

    return shed_client_open(URI, options, &out, err);
}

static enum shed_code open_cache(const void *options, struct shed_error *err)
{
    struct shed_cache *out;

    return shed_cache_open(client, "cache", source, options, &out, err);
}

static enum shed_code open_lock(const void *options, struct shed_error *err)
{
    struct shed_lock *out;

    return shed_lock_open(client, shed_str("lock"), options, &out, err);
}

typedef enum shed_code open_fn(const void *options, struct shed_error *err);

static void expect_refusal(open_fn *open, const void *options, size_t size,
                           size_t offset, const char *name)
{
    uint64_t copy[40]; /* aligned for structs that begin with a size_t */
    const uint64_t too_large = UINT64_MAX;
    struct shed_error err = {SHED_OK, ""};

    ck_assert_uint_le(size, sizeof(copy));
    memcpy(copy, options, size);
    memcpy((char *)copy + offset, &too_large, sizeof(too_large));
    EXPECT_CODE(open(copy, &err), SHED_EINVAL);
    ck_assert_msg(strstr(err.reason, name) != NULL, "%s: %s", name, err.reason);
}

enum { CLIENT, CACHE, LOCK };

#define FIELD(kind, type, field)                                               \
    {                                                                          \
        kind, offsetof(struct type, field), #field                             \
    }
#define OF_CLIENT(field) FIELD(CLIENT, shed_client_options, field)
#define OF_CACHE(field) FIELD(CACHE, shed_cache_options, field)
#define OF_LOCK(field) FIELD(LOCK, shed_lock_options, field)

static const struct {
    int kind;
    size_t offset;
    const char *name;
} fields[] = {
    OF_CLIENT(connect_timeout_ms),
    OF_CLIENT(command_timeout_ms),
    OF_CLIENT(links),
    OF_CLIENT(wait),
    OF_CLIENT(breaker.failure_pct),
    OF_CLIENT(breaker.min_calls),
    OF_CLIENT(breaker.window_ms),
    OF_CLIENT(breaker.open_ms),
    OF_CLIENT(breaker.slow_ms),

    OF_CACHE(ttl_ms),
    OF_CACHE(ttl_jitter_pct),
    OF_CACHE(negative_ttl_ms),
    OF_CACHE(failure_ttl_ms),
    OF_CACHE(lease_ms),
    OF_CACHE(timeout_ms),
    OF_CACHE(value_limit_bytes),
    OF_CACHE(redis_down),
    OF_CACHE(refresh_after_pct),
    OF_CACHE(stale_while_revalidate_ms),
    OF_CACHE(stale_if_error_ms),
    OF_CACHE(undelivered_limit),
    OF_CACHE(failover_memory_ms),
    OF_CACHE(soft_timeout_ms),
    OF_CACHE(tags_limit),
    OF_CACHE(local_bytes),
    OF_CACHE(near_bytes),
    OF_CACHE(near_ms),

    OF_LOCK(algorithm),
    OF_LOCK(lease_ms),
    OF_LOCK(watchdog_ms),
    OF_LOCK(fair),
    OF_LOCK(death_grace_ms),
    OF_LOCK(exact_key),
    OF_LOCK(replicas),
};

TEST(an_option_that_is_too_large_is_named)
{
    const struct shed_client_options of_client = SHED_CLIENT_OPTIONS_INIT;
    const struct shed_cache_options of_cache = SHED_CACHE_OPTIONS_INIT;
    const struct shed_lock_options of_lock = SHED_LOCK_OPTIONS_INIT;
    const struct {
        open_fn *open;
        const void *options;
        size_t size;
    } kinds[] = {[CLIENT] = {open_client, &of_client, sizeof(of_client)},
                 [CACHE] = {open_cache, &of_cache, sizeof(of_cache)},
                 [LOCK] = {open_lock, &of_lock, sizeof(of_lock)}};

    EXPECT_OK(shed_client_open(URI, NULL, &client, NULL));
    EXPECT_OK(shed_source_open(load, NULL, NULL, &source, NULL));
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        expect_refusal(
            kinds[fields[i].kind].open, kinds[fields[i].kind].options,
            kinds[fields[i].kind].size, fields[i].offset, fields[i].name);
    shed_source_close(source);
    shed_client_close(client);
}

int main(void)
{
    return run_tests("option ranges");
}
