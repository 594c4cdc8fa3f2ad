/*
 * Random faults under load, for as long as asked: processes read, write and
 * lock on a real Redis and a real MariaDB, while this one kills, stops, cuts,
 * empties and blocks what it can reach. Every value that is read is judged by
 * the history of the database (history.h). Now and then the servers are left
 * alone for a while: then no call may fail (account.h). At the end: a table.
 *
 * usage: soak single|sentinel|cluster SECONDS [SEED]
 *
 * It starts a Redis, or such a topology, and a MariaDB of its own. Its own
 * choices follow the seed; what the processes do at the same moment does not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soak/faults.h"

enum {
    BEGIN_MS = 1500, /* at the beginning, without faults */
    FAULT_EVERY_MS = 250,
    TROUBLE_MS = 15000, /* then the servers are left alone: */
    /* Calls may still fail, because a source that could not connect to its
     * database waits for up to 5 s, and an open breaker for up to 1 s, */
    PAUSES_MS = 6000,
    SETTLE_MS = 1500, /* and because what follows takes a moment. */
    WATCH_MS = 2000,  /* Then none may fail. */
    /* Beyond its deadline: a virtual machine was seen to stop for 28 s. */
    LATE_MS = 30000,
    /* A pause that is this much longer says that this machine has stopped, or
     * is busy with something else. */
    STALL_MS = 250,
    TELL_EVERY_MS = 10000,
    SLACK_MS = 4000,
    AFTER_MS = 1000, /* the longest pause, command_timeout_ms: a call that waits
                        for a connection goes on this late after a fault */
    /* Beyond SOAK_HEARD_MS: a process may be stopped when it is told. */
    SLACK_HEARD_MS = 500,
    /* A load begins this late after it was given a slot, and a process that
     * goes on without slots tells it this late. */
    SLOT_MS = 200,
    EVENT_MS = 200,
    MS_PER_S = 1000
};

static const char *topology_name;
static enum soak_topology topology;
static uint64_t seconds, seed;
static struct soak_stage stage;
static struct soak_tally tallies[SOAK_FAULTS_MAX];
static unsigned faults_made, last_fault;

/* ---------------------------------------------------------------- verdict */

static uint64_t count_violations(void)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        all += atomic_load(&stage.history->violations[i]);
    return all;
}

/* Whether no process holds more than it should; says which does. */
static bool judge_growth(const struct soak_report_data *data)
{
    const struct soak_history *h = data->history;
    bool is_flat = true;

    for (unsigned i = 0; i < SOAK_LASTING; i++)
        if (!soak_sample_is_flat(&data->early[i], &data->late[i])) {
            printf("process %u: memory, descriptors or threads have grown\n",
                   i);
            is_flat = false;
        }
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        if (!soak_sample_is_clean(&h->before[i], &h->after[i])) {
            printf("process %u: memory, descriptors or threads are left after "
                   "all was closed\n",
                   i);
            is_flat = false;
        }
    return is_flat;
}

/* -------------------------------------------------------------------- run */

static void set_up(void)
{
    struct soak_history *h;

    soak_stage_open(&stage, topology, seed);
    h = stage.history;
    h->ttl_ms[SOAK_LONG] = SOAK_LONG_TTL_MS;
    /* a row that a failover brings back has to outlive that */
    h->ttl_ms[SOAK_SHORT] =
        topology == SOAK_SINGLE ? SOAK_TTL_MS : SOAK_LONG_TTL_MS;
    /* its sleeps, and what a busy machine may add before that is noted */
    h->load_ms = SOAK_BATCH * SOAK_SLEEP_MS + scaled_ms(STALL_MS);
    h->slack_ms = scaled_ms(SLACK_MS);
    h->troubles.after_ms = scaled_ms(AFTER_MS);
    h->heard_ms = SOAK_HEARD_MS + scaled_ms(SLACK_HEARD_MS);
    h->fleet.slot_ms = scaled_ms(SLOT_MS);
    h->fleet.event_ms = scaled_ms(EVENT_MS);
    h->fleet.stall_ms = scaled_ms(STALL_MS);
    h->account.settle_ms = PAUSES_MS + scaled_ms(SETTLE_MS);
    h->account.late_ms = scaled_ms(LATE_MS);
    atomic_store(&h->account.fault, soak_fault_count);
    for (unsigned i = 0; i <= soak_fault_count; i++)
        tallies[i].name = soak_fault_name(&stage, i);
    last_fault = soak_fault_count;
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        soak_stage_start_worker(&stage, i);
    soak_calm(&h->account, shed_now_ms());
    WAIT_FOR(soak_ended(&h->account, SOAK_READ, SHED_OK) > 0);
}

static uint64_t begun_ms, tell_ms;

static void tell_progress(void)
{
    soak_tell_progress(stage.history, (shed_now_ms() - begun_ms) / MS_PER_S,
                       faults_made, soak_fault_name(&stage, last_fault));
    tell_ms = shed_now_ms() + TELL_EVERY_MS;
}

