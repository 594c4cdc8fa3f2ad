/* A process's client: a reactor, and the servers that its calls go to.
 * Its invariant: a client that is handed out is complete. */
#include "client/client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/breaker.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash_tag.h"
#include "base/process.h"
#include "base/random.h"
#include "base/stats.h"
#include "base/thread.h"

/* The ranges that snowshed.h states. */
#define TIMEOUT_MAX_MS 600000
#define LINKS_MAX 64

#define US_PER_MS 1000

SHED_CHECK_OPTIONS(shed_client_options);

static enum shed_code check_options(const struct shed_client_options *o,
                                    struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->connect_timeout_ms, 1, TIMEOUT_MAX_MS, "client connect_timeout_ms"},
        {o->command_timeout_ms, 1, TIMEOUT_MAX_MS, "client command_timeout_ms"},
        {o->links, 1, LINKS_MAX, "client links"},
        {o->wait, SHED_WAIT_AUTO, SHED_WAIT_POLL, "client wait"},
    };

    enum shed_code code =
        shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);

    return code == SHED_OK ? shed_breaker_check(&o->breaker, err) : code;
}

/* Draw the id by which leases name this process. */
static enum shed_code draw_process(struct shed_client *client,
                                   struct shed_error *err)
{
    unsigned char bytes[SHED_PROCESS_BYTES / 2];
    enum shed_code code = shed_random_token(bytes, sizeof(bytes), err);

    for (size_t i = 0; code == SHED_OK && i < sizeof(bytes); i++)
        (void)snprintf(client->process + 2 * i, 3, "%02x", bytes[i]);
    return code;
}

/* ------------------------------------------------------- commands and keys */

bool shed_client_is_settled(struct shed_client *client, struct shed_bytes key)
{
    struct shed_server *server = shed_client_hold(client, key);
    bool is_settled = shed_session_is_settled(server->session);

    shed_client_give_back(client, server);
    return is_settled && shed_client_knows_servers(client, NULL);
}

bool shed_client_hears_all(struct shed_client *client, struct shed_bytes key)
{
    const char *prefix = client->tracking_prefix;

    return prefix != NULL && key.size >= strlen(prefix) &&
           memcmp(key.data, prefix, strlen(prefix)) == 0 &&
           shed_session_is_broadcast(shed_client_session(client, key));
}

bool shed_client_settles(struct shed_client *client, struct shed_bytes key,
                         struct shed_post *post)
{
    struct shed_session *session;

    if (!shed_client_knows_servers(client, post))
        return false;
    session = shed_client_session(client, key);
    if (shed_session_is_settled(session))
        return true;
    shed_session_await(session, post);
    return false;
}

struct shed_session *shed_client_session(struct shed_client *client,
                                         struct shed_bytes key)
{
    struct shed_server *server = shed_client_hold(client, key);

    shed_client_give_back(client, server);
    return server->session;
}

bool shed_client_is_one_slot(const struct shed_client *client,
                             struct shed_bytes a, struct shed_bytes b)
{
    return client->address->seeds == NULL ||
           shed_hash_slot(a) == shed_hash_slot(b);
}

void shed_client_hurry(struct shed_client *client, const struct shed_args *args)
{
    struct shed_bytes key = shed_servers_key(args);

    shed_pipe_hurry(shed_session_pipe(shed_client_session(client, key)));
}

void shed_client_send(struct shed_client *client, struct shed_call *call,
                      const struct shed_args *args, shed_pipe_fn *fn, void *arg)
{
    struct shed_bytes key = shed_servers_key(args);

    shed_session_call(shed_client_session(client, key), call, args, fn, arg);
}

void shed_client_doubt(struct shed_client *client, struct shed_bytes key,
                       const struct shed_link_use *use)
{
    struct shed_server *server = shed_client_hold(client, key);

    if (use == NULL)
        shed_session_doubt(server->session);
    else if (use->links == server->links)
        shed_links_doubt(server->links, use);
    shed_client_give_back(client, server);
}

uint64_t shed_client_server_ms(struct shed_client *client,
                               struct shed_bytes key)
{
    struct shed_server *server = shed_client_hold(client, key);
    uint64_t server_ms =
        shed_server_clock_ms(&server->address->clock, shed_now_ms());

