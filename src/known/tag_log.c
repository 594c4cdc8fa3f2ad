/*
 * Following a cache's log of invalidations. Its invariants: the log counts as
 * known only after a read that was sent after the last announcement of a
 * change. Once a caller has been told that a tag was invalidated, its entries
 * are misses for this process, and later callers join no earlier flight.
 */
#include "known/tag_log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "base/mutex.h"
#include "wire/parser.h"

/* Members of one read: a long log holds up neither Redis nor the reactor. */
#define CHUNK 500
#define CHUNK_TEXT "500"

#define US_PER_MS 1000
/* invalidate_tag.lua's */
#define AHEAD_MS ((uint64_t)24 * 60 * 60 * 1000)

_Static_assert(2 * CHUNK <= SHED_PARSER_MAX_ELEMENTS,
               "members and scores of one read are no more than a reply has");

/* A read of the log. */
struct ask {
    uint64_t term;      /* the log's when it was sent */
    uint64_t sent_ms;   /* shed_now_ms */
    uint64_t from, due; /* positions; see shed_tag_log_hear */
    char digits[SHED_DIGITS];
};

struct shed_tag_log {
    /* set at creation */
    struct shed_client *client;
    struct shed_post wake;
    char key[SHED_NAME_MAX_BYTES + sizeof(SHED_TAG_LOG_SUFFIX)];
    size_t key_size;
    char limit[SHED_DIGITS];
    /* atomic */
    _Atomic uint64_t horizon;        /* that of tags, for hits */
    _Atomic uint64_t known_until_ms; /* UINT64_MAX: changes are announced */
    _Atomic uint64_t news;

    struct shed_mutex mu;
    /* under mu */
    struct shed_tags tags;
    uint64_t told; /* the newest of tags when it was last news */
    uint64_t read; /* the log has been read up to this position */
    uint64_t seen; /* the highest position of an entry that was above newest */
    uint64_t term; /* grows when the log may have changed */
    bool has_learner;
    pthread_cond_t learnt; /* it has none any longer */

    /* reactor thread only */
    struct shed_listener listener;
    struct shed_call call;
    struct ask ask; /* of call */
    bool is_closing;
    struct shed_latch end; /* then: waits for call */
};

static struct shed_bytes key_of(const struct shed_tag_log *log)
{
    return shed_bytes(log->key, log->key_size);
}

/* ------------------------------------------------------------ what is known */

uint64_t shed_tag_log_news(const struct shed_tag_log *log)
{
    return atomic_load(&log->news);
}

void shed_tag_log_add_news(struct shed_tag_log *log)
{
    (void)atomic_fetch_add(&log->news, 1);
}

/* The tags have changed. */
static void publish_locked(struct shed_tag_log *log)
{
    atomic_store_explicit(&log->horizon, shed_tags_horizon(&log->tags),
                          memory_order_release);
    if (log->tags.newest != log->told)
        shed_tag_log_add_news(log);
    log->told = log->tags.newest;
}

/* The log may have changed. */
static void doubt_locked(struct shed_tag_log *log)
{
    log->term++;
    atomic_store_explicit(&log->known_until_ms, 0, memory_order_release);
}

/* Let a read count until then, unless the log was in doubt since it was sent.
 */
static void trust_locked(struct shed_tag_log *log, const struct ask *ask,
                         uint64_t until_ms)
{
    if (ask->term == log->term && until_ms > atomic_load(&log->known_until_ms))
        atomic_store_explicit(&log->known_until_ms, until_ms,
                              memory_order_release);
}

void shed_tag_log_note(struct shed_tag_log *log, struct shed_bytes tag,
                       uint64_t position)
{
    shed_mutex_lock(&log->mu);
    if (position < log->tags.newest)
        doubt_locked(log); /* that may be above what Redis gives */
    shed_tags_note(&log->tags, tag, position);
    publish_locked(log);
    shed_mutex_unlock(&log->mu);
}

