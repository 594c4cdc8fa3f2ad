/* The scripts of LEASE, called by a test that plays the processes: when a
 * holder is taken for dead, and what the scripts do without memory. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wire/script.h"
#include "redis/session.h"
#include "support/server.h"
#include "support/testing.h"

#define KEY "lock:{job}"
#define HOLDER "holder--holder--"
#define OTHER "other---other---"
#define PROCESS "0123456789abcdef"
#define BLANKS "                "

enum { LEASE_MS = 3600000, GRACE_MS = 300, MARGIN_MS = 20 };

static struct server server;
static char run_id[SHED_RUN_BYTES + 1];

static void set_up(void)
{
    server = (struct server){0};
    server_start(&server);
    server_info(&server, "run_id", run_id, sizeof(run_id));
}

static void tear_down(void)
{
    server_stop(&server);
}

/* A script's own answer, without the call's number in front of it. */
static redisReply *answer_of(redisReply *whole)
{
    redisReply *answer;

    if (whole->type == REDIS_REPLY_ERROR)
        return whole;
    ck_assert_int_eq(whole->type, REDIS_REPLY_ARRAY);
    ck_assert_uint_eq(whole->elements, 2);
    answer = whole->element[1];
    whole->element[1] = NULL;
    freeReplyObject(whole);
    return answer;
}

static redisReply *run_acquire(const char *token, const char *process,
                               const char *run)
{
    const struct shed_script_text *script =
        &shed_script_texts[SHED_SCRIPT_LOCK_ACQUIRE];

    return answer_of(server_run(
        &server, "EVAL %b 4 %s %s:f %s:s %s:w %s %s %s %d %d handle 1",
        script->text, script->size, KEY, KEY, KEY, KEY, token, process, run,
        LEASE_MS, GRACE_MS));
}

static bool was_granted(redisReply *reply)
{
    bool is_held;

    ck_assert_int_eq(reply->type, REDIS_REPLY_ARRAY);
    is_held = strcmp(reply->element[0]->str, "HELD") == 0;
    if (!is_held)
        ck_assert_str_eq(reply->element[0]->str, "TAKEN");
    freeReplyObject(reply);
    return is_held;
}

/* Whether token has the lock now. */
static bool acquire(const char *token, const char *process, const char *run)
{
    return was_granted(run_acquire(token, process, run));
}

static bool try_other(void)
{
    return acquire(OTHER, BLANKS, BLANKS);
}

static void pass_grace(void)
{
    usleep((GRACE_MS + MARGIN_MS) * 1000);
}

/* At the next look after the grace, or at a later one on a slow machine. */
static void expect_gone(void)
{
    uint64_t end_ms = test_deadline_ms();

    do {
        ck_assert_uint_lt(shed_now_ms(), end_ms);
        pass_grace();
    } while (!try_other());
}

static bool has_subscriber(void)
{
    redisReply *reply =
        server_run(&server, "PUBSUB NUMSUB snowshed:process:" PROCESS);
    bool has = reply->element[1]->integer > 0;

    freeReplyObject(reply);
    return has;
}

static void wait_for_subscriber(bool wanted)
{
    uint64_t end_ms = test_deadline_ms();

    while (has_subscriber() != wanted) {
        ck_assert_uint_lt(shed_now_ms(), end_ms);
        usleep(1000);
    }
}

static redisContext *subscribe(void)
{
    redisContext *c = redisConnectUnix(server.socket);

    ck_assert(c != NULL && c->err == 0);
    freeReplyObject(redisCommand(c, "SUBSCRIBE snowshed:process:" PROCESS));
    wait_for_subscriber(true);
    return c;
}

static void unsubscribe(redisContext *c)
{
    redisFree(c);
    wait_for_subscriber(false);
}

TEST(a_holder_absent_for_the_grace_is_gone)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    expect_gone();
}

TEST(a_present_holder_stays)
{
    redisContext *c = subscribe();

    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    pass_grace();
    ck_assert(!try_other());
    redisFree(c);
}

/* Absent at the first and the last look, but not between. */
TEST(a_holder_seen_meanwhile_is_not_gone_yet)
{
    redisContext *c;

    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    c = subscribe();
    ck_assert(!try_other());
    unsubscribe(c);
    pass_grace();
    ck_assert(!try_other());
    expect_gone();
}

/* The suspicion was about the previous holder. */
TEST(another_holder_gets_a_suspicion_of_its_own)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    server_do(&server, "DEL " KEY);
    ck_assert(acquire("holder2-holder2-", PROCESS, run_id));
    pass_grace();
    ck_assert(!try_other());
    expect_gone();
}

/* A mark that was written before the step seems to live for longer than it may,
 * here by an hour. */
TEST(a_clock_that_is_set_back_costs_a_suspicion_one_grace)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    server_do(&server, "PEXPIRE " KEY ":s 3600000");
    ck_assert(!try_other());
    ck_assert_int_lt(server_int(&server, "PTTL " KEY ":s"), 3600000 / 2);
    expect_gone();
}

