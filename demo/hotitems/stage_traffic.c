/* The clients: one wrk for each instance, started when the instance can serve
 * and ended with it, because wrk tries without a pause to connect to one that
 * is gone. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"
#include "stage_script.h"

#define HOTTEST_ITEM 42 /* as in traffic.lua */
#define FD_LEAST 10     /* above the descriptors that a child gets */
#define RETRY_MS 1000   /* if it ends by itself */
#define SETTLE_MS 300   /* between restarts, while a slider moves */
#define VERSION_MS 10000
#define ABSENT_CONNECTIONS 32 /* connections to an instance */

uint64_t traffic_item(const struct stage *stage, uint64_t rank)
{
    return (rank + HOTTEST_ITEM - 1) % stage->options.items + 1;
}

bool traffic_can_start(void)
{
    const char *argv[] = {"wrk", "--version", NULL};
    int status = 0;

    free(child_read(argv, VERSION_MS, &status));
    return !WIFEXITED(status) || WEXITSTATUS(status) != CHILD_NOT_FOUND;
}

int traffic_open_script(void)
{
    int low = (int)syscall(SYS_memfd_create, "traffic.lua", 0), fd = -1;

    if (low == -1)
        return -1;
    if (write(low, stage_script, stage_script_size) ==
        (ssize_t)stage_script_size)
        fd = fcntl(low, F_DUPFD_CLOEXEC, FD_LEAST);
    (void)close(low);
    return fd;
}

/* An instance's share of what is set for its lane. */
static uint64_t share(const struct stage *stage, const struct instance *it,
                      uint64_t all)
{
    uint64_t each = stage->options.instances;

    return all / each + (it->number < all % each);
}

/* wrk on an instance, with up to four arguments for the script. */
static void start_wrk(const struct stage *stage, const struct instance *it,
                      struct child *child, uint64_t connections,
                      const char *duration, const char *const script[5])
{
    char count[24], url[48];
    const char *argv[] = {"wrk",
                          "--threads",
                          "1",
                          "--connections",
                          count,
                          "--duration",
                          duration,
                          "--timeout",
                          "60s",
                          "--script",
                          "/proc/self/fd/3",
                          url,
                          "--",
                          script[0],
                          script[1],
                          script[2],
                          script[3],
                          script[4],
                          NULL};

    (void)snprintf(count, sizeof(count), "%" PRIu64, connections);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", it->port);
    (void)child_start(child, argv, stage->script, false);
}

static void start_clients(const struct stage *stage, struct instance *it,
                          uint64_t count, double skew)
{
    char items[24], power[16], think[24], seed[24];
    const char *script[5] = {"items", power, think, seed, items};

    (void)snprintf(items, sizeof(items), "%" PRIu64, stage->options.items);
    (void)snprintf(power, sizeof(power), "%.3f", skew);
    (void)snprintf(think, sizeof(think), "%" PRIu64, stage->options.think_ms);
    /* The n-th instance of each lane is asked for the same items. */
    (void)snprintf(seed, sizeof(seed), "%u", 1 + it->number + it->starts * 16);
    start_wrk(stage, it, &it->clients, count, "24h", script);
}

/* Ids that nobody has asked for before: the time, the instance, a number. */
static void start_absent(const struct stage *stage, struct instance *it)
{
    char count[24], first[32];
    const char *script[5] = {"absent", count, first, NULL, NULL};

    (void)snprintf(count, sizeof(count), "%" PRIu64,
                   share(stage, it, TRAFFIC_ABSENT));
    (void)snprintf(first, sizeof(first), "%" PRIu64 "%u", hub_time_ms(),
                   it->number);
    start_wrk(stage, it, &it->absent, ABSENT_CONNECTIONS, "30s", script);
}

static void tick_absent(struct stage *stage, struct instance *it)
{
    unsigned wanted;
    int status;

    stage_lock(stage);
    wanted = stage->absent_wanted;
    stage_unlock(stage);
    (void)child_reap(&it->absent, &status);
    if (it->absent_made == wanted || it->absent.pid != 0 ||
        it->state != INSTANCE_UP)
        return;
    it->absent_made = wanted;
    start_absent(stage, it);
}

void traffic_tick(struct stage *stage, struct instance *it, uint64_t now_ms)
{
    unsigned settings;
    uint64_t count;
    double skew;
    int status;

    tick_absent(stage, it);
    stage_lock(stage);
    count = stage->is_warm ? share(stage, it, stage->clients) : 0;
    skew = stage->skew;
    settings = stage->settings;
    stage_unlock(stage);
    (void)child_reap(&it->clients, &status);
    if (it->clients.pid != 0 && it->clients_made != settings)
        child_signal(&it->clients, SIGKILL);
    if (it->clients.pid != 0 || it->state != INSTANCE_UP || count == 0 ||
        now_ms < it->clients_retry_ms)
        return;
    it->clients_retry_ms =
        now_ms + (it->clients_made == settings ? RETRY_MS : SETTLE_MS);
    it->clients_made = settings;
    start_clients(stage, it, count, skew);
}

void traffic_kill(struct instance *it)
{
    child_signal(&it->clients, SIGKILL);
    child_signal(&it->absent, SIGKILL);
}
