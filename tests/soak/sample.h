/* What a process has of the system, and whether that has grown. */
#ifndef SOAK_SAMPLE_H
#define SOAK_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct soak_sample {
    unsigned long kib, descriptors, threads; /* kib 0: not taken */
    unsigned long allocated_kib;
};

/* Of a process that says itself how much it has allocated. */
struct soak_sample soak_sample_take(pid_t pid, uint64_t allocated);

/* What this process has allocated, bytes. */
uint64_t soak_sample_allocated(void);

/* Keep the least of each. A process that does the same all the time comes back
 * to it between its calls, and so does what is open in it; a leak does not. */
void soak_sample_lower(struct soak_sample *least,
                       const struct soak_sample *sample);

/* Whether a process that goes on has no more than it needs, some time after
 * early. */
bool soak_sample_is_flat(const struct soak_sample *early,
                         const struct soak_sample *late);

/* Whether one that has closed all has what it had before it opened them. */
bool soak_sample_is_clean(const struct soak_sample *before,
                          const struct soak_sample *after);

#endif
