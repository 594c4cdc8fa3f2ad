/*
 * The connections that threads share, and which of them a call goes by. Its
 * invariant: a batch is sent twice at most after a lost connection, and twice
 * at most after a replica's refusal.
 *
 * Where there are no more callers than links may be open, each caller gets a
 * link that nobody else uses: two that share one pay for a wake-up. The lowest
 * idle one, so that the others fall idle and are closed. Where callers are
 * more, they are gathered on a few links: then one thread's system calls serve
 * many, which costs less per call than a connection each does.
 */
#include "redis/link.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "wire/address.h"
#include "redis/gate.h"
#include "redis/shared.h"

/* On how many links the callers are gathered. They stay open. */
#define GATHER_LINKS ((size_t)2)

/* Any other link that nobody has used for this long is closed. */
#define IDLE_MS 10000

struct shed_link {
    struct shed_shared shared;
    atomic_size_t users; /* calls that go by it */
};

struct shed_links {
    /* set at creation */
    struct shed_gate *gate;
    size_t count;
    struct shed_link *link;
    /* atomic */
    atomic_uint_fast64_t last_number; /* of the commands */
    atomic_size_t users;              /* calls under way */
};

/* ------------------------------------------------------ choosing a link */

/* One that nobody uses, NULL when there is none. */
static struct shed_link *claim_idle(struct shed_links *links)
{
    for (size_t i = 0; i < links->count; i++) {
        atomic_size_t *users = &links->link[i].users;
        size_t none = 0;
        if (atomic_load_explicit(users, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(
                users, &none, 1, memory_order_relaxed, memory_order_relaxed))
            return &links->link[i];
    }
    return NULL;
}

/* One of the first few, with the fewest users. */
static struct shed_link *gather(struct shed_links *links)
{
    size_t count = links->count < GATHER_LINKS ? links->count : GATHER_LINKS;
    struct shed_link *best = &links->link[0];
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        size_t users =
            atomic_load_explicit(&links->link[i].users, memory_order_relaxed);
        if (users < least) {
            best = &links->link[i];
            least = users;
        }
    }
    atomic_fetch_add_explicit(&best->users, 1, memory_order_relaxed);
    return best;
}

static struct shed_link *enter(struct shed_links *links)
{
    size_t before =
        atomic_fetch_add_explicit(&links->users, 1, memory_order_relaxed);
    struct shed_link *l = before < links->count ? claim_idle(links) : NULL;

    return l != NULL ? l : gather(links);
}

static void leave(struct shed_links *links, struct shed_link *l)
{
    atomic_fetch_sub_explicit(&l->users, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&links->users, 1, memory_order_relaxed);
}

/* -------------------------------------------------------------- the calls */

static enum shed_code add_call(struct shed_links *links,
                               struct shed_links_call *c, size_t i)
{
    const struct shed_args *args = &c->commands[i];
    struct shed_conn_call *call = &c->request.calls[i];

    *call = (struct shed_conn_call){.index = i};
    if (args->script != NULL) {
        call->again = args;
        call->number = atomic_fetch_add_explicit(&links->last_number, 1,
                                                 memory_order_relaxed) +
                       1;
    }
    return shed_buffer_append(&c->request.bytes, args, call->number, &c->why);
}

static void fini_call(struct shed_links_call *c)
{
    shed_buffer_fini(&c->request.bytes);
    if (c->request.calls != &c->single)
        free(c->request.calls);
}

static enum shed_code format(struct shed_links *links,
                             struct shed_links_call *c)
{
    size_t count = c->request.count;
    enum shed_code code = SHED_OK;

    c->request.calls =
        count == 1 ? &c->single : malloc(count * sizeof(struct shed_conn_call));
    if (c->request.calls == NULL)
        return shed_fail_nomem(&c->why, "a Redis call");
    for (size_t i = 0; i < count && code == SHED_OK; i++)
        code = add_call(links, c, i);
    return code;
}

/* Begin a try. Returns: false: the server is silent. */
static bool begin_try(struct shed_links *links, struct shed_links_call *c)
{
    if (shed_gate_is_silent(links->gate))
        return false;
    c->link = enter(links);
    shed_shared_begin(&c->link->shared, &c->request);
    return true;
}

/* See a try through: the one that has begun, if there is one. Note how it has
 * gone, and give its link back. */
static enum shed_code end_try(struct shed_links *links,
                              struct shed_links_call *c,
                              struct shed_link_use *use)
{
    enum shed_code code;

    if (c->link == NULL && !begin_try(links, c)) {
        c->request.was_connected = false;
        c->request.was_unsent = true;
        return shed_gate_fail_silent(links->gate, &c->why);
    }
    code = shed_shared_end(&c->link->shared, &c->request, &c->why);
    if (use != NULL)
        *use = (struct shed_link_use){links, (size_t)(c->link - links->link),
                                      c->request.connection};
    leave(links, c->link);
    c->link = NULL;
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
static enum shed_code see_through(struct shed_links *links,
                                  struct shed_links_call *c,
                                  struct shed_link_use *use)
{
    bool was_lost = false, was_refused = false;

