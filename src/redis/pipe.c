/*
 * The reactor's connections. Its invariants: each call's fn is called exactly
 * once and from the loop; a connection that failed in any way is closed before
 * anybody hears of it.
 */
#include "redis/pipe.h"

#include <netdb.h>
#include <stdlib.h>
#include <uv.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "redis/script.h"
#include "redis/setup.h"

/* Calls that may wait at a time; more fail at once. */
#define CALLS_MAX ((size_t)1000000)

/* A server that says nothing is left alone for longer than one that refuses a
 * connection at once. */
#define SILENCE_WEIGHT 5

enum state {
    PIPE_NEW,        /* not opened yet */
    PIPE_LOOKING_UP, /* where the host name leads, until the timer ends it */
    PIPE_CONNECTING, /* a socket is, until the timer ends it */
    PIPE_SETTING_UP, /* the same, until the last answer of the set-up */
    PIPE_OPEN,       /* commands can go */
    PIPE_PAUSED,     /* no connection until the timer ends the pause */
    PIPE_CLOSED      /* for good */
};

struct calls {
    struct shed_call *first;
    struct shed_call **last;
    size_t count;
};

struct shed_pipe {
    struct shed_reactor *reactor;
    struct shed_address *address;
    struct shed_client_options options;
    struct shed_pipe_hooks hooks;

    enum state state;
    unsigned term; /* of the address, when it began to connect */
    struct shed_wire wire;
    uv_poll_t *poll; /* NULL without a socket */
    struct shed_timer *timer;
    struct shed_setup setup;
    struct shed_buffer queued; /* until the connection is open */
    struct calls calls;        /* without a reply yet, oldest first */
    uint64_t heard_ms;         /* when the last reply to one came */
    struct calls failed;       /* to be told so by the loop */
    struct shed_timer *fail_timer;
    struct shed_error why; /* the last failure */
    uint64_t last_number;  /* of the calls of scripts */
    enum shed_trouble pause_trouble;
    unsigned failures;     /* to connect, in a row */
    struct lookup *lookup; /* NULL: none is under way */
};

struct lookup {
    uv_getaddrinfo_t req;
    struct shed_pipe *pipe; /* NULL: it is closed */
    unsigned term;
};

static void on_timer(void *arg);
static void lose(struct shed_pipe *p, enum shed_trouble trouble);

static void init_calls(struct calls *c)
{
    *c = (struct calls){.last = &c->first};
}

static void push_call(struct calls *c, struct shed_call *call)
{
    call->next = NULL;
    *c->last = call;
    c->last = &call->next;
    c->count++;
}

static struct shed_call *pop_call(struct calls *c)
{
    struct shed_call *call = c->first;

    if (call == NULL)
        return NULL;
    c->first = call->next;
    if (c->first == NULL)
        c->last = &c->first;
    c->count--;
    return call;
}

/* ---------------------------------------------------------- failed calls */

static void fail_call(struct shed_pipe *p, struct shed_call *call,
                      enum shed_trouble trouble)
{
    call->trouble = trouble;
    push_call(&p->failed, call);
    shed_timer_set(p->fail_timer, 0);
}

/* The call is its owner's again before fn runs: it may make it anew. */
static void end_call(struct shed_call *call, struct shed_reply *reply,
                     enum shed_trouble trouble, const struct shed_error *why)
{
    shed_pipe_fn *fn = call->fn;

    free(call->by_text);
    call->by_text = NULL;
    call->fn = NULL;
    fn(call->arg, reply, trouble, why);
}

static void tell_failed(void *arg)
{
    struct shed_pipe *p = arg;
    /* as many as there are now: what is failed anew waits for the next turn */
    size_t count = p->failed.count;
    struct shed_error why = p->why;

    while (count-- > 0) {
        struct shed_call *call = pop_call(&p->failed);
        end_call(call, NULL, call->trouble, &why);
    }
}

/* -------------------------------------------------------------- the socket */

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void drop_socket(struct shed_pipe *p)
{
    if (p->poll != NULL) {
        (void)uv_poll_stop(p->poll);
        uv_close((uv_handle_t *)p->poll, on_poll_closed);
        p->poll = NULL;
    }
    shed_wire_close(&p->wire);
}

static void on_ready(uv_poll_t *poll, int status, int events);

