/* A connection on which anything failed is closed: its next reply could belong
 * to the command before. */
#include "redis_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "common/redis.h"
#include "http.h"
#include "wait.h"

struct redis_pool {
    /* set at creation */
    const char *uri;
    size_t connections_max;
    pthread_mutex_t mu;
    pthread_cond_t given_back;
    /* under mu */
    size_t open;
    size_t idle_count;
    redisContext *idle[]; /* connections_max */
};

static enum shed_code __attribute__((format(printf, 3, 4)))
fail(struct shed_error *err, enum shed_code code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(err->reason, sizeof(err->reason), format, args);
    va_end(args);
    return err->code = code;
}

struct redis_pool *redis_pool_new(const char *uri, size_t connections_max)
{
    struct redis_pool *pool =
        calloc(1, sizeof(*pool) + connections_max * sizeof(pool->idle[0]));

    if (pool == NULL)
        return NULL;
    pool->uri = uri;
    pool->connections_max = connections_max;
    wait_init(&pool->mu, &pool->given_back);
    return pool;
}

void redis_pool_free(struct redis_pool *pool)
{
    if (pool == NULL)
        return;
    assert(pool->open == pool->idle_count);
    while (pool->idle_count > 0)
        redisFree(pool->idle[--pool->idle_count]);
    (void)pthread_cond_destroy(&pool->given_back);
    (void)pthread_mutex_destroy(&pool->mu);
    free(pool);
}

/* ------------------------------------------------------------- connections */

/* Take an idle connection, or the right to open one (NULL). */
static enum shed_code reserve(struct redis_pool *pool, uint64_t deadline_ms,
                              redisContext **out, struct shed_error *err)
{
    enum shed_code code = SHED_OK;
    bool is_in_time = true;

    *out = NULL;
    (void)pthread_mutex_lock(&pool->mu);
    while (pool->idle_count == 0 && pool->open == pool->connections_max &&
           is_in_time)
        is_in_time = wait_until(&pool->given_back, &pool->mu, deadline_ms);
    if (pool->idle_count > 0)
        *out = pool->idle[--pool->idle_count];
    else if (pool->open < pool->connections_max)
        pool->open++;
    else
        code = fail(err, SHED_EBUSY, "all %zu connections to Redis are busy",
                    pool->connections_max);
    (void)pthread_mutex_unlock(&pool->mu);
    return code;
}

/* NULL gives back the place of a connection that has been closed. */
static void give_back(struct redis_pool *pool, redisContext *redis)
{
    (void)pthread_mutex_lock(&pool->mu);
    if (redis != NULL)
        pool->idle[pool->idle_count++] = redis;
    else
        pool->open--;
    (void)pthread_cond_signal(&pool->given_back);
    (void)pthread_mutex_unlock(&pool->mu);
}

/* After a failure: what broke one connection has most likely broken those that
 * idle, by a restart of the server, say. */
static void close_all_idle(struct redis_pool *pool)
{
    (void)pthread_mutex_lock(&pool->mu);
    while (pool->idle_count > 0) {
        redisFree(pool->idle[--pool->idle_count]);
        pool->open--;
    }
    (void)pthread_cond_broadcast(&pool->given_back);
    (void)pthread_mutex_unlock(&pool->mu);
}

static uint64_t remaining_ms(uint64_t deadline_ms)
{
    uint64_t now_ms = http_now_ms();

    return deadline_ms > now_ms ? deadline_ms - now_ms : 1;
}

static enum shed_code borrow(struct redis_pool *pool, uint64_t deadline_ms,
                             redisContext **out, struct shed_error *err)
{
    enum shed_code code = reserve(pool, deadline_ms, out, err);
    char why[200];

    if (code != SHED_OK || *out != NULL)
        return code;
    *out = demo_redis_open_within(pool->uri, remaining_ms(deadline_ms), why,
                                  sizeof(why));
    if (*out != NULL)
        return SHED_OK;
    give_back(pool, NULL);
    return http_now_ms() < deadline_ms ? fail(err, SHED_EREDIS, "%s", why)
                                       : fail(err, SHED_ETIMEDOUT, "%s", why);
}

/* ---------------------------------------------------------------- pipelines */

static enum shed_code fail_connection(const redisContext *redis,
                                      struct shed_error *err)
{
    bool is_late =
        redis->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);

    return fail(err, is_late ? SHED_ETIMEDOUT : SHED_EREDIS, "Redis: %.200s",
                is_late ? "no reply before the deadline" : redis->errstr);
}

static enum shed_code read_reply(redisContext *redis, uint64_t deadline_ms,
                                 redisReply **reply, struct shed_error *err)
{
    uint64_t left_ms = remaining_ms(deadline_ms);
    struct timeval limit = {(time_t)(left_ms / 1000),
                            (suseconds_t)(left_ms % 1000 * 1000)};
    void *read = NULL;

    if (redisSetTimeout(redis, limit) != REDIS_OK ||
        redisGetReply(redis, &read) != REDIS_OK)
        return fail_connection(redis, err);
    *reply = read;
    return SHED_OK;
}

static enum shed_code run(redisContext *redis, struct redis_batch *b,
                          uint64_t deadline_ms, struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < b->count; i++)
        if (redisAppendFormattedCommand(redis, b->command[i],
                                        (size_t)b->size[i]) != REDIS_OK)
            return fail_connection(redis, err);
    for (size_t i = 0; code == SHED_OK && i < b->count; i++)
        code = read_reply(redis, deadline_ms, &b->reply[i], err);
    return code;
}

static enum shed_code check_replies(const struct redis_batch *b,
                                    struct shed_error *err)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->reply[i]->type == REDIS_REPLY_ERROR)
            return fail(err, SHED_EREDIS, "Redis: %.200s", b->reply[i]->str);
    return SHED_OK;
}

static void free_replies(struct redis_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->reply[i] != NULL)
            freeReplyObject(b->reply[i]);
        b->reply[i] = NULL;
    }
}

void redis_batch_add(struct redis_batch *b, const char *format, ...)
{
    va_list args;

    assert(b->count < REDIS_BATCH_MAX);
    va_start(args, format);
    b->size[b->count] =
        redisvFormatCommand(&b->command[b->count], format, args);
    va_end(args);
    if (b->size[b->count] < 0)
        b->command[b->count] = NULL;
    b->reply[b->count++] = NULL;
}

enum shed_code redis_batch_run(struct redis_pool *pool, struct redis_batch *b,
                               uint64_t deadline_ms, struct shed_error *err)
{
    redisContext *redis = NULL;
    enum shed_code code;

    for (size_t i = 0; i < b->count; i++)
        if (b->command[i] == NULL)
            return fail(err, SHED_ENOMEM, "out of memory for a command");
    code = borrow(pool, deadline_ms, &redis, err);
    if (code != SHED_OK)
        return code;
    code = run(redis, b, deadline_ms, err);
    if (code != SHED_OK) {
        redisFree(redis);
        redis = NULL;
        close_all_idle(pool);
    }
    give_back(pool, redis);
    if (code == SHED_OK)
        code = check_replies(b, err);
    if (code != SHED_OK)
        free_replies(b);
    return code;
}

void redis_batch_clear(struct redis_batch *b)
{
    free_replies(b);
    for (size_t i = 0; i < b->count; i++)
        free(b->command[i]);
    b->count = 0;
}
