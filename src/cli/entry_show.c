/* One key of a cache as text and as JSON, from the same struct. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/entry_view.h"
#include "cli/text.h"

/* Do not flood a terminal with a payload of megabytes; --raw prints all of
 * it. */
#define BEGINNING_BYTES 64
#define PAYLOAD_SHOWN_BYTES 1024

const char *cli_kind_name(enum cli_kind kind)
{
    static const char *const names[CLI_KINDS] = {
        [CLI_NONE] = "none",         [CLI_VALUE] = "value",
        [CLI_NEGATIVE] = "negative", [CLI_LEASE] = "lease",
        [CLI_FAILURE] = "failure",   [CLI_DAMAGED] = "damaged",
        [CLI_FOREIGN] = "foreign",   [CLI_OTHER] = "other"};

    return names[kind];
}

static const char *describe(const struct cli_entry *e)
{
    static const char *const texts[CLI_KINDS] = {
        [CLI_NONE] = "no entry",
        [CLI_VALUE] = "a row",
        [CLI_NEGATIVE] = "no such row (a negative entry)",
        [CLI_LEASE] = "being loaded (a lease)",
        [CLI_FAILURE] = "a load failed (a failure marker)",
        [CLI_DAMAGED] = "damaged, or the entry of another key",
        [CLI_FOREIGN] = "not an entry of this library",
        [CLI_OTHER] = "not a string: a list, hash, set or stream"};

    if (e->kind == CLI_VALUE && (e->entry.flags & SHED_ENTRY_NULL) != 0)
        return "a row whose value is NULL";
    if (e->kind == CLI_FOREIGN && e->format >= 0)
        return "an entry of a format that this version does not know";
    return texts[e->kind];
}

void cli_entry_print_title(const struct cli_entry *e)
{
    cli_print_escaped(stdout, e->key->named.key.redis,
                      e->key->named.key.redis_size, SIZE_MAX);
    printf("  %s\n", describe(e));
}

static void print_failed_refresh(const struct cli_entry *e)
{
    char since[CLI_TEXT_BYTES], left[CLI_TEXT_BYTES];

    (void)cli_duration(since, cli_refresh_failed_ms(e));
    if (cli_refresh_pause_ms(e) == 0)
        cli_line("refresh", "failed %s ago, to be tried again", since);
    else
        cli_line("refresh", "failed %s ago, to be tried again in %s", since,
                 cli_duration(left, cli_refresh_pause_ms(e)));
}

static void print_ttl(const struct cli_entry *e)
{
    char text[CLI_TEXT_BYTES];

    if (e->pttl == -1)
        cli_line("ttl", "none: it stays until it is removed; snowshed "
                        "invalidate removes it");
    else if (e->pttl >= 0)
        cli_line("ttl", "%s", cli_duration(text, (uint64_t)e->pttl));
    if (e->has_refresh_failed)
        print_failed_refresh(e);
    else if (e->refresh_pttl != -2)
        cli_line("refresh", "under way, for %s at most",
                 cli_duration(text, e->refresh_pttl > 0
                                        ? (uint64_t)e->refresh_pttl
                                        : 0));
}

static void print_times(const struct cli_entry *e)
{
    char age[CLI_TEXT_BYTES], date[CLI_TEXT_BYTES], left[CLI_TEXT_BYTES];

    cli_line("age", "%s (%s %s)", cli_duration(age, cli_entry_age_ms(e)),
             e->kind == CLI_LEASE ? "taken or renewed" : "written",
             cli_date(date, e->entry.written_ms));
    if (e->kind == CLI_FAILURE)
        return;
    if (e->entry.until_ms == 0)
        cli_line("fresh", "no: it is there only for its refresh");
    else if (cli_entry_is_stale(e))
        cli_line(e->kind == CLI_LEASE ? "lease" : "fresh", "not since %s",
                 cli_duration(left, e->now_ms - e->entry.until_ms));
    else
        cli_line(e->kind == CLI_LEASE ? "lease" : "fresh", "for %s",
                 cli_duration(left, e->entry.until_ms - e->now_ms));
}

static void print_holder(const struct cli_entry *e)
{
    cli_field("holder");
    (void)fputs("process ", stdout);
    cli_presence_print(e->holder.process, &e->presence);
    printf(", flight %" PRIu64 "\n", e->holder.flight);
}

static void print_payload(const struct cli_entry *e)
{
    bool is_failure = e->kind == CLI_FAILURE;

    if (is_failure)
        cli_line("code", "%s",
                 shed_code_name((enum shed_code)e->entry.row_version));
    else if ((e->entry.flags & SHED_ENTRY_NULL) != 0 || e->kind == CLI_NEGATIVE)
        return;
    cli_field(is_failure ? "reason" : "payload");
    cli_print_escaped(stdout, e->entry.payload, e->entry.payload_size,
                      PAYLOAD_SHOWN_BYTES);
    (void)putchar('\n');
}

