/* See own_cluster.h. */
#include "support/own_cluster.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "support/sockets.h"
#include "support/testing.h"

/* A node has two ports, this far apart. Both are below those that Linux gives
 * to connections. */
#define BUS_OFFSET 10000
#define PORT_FIRST 12000
#define PORT_LAST 22000

/* ------------------------------------------------------------------- nodes */

static bool is_free(unsigned port)
{
    struct sockaddr_in name = loopback(port);
    const int yes = 1;
    int fd = open_socket(AF_INET);
    bool is;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    is = bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    close(fd);
    return is;
}

/* Other clusters look for ports at the same time: each begins elsewhere. */
static unsigned find_port(size_t node)
{
    const unsigned ports = PORT_LAST - PORT_FIRST;
    unsigned begin = ((unsigned)getpid() * CLUSTER_NODES_MAX + (unsigned)node);

    for (unsigned i = 0; i < ports; i++) {
        unsigned port = PORT_FIRST + (begin * 37 + i) % ports;
        if (is_free(port) && is_free(port + BUS_OFFSET))
            return port;
    }
    ck_abort_msg("no port is free");
}

static void set_options(struct own_cluster *c, size_t i)
{
    struct server *s = &c->node[i];

    *s = (struct server){.certificates = c->certificates,
                         .password = c->password};
    if (c->certificates != NULL) {
        s->tls_port = c->port[i];
        server_add_option(s, "--tls-cluster", "yes");
        server_add_option(s, "--tls-replication", "yes");
    } else {
        server_add_option(s, "--port", c->port_text[i]);
    }
    if (c->password != NULL)
        server_add_option(s, "--masterauth", c->password);
    server_add_option(s, "--bind", "127.0.0.1");
    server_add_option(s, "--cluster-enabled", "yes");
    server_add_option(s, "--cluster-node-timeout", c->timeout_text);
    /* a replica may be elected however much it lags */
    server_add_option(s, "--cluster-replica-validity-factor", "0");
    server_add_option(s, "--cluster-allow-replica-migration", "no");
    server_add_option(s, "--repl-diskless-sync-delay", "0");
    if (c->has_bus_proxies)
        server_add_option(s, "--cluster-announce-bus-port", c->bus_text[i]);
}

static unsigned bus_port(const struct own_cluster *c, size_t i)
{
    return c->has_bus_proxies ? c->proxy[i].port : c->port[i] + BUS_OFFSET;
}

static void start_bus_proxy(struct own_cluster *c, size_t i)
{
    c->bus[i] = (struct server){.tls_port = c->port[i] + BUS_OFFSET};
    c->proxy[i] = (struct proxy){.is_tcp = true};
    proxy_start(&c->proxy[i], &c->bus[i]);
    snprintf(c->bus_text[i], sizeof(c->bus_text[i]), "%u", c->proxy[i].port);
}

void own_cluster_part(struct own_cluster *c, size_t node)
{
    for (size_t i = 0; i < c->count; i++)
        proxy_set(&c->proxy[i], i == node ? PROXY_SWALLOW : PROXY_PART, 0,
                  c->id[node]);
}

void own_cluster_join(struct own_cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        proxy_set(&c->proxy[i], PROXY_PASS, 0, NULL);
}

static void start_node(struct own_cluster *c, size_t i)
{
    redisReply *reply;

    ck_assert_uint_lt(i, CLUSTER_NODES_MAX);
    c->port[i] = find_port(i);
    snprintf(c->port_text[i], sizeof(c->port_text[i]), "%u", c->port[i]);
    if (c->has_bus_proxies)
        start_bus_proxy(c, i);
    set_options(c, i);
    server_start(&c->node[i]);
    server_do(&c->node[i], "CLUSTER SET-CONFIG-EPOCH %u", (unsigned)i + 1);
    reply = server_run(&c->node[i], "CLUSTER MYID");
    ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
    snprintf(c->id[i], sizeof(c->id[i]), "%s", reply->str);
    freeReplyObject(reply);
    c->count = i + 1;
}

