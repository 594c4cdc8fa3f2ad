/* load: the breaker before the loads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/answers.h"
#include "support/bare.h"
#include "support/requests.h"

enum { FOREVER_MS = 3600000, SLUGGISH_MS = 600000 };

static uint64_t queue_limit; /* 0: the default */
static uint64_t slow_ms;

/* How loads end. */
enum ending { GOOD, BAD, SLOW, SLUGGISH, ABSENT, TOO_BIG };

static struct {
    struct shed_source *source;
    _Atomic enum ending ending;
    atomic_bool is_held;
    atomic_uint begun, probes, opened, closed;
    char reason[SHED_REASON_BYTES];
    bool has_cache;
} fake;

static struct shed_client client;
static struct shed_cache cache = {.client = &client, .name = "c"};

static void answer(struct shed_load *load, size_t i)
{
    switch (atomic_load(&fake.ending)) {
    case SLOW:
    case SLUGGISH:
        pass_ms(fake.ending == SLOW ? FOREVER_MS : SLUGGISH_MS);
        answer_null(load, i);
        break;
    case GOOD:
        answer_null(load, i);
        break;
    case BAD:
        answer_failed(load, i, "the database is on fire");
        break;
    case ABSENT:
        answer_absent(load, i);
        break;
    case TOO_BIG:
        answer_too_big(load, i, "too big");
        break;
    }
}

static void run_load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    atomic_fetch_add(&fake.probes, load->is_probe != 0);
    atomic_fetch_add(&fake.begun, 1);
    while (atomic_load(&fake.is_held))
        usleep(1000);
    for (size_t i = 0; i < load->count; i++)
        answer(load, i);
    shed_load_done(load);
}

void __wrap_shed_events_tell(struct shed_events *events,
                             const struct shed_event *event);

void __wrap_shed_events_tell(struct shed_events *events,
                             const struct shed_event *event)
{
    ck_assert_ptr_null(events);
    ck_assert_int_eq(event->kind, SHED_EVENT_BREAKER);
    ck_assert_str_eq(event->name.data, "c");
    snprintf(fake.reason, sizeof(fake.reason), "%s", event->reason);
    atomic_fetch_add(event->outcome != SHED_OK ? &fake.opened : &fake.closed,
                     1);
}

/* Loads of one key, one at a time. Ten failures open it for open_ms. */
static void open_fake(uint64_t open_ms)
{
    struct shed_source_options o = bare_source();

    o.max_loads = 1;
    o.max_batch = 1;
    o.load_timeout_ms = FOREVER_MS / 2;
    o.breaker.failure_pct = 50;
    o.breaker.min_calls = 10;
    o.breaker.window_ms = 600000;
    o.breaker.open_ms = open_ms;
    o.breaker.slow_ms = slow_ms;
    if (queue_limit > 0)
        o.queue_limit = queue_limit;
    EXPECT_OK(shed_source_open_batch(run_load, NULL, &o, &fake.source, NULL));
    shed_source_ref(fake.source, &cache);
    fake.has_cache = true;
}

static void drop_settled(struct shed_job *job)
{
    shed_value_unref(job->loaded.value);
    note_settled(job);
}

static enum shed_code submit(size_t i, struct shed_error *err)
{
    struct request *request = make_request(i);

    request->job.settle = drop_settled;
    return submit_request(fake.source, request, err);
}

static void submit_background(size_t i)
{
    expect_queued(fake.source, make_refresh(i));
}

static void submit_ok(size_t i)
{
    EXPECT_OK(submit(i, NULL));
}

static void await(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        WAIT_FOR(atomic_load(&requests[i].settled) == 1);
    WAIT_FOR(shed_source_look(fake.source).loads == 0);
}

static struct shed_breaker_status status(void)
{
    return shed_source_look(fake.source).breaker;
}

static enum shed_breaker_state state(void)
{
    return status().state;
}

/* Ten loads, of the keys that begin with number from. */
static void load_ten(size_t from, enum ending ending)
{
    atomic_store(&fake.ending, ending);
    for (size_t i = from; i < from + 10; i++) {
        submit_ok(i);
        if (queue_limit > 0)
            await(i, i + 1);
    }
    await(from, from + 10);
}

