/* Four processes, each with 50 callers of one key, when its row expires: a part
 * of bench_wait. */
#ifndef STAMPEDE_H
#define STAMPEDE_H

#include <stdbool.h>
#include <stddef.h>

/* is_async: the callers of a process are calls that one thread begins and
 * collects from a queue; else threads that block. Prints what an expiry costs.
 */
void stampede_run(const char *socket, size_t rounds, bool is_async);

#endif
