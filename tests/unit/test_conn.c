/* One connection: set-up, sending, silence, failover. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/conn_fixture.h"

/* --------------------------------------------------------------- the set-up */

/* Whatever is queued before the set-up has been accepted is sent after it. */
TEST(nothing_is_sent_before_the_last_answer_of_the_set_up)
{
    static const char answers[] = "+OK\r\n+OK\r\n" GREETING;
    static const char call[] = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    size_t size = strlen(answers);

    start_server_of("me:secret@");
    for (size_t cut = 0; cut < size; cut++) {
        start_conn();
        ck_assert_msg(strstr(taken, "AUTH") != NULL &&
                          strstr(taken, "SELECT") != NULL &&
                          strstr(taken, "ROLE") != NULL,
                      "%.*s", (int)taken_size, taken);
        taken_size = 0;
        queue("k", NULL);
        if (cut > 0)
            say(answers, cut);
        flush();
        ck_assert_int_eq(conn.state, SHED_CONN_SETTING_UP);
        ck_assert_uint_eq(taken_size, 0);
        say(answers + cut, size - cut);
        ck_assert_int_eq(conn.state, SHED_CONN_OPEN);
        flush();
        ck_assert_uint_eq(taken_size, strlen(call));
        end_conn();
    }
}

TEST(what_follows_the_set_up_unasked_fails_it)
{
    start_conn();
    say_text(GREETING "+OK\r\n");
    ck_assert_int_eq(conn.state, SHED_CONN_FAILED);
}

/* An error of ROLE or TIME itself is accepted, the answer to another command is
 * not. */
TEST(only_answers_to_role_and_time_end_the_set_up)
{
    static const struct {
        const char *answers;
        enum shed_conn_state state;
        enum shed_trouble trouble;
    } row[] = {
        {"+OK\r\n+OK\r\n" GREETING, SHED_CONN_OPEN, 0},
        {"+OK\r\n+OK\r\n-NOPERM this user has no permissions to run the 'role' "
         "command or its subcommand\r\n" TIME,
         SHED_CONN_OPEN, 0},
        {"+OK\r\n+OK\r\n-ERR unknown command `ROLE`, with args beginning with: "
         "\r\n" TIME,
         SHED_CONN_OPEN, 0},
        {"+OK\r\n+OK\r\n" PRIMARY "-ERR unknown command 'TIME'\r\n",
         SHED_CONN_OPEN, 0},
        {"+OK\r\n+OK\r\n" PRIMARY "-ERR unknown command 'ROLE'\r\n",
         SHED_CONN_FAILED, SHED_TROUBLE_DENIED},
        /* AUTH's answer doubled, so that SELECT's comes third */
        {"+OK\r\n+OK\r\n-ERR DB index is out of range\r\n", SHED_CONN_FAILED,
         SHED_TROUBLE_DENIED},
        {"+OK\r\n+OK\r\n-NOPERM this user has no permissions to run the "
         "'select' command or its subcommand\r\n",
         SHED_CONN_FAILED, SHED_TROUBLE_DENIED},
        {"+OK\r\n+OK\r\n+OK\r\n", SHED_CONN_FAILED, SHED_TROUBLE_PASSING},
        {"+OK\r\n+OK\r\n$6\r\nmaster\r\n", SHED_CONN_FAILED,
         SHED_TROUBLE_PASSING},
        {"+OK\r\n+OK\r\n*1\r\n$5\r\nslave\r\n", SHED_CONN_FAILED,
         SHED_TROUBLE_DOWN},
        {"+OK\r\n+OK\r\n" PRIMARY PRIMARY, SHED_CONN_FAILED,
         SHED_TROUBLE_PASSING},
        {"+OK\r\n-ERR DB index is out of range\r\n" GREETING, SHED_CONN_FAILED,
         SHED_TROUBLE_DENIED},
    };

    start_server_of("me:secret@");
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        atomic_store(&address->is_role_refused, false);
        start_conn();
        say_text(row[i].answers);
        ck_assert_msg(conn.state == row[i].state, "%s", row[i].answers);
        if (conn.state == SHED_CONN_FAILED)
            ck_assert_msg(conn.failure.trouble == row[i].trouble, "%s",
                          row[i].answers);
        end_conn();
    }
}

