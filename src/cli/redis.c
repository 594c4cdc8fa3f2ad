/* Commands are queued until an answer is waited for, and then sent at once. */
#include "cli/redis.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "redis/address.h"
#include "redis/dial.h"
#include "redis/lookup.h"

#define TOO_MANY "max number of clients"

struct cli_redis {
    const struct cli_call *call;
    struct shed_address *address;
    struct shed_wire wire;
};

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

/* The server may have closed the connection with an error, as it does when it
 * has too many. That can be readable after a write has failed. */
static _Noreturn void fail_lost(const struct cli_redis *redis,
                                const struct shed_error *err)
{
    char words[256];
    ssize_t got = recv(redis->wire.fd, words, sizeof(words) - 1, MSG_DONTWAIT);

    words[got > 0 ? (size_t)got : 0] = '\0';
    words[strcspn(words, "\r\n")] = '\0';
    if (words[0] == '-')
        cli_fail(redis->call, CLI_FAILED,
                 "Redis %s closed the connection: %s%s", redis->address->text,
                 words + 1, advice_for(words));
    cli_fail(redis->call, CLI_FAILED, "%s (%s)%s", err->reason,
             redis->address->text,
             shed_wire_is_in_handshake(&redis->wire)
                 ? "; --cacert names its authority"
                 : ": was it stopped, or this client killed?");
}

static _Noreturn void fail_silent(const struct cli_redis *redis)
{
    cli_fail(redis->call, CLI_FAILED,
             "Redis %s did not answer within %llu ms: is it stopped, paused or "
             "busy? --timeout waits longer",
             redis->address->text, (unsigned long long)redis->call->timeout_ms);
}

static uint64_t limit_ms(const struct cli_redis *redis)
{
    return shed_deadline_ms(shed_now_ms(), redis->call->timeout_ms);
}

static void connect_to(struct cli_redis *redis)
{
    struct shed_error err;

    if (redis->address->sentinels != NULL)
        shed_lookup_wait(redis->address); /* ask them where the primary is */
    if (shed_wire_open(&redis->wire, redis->address, &err) != SHED_OK)
        cli_fail(redis->call, CLI_FAILED, "%s: is it running there?",
                 err.reason);
    if (shed_dial_wait(redis->wire.fd, POLLOUT, limit_ms(redis)) == 0)
        fail_silent(redis);
    if (shed_wire_connected(&redis->wire, redis->address, &err) != SHED_OK)
        cli_fail(redis->call, CLI_FAILED, "%s: is it running there?",
                 err.reason);
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

    if (a->password != NULL && a->user != NULL)
        check_login(redis,
                    cli_redis_try(redis, "AUTH %s %s", a->user, a->password));
    else if (a->password != NULL)
        check_login(redis, cli_redis_try(redis, "AUTH %s", a->password));
    if (a->db[0] != '\0')
        shed_reply_free(cli_redis_ask(redis, "SELECT %s", a->db));
}

struct shed_client_options cli_client_options(const struct cli_call *call)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;

    options.connect_timeout_ms = options.command_timeout_ms = call->timeout_ms;
    options.tls_ca = call->tls_ca;
    options.tls_cert = call->tls_cert;
    options.tls_key = call->tls_key;
    return options;
}

struct cli_redis *cli_redis_open(const struct cli_call *call, const char *uri)
{
    const struct shed_client_options options = cli_client_options(call);
    struct cli_redis *redis = cli_alloc(1, sizeof(*redis));
    struct shed_error err;

    redis->call = call;
    shed_wire_init(&redis->wire);
    if (uri == NULL)
        uri = call->redis;
    if (uri == NULL)
        cli_fail(call, CLI_USAGE,
                 "no Redis given: use --redis URI, or set SNOWSHED_REDIS");
    if (shed_address_create(uri, &redis->address, &err) != SHED_OK)
        cli_fail(call, err.code == SHED_EINVAL ? CLI_USAGE : CLI_FAILED,
                 "%s; examples: redis://host:6379/0, unix:/run/redis.sock",
                 err.reason);
    if (shed_address_use_tls(redis->address, &options, &err) != SHED_OK)
        cli_fail(call, err.code == SHED_EINVAL ? CLI_USAGE : CLI_FAILED, "%s",
                 err.reason);
    connect_to(redis);
    set_up(redis);
    return redis;
}

void cli_redis_close(struct cli_redis *redis)
{
    shed_wire_close(&redis->wire);
    shed_address_destroy(redis->address);
    free(redis);
}

const char *cli_redis_name(const struct cli_redis *redis)
{
    return redis->address->text;
}

/* ----------------------------------------------------------------- asking */

