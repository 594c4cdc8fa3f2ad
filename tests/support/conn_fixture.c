/* The server at the other end of a connection's socket, and its owner. */
#include "support/bare.h"
#include "support/conn_fixture.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct shed_address *address;
struct shed_conn conn;
int peer = -1;
static int listener = -1;
static char path[100];
uint64_t now_ms;
char taken[TAKEN_MAX];
size_t taken_size;
size_t room = SIZE_MAX;

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
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct shed_error err;
    char uri[160];

    (void)snprintf(path, sizeof(path), "/tmp/shed-conn-%ld.sock",
                   (long)getpid());
    memcpy(name.sun_path, path, strlen(path) + 1);
    (void)unlink(path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
    ck_assert_int_eq(listen(listener, 5), 0);
    (void)snprintf(uri, sizeof(uri), "unix:%s%s%s", user, path,
                   *user != '\0' ? "?db=2" : "");
    ck_assert_int_eq(shed_address_create(uri, &address, &err), SHED_OK);
}

void start_server_of(const char *user)
{
    stop_server();
    start_server(user);
}

void start_tcp_server(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int few = 4096;
    char uri[64];

    stop_server();
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
    ck_assert_int_eq(listen(listener, 5), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &size), 0);
    (void)snprintf(uri, sizeof(uri), "redis://127.0.0.1:%u",
                   (unsigned)ntohs(name.sin_port));
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

void say(const char *bytes, size_t size)
{
    ck_assert_int_eq(send(peer, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
    shed_conn_ready(&conn, POLLIN, now_ms);
}

void say_text(const char *text)
{
    say(text, strlen(text));
}

void start_conn(void)
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

void end_conn(void)
{
    shed_conn_fini(&conn);
    close(peer);
    peer = -1;
}

void open_conn(void)
{
    start_conn();
    say_text(GREETING);
    /* over TCP it may take a moment */
    WAIT_FOR((shed_conn_ready(&conn, POLLIN, now_ms),
              conn.state != SHED_CONN_SETTING_UP));
    ck_assert_int_eq(conn.state, SHED_CONN_OPEN);
    taken_size = 0;
}

void set_up(void)
{
    now_ms = 1000000;
    room = SIZE_MAX;
    start_server("");
}

void tear_down(void)
{
    if (peer >= 0)
        end_conn();
    stop_server();
}

/* ---------------------------------------------------------------- the owner */

static void queue_args(const struct shed_args *args, void *owner,
                       uint64_t number)
{
    struct shed_conn_call call = {.owner = owner, .number = number};
    struct shed_buffer bytes = {0};
    struct shed_error err;

    call.again = number != 0 ? args : NULL;
    ck_assert_int_eq(shed_script_append(&bytes, args, number, false, &err),
                     SHED_OK);
    ck_assert_int_eq(shed_conn_send(&conn, &bytes, &call, 1, now_ms, &err),
                     SHED_OK);
    shed_buffer_fini(&bytes);
}

void queue(const char *key, void *owner)
{
    struct shed_args args = {0};

    shed_args_add_text(&args, "GET");
    shed_args_add_text(&args, key);
    queue_args(&args, owner, 0);
}

void queue_script(struct shed_args *args, void *owner, uint64_t number)
{
    shed_script_begin(args, SHED_SCRIPT_INVALIDATE, "1");
    shed_args_add_text(args, "key");
    queue_args(args, owner, number);
}

void flush(void)
{
    shed_conn_ready(&conn, POLLOUT, now_ms);
    take();
}

void expect(const void *owner, const char *text)
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

void expect_nothing(void)
{
    struct shed_conn_call call;
    struct shed_reply *reply = NULL;

    ck_assert_int_eq(shed_conn_next(&conn, now_ms, &reply, &call),
                     SHED_CONN_NOTHING);
}
