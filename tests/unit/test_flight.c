/* flight: each step of the slow path by itself; test_sim drives many at once.
 * A subject is a flight and a made-up clock.
 *
 * Most tests are a text of words, see play(). */
#include "flight/flight.h"

#include <stdio.h>

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
};

static struct subject subject;

/* What is being played, for messages. */
static const char *playing, *at_word;

#define CHECK(condition)                                                       \
    ck_assert_msg(condition, "%s: %s: not %s", playing, at_word, #condition)

static void set_up(void)
{
    subject = (struct subject){.policy = {.lease_ms = LEASE_MS,
                                          .load_timeout_ms = LOAD_TIMEOUT_MS,
                                          .load_when_down = true,
                                          .pause_ms = PAUSE_MS},
                               .now_ms = 5000};
    shed_flight_init(&subject.flight, &subject.policy, &subject.pace);
}

static void step(struct shed_flight_event event)
{
    subject.act = shed_flight_step(&subject.flight, &event, subject.now_ms,
                                   subject.random);
}

/* ------------------------------------------------------------ what happens */

/* Events by their words. */
static const struct {
    const char *word;
    struct shed_flight_event event;
} events[] = {
    {"again", {.type = SHED_EV_START}},
    {"lead", {.type = SHED_EV_LEAD}},
    {"refresh", {.type = SHED_EV_LEAD, .is_refresh = true}},
    {"hit", {.type = SHED_EV_HIT}},
    {"corrupt", {.type = SHED_EV_CORRUPT}},
    {"marker", {.type = SHED_EV_MARKER}},
    {"wait", {.type = SHED_EV_WAIT, .wait_ms = LEASE_MS}},
    {"watch", {.type = SHED_EV_WAIT, .wait_ms = LEASE_MS, .is_refresh = true}},
    {"stored", {.type = SHED_EV_STORED}},
    {"superseded", {.type = SHED_EV_SUPERSEDED}},
    {"invalidated", {.type = SHED_EV_INVALIDATED}},
    {"ended", {.type = SHED_EV_ENDED}},
    {"lost", {.type = SHED_EV_LEASE_LOST}},
    {"renewed", {.type = SHED_EV_RENEWED}},
    {"passing", {.type = SHED_EV_TROUBLE, .trouble = SHED_TROUBLE_PASSING}},
    {"down", {.type = SHED_EV_TROUBLE, .trouble = SHED_TROUBLE_DOWN}},
    {"denied", {.type = SHED_EV_TROUBLE, .trouble = SHED_TROUBLE_DENIED}},
    {"no_write", {.type = SHED_EV_TROUBLE, .trouble = SHED_TROUBLE_NO_WRITE}},
    {"loaded", {.type = SHED_EV_LOADED}},
    {"load_failed", {.type = SHED_EV_LOAD_FAILED}},
    {"load_refused", {.type = SHED_EV_LOAD_REFUSED}},
    {"timer", {.type = SHED_EV_TIMER}},
    {"push", {.type = SHED_EV_PUSH}},
    {"epoch", {.type = SHED_EV_EPOCH}},
};

/* wait_ms: 0: that of the word. Returns: false if the word is no event. */
static bool make_event(const char *word, uint64_t wait_ms)
{
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        struct shed_flight_event event = events[i].event;
        if (strcmp(word, events[i].word) != 0)
            continue;
        if (wait_ms > 0)
            event.wait_ms = wait_ms;
        step(event);
        return true;
    }
    return false;
}

static void join(void)
{
    subject.flight.newest = ++subject.callers;
}

/* What is no event: how a flight begins, callers, time, options. Returns: false
 * if the word is none of these. */
