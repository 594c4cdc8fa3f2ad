/*
 * invalidate: UNLINK of each entry and its refresh lease, as the library's own
 * invalidation does, in pipelines; or the library's script for groups.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "known/group_log.h"
#include "cli/entry_view.h"
#include "cli/text.h"
#include "redis/script.h"

#define PIPELINE 1000

/* The option groups of the cache is not known here, so the log keeps as many
 * tags as any may; the next program that invalidates one shortens it. */
#define GROUPS_TEXT "100000"

struct work {
    const struct cli_call *call;
    struct cli_redis *redis;
    size_t sent, unheard;
    size_t found; /* keys at which something was removed */
    bool is_of_groups;
};

static void hear(struct work *w)
{
    for (; w->unheard > 0; w->unheard--) {
        struct shed_reply *reply =
            cli_redis_check(w->redis, cli_redis_hear(w->redis),
                            w->is_of_groups ? "EVAL" : "UNLINK");
        w->found += shed_reply_integer(reply) > 0;
        shed_reply_free(reply);
    }
}

static void send_args(struct work *w, const struct shed_args *args)
{
    cli_redis_send(w->redis, args);
    w->sent++;
    if (++w->unheard == PIPELINE)
        hear(w);
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
    send_args(w, &args);
}

/* A tag of no bytes is all entries. */
static void invalidate_group(struct work *w, const void *tag, size_t size)
{
    char log[SHED_NAME_MAX_BYTES + sizeof(SHED_GROUP_LOG_SUFFIX)];
    char digits[SHED_DIGITS];
    struct shed_args args;

    (void)snprintf(log, sizeof(log), "%s" SHED_GROUP_LOG_SUFFIX,
                   w->call->words[0]);
    shed_script_begin(&args, SHED_SCRIPT_INVALIDATE_GROUP, "1");
    shed_args_add_text(&args, log);
    shed_args_add(&args, tag, size);
    shed_args_add_text(&args, GROUPS_TEXT);
    shed_args_add_text(&args, "0");
    shed_args_add_number(&args, digits, w->sent);
    shed_script_by_text(&args);
    send_args(w, &args);
}

/* Check a word as a tag, or as a key, and invalidate it if is_sent. Returns:
 * NULL, or what is wrong. */
static const char *take_word(struct work *w, const void *word, size_t size,
                             bool is_sent)
{
    struct cli_key key;
    const char *fault;

    if (w->is_of_groups) {
        if (size == 0 || size > SHED_TAG_MAX_BYTES)
            return "a tag has 1 to 250 bytes";
        if (is_sent)
            invalidate_group(w, word, size);
        return NULL;
    }
    fault = cli_key_set(&key, w->call->words[0], word, size);
    if (fault == NULL && is_sent)
        remove_key(w, &key);
    return fault;
}

/* A bad line ends the program with a message, so that nobody believes that the
 * lines behind it were invalidated. */
static void send_line(struct work *w, char *line, size_t size)
{
    const char *fault;

    if (w->call->is_escaped)
        size = cli_unescape(line);
    fault = size == SIZE_MAX ? "a \\ must be followed by another \\ or by xNN"
                             : take_word(w, line, size, true);
    if (fault != NULL) {
        hear(w);
        cli_fail(w->call, CLI_USAGE,
                 "line %zu of the standard input: %s; those before it are "
                 "invalidated, it and those after it are not",
                 w->sent + 1, fault);
    }
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
                 "the standard input cannot be read to its end: the first %zu "
                 "lines are invalidated",
                 w->sent);
    }
}

/* Check all words before anything is changed. */
static void check_words(struct work *w, size_t *sizes)
{
    const struct cli_call *call = w->call;

    for (size_t i = 1; i < call->count; i++) {
        char *word = call->words[i];
        const char *fault;
        sizes[i] = call->is_escaped ? cli_unescape(word) : strlen(word);
        fault = sizes[i] == SIZE_MAX
                    ? "with --escaped, a \\ must be followed by another \\ or "
                      "by xNN"
                    : take_word(w, word, sizes[i], false);
        if (fault != NULL)
            cli_fail(call, CLI_USAGE, "%s", fault);
    }
}

static void check_call(const struct cli_call *call)
{
    bool is_given = call->count > 1 || call->is_from_stdin;

    cli_check_cache(call, call->words[0]);
    if (call->is_all && (is_given || call->are_tags))
        cli_fail(call, CLI_USAGE,
                 "--all-entries takes neither keys nor tags: it invalidates "
                 "everything");
    if (!call->is_all && !is_given)
        cli_fail(call, CLI_USAGE, "no %s given: name them, or use --stdin",
                 call->are_tags ? "tags" : "keys");
}

static void report(const struct work *w)
{
    bool is_all = w->call->is_all;

    if (w->call->is_json && w->is_of_groups)
        cli_json_print(w->call, json_pack("{s:I, s:b}", "invalidated_tags",
                                          (json_int_t)(is_all ? 0 : w->sent),
                                          "invalidated_all", is_all));
    else if (w->call->is_json)
        cli_json_print(w->call, json_pack("{s:I, s:I}", "invalidated",
                                          (json_int_t)w->sent, "removed",
                                          (json_int_t)w->found));
    else if (is_all)
        printf("all entries of %s invalidated\n", w->call->words[0]);
    else if (w->is_of_groups)
        printf("%zu tags invalidated\n", w->sent);
    else
        printf("%zu invalidated, %zu of them existed\n", w->sent, w->found);
}

int cli_invalidate(struct cli_call *call)
{
    struct work w = {.call = call,
                     .is_of_groups = call->is_all || call->are_tags};
    size_t *sizes = cli_alloc(call->count, sizeof(*sizes));

    check_call(call);
    check_words(&w, sizes);
    w.redis = cli_redis_open(call, NULL);
    if (call->is_all)
        invalidate_group(&w, "", 0);
    for (size_t i = 1; i < call->count; i++)
        (void)take_word(&w, call->words[i], sizes[i], true);
    if (call->is_from_stdin)
        read_stdin(&w);
    hear(&w);
    report(&w);
    cli_redis_close(w.redis);
    free(sizes);
    return CLI_YES;
}
