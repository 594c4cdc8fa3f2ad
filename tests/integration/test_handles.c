/* Handles may be closed in any order: a handle keeps those that it needs alive,
 * works until it is closed itself, and leaves nothing behind. A sanitizer
 * detects what is used too late or never freed. Needs SHED_TEST_REDIS. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>

#include "support/bare.h"
#include "support/answers.h"
#include "support/testing.h"

enum { CLIENT, SOURCE, CACHE, LOCK, HANDLES };
#define ORDERS 24 /* of four handles */

static struct shed_client *client;
static struct shed_source *source;
static struct shed_cache *cache;
static struct shed_lock *lock;
static atomic_uint sources_closed;

static const char *redis_uri(void)
{
    const char *uri = getenv("SHED_TEST_REDIS");

    ck_assert_msg(uri != NULL, "SHED_TEST_REDIS names no Redis");
    return uri;
}

static void load(void *user, void *thread, struct shed_load *l)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < l->count; i++)
        answer_row(l, i, shed_str("row"));
    shed_load_done(l);
}

static void count_close(void *user)
{
    atomic_fetch_add((atomic_uint *)user, 1);
}

static void open_all(void)
{
    struct shed_source_options o = bare_source();

    o.on_close = count_close;
    EXPECT_OK(shed_client_open(redis_uri(), BARE_CLIENT, &client, NULL));
    EXPECT_OK(shed_source_open_batch(load, &sources_closed, &o, &source, NULL));
    EXPECT_OK(
        shed_cache_open(client, "handles", source, BARE_CACHE, &cache, NULL));
    EXPECT_OK(shed_lock_open(client, shed_str("handles"), NULL, &lock, NULL));
}

static void use_cache(void)
{
    struct shed_value *value = NULL;

    EXPECT_OK(shed_invalidate(cache, shed_str("k"), 0, NULL));
    EXPECT_OK(shed_get(cache, shed_str("k"), NULL, &value, NULL));
    ck_assert_uint_eq(value->size, 3);
    shed_value_unref(value);
}

static void use_lock(void)
{
    EXPECT_OK(shed_lock_acquire(lock, 20000, NULL));
    EXPECT_OK(shed_lock_release(lock, NULL));
}

static void close_one(int which)
{
    switch (which) {
    case CLIENT:
        shed_client_close(client);
        break;
    case SOURCE:
        shed_source_close(source);
        break;
    case CACHE:
        shed_cache_close(cache);
        break;
    case LOCK:
        shed_lock_close(lock);
        break;
    }
}

/* The n-th order of the four, in the factorial number system. */
static void order_of(int n, int order[HANDLES])
{
    int left[HANDLES] = {CLIENT, SOURCE, CACHE, LOCK};

    for (int i = 0; i < HANDLES; i++) {
        int count = HANDLES - i, at = n % count;
        n /= count;
        order[i] = left[at];
        memmove(&left[at], &left[at + 1],
                (size_t)(count - at - 1) * sizeof(*left));
    }
}

TEST_EACH(handles_close_in_any_order, 0, ORDERS)
{
    int order[HANDLES];
    bool is_open[HANDLES] = {true, true, true, true};

    order_of(_i, order);
    open_all();
    for (int i = 0; i < HANDLES; i++) {
        if (is_open[CACHE])
            use_cache();
        if (is_open[LOCK])
            use_lock();
        close_one(order[i]);
        is_open[order[i]] = false;
    }
    ck_assert_uint_eq(atomic_load(&sources_closed), 1);
}

/* The hold outlives the client's handle, and ends with the lock's. */
TEST(a_lock_is_held_until_its_own_handle_is_closed)
{
    struct shed_client *other = NULL;
    struct shed_lock *rival = NULL;

    open_all();
    EXPECT_OK(shed_client_open(redis_uri(), BARE_CLIENT, &other, NULL));
    EXPECT_OK(shed_lock_open(other, shed_str("handles"), NULL, &rival, NULL));
    EXPECT_OK(shed_lock_acquire(lock, 20000, NULL));
    shed_client_close(client);
    EXPECT_CODE(shed_lock_acquire(rival, 0, NULL), SHED_ETIMEDOUT);
    shed_lock_close(lock);
    EXPECT_OK(shed_lock_acquire(rival, 20000, NULL));
    shed_lock_close(rival);
    shed_client_close(other);
    shed_cache_close(cache);
    shed_source_close(source);
}

/* Each would have its own flights, and invalidations by one would not reach
 * those of the other. */
TEST(a_client_has_one_cache_of_a_name)
{
    struct shed_cache *second = NULL;
    struct shed_error err;

    open_all();
    EXPECT_CODE(
        shed_cache_open(client, "handles", source, BARE_CACHE, &second, &err),
        SHED_EINVAL);
    ck_assert_ptr_null(second);
    ck_assert_ptr_nonnull(strstr(err.reason, "cache of that name"));
    shed_cache_close(cache);
    EXPECT_OK(
        shed_cache_open(client, "handles", source, BARE_CACHE, &cache, NULL));
    use_cache();
    for (int i = 0; i < HANDLES; i++)
        close_one(i);
}

int main(void)
{
    return run_tests("handles");
}