bool shed_tag_log_hold(struct shed_tag_log *log, struct shed_bytes tag)
{
    bool is_held;

    shed_mutex_lock(&log->mu);
    is_held = shed_tags_hold(&log->tags, tag);
    publish_locked(log);
    shed_tag_log_add_news(log);
    shed_mutex_unlock(&log->mu);
    return is_held;
}

void shed_tag_log_release(struct shed_tag_log *log, struct shed_bytes tag)
{
    shed_mutex_lock(&log->mu);
    shed_tags_release(&log->tags, tag);
    publish_locked(log);
    shed_tag_log_add_news(log);
    shed_mutex_unlock(&log->mu);
}

/* By the server's clock, as the script judges it. An entry is from a time when
 * the clock or the log was wrong: the script would refuse its position. */
static bool is_far_ahead(const struct shed_tag_log *log, uint64_t position)
{
    uint64_t now_ms = shed_client_server_ms(log->client, key_of(log));

    return now_ms > 0 && position / US_PER_MS > now_ms + AHEAD_MS;
}

bool shed_tag_log_admits(struct shed_tag_log *log, const void *entry)
{
    struct shed_entry_tags tags;
    bool is_admitted = false;

    shed_entry_tags(entry, &tags);
    if (tags.position ==
        atomic_load_explicit(&log->horizon, memory_order_acquire))
        return true;
    shed_mutex_lock(&log->mu);
    if (tags.position <= log->tags.newest) {
        is_admitted = shed_tags_admit(&log->tags, &tags);
    } else if (!is_far_ahead(log, tags.position)) {
        /* the news of it are on their way, or the log has lost them */
        if (tags.position > log->seen)
            log->seen = tags.position;
        doubt_locked(log);
    }
    shed_mutex_unlock(&log->mu);
    return is_admitted;
}

uint64_t shed_tag_log_position(struct shed_tag_log *log)
{
    uint64_t position;

    shed_mutex_lock(&log->mu);
    position = log->tags.newest;
    shed_mutex_unlock(&log->mu);
    return position;
}

bool shed_tag_log_is_known(const struct shed_tag_log *log)
{
    uint64_t until_ms =
        atomic_load_explicit(&log->known_until_ms, memory_order_acquire);

    return until_ms == UINT64_MAX || (until_ms > 0 && shed_now_ms() < until_ms);
}

/* ---------------------------------------------------------------- the reads */

void shed_tag_log_ask(struct shed_bytes key, uint64_t position,
                      char digits[SHED_DIGITS], struct shed_args *out)
{
    *out = shed_args_of("ZRANGEBYSCORE", NULL);
    shed_args_add(out, key.data, key.size);
    shed_args_add_number(out, digits, position);
    shed_args_add_text(out, "+inf");
    shed_args_add_text(out, "WITHSCORES");
    shed_args_add_text(out, "LIMIT");
    shed_args_add_text(out, "0");
    shed_args_add_text(out, CHUNK_TEXT);
}

/* Returns: false if a score is not what the script writes. No position would be
 * above such a one, or it would not be above the position that was asked for:
 * then a read would never come to the end of the log. */
