/* get: shows one key, and explains what a caller of it would get now. It writes
 * nothing, so whether Redis takes writes is a question for doctor. */
#include <stdio.h>
#include <string.h>

#include "cli/entry.h"
#include "known/tag_log.h"

/* What a caller would find: a word for scripts, and a sentence; what it says of
 * times are members of the entry. */
struct verdict {
    const char *would, *text;
};

static struct verdict judge_stored(const struct cli_entry *e)
{
    if (e->miss.position > 0)
        return (struct verdict){
            "load", "It would load, a miss: a tag of the entry, or all "
                    "entries, were invalidated after it was loaded. The next "
                    "caller takes the lease and loads; nobody is given what "
                    "is here, not even as stale."};
    if (e->miss.is_above)
        return (struct verdict){
            "load",
            "It would load, a miss: the entry is from after an invalidation "
            "that the log CACHE" SHED_TAG_LOG_SUFFIX " does not have, so the "
            "log has lost its end (by a failover, an eviction, DEL). The "
            "process that finds this adds \"all entries\" to it."};
    if (e->entry.until_ms == 0)
        return (struct verdict){
            "wait", "It would wait for a load: this entry has ended, and is "
                    "there only for the refresh that is under way."};
    if (e->left_ms == 0)
        return (struct verdict){
            "stale", "It would find an old entry: served or loaded again, as "
                     "the cache's policy says."};
    if (e->kind == CLI_VALUE)
        return (struct verdict){"hit", "It would be a hit: a row."};
    return (struct verdict){"negative hit",
                            "It would be a hit: \"no such row\"."};
}

/* 150 ms is the longest pause between two looks of a waiter. */
static struct verdict judge_lease(const struct cli_entry *e)
{
    if (e->left_ms == 0)
        return (struct verdict){"take over",
                                "It would load: the lease is over, and the "
                                "next caller takes it over."};
    if (e->presence.life == CLI_GONE)
        return (struct verdict){
            "take over",
            "It would load: the process that holds the lease is gone. A "
            "caller or waiter notices that within 150 ms, and one takes it "
            "over 100 ms later."};
    if (e->presence.life == CLI_ALIVE)
        return (struct verdict){
            "wait", "It would wait for a load: the process is alive, and is "
                    "replaced if it does not renew its lease in time."};
    return (struct verdict){
        "wait", "It would wait for a load. Whether the process is alive "
                "cannot be seen; it is replaced if it does not renew its "
                "lease in time."};
}

static struct verdict judge_failure(const struct cli_entry *e)
{
    if (e->left_ms > 0)
        return (struct verdict){"fail", "It would fail, as the load did; later "
                                        "the next caller loads."};
    return (struct verdict){"load",
                            "It would load: what a load failed with is kept "
                            "for callers who waited for it."};
}

static struct verdict judge(const struct cli_entry *e)
{
    switch (e->kind) {
    case CLI_VALUE:
    case CLI_NEGATIVE:
        return judge_stored(e);
    case CLI_LEASE:
        return judge_lease(e);
    case CLI_FAILURE:
        return judge_failure(e);
    case CLI_NONE:
        return (struct verdict){
            "load", "It would load: there is nothing, so it takes the lease."};
    case CLI_DAMAGED:
    case CLI_FOREIGN:
    case CLI_OTHER:
        break;
    }
    return (struct verdict){
        "load", "It would load, and replace what is there, which its library "
                "cannot read either if it is of this version."};
}

/* --------------------------------------------------------------------- get */

static int show(const struct cli_call *call, const struct cli_entry *e)
{
    struct verdict v = judge(e);
    bool is_answered = strstr(v.would, "hit") != NULL;
    json_t *caller;

    cli_entry_show(e, call->out);
    caller = cli_out_object(call->out, "caller");
    cli_out_text(caller, "would", v.would);
    cli_out_flag(caller, "is_answered", is_answered);
    cli_out_text(caller, "text", v.text);
    if (e->pttl == -1)
        cli_out_hint(call->out, "It has no time to live, and stays until it is "
                                "removed: snowshed invalidate does that.");
    return is_answered ? CLI_YES : CLI_NO;
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
    shed_reply_free(entry.reply);
    return status;
}
