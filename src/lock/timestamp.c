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

enum { STEP_SET, STEP_LOOK, STEP_SWAP };

/* The steps of a renewal. If the last one was not answered, the first two steps
 * find out which of its two times is at the key, and set the later one. */
enum { STEP_RENEW, STEP_OLD, STEP_TRIED };

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
    struct shed_lock_times *times = &exchange->memory.times;
    uint64_t from = times->expires, to = exchange->expires;

    if (times->pending_expires != 0 && exchange->step == STEP_RENEW)
        exchange->step = STEP_OLD;
    if (exchange->step == STEP_TRIED)
        from = times->pending_expires;
    if (exchange->step == STEP_RENEW)
        times->pending_expires = to;
    else
        to = times->pending_expires;
    shed_write_digits(exchange->digits[0], from);
    shed_write_digits(exchange->digits[1], to);
    shed_exchange_add_swap(exchange, args, shed_str(exchange->digits[0]),
                           exchange->digits[1], 0);
}

static bool next_command(struct shed_exchange *exchange, struct shed_args *args)
{
    static const char *const commands[] = {"SETNX", "GET", "GETSET"};
    bool is_release = exchange->op == SHED_LOCK_OP_RELEASE;

    /* a lock that has ended may be another's by now */
    if (exchange->op != SHED_LOCK_OP_ACQUIRE &&
        now(exchange) >= exchange->memory.times.expires)
        return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
    exchange->expires = new_expiry(exchange);
    if (exchange->op == SHED_LOCK_OP_EXTEND) {
        add_renewal(exchange, args);
        return true;
    }
    shed_args_add_text(args, is_release ? "DEL" : commands[exchange->step]);
    shed_exchange_add_key(exchange, args, SHED_LOCK_KEY);
    if (is_release || exchange->step == STEP_LOOK)
        return true;
    shed_exchange_add_number(exchange, 0, args, exchange->expires);
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
    exchange->memory.times =
        (struct shed_lock_times){.expires = exchange->expires};
    return shed_exchange_end(exchange, SHED_EXCHANGE_YES);
}

static bool lose(struct shed_exchange *exchange, uint64_t expires)
{
    exchange->look_ms = (expires - now(exchange) + 1) * unit_ms(exchange);
    return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
}

/* If the lock has vanished or has ended, go on and try to take it. */
static bool on_look(struct shed_exchange *exchange,
                    const struct shed_reply *reply)
{
    uint64_t expires;

    if (shed_reply_is_nil(reply))
        return shed_exchange_again(exchange);
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

static bool on_renewal(struct shed_exchange *exchange, long long number)
{
    struct shed_lock_times *times = &exchange->memory.times;

    if (number <= 0 && exchange->step != STEP_OLD) {
        times->pending_expires = 0;
        return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
    }
    if (number <= 0) {
        exchange->step = STEP_TRIED;
        return true;
    }
    *times = (struct shed_lock_times){.expires = times->pending_expires};
    if (exchange->step == STEP_RENEW)
        return shed_exchange_end(exchange, SHED_EXCHANGE_YES);
    exchange->step = STEP_RENEW;
    return true;
}

static bool on_reply(struct shed_exchange *exchange,
                     const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (shed_reply_error(reply) != NULL)
        return shed_exchange_fail(exchange, reply);
    if (exchange->op == SHED_LOCK_OP_EXTEND)
        return on_renewal(exchange, number);
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