TEST(the_set_up_learns_the_server_s_clock)
{
    start_conn();
    now_ms += 10;
    say_text(GREETING);
    ck_assert_uint_eq(shed_server_clock_ms(&address->clock, now_ms),
                      TIME_MS + 10 + 1);
}

/* ------------------------------------------------------------------ sending */

/* Bytes that are queued while others are being sent follow them, wherever the
 * socket becomes full. */
TEST(a_send_that_is_cut_anywhere_is_followed_by_what_was_queued_meanwhile)
{
    static const char one[] = "*2\r\n$3\r\nGET\r\n$3\r\none\r\n";
    static const char all[] = "*2\r\n$3\r\nGET\r\n$3\r\none\r\n"
                              "*2\r\n$3\r\nGET\r\n$3\r\ntwo\r\n"
                              "*2\r\n$3\r\nGET\r\n$5\r\nthree\r\n";
    int owner[3];

    for (size_t cut = 0; cut <= strlen(all); cut++) {
        open_conn();
        room = cut < strlen(one) ? cut : strlen(one);
        queue("one", &owner[0]);
        flush();
        queue("two", &owner[1]);
        (void)shed_conn_take(&conn); /* as a link does in each round */
        room = cut - (cut < strlen(one) ? cut : strlen(one));
        flush();
        queue("three", &owner[2]);
        (void)shed_conn_take(&conn);
        room = SIZE_MAX;
        flush();
        ck_assert_int_eq(shed_conn_want(&conn), POLLIN);
        ck_assert_msg(taken_size == strlen(all) &&
                          memcmp(taken, all, taken_size) == 0,
                      "cut at %zu: %.*s", cut, (int)taken_size, taken);
        say_text("+1\r\n+2\r\n+3\r\n");
        expect(&owner[0], "1");
        expect(&owner[1], "2");
        expect(&owner[2], "3");
        end_conn();
    }
}

/* ------------------------------------------------------------------ silence */

TEST(a_connection_is_not_silent_while_replies_come)
{
    int owner[3];

    open_conn();
    ck_assert_uint_eq(shed_conn_due_ms(&conn), UINT64_MAX);
    for (int i = 0; i < 3; i++)
        queue("k", &owner[i]);
    flush();
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(shed_conn_due_ms(&conn), now_ms + COMMAND_MS);
        now_ms += COMMAND_MS - 1;
        shed_conn_tick(&conn, now_ms);
        say_text("+OK\r\n");
        expect(&owner[i], "OK");
    }
    ck_assert_uint_eq(shed_conn_due_ms(&conn), UINT64_MAX);
}

/* A process that was stopped finds its reply, however late it looks; if there
 * is none, the connection fails. */
TEST(a_silent_connection_is_looked_at_once_more_and_fails)
{
    int owner[2];

    open_conn();
    queue("k", &owner[0]);
    queue("k", &owner[1]);
    flush();
    now_ms += (uint64_t)10 * COMMAND_MS;
    ck_assert_int_eq(send(peer, "+OK\r\n", 5, MSG_NOSIGNAL), 5);
    shed_conn_tick(&conn, now_ms);
    expect(&owner[0], "OK");
    shed_conn_tick(&conn, now_ms);
    ck_assert_int_eq(conn.state, SHED_CONN_OPEN);

    now_ms += COMMAND_MS;
    shed_conn_tick(&conn, now_ms);
    expect_nothing();
    ck_assert_int_eq(conn.state, SHED_CONN_OPEN);
    ck_assert_uint_le(shed_conn_due_ms(&conn), now_ms);
    shed_conn_tick(&conn, now_ms);
    ck_assert_int_eq(conn.state, SHED_CONN_FAILED);
    ck_assert(conn.failure.is_silent);
    ck_assert_int_eq(conn.failure.trouble, SHED_TROUBLE_DOWN);
}

