/* The hash of bytes, XXH3-64: for tables, and for the checksum of entries, of
 * whose format it is a part. */
#ifndef SHED_HASH_H
#define SHED_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Any thread. */
uint64_t shed_hash(const void *bytes, size_t size, uint64_t seed);

#endif
