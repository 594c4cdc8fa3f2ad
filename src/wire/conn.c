/*
 * One connection. Its invariants: replies answer calls in the order in which
 * the calls were queued, so bytes are sent in that order, each once; nothing of
 * a caller's is sent before the whole set-up has been accepted; and after any
 * failure the connection is closed, never repaired, so that no late reply can
 * meet a later call.
 *
 * The state only moves forward: CLOSED, CONNECTING, SETTING_UP, OPEN, and from
 * each of them to FAILED; close leads back. A failure does not close the socket
 * itself, because its owner may still have to take it out of a loop.
 *
 * Bytes are in two places: those that wait in queue.bytes, those that are being
 * sent in wire.out. They are moved when wire.out is empty and at no other time:
 * moved over an unsent rest, the rest would be lost, and all replies after it
 * would answer other calls.
 *
 * A call without an answer fails with its connection, and its caller may repeat
 * it, or do something else. So it must not reach the server later: a put after
 * the invalidation that was made in its place, an acquire after it was undone.
 * When a TCP socket is closed, the kernel goes on for minutes to send what it
 * has taken; so close drops that, unless every call was answered. What may be
 * dropped was promised to nobody: calls whose failure leaves open whether they
 * were carried out (a release is made again by the engine, an invalidation by
 * its caller). What has reached the server's host it may still carry out.
 *
 * Each call of a script carries a number that comes back with its reply. A
 * server or proxy that doubles a reply shifts all that follow; the next number
 * tells. A script that the server has lost (NOSCRIPT) was not executed: the
 * call goes once more, by text, behind what was queued meanwhile.
 */
#include "wire/conn.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "wire/script.h"

#define FIRST_CALLS ((size_t)64)

_Static_assert((SHED_CONN_CALLS_MAX & (SHED_CONN_CALLS_MAX - 1)) == 0 &&
                   (FIRST_CALLS & (FIRST_CALLS - 1)) == 0,
               "the ring counts with a mask");

void shed_conn_init(struct shed_conn *c, struct shed_address *address,
                    const struct shed_client_options *options)
{
    *c = (struct shed_conn){.address = address,
                            .connect_timeout_ms = options->connect_timeout_ms,
                            .command_timeout_ms = options->command_timeout_ms};
    shed_wire_init(&c->wire);
}

void shed_conn_close(struct shed_conn *c)
{
    if (c->state == SHED_CONN_FAILED || c->queue.count > 0)
        shed_wire_drop_unsent(&c->wire);
    shed_wire_close(&c->wire);
    c->state = SHED_CONN_CLOSED;
}

void shed_conn_fini(struct shed_conn *c)
{
    shed_wire_close(&c->wire);
    c->state = SHED_CONN_CLOSED;
    shed_buffer_fini(&c->queue.bytes);
    free(c->queue.call);
    c->queue = (struct shed_conn_queue){0};
}

/* -------------------------------------------------------------- failures */

void shed_conn_fail(struct shed_conn *c, enum shed_trouble trouble,
                    const struct shed_error *why)
{
    assert(c->state != SHED_CONN_CLOSED);
    c->state = SHED_CONN_FAILED;
    c->failure = (struct shed_conn_failure){.error = *why, .trouble = trouble};
}

static void fail_silent(struct shed_conn *c, const char *what,
                        const char *awaited, uint64_t limit_ms)
{
    uint64_t since_ms = shed_conn_due_ms(c) - limit_ms;
    struct shed_error why;

    (void)shed_fail(&why, SHED_EREDIS, "Redis %s: %s%s within %llu ms",
                    c->address->text, what, awaited,
                    (unsigned long long)limit_ms);
    shed_conn_fail(c, SHED_TROUBLE_DOWN, &why);
    c->failure.is_silent = true;
    c->failure.since_ms = since_ms;
}

