/* slots: which slots of the fleet's budget a source has, what it asks Redis
 * for, and when. */
#include "source/slots.h"

#include <string.h>

#include "support/testing.h"

enum { LIFE_MS = 10000, LOADS_MAX = 4, SOURCES_MAX = 6 };

static struct shed_slots slots;
static struct shed_slots_exchange sent;
static uint64_t now_ms, delay_ms;

static uint64_t draw(void)
{
    static uint64_t seed = 1;

    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 32;
}

static void set_up(size_t budget)
{
    shed_slots_init(&slots, budget, LIFE_MS);
    shed_slots_attach(&slots);
    now_ms = 100000;
}

static bool next(void)
{
    return shed_slots_next(&slots, now_ms, &sent, &delay_ms);
}

/* Expect an exchange of these. */
static void expect_sent(size_t keep, size_t want)
{
    ck_assert(next());
    ck_assert_uint_eq(sent.keep, keep);
    ck_assert_uint_eq(sent.want, want);
}

static void answer(size_t has, size_t in_use, size_t others)
{
    const struct shed_slots_answer a = {has, in_use, others};

    shed_slots_settle(&slots, &a, now_ms * 1000, draw());
}

static void lose_it(void)
{
    shed_slots_settle(&slots, NULL, now_ms * 1000, draw());
}

/* Returns: how long it waited. */
static uint64_t begin(void)
{
    ck_assert(shed_slots_may_begin(&slots));
    return shed_slots_begin(&slots, now_ms * 1000);
}

/* Have a load under way, with a slot. */
static void begin_with_slot(void)
{
    size_t alive = slots.busy;

    shed_slots_want(&slots, 1);
    expect_sent(alive, alive + 1);
    answer(alive + 1, alive + 1, 0);
    begin();
}

/* Have a load come and go. Its slot is still to be given back. */
static void load_once(void)
{
    begin_with_slot();
    shed_slots_want(&slots, 0);
    shed_slots_end(&slots, 1000);
}

/* Ask again and again in vain. Returns: how often; *gap_ms: the shortest time
 * between two. */
static unsigned ask_in_vain(uint64_t for_ms, size_t in_use, uint64_t *gap_ms)
{
    uint64_t begin_ms = now_ms, last_ms = 0;
    unsigned asks = 0;

    *gap_ms = UINT64_MAX;
    shed_slots_want(&slots, 1);
    for (; now_ms < begin_ms + for_ms; now_ms++)
        if (next()) {
            answer(0, in_use, 0);
            if (asks++ > 0 && now_ms - last_ms < *gap_ms)
                *gap_ms = now_ms - last_ms;
            last_ms = now_ms;
        }
    return asks;
}

/* ------------------------------------------------------------ one source */

TEST(a_load_begins_when_its_slot_is_granted)
{
    set_up(2);
    shed_slots_want(&slots, 1);
    ck_assert(!shed_slots_may_begin(&slots));
    expect_sent(0, 1);
    ck_assert(!shed_slots_may_begin(&slots));
    ck_assert(!next()); /* one exchange at a time */
    answer(1, 1, 0);
    begin();
    ck_assert(!shed_slots_may_begin(&slots));
}

TEST(redis_is_asked_before_the_first_load)
{
    set_up(2);
    expect_sent(0, 0);
    answer(0, 0, 0);
    ck_assert(!next());
    ck_assert_uint_eq(delay_ms, UINT64_MAX);
}

TEST(a_slot_is_given_back_when_its_load_has_ended)
{
    set_up(2);
    begin_with_slot();
    shed_slots_want(&slots, 0);
    ck_assert(!next());
    shed_slots_end(&slots, 1000);
    ck_assert(!shed_slots_is_idle(&slots));
    expect_sent(0, 0);
    answer(0, 0, 0);
    ck_assert(shed_slots_is_idle(&slots));
    ck_assert(!next());
    ck_assert_uint_eq(delay_ms, UINT64_MAX);
}

