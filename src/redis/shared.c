/*
 * A connection that threads share. Its invariants: replies go to calls in the
 * order in which their commands were queued; a connection that timed out or
 * that nobody reads is closed, so that no late reply can meet a later
 * call; nobody closes the socket while another thread sends on it.
 *
 * Two roles, each held by one thread at a time:
 *
 * - The leader (is_led) connects, receives, and hands out replies. It is the
 *   thread of a request that still waits. While it waits for the socket, mu is
 *   free.
 * - The writer (is_writing) sends, without mu, what is queued, and what others
 *   queue meanwhile. It is the leader at the beginning of each of its rounds,
 *   or a thread that has just queued its command while the leader waits. The
 *   latter sends only if all before it is sent, the leader's own command too:
 *   so the leader may wait for replies alone, and the rest of what does not fit
 *   into the socket can be left to the leader's next round.
 *
 * A leader that has its reply makes the oldest request that still waits the
 * next one, whose thread must be woken for it. Where a writer is at work, it
 * names the next leader when it is done, most often itself, because that one
 * is awake.
 *
 * A thread that queues behind many leaves the sending to the leader's next
 * round: one system call for all of them is what makes many threads on few
 * connections cheap.
 *
 * A request lives on its caller's stack. It is reached through the calls of the
 * queue, and only under mu; a request that gives up removes itself from its
 * calls, whose replies are then thrown away.
 *
 * _locked: with mu. _releasing: with mu, which is free in between. _unlock:
 * begins with mu and ends without it.
 */
#include "redis/shared.h"

#include <assert.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* With more calls than this under way, a command waits for the leader's next
 * round. */
#define AT_ONCE_MAX 4

/* Before a connection that was idle for this long is used, it is looked at:
 * what has come on it meanwhile answers nothing, and it may be closed. In a row
 * of calls the look would be a system call for each. */
#define IDLE_MS 2

/* A connection is closed for what a reply seems to say no more often than this:
 * damaged bytes that cannot be replaced would cost each reader a connection. A
 * connection that stays out of step for this long costs lookups, and hands out
 * nothing wrong, because all that comes by it reads as another's. */
#define DOUBT_MS 1000

/* How much later than at its timeout a silent connection may be given up. */
#define SLACK_MS 2

/* ---------------------------------------------------------- the requests */

static void settle_locked(struct shed_shared *s, struct shed_request *r,
                          enum shed_outcome outcome)
{
    r->outcome = outcome;
    if (!r->has_latch)
        return;
    r->next = s->settled;
    s->settled = r;
}

/* Free mu and wake those that have settled, in this order, so that they do not
 * run into it. The last to settle is first: that is the next leader, if there
 * is one. */
static void unlock_and_wake(struct shed_shared *s)
{
    struct shed_request *r = s->settled, *next;

    s->settled = NULL;
    shed_mutex_unlock(&s->mu);
    for (; r != NULL; r = next) {
        next = r->next;
        shed_latch_count_down(&r->latch, 1); /* r is gone now */
    }
}

static void deliver_locked(struct shed_shared *s,
                           const struct shed_conn_call *call,
                           struct shed_reply *reply, uint64_t now_ms)
{
    struct shed_request *r = call->owner;

    if (r == NULL) {
        shed_reply_free(reply);
        return;
    }
    r->replies[call->index] = reply;
    if (++r->received < r->count)
        return;
    r->connection = s->connection;
    r->ended_ms = now_ms;
    settle_locked(s, r, SHED_OUTCOME_DONE);
}

static void close_locked(struct shed_shared *s)
{
    assert(!s->is_writing);
    shed_conn_close(&s->conn);
    s->connection++;
    s->is_open = s->is_unsent = s->is_out_of_step = false;
}

/* Close the connection, if there was one, and fail the calls that are queued or
 * under way on it. A request of several calls is told once. */