    for (;;) {
        size_t count = c->request.count;
        enum shed_code code = end_try(links, c, use);
        bool is_refused =
            code == SHED_OK && any_is_no_primary(c->request.replies, count);
        bool is_lost = code == SHED_EREDIS && c->request.was_connected;
        /* what is refused was not done, unless it is one of many */
        c->sent += !c->request.was_unsent && (!is_refused || count > 1);
        if ((!is_refused && !is_lost) || (is_refused && was_refused) ||
            (is_lost && was_lost) || shed_now_ms() >= c->request.deadline_ms)
            return code;
        if (is_refused)
            shed_reply_free_all(c->request.replies, count);
        was_lost |= is_lost;
        was_refused |= is_refused;
    }
}

/* Tell the gate how a call has ended. */
static void leave_gate(struct shed_gate *gate, const struct shed_links_call *c)
{
    struct shed_health_end end = {.was_tried = c->request.was_tried,
                                  .began_ms = c->request.began_ms,
                                  .ended_ms = c->request.ended_ms,
                                  .why = c->code == SHED_OK ? NULL : &c->why};

    if (!c->is_guarded)
        return;
    for (size_t i = 0; c->code == SHED_OK && i < c->request.count; i++)
        if (shed_reply_is_unfit(c->request.replies[i]))
            end.refusal = c->request.replies[i];
    shed_gate_leave(gate, &c->pass, &end);
}

/* Enter the gate, format, and begin the first try. If that fails, code says
 * so. */
static void begin(struct shed_links *links, struct shed_links_call *c,
                  const struct shed_args *commands, size_t count,
                  struct shed_reply **replies, uint64_t deadline_ms,
                  bool is_away)
{
    c->commands = commands;
    c->request.bytes = (struct shed_buffer){0};
    c->request.calls = NULL;
    c->request.replies = replies;
    c->request.deadline_ms = deadline_ms;
    c->request.count = count;
    c->request.is_away = is_away;
    c->link = NULL;
    c->request.was_tried = false;
    c->request.began_ms = c->request.ended_ms = 0;
    c->sent = 0;
    c->is_guarded = commands->is_guarded;
    c->code = SHED_OK;
    if (c->is_guarded && !shed_gate_enter(links->gate, &c->pass, &c->why)) {
        c->is_guarded = false; /* it is not to leave it */
        c->code = SHED_EREDIS;
    }
    if (c->code == SHED_OK)
        c->code = format(links, c);
    if (c->code == SHED_OK)
        (void)begin_try(links, c); /* silent: the end finds out */
}

void shed_links_begin(struct shed_links *links, struct shed_links_call *c,
                      const struct shed_args *commands, size_t count,
                      struct shed_reply **replies, uint64_t deadline_ms)
{
    assert(count > 0);
    begin(links, c, commands, count, replies, deadline_ms, true);
}

enum shed_code shed_links_end(struct shed_links *links,
                              struct shed_links_call *c,
                              struct shed_link_use *use, unsigned *sent,
                              struct shed_error *err)
{
    if (c->code == SHED_OK)
        c->code = see_through(links, c, use);
    leave_gate(links->gate, c);
    fini_call(c);
    if (c->code != SHED_OK && err != NULL)
        *err = c->why;
    if (sent != NULL)
        *sent = c->sent;
    return c->code;
}

enum shed_code shed_links_call(struct shed_links *links,
                               const struct shed_args *commands, size_t count,
                               struct shed_reply **replies,
                               struct shed_link_use *use, unsigned *sent,
                               uint64_t deadline_ms, struct shed_error *err)
{
    struct shed_links_call call;

    if (sent != NULL)
        *sent = 0;
    if (count == 0)
        return SHED_OK;
    begin(links, &call, commands, count, replies, deadline_ms, false);
    return shed_links_end(links, &call, use, sent, err);
}

void shed_links_doubt(struct shed_links *links, const struct shed_link_use *use)
{
    assert(use->link < links->count);
    shed_shared_doubt(&links->link[use->link].shared, use->connection);
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
    if (links == NULL)
        return shed_fail_nomem(err, "the Redis links");
    links->gate = gate;
    links->link = calloc(count, sizeof(*links->link));
    while (links->link != NULL && links->count < count &&
           shed_shared_init(&links->link[links->count].shared, gate, options,
                            err) == SHED_OK)
        links->count++;
    if (links->count < count) {
        shed_links_destroy(links);
        return shed_fail_nomem(err, "the Redis links");
    }
    *out = links;
    return SHED_OK;
}

void shed_links_cut(struct shed_links *links)
{
    for (size_t i = 0; i < links->count; i++)
        shed_shared_cut(&links->link[i].shared);
}

void shed_links_close_idle(struct shed_links *links)
{
    for (size_t i = GATHER_LINKS; i < links->count; i++)
        shed_shared_close_idle(&links->link[i].shared, IDLE_MS);
}

void shed_links_destroy(struct shed_links *links)
{
    if (links == NULL)
        return;
    for (size_t i = 0; links->link != NULL && i < links->count; i++)
        shed_shared_fini(&links->link[i].shared);
    free(links->link);
    free(links);
}