static void close_fake(void)
{
    if (fake.has_cache)
        shed_source_unref(fake.source, &cache);
    fake.has_cache = false;
    shed_source_close(fake.source);
    fake.source = NULL;
}

TEST(an_open_one_refuses_keys_at_once_and_says_why)
{
    struct shed_error err;

    open_fake(FOREVER_MS);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    ck_assert_uint_eq(status().openings, 0);
    ck_assert_uint_eq(status().left_ms, 0);
    load_ten(0, BAD);
    ck_assert_int_eq(state(), SHED_BREAKER_OPEN);
    ck_assert_uint_eq(status().openings, 1);
    ck_assert_uint_gt(status().left_ms, 0);
    ck_assert_uint_le(status().left_ms, FOREVER_MS);
    EXPECT_CODE(submit(10, &err), SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(err.reason, "breaker is open"));
    ck_assert_ptr_nonnull(strstr(err.reason, "tries again in "));
    ck_assert_ptr_nonnull(strstr(err.reason, "the database is on fire"));
    ck_assert_uint_eq(atomic_load(&fake.begun), 10);
    ck_assert_uint_eq(atomic_load(&fake.opened), 1);
    ck_assert_ptr_nonnull(strstr(fake.reason, "the database is on fire"));
    close_fake();
    ck_assert_uint_eq(atomic_load(&requests[10].settled), 1);
}

TEST(what_is_queued_when_it_opens_is_refused)
{
    enum { KEYS = 100 };

    open_fake(FOREVER_MS);
    atomic_store(&fake.ending, BAD);
    atomic_store(&fake.is_held, true);
    for (size_t i = 0; i < KEYS / 2; i++)
        submit_ok(i);
    for (size_t i = KEYS / 2; i < KEYS; i++)
        submit_background(i);
    atomic_store(&fake.is_held, false);
    await(0, KEYS);
    ck_assert_uint_eq(atomic_load(&fake.begun), 10);
    for (size_t i = 0; i < KEYS; i++) {
        EXPECT_CODE(requests[i].job.loaded.error.code, SHED_ESOURCE);
        ck_assert(requests[i].job.loaded.is_refused == (i >= 10));
        ck_assert_uint_eq(requests[i].job.loaded.batch_keys, i < 10);
    }
    ck_assert_uint_eq(shed_source_look(fake.source).queued, 0);
}

TEST(a_half_open_one_lets_a_few_keys_through_and_closes)
{
    struct shed_error err;

    open_fake(1);
    load_ten(0, BAD);
    WAIT_FOR(state() == SHED_BREAKER_HALF_OPEN);
    atomic_store(&fake.ending, GOOD);
    atomic_store(&fake.is_held, true);
    submit_ok(10);
    submit_ok(11);
    submit_ok(12);
    EXPECT_CODE(submit(13, &err), SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(err.reason, "half-open"));
    atomic_store(&fake.is_held, false);
    await(10, 13);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    ck_assert_uint_eq(atomic_load(&fake.closed), 1);
    load_ten(20, GOOD);
    ck_assert_uint_eq(atomic_load(&fake.probes), 3);
}

