/* A lock on three servers whose users lack the right to INFO, without which
 * nobody knows whether a server has restarted and forgotten the lock. */
#include <string.h>

#include "support/bare.h"
#include "support/lock_fixture.h"

enum { SERVERS = 3, LEASE_MS = 1000, OLD_S = 4 }; /* a few s may be unknown */

static struct server servers[SERVERS];
static struct shed_client *clients[SERVERS];
static struct shed_lock *lock;

static long long age_s(unsigned i)
{
    char text[32];

    server_info(&servers[i], "uptime_in_seconds", text, sizeof(text));
    return strtoll(text, NULL, 10);
}

static void set_up(void)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        servers[i] = (struct server){0};
        server_start(&servers[i]);
    }
    for (unsigned i = 0; i < SERVERS; i++)
        WAIT_FOR(age_s(i) >= OLD_S);
}

static void tear_down(void)
{
    shed_lock_close(lock);
    for (unsigned i = 0; i < SERVERS; i++) {
        shed_client_close(clients[i]);
        server_stop(&servers[i]);
    }
}

static void open_quorum(void)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    o.lease_ms = LEASE_MS;
    for (unsigned i = 0; i < SERVERS; i++)
        EXPECT_OK(
            shed_client_open(servers[i].uri, BARE_CLIENT, &clients[i], NULL));
    EXPECT_OK(shed_lock_open_quorum(clients, SERVERS, shed_str(LOCK_NAME), &o,
                                    &lock, NULL));
}

/* However long one would wait, it is said at once which right is missing. */
static void expect_denial(void)
{
    struct shed_error err;

    EXPECT_CODE(shed_lock_acquire(lock, PLENTY_MS, &err), SHED_EDENIED);
    ck_assert_ptr_nonnull(strstr(err.reason, "INFO"));
}

static bool is_left(void)
{
    long long count = 0;

    for (unsigned i = 0; i < SERVERS; i++)
        count += server_int(&servers[i], "EXISTS %s", LEASE_KEY);
    return count > 0;
}

TEST(a_majority_that_refuses_info_is_denied)
{
    enum { TIMES = 3 };

    server_do(&servers[0], "ACL SETUSER default -info");
    server_do(&servers[2], "ACL SETUSER default -info");
    open_quorum();
    for (unsigned i = 0; i < TIMES; i++)
        expect_denial();
    WAIT_FOR(!is_left());
    /* it is asked again, over the same connection */
    server_do(&servers[2], "ACL SETUSER default +info");
    WAIT_FOR(shed_lock_acquire(lock, 0, NULL) == SHED_OK);
    (void)!shed_lock_release(lock, NULL); /* the lease may have ended */
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("quorum rights");
}
