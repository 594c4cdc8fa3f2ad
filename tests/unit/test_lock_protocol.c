/*
 * What the algorithms send, and how they take replies, without a server: the
 * model of one executes their commands, one at a time, in thousands of orders,
 * while processes die at any moment. (The scripts of LEASE
 * are tested on a server.) Also the counting of a majority.
 */
#include <stdio.h>
#include <string.h>

#include "lock/quorum.h"
#include "support/lock_model.h"
#include "support/random.h"
#include "support/testing.h"

enum {
    PROCESSES = 4,
    RUNS = 500,
    STEPS = 400,
    LEASE_MS = 1000,
    SKEW_MS = 5000
};

/* ---------------------------------------------------------- the processes */

enum state { IDLE, ASKING, HOLDING };

struct process {
    enum state state;
    struct shed_exchange exchange;
    uint64_t skew_ms;
    unsigned skips;
    uint64_t wait_until_ms; /* IDLE: after a refusal */
    uint64_t safe_until_ms; /* HOLDING */
};

struct world {
    struct lock_model model;
    uint64_t now_ms;
    struct process process[PROCESSES];
    uint64_t random;
    bool has_crashes;
    unsigned entries, overlaps;
};

static uint64_t draw(struct world *w, uint64_t below)
{
    return random_next(&w->random) % below;
}

static void begin(struct world *w, struct process *p, enum shed_lock_op op)
{
    struct shed_lock_holder holder = p->exchange.holder;
    struct shed_lock_memory memory = p->exchange.memory;

    if (op == SHED_LOCK_OP_ACQUIRE) {
        memset(&holder, 0, sizeof(holder));
        snprintf(holder.token_hex, sizeof(holder.token_hex), "%032llx",
                 (unsigned long long)draw(w, UINT32_MAX));
        p->safe_until_ms = w->now_ms + LEASE_MS;
    }
    p->exchange = shed_exchange_make(p->exchange.spec, op, &holder);
    p->exchange.memory = memory;
    p->exchange.lease_ms = LEASE_MS;
    p->state = ASKING;
}

static void enter(struct world *w, struct process *p)
{
    for (unsigned i = 0; i < PROCESSES; i++)
        w->overlaps += w->process[i].state == HOLDING &&
                       w->now_ms < w->process[i].safe_until_ms;
    p->state = HOLDING;
    w->entries++;
}

static void end_exchange(struct world *w, struct process *p)
{
    ck_assert_int_ne(p->exchange.end, SHED_EXCHANGE_FAILED);
    ck_assert_int_ne(p->exchange.end, SHED_EXCHANGE_WRONG);
    if (p->exchange.op == SHED_LOCK_OP_ACQUIRE &&
        p->exchange.end == SHED_EXCHANGE_YES) {
        enter(w, p);
        return;
    }
    p->state = IDLE;
    p->wait_until_ms = w->now_ms + draw(w, 30);
}

static void run_command(struct world *w, struct process *p)
{
    const struct shed_algorithm *algorithm = p->exchange.spec->algorithm;
    struct shed_args args = {0};
    struct lock_model_call call = {0};
    struct lock_model_reply reply;
    struct lock_model_memory memory;

    p->exchange.now_ms = w->now_ms;
    p->exchange.wall_ms = w->now_ms + p->skew_ms;
    if (!algorithm->next_command(&p->exchange, &args)) {
        end_exchange(w, p);
        return;
    }
    w->model.now_us = w->now_ms * 1000;
    lock_model_read(&call, p->exchange.script, &args);
    lock_model_execute(&w->model, &call, &reply);
    if (!algorithm->on_reply(&p->exchange,
                             lock_model_to_reply(&reply, &memory)))
        end_exchange(w, p);
}

/* Whether the lock lasts long enough for a release to come in time. With SETNX
 * it never ends. */
static bool is_safe(const struct world *w, const struct process *p)
{
    enum { MARGIN_MS = 20 };

    return !p->exchange.spec->algorithm->has_lease ||
           w->now_ms + MARGIN_MS < p->safe_until_ms;
}

static void step(struct world *w, struct process *p)
{
    enum { ONE_IN_SOME = 4, ONE_IN_MANY = 60 };

    if (w->has_crashes && draw(w, ONE_IN_MANY) == 0) {
        p->state = IDLE; /* replaced by another process */
        p->exchange.memory = (struct shed_lock_memory){0};
        return;
    }
    if (p->state == ASKING)
        run_command(w, p);
    else if (p->state == IDLE && w->now_ms >= p->wait_until_ms)
        begin(w, p, SHED_LOCK_OP_ACQUIRE);
    else if (p->state == HOLDING && !is_safe(w, p))
        p->state = IDLE; /* a release could remove another's lock */
    else if (p->state == HOLDING && draw(w, ONE_IN_SOME) == 0)
        begin(w, p, SHED_LOCK_OP_RELEASE);
}

