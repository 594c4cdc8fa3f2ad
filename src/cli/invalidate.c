/*
 * invalidate: UNLINK of each entry and its refresh lease, as the library's own
 * invalidation does, in a pipeline; or the library's script for tags. Rows of
 * processes without the option tags_limit do not heed its log, so all entries
 * are removed where some are such, and tags are refused where all are.
 */
#include <stdlib.h>

#include "known/tag_log.h"
#include "cli/entry.h"
#include "cli/walk.h"
#include "wire/script.h"

/* The option tags_limit of the cache is not known here, so the log keeps as
 * many tags as any may; the next program that invalidates one shortens it. */
#define TAGS_TEXT "100000"

/* A cache with a log has the option, most likely: so many keys are looked at
 * before its tags are believed to reach its rows. */
#define KEYS_MAX 10000

/* From so many rows without a position, and none with one, it is believed that
 * none has. */
#define OTHERS_MAX 100

struct work {
    const struct cli_call *call;
    size_t sent, heard;
    size_t found;        /* keys at which something was removed */
    struct cli_text log; /* its key */
    /* Rows that were looked at: a note in the log reaches those with a
     * position, not those of processes without the option tags_limit. */
    bool has_reached;
    size_t others;
};

static void hear(struct work *w)
{
    for (; w->heard < w->sent; w->heard++)
        w->found +=
            cli_redis_hear_integer(w->call->redis, "the invalidation") > 0;
}

/* A tag of no bytes is all entries. */
static void send_tag(struct work *w, struct shed_bytes tag)
{
    char digits[SHED_DIGITS];
    struct shed_args args;

    shed_script_begin(&args, SHED_SCRIPT_INVALIDATE_TAG, "1");
    shed_args_add_text(&args, w->log.at);
    shed_args_add(&args, tag.data, tag.size);
    shed_args_add_text(&args, TAGS_TEXT);
    shed_args_add_text(&args, "0");
    shed_args_add_number(&args, digits, w->sent);
    shed_script_by_text(&args);
    cli_redis_about(w->call->redis, shed_str(w->log.at));
    cli_redis_send_args(w->call->redis, &args);
}

/* Check a word as a tag, or as a key, and invalidate it if is_sent. */
static void take_word(struct work *w, struct shed_bytes word, bool is_sent)
{
    struct cli_key key;
    const char *fault = NULL;

    if (!w->call->are_tags)
        fault = cli_key_set(&key, w->call->words[0], word);
    else if (word.size == 0 || word.size > SHED_TAG_MAX_BYTES)
        fault = "a tag has 1 to 250 bytes";
    if (fault != NULL)
        cli_fail(w->call, CLI_USAGE, "%s", fault);
    if (!is_sent)
        return;
    if (w->call->are_tags)
        send_tag(w, word);
    else
        cli_entry_send_unlink(w->call->redis, key.named.key.redis);
    w->sent++;
}

static bool has_log(const struct work *w)
{
    struct shed_reply *reply;
    bool has;

    cli_redis_send_key(w->call->redis, "ZCARD KEY", shed_str(w->log.at));
    reply = cli_redis_hear_key(w->call->redis, "ZCARD", false);
    has = shed_reply_integer(reply) > 0;
    shed_reply_free(reply);
    return has;
}

/* ------------------------------------------------ what no log entry reaches */

/* Whether a note in the log leaves the entry there as a hit, or as a load that
 * can be stored. Of one that is damaged the header decides, too. */
static bool see_entry(struct work *w, const struct shed_reply *head)
{
    struct shed_entry entry;
    enum cli_kind kind = cli_kind_of(head, -1, &entry);
    bool is_stored = cli_kind_is_stored(kind);
    bool is_reached = is_stored && (entry.flags & SHED_ENTRY_POSITION) != 0;

    w->has_reached |= is_reached;
    w->others += is_stored && !is_reached;
    return kind != CLI_FOREIGN && kind != CLI_OTHER && !is_reached;
}

