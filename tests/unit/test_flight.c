/* flight: each step of the slow path by itself; test_sim drives many at once.
 * A subject is a flight, a made-up clock, and the number of the last send. */
#include "flight/flight.h"

#include "support/testing.h"

#define LEASE_MS 3000
#define LOAD_TIMEOUT_MS 10000
#define LAST_RANDOM (UINT64_MAX - 1)
#define PAUSE_MS 700

struct subject {
    struct shed_flight_policy policy;
    struct shed_pace pace;
    struct shed_flight flight;
    struct shed_flight_act act;
    uint64_t now_ms;
    uint64_t random;
    uint64_t callers;
    uint64_t sent; /* the last send that was not a renewal */
};

static struct subject subject;

static void set_up(void)
{
    subject = (struct subject){.policy = {.lease_ms = LEASE_MS,
                                          .load_timeout_ms = LOAD_TIMEOUT_MS,
                                          .load_when_down = true},
                               .now_ms = 5000};
    shed_flight_init(&subject.flight, &subject.policy, &subject.pace);
}

static void step(struct shed_flight_event event)
{
    subject.act = shed_flight_step(&subject.flight, &event, subject.now_ms,
                                   subject.random);
    if (subject.act.send != SHED_SEND_NOTHING &&
        subject.act.send != SHED_SEND_RENEW)
        subject.sent = subject.act.request;
}

static void event(enum shed_flight_event_type type)
{
    step((struct shed_flight_event){.type = type});
}

static void reply(enum shed_flight_event_type type)
{
    step((struct shed_flight_event){.type = type, .request = subject.sent});
}

static void reply_wait(uint64_t wait_ms)
{
    step((struct shed_flight_event){
        .type = SHED_EV_WAIT, .request = subject.sent, .wait_ms = wait_ms});
}

static void trouble(enum shed_trouble kind)
{
    step((struct shed_flight_event){
        .type = SHED_EV_TROUBLE, .request = subject.sent, .trouble = kind});
}

static void join(void)
{
    subject.flight.newest = ++subject.callers;
}

static void leave_all(void)
{
    subject.flight.newest = 0;
}

static void expect(enum shed_flight_send send, enum shed_flight_answer answer,
                   uint64_t upto)
{
    ck_assert_int_eq(subject.act.send, send);
    ck_assert_int_eq(subject.act.answer, answer);
    ck_assert_uint_eq(subject.act.answer_upto, upto);
}

static void expect_nothing(void)
{
    expect(SHED_SEND_NOTHING, SHED_ANSWER_NOTHING, 0);
}

static void expect_state(enum shed_flight_state state)
{
    ck_assert_int_eq(subject.flight.state, state);
}

/* One caller, whose flight has sent its acquire. */
static void start(void)
{
    set_up();
    join();
    event(SHED_EV_START);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

static void start_loading(void)
{
    start();
    reply(SHED_EV_LEAD);
    expect(SHED_SEND_LOAD, SHED_ANSWER_NOTHING, 0);
}

static void start_publishing(void)
{
    start_loading();
    reply(SHED_EV_LOADED);
    expect(SHED_SEND_PUBLISH, SHED_ANSWER_NOTHING, 0);
}

TEST(a_hit_answers_the_caller_and_ends_the_flight)
{
    start();
    reply(SHED_EV_HIT);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_ENTRY, 1);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_hit_after_a_wait_says_so)
{
    start();
    reply(SHED_EV_HIT);
    ck_assert(!subject.act.has_waited);
    start();
    reply_wait(100);
    join();
    event(SHED_EV_PUSH);
    join();
    reply(SHED_EV_HIT);
    ck_assert(subject.act.has_waited);
    reply(SHED_EV_HIT); /* for the caller who came after the wait */
    ck_assert(!subject.act.has_waited);
}

TEST(a_hit_is_not_for_who_came_after_the_look_began)
{
    start();
    join();
    reply(SHED_EV_HIT);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_ENTRY, 1);
    reply(SHED_EV_HIT);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_ENTRY, 2);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(what_is_stored_is_for_all_who_came_before_the_publish)
{
    start_loading();
    join();
    reply(SHED_EV_LOADED);
    join();
    reply(SHED_EV_STORED);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_LOADED, 2);
}

