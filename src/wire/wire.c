/* Sockets to Redis. hiredis's have been seen to answer one call with another's
 * reply after a timeout, to close foreign descriptors after a failed reconnect,
 * and to raise SIGPIPE; its formatting and its parser took half of the
 * instructions of a hit. */
#include "wire/wire.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "wire/tls.h"

/* What one read can bring. The room for it belongs to the connection: it would
 * not fit on a caller's stack (STACK_BYTES in base/thread.c). */
#define READ_BYTES ((size_t)64 * 1024)

_Static_assert(SHED_PARSER_MAX_LINE <= READ_BYTES,
               "what the parser leaves leaves room, or is too long");

#define FIRST_CAPACITY ((size_t)1024)
/* A buffer up to this size is kept between uses; a larger one is freed. */
#define KEEP_BYTES ((size_t)256 * 1024)
#define LINE_END_BYTES ((size_t)2)
#define HEAD_BYTES (1 + SHED_DIGITS + LINE_END_BYTES)

void shed_args_add(struct shed_args *args, const void *bytes, size_t size)
{
    assert(args->count < SHED_ARGS_MAX);
    args->at[args->count] = bytes != NULL ? bytes : "";
    args->size[args->count++] = size;
}

void shed_args_add_text(struct shed_args *args, const char *text)
{
    shed_args_add(args, text, strlen(text));
}

struct shed_args shed_args_of(const char *word, ...)
{
    struct shed_args args = {0};
    va_list more;

    va_start(more, word);
    for (; word != NULL; word = va_arg(more, const char *))
        shed_args_add_text(&args, word);
    va_end(more);
    return args;
}

/* Returns: how many. */
static size_t put_digits(char *at, uint64_t number)
{
    size_t count = 1;

    for (uint64_t rest = number; rest >= 10; rest /= 10)
        count++;
    for (size_t i = count; i > 0; number /= 10)
        at[--i] = (char)('0' + number % 10);
    return count;
}

void shed_write_digits(char digits[SHED_DIGITS], uint64_t number)
{
    digits[put_digits(digits, number)] = '\0';
}

void shed_args_add_number(struct shed_args *args, char digits[SHED_DIGITS],
                          uint64_t number)
{
    shed_write_digits(digits, number);
    shed_args_add_text(args, digits);
}

static enum shed_code reserve(struct shed_buffer *b, size_t more,
                              struct shed_error *err)
{
    size_t capacity = b->capacity > 0 ? b->capacity : FIRST_CAPACITY;
    char *at;

    if (more > SHED_BUFFER_MAX_BYTES - b->size)
        return shed_fail(
            err, SHED_EBUSY,
            "Redis: too many bytes are already waiting to be sent");
    while (capacity < b->size + more)
        capacity *= 2;
    if (capacity == b->capacity)
        return SHED_OK;
    at = realloc(b->at, capacity);
    if (at == NULL)
        return shed_fail_nomem(err, "a Redis command");
    b->at = at;
    b->capacity = capacity;
    return SHED_OK;
}

enum shed_code shed_buffer_add(struct shed_buffer *b,
                               const struct shed_buffer *more,
                               struct shed_error *err)
{
    enum shed_code code = reserve(b, more->size, err);

    if (code != SHED_OK || more->size == 0)
        return code;
    memcpy(b->at + b->size, more->at, more->size);
    b->size += more->size;
    return SHED_OK;
}

static void put_line_end(struct shed_buffer *b)
{
    b->at[b->size++] = '\r';
    b->at[b->size++] = '\n';
}

/* Write a type, a length or a count, and the end of the line, for which there
 * is room. */
static void put_head(struct shed_buffer *b, char type, uint64_t number)
{
    b->at[b->size++] = type;
    b->size += put_digits(b->at + b->size, number);
    put_line_end(b);
}

/* Source: the specification of RESP, redis.io/docs/reference/protocol-spec. */
static enum shed_code add_string(struct shed_buffer *b, const char *bytes,
                                 size_t size, struct shed_error *err)
{
    enum shed_code code = reserve(b, HEAD_BYTES + size + LINE_END_BYTES, err);

    if (code != SHED_OK)
        return code;
    put_head(b, '$', size);
    memcpy(b->at + b->size, bytes, size);
    b->size += size;
    put_line_end(b);
    return SHED_OK;
}

