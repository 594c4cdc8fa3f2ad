/* What a client knows of the server that it is connected to, and of its
 * connection for pushes. */
#include "redis/session.h"

#include "client/client.h"
#include "support/bare.h"
#include "support/lock_fixture.h"

static unsigned long uptime_s(const struct server *s)
{
    char text[32];

    server_info(s, "uptime_in_seconds", text, sizeof(text));
    return strtoul(text, NULL, 10);
}

/* Ask when its clock has just reached the next second: in whole seconds it is
 * one second old, although it may have started a moment ago. */
TEST(no_server_is_taken_for_older_than_it_is)
{
    uint64_t begin_ms = shed_now_ms(), age_ms = UINT64_MAX;
    struct shed_client *client;

    server_up();
    while (uptime_s(&server) < 1)
        usleep(1000);
    client = open_client(&server, SHED_WAIT_AUTO);
    WAIT_FOR((age_ms = shed_session_server_age_ms(
                  shed_client_session(client, "", 0))) != UINT64_MAX);
    ck_assert_uint_le(age_ms, shed_now_ms() - begin_ms);
    server_down();
}

static bool is_tracked(const struct server *s)
{
    return server_clients(s, "flags=t") == 1;
}

/* Nothing comes over it any more, not even the answer to PING; the connection
 * for commands is well. */
TEST(a_connection_for_pushes_that_died_silently_is_replaced)
{
    struct proxy proxy = {0};
    struct shed_client *client;
    unsigned before;

    server_up();
    proxy_start(&proxy, &server);
    EXPECT_OK(shed_client_open(proxy.uri, BARE_CLIENT, &client, NULL));
    WAIT_FOR(is_tracked(&server));
    before = atomic_load(&proxy.accepted);
    proxy_set(&proxy, PROXY_DROP_PUSHES, 0, NULL);
    WAIT_FOR(atomic_load(&proxy.accepted) > before);
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(is_tracked(&server));
    proxy_stop(&proxy);
    server_down();
}

int main(void)
{
    return run_tests("push");
}
