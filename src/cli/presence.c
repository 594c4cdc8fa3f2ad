/* A process, as its channels tell. Their names are not trusted: anybody can
 * subscribe. */
#include "cli/presence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"
#include "redis/session.h"

const char *cli_process_channel(char channel[CLI_CHANNEL_BYTES],
                                const char *process)
{
    (void)snprintf(channel, CLI_CHANNEL_BYTES, SHED_PROCESS_CHANNEL "%.*s",
                   SHED_PROCESS_BYTES, process);
    return channel;
}

/* place: HOST:PID. */
static void read_place(struct cli_presence *out, const char *place)
{
    const char *colon = strrchr(place, ':');
    char *host;

    if (colon == NULL)
        return;
    host = cli_escape(place, (size_t)(colon - place));
    (void)snprintf(out->host, sizeof(out->host), "%s", host);
    free(host);
    out->pid = strtoull(colon + 1, NULL, 10);
}

static void ask_place(struct cli_redis *redis, const char *channel,
                      struct cli_presence *out)
{
    struct shed_args args = {0};
    struct shed_reply *reply;
    char pattern[CLI_CHANNEL_BYTES + 2];
    size_t size = 0, prefix = strlen(channel) + 1;
    const char *name;

    (void)snprintf(pattern, sizeof(pattern), "%s:*", channel);
    shed_args_add_text(&args, "PUBSUB");
    shed_args_add_text(&args, "CHANNELS");
    shed_args_add_text(&args, pattern);
    reply = cli_redis_call(redis, &args);
    name = shed_reply_bytes(shed_reply_at(reply, 0), &size);
    if (name != NULL && size > prefix)
        read_place(out, name + prefix);
    shed_reply_free(reply);
}

void cli_presence_read(struct cli_redis *redis, const char *process,
                       struct cli_presence *out)
{
    char channel[CLI_CHANNEL_BYTES];
    struct shed_args args = {0};
    struct shed_reply *reply;
    long long subscribers;

    *out = (struct cli_presence){.life = CLI_LIFE_UNKNOWN};
    shed_args_add_text(&args, "PUBSUB");
    shed_args_add_text(&args, "NUMSUB");
    shed_args_add_text(&args, cli_process_channel(channel, process));
    reply = cli_redis_call(redis, &args);
    subscribers = shed_reply_integer(shed_reply_at(reply, 1));
    shed_reply_free(reply);
    if (subscribers >= 0)
        out->life = subscribers > 0 ? CLI_ALIVE : CLI_GONE;
    if (subscribers > 0)
        ask_place(redis, channel, out);
}

void cli_presence_print(const char *process, const struct cli_presence *of)
{
    static const char *const lives[] = {
        [CLI_LIFE_UNKNOWN] = "whether it is alive cannot be seen",
        [CLI_ALIVE] = "alive",
        [CLI_GONE] = "gone"};

    cli_print_escaped(stdout, process, SHED_PROCESS_BYTES, SIZE_MAX);
    printf(" (%s", lives[of->life]);
    if (of->host[0] != '\0')
        printf(", host %s, pid %llu", of->host, of->pid);
    (void)putchar(')');
}

void cli_presence_json(json_t *object, const char *process,
                       const struct cli_presence *of)
{
    bool is_known = of->host[0] != '\0';

    cli_json_set_bytes(object, "process", process, SHED_PROCESS_BYTES);
    json_object_set_new(object, "is_alive",
                        of->life == CLI_LIFE_UNKNOWN
                            ? json_null()
                            : json_boolean(of->life == CLI_ALIVE));
    json_object_set_new(object, "host",
                        is_known ? json_string(of->host) : json_null());
    json_object_set_new(object, "pid",
                        is_known ? json_integer((json_int_t)of->pid)
                                 : json_null());
}
