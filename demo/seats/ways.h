/* How a buyer is served, with a hold and without: ids[0] of a way's get is his
 * place in the hall's visits. */
#ifndef DEMO_SEATS_WAYS_H
#define DEMO_SEATS_WAYS_H

#include "common/ways.h"
#include "hall.h"

/* A seat that looks free is charged and then written as his. */
extern const struct way seats_plain;

/* A seat is held under a lock, and paid under the fencing guard. */
extern const struct way seats_held;

/* A buyer looks at so many of the seats that are free, the best ones. */
#define SEATS_IN_SIGHT 8

#endif