TEST(what_may_be_outdated_is_only_for_who_came_before_the_load)
{
    start();
    join();
    reply(SHED_EV_LEAD);
    join();
    subject.flight.is_outdated = true;
    reply(SHED_EV_LOADED);
    join();
    reply(SHED_EV_STORED);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_LOADED, 2);
}

TEST(what_was_invalidated_is_only_for_who_came_before_the_load)
{
    start();
    join();
    reply(SHED_EV_LEAD);
    join();
    reply(SHED_EV_LOADED);
    reply(SHED_EV_INVALIDATED);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_UNPUBLISHED, 2);
}

TEST(a_value_that_superseded_ours_is_for_who_came_before_the_publish)
{
    start_publishing();
    join();
    reply(SHED_EV_SUPERSEDED);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_ENTRY, 1);
}

TEST(who_comes_after_a_value_does_not_join_the_flight)
{
    start();
    reply(SHED_EV_HIT);
    ck_assert(subject.act.detach);
    start_publishing();
    ck_assert(!subject.act.detach);
    reply(SHED_EV_STORED);
    ck_assert(subject.act.detach);
    start_publishing();
    reply(SHED_EV_INVALIDATED);
    ck_assert(!subject.act.detach);
}

TEST(a_reply_with_another_number_does_nothing)
{
    static const enum shed_flight_event_type replies[] = {
        SHED_EV_LEAD, SHED_EV_HIT,    SHED_EV_CORRUPT, SHED_EV_MARKER,
        SHED_EV_WAIT, SHED_EV_STORED, SHED_EV_TROUBLE};

    start();
    for (size_t i = 0; i < sizeof(replies) / sizeof(*replies); i++) {
        step((struct shed_flight_event){.type = replies[i],
                                        .request = subject.sent + 1});
        expect_nothing();
        expect_state(SHED_FLIGHT_ACQUIRING);
    }
}

TEST(a_reply_that_comes_twice_counts_once)
{
    start();
    reply(SHED_EV_LEAD);
    step((struct shed_flight_event){.type = SHED_EV_LEAD, .request = 1});
    expect_nothing();
    expect_state(SHED_FLIGHT_LOADING);
}

TEST(a_waiter_looks_again_at_a_push)
{
    start();
    reply_wait(LEASE_MS);
    expect_state(SHED_FLIGHT_WAITING);
    event(SHED_EV_PUSH);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    ck_assert_int_eq(subject.act.first, SHED_FIRST_GET);
}

/* GET would not tell whether the holder lives. */
TEST(a_waiter_acquires_at_its_timer)
{
    start();
    reply_wait(LEASE_MS);
    ck_assert(subject.act.set_timer);
    event(SHED_EV_TIMER);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    ck_assert_int_eq(subject.act.first, SHED_FIRST_NOTHING);
}

TEST(what_the_first_caller_has_found_decides_how_it_begins)
{
    set_up();
    join();
    subject.flight.first = SHED_FIRST_SET;
    event(SHED_EV_START);
    ck_assert_int_eq(subject.act.first, SHED_FIRST_SET);
    trouble(SHED_TROUBLE_PASSING); /* the lease may have been granted */
    event(SHED_EV_TIMER);
    ck_assert_int_eq(subject.act.first, SHED_FIRST_NOTHING);
    reply(SHED_EV_LEAD);
    join();
    reply(SHED_EV_LOAD_REFUSED);
    reply(SHED_EV_ENDED);
    join();
    event(SHED_EV_START);
    ck_assert_int_eq(subject.act.first, SHED_FIRST_NOTHING);
}

TEST(who_comes_after_an_answer_reads_it)
{
    start();
    join();
    reply(SHED_EV_HIT);
    ck_assert_int_eq(subject.act.first, SHED_FIRST_GET);
}

