/* Looking up a host name with a resolver that hangs: nothing waits for it, and
 * when it ends nothing that is gone is used. */
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <snowshed/snowshed.h>

#include "support/bare.h"
#include "support/testing.h"

#define URI "redis://redis.hanging.test"

/* ------------------------------------------------------------ the resolver */

static atomic_bool does_hang;
static atomic_uint hanging, ended; /* lookups */

#define OF_THE_PROGRAM __attribute__((visibility("default")))

OF_THE_PROGRAM int getaddrinfo(const char *node, const char *service,
                               const struct addrinfo *hints,
                               struct addrinfo **out);

int getaddrinfo(const char *node, const char *service,
                const struct addrinfo *hints, struct addrinfo **out)
{
    (void)service;
    (void)hints;
    (void)out;
    if (atomic_load(&does_hang))
        atomic_fetch_add(&hanging, 1);
    while (atomic_load(&does_hang))
        usleep(1000);
    ck_assert_str_eq(node, &URI[sizeof("redis://") - 1]);
    atomic_fetch_add(&ended, 1);
    return EAI_NONAME;
}

/* A client that has just begun to look its host up, without an answer. */
static struct shed_client *open_hanging(void)
{
    struct shed_client_options o = bare_client();
    struct shed_client *client = NULL;

    if (shed_client_open(URI, &o, &client, NULL) != SHED_OK)
        abort();
    atomic_store(&does_hang, true);
    while (atomic_load(&hanging) == 0)
        usleep(1000);
    return client;
}

/* ------------------------------------------------------------------- tests */

static atomic_bool is_closed;

static void *close_client(void *client)
{
    shed_client_close(client);
    atomic_store(&is_closed, true);
    return NULL;
}

TEST(a_client_is_closed_though_its_name_server_is_dead)
{
    struct shed_client *client = open_hanging();
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, close_client, client), 0);
    WAIT_FOR(atomic_load(&is_closed));
    pthread_join(thread, NULL);
    atomic_store(&does_hang, false);
    WAIT_FOR(atomic_load(&ended) >= atomic_load(&hanging));
}

/* With or without having closed its client. */
TEST_EACH(a_process_may_exit_though_its_name_server_is_dead, 0, 2)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        struct shed_client *client;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        client = open_hanging();
        if (_i == 0)
            shed_client_close(client);
        exit(0);
    }
    ck_assert_int_gt(pid, 0);
    WAIT_FOR(waitpid(pid, &status, WNOHANG) == pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* Many at once, each of which may end at any moment of its client's end. */
TEST(a_lookup_may_end_while_its_client_is_closed)
{
    for (unsigned i = 0; i < 100; i++) {
        struct shed_client *client = open_hanging();
        atomic_store(&does_hang, false);
        shed_client_close(client);
        atomic_store(&hanging, 0);
    }
}

int main(void)
{
    return run_tests("lookup");
}
