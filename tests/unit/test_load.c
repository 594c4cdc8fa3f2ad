/* load: the queue, its batches, the bound on loads, and how jobs settle. */
#include "source/load.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "support/bare.h"
#include "support/answers.h"
#include "support/pulse.h"
#include "support/requests.h"

/* ------------------------------------------------------- what can fail */

/* Linked with --wrap: the test can make memory and threads run out, and move
 * the clock. */
WRAPPED(pthread_create);
WRAPPED(calloc);
WRAPPED(malloc);

uint64_t __wrap_shed_wall_ms(void);

/* Far from the times at which an adaptive limit probes. */
uint64_t __wrap_shed_wall_ms(void)
{
    return 5000;
}

static atomic_bool threads_are_out;
static atomic_bool memory_is_out; /* for loader threads */
static _Thread_local bool is_loader;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg)
{
    if (atomic_load(&threads_are_out))
        return EAGAIN;
    return __real_pthread_create(thread, attr, run, arg);
}

void *__wrap_calloc(size_t count, size_t size)
{
    if (is_loader && atomic_load(&memory_is_out))
        return NULL;
    return __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
    if (is_loader && atomic_load(&memory_is_out))
        return NULL;
    return __real_malloc(size);
}

/* ------------------------------------------------------- the fake source */

enum { LOADS_MAX = 4096 };

/* A source whose loads stay open until the test ends them. */
struct fake {
    struct shed_source *source;
    bool blocks;     /* its function waits for the end of its load */
    bool is_instant; /* loads are answered at once */

    pthread_mutex_t mu;
    pthread_cond_t change;
    /* under mu */
    struct shed_load *loads[LOADS_MAX];
    size_t counts[LOADS_MAX]; /* of their keys */
    bool is_ended[LOADS_MAX];
    size_t load_count; /* begun so far */
    size_t open;       /* under way */
    size_t most_open;
    size_t starts, stops; /* of threads */
    size_t closes, open_at_close;
    bool is_blocked[LOADS_MAX]; /* SIGTERM and SIGPIPE are, in the load */
    void *threads[LOADS_MAX];
};

static struct fake fake = {.mu = PTHREAD_MUTEX_INITIALIZER,
                           .change = PTHREAD_COND_INITIALIZER};

static struct shed_source_options o; /* of fake.source */
static struct pulse pulse;

static void submit(size_t i)
{
    expect_queued(fake.source, make_request(i));
}

/* One for which no caller waits. */
static void submit_background(size_t i)
{
    expect_queued(fake.source, make_refresh(i));
}

/* Jobs that come together. */
static void submit_burst(size_t count)
{
    struct shed_list jobs = {NULL, NULL};

    for (size_t i = 0; i < count; i++)
        shed_list_append(&jobs, &make_request(i)->job.node);
    shed_source_submit(fake.source, &jobs);
}

static void wait_settled(struct request *request)
{
    uint64_t deadline_ms = test_deadline_ms();

    while (atomic_load(&request->settled) == 0) {
        ck_assert_msg(shed_now_ms() < deadline_ms, "%s does not settle",
                      request->key);
        sched_yield();
    }
    ck_assert_uint_eq(atomic_load(&request->settled), 1);
}

static void answer_all(struct shed_load *load)
{
    for (size_t i = 0; i < load->count; i++)
        answer_row(load, i, load->keys[i].key);
}

static void end_load(size_t i)
{
    struct shed_load *load;

    pthread_mutex_lock(&fake.mu);
    load = fake.loads[i];
    fake.open--;
    pthread_mutex_unlock(&fake.mu);
    answer_all(load);
    shed_load_done(load);
    pthread_mutex_lock(&fake.mu);
    fake.is_ended[i] = true;
    pthread_cond_broadcast(&fake.change);
    pthread_mutex_unlock(&fake.mu);
}

