/* The event of a release says how long that hold lasted, even if the handle's
 * next hold ends before the event is reported. */
#include <string.h>

#include <snowshed/event.h>

#include "lock/engine.h"
#include "support/bare.h"
#include "support/lock_fixture.h"

enum { HELD_US = 50000 };

static struct shed_client *client;
static struct shed_lock *lock;
static atomic_bool is_second; /* the next release is that of the second hold */

static struct { /* in the order of the events */
    atomic_size_t count;
    atomic_int kind[2];
    atomic_uint_fast64_t duration_us[2];
} told;

static void on_event(void *user, const struct shed_event *e)
{
    (void)user;
    if (e->kind != SHED_EVENT_LOCK_RELEASED && e->kind != SHED_EVENT_LOCK_LOST)
        return;
    ck_assert_uint_lt(told.count, 2);
    told.kind[told.count] = (int)e->kind;
    told.duration_us[told.count] = e->duration_us;
    told.count++;
}

static void *hold_for_a_moment(void *unused)
{
    (void)unused;
    acquire(lock, PLENTY_MS);
    release(lock);
    return NULL;
}

WRAPPED(shed_lock_ask_here);

/* Between the end of the first release and its event there is a complete
 * hold. */
bool __wrap_shed_lock_ask_here(struct shed_lock *l, struct shed_lock_request *r)
{
    bool is_over = __real_shed_lock_ask_here(l, r);
    pthread_t thread;

    if (r->op != SHED_LOCK_OP_RELEASE || atomic_exchange(&is_second, true))
        return is_over;
    start_thread(&thread, hold_for_a_moment, NULL);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    return is_over;
}

static void up(void)
{
    struct shed_client_options o = bare_client();

    server_up();
    o.on_event = on_event;
    o.command_timeout_ms = o.connect_timeout_ms = PLENTY_MS;
    EXPECT_OK(shed_client_open(server.uri, &o, &client, NULL));
    lock = open_lock(client, NULL);
}

static void down(void)
{
    shed_lock_close(lock);
    shed_client_close(client);
    server_down();
}

static void hold_for_long(void)
{
    uint64_t begin_us;

    acquire(lock, PLENTY_MS);
    begin_us = shed_now_us();
    while (shed_now_us() - begin_us < HELD_US)
        usleep(1000);
}

TEST(a_release_tells_how_long_its_own_hold_lasted)
{
    hold_for_long();
    release(lock);
    WAIT_FOR(told.count == 2);
    ck_assert_int_eq(told.kind[1], SHED_EVENT_LOCK_RELEASED);
    ck_assert_uint_ge(told.duration_us[1], HELD_US);
}

TEST(a_loss_tells_how_long_its_own_hold_lasted)
{
    hold_for_long();
    ck_assert_int_eq(server_int(&server, "DEL " LEASE_KEY), 1);
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    WAIT_FOR(told.count == 2);
    ck_assert_int_eq(told.kind[1], SHED_EVENT_LOCK_LOST);
    ck_assert_uint_ge(told.duration_us[1], HELD_US);
}

/* The loss is noticed in a caller's thread, and told after the next hold. */
TEST(a_loss_that_is_told_late_tells_the_duration_of_the_lost_hold)
{
    struct shed_lock_machine *m = &lock->machine;
    struct shed_lock_request next = {.op = SHED_LOCK_OP_RELEASE};
    uint64_t now_us;

    hold_for_long();
    shed_mutex_lock(&lock->mu);
    now_us = shed_now_us();
    m->hold.valid_until_ms = 0;
    shed_lock_machine_see_end(m, now_us);
    m->hold.is_held = true;
    m->hold.granted_us = now_us;
    shed_lock_machine_leave(m, &next, now_us);
    shed_lock_changed_locked(lock);
    shed_mutex_unlock(&lock->mu);
    WAIT_FOR(told.count == 1);
    ck_assert_int_eq(told.kind[0], SHED_EVENT_LOCK_LOST);
    ck_assert_uint_ge(told.duration_us[0], HELD_US);
    ck_assert_uint_eq(next.held_us, 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), up, down);
    return run_tests("lock durations");
}
