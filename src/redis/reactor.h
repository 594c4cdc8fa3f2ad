/* The loop: one thread that runs posted functions, timers and sockets. It hides
 * libuv from the layers above. */
#ifndef SHED_REDIS_REACTOR_H
#define SHED_REDIS_REACTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

struct shed_reactor;
struct shed_timer;

/* A function to run on the reactor thread. The post must stay valid until run
 * is called; after that the loop does not touch it. */
struct shed_post {
    void (*run)(struct shed_post *post);
    struct shed_post *next;
    atomic_bool is_posted; /* by shed_reactor_wake */
};

/* Start the thread. Returns: SHED_OK; SHED_ENOMEM, SHED_EBUSY (no thread or
 * descriptor). */
SHED_MUST_CHECK enum shed_code shed_reactor_start(struct shed_reactor **out,
                                                  struct shed_error *err);

/* Run all posts, end the thread, free the reactor. The posts must have closed
 * all sockets and timers. NULL is allowed. */
void shed_reactor_stop(struct shed_reactor *reactor);

/* In a forked child, where there is no thread to stop: free what can be
 * freed. */
void shed_reactor_forget(struct shed_reactor *reactor);

/* Post a function. Any thread; it never runs before this returns. */
void shed_reactor_post(struct shed_reactor *reactor, struct shed_post *post);

/* Post it, unless that has been done and it has not begun to run. It is posted
 * by this function alone. Any thread. */
void shed_reactor_wake(struct shed_reactor *reactor, struct shed_post *post);

/* Post a list, linked by next; all run in one turn of the loop. NULL: none. */
void shed_reactor_post_all(struct shed_reactor *reactor,
                           struct shed_post *posts);

/* Run a function on the reactor thread and wait for its end; not on that
 * thread. */
void shed_reactor_run(struct shed_reactor *reactor, void (*run)(void *arg),
                      void *arg);

/* Whether the calling thread is the loop's. */
bool shed_reactor_is_current(const struct shed_reactor *reactor);

/* Create a one-shot timer. Any thread, so that a failure can be reported where
 * the timer is needed. Returns NULL when out of memory. */
struct shed_timer *shed_timer_create(struct shed_reactor *reactor,
                                     void (*run)(void *arg), void *arg);

/* Start the timer; if it is already running it starts again. Reactor thread
 * only. */
void shed_timer_set(struct shed_timer *timer, uint64_t delay_ms);

/* Reactor thread only. */
void shed_timer_stop(struct shed_timer *timer);

/* Stop and free the timer. Reactor thread only; any thread if it was never set.
 * NULL is allowed. */
void shed_timer_destroy(struct shed_timer *timer);

/* For src/redis alone: the uv_loop_t. */
void *shed_reactor_loop(struct shed_reactor *reactor);

#endif
