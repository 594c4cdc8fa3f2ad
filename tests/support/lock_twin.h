/*
 * A twin of one server as locks see it, in memory and with virtual time: what
 * the scripts lock_*.lua and the plain commands of the other algorithms do to
 * the keys of one lock. test_lock_twin compares it with a real Redis;
 * test_sim_lock runs on it.
 *
 * A client is a connection with tracking. The process p has the id of 16
 * hexadecimal digits that is p.
 */
#ifndef LOCK_TWIN_H
#define LOCK_TWIN_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/talk.h"

#define LOCK_TWIN_TEXT 112 /* the names of six processes, and more */
#define LOCK_TWIN_QUEUE 24

struct lock_twin_text {
    size_t size;
    char at[LOCK_TWIN_TEXT];
};

struct lock_twin_slot {
    bool is_set;
    struct lock_twin_text value;
    uint64_t ends_ms; /* 0: it has no end */
};

struct lock_twin {
    uint64_t now_us; /* the server's clock */
    char run[SHED_RUN_BYTES];
    uint32_t channels; /* processes that are subscribed, a bit each */
    struct lock_twin_slot lock, suspicion, offer, waiters;
    bool has_counter;
    uint64_t counter, counter_ends_ms;
    struct lock_twin_place {
        struct lock_twin_text member;
        uint64_t since_us;
    } queue[LOCK_TWIN_QUEUE];
    size_t queue_count;
    uint64_t queue_ends_ms;
    uint32_t trackers; /* clients that have read the lock since it changed */
    uint32_t
        pushed; /* clients that were sent a push; a reader takes them out */
};

/* One command, as it arrives. */
struct lock_twin_call {
    enum {
        LOCK_TWIN_SETNX,
        LOCK_TWIN_GET,
        LOCK_TWIN_GETSET,
        LOCK_TWIN_DEL,
        LOCK_TWIN_EXPIRE,
        LOCK_TWIN_PTTL,
        LOCK_TWIN_SCRIPT
    } what;
    enum shed_script script;
    unsigned client;
    bool is_fair;
    struct lock_twin_text arg[6]; /* after the keys */
};

struct lock_twin_reply {
    enum {
        LOCK_TWIN_NIL,
        LOCK_TWIN_INTEGER,
        LOCK_TWIN_STRING,
        LOCK_TWIN_HELD, /* with the number */
        LOCK_TWIN_TAKEN /* with the time */
    } type;
    long long integer;
    struct lock_twin_text string;
};

struct lock_twin_text lock_twin_text(const void *bytes, size_t size);

/* A number in decimal. */
uint64_t lock_twin_number(const struct lock_twin_text *text);

/* The command that a talk has just said. */
void lock_twin_read(struct lock_twin_call *call, enum shed_script script,
                    const struct shed_args *args);

void lock_twin_execute(struct lock_twin *twin,
                       const struct lock_twin_call *call,
                       struct lock_twin_reply *reply);

/* Remove what has ended, and push it, as the server does sooner or later. */
void lock_twin_expire(struct lock_twin *twin);

/* Lose all data. */
void lock_twin_flush(struct lock_twin *twin);

/* A reply in the form that a talk hears; it lives as long as memory. */
struct lock_twin_memory {
    redisReply whole, part[2];
    redisReply *parts[2];
    char digits[24];
};
const struct shed_reply *lock_twin_say(const struct lock_twin_reply *reply,
                                       struct lock_twin_memory *memory);

/* Whether the lock is this holder's, in the record of LEASE or as plain text.
 */
bool lock_twin_is_held_by(const struct lock_twin *twin,
                          const struct shed_lock_holder *holder);

#endif
