/*
 * The statistics of many locks as those of one, in the library's own format. A
 * service with a lock for each item would have a series for each item with
 * shed_lock_stats_prometheus, which takes handles; it wants one for all.
 */
#include "metrics.h"

#include <stdio.h>

#define US_PER_S 1e6

static void add_up(struct shed_histogram *sum, const struct shed_histogram *h)
{
    for (size_t i = 0; i < SHED_BUCKETS; i++)
        sum->bucket[i] += h->bucket[i];
    sum->count += h->count;
    sum->sum += h->sum;
}

void metrics_locks_add(struct metrics *m, const struct shed_lock_stats *stats)
{
    (void)pthread_mutex_lock(&m->mu);
#define ADD(field, help) m->locks.field += stats->field;
    SHED_LOCK_COUNTERS(ADD)
#undef ADD
    add_up(&m->locks.wait_us, &stats->wait_us);
    add_up(&m->locks.hold_us, &stats->hold_us);
    (void)pthread_mutex_unlock(&m->mu);
}

static void add_histogram(FILE *t, const char *lock, const char *name,
                          const char *help, const struct shed_histogram *h)
{
    uint64_t below = 0;

    (void)fprintf(t, "# HELP snowshed_lock_%s %s\n", name, help);
    (void)fprintf(t, "# TYPE snowshed_lock_%s histogram\n", name);
    for (size_t i = 0; i < SHED_BUCKETS - 1; i++) {
        below += h->bucket[i];
        (void)fprintf(t,
                      "snowshed_lock_%s_bucket{lock=\"%s\",le=\"%.6f\"} %llu\n",
                      name, lock, (double)((uint64_t)1 << i) / US_PER_S,
                      (unsigned long long)below);
    }
    (void)fprintf(t, "snowshed_lock_%s_bucket{lock=\"%s\",le=\"+Inf\"} %llu\n",
                  name, lock, (unsigned long long)h->count);
    (void)fprintf(t, "snowshed_lock_%s_sum{lock=\"%s\"} %.6f\n", name, lock,
                  (double)h->sum / US_PER_S);
    (void)fprintf(t, "snowshed_lock_%s_count{lock=\"%s\"} %llu\n", name, lock,
                  (unsigned long long)h->count);
}

void metrics_locks_text(FILE *t, const char *lock, struct metrics *m)
{
    struct shed_lock_stats stats;

    (void)pthread_mutex_lock(&m->mu);
    stats = m->locks;
    (void)pthread_mutex_unlock(&m->mu);
#define WRITE(field, help)                                                     \
    (void)fprintf(t,                                                           \
                  "# HELP snowshed_lock_" #field "_total " help                \
                  "\n# TYPE snowshed_lock_" #field "_total counter\n"          \
                  "snowshed_lock_" #field "_total{lock=\"%s\"} %llu\n",        \
                  lock, (unsigned long long)stats.field);
    SHED_LOCK_COUNTERS(WRITE)
#undef WRITE
    add_histogram(t, lock, "wait_seconds",
                  "from the call of an acquire to its hold", &stats.wait_us);
    add_histogram(t, lock, "hold_seconds", "from a hold to its release or loss",
                  &stats.hold_us);
}
