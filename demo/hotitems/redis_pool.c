/* A connection on which anything failed is closed: its next reply could belong
 * to the command before, and the server may be a primary no more. Of a cluster
 * a pool knows no more than what nodes that were asked in vain have said. */
#include "redis_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "common/redis.h"
#include "pool.h"
#include "wait.h"

#define CONNECTIONS_MAX 64 /* to a node at a time */
#define NODES_MAX 32
#define SLOTS 16384
#define URI_BYTES 300
#define ROUNDS_MAX 8 /* of a batch, until each node has what it asked for */

struct node {
    char uri[URI_BYTES]; /* set at creation */
    struct pool connections;
};

struct redis_pool {
    pthread_mutex_t mu;
    /* atomic; written under mu */
    _Atomic size_t count;
    /* those below count are there; a server that is no cluster's is alone */
    struct node node[NODES_MAX];
    _Atomic uint8_t owner[SLOTS]; /* the node that is asked for a slot */
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

/* ------------------------------------------------------------------- nodes */

static void disconnect(void *redis)
{
    redisFree(redis);
}

/* The number of the node with that URI, which may be new; 0 if there is no room
 * for it: node 0 will say again where to ask. */
static uint8_t find_node(struct redis_pool *pool, const char *uri)
{
    size_t i = 0;

    (void)pthread_mutex_lock(&pool->mu);
    while (i < pool->count && strcmp(pool->node[i].uri, uri) != 0)
        i++;
    if (i == pool->count && i < NODES_MAX) {
        (void)snprintf(pool->node[i].uri, URI_BYTES, "%s", uri);
        pool_init(&pool->node[i].connections, CONNECTIONS_MAX, disconnect);
        pool->count++;
    }
    (void)pthread_mutex_unlock(&pool->mu);
    return i < NODES_MAX ? (uint8_t)i : 0;
}

struct redis_pool *redis_pool_new(const char *uri)
{
    static const char cluster[] = "redis+cluster://";
    struct redis_pool *pool = calloc(1, sizeof(*pool));
    char seed[URI_BYTES];
    const char *at = uri + strlen(cluster);

    if (pool == NULL)
        return NULL;
    (void)pthread_mutex_init(&pool->mu, NULL);
    if (strncmp(uri, cluster, strlen(cluster)) != 0) {
        (void)find_node(pool, uri);
        return pool;
    }
    for (;;) {
        (void)snprintf(seed, sizeof(seed), "redis://%.*s",
                       (int)strcspn(at, ","), at);
        (void)find_node(pool, seed);
        at = strchr(at, ',');
        if (at == NULL)
            return pool;
        at++;
    }
}

void redis_pool_free(struct redis_pool *pool)
{
    if (pool == NULL)
        return;
    for (size_t i = 0; i < pool->count; i++)
        pool_fini(&pool->node[i].connections);
    (void)pthread_mutex_destroy(&pool->mu);
    free(pool);
}

/* ------------------------------------------------------------- connections */

static enum shed_code borrow(struct node *node, uint64_t deadline_ms,
                             redisContext **out, struct shed_error *err)
{
    char why[200];
    void *idle;

    if (!pool_take(&node->connections, deadline_ms, &idle))
        return fail(err, SHED_EBUSY, "all %d connections to Redis are busy",
                    CONNECTIONS_MAX);
    *out = idle;
    if (*out != NULL)
        return SHED_OK;
    *out =
        demo_redis_open(node->uri, wait_left_ms(deadline_ms), why, sizeof(why));
    if (*out != NULL)
        return SHED_OK;
    pool_give_back(&node->connections, NULL);
    return wait_now_ms() < deadline_ms ? fail(err, SHED_EREDIS, "%s", why)
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
    uint64_t left_ms = wait_left_ms(deadline_ms);
    struct timeval limit = {(time_t)(left_ms / 1000),
                            (suseconds_t)(left_ms % 1000 * 1000)};
    void *read = NULL;

    if (redisSetTimeout(redis, limit) != REDIS_OK ||
        redisGetReply(redis, &read) != REDIS_OK)
        return fail_connection(redis, err);
    *reply = read;
    return SHED_OK;
}

/* "MOVED slot host:port". Returns false for another error. */
static bool follow(struct redis_pool *pool, const char *error)
{
    char uri[URI_BYTES];
    const char *address = strrchr(error, ' ');

    if (strncmp(error, "MOVED ", 6) != 0 || address == NULL)
        return false;
    (void)snprintf(uri, sizeof(uri), "redis://%s", address + 1);
    pool->owner[strtoul(error + 6, NULL, 10) % SLOTS] = find_node(pool, uri);
    return true;
}

/* The commands of the batch that a node is asked. A reply that names another
 * node is none. */
static enum shed_code run(struct redis_pool *pool, redisContext *redis,
                          struct redis_batch *b, const size_t *asked,
                          size_t count, uint64_t deadline_ms,
                          struct shed_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (redisAppendFormattedCommand(redis, b->command[asked[i]],
                                        (size_t)b->size[asked[i]]) != REDIS_OK)
            return fail_connection(redis, err);
    for (size_t i = 0; i < count; i++) {
        redisReply **reply = &b->reply[asked[i]];
        enum shed_code code = read_reply(redis, deadline_ms, reply, err);
        if (code != SHED_OK)
            return code;
        if ((*reply)->type != REDIS_REPLY_ERROR)
            continue;
        if (!follow(pool, (*reply)->str))
            return fail(err, SHED_EREDIS, "Redis: %.200s", (*reply)->str);
        freeReplyObject(*reply);
        *reply = NULL;
    }
    return SHED_OK;
}

/* Another one is asked where the slots of a node are that has failed. */
static void disown(struct redis_pool *pool, size_t node)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (pool->owner[i] == node)
            pool->owner[i] = (uint8_t)((node + 1) % pool->count);
}

