/*
 * Any bytes as an entry: decode reads nothing outside them, and encode
 * reproduces whatever decode accepts.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache/entry.h"

#define NONCE_AT 8
#define SIZE_AT 24
#define TAIL_AT 56

/* The key of all entries in the corpus. */
static const struct shed_entry_key key = {"t:{k}", 5};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool is_true)
{
    if (!is_true)
        abort();
}

static void check_remade(const struct shed_entry *entry, const uint8_t *bytes)
{
    struct shed_entry_parts parts;

    shed_entry_encode(key, entry, bytes + NONCE_AT, &parts);
    check(memcmp(parts.head, bytes, sizeof(parts.head)) == 0);
    check(memcmp(parts.tail, bytes + TAIL_AT, sizeof(parts.tail)) == 0);
}

/* The entry that the bytes would be, if the checksum were right. */
static struct shed_entry entry_of(const uint8_t *bytes, size_t size)
{
    size_t rest = size - SHED_ENTRY_HEADER_BYTES;
    struct shed_entry entry = {.type = (enum shed_entry_type)bytes[5],
                               .flags = bytes[7] & SHED_ENTRY_POSITION,
                               .position = shed_entry_get_u64(bytes + 16),
                               .payload = bytes + SHED_ENTRY_HEADER_BYTES,
                               .payload_size = rest};

    if ((bytes[7] & SHED_ENTRY_TAGS) && bytes[SIZE_AT + 3] < rest) {
        entry.flags |= SHED_ENTRY_TAGS;
        entry.payload_size = bytes[SIZE_AT + 3];
        entry.tags = entry.payload + entry.payload_size;
        entry.tags_size = rest - entry.payload_size;
    }
    return entry;
}

static void check_groups(const struct shed_entry *entry, const uint8_t *bytes)
{
    struct shed_entry_groups groups;
    size_t at = 0, size, sum = 0;

    shed_entry_groups(bytes, &groups);
    check(groups.position == entry->position && groups.tags == entry->tags &&
          groups.tags_size == entry->tags_size);
    while (shed_entry_next_tag(groups.tags, groups.tags_size, &at, &size) !=
           NULL) {
        check(size > 0);
        sum += size + 1;
    }
    check(groups.tags == NULL || sum + 2 == groups.tags_size);
}

/* Fuzzed input seldom has a correct checksum, so correct it. */
static void check_corrected(const uint8_t *bytes, size_t size)
{
    struct shed_entry entry = entry_of(bytes, size);
    struct shed_entry_parts parts;
    size_t payload_size = entry.payload_size;
    uint8_t *copy = malloc(size);

    check(copy != NULL);
    memcpy(copy, bytes, size);
    shed_entry_encode(key, &entry, bytes + NONCE_AT, &parts);
    memcpy(copy, parts.head, sizeof(parts.head));
    memcpy(copy + TAIL_AT, parts.tail, sizeof(parts.tail));
    if (shed_entry_decode(key, copy, size, &entry) == SHED_ENTRY_OK) {
        check(entry.payload == copy + SHED_ENTRY_HEADER_BYTES &&
              entry.payload_size == payload_size);
        check_remade(&entry, copy);
        check_groups(&entry, copy);
    } else {
        check(entry.flags & SHED_ENTRY_TAGS); /* tags of a wrong form */
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct shed_entry entry;
    enum shed_entry_state state = shed_entry_decode(key, bytes, size, &entry);

    if (state == SHED_ENTRY_OK && entry.type == SHED_ENTRY_LEASE)
        check(size == SHED_ENTRY_HEADER_BYTES);
    else if (state == SHED_ENTRY_OK)
        check_remade(&entry, bytes);
    else if (state == SHED_ENTRY_CORRUPT)
        check_corrected(bytes, size);
    return 0;
}
