/* An address that a failover moves, while the former primary continues as a
 * replica or as a second primary: a path that is a symbolic link, and a host
 * name. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "cache/cache.h"
#include "client/client.h"
#include "redis/pipe.h"
#include "support/awaited.h"
#include "support/fixture.h"
#include "support/lock_fixture.h"

#define HOST "redis.moved.test"

/* The first primary is the fixture's server. */
static struct server other; /* the next primary */
static char path[SERVER_PATH_BYTES + 16], uri[SERVER_URI_BYTES + 64];

/* ------------------------------------------------------------ name look-ups */

/* The name resolves to the path of a unix socket, so that no free port is
 * needed. libuv calls the program's getaddrinfo. */
static pthread_mutex_t name_mu = PTHREAD_MUTEX_INITIALIZER;
static char name_path[SERVER_PATH_BYTES]; /* under name_mu; empty: nowhere */
static bool is_dead_first; /* under name_mu: another address is before it */
static atomic_bool is_name_held; /* look-ups have no answer */
static atomic_uint lookups;      /* begun */

struct answer {
    struct addrinfo info, second;
    struct sockaddr_un name, dead;
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
    bool has_dead;

    (void)node;
    (void)service;
    (void)hints;
    if (a == NULL)
        return EAI_MEMORY;
    atomic_fetch_add(&lookups, 1);
    while (atomic_load(&is_name_held))
        usleep(1000);
    a->name.sun_family = AF_UNIX;
    pthread_mutex_lock(&name_mu);
    memcpy(a->name.sun_path, name_path, sizeof(name_path));
    has_dead = is_dead_first;
    pthread_mutex_unlock(&name_mu);
    if (a->name.sun_path[0] == '\0') {
        free(a);
        return EAI_NONAME;
    }
    a->info = (struct addrinfo){.ai_family = AF_UNIX,
                                .ai_socktype = SOCK_STREAM,
                                .ai_addr = (struct sockaddr *)&a->name,
                                .ai_addrlen = sizeof(a->name)};
    if (has_dead) {
        a->dead =
            (struct sockaddr_un){.sun_family = AF_UNIX, .sun_path = "/nowhere"};
        a->second = a->info;
        a->info.ai_addr = (struct sockaddr *)&a->dead;
        a->info.ai_next = &a->second;
    }
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

/* Until gets have stored k there. */
static void wait_for_k_at(const struct server *s)
{
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              server_int(s, "EXISTS t:{k}") == 1));
}

static void wait_for_session_at(const struct server *s)
{
    WAIT_FOR(server_clients(s, "flags=t") == 1);
}

/* The client has read k, and both connections of its session are up. */
static void up(enum kind kind)
{
    init(kind);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    wait_for_pushes(&fixture);
}

/* The former primary goes on as a replica. */
static void move(void)
{
    demote(&fixture.server);
    point_to(&other);
}

static enum shed_code try_to_invalidate(void)
{
    return shed_invalidate(fixture.cache, shed_str("k"), 0, NULL);
}

/* ---------------------------------------------------------------- following */

TEST_EACH(a_write_that_a_replica_refuses_is_made_where_the_address_leads, 0,
          KINDS)
{
    init((enum kind)_i);
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    move();
    invalidate(fixture.cache, "k"); /* at the first try */
    wait_for_k_at(&other);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    /* only the client of this test is still connected */
    WAIT_FOR(server_clients(&fixture.server, "") == 1);
    wait_for_session_at(&other);
}

TEST_EACH(a_load_is_published_where_the_address_leads, 0, KINDS)
{
    struct getter getter = {0};

    init((enum kind)_i);
    fixture_open(&fixture);
    expect_text(fixture.cache, "warm", "warm@1");
    wait_for_pushes(&fixture);
    move();
    getter_start(&getter, fixture.cache, "k");
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(server_int(&other, "EXISTS t:{k}"), 1);
}

