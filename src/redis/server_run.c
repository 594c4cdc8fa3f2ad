/* The run of a server. Its invariant: first_ms is not before the last answer of
 * another run, nor before what was known of this one. */
#include "redis/server_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MS_PER_S 1000

void shed_server_run_init(struct shed_server_run *run)
{
    *run =
        (struct shed_server_run){.first_ms = INT64_MIN, .heard_ms = INT64_MIN};
}

/* The server has been met again. */
static void meet(struct shed_server_run *run, bool is_other)
{
    run->changes += run->is_met && is_other;
    run->is_met = true;
}

/* What follows a name in the text of INFO, or NULL. */
static const char *find(const char *info, size_t size, const char *name)
{
    size_t name_size = strlen(name);

    for (size_t i = 0; i + name_size + SHED_RUN_BYTES <= size; i++)
        if (memcmp(info + i, name, name_size) == 0)
            return info + i + name_size;
    return NULL;
}

/* How long it has been running, by its wall clock, and at least: the server
 * subtracts two times that were cut to whole seconds, so it may be up to a
 * second younger than it says. Less than nothing if its clock was set back. */
static int64_t read_age_ms(const char *uptime)
{
    long long age_s = strtoll(uptime, NULL, 10);

    if (age_s > INT32_MAX)
        age_s = INT32_MAX;
    return age_s > 0 ? (age_s - 1) * MS_PER_S : 0;
}

bool shed_server_run_note(struct shed_server_run *run, const char *info,
                          size_t size, uint64_t now_ms)
{
    const char *id = find(info, size, "run_id:");
    const char *uptime = find(info, size, "uptime_in_seconds:");
    int64_t since_ms, floor_ms;
    bool is_other;

    if (id == NULL || uptime == NULL)
        return false;
    since_ms = (int64_t)now_ms - read_age_ms(uptime);
    is_other = memcmp(run->id, id, sizeof(run->id)) != 0;
    floor_ms = is_other ? run->heard_ms : run->first_ms;
    meet(run, is_other);
    memcpy(run->id, id, sizeof(run->id));
    run->first_ms = since_ms < floor_ms ? floor_ms : since_ms;
    run->heard_ms = (int64_t)now_ms;
    run->state = SHED_RUN_TOLD;
    return true;
}

void shed_server_run_refuse(struct shed_server_run *run)
{
    meet(run, run->state == SHED_RUN_UNKNOWN);
    run->state = SHED_RUN_REFUSED;
}

void shed_server_run_hear(struct shed_server_run *run, uint64_t now_ms)
{
    if (run->state == SHED_RUN_TOLD)
        run->heard_ms = (int64_t)now_ms;
}

void shed_server_run_lose(struct shed_server_run *run)
{
    run->state = SHED_RUN_UNKNOWN;
}

uint64_t shed_server_run_age_ms(const struct shed_server_run *run,
                                uint64_t now_ms)
{
    if (run->state == SHED_RUN_REFUSED)
        return 0;
    return run->state == SHED_RUN_UNKNOWN
               ? SHED_AGE_UNKNOWN
               : (uint64_t)((int64_t)now_ms - run->first_ms);
}

enum shed_code shed_server_run_explain(const struct shed_server_run *run,
                                       const char *address,
                                       struct shed_error *err)
{
    if (run->state == SHED_RUN_REFUSED)
        return shed_fail(err, SHED_EDENIED,
                         "Redis %s does not grant INFO, which tells how long "
                         "it has been running",
                         address);
    if (run->state == SHED_RUN_UNKNOWN)
        return shed_fail(err, SHED_EREDIS,
                         "Redis %s has not told yet how long it has been "
                         "running",
                         address);
    return SHED_OK;
}
