/* Questions are answered in the order in which they were asked, whichever
 * servers they went to. */
#include "cli/redis.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/list.h"
#include "cli/server.h"
#include "wire/address.h"
#include "wire/script.h"

/* A command follows a redirection at once, and waits before each further one.
 */
#define ROUND_MS 50

/* The number of no server of a cluster: it has the slots that nobody has. */
#define NOBODY 0

/* A command that has not been answered. */
struct question {
    struct shed_node node;
    size_t server;          /* that is to have the key */
    size_t asked;           /* the same, or one to which it sent the question */
    struct shed_args *args; /* to be repeated elsewhere */
    struct shed_reply *answer;
};

struct cli_redis {
    const struct cli_call *call;
    struct shed_address *address; /* of the URI */
    struct shed_cluster_map map;  /* if it is no cluster, server 0 has all */
    struct cli_server *server[CLI_REDIS_MAX]; /* NULL: not used yet */
    size_t chosen;
    const struct cli_server *heard; /* whose answer was the last; NULL: none */
    struct shed_list questions;     /* in the order in which they were asked */
};

/* The oldest question. NULL: all have been answered. */
static struct question *pop_question(struct cli_redis *redis)
{
    struct shed_node *node = shed_list_pop(&redis->questions);

    return node != NULL ? shed_container_of(node, struct question, node) : NULL;
}

static void drop_question(struct question *q)
{
    free(q->args);
    shed_reply_free(q->answer);
    free(q);
}

/* ---------------------------------------------------------------- servers */

static struct cli_server *create_server(const struct cli_redis *redis, size_t i)
{
    const struct shed_place *at =
        cli_redis_is_cluster(redis) ? &redis->map.node[i].at : NULL;

    return cli_server_create(redis->call, redis->address, at);
}

static struct cli_server *server_at(struct cli_redis *redis, size_t i)
{
    if (redis->server[i] == NULL)
        redis->server[i] = create_server(redis, i);
    return redis->server[i];
}

struct cli_server *cli_redis_server(struct cli_redis *redis)
{
    return server_at(redis, redis->chosen);
}

struct cli_server *cli_redis_connect(const struct cli_redis *redis)
{
    return create_server(redis, redis->chosen);
}

/* Learn the map from a server. Returns: false, and err says why. */
static bool learn_from(struct cli_redis *redis, struct cli_server *server,
                       struct shed_error *err)
{
    struct shed_reply *reply;
    bool is_valid;

    reply = cli_server_ask(server, err, "CLUSTER SLOTS", "CLUSTER SLOTS");
    if (reply == NULL)
        return false;
    is_valid = shed_cluster_map_take(&redis->map, reply, server->address->host,
                                     shed_now_ms(), NULL, NULL)
                   .is_valid;
    if (!is_valid)
        (void)shed_fail(err, SHED_EREDIS,
                        "Redis %s knows no slots of a cluster, or not where "
                        "their nodes are",
                        server->address->text);
    shed_reply_free(reply);
    return is_valid;
}

/* Learn the map from the first that knows it: of its own nodes, then of the
 * seeds. */
void cli_redis_follow(struct cli_redis *redis)
{
    const struct shed_address *cluster = redis->address;
    struct shed_error err = {.code = SHED_OK};

    if (!cli_redis_is_cluster(redis))
        return;
    for (size_t i = 0; cli_redis_next(redis, &i); i++)
        if (learn_from(redis, server_at(redis, i), &err))
            return;
    for (size_t i = 0; i < cluster->count; i++) {
        size_t at = shed_cluster_map_find(&redis->map, &cluster->seeds[i],
                                          shed_now_ms());
        if (at < CLI_REDIS_MAX && learn_from(redis, server_at(redis, at), &err))
            return;
    }
    cli_fail_error(redis->call, &err);
}

void cli_redis_open(struct cli_call *call)
{
    const struct shed_place nowhere = {.host = ""};
    struct cli_redis *redis = cli_alloc(1, sizeof(*redis));

    call->redis = redis;
    redis->call = call;
    redis->address = cli_server_address(call);
    shed_cluster_map_init(&redis->map, &nowhere, shed_now_ms());
    cli_redis_follow(redis);
    (void)cli_redis_next(redis, &redis->chosen);
}

