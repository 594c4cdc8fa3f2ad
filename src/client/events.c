/*
 * Events. The invariant: each event is reported, or counted in a later one that
 * says how many were left out; and no hook is called with a lock held, or after
 * close.
 *
 * An event is copied and posted, so that hooks run on one thread only, and
 * never in the middle of a machine's step or a caller's operation. The work is
 * bounded: only what the limits let pass is copied. on_event and on_log have
 * limits of their own, because a program counts, and a person reads.
 */
#include "client/events.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/limit.h"
#include "base/mutex.h"
#include "client/event_line.h"

/* How long after the first event that was left out their number is reported. */
#define SUMMARY_MS 1000
#define SECOND_MS 1000

/* What on_event is told within limits of their own: an event for which the line
 * of another speaks is one of very many. */
enum class { CLASS_OK, CLASS_TROUBLE, CLASS_SPOKEN_FOR, CLASSES };

SHED_CHECK_OPTIONS(shed_event);

struct shed_events {
    /* set at creation */
    struct shed_reactor *reactor;
    void (*on_event)(void *user, const struct shed_event *event);
    void *event_user;
    void (*on_log)(void *user, enum shed_log_level level, const char *text);
    void *log_user;
    struct shed_post summary_post;

    struct shed_mutex mu;
    /* under mu */
    struct shed_limit limit[SHED_EVENT_KINDS][CLASSES];
    /* the outcome of the last that was left out */
    enum shed_code left_out[SHED_EVENT_KINDS][CLASSES];
    uint64_t left_out_total; /* how many have been */
    struct shed_log_lines lines;
    bool is_summary_due; /* posted, or its timer runs */

    /* reactor thread only */
    struct shed_timer *timer;
};

/* What is to be told of an event, and to whom. */
struct telling {
    const struct shed_event *event;
    size_t keys;
    bool is_event, is_line;
    struct shed_event_line line;
};

/* An event that has been posted, and the bytes that it points to. */
struct told {
    struct shed_post post;
    struct shed_events *events;
    struct shed_event event;
    bool is_event;
    enum shed_log_level level;
    const char *line; /* NULL: none */
    char bytes[];
};

/* ---------------------------------------------------------------- the hooks */

static void call_log(const struct shed_events *es, enum shed_log_level level,
                     const char *text)
{
    assert(shed_reactor_is_current(es->reactor));
    es->on_log(es->log_user, level, text);
}

static void call_event(const struct shed_events *es, const struct shed_event *e)
{
    assert(shed_reactor_is_current(es->reactor));
    es->on_event(es->event_user, e);
}

/* ------------------------------------------------------- what was left out */

static void tell_left_out(const struct shed_events *es, size_t kind,
                          enum shed_code outcome, uint64_t count)
{
    char reason[SHED_REASON_BYTES];
    struct shed_event e = {.size = sizeof(e),
                           .kind = SHED_EVENT_SUPPRESSED,
                           .outcome = outcome,
                           .reason = reason,
                           .count = count,
                           .about = kind};

    (void)snprintf(reason, sizeof(reason), "%llu times \"%s\"",
                   (unsigned long long)count,
                   shed_event_kind_name((enum shed_event_kind)kind));
    call_event(es, &e);
}

static void tell_events_left_out(struct shed_events *es)
{
    for (size_t i = 0; i < (size_t)SHED_EVENT_KINDS * CLASSES; i++) {
        size_t kind = i / CLASSES, class = i % CLASSES;
        enum shed_code outcome;
        uint64_t count;
        shed_mutex_lock(&es->mu);
        count = shed_limit_take(&es->limit[kind][class]);
        outcome = es->left_out[kind][class];
        shed_mutex_unlock(&es->mu);
        if (count > 0)
            tell_left_out(es, kind, outcome, count);
    }
}

static void tell_lines_left_out(struct shed_events *es, bool is_last)
{
    struct shed_log_told told;
    bool has_told;

    do {
        shed_mutex_lock(&es->mu);
        has_told =
            shed_log_lines_take(&es->lines, shed_now_ms(), is_last, &told);
        shed_mutex_unlock(&es->mu);
        if (has_told)
            call_log(es, told.level, told.text);
    } while (has_told);
}

/* Make sure that what is left out is reported; with mu held. Returns: whether
 * the caller has to start the timer. */
static bool begin_summary_locked(struct shed_events *es)
{
    bool is_first = !es->is_summary_due;

    es->is_summary_due = true;
    return is_first;
}

/* The interval of a line is longer than that of events, so it goes on. */
static void on_timer(void *arg)
{
    struct shed_events *es = arg;
    bool goes_on;

    shed_mutex_lock(&es->mu);
    es->is_summary_due = false;
    shed_mutex_unlock(&es->mu);
    tell_events_left_out(es);
    tell_lines_left_out(es, false);
    shed_mutex_lock(&es->mu);
    goes_on =
        shed_log_lines_are_waiting(&es->lines) && begin_summary_locked(es);
    shed_mutex_unlock(&es->mu);
    if (goes_on)
        shed_timer_set(es->timer, SUMMARY_MS);
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
    return shed_event_is_trouble(e->kind, e->outcome) ? CLASS_TROUBLE
                                                      : CLASS_OK;
}

