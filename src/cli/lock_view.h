/* A lock as it is in Redis now. */
#ifndef CLI_LOCK_VIEW_H
#define CLI_LOCK_VIEW_H

#include "cli/presence.h"
#include "lock/keys.h"

enum cli_lock_state {
    CLI_LOCK_FREE,
    CLI_LOCK_HELD,    /* by a LEASE or QUORUM lock of this library */
    CLI_LOCK_STAMP,   /* a number: TIMESTAMP, or a foreign client's token */
    CLI_LOCK_TEXT,    /* any other string: SETNX, EXPIRE, or a foreign client */
    CLI_LOCK_UNKNOWN, /* a record of an unknown version of this library */
    CLI_LOCK_NO_LOCK  /* not a string */
};

#define CLI_LOCK_STATES 6

#define CLI_QUEUE_SHOWN 10

struct cli_waiter {
    uint64_t since_ms; /* by the server's clock */
    uint64_t wait_ms;  /* how long it announced that it waits */
    struct cli_presence presence;
};

struct cli_lock {
    struct shed_bytes name;
    struct shed_lock_options options; /* the spec points to them */
    struct shed_lock_spec spec;
    char *room; /* the keys point into it */
    bool is_exact;
    bool is_denied; /* this user may not read it; reply is the error */
    enum cli_lock_state state;
    struct shed_reply *reply; /* what is at the key */
    /* for HELD; they point into reply */
    const unsigned char *token;
    const char *run;
    struct cli_presence presence; /* of the holder */
    bool is_restarted; /* the server was restarted after the record was written
                        */
    /* for STAMP: the end, by some host's clock; 0: the number is not a time */
    uint64_t stamp_ms;
    long long pttl;
    long long number; /* the last fencing number; 0: none */
    long long queued;
    struct cli_waiter waiters[CLI_QUEUE_SHOWN]; /* the first ones */
    bool has_mark; /* no queue, but somebody waited a moment ago */
    uint64_t now_ms;
};

/* Read a lock: at lock:{NAME}; at NAME if nothing is there, or with
 * is_exact. */
void cli_lock_read(struct cli_redis *redis, struct shed_bytes name,
                   bool is_exact, struct cli_lock *out);
void cli_lock_free(struct cli_lock *lock);

/* Whether somebody holds it, as far as can be seen. */
bool cli_lock_is_held(const struct cli_lock *lock);

/* Whether the process that holds it is known. */
bool cli_lock_has_process(const struct cli_lock *lock);

/* What states are called: as a word, and in a sentence. */
struct cli_lock_names {
    const char *name, *text;
};

extern const struct cli_lock_names cli_lock_states[CLI_LOCK_STATES];

/* The lock's own key. */
struct shed_bytes cli_lock_key(const struct cli_lock *lock);

#endif
