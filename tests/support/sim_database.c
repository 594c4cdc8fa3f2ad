/* A database in virtual time: processor sharing, from event to event. */
#include "support/sim_database.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define US_PER_S 1e6
#define KEYS_MAX 100
#define ODD_TIMES 100.0

static uint64_t next_random(struct sim_database *db)
{
    db->random = db->random * UINT64_C(6364136223846793005) +
                 UINT64_C(1442695040888963407);
    return db->random >> 11;
}

/* In [-1, 1). */
static double wobble(struct sim_database *db)
{
    return (double)(next_random(db) % 2000) / 1000.0 - 1;
}

void sim_database_init(struct sim_database *db, size_t ceiling)
{
    memset(db, 0, sizeof(*db));
    db->capacity = 8;
    db->load_us = 20000;
    db->noise = 0.2;
    db->keys = 1;
    db->demand = SIM_LOADS_MAX;
    db->random = 1;
    db->now_us = US_PER_S;
    db->processes = 1;
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++)
        shed_concurrency_init(&db->limits[i], ceiling);
}

static size_t limit_of(const struct sim_database *db, size_t process)
{
    return db->fixed > 0 ? db->fixed
                         : shed_concurrency_limit(&db->limits[process]);
}

/* The speed of each running load; 1 is that of a load that runs alone. */
static double speed_of(const struct sim_database *db)
{
    double n = (double)db->alive;

    if (n <= db->capacity)
        return 1;
    return db->capacity / n /
           (1 + db->thrash * (n - db->capacity) / db->capacity);
}

static void begin_load(struct sim_database *db, size_t process,
                       double called_us)
{
    struct sim_load *load = &db->loads[db->alive++];
    size_t keys = db->keys > 0 ? db->keys : 1 + next_random(db) % KEYS_MAX;
    double work = db->load_us + db->key_us * (double)(keys - 1);

    assert(db->alive <= SIM_LOADS_MAX);
    db->begun++;
    if (db->odd > 0 && db->begun % db->odd == 0)
        work *= ODD_TIMES;
    *load = (struct sim_load){.work_us = work * (1 + db->noise * wobble(db)),
                              .began_us = db->now_us,
                              .called_us = called_us,
                              .keys = keys,
                              .alive = ++db->alive_of[process],
                              .process = process,
                              .is_lone = db->alive_of[process] == 1};
    if (db->is_failing)
        load->work_us = 1;
    for (size_t i = 0; db->alive_of[process] > 1 && i < db->alive; i++)
        if (db->loads[i].process == process)
            db->loads[i].is_lone = false;
    if (db->alive > db->most_alive)
        db->most_alive = db->alive;
}

/* The next process, in turn, that may begin a load. Returns: false if none. */
static bool find_process(struct sim_database *db, size_t *process)
{
    for (size_t i = 0; i < db->processes; i++) {
        *process = db->next_process++ % db->processes;
        if (db->alive_of[*process] < limit_of(db, *process))
            return true;
    }
    return false;
}

static void begin_loads(struct sim_database *db)
{
    size_t process;

    while (db->calls_per_s > 0 ? db->calls > 0 : db->alive < db->demand) {
        double called_us = db->now_us;
        if (!find_process(db, &process))
            return;
        if (db->calls_per_s > 0) {
            called_us = db->called_us[db->first_call++ % SIM_LOADS_MAX];
            db->calls--;
        }
        begin_load(db, process, called_us);
    }
}

static void note_limit(struct sim_database *db,
                       const struct shed_concurrency *c)
{
    size_t limit = shed_concurrency_limit(c);

    if (limit > db->most_limit)
        db->most_limit = limit;
    if (limit < db->least_limit && !c->is_probing)
        db->least_limit = limit;
}

static void end_load(struct sim_database *db, size_t i)
{
    struct sim_load load = db->loads[i];
    const struct shed_concurrency_sample sample = {
        .latency_us = (uint64_t)(db->now_us - load.began_us),
        .keys = load.keys,
        .alive = load.alive,
        .is_lone = load.is_lone,
        .has_failed = db->is_failing};

    struct shed_concurrency *limit = &db->limits[load.process];

    db->loads[i] = db->loads[--db->alive];
    db->alive_of[load.process]--;
    db->ended++;
    if (db->now_us - load.called_us <= db->deadline_us)
        db->in_time++;
    shed_concurrency_add(limit, &sample, (uint64_t)db->now_us,
                         (uint64_t)(db->now_us / 1e3) +
                             db->skew_ms * load.process);
    note_limit(db, limit);
}

/* The load that ends first; SIM_LOADS_MAX: none is running. */
static size_t next_end(const struct sim_database *db, double *at_us)
{
    size_t next = SIM_LOADS_MAX;
    double speed = speed_of(db);

    for (size_t i = 0; i < db->alive; i++) {
        double end_us = db->now_us + db->loads[i].work_us / speed;
        if (next < SIM_LOADS_MAX && end_us >= *at_us)
            continue;
        next = i;
        *at_us = end_us;
    }
    return next;
}

static void pass_until(struct sim_database *db, double at_us)
{
    double done_us = (at_us - db->now_us) * speed_of(db);

    for (size_t i = 0; i < db->alive; i++)
        db->loads[i].work_us -= done_us;
    if (db->limits[0].is_probing)
        db->probing_us += at_us - db->now_us;
    db->now_us = at_us;
}

static void call(struct sim_database *db)
{
    if (db->calls < db->queue_limit) {
        size_t at = (db->first_call + db->calls++) % SIM_LOADS_MAX;
        db->called_us[at] = db->now_us;
    }
    db->next_call_us = db->now_us + US_PER_S / db->calls_per_s;
}

void sim_database_run(struct sim_database *db, double seconds)
{
    double end_us = db->now_us + seconds * US_PER_S;

    db->ended = db->in_time = db->most_alive = db->most_limit = 0;
    db->least_limit = SIZE_MAX;
    db->probing_us = 0;
    db->next_call_us = db->calls_per_s > 0 ? db->now_us : INFINITY;
    for (;;) {
        double at_us = INFINITY;
        size_t next;
        begin_loads(db);
        next = next_end(db, &at_us);
        if (fmin(at_us, db->next_call_us) >= end_us)
            break;
        if (next < SIM_LOADS_MAX && at_us <= db->next_call_us) {
            pass_until(db, at_us);
            end_load(db, next);
        } else {
            pass_until(db, db->next_call_us);
            call(db);
        }
    }
    pass_until(db, end_us);
}
