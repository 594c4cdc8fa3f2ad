/*
 * The text for Prometheus, in its exposition format 0.0.4. Its one invariant:
 * the lines of a metric are together, after one HELP and TYPE.
 *
 * Numbers are written with integer conversions only, because a locale changes
 * the decimal point of %f.
 */
#include "stats/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/stats.h"

#define US_PER_S ((uint64_t)1000000)

/* ---------------------------------------------------------------- metrics */

/* Histograms of times are written in seconds, Prometheus' unit for them. */
struct unit {
    const char *name;
    uint64_t per_unit; /* how many of what is counted make one unit */
};

#define SECONDS                                                                \
    {                                                                          \
        "seconds", US_PER_S                                                    \
    }
#define KEYS                                                                   \
    {                                                                          \
        "keys", 1                                                              \
    }

struct metric {
    const char *name, *help;
    size_t offset;    /* in the counters; for a gauge, in the subject */
    struct unit unit; /* for a histogram */
};

/* The metrics of one kind of subject. */
struct kind {
    const char *prefix, *label;
    const struct metric *counters;
    size_t counter_count;
    const struct metric *histograms;
    size_t histogram_count;
    const struct metric *gauges;
    size_t gauge_count;
};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static const struct metric cache_counters[] = {
#define METRIC(field, help)                                                    \
    {#field, help, offsetof(struct shed_counters, field), {NULL, 0}},
    SHED_COUNTERS(METRIC)
#undef METRIC
};

static const struct metric cache_histograms[] = {
    {"hit", "gets answered from Redis at once",
     offsetof(struct shed_counters, hit_us), SECONDS},
    {"miss", "gets that took the slow path",
     offsetof(struct shed_counters, miss_us), SECONDS},
    {"load", "calls of the source", offsetof(struct shed_counters, load_us),
     SECONDS},
    {"batch", "keys per call of the source",
     offsetof(struct shed_counters, batch_keys), KEYS},
    {"fleet_wait", "loads that waited, because fleet_loads was reached",
     offsetof(struct shed_counters, fleet_wait_us), SECONDS},
};

#define GAUGES(X)                                                              \
    X(redis_up, "whether the client is connected to Redis")                    \
    X(source_loads, "loads that the cache's source is running now")            \
    X(source_loads_limit, "loads that it may run at once")                     \
    X(source_queue_keys, "keys that wait for a load")                          \
    X(source_queue_limit_keys, "keys that may wait; more are refused")         \
    X(source_breaker, "0: closed, 1: half-open, 2: open")                      \
    X(source_callers, "callers that wait in its caches")                       \
    X(source_callers_limit, "callers that may wait; 0: no bound")              \
    X(undelivered, "keys of which Redis is still to be told")                  \
    X(redis_breaker, "0: closed, 1: half-open, 2: open")                       \
    X(fleet_loads,                                                             \
      "loads of all processes that share its budget, when last seen")          \
    X(fleet_loads_limit, "loads that they may run at once; 0: no such budget") \
    X(local_rows, "local rows, for a time without Redis")                      \
    X(local_bytes, "memory in use for these rows")

static const struct metric cache_gauges[] = {
#define METRIC(name, help)                                                     \
    {#name, help, offsetof(struct shed_subject, name), {NULL, 0}},
    GAUGES(METRIC)
#undef METRIC
};

static const struct kind cache_kind = {
    "snowshed_",      "cache",
    cache_counters,   LENGTH(cache_counters),
    cache_histograms, LENGTH(cache_histograms),
    cache_gauges,     LENGTH(cache_gauges)};

static const struct metric lock_counters[] = {
#define METRIC(field, help)                                                    \
    {#field, help, offsetof(struct shed_lock_counters, field), {NULL, 0}},
    SHED_LOCK_COUNTERS(METRIC)
#undef METRIC
};

static const struct metric lock_histograms[] = {
    {"wait", "from the call of an acquire to its hold",
     offsetof(struct shed_lock_counters, wait_us), SECONDS},
    {"hold", "from a hold to its release or loss",
     offsetof(struct shed_lock_counters, hold_us), SECONDS},
};

static const struct kind lock_kind = {"snowshed_lock_",
                                      "lock",
                                      lock_counters,
                                      LENGTH(lock_counters),
                                      lock_histograms,
                                      LENGTH(lock_histograms),
                                      NULL,
                                      0};

/* ------------------------------------------------------------------- text */

/* The text that is being written. Beyond its capacity it is cut, but the length
 * is still counted. */
struct text {
    const struct kind *kind;
    const struct shed_subjects *subjects;
    char *buffer;
    size_t capacity;
    size_t length; /* of the whole text, even if it was cut */
};

static struct shed_subject subject_of(const struct text *text, size_t i)
{
    return text->subjects->subject(text->subjects->list, i);
}

__attribute__((format(printf, 2, 3))) static void
append(struct text *text, const char *format, ...)
{
    size_t left =
        text->length < text->capacity ? text->capacity - text->length : 0;
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(left > 0 ? text->buffer + text->length : NULL, left,
                     format, args);
    va_end(args);
    if (size > 0)
        text->length += (size_t)size;
}

/* Append a label and its value, in which the format wants a backslash before
 * '\' and '"'. */
static void append_label(struct text *text, const struct shed_subject *s)
{
    const unsigned char *name = s->name;

    append(text, "%s=\"", text->kind->label);
    for (size_t i = 0; i < s->name_size; i++)
        if (name[i] < ' ' || name[i] > '~')
            append(text, "\\\\x%02x", name[i]);
        else
            append(text, name[i] == '\\' || name[i] == '"' ? "\\%c" : "%c",
                   name[i]);
    append(text, "\"");
}

static void append_counter(struct text *text, const struct metric *m)
{
    const char *prefix = text->kind->prefix;

    append(text, "# HELP %s%s_total %s\n# TYPE %s%s_total counter\n", prefix,
           m->name, m->help, prefix, m->name);
    for (size_t i = 0; i < text->subjects->count; i++) {
        struct shed_subject s = subject_of(text, i);
        append(text, "%s%s_total{", prefix, m->name);
        append_label(text, &s);
        append(text, "} %" PRIu64 "\n",
               shed_count_read((
                   const _Atomic uint64_t
                       *)(const void *)((const char *)s.counters + m->offset)));
    }
}

static void append_gauge(struct text *text, const struct metric *m)
{
    const char *prefix = text->kind->prefix;

    append(text, "# HELP %s%s %s\n# TYPE %s%s gauge\n", prefix, m->name,
           m->help, prefix, m->name);
    for (size_t i = 0; i < text->subjects->count; i++) {
        struct shed_subject s = subject_of(text, i);
        append(text, "%s%s{", prefix, m->name);
        append_label(text, &s);
        append(text, "} %" PRIu64 "\n",
               *(const uint64_t *)(const void *)((const char *)&s + m->offset));
    }
}

static void append_number(struct text *text, struct unit unit, uint64_t value)
{
    append(text, "%" PRIu64, value / unit.per_unit);
    if (unit.per_unit == US_PER_S)
        append(text, ".%06" PRIu64, value % US_PER_S);
}

/* Append the beginning of a line: the name of a metric's part, and its labels
 * without the closing brace. */
static void append_part(struct text *text, const struct metric *m,
                        const char *part, const struct shed_subject *s)
{
    append(text, "%s%s_%s_%s{", text->kind->prefix, m->name, m->unit.name,
           part);
    append_label(text, s);
}

static void append_buckets(struct text *text, const struct metric *m,
                           const struct shed_subject *s,
                           const struct shed_histogram *h)
{
    uint64_t below = 0;

    for (size_t i = 0; i < SHED_BUCKETS; i++) {
        below += h->bucket[i];
        append_part(text, m, "bucket", s);
        append(text, ",le=\"");
        if (i < SHED_BUCKETS - 1)
            append_number(text, m->unit, (uint64_t)1 << i);
        else
            append(text, "+Inf");
        append(text, "\"} %" PRIu64 "\n", below);
    }
}

static void append_histogram(struct text *text, const struct metric *m)
{
    const char *prefix = text->kind->prefix;

    append(text, "# HELP %s%s_%s %s\n# TYPE %s%s_%s histogram\n", prefix,
           m->name, m->unit.name, m->help, prefix, m->name, m->unit.name);
    for (size_t i = 0; i < text->subjects->count; i++) {
        struct shed_subject s = subject_of(text, i);
        struct shed_histogram h;
        shed_histogram_read(
            (const struct shed_histogram_atomic
                 *)(const void *)((const char *)s.counters + m->offset),
            &h);
        append_buckets(text, m, &s, &h);
        append_part(text, m, "sum", &s);
        append(text, "} ");
        append_number(text, m->unit, h.sum);
        append(text, "\n");
        append_part(text, m, "count", &s);
        append(text, "} %" PRIu64 "\n", h.count);
    }
}

static void append_kind(struct text *text, const struct kind *kind,
                        const struct shed_subjects *subjects)
{
    text->kind = kind;
    text->subjects = subjects;
    if (subjects->count == 0)
        return;
    for (size_t i = 0; i < kind->counter_count; i++)
        append_counter(text, &kind->counters[i]);
    for (size_t i = 0; i < kind->histogram_count; i++)
        append_histogram(text, &kind->histograms[i]);
    for (size_t i = 0; i < kind->gauge_count; i++)
        append_gauge(text, &kind->gauges[i]);
}

size_t shed_stats_text(const struct shed_subjects *caches,
                       const struct shed_subjects *locks, char *buffer,
                       size_t capacity)
{
    struct text text = {.buffer = buffer, .capacity = capacity};

    if (capacity > 0)
        buffer[0] = '\0';
    append_kind(&text, &cache_kind, caches);
    append_kind(&text, &lock_kind, locks);
    return text.length;
}
