/* Caches on a Redis Cluster: keys of every node, one load for all clients, the
 * seeds of the URI. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/event.h>

#include "client/client.h"
#include "support/certificates.h"
#include "support/cluster_fixture.h"

enum { MANY = 300 };

static long long entries(const struct own_cluster *c)
{
    long long count = 0;

    for (size_t i = 0; i < NODES; i++)
        count += server_int(&c->node[i], "DBSIZE");
    return count;
}

/* ------------------------------------------------------------------- rows */

/* On a cluster, and with this cache: a key of each node is loaded, stored
 * there and nowhere else, given out and invalidated. */
static void check_rows(const struct own_cluster *c)
{
    char key[16], row[32];

    for (size_t i = 0; i < NODES; i++) {
        table_set_version(&fixture.table, 1);
        own_cluster_key(c, i, 0, key);
        expect_origin(fixture.cache, key, row_of(key, 1, row),
                      SHED_ORIGIN_LOAD);
        expect_origin(fixture.cache, key, row, SHED_ORIGIN_REDIS);
        ck_assert_int_eq(server_int(&c->node[i], "EXISTS t:{%s}", key), 1);
        table_set_version(&fixture.table, 2);
        invalidate(fixture.cache, key);
        expect_origin(fixture.cache, key, row_of(key, 2, row),
                      SHED_ORIGIN_LOAD);
    }
    ck_assert_int_eq(entries(c), NODES);
}

TEST(a_row_is_stored_at_the_node_of_its_key)
{
    cluster_up();
    check_rows(&cluster);
    ck_assert_uint_eq(status_of(fixture.client).is_up, 1);
}

/* Braces in a key decide about its slot. */
TEST(keys_with_braces_are_kept_too)
{
    static const char *const keys[] = {"}",    "{",      "{}",     "a}b",
                                       "{a}b", "{a}{b}", "a{b}}c", "}{"};
    enum { KEYS = sizeof(keys) / sizeof(*keys) };
    char row[32];

    cluster_up();
    for (int i = 0; i < KEYS; i++) {
        expect_origin(fixture.cache, keys[i], row_of(keys[i], 1, row),
                      SHED_ORIGIN_LOAD);
        expect_origin(fixture.cache, keys[i], row, SHED_ORIGIN_REDIS);
        put(fixture.cache, keys[i], "mine");
        expect_origin(fixture.cache, keys[i], "mine", SHED_ORIGIN_REDIS);
        invalidate(fixture.cache, keys[i]);
        expect_origin(fixture.cache, keys[i], row, SHED_ORIGIN_LOAD);
    }
    ck_assert_int_eq(entries(&cluster), KEYS);
}

TEST(rows_are_put_and_expired)
{
    char key[16], row[32];

    cluster_up();
    for (size_t i = 0; i < NODES; i++) {
        put(fixture.cache, key_of(i, 0, key), "mine");
        expect_origin(fixture.cache, key, "mine", SHED_ORIGIN_REDIS);
        EXPECT_OK(shed_expire(fixture.cache, shed_str(key), 0, 0, NULL));
        expect_origin(fixture.cache, key, row_of(key, 1, row),
                      SHED_ORIGIN_LOAD);
        EXPECT_OK(shed_put(fixture.cache, shed_str(key), shed_str("new"),
                           AT_VERSION(7), NULL));
    }
}

/* ------------------------------------------------------------ many keys */

static char names[MANY][16];
static struct shed_item items[MANY];
static struct shed_bytes keys[MANY];

static void name_many(void)
{
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        keys[i] = shed_str(names[i]);
        items[i] = (struct shed_item){.key = keys[i]};
    }
}

static void get_many(unsigned version, enum shed_origin origin)
{
    char row[32];

    EXPECT_OK(shed_get_many(fixture.cache, items, MANY, NULL, NULL));
    for (int i = 0; i < MANY; i++) {
        check_text(items[i].value, row_of(names[i], version, row));
        ck_assert_int_eq(items[i].value->origin, origin);
        shed_value_unref(items[i].value);
    }
}

