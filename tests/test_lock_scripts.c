/* lock_acquire.lua, asked by a test that plays the processes: when a holder is
 * taken for dead. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "redis/push.h"
#include "redis/script.h"
#include "server.h"
#include "testing.h"

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

/* Whether token has the lock now. */
static bool acquire(const char *token, const char *process, const char *run)
{
    const struct shed_script_text *script =
        &shed_script_texts[SHED_SCRIPT_LOCK_ACQUIRE];
    redisReply *whole = server_run(
        &server, "EVAL %b 4 %s %s:f %s:s %s:w %s %s %s %d %d handle 1",
        script->text, script->size, KEY, KEY, KEY, KEY, token, process, run,
        LEASE_MS, GRACE_MS);
    const redisReply *reply;
    bool is_held;

    ck_assert_int_eq(whole->type, REDIS_REPLY_ARRAY);
    reply = whole->element[1];
    is_held = strcmp(reply->element[0]->str, "HELD") == 0;
    if (!is_held)
        ck_assert_str_eq(reply->element[0]->str, "TAKEN");
    freeReplyObject(whole);
    return is_held;
}

static bool try_other(void)
{
    return acquire(OTHER, BLANKS, BLANKS);
}

static void pass_grace(void)
{
    usleep((GRACE_MS + MARGIN_MS) * 1000);
}

/* At the next look after the grace, or where all is slow, a later one. */
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

START_TEST(who_is_absent_for_the_grace_is_gone)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    expect_gone();
}
END_TEST

START_TEST(who_is_there_stays)
{
    redisContext *c = subscribe();

    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    pass_grace();
    ck_assert(!try_other());
    redisFree(c);
}
END_TEST

/* Absent at the first and the last look, but not between. */
START_TEST(who_was_seen_meanwhile_is_not_gone_yet)
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
END_TEST

/* The suspicion was of the one before. */
START_TEST(another_holder_is_suspected_anew)
{
    ck_assert(acquire(HOLDER, PROCESS, run_id));
    ck_assert(!try_other());
    server_do(&server, "DEL " KEY);
    ck_assert(acquire("holder2-holder2-", PROCESS, run_id));
    pass_grace();
    ck_assert(!try_other());
    expect_gone();
}
END_TEST

/* Since the server restarted nobody is there, until he has come back. */
START_TEST(who_was_there_on_another_run_is_not_gone)
{
    ck_assert(acquire(HOLDER, PROCESS, "another--another"));
    ck_assert(!try_other());
    pass_grace();
    ck_assert(!try_other());
}
END_TEST

START_TEST(who_never_was_there_is_not_gone)
{
    ck_assert(acquire(HOLDER, BLANKS, BLANKS));
    ck_assert(!try_other());
    pass_grace();
    ck_assert(!try_other());
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("lock scripts");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, who_is_absent_for_the_grace_is_gone);
    tcase_add_test(tc, who_is_there_stays);
    tcase_add_test(tc, who_was_seen_meanwhile_is_not_gone_yet);
    tcase_add_test(tc, another_holder_is_suspected_anew);
    tcase_add_test(tc, who_was_there_on_another_run_is_not_gone);
    tcase_add_test(tc, who_never_was_there_is_not_gone);
    return run_tests("lock scripts", tc);
}
