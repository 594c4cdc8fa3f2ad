/* What Redis has of an item in a lane. */
#ifndef HOTITEMS_STAGE_ENTRY_H
#define HOTITEMS_STAGE_ENTRY_H

#include "stage.h"

/* Answer {"why": ..., "entry": ...} by the command-line tool for the lane
 * snowshed, else {"ttl_ms": n, "size": n, "lock_ms": n}; negative as PTTL has
 * it. */
void entry_reply(struct stage *stage, const char *lane, const char *id,
                 struct http_reply *reply);

#endif
