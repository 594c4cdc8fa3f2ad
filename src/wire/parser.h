/*
 * From bytes to replies. Its user gives it what a server has sent, in pieces of
 * any length. A bulk string is copied once: to where the reply has it.
 *
 * A server that is none, or that answers more than anybody can have asked for,
 * is found out by the head that says so, before memory is taken for it. Pure.
 */
#ifndef SHED_WIRE_PARSER_H
#define SHED_WIRE_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/reply.h"

/* The longest reply that anybody can have requested: an entry of the largest
 * value_limit_bytes, its header, and what a script puts around it. */
#define SHED_PARSER_MAX_BYTES (((uint64_t)256 << 20) + 65536)

/* Elements of a reply, including nested ones. Replies to our commands have ten
 * at most, and reads of a log of tags 1000. A push for a tracking_prefix names
 * all keys that have changed in one turn of the server's loop, as those of one
 * UNLINK. CLUSTER SLOTS has about twenty for each range of slots, of which
 * there are many once slots have been moved one by one. */
#define SHED_PARSER_MAX_ELEMENTS ((uint64_t)1 << 20)

/* Arrays in arrays; the reply to CLUSTER SLOTS has four. */
#define SHED_PARSER_MAX_DEPTH 8

/* A status, an error, an integer, or the head of something longer. */
#define SHED_PARSER_MAX_LINE 65536

/* {0} at the beginning of a stream. */
struct shed_parser {
    struct shed_reply *bulk; /* being filled; NULL: a line comes next */
    size_t bulk_left;        /* of it, and of the end of its line */
    struct shed_parser_level {
        struct shed_reply *array;
        size_t count; /* of its elements that are complete */
    } level[SHED_PARSER_MAX_DEPTH];
    unsigned depth;
    uint64_t bytes;    /* of bulk strings in the reply so far */
    uint64_t elements; /* of arrays in the reply so far */
};

enum shed_parser_result {
    SHED_PARSER_REPLY,    /* *reply is complete, and the caller's */
    SHED_PARSER_MORE,     /* the reply goes on; all was taken but a line whose
                             end has not come: give it again, with more */
    SHED_PARSER_INVALID,  /* that is no reply, or one nobody can have requested:
                             the stream must end */
    SHED_PARSER_NO_MEMORY /* so must it */
};

/* Follow the stream up to the end of one reply, at most. *taken: how many bytes
 * that are. */
enum shed_parser_result shed_parser_take(struct shed_parser *parser,
                                         const char *bytes, size_t size,
                                         size_t *taken,
                                         struct shed_reply **reply);

/* Whether what was taken ends with the end of a reply. */
bool shed_parser_is_between(const struct shed_parser *parser);

void shed_parser_fini(struct shed_parser *parser);

#endif
