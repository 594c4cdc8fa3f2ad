/*
 * snowshed: a read-through cache in Redis that protects a database.
 *
 *     struct shed_client *client;
 *     struct shed_source *source;
 *     struct shed_cache *items;
 *     struct shed_value *value;
 *     struct shed_error err;
 *
 *     if (shed_client_open("redis://localhost", NULL, &client, &err) ||
 *         shed_source_open(load_item, NULL, NULL, &source, &err) ||
 *         shed_cache_open(client, "item", source, NULL, &items, &err))
 *         die(err.reason);
 *
 *     if (shed_get(items, shed_str("42"), NULL, &value, &err))
 *         return fail(err.code, err.reason);
 *     if (value->kind == SHED_KIND_ROW)
 *         use(value->data, value->size);
 *     shed_value_unref(value);
 *
 *     ... UPDATE item ..., COMMIT ...
 *     if (shed_invalidate(items, shed_str("42"), SHED_TIMEOUT_DEFAULT, &err))
 *         warn(err.reason); // it will be delivered; see shed_invalidate
 *
 * When a row is missing or has expired, one caller among all processes and
 * hosts loads it from the source; the others wait for that load. load_item is a
 * function of yours (source.h); mysql.h has a source for MySQL. Locks: lock.h;
 * calls that do not block: async.h; counters: stats.h; events: event.h; C++:
 * snowshed.hpp. The following rules hold for all headers.
 *
 * Threads: any thread may call any function until the object is closed. After
 * fork(), the child opens a client of its own; a call on the parent's returns
 * SHED_EFORKED.
 *
 * Callbacks (on_event, on_log, on_lost, the done of an asynchronous call) run
 * on the client's thread, where a function that blocks returns SHED_EINVAL;
 * they may call the others. A call needs 16 kB of stack, over TLS 24; callbacks
 * and loads have 128 kB. While one runs, calls of other threads may end late,
 * by five seconds at most; after longjmp, pthread_exit, pthread_cancel or a C++
 * exception closing may hang.
 *
 * Memory: arguments are copied before the call returns. The library hands out
 * only struct shed_value: give each back with shed_value_unref.
 *
 * Closing: close each handle once; NULL is allowed. In a callback or a load it
 * returns at once. In a forked child it leaves the parent's connections alone,
 * and may not free all memory.
 *
 * Failure: functions return SHED_OK, which is 0, or why they failed; the
 * optional err says more. A call that fails sets its *out to NULL. Any call can
 * return SHED_EINVAL, SHED_ENOMEM and SHED_EFORKED; its comment lists the other
 * codes. No function raises a signal, aborts, or changes what a signal does
 * (but see mysql.h).
 *
 * Options: fill a struct with its initialiser, then change fields; NULL stands
 * for the defaults. "1..64 (16)" is a field's range and default.
 *
 * Versions: a program compiled with the headers of 0.3 runs with every later
 * libsnowshed.so.0.3. A struct's size tells what the program knows; SHED_EINVAL
 * if it is more than the library does.
 */
#ifndef SNOWSHED_SNOWSHED_H
#define SNOWSHED_SNOWSHED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#ifndef SHED_API
#define SHED_API __attribute__((visibility("default")))
#endif
#define SHED_MUST_CHECK __attribute__((warn_unused_result))
#define SHED_INLINE static inline __attribute__((unused))
#else
#ifndef SHED_API
#define SHED_API
#endif
#define SHED_MUST_CHECK
#define SHED_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SHED_VERSION_MAJOR 0
#define SHED_VERSION_MINOR 3
#define SHED_VERSION_PATCH 0

/* Returns: "0.3.0", say, of the linked library. */
SHED_API const char *shed_version(void);

/* A key, a name or a payload: bytes of any value, which it borrows. */
struct shed_bytes {
    const void *data;
    size_t size;
};

/* It hides the struct's constructor in C++. */
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
SHED_INLINE struct shed_bytes shed_bytes(const void *data, size_t size)
{
    struct shed_bytes bytes = {data, size};

    return bytes;
}
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

SHED_INLINE struct shed_bytes shed_str(const char *text)
{
    return shed_bytes(text, text != NULL ? strlen(text) : 0);
}

