/* parser: every possible reply passes, in pieces of any length; a reply that no
 * command asks for is refused as soon as its head has arrived. */
#include "wire/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/reply_testing.h"

/* Whether bytes that arrive in pieces are no reason to end the stream. */
static bool passes(const char *bytes, size_t size, size_t piece,
                   size_t *replies)
{
    struct shed_parser parser = {.bulk = NULL};
    enum shed_parser_result result = SHED_PARSER_MORE;
    struct shed_reply *reply;
    size_t at = 0, taken;

    *replies = 0;
    for (size_t come = 0; result != SHED_PARSER_INVALID && come < size;) {
        come += size - come < piece ? size - come : piece;
        do {
            result = shed_parser_take(&parser, bytes + at, come - at, &taken,
                                      &reply);
            at += taken;
            ck_assert_int_ne(result, SHED_PARSER_NO_MEMORY);
            if (result == SHED_PARSER_REPLY) {
                ck_assert(shed_parser_is_between(&parser));
                shed_reply_free(reply);
                ++*replies;
            } else if (result == SHED_PARSER_MORE && taken > 0 && at == come) {
                ck_assert(!shed_parser_is_between(&parser));
            }
        } while (result == SHED_PARSER_REPLY);
    }
    shed_parser_fini(&parser);
    return result != SHED_PARSER_INVALID;
}

static const char *const good[] = {
    "+OK\r\n",
    "-ERR no\r\n",
    ":0\r\n",
    ":-1\r\n",
    ":9223372036854775807\r\n",
    ":-9223372036854775807\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "$0\r\n\r\n",
    "*0\r\n",
    "$4\r\n$9\r\n\r\n",
    "$12\r\n*1000000000\n\r\n",
    "*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n",
    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*1\r\n$1\r\nk\r\n",
};

TEST(what_redis_says_passes_in_pieces_of_any_length)
{
    size_t replies;

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        for (size_t piece = 1; piece <= strlen(good[i]); piece++) {
            ck_assert_msg(passes(good[i], strlen(good[i]), piece, &replies),
                          "%s", good[i]);
            ck_assert_uint_eq(replies, 1);
        }
}

TEST(a_reply_says_nothing_about_the_next)
{
    const size_t kinds = sizeof(good) / sizeof(*good);
    static char all[65536];
    size_t size = 0, replies;

    for (int round = 0; round < 200; round++)
        for (size_t i = 0; i < kinds; i++) {
            memcpy(all + size, good[i], strlen(good[i]));
            size += strlen(good[i]);
        }
    ck_assert(passes(all, size, size, &replies));
    ck_assert_uint_eq(replies, 200 * kinds);
    ck_assert(passes(all, size, 7, &replies));
    ck_assert_uint_eq(replies, 200 * kinds);
}

TEST(what_no_command_asks_for_is_refused_at_its_head)
{
    static const char *const bad[] = {
        "*1000000000\r\n",
        "*2147483647\r\n",
        "*1048577\r\n",
        "*4294967297\r\n",
        "*18446744073709551616\r\n",
        "*18446744073709551617\r\n",
        "*-2\r\n",
        "*-18446744073709551615\r\n",
        "*1-1\r\n",
        "*--1\r\n",
        "*\r\n",
        "*-\r\n",
        "* 1\r\n",
        "*+1\r\n",
        "*25\r\n*1048552\r\n",
        "*1000\r\n*1048576\r\n",
        "*2\r\n*1\r\n*1048574\r\n",
        "*2\r\n*1\r\n:1\r\n*1048574\r\n",
        "$536870912\r\n",
        "$9999999999999\r\n",
        "$99999999999999999999999999\r\n",
        "$-2\r\n",
        "$\r\n",
        "$x\r\n",
        "%1\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        "+OK\n",
        ":\r\n",
        ":1a\r\n",
        ":9223372036854775808\r\n",
        ":99999999999999999999999\r\n",
        /* arrays in arrays */
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
    };
    size_t replies;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        for (size_t piece = 1; piece <= strlen(bad[i]); piece++)
            ck_assert_msg(!passes(bad[i], strlen(bad[i]), piece, &replies),
                          "%s", bad[i]);
}

/* Whether a head passes behind what has come before. */
static bool passes_behind(const char *before, const char *type,
                          unsigned long long number)
{
    char all[64];
    size_t replies;
    int size = snprintf(all, sizeof(all), "%s%s%llu\r\n", before, type, number);

    return passes(all, (size_t)size, 1, &replies);
}

TEST(the_most_that_may_be_passes_and_one_more_does_not)
{
    ck_assert(passes_behind("", "$", SHED_PARSER_MAX_BYTES));
    ck_assert(!passes_behind("", "$", SHED_PARSER_MAX_BYTES + 1));
    ck_assert(passes_behind("", "*", SHED_PARSER_MAX_ELEMENTS));
    ck_assert(!passes_behind("", "*", SHED_PARSER_MAX_ELEMENTS + 1));
}

TEST_EACH(texts_of_one_reply_are_bounded_together, 0, 3)
{
    static const char *const heads[] = {"*2\r\n$5\r\nhello\r\n",
                                        "*2\r\n+hello\r\n", "*2\r\n-hello\r\n"};
    const char *first = heads[_i];

    ck_assert(passes_behind(first, "$", SHED_PARSER_MAX_BYTES - 5));
    ck_assert(!passes_behind(first, "$", SHED_PARSER_MAX_BYTES - 4));
    ck_assert(passes_behind(first + 4, "$", SHED_PARSER_MAX_BYTES));
}

TEST(what_a_reply_says_is_what_was_sent)
{
    struct shed_reply *reply = parse_reply(
        "*5\r\n$4\r\na\r\nb\r\n+OK\r\n:-12\r\n*-1\r\n*2\r\n$0\r\n\r\n-no\r\n");
    const struct shed_reply *last = shed_reply_at(reply, 4);
    size_t size;

    ck_assert_uint_eq(shed_reply_count(reply), 5);
    ck_assert_str_eq(shed_reply_bytes(shed_reply_at(reply, 0), &size),
                     "a\r\nb");
    ck_assert_uint_eq(size, 4);
    ck_assert_str_eq(shed_reply_bytes(shed_reply_at(reply, 1), &size), "OK");
    ck_assert_int_eq(shed_reply_integer(shed_reply_at(reply, 2)), -12);
    ck_assert(shed_reply_is_nil(shed_reply_at(reply, 3)));
    ck_assert_str_eq(shed_reply_bytes(shed_reply_at(last, 0), &size), "");
    ck_assert_str_eq(shed_reply_error(shed_reply_at(last, 1)), "no");
    shed_reply_free(reply);
}

TEST(an_endless_line_is_refused)
{
    static char line[SHED_PARSER_MAX_LINE + 16];
    const size_t size = sizeof(line);
    size_t replies;

    memset(line, 'x', sizeof(line));
    line[0] = '-';
    ck_assert(!passes(line, size, 1000, &replies));
    ck_assert(!passes(line, size, size, &replies));
    memset(line, '0', sizeof(line));
    line[0] = '$';
    ck_assert(!passes(line, size, 1000, &replies));
}

int main(void)
{
    return run_tests("parser");
}
