/* One key of a cache, each fact with its line and its members. */
#include "cli/entry_view.h"

#include <inttypes.h>

#include "base/clock.h"

/* Do not flood a terminal with a payload of megabytes; --raw prints all of
 * it. */
#define BEGINNING_BYTES 64
#define PAYLOAD_SHOWN_BYTES 1024

static const char *describe(const struct cli_entry *e)
{
    if (cli_entry_is_null(e))
        return "a row whose value is NULL";
    if (e->kind == CLI_FOREIGN && e->format >= 0)
        return "an entry of a format that this version does not know";
    return cli_kinds[e->kind].text;
}

static void show_name(const struct cli_entry *e, json_t *out)
{
    bool is_ours = e->kind != CLI_FOREIGN || e->format >= 0;

    cli_out_print(out, "%s  %s\n", cli_escape(cli_key_name(e->key)).at,
                  describe(e));
    cli_out_text(out, "cache", e->key->cache);
    cli_out_bytes(out, "key", cli_key_bytes(e->key));
    cli_out_bytes(out, "redis_key", cli_key_name(e->key));
    cli_out_text(out, "type", cli_kinds[e->kind].name);
    if (e->kind == CLI_FOREIGN && e->format >= 0) {
        cli_out_line(out, "format", "%d", e->format);
        cli_out_number(out, "format", (uint64_t)e->format);
    }
    if (e->kind != CLI_NONE && e->kind != CLI_OTHER) {
        cli_out_line(out, "size", "%s%s", cli_size(e->bytes.size).at,
                     is_ours ? " with the header" : "");
        cli_out_number(out, "size", e->bytes.size);
    }
}

static void show_refresh(const struct cli_entry *e, json_t *out)
{
    uint64_t since_ms = shed_left_ms(e->now_ms, e->refresh.written_ms);
    uint64_t pause_ms = shed_left_ms(e->refresh.until_ms, e->now_ms);

    if (e->has_refresh_failed) {
        cli_out_line(out, "refresh", "failed %s ago, to be tried again%s%s",
                     cli_duration(since_ms).at, pause_ms > 0 ? " in " : "",
                     pause_ms > 0 ? cli_duration(pause_ms).at : "");
        cli_out_number(out, "refresh_failed_ms", since_ms);
    } else if (e->refresh_pttl != -2) {
        uint64_t left_ms = e->refresh_pttl > 0 ? (uint64_t)e->refresh_pttl : 0;
        cli_out_line(out, "refresh", "under way, for %s at most",
                     cli_duration(left_ms).at);
        cli_out_ms(out, "refresh_left_ms", e->refresh_pttl);
    }
}

static void show_ttl(const struct cli_entry *e, json_t *out)
{
    if (e->pttl == -1)
        cli_out_line(out, "ttl",
                     "none: it stays until it is removed; snowshed invalidate "
                     "removes it");
    else if (e->pttl >= 0)
        cli_out_line(out, "ttl", "%s", cli_duration((uint64_t)e->pttl).at);
    cli_out_ms(out, "ttl_ms", e->pttl);
}

/* The first bytes may tell an operator who wrote the value. */
static void show_beginning(const struct cli_entry *e, json_t *out)
{
    size_t size = e->bytes.size;

    if (size > 0)
        cli_out_line_bytes(out, "bytes", e->bytes, BEGINNING_BYTES);
    cli_out_bytes(out, "begins",
                  shed_bytes(e->bytes.data,
                             size < BEGINNING_BYTES ? size : BEGINNING_BYTES));
}

static void show_origin(const struct cli_entry *e, json_t *out)
{
    bool is_lease = e->kind == CLI_LEASE;
    struct cli_text hex =
        cli_hex(shed_entry_version(e->bytes.data), SHED_ENTRY_VERSION_BYTES);

    cli_out_line(out, "age", "%s (%s %s)", cli_duration(e->age_ms).at,
                 is_lease ? "taken or renewed" : "written",
                 cli_date(e->entry.written_ms).at);
    cli_out_number(out, "written_ms", e->entry.written_ms);
    cli_out_number(out, "age_ms", e->age_ms);
    cli_out_line(out, is_lease ? "version" : "nonce", "%s", hex.at);
    cli_out_text(out, is_lease ? "data_version" : "nonce", hex.at);
}