void shed_conn_fail_out_of_step(struct shed_conn *c)
{
    struct shed_error why;

    (void)shed_fail(&why, SHED_EREDIS,
                    "Redis: a reply that answers another call");
    shed_conn_fail(c, SHED_TROUBLE_PASSING, &why);
}

bool shed_conn_is_left(const struct shed_conn *c, unsigned term,
                       struct shed_error *why)
{
    if (c->state == SHED_CONN_CLOSED || c->term == term)
        return false;
    (void)shed_fail(
        why, SHED_EREDIS,
        "Redis %s is no longer used: it is not the primary, or its host name "
        "resolves to another address",
        c->address->text);
    return true;
}

/* ------------------------------------------------- from socket to set up */

void shed_conn_start(struct shed_conn *c, unsigned term, uint64_t now_ms)
{
    struct shed_error why;
    enum shed_code code;

    assert(c->state == SHED_CONN_CLOSED && c->wire.fd < 0);
    c->state = SHED_CONN_CONNECTING;
    c->term = term;
    c->end_ms = now_ms + c->connect_timeout_ms;
    code = shed_wire_open(&c->wire, c->address, &why);
    if (code != SHED_OK)
        shed_conn_fail(c, SHED_TROUBLE_DOWN, &why);
}

static void open_if_set_up(struct shed_conn *c)
{
    struct shed_error why;

    if (!shed_setup_is_done(&c->setup) || shed_wire_is_in_handshake(&c->wire))
        return;
    if (shed_wire_is_quiet(&c->wire)) {
        c->state = SHED_CONN_OPEN;
        return;
    }
    (void)shed_fail(&why, SHED_EREDIS,
                    "Redis %s: a reply that nobody asked for",
                    c->address->text);
    shed_conn_fail(c, SHED_TROUBLE_PASSING, &why);
}

/* Take the queued bytes over to be sent; none are being sent. Returns: whether
 * there is something to send. */
static bool take_queued(struct shed_conn *c)
{
    struct shed_buffer empty = c->wire.out;

    assert(empty.size == 0);
    if (c->queue.bytes.size == 0)
        return false;
    c->wire.out = c->queue.bytes;
    c->queue.bytes = empty;
    return true;
}

/* Send what is in wire.out, and what is queued behind it once that may go. */
static void flush(struct shed_conn *c)
{
    struct shed_error why;
    enum shed_wire_io io = SHED_WIRE_DONE;

    if (shed_wire_is_unsent(&c->wire))
        io = shed_wire_flush(&c->wire, &why);
    while (io == SHED_WIRE_DONE && c->state == SHED_CONN_OPEN && take_queued(c))
        io = shed_wire_flush(&c->wire, &why);
    if (io == SHED_WIRE_LOST)
        shed_conn_fail(c, SHED_TROUBLE_PASSING, &why);
}

static void finish_connecting(struct shed_conn *c, uint64_t now_ms)
{
    struct shed_error why;

    if (shed_wire_connected(&c->wire, c->address, &why) != SHED_OK) {
        shed_conn_fail(c, SHED_TROUBLE_DOWN, &why);
        return;
    }
    c->state = SHED_CONN_SETTING_UP;
    if (shed_setup_begin(&c->setup, c->address, now_ms, &c->wire.out, &why) !=
        SHED_OK)
        shed_conn_fail(c, SHED_TROUBLE_PASSING, &why);
    else
        open_if_set_up(c);
    if (c->state != SHED_CONN_FAILED)
        flush(c);
}

static void hear_setup(struct shed_conn *c, const struct shed_reply *reply,
                       uint64_t now_ms)
{
    struct shed_error why;

    if (shed_setup_hear(&c->setup, reply, now_ms, &why) == SHED_OK) {
        open_if_set_up(c);
        return;
    }
    shed_conn_fail(c, c->setup.trouble, &why);
    c->failure.is_no_primary = c->setup.is_no_primary;
}

/* It was lost in the set-up. A server that expects TLS ends a plain connection
 * without a word, so the reason says that it may be one. */