TEST_EACH(a_client_that_only_reads_leaves_a_replica_too, 0, KINDS)
{
    up((enum kind)_i);
    move();
    /* a link that nobody uses stays connected to the old server */
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              server_clients(&fixture.server, "") == 1));
    wait_for_k_at(&other);
}

TEST_EACH(a_lock_is_acquired_where_the_address_leads, 0, KINDS)
{
    struct shed_error err = {0};
    struct shed_lock *lock = NULL;

    init((enum kind)_i);
    fixture_open(&fixture);
    EXPECT_OK(
        shed_lock_open(fixture.client, shed_str("job"), NULL, &lock, NULL));
    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
    EXPECT_OK(shed_lock_release(lock, NULL));
    move();
    ck_assert_msg(shed_lock_acquire(lock, scaled_ms(3000), &err) == SHED_OK,
                  "%s", err.reason);
    ck_assert_int_eq(server_int(&other, "EXISTS lock:{job}"), 1);
    EXPECT_OK(shed_lock_release(lock, NULL));
    shed_lock_close(lock);
}

/* As localhost is ::1 and then 127.0.0.1. */
TEST(a_server_is_found_at_the_second_address_of_its_name)
{
    init(BY_NAME);
    is_dead_first = true;
    fixture_open(&fixture);
    wait_for_k_at(&fixture.server);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    point_to(&other);
    demote(&fixture.server);
    wait_for_k_at(&other);
}

/* ------------------------------------------------ a replica is the next one */

/* Make other a replica of the fixture's server, over a port that is free. */
static void replicate(void)
{
    enum { PORT_FIRST = 20000, PORTS = 10000 };
    unsigned port = PORT_FIRST + (unsigned)getpid() % PORTS;
    redisReply *reply;
    bool is_taken;

    server_do(&fixture.server, "CONFIG SET repl-diskless-sync-delay 0");
    do {
        reply = server_run(&fixture.server, "CONFIG SET port %u", ++port);
        is_taken = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
    } while (is_taken && port < PORT_FIRST + 2 * PORTS);
    server_do(&other, "REPLICAOF 127.0.0.1 %u", port);
    WAIT_FOR(server_clients(&fixture.server, "flags=S") == 1);
}

/* Wait until the replica has what has been written. */
static void wait_for_replica(void)
{
    char at[32], there[32];

    WAIT_FOR(
        (server_info(&fixture.server, "master_repl_offset", at, sizeof(at)),
         server_info(&other, "slave_repl_offset", there, sizeof(there)),
         strcmp(at, there) == 0));
}

/* From now on both are primaries, and what one is told the other is not. */
static void promote(void)
{
    server_do(&other, "REPLICAOF NO ONE");
}

/* What Sentinel tells a former primary, in one transaction. */
static void demote_as_sentinel(const struct server *s)
{
    redisContext *c = redisConnectUnix(s->socket);
    static const char *const commands[] = {"MULTI", "REPLICAOF 127.0.0.1 1",
                                           "CLIENT KILL TYPE normal",
                                           "CLIENT KILL TYPE pubsub", "EXEC"};

    ck_assert(c != NULL && c->err == 0);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        freeReplyObject(redisCommand(c, commands[i]));
    redisFree(c);
}

static long long connections_of(const struct server *s)
{
    char number[32];

    server_info(s, "total_connections_received", number, sizeof(number));
    return strtoll(number, NULL, 10);
}

static void init_replicated(void)
{
    init(BY_PATH);
    replicate();
}

static void fail_over(void)
{
    point_to(&other);
    demote_as_sentinel(&fixture.server);
}

