/* What the soak plays on: a Redis and a MariaDB of its own, the processes that
 * use them, and the history that all share. */
#ifndef SOAK_STAGE_H
#define SOAK_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "soak/history.h"
#include "soak/report.h"
#include "soak/worker.h"
#include "support/mysql_testing.h"
#include "support/own_mariadb.h"
#include "support/server.h"

struct soak_stage {
    struct soak_history *history;
    struct server redis;
    struct own_mariadb database;
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
void soak_stage_open(struct soak_stage *stage, uint64_t seed);
void soak_stage_close(struct soak_stage *stage);

void soak_stage_start_worker(struct soak_stage *stage, unsigned number);

/* End all. Returns: whether each has ended well. */
bool soak_stage_end_workers(struct soak_stage *stage);

/* A random number. */
uint64_t soak_stage_draw(struct soak_stage *stage, uint64_t below);

void soak_sleep_ms(uint64_t ms);

#endif
