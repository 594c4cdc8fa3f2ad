/* What the soak runs on: a Redis, or a topology of several, and a MariaDB of
 * its own, the processes that use them, and the history that all share. */
#ifndef SOAK_STAGE_H
#define SOAK_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "soak/history.h"
#include "soak/report.h"
#include "soak/worker.h"
#include "support/mysql_testing.h"
#include "support/own_cluster.h"
#include "support/own_database.h"
#include "support/watched.h"

/* They are bits, so that a fault can name those on which it is made. */
enum soak_topology {
    SOAK_SINGLE = 1,
    SOAK_SENTINEL = 2, /* a primary, two replicas, three sentinels */
    SOAK_CLUSTER = 4   /* three primaries, each with a replica */
};

struct soak_stage {
    enum soak_topology topology;
    struct soak_history *history;
    /* one of these, by the topology */
    struct server single;
    struct watched watched;
    struct own_cluster cluster;
    struct own_database database;
    struct site site;
    struct soak_place place;
    pid_t workers[SOAK_WORKERS];
    uint64_t seed;
    uint64_t generation; /* of the workers that are started */
    /* While the servers are left alone the second one is used, so that the
     * order of all other faults does not depend on how long that was. */
    uint64_t random_states[2];
    bool is_calm;
};

/* Start the servers, without processes. */
void soak_stage_open(struct soak_stage *stage, enum soak_topology topology,
                     uint64_t seed);
void soak_stage_close(struct soak_stage *stage);

void soak_stage_start_worker(struct soak_stage *stage, unsigned number);

/* End all. Returns: whether each has ended well. */
bool soak_stage_end_workers(struct soak_stage *stage);

/* One of the servers, which is a primary. */
size_t soak_stage_draw_primary(struct soak_stage *stage);

/* A random number. */
uint64_t soak_stage_draw(struct soak_stage *stage, uint64_t below);

void soak_sleep_ms(uint64_t ms);

#endif