static void keep_load(void *user, void *thread, struct shed_load *load)
{
    sigset_t now;
    size_t i;

    (void)user;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &now);
    pthread_mutex_lock(&fake.mu);
    i = fake.load_count;
    ck_assert_uint_lt(i, LOADS_MAX);
    fake.loads[i] = load;
    fake.counts[i] = load->count;
    fake.is_blocked[i] =
        sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGPIPE) == 1;
    fake.threads[i] = thread;
    if (++fake.open > fake.most_open)
        fake.most_open = fake.open;
    fake.load_count++;
    pthread_cond_broadcast(&fake.change);
    while (fake.blocks && !fake.is_ended[i] && !fake.is_instant)
        pthread_cond_wait(&fake.change, &fake.mu);
    pthread_mutex_unlock(&fake.mu);
    if (fake.is_instant)
        end_load(i);
}

static void wait_loads(size_t count)
{
    uint64_t deadline_ms = test_deadline_ms();

    pthread_mutex_lock(&fake.mu);
    while (fake.load_count < count) {
        pthread_mutex_unlock(&fake.mu);
        ck_assert_msg(shed_now_ms() < deadline_ms, "no load %zu begins", count);
        sched_yield();
        pthread_mutex_lock(&fake.mu);
    }
    pthread_mutex_unlock(&fake.mu);
}

/* End loads in the order in which they begin. */
static void end_loads(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        wait_loads(i + 1);
        end_load(i);
    }
}

/* Expect that the i-th load is of these keys, in this order; and end it. */
static void expect_load(size_t i, const char *keys)
{
    char all[64] = "";

    wait_loads(i + 1);
    for (size_t k = 0; k < fake.counts[i]; k++) {
        struct shed_bytes key = fake.loads[i]->keys[k].key;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%.*s",
                 k > 0 ? " " : "", (int)key.size, (const char *)key.data);
    }
    ck_assert_str_eq(all, keys);
    end_load(i);
}

static void *note_start(void *user)
{
    (void)user;
    is_loader = true;
    pthread_mutex_lock(&fake.mu);
    fake.starts++;
    pthread_mutex_unlock(&fake.mu);
    return &is_loader;
}

static void note_stop(void *user, void *thread)
{
    (void)user;
    ck_assert_ptr_eq(thread, &is_loader);
    pthread_mutex_lock(&fake.mu);
    fake.stops++;
    pthread_mutex_unlock(&fake.mu);
}

static void note_close(void *user)
{
    ck_assert_ptr_eq(user, &fake);
    pthread_mutex_lock(&fake.mu);
    fake.open_at_close = fake.open;
    fake.closes++;
    pthread_mutex_unlock(&fake.mu);
}

static void set_up(void)
{
    o = bare_source();
    o.thread_start = note_start;
    o.thread_stop = note_stop;
    o.on_close = note_close;
}

static void open_fake(void)
{
    EXPECT_OK(shed_source_open_batch(keep_load, &fake, &o, &fake.source, NULL));
}

static void close_fake(void)
{
    shed_source_close(fake.source);
    fake.source = NULL;
}

static void tear_down(void)
{
    close_fake();
    for (size_t i = 0; i < KEYS_MAX; i++)
        shed_value_unref(requests[i].job.loaded.value);
}

/* Check that what began at begin_ms did not wait for a batch, unless the
 * machine stopped for a part of that time. */
static void check_no_wait(uint64_t begin_ms)
{
    enum { PART = 5 };
    uint64_t took_ms = shed_now_ms() - begin_ms;
    uint64_t stall_ms = pulse_longest_ms(&pulse);

    ck_assert_msg(took_ms < o.batch_wait_ms ||
                      stall_ms > o.batch_wait_ms / PART,
                  "it took %llu ms, though the machine stood still for at most "
                  "%llu ms",
                  (unsigned long long)took_ms, (unsigned long long)stall_ms);
    pulse_reset(&pulse);
}

/* ---------------------------------------------------------------- batches */

