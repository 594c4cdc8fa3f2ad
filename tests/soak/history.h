/*
 * What has happened to the database, in memory that all processes share, and
 * what a reader may be given by it. Rows have versions that grow by one with
 * each write; a key is written by one process only.
 *
 * All functions may be called by any process; a process may be killed in any of
 * them.
 */
#ifndef SOAK_HISTORY_H
#define SOAK_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "soak/account.h"
#include "soak/fleet.h"
#include "soak/mark.h"
#include "soak/sample.h"
#include "soak/trouble.h"

enum {
    SOAK_SHORT_KEYS = 12,
    SOAK_KEYS = 20, /* keys from this number on have no row */
    SOAK_TAGS = 2,
    SOAK_VERSIONS = 1 << 15, /* of a key; their times are remembered */
    SOAK_TTL_MS = 400,
    SOAK_LONG_TTL_MS = 10000,
    SOAK_REFRESH_AFTER_PCT = 38,
    SOAK_REVALIDATE_MS = 300,
    SOAK_IF_ERROR_MS = 600,
    SOAK_MAX_AGE_MS = 100,
    /* How far behind the server's clock a process may be, by which it decides
     * what is fresh: its estimate is kept within the bounds of its last TIME,
     * or is ahead. What remains is the rounding of both clocks to ms, twice,
     * and 500 ppm, the most that NTP lets them drift apart, of 6 s: between two
     * TIMEs are 3 s. */
    SOAK_CLOCK_MS = 5,
    /* How far ahead of it, which only makes an age look greater: the round trip
     * of the quickest TIME so far. Every connection begins with one, and there
     * is one every 3 s. While a process is young, all may have been slow: up to
     * its command_timeout_ms. */
    SOAK_AHEAD_MS = 1000,
    SOAK_QUICK_MS = 50,
    SOAK_LEEWAY_MS = 200, /* LEEWAY of src/redis/entry.lua */
    SOAK_YOUNG_MS = 10000,
    /* A load sleeps for up to SOAK_SLEEP_MS for each row, after it has read the
     * first. */
    SOAK_SLEEP_MS = 30,
    SOAK_BATCH = 4, /* rows at most */
    /* How long another process may not have heard of an invalidation of a
     * tag: where pushes do not work. (They never die silently here.) */
    SOAK_HEARD_MS = 1000
};

/* The keys are in two caches. A key of the long one is invalidated with tags
 * alone, and read by one process, which is not its writer. If that process
 * misses an invalidation, the old row is in Redis for longer than a process may
 * take to hear of one. */
enum soak_cache { SOAK_SHORT, SOAK_LONG, SOAK_CACHES };

static inline enum soak_cache soak_cache_of(unsigned key)
{
    return key < SOAK_SHORT_KEYS ? SOAK_SHORT : SOAK_LONG;
}

static inline unsigned soak_reader_of(unsigned key)
{
    return (key + 1) % SOAK_WORKERS;
}

/* Each process writes keys with every tag. */
static inline unsigned soak_tag_of(unsigned key)
{
    return key / SOAK_WORKERS % SOAK_TAGS;
}

/* Keys that one call invalidates: a cache's keys with a tag, or all of them. */
struct soak_tag {
    enum soak_cache cache;
    unsigned tag; /* SOAK_TAGS: all */
};

static inline bool soak_covers(const struct soak_tag *tag, unsigned key)
{
    return soak_cache_of(key) == tag->cache &&
           (tag->tag == SOAK_TAGS || tag->tag == soak_tag_of(key));
}

struct soak_key {
    atomic_uint begun;     /* the newest that its writer has sent */
    atomic_uint committed; /* the newest that it knows to be in the database */
    /* The newest that was in the database when an invalidation, or an expiry,
     * was sent that has succeeded since. */
    atomic_uint told, expired;
    /* The same for invalidations of a tag of the key: of the newest, and of the
     * newest that every process must have heard of. */
    atomic_uint grouped, heard;
    _Atomic uint64_t grouped_ms; /* when that was over */
    /* A put of this version may still be carried out, however old it is by
     * then, or what it has put may still be there. UINT64_MAX: the put is under
     * way. */
    atomic_uint doubtful;
    _Atomic uint64_t doubtful_until_ms; /* 0: none is */
    _Atomic uint64_t expired_ms;        /* when that had been done */
    _Atomic uint64_t committed_ms[SOAK_VERSIONS];
};

