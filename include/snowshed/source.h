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
 *
 * A source that can load many keys with one query is opened with
 * shed_source_open_batch. For MySQL there is one: snowshed/mysql.h.
 *
 * Threads, memory, fork, failure: as in snowshed.h.
 */
#ifndef SNOWSHED_SOURCE_H
#define SNOWSHED_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- answers */

enum shed_answer_kind {
    /* The load failed. Callers get a stale row within stale_if_error_ms, or
     * else SHED_ESOURCE. An error is not absence. */
    SHED_ANSWER_FAILED = 0,
    SHED_ANSWER_ROW = 1,    /* a row; it may be empty */
    SHED_ANSWER_NULL = 2,   /* a row that exists and is NULL */
    SHED_ANSWER_ABSENT = 3, /* no such row */
    /* The row still has its old version. Its entry, with its tags, is fresh
     * again, and the row is not transferred. Without an old version the key
     * fails. */
    SHED_ANSWER_UNMODIFIED = 4,
    /* The row is too long: callers get SHED_ETOOBIG, as they do for a payload
     * above the cache's value_limit_bytes. */
    SHED_ANSWER_TOO_BIG = 5
};

/* For the ttl_ms of an answer: the callers that wait get it, and it is not
 * kept. */
#define SHED_TTL_NONE UINT64_MAX

