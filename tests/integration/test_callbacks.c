/* Calls from a callback, on the library's own thread: a call that would block
 * is refused, and closing a handle works. */
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <snowshed/event.h>
#include <snowshed/lock.h>

#include "base/latch.h"
#include "support/bare.h"
#include "support/answers.h"
#include "support/fixture.h"

/* Something that a callback does once, and whether it has done it. */
struct action {
    void (*_Atomic run)(void);
    atomic_bool is_done;
};

static struct shed_lock *lock, *other;
static struct action action;
static atomic_bool is_loading;

static void carry_out(void)
{
    void (*run)(void) = atomic_exchange(&action.run, NULL);

    if (run == NULL)
        return;
    run();
    atomic_store(&action.is_done, true);
}

static void on_event(void *user, const struct shed_event *event)
{
    (void)user;
    (void)event;
    carry_out();
}

static void on_log(void *user, enum shed_log_level level, const char *text)
{
    (void)user;
    (void)level;
    (void)text;
    carry_out();
}

static void on_lost(void *user, struct shed_lock *l,
                    const struct shed_error *reason)
{
    (void)user;
    (void)l;
    (void)reason;
    carry_out();
}

static void on_done(void *user, struct shed_lock *l, enum shed_code code,
                    const struct shed_error *reason)
{
    (void)user;
    (void)l;
    (void)reason;
    EXPECT_OK(code);
    carry_out();
}

static void set_up(void)
{
    fixture_set_up();
    fixture.cache_options.failure_ttl_ms = 0;
}

static void up(void)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    struct shed_error err;

    fixture_open(&fixture);
    o.on_lost = on_lost;
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("job"), &o, &lock, &err));
    EXPECT_OK(
        shed_lock_open(fixture.client, shed_str("other"), NULL, &other, &err));
    expect_text(fixture.cache, "old", "old@1");
}

static void down(void)
{
    shed_lock_close(lock);
    shed_lock_close(other);
    fixture_down(&fixture);
}

/* Make the next callback run it, and check that it has. cause triggers a
 * callback. */
static void do_in_callback(void (*run)(void), void (*cause)(void))
{
    atomic_store(&action.is_done, false);
    atomic_store(&action.run, run);
    cause();
    WAIT_UNTIL(atomic_load(&action.is_done), "done in the callback");
}

static void cause_event(void)
{
    invalidate(fixture.cache, "any");
}

static void cause_line(void)
{
    expect_code(fixture.cache, "fail", SHED_ESOURCE, NULL);
}

static void cause_done(void)
{
    EXPECT_OK(shed_lock_acquire_async(lock, 0, on_done, NULL, NULL));
}

static void cause_done_of_other(void)
{
    EXPECT_OK(shed_lock_acquire_async(other, 0, on_done, NULL, NULL));
}

static void cause_loss(void)
{
    cause_done();
    WAIT_FOR(server_int(&fixture.server, "EXISTS lock:{job}") == 1);
    ck_assert_int_eq(server_int(&fixture.server, "DEL lock:{job}"), 1);
    EXPECT_CODE(shed_lock_extend(lock, 0, NULL), SHED_ELOST);
}

/* ------------------------------------------------------- calls that block */

#define EXPECT_REFUSED(call)                                                   \
    do {                                                                       \
        EXPECT_CODE(call, SHED_EINVAL);                                        \
        ck_assert_ptr_nonnull(strstr(err.reason, "from a callback"));          \
        ck_assert_ptr_nonnull(strstr(err.reason, "a thread of your own"));     \
    } while (0)

/* Every call of the cache, with a key that Redis has and one that it does not
 * have. */