/* The end of a lease, or of the freshness of a row. */
static void show_end(const struct cli_entry *e, json_t *out)
{
    const char *name = e->kind == CLI_LEASE ? "lease" : "fresh";
    uint64_t until_ms = e->entry.until_ms;

    if (until_ms == 0)
        cli_out_line(out, "fresh", "no: it is there only for its refresh");
    else if (e->left_ms == 0)
        cli_out_line(out, name, "not since %s",
                     cli_duration(e->now_ms - until_ms).at);
    else
        cli_out_line(out, name, "for %s", cli_duration(e->left_ms).at);
}

static void show_lease(const struct cli_entry *e, json_t *out)
{
    json_t *holder = cli_out_object(out, "holder");

    cli_out_line(out, "holder", "process %s, flight %" PRIu32,
                 cli_presence_text(&e->presence).at, e->holder.flight);
    cli_presence_members(holder, &e->presence);
    cli_out_number(holder, "flight", e->holder.flight);
    cli_out_number(out, "lease_left_ms", e->left_ms);
}

static void show_tags(const struct shed_entry *entry, json_t *out)
{
    json_t *tags = entry->tags_size > 0 ? cli_out_list(out, "tags") : NULL;
    size_t at = 0, size;
    const unsigned char *tag;

    if ((entry->flags & SHED_ENTRY_POSITION) != 0) {
        cli_out_line(out, "position", "%" PRIu64, entry->position);
        cli_out_number(out, "position", entry->position);
    }
    while ((tag = shed_entry_next_tag(entry->tags, entry->tags_size, &at,
                                      &size)) != NULL) {
        cli_out_line_bytes(out, "tag", shed_bytes(tag, size), SIZE_MAX);
        cli_out_bytes(cli_out_item(tags), "tag", shed_bytes(tag, size));
    }
}

static void show_miss(const struct cli_miss *miss, json_t *out)
{
    if (miss->position == 0 && miss->is_above)
        cli_out_line(out, "miss",
                     "it is from after all that the log of tags "
                     "has");
    if (miss->position == 0)
        return;
    cli_out_line(out, "miss", "%s", cli_miss_text(miss).at);
    cli_out_number(out, "invalidated_ms", miss->ms);
    if (miss->tag.size > 0)
        cli_out_bytes(out, "invalidated_tag", miss->tag);
    else
        cli_out_text(out, "invalidated_tag", NULL);
}

static void show_stored(const struct cli_entry *e, json_t *out)
{
    const struct shed_entry *entry = &e->entry;
    struct shed_bytes payload = shed_bytes(entry->payload, entry->payload_size);

    cli_out_number(out, "fresh_until_ms", entry->until_ms);
    cli_out_flag(out, "is_stale", e->left_ms == 0);
    if ((entry->flags & SHED_ENTRY_ROW_VERSION) != 0) {
        cli_out_line(out, "row version", "%" PRIu64, entry->row_version);
        cli_out_number(out, "row_version", entry->row_version);
    }
    show_tags(entry, out);
    show_miss(&e->miss, out);
    if (cli_entry_is_null(e)) {
        cli_out_text(out, "payload", NULL);
    } else if (e->kind == CLI_VALUE) {
        cli_out_line_bytes(out, "payload", payload, PAYLOAD_SHOWN_BYTES);
        cli_out_bytes(out, "payload", payload);
    }
}

void cli_entry_show(const struct cli_entry *e, json_t *out)
{
    struct shed_bytes payload =
        shed_bytes(e->entry.payload, e->entry.payload_size);

    show_name(e, out);
    show_ttl(e, out);
    show_refresh(e, out);
    if (e->kind == CLI_FOREIGN || e->kind == CLI_DAMAGED)
        show_beginning(e, out);
    if (!cli_kind_is_decoded(e->kind))
        return;
    show_origin(e, out);
    if (e->kind != CLI_FAILURE)
        show_end(e, out);
    if (e->kind == CLI_LEASE) {
        show_lease(e, out);
        return;
    }
    cli_out_line(out, "cost", "%s to load", cli_duration(e->entry.cost_ms).at);
    cli_out_number(out, "cost_ms", e->entry.cost_ms);
    if (e->kind != CLI_FAILURE) {
        show_stored(e, out);
        return;
    }
    cli_out_line(out, "code", "%s", cli_entry_code(e));
    cli_out_text(out, "code", cli_entry_code(e));
    cli_out_line_bytes(out, "reason", payload, PAYLOAD_SHOWN_BYTES);
    cli_out_bytes(out, "reason", payload);
}
