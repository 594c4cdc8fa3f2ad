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
 * hosts loads it from the source. The other callers wait, and are answered when
 * that load ends. load_item is a function of yours (snowshed/source.h), or the
 * MySQL source (snowshed/mysql.h). Locks: snowshed/lock.h; counters:
 * snowshed/stats.h; events: snowshed/event.h; C++: snowshed/snowshed.hpp.
 *
 * Threads: any function may be called from any thread, until the object is
 * closed. Nothing survives fork(): open the client in the child. In a child, a
 * call on the parent's client returns SHED_EFORKED.
 *
 * Callbacks (on_event, on_log, on_lost, the done of an asynchronous call) run
 * on the client's thread. There, a function that blocks returns SHED_EINVAL.
 * Closing a handle in a callback or in a load returns at once; a new thread
 * does the rest. (If no thread can be started, the handle stays open until the
 * process ends.)
 *
 * Stack: a call needs at most 16 kB of its thread's stack. Callbacks and loads
 * may use 128 kB: the library's threads have at least 256 kB.
 *
 * Calls and callbacks must run to their end: do not leave them by longjmp,
 * pthread_exit, pthread_cancel or a C++ exception. Otherwise other threads may
 * block until their deadlines, memory leaks, and closing may hang. To end a
 * call early, give it a shorter timeout.
 *
 * Memory: arguments are copied before the call returns. The library hands out
 * one kind of memory, struct shed_value: give each back with shed_value_unref.
 *
 * Failure: functions return a shed_code, 0 for success. The code says what to
 * do next, the text in the optional shed_error what was wrong. A call that
 * fails leaves NULL in its *out. Any call can return SHED_EINVAL, SHED_ENOMEM
 * and SHED_EFORKED; its comment lists the others. No function raises a signal,
 * aborts, or changes what a signal does (but see shed_mysql_source_open).
 *
 * Options: fill a struct with its initialiser, then change fields; NULL stands
 * for the defaults. The range of each option is in brackets.
 *
 * Versions: a program compiled with the headers of 0.3 runs with every later
 * libsnowshed.so.0.3. Structs that carry their size, or are passed with it,
 * grow only at their ends, as struct shed_value does; all others are frozen.
 * Enumerators keep their numbers, and new ones can be added.
 */
#ifndef SNOWSHED_SNOWSHED_H
#define SNOWSHED_SNOWSHED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef SHED_API
#if defined(__GNUC__)
#define SHED_API __attribute__((visibility("default")))
#else
#define SHED_API
#endif
#endif

#if defined(__GNUC__)
#define SHED_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SHED_MUST_CHECK
#endif

#if defined(__GNUC__)
#define SHED_INLINE static inline __attribute__((unused))
#else
#define SHED_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- version */

#define SHED_VERSION_MAJOR 0
#define SHED_VERSION_MINOR 3
#define SHED_VERSION_PATCH 0

/* Returns: the version of the linked library, such as "0.3.0"; static. */
SHED_API const char *shed_version(void);

/* ---------------------------------------------------------------- bytes */

/* A key, a name or a payload: size bytes of any value, without a terminator. It
 * borrows them: keep them valid until the call returns. */
struct shed_bytes {
    const void *data;
    size_t size;
};

/* In C++ the function hides the struct's constructor. That is intended. */
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
SHED_INLINE struct shed_bytes shed_bytes(const void *data, size_t size)
{
    struct shed_bytes bytes;

    bytes.data = data;
    bytes.size = size;
    return bytes;
}
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* A terminated text, without its terminator; NULL: no bytes. */
SHED_INLINE struct shed_bytes shed_str(const char *text)
{
    return shed_bytes(text, text != NULL ? strlen(text) : 0);
}

/*
 * Write bytes, such as a key, as one terminated line of printable ASCII: a
 * backslash is doubled, other bytes become \xNN. The tool's option --escaped
 * reads this form.
 *
 * Returns: the length of the whole text without the terminator. The text was
 * cut if that is not below capacity. buffer may be NULL with capacity 0.
 */
SHED_API size_t shed_escape(struct shed_bytes bytes, char *buffer,
                            size_t capacity);

/* ------------------------------------------------------------- failures */

