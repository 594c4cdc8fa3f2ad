/* A lock on five servers: what a majority can do, and a minority cannot. */
#include <string.h>

#include "support/bare.h"
#include "support/lock_fixture.h"

enum { SERVERS = 5, MAJORITY = 3, LEASE_MS = 1000, LONG_LEASE_MS = 3000 };

/* Longer than a server is silent on a busy machine. */
enum { SILENCE_MS = 3000 };

/* The server whose clock is set. */
enum { CLOCKED = 2 };

static struct server servers[SERVERS];

/* One process's clients and lock. */
struct quorum {
    struct shed_client *clients[SERVERS];
    struct shed_lock *lock;
};

static void quorum_open(struct quorum *q, const struct shed_lock_options *o)
{
    struct shed_client_options co = bare_client();
    struct shed_error err;

    co.command_timeout_ms = SILENCE_MS;
    for (unsigned i = 0; i < SERVERS; i++)
        EXPECT_OK(shed_client_open(servers[i].uri, &co, &q->clients[i], NULL));
    ck_assert_msg(shed_lock_open_quorum(q->clients, SERVERS,
                                        shed_str(LOCK_NAME), o, &q->lock,
                                        &err) == SHED_OK,
                  "%s", err.reason);
}

/* Nothing, if it is not open. */
static void quorum_close(struct quorum *q)
{
    shed_lock_close(q->lock);
    for (unsigned i = 0; i < SERVERS; i++)
        shed_client_close(q->clients[i]);
    *q = (struct quorum){0};
}

static struct quorum a, b; /* with a short lease */
static struct quorum c, d; /* opened by some tests */

static void set_up(void)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    for (unsigned i = 0; i < SERVERS; i++) {
        servers[i] = (struct server){.has_clock = true, .is_old = true};
        server_start(&servers[i]);
    }
    o.lease_ms = LEASE_MS;
    o.on_lost = count_loss;
    quorum_open(&a, &o);
    quorum_open(&b, &o);
}

static void tear_down(void)
{
    quorum_close(&a);
    quorum_close(&b);
    quorum_close(&c);
    quorum_close(&d);
    for (unsigned i = 0; i < SERVERS; i++)
        server_stop(&servers[i]);
}

/* On how many of these servers the lock is held. */
static unsigned count_holding(unsigned first, unsigned last)
{
    unsigned count = 0;

    for (unsigned i = first; i <= last; i++)
        count += server_int(&servers[i], "EXISTS %s", LEASE_KEY) == 1;
    return count;
}

static unsigned long age_s(unsigned i)
{
    char text[32];

    server_info(&servers[i], "uptime_in_seconds", text, sizeof(text));
    return strtoul(text, NULL, 10);
}

/* b does not get the lock: others have it, or, on a slow machine, too many
 * servers have not answered in time. */
static void expect_refusal(uint64_t wait_ms)
{
    enum shed_code code = shed_lock_acquire(b.lock, wait_ms, NULL);

    ck_assert_msg(code == SHED_ETIMEDOUT || code == SHED_EREDIS, "%s",
                  shed_code_name(code));
}

TEST(one_of_two_gets_it_and_leaves_nothing_behind)
{
    struct waiter w;

    acquire(a.lock, PLENTY_MS);
    expect_refusal(0);
    WAIT_FOR(count_holding(0, SERVERS - 1) >= MAJORITY);
    waiter_start(&w, b.lock, PLENTY_MS);
    release(a.lock);
    waiter_join(&w);
    EXPECT_OK(w.code);
    EXPECT_OK(w.release_code);
    WAIT_FOR(count_holding(0, SERVERS - 1) == 0);
}

/* A server that is younger than a lease may have granted a lock before, and
 * have forgotten it. */
TEST(no_lock_before_the_servers_are_old_enough)
{
    enum { HOUR_MS = 3600000 }; /* longer than they can take to start */
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    unsigned old = 0;

    for (unsigned i = 0; i < SERVERS; i++) {
        server_kill(&servers[i]);
        server_start_again(&servers[i]);
    }
    o.lease_ms = HOUR_MS;
    quorum_open(&c, &o);
    expect_acquire(c.lock, 0, SHED_EREDIS);
    quorum_close(&c);
    acquire(a.lock, PLENTY_MS);
    for (unsigned i = 0; i < SERVERS; i++)
        old += age_s(i) >= LEASE_MS / 1000;
    ck_assert_uint_ge(old, MAJORITY);
}

TEST(two_of_five_can_be_frozen)
{
    acquire(a.lock, PLENTY_MS);
    release(a.lock);
    server_freeze(&servers[0]);
    server_freeze(&servers[3]);
    acquire(a.lock, PLENTY_MS);
    expect_refusal(0);
    EXPECT_OK(shed_lock_extend(a.lock, 0, NULL));
    release(a.lock);
    acquire(b.lock, PLENTY_MS);
    release(b.lock);
    server_thaw(&servers[0]);
    server_thaw(&servers[3]);
    WAIT_FOR(count_holding(0, SERVERS - 1) == 0);
}