static void print_nonce(const struct cli_entry *e)
{
    char hex[2 * SHED_ENTRY_VERSION_BYTES + 1];
    size_t size;
    const char *bytes = shed_reply_bytes(e->reply, &size);

    cli_line(e->kind == CLI_LEASE ? "version" : "nonce", "%s",
             cli_hex(hex, shed_entry_version(bytes), SHED_ENTRY_VERSION_BYTES));
}

static void print_tags(const struct cli_entry *e)
{
    size_t at = 0, size;
    const unsigned char *tag;

    if ((e->entry.flags & SHED_ENTRY_POSITION) != 0)
        cli_line("position", "%" PRIu64, e->entry.position);
    while ((tag = shed_entry_next_tag(e->entry.tags, e->entry.tags_size, &at,
                                      &size)) != NULL) {
        cli_field("tag");
        cli_print_escaped(stdout, tag, size, SIZE_MAX);
        (void)putchar('\n');
    }
}

static void print_miss(const struct cli_miss *miss)
{
    char date[CLI_TEXT_BYTES];

    if (miss->position == 0 && miss->is_above)
        cli_line("miss", "it is from after all that the log of tags has");
    if (miss->position == 0)
        return;
    cli_field("miss");
    if (miss->tag.size > 0) {
        (void)fputs("the tag ", stdout);
        cli_print_escaped(stdout, miss->tag.data, miss->tag.size, SIZE_MAX);
        (void)fputs(" was", stdout);
    } else {
        (void)fputs("all entries were", stdout);
    }
    printf(" invalidated at %s\n", cli_date(date, cli_miss_ms(miss)));
}

static bool is_decoded(const struct cli_entry *e)
{
    return e->kind == CLI_VALUE || e->kind == CLI_NEGATIVE ||
           e->kind == CLI_LEASE || e->kind == CLI_FAILURE;
}

/* Whether it is an entry of any version of the library. */
static bool is_ours(const struct cli_entry *e)
{
    return e->kind != CLI_FOREIGN || e->format >= 0;
}

/* The first bytes may tell an operator who wrote the value. They fill one
 * line. */
static void print_beginning(const struct cli_entry *e)
{
    size_t size = 0, shown = 0, width = 0;
    const char *bytes = shed_reply_bytes(e->reply, &size);

    for (; shown < size; shown++) {
        bool is_plain = bytes[shown] >= ' ' && bytes[shown] <= '~';
        width += is_plain ? 1 : strlen("\\xNN");
        if (width > BEGINNING_BYTES)
            break;
    }
    if (size == 0)
        return;
    cli_field("bytes");
    cli_print_escaped(stdout, bytes, size, shown);
    (void)putchar('\n');
}

void cli_entry_print(const struct cli_entry *e)
{
    char text[CLI_TEXT_BYTES];

    cli_entry_print_title(e);
    if (e->kind == CLI_FOREIGN && e->format >= 0)
        cli_line("format", "%d", e->format);
    if (e->kind != CLI_NONE && e->kind != CLI_OTHER)
        cli_line("size", "%s%s", cli_size(text, e->size),
                 is_ours(e) ? " with the header" : "");
    print_ttl(e);
    if (e->kind == CLI_FOREIGN || e->kind == CLI_DAMAGED)
        print_beginning(e);
    if (!is_decoded(e))
        return;
    print_times(e);
    if (e->kind == CLI_LEASE)
        print_holder(e);
    else
        cli_line("cost", "%s to load", cli_duration(text, e->entry.cost_ms));
    if ((e->entry.flags & SHED_ENTRY_ROW_VERSION) != 0)
        cli_line("row version", "%" PRIu64, e->entry.row_version);
    print_nonce(e);
    if (e->kind == CLI_LEASE)
        return;
    print_tags(e);
    print_miss(&e->miss);
    print_payload(e);
}

/* -------------------------------------------------------------------- JSON */

static void add_lease(json_t *object, const struct cli_entry *e)
{
    json_t *holder = json_object();

    cli_presence_json(holder, e->holder.process, &e->presence);
    json_object_set_new(holder, "flight",
                        json_integer((json_int_t)e->holder.flight));
    json_object_set_new(object, "holder", holder);
    json_object_set_new(object, "lease_left_ms",
                        json_integer((json_int_t)cli_entry_left_ms(e)));
}