static bool prepare(const char *word)
{
    bool is_background = strcmp(word, "background") == 0;
    bool has_found_nothing = strcmp(word, "found_nothing") == 0;

    if (is_background || has_found_nothing || strcmp(word, "start") == 0) {
        set_up();
        if (!is_background)
            join();
        subject.flight.is_background = is_background;
        subject.flight.first =
            has_found_nothing ? SHED_FIRST_SET : SHED_FIRST_NOTHING;
        CHECK(make_event("again", 0));
        CHECK(subject.act.send == SHED_SEND_ACQUIRE &&
              subject.act.answer == SHED_ANSWER_NOTHING);
    } else if (strcmp(word, "join") == 0) {
        join();
    } else if (strcmp(word, "all_leave") == 0) {
        subject.flight.newest = 0;
    } else if (word[0] == '+') {
        subject.now_ms += strtoull(word + 1, NULL, 10);
    } else if (strcmp(word, "outdated") == 0) {
        subject.flight.is_outdated = true;
    } else if (strcmp(word, "pushes") == 0) {
        subject.flight.has_pushes = true;
    } else if (strcmp(word, "unwatched") == 0) {
        subject.flight.is_background = false;
    } else if (strcmp(word, "last_random") == 0) {
        subject.random = LAST_RANDOM;
    } else if (strcmp(word, "endless_load") == 0) {
        subject.policy.load_timeout_ms = UINT64_MAX;
    } else if (strcmp(word, "only_redis") == 0) {
        subject.policy.load_when_down = false;
    } else if (strcmp(word, "keeps_rows") == 0) {
        subject.policy.refresh_when_down = true;
    } else {
        return false;
    }
    return true;
}

/* ---------------------------------------------------------- what is checked */

static const char *const states[] = {
    [SHED_FLIGHT_ACQUIRING] = "acquiring",
    [SHED_FLIGHT_WAITING] = "waiting",
    [SHED_FLIGHT_PAUSING] = "pausing",
    [SHED_FLIGHT_LOADING] = "loading",
    [SHED_FLIGHT_ENDING] = "ending",
    [SHED_FLIGHT_ABANDONED] = "abandoned",
    [SHED_FLIGHT_OVER] = "over",
};

static const char *const sends[] = {
    [SHED_SEND_NOTHING] = "nothing", [SHED_SEND_ACQUIRE] = "acquire",
    [SHED_SEND_LOAD] = "load",       [SHED_SEND_PUBLISH] = "publish",
    [SHED_SEND_FAIL] = "fail",       [SHED_SEND_RELEASE] = "release",
    [SHED_SEND_RENEW] = "renew",
};

static const char *const answers[] = {
    [SHED_ANSWER_NOTHING] = "nothing",
    [SHED_ANSWER_ENTRY] = "entry",
    [SHED_ANSWER_LOADED] = "loaded",
    [SHED_ANSWER_UNPUBLISHED] = "unpublished",
    [SHED_ANSWER_FAILURE] = "failure",
};

/* "SEND", "ANSWER:UPTO", or "SEND,ANSWER:UPTO": all that the step wants of
 * these. */
static void check_act(const char *wanted)
{
    const struct shed_flight_act *act = &subject.act;
    char is[64], upto[24] = "all";

    if (act->answer_upto < UINT64_MAX)
        (void)snprintf(upto, sizeof(upto), "%d", (int)act->answer_upto);
    if (act->answer == SHED_ANSWER_NOTHING)
        (void)snprintf(is, sizeof(is), "%s", sends[act->send]);
    else if (act->send == SHED_SEND_NOTHING)
        (void)snprintf(is, sizeof(is), "%s:%s", answers[act->answer], upto);
    else
        (void)snprintf(is, sizeof(is), "%s,%s:%s", sends[act->send],
                       answers[act->answer], upto);
    ck_assert_msg(strcmp(is, wanted) == 0, "%s: %s: but %s", playing, at_word,
                  is);
}

static bool is_set(const char *flag)
{
    const struct shed_flight_act *act = &subject.act;
    const struct {
        const char *flag;
        bool is_set;
    } flags[] = {
        {"detach", act->detach},
        {"leaves_lease", act->leaves_lease},
        {"has_waited", act->has_waited},
        {"timer", act->set_timer},
        {"had_holder", subject.flight.had_holder},
        {"get", act->first == SHED_FIRST_GET},
        {"set", act->first == SHED_FIRST_SET},
    };

    for (size_t i = 0; i < COUNT_OF(flags); i++)
        if (strcmp(flag, flags[i].flag) == 0)
            return flags[i].is_set;
    ck_abort_msg("%s: there is no flag %s", playing, flag);
}

