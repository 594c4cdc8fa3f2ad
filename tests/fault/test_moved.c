/* An address that a failover moves while the former primary continues as a
 * replica: a path that is a symbolic link, and a host name. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "support/fixture.h"

#define HOST "redis.moved.test"

static struct fixture fixture; /* its server is the first primary */
static struct server other;    /* the next primary */
static char path[SERVER_PATH_BYTES + 16], uri[SERVER_URI_BYTES + 64];

/* ------------------------------------------------------------ name look-ups */

/* The name resolves to the path of a unix socket, so that no free port is
 * needed. libuv calls the program's getaddrinfo. */
static pthread_mutex_t name_mu = PTHREAD_MUTEX_INITIALIZER;
static char name_path[SERVER_PATH_BYTES]; /* under name_mu; empty: nowhere */

struct answer {
    struct addrinfo info;
    struct sockaddr_un name;
};

#define OF_THE_PROGRAM __attribute__((visibility("default")))

OF_THE_PROGRAM int getaddrinfo(const char *node, const char *service,
                               const struct addrinfo *hints,
                               struct addrinfo **out);
OF_THE_PROGRAM void freeaddrinfo(struct addrinfo *info);

int getaddrinfo(const char *node, const char *service,
                const struct addrinfo *hints, struct addrinfo **out)
{
    struct answer *a = calloc(1, sizeof(*a));

    (void)node;
    (void)service;
    (void)hints;
    if (a == NULL)
        return EAI_MEMORY;
    a->name.sun_family = AF_UNIX;
    pthread_mutex_lock(&name_mu);
    memcpy(a->name.sun_path, name_path, sizeof(name_path));
    pthread_mutex_unlock(&name_mu);
    if (a->name.sun_path[0] == '\0') {
        free(a);
        return EAI_NONAME;
    }
    a->info = (struct addrinfo){.ai_family = AF_UNIX,
                                .ai_socktype = SOCK_STREAM,
                                .ai_addr = (struct sockaddr *)&a->name,
                                .ai_addrlen = sizeof(a->name)};
    *out = &a->info;
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    free(info);
}

static void point_name_to(const char *socket)
{
    pthread_mutex_lock(&name_mu);
    snprintf(name_path, sizeof(name_path), "%s", socket);
    pthread_mutex_unlock(&name_mu);
}

/* ------------------------------------------------------------- the fixture */

static void point_path_to(const struct server *s)
{
    char next[sizeof(path) + 8];

    snprintf(next, sizeof(next), "%s.next", path);
    ck_assert_int_eq(symlink(s->socket, next), 0);
    ck_assert_int_eq(rename(next, path), 0);
}

static void point_to(const struct server *s)
{
    point_path_to(s);
    point_name_to(s->socket);
}

/* The kinds of address that move. */
enum kind { BY_PATH, BY_NAME, KINDS };

static void init(enum kind kind)
{
    fixture_init(&fixture);
    other = (struct server){0};
    server_start(&other);
    snprintf(path, sizeof(path), "%s/moved.sock", fixture.server.dir);
    point_to(&fixture.server);
    if (kind == BY_PATH)
        snprintf(uri, sizeof(uri), "unix:%s", path);
    else
        snprintf(uri, sizeof(uri), "redis://%s", HOST);
    fixture.uri = uri;
}

static void down(void)
{
    fixture_down(&fixture);
    server_stop(&other);
}

static void demote(const struct server *s)
{
    server_do(s, "REPLICAOF 127.0.0.1 1");
}

static enum shed_code try_to_invalidate(void)
{
    return shed_invalidate(fixture.cache, shed_str("k"), 0, NULL);
}

/* ---------------------------------------------------------------- following */

START_TEST(a_write_that_a_replica_refuses_is_made_where_the_address_leads)
{
    init((enum kind)_i);
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    demote(&fixture.server);
    point_to(&other);
    invalidate(fixture.cache, "k"); /* at the first try */
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              server_int(&other, "EXISTS t:{k}") == 1));
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    /* only the client of this test is still connected */
    WAIT_FOR(server_clients(&fixture.server, "") == 1);
    WAIT_FOR(server_clients(&other, "flags=t") == 1);
    down();
}
END_TEST

