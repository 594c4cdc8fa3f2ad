/* health: each rule of the machine, then thousands of random schedules of a
 * server, its connections and its callers, with a made-up clock. */
#include "redis/health.h"

#include <limits.h>
#include <stdio.h>

#include "base/breaker.h"
#include "support/bare.h"
#include "support/random.h"
#include "support/reply_testing.h"
#include "support/testing.h"

enum {
    TIMEOUT_MS = 1000, /* to connect, and of a command */
    MIN_CALLS = 10,
    OPEN_MAX_MS = 10000
};

static struct shed_health health;
static uint64_t now_ms = 1000000;
static uint64_t random_bits; /* 0: the shortest pause with full jitter, and the
                                longest with equal jitter */
static struct shed_reply *loading;

static void begin(void)
{
    struct shed_client_options o = bare_client();

    o.connect_timeout_ms = o.command_timeout_ms = TIMEOUT_MS;
    o.breaker = (struct shed_breaker_options)SHED_BREAKER_OPTIONS_INIT;
    o.breaker.min_calls = MIN_CALLS;
    shed_health_init(&health, &o, now_ms);
    health.has_session = true;
    shed_reply_free(loading);
    loading = parse_reply("-LOADING Redis is loading\r\n");
}

static enum shed_health_state ask(enum shed_health_user user)
{
    struct shed_health_try try;

    return shed_health_connect(&health, user, now_ms, &try);
}

static struct shed_health_try try_of(enum shed_health_user user)
{
    struct shed_health_try try;

    ck_assert_int_eq(shed_health_connect(&health, user, now_ms, &try),
                     SHED_HEALTH_UP);
    return try;
}

static void end_as(struct shed_health_try try, enum shed_health_event_type how)
{
    const struct shed_health_event event = {how, try, now_ms - TIMEOUT_MS};

    shed_health_tell(&health, &event, now_ms, random_bits);
}

static void hear(void)
{
    end_as((struct shed_health_try){0}, SHED_HEALTH_HEARD);
}

/* For a whole timeout. */
static void miss(void)
{
    end_as((struct shed_health_try){0}, SHED_HEALTH_MISSED);
}

static bool leave(unsigned term)
{
    unsigned before = health.term;

    end_as((struct shed_health_try){.term = term}, SHED_HEALTH_NO_PRIMARY);
    return health.term != before;
}

static void end_pause(void)
{
    now_ms = health.link_retry_ms > health.retry_ms ? health.link_retry_ms
                                                    : health.retry_ms;
}

/* ------------------------------------------------------------------- paused */

TEST(after_a_failure_a_link_waits_for_a_pause)
{
    random_bits = SHED_PAUSE_MIN_MS - 1;
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_REFUSED);
    for (uint64_t i = 0; i < SHED_PAUSE_MIN_MS; i++, now_ms++)
        ck_assert_int_eq(ask(SHED_HEALTH_LINK), SHED_HEALTH_PAUSED);
    ck_assert_int_eq(ask(SHED_HEALTH_LINK), SHED_HEALTH_UP);
}

TEST(and_so_does_the_session_and_each_tries_for_itself)
{
    random_bits = SHED_PAUSE_MIN_MS - 1;
    end_as(try_of(SHED_HEALTH_COMMANDS), SHED_HEALTH_REFUSED);
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_REFUSED);
    for (uint64_t i = 0; i < SHED_PAUSE_MIN_MS; i++, now_ms++) {
        ck_assert_int_eq(ask(SHED_HEALTH_COMMANDS), SHED_HEALTH_PAUSED);
        ck_assert_int_eq(ask(SHED_HEALTH_PUSHES), SHED_HEALTH_PAUSED);
    }
    ck_assert_int_eq(ask(SHED_HEALTH_PUSHES), SHED_HEALTH_UP);
}

TEST(then_one_link_tries_at_a_time_and_the_session)
{
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_REFUSED);
    end_pause();
    (void)try_of(SHED_HEALTH_LINK);
    ck_assert_int_eq(ask(SHED_HEALTH_LINK), SHED_HEALTH_PAUSED);
    (void)try_of(SHED_HEALTH_COMMANDS);
    end_pause();
    (void)try_of(SHED_HEALTH_LINK);
}

TEST(a_connection_that_is_set_up_ends_the_pause)
{
    struct shed_health_try first;

    first = try_of(SHED_HEALTH_LINK);
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_REFUSED);
    end_as(first, SHED_HEALTH_REACHED);
    (void)try_of(SHED_HEALTH_LINK);
    (void)try_of(SHED_HEALTH_LINK);
}