/* The codes differ in what the caller does next. */
enum shed_code {
    SHED_OK = 0,
    SHED_EINVAL,    /* the call is wrong: fix the program */
    SHED_ENOMEM,    /* memory is out: nothing has changed, try later */
    SHED_ETIMEDOUT, /* the deadline passed first: try again or give up */
    SHED_EBUSY,     /* a limit is reached (a queue, threads, descriptors, random
                       numbers): reject this request, do not retry */
    SHED_EREDIS,    /* Redis failed or cannot be reached: try again later */
    SHED_ESOURCE,   /* the source failed to load: try again later */
    SHED_ETOOBIG,   /* the value exceeds the cache's limit: use the source */
    SHED_EDENIED,   /* Redis refuses us (password, database, ACL): tell the
                       operator */
    SHED_ECLOSED,   /* the client or the lock is being closed */
    SHED_EFORKED,   /* the client belongs to another process: open your own */
    SHED_ELOST,     /* the lock is no longer yours: roll back, acquire again */
    SHED_EMISS      /* the row is not cached, and only_cached forbids to load
                       it: do without it */
};

#define SHED_REASON_BYTES 240

/* Why a call failed. It is set on failure and untouched on success. */
struct shed_error {
    enum shed_code code;
    char reason[SHED_REASON_BYTES]; /* outermost cause first: one terminated
                                       line without control characters,
                                       passwords or payloads */
};

/* Returns: the name of the code, such as "SHED_EBUSY"; static, never NULL. */
SHED_API const char *shed_code_name(enum shed_code code);

/* --------------------------------------------------------------- client */

struct shed_client;

/* How waiters learn that a key has changed. */
enum shed_wait {
    SHED_WAIT_AUTO = 0, /* by push where Redis grants it, else as POLL */
    SHED_WAIT_POLL = 1  /* by a timer with jitter */
};

enum shed_log_level {
    SHED_LOG_INFO,    /* as it should be, such as: connected */
    SHED_LOG_WARNING, /* trouble that the library handles: the connection was
                         lost, a load failed */
    SHED_LOG_ERROR    /* somebody must act: Redis refuses the password */
};

/* A ready-made on_log, which writes "snowshed: warning: text" to standard
 * error. user is not used. */
SHED_API void shed_log_stderr(void *user, enum shed_log_level level,
                              const char *text);

struct shed_event; /* snowshed/event.h */

/*
 * A circuit breaker, before Redis or before a source. It opens when too many
 * calls (or loads) in its window have failed: no call passes. After open_ms it
 * is half-open: a few calls pass, and it closes when they succeed.
 *
 * Before Redis: while it is open, gets do at once what redis_down says, writes
 * fail at once and are undelivered (see shed_invalidate), and a lock cannot be
 * acquired. Commands that finish earlier work (the release of a lock, the end
 * of a load) bypass the breaker. A call has failed if its connection was lost
 * or could not be made, if it got no reply within command_timeout_ms or
 * slow_ms, or if Redis replied that it cannot work now (LOADING, BUSY). A call
 * that its caller abandons early counts as failed only if no other call was
 * answered during command_timeout_ms of waiting. A refusal of writes (OOM,
 * READONLY) or of the user is a success. A Redis that cannot be reached, or
 * hangs, is left alone without the breaker.
 *
 * Before a source: while it is open no load begins. A get that needs a load
 * gets a stale row within stale_if_error_ms, or else SHED_ESOURCE at once,
 * unless another process is loading the key. A load has failed if all of its
 * keys have, or if it took longer than load_timeout_ms or slow_ms. probes
 * counts keys.
 */
struct shed_breaker_options {
    uint64_t failure_pct; /* [0, 100]; the percentage of failed calls that opens
                             it; 0: it never opens */
    uint64_t min_calls;   /* [1, 1000000]; it opens only if the window has at
                             least this many calls */
    uint64_t window_ms;   /* [100, 600000]; a sliding window */
    uint64_t open_ms;     /* [1, 3600000]; how long it stays open, shortened at
                             random by up to half; doubled each time that it
                             opens again, up to open_max_ms */
    uint64_t open_max_ms; /* [open_ms, 3600000] */
    uint64_t probes;      /* [1, 1000]; while half-open: most calls at a time,
                             and how many must succeed in a row to close it */
    uint64_t slow_ms;     /* [0, 600000]; a call that takes longer has failed;
                             0: no such limit */
};

#define SHED_BREAKER_OPTIONS_INIT                                              \
    {                                                                          \
        50, 20, 10000, 1000, 10000, 3, 0                                       \
    }

