/*
 * The connections of calling threads. Its invariants: a link is one thread's
 * until its call has ended, so a reply meets the call that it answers; a
 * connection whose replies did not all come is closed; commands are sent twice
 * at most after a lost connection, and twice at most after a replica's refusal.
 *
 * A thread sends, waits and receives itself: that costs no wake-up. The link
 * that was used last is taken first, so that the others fall idle and are
 * closed. Where all are in use, a thread waits for one in a queue, and gets it
 * from the hands of the thread that is done: so none waits for ever behind
 * threads that call again and again.
 */
#include "redis/link.h"

#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/list.h"
#include "base/mutex.h"
#include "redis/dial.h"

/* The first few links stay open. Any other that nobody has used for this long
 * is closed. */
#define KEPT_LINKS ((size_t)2)
#define CLOSE_AFTER_MS 10000

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

struct shed_link {
    struct shed_link *next; /* in the stack of idle ones: under the links' mu */
    /* of the thread that has the link; of an idle one, under the links' mu */
    struct shed_conn conn;
    uint64_t last_used_ms;

    struct shed_mutex mu;
    /* under mu, where its thread changes them */
    bool is_open;        /* the socket is; closed under mu */
    uint64_t connection; /* counted: which it is */
    /* under mu */
    uint64_t doubt_ms;   /* shed_now_ms; not to be doubted before */
    atomic_bool is_over; /* out of step: to be closed */
};

/* A thread that waits for a link. */
struct waiter {
    struct shed_node node;
    struct shed_latch latch; /* opened when it has one */
    struct shed_link *link;
};

/* A call under way. */
struct call {
    const struct shed_args *commands;
    size_t count, received;
    struct shed_reply **replies;
    uint64_t deadline_ms; /* shed_now_ms */
    struct shed_link *link;
    enum shed_code code;
    struct shed_error *why;
    unsigned sent; /* by all tries */
    /* of all tries */
    bool was_tried; /* one that failed was tried to the end: see shed_dial */
    uint64_t began_ms, ended_ms; /* shed_now_ms, of the wait for replies */
    /* of one try */
    bool was_connected; /* it was there already, and may have been dead */
    bool was_unsent;    /* of a failure: there was no connection */
};

struct shed_links {
    /* set at creation */
    struct shed_gate *gate;
    size_t count;
    struct shed_link *link;

    struct shed_mutex mu;
    /* under mu */
    struct shed_link *idle;
    struct shed_list waiters; /* none while there is an idle link */
};

/* --------------------------------------------------------- having a link */

/* Returns: NULL: all are in use. */
static struct shed_link *pop_idle_locked(struct shed_links *links)
{
    struct shed_link *l = links->idle;

    if (l != NULL)
        links->idle = l->next;
    return l;
}

/* Returns: NULL at the deadline. */
static struct shed_link *claim(struct shed_links *links, uint64_t deadline_ms)
{
    struct waiter me = {.latch = SHED_LATCH_INIT(1)};
    struct shed_link *l;

    shed_mutex_lock(&links->mu);
    l = pop_idle_locked(links);
    if (l == NULL)
        shed_list_append(&links->waiters, &me.node);
    shed_mutex_unlock(&links->mu);
    if (l != NULL)
        return l;
    if (shed_latch_wait(&me.latch, deadline_ms))
        return me.link;
    shed_mutex_lock(&links->mu);
    l = me.link;
    if (l == NULL)
        shed_list_remove(&links->waiters, &me.node);
    shed_mutex_unlock(&links->mu);
    if (l != NULL) /* the latch opens in a moment */
        (void)shed_latch_wait(&me.latch, UINT64_MAX);
    return l;
}

static void give_back(struct shed_links *links, struct shed_link *l)
{
    struct shed_node *node;
    struct waiter *next = NULL;

    shed_mutex_lock(&links->mu);
    node = shed_list_pop(&links->waiters);
    if (node != NULL) {
        next = shed_container_of(node, struct waiter, node);
        next->link = l;
    } else {
        l->next = links->idle;
        links->idle = l;
    }
    shed_mutex_unlock(&links->mu);
    if (next != NULL)
        shed_latch_count_down(&next->latch, 1);
}

/* --------------------------------------------------------- its connection */

