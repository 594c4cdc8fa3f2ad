/* A process, as its channels tell. Their names are not trusted: anybody can
 * subscribe. */
#include "cli/presence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where it runs: it is subscribed to CHANNEL:HOST:PID, too. */
static void ask_place(struct cli_redis *redis, const char *channel,
                      struct cli_presence *out)
{
    struct shed_reply *reply = cli_redis_ask(redis, "PUBSUB CHANNELS %s",
                                             cli_format("%s:*", channel).at);
    const char *place = cli_redis_bytes(shed_reply_at(reply, 0)).data;
    const char *colon = place != NULL ? strrchr(place, ':') : NULL;

    if (colon != NULL && cli_begins(place, channel) &&
        colon > place + strlen(channel)) {
        place += strlen(channel) + 1;
        (void)shed_escape(shed_bytes(place, (size_t)(colon - place)), out->host,
                          sizeof(out->host));
        out->pid = strtoull(colon + 1, NULL, 10);
    }
    shed_reply_free(reply);
}

void cli_presence_read(struct cli_redis *redis, const char *process,
                       uint32_t epoch, struct cli_presence *p)
{
    struct cli_text channel;
    struct shed_reply *reply;
    long long subscribers;

    *p = (struct cli_presence){.process = NULL};
    if (process == NULL || process[0] == ' ')
        return;
    p->process = process;
    channel =
        cli_format(SHED_PROCESS_CHANNEL "%.*s", SHED_PROCESS_BYTES, process);
    reply = cli_redis_ask(redis, "PUBSUB NUMSUB %s",
                          epoch != 0
                              ? cli_format("%s.%" PRIu32, channel.at, epoch).at
                              : channel.at);
    subscribers = shed_reply_integer(shed_reply_at(reply, 1));
    shed_reply_free(reply);
    if (subscribers >= 0)
        p->life = subscribers > 0 ? CLI_ALIVE : CLI_GONE;
    if (subscribers > 0)
        ask_place(redis, channel.at, p);
}

void cli_presence_members(json_t *out, const struct cli_presence *of)
{
    bool is_known = of->host[0] != '\0';

    if (of->process == NULL)
        cli_out_text(out, "process", NULL);
    else
        cli_out_bytes(out, "process",
                      shed_bytes(of->process, SHED_PROCESS_BYTES));
    cli_out_set(out, "is_alive",
                of->life == CLI_LIFE_UNKNOWN
                    ? json_null()
                    : json_boolean(of->life == CLI_ALIVE));
    cli_out_text(out, "host", is_known ? of->host : NULL);
    cli_out_maybe(out, "pid", is_known, (long long)of->pid);
}
