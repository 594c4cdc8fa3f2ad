/* One connection: set-up, sending, silence, closing, and matching replies to
 * calls. It runs by a made-up clock; the test is its owner, and also the server
 * at the other end of the socket. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/conn.h"
#include "wire/script.h"
#include "support/bare.h"
#include "support/greeting.h"
#include "support/sockets.h"
#include "support/testing.h"

#define CONNECT_MS 1000
#define COMMAND_MS 500
#define NOSCRIPT "-NOSCRIPT No matching script.\r\n"
#define TAKEN_MAX 65536

static struct shed_address *address;
static struct shed_conn conn;
static int peer = -1;
static int listener = -1;
static char path[100];
static uint64_t now_ms;
/* What the server has read so far. */
static char taken[TAKEN_MAX];
static size_t taken_size;
/* How many bytes the socket takes before it is full. */
static size_t room = SIZE_MAX;

WRAPPED(send);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    if (fd != conn.wire.fd)
        return __real_send(fd, bytes, size, flags);
    if (room == 0) {
        errno = EAGAIN;
        return -1;
    }
    size = size < room ? size : room;
    room -= room == SIZE_MAX ? 0 : size;
    return __real_send(fd, bytes, size, flags);
}

/* --------------------------------------------------------------- the server */

static void stop_server(void)
{
    close(listener);
    (void)unlink(path);
    shed_address_unref(address);
}

static void start_server(const char *user)
{
    struct shed_error err;
    char uri[160];

    (void)snprintf(path, sizeof(path), "/tmp/shed-conn-%ld.sock",
                   (long)getpid());
    (void)unlink(path);
    listener = bind_path(path);
    ck_assert_int_eq(listen(listener, 5), 0);
    (void)snprintf(uri, sizeof(uri), "unix:%s%s%s", user, path,
                   *user != '\0' ? "?db=2" : "");
    ck_assert_int_eq(shed_address_create(uri, &address, &err), SHED_OK);
}

/* Start a server that demands NAME:PASSWORD@; then the connection also selects
 * a database. */
static void start_server_of(const char *user)
{
    stop_server();
    start_server(user);
}

