/*
 * Sharing of GETs. Its invariant: nobody joins a GET that has been sent.
 *
 * While there are no more callers than `alone_max`, each sends a GET of its
 * own: a shared one costs its callers a wake-up, and the wait for the GET
 * before it. Where callers are more, threads outnumber connections, and what
 * counts is how little is done for each call. Then one GET of a key is under
 * way, and one is next, which all newcomers share.
 *
 * The callers that wait for one GET are a group. Its head is the one that sends
 * it; the others wait for what it brings. All of it is on the callers' stacks,
 * chained: so nothing is allocated, and a head that leaves at its deadline
 * makes another of its group the head.
 */
#include "cache/reads.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "base/value.h"

/* Chains are short: they hold keys that are being read at this moment. */
#define SLOTS ((size_t)64)

enum state {
    FOLLOWING,  /* in the group of another caller */
    COLLECTING, /* a head that waits until no GET is under way */
    DUE,        /* a head that is to send its GET, and will in a moment */
    SENDING,    /* a head whose GET may have been sent: nobody joins */
    ANSWERED,   /* not a head, and not in a group any more */
    LEFT        /* likewise, without an answer */
};

struct reader {
    /* set by its caller */
    const struct shed_key *key;
    struct shed_read *out;
    struct shed_latch latch; /* opened when it is ANSWERED or DUE */
    /* under the slot's mu */
    enum state state;
    struct reader *next;   /* a head: the next head of the slot */
    struct reader *others; /* those behind it in its group */
};

struct slot {
    struct shed_mutex mu;
    struct reader *heads; /* under mu */
};

struct shed_reads {
    size_t alone_max; /* set at creation */
    atomic_size_t callers;
    struct slot slot[SLOTS];
};

static struct slot *find_slot(struct shed_reads *reads,
                              const struct shed_key *key)
{
    return &reads->slot[shed_hash(key->redis, key->redis_size, 0) % SLOTS];
}

static bool is_of(const struct reader *r, const struct shed_key *key)
{
    return r->key->redis_size == key->redis_size &&
           memcmp(r->key->redis, key->redis, key->redis_size) == 0;
}

static bool is_under_way(const struct reader *head)
{
    return head->state == DUE || head->state == SENDING;
}

/* ----------------------------------------------------------------- groups */

/* The group that callers of the key may join; and whether a GET is under way.
 */
static struct reader *find_group_locked(const struct slot *slot,
                                        const struct shed_key *key,
                                        bool *has_get)
{
    struct reader *open = NULL;

    *has_get = false;
    for (struct reader *h = slot->heads; h != NULL; h = h->next) {
        if (!is_of(h, key))
            continue;
        *has_get |= is_under_way(h);
        if (h->state == COLLECTING || (h->state == DUE && open == NULL))
            open = h;
    }
    return open;
}

static struct reader **link_of_locked(struct slot *slot,
                                      const struct reader *head)
{
    struct reader **at = &slot->heads;

    while (*at != head)
        at = &(*at)->next;
    return at;
}

/* The next of a head's group becomes the head, if there is one. */
static struct reader *replace_head_locked(struct slot *slot,
                                          struct reader *head, enum state state)
{
    struct reader **at = link_of_locked(slot, head), *heir = head->others;

    if (heir == NULL) {
        *at = head->next;
        return NULL;
    }
    heir->state = state;
    heir->next = head->next;
    *at = heir;
    return heir;
}

/* A GET has ended. Returns: the head of the key that is to send the next one,
 * to be woken; NULL if there is none. */
static struct reader *begin_next_locked(const struct slot *slot,
                                        const struct shed_key *key)
{
    bool has_get;
    struct reader *next = find_group_locked(slot, key, &has_get);

    if (next == NULL || has_get)
        return NULL;
    next->state = DUE;
    return next;
}

static void wake(struct reader *r)
{
    if (r != NULL)
        shed_latch_count_down(&r->latch, 1); /* r is gone now */
}

/* -------------------------------------------------------------- a caller */

/* Join a group, or make one. */
static void enter_locked(struct slot *slot, struct reader *me)
{
    bool has_get;
    struct reader *group = find_group_locked(slot, me->key, &has_get);

    if (group != NULL) {
        me->state = FOLLOWING;
        me->others = group->others;
        group->others = me;
        return;
    }
    me->state = has_get ? COLLECTING : SENDING;
    me->next = slot->heads;
    slot->heads = me;
}