/* A lease that was taken when the replica had already been promoted. */
TEST(a_failover_that_loses_a_lease_costs_a_second_load_and_nothing_old)
{
    struct getter before = {0}, after = {0};
    static struct fixture there; /* a process that comes later */

    init_replicated();
    fixture_open(&fixture);
    expect_text(fixture.cache, "warm", "warm@1");
    promote();
    getter_hold(&before, &fixture, "k");
    there = fixture;
    there.table = (struct table){.mu = PTHREAD_MUTEX_INITIALIZER,
                                 .changed = PTHREAD_COND_INITIALIZER,
                                 .version = 2,
                                 .is_held = true};
    fail_over();
    fixture_open(&there);
    getter_start(&after, there.cache, "k");
    WAIT_FOR(table_running(&there.table) == 1);
    WAIT_FOR(server_clients(&other, "flags=t") == 2);
    table_release(&fixture.table);
    getter_expect(&before, "k@1", SHED_ORIGIN_UNPUBLISHED);
    table_release(&there.table);
    getter_expect(&after, "k@2", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_REDIS);
    fixture_close(&there);
}

/* ------------------------------------ what a failover takes back of writes */

enum { WRITES = 30, MEMORY_MS = 600000 };

static void name_key(char key[16], unsigned i)
{
    snprintf(key, 16, "k%u", i);
}

/* Each row changes, and is invalidated, expired, or put with its version. */
static void write_all(void)
{
    static const uint64_t version = 2;
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    char key[16], row[32];

    o.version = &version;
    table_update(&fixture.table);
    for (unsigned i = 0; i < WRITES; i++) {
        enum shed_code code;
        name_key(key, i);
        snprintf(row, sizeof(row), "%s@2", key);
        if (i % 3 == 0)
            code = shed_invalidate(fixture.cache, shed_str(key), 0, NULL);
        else if (i % 3 == 1)
            code = shed_expire(fixture.cache, shed_str(key), 0, 0, NULL);
        else
            code =
                shed_put(fixture.cache, shed_str(key), shed_str(row), &o, NULL);
        EXPECT_OK(code);
    }
}

/* What another process reads. */
static unsigned count_old_rows(void)
{
    struct peer peer;
    unsigned old = 0;

    peer_open(&peer, &fixture);
    for (unsigned i = 0; i < WRITES; i++) {
        struct shed_value *value = NULL;
        char key[16];
        name_key(key, i);
        EXPECT_OK(shed_get(peer.cache, shed_str(key), NULL, &value, NULL));
        old +=
            memcmp((const char *)value->data + value->size - 2, "@1", 2) == 0;
        shed_value_unref(value);
    }
    peer_close(&peer);
    return old;
}

/* All rows are stored, the replica gets no more, they are written, and the
 * replica becomes the primary. */
static void write_and_fail_over(void)
{
    char key[16], row[32];

    fixture_open(&fixture);
    WAIT_FOR(shed_client_is_up(fixture.client));
    for (unsigned i = 0; i < WRITES; i++) {
        name_key(key, i);
        snprintf(row, sizeof(row), "%s@1", key);
        expect_text(fixture.cache, key, row);
    }
    wait_for_replica();
    promote();
    write_all();
    fail_over();
    wait_for_session_at(&other);
}

static uint64_t repeated(void)
{
    return stats_of(fixture.cache).invalidations_repeated;
}

TEST(what_a_process_wrote_last_is_repeated_after_a_failover)
{
    init_replicated();
    fixture.cache_options.failover_memory_ms = MEMORY_MS;
    write_and_fail_over();
    WAIT_FOR(repeated() == WRITES);
    ck_assert_uint_eq(shed_delivery_count(fixture.cache->delivery), 0);
    ck_assert_uint_eq(count_old_rows(), 0);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_delivered, 0);
}

/* The test above would show old rows without the repetition. */
TEST(without_a_memory_a_failover_takes_writes_back)
{
    init_replicated();
    write_and_fail_over();
    ck_assert_uint_eq(count_old_rows(), WRITES);
}

