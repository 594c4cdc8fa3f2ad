/*
 * The jobs that wait at a source. Pure.
 *
 * A job for which callers wait goes before all that are loaded in the
 * background, so that nobody waits for a refresh; among its like each goes in
 * the order in which it came. There is no share that refreshes get in any case:
 * a row whose refresh is never begun is given out as long as its windows allow,
 * and is then a miss, for which a caller waits.
 */
#ifndef SHED_LOAD_QUEUE_H
#define SHED_LOAD_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/job.h"

/* Jobs for which callers wait, and those in the background. */
enum { SHED_LANE_CALLERS, SHED_LANE_BACKGROUND, SHED_LANES };

/* All zero at the beginning. */
struct shed_load_queue {
    struct shed_load_lane {
        struct shed_list jobs;
        size_t count;
    } lanes[SHED_LANES];
};

size_t shed_load_queue_count(const struct shed_load_queue *queue);

void shed_load_queue_push(struct shed_load_queue *queue, struct shed_job *job);

/* Take the next job. Returns: NULL if there is none. */
struct shed_job *shed_load_queue_pop(struct shed_load_queue *queue);

/* Take the oldest job in the background, if its deadline has passed at now_ms;
 * at UINT64_MAX each has. Returns: NULL if there is none. */
struct shed_job *shed_load_queue_drop(struct shed_load_queue *queue,
                                      uint64_t now_ms);

/* A caller waits for this job now, which need not be in the queue. */
void shed_load_queue_hasten(struct shed_load_queue *queue,
                            struct shed_job *job);

#endif
