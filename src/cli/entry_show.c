/* One key of a cache, fact by fact. */
#include "cli/entry_view.h"

#include "base/clock.h"

/* The first bytes may tell an operator who wrote the value. */
#define BEGINNING_BYTES 64

static void show_name(const struct cli_entry *e, json_t *out)
{
    bool is_of_other_version = e->kind == CLI_FOREIGN && e->format >= 0;

    cli_out_text(out, "cache", e->key->cache);
    cli_out_bytes(out, "key", cli_key_bytes(e->key));
    cli_out_bytes(out, "redis_key", cli_key_name(e->key));
    cli_out_text(out, "type", cli_kinds[e->kind].name);
    cli_out_text(out, "description",
                 cli_entry_is_null(e)  ? "a row whose value is NULL"
                 : is_of_other_version ? "an entry of a format that this "
                                         "version does not know"
                                       : cli_kinds[e->kind].text);
    if (is_of_other_version)
        cli_out_number(out, "format", (uint64_t)e->format);
    if (e->kind != CLI_NONE && e->kind != CLI_OTHER)
        cli_out_number(out, "size", e->bytes.size);
    cli_out_ms(out, "ttl_ms", e->pttl);
}

static void show_refresh(const struct cli_entry *e, json_t *out)
{
    if (e->has_refresh_failed) {
        cli_out_number(out, "refresh_failed_ms",
                       shed_left_ms(e->now_ms, e->refresh.written_ms));
        cli_out_number(out, "refresh_again_in_ms",
                       shed_left_ms(e->refresh.until_ms, e->now_ms));
    } else if (e->refresh_pttl != -2) {
        cli_out_ms(out, "refresh_left_ms", e->refresh_pttl);
    }
}

static void show_lease(const struct cli_entry *e, json_t *out)
{
    json_t *holder = cli_out_object(out, "holder");

    cli_presence_members(holder, &e->presence);
    cli_out_number(holder, "flight", e->holder.flight);
    cli_out_number(out, "lease_left_ms", e->left_ms);
}

static void show_tags(const struct shed_entry *entry, json_t *out)
{
    json_t *tags = entry->tags_size > 0 ? cli_out_list(out, "tags") : NULL;
    size_t at = 0, size;
    const unsigned char *tag;

    if ((entry->flags & SHED_ENTRY_POSITION) != 0)
        cli_out_number(out, "position", entry->position);
    while ((tag = shed_entry_next_tag(entry->tags, entry->tags_size, &at,
                                      &size)) != NULL)
        cli_out_bytes(cli_out_item(tags), "tag", shed_bytes(tag, size));
}

static void show_stored(const struct cli_entry *e, json_t *out)
{
    const struct shed_entry *entry = &e->entry;

    cli_out_maybe(out, "fresh_until_ms", entry->until_ms > 0,
                  (long long)entry->until_ms);
    cli_out_number(out, "fresh_left_ms", e->left_ms);
    cli_out_flag(out, "is_stale", e->left_ms == 0);
    if ((entry->flags & SHED_ENTRY_ROW_VERSION) != 0)
        cli_out_number(out, "row_version", entry->row_version);
    show_tags(entry, out);
    if (e->miss.position > 0) {
        cli_out_number(out, "invalidated_ms", e->miss.ms);
        if (e->miss.tag.size > 0)
            cli_out_bytes(out, "invalidated_tag", e->miss.tag);
        else
            cli_out_text(out, "invalidated_tag", NULL);
    }
    if (cli_entry_is_null(e))
        cli_out_text(out, "payload", NULL);
    else if (e->kind == CLI_VALUE)
        cli_out_bytes(out, "payload",
                      shed_bytes(entry->payload, entry->payload_size));
}

void cli_entry_show(const struct cli_entry *e, json_t *out)
{
    size_t size = e->bytes.size;

    show_name(e, out);
    show_refresh(e, out);
    if (e->kind == CLI_FOREIGN || e->kind == CLI_DAMAGED)
        cli_out_bytes(out, "begins",
                      shed_bytes(e->bytes.data, size < BEGINNING_BYTES
                                                    ? size
                                                    : BEGINNING_BYTES));
    if (!cli_kind_is_decoded(e->kind))
        return;
    cli_out_number(out, "written_ms", e->entry.written_ms);
    cli_out_number(out, "age_ms", e->age_ms);
    cli_out_text(
        out, e->kind == CLI_LEASE ? "data_version" : "nonce",
        cli_hex(shed_entry_version(e->bytes.data), SHED_ENTRY_VERSION_BYTES)
            .at);
    if (e->kind == CLI_LEASE) {
        show_lease(e, out);
        return;
    }
    cli_out_number(out, "cost_ms", e->entry.cost_ms);
    if (e->kind != CLI_FAILURE) {
        show_stored(e, out);
        return;
    }
    cli_out_number(out, "failure_left_ms", e->left_ms);
    cli_out_text(out, "code", cli_entry_code(e));
    cli_out_bytes(out, "reason",
                  shed_bytes(e->entry.payload, e->entry.payload_size));
}
