/* How long participants of a cell of the lock torture did not run although the
 * cell had not stopped them: this process, contenders, servers. */
#ifndef TORTURE_PULSE_H
#define TORTURE_PULSE_H

#include "fault/torture_contender.h"
#include "support/pulse.h"
#include "support/server.h"

struct torture_watch {
    const struct server *server;
    struct torture_pulse *owner;
    pthread_t thread;
};

struct torture_pulse {
    struct pulse own; /* and of the servers */
    struct torture_watch watches[TORTURE_SERVERS_MAX];
    size_t count;
    bool is_stopped[CONTENDERS]; /* by the cell */
};

/* To be called after the contenders have been forked, because it starts
 * threads. */
void torture_pulse_start(struct torture_pulse *p, const struct server *servers,
                         size_t count);

/* To be called when no server is frozen any longer. */
void torture_pulse_stop(struct torture_pulse *p);

uint64_t torture_pulse_stall_ms(struct torture_pulse *p,
                                struct torture_shared *shared);

#endif
