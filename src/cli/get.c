/* get: shows one key, and explains what a caller of it would get now. */
#include <stdio.h>
#include <string.h>

#include "cli/entry_view.h"
#include "known/tag_log.h"
#include "cli/writes.h"

/* The longest pause between two looks of a waiter, ms: how long it can take to
 * replace the lease of a process that is gone. */
#define WAITER_LOOK_MS 150

/* What a caller will find, as a word for scripts and as a sentence. for_ms: how
 * long that lasts if nobody does anything; -1: for ever. */
struct verdict {
    const char *would;
    struct cli_text text; /* printable ASCII */
    long long for_ms;
    bool is_answered;
    struct cli_text refused; /* why Redis refuses writes; "": it does not */
};

static void judge_lease(const struct cli_entry *e, struct verdict *v)
{
    struct cli_text since = cli_duration(e->age_ms);
    struct cli_text left = cli_duration(e->left_ms);
    bool is_over = e->left_ms == 0, is_gone = e->presence.life == CLI_GONE;

    v->for_ms = is_gone ? 0 : (long long)e->left_ms;
    v->would = is_over || is_gone ? "take over" : "wait";
    if (is_over)
        v->text = cli_format(
            "It would load: the lease, last renewed %s ago, is over, and "
            "the next caller takes it over.",
            since.at);
    else if (is_gone)
        v->text = cli_format(
            "It would load: the process that holds the lease is gone. A "
            "caller or waiter notices that within %d ms, and one takes it "
            "over 100 ms later.",
            WAITER_LOOK_MS);
    else if (e->presence.life == CLI_ALIVE)
        v->text = cli_format(
            "It would wait for a load: the process is alive and has "
            "renewed its lease %s ago. It is replaced in %s if it does not "
            "renew it.",
            since.at, left.at);
    else
        v->text = cli_format(
            "It would wait for a load, renewed %s ago. Whether the process "
            "is alive cannot be seen; it is replaced in %s if it does not "
            "renew its lease.",
            since.at, left.at);
}

static const char *row_of(const struct cli_entry *e)
{
    return e->kind == CLI_VALUE ? "row" : "\"no such row\"";
}

static void judge_stored(const struct cli_entry *e, struct verdict *v)
{
    struct cli_text age = cli_duration(e->age_ms);

    if (e->entry.until_ms == 0) {
        v->would = "wait";
        v->for_ms = e->pttl;
        v->text =
            cli_format("It would wait for a load: this entry has ended, and is "
                       "there only for the refresh that is under way.");
    } else if (e->left_ms == 0) {
        v->would = "stale";
        v->for_ms = e->pttl;
        v->text = cli_format(
            "It would find an old entry (%s, stale for %s): served or "
            "loaded again, as the cache's policy says.",
            age.at, cli_duration(e->now_ms - e->entry.until_ms).at);
    } else {
        v->would = e->kind == CLI_VALUE ? "hit" : "negative hit";
        v->for_ms = (long long)e->left_ms;
        v->is_answered = true;
        v->text = cli_format("It would be a hit: %s%s, %s old, for another %s.",
                             e->kind == CLI_VALUE ? "a " : "", row_of(e),
                             age.at, cli_duration(e->left_ms).at);
    }
}

static void judge_miss(const struct cli_entry *e, struct verdict *v)
{
    v->text = cli_format(
        "It would load, a miss: %s, after this %s was loaded. The next "
        "caller takes the lease and loads; nobody is given what is here, "
        "not even as stale.",
        cli_miss_text(&e->miss).at, row_of(e));
}

/* The entry was read before the log. */
static void judge_above(const struct cli_entry *e, struct verdict *v)
{
    v->text = cli_format(
        "It would load, a miss: this %s is from after an invalidation that "
        "the log %s" SHED_TAG_LOG_SUFFIX " does not have, so the log has "
        "lost its end (by a failover, an eviction, DEL). The process that "
        "finds this adds \"all entries\" to it.",
        row_of(e), e->key->cache);
}