/* Write bytes, such as a key, as one line of ASCII: a backslash is doubled,
 * what is not printable becomes \xNN. buffer
 * may be NULL with capacity 0.
 * Returns: the length of the whole text; not below capacity: it was cut. */
SHED_API size_t shed_escape(struct shed_bytes bytes, char *buffer,
                            size_t capacity);

/* ------------------------------------------------------------- failures */

/* What happened, and what comes next. */
enum shed_code {
    SHED_OK = 0,
    SHED_EINVAL,    /* the call is wrong: fix the program */
    SHED_ENOMEM,    /* out of memory, and nothing has changed: try later */
    SHED_ETIMEDOUT, /* the deadline passed: try again or give up */
    SHED_EBUSY,     /* a limit is reached, or there is no thread, descriptor or
                       random number: reject this request */
    SHED_EREDIS,    /* Redis failed or cannot be reached: try later */
    SHED_ESOURCE,   /* the source failed to load: try later */
    SHED_ETOOBIG,   /* the value exceeds value_limit_bytes: use the source */
    SHED_EDENIED,   /* Redis refuses us (password, database, ACL): tell the
                       operator */
    SHED_ECLOSED,   /* the client or the lock is being closed */
    SHED_EFORKED,   /* the client is another process's: open your own */
    SHED_ELOST,     /* the lock is no longer yours: roll back, acquire again */
    SHED_EMISS      /* not cached, and only_cached forbids to load it */
};

#define SHED_REASON_BYTES 240

/* Why a call failed; untouched on success. */
struct shed_error {
    enum shed_code code;
    char reason[SHED_REASON_BYTES]; /* one line, outermost cause first; never a
                                       password or a payload */
};

/* Returns: "SHED_EBUSY", say. */
SHED_API const char *shed_code_name(enum shed_code code);

/* --------------------------------------------------------------- client */

struct shed_client;

/* How waiters learn that a key has changed. */
enum shed_wait {
    SHED_WAIT_AUTO, /* by push where Redis grants it, else as POLL */
    SHED_WAIT_POLL  /* by a timer with jitter */
};

enum shed_log_level {
    SHED_LOG_INFO,    /* connected, say */
    SHED_LOG_WARNING, /* a load failed, say */
    SHED_LOG_ERROR    /* somebody must act: Redis refuses the password */
};

/* A ready-made on_log: writes "snowshed: warning: TEXT" to standard error. */
SHED_API void shed_log_stderr(void *user, enum shed_log_level level,
                              const char *text);

struct shed_event;

/*
 * A circuit breaker, before Redis or before a source. It opens when too many
 * calls (or loads) in its window have failed: then none passes. After open_ms
 * it is half-open: three calls (or keys) at a time may pass, and three
 * successes in a row close it.
 *
 * Before Redis: while it is open, gets do what redis_down says, and writes and
 * acquires of locks fail at once; what ends earlier work (a release, the end of
 * a load) passes. Failures are connections that are lost or cannot be made, a
 * reply that takes command_timeout_ms or slow_ms, and LOADING, BUSY and the
 * like, but not OOM or READONLY.
 *
 * Before a source: while it is open, a get that needs a load fails at once with
 * SHED_ESOURCE, unless another process is loading the key. A load fails if all
 * its keys do, or if it takes longer than load_timeout_ms or slow_ms.
 */
struct shed_breaker_options {
    uint64_t failure_pct; /* 0..100 (50); of the calls; 0: it never opens */
    uint64_t min_calls;   /* 1..1000000 (20); in the window, before it opens */
    uint64_t window_ms;   /* 100..600000 (10000); it slides */
    uint64_t open_ms;     /* 1..3600000 (1000); less up to half of it at random;
                             doubled each time that it opens again, up to ten
                             times as long */
    uint64_t slow_ms;     /* 0..600000 (0); 0: no limit */
};

#define SHED_BREAKER_OPTIONS_INIT                                              \
    {                                                                          \
        50, 20, 10000, 1000, 0                                                 \
    }