    shed_client_give_back(client, server);
    return server_ms;
}

uint64_t shed_client_server_lowest_ms(struct shed_client *client,
                                      struct shed_bytes key, uint64_t at_ms)
{
    struct shed_server *server = shed_client_hold(client, key);
    uint64_t lowest_ms =
        shed_server_clock_lowest_ms(&server->address->clock, at_ms);

    shed_client_give_back(client, server);
    return lowest_ms;
}

/* ----------------------------------------------------------------- reports */

void shed_client_tell_standing(const struct shed_server *server,
                               const struct shed_error *why, uint64_t before_us)
{
    const struct shed_client *client = server->owner;
    struct shed_error as;
    struct shed_event event = {.kind = SHED_EVENT_CONNECTED,
                               .duration_us = before_us,
                               .reason = as.reason};

    shed_error_set(&as, SHED_OK, "%s, as process %s", server->address->text,
                   client->process);
    if (why != NULL) {
        event.kind = SHED_EVENT_DISCONNECTED;
        event.outcome = why->code;
        event.reason = why->reason;
    }
    shed_events_tell(client->events, &event);
}

void shed_client_tell_lack(void *arg, enum shed_lack lack, const char *text)
{
    const struct shed_server *server = arg;
    const struct shed_client *client = server->owner;
    struct shed_error why;
    const struct shed_event event = {.kind = SHED_EVENT_LACKING,
                                     .outcome = SHED_EDENIED,
                                     .reason = why.reason};

    shed_error_set(&why, SHED_EDENIED, "%s, at %s (%s). %s",
                   shed_lacks[lack].command, server->address->text, text,
                   shed_lacks[lack].cost);
    shed_events_tell(client->events, &event);
}

void shed_client_tell_breaker(void *arg, bool is_open, uint64_t after_ms,
                              const char *reason)
{
    const struct shed_server *server = arg;
    const struct shed_client *client = server->owner;
    const struct shed_event event = {.kind = SHED_EVENT_BREAKER,
                                     .outcome = is_open ? SHED_EREDIS : SHED_OK,
                                     .duration_us = after_ms * US_PER_MS,
                                     .reason = reason};

    shed_events_tell(client->events, &event);
}

/* ------------------------------------------------------------------- state */

bool shed_client_is_up(struct shed_client *client)
{
    struct shed_server_status server;

    shed_client_read(client, &server);
    return server.is_up;
}

enum shed_code shed_client_status_read(struct shed_client *client,
                                       struct shed_client_status *out,
                                       size_t size, struct shed_error *err)
{
    struct shed_client_status all = {0};
    struct shed_server_status server;
    enum shed_code code = shed_stats_check("shed_client_status_read", client,
                                           out, size, sizeof(all), err);

    if (code == SHED_OK)
        code = shed_client_check(client, err);
    if (code != SHED_OK)
        return code;
    shed_client_read(client, &server);
    all.is_up = server.is_up;
    all.last = server.last;
    all.since_ms = (shed_now_us() - server.since_us) / US_PER_MS;
    all.breaker = server.gate.breaker.state;
    all.breaker_opened = server.gate.breaker.openings;
    all.breaker_refused = server.gate.refused;
    all.breaker_left_ms = server.gate.breaker.left_ms;
    all.events_left_out = shed_events_left_out(client->events);
    memcpy(out, &all, size);
    return SHED_OK;
}

/* ------------------------------------------------------------ begin and end */

static void close_on_reactor(void *arg)
{
    struct shed_client *client = arg;

    if (client->servers != NULL)
        shed_servers_close(client->servers);
    shed_events_close(client->events);
}

static void open_on_reactor(void *arg)
{
    const struct shed_client *client = arg;

    shed_servers_open(client->servers);
}

static enum shed_code build(struct shed_client *client, const char *uri,
                            const struct shed_client_options *options,
                            struct shed_error *err)
{
    enum shed_code code = shed_address_create(uri, &client->address, err);

