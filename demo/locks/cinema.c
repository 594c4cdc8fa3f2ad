/*
 * Selling seats, with a hold and without.
 *
 * way_held: the hold is a lease lock in Redis, which ends by itself when the
 * buyer walks away. The fencing guard, in the database, makes it certain that
 * nobody pays for a seat that another holds. The order is: acquire; tell the
 * guard of the new hold; choose; renew the hold; ask the card service; then, in
 * one transaction, the guard again, the seat and the charge; release.
 *
 * way_plain is a first attempt: look which seats are free, let the card service
 * charge for one of them, write the buyer into it. Two buyers that saw the same
 * free seat are both charged, and the one that writes last has it.
 */
#include <snowshed/lock.h>
#include <snowshed/mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "database.h"
#include "seller.h"

#define NAME_BYTES 32
#define ANSWER_TIMEOUT_MS 10000 /* a slow host is not a dead server */
#define PATIENCE_MS 60000
#define IN_SIGHT 8 /* a buyer looks at this many of the free seats */

/* What a buyer is told. */
enum answer {
    NONE, /* nothing yet */
    BOUGHT,
    TAKEN, /* others hold it */
    SOLD,  /* others have bought it; in a hall: all seats */
    LOST,  /* the hold has ended: not charged */
    LEFT,  /* the buyer gave it back */
    ANSWERS,
    FAILED
};

static const char *const answers[ANSWERS] = {[BOUGHT] = "bought",
                                             [TAKEN] = "held",
                                             [SOLD] = "sold",
                                             [LOST] = "lost",
                                             [LEFT] = "left"};

/* What a line says of a buyer. */
struct visit {
    unsigned long long buyer;
    unsigned long long seat; /* 0: any of the hall */
    unsigned long long hold_ms;
    unsigned long long wait_ms;   /* for a seat that another holds */
    unsigned long long choose_ms; /* that the buyer needs to choose */
    unsigned long long card_ms;   /* that the card service takes */
    unsigned long long limit_ms;  /* that it may take: the hold is renewed */
    char then[8];                 /* pay, leave, end */
    char stop[8]; /* steps where it waits for another line, by their first
                     letters: d, s, c; "-" for none */
};

struct cinema {
    uint64_t showing;
    struct shed_client *client; /* NULL: without holds */
};

struct thread {
    struct cinema *cinema;
    struct statements *sql;
    struct shed_error err; /* of the last call that failed */
    /* the purchase under way */
    struct visit visit;
    uint64_t seat;
    struct shed_lock *lock;
    char name[NAME_BYTES]; /* of the lock, and of the guard's resource */
    struct shed_fence fence;
    uint64_t newest; /* the newer number because of which the guard has refused
                        us; 0: none */
};

/* ------------------------------------------------------ processes, threads */

static void close_cinema(void *process)
{
    struct cinema *c = process;

    shed_client_close(c->client);
    free(c);
}

static void *open_plain(const struct seller_options *o, struct shed_error *err)
{
    struct cinema *c = calloc(1, sizeof(*c));

    (void)err;
    if (c != NULL)
        c->showing = o->item;
    return c;
}

static void *open_held(const struct seller_options *o, struct shed_error *err)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct cinema *c = open_plain(o, err);

    options.command_timeout_ms = ANSWER_TIMEOUT_MS;
    if (c != NULL &&
        shed_client_open(o->redis_uri, &options, &c->client, err)) {
        free(c);
        return NULL;
    }
    return c;
}

static void leave(void *arg)
{
    struct thread *t = arg;

    statements_close(t->sql);
    free(t);
    mysql_thread_end();
}

static void *enter(void *process, char *why, size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->cinema = process;
    t->sql = database_open_cinema(why, size);
    if (t->sql != NULL)
        return t;
    leave(t);
    return NULL;
}

/* Say where the buyer is, stay, and then, if the line says so, wait. */
static void arrive(struct thread *t, const char *step, uint64_t stay_ms)
{
    char line[LINE_BYTES];

    seller_say(t->visit.buyer, "%s", step);
    seller_sleep_ms(stay_ms);
    for (const char *stop = t->visit.stop; *stop != '\0'; stop++)
        if (*stop == *step)
            (void)seller_hear(line);
}

