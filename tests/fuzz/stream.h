/* Bytes as the replies on one connection: bounded, then parsed, as
 * src/wire/wire.c does with what it receives. */
#ifndef FUZZ_STREAM_H
#define FUZZ_STREAM_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "wire/frame.h"
#include "wire/reply.h"

struct stream {
    struct shed_frame frame;
    redisReader *reader;
    bool is_lost; /* the connection would be closed */
};

static inline void check(bool is_true)
{
    if (!is_true)
        abort();
}

static inline void stream_open(struct stream *s)
{
    *s = (struct stream){.reader = redisReaderCreate()};
    check(s->reader != NULL);
}

static inline void stream_feed(struct stream *s, const uint8_t *bytes,
                               size_t size)
{
    if (s->is_lost || size == 0)
        return;
    s->is_lost =
        !shed_frame_take(&s->frame, (const char *)bytes, size) ||
        redisReaderFeed(s->reader, (const char *)bytes, size) != REDIS_OK;
}

/* The next reply, which is the caller's; NULL where there is none. */
static inline struct shed_reply *stream_next(struct stream *s)
{
    void *reply = NULL;

    if (s->is_lost)
        return NULL;
    s->is_lost = redisReaderGetReply(s->reader, &reply) != REDIS_OK;
    return s->is_lost ? NULL : reply;
}

static inline void stream_close(struct stream *s)
{
    redisReaderFree(s->reader);
}

#endif
