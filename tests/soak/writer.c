/*
 * The thread of the soak's processes that writes. Its invariant: a mark of the
 * history is raised only after what it says has been done.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "soak/calls.h"

enum {
    TAG_EVERY = 30, /* of the changes is one of a tag, */
    ALL_EVERY = 5,  /* and of these, of all keys of a cache. */
    /* Of the changes that nobody is told of is one, */
    ALONE_EVERY = 8,
    /* after which the key is left alone, so that the old row can reach the end
     * of its windows. */
    ALONE_MS = SOAK_TTL_MS + SOAK_IF_ERROR_MS + 500
};

/* Change a row. Returns: false: the soak is over, or the row may not have been
 * changed. A repetition does no harm, even a late one. */
static bool change_row(const struct soak_worker *w, MYSQL **mysql, unsigned key)
{
    struct soak_key *k = &w->history->key[key];
    /* what the previous process sent may have been executed or not */
    unsigned version = atomic_load(&k->begun);
    char sql[128];

    if (atomic_load(&k->committed) == version)
        soak_raise(&k->begun, ++version);
    (void)snprintf(sql, sizeof(sql),
                   "UPDATE item SET version = GREATEST(version, %u) "
                   "WHERE id = %u",
                   version, key + 1);
    if (!soak_query(w, mysql, sql))
        return false;
    atomic_store(&k->committed_ms[version % SOAK_VERSIONS], shed_now_ms());
    soak_raise(&k->committed, version);
    atomic_fetch_add(&w->history->writes, 1);
    return true;
}

/* -------------------------------------------------------------- one key */

/* Run a command. Returns: the integer of its reply; -1: there is none. */
static long long ask_integer(redisContext *c, const char *format, unsigned of)
{
    redisReply *reply = redisCommand(c, format, of);
    bool is_integer = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
    long long integer = is_integer ? reply->integer : -1;

    freeReplyObject(reply);
    return integer;
}

/* A server that does not have the key refuses. WAIT waits for what its own
 * connection has written: so there is a write, even if the entry is gone, which
 * may be news to the replicas. */
static bool delete_at(const struct server *s, unsigned key, size_t replicas)
{
    const struct timeval patience = {.tv_sec = 2};
    redisContext *c = redisConnectUnixWithTimeout(s->socket, patience);
    bool is_done =
        c != NULL && c->err == 0 && redisSetTimeout(c, patience) == REDIS_OK &&
        ask_integer(c, "DEL soak:{%u}", key + 1) >= 0 &&
        ask_integer(c, "INCR deleted:{%u}", key + 1) >= 0 &&
        ask_integer(c, "WAIT %u 200", (unsigned)replicas) >= (int)replicas;

    redisFree(c);
    return is_done;
}

bool soak_delete(const struct soak_place *place, unsigned key)
{
    for (size_t i = 0; i < place->servers; i++)
        if (delete_at(&place->server[i], key, place->replicas))
            return true;
    return false;
}

/* A write of a key has ended. This process may read nothing older from now on,
 * whatever its code, unless it was dropped. */
static void note_own(struct soak_worker *w, unsigned key, unsigned version,
                     const struct soak_try *call)
{
    if (call->err.code == SHED_ENOMEM ||
        strncmp(call->err.reason, "dropped", strlen("dropped")) == 0)
        return;
    if (call->err.code != SHED_OK)
        atomic_fetch_add(&w->history->kept, 1);
    soak_raise(&w->own[key], version);
}

/* Put what is in the database, with its tag. */
static void put_row(struct soak_worker *w, unsigned key)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    unsigned version = atomic_load(&w->history->key[key].committed);
    char text[SOAK_TEXT_BYTES], tag[SOAK_TEXT_BYTES], row[SOAK_TEXT_BYTES];
    struct shed_bytes tags = soak_tag(soak_tag_of(key), tag);
    uint64_t number = version;
    struct soak_try call;
    bool is_done;

    if (!soak_begin_put(w->history, key, version))
        return;
    (void)snprintf(row, sizeof(row), "%u", version);
    o.timeout_ms = SOAK_TIMEOUT_MS;
    o.version = &number;
    o.tags = &tags;
    o.tags_count = 1;
    call = soak_begin_call(w, SOAK_WRITE);
    is_done = soak_end_call(w, &call,
                            shed_put(w->caches[soak_cache_of(key)],
                                     soak_name(key, text), shed_str(row), &o,
                                     &call.err));
    soak_end_put(w->history, key, is_done);
    note_own(w, key, version, &call);
    if (is_done) {
        soak_raise(&w->history->key[key].told, version);
        atomic_fetch_add(&w->history->puts, 1);
    }
}