TEST(a_set_up_without_an_answer_fails_at_the_connect_timeout)
{
    start_conn();
    ck_assert_uint_eq(shed_conn_due_ms(&conn), now_ms + CONNECT_MS);
    shed_conn_tick(&conn, now_ms + CONNECT_MS - 1);
    ck_assert_int_eq(conn.state, SHED_CONN_SETTING_UP);
    shed_conn_tick(&conn, now_ms + CONNECT_MS);
    ck_assert_int_eq(conn.state, SHED_CONN_FAILED);
    ck_assert(conn.failure.is_silent);
    ck_assert_ptr_nonnull(strstr(conn.failure.error.reason, "ROLE"));
}

TEST(a_connection_closed_by_the_server_fails)
{
    open_conn();
    queue("k", NULL);
    flush();
    ck_assert_int_eq(shutdown(peer, SHUT_RDWR), 0);
    shed_conn_ready(&conn, POLLIN, now_ms);
    ck_assert_int_eq(conn.state, SHED_CONN_FAILED);
    ck_assert_int_eq(conn.failure.trouble, SHED_TROUBLE_PASSING);
    ck_assert(!conn.failure.is_silent);
}

/* ------------------------------------------------------------------ closing */

/* Read to the end, as the server sees it. Returns 0 or an errno. */
static int read_to_end(void)
{
    char bytes[4096];
    ssize_t size;

    do
        size = recv(peer, bytes, sizeof(bytes), 0);
    while (size > 0);
    return size == 0 ? 0 : errno;
}

/* Queue more than both sockets can hold. */
static void queue_too_much(void)
{
    static char key[65536];

    memset(key, 'k', sizeof(key) - 1);
    do {
        queue(key, NULL);
        shed_conn_ready(&conn, POLLOUT, now_ms);
    } while (shed_conn_want(&conn) == POLLIN);
}

/* After a reset the kernel sends nothing more of what it has accepted. */
TEST(what_a_silent_server_has_not_taken_is_dropped)
{
    start_tcp_server();
    open_conn();
    queue_too_much();
    now_ms += COMMAND_MS;
    shed_conn_tick(&conn, now_ms);
    shed_conn_tick(&conn, now_ms);
    ck_assert(conn.failure.is_silent);
    shed_conn_close(&conn);
    ck_assert_int_eq(read_to_end(), ECONNRESET);
}

TEST(a_call_that_was_not_answered_is_dropped_with_its_connection)
{
    start_tcp_server();
    open_conn();
    queue("k", NULL);
    shed_conn_ready(&conn, POLLOUT, now_ms);
    shed_conn_close(&conn);
    ck_assert_int_eq(read_to_end(), ECONNRESET);
}

TEST(a_connection_whose_calls_were_answered_is_closed_as_usual)
{
    struct shed_conn_call call;
    struct shed_reply *reply = NULL;

    start_tcp_server();
    open_conn();
    queue("k", NULL);
    shed_conn_ready(&conn, POLLOUT, now_ms);
    say_text("+OK\r\n");
    WAIT_FOR((shed_conn_ready(&conn, POLLIN, now_ms),
              shed_conn_next(&conn, now_ms, &reply, &call)) == SHED_CONN_REPLY);
    shed_reply_free(reply);
    shed_conn_close(&conn);
    ck_assert_int_eq(read_to_end(), 0);
}

/* ----------------------------------------------------------------- failover */

TEST(a_connection_of_a_server_that_was_left_is_known)
{
    struct shed_error why;

    open_conn();
    ck_assert(!shed_conn_is_left(&conn, conn.term, &why));
    ck_assert(shed_conn_is_left(&conn, conn.term + 1, &why));
    end_conn();
    ck_assert(!shed_conn_is_left(&conn, conn.term + 1, &why));
}

/* ------------------------------------------------------------------- limits */

