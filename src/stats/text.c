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

enum type { COUNTER, GAUGE, HISTOGRAM };

struct metric {
    const char *name, *help;
    enum type type;
    size_t offset; /* in the counters; of a gauge, in the subject */
    /* of a histogram: its unit, and how many of what is counted make one */
    const char *unit;
    uint64_t per_unit;
};

/* The metrics of one kind of subject. */
struct kind {
    const char *prefix, *label;
    const struct metric *metrics;
    size_t count;
};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Times are written in seconds, Prometheus' unit for them. */
#define SECONDS "seconds", US_PER_S
#define KEYS "keys", 1

#define CACHE_HISTOGRAMS(X)                                                    \
    X(hit, hit_us, SECONDS, "gets answered from Redis at once")                \
    X(miss, miss_us, SECONDS, "gets that took the slow path")                  \
    X(load, load_us, SECONDS, "calls of the source")                           \
    X(batch, batch_keys, KEYS, "keys per call of the source")                  \
    X(fleet_wait, fleet_wait_us, SECONDS,                                      \
      "loads that waited, because fleet_loads was reached")

#define LOCK_HISTOGRAMS(X)                                                     \
    X(wait, wait_us, SECONDS, "from the call of an acquire to its hold")       \
    X(hold, hold_us, SECONDS, "from a hold to its release or loss")

#define COUNTER_ROW(field, help) {#field, help, COUNTER, AT(field), NULL, 0},
#define HISTOGRAM_ROW(name, field, unit, help)                                 \
    {#name, help, HISTOGRAM, AT(field), unit},
#define GAUGE_ROW(name, help)                                                  \
    {#name, help, GAUGE, offsetof(struct shed_subject, name), NULL, 0},

static const struct metric cache_metrics[] = {
#define AT(field) offsetof(struct shed_counters, field)
    SHED_COUNTERS(COUNTER_ROW) CACHE_HISTOGRAMS(HISTOGRAM_ROW)
        SHED_GAUGES(GAUGE_ROW)
#undef AT
};

static const struct metric lock_metrics[] = {
#define AT(field) offsetof(struct shed_lock_counters, field)
    SHED_LOCK_COUNTERS(COUNTER_ROW) LOCK_HISTOGRAMS(HISTOGRAM_ROW)
#undef AT
};

static const struct kind cache_kind = {"snowshed_", "cache", cache_metrics,
                                       LENGTH(cache_metrics)};
static const struct kind lock_kind = {"snowshed_lock_", "lock", lock_metrics,
                                      LENGTH(lock_metrics)};

/* ------------------------------------------------------------------- text */

/* The text that is being written. Beyond its capacity it is cut, but the length
 * is still counted. */
struct text {
    const struct kind *kind;
    char *buffer;
    size_t capacity;
    size_t length; /* of the whole text, even if it was cut */
};

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

static void append_name(struct text *text, const struct metric *m)
{
    append(text, "%s%s", text->kind->prefix, m->name);
    if (m->type == COUNTER)
        append(text, "_total");
    else if (m->type == HISTOGRAM)
        append(text, "_%s", m->unit);
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

/* Append the beginning of a line: the metric's whole name and, before the
 * closing brace, its labels. */
static void append_part(struct text *text, const struct metric *m,
                        const char *part, const struct shed_subject *s)
{
    append_name(text, m);
    append(text, "%s{", part);
    append_label(text, s);
}

static void append_number(struct text *text, const struct metric *m,
                          uint64_t value)
{
    append(text, "%" PRIu64, value / m->per_unit);
    if (m->per_unit == US_PER_S)
        append(text, ".%06" PRIu64, value % US_PER_S);
}

static void append_histogram(struct text *text, const struct metric *m,
                             const struct shed_subject *s, const void *counted)
{
    struct shed_histogram h;
    uint64_t below = 0;

    shed_counters_read(counted, 1, &h, sizeof(h));
    for (size_t i = 0; i < SHED_BUCKETS; i++) {
        below += h.bucket[i];
        append_part(text, m, "_bucket", s);
        append(text, ",le=\"");
        if (i < SHED_BUCKETS - 1)
            append_number(text, m, (uint64_t)1 << i);
        else
            append(text, "+Inf");
        append(text, "\"} %" PRIu64 "\n", below);
    }
    append_part(text, m, "_sum", s);
    append(text, "} ");
    append_number(text, m, h.sum);
    append(text, "\n");
    append_part(text, m, "_count", s);
    append(text, "} %" PRIu64 "\n", h.count);
}

static void append_metric(struct text *text, const struct metric *m,
                          const struct shed_subject *s)
{
    const void *counter = (const char *)s->counters + m->offset;
    const void *gauge = (const char *)s + m->offset;

    if (m->type == HISTOGRAM) {
        append_histogram(text, m, s, counter);
        return;
    }
    append_part(text, m, "", s);
    append(text, "} %" PRIu64 "\n",
           m->type == COUNTER ? shed_count_read(counter)
                              : *(const uint64_t *)gauge);
}

static void append_kind(struct text *text, const struct kind *kind,
                        const struct shed_subjects *subjects)
{
    static const char *const types[] = {
        [COUNTER] = "counter", [GAUGE] = "gauge", [HISTOGRAM] = "histogram"};

    text->kind = kind;
    for (size_t i = 0; i < kind->count && subjects->count > 0; i++) {
        const struct metric *m = &kind->metrics[i];
        append(text, "# HELP ");
        append_name(text, m);
        append(text, " %s\n# TYPE ", m->help);
        append_name(text, m);
        append(text, " %s\n", types[m->type]);
        for (size_t j = 0; j < subjects->count; j++) {
            struct shed_subject s = subjects->subject(subjects->list, j);
            append_metric(text, m, &s);
        }
    }
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