void cli_redis_close(struct cli_redis *redis)
{
    struct question *q;

    if (redis == NULL)
        return;
    for (size_t i = 0; i < CLI_REDIS_MAX; i++)
        cli_server_destroy(redis->server[i]);
    while ((q = pop_question(redis)) != NULL)
        drop_question(q);
    shed_address_unref(redis->address);
    free(redis);
}

const char *cli_redis_name(const struct cli_redis *redis)
{
    return redis->address->text;
}

bool cli_redis_is_cluster(const struct cli_redis *redis)
{
    return redis->address->seeds != NULL;
}

static size_t owner_of(const struct cli_redis *redis, size_t slot)
{
    return atomic_load(&redis->map.owner[slot]);
}

void cli_redis_about(struct cli_redis *redis, struct shed_bytes key)
{
    redis->chosen = owner_of(redis, shed_hash_slot(key));
    if (redis->chosen == NOBODY && cli_redis_is_cluster(redis))
        cli_fail(redis->call, CLI_FAILED,
                 "no node of the cluster has the slot of the key %.*s: see "
                 "'snowshed doctor'",
                 (int)key.size, (const char *)key.data);
}

bool cli_redis_next(struct cli_redis *redis, size_t *i)
{
    if (*i == NOBODY && cli_redis_is_cluster(redis))
        ++*i;
    while (*i < CLI_REDIS_MAX && redis->map.node[*i].slots == 0)
        ++*i;
    if (*i >= CLI_REDIS_MAX)
        return false;
    redis->chosen = *i;
    return true;
}

bool cli_redis_has(const struct cli_redis *redis, struct shed_bytes key)
{
    return owner_of(redis, shed_hash_slot(key)) == redis->chosen;
}

size_t cli_redis_slots(const struct cli_redis *redis)
{
    return redis->map.node[redis->chosen].slots;
}

/* ----------------------------------------------------------------- asking */

void cli_redis_send_args(struct cli_redis *redis, const struct shed_args *args)
{
    struct question *q = cli_alloc(1, sizeof(*q));
    struct shed_error err;

    q->server = q->asked = redis->chosen;
    q->args = shed_script_keep(args);
    if (q->args == NULL)
        cli_fail_nomem();
    shed_list_append(&redis->questions, &q->node);
    if (!cli_server_send(cli_redis_server(redis), args, &q->answer, &err))
        cli_fail_error(redis->call, &err);
}

static void send_words(struct cli_redis *redis, const char *format,
                       va_list list)
{
    struct shed_args args = {0};

    cli_words(&args, format, list);
    cli_redis_send_args(redis, &args);
}

void cli_redis_send(struct cli_redis *redis, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    send_words(redis, format, list);
    va_end(list);
}

void cli_redis_send_key(struct cli_redis *redis, const char *words,
                        struct shed_bytes key)
{
    cli_redis_about(redis, key);
    cli_redis_send(redis, words, (int)key.size, (const char *)key.data);
}

struct shed_reply *cli_redis_ask(struct cli_redis *redis, const char *format,
                                 ...)
{
    va_list list;

    va_start(list, format);
    send_words(redis, format, list);
    va_end(list);
    return cli_redis_hear(redis, NULL);
}

/* ---------------------------------------------------------------- hearing */

/* Whether an error sends its question elsewhere, or asks for patience, as for
 * several keys in a slot that is being moved. */
static bool is_to_be_repeated(const struct cli_redis *redis,
                              const struct shed_reply *reply)
{
    return cli_redis_is_cluster(redis) && shed_reply_is_elsewhere(reply) &&
           !shed_reply_begins(reply, "CLUSTERDOWN");
}

/* Ask a question where its answer sends it, or again. Returns: false: it is
 * sent nowhere. */
