/*
 * Counters, histograms and their text. Its one invariant: a histogram's count
 * is the sum of its buckets, whatever is added while it is read.
 *
 * The text is Prometheus' exposition format 0.0.4. Numbers are written with
 * integers alone: a locale changes the decimal point of a %f.
 */
#include "stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define US_PER_S ((uint64_t)1000000)

/* Longest label value: every byte of a name may need its backslash. */
#define LABEL_BYTES (2 * SHED_NAME_MAX_BYTES + 1)

/* The smallest i with value <= 2^i, as far as there are buckets. */
static size_t bucket_of(uint64_t value)
{
    size_t i = 0;

    while (i < SHED_BUCKETS - 1 && value > (uint64_t)1 << i)
        i++;
    return i;
}

void shed_histogram_add(struct shed_histogram_atomic *h, uint64_t value)
{
    shed_count(&h->bucket[bucket_of(value)], 1);
    shed_count(&h->sum, value);
}

void shed_count_code(struct shed_counters *counters, enum shed_code code)
{
    switch (code) {
    case SHED_OK:
        return;
    case SHED_ETIMEDOUT:
        shed_count(&counters->errors_timeout, 1);
        return;
    case SHED_EBUSY:
        shed_count(&counters->errors_busy, 1);
        return;
    case SHED_EREDIS:
        shed_count(&counters->errors_redis, 1);
        return;
    case SHED_ESOURCE:
        shed_count(&counters->errors_source, 1);
        return;
    case SHED_EINVAL:
    case SHED_ENOMEM:
    case SHED_ETOOBIG:
    case SHED_EDENIED:
    case SHED_ECLOSED:
    case SHED_EFORKED:
    case SHED_ELOST:
        break;
    }
    shed_count(&counters->errors_other, 1);
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void read_histogram(const struct shed_histogram_atomic *h,
                           struct shed_histogram *out)
{
    out->count = 0;
    for (size_t i = 0; i < SHED_BUCKETS; i++) {
        out->bucket[i] = load(&h->bucket[i]);
        out->count += out->bucket[i];
    }
    out->sum = load(&h->sum);
}

void shed_counters_read(const struct shed_counters *counters,
                        struct shed_stats *out)
{
#define READ_FIELD(field, help) out->field = load(&counters->field);
    SHED_COUNTERS(READ_FIELD)
#undef READ_FIELD
    read_histogram(&counters->hit_us, &out->hit_us);
    read_histogram(&counters->miss_us, &out->miss_us);
    read_histogram(&counters->load_us, &out->load_us);
    read_histogram(&counters->batch_keys, &out->batch_keys);
}

/* A text that is cut at capacity and counts on. */
struct text {
    char *buffer;
    size_t capacity;
    size_t length; /* of the whole */
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

/* A label's value as the format wants it: '\' and '"' behind a backslash. */
static void escape(const char *name, char *out)
{
    char *end = out + LABEL_BYTES - 2;

    for (; *name != '\0' && out < end; name++) {
        if (*name == '\\' || *name == '"')
            *out++ = '\\';
        *out++ = *name;
    }
    *out = '\0';
}

static void append_counter(struct text *text, const char *label,
                           const char *field, const char *help, uint64_t value)
{
    append(text,
           "# HELP snowshed_%s_total %s\n"
           "# TYPE snowshed_%s_total counter\n"
           "snowshed_%s_total{cache=\"%s\"} %" PRIu64 "\n",
           field, help, field, field, label, value);
}

/* A histogram of times is told in seconds, Prometheus' unit for them. */
struct unit {
    const char *name;
    uint64_t per_unit; /* what is counted, per unit */
};

static const struct unit seconds = {"seconds", US_PER_S};
static const struct unit keys = {"keys", 1};

static void append_number(struct text *text, struct unit unit, uint64_t value)
{
    append(text, "%" PRIu64, value / unit.per_unit);
    if (unit.per_unit == US_PER_S)
        append(text, ".%06" PRIu64, value % US_PER_S);
}

static void append_buckets(struct text *text, const char *label,
                           const char *field, struct unit unit,
                           const struct shed_histogram *h)
{
    uint64_t below = 0;

    for (size_t i = 0; i < SHED_BUCKETS; i++) {
        below += h->bucket[i];
        append(text, "snowshed_%s_%s_bucket{cache=\"%s\",le=\"", field,
               unit.name, label);
        if (i < SHED_BUCKETS - 1)
            append_number(text, unit, (uint64_t)1 << i);
        else
            append(text, "+Inf");
        append(text, "\"} %" PRIu64 "\n", below);
    }
}

static void append_histogram(struct text *text, const char *label,
                             const char *field, const char *help,
                             struct unit unit, const struct shed_histogram *h)
{
    append(text,
           "# HELP snowshed_%s_%s %s\n"
           "# TYPE snowshed_%s_%s histogram\n",
           field, unit.name, help, field, unit.name);
    append_buckets(text, label, field, unit, h);
    append(text, "snowshed_%s_%s_sum{cache=\"%s\"} ", field, unit.name, label);
    append_number(text, unit, h->sum);
    append(text, "\nsnowshed_%s_%s_count{cache=\"%s\"} %" PRIu64 "\n", field,
           unit.name, label, h->count);
}

size_t shed_stats_text(const struct shed_stats *stats, const char *cache,
                       char *buffer, size_t capacity)
{
    struct text text = {buffer, capacity, 0};
    char label[LABEL_BYTES];

    if (capacity > 0)
        buffer[0] = '\0';
    escape(cache, label);
#define APPEND_FIELD(field, help)                                              \
    append_counter(&text, label, #field, help, stats->field);
    SHED_COUNTERS(APPEND_FIELD)
#undef APPEND_FIELD
    append_histogram(&text, label, "hit", "gets answered from Redis at once",
                     seconds, &stats->hit_us);
    append_histogram(&text, label, "miss", "gets that took the slow path",
                     seconds, &stats->miss_us);
    append_histogram(&text, label, "load", "calls of the source", seconds,
                     &stats->load_us);
    append_histogram(&text, label, "batch", "keys per call of the source", keys,
                     &stats->batch_keys);
    return text.length;
}
