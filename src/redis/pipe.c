/*
 * The reactor's connections: a conn, driven by the loop. Its invariants: each
 * call's fn is called exactly once and by the loop; a failed connection is
 * closed before anybody hears of the failure.
 */
#include "redis/pipe.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <uv.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/random.h"
#include "wire/conn.h"
#include "redis/lookup.h"
#include "wire/script.h"

enum state {
    PIPE_NEW,        /* not opened yet */
    PIPE_LOOKING_UP, /* the host name, until the timer ends the lookup */
    PIPE_UP,         /* the conn is open; its own state says more */
    PIPE_PAUSED      /* no connection until the timer ends the pause */
};

struct shed_pipe {
    struct shed_reactor *reactor;
    struct shed_gate *gate;
    struct shed_address *address; /* the gate's */
    enum shed_health_user user;
    struct shed_pipe_hooks hooks;
    bool is_guide; /* its gate and its address are its own */

    enum state state;
    struct shed_conn conn;
    bool is_open;                   /* on_open was called, on_lost not yet */
    bool is_silent;                 /* no push has come since the last PING */
    uv_poll_t *poll;                /* NULL without a socket */
    int watched;                    /* its events; 0: it is stopped */
    struct shed_health_try attempt; /* the last one to connect */
    struct shed_timer *timer;
    struct shed_list failed;   /* calls: the loop will tell their owners */
    struct shed_timer *soon;   /* ends the turn: what failed, what is queued */
    struct shed_error why;     /* the last failure */
    struct shed_error refusal; /* the last one by the gate */
    enum shed_trouble pause_trouble;
    bool has_failed;            /* once, so the host may be elsewhere */
    unsigned losses;            /* of connections without a reply, in a row */
    struct shed_lookup *lookup; /* NULL: none is under way */
    bool is_doubted;            /* what that finds: it began too early */
    bool is_send_due;           /* by soon */
};

static void on_timer(void *arg);

bool shed_pipe_is_open(const struct shed_pipe *p)
{
    return p->state == PIPE_UP && p->conn.state == SHED_CONN_OPEN;
}

/* ---------------------------------------------------------- failed calls */

static void fail_call(struct shed_pipe *p, struct shed_call *call,
                      enum shed_trouble trouble)
{
    call->trouble = trouble;
    shed_list_append(&p->failed, &call->node);
    shed_timer_set(p->soon, 0);
}

static void tell_failed(struct shed_pipe *p)
{
    /* only those that have failed by now: later ones wait for the next turn */
    const struct shed_node *last = p->failed.last, *node = NULL;
    struct shed_error why = p->why, refusal = p->refusal;

    while (node != last) {
        struct shed_call *call = shed_container_of(shed_list_pop(&p->failed),
                                                   struct shed_call, node);
        const struct shed_call_result result = {
            .trouble = call->trouble,
            .why = call->is_refused ? &refusal : &why};
        node = &call->node;
        shed_call_end(call, &result);
    }
}

/* -------------------------------------------------------------- the socket */

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

/* libuv requires that its handle is stopped before the socket is closed. */
static void drop_socket(struct shed_pipe *p)
{
    if (p->poll != NULL) {
        (void)uv_poll_stop(p->poll);
        uv_close((uv_handle_t *)p->poll, on_poll_closed);
        p->poll = NULL;
        p->is_send_due = false;
    }
    shed_conn_close(&p->conn);
}

/* was_open: calls of the queue may have been sent; else none has been, if there
 * still are bytes. */
static void fail_all(struct shed_pipe *p, struct shed_conn_queue *queue,
                     enum shed_trouble trouble, bool was_open)
{
    bool is_unsent = !was_open && queue->bytes.size > 0;
    struct shed_conn_call expected;

    while (shed_conn_pop(queue, &expected)) {
        struct shed_call *call = expected.owner;
        if (call == NULL)
            continue;
        call->is_unsent = is_unsent;
        fail_call(p, call, trouble);
    }
}

/* Wait until the gate may let it connect. A server that has lost its
 * connections is not asked by all its clients at the same time. */
