/* A server, or something before it, that answers wrongly: what no script is
 * known to, what is doubled, what is longer than anybody asked for. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "rig.h"

static struct rig rig;
static struct proxy proxy;

static void set_up(void)
{
    rig_init(&rig);
    proxy = (struct proxy){0};
    proxy_start(&proxy, &rig.server);
    rig.uri = proxy.uri;
    rig.client_options.links = 1;
    rig.client_options.reconnect_max_ms = 50;
}

static void tear_down(void)
{
    rig_close(&rig);
    proxy_stop(&proxy);
    server_check_ttls(&rig.server);
    server_stop(&rig.server);
}

/* ---------------------------------------------------------------- NOSCRIPT */

#define NOSCRIPT "-NOSCRIPT No matching script.\r\n"

/* Calls of scripts that the server has got, by digest and by text. */
static long long scripts_called(void)
{
    return server_calls(&rig.server, "evalsha") +
           server_calls(&rig.server, "eval");
}

START_TEST(a_server_that_never_knows_a_script_is_done_without)
{
    enum { CALLS_MAX = 12 }; /* twice each try of a get and an invalidate */
    struct shed_error err = {0};
    long long before;

    rig_open(&rig);
    expect_text(rig.cache, "k", "k@1");
    before = scripts_called();
    proxy_set(&proxy, PROXY_ANSWER, 0, NOSCRIPT);
    expect_origin(rig.cache, "k", "k@1", SHED_UNPUBLISHED);
    ck_assert_int_eq(shed_invalidate(rig.cache, "k", 1, 0, &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "NOSCRIPT"));
    ck_assert_int_le(scripts_called() - before, CALLS_MAX);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    expect_text(rig.cache, "l", "l@1");
}
END_TEST

START_TEST(a_lock_on_a_server_that_never_knows_a_script_fails)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *lock;
    struct shed_error err = {0};

    o.fair = (uint64_t)_i; /* such a lock asks by way of the reactor */
    rig_open(&rig);
    expect_text(rig.cache, "k", "k@1");
    ck_assert_int_eq(shed_lock_open(&rig.client, 1, "job", 3, &o, &lock, &err),
                     SHED_OK);
    proxy_set(&proxy, PROXY_ANSWER, 0, NOSCRIPT);
    ck_assert_int_eq(shed_lock_acquire(lock, 0, &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "NOSCRIPT"));
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    shed_lock_close(lock);
}
END_TEST

/* ---------------------------------------------------------------- doubled */

/* By numbers alone: the copy is what an invalidation answers. */
START_TEST(a_doubled_reply_confirms_no_other_invalidation)
{
    rig_open(&rig);
    expect_text(rig.cache, "a", "a@1");
    expect_text(rig.cache, "b", "b@1");
    proxy_set(&proxy, PROXY_DOUBLE, 0, NULL);
    invalidate(rig.cache, "a");
    invalidate(rig.cache, "b");
    ck_assert_int_eq(server_int(&rig.server, "EXISTS t:{b}"), 0);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}
END_TEST

static struct shed_lock *open_lock(struct shed_client *client, const char *name,
                                   uint64_t fair)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *lock;
    struct shed_error err = {0};

    o.fair = fair;
    ck_assert_msg(shed_lock_open(&client, 1, name, strlen(name), &o, &lock,
                                 &err) == SHED_OK,
                  "%s", err.reason);
    return lock;
}

START_TEST(a_doubled_reply_grants_no_other_lock)
{
    struct shed_client *other;
    struct shed_lock *theirs, *first, *second;
    struct shed_error err = {0};

    rig_open(&rig);
    ck_assert_int_eq(shed_client_open(rig.server.uri, NULL, &other, NULL),
                     SHED_OK);
    theirs = open_lock(other, "second", (uint64_t)_i);
    first = open_lock(rig.client, "first", (uint64_t)_i);
    second = open_lock(rig.client, "second", (uint64_t)_i);
    ck_assert_int_eq(shed_lock_acquire(theirs, 0, NULL), SHED_OK);
    expect_text(rig.cache, "k", "k@1"); /* all is connected */
    proxy_set(&proxy, PROXY_DOUBLE, 0, NULL);
    ck_assert_msg(shed_lock_acquire(first, 0, &err) == SHED_OK, "%s",
                  err.reason);
    ck_assert_int_ne(shed_lock_acquire(second, 0, &err), SHED_OK);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    shed_lock_close(second);
    shed_lock_close(first);
    ck_assert_int_eq(shed_lock_release(theirs, &err), SHED_OK);
    shed_lock_close(theirs);
    shed_client_close(other);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("bad replies");

    tcase_set_timeout(tc, 20);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_server_that_never_knows_a_script_is_done_without);
    tcase_add_loop_test(tc, a_lock_on_a_server_that_never_knows_a_script_fails,
                        0, 2);
    tcase_add_test(tc, a_doubled_reply_confirms_no_other_invalidation);
    tcase_add_loop_test(tc, a_doubled_reply_grants_no_other_lock, 0, 2);
    return run_tests("bad_replies", tc);
}
