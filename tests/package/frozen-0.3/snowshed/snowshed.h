/*
 * snowshed: a read-through cache in Redis that protects a database.
 *
 * A missing or expired entry is loaded once for all processes on all hosts,
 * however many callers wait for it. All of them are answered when that load
 * ends.
 *
 *     shed_client  the connections to one Redis, opened once per process
 *     shed_source  where a missing entry comes from: a function of yours, or
 *                  the MySQL source of snowshed/mysql.h
 *     shed_cache   a named region of keys with one policy and one source
 *     shed_value   an immutable, reference-counted answer
 *
 * Threads: any function may be called from any thread, until the object is
 * closed. Nothing survives fork(): open the client in the child. A call in a
 * child on its parent's client returns SHED_EFORKED and touches nothing.
 *
 * Callbacks (on_event, on_log, on_lost and the done of an asynchronous call)
 * run on the client's own thread, which also does its background work. In a
 * callback, a function that blocks returns SHED_EINVAL and does nothing.
 * Closing a handle in a callback or in a load returns at once, and a new thread
 * does the rest. (If no thread can be started, the handle stays open until the
 * process ends.)
 *
 * Stack: a call needs at most 16 kB of its thread's stack, what the program's
 * own functions need not counted. The library's threads, on which callbacks and
 * loads run, have the default stack of a thread, but at least 256 kB: load,
 * thread_start, thread_stop and callbacks may use 128 kB in any program.
 *
 * A call must run to its end, and so must every function that the library calls
 * (those callbacks, load, thread_start, thread_stop, on_close): do not leave
 * them by longjmp, pthread_exit or a C++ exception, and do not cancel a thread
 * (pthread_cancel) that may be in a call. What was left is never cleaned up:
 * threads that share its connection or its load can wait until their deadlines,
 * memory is lost, and closing a handle can hang. An exception may end the
 * process. To stop a call early, give it a shorter timeout.
 *
 * Memory: arguments are copied before the call returns. What is handed out is a
 * shed_value; give each back with shed_value_unref.
 *
 * Failure: functions return a shed_code, 0 for success. The code says what to
 * do next; the text in the optional shed_error says what was wrong. A row that
 * does not exist is an answer (shed_value_kind), not a failure. No function
 * raises a signal, aborts, or changes the disposition of a signal (MySQL's
 * client library does: see shed_mysql_source_open).
 *
 * Versions: a program that was compiled with the headers of 0.3 runs with every
 * later library of the soname libsnowshed.so.0.3. Structs that carry their size
 * (options, struct shed_event) or are passed with it (statistics, struct
 * shed_client_status, struct shed_source_status) grow only at their ends. All
 * others are frozen: struct shed_bytes, shed_error, shed_item, shed_fence,
 * shed_breaker_options and shed_histogram. Enumerators keep their numbers, and
 * new ones can be added.
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

/* Returns: the version of the library that is linked, "0.3.0" say; static. */
SHED_API const char *shed_version(void);

/* ---------------------------------------------------------------- bytes */

/*
 * A key, a name or a payload: size bytes of any value, without a terminator.
 * It does not own them: keep them valid until the call that takes it returns.
 */
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

/* A terminated text, without its terminator; NULL is no bytes. */
SHED_INLINE struct shed_bytes shed_str(const char *text)
{
    return shed_bytes(text, text != NULL ? strlen(text) : 0);
}

/*
 * Write bytes, a key say, as one line of printable ASCII, terminated: a
 * backslash doubled, all bytes but printable ASCII as \xNN, as the tool's
 * option --escaped reads them.
 *
 * Returns: the length of the whole text, without the terminator. If it is not
 * below capacity, the text was cut. buffer may be NULL with capacity 0.
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
    SHED_EMISS      /* the row is not cached, and the get may not load it
                       (only_cached): do without it, or allow a load */
};

#define SHED_REASON_BYTES 240

/*
 * Why a call failed: outermost cause first, one terminated line without control
 * characters, never with a password or a payload in it. Set on failure,
 * untouched on success.
 */
struct shed_error {
    enum shed_code code;
    char reason[SHED_REASON_BYTES];
};

/* Returns: the name of an enum shed_code, "SHED_EBUSY" say; static, never NULL.
 */
SHED_API const char *shed_code_name(enum shed_code code);

/* --------------------------------------------------------------- client */

struct shed_client;

/* How waiters learn that a key has changed. */
enum shed_wait {
    SHED_WAIT_AUTO = 0, /* by push where Redis grants it, else as POLL */
    SHED_WAIT_POLL = 1  /* by a timer with jitter: no tracking, no pub-sub */
};

enum shed_log_level {
    SHED_LOG_INFO,    /* as it should be: connected, say */
    SHED_LOG_WARNING, /* trouble, of which the library takes care: the
                         connection was lost, a load failed */
    SHED_LOG_ERROR    /* somebody must do something: Redis refuses the password
                         or the database */
};

/* Returns: "info", "warning" or "error"; static, never NULL. */
SHED_API const char *shed_log_level_name(enum shed_log_level level);

/* A ready-made on_log (see struct shed_client_options), which writes
 * "snowshed: warning: text" to standard error. user is not used. */