TEST(a_lone_key_does_not_wait_and_those_behind_it_share_a_batch)
{
    uint64_t begin_ms;

    o.batch_wait_ms = 1000;
    o.max_batch = 3;
    open_fake();
    pulse_start(&pulse);
    begin_ms = shed_now_ms();
    submit(0);
    wait_loads(1);
    check_no_wait(begin_ms);
    begin_ms = shed_now_ms();
    for (size_t i = 1; i <= 3; i++)
        submit(i);
    wait_loads(2);
    check_no_wait(begin_ms);
    pulse_stop(&pulse);
    ck_assert_uint_eq(fake.counts[1], 3);
    end_loads(0, 2);
}

TEST(a_batch_that_does_not_fill_goes_after_batch_wait)
{
    uint64_t begin_ms;

    o.batch_wait_ms = 30;
    open_fake();
    submit(0);
    wait_loads(1);
    begin_ms = shed_now_ms();
    submit(1);
    wait_loads(2);
    ck_assert_uint_ge(shed_now_ms() - begin_ms + 1, o.batch_wait_ms);
    end_load(0);
    end_load(1);
}

TEST(a_batch_goes_at_once_when_the_last_other_load_ends)
{
    /* in each round the load may end before the wait begins */
    enum { ROUNDS = 20, YIELDS_MS = 100 };
    uint64_t begin_ms;

    o.batch_wait_ms = 1000;
    open_fake();
    submit(0);
    wait_loads(1);
    pulse_start(&pulse);
    for (size_t i = 1; i <= ROUNDS; i++) {
        submit(i);
        begin_ms = shed_now_ms();
        for (size_t yields = 0;
             yields < i * i && shed_now_ms() < begin_ms + YIELDS_MS; yields++)
            sched_yield();
        begin_ms = shed_now_ms();
        end_load(i - 1);
        wait_loads(i + 1);
        check_no_wait(begin_ms);
    }
    pulse_stop(&pulse);
    end_load(ROUNDS);
}

TEST(keys_that_come_together_share_a_batch)
{
    /* Enough that the thread which the first job starts is running before the
     * last one is queued. */
    o.max_batch = KEYS_MAX;
    open_fake();
    submit_burst(KEYS_MAX);
    wait_loads(1);
    ck_assert_uint_eq(fake.counts[0], KEYS_MAX);
    end_load(0);
}

TEST(a_batch_has_at_most_max_batch_keys_and_its_first_tells_how_many)
{
    enum { KEYS = 30, MOST = 7 };
    size_t sizes = 0, firsts = 0;

    o.max_batch = MOST;
    o.batch_wait_ms = 0;
    fake.is_instant = true;
    open_fake();
    submit_burst(KEYS);
    for (size_t i = 0; i < KEYS; i++) {
        wait_settled(&requests[i]);
        ck_assert_uint_le(requests[i].job.loaded.batch_keys, MOST);
        sizes += requests[i].job.loaded.batch_keys;
        firsts += requests[i].job.loaded.batch_keys > 0;
    }
    ck_assert_uint_eq(sizes, KEYS);
    ck_assert_uint_eq(firsts, fake.load_count);
}

/* ----------------------------------------------------------------- bounds */

TEST(a_burst_is_loaded_by_as_many_threads_as_may_be)
{
    o.max_loads = 3;
    o.max_batch = 1;
    fake.blocks = true;
    open_fake();
    submit_burst(5);
    wait_loads(3);
    end_loads(0, 5);
    close_fake();
    ck_assert_uint_eq(fake.most_open, 3);
    ck_assert_uint_eq(fake.starts, 3);
}

static void *end_loads_on_thread(void *count)
{
    end_loads(0, *(size_t *)count);
    return NULL;
}

TEST(a_load_counts_until_it_is_done_wherever_that_is)
{
    enum { KEYS = 500 };
    size_t count = KEYS;
    pthread_t ender;

    o.max_loads = 2;
    o.max_batch = 1;
    open_fake();
    submit_burst(KEYS);
    start_thread(&ender, end_loads_on_thread, &count);
    for (size_t i = 0; i < KEYS; i++)
        wait_settled(&requests[i]);
    ck_assert_int_eq(pthread_join(ender, NULL), 0);
    close_fake();
    ck_assert_uint_eq(fake.load_count, KEYS);
    ck_assert_uint_eq(fake.most_open, 2);
}