/* ------------------------------------------------- transactions, with guard */

static enum statement_code ask_guard(struct thread *t)
{
    enum shed_code code =
        shed_mysql_fence(statements_mysql(t->sql), shed_str(t->name), &t->fence,
                         &t->newest, &t->err);

    if (code == SHED_OK || code == SHED_ETIMEDOUT)
        t->newest = 0;
    if (code == SHED_OK)
        return STATEMENT_OK;
    return code == SHED_ETIMEDOUT ? STATEMENT_AGAIN : STATEMENT_FAILED;
}

typedef enum statement_code seat_work(struct thread *t);

/* Do work in one transaction with the guard; repeat it while it conflicts with
 * others. Returns NONE if it was committed. */
static enum answer transact(struct thread *t, seat_work *work)
{
    uint64_t deadline_ms = seller_now_ms() + PATIENCE_MS;
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
    } while (code == STATEMENT_AGAIN && seller_now_ms() < deadline_ms);
    if (code == STATEMENT_OK)
        return NONE;
    if (t->err.code == SHED_ELOST)
        return LOST;
    return code == STATEMENT_NONE ? SOLD : FAILED;
}

static enum statement_code look_at_seat(struct thread *t)
{
    uint64_t buyer = 0;
    enum statement_code code = database_read_buyer(t->sql, t->seat, &buyer);

    return code == STATEMENT_OK && buyer != 0 ? STATEMENT_NONE : code;
}

static enum statement_code sell_seat(struct thread *t)
{
    enum statement_code code =
        database_sell(t->sql, t->seat, t->visit.buyer, t->fence.number);

    if (code == STATEMENT_OK)
        code =
            database_charge(t->sql, t->seat, t->visit.buyer, t->fence.number);
    return code;
}

/* -------------------------------------------------------------------- hold */

static enum shed_code open_lock(struct thread *t)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;

    options.lease_ms = t->visit.hold_ms;
    options.watchdog_ms = 0; /* a hold must end when nobody pays */
    (void)snprintf(t->name, NAME_BYTES, "seat:%llu",
                   (unsigned long long)t->seat);
    return shed_lock_open(t->cinema->client, shed_str(t->name), &options,
                          &t->lock, &t->err);
}

/* Returns NONE if the seat is held.
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
        return TAKEN;
    if (code != SHED_OK)
        return code == SHED_ELOST ? LOST : FAILED;
    answer = transact(t, look_at_seat);
    if (answer == NONE)
        seller_say(t->visit.buyer, "has");
    return answer;
}

/* Returns LOST if the hold had already ended. */
static enum answer give_back(struct thread *t)
{
    enum shed_code code = shed_lock_release(t->lock, &t->err);

    if (code == SHED_OK)
        return LEFT;
    if (code != SHED_ELOST)
        return FAILED;
    seller_say(t->visit.buyer, "ended");
    return LOST;
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
    enum shed_code code = shed_lock_extend(t->lock, t->visit.limit_ms, &t->err);
    enum answer answer;

    if (code != SHED_OK)
        return code == SHED_ELOST ? LOST : FAILED;
    /* The card service says that it will pay. That takes long, so no
     * transaction is open meanwhile; the charge itself is a row in the
     * transaction. */
    arrive(t, "card", t->visit.card_ms);
    answer = transact(t, sell_seat);
    if (answer == LOST)
        seller_say(t->visit.buyer, "refused");
    if (answer != NONE)
        return answer;
    /* Sold; a hold that has ended by now does no harm. */
    return give_back(t) == FAILED ? FAILED : BOUGHT;
}

static enum answer use_hold(struct thread *t)
{
    arrive(t, "seat", t->visit.choose_ms);
    switch (t->visit.then[0]) {
    case 'l':
        return give_back(t);
    case 'e':
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

    return answer == LOST && newest > 0 &&
           shed_lock_release(t->lock, NULL) == SHED_OK &&
           shed_lock_advance(t->lock, newest, &t->err) == SHED_OK;
}

static enum answer hold_and_use(struct thread *t, uint64_t wait_ms)
{
    enum answer answer = hold_seat(t, wait_ms);

