/* What an instance reports over /events: its counters, now and so far. */
#ifndef HOTITEMS_SAMPLE_H
#define HOTITEMS_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/histogram.h"
#include "lane.h"

struct service;

#define SAMPLE_MS 250
#define SAMPLES_PER_SECOND (1000 / SAMPLE_MS)

/* Of one thread. {0} is one that has taken no sample. */
struct sampler {
    uint64_t taken; /* samples so far */
    /* what had been counted at the samples of the last second */
    struct histogram_counts latency[SAMPLES_PER_SECOND];
    struct lane_stats last;
};

/* Take a sample, every SAMPLE_MS, and publish it as an event. */
void sample_publish(struct sampler *sampler, struct service *s);

#endif
