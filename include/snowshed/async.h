/*
 * Calls without a thread that waits: each ends with a call of a function, done.
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
 * Each takes the options of the call that blocks, whose name is without _async,
 * and shares loads with it. Meanwhile it costs memory alone: a few hundred
 * bytes and its key. It returns SHED_OK if done will be called, and SHED_EBUSY
 * if calls for async_limit keys are under way (until they are in a queue, or
 * done is called). None of these functions blocks.
 */
#ifndef SNOWSHED_ASYNC_H
#define SNOWSHED_ASYNC_H

#include <snowshed/snowshed.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How a call ended: code is what the call that blocks would have returned, or
 * SHED_ECLOSED if the cache was closed; value is a reference of yours, NULL on
 * failure and for calls that bring none; reason is NULL with SHED_OK, and valid
 * until done returns.
 *
 * Called exactly once for a call that returned SHED_OK, else never. With a
 * queue: by shed_queue_collect, on its thread, where it may do anything.
 * Without: on the client's thread, perhaps before the call has returned; it
 * must not block.
 */
typedef void shed_done_fn(void *user, enum shed_code code,
                          struct shed_value *value,
                          const struct shed_error *reason);

/* The ended calls of any number of caches, until a thread collects them. */
struct shed_queue;

/* Open a queue. Returns: also SHED_EBUSY. */
SHED_API SHED_MUST_CHECK enum shed_code shed_queue_open(struct shed_queue **out,
                                                        struct shed_error *err);

/* Returns: a descriptor that is readable while there is something to collect.
 * Do not read it. */
SHED_API int shed_queue_fd(const struct shed_queue *queue);

/*
 * Call the done of up to max calls that have ended, in this order, on this
 * thread. Several threads may collect at a time, and so may a done.
 *
 * Returns: how many; below max: there are no more for now. In a forked child 0.
 */
SHED_API size_t shed_queue_collect(struct shed_queue *queue, size_t max);

/* Close a queue, of which every call has been collected. */
SHED_API void shed_queue_close(struct shed_queue *queue);

struct shed_then {
    shed_done_fn *done;
    void *user;
    struct shed_queue *queue; /* where the ended call goes; or NULL */
};

/* A call under way, until its done is called. The parameter pending of a call,
 * which may be NULL, gets it for shed_cancel; or NULL if it is over. */
struct shed_pending;

/* Get the value of a key. If near is not NULL and the row is near (near_bytes),
 * *near gets it at once, and done is not called; else *near gets NULL. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_async(struct shed_cache *cache, struct shed_bytes key,
               const struct shed_get_options *options,
               const struct shed_then *then, struct shed_value **near,
               struct shed_pending **pending, struct shed_error *err);

/* Get many keys. Until done is called keep items, and the options' errors, and
 * leave them alone (the keys are copied). done gets no value: give back those
 * of the items. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_get_many_async(struct shed_cache *cache, struct shed_item *items,
                    size_t count, const struct shed_get_options *options,
                    const struct shed_then *then, struct shed_pending **pending,
                    struct shed_error *err);

/* Store a row that you have just committed. Returns: also SHED_ETOOBIG. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_put_async(struct shed_cache *cache, struct shed_bytes key,
               struct shed_bytes row, const struct shed_put_options *options,
               const struct shed_then *then, struct shed_pending **pending,
               struct shed_error *err);

/* Remove the entry of a key; the promise of shed_invalidate holds from the call
 * of done on. With SHED_ECLOSED it is undelivered, and sent once more. */
SHED_API SHED_MUST_CHECK enum shed_code
shed_invalidate_async(struct shed_cache *cache, struct shed_bytes key,
                      uint64_t timeout_ms, const struct shed_then *then,
                      struct shed_pending **pending, struct shed_error *err);

/*
 * End a call now: done gets SHED_ETIMEDOUT, as at the deadline, but not before
 * this has returned, unless it is called on the client's thread. A load goes on
 * if others wait for it, too. A write may have been carried out, or is
 * undelivered; a put that is on its way ends when Redis has answered or would
 * refuse it, within a second.
 *
 * A pending call is gone once its done is called: so cancel on the thread that
 * collects, or under a mutex that done takes.
 *
 * Returns: 1; 0: too late, or in a forked child.
 */
SHED_API int shed_cancel(struct shed_pending *pending);

#ifdef __cplusplus
}
#endif

#endif
