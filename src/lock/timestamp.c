/*
 * SETNX of the time at which the lock ends, by the holder's wall clock. A lock
 * that has ended is taken with GETSET; the winner is the client that gets an
 * ended time back.
 *
 * Source: redis.io, documentation of SETNX, "Design pattern: Locking with
 * SETNX". Its known weaknesses are kept, because other clients have them too:
 * it depends on equal clocks, and a loser's GETSET changes the winner's time.
 */
#include "lock/protocol.h"

/* A renewal is a swap. If the last one was not answered, it looks first which
 * of its two times is at the key. */
enum { STEP_SET, STEP_LOOK, STEP_SWAP };

enum { MS_PER_S = 1000, DECIMAL = 10, DIGITS_MAX = 18 };

/* The unit of the times at the key. */
static uint64_t unit_ms(const struct shed_exchange *exchange)
{
    return exchange->spec->options->algorithm == SHED_LOCK_TIMESTAMP_SECONDS
               ? MS_PER_S
               : 1;
}

static uint64_t now(const struct shed_exchange *exchange)
{
    return exchange->wall_ms / unit_ms(exchange);
}

static uint64_t new_expiry(const struct shed_exchange *exchange)
{
    uint64_t unit = unit_ms(exchange);

    return now(exchange) + (exchange->lease_ms + unit - 1) / unit + 1;
}

static void add_renewal(struct shed_exchange *exchange, struct shed_args *args)
{
    struct shed_lock_holder *holder = &exchange->holder;

    holder->pending_expires = new_expiry(exchange);
    shed_write_digits(exchange->digits[0], holder->expires);
    shed_write_digits(exchange->digits[1], holder->pending_expires);
    shed_exchange_add_swap(exchange, args, shed_str(exchange->digits[0]),
                           exchange->digits[1], 0);
}

static bool next_command(struct shed_exchange *exchange, struct shed_args *args)
{
    static const char *const commands[] = {"SETNX", "GET", "GETSET"};
    struct shed_lock_holder *holder = &exchange->holder;
    bool is_release = exchange->op == SHED_LOCK_OP_RELEASE;

    /* a lock that has ended may be another's by now */
    if (exchange->op != SHED_LOCK_OP_ACQUIRE &&
        now(exchange) >= holder->expires)
        return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
    if (exchange->op == SHED_LOCK_OP_EXTEND && exchange->step == STEP_SET)
        exchange->step = holder->pending_expires != 0 ? STEP_LOOK : STEP_SWAP;
    if (exchange->op == SHED_LOCK_OP_EXTEND && exchange->step == STEP_SWAP) {
        add_renewal(exchange, args);
        return true;
    }
    shed_args_add_text(args, is_release ? "DEL" : commands[exchange->step]);
    shed_exchange_add_key(exchange, args, SHED_LOCK_KEY);
    if (is_release || exchange->step == STEP_LOOK)
        return true;
    holder->pending_expires = new_expiry(exchange);
    shed_exchange_add_number(exchange, 0, args, holder->pending_expires);
    return true;
}

/* Read the time in a reply. Returns: false if it is not a time. */
static bool read_expiry(const struct shed_reply *reply, uint64_t *expires)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    *expires = 0;
    if (bytes == NULL || size == 0 || size > DIGITS_MAX)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return false;
        *expires = *expires * DECIMAL + (uint64_t)(bytes[i] - '0');
    }
    return true;
}

static bool win(struct shed_exchange *exchange)
{
    exchange->holder.expires = exchange->holder.pending_expires;
    exchange->holder.pending_expires = 0;
    return shed_exchange_end(exchange, SHED_EXCHANGE_YES);
}

static bool lose(struct shed_exchange *exchange, uint64_t expires)
{
    return shed_exchange_lose(exchange, (expires - now(exchange) + 1) *
                                            unit_ms(exchange));
}

/* If the lock has ended, go on and try to take it. */
static bool on_look(struct shed_exchange *exchange,
                    const struct shed_reply *reply)
{
    uint64_t expires;

    if (shed_reply_is_nil(reply))
        return shed_exchange_lose(exchange, 1);
    if (!read_expiry(reply, &expires))
        return shed_exchange_refuse(exchange);
    if (expires >= now(exchange))
        return lose(exchange, expires);
    exchange->step = STEP_SWAP;
    return true;
}

static bool on_swap(struct shed_exchange *exchange,
                    const struct shed_reply *reply)
{
    uint64_t old = 0;

    if (!shed_reply_is_nil(reply) && !read_expiry(reply, &old))
        return shed_exchange_refuse(exchange);
    return old < now(exchange) ? win(exchange) : lose(exchange, old);
}

static bool on_renewal(struct shed_exchange *exchange,
                       const struct shed_reply *reply)
{
    struct shed_lock_holder *holder = &exchange->holder;
    uint64_t expires;

    if (exchange->step == STEP_LOOK) {
        if (read_expiry(reply, &expires) && expires == holder->pending_expires)
            holder->expires = expires;
        exchange->step = STEP_SWAP;
        return true;
    }
    if (shed_reply_integer(reply) > 0)
        return win(exchange);
    holder->pending_expires = 0;
    return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
}

static bool on_reply(struct shed_exchange *exchange,
                     const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (shed_reply_error(reply) != NULL)
        return shed_exchange_fail(exchange, reply);
    if (exchange->op == SHED_LOCK_OP_EXTEND)
        return on_renewal(exchange, reply);
    if (exchange->op != SHED_LOCK_OP_ACQUIRE)
        return shed_exchange_answer(exchange, number > 0);
    if (exchange->step == STEP_LOOK)
        return on_look(exchange, reply);
    if (exchange->step == STEP_SWAP)
        return on_swap(exchange, reply);
    if (number > 0)
        return win(exchange);
    exchange->step = STEP_LOOK;
    return true;
}

const struct shed_algorithm shed_lock_timestamp = {.has_lease = true,
                                                   .poll_ms = 500,
                                                   .next_command = next_command,
                                                   .on_reply = on_reply};