/* Bounded by number, and by time. */
TEST_EACH(only_the_newest_writes_are_repeated, 0, 2)
{
    init_replicated();
    fixture.cache_options.failover_memory_ms = _i == 0 ? MEMORY_MS : 1;
    fixture.cache_options.undelivered_limit = _i == 0 ? 5 : WRITES;
    write_and_fail_over();
    if (_i == 0)
        WAIT_FOR(repeated() == 5);
    ck_assert_uint_eq(count_old_rows(), _i == 0 ? WRITES - 5 : WRITES);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_dropped, 0);
}

/* The former primary goes on after the next one was found. */
TEST(a_write_that_the_former_primary_carries_out_late_is_repeated)
{
    struct shed_error done = {SHED_OK, ""};
    struct shed_delivery_write write;
    struct shed_named_key named;

    init_replicated();
    fixture.cache_options.failover_memory_ms = MEMORY_MS;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    wait_for_replica();
    promote();
    write = shed_delivery_mark(fixture.cache->delivery, SHED_WISH_INVALIDATE);
    fail_over();
    wait_for_session_at(&other);
    table_update(&fixture.table);
    expect_text(fixture.cache, "k", "k@1");
    shed_key_name("t", shed_str("k"), &named);
    shed_delivery_follow_up(fixture.cache->delivery, &named.key, write, &done);
    expect_text(fixture.cache, "k", "k@2");
}

TEST(a_lost_connection_alone_repeats_nothing)
{
    unsigned changes;

    init_replicated();
    fixture.cache_options.failover_memory_ms = MEMORY_MS;
    fixture_open(&fixture);
    put(fixture.cache, "k", "k@put");
    wait_for_pushes(&fixture);
    changes = shed_client_server_changes(fixture.client);
    server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
    WAIT_FOR(!shed_client_is_up(fixture.client) ||
             server_calls(&fixture.server, "info") > 1);
    WAIT_FOR(server_clients(&fixture.server, "flags=t") == 1);
    expect_origin(fixture.cache, "k", "k@put", SHED_ORIGIN_REDIS);
    ck_assert_uint_eq(repeated(), 0);
    ck_assert_uint_eq(shed_client_server_changes(fixture.client), changes);
}

/* This is the limit of the promise: replication is asynchronous, and the
 * process that wrote may be gone. */
TEST(an_invalidation_that_a_failover_loses_costs_at_most_the_ttl)
{
    long long left_ms;

    init_replicated();
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    wait_for_replica();
    promote();
    table_update(&fixture.table);
    invalidate(fixture.cache, "k");
    fail_over();
    wait_for_session_at(&other);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    left_ms = server_int(&other, "PTTL t:{k}");
    ck_assert(left_ms > 0 &&
              (uint64_t)left_ms <= fixture.cache_options.ttl_ms + LEEWAY_MS);
    invalidate(fixture.cache, "k");
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
    server_check_ttls(&other);
}

/* Nothing is lost: rows stay there, and what is loaded is stored there. A
 * waiter that looks while it has no connection loads, too; the leader's lease,
 * which was replicated, may be taken over before the leader has subscribed
 * again. */
TEST(clients_that_sentinel_disconnects_go_on_at_the_next_primary)
{
    enum { PEERS = 6 };
    struct getter leader = {0}, waiters[PEERS] = {0};
    struct peer peers[PEERS];

    init_replicated();
    fixture.client_options.links = 1;
    fixture_open(&fixture);
    for (size_t i = 0; i < PEERS; i++) {
        peer_open(&peers[i], &fixture);
        expect_text(peers[i].cache, "warm", "warm@1");
    }
    getter_hold(&leader, &fixture, "k");
    for (size_t i = 0; i < PEERS; i++) {
        getter_start(&waiters[i], peers[i].cache, "k");
        WAIT_FOR(stats_of(peers[i].cache).waits == 1);
    }
    wait_for_replica();
    promote();
    fail_over();
    WAIT_FOR(server_clients(&other, "flags=t") == PEERS + 1);
    table_release(&fixture.table);
    getter_join(&leader);
    check_text(leader.value, "k@1");
    shed_value_unref(leader.value);
    for (size_t i = 0; i < PEERS; i++) {
        getter_join(&waiters[i]);
        check_text(waiters[i].value, "k@1");
        shed_value_unref(waiters[i].value);
        expect_origin(peers[i].cache, "warm", "warm@1", SHED_ORIGIN_REDIS);
        peer_close(&peers[i]);
    }
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    ck_assert_uint_le(table_loads(&fixture.table), 2 + PEERS);
}