static void begin_pause(struct shed_pipe *p)
{
    uint64_t least_ms = shed_backoff_ms(
        p->losses, SHED_PAUSE_MIN_MS, SHED_PAUSE_MAX_MS, shed_random_jitter());
    uint64_t left_ms = shed_gate_pause_left_ms(p->gate);

    p->state = PIPE_PAUSED;
    shed_timer_set(p->timer, left_ms > least_ms ? left_ms : least_ms);
}

static void tell(struct shed_pipe *p, enum shed_health_event_type type,
                 uint64_t since_ms, const struct shed_error *why)
{
    shed_gate_tell(p->gate, type, &p->attempt, since_ms, why);
}

/* Tell the gate of a failure. A connection that was set up and lost is no
 * failed try: calls connect again at once. */
static void tell_failure(struct shed_pipe *p, const struct shed_conn_failure *f)
{
    if (p->is_open && f->is_silent)
        tell(p, SHED_HEALTH_MISSED, f->since_ms, &f->error);
    else if (p->is_open)
        shed_gate_hear(p->gate, shed_now_ms());
    else if (f->error.code != SHED_ENOMEM)
        tell(p, f->is_silent ? SHED_HEALTH_UNANSWERED : SHED_HEALTH_REFUSED,
             f->since_ms, &f->error);
}

/* The connection, or the try to make one, has failed. Calls under way end with
 * that failure; a new connection follows after a pause. */
static void lose(struct shed_pipe *p, const struct shed_conn_failure *failure)
{
    struct shed_error why = failure->error;
    enum shed_trouble trouble = failure->trouble;
    bool was_open = p->is_open, is_no_primary = failure->is_no_primary;

    assert(p->state == PIPE_UP || p->state == PIPE_LOOKING_UP);
    drop_socket(p);
    p->is_open = false;
    p->has_failed = true;
    p->why = why;
    p->pause_trouble = trouble;
    begin_pause(p);
    p->losses += was_open;
    if (p->hooks.on_lost != NULL)
        p->hooks.on_lost(p->hooks.arg, was_open, &why);
    fail_all(p, &p->conn.queue, trouble, was_open);
    if (is_no_primary)
        shed_pipe_leave(p);
}

/* Lose the connection by a failure that the conn has found. */
static void lose_conn(struct shed_pipe *p)
{
    tell_failure(p, &p->conn.failure);
    lose(p, &p->conn.failure);
}

/* The same for a failure that the conn has not found itself; p->why is set. */
static void give_up(struct shed_pipe *p, enum shed_trouble trouble)
{
    struct shed_conn_failure failure = {.error = p->why, .trouble = trouble};

    lose(p, &failure);
}

static void on_ready(uv_poll_t *poll, int status, int events);

/* Watch the socket for the events that the conn wants. What is sent at the end
 * of the turn waits for no event, unless the socket does not take it then. */
static void watch(struct shed_pipe *p)
{
    int events = shed_conn_want(&p->conn) & POLLIN ? UV_READABLE : 0;

    if (shed_conn_want(&p->conn) & POLLOUT && !p->is_send_due)
        events |= UV_WRITABLE;
    /* to start it again costs two system calls */
    if (events == p->watched)
        return;
    p->watched = events;
    if (uv_poll_start(p->poll, events, on_ready) == 0)
        return;
    (void)shed_fail(&p->why, SHED_EREDIS, "Redis: cannot watch a socket");
    give_up(p, SHED_TROUBLE_PASSING);
}

/* --------------------------------------------------------------- replies */

static bool deliver(struct shed_pipe *p, const struct shed_conn_call *expected,
                    struct shed_reply *reply, uint64_t now_ms)
{
    bool is_taken = false;
    const struct shed_call_result result = {
        .reply = reply, .came_ms = now_ms, .is_taken = &is_taken};
    struct shed_call *call = expected->owner; /* NULL: of ASKING */

    p->losses = 0;
    if (shed_reply_is_no_primary(reply))
        shed_pipe_leave(p);
    if (call == NULL || (call->kept != NULL && p->hooks.on_elsewhere != NULL &&
                         shed_reply_is_elsewhere(reply) &&
                         p->hooks.on_elsewhere(p->hooks.arg, call, reply)))
        return false;
    shed_call_end(call, &result);
    return is_taken;
}

/* The connection is set up: the session's own commands are sent before those
 * that have been waiting. */