static void judge_failure(const struct cli_entry *e, struct verdict *v)
{
    if (e->left_ms == 0) {
        v->text = cli_format(
            "It would load: a load failed with %s %s ago, which is kept "
            "for callers who waited for it.",
            cli_entry_code(e), cli_duration(e->age_ms).at);
        return;
    }
    v->would = "fail";
    v->for_ms = (long long)e->left_ms;
    v->text = cli_format(
        "It would fail with %s, for another %s; then the next caller "
        "loads.",
        cli_entry_code(e), cli_duration(e->left_ms).at);
}

static struct verdict judge(const struct cli_entry *e)
{
    bool is_stored = cli_kind_is_stored(e->kind);
    struct verdict v = {.would = "load", .for_ms = -1};

    if (is_stored && e->miss.position > 0)
        judge_miss(e, &v);
    else if (is_stored && e->miss.is_above)
        judge_above(e, &v);
    else if (is_stored)
        judge_stored(e, &v);
    else if (e->kind == CLI_LEASE)
        judge_lease(e, &v);
    else if (e->kind == CLI_FAILURE)
        judge_failure(e, &v);
    else if (e->kind == CLI_NONE)
        v.text = cli_format(
            "It would load: there is nothing, so it takes the lease.");
    else
        v.text = cli_format(
            "It would load, and replace what is there, which its library "
            "cannot read either if it is of this version (%s).",
            shed_version());
    return v;
}

/* While Redis refuses writes, a caller can neither take a lease nor take one
 * over. */
static void consider_writes(const struct cli_call *call,
                            const struct cli_entry *e, struct verdict *v)
{
    struct cli_writes writes;

    if (strcmp(v->would, "load") != 0 && strcmp(v->would, "take over") != 0)
        return;
    cli_writes_read(call->redis, cli_key_name(e->key), &writes);
    if (writes.error[0] == '\0')
        return;
    if (writes.is_silent)
        v->would = "wait";
    v->refused = cli_format("%s", writes.error);
    v->text = cli_format(
        "%s (%s). %s To do: %s",
        writes.is_silent
            ? "It would wait until its deadline: Redis does not answer writes"
            : "It would load without a lease, as every process does for itself "
              "now, or fail, as the cache's policy says: Redis refuses writes",
        cli_escape(shed_str(writes.error)).at, writes.means, writes.advice);
}

/* --------------------------------------------------------------------- get */

static int show(const struct cli_call *call, const struct cli_entry *e)
{
    struct verdict v = judge(e);
    json_t *caller;

    consider_writes(call, e, &v);
    cli_entry_show(e, call->out);
    caller = cli_out_object(call->out, "caller");
    cli_out_text(caller, "would", v.would);
    cli_out_flag(caller, "is_answered", v.is_answered);
    cli_out_ms(caller, "for_ms", v.for_ms);
    cli_out_text(caller, "writes_refused",
                 v.refused.at[0] != '\0' ? v.refused.at : NULL);
    cli_out_text(caller, "text", v.text.at);
    if (e->pttl == -1)
        cli_out_hint(call->out, "It has no time to live, and stays until it is "
                                "removed: snowshed invalidate does that.");
    return v.is_answered ? CLI_YES : CLI_NO;
}

static int print_payload(const struct cli_call *call, const struct cli_entry *e)
{
    bool is_null = cli_entry_is_null(e);

    if (e->kind != CLI_VALUE || is_null)
        cli_fail(call, CLI_NO, "there is no payload: %s; see it without --raw",
                 is_null ? "the row is NULL" : cli_kinds[e->kind].name);
    (void)fwrite(e->entry.payload, 1, e->entry.payload_size, stdout);
    return CLI_YES;
}

int cli_get(struct cli_call *call)
{
    struct cli_key key;
    struct cli_entry entry;
    struct cli_tags *tags;
    int status;

    if (call->is_raw && call->is_json)
        cli_fail(call, CLI_USAGE, "--raw and --json exclude each other");
    cli_key_init(&key, call);
    cli_redis_open(call);
    cli_entry_read(call->redis, &key, &entry);
    tags = cli_tags_open(call->redis, call->words[0]);
    cli_tags_read(tags);
    cli_entry_judge(&entry, tags);
    status = (call->is_raw ? print_payload : show)(call, &entry);
    cli_tags_close(tags);
    cli_entry_free(&entry);
    return status;
}
