/*
 * How a handle of a lock comes and goes. Its invariant: no reactor uses a
 * handle before all of it but its listeners is made, or after close has begun
 * to free it. (A session that changes meanwhile has it make a step before open
 * returns.)
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/process.h"
#include "base/random.h"
#include "base/thread.h"
#include "client/probe.h"
#include "lock/engine.h"
#include "lock/keys.h"

/* The ranges that lock.h states. */
#define WATCHDOG_MAX_MS ((uint64_t)315360000000) /* ten years */
#define GRACE_MAX_MS 60000
#define REPLICAS_MAX 100

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* ---------------------------------------------------------------- opening */

/* A quorum of one is a lock on that server. */
static enum shed_code check_options(const struct shed_lock_options *o,
                                    size_t count, struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->algorithm, SHED_LOCK_SETNX, SHED_LOCK_LEASE, "lock algorithm"},
        {o->lease_ms, SHED_LEASE_MIN_MS, SHED_LEASE_MAX_MS, "lock lease_ms"},
        {o->watchdog_ms, 0, WATCHDOG_MAX_MS, "lock watchdog_ms"},
        {o->fair, 0, 1, "lock fair"},
        {o->death_grace_ms, 0, GRACE_MAX_MS, "lock death_grace_ms"},
        {o->exact_key, 0, 1, "lock exact_key"},
        {o->replicas, 0, REPLICAS_MAX, "lock replicas"},
    };
    bool is_other = o->algorithm != SHED_LOCK_LEASE, is_quorum = count > 1;
    const struct {
        bool is_so;
        const char *why;
    } refusals[] = {
        {o->fair != 0 && is_other, "only a SHED_LOCK_LEASE lock can be fair"},
        {o->replicas != 0 && is_other,
         "only a SHED_LOCK_LEASE lock can wait for replicas"},
        {is_quorum && is_other, "a quorum works only with SHED_LOCK_LEASE"},
        {is_quorum && o->fair != 0, "a quorum cannot be fair"},
        {is_quorum && o->replicas != 0,
         "a quorum cannot wait for replicas: it survives without them"},
    };
    enum shed_code code = shed_check_ranges(ranges, LENGTH(ranges), err);

    for (size_t i = 0; i < LENGTH(refusals) && code == SHED_OK; i++)
        if (refusals[i].is_so)
            code = shed_fail(err, SHED_EINVAL, "%s", refusals[i].why);
    return code;
}

static enum shed_code check_clients(struct shed_client *const *clients,
                                    size_t count, struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    if (count % 2 == 0 || count > SHED_LOCK_CLIENTS_MAX)
        return shed_fail(err, SHED_EINVAL,
                         "a quorum needs an odd number of clients, at most %d, "
                         "not %zu",
                         SHED_LOCK_CLIENTS_MAX, count);
    if (clients == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_lock_open: clients is NULL");
    for (size_t i = 0; i < count && code == SHED_OK; i++) {
        if (clients[i] == NULL)
            return shed_fail(err, SHED_EINVAL,
                             "shed_lock_open: client %zu is NULL", i);
        code = shed_client_check_call(clients[i], err);
        for (size_t j = 0; code == SHED_OK && j < i; j++)
            if (clients[j] == clients[i])
                code = shed_fail(err, SHED_EINVAL,
                                 "clients %zu and %zu of a quorum are the same",
                                 j, i);
    }
    return code;
}

static void on_timer(void *arg)
{
    shed_lock_drive(arg, SHED_LOCK_EV_TIMER, 0);
}

static void destroy_timer(void *timer)
{
    shed_timer_destroy(timer);
}

static void destroy(struct shed_lock *l)
{
    for (size_t i = 0; i < l->count; i++)
        shed_client_unref(l->server[i].client);
    shed_mutex_destroy(&l->mu);
    free(l);
}

static struct shed_lock *create(struct shed_client *const *clients,
                                size_t count, struct shed_bytes name,
                                const struct shed_lock_options *options)
{
    size_t servers_bytes =
        count * (sizeof(struct shed_lock_server) + sizeof(struct shed_voter));
    struct shed_lock *l =
        calloc(1, sizeof(*l) + servers_bytes + shed_lock_keys_bytes(name.size));

    if (l == NULL || shed_mutex_init(&l->mu, SHED_RANK_LOCK) != 0) {
        free(l);
        return NULL;
    }
    l->pid = clients[0]->pid;
    l->home = clients[0];
    l->options = *options;
    l->spec.options = &l->options;
    l->spec.algorithm = shed_algorithm_of(options);
    /* the keys are behind the handle, in one piece */
    l->name =
        shed_lock_keys_name(&l->spec, l->spec.algorithm->has_tokens, name.data,
                            name.size, (char *)(l + 1) + servers_bytes);
    l->name_size = name.size;
    l->count = count;
    l->voter = (struct shed_voter *)(void *)&l->server[count];
    shed_lock_machine_init(&l->machine, l->voter, count, &l->spec, &l->counters,
                           l->home->command_timeout_ms, l->home->address->text);
    l->timer_at_ms = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        l->server[i].client = shed_client_ref(clients[i]);
        l->server[i].lock = l;
        l->server[i].exchange = &l->voter[i].exchange;
    }
    l->timer = shed_timer_create(l->home->reactor, on_timer, l);
    if (l->timer != NULL)
        return l;
    destroy(l);
    return NULL;
}

