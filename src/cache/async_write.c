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
#include "base/random.h"
#include "cache/pending.h"
#include "cache/put.h"

struct write;

/* A command under way, which its write may leave. */
struct sent {
    struct shed_call call;
    struct shed_async *async;
    struct write *write; /* NULL: it has ended */
    /* of TIME */
    struct shed_server *server; /* held */
    uint64_t asked_ms;
};

struct write {
    struct shed_pending pending; /* first */
    struct sent *sent;           /* NULL: none is under way */
    struct shed_delivery_write write;
    uint64_t deadline_ms;
    uint64_t until_ms;        /* a put: until then it can be carried out */
    struct shed_put_row *put; /* NULL: it is an invalidation */
    unsigned char tries, repeats;
    bool is_marked; /* write is set */
    bool has_clock; /* of the server, for the next try */
    bool is_learning;
    bool was_lost;   /* the put, with a connection, and may be carried out */
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

static void leave_sent(struct write *w)
{
    if (w->sent != NULL)
        w->sent->write = NULL;
    w->sent = NULL;
}

/* why: how it has ended. */
static void end(struct write *w, struct shed_error why)
{
    struct shed_cache *cache = shed_async_cache(w->pending.async);
    struct shed_key key = key_of(w);
    enum shed_code code = why.code;

    leave_sent(w);
    if (w->is_learning)
        shed_async_unlearn(&w->pending);
    (void)shed_write_follow_up(cache, &key, w->write, &why);
    if (w->put != NULL) {
        shed_put_count(cache, code);
    } else {
        shed_write_count_invalidation(
            cache, shed_bytes(key.redis + key.at, key.size), NULL, code);
        shed_count_code(&cache->counters, code);
    }
    w->pending.code = code;
    free(w->pending.why);
    w->pending.why = code != SHED_OK ? shed_error_keep(&why) : NULL;
    free(w->put);
    w->put = NULL;
    shed_async_end(&w->pending, NULL);
}

/* Whether Redis may carry out a put that was not answered. */
static bool may_come(const struct write *w)
{
    bool is_sent = w->sent != NULL && w->sent->server == NULL;

    return w->put != NULL && (w->was_lost || is_sent) &&
           shed_now_ms() < w->until_ms;
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
    shed_async_set_due(&w->pending, w->until_ms);
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

static struct shed_error judge(const struct shed_call_result *result,
                               const char *what)
{
    const struct shed_error none = {SHED_OK, ""};

    return shed_write_judge(result->reply,
                            result->reply != NULL ? &none : result->why, what);
}

static void on_put(struct write *w, const struct shed_call_result *result)
{
    struct shed_error why = judge(result, "the put");

    if (why.code != SHED_OK ||
        shed_reply_integer(result->reply) != SHED_PUT_TOO_LATE) {
        conclude(w, &why);
        return;
    }
    w->was_lost = false; /* that comes too late, too */
    if (++w->tries < SHED_PUT_TRIES) {
        send_write(w);
        return;
    }
    (void)shed_fail(&why, SHED_ETIMEDOUT, "the put came to Redis too late");
    end(w, why);
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
    s->async = w->pending.async;
    s->write = w;
    w->sent = s;
    shed_async_hold(s->async);
    return s;
}

/* Returns: the write, unless it has ended. */
static struct write *end_sent(struct sent *s)
{
    struct write *w = s->write;

    if (w != NULL)
        w->sent = NULL;
    return w;
}

static bool goes_on(const struct write *w)
{
    return w->repeats < SHED_ASYNC_REPEATS;
}

/* Send the command again in a moment, as a call that blocks does. Returns:
 * whether it will be. */
static bool repeat(struct write *w, const struct shed_call_result *result)
{
    if (w->is_decided || !shed_async_may_repeat(result, w->repeats))
        return false;
    w->repeats++;
    shed_async_wait(&w->pending);
    return true;
}

static void take_reply(struct write *w, const struct shed_call_result *result)
{
    if (w->is_decided)
        conclude_as_decided(w);
    else if (repeat(w, result))
        return;
    else if (w->put != NULL)
        on_put(w, result);
    else
        end(w, judge(result, "the invalidation"));
}

static void on_reply(void *arg, const struct shed_call_result *result)
{
    struct sent *s = arg;
    struct shed_async *async = s->async;
    struct write *w = end_sent(s);

    if (w != NULL)
        w->was_lost |= result->reply == NULL && s->call.was_tried;
    free(s);
    if (w != NULL)
        take_reply(w, result);
    shed_async_drop(async);
}

static void on_time(void *arg, const struct shed_call_result *result)
{
    struct sent *s = arg;
    struct shed_async *async = s->async;
    struct write *w = end_sent(s);
    struct shed_error why = {SHED_OK, ""};
    enum shed_code code;

    if (result->reply == NULL)
        why = *result->why;
    code = shed_put_note_clock(s->server, s->asked_ms, result->reply, &why);
    shed_client_give_back(shed_async_cache(async)->client, s->server);
    free(s);
    if (w != NULL && w->is_decided) {
        conclude_as_decided(w);
    } else if (w != NULL && code == SHED_OK) {
        w->has_clock = true;
        send_write(w);
    } else if (w != NULL && !repeat(w, result)) {
        conclude(w, &why);
    }
    shed_async_drop(async);
}

static void ask_clock(struct write *w)
{
    struct shed_client *client = shed_async_cache(w->pending.async)->client;
    struct shed_args args = {.is_guarded = true, .is_repeated = goes_on(w)};
    struct sent *s = begin_sent(w);

    if (s == NULL)
        return;
    s->server = shed_client_hold(client, w->refresh, w->redis_size);
    s->asked_ms = shed_now_ms();
    shed_args_add_text(&args, "TIME");
    shed_pipe_call(shed_session_pipe(s->server->session), &s->call, &args,
                   on_time, s);
}

/* See send_put of put.c. */
static void send_put(struct write *w)
{
    struct shed_cache *cache = shed_async_cache(w->pending.async);
    const struct shed_entry_key key = {w->refresh, w->redis_size};
    struct shed_put_args args;
    char digits[SHED_DIGITS];
    uint64_t until_ms = shed_deadline_ms(shed_now_ms(), SHED_PUT_MS);
    struct sent *s;

    if (!w->was_lost) /* else it is the same put once more */
        w->until_ms = until_ms < w->deadline_ms ? until_ms : w->deadline_ms;
    if (!w->has_clock && (w->tries > 0 || shed_client_server_lowest_ms(
                                              cache->client, key.at, key.size,
                                              w->until_ms) == 0)) {
        ask_clock(w);
        return;
    }
    s = begin_sent(w);
    if (s == NULL)
        return;
    w->put->position =
        w->put->has_position ? shed_tag_log_position(cache->tag_log) : 0;
    shed_put_begin(&args, cache, w->put, w->refresh, w->redis_size);
    shed_args_add_number(&args.args, digits,
                         shed_client_server_lowest_ms(cache->client, key.at,
                                                      key.size, w->until_ms));
    args.args.is_repeated = goes_on(w);
    w->has_clock = false;
    shed_client_send(cache->client, &s->call, &args.args, on_reply, s);
}

static void send_invalidation(struct write *w)
{
    struct shed_cache *cache = shed_async_cache(w->pending.async);
    struct sent *s = begin_sent(w);
    struct shed_args args;

    if (s == NULL)
        return;
    shed_delivery_begin(&args, SHED_WISH_INVALIDATE, w->refresh, w->redis_size,
                        "0");
    args.is_guarded = true;
    args.is_repeated = goes_on(w);
    shed_client_send(cache->client, &s->call, &args, on_reply, s);
}

static void send_write(struct write *w)
{
    struct shed_client *client = shed_async_cache(w->pending.async)->client;

    if (!shed_client_knows_servers(client, NULL))
        shed_async_wait(&w->pending);
    else if (w->put != NULL)
        send_put(w);
    else
        send_invalidation(w);
}

/* ------------------------------------------------------------------ events */

static void start(struct write *w)
{
    struct shed_cache *cache = shed_async_cache(w->pending.async);
    struct shed_tag_log *log = cache->tag_log;

    shed_async_set_due(&w->pending, w->deadline_ms);
    if (w->put != NULL && log != NULL && shed_tag_log_position(log) == 0 &&
        !shed_tag_log_is_known(log)) {
        /* a cache that has just been opened: see put.c */
        w->is_learning = true;
        shed_async_learn(&w->pending);
    } else {
        send_write(w);
    }
}

static void step(struct shed_pending *pending, unsigned events)
{
    struct write *w = write_of(pending);
    struct shed_cache *cache = shed_async_cache(pending->async);
    struct shed_error why;

    if (!w->is_marked)
        w->write = w->put != NULL ? shed_put_mark(cache, w->put)
                                  : shed_delivery_mark(cache->delivery,
                                                       SHED_WISH_INVALIDATE);
    w->is_marked = true;
    if (pending->is_stopped || w->is_decided) {
        conclude_as_decided(w);
    } else if (events & SHED_ASYNC_START) {
        start(w);
    } else if (events & SHED_ASYNC_DUE) {
        (void)shed_fail(&why, SHED_ETIMEDOUT,
                        "the deadline passed while the call waited for Redis "
                        "to answer");
        conclude(w, &why);
    } else if (events & (SHED_ASYNC_LEARNT | SHED_ASYNC_AGAIN)) {
        w->is_learning = false; /* without an answer its row looks old */
        send_write(w);
    }
}

/* ------------------------------------------------------------------- begin */

/* more: room behind the names. */
static struct write *create(const struct shed_cache *cache,
                            struct shed_bytes key, uint64_t timeout_ms,
                            size_t more)
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
    w->pending.step = step;
    w->pending.weight = 1;
    w->deadline_ms = shed_cache_deadline_ms(cache, timeout_ms);
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
    enum shed_code code = shed_async_check(then, err);

    if (pending != NULL)
        *pending = NULL;
    if (code == SHED_OK)
        code = shed_cache_check_async(cache, timeout_ms, err);
    if (code == SHED_OK)
        code = shed_cache_check_key(key, "key", err);
    if (code != SHED_OK)
        return code;
    w = create(cache, key, timeout_ms, 0);
    if (w == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    code = shed_async_submit(cache->async, &w->pending, then, pending, err);
    if (code != SHED_OK)
        free(w);
    return code;
}

static enum shed_code check_put(const struct shed_cache *cache,
                                struct shed_bytes key, struct shed_bytes row,
                                const struct shed_put_options *o,
                                struct shed_error *err)
{
    enum shed_code code = shed_cache_check_async(cache, o->timeout_ms, err);

    if (code == SHED_OK)
        code = shed_cache_check_key(key, "key", err);
    return code == SHED_OK ? shed_put_check(cache, row, o, err) : code;
}

enum shed_code shed_put_async(struct shed_cache *cache, struct shed_bytes key,
                              struct shed_bytes row,
                              const struct shed_put_options *options,
                              const struct shed_then *then,
                              struct shed_pending **pending,
                              struct shed_error *err)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    struct shed_put_row *put;
    unsigned char *tags;
    struct write *w;
    size_t room;
    enum shed_code code = shed_async_check(then, err);

    if (pending != NULL)
        *pending = NULL;
    if (code == SHED_OK)
        code = shed_options_take(&o, sizeof(o), options,
                                 "struct shed_put_options", err);
    if (code == SHED_OK)
        code = check_put(cache, key, row, &o, err);
    if (code != SHED_OK)
        return code;
    room = shed_put_tags_room(&o);
    put = calloc(1, sizeof(*put));
    w = create(cache, key, o.timeout_ms, room + row.size);
    if (put == NULL || w == NULL) {
        free(put);
        free(w);
        return shed_fail_nomem(err, "an asynchronous call");
    }
    tags = (unsigned char *)w->refresh + w->redis_size +
           SHED_ENTRY_REFRESH_SUFFIX_BYTES;
    if (row.size > 0)
        memcpy(tags + room, row.data, row.size);
    shed_put_set(put, shed_bytes(tags + room, row.size), &o, tags);
    put->has_position = cache->tag_log != NULL;
    w->put = put;
    code = shed_random_token(put->nonce, sizeof(put->nonce), err);
    if (code == SHED_OK)
        code = shed_async_submit(cache->async, &w->pending, then, pending, err);
    if (code == SHED_OK)
        return SHED_OK;
    free(put);
    free(w);
    return code;
}