TEST(many_keys_of_all_nodes_are_loaded_once_and_read_in_one_call)
{
    unsigned at_node[NODES] = {0};

    cluster_up();
    name_many();
    get_many(1, SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(fixture.table.keys, MANY);
    ck_assert_int_eq(entries(&cluster), MANY);
    for (int i = 0; i < MANY; i++)
        at_node[own_cluster_slot(names[i]) * NODES / CLUSTER_SLOTS]++;
    for (size_t i = 0; i < NODES; i++)
        server_do(&cluster.node[i], "CONFIG RESETSTAT");
    get_many(1, SHED_ORIGIN_REDIS);
    for (size_t i = 0; i < NODES; i++) /* none was redirected, either */
        ck_assert_int_eq(server_calls(&cluster.node[i], "get"), at_node[i]);
    ck_assert_uint_eq(fixture.table.keys, MANY);
    table_update(&fixture.table);
    EXPECT_OK(shed_invalidate_many(fixture.cache, keys, MANY, 0, NULL));
    ck_assert_int_eq(entries(&cluster), 0);
    get_many(2, SHED_ORIGIN_LOAD);
}

/* -------------------------------------------------------------------- tags */

static void change_by_tag(int how)
{
    const struct shed_bytes tag = shed_str("all");

    table_update(&fixture.table);
    EXPECT_OK(how == 0 ? shed_invalidate_all(fixture.cache, 0, NULL)
                       : shed_invalidate_tags(fixture.cache, &tag, 1, 0, NULL));
}

/* The log is at one node, the entries are at all of them. */
TEST_EACH(a_tag_ends_its_entries_at_all_nodes, 0, 2)
{
    struct peer peer;
    char key[16], row[32];

    cluster_init();
    fixture.cache_options.tags_limit = 100;
    fixture.table.has_tags = true;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    for (size_t i = 0; i < NODES; i++) {
        key_of(i, 0, key);
        expect_text(fixture.cache, key, row_of(key, 1, row));
        expect_text(peer.cache, key, row);
    }
    change_by_tag(_i);
    for (size_t i = 0; i < NODES; i++) {
        key_of(i, 0, key);
        expect_text(fixture.cache, key, row_of(key, 2, row));
        WAIT_FOR(has_row(peer.cache, key, row));
    }
    peer_close(&peer);
}

/* A script writes it, whose arguments are freed with its reply: a build that
 * looks for leaks checks that. */
TEST(a_lost_log_is_written_again_at_its_node)
{
    const struct server *node;

    cluster_init();
    fixture.cache_options.tags_limit = 100;
    fixture_open(&fixture);
    node = &cluster.node[own_cluster_owner(&cluster, own_cluster_slot("t:tags"),
                                           CLUSTER_NODES_MAX)];
    EXPECT_OK(shed_invalidate_all(fixture.cache, 0, NULL));
    ck_assert_int_eq(server_int(node, "DEL t:tags"), 1);
    WAIT_FOR(has_text(fixture.cache, "k@1") &&
             server_int(node, "EXISTS t:tags") == 1);
}

/* --------------------------------------------------------------- stampedes */

TEST(threads_of_two_clients_cause_one_load)
{
    enum { THREADS = 12 };
    struct peer peers[2];
    char key[16], row[32];

    cluster_up();
    for (int i = 0; i < 2; i++)
        peer_open(&peers[i], &fixture);
    for (size_t n = 0; n < NODES; n++) {
        struct getter getters[THREADS] = {0};
        unsigned before = table_loads(&fixture.table);
        key_of(n, 0, key);
        table_hold(&fixture.table);
        for (int i = 0; i < THREADS; i++)
            getter_start(&getters[i], peers[i % 2].cache, key);
        WAIT_FOR(table_running(&fixture.table) == 1);
        /* one acquire by each client */
        WAIT_FOR(server_calls(&cluster.node[n], "evalsha") >= 2);
        table_release(&fixture.table);
        for (int i = 0; i < THREADS; i++) {
            getter_join(&getters[i]);
            check_text(getters[i].value, row_of(key, 1, row));
            shed_value_unref(getters[i].value);
        }
        ck_assert_uint_eq(table_loads(&fixture.table), before + 1);
    }
    for (int i = 0; i < 2; i++)
        peer_close(&peers[i]);
}

TEST(a_waiter_of_another_client_is_pushed)
{
    struct peer peer;
    char key[16];

    cluster_up();
    peer_open(&peer, &fixture);
    expect_text(peer.cache, "warm", "warm@1");
    for (size_t n = 0; n < NODES; n++) {
        WAIT_FOR(server_clients(&cluster.node[n], "flags=t") == 2);
        peer_expect_push(&peer, &fixture, key_of(n, 0, key));
    }
    peer_close(&peer);
}

/* ------------------------------------------------------------ fleet_loads */

TEST(processes_share_a_budget_of_loads)
{
    enum { KEYS = 40 };
    struct shed_source *source;
    struct fixture *f = &fixture;
    struct getter getters[KEYS] = {0};
    struct peer peer;

    cluster_init();
    f->source_options.fleet_loads = 1;
    f->source_options.max_loads = 4;
    f->source_options.max_batch = 1;
    f->source_options.load_timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);
    fixture_open(f);
    source = f->source;
    EXPECT_OK(shed_source_open_batch(table_load, &f->table, &f->source_options,
                                     &f->source, NULL));
    peer_open(&peer, f);
    name_many();
    for (int i = 0; i < KEYS; i++)
        getter_start(&getters[i], i % 2 == 0 ? f->cache : peer.cache, names[i]);
    for (int i = 0; i < KEYS; i++) {
        getter_join(&getters[i]);
        EXPECT_OK(getters[i].code);
        shed_value_unref(getters[i].value);
    }
    ck_assert_uint_eq(table_loads(&f->table), KEYS);
    ck_assert_uint_eq(f->table.most_running, 1);
    ck_assert_uint_eq(stats_of(f->cache).fleet_failures, 0);
    peer_close(&peer);
    shed_source_close(f->source);
    f->source = source;
    fixture_down(f);
}