static void read_and_write(void)
{
    struct shed_item item = {.key = shed_str("old")};
    const char *keys[] = {"old", "new"};
    struct shed_value *value;
    struct shed_error err;

    for (size_t i = 0; i < 2; i++)
        EXPECT_REFUSED(
            shed_get(fixture.cache, shed_str(keys[i]), NULL, &value, &err));
    EXPECT_REFUSED(shed_get_many(fixture.cache, &item, 1, NULL, &err));
    EXPECT_CODE(item.code, SHED_EINVAL);
    ck_assert_ptr_null(item.value);
    EXPECT_REFUSED(
        shed_put(fixture.cache, shed_str("old"), shed_str("row"), NULL, &err));
    EXPECT_REFUSED(shed_invalidate(fixture.cache, shed_str("old"), 0, &err));
    EXPECT_REFUSED(shed_invalidate_many(fixture.cache, &item.key, 1, 0, &err));
}

static void open_handles(void)
{
    struct shed_client *client;
    struct shed_cache *cache;
    struct shed_lock *opened;
    struct shed_error err;

    EXPECT_REFUSED(
        shed_client_open(fixture.server.uri, BARE_CLIENT, &client, &err));
    EXPECT_REFUSED(shed_cache_probe(fixture.cache, 0, &err));
    EXPECT_REFUSED(shed_cache_open(fixture.client, "u", fixture.source,
                                   BARE_CACHE, &cache, &err));
    EXPECT_REFUSED(
        shed_lock_open(fixture.client, shed_str("job"), NULL, &opened, &err));
}

static void use_lock(void)
{
    struct shed_error err;

    EXPECT_REFUSED(shed_lock_acquire(lock, 0, &err));
    EXPECT_REFUSED(shed_lock_extend(lock, 0, &err));
    EXPECT_REFUSED(shed_lock_advance(lock, 1, &err));
    EXPECT_REFUSED(shed_lock_release(lock, &err));
}

/* What is called, and from which callback. */
static const struct {
    void (*call)(void);
    void (*cause)(void);
} refused[] = {{read_and_write, cause_event}, {open_handles, cause_event},
               {use_lock, cause_event},       {read_and_write, cause_done},
               {read_and_write, cause_loss},  {read_and_write, cause_line}};

/* The entry is still there: nothing was sent. */
TEST_EACH(a_call_that_blocks_is_refused_in_every_callback, 0, COUNT_OF(refused))
{
    if (refused[_i].cause == cause_event)
        fixture.client_options.on_event = on_event;
    if (refused[_i].cause == cause_line)
        fixture.client_options.on_log = on_log;
    up();
    do_in_callback(refused[_i].call, refused[_i].cause);
    expect_origin(fixture.cache, "old", "old@1", SHED_ORIGIN_REDIS);
    down();
}

/* The thread of another client must not wait either: it may belong to the
 * quorum. */
TEST(a_call_that_blocks_is_refused_on_every_client_s_thread)
{
    struct peer peer;

    up();
    fixture.client_options.on_event = on_event;
    peer_open(&peer, &fixture);
    atomic_store(&action.run, read_and_write);
    invalidate(peer.cache, "any");
    WAIT_FOR(atomic_load(&action.is_done));
    peer_close(&peer);
    down();
}

/* --------------------------------------------- one that does not return */

static struct shed_latch held_up = SHED_LATCH_INIT(1);
static atomic_bool is_held_up;

static void hold_up(void)
{
    atomic_store(&is_held_up, true);
    (void)shed_latch_wait(&held_up, UINT64_MAX);
}

/* What was to be invalidated is, when it has returned. */
TEST(a_callback_that_does_not_return_holds_up_no_call_for_ever)
{
    const struct shed_bytes key = shed_str("old");
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    struct shed_error err;

    up();
    atomic_store(&action.run, hold_up);
    cause_done();
    WAIT_FOR(atomic_load(&is_held_up));
    o.timeout_ms = 1;
    EXPECT_CODE(shed_put(fixture.cache, key, shed_str("row"), &o, &err),
                SHED_ETIMEDOUT);
    ck_assert_msg(strstr(err.reason, "a callback") != NULL, "%s", err.reason);
    EXPECT_CODE(shed_invalidate_many(fixture.cache, &key, 1, 1, &err),
                SHED_ETIMEDOUT);
    shed_latch_count_down(&held_up, 1);
    WAIT_FOR(server_int(&fixture.server, "EXISTS t:{old}") == 0);
    down();
}

