/*
 * Calls without a thread that waits: each ends with a call of a function, done.
 *
 *     static void on_item(void *user, enum shed_code code,
 *                         struct shed_value *value,
 *                         const struct shed_error *reason);
 *
 *     struct shed_queue *queue;
 *     struct shed_then then = {on_item, request, queue};
 *
 *     if (shed_queue_open(&queue, &err))
 *         die(err.reason);
 *     ... have the event loop watch shed_queue_fd(queue) for reading; when it
 *     ... is readable: shed_queue_collect(queue, 100);
 *
 *     if (shed_get_async(items, shed_str("42"), NULL, &then, NULL, NULL, &err))
 *         return fail(err.code, err.reason); // done will not be called
 *
 * A call takes the options of the one that blocks, gives the same answers,
 * and shares loads with it. While it is under way it costs memory alone: a few
 * hundred bytes and its key.
 *
 * Threads, callbacks, memory, fork, failure: as in snowshed.h. None of these
 * functions blocks, so they may be called in callbacks, too.
 */
#ifndef SNOWSHED_ASYNC_H
#define SNOWSHED_ASYNC_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How a call ended: code is what the call that blocks would have returned;
 * value is a reference of yours, NULL on failure and for calls that bring none;
 * reason is valid during the call, and NULL with SHED_OK.
 *
 * Called exactly once for a call that returned SHED_OK, never for another one.
 * With a queue: by shed_queue_collect, on its thread, where it may do anything.
 * Without: on the client's thread, perhaps before the call has returned; it
 * must not block.
 */
typedef void shed_done_fn(void *user, enum shed_code code,
                          struct shed_value *value,
                          const struct shed_error *reason);

/* ----------------------------------------------------------------- queue */

/* The ended calls of any number of caches, until a thread of the program
 * collects them. */
struct shed_queue;

/* Open a queue. Returns: SHED_OK and *out; SHED_EBUSY (no descriptor). */
SHED_API SHED_MUST_CHECK enum shed_code shed_queue_open(struct shed_queue **out,
                                                        struct shed_error *err);

/* Returns: a descriptor, the queue's own, that poll finds readable while there
 * is something to collect. Do not read it. */
SHED_API int shed_queue_fd(const struct shed_queue *queue);

/*
 * Call the done of up to max calls that have ended, in the order in which they
 * did. Several threads may collect at the same time.
 *
 * Calls back: done, on this thread; also in the midst of it, if done collects.
 * Returns: how many; less than max: there are no more for now. In a forked
 * child 0.
 */
SHED_API size_t shed_queue_collect(struct shed_queue *queue, size_t max);

/* Close a queue, of which every call has been collected. NULL is allowed. In a
 * forked child it frees the child's memory, and its descriptor. */
SHED_API void shed_queue_close(struct shed_queue *queue);

/* ----------------------------------------------------------------- calls */

/* What follows a call. It is copied. */
struct shed_then {
    shed_done_fn *done;
    void *user;               /* passed to done */
    struct shed_queue *queue; /* where the call goes when it has ended; NULL:
                                 done is called on the client's thread */
};

/* A call under way. It ends when its done is called. */
struct shed_pending;

/*
 * Get the value of a key, as shed_get does. only_cached and the other options
 * are as there.
 *
 * near: NULL, or where to put the row at once if the cache has it near
 * (near_bytes); then the call is over, and done is not called. Else *near is
 * NULL. With NULL a near row comes by done, too.
 * pending: NULL, or where to put the call for shed_cancel; NULL if it is over.
 *
 * Returns: SHED_OK: done gets a code of shed_get, or SHED_ECLOSED (the cache
 * was closed); or *near is the answer. SHED_EBUSY: calls for as many keys are
 * under way as the cache's async_limit allows.
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_async(struct shed_cache *cache, struct shed_bytes key,
               const struct shed_get_options *options,
               const struct shed_then *then, struct shed_value **near,
               struct shed_pending **pending, struct shed_error *err);

/*
 * Get many keys, as shed_get_many does. items, and the options' errors, are
 * yours again when done is called; until then keep them, and leave them alone.
 * The keys are copied.
 *
 * Returns: SHED_OK: done gets a code of shed_get_many, or SHED_ECLOSED, and no
 * value; the items have theirs, which you give back. SHED_EBUSY (async_limit).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_many_async(struct shed_cache *cache, struct shed_item *items,
                    size_t count, const struct shed_get_options *options,
                    const struct shed_then *then, struct shed_pending **pending,
                    struct shed_error *err);

/*
 * Store a row that you have just committed, as shed_put does. Key, row and
 * options are copied.
 *
 * Returns: SHED_OK: done gets a code of shed_put, or SHED_ECLOSED.
 * SHED_ETOOBIG, SHED_EBUSY (async_limit, or no random numbers available).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_put_async(struct shed_cache *cache, struct shed_bytes key,
               struct shed_bytes row, const struct shed_put_options *options,
               const struct shed_then *then, struct shed_pending **pending,
               struct shed_error *err);

/*
 * Remove the entry of a key, as shed_invalidate does; what it promises holds
 * from the call of done on.
 *
 * Returns: SHED_OK: done gets a code of shed_invalidate, or SHED_ECLOSED, with
 * which it is undelivered and sent once more. SHED_EBUSY (async_limit).
 */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_async(struct shed_cache *cache, struct shed_bytes key,
                      uint64_t timeout_ms, const struct shed_then *then,
                      struct shed_pending **pending, struct shed_error *err);

/*
 * End a call now: done gets SHED_ETIMEDOUT, as it would at the deadline, though
 * never before this has returned, unless that is on the client's thread. A load
 * that it waits for goes on if others wait, too. A write may have been carried
 * out, or is undelivered; a put that is on its way ends only when Redis has
 * answered or would refuse it, within a second. The call counts towards
 * async_limit until it has ended: until done is called, or it is in its queue.
 *
 * A pending call is gone once its done is called. So cancel on the thread that
 * collects; or, where another thread does, under a mutex that done takes.
 *
 * Returns: 1: it came in time; 0: too late, done gets how the call ended; or in
 * a forked child.
 */
SHED_API int shed_cancel(struct shed_pending *pending);

#ifdef __cplusplus
}
#endif

#endif