/* Make a fault, and wait for a while. Returns: whether this machine has stopped
 * meanwhile. */
static bool step(void)
{
    uint64_t pause_ms, paused_ms;

    last_fault = soak_make_fault(&stage);
    tallies[last_fault].made++;
    faults_made++;
    pause_ms = soak_stage_draw(&stage, FAULT_EVERY_MS);
    paused_ms = shed_now_ms();
    soak_sleep_ms(pause_ms);
    if (shed_now_ms() >= tell_ms)
        tell_progress();
    return shed_now_ms() > paused_ms + pause_ms + scaled_ms(STALL_MS);
}

static void sample(struct soak_sample least[SOAK_LASTING])
{
    for (unsigned i = 0; i < SOAK_LASTING; i++) {
        struct soak_sample now = soak_sample_take(
            stage.workers[i], atomic_load(&stage.history->allocated[i]));
        soak_sample_lower(&least[i], &now);
    }
}

/* Leave the servers alone for long enough that a call that fails is a finding:
 * unless the whole machine stops, or is so busy that the database does not
 * answer, which is nobody's fault. Towards the end, what connections a fault
 * has cost is over, and the least that the processes hold is taken. */
static void keep_calm(struct soak_sample least[SOAK_LASTING])
{
    struct soak_account *account = &stage.history->account;
    uint64_t since_ms = shed_now_ms();
    uint64_t end_ms = since_ms + account->settle_ms + WATCH_MS;
    uint64_t before = atomic_load(&account->unexplained);
    bool has_stopped = false;

    stage.is_calm = true;
    memset(least, 0, SOAK_LASTING * sizeof(*least));
    while (shed_now_ms() < end_ms) {
        has_stopped |= step();
        if (shed_now_ms() + WATCH_MS >= end_ms)
            sample(least);
    }
    sample(least);
    stage.is_calm = false;
    if (has_stopped || atomic_load(&stage.history->fleet.stalled_ms) > since_ms)
        printf("this machine has stopped or was too busy for a while, so calls "
               "may fail\n");
    else
        atomic_fetch_add(&stage.history->violations[SOAK_FAILED],
                         atomic_load(&account->unexplained) - before);
    atomic_store(&stage.history->violations[SOAK_OVERDUE],
                 atomic_load(&account->late));
}

/* Make faults until the time is over, or something was found. */
static void endure(uint64_t length_ms, struct soak_report_data *data)
{
    uint64_t end_ms, calm_ms;

    begun_ms = shed_now_ms();
    end_ms = begun_ms + length_ms;
    tell_ms = begun_ms + TELL_EVERY_MS;
    soak_sleep_ms(BEGIN_MS);
    while (shed_now_ms() < end_ms && count_violations() == 0) {
        calm_ms = shed_now_ms() + TROUBLE_MS;
        while (shed_now_ms() < calm_ms && shed_now_ms() < end_ms &&
               count_violations() == 0)
            (void)step();
        keep_calm(data->late);
        if (data->early[0].kib == 0 && shed_now_ms() > begun_ms + length_ms / 3)
            memcpy(data->early, data->late, sizeof(data->early));
    }
    tell_progress();
}

TEST(what_is_read_agrees_with_the_history)
{
    struct soak_report_data data = {.faults = tallies,
                                    .fault_count = soak_fault_count + 1};
    bool is_well, is_flat;

    set_up();
    data.history = stage.history;
    endure(seconds * MS_PER_S, &data);
    is_well = soak_stage_end_workers(&stage);
    soak_print(&data);
    soak_stage_close(&stage);
    is_flat = judge_growth(&data);
    if (!is_well || count_violations() > 0 || !is_flat)
        printf("FAILED. Again: tests/soak/run --topology %s %llu %llu\n",
               topology_name, (unsigned long long)seconds,
               (unsigned long long)seed);
    ck_assert(is_well);
    ck_assert_uint_eq(count_violations(), 0);
    ck_assert(is_flat);
}

/* Returns: 0: there is none of this name. */
static enum soak_topology topology_of(const char *name)
{
    if (strcmp(name, "single") == 0)
        return SOAK_SINGLE;
    if (strcmp(name, "sentinel") == 0)
        return SOAK_SENTINEL;
    return strcmp(name, "cluster") == 0 ? SOAK_CLUSTER : 0;
}

int main(int argc, char **argv)
{
    topology_name = argc > 1 ? argv[1] : "";
    topology = topology_of(topology_name);
    seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : shed_now_ms() % 1000000;
    if (topology == 0 || seconds == 0 || argc > 4) {
        fprintf(stderr, "usage: %s single|sentinel|cluster SECONDS [SEED]\n",
                argv[0]);
        return 2;
    }
    printf("soak: %s, %llu s, seed %llu\n", topology_name,
           (unsigned long long)seconds, (unsigned long long)seed);
    fflush(stdout);
    /* the fixtures of other tests use Check's assertions, so this is a test of
     * Check, too; it runs in this process, without a time limit */
    setenv("CK_FORK", "no", 1);
    return run_tests("soak");
}
