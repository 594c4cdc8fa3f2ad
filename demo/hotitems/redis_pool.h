/* Bounded pools of blocking connections to Redis, one for each node of a
 * cluster, and pipelines over them. */
#ifndef HOTITEMS_REDIS_POOL_H
#define HOTITEMS_REDIS_POOL_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

struct redis_pool;

/* uri is one of demo_redis_open, or redis+cluster://host:port,host:port.
 * Returns NULL if memory is out. */
struct redis_pool *redis_pool_new(const char *uri);
void redis_pool_free(struct redis_pool *pool); /* none is in use */

#define REDIS_BATCH_MAX 100

/* Commands of one pipeline, and their replies; {0} is an empty one. */
struct redis_batch {
    size_t count;
    char *command[REDIS_BATCH_MAX]; /* NULL: memory was out */
    int size[REDIS_BATCH_MAX];
    unsigned slot[REDIS_BATCH_MAX];     /* of a cluster: that of its key */
    redisReply *reply[REDIS_BATCH_MAX]; /* of type REDIS_REPLY_ERROR never */
};

/* As redisCommand formats it; key is the only one that is in it. */
void redis_batch_add(struct redis_batch *batch, const char *key,
                     const char *format, ...);

/*
 * Send the commands and wait for their replies.
 *
 * Returns: SHED_OK; SHED_ETIMEDOUT at deadline_ms (by wait_now_ms), SHED_EBUSY
 * if no connection became free until then, SHED_EREDIS, SHED_ENOMEM: err says
 * why, and there are no replies. Clear the batch in any case.
 */
enum shed_code redis_batch_run(struct redis_pool *pool,
                               struct redis_batch *batch, uint64_t deadline_ms,
                               struct shed_error *err);

/* Free commands and replies: it is empty again. */
void redis_batch_clear(struct redis_batch *batch);

#endif