/* How one process talks to Redis. Fill it with SHED_CLIENT_OPTIONS_INIT. */
struct shed_client_options {
    size_t size; /* set by the initialiser; tells versions apart */
    uint64_t connect_timeout_ms; /* [1, 600000]; connect and set up */
    uint64_t command_timeout_ms; /* [1, 600000]; how long to wait for a due
                                    reply before closing the connection. If no
                                    connection gets an answer, Redis counts as
                                    hanging: calls behave as if it could not be
                                    reached, until it answers again */
    uint64_t reconnect_min_ms;   /* [1, 60000]; first pause after a failure */
    uint64_t reconnect_max_ms;   /* [reconnect_min_ms, 600000]; the pause
                                    doubles up to this, with full jitter */
    uint64_t links;              /* [1, 64]; most connections for blocking
                                    calls. They are opened when needed and
                                    closed when idle. More threads than that
                                    share them */
    uint64_t wait;               /* enum shed_wait */
    /* Called with one line of text for an operator when the client is
     * connected, loses Redis or is refused, and about trouble with its caches
     * and locks. event.h lists the lines, their levels and their limit. text is
     * gone afterwards. NULL: not called; then nothing says that a cache works
     * without Redis. */
    void (*on_log)(void *user, enum shed_log_level level, const char *text);
    void *log_user; /* passed to it */
    /* Called with every event; event.h says what it may do. NULL: not called */
    void (*on_event)(void *user, const struct shed_event *event);
    void *event_user;                    /* passed to it */
    struct shed_breaker_options breaker; /* before Redis */
    /* For rediss:// and valkeys://. Files are PEM, and read once. */
    const char *tls_ca;   /* file or directory with the certificates of the
                             authorities to trust; NULL: those of the system */
    const char *tls_cert; /* file with our certificate and those between it and
                             its authority; needs tls_key */
    const char *tls_key;  /* file with our private key, not encrypted */
};

#define SHED_CLIENT_OPTIONS_INIT                                               \
    {                                                                          \
        sizeof(struct shed_client_options), 1000, 1000, 20, 5000, 16,          \
            SHED_WAIT_AUTO, NULL, NULL, NULL, NULL, SHED_BREAKER_OPTIONS_INIT, \
            NULL, NULL, NULL                                                   \
    }

/*
 * Open a client.
 *
 * uri is redis://[user[:password]@]host[:port][/db],
 * unix:[//[user[:password]@]]/path[?db=n], or with Redis Sentinel
 * redis+sentinel://[user[:password]@]host[:port]{,host[:port]}/name[?db=n]:
 * the hosts are sentinels of the primary called name, which is where more than
 * half of them say. Their own password, if they have one, is the parameter
 * sentinel_password=, their user sentinel_user=. Percent-encode special
 * characters. valkey:// is redis://. With rediss:// or valkeys:// the
 * connection is TLS, 1.2 or 1.3, and the server's certificate must be for host,
 * a name or an address. For a certificate of your own making, name it, or its
 * authority, in tls_ca.
 *
 * Redis need not be up, nor its name resolve: the client connects when needed,
 * and again after a failure, with growing pauses. If the server turns out to be
 * a replica, the client closes the connection and looks up the address again.
 *
 * Blocks: for the lookup of the host name, but not for Redis.
 * Returns: SHED_OK and *out; SHED_EBUSY (no thread or descriptor available).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_client_open(const char *uri, const struct shed_client_options *options,
                 struct shed_client **out, struct shed_error *err);

/*
 * Release the caller's reference to a client. Its caches and locks keep it
 * alive. When the last of them has been closed, its connections and its thread
 * end. So close handles in any order, each exactly once. NULL is allowed. In a
 * forked child it frees memory, except OpenSSL's, and leaves the parent's
 * connections alone.
 */
SHED_API void shed_client_close(struct shed_client *client);

enum shed_breaker_state {
    SHED_BREAKER_CLOSED = 0,    /* calls pass; their failures are counted */
    SHED_BREAKER_HALF_OPEN = 1, /* a few calls pass, as a test */
    SHED_BREAKER_OPEN = 2       /* no call passes */
};