TEST(a_key_that_is_late_in_the_queue_makes_room_for_another_probe)
{
    open_fake(1);
    load_ten(0, BAD);
    WAIT_FOR(state() == SHED_BREAKER_HALF_OPEN);
    atomic_store(&fake.ending, GOOD);
    atomic_store(&fake.is_held, true);
    submit_ok(10);
    submit_ok(15);
    WAIT_FOR(atomic_load(&fake.begun) == 11);
    make_request(11)->job.deadline_ms = shed_now_ms();
    expect_queued(fake.source, &requests[11]);
    EXPECT_CODE(submit(12, NULL), SHED_ESOURCE);
    atomic_store(&fake.is_held, false);
    await(10, 12);
    await(15, 16);
    EXPECT_CODE(requests[11].job.loaded.error.code, SHED_ETIMEDOUT);
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
    atomic_store(&fake.is_held, true);
    submit_ok(13);
    submit_ok(14);
    submit_ok(16); /* the third of three */
    atomic_store(&fake.is_held, false);
    await(13, 17);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

TEST(so_does_a_refresh_whose_place_in_the_queue_a_caller_takes)
{
    queue_limit = 1;
    open_fake(1);
    load_ten(0, BAD);
    WAIT_FOR(state() == SHED_BREAKER_HALF_OPEN);
    atomic_store(&fake.ending, GOOD);
    atomic_store(&fake.is_held, true);
    submit_ok(10);
    WAIT_FOR(atomic_load(&fake.begun) == 11);
    submit_background(11);
    submit_ok(12);
    ck_assert(requests[11].job.loaded.is_refused);
    atomic_store(&fake.is_held, false);
    await(10, 13);
    ck_assert_int_eq(state(), SHED_BREAKER_HALF_OPEN);
    atomic_store(&fake.is_held, true);
    submit_ok(13);
    WAIT_FOR(atomic_load(&fake.begun) == 13);
    submit_background(14);
    submit_ok(15); /* the third of three */
    atomic_store(&fake.is_held, false);
    await(13, 16);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

TEST(how_often_it_has_opened_can_be_read)
{
    open_fake(1);
    load_ten(0, BAD);
    for (size_t i = 10; i < 13; i++) {
        WAIT_FOR(status().state == SHED_BREAKER_HALF_OPEN);
        ck_assert_uint_eq(status().left_ms, 0);
        ck_assert_uint_eq(status().openings, i - 9);
        submit_ok(i);
        await(i, i + 1);
    }
    WAIT_FOR(status().state == SHED_BREAKER_HALF_OPEN);
    atomic_store(&fake.ending, GOOD);
    for (size_t i = 20; i < 23; i++)
        submit_ok(i);
    await(20, 23);
    ck_assert_uint_eq(status().state, SHED_BREAKER_CLOSED);
    ck_assert_uint_eq(status().openings, 4);
}

static const struct {
    enum ending ending;
    uint64_t slow_ms;
    bool opens;
    const char *why;
} endings[] = {
    {BAD, 0, true, "the database is on fire"},
    {SLOW, 0, true, "load_timeout_ms"},
    {SLUGGISH, 0, false, ""},
    {SLUGGISH, SLUGGISH_MS - 1, true, "it took 600000 ms, longer"},
};

TEST_EACH(loads_that_fail_or_take_too_long_open_it, 0, COUNT_OF(endings))
{
    slow_ms = endings[_i].slow_ms;
    open_fake(FOREVER_MS);
    load_ten(0, endings[_i].ending);
    ck_assert_int_eq(state(), endings[_i].opens ? SHED_BREAKER_OPEN
                                                : SHED_BREAKER_CLOSED);
    ck_assert_ptr_nonnull(strstr(fake.reason, endings[_i].why));
}

TEST(absent_and_oversized_rows_are_successes)
{
    open_fake(FOREVER_MS);
    load_ten(0, ABSENT);
    load_ten(10, TOO_BIG);
    load_ten(20, ABSENT);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
    load_ten(30, BAD); /* ten of forty */
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

TEST(one_key_that_always_fails_does_not_open_it)
{
    open_fake(FOREVER_MS);
    atomic_store(&fake.ending, BAD);
    for (size_t i = 0; i < 30; i++) {
        submit_ok(0);
        await(0, 1);
        atomic_store(&requests[0].settled, 0);
    }
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

TEST(without_the_option_it_never_opens)
{
    struct shed_source_options o = bare_source();

    o.max_loads = 1;
    o.max_batch = 1;
    EXPECT_OK(shed_source_open_batch(run_load, NULL, &o, &fake.source, NULL));
    for (size_t from = 0; from < 100; from += 10)
        load_ten(from, BAD);
    ck_assert_int_eq(state(), SHED_BREAKER_CLOSED);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), NULL, close_fake);
    return run_tests("load_breaker");
}
