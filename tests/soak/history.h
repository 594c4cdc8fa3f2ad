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

enum {
    SOAK_KEYS = 12,
    SOAK_VERSIONS = 1 << 15, /* of a key; their times are remembered */
    SOAK_TTL_MS = 400,
    SOAK_REFRESH_AFTER_MS = 150,
    SOAK_REVALIDATE_MS = 300,
    SOAK_IF_ERROR_MS = 600
};

struct soak_key {
    atomic_uint begun;     /* the newest that its writer has sent */
    atomic_uint committed; /* the newest that it knows to be in the database */
    /* The newest that was in the database when an invalidation, or an expiry,
     * was sent that has succeeded since. */
    atomic_uint told, expired;
    _Atomic uint64_t expired_ms; /* when that had been done */
    _Atomic uint64_t committed_ms[SOAK_VERSIONS];
};

enum soak_violation {
    SOAK_STALE,   /* older than an invalidation that was over before the call */
    SOAK_EXPIRED, /* older than such an expiry, and not said to be stale */
    SOAK_UNKNOWN, /* was never written */
    SOAK_TOO_OLD, /* beyond ttl and windows */
    SOAK_BAD_AGE, /* its age says that it is */
    SOAK_FENCE,   /* a lock's number is not above the last */
    SOAK_VIOLATIONS
};

extern const char *const soak_violations[SOAK_VIOLATIONS];

struct soak_history {
    /* What a load, a publish, and a reply that waits while its reader is
     * stopped may add to an age. Set at the beginning. */
    uint64_t slack_ms;
    /* How well a process knows the server's clock, by which it decides what is
     * fresh. */
    uint64_t clock_ms;
    struct soak_key key[SOAK_KEYS];
    _Atomic uint64_t fence; /* the highest that a holder has had */
    _Atomic uint64_t reads, stale, failed, writes, untold, locks;
    _Atomic uint64_t violations[SOAK_VIOLATIONS];
    atomic_bool is_over;
};

/* What a call may be given: taken before it. */
struct soak_floor {
    uint64_t begun_ms;
    unsigned told, expired; /* expired: 0 if that is too young to count */
};

struct soak_floor soak_floor(const struct soak_history *history, unsigned key);

/* Judge what a call was given. */
void soak_judge(struct soak_history *history, unsigned key,
                const struct soak_floor *floor, unsigned version,
                const struct shed_value *value);

/* Report at once what was found. */
void soak_report(struct soak_history *history, enum soak_violation violation,
                 unsigned key, unsigned version, unsigned floor);

/* Raise a mark to at least this version. */
void soak_raise(atomic_uint *mark, unsigned to);

#endif
