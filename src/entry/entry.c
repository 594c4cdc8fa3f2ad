/*
 * The entry's bytes. Pure; its one invariant: decode reads nothing outside its
 * input, and returns what was passed to encode.
 */
#include "entry/entry.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"

enum {
    FORMAT_AT = 4,
    TYPE_AT = 5,
    FLAGS_AT = 6,
    VERSION_AT = 8,
    POSITION_AT = 16, /* in a nonce */
    SIZE_AT = 24,
    COST_AT = 28,
    CHECKSUM_AT = 32,
    WRITTEN_AT = 40,
    UNTIL_AT = 48,
    ROW_VERSION_AT = 56,
    FLIGHT_AT = 56, /* this and EPOCH_AT: in a lease */
    EPOCH_AT = 60
};

/* No UTF-8 text contains the first byte, so no text is taken for an entry. */
static const unsigned char magic_and_format[] = {0xf5, 's', 'h', 'd', 2};

#define TAGS_HEAD_BYTES ((size_t)2)

/* The layout in entry.h, as far as these constants define it. */
_Static_assert(sizeof(magic_and_format) == TYPE_AT, "the type follows");
_Static_assert(VERSION_AT + SHED_ENTRY_VERSION_BYTES == SIZE_AT &&
                   SIZE_AT == SHED_ENTRY_PROCESS_AT,
               "the data version is before the size, or the holder");
_Static_assert(POSITION_AT + sizeof(uint64_t) == SIZE_AT,
               "the position ends the nonce");
_Static_assert(CHECKSUM_AT + sizeof(uint64_t) == SHED_ENTRY_HEAD_BYTES &&
                   WRITTEN_AT == SHED_ENTRY_HEAD_BYTES,
               "the checksum ends the head, and the times follow it");
_Static_assert(UNTIL_AT + sizeof(uint64_t) == ROW_VERSION_AT &&
                   ROW_VERSION_AT + SHED_ENTRY_TAIL_BYTES ==
                       SHED_ENTRY_HEADER_BYTES,
               "the tail follows the times, and ends the header");

void shed_entry_put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

void shed_entry_put_u64(unsigned char *at, uint64_t value)
{
    shed_entry_put_u32(at, (uint32_t)(value >> 32));
    shed_entry_put_u32(at + 4, (uint32_t)value);
}

static uint32_t get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
           (uint32_t)at[2] << 8 | at[3];
}

uint64_t shed_entry_get_u64(const void *at)
{
    const unsigned char *b = at;

    return (uint64_t)get_u32(b) << 32 | get_u32(b + 4);
}

/* head is the beginning of the header, tail its last 8 bytes. */
static uint64_t checksum(struct shed_bytes key, const unsigned char *head,
                         const unsigned char *tail,
                         const struct shed_entry *entry)
{
    uint64_t seed = shed_hash(key.data, key.size, 0);
    unsigned char covered[CHECKSUM_AT + SHED_ENTRY_TAIL_BYTES];

    memcpy(covered, head, CHECKSUM_AT);
    memcpy(covered + CHECKSUM_AT, tail, SHED_ENTRY_TAIL_BYTES);
    seed = shed_hash(covered, sizeof(covered), seed);
    if (entry->flags & SHED_ENTRY_TAGS)
        seed = shed_hash(entry->tags, entry->tags_size, seed);
    return shed_hash(entry->payload, entry->payload_size, seed);
}

/* ------------------------------------------------------------------- tags */

size_t shed_entry_add_tag(unsigned char *room, size_t size, const void *tag,
                          size_t tag_size)
{
    if (size == 0)
        size = TAGS_HEAD_BYTES;
    assert(tag_size > 0 && tag_size <= SHED_ENTRY_TAG_MAX_BYTES);
    assert(size + 1 + tag_size <= SHED_ENTRY_TAGS_MAX_BYTES);
    room[size++] = (unsigned char)tag_size;
    memcpy(room + size, tag, tag_size);
    size += tag_size;
    room[0] = (unsigned char)((size - TAGS_HEAD_BYTES) >> 8);
    room[1] = (unsigned char)(size - TAGS_HEAD_BYTES);
    return size;
}

const unsigned char *shed_entry_next_tag(const unsigned char *tags,
                                         size_t tags_size, size_t *at,
                                         size_t *tag_size)
{
    const unsigned char *tag;

    if (*at == 0)
        *at = TAGS_HEAD_BYTES;
    if (*at >= tags_size)
        return NULL;
    *tag_size = tags[(*at)++];
    tag = tags + *at;
    *at += *tag_size;
    return tag;
}