/* Loads of one key each, up to eight at a time. */
static void open_adaptive(void)
{
    o.max_loads = 8;
    o.max_batch = 1;
    o.batch_wait_ms = 0;
    o.adaptive_loads = 1;
    open_fake();
}

/* Loads one after the other, each of which takes this long. */
static void load_alone(size_t count, uint64_t ms)
{
    for (size_t i = 0; i < count; i++) {
        submit(i);
        wait_loads(i + 1);
        pass_ms(ms);
        end_load(i);
        WAIT_FOR(shed_source_look(fake.source).loads == 0);
    }
}

/* Each load takes a second longer for every other load that runs at the same
 * time. */
TEST(an_adaptive_limit_falls_while_loads_slow_each_other_down)
{
    enum { LONE = 5, KEYS = 100 };

    open_adaptive();
    ck_assert_uint_eq(shed_source_look(fake.source).loads_limit, 4);
    load_alone(LONE, 10);
    for (size_t i = LONE; i < KEYS; i++)
        submit(i);
    for (size_t i = LONE; i < KEYS; i++) {
        wait_loads(i + 1);
        if (i == KEYS / 2) { /* a few windows later */
            ck_assert_uint_lt(shed_source_look(fake.source).loads_limit, 4);
            pthread_mutex_lock(&fake.mu);
            fake.most_open = 0;
            pthread_mutex_unlock(&fake.mu);
        }
        pass_ms(1000);
        end_load(i);
    }
    close_fake();
    ck_assert_uint_le(fake.most_open, 3);
}

TEST(an_adaptive_limit_grows_and_has_the_threads_for_it)
{
    enum { LONE = 5, KEYS = 200, MOST = 8 };

    open_adaptive();
    load_alone(LONE, 60000);
    for (size_t i = LONE; i < KEYS; i++)
        submit(i);
    end_loads(LONE, KEYS); /* much faster than those that ran alone */
    close_fake();
    ck_assert_uint_eq(fake.most_open, MOST);
}

/* ------------------------------------------------- loads in the background */

/* A source that runs one load at a time, of which the first, of k0, is under
 * way. */
static void open_busy(uint64_t max_batch, uint64_t queue_limit)
{
    o.max_loads = 1;
    o.max_batch = max_batch;
    o.queue_limit = queue_limit;
    open_fake();
    submit(0);
    wait_loads(1);
}

TEST(a_key_that_callers_wait_for_goes_before_those_behind_them)
{
    open_busy(1, 100);
    submit_background(1);
    submit_background(2);
    submit(3);
    submit_background(4);
    submit(5);
    expect_load(0, "k0");
    expect_load(1, "k3");
    expect_load(2, "k5");
    expect_load(3, "k1");
    wait_loads(5); /* what is under way is not interrupted */
    submit(6);
    expect_load(4, "k2");
    expect_load(5, "k6");
    expect_load(6, "k4");
}

TEST(a_batch_is_filled_up_from_behind_the_callers)
{
    open_busy(3, 100);
    for (size_t i = 1; i <= 3; i++)
        submit_background(i);
    submit(4);
    expect_load(0, "k0");
    expect_load(1, "k4 k1 k2");
    expect_load(2, "k3");
}

TEST(a_key_moves_forward_when_a_caller_begins_to_wait)
{
    struct request *last, *running;

    open_busy(1, 100);
    running = &requests[0];
    for (size_t i = 1; i <= 4; i++)
        submit_background(i);
    last = &requests[4];
    submit(5);
    shed_source_hasten(fake.source, &requests[2].job); /* from the middle */
    shed_source_hasten(fake.source, &last->job);
    shed_source_hasten(fake.source, &last->job); /* once is enough */
    shed_source_hasten(fake.source, &running->job);
    submit_background(6);
    expect_load(0, "k0");
    shed_source_hasten(fake.source, &running->job);
    expect_load(1, "k5");
    expect_load(2, "k2");
    expect_load(3, "k4");
    expect_load(4, "k1");
    expect_load(5, "k3");
    expect_load(6, "k6");
}