static bool read_position(const char *score, size_t size, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < size; i++) {
        if (score[i] < '0' || score[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(score[i] - '0');
        if (*out >= SHED_TAGS_POSITION_END)
            return false;
    }
    return *out > 0;
}

enum shed_tag_heard shed_tag_log_hear(struct shed_tags *tags,
                                      uint64_t *position, uint64_t due,
                                      const struct shed_reply *reply)
{
    size_t count = shed_reply_count(reply) / 2;
    uint64_t from = *position, at;

    *position = 0;
    for (size_t i = 0; i < count; i++) {
        size_t tag_size = 0, size = 0;
        const char *tag =
            shed_reply_bytes(shed_reply_at(reply, 2 * i), &tag_size);
        const char *score =
            shed_reply_bytes(shed_reply_at(reply, 2 * i + 1), &size);
        if (tag == NULL || score == NULL || !read_position(score, size, &at))
            return SHED_TAG_HEARD_OTHER;
        shed_tags_note(tags, shed_bytes(tag, tag_size), at);
        *position = at;
    }
    if (count == CHUNK) /* the script gives no position twice */
        return *position > from ? SHED_TAG_HEARD_PART : SHED_TAG_HEARD_OTHER;
    return *position < due ? SHED_TAG_HEARD_LOST : SHED_TAG_HEARD_ALL;
}

static uint64_t highest_locked(const struct shed_tag_log *log)
{
    return log->seen > log->tags.newest ? log->seen : log->tags.newest;
}

static void begin_read(struct shed_tag_log *log, struct ask *ask,
                       struct shed_args *args)
{
    shed_mutex_lock(&log->mu);
    ask->term = log->term;
    ask->from = log->read;
    ask->due = highest_locked(log);
    shed_tag_log_ask(key_of(log), log->read, ask->digits, args);
    shed_mutex_unlock(&log->mu);
    ask->sent_ms = shed_now_ms();
}

/* Take the reply to a read over. are_announced: later changes will be. A row
 * that could be a miss by one of its tags is not given out while Redis cannot
 * be asked what they are: its get fails. Returns: SHED_OK and what was heard;
 * the code of an error reply; SHED_EREDIS: it is no log. */
static enum shed_code end_read(struct shed_tag_log *log, const struct ask *ask,
                               bool are_announced,
                               const struct shed_reply *reply,
                               enum shed_tag_heard *heard,
                               struct shed_error *err)
{
    const char *text = shed_reply_error(reply);
    uint64_t until_ms = UINT64_MAX, position = ask->from;

    if (text != NULL)
        return shed_fail(err, shed_reply_code(reply),
                         "Redis refused to read the log of tags, %s: %s",
                         log->key, text);
    if (!are_announced)
        until_ms = shed_deadline_ms(ask->sent_ms, SHED_TAG_LOG_TRUST_MS);
    shed_mutex_lock(&log->mu);
    *heard = shed_tag_log_hear(&log->tags, &position, ask->due, reply);
    if (position > log->read)
        log->read = position;
    publish_locked(log);
    if (*heard == SHED_TAG_HEARD_ALL)
        trust_locked(log, ask, until_ms);
    shed_mutex_unlock(&log->mu);
    if (*heard != SHED_TAG_HEARD_OTHER)
        return SHED_OK;
    return shed_fail(err, SHED_EREDIS,
                     "the log of tags, %s, has a score that is no position: "
                     "delete the key",
                     log->key);
}

/* ------------------------------------------------------ in callers' threads */

/* A read in a caller's thread is not announced when it is out of date; one by
 * the reactor is, if that is possible by now. */
static void wake_reader(struct shed_tag_log *log)
{
    shed_reactor_wake(log->client->reactor, &log->wake);
}

/* The server's clock, or the log, was far ahead once, and has been set right:
 * the script has refused what is known. */
static void begin_again(struct shed_tag_log *log)
{
    shed_mutex_lock(&log->mu);
    shed_tags_forget(&log->tags);
    log->read = log->seen = 0;
    publish_locked(log);
    shed_mutex_unlock(&log->mu);
}

static void tell_restored(struct shed_tag_log *log)
{
    const struct shed_event event = {
        .kind = SHED_EVENT_INVALIDATED,
        .name = {log->key, log->key_size - strlen(SHED_TAG_LOG_SUFFIX)},
        .reason = "all entries, because the log of tags had lost its end"};

    shed_events_tell(log->client->events, &event);
}

/* Write "everything" above what is known, unless another process has done it.
 * Returns: SHED_OK, and ALL if Redis refuses it; else as shed_client_call. */
static enum shed_code restore(struct shed_tag_log *log, const struct ask *ask,
                              uint64_t deadline_ms, enum shed_tag_heard *heard,
                              struct shed_error *err)
{
    char mark[SHED_DIGITS];
    struct shed_reply *reply = NULL;
    struct shed_args args;
    enum shed_code code;
    long long position;

    shed_write_digits(mark, ask->due);
    shed_tag_log_write(log, shed_str(""), mark, &args);
    shed_args_add_text(&args, "restore");
    args.is_guarded = true;
    /* twice is as good as once */
    code = shed_client_call(log->client, &args, 1, &reply, NULL, NULL,
                            deadline_ms, err);
    if (code != SHED_OK)
        return code;
    position = shed_reply_integer(reply);
    shed_reply_free(reply);
    if (position <= 0) {
        /* Without a log that can be written nobody's invalidation has an effect
           that this process does not know; it asks again later. */
        shed_mutex_lock(&log->mu);
        trust_locked(log, ask,
                     shed_deadline_ms(ask->sent_ms, SHED_TAG_LOG_TRUST_MS));
        shed_mutex_unlock(&log->mu);
        *heard = SHED_TAG_HEARD_ALL;
        return SHED_OK;
    }
    if ((uint64_t)position <= ask->due)
        begin_again(log);
    tell_restored(log);
    return SHED_OK;
}

/* Wait while another thread reads: it has a long log as fast alone, and what it
 * has read by its deadline need not be read again. */
static enum shed_code begin_learning(struct shed_tag_log *log,
                                     uint64_t deadline_ms,
                                     struct shed_error *err)
{
    bool is_begun;

    shed_mutex_lock(&log->mu);
    while (log->has_learner &&
           shed_cond_wait(&log->learnt, &log->mu, deadline_ms))
        ;
    is_begun = !log->has_learner;
    log->has_learner = true;
    shed_mutex_unlock(&log->mu);
    if (is_begun)
        return SHED_OK;
    return shed_fail(err, SHED_ETIMEDOUT,
                     "the deadline passed while the call waited for the log of "
                     "tags, %s, to be read",
                     log->key);
}

static void end_learning(struct shed_tag_log *log)
{
    shed_mutex_lock(&log->mu);
    log->has_learner = false;
    shed_mutex_unlock(&log->mu);
    pthread_cond_broadcast(&log->learnt);
}

/* Read on until the end. */
static enum shed_code learn_rest(struct shed_tag_log *log, uint64_t deadline_ms,
                                 struct shed_error *err)
{
    enum shed_tag_heard heard = SHED_TAG_HEARD_PART;
    enum shed_code code = SHED_OK;

    while (code == SHED_OK && heard != SHED_TAG_HEARD_ALL) {
        struct shed_reply *reply = NULL;
        struct shed_args args;
        struct ask ask;
        begin_read(log, &ask, &args);
        args.is_guarded = true;
        code = shed_client_call(log->client, &args, 1, &reply, NULL, NULL,
                                deadline_ms, err);
        if (code == SHED_OK)
            code = end_read(log, &ask, false, reply, &heard, err);
        shed_reply_free(reply);
        if (code == SHED_OK && heard == SHED_TAG_HEARD_LOST)
            code = restore(log, &ask, deadline_ms, &heard, err);
    }
    return code;
}

enum shed_code shed_tag_log_learn(struct shed_tag_log *log,
                                  uint64_t deadline_ms, struct shed_error *err)
{
    enum shed_code code = begin_learning(log, deadline_ms, err);

    if (code != SHED_OK)
        return code;
    if (!shed_tag_log_is_known(log))
        code = learn_rest(log, deadline_ms, err);
    end_learning(log);
    wake_reader(log);
    return code;
}

void shed_tag_log_mark(struct shed_tag_log *log, char digits[SHED_DIGITS])
{
    shed_mutex_lock(&log->mu);
    shed_write_digits(digits, highest_locked(log));
    shed_mutex_unlock(&log->mu);
}

void shed_tag_log_write(const struct shed_tag_log *log, struct shed_bytes tag,
                        const char mark[SHED_DIGITS], struct shed_args *out)
{
    shed_script_begin(out, SHED_SCRIPT_INVALIDATE_TAG, "1");
    shed_args_add(out, log->key, log->key_size);
    shed_args_add(out, tag.data, tag.size);
    shed_args_add_text(out, log->limit);
    shed_args_add_text(out, mark);
}

struct shed_key shed_tag_log_key(const struct shed_tag_log *log,
                                 struct shed_bytes tag,
                                 char room[SHED_TAG_NAME_MAX_BYTES])
{
    memcpy(room, log->key, log->key_size);
    if (tag.size > 0)
        memcpy(room + log->key_size, tag.data, tag.size);
    return (struct shed_key){.redis = {room, log->key_size + tag.size},
                             .at = (unsigned)log->key_size,
                             .size = (unsigned)tag.size};
}

/* ---------------------------------------------------- on the reactor thread */

static void read_on_reactor(struct shed_tag_log *log);

/* Without a reply the next epoch reads again, or a get that needs the log. */
static void on_read(void *arg, const struct shed_call_result *result)
{
    struct shed_tag_log *log = arg;
    struct shed_reply *reply = result->reply;
    struct shed_error why;
    enum shed_tag_heard heard = SHED_TAG_HEARD_OTHER;

    if (log->is_closing) {
        shed_latch_count_down(&log->end, 1);
        return;
    }
    if (reply != NULL &&
        end_read(log, &log->ask, true, reply, &heard, &why) == SHED_OK &&
        heard != SHED_TAG_HEARD_LOST && /* a get restores it */
        atomic_load(&log->known_until_ms) != UINT64_MAX)
        read_on_reactor(log); /* there is more, or it has changed */
}

/* Only a read over a session whose changes are announced serves later gets. */
static void read_on_reactor(struct shed_tag_log *log)
{
    struct shed_args args;

    if (log->call.fn != NULL ||
        !shed_session_is_on(shed_client_session(log->client, key_of(log))))
        return;
    begin_read(log, &log->ask, &args);
    shed_client_send(log->client, &log->call, &args, on_read, log);
}

/* Also when a change of the log is announced. */
static void on_epoch(struct shed_listener *listener)
{
    struct shed_tag_log *log =
        shed_container_of(listener, struct shed_tag_log, listener);

    shed_mutex_lock(&log->mu);
    doubt_locked(log);
    shed_mutex_unlock(&log->mu);
    read_on_reactor(log);
}

static void on_wake(struct shed_post *post)
{
    struct shed_tag_log *log =
        shed_container_of(post, struct shed_tag_log, wake);

    if (atomic_load(&log->known_until_ms) != UINT64_MAX)
        read_on_reactor(log);
}

/* ----------------------------------------------------------- begin and end */

static void follow_on_reactor(void *arg)
{
    struct shed_tag_log *log = arg;

    (void)shed_listeners_add(log->client->listeners, &log->listener);
    read_on_reactor(log);
}

struct shed_tag_log *shed_tag_log_create(const struct shed_cache *cache)
{
    struct shed_tag_log *log = calloc(1, sizeof(*log));

    if (log == NULL || shed_mutex_init(&log->mu, SHED_RANK_TAG_LOG) != 0)
        goto fail;
    if (shed_cond_init(&log->learnt) != 0) {
        shed_mutex_destroy(&log->mu);
        goto fail;
    }
    log->client = cache->client;
    log->wake.run = on_wake;
    log->key_size = (size_t)snprintf(log->key, sizeof(log->key),
                                     "%s" SHED_TAG_LOG_SUFFIX, cache->name);
    shed_write_digits(log->limit, cache->options.tags_limit);
    log->listener =
        (struct shed_listener){.key = key_of(log), .on_epoch = on_epoch};
    shed_tags_init(&log->tags, (size_t)cache->options.tags_limit);
    shed_latch_init(&log->end, 1);
    shed_reactor_run(log->client->reactor, follow_on_reactor, log);
    return log;
fail:
    free(log);
    return NULL;
}

static void close_on_reactor(void *arg)
{
    struct shed_tag_log *log = arg;

    shed_listeners_remove(log->client->listeners, &log->listener);
    log->is_closing = true;
    if (log->call.fn == NULL)
        shed_latch_count_down(&log->end, 1);
}

void shed_tag_log_close(struct shed_tag_log *log)
{
    if (log == NULL)
        return;
    shed_reactor_run(log->client->reactor, close_on_reactor, log);
    (void)shed_latch_wait(&log->end, UINT64_MAX);
    shed_tags_fini(&log->tags);
    pthread_cond_destroy(&log->learnt);
    shed_mutex_destroy(&log->mu);
    free(log);
}