static size_t tags_size(const unsigned char *tags)
{
    return TAGS_HEAD_BYTES + ((size_t)tags[0] << 8 | tags[1]);
}

bool shed_entry_are_tags(const unsigned char *tags, size_t size)
{
    size_t at = 0, tag_size = 1;

    if (size <= TAGS_HEAD_BYTES || size != tags_size(tags))
        return false;
    while (at < size)
        if (shed_entry_next_tag(tags, size, &at, &tag_size) == NULL ||
            tag_size == 0)
            return false;
    return at == size;
}

static unsigned flags_of(const unsigned char *header)
{
    return (unsigned)header[FLAGS_AT] << 8 | header[FLAGS_AT + 1];
}

static uint64_t position_of(const unsigned char *header)
{
    return flags_of(header) & SHED_ENTRY_POSITION
               ? shed_entry_get_u64(header + POSITION_AT)
               : 0;
}

void shed_entry_tags(const void *entry, struct shed_entry_tags *out)
{
    const unsigned char *b = entry;

    *out = (struct shed_entry_tags){.position = position_of(b)};
    if (flags_of(b) & SHED_ENTRY_TAGS) {
        out->tags = b + SHED_ENTRY_HEADER_BYTES + get_u32(b + SIZE_AT);
        out->tags_size = tags_size(out->tags);
    }
}

/* ------------------------------------------------------------ row versions */

struct shed_row_version shed_entry_row_version(const void *header)
{
    const unsigned char *b = header;

    return (struct shed_row_version){
        .number = shed_entry_get_u64(b + ROW_VERSION_AT),
        .is_known = flags_of(b) & SHED_ENTRY_ROW_VERSION};
}

bool shed_row_version_is_lower(struct shed_row_version loaded,
                               struct shed_row_version there)
{
    return loaded.is_known && there.is_known && loaded.number < there.number;
}

/* ------------------------------------------------------------------ decode */

static bool has_no_payload(const struct shed_entry *entry)
{
    return entry->type == SHED_ENTRY_NEGATIVE ||
           (entry->flags & SHED_ENTRY_NULL);
}

enum shed_entry_state shed_entry_decode_header(const void *head, size_t size,
                                               struct shed_entry *out)
{
    const unsigned char *b = head;
    bool has_tags;

    if (size < SHED_ENTRY_HEADER_BYTES ||
        memcmp(b, magic_and_format, sizeof(magic_and_format)) != 0)
        return SHED_ENTRY_FOREIGN;
    out->type = (enum shed_entry_type)b[TYPE_AT];
    out->flags = flags_of(b);
    out->written_ms = shed_entry_get_u64(b + WRITTEN_AT);
    out->until_ms = shed_entry_get_u64(b + UNTIL_AT);
    if (out->type == SHED_ENTRY_LEASE)
        return size == SHED_ENTRY_HEADER_BYTES ? SHED_ENTRY_OK
                                               : SHED_ENTRY_FOREIGN;
    if (out->type != SHED_ENTRY_VALUE && out->type != SHED_ENTRY_NEGATIVE &&
        out->type != SHED_ENTRY_FAILURE)
        return SHED_ENTRY_FOREIGN;
    out->cost_ms = get_u32(b + COST_AT);
    out->row_version = shed_entry_get_u64(b + ROW_VERSION_AT);
    out->position = position_of(b);
    out->payload = NULL;
    out->payload_size = get_u32(b + SIZE_AT);
    out->tags = NULL;
    out->tags_size = 0;
    size -= SHED_ENTRY_HEADER_BYTES;
    has_tags = out->flags & SHED_ENTRY_TAGS;
    if (size < out->payload_size || (size > out->payload_size) != has_tags ||
        (out->payload_size > 0 && has_no_payload(out)))
        return SHED_ENTRY_CORRUPT;
    out->tags_size = size - out->payload_size;
    return SHED_ENTRY_OK;
}

enum shed_entry_state shed_entry_decode(struct shed_bytes key,
                                        const void *bytes, size_t size,
                                        struct shed_entry *out)
{
    const unsigned char *b = bytes;
    enum shed_entry_state state = shed_entry_decode_header(bytes, size, out);

    if (state != SHED_ENTRY_OK || out->type == SHED_ENTRY_LEASE)
        return state;
    out->payload = b + SHED_ENTRY_HEADER_BYTES;
    if (out->tags_size > 0)
        out->tags = out->payload + out->payload_size;
    if (shed_entry_get_u64(b + CHECKSUM_AT) !=
            checksum(key, b, b + ROW_VERSION_AT, out) ||
        (out->tags != NULL && !shed_entry_are_tags(out->tags, out->tags_size)))
        return SHED_ENTRY_CORRUPT;
    return SHED_ENTRY_OK;
}