    return answer == NONE ? use_hold(t) : answer;
}

static enum answer try_seat(struct thread *t, uint64_t seat, uint64_t wait_ms)
{
    enum answer answer;

    t->seat = seat;
    t->newest = 0;
    if (open_lock(t) != SHED_OK)
        return FAILED;
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
    return answer == TAKEN || answer == SOLD || answer == LOST;
}

/* Try the seats, beginning with a random one; if others hold all of them, wait
 * for that one. */
static enum answer try_seats(struct thread *t, const uint64_t *seats,
                             size_t count, size_t from)
{
    enum answer answer = TAKEN;

    for (size_t i = 0; i < count && is_worth_another(answer); i++)
        answer = try_seat(t, seats[(from + i) % count], 0);
    if (is_worth_another(answer))
        answer = try_seat(t, seats[from], t->visit.wait_ms);
    return answer;
}

/* Repeat until the buyer has a seat, or all are sold. */
static enum answer buy_any(struct thread *t)
{
    uint64_t seats[IN_SIGHT], deadline_ms = seller_now_ms() + PATIENCE_MS;
    unsigned random = (unsigned)t->visit.buyer;
    enum answer answer = TAKEN;
    size_t count;

    while (is_worth_another(answer) && seller_now_ms() < deadline_ms) {
        if (database_list_free(t->sql, t->cinema->showing, seats, IN_SIGHT,
                               &count) != STATEMENT_OK)
            return FAILED;
        if (count == 0)
            return SOLD;
        answer = try_seats(t, seats, count, (size_t)rand_r(&random) % count);
    }
    return answer;
}

/* ------------------------------------------------------------------ a buyer */

static enum answer buy_held(struct thread *t)
{
    return t->visit.seat != 0 ? try_seat(t, t->visit.seat, t->visit.wait_ms)
                              : buy_any(t);
}

static enum answer buy_plain(struct thread *t)
{
    unsigned random = (unsigned)t->visit.buyer;
    uint64_t seats[IN_SIGHT], seat;
    size_t count = 0;

    if (database_list_free(t->sql, t->cinema->showing, seats, IN_SIGHT,
                           &count) != STATEMENT_OK)
        return FAILED;
    if (count == 0)
        return SOLD;
    seat = seats[(size_t)rand_r(&random) % count];
    arrive(t, "seat", t->visit.choose_ms);
    arrive(t, "card", t->visit.card_ms);
    if (database_charge(t->sql, seat, t->visit.buyer, 0) != STATEMENT_OK ||
        database_overwrite(t->sql, seat, t->visit.buyer) != STATEMENT_OK)
        return FAILED;
    return BOUGHT;
}

static bool serve(void *thread, const char *line, char *why, size_t size)
{
    struct thread *t = thread;
    struct visit *v = &t->visit;
    enum answer answer;

    if (strncmp(line, "go on", strlen("go on")) == 0)
        return true; /* the buyer did not come to the step where it would wait
                      */
    if (sscanf(line, "%llu %llu %llu %llu %llu %llu %llu %7s %7s", &v->buyer,
               &v->seat, &v->hold_ms, &v->wait_ms, &v->choose_ms, &v->card_ms,
               &v->limit_ms, v->then, v->stop) != 9) {
        (void)snprintf(why, size, "a line of another kind: %.100s", line);
        return false;
    }
    t->err = (struct shed_error){0};
    arrive(t, "door", 0);
    answer = t->cinema->client != NULL ? buy_held(t) : buy_plain(t);
    if (answer < ANSWERS) {
        seller_say(v->buyer, "told %s", answers[answer]);
        return true;
    }
    (void)snprintf(why, size, "%s",
                   t->err.code != SHED_OK ? t->err.reason
                                          : statements_why(t->sql));
    return false;
}

const struct way way_plain = {"plain", open_plain, close_cinema,
                              enter,   leave,      serve};
const struct way way_held = {"held", open_held, close_cinema,
                             enter,  leave,     serve};
