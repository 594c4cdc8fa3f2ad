/*
 * SETNX, then EXPIRE. A lock that has no time to live was left by a holder that
 * died between the two: it is given one, and taken. A live holder is between
 * the two for a moment as well, so it is taken only when it is seen again, the
 * same, after that. (If the holder is alive and only slow, there are two
 * holders now; that is this algorithm's weakness, as is that DEL removes
 * whatever is at the key.)
 */
#include <string.h>

#include "lock/talk.h"

enum { STEP_SET, STEP_EXPIRE, STEP_LOOK, STEP_READ, STEP_REPAIR };

/* The longest that a live holder needs between its two commands. */
#define MOMENT_MS 20

enum { MS_PER_S = 1000, PTTL_NONE = -1, PTTL_GONE = -2 };

static void add(struct shed_talk *talk, struct shed_args *args,
                const char *command)
{
    shed_args_add_text(args, command);
    shed_talk_add_key(talk, args, SHED_LOCK_KEY);
}

/* In whole seconds where that says it, as other clients do. */
static void add_expire(struct shed_talk *talk, struct shed_args *args)
{
    bool is_whole = talk->lease_ms % MS_PER_S == 0;

    add(talk, args, is_whole ? "EXPIRE" : "PEXPIRE");
    shed_talk_add_number(talk, 0, args,
                         is_whole ? talk->lease_ms / MS_PER_S : talk->lease_ms);
}

static void add_repair(struct shed_talk *talk, struct shed_args *args)
{
    talk->script = SHED_SCRIPT_LOCK_REPAIR;
    shed_script_begin(args, talk->script, "1");
    shed_talk_add_key(talk, args, SHED_LOCK_KEY);
    shed_args_add(args, talk->memory.of.seen.bytes, talk->memory.of.seen.size);
    shed_args_add_text(args, talk->holder.token_hex);
    shed_talk_add_number(talk, 0, args, talk->lease_ms);
}

static void add_acquire(struct shed_talk *talk, struct shed_args *args)
{
    switch (talk->step) {
    case STEP_SET:
        add(talk, args, "SETNX");
        shed_args_add_text(args, talk->holder.token_hex);
        return;
    case STEP_EXPIRE:
        add_expire(talk, args);
        return;
    case STEP_LOOK:
        add(talk, args, "PTTL");
        return;
    case STEP_READ:
        add(talk, args, "GET");
        return;
    default:
        add_repair(talk, args);
        return;
    }
}

static bool say(struct shed_talk *talk, struct shed_args *args)
{
    if (talk->op == SHED_LOCK_OP_RELEASE)
        add(talk, args, "DEL");
    else if (talk->op == SHED_LOCK_OP_EXTEND)
        shed_talk_add_swap(talk, args, talk->holder.token_hex,
                           talk->holder.token_hex, talk->lease_ms);
    else if (talk->op == SHED_LOCK_OP_UNDO)
        shed_talk_add_swap(talk, args, talk->holder.token_hex, "", 0);
    else
        add_acquire(talk, args);
    return true;
}

static bool go_to(struct shed_talk *talk, int step)
{
    talk->step = step;
    return true;
}

static bool hear_look(struct shed_talk *talk, long long pttl)
{
    if (pttl == PTTL_NONE)
        return go_to(talk, STEP_READ);
    talk->memory.of.seen.since_ms = 0;
    if (pttl == PTTL_GONE)
        return shed_talk_again(talk);
    talk->look_ms = (uint64_t)pttl + 1;
    return shed_talk_end(talk, SHED_TALK_NO);
}

static bool is_seen_again(const struct shed_lock_seen *seen, const char *bytes,
                          size_t size)
{
    return seen->since_ms != 0 && seen->size == size &&
           memcmp(seen->bytes, bytes, size) == 0;
}

/* What has no time to live. */
static bool hear_read(struct shed_talk *talk, const struct shed_reply *reply)
{
    struct shed_lock_seen *seen = &talk->memory.of.seen;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    if (bytes == NULL)
        return shed_talk_again(talk);
    if (size > sizeof(seen->bytes)) {
        shed_talk_refuse(talk);
        return shed_talk_end(talk, SHED_TALK_WRONG);
    }
    if (!is_seen_again(seen, bytes, size)) {
        seen->since_ms = talk->now_ms;
        seen->size = size;
        memcpy(seen->bytes, bytes, size);
    }
    if (talk->now_ms - seen->since_ms >= MOMENT_MS)
        return go_to(talk, STEP_REPAIR);
    talk->look_ms = seen->since_ms + MOMENT_MS - talk->now_ms;
    return shed_talk_end(talk, SHED_TALK_NO);
}

static bool hear_acquire(struct shed_talk *talk, const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    switch (talk->step) {
    case STEP_SET:
        return go_to(talk, number > 0 ? STEP_EXPIRE : STEP_LOOK);
    case STEP_LOOK:
        return hear_look(talk, number);
    case STEP_READ:
        return hear_read(talk, reply);
    default: /* EXPIRE, REPAIR; 0: it has gone, or was quicker, in between */
        talk->memory.of.seen.since_ms = 0;
        return number > 0 ? shed_talk_end(talk, SHED_TALK_YES)
                          : shed_talk_again(talk);
    }
}

static bool hear(struct shed_talk *talk, const struct shed_reply *reply)
{
    if (shed_reply_error(reply) != NULL)
        return shed_talk_fail(talk, reply);
    if (talk->op == SHED_LOCK_OP_ACQUIRE)
        return hear_acquire(talk, reply);
    return shed_talk_end(talk, shed_reply_integer(reply) > 0 ? SHED_TALK_YES
                                                             : SHED_TALK_NO);
}

const struct shed_algorithm shed_lock_expire = {.has_lease = true,
                                                .can_undo = true,
                                                .poll_ms = {50, 50},
                                                .say = say,
                                                .hear = hear};
