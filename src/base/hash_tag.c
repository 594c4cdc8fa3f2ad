/* Tags. The invariant: a key with the tag between its first braces is in the
 * same slot as the key for which the tag was set. */
#include "base/hash_tag.h"

#include <stdio.h>
#include <string.h>

#define SLOTS 16384

/* CRC16 (XMODEM), as the Redis Cluster specification defines it. */
static unsigned slot_of(const char *tag, size_t size)
{
    enum { POLYNOMIAL = 0x1021, TOP = 0x8000, MASK = 0xffff, BITS = 8 };
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)tag[i] << BITS;
        for (int bit = 0; bit < BITS; bit++)
            crc = (crc << 1 ^ (crc & TOP ? POLYNOMIAL : 0)) & MASK;
    }
    return crc % SLOTS;
}

static void find(struct shed_hash_tag *out, const char *key, size_t size)
{
    const char *open = memchr(key, '{', size);
    const char *close = NULL;

    out->at = key;
    out->size = size;
    if (open != NULL)
        close = memchr(open, '}', size - (size_t)(open - key));
    if (close == NULL || close == open + 1)
        return;
    out->at = open + 1;
    out->size = (size_t)(close - open) - 1;
}

/* Find the number; every slot has one of at most six digits. */
static void number(struct shed_hash_tag *out)
{
    unsigned slot = slot_of(out->at, out->size), i = 0;
    int size;

    do
        size = snprintf(out->number, sizeof(out->number), "%u", i++);
    while (slot_of(out->number, (size_t)size) != slot);
    out->at = out->number;
    out->size = (size_t)size;
}

void shed_hash_tag_set(struct shed_hash_tag *out, const char *key, size_t size)
{
    find(out, key, size);
    if (memchr(out->at, '}', out->size) != NULL)
        number(out);
}
