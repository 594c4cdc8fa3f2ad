/*
 * What backends write by hand: cache-aside without protection, and the
 * well-known SETNX lock, whose losers sleep 10 ms and look again. A Redis and a
 * database connection per thread.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/redis.h"
#include "strategies.h"
#include "database.h"

#define RETRY_MS 10

struct thread {
    const struct settings *settings;
    redisContext *redis;
    struct database *db;
    unsigned long long holder; /* tells this thread's locks from others' */
};

static size_t plain_row(const char *bytes, size_t size)
{
    (void)bytes;
    return size > 0;
}

static void leave_plain(void *arg)
{
    struct thread *t = arg;

    if (t->redis != NULL)
        redisFree(t->redis);
    database_close(t->db);
    free(t);
}

static void *enter_plain(void *process, char *why, size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->settings = process;
    t->holder = (unsigned long long)getpid() << 32 ^ (uintptr_t)t;
    t->redis = demo_redis_open(t->settings->redis_uri, DEMO_REDIS_PATIENT_MS,
                               why, size);
    t->db = t->redis != NULL ? database_open(why, size) : NULL;
    if (t->db == NULL) {
        leave_plain(t);
        return NULL;
    }
    return t;
}

/* Returns: the command's reply; NULL with why on failure. */
static redisReply *check(struct thread *t, void *reply, char *why, size_t size)
{
    redisReply *r = reply;

    if (r != NULL && r->type != REDIS_REPLY_ERROR)
        return r;
    (void)snprintf(why, size, "Redis: %s",
                   r != NULL ? r->str : t->redis->errstr);
    if (r != NULL)
        freeReplyObject(r);
    return NULL;
}

/* Run a command. *is_status, if not NULL: whether its reply is a status. */
static bool run(struct thread *t, bool *is_status, char *why, size_t size,
                const char *format, ...)
{
    redisReply *reply;
    va_list args;

    va_start(args, format);
    reply = check(t, redisvCommand(t->redis, format, args), why, size);
    va_end(args);
    if (reply == NULL)
        return false;
    if (is_status != NULL)
        *is_status = reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return true;
}

static void reconnect(struct thread *t)
{
    if (t->redis->err != 0) /* Redis has closed the connection */
        (void)redisReconnect(t->redis);
}

/* MGET; sets is_there of what was a hit. */
static bool look(struct thread *t, const uint64_t *ids, size_t count,
                 bool *is_there, struct got *got, char *why, size_t size)
{
    redisReply *reply;

    reconnect(t);
    for (size_t i = 0; i < count; i++)
        redisAppendCommand(t->redis, "GET plain:%llu",
                           (unsigned long long)ids[i]);
    for (size_t i = 0; i < count; i++) {
        void *next = NULL;
        (void)redisGetReply(t->redis, &next);
        reply = check(t, next, why, size);
        if (reply == NULL)
            return false;
        is_there[i] = reply->type == REDIS_REPLY_STRING;
        if (count == 1 && is_there[i])
            got->price = row_price(reply->str, reply->len);
        freeReplyObject(reply);
    }
    return true;
}

/* Query, and SET what came; "no such row" is not kept by such designs. */
static bool load(struct thread *t, uint64_t id, struct got *got, char *why,
                 size_t size)
{
    struct row row;

    if (!database_load(t->db, t->settings->record, &id, 1, &row, why, size))
        return false;
    if (!row.is_there)
        return true;
    got->price = row_price(row.text, row.size);
    return run(t, NULL, why, size, "SET plain:%llu %b PX %llu",
               (unsigned long long)id, row.text, row.size,
               (unsigned long long)t->settings->ttl_ms);
}

static bool get_none(void *thread, const uint64_t *ids, size_t count,
                     struct got *got, char *why, size_t size)
{
    bool is_there[PAGE_MAX];

    if (!look(thread, ids, count, is_there, got, why, size))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (is_there[i])
            continue;
        got->did_load = true;
        if (!load(thread, ids[i], got, why, size))
            return false;
    }
    return true;
}

static bool lock(struct thread *t, uint64_t id, bool *is_mine, char *why,
                 size_t size)
{
    return run(t, is_mine, why, size, "SET lock:%llu %llu NX PX %llu",
               (unsigned long long)id, t->holder,
               (unsigned long long)t->settings->lease_ms);
}

static bool unlock(struct thread *t, uint64_t id, char *why, size_t size)
{
    static const char script[] =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then "
        "return redis.call('DEL', KEYS[1]) end return 0";

    return run(t, NULL, why, size, "EVAL %s 1 lock:%llu %llu", script,
               (unsigned long long)id, t->holder);
}

static bool get_setnx_one(struct thread *t, uint64_t id, struct got *got,
                          char *why, size_t size)
{
    bool is_there = false, is_mine = false;

    while (!atomic_load(&t->settings->record->is_over)) {
        if (!lock(t, id, &is_mine, why, size))
            return false;
        if (is_mine) {
            got->did_load = true;
            return load(t, id, got, why, size) && unlock(t, id, why, size);
        }
        got->did_wait = true;
        demo_nap(RETRY_MS * 1000);
        if (!look(t, &id, 1, &is_there, got, why, size))
            return false;
        if (is_there)
            return true;
    }
    return true;
}

static bool get_setnx(void *thread, const uint64_t *ids, size_t count,
                      struct got *got, char *why, size_t size)
{
    bool is_there[PAGE_MAX];

    if (!look(thread, ids, count, is_there, got, why, size))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_there[i] && !get_setnx_one(thread, ids[i], got, why, size))
            return false;
    return true;
}

static bool invalidate_plain(void *thread, uint64_t id, char *why, size_t size)
{
    reconnect(thread);
    return run(thread, NULL, why, size, "DEL plain:%llu",
               (unsigned long long)id);
}

const struct strategy strategy_none = {.name = "none",
                                       .key_begin = "plain:",
                                       .key_end = "",
                                       .row_offset = plain_row,
                                       .enter = enter_plain,
                                       .leave = leave_plain,
                                       .get = get_none,
                                       .invalidate = invalidate_plain};
const struct strategy strategy_setnx = {.name = "setnx",
                                        .key_begin = "plain:",
                                        .key_end = "",
                                        .row_offset = plain_row,
                                        .enter = enter_plain,
                                        .leave = leave_plain,
                                        .get = get_setnx,
                                        .invalidate = invalidate_plain};
