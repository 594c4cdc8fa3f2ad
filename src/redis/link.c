/*
 * Shared connections. Its invariants: replies go to calls in the order in which
 * their commands were queued; a connection that timed out or that nobody reads
 * any more is closed, so that no late reply can meet a later call.
 *
 * A request lives on its caller's stack. It is reached through the calls of the
 * connection's queue, and only under the link's mutex; a request that gives up
 * removes itself from its calls, whose replies are then thrown away.
 */
#include "redis/link.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "redis/conn.h"
#include "redis/dial.h"

/* Replies parsed between two takes of the mutex. */
#define PARSE_BATCH 64

/* Before a link that was idle for so long is used, it is looked at: what has
 * come on it meanwhile answers nothing, and it may be closed. In a row of calls
 * the look would be a system call for each. */
#define IDLE_MS 2

/* A connection is closed for what a reply seems to say no more often than this:
 * damaged bytes that cannot be replaced would cost each reader a connection. A
 * link that stays out of step for so long costs lookups, and hands out nothing
 * wrong, because all that comes by it reads as another's. */
#define DOUBT_MS 1000

/* How much later than at its timeout a silent connection may be given up. */
#define SLACK_MS 2

enum outcome {
    OUTCOME_NONE,  /* queued, or sent */
    OUTCOME_DONE,  /* all its replies are there */
    OUTCOME_LOST,  /* the connection went; error says how */
    OUTCOME_LEADER /* still without its replies, and now to lead the link */
};

/* The commands of a call. */
struct batch {
    const struct shed_args *commands;
    size_t count;
    struct shed_conn_call *calls; /* as many */
    struct shed_conn_call single; /* where they are one */
    struct shed_buffer bytes;
};

struct request {
    struct shed_latch latch; /* opened when the outcome is set */
    struct shed_reply **replies;
    size_t expected;
    size_t received;
    uint64_t deadline_ms;
    struct shed_error error;
    /* under the link's mu until the latch is released */
    enum outcome outcome;
    bool has_latch;
    uint64_t connection;  /* from which the replies came */
    struct request *next; /* among those whose latch is to be counted down */
};

struct link {
    struct shed_links *links;
    atomic_size_t users; /* requests that are in a slot, for choosing */

    pthread_mutex_t mu;
    /* under mu */
    bool is_led;
    uint64_t doubt_ms;       /* shed_now_ms; not to be doubted before */
    bool is_out_of_step;     /* the leader is to close the connection */
    uint64_t connection;     /* counted: which it is */
    uint64_t last_used_ms;   /* when somebody last found it idle */
    struct request *settled; /* their latches are released when mu is free */

    /* its queue is under mu, the rest is the leader's */
    struct shed_conn conn;
};

struct shed_links {
    /* set at creation */
    struct shed_dialler dialler;
    size_t count;
    struct link *link;
    atomic_uint_fast64_t last_number; /* of the commands */
};

/* ---------------------------------------------------------- the requests */

static void settle_locked(struct link *l, struct request *r,
                          enum outcome outcome)
{
    r->outcome = outcome;
    if (!r->has_latch)
        return;
    r->next = l->settled;
    l->settled = r;
}

/* Wake those who have settled; without mu, so that they do not run into it.
 * The last to settle is first: that is the next leader, if there is one. */
static void unlock_and_wake(struct link *l)
{
    struct request *r = l->settled, *next;

    l->settled = NULL;
    pthread_mutex_unlock(&l->mu);
    for (; r != NULL; r = next) {
        next = r->next;
        shed_latch_count_down(&r->latch, 1); /* r is gone now */
    }
}

static void deliver_locked(struct link *l, const struct shed_conn_call *call,
                           struct shed_reply *reply)
{
    struct request *r = call->owner;

    if (r == NULL) {
        shed_reply_free(reply);
        return;
    }
    r->replies[call->index] = reply;
    if (++r->received < r->expected)
        return;
    r->connection = l->connection;
    settle_locked(l, r, OUTCOME_DONE);
}

static void free_all(struct shed_reply **replies, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        shed_reply_free(replies[i]);
        replies[i] = NULL;
    }
}

static void close_locked(struct link *l)
{
    shed_conn_close(&l->conn);
    l->connection++;
    l->is_out_of_step = false;
}

/* The connection is of no use any more: nor are the calls on it. A request of
 * several is told once. */
