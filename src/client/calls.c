/*
 * Calls for which threads wait. Its invariant: a command that a server of a
 * cluster has refused because its key is elsewhere was not executed, and is
 * sent where it is said to be, in the time of its call.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "client/client.h"

/* How often one command follows a redirection, and for how long it waits where
 * its slot is just being moved. */
#define ROUNDS_MAX 16
#define TRY_AGAIN_MS 20

/* Send one command to a server that is only to be asked for now. */
static enum shed_code ask(struct shed_server *server,
                          const struct shed_args *command,
                          struct shed_reply **reply, struct shed_link_use *use,
                          unsigned *sent, uint64_t deadline_ms,
                          struct shed_error *err)
{
    struct shed_args pair[2] = {{.is_guarded = command->is_guarded}, *command};
    struct shed_reply *replies[2];
    enum shed_code code;

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

/* Follow a reply that says that the key is elsewhere. Returns: the server,
 * held; NULL: there is nowhere to go on to, and that is the reply. */
static struct shed_server *follow(struct shed_client *client,
                                  const struct shed_server *from,
                                  const struct shed_args *command,
                                  const struct shed_reply *reply, bool *is_ask,
                                  uint64_t deadline_ms)
{
    *is_ask = false;
    if (shed_now_ms() >= deadline_ms)
        return NULL;
    if (!shed_reply_begins(reply, "TRYAGAIN"))
        return shed_servers_follow(client, from, reply, is_ask);
    pause_until(deadline_ms);
    return shed_client_hold(client, shed_servers_key(command));
}

enum shed_code shed_client_call(struct shed_client *client,
                                const struct shed_args *commands, size_t count,
                                struct shed_reply **replies,
                                struct shed_link_use *use, unsigned *sent,
                                uint64_t deadline_ms, struct shed_error *err)
{
    struct shed_server *server, *next;
    unsigned mine = 0;
    bool is_ask = false;
    enum shed_code code;

    if (sent != NULL)
        *sent = 0;
    shed_client_wait(client, deadline_ms);
    server = shed_client_hold(client, shed_servers_key(commands));
    for (unsigned round = 0;; round++) {
        bool is_elsewhere;
        code = is_ask ? ask(server, commands, replies, use, &mine, deadline_ms,
                            err)
                      : shed_links_call(server->links, commands, count, replies,
                                        use, &mine, deadline_ms, err);
        is_elsewhere = code == SHED_OK && count == 1 &&
                       client->address->seeds != NULL &&
                       shed_reply_is_elsewhere(*replies);
        if (sent != NULL)
            *sent += mine - (is_elsewhere && mine > 0);
        next = is_elsewhere && round < ROUNDS_MAX
                   ? follow(client, server, commands, *replies, &is_ask,
                            deadline_ms)
                   : NULL;
        shed_client_give_back(client, server);
        if (next == NULL)
            return code;
        shed_reply_free(*replies);
        *replies = NULL;
        server = next;
    }
}