/* Ask a node what it is believed to have. */
static enum shed_code run_at(struct redis_pool *pool, size_t node,
                             struct redis_batch *b, uint64_t deadline_ms,
                             struct shed_error *err)
{
    redisContext *redis = NULL;
    size_t asked[REDIS_BATCH_MAX], count = 0;
    enum shed_code code;

    for (size_t i = 0; i < b->count; i++)
        if (b->reply[i] == NULL && pool->owner[b->slot[i]] == node)
            asked[count++] = i;
    if (count == 0)
        return SHED_OK;
    code = borrow(&pool->node[node], deadline_ms, &redis, err);
    if (code == SHED_OK) {
        code = run(pool, redis, b, asked, count, deadline_ms, err);
        if (code != SHED_OK) {
            /* after a restart of the server, for example, the pool's idle
             * connections are broken, too */
            redisFree(redis);
            redis = NULL;
            pool_close_idle(&pool->node[node].connections);
        }
        pool_give_back(&pool->node[node].connections, redis);
    }
    if (code == SHED_EREDIS || code == SHED_ETIMEDOUT)
        disown(pool, node);
    return code;
}

static void free_replies(struct redis_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->reply[i] != NULL)
            freeReplyObject(b->reply[i]);
        b->reply[i] = NULL;
    }
}

/* CRC16 of the whole key: none of ours has braces. */
static unsigned slot_of(const char *key)
{
    unsigned crc = 0;

    for (; *key != '\0'; key++) {
        crc ^= (unsigned)(unsigned char)*key << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1) ^ ((crc & 0x8000) != 0 ? 0x11021 : 0);
    }
    return crc % SLOTS;
}

void redis_batch_add(struct redis_batch *b, const char *key, const char *format,
                     ...)
{
    va_list args;

    assert(b->count < REDIS_BATCH_MAX);
    va_start(args, format);
    b->size[b->count] =
        redisvFormatCommand(&b->command[b->count], format, args);
    va_end(args);
    if (b->size[b->count] < 0)
        b->command[b->count] = NULL;
    b->slot[b->count] = slot_of(key);
    b->reply[b->count++] = NULL;
}

static bool is_answered(const struct redis_batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->reply[i] == NULL)
            return false;
    return true;
}

enum shed_code redis_batch_run(struct redis_pool *pool, struct redis_batch *b,
                               uint64_t deadline_ms, struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < b->count; i++)
        if (b->command[i] == NULL)
            return fail(err, SHED_ENOMEM, "out of memory for a command");
    for (size_t round = 0; code == SHED_OK && !is_answered(b); round++) {
        if (round == ROUNDS_MAX)
            code = fail(err, SHED_EREDIS, "Redis: no node has the slot");
        for (size_t i = 0; code == SHED_OK && i < pool->count; i++)
            code = run_at(pool, i, b, deadline_ms, err);
    }
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
