/* get, why: show one key, and explain what it means. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/entry_view.h"
#include "known/tag_log.h"
#include "cli/text.h"
#include "cli/writes.h"

/* The longest pause between two looks of a waiter, ms: how long it can take to
 * replace the lease of a process that is gone. */
#define WAITER_LOOK_MS 150

/* Returns: the connection. */
static struct cli_redis *read_words(struct cli_call *call, struct cli_key *key,
                                    struct cli_entry *entry)
{
    struct cli_redis *redis;

    cli_key_init(key, call, call->words[0], call->words[1]);
    redis = cli_redis_open(call, NULL);
    cli_entry_read(redis, key, entry);
    return redis;
}

/* The same; the entry is judged by the log of the cache's tags. */
static struct cli_redis *judge_words(struct cli_call *call, struct cli_key *key,
                                     struct cli_entry *entry)
{
    struct cli_redis *redis = read_words(call, key, entry);
    struct cli_tags *tags = cli_tags_open(redis, key->cache);

    cli_tags_read(tags);
    cli_entry_judge(entry, tags);
    cli_tags_close(tags);
    return redis;
}

/* --------------------------------------------------------------------- get */

static int print_raw(const struct cli_call *call, const struct cli_entry *e)
{
    bool is_null = (e->entry.flags & SHED_ENTRY_NULL) != 0;

    if (e->kind != CLI_VALUE || is_null)
        cli_fail(call, CLI_NO, "there is no payload: %s; see it without --raw",
                 is_null && e->kind == CLI_VALUE ? "the row is NULL"
                                                 : cli_kind_name(e->kind));
    (void)fwrite(e->entry.payload, 1, e->entry.payload_size, stdout);
    return CLI_YES;
}

int cli_get(struct cli_call *call)
{
    struct cli_key key;
    struct cli_entry entry;
    int status;

    if (call->is_raw && call->is_json)
        cli_fail(call, CLI_USAGE, "--raw and --json exclude each other");
    cli_redis_close(judge_words(call, &key, &entry));
    status = entry.kind == CLI_VALUE ? CLI_YES : CLI_NO;
    if (call->is_raw)
        status = print_raw(call, &entry);
    else if (call->is_json)
        cli_json_print(call, cli_entry_json(&entry));
    else
        cli_entry_print(&entry);
    cli_entry_free(&entry);
    return status;
}

/* --------------------------------------------------------------------- why */

/* What a caller will find, as a word for scripts and as a sentence. for_ms: how
 * long that lasts if nobody does anything; -1: for ever. */
struct verdict {
    const char *would;
    char text[2048]; /* printable ASCII */
    long long for_ms;
    bool is_answered;
};

static void judge_lease(const struct cli_entry *e, struct verdict *v)
{
    char since[CLI_TEXT_BYTES], left[CLI_TEXT_BYTES];
    uint64_t left_ms = cli_entry_left_ms(e);

    (void)cli_duration(since, cli_entry_age_ms(e));
    (void)cli_duration(left, left_ms);
    v->for_ms = (long long)left_ms;
    v->would = "wait";
    if (left_ms == 0) {
        v->would = "take over";
        (void)snprintf(v->text, sizeof(v->text),
                       "It would load: the lease, last renewed %s ago, is "
                       "over, and the next caller takes it over.",
                       since);
    } else if (e->presence.life == CLI_GONE) {
        v->would = "take over";
        v->for_ms = 0;
        (void)snprintf(v->text, sizeof(v->text),
                       "It would load: the process that holds the lease is "
                       "gone, and the next caller, or a waiter within %d ms, "
                       "takes it over (once its lease is 100 ms old).",
                       WAITER_LOOK_MS);
    } else if (e->presence.life == CLI_ALIVE) {
        (void)snprintf(v->text, sizeof(v->text),
                       "It would wait for a load: the process is alive and "
                       "has renewed its lease %s ago. It is replaced in %s "
                       "if it does not renew it.",
                       since, left);
    } else {
        (void)snprintf(v->text, sizeof(v->text),
                       "It would wait for a load, renewed %s ago. Whether the "
                       "process is alive cannot be seen; it is replaced in %s "
                       "if it does not renew its lease.",
                       since, left);
    }
}

static void judge_stored(const struct cli_entry *e, struct verdict *v)
{
    char age[CLI_TEXT_BYTES], left[CLI_TEXT_BYTES];
    bool is_stale = cli_entry_is_stale(e);
    uint64_t until_ms = e->entry.until_ms;

    (void)cli_duration(age, cli_entry_age_ms(e));
    (void)cli_duration(left,
                       is_stale ? e->now_ms - until_ms : until_ms - e->now_ms);
    v->is_answered = !is_stale;
    v->would = is_stale               ? "stale"
               : e->kind == CLI_VALUE ? "hit"
                                      : "negative hit";
    v->for_ms = is_stale ? e->pttl : (long long)(until_ms - e->now_ms);
    if (until_ms == 0) {
        v->would = "wait";
        (void)snprintf(v->text, sizeof(v->text),
                       "It would wait for a load: this entry has ended, and is "
                       "there only for the refresh that is under way.");
    } else if (is_stale)
        (void)snprintf(v->text, sizeof(v->text),
                       "It would find an old entry (%s, stale for %s): served "
                       "or loaded again, as the cache's policy says.",
                       age, left);
    else
        (void)snprintf(v->text, sizeof(v->text),
                       "It would be a hit: %s, %s old, for another %s.",
                       e->kind == CLI_VALUE ? "a row" : "\"no such row\"", age,
                       left);
}

