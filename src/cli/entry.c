/* One key of a cache: read, and then shown fact by fact. It writes nothing. */
#include "cli/entry.h"

#include "base/clock.h"

/* The first bytes may tell an operator who wrote the value. */
#define BEGINNING_BYTES 64

#define US_PER_MS 1000

#define REFRESH_KEY_MAX_BYTES                                                  \
    (SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES)

const struct cli_kind_names cli_kinds[CLI_KINDS] = {
    [CLI_NONE] = {"none", "no entry"},
    [CLI_VALUE] = {"value", "a row"},
    [CLI_NEGATIVE] = {"negative", "no such row (a negative entry)"},
    [CLI_LEASE] = {"lease", "being loaded (a lease)"},
    [CLI_FAILURE] = {"failure", "a load failed (a failure marker)"},
    [CLI_DAMAGED] = {"damaged", "damaged, or the entry of another key"},
    [CLI_FOREIGN] = {"foreign", "not an entry of this library"},
    [CLI_OTHER] = {"other", "not a string: a list, hash, set or stream"}};

bool cli_kind_is_stored(enum cli_kind kind)
{
    return kind == CLI_VALUE || kind == CLI_NEGATIVE;
}

bool cli_kind_is_decoded(enum cli_kind kind)
{
    return cli_kind_is_stored(kind) || kind == CLI_LEASE || kind == CLI_FAILURE;
}

static enum cli_kind kind_of(enum shed_entry_state state,
                             const struct shed_entry *entry)
{
    static const enum cli_kind kinds[] = {[SHED_ENTRY_LEASE] = CLI_LEASE,
                                          [SHED_ENTRY_VALUE] = CLI_VALUE,
                                          [SHED_ENTRY_NEGATIVE] = CLI_NEGATIVE,
                                          [SHED_ENTRY_FAILURE] = CLI_FAILURE};

    if (state == SHED_ENTRY_OK)
        return kinds[entry->type];
    return state == SHED_ENTRY_CORRUPT ? CLI_DAMAGED : CLI_FOREIGN;
}

enum cli_kind cli_kind_of(const struct shed_reply *head, long long size,
                          struct shed_entry *out)
{
    struct shed_bytes bytes = cli_redis_bytes(head);
    enum shed_entry_state state;

    if (bytes.data == NULL)
        return CLI_OTHER;
    state = shed_entry_decode_header(bytes.data,
                                     size < 0 ? bytes.size : (size_t)size, out);
    return kind_of(
        size < 0 && state == SHED_ENTRY_CORRUPT ? SHED_ENTRY_OK : state, out);
}

void cli_entry_decode(struct cli_entry *e, const struct cli_key *key,
                      struct shed_reply *reply)
{
    *e = (struct cli_entry){
        .key = key, .reply = reply, .bytes = cli_redis_bytes(reply)};
    e->kind = shed_reply_is_nil(reply) ? CLI_NONE : CLI_OTHER;
    if (e->bytes.data == NULL)
        return;
    e->kind = kind_of(shed_entry_decode(key->named.key.redis, e->bytes.data,
                                        e->bytes.size, &e->entry),
                      &e->entry);
    if (e->kind == CLI_LEASE)
        shed_entry_holder(e->bytes.data, &e->holder);
}

void cli_entry_read(struct cli_redis *redis, const struct cli_key *key,
                    struct cli_entry *e)
{
    char room[REFRESH_KEY_MAX_BYTES];
    struct shed_bytes name = key->named.key.redis;
    struct shed_bytes refresh = shed_entry_refresh_key(name, room);
    struct shed_reply *reply;

