/* Connections, shared ones and the reactor's, against a server that sends what
 * the test tells it to, with a clock that the test can put forward. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "redis/link.h"
#include "redis/pipe.h"
#include "support/bare.h"
#include "support/greeting.h"
#include "support/testing.h"

#define GOOD "$4\r\ngood\r\n"
#define PEERS 8
#define STRAY "$5\r\nstray\r\n"

/* The command timeout of the tests that put the clock forward: in real time it
 * never passes. */
#define TIMEOUT_MS ((uint64_t)600000)
#define CALLS 5

/* ---------------------------------------------------------------- the clock */

static atomic_uint_fast64_t put_forward_ms;
static atomic_bool is_timer_hasty;

WRAPPED(shed_now_ms);
WRAPPED(shed_timer_set);

uint64_t __wrap_shed_now_ms(void)
{
    return __real_shed_now_ms() + atomic_load(&put_forward_ms);
}

/* A hasty timer runs in every turn of the loop, so it is never late. */
void __wrap_shed_timer_set(struct shed_timer *timer, uint64_t delay_ms)
{
    __real_shed_timer_set(timer, atomic_load(&is_timer_hasty) ? 1 : delay_ms);
}

/* --------------------------------------------------------------- the server */

/* Answers the set-up as a primary does, and everything else with GOOD. */
static struct {
    void (*answer)(int peer); /* all commands after the set-up */
    char path[100];
    int listener;
    atomic_int peer; /* the current connection */
    pthread_t thread;
    int peers[PEERS];
    size_t count;
    atomic_uint said; /* answers to commands after the set-up */
} fake;

static void answer_once(int peer)
{
    /* if the connection is already closed, nobody gets it */
    (void)send(peer, GOOD, strlen(GOOD), MSG_NOSIGNAL);
    atomic_fetch_add(&fake.said, 1);
}

static void *serve(void *arg)
{
    char bytes[4096];
    ssize_t size;
    int peer;

    (void)arg;
    while ((peer = accept(fake.listener, NULL, NULL)) >= 0) {
        atomic_store(&fake.peer, peer);
        while ((size = recv(peer, bytes, sizeof(bytes) - 1, 0)) > 0) {
            bytes[size] = '\0';
            if (strstr(bytes, "ROLE") != NULL)
                (void)send(peer, GREETING, strlen(GREETING), MSG_NOSIGNAL);
            else
                fake.answer(peer);
        }
        /* closed by stop, because the test also sends on it */
        if (fake.count < PEERS)
            fake.peers[fake.count++] = peer;
    }
    return NULL;
}

static struct shed_client_options options;
static struct shed_address *address;
static struct shed_gate *gate;
static struct shed_links *links;

static void start(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char uri[120];

    fake.answer = answer_once;
    (void)snprintf(fake.path, sizeof(fake.path), "/tmp/shed-link-%ld.sock",
                   (long)getpid());
    memcpy(name.sun_path, fake.path, strlen(fake.path) + 1);
    (void)unlink(fake.path);
    fake.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fake.listener, 0);
    ck_assert_int_eq(
        bind(fake.listener, (struct sockaddr *)&name, sizeof(name)), 0);
    ck_assert_int_eq(listen(fake.listener, 5), 0);
    start_thread(&fake.thread, serve, NULL);
    options = bare_client();
    options.links = 1;
    options.command_timeout_ms = options.connect_timeout_ms = TIMEOUT_MS;
    (void)snprintf(uri, sizeof(uri), "unix:%s", fake.path);
    EXPECT_OK(shed_address_create(uri, &address, NULL));
    EXPECT_OK(shed_gate_create(address, &options, NULL, NULL, &gate, NULL));
    EXPECT_OK(shed_links_create(gate, &options, &links, NULL));
}

static void stop(void)
{
    shed_links_destroy(links);
    (void)shutdown(fake.listener, SHUT_RDWR);
    (void)pthread_join(fake.thread, NULL);
    while (fake.count > 0)
        close(fake.peers[--fake.count]);
    close(fake.listener);
    (void)unlink(fake.path);
    shed_gate_destroy(gate);
    shed_address_unref(address);
}

