/*
 * Calls to a cluster. Its invariant: a command that a server has refused
 * because its key is elsewhere was not executed, and is sent where it is said
 * to be, in the time of its call.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "client/client.h"

/* How often one command follows a redirection, and for how long it waits where
 * its slot is just being moved. */
#define ROUNDS_MAX 16
#define TRY_AGAIN_MS 20

/* Send one command to a server, behind ASKING if it says so. */
static enum shed_code send_one(struct shed_server *server,
                               const struct shed_args *command, bool is_ask,
                               struct shed_reply **reply,
                               struct shed_link_use *use, unsigned *sent,
                               uint64_t deadline_ms, struct shed_error *err)
{
    struct shed_args pair[2] = {{.is_guarded = command->is_guarded}, *command};
    struct shed_reply *replies[2];
    enum shed_code code;

    if (!is_ask)
        return shed_links_call(server->links, command, 1, reply, use, sent,
                               deadline_ms, err);
    shed_args_add_text(&pair[0], "ASKING");
    if (command->script != NULL) /* sent once more it would not be the next */
        shed_script_by_text(&pair[1]);
    code = shed_links_call(server->links, pair, 2, replies, use, sent,
                           deadline_ms, err);
    if (code != SHED_OK)
        return code;
    shed_reply_free(replies[0]);
    *reply = replies[1];
    return SHED_OK;
}

static void pause_until(uint64_t deadline_ms)
{
    uint64_t until_ms = shed_now_ms() + TRY_AGAIN_MS;

    shed_sleep_until(until_ms < deadline_ms ? until_ms : deadline_ms);
}

/* A command on its way. */
struct journey {
    const struct shed_args *command;
    struct shed_bytes key;
    uint64_t deadline_ms;
    unsigned rounds;
    unsigned sent;
    bool is_ask;
    struct shed_server
        *target; /* where it was sent to; held. NULL: by the map */
};

/* Take a reply of a server's that says that the key is elsewhere.
 * Returns: false: there is nowhere to go on to, and that is the reply. */
static bool redirect(struct shed_client *client, struct journey *j,
                     const struct shed_server *from,
                     const struct shed_reply *reply)
{
    if (j->rounds++ >= ROUNDS_MAX || shed_now_ms() >= j->deadline_ms)
        return false;
    j->is_ask = false;
    if (shed_reply_begins(reply, "TRYAGAIN")) {
        pause_until(j->deadline_ms);
        return true;
    }
    j->target = shed_servers_follow(client, from, reply, &j->is_ask);
    return j->target != NULL;
}

/* Send it, and follow redirections. */
static enum shed_code travel(struct shed_client *client, struct journey *j,
                             struct shed_reply **reply,
                             struct shed_link_use *use, struct shed_error *err)
{
    for (;;) {
        struct shed_server *server =
            j->target != NULL ? j->target : shed_client_hold(client, j->key);
        unsigned sent;
        bool goes_on;
        enum shed_code code = send_one(server, j->command, j->is_ask, reply,
                                       use, &sent, j->deadline_ms, err);
        bool is_elsewhere = code == SHED_OK && shed_reply_is_elsewhere(*reply);

        j->target = NULL;
        j->sent += sent - (is_elsewhere && sent > 0);
        goes_on = is_elsewhere && redirect(client, j, server, *reply);
        shed_client_give_back(client, server);
        if (!goes_on)
            return code;
        shed_reply_free(*reply);
        *reply = NULL;
    }
}

static struct journey begin(const struct shed_args *command,
                            uint64_t deadline_ms)
{
    return (struct journey){.command = command,
                            .key = shed_servers_key(command),
                            .deadline_ms = deadline_ms};
}

static enum shed_code call_one(struct shed_client *client,
                               const struct shed_args *command,
                               struct shed_reply **reply,
                               struct shed_link_use *use, unsigned *sent,
                               uint64_t deadline_ms, struct shed_error *err)
{
    struct journey j = begin(command, deadline_ms);
    enum shed_code code = travel(client, &j, reply, use, err);

    if (sent != NULL)
        *sent = j.sent;
    return code;
}

/* ---------------------------------------------------------- several servers */

/* The commands for one server. */
struct part {
    struct shed_server *server; /* held */
    size_t first, count;        /* of the commands in their order */
    struct shed_links_call call;
    struct shed_link_use use;
    bool has_link; /* since its begin */
};

struct batch {
    struct shed_server *
        *server;                /* of each command that has no part yet; held */
    size_t *order;              /* of the commands, those of a part together */
    struct shed_args *commands; /* in that order */
    struct shed_reply **replies; /* the same */
    struct part *part;
    size_t parts;
};

/* Returns: false when out of memory. */
static bool create_batch(struct batch *b, size_t count)
{
    *b = (struct batch){.server = malloc(count * sizeof(struct shed_server *)),
                        .order = malloc(count * sizeof(*b->order)),
                        .commands = malloc(count * sizeof(*b->commands)),
                        .replies = calloc(count, sizeof(struct shed_reply *)),
                        .part = malloc(count * sizeof(*b->part))};
    return b->server != NULL && b->order != NULL && b->commands != NULL &&
           b->replies != NULL && b->part != NULL;
}

static void destroy_batch(struct batch *b)
{
    free(b->server);
    free(b->order);
    free(b->commands);
    free(b->replies);
    free(b->part);
}

