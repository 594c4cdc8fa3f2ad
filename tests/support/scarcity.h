/* Memory, threads and random bytes that run out when a test says so. For a
 * program that is linked with the options "scarcity" of CMakeLists.txt; what
 * hiredis allocates counts as well. */
#ifndef SCARCITY_H
#define SCARCITY_H

#include <stdbool.h>

/* Let the n-th allocation of the calling thread fail, counted from 0. */
void scarcity_begin(int n);

/* End that. Returns: whether one has failed. */
bool scarcity_end(void);

/* The same for all other threads together, whose order is by chance. */
void scarcity_begin_elsewhere(int n);
bool scarcity_end_elsewhere(void);

/* Let no allocation for a reply fail: that costs the connection. */
void scarcity_spare_replies(bool are_spared);

/* No thread can be started, or no random byte be had, until this is called with
 * false. */
void scarcity_of_threads(bool are_out);
void scarcity_of_random_bytes(bool are_out);

#endif