SHED_API void shed_log_stderr(void *user, enum shed_log_level level,
                              const char *text);

struct shed_event; /* snowshed/event.h */

/* A circuit breaker, before Redis or before a source: whether a server that
 * keeps failing is asked at all. After open_ms an open one is half-open, and
 * lets a few calls or loads through. */
struct shed_breaker_options {
    uint64_t failure_pct; /* [0, 100]; the percentage of failed calls or loads
                             that opens it; 0: it never opens */
    uint64_t min_calls;   /* [1, 1000000]; with fewer in the window it does not
                             open */
    uint64_t window_ms;   /* [100, 600000]; a sliding window */
    uint64_t open_ms;     /* [1, 3600000]; how long it is open, with jitter down
                             to half; doubled each time that it opens again from
                             half-open, up to open_max_ms */
    uint64_t open_max_ms; /* [open_ms, 3600000] */
    uint64_t probes;      /* [1, 1000]; while half-open: most at a time, and how
                             many must succeed in a row to close it */
    uint64_t slow_ms;     /* [0, 600000]; what takes longer has failed even if
                             it is answered; 0: nothing is too slow */
};

#define SHED_BREAKER_OPTIONS_INIT                                              \
    {                                                                          \
        50, 20, 10000, 1000, 10000, 3, 0                                       \
    }

/*
 * How one process talks to Redis. Fill it with SHED_CLIENT_OPTIONS_INIT, which
 * writes every default, then change what you like.
 */
struct shed_client_options {
    size_t size; /* set by the initialiser; tells versions apart */
    uint64_t connect_timeout_ms; /* [1, 600000]; connect, AUTH, SELECT,
                                    ROLE, TIME */
    uint64_t command_timeout_ms; /* [1, 600000]; a connection on which no reply
                                    comes for this long, though one is due, is
                                    closed for good. If no other connection is
                                    answered either, Redis counts as hanging:
                                    until it answers the client itself, calls do
                                    at once what they do while it cannot be
                                    reached */
    uint64_t reconnect_min_ms;   /* [1, 60000]; first pause after a failure */
    uint64_t reconnect_max_ms;   /* [reconnect_min_ms, 600000]; the pause
                                    doubles up to this, with full jitter */
    uint64_t links;              /* [1, 64]; most connections for blocking
                                    calls. One is opened when all are busy, and
                                    closed when idle. More threads than that
                                    share them, and share one GET if they want
                                    the same key */
    uint64_t wait;               /* enum shed_wait */
    /* Told what an operator wants to know: once when the client is connected to
     * Redis, loses it, or is refused; and about trouble with its caches and
     * locks (snowshed/event.h lists the kinds, with their levels): at once, and
     * then, while it lasts, one line per kind and cache each
     * SHED_LOG_INTERVAL_MS, with the number of those that are not told. text is
     * one line, without secrets or payloads, and gone afterwards. It is called
     * as on_event is. shed_log_stderr is one. NULL: not called, and nothing
     * says that a cache works without Redis. */
    void (*on_log)(void *user, enum shed_log_level level, const char *text);
    void *log_user; /* passed to it */
    /* Told of every event: a shed_event_fn, see snowshed/event.h for what it
     * may do. NULL: not called. */
    void (*on_event)(void *user, const struct shed_event *event);
    void *event_user; /* passed to it */
    /* Before Redis: for a Redis that still answers, but slowly, with errors, or
     * only now and then. While it is open, gets do at once what redis_down of
     * their cache says; puts, invalidations and expiries fail at once and are
     * undelivered (see shed_invalidate); and an acquire of a lock fails, or
     * waits, as if Redis could not be reached. What ends something is always
     * sent: the release and the extension of a lock, the end of a load. While
     * it is half-open, the delivery of an invalidation is among what is sent.
     *
     * A call has failed if no reply came within command_timeout_ms, if it took
     * longer than slow_ms (with its wait for a connection), if its connection
     * was lost or could not be made, or if Redis replied that it cannot work
     * now (LOADING, BUSY and the like). A reply that refuses only writes (OOM,
     * MISCONF, READONLY) or this client (SHED_EDENIED) is a success. A call
     * does not count if it was not sent because of the pause after a failure or
     * because Redis hangs. Nor does one whose caller gave up before that
     * timeout (or before slow_ms, if that is set), as long as others are
     * answered. But when callers have waited for that long in all, with no
     * answer to any call in between, each further call that is given up has
     * failed: so a Redis that is too slow for all callers opens it, too,
     * however short their deadlines are. (While the breaker is half-open: when
     * they have waited for probes times that.)
     *
     * It rarely opens for a Redis that cannot be reached or that hangs, which
     * does not need it: most calls are not tried then (reconnect_max_ms,
     * command_timeout_ms); see is_up of shed_client_status. */
    struct shed_breaker_options breaker;
};

#define SHED_CLIENT_OPTIONS_INIT                                               \
    {                                                                          \
        sizeof(struct shed_client_options), 1000, 1000, 20, 5000, 16,          \
            SHED_WAIT_AUTO, NULL, NULL, NULL, NULL, SHED_BREAKER_OPTIONS_INIT  \
    }

