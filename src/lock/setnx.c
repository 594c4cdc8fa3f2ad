/*
 * SETNX, DEL: the lock without an expiry. A try that fails to set the key reads
 * it once, so that the server announces its next change, and because it may be
 * our own: the reply to an earlier SETNX may have been lost.
 */
#include <string.h>

#include "lock/protocol.h"

enum { STEP_SET, STEP_LOOK };

static bool next_command(struct shed_exchange *exchange, struct shed_args *args)
{
    static const char *const acquire[] = {"SETNX", "GET"};
    const char *command = exchange->op == SHED_LOCK_OP_ACQUIRE
                              ? acquire[exchange->step]
                          : exchange->op == SHED_LOCK_OP_EXTEND ? "GET"
                                                                : "DEL";

    if (exchange->op == SHED_LOCK_OP_UNDO) {
        shed_exchange_add_undo(exchange, args);
        return true;
    }
    shed_args_add_text(args, command);
    shed_exchange_add_key(exchange, args, SHED_LOCK_KEY);
    if (strcmp(command, "SETNX") == 0)
        shed_args_add_text(args, exchange->holder.token_hex);
    return true;
}

static bool on_look(struct shed_exchange *exchange,
                    const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes;

    if (shed_reply_is_nil(reply))
        return exchange->op == SHED_LOCK_OP_EXTEND
                   ? shed_exchange_end(exchange, SHED_EXCHANGE_NO)
                   : shed_exchange_again(exchange);
    if (shed_reply_error(reply) != NULL)
        return shed_exchange_fail(exchange, reply);
    bytes = shed_reply_bytes(reply, &size);
    return shed_exchange_answer(
        exchange, bytes != NULL && size == SHED_TOKEN_HEX_BYTES &&
                      memcmp(bytes, exchange->holder.token_hex, size) == 0);
}

static bool on_reply(struct shed_exchange *exchange,
                     const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (exchange->op == SHED_LOCK_OP_EXTEND || exchange->step == STEP_LOOK)
        return on_look(exchange, reply);
    if (number < 0)
        return shed_exchange_fail(exchange, reply);
    if (number > 0 || exchange->op != SHED_LOCK_OP_ACQUIRE)
        return shed_exchange_answer(exchange, number > 0);
    exchange->step = STEP_LOOK;
    return true;
}

const struct shed_algorithm shed_lock_setnx = {.can_undo = true,
                                               .poll_ms = 500,
                                               .next_command = next_command,
                                               .on_reply = on_reply};