struct shed_client_status {
    uint64_t is_up;           /* 1: connected to a primary; else 0 */
    struct shed_error last;   /* why it last was not; SHED_OK: it always was,
                                 or nothing is known yet */
    uint64_t breaker;         /* enum shed_breaker_state */
    uint64_t breaker_opened;  /* how often it has opened */
    uint64_t breaker_refused; /* calls that it has refused */
    uint64_t since_ms;        /* how long is_up has been as it is; at first:
                                 since the client was opened */
    uint64_t breaker_left_ms; /* until an open breaker is half-open; else 0 */
    uint64_t events_left_out; /* events that on_event saw only in the count of a
                                 SHED_EVENT_SUPPRESSED, or will see there */
};

/*
 * Copy the state of the client's connection to Redis into *out; size is sizeof
 * *out. Redis is not asked. Without other calls, a Redis that hangs is noticed
 * by a command that the client sends every 3 s.
 *
 * Returns: SHED_OK; SHED_EINVAL also if size is larger than this library knows.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_client_status_read(struct shed_client *client,
                        struct shed_client_status *out, size_t size,
                        struct shed_error *err);

/* --------------------------------------------------------------- source */

/* Where missing rows come from: shed_source_open of snowshed/source.h, or
 * shed_mysql_source_open of snowshed/mysql.h, opens one. */
struct shed_source;

/* Release the caller's reference to a source. Its caches keep it alive. When
 * the last of them has been closed, its loads under way are waited for, and its
 * threads end. NULL is allowed. In a forked child it does nothing. */
SHED_API void shed_source_close(struct shed_source *source);

/* ---------------------------------------------------------------- value */

enum shed_kind {
    SHED_KIND_ROW,   /* data and size are the row's */
    SHED_KIND_NULL,  /* the row exists and is NULL */
    SHED_KIND_ABSENT /* there is no such row */
};

/* Returns: "row", "null" or "absent"; static, never NULL. */
SHED_API const char *shed_kind_name(enum shed_kind kind);

/* Where a value is from. "No such row" has an origin as rows have. */
enum shed_origin {
    SHED_ORIGIN_REDIS,       /* read from Redis at once */
    SHED_ORIGIN_LOAD,        /* loaded by this process during the call, and
                                stored in Redis or found unmodified */
    SHED_ORIGIN_UNPUBLISHED, /* loaded during the call and not stored: the key
                                was invalidated meanwhile, or Redis could not be
                                written */
    SHED_ORIGIN_STALE,       /* past its ttl, and allowed by the options; or a
                                local row, while Redis does not answer */
    SHED_ORIGIN_WAITED       /* read from Redis after waiting for a load, of
                                this or another process */
};

/* Returns: "redis", "load", "unpublished", "stale" or "waited"; static, never
 * NULL. */
SHED_API const char *shed_origin_name(enum shed_origin origin);

/* An answer. It never changes: read it, from any thread. */
struct shed_value {
    enum shed_kind kind;
    enum shed_origin origin;
    const void *data;  /* the payload, without a terminator, until the last
                          reference is given back; NULL if size is 0 */
    size_t size;       /* bytes */
    uint64_t age_ms;   /* since it was stored in Redis, by the server's clock;
                          0 with SHED_ORIGIN_UNPUBLISHED */
    uint64_t fresh_ms; /* how long it stays fresh, from when it was handed out:
                          for HTTP's max-age. 0 if it is stale, unpublished, or
                          the user may not send TIME */
};

/* Take another reference to a value. Returns: value, which is not NULL. */
SHED_API struct shed_value *shed_value_ref(struct shed_value *value);

/* Give a reference back; the last one frees the value. NULL is allowed. A
 * value may outlive its cache and its client. */
SHED_API void shed_value_unref(struct shed_value *value);

/* ---------------------------------------------------------------- cache */

struct shed_cache;

/* What a get does while Redis cannot be reached, hangs or refuses writes, or
 * the client's breaker is open. (If Redis refuses the user, gets return
 * SHED_EDENIED, so that a wrong configuration is noticed.) */
enum shed_redis_down {
    SHED_REDIS_DOWN_SOURCE = 0, /* load from the source, within its limits */
    SHED_REDIS_DOWN_FAIL = 1,   /* return SHED_EREDIS */
    /* Give out local rows, as SHED_ORIGIN_STALE; without one, as SOURCE. Local
     * rows are the answers that this process was last given or has loaded, in
     * up to local_bytes. A local row is given out within its ttl without a
     * load, and in the stale windows as they say; the source is asked once per
     * key, ttl and process. Until Redis answers again, a get can miss changes
     * by other processes, but not by this one (see shed_invalidate_all). A load
     * that brings a lower version than the local row's does not replace it. */
    SHED_REDIS_DOWN_STALE = 2
};

