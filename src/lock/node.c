/* Talks with one server. Its invariant: one talk at a time, so what is asked
 * later cannot overtake what was asked before. */
#include "lock/node.h"

#include <stddef.h>
#include <string.h>

#include "backoff.h"
#include "clock.h"
#include "error.h"
#include "random.h"

/* How long after a failure to try again to give something back; sooner where a
 * new session tells that there is somebody to talk to. */
#define TIDY_MS 1000

/* For how long to try: as long as the longest lease. */
#define LEFT_MS SHED_LOCK_WAIT_MAX_MS

static bool is_home(const struct shed_node *n)
{
    return n->client->airport.reactor == n->home;
}

static struct shed_push *push_of(const struct shed_node *n)
{
    return n->client->airport.push;
}

/* ------------------------------------------------------------------ talks */

static void end_at_home(struct shed_node *n)
{
    n->is_busy = false;
    n->on_end(n);
}

static void end_posted(struct shed_post *post)
{
    end_at_home((struct shed_node *)(void *)((char *)post -
                                             offsetof(struct shed_node, back)));
}

/* A server that has restarted may have forgotten a lock that it granted: for
 * one lease it has no voice. */
static bool is_too_young(struct shed_node *n)
{
    struct shed_talk *t = &n->talk;
    uint64_t age_ms;

    if (!n->is_quorum || t->op != SHED_LOCK_OP_ACQUIRE)
        return false;
    age_ms = shed_push_server_age_ms(push_of(n));
    if (age_ms >= t->words->options->lease_ms)
        return false;
    (void)shed_fail(&t->error, SHED_EREDIS,
                    "Redis %s runs since %llu ms only: it is not asked before "
                    "a lease time has passed",
                    n->client->address->text, (unsigned long long)age_ms);
    (void)shed_talk_end(t, SHED_TALK_FAILED);
    return true;
}

static void on_reply(void *arg, struct shed_reply *reply,
                     enum shed_trouble trouble, const struct shed_error *err);

/* Returns: false when there is nothing to say: the talk is over. */
static bool say(struct shed_node *n)
{
    struct shed_args args;

    if (is_too_young(n) || !shed_talk_say(&n->talk, push_of(n), &args))
        return false;
    shed_pipe_call(shed_push_pipe(push_of(n)), &n->call, &args, on_reply, n);
    return true;
}

static void on_reply(void *arg, struct shed_reply *reply,
                     enum shed_trouble trouble, const struct shed_error *err)
{
    struct shed_node *n = arg;

    (void)trouble;
    if (shed_talk_hear(&n->talk, reply, err) && say(n))
        return;
    /* it may have restarted while it was asked */
    if (n->talk.end == SHED_TALK_YES)
        (void)is_too_young(n);
    if (is_home(n))
        end_at_home(n);
    else
        shed_reactor_post(n->home, &n->back);
}

static void go(struct shed_node *n)
{
    /* by a post even at home: on_end does not come before ask's return */
    if (!say(n))
        shed_reactor_post(n->home, &n->back);
}

static void go_posted(struct shed_post *post)
{
    go((struct shed_node *)(void *)((char *)post -
                                    offsetof(struct shed_node, go)));
}

void shed_node_ask(struct shed_node *n)
{
    if (n->talk.op == SHED_LOCK_OP_ACQUIRE) /* again: what it brings is his */
        shed_node_forget(n, &n->talk.holder);
    n->is_busy = true;
    n->busy_since_ms = shed_now_ms();
    if (is_home(n))
        go(n);
    else
        shed_reactor_post(n->client->airport.reactor, &n->go);
}

static void give_back(struct shed_node *n, enum shed_lock_op op,
                      const struct shed_lock_holder *holder)
{
    struct shed_lock_holder copy = *holder; /* it may be the talk's */

    shed_talk_begin(&n->talk, op, &copy);
    shed_node_ask(n);
}

static void drop_left(struct shed_node *n, size_t i)
{
    n->left_count--;
    memmove(&n->left[i], &n->left[i + 1],
            (n->left_count - i) * sizeof(n->left[0]));
}

static bool is_same(const struct shed_lock_holder *a,
                    const struct shed_lock_holder *b)
{
    return memcmp(a->token, b->token, SHED_TOKEN_BYTES) == 0;
}

void shed_node_leave(struct shed_node *n, const struct shed_lock_holder *holder)
{
    if (n->left_count == SHED_LEFT_MAX)
        return;
    n->left[n->left_count].holder = *holder;
    n->left[n->left_count++].until_ms = shed_now_ms() + LEFT_MS;
}

void shed_node_forget(struct shed_node *n,
                      const struct shed_lock_holder *holder)
{
    size_t i = n->is_tidying ? 1 : 0; /* the first is on its way */

    while (i < n->left_count)
        if (is_same(&n->left[i].holder, holder))
            drop_left(n, i);
        else
            i++;
}