/* Returns: false if the word is no check. */
static bool check(const char *word)
{
    unsigned long long ms;

    if (word[0] == '=')
        CHECK(strcmp(states[subject.flight.state], word + 1) == 0);
    else if (word[0] == '?')
        CHECK(is_set(word + 1));
    else if (word[0] == '!')
        CHECK(!is_set(word + 1));
    else if (sscanf(word, "ms=%llu", &ms) == 1)
        CHECK(subject.act.set_timer && subject.act.timer_ms == ms);
    else if (sscanf(word, "ms<=%llu", &ms) == 1)
        CHECK(subject.act.set_timer && subject.act.timer_ms <= ms);
    else if (sscanf(word, "ms>=%llu", &ms) == 1)
        CHECK(subject.act.set_timer && subject.act.timer_ms >= ms);
    else
        return false;
    return true;
}

/*
 * Play a text. Its words are
 *     EVENT, EVENT:WAIT_MS  a step with this event
 *     EVENT>ACT             the same, and what it must want: see check_act
 *     start, join, +MS, ... see prepare
 *     =STATE                the flight is in this state
 *     ?FLAG, !FLAG          this was wanted by the last step; it was not
 *     ms=N, ms<=N, ms>=N    the last step has set the timer to that
 */
static void play(const char *text)
{
    char copy[512], *rest = copy, *word;

    ck_assert_uint_lt(strlen(text), sizeof(copy));
    (void)strcpy(copy, text);
    playing = text;
    while ((word = strsep(&rest, " ")) != NULL) {
        char spoken[64], *wanted, *number;
        (void)snprintf(spoken, sizeof(spoken), "%s", word);
        at_word = spoken;
        if (check(word) || prepare(word))
            continue;
        wanted = strchr(word, '>');
        if (wanted != NULL)
            *wanted++ = '\0';
        number = strchr(word, ':');
        if (number != NULL)
            *number++ = '\0';
        CHECK(
            make_event(word, number != NULL ? strtoull(number, NULL, 10) : 0));
        if (wanted != NULL)
            check_act(wanted);
    }
}

/* After a refresh that did not do its work. */
#define A_PAUSE " =pausing ms=700 push =pausing timer>nothing =over"