TEST(without_a_majority_nobody_gets_it)
{
    acquire(a.lock, PLENTY_MS);
    release(a.lock);
    for (unsigned i = 0; i < MAJORITY; i++)
        server_kill(&servers[i]);
    expect_acquire(a.lock, 0, SHED_EREDIS);
    expect_acquire(a.lock, 100, SHED_EREDIS);
    WAIT_FOR(count_holding(MAJORITY, SERVERS - 1) == 0);
}

TEST(a_majority_that_is_lost_is_a_lock_that_is_lost)
{
    acquire(a.lock, PLENTY_MS);
    for (unsigned i = 0; i < MAJORITY; i++)
        server_kill(&servers[i]);
    WAIT_FOR(atomic_load(&losses) == 1);
    ck_assert_int_eq(shed_lock_is_mine(a.lock), 0);
}

/* Open with a lease that nobody renews. */
static void open_long(struct quorum *q, unsigned lease_ms)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    o.lease_ms = lease_ms;
    o.watchdog_ms = 0;
    quorum_open(q, &o);
}

/* Returns: false if the lease has ended. */
static bool is_extended(struct quorum *q)
{
    enum shed_code code = shed_lock_extend(q->lock, 0, NULL);

    ck_assert_msg(code == SHED_OK || code == SHED_ELOST || code == SHED_EREDIS,
                  "%s", shed_code_name(code));
    return code != SHED_ELOST;
}

/* Wait until all servers have executed what was sent to them: between two
 * commands of one connection, a server reads all connections. */
static void settle(void)
{
    for (unsigned i = 0; i < 2 * SERVERS; i++)
        server_do(&servers[i % SERVERS], "ECHO 0");
}

/* Make all servers hold the lock. A slow one may not be among those that
 * granted it, but it is asked with each extension. */
static void hold_all(struct quorum *q)
{
    uint64_t end_ms = test_deadline_ms();

    acquire(q->lock, PLENTY_MS);
    while (count_holding(0, SERVERS - 1) < SERVERS) {
        ck_assert_msg(shed_now_ms() < end_ms, "some server does not grant it");
        usleep(10000);
        if (!is_extended(q))
            acquire(q->lock, PLENTY_MS);
    }
    settle(); /* a minority may be late */
}

static void release_all(struct quorum *q)
{
    release(q->lock);
    WAIT_FOR(count_holding(0, SERVERS - 1) == 0);
}

/* Set the record of another holder. */
static void occupy(unsigned i)
{
    static const char others[] =
        "LK1other---other---                                ";

    server_do(&servers[i], "SET %s %b PX 3600000", LEASE_KEY, others,
              sizeof(others) - 1);
}

/* Three other servers may have given their votes before both are connected. */
TEST(clients_of_one_server_are_no_quorum)
{
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);
    struct server second = servers[1];
    struct shed_error err;
    struct quorum q;

    servers[1] = servers[4];
    quorum_open(&q, &o);
    servers[1] = second;
    while (shed_lock_acquire(q.lock, PLENTY_MS, &err) == SHED_OK)
        EXPECT_OK(shed_lock_release(q.lock, NULL));
    EXPECT_CODE(err.code, SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "clients 1 and 4"));
    WAIT_FOR(count_holding(0, SERVERS - 1) == 0);
    quorum_close(&q);
}

TEST(nobody_extends_beyond_what_a_restart_respects)
{
    acquire(a.lock, PLENTY_MS);
    EXPECT_CODE(shed_lock_extend(a.lock, LEASE_MS + 1, NULL), SHED_EINVAL);
    /* on a slow machine this may fail, but not because of the length */
    ck_assert_int_ne(shed_lock_extend(a.lock, LEASE_MS, NULL), SHED_EINVAL);
    (void)!shed_lock_release(a.lock, NULL);
}

/* Another never gets the lock while its holder has it. */
static void keep_out(struct quorum *other, struct quorum *holder)
{
    while (shed_lock_is_mine(holder->lock))
        ck_assert(shed_lock_acquire(other->lock, 20, NULL) != SHED_OK ||
                  !shed_lock_is_mine(holder->lock));
}

/* The lock is held on 0, 1 and 2, and unknown to 3 and 4. Then 2 forgets it, so
 * that 2, 3 and 4 would be a majority. */
