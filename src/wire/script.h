/* The Lua scripts, embedded by the build, and how they are called. Each call
 * has a number, which comes back with its reply, so that the reply to another
 * call is not taken for its own, whatever is between us and the server. */
#ifndef SHED_WIRE_SCRIPT_H
#define SHED_WIRE_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/reply.h"
#include "wire/wire.h"

/* One for each .lua file that is a script. The build generates the texts in
 * this order. */
enum shed_script {
    SHED_SCRIPT_ACQUIRE,
    SHED_SCRIPT_PUBLISH,
    SHED_SCRIPT_FAIL,
    SHED_SCRIPT_RENEW,
    SHED_SCRIPT_INVALIDATE,
    SHED_SCRIPT_EXPIRE,
    SHED_SCRIPT_PUT,
    SHED_SCRIPT_SLOTS,
    SHED_SCRIPT_INVALIDATE_TAG,
    SHED_SCRIPT_LOCK_ACQUIRE,
    SHED_SCRIPT_LOCK_RELEASE,
    SHED_SCRIPT_LOCK_EXTEND,
    SHED_SCRIPT_LOCK_ADVANCE,
    SHED_SCRIPT_LOCK_SWAP,
    SHED_SCRIPT_PROBE,
    SHED_SCRIPTS /* their number */
};

struct shed_script_text {
    const char *name;
    const char *text;
    size_t size;
    const char *sha1; /* 40 hexadecimal digits */
};

extern const struct shed_script_text shed_script_texts[SHED_SCRIPTS];

/* Begin a call by digest (EVALSHA) with this number of keys ("1", "2"). The
 * keys and then the arguments follow with shed_args_add. Pipes and links add
 * the call's number behind them. */
void shed_script_begin(struct shed_args *args, enum shed_script script,
                       const char *keys);

/* Whether reply answers the call with this number. An error carries no number,
 * and is accepted as an answer to any call. */
bool shed_script_is_reply(const struct shed_reply *reply, uint64_t number);

/* Turn a call by digest into one by text, for a server that does not know the
 * script. */
void shed_script_by_text(struct shed_args *args);

/* A copy of a call, to be repeated by text if the server does not know the
 * script. Ownership: one block, for free(). Returns: NULL when out of
 * memory. */
struct shed_args *shed_script_keep(const struct shed_args *args);

#endif