/* A holder on the former primary's side knows of nothing until that side is
 * told; the number of the other side's holder is higher. */
TEST(a_split_can_have_two_holders_and_the_later_number_is_higher)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_lock *here = NULL, *there = NULL;
    struct shed_fence first, second;
    struct shed_client *client = NULL;

    init_replicated();
    fixture_open(&fixture);
    o.on_lost = count_loss;
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("job"), &o, &here, NULL));
    promote();
    EXPECT_OK(shed_lock_acquire(here, 0, NULL));
    EXPECT_OK(
        shed_client_open(other.uri, &fixture.client_options, &client, NULL));
    EXPECT_OK(shed_lock_open(client, shed_str("job"), NULL, &there, NULL));
    EXPECT_OK(shed_lock_acquire(there, 0, NULL));
    EXPECT_OK(shed_lock_extend(here, 0, NULL));
    EXPECT_OK(shed_lock_fence(here, &first, NULL));
    EXPECT_OK(shed_lock_fence(there, &second, NULL));
    ck_assert_uint_gt(second.number, first.number);
    fail_over();
    WAIT_FOR(atomic_load(&losses) == 1);
    ck_assert_int_eq(shed_lock_is_mine(here), 0);
    EXPECT_OK(shed_lock_release(there, NULL));
    shed_lock_close(there);
    shed_client_close(client);
    shed_lock_close(here);
}

/* Sentinel leaves a former primary that was restarted a primary for seconds. */
TEST_EACH(a_former_primary_that_comes_back_writable_is_not_used, 0, KINDS)
{
    up((enum kind)_i);
    point_to(&other);
    server_kill(&fixture.server);
    server_start_again(&fixture.server);
    wait_for_k_at(&other);
    wait_for_session_at(&other);
    invalidate(fixture.cache, "k");
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(server_int(&fixture.server, "DBSIZE"), 0);
    ck_assert_int_eq(server_clients(&fixture.server, ""), 1);
}

/* Those of the session find out by the name that it has moved; the link has
 * been connected to the former primary again, where it works. */
TEST(a_link_follows_the_session_to_where_the_name_leads)
{
    struct shed_get_options by_link = SHED_GET_OPTIONS_INIT;
    struct shed_value *value;

    by_link.only_cached = 1;
    up(BY_NAME);
    atomic_store(&is_name_held, true);
    server_kill(&fixture.server);
    server_start_again(&fixture.server);
    EXPECT_CODE(shed_get(fixture.cache, shed_str("k"), &by_link, &value, NULL),
                SHED_EMISS);
    point_to(&other);
    atomic_store(&is_name_held, false);
    wait_for_session_at(&other);
    put(fixture.cache, "k", "there");
    ck_assert_int_eq(server_int(&other, "EXISTS t:{k}"), 1);
    expect_origin(fixture.cache, "k", "there", SHED_ORIGIN_REDIS);
    ck_assert_int_eq(server_clients(&fixture.server, ""), 1);
}

/* As if the server had answered that it is a replica. */
static void leave(void *pipe)
{
    shed_pipe_leave(pipe);
}

static bool puts_into_the_other(void)
{
    return shed_put(fixture.cache, shed_str("k"), shed_str("there"), NULL,
                    NULL) == SHED_OK &&
           server_int(&other, "EXISTS t:{k}") == 1;
}