TEST(a_restarted_server_has_no_vote_for_a_lease)
{
    open_long(&c, LONG_LEASE_MS);
    open_long(&d, LONG_LEASE_MS);
    hold_all(&c);
    server_do(&servers[3], "DEL %s", LEASE_KEY);
    server_do(&servers[4], "DEL %s", LEASE_KEY);
    server_kill(&servers[2]);
    server_start_again(&servers[2]);
    keep_out(&d, &c);
}

/* Whether an extension reports a loss although the lease has not ended. */
static bool is_lost_early(struct quorum *q)
{
    uint64_t ends_ms = shed_now_ms() + shed_lock_remaining_ms(q->lock);

    return !is_extended(q) && shed_now_ms() < ends_ms;
}

/* The lock is held on 0, 1 and 2, and others have 3 and 4. Then 2 forgets it,
 * and can grant it to nobody until the lease has ended. */
TEST(a_bare_majority_of_which_one_restarts_empty_is_not_lost_yet)
{
    open_long(&c, LONG_LEASE_MS);
    hold_all(&c);
    occupy(3);
    occupy(4);
    server_kill(&servers[2]);
    server_start_again(&servers[2]);
    while (server_calls(&servers[2], "evalsha") == 0 &&
           shed_lock_remaining_ms(c.lock) > 0)
        ck_assert(!is_lost_early(&c));
    ck_assert(!is_lost_early(&c));
}

/* A minority that is frozen while the others continue. */
struct behind {
    long long calls, expired;
};

static long long expired_keys(unsigned i)
{
    char text[32];

    server_info(&servers[i], "expired_keys", text, sizeof(text));
    return strtoll(text, NULL, 10);
}

static void freeze_minority(struct behind behind[SERVERS])
{
    for (unsigned i = MAJORITY; i < SERVERS; i++) {
        behind[i] = (struct behind){server_calls(&servers[i], "evalsha"),
                                    expired_keys(i)};
        server_freeze(&servers[i]);
    }
}

/* Once thawed, each server executes what it was sent, and at least one more
 * command, which removes the lock before its lease ends. */
static void expect_minority_to_be_free(const struct behind behind[SERVERS])
{
    for (unsigned i = MAJORITY; i < SERVERS; i++)
        server_thaw(&servers[i]);
    for (unsigned i = MAJORITY; i < SERVERS; i++) {
        WAIT_FOR(server_calls(&servers[i], "evalsha") >= behind[i].calls + 2);
        WAIT_FOR(count_holding(i, i) == 0);
        ck_assert_int_eq(expired_keys(i), behind[i].expired);
    }
}

static void hold_majority(struct quorum *q)
{
    hold_all(q);
    for (unsigned i = MAJORITY; i < SERVERS; i++)
        server_do(&servers[i], "DEL %s", LEASE_KEY);
}

/* A bare majority would not survive the next failure of a server. (On a busy
 * machine a server may be silent, and is asked with the next extension; or the
 * lease may end.) */
TEST(servers_that_lost_it_grant_it_again)
{
    uint64_t end_ms = test_deadline_ms();

    open_long(&c, LONG_LEASE_MS);
    hold_majority(&c);
    while (count_holding(0, SERVERS - 1) < SERVERS) {
        ck_assert_msg(shed_now_ms() < end_ms, "only the majority has it");
        if (!is_extended(&c))
            hold_majority(&c);
        usleep(1000);
    }
    (void)!shed_lock_release(c.lock, NULL); /* the lease may have ended */
}

/* A lock that a server grants when nobody wants it any longer is released, even
 * if others have tried meanwhile. */
TEST(a_lock_that_is_granted_too_late_is_released)
{
    enum { TRIES = 3 };
    struct behind behind[SERVERS];

    open_long(&c, LONG_LEASE_MS);
    open_long(&d, LONG_LEASE_MS);
    hold_all(&d); /* now its connections exist */
    release_all(&d);
    hold_all(&c);
    for (unsigned i = MAJORITY; i < SERVERS; i++)
        server_do(&servers[i], "DEL %s", LEASE_KEY);
    freeze_minority(behind);
    for (unsigned i = 0; i < TRIES; i++)
        ck_assert_int_ne(shed_lock_acquire(d.lock, 0, NULL), SHED_OK);
    release(c.lock); /* its renewals would make the servers grant it again */
    expect_minority_to_be_free(behind);
}

enum { MANY = 30 };

/* How many of the threads that try at the same time are told that it is
 * held. */
static unsigned count_refused(struct shed_lock *lock)
{
    struct outcome outcomes[MANY] = {{0}};
    unsigned refused = 0;

    for (unsigned i = 0; i < MANY; i++)
        acquire_async(lock, 0, &outcomes[i]);
    for (unsigned i = 0; i < MANY; i++) {
        WAIT_FOR(atomic_load(&outcomes[i].calls) == 1);
        refused += atomic_load(&outcomes[i].code) == SHED_ETIMEDOUT;
    }
    /* the holder's lease may have ended */
    (void)!shed_lock_release(lock, NULL);
    return refused;
}

