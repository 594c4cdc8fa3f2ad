/* The soak's report: a table, and JSON on request. */
#ifndef SOAK_REPORT_H
#define SOAK_REPORT_H

#include <stdbool.h>

#include "soak/history.h"

/* A fault as the report shows it. */
struct soak_tally {
    const char *name; /* NULL: it is not made on this topology */
    unsigned made;
};

struct soak_report_data {
    const struct soak_history *history;
    uint64_t seed;
    const struct soak_tally *faults; /* by their numbers */
    unsigned fault_count;
    struct soak_sample early[SOAK_LASTING], late[SOAK_LASTING];
};

/* A line of progress. */
void soak_tell_progress(const struct soak_history *history, uint64_t after_s,
                        unsigned faults, const char *fault);

void soak_print(const struct soak_report_data *data);

/* Returns: false if the file cannot be written; errno says why. */
bool soak_write_json(const struct soak_report_data *data, const char *path);

#endif
