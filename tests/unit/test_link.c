/* The connections of calling threads, and one of the reactor, against a server
 * that answers GET with the key, but only after a given number of them; on
 * sockets that can be full at any byte, with a clock that the test can put
 * forward. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "redis/gate.h"
#include "redis/link.h"
#include "redis/pipe.h"
#include "support/bare.h"
#include "support/greeting.h"
#include "support/sockets.h"
#include "support/testing.h"

#define CONNECTIONS_MAX 4096
#define HELD_MAX 64
#define THREADS_MAX 16
#define KEY_BYTES 32
#define CALLS 400
#define STRAY "$5\r\nstray\r\n"
/* As long idle that a link is looked at before it is used. */
#define IDLE_MS 10

/* ---------------------------------------------------------------- the clock */

static atomic_uint_fast64_t put_forward_ms;

WRAPPED(shed_now_ms);

uint64_t __wrap_shed_now_ms(void)
{
    return __real_shed_now_ms() + atomic_load(&put_forward_ms);
}

static void put_forward(uint64_t by_ms)
{
    atomic_fetch_add(&put_forward_ms, by_ms);
}

static atomic_bool is_timer_hasty;

WRAPPED(shed_timer_set);

/* A hasty timer runs in every turn of the loop, so it is never late. */
void __wrap_shed_timer_set(struct shed_timer *timer, uint64_t delay_ms)
{
    __real_shed_timer_set(timer, atomic_load(&is_timer_hasty) ? 1 : delay_ms);
}

/* --------------------------------------------------------------- the socket */

static atomic_bool is_cut;
static atomic_uint sends;

WRAPPED(send);

/* The library's sends are cut short, every other one to nothing, depending on
 * the number of the send, so at a different place each time. (Only the library
 * uses MSG_DONTWAIT.) */
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    const unsigned prime = 13;
    unsigned nth;

    if (!(flags & MSG_DONTWAIT) || !atomic_load(&is_cut))
        return __real_send(fd, bytes, size, flags);
    nth = atomic_fetch_add(&sends, 1);
    if (nth % 2 == 1) {
        errno = EAGAIN;
        return -1;
    }
    if (size > nth / 2 % prime + 1)
        size = nth / 2 % prime + 1;
    return __real_send(fd, bytes, size, flags);
}

/* --------------------------------------------------------------- the server */

static struct {
    char path[100];
    int listener;
    pthread_t thread;
    pthread_t peer[CONNECTIONS_MAX];
    int fd[CONNECTIONS_MAX];
    size_t count;
    atomic_size_t opened, closed;
    unsigned
        close_after; /* close a connection after this many commands; 0: never */
    uint64_t set_up_ms;     /* how long it takes */
    void (*answer)(int fd); /* what is no set-up; NULL: the key, see hold */
    pthread_mutex_t mu;
    /* under mu */
    size_t wanted; /* how many replies to hold before any is sent */
    size_t held_count;
    struct {
        int fd;
        char key[KEY_BYTES];
    } held[HELD_MAX];
} server = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void say_held_locked(size_t count)
{
    char bytes[KEY_BYTES * 2];

    for (size_t i = 0; i < count; i++) {
        int size = snprintf(bytes, sizeof(bytes), "$%zu\r\n%s\r\n",
                            strlen(server.held[i].key), server.held[i].key);
        (void)send(server.held[i].fd, bytes, (size_t)size, MSG_NOSIGNAL);
    }
    server.held_count -= count;
    memmove(server.held, server.held + count,
            server.held_count * sizeof(*server.held));
}

static void say_all(void)
{
    pthread_mutex_lock(&server.mu);
    say_held_locked(server.held_count);
    pthread_mutex_unlock(&server.mu);
}

static void hold(int fd, const char *key)
{
    pthread_mutex_lock(&server.mu);
    server.held[server.held_count].fd = fd;
    (void)snprintf(server.held[server.held_count++].key, KEY_BYTES, "%s", key);
    if (server.held_count >= server.wanted)
        say_held_locked(server.held_count);
    pthread_mutex_unlock(&server.mu);
}