static void start_session(struct shed_pipe *p)
{
    struct shed_conn_queue waiting = p->conn.queue;

    assert(!p->is_open);
    p->conn.queue = (struct shed_conn_queue){0};
    p->is_open = true;
    p->is_silent = false;
    tell(p, SHED_HEALTH_REACHED, 0, NULL);
    shed_timer_set(p->timer, p->conn.command_timeout_ms);
    if (p->hooks.on_open != NULL)
        p->hooks.on_open(p->hooks.arg);
    if (shed_pipe_is_open(p) &&
        shed_conn_send_queue(&p->conn, &waiting, &p->why) == SHED_OK)
        return;
    if (shed_pipe_is_open(p))
        give_up(p, SHED_TROUBLE_PASSING);
    fail_all(p, &waiting, SHED_TROUBLE_PASSING, false);
}

/* Hand out the replies that the conn has read, until there are no more or it is
 * lost; a callback may drop it. */
static void drain(struct shed_pipe *p, uint64_t now_ms)
{
    struct shed_conn_call expected;
    struct shed_reply *reply = NULL;

    while (shed_pipe_is_open(p)) {
        enum shed_conn_event event =
            shed_conn_next(&p->conn, now_ms, &reply, &expected);
        bool is_taken = false;
        if (event == SHED_CONN_NOTHING)
            break;
        shed_gate_hear(p->gate, now_ms);
        p->is_silent = false;
        if (event == SHED_CONN_REPLY)
            is_taken = deliver(p, &expected, reply, now_ms);
        else if (p->hooks.on_push != NULL)
            p->hooks.on_push(p->hooks.arg, reply);
        else
            shed_pipe_drop(p, "a reply that nobody asked for");
        if (!is_taken)
            shed_reply_free(reply);
    }
}

/* To be called after anything that may have changed the conn, which was at
 * now_ms. */
static void follow_conn(struct shed_pipe *p, uint64_t now_ms)
{
    if (shed_pipe_is_open(p) && !p->is_open)
        start_session(p);
    drain(p, now_ms);
    if (p->state != PIPE_UP)
        return;
    if (p->conn.state == SHED_CONN_FAILED)
        lose_conn(p);
    else
        watch(p);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct shed_pipe *p = poll->data;
    uint64_t now_ms = shed_now_ms();
    int ready = events & UV_WRITABLE ? POLLOUT : 0;

    /* an error is reported by the read; libuv has stopped the watch */
    if (status != 0)
        p->watched = 0;
    if (events & UV_READABLE || status != 0)
        ready |= POLLIN;
    shed_conn_ready(&p->conn, ready, now_ms);
    follow_conn(p, now_ms);
}

/* ------------------------------------------------------------ connecting */

static bool open_poll(struct shed_pipe *p)
{
    p->watched = 0;
    p->poll = calloc(1, sizeof(*p->poll));
    if (p->poll != NULL && uv_poll_init(shed_reactor_loop(p->reactor), p->poll,
                                        p->conn.wire.fd) == 0) {
        p->poll->data = p;
        return true;
    }
    free(p->poll);
    p->poll = NULL;
    return false;
}

static void open_socket(struct shed_pipe *p)
{
    p->state = PIPE_UP;
    shed_conn_start(&p->conn, p->attempt.term, shed_now_ms());
    if (p->conn.state == SHED_CONN_FAILED) {
        lose_conn(p);
    } else if (!open_poll(p)) {
        (void)shed_fail(&p->why, SHED_EREDIS, "Redis: cannot watch a socket");
        give_up(p, SHED_TROUBLE_DOWN);
    } else {
        shed_timer_set(p->timer, p->conn.connect_timeout_ms);
        watch(p);
    }
}

/* If the lookup failed, the previous address is used. If the name leads
 * elsewhere, all connections follow: those to a former primary that was
 * restarted as a primary would notice nothing. */
static void end_lookup(struct shed_pipe *p, unsigned term,
                       const struct addrinfo *list, const char *failure)
{
    bool is_elsewhere = list != NULL && term == shed_gate_term(p->gate) &&
                        shed_address_is_elsewhere(p->address, term, list);

    shed_address_set(p->address, term, list, failure);
    if (is_elsewhere)
        shed_pipe_leave(p);
    else if (p->state == PIPE_LOOKING_UP)
        open_socket(p);
}