static void lose_locked(struct shed_shared *s, bool was_connected,
                        bool was_tried, const struct shed_error *why)
{
    struct shed_conn_call call;

    close_locked(s);
    while (shed_conn_pop(&s->conn.queue, &call)) {
        struct shed_request *r = call.owner;
        if (r == NULL || r->outcome == SHED_OUTCOME_LOST)
            continue;
        r->error = *why;
        r->was_tried |= was_tried;
        r->was_unsent = !was_connected;
        settle_locked(s, r, SHED_OUTCOME_LOST);
    }
}

/* The leader must not close a socket that another thread sends on. That one
 * does not wait, so it is done in a moment; after it nobody else begins. */
static void lose_releasing(struct shed_shared *s, const struct shed_error *why)
{
    assert(s->is_led);
    s->is_open = false;
    s->is_awaited = true;
    while (s->is_writing)
        pthread_cond_wait(&s->written, &s->mu.mutex);
    s->is_awaited = false;
    lose_locked(s, true, true, why);
}

/* --------------------------------------------------------------- writing */

/* Whether a thread that has just queued a command is to send it. */
static bool may_write_locked(const struct shed_shared *s, size_t calls_before)
{
    return s->is_open && !s->is_writing && !s->is_unsent &&
           calls_before <= AT_ONCE_MAX;
}

/* Send what is queued, and what is queued meanwhile, for as long as the socket
 * takes it. */
static enum shed_wire_io write_releasing(struct shed_shared *s,
                                         struct shed_error *err)
{
    enum shed_wire_io io = SHED_WIRE_DONE;

    assert(s->is_open && !s->is_writing);
    s->is_writing = true;
    while (io == SHED_WIRE_DONE && s->is_open && shed_conn_take(&s->conn)) {
        unlock_and_wake(s);
        io = shed_wire_flush(&s->conn.wire, err);
        shed_mutex_lock(&s->mu);
    }
    s->is_writing = false;
    s->is_unsent = io != SHED_WIRE_DONE;
    if (s->is_awaited)
        pthread_cond_signal(&s->written);
    return io;
}

/* --------------------------------------------------------------- leading */

/* Whether a read that waits for the whole command timeout ends by deadline_ms,
 * give or take what has passed since the command was appended. */
static bool is_patient(const struct shed_shared *s, uint64_t deadline_ms)
{
    return shed_left_ms(deadline_ms, shed_now_ms()) + SLACK_MS >=
           s->conn.command_timeout_ms;
}

/* Receive once, without mu; waits for the socket if need be, at most until
 * deadline_ms, and if is_unsent no longer than until more can be sent. */
static enum shed_wire_io receive(struct shed_shared *s, bool is_unsent,
                                 uint64_t deadline_ms, struct shed_error *err)
{
    short events = is_unsent ? POLLIN | POLLOUT : POLLIN;
    bool may_block = !is_unsent && is_patient(s, deadline_ms);

    if (!may_block && shed_wire_wait(&s->conn.wire, events, deadline_ms) == 0)
        return SHED_WIRE_AGAIN;
    return shed_wire_fill(&s->conn.wire, may_block, err);
}

/* With mu, so that no caller hears of it, and tries again, before the gate has
 * left the server. What the gate calls only posts to the session. */
static void leave_server_locked(const struct shed_shared *s)
{
    const struct shed_health_try try = {.term = s->conn.term};

    shed_gate_tell(s->gate, SHED_HEALTH_NO_PRIMARY, &try, 0, NULL);
}

/* Hand out what has been received. Returns: false: the connection was of no use
 * any more, and is lost. */
static bool deliver_all_releasing(struct shed_shared *s)
{
    uint64_t now_ms = shed_now_ms();
    struct shed_reply *reply = NULL;
    struct shed_conn_call call;
    struct shed_error why;

    while (!s->is_out_of_step) {
        enum shed_conn_event event =
            shed_conn_next(&s->conn, now_ms, &reply, &call);
        if (event == SHED_CONN_NOTHING)
            break;
        shed_gate_hear(s->gate, now_ms);
        if (shed_reply_is_no_primary(reply))
            leave_server_locked(s);
        s->is_out_of_step = event == SHED_CONN_PUSH;
        if (event == SHED_CONN_REPLY)
            deliver_locked(s, &call, reply, now_ms);
        else
            shed_reply_free(reply);
    }
    if (!s->is_out_of_step && s->conn.state == SHED_CONN_OPEN)
        return true;
    (void)shed_conn_out_of_step(&why);
    lose_releasing(s, s->is_out_of_step ? &why : &s->conn.failure.error);
    return false;
}