static void tell(struct soak_thread *t, unsigned key)
{
    struct soak_worker *w = t->worker;
    struct soak_key *k = &w->history->key[key];
    unsigned version = atomic_load(&k->committed);
    char text[SOAK_TEXT_BYTES];
    struct shed_bytes name = soak_name(key, text);
    struct soak_try call = soak_begin_call(w, SOAK_WRITE);

    switch (soak_draw(t, 8)) {
    case 0:
        atomic_fetch_add(&w->history->untold, 1); /* it invalidates nothing */
        if (soak_draw(t, ALONE_EVERY) == 0)
            w->alone_until_ms[key] = shed_now_ms() + ALONE_MS;
        break;
    case 1:
        if (!soak_end_call(w, &call,
                           shed_expire(w->caches[SOAK_SHORT], name, 0,
                                       SOAK_TIMEOUT_MS, &call.err)))
            break;
        atomic_store(&k->expired_ms, shed_now_ms());
        soak_raise(&k->expired, version);
        break;
    case 2:
    case 3:
        put_row(w, key);
        break;
    case 4:
    case 5:
        if (soak_delete(w->place, key))
            soak_raise(&k->told, version);
        break;
    default:
        if (soak_end_call(w, &call,
                          shed_invalidate(w->caches[SOAK_SHORT], name,
                                          SOAK_TIMEOUT_MS, &call.err)))
            soak_raise(&k->told, version);
        note_own(w, key, version, &call);
    }
}

/* --------------------------------------------------------------- tags */

static struct soak_tag draw_tag(struct soak_thread *t)
{
    struct soak_tag one = {(enum soak_cache)soak_draw(t, SOAK_CACHES),
                           (unsigned)soak_draw(t, SOAK_TAGS)};

    if (soak_draw(t, ALL_EVERY) == 0)
        one.tag = SOAK_TAGS;
    return one;
}

static bool invalidate(const struct soak_worker *w, const struct soak_tag *one)
{
    bool is_all = one->tag == SOAK_TAGS;
    struct soak_try call =
        soak_begin_call(w, is_all ? SOAK_TELL_ALL : SOAK_TELL_TAG);
    struct shed_cache *cache = w->caches[one->cache];
    char text[SOAK_TEXT_BYTES];
    struct shed_bytes tag = soak_tag(one->tag, text);

    return soak_end_call(
        w, &call,
        is_all
            ? shed_invalidate_all(cache, SOAK_TIMEOUT_MS, &call.err)
            : shed_invalidate_tags(cache, &tag, 1, SOAK_TIMEOUT_MS, &call.err));
}

/* Invalidate a tag, with whatever all processes have changed of it. If that
 * fails it is kept, which is as good for this process. */
static void tell_tag(struct soak_worker *w, const struct soak_tag *one)
{
    unsigned version[SOAK_KEYS];
    bool is_done;

    for (unsigned key = 0; key < SOAK_KEYS; key++)
        version[key] = atomic_load(&w->history->key[key].committed);
    is_done = invalidate(w, one);
    for (unsigned key = 0; key < SOAK_KEYS; key++) {
        if (!soak_covers(one, key))
            continue;
        soak_raise(&w->own[key], version[key]);
        if (is_done)
            soak_note_tag(w->history, key, version[key]);
    }
}

/* Change rows of a tag: those that this process writes. Afterwards some of
 * the long cache are put, so that the next invalidation finds such entries,
 * too. */
static bool change_tag(struct soak_thread *t, MYSQL **mysql)
{
    struct soak_tag one = draw_tag(t);
    struct soak_worker *w = t->worker;
    unsigned key;

    for (key = w->number; key < SOAK_KEYS; key += SOAK_WORKERS)
        if (soak_covers(&one, key) && !change_row(w, mysql, key))
            return false;
    tell_tag(w, &one);
    for (key = w->number; key < SOAK_KEYS; key += SOAK_WORKERS) {
        if (!soak_covers(&one, key))
            continue;
        if (one.cache == SOAK_SHORT)
            soak_read(t, key);
        else if (soak_draw(t, 4) == 0)
            put_row(w, key);
    }
    return true;
}

/* ---------------------------------------------------------------- thread */

static bool change_key(struct soak_thread *t, MYSQL **mysql)
{
    struct soak_worker *w = t->worker;
    unsigned key =
        (unsigned)soak_draw(t, SOAK_SHORT_KEYS / SOAK_WORKERS) * SOAK_WORKERS +
        w->number;

    if (shed_now_ms() < w->alone_until_ms[key])
        return true;
    if (!change_row(w, mysql, key))
        return false;
    tell(t, key);
    soak_read(t, key); /* its own write */
    return true;
}

void *soak_write_on(void *arg)
{
    struct soak_thread *t = arg;
    struct soak_worker *w = t->worker;
    MYSQL *mysql = NULL;
    bool goes_on = true;

    for (unsigned key = w->number; key < SOAK_KEYS; key += SOAK_WORKERS)
        soak_inherit(w->history, key);
    while (goes_on && !soak_is_over(w)) {
        enum soak_writes now = atomic_load(&w->history->writes_now);
        if (now == SOAK_ALL_WRITES && soak_draw(t, TAG_EVERY) == 0)
            goes_on = change_tag(t, &mysql);
        else if (now != SOAK_NO_WRITES)
            goes_on = change_key(t, &mysql);
        usleep((useconds_t)soak_draw(t, 40 * (uint64_t)SOAK_PAUSE_US));
    }
    if (mysql != NULL)
        mysql_close(mysql);
    return NULL;
}