static void watch(struct shed_pipe *p, int events)
{
    if (uv_poll_start(p->poll, events, on_ready) != 0) {
        (void)shed_fail(&p->why, SHED_EREDIS, "Redis: cannot watch a socket");
        lose(p, SHED_TROUBLE_PASSING);
    }
}

static void flush(struct shed_pipe *p)
{
    enum shed_wire_io io = shed_wire_flush(&p->wire, &p->why);

    if (io == SHED_WIRE_LOST)
        lose(p, SHED_TROUBLE_PASSING);
    else
        watch(p,
              io == SHED_WIRE_AGAIN ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static void pause_ms(struct shed_pipe *p, uint64_t delay_ms)
{
    p->state = PIPE_PAUSED;
    shed_timer_set(p->timer, delay_ms);
}

/* The connection is of no use any more. Calls that were sent end as trouble
 * says; a new connection follows after a pause. */
static void lose(struct shed_pipe *p, enum shed_trouble trouble)
{
    bool was_open = p->state == PIPE_OPEN;
    struct shed_error why = p->why;
    struct shed_call *call;

    drop_socket(p);
    p->queued.size = 0;
    /* A connection that worked is likely to be back in a moment. */
    p->pause_trouble = trouble;
    pause_ms(p, shed_backoff_ms(p->failures++, p->options.reconnect_min_ms,
                                p->options.reconnect_max_ms,
                                shed_random_jitter()));
    if (was_open)
        p->hooks.on_lost(p->hooks.arg, &why);
    else
        p->hooks.on_unreached(p->hooks.arg, &why);
    while ((call = pop_call(&p->calls)) != NULL)
        fail_call(p, call, trouble);
}

/* --------------------------------------------------------------- replies */

static bool append(struct shed_pipe *p, const struct shed_args *args);

/* The server was flushed of its scripts. Once only: one that does not know a
 * text either is no server that we can use. */
static void repeat_by_text(struct shed_pipe *p, struct shed_call *call)
{
    struct shed_args *args = call->by_text;

    call->by_text = NULL;
    call->since_ms = shed_now_ms();
    if (append(p, args))
        push_call(&p->calls, call);
    else
        fail_call(p, call, SHED_TROUBLE_DOWN);
    free(args);
}

/* All that comes from now on would answer something else. */
static void lose_step(struct shed_pipe *p, struct shed_call *call)
{
    (void)shed_fail(&p->why, SHED_EREDIS,
                    "Redis: a reply that answers another call");
    fail_call(p, call, SHED_TROUBLE_PASSING);
    lose(p, SHED_TROUBLE_PASSING);
}

static void deliver(struct shed_pipe *p, struct shed_reply *reply)
{
    struct shed_call *call = pop_call(&p->calls);

    if (call == NULL) {
        p->hooks.on_push(p->hooks.arg, reply);
        return;
    }
    p->heard_ms = shed_now_ms();
    if (call->by_text != NULL && shed_script_is_unknown(reply)) {
        repeat_by_text(p, call);
        return;
    }
    if (call->number != 0 && !shed_script_is_reply(reply, call->number)) {
        lose_step(p, call);
        return;
    }
    if (call->number != 0 && shed_reply_error(reply) == NULL)
        reply = shed_reply_at(reply, 1);
    if (shed_reply_error(reply) == NULL)
        p->failures = 0;
    else if (shed_reply_is_no_primary(reply))
        shed_pipe_leave(p);
    end_call(call, reply, SHED_TROUBLE_PASSING, &p->why);
}

/* The connection is as it should be: what the session begins with goes before
 * what has been waiting. */
static void start_session(struct shed_pipe *p)
{
    struct calls waiting = p->calls;

    if (!shed_wire_is_quiet(&p->wire)) {
        (void)shed_fail(&p->why, SHED_EREDIS,
                        "Redis %s: a reply that nobody asked for",
                        p->address->text);
        lose(p, SHED_TROUBLE_PASSING);
        return;
    }
    init_calls(&p->calls);
    p->state = PIPE_OPEN;
    p->hooks.on_open(p->hooks.arg);
    for (struct shed_call *call; (call = pop_call(&waiting)) != NULL;)
        push_call(&p->calls, call);
    if (p->state != PIPE_OPEN ||
        shed_buffer_add(&p->wire.out, &p->queued, &p->why) != SHED_OK) {
        lose(p, SHED_TROUBLE_PASSING);
        return;
    }
    shed_buffer_fini(&p->queued);
    shed_timer_set(p->timer, p->options.command_timeout_ms);
    flush(p);
}

static void hear_setup(struct shed_pipe *p, const struct shed_reply *reply)
{
    enum shed_trouble trouble;

    if (shed_setup_hear(&p->setup, reply, &trouble, &p->why) != SHED_OK) {
        lose(p, trouble);
        if (p->setup.is_no_primary)
            shed_pipe_leave(p);
    } else if (shed_setup_is_done(&p->setup))
        start_session(p);
}

static bool is_connected(const struct shed_pipe *p)
{
    return p->state == PIPE_SETTING_UP || p->state == PIPE_OPEN;
}

static void receive(struct shed_pipe *p)
{
    struct shed_reply *reply = NULL;
    enum shed_wire_io io = shed_wire_fill(&p->wire, &p->why);

    while (io == SHED_WIRE_DONE && is_connected(p)) {
        io = shed_wire_next(&p->wire, &reply, &p->why);
        if (io != SHED_WIRE_DONE)
            break;
        if (p->state == PIPE_SETTING_UP)
            hear_setup(p, reply);
        else
            deliver(p, reply);
        shed_reply_free(reply);
    }
    if (io == SHED_WIRE_LOST && is_connected(p))
        lose(p, SHED_TROUBLE_PASSING);
}

static void start_setup(struct shed_pipe *p)
{
    shed_setup_begin(&p->setup, p->address);
    if (shed_setup_is_done(&p->setup)) {
        start_session(p);
        return;
    }
    p->state = PIPE_SETTING_UP;
    if (shed_setup_say(&p->setup, &p->wire.out, &p->why) != SHED_OK)
        lose(p, SHED_TROUBLE_PASSING);
    else
        flush(p);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct shed_pipe *p = poll->data;

    (void)status; /* an error shows when the socket is used */
    if (p->state == PIPE_CONNECTING) {
        if (shed_wire_connected(&p->wire, p->address, &p->why) != SHED_OK)
            lose(p, SHED_TROUBLE_DOWN);
        else
            start_setup(p);
        return;
    }
    if (events & UV_READABLE || status != 0)
        receive(p);
    if (is_connected(p) && events & UV_WRITABLE)
        flush(p);
}

/* ------------------------------------------------------------ connecting */

static void open_socket(struct shed_pipe *p)
{
    p->state = PIPE_CONNECTING;
    if (shed_wire_open(&p->wire, p->address, &p->why) != SHED_OK)
        goto fail;
    p->poll = calloc(1, sizeof(*p->poll));
    if (p->poll == NULL ||
        uv_poll_init(shed_reactor_loop(p->reactor), p->poll, p->wire.fd) != 0) {
        (void)shed_fail(&p->why, SHED_EREDIS, "Redis: cannot watch a socket");
        free(p->poll);
        p->poll = NULL;
        goto fail;
    }
    p->poll->data = p;
    shed_timer_set(p->timer, p->options.connect_timeout_ms);
    watch(p, UV_WRITABLE);
    return;
fail:
    lose(p, SHED_TROUBLE_DOWN);
}

/* Where the lookup has failed, the address before it will do. */
static void end_lookup(struct shed_pipe *p, unsigned term,
                       const struct addrinfo *list, const char *failure)
{
    shed_address_set(p->address, term, list != NULL ? list->ai_addr : NULL,
                     list != NULL ? list->ai_addrlen : 0, failure);
    if (p->state == PIPE_LOOKING_UP)
        open_socket(p);
}

static void on_resolved(uv_getaddrinfo_t *req, int status,
                        struct addrinfo *list)
{
    struct lookup *lookup = req->data;
    struct shed_pipe *p = lookup->pipe;

    if (p != NULL) {
        p->lookup = NULL;
        end_lookup(p, lookup->term, status == 0 ? list : NULL,
                   status == 0 ? NULL : uv_strerror(status));
    }
    if (status == 0)
        uv_freeaddrinfo(list);
    free(lookup);
}

/* One that hangs is waited for, up to the timeout. */
static void look_up(struct shed_pipe *p)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};

    p->state = PIPE_LOOKING_UP;
    shed_timer_set(p->timer, p->options.connect_timeout_ms);
    if (p->lookup != NULL)
        return;
    p->lookup = calloc(1, sizeof(*p->lookup));
    if (p->lookup != NULL) {
        p->lookup->req.data = p->lookup;
        p->lookup->pipe = p;
        p->lookup->term = p->term;
        if (uv_getaddrinfo(shed_reactor_loop(p->reactor), &p->lookup->req,
                           on_resolved, p->address->host, p->address->port,
                           &hints) == 0)
            return;
    }
    free(p->lookup);
    p->lookup = NULL;
    end_lookup(p, p->term, NULL, "no memory or thread to look it up");
}

