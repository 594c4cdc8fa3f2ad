/* Handles and waiters of the lock tests. */
#include "support/bare.h"
#include "support/lock_fixture.h"

#include <string.h>

enum { SILENCE_MS = 60000, KEPT_MAX = 64, CLIENTS_MAX = 16 };

static atomic_uint_fast64_t grants;

static struct shed_client *clients[CLIENTS_MAX];

atomic_uint losses;

struct server server;

void server_up(void)
{
    atomic_store(&losses, 0);
    server = (struct server){0};
    server_start(&server);
}

void server_down(void)
{
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        if (clients[i] != NULL)
            close_client(clients[i]);
    server_stop(&server);
}

const enum shed_lock_algorithm singles[SINGLES] = {
    SHED_LOCK_SETNX, SHED_LOCK_EXPIRE, SHED_LOCK_TIMESTAMP, SHED_LOCK_LEASE};

static struct shed_client *open_with(const char *uri,
                                     const struct shed_client_options *o)
{
    struct shed_error err;
    size_t i = 0;

    while (i < CLIENTS_MAX && clients[i] != NULL)
        i++;
    ck_assert_uint_lt(i, CLIENTS_MAX);
    ck_assert_msg(shed_client_open(uri, o, &clients[i], &err) == SHED_OK, "%s",
                  err.reason);
    return clients[i];
}

struct shed_client *open_client(const struct server *s, uint64_t wait)
{
    struct shed_client_options o = bare_client();

    o.wait = wait;
    o.connect_timeout_ms = o.command_timeout_ms = SILENCE_MS;
    return open_with(s->uri, &o);
}

struct shed_client *open_timed(const char *uri, uint64_t command_timeout_ms)
{
    struct shed_client_options o = bare_client();

    o.command_timeout_ms = command_timeout_ms;
    return open_with(uri, &o);
}

struct shed_lock_options options_of(enum shed_lock_algorithm algorithm)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;

    o.algorithm = (uint64_t)algorithm;
    return o;
}

struct shed_lock *open_lock(struct shed_client *client,
                            const struct shed_lock_options *options)
{
    struct shed_lock *lock;
    struct shed_error err;

    ck_assert_msg(shed_lock_open(client, shed_str(LOCK_NAME), options, &lock,
                                 &err) == SHED_OK,
                  "%s", err.reason);
    return lock;
}

/* ----------------------------------------------------------- kept handles */

static struct {
    struct shed_client *client;
    struct shed_lock *lock;
} kept[KEPT_MAX];

struct shed_lock *open_kept(struct shed_client *client,
                            const struct shed_lock_options *options)
{
    size_t i = 0;

    while (i < KEPT_MAX && kept[i].lock != NULL)
        i++;
    ck_assert_uint_lt(i, KEPT_MAX);
    kept[i].client = client;
    kept[i].lock = open_lock(client, options);
    return kept[i].lock;
}

struct shed_lock *open_alone(const struct shed_lock_options *options)
{
    return open_kept(open_client(&server, SHED_WAIT_AUTO), options);
}

struct shed_lock *open_of(enum shed_lock_algorithm algorithm)
{
    struct shed_lock_options o = options_of(algorithm);

    return open_alone(&o);
}

void close_kept(struct shed_lock *lock)
{
    for (size_t i = 0; i < KEPT_MAX; i++)
        if (kept[i].lock == lock)
            kept[i].lock = NULL;
    shed_lock_close(lock);
}

void close_client(struct shed_client *client)
{
    for (size_t i = 0; i < KEPT_MAX; i++)
        if (kept[i].lock != NULL && kept[i].client == client)
            close_kept(kept[i].lock);
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        if (clients[i] == client)
            clients[i] = NULL;
    shed_client_close(client);
}

/* ------------------------------------------------------------------ calls */

void wait_until_asked(const struct server *s, long long times)
{
    long long before = server_calls(s, "evalsha");

    WAIT_FOR(server_calls(s, "evalsha") >= before + times);
}

void expect_acquire(struct shed_lock *lock, uint64_t wait_ms,
                    enum shed_code code)
{
    struct shed_error err = {.reason = "no reason"};
    enum shed_code got = shed_lock_acquire(lock, wait_ms, &err);

    ck_assert_msg(got == code, "%s instead of %s: %s", shed_code_name(got),
                  shed_code_name(code), err.reason);
    if (code != SHED_OK)
        ck_assert_int_eq(err.code, code);
}

void acquire(struct shed_lock *lock, uint64_t wait_ms)
{
    expect_acquire(lock, wait_ms, SHED_OK);
}

void release(struct shed_lock *lock)
{
    struct shed_error err;
    enum shed_code code = shed_lock_release(lock, &err);

    ck_assert_msg(code == SHED_OK, "%s: %s", shed_code_name(code), err.reason);
}

uint64_t fence_of(struct shed_lock *lock)
{
    struct shed_fence fence;

    EXPECT_OK(shed_lock_fence(lock, &fence, NULL));
    ck_assert_uint_gt(fence.number, 0);
    return fence.number;
}

static void *wait_and_hold(void *arg)
{
    struct waiter *w = arg;

    w->code = shed_lock_acquire(w->lock, w->wait_ms, NULL);
    if (w->code == SHED_OK)
        w->order = atomic_fetch_add(&grants, 1) + 1;
    atomic_store(&w->has_ended, true);
    while (!atomic_load(&w->may_go))
        usleep(1000);
    if (w->code == SHED_OK)
        w->release_code = shed_lock_release(w->lock, NULL);
    return NULL;
}

void waiter_start(struct waiter *w, struct shed_lock *lock, uint64_t wait_ms)
{
    *w = (struct waiter){.lock = lock, .wait_ms = wait_ms};
    start_thread(&w->thread, wait_and_hold, w);
}

void waiter_join(struct waiter *w)
{
    atomic_store(&w->may_go, true);
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
}

static void *extend(void *arg)
{
    struct waiter *w = arg;

    w->code = shed_lock_extend(w->lock, w->wait_ms, NULL);
    return NULL;
}

void extender_start(struct waiter *w, struct shed_lock *lock, uint64_t lease_ms)
{
    *w = (struct waiter){.lock = lock, .wait_ms = lease_ms};
    start_thread(&w->thread, extend, w);
}

void note_outcome(void *user, struct shed_lock *lock, enum shed_code code,
                  const struct shed_error *reason)
{
    struct outcome *out = user;

    (void)lock;
    ck_assert((reason == NULL) == (code == SHED_OK));
    atomic_store(&out->code, code);
    atomic_fetch_add(&out->calls, 1);
}

void expect_outcome(struct outcome *out, enum shed_code code)
{
    WAIT_FOR(atomic_load(&out->calls) > 0);
    ck_assert_uint_eq(atomic_load(&out->calls), 1);
    ck_assert_int_eq(atomic_load(&out->code), code);
}

void acquire_async(struct shed_lock *lock, uint64_t wait_ms,
                   struct outcome *out)
{
    EXPECT_OK(shed_lock_acquire_async(lock, wait_ms, note_outcome, out, NULL));
}

void acquire_for_all(struct shed_lock *lock)
{
    struct outcome out = {0};

    acquire_async(lock, PLENTY_MS, &out);
    expect_outcome(&out, SHED_OK);
}

void count_loss(void *user, struct shed_lock *lock,
                const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    EXPECT_CODE(reason->code, SHED_ELOST);
    atomic_fetch_add(&losses, 1);
}
