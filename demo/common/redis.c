/* Connecting by hand: unix:/path[?db=n], redis://[[user:]password@]host
 * [:port][/db], or redis+sentinel://host:port,host:port/name. */
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
                                  struct timeval limit)
{
    char path[PART_BYTES];
    const char *end;

    if (strncmp(c, "//", 2) == 0)
        c += 2;
    end = c + strcspn(c, "?");
    copy(path, c, (size_t)(end - c));
    if (strncmp(end, "?db=", 4) == 0)
        *db = end + 4;
    return redisConnectUnixWithTimeout(path, limit);
}

static redisContext *connect_tcp(const char *c, const char **db,
                                 struct timeval limit)
{
    enum { DEFAULT_PORT = 6379 };
    char host[PART_BYTES];
    const char *end = c + strcspn(c, ",/");
    const char *colon = memchr(c, ':', (size_t)(end - c));
    int port = colon != NULL ? (int)strtol(colon + 1, NULL, 10) : DEFAULT_PORT;

    copy(host, c, (size_t)((colon != NULL ? colon : end) - c));
    if (*end == '/' && end[1] != '\0')
        *db = end + 1;
    return redisConnectWithTimeout(host, port, limit);
}

/* Put the address of the primary, as the first sentinel that answers knows it,
 * into out, as host:port; empty without one. */
static void find_primary(const char *sentinels, struct timeval limit,
                         char out[PART_BYTES])
{
    const char *name = sentinels + strcspn(sentinels, "/") + 1, *ignored;

    out[0] = '\0';
    for (const char *c = sentinels; c < name && out[0] == '\0';
         c += strcspn(c, ",/") + 1) {
        redisContext *redis = connect_tcp(c, &ignored, limit);
        redisReply *reply = NULL;
        if (redis != NULL && redis->err == 0)
            reply = redisCommand(redis, "SENTINEL get-master-addr-by-name %s",
                                 name);
        if (reply != NULL && reply->elements == 2)
            (void)snprintf(out, PART_BYTES, "%.200s:%.10s",
                           reply->element[0]->str, reply->element[1]->str);
        if (reply != NULL)
            freeReplyObject(reply);
        if (redis != NULL)
            redisFree(redis);
    }
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

redisContext *demo_redis_open(const char *uri, uint64_t timeout_ms, char *why,
                              size_t size)
{
    static const char single[] = "redis://", sentinel[] = "redis+sentinel://";
    struct timeval limit = {(time_t)(timeout_ms / 1000),
                            (suseconds_t)(timeout_ms % 1000 * 1000)};
    int is_unix = strncmp(uri, "unix:", 5) == 0;
    char user[PART_BYTES] = "", password[PART_BYTES] = "", primary[PART_BYTES];
    const char *db = "0", *c = uri;
    redisContext *redis;

    if (strncmp(uri, sentinel, strlen(sentinel)) == 0) {
        find_primary(uri + strlen(sentinel), limit, primary);
        c = primary;
    } else if (strncmp(uri, single, strlen(single)) == 0) {
        c = take_user(uri + strlen(single), user, password);
    } else if (!is_unix) {
        (void)snprintf(why, size, "must begin with unix:, %s or %s", single,
                       sentinel);
        return NULL;
    }
    redis =
        is_unix ? connect_unix(c + 5, &db, limit) : connect_tcp(c, &db, limit);
    if (redis != NULL && redis->err == 0 &&
        redisSetTimeout(redis, limit) == REDIS_OK) {
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
