/*
 * Events. The invariant: each event is reported, or counted in a later one that
 * says how many were left out; and no hook is called with a lock held, or after
 * close.
 *
 * An event is copied and posted, so that hooks run on one thread only, and
 * never in the middle of a machine's step or a caller's operation. The work is
 * bounded: only what the limits let pass is copied. on_log is told of what
 * on_event would be, within a limit of its own, because a program counts, and a
 * person reads.
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
#include "client/event_log.h"

/* How long after the first event that was left out their number is reported. */
#define SUMMARY_MS 1000
#define SECOND_MS 1000

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
    struct limited {
        struct shed_limit limit;
        enum shed_code outcome;     /* of the last that was left out */
    } limited[SHED_EVENT_KINDS][2]; /* successes and troubles */
    uint64_t left_out_total;
    struct shed_event_log log;
    bool is_summary_due; /* posted, or its timer runs */

    /* reactor thread only */
    struct shed_timer *timer; /* NULL: it is closed */
};

/* An event that has been posted, its line, and the bytes that it points to. */
struct told {
    struct shed_post post;
    struct shed_events *events;
    struct shed_event event;
    struct shed_log_line line;
    bool has_line; /* and it is told now */
    char bytes[];
};

/* ------------------------------------------------------- what was left out */

/* Make sure that what is left out is reported; with mu held. Any thread. */
static void begin_summary_locked(struct shed_events *es)
{
    if (!es->is_summary_due)
        shed_reactor_post(es->reactor, &es->summary_post);
    es->is_summary_due = true;
}

static void tell_left_out(struct shed_events *es, size_t kind,
                          enum shed_code outcome, uint64_t count)
{
    char reason[SHED_REASON_BYTES];
    const struct shed_event e = {.size = sizeof(e),
                                 .kind = SHED_EVENT_SUPPRESSED,
                                 .outcome = outcome,
                                 .reason = reason,
                                 .count = count,
                                 .about = kind};

    (void)snprintf(reason, sizeof(reason), "%llu times \"%s\"",
                   (unsigned long long)count,
                   shed_event_kind_name((enum shed_event_kind)kind));
    es->on_event(es->event_user, &e);
}

static void tell_events_left_out(struct shed_events *es)
{
    for (size_t i = 0; i < 2 * (size_t)SHED_EVENT_KINDS; i++) {
        struct limited *limited = &es->limited[i / 2][i % 2];
        enum shed_code outcome;
        uint64_t count;
        shed_mutex_lock(&es->mu);
        count = shed_limit_take(&limited->limit);
        outcome = limited->outcome;
        shed_mutex_unlock(&es->mu);
        if (count > 0 && es->on_event != NULL)
            tell_left_out(es, i / 2, outcome, count);
    }
}

/* Tell the numbers of lines whose interval is over, or all if this is the end.
 * That interval is longer than that of events, so the timer goes on. */
static void tell_lines_left_out(struct shed_events *es)
{
    bool is_last = es->timer == NULL, has_number;
    struct shed_log_line line;

    do {
        shed_mutex_lock(&es->mu);
        has_number =
            shed_event_log_take(&es->log, shed_now_ms(), is_last, &line);
        if (!has_number && shed_event_log_is_waiting(&es->log))
            begin_summary_locked(es);
        shed_mutex_unlock(&es->mu);
        if (has_number)
            es->on_log(es->log_user, line.level, line.text);
    } while (has_number);
}

static void on_timer(void *arg)
{
    struct shed_events *es = arg;

    shed_mutex_lock(&es->mu);
    es->is_summary_due = false;
    shed_mutex_unlock(&es->mu);
    tell_events_left_out(es);
    tell_lines_left_out(es);
}

static void set_summary_timer(struct shed_post *post)
{
    struct shed_events *es =
        shed_container_of(post, struct shed_events, summary_post);

    if (es->timer != NULL) /* not closed meanwhile */
        shed_timer_set(es->timer, SUMMARY_MS);
}

/* -------------------------------------------------------------- the events */

static void call_posted(struct shed_post *post)
{
    struct told *t = shed_container_of(post, struct told, post);
    const struct shed_events *es = t->events;

    if (es->on_event != NULL)
        es->on_event(es->event_user, &t->event);
    if (t->has_line)
        es->on_log(es->log_user, t->line.level, t->line.text);
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
    const char *reason = e->reason != NULL ? e->reason : "";
    size_t reason_size = strlen(reason) + 1;
    struct told *t =
        malloc(sizeof(*t) + e->name.size + e->key.size + reason_size);
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
    t->event.reason = keep(&at, shed_bytes(reason, reason_size)).data;
    t->event.count = 1;
    t->event.about = e->kind;
    t->has_line = false;
    return t;
}

/* Returns: what is to be told; NULL: the event is only counted, because there
 * are too many, or memory is short. */
static struct told *pass_locked(struct shed_events *es,
                                const struct shed_event *e, uint64_t now_ms)
{
    struct limited *limited =
        &es->limited[e->kind][shed_event_is_trouble(e->kind, e->outcome)];
    bool has_passed = shed_limit_pass(&limited->limit, SHED_EVENTS_PER_SECOND,
                                      SECOND_MS, now_ms);
    struct told *t = has_passed ? copy(es, e) : NULL;

    if (t == NULL) {
        limited->limit.suppressed += has_passed;
        limited->outcome = e->outcome;
        es->left_out_total += es->on_event != NULL;
    }
    return t;
}

void shed_events_tell_of(struct shed_events *es, const struct shed_event *e,
                         size_t keys)
{
    bool has_line = es->on_log != NULL && keys > 0 && shed_event_has_line(e);
    struct told *t;
    uint64_t now_ms;

    assert((size_t)e->kind < SHED_EVENT_KINDS &&
           e->kind != SHED_EVENT_SUPPRESSED);
    if (es->on_event == NULL && !has_line)
        return;
    shed_mutex_lock(&es->mu);
    now_ms = shed_now_ms(); /* here, so that it never goes back */
    t = pass_locked(es, e, now_ms);
    if (has_line && shed_event_log_add(&es->log, e, keys, now_ms,
                                       t != NULL ? &t->line : NULL))
        t->has_line = true;
    if (t == NULL || t->has_line != has_line)
        begin_summary_locked(es);
    if (t != NULL)
        shed_reactor_post(es->reactor, &t->post);
    shed_mutex_unlock(&es->mu);
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
    shed_timer_destroy(es->timer);
    es->timer = NULL;
    tell_events_left_out(es);
    tell_lines_left_out(es);
}

void shed_events_destroy(struct shed_events *es)
{
    if (es == NULL)
        return;
    shed_mutex_destroy(&es->mu);
    free(es);
}
