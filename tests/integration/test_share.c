/* LEASE and QUORUM share a lock with clients that set it with SET NX PX and a
 * token of their own: we wait for their locks and never touch them. Here the
 * test is the other client; test_share_clients.c has real ones. */
#include <snowshed/stats.h>

#include <stdio.h>
#include <string.h>

#include "support/lock_fixture.h"

enum { LEASE_MS = 1000, SERVERS = 3, LOOKS = 3 };

/* Tokens that clients write: npm's redlock, redis-py's Lock, redsync, some
 * script; and one that looks like a record of ours, but has another length. */
static const char *const tokens[] = {
    "9d1f4c52e16a4dcb84c1b1c1ed4be0a4",
    "\x9c\x01\xf4\xff\x80\x10\x07\x7f\x20\x9c\x01\xf4\xff\x80\x10\x07",
    "Jm9eUZIXA5Vx8S2qVNmPDA==",
    "1",
    "",
    "LK1holder--holder--0123456789abcdef0123456789abcde",
    "LK1holder--holder--0123456789abcdef0123456789abcdef0",
    "LK2holder--holder--0123456789abcdef0123456789abcdef"};

enum { TOKENS = sizeof(tokens) / sizeof(*tokens) };

static struct shed_client *client;
static struct shed_lock *lock, *other;

static struct shed_lock_options exact(enum shed_lock_algorithm algorithm)
{
    struct shed_lock_options o = options_of(algorithm);

    o.exact_key = 1;
    return o;
}

static void set_up(void)
{
    struct shed_lock_options o = exact(SHED_LOCK_LEASE);

    server_up();
    client = open_client(&server, SHED_WAIT_AUTO);
    lock = open_lock(client, &o);
    other = open_lock(client, &o);
}

static void tear_down(void)
{
    shed_lock_close(lock);
    shed_lock_close(other);
    server_down();
}

/* ------------------------------------------------------- the other client */

/* The two scripts that such clients have; both return 1 if the token is what
 * is at the key. */
#define RELEASE                                                                \
    "if redis.call('get', KEYS[1]) == ARGV[1] then "                           \
    "return redis.call('del', KEYS[1]) else return 0 end"
#define EXTEND                                                                 \
    "if redis.call('get', KEYS[1]) == ARGV[1] then "                           \
    "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"

/* ttl_ms 0: without an expiry. */
static bool their_acquire(const char *token, unsigned ttl_ms)
{
    redisReply *reply =
        ttl_ms == 0 ? server_run(&server, "SET %s %s NX", LOCK_NAME, token)
                    : server_run(&server, "SET %s %s NX PX %u", LOCK_NAME,
                                 token, ttl_ms);
    bool is_set = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return is_set;
}

static bool their_release(const char *token)
{
    return server_int(&server, "EVAL %s 1 %s %s", RELEASE, LOCK_NAME, token) ==
           1;
}

static bool their_extend(const char *token, unsigned ttl_ms)
{
    return server_int(&server, "EVAL %s 1 %s %s %u", EXTEND, LOCK_NAME, token,
                      ttl_ms) == 1;
}

/* Whether the key holds exactly this. */
static bool holds(const char *token)
{
    redisReply *reply = server_run(&server, "GET %s", LOCK_NAME);
    bool is_so = reply->str != NULL && reply->len == strlen(token) &&
                 memcmp(reply->str, token, reply->len) == 0;

    freeReplyObject(reply);
    return is_so;
}

static uint64_t tries_of(struct shed_lock *l)
{
    struct shed_lock_stats stats;

    EXPECT_OK(shed_lock_stats_read(l, &stats, sizeof(stats), NULL));
    return stats.tries;
}

/* Start a waiter, and return when it has looked a few times and still waits. */
static void start_waiting(struct waiter *w, struct shed_lock *l)
{
    waiter_start(w, l, PLENTY_MS);
    WAIT_FOR(tries_of(l) >= LOOKS || atomic_load(&w->has_ended));
    ck_assert_msg(!atomic_load(&w->has_ended), "%s", shed_code_name(w->code));
}