TEST(a_lease_that_was_renewed_counts_from_its_begin)
{
    struct shed_flight_event wait = {
        .type = SHED_EV_WAIT, .wait_ms = LEASE_MS, .age_ms = 40};

    start();
    wait.request = subject.sent;
    step(wait);
    subject.now_ms += 500;
    event(SHED_EV_PUSH);
    wait.request = subject.sent;
    wait.may_be_older = true;
    step(wait);
    ck_assert_uint_eq(subject.flight.leased_ms, subject.now_ms - 540);
    event(SHED_EV_TIMER);
    wait.request = subject.sent;
    wait.may_be_older = false; /* another has it */
    step(wait);
    ck_assert_uint_eq(subject.flight.leased_ms, subject.now_ms - 40);
}

TEST(a_push_that_overtakes_the_reply_is_not_lost)
{
    start();
    event(SHED_EV_PUSH);
    expect_nothing();
    reply_wait(LEASE_MS);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

/* Else a marker that answers only those who waited would not answer it. */
TEST(who_was_told_to_wait_has_waited_though_a_push_was_faster)
{
    start();
    ck_assert(!subject.flight.had_holder);
    event(SHED_EV_PUSH);
    ck_assert(!subject.flight.had_holder);
    reply_wait(LEASE_MS);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    ck_assert(subject.flight.had_holder);
    join();
    reply(SHED_EV_HIT);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_ENTRY, 1);
    ck_assert(!subject.flight.had_holder); /* the later caller */
}

TEST(a_push_counts_for_one_look)
{
    start();
    event(SHED_EV_PUSH);
    reply_wait(LEASE_MS);
    reply_wait(LEASE_MS);
    expect_nothing();
    expect_state(SHED_FLIGHT_WAITING);
}

static void reply_aged(enum shed_flight_event_type type, uint64_t age_ms)
{
    step((struct shed_flight_event){.type = type,
                                    .request = subject.sent,
                                    .wait_ms = LEASE_MS,
                                    .age_ms = age_ms});
}

/* Look again when the timer fires. */
static void look_again(void)
{
    ck_assert(subject.act.set_timer);
    subject.now_ms += subject.act.timer_ms;
    event(SHED_EV_TIMER);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

TEST(without_pushes_a_waiter_looks_at_most_every_10_ms)
{
    uint64_t began_ms, longest = 0;

    start();
    began_ms = subject.now_ms;
    for (unsigned looks = 1; looks < 100; looks++) {
        subject.random = looks % 3 == 0 ? LAST_RANDOM : looks;
        reply_aged(SHED_EV_WAIT, subject.now_ms - began_ms);
        ck_assert_uint_le(subject.act.timer_ms, SHED_PACE_LONGEST_MS);
        if (subject.act.timer_ms > longest)
            longest = subject.act.timer_ms;
        look_again();
        ck_assert_uint_ge(subject.now_ms - began_ms, (looks - 1) * 10);
    }
    ck_assert_uint_gt(longest, 50);
}

TEST(a_waiter_looks_when_a_load_like_the_last_ones_has_ended)
{
    start_publishing();
    subject.now_ms += 50;
    reply(SHED_EV_STORED);
    ck_assert_uint_eq(subject.pace.count, 1);
    while (subject.pace.count < SHED_PACE_LOADS)
        shed_pace_note(&subject.pace, 50);
    join();
    event(SHED_EV_START);
    reply_aged(SHED_EV_WAIT, 20); /* so 30 are left */
    ck_assert_uint_ge(subject.act.timer_ms, 31);
    ck_assert_uint_le(subject.act.timer_ms, 32);
}

TEST(a_waiter_learns_how_long_the_load_took_that_it_awaited)
{
    start();
    reply_aged(SHED_EV_WAIT, 40);
    look_again();
    subject.now_ms += 30;
    reply_aged(SHED_EV_HIT, 25);
    ck_assert_uint_eq(subject.pace.count, 1);
    ck_assert_uint_eq(subject.pace.span_ms[0],
                      40 + (subject.now_ms - 5000) - 25);
}

TEST(a_value_from_before_the_wait_teaches_nothing)
{
    start();
    reply_aged(SHED_EV_HIT, 0);
    ck_assert_uint_eq(subject.pace.count, 0);
    join();
    event(SHED_EV_START);
    reply_aged(SHED_EV_WAIT, 10);
    look_again();
    reply_aged(SHED_EV_HIT, 60000);
    ck_assert_uint_eq(subject.pace.count, 0);
}

TEST(with_pushes_a_waiter_polls_slowly)
{
    start();
    subject.flight.has_pushes = true;
    for (int i = 0; i < 10; i++) {
        subject.random = (uint64_t)i * 17;
        reply_wait(LEASE_MS);
        ck_assert_uint_ge(subject.act.timer_ms, 25);
        ck_assert_uint_le(subject.act.timer_ms, 150);
        event(SHED_EV_TIMER);
    }
}

TEST(a_waiter_looks_as_soon_as_the_lease_has_run_out)
{
    start();
    subject.flight.has_pushes = true;
    reply_wait(3);
    ck_assert_uint_eq(subject.act.timer_ms, 4);
}

TEST(a_flight_that_waits_for_nobody_ends)
{
    start();
    leave_all();
    reply_wait(LEASE_MS);
    event(SHED_EV_TIMER);
    expect_nothing();
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_marker_ends_all_who_wait)
{
    start();
    join();
    reply(SHED_EV_MARKER);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_FAILURE, 2);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_corrupt_entry_is_replaced_a_few_times_at_most)
{
    int looks = 0;

    start();
    do {
        reply(SHED_EV_CORRUPT);
        looks++;
    } while (subject.act.send == SHED_SEND_ACQUIRE && looks < 100);
    ck_assert_int_gt(looks, 1);
    ck_assert_int_lt(looks, 10);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_FAILURE, 1);
}

