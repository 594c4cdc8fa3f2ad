/* Reading one key of a cache. It writes nothing. */
#include "cli/entry_view.h"

#include "base/clock.h"

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

static enum cli_kind kind_of_type(enum shed_entry_type type)
{
    static const enum cli_kind kinds[] = {[SHED_ENTRY_LEASE] = CLI_LEASE,
                                          [SHED_ENTRY_VALUE] = CLI_VALUE,
                                          [SHED_ENTRY_NEGATIVE] = CLI_NEGATIVE,
                                          [SHED_ENTRY_FAILURE] = CLI_FAILURE};

    return kinds[type];
}

static enum cli_kind kind_of(enum shed_entry_state state,
                             const struct shed_entry *entry)
{
    if (state == SHED_ENTRY_OK)
        return kind_of_type(entry->type);
    return state == SHED_ENTRY_CORRUPT ? CLI_DAMAGED : CLI_FOREIGN;
}

enum cli_kind cli_kind_of_header(const void *head, size_t size,
                                 struct shed_entry *out)
{
    return kind_of(shed_entry_decode_header(head, size, out), out);
}

enum cli_kind cli_kind_of_answer(const struct shed_reply *head,
                                 struct shed_entry *out)
{
    struct shed_bytes bytes = cli_redis_bytes(head);

    if (bytes.data == NULL)
        return CLI_OTHER;
    if (shed_entry_decode_header(bytes.data, bytes.size, out) ==
        SHED_ENTRY_FOREIGN)
        return CLI_FOREIGN;
    return kind_of_type(out->type);
}

void cli_entry_decode(struct cli_entry *e, const struct cli_key *key,
                      struct shed_reply *reply)
{
    *e = (struct cli_entry){
        .key = key, .reply = reply, .bytes = cli_redis_bytes(reply)};
    e->kind = shed_reply_is_nil(reply) ? CLI_NONE : CLI_OTHER;
    if (e->bytes.data == NULL)
        return;
    e->kind =
        kind_of(shed_entry_decode(shed_key_of_entry(&key->named.key),
                                  e->bytes.data, e->bytes.size, &e->entry),
                &e->entry);
    if (e->kind == CLI_FOREIGN)
        e->format = shed_entry_format(e->bytes.data, e->bytes.size);
    if (e->kind == CLI_LEASE)
        shed_entry_holder(e->bytes.data, &e->holder);
}

/* Room for the key of a refresh. */
struct refresh_key {
    char at[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
};

static struct shed_bytes refresh_of(struct shed_bytes name,
                                    struct refresh_key *room)
{
    return shed_bytes(room->at,
                      shed_entry_refresh_key(name.data, name.size, room->at));
}

void cli_entry_read(struct cli_redis *redis, const struct cli_key *key,
                    struct cli_entry *e)
{
    struct refresh_key room;
    struct shed_bytes name = cli_key_name(key);
    struct shed_bytes bytes, refresh = refresh_of(name, &room);
    struct shed_reply *reply;

    cli_redis_send_key(redis, "GET KEY", name);
    cli_redis_send_key(redis, "PTTL KEY", name);
    cli_redis_send_key(redis, "GET KEY", refresh);
    cli_redis_send_key(redis, "PTTL KEY", refresh);
    cli_redis_send(redis, "TIME");
    cli_entry_decode(e, key, cli_redis_hear_key(redis, "GET"));
    e->pttl = cli_redis_hear_integer(redis, "PTTL");
    reply = cli_redis_hear_key(redis, "GET"); /* or the marker of a failure */
    bytes = cli_redis_bytes(reply);
    e->has_refresh_failed =
        bytes.data != NULL &&
        cli_kind_of_header(bytes.data, bytes.size, &e->refresh) == CLI_FAILURE;
    shed_reply_free(reply);
    e->refresh_pttl = cli_redis_hear_integer(redis, "PTTL");
    e->now_ms = cli_redis_hear_clock_ms(redis);
    e->age_ms = shed_left_ms(e->now_ms, e->entry.written_ms);
    e->left_ms = shed_left_ms(e->entry.until_ms, e->now_ms);
    e->presence.process = e->holder.process;
    if (e->kind == CLI_LEASE && e->holder.epoch != 0)
        cli_presence_read(redis, e->holder.process, e->holder.epoch,
                          &e->presence);
}

void cli_entry_judge(struct cli_entry *e, const struct cli_tags *tags)
{
    if (cli_kind_is_stored(e->kind))
        cli_tags_judge(tags, &e->entry, &e->miss);
}

void cli_entry_send_unlink(struct cli_redis *redis, struct shed_bytes name)
{
    struct refresh_key room;
    struct shed_bytes refresh = refresh_of(name, &room);

    cli_redis_about(redis, name);
    cli_redis_send(redis, "UNLINK %.*s %.*s", (int)name.size,
                   (const char *)name.data, (int)refresh.size,
                   (const char *)refresh.data);
}

void cli_entry_free(struct cli_entry *e)
{
    shed_reply_free(e->reply);
    e->reply = NULL;
}

bool cli_entry_is_null(const struct cli_entry *e)
{
    return e->kind == CLI_VALUE && (e->entry.flags & SHED_ENTRY_NULL) != 0;
}

const char *cli_entry_code(const struct cli_entry *e)
{
    return shed_code_name((enum shed_code)e->entry.row_version);
}