static void lose_locked(struct link *l, const struct shed_error *why)
{
    struct shed_conn_call call;

    close_locked(l);
    while (shed_conn_pop(&l->conn.queue, &call)) {
        struct request *r = call.owner;
        if (r == NULL || r->outcome == OUTCOME_LOST)
            continue;
        r->error = *why;
        settle_locked(l, r, OUTCOME_LOST);
    }
}

/* --------------------------------------------------------------- leading */

/* Parse what has been read. */
static enum shed_wire_io parse(struct link *l, struct shed_reply **replies,
                               size_t *count, struct shed_error *err)
{
    enum shed_wire_io io = SHED_WIRE_DONE;

    for (*count = 0; *count < PARSE_BATCH && io == SHED_WIRE_DONE;) {
        io = shed_wire_next(&l->conn.wire, &replies[*count], err);
        if (io == SHED_WIRE_DONE)
            (*count)++;
    }
    return io;
}

/* Whether a read that waits for the whole command timeout ends by deadline_ms,
 * give or take what has passed since the command was appended. */
static bool is_patient(const struct link *l, uint64_t deadline_ms)
{
    return shed_left_ms(deadline_ms, shed_now_ms()) + SLACK_MS >=
           l->conn.command_timeout_ms;
}

/* Send and receive once, without mu; waits for the socket if need be, at most
 * until deadline_ms. Sets *count and replies. */
static enum shed_wire_io exchange(struct link *l, uint64_t deadline_ms,
                                  struct shed_reply **replies, size_t *count,
                                  struct shed_error *err)
{
    enum shed_wire_io sent = shed_wire_flush(&l->conn.wire, err);
    enum shed_wire_io io;

    if (sent == SHED_WIRE_LOST)
        return SHED_WIRE_LOST;
    io = parse(l, replies, count, err);
    if (io == SHED_WIRE_LOST || *count > 0)
        return io;
    if (sent == SHED_WIRE_DONE && is_patient(l, deadline_ms))
        io = shed_wire_fill_waiting(&l->conn.wire, err);
    else if (shed_dial_wait(l->conn.wire.fd,
                            sent == SHED_WIRE_AGAIN ? POLLIN | POLLOUT : POLLIN,
                            deadline_ms) == 0)
        return SHED_WIRE_AGAIN;
    else
        io = shed_wire_fill(&l->conn.wire, err);
    return io == SHED_WIRE_DONE ? parse(l, replies, count, err) : io;
}

static void close_if_silent_locked(struct link *l)
{
    struct shed_error why;

    shed_conn_tick(&l->conn, shed_now_ms());
    if (l->conn.state != SHED_CONN_FAILED)
        return;
    why = l->conn.failure.error;
    if (l->conn.failure.is_silent)
        shed_dialler_hear_nothing(&l->links->dialler, &why);
    lose_locked(l, &why);
}

static void connect_locked(struct link *l, uint64_t deadline_ms)
{
    struct shed_error why;
    enum shed_code code;

    unlock_and_wake(l);
    code = shed_dial(&l->links->dialler, &l->conn, deadline_ms, &why);
    pthread_mutex_lock(&l->mu);
    if (code != SHED_OK)
        lose_locked(l, &why);
}

static bool lose_if_left_locked(struct link *l)
{
    struct shed_error why;

    if (!shed_conn_is_left(&l->conn, &why))
        return false;
    lose_locked(l, &why);
    return true;
}

/* Hand out what came. Returns: false when it is out of step. */
static bool deliver_all_locked(struct link *l, struct shed_reply **replies,
                               size_t count, struct shed_error *err)
{
    uint64_t now_ms = shed_now_ms();
    bool is_in_step = !l->is_out_of_step;

    if (!is_in_step)
        (void)shed_conn_out_of_step(err);
    for (size_t i = 0; i < count; i++) {
        enum shed_conn_match match = SHED_CONN_UNASKED;
        struct shed_conn_call call;
        if (is_in_step)
            match = shed_conn_match(&l->conn, now_ms, &replies[i], &call, err);
        if (match == SHED_CONN_ANSWER) {
            deliver_locked(l, &call, replies[i]);
        } else if (match == SHED_CONN_UNASKED) {
            shed_reply_free(replies[i]);
            (void)shed_conn_out_of_step(err);
            is_in_step = false;
        } else if (match == SHED_CONN_OUT_OF_STEP) {
            is_in_step = false;
        }
    }
    return is_in_step;
}