TEST(corrupt_entries_with_a_lease_between_them_are_not_in_a_row)
{
    start();
    for (int i = 0; i < 20; i++) {
        reply(SHED_EV_CORRUPT);
        expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
        reply_wait(LEASE_MS);
        event(SHED_EV_TIMER);
    }
}

TEST(a_failed_load_ends_all_and_puts_a_marker)
{
    start_loading();
    join();
    reply(SHED_EV_LOAD_FAILED);
    expect(SHED_SEND_FAIL, SHED_ANSWER_FAILURE, 2);
    reply(SHED_EV_ENDED);
    expect_nothing();
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_refused_load_gives_the_lease_back_without_a_marker)
{
    start_loading();
    reply(SHED_EV_LOAD_REFUSED);
    expect(SHED_SEND_RELEASE, SHED_ANSWER_FAILURE, 1);
}

TEST(who_joins_while_the_lease_is_being_ended_looks_then)
{
    start_loading();
    reply(SHED_EV_LOAD_FAILED);
    join();
    reply(SHED_EV_ENDED);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

TEST(a_lost_fail_is_sent_again)
{
    start_loading();
    reply(SHED_EV_LOAD_FAILED);
    trouble(SHED_TROUBLE_PASSING);
    ck_assert(subject.act.set_timer);
    expect_state(SHED_FLIGHT_FAILING);
    event(SHED_EV_TIMER);
    expect(SHED_SEND_FAIL, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_ENDED);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_lost_release_is_sent_again_as_a_release)
{
    start_loading();
    reply(SHED_EV_LOAD_REFUSED);
    trouble(SHED_TROUBLE_PASSING);
    event(SHED_EV_TIMER);
    expect(SHED_SEND_RELEASE, SHED_ANSWER_NOTHING, 0);
}

TEST(a_fail_is_not_sent_for_ever)
{
    int sends = 1;

    start_loading();
    reply(SHED_EV_LOAD_FAILED);
    while (subject.flight.state == SHED_FLIGHT_FAILING && sends < 100) {
        trouble(SHED_TROUBLE_PASSING);
        event(SHED_EV_TIMER);
        sends++;
    }
    ck_assert_int_lt(sends, 10);
    expect_state(SHED_FLIGHT_OVER);
}

/* A Redis that is out of memory still deletes. */
TEST(a_marker_that_is_refused_becomes_a_release)
{
    start_loading();
    reply(SHED_EV_LOAD_FAILED);
    trouble(SHED_TROUBLE_NO_WRITE);
    expect(SHED_SEND_RELEASE, SHED_ANSWER_NOTHING, 0);
    trouble(SHED_TROUBLE_NO_WRITE);
    expect_nothing();
    ck_assert(subject.act.leaves_lease);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_lease_that_was_ended_is_not_left)
{
    start_loading();
    reply(SHED_EV_LOAD_FAILED);
    reply(SHED_EV_ENDED);
    ck_assert(!subject.act.leaves_lease);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_publish_that_is_refused_for_good_leaves_its_lease)
{
    start_publishing();
    trouble(SHED_TROUBLE_DENIED);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_UNPUBLISHED, 1);
    ck_assert(subject.act.leaves_lease);
}