/* A caller came in the turn of the loop in which the refresh was begun. */
TEST(a_key_that_is_not_queued_yet_can_be_made_to_go_before_refreshes)
{
    struct request *hastened;

    open_busy(1, 100);
    submit_background(1);
    hastened = make_refresh(2);
    shed_source_hasten(fake.source, &hastened->job);
    expect_queued(fake.source, hastened);
    expect_load(0, "k0");
    expect_load(1, "k2");
    expect_load(2, "k1");
}

TEST(in_a_full_queue_a_caller_takes_the_place_of_a_refresh)
{
    struct shed_error err;

    open_busy(1, 2);
    submit_background(1);
    submit_background(2);
    EXPECT_CODE(submit_request(fake.source, make_refresh(3), &err), SHED_EBUSY);
    submit(4);
    ck_assert_uint_eq(atomic_load(&requests[1].settled), 1); /* the oldest */
    ck_assert(requests[1].job.loaded.is_refused);
    EXPECT_CODE(requests[1].job.loaded.error.code, SHED_EBUSY);
    submit(5);
    ck_assert_uint_eq(atomic_load(&requests[2].settled), 1);
    EXPECT_CODE(submit_request(fake.source, make_request(6), &err), SHED_EBUSY);
    ck_assert_ptr_nonnull(strstr(err.reason, "queue is full: 2 keys"));
    ck_assert_uint_eq(shed_source_look(fake.source).queued, 2);
    expect_load(0, "k0");
    expect_load(1, "k4");
    expect_load(2, "k5");
    close_fake();
    ck_assert_uint_eq(atomic_load(&requests[6].settled), 1);
}

TEST(a_job_that_is_late_in_the_queue_is_not_loaded)
{
    struct request *late = make_request(1);

    open_busy(100, 100);
    late->job.deadline_ms = shed_now_ms();
    expect_queued(fake.source, late);
    submit(2);
    expect_load(0, "k0");
    wait_settled(late);
    ck_assert_ptr_null(late->job.loaded.value);
    EXPECT_CODE(late->job.loaded.error.code, SHED_ETIMEDOUT);
    ck_assert_uint_eq(late->job.loaded.batch_keys, 0);
    expect_load(1, "k2");
    wait_settled(&requests[2]);
    ck_assert_ptr_nonnull(requests[2].job.loaded.value);
}

TEST(a_refresh_that_is_late_does_not_wait_for_its_turn)
{
    struct request *late = make_refresh(1);

    open_busy(1, 100);
    late->job.deadline_ms = shed_now_ms();
    expect_queued(fake.source, late);
    submit_background(2);
    submit(3);
    submit(4);
    expect_load(0, "k0");
    wait_settled(late); /* while k3 is loaded, and k4 waits */
    EXPECT_CODE(late->job.loaded.error.code, SHED_ETIMEDOUT);
    expect_load(1, "k3");
    expect_load(2, "k4");
    expect_load(3, "k2");
}

TEST(a_queue_of_late_jobs_alone_calls_nobody)
{
    struct request *late = make_request(0);

    late->job.deadline_ms = 0;
    open_fake();
    expect_queued(fake.source, late);
    wait_settled(late);
    close_fake();
    ck_assert_uint_eq(fake.load_count, 0);
}

static const struct {
    uint64_t last_ms; /* of the last job */
    uint64_t above_ms, most_ms;
} times[] = {{30000, 20000, 30000}, {3600000, 0, 60000}};