/* One round with mu released in between. */
static void lead_once_locked(struct link *l, struct request *me)
{
    struct shed_reply *replies[PARSE_BATCH];
    struct shed_error why;
    uint64_t until_ms = shed_conn_silent_at_ms(&l->conn);
    size_t count = 0;
    enum shed_wire_io io;

    if (me->deadline_ms < until_ms)
        until_ms = me->deadline_ms;
    (void)shed_conn_take(&l->conn);
    unlock_and_wake(l);
    io = exchange(l, until_ms, replies, &count, &why);
    for (size_t i = 0; i < count; i++)
        if (shed_reply_is_no_primary(replies[i]))
            shed_dialler_leave(&l->links->dialler, l->conn.term);
    pthread_mutex_lock(&l->mu);
    if (count > 0)
        shed_dialler_hear(&l->links->dialler);
    if (!deliver_all_locked(l, replies, count, &why) || io == SHED_WIRE_LOST)
        lose_locked(l, &why);
    else if (!lose_if_left_locked(l))
        close_if_silent_locked(l);
}

/* Out of its calls: the replies, if they still come, are nobody's. */
static void give_up_locked(struct link *l, struct request *r)
{
    for (size_t i = 0; i < l->conn.queue.count; i++) {
        struct shed_conn_call *call = shed_conn_call_at(&l->conn, i);
        if (call->owner != r)
            continue;
        call->owner = NULL;
        call->again = NULL;
    }
}

/* Let the oldest request that still waits lead; before it wakes, what is
 * queued is sent, so that Redis does not wait for it. */
static void hand_over_locked(struct link *l)
{
    struct shed_error why;

    for (size_t i = 0; i < l->conn.queue.count; i++) {
        struct request *next = shed_conn_call_at(&l->conn, i)->owner;
        if (next == NULL)
            continue;
        if (l->conn.state == SHED_CONN_OPEN && shed_conn_take(&l->conn) &&
            shed_wire_flush(&l->conn.wire, &why) == SHED_WIRE_LOST)
            lose_locked(l, &why);
        else {
            settle_locked(l, next, OUTCOME_LEADER);
            l->is_led = true;
        }
        return;
    }
    if (l->conn.queue.count > 0) {
        (void)shed_fail(&why, SHED_EREDIS, "Redis: given up");
        lose_locked(l, &why);
    }
}

/* Lead the link until me has its outcome or its deadline has passed. */
static void lead_locked(struct link *l, struct request *me)
{
    me->has_latch = false; /* whoever leads is not waiting at its latch */
    me->outcome = OUTCOME_NONE;
    while (me->outcome == OUTCOME_NONE) {
        if (l->conn.state == SHED_CONN_CLOSED)
            connect_locked(l, me->deadline_ms);
        else if (!lose_if_left_locked(l))
            lead_once_locked(l, me);
        if (me->outcome == OUTCOME_NONE && shed_now_ms() >= me->deadline_ms)
            break;
    }
    if (me->outcome == OUTCOME_NONE)
        give_up_locked(l, me);
    l->is_led = false;
    hand_over_locked(l);
}

/* Wait at the latch until the outcome is known or it is ours to lead; at the
 * deadline, give up. */
static void follow(struct link *l, struct request *me)
{
    bool is_settled;

    if (!shed_latch_wait(&me->latch, me->deadline_ms)) {
        pthread_mutex_lock(&l->mu);
        is_settled = me->outcome != OUTCOME_NONE;
        if (!is_settled)
            give_up_locked(l, me);
        pthread_mutex_unlock(&l->mu);
        if (!is_settled)
            return;
        (void)shed_latch_wait(&me->latch, UINT64_MAX); /* opens in a moment */
    }
    if (me->outcome != OUTCOME_LEADER)
        return;
    pthread_mutex_lock(&l->mu);
    lead_locked(l, me);
    unlock_and_wake(l);
}

/* -------------------------------------------------------------- the calls */

static struct link *choose(struct shed_links *links)
{
    struct link *best = &links->link[0];
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < links->count; i++) {
        size_t users =
            atomic_load_explicit(&links->link[i].users, memory_order_relaxed);
        if (users < least) {
            best = &links->link[i];
            least = users;
        }
        if (users == 0)
            break;
    }
    return best;
}