/* After a restart of the server nobody is subscribed until the holder has
 * returned. */
TEST(a_holder_present_on_another_run_is_not_gone)
{
    ck_assert(acquire(HOLDER, PROCESS, "another--another"));
    ck_assert(!try_other());
    pass_grace();
    ck_assert(!try_other());
}

TEST(a_holder_that_was_never_present_is_not_gone)
{
    ck_assert(acquire(HOLDER, BLANKS, BLANKS));
    ck_assert(!try_other());
    pass_grace();
    ck_assert(!try_other());
}

/* ------------------------------------------------------------- dead waiters */

#define QUEUE KEY ":q"
#define WAITS_MS "9000000000000"

static void enlist(const char *token, const char *process)
{
    server_do(&server, "ZADD " QUEUE " 1 %s%s" WAITS_MS, token, process);
}

static redisReply *run_acquire_fair(void)
{
    const struct shed_script_text *script =
        &shed_script_texts[SHED_SCRIPT_LOCK_ACQUIRE];

    return answer_of(server_run(
        &server,
        "EVAL %b 5 %s %s:f %s:s %s:q %s:o %s %s %s %d %d " WAITS_MS " 1",
        script->text, script->size, KEY, KEY, KEY, KEY, KEY, OTHER, BLANKS,
        BLANKS, LEASE_MS, GRACE_MS));
}

static bool acquire_fair(void)
{
    return was_granted(run_acquire_fair());
}

/* Make a mark with a life of life_ms look age_ms old. */
static void age_mark(const char *mark, int life_ms, int age_ms)
{
    ck_assert_int_eq(
        server_int(&server, "PEXPIRE " KEY "%s %d", mark, life_ms - age_ms), 1);
}

enum { SUSPICION_LIFE_MS = 2 * GRACE_MS + 100 };

static void pass_suspicion(void)
{
    age_mark(":s", SUSPICION_LIFE_MS, GRACE_MS);
}

TEST(dead_waiters_cost_one_grace_however_many_they_are)
{
    enum { WAITERS = 40 };
    char token[24];

    for (int i = 0; i < WAITERS; i++) {
        snprintf(token, sizeof(token), "waiter--%08d", i);
        enlist(token, i % 2 ? PROCESS : "fedcba9876543210");
    }
    ck_assert(!acquire_fair());
    pass_suspicion();
    ck_assert(acquire_fair());
    ck_assert_int_eq(server_int(&server, "EXISTS " QUEUE), 0);
}

/* One mark serves for both suspicions, one after the other. */
TEST(a_dead_holder_s_lock_is_free_while_dead_waiters_are_found_out)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    enlist("waiter--waiter--", "fedcba9876543210");
    ck_assert(!acquire_fair());
    pass_suspicion();
    ck_assert(!acquire_fair());
    ck_assert_int_eq(server_int(&server, "EXISTS " KEY), 0);
    pass_suspicion();
    ck_assert(acquire_fair());
}

TEST(a_live_waiter_keeps_its_turn)
{
    redisContext *c = subscribe();

    enlist(HOLDER, PROCESS);
    ck_assert(!acquire_fair());
    ck_assert_int_eq(server_int(&server, "EXISTS " KEY ":s"), 0);
    ck_assert(!acquire_fair());
    redisFree(c);
}

TEST(a_waiter_that_comes_back_within_the_grace_keeps_its_turn)
{
    redisContext *c;

    enlist(HOLDER, PROCESS);
    ck_assert(!acquire_fair());
    pass_suspicion();
    c = subscribe();
    ck_assert(!acquire_fair());
    unsubscribe(c);
    ck_assert(!acquire_fair());
    ck_assert_int_eq(server_int(&server, "ZCARD " QUEUE), 2);
}

TEST(a_waiter_without_a_channel_loses_its_turn_when_it_does_not_take_it)
{
    enum { OFFER_MS = 250, OFFER_LIFE_MS = 10 * OFFER_MS };

    enlist(HOLDER, BLANKS);
    ck_assert(!acquire_fair());
    ck_assert_int_eq(server_int(&server, "EXISTS " KEY ":s"), 0);
    age_mark(":o", OFFER_LIFE_MS, OFFER_MS);
    ck_assert(acquire_fair());
}

/* Its members in the queue name no process. */
TEST(a_waiter_of_version_0_1_keeps_its_turn)
{
    enlist(HOLDER, "");
    ck_assert(!acquire_fair());
    ck_assert_int_eq(server_int(&server, "EXISTS " KEY ":s"), 0);
    ck_assert_int_eq(server_int(&server, "ZCARD " QUEUE), 2);
}

/* It joined before its process was subscribed, and leaves under its process's
 * name. */
TEST(a_waiter_that_gives_up_leaves_nothing_in_the_queue)
{
    const struct shed_script_text *script =
        &shed_script_texts[SHED_SCRIPT_LOCK_RELEASE];
    redisReply *reply;

    enlist(HOLDER, BLANKS);
    enlist(HOLDER, PROCESS);
    reply = answer_of(
        server_run(&server, "EVAL %b 2 %s %s:q %s handle " WAITS_MS " %s 1",
                   script->text, script->size, KEY, KEY, HOLDER, PROCESS));
    ck_assert_int_eq(reply->type, REDIS_REPLY_INTEGER);
    ck_assert_int_eq(reply->integer, 0);
    freeReplyObject(reply);
    ck_assert_int_eq(server_int(&server, "EXISTS " QUEUE), 0);
}

