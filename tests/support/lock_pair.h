/* The checked fixture of tests of a single lock: a private server, and two
 * clients of it, as two processes would have them. It closes the locks that
 * were opened by open_kept or open_pair. */
#ifndef LOCK_PAIR_H
#define LOCK_PAIR_H

#include "support/lock_fixture.h"

extern struct shed_client *client, *other;
extern struct shed_lock *mine, *theirs; /* of client, of other */

/* Open both, with the algorithm's default options. */
void open_pair(enum shed_lock_algorithm algorithm);

/* Goes down with server_down. */
void pair_up(void);

#endif
