/*
 * The commands with which every connection begins, and what the answers mean.
 * No caller's command may be sent before the last answer: if it overtook a
 * refused AUTH or SELECT it would be executed as another user, or in another
 * database. Pure.
 */
#ifndef SHED_WIRE_SETUP_H
#define SHED_WIRE_SETUP_H

#include <stdbool.h>

#include "wire/wire.h"

#define SHED_SETUP_MAX 4

struct shed_setup {
    struct shed_address *address;
    const char *command[SHED_SETUP_MAX];
    size_t count;     /* of these: AUTH and SELECT if the address needs
                         them; unless it is a guide, ROLE, if that was not
                         refused, and TIME */
    size_t answered;  /* how many of them have been answered */
    uint64_t said_ms; /* when they were sent */
    /* after a failure */
    enum shed_trouble trouble; /* whether another try can help */
    bool is_no_primary;        /* ROLE named no primary */
};

/* Begin the set-up, and append all its commands. Borrows address. Times are
 * those of shed_now_ms. Returns: as shed_buffer_append. */
SHED_MUST_CHECK enum shed_code shed_setup_begin(struct shed_setup *setup,
                                                struct shed_address *address,
                                                uint64_t now_ms,
                                                struct shed_buffer *out,
                                                struct shed_error *err);

/* Take the next reply. Returns: SHED_OK; otherwise close the connection. */
SHED_MUST_CHECK enum shed_code shed_setup_hear(struct shed_setup *setup,
                                               const struct shed_reply *reply,
                                               uint64_t now_ms,
                                               struct shed_error *err);

bool shed_setup_is_done(const struct shed_setup *setup);

/* The command whose answer comes next; only while the set-up is not done. */
const char *shed_setup_awaited(const struct shed_setup *setup);

#endif