static void look_up(struct shed_pipe *p);

/* One that began before the server was left may say where it was: links wait
 * for one of the present term. */
static void on_lookup(void *arg, unsigned term, const struct addrinfo *list,
                      const char *failure)
{
    struct shed_pipe *p = arg;

    p->lookup = NULL;
    if (p->state == PIPE_LOOKING_UP && term != p->attempt.term)
        look_up(p);
    else
        end_lookup(p, term, list, failure);
    if (p->is_doubted)
        shed_pipe_check_address(p);
}

/* Look up the host name. A lookup that still runs is waited for, up to the
 * timeout. */
static void look_up(struct shed_pipe *p)
{
    p->state = PIPE_LOOKING_UP;
    shed_timer_set(p->timer, p->conn.connect_timeout_ms);
    if (p->lookup == NULL)
        p->lookup = shed_lookup_start(p->reactor, p->address, p->attempt.term,
                                      on_lookup, p);
    if (p->lookup == NULL)
        end_lookup(p, p->attempt.term, NULL,
                   "no memory or thread for the lookup");
}

void shed_pipe_check_address(struct shed_pipe *p)
{
    p->is_doubted = p->lookup != NULL;
    if (p->state == PIPE_UP && p->lookup == NULL &&
        p->address->sentinels != NULL)
        p->lookup = shed_lookup_start(p->reactor, p->address, p->attempt.term,
                                      on_lookup, p);
}

/* After a failover the name may resolve to another address. */
static bool must_look_up(const struct shed_pipe *p)
{
    return p->address->host != NULL &&
           (p->has_failed || p->address->sentinels != NULL ||
            !shed_address_is_known(p->address));
}

static void start_connecting(struct shed_pipe *p)
{
    if (shed_gate_connect(p->gate, p->user, &p->attempt, &p->why) != SHED_OK)
        begin_pause(p);
    else if (must_look_up(p))
        look_up(p);
    else
        open_socket(p);
}

/* Check for silence. Calls do not set the timer, so it expires at least once
 * per command timeout. */
static void check_conn(struct shed_pipe *p)
{
    uint64_t now_ms = shed_now_ms(), left_ms;

    shed_conn_tick(&p->conn, now_ms);
    follow_conn(p, now_ms);
    if (p->state != PIPE_UP)
        return;
    left_ms = shed_left_ms(shed_conn_due_ms(&p->conn), shed_now_ms());
    shed_timer_set(p->timer, left_ms < p->conn.command_timeout_ms
                                 ? left_ms
                                 : p->conn.command_timeout_ms);
}

static void on_timer(void *arg)
{
    struct shed_pipe *p = arg;

    switch (p->state) {
    case PIPE_LOOKING_UP:
        end_lookup(p, p->attempt.term, NULL,
                   "the lookup of the host name has not ended in time");
        break;
    case PIPE_UP:
        check_conn(p);
        break;
    case PIPE_PAUSED:
        start_connecting(p);
        break;
    case PIPE_NEW:
        break;
    }
}

/* ------------------------------------------------------------- the calls */

/* It opens the slot for the next command alone; and sent again by text, that
 * would no longer be the next one. So behind it a script goes by text. */
static enum shed_code send_asking(struct shed_pipe *p, uint64_t now_ms)
{
    const struct shed_conn_call expected = {.owner = NULL};
    const struct shed_args args = shed_args_of("ASKING", NULL);

    return shed_conn_send_args(&p->conn, &args, &expected, now_ms, &p->why);
}

/* call is NULL for a command that is answered by pushes. */
static enum shed_code send_args(struct shed_pipe *p, struct shed_call *call,
                                const struct shed_args *args, uint64_t now_ms)
{
    struct shed_conn_call expected = {.owner = call};
    enum shed_code code = SHED_OK;

    assert(call != NULL || args->script == NULL);
    if (call != NULL && (args->script != NULL ||
                         (args->is_followed && p->hooks.on_elsewhere != NULL)))
        call->kept = shed_script_keep(args);
    if (args->script != NULL && !args->is_asking)
        expected.again = call->kept;
    if (args->is_asking)
        code = send_asking(p, now_ms);
    if (code == SHED_OK)
        code = shed_conn_send_args(
            &p->conn, args, call != NULL ? &expected : NULL, now_ms, &p->why);
    return code;
}