TEST(a_queue_of_another_connection_goes_behind_ones_own)
{
    struct shed_conn_queue waiting;
    struct shed_error err;
    int owner[2];

    start_conn();
    queue("later", &owner[1]);
    waiting = conn.queue;
    conn.queue = (struct shed_conn_queue){0};
    say_text(GREETING);
    queue("first", &owner[0]);
    ck_assert_int_eq(shed_conn_send_queue(&conn, &waiting, &err), SHED_OK);
    taken_size = 0;
    flush();
    ck_assert_uint_lt(taken_size, sizeof(taken));
    taken[taken_size] = '\0';
    ck_assert_ptr_nonnull(strstr(taken, "first"));
    ck_assert_ptr_nonnull(strstr(strstr(taken, "first"), "later"));
    say_text("+1\r\n+2\r\n");
    expect(&owner[0], "1");
    expect(&owner[1], "2");
}

/* ---------------------------------------------------------------- the wire */

#define REPLY "+a reply\r\n"
#define REPLIES 800

/* The parser takes a reply at a time: what it has not taken yet is still there
 * to read. */
TEST(a_reply_that_nobody_has_taken_is_something_to_read)
{
    static char replies[REPLIES * (sizeof(REPLY) - 1)];
    struct shed_reply *reply;
    struct shed_error err;

    open_conn();
    ck_assert(shed_wire_is_quiet(&conn.wire));
    for (size_t i = 0; i < sizeof(replies); i++)
        replies[i] = REPLY[i % strlen(REPLY)];
    ck_assert_int_eq(send(peer, replies, sizeof(replies), 0),
                     (ssize_t)sizeof(replies));
    ck_assert_int_eq(shed_wire_fill(&conn.wire, false, &err), SHED_WIRE_DONE);
    for (int i = 0; i < REPLIES; i++) {
        ck_assert(!shed_wire_is_quiet(&conn.wire));
        ck_assert_int_eq(shed_wire_next(&conn.wire, &reply, &err),
                         SHED_WIRE_DONE);
        shed_reply_free(reply);
    }
    ck_assert_int_eq(shed_wire_next(&conn.wire, &reply, &err), SHED_WIRE_AGAIN);
    ck_assert(shed_wire_is_quiet(&conn.wire));
    /* so is a reply of which a part has come */
    ck_assert_int_eq(send(peer, "+a", 2, 0), 2);
    ck_assert_int_eq(shed_wire_fill(&conn.wire, false, &err), SHED_WIRE_DONE);
    ck_assert_int_eq(shed_wire_next(&conn.wire, &reply, &err), SHED_WIRE_AGAIN);
    ck_assert(!shed_wire_is_quiet(&conn.wire));
}

static void expect_lost(enum shed_wire_io io, const struct shed_error *err,
                        const char *what, int failure)
{
    char reason[SHED_REASON_BYTES];

    snprintf(reason, sizeof(reason), "Redis: connection lost: %s: %s", what,
             strerror(failure));
    ck_assert_int_eq(io, SHED_WIRE_LOST);
    ck_assert_str_eq(err->reason, reason);
}

TEST(a_socket_that_fails_says_why)
{
    const struct shed_buffer bytes = {.at = (char[]){"k"}, .size = 1};
    struct shed_wire wire;
    struct shed_error err;
    int ends[2];

    shed_wire_init(&wire);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    wire.fd = ends[0];
    ck_assert_int_eq(shed_buffer_add(&wire.out, &bytes, &err), SHED_OK);
    close(ends[1]);
    expect_lost(shed_wire_flush(&wire, &err), &err, "send failed", EPIPE);
    shed_wire_close(&wire);
    ck_assert_int_eq(pipe(ends), 0);
    wire.fd = ends[0];
    wire.in = malloc(1);
    expect_lost(shed_wire_fill(&wire, false, &err), &err, "receive failed",
                ENOTSOCK);
    shed_wire_close(&wire);
    close(ends[1]);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("conn");
}