    if (code == SHED_OK)
        code = shed_address_use_tls(client->address, options, err);
    if (code == SHED_OK)
        code = draw_process(client, err);
    if (code == SHED_OK) {
        client->listeners = shed_listeners_create();
        if (client->listeners == NULL)
            code = shed_fail_nomem(err, "a client");
    }
    if (code == SHED_OK)
        code = shed_reactor_start(&client->reactor, err);
    if (code == SHED_OK)
        code =
            shed_events_create(client->reactor, options, &client->events, err);
    if (code == SHED_OK)
        code = shed_servers_create(client, options, err);
    if (code == SHED_OK)
        shed_reactor_run(client->reactor, open_on_reactor, client);
    return code;
}

/* Sessions of nodes that are found later need it, too. */
static enum shed_code keep_prefix(struct shed_client *client,
                                  struct shed_client_options *o,
                                  struct shed_error *err)
{
    if (o->tracking_prefix == NULL)
        return SHED_OK;
    client->tracking_prefix = strdup(o->tracking_prefix);
    o->tracking_prefix = client->tracking_prefix;
    return client->tracking_prefix != NULL ? SHED_OK
                                           : shed_fail_nomem(err, "a client");
}

static void destroy(struct shed_client *client)
{
    if (client->pid != shed_process_id()) {
        /* only the parent has the reactor thread, which could close them */
        shed_servers_destroy(client->servers, true);
        shed_reactor_forget(client->reactor);
    } else {
        if (client->reactor != NULL)
            shed_reactor_run(client->reactor, close_on_reactor, client);
        shed_reactor_stop(client->reactor);
        shed_servers_destroy(client->servers, false);
    }
    shed_events_destroy(client->events);
    shed_listeners_destroy(client->listeners);
    shed_address_unref(client->address);
    free(client->tracking_prefix);
    free(client);
}

enum shed_code shed_client_open(const char *uri,
                                const struct shed_client_options *options,
                                struct shed_client **out,
                                struct shed_error *err)
{
    struct shed_client_options o = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_client_open: out is NULL");
    *out = NULL;
    code = shed_thread_check_call(err);
    if (code == SHED_OK)
        code = shed_options_take(&o, sizeof(o), options,
                                 "struct shed_client_options", err);
    if (code == SHED_OK)
        code = check_options(&o, err);
    if (code != SHED_OK)
        return code;
    client = calloc(1, sizeof(*client));
    if (client == NULL)
        return shed_fail_nomem(err, "a client");
    client->pid = shed_process_id();
    atomic_init(&client->holds, 1);
    client->command_timeout_ms = o.command_timeout_ms;
    client->has_channel = o.wait != SHED_WAIT_POLL;
    client->links_limit = (size_t)o.links;
    code = keep_prefix(client, &o, err);
    if (code == SHED_OK)
        code = build(client, uri, &o, err);
    if (code != SHED_OK) {
        destroy(client);
        return code;
    }
    *out = client;
    return SHED_OK;
}

struct shed_client *shed_client_ref(struct shed_client *client)
{
    atomic_fetch_add(&client->holds, 1);
    return client;
}

static void *close_last(void *client)
{
    destroy(client);
    return NULL;
}

void shed_client_unref(struct shed_client *client)
{
    /* a reactor cannot wait for its own end */
    if (client != NULL && atomic_fetch_sub(&client->holds, 1) == 1)
        shed_thread_close(SHED_THREAD_LOOP, close_last, client);
}

void shed_client_close(struct shed_client *client)
{
    shed_client_unref(client);
}

enum shed_code shed_client_check(const struct shed_client *client,
                                 struct shed_error *err)
{
    if (client->pid == shed_process_id())
        return SHED_OK;
    return shed_fail(err, SHED_EFORKED,
                     "the client was opened before fork: open one in the "
                     "child");
}

enum shed_code shed_client_check_call(const struct shed_client *client,
                                      struct shed_error *err)
{
    enum shed_code code = shed_client_check(client, err);

    return code == SHED_OK ? shed_thread_check_call(err) : code;
}

enum shed_code shed_client_check_timed_call(const struct shed_client *client,
                                            uint64_t timeout_ms,
                                            struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (timeout_ms != SHED_TIMEOUT_DEFAULT)
        code = shed_check_range(timeout_ms, 0, SHED_TIMEOUT_MAX_MS,
                                "timeout_ms", err);
    return code == SHED_OK ? shed_client_check_call(client, err) : code;
}
