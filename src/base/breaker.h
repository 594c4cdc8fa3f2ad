/*
 * A circuit breaker: whether a server that keeps failing is asked at all. Pure.
 * The calls that it counts are loads of a source, or calls to Redis.
 *
 * Sources: M. Nygard, "Release It!", 2007, has the three states; that a ratio
 * over a sliding window opens it, and only from a number of calls on, is
 * Hystrix's (Netflix, "How it Works: Circuit Breaker"). That it opens again
 * when its probes end without a verdict is resilience4j's
 * (maxWaitDurationInHalfOpenState, issue 935); there the bound is a time since
 * it was half-open, here it is how long probes have waited, so that a time
 * without callers says nothing.
 */
#ifndef SHED_BREAKER_H
#define SHED_BREAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

/* Check that options are in the ranges that snowshed.h states. */
SHED_MUST_CHECK enum shed_code
shed_breaker_check(const struct shed_breaker_options *options,
                   struct shed_error *err);

/* The window slides by one of these. */
#define SHED_BREAKER_SLICES 10
/* The longest that it stays open, in open_ms. */
#define SHED_BREAKER_OPEN_FACTOR 10
/* While half-open: most passes in use, and successes in a row that close it. */
#define SHED_BREAKER_PROBES 3

struct shed_breaker {
    /* set by init */
    struct shed_breaker_options rule;
    uint64_t patience_ms; /* a call that is not answered for this long has
                             failed; 0: every call ends with a verdict */
    /* its own; state is as of the last call that was given a time */
    enum shed_breaker_state state;
    uint64_t term;       /* grows with each change of state */
    uint64_t changed_ms; /* when it last was closed, or ceased to be */
    /* when an open one becomes half-open */
    uint64_t until_ms;
    unsigned opened;          /* times in a row */
    uint64_t openings;        /* ever */
    uint64_t passed;          /* passes, while half-open, that are not back */
    uint64_t successes;       /* in a row, while half-open */
    uint64_t waited_ms;       /* by calls that were given up, since the last
                                 success */
    uint64_t waited_until_ms; /* while closed: what came before is counted */
    uint64_t last_failed_id;  /* of the last call that failed */
    uint64_t slice;           /* the number of the present slice */
    struct shed_breaker_slice {
        uint64_t calls, failures;
    } slices[SHED_BREAKER_SLICES];
};

/* A call that has ended. */
struct shed_breaker_sample {
    uint64_t term;   /* the breaker's when it began */
    uint64_t passes; /* that it used */
    uint64_t id;     /* of what it asked for, if that has one; else 0 */
    bool has_failed;
};

/* Begin closed. */
void shed_breaker_init(struct shed_breaker *b,
                       const struct shed_breaker_options *rule,
                       uint64_t patience_ms, uint64_t now_ms);

/* The state at now_ms: one that has been open for long enough is half-open. */
enum shed_breaker_state shed_breaker_look(struct shed_breaker *b,
                                          uint64_t now_ms);

struct shed_breaker_status {
    enum shed_breaker_state state;
    uint64_t openings; /* ever */
    uint64_t left_ms;  /* while it is open: until it is half-open */
};

/* The same, with how often it has opened. */
struct shed_breaker_status shed_breaker_read(struct shed_breaker *b,
                                             uint64_t now_ms);

/* Whether one more call could begin. */
bool shed_breaker_has_pass(struct shed_breaker *b, uint64_t now_ms);

/* Whether one more call may begin: then it has a pass. */
bool shed_breaker_pass(struct shed_breaker *b, uint64_t now_ms);

/* Passes of the present term will not be used. */
void shed_breaker_return(struct shed_breaker *b, uint64_t passes);

/* A call of the present term has been given up after waited_ms, sooner than
 * after patience_ms; its pass is back. Alone it says nothing: a server in
 * good order may be slower than a hasty caller. But callers that are all less
 * patient than the rule must open it, too. So when such calls have waited for
 * patience_ms, and none was answered meanwhile, each further one has
 * failed. (Where several wait at the same time, that time counts once: all may
 * have met one pause of a moment.)
 *
 * While it is half-open, a single failure opens it. So there it takes as much
 * waiting as that of SHED_BREAKER_PROBES patient calls.
 *
 * Returns: whether it opened. */
bool shed_breaker_give_up(struct shed_breaker *b, uint64_t waited_ms,
                          uint64_t now_ms, uint64_t random);

/* Learn from a call. random is any 64 bits. Returns: whether it opened or
 * closed. When it has opened, calls that have a pass must not begin. */
bool shed_breaker_add(struct shed_breaker *b,
                      const struct shed_breaker_sample *sample, uint64_t now_ms,
                      uint64_t random);

/* Learn from many calls at once that succeeded in a term, if that was closed
 * and still lasts. */
void shed_breaker_add_successes(struct shed_breaker *b, uint64_t term,
                                uint64_t count, uint64_t now_ms);

/* When the slice of now_ms ends. What happens before may be counted together:
 * nothing is finer than a slice. */
uint64_t shed_breaker_slice_end_ms(const struct shed_breaker *b,
                                   uint64_t now_ms);

#endif
