/* Requests to the instances: blocking, one connection each, on loopback. */
#ifndef HOTITEMS_STAGE_ASK_H
#define HOTITEMS_STAGE_ASK_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define ASK_BYTES 65536 /* of an answer, at most */

/* body: JSON, or NULL. Returns the status, or 0 without a complete answer
 * within timeout_ms. *answer gets a JSON object, or NULL; answer may be NULL.
 */
int ask(uint16_t port, const char *method, const char *path, const char *body,
        uint64_t timeout_ms, json_t **answer);

#define ASK_ITEMS_MAX 100 /* hotitems takes no more at once */

/* Ask for up to ASK_ITEMS_MAX items, the first one and those after it. path
 * ends with "ids=", and the list follows. Returns: as ask. */
int ask_items(uint16_t port, const char *method, const char *path,
              uint64_t first, uint64_t count, uint64_t timeout_ms);

#endif