enum shed_code shed_buffer_append(struct shed_buffer *b,
                                  const struct shed_args *args, uint64_t number,
                                  struct shed_error *err)
{
    size_t before = b->size, count = number != 0;
    char digits[SHED_DIGITS];
    enum shed_code code;

    for (const struct shed_args *a = args; a != NULL; a = a->more)
        count += (size_t)a->count;
    code = reserve(b, HEAD_BYTES, err);
    if (code == SHED_OK)
        put_head(b, '*', count);
    for (const struct shed_args *a = args; a != NULL; a = a->more)
        for (int i = 0; code == SHED_OK && i < a->count; i++)
            code = add_string(b, a->at[i], a->size[i], err);
    if (code == SHED_OK && number != 0) {
        shed_write_digits(digits, number);
        code = add_string(b, digits, strlen(digits), err);
    }
    if (code != SHED_OK)
        b->size = before;
    return code;
}

void shed_buffer_fini(struct shed_buffer *b)
{
    free(b->at);
    *b = (struct shed_buffer){0};
}

void shed_wire_init(struct shed_wire *w)
{
    *w = (struct shed_wire){.fd = -1};
}

/* Descriptors 0 to 2 belong to the program even if it has closed them. */
static int move_from_stdio(int fd)
{
    int moved;

    if (fd > STDERR_FILENO || fd < 0)
        return fd;
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return moved;
}

static enum shed_code connect_failure(struct shed_address *a, int failure,
                                      struct shed_error *err)
{
    shed_address_refuse(a);
    return shed_fail(err, SHED_EREDIS, "Redis %s: cannot connect: %s", a->text,
                     shed_errno_text(failure));
}

enum shed_code shed_wire_open(struct shed_wire *w, struct shed_address *a,
                              struct shed_error *err)
{
    struct sockaddr_storage name;
    socklen_t size;
    char host[SHED_HOST_BYTES];
    int on = 1;
    enum shed_code code = shed_address_get(a, &name, &size, host, err);

    if (code != SHED_OK)
        return code;
    w->fd = move_from_stdio(
        socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (w->fd < 0)
        return shed_fail(err, SHED_EBUSY,
                         "Redis %s: no descriptor for a socket: %s", a->text,
                         shed_errno_text(errno));
    w->in_at = w->in_end = 0;
    w->is_starved = false;
    w->in = malloc(READ_BYTES);
    if (w->in == NULL)
        code = shed_fail_nomem(err, "a Redis connection");
    else if (a->is_tls)
        code = shed_tls_create(a->tls, host, &w->tls, err);
    if (code != SHED_OK) {
        shed_wire_close(w);
        return code;
    }
    /* without it each small command would wait for the previous one's ACK; a
     * socket that is not TCP refuses the option and does not need it */
    (void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(w->fd, (struct sockaddr *)&name, size) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        int failure = errno;
        shed_wire_close(w);
        return connect_failure(a, failure, err);
    }
    return SHED_OK;
}

enum shed_code shed_wire_connected(const struct shed_wire *w,
                                   struct shed_address *a,
                                   struct shed_error *err)
{
    int failure = 0;
    socklen_t size = sizeof(failure);

    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0)
        failure = errno;
    return failure != 0 ? connect_failure(a, failure, err) : SHED_OK;
}

static enum shed_wire_io lost(struct shed_error *err, const char *why)
{
    (void)shed_fail(err, SHED_EREDIS, "Redis: connection lost: %s", why);
    return SHED_WIRE_LOST;
}

/* What was tried has failed, as errno says. */
static enum shed_wire_io fail_io(struct shed_error *err, const char *what)
{
    int failure = errno;

