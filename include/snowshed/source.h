/*
 * A source of your own: a function that loads missing rows, and how many loads
 * may run at a time.
 *
 *     static void load_rate(void *user, void *thread, struct shed_bytes key,
 *                           struct shed_answer *answer)
 *     {
 *         char *rate = fetch_rate(key.data, key.size); // from malloc, or NULL
 *
 *         answer->kind = rate != NULL ? SHED_ANSWER_ROW : SHED_ANSWER_ABSENT;
 *         answer->row = shed_str(rate);
 *         answer->memory = rate; // the library frees it
 *     }
 *     ...
 *     shed_source_open(load_rate, NULL, NULL, &source, &err)
 */
#ifndef SNOWSHED_SOURCE_H
#define SNOWSHED_SOURCE_H

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

enum shed_answer_kind {
    SHED_ANSWER_FAILED,     /* callers get SHED_ESOURCE, or a stale row
                               (stale_if_error_ms) */
    SHED_ANSWER_ROW,        /* a row; it may be empty */
    SHED_ANSWER_NULL,       /* a row that exists and is NULL */
    SHED_ANSWER_ABSENT,     /* no such row */
    SHED_ANSWER_UNMODIFIED, /* the row still has its old version: its entry,
                               with its tags, is fresh again. Without an old
                               version the key fails */
    SHED_ANSWER_TOO_BIG     /* callers get SHED_ETOOBIG, as for a row above the
                               cache's value_limit_bytes */
};

/* A ttl_ms: only callers that wait get the answer; it is not kept. */
#define SHED_TTL_NONE UINT64_MAX

/* What a load says of one key. */
struct shed_answer {
    size_t size;
    uint64_t kind;         /* enum shed_answer_kind */
    struct shed_bytes row; /* of SHED_ANSWER_ROW */
    const char *reason; /* of SHED_ANSWER_FAILED or _TOO_BIG: what callers are
                           told, without secrets; or NULL */
    /* Of the row: a number that grows with each change of it. NULL: none; the
     * answer replaces any row. A load that brings a lower version than Redis
     * has has read a lagging replica, and fails. Where versions begin again
     * (the row was inserted again, the database restored), invalidate the key.
     */
    const uint64_t *version;
    uint64_t ttl_ms; /* how long it is fresh, without jitter, 10 years at most;
                        0: the cache's own */
    /* For shed_invalidate_tags; an absent row can have them, too. With one of a
     * wrong length, or more than SHED_TAGS_MAX, the key fails. */
    const struct shed_bytes *tags;
    size_t tags_count;
    void *memory; /* for free() when the answer has been copied; or NULL */
};

#define SHED_ANSWER_INIT                                                       \
    {                                                                          \
        sizeof(struct shed_answer), SHED_ANSWER_FAILED, {NULL, 0}, NULL, NULL, \
            0, NULL, 0, NULL                                                   \
    }

/*
 * Load one key: set *answer, which comes as SHED_ANSWER_INIT. What it points to
 * must be valid until the next call on this thread, or be answer->memory.
 *
 * It runs on several loader threads at a time. thread is what thread_start
 * returned for this one, or NULL. Read current data: a snapshot from before
 * this call can bring back an old row. Do not get from a cache of the same
 * source, which could wait for this thread.
 */
typedef void shed_load_one_fn(void *user, void *thread, struct shed_bytes key,
                              struct shed_answer *answer);

/* One key of a batch. */
struct shed_wanted {
    struct shed_bytes key;
    const uint64_t *old_version; /* of the row in Redis; NULL: none */
    uint64_t value_limit_bytes;  /* of its cache */
};

/* A batch of keys to load. Read only; valid until shed_load_done. */
struct shed_load {
    size_t count;                   /* 1..max_batch */
    const struct shed_wanted *keys; /* a key can occur twice: answer each */
    uint64_t is_probe; /* 1: the breaker is half-open: ask the server even in a
                          pause of your own */
};

/* Load a batch: answer every key, then call shed_load_done; from any thread,
 * even after the function has returned. Until then the load counts against
 * max_loads. Otherwise as a shed_load_one_fn. */
typedef void shed_load_fn(void *user, void *thread, struct shed_load *load);

/* Answer the i-th key. *answer is copied; the last answer to a key counts. */
SHED_API void shed_load_answer(struct shed_load *load, size_t i,
                               const struct shed_answer *answer);

/* Milliseconds left of load_timeout_ms; 0: give up. */
SHED_API uint64_t shed_load_remaining_ms(const struct shed_load *load);

/* Finish a load, exactly once. Keys without an answer fail. */
SHED_API void shed_load_done(struct shed_load *load);

struct shed_source_options {
    size_t size;
    uint64_t max_loads; /* 1..1024 (4); most loads at a time, each in a thread
                           of its own */
    uint64_t max_batch; /* 1..10000 (100); keys per load */
    uint64_t batch_wait_ms;   /* 0..1000 (2); while other loads run, a load that
                                 is not full waits this long for more keys */
    uint64_t queue_limit;     /* 1..10000000 (100000); most keys that wait for a
                                 load; beyond it callers get SHED_EBUSY at once.
                                 Refreshes wait behind the keys of callers, and
                                 make room for them */
    uint64_t load_timeout_ms; /* 1..3600000 (30000); how long a load may take */
    /* Called on each loader thread when it starts and ends; or NULL. What
     * thread_start returns is passed to thread_stop and to load. */
    void *(*thread_start)(void *user);
    void (*thread_stop)(void *user, void *thread);
    /* Called once, when the source has been closed and no cache uses it. */
    void (*on_close)(void *user);
    /* 0..1 (1); 1: the limit falls below max_loads while loads slow each other
     * down. While it is reached, five loads run alone every 10 s or more, in
     * all processes at once, to measure a query: wall clocks should agree to
     * 100 ms */
    uint64_t adaptive_loads;
    struct shed_breaker_options breaker; /* before the source */
    /* 0..10000000 (10000); most callers that wait for a load, by key, without
     * asynchronous calls. A call beyond it ends with SHED_EBUSY at once. 0: no
     * limit */
    uint64_t callers_limit;
    /* A budget of loads for all processes with one fleet_name in one Redis, for
     * a database that cannot bear max_loads of each. While it is used up, keys
     * wait in the queue. A load costs one round trip more. The slots of a dead
     * process are free after load_timeout_ms and 1 s. While Redis does not
     * answer within a tenth of command_timeout_ms, only max_loads counts. */
    uint64_t fleet_loads; /* 0..100000 (0); loads at a time, the same number in
                             each process; 0: no budget */
    const char *fleet_name; /* as the name of a cache: the key is "NAME:loads".
                               NULL: that of the source's first cache */
};

#define SHED_SOURCE_OPTIONS_INIT                                               \
    {                                                                          \
        sizeof(struct shed_source_options), 4, 100, 2, 100000, 30000, NULL,    \
            NULL, NULL, 1, SHED_BREAKER_OPTIONS_INIT, 10000, 0, NULL           \
    }

/* Open a source that calls load with one key at a time; max_batch and
 * batch_wait_ms have no effect. user must live until on_close is called, which
 * is not if this fails. With fleet_loads, all its caches must use one Redis. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_source_open(shed_load_one_fn *load, void *user,
                 const struct shed_source_options *options,
                 struct shed_source **out, struct shed_error *err);

/* Open a source that calls load with batches; otherwise as shed_source_open. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_source_open_batch(shed_load_fn *load, void *user,
                       const struct shed_source_options *options,
                       struct shed_source **out, struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
