/* A server, or a proxy in front of it, that replies wrongly: it does not know
 * any script, sends replies twice, or sends more than any command asks for. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "wire/script.h"
#include "support/bare.h"
#include "support/fixture.h"

static struct proxy proxy;

static void set_up(void)
{
    fixture_init(&fixture);
    fixture_add_proxy(&fixture, &proxy);
    fixture.client_options.links = 1;
}

/* ---------------------------------------------------------------- NOSCRIPT */

#define NOSCRIPT "-NOSCRIPT No matching script.\r\n"

/* Else each call would be answered so at first. */
TEST(the_digest_of_each_script_is_the_one_that_redis_makes)
{
    fixture_open(&fixture);
    for (size_t i = 0; i < SHED_SCRIPTS; i++) {
        const struct shed_script_text *script = &shed_script_texts[i];
        redisReply *reply = server_run(&fixture.server, "SCRIPT LOAD %b",
                                       script->text, script->size);
        ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
        ck_assert_str_eq(reply->str, script->sha1);
        freeReplyObject(reply);
    }
}

/* How many calls of scripts, by digest or by text, the server has received. */
static long long scripts_called(void)
{
    return server_calls(&fixture.server, "evalsha") +
           server_calls(&fixture.server, "eval");
}

TEST(a_server_that_never_knows_a_script_is_done_without)
{
    enum { CALLS_MAX = 12 }; /* each try of a get and an invalidate, twice */
    struct shed_error err = {0};
    long long before;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    before = scripts_called();
    proxy_set(&proxy, PROXY_ANSWER, 0, NOSCRIPT);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_UNPUBLISHED);
    EXPECT_CODE(shed_invalidate(fixture.cache, shed_str("k"), 0, &err),
                SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "NOSCRIPT"));
    ck_assert_int_le(scripts_called() - before, CALLS_MAX);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_text(fixture.cache, "l", "l@1");
}

/* A fair lock is acquired by the reactor. */
static struct shed_lock *open_lock(struct shed_client *client, const char *name,
                                   uint64_t fair)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *lock;
    struct shed_error err = {0};

    o.fair = fair;
    ck_assert_msg(shed_lock_open(client, shed_str(name), &o, &lock, &err) ==
                      SHED_OK,
                  "%s", err.reason);
    return lock;
}

TEST_EACH(a_lock_on_a_server_that_never_knows_a_script_fails, 0, 2)
{
    struct shed_lock *lock;
    struct shed_error err = {0};

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    lock = open_lock(fixture.client, "job", (uint64_t)_i);
    proxy_set(&proxy, PROXY_ANSWER, 0, NOSCRIPT);
    EXPECT_CODE(shed_lock_acquire(lock, 0, &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "NOSCRIPT"));
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    shed_lock_close(lock);
}

/* ---------------------------------------------------------------- doubled */