/* Introduce a node to all that are before it: gossip alone takes seconds. */
static void introduce(const struct own_cluster *c, size_t i)
{
    for (size_t other = 0; other < i; other++)
        server_do(&c->node[i], "CLUSTER MEET 127.0.0.1 %u %u", c->port[other],
                  bus_port(c, other));
}

/* ------------------------------------------------------ the state of nodes */

static bool says(const struct server *s, const char *text)
{
    redisReply *reply = server_run(s, "CLUSTER INFO");
    bool is =
        reply->type == REDIS_REPLY_STRING && strstr(reply->str, text) != NULL;

    freeReplyObject(reply);
    return is;
}

static bool knows_all(const struct own_cluster *c, size_t i)
{
    char text[48];

    snprintf(text, sizeof(text), "cluster_known_nodes:%zu\r", c->count);
    return says(&c->node[i], text);
}

bool own_cluster_is_primary(const struct own_cluster *c, size_t node)
{
    char role[16];

    server_info(&c->node[node], "role", role, sizeof(role));
    return strcmp(role, "master") == 0;
}

static unsigned long long epoch_of(const struct server *s)
{
    redisReply *reply = server_run(s, "CLUSTER INFO");
    const char *at = strstr(reply->str, "cluster_current_epoch:");
    unsigned long long epoch = strtoull(strchr(at, ':') + 1, NULL, 10);

    freeReplyObject(reply);
    return epoch;
}

/* A replica that takes over begins the epoch behind the last one that it knows.
 */
static bool is_of_one_epoch(const struct own_cluster *c)
{
    unsigned long long least = ULLONG_MAX, most = 0;

    for (size_t i = 0; i < c->count; i++) {
        unsigned long long epoch;
        if (c->node[i].pid == 0)
            continue;
        epoch = epoch_of(&c->node[i]);
        least = epoch < least ? epoch : least;
        most = epoch > most ? epoch : most;
    }
    return least >= most;
}

void own_cluster_await(const struct own_cluster *c)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->node[i].pid == 0)
            continue;
        WAIT_FOR(knows_all(c, i) && says(&c->node[i], "cluster_state:ok"));
        WAIT_FOR(own_cluster_is_primary(c, i) || server_follows(&c->node[i]));
    }
    WAIT_FOR(is_of_one_epoch(c));
}

/* ---------------------------------------------------------- start and stop */

static unsigned first_slot(const struct own_cluster *c, size_t primary)
{
    return (unsigned)(primary * CLUSTER_SLOTS / c->primaries);
}

static void share_slots(const struct own_cluster *c)
{
    for (size_t i = 0; i < c->primaries; i++)
        server_do(&c->node[i], "CLUSTER ADDSLOTSRANGE %u %u", first_slot(c, i),
                  first_slot(c, i + 1) - 1);
}

/* One that knows another by its address alone, in the handshake, does not know
 * its id yet. */
static bool attach_replica(const struct own_cluster *c, size_t i)
{
    redisReply *reply = server_run(&c->node[i], "CLUSTER REPLICATE %s",
                                   c->id[(i - c->primaries) / c->replicas]);
    bool is = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return is;
}

static void attach_replicas(const struct own_cluster *c)
{
    for (size_t i = c->primaries; i < c->count; i++)
        WAIT_FOR(attach_replica(c, i));
}

void own_cluster_uri(const struct own_cluster *c, const char *seeds, char *uri,
                     size_t size)
{
    size_t at = (size_t)snprintf(uri, size, "%s+cluster://%s%s%s",
                                 c->certificates != NULL ? "rediss" : "redis",
                                 c->password != NULL ? ":" : "",
                                 c->password != NULL ? c->password : "",
                                 c->password != NULL ? "@" : "");

    for (const char *seed = seeds; *seed != '\0'; seed++)
        at += (size_t)snprintf(uri + at, size - at, "%s127.0.0.1:%u",
                               seed > seeds ? "," : "", c->port[*seed - '0']);
    ck_assert_uint_lt(at, size);
}