/* Queue a command. The loop sends it at the end of its turn, together with all
 * that is queued by then. */
static enum shed_code send_soon(struct shed_pipe *p, struct shed_call *call,
                                const struct shed_args *args, uint64_t now_ms)
{
    bool was_idle = !(shed_conn_want(&p->conn) & POLLOUT);
    enum shed_code code = send_args(p, call, args, now_ms);

    if (code == SHED_OK && shed_pipe_is_open(p) && was_idle) {
        p->is_send_due = true;
        shed_timer_set(p->soon, 0);
    }
    return code;
}

static void on_soon(void *arg)
{
    struct shed_pipe *p = arg;
    uint64_t now_ms = shed_now_ms();

    if (p->is_send_due) {
        p->is_send_due = false;
        shed_conn_ready(&p->conn, POLLOUT, now_ms);
        follow_conn(p, now_ms);
    }
    if (p->failed.first != NULL)
        tell_failed(p);
}

/* Whether calls would wait until it turns out whether a silent server answers
 * again. p->why is set if so. */
static bool is_held_up(struct shed_pipe *p)
{
    if (shed_pipe_is_open(p) || !shed_gate_is_silent(p->gate))
        return false;
    (void)shed_gate_fail_silent(p->gate, &p->why);
    return true;
}

void shed_pipe_call(struct shed_pipe *p, struct shed_call *call,
                    const struct shed_args *args, shed_pipe_fn *fn, void *arg)
{
    uint64_t now_ms = shed_now_ms();

    assert(shed_reactor_is_current(p->reactor) && fn != NULL);
    *call = (struct shed_call){
        .fn = fn, .arg = arg, .is_repeated = args->is_repeated};
    if (args->is_guarded)
        shed_call_enter(call, p->gate, now_ms, &p->refusal);
    if (p->state == PIPE_PAUSED && !call->is_refused)
        fail_call(p, call, p->pause_trouble);
    else if (call->is_refused || is_held_up(p))
        fail_call(p, call, SHED_TROUBLE_DOWN);
    else if (send_soon(p, call, args, now_ms) != SHED_OK)
        fail_call(p, call, SHED_TROUBLE_PASSING); /* no memory for it */
    else
        call->was_tried = true;
}

size_t shed_pipe_owed(const struct shed_pipe *p)
{
    return p->conn.queue.count;
}

bool shed_pipe_is_idle(const struct shed_pipe *p)
{
    return p == NULL || (p->conn.queue.count == 0 && p->failed.first == NULL);
}

void shed_pipe_tell(struct shed_pipe *p, const struct shed_args *args)
{
    assert(shed_reactor_is_current(p->reactor) && args->script == NULL);
    if (shed_pipe_is_open(p) &&
        send_soon(p, NULL, args, shed_now_ms()) != SHED_OK)
        give_up(p, SHED_TROUBLE_PASSING);
}

void shed_pipe_ping(struct shed_pipe *p)
{
    const struct shed_args args = shed_args_of("PING", NULL);

    if (p->is_silent)
        shed_pipe_drop(p, "no answer to PING");
    p->is_silent = true;
    shed_pipe_tell(p, &args);
}

void shed_pipe_drop(struct shed_pipe *p, const char *why)
{
    assert(shed_reactor_is_current(p->reactor));
    if (!shed_pipe_is_open(p))
        return;
    (void)shed_fail(&p->why, SHED_EREDIS, "Redis: connection dropped: %s", why);
    give_up(p, SHED_TROUBLE_PASSING);
}

/* Whether it is one of a former term, or of a server that is silent, which the
 * connection for commands finds out by a new one. If so it is dropped. */
static bool drop_if_gone(struct shed_pipe *p)
{
    bool is_of_term = p->attempt.term == shed_gate_term(p->gate);

    if (!is_of_term && (p->state == PIPE_LOOKING_UP || p->state == PIPE_UP)) {
        (void)shed_fail(&p->why, SHED_EREDIS,
                        "Redis %s is no longer used: it is not the primary, or "
                        "its host name resolves to another address",
                        p->address->text);
        give_up(p, SHED_TROUBLE_PASSING);
        return true;
    }
    if (p->user != SHED_HEALTH_COMMANDS || !shed_pipe_is_open(p) ||
        !shed_gate_is_silent(p->gate))
        return false;
    (void)shed_gate_fail_silent(p->gate, &p->why);
    give_up(p, SHED_TROUBLE_DOWN);
    return true;
}

