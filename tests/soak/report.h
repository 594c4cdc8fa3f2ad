/* The soak's report. */
#ifndef SOAK_REPORT_H
#define SOAK_REPORT_H

#include "soak/history.h"

/* A fault as the report shows it. */
struct soak_tally {
    const char *name; /* NULL: it is not made on this topology */
    unsigned made;
};

struct soak_report_data {
    const struct soak_history *history;
    const struct soak_tally *faults; /* by their numbers */
    unsigned fault_count;
    struct soak_sample early[SOAK_LASTING], late[SOAK_LASTING];
};

/* A line of progress. */
void soak_tell_progress(const struct soak_history *history, uint64_t after_s,
                        unsigned faults, const char *fault);

void soak_print(const struct soak_report_data *data);

#endif
