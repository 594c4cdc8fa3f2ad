/*
 * Events. The invariant: each event is reported, or counted in a later one that
 * says how many were left out; and no hook is called with a lock held, or after
 * close.
 *
 * An event is copied and posted, so that hooks run on one thread only, and
 * never in the middle of a machine's step or a caller's operation. The work is
 * bounded: only what the limits let pass is copied.
 */
#include "client/events.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/limit.h"

/* How long after the first event that was left out their number is reported. */
#define SUMMARY_MS 1000

/* A line of the log: a reason, and as much of name and key as helps. */
#define LINE_BYTES (SHED_REASON_BYTES + 256)
#define NAME_SHOWN_BYTES 96

enum { LOG_NEVER = -1 };

/* One row per kind: its text, and the log levels of successes and of
 * troubles. */
static const struct kind {
    const char *words;
    int level_ok, level_trouble;
} kinds[] = {
    [SHED_EVENT_SUPPRESSED] = {"events left out", LOG_NEVER, LOG_NEVER},
    [SHED_EVENT_CONNECTED] = {"connected to Redis", SHED_LOG_INFO,
                              SHED_LOG_INFO},
    [SHED_EVENT_DISCONNECTED] = {"without Redis", LOG_NEVER, SHED_LOG_WARNING},
    [SHED_EVENT_LOAD_FINISHED] = {"load finished", LOG_NEVER, SHED_LOG_WARNING},
    [SHED_EVENT_TAKEOVER] = {"load taken over", SHED_LOG_WARNING,
                             SHED_LOG_WARNING},
    [SHED_EVENT_PUBLISH_REFUSED] = {"publish refused", SHED_LOG_INFO,
                                    SHED_LOG_WARNING},
    [SHED_EVENT_CORRUPT_ENTRY] = {"corrupt entry", SHED_LOG_WARNING,
                                  SHED_LOG_WARNING},
    [SHED_EVENT_INVALIDATED] = {"invalidated", LOG_NEVER, LOG_NEVER},
    [SHED_EVENT_LOCK_ACQUIRED] = {"lock acquired", LOG_NEVER, LOG_NEVER},
    [SHED_EVENT_LOCK_TAKEN_OVER] = {"lock taken over", SHED_LOG_WARNING,
                                    SHED_LOG_WARNING},
    [SHED_EVENT_LOCK_RELEASED] = {"lock released", LOG_NEVER, SHED_LOG_WARNING},
    [SHED_EVENT_LOCK_LOST] = {"lock lost", SHED_LOG_WARNING, SHED_LOG_WARNING},
    [SHED_EVENT_BREAKER] = {"breaker", SHED_LOG_INFO, SHED_LOG_WARNING},
    [SHED_EVENT_INVALIDATION_KEPT] = {"invalidation kept", SHED_LOG_WARNING,
                                      SHED_LOG_WARNING},
    [SHED_EVENT_INVALIDATION_DELIVERED] = {"invalidation delivered",
                                           SHED_LOG_INFO, SHED_LOG_INFO},
    [SHED_EVENT_INVALIDATION_DROPPED] = {"invalidation dropped", SHED_LOG_ERROR,
                                         SHED_LOG_ERROR},
    [SHED_EVENT_STALE_SERVED] = {"stale row served", SHED_LOG_INFO,
                                 SHED_LOG_INFO},
    [SHED_EVENT_FLEET] = {"fleet_loads is kept to again", SHED_LOG_INFO,
                          SHED_LOG_WARNING},
};

/* What is limited separately. An event without a line of its own, because
 * another event's line covers it, must not use up the limit of lines. */
enum class { CLASS_OK, CLASS_TROUBLE, CLASS_SPOKEN_FOR, CLASSES };

enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

_Static_assert(KINDS == SHED_EVENT_FLEET + 1, "one row for each kind");

SHED_CHECK_OPTIONS(shed_event);

struct shed_events {
    /* set at creation */
    struct shed_reactor *reactor;
    void (*on_event)(void *user, const struct shed_event *event);
    void *event_user;
    void (*on_log)(void *user, enum shed_log_level level, const char *text);
    void *log_user;
    struct shed_post summary_post;

    pthread_mutex_t mu;
    /* under mu */
    struct shed_limit limit[KINDS][CLASSES];
    enum shed_code left_out[KINDS][CLASSES]; /* the outcome of the last */
    bool is_summary_due;                     /* posted, or its timer runs */

    /* reactor thread only */
    struct shed_timer *timer;
};

/* An event that has been posted, and the bytes that it points to. */
struct told {
    struct shed_post post;
    struct shed_events *events;
    struct shed_event event;
    size_t keys;
    char bytes[];
};

const char *shed_event_kind_name(enum shed_event_kind kind)
{
    return (size_t)kind < KINDS ? kinds[kind].words : "unknown event";
}

