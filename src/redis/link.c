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
#include "redis/gate.h"
#include "redis/shared.h"

/* On how many links the callers are gathered. They stay open. */
#define GATHER_LINKS ((size_t)2)

/* Any other link that nobody has used for this long is closed. */
#define IDLE_MS 10000

struct link {
    struct shed_shared shared;
    atomic_size_t users; /* calls that go by it */
};

/* The commands of a call. */
struct batch {
    const struct shed_args *commands;
    struct shed_batch formatted;
    struct shed_conn_call single; /* where they are one */
    /* of all tries */
    bool was_tried;
    uint64_t began_ms, ended_ms;
};

struct shed_links {
    /* set at creation */
    struct shed_gate *gate;
    size_t count;
    struct link *link;
    /* atomic */
    atomic_uint_fast64_t last_number; /* of the commands */
    atomic_size_t users;              /* calls under way */
};

/* ------------------------------------------------------ choosing a link */

/* One that nobody uses, NULL when there is none. */
static struct link *claim_idle(struct shed_links *links)
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
static struct link *gather(struct shed_links *links)
{
    size_t count = links->count < GATHER_LINKS ? links->count : GATHER_LINKS;
    struct link *best = &links->link[0];
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

static struct link *enter(struct shed_links *links)
{
    size_t before =
        atomic_fetch_add_explicit(&links->users, 1, memory_order_relaxed);
    struct link *l = before < links->count ? claim_idle(links) : NULL;

    return l != NULL ? l : gather(links);
}

static void leave(struct shed_links *links, struct link *l)
{
    atomic_fetch_sub_explicit(&l->users, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&links->users, 1, memory_order_relaxed);
}

/* -------------------------------------------------------------- the calls */

static enum shed_code call_once(struct shed_links *links, struct batch *b,
                                struct shed_reply **replies,
                                struct shed_link_use *use, uint64_t deadline_ms,
                                bool *was_connected, bool *may_be_done,
                                struct shed_error *err)
{
    struct shed_shared_use by;
    enum shed_code code;
    struct link *l;

    *was_connected = *may_be_done = false;
    if (shed_gate_is_silent(links->gate))
        return shed_gate_fail_silent(links->gate, err);
    l = enter(links);
    code = shed_shared_call(&l->shared, &b->formatted, replies, deadline_ms,
                            &by, err);
    leave(links, l);
    *was_connected = by.was_connected;
    *may_be_done = by.may_be_done;
    b->was_tried |= by.was_tried;
    if (b->began_ms == 0)
        b->began_ms = by.began_ms;
    b->ended_ms = by.ended_ms;
    *use =
        (struct shed_link_use){links, (size_t)(l - links->link), by.connection};
    return code;
}

static enum shed_code add_call(struct shed_links *links, struct batch *b,
                               size_t i, struct shed_error *err)
{
    const struct shed_args *args = &b->commands[i];
    struct shed_conn_call *call = &b->formatted.calls[i];

    *call = (struct shed_conn_call){.index = i};
    if (args->script != NULL) {
        call->again = args;
        call->number = atomic_fetch_add_explicit(&links->last_number, 1,
                                                 memory_order_relaxed) +
                       1;
    }
    return shed_conn_format(&b->formatted.bytes, args, call->number, false,
                            err);
}

static void fini_batch(struct batch *b)
{
    shed_buffer_fini(&b->formatted.bytes);
    if (b->formatted.calls != &b->single)
        free(b->formatted.calls);
}

static enum shed_code init_batch(struct shed_links *links, struct batch *b,
                                 const struct shed_args *commands, size_t count,
                                 struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    *b = (struct batch){.commands = commands, .formatted = {.count = count}};
    b->formatted.calls =
        count == 1 ? &b->single : malloc(count * sizeof(struct shed_conn_call));
    if (b->formatted.calls == NULL)
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
                               struct shed_link_use *use, unsigned *sent,
                               uint64_t deadline_ms, struct shed_error *err)
{
    bool was_lost = false, was_refused = false;

    for (;;) {
        bool was_connected, may_be_done;
        enum shed_code code = call_once(links, b, replies, use, deadline_ms,
                                        &was_connected, &may_be_done, err);
        bool is_refused =
            code == SHED_OK && any_is_no_primary(replies, b->formatted.count);
        bool is_lost = code == SHED_EREDIS && was_connected;
        /* what is refused was not done, unless it is one of many */
        *sent += may_be_done && (!is_refused || b->formatted.count > 1);
        if ((!is_refused && !is_lost) || (is_refused && was_refused) ||
            (is_lost && was_lost) || shed_now_ms() >= deadline_ms)
            return code;
        if (is_refused)
            shed_reply_free_all(replies, b->formatted.count);
        was_lost |= is_lost;
        was_refused |= is_refused;
    }
}

/* Tell the gate how a call has ended. */
static void leave_gate(struct shed_gate *gate,
                       const struct shed_health_pass *pass,
                       const struct batch *b, struct shed_reply *const *replies,
                       enum shed_code code, const struct shed_error *why)
{
    struct shed_health_end end = {.was_tried = b->was_tried,
                                  .began_ms = b->began_ms,
                                  .ended_ms = b->ended_ms,
                                  .why = code == SHED_OK ? NULL : why};

    for (size_t i = 0; code == SHED_OK && i < b->formatted.count; i++)
        if (shed_reply_is_unfit(replies[i]))
            end.refusal = replies[i];
    shed_gate_leave(gate, pass, &end);
}

enum shed_code shed_links_call(struct shed_links *links,
                               const struct shed_args *commands, size_t count,
                               struct shed_reply **replies,
                               struct shed_link_use *use, unsigned *sent,
                               uint64_t deadline_ms, struct shed_error *err)
{
    struct shed_error why; /* of a try: err is untouched if the next succeeds */
    struct shed_health_pass pass;
    struct shed_link_use unused;
    struct batch b;
    unsigned times = 0;
    bool is_guarded;
    enum shed_code code;

    if (sent != NULL)
        *sent = 0;
    if (count == 0)
        return SHED_OK;
    is_guarded = commands->is_guarded;
    if (is_guarded && !shed_gate_enter(links->gate, &pass, err))
        return SHED_EREDIS;
    code = init_batch(links, &b, commands, count, &why);
    if (code == SHED_OK)
        code = send_all(links, &b, replies, use != NULL ? use : &unused, &times,
                        deadline_ms, &why);
    if (is_guarded)
        leave_gate(links->gate, &pass, &b, replies, code, &why);
    fini_batch(&b);
    if (sent != NULL)
        *sent = times;
    if (code != SHED_OK && err != NULL)
        *err = why;
    return code;
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

size_t shed_links_count(const struct shed_links *links)
{
    return links->count;
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