static void explain_loss(const struct shed_conn *c, struct shed_error *why)
{
    if (c->state != SHED_CONN_SETTING_UP || c->setup.answered > 0 ||
        c->address->is_tls || c->address->host == NULL)
        return;
    (void)shed_fail(why, why->code,
                    "%s, before it answered %s (if %s is a port for TLS, use "
                    "rediss://)",
                    why->reason, shed_setup_awaited(&c->setup),
                    c->address->text);
}

/* Read once. While it is being set up, the replies are heard here. */
static void receive(struct shed_conn *c, uint64_t now_ms)
{
    struct shed_error why;
    enum shed_trouble trouble = shed_wire_is_in_handshake(&c->wire)
                                    ? SHED_TROUBLE_DOWN
                                    : SHED_TROUBLE_PASSING;
    enum shed_wire_io io = shed_wire_fill(&c->wire, false, &why);

    /* where no command is needed, it is set up when the handshake ends */
    if (io == SHED_WIRE_DONE && c->state == SHED_CONN_SETTING_UP)
        open_if_set_up(c);
    while (io == SHED_WIRE_DONE && c->state == SHED_CONN_SETTING_UP) {
        struct shed_reply *reply = NULL;
        io = shed_wire_next(&c->wire, &reply, &why);
        if (io == SHED_WIRE_DONE)
            hear_setup(c, reply, now_ms);
        shed_reply_free(reply);
    }
    if (io == SHED_WIRE_LOST && c->state != SHED_CONN_FAILED) {
        /* it says nothing of the server, so no pause may follow */
        if (c->state == SHED_CONN_SETTING_UP && c->wire.is_starved)
            why.code = SHED_ENOMEM;
        explain_loss(c, &why);
        shed_conn_fail(c, trouble, &why);
    }
}

short shed_conn_want(const struct shed_conn *c)
{
    bool is_unsent = shed_wire_is_unsent(&c->wire) ||
                     (c->state == SHED_CONN_OPEN && c->queue.bytes.size > 0);

    if (c->state == SHED_CONN_CONNECTING)
        return POLLOUT;
    return is_unsent ? POLLIN | POLLOUT : POLLIN;
}

void shed_conn_ready(struct shed_conn *c, int events, uint64_t now_ms)
{
    assert(c->state != SHED_CONN_CLOSED && c->state != SHED_CONN_FAILED);
    if (c->state == SHED_CONN_CONNECTING) {
        finish_connecting(c, now_ms);
        return;
    }
    if (events & (POLLIN | POLLERR | POLLHUP))
        receive(c, now_ms);
    if (c->state != SHED_CONN_FAILED && events & POLLOUT)
        flush(c);
}

/* --------------------------------------------------------------- silence */

uint64_t shed_conn_silent_at_ms(const struct shed_conn *c)
{
    const struct shed_conn_queue *q = &c->queue;
    uint64_t since_ms;

    if (q->count == 0)
        return UINT64_MAX;
    since_ms = q->call[q->first].since_ms;
    return (since_ms > q->heard_ms ? since_ms : q->heard_ms) +
           c->command_timeout_ms;
}

uint64_t shed_conn_due_ms(const struct shed_conn *c)
{
    if (c->state == SHED_CONN_CONNECTING || c->state == SHED_CONN_SETTING_UP)
        return c->end_ms;
    return c->state == SHED_CONN_OPEN ? shed_conn_silent_at_ms(c) : UINT64_MAX;
}

/* A process that was stopped for long finds the time over before it has looked
 * at the socket: the reply may be there unread. */
static void check_replies(struct shed_conn *c, uint64_t now_ms)
{
    if (c->queue.is_last_look) {
        fail_silent(c, "no reply", "", c->command_timeout_ms);
        return;
    }
    c->queue.is_last_look = true;
    receive(c, now_ms);
}