    cli_redis_send_key(redis, "GET KEY", name);
    cli_redis_send_key(redis, "PTTL KEY", name);
    cli_redis_send_key(redis, "GET KEY", refresh);
    cli_redis_send_key(redis, "PTTL KEY", refresh);
    cli_redis_send(redis, "TIME");
    cli_entry_decode(e, key, cli_redis_hear_key(redis, "GET", false));
    e->pttl = cli_redis_hear_integer(redis, "PTTL");
    reply = cli_redis_hear_key(redis, "GET",
                               false); /* or the marker of a failure */
    e->has_refresh_failed =
        cli_kind_of(reply, (long long)cli_redis_bytes(reply).size,
                    &e->refresh) == CLI_FAILURE;
    shed_reply_free(reply);
    e->refresh_pttl = cli_redis_hear_integer(redis, "PTTL");
    e->now_ms = cli_redis_hear_clock_ms(redis);
    e->left_ms = shed_left_ms(e->entry.until_ms, e->now_ms);
    e->presence.process = e->holder.process;
    if (e->kind == CLI_LEASE && e->holder.epoch != 0)
        cli_presence_read(redis, e->holder.process, e->holder.epoch,
                          &e->presence);
}

void cli_entry_judge(struct cli_entry *e, const struct cli_tags *tags)
{
    if (cli_kind_is_stored(e->kind))
        e->miss = cli_tags_judge(tags, &e->entry);
}

void cli_entry_send_unlink(struct cli_redis *redis, struct shed_bytes name)
{
    char room[REFRESH_KEY_MAX_BYTES];
    struct shed_bytes refresh = shed_entry_refresh_key(name, room);

    cli_redis_about(redis, name);
    cli_redis_send(redis, "UNLINK %.*s %.*s", (int)name.size,
                   (const char *)name.data, (int)refresh.size,
                   (const char *)refresh.data);
}

bool cli_entry_is_null(const struct cli_entry *e)
{
    return e->kind == CLI_VALUE && (e->entry.flags & SHED_ENTRY_NULL) != 0;
}

/* ----------------------------------------------------------------- showing */

static void show_name(const struct cli_entry *e, json_t *out)
{
    int format = e->kind == CLI_FOREIGN
                     ? shed_entry_format(e->bytes.data, e->bytes.size)
                     : -1;

    cli_out_text(out, "cache", e->key->cache);
    cli_out_bytes(out, "key", shed_key_bytes(&e->key->named.key));
    cli_out_bytes(out, "redis_key", e->key->named.key.redis);
    cli_out_text(out, "type", cli_kinds[e->kind].name);
    cli_out_text(out, "description",
                 cli_entry_is_null(e) ? "a row whose value is NULL"
                 : format >= 0        ? "an entry of a format that this "
                                        "version does not know"
                                      : cli_kinds[e->kind].text);
    if (format >= 0)
        cli_out_number(out, "format", (uint64_t)format);
    if (e->kind != CLI_NONE && e->kind != CLI_OTHER)
        cli_out_number(out, "size", e->bytes.size);
    cli_out_maybe(out, "ttl_ms", e->pttl >= 0, e->pttl);
}

static void show_refresh(const struct cli_entry *e, json_t *out)
{
    if (e->has_refresh_failed) {
        cli_out_number(out, "refresh_failed_ms",
                       shed_left_ms(e->now_ms, e->refresh.written_ms));
        cli_out_number(out, "refresh_again_in_ms",
                       shed_left_ms(e->refresh.until_ms, e->now_ms));
    } else if (e->refresh_pttl != -2) {
        cli_out_maybe(out, "refresh_left_ms", e->refresh_pttl >= 0,
                      e->refresh_pttl);
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
        /* positions are the server's clock in microseconds */
        cli_out_number(out, "invalidated_ms", e->miss.position / US_PER_MS);
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
    cli_out_number(out, "age_ms", shed_left_ms(e->now_ms, e->entry.written_ms));
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
    cli_out_text(out, "code",
                 shed_code_name((enum shed_code)e->entry.row_version));
    cli_out_bytes(out, "reason",
                  shed_bytes(e->entry.payload, e->entry.payload_size));
}