/* ----------------------------------------- an address that nobody reaches */

static atomic_uint astray; /* events of it */

static void count_astray(void *user, const struct shed_event *event)
{
    const char *place = user;

    if (event->kind == SHED_EVENT_DISCONNECTED &&
        strstr(event->reason, place) != NULL &&
        strstr(event->reason, "set its cluster-announce-ip") != NULL)
        atomic_fetch_add(&astray, 1);
}

/* Which port of a slot's owner a node tells. */
static unsigned port_told(size_t node, unsigned slot)
{
    redisReply *reply = server_run(&cluster.node[node], "CLUSTER SLOTS");
    unsigned port = 0;

    for (size_t i = 0; i < reply->elements; i++) {
        redisReply **part = reply->element[i]->element;
        if (part[0]->integer <= slot && slot <= part[1]->integer)
            port = (unsigned)part[2]->element[1]->integer;
    }
    freeReplyObject(reply);
    return port;
}

/* Behind address translation, for example. The other nodes reach it, and all
 * tell it. */
static void announce_port(size_t node, unsigned slot, unsigned port)
{
    enum { BUS = 10000 };

    server_do(&cluster.node[node], "CONFIG SET cluster-announce-bus-port %u",
              cluster.port[node] + BUS);
    server_do(&cluster.node[node], "CONFIG SET cluster-announce-port %u", port);
    for (size_t i = 0; i < cluster.count; i++)
        WAIT_FOR(port_told(i, slot) == port);
}

/* Whether a row that is read now is stored at its node. */
static bool is_stored(size_t node, const char *key)
{
    struct shed_value *value = NULL;

    EXPECT_OK(shed_get(fixture.cache, shed_str(key), NULL, &value, NULL));
    shed_value_unref(value);
    return server_int(&cluster.node[node], "EXISTS t:{%s}", key) == 1;
}

TEST(a_node_that_announces_where_nobody_reaches_it_is_told_once)
{
    unsigned wrong = server_free_port(), slot;
    char place[32], key[16], row[32];

    cluster_init();
    key_of(0, 0, key);
    slot = own_cluster_slot(key);
    snprintf(place, sizeof(place), "127.0.0.1:%u", wrong);
    announce_port(0, slot, wrong);
    fixture.client_options.on_event = count_astray;
    fixture.client_options.event_user = place;
    fixture_open(&fixture);
    WAIT_FOR(atomic_load(&astray) == 1);
    key_of(1, 0, key);
    expect_origin(fixture.cache, key, row_of(key, 1, row), SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, key, row, SHED_ORIGIN_REDIS);
    announce_port(0, slot, cluster.port[0]);
    WAIT_FOR(is_stored(0, key_of(0, 0, key)));
    ck_assert_uint_eq(atomic_load(&astray), 1);
}

/* ------------------------------------------------- probes, URIs, passwords */

/* Open the fixture as a user with all rights, to which this rule is applied. */
static void open_by_rule(const char *rule)
{
    static char uri[sizeof(cluster.uri) + 16];

    cluster_init();
    for (size_t i = 0; i < cluster.count; i++)
        server_do(&cluster.node[i], "ACL SETUSER u on >p ~* &* +@all %s", rule);
    snprintf(uri, sizeof(uri), "redis+cluster://u:p@%s",
             cluster.uri + strlen("redis+cluster://"));
    fixture.uri = uri;
    fixture_open(&fixture);
}

static void remove_user(void)
{
    for (size_t i = 0; i < cluster.count; i++)
        server_do(&cluster.node[i], "ACL DELUSER u");
}

