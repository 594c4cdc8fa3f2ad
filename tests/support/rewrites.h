/* Rows that a process changes just before a primary is lost, for tests of what
 * the next one lacks. */
#ifndef REWRITES_H
#define REWRITES_H

#include "support/fixture.h"

enum { REWRITES = 30 };

/* The key of each row. */
const char *rewrite_key(unsigned i, char key[16]);

/* Change all rows of the fixture's table, and invalidate each, expire it, or
 * put it with its version. */
void rewrite_all(void);

/* Let a process read all rows. Returns: how many are not of this version. */
unsigned rewrites_missed(struct shed_cache *cache, unsigned version);

/* A process reads all rows as they were changed last. */
void expect_rewrites(struct shed_cache *cache);

#endif
