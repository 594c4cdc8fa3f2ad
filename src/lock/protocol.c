/* What all algorithms' exchanges share, and how one is run. Its
 * invariant: an exchange is over when its end is set, and it ends after a
 * bounded number of commands. */
#include "lock/protocol.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

const struct shed_algorithm *
shed_algorithm_of(const struct shed_lock_options *options)
{
    switch ((enum shed_lock_algorithm)options->algorithm) {
    case SHED_LOCK_SETNX:
        return &shed_lock_setnx;
    case SHED_LOCK_EXPIRE:
        return &shed_lock_expire;
    case SHED_LOCK_TIMESTAMP:
    case SHED_LOCK_TIMESTAMP_SECONDS:
        return &shed_lock_timestamp;
    case SHED_LOCK_LEASE:
        break;
    }
    return &shed_lock_lease;
}

enum shed_code shed_lock_holder_init(struct shed_lock_holder *holder,
                                     uint64_t wait_ms, struct shed_error *err)
{
    enum shed_code code =
        shed_random_token(holder->token, sizeof(holder->token), err);

    for (size_t i = 0; i < sizeof(holder->token); i++)
        (void)snprintf(holder->token_hex + 2 * i, 3, "%02x", holder->token[i]);
    holder->wait_ms = wait_ms;
    return code;
}

struct shed_exchange shed_exchange_make(const struct shed_lock_spec *spec,
                                        enum shed_lock_op op,
                                        const struct shed_lock_holder *holder)
{
    return (struct shed_exchange){.spec = spec,
                                  .op = op,
                                  .holder = *holder,
                                  .lease_ms = spec->options->lease_ms};
}

void shed_exchange_add_key(const struct shed_exchange *exchange,
                           struct shed_args *args, int i)
{
    assert(i >= 0 && i < SHED_LOCK_KEYS && exchange->spec->key[i].data != NULL);
    shed_args_add(args, exchange->spec->key[i].data,
                  exchange->spec->key[i].size);
}

void shed_exchange_add_number(struct shed_exchange *exchange, unsigned slot,
                              struct shed_args *args, uint64_t number)
{
    assert(slot < sizeof(exchange->digits) / sizeof(exchange->digits[0]));
    shed_args_add_number(args, exchange->digits[slot], number);
}

void shed_exchange_add_swap(struct shed_exchange *exchange,
                            struct shed_args *args, struct shed_bytes from,
                            const char *to, uint64_t lease_ms)
{
    exchange->script = SHED_SCRIPT_LOCK_SWAP;
    shed_script_begin(args, exchange->script, "1");
    shed_exchange_add_key(exchange, args, SHED_LOCK_KEY);
    shed_args_add(args, from.data, from.size);
    shed_args_add_text(args, to);
    shed_exchange_add_number(exchange, 2, args, lease_ms);
}

bool shed_exchange_end(struct shed_exchange *exchange,
                       enum shed_exchange_end end)
{
    exchange->end = end;
    return false;
}

bool shed_exchange_end_by_error(struct shed_exchange *exchange)
{
    switch (exchange->error.code) {
    case SHED_OK:
        return shed_exchange_end(exchange, SHED_EXCHANGE_YES);
    case SHED_EDENIED:
        return shed_exchange_end(exchange, SHED_EXCHANGE_WRONG);
    default:
        return shed_exchange_end(exchange, SHED_EXCHANGE_FAILED);
    }
}

bool shed_exchange_answer(struct shed_exchange *exchange, bool is_yes)
{
    return shed_exchange_end(exchange,
                             is_yes ? SHED_EXCHANGE_YES : SHED_EXCHANGE_NO);
}

bool shed_exchange_refuse(struct shed_exchange *exchange)
{
    (void)shed_fail(&exchange->error, SHED_EINVAL,
                    "the value at the lock's key is not a lock of this "
                    "algorithm: choose another name, or remove it");
    return shed_exchange_end(exchange, SHED_EXCHANGE_WRONG);
}

bool shed_exchange_fail(struct shed_exchange *exchange,
                        const struct shed_reply *reply)
{
    const char *text = shed_reply_error(reply);

    if (shed_reply_begins(reply, "WRONGTYPE"))
        return shed_exchange_refuse(exchange);
    (void)shed_fail(
        &exchange->error, text != NULL ? shed_reply_code(reply) : SHED_EREDIS,
        "Redis: %s", text != NULL ? text : "a reply of an unknown form");
    return shed_exchange_end_by_error(exchange);
}

bool shed_exchange_lose(struct shed_exchange *exchange, uint64_t look_ms)
{
    exchange->look_ms = look_ms;
    return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
}

static void read_clocks(struct shed_exchange *exchange)
{
    exchange->wall_ms = shed_wall_ms();
    exchange->now_ms = shed_now_ms();
}

bool shed_exchange_next_command(struct shed_exchange *exchange,
                                struct shed_client *client,
                                struct shed_args *args)
{
    struct shed_server *server =
        shed_client_hold(client, exchange->spec->key[SHED_LOCK_KEY]);

    *args = (struct shed_args){0};
    shed_session_identify(server->session, &exchange->identity);
    shed_client_give_back(client, server);
    read_clocks(exchange);
    if (!exchange->spec->algorithm->next_command(exchange, args))
        return false;
    /* what comes after that repairs or ends what it began */
    args->is_guarded =
        exchange->op == SHED_LOCK_OP_ACQUIRE && exchange->step == 0;
    return true;
}

bool shed_exchange_on_reply(struct shed_exchange *exchange,
                            const struct shed_reply *reply,
                            const struct shed_error *err)
{
    if (reply != NULL) {
        read_clocks(exchange);
        return exchange->spec->algorithm->on_reply(exchange, reply);
    }
    exchange->error = *err;
    return shed_exchange_end_by_error(exchange);
}

void shed_exchange_on_ack(struct shed_exchange *exchange,
                          const struct shed_ack *ack)
{
    exchange->error = ack->error;
    if (ack->error.code == SHED_OK && !ack->is_there)
        (void)shed_fail(&exchange->error, SHED_EREDIS,
                        "Redis had lost the lock before its replicas had it");
    else if (ack->error.code == SHED_OK && ack->count < ack->replicas)
        (void)shed_fail(&exchange->error, SHED_EREDIS,
                        "%llu replicas must acknowledge the lock, and %llu did "
                        "within %llu ms",
                        (unsigned long long)ack->replicas,
                        (unsigned long long)ack->count,
                        (unsigned long long)ack->timeout_ms);
    (void)shed_exchange_end_by_error(exchange);
}