void own_cluster_start(struct own_cluster *c)
{
    size_t count = c->primaries * (1 + c->replicas);
    char seeds[CLUSTER_NODES_MAX + 1] = "";

    snprintf(c->timeout_text, sizeof(c->timeout_text), "%u",
             c->node_timeout_ms > 0 ? c->node_timeout_ms
                                    : OWN_CLUSTER_TIMEOUT_MS);
    for (size_t i = 0; i < count; i++) {
        start_node(c, i);
        introduce(c, i);
        seeds[i] = (char)('0' + i);
    }
    share_slots(c);
    for (size_t i = 0; i < count; i++)
        WAIT_FOR(knows_all(c, i));
    attach_replicas(c);
    own_cluster_await(c);
    own_cluster_uri(c, seeds, c->uri, sizeof(c->uri));
}

void own_cluster_stop(struct own_cluster *c)
{
    for (size_t i = 0; i < c->count; i++) {
        server_stop(&c->node[i]);
        if (c->has_bus_proxies)
            proxy_stop(&c->proxy[i]);
    }
    c->count = 0;
}

/* -------------------------------------------------------- slots and owners */

/* CRC-16/XMODEM, as the specification of Redis Cluster has it. */
unsigned own_cluster_slot(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open != NULL ? strchr(open + 1, '}') : NULL;
    size_t size = strlen(key);
    unsigned crc = 0;

    if (close != NULL && close > open + 1) {
        key = open + 1;
        size = (size_t)(close - key);
    }
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)key[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    }
    return (crc & 0xffff) % CLUSTER_SLOTS;
}

/* Whether an answer to CLUSTER SLOTS says that a node has a slot. */
static bool gives(const redisReply *slots, unsigned slot, const char *id)
{
    ck_assert_int_eq(slots->type, REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < slots->elements; i++) {
        redisReply **range = slots->element[i]->element;
        if (slot >= range[0]->integer && slot <= range[1]->integer)
            return strcmp(range[2]->element[2]->str, id) == 0;
    }
    return false;
}

static size_t find_owner(const struct own_cluster *c, unsigned slot,
                         size_t except)
{
    size_t owner = CLUSTER_NODES_MAX;

    for (size_t i = 0; i < c->count; i++) {
        redisReply *slots;
        if (i == except || c->node[i].pid == 0)
            continue;
        slots = server_run(&c->node[i], "CLUSTER SLOTS");
        if (gives(slots, slot, c->id[i]))
            owner = i;
        freeReplyObject(slots);
    }
    return owner;
}

size_t own_cluster_owner(const struct own_cluster *c, unsigned slot,
                         size_t except)
{
    size_t owner;

    WAIT_FOR((owner = find_owner(c, slot, except)) < CLUSTER_NODES_MAX);
    return owner;
}

void own_cluster_key(const struct own_cluster *c, size_t node, unsigned n,
                     char key[16])
{
    redisReply *slots = server_run(&c->node[node], "CLUSTER SLOTS");
    unsigned found = 0;

    for (unsigned i = 0; found <= n; i++) {
        snprintf(key, 16, "k%u", i);
        found += gives(slots, own_cluster_slot(key), c->id[node]);
        ck_assert_msg(i < 100 * CLUSTER_SLOTS, "node %zu has no slots", node);
    }
    freeReplyObject(slots);
}

/* -------------------------------------------------------------------- moves */

/* In one pipeline, because there are thousands; not in one script, because each
 * can take Redis 0.3 ms (it tells all nodes), in which it answers nobody, and
 * because it ends Valkey 8.1. */
static void set_slots(const struct own_cluster *c, size_t at,
                      const struct own_move *move, const char *state,
                      size_t node)
{
    redisContext *pipeline = server_connect(&c->node[at]);
    redisReply *reply = NULL;

    ck_assert_ptr_nonnull(pipeline);
    for (unsigned slot = move->first; slot <= move->last; slot++)
        ck_assert_int_eq(redisAppendCommand(pipeline,
                                            "CLUSTER SETSLOT %u %s %s", slot,
                                            state, c->id[node]),
                         REDIS_OK);
    for (unsigned slot = move->first; slot <= move->last; slot++) {
        ck_assert_int_eq(redisGetReply(pipeline, (void **)&reply), REDIS_OK);
        ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "slot %u: %s", slot,
                      reply->str);
        freeReplyObject(reply);
    }
    redisFree(pipeline);
}

