/* reads: who sends a GET, who shares it, and what each of them is given. The
 * GET is a function of the test, which ends when the test lets it. */
#include "cache/reads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/latch.h"
#include "base/value.h"
#include "support/testing.h"

#define CALLERS 8
/* A deadline that passes when the test opens `deadline`. */
#define TOLD ((uint64_t)1 << 62)

static struct shed_reads *reads;
static struct shed_latch deadline;
static atomic_size_t waits; /* that callers have begun: they are in a group */
static atomic_size_t gets;  /* that have begun */

WRAPPED(shed_latch_wait);

bool __wrap_shed_latch_wait(struct shed_latch *latch, uint64_t deadline_ms)
{
    atomic_fetch_add(&waits, 1);
    if (deadline_ms != TOLD)
        return __real_shed_latch_wait(latch, deadline_ms);
    (void)__real_shed_latch_wait(&deadline, UINT64_MAX);
    return __real_shed_latch_wait(latch, 0);
}

/* ---------------------------------------------------------------- callers */

struct caller {
    const char *key;
    uint64_t deadline_ms;
    enum shed_code code;     /* of its GET */
    struct shed_latch *gate; /* its GET ends when this is open */
    pthread_t thread;
    /* what it has been given */
    bool is_shared;
    struct shed_read got;
};

/* What a GET finds is its number: 1 for the first. */
static void get(void *user, struct shed_read *out)
{
    const struct caller *c = user;
    size_t number = atomic_fetch_add(&gets, 1) + 1;

    if (c->gate != NULL)
        (void)__real_shed_latch_wait(c->gate, UINT64_MAX);
    out->look = (struct shed_look){.value = NULL};
    out->code = c->code;
    if (c->code != SHED_OK) {
        (void)shed_fail(&out->error, c->code, "GET %zu failed", number);
        return;
    }
    out->look.value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_REDIS,
                                        &number, sizeof(number));
    ck_assert_ptr_nonnull(out->look.value);
}

static void *call(void *user)
{
    struct caller *c = user;
    const struct shed_key key = {.redis = c->key,
                                 .redis_size = (unsigned)strlen(c->key)};

    c->is_shared =
        shed_reads_share(reads, &key, c->deadline_ms, get, c, &c->got);
    return NULL;
}

static void start(struct caller *c)
{
    if (c->key == NULL)
        c->key = "key";
    if (c->deadline_ms == 0)
        c->deadline_ms = UINT64_MAX;
    start_thread(&c->thread, call, c);
}

/* Start a caller whose GET begins. */
static void start_getting(struct caller *c)
{
    size_t before = atomic_load(&gets);

    start(c);
    WAIT_UNTIL(atomic_load(&gets) > before, "its GET begins");
}

/* Start a caller that has to wait for another one's GET. */
static void start_waiting(struct caller *c)
{
    size_t before = atomic_load(&waits);

    start(c);
    WAIT_UNTIL(atomic_load(&waits) > before, "it waits");
}

static void end(struct caller *c)
{
    ck_assert_int_eq(pthread_join(c->thread, NULL), 0);
}

/* The number of the GET that has answered it. */
static size_t number_of(const struct caller *c)
{
    size_t number;

    EXPECT_OK(c->got.code);
    ck_assert_uint_eq(c->got.look.value->size, sizeof(number));
    memcpy(&number, c->got.look.value->data, sizeof(number));
    return number;
}

static void release(struct caller *c)
{
    shed_value_unref(c->got.look.value);
}

/* Let the GET of a caller at its gate end. */
static void let_get(struct caller *c)
{
    shed_latch_count_down(c->gate, 1);
    end(c);
    release(c);
}

/* Expect that the GET of this number answers count callers. */
static void end_with(struct caller *c, size_t count, size_t number)
{
    for (size_t i = 0; i < count; i++) {
        end(&c[i]);
        ck_assert_uint_eq(number_of(&c[i]), number);
        release(&c[i]);
    }
}

static void set_up(void)
{
    reads = shed_reads_create();
    ck_assert_ptr_nonnull(reads);
    shed_latch_init(&deadline, 1);
    atomic_store(&waits, 0);
    atomic_store(&gets, 0);
}

static void tear_down(void)
{
    shed_reads_destroy(reads);
}

/* ------------------------------------------------------------------ tests */

/* It may have read what was there before the caller came. */
TEST(a_get_that_was_sent_before_answers_no_newcomer)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate}, second = {0};

    start_getting(&first);
    start_waiting(&second);
    shed_latch_count_down(&gate, 1);
    end_with(&first, 1, 1);
    end_with(&second, 1, 2);
}

TEST(all_who_come_during_a_get_share_the_next)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate}, others[CALLERS] = {0};
    size_t shared = 0;

    start_getting(&first);
    for (size_t i = 0; i < CALLERS; i++)
        start_waiting(&others[i]);
    shed_latch_count_down(&gate, 1);
    end(&first);
    for (size_t i = 0; i < CALLERS; i++) {
        end(&others[i]);
        ck_assert_uint_eq(number_of(&others[i]), 2);
        shared += others[i].is_shared;
    }
    ck_assert_uint_eq(shared, CALLERS - 1);
    ck_assert_uint_eq(
        atomic_load(&shed_value_block(others[0].got.look.value)->refs),
        CALLERS);
    for (size_t i = 0; i < CALLERS; i++)
        release(&others[i]);
    release(&first);
}

