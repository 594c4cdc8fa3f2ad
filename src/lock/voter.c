/* One server's account. Its invariant: what a try or a hold may have left there
 * is a leftover from the moment that nobody wants it until an answer says that
 * it is gone. */
#include "lock/voter.h"

#include <assert.h>
#include <string.h>

#include "base/backoff.h"

/* How long after a failed removal to try again. A new session shortens the
 * pause, because then the server can be asked. */
#define CLEAN_MS 1000

static bool is_same(const struct shed_lock_holder *a,
                    const struct shed_lock_holder *b)
{
    return memcmp(a->token, b->token, SHED_TOKEN_BYTES) == 0;
}

void shed_voter_ask(struct shed_voter *v, enum shed_voter_state state,
                    const struct shed_exchange *question, uint64_t now_ms)
{
    struct shed_lock_seen seen = v->exchange.seen;

    assert(v->state == SHED_VOTER_IDLE && state != SHED_VOTER_IDLE);
    v->exchange = *question;
    v->exchange.seen = seen;
    v->state = state;
    v->asked_ms = now_ms;
    if (state == SHED_VOTER_ASKED)
        v->is_next = false;
}

/* -------------------------------------------------------------- leftovers */

static void drop(struct shed_voter *v, size_t i)
{
    v->leftover_count--;
    memmove(&v->leftover[i], &v->leftover[i + 1],
            (v->leftover_count - i) * sizeof(v->leftover[0]));
}

void shed_voter_drop_leftover(struct shed_voter *v,
                              const struct shed_lock_holder *holder)
{
    for (size_t i = v->leftover_count; i-- > 0;)
        if (is_same(&v->leftover[i], holder))
            drop(v, i);
}

void shed_voter_add_leftover(struct shed_voter *v,
                             const struct shed_lock_holder *holder,
                             uint64_t now_ms)
{
    if (!v->exchange.spec->algorithm->can_undo)
        return;
    shed_voter_drop_leftover(v, holder);
    if (v->leftover_count == SHED_LEFTOVERS_MAX) {
        /* only algorithms with a lease try without has_room */
        assert(v->exchange.spec->algorithm->has_lease);
        drop(v, 0);
    }
    v->leftover[v->leftover_count++] = *holder;
    v->clean_at_ms = now_ms;
}

/* Whether the exchange under way is this holder's, and may grant or confirm its
 * lock. */
static bool is_try_of(const struct shed_voter *v,
                      const struct shed_lock_holder *holder)
{
    return v->exchange.op != SHED_LOCK_OP_RELEASE &&
           v->exchange.op != SHED_LOCK_OP_UNDO &&
           is_same(&v->exchange.holder, holder);
}

/* A server that is busy with another holder's question was not asked this
 * one's, because it counted as silent. */
void shed_voter_cancel(struct shed_voter *v,
                       const struct shed_lock_holder *holder, uint64_t now_ms)
{
    if (v->state == SHED_VOTER_IDLE || is_try_of(v, holder))
        shed_voter_add_leftover(v, holder, now_ms);
}

bool shed_voter_has_room(const struct shed_voter *v)
{
    return v->leftover_count < SHED_LEFTOVERS_MAX - SHED_LEFTOVERS_RESERVED;
}

/* The newest first, because somebody may wait for it. */
bool shed_voter_clean(struct shed_voter *v, uint64_t now_ms)
{
    struct shed_exchange question;

    if (v->state != SHED_VOTER_IDLE)
        return false; /* the exchange belongs to the server's reactor */
    if (v->leftover_count == 0)
        return false;
    question = shed_exchange_make(v->exchange.spec, SHED_LOCK_OP_UNDO,
                                  &v->leftover[v->leftover_count - 1]);
    shed_voter_ask(v, SHED_VOTER_BUSY, &question, now_ms);
    return true;
}

uint64_t shed_voter_clean_at_ms(const struct shed_voter *v)
{
    return v->leftover_count > 0 && v->state == SHED_VOTER_IDLE ? v->clean_at_ms
                                                                : UINT64_MAX;
}

/* --------------------------------------------------------------- answers */

/* An undo, or a release, was answered. A try that was sent over another
 * connection needs two of them: a server that was stopped, with both in its
 * sockets, may have carried out the first undo before the try. The second undo
 * is sent after the answer to the first, and Redis' event loop answers only
 * after it has read everything that was in its sockets at the beginning of the
 * turn. */
static void confirm_removal(struct shed_voter *v, uint64_t now_ms)
{
    for (size_t i = v->leftover_count; i-- > 0;) {
        struct shed_lock_holder *leftover = &v->leftover[i];
        if (!is_same(leftover, &v->exchange.holder))
            continue;
        if (leftover->is_unordered) {
            leftover->is_unordered = false;
            v->clean_at_ms = now_ms;
        } else {
            drop(v, i); /* the next one is at its place now */
        }
    }
}

enum shed_voter_state shed_voter_answered(struct shed_voter *v, uint64_t now_ms,
                                          uint64_t random)
{
    enum shed_voter_state before = v->state;
    bool has_failed = v->exchange.end == SHED_EXCHANGE_FAILED;
    bool is_removal = v->exchange.op == SHED_LOCK_OP_RELEASE ||
                      v->exchange.op == SHED_LOCK_OP_UNDO;

    assert(before != SHED_VOTER_IDLE);
    v->state = SHED_VOTER_IDLE;
    if (is_removal && !has_failed)
        confirm_removal(v, now_ms);
    if (v->exchange.op == SHED_LOCK_OP_RELEASE && has_failed)
        shed_voter_add_leftover(v, &v->exchange.holder, now_ms);
    /* what a link has failed to release the session may remove at once */
    if (is_removal && has_failed && !v->exchange.is_by_link)
        v->clean_at_ms =
            now_ms + shed_backoff_equal_ms(0, CLEAN_MS, CLEAN_MS, random);
    return before;
}