/* --------------------------------------------------------- without memory */

static bool extend(const char *token, const char *process, const char *run,
                   int lease_ms)
{
    const struct shed_script_text *script =
        &shed_script_texts[SHED_SCRIPT_LOCK_EXTEND];

    redisReply *reply = answer_of(
        server_run(&server, "EVAL %b 1 %s %s %s %s %d 1", script->text,
                   script->size, KEY, token, process, run, lease_ms));
    bool is_done = reply->integer == 1;

    ck_assert_msg(reply->type == REDIS_REPLY_INTEGER, "%s", reply->str);
    freeReplyObject(reply);
    return is_done;
}

static void expect_record(const char *token, const char *process,
                          const char *run)
{
    redisReply *reply = server_run(&server, "GET " KEY);
    char record[64];

    snprintf(record, sizeof(record), "LK1%s%s%s", token, process, run);
    ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
    ck_assert_str_eq(reply->str, record);
    freeReplyObject(reply);
}

TEST(without_memory_a_lock_is_extended_and_its_record_rewritten)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    server_do(&server, "PEXPIRE " KEY " 60000");
    server_do(&server, "CONFIG SET maxmemory 1");
    ck_assert(extend(HOLDER, PROCESS, run_id, LEASE_MS));
    ck_assert_int_gt(server_int(&server, "PTTL " KEY), LEASE_MS / 2);
    ck_assert(extend(HOLDER, BLANKS, BLANKS, LEASE_MS));
    expect_record(HOLDER, BLANKS, BLANKS);
    server_do(&server, "PEXPIRE " KEY " 60000");
    ck_assert(extend(HOLDER, PROCESS, run_id, 0));
    expect_record(HOLDER, PROCESS, run_id);
    ck_assert_int_le(server_int(&server, "PTTL " KEY), 60000);
    ck_assert_int_gt(server_int(&server, "PTTL " KEY), 0);
    ck_assert(!extend(OTHER, PROCESS, run_id, LEASE_MS));
}

TEST(what_is_not_renewed_keeps_its_end_when_its_record_is_rewritten)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    server_do(&server, "PERSIST " KEY);
    ck_assert(extend(HOLDER, BLANKS, BLANKS, 0));
    expect_record(HOLDER, BLANKS, BLANKS);
    ck_assert_int_eq(server_int(&server, "PTTL " KEY), -1);
}

TEST(without_memory_a_lock_that_is_held_is_taken_and_a_free_one_refused)
{
    redisReply *reply;

    ck_assert(acquire(HOLDER, PROCESS, run_id));
    server_do(&server, "CONFIG SET maxmemory 1");
    ck_assert(!try_other());
    ck_assert(acquire(HOLDER, PROCESS, run_id)); /* as if its reply was lost */
    server_do(&server, "DEL " KEY);
    reply = run_acquire(OTHER, BLANKS, BLANKS);
    ck_assert_int_eq(reply->type, REDIS_REPLY_ERROR);
    ck_assert_ptr_nonnull(strstr(reply->str, "OOM"));
    freeReplyObject(reply);
}

TEST(without_memory_the_lock_of_a_dead_holder_is_taken)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    server_do(&server, "CONFIG SET maxmemory 1");
    ck_assert(!try_other());
}

/* The first look sets a mark; the next one finds it. */
TEST(without_memory_a_fair_lock_of_a_dead_holder_is_taken)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    server_do(&server, "CONFIG SET maxmemory 1");
    ck_assert(!acquire_fair());
    ck_assert(!acquire_fair());
    ck_assert_int_eq(server_int(&server, "ZCARD " QUEUE), 1);
}

TEST(without_memory_the_first_waiter_keeps_its_place)
{
    redisReply *reply;

    enlist(OTHER, BLANKS);
    enlist("waiter--waiter--", BLANKS); /* with the same score: after it */
    server_do(&server, "CONFIG SET maxmemory 1");
    reply = run_acquire_fair();
    ck_assert_int_eq(reply->type, REDIS_REPLY_ERROR);
    ck_assert_ptr_nonnull(strstr(reply->str, "OOM"));
    freeReplyObject(reply);
    ck_assert_int_eq(server_int(&server, "ZCARD " QUEUE), 2);
    server_do(&server, "CONFIG SET maxmemory 0");
    ck_assert(acquire_fair());
    ck_assert_int_eq(server_int(&server, "ZCARD " QUEUE), 1);
}

TEST(without_memory_a_foreign_lock_is_taken)
{
    server_do(&server, "SET " KEY " foreign PX 60000");
    server_do(&server, "CONFIG SET maxmemory 1");
    ck_assert(!try_other());
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("lock scripts");
}