/* After a failover the name may lead elsewhere. */
static bool must_look_up(const struct shed_pipe *p)
{
    return p->address->host != NULL &&
           (p->failures > 0 || !shed_address_is_known(p->address));
}

static void start_connecting(struct shed_pipe *p)
{
    uint64_t pause_left_ms = shed_address_pause_ms(p->address);

    if (pause_left_ms > 0) {
        shed_timer_set(p->timer, pause_left_ms);
        return;
    }
    p->term = shed_address_term(p->address);
    if (must_look_up(p))
        look_up(p);
    else
        open_socket(p);
}

/* For how long the oldest call has waited while no reply came. */
static uint64_t silent_ms(const struct shed_pipe *p)
{
    const struct shed_call *oldest = p->calls.first;

    if (oldest == NULL)
        return 0;
    return shed_now_ms() -
           (oldest->since_ms > p->heard_ms ? oldest->since_ms : p->heard_ms);
}

static void check_replies(struct shed_pipe *p)
{
    uint64_t limit_ms = p->options.command_timeout_ms;
    uint64_t heard_ms = p->heard_ms;
    uint64_t so_far_ms;

    /* The loop runs timers before it looks at sockets: after this process was
       stopped for long, the reply may be there unread. */
    if (silent_ms(p) >= limit_ms)
        receive(p);
    if (p->state != PIPE_OPEN)
        return;
    so_far_ms = silent_ms(p);
    if (so_far_ms < limit_ms || p->heard_ms != heard_ms) {
        shed_timer_set(p->timer,
                       so_far_ms < limit_ms ? limit_ms - so_far_ms : 0);
        return;
    }
    (void)shed_fail(&p->why, SHED_EREDIS, "Redis %s: no reply within %llu ms",
                    p->address->text, (unsigned long long)limit_ms);
    /* a caller that has waited this long shall not wait again */
    p->failures += SILENCE_WEIGHT;
    lose(p, SHED_TROUBLE_DOWN);
}