TEST_EACH(a_load_has_the_time_of_its_last_job_and_load_timeout_at_most, 0,
          COUNT_OF(times))
{
    uint64_t now_ms = shed_now_ms(), left_ms;
    struct shed_list jobs = {NULL, NULL};

    o.load_timeout_ms = 60000;
    open_fake();
    for (size_t i = 0; i < 2; i++) {
        make_request(i)->job.deadline_ms =
            now_ms + times[_i].last_ms - (1 - i) * 10000;
        shed_list_append(&jobs, &requests[i].job.node);
    }
    shed_source_submit(fake.source, &jobs);
    wait_loads(1);
    left_ms = shed_load_remaining_ms(fake.loads[0]);
    ck_assert_uint_gt(left_ms, times[_i].above_ms);
    ck_assert_uint_le(left_ms, times[_i].most_ms);
    end_load(0);
}

TEST(a_load_past_its_time_has_none_left)
{
    o.load_timeout_ms = 1;
    open_fake();
    submit(0);
    wait_loads(1);
    for (uint64_t end_ms = test_deadline_ms();
         shed_load_remaining_ms(fake.loads[0]) > 0;)
        ck_assert_uint_lt(shed_now_ms(), end_ms);
    end_load(0);
}

/* ---------------------------------------------------------------- answers */

static void assert_failed(size_t i, enum shed_code code, const char *reason)
{
    ck_assert_ptr_null(requests[i].job.loaded.value);
    ck_assert_int_eq(requests[i].job.loaded.error.code, code);
    ck_assert_ptr_nonnull(strstr(requests[i].job.loaded.error.reason, reason));
}

static void *answer_often(void *load)
{
    enum { TIMES = 200 };

    for (int i = 0; i < TIMES; i++)
        answer_all(load);
    return NULL;
}

TEST(one_load_is_answered_by_several_threads)
{
    enum { THREADS = 4, KEYS = 16 };
    pthread_t threads[THREADS];

    open_fake();
    submit_burst(KEYS);
    wait_loads(1);
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], answer_often, fake.loads[0]);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    end_load(0);
    close_fake();
    for (size_t i = 0; i < KEYS; i++)
        ck_assert_mem_eq(requests[i].job.loaded.value->data, requests[i].key,
                         requests[i].job.key_size);
}

/* ---------------------------------------------------------------- threads */

#define SUBMITTERS ((size_t)8)
#define EACH ((size_t)400)

static void *submit_many(void *arg)
{
    size_t first = *(size_t *)arg;

    for (size_t i = first; i < first + EACH; i++)
        submit(i);
    return NULL;
}

