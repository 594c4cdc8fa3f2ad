/*
 * Writes. Their calls go over the session. Its invariants: what Redis may have
 * missed is undelivered before the call has ended, and a put is not carried out
 * after that. However a write of a key ends, callers that come after it do not
 * join a flight from before it, nor get a row that was kept before it. When the
 * invalidation of a tag has ended, this process finds the tag's entries to be
 * misses, unless it says that it was dropped.
 */
#include "cache/write.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "cache/await.h"

/* A command under way, which its write may leave. */
struct sent {
    struct shed_call call;
    struct shed_async *async;
    struct shed_write *write; /* NULL: it has ended */
};

static struct shed_write *write_of(struct shed_pending *pending)
{
    return shed_container_of(pending, struct shed_write, pending);
}

static struct shed_key key_of(const struct shed_write *w)
{
    return (struct shed_key){
        .redis = {w->refresh, w->redis_size}, .at = w->at, .size = w->key_size};
}

/* -------------------------------------------------------------------- end */

/* Count how it ended, and tell of a success. */
static void count_invalidation(struct shed_cache *cache, enum shed_wish wish,
                               struct shed_bytes key, enum shed_code code)
{
    const char *reason = key.size > 0 ? "the key is a tag" : "all entries";
    const struct shed_event event = {.kind = SHED_EVENT_INVALIDATED,
                                     .name = shed_str(cache->name),
                                     .key = key,
                                     .reason =
                                         wish == SHED_WISH_TAG ? reason : NULL};
    struct shed_counters *counters = &cache->counters;

    if (code != SHED_OK) {
        shed_count(&counters->invalidation_failures, 1);
        return;
    }
    shed_count(wish == SHED_WISH_TAG ? &counters->tag_invalidations
                                     : &counters->invalidations,
               1);
    shed_events_tell(cache->client->events, &event);
}

static void count_end(const struct shed_write *w, enum shed_code code)
{
    struct shed_cache *cache = w->pending.cache;
    const struct shed_key key = key_of(w);

    if (w->await == NULL)
        shed_count_code(&cache->counters, code);
    if (w->is_put)
        shed_count(&cache->counters.puts, code == SHED_OK);
    else if (w->mark.wish != SHED_WISH_EXPIRE)
        count_invalidation(cache, w->mark.wish, shed_key_bytes(&key), code);
}

/* What follows the end of a write, which why describes. A success makes up for
 * earlier failures; a failure makes the write undelivered, and why says so
 * afterwards. */
static void follow_up(const struct shed_write *w, struct shed_error *why)
{
    struct shed_cache *cache = w->pending.cache;
    const struct shed_key key = key_of(w);

    shed_delivery_follow_up(cache->delivery, &key, w->mark, why);
    if (w->mark.wish != SHED_WISH_TAG) {
        shed_flights_detach(cache->flights, &key);
        shed_local_drop(cache->local, key.redis);
    }
}

/* why: how it has ended. */
static void end(struct shed_write *w, struct shed_error why)
{
    enum shed_code code = why.code;

    if (w->sent != NULL)
        w->sent->write = NULL;
    shed_tag_log_leave(w->pending.cache->tag_log, &w->learner);
    follow_up(w, &why);
    count_end(w, code);
    w->pending.code = code;
    free(w->pending.why);
    w->pending.why = code != SHED_OK ? shed_error_keep(&why) : NULL;
    shed_async_end(&w->pending, NULL);
}

/* Whether Redis may carry out a put that was not answered. */
static bool may_come(const struct shed_write *w)
{
    return w->is_put && (w->tries.was_lost || w->sent != NULL) &&
           shed_now_ms() < w->tries.until_ms;
}

/* End it with *why; but a put that may be carried out only when it cannot. */
static void conclude(struct shed_write *w, const struct shed_error *why)
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
static void conclude_as_decided(struct shed_write *w)
{
    struct shed_error why = {SHED_OK, ""};

    if (w->pending.code != SHED_OK)
        (void)shed_fail(&why, w->pending.code, "%s",
                        shed_error_kept(w->pending.why));
    conclude(w, &why);
}

/* ---------------------------------------------------------------- commands */

static void send_write(struct shed_write *w);

static void on_put(struct shed_write *w, const struct shed_call_result *result)
{
    struct shed_error why = {SHED_OK, ""};

    if (result->reply == NULL)
        why = *result->why;
    if (shed_put_is_late(&w->tries, result->reply, &why))
        send_write(w);
    else
        conclude(w, &why);
}