TEST(an_abandoned_load_whose_lease_could_not_be_ended_leaves_it)
{
    start_loading();
    subject.now_ms += LOAD_TIMEOUT_MS;
    event(SHED_EV_TIMER);
    expect_state(SHED_FLIGHT_ABANDONED);
    trouble(SHED_TROUBLE_NO_WRITE);
    ck_assert(subject.act.leaves_lease);
    expect_state(SHED_FLIGHT_ABANDONED);
}

TEST(a_load_renews_its_lease_in_the_next_epoch)
{
    start_loading();
    event(SHED_EV_EPOCH);
    expect(SHED_SEND_RENEW, SHED_ANSWER_NOTHING, 0);
    ck_assert(!subject.act.set_timer);
    step((struct shed_flight_event){.type = SHED_EV_LEASE_LOST,
                                    .request = subject.act.request});
    event(SHED_EV_EPOCH);
    expect_nothing();
}

TEST(a_waiter_looks_in_the_next_epoch)
{
    start();
    event(SHED_EV_EPOCH); /* it may have come before the look */
    reply_wait(LEASE_MS);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    reply_wait(LEASE_MS);
    expect_state(SHED_FLIGHT_WAITING);
    event(SHED_EV_EPOCH);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

TEST(a_lease_is_renewed_at_a_third)
{
    start_loading();
    ck_assert(subject.act.set_timer);
    ck_assert_uint_eq(subject.act.timer_ms, LEASE_MS / 3);
    subject.now_ms += LEASE_MS / 3;
    event(SHED_EV_TIMER);
    expect(SHED_SEND_RENEW, SHED_ANSWER_NOTHING, 0);
    ck_assert(subject.act.set_timer);
    ck_assert_uint_eq(subject.act.timer_ms, LEASE_MS / 3);
}

static void lead_refresh(uint64_t value_left_ms)
{
    start();
    step((struct shed_flight_event){.type = SHED_EV_LEAD,
                                    .request = subject.sent,
                                    .is_refresh = true,
                                    .wait_ms = value_left_ms});
}

TEST(a_refresh_renews_its_lease_when_its_value_ends)
{
    lead_refresh(400);
    ck_assert_uint_eq(subject.act.timer_ms, 401);
    subject.now_ms += 401;
    event(SHED_EV_TIMER);
    expect(SHED_SEND_RENEW, SHED_ANSWER_NOTHING, 0);
    ck_assert_uint_eq(subject.act.timer_ms, LEASE_MS / 3);
}

TEST(a_value_that_ends_later_leaves_the_renewals_as_they_are)
{
    lead_refresh(UINT64_C(1) << 40);
    ck_assert_uint_eq(subject.act.timer_ms, LEASE_MS / 3);
}

TEST(a_lost_renewal_is_followed_by_the_next)
{
    start_loading();
    for (int i = 0; i < 3; i++) {
        subject.now_ms += LEASE_MS / 3;
        event(SHED_EV_TIMER);
        expect(SHED_SEND_RENEW, SHED_ANSWER_NOTHING, 0);
        step((struct shed_flight_event){.type = SHED_EV_TROUBLE,
                                        .request = subject.act.request,
                                        .trouble = SHED_TROUBLE_PASSING});
        expect_nothing();
        expect_state(SHED_FLIGHT_LOADING);
    }
}

TEST(a_lost_lease_is_not_renewed_but_the_load_goes_on)
{
    start_loading();
    subject.now_ms += LEASE_MS / 3;
    event(SHED_EV_TIMER);
    step((struct shed_flight_event){.type = SHED_EV_LEASE_LOST,
                                    .request = subject.act.request});
    subject.now_ms += LEASE_MS / 3;
    event(SHED_EV_TIMER);
    expect_nothing();
    ck_assert_uint_eq(subject.act.timer_ms, LOAD_TIMEOUT_MS - LEASE_MS / 3 * 2);
    reply(SHED_EV_LOADED);
    expect(SHED_SEND_PUBLISH, SHED_ANSWER_NOTHING, 0);
}

TEST(a_renewal_of_the_lease_before_says_nothing_of_this_one)
{
    uint64_t renewal;

    start_loading();
    event(SHED_EV_TIMER);
    renewal = subject.act.request;
    join();
    reply(SHED_EV_LOADED);
    reply(SHED_EV_INVALIDATED);
    reply(SHED_EV_LEAD);
    step((struct shed_flight_event){.type = SHED_EV_LEASE_LOST,
                                    .request = renewal});
    event(SHED_EV_TIMER);
    expect(SHED_SEND_RENEW, SHED_ANSWER_NOTHING, 0);
}

TEST(the_last_renewal_does_not_reach_past_the_load_timeout)
{
    start_loading();
    subject.now_ms += LOAD_TIMEOUT_MS - 10;
    event(SHED_EV_TIMER);
    ck_assert_uint_eq(subject.act.timer_ms, 10);
}

TEST(an_overdue_load_fails_its_callers_and_is_left_alone)
{
    start_loading();
    join();
    subject.now_ms += LOAD_TIMEOUT_MS;
    event(SHED_EV_TIMER);
    ck_assert_int_eq(subject.act.send, SHED_SEND_FAIL);
    ck_assert_int_eq(subject.act.answer, SHED_ANSWER_FAILURE);
    ck_assert_uint_ge(subject.act.answer_upto, 2);
    ck_assert(subject.act.detach);
    expect_state(SHED_FLIGHT_ABANDONED);
}

TEST(an_abandoned_load_ends_however_it_ends)
{
    static const enum shed_flight_event_type ends[] = {
        SHED_EV_LOADED, SHED_EV_LOAD_FAILED, SHED_EV_LOAD_REFUSED};

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        uint64_t load;

        start_loading();
        load = subject.sent;
        subject.now_ms += LOAD_TIMEOUT_MS;
        event(SHED_EV_TIMER);
        step((struct shed_flight_event){.type = ends[i], .request = load});
        expect_nothing();
        expect_state(SHED_FLIGHT_OVER);
    }
}