static enum shed_code conclude(struct request *me, struct shed_error *err)
{
    if (me->outcome == OUTCOME_DONE)
        return SHED_OK;
    free_all(me->replies, me->expected);
    if (me->outcome == OUTCOME_LOST)
        return shed_fail(err, me->error.code, "%s", me->error.reason);
    return shed_fail(err, SHED_ETIMEDOUT,
                     "the deadline passed before Redis answered");
}

/* A connection that was left, or on which something came while nobody asked, is
 * closed before it is used. */
static void check_idle_locked(struct link *l, uint64_t now_ms)
{
    struct shed_error unused;

    if (l->conn.state == SHED_CONN_OPEN &&
        (shed_conn_is_left(&l->conn, &unused) ||
         (now_ms - l->last_used_ms >= IDLE_MS &&
          !shed_conn_is_quiet(&l->conn))))
        close_locked(l);
    l->last_used_ms = now_ms;
}

/* Begun with mu, ended without. */
static enum shed_code run_locked(struct link *l, struct request *me,
                                 const struct batch *b, struct shed_error *err)
{
    bool has_latch = l->is_led;
    uint64_t now_ms = shed_now_ms();
    enum shed_code code = SHED_OK;

    me->has_latch = has_latch;
    if (has_latch)
        code = shed_latch_init(&me->latch, 1, err);
    if (code != SHED_OK) {
        pthread_mutex_unlock(&l->mu);
        return code;
    }
    code = shed_conn_send(&l->conn, &b->bytes, b->calls, b->count, now_ms, err);
    if (code == SHED_OK && !has_latch) {
        l->is_led = true;
        check_idle_locked(l, now_ms);
        lead_locked(l, me);
    }
    unlock_and_wake(l);
    if (code == SHED_OK && has_latch)
        follow(l, me);
    if (has_latch)
        shed_latch_fini(&me->latch);
    return code == SHED_OK ? conclude(me, err) : code;
}

/* A connection on which a reply answered another call: what is under way on it
 * fails, whoever asked for it, and goes once more over a new one. */
static void drop_locked(struct link *l, const struct shed_link_use *use)
{
    struct shed_error why;

    (void)shed_conn_out_of_step(&why);
    if (l->connection == use->connection && l->is_led)
        l->is_out_of_step = true; /* the wire is the leader's */
    else if (l->connection == use->connection)
        lose_locked(l, &why);
}

void shed_links_doubt(struct shed_links *links, const struct shed_link_use *use)
{
    struct link *l = &links->link[use->link];
    uint64_t now_ms = shed_now_ms();

    pthread_mutex_lock(&l->mu);
    if (l->connection == use->connection && now_ms >= l->doubt_ms) {
        l->doubt_ms = now_ms + DOUBT_MS;
        drop_locked(l, use);
    }
    unlock_and_wake(l);
}

static enum shed_code call_once(struct shed_links *links, struct batch *b,
                                struct shed_reply **replies,
                                struct shed_link_use *use, uint64_t deadline_ms,
                                bool *was_connected, struct shed_error *err)
{
    struct link *l = choose(links);
    struct request me = {
        .replies = replies, .expected = b->count, .deadline_ms = deadline_ms};
    enum shed_code code;

    memset(replies, 0, b->count * sizeof(*replies));
    for (size_t i = 0; i < b->count; i++)
        b->calls[i].owner = &me;
    atomic_fetch_add_explicit(&l->users, 1, memory_order_relaxed);
    pthread_mutex_lock(&l->mu);
    *was_connected = l->is_led || l->conn.state == SHED_CONN_OPEN;
    code = run_locked(l, &me, b, err);
    atomic_fetch_sub_explicit(&l->users, 1, memory_order_relaxed);
    *use = (struct shed_link_use){(size_t)(l - links->link), me.connection};
    return code;
}

static enum shed_code add_call(struct shed_links *links, struct batch *b,
                               size_t i, struct shed_error *err)
{
    const struct shed_args *args = &b->commands[i];
    struct shed_conn_call *call = &b->calls[i];

    *call = (struct shed_conn_call){.index = i};
    if (args->script != NULL) {
        call->again = args;
        call->number = atomic_fetch_add_explicit(&links->last_number, 1,
                                                 memory_order_relaxed) +
                       1;
    }
    return shed_conn_format(&b->bytes, args, call->number, false, err);
}

static void fini_batch(struct batch *b)
{
    shed_buffer_fini(&b->bytes);
    if (b->calls != &b->single)
        free(b->calls);
}