void shed_conn_tick(struct shed_conn *c, uint64_t now_ms)
{
    if (now_ms < shed_conn_due_ms(c))
        return;
    if (c->state == SHED_CONN_CONNECTING) {
        shed_address_refuse(c->address);
        fail_silent(c, "no connection", "", c->connect_timeout_ms);
    } else if (c->state == SHED_CONN_SETTING_UP) {
        fail_silent(c, "no answer to ",
                    shed_wire_is_in_handshake(&c->wire)
                        ? "the TLS handshake (is it a port for TLS?)"
                        : shed_setup_awaited(&c->setup),
                    c->connect_timeout_ms);
    } else {
        check_replies(c, now_ms);
    }
}

bool shed_conn_step(struct shed_conn *c, uint64_t end_ms)
{
    uint64_t due_ms = shed_conn_due_ms(c);
    int events = shed_wire_wait(&c->wire, shed_conn_want(c),
                                due_ms < end_ms ? due_ms : end_ms);

    if (events != 0)
        shed_conn_ready(c, events, shed_now_ms());
    else if (due_ms <= end_ms)
        shed_conn_tick(c, due_ms);
    return events != 0 || due_ms <= end_ms;
}

/* ------------------------------------------------------------- the queue */

/* The i-th call of the queue, 0 being the oldest. */
static struct shed_conn_call *call_at(struct shed_conn *c, size_t i)
{
    struct shed_conn_queue *q = &c->queue;

    assert(i < q->count);
    return &q->call[(q->first + i) & (q->capacity - 1)];
}

/* Make room for more calls. */
static enum shed_code reserve(struct shed_conn *c, size_t more,
                              struct shed_error *err)
{
    struct shed_conn_queue *q = &c->queue;
    size_t capacity = q->capacity > 0 ? q->capacity : FIRST_CALLS;
    struct shed_conn_call *calls;

    if (more > SHED_CONN_CALLS_MAX - q->count)
        return shed_fail(err, SHED_EBUSY,
                         "Redis: %zu calls already wait on one connection",
                         q->count);
    while (capacity < q->count + more)
        capacity *= 2;
    if (capacity == q->capacity)
        return SHED_OK;
    calls = malloc(capacity * sizeof(*calls));
    if (calls == NULL)
        return shed_fail_nomem(err, "a Redis call");
    for (size_t i = 0; i < q->count; i++)
        calls[i] = *call_at(c, i);
    free(q->call);
    q->call = calls;
    q->capacity = capacity;
    q->first = 0;
    return SHED_OK;
}

static struct shed_conn_call *push(struct shed_conn_queue *q,
                                   const struct shed_conn_call *call)
{
    struct shed_conn_call *at =
        &q->call[(q->first + q->count++) & (q->capacity - 1)];

    assert(q->count <= q->capacity);
    *at = *call;
    return at;
}

static struct shed_conn_call pop(struct shed_conn_queue *q)
{
    struct shed_conn_call call;

    assert(q->count > 0);
    call = q->call[q->first];
    q->first = (q->first + 1) & (q->capacity - 1);
    q->count--;
    return call;
}

enum shed_code shed_conn_send_args(struct shed_conn *c,
                                   const struct shed_args *args,
                                   const struct shed_conn_call *call,
                                   uint64_t now_ms, struct shed_error *err)
{
    uint64_t number = args->script != NULL ? ++c->last_number : 0;
    enum shed_code code = reserve(c, 1, err);
    struct shed_args by_text;

    if (args->script != NULL && call->again == NULL) {
        by_text = *args;
        shed_script_by_text(&by_text);
        args = &by_text;
    }
    if (code == SHED_OK)
        code = shed_buffer_append(&c->queue.bytes, args, number, err);
    if (code == SHED_OK && call != NULL) {
        struct shed_conn_call *sent = push(&c->queue, call);
        sent->number = number;
        sent->since_ms = now_ms;
    }
    return code;
}

enum shed_code shed_conn_send_queue(struct shed_conn *c,
                                    struct shed_conn_queue *more,
                                    struct shed_error *err)
{
    enum shed_code code = reserve(c, more->count, err);

