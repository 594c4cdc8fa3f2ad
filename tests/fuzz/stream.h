/* Bytes as the replies on one connection. */
#ifndef FUZZ_STREAM_H
#define FUZZ_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "wire/parser.h"

struct stream {
    struct shed_parser parser;
    const char *bytes; /* fed, and not taken yet */
    size_t size;
    bool is_lost; /* the connection would be closed */
};

static inline void check(bool is_true)
{
    if (!is_true)
        abort();
}

static inline void stream_open(struct stream *s)
{
    *s = (struct stream){.bytes = NULL};
}

/* Feed the next bytes. */
static inline void stream_feed(struct stream *s, const uint8_t *bytes,
                               size_t size)
{
    if (s->size == 0)
        s->bytes = (const char *)bytes;
    check(s->bytes + s->size == (const char *)bytes || s->is_lost);
    s->size += size;
}

/* The next reply, which is the caller's; NULL where there is none. */
static inline struct shed_reply *stream_next(struct stream *s)
{
    enum shed_parser_result result;
    struct shed_reply *reply;
    size_t taken;

    if (s->is_lost)
        return NULL;
    result = shed_parser_take(&s->parser, s->bytes, s->size, &taken, &reply);
    s->bytes += taken;
    s->size -= taken;
    s->is_lost = result != SHED_PARSER_REPLY && result != SHED_PARSER_MORE;
    return result == SHED_PARSER_REPLY ? reply : NULL;
}

static inline void stream_close(struct stream *s)
{
    shed_parser_fini(&s->parser);
}

#endif
