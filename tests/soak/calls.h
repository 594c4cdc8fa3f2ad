/*
 * What the threads of a process of the soak share: its caches, calls that are
 * counted, and reads that are judged.
 */
#ifndef SOAK_CALLS_H
#define SOAK_CALLS_H

#include "mysql/compat.h"
#include "soak/history.h"
#include "soak/worker.h"

enum { SOAK_TEXT_BYTES = 12, SOAK_PAUSE_US = 300 };

struct soak_worker {
    struct soak_history *history;
    const struct soak_place *place;
    unsigned number;
    uint64_t seed;
    bool is_keeper; /* see soak_floor */
    struct shed_client *client;
    struct shed_source *source;
    struct shed_cache *caches[SOAK_CACHES];
    struct shed_lock *lock;
    uint64_t begun_ms;
    /* The newest version of each key that this process has put or invalidated,
     * alone or with a tag, even if that is only kept; or that a tag's
     * invalidation had covered when it was started. */
    atomic_uint own[SOAK_KEYS];
    /* Until when its writer leaves a key alone. */
    uint64_t alone_until_ms[SOAK_SHORT_KEYS];
};

struct soak_thread {
    struct soak_worker *worker;
    uint64_t random;
};

struct soak_try {
    struct soak_call counted;
    struct shed_error err; /* for the call to set */
};

uint64_t soak_draw(struct soak_thread *thread, uint64_t below);

bool soak_is_over(const struct soak_worker *worker);

/* A key, and its tag, as the cache has them. */
struct shed_bytes soak_name(unsigned key, char text[SOAK_TEXT_BYTES]);
struct shed_bytes soak_tag(unsigned tag, char text[SOAK_TEXT_BYTES]);

/* A call is about to be made. */
struct soak_try soak_begin_call(const struct soak_worker *worker,
                                enum soak_work work);

/* It has ended. Returns: whether it has succeeded. */
bool soak_end_call(const struct soak_worker *worker,
                   const struct soak_try *call, enum shed_code code);

/* Read a key, and judge what comes. */
void soak_read(struct soak_thread *thread, unsigned key);

/* Repeat a statement, over connections of the thread's own, until it succeeds.
 * Returns: false: the soak is over. */
bool soak_query(const struct soak_worker *worker, MYSQL **mysql,
                const char *sql);

/* The threads of a process, besides those in worker.c: one that writes, and one
 * that watches the loads. */
void *soak_write_on(void *thread);
void *soak_watch_on(void *thread);

#endif
