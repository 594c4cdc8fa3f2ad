/* The strategies that the load test compares. */
#ifndef DEMO_STRATEGIES_H
#define DEMO_STRATEGIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

/* The most rows of one call, and the longest row. */
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
    /* of snowshed alone */
    uint64_t timeout_ms;         /* of a call */
    uint64_t command_timeout_ms; /* of Redis */
    uint64_t stale_ms; /* snowshed-refresh: how long a row is given out after
                          its ttl */
};

/* What a call came to. */
struct got {
    bool did_load;  /* this thread itself has queried */
    bool did_wait;  /* for a load, its own or another's */
    uint64_t price; /* of the one item that was asked for; 0: not known */
};

/* The price in a row: its second field. */
uint64_t row_price(const char *text, size_t size);

/* One strategy, as used by a backend process and its threads. */
struct strategy {
    const char *name;
    /* What is around the id in an item's key in Redis, and where in its value
     * the row is. */
    const char *key_begin, *key_end;
    size_t (*row_offset)(const char *bytes, size_t size); /* 0: none */
    /* The process's part; NULL on failure, with the reason in why. Without open
     * the settings are used; without close nothing is closed. */
    void *(*open)(const struct strategy *strategy,
                  const struct settings *settings, char *why, size_t size);
    void (*close)(void *process);
    /* The thread's part. */
    void *(*enter)(void *process, char *why, size_t size);
    void (*leave)(void *thread);
    /* Get items; *got begins as zero. Returns false on failure, with why. */
    bool (*get)(void *thread, const uint64_t *ids, size_t count,
                struct got *got, char *why, size_t size);
    /* After a change of the row: see to it that what was cached before is not
     * given out any more. Returns: whether Redis has been told. */
    bool (*invalidate)(void *thread, uint64_t id, char *why, size_t size);
    /* Whether by now Redis has been told of all that was invalidated in this
     * process. NULL: nobody tells it what it has missed. */
    bool (*has_told_all)(void *thread);
};

extern const struct strategy strategy_none, strategy_setnx, strategy_snowshed,
    strategy_refresh;

#endif