/* A publish that came too late is not a trouble. */
static bool is_trouble(enum shed_event_kind kind, enum shed_code outcome)
{
    return outcome != SHED_OK &&
           !(kind == SHED_EVENT_PUBLISH_REFUSED && outcome == SHED_ELOST);
}

static int level_of(uint64_t kind, enum shed_code outcome)
{
    if (kind == SHED_EVENT_DISCONNECTED && outcome == SHED_EDENIED)
        return SHED_LOG_ERROR;
    return is_trouble((enum shed_event_kind)kind, outcome)
               ? kinds[kind].level_trouble
               : kinds[kind].level_ok;
}

bool shed_events_are_wanted(const struct shed_events *es,
                            enum shed_event_kind kind, enum shed_code outcome)
{
    return es->on_event != NULL ||
           (es->on_log != NULL && level_of(kind, outcome) != LOG_NEVER);
}

/* ------------------------------------------------------------- the log line */

static const char *words_of(const struct shed_event *e)
{
    if (e->kind == SHED_EVENT_DISCONNECTED && e->outcome == SHED_EDENIED)
        return "refused by Redis";
    if (e->kind == SHED_EVENT_LOAD_FINISHED && e->outcome != SHED_OK)
        return "load failed";
    if (e->kind == SHED_EVENT_BREAKER && e->outcome != SHED_OK)
        return "breaker opened";
    if (e->kind == SHED_EVENT_FLEET && e->outcome != SHED_OK)
        return "loads go on without fleet_loads";
    return kinds[e->kind].words;
}

/* Add bytes from the program, which can have any value. */
static size_t add_bytes(char *line, size_t at, struct shed_bytes bytes)
{
    const unsigned char *b = bytes.data;

    for (size_t i = 0; i < bytes.size && i < NAME_SHOWN_BYTES; i++)
        line[at++] = b[i] < ' ' || b[i] > '~' ? '?' : (char)b[i];
    return at;
}

static size_t add_text(char *line, size_t at, const char *text)
{
    size_t size = strnlen(text, SHED_REASON_BYTES);

    memcpy(line + at, text, size);
    return at + size;
}

static void log_event(const struct shed_events *es, const struct shed_event *e,
                      size_t keys)
{
    int level = level_of(e->about, e->outcome);
    char line[LINE_BYTES], more[32] = "";
    size_t at = 0;

    if (es->on_log == NULL || level == LOG_NEVER || keys == 0)
        return;
    if (keys > 1)
        (void)snprintf(more, sizeof(more), " and %zu more", keys - 1);
    at = add_text(line, at, words_of(e));
    if (e->name.size > 0)
        at = add_bytes(line, add_text(line, at, ": "), e->name);
    if (e->key.size > 0)
        at = add_text(
            line, add_bytes(line, add_text(line, at, ", key "), e->key), more);
    if (e->reason[0] != '\0')
        at = add_text(line, add_text(line, at, ": "), e->reason);
    line[at] = '\0';
    es->on_log(es->log_user, (enum shed_log_level)level, line);
}

static void call_hooks(const struct shed_events *es, const struct shed_event *e,
                       size_t keys)
{
    assert(shed_reactor_is_current(es->reactor));
    if (es->on_event != NULL)
        es->on_event(es->event_user, e);
    log_event(es, e, keys);
}

/* ------------------------------------------------------- what was left out */

static void tell_left_out(const struct shed_events *es, size_t kind,
                          enum class class, enum shed_code outcome,
                          uint64_t count)
{
    char reason[SHED_REASON_BYTES];
    struct shed_event e = {.size = sizeof(e),
                           .kind = SHED_EVENT_SUPPRESSED,
                           .outcome = outcome,
                           .reason = reason,
                           .count = count,
                           .about = kind};

    (void)snprintf(reason, sizeof(reason), "%llu times \"%s\"",
                   (unsigned long long)count, kinds[kind].words);
    call_hooks(es, &e, class != CLASS_SPOKEN_FOR);
}

static void tell_all_left_out(struct shed_events *es)
{
    pthread_mutex_lock(&es->mu);
    es->is_summary_due = false;
    pthread_mutex_unlock(&es->mu);
    for (size_t i = 0; i < (size_t)KINDS * CLASSES; i++) {
        size_t kind = i / CLASSES, class = i % CLASSES;
        enum shed_code outcome;
        uint64_t count;
        pthread_mutex_lock(&es->mu);
        count = shed_limit_take(&es->limit[kind][class]);
        outcome = es->left_out[kind][class];
        pthread_mutex_unlock(&es->mu);
        if (count > 0)
            tell_left_out(es, kind, (enum class) class, outcome, count);
    }
}

static void on_timer(void *arg)
{
    tell_all_left_out(arg);
}

