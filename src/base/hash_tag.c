/* Tags. The invariant: a key with the tag between its first braces is in the
 * same slot as the key for which the tag was set. */
#include "base/hash_tag.h"

#include <stdio.h>
#include <string.h>

/* CRC16 (XMODEM), as the Redis Cluster specification defines it. */
static unsigned slot_of(const char *tag, size_t size)
{
    /* what four bits at the top of the remainder add to it: they times the
     * polynomial, 0x1021 */
    static const unsigned table[] = {
        0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
        0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    enum { HALF = 4, TOP = 12, MASK = 0xffff, LOW = 0xf };
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned byte = (unsigned char)tag[i];
        crc = (crc << HALF ^ table[crc >> TOP ^ byte >> HALF]) & MASK;
        crc = (crc << HALF ^ table[crc >> TOP ^ (byte & LOW)]) & MASK;
    }
    return crc % SHED_HASH_SLOTS;
}

static void find(struct shed_hash_tag *out, struct shed_bytes key)
{
    const char *open = memchr(key.data, '{', key.size);
    const char *close = NULL;

    out->at = key.data;
    out->size = key.size;
    if (open != NULL)
        close = memchr(open, '}', key.size - (size_t)(open - out->at));
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

unsigned shed_hash_slot(struct shed_bytes key)
{
    struct shed_hash_tag tag;

    find(&tag, key);
    return slot_of(tag.at, tag.size);
}

void shed_hash_tag_set(struct shed_hash_tag *out, struct shed_bytes key)
{
    find(out, key);
    if (memchr(out->at, '}', out->size) != NULL)
        number(out);
}
