/*
 * One lock's access to one server: runs the voter's exchange on the reactor of
 * the server's client, and tells the lock, on its home reactor (the first
 * client's), when it has ended and when the key has changed. Its invariant: the
 * lock is told of one answer for each ask, and until then the exchange is not
 * touched on the home reactor.
 */
#include <assert.h>

#include "base/container.h"
#include "base/error.h"
#include "lock/engine.h"

/* With the server that has the lock's key. */
static struct shed_session *session_of(const struct shed_lock_server *s)
{
    return shed_client_session(s->client,
                               s->exchange->spec->key[SHED_LOCK_KEY]);
}

/* ------------------------------------------------------ telling the lock */

static void on_told(struct shed_post *post)
{
    struct shed_lock_server *s =
        shed_container_of(post, struct shed_lock_server, told);
    unsigned news = atomic_exchange(&s->news, 0);

    for (unsigned event = 0; news >> event != 0; event++)
        if ((news >> event & 1) != 0)
            shed_lock_drive(s->lock, (enum shed_lock_event)event,
                            (size_t)(s - s->lock->server));
}

void shed_lock_server_tell(struct shed_lock_server *s,
                           enum shed_lock_event event)
{
    if (atomic_fetch_or(&s->news, 1U << event) == 0)
        shed_reactor_post(s->lock->home->reactor, &s->told);
}

/* -------------------------------------------------------------- exchanges */

/* A server that has restarted may have forgotten a lock that it granted, so it
 * has no vote for one lease: neither before it is asked nor by its answer. Nor
 * has one that does not tell its age. */
static bool has_no_vote(struct shed_lock_server *s, bool is_answered)
{
    uint64_t age_ms = shed_session_server_age_ms(session_of(s));
    struct shed_error *err = &s->exchange->error;

    if (!shed_quorum_is_void(s->lock->count, s->exchange, is_answered, age_ms))
        return false;
    if (shed_session_learn_age(session_of(s), err) == SHED_OK)
        (void)shed_fail(err, SHED_EREDIS,
                        "Redis %s has been running for only %llu ms: it has no "
                        "vote before a whole lease has passed",
                        s->client->address->text, (unsigned long long)age_ms);
    (void)shed_exchange_end_by_error(s->exchange);
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

static void on_reply(void *arg, const struct shed_call_result *result)
{
    struct shed_lock_server *s = arg;

    s->exchange->is_unsent = s->call.is_refused;
    if (shed_exchange_on_reply(s->exchange, result->reply, result->why) &&
        send_next(s))
        return;
    /* it may have restarted while it was asked */
    (void)has_no_vote(s, true);
    shed_lock_server_tell(s, SHED_LOCK_EV_ANSWERED);
}

static void on_ack(void *arg, const struct shed_ack *ack)
{
    struct shed_lock_server *s = arg;

    shed_exchange_on_ack(s->exchange, ack);
    shed_lock_server_tell(s, SHED_LOCK_EV_ANSWERED);
}

static void ask_replicas(struct shed_lock_server *s)
{
    const struct shed_exchange *exchange = s->exchange;
    const struct shed_bytes *key = exchange->spec->key;

    s->ack =
        (struct shed_ack){.key = key[SHED_LOCK_KEY],
                          .counter = key[SHED_LOCK_KEY_COUNTER],
                          .token = shed_bytes(exchange->holder.token,
                                              sizeof(exchange->holder.token)),
                          .replicas = exchange->spec->options->replicas,
                          .fn = on_ack,
                          .arg = s};
    shed_acks_ask(shed_session_acks(session_of(s)), &s->ack);
}

static void go(struct shed_post *post)
{
    struct shed_lock_server *s =
        shed_container_of(post, struct shed_lock_server, go);

    if (s->exchange->op == SHED_LOCK_OP_CONFIRM)
        ask_replicas(s);
    else if (!send_next(s))
        shed_lock_server_tell(s, SHED_LOCK_EV_ANSWERED);
}

void shed_lock_server_ask(struct shed_lock_server *s)
{
    shed_reactor_post(s->client->reactor, &s->go);
}

/* ---------------------------------------------------------------- changes */

static void on_change(struct shed_listener *listener, struct shed_bytes key)
{
    (void)key;
    shed_lock_server_tell(
        shed_container_of(listener, struct shed_lock_server, listener),
        SHED_LOCK_EV_CHANGE);
}

static void on_epoch(struct shed_listener *listener)
{
    shed_lock_server_tell(
        shed_container_of(listener, struct shed_lock_server, listener),
        SHED_LOCK_EV_EPOCH);
}

void shed_lock_server_open(void *server)
{
    struct shed_lock_server *s = server;

    s->go.run = go;
    s->told.run = on_told;
    s->listener =
        (struct shed_listener){.key = s->exchange->spec->key[SHED_LOCK_KEY],
                               .on_change = on_change,
                               .on_epoch = on_epoch};
    (void)shed_listeners_add(s->client->listeners, &s->listener);
}

void shed_lock_server_close(void *server)
{
    struct shed_lock_server *s = server;

    shed_listeners_remove(s->client->listeners, &s->listener);
}
