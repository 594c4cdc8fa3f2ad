/*
 * The bytes of an entry: what Redis stores under NAME:{KEY}.
 *
 * A header of 64 bytes, then the payload, so that any language reads a row
 * with GETRANGE key 64 -1. Numbers are big-endian, times are the server's
 * clock in milliseconds since 1970.
 *
 *      0  4  magic, F5 's' 'h' 'd'
 *      4  1  format, 2
 *      5  1  type: 'L' lease, 'V' value, 'N' no such row, 'F' failure marker
 *      6  2  flags (enum shed_entry_flag)
 *      8 16  data version (lease), random nonce (all others); with POSITION,
 *            the last 8 bytes of the nonce are a position (see tags.h)
 *     24  4  length of the payload          } in a lease: the id of the
 *     28  4  what the load cost, ms         } process that holds it,
 *     32  8  checksum                       } 16 hexadecimal digits
 *     40  8  written
 *     48  8  end of the lease, or of freshness; Redis can keep a value longer;
 *            0: nobody may be given the value, whose refresh is under way
 *     56  8  row version, 0 without one; in a failure marker: the shed_code;
 *            in a lease: 4 bytes each for the number of the flight, and the
 *            epoch of its process's session (0: it has no channel)
 *     64     payload: the row, the reason of a failure; nothing in a lease, for
 *            NULL and for no such row
 *            with TAGS, behind the payload: 2 bytes, the length of what
 *            follows; then for each tag 1 byte, its length, and the tag
 *
 * The checksum is XXH3-64 of the payload, seeded with XXH3-64 of bytes 0-31 and
 * 56-63, which is seeded with XXH3-64 of the key as it is in Redis; with TAGS,
 * the payload's seed is XXH3-64 of everything behind it, seeded so. So the
 * entry of another key is never accepted, whatever a server or proxy does to
 * replies. The checksum does not cover the times, because the server writes
 * them.
 */
#ifndef SHED_ENTRY_H
#define SHED_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#define SHED_ENTRY_HEADER_BYTES 64
#define SHED_ENTRY_VERSION_BYTES 16
#define SHED_ENTRY_PROCESS_AT 24 /* in a lease: its holder */
#define SHED_ENTRY_HEAD_BYTES 40 /* the part before the times */
#define SHED_ENTRY_TAIL_BYTES 8  /* the part after them */

enum shed_entry_type {
    SHED_ENTRY_LEASE = 'L',
    SHED_ENTRY_VALUE = 'V',
    SHED_ENTRY_NEGATIVE = 'N',
    SHED_ENTRY_FAILURE = 'F'
};

enum shed_entry_flag {
    SHED_ENTRY_NULL = 1,        /* the row exists and its value is NULL */
    SHED_ENTRY_ROW_VERSION = 2, /* the row version is valid */
    SHED_ENTRY_POSITION = 8,    /* the nonce ends with a position */
    SHED_ENTRY_TAGS = 16        /* tags follow the payload */
};

enum shed_entry_state {
    SHED_ENTRY_OK,
    SHED_ENTRY_FOREIGN, /* not ours, or in an unknown format */
    SHED_ENTRY_CORRUPT  /* wrong length or checksum, or another key's entry */
};

/* The parts of a decoded entry other than a lease; payload and tags point into
 * it. */
struct shed_entry {
    enum shed_entry_type type;
    unsigned flags;
    uint32_t cost_ms;
    uint64_t written_ms;
    uint64_t until_ms;
    uint64_t row_version;
    uint64_t position; /* with POSITION; else 0 */
    const unsigned char *payload;
    size_t payload_size;
    const unsigned char *tags; /* with TAGS: all that follows the payload */
    size_t tags_size;
};

/* An entry's key with this suffix is the key of its refresh lease, which holds
 * a lease or a failure marker while the value stays at its own key. */
#define SHED_ENTRY_REFRESH_SUFFIX ":refresh"
#define SHED_ENTRY_REFRESH_SUFFIX_BYTES (sizeof(SHED_ENTRY_REFRESH_SUFFIX) - 1)

/* Write the key of an entry's refresh lease, which begins with that of the
 * entry: SHED_ENTRY_REFRESH_SUFFIX_BYTES more, not terminated. Returns: it, in
 * out. */
struct shed_bytes shed_entry_refresh_key(struct shed_bytes key, char *out);

/* The key of an entry, of which key is that or the one of its refresh. */
struct shed_bytes shed_entry_key_of(struct shed_bytes key);

/* Read bytes as the entry of key, as it is in Redis. *out is set if the result
 * is SHED_ENTRY_OK; for a lease, only type, flags and times. */
enum shed_entry_state shed_entry_decode(struct shed_bytes key,
                                        const void *bytes, size_t size,
                                        struct shed_entry *out);

/* The same for an entry of size bytes of which only the header was read, or
 * less if the entry is shorter. The checksum is not checked, and the payload
 * and the tags of *out are NULL. Unless it is FOREIGN, *out has type and flags.
 */
