/* A process of the soak: threads that read, one that writes keys of its own and
 * invalidates most of them, alone or with others, and one that takes a lock. */
#ifndef SOAK_WORKER_H
#define SOAK_WORKER_H

#include "soak/history.h"
#include "support/server.h"

/* What is different about each process, in a word: see soak_work. */
extern const char *const soak_policies[SOAK_WORKERS];

struct soak_place {
    const char *redis_uri, *mysql_uri;
    struct server *server;    /* of Redis, those with data */
    size_t servers, replicas; /* replicas of a primary */
};

/* DEL of an entry, as another program would, which knows nothing of snowshed.
 * Returns: whether it has been done, and all replicas have it. */
bool soak_delete(const struct soak_place *place, unsigned key);

/* Work until the history is over, or this process is killed. number, below
 * SOAK_WORKERS, says which keys it writes. */
_Noreturn void soak_work(struct soak_history *history,
                         const struct soak_place *place, unsigned number,
                         uint64_t seed);

#endif
