/* SET NX PX of a random token. Whatever must be atomic is a script. */
#include <assert.h>
#include <stdlib.h>

#include "lock/protocol.h"

enum { DECIMAL = 10 };

/* All scripts of this algorithm have the same keys and arguments (lock.lua),
 * but those of a lock that is not fair end where they use no more: what they
 * are not given takes Redis no time. */
static bool next_command(struct shed_exchange *exchange, struct shed_args *args)
{
    static const enum shed_script scripts[] = {
        [SHED_LOCK_OP_ACQUIRE] = SHED_SCRIPT_LOCK_ACQUIRE,
        [SHED_LOCK_OP_EXTEND] = SHED_SCRIPT_LOCK_EXTEND,
        [SHED_LOCK_OP_RELEASE] = SHED_SCRIPT_LOCK_RELEASE,
        [SHED_LOCK_OP_UNDO] = SHED_SCRIPT_LOCK_RELEASE,
        [SHED_LOCK_OP_ADVANCE] = SHED_SCRIPT_LOCK_ADVANCE};
    const struct shed_lock_spec *spec = exchange->spec;
    const struct shed_identity *identity = &exchange->identity;
    bool is_fair = spec->options->fair != 0;

    assert(exchange->op != SHED_LOCK_OP_CONFIRM); /* acks.c asks the replicas */
    exchange->script = scripts[exchange->op];
    shed_script_begin(args, exchange->script, is_fair ? "6" : "4");
    for (int i = 0; i < (is_fair ? SHED_LOCK_KEYS : SHED_LOCK_KEY_QUEUE); i++)
        shed_exchange_add_key(exchange, args, i);
    shed_args_add(args, exchange->holder.token, SHED_TOKEN_BYTES);
    shed_args_add(args, spec->handle, sizeof(spec->handle));
    if (!is_fair && exchange->script == SHED_SCRIPT_LOCK_RELEASE)
        return true;
    shed_args_add(args, identity->process, sizeof(identity->process));
    shed_args_add(args, identity->run, sizeof(identity->run));
    shed_exchange_add_number(exchange, 0, args, exchange->lease_ms);
    shed_exchange_add_number(exchange, 1, args, spec->options->death_grace_ms);
    if (!is_fair && exchange->script == SHED_SCRIPT_LOCK_ACQUIRE)
        return true;
    shed_exchange_add_number(exchange, 2, args, exchange->holder.wait_ms);
    shed_exchange_add_number(exchange, 3, args,
                             exchange->op == SHED_LOCK_OP_EXTEND
                                 ? exchange->may_grant
                                 : exchange->fence);
    return true;
}

static bool on_acquire(struct shed_exchange *exchange,
                       const struct shed_reply *reply)
{
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    const struct shed_reply *what = shed_reply_at(reply, 1);
    size_t size = 0;
    const char *digits = shed_reply_bytes(what, &size);

    if (shed_reply_begins(kind, "HELD") && digits != NULL) {
        exchange->fence = strtoull(digits, NULL, DECIMAL);
        exchange->is_takeover = shed_reply_at(reply, 2) != NULL;
        return shed_exchange_end(exchange, SHED_EXCHANGE_YES);
    }
    if (shed_reply_begins(kind, "TAKEN") && shed_reply_integer(what) >= 0)
        return shed_exchange_lose(exchange,
                                  (uint64_t)shed_reply_integer(what) + 1);
    if (shed_reply_begins(kind, "WRONGTYPE"))
        return shed_exchange_refuse(exchange);
    return shed_exchange_fail(exchange, reply);
}

static bool on_reply(struct shed_exchange *exchange,
                     const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (exchange->op == SHED_LOCK_OP_ACQUIRE)
        return on_acquire(exchange, reply);
    if (number < 0)
        return shed_exchange_fail(exchange, reply);
    if (exchange->op == SHED_LOCK_OP_ADVANCE)
        exchange->fence = (uint64_t)number;
    exchange->has_waiters = exchange->op == SHED_LOCK_OP_RELEASE && number > 1;
    return shed_exchange_answer(
        exchange, number > 0 || exchange->op == SHED_LOCK_OP_ADVANCE);
}

const struct shed_algorithm shed_lock_lease = {.has_tokens = true,
                                               .has_lease = true,
                                               .can_undo = true,
                                               .poll_ms = 100,
                                               .next_command = next_command,
                                               .on_reply = on_reply};
