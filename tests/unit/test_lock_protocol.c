/* The counting of a majority, and what the numbers of a lease and of replicas
 * mean. (The commands of the algorithms are tested by test_lock_model and
 * test_lock_sim.) */
#include <string.h>

#include "lock/quorum.h"
#include "support/testing.h"

static const struct shed_lock_spec setnx = {.algorithm = &shed_lock_setnx},
                                   expire = {.algorithm = &shed_lock_expire};

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
    struct shed_exchange e = {
        .op = SHED_LOCK_OP_EXTEND, .spec = &mine, .end = SHED_EXCHANGE_NO};

    ck_assert(!shed_quorum_is_void(5, &e, false, 999));
    ck_assert(shed_quorum_is_void(5, &e, true, 999));
    ck_assert(!shed_quorum_is_void(5, &e, true, 1000));
    ck_assert(!shed_quorum_is_void(1, &e, true, 999));
    ck_assert(shed_quorum_is_void(5, &e, true, SHED_AGE_UNKNOWN));
    ck_assert(!shed_quorum_is_void(1, &e, true, SHED_AGE_UNKNOWN));
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
        .spec = &expire, .asked_ms = 1000, .lease_ms = 30000};

    ck_assert_uint_eq(shed_lock_valid_until_ms(&exchange), 1000 + 30000 - 302);
    exchange.lease_ms = 2;
    ck_assert_uint_eq(shed_lock_valid_until_ms(&exchange), 1000);
    exchange.spec = &setnx;
    ck_assert_uint_eq(shed_lock_valid_until_ms(&exchange), UINT64_MAX);
    ck_assert_uint_eq(shed_quorum_patience_ms(5, 30000, 1000), 1000);
    ck_assert_uint_eq(shed_quorum_patience_ms(5, 10000, 1000), 500);
    ck_assert_uint_eq(shed_quorum_patience_ms(5, 10, 1000), 10);
    ck_assert_uint_eq(shed_quorum_patience_ms(1, 10, 1000), UINT64_MAX);
}

/* ------------------------------------------------------- SETNX and PEXPIRE */

static struct shed_exchange begin_expire(const struct shed_lock_spec *spec)
{
    return (struct shed_exchange){.spec = spec,
                                  .op = SHED_LOCK_OP_ACQUIRE,
                                  .seen.since_ms = 5,
                                  .lease_ms = 1000,
                                  .now_ms = 6};
}

static bool answer(struct shed_exchange *e, const char *command,
                   struct shed_reply reply)
{
    struct shed_args args = {0};

    ck_assert(e->spec->algorithm->next_command(e, &args));
    ck_assert_str_eq(args.at[0], command);
    return e->spec->algorithm->on_reply(e, &reply);
}

static struct shed_reply integer(long long number)
{
    return (struct shed_reply){.type = SHED_REPLY_INTEGER, .integer = number};
}

static const struct shed_lock_spec expire_k = {.key = {{"k", 1}},
                                               .algorithm = &shed_lock_expire};

TEST(a_lock_that_is_removed_before_its_expiry_is_not_anothers)
{
    struct shed_exchange e = begin_expire(&expire_k);

    ck_assert(answer(&e, "SETNX", integer(1)));
    ck_assert(!answer(&e, "PEXPIRE", integer(0)));
    ck_assert_int_eq(e.end, SHED_EXCHANGE_FAILED);
    EXPECT_CODE((int)e.error.code, SHED_EREDIS);
}

TEST(a_lock_that_has_vanished_was_not_seen)
{
    struct shed_exchange e = begin_expire(&expire_k);

    ck_assert(answer(&e, "SETNX", integer(0)));
    ck_assert(answer(&e, "PTTL", integer(-1)));
    ck_assert(!answer(&e, "GET", (struct shed_reply){.type = SHED_REPLY_NIL}));
    ck_assert_int_eq(e.end, SHED_EXCHANGE_NO);
    ck_assert_uint_eq(e.seen.since_ms, 0);
}

/* --------------------------------------------------------------- timestamps */

TEST(after_a_renewal_without_an_answer_either_time_is_renewed)
{
    static const char *const times[] = {"2000", "3000"};
    const struct shed_lock_options options = {.algorithm = SHED_LOCK_TIMESTAMP};
    const struct shed_lock_spec spec = {.key = {{"k", 1}},
                                        .options = &options,
                                        .algorithm = &shed_lock_timestamp};

    for (size_t i = 0; i < COUNT_OF(times); i++) {
        struct shed_exchange e = {
            .spec = &spec,
            .op = SHED_LOCK_OP_EXTEND,
            .holder = {.expires = 2000, .pending_expires = 3000},
            .lease_ms = 1000,
            .wall_ms = 1500};
        const struct shed_reply there = {.type = SHED_REPLY_STRING,
                                         .text = (char *)(uintptr_t)times[i],
                                         .size = strlen(times[i])};
        struct shed_args look = {0}, swap = {0};
        ck_assert(spec.algorithm->next_command(&e, &look));
        ck_assert_str_eq(look.at[0], "GET");
        ck_assert(spec.algorithm->on_reply(&e, &there));
        ck_assert(spec.algorithm->next_command(&e, &swap));
        ck_assert_str_eq(swap.at[4], times[i]);
    }
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
