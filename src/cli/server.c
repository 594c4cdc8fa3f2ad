/* Commands are queued until an answer is waited for, and then sent at once. */
#include "cli/server.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/text.h"
#include "wire/address.h"
#include "wire/setup.h"
#include "redis/lookup.h"

const char *cli_server_advice(const char *error)
{
    static const struct {
        const char *word, *advice;
    } table[] = {
        {"max number of clients",
         ": raise maxclients, or stop some of the clients"},
        {"NOAUTH", ": give user and password in the URI"},
        {"WRONGPASS", ": check user and password of the URI"},
        {"invalid password", ": check the password of the URI"},
        {"AUTH", ": check user and password of the URI"},
        {"NOPERM", ": ACL SETUSER grants it"},
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

static void fail_silent(const struct cli_server *s, struct shed_error *err)
{
    (void)shed_fail(
        err, SHED_ETIMEDOUT,
        "Redis %s did not answer within %llu ms: is it stopped, paused or "
        "busy? --timeout waits longer",
        s->address->text, (unsigned long long)s->call->timeout_ms);
}

/* The server may have closed the connection with an error, as it does when it
 * has too many. That can be readable after a write has failed. Returns: false.
 */
static bool fail_lost(const struct cli_server *s, struct shed_error *err)
{
    const struct shed_error why = *err;
    char words[128];
    ssize_t got = recv(s->wire.fd, words, sizeof(words) - 1, MSG_DONTWAIT);

    words[got > 0 ? (size_t)got : 0] = '\0';
    words[strcspn(words, "\r\n")] = '\0';
    if (words[0] == '-')
        (void)shed_fail(err, SHED_EREDIS,
                        "Redis %s closed the connection: %s%s",
                        s->address->text, words + 1, cli_server_advice(words));
    else
        (void)shed_fail(err, SHED_EREDIS, "%s (%s)%s", why.reason,
                        s->address->text,
                        shed_wire_is_in_handshake(&s->wire)
                            ? "; --cacert names its authority"
                            : ": was it stopped, or this client killed?");
    return false;
}

struct cli_server *cli_server_create(const struct cli_call *call,
                                     struct shed_address *address)
{
    struct cli_server *s = cli_alloc(1, sizeof(*s));

    s->call = call;
    s->address = address;
    shed_wire_init(&s->wire);
    return s;
}

void cli_server_destroy(struct cli_server *s)
{
    if (s == NULL)
        return;
    shed_wire_close(&s->wire);
    shed_address_unref(s->address);
    free(s);
}

static uint64_t limit_ms(const struct cli_server *s)
{
    return shed_deadline_ms(shed_now_ms(), s->call->timeout_ms);
}

/* ---------------------------------------------------------------- hearing */

bool cli_server_hear(struct cli_server *s, uint64_t end_ms,
                     struct shed_reply **reply, struct shed_error *err)
{
    *reply = NULL;
    for (;;) {
        enum shed_wire_io next = shed_wire_next(&s->wire, reply, err);
        short events = POLLIN;
        if (next == SHED_WIRE_DONE)
            return true;
        if (next == SHED_WIRE_LOST ||
            shed_wire_flush(&s->wire, err) == SHED_WIRE_LOST)
            return fail_lost(s, err);
        if (shed_wire_is_unsent(&s->wire))
            events |= POLLOUT;
        if (shed_wire_wait(&s->wire, events, end_ms) == 0)
            return true;
        if (shed_wire_fill(&s->wire, false, err) == SHED_WIRE_LOST)
            return fail_lost(s, err);
    }
}

struct shed_reply *cli_server_answer(struct cli_server *s,
                                     struct shed_error *err)
{
    struct shed_reply *reply;

    if (cli_server_hear(s, limit_ms(s), &reply, err) && reply == NULL)
        fail_silent(s, err);
    if (reply == NULL) /* one that is late would answer the next command */
        shed_wire_close(&s->wire);
    return reply;
}

static struct shed_reply *carry_out(struct cli_server *s,
                                    const struct shed_args *args,
                                    struct shed_error *err)
{
    return shed_buffer_append(&s->wire.out, args, NULL, err) == SHED_OK
               ? cli_server_answer(s, err)
               : NULL;
}

/* Returns: the reply to what; NULL if that is an error, which err tells, or if
 * there is none, and err tells that already. */
static struct shed_reply *accept_reply(const struct cli_server *s,
                                       struct shed_reply *reply,
                                       const char *what, struct shed_error *err)
{
    const char *error = shed_reply_error(reply);

    if (error == NULL)
        return reply;
    (void)shed_fail(err, SHED_EREDIS, "Redis %s refuses %s: %s%s",
                    s->address->text, what, error, cli_server_advice(error));
    shed_reply_free(reply);
    return NULL;
}

/* ------------------------------------------------------------- connecting */

static bool connect_to_one(struct cli_server *s, struct shed_error *err)
{
    struct shed_error why;

    if (shed_wire_open(&s->wire, s->address, &why) == SHED_OK) {
        s->wire.parser.takes_maps = true;
        if (shed_wire_wait(&s->wire, POLLOUT, limit_ms(s)) == 0) {
            shed_address_refuse(s->address);
            fail_silent(s, err);
            return false;
        }
        if (shed_wire_connected(&s->wire, s->address, &why) == SHED_OK)
            return true;
    }
    (void)shed_fail(err, SHED_EREDIS, "%s: is it running there?", why.reason);
    return false;
}

static bool connect_to(struct cli_server *s, struct shed_error *err)
{
    /* ask the sentinels where the primary is, or look a node's name up */
    if (s->address->sentinels != NULL || !shed_address_is_known(s->address))
        shed_lookup_wait(s->address);
    if (connect_to_one(s, err))
        return true;
    if (s->address->host == NULL || !shed_address_is_refused(s->address))
        return false;
    shed_lookup_wait(s->address);
    if (shed_address_is_refused(s->address)) /* it has no other address */
        return false;
    shed_wire_close(&s->wire);
    return connect_to_one(s, err);
}

/* Log in and select the database, as connections of the library do. */
static bool set_up(struct cli_server *s, struct shed_error *err)
{
    struct shed_setup setup;
    bool is_done = true;

    shed_setup_begin(&setup, s->address);
    for (size_t i = 0; i < setup.count && is_done; i++) {
        const char *name = setup.command[i].at[0];
        bool is_login = strcmp(name, "AUTH") == 0;
        struct shed_reply *reply;
        if (!is_login && strcmp(name, "SELECT") != 0)
            continue;
        reply = accept_reply(s, carry_out(s, &setup.command[i], err),
                             is_login ? "the login" : name, err);
        is_done = reply != NULL;
        shed_reply_free(reply);
    }
    return is_done;
}

bool cli_server_open(struct cli_server *s, struct shed_error *err)
{
    if (s->wire.fd >= 0)
        return true;
    if (connect_to(s, err) && set_up(s, err))
        return true;
    shed_wire_close(&s->wire);
    return false;
}

/* ----------------------------------------------------------------- asking */

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
    struct shed_reply *reply;
    va_list list;

    va_start(list, format);
    cli_words(&args, format, list);
    va_end(list);
    reply = carry_out(s, &args, err);
    return what != NULL ? accept_reply(s, reply, what, err) : reply;
}