/* Fill it with SHED_CACHE_OPTIONS_INIT, or SHED_CACHE_OPTIONS_SERVE_STALE. */
struct shed_cache_options {
    size_t size;
    uint64_t ttl_ms;            /* [1, 10 years]; how long a row is fresh */
    uint64_t ttl_jitter_pct;    /* [0, 90]; each ttl is shortened at random by
                                   up to this much, so that rows stored
                                   together do not expire together */
    uint64_t negative_ttl_ms;   /* [0, 10 years]; how long "no such row" is
                                   kept; 0: not kept */
    uint64_t failure_ttl_ms;    /* [0, 60000]; for about this long a failed load
                                   also answers later calls; 0: the next call
                                   loads again */
    uint64_t lease_ms;          /* [10, 600000]; a loader that has been silent
                                   for this long is replaced; a dead one is
                                   replaced at once where pushes work, once
                                   its lease is 100 ms old */
    uint64_t timeout_ms;        /* [1, 3600000]; default deadline of a call */
    uint64_t value_limit_bytes; /* [1, 256 MiB]; longest payload */
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
     *   ttl_ms + stale_if_error_ms          the row is gone
     *
     * An option that is 0 leaves its line out. If stale_if_error_ms is the
     * shorter window, the row is gone where the longer one ends. "No such row"
     * is gone after negative_ttl_ms.
     */
    uint64_t refresh_after_pct; /* [0, 100]; of the row's ttl. A read may
                                   find the row due earlier, by (time of its
                                   load) * -ln(u), with u random in (0, 1]
                                   (XFetch), but by at most a quarter of that
                                   time. 0: never */
    uint64_t stale_while_revalidate_ms; /* [0, 10 years] */
    uint64_t stale_if_error_ms; /* [0, 10 years]; also for calls that have found
                                   the row and would end with SHED_EBUSY,
                                   SHED_ETIMEDOUT, SHED_EREDIS or SHED_ENOMEM */
    uint64_t undelivered_limit; /* [0, 100000]; most keys whose writes Redis
                                   missed and that are delivered later, see
                                   shed_invalidate */
    /* [0, 3600000]; a server that takes the place of another may lack the
     * last writes: this process's writes of keys (the newest undelivered_limit
     * of the last so many ms) are repeated there as invalidations. 0: none */
    uint64_t failover_memory_ms;
    uint64_t soft_timeout_ms; /* [0, 3600000]; how long a call that has a row
                                 to fall back on waits for a load of it, by any
                                 process; the load goes on in the background.
                                 Needs stale_if_error_ms above
                                 stale_while_revalidate_ms. 0: timeout_ms */
    uint64_t tags_limit;      /* [0, 100000]; most invalidated tags that are
                                 remembered, see shed_invalidate_all; the same
                                 in all processes. 0: the cache has no tags */
    uint64_t local_bytes;     /* [65536, 1 TiB]; most memory for local rows
                                 (SHED_REDIS_DOWN_STALE); one row takes at most a
                                 sixteenth of it */
};

/* Rows are refreshed before they expire, and none is given out past its ttl. */
#define SHED_CACHE_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_cache_options), 300000, 10, 10000, 500, 10000,      \
            5000, 1048576, SHED_REDIS_DOWN_SOURCE, 50, 0, 0, 10000, 60000, 0,  \
            10000, 67108864                                                    \
    }

/* For pages that rather show an old row than wait: a row is given out for a
 * minute after its ttl while it is loaded again, and for an hour if the load
 * fails or takes more than 200 ms; while Redis is away, from local rows. */
#define SHED_CACHE_OPTIONS_SERVE_STALE                                         \
    {                                                                          \
        sizeof(struct shed_cache_options), 300000, 10, 10000, 500, 10000,      \
            5000, 1048576, SHED_REDIS_DOWN_STALE, 50, 60000, 3600000, 10000,   \
            60000, 200, 10000, 67108864                                        \
    }

#define SHED_NAME_MAX_BYTES 64  /* longest name of a cache */
#define SHED_KEY_MAX_BYTES 1024 /* longest key */