static void on_timer(void *arg)
{
    struct shed_pipe *p = arg;

    switch (p->state) {
    case PIPE_LOOKING_UP:
        end_lookup(p, p->term, NULL, "no answer to the lookup of the name");
        break;
    case PIPE_CONNECTING:
        (void)shed_fail(&p->why, SHED_EREDIS,
                        "Redis %s: no connection within %llu ms",
                        p->address->text,
                        (unsigned long long)p->options.connect_timeout_ms);
        lose(p, SHED_TROUBLE_DOWN);
        break;
    case PIPE_SETTING_UP:
        (void)shed_fail(&p->why, SHED_EREDIS,
                        "Redis %s: no answer to %s within %llu ms",
                        p->address->text, shed_setup_awaited(&p->setup),
                        (unsigned long long)p->options.connect_timeout_ms);
        p->failures += SILENCE_WEIGHT;
        lose(p, SHED_TROUBLE_DOWN);
        break;
    case PIPE_OPEN:
        check_replies(p);
        break;
    case PIPE_PAUSED:
        start_connecting(p);
        break;
    case PIPE_NEW:
    case PIPE_CLOSED:
        break;
    }
}

/* ------------------------------------------------------------- the calls */

static bool append(struct shed_pipe *p, const struct shed_args *args)
{
    bool is_open = p->state == PIPE_OPEN;
    bool was_idle = p->wire.out.size == 0;

    if (shed_buffer_append(is_open ? &p->wire.out : &p->queued, args,
                           &p->why) != SHED_OK)
        return false;
    /* sent by the loop when it has run what it is at, with what comes by then
       in one go */
    if (is_open && was_idle && p->poll != NULL)
        watch(p, UV_READABLE | UV_WRITABLE);
    return !is_open || p->state == PIPE_OPEN;
}