    if (code == SHED_OK)
        code = shed_buffer_add(&c->queue.bytes, &more->bytes, err);
    if (code != SHED_OK)
        return code;
    while (more->count > 0) {
        struct shed_conn_call call = pop(more);
        (void)push(&c->queue, &call);
    }
    shed_buffer_fini(&more->bytes);
    free(more->call);
    *more = (struct shed_conn_queue){0};
    return SHED_OK;
}

bool shed_conn_pop(struct shed_conn_queue *q, struct shed_conn_call *call)
{
    q->is_last_look = false;
    shed_buffer_fini(&q->bytes);
    if (q->count > 0) {
        *call = pop(q);
        return true;
    }
    free(q->call);
    *q = (struct shed_conn_queue){0};
    return false;
}

/* --------------------------------------------------------------- replies */

/* Send a call again whose script the server does not know: by text, and only
 * once, since a server that does not know a text either is of no use. Of a
 * batch of calls the first has brought the text already: the others go by
 * digest, and by text if that was not enough. */
static bool repeat(struct shed_conn *c, uint64_t now_ms)
{
    struct shed_conn_queue *q = &c->queue;
    struct shed_conn_call call = *call_at(c, 0);
    const struct shed_args *args = call.again;
    struct shed_error unused;

    if (call.is_repeat || q->text != args->script)
        call.again = NULL;
    call.is_repeat = true;
    if (shed_conn_send_args(c, args, &call, now_ms, &unused) != SHED_OK)
        return false;
    (void)pop(q); /* what it was before */
    q->text = args->script;
    return true;
}

/* The script's own part of a reply that begins with the call's number. */
static void unwrap(struct shed_reply **reply)
{
    struct shed_reply *whole = *reply;

    if (shed_reply_error(whole) != NULL)
        return;
    *reply = shed_reply_take(whole, 1);
    shed_reply_free(whole);
}

/* Find out which call a reply answers. It is freed if the connection has
 * failed, or if the server had lost a script and the call goes again. Of a
 * script's reply, *reply becomes the script's own part. */
static enum shed_conn_event match(struct shed_conn *c, uint64_t now_ms,
                                  struct shed_reply **reply,
                                  struct shed_conn_call *call)
{
    struct shed_conn_queue *q = &c->queue;
    const struct shed_conn_call *oldest;
    bool goes_again = false;

    if (q->count == 0)
        return SHED_CONN_PUSH;
    q->heard_ms = now_ms;
    q->is_last_look = false;
    oldest = call_at(c, 0);
    if (oldest->number != 0 && !shed_script_is_reply(*reply, oldest->number))
        shed_conn_fail_out_of_step(c);
    else if (oldest->again != NULL && shed_reply_begins(*reply, "NOSCRIPT"))
        goes_again = repeat(c, now_ms);
    if (c->state == SHED_CONN_FAILED || goes_again) {
        shed_reply_free(*reply);
        *reply = NULL;
        return SHED_CONN_NOTHING;
    }
    *call = pop(q);
    if (call->number != 0)
        unwrap(reply);
    return SHED_CONN_REPLY;
}

enum shed_conn_event shed_conn_next(struct shed_conn *c, uint64_t now_ms,
                                    struct shed_reply **reply,
                                    struct shed_conn_call *call)
{
    struct shed_error why;

    while (c->state == SHED_CONN_OPEN) {
        enum shed_wire_io io = shed_wire_next(&c->wire, reply, &why);
        enum shed_conn_event event = SHED_CONN_NOTHING;
        if (io == SHED_WIRE_AGAIN)
            break;
        if (io == SHED_WIRE_DONE)
            event = match(c, now_ms, reply, call);
        else
            shed_conn_fail(c, SHED_TROUBLE_PASSING, &why);
        if (event != SHED_CONN_NOTHING)
            return event;
    }
    return SHED_CONN_NOTHING;
}
