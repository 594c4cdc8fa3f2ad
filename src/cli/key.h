/* The names of caches, and of their keys in Redis, NAME:{KEY}. */
#ifndef CLI_KEY_H
#define CLI_KEY_H

#include "cli/out.h"
#include "entry/key.h"

/* A key of a cache; named points into the struct, so it must not be copied. */
struct cli_key {
    char cache[SHED_NAME_MAX_BYTES + 1];
    struct shed_named_key named;
};

/* End the program if that cannot be the name of a cache. */
void cli_key_check_cache(const struct cli_call *call, const char *name);

/* Say in the answer that the cache of a call has no entries. */
void cli_key_hint_none(const struct cli_call *call);

/* Set a key of a cache, which has a name that can be one. Returns: NULL, or
 * what is wrong. */
const char *cli_key_set(struct cli_key *key, const char *cache,
                        struct shed_bytes bytes);

/* The bytes of a word of a call, which --escaped unescapes in place. Ends the
 * program if they cannot be. */
struct shed_bytes cli_key_word(const struct cli_call *call, char *word);

/* Set a key from the two words of a call; ends the program if they are not
 * valid. */
void cli_key_init(struct cli_key *key, const struct cli_call *call);

/* Set a key from its name in Redis. cache: NULL if it may be of any. Returns:
 * false if it does not belong to the cache, or is a side key. */
bool cli_key_parse(struct cli_key *key, const char *cache,
                   struct shed_bytes name);

#endif
