/* Exchanges with one server. Its invariant: on_answer is called once for each
 * ask, and until then the exchange is not touched on the home reactor. */
#include "lock/server.h"

#include <assert.h>
#include <stddef.h>

#include "base/error.h"
#include "lock/quorum.h"

static bool is_home(const struct shed_lock_server *s)
{
    return s->client->reactor == s->home;
}

/* With the server that has the lock's key. */
static struct shed_session *session_of(const struct shed_lock_server *s)
{
    const struct shed_lock_key *key = &s->exchange->spec->key[SHED_LOCK_KEY];

    return shed_client_session(s->client, key->at, key->size);
}

/* -------------------------------------------------------------- exchanges */

static void end_posted(struct shed_post *post)
{
    struct shed_lock_server *s =
        (struct shed_lock_server *)(void *)((char *)post -
                                            offsetof(struct shed_lock_server,
                                                     back));

    s->on_answer(s);
}

/* A server that has restarted may have forgotten a lock that it granted, so it
 * has no vote for one lease: neither before it is asked nor by its answer. Nor
 * has one that does not tell its age. */
static bool has_no_vote(struct shed_lock_server *s, bool is_answered)
{
    uint64_t age_ms = shed_session_server_age_ms(session_of(s));
    struct shed_error *err = &s->exchange->error;
    enum shed_code code;

    if (!shed_quorum_is_void(s->count, s->exchange, is_answered, age_ms))
        return false;
    code = shed_session_learn_age(session_of(s), err);
    if (code == SHED_OK)
        (void)shed_fail(err, SHED_EREDIS,
                        "Redis %s has been running for only %llu ms: it has no "
                        "vote before a whole lease has passed",
                        s->client->address->text, (unsigned long long)age_ms);
    (void)shed_exchange_end(s->exchange, code == SHED_EDENIED
                                             ? SHED_EXCHANGE_WRONG
                                             : SHED_EXCHANGE_FAILED);
    return true;
}

static void on_reply(void *arg, const struct shed_call_result *result);

/* Returns: false when there is no next command: the exchange is over. */
static bool send_next(struct shed_lock_server *s)
{
    struct shed_args args;

    assert(shed_reactor_is_current(s->client->reactor));
    if (has_no_vote(s, false) ||
        !shed_exchange_next_command(s->exchange, s->client, &args))
        return false;
    shed_client_send(s->client, &s->call, &args, on_reply, s);
    return true;
}

static void answer(struct shed_lock_server *s)
{
    if (is_home(s))
        s->on_answer(s);
    else
        shed_reactor_post(s->home, &s->back);
}

static void on_reply(void *arg, const struct shed_call_result *result)
{
    struct shed_lock_server *s = arg;

    s->exchange->is_unsent = s->call.is_refused;
    if (shed_exchange_on_reply(s->exchange, result->reply, result->why) &&
        send_next(s))
        return;
    /* it may have restarted while it was asked */
    (void)has_no_vote(s, true);
    answer(s);
}

static void on_ack(void *arg, const struct shed_ack *ack)
{
    struct shed_lock_server *s = arg;

    shed_exchange_on_ack(s->exchange, ack);
    answer(s);
}

static void ask_replicas(struct shed_lock_server *s)
{
    const struct shed_exchange *exchange = s->exchange;
    const struct shed_lock_key *key = exchange->spec->key;

    s->ack = (struct shed_ack){.key = key[SHED_LOCK_KEY].at,
                               .key_size = key[SHED_LOCK_KEY].size,
                               .counter = key[SHED_LOCK_KEY_COUNTER].at,
                               .counter_size = key[SHED_LOCK_KEY_COUNTER].size,
                               .token = exchange->holder.token,
                               .token_size = sizeof(exchange->holder.token),
                               .replicas = exchange->spec->options->replicas,
                               .fn = on_ack,
                               .arg = s};
    shed_acks_ask(shed_session_acks(session_of(s)), &s->ack);
}

static void go(struct shed_lock_server *s)
{
    /* by a post even on the home reactor: on_answer must not run before ask
     * returns */
    if (s->exchange->op == SHED_LOCK_OP_CONFIRM)
        ask_replicas(s);
    else if (!send_next(s))
        shed_reactor_post(s->home, &s->back);
}

static void go_posted(struct shed_post *post)
{
    go((struct shed_lock_server *)(void *)((char *)post -
                                           offsetof(struct shed_lock_server,
                                                    go)));
}

void shed_lock_server_ask(struct shed_lock_server *s)
{
    assert(shed_reactor_is_current(s->home));
    if (is_home(s))
        go(s);
    else
        shed_reactor_post(s->client->reactor, &s->go);
}

/* ---------------------------------------------------------------- changes */

static struct shed_lock_server *server_of(struct shed_listener *listener)
{
    return (struct shed_lock_server *)(void *)((char *)listener -
                                               offsetof(struct shed_lock_server,
                                                        listener));
}

static void tell(struct shed_post *post)
{
    struct shed_lock_server *s =
        (struct shed_lock_server *)(void *)((char *)post -
                                            offsetof(struct shed_lock_server,
                                                     change));

    atomic_store(&s->is_changing, false);
    s->on_change(s, atomic_exchange(&s->is_epoch, false));
}

static void change(struct shed_lock_server *s, bool is_epoch)
{
    assert(shed_reactor_is_current(s->client->reactor));
    if (is_home(s)) {
        s->on_change(s, is_epoch);
        return;
    }
    if (is_epoch)
        atomic_store(&s->is_epoch, true);
    if (!atomic_exchange(&s->is_changing, true))
        shed_reactor_post(s->home, &s->change);
}

static void on_change(struct shed_listener *listener, const char *key,
                      size_t size)
{
    (void)key;
    (void)size;
    change(server_of(listener), false);
}

static void on_epoch(struct shed_listener *listener)
{
    change(server_of(listener), true);
}

static void listen_on_reactor(void *arg)
{
    struct shed_lock_server *s = arg;

    (void)shed_listeners_add(s->client->listeners, &s->listener);
}

static void unlisten_on_reactor(void *arg)
{
    struct shed_lock_server *s = arg;

    shed_listeners_remove(s->client->listeners, &s->listener);
}

void shed_lock_server_open(struct shed_lock_server *s)
{
    assert(s->exchange != NULL && s->on_answer != NULL && s->on_change != NULL);
    s->go.run = go_posted;
    s->back.run = end_posted;
    s->change.run = tell;
    s->listener = (struct shed_listener){
        .key = s->exchange->spec->key[SHED_LOCK_KEY].at,
        .key_size = s->exchange->spec->key[SHED_LOCK_KEY].size,
        .on_change = on_change,
        .on_epoch = on_epoch};
    shed_reactor_run(s->client->reactor, listen_on_reactor, s);
}

void shed_lock_server_close(struct shed_lock_server *s)
{
    shed_reactor_run(s->client->reactor, unlisten_on_reactor, s);
}
