/*
 * Queues of ended calls. Its invariant: the descriptor becomes readable after
 * a call has come into the empty queue, and is read when the last one is taken;
 * or at the next try to collect, if that was faster.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mutex.h"
#include "base/process.h"
#include "cache/pending.h"

struct shed_queue {
    /* set at creation */
    int fd;
    pid_t pid;
    atomic_uint tellers; /* threads that are about to write to fd */
    struct shed_mutex mu;
    /* under mu */
    struct shed_pending *first;
    struct shed_pending **last;
    bool is_told_late; /* fd may become readable for a call that is taken */
};

/* -------------------------------------------------------------- the calls */

void shed_pending_tell(struct shed_pending *p)
{
    const struct shed_then then = p->then;
    struct shed_value *value = p->value;
    enum shed_code code = p->code;
    struct shed_error why;

    if (code != SHED_OK)
        (void)shed_fail(&why, code, "%s", shed_error_kept(p->why));
    free(p->why);
    free(p);
    then.done(then.user, code, value, code != SHED_OK ? &why : NULL);
}

/* ------------------------------------------------------------- the queue */

void shed_queue_add(struct shed_queue *q, struct shed_pending *first,
                    struct shed_pending **last)
{
    const uint64_t one = 1;
    bool was_empty;

    shed_mutex_lock(&q->mu);
    was_empty = q->first == NULL;
    *q->last = first;
    q->last = last;
    if (was_empty)
        (void)atomic_fetch_add(&q->tellers, 1);
    shed_mutex_unlock(&q->mu);
    if (!was_empty)
        return;
    /* without the mutex, for which the collector that this wakes would wait */
    (void)!write(q->fd, &one, sizeof(one));
    (void)atomic_fetch_sub(&q->tellers, 1);
}

/* One at a time, so that a done which collects gets the next one. */
static struct shed_pending *take(struct shed_queue *q)
{
    struct shed_pending *p;
    uint64_t count;

    shed_mutex_lock(&q->mu);
    p = q->first;
    if (p != NULL)
        q->first = p->next;
    if (q->first == NULL && (p != NULL || q->is_told_late)) {
        q->last = &q->first;
        q->is_told_late = atomic_load(&q->tellers) > 0;
        /* the descriptor does not block */
        /* NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection) */
        (void)!read(q->fd, &count, sizeof(count));
    }
    shed_mutex_unlock(&q->mu);
    return p;
}

size_t shed_queue_collect(struct shed_queue *q, size_t max)
{
    struct shed_pending *p;
    size_t count = 0;

    if (q == NULL || q->pid != shed_process_id())
        return 0;
    while (count < max && (p = take(q)) != NULL) {
        shed_pending_tell(p);
        count++;
    }
    return count;
}

int shed_queue_fd(const struct shed_queue *q)
{
    return q->fd;
}

enum shed_code shed_queue_open(struct shed_queue **out, struct shed_error *err)
{
    struct shed_queue *q;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "shed_queue_open: out is NULL");
    *out = NULL;
    q = calloc(1, sizeof(*q));
    if (q == NULL)
        return shed_fail_nomem(err, "a queue");
    q->pid = shed_process_id();
    q->last = &q->first;
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->fd >= 0 && shed_mutex_init(&q->mu, SHED_RANK_QUEUE) == 0) {
        *out = q;
        return SHED_OK;
    }
    if (q->fd >= 0)
        close(q->fd);
    free(q);
    return shed_fail(err, SHED_EBUSY, "no descriptor is available for a queue");
}

void shed_queue_close(struct shed_queue *q)
{
    if (q == NULL)
        return;
    /* a call may be collected before its thread has told of it */
    while (atomic_load(&q->tellers) > 0)
        (void)sched_yield();
    close(q->fd);
    shed_mutex_destroy(&q->mu);
    free(q);
}
