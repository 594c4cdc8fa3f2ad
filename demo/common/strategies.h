/* The three strategies that the load test compares. */
#ifndef DEMO_STRATEGIES_H
#define DEMO_STRATEGIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

/* Most rows of one call, and the longest of them. */
#define PAGE_MAX 1000
#define ROW_BYTES 200

struct row {
    bool is_there;
    size_t size;
    char text[ROW_BYTES];
};

struct settings {
    const char *redis_uri;
    struct record *record;
    uint64_t ttl_ms;
    uint64_t negative_ttl_ms;
    uint64_t lease_ms;
    uint64_t max_loads;
};

/* One strategy, as one backend process or one of its threads uses it. */
struct strategy {
    const char *name;
    /* Key of an item in Redis, and whether what is there is a row. */
    const char *key_format;
    size_t (*row_offset)(const char *bytes, size_t size); /* 0: none */
    /* A process's part; NULL with why on failure. Without open it is the
     * settings; what has no close is left as it is. */
    void *(*open)(const struct settings *settings, char *why, size_t size);
    void (*close)(void *process);
    /* A thread's part. */
    void *(*enter)(void *process, char *why, size_t size);
    void (*leave)(void *thread);
    /* Get items; *did_load tells whether this thread itself queried. Returns
     * false on failure, with why. */
    bool (*get)(void *thread, const uint64_t *ids, size_t count, bool *did_load,
                char *why, size_t size);
};

extern const struct strategy strategy_none, strategy_setnx, strategy_snowshed;

#endif