    if (failure == EAGAIN || failure == EWOULDBLOCK || failure == EINTR ||
        failure == ENOBUFS)
        return SHED_WIRE_AGAIN;
    (void)shed_fail(err, SHED_EREDIS, "Redis: connection lost: %s: %s", what,
                    shed_errno_text(failure));
    return SHED_WIRE_LOST;
}

/* The one place where bytes go out. */
static enum shed_wire_io send_all(struct shed_wire *w, const char *bytes,
                                  size_t size, size_t *sent,
                                  struct shed_error *err)
{
    while (*sent < size) {
        ssize_t n = send(w->fd, bytes + *sent, size - *sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return fail_io(err, "send failed");
        *sent += (size_t)n;
    }
    return SHED_WIRE_DONE;
}

/* Send what TLS has to say, and then out, of which it seals one part after the
 * other. */
static enum shed_wire_io send_sealed(struct shed_wire *w,
                                     struct shed_error *err)
{
    for (;;) {
        const char *sealed;
        size_t taken, size = shed_tls_output(w->tls, &sealed);
        enum shed_wire_io io = send_all(w, sealed, size, &w->sealed_sent, err);
        if (io != SHED_WIRE_DONE)
            return io;
        shed_tls_clear(w->tls);
        w->sealed_sent = 0;
        if (w->out_sent == w->out.size)
            return SHED_WIRE_DONE;
        if (shed_tls_write(w->tls, w->out.at + w->out_sent,
                           w->out.size - w->out_sent, &taken, err) != SHED_OK)
            return SHED_WIRE_LOST;
        if (taken == 0)
            return SHED_WIRE_AGAIN;
        w->out_sent += taken;
    }
}

enum shed_wire_io shed_wire_flush(struct shed_wire *w, struct shed_error *err)
{
    enum shed_wire_io io =
        w->tls != NULL ? send_sealed(w, err)
                       : send_all(w, w->out.at, w->out.size, &w->out_sent, err);

    if (io != SHED_WIRE_DONE)
        return io;
    w->out.size = w->out_sent = 0;
    if (w->out.capacity > KEEP_BYTES)
        shed_buffer_fini(&w->out);
    return SHED_WIRE_DONE;
}

bool shed_wire_is_in_handshake(const struct shed_wire *w)
{
    return w->tls != NULL && !shed_tls_is_open(w->tls);
}

bool shed_wire_is_unsent(const struct shed_wire *w)
{
    const char *sealed;

    return (w->out.size > 0 && !shed_wire_is_in_handshake(w)) ||
           (w->tls != NULL && shed_tls_output(w->tls, &sealed) > 0);
}

/* What TLS makes of what has come, of which so many bytes are new. */
static enum shed_wire_io open_sealed(struct shed_wire *w, size_t sealed,
                                     struct shed_error *err)
{
    char *at = w->in + w->in_end;
    size_t size;

    if (shed_tls_read(w->tls, at, sealed, at, READ_BYTES - w->in_end, &size,
                      err) != SHED_OK)
        return SHED_WIRE_LOST;
    w->in_end += size;
    return SHED_WIRE_DONE;
}

/* Returns: room behind what the parser has not been given yet, or 0. */
static size_t make_room(struct shed_wire *w)
{
    if (w->in_at > 0)
        memmove(w->in, w->in + w->in_at, w->in_end - w->in_at);
    w->in_end -= w->in_at;
    w->in_at = 0;
    return READ_BYTES - w->in_end;
}

/* The one place where bytes come in. */
enum shed_wire_io shed_wire_fill(struct shed_wire *w, bool waits,
                                 struct shed_error *err)
{
    size_t room = make_room(w);
    ssize_t n;

    if (room == 0)
        return SHED_WIRE_DONE;
    n = recv(w->fd, w->in + w->in_end, room, waits ? 0 : MSG_DONTWAIT);
    if (n < 0)
        return fail_io(err, "receive failed");
    if (n == 0)
        return lost(err, shed_wire_is_in_handshake(w)
                             ? "closed by the server in the TLS handshake"
                             : "closed by the server");
    if (w->tls == NULL) {
        w->in_end += (size_t)n;
        return SHED_WIRE_DONE;
    }
    return open_sealed(w, (size_t)n, err);
}

enum shed_code shed_wire_block(struct shed_wire *w, uint64_t limit_ms,
                               struct shed_error *err)
{
    const uint64_t ms_per_s = 1000, us_per_ms = 1000;
    struct timeval limit = {.tv_sec = (time_t)(limit_ms / ms_per_s),
                            .tv_usec =
                                (suseconds_t)(limit_ms % ms_per_s * us_per_ms)};
    int flags = fcntl(w->fd, F_GETFL);

