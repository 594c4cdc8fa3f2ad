/* What a client knows of the server that it is connected to, and of its
 * connection for pushes. */
#include "redis/session.h"

#include "base/container.h"
#include "base/latch.h"
#include "client/client.h"
#include "support/bare.h"
#include "support/lock_fixture.h"

static unsigned long uptime_s(const struct server *s)
{
    char text[32];

    server_info(s, "uptime_in_seconds", text, sizeof(text));
    return strtoul(text, NULL, 10);
}

/* On the loop. */
struct age {
    const struct shed_session *session;
    uint64_t ms;
};

static void read_age(void *arg)
{
    struct age *age = arg;

    age->ms = shed_session_server_age_ms(age->session);
}

static bool knows_age(struct shed_client *client, struct age *age)
{
    shed_reactor_run(client->reactor, read_age, age);
    return age->ms != UINT64_MAX;
}

/* Ask when its clock has just reached the next second: in whole seconds it is
 * one second old, although it may have started a moment ago. */
TEST(no_server_is_taken_for_older_than_it_is)
{
    uint64_t begin_ms = shed_now_ms();
    struct shed_client *client;
    struct age age;

    server_up();
    while (uptime_s(&server) < 1)
        usleep(1000);
    client = open_client(&server, SHED_WAIT_AUTO);
    age.session = shed_client_session(client, shed_str(""));
    WAIT_FOR(knows_age(client, &age));
    ck_assert_uint_le(age.ms, shed_now_ms() - begin_ms);
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

/* On the loop. */
struct ending {
    struct shed_session *session;
    struct shed_identity before, after;
};

static void end_epoch(void *arg)
{
    struct ending *e = arg;

    shed_session_identify(e->session, &e->before);
    shed_session_end_epoch(e->session, shed_session_epoch(e->session));
    shed_session_identify(e->session, &e->after);
}

static bool had_identity(struct shed_client *client, struct ending *e)
{
    shed_reactor_run(client->reactor, end_epoch, e);
    return e->before.process[0] != ' ';
}

/* Else a lock that it takes meanwhile would outlast it if it died. */
TEST(a_process_has_its_identity_while_an_epoch_ends)
{
    struct shed_client *client;
    struct ending e;

    server_up();
    client = open_client(&server, SHED_WAIT_AUTO);
    e.session = shed_client_session(client, shed_str(""));
    WAIT_FOR(had_identity(client, &e));
    ck_assert_mem_eq(&e.before, &e.after, sizeof(e.before));
    server_down();
}

/* A turn of the loop that lasts until may_look. */
struct turn {
    struct shed_post post;
    const struct shed_session *session;
    struct shed_latch may_look;
    bool was_idle;
};

static void look_late(struct shed_post *post)
{
    struct turn *t = shed_container_of(post, struct turn, post);

    (void)shed_latch_wait(&t->may_look, UINT64_MAX);
    t->was_idle = shed_session_is_idle(t->session);
}

static void look(void *arg)
{
    struct turn *t = arg;

    t->was_idle = shed_session_is_idle(t->session);
}

static void pass(void *arg)
{
    (void)arg;
}

static bool is_idle_now(struct shed_client *client, struct turn *turn)
{
    shed_reactor_run(client->reactor, look, turn);
    return turn->was_idle;
}

/* A link has reached the server, and posts that to the session: one that is
 * idle may be closed, and its post would run afterwards. */
TEST(a_session_that_is_to_hear_of_a_link_is_not_idle)
{
    struct shed_health_try try = {.user = SHED_HEALTH_LINK};
    struct turn turn = {.post.run = look_late, .may_look = SHED_LATCH_INIT(1)};
    struct shed_server *held;
    struct shed_client *client;

    server_up();
    client = open_client(&server, SHED_WAIT_AUTO);
    WAIT_FOR(is_tracked(&server));
    held = shed_client_hold(client, shed_str(""));
    turn.session = held->session;
    try.term = shed_gate_term(held->gate);
    WAIT_FOR(is_idle_now(client, &turn));
    shed_reactor_post(client->reactor, &turn.post);
    shed_gate_tell(held->gate, SHED_HEALTH_REACHED, &try, 0, NULL);
    shed_latch_count_down(&turn.may_look, 1);
    shed_reactor_run(client->reactor, pass, NULL);
    ck_assert(!turn.was_idle);
    WAIT_FOR(is_idle_now(client, &turn));
    shed_client_give_back(client, held);
    server_down();
}

int main(void)
{
    return run_tests("push");
}