/* What a load says of one key. Fill it with SHED_ANSWER_INIT: a failure. */
struct shed_answer {
    size_t size;
    uint64_t kind;         /* enum shed_answer_kind */
    struct shed_bytes row; /* the payload of SHED_ANSWER_ROW */
    const char *reason;    /* of SHED_ANSWER_FAILED or _TOO_BIG, for people: a
                              terminated text without secrets, which reaches the
                              callers; control characters become '?'. NULL:
                              none is known */
    /* The row's version: a number that grows with each change of the row. It is
     * stored with the entry. NULL: none; an absent row has none.
     *
     * Of two versions the lower one is older: a load that brings a lower
     * version than the row in Redis has read a lagging replica, and counts as
     * failed. Where versions begin again (the row was deleted and inserted, the
     * database was restored), invalidate the key. An answer without a version
     * replaces any row. */
    const uint64_t *version;
    uint64_t ttl_ms; /* how long the answer is fresh, without jitter, 10 years
                        at most; 0: as the cache's options say */
    /* By which shed_invalidate_tags finds the entry; an absent row can have
     * tags. With a tag of a wrong length, or more than SHED_TAGS_MAX, the key
     * fails. Caches without the option tags_limit ignore tags. */
    const struct shed_bytes *tags;
    size_t tags_count;
    void *memory; /* passed to free() when the answer has been copied, for a
                     row from malloc; NULL: nothing */
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
 * It runs on loader threads of the source, on several at a time. thread is what
 * thread_start returned for this thread, or NULL. Read current data: a snapshot
 * that was opened before this call can bring back an old row. Do not call
 * shed_get with a cache of the same source: it would wait for a loader thread,
 * perhaps this one.
 */
typedef void shed_load_one_fn(void *user, void *thread, struct shed_bytes key,
                              struct shed_answer *answer);

/* -------------------------------------------------------------- batches */

/* One key of a batch. It is frozen. */
struct shed_wanted {
    struct shed_bytes key;
    const uint64_t *old_version; /* of the row in Redis that this load is to
                                    replace; NULL: there is no such row, or it
                                    has no version */
    uint64_t value_limit_bytes;  /* of its cache: a longer row fails the key
                                    with SHED_ETOOBIG */
};

/* A batch of keys to load. Read only; valid until shed_load_done. */
struct shed_load {
    size_t count;                   /* [1, max_batch] */
    const struct shed_wanted *keys; /* count of them. A key can occur twice
                                       (two caches, an invalidation in
                                       between): answer each */
    uint64_t is_probe; /* 1: the breaker is half-open, and this load helps to
                          decide whether it closes: ask the server even during a
                          pause of your own after a failed connect. Else 0 */
};

/*
 * Load a batch: answer every key, then call shed_load_done once.
 *
 * As a shed_load_one_fn, except that the answers and shed_load_done may come
 * from any thread, even after the function has returned. The load counts
 * against max_loads until it is done.
 */
typedef void shed_load_fn(void *user, void *thread, struct shed_load *load);

/* Answer the i-th key. *answer is copied; the last answer to a key counts. A
 * key without an answer fails when the load is done. */
SHED_API void shed_load_answer(struct shed_load *load, size_t i,
                               const struct shed_answer *answer);

/* Milliseconds left of load_timeout_ms. When it is 0, give up: keys without an
 * answer fail. */
SHED_API uint64_t shed_load_remaining_ms(const struct shed_load *load);

/* Finish a load, exactly once. load and its keys are invalid afterwards. */
SHED_API void shed_load_done(struct shed_load *load);

/* -------------------------------------------------------------- sources */

/* Fill it with SHED_SOURCE_OPTIONS_INIT. */
struct shed_source_options {
    size_t size;
    uint64_t max_loads;     /* [1, 1024]; most loads at a time, each in a thread
                               of its own */
    uint64_t max_batch;     /* [1, 10000]; keys per load */
    uint64_t batch_wait_ms; /* [0, 1000]; while other loads run, a load that
                               is not full waits this long for more keys */
    uint64_t queue_limit;   /* [1, 10000000]; most keys that wait for a load;
                               beyond it callers get SHED_EBUSY at once. Keys
                               that callers wait for are loaded first;
                               background refreshes fill the rest of a batch,
                               and are dropped first when the queue is full */
    uint64_t load_timeout_ms; /* [1, 3600000]; how long a load may take; its
                                 lease record in Redis lives this long */
    /* Called on each loader thread when it starts and ends; may be NULL. What
     * thread_start returns is passed to thread_stop and to load. */
    void *(*thread_start)(void *user);
    void (*thread_stop)(void *user, void *thread);
    /* Called once, when the source has been closed and no cache uses it. */
    void (*on_close)(void *user);
    uint64_t adaptive_loads; /* [0, 1]; 1: the limit falls below max_loads while
                                loads slow each other down, and recovers. To
                                measure an unloaded query, five loads run alone
                                every 10 s or more while the limit is reached,
                                in all processes at once: their wall clocks
                                should agree to about 100 ms */
    struct shed_breaker_options breaker; /* before the source */
    uint64_t callers_limit; /* [0, 10000000]; most callers that wait for a
                               load, each key of shed_get_many being one. A
                               call beyond it gets a stale row within
                               stale_if_error_ms, or else SHED_EBUSY, at once.
                               0: no limit */
    /* A budget of loads that all processes with the same fleet_name in the same
     * Redis share, for a database that cannot bear max_loads of each process.
     * While it is used up, keys wait in the queue, and batches grow. A load
     * costs one round trip more. The slot of a process that dies is free after
     * load_timeout_ms and 1 s. While Redis does not answer within a tenth of
     * command_timeout_ms, max_loads alone counts. All caches of the source must
     * use one Redis: shed_cache_open refuses another. */
    uint64_t fleet_loads;   /* [0, 100000]; loads at a time, in all processes;
                               the same number in each; 0: no budget */
    const char *fleet_name; /* copied; as the name of a cache: the key is
                               "NAME:loads". NULL: that of the first cache that
                               is opened on the source */
};

#define SHED_SOURCE_OPTIONS_INIT                                               \
    {                                                                          \
        sizeof(struct shed_source_options), 4, 100, 2, 100000, 30000, NULL,    \
            NULL, NULL, 1, SHED_BREAKER_OPTIONS_INIT, 10000, 0, NULL           \
    }

/*
 * Open a source that calls load with one key at a time; max_batch and
 * batch_wait_ms have no effect. user must live until on_close is called. Loader
 * threads start with the first key.
 *
 * Calls back: load, on loader threads, up to max_loads at a time.
 * Returns: SHED_OK and *out, to be closed with shed_source_close. On failure
 * on_close is not called.
 */
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
