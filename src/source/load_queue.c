/* Two queues, of which one goes first. The invariant: a job knows the pointer
 * that leads to it exactly while it is in one of them. */
#include "source/load_queue.h"

#include <assert.h>

void shed_load_queue_init(struct shed_load_queue *q)
{
    *q = (struct shed_load_queue){{NULL, NULL, 0, 0}, {NULL, NULL, 0, 0}};
    q->waited_for.last = &q->waited_for.first;
    q->background.last = &q->background.first;
}

size_t shed_load_queue_count(const struct shed_load_queue *q)
{
    return q->waited_for.count + q->background.count;
}

size_t shed_load_queue_ready(const struct shed_load_queue *q)
{
    return q->waited_for.ready + q->background.ready;
}

void shed_load_queue_push(struct shed_load_queue *q, struct shed_job *job)
{
    struct shed_load_lane *lane =
        job->is_background ? &q->background : &q->waited_for;

    job->next = NULL;
    job->at = lane->last;
    *lane->last = job;
    lane->last = &job->next;
    lane->count++;
}

void shed_load_queue_wake(struct shed_load_queue *q)
{
    q->waited_for.ready = q->waited_for.count;
    q->background.ready = q->background.count;
}

/* It is the first, or all are ready. */
static struct shed_job *remove_from(struct shed_load_lane *lane,
                                    struct shed_job *job)
{
    assert(lane->first == job || lane->ready == lane->count);
    *job->at = job->next;
    if (job->next != NULL)
        job->next->at = job->at;
    else
        lane->last = job->at;
    job->at = NULL;
    lane->count--;
    if (lane->ready > 0)
        lane->ready--;
    return job;
}

struct shed_job *shed_load_queue_pop(struct shed_load_queue *q)
{
    struct shed_load_lane *lane =
        q->waited_for.ready > 0 ? &q->waited_for : &q->background;

    return lane->ready > 0 ? remove_from(lane, lane->first) : NULL;
}

struct shed_job *shed_load_queue_drop(struct shed_load_queue *q,
                                      uint64_t now_ms)
{
    struct shed_job *job = q->background.first;

    if (job == NULL || job->deadline_ms > now_ms)
        return NULL;
    return remove_from(&q->background, job);
}

struct shed_job *shed_load_queue_take_all(struct shed_load_queue *q)
{
    struct shed_job *all;

    *q->waited_for.last = q->background.first;
    all = q->waited_for.first;
    for (struct shed_job *job = all; job != NULL; job = job->next)
        job->at = NULL;
    shed_load_queue_init(q);
    return all;
}

bool shed_load_queue_hasten(struct shed_load_queue *q, struct shed_job *job)
{
    if (!job->is_background || job->at == NULL)
        return false;
    shed_load_queue_wake(q);
    (void)remove_from(&q->background, job);
    job->is_background = false;
    shed_load_queue_push(q, job);
    shed_load_queue_wake(q);
    return true;
}