TEST(pauses_grow_until_a_call_is_answered)
{
    random_bits = SHED_PAUSE_MAX_MS - 1;
    for (int i = 0; i < 20; i++) {
        end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_REFUSED);
        end_pause();
    }
    ck_assert_uint_eq(health.pause_ms, SHED_PAUSE_MAX_MS);
    hear();
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_REFUSED);
    ck_assert_uint_le(health.pause_ms, SHED_PAUSE_MIN_MS);
}

TEST(tries_that_fail_together_are_one_failure)
{
    struct shed_health_try tries[16];

    for (int i = 0; i < 16; i++)
        tries[i] = try_of(SHED_HEALTH_LINK);
    for (int i = 0; i < 16; i++)
        end_as(tries[i], SHED_HEALTH_REFUSED);
    ck_assert_uint_eq(health.failures, 1);
}

/* ------------------------------------------------------------------- silent */

static void fall_silent(void)
{
    now_ms += TIMEOUT_MS;
    miss();
    ck_assert_int_eq(health.state, SHED_HEALTH_SILENT);
}

TEST(it_is_silent_if_it_answered_no_connection_lately)
{
    now_ms += TIMEOUT_MS;
    health.heard_ms = now_ms - TIMEOUT_MS / 2 + 1;
    miss();
    ck_assert_int_eq(health.state, SHED_HEALTH_UP);
    health.heard_ms = now_ms - TIMEOUT_MS / 2;
    miss();
    ck_assert_int_eq(health.state, SHED_HEALTH_SILENT);
}

TEST(nor_is_it_without_a_session_that_would_try)
{
    health.has_session = false;
    now_ms += TIMEOUT_MS;
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_UNANSWERED);
    ck_assert_int_eq(health.state, SHED_HEALTH_PAUSED);
}

TEST(while_it_is_silent_the_session_alone_tries)
{
    struct shed_health_pass pass;

    fall_silent();
    now_ms += 2 * SHED_PAUSE_MAX_MS;
    ck_assert_int_eq(ask(SHED_HEALTH_LINK), SHED_HEALTH_SILENT);
    ck_assert_int_eq(ask(SHED_HEALTH_PUSHES), SHED_HEALTH_SILENT);
    ck_assert_int_eq(shed_health_pass(&health, now_ms, &pass),
                     SHED_HEALTH_SILENT);
    (void)try_of(SHED_HEALTH_COMMANDS);
}

/* Perhaps only one connection was dead. */
TEST(the_first_try_is_made_at_once_and_the_others_after_pauses)
{
    random_bits = SHED_PAUSE_MAX_MS - 1;
    fall_silent();
    for (uint64_t pause_ms = 0; pause_ms < SHED_PAUSE_MAX_MS;) {
        struct shed_health_try try = try_of(SHED_HEALTH_COMMANDS);
        now_ms += TIMEOUT_MS;
        end_as(try, SHED_HEALTH_UNANSWERED);
        ck_assert_int_eq(health.state, SHED_HEALTH_SILENT);
        ck_assert_uint_gt(health.pause_ms, pause_ms);
        pause_ms = health.pause_ms;
        end_pause();
    }
}

enum { BY_ANSWER, BY_REACHING, BY_REFUSAL, BY_LEAVING, WAYS };

TEST_EACH(a_silence_ends_by_an_answer_of_any_kind, 0, WAYS)
{
    struct shed_health_try try;

    fall_silent();
    try = try_of(SHED_HEALTH_COMMANDS);
    if (_i == BY_ANSWER)
        hear();
    else if (_i == BY_REACHING)
        end_as(try, SHED_HEALTH_REACHED);
    else if (_i == BY_REFUSAL)
        end_as(try, SHED_HEALTH_REFUSED);
    else
        ck_assert(leave(0));
    ck_assert_int_eq(health.state,
                     _i == BY_REFUSAL ? SHED_HEALTH_PAUSED : SHED_HEALTH_UP);
    ck_assert_uint_eq(health.heard_ms, now_ms);
}

TEST(tries_that_are_cut_short_find_a_silence_out_together)
{
    for (int i = 0; i < TIMEOUT_MS; i++) {
        now_ms++;
        ck_assert_int_eq(health.state, SHED_HEALTH_UP);
        end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_CUT_SHORT);
    }
    now_ms++;
    end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_CUT_SHORT);
    ck_assert_int_eq(health.state, SHED_HEALTH_SILENT);
}

