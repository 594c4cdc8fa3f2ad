/* Commands are queued until an answer is waited for, and then sent at once. */
#include "cli/server.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/text.h"
#include "wire/address.h"
#include "redis/lookup.h"

const char *cli_server_advice(const char *error)
{
    static const struct {
        const char *word, *advice;
    } table[] = {
        {"cannot connect", ": is it running there?"},
        {"no connection within", ": is it running there?"},
        {"handshake", "; --cacert names its authority"},
        {"certificate", "; --cacert names its authority"},
        {" within ", ": is it stopped, paused or busy? --timeout waits longer"},
        {"connection lost", ": was it stopped, or this client killed?"},
        {"max number of clients",
         ": raise maxclients, or stop some of the clients"},
        {"NOAUTH", ": give user and password in the URI"},
        {"AUTH", ": check user and password of the URI"},
        {"NOPERM", ": ACL SETUSER grants it"},
        {"READONLY", ": it is a replica; ask the primary"},
        {"MASTERDOWN", ": it is a replica; ask the primary"},
        {"LOADING", ": wait until it has its data"},
        {"BUSY",
         ": a script has been running for too long; SCRIPT KILL ends it"},
        {"MOVED", ": it is a node of a cluster; the URI must begin with "
                  "redis+cluster://"},
        {"cluster support disabled", ": the URI must begin with redis://"},
        {"CLUSTERDOWN", ": see 'snowshed doctor'"},
        {"MISCONF", ": see 'snowshed doctor'"},
        {"OOM", ": see 'snowshed doctor'"},
        {"NOREPLICAS", ": see 'snowshed doctor'"}};

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (strstr(error, table[i].word) != NULL)
            return table[i].advice;
    return "";
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

struct shed_address *cli_server_address(const struct cli_call *call)
{
    const struct shed_client_options options = cli_client_options(call);
    struct shed_address *address;
    struct shed_error err;

    if (call->redis_uri == NULL)
        cli_fail(call, CLI_USAGE,
                 "no Redis given: use --redis URI, or set SNOWSHED_REDIS");
    if (shed_address_create(call->redis_uri, &address, &err) != SHED_OK)
        cli_fail(call, err.code == SHED_EINVAL ? CLI_USAGE : CLI_FAILED,
                 "%s; examples: redis://host:6379/0, unix:/run/redis.sock",
                 err.reason);
    if (shed_address_use_tls(address, &options, &err) != SHED_OK)
        cli_fail_error(call, &err);
    return address;
}

struct cli_server *cli_server_create(const struct cli_call *call,
                                     struct shed_address *address,
                                     const struct shed_place *at)
{
    const struct shed_client_options options = cli_client_options(call);
    struct cli_server *s = cli_alloc(1, sizeof(*s));
    struct shed_error err;

    s->call = call;
    if (at == NULL)
        s->address = shed_address_ref(address);
    else if (shed_address_create_at(address, at, &s->address, &err) != SHED_OK)
        cli_fail_error(call, &err);
    s->address->is_guide = true; /* replicas are looked at, too */
    shed_conn_init(&s->conn, s->address, &options);
    return s;
}

void cli_server_destroy(struct cli_server *s)
{
    if (s == NULL)
        return;
    shed_conn_fini(&s->conn);
    shed_address_unref(s->address);
    free(s);
}

/* The connection has failed. The server may have closed it with an error, as it
 * does when it has too many, which is still to be read. Returns: false. */
static bool fail(struct cli_server *s, struct shed_error *err)
{
    const struct shed_conn_failure *f = &s->conn.failure;
    const char *why = f->error.reason, *error;
    bool is_named = !cli_begins(why, "Redis: ");
    struct shed_reply *last = NULL;
    struct shed_conn_call call;

    /* what follows a refusal is the answer to a later command of the set-up */
    if (s->conn.wire.fd >= 0 && f->error.code != SHED_EDENIED) {
        (void)shed_wire_fill(&s->conn.wire, false, err);
        (void)shed_wire_next(&s->conn.wire, &last, err);
    }
    error = shed_reply_error(last);
    if (error != NULL)
        (void)shed_fail(err, SHED_EREDIS,
                        "Redis %s closed the connection: %s%s",
                        s->address->text, error, cli_server_advice(error));
    else
        (void)shed_fail(
            err, f->is_silent ? SHED_ETIMEDOUT : SHED_EREDIS, "%s%s%s%s",
            is_named ? "" : "Redis ", is_named ? "" : s->address->text,
            is_named ? why : why + strlen("Redis"), cli_server_advice(why));
    shed_reply_free(last);
    shed_conn_close(&s->conn);
    while (shed_conn_pop(&s->conn.queue, &call))
        continue; /* nobody waits for it any longer */
    return false;
}

bool cli_server_hear(struct cli_server *s, uint64_t end_ms,
                     struct shed_reply **push, struct shed_error *err)
{
    struct shed_conn_call call;
    struct shed_reply *reply;

    *push = NULL;
    do {
        switch (shed_conn_next(&s->conn, shed_now_ms(), &reply, &call)) {
        case SHED_CONN_REPLY:
            *(struct shed_reply **)call.owner = reply;
            return true;
        case SHED_CONN_PUSH:
            *push = reply;
            return true;
        case SHED_CONN_NOTHING:
            break;
        }
        if (s->conn.state == SHED_CONN_FAILED)
            return fail(s, err);
    } while (shed_conn_step(&s->conn, end_ms));
    return true;
}

bool cli_server_await(struct cli_server *s, struct shed_reply **answer,
                      struct shed_error *err)
{
    struct shed_reply *push;

    /* the command may have been queued long ago, and is only sent now */
    s->conn.queue.heard_ms = shed_now_ms();
    while (*answer == NULL) {
        if (!cli_server_hear(s, UINT64_MAX, &push, err))
            return false;
        shed_reply_free(push);
    }
    return true;
}

/* ------------------------------------------------------------- connecting */

static bool connect_once(struct cli_server *s, struct shed_error *err)
{
    struct shed_conn *c = &s->conn;

    shed_conn_start(c, 0, shed_now_ms());
    while (c->state == SHED_CONN_CONNECTING || c->state == SHED_CONN_SETTING_UP)
        (void)shed_conn_step(c, UINT64_MAX);
    return c->state == SHED_CONN_OPEN || fail(s, err);
}

bool cli_server_open(struct cli_server *s, struct shed_error *err)
{
    if (s->conn.state == SHED_CONN_OPEN)
        return true;
    /* ask the sentinels where the primary is, or look a node's name up */
    if (s->address->sentinels != NULL || !shed_address_is_known(s->address))
        shed_lookup_wait(s->address);
    if (connect_once(s, err))
        return true;
    if (s->address->host == NULL || !shed_address_is_refused(s->address))
        return false;
    shed_lookup_wait(s->address);
    return !shed_address_is_refused(s->address) && /* it has another one */
           connect_once(s, err);
}

/* ----------------------------------------------------------------- asking */

bool cli_server_send(struct cli_server *s, const struct shed_args *args,
                     struct shed_reply **answer, struct shed_error *err)
{
    const struct shed_conn_call call = {.owner = answer};

    return cli_server_open(s, err) &&
           shed_conn_send_args(&s->conn, args, &call, shed_now_ms(), err) ==
               SHED_OK;
}

void cli_words(struct shed_args *args, const char *format, va_list list)
{
    for (const char *at = format; *at != '\0';) {
        size_t size = strcspn(at, " "), bytes;
        if (cli_begins(at, "%.*s") || cli_begins(at, "KEY")) {
            bytes = (size_t)va_arg(list, int);
            shed_args_add(args, va_arg(list, const char *), bytes);
        } else if (cli_begins(at, "%s")) {
            shed_args_add_text(args, va_arg(list, const char *));
        } else {
            shed_args_add(args, at, size);
        }
        at += size + (at[size] == ' ');
    }
}

struct shed_reply *cli_server_ask(struct cli_server *s, struct shed_error *err,
                                  const char *what, const char *format, ...)
{
    struct shed_args args = {0};
    struct shed_reply *reply = NULL;
    const char *error;
    va_list list;

    va_start(list, format);
    cli_words(&args, format, list);
    va_end(list);
    if (cli_server_send(s, &args, &reply, err))
        (void)cli_server_await(s, &reply, err);
    error = what != NULL ? shed_reply_error(reply) : NULL;
    if (error == NULL)
        return reply;
    (void)shed_fail(err, SHED_EREDIS, "Redis %s refuses %s: %s%s",
                    s->address->text, what, error, cli_server_advice(error));
    shed_reply_free(reply);
    return NULL;
}
