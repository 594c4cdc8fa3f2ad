/*
 * Random numbers. Its one invariant: a token is made of nothing but
 * getrandom's bytes, and is never half of them.
 *
 * A child of fork() inherits its parent's jitter state, so both draw the same
 * jitter. The only cost is that the two wait for equal times; comparing the
 * process id would cost a system call on the hot path.
 */
#include "base/random.h"

#include <assert.h>
#include <errno.h>

#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"

/* Up to this size getrandom is atomic, once the kernel's pool is seeded. */
#define TOKEN_MAX_BYTES ((size_t)256)

enum shed_code shed_random_token(void *out, size_t size, struct shed_error *err)
{
    ssize_t got;

    assert(size <= TOKEN_MAX_BYTES);
    /* non-blocking, because in early boot it could wait past any deadline */
    do
        got = getrandom(out, size, GRND_NONBLOCK);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)size)
        return SHED_OK;
    return shed_fail(err, SHED_EBUSY,
                     "no random bytes: getrandom failed, errno %d", errno);
}

void shed_random_unique(void *out, size_t size)
{
    unsigned char *bytes = out;

    if (shed_random_token(out, size, NULL) == SHED_OK)
        return;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)shed_random_jitter();
}

/* If the kernel has no random bytes, time and address are good enough for
 * jitter: threads differ in the address, processes in the microsecond. */
static uint64_t seed(const uint64_t *place)
{
    uint64_t bits;

    if (shed_random_token(&bits, sizeof(bits), NULL) == SHED_OK)
        return bits;
    return shed_now_us() ^ (uint64_t)(uintptr_t)place << 20;
}

/* SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014. */
uint64_t shed_random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint64_t shed_random_jitter(void)
{
    static _Thread_local uint64_t state; /* 0: not seeded yet */

    if (state == 0)
        state = seed(&state);
    return shed_random_next(&state);
}