static enum shed_code init_batch(struct shed_links *links, struct batch *b,
                                 const struct shed_args *commands, size_t count,
                                 struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    *b = (struct batch){.commands = commands, .count = count};
    b->calls = count == 1 ? &b->single : malloc(count * sizeof(*b->calls));
    if (b->calls == NULL)
        return shed_fail_nomem(err, "a Redis call");
    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = add_call(links, b, i, err);
    return code;
}

static bool any_is_no_primary(struct shed_reply *const *replies, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (shed_reply_is_no_primary(replies[i]))
            return true;
    return false;
}

/* With the connection that was tried first perhaps long dead, one more try on
 * a new one decides; and so it does after a replica has refused. */
static enum shed_code send_all(struct shed_links *links, struct batch *b,
                               struct shed_reply **replies,
                               struct shed_link_use *use, bool *is_repeated,
                               uint64_t deadline_ms, struct shed_error *err)
{
    bool was_lost = false, was_refused = false;

    for (;;) {
        bool was_connected = false;
        enum shed_code code =
            call_once(links, b, replies, use, deadline_ms, &was_connected, err);
        bool is_refused =
            code == SHED_OK && any_is_no_primary(replies, b->count);
        bool is_lost = code == SHED_EREDIS && was_connected;
        if ((!is_refused && !is_lost) || (is_refused && was_refused) ||
            (is_lost && was_lost) || shed_now_ms() >= deadline_ms)
            return code;
        if (is_refused)
            free_all(replies, b->count);
        /* what is refused was not done, unless it is one of many */
        *is_repeated |= is_lost || b->count > 1;
        was_lost |= is_lost;
        was_refused |= is_refused;
    }
}

static enum shed_code call(struct shed_links *links,
                           const struct shed_args *commands, size_t count,
                           struct shed_reply **replies,
                           struct shed_link_use *use, bool *is_repeated,
                           uint64_t deadline_ms, struct shed_error *err)
{
    struct batch b;
    enum shed_code code;

    *is_repeated = false;
    if (count == 0)
        return SHED_OK;
    code = init_batch(links, &b, commands, count, err);
    if (code == SHED_OK)
        code = send_all(links, &b, replies, use, is_repeated, deadline_ms, err);
    fini_batch(&b);
    return code;
}

enum shed_code shed_links_call(struct shed_links *links,
                               const struct shed_args *commands, size_t count,
                               struct shed_reply **replies,
                               struct shed_link_use *use, uint64_t deadline_ms,
                               struct shed_error *err)
{
    struct shed_link_use unused;
    bool is_repeated;

    return call(links, commands, count, replies, use != NULL ? use : &unused,
                &is_repeated, deadline_ms, err);
}

enum shed_code shed_links_call_script(struct shed_links *links,
                                      const struct shed_args *args,
                                      size_t count, struct shed_reply **replies,
                                      bool *is_repeated, uint64_t deadline_ms,
                                      struct shed_error *err)
{
    struct shed_link_use unused;

    return call(links, args, count, replies, &unused, is_repeated, deadline_ms,
                err);
}

enum shed_code shed_links_create(struct shed_address *address,
                                 const struct shed_client_options *options,
                                 struct shed_links **out,
                                 struct shed_error *err)
{
    struct shed_links *links = calloc(1, sizeof(*links));
    size_t count = (size_t)options->links;

    *out = NULL;
    if (links == NULL ||
        shed_dialler_init(&links->dialler, address, options, err) != SHED_OK) {
        free(links);
        return shed_fail_nomem(err, "the Redis links");
    }
    links->link = calloc(count, sizeof(*links->link));
    for (; links->link != NULL && links->count < count; links->count++) {
        struct link *l = &links->link[links->count];
        l->links = links;
        shed_conn_init(&l->conn, address, options);
        if (pthread_mutex_init(&l->mu, NULL) != 0)
            break;
    }
    if (links->count < count) {
        shed_links_destroy(links);
        return shed_fail_nomem(err, "the Redis links");
    }
    *out = links;
    return SHED_OK;
}

void shed_links_go_on(struct shed_links *links)
{
    shed_dialler_go_on(&links->dialler);
}

void shed_links_destroy(struct shed_links *links)
{
    if (links == NULL)
        return;
    for (size_t i = 0; links->link != NULL && i < links->count; i++) {
        struct link *l = &links->link[i];
        shed_conn_fini(&l->conn);
        pthread_mutex_destroy(&l->mu);
    }
    free(links->link);
    shed_dialler_fini(&links->dialler);
    free(links);
}