/* For the timeout_ms of a call: the cache's own. */
#define SHED_TIMEOUT_DEFAULT UINT64_C(0)

/*
 * Open a cache. In Redis the entry of KEY is at NAME:{KEY}.
 *
 * name is 1 to SHED_NAME_MAX_BYTES of printable ASCII without space, '{' and
 * '}', and not "lock". A client refuses a second cache of the same name. The
 * cache keeps client and source alive until it is closed.
 *
 * Returns: SHED_OK and *out.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_cache_open(struct shed_client *client, const char *name,
                struct shed_source *source,
                const struct shed_cache_options *options,
                struct shed_cache **out, struct shed_error *err);

/*
 * Check that Redis can be reached, and grants the rights that the cache needs,
 * its tags and its source's fleet_loads included. Call it when the program
 * starts. Nothing is written.
 *
 * From Redis 7 on, err lists what the user lacks in the form that ACL SETUSER
 * takes, such as "+get ~item:*": first commands without a key, channels and
 * keys; when these are granted, the commands on keys. On older servers SHED_OK
 * says only that Redis can be reached and runs scripts.
 *
 * Blocks: at most three round trips, timeout_ms at most.
 * Returns: SHED_OK; SHED_EDENIED (a right is missing, or the password or the
 * database is refused), SHED_EREDIS, SHED_ETIMEDOUT, SHED_EBUSY.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_cache_probe(struct shed_cache *cache, uint64_t timeout_ms,
                 struct shed_error *err);

/*
 * Close a cache, on which no call may be under way. Undelivered writes are sent
 * once more. A write that fails then is dropped, with a
 * SHED_EVENT_INVALIDATION_DROPPED. NULL is allowed.
 *
 * Blocks: without limit until its loads are done, then timeout_ms at most.
 */
SHED_API void shed_cache_close(struct shed_cache *cache);

/* Whether a call may be given a row past its ttl, as SHED_ORIGIN_STALE. */
enum shed_stale {
    SHED_STALE_DEFAULT = 0, /* as the cache's options say */
    SHED_STALE_NEVER = 1,  /* no, not even if the load fails; nor a local row */
    SHED_STALE_ALLOWED = 2 /* yes, any row that Redis still has, at once; it is
                              loaded again in the background */
};

/* What one get asks for. Fill it with SHED_GET_OPTIONS_INIT. */
struct shed_get_options {
    size_t size;
    uint64_t timeout_ms;      /* [1, 3600000]; from now; SHED_TIMEOUT_DEFAULT */
    uint64_t soft_timeout_ms; /* [0, 3600000]; from now; 0: the cache's own. It
                                 has an effect only if the call has a stale row
                                 to fall back on */
    uint64_t max_age_ms;      /* [0, 10 years]; no answer is older, not even "no
                                 such row". For an older entry the call waits
                                 for a load, one for all callers of all
                                 processes, and fails if that does. A row stored
                                 during the call always qualifies; a row of
                                 unknown age (the user may not send TIME) does
                                 not. 0: no limit */
    uint64_t only_cached;     /* [0, 1]; 1: neither start nor await a load. The
                                 call takes a row that is fresh, or that
                                 stale_while_revalidate_ms or allow_stale
                                 permit, or a local row; else SHED_EMISS, or
                                 SHED_EREDIS if Redis cannot be read */
    uint64_t allow_stale;     /* enum shed_stale */
    struct shed_error *errors; /* shed_get_many sets as many as it has keys: why
                                  each item failed, or SHED_OK. Untouched with
                                  SHED_EINVAL and SHED_EFORKED. NULL: not
                                  wanted */
};

#define SHED_GET_OPTIONS_INIT                                                  \
    {                                                                          \
        sizeof(struct shed_get_options), SHED_TIMEOUT_DEFAULT, 0, 0, 0,        \
            SHED_STALE_DEFAULT, NULL                                           \
    }

/*
 * Get the value of a key: from Redis, or from the source, which loads it once
 * for all callers.
 *
 * key is any 1 to SHED_KEY_MAX_BYTES bytes. Unless its origin is
 * SHED_ORIGIN_STALE, the value was current at some instant during the call.
 *
 * Blocks: until answered, timeout_ms at most.
 * Returns: SHED_OK and *out, a reference of yours (perhaps SHED_KIND_ABSENT);
 * SHED_ETIMEDOUT, SHED_EBUSY (the source's queue is full, or too many callers
 * wait), SHED_ESOURCE (the load failed, here or elsewhere, or the source's
 * breaker is open), SHED_EMISS (only_cached), SHED_ETOOBIG, SHED_EREDIS (only
 * with SHED_REDIS_DOWN_FAIL or only_cached), SHED_EDENIED, SHED_ECLOSED.
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

#define SHED_MANY_MAX 10000 /* most keys or tags of one call */

