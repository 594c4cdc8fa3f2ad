/* Blocking connections by hiredis. The only file of the tool that includes
 * it. */
#include "cli/redis.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "redis/address.h"

#define MS_PER_S 1000
#define US_PER_MS 1000
#define TOO_MANY "max number of clients"

struct cli_redis {
    const struct cli_call *call;
    struct shed_address *address;
    redisContext *context;
};

static struct timeval timeval_of(uint64_t ms)
{
    return (struct timeval){.tv_sec = (time_t)(ms / MS_PER_S),
                            .tv_usec =
                                (suseconds_t)(ms % MS_PER_S * US_PER_MS)};
}

/* Read the error with which the server closed the connection, as it does when
 * it has too many. It can be readable after a write has failed. */
static void read_last_words(const redisContext *c, char *text, size_t size)
{
    ssize_t got = recv(c->fd, text, size - 1, MSG_DONTWAIT);

    text[got > 0 ? (size_t)got : 0] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    if (text[0] != '-')
        text[0] = '\0';
}

static const char *advice_for(const char *error)
{
    static const struct {
        const char *word, *advice;
    } table[] = {
        {TOO_MANY, ": raise maxclients, or stop some of the clients"},
        {"NOAUTH", ": give user and password in the URI"},
        {"NOPERM", ": ACL SETUSER grants it"},
        {"LOADING", ": wait until it has its data"},
        {"BUSY",
         ": a script has been running for too long; SCRIPT KILL ends it"},
        {"MOVED", ": it is a node of a cluster; ask the one that has the key"},
        {"MISCONF", ": see 'snowshed doctor'"},
        {"OOM", ": see 'snowshed doctor'"},
        {"NOREPLICAS", ": see 'snowshed doctor'"}};

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (strstr(error, table[i].word) != NULL)
            return table[i].advice;
    return "";
}

static _Noreturn void fail_closed(const struct cli_redis *redis)
{
    char words[256];

    read_last_words(redis->context, words, sizeof(words));
    if (words[0] != '\0')
        cli_fail(redis->call, CLI_FAILED,
                 "Redis %s closed the connection: %s%s", redis->address->text,
                 words + 1, advice_for(words));
    cli_fail(redis->call, CLI_FAILED,
             "Redis %s closed the connection: was it stopped, or this client "
             "killed?",
             redis->address->text);
}

/* Report why the connection failed, without quoting what was sent. */
static _Noreturn void fail(const struct cli_redis *redis)
{
    const redisContext *c = redis->context;

    if (c->err == REDIS_ERR_IO && (errno == EAGAIN || errno == ETIMEDOUT))
        cli_fail(redis->call, CLI_FAILED,
                 "Redis %s did not answer within %llu ms: is it stopped, "
                 "paused or busy? --timeout waits longer",
                 redis->address->text,
                 (unsigned long long)redis->call->timeout_ms);
    if (c->err == REDIS_ERR_EOF ||
        (c->err == REDIS_ERR_IO && (errno == EPIPE || errno == ECONNRESET)))
        fail_closed(redis);
    cli_fail(redis->call, CLI_FAILED,
             "Redis %s cannot be reached: %s: is it running there?",
             redis->address->text, c->errstr);
}

static void connect_to(struct cli_redis *redis)
{
    const struct shed_address *a = redis->address;
    struct timeval limit = timeval_of(redis->call->timeout_ms);

    if (a->host != NULL)
        redis->context = redisConnectWithTimeout(
            a->host, (int)strtol(a->port, NULL, 10), limit);
    else
        redis->context = redisConnectUnixWithTimeout(
            ((const struct sockaddr_un *)(const void *)&a->name)->sun_path,
            limit);
    if (redis->context == NULL)
        cli_fail(redis->call, CLI_FAILED, "out of memory for a connection");
    if (redis->context->err != 0)
        fail(redis);
    if (redisSetTimeout(redis->context, limit) != REDIS_OK)
        fail(redis);
}

/* An error can quote what was sent, here the password: only its code is shown.
 */
static void check_login(struct cli_redis *redis, struct shed_reply *reply)
{
    const char *error = shed_reply_error(reply);

    if (error != NULL && strstr(error, TOO_MANY) != NULL)
        (void)cli_redis_check(redis, reply, "the connection");
    if (error != NULL)
        cli_fail(redis->call, CLI_FAILED,
                 "Redis %s refuses the login: %.*s: check user and password of "
                 "the URI",
                 redis->address->text, (int)strcspn(error, " "), error);
    shed_reply_free(reply);
}

static void set_up(struct cli_redis *redis)
{
    const struct shed_address *a = redis->address;
    struct shed_args args = {0};

    if (a->password != NULL) {
        shed_args_add_text(&args, "AUTH");
        if (a->user != NULL)
            shed_args_add_text(&args, a->user);
        shed_args_add_text(&args, a->password);
        check_login(redis, cli_redis_call(redis, &args));
    }
    if (a->db[0] != '\0') {
        args = (struct shed_args){0};
        shed_args_add_text(&args, "SELECT");
        shed_args_add_text(&args, a->db);
        shed_reply_free(cli_redis_check(redis, cli_redis_call(redis, &args),
                                        "to select the database"));
    }
}

struct cli_redis *cli_redis_open(const struct cli_call *call, const char *uri)
{
    struct cli_redis *redis = cli_alloc(1, sizeof(*redis));
    struct shed_error err;

