/*
 * invalidate: UNLINK of each entry and its refresh lease, as the library's own
 * invalidation does, in pipelines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/entry_view.h"
#include "cli/text.h"

#define PIPELINE 1000

struct work {
    const struct cli_call *call;
    struct cli_redis *redis;
    size_t sent, unheard;
    size_t found; /* keys at which something was removed */
};

static void hear(struct work *w)
{
    for (; w->unheard > 0; w->unheard--) {
        struct shed_reply *reply =
            cli_redis_check(w->redis, cli_redis_hear(w->redis), "UNLINK");
        w->found += shed_reply_integer(reply) > 0;
        shed_reply_free(reply);
    }
}

static void remove_key(struct work *w, const struct cli_key *key)
{
    char refresh[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
    size_t size = key->named.key.redis_size;
    struct shed_args args = {0};

    shed_args_add_text(&args, "UNLINK");
    shed_args_add(&args, key->named.key.redis, size);
    shed_args_add(&args, refresh,
                  shed_entry_refresh_key(key->named.key.redis, size, refresh));
    cli_redis_send(w->redis, &args);
    w->sent++;
    if (++w->unheard == PIPELINE)
        hear(w);
}

/* A bad line ends the program with a message, so that nobody believes that the
 * lines behind it were invalidated. */
static void send_line(struct work *w, char *line, size_t size)
{
    struct cli_key key;
    const char *fault;

    if (w->call->is_escaped)
        size = cli_unescape(line);
    fault = size == SIZE_MAX ? "a \\ that is followed by neither \\ nor xNN"
                             : cli_key_set(&key, w->call->words[0], line, size);
    if (fault != NULL) {
        hear(w);
        cli_fail(w->call, CLI_USAGE,
                 "key %zu of the standard input: %s; those before it are "
                 "invalidated, it and those after it are not",
                 w->sent + 1, fault);
    }
    remove_key(w, &key);
}

static void read_stdin(struct work *w)
{
    int separator = w->call->is_nul_separated ? '\0' : '\n';
    char *line = NULL;
    size_t room = 0;
    ssize_t size;

    while ((size = getdelim(&line, &room, separator, stdin)) > 0) {
        if (line[size - 1] == (char)separator)
            line[--size] = '\0';
        if (size > 0)
            send_line(w, line, (size_t)size);
    }
    free(line);
    if (ferror(stdin)) {
        hear(w);
        cli_fail(w->call, CLI_USAGE,
                 "the standard input cannot be read to its end; %zu keys are "
                 "invalidated",
                 w->sent);
    }
}

int cli_invalidate(struct cli_call *call)
{
    struct work w = {.call = call};
    size_t given = call->count - 1;
    struct cli_key *keys = cli_alloc(given, sizeof(*keys));

    cli_check_cache(call, call->words[0]);
    if (given == 0 && !call->is_from_stdin)
        cli_fail(call, CLI_USAGE, "which keys? Give them, or --stdin");
    /* check all of them before anything is changed */
    for (size_t i = 0; i < given; i++)
        cli_key_init(&keys[i], call, call->words[0], call->words[i + 1]);
    w.redis = cli_redis_open(call, NULL);
    for (size_t i = 0; i < given; i++)
        remove_key(&w, &keys[i]);
    if (call->is_from_stdin)
        read_stdin(&w);
    hear(&w);
    if (call->is_json)
        cli_json_print(call, json_pack("{s:I, s:I}", "invalidated",
                                       (json_int_t)w.sent, "removed",
                                       (json_int_t)w.found));
    else
        printf("%zu invalidated, %zu of them existed\n", w.sent, w.found);
    cli_redis_close(w.redis);
    free(keys);
    return CLI_YES;
}
