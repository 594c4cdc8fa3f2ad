/* A lock as it is in Redis now: read, then shown as text or as JSON. */
#ifndef CLI_LOCK_VIEW_H
#define CLI_LOCK_VIEW_H

#include "cli/entry_view.h"
#include "lock/keys.h"

enum cli_lock_state {
    CLI_LOCK_FREE,
    CLI_LOCK_HELD,    /* by a LEASE or QUORUM lock of this library */
    CLI_LOCK_STAMP,   /* a number: TIMESTAMP, or a foreign client's token */
    CLI_LOCK_TEXT,    /* any other string: SETNX, EXPIRE, or a foreign client */
    CLI_LOCK_UNKNOWN, /* a record of a version of this library that we do not
                         know */
    CLI_LOCK_NO_LOCK  /* no string */
};

#define CLI_LOCK_STATES 6

#define CLI_QUEUE_SHOWN 10
#define CLI_RUN_BYTES SHED_RUN_BYTES

struct cli_waiter {
    char process[SHED_PROCESS_BYTES]; /* blanks: it is not known */
    uint64_t since_ms;                /* of the server's clock */
    uint64_t wait_ms;                 /* how long it said that it waits */
    enum cli_life life;
};

struct cli_lock {
    const char *name;
    size_t name_size;
    struct shed_lock_options options; /* which the spec points to */
    struct shed_lock_spec spec;
    char *room; /* which they point into */
    bool is_exact;
    enum cli_lock_state state;
    struct shed_reply *reply; /* what is at the key */
    /* of HELD; they point into reply */
    const unsigned char *token;
    const char *process, *run;
    enum cli_life life;
    bool is_restarted; /* the server, since the record was written */
    /* of STAMP: until when, by some host's clock; 0: the number is no time */
    uint64_t stamp_ms;
    long long pttl;
    long long number; /* the last fencing number given; 0: none */
    long long queued;
    struct cli_waiter waiters[CLI_QUEUE_SHOWN]; /* the first of them */
    bool has_mark; /* somebody waited a moment ago, without a queue */
    uint64_t now_ms;
};

/* Read it: at lock:{NAME}, or, where nothing is there or exact_key is wanted,
 * at NAME. */
void cli_lock_read(struct cli_redis *redis, const char *name, size_t name_size,
                   bool is_exact, struct cli_lock *out);
void cli_lock_free(struct cli_lock *lock);

/* Whether the same record is in both. */
bool cli_lock_is_same(const struct cli_lock *a, const struct cli_lock *b);

#endif
