/* Random numbers: tokens from getrandom, jitter from a cheap generator that
 * getrandom seeds once per thread. */
#ifndef SHED_RANDOM_H
#define SHED_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

/* Fill out with size (at most 256) bytes that nobody can guess.
 * Returns: SHED_OK, SHED_EBUSY if the kernel has none to give. */
SHED_MUST_CHECK enum shed_code shed_random_token(void *out, size_t size,
                                                 struct shed_error *err);

/* The same for bytes that only have to differ from all others, because nobody
 * tries to guess them: where the kernel has none, they are jitter. */
void shed_random_unique(void *out, size_t size);

/* 64 bits for jitter; never for a token. */
uint64_t shed_random_jitter(void);

/* The next 64 bits of a generator that begins with any state. */
uint64_t shed_random_next(uint64_t *state);

#endif