static void close_conn(struct shed_link *l)
{
    struct shed_conn_call call;

    shed_mutex_lock(&l->mu);
    shed_conn_close(&l->conn);
    l->is_open = false;
    l->connection++;
    shed_mutex_unlock(&l->mu);
    while (shed_conn_pop(&l->conn.queue, &call))
        ;
}

static void note_open(struct shed_link *l)
{
    shed_mutex_lock(&l->mu);
    l->is_open = true;
    atomic_store(&l->is_over, false);
    shed_mutex_unlock(&l->mu);
}

/* Whether a connection may be used. One that was left, or on which something
 * came that nobody asked for, may not. */
static bool is_fit(const struct shed_links *links, struct shed_link *l,
                   uint64_t now_ms)
{
    struct shed_error unused;

    return l->conn.state == SHED_CONN_OPEN &&
           !atomic_load_explicit(&l->is_over, memory_order_relaxed) &&
           !shed_conn_is_left(&l->conn, shed_gate_term(links->gate), &unused) &&
           (now_ms - l->last_used_ms < IDLE_MS ||
            shed_wire_is_quiet(&l->conn.wire));
}

static enum shed_code connect_link(struct shed_links *links, struct call *c,
                                   uint64_t now_ms)
{
    struct shed_link *l = c->link;
    bool was_tried;
    enum shed_code code;

    if (l->is_open && !is_fit(links, l, now_ms))
        close_conn(l);
    c->was_connected = l->is_open;
    if (l->is_open)
        return SHED_OK;
    code = shed_dial(links->gate, &l->conn, c->deadline_ms, &was_tried, c->why);
    if (code == SHED_OK)
        note_open(l);
    else
        c->was_tried |= was_tried;
    return code;
}

/* ------------------------------------------------------------------ a try */

static enum shed_code queue_commands(struct call *c, uint64_t now_ms)
{
    struct shed_link *l = c->link;
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < c->count && code == SHED_OK; i++) {
        const struct shed_args *args = &c->commands[i];
        const struct shed_conn_call call = {
            .index = i, .again = args->script != NULL ? args : NULL};
        code = shed_conn_send_args(&l->conn, args, &call, now_ms, c->why);
    }
    if (code != SHED_OK)
        close_conn(l);
    return code;
}

/* Connect, and send as much as the socket takes. */
static enum shed_code begin_try(struct shed_links *links, struct call *c)
{
    uint64_t now_ms = shed_now_ms();
    enum shed_code code;

    c->was_unsent = true;
    c->was_connected = false;
    c->received = 0;
    if (c->began_ms == 0)
        c->began_ms = now_ms;
    if (shed_gate_is_silent(links->gate))
        return shed_gate_fail_silent(links->gate, c->why);
    code = connect_link(links, c, now_ms);
    if (!c->was_connected) /* which may have taken long */
        now_ms = shed_now_ms();
    if (code == SHED_OK)
        code = queue_commands(c, now_ms);
    c->link->last_used_ms = now_ms;
    if (code != SHED_OK)
        return code;
    c->was_unsent = false;
    shed_conn_ready(&c->link->conn, POLLOUT, now_ms);
    return SHED_OK;
}

/* The connection has FAILED. */
static enum shed_code lose(struct shed_links *links, struct call *c)
{
    const struct shed_conn_failure *f = &c->link->conn.failure;

    if (f->is_silent)
        shed_gate_tell(links->gate, SHED_HEALTH_MISSED, NULL, f->since_ms,
                       &f->error);
    c->was_tried = true;
    *c->why = f->error;
    close_conn(c->link);
    return c->why->code;
}

/* Send what is unsent, and read once, waiting no longer than until_ms. */
static void exchange(struct shed_conn *conn, uint64_t until_ms)
{
    short events = shed_conn_want(conn);
    bool is_patient = shed_left_ms(until_ms, shed_now_ms()) + SLACK_MS >=
                      conn->command_timeout_ms;
    struct shed_error why;
    int ready;

    if (events == POLLIN && is_patient) { /* saves poll */
        if (shed_wire_fill(&conn->wire, true, &why) == SHED_WIRE_LOST)
            shed_conn_fail(conn, SHED_TROUBLE_PASSING, &why);
        return;
    }
    ready = shed_wire_wait(&conn->wire, events, until_ms);
    if (ready != 0)
        shed_conn_ready(conn, ready, shed_now_ms());
}