    redis->call = call;
    if (uri == NULL)
        uri = call->redis;
    if (uri == NULL)
        cli_fail(call, CLI_USAGE,
                 "no Redis given: use --redis URI, or set SNOWSHED_REDIS");
    if (shed_address_create(uri, &redis->address, &err) != SHED_OK)
        cli_fail(call, err.code == SHED_EINVAL ? CLI_USAGE : CLI_FAILED,
                 "%s; examples: redis://host:6379/0, unix:/run/redis.sock",
                 err.reason);
    if (redis->address->is_tls)
        cli_fail(call, CLI_USAGE,
                 "the tool does not speak TLS: use redis:// or unix:");
    connect_to(redis);
    set_up(redis);
    return redis;
}

void cli_redis_close(struct cli_redis *redis)
{
    if (redis == NULL)
        return;
    redisFree(redis->context);
    shed_address_destroy(redis->address);
    free(redis);
}

const char *cli_redis_name(const struct cli_redis *redis)
{
    return redis->address->text;
}

/* ---------------------------------------------------------------- talking */

void cli_redis_send(struct cli_redis *redis, const struct shed_args *args)
{
    /* hiredis does not write to the arguments */
    if (redisAppendCommandArgv(redis->context, args->count,
                               (const char **)(uintptr_t)args->at,
                               args->size) != REDIS_OK)
        fail(redis);
}

static void add_words(struct shed_args *args, const char *words)
{
    for (const char *at = words; *at != '\0';) {
        size_t size = strcspn(at, " ");
        shed_args_add(args, at, size);
        at += size + (at[size] == ' ');
    }
}

void cli_redis_send_words(struct cli_redis *redis, const char *words)
{
    struct shed_args args = {0};

    add_words(&args, words);
    cli_redis_send(redis, &args);
}

struct shed_reply *cli_redis_hear(struct cli_redis *redis)
{
    void *reply = NULL;

    errno = 0;
    if (redisGetReply(redis->context, &reply) != REDIS_OK || reply == NULL)
        fail(redis);
    return reply;
}

struct shed_reply *cli_redis_hear_for(struct cli_redis *redis, uint64_t ms)
{
    struct pollfd ready = {.fd = redis->context->fd, .events = POLLIN};
    void *reply = NULL;
    uint64_t end_ms = shed_deadline_ms(shed_now_ms(), ms);
    int is_sent = 0;

    while (!is_sent)
        if (redisBufferWrite(redis->context, &is_sent) != REDIS_OK)
            fail(redis);
    for (;;) {
        uint64_t left_ms = shed_left_ms(end_ms, shed_now_ms());
        if (redisGetReplyFromReader(redis->context, &reply) != REDIS_OK)
            fail(redis);
        if (reply != NULL)
            return reply;
        if (poll(&ready, 1, (int)left_ms) <= 0)
            return NULL; /* the time is over, or a signal arrived */
        if (redisBufferRead(redis->context) != REDIS_OK)
            fail(redis);
    }
}

struct shed_reply *cli_redis_call(struct cli_redis *redis,
                                  const struct shed_args *args)
{
    cli_redis_send(redis, args);
    return cli_redis_hear(redis);
}

struct shed_reply *cli_redis_ask(struct cli_redis *redis, const char *words)
{
    cli_redis_send_words(redis, words);
    return cli_redis_hear(redis);
}

struct shed_reply *cli_redis_check(struct cli_redis *redis,
                                   struct shed_reply *reply, const char *what)
{
    const char *error = shed_reply_error(reply);

    if (error == NULL)
        return reply;
    cli_fail(redis->call, CLI_FAILED, "Redis %s refuses %s: %s%s",
             redis->address->text, what, error,
             shed_reply_is_no_primary(reply)
                 ? ": it is a replica; ask the primary"
                 : advice_for(error));
}

struct shed_reply *cli_redis_check_key(struct cli_redis *redis,
                                       struct shed_reply *reply,
                                       const char *what)
{
    return shed_reply_begins(reply, "WRONGTYPE")
               ? reply
               : cli_redis_check(redis, reply, what);
}

bool cli_redis_is_denied(const struct shed_reply *reply)
{
    return shed_reply_error(reply) != NULL &&
           shed_reply_code(reply) == SHED_EDENIED;
}

uint64_t cli_redis_clock_ms(const struct shed_reply *time)
{
    long long s = cli_redis_number(shed_reply_at(time, 0));
    long long us = cli_redis_number(shed_reply_at(time, 1));

    return (uint64_t)s * MS_PER_S + (uint64_t)us / US_PER_MS;
}

uint64_t cli_redis_hear_clock_ms(struct cli_redis *redis)
{
    struct shed_reply *time =
        cli_redis_check(redis, cli_redis_hear(redis), "TIME");
    uint64_t ms = cli_redis_clock_ms(time);

    shed_reply_free(time);
    return ms;
}

long long cli_redis_number(const struct shed_reply *reply)
{
    size_t size = 0;
    const char *text = shed_reply_bytes(reply, &size);

    /* hiredis ends every string with a NUL */
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

const char *cli_info_field(const struct shed_reply *info, const char *name,
                           char text[CLI_INFO_BYTES])
{
    size_t size = strlen(name), all = 0, n;

    text[0] = '\0';
    for (const char *at = shed_reply_bytes(info, &all); at != NULL;) {
        if (strncmp(at, name, size) == 0 && at[size] == ':') {
            at += size + 1;
            n = strcspn(at, "\r\n");
            (void)snprintf(text, CLI_INFO_BYTES, "%.*s",
                           n < CLI_INFO_BYTES ? (int)n : CLI_INFO_BYTES - 1,
                           at);
            break;
        }
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    return text;
}

long long cli_info_number(const struct shed_reply *info, const char *name)
{
    char text[CLI_INFO_BYTES];

    return strtoll(cli_info_field(info, name, text), NULL, 10);
}