/* ------------------------------------------------------ they have it first */

TEST_EACH(a_lock_without_an_end_is_waited_for_until_its_release, 0, TOKENS)
{
    const char *token = tokens[_i];
    struct waiter w;

    ck_assert(their_acquire(token, 0));
    expect_acquire(lock, 0, SHED_ETIMEDOUT);
    start_waiting(&w, lock);
    ck_assert(holds(token));
    ck_assert_int_eq(server_int(&server, "PTTL %s", LOCK_NAME), -1);
    ck_assert(their_release(token));
    waiter_join(&w);
    EXPECT_OK(w.code);
    EXPECT_OK(w.release_code);
}

TEST(a_wait_ends_at_its_limit)
{
    ck_assert(their_acquire("a", 0));
    expect_acquire(lock, 50, SHED_ETIMEDOUT);
    ck_assert(holds("a"));
}

/* Its holder may have died. */
TEST(a_lock_that_ends_is_waited_for_until_then)
{
    ck_assert(their_acquire("a", 300));
    acquire(lock, PLENTY_MS);
    ck_assert(!holds("a"));
    ck_assert_int_eq(server_int(&server, "STRLEN %s", LOCK_NAME), 51);
    release(lock);
}

TEST(their_time_is_theirs)
{
    enum { TTL_MS = 10000000 };
    struct waiter w;

    ck_assert(their_acquire("a", TTL_MS));
    start_waiting(&w, lock);
    ck_assert_int_gt(server_int(&server, "PTTL %s", LOCK_NAME), TTL_MS / 2);
    ck_assert(their_extend("a", 2 * TTL_MS));
    ck_assert_int_gt(server_int(&server, "PTTL %s", LOCK_NAME), TTL_MS);
    ck_assert(their_release("a"));
    waiter_join(&w);
    EXPECT_OK(w.code);
}

/* The waiter's read is tracked, and it suspects nobody of having died. */
TEST(a_waiter_is_told_of_a_release)
{
    struct waiter w;
    char tracked[32];

    ck_assert(their_acquire("a", 0));
    start_waiting(&w, lock);
    server_info(&server, "tracking_total_keys", tracked, sizeof(tracked));
    ck_assert_str_ne(tracked, "0");
    ck_assert_int_eq(
        server_int(&server, "EXISTS lock:={%s}%s:s", LOCK_NAME, LOCK_NAME), 0);
    ck_assert(their_release("a"));
    waiter_join(&w);
    EXPECT_OK(w.code);
}

TEST(a_key_of_another_type_is_no_lock)
{
    server_do(&server, "RPUSH %s a", LOCK_NAME);
    expect_acquire(lock, 1000, SHED_EINVAL);
}

/* So the first in the queue does not lose its place because of a lock that it
 * could not take. */
TEST(an_offer_of_a_fair_lock_ends_when_they_take_it)
{
    struct shed_lock_options o = exact(SHED_LOCK_LEASE);
    struct shed_lock *fair;
    struct waiter w;

    o.fair = 1;
    fair = open_lock(client, &o);
    ck_assert(their_acquire("a", 0));
    start_waiting(&w, fair);
    ck_assert_int_eq(
        server_int(&server, "ZCARD lock:={%s}%s:q", LOCK_NAME, LOCK_NAME), 1);
    server_do(&server, "SET lock:={%s}%s:o somebody", LOCK_NAME, LOCK_NAME);
    WAIT_FOR(server_int(&server, "EXISTS lock:={%s}%s:o", LOCK_NAME,
                        LOCK_NAME) == 0);
    ck_assert(their_release("a"));
    waiter_join(&w);
    EXPECT_OK(w.code);
    shed_lock_close(fair);
}

/* ------------------------------------------------------- we have it first */

