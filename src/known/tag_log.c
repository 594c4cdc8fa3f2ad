/*
 * Following a cache's log of invalidations. Its invariants: the log counts as
 * known only after a read that was sent after the last announcement of a
 * change. Once a caller has been told that a tag was invalidated, its entries
 * are misses for this process, and later callers join no earlier flight.
 */
#include "known/tag_log.h"

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

_Static_assert(2ULL * CHUNK <= SHED_PARSER_MAX_ELEMENTS,
               "members and scores of one read are no more than a reply has");

struct shed_tag_log {
    /* set at creation */
    struct shed_client *client;
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
    uint64_t seen; /* the highest position of an entry that was above newest */
    uint64_t term; /* grows when the log may have changed */

    /* reactor thread only */
    struct shed_listener listener;
    struct shed_list learners; /* their terms grow */
    struct shed_timer *pause;
    bool is_busy; /* the log is being read or restored, or will be when the
                     pause is over */
    bool is_closing;
    struct shed_latch end; /* then: waits for call */
    uint64_t read;         /* the log has been read up to this position */
    unsigned repeats;
    struct shed_call call;
    struct {              /* the read of call, or the last one */
        uint64_t term;    /* the log's when it was sent */
        uint64_t sent_ms; /* shed_now_ms */
        uint64_t due;     /* see shed_tag_log_hear */
        bool is_tracked;  /* what changes afterwards will be announced */
    } ask;
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
    uint64_t until_ms;

