/* The checked fixture of tests of a single lock: a private server, and two
 * clients of it, as two processes would have them. It closes the locks that
 * were opened by open_kept. */
#ifndef LOCK_PAIR_H
#define LOCK_PAIR_H

#include "support/lock_fixture.h"

extern struct shed_client *client, *other;

void pair_up(void);
void pair_down(void);

#endif
