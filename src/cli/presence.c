/* A process, as its channels tell. Their names are not trusted: anybody can
 * subscribe. */
#include "cli/presence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cli_text cli_presence_channel(const struct cli_presence *of)
{
    struct cli_text channel;

    (void)snprintf(channel.at, sizeof(channel.at), SHED_PROCESS_CHANNEL "%.*s",
                   SHED_PROCESS_BYTES, of->process);
    return channel;
}

/* Where it runs: it is subscribed to CHANNEL:HOST:PID, too. */
static void ask_place(struct cli_redis *redis, const char *channel,
                      struct cli_presence *out)
{
    struct cli_text pattern;
    struct shed_reply *reply;
    const char *place, *colon;

    (void)snprintf(pattern.at, sizeof(pattern.at), "%.200s:*", channel);
    reply = cli_redis_ask(redis, "PUBSUB CHANNELS %s", pattern.at);
    place = cli_redis_bytes(shed_reply_at(reply, 0)).data;
    if (place != NULL && cli_begins(place, channel) &&
        (colon = strrchr(place, ':')) > place + strlen(channel)) {
        place += strlen(channel) + 1;
        (void)shed_escape(shed_bytes(place, (size_t)(colon - place)), out->host,
                          sizeof(out->host));
        out->pid = strtoull(colon + 1, NULL, 10);
    }
    shed_reply_free(reply);
}

void cli_presence_read(struct cli_redis *redis, uint32_t epoch,
                       struct cli_presence *p)
{
    struct cli_text channel = cli_presence_channel(p), asked = channel;
    struct shed_reply *reply;
    long long subscribers;

    if (p->process[0] == ' ')
        return;
    if (epoch != 0)
        (void)snprintf(asked.at, sizeof(asked.at), "%.200s.%" PRIu32,
                       channel.at, epoch);
    reply = cli_redis_ask(redis, "PUBSUB NUMSUB %s", asked.at);
    subscribers = shed_reply_integer(shed_reply_at(reply, 1));
    shed_reply_free(reply);
    if (subscribers >= 0)
        p->life = subscribers > 0 ? CLI_ALIVE : CLI_GONE;
    if (subscribers > 0)
        ask_place(redis, channel.at, p);
}

struct cli_text cli_presence_text(const struct cli_presence *of)
{
    static const char *const lives[] = {
        [CLI_LIFE_UNKNOWN] = "whether it is alive cannot be seen",
        [CLI_ALIVE] = "alive",
        [CLI_GONE] = "gone"};
    char place[CLI_HOST_BYTES + 48] = "";
    struct cli_text text;

    if (of->host[0] != '\0')
        (void)snprintf(place, sizeof(place), ", host %s, pid %llu", of->host,
                       of->pid);
    (void)snprintf(text.at, sizeof(text.at), "%.64s (%s%s)",
                   cli_escape(shed_bytes(of->process, SHED_PROCESS_BYTES)).at,
                   lives[of->life], place);
    return text;
}

void cli_presence_members(json_t *out, const struct cli_presence *of)
{
    bool is_known = of->host[0] != '\0';

    cli_out_bytes(out, "process", shed_bytes(of->process, SHED_PROCESS_BYTES));
    cli_out_set(out, "is_alive",
                of->life == CLI_LIFE_UNKNOWN
                    ? json_null()
                    : json_boolean(of->life == CLI_ALIVE));
    cli_out_text(out, "host", is_known ? of->host : NULL);
    cli_out_maybe(out, "pid", is_known, (long long)of->pid);
}