TEST(every_job_of_many_threads_settles_once_with_its_own_answer)
{
    pthread_t threads[SUBMITTERS];
    size_t firsts[SUBMITTERS];
    size_t keys = 0;

    o.max_batch = 16;
    o.batch_wait_ms = 1;
    fake.is_instant = true;
    open_fake();
    for (size_t i = 0; i < SUBMITTERS; i++) {
        firsts[i] = i * EACH;
        start_thread(&threads[i], submit_many, &firsts[i]);
    }
    for (size_t i = 0; i < SUBMITTERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    close_fake();
    for (size_t i = 0; i < SUBMITTERS * EACH; i++) {
        ck_assert_uint_eq(atomic_load(&requests[i].settled), 1);
        ck_assert_uint_eq(requests[i].job.loaded.value->size,
                          requests[i].job.key_size);
        ck_assert_mem_eq(requests[i].job.loaded.value->data, requests[i].key,
                         requests[i].job.key_size);
        keys += requests[i].job.loaded.batch_keys;
    }
    ck_assert_uint_eq(keys, SUBMITTERS * EACH);
    ck_assert_uint_le(fake.most_open, o.max_loads);
}

TEST(a_thread_starts_with_the_first_key_and_has_all_signals_blocked)
{
    fake.is_instant = true;
    open_fake();
    ck_assert_uint_eq(fake.starts, 0);
    submit(0);
    wait_settled(&requests[0]);
    close_fake();
    ck_assert_uint_eq(fake.starts, 1);
    ck_assert_uint_eq(fake.stops, 1);
    ck_assert(fake.is_blocked[0]);
    ck_assert_ptr_nonnull(fake.threads[0]); /* what thread_start made */
}

TEST(without_a_thread_a_key_is_refused)
{
    struct shed_error err;

    open_fake();
    atomic_store(&threads_are_out, true);
    EXPECT_CODE(submit_request(fake.source, make_request(0), &err),
                SHED_ENOMEM);
    atomic_store(&threads_are_out, false);
    submit(1);
    wait_loads(1);
    ck_assert_uint_eq(fake.counts[0], 1);
    end_load(0);
    close_fake();
    ck_assert_uint_eq(atomic_load(&requests[0].settled), 1);
}

TEST(one_thread_carries_on_where_no_other_can_be_had)
{
    o.max_batch = 1;
    fake.blocks = true;
    open_fake();
    submit(0);
    wait_loads(1);
    atomic_store(&threads_are_out, true);
    submit(1);
    end_load(0);
    wait_loads(2);
    end_load(1);
    close_fake();
    ck_assert_uint_eq(fake.starts, 1);
}

TEST(without_memory_for_a_load_its_keys_fail_one_by_one)
{
    o.max_loads = 1;
    fake.is_instant = true;
    atomic_store(&memory_is_out, true);
    open_fake();
    submit_burst(3);
    for (size_t i = 0; i < 3; i++) {
        wait_settled(&requests[i]);
        assert_failed(i, SHED_ENOMEM, "out of memory");
    }
    atomic_store(&memory_is_out, false);
    submit(3);
    wait_settled(&requests[3]);
    ck_assert_ptr_nonnull(requests[3].job.loaded.value);
}

static void load_without_memory(void *user, void *thread,
                                struct shed_load *load)
{
    (void)user;
    (void)thread;
    atomic_store(&memory_is_out, true);
    answer_row(load, 0, shed_str("x"));
    atomic_store(&memory_is_out, false);
    shed_load_done(load);
}

TEST(without_memory_for_a_value_its_key_fails)
{
    EXPECT_OK(shed_source_open_batch(load_without_memory, &fake, &o,
                                     &fake.source, NULL));
    submit(0);
    wait_settled(&requests[0]);
    assert_failed(0, SHED_ENOMEM, "out of memory");
}

/* ------------------------------------------------------------ its end */

/* End the first load, but only after a close that did not wait for it would
 * have returned. */
static void *end_load_late(void *arg)
{
    enum { LATE_MS = 50 };
    uint64_t end_ms = shed_now_ms() + LATE_MS;
    bool is_over = false;

    (void)arg;
    while (!is_over && shed_now_ms() < end_ms) {
        sched_yield();
        pthread_mutex_lock(&fake.mu);
        is_over = fake.closes > 0;
        pthread_mutex_unlock(&fake.mu);
    }
    end_load(0);
    return NULL;
}

TEST(closing_waits_for_a_load_that_another_thread_ends)
{
    pthread_t ender;

    open_fake();
    submit(0);
    wait_loads(1);
    start_thread(&ender, end_load_late, NULL);
    close_fake();
    ck_assert_uint_eq(fake.open_at_close, 0);
    ck_assert_int_eq(pthread_join(ender, NULL), 0);
}

static void *close_source(void *arg)
{
    (void)arg;
    close_fake();
    return NULL;
}

TEST(closing_waits_for_what_runs_and_for_what_is_queued)
{
    pthread_t closer;

    o.max_loads = 1;
    o.max_batch = 1;
    open_fake();
    submit_burst(3);
    wait_loads(1);
    start_thread(&closer, close_source, NULL);
    end_loads(0, 3);
    ck_assert_int_eq(pthread_join(closer, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(atomic_load(&requests[i].settled), 1);
    ck_assert_uint_eq(fake.closes, 1);
    ck_assert_uint_eq(fake.stops, fake.starts);
}

TEST(a_source_lives_as_long_as_somebody_holds_it)
{
    static struct shed_cache cache;

    fake.is_instant = true;
    open_fake();
    shed_source_ref(fake.source, &cache);
    shed_source_close(fake.source);
    ck_assert_uint_eq(fake.closes, 0);
    submit(0);
    wait_settled(&requests[0]);
    shed_source_unref(fake.source, &cache);
    fake.source = NULL;
    ck_assert_uint_eq(fake.closes, 1);
}

TEST(closing_nothing_is_allowed)
{
    shed_source_close(NULL);
}

TEST(options_out_of_range_are_named)
{
    static const struct {
        size_t at;
        uint64_t value;
        const char *name;
    } bad[] = {
#define FIELD(name) offsetof(struct shed_source_options, name)
        {FIELD(max_loads), 0, "max_loads"},
        {FIELD(max_loads), 1025, "max_loads"},
        {FIELD(max_batch), 0, "max_batch"},
        {FIELD(max_batch), 10001, "max_batch"},
        {FIELD(batch_wait_ms), 1001, "batch_wait_ms"},
        {FIELD(queue_limit), 0, "queue_limit"},
        {FIELD(queue_limit), 10000001, "queue_limit"},
        {FIELD(load_timeout_ms), 0, "load_timeout_ms"},
        {FIELD(load_timeout_ms), 3600001, "load_timeout_ms"},
        {FIELD(adaptive_loads), 2, "adaptive_loads"},
        {FIELD(breaker.failure_pct), 101, "breaker.failure_pct"},
        {FIELD(breaker.min_calls), 0, "breaker.min_calls"},
        {FIELD(breaker.window_ms), 99, "breaker.window_ms"},
        {FIELD(breaker.window_ms), 600001, "breaker.window_ms"},
        {FIELD(breaker.open_ms), 0, "breaker.open_ms"},
        {FIELD(breaker.slow_ms), 600001, "breaker.slow_ms"},
        {FIELD(callers_limit), 10000001, "callers_limit"}};
#undef FIELD
    struct shed_error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        set_up();
        memcpy((char *)&o + bad[i].at, &bad[i].value, sizeof(bad[i].value));
        fake.source = (struct shed_source *)&fake;
        EXPECT_CODE(
            shed_source_open_batch(keep_load, &fake, &o, &fake.source, &err),
            SHED_EINVAL);
        ck_assert_ptr_null(fake.source);
        ck_assert_ptr_nonnull(strstr(err.reason, bad[i].name));
    }
}

TEST(a_source_without_a_function_is_refused)
{
    struct shed_error err;

    EXPECT_CODE(
        shed_source_open_batch(NULL, NULL, BARE_SOURCE, &fake.source, &err),
        SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "load is NULL"));
    EXPECT_CODE(
        shed_source_open_batch(keep_load, NULL, BARE_SOURCE, NULL, &err),
        SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "out is NULL"));
}

enum { SINGLES = 3 };

/* Waits until as many as max_loads are under way. The answer's memory is for
 * LeakSanitizer. */
static void load_single(void *user, void *thread, struct shed_bytes key,
                        struct shed_answer *answer)
{
    atomic_uint *running = user;
    char *row = malloc(key.size);

    (void)thread;
    atomic_fetch_add(running, 1);
    while (atomic_load(running) < SINGLES)
        sched_yield();
    memcpy(row, key.data, key.size);
    answer->kind = SHED_ANSWER_ROW;
    answer->row = shed_bytes(row, key.size);
    answer->memory = row;
}

TEST(a_source_of_single_keys_loads_them_in_parallel)
{
    atomic_uint running = 0;

    o = bare_source();
    o.max_loads = SINGLES;
    EXPECT_OK(shed_source_open(load_single, &running, &o, &fake.source, NULL));
    submit_burst(SINGLES);
    for (size_t i = 0; i < SINGLES; i++) {
        wait_settled(&requests[i]);
        ck_assert_uint_eq(requests[i].job.loaded.value->size,
                          strlen(requests[i].key));
        ck_assert_mem_eq(requests[i].job.loaded.value->data, requests[i].key,
                         strlen(requests[i].key));
    }
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("load");
}
