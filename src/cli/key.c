/* Names of caches and keys, checked. */
#include "cli/key.h"

#include <string.h>

void cli_key_check_cache(const struct cli_call *call, const char *name)
{
    struct shed_error err;

    if (strcmp(name, "lock") == 0)
        cli_fail(call, CLI_USAGE,
                 "no cache can be called lock, as keys of that form are locks: "
                 "see 'snowshed locks'");
    if (shed_key_check_cache_name(name, "it", &err) != SHED_OK)
        cli_fail(call, CLI_USAGE, "'%.80s' is not a cache name: %s", name,
                 err.reason);
}

void cli_key_hint_none(const struct cli_call *call)
{
    cli_out_hint(call->out,
                 cli_format("There are no entries of '%s': 'snowshed "
                            "scan' lists the caches.",
                            call->words[0])
                     .at);
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
    const char *fault =
        cli_key_set(key, call->words[0], cli_key_word(call, call->words[1]));

    if (fault != NULL)
        cli_fail(call, CLI_USAGE, "%s", fault);
}

bool cli_key_parse(struct cli_key *key, const char *cache,
                   struct shed_bytes name)
{
    const char *at = name.data;
    const char *brace = at != NULL ? memchr(at, '{', name.size) : NULL;
    char found[SHED_NAME_MAX_BYTES + 1];

    if (brace == NULL || brace == at || brace - at > SHED_NAME_MAX_BYTES + 1)
        return false;
    (void)snprintf(found, sizeof(found), "%.*s", (int)(brace - at) - 1, at);
    return (cache == NULL || strcmp(cache, found) == 0) &&
           shed_key_check_cache_name(found, "", NULL) == SHED_OK &&
           cli_key_set(key, found, shed_key_of_name(name)) == NULL &&
           cli_are_same(key->named.key.redis, name);
}