struct shed_client_options {
    size_t size;                 /* set by the initialiser */
    uint64_t connect_timeout_ms; /* 1..600000 (1000); set-up included */
    uint64_t command_timeout_ms; /* 1..600000 (1000); a connection that owes a
                                    reply for this long is closed. If none gets
                                    an answer, Redis counts as down until it
                                    answers */
    uint64_t links;              /* 1..64 (16); most connections of calling
                                    threads */
    uint64_t wait;               /* enum shed_wait */
    /* Called with a line of text for an operator, see event.h. NULL: nobody
     * hears that Redis is down */
    void (*on_log)(void *user, enum shed_log_level level, const char *text);
    void *log_user;
    /* shed_event_fn (event.h), or NULL */
    void (*on_event)(void *user, const struct shed_event *event);
    void *event_user;
    struct shed_breaker_options breaker; /* before Redis */
    /* For TLS; PEM files, read once. */
    const char *tls_ca;   /* file or directory of trusted authorities; NULL: the
                             system's */
    const char *tls_cert; /* our certificate and its chain; needs tls_key */
    const char *tls_key;  /* its private key, not encrypted */
    /* For near caches that read much: Redis announces all changes of keys that
     * begin with this (BCAST), and need not track what is read. Or NULL */
    const char *tracking_prefix;
};

#define SHED_CLIENT_OPTIONS_INIT                                               \
    {                                                                          \
        sizeof(struct shed_client_options), 1000, 1000, 16, SHED_WAIT_AUTO,    \
            NULL, NULL, NULL, NULL, SHED_BREAKER_OPTIONS_INIT, NULL, NULL,     \
            NULL, NULL                                                         \
    }

/*
 * Open a client. uri is one of these, special characters percent-encoded:
 *
 *     redis://[user[:password]@]host[:port][/db]
 *     unix:[//[user[:password]@]]/path[?db=n]
 *     redis+sentinel://[user[:password]@]host[:port]{,host[:port]}/name[?db=n]
 *         the primary that most of these sentinels call name; with
 *         &sentinel_user=... and &sentinel_password=... for them
 *     redis+cluster://[user[:password]@]host[:port]{,host[:port]}
 *         some nodes of a Redis Cluster
 *
 * valkey is redis. rediss (rediss+cluster and so on) and valkeys use TLS 1.2 or
 * 1.3: a server's certificate must be for its host, a name or an address.
 *
 * Redis need not be up, nor its name resolve: the client connects when needed,
 * and again after a failure, with pauses of 20 ms to 1 s. An address that leads
 * to a replica is looked up again.
 *
 * Blocks: for the lookup of the host name, not for Redis.
 * Returns: also SHED_EBUSY.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_client_open(const char *uri, const struct shed_client_options *options,
                 struct shed_client **out, struct shed_error *err);

/* Close a client; its caches and locks keep it alive. */
SHED_API void shed_client_close(struct shed_client *client);

enum shed_breaker_state {
    SHED_BREAKER_CLOSED,
    SHED_BREAKER_HALF_OPEN,
    SHED_BREAKER_OPEN
};

struct shed_client_status {
    uint64_t is_up;           /* 1: connected to a primary */
    struct shed_error last;   /* why it last was not; SHED_OK: none is known */
    uint64_t breaker;         /* enum shed_breaker_state */
    uint64_t breaker_opened;  /* how often */
    uint64_t breaker_refused; /* calls */
    uint64_t since_ms;        /* since is_up changed, or the opening */
    uint64_t breaker_left_ms; /* until it is half-open */
    uint64_t events_left_out; /* see SHED_EVENT_SUPPRESSED */
};

/* Copy the state of the connection into *out; size is sizeof *out. Without
 * calls a Redis that hangs is noticed within 3 s and command_timeout_ms. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_client_status_read(struct shed_client *client,
                        struct shed_client_status *out, size_t size,
                        struct shed_error *err);

/* Where missing rows come from: source.h, mysql.h. */
struct shed_source;

/* Close a source; its caches keep it alive, and closing the last of them waits
 * for its loads. */
SHED_API void shed_source_close(struct shed_source *source);

/* ---------------------------------------------------------------- value */

enum shed_kind {
    SHED_KIND_ROW,   /* data and size are the row's */
    SHED_KIND_NULL,  /* the row exists and is NULL */
    SHED_KIND_ABSENT /* there is no such row */
};

/* Returns: "absent", say. */
SHED_API const char *shed_kind_name(enum shed_kind kind);

