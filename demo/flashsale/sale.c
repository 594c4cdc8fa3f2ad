/*
 * The shared memory of a sale. Only atomics, and each request is claimed with a
 * compare-and-swap: if a process is killed between any two instructions, no
 * request is lost or served twice.
 */
#include "sale.h"

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "common/fleet.h"

#define WAITING 0
#define SERVED (-1)
#define PATIENCE_US (60 * 1000000ULL) /* how long a buyer keeps trying */

struct request {
    _Atomic int32_t claim; /* WAITING, SERVED, or the id of the process */
    atomic_bool is_retry;
    uint32_t buyer;
};

struct worker {
    _Atomic int32_t pid; /* 0: the place is free */
    atomic_bool is_alone;
};

/* Put the buyers in a random order, some of them twice. */
static void line_up(struct sale *s)
{
    uint64_t random = s->plan.seed;

    assert(s->plan.buyers > 0);
    for (uint64_t i = 0; i < s->requests; i++) {
        uint64_t j = fleet_random(&random) % (i + 1);
        uint64_t buyer =
            i < s->plan.buyers ? i : fleet_random(&random) % s->plan.buyers;
        s->request[i].buyer = s->request[j].buyer;
        s->request[j].buyer = (uint32_t)buyer;
    }
}

struct sale *sale_create(const struct sale_plan *plan)
{
    uint64_t requests = plan->buyers + plan->buyers * plan->twice_pct / 100;
    uint64_t size = sizeof(struct sale) + requests * sizeof(struct request) +
                    plan->threads * sizeof(struct worker) + plan->buyers;
    struct sale *s = (struct sale *)(void *)shared_bytes(size);

    s->plan = *plan;
    s->requests = requests;
    s->size = size;
    s->request = (struct request *)(void *)(s + 1);
    s->worker = (struct worker *)(void *)(s->request + requests);
    s->is_told = (atomic_uchar *)(s->worker + plan->threads);
    line_up(s);
    record_reset(&s->record);
    return s;
}

void sale_destroy(struct sale *s)
{
    shared_bytes_free((unsigned char *)s, s->size);
}

struct sale *sale_of(struct record *record)
{
    return (struct sale *)(void *)record;
}

bool sale_claim(struct sale *s, uint64_t *request)
{
    uint64_t i;

    while ((i = atomic_fetch_add(&s->next, 1)) < s->requests) {
        int32_t waiting = WAITING;
        if (atomic_compare_exchange_strong(&s->request[i].claim, &waiting,
                                           (int32_t)getpid())) {
            *request = i;
            return true;
        }
    }
    return false;
}

/* SERVED is set last: if the process is killed in here, the request stays
 * claimed, and its buyer is told the same once more. */
static void settle(struct sale *s, struct request *r, enum answer answer)
{
    if (answer == ANSWER_SOLD)
        atomic_store(&s->last_order_us, demo_now_us());
    if ((answer == ANSWER_SOLD || answer == ANSWER_HAS_ONE) &&
        atomic_exchange(&s->is_told[r->buyer], 1) == 0)
        atomic_fetch_add(&s->buyers_told, 1);
    atomic_fetch_add(&s->answers[answer], 1);
    atomic_store(&r->claim, SERVED);
}

bool sale_serve(struct sale *s, uint64_t request, sale_attempt *attempt,
                void *thread, char *why, size_t size)
{
    struct request *r = &s->request[request];
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    bool is_retry = atomic_load(&r->is_retry);
    enum answer answer;

    (void)snprintf(why, size, "a buyer waits for an answer for too long");
    do
        answer = attempt(thread, r->buyer, is_retry, why, size);
    while (answer == ANSWER_AGAIN && demo_now_us() < deadline_us);
    if (answer >= ANSWERS)
        return false;
    settle(s, r, answer);
    return true;
}

/* Counted here, and not by the servers, which may die before they count. */
uint64_t sale_count_served(const struct sale *s)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < s->requests; i++)
        count += atomic_load(&s->request[i].claim) == SERVED;
    return count;
}

struct worker *sale_enter(struct sale *s)
{
    for (uint64_t i = 0; i < s->plan.threads; i++) {
        int32_t nobody = 0;
        if (atomic_compare_exchange_strong(&s->worker[i].pid, &nobody,
                                           (int32_t)getpid()))
            return &s->worker[i];
    }
    return NULL;
}

void sale_leave(struct worker *worker)
{
    atomic_store(&worker->pid, 0);
}

void sale_begin_alone(struct sale *s, struct worker *worker)
{
    uint64_t count = 0;

    atomic_store(&worker->is_alone, true);
    for (uint64_t i = 0; i < s->plan.threads; i++)
        count += atomic_load(&s->worker[i].is_alone);
    histogram_add(&s->at_once, count);
}

void sale_end_alone(struct worker *worker)
{
    atomic_store(&worker->is_alone, false);
}

bool sale_bury(struct sale *s, pid_t dead)
{
    bool was_alone = false;

    for (uint64_t i = 0; i < s->plan.threads; i++) {
        if (atomic_load(&s->worker[i].pid) != (int32_t)dead)
            continue;
        was_alone |= atomic_exchange(&s->worker[i].is_alone, false);
        atomic_store(&s->worker[i].pid, 0);
    }
    for (uint64_t i = 0; i < s->requests; i++) {
        int32_t claim = (int32_t)dead;
        if (atomic_load(&s->request[i].claim) != claim)
            continue;
        atomic_store(&s->request[i].is_retry, true);
        (void)atomic_compare_exchange_strong(&s->request[i].claim, &claim,
                                             WAITING);
    }
    /* the killed process may also have skipped a request without claiming it */
    atomic_store(&s->next, 0);
    return was_alone;
}