static void set_summary_timer(struct shed_post *post)
{
    struct shed_events *es =
        shed_container_of(post, struct shed_events, summary_post);

    if (es->timer != NULL) /* not closed meanwhile */
        shed_timer_set(es->timer, SUMMARY_MS);
}

/* -------------------------------------------------------------- the events */

static enum class class_of(const struct shed_event *e, size_t keys) {
    if (keys == 0) return CLASS_SPOKEN_FOR;
    return is_trouble(e->kind, e->outcome) ? CLASS_TROUBLE : CLASS_OK;
}

/* Count the event against its limit; if it may not pass, make sure that the
 * number left out is reported. is_lost: it has passed, but there was no memory
 * for it. Returns: whether it passes. */
static bool pass(struct shed_events *es, const struct shed_event *e,
                 size_t keys, bool is_lost)
{
    enum class class = class_of(e, keys);
    struct shed_limit *limit = &es->limit[e->kind][class];
    bool passes = false, is_first = false;

    pthread_mutex_lock(&es->mu);
    if (is_lost)
        shed_limit_suppress(limit);
    else
        passes = shed_limit_pass(limit, SHED_EVENTS_PER_SECOND, shed_now_ms());
    if (!passes) {
        es->left_out[e->kind][class] = e->outcome;
        is_first = !es->is_summary_due;
        es->is_summary_due = true;
    }
    pthread_mutex_unlock(&es->mu);
    if (is_first)
        shed_reactor_post(es->reactor, &es->summary_post);
    return passes;
}

static void call_posted(struct shed_post *post)
{
    struct told *t = shed_container_of(post, struct told, post);

    call_hooks(t->events, &t->event, t->keys);
    free(t);
}

/* Copy bytes to *at and advance it. Returns: the copy. */
static struct shed_bytes keep(char **at, struct shed_bytes bytes)
{
    struct shed_bytes kept = {*at, bytes.size};

    if (bytes.size > 0)
        memcpy(*at, bytes.data, bytes.size);
    *at += bytes.size;
    return kept;
}

static struct told *copy(struct shed_events *es, const struct shed_event *e)
{
    struct shed_bytes reason = shed_str(e->reason);
    struct told *t =
        malloc(sizeof(*t) + e->name.size + e->key.size + reason.size + 1);
    char *at;

    if (t == NULL)
        return NULL;
    at = t->bytes;
    t->post.run = call_posted;
    t->events = es;
    t->event = *e;
    t->event.size = sizeof(t->event);
    t->event.name = keep(&at, e->name);
    t->event.key = keep(&at, e->key);
    t->event.reason = keep(&at, reason).data;
    *at = '\0';
    t->event.count = 1;
    t->event.about = e->kind;
    return t;
}

void shed_events_tell_of(struct shed_events *es, const struct shed_event *e,
                         size_t keys)
{
    struct told *t;

    assert((size_t)e->kind < KINDS && e->kind != SHED_EVENT_SUPPRESSED);
    if (!shed_events_are_wanted(es, e->kind, e->outcome) ||
        (keys == 0 && es->on_event == NULL) || !pass(es, e, keys, false))
        return;
    t = copy(es, e);
    if (t == NULL) {
        (void)pass(es, e, keys, true);
        return;
    }
    t->keys = keys;
    shed_reactor_post(es->reactor, &t->post);
}

void shed_events_tell(struct shed_events *es, const struct shed_event *e)
{
    shed_events_tell_of(es, e, 1);
}

/* ----------------------------------------------------------- begin and end */

enum shed_code shed_events_create(struct shed_reactor *reactor,
                                  const struct shed_client_options *options,
                                  struct shed_events **out,
                                  struct shed_error *err)
{
    struct shed_events *es = calloc(1, sizeof(*es));

    *out = NULL;
    if (es == NULL || pthread_mutex_init(&es->mu, NULL) != 0) {
        free(es);
        return shed_fail_nomem(err, "a client");
    }
    es->reactor = reactor;
    es->on_event = options->on_event;
    es->event_user = options->event_user;
    es->on_log = options->on_log;
    es->log_user = options->log_user;
    es->summary_post.run = set_summary_timer;
    es->timer = shed_timer_create(reactor, on_timer, es);
    if (es->timer == NULL) {
        shed_events_destroy(es);
        return shed_fail_nomem(err, "a client");
    }
    *out = es;
    return SHED_OK;
}

void shed_events_close(struct shed_events *es)
{
    if (es == NULL)
        return;
    tell_all_left_out(es);
    shed_timer_destroy(es->timer);
    es->timer = NULL;
}

void shed_events_destroy(struct shed_events *es)
{
    if (es == NULL)
        return;
    pthread_mutex_destroy(&es->mu);
    free(es);
}