static void take_replies(struct shed_links *links, struct call *c)
{
    struct shed_conn *conn = &c->link->conn;
    uint64_t now_ms = shed_now_ms();
    struct shed_reply *reply = NULL;
    struct shed_conn_call call;
    enum shed_conn_event event;

    while ((event = shed_conn_next(conn, now_ms, &reply, &call)) !=
           SHED_CONN_NOTHING) {
        shed_gate_hear(links->gate, now_ms);
        if (shed_reply_is_no_primary(reply))
            shed_gate_tell(links->gate, SHED_HEALTH_NO_PRIMARY,
                           &(const struct shed_health_try){.term = conn->term},
                           0, NULL);
        if (event != SHED_CONN_REPLY || atomic_load(&c->link->is_over)) {
            shed_reply_free(reply);
            shed_conn_fail_out_of_step(conn);
            return;
        }
        c->replies[call.index] = reply;
        c->received++;
    }
}

/* Returns: SHED_OK: all replies are there. */
static enum shed_code receive(struct shed_links *links, struct call *c)
{
    struct shed_conn *conn = &c->link->conn;
    struct shed_error why;

    while (conn->state != SHED_CONN_FAILED && c->received < c->count) {
        uint64_t until_ms = shed_conn_silent_at_ms(conn);
        if (shed_now_ms() >= c->deadline_ms) {
            close_conn(c->link);
            return shed_fail(c->why, SHED_ETIMEDOUT,
                             "the deadline passed while the call waited for "
                             "Redis to answer");
        }
        exchange(conn, c->deadline_ms < until_ms ? c->deadline_ms : until_ms);
        take_replies(links, c);
        if (c->received == c->count || conn->state == SHED_CONN_FAILED)
            break;
        if (shed_conn_is_left(conn, shed_gate_term(links->gate), &why))
            shed_conn_fail(conn, SHED_TROUBLE_PASSING, &why);
        else
            shed_conn_tick(conn, shed_now_ms());
    }
    return c->received == c->count ? SHED_OK : lose(links, c);
}

static enum shed_code see_try_through(struct shed_links *links, struct call *c)
{
    enum shed_code code = begin_try(links, c);

    if (code == SHED_OK)
        code = receive(links, c);
    c->ended_ms = shed_now_ms();
    if (code != SHED_OK)
        shed_reply_free_all(c->replies, c->count);
    return code;
}

/* -------------------------------------------------------------- the calls */

static bool any_is_no_primary(struct shed_reply *const *replies, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (shed_reply_is_no_primary(replies[i]))
            return true;
    return false;
}

/* With the connection that was tried first perhaps long dead, one more try on
 * a new one decides; and so it does after a replica has refused. */
static enum shed_code see_through(struct shed_links *links, struct call *c)
{
    bool was_lost = false, was_refused = false;

    for (;;) {
        enum shed_code code = see_try_through(links, c);
        bool is_refused =
            code == SHED_OK && any_is_no_primary(c->replies, c->count);
        bool is_lost = code == SHED_EREDIS && c->was_connected;
        /* what is refused was not done, unless it is one of many */
        c->sent += !c->was_unsent && (!is_refused || c->count > 1);
        if ((!is_refused && !is_lost) || (is_refused && was_refused) ||
            (is_lost && was_lost) || shed_now_ms() >= c->deadline_ms)
            return code;
        if (is_refused)
            shed_reply_free_all(c->replies, c->count);
        was_lost |= is_lost;
        was_refused |= is_refused;
    }
}

/* Tell the gate how a call has ended. */
static void leave_gate(struct shed_gate *gate,
                       const struct shed_health_pass *pass,
                       const struct call *c)
{
    struct shed_health_end end = {.was_tried = c->was_tried,
                                  .began_ms = c->began_ms,
                                  .ended_ms = c->ended_ms,
                                  .why = c->code == SHED_OK ? NULL : c->why};

    for (size_t i = 0; c->code == SHED_OK && i < c->count; i++)
        if (shed_reply_is_unfit(c->replies[i]))
            end.refusal = c->replies[i];
    shed_gate_leave(gate, pass, &end);
}

