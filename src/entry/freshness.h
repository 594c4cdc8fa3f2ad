/*
 * How long entries live, and whether an entry may be served at a given time.
 * Pure.
 *
 * An entry is fresh from when it is written until a time that it carries. What
 * a reader does with it before and after depends on the reader's own options:
 *
 *     written        refresh_after        until     + revalidate    + if_error
 *        |   FRESH   (DUE)  |     DUE       |    STALE    |  EXPIRED   |  OVER
 */
#ifndef SHED_FRESHNESS_H
#define SHED_FRESHNESS_H

#include <stdint.h>

#include <snowshed/snowshed.h>

/* A time to live, shortened by up to jitter_pct percent, so that entries which
 * were written together do not expire together; at least 1 ms of a ttl that is
 * not 0. random is any 64 bits. */
uint64_t shed_freshness_ttl_ms(uint64_t ttl_ms, uint64_t jitter_pct,
                               uint64_t random);

enum shed_freshness {
    SHED_FRESHNESS_FRESH,
    SHED_FRESHNESS_DUE,     /* fresh, but to be reloaded in the background */
    SHED_FRESHNESS_STALE,   /* may be served while it is reloaded */
    SHED_FRESHNESS_EXPIRED, /* may be served if a load fails */
    SHED_FRESHNESS_OVER,    /* may not be served */
    SHED_FRESHNESS_AGED     /* may not be served to this reader, though it may
                               be fresh: it is too old, or of unknown age */
};

/* A reader's options, of its cache or of one call. */
struct shed_freshness_rule {
    uint64_t refresh_after_pct; /* of the entry's own ttl; 0: never early */
    uint64_t revalidate_ms;     /* how long STALE lasts */
    uint64_t if_error_ms;       /* how long STALE and EXPIRED last, if longer */
    uint64_t max_age_ms;        /* what is older is AGED; 0: no bound */
};

/* What a call asks for, under its cache's rule. */
struct shed_freshness_rule
shed_freshness_rule_of_call(const struct shed_freshness_rule *rule,
                            uint64_t max_age_ms, enum shed_stale allow_stale);

/* What a rule means for a value of this kind: "no such row" is neither
 * refreshed nor given out when it is over, so a row that has been inserted is
 * seen at the end of negative_ttl_ms. */
struct shed_freshness_rule
shed_freshness_rule_of_kind(const struct shed_freshness_rule *rule,
                            enum shed_kind kind);

/* What an entry carries. */
struct shed_freshness_times {
    uint64_t written_ms;
    uint64_t until_ms; /* 0: it has ended, and waits to be replaced */
    uint64_t cost_ms;  /* of the load */
};

/* Judge an entry at now_ms, by the server's clock; 0: the clock is unknown, and
 * the entry counts as fresh, or as AGED if there is a max_age_ms. random is any
 * 64 bits: each call finds an entry due from
 *
 *     due_ms - min(-cost_ms * ln(u), due_ms / 4)
 *
 * on, where due_ms is refresh_after_pct of its ttl, with u in (0, 1] from
 * random. */
enum shed_freshness
shed_freshness_judge(const struct shed_freshness_rule *rule,
                     const struct shed_freshness_times *times, uint64_t now_ms,
                     uint64_t random);

/* How long an entry that is fresh for fresh_ms may be served in any case. */
uint64_t shed_freshness_kept_ms(const struct shed_freshness_rule *rule,
                                uint64_t fresh_ms);

/* How long Redis keeps an entry that may be served for kept_ms. */
uint64_t shed_freshness_redis_ms(const struct shed_freshness_rule *rule,
                                 uint64_t kept_ms);

/* How much earlier than due_ms one look finds an entry due, in ms,
 * before it is cut: XFetch's -cost * beta * ln(u), with u in (0, 1] from random
 * and beta 1. */
double shed_freshness_early_ms(uint64_t cost_ms, uint64_t random);

#endif
