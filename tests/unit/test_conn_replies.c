/* One connection: matching replies to calls, and scripts that the server does
 * not know. */
#include <stdio.h>
#include <string.h>

#include "support/conn_fixture.h"

TEST(replies_in_all_cuts_go_to_their_calls)
{
    static const char replies[] = "$5\r\nvalue\r\n"
                                  "*2\r\n$1\r\n7\r\n$2\r\nOK\r\n"
                                  "+PONG\r\n";
    size_t size = strlen(replies);
    int owner[3];

    for (size_t cut = 0; cut <= size; cut++) {
        struct shed_args args;
        size_t got = 0;
        open_conn();
        queue("k", &owner[0]);
        queue_script(&args, &owner[1], 7);
        queue("k", &owner[2]);
        flush();
        for (size_t at = 0, n; at < size; at += n) {
            static const char *const text[] = {"value", "OK", "PONG"};
            static const size_t ends[] = {11, 30, 37};
            n = cut == 0 ? 1 : at < cut ? cut - at : size - at;
            say(replies + at, n);
            for (; got < 3 && at + n >= ends[got]; got++)
                expect(&owner[got], text[got]);
            expect_nothing();
            ck_assert_int_eq(conn.state, SHED_CONN_OPEN);
        }
        ck_assert_uint_eq(got, 3);
        end_conn();
    }
}

TEST(a_reply_that_no_call_expects_is_a_push)
{
    struct shed_conn_call call;
    struct shed_reply *reply = NULL;

    open_conn();
    say_text("*1\r\n$4\r\npush\r\n");
    ck_assert_int_eq(shed_conn_next(&conn, now_ms, &reply, &call),
                     SHED_CONN_PUSH);
    shed_reply_free(reply);
    expect_nothing();
}

TEST(a_reply_with_another_number_fails_the_connection_and_all_calls)
{
    struct shed_args args[2];
    struct shed_conn_call call;
    int owner[2];

    open_conn();
    queue_script(&args[0], &owner[0], 7);
    queue_script(&args[1], &owner[1], 8);
    flush();
    say_text("*2\r\n$1\r\n7\r\n$2\r\nOK\r\n"
             "*2\r\n$1\r\n7\r\n$2\r\nOK\r\n");
    expect(&owner[0], "OK");
    expect_nothing();
    ck_assert_int_eq(conn.state, SHED_CONN_FAILED);
    ck_assert(shed_conn_pop(&conn.queue, &call));
    ck_assert_ptr_eq(call.owner, &owner[1]);
    ck_assert(!shed_conn_pop(&conn.queue, &call));
}

TEST(a_script_that_the_server_lost_goes_again_by_text_and_only_once)
{
    struct shed_args args;
    struct shed_conn_call call;
    struct shed_reply *reply = NULL;
    int owner[2];

    open_conn();
    queue_script(&args, &owner[0], 7);
    queue("k", &owner[1]);
    flush();
    taken_size = 0;
    say_text(NOSCRIPT "+other\r\n");
    expect(&owner[1], "other");
    expect_nothing();
    flush();
    ck_assert_msg(strncmp(taken, "*5\r\n$4\r\nEVAL\r\n", 14) == 0, "%.*s",
                  (int)taken_size, taken);
    say_text("*2\r\n$1\r\n7\r\n$2\r\nOK\r\n");
    expect(&owner[0], "OK");

    queue_script(&args, NULL, 8);
    say_text(NOSCRIPT NOSCRIPT);
    ck_assert_int_eq(shed_conn_next(&conn, now_ms, &reply, &call),
                     SHED_CONN_REPLY);
    ck_assert(shed_script_is_unknown(reply));
    shed_reply_free(reply);
    expect_nothing();
}

static void expect_taken(const char *const *beginnings, size_t count)
{
    const char *at = taken;

    ck_assert_uint_lt(taken_size, sizeof(taken));
    taken[taken_size] = '\0';
    for (size_t i = 0; i < count; i++) {
        at = strstr(at, beginnings[i]);
        ck_assert_msg(at != NULL, "no %s in %s", beginnings[i], taken);
        at += strlen(beginnings[i]);
    }
    ck_assert_ptr_null(strstr(at, "EVAL"));
    taken_size = 0;
}

static void say_ok(unsigned number)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "*2\r\n$1\r\n%u\r\n$2\r\nOK\r\n",
                   number);
    say_text(text);
}

/* The second and the third call go by digest, behind the text of the first; the
 * third finds the script unknown again. */
TEST(a_batch_whose_script_the_server_lost_brings_its_text_once)
{
    static const char by_text[] = "\r\nEVAL\r\n";
    static const char by_digest[] = "\r\nEVALSHA\r\n";
    struct shed_args args[3];
    int owner[3];

    open_conn();
    for (unsigned i = 0; i < 3; i++)
        queue_script(&args[i], &owner[i], 5 + i);
    flush();
    taken_size = 0;
    say_text(NOSCRIPT NOSCRIPT NOSCRIPT);
    expect_nothing();
    flush();
    expect_taken((const char *[]){by_text, by_digest, by_digest}, 3);
    say_ok(5);
    say_ok(6);
    say_text(NOSCRIPT);
    expect(&owner[0], "OK");
    expect(&owner[1], "OK");
    expect_nothing();
    flush();
    expect_taken((const char *[]){by_text}, 1);
    say_ok(7);
    expect(&owner[2], "OK");

    queue_script(&args[0], &owner[0], 8);
    flush();
    taken_size = 0;
    say_text(NOSCRIPT);
    expect_nothing();
    flush();
    expect_taken((const char *[]){by_text}, 1);
    say_ok(8);
    expect(&owner[0], "OK");
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("conn replies");
}
