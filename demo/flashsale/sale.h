/* One sale, in memory that its processes share: the buyers' requests, which
 * process serves which, and the results. */
#ifndef DEMO_FLASHSALE_SALE_H
#define DEMO_FLASHSALE_SALE_H

#include <sys/types.h>

#include "common/record.h"

struct sale_plan {
    const char *mysql_uri;
    uint64_t item, pieces, buyers;
    uint64_t twice_pct; /* of the buyers ask twice */
    uint64_t threads;   /* of all processes together */
    uint64_t seed;      /* for the order in which they come */
};

/* What a buyer is told. */
enum answer {
    ANSWER_SOLD,        /* the order has been committed */
    ANSWER_HAS_ONE,     /* this buyer already has an order */
    ANSWER_TURNED_AWAY, /* sold out according to the cache */
    ANSWER_SOLD_OUT,    /* sold out according to the database */
    ANSWERS,
    ANSWER_AGAIN, /* nothing is decided: ask again */
    ANSWER_FAILED
};

struct request;
struct worker;

struct sale {
    struct record record; /* first: sale_of */
    struct sale_plan plan;
    uint64_t requests;
    uint64_t size; /* of the mapping */
    /* atomic */
    _Atomic uint64_t next; /* the first request that may be waiting */
    _Atomic uint64_t answers[ANSWERS];
    _Atomic uint64_t buyers_told; /* that they have a piece */
    _Atomic uint64_t loads;       /* queries for the stock, to show it */
    _Atomic uint64_t refused; /* transactions refused by the fencing guard */
    _Atomic uint64_t lost;    /* holds that were lost before the release */
    _Atomic uint64_t last_order_us;
    struct histogram at_once; /* transactions at once, not microseconds */
    /* in the mapping, behind this struct */
    struct request *request;
    struct worker *worker;
    atomic_uchar *is_told; /* by buyer */
};

/* Exits on failure. */
struct sale *sale_create(const struct sale_plan *plan);
void sale_destroy(struct sale *sale);

/* The sale whose record this is. */
struct sale *sale_of(struct record *record);

/* ------------------------------------------------------- for the processes */

/* Claim a waiting request. Returns false if there is none. */
bool sale_claim(struct sale *sale, uint64_t *request);

/* One attempt to serve a buyer. is_retry: a process died in an earlier attempt,
 * so the buyer may already have an order. Sets why with ANSWER_FAILED. */
typedef enum answer sale_attempt(void *thread, uint64_t buyer, bool is_retry,
                                 char *why, size_t size);

/* Serve a claimed request, with as many attempts as necessary. Returns false on
 * failure, with the reason in why. */
bool sale_serve(struct sale *sale, uint64_t request, sale_attempt *attempt,
                void *thread, char *why, size_t size);

/* Mark that a thread begins or ends its work and, in between, its critical
 * section, from reading the stock to the commit. */
struct worker *sale_enter(struct sale *sale);
void sale_leave(struct worker *worker);
void sale_begin_alone(struct sale *sale, struct worker *worker);
void sale_end_alone(struct worker *worker);

/* ------------------------------------------------------- for the runner */

/* How many requests have been answered for good. */
uint64_t sale_count_served(const struct sale *sale);

/* Put back what a process was serving that has been killed. Returns whether it
 * died between sale_begin_alone and sale_end_alone. */
bool sale_bury(struct sale *sale, pid_t dead);

#endif