/* ------------------------------------------------------------ the closing */

/* Count by the link count of a directory of /proc, which has one link per
 * thread besides its own two. Reading the directory would need a descriptor,
 * possibly with the number of one that a thread has just closed, which
 * ThreadSanitizer reports as a race. */
static unsigned count_threads(void)
{
    struct stat tasks;

    ck_assert_int_eq(stat("/proc/self/task", &tasks), 0);
    return (unsigned)tasks.st_nlink - 2;
}

static void *note_thread(void *id)
{
    *(long *)id = syscall(SYS_gettid);
    return NULL;
}

/* How many threads there are without those of the library. ThreadSanitizer
 * starts one of its own. */
static unsigned count_own_threads(void)
{
    pthread_t thread;
    char path[64];
    long id;

    start_thread(&thread, note_thread, &id);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/task/%ld", id);
    WAIT_FOR(access(path, F_OK) != 0);
    return count_threads();
}

static void cause_disconnect(void)
{
    server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
}

static void close_lock(void)
{
    shed_lock_close(lock);
}

static void close_cache(void)
{
    shed_cache_close(fixture.cache);
}

static void close_cache_and_source(void)
{
    close_cache();
    shed_source_close(fixture.source);
}

static void close_client(void)
{
    shed_client_close(fixture.client);
}

static void close_all(void)
{
    close_client();
    close_lock();
    close_cache_and_source();
}

/* No call is under way on the closed handles, as required. The threads end with
 * the last handle. */
TEST(handles_can_be_closed_in_a_callback)
{
    unsigned threads = count_own_threads();

    up();
    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
    do_in_callback(close_all, cause_done_of_other);
    WAIT_FOR(server_int(&fixture.server, "EXISTS lock:{job}") == 0);
    shed_lock_close(other);
    WAIT_FOR(count_threads() == threads);
    server_stop(&fixture.server);
}

TEST_EACH(the_last_handle_can_be_closed_in_a_callback, 0, 3)
{
    static void (*const closes[])(void) = {close_lock, close_cache_and_source,
                                           close_client};
    unsigned threads = count_own_threads();

    fixture.client_options.on_event = on_event;
    up();
    shed_lock_close(other);
    for (int i = 0; i < 3; i++)
        if (i != _i)
            closes[i]();
    do_in_callback(closes[_i], cause_disconnect);
    WAIT_FOR(count_threads() == threads);
    server_stop(&fixture.server);
}

/* Closing the cache and the source has to wait for this very load. */
static void close_and_answer(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    atomic_store(&is_loading, true);
    WAIT_FOR(atomic_load(&action.run) != NULL);
    carry_out();
    answer_absent(load, 0);
    shed_load_done(load);
}

static void open_closing_source(void)
{
    EXPECT_OK(shed_client_open(fixture.server.uri, BARE_CLIENT, &fixture.client,
                               NULL));
    EXPECT_OK(shed_source_open_batch(close_and_answer, NULL, BARE_SOURCE,
                                     &fixture.source, NULL));
    EXPECT_OK(shed_cache_open(fixture.client, "t", fixture.source, BARE_CACHE,
                              &fixture.cache, NULL));
}

TEST(cache_and_source_can_be_closed_in_a_load)
{
    unsigned threads = count_own_threads();
    struct shed_value *value;

    open_closing_source();
    /* a flight without callers begins no load */
    for (uint64_t ms = 1; !atomic_load(&is_loading); ms *= 2)
        EXPECT_CODE(
            shed_get(fixture.cache, shed_str("k"), WITHIN(ms), &value, NULL),
            SHED_ETIMEDOUT);
    atomic_store(&action.run, close_cache_and_source);
    close_client();
    WAIT_FOR(count_threads() == threads);
    ck_assert(atomic_load(&action.is_done));
    server_stop(&fixture.server);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, NULL);
    return run_tests("callbacks");
}