/*
 * Open a client.
 *
 * uri is redis://[user[:password]@]host[:port][/db] or
 * unix:[//[user[:password]@]]/path[?db=n], such as unix:/run/redis.sock;
 * percent-encode special characters. options may be NULL for the defaults.
 *
 * Redis need not be up, nor its name resolve: the client connects when needed,
 * and again after a failure, with growing pauses. It does not use a replica: it
 * closes the connection and looks up the host name, or the path, again.
 *
 * Blocks: while the host name is resolved; it does not wait for Redis.
 * Returns: SHED_OK and *out; SHED_EINVAL (uri, options), SHED_ENOMEM,
 * SHED_EBUSY (no thread or descriptor available); then *out is NULL.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_client_open(const char *uri, const struct shed_client_options *options,
                 struct shed_client **out, struct shed_error *err);

/*
 * Release the caller's reference to a client. Its caches and locks keep it
 * alive and go on working. When the last of them has been closed, its
 * connections and its thread end. So handles may be closed in any order, each
 * exactly once. A lookup of the host name that is under way is not waited for:
 * its thread ends with the resolver's answer, without the client.
 *
 * NULL is allowed. In a forked child it frees the child's memory and leaves the
 * parent's connections alone.
 */
SHED_API void shed_client_close(struct shed_client *client);

/* The state of a circuit breaker: before Redis, or before a source. */
enum shed_breaker_state {
    SHED_BREAKER_CLOSED = 0,    /* calls pass; their failures are counted */
    SHED_BREAKER_HALF_OPEN = 1, /* a few calls pass, as a test */
    SHED_BREAKER_OPEN = 2       /* no call passes */
};

/* Returns: "closed", "half-open" or "open"; static, never NULL. */
SHED_API const char *shed_breaker_state_name(enum shed_breaker_state state);

struct shed_client_status {
    uint64_t is_up;         /* 1: connected to a primary, and set up; else 0 */
    struct shed_error last; /* why it last was not; SHED_OK: it always was,
                               or nothing is known yet */
    /* of the breaker before Redis (breaker.failure_pct) */
    uint64_t breaker;         /* enum shed_breaker_state */
    uint64_t breaker_opened;  /* how often it has opened */
    uint64_t breaker_refused; /* calls that it has not let through to Redis */
    uint64_t since_ms;        /* for how long is_up has been as it is; at first:
                                 since the client was opened */
    uint64_t breaker_left_ms; /* until an open breaker tries again; else 0 */
    uint64_t events_left_out; /* events of which on_event was told only in the
                                 count of a SHED_EVENT_SUPPRESSED, or will be */
};

/*
 * Copy the state of the client's connection to Redis into *out; size is sizeof
 * *out.
 *
 * It is the connection that the client maintains by itself; Redis is not asked.
 * A Redis that hangs is noticed command_timeout_ms after the first command that
 * it does not answer, whoever sent it; with no calls under way that is one
 * which the client sends every 3 s. Where all callers give up earlier, it is
 * noticed when their tries to connect have gone unanswered for
 * connect_timeout_ms.
 *
 * Returns: SHED_OK; SHED_EINVAL (NULL, or more than this library knows),
 * SHED_EFORKED.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_client_status_read(struct shed_client *client,
                        struct shed_client_status *out, size_t size,
                        struct shed_error *err);

/* --------------------------------------------------------------- source */

/* Where missing rows come from: shed_source_open of snowshed/source.h, or
 * shed_mysql_source_open of snowshed/mysql.h, opens one. */
struct shed_source;

/*
 * Release the caller's reference to a source. Its caches keep it alive. When
 * the last of them has been closed, its loads under way are waited for, and its
 * threads end. NULL is allowed. In a forked child it does nothing.
 */
SHED_API void shed_source_close(struct shed_source *source);

/* ---------------------------------------------------------------- value */

enum shed_kind {
    SHED_KIND_ROW,   /* data and size are the row's */
    SHED_KIND_NULL,  /* the row exists and is NULL */
    SHED_KIND_ABSENT /* there is no such row */
};

/* Returns: "row", "null" or "absent"; static, never NULL. */
SHED_API const char *shed_kind_name(enum shed_kind kind);

/* Where a value is from. "No such row" is a kind of value, not an origin: it is
 * loaded and kept as rows are. */
enum shed_origin {
    SHED_ORIGIN_REDIS,       /* it was in Redis */
    SHED_ORIGIN_LOAD,        /* this process loaded it during this call, for it
                                or for another thread, and stored it in Redis,
                                or found it unmodified */
    SHED_ORIGIN_UNPUBLISHED, /* loaded during this call and not stored: the key
                                was invalidated meanwhile, or Redis could not be
                                written */
    SHED_ORIGIN_STALE,       /* it was in Redis, no longer fresh, and allowed by
                                stale_while_revalidate_ms, stale_if_error_ms or
                                the call's options; or it was a local row, as
                                Redis did not answer (SHED_REDIS_DOWN_STALE) */
    SHED_ORIGIN_WAITED /* it was in Redis after this call had waited for another
                          load, of another process or of this one */
};

/* Returns: "redis", "load", "unpublished", "stale" or "waited"; static, never
 * NULL. */