/* Where a value is from, "no such row" included. */
enum shed_origin {
    SHED_ORIGIN_REDIS,       /* read from Redis at once */
    SHED_ORIGIN_LOAD,        /* loaded by this process during the call, and
                                stored in Redis or found unmodified */
    SHED_ORIGIN_UNPUBLISHED, /* loaded, not stored: the key was invalidated
                                meanwhile, or Redis failed */
    SHED_ORIGIN_STALE,       /* past its ttl, as the options allow; or a local
                                row, while Redis does not answer */
    SHED_ORIGIN_WAITED       /* read from Redis after a load by any process */
};

/* Returns: "stale", say. */
SHED_API const char *shed_origin_name(enum shed_origin origin);

/* An answer; it never changes. */
struct shed_value {
    enum shed_kind kind;
    enum shed_origin origin;
    const void *data; /* the payload; NULL if size is 0 */
    size_t size;
    uint64_t age_ms;   /* since it was stored, by the server's clock; 0 with
                          SHED_ORIGIN_UNPUBLISHED */
    uint64_t fresh_ms; /* how long it stays fresh, for HTTP's max-age; 0: stale,
                          unpublished, or the user may not send TIME */
};

/* Take another reference. Returns: value. */
SHED_API struct shed_value *shed_value_ref(struct shed_value *value);

/* Give a reference back; the last one frees the value, which may outlive its
 * cache and its client. NULL is allowed. */
SHED_API void shed_value_unref(struct shed_value *value);

/* ---------------------------------------------------------------- cache */

struct shed_cache;

/* What a get does while Redis cannot be reached, hangs or refuses writes, or
 * the client's breaker is open. (If Redis refuses the user: SHED_EDENIED.) */
enum shed_redis_down {
    SHED_REDIS_DOWN_SOURCE, /* load from the source, within its limits */
    SHED_REDIS_DOWN_FAIL,   /* return SHED_EREDIS */
    /* Give out local rows (which this process was given or has loaded), as
     * SHED_ORIGIN_STALE, within their ttl and windows; without one, as SOURCE:
     * once per key, ttl and process. Other processes' changes can be missed */
    SHED_REDIS_DOWN_STALE
};

struct shed_cache_options {
    size_t size;
    uint64_t ttl_ms;         /* 1..10 years (300000); how long a row is fresh */
    uint64_t ttl_jitter_pct; /* 0..90 (10); each ttl is shortened at random by
                                up to this much, so that rows do not expire
                                together */
    uint64_t negative_ttl_ms; /* 0..10 years (10000); of "no such row"; 0: not
                                 kept */
    uint64_t failure_ttl_ms;  /* 0..60000 (500); how long a failed load answers
                                 later calls, of all processes */
    uint64_t lease_ms; /* 10..600000 (10000); a loader that is silent this long
                          is replaced; a dead one after 100 ms where pushes
                          work */
    uint64_t timeout_ms; /* 1..3600000 (5000); default deadline of a call */
    uint64_t value_limit_bytes; /* 1..256 MiB (1 MiB); longest payload */
    uint64_t redis_down;        /* enum shed_redis_down */
    /*
     * The life of a row, by its age. Both windows begin at the end of the ttl:
     *
     *   0                                   a get takes it
     *   refresh_after_pct of its ttl        the same; one process loads it
     *                                       again in the background
     *   ttl_ms                              the same, as SHED_ORIGIN_STALE
     *   ttl_ms + stale_while_revalidate_ms  a get waits for a load; if that
     *                                       fails, or takes soft_timeout_ms, it
     *                                       takes the row, as SHED_ORIGIN_STALE
     *   the end of the longer window        the row is gone
     *
     * A window of 0 does not exist.
     */
    uint64_t refresh_after_pct; /* 0..100 (50); for slow loads up to a quarter
                                   earlier, at random (XFetch: Vattani et al.,
                                   VLDB 2015); 0: never */
    uint64_t stale_while_revalidate_ms; /* 0..10 years (0) */
    uint64_t stale_if_error_ms; /* 0..10 years (0); also for calls that have
                                   found the row and would end with SHED_EBUSY,
                                   SHED_ETIMEDOUT, SHED_EREDIS or SHED_ENOMEM */
    uint64_t undelivered_limit; /* 0..100000 (10000); most undelivered keys, see
                                   shed_invalidate */
    uint64_t failover_memory_ms; /* 0..3600000 (60000); a server that takes the
                                    place of another may lack the last writes:
                                    this process's of this time (the newest
                                    undelivered_limit keys) are repeated there
                                    as invalidations. 0: none */
    uint64_t soft_timeout_ms; /* 0..3600000 (0); how long a call with a row to
                                 fall back on waits for a load, which goes on in
                                 the background. Needs stale_if_error_ms above
                                 stale_while_revalidate_ms. 0: timeout_ms */
    uint64_t tags_limit;  /* 0..100000 (10000); most invalidated tags that are
                             remembered, see shed_invalidate_tags; the same in
                             all processes. 0: the cache has no tags */
    uint64_t local_bytes; /* 65536..1 TiB (64 MiB); most memory for local rows,
                             of which one takes at most a sixteenth */
    /* The near cache: a get takes a row from this process's memory, until Redis
     * announces that its key has changed. So it can miss changes by others of
     * the last milliseconds, or, if announcements are lost, of near_ms. Needs
     * SHED_WAIT_AUTO, and the rights to pushes; else it is empty. */
    uint64_t near_bytes; /* 1 MiB..1 TiB (0); most memory for it, beside
                            local_bytes. 0: there is none */
    uint64_t near_ms; /* 1..3600000 (10000); a row is taken for this long after
                         Redis was last asked for it */
    uint64_t async_limit; /* 1..10000000 (100000); most keys of asynchronous
                             calls under way (async.h) */
};

