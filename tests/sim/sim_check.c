/* The invariants of the simulation. They rely on what is promised, not on the
 * implementation. */
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"
#include "sim/sim_world.h"

enum {
    TYPE_AT = 5,
    VERSION_AT = 8,
    PROCESS_AT = 24,
    UNTIL_AT = SIM_UNTIL_AT,
    FLIGHT_AT = 56
};

/* A waiter's slowest poll, and twice that for what the poll starts. */
#define POLL_MS UINT64_C(150)
#define SETTLE_MS 3000

static bool is_ours(const struct model_slot *slot)
{
    return slot->type == MODEL_STRING &&
           slot->bytes.size >= SHED_ENTRY_HEADER_BYTES &&
           memcmp(slot->bytes.at, "\xf5shd", 4) == 0;
}

bool sim_is_value(const struct model_slot *slot)
{
    return is_ours(slot) && (slot->bytes.at[TYPE_AT] == SHED_ENTRY_VALUE ||
                             slot->bytes.at[TYPE_AT] == SHED_ENTRY_NEGATIVE);
}

void sim_check_store(const struct sim *sim)
{
    for (size_t i = 0; i < SIM_KEYS; i++) {
        const struct model_slot *slot = &sim->model.slot[i];
        unsigned char type;

        if (!is_ours(slot))
            continue;
        if (!slot->has_ttl)
            sim_fail(sim, "key %zu has no ttl", i);
        type = slot->bytes.at[TYPE_AT];
        if ((type == SHED_ENTRY_VALUE || type == SHED_ENTRY_NEGATIVE) &&
            sim_version_of(&slot->bytes) < sim->floor[i])
            sim_fail(sim, "stale set: key %zu holds %llu, %llu is out", i,
                     (unsigned long long)sim_version_of(&slot->bytes),
                     (unsigned long long)sim->floor[i] - 1);
        if (type == SHED_ENTRY_VALUE && sim->mode->faults[SIM_JUMP] == 0 &&
            sim_version_of(&slot->bytes) < sim->fresh_floor[i] &&
            sim->model.now_ms < model_get_u64(slot->bytes.at + UNTIL_AT))
            sim_fail(sim, "key %zu holds %llu as fresh, which has expired", i,
                     (unsigned long long)sim_version_of(&slot->bytes));
    }
}

static void check_promptness(const struct sim *sim,
                             const struct sim_caller *caller)
{
    uint64_t since = sim->stored_ms[caller->key];

    if (since < caller->joined_ms)
        since = caller->joined_ms;
    /* a push, a look by somebody else that is under way, one's own look */
    if (sim->now_ms > since + 6 * sim->mode->latency_ms)
        sim_fail(sim, "a waiter was told late, by %llu ms",
                 (unsigned long long)(sim->now_ms - since));
}

/* A waiter that was already waiting when its process learnt of the first load
 * set its timer without knowing that. */
static void check_delay(const struct sim *sim, const struct sim_caller *caller)
{
    uint64_t since = sim->stored_ms[caller->key];

    if (sim->process[caller->process].learnt_ms > 0 &&
        caller->joined_ms > sim->process[caller->process].learnt_ms +
                                sim->mode->fixed_load_ms * 2 &&
        caller->joined_ms < since &&
        sim->now_ms > since + sim->mode->told_max_ms)
        sim_fail(sim,
                 "a waiter that knows how long loads take was told "
                 "%llu ms late",
                 (unsigned long long)(sim->now_ms - since));
}

void sim_check_answer(const struct sim *sim, const struct sim_caller *caller,
                      enum shed_flight_answer answer, uint64_t version)
{
    if (sim->mode->answer_max_ms > 0 &&
        sim->now_ms - caller->joined_ms > sim->mode->answer_max_ms)
        sim_fail(sim, "a caller waited %llu ms",
                 (unsigned long long)(sim->now_ms - caller->joined_ms));
    if (answer == SHED_ANSWER_FAILURE) {
        if (sim->mode->is_strict && sim->mode->fail_pct == 0)
            sim_fail(sim, "a caller failed and nothing had");
        return;
    }
    if (version < caller->oldest)
        sim_fail(sim, "a caller got %llu, which was out before it came (%llu)",
                 (unsigned long long)version,
                 (unsigned long long)caller->oldest);
    if (version > sim->row[caller->key])
        sim_fail(sim, "a caller got a version that is not committed");
    if (version < sim->process[caller->process].own[caller->key] &&
        caller->oldest > version)
        sim_fail(sim, "a process read older than its own write");
    if (sim->mode->is_prompt)
        check_promptness(sim, caller);
    if (sim->mode->told_max_ms > 0)
        check_delay(sim, caller);
}

/* The value was found by one look: it may be stale, but not out. */
void sim_check_served(const struct sim *sim, const struct sim_caller *caller,
                      uint64_t version, uint64_t age_ms)
{
    sim_check_answer(sim, caller, SHED_ANSWER_ENTRY, version);
    if (sim->mode->served_max_ms > 0 && age_ms > sim->mode->served_max_ms)
        sim_fail(sim, "key %zu was not refreshed for %llu ms", caller->key,
                 (unsigned long long)age_ms);
}

