/* Connecting by hand: unix:/path[?db=n] or redis://[[user:]password@]host
 * [:port][/db]. */
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES 256

static void copy(char out[PART_BYTES], const char *begin, size_t size)
{
    size = size < PART_BYTES ? size : PART_BYTES - 1;
    memcpy(out, begin, size);
    out[size] = '\0';
}

static redisContext *connect_unix(const char *c, const char **db,
                                  const struct timeval *limit)
{
    char path[PART_BYTES];
    const char *end;

    if (strncmp(c, "//", 2) == 0)
        c += 2;
    end = c + strcspn(c, "?");
    copy(path, c, (size_t)(end - c));
    if (strncmp(end, "?db=", 4) == 0)
        *db = end + 4;
    return limit != NULL ? redisConnectUnixWithTimeout(path, *limit)
                         : redisConnectUnix(path);
}

static redisContext *connect_tcp(const char *c, const char **db,
                                 const struct timeval *limit)
{
    enum { DEFAULT_PORT = 6379 };
    char host[PART_BYTES];
    const char *end = c + strcspn(c, "/");
    const char *colon = memchr(c, ':', (size_t)(end - c));
    int port = colon != NULL ? (int)strtol(colon + 1, NULL, 10) : DEFAULT_PORT;

    copy(host, c, (size_t)((colon != NULL ? colon : end) - c));
    if (*end == '/' && end[1] != '\0')
        *db = end + 1;
    return limit != NULL ? redisConnectWithTimeout(host, port, *limit)
                         : redisConnect(host, port);
}

/* [user]:password@ before the address */
static const char *take_user(const char *c, char user[PART_BYTES],
                             char password[PART_BYTES])
{
    const char *at = memchr(c, '@', strcspn(c, "/"));
    const char *colon;

    user[0] = password[0] = '\0';
    if (at == NULL)
        return c;
    colon = memchr(c, ':', (size_t)(at - c));
    if (colon == NULL)
        return at + 1;
    copy(user, c, (size_t)(colon - c));
    copy(password, colon + 1, (size_t)(at - colon - 1));
    return at + 1;
}

/* Returns 0 if the server says OK. */
static int ask(redisContext *redis, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(redis, argc, argv, NULL);
    int is_bad = reply == NULL || reply->type == REDIS_REPLY_ERROR;

    if (reply != NULL)
        freeReplyObject(reply);
    return is_bad;
}

/* limit: NULL for none. */
static redisContext *open_redis(const char *uri, const struct timeval *limit,
                                char *why, size_t size)
{
    int is_unix = strncmp(uri, "unix:", 5) == 0;
    char user[PART_BYTES] = "", password[PART_BYTES] = "";
    const char *db = "0", *c = uri + (is_unix ? 5 : strlen("redis://"));
    redisContext *redis;

    if (!is_unix && strncmp(uri, "redis://", 8) != 0) {
        (void)snprintf(why, size, "must begin with unix: or redis://");
        return NULL;
    }
    if (!is_unix)
        c = take_user(c, user, password);
    redis = is_unix ? connect_unix(c, &db, limit) : connect_tcp(c, &db, limit);
    if (redis != NULL && redis->err == 0 &&
        (limit == NULL || redisSetTimeout(redis, *limit) == REDIS_OK)) {
        const char *auth[] = {"AUTH", user[0] ? user : "default", password};
        const char *select[] = {"SELECT", db};
        if ((password[0] == '\0' || ask(redis, 3, auth) == 0) &&
            ask(redis, 2, select) == 0)
            return redis;
    }
    (void)snprintf(why, size, "Redis: %s",
                   redis != NULL && redis->err != 0 ? redis->errstr
                                                    : "refused");
    if (redis != NULL)
        redisFree(redis);
    return NULL;
}

redisContext *demo_redis_open(const char *uri, char *why, size_t size)
{
    return open_redis(uri, NULL, why, size);
}

redisContext *demo_redis_open_within(const char *uri, uint64_t timeout_ms,
                                     char *why, size_t size)
{
    struct timeval limit = {(time_t)(timeout_ms / 1000),
                            (suseconds_t)(timeout_ms % 1000 * 1000)};

    return open_redis(uri, &limit, why, size);
}
