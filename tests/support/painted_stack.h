/* Threads whose stacks are filled with a pattern, to see how much of them is
 * used. */
#ifndef PAINTED_STACK_H
#define PAINTED_STACK_H

#include <pthread.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

/* Run on a thread whose stack is small (128 kB), with a large guard below it.
 * Returns: how many bytes of it were used. */
size_t stack_use_of(void (*run)(void));

/* Start a thread with a painted stack; as pthread_create. It must be joined. */
int painted_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* The most bytes that one of the threads so far has used; all must have ended.
 */
size_t painted_use(void);

/* Print it, and check that it is at most that; not with a sanitizer, which
 * enlarges frames. */
void check_stack_use(const char *what, size_t used, size_t bound);

#endif