static void add_tags(json_t *object, const struct shed_entry *entry)
{
    json_t *tags = json_array();
    size_t at = 0, size;
    const unsigned char *tag;

    if ((entry->flags & SHED_ENTRY_POSITION) != 0)
        json_object_set_new(object, "position",
                            json_integer((json_int_t)entry->position));
    while ((tag = shed_entry_next_tag(entry->tags, entry->tags_size, &at,
                                      &size)) != NULL) {
        json_t *one = json_object();
        cli_json_set_bytes(one, "tag", tag, size);
        json_array_append_new(tags, one);
    }
    if (entry->tags_size > 0)
        json_object_set(object, "tags", tags);
    json_decref(tags);
}

static void add_miss(json_t *object, const struct cli_miss *miss)
{
    if (miss->position == 0)
        return;
    json_object_set_new(object, "invalidated_ms",
                        json_integer((json_int_t)cli_miss_ms(miss)));
    if (miss->tag.size > 0)
        cli_json_set_bytes(object, "invalidated_tag", miss->tag.data,
                           miss->tag.size);
    else
        json_object_set_new(object, "invalidated_tag", json_null());
}

static void add_payload(json_t *object, const struct cli_entry *e)
{
    const struct shed_entry *entry = &e->entry;

    json_object_set_new(object, "cost_ms", json_integer(entry->cost_ms));
    if (e->kind == CLI_FAILURE) {
        json_object_set_new(
            object, "code",
            json_string(shed_code_name((enum shed_code)entry->row_version)));
        cli_json_set_bytes(object, "reason", entry->payload,
                           entry->payload_size);
        return;
    }
    if ((entry->flags & SHED_ENTRY_ROW_VERSION) != 0)
        json_object_set_new(object, "row_version",
                            json_integer((json_int_t)entry->row_version));
    json_object_set_new(object, "fresh_until_ms",
                        json_integer((json_int_t)entry->until_ms));
    json_object_set_new(object, "is_stale",
                        json_boolean(cli_entry_is_stale(e)));
    add_tags(object, entry);
    add_miss(object, &e->miss);
    if (e->kind != CLI_VALUE)
        return;
    if ((entry->flags & SHED_ENTRY_NULL) != 0)
        json_object_set_new(object, "payload", json_null());
    else
        cli_json_set_bytes(object, "payload", entry->payload,
                           entry->payload_size);
}

static void add_header(json_t *object, const struct cli_entry *e)
{
    char hex[2 * SHED_ENTRY_VERSION_BYTES + 1];
    size_t size;
    const char *bytes = shed_reply_bytes(e->reply, &size);

    (void)cli_hex(hex, shed_entry_version(bytes), SHED_ENTRY_VERSION_BYTES);
    json_object_set_new(object, e->kind == CLI_LEASE ? "data_version" : "nonce",
                        json_string(hex));
    json_object_set_new(object, "written_ms",
                        json_integer((json_int_t)e->entry.written_ms));
    json_object_set_new(object, "age_ms",
                        json_integer((json_int_t)cli_entry_age_ms(e)));
    if (e->kind == CLI_LEASE)
        add_lease(object, e);
    else
        add_payload(object, e);
}

static void add_beginning(json_t *object, const struct cli_entry *e)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(e->reply, &size);

    cli_json_set_bytes(object, "begins", bytes,
                       size < BEGINNING_BYTES ? size : BEGINNING_BYTES);
}

json_t *cli_entry_json(const struct cli_entry *e)
{
    json_t *object = json_object();

    json_object_set_new(object, "cache", json_string(e->key->cache));
    cli_key_json(object, e->key);
    cli_json_set_bytes(object, "redis_key", e->key->named.key.redis,
                       e->key->named.key.redis_size);
    json_object_set_new(object, "type", json_string(cli_kind_name(e->kind)));
    json_object_set_new(object, "ttl_ms", cli_json_ms(e->pttl));
    if (e->kind == CLI_FOREIGN && e->format >= 0)
        json_object_set_new(object, "format", json_integer(e->format));
    if (e->kind != CLI_NONE && e->kind != CLI_OTHER)
        json_object_set_new(object, "size", json_integer((json_int_t)e->size));
    if (e->kind == CLI_FOREIGN || e->kind == CLI_DAMAGED)
        add_beginning(object, e);
    if (e->has_refresh_failed)
        json_object_set_new(object, "refresh_failed_ms",
                            json_integer((json_int_t)cli_refresh_failed_ms(e)));
    else if (e->refresh_pttl != -2)
        json_object_set_new(object, "refresh_left_ms",
                            cli_json_ms(e->refresh_pttl));
    if (is_decoded(e))
        add_header(object, e);
    return object;
}