static bool is_any_asking(const struct world *w)
{
    for (unsigned i = 0; i < PROCESSES; i++)
        if (w->process[i].state == ASKING)
            return true;
    return false;
}

/* A live process can be slow between two commands, but only by a few ms. */
static void move(struct world *w, struct process *p)
{
    enum { MOST_SKIPS = 10 };

    if (p->skips < MOST_SKIPS && draw(w, 2) == 0) {
        p->skips++;
        return;
    }
    p->skips = 0;
    step(w, p);
}

/* In a round of 1 ms each process makes at most one move, in any order. */
static void run(struct world *w, const struct shed_lock_spec *spec,
                uint64_t seed)
{
    w->random = seed * 2654435761U + 1;
    w->now_ms = 1000000;
    for (unsigned i = 0; i < PROCESSES; i++)
        w->process[i].exchange.spec = spec;
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t first = draw(w, PROCESSES);
        for (unsigned j = 0; j < PROCESSES; j++)
            move(w, &w->process[(first + j) % PROCESSES]);
        w->now_ms += draw(w, 2);
        if (!is_any_asking(w) && draw(w, 20) == 0) /* leases end */
            w->now_ms += draw(w, 2) * LEASE_MS / 2;
    }
}

enum { SETNX, EXPIRE, TIMESTAMP, ALGORITHMS };

static struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;
static const struct shed_lock_spec specs[] = {
    {{{"k", 1}}, &options, &shed_lock_setnx, {0}},
    {{{"k", 1}}, &options, &shed_lock_expire, {0}},
    {{{"k", 1}}, &options, &shed_lock_timestamp, {0}}};

TEST_EACH(no_order_of_commands_lets_two_in, 0, ALGORITHMS)
{
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct world w = {0};
        run(&w, &specs[_i], seed);
        ck_assert_msg(w.overlaps == 0, "seed %llu", (unsigned long long)seed);
        ck_assert_msg(w.entries > STEPS / 40, "seed %llu: %u entries",
                      (unsigned long long)seed, w.entries);
    }
}

/* Algorithms whose locks expire recover from a death at any command. */
TEST_EACH(a_death_at_any_command_is_recovered_from, EXPIRE, ALGORITHMS)
{
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct world w = {.has_crashes = true};
        run(&w, &specs[_i], seed);
        ck_assert_msg(w.overlaps == 0, "seed %llu", (unsigned long long)seed);
        /* it can be taken again, whatever the key holds */
        w.has_crashes = false;
        w.now_ms += LEASE_MS + 2;
        w.entries = 0;
        for (unsigned i = 0; i < PROCESSES; i++)
            w.process[i].state = IDLE;
        for (unsigned i = 0; i < STEPS && w.entries == 0; i++) {
            step(&w, &w.process[0]);
            w.now_ms++;
        }
        ck_assert_msg(w.entries == 1, "seed %llu", (unsigned long long)seed);
    }
}

TEST(setnx_lasts_for_ever_when_its_holder_dies)
{
    struct world w = {0};
    unsigned entries;

    run(&w, &specs[SETNX], 1);
    while (w.process[0].state != HOLDING)
        for (unsigned i = 0; i < PROCESSES; i++) {
            step(&w, &w.process[i]);
            w.now_ms++;
        }
    w.process[0].state = IDLE;
    w.now_ms += 1000 * LEASE_MS;
    entries = w.entries;
    for (unsigned i = 0; i < STEPS; i++)
        step(&w, &w.process[i % PROCESSES]);
    ck_assert_uint_eq(w.entries, entries);
}

TEST(clocks_that_differ_let_two_in)
{
    struct world w = {0};

    w.process[1].skew_ms = SKEW_MS;
    run(&w, &specs[TIMESTAMP], 1);
    ck_assert_uint_gt(w.overlaps, 0);
}

/* The first takes the lock, the second takes it when the lease has ended; then
 * the first releases. Returns: whether the second still has the lock. */
static bool outlives_release(const struct shed_lock_spec *spec)
{
    struct world w = {.random = 1, .now_ms = 1000};

    for (unsigned i = 0; i < 2; i++) {
        struct process *p = &w.process[i];
        p->exchange.spec = spec;
        begin(&w, p, SHED_LOCK_OP_ACQUIRE);
        while (p->state == ASKING)
            run_command(&w, p);
        ck_assert_int_eq(p->state, HOLDING);
        w.now_ms += i == 0 ? LEASE_MS + 2 : 1;
    }
    begin(&w, &w.process[0], SHED_LOCK_OP_RELEASE);
    while (w.process[0].state == ASKING)
        run_command(&w, &w.process[0]);
    return w.model.lock.is_set;
}

