/*
 * A model of one server as locks see it, in memory and with virtual time: it
 * does what the scripts lock_*.lua and the plain commands of the other
 * algorithms do to the keys of one lock. test_lock_model compares it with a
 * real Redis; test_lock_sim runs on it.
 *
 * A client is a connection with tracking. The process p has the id of 16
 * hexadecimal digits that is p.
 */
#ifndef LOCK_MODEL_H
#define LOCK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/protocol.h"
#include "wire/reply.h"

#define LOCK_MODEL_TEXT 112 /* enough for the names of six processes */
#define LOCK_MODEL_QUEUE 24

struct lock_model_text {
    size_t size;
    char at[LOCK_MODEL_TEXT];
};

struct lock_model_slot {
    bool is_set;
    struct lock_model_text value;
    uint64_t ends_ms; /* 0: no expiry */
};

struct lock_model {
    uint64_t now_us; /* the server's clock */
    char run[SHED_RUN_BYTES];
    uint32_t channels; /* subscribed processes, a bit each */
    struct lock_model_slot lock, suspicion, offer, waiters;
    bool has_counter;
    uint64_t counter, counter_ends_ms;
    struct lock_model_place {
        struct lock_model_text member;
        uint64_t since_us;
    } queue[LOCK_MODEL_QUEUE];
    size_t queue_count;
    uint64_t queue_ends_ms;
    uint32_t
        trackers; /* clients that have read the lock since its last change */
    uint32_t
        pushed; /* clients that were sent a push; the reader removes them */
};

/* One command, as it arrives. */
struct lock_model_call {
    enum {
        LOCK_MODEL_SETNX,
        LOCK_MODEL_GET,
        LOCK_MODEL_GETSET,
        LOCK_MODEL_DEL,
        LOCK_MODEL_EXPIRE,
        LOCK_MODEL_PTTL,
        LOCK_MODEL_SCRIPT
    } what;
    enum shed_script script;
    unsigned client;
    bool is_fair;
    struct lock_model_text arg[8]; /* after the keys */
};

struct lock_model_reply {
    enum {
        LOCK_MODEL_NIL,
        LOCK_MODEL_INTEGER,
        LOCK_MODEL_STRING,
        LOCK_MODEL_HELD, /* with the number */
        LOCK_MODEL_TAKEN /* with the time */
    } type;
    long long integer;
    struct lock_model_text string;
};

struct lock_model_text lock_model_text(const void *bytes, size_t size);

/* A number in decimal. */
uint64_t lock_model_number(const struct lock_model_text *text);

/* Parse the command that an exchange has just made. */
void lock_model_read(struct lock_model_call *call, enum shed_script script,
                     const struct shed_args *args);

void lock_model_execute(struct lock_model *model,
                        const struct lock_model_call *call,
                        struct lock_model_reply *reply);

/* Remove keys that have expired, and push them, as the server does sooner or
 * later. */
void lock_model_expire(struct lock_model *model);

/* Lose all data. */
void lock_model_flush(struct lock_model *model);

/* A reply in the form that an exchange takes; it is valid as long as memory. */
struct lock_model_memory {
    struct shed_reply whole, part[2];
    struct shed_reply *parts[2];
    char digits[24];
};
const struct shed_reply *
lock_model_to_reply(const struct lock_model_reply *reply,
                    struct lock_model_memory *memory);

/* Whether the lock is this holder's, in the record of LEASE or as plain text.
 */
bool lock_model_is_held_by(const struct lock_model *model,
                           const struct shed_lock_holder *holder);

#endif
