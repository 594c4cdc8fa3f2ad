/*
 * SETNX, and SETNX with EXPIRE.
 *
 * Without an expiry, a try that fails to set the key reads it once, so that the
 * server announces its next change, and because it may be our own: the reply to
 * an earlier SETNX may have been lost.
 *
 * With EXPIRE, a lock without a time to live was left by a holder that died
 * between the two commands; it is taken over, and gets a time to live. A live
 * holder is between the two for a moment as well, so the lock is taken over
 * only if it is unchanged after COMMAND_GAP_MS. (If the holder is alive but
 * slow, there are now two holders. That is a weakness of this algorithm;
 * another is that DEL removes whatever is at the key.)
 */
#include <string.h>

#include "base/error.h"
#include "lock/protocol.h"

enum { STEP_SET, STEP_EXPIRE, STEP_LOOK, STEP_READ, STEP_REPAIR };

/* The longest time that a live holder is allowed between its two commands. */
#define COMMAND_GAP_MS 20

/* The pause before another try where the lock was free a moment ago. */
#define SOON_MS 1

enum { PTTL_NONE = -1, PTTL_GONE = -2 };

static void add(struct shed_exchange *exchange, struct shed_args *args,
                const char *command)
{
    shed_args_add_text(args, command);
    shed_exchange_add_key(exchange, args, SHED_LOCK_KEY);
}

static void add_acquire(struct shed_exchange *exchange, struct shed_args *args)
{
    static const char *const commands[] = {[STEP_SET] = "SETNX",
                                           [STEP_EXPIRE] = "PEXPIRE",
                                           [STEP_LOOK] = "PTTL",
                                           [STEP_READ] = "GET"};
    const struct shed_lock_seen *seen = &exchange->seen;
    const char *token = exchange->holder.token_hex;

    if (exchange->step == STEP_REPAIR) {
        shed_exchange_add_swap(exchange, args,
                               shed_bytes(seen->bytes, seen->size), token,
                               exchange->lease_ms);
        return;
    }
    add(exchange, args, commands[exchange->step]);
    if (exchange->step == STEP_SET)
        shed_args_add_text(args, token);
    else if (exchange->step == STEP_EXPIRE)
        shed_exchange_add_number(exchange, 0, args, exchange->lease_ms);
}

static bool has_lease(const struct shed_exchange *exchange)
{
    return exchange->spec->algorithm->has_lease;
}

static bool next_command(struct shed_exchange *exchange, struct shed_args *args)
{
    const char *token = exchange->holder.token_hex;

    if (exchange->op == SHED_LOCK_OP_RELEASE)
        add(exchange, args, "DEL");
    else if (exchange->op == SHED_LOCK_OP_UNDO)
        shed_exchange_add_swap(exchange, args, shed_str(token), "", 0);
    else if (exchange->op == SHED_LOCK_OP_ACQUIRE)
        add_acquire(exchange, args);
    else if (has_lease(exchange))
        shed_exchange_add_swap(exchange, args, shed_str(token), token,
                               exchange->lease_ms);
    else
        add(exchange, args, "GET");
    return true;
}

static bool go_to(struct shed_exchange *exchange, int step)
{
    exchange->step = step;
    return true;
}

static bool on_look(struct shed_exchange *exchange, long long pttl)
{
    if (pttl == PTTL_NONE)
        return go_to(exchange, STEP_READ);
    exchange->seen.since_ms = 0;
    return shed_exchange_lose(exchange,
                              pttl == PTTL_GONE ? SOON_MS : (uint64_t)pttl + 1);
}

static bool is_seen_again(const struct shed_lock_seen *seen, const char *bytes,
                          size_t size)
{
    return seen->since_ms != 0 && seen->size == size &&
           memcmp(seen->bytes, bytes, size) == 0;
}

/* Take the value of a lock that has no time to live. */
static bool on_read(struct shed_exchange *exchange,
                    const struct shed_reply *reply)
{
    struct shed_lock_seen *seen = &exchange->seen;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    if (bytes == NULL) {
        seen->since_ms = 0;
        return shed_exchange_lose(exchange, SOON_MS);
    }
    if (!has_lease(exchange))
        return shed_exchange_answer(
            exchange, size == SHED_TOKEN_HEX_BYTES &&
                          memcmp(bytes, exchange->holder.token_hex, size) == 0);
    if (size > sizeof(seen->bytes))
        return shed_exchange_refuse(exchange);
    if (!is_seen_again(seen, bytes, size)) {
        seen->since_ms = exchange->now_ms;
        seen->size = size;
        memcpy(seen->bytes, bytes, size);
    }
    if (exchange->now_ms - seen->since_ms >= COMMAND_GAP_MS)
        return go_to(exchange, STEP_REPAIR);
    return shed_exchange_lose(exchange, seen->since_ms + COMMAND_GAP_MS -
                                            exchange->now_ms);
}

static bool on_acquire(struct shed_exchange *exchange,
                       const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    switch (exchange->step) {
    case STEP_SET:
        if (has_lease(exchange))
            return go_to(exchange, number > 0 ? STEP_EXPIRE : STEP_LOOK);
        return number > 0 ? shed_exchange_end(exchange, SHED_EXCHANGE_YES)
                          : go_to(exchange, STEP_READ);
    case STEP_LOOK:
        return on_look(exchange, number);
    case STEP_READ:
        return on_read(exchange, reply);
    case STEP_EXPIRE: /* 0: an earlier holder has removed it */
        exchange->seen.since_ms = 0;
        if (number <= 0)
            (void)shed_fail(&exchange->error, SHED_EREDIS,
                            "the lock was removed before it had an expiry");
        return shed_exchange_end_by_error(exchange);
    default: /* REPAIR; 0: the key is gone, or somebody was faster */
        exchange->seen.since_ms = 0;
        return number > 0 ? shed_exchange_end(exchange, SHED_EXCHANGE_YES)
                          : shed_exchange_lose(exchange, SOON_MS);
    }
}

static bool on_reply(struct shed_exchange *exchange,
                     const struct shed_reply *reply)
{
    if (shed_reply_error(reply) != NULL)
        return shed_exchange_fail(exchange, reply);
    if (exchange->op == SHED_LOCK_OP_ACQUIRE)
        return on_acquire(exchange, reply);
    if (exchange->op == SHED_LOCK_OP_EXTEND && !has_lease(exchange))
        return on_read(exchange, reply);
    return shed_exchange_answer(exchange, shed_reply_integer(reply) > 0);
}

const struct shed_algorithm shed_lock_setnx = {.can_undo = true,
                                               .poll_ms = 500,
                                               .next_command = next_command,
                                               .on_reply = on_reply};

const struct shed_algorithm shed_lock_expire = {.has_lease = true,
                                                .can_undo = true,
                                                .poll_ms = 50,
                                                .next_command = next_command,
                                                .on_reply = on_reply};
