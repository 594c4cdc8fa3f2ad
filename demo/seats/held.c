/*
 * Selling seats with a hold. The hold is a lease lock in Redis, which ends by
 * itself when the buyer walks away. The fencing guard, in the database, makes
 * it certain that nobody pays for a seat that another holds.
 *
 * The order is: acquire; tell the guard of the new hold; choose; renew the
 * hold; ask the card service; then, in one transaction, the guard again, the
 * seat and the charge; release.
 */
#include <snowshed/lock.h>
#include <snowshed/mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/fleet.h"
#include "ledger.h"
#include "strategies.h"

#define NAME_BYTES 32
#define ANSWER_TIMEOUT_MS 10000 /* a slow host is not a dead server */
#define PATIENCE_US (60 * 1000000ULL)

struct process {
    struct showing *showing;
    struct shed_client *client;
};

struct thread {
    struct process *process;
    struct statements *sql;
    struct shed_error err; /* of the last call that failed */
    /* the purchase under way */
    struct visit *visit;
    uint64_t buyer, seat;
    struct shed_lock *lock;
    char name[NAME_BYTES]; /* of the lock, and of the guard's resource */
    size_t name_size;
    struct shed_fence fence;
    uint64_t newest; /* the newer number because of which the guard has refused
                        us; 0: none */
};

/* ------------------------------------------------------ processes, threads */

static void close_process(void *process)
{
    struct process *p = process;

    shed_client_close(p->client);
    free(p);
}

static void *open_process(const struct settings *settings, char *why,
                          size_t size)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_error err = {0};
    struct process *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    p->showing = showing_of(settings->record);
    options.command_timeout_ms = ANSWER_TIMEOUT_MS;
    if (shed_client_open(settings->redis_uri, &options, &p->client, &err) ==
        SHED_OK)
        return p;
    (void)snprintf(why, size, "%s", err.reason);
    close_process(p);
    return NULL;
}

static void leave_thread(void *arg)
{
    struct thread *t = arg;

    statements_close(t->sql);
    free(t);
    mysql_thread_end();
}

static void *enter_thread(void *process, char *why, size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->process = process;
    t->sql = ledger_open(why, size);
    if (t->sql != NULL)
        return t;
    leave_thread(t);
    return NULL;
}

/* ------------------------------------------------- transactions, with guard */

static enum statement_code ask_guard(struct thread *t)
{
    enum shed_code code = shed_mysql_fence(statements_mysql(t->sql),
                                           shed_bytes(t->name, t->name_size),
                                           &t->fence, &t->newest, &t->err);

    if (code == SHED_OK || code == SHED_ETIMEDOUT)
        t->newest = 0;
    if (code == SHED_OK)
        return STATEMENT_OK;
    return code == SHED_ETIMEDOUT ? STATEMENT_AGAIN : STATEMENT_FAILED;
}

typedef enum statement_code seat_work(struct thread *t);

/* Do work in one transaction with the guard; repeat it while it conflicts with
 * others. Returns ANSWER_NONE if it was committed. */
static enum answer transact(struct thread *t, seat_work *work)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    enum statement_code code;

    do {
        t->err = (struct shed_error){0};
        t->newest = 0;
        code = statements_run(t->sql, "START TRANSACTION");
        if (code == STATEMENT_OK)
            code = ask_guard(t);
        if (code == STATEMENT_OK)
            code = work(t);
        code = statements_settle(t->sql, code);
    } while (code == STATEMENT_AGAIN && demo_now_us() < deadline_us);
    if (code == STATEMENT_OK)
        return ANSWER_NONE;
    if (t->err.code == SHED_ELOST)
        return ANSWER_LOST;
    return code == STATEMENT_NONE ? ANSWER_SOLD : ANSWER_FAILED;
}

static enum statement_code look_at_seat(struct thread *t)
{
    uint64_t buyer = 0;
    enum statement_code code = ledger_read_buyer(t->sql, t->seat, &buyer);

