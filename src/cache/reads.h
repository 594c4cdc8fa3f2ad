/*
 * Lets callers of one key share a GET.
 *
 * A caller may be given what was current at some instant during its call. So it
 * may share a GET only if that is sent after the call began. With many callers,
 * one GET of a key is under way, and all that arrive in the meantime share the
 * next one: one command for Redis, and one reply to parse, for all of them.
 *
 * Any thread.
 */
#ifndef SHED_READS_H
#define SHED_READS_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "entry/entry.h"
#include "entry/key.h"
#include "known/local.h"

/* What GET has found, where it matters to a call with a max_age_ms, or where
 * the value is a miss by one of its tags. */
enum shed_look_found {
    SHED_FOUND_UNKNOWN = 0, /* no usable answer, or a value of unknown age */
    SHED_FOUND_NOTHING,     /* not even a lease: nobody loads the key */
    SHED_FOUND_LEASE,       /* somebody loads it, in this process or another */
    SHED_FOUND_NO_VALUE,    /* a failure marker, say */
    SHED_FOUND_AGED /* one that is too old for the call, or not fresh, or
                       a miss by one of its tags */
};

/* What a value that was found is worth to the call. */
enum shed_look_worth {
    SHED_LOOK_ANSWERS = 0, /* it answers the call */
    SHED_LOOK_OLD,         /* it does if the load fails */
    SHED_LOOK_AGED /* it is fresh, but too old for the call, and answers it if
                      the source has an older one */
};

struct shed_look {
    /* set by shed_look_begin */
    struct shed_local_mark mark;
    /* the result */
    struct shed_value *value;   /* or NULL; a reference of the owner's */
    enum shed_look_worth worth; /* of the value */
    enum shed_look_found found;
    bool is_missed;       /* set by shed_look_begin: an invalidation waits to be
                             delivered, and what GET finds may be older */
    bool is_source_older; /* it has: set by the slow path */
    bool is_known;        /* what Redis has, which may be nothing */
    bool is_local;        /* the value was not read from Redis, but kept here */
    bool must_learn;      /* the log of tags has to be read first, and the key
                             then again; see may_wait */
    bool is_refused;      /* Redis answers, with an error that may pass */
    bool is_revoked;      /* AGED: it is a miss by one of its tags */
    unsigned char aged[SHED_ENTRY_IDENTITY_BYTES]; /* AGED: which one */
};

static inline bool shed_look_has(const struct shed_look *look,
                                 enum shed_look_worth worth)
{
    return look->value != NULL && look->worth == worth;
}

/* Take a value of that worth out of it. Returns: NULL if it has none. */
static inline struct shed_value *shed_look_take(struct shed_look *look,
                                                enum shed_look_worth worth)
{
    struct shed_value *value = look->value;

    if (!shed_look_has(look, worth))
        return NULL;
    look->value = NULL;
    return value;
}

/* Take a reference of what a copied look has for its call. */
static inline void shed_look_ref(const struct shed_look *look)
{
    if (look->value != NULL)
        (void)shed_value_ref(look->value);
}

struct shed_reads;

/* What a GET has brought its caller. */
struct shed_read {
    enum shed_code code;
    struct shed_look look;
    struct shed_error error; /* where code is not SHED_OK */
};

/* Sends GET in this thread, and sets *out. */
typedef void shed_read_fn(void *user, struct shed_read *out);

/* Returns NULL when memory is out. */
struct shed_reads *shed_reads_create(void);

/* No call is under way. NULL is allowed. */
void shed_reads_destroy(struct shed_reads *reads);

/*
 * Answer a call by a GET of key that is sent after this function was called:
 * call read, at most once, or take part in what it has brought another caller.
 * A failure that is the other's own (its deadline, its memory) is not shared;
 * another of those that wait calls its read then.
 *
 * Blocks: what read does, and until deadline_ms (shed_now_ms) for others.
 * Returns: true if *out is another caller's result; its values are references
 * of this caller's.
 */
SHED_MUST_CHECK bool shed_reads_share(struct shed_reads *reads,
                                      const struct shed_key *key,
                                      uint64_t deadline_ms, shed_read_fn *read,
                                      void *user, struct shed_read *out);

#endif
