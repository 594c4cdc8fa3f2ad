/* tags: which entries are misses, compared with a model that forgets
 * nothing. */
#include "known/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "known/tag_log.h"
#include "support/reply_testing.h"
#include "support/testing.h"

static struct shed_tags tags;

static void begin_with(size_t limit)
{
    shed_tags_fini(&tags);
    shed_tags_init(&tags, limit);
}

static void set_up(void)
{
    shed_tags_init(&tags, 10);
}

static void tear_down(void)
{
    shed_tags_fini(&tags);
}

/* ------------------------------------------------------------------- cases */

/* Whether an entry is admitted; first and second are its tags, or NULL. */
static bool admits(uint64_t position, const char *first, const char *second)
{
    unsigned char room[SHED_ENTRY_TAGS_MAX_BYTES];
    struct shed_entry_tags entry = {.position = position, .tags = room};

    if (first != NULL)
        entry.tags_size = shed_entry_add_tag(room, 0, first, strlen(first));
    if (second != NULL)
        entry.tags_size =
            shed_entry_add_tag(room, entry.tags_size, second, strlen(second));
    return shed_tags_admit(&tags, &entry);
}

static void note(const char *tag, uint64_t position)
{
    shed_tags_note(&tags, shed_str(tag), position);
}

TEST(all_entries_from_before_their_invalidation_are_misses)
{
    ck_assert(admits(0, NULL, NULL));
    ck_assert(admits(0, "red", NULL));
    note("", 7);
    ck_assert(!admits(0, NULL, NULL));
    ck_assert(!admits(6, "red", NULL));
    ck_assert(admits(7, NULL, NULL));
    ck_assert(admits(8, "red", NULL));
}

TEST(a_tag_makes_misses_of_its_own_entries_alone)
{
    note("red", 7);
    ck_assert(!admits(6, "red", NULL));
    ck_assert(!admits(6, "blue", "red"));
    ck_assert(admits(6, "blue", "re"));
    ck_assert(admits(6, NULL, NULL));
    ck_assert(admits(7, "red", NULL));
    ck_assert_uint_eq(shed_tags_position(&tags, shed_str("red")), 7);
    ck_assert_uint_eq(shed_tags_position(&tags, shed_str("re")), 0);
    ck_assert_uint_eq(shed_tags_position(&tags, shed_str("")), 0);
}

TEST(an_earlier_position_that_is_learnt_later_changes_nothing)
{
    note("red", 7);
    note("red", 5);
    ck_assert(!admits(6, "red", NULL));
    note("", 9);
    note("", 8);
    ck_assert(!admits(8, NULL, NULL));
    ck_assert_uint_eq(shed_tags_horizon(&tags), 9);
    ck_assert_uint_eq(shed_tags_position(&tags, shed_str("")), 9);
}

TEST(more_tags_than_the_limit_cost_entries_from_before_the_oldest)
{
    begin_with(2);
    note("red", 1);
    note("blue", 2);
    note("red", 3);
    ck_assert(admits(1, "green", NULL));
    note("green", 4);
    ck_assert(!admits(1, NULL, NULL));
    ck_assert(admits(2, NULL, NULL));
    ck_assert(!admits(2, "red", NULL));
    ck_assert_uint_eq(tags.count, 2);
}

TEST(a_held_tag_has_no_entries_until_it_is_released)
{
    ck_assert(shed_tags_hold(&tags, shed_str("red")));
    ck_assert_uint_eq(shed_tags_horizon(&tags), UINT64_MAX);
    ck_assert(!admits(1000, "red", NULL));
    ck_assert(admits(0, "blue", NULL));
    ck_assert(shed_tags_hold(&tags, shed_str("")));
    ck_assert(!admits(1000, NULL, NULL));
    shed_tags_release(&tags, shed_str(""));
    shed_tags_release(&tags, shed_str("red"));
    ck_assert(admits(0, "red", NULL));
}

/* --------------------------------------------------------------- schedules */

#define TAGS 6
#define STEPS 60
#define SCHEDULES 3000

/* Everything that was ever invalidated: a tag's number, 0 for everything. */
static struct {
    struct {
        size_t tag;
        uint64_t position;
    } invalidated[STEPS];
    size_t count;
    bool is_held[TAGS];
} model;

static const char *const names[TAGS] = {"", "a", "b", "ab", "ba", "c"};

