/*
 * What the calls of the soak came to, in memory that all processes share:
 * answers by their origin, failures by their code, each for each process; and
 * whether a failure is explained by a fault.
 *
 * Time is an argument. All functions may be called by any process; a process
 * may be killed in any of them.
 */
#ifndef SOAK_ACCOUNT_H
#define SOAK_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

enum {
    SOAK_WORKERS = 4,
    SOAK_LASTING = 2, /* of them live as long as the run: the first ones */
    SOAK_CODES = SHED_EMISS + 1,
    SOAK_FAULTS_MAX = 32,
    SOAK_TIMEOUT_MS = 3000 /* of every call */
};

enum soak_work {
    SOAK_READ,
    SOAK_WRITE,
    SOAK_TELL_TAG, /* shed_invalidate_tags, shed_invalidate_all */
    SOAK_TELL_ALL,
    SOAK_LOCK,
    SOAK_WORKS
};

/* Where an answer is from. */
enum soak_origin {
    SOAK_FROM_REDIS,
    SOAK_FROM_LOAD,
    SOAK_FROM_WAIT,
    SOAK_FROM_UNPUBLISHED,
    SOAK_FROM_STALE,
    SOAK_FROM_ABSENCE,
    SOAK_ORIGINS
};

extern const char *const soak_works[SOAK_WORKS];
extern const char *const soak_origins[SOAK_ORIGINS];

struct soak_account {
    /* Set at the beginning. How long after a fault calls may still fail
     * because of it, and how late a call may return. */
    uint64_t settle_ms, late_ms;
    _Atomic uint64_t answers[SOAK_ORIGINS][SOAK_WORKERS]; /* of reads */
    _Atomic uint64_t ended[SOAK_WORKS][SOAK_CODES][SOAK_WORKERS];
    _Atomic uint64_t kept[SOAK_WORKERS]; /* answers from what a process keeps;
                                            SOAK_FROM_STALE has them, too */
    /* By the fault that was made last, of those that calls can feel. */
    _Atomic uint64_t calls[SOAK_FAULTS_MAX], failures[SOAK_FAULTS_MAX];
    atomic_uint fault;
    _Atomic uint64_t calm_ms;     /* when it was over; UINT64_MAX: it is not */
    _Atomic uint64_t unexplained; /* failures */
    _Atomic uint64_t late;        /* calls */
    /* The longest: from the end of a fault to a failure, and by which a call
     * was late. */
    _Atomic uint64_t aftermath_ms, latest_ms;
};

/* A fault that calls can feel begins, and ends. */
void soak_trouble(struct soak_account *account, unsigned fault);
void soak_calm(struct soak_account *account, uint64_t now_ms);

/* A call that is under way. */
struct soak_call {
    enum soak_work work;
    unsigned process;
    uint64_t begun_ms, calm_ms;
};

struct soak_call soak_begin(const struct soak_account *account,
                            enum soak_work work, unsigned process,
                            uint64_t now_ms);

/* What a call came to. */
enum soak_end {
    SOAK_FINE,        /* it was answered, or a fault explains why not */
    SOAK_UNEXPLAINED, /* it failed, though nothing was wrong for settle_ms */
    SOAK_LATE         /* it returned after its deadline and late_ms */
};

/* Count a call that has ended. */
enum soak_end soak_end(struct soak_account *account,
                       const struct soak_call *call, enum shed_code code,
                       uint64_t now_ms);

/* Count the origin of an answer. */
void soak_count_answer(struct soak_account *account, unsigned process,
                       const struct shed_value *value);

/* Of all processes: calls with this code, and with any but SHED_OK and
 * SHED_EMISS. */
uint64_t soak_ended(const struct soak_account *account, enum soak_work work,
                    enum shed_code code);
uint64_t soak_failures(const struct soak_account *account, enum soak_work work);

#endif