    if (log == NULL)
        return true;
    until_ms = atomic_load_explicit(&log->known_until_ms, memory_order_acquire);
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

/* Tell those who came before a later term of the log. */
static void tell(struct shed_tag_log *log, uint64_t term,
                 const struct shed_error *why)
{
    struct shed_node *node;

    while ((node = log->learners.first) != NULL) {
        struct shed_tag_learner *learner =
            shed_container_of(node, struct shed_tag_learner, node);
        shed_tag_learnt_fn *fn = learner->fn;
        if (learner->term > term)
            break;
        shed_tag_log_leave(log, learner);
        fn(learner, why);
    }
}

static void tell_restored(struct shed_tag_log *log)
{
    const struct shed_event event = {
        .kind = SHED_EVENT_INVALIDATED,
        .name = {log->key, log->key_size - strlen(SHED_TAG_LOG_SUFFIX)},
        .reason = "all entries, because the log of tags had lost its end"};

    shed_events_tell(log->client->events, &event);
}

static void pause_reading(struct shed_tag_log *log)
{
    log->is_busy = true;
    shed_timer_set(log->pause, SHED_CALL_PAUSE_MS);
}

/* Returns: whether a call has got a reply that is to be looked at. Without one
 * the learners hear why, and the next of them, or the next epoch, has the log
 * read again. */
static bool is_answered(struct shed_tag_log *log,
                        const struct shed_call_result *result)
{
    log->is_busy = false;
    if (log->is_closing) {
        shed_latch_count_down(&log->end, 1);
        return false;
    }
    if (shed_call_may_repeat(result, log->repeats)) {
        log->repeats++;
        pause_reading(log);
        return false;
    }
    log->repeats = 0;
    if (result->reply == NULL)
        tell(log, UINT64_MAX, result->why);
    return result->reply != NULL;
}

static void send_call(struct shed_tag_log *log, struct shed_args *args,
                      shed_pipe_fn *fn)
{
    args->is_guarded = args->is_followed = true;
    args->is_repeated = log->repeats < SHED_CALL_REPEATS;
    log->is_busy = true;
    shed_client_send(log->client, &log->call, args, fn, log);
}

static void on_read(void *arg, const struct shed_call_result *result);

/* Read on, if that serves anybody: learners; or, over a session whose changes
 * are announced, later gets. */
static void read_log(struct shed_tag_log *log)
{
    bool is_on =
        shed_session_is_on(shed_client_session(log->client, key_of(log)));
    char digits[SHED_DIGITS];
    struct shed_args args;

    if (log->is_busy || (!is_on && log->learners.first == NULL))
        return;
    if (!shed_client_knows_servers(log->client, NULL)) {
        pause_reading(log);
        return;
    }
    shed_mutex_lock(&log->mu);
    log->ask.term = log->term;
    log->ask.due = highest_locked(log);
    shed_mutex_unlock(&log->mu);
    log->ask.sent_ms = shed_now_ms();
    log->ask.is_tracked = is_on;
    shed_tag_log_ask(key_of(log), log->read, digits, &args);
    send_call(log, &args, on_read);
}

/* The log is known as of the last read, and until then, unless it was in doubt
 * since that was sent. */
static void trust(struct shed_tag_log *log, uint64_t until_ms)
{
    bool is_known;

    shed_mutex_lock(&log->mu);
    is_known = log->ask.term == log->term;
    if (is_known)
        atomic_store_explicit(&log->known_until_ms, until_ms,
                              memory_order_release);
    shed_mutex_unlock(&log->mu);
    tell(log, log->ask.term, NULL);
    if (!is_known)
        read_log(log);
}

/* The server's clock, or the log, was far ahead once, and has been set right:
 * the script has refused what is known. */
static void begin_again(struct shed_tag_log *log)
{
    log->read = 0;
    shed_mutex_lock(&log->mu);
    shed_tags_forget(&log->tags);
    log->seen = 0;
    publish_locked(log);
    shed_mutex_unlock(&log->mu);
}

static void on_restored(void *arg, const struct shed_call_result *result)
{
    struct shed_tag_log *log = arg;
    long long position;

    if (!is_answered(log, result))
        return;
    position = shed_reply_integer(result->reply);
    if (position <= 0) {
        /* Without a log that can be written nobody's invalidation has an effect
           that this process does not know; it asks again later. */
        trust(log, shed_deadline_ms(log->ask.sent_ms, SHED_TAG_LOG_TRUST_MS));
        return;
    }
    if ((uint64_t)position <= log->ask.due)
        begin_again(log);
    tell_restored(log);
    read_log(log);
}

/* Write "everything" above what is known, unless another process has done it.
 * Twice is as good as once. */
static void restore(struct shed_tag_log *log)
{
    char mark[SHED_DIGITS];
    struct shed_args args;

    shed_write_digits(mark, log->ask.due);
    shed_tag_log_write(log, shed_str(""), mark, &args);
    shed_args_add_text(&args, "restore");
    send_call(log, &args, on_restored);
}

static enum shed_tag_heard hear(struct shed_tag_log *log,
                                const struct shed_reply *reply)
{
    enum shed_tag_heard heard;
    uint64_t position = log->read;

    shed_mutex_lock(&log->mu);
    heard = shed_tag_log_hear(&log->tags, &position, log->ask.due, reply);
    publish_locked(log);
    shed_mutex_unlock(&log->mu);
    if (position > log->read)
        log->read = position;
    return heard;
}

/* A row that could be a miss by one of its tags is not given out while Redis
 * cannot be asked what they are: its get fails. */
static void fail(struct shed_tag_log *log, const struct shed_reply *reply)
{
    const char *text = shed_reply_error(reply);
    struct shed_error why;

    if (text != NULL)
        (void)shed_fail(&why, shed_reply_code(reply),
                        "Redis refused to read the log of tags, %s: %s",
                        log->key, text);
    else
        (void)shed_fail(&why, SHED_EREDIS,
                        "the log of tags, %s, has a score that is no position: "
                        "delete the key",
                        log->key);
    tell(log, UINT64_MAX, &why);
}

static void on_read(void *arg, const struct shed_call_result *result)
{
    struct shed_tag_log *log = arg;
    enum shed_tag_heard heard = SHED_TAG_HEARD_OTHER;

    if (!is_answered(log, result))
        return;
    if (shed_reply_error(result->reply) == NULL)
        heard = hear(log, result->reply);
    switch (heard) {
    case SHED_TAG_HEARD_ALL:
        /* redirected: who announces the changes of another server's keys? */
        trust(log,
              log->ask.is_tracked && log->call.redirects == 0
                  ? UINT64_MAX
                  : shed_deadline_ms(log->ask.sent_ms, SHED_TAG_LOG_TRUST_MS));
        break;
    case SHED_TAG_HEARD_PART:
        read_log(log);
        break;
    case SHED_TAG_HEARD_LOST:
        if (log->learners.first != NULL) /* else a get restores it */
            restore(log);
        break;
    case SHED_TAG_HEARD_OTHER:
        fail(log, result->reply);
        break;
    }
}

static void on_pause(void *arg)
{
    struct shed_tag_log *log = arg;

    log->is_busy = false;
    read_log(log);
}

/* Also when a change of the log is announced. */
static void on_epoch(struct shed_listener *listener)
{
    struct shed_tag_log *log =
        shed_container_of(listener, struct shed_tag_log, listener);

    shed_mutex_lock(&log->mu);
    doubt_locked(log);
    shed_mutex_unlock(&log->mu);
    read_log(log);
}

void shed_tag_log_await(struct shed_tag_log *log,
                        struct shed_tag_learner *learner,
                        shed_tag_learnt_fn *fn)
{
    learner->fn = fn;
    shed_mutex_lock(&log->mu);
    learner->term = log->term;
    shed_mutex_unlock(&log->mu);
    shed_list_append(&log->learners, &learner->node);
    read_log(log);
}

void shed_tag_log_leave(struct shed_tag_log *log,
                        struct shed_tag_learner *learner)
{
    if (learner->fn != NULL)
        shed_list_remove(&log->learners, &learner->node);
    learner->fn = NULL;
}

/* ----------------------------------------------------------- begin and end */

static void follow_on_reactor(void *arg)
{
    struct shed_tag_log *log = arg;

    (void)shed_listeners_add(log->client->listeners, &log->listener);
    read_log(log);
}

struct shed_tag_log *shed_tag_log_create(const struct shed_cache *cache)
{
    struct shed_tag_log *log = calloc(1, sizeof(*log));

    if (log == NULL || shed_mutex_init(&log->mu, SHED_RANK_TAG_LOG) != 0)
        goto fail;
    log->client = cache->client;
    log->pause = shed_timer_create(log->client->reactor, on_pause, log);
    if (log->pause == NULL) {
        shed_mutex_destroy(&log->mu);
        goto fail;
    }
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
    shed_timer_destroy(log->pause);
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
    shed_mutex_destroy(&log->mu);
    free(log);
}
