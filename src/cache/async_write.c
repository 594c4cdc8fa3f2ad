/*
 * Writes that do not block. Their calls go over the session. Its invariants are
 * those of write.c and put.c: what Redis may have missed is undelivered before
 * done is called; and a put is not carried out after that.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "cache/pending.h"
#include "cache/put.h"

struct write;

/* A command under way, which its write may leave. */
struct sent {
    struct shed_call call;
    struct shed_async *async;
    struct write *write; /* NULL: it has ended */
};

struct write {
    struct shed_pending pending; /* first */
    struct sent *sent;           /* NULL: none is under way */
    struct shed_delivery_write write;
    bool is_put; /* else it is an invalidation, which uses of tries only its
                    deadline */
    struct shed_put_row put;
    struct shed_put_tries tries;
    unsigned char repeats;
    bool is_waiting; /* to be sent again, in a moment */
    bool is_learning;
    bool is_decided; /* how it ends: pending has code and why */
    unsigned short at, key_size, redis_size;
    char refresh[]; /* the name of its refresh lease, which begins with the
                       key's; behind it, of a put the tags and the row */
};

static struct write *write_of(struct shed_pending *pending)
{
    return shed_container_of(pending, struct write, pending);
}

static struct shed_key key_of(const struct write *w)
{
    return (struct shed_key){w->refresh, w->redis_size, w->at, w->key_size};
}

/* -------------------------------------------------------------------- end */

/* why: how it has ended. */
static void end(struct write *w, struct shed_error why)
{
    struct shed_cache *cache = w->pending.cache;
    struct shed_key key = key_of(w);
    enum shed_code code = why.code;

    if (w->sent != NULL)
        w->sent->write = NULL;
    if (w->is_learning)
        shed_async_unlearn(&w->pending);
    (void)shed_write_follow_up(cache, &key, w->write, &why);
    if (w->is_put) {
        shed_put_count(cache, code);
    } else {
        shed_write_count_invalidation(
            cache, shed_bytes(key.redis + key.at, key.size), NULL, code);
        shed_count_code(&cache->counters, code);
    }
    w->pending.code = code;
    free(w->pending.why);
    w->pending.why = code != SHED_OK ? shed_error_keep(&why) : NULL;
    shed_async_end(&w->pending, NULL);
}

/* Whether Redis may carry out a put that was not answered. */
static bool may_come(const struct write *w)
{
    return w->is_put && (w->tries.was_lost || w->sent != NULL) &&
           shed_now_ms() < w->tries.until_ms;
}

/* End it with *why; but a put that may be carried out only when it cannot. */
static void conclude(struct write *w, const struct shed_error *why)
{
    if (!may_come(w)) {
        end(w, *why);
        return;
    }
    w->is_decided = true;
    w->pending.code = why->code;
    free(w->pending.why);
    w->pending.why = why->code != SHED_OK ? shed_error_keep(why) : NULL;
    shed_async_set_due(&w->pending, w->tries.until_ms);
}

/* With what was decided before. */
static void conclude_as_decided(struct write *w)
{
    struct shed_error why = {SHED_OK, ""};

    if (w->pending.code != SHED_OK)
        (void)shed_fail(&why, w->pending.code, "%s",
                        shed_error_kept(w->pending.why));
    conclude(w, &why);
}

/* ---------------------------------------------------------------- commands */

static void send_write(struct write *w);

static void on_put(struct write *w, const struct shed_call_result *result)
{
    struct shed_error why = {SHED_OK, ""};

    if (result->reply == NULL)
        why = *result->why;
    if (shed_put_is_late(&w->tries, result->reply, &why))
        send_write(w);
    else
        conclude(w, &why);
}

/* Returns: NULL when out of memory; then the write has ended. */
static struct sent *begin_sent(struct write *w)
{
    struct sent *s = calloc(1, sizeof(*s));
    struct shed_error why;

    if (s == NULL) {
        (void)shed_fail_nomem(&why, "a write");
        end(w, why);
        return NULL;
    }
    s->async = w->pending.cache->async;
    s->write = w;
    w->sent = s;
    shed_async_hold(s->async);
    return s;
}

/* Send it in a moment, if the call has as much time. */
static void wait(struct write *w)
{
    uint64_t again_ms = shed_now_ms() + SHED_ASYNC_PAUSE_MS;

    w->is_waiting = again_ms < w->tries.deadline_ms;
    if (w->is_waiting)
        shed_async_set_due(&w->pending, again_ms);
}

/* Send the command again in a moment, as a call that blocks does. Returns:
 * whether it will be. */
static bool repeat(struct write *w, const struct shed_call_result *result)
{
    if (w->is_decided || !shed_async_may_repeat(result, w->repeats))
        return false;
    w->repeats++;
    w->tries.server_ms = 0; /* another server may get it */
    wait(w);
    return true;
}

static void end_invalidation(struct write *w,
                             const struct shed_call_result *result)
{
    const struct shed_error none = {SHED_OK, ""};

    end(w, shed_write_judge(result->reply,
                            result->reply != NULL ? &none : result->why,
                            "the invalidation"));
}

static void take_reply(struct write *w, const struct shed_call_result *result)
{
    if (w->is_decided)
        conclude_as_decided(w);
    else if (repeat(w, result))
        return;
    else if (w->is_put)
        on_put(w, result);
    else
        end_invalidation(w, result);
}

