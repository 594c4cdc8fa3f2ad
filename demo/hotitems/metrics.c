/* Counters and one histogram. Names follow Prometheus' conventions:
 * https://prometheus.io/docs/practices/naming/ */
#include "metrics.h"

#include <stdio.h>
#include <string.h>

enum { ITEM, ITEMS, SAMPLE = 6 };

static const char *const routes[METRICS_ROUTES] = {[ITEM] = "/items/{id}",
                                                   [ITEMS] = "/items",
                                                   "/items/{id}/orders",
                                                   "/metrics",
                                                   "/readyz",
                                                   "/healthz",
                                                   [SAMPLE] = "/sample",
                                                   "other"};

/* Upper bounds of the buckets, in microseconds. */
static const uint64_t bounds_us[METRICS_BUCKETS] = {
    100,   250,   500,    1000,   2500,    5000,
    10000, 50000, 100000, 500000, 1000000, 5000000};

static size_t route_index(const char *route)
{
    size_t i = 0;

    while (i < METRICS_ROUTES - 1 && strcmp(routes[i], route) != 0)
        i++;
    return i;
}

void metrics_count(struct metrics *m, const char *route, unsigned status,
                   uint64_t took_us)
{
    size_t index = route_index(route), i = 0;

    m->requests[index][status / 100 < 6 ? status / 100 : 5]++;
    if (index == SAMPLE)
        return; /* it waits for the next one */
    while (i < METRICS_BUCKETS && took_us > bounds_us[i])
        i++;
    m->bucket[i]++;
    m->took_us += took_us;
    if ((index == ITEM || index == ITEMS) && status < 500)
        histogram_add(&m->latency, took_us);
}

struct metrics_items metrics_items(const struct metrics *m)
{
    struct metrics_items items = {0};

    for (size_t class = 1; class < 6; class ++)
        items.requests += m->requests[ITEM][class] + m->requests[ITEMS][class];
    items.errors = m->requests[ITEM][5] + m->requests[ITEMS][5];
    return items;
}

/* A metric of one series, whose labels are in braces, or "". */
static void add(FILE *t, const char *name, const char *labels, const char *type,
                const char *help, uint64_t value)
{
    (void)fprintf(t,
                  "# HELP hotitems_%s %s\n# TYPE hotitems_%s %s\n"
                  "hotitems_%s%s %llu\n",
                  name, help, name, type, name, labels,
                  (unsigned long long)value);
}

static void add_requests(FILE *t, struct metrics *m)
{
    (void)fprintf(t, "# HELP hotitems_requests_total requests answered\n"
                     "# TYPE hotitems_requests_total counter\n");
    for (size_t route = 0; route < METRICS_ROUTES; route++)
        for (size_t class = 1; class < 6; class ++) {
            uint64_t count = m->requests[route][class];
            if (count > 0)
                (void)fprintf(
                    t,
                    "hotitems_requests_total{route=\"%s\",status=\"%zuxx\"} "
                    "%llu\n",
                    routes[route], class, (unsigned long long)count);
        }
}

static void add_histogram(FILE *t, struct metrics *m)
{
    uint64_t count = 0;

    (void)fprintf(
        t, "# HELP hotitems_request_seconds from a request's head to the end "
           "of its answer\n# TYPE hotitems_request_seconds histogram\n");
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        count += m->bucket[i];
        (void)fprintf(t, "hotitems_request_seconds_bucket{le=\"%g\"} %llu\n",
                      (double)bounds_us[i] / 1e6, (unsigned long long)count);
    }
    count += m->bucket[METRICS_BUCKETS];
    (void)fprintf(t, "hotitems_request_seconds_bucket{le=\"+Inf\"} %llu\n",
                  (unsigned long long)count);
    (void)fprintf(t, "hotitems_request_seconds_sum %.6f\n",
                  (double)m->took_us / 1e6);
    (void)fprintf(t, "hotitems_request_seconds_count %llu\n",
                  (unsigned long long)count);
}

void metrics_write(FILE *t, struct metrics *m)
{
    add_requests(t, m);
    add_histogram(t, m);
    add(t, "orders_total", "", "counter", "orders placed", m->orders);
    add(t, "pieces_total", "", "counter", "pieces sold", m->pieces);
    add(t, "order_replays_total", "", "counter",
        "repeated requests for a placed order", m->replays);
    add(t, "sold_out_total", "", "counter", "orders refused: too few pieces",
        m->sold_out);
    add(t, "failed_invalidations_total", "", "counter",
        "writes after which readers may see the old row for its ttl", m->stale);
}

void metrics_lane_text(FILE *t, const char *lane,
                       const struct lane_stats *stats)
{
    char labels[40];

    (void)fprintf(t, "# HELP hotitems_reads_total items read, by origin\n"
                     "# TYPE hotitems_reads_total counter\n");
    for (enum lane_origin i = 0; i < LANE_ORIGINS; i++)
        (void)fprintf(
            t, "hotitems_reads_total{lane=\"%s\",origin=\"%s\"} %llu\n", lane,
            lane_origin_name(i), (unsigned long long)stats->origin[i]);
    (void)snprintf(labels, sizeof(labels), "{lane=\"%s\"}", lane);
    add(t, "queries_total", labels, "counter",
        "queries for items that the database has answered", stats->queries);
    add(t, "queries_alive", labels, "gauge",
        "queries for items that have not ended", stats->queries_alive);
    add(t, "callers_waiting", labels, "gauge", "callers that wait for an item",
        stats->waiting);
}