/* Look at the entries of the cache, and remove what the log does not reach:
 * rows without a position, leases and failure markers. Only keys with an entry
 * of the library are removed. For tags, remove nothing: look at about keys_max
 * keys of the database, until some row has a position, or too many have none.
 */
static void look(struct work *w, uint64_t keys_max)
{
    struct cli_walk walk;

    cli_walk_begin(&walk, w->call->redis, w->call->words[0], w->call->rate);
    walk.ask[0] = CLI_ASK_HEADER;
    while ((w->call->is_all || (!w->has_reached && w->others < OTHERS_MAX)) &&
           walk.looked < keys_max && cli_walk_next(&walk)) {
        for (size_t i = 0; i < walk.count; i++)
            if (see_entry(w, walk.found[i].answer[0]) && w->call->is_all) {
                cli_entry_send_unlink(walk.redis, walk.found[i].name);
                w->sent++;
            }
        hear(w);
    }
    cli_walk_end(&walk);
}

static _Noreturn void fail_unknown(const struct work *w)
{
    cli_fail(w->call, CLI_NO,
             "there is no entry of a cache %s, and nothing was changed: "
             "'snowshed scan' lists the caches. Check the database that the "
             "URI names, too",
             w->call->words[0]);
}

static void note_all(struct work *w)
{
    send_tag(w, shed_str(""));
    (void)cli_redis_hear_integer(w->call->redis, "the invalidation");
}

/* The note comes first: it has its effect at once, where it has one. */
static void invalidate_all(struct work *w)
{
    bool is_known = has_log(w);

    if (is_known)
        note_all(w);
    look(w, UINT64_MAX);
    if (!is_known && w->has_reached)
        note_all(w);
    else if (!is_known && w->found == 0)
        fail_unknown(w);
}

static void check_tags_work(struct work *w)
{
    bool is_known = has_log(w);

    look(w, is_known ? KEYS_MAX : UINT64_MAX);
    if (!is_known && !w->has_reached && w->others == 0)
        fail_unknown(w);
    if (!w->has_reached && w->others > 0)
        cli_fail(w->call, CLI_USAGE,
                 "the entries of %s (%zu were looked at) have no tags, because "
                 "its programs do not open it with the option tags_limit: "
                 "nothing was changed. Invalidate keys, or --all-entries",
                 w->call->words[0], w->others);
}

/* Check all words before anything is changed. */
static void check_words(struct work *w, struct shed_bytes *words)
{
    for (size_t i = 1; i < w->call->count; i++) {
        words[i] = cli_key_word(w->call, w->call->words[i]);
        take_word(w, words[i], false);
    }
}

static void check_call(const struct cli_call *call)
{
    bool is_given = call->count > 1;

    if (call->is_all && (is_given || call->are_tags))
        cli_fail(call, CLI_USAGE,
                 "--all-entries takes neither keys nor tags: it invalidates "
                 "everything");
    if (!call->is_all && !is_given)
        cli_fail(call, CLI_USAGE, "no %s given",
                 call->are_tags ? "tags" : "keys");
}

static void report(const struct work *w)
{
    json_t *out = w->call->out;

    if (w->call->is_all) {
        cli_out_flag(out, "invalidated_all", true);
        cli_out_number(out, "removed", w->found);
    } else if (w->call->are_tags) {
        cli_out_number(out, "invalidated_tags", w->sent);
        cli_out_flag(out, "invalidated_all", false);
    } else {
        cli_out_number(out, "invalidated", w->sent);
        cli_out_number(out, "removed", w->found);
    }
}

int cli_invalidate(struct cli_call *call)
{
    struct work w = {.call = call};
    struct shed_bytes *words = cli_alloc(call->count, sizeof(*words));

    check_call(call);
    check_words(&w, words);
    cli_redis_open(call);
    w.log = cli_format("%s" SHED_TAG_LOG_SUFFIX, call->words[0]);
    if (call->is_all)
        invalidate_all(&w);
    else if (call->are_tags)
        check_tags_work(&w);
    for (size_t i = 1; i < call->count; i++)
        take_word(&w, words[i], true);
    hear(&w);
    report(&w);
    free(words);
    return CLI_YES;
}