enum shed_code shed_links_call(struct shed_links *links,
                               const struct shed_args *commands, size_t count,
                               struct shed_reply **replies,
                               struct shed_link_use *use, unsigned *sent,
                               uint64_t deadline_ms, struct shed_error *err)
{
    struct shed_error why;
    struct call c = {.commands = commands,
                     .count = count,
                     .replies = replies,
                     .deadline_ms = deadline_ms,
                     .why = &why};
    struct shed_health_pass pass;

    if (sent != NULL)
        *sent = 0;
    memset(replies, 0, count * sizeof(struct shed_reply *));
    if (commands->is_guarded && !shed_gate_enter(links->gate, &pass, err))
        return SHED_EREDIS;
    c.link = claim(links, deadline_ms);
    if (c.link != NULL) {
        c.code = see_through(links, &c);
        if (use != NULL)
            *use = (struct shed_link_use){links, (size_t)(c.link - links->link),
                                          c.link->connection};
        give_back(links, c.link);
    } else {
        c.code = shed_fail(&why, SHED_ETIMEDOUT,
                           "the deadline passed while the call waited for a "
                           "connection (see the client's links)");
    }
    if (commands->is_guarded)
        leave_gate(links->gate, &pass, &c);
    if (c.code != SHED_OK && err != NULL)
        *err = why;
    if (sent != NULL)
        *sent = c.sent;
    return c.code;
}

/* -------------------------------------------------------- from outside */

/* The thread that has the link meets the end of the connection; the next one
 * looks first. */
void shed_links_cut(struct shed_links *links)
{
    for (size_t i = 0; i < links->count; i++) {
        struct shed_link *l = &links->link[i];
        shed_mutex_lock(&l->mu);
        if (l->is_open)
            shed_wire_shut(&l->conn.wire);
        shed_mutex_unlock(&l->mu);
    }
}

void shed_links_doubt(struct shed_links *links, const struct shed_link_use *use)
{
    struct shed_link *l = &links->link[use->link];
    uint64_t now_ms = shed_now_ms();

    assert(use->link < links->count);
    shed_mutex_lock(&l->mu);
    if (l->is_open && l->connection == use->connection &&
        now_ms >= l->doubt_ms) {
        l->doubt_ms = now_ms + DOUBT_MS;
        atomic_store(&l->is_over, true);
        shed_wire_shut(&l->conn.wire);
    }
    shed_mutex_unlock(&l->mu);
}

void shed_links_close_idle(struct shed_links *links)
{
    uint64_t now_ms = shed_now_ms();

    shed_mutex_lock(&links->mu);
    for (struct shed_link *l = links->idle; l != NULL; l = l->next)
        if (l >= links->link + KEPT_LINKS && l->is_open &&
            now_ms - l->last_used_ms >= CLOSE_AFTER_MS)
            close_conn(l);
    shed_mutex_unlock(&links->mu);
}

/* --------------------------------------------------------- begin and end */

enum shed_code shed_links_create(struct shed_gate *gate,
                                 const struct shed_client_options *options,
                                 struct shed_links **out,
                                 struct shed_error *err)
{
    struct shed_links *links = calloc(1, sizeof(*links));
    size_t count = (size_t)options->links;

    *out = NULL;
    if (links == NULL || shed_mutex_init(&links->mu, SHED_RANK_LINKS) != 0) {
        free(links);
        return shed_fail_nomem(err, "the Redis links");
    }
    links->gate = gate;
    links->link = calloc(count, sizeof(*links->link));
    while (links->link != NULL && links->count < count &&
           shed_mutex_init(&links->link[links->count].mu, SHED_RANK_LINK) == 0)
        shed_conn_init(&links->link[links->count++].conn,
                       shed_gate_address(gate), options);
    if (links->link == NULL || links->count < count) {
        shed_links_destroy(links);
        return shed_fail_nomem(err, "the Redis links");
    }
    for (size_t i = count; i-- > 0;) { /* the first on top */
        links->link[i].next = links->idle;
        links->idle = &links->link[i];
    }
    *out = links;
    return SHED_OK;
}

void shed_links_destroy(struct shed_links *links)
{
    if (links == NULL)
        return;
    for (size_t i = 0; links->link != NULL && i < links->count; i++) {
        shed_conn_fini(&links->link[i].conn);
        shed_mutex_destroy(&links->link[i].mu);
    }
    shed_mutex_destroy(&links->mu);
    free(links->link);
    free(links);
}

void shed_links_forget(struct shed_links *links)
{
    for (size_t i = 0; links != NULL && i < links->count; i++)
        shed_wire_forget(&links->link[i].conn.wire);
}