/*
 * Get many keys: what is cached in one pipeline, the rest loaded in batches. A
 * key may occur more than once; count may be 0.
 *
 * Ownership: give each value back, even if the call fails.
 * Blocks: until all are answered, timeout_ms at most.
 * Returns: SHED_OK if every item is; else the code of the first item that is
 * not (SHED_EMISS only if no item has another failure), and a reason that
 * begins with its index ("items[3]"). Every item is set, and those that were
 * answered have a value; with SHED_EINVAL none has.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_many(struct shed_cache *cache, struct shed_item *items, size_t count,
              const struct shed_get_options *options, struct shed_error *err);

#define SHED_TAG_MAX_BYTES 250 /* longest tag */
#define SHED_TAGS_MAX 64       /* most tags of an entry */

/* What a put stores with the row. Fill it with SHED_PUT_OPTIONS_INIT. */
struct shed_put_options {
    size_t size;
    uint64_t timeout_ms; /* [1, 3600000]; SHED_TIMEOUT_DEFAULT */
    uint64_t ttl_ms;     /* [0, 10 years]; how long the row is fresh, without
                            jitter; 0: as the cache's options say */
    const uint64_t *version;       /* NULL: none. See shed_put */
    const struct shed_bytes *tags; /* they replace those of the entry, see
                                      shed_invalidate_tags */
    size_t tags_count;             /* [0, SHED_TAGS_MAX] */
};

#define SHED_PUT_OPTIONS_INIT                                                  \
    {                                                                          \
        sizeof(struct shed_put_options), SHED_TIMEOUT_DEFAULT, 0, NULL, NULL,  \
            0                                                                  \
    }

/*
 * Store a row that you have just committed, and revoke loads of the key that
 * are under way. Call it after COMMIT.
 *
 * Give the bytes that the source would give for the row. With the MySQL source,
 * select them in the transaction, after the UPDATE, by the expression of the
 * source's query and on a connection of shed_mysql_connect. Let it be a text,
 * as JSON_OBJECT(...) is: mysql_query may write a DOUBLE differently.
 *
 * Puts of one key can arrive in the wrong order. Where a row has several
 * writers, use shed_invalidate, or give a version: a number that grows with
 * each change of the row. Of two puts the row with the higher version stays,
 * whatever their order; with equal versions, the later arrival. An entry
 * without a version is removed instead of replaced. With versions, a source
 * that reads a lagging replica does not bring back an older row (see struct
 * shed_answer).
 *
 * Redis knows the version only while it has the entry. After the entry has
 * expired or was invalidated, any put or load is stored. So an old row is
 * stored if its put took longer than the ttl, or if the invalidation for a
 * later change overtook it. (An invalidation by tag leaves the entry.)
 *
 * Blocks: one round trip, timeout_ms at most; if the connection is lost, up to
 * a second, after which Redis refuses what may still be on its way.
 * Returns: SHED_OK: Redis has the row, or, with a version, a later one or none.
 * SHED_EINVAL, SHED_ETOOBIG: nothing was written.
 * SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY, SHED_EDENIED: it may have been
 * written, and is not written later; the invalidation of the key is
 * undelivered, see shed_invalidate.
 * SHED_ENOMEM: nothing will be delivered: repeat it.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_put(struct shed_cache *cache, struct shed_bytes key, struct shed_bytes row,
         const struct shed_put_options *options, struct shed_error *err);

/*
 * Remove the entry of a key, and revoke the lease of a load under way, so that
 * nothing that was loaded before can be stored afterwards.
 *
 * Call it after COMMIT. When it has returned SHED_OK, no get that begins later,
 * in any process, returns an older row. A DEL of the key by any other program
 * does the same.
 *
 * If Redis cannot be told, the call fails and the write is *undelivered*: the
 * cache remembers it (up to undelivered_limit keys), and delivers it when Redis
 * is back. Until then other processes may read the old row. This process takes
 * nothing from Redis for the key: it loads, or does what redis_down says, and
 * no get that begins later returns an older row. If the key could not even be
 * remembered, the reason begins with "dropped": repeat the call.
 *
 * A failover can lose a write that Redis has carried out. This process repeats
 * it at the new server, see failover_memory_ms.
 *
 * Undelivered writes are lost if the process ends, or closes the cache, before
 * Redis is back: then the old row can be read until its ttl and its windows
 * end. If that is too long, write the keys to a table in the transaction that
 * changes the rows, delete each when its call has returned SHED_OK, and call
 * again for the remaining ones when the program starts.
 *
 * Blocks: one round trip, timeout_ms at most. It fails at once while the
 * client's breaker is open, and between a failed connect and the next try.
 * Returns: SHED_OK; SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY, SHED_EDENIED: it
 * may have been removed, and is undelivered; SHED_ENOMEM: nothing will be
 * delivered: repeat it.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                uint64_t timeout_ms, struct shed_error *err);

/*
 * Let a row be fresh for in_ms more at most (0: make it stale now), and revoke
 * a load under way. Use it if readers may see the old row for a moment: within
 * stale_while_revalidate_ms it is given out as SHED_ORIGIN_STALE and loaded
 * again in the background; after that it is as after its ttl.
 *
 * Blocks and returns: as shed_invalidate; in_ms is at most 10 years.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_expire(struct shed_cache *cache, struct shed_bytes key, uint64_t in_ms,
            uint64_t timeout_ms, struct shed_error *err);

/*
 * Invalidate many keys in one pipeline, each as shed_invalidate does. A key may
 * occur more than once; count may be 0. Readers can see some keys removed
 * before the rest.
 *
 * Blocks and returns: as shed_invalidate. SHED_EINVAL (err names the key, such
 * as "keys[3]"): nothing was removed. The reason is that of the first dropped
 * key, if there is one.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_many(struct shed_cache *cache, const struct shed_bytes *keys,
                     size_t count, uint64_t timeout_ms, struct shed_error *err);

/* ----------------------------------------------------------------- tags */

