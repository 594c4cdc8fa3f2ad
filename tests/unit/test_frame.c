/* frame: every possible reply passes, in pieces of any length; a reply that no
 * command asks for is refused as soon as its head has arrived. */
#include "wire/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/testing.h"

/* How many bytes pass if they arrive in pieces. */
static size_t passes(const char *bytes, size_t size, size_t piece)
{
    struct shed_frame frame = {0};

    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (!shed_frame_take(&frame, bytes + at, n))
            return at;
    }
    return size;
}

static const char *const good[] = {
    "+OK\r\n",
    "-ERR no\r\n",
    ":0\r\n",
    ":-1\r\n",
    ":99999999999999999999999\r\n", /* left to the parser to refuse */
    "$-1\r\n",
    "*-1\r\n",
    "$0\r\n\r\n",
    "*0\r\n",
    "$4\r\n$9\r\n\r\n",
    "$12\r\n*1000000000\n\r\n",
    "*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*1\r\n$1\r\nk\r\n",
};

START_TEST(what_redis_says_passes_in_pieces_of_any_length)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        for (size_t piece = 1; piece <= strlen(good[i]); piece++)
            ck_assert_msg(passes(good[i], strlen(good[i]), piece) ==
                              strlen(good[i]),
                          "%s", good[i]);
}
END_TEST

START_TEST(a_reply_says_nothing_about_the_next)
{
    static char all[65536];
    size_t size = 0;

    for (int round = 0; round < 200; round++)
        for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
            memcpy(all + size, good[i], strlen(good[i]));
            size += strlen(good[i]);
        }
    ck_assert_uint_eq(passes(all, size, size), size);
    ck_assert_uint_eq(passes(all, size, 7), size);
}
END_TEST

START_TEST(what_no_command_asks_for_is_refused_at_its_head)
{
    static const char *const bad[] = {
        "*1000000000\r\n",
        "*2147483647\r\n",
        "*1025\r\n",
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
        "*25\r\n*1000\r\n",
        "*1000\r\n*1000\r\n",
        "*2\r\n*1\r\n*1022\r\n",
        "$536870912\r\n",
        "$9999999999999\r\n",
        "$99999999999999999999999999\r\n",
        "$-2\r\n",
        "$\r\n",
        "$x\r\n",
        "%1\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        for (size_t piece = 1; piece <= strlen(bad[i]); piece++)
            ck_assert_msg(passes(bad[i], strlen(bad[i]), piece) <
                              strlen(bad[i]),
                          "%s", bad[i]);
}
END_TEST

START_TEST(the_most_that_may_be_passes_and_one_more_does_not)
{
    char head[32];
    int size = snprintf(head, sizeof(head), "$%llu\r\n",
                        (unsigned long long)SHED_FRAME_MAX_BYTES);

    ck_assert_uint_eq(passes(head, (size_t)size, 1), (size_t)size);
    size = snprintf(head, sizeof(head), "$%llu\r\n",
                    (unsigned long long)SHED_FRAME_MAX_BYTES + 1);
    ck_assert_uint_lt(passes(head, (size_t)size, 1), (size_t)size);
    size = snprintf(head, sizeof(head), "*%d\r\n", SHED_FRAME_MAX_ELEMENTS);
    ck_assert_uint_eq(passes(head, (size_t)size, 1), (size_t)size);
}
END_TEST

START_TEST(bulks_of_one_reply_are_bounded_together)
{
    const char second[] = "\r\n$1\r\n";
    struct shed_frame frame = {0};
    char head[32], *part;
    uint64_t left = SHED_FRAME_MAX_BYTES;
    const size_t piece = 65536;

    (void)snprintf(head, sizeof(head), "*2\r\n$%llu\r\n",
                   (unsigned long long)SHED_FRAME_MAX_BYTES);
    ck_assert(shed_frame_take(&frame, head, strlen(head)));
    part = calloc(1, piece);
    ck_assert_ptr_nonnull(part);
    for (; left > 0; left -= piece)
        ck_assert(shed_frame_take(&frame, part, piece));
    free(part);
    ck_assert(!shed_frame_take(&frame, second, strlen(second)));
}
END_TEST

START_TEST(an_endless_line_is_refused)
{
    static char line[SHED_FRAME_MAX_LINE + 16];

    memset(line, 'x', sizeof(line));
    line[0] = '-';
    ck_assert_uint_lt(passes(line, sizeof(line), 1000), sizeof(line));
    ck_assert_uint_lt(passes(line, sizeof(line), sizeof(line)), sizeof(line));
    memset(line, '0', sizeof(line));
    line[0] = '$';
    ck_assert_uint_lt(passes(line, sizeof(line), 1000), sizeof(line));
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("frame");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, what_redis_says_passes_in_pieces_of_any_length);
    tcase_add_test(tc, a_reply_says_nothing_about_the_next);
    tcase_add_test(tc, what_no_command_asks_for_is_refused_at_its_head);
    tcase_add_test(tc, the_most_that_may_be_passes_and_one_more_does_not);
    tcase_add_test(tc, bulks_of_one_reply_are_bounded_together);
    tcase_add_test(tc, an_endless_line_is_refused);
    return run_tests("frame", tc);
}
