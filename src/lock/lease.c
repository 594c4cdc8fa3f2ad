/* SET NX PX of a random token. Whatever must be atomic is a script. */
#include <assert.h>
#include <stdlib.h>

#include "lock/protocol.h"

enum { DECIMAL = 10 };

/* count: of the keys, as text. */
static void begin(struct shed_exchange *exchange, struct shed_args *args,
                  enum shed_script script, const char *count, const int *keys)
{
    exchange->script = script;
    shed_script_begin(args, script, count);
    for (int i = 0; i < count[0] - '0'; i++)
        shed_exchange_add_key(exchange, args, keys[i]);
}

static void add_process(struct shed_exchange *exchange, struct shed_args *args)
{
    shed_args_add(args, exchange->identity.process,
                  sizeof(exchange->identity.process));
}

/* The holder, as in a record, and the lease. */
static void add_holder(struct shed_exchange *exchange, struct shed_args *args)
{
    shed_args_add(args, exchange->holder.token, SHED_TOKEN_BYTES);
    add_process(exchange, args);
    shed_args_add(args, exchange->identity.run, sizeof(exchange->identity.run));
    shed_exchange_add_number(exchange, 0, args, exchange->lease_ms);
}

static bool next_command(struct shed_exchange *exchange, struct shed_args *args)
{
    const struct shed_lock_spec *spec = exchange->spec;
    bool is_fair = spec->options->fair != 0;
    int waiting = is_fair ? SHED_LOCK_KEY_QUEUE : SHED_LOCK_KEY_WAITERS;

    switch (exchange->op) {
    case SHED_LOCK_OP_ACQUIRE:
        begin(exchange, args, SHED_SCRIPT_LOCK_ACQUIRE, is_fair ? "5" : "4",
              (const int[]){SHED_LOCK_KEY, SHED_LOCK_KEY_COUNTER,
                            SHED_LOCK_KEY_SUSPICION, waiting,
                            SHED_LOCK_KEY_OFFER});
        add_holder(exchange, args);
        shed_exchange_add_number(exchange, 1, args,
                                 spec->options->death_grace_ms);
        if (is_fair)
            shed_exchange_add_number(exchange, 2, args,
                                     exchange->holder.wait_ms);
        else
            shed_args_add(args, spec->handle, sizeof(spec->handle));
        break;
    case SHED_LOCK_OP_RELEASE:
    case SHED_LOCK_OP_UNDO: /* the script compares the token */
        begin(exchange, args, SHED_SCRIPT_LOCK_RELEASE, "2",
              (const int[]){SHED_LOCK_KEY, waiting});
        shed_args_add(args, exchange->holder.token, SHED_TOKEN_BYTES);
        shed_args_add(args, spec->handle, sizeof(spec->handle));
        if (!is_fair)
            break;
        shed_exchange_add_number(exchange, 0, args, exchange->holder.wait_ms);
        add_process(exchange, args);
        break;
    case SHED_LOCK_OP_EXTEND:
        begin(exchange, args, SHED_SCRIPT_LOCK_EXTEND, "1",
              (const int[]){SHED_LOCK_KEY});
        add_holder(exchange, args);
        break;
    case SHED_LOCK_OP_ADVANCE:
        begin(exchange, args, SHED_SCRIPT_LOCK_ADVANCE, "1",
              (const int[]){SHED_LOCK_KEY_COUNTER});
        shed_exchange_add_number(exchange, 0, args, exchange->fence);
        break;
    case SHED_LOCK_OP_CONFIRM:
        assert(false); /* the replicas are asked by acks.c */
        break;
    }
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
    if (shed_reply_begins(kind, "TAKEN") && shed_reply_integer(what) >= 0) {
        exchange->look_ms = (uint64_t)shed_reply_integer(what) + 1;
        return shed_exchange_end(exchange, SHED_EXCHANGE_NO);
    }
    if (shed_reply_begins(kind, "WRONGTYPE"))
        return shed_exchange_refuse(exchange);
    return shed_exchange_fail(exchange, reply);
}

static bool on_reply(struct shed_exchange *exchange,
                     const struct shed_reply *reply)
{
    enum { ABSENT = 2 }; /* see lock_extend.lua */
    long long number = shed_reply_integer(reply);

    if (exchange->op == SHED_LOCK_OP_ACQUIRE)
        return on_acquire(exchange, reply);
    if (number < 0)
        return shed_exchange_fail(exchange, reply);
    if (exchange->op == SHED_LOCK_OP_ADVANCE)
        exchange->fence = (uint64_t)number;
    exchange->is_absent =
        exchange->op == SHED_LOCK_OP_EXTEND && number == ABSENT;
    exchange->has_waiters = exchange->op == SHED_LOCK_OP_RELEASE && number > 1;
    return shed_exchange_answer(exchange,
                                (number > 0 && !exchange->is_absent) ||
                                    exchange->op == SHED_LOCK_OP_ADVANCE);
}

const struct shed_algorithm shed_lock_lease = {.has_tokens = true,
                                               .has_lease = true,
                                               .can_undo = true,
                                               .poll_ms = 100,
                                               .next_command = next_command,
                                               .on_reply = on_reply};