static void lose_if_silent_releasing(struct shed_shared *s)
{
    struct shed_conn_failure failure;

    shed_conn_tick(&s->conn, shed_now_ms());
    if (s->conn.state != SHED_CONN_FAILED) {
        if (s->conn.queue.is_last_look)
            (void)deliver_all_releasing(s);
        return;
    }
    failure = s->conn.failure;
    s->is_open = false; /* nobody sends on it */
    unlock_and_wake(s);
    if (failure.is_silent)
        shed_gate_tell(s->gate, SHED_HEALTH_MISSED, NULL, failure.since_ms,
                       &failure.error);
    shed_mutex_lock(&s->mu);
    lose_releasing(s, &failure.error);
}

static void connect_releasing(struct shed_shared *s, uint64_t deadline_ms)
{
    struct shed_error why;
    enum shed_code code;
    bool was_tried;

    assert(s->is_led && !s->is_open);
    unlock_and_wake(s);
    code = shed_dial(s->gate, &s->conn, deadline_ms, &was_tried, &why);
    shed_mutex_lock(&s->mu);
    if (code == SHED_OK)
        s->is_open = true;
    else
        lose_locked(s, false, was_tried, &why);
}

static bool lose_if_left_releasing(struct shed_shared *s)
{
    struct shed_error why;

    if (!shed_conn_is_left(&s->conn, shed_gate_term(s->gate), &why))
        return false;
    lose_releasing(s, &why);
    return true;
}

/* Receive what comes by until_ms, and hand it out. */
static void receive_releasing(struct shed_shared *s, uint64_t until_ms)
{
    struct shed_error why;
    bool is_unsent = s->is_unsent;
    enum shed_wire_io io;

    unlock_and_wake(s);
    io = receive(s, is_unsent, until_ms, &why);
    shed_mutex_lock(&s->mu);
    if (!deliver_all_releasing(s))
        return;
    if (io == SHED_WIRE_LOST)
        lose_releasing(s, &why);
    else if (!lose_if_left_releasing(s))
        lose_if_silent_releasing(s);
}

/* One round. Where another thread is sending, all that was queued before it is
 * sent, the leader's own command too. */
static void lead_once_releasing(struct shed_shared *s,
                                const struct shed_request *me)
{
    uint64_t until_ms = shed_conn_silent_at_ms(&s->conn);
    struct shed_error why;

    if (me->deadline_ms < until_ms)
        until_ms = me->deadline_ms;
    if (!s->is_writing && write_releasing(s, &why) == SHED_WIRE_LOST)
        lose_releasing(s, &why);
    else
        receive_releasing(s, until_ms);
}

/* Out of its calls: the replies, if they still come, are nobody's. */
static void give_up_locked(struct shed_shared *s, struct shed_request *r)
{
    for (size_t i = 0; i < s->conn.queue.count; i++) {
        struct shed_conn_call *call = shed_conn_call_at(&s->conn, i);
        if (call->owner != r)
            continue;
        call->owner = NULL;
        call->again = NULL;
    }
}

/* Let the oldest request that still waits lead. */
static void hand_over_locked(struct shed_shared *s)
{
    struct shed_error why;
    bool is_wanted = false;

    assert(!s->is_led && !s->is_writing);
    for (size_t i = 0; i < s->conn.queue.count; i++) {
        struct shed_request *next = shed_conn_call_at(&s->conn, i)->owner;
        if (next == NULL)
            continue;
        is_wanted = true;
        if (next->is_away)
            continue;
        settle_locked(s, next, SHED_OUTCOME_LEADER);
        s->is_led = true;
        return;
    }
    if (s->conn.queue.count > 0 && !is_wanted) {
        (void)shed_fail(&why, SHED_EREDIS,
                        "Redis: all callers of the connection have given up");
        lose_locked(s, true, true, &why);
    }
}