SHED_API const char *shed_origin_name(enum shed_origin origin);

/* An answer. It never changes: read it, from any thread. The library makes
 * values, and a later one may add fields at the end. */
struct shed_value {
    enum shed_kind kind;
    enum shed_origin origin;
    const void *data;  /* the payload, without a terminator, until the last
                          reference is given back; NULL if size is 0 */
    size_t size;       /* bytes */
    uint64_t age_ms;   /* since it was stored in Redis, by the server's clock as
                          this process knows it; 0 with
                          SHED_ORIGIN_UNPUBLISHED */
    uint64_t fresh_ms; /* for how long it was still fresh when it was handed
                          out, by the server's clock: a limit for caches of your
                          own, such as HTTP's max-age. 0 with SHED_ORIGIN_STALE
                          and SHED_ORIGIN_UNPUBLISHED, and without the right to
                          TIME */
};

/* Take another reference to a value, which is not NULL. Returns: value. */
SHED_API struct shed_value *shed_value_ref(struct shed_value *value);

/* Give a reference back; the last one frees the value. NULL is allowed. A
 * value may outlive its cache and its client. */
SHED_API void shed_value_unref(struct shed_value *value);

/* ---------------------------------------------------------------- cache */

struct shed_cache;

/* What a get does while Redis cannot be reached or refuses writes, or the
 * client's breaker before it is open. (A Redis that refuses the password, the
 * database or a command is another case: a get then returns SHED_EDENIED, so
 * that a wrong configuration is noticed.) */
enum shed_redis_down {
    SHED_REDIS_DOWN_SOURCE = 0, /* load from the source, within its limits */
    SHED_REDIS_DOWN_FAIL = 1,   /* return SHED_EREDIS */
    /* Give out local rows; without one, as SOURCE. Local rows are the answers
     * that this process was last given or has loaded, "no such row" too, in up
     * to local_bytes. A call whose GET has failed gets a local row as
     * SHED_ORIGIN_STALE: within its ttl without a load; within
     * stale_while_revalidate_ms while this process loads it again; within
     * stale_if_error_ms if the load fails. That is at once if Redis cannot be
     * reached, or is known to hang; the calls that find the hang out wait for
     * connect_timeout_ms and command_timeout_ms, at most. What is loaded
     * meanwhile becomes a local row: one query per key, ttl and process. (A row
     * of a lower version than the local one does not: only the callers that
     * wait for it get it. See struct shed_answer of source.h.) During that time
     * a call can miss changes by other processes, but not what this process has
     * put, invalidated or expired (see also shed_invalidate_all). As soon as
     * Redis answers, its answer counts. */
    SHED_REDIS_DOWN_STALE = 2
};

/* Fill it with SHED_CACHE_OPTIONS_INIT. */
struct shed_cache_options {
    size_t size;
    uint64_t ttl_ms;          /* [1, 10 years]; how long a row is fresh; Redis
                                 keeps it longer by the stale windows below, and
                                 by 0.2 s */
    uint64_t ttl_jitter_pct;  /* [0, 90]; each ttl is shortened at random by
                                 up to this percentage, so that rows stored
                                 together do not expire together */
    uint64_t negative_ttl_ms; /* [0, 10 years]; how long "no such row" is kept;
                                 0: not kept */
    uint64_t failure_ttl_ms;  /* [0, 60000]; for this long (with jitter, down to
                                 half) a failed load also answers later calls,
                                 which do not load again; 0: the next one does.
                                 Calls that waited for it always get its failure
                                 */
    uint64_t lease_ms;        /* [10, 600000]; a loader that has been silent
                                 for this long is replaced; one that died is
                                 replaced at once where pushes work */
    uint64_t grace_ms;        /* [0, 60000]; a loader that seems dead is not
                                 replaced before its lease is this old */
    uint64_t timeout_ms;      /* [1, 3600000]; default deadline of a call */
    uint64_t value_limit_bytes; /* [1, 256 MiB]; longest payload */
    uint64_t redis_down;        /* enum shed_redis_down */
    /* The life of a row, by its age. Both windows begin at the end of the ttl:
     *
     *   0                                   a get takes it
     *   refresh_after_pct of ttl_ms         the same; one process loads it
     *                                       again in the background
     *   ttl_ms                              the same, as SHED_ORIGIN_STALE
     *   ttl_ms + stale_while_revalidate_ms  a get waits for a load; if that
     *                                       fails, or takes soft_timeout_ms, it
     *                                       takes the row, as SHED_ORIGIN_STALE
     *   ttl_ms + stale_if_error_ms          the row is gone
     *
     * The part of an option that is 0 is left out. If stale_if_error_ms is the
     * shorter window, the row is gone where the longer one ends, as it is in
     * Redis. ttl_ms is meant with its jitter, and can be the row's own.
     *
     * None of this applies to "no such row": after negative_ttl_ms a get waits
     * for a load, and if that fails, so does the get, with SHED_ESOURCE. */
    uint64_t refresh_after_pct; /* [0, 100]; a row that is read when this much
                                   of its ttl is over is loaded again in the
                                   background, by one process for all. A read
                                   may find it due earlier, by (time of its
                                   load) * -ln(u), with u random in (0, 1] for
                                   each read (XFetch), but by at most a quarter
                                   of that time, however slow loads become.
                                   Leave as much before the ttl, or a window
                                   behind it, as a load takes: who needs the row
                                   after its end waits for the load that is
                                   under way. 0: never */
    uint64_t stale_while_revalidate_ms; /* [0, 10 years]; how long after its ttl
                                           a row is still given out, as
                                           SHED_ORIGIN_STALE, while one process
                                           loads it again; 0: callers wait for
                                           the load */
    uint64_t stale_if_error_ms; /* [0, 10 years]; how long after its ttl a row
                                   is still given out, as SHED_ORIGIN_STALE, to
                                   a call that would otherwise end with
                                   SHED_ESOURCE, SHED_EBUSY, SHED_ETIMEDOUT,
                                   SHED_EREDIS or SHED_ENOMEM. If it is set,
                                   every get begins with a GET, even if this
                                   process is loading the row */
    uint64_t undelivered_limit; /* [0, 100000]; most keys of which Redis could
                                   not be told, and will be when it can, see
                                   shed_invalidate; 0: none is */
    uint64_t soft_timeout_ms;   /* [0, 3600000]; a call that has found a row
                                   which it may be given if the load fails
                                   (within stale_if_error_ms) waits only this
                                   long for the load; then it gets that row, and
                                   at once if the load, of this or another
                                   process, has taken that long already. The load
                                   goes on behind it, and what it brings is
                                   stored. How long a call waits for a Redis that
                                   hangs is bounded by command_timeout_ms and its
                                   deadline, not by this. Refused unless
                                   stale_if_error_ms exceeds
                                   stale_while_revalidate_ms: there would be no
                                   such row. 0: the call waits for up to its
                                   timeout_ms */
    uint64_t tags_limit;        /* [0, 100000]; most tags whose invalidation is
                                   remembered, in Redis and by each process, see
                                   shed_invalidate_all; use the same number in all
                                   processes. 0: the cache cannot invalidate by tag,
                                   or all entries at once */
    uint64_t local_bytes; /* [65536, 1 TiB]; most memory for the local rows of
                             SHED_REDIS_DOWN_STALE, never exceeded; a row that
                             needs more than a sixteenth of it is not kept. Not
                             used by the other policies */
};

