/* What the lane counts. */
#include "metrics.h"

static void add_lane(FILE *t, const char *lane, const char *name,
                     const char *type, const char *help, uint64_t value)
{
    (void)fprintf(t, "# HELP hotitems_%s %s\n# TYPE hotitems_%s %s\n", name,
                  help, name, type);
    (void)fprintf(t, "hotitems_%s{lane=\"%s\"} %llu\n", name, lane,
                  (unsigned long long)value);
}

void metrics_lane_text(FILE *t, const char *lane,
                       const struct lane_stats *stats)
{
    (void)fprintf(t, "# HELP hotitems_reads_total items read, by origin\n"
                     "# TYPE hotitems_reads_total counter\n");
    for (enum lane_origin i = 0; i < LANE_ORIGINS; i++)
        (void)fprintf(
            t, "hotitems_reads_total{lane=\"%s\",origin=\"%s\"} %llu\n", lane,
            lane_origin_name(i), (unsigned long long)stats->origin[i]);
    add_lane(t, lane, "queries_total", "counter",
             "queries for items that the database has answered",
             stats->queries);
    add_lane(t, lane, "queries_alive", "gauge",
             "queries for items that have not ended", stats->queries_alive);
    add_lane(t, lane, "callers_waiting", "gauge",
             "callers that wait for an item", stats->waiting);
}