TEST(past_its_lease_expire_removes_another_s_lock)
{
    ck_assert(!outlives_release(&specs[EXPIRE]));
}

TEST(past_its_end_timestamp_leaves_another_s_lock_alone)
{
    ck_assert(outlives_release(&specs[TIMESTAMP]));
}

/* A holder that finds another's value at the key leaves it alone. */
TEST_EACH(another_s_lock_is_not_extended, 0, ALGORITHMS)
{
    struct world w = {0};
    struct process *p = &w.process[0];

    run(&w, &specs[_i], 1);
    w.model.lock.is_set = false;
    begin(&w, p, SHED_LOCK_OP_ACQUIRE);
    while (p->state == ASKING)
        run_command(&w, p);
    ck_assert_int_eq(p->state, HOLDING);
    w.model.lock.value = lock_model_text("99999999", 8);
    begin(&w, p, SHED_LOCK_OP_EXTEND);
    while (p->state == ASKING)
        run_command(&w, p);
    ck_assert_int_eq(p->exchange.end, SHED_EXCHANGE_NO);
    ck_assert_uint_eq(lock_model_number(&w.model.lock.value), 99999999);
}

/* ------------------------------------------------------------- the majority */

static struct shed_exchange ended(enum shed_exchange_end end, uint64_t fence,
                                  uint64_t look_ms)
{
    return (struct shed_exchange){
        .end = end, .fence = fence, .look_ms = look_ms};
}

static enum shed_verdict count_of(enum shed_lock_op op, const char *answers)
{
    struct shed_tally tally = {.op = op, .servers = 5};

    for (const char *a = answers; *a != '\0'; a++) {
        struct shed_exchange exchange = ended(*a == 'y'   ? SHED_EXCHANGE_YES
                                              : *a == 'n' ? SHED_EXCHANGE_NO
                                              : *a == 'f' ? SHED_EXCHANGE_FAILED
                                                          : SHED_EXCHANGE_WRONG,
                                              1, 1);
        shed_tally_add(&tally, &exchange);
    }
    return shed_tally_verdict(&tally);
}

static enum shed_verdict count(const char *answers)
{
    return count_of(SHED_LOCK_OP_ACQUIRE, answers);
}

TEST(a_bare_majority_of_which_one_is_silent_is_not_lost_yet)
{
    ck_assert_int_eq(count_of(SHED_LOCK_OP_EXTEND, "yynnf"),
                     SHED_VERDICT_FAILED);
    ck_assert_int_eq(count_of(SHED_LOCK_OP_EXTEND, "yynn"), SHED_VERDICT_OPEN);
    ck_assert_int_eq(count_of(SHED_LOCK_OP_EXTEND, "yynnn"), SHED_VERDICT_NO);
    ck_assert_int_eq(count_of(SHED_LOCK_OP_RELEASE, "ynfff"),
                     SHED_VERDICT_FAILED);
}

/* With a lease of a second. */
TEST(a_server_that_restarted_neither_grants_nor_lacks_a_lock)
{
    const struct shed_lock_options second = {.lease_ms = 1000};
    const struct shed_lock_spec mine = {.options = &second};
    struct shed_exchange e = {.op = SHED_LOCK_OP_EXTEND,
                              .spec = &mine,
                              .end = SHED_EXCHANGE_NO,
                              .is_absent = true};

    ck_assert(!shed_quorum_is_void(5, &e, false, 999));
    ck_assert(shed_quorum_is_void(5, &e, true, 999));
    ck_assert(!shed_quorum_is_void(5, &e, true, 1000));
    ck_assert(!shed_quorum_is_void(1, &e, true, 999));
    ck_assert(shed_quorum_is_void(5, &e, true, SHED_AGE_UNKNOWN));
    ck_assert(!shed_quorum_is_void(1, &e, true, SHED_AGE_UNKNOWN));
    e.is_absent = false; /* another has it */
    ck_assert(!shed_quorum_is_void(5, &e, true, 999));
    e.end = SHED_EXCHANGE_YES; /* it restarted with its data */
    ck_assert(!shed_quorum_is_void(5, &e, true, 999));
    e.op = SHED_LOCK_OP_ACQUIRE;
    ck_assert(shed_quorum_is_void(5, &e, false, 999));
    ck_assert(!shed_quorum_is_void(5, &e, false, SHED_AGE_UNKNOWN));
    ck_assert(shed_quorum_is_void(5, &e, true, SHED_AGE_UNKNOWN));
    ck_assert(shed_quorum_is_void(5, &e, true, 999));
    ck_assert(!shed_quorum_is_void(5, &e, true, 1000));
    e.end = SHED_EXCHANGE_NO;
    ck_assert(!shed_quorum_is_void(5, &e, true, 999));
}

