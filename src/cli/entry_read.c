/* Reading one key of a cache. It writes nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/entry_view.h"
#include "cli/text.h"

#define LAST_OF_HEADER "63"

/* -------------------------------------------------------------------- keys */

const char *cli_fault_of_name(const char *name)
{
    size_t size = strlen(name);

    if (size == 0 || size > SHED_NAME_MAX_BYTES)
        return "a name has 1 to 64 bytes";
    for (const char *c = name; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '{' || *c == '}')
            return "a name is printable ASCII without spaces and braces";
    if (strcmp(name, "lock") == 0)
        return "keys of that form are locks: see 'snowshed lock'";
    return NULL;
}

void cli_check_cache(const struct cli_call *call, const char *name)
{
    const char *fault = cli_fault_of_name(name);

    if (fault != NULL)
        cli_fail(call, CLI_USAGE, "'%.80s' is not a cache name: %s", name,
                 fault);
}

const char *cli_key_set(struct cli_key *key, const char *cache,
                        const void *bytes, size_t size)
{
    if (size == 0)
        return "a key is empty";
    if (size > SHED_KEY_MAX_BYTES)
        return "a key has more than 1024 bytes";
    key->cache = cache;
    shed_key_name(cache, shed_bytes(bytes, size), &key->named);
    return NULL;
}

void cli_key_init(struct cli_key *key, const struct cli_call *call,
                  const char *cache, char *text)
{
    size_t size = call->is_escaped ? cli_unescape(text) : strlen(text);
    const char *fault;

    cli_check_cache(call, cache);
    if (size == SIZE_MAX)
        cli_fail(call, CLI_USAGE,
                 "with --escaped, a \\ must be followed by another \\ or by "
                 "xNN");
    fault = cli_key_set(key, cache, text, size);
    if (fault != NULL)
        cli_fail(call, CLI_USAGE, "%s", fault);
}

const char *cli_key_bytes(const struct cli_key *key)
{
    return key->named.key.redis + key->named.key.at;
}

char *cli_key_word(const struct cli_key *key)
{
    return cli_word(cli_key_bytes(key), key->named.key.size);
}

void cli_key_json(json_t *object, const struct cli_key *key)
{
    cli_json_set_bytes(object, "key", cli_key_bytes(key), key->named.key.size);
}

bool cli_key_parse(struct cli_key *key, const char *cache, const char *redis,
                   size_t size)
{
    size_t name = strlen(cache);
    const char *at = redis + name + 2;

    if (size < name + 4 || memcmp(redis, cache, name) != 0 ||
        memcmp(redis + name, ":{", 2) != 0 || redis[size - 1] != '}')
        return false;
    size -= name + 3;
    if (*at == '\\' && size > 1 && (at[1] == '}' || at[1] == '\\')) {
        at++;
        size--;
    }
    return cli_key_set(key, cache, at, size) == NULL;
}

/* --------------------------------------------------------------- the entry */

enum cli_kind cli_kind_of(enum shed_entry_type type)
{
    switch (type) {
    case SHED_ENTRY_LEASE:
        return CLI_LEASE;
    case SHED_ENTRY_VALUE:
        return CLI_VALUE;
    case SHED_ENTRY_NEGATIVE:
        return CLI_NEGATIVE;
    case SHED_ENTRY_FAILURE:
        return CLI_FAILURE;
    }
    return CLI_FOREIGN;
}

void cli_entry_decode(struct cli_entry *e, const struct shed_reply *reply)
{
    const struct shed_entry_key key = {e->key->named.key.redis,
                                       e->key->named.key.redis_size};
    const char *bytes = shed_reply_bytes(reply, &e->size);

    e->kind = shed_reply_is_nil(reply) ? CLI_NONE : CLI_OTHER;
    if (bytes == NULL)
        return;
    switch (shed_entry_decode(key, bytes, e->size, &e->entry)) {
    case SHED_ENTRY_OK:
        e->kind = cli_kind_of(e->entry.type);
        break;
    case SHED_ENTRY_CORRUPT:
        e->kind = CLI_DAMAGED;
        break;
    case SHED_ENTRY_FOREIGN:
        e->kind = CLI_FOREIGN;
        e->format = shed_entry_format(bytes, e->size);
        break;
    }
    if (e->kind == CLI_LEASE)
        shed_entry_holder(bytes, &e->holder);
}