static bool repeat(struct cli_redis *redis, struct question *q)
{
    const char *host = server_at(redis, q->asked)->address->host;
    struct shed_redirect to = {.is_ask = false};
    size_t at = q->server;
    struct cli_server *server;
    struct shed_error err;

    if (shed_reply_redirect(q->answer, host, &to))
        at = shed_cluster_map_find(&redis->map, &to.to, shed_now_ms());
    if (at == CLI_REDIS_MAX)
        return false;
    server = server_at(redis, at);
    if (to.is_ask)
        shed_reply_free(cli_server_ask(server, &err, NULL, "ASKING"));
    else if (at != q->server && !learn_from(redis, server, &err))
        cli_fail_error(redis->call, &err);
    q->server = to.is_ask ? q->server : at;
    q->asked = at;
    shed_reply_free(q->answer);
    q->answer = NULL;
    if (!cli_server_send(server, q->args, &q->answer, &err))
        cli_fail_error(redis->call, &err);
    return true;
}

struct shed_reply *cli_redis_hear(struct cli_redis *redis, const char *what)
{
    uint64_t end_ms = shed_deadline_ms(shed_now_ms(), redis->call->timeout_ms);
    struct question *q = pop_question(redis);
    struct shed_reply *reply;
    struct shed_error err;

    for (int i = 0;; i++) {
        redis->heard = server_at(redis, q->asked);
        if (!cli_server_await(server_at(redis, q->asked), &q->answer, &err))
            cli_fail_error(redis->call, &err);
        if (!is_to_be_repeated(redis, q->answer) || shed_now_ms() >= end_ms)
            break;
        if (i > 0)
            shed_sleep_until(shed_now_ms() + ROUND_MS);
        if (!repeat(redis, q))
            break;
    }
    reply = q->answer;
    q->answer = NULL;
    drop_question(q);
    return what != NULL ? cli_redis_check(redis, reply, what) : reply;
}

struct shed_reply *cli_redis_hear_key(struct cli_redis *redis, const char *what,
                                      bool passes_denied)
{
    struct shed_reply *reply = cli_redis_hear(redis, NULL);

    return shed_reply_begins(reply, "WRONGTYPE") ||
                   (passes_denied && cli_redis_is_denied(reply))
               ? reply
               : cli_redis_check(redis, reply, what);
}

long long cli_redis_hear_integer(struct cli_redis *redis, const char *what)
{
    struct shed_reply *reply = cli_redis_hear(redis, what);
    long long number = shed_reply_integer(reply);

    shed_reply_free(reply);
    return number;
}

uint64_t cli_redis_hear_clock_ms(struct cli_redis *redis)
{
    struct shed_reply *time = cli_redis_hear(redis, "TIME");
    uint64_t ms = shed_reply_time_ms(time);

    shed_reply_free(time);
    return ms;
}

struct shed_reply *cli_redis_check(struct cli_redis *redis,
                                   struct shed_reply *reply, const char *what)
{
    const char *error = shed_reply_error(reply), *advice;

    if (error == NULL)
        return reply;
    advice =
        is_to_be_repeated(redis, reply)
            ? ": the cluster's nodes disagree, or the slot is being moved; "
              "--timeout waits longer"
            : cli_server_advice(error);
    cli_fail(redis->call, CLI_FAILED, "Redis %s refuses %s: %s%s",
             redis->heard->address->text, what, error, advice);
}

bool cli_redis_is_denied(const struct shed_reply *reply)
{
    return shed_reply_error(reply) != NULL &&
           shed_reply_code(reply) == SHED_EDENIED;
}

struct shed_bytes cli_redis_bytes(const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    return shed_bytes(bytes, size);
}

struct cli_text cli_field(const char *text, const char *name, char is,
                          const char *ends)
{
    size_t size = strlen(name), line;

    for (const char *at = text; *at != '\0'; at += strspn(at, ends)) {
        line = strcspn(at, ends);
        if (line > size && cli_begins(at, name) && at[size] == is)
            return cli_format("%.*s", (int)(line - size) - 1, at + size + 1);
        at += line;
    }
    return (struct cli_text){""};
}

struct cli_text cli_info(const struct shed_reply *info, const char *name)
{
    const char *text = cli_redis_bytes(info).data;

    return cli_field(text != NULL ? text : "", name, ':', "\r\n");
}

long long cli_info_number(const struct shed_reply *info, const char *name)
{
    return strtoll(cli_info(info, name).at, NULL, 10);
}