/* Start one whose socket is full after a few bytes. */
static void start_tcp_server(const char *scheme)
{
    int few = 4096;
    unsigned port;
    char uri[64];

    stop_server();
    listener = bind_any_port(&port);
    ck_assert_int_eq(
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
    ck_assert_int_eq(listen(listener, 5), 0);
    (void)snprintf(uri, sizeof(uri), "%s://127.0.0.1:%u", scheme, port);
    ck_assert_int_eq(shed_address_create(uri, &address, NULL), SHED_OK);
}

/* Take what the connection has sent; on a unix socket it arrives at once. */
static void take(void)
{
    ssize_t size;

    while ((size = recv(peer, taken + taken_size, sizeof(taken) - taken_size,
                        MSG_DONTWAIT)) > 0)
        taken_size += (size_t)size;
}

static void say(const char *bytes, size_t size)
{
    ck_assert_int_eq(send(peer, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
    shed_conn_ready(&conn, POLLIN, now_ms);
}

static void say_text(const char *text)
{
    say(text, strlen(text));
}

/* Connect and send the set-up. */
static void start_conn(void)
{
    struct shed_client_options options = bare_client();

    options.connect_timeout_ms = CONNECT_MS;
    options.command_timeout_ms = COMMAND_MS;
    shed_conn_init(&conn, address, &options);
    shed_conn_start(&conn, 0, now_ms);
    ck_assert_int_eq(conn.state, SHED_CONN_CONNECTING);
    ck_assert_int_eq(shed_conn_want(&conn), POLLOUT);
    peer = accept(listener, NULL, NULL);
    ck_assert_int_ge(peer, 0);
    taken_size = 0;
    shed_conn_ready(&conn, POLLOUT, now_ms);
    take();
}

/* Discard the connection with everything that is queued. */
static void end_conn(void)
{
    shed_conn_fini(&conn);
    close(peer);
    peer = -1;
}

static void open_conn(void)
{
    start_conn();
    say_text(GREETING);
    /* over TCP it may take a moment */
    WAIT_FOR((shed_conn_ready(&conn, POLLIN, now_ms),
              conn.state != SHED_CONN_SETTING_UP));
    ck_assert_int_eq(conn.state, SHED_CONN_OPEN);
    taken_size = 0;
}

static void set_up(void)
{
    now_ms = 1000000;
    room = SIZE_MAX;
    start_server("");
}

static void tear_down(void)
{
    if (peer >= 0)
        end_conn();
    stop_server();
}

/* ---------------------------------------------------------------- the owner */

static void queue_args(const struct shed_args *args, void *owner,
                       uint64_t number)
{
    struct shed_conn_call call = {.owner = owner};
    struct shed_error err;

    call.again = number != 0 ? args : NULL;
    if (number != 0)
        conn.last_number = number - 1;
    ck_assert_int_eq(shed_conn_send_args(&conn, args, &call, now_ms, &err),
                     SHED_OK);
}

static void queue(const char *key, void *owner)
{
    struct shed_args args = {0};

    shed_args_add_text(&args, "GET");
    shed_args_add_text(&args, key);
    queue_args(&args, owner, 0);
}

static void queue_script(struct shed_args *args, void *owner, uint64_t number)
{
    shed_script_begin(args, SHED_SCRIPT_INVALIDATE, "1");
    shed_args_add_text(args, "key");
    queue_args(args, owner, number);
}

static void flush(void)
{
    shed_conn_ready(&conn, POLLOUT, now_ms);
    take();
}

/* Expect that the next reply is for this owner and has this text. */
static void expect(const void *owner, const char *text)
{
    struct shed_conn_call call = {0};
    struct shed_reply *reply = NULL;
    size_t size = 0;
    const char *bytes;

    ck_assert_int_eq(shed_conn_next(&conn, now_ms, &reply, &call),
                     SHED_CONN_REPLY);
    ck_assert_ptr_eq(call.owner, owner);
    bytes = shed_reply_bytes(reply, &size);
    ck_assert_msg(size == strlen(text) && memcmp(bytes, text, size) == 0,
                  "%.*s instead of %s", (int)size, bytes, text);
    shed_reply_free(reply);
}

static void expect_nothing(void)
{
    struct shed_conn_call call;
    struct shed_reply *reply = NULL;

    ck_assert_int_eq(shed_conn_next(&conn, now_ms, &reply, &call),
                     SHED_CONN_NOTHING);
}

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

/* A sentinel without a password needs no command: but it is not set up, nor is
 * anything queued sent, before the handshake has ended. */
TEST(without_a_command_the_set_up_lasts_as_long_as_the_handshake)
{
    const struct shed_client_options options = bare_client();

    start_tcp_server("rediss");
    EXPECT_OK(shed_address_use_tls(address, &options, NULL));
    address->is_guide = true;
    start_conn();
    for (int i = 0; i < 2; i++) {
        queue("k", NULL);
        flush();
    }
    ck_assert_int_eq(conn.state, SHED_CONN_SETTING_UP);
    ck_assert_int_eq(shed_conn_want(&conn), POLLIN);
    now_ms += CONNECT_MS;
    shed_conn_tick(&conn, now_ms);
    ck_assert_int_eq(conn.state, SHED_CONN_FAILED);
    ck_assert_ptr_nonnull(strstr(conn.failure.error.reason, "TLS handshake"));
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
        room = cut - (cut < strlen(one) ? cut : strlen(one));
        flush();
        queue("three", &owner[2]);
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
    start_tcp_server("redis");
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
    start_tcp_server("redis");
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

    start_tcp_server("redis");
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
    for (size_t i = 0; i < 2; i++) {
        const char *part = i == 0 ? "*1\r\n" : "+a";
        ck_assert_int_gt(send(peer, part, strlen(part), 0), 0);
        ck_assert_int_eq(shed_wire_fill(&conn.wire, false, &err),
                         SHED_WIRE_DONE);
        ck_assert_int_eq(shed_wire_next(&conn.wire, &reply, &err),
                         SHED_WIRE_AGAIN);
        ck_assert(!shed_wire_is_quiet(&conn.wire));
    }
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

/* ----------------------------------------------------------------- replies */

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
    say_text("*2\r\n$1\r\n8\r\n$2\r\nOK\r\n");
    expect(&owner[0], "OK");
    queue_script(&args, NULL, 9);
    say_text(NOSCRIPT NOSCRIPT NOSCRIPT); /* by digest, digest, text */
    ck_assert_int_eq(shed_conn_next(&conn, now_ms, &reply, &call),
                     SHED_CONN_REPLY);
    ck_assert(shed_reply_begins(reply, "NOSCRIPT"));
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
        queue_script(&args[i], &owner[i], 1 + i);
    flush();
    taken_size = 0;
    say_text(NOSCRIPT NOSCRIPT NOSCRIPT);
    expect_nothing();
    flush();
    expect_taken((const char *[]){by_text, by_digest, by_digest}, 3);
    say_ok(4);
    say_ok(5);
    say_text(NOSCRIPT);
    expect(&owner[0], "OK");
    expect(&owner[1], "OK");
    expect_nothing();
    flush();
    expect_taken((const char *[]){by_text}, 1);
    say_ok(7);
    expect(&owner[2], "OK");
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("conn");
}