TEST(a_load_has_the_longest_timeout_without_overflow)
{
    set_up();
    subject.policy.load_timeout_ms = UINT64_MAX;
    join();
    event(SHED_EV_START);
    reply(SHED_EV_LEAD);
    subject.now_ms += LEASE_MS;
    event(SHED_EV_TIMER);
    expect(SHED_SEND_RENEW, SHED_ANSWER_NOTHING, 0);
    expect_state(SHED_FLIGHT_LOADING);
}

TEST(a_lost_acquire_is_sent_again_after_a_moment)
{
    start();
    subject.random = LAST_RANDOM;
    trouble(SHED_TROUBLE_PASSING);
    ck_assert(subject.act.set_timer);
    ck_assert_uint_le(subject.act.timer_ms, 10);
    event(SHED_EV_TIMER);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

TEST(troubles_that_do_not_pass_count_as_down)
{
    int troubles = 0;

    start();
    do {
        trouble(SHED_TROUBLE_PASSING);
        event(SHED_EV_TIMER);
        troubles++;
    } while (subject.flight.state == SHED_FLIGHT_ACQUIRING && troubles < 100);
    ck_assert_int_gt(troubles, 1);
    ck_assert_int_lt(troubles, 10);
    expect_state(SHED_FLIGHT_LOADING);
}

TEST(with_redis_down_the_row_comes_from_the_source)
{
    start();
    trouble(SHED_TROUBLE_DOWN);
    expect(SHED_SEND_LOAD, SHED_ANSWER_NOTHING, 0);
    join();
    reply(SHED_EV_LOADED);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_UNPUBLISHED, 1);
}