    return code == STATEMENT_OK && buyer != 0 ? STATEMENT_NONE : code;
}

static enum statement_code sell_seat(struct thread *t)
{
    enum statement_code code =
        ledger_sell(t->sql, t->seat, t->buyer, t->fence.number);

    if (code == STATEMENT_OK)
        code = ledger_charge(t->sql, t->seat, t->buyer, t->fence.number);
    return code;
}

/* -------------------------------------------------------------------- hold */

static enum shed_code open_lock(struct thread *t)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;

    options.lease_ms = t->visit->plan.hold_ms;
    options.watchdog_ms = 0; /* a hold must end when nobody pays */
    t->name_size = (size_t)snprintf(t->name, NAME_BYTES, "seat:%llu",
                                    (unsigned long long)t->seat);
    return shed_lock_open(t->process->client, shed_bytes(t->name, t->name_size),
                          &options, &t->lock, &t->err);
}

/* Returns ANSWER_NONE if the seat is held.
 *
 * The guard hears of the hold already here, not only at the payment, so from
 * here on nobody who held the seat before can pay for it. */
static enum answer hold_seat(struct thread *t, uint64_t wait_ms)
{
    enum shed_code code = shed_lock_acquire(t->lock, wait_ms, &t->err);
    enum answer answer;

    if (code == SHED_OK)
        code = shed_lock_fence(t->lock, &t->fence, &t->err);
    if (code == SHED_ETIMEDOUT)
        return ANSWER_TAKEN;
    if (code != SHED_OK)
        return code == SHED_ELOST ? ANSWER_LOST : ANSWER_FAILED;
    answer = transact(t, look_at_seat);
    if (answer == ANSWER_NONE)
        atomic_store(&t->visit->held_us, demo_now_us());
    return answer;
}

/* Returns ANSWER_LOST if the hold had already ended. */
static enum answer give_back(struct thread *t)
{
    enum shed_code code = shed_lock_release(t->lock, &t->err);

    if (code == SHED_OK)
        return ANSWER_LEFT;
    if (code != SHED_ELOST)
        return ANSWER_FAILED;
    atomic_fetch_add(&t->process->showing->lost, 1);
    return ANSWER_LOST;
}

/*
 * The hold is renewed once, to as long as the card service may take. A watchdog
 * would renew it while the process lives, so a buyer who stays and never pays
 * would keep the seat, and a watchdog cannot be switched on only for this part.
 * Renewing in steps would need another thread. A single renewal ends by itself,
 * and if the process dies, others notice that earlier.
 */
static enum answer pay(struct thread *t)
{
    const struct plan *plan = &t->visit->plan;
    enum shed_code code = shed_lock_extend(t->lock, plan->limit_ms, &t->err);
    enum answer answer;

    if (code != SHED_OK)
        return code == SHED_ELOST ? ANSWER_LOST : ANSWER_FAILED;
    /* The card service says that it will pay. That takes long, so no
     * transaction is open meanwhile; the charge itself is a row in the
     * transaction. */
    showing_arrive(t->process->showing, t->visit, STEP_CARD, plan->card_ms);
    answer = transact(t, sell_seat);
    if (answer == ANSWER_LOST)
        atomic_fetch_add(&t->process->showing->refused, 1);
    if (answer != ANSWER_NONE)
        return answer;
    /* Sold; a hold that has ended by now does no harm. */
    return give_back(t) == ANSWER_FAILED ? ANSWER_FAILED : ANSWER_BOUGHT;
}

static enum answer use_hold(struct thread *t)
{
    const struct plan *plan = &t->visit->plan;

    showing_arrive(t->process->showing, t->visit, STEP_SEAT, plan->choose_ms);
    switch (plan->then) {
    case THEN_GIVE_BACK:
        return give_back(t);
    case THEN_END_PROCESS:
        _exit(EXIT_SUCCESS); /* without telling Redis */
    default:
        return pay(t);
    }
}