static size_t held_count(void)
{
    size_t count;

    pthread_mutex_lock(&server.mu);
    count = server.held_count;
    pthread_mutex_unlock(&server.mu);
    return count;
}

static void answer(int fd, const redisReply *command)
{
    if (strcmp(command->element[0]->str, "TIME") == 0) {
        put_forward(server.set_up_ms);
        (void)send(fd, TIME, strlen(TIME), MSG_NOSIGNAL);
    } else if (strcmp(command->element[0]->str, "ROLE") == 0) {
        (void)send(fd, PRIMARY, strlen(PRIMARY), MSG_NOSIGNAL);
    } else if (server.answer != NULL) {
        server.answer(fd);
    } else {
        hold(fd, command->element[1]->str);
    }
}

static void *serve(void *arg)
{
    const int fd = *(const int *)arg;
    redisReader *reader = redisReaderCreate();
    char bytes[4096];
    unsigned commands = 0;
    ssize_t size;

    while ((size = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
        void *command = NULL;
        (void)redisReaderFeed(reader, bytes, (size_t)size);
        while (redisReaderGetReply(reader, &command) == REDIS_OK &&
               command != NULL) {
            answer(fd, command);
            freeReplyObject(command);
            if (++commands == server.close_after)
                (void)shutdown(fd, SHUT_RDWR);
        }
    }
    redisReaderFree(reader);
    atomic_fetch_add(&server.closed, 1);
    return NULL;
}

static void *accept_all(void *arg)
{
    (void)arg;
    while (server.count < CONNECTIONS_MAX) {
        int *fd = &server.fd[server.count];
        *fd = accept(server.listener, NULL, NULL);
        if (*fd < 0)
            break;
        atomic_fetch_add(&server.opened, 1);
        if (pthread_create(&server.peer[server.count], NULL, serve, fd) != 0)
            break;
        server.count++;
    }
    return NULL;
}

static struct shed_client_options options;
static struct shed_address *address;
static struct shed_gate *gate;
static struct shed_links *links;

static void start_patient(uint64_t links_max, uint64_t timeout_ms)
{
    char uri[120];

    (void)snprintf(server.path, sizeof(server.path), "/tmp/shed-link-%ld.sock",
                   (long)getpid());
    (void)unlink(server.path);
    server.wanted = 1;
    server.listener = bind_path(server.path);
    ck_assert_int_eq(listen(server.listener, THREADS_MAX), 0);
    start_thread(&server.thread, accept_all, NULL);
    options = bare_client();
    options.links = links_max;
    options.command_timeout_ms = options.connect_timeout_ms = timeout_ms;
    (void)snprintf(uri, sizeof(uri), "unix:%s", server.path);
    EXPECT_OK(shed_address_create(uri, &address, NULL));
    EXPECT_OK(shed_gate_create(address, &options, NULL, NULL, &gate, NULL));
    EXPECT_OK(shed_links_create(gate, &options, &links, NULL));
}

static void start(uint64_t links_max)
{
    start_patient(links_max, test_deadline_ms() - shed_now_ms());
}

static void stop(void)
{
    shed_links_destroy(links);
    (void)shutdown(server.listener, SHUT_RDWR);
    (void)pthread_join(server.thread, NULL);
    for (size_t i = 0; i < server.count; i++) {
        (void)pthread_join(server.peer[i], NULL);
        close(server.fd[i]);
    }
    close(server.listener);
    (void)unlink(server.path);
    shed_gate_destroy(gate);
    shed_address_unref(address);
}

/* -------------------------------------------------------------- the callers */

struct caller {
    pthread_t thread;
    char name;
    unsigned calls, answered, lost;
};

/* Get a key; the answer must be the requested one. */
static void get(struct caller *c, unsigned nth)
{
    struct shed_args args;
    struct shed_reply *reply = NULL;
    struct shed_error err = {SHED_OK, ""};
    char key[KEY_BYTES];
    const char *bytes;
    size_t size = 0;
    enum shed_code code;

    (void)snprintf(key, sizeof(key), "%c%u", c->name, nth);
    args = shed_args_of("GET", key, NULL);
    code = shed_links_call(links, &args, 1, &reply, NULL, NULL,
                           test_deadline_ms(), &err);
    if (code != SHED_OK) {
        ck_assert_msg(code == SHED_EREDIS && server.close_after > 0, "%s",
                      err.reason);
        c->lost++;
        return;
    }
    bytes = shed_reply_bytes(reply, &size);
    ck_assert_msg(size == strlen(key) && memcmp(bytes, key, size) == 0,
                  "%.*s instead of %s", (int)size, bytes, key);
    shed_reply_free(reply);
    c->answered++;
}

static struct caller caller[THREADS_MAX];

static void *call(void *arg)
{
    struct caller *c = arg;

    for (unsigned i = 0; i < c->calls; i++)
        get(c, i);
    return NULL;
}

static void begin(size_t i, unsigned calls)
{
    caller[i] = (struct caller){.name = (char)('a' + i), .calls = calls};
    start_thread(&caller[i].thread, call, &caller[i]);
}

static void begin_all(size_t count, unsigned calls)
{
    for (size_t i = 0; i < count; i++)
        begin(i, calls);
}

static unsigned join(size_t count)
{
    unsigned answered = 0;

    for (size_t i = 0; i < count; i++) {
        (void)pthread_join(caller[i].thread, NULL);
        answered += caller[i].answered;
    }
    return answered;
}

static void want(size_t held)
{
    pthread_mutex_lock(&server.mu);
    server.wanted = held;
    pthread_mutex_unlock(&server.mu);
}

static void await_held(size_t count)
{
    while (held_count() < count)
        usleep(1000);
}

TEST(callers_have_links_of_their_own_up_to_the_bound)
{
    start(4);
    want(4);
    begin_all(4, 1);
    ck_assert_uint_eq(join(4), 4);
    begin_all(8, 1);
    ck_assert_uint_eq(join(8), 8);
    ck_assert_uint_eq(atomic_load(&server.opened), 4);
}

TEST(a_thread_waits_for_a_link_no_longer_than_its_deadline)
{
    const struct shed_args args = shed_args_of("GET", "late", NULL);
    struct shed_reply *reply = NULL;
    struct shed_error err;
    unsigned sent = 1;

    start(1);
    want(2);
    begin(0, 1);
    await_held(1);
    ck_assert_int_eq(shed_links_call(links, &args, 1, &reply, NULL, &sent,
                                     shed_now_ms() + 20, &err),
                     SHED_ETIMEDOUT);
    ck_assert_msg(strstr(err.reason, "links") != NULL, "%s", err.reason);
    ck_assert_uint_eq(sent, 0);
    want(1);
    begin(1, 1); /* waits as well, and is served when the first is */
    say_all();
    ck_assert_uint_eq(join(2), 2);
}

/* The reply to a call that gave up never meets another. */
TEST(a_caller_that_gives_up_closes_its_connection)
{
    const struct shed_args args = shed_args_of("GET", "late", NULL);
    struct shed_reply *reply = NULL;
    struct caller c = {.name = 'a'};

    start(1);
    get(&c, 0);
    want(2);
    ck_assert_int_eq(shed_links_call(links, &args, 1, &reply, NULL, NULL,
                                     shed_now_ms() + 20, NULL),
                     SHED_ETIMEDOUT);
    want(1); /* with the next command the late one is answered, too */
    get(&c, 1);
    ck_assert_uint_eq(c.answered, 2);
    ck_assert_uint_eq(atomic_load(&server.opened), 2);
}

TEST(links_that_nobody_uses_are_closed)
{
    const uint64_t long_ms = 3600000;

    start(4);
    want(4);
    begin_all(4, 1);
    ck_assert_uint_eq(join(4), 4);
    shed_links_close_idle(links);
    ck_assert_uint_eq(atomic_load(&server.closed), 0);
    put_forward(long_ms);
    shed_links_close_idle(links);
    while (atomic_load(&server.closed) < 2)
        usleep(1000);
    want(1);
    begin(0, 1);
    ck_assert_uint_eq(join(1), 1);
    ck_assert_uint_eq(atomic_load(&server.closed), 2);
}

/* All bytes are sent in order, exactly once, however the sends are cut. Even
 * turns have as many callers as links, odd turns more. From the third turn on,
 * the server closes connections that are in use. */
TEST_EACH(each_caller_has_its_own_answers, 0, 4)
{
    size_t threads = _i % 2 == 0 ? 4 : THREADS_MAX;
    unsigned answered, lost = 0;

    server.close_after = _i >= 2 ? 50 : 0;
    start(4);
    atomic_store(&is_cut, true);
    begin_all(threads, CALLS);
    answered = join(threads);
    for (size_t i = 0; i < threads; i++)
        lost += caller[i].lost;
    ck_assert_uint_eq(answered + lost, threads * CALLS);
    ck_assert_uint_gt(answered, 0);
    if (_i < 2)
        ck_assert_uint_le(atomic_load(&server.opened), 4);
}

/* ------------------------------------------------------- unasked replies */

TEST(what_comes_between_two_calls_answers_neither)
{
    struct caller c = {.name = 'a'};

    start(1);
    get(&c, 0);
    put_forward(IDLE_MS);
    /* on a unix socket it arrives as soon as it is sent */
    ck_assert_int_gt(send(server.fd[0], STRAY, strlen(STRAY), MSG_NOSIGNAL), 0);
    get(&c, 1);
    get(&c, 2);
    ck_assert_uint_eq(c.answered, 3);
}

static void count_reached(void *arg, bool is_reached)
{
    *(unsigned *)arg += is_reached;
}

TEST(each_connection_that_reaches_the_server_is_told_of)
{
    struct caller c = {.name = 'a'};
    unsigned reached = 0;

    start(1);
    shed_gate_follow(gate, count_reached, &reached);
    get(&c, 0);
    get(&c, 1);
    ck_assert_uint_eq(reached, 1);
}

/* ----------------------------------------------------------- slow replies */

/* The command timeout of the tests that put the clock forward: in real time it
 * never passes. */
#define TIMEOUT_MS ((uint64_t)600000)
#define SLOW 5 /* replies */
/* One such pause is in time, two are too late. */
#define LONG_MS (TIMEOUT_MS / 10 * 6)

static atomic_uint said; /* slow replies */

static void say_slowly(int fd)
{
    (void)send(fd, "+OK\r\n", strlen("+OK\r\n"), MSG_NOSIGNAL);
    atomic_fetch_add(&said, 1);
}

static bool is_all_read(int fd)
{
    int unread = 0;

    return ioctl(fd, TIOCOUTQ, &unread) != 0 || unread == 0;
}

/* Each reply is in time, all of them together are not. */
static void trickle(int fd)
{
    put_forward(LONG_MS);
    say_slowly(fd);
    while (!is_all_read(fd))
        usleep(1000);
}

TEST(a_link_is_not_silent_while_replies_come)
{
    struct shed_reply *replies[SLOW] = {NULL};
    struct shed_args args[SLOW];
    struct shed_error err = {SHED_OK, ""};

    start_patient(1, TIMEOUT_MS);
    server.answer = trickle;
    for (size_t i = 0; i < SLOW; i++)
        args[i] = shed_args_of("PING", NULL);
    ck_assert_msg(shed_links_call(links, args, SLOW, replies, NULL, NULL,
                                  shed_now_ms() + 2 * SLOW * TIMEOUT_MS,
                                  &err) == SHED_OK,
                  "%s", err.reason);
    shed_reply_free_all(replies, SLOW);
}

static void say_late(int fd)
{
    usleep(20000);
    say_slowly(fd);
}

TEST(the_command_timeout_begins_when_the_link_is_connected)
{
    const struct shed_args args = shed_args_of("PING", NULL);
    struct shed_reply *reply = NULL;
    struct shed_error err = {SHED_OK, ""};

    start_patient(1, TIMEOUT_MS);
    shed_links_destroy(links);
    options.connect_timeout_ms = 4 * TIMEOUT_MS;
    EXPECT_OK(shed_links_create(gate, &options, &links, NULL));
    server.set_up_ms = 2 * TIMEOUT_MS;
    server.answer = say_late;
    ck_assert_msg(shed_links_call(links, &args, 1, &reply, NULL, NULL,
                                  shed_now_ms() + 8 * TIMEOUT_MS,
                                  &err) == SHED_OK,
                  "%s", err.reason);
    shed_reply_free(reply);
}

/* A connection of the reactor, and the calls on it. */
struct piped {
    struct shed_reactor *reactor;
    struct shed_pipe *pipe;
    struct shed_call calls[SLOW];
    bool is_stopped; /* stop the loop at each reply, until the next has arrived
                      */
    atomic_uint answered, failed;
};

static struct piped piped;

static void on_answer(void *arg, const struct shed_call_result *result)
{
    unsigned nth = atomic_load(&piped.answered) + 1;

    (void)arg;
    if (result->reply == NULL) {
        atomic_fetch_add(&piped.failed, 1);
        return;
    }
    atomic_store(&piped.answered, nth);
    if (!piped.is_stopped || nth == SLOW)
        return;
    while (atomic_load(&said) <= nth)
        usleep(1000);
    put_forward(2 * TIMEOUT_MS);
}

static void call_all(void *arg)
{
    const struct shed_args args = shed_args_of("PING", NULL);

    (void)arg;
    atomic_store(&is_timer_hasty, true);
    for (size_t i = 0; i < SLOW; i++)
        shed_pipe_call(piped.pipe, &piped.calls[i], &args, on_answer, NULL);
}

static void on_stray(void *arg, struct shed_reply *reply)
{
    (void)arg;
    (void)reply;
    atomic_fetch_add(&piped.failed, 1);
}

/* Send each reply after the previous one was received. If the loop is stopped,
 * that is while it waits in on_answer. */
static void answer_piped(int fd)
{
    unsigned nth = atomic_load(&said);

    if (!piped.is_stopped)
        put_forward(LONG_MS);
    say_slowly(fd);
    while (atomic_load(&piped.answered) <= nth &&
           atomic_load(&piped.failed) == 0)
        usleep(1000);
}

static void open_piped(void *arg)
{
    static const struct shed_pipe_hooks hooks = {.on_open = call_all,
                                                 .on_push = on_stray};

    (void)arg;
    EXPECT_OK(shed_pipe_create(piped.reactor, gate, SHED_HEALTH_COMMANDS,
                               &options, &hooks, &piped.pipe, NULL));
    shed_pipe_open(piped.pipe);
}

static void close_piped(void *arg)
{
    (void)arg;
    shed_pipe_close(piped.pipe);
}

/* 0: each reply is in time, all of them together are not. 1: the loop does not
 * run for longer than the timeout, but the next reply can be read. */
TEST_EACH(a_connection_of_the_loop_is_not_silent_while_replies_come, 0, 2)
{
    start_patient(1, TIMEOUT_MS);
    piped.is_stopped = _i == 1;
    server.answer = answer_piped;
    EXPECT_OK(shed_reactor_start(&piped.reactor, NULL));
    shed_reactor_run(piped.reactor, open_piped, NULL);
    while (atomic_load(&piped.answered) < SLOW &&
           atomic_load(&piped.failed) == 0)
        usleep(1000);
    ck_assert_uint_eq(atomic_load(&piped.failed), 0);
    shed_reactor_run(piped.reactor, close_piped, NULL);
    shed_reactor_stop(piped.reactor);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), NULL, stop);
    return run_tests("link");
}