static const char *const texts[] = {
    /* who is answered: those who came before it was read */
    "start hit>entry:1 =over",
    "start join hit>acquire,entry:1 hit>entry:2 =over",
    "start lead>load join loaded>publish join stored>acquire,loaded:2",
    "start lead loaded join superseded>acquire,entry:1",
    "start join lead join loaded invalidated>acquire,unpublished:2",
    /* by what may be outdated: those who came before the load */
    "start join lead join outdated loaded join stored>acquire,loaded:2",
    /* a value that was waited for says so */
    "start hit !has_waited",
    "start wait join push join hit ?has_waited hit !has_waited",
    /* who comes after a value does not join the flight */
    "start hit ?detach",
    "start lead loaded !detach stored ?detach",
    "start lead loaded invalidated !detach",
    /* who comes after an answer reads it */
    "start join hit ?get",
    "start hit join again>acquire hit>entry:2",

    /* a waiter reads at a push; only acquire tells whether the holder lives */
    "start wait =waiting push>acquire ?get",
    "start wait ?timer timer>acquire !get !set",
    "start pushes wait:3 ms=4",
    "start all_leave wait timer>nothing =over",
    /* what the first caller has found is of use once: the lease may have been
       granted */
    "found_nothing ?set passing timer>acquire !get !set",
    "found_nothing lead join load_refused ended join again !get !set",
    /* a push that overtakes the reply is not lost, and counts for one look */
    "start push>nothing wait>acquire",
    "start push wait wait>nothing =waiting",
    /* who was told to wait has waited though a push was faster: else a marker
       for those who waited would not answer it; a later caller has not */
    "start !had_holder push !had_holder wait>acquire ?had_holder "
    "join hit>acquire,entry:1 !had_holder",
    /* all keys may have changed in another epoch, also before the look */
    "start epoch wait>acquire wait =waiting epoch>acquire",

    /* failures end all who wait */
    "start join marker>failure:2 =over",
    "start lead join load_failed>fail,failure:2 ended>nothing !leaves_lease "
    "=over",
    "start lead load_refused>release,failure:1",
    "start lead load_failed join ended>acquire",
    /* what ends a lease is sent again if it is lost */
    "start lead load_failed passing ?timer =ending timer>fail ended =over",
    "start lead load_refused passing timer>release",
    /* a Redis that is out of memory still deletes */
    "start lead load_failed no_write>release no_write>nothing ?leaves_lease "
    "=over",
    "start lead loaded denied>unpublished:1 ?leaves_lease",

    /* the lease is renewed, at a third of it and in the next epoch */
    "start lead ms=1000 +1000 timer>renew ms=1000",
    "start lead epoch>renew !timer lost epoch>nothing",
    "start lead +1000 timer>renew renewed>nothing =loading "
    "+1000 timer>renew renewed>nothing =loading +1000 timer>renew",
    /* a lost one is not, but the load goes on */
    "start lead +1000 timer lost +1000 timer>nothing ms=8000 loaded>publish",
    /* the last renewal does not reach past the load timeout */
    "start lead +9990 timer ms=10",
    /* a refresh renews when its value ends, if that is sooner */
    "start refresh:400 ms=401 +401 timer>renew ms=1000",
    "start refresh:1099511627776 ms=1000",
    "start endless_load lead +3000 timer>renew =loading",

    /* an overdue load fails its callers, newcomers included, and is left
       alone, however it ends */
    "start lead join +10000 timer>fail,failure:all ?detach =abandoned "
    "loaded>nothing =over",
    "start lead +10000 timer load_failed>nothing =over",
    "start lead +10000 timer load_refused>nothing =over",
    "start lead +10000 timer no_write ?leaves_lease =abandoned",

    /* troubles of Redis */
    "start last_random passing ms<=10 timer>acquire",
    "start down>load ms=10000 join loaded>acquire,unpublished:1",
    "start down load_failed>failure:1 =over",
    "start only_redis down>failure:1 =over",
    "start all_leave down>failure:0 =over",
    "start denied>failure:1 =over",
    /* a publish that is sent again has a later cutoff */
    "start lead loaded join passing>nothing timer>publish stored>loaded:2",
    "start lead loaded join down>acquire,unpublished:1",
    "start lead loaded no_write>release,unpublished:1 ended =over",
    /* late timers and pushes disturb nothing */
    "start lead loaded timer>nothing push>nothing stored>loaded:1 "
    "timer>nothing push>nothing =over",
    "start lead timer>renew loaded lost>nothing timer>nothing =ending",

    /* a refresh in the background */
    "background lead>load loaded>publish stored =over",
    "background hit =over",
    /* that of another is watched, slowly, because nobody waits */
    "background last_random watch =waiting ms>=25 timer>acquire watch "
    "push>acquire hit =over",
    "background push watch>acquire",
    "background watch timer lead>load",
    "background watch unwatched timer>nothing =over",
    /* a value that is gone is loaded by its callers */
    "background wait>nothing =over",
    /* without Redis it is loaded for what is kept; if Redis refuses writes it
       still has the row */
    "background keeps_rows down>load loaded =over",
    "background keeps_rows down load_failed>failure:0 =pausing",
    "background keeps_rows no_write>failure:0 =pausing",
    "background lead load_failed>fail,failure:0 ended" A_PAUSE,
    "background lead load_refused>release,failure:0 ended" A_PAUSE,
    "background lead loaded no_write>release,unpublished:0 ended" A_PAUSE,
    "background marker" A_PAUSE,
    "background down>failure:0" A_PAUSE,
    "background denied>failure:0" A_PAUSE,
    "background no_write>failure:0" A_PAUSE,
};

