/*
 * The run of the server that a session is connected to, as answers to INFO tell
 * it: which run it is, and since when. Pure.
 *
 * A server counts its uptime by its wall clock. If that is set forward after a
 * start, as when a machine boots, a new run says that it is old. But it began
 * after the former run was last heard.
 */
#ifndef SHED_REDIS_SERVER_RUN_H
#define SHED_REDIS_SERVER_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#define SHED_RUN_BYTES 16 /* of a run id */
#define SHED_AGE_UNKNOWN UINT64_MAX

/* What the present connection has told. */
enum shed_run_state {
    SHED_RUN_UNKNOWN, /* nothing yet */
    SHED_RUN_TOLD,
    SHED_RUN_REFUSED /* the server does not tell */
};

struct shed_server_run {
    enum shed_run_state state;
    char id[SHED_RUN_BYTES]; /* of the last run that was heard; zero: none */
    /* by our clock, whose beginning may be later: it began before first_ms, and
     * has answered at heard_ms */
    int64_t first_ms, heard_ms;
    bool is_met; /* a run has answered to INFO, if only with a refusal */
    /* A number that changes when the server turns out to be another run than
     * the last that was met: another process, which may lack what that one had
     * been told. A server that refuses to tell counts as another one after each
     * lost connection. */
    unsigned changes;
};

void shed_server_run_init(struct shed_server_run *run);

/* Take the text of INFO, which came at now_ms. Returns: false if it says too
 * little; then nothing has changed. */
bool shed_server_run_note(struct shed_server_run *run, const char *info,
                          size_t size, uint64_t now_ms);

/* The server refuses to tell. */
void shed_server_run_refuse(struct shed_server_run *run);

/* It has answered something else. */
void shed_server_run_hear(struct shed_server_run *run, uint64_t now_ms);

/* The connection is lost: the next one may lead to another run. */
void shed_server_run_lose(struct shed_server_run *run);

/* A lower bound, in ms, of how long the server has been running; 0 if it
 * refuses to tell; SHED_AGE_UNKNOWN. At most two seconds too low, except after
 * a restart: then it may count from when the former run was last heard. */
uint64_t shed_server_run_age_ms(const struct shed_server_run *run,
                                uint64_t now_ms);

/* Say in err why the age is not known. Returns: SHED_EREDIS: it has not been
 * told yet; SHED_EDENIED: the server refuses to tell; SHED_OK: it is known. */
enum shed_code shed_server_run_explain(const struct shed_server_run *run,
                                       const char *address,
                                       struct shed_error *err);

#endif