/* The guard refused a hold that is still ours according to Redis. It has seen
 * higher numbers than Redis gives out, because Redis has lost its data or its
 * clock was set back. Returns whether to try again. */
static bool catch_up(struct thread *t, enum answer answer)
{
    uint64_t newest = t->newest;

    return answer == ANSWER_LOST && newest > 0 &&
           shed_lock_release(t->lock, NULL) == SHED_OK &&
           shed_lock_advance(t->lock, newest, &t->err) == SHED_OK;
}

static enum answer hold_and_use(struct thread *t, uint64_t wait_ms)
{
    enum answer answer = hold_seat(t, wait_ms);

    return answer == ANSWER_NONE ? use_hold(t) : answer;
}

static enum answer try_seat(struct thread *t, uint64_t seat, uint64_t wait_ms)
{
    enum answer answer;

    t->seat = seat;
    t->newest = 0;
    if (open_lock(t) != SHED_OK)
        return ANSWER_FAILED;
    answer = hold_and_use(t, wait_ms);
    if (catch_up(t, answer))
        answer = hold_and_use(t, wait_ms);
    shed_lock_close(t->lock); /* releases it, if it is held */
    t->lock = NULL;
    if (answer < ANSWERS)
        t->err = (struct shed_error){0};
    return answer;
}

/* ------------------------------------------------------------- a whole hall */

static bool is_worth_another(enum answer answer)
{
    return answer == ANSWER_TAKEN || answer == ANSWER_SOLD ||
           answer == ANSWER_LOST;
}

/* Try the seats, beginning with a random one; if others hold all of them, wait
 * for that one. */
static enum answer try_seats(struct thread *t, const uint64_t *seats,
                             size_t count, size_t from)
{
    enum answer answer = ANSWER_TAKEN;

    for (size_t i = 0; i < count && is_worth_another(answer); i++)
        answer = try_seat(t, seats[(from + i) % count], 0);
    if (is_worth_another(answer))
        answer = try_seat(t, seats[from], t->visit->plan.wait_ms);
    return answer;
}

/* Repeat until the buyer has a seat, or all are sold. */
static enum answer buy_any(struct thread *t)
{
    struct showing *h = t->process->showing;
    uint64_t random = h->seed + t->buyer, seats[SEATS_IN_SIGHT];
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    enum answer answer = ANSWER_TAKEN;
    size_t count;

    while (is_worth_another(answer) && demo_now_us() < deadline_us) {
        if (ledger_list_free(t->sql, h->number, seats, SEATS_IN_SIGHT,
                             &count) != STATEMENT_OK)
            return ANSWER_FAILED;
        if (count == 0)
            return ANSWER_SOLD;
        answer = try_seats(t, seats, count, fleet_random(&random) % count);
    }
    return answer;
}

/* ------------------------------------------------------------------ a buyer */

static bool get_held(void *thread, const uint64_t *ids, size_t count,
                     struct got *got, char *why, size_t size)
{
    struct thread *t = thread;
    struct visit *v = &t->process->showing->visit[ids[0]];
    enum answer answer;

    (void)count; /* one */
    (void)got;
    t->visit = v;
    t->buyer = ids[0] + 1;
    t->err = (struct shed_error){0};
    showing_arrive(t->process->showing, v, STEP_DOOR, 0);
    answer = v->plan.seat != 0 ? try_seat(t, v->plan.seat, v->plan.wait_ms)
                               : buy_any(t);
    if (answer < ANSWERS) {
        showing_tell(v, answer);
        return true;
    }
    (void)snprintf(why, size, "%s",
                   t->err.code != SHED_OK ? t->err.reason
                                          : statements_why(t->sql));
    return false;
}

const struct strategy seats_held = {.name = "with",
                                    .open = open_process,
                                    .close = close_process,
                                    .enter = enter_thread,
                                    .leave = leave_thread,
                                    .get = get_held};
