/*
 * Any bytes as an entry: decode reads nothing outside them, and encode
 * reproduces whatever decode accepts.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache/entry.h"

#define NONCE_AT 8
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

/* Fuzzed input seldom has a correct checksum, so correct it. */
static void check_corrected(const uint8_t *bytes, size_t size)
{
    struct shed_entry entry = {.type = (enum shed_entry_type)bytes[5],
                               .payload = bytes + SHED_ENTRY_HEADER_BYTES,
                               .payload_size = size - SHED_ENTRY_HEADER_BYTES};
    struct shed_entry_parts parts;
    uint8_t *copy = malloc(size);

    check(copy != NULL);
    memcpy(copy, bytes, size);
    shed_entry_encode(key, &entry, bytes + NONCE_AT, &parts);
    memcpy(copy, parts.head, sizeof(parts.head));
    memcpy(copy + TAIL_AT, parts.tail, sizeof(parts.tail));
    check(shed_entry_decode(key, copy, size, &entry) == SHED_ENTRY_OK);
    check(entry.payload == copy + SHED_ENTRY_HEADER_BYTES &&
          entry.payload_size == size - SHED_ENTRY_HEADER_BYTES);
    check_remade(&entry, copy);
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