TEST_EACH(a_flight_does_what_its_text_says, 0, COUNT_OF(texts))
{
    play(texts[_i]);
}

/* What fails is tried again a few times, in a row. */
static const struct {
    const char *begin, *again, *end;
} tries[] = {
    {"start", "corrupt", "=over"},
    {"start", "passing timer", "=loading"}, /* as if Redis were down */
    {"start lead load_failed", "passing timer", "=over"},
    {"start lead loaded", "passing timer", "=over"},
};

TEST_EACH(what_fails_is_not_sent_for_ever, 0, COUNT_OF(tries))
{
    enum shed_flight_state state;
    int count = 0;

    play(tries[_i].begin);
    state = subject.flight.state;
    while (subject.flight.state == state && ++count < 100)
        play(tries[_i].again);
    ck_assert_int_gt(count, 1);
    ck_assert_int_lt(count, 10);
    play(tries[_i].end);
}

TEST(failures_with_an_answer_between_them_are_not_in_a_row)
{
    play("start");
    for (int i = 0; i < 20; i++)
        play("corrupt>acquire wait timer>acquire");
    for (int i = 0; i < 20; i++)
        play("passing timer>acquire wait timer>acquire");
}

TEST(a_lease_that_was_renewed_counts_from_its_begin)
{
    struct shed_flight_event wait = {
        .type = SHED_EV_WAIT, .wait_ms = LEASE_MS, .age_ms = 40};

    play("start");
    step(wait);
    subject.now_ms += 500;
    play("push");
    wait.may_be_older = true;
    step(wait);
    ck_assert_uint_eq(subject.flight.leased_ms, subject.now_ms - 540);
    play("timer");
    wait.may_be_older = false; /* another has it */
    step(wait);
    ck_assert_uint_eq(subject.flight.leased_ms, subject.now_ms - 40);
}

static void reply_aged(enum shed_flight_event_type type, uint64_t age_ms)
{
    step((struct shed_flight_event){
        .type = type, .wait_ms = LEASE_MS, .age_ms = age_ms});
}

/* Look again when the timer fires. */
static void look_again(void)
{
    ck_assert(subject.act.set_timer);
    subject.now_ms += subject.act.timer_ms;
    play("timer>acquire");
}

TEST(without_pushes_a_waiter_looks_at_most_every_10_ms)
{
    uint64_t began_ms, longest = 0;

    play("start");
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
    play("start lead loaded");
    subject.now_ms += 50;
    play("stored");
    ck_assert(subject.pace.is_known);
    play("join again");
    reply_aged(SHED_EV_WAIT, 20); /* so 30 are left */
    ck_assert_uint_ge(subject.act.timer_ms, 31);
    ck_assert_uint_le(subject.act.timer_ms, 32);
}

TEST(a_waiter_learns_how_long_the_load_took_that_it_awaited)
{
    play("start");
    reply_aged(SHED_EV_WAIT, 40);
    look_again();
    subject.now_ms += 30;
    reply_aged(SHED_EV_HIT, 25);
    ck_assert(subject.pace.is_known);
    ck_assert_double_eq(subject.pace.mean_ms,
                        (double)(40 + (subject.now_ms - 5000) - 25));
}

TEST(a_value_from_before_the_wait_teaches_nothing)
{
    play("start");
    reply_aged(SHED_EV_HIT, 0);
    ck_assert(!subject.pace.is_known);
    play("join again");
    reply_aged(SHED_EV_WAIT, 10);
    look_again();
    reply_aged(SHED_EV_HIT, 60000);
    ck_assert(!subject.pace.is_known);
}

TEST(with_pushes_a_waiter_polls_slowly)
{
    play("start");
    subject.flight.has_pushes = true;
    for (int i = 0; i < 10; i++) {
        subject.random = (uint64_t)i * 17;
        play("wait");
        ck_assert_uint_ge(subject.act.timer_ms, 25);
        ck_assert_uint_le(subject.act.timer_ms, 150);
        play("timer");
    }
}

int main(void)
{
    return run_tests("flight");
}
