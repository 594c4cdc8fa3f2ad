/* Counts the soak's calls. Its invariant: a call is counted once, when it has
 * ended; those of a process that is killed are not. */
#include "soak/account.h"

#include "soak/mark.h"

const char *const soak_works[SOAK_WORKS] = {
    [SOAK_READ] = "reads",
    [SOAK_WRITE] = "writes",
    [SOAK_TELL_TAG] = "invalidations of a tag",
    [SOAK_TELL_ALL] = "invalidations of all",
    [SOAK_LOCK] = "acquires"};

const char *const soak_origins[SOAK_ORIGINS] = {
    [SOAK_FROM_REDIS] = "redis", [SOAK_FROM_LOAD] = "load",
    [SOAK_FROM_WAIT] = "waited", [SOAK_FROM_UNPUBLISHED] = "unpublished",
    [SOAK_FROM_STALE] = "stale", [SOAK_FROM_ABSENCE] = "negative",
};

void soak_trouble(struct soak_account *a, unsigned fault)
{
    atomic_store(&a->calm_ms, UINT64_MAX);
    atomic_store(&a->fault, fault);
}

void soak_calm(struct soak_account *a, uint64_t now_ms)
{
    atomic_store(&a->calm_ms, now_ms);
}

struct soak_call soak_begin(const struct soak_account *a, enum soak_work work,
                            unsigned process, uint64_t now_ms)
{
    return (struct soak_call){work, process, now_ms, atomic_load(&a->calm_ms)};
}

/* A lock whose holder was killed, and which a server has that was restarted
 * since, is free only when its lease ends: nobody can know that the holder is
 * dead. So an acquire may run out of time long after the fault. */
static bool can_be_waiting(const struct soak_call *call, enum shed_code code)
{
    return call->work == SOAK_LOCK && code == SHED_ETIMEDOUT;
}

static bool is_explained(const struct soak_account *a,
                         const struct soak_call *call, uint64_t calm_ms)
{
    return calm_ms == UINT64_MAX || calm_ms != call->calm_ms ||
           call->begun_ms < calm_ms + a->settle_ms;
}

static enum soak_end judge_failure(struct soak_account *a,
                                   const struct soak_call *call,
                                   uint64_t now_ms)
{
    uint64_t calm_ms = atomic_load(&a->calm_ms);

    atomic_fetch_add(&a->failures[atomic_load(&a->fault)], 1);
    if (calm_ms != UINT64_MAX && now_ms > calm_ms)
        soak_raise_to(&a->aftermath_ms, now_ms - calm_ms);
    if (is_explained(a, call, calm_ms))
        return SOAK_FINE;
    atomic_fetch_add(&a->unexplained, 1);
    return SOAK_UNEXPLAINED;
}

enum soak_end soak_end(struct soak_account *a, const struct soak_call *call,
                       enum shed_code code, uint64_t now_ms)
{
    uint64_t deadline_ms = call->begun_ms + SOAK_TIMEOUT_MS;
    enum soak_end end = SOAK_FINE;

    atomic_fetch_add(&a->ended[call->work][code][call->process], 1);
    atomic_fetch_add(&a->calls[atomic_load(&a->fault)], 1);
    if (code != SHED_OK && code != SHED_EMISS && !can_be_waiting(call, code))
        end = judge_failure(a, call, now_ms);
    if (now_ms <= deadline_ms)
        return end;
    soak_raise_to(&a->latest_ms, now_ms - deadline_ms);
    if (now_ms <= deadline_ms + a->late_ms)
        return end;
    atomic_fetch_add(&a->late, 1);
    return SOAK_LATE;
}

static enum soak_origin origin_of(const struct shed_value *value)
{
    if (value->kind == SHED_KIND_ABSENT)
        return SOAK_FROM_ABSENCE;
    switch (value->origin) {
    case SHED_ORIGIN_REDIS:
        return SOAK_FROM_REDIS;
    case SHED_ORIGIN_LOAD:
        return SOAK_FROM_LOAD;
    case SHED_ORIGIN_WAITED:
        return SOAK_FROM_WAIT;
    case SHED_ORIGIN_STALE:
        return SOAK_FROM_STALE;
    case SHED_ORIGIN_UNPUBLISHED:
        break;
    }
    return SOAK_FROM_UNPUBLISHED;
}

void soak_count_answer(struct soak_account *a, unsigned process,
                       const struct shed_value *value)
{
    atomic_fetch_add(&a->answers[origin_of(value)][process], 1);
}

uint64_t soak_ended(const struct soak_account *a, enum soak_work work,
                    enum shed_code code)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        all += atomic_load(&a->ended[work][code][i]);
    return all;
}

uint64_t soak_failures(const struct soak_account *a, enum soak_work work)
{
    uint64_t all = 0;

    for (unsigned code = SHED_OK + 1; code < SHED_EMISS; code++)
        all += soak_ended(a, work, (enum shed_code)code);
    return all;
}