/* Rows are refreshed before they expire, and none is given out past its ttl. */
#define SHED_CACHE_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_cache_options), 300000, 10, 10000, 500, 10000,      \
            5000, 1048576, SHED_REDIS_DOWN_SOURCE, 50, 0, 0, 10000, 60000, 0,  \
            10000, 67108864, 0, 10000, 100000                                  \
    }

/* An old row rather than a wait: for a minute after its ttl it is given out
 * while it is loaded again; for an hour if that fails or takes over 200 ms; and
 * local rows while Redis is down. */
#define SHED_CACHE_OPTIONS_SERVE_STALE                                         \
    {                                                                          \
        sizeof(struct shed_cache_options), 300000, 10, 10000, 500, 10000,      \
            5000, 1048576, SHED_REDIS_DOWN_STALE, 50, 60000, 3600000, 10000,   \
            60000, 200, 10000, 67108864, 0, 10000, 100000                      \
    }

#define SHED_NAME_MAX_BYTES 64 /* of a cache */
#define SHED_KEY_MAX_BYTES 1024

/* For timeout_ms: the cache's own. */
#define SHED_TIMEOUT_DEFAULT UINT64_C(0)

/* Open a cache. In Redis the entry of KEY is at NAME:{KEY}. name is 1 to
 * SHED_NAME_MAX_BYTES of printable ASCII without space, '{' and '}', and not
 * "lock"; a client can have it once. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_cache_open(struct shed_client *client, const char *name,
                struct shed_source *source,
                const struct shed_cache_options *options,
                struct shed_cache **out, struct shed_error *err);

/*
 * Check, when the program starts, that Redis can be reached, and grants the
 * rights that the cache and its source need; nothing of the database. From
 * Redis 7 on, err lists what the user lacks as ACL SETUSER takes it, such as
 * "+get ~item:*"; grant it and ask again. Older servers do not tell.
 *
 * Blocks: timeout_ms at most.
 * Returns: also SHED_EDENIED, SHED_EREDIS, SHED_ETIMEDOUT, SHED_EBUSY.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_cache_probe(struct shed_cache *cache, uint64_t timeout_ms,
                 struct shed_error *err);

/*
 * Close a cache, on which no call that blocks may be under way. Asynchronous
 * ones end with SHED_ECLOSED. Undelivered writes are sent once more, and
 * dropped if that fails.
 *
 * Blocks: without limit until its loads are done, then timeout_ms at most, and
 * command_timeout_ms where Redis owes the answer to an asynchronous call.
 */
SHED_API void shed_cache_close(struct shed_cache *cache);

/* Whether a call may be given a row past its ttl. */
enum shed_stale {
    SHED_STALE_DEFAULT, /* as the cache's options say */
    SHED_STALE_NEVER,   /* not even if the load fails; nor a local row */
    SHED_STALE_ALLOWED  /* any row that Redis still has, at once; it is loaded
                           again in the background */
};