TEST(but_not_if_others_are_answered)
{
    for (int i = 0; i < 10 * TIMEOUT_MS; i++) {
        now_ms++;
        if (i % (TIMEOUT_MS - 1) == 0)
            hear();
        end_as(try_of(SHED_HEALTH_LINK), SHED_HEALTH_CUT_SHORT);
    }
    ck_assert_int_eq(health.state, SHED_HEALTH_UP);
}

/* --------------------------------------------------------------------- left */

TEST(a_server_is_left_at_once_and_again_after_a_pause)
{
    ck_assert(leave(0));
    ck_assert(!leave(0));
    (void)try_of(SHED_HEALTH_LINK);
    ck_assert(leave(1));
    ck_assert_int_eq(ask(SHED_HEALTH_LINK), SHED_HEALTH_PAUSED);
    ck_assert_int_eq(ask(SHED_HEALTH_COMMANDS), SHED_HEALTH_PAUSED);
    ck_assert_uint_eq(shed_health_pause_left_ms(&health, now_ms),
                      SHED_PAUSE_MIN_MS);
    end_pause();
    (void)try_of(SHED_HEALTH_COMMANDS);
    ck_assert(leave(2));
    ck_assert_uint_eq(health.pause_ms, 2 * SHED_PAUSE_MIN_MS);
    now_ms += 2 * SHED_PAUSE_MAX_MS + 1;
    ck_assert(leave(3));
    (void)try_of(SHED_HEALTH_LINK);
    ck_assert_uint_eq(health.term, 4);
}

TEST(tries_of_an_earlier_term_tell_nothing)
{
    struct shed_health_try before;

    before = try_of(SHED_HEALTH_LINK);
    (void)leave(0);
    end_as(before, SHED_HEALTH_REFUSED);
    ck_assert_int_eq(health.state, SHED_HEALTH_UP);
    now_ms += TIMEOUT_MS;
    end_as(before, SHED_HEALTH_UNANSWERED);
    ck_assert_int_eq(health.state, SHED_HEALTH_UP);
    (void)leave(1);
    end_as(before, SHED_HEALTH_REACHED);
    ck_assert_int_eq(health.state, SHED_HEALTH_PAUSED);
}

TEST(terms_wrap_around)
{
    health.term = UINT_MAX;
    ck_assert(leave(UINT_MAX));
    ck_assert_uint_eq(health.term, 0);
}

/* ------------------------------------------------------------------ loading */

TEST(a_server_that_loads_is_asked_after_pauses_that_grow)
{
    for (uint64_t expected_ms = SHED_PAUSE_MIN_MS; expected_ms < 1000;
         expected_ms *= 2) {
        struct shed_health_pass pass;
        const struct shed_health_end end = {
            .began_ms = now_ms, .ended_ms = now_ms, .refusal = loading};
        ck_assert_int_eq(shed_health_pass(&health, now_ms, &pass),
                         SHED_HEALTH_UP);
        (void)shed_health_learn(&health, &pass, &end, now_ms, 0);
        ck_assert_uint_eq(health.work_ms - now_ms, expected_ms);
        now_ms = health.work_ms;
    }
    (void)try_of(SHED_HEALTH_LINK); /* it answers, so connections are made */
}

/* ------------------------------------------------------------ random events */

/* What the server does with all that comes. */
enum mode { WORKS, REFUSES, HANGS, LOADS, IS_REPLICA, MODES };

enum { LINKS = 4, CALLS = 6, EVENTS = 400, CONNECTIONS = LINKS + 2 };

/* A connection of a user: the session's two come first. */
struct connection {
    enum { NONE, TRYING, SET_UP } state;
    struct shed_health_try try;
    uint64_t since_ms; /* TRYING; or since when it is unanswered */
    unsigned event;    /* when it began to try */
};

struct call {
    bool is_under_way;
    struct shed_health_pass pass;
    uint64_t began_ms;
};

static struct world {
    uint64_t seed, random;
    enum mode mode;
    uint64_t mode_ms; /* since when */
    struct connection connections[CONNECTIONS];
    struct call calls[CALLS];
    uint64_t link_may_ms, session_may_ms, work_may_ms; /* the next try */
    uint64_t rounds;
    unsigned event, silent_event; /* now, and when it fell silent last */
} w;

/* ck_assert writes to a pipe each time, which millions of events cannot bear.
 */
#define CHECK(that)                                                            \
    do {                                                                       \
        if (!(that))                                                           \
            ck_abort_msg("SHED_SIM_SEED=%llu: " #that,                         \
                         (unsigned long long)w.seed);                          \
    } while (0)

static uint64_t draw(uint64_t below)
{
    return below > 0 ? random_next(&w.random) % below : 0;
}