/* Before the next leader wakes, what is queued is sent, so that Redis does not
 * wait for it. If that fails, the next leader meets it again. */
static void stop_leading_releasing(struct shed_shared *s)
{
    struct shed_error unused;

    if (s->is_open && !s->is_writing && s->conn.queue.bytes.size > 0)
        (void)write_releasing(s, &unused);
    s->is_led = false;
    if (!s->is_writing)
        hand_over_locked(s);
}

/* Lead until me has its outcome or its deadline has passed. */
static void lead_releasing(struct shed_shared *s, struct shed_request *me)
{
    assert(s->is_led);
    me->has_latch = false; /* a leader does not wait at its latch */
    me->outcome = SHED_OUTCOME_NONE;
    while (me->outcome == SHED_OUTCOME_NONE) {
        if (!s->is_open)
            connect_releasing(s, me->deadline_ms);
        else if (!lose_if_left_releasing(s))
            lead_once_releasing(s, me);
        if (me->outcome == SHED_OUTCOME_NONE &&
            shed_now_ms() >= me->deadline_ms)
            break;
    }
    if (me->outcome == SHED_OUTCOME_NONE)
        give_up_locked(s, me);
    stop_leading_releasing(s);
}

/* A thread that has queued a command while another one leads. */
static void write_and_hand_over_releasing(struct shed_shared *s)
{
    struct shed_error unused;

    /* a leader that is waiting meets the failure, too */
    if (write_releasing(s, &unused) == SHED_WIRE_LOST)
        shed_wire_shut(&s->conn.wire);
    if (!s->is_led)
        hand_over_locked(s);
}

/* Wait at the latch until the outcome is known or it is ours to lead; at the
 * deadline, give up. */
static void follow(struct shed_shared *s, struct shed_request *me)
{
    bool is_settled;

    if (!shed_latch_wait(&me->latch, me->deadline_ms)) {
        shed_mutex_lock(&s->mu);
        is_settled = me->outcome != SHED_OUTCOME_NONE;
        if (!is_settled)
            give_up_locked(s, me);
        shed_mutex_unlock(&s->mu);
        if (!is_settled)
            return;
        (void)shed_latch_wait(&me->latch, UINT64_MAX); /* opens in a moment */
    }
    if (me->outcome != SHED_OUTCOME_LEADER)
        return;
    shed_mutex_lock(&s->mu);
    lead_releasing(s, me);
    unlock_and_wake(s);
}

/* -------------------------------------------------------------- the calls */

static enum shed_code conclude(struct shed_request *me, struct shed_error *err)
{
    if (me->outcome == SHED_OUTCOME_DONE)
        return SHED_OK;
    me->ended_ms = shed_now_ms();
    shed_reply_free_all(me->replies, me->count);
    if (me->outcome == SHED_OUTCOME_LOST)
        return shed_fail(err, me->error.code, "%s", me->error.reason);
    return shed_fail(err, SHED_ETIMEDOUT,
                     "the deadline passed while the call waited for Redis to "
                     "answer");
}

/* A connection that was left, or on which something came while nobody asked, is
 * closed before it is used. No call is under way. */
static void check_idle_locked(struct shed_shared *s, uint64_t now_ms)
{
    struct shed_error unused;

    if (s->is_open &&
        (s->is_out_of_step ||
         shed_conn_is_left(&s->conn, shed_gate_term(s->gate), &unused) ||
         (now_ms - s->last_used_ms >= IDLE_MS &&
          !shed_wire_is_quiet(&s->conn.wire))))
        close_locked(s);
    s->last_used_ms = now_ms;
}

/* All but what is to be sent, and the error. */
static void reset(struct shed_request *me, uint64_t now_ms)
{
    assert(me->count > 0);
    me->received = 0;
    me->outcome = SHED_OUTCOME_NONE;
    me->was_unsent = false;
    me->ended_ms = now_ms;
    if (me->began_ms == 0)
        me->began_ms = now_ms;
    memset(me->replies, 0, me->count * sizeof(struct shed_reply *));
    for (size_t i = 0; i < me->count; i++)
        me->calls[i].owner = me;
}

