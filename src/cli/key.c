/* Names of caches and keys, checked. */
#include "cli/key.h"

#include <string.h>

/* Why this cannot be the name of a cache; NULL: it can. */
static const char *fault_of_cache(const char *name)
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

const char *cli_key_cache(const struct cli_call *call)
{
    const char *name = call->words[0], *fault = fault_of_cache(name);

    if (fault != NULL)
        cli_fail(call, CLI_USAGE, "'%.80s' is not a cache name: %s", name,
                 fault);
    return name;
}

const char *cli_key_set(struct cli_key *key, const char *cache,
                        struct shed_bytes bytes)
{
    if (bytes.size == 0)
        return "a key is empty";
    if (bytes.size > SHED_KEY_MAX_BYTES)
        return "a key has more than 1024 bytes";
    (void)snprintf(key->cache, sizeof(key->cache), "%s", cache);
    shed_key_name(cache, bytes, &key->named);
    return NULL;
}

struct shed_bytes cli_key_word(const struct cli_call *call, char *word)
{
    size_t size = call->is_escaped ? cli_unescape(word) : strlen(word);

    if (size == SIZE_MAX)
        cli_fail(call, CLI_USAGE,
                 "with --escaped, a \\ must be followed by another \\ or by "
                 "xNN");
    return shed_bytes(word, size);
}

void cli_key_init(struct cli_key *key, const struct cli_call *call)
{
    const char *cache = cli_key_cache(call);
    const char *fault =
        cli_key_set(key, cache, cli_key_word(call, call->words[1]));

    if (fault != NULL)
        cli_fail(call, CLI_USAGE, "%s", fault);
}

/* The name of the cache whose entry a key can be: what is before ":{". */
static bool take_cache(struct shed_bytes name,
                       char cache[SHED_NAME_MAX_BYTES + 1])
{
    const char *at = name.data, *brace = memchr(at, '{', name.size);

    if (brace == NULL || brace == at || brace[-1] != ':' ||
        brace - at > SHED_NAME_MAX_BYTES + 1)
        return false;
    (void)snprintf(cache, SHED_NAME_MAX_BYTES + 1, "%.*s",
                   (int)(brace - at) - 1, at);
    return fault_of_cache(cache) == NULL;
}

bool cli_key_parse(struct cli_key *key, const char *cache,
                   struct shed_bytes name)
{
    char found[SHED_NAME_MAX_BYTES + 1];
    const char *at = name.data;
    size_t prefix, size = name.size;

    if (at == NULL || !take_cache(name, found) ||
        (cache != NULL && strcmp(cache, found) != 0))
        return false;
    prefix = strlen(found) + strlen(":{");
    if (size < prefix + strlen("k}") || at[size - 1] != '}')
        return false;
    at += prefix;
    size -= prefix + strlen("}");
    if (*at == '\\' && size > 1 && (at[1] == '}' || at[1] == '\\')) {
        at++;
        size--;
    }
    return cli_key_set(key, found, shed_bytes(at, size)) == NULL;
}

struct shed_bytes cli_key_bytes(const struct cli_key *key)
{
    return shed_bytes(key->named.key.redis + key->named.key.at,
                      key->named.key.size);
}

struct shed_bytes cli_key_name(const struct cli_key *key)
{
    return shed_bytes(key->named.key.redis, key->named.key.redis_size);
}