void sim_check_wait(const struct sim *sim, const struct sim_caller *caller)
{
    if (sim->mode->is_never_late && sim->stored_ms[caller->key] > 0)
        sim_fail(sim, "a caller waits for key %zu", caller->key);
}

/* Of the flights of a key in a process that can be joined, at most one loads.
 */
static void check_joinable(const struct sim *sim,
                           const struct sim_flight *flight)
{
    for (size_t i = 0; i < SIM_FLIGHTS; i++) {
        const struct sim_flight *other = &sim->flight[i];

        if (other != flight && other->number != 0 &&
            other->process == flight->process && other->key == flight->key &&
            !other->is_detached && other->machine.state == SHED_FLIGHT_LOADING)
            sim_fail(sim, "two flights that can be joined load key %zu",
                     flight->key);
    }
}

void sim_check_load(struct sim *sim, const struct sim_flight *flight,
                    bool is_leased)
{
    const unsigned char *version = flight->owner.version;

    if (!flight->is_detached)
        check_joinable(sim, flight);
    if (sim->killed_ms > 0 && sim->reloaded_ms == 0)
        sim->reloaded_ms = sim->now_ms;
    if (!is_leased) {
        if (sim->mode->is_strict)
            sim_fail(sim, "a load without a lease and without need");
        return;
    }
    if (!sim->mode->is_strict)
        return;
    /* all came before the first load was over: it is the answer to all */
    if (++sim->loads[flight->key] > 1 && sim->mode->is_burst)
        sim_fail(sim, "key %zu is loaded in turn", flight->key);
    for (size_t i = 0; i < sim->version_count; i++)
        if (memcmp(sim->version[i], version, sizeof(sim->version[i])) == 0)
            sim_fail(sim, "two loads under one lease record, key %zu",
                     flight->key);
    if (sim->version_count == SIM_VERSIONS)
        sim_fail(sim, "more data versions than fit");
    memcpy(sim->version[sim->version_count++], version, 16);
}

void sim_check_owner(const struct sim *sim, const struct model_slot *before,
                     const struct model_call *call)
{
    const struct model_slot *after = call->is_refresh
                                         ? &sim->model.refresh[call->key]
                                         : &sim->model.slot[call->key];
    const unsigned char *record = before->bytes.at;

    if (call->script != SHED_SCRIPT_FAIL && call->script != SHED_SCRIPT_RENEW)
        return;
    if (after->type == before->type &&
        (after->type != MODEL_STRING ||
         (after->bytes.size == before->bytes.size &&
          memcmp(after->bytes.at, record, before->bytes.size) == 0)))
        return;
    if (before->type == MODEL_ABSENT || !is_ours(before) ||
        record[TYPE_AT] != SHED_ENTRY_LEASE ||
        memcmp(record + VERSION_AT, call->argv[0].at, 16) != 0 ||
        memcmp(record + PROCESS_AT, call->argv[1].at, 16) != 0 ||
        memcmp(record + FLIGHT_AT, call->argv[2].at, 4) != 0)
        sim_fail(sim, "who was not the holder changed key %zu", call->key);
}

void sim_check_look(const struct sim *sim, const struct sim_flight *flight)
{
    if (sim->mode->looks_max > 0 && flight->looks > sim->mode->looks_max)
        sim_fail(sim, "a waiter looked %u times, key %zu", flight->looks,
                 flight->key);
    /* about as often as a loop that looks every 10 ms, at most */
    if (sim->mode->no_pushes && flight->machine.had_holder &&
        flight->machine.waits + 1 >
            (sim->now_ms - flight->machine.wait_began_ms + 5) / 10 + 1)
        sim_fail(
            sim, "a waiter looked %u times within %llu ms",
            flight->machine.waits + 1,
            (unsigned long long)(sim->now_ms - flight->machine.wait_began_ms));
}

bool sim_leads(const struct sim_request *r)
{
    return r->call.script == SHED_SCRIPT_ACQUIRE &&
           r->reply.type == MODEL_PARTS &&
           model_bytes_are(&r->reply.part[0], "LEAD");
}

/* Since when nobody may have been subscribed to the channel that the lease
 * names; UINT64_MAX: somebody is, and was when the lease was written. */
static uint64_t gone_since_ms(const struct sim *sim,
                              const struct sim_lease *lease)
{
    const struct sim_process *p = &sim->process[lease->process];

    if (p->epoch == lease->epoch && p->joined_ms[0] <= lease->at_ms)
        return UINT64_MAX;
    if (p->epoch == lease->epoch + 1 && p->joined_ms[1] <= lease->at_ms)
        return p->lost_ms;
    return lease->at_ms;
}

/* Whether the holder still loads, and its process was back so soon after it
 * lost its session that a renewal has come within the grace. Without faults in
 * between none is lost. */