TEST(a_slot_whose_load_ends_during_an_exchange_is_given_back_by_the_next)
{
    set_up(2);
    begin_with_slot();
    shed_slots_want(&slots, 1);
    expect_sent(1, 2);
    shed_slots_end(&slots, 1000);
    answer(2, 2, 1);
    begin();
    ck_assert(!shed_slots_may_begin(&slots));
    shed_slots_want(&slots, 0);
    expect_sent(1, 1);
}

TEST(alone_it_gives_back_and_takes_in_one_exchange)
{
    set_up(1);
    begin_with_slot();
    shed_slots_end(&slots, 1000);
    expect_sent(0, 1);
}

TEST(a_slot_that_nobody_needs_any_longer_is_given_back)
{
    set_up(2);
    shed_slots_want(&slots, 2);
    expect_sent(0, 2);
    shed_slots_want(&slots, 0); /* the queue's callers have given up */
    answer(2, 2, 0);
    expect_sent(0, 0);
    answer(0, 0, 0);
    ck_assert(shed_slots_is_idle(&slots));
}

TEST(a_source_that_no_longer_waits_for_a_slot_says_so)
{
    set_up(1);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    shed_slots_want(&slots, 0);
    answer(0, 1, 0);
    ck_assert(!shed_slots_is_idle(&slots));
    expect_sent(0, 0);
    answer(0, 1, 0);
    ck_assert(shed_slots_is_idle(&slots));
    ck_assert(!next());
}

TEST(a_load_that_was_refused_a_slot_is_told_how_long_it_waited)
{
    set_up(1);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    answer(0, 1, 0);
    now_ms += 500;
    expect_sent(0, 1);
    answer(1, 1, 0);
    ck_assert_uint_eq(begin(), 500000);
}

TEST(refused_asks_are_at_least_2_ms_apart)
{
    uint64_t gap_ms;

    set_up(1000);
    ck_assert_uint_gt(ask_in_vain(1000, 1000, &gap_ms), 200);
    ck_assert_uint_eq(gap_ms, SHED_SLOTS_ASK_MIN_MS);
}

TEST(the_longer_loads_take_the_less_often_it_asks)
{
    uint64_t unused;
    unsigned asks;

    set_up(1);
    shed_slots_go_without(&slots);
    for (unsigned i = 0; i < 100; i++) {
        begin();
        shed_slots_end(&slots, 200000);
    }
    shed_slots_attach(&slots);
    asks = ask_in_vain(10000, 1, &unused);
    /* every 50 to 100 ms, a quarter of a load to half of one */
    ck_assert_uint_ge(asks, 100);
    ck_assert_uint_le(asks, 202);
}

TEST(what_is_given_back_is_left_to_those_that_wait)
{
    set_up(1);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    answer(1, 1, 1);
    begin();
    now_ms += 1000;
    shed_slots_end(&slots, 10000);
    expect_sent(0, 0);
    answer(0, 0, 1);
    ck_assert(!next());
    ck_assert_uint_ge(delay_ms, SHED_SLOTS_ASK_MIN_MS);
    now_ms += delay_ms;
    expect_sent(0, 1);
}

TEST(a_slot_of_a_long_load_is_kept)
{
    set_up(1);
    begin_with_slot();
    shed_slots_want(&slots, 0);
    ck_assert(!next());
    ck_assert_uint_eq(delay_ms, LIFE_MS / 2);
    now_ms += delay_ms;
    expect_sent(1, 1);
    answer(1, 1, 0);
    ck_assert(!next());
    ck_assert_uint_eq(delay_ms, LIFE_MS / 2);
    now_ms += delay_ms;
    expect_sent(1, 1);
    shed_slots_end(&slots, 1000); /* meanwhile */
    answer(1, 1, 0);
    expect_sent(0, 0);
}

TEST(loads_begin_without_slots_while_redis_is_away)
{
    set_up(1);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    lose_it();
    begin();
    ck_assert(!shed_slots_is_idle(&slots));
    ck_assert(!next());
    ck_assert_uint_ge(delay_ms, 500);
    ck_assert_uint_le(delay_ms, 1000);
    now_ms += delay_ms;
    expect_sent(1, 1);
    ck_assert(shed_slots_may_begin(&slots));
    answer(1, 1, 0);
    ck_assert(!shed_slots_may_begin(&slots));
    shed_slots_end(&slots, 1000);
    shed_slots_want(&slots, 0);
    expect_sent(0, 0);
}