static enum shed_health_user user_of(const struct connection *c)
{
    switch (c - w.connections) {
    case 0:
        return SHED_HEALTH_COMMANDS;
    case 1:
        return SHED_HEALTH_PUSHES;
    default:
        return SHED_HEALTH_LINK;
    }
}

static unsigned count_tries(void)
{
    unsigned count = 0;

    for (int i = 0; i < CONNECTIONS; i++)
        count += w.connections[i].state == TRYING &&
                 w.connections[i].event > w.silent_event;
    return count;
}

/* ----------------------------------------------------- what is always so */

static void check_connect(enum shed_health_user user)
{
    bool is_link = user == SHED_HEALTH_LINK;

    CHECK(health.state != SHED_HEALTH_SILENT || user == SHED_HEALTH_COMMANDS);
    CHECK(health.state != SHED_HEALTH_SILENT || count_tries() == 1);
    CHECK(now_ms >= (is_link ? w.link_may_ms : w.session_may_ms));
    if (is_link && health.state != SHED_HEALTH_UP)
        w.link_may_ms = now_ms + health.pause_ms;
}

/* After anything that has failed. */
static void note_pause(enum shed_health_user user)
{
    bool is_new = health.round != w.rounds;
    uint64_t end_ms = now_ms + health.pause_ms;

    CHECK(health.round <= w.rounds + 1);
    w.rounds = health.round;
    if (is_new && health.state == SHED_HEALTH_SILENT) {
        w.silent_event = w.event;
        w.link_may_ms = w.session_may_ms = end_ms;
    } else if (is_new && user == SHED_HEALTH_LINK) {
        w.link_may_ms = end_ms;
    } else if (is_new) {
        w.session_may_ms = end_ms;
    }
}

/* After anything that has succeeded. */
static void check_success(enum shed_health_state before)
{
    CHECK(before != SHED_HEALTH_UP || health.state == SHED_HEALTH_UP);
    if (health.state == SHED_HEALTH_UP)
        w.link_may_ms = w.session_may_ms = 0;
}

static void check_leave(unsigned term)
{
    unsigned before = health.term;
    bool has_begun;

    random_bits = draw(UINT64_MAX);
    has_begun = leave(term);

    CHECK(has_begun == (term == before));
    CHECK(health.term == before + has_begun);
    if (has_begun)
        w.link_may_ms = w.session_may_ms = now_ms + health.pause_ms;
}

/* ------------------------------------------------------------ what happens */

static void lose(struct connection *c)
{
    c->state = NONE;
}

static void begin_try(struct connection *c)
{
    enum shed_health_user user = user_of(c);
    enum shed_health_state state;

    state = shed_health_connect(&health, user, now_ms, &c->try);
    CHECK(state != SHED_HEALTH_OPEN);
    if (state != SHED_HEALTH_UP)
        return;
    c->state = TRYING;
    c->since_ms = now_ms;
    c->event = w.event;
    check_connect(user);
}

static void tell(const struct connection *c, enum shed_health_event_type type)
{
    const struct shed_health_event event = {type, c->try, c->since_ms};

    shed_health_tell(&health, &event, now_ms, draw(UINT64_MAX));
}

static void fail_try(struct connection *c, enum shed_health_event_type how)
{
    tell(c, how);
    note_pause(user_of(c));
    lose(c);
}

static void end_try(struct connection *c)
{
    enum shed_health_state before = health.state;
    uint64_t took_ms = now_ms - c->since_ms;

    if (w.mode == REFUSES) {
        fail_try(c, SHED_HEALTH_REFUSED);
    } else if (w.mode == IS_REPLICA) {
        unsigned term = c->try.term;
        fail_try(c, SHED_HEALTH_REFUSED);
        check_leave(term);
    } else if (w.mode != HANGS) {
        tell(c, SHED_HEALTH_REACHED);
        check_success(c->try.term == health.term ? before : SHED_HEALTH_PAUSED);
        c->state = SET_UP;
        c->since_ms = 0;
    } else if (took_ms >= TIMEOUT_MS) {
        fail_try(c, SHED_HEALTH_UNANSWERED);
    } else if (user_of(c) == SHED_HEALTH_LINK && draw(2) == 0) {
        fail_try(c, SHED_HEALTH_CUT_SHORT);
    }
}

/* A command over a connection that is set up. */
static void use(struct connection *c)
{
    enum shed_health_state before = health.state;

    if (c->try.term != health.term || w.mode == REFUSES) {
        lose(c);
    } else if (w.mode == IS_REPLICA) {
        check_leave(c->try.term);
    } else if (w.mode != HANGS) {
        hear();
        CHECK(health.state != SHED_HEALTH_SILENT);
        check_success(before);
        c->since_ms = 0;
    } else if (c->since_ms == 0) {
        c->since_ms = now_ms;
    } else if (now_ms - c->since_ms >= TIMEOUT_MS) {
        fail_try(c, SHED_HEALTH_MISSED);
    } else if (health.state == SHED_HEALTH_SILENT) {
        lose(c);
    }
}