#define SHED_CACHE_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct shed_cache_options), 300000, 10, 10000, 500, 10000, 100, \
            5000, 1048576, SHED_REDIS_DOWN_SOURCE, 50, 0, 0, 10000, 0, 10000,  \
            67108864                                                           \
    }

/* For pages that rather show an old row than wait: a row is given out for a
 * minute after its ttl while it is loaded again, and for an hour if the load
 * fails or takes more than 200 ms; while Redis is away, from local rows. */
#define SHED_CACHE_OPTIONS_SERVE_STALE                                         \
    {                                                                          \
        sizeof(struct shed_cache_options), 300000, 10, 10000, 500, 10000, 100, \
            5000, 1048576, SHED_REDIS_DOWN_STALE, 50, 60000, 3600000, 10000,   \
            200, 10000, 67108864                                               \
    }

#define SHED_NAME_MAX_BYTES 64  /* longest name of a cache */
#define SHED_KEY_MAX_BYTES 1024 /* longest key */

/* For the timeout_ms of a call: use that of the cache's options. */
#define SHED_TIMEOUT_DEFAULT UINT64_C(0)

/*
 * Open a cache. In Redis the entry of KEY has the key NAME:{KEY}.
 *
 * name is 1 to SHED_NAME_MAX_BYTES of printable ASCII without space, '{' and
 * '}', and not "lock", with which the keys of locks begin. A process may have
 * only one cache of a name; a client refuses a second one. options may be NULL.
 * The cache keeps client and source alive until it is closed.
 *
 * Returns: SHED_OK and *out; SHED_EINVAL, SHED_ENOMEM, SHED_EFORKED; then *out
 * is NULL.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_cache_open(struct shed_client *client, const char *name,
                struct shed_source *source,
                const struct shed_cache_options *options,
                struct shed_cache **out, struct shed_error *err);

/*
 * Check that Redis can be reached, and grants the rights that the cache needs,
 * its tags and its source's fleet_loads included. Call it when the program
 * starts, so that the operator learns at once of what is wrong. Nothing is
 * written.
 *
 * From Redis 7 on, err lists what the user lacks in the form that ACL SETUSER
 * takes, such as "+get ~item:*": first commands without a key, channels and
 * keys (a long one, or one with blanks, as a pattern); when these are granted,
 * the commands on keys. On older servers SHED_OK says only that Redis can be
 * reached and runs scripts.
 *
 * Blocks: one to three round trips, timeout_ms at most (SHED_TIMEOUT_DEFAULT:
 * the cache's own).
 * Returns: SHED_OK; SHED_EDENIED (a right is missing, or the password or the
 * database is refused), SHED_EREDIS (Redis cannot be reached, or is a replica),
 * SHED_ETIMEDOUT, SHED_EINVAL, SHED_EBUSY, SHED_ENOMEM, SHED_EFORKED.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_cache_probe(struct shed_cache *cache, uint64_t timeout_ms,
                 struct shed_error *err);

/*
 * Close a cache, on which no call may be under way. Undelivered
 * invalidations are sent once more; those that fail are dropped, each with a
 * SHED_EVENT_INVALIDATION_DROPPED. NULL is allowed.
 *
 * Blocks: without limit until its loads are done, then timeout_ms at most.
 */