static bool is_back(const struct sim *sim, const struct sim_lease *lease)
{
    const struct sim_process *p = &sim->process[lease->process];
    uint64_t renewed_ms = p->joined_ms[0] + sim->mode->latency_ms;

    if (sim->mode->lost_pct > 0 || p->epoch != lease->epoch + 1 ||
        p->joined_ms[0] == UINT64_MAX || renewed_ms > sim->now_ms ||
        renewed_ms >= p->lost_ms + sim->lease.grace_ms)
        return false;
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        if (sim->flight[i].number == lease->flight)
            return sim->flight[i].machine.state == SHED_FLIGHT_LOADING &&
                   sim->flight[i].machine.is_held;
    return false;
}

/* A lease that still lasts is not taken over while its holder is present, nor
 * within a grace after that. Without channels nobody can see whether it is. The
 * load of a refresh whose value has ended is lost with its holder. */
void sim_check_takeover(const struct sim *sim, const struct model_slot *before,
                        const struct sim_lease *lease,
                        const struct sim_request *r, bool has_ended)
{
    const unsigned char *record = before->bytes.at;
    uint64_t now = sim->now_ms, since;

    if (!sim_leads(r) || !is_ours(before) ||
        record[TYPE_AT] != SHED_ENTRY_LEASE ||
        sim->mode->faults[SIM_JUMP] > 0 || lease->flight == r->flight_number)
        return;
    if (!has_ended && memcmp(record + VERSION_AT, r->reply.part[1].at, 16) != 0)
        sim_fail(sim, "a takeover lost the load before it, key %zu",
                 r->call.key);
    if (now >= lease->at_ms + sim->lease.lease_ms)
        return;
    if (sim->mode->no_channels)
        sim_fail(sim, "a lease that lasts was taken over, key %zu",
                 r->call.key);
    since = gone_since_ms(sim, lease);
    if (since == UINT64_MAX)
        sim_fail(sim, "a holder that is present was taken over, key %zu",
                 r->call.key);
    if (is_back(sim, lease))
        sim_fail(sim, "a holder that is back was taken over, key %zu",
                 r->call.key);
    if (now < since + sim->lease.grace_ms)
        sim_fail(sim, "a holder was taken over within the grace, key %zu",
                 r->call.key);
}

/* A value that ends by its own ttl has not been invalidated. */
void sim_check_publish(const struct sim *sim, const struct model_call *call,
                       const struct model_reply *reply)
{
    if (sim->mode->is_strict && sim->mode->writes == 0 &&
        call->script == SHED_SCRIPT_PUBLISH &&
        model_bytes_are(&reply->part[0], "INVALIDATED"))
        sim_fail(sim, "a load was refused, key %zu", call->key);
}

/* How long a caller can wait once nothing goes wrong any longer: for an
 * abandoned lease, the load under way, and one of its own. */
static uint64_t longest_wait_ms(const struct sim *sim)
{
    if (sim->mode->is_burst && sim->mode->is_strict)
        return sim->mode->fixed_load_ms + POLL_MS + 8 * sim->mode->latency_ms;
    /* an abandoned lease begins again when the clock was set back */
    return (sim->mode->faults[SIM_JUMP] + 1) * sim->lease.lease_ms +
           3 * sim->policy.load_timeout_ms + 2 * POLL_MS + SETTLE_MS;
}

static void check_replacement(const struct sim *sim)
{
    uint64_t bound =
        sim->mode->no_channels ? sim->lease.lease_ms : sim->lease.grace_ms;

    if (sim->killed_ms == 0)
        sim_fail(sim, "nobody was killed");
    if (sim->reloaded_ms == 0 ||
        sim->reloaded_ms - sim->killed_ms >
            bound + POLL_MS + 4 * sim->mode->latency_ms + 5)
        sim_fail(sim, "a dead loader was replaced after %lld ms",
                 (long long)(sim->reloaded_ms - sim->killed_ms));
}

void sim_check_end(const struct sim *sim)
{
    uint64_t bound = longest_wait_ms(sim);

    for (size_t i = 0; i < sim->caller_count; i++) {
        const struct sim_caller *caller = &sim->caller[i];
        uint64_t since = caller->joined_ms;

        if (caller->state == SIM_WAITS)
            sim_fail(sim, "caller %zu of key %zu was never answered", i,
                     caller->key);
        if (!sim->mode->is_strict && since < sim->faults_end_ms)
            since = sim->faults_end_ms;
        if (caller->state == SIM_ANSWERED &&
            caller->answered_ms > since + bound)
            sim_fail(sim, "caller %zu was answered after %llu ms", i,
                     (unsigned long long)(caller->answered_ms - since));
    }
    for (size_t i = 0; i < SIM_FLIGHTS; i++)
        if (sim->flight[i].number != 0)
            sim_fail(sim, "a flight is left over in state %d",
                     (int)sim->flight[i].machine.state);
    if (sim->mode->is_strict &&
        sim->version_count != sim->absences + sim->elections)
        sim_fail(sim, "%zu loads for %llu expiries and %llu refreshes",
                 sim->version_count, (unsigned long long)sim->absences,
                 (unsigned long long)sim->elections);
    if (sim->mode->is_strict && sim->takeovers > 0)
        sim_fail(sim, "a live holder was taken over");
    if (sim->mode->is_holder_killed)
        check_replacement(sim);
}