static void judge_miss(const struct cli_entry *e, struct verdict *v)
{
    const struct cli_miss *miss = &e->miss;
    char *tag = cli_escape(miss->tag.data, miss->tag.size);
    char date[CLI_TEXT_BYTES];
    bool is_of_tag = miss->tag.size > 0;

    (void)snprintf(v->text, sizeof(v->text),
                   "It would load, a miss: %s%s %s invalidated at %s, after "
                   "this %s was loaded. The next caller takes the lease and "
                   "loads; nobody is given what is here, not even as stale.",
                   is_of_tag ? "the tag " : "all entries", tag,
                   is_of_tag ? "was" : "were",
                   cli_date(date, cli_miss_ms(miss)),
                   e->kind == CLI_VALUE ? "row" : "\"no such row\"");
    free(tag);
}

/* The entry was read before the log. */
static void judge_above(const struct cli_entry *e, struct verdict *v)
{
    (void)snprintf(
        v->text, sizeof(v->text),
        "It would load, a miss: this %s is from after an "
        "invalidation that the log %s" SHED_TAG_LOG_SUFFIX
        " does not have, so the log has lost its end (by a failover, "
        "an eviction, DEL). The process that finds this adds \"all "
        "entries\" to it.",
        e->kind == CLI_VALUE ? "row" : "\"no such row\"", e->key->cache);
}

static void judge_failure(const struct cli_entry *e, struct verdict *v)
{
    const char *code = shed_code_name((enum shed_code)e->entry.row_version);
    uint64_t left_ms = cli_entry_left_ms(e);
    char text[CLI_TEXT_BYTES];

    if (left_ms == 0) {
        (void)snprintf(v->text, sizeof(v->text),
                       "It would load: a load failed with %s %s ago, which is "
                       "kept for callers who waited for it.",
                       code, cli_duration(text, cli_entry_age_ms(e)));
        return;
    }
    v->would = "fail";
    v->for_ms = (long long)left_ms;
    (void)snprintf(
        v->text, sizeof(v->text),
        "It would fail with %s, for another %s; then the next caller loads.",
        code, cli_duration(text, left_ms));
}

static void judge(const struct cli_entry *e, struct verdict *v)
{
    *v = (struct verdict){.would = "load", .for_ms = -1};
    switch (e->kind) {
    case CLI_VALUE:
    case CLI_NEGATIVE:
        if (e->miss.position > 0)
            judge_miss(e, v);
        else if (e->miss.is_above)
            judge_above(e, v);
        else
            judge_stored(e, v);
        return;
    case CLI_LEASE:
        judge_lease(e, v);
        return;
    case CLI_FAILURE:
        judge_failure(e, v);
        return;
    case CLI_NONE:
        (void)snprintf(v->text, sizeof(v->text),
                       "It would load: there is nothing, so it takes the "
                       "lease.");
        return;
    case CLI_DAMAGED:
    case CLI_FOREIGN:
    case CLI_OTHER:
        (void)snprintf(v->text, sizeof(v->text),
                       "It would load, and replace what is there, which its "
                       "library cannot read either if it is of this version "
                       "(%s).",
                       shed_version());
        return;
    }
}

/* While Redis refuses writes, a caller can neither take a lease nor take one
 * over. */
static void consider_writes(const struct cli_writes *writes, struct verdict *v)
{
    char *error;

    if (writes->error[0] == '\0' ||
        (strcmp(v->would, "load") != 0 && strcmp(v->would, "take over") != 0))
        return;
    if (writes->is_silent)
        v->would = "wait";
    error = cli_escape(writes->error, strlen(writes->error));
    (void)snprintf(
        v->text, sizeof(v->text), "%s (%s). %s To do: %s",
        writes->is_silent
            ? "It would wait until its deadline: Redis does not answer writes"
            : "It would load without a lease, as every process does for itself "
              "now, or fail, as the cache's policy says: Redis refuses writes",
        error, writes->means, writes->advice);
    free(error);
}

static json_t *verdict_json(const struct verdict *v,
                            const struct cli_writes *writes,
                            const struct cli_entry *entry)
{
    return json_pack("{s:s, s:s, s:b, s:o, s:o, s:o}", "would", v->would,
                     "text", v->text, "is_answered", (int)v->is_answered,
                     "for_ms", cli_json_ms(v->for_ms), "writes_refused",
                     writes->error[0] != '\0' ? json_string(writes->error)
                                              : json_null(),
                     "entry", cli_entry_json(entry));
}

int cli_why(struct cli_call *call)
{
    struct cli_redis *redis;
    struct cli_key key;
    struct cli_entry entry;
    struct cli_writes writes;
    struct verdict v;

    redis = judge_words(call, &key, &entry);
    cli_writes_read(redis, call, call->words[0], &writes);
    cli_redis_close(redis);
    judge(&entry, &v);
    consider_writes(&writes, &v);
    if (call->is_json) {
        cli_json_print(call, verdict_json(&v, &writes, &entry));
    } else {
        cli_print_wrapped(v.text, 0, 0);
        (void)putchar('\n');
        cli_entry_print(&entry);
    }
    cli_entry_free(&entry);
    return v.is_answered ? CLI_YES : CLI_NO;
}