SHED_API void shed_cache_close(struct shed_cache *cache);

/* Whether a call may be given a row that is no longer fresh, as
 * SHED_ORIGIN_STALE. */
enum shed_stale {
    SHED_STALE_DEFAULT = 0, /* as the cache's options say */
    SHED_STALE_NEVER = 1,   /* no, not even if the load fails; nor a local row
                               (SHED_REDIS_DOWN_STALE) */
    SHED_STALE_ALLOWED = 2  /* yes, any row that Redis still has, at once; it is
                               loaded again in the background */
};

/* What one get asks for. Fill it with SHED_GET_OPTIONS_INIT. */
struct shed_get_options {
    size_t size;
    uint64_t timeout_ms;      /* [1, 3600000]; counts from now;
                                 SHED_TIMEOUT_DEFAULT: the cache's own */
    uint64_t soft_timeout_ms; /* [0, 3600000]; counts from now, as in the
                                 cache's options; timeout_ms or more: none; 0:
                                 the cache's own. A call that finds no row which
                                 it may be given if the load fails waits up to
                                 its timeout_ms all the same. Where
                                 stale_if_error_ms is 0, or with
                                 SHED_STALE_NEVER, that is nearly every call
                                 that needs a load; it is not refused, so that
                                 all caches can be called alike */
    uint64_t max_age_ms;      /* [0, 10 years]; no answer is older than this,
                                 not even "no such row", whatever allow_stale
                                 and the cache's options say. For an older entry
                                 the call waits for a load, one for all callers
                                 of all processes, and fails if that does; to
                                 take what there is then, call again without
                                 this, with only_cached and SHED_STALE_ALLOWED.
                                 What is stored during the call is young enough;
                                 an age that is not known (without the right to
                                 TIME) is too old. What was stored before Redis'
                                 clock was set back counts as younger by that
                                 step. If the load reads a lower
                                 version of the row than Redis has, the row in
                                 Redis is the answer while its ttl lasts (see
                                 struct shed_answer). 0: no limit */
    uint64_t only_cached;     /* 1: the call takes what Redis has, in one round
                                 trip, or ends with SHED_EMISS. It neither
                                 starts nor awaits a load or refresh. An entry
                                 that max_age_ms or allow_stale rule out is a
                                 miss. So is a row that only stale_if_error_ms
                                 would permit, since no load has failed, unless
                                 allow_stale is SHED_STALE_ALLOWED. While Redis
                                 cannot be read, the call takes a local row
                                 (SHED_REDIS_DOWN_STALE) or ends with
                                 SHED_EREDIS. 0: it may load */
    uint64_t allow_stale;     /* enum shed_stale */
    /* For shed_get_many, which sets as many as it has keys: why each item
     * failed, SHED_OK where it has a value. Untouched with SHED_EINVAL and
     * SHED_EFORKED. NULL: not wanted. */
    struct shed_error *errors;
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
 * key is any 1 to SHED_KEY_MAX_BYTES bytes. options may be NULL. Unless its
 * origin is SHED_ORIGIN_STALE, the value was current at some instant during the
 * call.
 *
 * Blocks: until answered, timeout_ms at most.
 * Returns: SHED_OK and *out, a reference of yours (whose kind may be
 * SHED_KIND_ABSENT); SHED_EINVAL, SHED_ETIMEDOUT, SHED_EBUSY (the source's
 * queue is full, or too many callers wait), SHED_ESOURCE (the load failed, here
 * or elsewhere, or the source's breaker is open), SHED_EMISS (only with
 * only_cached: nothing is known of the row, which is not the same as "no such
 * row"), SHED_ETOOBIG, SHED_EREDIS (only with SHED_REDIS_DOWN_FAIL or
 * only_cached), SHED_EDENIED, SHED_ENOMEM, SHED_ECLOSED, SHED_EFORKED; then
 * *out is NULL.
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

#define SHED_MANY_MAX 10000 /* most keys of one call */

/*
 * Get many keys: what is cached in one pipeline, the rest loaded in batches.
 *
 * A key may occur in items more than once. count 0 is allowed, SHED_MANY_MAX is
 * the most. options, which may be NULL, apply to each key.
 *
 * Ownership: give each value back, even if the call fails.
 * Blocks: until all are answered, timeout_ms at most.
 * Returns: SHED_OK if every item is; else the code of the first item that is
 * not (SHED_EMISS only if no item has another failure), and its reason, which
 * begins with its index ("items[3]"). Every item is set, and those that were
 * answered have a value. Only with SHED_EINVAL no item has one, and every code
 * is SHED_EINVAL. The reason of each item: options->errors.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_many(struct shed_cache *cache, struct shed_item *items, size_t count,
              const struct shed_get_options *options, struct shed_error *err);

#define SHED_TAG_MAX_BYTES 250 /* longest tag */
#define SHED_TAGS_MAX 64       /* most tags of an entry */

/* What a put stores with the row. Fill it with SHED_PUT_OPTIONS_INIT. */
struct shed_put_options {
    size_t size;
    uint64_t
        timeout_ms;  /* [1, 3600000]; SHED_TIMEOUT_DEFAULT: the cache's own */
    uint64_t ttl_ms; /* [0, 10 years]; how long the row is fresh, without
                        jitter; the cache's stale windows follow. 0: as the
                        cache's ttl_ms and ttl_jitter_pct say */
    const uint64_t *version;       /* NULL: none. See shed_put */
    const struct shed_bytes *tags; /* see shed_invalidate_tags; the cache must
                                      have the option tags_limit */
    size_t tags_count;             /* [0, SHED_TAGS_MAX] */
};

#define SHED_PUT_OPTIONS_INIT                                                  \
    {                                                                          \
        sizeof(struct shed_put_options), SHED_TIMEOUT_DEFAULT, 0, NULL, NULL,  \
            0                                                                  \
    }

/*
 * Store a row that you have just committed, and revoke loads of the key that
 * are under way. Call it after COMMIT. options may be NULL.
 *
 * row is stored as it is, and gets cannot tell it from a loaded one: give the
 * bytes that the source would give for it. With the MySQL source, select them
 * in the transaction, after the UPDATE, by the expression of the source's query
 * and on a connection of shed_mysql_connect. Let the expression be a text, as
 * JSON_OBJECT(...) and CAST(... AS CHAR) are: a number such as a DOUBLE may be
 * written differently by mysql_query.
 *
 * The tags replace those of the earlier entry; a put without tags removes them.
 *
 * Puts of one key can arrive in the wrong order. Where a row has several
 * writers, use shed_invalidate, or give a version: a number that grows with
 * each change of the row, such as a column that each UPDATE increments. Of two
 * puts the row with the higher version stays, in whichever order they arrive;
 * with equal versions, the later arrival. An entry without a version (see
 * struct shed_answer; the query of the MySQL source can select one), or "no
 * such row", is removed instead of replaced, because nobody knows which is
 * newer: the next get loads.
 *
 * With versions, a source that reads a lagging replica does not bring back what
 * was before the put: a load that was under way is not stored, and one that
 * refreshes the row and reads a lower version counts as failed (see
 * struct shed_answer).
 *
 * Redis knows the version only while it has the entry. After that has expired
 * or was invalidated, any put or load is stored: so an old row is stored if its
 * put took longer than the ttl, or if the invalidation for a later change
 * overtook it. An invalidation of all entries or of a tag leaves the entry in
 * Redis, and so its version for puts; a load replaces it, whatever the version.
 *
 * Blocks: one round trip; if its connection is lost meanwhile, up to a second,
 * after which Redis refuses what may still be on its way; timeout_ms at most.
 * Returns: SHED_OK: Redis has the row, or, with a version, a later one or none;
 * SHED_EINVAL, SHED_ETOOBIG: nothing was written;
 * SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY, SHED_EDENIED: it may have been
 * written or not, and is not written later; the invalidation of the key is
 * undelivered, see shed_invalidate;
 * SHED_ENOMEM: nothing will be delivered: repeat it; SHED_EFORKED.
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
 * If Redis cannot be told, the call fails, but the invalidation is undelivered:
 * the cache remembers it (up to undelivered_limit keys), and Redis is told as
 * soon as it takes it. Until then other processes can read the old row, and
 * this one takes nothing from Redis for the key: a get loads it from the
 * source, or fails with SHED_REDIS_DOWN_FAIL, or with SHED_REDIS_DOWN_STALE,
 * while Redis does not answer, gives out what was loaded since. So in this
 * process no get that begins later returns an older row. If the key could not
 * even be remembered, the reason begins with "dropped": repeat the call.
 *
 * Undelivered keys are lost when the process ends, or closes the cache, before
 * Redis is back: then the old row can be read until its ttl and its stale
 * windows end. If that is too long, write the keys to a table in the
 * transaction that changes the rows, delete each when its call has returned
 * SHED_OK, and call again for the remaining ones when the program starts.
 *
 * Blocks: one round trip, timeout_ms at most (SHED_TIMEOUT_DEFAULT: the
 * cache's own). It fails at once while the client's breaker is open, and after
 * a failed connect until the client tries again.
 *
 * Returns: SHED_OK; SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY, SHED_EDENIED: it
 * may have been removed or not, and is undelivered; SHED_ENOMEM: nothing will
 * be delivered: repeat it; SHED_EINVAL, SHED_EFORKED.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate(struct shed_cache *cache, struct shed_bytes key,
                uint64_t timeout_ms, struct shed_error *err);

/*
 * Let a row be fresh for in_ms more at most (0: make it stale now). After that,
 * within the cache's stale_while_revalidate_ms, it is given out as
 * SHED_ORIGIN_STALE, and loaded again in the background.
 *
 * Use it if readers may see the old row for a moment; if they must see the
 * change, call shed_invalidate. A load under way is revoked as there. Without
 * stale_while_revalidate_ms the next get waits for a load; if that fails, it
 * gets the old row only within stale_if_error_ms. If Redis does not answer, the
 * row becomes stale when this is delivered (see shed_invalidate).
 *
 * Blocks: one round trip, timeout_ms at most (SHED_TIMEOUT_DEFAULT: the
 * cache's own).
 * Returns: as shed_invalidate; SHED_EINVAL, too, if in_ms is above 10 years.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_expire(struct shed_cache *cache, struct shed_bytes key, uint64_t in_ms,
            uint64_t timeout_ms, struct shed_error *err);

/*
 * Invalidate many keys in one pipeline, each as shed_invalidate does.
 *
 * A key may occur in keys more than once. count 0 is allowed, SHED_MANY_MAX is
 * the most. Others can see some keys removed before the rest.
 *
 * Blocks: one round trip, timeout_ms at most (SHED_TIMEOUT_DEFAULT: the
 * cache's own).
 * Returns: SHED_OK if every key was invalidated; SHED_EINVAL, for too many keys
 * or a wrong one (err names it, "keys[3]" say): nothing was removed;
 * SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY, SHED_EDENIED: each may have been
 * removed or not, and those that may not have been are undelivered (if some
 * were dropped, the reason is that of the first of them); SHED_ENOMEM: none is;
 * SHED_EFORKED.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_many(struct shed_cache *cache, const struct shed_bytes *keys,
                     size_t count, uint64_t timeout_ms, struct shed_error *err);

/* ----------------------------------------------------------------- tags */

/*
 * Make every entry of the cache a miss, with one command, however many there
 * are.
 *
 * The cache must have the option tags_limit. Call it after COMMIT. When it has
 * returned SHED_OK, no get of this process that begins later returns an older
 * row, neither as stale nor when a load fails; a load under way answers only
 * calls that began before. Each key is loaded again when it is next read, once
 * for all processes.
 *
 * Another process can return older rows until it has heard of the invalidation:
 * usually for less than 1 ms, because Redis announces it; for up to 1 s where
 * pushes do not work (SHED_WAIT_POLL, or Redis does not grant them); for up to
 * 7 s if its connection for pushes dies silently. A process that opens the
 * cache, or has lost its connection, asks Redis in the round trip of its next
 * get. A put counts as newer than every invalidation that its process knows of:
 * if it can be late, invalidate the key instead.
 *
 * How it works: the invalidation gets a position in a log in Redis, which every
 * process with this cache follows. An entry carries the log's position from
 * when its load began, and is compared with the log when it is read. Nothing is
 * scanned or deleted, and a hit needs no other round trip.
 *
 * Cost: the log is a sorted set, NAME:tags, and a copy in each process. It
 * has a member of about 100 bytes for each tag ever invalidated, at most
 * tags_limit of them. An entry without tags does not grow. A hit costs a
 * comparison, and if its entry is older than the last invalidation, a look-up
 * of each tag. When the log is full its oldest tag is forgotten, and every
 * entry from before that tag's invalidation becomes a miss: set tags_limit
 * above the number of tags that are invalidated during the longest life of an
 * entry.
 *
 * If Redis loses the log (in a failover, by eviction with an allkeys policy, by
 * DEL), the first get of a process that knows of a lost invalidation makes all
 * entries misses once. Until one such process has read, another that started
 * later can read old rows that Redis still has.
 *
 * If Redis cannot be told, the invalidation is undelivered as
 * shed_invalidate describes, and counts as one key of undelivered_limit, as
 * each tag does. Until then every entry that it covers is a miss in this
 * process, even if loaded since, and all local rows are dropped.
 *
 * Blocks: one round trip, timeout_ms at most (SHED_TIMEOUT_DEFAULT: the
 * cache's own).
 * Returns: SHED_OK; SHED_EINVAL (also: the cache has no tags), SHED_EFORKED,
 * SHED_ENOMEM: nothing has changed; SHED_ETIMEDOUT, SHED_EREDIS, SHED_EBUSY,
 * SHED_EDENIED: it may have been noted or not, and is undelivered.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_all(struct shed_cache *cache, uint64_t timeout_ms,
                    struct shed_error *err);

/*
 * Make every entry with one of these tags a miss, as shed_invalidate_all does
 * with all entries. An entry has the tags that it was loaded or put with; one
 * that a process without the option tags_limit has written has none.
 *
 * A tag is any 1 to SHED_TAG_MAX_BYTES bytes. count 0 is allowed, SHED_MANY_MAX
 * is the most; there is one command for each tag, all in one pipeline. If Redis
 * cannot be told of a tag, all local rows are dropped, those without the
 * tag too.
 *
 * Blocks: one round trip, timeout_ms at most (SHED_TIMEOUT_DEFAULT: the
 * cache's own).
 * Returns: as shed_invalidate_all. The reason begins with the index of the
 * first tag that failed, or that was dropped, as in "tags[3]";
 * SHED_EINVAL: none was invalidated.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_tags(struct shed_cache *cache, const struct shed_bytes *tags,
                     size_t count, uint64_t timeout_ms, struct shed_error *err);

#ifdef __cplusplus
}
#endif

#endif