/* Else its next loads would all begin at once, whenever they come. */
TEST(a_source_without_loads_finds_out_that_redis_is_back)
{
    set_up(1);
    load_once();
    expect_sent(0, 0);
    lose_it();
    ck_assert(!next());
    now_ms += delay_ms;
    expect_sent(0, 0); /* again, because the first time has failed */
    ck_assert(shed_slots_may_begin(&slots));
    answer(0, 0, 0);
    ck_assert(!shed_slots_may_begin(&slots));
    ck_assert(!next());
    ck_assert_uint_eq(delay_ms, UINT64_MAX);
    shed_slots_go_without(&slots);
    expect_sent(0, 0);
}

TEST(an_answer_that_is_late_is_not_waited_for)
{
    set_up(1);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    shed_slots_go_without(&slots);
    begin();
    shed_slots_want(&slots, 0);
    answer(1, 1, 0);
    /* the slot that came late is that load's */
    ck_assert(!shed_slots_may_begin(&slots));
    ck_assert(!next());
}

TEST(loads_that_began_without_slots_get_them_when_redis_is_asked_again)
{
    set_up(1);
    load_once();
    expect_sent(0, 0);
    answer(0, 0, 0);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    lose_it();
    begin();
    shed_slots_want(&slots, 0);
    shed_slots_go_without(&slots);
    shed_slots_attach(&slots);
    expect_sent(1, 1);
}

TEST(
    a_slot_that_may_have_been_taken_in_vain_is_given_back_when_redis_is_asked_again)
{
    set_up(1);
    shed_slots_want(&slots, 1);
    expect_sent(0, 1);
    lose_it();
    shed_slots_want(&slots, 0);
    ck_assert(!shed_slots_is_idle(&slots));
    shed_slots_go_without(&slots);
    shed_slots_attach(&slots);
    expect_sent(0, 0);
}

/* ---------------------------------------------------- a Redis that may fail */

/* The slots that it has counted for the source. */
static size_t counted;

/* Carry an exchange out. */
static void carry_out(size_t budget)
{
    counted = sent.want < budget ? sent.want : budget;
    if (counted < sent.keep)
        counted = sent.keep;
}

static void change(void)
{
    switch (draw() % 6) {
    case 0:
        shed_slots_want(&slots, draw() % LOADS_MAX);
        break;
    case 1:
        shed_slots_go_without(&slots);
        break;
    case 2:
        now_ms += draw() % LIFE_MS;
        break;
    case 3:
        if (slots.busy > 0)
            shed_slots_end(&slots, 1000);
        break;
    default:
        if (slots.busy < LOADS_MAX && shed_slots_may_begin(&slots))
            begin();
    }
}

/* Let exchanges succeed until nothing is to be sent. */
static void settle_all(size_t budget)
{
    enum { FEW = 5 };
    size_t asks = 0;

    do {
        now_ms += LIFE_MS;
        for (; next(); asks++) {
            ck_assert_uint_lt(asks, FEW);
            carry_out(budget);
            answer(counted, 0, 0);
        }
    } while (slots.is_away);
}

TEST(after_any_failures_redis_has_the_slots_of_all_loads_and_no_others)
{
    enum { ROUNDS = 2000, BUDGET = 6 };

    set_up(BUDGET);
    counted = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint64_t steps = draw() % 30; steps > 0; steps--) {
            bool is_lost;
            size_t changes = draw() % 4;
            if (!next()) {
                change();
                continue;
            }
            is_lost = draw() % 3 == 0;
            if (!is_lost)
                carry_out(BUDGET);
            while (changes-- > 0)
                change();
            if (is_lost || draw() % 4 == 0)
                lose_it();
            else
                answer(counted, 0, 0);
        }
        settle_all(BUDGET);
        ck_assert_uint_eq(counted, slots.busy + slots.ready);
    }
}

/* ---------------------------------------------------------- several sources */

/* Sources that always want LOADS_MAX loads more, on a budget in memory; a load
 * takes load_ms. */
struct source {
    struct shed_slots slots;
    uint64_t ends_ms[LOADS_MAX];
    size_t alive, loads, counted;
    bool is_waiting;
};