/* Returns: whether on_event is told of it; if not, it is counted. */
static bool pass_event_locked(struct shed_events *es, const struct telling *t,
                              bool is_lost, uint64_t now_ms)
{
    enum class class = class_of(t->event, t->keys);
    struct shed_limit *limit = &es->limit[t->event->kind][class];

    if (is_lost)
        shed_limit_suppress(limit);
    else if (shed_limit_pass(limit, SHED_EVENTS_PER_SECOND, SECOND_MS, now_ms))
        return true;
    es->left_out[t->event->kind][class] = t->event->outcome;
    es->left_out_total++;
    return false;
}

/* The same for on_log. */
static bool pass_line_locked(struct shed_events *es, const struct telling *t,
                             bool is_lost, uint64_t now_ms)
{
    if (!is_lost)
        return shed_log_lines_pass(&es->lines, &t->line.line, now_ms);
    shed_log_lines_suppress(&es->lines, &t->line.line);
    return false;
}

/* Decide which of the two hooks are told. is_lost: it has passed, but there was
 * no memory for it. */
static void pass(struct shed_events *es, struct telling *t, bool is_lost)
{
    bool was_event = t->is_event, was_line = t->is_line, is_first;
    uint64_t now_ms;

    shed_mutex_lock(&es->mu);
    now_ms = shed_now_ms(); /* here, so that it never goes back */
    t->is_event = was_event && pass_event_locked(es, t, is_lost, now_ms);
    t->is_line = was_line && pass_line_locked(es, t, is_lost, now_ms);
    is_first = (was_event != t->is_event || was_line != t->is_line) &&
               begin_summary_locked(es);
    shed_mutex_unlock(&es->mu);
    if (is_first)
        shed_reactor_post(es->reactor, &es->summary_post);
}

static void call_posted(struct shed_post *post)
{
    struct told *t = shed_container_of(post, struct told, post);

    if (t->is_event)
        call_event(t->events, &t->event);
    if (t->line != NULL)
        call_log(t->events, t->level, t->line);
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

/* Copy text and its end to *at and advance it. Returns: the copy. */
static const char *keep_text(char **at, const char *text)
{
    return keep(at, shed_bytes(text, strlen(text) + 1)).data;
}

static struct told *copy(struct shed_events *es, const struct telling *telling)
{
    const struct shed_event *e = telling->event;
    const char *reason = e->reason != NULL ? e->reason : "";
    const char *line = telling->is_line ? telling->line.text : "";
    struct told *t = malloc(sizeof(*t) + e->name.size + e->key.size +
                            strlen(reason) + strlen(line) + 2);
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
    t->event.reason = keep_text(&at, reason);
    t->event.count = 1;
    t->event.about = e->kind;
    t->is_event = telling->is_event;
    t->line = NULL;
    if (telling->is_line) {
        t->level = telling->line.line.level;
        t->line = keep_text(&at, line);
    }
    return t;
}

void shed_events_tell_of(struct shed_events *es, const struct shed_event *e,
                         size_t keys)
{
    struct telling telling;
    struct told *t;

    assert((size_t)e->kind < SHED_EVENT_KINDS &&
           e->kind != SHED_EVENT_SUPPRESSED);
    telling.event = e;
    telling.keys = keys;
    telling.is_event = es->on_event != NULL;
    telling.is_line = es->on_log != NULL && keys > 0 &&
                      shed_event_line_write(e, keys, &telling.line);
    if (!telling.is_event && !telling.is_line)
        return;
    pass(es, &telling, false);
    if (!telling.is_event && !telling.is_line)
        return;
    t = copy(es, &telling);
    if (t != NULL)
        shed_reactor_post(es->reactor, &t->post);
    else
        pass(es, &telling, true);
}

void shed_events_tell(struct shed_events *es, const struct shed_event *e)
{
    shed_events_tell_of(es, e, 1);
}

uint64_t shed_events_left_out(struct shed_events *es)
{
    uint64_t total;

    shed_mutex_lock(&es->mu);
    total = es->left_out_total;
    shed_mutex_unlock(&es->mu);
    return total;
}

/* ----------------------------------------------------------- begin and end */

enum shed_code shed_events_create(struct shed_reactor *reactor,
                                  const struct shed_client_options *options,
                                  struct shed_events **out,
                                  struct shed_error *err)
{
    struct shed_events *es = calloc(1, sizeof(*es));

    *out = NULL;
    if (es == NULL || shed_mutex_init(&es->mu, SHED_RANK_EVENTS) != 0) {
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
    tell_events_left_out(es);
    tell_lines_left_out(es, true);
    shed_timer_destroy(es->timer);
    es->timer = NULL;
}

void shed_events_destroy(struct shed_events *es)
{
    if (es == NULL)
        return;
    shed_mutex_destroy(&es->mu);
    free(es);
}