void shed_pipe_follow(struct shed_pipe *p, bool is_reached)
{
    if (p == NULL)
        return;
    assert(shed_reactor_is_current(p->reactor));
    if (is_reached && p->state == PIPE_PAUSED)
        start_connecting(p);
    /* at once, so that calls made meanwhile are queued */
    if (drop_if_gone(p) && shed_gate_pause_left_ms(p->gate) == 0)
        start_connecting(p);
}

void shed_pipe_hurry(struct shed_pipe *p)
{
    assert(shed_reactor_is_current(p->reactor));
    if (p->state != PIPE_PAUSED)
        return;
    tell(p, SHED_HEALTH_HURRY, 0, NULL);
    start_connecting(p);
}

void shed_pipe_leave(struct shed_pipe *p)
{
    tell(p, SHED_HEALTH_NO_PRIMARY, 0, NULL);
    shed_pipe_follow(p, false);
}

/* -------------------------------------------------------- begin and end */

enum shed_code shed_pipe_create(struct shed_reactor *reactor,
                                struct shed_gate *gate,
                                enum shed_health_user user,
                                const struct shed_client_options *options,
                                const struct shed_pipe_hooks *hooks,
                                struct shed_pipe **out, struct shed_error *err)
{
    struct shed_pipe *p = calloc(1, sizeof(*p));

    *out = NULL;
    if (p == NULL)
        return shed_fail_nomem(err, "a Redis connection");
    p->reactor = reactor;
    p->gate = gate;
    p->address = shed_gate_address(gate);
    p->user = user;
    p->pause_trouble = SHED_TROUBLE_DOWN;
    p->hooks = *hooks;
    shed_conn_init(&p->conn, p->address, options);
    p->timer = shed_timer_create(reactor, on_timer, p);
    p->soon = shed_timer_create(reactor, on_soon, p);
    if (p->timer == NULL || p->soon == NULL) {
        shed_pipe_close(p);
        return shed_fail_nomem(err, "a Redis connection");
    }
    *out = p;
    return SHED_OK;
}

enum shed_code shed_pipe_create_guide(struct shed_reactor *reactor,
                                      const struct shed_address *base,
                                      const struct shed_place *at,
                                      const struct shed_client_options *options,
                                      const struct shed_pipe_hooks *hooks,
                                      struct shed_pipe **out,
                                      struct shed_error *err)
{
    struct shed_address *address;
    struct shed_gate *gate = NULL;
    enum shed_code code = shed_address_create_at(base, at, &address, err);

    *out = NULL;
    if (code != SHED_OK)
        return code;
    address->is_guide = true;
    code = shed_gate_create(address, options, NULL, NULL, &gate, err);
    if (code == SHED_OK)
        code = shed_pipe_create(reactor, gate, SHED_HEALTH_COMMANDS, options,
                                hooks, out, err);
    if (code != SHED_OK) {
        shed_gate_destroy(gate);
        shed_address_unref(address);
        return code;
    }
    (*out)->is_guide = true;
    return SHED_OK;
}

void shed_pipe_open(struct shed_pipe *p)
{
    if (p == NULL)
        return;
    assert(shed_reactor_is_current(p->reactor));
    if (p->state == PIPE_NEW)
        start_connecting(p);
}

void shed_pipe_close(struct shed_pipe *p)
{
    if (p == NULL)
        return;
    drop_socket(p);
    shed_conn_fini(&p->conn);
    shed_timer_destroy(p->timer);
    shed_timer_destroy(p->soon);
    shed_lookup_abandon(p->lookup);
    if (p->is_guide) {
        shed_gate_destroy(p->gate);
        shed_address_unref(p->address);
    }
    free(p);
}

void shed_pipe_forget(struct shed_pipe *p)
{
    if (p != NULL)
        shed_wire_forget(&p->conn.wire);
}
