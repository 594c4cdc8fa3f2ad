/* Descriptors and fork: what a client does when no descriptor is left, that it
 * loses none and passes none on, and what a child finds that was forked while
 * other threads were in calls. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <snowshed/lock.h>

#include "redis/lookup.h"
#include "support/bare.h"
#include "support/fixture.h"

/* AddressSanitizer's allocator leaves a lock to a child that another thread of
 * the parent held, and both map memory at any time. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

/* Since clang 15 it would map memory for each thread's variables as well. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=0";
}

static int count_descriptors(bool *are_cloexec)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    ck_assert_ptr_nonnull(dir);
    for (struct dirent *at; (at = readdir(dir)) != NULL;) {
        int fd = atoi(at->d_name);
        if (at->d_name[0] == '.' || fd == dirfd(dir))
            continue;
        count++;
        if (fd > STDERR_FILENO && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
            *are_cloexec = false;
    }
    closedir(dir);
    return count;
}

static int count_sockets(void)
{
    struct sockaddr_storage name;
    int count = 0;

    for (int fd = 3; fd < 256; fd++) {
        socklen_t size = sizeof(name);
        count += getpeername(fd, (struct sockaddr *)&name, &size) == 0;
    }
    return count;
}

TEST(reconnects_leak_no_descriptor_and_all_are_cloexec)
{
    enum { RECONNECTS = 50, CONNECTIONS = 3 };
    bool before_is_cloexec = true, are_cloexec = true;
    int before;

    (void)count_descriptors(
        &before_is_cloexec); /* those that the test inherited */
    fixture.client_options.links = 1;
    /* libuv keeps two descriptors until the process ends */
    fixture_open(&fixture);
    fixture_close(&fixture);
    before = count_descriptors(&are_cloexec);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    wait_for_pushes(&fixture);
    for (int i = 0; i < RECONNECTS; i++) {
        server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
        server_do(&fixture.server, "CLIENT KILL TYPE pubsub");
        expect_text(fixture.cache, "k", "k@1");
    }
    wait_for_pushes(&fixture);
    WAIT_FOR(count_sockets() == CONNECTIONS);
    (void)count_descriptors(&are_cloexec);
    ck_assert(are_cloexec || !before_is_cloexec);
    fixture_close(&fixture);
    ck_assert_int_eq(count_descriptors(&are_cloexec), before);
    server_check_ttls(&fixture.server);
    server_stop(&fixture.server);
}

/* ---------------------------------------------------- none can be opened */

/* Let the process open this many descriptors beyond those that it has. */
static void leave(int count, const struct rlimit *before)
{
    struct rlimit limit = *before;
    bool unused;

    limit.rlim_cur = (rlim_t)(count_descriptors(&unused) + count);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Open a client and a cache, and get a row. Returns: whether all of that
 * succeeded. */
static bool works(void)
{
    struct shed_client *client = NULL;
    struct shed_cache *cache = NULL;
    struct shed_value *value = NULL;
    enum shed_code code = shed_client_open(
        fixture.server.uri, &fixture.client_options, &client, NULL);

    if (code == SHED_OK)
        code = shed_cache_open(client, "t", fixture.source,
                               &fixture.cache_options, &cache, NULL);
    if (code == SHED_OK)
        code = shed_get(cache, shed_str("k"), NULL, &value, NULL);
    ck_assert(code == SHED_OK || code == SHED_EBUSY);
    if (value != NULL)
        check_text(value, "k@1");
    shed_value_unref(value);
    shed_cache_close(cache);
    shed_client_close(client);
    return code == SHED_OK;
}

/* With none, with one, and so on, up to all that a client needs. The first
 * client of a process needs two more, for libuv. */
TEST(with_too_few_descriptors_nothing_is_opened_and_none_is_lost)
{
    enum { PLENTY = 20 };
    bool unused;
    struct rlimit before;
    int had;

    EXPECT_OK(shed_source_open_batch(table_load, &fixture.table, BARE_SOURCE,
                                     &fixture.source, NULL));
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    leave(0, &before);
    ck_assert(!works());
    for (int count = 1; count < PLENTY; count++) {
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
        leave(count, &before);
        (void)works();
    }
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    had = count_descriptors(&unused);
    ck_assert(works());
    ck_assert_int_eq(count_descriptors(&unused), had);
}

/* -------------------------------------------------- no thread can be started
 */

static struct shed_reactor *reactor;
static struct shed_address *address;
static atomic_uint answers;

static void count_answer(void *arg, unsigned term, const struct addrinfo *list,
                         const char *failure)
{
    (void)arg;
    (void)term;
    (void)list;
    (void)failure;
    atomic_fetch_add(&answers, 1);
}

static void start_lookup(void *out)
{
    *(bool *)out = shed_lookup_start(reactor, address, 0, count_answer, NULL);
}

static bool can_look_up(void)
{
    bool is_started;

    shed_reactor_run(reactor, start_lookup, &is_started);
    return is_started;
}

/* Allow no more memory than is too little for the stack of a thread. */
static void take_stacks(const struct rlimit *before)
{
    const rlim_t room = 4 << 20;
    struct rlimit limit = *before;
    unsigned long pages;
    FILE *in = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(fscanf(in, "%lu", &pages), 1);
    fclose(in);
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + room;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* The first lookup of the process needs threads. */
TEST(without_threads_no_name_is_looked_up_and_the_program_goes_on)
{
    struct rlimit before;

    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    EXPECT_OK(shed_address_create("redis://localhost", &address, NULL));
    EXPECT_OK(shed_reactor_start(&reactor, NULL));
    take_stacks(&before);
    ck_assert(!can_look_up());
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
    ck_assert(can_look_up());
    WAIT_FOR(atomic_load(&answers) == 1);
    shed_reactor_stop(reactor);
    shed_address_unref(address);
}

/* ---------------------------------------------------- fork during calls */

/* What threads do all the time while the process forks. */
enum { READERS = 4, FORKS = 20 };

static struct shed_lock *lock;
static struct shed_source *idle; /* its thread has loaded, and no cache uses
                                    it any more */
static atomic_bool is_over;
static atomic_uint writes, holds; /* that succeeded */
static pthread_t threads[READERS + 3];

static void *read_rows(void *unused)
{
    struct shed_value *value = NULL;

    while (!atomic_load(&is_over)) {
        if (shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL) ==
            SHED_OK)
            check_text(value, "k@1");
        shed_value_unref(value);
    }
    return unused;
}

static void *write_rows(void *unused)
{
    while (!atomic_load(&is_over))
        atomic_fetch_add(&writes,
                         invalidate_code(fixture.cache, "k") == SHED_OK);
    return unused;
}

static void *take_lock(void *unused)
{
    while (!atomic_load(&is_over))
        if (shed_lock_acquire(lock, 0, NULL) == SHED_OK)
            atomic_fetch_add(&holds, shed_lock_release(lock, NULL) == SHED_OK);
    return unused;
}

static void *cut_connections(void *admin)
{
    while (!atomic_load(&is_over))
        freeReplyObject(
            redisCommand(admin, "CLIENT KILL TYPE normal SKIPME yes"));
    return NULL;
}

static void open_idle(void)
{
    struct shed_cache *cache;

    EXPECT_OK(shed_source_open_batch(table_load, &fixture.table, BARE_SOURCE,
                                     &idle, NULL));
    EXPECT_OK(shed_cache_open(fixture.client, "idle", idle, BARE_CACHE, &cache,
                              NULL));
    expect_text(cache, "k", "k@1");
    shed_cache_close(cache);
}

/* With admin, a connection to the server, connections are cut all the time. */
static void start_threads(redisContext *admin)
{
    size_t count = 0;

    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    open_idle();
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("l"), NULL, &lock, NULL));
    atomic_store(&is_over, false);
    for (; count < READERS; count++)
        start_thread(&threads[count], read_rows, NULL);
    start_thread(&threads[count++], write_rows, NULL);
    start_thread(&threads[count++], take_lock, NULL);
    start_thread(&threads[count], admin != NULL ? cut_connections : read_rows,
                 admin);
}

