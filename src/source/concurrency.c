/*
 * The adaptive limit. Its invariants: it is at least 1 and at most the ceiling;
 * it changes only while as many loads are alive as it allows.
 *
 * Design notes
 *
 * Loads have different sizes, so a latency means nothing by itself. Each is
 * divided by the latency of a lone load of its size: the median of the last few
 * in its class, so one slow key moves nothing. Within a class, and where a
 * class has none, the latency of fewer keys is scaled by their number. No batch
 * is slower than that by its size alone, so a batch that grows is never taken
 * for an overload.
 *
 * The median of a window of these ratios is the slowness. A window begins when
 * the limit has changed, and only loads that began later count: otherwise one
 * jam would be answered several times.
 *
 * The base goes out of date: the table grows, the database is moved. While the
 * limit binds, it is measured again every ten seconds or more, by a few loads
 * that run alone. They replace the earlier ones whether they are faster or
 * slower, so a database that has become slower for good does not hold the limit
 * down. A probe costs at most a sixteenth of the time, however slow loads are.
 *
 * Processes share the database. One that probed while the others work would
 * take their load for the latency without load, raise its limit, and so make
 * the others do the same: four of them drive each other to the ceiling. So all
 * probe at the same time, by the wall clock, and none counts a load before the
 * others have had time to finish theirs.
 */
#include "source/concurrency.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where slow start begins: the default of max_loads, which any database bears.
 */
#define START_LIMIT 4.0

/* What counts as no slowness: latencies vary by themselves, and what the
 * scheduler adds to a load has nothing to do with the database. (Envoy's
 * min_rtt buffer is 25 %, too.) */
#define TOLERANCE 1.25
#define NOISE_US 1000.0

/* The limit at most halves for one window (GradientLimit has the same bound).
 */
#define GRADIENT_MIN 0.5

/* What the limit grows by, as a part of its square root: enough to find room
 * within some windows, and little enough that a database of two slots meets
 * three loads, not six. */
#define HEADROOM 0.5

/* Samples of a window: the number of loads alive, but never fewer. */
#define WINDOW_MIN 8

#define PROBE_LOADS SHED_CONCURRENCY_KEPT
#define PROBE_MAX_US 2000000
#define PROBE_SHARE 16
#define SETTLE_MAX_US 1000000

/* Probes begin within a moment of the begin of a slot of the wall clock: one
 * that is noticed later would be alone. */
#define SLOT_MS 10000
#define MOMENT_MS 500
#define US_PER_MS 1000

void shed_concurrency_init(struct shed_concurrency *c, size_t ceiling)
{
    assert(ceiling > 0);
    memset(c, 0, sizeof(*c));
    c->ceiling = ceiling;
    c->limit = fmin(START_LIMIT, (double)ceiling);
    c->is_in_slow_start = true;
    c->period = 1;
}

size_t shed_concurrency_limit(const struct shed_concurrency *c)
{
    return c->is_probing ? 1 : (size_t)c->limit;
}

/* ------------------------------------------------------- the base latencies */

static size_t class_of(size_t keys)
{
    size_t i = 0;

    while (i < SHED_CONCURRENCY_CLASSES - 1 && keys > (size_t)1 << i)
        i++;
    return i;
}

static void add_lone(struct shed_concurrency *c, size_t keys,
                     uint64_t latency_us)
{
    struct shed_concurrency_base *base = &c->base[class_of(keys)];
    uint64_t probe = c->is_probing ? c->probes : 0;

    if (probe < base->probe)
        return; /* the others may have been at work */
    if (probe > base->probe)
        base->count = 0;
    base->probe = probe;
    base->lone[base->count++ % SHED_CONCURRENCY_KEPT] =
        (struct shed_concurrency_lone){(double)latency_us, keys};
}

/* What is compared begins with a double. */
static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct shed_concurrency_lone
median_of(const struct shed_concurrency_base *base)
{
    struct shed_concurrency_lone sorted[SHED_CONCURRENCY_KEPT];
    size_t count = base->count < SHED_CONCURRENCY_KEPT ? base->count
                                                       : SHED_CONCURRENCY_KEPT;

    memcpy(sorted, base->lone, sizeof(sorted));
    qsort(sorted, count, sizeof(*sorted), by_size);
    return sorted[count / 2];
}

/* How long a lone load of so many keys takes at most; 0 if nothing is known. */
static double expected_us(const struct shed_concurrency *c, size_t keys)
{
    for (size_t i = class_of(keys) + 1; i-- > 0;) {
        struct shed_concurrency_lone lone;
        double more;
        if (c->base[i].count == 0)
            continue;
        lone = median_of(&c->base[i]);
        more = (double)keys / (double)lone.keys;
        return lone.latency_us * (more > 1 ? more : 1);
    }
    return 0;
}

/* --------------------------------------------------------------- the window */

