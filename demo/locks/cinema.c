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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "seller.h"

#define NAME_BYTES 32
#define PATIENCE_US 60000000
#define PRICE_CENTS 1200
#define IN_SIGHT 8 /* a buyer looks at this many of the free seats */

enum { LIST_FREE, READ_BUYER, SELL, OVERWRITE, CHARGE };

static const char *const statements[] = {
    [LIST_FREE] = "SELECT id FROM seat WHERE showing = ? AND buyer IS NULL "
                  "ORDER BY id LIMIT ?",
    [READ_BUYER] = "SELECT COALESCE(buyer, 0) FROM seat WHERE id = ?",
    [SELL] = "UPDATE seat SET buyer = ?, token = ? "
             "WHERE id = ? AND buyer IS NULL",
    [OVERWRITE] = "UPDATE seat SET buyer = ?, token = 0 WHERE id = ?",
    [CHARGE] = "INSERT INTO charge (seat, buyer, cents, token) "
               "VALUES (?, ?, ?, ?)"};

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

/* A purchase. */
struct purchase {
    struct counter *at;
    struct visit visit;
    uint64_t seat;
    struct shed_lock *lock;
    char name[NAME_BYTES]; /* of the lock, and of the guard's resource */
    struct shed_fence fence;
    uint64_t newest; /* the newer number because of which the guard has refused
                        us; 0: none */
};

/* The unsold seats that a buyer sees. */
struct sight {
    uint64_t seat[IN_SIGHT];
    size_t count;
};

/* Returns: false on failure. No seat is number 0. */
static bool look_around(struct purchase *p, struct sight *out)
{
    enum statement_code code;

    *out = (struct sight){.count = 0};
    code = statements_select(p->at->db, LIST_FREE,
                             (uint64_t[]){p->at->seller->item, IN_SIGHT}, NULL,
                             out->seat, 1, IN_SIGHT);
    while (out->count < IN_SIGHT && out->seat[out->count] != 0)
        out->count++;
    return code == STATEMENT_OK || code == STATEMENT_NONE;
}

static enum statement_code charge(struct purchase *p, uint64_t seat)
{
    return statements_change(
        p->at->db, CHARGE,
        (uint64_t[]){seat, p->visit.buyer, PRICE_CENTS, p->fence.number}, NULL);
}

/* Say where the buyer is, stay, and then, if the line says so, wait. */
static void arrive(struct purchase *p, const char *step, uint64_t stay_ms)
{
    char line[LINE_BYTES];

    seller_say(p->visit.buyer, "%s", step);
    demo_nap(stay_ms * 1000);
    for (const char *stop = p->visit.stop; *stop != '\0'; stop++)
        if (*stop == *step)
            (void)seller_hear(line);
}

/* ------------------------------------------------- transactions, with guard */

typedef enum statement_code seat_work(struct purchase *p);

/* Do work in one transaction with the guard; repeat it while it conflicts with
 * others. Returns NONE if it was committed. */
static enum answer transact(struct purchase *p, seat_work *work)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    enum statement_code code;

    do {
        p->at->err = (struct shed_error){0};
        p->newest = 0;
        code = statements_run(p->at->db, "START TRANSACTION");
        if (code == STATEMENT_OK)
            code = statements_pass_guard(p->at->db, p->name, &p->fence,
                                         &p->newest, &p->at->err);
        if (code == STATEMENT_OK)
            code = work(p);
        code = statements_settle(p->at->db, code);
    } while (code == STATEMENT_AGAIN && demo_now_us() < deadline_us);
    if (code == STATEMENT_OK)
        return NONE;
    if (p->at->err.code == SHED_ELOST)
        return LOST;
    return code == STATEMENT_NONE ? SOLD : FAILED;
}

static enum statement_code look_at_seat(struct purchase *p)
{
    uint64_t buyer = 0;
    enum statement_code code =
        statements_select(p->at->db, READ_BUYER, &p->seat, NULL, &buyer, 1, 1);

    return code == STATEMENT_OK && buyer != 0 ? STATEMENT_NONE : code;
}

