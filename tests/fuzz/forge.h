/* Entries with a right checksum: fuzzed input seldom has one. */
#ifndef FUZZ_FORGE_H
#define FUZZ_FORGE_H

#include <string.h>

#include "entry/entry.h"
#include "fuzz/stream.h"

#define TYPE_AT 5
#define FLAGS_AT 7
#define NONCE_AT 8
#define SIZE_AT 24
#define TAIL_AT 56

/* The entry that the bytes would be, if the checksum were right. */
static inline struct shed_entry entry_of(const uint8_t *bytes, size_t size)
{
    size_t rest = size - SHED_ENTRY_HEADER_BYTES;
    struct shed_entry entry = {.type = (enum shed_entry_type)bytes[TYPE_AT],
                               .flags = bytes[FLAGS_AT] & SHED_ENTRY_POSITION,
                               .position = shed_entry_get_u64(bytes + 16),
                               .payload = bytes + SHED_ENTRY_HEADER_BYTES,
                               .payload_size = rest};

    if ((bytes[FLAGS_AT] & SHED_ENTRY_TAGS) && bytes[SIZE_AT + 3] < rest) {
        entry.flags |= SHED_ENTRY_TAGS;
        entry.payload_size = bytes[SIZE_AT + 3];
        entry.tags = entry.payload + entry.payload_size;
        entry.tags_size = rest - entry.payload_size;
    }
    return entry;
}

/* Make the bytes, of which there are enough for a header, the entry that they
 * would be. Returns: the size of its payload. */
static inline size_t forge(struct shed_bytes key, uint8_t *bytes, size_t size)
{
    struct shed_entry entry = entry_of(bytes, size);
    struct shed_entry_parts parts;

    shed_entry_encode(key, &entry, bytes + NONCE_AT, &parts);
    memcpy(bytes, parts.head, sizeof(parts.head));
    memcpy(bytes + TAIL_AT, parts.tail, sizeof(parts.tail));
    return entry.payload_size;
}

#endif