enum soak_violation {
    SOAK_STALE,   /* older than an invalidation that was over before the call */
    SOAK_OWN,     /* older than a write of its own process, done or kept */
    SOAK_GROUPED, /* the same, of a tag, by any */
    SOAK_EXPIRED, /* older than such an expiry, and not said to be stale */
    SOAK_UNKNOWN, /* was never written */
    SOAK_TOO_OLD, /* beyond what the call allowed, or ttl and windows */
    SOAK_BAD_AGE, /* its age says that it is */
    SOAK_REPLACED,  /* its age says that it had been replaced before a load that
                       stored it can have read it */
    SOAK_FORBIDDEN, /* stale, to a call that wants nothing stale */
    SOAK_LOADED,    /* of a load, to a call that wants none */
    SOAK_FENCE,     /* a lock's number is not above the last */
    SOAK_LOADS,     /* more at a time than fleet_loads */
    SOAK_FAILED,    /* with healthy servers */
    SOAK_OVERDUE,   /* returned long after its deadline */
    SOAK_VIOLATIONS
};

extern const char *const soak_violations[SOAK_VIOLATIONS];

/* What is written, so that what a failover has lost stays to be seen: a later
 * write of a key hides it, and so does a log of tags that has lost its end. */
enum soak_writes { SOAK_ALL_WRITES, SOAK_NO_TAGS, SOAK_NO_WRITES };

struct soak_history {
    /* How long it may take from reading a row until it is stored, without what
     * was wrong meanwhile; and how long after a put that has failed it may be
     * carried out. Set at the beginning. */
    uint64_t load_ms, slack_ms;
    /* After it each process has heard of an invalidation. Set at the beginning.
     */
    uint64_t heard_ms;
    uint64_t ttl_ms[SOAK_CACHES]; /* set at the beginning */
    /* Until then a new primary may lack what the former one has confirmed;
     * UINT64_MAX: its clients cannot know of it yet. */
    _Atomic uint64_t lacking_until_ms;
    _Atomic uint64_t lacked; /* reads that such a server has answered */
    _Atomic enum soak_writes writes_now;
    _Atomic uint64_t repeated; /* writes, because of another server */
    struct soak_key key[SOAK_KEYS];
    _Atomic uint64_t fence; /* the highest that a holder has had */
    struct soak_account account;
    struct soak_fleet fleet;
    struct soak_troubles troubles;
    /* The longest that a row was stored, or given out beyond its windows, after
     * it had been replaced: if nothing was wrong meanwhile, and else. */
    _Atomic uint64_t late_ms, troubled_ms;
    /* How far an age was beyond its windows in a process that is not young. */
    _Atomic uint64_t ahead_ms;
    _Atomic uint64_t writes, puts, untold, locks;
    _Atomic uint64_t kept; /* writes of a key that Redis could not be told */
    _Atomic uint64_t allocated[SOAK_WORKERS]; /* bytes, now */
    /* Of each process that has lived until the end: before it has opened
     * anything, and after it has closed all. */
    struct soak_sample before[SOAK_WORKERS], after[SOAK_WORKERS];
    _Atomic uint64_t violations[SOAK_VIOLATIONS];
    atomic_bool is_over;
};

/* What a call may be given: taken before it. */
struct soak_floor {
    uint64_t begun_ms;
    unsigned told, expired; /* expired: 0 if that is too young to count */
    unsigned heard;         /* invalidated with a tag, for all processes */
    unsigned own;           /* written by the caller's; set by the caller */
    unsigned doubtful;      /* may come back although it is older; 0: none */
    /* The caller's process keeps rows (SHED_REDIS_DOWN_STALE): a stale one can
     * be older than what others have told Redis. */
    bool is_keeper;
    uint64_t age_ms; /* of the caller's process; set by the caller */
};

struct soak_floor soak_floor(const struct soak_history *history, unsigned key);

/* An invalidation of a tag of key has succeeded. version was in the database
 * when it was sent. */
void soak_note_tag(struct soak_history *history, unsigned key,
                   unsigned version);

/* Judge what a call was given that has asked for this. version is 0 for a key
 * that has no row. */
void soak_judge(struct soak_history *history, unsigned key,
                const struct soak_floor *floor,
                const struct shed_get_options *asked, unsigned version,
                const struct shed_value *value);

/* Before a put of version. Returns: false: there is still doubt about an
 * earlier one, so it must not be made. */
bool soak_begin_put(struct soak_history *history, unsigned key,
                    unsigned version);

/* After a put; without is_done it may be carried out later, or not. */
void soak_end_put(struct soak_history *history, unsigned key, bool is_done);

/* The writer of key has been killed, and what it was doing with it. */
void soak_inherit(struct soak_history *history, unsigned key);

/* Report at once what was found. */
void soak_report(struct soak_history *history, enum soak_violation violation,
                 unsigned key, unsigned version, unsigned floor);

#endif