void cli_redis_send_args(struct cli_redis *redis, const struct shed_args *args)
{
    struct shed_error err;

    if (shed_buffer_append(&redis->wire.out, args, &err) != SHED_OK)
        cli_fail(redis->call, CLI_FAILED, "%s", err.reason);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void send_list(struct cli_redis *redis, const char *format, va_list list)
{
    struct shed_args args = {0};
    char digits[SHED_ARGS_MAX][SHED_DIGITS];

    for (const char *at = format; *at != '\0';) {
        size_t size = strcspn(at, " "), bytes;
        if (begins(at, "%.*s")) {
            bytes = (size_t)va_arg(list, int);
            shed_args_add(&args, va_arg(list, const char *), bytes);
        } else if (begins(at, "%s")) {
            shed_args_add_text(&args, va_arg(list, const char *));
        } else if (begins(at, "%llu")) {
            shed_args_add_number(&args, digits[args.count],
                                 va_arg(list, unsigned long long));
        } else {
            shed_args_add(&args, at, size);
        }
        at += size + (at[size] == ' ');
    }
    cli_redis_send_args(redis, &args);
}

void cli_redis_send_key(struct cli_redis *redis, const char *words,
                        struct shed_bytes key)
{
    struct shed_args args = {0};

    for (const char *at = words; *at != '\0';) {
        size_t size = strcspn(at, " ");
        if (begins(at, "KEY"))
            shed_args_add(&args, key.data, key.size);
        else
            shed_args_add(&args, at, size);
        at += size + (at[size] == ' ');
    }
    cli_redis_send_args(redis, &args);
}

void cli_redis_send(struct cli_redis *redis, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    send_list(redis, format, list);
    va_end(list);
}

struct shed_reply *cli_redis_try(struct cli_redis *redis, const char *format,
                                 ...)
{
    va_list list;

    va_start(list, format);
    send_list(redis, format, list);
    va_end(list);
    return cli_redis_hear(redis, NULL);
}

struct shed_reply *cli_redis_ask(struct cli_redis *redis, const char *format,
                                 ...)
{
    char what[64];
    va_list list;

    va_start(list, format);
    send_list(redis, format, list);
    va_end(list);
    /* an argument can be a secret */
    (void)snprintf(what, sizeof(what), "%.*s", (int)strcspn(format, "%"),
                   format);
    return cli_redis_hear(redis, what);
}

/* ---------------------------------------------------------------- hearing */

/* Returns: NULL at the end of the time. */
static struct shed_reply *hear_until(struct cli_redis *redis, uint64_t end_ms)
{
    struct shed_wire *wire = &redis->wire;

    for (;;) {
        struct shed_reply *reply = NULL;
        struct shed_error err;
        enum shed_wire_io next = shed_wire_next(wire, &reply, &err), sent;
        short events = POLLIN;
        if (next == SHED_WIRE_DONE)
            return reply;
        sent = shed_wire_flush(wire, &err);
        if (next == SHED_WIRE_LOST || sent == SHED_WIRE_LOST)
            fail_lost(redis, &err);
        if (sent == SHED_WIRE_AGAIN)
            events |= POLLOUT;
        if (shed_dial_wait(wire->fd, events, end_ms) == 0)
            return NULL;
        if (shed_wire_fill(wire, &err) == SHED_WIRE_LOST)
            fail_lost(redis, &err);
    }
}

struct shed_reply *cli_redis_hear_for(struct cli_redis *redis, uint64_t ms)
{
    return hear_until(redis, shed_deadline_ms(shed_now_ms(), ms));
}

struct shed_reply *cli_redis_hear(struct cli_redis *redis, const char *what)
{
    struct shed_reply *reply = hear_until(redis, limit_ms(redis));

    if (reply == NULL)
        fail_silent(redis);
    return what != NULL ? cli_redis_check(redis, reply, what) : reply;
}

struct shed_reply *cli_redis_hear_key(struct cli_redis *redis, const char *what)
{
    struct shed_reply *reply = cli_redis_hear(redis, NULL);

    return shed_reply_begins(reply, "WRONGTYPE")
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
    const char *error = shed_reply_error(reply);

    if (error == NULL)
        return reply;
    cli_fail(redis->call, CLI_FAILED, "Redis %s refuses %s: %s%s",
             redis->address->text, what, error,
             shed_reply_is_no_primary(reply)
                 ? ": it is a replica; ask the primary"
                 : advice_for(error));
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

bool cli_redis_are_same(const struct shed_reply *a, const struct shed_reply *b)
{
    struct shed_bytes x = cli_redis_bytes(a), y = cli_redis_bytes(b);

    return x.data != NULL && y.data != NULL && x.size == y.size &&
           memcmp(x.data, y.data, x.size) == 0;
}

struct cli_text cli_info(const struct shed_reply *info, const char *name)
{
    struct cli_text text = {""};
    size_t size = strlen(name);

    for (const char *at = cli_redis_bytes(info).data; at != NULL;) {
        if (begins(at, name) && at[size] == ':') {
            at += size + 1;
            (void)snprintf(text.at, sizeof(text.at), "%.*s",
                           (int)strcspn(at, "\r\n"), at);
            break;
        }
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    return text;
}

long long cli_info_number(const struct shed_reply *info, const char *name)
{
    return strtoll(cli_info(info, name).at, NULL, 10);
}
