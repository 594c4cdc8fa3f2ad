/*
 * Any bytes as an entry: decode reads nothing outside them, and encode
 * reproduces whatever decode accepts.
 */
#include <string.h>

#include "fuzz/forge.h"

/* The key of all entries in the corpus. */
static const struct shed_bytes key = {"t:{k}", 5};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_remade(const struct shed_entry *entry, const uint8_t *bytes)
{
    struct shed_entry_parts parts;

    shed_entry_encode(key, entry, bytes + NONCE_AT, &parts);
    check(memcmp(parts.head, bytes, sizeof(parts.head)) == 0);
    check(memcmp(parts.tail, bytes + TAIL_AT, sizeof(parts.tail)) == 0);
}

static void check_tags(const struct shed_entry *entry, const uint8_t *bytes)
{
    struct shed_entry_tags tags;
    size_t at = 0, size, sum = 0;

    shed_entry_tags(bytes, &tags);
    check(tags.position == entry->position && tags.tags == entry->tags &&
          tags.tags_size == entry->tags_size);
    while (shed_entry_next_tag(tags.tags, tags.tags_size, &at, &size) != NULL) {
        check(size > 0);
        sum += size + 1;
    }
    check(tags.tags == NULL || sum + 2 == tags.tags_size);
}

static void check_corrected(const uint8_t *bytes, size_t size)
{
    struct shed_entry entry;
    uint8_t *copy = malloc(size);
    size_t payload_size;

    check(copy != NULL);
    memcpy(copy, bytes, size);
    payload_size = forge(key, copy, size);
    if (shed_entry_decode(key, copy, size, &entry) == SHED_ENTRY_OK) {
        check(entry.payload == copy + SHED_ENTRY_HEADER_BYTES &&
              entry.payload_size == payload_size);
        check_remade(&entry, copy);
        check_tags(&entry, copy);
    } else {
        /* tags of a wrong form, or a payload of no such row */
        check((copy[FLAGS_AT] & SHED_ENTRY_TAGS) != 0 ||
              (copy[TYPE_AT] == SHED_ENTRY_NEGATIVE && payload_size > 0));
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