static bool append_call(struct shed_pipe *p, struct shed_call *call,
                        const struct shed_args *args)
{
    struct shed_args numbered = *args;
    char digits[SHED_SCRIPT_DIGITS];

    if (args->script == NULL)
        return append(p, args);
    call->number = ++p->last_number;
    shed_script_number(&numbered, call->number, digits);
    call->by_text = shed_script_keep(&numbered);
    shed_script_by_text(call->by_text != NULL ? call->by_text : &numbered);
    return append(p, &numbered);
}

void shed_pipe_call(struct shed_pipe *p, struct shed_call *call,
                    const struct shed_args *args, shed_pipe_fn *fn, void *arg)
{
    *call = (struct shed_call){.fn = fn, .arg = arg, .since_ms = shed_now_ms()};
    if (p->state == PIPE_PAUSED)
        fail_call(p, call, p->pause_trouble);
    else if (p->state == PIPE_CLOSED || p->calls.count >= CALLS_MAX ||
             !append_call(p, call, args))
        fail_call(p, call, SHED_TROUBLE_DOWN);
    else
        push_call(&p->calls, call);
}

void shed_pipe_tell(struct shed_pipe *p, const struct shed_args *args)
{
    if (p->state == PIPE_OPEN && !append(p, args))
        lose(p, SHED_TROUBLE_PASSING);
}

void shed_pipe_drop(struct shed_pipe *p, const char *why)
{
    if (p->state != PIPE_OPEN)
        return;
    (void)shed_fail(&p->why, SHED_EREDIS, "Redis: connection dropped: %s", why);
    lose(p, SHED_TROUBLE_PASSING);
}

void shed_pipe_follow(struct shed_pipe *p)
{
    if (p->term == shed_address_term(p->address) ||
        (p->state != PIPE_LOOKING_UP && p->state != PIPE_CONNECTING &&
         !is_connected(p)))
        return;
    (void)shed_fail(&p->why, SHED_EREDIS, "Redis %s is not a primary any more",
                    p->address->text);
    lose(p, SHED_TROUBLE_PASSING);
    /* At once, so that what is called meanwhile is queued. */
    if (shed_address_pause_ms(p->address) == 0)
        start_connecting(p);
}

void shed_pipe_leave(struct shed_pipe *p)
{
    shed_address_leave(p->address, p->term, p->options.reconnect_min_ms,
                       p->options.reconnect_max_ms);
    shed_pipe_follow(p);
}

/* -------------------------------------------------------- begin and end */

enum shed_code shed_pipe_create(struct shed_reactor *reactor,
                                struct shed_address *address,
                                const struct shed_client_options *options,
                                const struct shed_pipe_hooks *hooks,
                                struct shed_pipe **out, struct shed_error *err)
{
    struct shed_pipe *p = calloc(1, sizeof(*p));

    *out = NULL;
    if (p == NULL)
        return shed_fail_nomem(err, "a Redis connection");
    p->reactor = reactor;
    p->address = address;
    p->options = *options;
    p->hooks = *hooks;
    shed_wire_init(&p->wire);
    init_calls(&p->calls);
    init_calls(&p->failed);
    p->timer = shed_timer_create(reactor, on_timer, p);
    p->fail_timer = shed_timer_create(reactor, tell_failed, p);
    if (p->timer == NULL || p->fail_timer == NULL) {
        shed_pipe_close(p);
        return shed_fail_nomem(err, "a Redis connection");
    }
    *out = p;
    return SHED_OK;
}

void shed_pipe_open(struct shed_pipe *p)
{
    if (p->state == PIPE_NEW)
        start_connecting(p);
}

void shed_pipe_close(struct shed_pipe *p)
{
    if (p == NULL)
        return;
    p->state = PIPE_CLOSED;
    drop_socket(p);
    shed_buffer_fini(&p->queued);
    shed_timer_destroy(p->timer);
    shed_timer_destroy(p->fail_timer);
    if (p->lookup != NULL)
        p->lookup->pipe = NULL;
    free(p);
}

void shed_pipe_forget(struct shed_pipe *p)
{
    if (p != NULL)
        shed_wire_forget(&p->wire);
}
