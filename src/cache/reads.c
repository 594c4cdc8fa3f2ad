/*
 * Sharing of GETs. Its invariant: nobody joins a GET that has been sent.
 *
 * One GET of a key is under way, and one is next, which all newcomers share.
 *
 * All of it is on the callers' stacks, in lists: so nothing is allocated. Those
 * that wait are equal until a GET has ended: then the first of them sends the
 * next one, for all who have come by then.
 */
#include "cache/reads.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/latch.h"
#include "base/list.h"
#include "base/mutex.h"

/* Chains are short: they hold keys that are being read at this moment. */
#define SLOTS ((size_t)64)

enum state {
    WAITING, /* for another caller's GET, or to send one */
    SENDING, /* its GET is under way, or will be in a moment */
    ANSWERED /* by another caller's GET */
};

struct reader {
    /* set by its caller */
    const struct shed_key *key;
    struct shed_read *out;
    struct shed_latch latch; /* opened when it is WAITING no longer */
    /* under the slot's mu */
    enum state state;
    const struct reader *sender; /* WAITING: who sends for it; NULL: that is not
                                    decided yet */
    struct shed_node node;       /* in a list of the slot, unless ANSWERED */
};

struct slot {
    struct shed_mutex mu;
    struct shed_list senders, waiters; /* under mu; one sender of each key */
};

struct shed_reads {
    struct slot slot[SLOTS];
};

static struct reader *reader_of(struct shed_node *node)
{
    return shed_container_of(node, struct reader, node);
}

static bool is_of(const struct reader *r, const struct shed_key *key)
{
    return r->key->redis_size == key->redis_size &&
           memcmp(r->key->redis, key->redis, key->redis_size) == 0;
}

static void move_locked(struct reader *r, struct shed_list *from,
                        struct shed_list *to, enum state state)
{
    shed_list_remove(from, &r->node);
    shed_list_append(to, &r->node);
    r->state = state;
}

/* -------------------------------------------------------------- a caller */

/* Returns: whether it is to wait, because another GET of the key is under way.
 */
static bool enter(struct slot *slot, struct reader *me)
{
    struct shed_node *node;

    shed_mutex_lock(&slot->mu);
    node = slot->senders.first;
    while (node != NULL && !is_of(reader_of(node), me->key))
        node = node->after;
    me->state = node != NULL ? WAITING : SENDING;
    shed_list_append(node != NULL ? &slot->waiters : &slot->senders, &me->node);
    shed_mutex_unlock(&slot->mu);
    return node != NULL;
}

/* Wait to be answered, or to send for all who wait by then. Returns: false if
 * the deadline has passed. */
static bool wait_for_turn(struct slot *slot, struct reader *me,
                          uint64_t deadline_ms)
{
    bool is_in_time = shed_latch_wait(&me->latch, deadline_ms), has_left;

    shed_mutex_lock(&slot->mu);
    has_left = !is_in_time && me->state == WAITING;
    if (has_left)
        shed_list_remove(&slot->waiters, &me->node);
    for (struct shed_node *n = slot->waiters.first;
         n != NULL && me->state == SENDING; n = n->after)
        if (is_of(reader_of(n), me->key))
            reader_of(n)->sender = me;
    shed_mutex_unlock(&slot->mu);
    if (!is_in_time && !has_left) /* it is being opened */
        (void)shed_latch_wait(&me->latch, UINT64_MAX);
    return !has_left;
}

/* ------------------------------------------------------------- a result */

/* What another caller may not meet. */
static bool is_own_failure(enum shed_code code)
{
    return code == SHED_ETIMEDOUT || code == SHED_ENOMEM;
}

static void copy_result(const struct shed_read *from, struct shed_read *to)
{
    to->code = from->code;
    to->look = from->look;
    shed_look_ref(&to->look);
    if (from->code != SHED_OK)
        to->error = from->error;
}

/* My GET has ended: those whom it answers are moved to *answered. Returns: who
 * is to send the next one; or NULL. */
static struct reader *end_get_locked(struct slot *slot, struct reader *me,
                                     struct shed_list *answered)
{
    bool is_shared = !is_own_failure(me->out->code);
    struct shed_node *node = slot->waiters.first, *after;
    struct reader *next = NULL;

    shed_list_remove(&slot->senders, &me->node);
    for (; node != NULL; node = after) {
        struct reader *r = reader_of(node);
        after = node->after;
        if (!is_of(r, me->key))
            continue;
        if (is_shared && r->sender == me)
            move_locked(r, &slot->waiters, answered, ANSWERED);
        else if (next == NULL)
            next = r;
    }
    if (next != NULL)
        move_locked(next, &slot->waiters, &slot->senders, SENDING);
    return next;
}

/* A reader is gone as soon as its latch is open. */
static void settle(struct slot *slot, struct reader *me)
{
    struct shed_list answered = {NULL, NULL};
    struct shed_node *node;
    struct reader *next;

    shed_mutex_lock(&slot->mu);
    next = end_get_locked(slot, me, &answered);
    shed_mutex_unlock(&slot->mu);
    if (next != NULL) /* first: Redis is idle without it */
        shed_latch_count_down(&next->latch, 1);
    while ((node = shed_list_pop(&answered)) != NULL) {
        copy_result(me->out, reader_of(node)->out);
        shed_latch_count_down(&reader_of(node)->latch, 1);
    }
}

bool shed_reads_share(struct shed_reads *reads, const struct shed_key *key,
                      uint64_t deadline_ms, shed_read_fn *read, void *user,
                      struct shed_read *out)
{
    struct reader me = {.key = key, .out = out, .latch = SHED_LATCH_INIT(1)};
    struct slot *slot =
        &reads->slot[shed_hash(key->redis, key->redis_size, 0) % SLOTS];

    if (enter(slot, &me) && !wait_for_turn(slot, &me, deadline_ms)) {
        out->look = (struct shed_look){.value = NULL};
        out->code = shed_fail(&out->error, SHED_ETIMEDOUT,
                              "the deadline passed while the call waited for "
                              "Redis to answer");
        return false;
    }
    if (me.state == ANSWERED)
        return true;
    read(user, out);
    settle(slot, &me);
    return false;
}

/* ---------------------------------------------------------- begin and end */

struct shed_reads *shed_reads_create(void)
{
    struct shed_reads *reads = calloc(1, sizeof(*reads));

    for (size_t i = 0; reads != NULL && i < SLOTS; i++) {
        if (shed_mutex_init(&reads->slot[i].mu, SHED_RANK_READS) == 0)
            continue;
        while (i-- > 0)
            shed_mutex_destroy(&reads->slot[i].mu);
        free(reads);
        return NULL;
    }
    return reads;
}

void shed_reads_destroy(struct shed_reads *reads)
{
    for (size_t i = 0; reads != NULL && i < SLOTS; i++)
        shed_mutex_destroy(&reads->slot[i].mu);
    free(reads);
}
