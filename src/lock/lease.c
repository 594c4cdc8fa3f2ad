/* SET NX PX of a random token; all that must be one step is one script. */
#include <stdlib.h>

#include "lock/talk.h"

enum { DECIMAL = 10 };

static void begin(struct shed_talk *talk, struct shed_args *args,
                  enum shed_script script, const char *count, int first,
                  int last)
{
    talk->script = script;
    shed_script_begin(args, script, count);
    for (int i = first; i <= last; i++)
        shed_talk_add_key(talk, args, i);
}

static void add_identity(struct shed_talk *talk, struct shed_args *args)
{
    shed_args_add(args, talk->identity.process, sizeof(talk->identity.process));
    shed_args_add(args, talk->identity.run, sizeof(talk->identity.run));
    shed_talk_add_number(talk, 0, args, talk->lease_ms);
}

static void add_handle(const struct shed_talk *talk, struct shed_args *args)
{
    shed_args_add(args, talk->words->handle, sizeof(talk->words->handle));
}

static void say_acquire(struct shed_talk *talk, struct shed_args *args,
                        bool is_fair)
{
    begin(talk, args, SHED_SCRIPT_LOCK_ACQUIRE, is_fair ? "5" : "4",
          SHED_LOCK_KEY, SHED_LOCK_KEY_SUSPICION);
    if (is_fair) {
        shed_talk_add_key(talk, args, SHED_LOCK_KEY_QUEUE);
        shed_talk_add_key(talk, args, SHED_LOCK_KEY_OFFER);
    } else {
        shed_talk_add_key(talk, args, SHED_LOCK_KEY_WAITERS);
    }
    shed_args_add(args, talk->holder.token, SHED_TOKEN_BYTES);
    add_identity(talk, args);
    shed_talk_add_number(talk, 1, args, talk->words->options->death_grace_ms);
    if (is_fair)
        shed_talk_add_number(talk, 2, args, talk->holder.wait_ms);
    else
        add_handle(talk, args);
}

static void say_release(struct shed_talk *talk, struct shed_args *args,
                        bool is_fair)
{
    begin(talk, args, SHED_SCRIPT_LOCK_RELEASE, "2", SHED_LOCK_KEY,
          SHED_LOCK_KEY);
    shed_talk_add_key(talk, args,
                      is_fair ? SHED_LOCK_KEY_QUEUE : SHED_LOCK_KEY_WAITERS);
    shed_args_add(args, talk->holder.token, SHED_TOKEN_BYTES);
    add_handle(talk, args);
    if (is_fair) {
        shed_talk_add_number(talk, 0, args, talk->holder.wait_ms);
        shed_args_add(args, talk->identity.process,
                      sizeof(talk->identity.process));
    }
}

static bool say(struct shed_talk *talk, struct shed_args *args)
{
    bool is_fair = talk->words->options->fair != 0;

    switch (talk->op) {
    case SHED_LOCK_OP_ACQUIRE:
        say_acquire(talk, args, is_fair);
        break;
    case SHED_LOCK_OP_RELEASE:
    case SHED_LOCK_OP_UNDO: /* which compares */
        say_release(talk, args, is_fair);
        break;
    case SHED_LOCK_OP_EXTEND:
        begin(talk, args, SHED_SCRIPT_LOCK_EXTEND, "1", SHED_LOCK_KEY,
              SHED_LOCK_KEY);
        shed_args_add(args, talk->holder.token, SHED_TOKEN_BYTES);
        add_identity(talk, args);
        break;
    case SHED_LOCK_OP_ADVANCE:
        begin(talk, args, SHED_SCRIPT_LOCK_ADVANCE, "1", SHED_LOCK_KEY_COUNTER,
              SHED_LOCK_KEY_COUNTER);
        shed_talk_add_number(talk, 0, args, talk->number);
        break;
    }
    return true;
}

static bool hear_acquire(struct shed_talk *talk, const struct shed_reply *reply)
{
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    const struct shed_reply *what = shed_reply_at(reply, 1);
    size_t size = 0;
    const char *digits = shed_reply_bytes(what, &size);

    if (shed_reply_begins(kind, "HELD") && digits != NULL) {
        talk->fence = strtoull(digits, NULL, DECIMAL);
        talk->is_takeover = shed_reply_at(reply, 2) != NULL;
        return shed_talk_end(talk, SHED_TALK_YES);
    }
    if (shed_reply_begins(kind, "TAKEN") && shed_reply_integer(what) >= 0) {
        talk->look_ms = (uint64_t)shed_reply_integer(what) + 1;
        return shed_talk_end(talk, SHED_TALK_NO);
    }
    if (shed_reply_begins(kind, "WRONGTYPE")) {
        shed_talk_refuse(talk);
        return shed_talk_end(talk, SHED_TALK_WRONG);
    }
    return shed_talk_fail(talk, reply);
}

static bool hear(struct shed_talk *talk, const struct shed_reply *reply)
{
    long long number = shed_reply_integer(reply);

    if (talk->op == SHED_LOCK_OP_ACQUIRE)
        return hear_acquire(talk, reply);
    if (number < 0)
        return shed_talk_fail(talk, reply);
    if (talk->op == SHED_LOCK_OP_ADVANCE)
        talk->fence = (uint64_t)number;
    talk->has_waiters = talk->op == SHED_LOCK_OP_RELEASE && number > 1;
    return shed_talk_end(talk, number > 0 || talk->op == SHED_LOCK_OP_ADVANCE
                                   ? SHED_TALK_YES
                                   : SHED_TALK_NO);
}

const struct shed_algorithm shed_lock_lease = {.has_tokens = true,
                                               .has_lease = true,
                                               .can_undo = true,
                                               .may_repeat = true,
                                               .poll_ms = {100, 100},
                                               .say = say,
                                               .hear = hear};