static struct source sources[SOURCES_MAX];
static size_t source_count, in_use;

static size_t waiting_beside(const struct source *s)
{
    size_t count = 0;

    for (size_t i = 0; i < source_count; i++)
        count += &sources[i] != s && sources[i].is_waiting;
    return count;
}

/* Carry out an exchange of a source. */
static struct shed_slots_answer exchange(struct source *s)
{
    size_t others = in_use - s->counted, budget = s->slots.budget;
    size_t most = others < budget ? budget - others : 0;

    s->counted = sent.want < most ? sent.want : most;
    if (s->counted < sent.keep)
        s->counted = sent.keep;
    s->is_waiting = s->counted < sent.want;
    in_use = others + s->counted;
    return (struct shed_slots_answer){s->counted, in_use, waiting_beside(s)};
}

static void begin_loads(struct source *s, uint64_t load_ms)
{
    while (s->slots.ready > 0 && s->alive < LOADS_MAX) {
        (void)shed_slots_begin(&s->slots, now_ms * 1000);
        s->ends_ms[s->alive++] = now_ms + load_ms / 2 + draw() % load_ms;
        s->loads++;
    }
    shed_slots_want(&s->slots, LOADS_MAX - s->alive);
}

static void end_loads(struct source *s, uint64_t load_ms)
{
    for (size_t i = s->alive; i-- > 0;)
        if (s->ends_ms[i] <= now_ms) {
            shed_slots_end(&s->slots, load_ms * 1000);
            s->ends_ms[i] = s->ends_ms[--s->alive];
        }
    shed_slots_want(&s->slots, LOADS_MAX - s->alive);
}

static void step(struct source *s, uint64_t load_ms)
{
    end_loads(s, load_ms);
    while (shed_slots_next(&s->slots, now_ms, &sent, &delay_ms)) {
        struct shed_slots_answer a = exchange(s);
        shed_slots_settle(&s->slots, &a, now_ms * 1000, draw());
        begin_loads(s, load_ms);
    }
}

/* Returns: the part of the budget that was used. */
static double run(size_t count, size_t budget, uint64_t load_ms)
{
    enum { RUN_MS = 60000 }; /* hundreds of loads of each */
    uint64_t begin_ms = now_ms = 100000, used = 0;

    memset(sources, 0, sizeof(sources));
    source_count = count;
    in_use = 0;
    for (size_t i = 0; i < count; i++) {
        shed_slots_init(&sources[i].slots, budget, LIFE_MS);
        shed_slots_attach(&sources[i].slots);
        shed_slots_want(&sources[i].slots, LOADS_MAX);
    }
    for (; now_ms < begin_ms + RUN_MS; now_ms++) {
        size_t first = draw() % count, alive = 0;
        for (size_t i = 0; i < count; i++)
            step(&sources[(first + i) % count], load_ms);
        for (size_t i = 0; i < count; i++)
            alive += sources[i].alive;
        ck_assert_uint_le(alive, budget);
        used += alive;
    }
    return (double)used / (double)(budget * RUN_MS);
}

static void expect_fair(void)
{
    size_t least = SIZE_MAX, most = 0;

    for (size_t i = 0; i < source_count; i++) {
        if (sources[i].loads < least)
            least = sources[i].loads;
        if (sources[i].loads > most)
            most = sources[i].loads;
    }
    ck_assert_msg(most < 2 * least, "%zu to %zu loads", least, most);
}

TEST_EACH(sources_share_the_budget_and_use_it, 0, 6)
{
    static const struct {
        size_t sources, budget;
        uint64_t load_ms;
        double used; /* at least */
    } cases[] = {{2, 1, 20, 0.7}, {6, 1, 20, 0.7},   {6, 4, 20, 0.8},
                 {2, 4, 50, 0.8}, {6, 12, 50, 0.85}, {6, 2, 300, 0.8}};
    double used = run(cases[_i].sources, cases[_i].budget, cases[_i].load_ms);

    ck_assert_msg(used >= cases[_i].used, "%.2f of it was used", used);
    expect_fair();
}

int main(void)
{
    return run_tests("slots");
}
