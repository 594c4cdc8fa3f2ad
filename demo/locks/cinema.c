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
#define ANSWER_TIMEOUT_MS 10000 /* a slow host is not a dead server */
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

static void *open_cinema(const struct way *way, const struct seller_options *o,
                         struct shed_error *err)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct cinema *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->showing = o->item;
    options.command_timeout_ms = ANSWER_TIMEOUT_MS;
    if (way == &way_plain ||
        shed_client_open(o->redis_uri, &options, &c->client, err) == SHED_OK)
        return c;
    free(c);
    return NULL;
}

static void *enter(void *process, struct statements *sql, char *why,
                   size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    (void)why;
    (void)size;
    if (t != NULL)
        *t = (struct thread){.cinema = process, .sql = sql};
    return t;
}

/* The unsold seats that a buyer sees. */
struct sight {
    uint64_t seat[IN_SIGHT];
    size_t count;
};

static void take_seat(void *user, const uint64_t *row)
{
    struct sight *sight = user;

    if (sight->count < IN_SIGHT)
        sight->seat[sight->count++] = row[0];
}

/* Returns: false on failure. */
static bool look_around(struct thread *t, struct sight *out)
{
    uint64_t limit = IN_SIGHT;
    enum statement_code code;

    out->count = 0;
    code =
        statements_query(t->sql, LIST_FREE,
                         (MYSQL_BIND[]){statement_number(&t->cinema->showing),
                                        statement_number(&limit)},
                         1, take_seat, out);
    return code == STATEMENT_OK || code == STATEMENT_NONE;
}

static enum statement_code charge(struct thread *t, uint64_t seat)
{
    uint64_t buyer = t->visit.buyer, cents = PRICE_CENTS;

    return statements_change(
        t->sql, CHARGE,
        (MYSQL_BIND[]){statement_number(&seat), statement_number(&buyer),
                       statement_number(&cents),
                       statement_number(&t->fence.number)});
}

/* Say where the buyer is, stay, and then, if the line says so, wait. */
static void arrive(struct thread *t, const char *step, uint64_t stay_ms)
{
    char line[LINE_BYTES];

    seller_say(t->visit.buyer, "%s", step);
    demo_nap(stay_ms * 1000);
    for (const char *stop = t->visit.stop; *stop != '\0'; stop++)
        if (*stop == *step)
            (void)seller_hear(line);
}

/* ------------------------------------------------- transactions, with guard */

typedef enum statement_code seat_work(struct thread *t);

/* Do work in one transaction with the guard; repeat it while it conflicts with
 * others. Returns NONE if it was committed. */
static enum answer transact(struct thread *t, seat_work *work)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    enum statement_code code;

    do {
        t->err = (struct shed_error){0};
        t->newest = 0;
        code = statements_run(t->sql, "START TRANSACTION");
        if (code == STATEMENT_OK)
            code = statements_pass_guard(t->sql, t->name, &t->fence, &t->newest,
                                         &t->err);
        if (code == STATEMENT_OK)
            code = work(t);
        code = statements_settle(t->sql, code);
    } while (code == STATEMENT_AGAIN && demo_now_us() < deadline_us);
    if (code == STATEMENT_OK)
        return NONE;
    if (t->err.code == SHED_ELOST)
        return LOST;
    return code == STATEMENT_NONE ? SOLD : FAILED;
}

static enum statement_code look_at_seat(struct thread *t)
{
    uint64_t buyer = 0;
    enum statement_code code =
        statements_row(t->sql, READ_BUYER,
                       (MYSQL_BIND[]){statement_number(&t->seat)}, 1, &buyer);

    return code == STATEMENT_OK && buyer != 0 ? STATEMENT_NONE : code;
}

/* The connection counts matched rows, not changed ones. Here this makes no
 * difference, because the WHERE matches only rows that are changed. */
static enum statement_code sell_seat(struct thread *t)
{
    uint64_t buyer = t->visit.buyer;
    enum statement_code code =
        statements_change(t->sql, SELL,
                          (MYSQL_BIND[]){statement_number(&buyer),
                                         statement_number(&t->fence.number),
                                         statement_number(&t->seat)});

    return code == STATEMENT_OK ? charge(t, t->seat) : code;
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
static enum answer try_seats(struct thread *t, const struct sight *in,
                             size_t from)
{
    enum answer answer = TAKEN;

    for (size_t i = 0; i < in->count && is_worth_another(answer); i++)
        answer = try_seat(t, in->seat[(from + i) % in->count], 0);
    if (is_worth_another(answer))
        answer = try_seat(t, in->seat[from], t->visit.wait_ms);
    return answer;
}

/* Repeat until the buyer has a seat, or all are sold. */
static enum answer buy_any(struct thread *t)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    unsigned random = (unsigned)t->visit.buyer;
    enum answer answer = TAKEN;
    struct sight in;

    while (is_worth_another(answer) && demo_now_us() < deadline_us) {
        if (!look_around(t, &in))
            return FAILED;
        if (in.count == 0)
            return SOLD;
        answer = try_seats(t, &in, (size_t)rand_r(&random) % in.count);
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
    uint64_t seat, buyer = t->visit.buyer;
    struct sight in;

    if (!look_around(t, &in))
        return FAILED;
    if (in.count == 0)
        return SOLD;
    seat = in.seat[(size_t)rand_r(&random) % in.count];
    arrive(t, "seat", t->visit.choose_ms);
    arrive(t, "card", t->visit.card_ms);
    if (charge(t, seat) != STATEMENT_OK ||
        statements_change(t->sql, OVERWRITE,
                          (MYSQL_BIND[]){statement_number(&buyer),
                                         statement_number(&seat)}) !=
            STATEMENT_OK)
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

#define FILES "sql/seats.sql and sql/fence.sql"

const struct way way_plain = {"plain",      statements, FILES, open_cinema,
                              close_cinema, enter,      free,  serve};
const struct way way_held = {"held",       statements, FILES, open_cinema,
                             close_cinema, enter,      free,  serve};
