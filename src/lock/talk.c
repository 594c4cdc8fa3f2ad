/* What all algorithms' talks share, and how one is carried on. Its invariant:
 * a talk is over when its end is set, and it ends after a bounded number of
 * commands. */
#include "lock/talk.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "redis/link.h"

/* How often a talk may begin again because the lock came and went. */
#define ROUNDS_MAX 3

const struct shed_algorithm *
shed_algorithm_of(const struct shed_lock_options *options)
{
    switch ((enum shed_lock_algorithm)options->algorithm) {
    case SHED_LOCK_SETNX:
        return &shed_lock_setnx;
    case SHED_LOCK_EXPIRE:
        return &shed_lock_expire;
    case SHED_LOCK_TIMESTAMP:
        return &shed_lock_timestamp;
    case SHED_LOCK_LEASE:
        break;
    }
    return &shed_lock_lease;
}

enum shed_code shed_lock_holder_init(struct shed_lock_holder *holder,
                                     uint64_t wait_ms, struct shed_error *err)
{
    enum shed_code code =
        shed_random_token(holder->token, sizeof(holder->token), err);

    for (size_t i = 0; i < sizeof(holder->token); i++)
        (void)snprintf(holder->token_hex + 2 * i, 3, "%02x", holder->token[i]);
    holder->wait_ms = wait_ms;
    return code;
}

void shed_talk_begin(struct shed_talk *talk, enum shed_lock_op op,
                     const struct shed_lock_holder *holder)
{
    talk->op = op;
    talk->holder = *holder;
    talk->step = 0;
    talk->rounds = 0;
    talk->fence = 0;
    talk->has_waiters = false;
    talk->is_takeover = false;
    talk->look_ms = 0;
}

void shed_talk_add_key(const struct shed_talk *talk, struct shed_args *args,
                       int i)
{
    assert(i >= 0 && i < SHED_LOCK_KEYS && talk->words->key[i].at != NULL);
    shed_args_add(args, talk->words->key[i].at, talk->words->key[i].size);
}

void shed_talk_add_number(struct shed_talk *talk, unsigned slot,
                          struct shed_args *args, uint64_t number)
{
    assert(slot < sizeof(talk->digits) / sizeof(talk->digits[0]));
    (void)snprintf(talk->digits[slot], SHED_LOCK_DIGITS, "%llu",
                   (unsigned long long)number);
    shed_args_add_text(args, talk->digits[slot]);
}

void shed_talk_add_swap(struct shed_talk *talk, struct shed_args *args,
                        const char *from, const char *to, uint64_t lease_ms)
{
    talk->script = SHED_SCRIPT_LOCK_SWAP;
    shed_script_begin(args, talk->script, "1");
    shed_talk_add_key(talk, args, SHED_LOCK_KEY);
    shed_args_add_text(args, from);
    shed_args_add_text(args, to);
    shed_talk_add_number(talk, 2, args, lease_ms);
}

bool shed_talk_is_ours(const struct shed_talk *talk,
                       const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    return bytes != NULL && size == SHED_TOKEN_HEX_BYTES &&
           memcmp(bytes, talk->holder.token_hex, size) == 0;
}

bool shed_talk_end(struct shed_talk *talk, enum shed_talk_end end)
{
    talk->end = end;
    return false;
}

void shed_talk_refuse(struct shed_talk *talk)
{
    (void)shed_fail(&talk->error, SHED_EINVAL,
                    "what is in Redis at the lock's key is no lock of this "
                    "algorithm: choose another name, or remove it");
}

bool shed_talk_fail(struct shed_talk *talk, const struct shed_reply *reply)
{
    const char *text = shed_reply_error(reply);
    enum shed_code code;

    if (shed_reply_begins(reply, "WRONGTYPE")) {
        shed_talk_refuse(talk);
        return shed_talk_end(talk, SHED_TALK_WRONG);
    }
    code = text != NULL ? shed_reply_code(reply) : SHED_EREDIS;
    (void)shed_fail(&talk->error, code, "Redis: %s",
                    text != NULL ? text : "a reply of an unknown form");
    return shed_talk_end(talk, code == SHED_EDENIED ? SHED_TALK_WRONG
                                                    : SHED_TALK_FAILED);
}

bool shed_talk_again(struct shed_talk *talk)
{
    if (talk->rounds++ >= ROUNDS_MAX) {
        talk->look_ms = 1;
        return shed_talk_end(talk, SHED_TALK_NO);
    }
    talk->step = 0;
    return true;
}

static void read_clocks(struct shed_talk *talk)
{
    talk->wall_ms = shed_wall_ms();
    talk->now_ms = shed_now_ms();
}

bool shed_talk_say(struct shed_talk *talk, struct shed_session *session,
                   struct shed_args *args)
{
    *args = (struct shed_args){0};
    shed_session_identify(session, &talk->identity);
    read_clocks(talk);
    return talk->algorithm->say(talk, args);
}

bool shed_talk_hear(struct shed_talk *talk, const struct shed_reply *reply,
                    const struct shed_error *err)
{
    if (reply != NULL) {
        read_clocks(talk);
        return talk->algorithm->hear(talk, reply);
    }
    talk->error = *err;
    return shed_talk_end(talk, err->code == SHED_EDENIED ? SHED_TALK_WRONG
                                                         : SHED_TALK_FAILED);
}

void shed_talk_carry(struct shed_talk *talk, struct shed_links *links,
                     struct shed_session *session, uint64_t deadline_ms)
{
    struct shed_args args;

    while (shed_talk_say(talk, session, &args)) {
        struct shed_error err;
        struct shed_reply *reply = NULL;
        bool goes_on;
        if (shed_links_call_script(links, &args, 1, &reply, &talk->is_repeated,
                                   deadline_ms, &err) != SHED_OK)
            reply = NULL;
        goes_on = shed_talk_hear(talk, reply, &err);
        shed_reply_free(reply);
        if (!goes_on)
            break;
    }
}