static void stop_threads(void)
{
    atomic_store(&is_over, true);
    for (size_t i = 0; i < READERS + 3; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    shed_lock_close(lock);
    shed_source_close(idle);
}

/* A child in which a call hangs is ended. It asserts nothing: another thread
 * may have been about to, with a lock of Check's that nobody releases in the
 * child. Returns: its status. */
static int fork_and(int (*run)(void))
{
    enum { PATIENCE_S = 60 };
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        (void)signal(SIGALRM, SIG_DFL); /* Check's ends all */
        alarm((unsigned)scaled_ms(PATIENCE_S));
        _exit(run());
    }
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "it was ended by signal %d",
                  WTERMSIG(status));
    return WEXITSTATUS(status);
}

static int call_in_child(void)
{
    struct shed_client_status status;
    struct shed_value *value = NULL;
    struct shed_bytes key = shed_str("k");
    struct shed_item item = {key, NULL, SHED_OK};
    const enum shed_code codes[] = {
        shed_get(fixture.cache, key, NULL, &value, NULL),
        shed_put(fixture.cache, key, key, NULL, NULL),
        shed_expire(fixture.cache, key, 0, 0, NULL),
        shed_invalidate(fixture.cache, key, 0, NULL),
        shed_lock_acquire(lock, 0, NULL),
        shed_lock_release(lock, NULL),
        shed_cache_probe(fixture.cache, 0, NULL),
        shed_client_status_read(fixture.client, &status, sizeof(status), NULL),
        IS_SANITIZED ? SHED_EFORKED
                     : shed_get_many(fixture.cache, &item, 1, NULL, NULL),
    };

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i] != SHED_EFORKED)
            return (int)i + 1;
    if (IS_SANITIZED)
        return 0;
    shed_lock_close(lock);
    shed_source_close(idle);
    shed_cache_close(fixture.cache);
    shed_source_close(fixture.source);
    shed_client_close(fixture.client);
    return 0;
}

TEST(a_child_forked_during_calls_is_told_so_and_can_close_all)
{
    start_threads(NULL);
    for (int i = 0; i < FORKS; i++)
        ck_assert_int_eq(fork_and(call_in_child), 0);
    stop_threads();
    ck_assert_uint_gt(atomic_load(&writes), 0);
    ck_assert_uint_gt(atomic_load(&holds), 0);
}

/* The program tells how many descriptors it has. */
static int start_program(void)
{
    execl("/bin/sh", "sh", "-c", "set -- /proc/self/fd/*; exit $#",
          (char *)NULL);
    return -1;
}

/* While connections are closed and opened. */
TEST(a_program_started_during_calls_inherits_no_descriptor)
{
    redisContext *admin = server_connect(&fixture.server);
    int before;

    ck_assert_ptr_nonnull(admin);
    before = fork_and(start_program);
    start_threads(admin);
    for (int i = 0; i < FORKS; i++)
        ck_assert_int_eq(fork_and(start_program), before);
    stop_threads();
    redisFree(admin);
}

int main(void)
{
    if (!IS_SANITIZED)
        return run_fixture_tests("descriptors");
}
