/*
 * Connections for calls which threads wait for.
 *
 * Each thread has a link of its own for the time of a call, up to the option
 * `links`; a link connects when it is first needed. A thread that finds all of
 * them in use waits for one.
 *
 * What is called here must bear being sent twice: after a lost connection it
 * is, once.
 */
#ifndef SHED_REDIS_LINK_H
#define SHED_REDIS_LINK_H

#include <snowshed/snowshed.h>

#include "redis/gate.h"
#include "wire/conn.h"

struct shed_link;
struct shed_links;

/* By what a call went. */
struct shed_link_use {
    const struct shed_links *links;
    size_t link;
    uint64_t connection; /* of that link, counted */
};

/* gate must outlive the links. No connection is made yet.
 * Returns: SHED_OK; SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_links_create(struct shed_gate *gate,
                  const struct shed_client_options *options,
                  struct shed_links **out, struct shed_error *err);

/* No call may be under way. */
void shed_links_destroy(struct shed_links *links);

/* In a forked child: close its copies of the sockets. All else stays, because
 * another thread may have been changing it. NULL is allowed. */
void shed_links_forget(struct shed_links *links);

/* The server has fallen silent: end the calls that wait for it, and all
 * connections. Any thread. */
void shed_links_cut(struct shed_links *links);

/* Close links beyond the first few that nobody has used for a while. To be
 * called now and then. Any thread. */
void shed_links_close_idle(struct shed_links *links);

/*
 * Send count commands in one pipeline and wait for their replies, until
 * deadline_ms (shed_now_ms). Any thread.
 *
 * A script's call is begun with shed_script_begin, and its reply is the
 * script's own. A script that the server has lost goes once more, by text.
 *
 * Returns: SHED_OK and count replies in replies, to be freed with
 * shed_reply_free (an error reply is a reply); else replies holds nothing:
 * SHED_ETIMEDOUT (the deadline), SHED_EREDIS (no connection, or lost, or no
 * reply within the command timeout; at once while the server is silent, or if
 * refused by the gate: the first command says whether all are guarded),
 * SHED_EDENIED, SHED_EBUSY, SHED_ENOMEM. *use is set with the former. *sent:
 * how often they may have been sent. 0: never, so they will not be carried out;
 * more than once: they may have been carried out before they were answered.
 * Both may be NULL.
 */
SHED_MUST_CHECK enum shed_code
shed_links_call(struct shed_links *links, const struct shed_args *commands,
                size_t count, struct shed_reply **replies,
                struct shed_link_use *use, unsigned *sent, uint64_t deadline_ms,
                struct shed_error *err);

/* A reply that came by use reads as the answer to another call. The connection
 * is closed, and what is under way on it goes once more over a new one; but not
 * more often than once in a while, because the value in Redis may be at fault
 * and not the connection. Any thread. */
void shed_links_doubt(struct shed_links *links,
                      const struct shed_link_use *use);

#endif