START_TEST(a_load_is_published_where_the_address_leads)
{
    struct getter getter = {0};

    init((enum kind)_i);
    fixture_open(&fixture);
    expect_text(fixture.cache, "warm", "warm@1");
    wait_for_pushes(&fixture);
    demote(&fixture.server);
    point_to(&other);
    getter_start(&getter, fixture.cache, "k");
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(server_int(&other, "EXISTS t:{k}"), 1);
    down();
}
END_TEST

START_TEST(a_client_that_only_reads_leaves_a_replica_too)
{
    init((enum kind)_i);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    wait_for_pushes(&fixture);
    demote(&fixture.server);
    point_to(&other);
    /* a link that nobody uses stays connected to the old server */
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              server_clients(&fixture.server, "") == 1));
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              server_int(&other, "EXISTS t:{k}") == 1));
    down();
}
END_TEST

START_TEST(a_lock_is_acquired_where_the_address_leads)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_error err = {0};
    struct shed_lock *lock = NULL;

    init((enum kind)_i);
    fixture_open(&fixture);
    ck_assert_int_eq(
        shed_lock_open(fixture.client, shed_str("job"), &o, &lock, NULL),
        SHED_OK);
    ck_assert_int_eq(shed_lock_acquire(lock, 0, NULL), SHED_OK);
    ck_assert_int_eq(shed_lock_release(lock, NULL), SHED_OK);
    demote(&fixture.server);
    point_to(&other);
    ck_assert_msg(shed_lock_acquire(lock, scaled_ms(3000), &err) == SHED_OK,
                  "%s", err.reason);
    ck_assert_int_eq(server_int(&other, "EXISTS lock:{job}"), 1);
    ck_assert_int_eq(shed_lock_release(lock, NULL), SHED_OK);
    shed_lock_close(lock);
    down();
}
END_TEST

/* -------------------------------------------------------------- no primary */

static long long connections_of(const struct server *s)
{
    char number[32];

    server_info(s, "total_connections_received", number, sizeof(number));
    return strtoll(number, NULL, 10);
}

static const char *const rights[] = {"ACL SETUSER u on >pw ~* &* +@all",
                                     "ACL SETUSER u on >pw ~* &* +@all -role"};

START_TEST(a_replica_without_a_primary_suffers_no_storm)
{
    enum { CONNECTIONS_MAX = 60, WHILE_MS = 500 };
    long long before;
    uint64_t end_ms;

    init(BY_PATH);
    server_do(&fixture.server, rights[_i]);
    snprintf(uri, sizeof(uri), "unix://u:pw@%s", path);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    demote(&fixture.server);
    before = connections_of(&fixture.server);
    end_ms = shed_now_ms() + WHILE_MS;
    while (shed_now_ms() < end_ms) {
        ck_assert_int_eq(try_to_invalidate(), SHED_EREDIS);
        expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_UNPUBLISHED);
    }
    ck_assert_int_le(connections_of(&fixture.server) - before, CONNECTIONS_MAX);
    server_do(&fixture.server, "REPLICAOF NO ONE");
    WAIT_FOR(try_to_invalidate() == SHED_OK);
    WAIT_FOR((expect_text(fixture.cache, "l", "l@1"),
              server_int(&fixture.server, "EXISTS t:{l}") == 1));
    down();
}
END_TEST

/* -------------------------------------------------- no address at the start */

START_TEST(a_name_that_does_not_resolve_yet_is_a_server_that_is_down)
{
    init(BY_NAME);
    point_name_to("");
    fixture.client_options.reconnect_max_ms = 50;
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_UNPUBLISHED);
    ck_assert_int_eq(try_to_invalidate(), SHED_EREDIS);
    point_name_to(fixture.server.socket);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              server_int(&fixture.server, "EXISTS t:{k}") == 1));
    WAIT_FOR(try_to_invalidate() == SHED_OK);
    down();
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("moved");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_loop_test(
        tc, a_write_that_a_replica_refuses_is_made_where_the_address_leads, 0,
        KINDS);
    tcase_add_loop_test(tc, a_load_is_published_where_the_address_leads, 0,
                        KINDS);
    tcase_add_loop_test(tc, a_client_that_only_reads_leaves_a_replica_too, 0,
                        KINDS);
    tcase_add_loop_test(tc, a_lock_is_acquired_where_the_address_leads, 0,
                        KINDS);
    tcase_add_loop_test(tc, a_replica_without_a_primary_suffers_no_storm, 0, 2);
    tcase_add_test(tc,
                   a_name_that_does_not_resolve_yet_is_a_server_that_is_down);
    return run_tests("moved", tc);
}