int shed_entry_format(const void *bytes, size_t size)
{
    const unsigned char *b = bytes;

    if (size <= FORMAT_AT || memcmp(b, magic_and_format, FORMAT_AT) != 0)
        return -1;
    return b[FORMAT_AT];
}

const unsigned char *shed_entry_version(const void *header)
{
    return (const unsigned char *)header + VERSION_AT;
}

void shed_entry_identity(const void *header,
                         unsigned char out[SHED_ENTRY_IDENTITY_BYTES])
{
    const unsigned char *b = header;

    memcpy(out, b + VERSION_AT, SHED_ENTRY_VERSION_BYTES);
    memcpy(out + SHED_ENTRY_VERSION_BYTES, b + WRITTEN_AT, sizeof(uint64_t));
}

bool shed_entry_has_identity(
    const void *header, const unsigned char identity[SHED_ENTRY_IDENTITY_BYTES])
{
    unsigned char own[SHED_ENTRY_IDENTITY_BYTES];

    shed_entry_identity(header, own);
    return memcmp(own, identity, sizeof(own)) == 0;
}

void shed_entry_holder(const void *lease, struct shed_entry_holder *out)
{
    const unsigned char *b = lease;

    memcpy(out->process, b + SHED_ENTRY_PROCESS_AT, sizeof(out->process));
    out->flight = get_u32(b + FLIGHT_AT);
    out->epoch = get_u32(b + EPOCH_AT);
}

static void put_kind(unsigned char *header, enum shed_entry_type type,
                     unsigned flags)
{
    memcpy(header, magic_and_format, sizeof(magic_and_format));
    header[TYPE_AT] = (unsigned char)type;
    header[FLAGS_AT] = (unsigned char)(flags >> 8);
    header[FLAGS_AT + 1] = (unsigned char)flags;
}

void shed_entry_encode_lease(const unsigned char *version,
                             const char process[SHED_ENTRY_PROCESS_BYTES],
                             const unsigned char flight[4], uint32_t epoch,
                             uint64_t now_ms, uint64_t lease_ms,
                             unsigned char out[SHED_ENTRY_HEADER_BYTES])
{
    put_kind(out, SHED_ENTRY_LEASE, 0);
    memcpy(out + VERSION_AT, version, SHED_ENTRY_VERSION_BYTES);
    memcpy(out + SHED_ENTRY_PROCESS_AT, process, SHED_ENTRY_PROCESS_BYTES);
    shed_entry_put_u64(out + WRITTEN_AT, now_ms);
    shed_entry_put_u64(out + UNTIL_AT, now_ms + lease_ms);
    memcpy(out + FLIGHT_AT, flight, EPOCH_AT - FLIGHT_AT);
    shed_entry_put_u32(out + EPOCH_AT, epoch);
}

void shed_entry_encode(struct shed_bytes key, const struct shed_entry *entry,
                       const unsigned char *nonce, struct shed_entry_parts *out)
{
    unsigned char *h = out->head;

    assert(entry->type != SHED_ENTRY_LEASE);
    assert(entry->payload_size <= UINT32_MAX);
    put_kind(h, entry->type, entry->flags);
    memcpy(h + VERSION_AT, nonce, SHED_ENTRY_VERSION_BYTES);
    if (entry->flags & SHED_ENTRY_POSITION)
        shed_entry_put_u64(h + POSITION_AT, entry->position);
    shed_entry_put_u32(h + SIZE_AT, (uint32_t)entry->payload_size);
    shed_entry_put_u32(h + COST_AT, entry->cost_ms);
    shed_entry_put_u64(out->tail, entry->row_version);
    shed_entry_put_u64(h + CHECKSUM_AT, checksum(key, h, out->tail, entry));
}

struct shed_bytes shed_entry_refresh_key(struct shed_bytes key, char *out)
{
    memcpy(out, key.data, key.size);
    memcpy(out + key.size, SHED_ENTRY_REFRESH_SUFFIX,
           SHED_ENTRY_REFRESH_SUFFIX_BYTES);
    return shed_bytes(out, key.size + SHED_ENTRY_REFRESH_SUFFIX_BYTES);
}

/* The key of an entry ends with a brace, so it never ends like that of a
 * refresh. */
struct shed_bytes shed_entry_key_of(struct shed_bytes key)
{
    const size_t suffix = SHED_ENTRY_REFRESH_SUFFIX_BYTES;
    const char *end = (const char *)key.data + key.size;

    if (key.size > suffix &&
        memcmp(end - suffix, SHED_ENTRY_REFRESH_SUFFIX, suffix) == 0)
        key.size -= suffix;
    return key;
}
