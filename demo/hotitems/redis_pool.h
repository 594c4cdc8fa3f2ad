/* A bounded pool of blocking connections to Redis, and pipelines over them. */
#ifndef HOTITEMS_REDIS_POOL_H
#define HOTITEMS_REDIS_POOL_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

struct redis_pool;

/* At most connections_max at a time, opened when they are needed. Returns NULL
 * if memory is out. uri must live as long. */
struct redis_pool *redis_pool_new(const char *uri, size_t connections_max);
void redis_pool_free(struct redis_pool *pool); /* none is in use */

#define REDIS_BATCH_MAX 100

/* Commands of one pipeline, and their replies; {0} is an empty one. */
struct redis_batch {
    size_t count;
    char *command[REDIS_BATCH_MAX]; /* NULL: memory was out */
    int size[REDIS_BATCH_MAX];
    redisReply *reply[REDIS_BATCH_MAX]; /* of type REDIS_REPLY_ERROR never */
};

/* As redisCommand formats it. */
void redis_batch_add(struct redis_batch *batch, const char *format, ...);

/*
 * Send the commands and wait for their replies.
 *
 * Returns: SHED_OK; SHED_ETIMEDOUT at deadline_ms (by http_now_ms), SHED_EBUSY
 * if no connection became free until then, SHED_EREDIS, SHED_ENOMEM: err says
 * why, and there are no replies. Clear the batch in any case.
 */
enum shed_code redis_batch_run(struct redis_pool *pool,
                               struct redis_batch *batch, uint64_t deadline_ms,
                               struct shed_error *err);

/* Free commands and replies: it is empty again. */
void redis_batch_clear(struct redis_batch *batch);

#endif