    if (flags < 0 || fcntl(w->fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
        setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
        return shed_fail(err, SHED_EREDIS, "Redis: cannot set up a socket: %s",
                         shed_errno_text(errno));
    return SHED_OK;
}

/* Go on behind what the parser has left: TLS may have more. */
static enum shed_wire_io read_on(struct shed_wire *w, struct shed_error *err)
{
    size_t room = make_room(w);

    if (w->tls != NULL && room > 0 && open_sealed(w, 0, err) != SHED_WIRE_DONE)
        return SHED_WIRE_LOST;
    return READ_BYTES - w->in_end < room ? SHED_WIRE_DONE : SHED_WIRE_AGAIN;
}

enum shed_wire_io shed_wire_next(struct shed_wire *w, struct shed_reply **reply,
                                 struct shed_error *err)
{
    enum shed_parser_result result;
    enum shed_wire_io io = SHED_WIRE_DONE;
    size_t taken;

    *reply = NULL;
    do {
        result = shed_parser_take(&w->parser, w->in + w->in_at,
                                  w->in_end - w->in_at, &taken, reply);
        w->in_at += taken;
        if (result == SHED_PARSER_MORE)
            io = read_on(w, err);
    } while (result == SHED_PARSER_MORE && io == SHED_WIRE_DONE);
    if (result == SHED_PARSER_MORE)
        return io;
    if (result == SHED_PARSER_REPLY)
        return SHED_WIRE_DONE;
    w->is_starved = result == SHED_PARSER_NO_MEMORY;
    return lost(err, w->is_starved ? "memory is out"
                                   : "a reply that no command can have");
}

bool shed_wire_is_quiet(struct shed_wire *w)
{
    enum shed_wire_io io = SHED_WIRE_DONE;

    if (w->in_at < w->in_end || !shed_parser_is_between(&w->parser))
        return false;
    w->in_at = w->in_end = 0;
    if (w->tls != NULL)
        io = open_sealed(w, 0, NULL);
    /* what TLS has to say for itself is nobody's reply */
    while (io == SHED_WIRE_DONE && w->in_end == 0)
        io = shed_wire_fill(w, false, NULL);
    return io == SHED_WIRE_AGAIN;
}

int shed_wire_wait(const struct shed_wire *w, short events,
                   uint64_t deadline_ms)
{
    struct pollfd pfd = {.fd = w->fd, .events = events};
    /* in slices, because poll's timeout is an int */
    const uint64_t slice_ms = 60000;

    for (;;) {
        uint64_t left = shed_left_ms(deadline_ms, shed_now_ms());
        int n = poll(&pfd, 1, (int)(left < slice_ms ? left : slice_ms));
        if (n > 0)
            return pfd.revents;
        if (left == 0)
            return 0;
    }
}

void shed_wire_shut(const struct shed_wire *w)
{
    (void)shutdown(w->fd, SHUT_RDWR);
}

void shed_wire_drop_unsent(const struct shed_wire *w)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    /* a unix socket holds nothing back */
    (void)setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void shed_wire_forget(struct shed_wire *w)
{
    int fd = w->fd;

    /* before close: a process that is forked in between must not close another
     * descriptor */
    w->fd = -1;
    if (fd >= 0)
        close(fd);
}

void shed_wire_close(struct shed_wire *w)
{
    shed_wire_forget(w);
    shed_parser_fini(&w->parser);
    free(w->in);
    w->in = NULL;
    shed_buffer_fini(&w->out);
    w->out_sent = 0;
    shed_tls_destroy(w->tls);
    w->tls = NULL;
    w->sealed_sent = 0;
}
