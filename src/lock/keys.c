/* Key names. Its invariant: all keys of a lock hash to the same slot of a
 * cluster as the lock itself, as far as its own name allows that. */
#include "lock/keys.h"

#include <string.h>

#include "base/hash_tag.h"

#define PREFIX "lock:"
#define EXACT_PREFIX PREFIX "="
#define SUFFIX_BYTES 2

/* The most bytes that a side key has beyond twice the name. */
#define EXTRA_BYTES                                                            \
    (sizeof(EXACT_PREFIX "{}") + (size_t)SHED_HASH_TAG_NUMBER_BYTES +          \
     SUFFIX_BYTES)

size_t shed_lock_keys_bytes(size_t name_size)
{
    return SHED_LOCK_KEYS * (2 * name_size + EXTRA_BYTES);
}

static char *put(char *at, const char *bytes, size_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

static char *put_text(char *at, const char *text)
{
    return put(at, text, strlen(text));
}

const char *shed_lock_keys_name(struct shed_lock_spec *spec, bool has_sides,
                                const void *name, size_t name_size, char *room)
{
    static const char *const suffixes[SHED_LOCK_KEYS] = {"",   ":f", ":s",
                                                         ":w", ":q", ":o"};
    bool is_exact = !has_sides || spec->options->exact_key != 0;
    struct shed_hash_tag tag = {.at = name, .size = name_size};

    if (is_exact && has_sides)
        shed_hash_tag_set(&tag, shed_bytes(name, name_size));
    for (int i = 0; i < (has_sides ? SHED_LOCK_KEYS : 1); i++) {
        char *begin = room;
        if (!is_exact || i != SHED_LOCK_KEY) {
            room = put_text(room, is_exact ? EXACT_PREFIX "{" : PREFIX "{");
            room = put(room, tag.at, tag.size);
            room = put_text(room, "}");
        }
        if (is_exact)
            room = put(room, name, name_size);
        room = put_text(room, suffixes[i]);
        spec->key[i] = shed_bytes(begin, (size_t)(room - begin));
    }
    return (const char *)spec->key[SHED_LOCK_KEY].data +
           (is_exact ? 0 : strlen(PREFIX "{"));
}
