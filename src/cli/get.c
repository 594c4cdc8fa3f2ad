/* get: shows one key, and explains what a caller of it would get now. */
#include <stdio.h>
#include <string.h>

#include "cli/entry_view.h"
#include "known/tag_log.h"
#include "cli/writes.h"

/* What a caller would find. */
enum verdict {
    HIT,
    NEGATIVE_HIT,
    ENDED,
    STALE,
    INVALIDATED,
    ABOVE, /* the end of the log of tags */
    HELD,
    HELD_BY_SOMEBODY,
    HOLDER_GONE,
    LEASE_OVER,
    FAILED,
    HAD_FAILED,
    NOTHING,
    STRANGE
};

/* As a word for scripts, and as a sentence; what it says of times are members
 * of the entry. 150 ms is the longest pause between two looks of a waiter. */
static const struct {
    const char *would, *text;
} verdicts[] = {
    [HIT] = {"hit", "It would be a hit: a row."},
    [NEGATIVE_HIT] = {"negative hit", "It would be a hit: \"no such row\"."},
    [ENDED] = {"wait", "It would wait for a load: this entry has ended, and is "
                       "there only for the refresh that is under way."},
    [STALE] = {"stale", "It would find an old entry: served or loaded again, "
                        "as the cache's policy says."},
    [INVALIDATED] = {"load",
                     "It would load, a miss: a tag of the entry, or all "
                     "entries, were invalidated after it was loaded. The next "
                     "caller takes the lease and loads; nobody is given what "
                     "is here, not even as stale."},
    [ABOVE] = {"load",
               "It would load, a miss: the entry is from after an invalidation "
               "that the log CACHE" SHED_TAG_LOG_SUFFIX " does not have, so "
               "the log has lost its end (by a failover, an eviction, DEL). "
               "The process that finds this adds \"all entries\" to it."},
    [HELD] = {"wait", "It would wait for a load: the process is alive, and is "
                      "replaced if it does not renew its lease in time."},
    [HELD_BY_SOMEBODY] = {"wait", "It would wait for a load. Whether the "
                                  "process is alive cannot be seen; it is "
                                  "replaced if it does not renew its lease in "
                                  "time."},
    [HOLDER_GONE] = {"take over",
                     "It would load: the process that holds the lease is gone. "
                     "A caller or waiter notices that within 150 ms, and one "
                     "takes it over 100 ms later."},
    [LEASE_OVER] = {"take over", "It would load: the lease is over, and the "
                                 "next caller takes it over."},
    [FAILED] = {"fail", "It would fail, as the load did; later the next caller "
                        "loads."},
    [HAD_FAILED] = {"load", "It would load: what a load failed with is kept "
                            "for callers who waited for it."},
    [NOTHING] = {"load",
                 "It would load: there is nothing, so it takes the lease."},
    [STRANGE] = {"load",
                 "It would load, and replace what is there, which its library "
                 "cannot read either if it is of this version."}};

static enum verdict judge_stored(const struct cli_entry *e)
{
    if (e->miss.position > 0)
        return INVALIDATED;
    if (e->miss.is_above)
        return ABOVE;
    if (e->entry.until_ms == 0)
        return ENDED;
    if (e->left_ms == 0)
        return STALE;
    return e->kind == CLI_VALUE ? HIT : NEGATIVE_HIT;
}

static enum verdict judge_lease(const struct cli_entry *e)
{
    if (e->left_ms == 0)
        return LEASE_OVER;
    if (e->presence.life == CLI_GONE)
        return HOLDER_GONE;
    return e->presence.life == CLI_ALIVE ? HELD : HELD_BY_SOMEBODY;
}

static enum verdict judge(const struct cli_entry *e)
{
    switch (e->kind) {
    case CLI_VALUE:
    case CLI_NEGATIVE:
        return judge_stored(e);
    case CLI_LEASE:
        return judge_lease(e);
    case CLI_FAILURE:
        return e->left_ms > 0 ? FAILED : HAD_FAILED;
    case CLI_NONE:
        return NOTHING;
    case CLI_DAMAGED:
    case CLI_FOREIGN:
    case CLI_OTHER:
        break;
    }
    return STRANGE;
}

/* While Redis refuses writes, a caller can neither take a lease nor take one
 * over. */
static void show_refusal(const struct cli_writes *writes, json_t *caller)
{
    if (writes->is_silent)
        cli_out_text(caller, "would", "wait");
    cli_out_text(
        caller, "text",
        cli_format(
            "%s (%s). %s To do: %s",
            writes->is_silent
                ? "It would wait until its deadline: Redis does not answer "
                  "writes"
                : "It would load without a lease, as every process does for "
                  "itself now, or fail, as the cache's policy says: Redis "
                  "refuses writes",
            cli_escape(shed_str(writes->error)).at, writes->means,
            writes->advice)
            .at);
}

/* --------------------------------------------------------------------- get */

static int show(const struct cli_call *call, const struct cli_entry *e)
{
    enum verdict v = judge(e);
    const char *would = verdicts[v].would;
    bool is_answered = v == HIT || v == NEGATIVE_HIT;
    struct cli_writes writes = {.error = ""};
    json_t *caller;

    if (strcmp(would, "load") == 0 || strcmp(would, "take over") == 0)
        cli_writes_read(call->redis, cli_key_name(e->key), &writes);
    cli_entry_show(e, call->out);
    caller = cli_out_object(call->out, "caller");
    cli_out_text(caller, "would", would);
    cli_out_flag(caller, "is_answered", is_answered);
    cli_out_text(caller, "writes_refused",
                 writes.error[0] != '\0' ? writes.error : NULL);
    cli_out_text(caller, "text", verdicts[v].text);
    if (writes.error[0] != '\0')
        show_refusal(&writes, caller);
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
    cli_entry_free(&entry);
    return status;
}