/* Returns: NULL when out of memory; then the write has ended, or will. */
static struct sent *begin_sent(struct shed_write *w)
{
    struct sent *s = calloc(1, sizeof(*s));
    struct shed_error why;

    if (s == NULL) {
        (void)shed_fail_nomem(&why, "a write");
        conclude(w, &why);
        return NULL;
    }
    s->async = w->pending.cache->async;
    s->write = w;
    w->sent = s;
    shed_async_hold(s->async);
    return s;
}

/* Send it in a moment, if the call has as much time. */
static void wait(struct shed_write *w)
{
    uint64_t again_ms = shed_now_ms() + SHED_CALL_PAUSE_MS;

    w->is_waiting = again_ms < w->tries.deadline_ms;
    if (w->is_waiting)
        shed_async_set_due(&w->pending, again_ms);
}

/* Send the command again in a moment, as a call that blocks does. Returns:
 * whether it will be. */
static bool repeat(struct shed_write *w, const struct shed_call_result *result)
{
    if (w->is_decided || !shed_call_may_repeat(result, w->repeats))
        return false;
    w->repeats++;
    w->tries.server_ms = 0; /* another server may get it */
    wait(w);
    return true;
}

static void end_invalidation(struct shed_write *w,
                             const struct shed_call_result *result)
{
    static const char *const what[] = {
        [SHED_WISH_EXPIRE] = "the expiry",
        [SHED_WISH_INVALIDATE] = "the invalidation",
        [SHED_WISH_TAG] = "to invalidate a tag",
    };
    struct shed_error why = {SHED_OK, ""};
    const struct shed_key key = key_of(w);

    if (result->reply == NULL)
        why = *result->why;
    shed_write_judge(result->reply, what[w->mark.wish], &why);
    if (w->mark.wish == SHED_WISH_TAG && why.code == SHED_OK)
        shed_tag_log_note(w->pending.cache->tag_log, shed_key_bytes(&key),
                          (uint64_t)shed_reply_integer(result->reply));
    end(w, why);
}

static void take_reply(struct shed_write *w,
                       const struct shed_call_result *result)
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
    struct shed_write *w = s->write;

    if (w != NULL) {
        w->tries.was_lost |=
            result->reply == NULL && s->call.was_tried && !s->call.is_unsent;
        w->sent = NULL;
    }
    free(s);
    if (w != NULL)
        take_reply(w, result);
    shed_async_drop(async);
}

/* digits: room for the last argument of a put. */
static void make_args(struct shed_write *w, struct shed_put_args *args,
                      char digits[SHED_DIGITS])
{
    struct shed_cache *cache = w->pending.cache;
    const struct shed_key key = key_of(w);

    if (w->is_put) {
        if (w->put.has_position)
            w->put.position = shed_tag_log_position(cache->tag_log);
        shed_put_begin(args, cache, &w->put, key.redis);
        shed_args_add_number(
            &args->args, digits,
            shed_put_begin_try(&w->tries, cache->client, key.redis));
    } else if (w->mark.wish == SHED_WISH_TAG) {
        shed_tag_log_write(cache->tag_log, shed_key_bytes(&key), w->number,
                           &args->args);
    } else {
        shed_delivery_begin(&args->args, w->mark.wish, key.redis, w->number);
    }
}

static void send_write(struct shed_write *w)
{
    struct shed_client *client = w->pending.cache->client;
    struct shed_put_args args;
    char digits[SHED_DIGITS];
    struct sent *s;

    if (!shed_client_knows_servers(client, NULL)) {
        wait(w);
        return;
    }
    s = begin_sent(w);
    if (s == NULL)
        return;
    make_args(w, &args, digits);
    args.args.is_guarded = w->await == NULL || !w->await->is_let_through;
    args.args.is_repeated = w->repeats < SHED_CALL_REPEATS;
    shed_client_send(client, &s->call, &args.args, on_reply, s);
    /* a cluster's servers have a gate each */
    if (w->await != NULL && client->address->seeds == NULL)
        w->await->is_let_through |= !s->call.is_refused;
}

/* ------------------------------------------------------------------ events */

static void on_learnt(struct shed_tag_learner *learner,
                      const struct shed_error *why)
{
    (void)why; /* without an answer its row looks old */
    send_write(shed_container_of(learner, struct shed_write, learner));
}