TEST(while_the_next_is_under_way_newcomers_share_the_one_after)
{
    struct shed_latch gate = SHED_LATCH_INIT(1), next = SHED_LATCH_INIT(1);
    struct caller a = {.gate = &gate}, b = {.gate = &next}, c = {0}, d = {0};

    start_getting(&a);
    start_waiting(&b);
    shed_latch_count_down(&gate, 1);
    WAIT_UNTIL(atomic_load(&gets) == 2, "the second GET begins");
    start_waiting(&c);
    start_waiting(&d);
    shed_latch_count_down(&next, 1);
    end_with(&a, 1, 1);
    end_with(&b, 1, 2);
    end_with(&c, 1, 3);
    end_with(&d, 1, 3);
}

TEST(another_key_waits_for_nobody)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate};
    struct caller others[CALLERS * CALLERS] = {0};
    char keys[CALLERS * CALLERS][8];
    const size_t count = sizeof(keys) / sizeof(keys[0]);

    start_getting(&first);
    for (size_t i = 0; i < count;
         i++) { /* enough to meet the other key in its slot */
        (void)snprintf(keys[i], sizeof(keys[i]), "%03zu", i);
        others[i].key = keys[i];
        start(&others[i]);
        end(&others[i]);
        ck_assert(!others[i].is_shared);
        release(&others[i]);
    }
    let_get(&first);
}

/* Whether it came before the others or behind them. */
TEST_EACH(a_caller_at_its_deadline_leaves_and_the_others_are_answered, 0, 3)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate}, waiting[3] = {{0}};
    struct caller *hasty = &waiting[_i];

    hasty->deadline_ms = TOLD;
    start_getting(&first);
    for (int i = 0; i < 3; i++)
        start_waiting(&waiting[i]);
    shed_latch_count_down(&deadline, 1);
    end(hasty);
    EXPECT_CODE(hasty->got.code, SHED_ETIMEDOUT);
    EXPECT_CODE(hasty->got.error.code, SHED_ETIMEDOUT);
    ck_assert_ptr_null(hasty->got.look.value);
    let_get(&first);
    for (int i = 0; i < 3; i++)
        if (i != _i)
            end_with(&waiting[i], 1, 2);
}

TEST(one_that_leaves_alone_holds_up_nobody)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate}, head = {.deadline_ms = 1};
    struct caller late = {0};

    start_getting(&first);
    start(&head);
    end(&head);
    start_waiting(&late);
    let_get(&first);
    end_with(&late, 1, 2);
}

/* Its deadline passes while Redis is silent, or it has no memory: the others
 * may have both. */
TEST_EACH(what_is_a_callers_own_failure_fails_no_other, 0, 2)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate}, waiting[3] = {{0}};

    waiting[0].code = _i == 0 ? SHED_ETIMEDOUT : SHED_ENOMEM;
    start_getting(&first);
    for (int i = 0; i < 3; i++)
        start_waiting(&waiting[i]);
    let_get(&first);
    end(&waiting[0]);
    EXPECT_CODE(waiting[0].got.code, waiting[0].code);
    end_with(&waiting[1], 2, 3);
}

TEST(a_failure_of_redis_is_shared_with_its_reason)
{
    struct shed_latch gate = SHED_LATCH_INIT(1);
    struct caller first = {.gate = &gate};
    struct caller head = {.code = SHED_EREDIS}, other = {0};

    start_getting(&first);
    start_waiting(&head);
    start_waiting(&other);
    let_get(&first);
    end(&head);
    end(&other);
    ck_assert(other.is_shared);
    EXPECT_CODE(other.got.code, SHED_EREDIS);
    ck_assert_str_eq(other.got.error.reason, "GET 2 failed");
    ck_assert_uint_eq(atomic_load(&gets), 2);
}

/* ------------------------------------------------------------------ storm */

enum { STORM_THREADS = 6, STORM_CALLS = 3000 };

static atomic_size_t stored; /* what a GET reads */

static void get_stored(void *user, struct shed_read *out)
{
    unsigned *nth = user;
    size_t number = atomic_load(&stored);

    out->look = (struct shed_look){.value = NULL};
    out->code = ++*nth % 7 == 0 ? SHED_ETIMEDOUT : SHED_OK;
    if (out->code != SHED_OK)
        return;
    out->look.value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_REDIS,
                                        &number, sizeof(number));
}

/* Each caller writes, and then reads nothing older. */
static void *write_and_read(void *user)
{
    const struct shed_key key = {.redis = "key", .redis_size = 3};
    unsigned nth = 0;

    (void)user;
    for (size_t i = 0; i < STORM_CALLS; i++) {
        size_t written = atomic_fetch_add(&stored, 1) + 1, number;
        struct shed_read got;
        bool is_shared = shed_reads_share(
            reads, &key, i % 5 == 0 ? 1 : UINT64_MAX, get_stored, &nth, &got);
        ck_assert(!is_shared || got.code != SHED_ETIMEDOUT);
        if (got.code != SHED_OK)
            continue;
        memcpy(&number, got.look.value->data, sizeof(number));
        ck_assert_uint_ge(number, written);
        shed_value_unref(got.look.value);
    }
    return NULL;
}

TEST(whoever_writes_reads_nothing_older)
{
    pthread_t thread[STORM_THREADS];

    for (size_t i = 0; i < STORM_THREADS; i++)
        start_thread(&thread[i], write_and_read, NULL);
    for (size_t i = 0; i < STORM_THREADS; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("reads");
}
