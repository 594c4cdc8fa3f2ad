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
    bool is_summary_due;     /* posted, or its timer runs */

    /* reactor thread only */
    struct shed_event_log log;
    struct shed_timer *timer; /* NULL: it is closed */
};

/* An event that has been posted, and the bytes that it points to. */
struct told {
    struct shed_post post;
    struct shed_events *events;
    struct shed_event event;
    size_t keys; /* see shed_events_tell_of */
    char bytes[];
};

/* ------------------------------------------------------------- the lines */

/* Make sure that what is left out is reported; with mu held. Any thread. */
static void begin_summary_locked(struct shed_events *es)
{
    if (!es->is_summary_due)
        shed_reactor_post(es->reactor, &es->summary_post);
    es->is_summary_due = true;
}

/* Tell the numbers whose interval is over, or all if this is the end. */
static void tell_numbers(struct shed_events *es)
{
    bool is_last = es->timer == NULL;
    struct shed_log_line line;

    while (shed_event_log_take(&es->log, shed_now_ms(), is_last, &line))
        es->on_log(es->log_user, line.level, line.text);
    if (!shed_event_log_is_waiting(&es->log))
        return;
    shed_mutex_lock(&es->mu);
    begin_summary_locked(es);
    shed_mutex_unlock(&es->mu);
}

/* Tell the line of an event, or hold it back; or add others that were left out,
 * of which no more is known than their number. */
static void tell_line(struct shed_events *es, const struct shed_event *e,
                      size_t keys, uint64_t left_out)
{
    struct shed_log_line line;

    if (es->on_log == NULL || keys == 0)
        return;
    if (left_out > 0)
        shed_event_log_count(&es->log, e, left_out);
    else if (shed_event_log_add(&es->log, e, keys, shed_now_ms(), &line))
        es->on_log(es->log_user, line.level, line.text);
    tell_numbers(es);
}

/* ------------------------------------------------------- what was left out */

static void tell_left_out(struct shed_events *es, size_t kind, enum class class,
                          enum shed_code outcome, uint64_t count)
{
    char reason[SHED_REASON_BYTES];
    const struct shed_event one = {.kind = (enum shed_event_kind)kind,
                                   .outcome = outcome};
    const struct shed_event e = {.size = sizeof(e),
                                 .kind = SHED_EVENT_SUPPRESSED,
                                 .outcome = outcome,
                                 .reason = reason,
                                 .count = count,
                                 .about = kind};

    (void)snprintf(reason, sizeof(reason), "%llu times \"%s\"",
                   (unsigned long long)count, shed_event_kind_name(one.kind));
    if (es->on_event != NULL)
        es->on_event(es->event_user, &e);
    tell_line(es, &one, class != CLASS_SPOKEN_FOR, count);
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
            tell_left_out(es, kind, (enum class) class, outcome, count);
    }
}

/* The interval of a line is longer than that of events, so it goes on. */
static void on_timer(void *arg)
{
    struct shed_events *es = arg;

    shed_mutex_lock(&es->mu);
    es->is_summary_due = false;
    shed_mutex_unlock(&es->mu);
    tell_events_left_out(es);
    tell_numbers(es);
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

/* Returns: whether it is told; if not, it is counted. is_lost: it has passed,
 * but there was no memory for it. */
static bool pass(struct shed_events *es, const struct shed_event *e,
                 size_t keys, bool is_lost)
{
    enum class class = class_of(e, keys);
    struct shed_limit *limit = &es->limit[e->kind][class];
    bool has_passed = false;

    shed_mutex_lock(&es->mu);
    if (is_lost)
        limit->suppressed++;
    else /* the clock is read here, so that it never goes back */
        has_passed = shed_limit_pass(limit, SHED_EVENTS_PER_SECOND, SECOND_MS,
                                     shed_now_ms());
    if (!has_passed) {
        es->left_out[e->kind][class] = e->outcome;
        es->left_out_total += es->on_event != NULL;
        begin_summary_locked(es);
    }
    shed_mutex_unlock(&es->mu);
    return has_passed;
}

static void call_posted(struct shed_post *post)
{
    struct told *t = shed_container_of(post, struct told, post);

    if (t->events->on_event != NULL)
        t->events->on_event(t->events->event_user, &t->event);
    tell_line(t->events, &t->event, t->keys, 0);
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

static struct told *copy(struct shed_events *es, const struct shed_event *e,
                         size_t keys)
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
    t->keys = keys;
    return t;
}

void shed_events_tell_of(struct shed_events *es, const struct shed_event *e,
                         size_t keys)
{
    bool has_line = es->on_log != NULL && keys > 0 && shed_event_has_line(e);
    struct told *t;

    assert((size_t)e->kind < SHED_EVENT_KINDS &&
           e->kind != SHED_EVENT_SUPPRESSED);
    if ((es->on_event == NULL && !has_line) || !pass(es, e, keys, false))
        return;
    t = copy(es, e, keys);
    if (t != NULL)
        shed_reactor_post(es->reactor, &t->post);
    else
        (void)pass(es, e, keys, true);
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
    shed_timer_destroy(es->timer);
    es->timer = NULL;
    tell_numbers(es);
}

void shed_events_destroy(struct shed_events *es)
{
    if (es == NULL)
        return;
    shed_mutex_destroy(&es->mu);
    free(es);
}
