/* See watched.h. */
#include "support/watched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/testing.h"

/* How long a primary is away before it is replaced. With 400 ms, on a busy
 * machine, a sentinel took a new primary for dead before it had connected to
 * it, and had it replaced at once. */
#define DOWN_MS 1000u
/* Sentinels wait for twice this long between two failovers. */
#define FAILOVER_MS 1000

/* The first server, once it runs, has the port of the proxy. */
static void start_proxy(struct watched *w)
{
    w->proxy = (struct proxy){.is_tcp = true};
    proxy_start(&w->proxy, &w->server[0]);
    w->port[0] = w->proxy.port;
}

/* Start a server on a free port. Returns: the port. */
static unsigned start(struct server *s)
{
    static char text[WATCHED_SERVERS + WATCHED_SENTINELS][8];
    static size_t started;
    char *port = text[started++ % COUNT_OF(text)];
    unsigned number = server_free_port();

    snprintf(port, sizeof(*text), "%u", number);
    server_add_option(s, "--port", port);
    server_add_option(s, "--bind", "127.0.0.1");
    server_add_option(s, "--tls-replication",
                      s->certificates != NULL ? "yes" : "no");
    server_start(s);
    return s->certificates != NULL ? s->tls_port : number;
}

static void start_servers(struct watched *w)
{
    static char primary[8];

    for (size_t i = 0; i < WATCHED_SERVERS; i++) {
        struct server *s = &w->server[i];
        *s = (struct server){.certificates = w->certificates};
        server_add_option(s, "--repl-diskless-sync-delay", "0");
        server_add_option(s, "--replica-announce-ip", "127.0.0.1");
        if (i > 0) {
            server_add_option(s, "--replicaof", "127.0.0.1");
            server_add_option(s, primary, NULL);
        }
        w->port[i] = start(s);
        if (i == 0 && w->has_proxy)
            start_proxy(w);
        if (i == 0)
            snprintf(primary, sizeof(primary), "%u", w->port[0]);
    }
}

static void start_sentinels(struct watched *w)
{
    static char text[512];

    snprintf(text, sizeof(text),
             "sentinel monitor %s 127.0.0.1 %u 2\n"
             "sentinel down-after-milliseconds %s %u\n"
             "sentinel failover-timeout %s %d\n"
             "%s%s\n",
             WATCHED_NAME, w->port[0], WATCHED_NAME,
             w->down_ms > 0 ? w->down_ms : DOWN_MS, WATCHED_NAME, FAILOVER_MS,
             w->sentinel_password != NULL ? "sentinel sentinel-pass " : "",
             w->sentinel_password != NULL ? w->sentinel_password : "");
    for (size_t i = 0; i < WATCHED_SENTINELS; i++) {
        w->sentinel[i] = (struct server){.certificates = w->certificates,
                                         .password = w->sentinel_password,
                                         .sentinel = text};
        w->sentinel_port[i] = start(&w->sentinel[i]);
    }
}

/* The value of a field of SENTINEL MASTER, -1 without one. */
static int field_of(const struct server *sentinel, const char *field)
{
    redisReply *reply =
        server_run(sentinel, "SENTINEL MASTER %s", WATCHED_NAME);
    int value = -1;

    for (size_t i = 0;
         reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2)
        if (strcmp(reply->element[i]->str, field) == 0)
            value = atoi(reply->element[i + 1]->str);
    freeReplyObject(reply);
    return value;
}

static bool knows_all(const struct server *sentinel)
{
    return field_of(sentinel, "num-slaves") == WATCHED_SERVERS - 1 &&
           field_of(sentinel, "num-other-sentinels") == WATCHED_SENTINELS - 1;
}

void watched_start(struct watched *w)
{
    start_servers(w);
    for (size_t i = 1; i < WATCHED_SERVERS; i++)
        WAIT_FOR(server_follows(&w->server[i]));
    start_sentinels(w);
    for (size_t i = 0; i < WATCHED_SENTINELS; i++)
        WAIT_FOR(knows_all(&w->sentinel[i]));
    snprintf(w->uri, sizeof(w->uri),
             "%s+sentinel://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u/%s%s%s",
             w->certificates != NULL ? "rediss" : "redis", w->sentinel_port[0],
             w->sentinel_port[1], w->sentinel_port[2], WATCHED_NAME,
             w->sentinel_password != NULL ? "?sentinel_password=" : "",
             w->sentinel_password != NULL ? w->sentinel_password : "");
}

void watched_stop(struct watched *w)
{
    for (size_t i = 0; i < WATCHED_SENTINELS; i++)
        server_stop(&w->sentinel[i]);
    if (w->has_proxy)
        proxy_stop(&w->proxy);
    for (size_t i = 0; i < WATCHED_SERVERS; i++)
        server_stop(&w->server[i]);
}

/* The port of the primary by a sentinel, 0 if it runs no longer. */
static unsigned port_by(const struct server *sentinel)
{
    redisReply *reply;
    unsigned port = 0;

    if (sentinel->pid == 0)
        return 0;
    reply = server_run(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME %s",
                       WATCHED_NAME);
    if (reply->type == REDIS_REPLY_ARRAY)
        port = (unsigned)atoi(reply->element[1]->str);
    freeReplyObject(reply);
    return port;
}

static bool is_primary(const struct watched *w, size_t i)
{
    char role[16];
    unsigned votes = 0;

    for (size_t s = 0; s < WATCHED_SENTINELS; s++)
        votes += port_by(&w->sentinel[s]) == w->port[i];
    if (votes < 2)
        return false;
    server_info(&w->server[i], "role", role, sizeof(role));
    return strncmp(role, "master", 6) == 0;
}

static size_t find_primary(const struct watched *w, size_t not )
{
    for (size_t i = 0; i < WATCHED_SERVERS; i++)
        if (i != not &&w->server[i].pid != 0 && is_primary(w, i))
            return i;
    return WATCHED_SERVERS;
}

size_t watched_primary(const struct watched *w, size_t not )
{
    size_t found;

    WAIT_FOR((found = find_primary(w, not )) < WATCHED_SERVERS);
    return found;
}

/* Sentinels refuse a failover until they have finished the one before, and on a
 * busy machine they may give one up. */
size_t watched_fail_over(const struct watched *w, size_t from)
{
    enum { ATTEMPT_MS = 5 * FAILOVER_MS };
    size_t found = WATCHED_SERVERS;

    while (found == WATCHED_SERVERS) {
        uint64_t again_ms = shed_now_ms() + ATTEMPT_MS;
        redisReply *reply =
            server_run(&w->sentinel[0], "SENTINEL FAILOVER %s", WATCHED_NAME);
        bool is_begun = reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        do
            usleep(5000);
        while ((found = find_primary(w, from)) == WATCHED_SERVERS && is_begun &&
               shed_now_ms() < again_ms);
    }
    return found;
}