static void on_reply(void *arg, const struct shed_call_result *result)
{
    struct sent *s = arg;
    struct shed_async *async = s->async;
    struct write *w = s->write;

    if (w != NULL) {
        w->tries.was_lost |= result->reply == NULL && s->call.was_tried;
        w->sent = NULL;
    }
    free(s);
    if (w != NULL)
        take_reply(w, result);
    shed_async_drop(async);
}

static void send_write(struct write *w)
{
    struct shed_cache *cache = w->pending.cache;
    const struct shed_entry_key key = {w->refresh, w->redis_size};
    struct shed_put_args args;
    char digits[SHED_DIGITS];
    struct sent *s;

    if (!shed_client_knows_servers(cache->client, NULL)) {
        wait(w);
        return;
    }
    s = begin_sent(w);
    if (s == NULL)
        return;
    if (w->is_put) {
        if (w->put.has_position)
            w->put.position = shed_tag_log_position(cache->tag_log);
        shed_put_begin(&args, cache, &w->put, w->refresh, w->redis_size);
        shed_args_add_number(&args.args, digits,
                             shed_put_begin_try(&w->tries, cache->client, key));
    } else {
        shed_delivery_begin(&args.args, SHED_WISH_INVALIDATE, w->refresh,
                            w->redis_size, "0");
    }
    args.args.is_guarded = true;
    args.args.is_repeated = w->repeats < SHED_ASYNC_REPEATS;
    shed_client_send(cache->client, &s->call, &args.args, on_reply, s);
}

/* ------------------------------------------------------------------ events */

static void step(struct shed_pending *pending, unsigned events)
{
    struct write *w = write_of(pending);
    bool is_over = (events & SHED_ASYNC_DUE) && !w->is_waiting;
    struct shed_error why;

    w->is_waiting = false;
    if (pending->is_stopped || w->is_decided) {
        conclude_as_decided(w);
    } else if (is_over) {
        (void)shed_fail(&why, SHED_ETIMEDOUT,
                        "the deadline passed while the call waited for Redis "
                        "to answer");
        conclude(w, &why);
    } else {
        shed_async_set_due(pending, w->tries.deadline_ms);
        /* without an answer its row looks old */
        w->is_learning = (events & SHED_ASYNC_START) && w->is_put &&
                         shed_put_needs_log(w->pending.cache);
        if (w->is_learning)
            shed_async_learn(pending);
        else
            send_write(w);
    }
}

/* ------------------------------------------------------------------- begin */

/* more: room behind the names. */
static struct write *create(struct shed_cache *cache, struct shed_bytes key,
                            uint64_t timeout_ms, size_t more)
{
    struct shed_named_key named;
    size_t names;
    struct write *w;

    shed_key_name(cache->name, key, &named);
    names = named.key.redis_size + SHED_ENTRY_REFRESH_SUFFIX_BYTES;
    w = malloc(sizeof(*w) + names + more);
    if (w == NULL)
        return NULL;
    memset(w, 0, sizeof(*w));
    w->pending.cache = cache;
    w->pending.step = step;
    w->pending.weight = 1;
    w->tries.deadline_ms = shed_cache_deadline_ms(cache, timeout_ms);
    w->at = (unsigned short)named.key.at;
    w->key_size = (unsigned short)key.size;
    w->redis_size = (unsigned short)named.key.redis_size;
    (void)shed_entry_refresh_key(named.bytes, named.key.redis_size, w->refresh);
    return w;
}

enum shed_code shed_invalidate_async(struct shed_cache *cache,
                                     struct shed_bytes key, uint64_t timeout_ms,
                                     const struct shed_then *then,
                                     struct shed_pending **pending,
                                     struct shed_error *err)
{
    struct write *w;
    enum shed_code code = shed_async_check(then, pending, err);

    if (code == SHED_OK)
        code = shed_cache_check_key_call(cache, key, timeout_ms, true, err);
    if (code != SHED_OK)
        return code;
    w = create(cache, key, timeout_ms, 0);
    if (w == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    w->write = shed_delivery_mark(cache->delivery, SHED_WISH_INVALIDATE);
    code = shed_async_submit(&w->pending, then, pending, err);
    if (code != SHED_OK)
        free(w);
    return code;
}

enum shed_code shed_put_async(struct shed_cache *cache, struct shed_bytes key,
                              struct shed_bytes row,
                              const struct shed_put_options *options,
                              const struct shed_then *then,
                              struct shed_pending **pending,
                              struct shed_error *err)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    unsigned char *tags;
    struct write *w;
    size_t room;
    enum shed_code code = shed_async_check(then, pending, err);

    if (code == SHED_OK)
        code = shed_options_take(&o, sizeof(o), options,
                                 "struct shed_put_options", err);
    if (code == SHED_OK)
        code = shed_cache_check_key_call(cache, key, o.timeout_ms, true, err);
    if (code == SHED_OK)
        code = shed_put_check(cache, row, &o, err);
    if (code != SHED_OK)
        return code;
    room = shed_put_tags_room(&o);
    w = create(cache, key, o.timeout_ms, room + row.size);
    if (w == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    tags = (unsigned char *)w->refresh + w->redis_size +
           SHED_ENTRY_REFRESH_SUFFIX_BYTES;
    if (row.size > 0)
        memcpy(tags + room, row.data, row.size);
    w->is_put = true;
    code = shed_put_set(&w->put, cache, shed_bytes(tags + room, row.size), &o,
                        tags, err);
    w->write = shed_put_mark(cache, &w->put);
    if (code == SHED_OK)
        code = shed_async_submit(&w->pending, then, pending, err);
    if (code != SHED_OK)
        free(w);
    return code;
}
