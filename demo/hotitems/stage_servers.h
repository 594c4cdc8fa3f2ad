/*
 * The two servers, which buttons may stop or kill: the processes that the
 * options name, and those that this program starts in their places. A server
 * that has ended is started again by itself after a while. What was started
 * here ends with this program.
 */
#ifndef HOTITEMS_STAGE_SERVERS_H
#define HOTITEMS_STAGE_SERVERS_H

#include "stage_server.h"

struct stage;

/* Static: "Redis", "the database". */
const char *servers_name(enum server_id id);

/* Why a button may not end this server; NULL: it may. */
const char *servers_refusal(const struct server *server);

void servers_init(struct stage *stage);

/* Main thread: do what is wanted or due, notice what has ended or answers. */
void servers_tick(struct stage *stage);

/* Main thread: let a stopped server continue; end what was started here. */
void servers_continue(struct stage *stage);
void servers_end(struct stage *stage);

/* The process that is the server now; 0: none. Under mu. */
pid_t servers_pid_locked(const struct server *server);

#endif
