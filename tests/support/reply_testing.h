/* Replies as Redis would send them, for tests without a server. */
#ifndef REPLY_TESTING_H
#define REPLY_TESTING_H

#include <string.h>

#include "wire/parser.h"
#include "support/testing.h"

/* Free it with shed_reply_free. */
static inline struct shed_reply *parse_reply(const char *wire)
{
    struct shed_parser parser = {.bulk = NULL};
    struct shed_reply *reply = NULL;
    size_t taken;

    ck_assert_int_eq(
        shed_parser_take(&parser, wire, strlen(wire), &taken, &reply),
        SHED_PARSER_REPLY);
    ck_assert_uint_eq(taken, strlen(wire));
    shed_parser_fini(&parser);
    return reply;
}

#endif