TEST(with_redis_down_and_no_leave_to_load_all_fail)
{
    start();
    subject.policy.load_when_down = false;
    trouble(SHED_TROUBLE_DOWN);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_FAILURE, 1);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(with_redis_down_nothing_is_loaded_for_nobody)
{
    start();
    leave_all();
    trouble(SHED_TROUBLE_DOWN);
    ck_assert_int_eq(subject.act.send, SHED_SEND_NOTHING);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_load_without_a_lease_renews_and_ends_none)
{
    start();
    trouble(SHED_TROUBLE_DOWN);
    ck_assert_uint_eq(subject.act.timer_ms, LOAD_TIMEOUT_MS);
    reply(SHED_EV_LOAD_FAILED);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_FAILURE, 1);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(what_is_denied_is_not_tried_again)
{
    start();
    trouble(SHED_TROUBLE_DENIED);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_FAILURE, 1);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_lost_publish_is_sent_again_with_a_later_cutoff)
{
    start_publishing();
    join();
    trouble(SHED_TROUBLE_PASSING);
    expect_nothing();
    event(SHED_EV_TIMER);
    expect(SHED_SEND_PUBLISH, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_STORED);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_LOADED, 2);
}

TEST(a_publish_that_cannot_be_sent_still_answers_its_callers)
{
    start_publishing();
    join();
    trouble(SHED_TROUBLE_DOWN);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_UNPUBLISHED, 1);
}

TEST(a_publish_refused_by_memory_releases_the_lease)
{
    start_publishing();
    trouble(SHED_TROUBLE_NO_WRITE);
    expect(SHED_SEND_RELEASE, SHED_ANSWER_UNPUBLISHED, 1);
    reply(SHED_EV_ENDED);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(late_timers_and_pushes_disturb_nothing)
{
    start_publishing();
    event(SHED_EV_TIMER);
    expect_nothing();
    event(SHED_EV_PUSH);
    expect_nothing();
    reply(SHED_EV_STORED);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_LOADED, 1);
    event(SHED_EV_TIMER);
    event(SHED_EV_PUSH);
    expect_nothing();
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_flight_that_is_over_can_start_again)
{
    start();
    reply(SHED_EV_HIT);
    join();
    event(SHED_EV_START);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_HIT);
    expect(SHED_SEND_NOTHING, SHED_ANSWER_ENTRY, 2);
}

