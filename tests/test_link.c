/* Shared connections, against a server that says what it is told to. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "redis/link.h"
#include "testing.h"

#define GOOD "$4\r\ngood\r\n"
#define PEERS 8
#define STRAY "$5\r\nstray\r\n"

/* Answers each command of each connection, one after the other, with GOOD. */
struct fake {
    char path[100];
    int listener;
    atomic_int peer; /* the connection of now */
    pthread_t thread;
    int peers[PEERS];
    size_t count;
};

static void *serve(void *arg)
{
    struct fake *fake = arg;
    char bytes[4096];
    int peer;

    while ((peer = accept(fake->listener, NULL, NULL)) >= 0) {
        atomic_store(&fake->peer, peer);
        while (recv(peer, bytes, sizeof(bytes), 0) > 0)
            if (send(peer, GOOD, strlen(GOOD), MSG_NOSIGNAL) < 0)
                break;
        /* closed by stop: the test sends on it, too */
        if (fake->count < PEERS)
            fake->peers[fake->count++] = peer;
    }
    return NULL;
}

static void start(struct fake *fake)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)snprintf(fake->path, sizeof(fake->path), "/tmp/shed-link-%ld.sock",
                   (long)getpid());
    memcpy(name.sun_path, fake->path, strlen(fake->path) + 1);
    (void)unlink(fake->path);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fake->listener, 0);
    ck_assert_int_eq(
        bind(fake->listener, (struct sockaddr *)&name, sizeof(name)), 0);
    ck_assert_int_eq(listen(fake->listener, 5), 0);
    ck_assert_int_eq(pthread_create(&fake->thread, NULL, serve, fake), 0);
}

static void stop(struct fake *fake)
{
    (void)shutdown(fake->listener, SHUT_RDWR);
    (void)pthread_join(fake->thread, NULL);
    while (fake->count > 0)
        close(fake->peers[--fake->count]);
    close(fake->listener);
    (void)unlink(fake->path);
}

static void get_good(struct shed_links *links)
{
    struct shed_args args = {0};
    struct shed_reply *reply = NULL;
    struct shed_error err = {SHED_OK, ""};
    size_t size = 0;
    const char *bytes;

    shed_args_add_text(&args, "GET");
    shed_args_add_text(&args, "key");
    ck_assert_msg(shed_links_call(links, &args, 1, &reply, NULL,
                                  test_deadline_ms(), &err) == SHED_OK,
                  "%s", err.reason);
    bytes = shed_reply_bytes(reply, &size);
    ck_assert_msg(size == 4 && memcmp(bytes, "good", 4) == 0,
                  "another answer: %.*s", (int)size, bytes);
    shed_reply_free(reply);
}

/* Until the link counts as idle, by the clock that it goes by. */
static void let_it_idle(void)
{
    const uint64_t idle_ms = 10;
    uint64_t end_ms = shed_now_ms() + idle_ms;

    while (shed_now_ms() < end_ms)
        ;
}

START_TEST(what_comes_between_two_calls_answers_neither)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct fake fake = {.peer = -1};
    struct shed_address *address = NULL;
    struct shed_links *links = NULL;
    struct shed_error err;
    char uri[120];

    start(&fake);
    options.links = 1;
    (void)snprintf(uri, sizeof(uri), "unix:%s", fake.path);
    ck_assert_int_eq(shed_address_create(uri, &address, &err), SHED_OK);
    ck_assert_int_eq(shed_links_create(address, &options, &links, &err),
                     SHED_OK);
    get_good(links);
    let_it_idle();
    /* on a unix socket it is there as soon as it is sent */
    ck_assert_int_gt(
        send(atomic_load(&fake.peer), STRAY, strlen(STRAY), MSG_NOSIGNAL), 0);
    get_good(links);
    get_good(links);
    shed_links_destroy(links);
    stop(&fake);
    shed_address_destroy(address);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("link");

    tcase_set_timeout(tc, TEST_TIMEOUT_S);
    tcase_add_test(tc, what_comes_between_two_calls_answers_neither);
    return run_tests("link", tc);
}