struct shed_get_options {
    size_t size;
    uint64_t timeout_ms;      /* 1..3600000; SHED_TIMEOUT_DEFAULT */
    uint64_t soft_timeout_ms; /* 0..3600000; 0: the cache's own */
    uint64_t max_age_ms;  /* 0..10 years; no answer, "no such row" included, is
                             older or of unknown age (the user may not send
                             TIME): the call waits for a load, one for all such
                             callers. 0: no limit */
    uint64_t only_cached; /* 0..1; 1: neither start nor await a load: take
                             what is cached and fresh, or allowed by
                             stale_while_revalidate_ms or allow_stale, or
                             local; else SHED_EMISS, or SHED_EREDIS if Redis
                             cannot be read */
    uint64_t allow_stale; /* enum shed_stale */
    struct shed_error *errors; /* NULL, or for shed_get_many as many as keys:
                                  why each failed, or SHED_OK; untouched with
                                  SHED_EINVAL and SHED_EFORKED */
};

#define SHED_GET_OPTIONS_INIT                                                  \
    {                                                                          \
        sizeof(struct shed_get_options), SHED_TIMEOUT_DEFAULT, 0, 0, 0,        \
            SHED_STALE_DEFAULT, NULL                                           \
    }

/*
 * Get the value of a key, which is any 1 to SHED_KEY_MAX_BYTES bytes. It was
 * current at some instant during the call, unless its origin is
 * SHED_ORIGIN_STALE, or it is from the near cache.
 *
 * Blocks: until answered, timeout_ms at most.
 * Returns: SHED_OK and *out, a reference of yours (perhaps SHED_KIND_ABSENT);
 * SHED_ETIMEDOUT, SHED_EBUSY (queue_limit, callers_limit), SHED_ESOURCE (the
 * load failed, here or elsewhere, or the source's breaker is open), SHED_EMISS
 * (only_cached), SHED_ETOOBIG, SHED_EREDIS (only with SHED_REDIS_DOWN_FAIL or
 * only_cached), SHED_EDENIED, SHED_ECLOSED.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get(struct shed_cache *cache, struct shed_bytes key,
         const struct shed_get_options *options, struct shed_value **out,
         struct shed_error *err);

/* One key of shed_get_many: the caller sets key, the call sets the rest. */
struct shed_item {
    struct shed_bytes key;
    struct shed_value *value; /* a reference of yours; NULL on failure */
    enum shed_code code;      /* as shed_get returns it for this key */
};

#define SHED_MANY_MAX 10000 /* keys or tags of one call */

/*
 * Get many keys: what is cached in one pipeline, the rest loaded in batches.
 * count may be 0, and a key occur more than once, here and in other calls.
 *
 * Ownership: give each value back, even if the call fails.
 * Blocks: until all are answered, timeout_ms at most.
 * Returns: SHED_OK if every item is; else the code of the first item that
 * failed (SHED_EMISS only if nothing else went wrong), with its index in the
 * reason ("items[3]"). The other items are answered, except with SHED_EINVAL.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_many(struct shed_cache *cache, struct shed_item *items, size_t count,
              const struct shed_get_options *options, struct shed_error *err);

/* ---------------------------------------------------------------- writes */

/*
 * Remove the entry of a key, and revoke a load under way. When it has returned
 * SHED_OK, no get that begins later, in any process, returns an older row. A
 * DEL of the key by any other program does the same.
 *
 * The rest holds for all writes. Call them after COMMIT, also if its outcome is
 * unknown. One that Redis could not be told of fails, and is *undelivered*: the
 * cache remembers its key (up to undelivered_limit), and delivers it when Redis
 * is back (a put as an invalidation). Until then other processes may read the
 * old row; this process loads the key, or does what redis_down says. If it
 * could not be remembered, the reason has "dropped": repeat the call.
 *
 * If the process ends, or closes the cache, before Redis is back, the old row
 * can be read until its ttl and its windows end. If that is too long, let the
 * transaction add its keys to a table, remove a key after its SHED_OK, and when
 * the program starts, invalidate the keys that the table still has.
 *
 * Blocks: one round trip, timeout_ms at most. It fails at once while the
 * client's breaker is open, and between a failed connect and the next try.
 * Returns: SHED_OK; SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY, SHED_EDENIED: it
 * may have been done, and is undelivered; SHED_ENOMEM: it will not be
 * delivered: repeat it; SHED_EINVAL: nothing was done.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                uint64_t timeout_ms, struct shed_error *err);

/* Invalidate many keys in one pipeline. The reason is that of the first key
 * that was dropped, or else failed ("keys[3]"). */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_many(struct shed_cache *cache, const struct shed_bytes *keys,
                     size_t count, uint64_t timeout_ms, struct shed_error *err);

