/*
 * SETNX of the time at which the lock ends, by the holder's wall clock; one
 * that has ended is taken with GETSET, by whoever gets an ended time back.
 *
 * Source: redis.io, documentation of SETNX, "Design pattern: Locking with
 * SETNX". Its known weaknesses are kept, because other clients have them too:
 * clocks that differ, and that a loser's GETSET moves the winner's time.
 */
#include <stdio.h>

#include "lock/talk.h"

enum { STEP_SET, STEP_LOOK, STEP_SWAP };

/* A renewal; before it, where the last one was not answered, which of its two
 * times is at the key is found out, and made the later one. */
enum { STEP_RENEW, STEP_OLD, STEP_TRIED };

enum { MS_PER_S = 1000, DECIMAL = 10, DIGITS_MAX = 18 };

/* What is counted in: ms, or seconds. */
static uint64_t unit_ms(const struct shed_talk *talk)
{
    return talk->words->options->in_seconds ? MS_PER_S : 1;
}

static uint64_t now(const struct shed_talk *talk)
{
    return talk->wall_ms / unit_ms(talk);
}

static uint64_t new_stamp(const struct shed_talk *talk)
{
    uint64_t unit = unit_ms(talk);

    return now(talk) + (talk->lease_ms + unit - 1) / unit + 1;
}

static void write_number(char digits[SHED_LOCK_DIGITS], uint64_t number)
{
    (void)snprintf(digits, SHED_LOCK_DIGITS, "%llu",
                   (unsigned long long)number);
}

static void say_renewal(struct shed_talk *talk, struct shed_args *args)
{
    struct shed_lock_times *times = &talk->memory.of.times;
    uint64_t from = times->end, to = talk->number;

    if (times->pending_end != 0 && talk->step == STEP_RENEW)
        talk->step = STEP_OLD;
    if (talk->step == STEP_TRIED)
        from = times->pending_end;
    if (talk->step == STEP_RENEW)
        times->pending_end = to;
    else
        to = times->pending_end;
    write_number(talk->digits[0], from);
    write_number(talk->digits[1], to);
    shed_talk_add_swap(talk, args, talk->digits[0], talk->digits[1], 0);
}

static bool say(struct shed_talk *talk, struct shed_args *args)
{
    static const char *const commands[] = {"SETNX", "GET", "GETSET"};
    bool is_release = talk->op == SHED_LOCK_OP_RELEASE;

    /* what has ended may be another's by now */
    if (talk->op != SHED_LOCK_OP_ACQUIRE &&
        now(talk) >= talk->memory.of.times.end)
        return shed_talk_end(talk, SHED_TALK_NO);
    talk->number = new_stamp(talk);
    if (talk->op == SHED_LOCK_OP_EXTEND) {
        say_renewal(talk, args);
        return true;
    }
    shed_args_add_text(args, is_release ? "DEL" : commands[talk->step]);
    shed_talk_add_key(talk, args, SHED_LOCK_KEY);
    if (is_release || talk->step == STEP_LOOK)
        return true;
    shed_talk_add_number(talk, 0, args, talk->number);
    return true;
}

/* The time in a reply. Returns: false if it is none. */
static bool read_stamp(const struct shed_reply *reply, uint64_t *stamp)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    *stamp = 0;
    if (bytes == NULL || size == 0 || size > DIGITS_MAX)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return false;
        *stamp = *stamp * DECIMAL + (uint64_t)(bytes[i] - '0');
    }
    return true;
}

static bool win(struct shed_talk *talk)
{
    talk->memory.of.times = (struct shed_lock_times){.end = talk->number};
    return shed_talk_end(talk, SHED_TALK_YES);
}

static bool lose(struct shed_talk *talk, uint64_t stamp)
{
    talk->look_ms = (stamp - now(talk) + 1) * unit_ms(talk);
    return shed_talk_end(talk, SHED_TALK_NO);
}

static bool refuse(struct shed_talk *talk)
{
    shed_talk_refuse(talk);
    return shed_talk_end(talk, SHED_TALK_WRONG);
}

/* What stood there is free, or has ended: try for it. */
static bool hear_look(struct shed_talk *talk, const struct shed_reply *reply)
{
    uint64_t stamp;

    if (shed_reply_is_nil(reply))
        return shed_talk_again(talk);
    if (!read_stamp(reply, &stamp))
        return refuse(talk);
    if (stamp >= now(talk))
        return lose(talk, stamp);
    talk->step = STEP_SWAP;
    return true;
}

static bool hear_swap(struct shed_talk *talk, const struct shed_reply *reply)
{
    uint64_t old = 0;

    if (!shed_reply_is_nil(reply) && !read_stamp(reply, &old))
        return refuse(talk);
    return old < now(talk) ? win(talk) : lose(talk, old);
}

static bool hear_renewal(struct shed_talk *talk, long long number)
{
    struct shed_lock_times *times = &talk->memory.of.times;

    if (number <= 0 && talk->step != STEP_OLD) {
        times->pending_end = 0;
        return shed_talk_end(talk, SHED_TALK_NO);
    }
    if (number <= 0) {
        talk->step = STEP_TRIED;
        return true;
    }
    *times = (struct shed_lock_times){.end = times->pending_end};
    if (talk->step == STEP_RENEW)
        return shed_talk_end(talk, SHED_TALK_YES);
    talk->step = STEP_RENEW;
    return true;
}

static bool hear(struct shed_talk *talk, const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (shed_reply_error(reply) != NULL)
        return shed_talk_fail(talk, reply);
    if (talk->op == SHED_LOCK_OP_EXTEND)
        return hear_renewal(talk, number);
    if (talk->op != SHED_LOCK_OP_ACQUIRE && number <= 0)
        return shed_talk_end(talk, SHED_TALK_NO);
    if (talk->op == SHED_LOCK_OP_RELEASE)
        return shed_talk_end(talk, SHED_TALK_YES);
    if (talk->step == STEP_LOOK)
        return hear_look(talk, reply);
    if (talk->step == STEP_SWAP)
        return hear_swap(talk, reply);
    if (number > 0)
        return win(talk);
    talk->step = STEP_LOOK;
    return true;
}

const struct shed_algorithm shed_lock_timestamp = {
    .has_lease = true, .poll_ms = {500, 100}, .say = say, .hear = hear};