/* On a connection that nobody leads a thread that stays leads until it has its
 * replies. One that goes away sends, and does not wait. */
void shed_shared_begin(struct shed_shared *s, struct shed_request *me)
{
    uint64_t now_ms = shed_now_ms();
    size_t calls_before;
    bool is_free;

    reset(me, now_ms);
    shed_mutex_lock(&s->mu);
    calls_before = s->conn.queue.count;
    is_free = !s->is_led && !s->is_writing;
    me->was_connected = !is_free || s->is_open;
    me->has_latch = me->is_away || !is_free;
    if (me->has_latch)
        shed_latch_init(&me->latch, 1);
    if (is_free && calls_before == 0)
        check_idle_locked(s, now_ms);
    if (shed_conn_send(&s->conn, &me->bytes, me->calls, me->count, now_ms,
                       &me->error) != SHED_OK) {
        me->was_unsent = true;
        settle_locked(s, me, SHED_OUTCOME_LOST);
    } else if (!me->has_latch) {
        s->is_led = true;
        lead_releasing(s, me);
    } else if (may_write_locked(s, calls_before)) {
        write_and_hand_over_releasing(s);
    }
    unlock_and_wake(s);
}

enum shed_code shed_shared_end(struct shed_shared *s, struct shed_request *me,
                               struct shed_error *err)
{
    if (me->is_away) {
        shed_mutex_lock(&s->mu);
        me->is_away = false;
        if (me->outcome == SHED_OUTCOME_NONE && !s->is_led && !s->is_writing) {
            s->is_led = true;
            lead_releasing(s, me);
        }
        unlock_and_wake(s);
    }
    if (me->has_latch)
        follow(s, me);
    return conclude(me, err);
}

/* What is under way on the connection fails, for all callers, and goes once
 * more over a new one. */
void shed_shared_doubt(struct shed_shared *s, uint64_t connection)
{
    uint64_t now_ms = shed_now_ms();
    struct shed_error why;

    shed_mutex_lock(&s->mu);
    if (s->connection == connection && now_ms >= s->doubt_ms) {
        s->doubt_ms = now_ms + DOUBT_MS;
        (void)shed_conn_out_of_step(&why);
        if (s->is_led || s->is_writing)
            s->is_out_of_step = true; /* the socket is theirs */
        else
            lose_locked(s, true, true, &why);
    }
    unlock_and_wake(s);
}

/* The leader meets it; the next user of an idle connection looks first. */
void shed_shared_cut(struct shed_shared *s)
{
    shed_mutex_lock(&s->mu);
    if (s->is_open)
        shed_wire_shut(&s->conn.wire);
    shed_mutex_unlock(&s->mu);
}

void shed_shared_close_idle(struct shed_shared *s, uint64_t idle_ms)
{
    shed_mutex_lock(&s->mu);
    if (s->is_open && !s->is_led && !s->is_writing &&
        shed_now_ms() - s->last_used_ms >= idle_ms)
        close_locked(s);
    shed_mutex_unlock(&s->mu);
}

enum shed_code shed_shared_init(struct shed_shared *s, struct shed_gate *gate,
                                const struct shed_client_options *options,
                                struct shed_error *err)
{
    *s = (struct shed_shared){.gate = gate};
    if (shed_mutex_init(&s->mu, SHED_RANK_LINK) != 0)
        return shed_fail_nomem(err, "the Redis links");
    if (pthread_cond_init(&s->written, NULL) != 0) {
        shed_mutex_destroy(&s->mu);
        return shed_fail_nomem(err, "the Redis links");
    }
    shed_conn_init(&s->conn, shed_gate_address(gate), options);
    return SHED_OK;
}

void shed_shared_fini(struct shed_shared *s)
{
    shed_conn_fini(&s->conn);
    /* In a forked child the parent's threads seem to be at work for ever, and
     * glibc would wait for one that waits at the condition. */
    if (!s->is_awaited)
        pthread_cond_destroy(&s->written);
    shed_mutex_destroy(&s->mu);
}