TEST(a_verdict_comes_as_soon_as_it_can_and_no_sooner)
{
    ck_assert_int_eq(count(""), SHED_VERDICT_OPEN);
    ck_assert_int_eq(count("yy"), SHED_VERDICT_OPEN);
    ck_assert_int_eq(count("yyy"), SHED_VERDICT_YES);
    ck_assert_int_eq(count("yynn"), SHED_VERDICT_OPEN);
    ck_assert_int_eq(count("yynny"), SHED_VERDICT_YES);
    ck_assert_int_eq(count("nnn"), SHED_VERDICT_NO);
    ck_assert_int_eq(count("ff"), SHED_VERDICT_OPEN);
    ck_assert_int_eq(count("fff"), SHED_VERDICT_FAILED);
    ck_assert_int_eq(count("fffnn"), SHED_VERDICT_FAILED);
    ck_assert_int_eq(count("ffn"), SHED_VERDICT_NO);
    ck_assert_int_eq(count("www"), SHED_VERDICT_WRONG);
    ck_assert_int_eq(count("wwf"), SHED_VERDICT_FAILED);
}

TEST(a_tally_keeps_the_highest_number_and_the_soonest_look)
{
    struct shed_tally tally = {.op = SHED_LOCK_OP_ACQUIRE, .servers = 5};
    const struct shed_exchange exchanges[] = {
        ended(SHED_EXCHANGE_YES, 9, 0), ended(SHED_EXCHANGE_YES, 7, 0),
        ended(SHED_EXCHANGE_NO, 0, 50), ended(SHED_EXCHANGE_NO, 0, 20)};

    for (size_t i = 0; i < sizeof(exchanges) / sizeof(*exchanges); i++)
        shed_tally_add(&tally, &exchanges[i]);
    ck_assert_uint_eq(tally.fence, 9);
    ck_assert_uint_eq(tally.look_ms, 20);
    shed_tally_close(&tally, "silent");
    ck_assert_uint_eq(tally.ended[SHED_EXCHANGE_FAILED], 1);
    ck_assert_str_eq(tally.error.reason, "silent");
}

TEST(a_lease_is_safe_for_less_than_it_lasts)
{
    struct shed_exchange exchange = {
        .spec = &specs[EXPIRE], .asked_ms = 1000, .lease_ms = 30000};

    ck_assert_uint_eq(shed_lock_valid_until_ms(&exchange), 1000 + 30000 - 302);
    exchange.lease_ms = 2;
    ck_assert_uint_eq(shed_lock_valid_until_ms(&exchange), 1000);
    exchange.spec = &specs[SETNX];
    ck_assert_uint_eq(shed_lock_valid_until_ms(&exchange), UINT64_MAX);
    ck_assert_uint_eq(shed_quorum_patience_ms(5, 30000, 1000), 1000);
    ck_assert_uint_eq(shed_quorum_patience_ms(5, 10000, 1000), 500);
    ck_assert_uint_eq(shed_quorum_patience_ms(5, 10, 1000), 10);
    ck_assert_uint_eq(shed_quorum_patience_ms(1, 10, 1000), UINT64_MAX);
}

/* ---------------------------------------------------------------- replicas */

TEST(only_what_enough_replicas_have_is_confirmed)
{
    static const struct {
        struct shed_error error;
        bool is_there;
        uint64_t count;
        enum shed_exchange_end end;
        const char *reason;
    } rows[] = {
        {.is_there = true, .count = 2, .end = SHED_EXCHANGE_YES},
        {.is_there = true, .count = 3, .end = SHED_EXCHANGE_YES},
        {.is_there = true,
         .count = 1,
         .end = SHED_EXCHANGE_FAILED,
         .reason = "2 replicas must acknowledge the lock, and 1 did within 7 "
                   "ms"},
        /* by a server that has taken the place of the one that granted it */
        {.count = 2,
         .end = SHED_EXCHANGE_FAILED,
         .reason = "Redis had lost the lock before its replicas had it"},
        {.error = {SHED_EREDIS, "gone"},
         .is_there = true,
         .count = 2,
         .end = SHED_EXCHANGE_FAILED,
         .reason = "gone"},
        {.error = {SHED_EDENIED, "no"},
         .is_there = true,
         .end = SHED_EXCHANGE_WRONG,
         .reason = "no"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct shed_exchange exchange = {.fence = 5};
        const struct shed_ack ack = {.replicas = 2,
                                     .timeout_ms = 7,
                                     .error = rows[i].error,
                                     .is_there = rows[i].is_there,
                                     .count = rows[i].count};
        shed_exchange_on_ack(&exchange, &ack);
        ck_assert_int_eq(exchange.end, rows[i].end);
        if (rows[i].reason != NULL)
            ck_assert_str_eq(exchange.error.reason, rows[i].reason);
        ck_assert_uint_eq(exchange.fence, 5);
    }
}

int main(void)
{
    return run_tests("lock protocol");
}
