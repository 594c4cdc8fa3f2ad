/*
 * What the reply to a GET is worth to a call: an answer, or a value to fall
 * back on, and whether it is to be refreshed in the background. Any thread.
 */
#ifndef SHED_LOOK_H
#define SHED_LOOK_H

#include <stdbool.h>

#include "cache/cache.h"
#include "entry/entry.h"
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
    SHED_LOOK_OLD          /* it does if the load fails */
};

struct shed_look {
    /* set by shed_look_begin */
    struct shed_local_mark mark;
    /* the result */
    struct shed_value *value; /* or NULL; a reference of the owner's */
    unsigned char worth;      /* of the value; an enum shed_look_worth */
    unsigned char found;      /* an enum shed_look_found */
    bool is_missed;  /* set by shed_look_begin: an invalidation waits to be
                        delivered, and what GET finds may be older */
    bool is_known;   /* what Redis has, which may be nothing */
    bool is_local;   /* the value was not read from Redis, but kept here */
    bool must_learn; /* the log of tags has to be read first, and the key
                        then again */
    bool is_refused; /* Redis answers, with an error that may pass */
    bool is_revoked; /* AGED: it is a miss by one of its tags */
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

/* What a call asks for. */
struct shed_terms {
    uint64_t max_age_ms; /* 0: no bound */
    bool has_own_rule;   /* else it is the cache's */
    bool only_cached;    /* it begins nothing */
    bool is_second;   /* what GET finds is to fall back on, and counted if it is
                        handed out, by shed_look_fall_back */
    bool looks_first; /* even where a flight is under way */
    bool takes_local; /* what the process has kept, if Redis cannot be read */
    unsigned char allow_stale; /* enum shed_stale */
    uint32_t timeout_ms;
    uint32_t soft_timeout_ms; /* then an old value will do; 0: never */
    uint64_t start_us;        /* when the call began to wait */
};

/* The call's own rule, under its cache's. */
static inline struct shed_freshness_rule
shed_terms_rule(const struct shed_terms *terms, const struct shed_cache *cache)
{
    return shed_freshness_rule_of_call(&cache->rule, terms->max_age_ms,
                                       (enum shed_stale)terms->allow_stale);
}

static inline uint64_t shed_terms_deadline_ms(const struct shed_terms *terms)
{
    return terms->start_us / 1000 + terms->timeout_ms;
}

/* Whether an old value will do before the deadline. */
static inline bool shed_terms_are_soft(const struct shed_terms *terms)
{
    return terms->soft_timeout_ms > 0 &&
           terms->soft_timeout_ms < terms->timeout_ms;
}

/* Of terms that are soft: from then on. */
static inline uint64_t
shed_terms_soft_deadline_ms(const struct shed_terms *terms)
{
    return terms->start_us / 1000 + terms->soft_timeout_ms;
}

/* A GET is judged by the terms of the call that sends it, so only calls with
 * the cache's own terms share one. */
static inline bool shed_terms_may_share(const struct shed_terms *terms)
{
    return !terms->has_own_rule && !terms->only_cached;
}

/* Take a row that is near in place of a read, by this rule (of a row of the
 * cache; not of "no such row", which is given out until its ttl ends), and
 * begin a refresh if it is due and the call may. Returns: a reference, or NULL.
 */
struct shed_value *shed_look_near_by(struct shed_cache *cache,
                                     struct shed_bytes key,
                                     const struct shed_freshness_rule *rule,
                                     bool only_cached);

/* The same by the call's terms. */
static inline struct shed_value *shed_look_near(struct shed_cache *cache,
                                                struct shed_bytes key,
                                                const struct shed_terms *terms)
{
    struct shed_freshness_rule rule = shed_terms_rule(terms, cache);

    return shed_look_near_by(cache, key, &rule, terms->only_cached);
}

/* Read a key, which must be named, by a GET in this thread; or take what is
 * kept, if Redis cannot be read. Returns: SHED_OK, where *out without a value
 * sends the call on to the slow path; otherwise the code of the failure, which
 * err describes. */
SHED_MUST_CHECK enum shed_code shed_look(struct shed_cache *cache,
                                         const struct shed_key *key,
                                         const struct shed_terms *terms,
                                         struct shed_look *out,
                                         struct shed_error *err);

/* Give another caller, or another holder, what a look has found, with a
 * reference of its own; an answer is counted. */
void shed_look_share(struct shed_cache *cache, const struct shed_key *key,
                     const struct shed_look *from, struct shed_look *out);

/* How long to wait for the GET of a key: a call that has a local row to fall
 * back on waits for a Redis that hangs no longer than for a load. */
uint64_t shed_look_until_ms(struct shed_cache *cache,
                            const struct shed_key *key,
                            const struct shed_terms *terms);

/* Note what is known of a key before its GET is sent. */
void shed_look_begin(struct shed_cache *cache, const struct shed_key *key,
                     struct shed_look *out);

/* Judge the reply to a GET of key, which is freed or taken over, and begin a
 * refresh if it is due and the terms allow it. Returns: SHED_OK, where *out
 * without a value sends the call on to the slow path; SHED_EDENIED,
 * SHED_EREDIS, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code
shed_look_at(struct shed_cache *cache, const struct shed_key *key,
             const struct shed_terms *terms, struct shed_reply *reply,
             const struct shed_link_use *use, struct shed_look *out,
             struct shed_error *err);

/* The GET of key has failed as why says. Here the cache's redis_down decides
 * whether the call takes what is kept, goes on to the slow path (which knows
 * how to load without Redis), or fails. Returns as shed_look. */
SHED_MUST_CHECK enum shed_code
shed_look_without_redis(struct shed_cache *cache, const struct shed_key *key,
                        const struct shed_terms *terms,
                        const struct shed_error *why, struct shed_look *out);

/* Whether a value that the slow path has found in Redis may be handed out by
 * its age and its tags. Returns: false: *look says what is to be replaced;
 * the value is still the caller's. */
bool shed_look_is_young(const struct shed_cache *cache,
                        const struct shed_key *key,
                        const struct shed_terms *terms, struct shed_look *look,
                        const struct shed_value *value);

/* After the slow path has ended with code, for that reason: hand the old value
 * to *out if it may be given out instead, else release it. Returns: the code of
 * the call. */
SHED_MUST_CHECK enum shed_code
shed_look_fall_back(struct shed_cache *cache, const struct shed_key *key,
                    struct shed_look *look, enum shed_code code,
                    const char *reason, struct shed_value **out);

#endif