TEST(a_doubled_reply_confirms_no_other_invalidation)
{
    struct shed_error err = {0};

    fixture_open(&fixture);
    expect_text(fixture.cache, "a", "a@1");
    expect_text(fixture.cache, "b", "b@1");
    proxy_set(&proxy, PROXY_STAND_IN, 0, NULL);
    invalidate(fixture.cache, "a");
    EXPECT_OK(shed_invalidate(fixture.cache, shed_str("b"), 0, &err));
    EXPECT_OK(err.code); /* the first try failed */
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS t:{b}"), 0);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

TEST_EACH(a_doubled_reply_is_no_other_keys_value, 0, 2)
{
    static const char *const first[] = {"a", "absent"};
    struct shed_value *value = NULL;
    unsigned before;

    fixture_open(&fixture);
    EXPECT_OK(shed_get(fixture.cache, shed_bytes(first[_i], strlen(first[_i])),
                       NULL, &value, NULL));
    shed_value_unref(value);
    expect_text(fixture.cache, "b", "b@1");
    before = atomic_load(&proxy.accepted);
    proxy_set(&proxy, PROXY_STAND_IN, 0, NULL);
    EXPECT_OK(shed_get(fixture.cache, shed_bytes(first[_i], strlen(first[_i])),
                       NULL, &value, NULL));
    shed_value_unref(value);
    expect_origin(fixture.cache, "b", "b@1", SHED_ORIGIN_REDIS);
    expect_origin(fixture.cache, "b", "b@1", SHED_ORIGIN_REDIS);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    ck_assert_uint_eq(table_loads(&fixture.table), 2);
    ck_assert_uint_gt(atomic_load(&proxy.accepted), before);
    ck_assert_uint_eq(stats_of(fixture.cache).corrupt_entries, 0);
}

TEST(a_doubled_reply_shifts_no_value_of_many)
{
    struct shed_item items[] = {{.key = {"b", sizeof("b") - 1}},
                                {.key = {"c", sizeof("c") - 1}},
                                {.key = {"d", sizeof("d") - 1}}};

    fixture_open(&fixture);
    expect_text(fixture.cache, "a", "a@1");
    EXPECT_OK(shed_get_many(fixture.cache, items, 3, NULL, NULL));
    for (size_t i = 0; i < 3; i++)
        shed_value_unref(items[i].value);
    proxy_set(&proxy, PROXY_DOUBLE, 0, NULL);
    expect_text(fixture.cache, "a", "a@1");
    EXPECT_OK(shed_get_many(fixture.cache, items, 3, NULL, NULL));
    check_text(items[0].value, "b@1");
    check_text(items[1].value, "c@1");
    check_text(items[2].value, "d@1");
    for (size_t i = 0; i < 3; i++)
        shed_value_unref(items[i].value);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

TEST(doubled_replies_mislead_no_thread_on_the_same_link)
{
    struct readers readers = {.threads = 6, .gets = 100, .keys = 10};

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    readers.cache = fixture.cache;
    proxy_set(&proxy, PROXY_DOUBLE, 0, NULL);
    readers_run(&readers);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_text(fixture.cache, "k", "k@1");
}

TEST(a_damaged_entry_that_cannot_be_replaced_costs_few_connections)
{
    enum { GETS = 30, APART_MS = 1000 };
    uint64_t start_ms;
    unsigned before;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_do(&fixture.server, "SETRANGE t:{k} 64 X");
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    before = atomic_load(&proxy.accepted);
    start_ms = shed_now_ms();
    for (int i = 0; i < GETS; i++)
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_uint_le(atomic_load(&proxy.accepted) - before,
                      1 + (shed_now_ms() - start_ms) / APART_MS);
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
}

TEST_EACH(a_doubled_reply_grants_no_other_lock, 0, 2)
{
    struct shed_client *other;
    struct shed_lock *theirs, *first, *second;
    struct shed_error err = {0};

    fixture_open(&fixture);
    EXPECT_OK(shed_client_open(fixture.server.uri, BARE_CLIENT, &other, NULL));
    theirs = open_lock(other, "second", (uint64_t)_i);
    first = open_lock(fixture.client, "first", (uint64_t)_i);
    second = open_lock(fixture.client, "second", (uint64_t)_i);
    EXPECT_OK(shed_lock_acquire(theirs, 0, NULL));
    expect_text(fixture.cache, "k", "k@1"); /* now all connections exist */
    proxy_set(&proxy, PROXY_STAND_IN, 0, NULL);
    ck_assert_msg(shed_lock_acquire(first, 0, &err) == SHED_OK, "%s",
                  err.reason);
    ck_assert_int_ne(shed_lock_acquire(second, 0, &err), SHED_OK);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    shed_lock_close(second);
    shed_lock_close(first);
    EXPECT_OK(shed_lock_release(theirs, &err));
    shed_lock_close(theirs);
    shed_client_close(other);
}

/* ------------------------------------------------------------------ lengths */

/* Nothing waits for the announced elements, or iterates over them. */
TEST_EACH(a_length_that_nobody_asked_for_ends_the_connection_at_once, 0, 6)
{
    static const char *const heads[] = {
        "*2000000\r\n",    "*1000000000\r\n",
        "*2147483647\r\n", "*2\r\n*1000000\r\n*1000000\r\n",
        "$536870912\r\n",  "$-5\r\n"};
    const uint64_t patience_ms = 60000;
    struct shed_lock *lock;
    struct shed_error err = {0};

    fixture.client_options.command_timeout_ms = patience_ms;
    fixture.cache_options.timeout_ms = patience_ms;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    lock = open_lock(fixture.client, "job", 0);
    proxy_set(&proxy, PROXY_ANSWER, 0, heads[_i]);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_UNPUBLISHED);
    EXPECT_CODE(shed_lock_acquire(lock, 0, &err), SHED_EREDIS);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    shed_lock_close(lock);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, fixture_tear_down);
    return run_tests("bad_replies");
}