void own_cluster_begin_move(const struct own_cluster *c,
                            const struct own_move *move)
{
    set_slots(c, move->to, move, "IMPORTING", move->from);
    set_slots(c, move->from, move, "MIGRATING", move->to);
}

static redisReply *find_key(const struct own_cluster *c,
                            const struct own_move *move)
{
    return server_run(
        &c->node[move->from], "EVAL %s 0 %u %u",
        "for slot = ARGV[1], ARGV[2] do "
        "local keys = redis.call('CLUSTER', 'GETKEYSINSLOT', slot, 1) "
        "if #keys > 0 then return keys[1] end end",
        move->first, move->last);
}

/* Returns: false while the target knows of a primary that has just failed. */
static bool has_migrated(const struct own_cluster *c,
                         const struct own_move *move, const redisReply *key)
{
    redisReply *reply = server_run(
        &c->node[move->from],
        c->password != NULL ? "MIGRATE 127.0.0.1 %u %b 0 10000 AUTH %s"
                            : "MIGRATE 127.0.0.1 %u %b 0 10000",
        c->port[move->to], key->str, (size_t)key->len,
        c->password != NULL ? c->password : "");
    bool is_error = reply->type == REDIS_REPLY_ERROR;

    if (is_error)
        ck_assert_msg(strstr(reply->str, "CLUSTERDOWN") != NULL, "MIGRATE: %s",
                      reply->str);
    freeReplyObject(reply);
    return !is_error;
}

bool own_cluster_move_key(const struct own_cluster *c,
                          const struct own_move *move)
{
    redisReply *key = find_key(c, move);
    bool is_found = key->type == REDIS_REPLY_STRING;

    ck_assert_int_ne(key->type, REDIS_REPLY_ERROR);
    if (is_found)
        WAIT_FOR(has_migrated(c, move, key));
    freeReplyObject(key);
    return is_found;
}

void own_cluster_end_move(const struct own_cluster *c,
                          const struct own_move *move)
{
    set_slots(c, move->to, move, "NODE", move->to);
    set_slots(c, move->from, move, "NODE", move->to);
    for (size_t i = 0; i < c->count; i++)
        if (i != move->to && i != move->from && c->node[i].pid != 0 &&
            own_cluster_is_primary(c, i))
            set_slots(c, i, move, "NODE", move->to);
}

void own_cluster_move(const struct own_cluster *c, const struct own_move *move)
{
    own_cluster_begin_move(c, move);
    while (own_cluster_move_key(c, move))
        ;
    own_cluster_end_move(c, move);
}

size_t own_cluster_add(struct own_cluster *c)
{
    size_t node = c->count;

    start_node(c, node);
    introduce(c, node);
    own_cluster_await(c);
    return node;
}

void own_cluster_remove(struct own_cluster *c)
{
    size_t last = --c->count;

    server_stop(&c->node[last]);
    for (size_t i = 0; i < last; i++)
        if (c->node[i].pid != 0)
            server_do(&c->node[i], "CLUSTER FORGET %s", c->id[last]);
}

/* --------------------------------------------------------------- failovers */

void own_cluster_await_primary(const struct own_cluster *c, size_t replica)
{
    WAIT_FOR(own_cluster_is_primary(c, replica));
}

/* An attempt may come to nothing, for example for want of votes. */
void own_cluster_fail_over(const struct own_cluster *c, size_t replica,
                           const char *how)
{
    enum { ATTEMPT_MS = 6000 };
    uint64_t again_ms = 0;

    while (!own_cluster_is_primary(c, replica)) {
        if (shed_now_ms() >= again_ms) {
            freeReplyObject(server_run(&c->node[replica],
                                       *how != '\0' ? "CLUSTER FAILOVER %s"
                                                    : "CLUSTER FAILOVER",
                                       how));
            again_ms = shed_now_ms() + ATTEMPT_MS;
        }
        usleep(5000);
    }
}