TEST_EACH(a_probe_finds_what_a_node_does_not_grant, 0, 2)
{
    struct shed_error err = {0};

    open_by_rule(_i == 1 ? "-get" : "+get");
    ck_assert_int_eq(
        shed_cache_probe(fixture.cache, scaled_ms(FIXTURE_SILENCE_MS), &err),
        _i == 1 ? SHED_EDENIED : SHED_OK);
    if (_i == 1)
        ck_assert_msg(strstr(err.reason, "+get") != NULL, "%s", err.reason);
    remove_user();
}

static unsigned refusals(void)
{
    static const char field[] = "errorstat_NOPERM:count=";
    unsigned count = 0;

    for (size_t i = 0; i < cluster.count; i++) {
        redisReply *reply = server_run(&cluster.node[i], "INFO errorstats");
        const char *at = strstr(reply->str, field);
        if (at != NULL)
            count += (unsigned)strtoul(at + strlen(field), NULL, 10);
        freeReplyObject(reply);
    }
    return count;
}

/* Only with each question for the map, and once for the epoch. */
TEST(a_cluster_that_refuses_to_tell_its_epoch_is_asked_seldom)
{
    enum { A_WHILE_MS = 3000, MOST = 5 };

    open_by_rule("-cluster|info");
    check_rows(&cluster);
    WAIT_FOR(refusals() > 0);
    usleep(A_WHILE_MS * 1000);
    ck_assert_uint_le(refusals(), MOST);
    remove_user();
}

/* 0: the last seed is the only one that answers; 1: all seeds are replicas. */
TEST_EACH(any_node_that_answers_tells_where_the_others_are, 0, 2)
{
    char uri[sizeof(cluster.uri)];

    cluster_init();
    if (_i == 0)
        snprintf(uri, sizeof(uri),
                 "redis+cluster://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u",
                 server_free_port(), server_free_port(), cluster.port[1]);
    else
        own_cluster_uri(&cluster, "345", uri, sizeof(uri));
    fixture.uri = uri;
    fixture_open(&fixture);
    check_rows(&cluster);
}

static bool is_refused(const char *key)
{
    struct shed_error err = {0};

    return shed_invalidate(fixture.cache, shed_str(key), 0, &err) != SHED_OK &&
           strstr(err.reason, "redis+cluster://") != NULL;
}

/* Also for the keys that this node has. */
TEST(the_uri_of_one_server_is_refused_by_a_cluster_with_a_clear_text)
{
    char uri[64], key[16];

    cluster_init();
    snprintf(uri, sizeof(uri), "redis://127.0.0.1:%u", cluster.port[0]);
    fixture.uri = uri;
    fixture_open(&fixture);
    for (size_t i = 0; i < NODES; i++)
        WAIT_FOR(is_refused(key_of(i, 0, key)));
}

/* Use another cluster, with what its fields and the client's options say. */
static void use_another(struct own_cluster *other)
{
    other->primaries = NODES;
    other->node_timeout_ms = 60000;
    own_cluster_start(other);
    fixture.uri = other->uri;
    fixture_open(&fixture);
    check_rows(other);
    fixture_down(&fixture);
    own_cluster_stop(other);
}

TEST(a_cluster_with_a_password_is_used)
{
    static struct own_cluster other = {.password = "secret"};

    fixture_init(&fixture);
    use_another(&other);
}

TEST(a_cluster_is_reached_by_tls)
{
    static char dir[] = "/tmp/shed-tls-XXXXXX";
    static struct own_cluster other = {.certificates = dir};
    char ca[CERTIFICATES_PATH_BYTES];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    certificates_make(dir);
    snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
    fixture_init(&fixture);
    fixture.client_options.tls_ca = ca;
    use_another(&other);
    certificates_remove(dir);
}

/* A node is lost when the client is already being closed. */
static void lose_and_close(void *arg)
{
    struct shed_client *client = arg;
    struct shed_reply *down = shed_reply_create_text(
        SHED_REPLY_ERROR, "CLUSTERDOWN", strlen("CLUSTERDOWN"));
    struct shed_server *server = shed_client_hold(client, shed_str("k"));
    bool is_ask;

    ck_assert_ptr_null(shed_servers_follow(client, server, down, &is_ask));
    shed_client_give_back(client, server);
    shed_reply_free(down);
    shed_servers_close(client->servers);
}

TEST(a_client_that_is_closed_asks_for_no_map)
{
    struct shed_client *client;

    cluster_up();
    EXPECT_OK(
        shed_client_open(fixture.uri, &fixture.client_options, &client, NULL));
    WAIT_FOR(shed_client_is_up(client));
    usleep(1500000); /* by now it is asked for every few seconds */
    shed_reactor_run(client->reactor, lose_and_close, client);
    shed_client_close(client);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), cluster_install, cluster_remove);
    tcase_add_checked_fixture(test_case(), NULL, cluster_down);
    return run_tests("cluster");
}
