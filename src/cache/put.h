/* What puts that block and puts that do not have in common. */
#ifndef SHED_CACHE_PUT_H
#define SHED_CACHE_PUT_H

#include "cache/write.h"

/* What put.lua returns if it did nothing; how often such a put is sent. */
#define SHED_PUT_TOO_LATE 0
#define SHED_PUT_TRIES 3

/* How long a put may be under way: far longer than Redis takes, and not too
 * long for a caller whose connection was lost with it. */
#define SHED_PUT_MS 1000

/* A row that is put; its bytes and tags are borrowed. */
struct shed_put_row {
    struct shed_bytes row;
    uint64_t ttl_ms; /* 0: the cache's */
    uint64_t version;
    bool has_version;
    bool has_position; /* the cache has tags */
    uint64_t position; /* of their log */
    const unsigned char *tags;
    size_t tags_size;
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
};

/* The call of the script, and what its arguments are in. */
struct shed_put_args {
    struct shed_args args;
    struct shed_entry_parts parts;
    char fresh[SHED_DIGITS], kept[SHED_DIGITS];
};

/* Check a row and the options of its put. Returns: SHED_OK; SHED_EINVAL,
 * SHED_ETOOBIG. */
SHED_MUST_CHECK enum shed_code shed_put_check(const struct shed_cache *cache,
                                              struct shed_bytes row,
                                              const struct shed_put_options *o,
                                              struct shed_error *err);

/* The bytes that the tags of a put need, at most; and set all but the nonce and
 * the position, the tags in that room. */
size_t shed_put_tags_room(const struct shed_put_options *o);
void shed_put_set(struct shed_put_row *put, struct shed_bytes row,
                  const struct shed_put_options *o, unsigned char *tags);

/* Begin the call, whose last argument is missing: when it is too late, by the
 * server's clock. refresh is the name of the refresh lease, which begins with
 * the key, of size bytes. All is borrowed. */
void shed_put_begin(struct shed_put_args *out, const struct shed_cache *cache,
                    const struct shed_put_row *put, const char *refresh,
                    size_t size);

/* As shed_delivery_mark, for a put. */
struct shed_delivery_write shed_put_mark(struct shed_cache *cache,
                                         const struct shed_put_row *put);

/* Note what that server says of its clock, which TIME asked for at asked_ms.
 * reply NULL: there was no answer, for the reason *why. Returns: SHED_OK; else
 * *why says why its clock is not known. */
SHED_MUST_CHECK enum shed_code
shed_put_note_clock(struct shed_server *server, uint64_t asked_ms,
                    const struct shed_reply *reply, struct shed_error *why);

/* Count its end. */
void shed_put_count(struct shed_cache *cache, enum shed_code code);

#endif
