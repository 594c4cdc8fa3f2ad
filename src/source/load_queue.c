/* Two queues, of which one goes first. The invariant: is_queued is set exactly
 * while a job is in one of them. */
#include "source/load_queue.h"

#include "base/container.h"

size_t shed_load_queue_count(const struct shed_load_queue *q)
{
    return q->lanes[SHED_LANE_CALLERS].count +
           q->lanes[SHED_LANE_BACKGROUND].count;
}

void shed_load_queue_push(struct shed_load_queue *q, struct shed_job *job)
{
    struct shed_load_lane *lane =
        &q->lanes[job->is_background ? SHED_LANE_BACKGROUND
                                     : SHED_LANE_CALLERS];

    shed_list_append(&lane->jobs, &job->node);
    job->is_queued = true;
    lane->count++;
}

static struct shed_job *remove_from(struct shed_load_lane *lane,
                                    struct shed_node *node)
{
    struct shed_job *job = shed_container_of(node, struct shed_job, node);

    shed_list_remove(&lane->jobs, node);
    job->is_queued = false;
    lane->count--;
    return job;
}

struct shed_job *shed_load_queue_pop(struct shed_load_queue *q)
{
    struct shed_load_lane *lane =
        &q->lanes[q->lanes[SHED_LANE_CALLERS].count > 0 ? SHED_LANE_CALLERS
                                                        : SHED_LANE_BACKGROUND];

    return lane->count > 0 ? remove_from(lane, lane->jobs.first) : NULL;
}

struct shed_job *shed_load_queue_drop(struct shed_load_queue *q,
                                      uint64_t now_ms)
{
    struct shed_load_lane *lane = &q->lanes[SHED_LANE_BACKGROUND];

    if (lane->count == 0 ||
        shed_container_of(lane->jobs.first, struct shed_job, node)
                ->deadline_ms > now_ms)
        return NULL;
    return remove_from(lane, lane->jobs.first);
}

void shed_load_queue_hasten(struct shed_load_queue *q, struct shed_job *job)
{
    bool moves = job->is_background && job->is_queued;

    if (moves)
        (void)remove_from(&q->lanes[SHED_LANE_BACKGROUND], &job->node);
    job->is_background = false;
    if (moves)
        shed_load_queue_push(q, job);
}