/* Links wait for a look-up that began after it was left. */
TEST(a_server_that_is_left_during_a_look_up_is_looked_up_again)
{
    unsigned before;

    init(BY_NAME);
    fixture.client_options.wait = SHED_WAIT_POLL; /* one connection looks up */
    fixture.client_options.connect_timeout_ms = scaled_ms(1000);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    before = atomic_load(&lookups);
    atomic_store(&is_name_held, true);
    server_kill(&fixture.server);
    server_start_again(&fixture.server);
    WAIT_FOR(atomic_load(&lookups) > before);
    shed_reactor_run(
        fixture.client->reactor, leave,
        shed_session_pipe(shed_client_session(fixture.client, shed_str(""))));
    point_to(&other);
    atomic_store(&is_name_held, false);
    WAIT_FOR(puts_into_the_other());
}

/* Only the session's connection for commands is lost. */
TEST(both_connections_of_a_session_follow_a_name)
{
    up(BY_NAME);
    point_to(&other);
    server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
    wait_for_session_at(&other);
    ck_assert_int_eq(server_clients(&fixture.server, ""), 1);
}

/* The former primary would still answer, and the session is not at the next one
 * yet. */
TEST_EACH(gets_that_nobody_waits_for_follow_too, 0, KINDS)
{
    const struct shed_then then = {.done = note_ending,
                                   .user = &(struct ending){.value = NULL}};
    struct ending *e = then.user;
    struct shed_value *value = NULL;

    init((enum kind)_i);
    fixture_open(&fixture);
    EXPECT_OK(awaited_put(fixture.cache, shed_str("k"), shed_str("here"), NULL,
                          NULL));
    EXPECT_OK(awaited_get(fixture.cache, shed_str("k"), NULL, &value, NULL));
    check_text(value, "here");
    shed_value_unref(value);
    wait_for_pushes(&fixture);
    point_to(&other);
    server_freeze(&other);
    shed_reactor_run(
        fixture.client->reactor, leave,
        shed_session_pipe(shed_client_session(fixture.client, shed_str(""))));
    EXPECT_OK(shed_get_async(fixture.cache, shed_str("k"), NULL, &then, NULL,
                             NULL, NULL));
    usleep(20000); /* the GET is on its way */
    server_thaw(&other);
    WAIT_FOR(atomic_load(&e->calls) == 1);
    check_text(e->value, "k@1");
    shed_value_unref(e->value);
    WAIT_FOR(server_clients(&fixture.server, "") == 1);
}

/* -------------------------------------------------------------- no primary */

static const char *const rights[] = {"ACL SETUSER u on >pw ~* &* +@all",
                                     "ACL SETUSER u on >pw ~* &* +@all -role"};

TEST_EACH(a_replica_without_a_primary_suffers_no_storm, 0, 2)
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
        EXPECT_CODE(try_to_invalidate(), SHED_EREDIS);
        expect_origin(fixture.cache, "l", "l@1", SHED_ORIGIN_UNPUBLISHED);
    }
    ck_assert_int_le(connections_of(&fixture.server) - before, CONNECTIONS_MAX);
    server_do(&fixture.server, "REPLICAOF NO ONE");
    WAIT_FOR(try_to_invalidate() == SHED_OK);
    WAIT_FOR((expect_text(fixture.cache, "l", "l@1"),
              server_int(&fixture.server, "EXISTS t:{l}") == 1));
}

/* -------------------------------------------------- no address at the start */

TEST(a_name_that_does_not_resolve_yet_is_a_server_that_is_down)
{
    init(BY_NAME);
    point_name_to("");
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_UNPUBLISHED);
    EXPECT_CODE(try_to_invalidate(), SHED_EREDIS);
    point_name_to(fixture.server.socket);
    wait_for_k_at(&fixture.server);
    WAIT_FOR(try_to_invalidate() == SHED_OK);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), NULL, down);
    return run_tests("moved");
}