static bool model_admits(uint64_t position, size_t first, size_t second)
{
    for (size_t i = 0; i < model.count; i++) {
        size_t tag = model.invalidated[i].tag;
        if ((tag == 0 || tag == first || tag == second) &&
            model.invalidated[i].position > position)
            return false;
    }
    return !model.is_held[0] && !(first > 0 && model.is_held[first]) &&
           !(second > 0 && model.is_held[second]);
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static void make_step(uint64_t *seed, uint64_t *newest)
{
    size_t tag = (size_t)draw(seed, 3) == 0 ? 0 : (size_t)draw(seed, TAGS);
    uint64_t what = draw(seed, 8);

    if (what == 0 && !model.is_held[tag]) {
        model.is_held[tag] = shed_tags_hold(&tags, shed_str(names[tag]));
    } else if (what <= 2 && model.is_held[tag]) {
        shed_tags_release(&tags, shed_str(names[tag]));
        model.is_held[tag] = false;
    } else {
        /* now and then one is learnt late, or again */
        uint64_t position =
            what == 3 && *newest > 0 ? 1 + draw(seed, *newest) : ++*newest;
        model.invalidated[model.count].tag = tag;
        model.invalidated[model.count++].position = position;
        note(names[tag], position);
    }
}

static void compare(uint64_t seed, uint64_t newest, bool is_exact)
{
    for (uint64_t position = 0; position <= newest; position++)
        for (size_t first = 0; first < TAGS; first++)
            for (size_t second = 0; second < TAGS; second += 2) {
                bool is = admits(position, first > 0 ? names[first] : NULL,
                                 second > 0 ? names[second] : NULL);
                bool should = model_admits(position, first, second);
                /* not by ck_assert, which writes to a file each time */
                if ((is && !should) || (is != should && is_exact))
                    ck_abort_msg("seed %llu: an entry is %s",
                                 (unsigned long long)seed,
                                 is ? "admitted" : "a miss in vain");
            }
}

/* limit 0: as many as there are tags. */
static void run_schedules(size_t limit)
{
    for (uint64_t run = 0; run < SCHEDULES; run++) {
        uint64_t seed = run, newest = 0;

        memset(&model, 0, sizeof(model));
        begin_with(limit > 0 ? limit : TAGS);
        for (size_t i = 0; i < STEPS; i++)
            make_step(&seed, &newest);
        compare(run, newest, limit == 0);
        if (limit > 0 && tags.count > limit)
            ck_abort_msg("seed %llu: too many tags", (unsigned long long)run);
    }
}

TEST(what_is_admitted_is_what_a_model_admits)
{
    run_schedules(0);
}

TEST(with_few_tags_known_nothing_old_is_admitted)
{
    run_schedules(2);
}

/* ------------------------------------------------------------- from the log */

static uint64_t due;

static enum shed_tag_heard hear(uint64_t *position, const char *wire)
{
    struct shed_reply *reply = parse_reply(wire);
    enum shed_tag_heard heard = shed_tag_log_hear(&tags, position, due, reply);

    shed_reply_free(reply);
    return heard;
}

/* A get and the reactor read the log at the same time. */
TEST(what_two_reads_bring_may_be_the_same)
{
    static const char wire[] = "*4\r\n$0\r\n\r\n$1\r\n5\r\n"
                               "$3\r\nred\r\n$1\r\n7\r\n";
    uint64_t position = 0;

    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(hear(&position, wire), SHED_TAG_HEARD_ALL);
        ck_assert_uint_eq(position, 7);
    }
    ck_assert(!admits(4, NULL, NULL));
    ck_assert(!admits(6, "red", NULL));
    ck_assert(admits(7, "red", NULL));
}

TEST(a_log_that_ends_below_what_is_due_has_lost_its_end)
{
    static const char wire[] = "*2\r\n$3\r\nred\r\n$1\r\n7\r\n";
    uint64_t position = 7;

    due = 7;
    ck_assert_int_eq(hear(&position, wire), SHED_TAG_HEARD_ALL);
    due = 8;
    ck_assert_int_eq(hear(&position, wire), SHED_TAG_HEARD_LOST);
    ck_assert_int_eq(hear(&position, "*0\r\n"), SHED_TAG_HEARD_LOST);
    ck_assert_uint_eq(position, 0);
    due = 0;
    ck_assert_int_eq(hear(&position, "*0\r\n"), SHED_TAG_HEARD_ALL);
}

/* As many as a reply holds, so that there could be more. */
TEST(a_part_that_does_not_lead_on_is_no_log)
{
    enum { MEMBERS = 500 };
    static char wire[MEMBERS * 24 + 16];
    uint64_t position = 6;
    size_t size;

    begin_with(1000);
    size = (size_t)snprintf(wire, sizeof(wire), "*%d\r\n", 2 * MEMBERS);
    for (int i = 0; i < MEMBERS; i++)
        size += (size_t)snprintf(wire + size, sizeof(wire) - size,
                                 "$3\r\n%03d\r\n$1\r\n7\r\n", i);
    ck_assert_int_eq(hear(&position, wire), SHED_TAG_HEARD_PART);
    ck_assert_uint_eq(position, 7);
    ck_assert_int_eq(hear(&position, wire), SHED_TAG_HEARD_OTHER);
}

TEST(what_is_forgotten_begins_again)
{
    note("", 7);
    note("red", 9);
    ck_assert(shed_tags_hold(&tags, shed_str("blue")));
    shed_tags_forget(&tags);
    ck_assert(admits(0, "red", NULL));
    ck_assert(!admits(9, "blue", NULL));
    note("red", 3);
    ck_assert_uint_eq(tags.newest, 3);
    ck_assert(!admits(2, "red", NULL));
}

#define RED_7 "*4\r\n$3\r\nred\r\n$1\r\n7\r\n"

TEST(what_comes_before_a_score_that_is_no_position_counts)
{
    static const char *const wires[] = {RED_7 "$1\r\nx\r\n$3\r\n7.5\r\n",
                                        RED_7 "$1\r\nx\r\n$0\r\n\r\n",
                                        RED_7 "$1\r\nx\r\n$3\r\ninf\r\n",
                                        RED_7 "*0\r\n$1\r\n8\r\n",
                                        RED_7 "$1\r\nx\r\n"
                                              "$16\r\n9007199254740992\r\n",
                                        RED_7
                                        "$1\r\nx\r\n"
                                        "$20\r\n99999999999999999999\r\n"};

    for (size_t i = 0; i < sizeof(wires) / sizeof(*wires); i++) {
        uint64_t position = 0;
        begin_with(10);
        ck_assert_int_eq(hear(&position, wires[i]), SHED_TAG_HEARD_OTHER);
        ck_assert_uint_eq(position, 7);
        ck_assert(!admits(6, "red", NULL));
    }
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("tags");
}