/* Let a row be fresh for in_ms at most (0: stale now; up to 10 years), and
 * revoke a load under way: for readers that may see the old row for
 * stale_while_revalidate_ms. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_expire(struct shed_cache *cache, struct shed_bytes key, uint64_t in_ms,
            uint64_t timeout_ms, struct shed_error *err);

#define SHED_TAG_MAX_BYTES 250
#define SHED_TAGS_MAX 64 /* of an entry */

/*
 * Make every entry with one of these tags, any 1 to SHED_TAG_MAX_BYTES bytes, a
 * miss. An entry has the tags that it was loaded or put with by a process with
 * tags_limit, which this call needs, too.
 *
 * When it has returned SHED_OK, no get of this process that begins later
 * returns an older row. Another process may do so until it has heard of the
 * invalidation: usually for less than 1 ms; for up to 1 s where pushes do not
 * work, and 7 s if its connection for them dies silently. If a put can be late,
 * invalidate its key, too: it counts as newer than every invalidation that its
 * process knows of.
 *
 * Redis keeps up to tags_limit invalidated tags, of about 100 bytes, at
 * NAME:tags. Beyond that the oldest is forgotten, and entries from before it
 * become misses: let tags_limit exceed the number of tags that are invalidated
 * during the longest life of an entry. If Redis loses NAME:tags, the first get
 * of a process that knows of it makes all entries misses once; until then a
 * process that started later can read old rows.
 *
 * While a tag is undelivered, as one key, what it covers is a miss in this
 * process, whose local rows are dropped.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_tags(struct shed_cache *cache, const struct shed_bytes *tags,
                     size_t count, uint64_t timeout_ms, struct shed_error *err);

/* Make every row of the cache a miss, as if all had one tag. Failures stay
 * for failure_ttl_ms. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_all(struct shed_cache *cache, uint64_t timeout_ms,
                    struct shed_error *err);

struct shed_put_options {
    size_t size;
    uint64_t timeout_ms;     /* 1..3600000; SHED_TIMEOUT_DEFAULT */
    uint64_t ttl_ms;         /* 0..10 years; how long the row is fresh, without
                                jitter; 0: the cache's own */
    const uint64_t *version; /* see shed_put; NULL: none */
    const struct shed_bytes *tags; /* in place of the entry's */
    size_t tags_count;             /* 0..SHED_TAGS_MAX */
};

#define SHED_PUT_OPTIONS_INIT                                                  \
    {                                                                          \
        sizeof(struct shed_put_options), SHED_TIMEOUT_DEFAULT, 0, NULL, NULL,  \
            0                                                                  \
    }

/*
 * Store a row that you have just committed, and revoke a load under way.
 *
 * Give the bytes that the source would give. With MySQL, select its expression
 * in the transaction, after the UPDATE, on a connection of shed_mysql_connect,
 * as a text such as JSON_OBJECT(...): mysql_query may write a DOUBLE
 * differently.
 *
 * Puts of one key can arrive in the wrong order. Where a row has several
 * writers, use shed_invalidate, or give a version, which grows with each change
 * of the row. The higher one stays; of equal ones, the later arrival. An entry
 * without a version, or of no row, is removed, and the row not stored. Redis
 * knows a version only while it has the entry: an old row is stored if its put
 * took longer than the ttl, or if the invalidation of a later change overtook
 * it.
 *
 * Blocks: as shed_invalidate; if the connection is lost, for up to a second,
 * after which Redis refuses what may still be on its way.
 * Returns: SHED_OK: Redis has the row, or, with a version, a later one or none.
 * SHED_ETOOBIG: nothing was done. Other codes: as shed_invalidate; the row is
 * not written later.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_put(struct shed_cache *cache, struct shed_bytes key, struct shed_bytes row,
         const struct shed_put_options *options, struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
