/* The loop: one thread that runs what is posted to it, its timers and its
 * sockets. libuv behind a face that the layers above can see. */
#ifndef SHED_REDIS_REACTOR_H
#define SHED_REDIS_REACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

struct shed_reactor;
struct shed_timer;

/* Something to be run on the reactor thread; its memory is the poster's until
 * run is called. */
struct shed_post {
    void (*run)(struct shed_post *post);
    struct shed_post *next;
};

/* Start the thread. Returns: SHED_OK; SHED_ENOMEM, SHED_EBUSY (no thread or
 * descriptor). */
SHED_MUST_CHECK enum shed_code shed_reactor_start(struct shed_reactor **out,
                                                  struct shed_error *err);

/* Run what has been posted, end the thread, free it. Sockets and timers must
 * have been closed by what was posted. NULL is allowed. */
void shed_reactor_stop(struct shed_reactor *reactor);

/* In a forked child there is no thread to stop: free what can be freed. */
void shed_reactor_forget(struct shed_reactor *reactor);

/* Any thread; never runs it before the return. */
void shed_reactor_post(struct shed_reactor *reactor, struct shed_post *post);

/* A list by next, NULL for none, all in one turn of the loop. */
void shed_reactor_post_all(struct shed_reactor *reactor,
                           struct shed_post *posts);

/* Post and wait until it has run; not on the reactor thread. */
void shed_reactor_run(struct shed_reactor *reactor, void (*run)(void *arg),
                      void *arg);

/* Whether the calling thread is the loop's. */
bool shed_reactor_is_current(const struct shed_reactor *reactor);

/* A timer, of one shot. Any thread, so that a failure can be told where the
 * timer is asked for. Returns NULL when memory is out. */
struct shed_timer *shed_timer_create(struct shed_reactor *reactor,
                                     void (*run)(void *arg), void *arg);

/* Start it; one that runs already is replaced. Reactor thread only. */
void shed_timer_set(struct shed_timer *timer, uint64_t delay_ms);

/* Reactor thread only. */
void shed_timer_stop(struct shed_timer *timer);

/* Stop and free it. Reactor thread only, any thread for one that was never
 * set. NULL is allowed. */
void shed_timer_destroy(struct shed_timer *timer);

/* For src/redis alone: the uv_loop_t. */
void *shed_reactor_loop(struct shed_reactor *reactor);

#endif