TEST(ours_is_no_business_of_theirs)
{
    for (unsigned i = 0; i < TOKENS; i++) {
        acquire(lock, 0);
        ck_assert(!their_acquire(tokens[i], LEASE_MS));
        ck_assert(!their_extend(tokens[i], 1));
        ck_assert(!their_release(tokens[i]));
        EXPECT_OK(shed_lock_extend(lock, 0, NULL));
        release(lock);
        ck_assert(their_acquire(tokens[i], 0));
        ck_assert(their_release(tokens[i]));
    }
}

/* Our lease ended, or somebody removed the lock, and they were next. */
TEST_EACH(what_is_theirs_now_is_lost, 0, TOKENS)
{
    acquire(lock, 0);
    server_do(&server, "DEL %s", LOCK_NAME);
    ck_assert(their_acquire(tokens[_i], 0));
    EXPECT_CODE(shed_lock_extend(lock, 0, NULL), SHED_ELOST);
    ck_assert(holds(tokens[_i]));
    ck_assert(their_release(tokens[_i]));
    acquire(lock, PLENTY_MS);
    server_do(&server, "DEL %s", LOCK_NAME);
    ck_assert(their_acquire(tokens[_i], 0));
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    ck_assert(holds(tokens[_i]));
    ck_assert_int_eq(server_int(&server, "PTTL %s", LOCK_NAME), -1);
}

/* Also with foreign holders in between. */
TEST(the_numbers_of_our_holders_grow)
{
    uint64_t first;

    acquire(lock, 0);
    first = fence_of(lock);
    release(lock);
    ck_assert(their_acquire("a", 0));
    ck_assert(their_release("a"));
    acquire(other, PLENTY_MS);
    ck_assert_uint_gt(fence_of(other), first);
    release(other);
}

/* ---------------------------------------------------------- several servers */

static struct server servers[SERVERS];

static struct shed_lock *open_quorum(struct shed_client **clients)
{
    struct shed_lock_options o = exact(SHED_LOCK_LEASE);
    struct shed_lock *quorum;

    o.lease_ms = LEASE_MS;
    for (unsigned i = 0; i < SERVERS; i++) {
        servers[i] = (struct server){.has_clock = true, .is_old = true};
        server_start(&servers[i]);
        clients[i] = open_client(&servers[i], SHED_WAIT_AUTO);
    }
    EXPECT_OK(shed_lock_open_quorum(clients, SERVERS, shed_str(LOCK_NAME), &o,
                                    &quorum, NULL));
    return quorum;
}

static void close_quorum(struct shed_lock *quorum, struct shed_client **clients)
{
    shed_lock_close(quorum);
    for (unsigned i = 0; i < SERVERS; i++) {
        close_client(clients[i]);
        server_stop(&servers[i]);
    }
}

/* A foreign minority is a try that failed or is under way: it does not keep us
 * out, and is left alone. */
TEST(a_quorum_counts_the_servers_that_they_do_not_have)
{
    struct shed_client *clients[SERVERS];
    struct shed_lock *quorum = open_quorum(clients);
    struct waiter w;

    server_do(&servers[0], "SET %s a", LOCK_NAME);
    acquire(quorum, PLENTY_MS);
    EXPECT_OK(shed_lock_extend(quorum, 0, NULL));
    release(quorum);
    ck_assert_int_eq(server_int(&servers[0], "STRLEN %s", LOCK_NAME), 1);
    WAIT_FOR(server_int(&servers[1], "EXISTS %s", LOCK_NAME) == 0);
    server_do(&servers[1], "SET %s a", LOCK_NAME);
    start_waiting(&w, quorum);
    ck_assert_int_eq(server_int(&servers[1], "STRLEN %s", LOCK_NAME), 1);
    server_do(&servers[0], "DEL %s", LOCK_NAME);
    waiter_join(&w);
    EXPECT_OK(w.code);
    ck_assert_int_eq(server_int(&servers[1], "STRLEN %s", LOCK_NAME), 1);
    close_quorum(quorum, clients);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("share");
}
