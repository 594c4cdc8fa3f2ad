/*
 * What sentinels announce: that there is a new primary. An announcement is only
 * a reason to ask all of them (wire/sentinel.h), so one that lies moves nobody.
 * And it may be missed, so they are asked every few seconds without one, too.
 *
 * Reactor thread only, except create.
 */
#ifndef SHED_REDIS_ANNOUNCEMENTS_H
#define SHED_REDIS_ANNOUNCEMENTS_H

#include <snowshed/snowshed.h>

#include "redis/reactor.h"

struct shed_address;
struct shed_announcements;
struct shed_pipe;

/* A connection to each sentinel of an address. When one of them may have
 * another answer than before, pipe, the connection to the primary, follows it.
 * Both are borrowed. Returns: SHED_OK; SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code shed_announcements_create(
    struct shed_reactor *reactor, const struct shed_address *address,
    const struct shed_client_options *options, struct shed_pipe *pipe,
    struct shed_announcements **out, struct shed_error *err);

/* Connect, and stay connected. NULL is allowed, here and below. */
void shed_announcements_open(struct shed_announcements *all);

/* Every few seconds: replace connections that have died silently. */
void shed_announcements_check(struct shed_announcements *all);

/* Close them; the loop frees them. */
void shed_announcements_close(struct shed_announcements *all);

/* In a forked child: close its copies of the sockets. */
void shed_announcements_forget(struct shed_announcements *all);

#endif
