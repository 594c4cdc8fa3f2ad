/* put: what a reply says of a try that was lost before. */
#include "cache/put.h"

#include "support/reply_testing.h"
#include "support/testing.h"

static bool is_late(struct shed_put_tries *tries)
{
    struct shed_reply *reply = parse_reply(":1700000000000\r\n");
    struct shed_error why = {SHED_OK, ""};
    bool is = shed_put_is_late(tries, reply, &why);

    shed_reply_free(reply);
    return is;
}

TEST(after_one_that_came_too_late_a_lost_one_does)
{
    struct shed_put_tries tries = {.was_lost = true, .late_ms = 1};

    ck_assert(is_late(&tries));
    ck_assert(!tries.was_lost);
}

/* Every try comes too late for the bound 0, however early it is. */
TEST(one_that_only_asked_for_the_clock_says_nothing_of_a_lost_one)
{
    struct shed_put_tries tries = {.was_lost = true, .late_ms = 0};

    ck_assert(is_late(&tries));
    ck_assert(tries.was_lost);
}

int main(void)
{
    return run_tests("put");
}