/* What was to be given back, and no answer says that it was, may stand there.
 */
static void keep_left(struct shed_node *n)
{
    const struct shed_talk *t = &n->talk;
    bool is_first = n->is_tidying;

    n->is_tidying = false;
    if (is_first && t->end != SHED_TALK_FAILED)
        drop_left(n, 0);
    if (t->end != SHED_TALK_FAILED || !t->way->can_undo ||
        (t->op != SHED_LOCK_OP_RELEASE && t->op != SHED_LOCK_OP_UNDO))
        return;
    n->left_at_ms = shed_now_ms() + shed_backoff_equal_ms(0, TIDY_MS, TIDY_MS,
                                                          shed_random_jitter());
    if (!is_first)
        shed_node_leave(n, &t->holder);
}

void shed_node_pay(struct shed_node *n)
{
    keep_left(n);
    if (n->is_undone) {
        n->is_undone = false;
        give_back(n, SHED_LOCK_OP_UNDO, &n->talk.holder);
    } else if (n->is_owed) {
        n->is_owed = false;
        n->is_asked = n->owes_answer;
        n->owes_answer = false;
        give_back(n, SHED_LOCK_OP_RELEASE, &n->owed);
    }
}

void shed_node_tidy(struct shed_node *n, uint64_t now_ms)
{
    while (n->left_count > 0 && !n->is_busy && now_ms >= n->left[0].until_ms)
        drop_left(n, 0);
    if (n->left_count == 0 || n->is_busy || now_ms < n->left_at_ms)
        return;
    n->is_tidying = true;
    give_back(n, SHED_LOCK_OP_UNDO, &n->left[0].holder);
}

uint64_t shed_node_tidy_at_ms(const struct shed_node *n)
{
    return n->left_count > 0 && !n->is_busy ? n->left_at_ms : UINT64_MAX;
}

/* Whether the talk under way is of a try of the holder's: to acquire it, or to
 * write its number back. */
static bool is_try_of(const struct shed_node *n,
                      const struct shed_lock_holder *holder)
{
    return n->talk.op != SHED_LOCK_OP_RELEASE &&
           n->talk.op != SHED_LOCK_OP_UNDO && is_same(&n->talk.holder, holder);
}

void shed_node_undo(struct shed_node *n, const struct shed_lock_holder *holder)
{
    if (n->is_busy)
        n->is_undone |= is_try_of(n, holder);
    else
        give_back(n, SHED_LOCK_OP_UNDO, holder);
}

/* One that is owed already was busy then: what came later was not asked here.
 */
bool shed_node_owe(struct shed_node *n, const struct shed_lock_holder *holder)
{
    if (n->is_owed)
        return false;
    n->is_owed = true;
    n->owed = *holder;
    return true;
}

/* ---------------------------------------------------------------- changes */

static struct shed_node *node_of(struct shed_watch *watch)
{
    return (struct shed_node *)(void *)((char *)watch -
                                        offsetof(struct shed_node, watch));
}

static void tell(struct shed_post *post)
{
    struct shed_node *n =
        (struct shed_node *)(void *)((char *)post -
                                     offsetof(struct shed_node, change));

    atomic_store(&n->is_changing, false);
    n->on_change(n, atomic_exchange(&n->is_epoch, false));
}

static void change(struct shed_node *n, bool is_epoch)
{
    if (is_home(n)) {
        n->on_change(n, is_epoch);
        return;
    }
    if (is_epoch)
        atomic_store(&n->is_epoch, true);
    if (!atomic_exchange(&n->is_changing, true))
        shed_reactor_post(n->home, &n->change);
}

static void on_change(struct shed_watch *watch)
{
    change(node_of(watch), false);
}

static void on_epoch(struct shed_watch *watch)
{
    change(node_of(watch), true);
}

static void watch(void *arg)
{
    struct shed_node *n = arg;

    shed_hall_watch(n->client->hall, &n->watch);
}

static void unwatch(void *arg)
{
    struct shed_node *n = arg;

    shed_hall_unwatch(n->client->hall, &n->watch);
}

void shed_node_open(struct shed_node *n)
{
    n->go.run = go_posted;
    n->back.run = end_posted;
    n->change.run = tell;
    n->watch =
        (struct shed_watch){.key = n->talk.words->key[SHED_LOCK_KEY].at,
                            .key_size = n->talk.words->key[SHED_LOCK_KEY].size,
                            .on_change = on_change,
                            .on_epoch = on_epoch};
    shed_reactor_run(n->client->airport.reactor, watch, n);
}

void shed_node_close(struct shed_node *n)
{
    shed_reactor_run(n->client->airport.reactor, unwatch, n);
}
