/*
 * The bounds of replies: bytes from a server are checked before the parser gets
 * them, because the parser trusts any length. For "*1000000000" it allocates a
 * billion elements, and then walks all of them.
 *
 * Pure. The only thing it knows about RESP is where the lengths are.
 */
#ifndef SHED_WIRE_FRAME_H
#define SHED_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest reply that anybody can have requested: an entry of the largest
 * value_limit_bytes, its header, and what a script puts around it. */
#define SHED_FRAME_MAX_BYTES (((uint64_t)256 << 20) + 65536)

/* Elements of a reply, including nested ones. Replies to our commands have ten
 * at most, and reads of a log of tags 1000; a push names the keys that have
 * changed, usually one. */
#define SHED_FRAME_MAX_ELEMENTS 1024

/* A status, an error, an integer, or the head of something longer. */
#define SHED_FRAME_MAX_LINE 65536

/* The position in a stream of replies; {0} at its beginning. */
struct shed_frame {
    enum shed_frame_part {
        SHED_FRAME_TYPE, /* the first byte of a line comes next */
        SHED_FRAME_LINE,
        SHED_FRAME_BULK
    } part;
    char type;
    bool is_negative;
    unsigned digits;   /* of a length, so far */
    uint64_t number;   /* the number that the digits make */
    uint64_t left;     /* of a bulk string, including the end of its line */
    uint64_t line;     /* bytes of the line so far */
    uint64_t bytes;    /* of bulk strings in the reply so far */
    uint64_t elements; /* of arrays in the reply so far */
    uint64_t open;     /* elements still to come */
};

/* Follow the stream. Returns: false at the first head that is invalid, or that
 * nobody can have requested: the connection must be closed. */
bool shed_frame_take(struct shed_frame *frame, const char *bytes, size_t size);

#endif