static void step(struct shed_pending *pending, unsigned events)
{
    struct shed_write *w = write_of(pending);
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
        if ((events & SHED_ASYNC_START) && w->is_put &&
            shed_put_needs_log(pending->cache))
            shed_tag_log_await(pending->cache->tag_log, &w->learner, on_learnt);
        else
            send_write(w);
    }
}

/* ------------------------------------------------------------------- begin */

struct shed_write *shed_write_create(struct shed_cache *cache,
                                     enum shed_wish wish, struct shed_bytes key,
                                     uint64_t timeout_ms, size_t more)
{
    char tag[SHED_TAG_NAME_MAX_BYTES];
    struct shed_named_key named;
    struct shed_write *w;
    size_t names;

    if (wish == SHED_WISH_TAG)
        named.key = shed_tag_log_key(cache->tag_log, key, tag);
    else
        shed_key_name(cache->name, key, &named);
    names = named.key.redis.size + SHED_ENTRY_REFRESH_SUFFIX_BYTES;
    w = malloc(sizeof(*w) + names + more);
    if (w == NULL)
        return NULL;
    memset(w, 0, sizeof(*w));
    w->pending.cache = cache;
    w->pending.step = step;
    w->mark = shed_delivery_mark(cache->delivery, wish);
    w->tries.deadline_ms = shed_cache_deadline_ms(cache, timeout_ms);
    w->number[0] = '0';
    if (wish == SHED_WISH_TAG)
        shed_tag_log_mark(cache->tag_log, w->number);
    w->at = (unsigned short)named.key.at;
    w->key_size = (unsigned short)key.size;
    w->redis_size = (unsigned short)named.key.redis.size;
    (void)shed_entry_refresh_key(named.key.redis, w->refresh);
    return w;
}

enum shed_code shed_write_submit(struct shed_write *w,
                                 const struct shed_then *then,
                                 struct shed_pending **out,
                                 struct shed_error *err)
{
    enum shed_code code = shed_async_submit(&w->pending, 1, then, out, err);

    if (code != SHED_OK)
        free(w);
    return code;
}

enum shed_code shed_write_await(struct shed_write *w, struct shed_error *err)
{
    struct shed_await *await = shed_await_create(1);
    struct shed_value *none;

    if (await == NULL) {
        free(w);
        return shed_fail_nomem(err, "a call");
    }
    return shed_await_one(await, &w->pending,
                          w->tries.deadline_ms + SHED_AWAIT_WRITE_LATE_MS,
                          &none, err);
}

/* Why calls have failed, of which at least one has: the first that was dropped,
 * or else the first. */
static const char *find_reason(const struct shed_await *await, size_t *at)
{
    const char *reason = NULL;

    for (size_t i = 0; i < await->count; i++) {
        const char *one = shed_error_kept(await->outcome[i].why);
        bool is_dropped = strstr(one, SHED_DELIVERY_DROPPED) == one;
        if (await->outcome[i].code == SHED_OK ||
            (reason != NULL && !is_dropped))
            continue;
        reason = one;
        *at = i;
        if (is_dropped)
            break;
    }
    return reason;
}

static enum shed_code sum_up(const struct shed_await *await, const char *array,
                             struct shed_error *err)
{
    enum shed_code code = SHED_OK;
    const char *reason;
    size_t at = 0;

    for (size_t i = 0; i < await->count && code == SHED_OK; i++)
        code = await->outcome[i].code;
    if (code == SHED_OK)
        return SHED_OK;
    reason = find_reason(await, &at);
    return shed_fail(err, code, "%s[%zu]: %s", array, at, reason);
}

enum shed_code shed_writes_await(struct shed_write **writes, size_t count,
                                 const char *array, struct shed_error *err)
{
    struct shed_cache *cache = writes[0]->pending.cache;
    uint64_t late_ms = writes[0]->tries.deadline_ms + SHED_AWAIT_WRITE_LATE_MS;
    struct shed_await *await = shed_await_create(count);
    enum shed_code code;

    if (await == NULL) {
        while (count > 0)
            free(writes[--count]);
        return shed_fail_nomem(err, "a call");
    }
    for (size_t i = count; i-- > 0;) {
        writes[i]->await = await;
        shed_await_add(await, i, &writes[i]->pending);
    }
    shed_await_begin(await);
    code = shed_await_ends(await, late_ms, err);
    if (code == SHED_OK)
        code = sum_up(await, array, err);
    shed_await_leave(await);
    shed_count_code(&cache->counters, code);
    return code;
}