static void send_reads(struct cli_redis *redis, const char *key, size_t size)
{
    static const char *const commands[] = {"GET", "PTTL"};

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        struct shed_args args = {0};
        shed_args_add_text(&args, commands[i]);
        shed_args_add(&args, key, size);
        cli_redis_send(redis, &args);
    }
}

static long long hear_number(struct cli_redis *redis)
{
    struct shed_reply *reply = cli_redis_hear(redis);
    long long number;

    (void)cli_redis_check(redis, reply, "PTTL");
    number = shed_reply_integer(reply); /* -1 and -2 have meanings */
    shed_reply_free(reply);
    return number;
}

/* What the key of the refresh holds: a lease, or the marker of one that failed.
 */
static void hear_refresh(struct cli_redis *redis, struct cli_entry *e)
{
    struct shed_reply *reply =
        cli_redis_check_key(redis, cli_redis_hear(redis), "GET");
    const char *bytes;
    size_t size = 0;

    bytes = shed_reply_bytes(reply, &size);
    e->has_refresh_failed =
        bytes != NULL &&
        shed_entry_decode_header(bytes, size, &e->refresh) == SHED_ENTRY_OK &&
        e->refresh.type == SHED_ENTRY_FAILURE;
    shed_reply_free(reply);
}

void cli_entry_read(struct cli_redis *redis, const struct cli_key *key,
                    struct cli_entry *e)
{
    char refresh[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
    const char *name = key->named.key.redis;
    size_t size = key->named.key.redis_size;

    *e = (struct cli_entry){.key = key};
    send_reads(redis, name, size);
    send_reads(redis, refresh, shed_entry_refresh_key(name, size, refresh));
    cli_redis_send_words(redis, "TIME");
    e->reply = cli_redis_check_key(redis, cli_redis_hear(redis), "GET");
    e->pttl = hear_number(redis);
    hear_refresh(redis, e);
    e->refresh_pttl = hear_number(redis);
    e->now_ms = cli_redis_hear_clock_ms(redis);
    cli_entry_decode(e, e->reply);
    if (e->kind == CLI_LEASE && (e->entry.flags & SHED_ENTRY_HAS_CHANNEL) != 0)
        cli_presence_read(redis, e->holder.process, &e->presence);
}

void cli_entry_judge(struct cli_entry *e, const struct cli_tags *tags)
{
    if (e->kind == CLI_VALUE || e->kind == CLI_NEGATIVE)
        cli_tags_judge(tags, &e->entry, &e->miss);
}

void cli_entry_send_header(struct cli_redis *redis, const char *name,
                           size_t size)
{
    struct shed_args args = {0};

    shed_args_add_text(&args, "GETRANGE");
    shed_args_add(&args, name, size);
    shed_args_add_text(&args, "0");
    shed_args_add_text(&args, LAST_OF_HEADER);
    cli_redis_send(redis, &args);
}

void cli_entry_send_unlink(struct cli_redis *redis, const char *name,
                           size_t size)
{
    char refresh[SHED_REDIS_KEY_MAX_BYTES + SHED_ENTRY_REFRESH_SUFFIX_BYTES];
    struct shed_args args = {0};

    shed_args_add_text(&args, "UNLINK");
    shed_args_add(&args, name, size);
    shed_args_add(&args, refresh, shed_entry_refresh_key(name, size, refresh));
    cli_redis_send(redis, &args);
}

void cli_entry_free(struct cli_entry *e)
{
    shed_reply_free(e->reply);
    e->reply = NULL;
}

bool cli_entry_is_stale(const struct cli_entry *e)
{
    return e->now_ms >= e->entry.until_ms;
}

uint64_t cli_entry_age_ms(const struct cli_entry *e)
{
    return e->now_ms > e->entry.written_ms ? e->now_ms - e->entry.written_ms
                                           : 0;
}

static uint64_t left_ms(uint64_t end_ms, uint64_t now_ms)
{
    return end_ms > now_ms ? end_ms - now_ms : 0;
}

uint64_t cli_entry_left_ms(const struct cli_entry *e)
{
    return left_ms(e->entry.until_ms, e->now_ms);
}

uint64_t cli_refresh_failed_ms(const struct cli_entry *e)
{
    return left_ms(e->now_ms, e->refresh.written_ms);
}

uint64_t cli_refresh_pause_ms(const struct cli_entry *e)
{
    return left_ms(e->refresh.until_ms, e->now_ms);
}