/* Collect what goes to the server of the i-th command, which is held once. at:
 * how many commands have a part. Returns: the same, with these. */
static size_t make_part(struct shed_client *client, struct batch *b,
                        const struct shed_args *commands, size_t count,
                        size_t i, size_t at)
{
    struct part *part = &b->part[b->parts++];

    *part = (struct part){.server = b->server[i], .first = at};
    for (size_t j = i; j < count; j++) {
        if (b->server[j] != part->server)
            continue;
        if (j > i)
            shed_client_give_back(client, b->server[j]);
        b->server[j] = NULL;
        b->order[at] = j;
        b->commands[at++] = commands[j];
    }
    part->count = at - part->first;
    return at;
}

static void arrange(struct shed_client *client, struct batch *b,
                    const struct shed_args *commands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        b->server[i] = shed_client_hold(client, shed_servers_key(&commands[i]));
    }
    for (size_t i = 0, at = 0; i < count; i++)
        if (b->server[i] != NULL)
            at = make_part(client, b, commands, count, i, at);
}

/* All commands of a part have failed. */
static bool fail_part(struct batch *b, const struct part *part,
                      const struct shed_error *why)
{
    for (size_t i = part->first; i < part->first + part->count; i++) {
        b->replies[i] = shed_reply_make_error(why->reason);
        if (b->replies[i] == NULL)
            return false;
    }
    return true;
}

/* End a part's call. *code is SHED_OK once a server has answered, and err says
 * why the last one did not before that. Returns: false when out of memory. */
static bool end_part(struct batch *b, struct part *part, enum shed_code *code,
                     struct shed_error *err)
{
    struct shed_error why;
    enum shed_code one = shed_links_end(part->server->links, &part->call,
                                        &part->use, NULL, &why);

    if (one == SHED_OK || *code == SHED_OK) {
        *code = SHED_OK;
    } else {
        *code = one;
        if (err != NULL)
            *err = why;
    }
    return one == SHED_OK || fail_part(b, part, &why);
}

/* Returns: SHED_OK if a server has answered. */
static enum shed_code call_servers(struct batch *b, uint64_t deadline_ms,
                                   struct shed_error *err)
{
    enum shed_code code = SHED_EREDIS;
    bool has_memory = true;

    for (size_t p = 0; p < b->parts; p++) {
        struct part *part = &b->part[p];
        shed_links_begin(part->server->links, &part->call,
                         &b->commands[part->first], part->count,
                         &b->replies[part->first], deadline_ms);
        part->has_link = part->call.link != NULL;
    }
    for (int pass = 0; pass < 2; pass++) /* first all with a link */
        for (size_t p = 0; p < b->parts; p++)
            if (b->part[p].has_link == (pass == 0))
                has_memory &= end_part(b, &b->part[p], &code, err);
    return has_memory ? code : shed_fail_nomem(err, "a Redis call");
}

/* Hand the replies out in the caller's order, and send on what is elsewhere. */
static void conclude(struct shed_client *client, struct batch *b,
                     struct shed_reply **replies, struct shed_link_use *uses,
                     uint64_t deadline_ms)
{
    for (size_t p = 0; p < b->parts; p++) {
        struct part *part = &b->part[p];
        for (size_t i = part->first; i < part->first + part->count; i++) {
            struct journey j = begin(&b->commands[i], deadline_ms);
            struct shed_link_use use = part->use;
            struct shed_reply *next = NULL;
            struct shed_error why;
            if (shed_reply_is_elsewhere(b->replies[i]) &&
                redirect(client, &j, part->server, b->replies[i])) {
                if (travel(client, &j, &next, &use, &why) != SHED_OK)
                    next = shed_reply_make_error(why.reason);
                if (next != NULL) {
                    shed_reply_free(b->replies[i]);
                    b->replies[i] = next;
                }
            }
            replies[b->order[i]] = b->replies[i];
            if (uses != NULL)
                uses[b->order[i]] = use;
        }
    }
}

static enum shed_code call_many(struct shed_client *client,
                                const struct shed_args *commands, size_t count,
                                struct shed_reply **replies,
                                struct shed_link_use *uses,
                                uint64_t deadline_ms, struct shed_error *err)
{
    struct batch b;
    enum shed_code code;

    if (create_batch(&b, count)) {
        arrange(client, &b, commands, count);
        code = call_servers(&b, deadline_ms, err);
    } else {
        code = shed_fail_nomem(err, "a Redis call");
    }
    if (code == SHED_OK)
        conclude(client, &b, replies, uses, deadline_ms);
    else if (b.replies != NULL)
        shed_reply_free_all(b.replies, count);
    for (size_t p = 0; p < b.parts; p++)
        shed_client_give_back(client, b.part[p].server);
    destroy_batch(&b);
    return code;
}

enum shed_code shed_servers_call(struct shed_client *client,
                                 const struct shed_args *commands, size_t count,
                                 struct shed_reply **replies,
                                 struct shed_link_use *uses, unsigned *sent,
                                 uint64_t deadline_ms, struct shed_error *err)
{
    shed_client_wait(client, deadline_ms);
    if (count == 1)
        return call_one(client, commands, replies, uses, sent, deadline_ms,
                        err);
    if (sent != NULL)
        *sent = 0;
    return count == 0 ? SHED_OK
                      : call_many(client, commands, count, replies, uses,
                                  deadline_ms, err);
}