TEST(a_publish_is_not_sent_for_ever)
{
    int sends = 1;

    start_publishing();
    while (subject.flight.state == SHED_FLIGHT_PUBLISHING && sends < 100) {
        trouble(SHED_TROUBLE_PASSING);
        event(SHED_EV_TIMER);
        sends++;
    }
    ck_assert_int_lt(sends, 10);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(troubles_with_an_answer_between_them_are_not_in_a_row)
{
    start();
    for (int i = 0; i < 20; i++) {
        trouble(SHED_TROUBLE_PASSING);
        event(SHED_EV_TIMER);
        expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
        reply_wait(LEASE_MS);
        event(SHED_EV_TIMER);
        expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    }
}

/* ------------------------------------------------------ in the background */

static void start_background(void)
{
    set_up();
    subject.policy.pause_ms = PAUSE_MS;
    subject.flight.is_background = true;
    event(SHED_EV_START);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

static void reply_watch(uint64_t wait_ms)
{
    step((struct shed_flight_event){.type = SHED_EV_WAIT,
                                    .request = subject.sent,
                                    .wait_ms = wait_ms,
                                    .is_refresh = true});
}

static void expect_pause(void)
{
    expect_state(SHED_FLIGHT_PAUSING);
    ck_assert(subject.act.set_timer);
    ck_assert_uint_eq(subject.act.timer_ms, PAUSE_MS);
    event(SHED_EV_PUSH);
    expect_state(SHED_FLIGHT_PAUSING);
    event(SHED_EV_TIMER);
    expect_nothing();
    expect_state(SHED_FLIGHT_OVER);
}

/* For what is kept in the process. */
TEST(with_redis_down_a_refresh_may_be_loaded_too)
{
    start_background();
    subject.policy.refresh_when_down = true;
    trouble(SHED_TROUBLE_DOWN);
    expect(SHED_SEND_LOAD, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_LOADED);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_refresh_without_redis_that_fails_pauses)
{
    start_background();
    subject.policy.refresh_when_down = true;
    trouble(SHED_TROUBLE_DOWN);
    reply(SHED_EV_LOAD_FAILED);
    expect_state(SHED_FLIGHT_PAUSING);
}

/* Redis is read, and has the row. */
TEST(with_writes_refused_a_refresh_is_not_loaded)
{
    start_background();
    subject.policy.refresh_when_down = true;
    trouble(SHED_TROUBLE_NO_WRITE);
    ck_assert_int_eq(subject.act.send, SHED_SEND_NOTHING);
    expect_state(SHED_FLIGHT_PAUSING);
}

TEST(a_refresh_loads_and_publishes_without_a_caller)
{
    start_background();
    reply(SHED_EV_LEAD);
    expect(SHED_SEND_LOAD, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_LOADED);
    expect(SHED_SEND_PUBLISH, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_STORED);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_refresh_that_another_has_done_is_over)
{
    start_background();
    reply(SHED_EV_HIT);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_refresh_of_another_is_watched_until_it_is_over)
{
    start_background();
    subject.flight.has_pushes = false;
    subject.random = LAST_RANDOM;
    reply_watch(2000);
    expect_state(SHED_FLIGHT_WAITING);
    ck_assert_uint_ge(subject.act.timer_ms,
                      25); /* slow, because nobody waits */
    event(SHED_EV_TIMER);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    reply_watch(2000);
    event(SHED_EV_PUSH);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
    reply(SHED_EV_HIT);
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_push_that_overtakes_the_reply_is_not_lost_on_a_watcher)
{
    start_background();
    event(SHED_EV_PUSH);
    reply_watch(2000);
    expect(SHED_SEND_ACQUIRE, SHED_ANSWER_NOTHING, 0);
}

TEST(a_watcher_takes_over_from_a_dead_refresher)
{
    start_background();
    reply_watch(2000);
    event(SHED_EV_TIMER);
    reply(SHED_EV_LEAD);
    expect(SHED_SEND_LOAD, SHED_ANSWER_NOTHING, 0);
}

TEST(a_value_that_is_gone_is_not_refreshed)
{
    start_background();
    reply_wait(2000); /* another process loads it */
    expect_nothing();
    expect_state(SHED_FLIGHT_OVER);
}

TEST(a_watcher_that_is_told_to_end_ends)
{
    start_background();
    reply_watch(2000);
    subject.flight.is_background = false;
    event(SHED_EV_TIMER);
    expect_nothing();
    expect_state(SHED_FLIGHT_OVER);
}

TEST(after_a_failed_refresh_there_is_a_pause)
{
    start_background();
    reply(SHED_EV_LEAD);
    reply(SHED_EV_LOAD_FAILED);
    ck_assert_int_eq(subject.act.send, SHED_SEND_FAIL);
    reply(SHED_EV_ENDED);
    expect_pause();
}

TEST(after_a_refresh_for_which_there_was_no_room_there_is_a_pause)
{
    start_background();
    reply(SHED_EV_LEAD);
    reply(SHED_EV_LOAD_REFUSED);
    ck_assert_int_eq(subject.act.send, SHED_SEND_RELEASE);
    reply(SHED_EV_ENDED);
    expect_pause();
}

TEST(after_the_failed_refresh_of_another_there_is_a_pause)
{
    start_background();
    reply(SHED_EV_MARKER);
    expect_pause();
}

TEST(without_redis_nothing_is_refreshed_for_a_pause)
{
    const enum shed_trouble kinds[] = {SHED_TROUBLE_DOWN, SHED_TROUBLE_DENIED,
                                       SHED_TROUBLE_NO_WRITE};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        start_background();
        trouble(kinds[i]);
        ck_assert_int_eq(subject.act.send, SHED_SEND_NOTHING);
        expect_pause();
    }
}

TEST(a_refresh_that_cannot_be_stored_gives_its_lease_back_and_pauses)
{
    start_background();
    reply(SHED_EV_LEAD);
    reply(SHED_EV_LOADED);
    trouble(SHED_TROUBLE_NO_WRITE);
    ck_assert_int_eq(subject.act.send, SHED_SEND_RELEASE);
    reply(SHED_EV_ENDED);
    expect_pause();
}

int main(void)
{
    return run_tests("flight");
}