static void leave_group_locked(struct slot *slot, struct reader *me)
{
    for (struct reader *h = slot->heads; h != NULL; h = h->next)
        for (struct reader **at = &h->others; *at != NULL; at = &(*at)->others)
            if (*at == me) {
                *at = me->others;
                return;
            }
}

/* At the deadline of a caller that waits. Returns: false if it waits no more,
 * because its latch has been opened or is about to be. */
static bool leave(struct slot *slot, struct reader *me)
{
    bool has_left = true;

    shed_mutex_lock(&slot->mu);
    if (me->state == FOLLOWING)
        leave_group_locked(slot, me);
    else if (me->state == COLLECTING)
        (void)replace_head_locked(slot, me, COLLECTING);
    else
        has_left = false;
    if (has_left)
        me->state = LEFT;
    shed_mutex_unlock(&slot->mu);
    return has_left;
}

static void wait_for_turn(struct slot *slot, struct reader *me,
                          uint64_t deadline_ms)
{
    if (!shed_latch_wait(&me->latch, deadline_ms) && !leave(slot, me))
        (void)shed_latch_wait(&me->latch, UINT64_MAX); /* in a moment */
    if (me->state != DUE)
        return;
    shed_mutex_lock(&slot->mu);
    me->state = SENDING;
    shed_mutex_unlock(&slot->mu);
}

/* ------------------------------------------------------------- a result */

/* What another caller of the group may not meet. */
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

/* Each is gone as soon as it is woken. */
static void answer_all(struct reader *others, const struct shed_read *result)
{
    struct reader *next;

    for (; others != NULL; others = next) {
        next = others->others;
        copy_result(result, others->out);
        wake(others);
    }
}

/* My GET has ended: share the result, and let the next one begin. */
static void settle(struct slot *slot, struct reader *me)
{
    struct reader *others = NULL, *next;

    shed_mutex_lock(&slot->mu);
    if (is_own_failure(me->out->code) && me->others != NULL) {
        next = replace_head_locked(slot, me, DUE);
    } else {
        others = me->others;
        *link_of_locked(slot, me) = me->next;
        for (struct reader *r = others; r != NULL; r = r->others)
            r->state = ANSWERED;
        next = begin_next_locked(slot, me->key);
    }
    shed_mutex_unlock(&slot->mu);
    wake(next); /* first: Redis is idle without it */
    answer_all(others, me->out);
}

static bool share(struct slot *slot, const struct shed_key *key,
                  uint64_t deadline_ms, shed_read_fn *read, void *user,
                  struct shed_read *out)
{
    struct reader me = {.key = key, .out = out, .latch = SHED_LATCH_INIT(1)};
    bool waits;

    shed_mutex_lock(&slot->mu);
    enter_locked(slot, &me);
    waits = me.state != SENDING;
    shed_mutex_unlock(&slot->mu);
    if (waits)
        wait_for_turn(slot, &me, deadline_ms);
    if (me.state == SENDING) {
        read(user, out);
        settle(slot, &me);
    } else if (me.state == LEFT) {
        out->look = (struct shed_look){.value = NULL};
        out->code = shed_fail(&out->error, SHED_ETIMEDOUT,
                              "the deadline passed while the call waited for "
                              "Redis to answer");
    }
    return me.state == ANSWERED;
}

bool shed_reads_run(struct shed_reads *reads, const struct shed_key *key,
                    uint64_t deadline_ms, shed_read_fn *read, void *user,
                    struct shed_read *out)
{
    size_t before =
        atomic_fetch_add_explicit(&reads->callers, 1, memory_order_relaxed);
    bool is_shared = false;

    if (before < reads->alone_max)
        read(user, out);
    else
        is_shared =
            share(find_slot(reads, key), key, deadline_ms, read, user, out);
    atomic_fetch_sub_explicit(&reads->callers, 1, memory_order_relaxed);
    return is_shared;
}

/* ---------------------------------------------------------- begin and end */

struct shed_reads *shed_reads_create(size_t alone_max)
{
    struct shed_reads *reads = calloc(1, sizeof(*reads));

    if (reads != NULL)
        reads->alone_max = alone_max;
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