enum shed_entry_state shed_entry_decode_header(const void *head, size_t size,
                                               struct shed_entry *out);

/* The format number of an entry written by any version of this library; -1 if
 * the bytes are not an entry. */
int shed_entry_format(const void *bytes, size_t size);

/* The data version of a lease, or the nonce of any other entry. header must
 * have been accepted by decode; the result points into it. */
const unsigned char *shed_entry_version(const void *header);

/* What distinguishes a value from any other, and from itself before it was
 * renewed: its nonce, and when it was written. header must have been accepted
 * by decode. */
#define SHED_ENTRY_IDENTITY_BYTES 24

void shed_entry_identity(const void *header,
                         unsigned char out[SHED_ENTRY_IDENTITY_BYTES]);
bool shed_entry_has_identity(
    const void *header,
    const unsigned char identity[SHED_ENTRY_IDENTITY_BYTES]);

/* The version of a row, by the source's own count: a lower one is older. */
struct shed_row_version {
    uint64_t number;
    bool is_known;
};

/* That of an entry, whose header must have been accepted by decode. */
struct shed_row_version shed_entry_row_version(const void *header);

/* Whether a row that was loaded is older than one that is there. Without both
 * versions nobody knows. */
bool shed_row_version_is_lower(struct shed_row_version loaded,
                               struct shed_row_version there);

/* What decides whether an entry is a miss by one of its tags. */
struct shed_entry_tags {
    uint64_t position;         /* 0: none */
    const unsigned char *tags; /* as in struct shed_entry */
    size_t tags_size;
};

/* Of an entry that decode has accepted as a whole. */
void shed_entry_tags(const void *entry, struct shed_entry_tags *out);

/* The longest tag, and the most of one entry. */
#define SHED_ENTRY_TAG_MAX_BYTES 250
#define SHED_ENTRY_TAGS_MAX 64

/* Room for the tags of an entry. */
#define SHED_ENTRY_TAGS_MAX_BYTES                                              \
    (2 + SHED_ENTRY_TAGS_MAX * (1 + SHED_ENTRY_TAG_MAX_BYTES))

/* Room for one tag behind tags of size bytes. */
#define SHED_ENTRY_TAG_ROOM_BYTES(size, tag_size) (2 + (size) + 1 + (tag_size))

/* Append a tag of 1 to SHED_ENTRY_TAG_MAX_BYTES to the tags in room, of size
 * bytes; 0: there are none yet. Returns: the new size. */
size_t shed_entry_add_tag(unsigned char *room, size_t size, const void *tag,
                          size_t tag_size);

/* Whether these bytes are the tags of an entry. */
bool shed_entry_are_tags(const unsigned char *tags, size_t size);

/* Read the tag that begins at *at of an entry's tags, and step over it; *at
 * begins as 0. Returns: NULL after the last. */
const unsigned char *shed_entry_next_tag(const unsigned char *tags,
                                         size_t tags_size, size_t *at,
                                         size_t *tag_size);

/* The holder of a lease that decode has accepted. */
#define SHED_ENTRY_PROCESS_BYTES 16

struct shed_entry_holder {
    char process[SHED_ENTRY_PROCESS_BYTES]; /* not terminated */
    uint32_t flight;
    uint32_t epoch; /* of the process's session, which has a channel for as
                       long as it lasts; 0: nobody can see that */
};

void shed_entry_holder(const void *lease, struct shed_entry_holder *out);

/* Make a lease of a data version, whose flight's number is as in the header. It
 * lasts for lease_ms from now_ms, by the server's clock, as acquire.lua does.
 */
void shed_entry_encode_lease(const unsigned char *version,
                             const char process[SHED_ENTRY_PROCESS_BYTES],
                             const unsigned char flight[4], uint32_t epoch,
                             uint64_t now_ms, uint64_t lease_ms,
                             unsigned char out[SHED_ENTRY_HEADER_BYTES]);

/* The two parts of a header that the client writes. The script puts the times
 * between them and the payload behind them. */
struct shed_entry_parts {
    unsigned char head[SHED_ENTRY_HEAD_BYTES];
    unsigned char tail[SHED_ENTRY_TAIL_BYTES];
};

/* Make the parts of the header, from everything but the times of the entry of
 * key. nonce is SHED_ENTRY_VERSION_BYTES random bytes. The payload must be
 * shorter than 4 GiB. */
void shed_entry_encode(struct shed_bytes key, const struct shed_entry *entry,
                       const unsigned char *nonce,
                       struct shed_entry_parts *out);

/* Write numbers, big-endian, as the scripts and the header need them. */
void shed_entry_put_u32(unsigned char *at, uint32_t value);
void shed_entry_put_u64(unsigned char *at, uint64_t value);
uint64_t shed_entry_get_u64(const void *at);

#endif