enum shed_code shed_lock_open_quorum(struct shed_client *const *clients,
                                     size_t count, struct shed_bytes name,
                                     const struct shed_lock_options *options,
                                     struct shed_lock **out,
                                     struct shed_error *err)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;
    unsigned char handle[SHED_TOKEN_BYTES];
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_lock_open: out is NULL");
    *out = NULL;
    code = shed_options_take(&o, sizeof(o), options, "struct shed_lock_options",
                             err);
    if (code == SHED_OK)
        code = check_options(&o, count, err);
    if (code == SHED_OK)
        code = check_clients(clients, count, err);
    if (code == SHED_OK && (name.data == NULL || name.size == 0 ||
                            name.size > SHED_LOCK_NAME_MAX_BYTES))
        code = shed_fail(
            err, SHED_EINVAL, "lock name must have 1 to %d bytes, not %zu",
            SHED_LOCK_NAME_MAX_BYTES, name.data != NULL ? name.size : 0);
    if (code == SHED_OK)
        code = shed_random_token(handle, sizeof(handle), err);
    if (code != SHED_OK)
        return code;
    *out = create(clients, count, name, &o);
    if (*out == NULL)
        return shed_fail_nomem(err, "a lock");
    memcpy((*out)->spec.handle, handle, sizeof(handle));
    for (size_t i = 0; i < count; i++)
        shed_reactor_run(clients[i]->reactor, shed_lock_server_open,
                         &(*out)->server[i]);
    return SHED_OK;
}

enum shed_code shed_lock_open(struct shed_client *client,
                              struct shed_bytes name,
                              const struct shed_lock_options *options,
                              struct shed_lock **out, struct shed_error *err)
{
    return shed_lock_open_quorum(&client, 1, name, options, out, err);
}

/* ---------------------------------------------------------------- closing */

/* End waiting requests with SHED_ECLOSED, release what is held, and stop. */
static void stop(struct shed_lock *l)
{
    struct shed_latch latch = SHED_LATCH_INIT(1);
    struct shed_lock_request closer = {.latch = &latch};

    shed_mutex_lock(&l->mu);
    shed_lock_machine_close(&l->machine, &closer);
    shed_mutex_unlock(&l->mu);
    shed_lock_wake(l);
    (void)shed_latch_wait(&latch, UINT64_MAX);
    shed_lock_count(l, &closer);
    for (size_t i = 0; i < l->count; i++)
        shed_reactor_run(l->server[i].client->reactor, shed_lock_server_close,
                         &l->server[i]);
    shed_reactor_run(l->home->reactor, destroy_timer, l->timer);
}

static void *close_lock(void *handle)
{
    struct shed_lock *l = handle;

    if (l->pid == shed_process_id())
        stop(l);
    destroy(l);
    return NULL;
}

void shed_lock_close(struct shed_lock *l)
{
    /* on a loop's thread another one does it: the engine needs the loop to
     * release the hold */
    if (l != NULL)
        shed_thread_close(SHED_THREAD_LOOP, close_lock, l);
}

/* ----------------------------------------------------------------- checks */

enum shed_code shed_lock_check(const struct shed_lock *l,
                               struct shed_error *err)
{
    if (l == NULL)
        return shed_fail(err, SHED_EINVAL,
                         "the lock is NULL: shed_lock_open has failed, "
                         "or it has been closed");
    return l->pid == shed_process_id()
               ? SHED_OK
               : shed_fail(
                     err, SHED_EFORKED,
                     "the lock was opened before fork: open one in the child");
}

enum shed_code shed_lock_probe(struct shed_lock *l, uint64_t timeout_ms,
                               struct shed_error *err)
{
    enum shed_code code = shed_lock_check(l, err);
    struct shed_bytes key, sides;
    uint64_t deadline_ms;
    bool has_sides;

    if (code == SHED_OK)
        code = shed_client_check_timed_call(l->home, timeout_ms, err);
    if (code != SHED_OK)
        return code;
    deadline_ms = shed_deadline_ms(
        shed_now_ms(),
        timeout_ms > 0 ? timeout_ms : l->home->command_timeout_ms);
    has_sides = l->spec.algorithm->has_tokens;
    key = sides = l->spec.key[SHED_LOCK_KEY];
    if (has_sides) {
        sides = l->spec.key[SHED_LOCK_KEY_COUNTER];
        sides.size -= sizeof(":f") - 1; /* its suffix */
    }
    for (size_t i = 0; i < l->count && code == SHED_OK; i++)
        code = shed_probe(l->server[i].client, has_sides ? "lock" : "text", key,
                          sides, deadline_ms, err);
    if (code == SHED_OK && l->options.replicas > 0)
        code = shed_probe(l->home, "replicas", key, sides, deadline_ms, err);
    return code;
}