static void begin_call(struct call *c)
{
    bool was_refused = health.refusals > 0;
    enum shed_health_state state = shed_health_pass(&health, now_ms, &c->pass);

    CHECK(!shed_health_is_clear(&health) || state == SHED_HEALTH_UP);
    CHECK(health.state != SHED_HEALTH_SILENT || state != SHED_HEALTH_UP);
    CHECK(state != SHED_HEALTH_OPEN ||
          health.breaker.state != SHED_BREAKER_CLOSED);
    if (state != SHED_HEALTH_UP)
        return;
    CHECK(!was_refused || (c->pass.is_probe && now_ms >= w.work_may_ms));
    w.work_may_ms = health.work_ms;
    c->is_under_way = true;
    c->began_ms = now_ms;
}

static void end_call(struct call *c)
{
    static const struct shed_error lost = {SHED_EREDIS, "lost"};
    static const struct shed_error late = {SHED_ETIMEDOUT, "late"};
    uint64_t took_ms = now_ms - c->began_ms;
    struct shed_health_end end = {
        .was_tried = true, .began_ms = c->began_ms, .ended_ms = now_ms};
    enum shed_health_state before = health.state;

    if (w.mode == HANGS && took_ms < TIMEOUT_MS && draw(3) > 0)
        return; /* it still waits */
    if (w.mode == HANGS) {
        end.why = &late;
        end.was_tried = took_ms >= TIMEOUT_MS;
    } else if (w.mode == REFUSES) {
        end.why = &lost;
    } else if (w.mode == LOADS) {
        end.refusal = loading;
    }
    (void)shed_health_learn(&health, &c->pass, &end, now_ms, draw(UINT64_MAX));
    CHECK(health.state == before);
    CHECK(w.mode != LOADS || health.refusals > 0);
    if (w.mode == LOADS)
        w.work_may_ms = health.work_ms;
    c->is_under_way = false;
}

static void happen(void)
{
    struct connection *c = &w.connections[draw(CONNECTIONS)];
    struct call *call = &w.calls[draw(CALLS)];

    w.event++;
    if (draw(2) == 0) {
        if (call->is_under_way)
            end_call(call);
        else
            begin_call(call);
    } else if (c->state == NONE) {
        begin_try(c);
    } else if (c->state == TRYING) {
        end_try(c);
    } else {
        use(c);
    }
}

static void set_mode(enum mode mode)
{
    w.mode = mode;
    w.mode_ms = now_ms;
}

/* Everybody is at work, far more often than the shortest pause. */
static void work_for(uint64_t ms)
{
    for (uint64_t end_ms = now_ms + ms; now_ms < end_ms; now_ms += 5)
        for (int i = 0; i < 4 * CONNECTIONS; i++)
            happen();
}

/* The longest that a try may take which began before the server answered, then
 * each pause at its longest. */
#define RECOVERY_MS                                                            \
    (2 * TIMEOUT_MS + 2 * SHED_PAUSE_MAX_MS + OPEN_MAX_MS + 1000)

static void run_schedule(uint64_t seed)
{
    w = (struct world){.seed = seed, .random = seed};
    begin();
    for (int i = 0; i < EVENTS; i++) {
        if (draw(20) == 0)
            set_mode((enum mode)draw(MODES));
        now_ms +=
            draw(4) == 0 ? draw(draw(8) == 0 ? 2 * SHED_PAUSE_MAX_MS : 50) : 0;
        happen();
    }
    if (seed % 16 == 0) {
        set_mode(WORKS);
        work_for(RECOVERY_MS);
        CHECK(health.state == SHED_HEALTH_UP);
        CHECK(shed_health_is_clear(&health));
        CHECK(ask(SHED_HEALTH_LINK) == SHED_HEALTH_UP);
    }
}

enum { SCHEDULES = 4000 };

TEST(every_schedule_keeps_what_is_promised)
{
    uint64_t seed = number_in("SHED_SIM_SEED", UINT64_MAX);
    uint64_t runs = number_in("SHED_SIM_RUNS", SCHEDULES);

    if (seed != UINT64_MAX) {
        run_schedule(seed);
        return;
    }
    for (seed = 0; seed < runs; seed++)
        run_schedule(seed);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), begin, NULL);
    return run_tests("health");
}