/*
 * Make every entry of the cache a miss, with one command, however many there
 * are. The cache must have tags (tags_limit). Call it after COMMIT.
 *
 * When it has returned SHED_OK, no get of this process that begins later
 * returns an older row. Another process may return older rows until it has
 * heard of the invalidation: usually for less than 1 ms; for up to 1 s where
 * pushes do not work; for up to 7 s if its connection for pushes dies silently.
 * A put counts as newer than every invalidation that its process knows of: if
 * the put can be late, invalidate the key instead.
 *
 * The invalidation gets a position in a log in Redis, NAME:tags, which every
 * process with this cache follows. An entry carries the log's position from
 * when its load began, and is compared with the log when it is read. Nothing is
 * scanned or deleted, and a hit needs no other round trip. The log has about
 * 100 bytes for each tag ever invalidated, at most tags_limit of them; when it
 * is full, the oldest tag is forgotten and every entry from before its
 * invalidation becomes a miss. So set tags_limit above the number of tags that
 * are invalidated during the longest life of an entry.
 *
 * If Redis loses the log, the first get of a process that knows of a lost
 * invalidation makes all entries misses once. Until then a process that started
 * later can read old rows.
 *
 * If Redis cannot be told, the invalidation is undelivered, as one key (see
 * shed_invalidate). Until it is delivered every entry that it covers is a miss
 * in this process, and all local rows are dropped.
 *
 * Blocks: one round trip, timeout_ms at most.
 * Returns: as shed_invalidate; SHED_ENOMEM: nothing has changed.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_all(struct shed_cache *cache, uint64_t timeout_ms,
                    struct shed_error *err);

/*
 * Make every entry with one of these tags a miss, as shed_invalidate_all does
 * with all entries. An entry has the tags that it was loaded or put with; one
 * that a process without the option tags_limit has written has none.
 *
 * A tag is any 1 to SHED_TAG_MAX_BYTES bytes; count may be 0. Each tag costs
 * one command, all in one pipeline.
 *
 * Blocks and returns: as shed_invalidate_all. The reason begins with the index
 * of the first tag that failed, or that was dropped, as in "tags[3]".
 * SHED_EINVAL: none was invalidated.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_tags(struct shed_cache *cache, const struct shed_bytes *tags,
                     size_t count, uint64_t timeout_ms, struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