static void get_good(void)
{
    const struct shed_args args = shed_args_of("GET", "key", NULL);
    struct shed_reply *reply = NULL;
    struct shed_error err = {SHED_OK, ""};
    size_t size = 0;
    const char *bytes;

    ck_assert_msg(shed_links_call(links, &args, 1, &reply, NULL, NULL,
                                  test_deadline_ms(), &err) == SHED_OK,
                  "%s", err.reason);
    bytes = shed_reply_bytes(reply, &size);
    ck_assert_msg(size == 4 && memcmp(bytes, "good", 4) == 0,
                  "another answer: %.*s", (int)size, bytes);
    shed_reply_free(reply);
}

/* Put the clock forward until the link counts as idle. */
static void let_it_idle(void)
{
    const uint64_t idle_ms = 10;
    uint64_t end_ms = shed_now_ms() + idle_ms;

    while (shed_now_ms() < end_ms)
        ;
}

TEST(what_comes_between_two_calls_answers_neither)
{
    get_good();
    let_it_idle();
    /* on a unix socket it arrives as soon as it is sent */
    ck_assert_int_gt(
        send(atomic_load(&fake.peer), STRAY, strlen(STRAY), MSG_NOSIGNAL), 0);
    get_good();
    get_good();
}

static void count_reached(void *arg, bool is_reached)
{
    *(unsigned *)arg += is_reached;
}

TEST(each_connection_that_reaches_the_server_is_told_of)
{
    unsigned reached = 0;

    shed_gate_follow(gate, count_reached, &reached);
    get_good();
    get_good();
    ck_assert_uint_eq(reached, 1);
}

/* ----------------------------------------------------------- slow replies */

static void put_forward(uint64_t by_ms)
{
    atomic_fetch_add(&put_forward_ms, by_ms);
}

/* One such pause is in time, two are too late. */
#define LONG_MS (TIMEOUT_MS / 10 * 6)

static bool is_all_read(int peer)
{
    int unread = 0;

    return ioctl(peer, TIOCOUTQ, &unread) != 0 || unread == 0;
}

/* Each reply is in time, all of them together are not. */
static void trickle(int peer)
{
    for (unsigned i = 0; i < CALLS; i++) {
        put_forward(LONG_MS);
        answer_once(peer);
        while (!is_all_read(peer))
            usleep(1000);
    }
}

TEST(a_link_is_not_silent_while_replies_come)
{
    struct shed_reply *replies[CALLS] = {NULL};
    struct shed_args args[CALLS];
    struct shed_error err = {SHED_OK, ""};

    fake.answer = trickle;
    for (size_t i = 0; i < CALLS; i++)
        args[i] = shed_args_of("PING", NULL);
    ck_assert_msg(shed_links_call(links, args, CALLS, replies, NULL, NULL,
                                  shed_now_ms() + 2 * CALLS * TIMEOUT_MS,
                                  &err) == SHED_OK,
                  "%s", err.reason);
    shed_reply_free_all(replies, CALLS);
}

/* A connection of the reactor, and the calls on it. */
struct piped {
    struct shed_reactor *reactor;
    struct shed_pipe *pipe;
    struct shed_call calls[CALLS];
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
    if (!piped.is_stopped || nth == CALLS)
        return;
    while (atomic_load(&fake.said) <= nth)
        usleep(1000);
    put_forward(2 * TIMEOUT_MS);
}

static void call_all(void *arg)
{
    const struct shed_args args = shed_args_of("PING", NULL);

    (void)arg;
    atomic_store(&is_timer_hasty, true);
    for (size_t i = 0; i < CALLS; i++)
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
static void answer_piped(int peer)
{
    for (unsigned i = 0; i < CALLS; i++) {
        if (!piped.is_stopped)
            put_forward(LONG_MS);
        answer_once(peer);
        while (atomic_load(&piped.answered) <= i &&
               atomic_load(&piped.failed) == 0)
            usleep(1000);
    }
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
    piped.is_stopped = _i == 1;
    fake.answer = answer_piped;
    EXPECT_OK(shed_reactor_start(&piped.reactor, NULL));
    shed_reactor_run(piped.reactor, open_piped, NULL);
    while (atomic_load(&piped.answered) < CALLS &&
           atomic_load(&piped.failed) == 0)
        usleep(1000);
    ck_assert_uint_eq(atomic_load(&piped.failed), 0);
    shed_reactor_run(piped.reactor, close_piped, NULL);
    shed_reactor_stop(piped.reactor);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), start, stop);
    return run_tests("link");
}