/* The connection counts matched rows, not changed ones. Here this makes no
 * difference, because the WHERE matches only rows that are changed. */
static enum statement_code sell_seat(struct purchase *p)
{
    enum statement_code code = statements_change(
        p->at->db, SELL, (uint64_t[]){p->visit.buyer, p->fence.number, p->seat},
        NULL);

    return code == STATEMENT_OK ? charge(p, p->seat) : code;
}

/* -------------------------------------------------------------------- hold */

static enum shed_code open_lock(struct purchase *p)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;

    options.lease_ms = p->visit.hold_ms;
    options.watchdog_ms = 0; /* a hold must end when nobody pays */
    (void)snprintf(p->name, NAME_BYTES, "seat:%llu",
                   (unsigned long long)p->seat);
    return shed_lock_open(p->at->seller->client, shed_str(p->name), &options,
                          &p->lock, &p->at->err);
}

/* Returns NONE if the seat is held.
 *
 * The guard hears of the hold already here, not only at the payment, so from
 * here on nobody who held the seat before can pay for it. */
static enum answer hold_seat(struct purchase *p, uint64_t wait_ms)
{
    enum shed_code code = shed_lock_acquire(p->lock, wait_ms, &p->at->err);
    enum answer answer;

    if (code == SHED_OK)
        code = shed_lock_fence(p->lock, &p->fence, &p->at->err);
    if (code == SHED_ETIMEDOUT)
        return TAKEN;
    if (code != SHED_OK)
        return code == SHED_ELOST ? LOST : FAILED;
    answer = transact(p, look_at_seat);
    if (answer == NONE)
        seller_say(p->visit.buyer, "has");
    return answer;
}

/* Returns LOST if the hold had already ended. */
static enum answer give_back(struct purchase *p)
{
    enum shed_code code = shed_lock_release(p->lock, &p->at->err);

    if (code == SHED_OK)
        return LEFT;
    if (code != SHED_ELOST)
        return FAILED;
    seller_say(p->visit.buyer, "ended");
    return LOST;
}

/*
 * The hold is renewed once, to as long as the card service may take. A watchdog
 * would renew it while the process lives, so a buyer who stays and never pays
 * would keep the seat, and a watchdog cannot be switched on only for this part.
 * Renewing in steps would need another thread. A single renewal ends by itself,
 * and if the process dies, others notice that earlier.
 */
static enum answer pay(struct purchase *p)
{
    enum shed_code code =
        shed_lock_extend(p->lock, p->visit.limit_ms, &p->at->err);
    enum answer answer;

    if (code != SHED_OK)
        return code == SHED_ELOST ? LOST : FAILED;
    /* The card service says that it will pay. That takes long, so no
     * transaction is open meanwhile; the charge itself is a row in the
     * transaction. */
    arrive(p, "card", p->visit.card_ms);
    answer = transact(p, sell_seat);
    if (answer == LOST)
        seller_say(p->visit.buyer, "refused");
    if (answer != NONE)
        return answer;
    /* Sold; a hold that has ended by now does no harm. */
    return give_back(p) == FAILED ? FAILED : BOUGHT;
}

static enum answer use_hold(struct purchase *p)
{
    arrive(p, "seat", p->visit.choose_ms);
    switch (p->visit.then[0]) {
    case 'l':
        return give_back(p);
    case 'e':
        _exit(EXIT_SUCCESS); /* without telling Redis */
    default:
        return pay(p);
    }
}

/* The guard refused a hold that is still ours according to Redis. It has seen
 * higher numbers than Redis gives out, because Redis has lost its data or its
 * clock was set back. Returns whether to try again. */
static bool catch_up(struct purchase *p, enum answer answer)
{
    uint64_t newest = p->newest;

    return answer == LOST && newest > 0 &&
           shed_lock_release(p->lock, NULL) == SHED_OK &&
           shed_lock_advance(p->lock, newest, &p->at->err) == SHED_OK;
}

