/*
 * What every connection begins with, and what the answers mean. Nothing of a
 * caller's may be sent before the last of them: a command that overtakes a
 * refused AUTH or SELECT is executed as another user, or in another database.
 * Pure.
 */
#ifndef SHED_REDIS_SETUP_H
#define SHED_REDIS_SETUP_H

#include <stdbool.h>

#include "redis/wire.h"

#define SHED_SETUP_MAX 3

struct shed_setup {
    struct shed_address *address;
    struct shed_args command[SHED_SETUP_MAX];
    size_t count;       /* of commands: AUTH and SELECT, as the address says,
                           and ROLE, where it is granted */
    size_t answered;    /* of them */
    bool is_no_primary; /* what ROLE said, when it has failed */
};

/* Borrows from address. */
void shed_setup_begin(struct shed_setup *setup, struct shed_address *address);

/* Append all the commands. Returns as shed_buffer_append does. */
SHED_MUST_CHECK enum shed_code shed_setup_say(const struct shed_setup *setup,
                                              struct shed_buffer *out,
                                              struct shed_error *err);

/* Take the next reply. Returns: SHED_OK; else the connection is to be closed,
 * and *trouble says whether another try can help. */
SHED_MUST_CHECK enum shed_code shed_setup_hear(struct shed_setup *setup,
                                               const struct shed_reply *reply,
                                               enum shed_trouble *trouble,
                                               struct shed_error *err);

bool shed_setup_is_done(const struct shed_setup *setup);

/* The command whose answer is waited for; only while it is not done. */
const char *shed_setup_awaited(const struct shed_setup *setup);

#endif
