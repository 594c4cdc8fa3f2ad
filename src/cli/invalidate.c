/*
 * invalidate: UNLINK of each entry and its refresh lease, as the library's own
 * invalidation does, in pipelines; or the library's script for tags. Rows of
 * processes without the option tags_limit do not heed its log, so all entries
 * are removed where some are such, and tags are refused where all are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "known/tag_log.h"
#include "cli/caches.h"
#include "cli/clear.h"
#include "cli/entry_view.h"
#include "cli/text.h"
#include "redis/script.h"

#define PIPELINE 1000

/* The option tags_limit of the cache is not known here, so the log keeps as
 * many tags as any may; the next program that invalidates one shortens it. */
#define TAGS_TEXT "100000"

/* A cache with a log has the option, most likely: so many keys are looked at
 * before its tags are believed to reach its rows. */
#define KEYS_MAX 10000

struct work {
    const struct cli_call *call;
    struct cli_redis *redis;
    size_t sent, unheard;
    size_t found; /* keys at which something was removed */
    size_t lines; /* of the standard input */
    char log[SHED_NAME_MAX_BYTES + sizeof(SHED_TAG_LOG_SUFFIX)]; /* its key */
    bool is_of_tags;
    struct cli_clear clear; /* of --all-entries */
};

static void hear(struct work *w)
{
    for (; w->unheard > 0; w->unheard--) {
        struct shed_reply *reply =
            cli_redis_check(w->redis, cli_redis_hear(w->redis),
                            w->is_of_tags ? "EVAL" : "UNLINK");
        w->found += shed_reply_integer(reply) > 0;
        shed_reply_free(reply);
    }
}

static void count_sent(struct work *w)
{
    w->sent++;
    if (++w->unheard == PIPELINE)
        hear(w);
}

static void remove_key(struct work *w, const struct cli_key *key)
{
    cli_entry_send_unlink(w->redis, key->named.key.redis,
                          key->named.key.redis_size);
    count_sent(w);
}

/* A tag of no bytes is all entries. */
static void invalidate_tag(struct work *w, const void *tag, size_t size)
{
    char digits[SHED_DIGITS];
    struct shed_args args;

    shed_script_begin(&args, SHED_SCRIPT_INVALIDATE_TAG, "1");
    shed_args_add_text(&args, w->log);
    shed_args_add(&args, tag, size);
    shed_args_add_text(&args, TAGS_TEXT);
    shed_args_add_text(&args, "0");
    shed_args_add_number(&args, digits, w->sent);
    shed_script_by_text(&args);
    cli_redis_send(w->redis, &args);
    count_sent(w);
}

/* Check a word as a tag, or as a key, and invalidate it if is_sent. Returns:
 * NULL, or what is wrong. */
static const char *take_word(struct work *w, const void *word, size_t size,
                             bool is_sent)
{
    struct cli_key key;
    const char *fault;

    if (w->is_of_tags) {
        if (size == 0 || size > SHED_TAG_MAX_BYTES)
            return "a tag has 1 to 250 bytes";
        if (is_sent)
            invalidate_tag(w, word, size);
        return NULL;
    }
    fault = cli_key_set(&key, w->call->words[0], word, size);
    if (fault == NULL && is_sent)
        remove_key(w, &key);
    return fault;
}

static bool has_log(const struct work *w)
{
    struct shed_args args = {0};
    struct shed_reply *reply;
    bool has;

    shed_args_add_text(&args, "ZCARD");
    shed_args_add_text(&args, w->log);
    reply =
        cli_redis_check_key(w->redis, cli_redis_call(w->redis, &args), "ZCARD");
    has = shed_reply_integer(reply) > 0;
    shed_reply_free(reply);
    return has;
}

static _Noreturn void fail_unknown(const struct work *w)
{
    char advice[CLI_ADVICE_BYTES];

    cli_fail(w->call, CLI_NO,
             "there is no entry of a cache %s, and nothing was changed: %s "
             "Check the database that the URI names, too",
             w->call->words[0],
             cli_cache_advice(w->redis, w->call->words[0], advice));
}

/* The note comes first: it has its effect at once, where it has one. */
static void invalidate_all(struct work *w)
{
    bool is_known = has_log(w);

    if (is_known)
        invalidate_tag(w, "", 0);
    hear(w);
    cli_clear_rows(w->redis, w->call, &w->clear);
    if (!is_known && w->clear.reached > 0)
        invalidate_tag(w, "", 0);
    else if (!is_known && w->clear.removed == 0)
        fail_unknown(w);
}

static void check_tags_work(const struct work *w)
{
    bool is_known = has_log(w);
    struct cli_clear clear;

    cli_clear_look(w->redis, w->call, is_known ? KEYS_MAX : UINT64_MAX, &clear);
    if (!is_known && clear.reached == 0 && clear.others == 0)
        fail_unknown(w);
    if (clear.reached == 0 && clear.others > 0)
        cli_fail(w->call, CLI_USAGE,
                 "the entries of %s have no tags, because its programs do not "
                 "open it with the option tags_limit: nothing was changed. "
                 "Invalidate keys, or --all-entries",
                 w->call->words[0]);
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
                 w->lines, fault);
    }
}

static void read_stdin(struct work *w)
{
    int separator = w->call->is_nul_separated ? '\0' : '\n';
    char *line = NULL;
    size_t room = 0;
    ssize_t size;

    while ((size = getdelim(&line, &room, separator, stdin)) > 0) {
        w->lines++;
        if (line[size - 1] == (char)separator)
            line[--size] = '\0';
        if (separator == '\n' && size > 0 && line[size - 1] == '\r')
            line[--size] = '\0'; /* of a file from Windows */
        if (size > 0)
            send_line(w, line, (size_t)size);
    }
    free(line);
    if (ferror(stdin)) {
        hear(w);
        cli_fail(w->call, CLI_USAGE,
                 "the standard input cannot be read to its end: its first %zu "
                 "lines are invalidated",
                 w->lines);
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

    if (w->call->is_json && is_all)
        cli_json_print(w->call,
                       json_pack("{s:b, s:I}", "invalidated_all", true,
                                 "removed", (json_int_t)w->clear.removed));
    else if (w->call->is_json && w->is_of_tags)
        cli_json_print(w->call, json_pack("{s:I, s:b}", "invalidated_tags",
                                          (json_int_t)w->sent,
                                          "invalidated_all", false));
    else if (w->call->is_json)
        cli_json_print(w->call, json_pack("{s:I, s:I}", "invalidated",
                                          (json_int_t)w->sent, "removed",
                                          (json_int_t)w->found));
    else if (is_all)
        printf("all entries of %s invalidated, %llu of them removed\n",
               w->call->words[0], (unsigned long long)w->clear.removed);
    else if (w->is_of_tags)
        printf("%zu tags invalidated\n", w->sent);
    else
        printf("%zu invalidated, %zu of them existed\n", w->sent, w->found);
}

int cli_invalidate(struct cli_call *call)
{
    struct work w = {.call = call,
                     .is_of_tags = call->is_all || call->are_tags};
    size_t *sizes = cli_alloc(call->count, sizeof(*sizes));

    check_call(call);
    check_words(&w, sizes);
    (void)snprintf(w.log, sizeof(w.log), "%s" SHED_TAG_LOG_SUFFIX,
                   call->words[0]);
    w.redis = cli_redis_open(call, NULL);
    if (call->is_all)
        invalidate_all(&w);
    else if (call->are_tags)
        check_tags_work(&w);
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