/* What one of them leaves behind must not make another report that Redis is
 * silent. (On a slow machine Redis may really be silent.) */
TEST(many_simultaneous_tries_are_told_that_it_is_held)
{
    uint64_t end_ms = test_deadline_ms();

    open_long(&c, LONG_LEASE_MS);
    open_long(&d, LONG_LEASE_MS);
    hold_all(&d); /* now its connections exist */
    release_all(&d);
    do {
        ck_assert_msg(shed_now_ms() < end_ms, "most hear of no holder");
        hold_all(&c);
    } while (count_refused(d.lock) <= MANY * 2 / 3);
}

/* The release is sent after the renewal under way, and finds the lock. */
TEST(a_release_during_a_renewal_is_a_release)
{
    enum { PAUSE_MS = 100 };
    struct waiter w;

    open_long(&c, LONG_LEASE_MS);
    hold_all(&c); /* now the connections exist */
    release_all(&c);
    acquire_for_all(c.lock);
    for (unsigned i = 0; i < SERVERS; i++)
        server_do(&servers[i], "CLIENT PAUSE %d WRITE", PAUSE_MS);
    extender_start(&w, c.lock, 0);
    usleep(PAUSE_MS * 1000 / 4); /* now it is under way */
    ck_assert_int_ne(shed_lock_release(c.lock, NULL), SHED_ELOST);
    waiter_join(&w);
    WAIT_FOR(count_holding(0, SERVERS - 1) == 0);
}

/* ------------------------------------------------------------------ clocks */

enum { MINUTE_S = 60 };

/* On one server the lease ends at once; the others are still a majority. */
TEST(a_clock_that_jumps_on_one_server_lets_nobody_else_in)
{
    open_long(&c, LONG_LEASE_MS);
    open_long(&d, LONG_LEASE_MS);
    hold_all(&c);
    server_skew(&servers[CLOCKED], MINUTE_S);
    ck_assert_uint_eq(count_holding(CLOCKED, CLOCKED), 0);
    keep_out(&d, &c);
}

/* Whether a second holder was let in during the first one's lease. */
static bool has_two_holders(struct quorum *first, struct quorum *second)
{
    bool are_two;

    hold_majority(first);
    server_skew(&servers[CLOCKED], MINUTE_S);
    are_two = shed_lock_acquire(second->lock, PLENTY_MS, NULL) == SHED_OK &&
              shed_lock_is_mine(first->lock) == 1;
    server_skew(&servers[CLOCKED], 0);
    return are_two;
}

/* What no lock in Redis can exclude. The tokens tell who was later, as they do
 * after the clock has been set back. (On a busy machine the first lease may end
 * before the second holder is in; a defect is there with any.) */
TEST(a_clock_that_jumps_in_a_bare_majority_lets_in_a_later_token)
{
    enum { FACTOR = 3, LONGEST_MS = 27 * LONG_LEASE_MS };
    unsigned lease_ms = LONG_LEASE_MS;
    bool are_two = false;
    uint64_t later;

    for (; !are_two; lease_ms *= FACTOR) {
        ck_assert_uint_le(lease_ms, LONGEST_MS);
        open_long(&c, lease_ms);
        open_long(&d, lease_ms);
        are_two = has_two_holders(&c, &d);
        if (are_two) {
            later = fence_of(d.lock);
            ck_assert_uint_gt(later, fence_of(c.lock));
            release(d.lock);
            quorum_close(&c);
            open_long(&c, lease_ms);
            acquire(c.lock, PLENTY_MS);
            ck_assert_uint_gt(fence_of(c.lock), later);
        }
        quorum_close(&c);
        quorum_close(&d);
    }
}

static bool will_start_later(unsigned i)
{
    char text[32];

    server_info(&servers[i], "uptime_in_seconds", text, sizeof(text));
    return *text == '-';
}

/* Their clocks were ahead when they restarted, and were then set: by those they
 * will be started in a minute. */
TEST(restarted_servers_whose_clocks_are_set_back_have_no_vote)
{
    enum { HOUR_MS = 3600000 }; /* longer than they can take to start */
    struct shed_lock_options o = options_of(SHED_LOCK_LEASE);

    for (unsigned i = 0; i < MAJORITY; i++) {
        server_kill(&servers[i]);
        server_skew(&servers[i], MINUTE_S);
        server_start_again(&servers[i]);
        server_skew(&servers[i], 0);
        WAIT_FOR(will_start_later(i));
    }
    o.lease_ms = HOUR_MS;
    quorum_open(&c, &o);
    expect_acquire(c.lock, 0, SHED_EREDIS);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("quorum");
}