static enum answer hold_and_use(struct purchase *p, uint64_t wait_ms)
{
    enum answer answer = hold_seat(p, wait_ms);

    return answer == NONE ? use_hold(p) : answer;
}

static enum answer try_seat(struct purchase *p, uint64_t seat, uint64_t wait_ms)
{
    enum answer answer;

    p->seat = seat;
    p->newest = 0;
    if (open_lock(p) != SHED_OK)
        return FAILED;
    answer = hold_and_use(p, wait_ms);
    if (catch_up(p, answer))
        answer = hold_and_use(p, wait_ms);
    shed_lock_close(p->lock); /* releases it, if it is held */
    p->lock = NULL;
    if (answer < ANSWERS)
        p->at->err = (struct shed_error){0};
    return answer;
}

/* ------------------------------------------------------------- a whole hall */

static bool is_worth_another(enum answer answer)
{
    return answer == TAKEN || answer == SOLD || answer == LOST;
}

/* Try the seats, beginning with a random one; if others hold all of them, wait
 * for that one. */
static enum answer try_seats(struct purchase *p, const struct sight *in,
                             size_t from)
{
    enum answer answer = TAKEN;

    for (size_t i = 0; i < in->count && is_worth_another(answer); i++)
        answer = try_seat(p, in->seat[(from + i) % in->count], 0);
    if (is_worth_another(answer))
        answer = try_seat(p, in->seat[from], p->visit.wait_ms);
    return answer;
}

/* Repeat until the buyer has a seat, or all are sold. */
static enum answer buy_any(struct purchase *p)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    unsigned random = (unsigned)p->visit.buyer;
    enum answer answer = TAKEN;
    struct sight in;

    while (is_worth_another(answer) && demo_now_us() < deadline_us) {
        if (!look_around(p, &in))
            return FAILED;
        if (in.count == 0)
            return SOLD;
        answer = try_seats(p, &in, (size_t)rand_r(&random) % in.count);
    }
    return answer;
}

/* ------------------------------------------------------------------ a buyer */

static enum answer buy_held(struct purchase *p)
{
    return p->visit.seat != 0 ? try_seat(p, p->visit.seat, p->visit.wait_ms)
                              : buy_any(p);
}

static enum answer buy_plain(struct purchase *p)
{
    unsigned random = (unsigned)p->visit.buyer;
    struct sight in;
    uint64_t seat;

    if (!look_around(p, &in))
        return FAILED;
    if (in.count == 0)
        return SOLD;
    seat = in.seat[(size_t)rand_r(&random) % in.count];
    arrive(p, "seat", p->visit.choose_ms);
    arrive(p, "card", p->visit.card_ms);
    if (charge(p, seat) != STATEMENT_OK ||
        statements_change(p->at->db, OVERWRITE,
                          (uint64_t[]){p->visit.buyer, seat}, NULL))
        return FAILED;
    return BOUGHT;
}

static bool serve(struct counter *counter, const char *line)
{
    struct purchase purchase = {.at = counter}, *p = &purchase;
    struct visit *v = &p->visit;
    enum answer answer;

    if (strncmp(line, "go on", strlen("go on")) == 0)
        return true; /* the buyer did not come to the step where it would wait
                      */
    if (sscanf(line, "%llu %llu %llu %llu %llu %llu %llu %7s %7s", &v->buyer,
               &v->seat, &v->hold_ms, &v->wait_ms, &v->choose_ms, &v->card_ms,
               &v->limit_ms, v->then, v->stop) != 9)
        return false;
    counter->err = (struct shed_error){SHED_OK, ""};
    arrive(p, "door", 0);
    answer = counter->seller->way == &way_held ? buy_held(p) : buy_plain(p);
    if (answer < ANSWERS)
        seller_say(v->buyer, "told %s", answers[answer]);
    return answer < ANSWERS;
}

#define FILES "sql/seats.sql and sql/fence.sql"

const struct way way_plain = {"plain", statements, FILES, false,
                              serve,   NULL,       NULL};
const struct way way_held = {"held", statements, FILES, true,
                             serve,  NULL,       NULL};
