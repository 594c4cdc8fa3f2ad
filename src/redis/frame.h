/*
 * The bounds of replies: what comes from a server is looked at before the
 * parser gets it, because the parser believes any length that it is told. It
 * allocates a billion elements for "*1000000000", and then walks all of them.
 *
 * Pure. All it knows of RESP is where the lengths are.
 */
#ifndef SHED_REDIS_FRAME_H
#define SHED_REDIS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest that anybody can have asked for: an entry with the most that
 * value_limit_bytes may be, its header, and what a script puts around it. */
#define SHED_FRAME_MAX_BYTES (((uint64_t)256 << 20) + 65536)

/* Elements of a reply, nested ones included. What we ask for has ten at most;
 * a push names the keys that have changed, most often one. */
#define SHED_FRAME_MAX_ELEMENTS 1024

/* A status, an error, an integer, the head of something longer. */
#define SHED_FRAME_MAX_LINE 65536

/* Where in a stream of replies we are; {0} at its beginning. */
struct shed_frame {
    enum shed_frame_part {
        SHED_FRAME_TYPE, /* the first byte of a line comes next */
        SHED_FRAME_LINE,
        SHED_FRAME_BULK
    } part;
    char type;
    bool is_negative;
    unsigned digits;   /* of a length, so far */
    uint64_t number;   /* that they make */
    uint64_t left;     /* of a bulk, with the end of its line */
    uint64_t line;     /* bytes of the line so far */
    uint64_t bytes;    /* of bulks in the reply so far */
    uint64_t elements; /* of arrays in the reply so far */
    uint64_t open;     /* elements still to come */
};

/* Follow the stream. Returns: false at the first head that nobody can have
 * asked for, or that is none: the connection is no longer of use. */
bool shed_frame_take(struct shed_frame *frame, const char *bytes, size_t size);

#endif
