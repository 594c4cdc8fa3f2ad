/*
 * SETNX, DEL: the lock without an end. A try that fails to set it looks at it,
 * once, so that the server tells us when it changes, and because it may be our
 * own: the reply to the first command can have been lost.
 */
#include <string.h>

#include "lock/talk.h"

enum { STEP_SET, STEP_LOOK };

static bool say(struct shed_talk *talk, struct shed_args *args)
{
    static const char *const acquire[] = {"SETNX", "GET"};
    const char *command = talk->op == SHED_LOCK_OP_ACQUIRE ? acquire[talk->step]
                          : talk->op == SHED_LOCK_OP_EXTEND ? "GET"
                                                            : "DEL";

    if (talk->op == SHED_LOCK_OP_UNDO) {
        shed_talk_add_swap(talk, args, talk->holder.token_hex, "", 0);
        return true;
    }
    shed_args_add_text(args, command);
    shed_talk_add_key(talk, args, SHED_LOCK_KEY);
    if (strcmp(command, "SETNX") == 0)
        shed_args_add_text(args, talk->holder.token_hex);
    return true;
}

static bool hear_look(struct shed_talk *talk, const struct shed_reply *reply)
{
    if (shed_reply_is_nil(reply))
        return talk->op == SHED_LOCK_OP_EXTEND
                   ? shed_talk_end(talk, SHED_TALK_NO)
                   : shed_talk_again(talk);
    if (shed_reply_error(reply) != NULL)
        return shed_talk_fail(talk, reply);
    return shed_talk_end(talk, shed_talk_is_ours(talk, reply) ? SHED_TALK_YES
                                                              : SHED_TALK_NO);
}

static bool hear(struct shed_talk *talk, const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (talk->op == SHED_LOCK_OP_EXTEND || talk->step == STEP_LOOK)
        return hear_look(talk, reply);
    if (number < 0)
        return shed_talk_fail(talk, reply);
    if (number > 0 || talk->op != SHED_LOCK_OP_ACQUIRE)
        return shed_talk_end(talk, number > 0 ? SHED_TALK_YES : SHED_TALK_NO);
    talk->step = STEP_LOOK;
    return true;
}

const struct shed_algorithm shed_lock_setnx = {
    .can_undo = true, .poll_ms = {500, 100}, .say = say, .hear = hear};
