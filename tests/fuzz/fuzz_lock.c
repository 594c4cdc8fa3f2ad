/*
 * Any bytes as what a server says of a lock, and of the records that others
 * have left at its key: every operation of every algorithm ends after a bounded
 * number of commands, with a result that fits, and says why where it refuses.
 * The first two bytes choose algorithm, operation and what the holder knows;
 * the rest are the replies.
 */
#include <string.h>

#include "fuzz/stream.h"
#include "lock/protocol.h"

#define COMMANDS_MAX 64
#define LEASE_MS 1000
#define WALL_MS 1700000000000U

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const enum shed_lock_algorithm options_algorithms[] = {
    SHED_LOCK_SETNX, SHED_LOCK_EXPIRE, SHED_LOCK_TIMESTAMP, SHED_LOCK_LEASE};

static void make_spec(struct shed_lock_spec *spec,
                      struct shed_lock_options *options, uint8_t choice)
{
    *options = (struct shed_lock_options)SHED_LOCK_OPTIONS_INIT;
    options->algorithm = options_algorithms[choice & 3];
    options->fair = (choice & 4) != 0;
    if (options->algorithm == SHED_LOCK_TIMESTAMP && (choice & 8) != 0)
        options->algorithm = SHED_LOCK_TIMESTAMP_SECONDS;
    *spec = (struct shed_lock_spec){.options = options,
                                    .algorithm = shed_algorithm_of(options)};
    for (size_t i = 0; i < SHED_LOCK_KEYS; i++) {
        spec->key[i] = shed_str("lock:{x}");
    }
}

static void begin(struct shed_exchange *e, const struct shed_lock_spec *spec,
                  const uint8_t *choice)
{
    struct shed_lock_holder holder = {.wait_ms = choice[1]};

    memset(holder.token_hex, 'a', SHED_TOKEN_HEX_BYTES);
    *e = shed_exchange_make(spec, (enum shed_lock_op)(choice[1] % 5), &holder);
    e->lease_ms = e->now_ms = LEASE_MS;
    e->wall_ms = WALL_MS;
    if (e->spec->algorithm == &shed_lock_timestamp) {
        e->holder.expires = WALL_MS + LEASE_MS;
        e->holder.pending_expires = (choice[1] & 64) != 0 ? WALL_MS + 2 : 0;
    }
    e->is_repeated = (choice[1] & 128) != 0;
}

/* What an algorithm is never asked to do. */
static bool is_asked(const struct shed_exchange *e)
{
    return e->op <= SHED_LOCK_OP_RELEASE ||
           (e->op == SHED_LOCK_OP_UNDO && e->spec->algorithm->can_undo) ||
           (e->op == SHED_LOCK_OP_ADVANCE && e->spec->algorithm->has_tokens);
}

static void check_end(const struct shed_exchange *e)
{
    check(e->end <= SHED_EXCHANGE_WRONG);
    if (e->end == SHED_EXCHANGE_WRONG)
        check(e->error.code != SHED_OK && e->error.reason[0] != '\0');
    if (e->op == SHED_LOCK_OP_ACQUIRE && e->end == SHED_EXCHANGE_YES &&
        !e->spec->algorithm->has_tokens)
        check(e->fence == 0);
}

static void run(struct shed_exchange *e, struct stream *stream)
{
    bool goes_on = true;

    for (unsigned i = 0; goes_on; i++) {
        struct shed_reply *reply;
        struct shed_args args = {0};
        check(i < COMMANDS_MAX);
        if (!e->spec->algorithm->next_command(e, &args))
            break;
        check(args.count > 0);
        reply = stream_next(stream);
        if (reply == NULL)
            return; /* the connection is lost, or silent */
        goes_on = e->spec->algorithm->on_reply(e, reply);
        shed_reply_free(reply);
        e->now_ms += 7;
        e->wall_ms += 7;
    }
    check_end(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct shed_lock_options options;
    struct shed_lock_spec spec;
    struct shed_exchange exchange;
    struct stream stream;

    if (size < 2)
        return 0;
    make_spec(&spec, &options, bytes[0]);
    begin(&exchange, &spec, bytes);
    if (!is_asked(&exchange))
        return 0;
    stream_open(&stream);
    stream_feed(&stream, bytes + 2, size - 2);
    run(&exchange, &stream);
    stream_close(&stream);
    return 0;
}
