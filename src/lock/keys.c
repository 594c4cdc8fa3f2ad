/* Key names. Its invariant: all keys of a lock hash to the same slot of a
 * cluster as the lock itself, as far as its own name allows that. */
#include "lock/keys.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "lock:"
#define EXACT_PREFIX PREFIX "="
#define SUFFIX_BYTES 2
#define NUMBER_BYTES 12

/* What a side key has beyond twice the name, at most. */
#define EXTRA_BYTES                                                            \
    (sizeof(EXACT_PREFIX "{}") + (size_t)NUMBER_BYTES + SUFFIX_BYTES)

#define SLOTS 16384

struct span {
    const char *at;
    size_t size;
};

size_t shed_lock_keys_bytes(size_t name_size)
{
    return SHED_LOCK_KEYS * (2 * name_size + EXTRA_BYTES);
}

/* The part of a key that a cluster hashes: what is between the first '{' and
 * the next '}', or all of it if there is nothing. */
static struct span tag_of(struct span key)
{
    const char *open = memchr(key.at, '{', key.size);
    const char *close = NULL;

    if (open != NULL)
        close = memchr(open, '}', key.size - (size_t)(open - key.at));
    if (close == NULL || close == open + 1)
        return key;
    return (struct span){open + 1, (size_t)(close - open) - 1};
}

/* CRC16 of XMODEM, as the specification of Redis Cluster has it. */
static unsigned slot_of(struct span tag)
{
    enum { POLYNOMIAL = 0x1021, TOP = 0x8000, MASK = 0xffff, BITS = 8 };
    unsigned crc = 0;

    for (size_t i = 0; i < tag.size; i++) {
        crc ^= (unsigned)(unsigned char)tag.at[i] << BITS;
        for (int bit = 0; bit < BITS; bit++)
            crc = (crc << 1 ^ (crc & TOP ? POLYNOMIAL : 0)) & MASK;
    }
    return crc % SLOTS;
}

/* A tag of the same slot that holds no '}'. Every slot has a number of at most
 * six digits; to find it takes some milliseconds, for names that are rare. */
static struct span clean_tag(struct span tag, char number[NUMBER_BYTES])
{
    unsigned slot = slot_of(tag);
    struct span clean = {number, 0};

    if (memchr(tag.at, '}', tag.size) == NULL)
        return tag;
    for (unsigned i = 0; clean.size == 0 || slot_of(clean) != slot; i++)
        clean.size = (size_t)snprintf(number, NUMBER_BYTES, "%u", i);
    return clean;
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

const char *shed_lock_keys_name(struct shed_lock_words *words, bool has_sides,
                                const void *name, size_t name_size, char *room)
{
    static const char *const suffixes[SHED_LOCK_KEYS] = {"",   ":f", ":s",
                                                         ":q", ":o", ":w"};
    bool is_exact = !has_sides || words->options->exact_key != 0;
    struct span key = {name, name_size};
    char number[NUMBER_BYTES];
    struct span tag = key;

    if (is_exact && has_sides)
        tag = clean_tag(tag_of(key), number);
    for (int i = 0; i < (has_sides ? SHED_LOCK_KEYS : 1); i++) {
        char *begin = room;
        bool is_bare = is_exact && i == SHED_LOCK_KEY;
        if (!is_bare) {
            room = put_text(room, is_exact ? EXACT_PREFIX "{" : PREFIX "{");
            room = put(room, tag.at, tag.size);
            room = put_text(room, "}");
        }
        if (is_exact)
            room = put(room, key.at, key.size);
        room = put_text(room, suffixes[i]);
        words->key[i].at = begin;
        words->key[i].size = (size_t)(room - begin);
    }
    return words->key[SHED_LOCK_KEY].at + (is_exact ? 0 : strlen(PREFIX "{"));
}