static void clear_window(struct shed_concurrency *c, uint64_t now_us)
{
    c->window.count = 0;
    c->window.latency_us = 0;
    c->window.unknown = 0;
    c->window.most_alive = 0;
    c->since_us = now_us;
}

static void add_to_window(struct shed_concurrency *c,
                          const struct shed_concurrency_sample *sample)
{
    double expected = expected_us(c, sample->keys);
    double slowness = 1;

    if (expected > 0)
        slowness =
            (double)sample->latency_us / (expected * TOLERANCE + NOISE_US);
    /* a refused connection is fast, and says nothing */
    if (sample->has_failed && slowness <= 1)
        return;
    if (expected <= 0)
        c->window.unknown++;
    if (sample->alive > c->window.most_alive)
        c->window.most_alive = sample->alive;
    c->window.latency_us += sample->latency_us;
    c->window.slowness[c->window.count++] = slowness;
}

static bool is_window_full(const struct shed_concurrency *c)
{
    size_t wanted = (size_t)c->limit;

    if (wanted < WINDOW_MIN)
        wanted = WINDOW_MIN;
    if (wanted > SHED_CONCURRENCY_WINDOW)
        wanted = SHED_CONCURRENCY_WINDOW;
    return c->window.count >= wanted;
}

static void move_limit(struct shed_concurrency *c)
{
    double slowness, gradient;

    qsort(c->window.slowness, c->window.count, sizeof(*c->window.slowness),
          by_size);
    slowness = c->window.slowness[c->window.count / 2];
    gradient = slowness > 1 ? fmax(GRADIENT_MIN, 1 / slowness) : 1;
    if (gradient < 1)
        c->is_in_slow_start = false;
    if (c->is_in_slow_start)
        c->limit *= 2;
    else
        c->limit = c->limit * gradient + HEADROOM * sqrt(c->limit);
    c->limit = fmax(1, fmin(c->limit, (double)c->ceiling));
}

static bool is_reached(const struct shed_concurrency *c)
{
    return c->window.most_alive >= (size_t)c->limit;
}

/* --------------------------------------------------------------- the probes */

static bool is_time(const struct shed_concurrency *c, uint64_t wall_ms)
{
    uint64_t slot = wall_ms / SLOT_MS, moment_ms = c->typical_us / US_PER_MS;

    if (moment_ms < MOMENT_MS)
        moment_ms = MOMENT_MS;
    return slot != c->slot && slot % c->period == 0 &&
           wall_ms % SLOT_MS < moment_ms;
}

static void begin_probe(struct shed_concurrency *c, uint64_t now_us,
                        uint64_t wall_ms)
{
    c->is_probing = true;
    c->probes++;
    c->probed = 0;
    c->probe_us = now_us;
    c->settled_us = now_us + (c->typical_us < SETTLE_MAX_US ? c->typical_us
                                                            : SETTLE_MAX_US);
    c->slot = wall_ms / SLOT_MS;
}

static void end_probe(struct shed_concurrency *c, uint64_t now_us)
{
    uint64_t pause_ms = (now_us - c->probe_us) / US_PER_MS * PROBE_SHARE;

    /* powers of two, so that processes with different ones still meet */
    c->period = 1;
    while (c->period * SLOT_MS < pause_ms)
        c->period *= 2;
    c->is_probing = false;
    clear_window(c, now_us);
}

static void probe(struct shed_concurrency *c,
                  const struct shed_concurrency_sample *sample, uint64_t now_us)
{
    if (!sample->is_lone || now_us < c->settled_us + sample->latency_us)
        return;
    if (!sample->has_failed)
        add_lone(c, sample->keys, sample->latency_us);
    c->probed++;
    if (c->probed >= PROBE_LOADS || now_us - c->settled_us >= PROBE_MAX_US)
        end_probe(c, now_us);
}

/* At the end of a window. */
static void judge(struct shed_concurrency *c, uint64_t now_us, uint64_t wall_ms)
{
    bool is_unknown = c->window.unknown > c->window.count / 2;

    c->typical_us = c->window.latency_us / c->window.count;
    if (is_reached(c) && !is_unknown)
        move_limit(c);
    else if (is_reached(c) &&
             (c->probes == 0 || wall_ms / SLOT_MS >= c->slot + c->period))
        begin_probe(c, now_us, wall_ms); /* at once: nothing is known yet */
    clear_window(c, now_us);
}

void shed_concurrency_add(struct shed_concurrency *c,
                          const struct shed_concurrency_sample *sample,
                          uint64_t now_us, uint64_t wall_ms)
{
    if (c->is_probing) {
        probe(c, sample, now_us);
        return;
    }
    if (sample->is_lone && !sample->has_failed)
        add_lone(c, sample->keys, sample->latency_us);
    if (now_us >= c->since_us + sample->latency_us)
        add_to_window(c, sample);
    if (is_reached(c) && is_time(c, wall_ms))
        begin_probe(c, now_us, wall_ms);
    else if (is_window_full(c))
        judge(c, now_us, wall_ms);
}
