/* Replies as Redis would send them, for tests without a server. */
#ifndef REPLY_TESTING_H
#define REPLY_TESTING_H

#include <hiredis/hiredis.h>
#include <string.h>

#include "wire/reply.h"
#include "support/testing.h"

/* Free it with shed_reply_free. */
static inline struct shed_reply *parse_reply(const char *wire)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    ck_assert_int_eq(redisReaderFeed(reader, wire, strlen(wire)), REDIS_OK);
    ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
    ck_assert_ptr_nonnull(reply);
    redisReaderFree(reader);
    return reply;
}

#endif
