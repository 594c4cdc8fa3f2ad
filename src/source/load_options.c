/* The options of a source. Its one invariant: what is taken is in the ranges
 * that snowshed.h states. */
#include "source/load_options.h"

#include "base/error.h"
#include "entry/key.h"

/* The ranges that snowshed.h states. */
#define LOADS_MAX 1024
#define BATCH_MAX 10000
#define BATCH_WAIT_MAX_MS 1000
#define QUEUE_MAX 10000000
#define TIMEOUT_MAX_MS 3600000
#define PERCENT_MAX 100
#define MIN_LOADS_MAX 1000000
#define WINDOW_MIN_MS 100
#define WINDOW_MAX_MS 600000
#define PROBES_MAX 1000
#define FLEET_LOADS_MAX 100000

SHED_CHECK_OPTIONS(shed_source_options);

static enum shed_code check_options(const struct shed_source_options *o,
                                    struct shed_error *err)
{
    const struct shed_range ranges[] = {
        {o->max_loads, 1, LOADS_MAX, "source max_loads"},
        {o->max_batch, 1, BATCH_MAX, "source max_batch"},
        {o->batch_wait_ms, 0, BATCH_WAIT_MAX_MS, "source batch_wait_ms"},
        {o->queue_limit, 1, QUEUE_MAX, "source queue_limit"},
        {o->load_timeout_ms, 1, TIMEOUT_MAX_MS, "source load_timeout_ms"},
        {o->adaptive_loads, 0, 1, "source adaptive_loads"},
        {o->breaker_failure_pct, 0, PERCENT_MAX, "source breaker_failure_pct"},
        {o->breaker_min_loads, 1, MIN_LOADS_MAX, "source breaker_min_loads"},
        {o->breaker_window_ms, WINDOW_MIN_MS, WINDOW_MAX_MS,
         "source breaker_window_ms"},
        {o->breaker_open_ms, 1, TIMEOUT_MAX_MS, "source breaker_open_ms"},
        {o->breaker_open_max_ms, o->breaker_open_ms, TIMEOUT_MAX_MS,
         "source breaker_open_max_ms"},
        {o->callers_limit, 0, QUEUE_MAX, "source callers_limit"},
        {o->key_callers_limit, 0, QUEUE_MAX, "source key_callers_limit"},
        {o->breaker_probes, 1, PROBES_MAX, "source breaker_probes"},
        {o->fleet_loads, 0, FLEET_LOADS_MAX, "source fleet_loads"},
    };

    enum shed_code code =
        shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);

    if (code == SHED_OK && o->fleet_name != NULL)
        code =
            shed_key_check_cache_name(o->fleet_name, "source fleet_name", err);
    return code;
}

enum shed_code shed_source_options_take(struct shed_source_options *out,
                                        const struct shed_source_options *given,
                                        struct shed_error *err)
{
    enum shed_code code = shed_options_take(out, sizeof(*out), given,
                                            "struct shed_source_options", err);

    return code == SHED_OK ? check_options(out, err) : code;
}

void shed_source_options_breaker(const struct shed_source_options *o,
                                 struct shed_breaker *breaker, uint64_t now_ms)
{
    const struct shed_breaker_rule rule = {
        .failure_pct = o->breaker_failure_pct,
        .min_calls = o->breaker_min_loads,
        .window_ms = o->breaker_window_ms,
        .open_ms = o->breaker_open_ms,
        .open_max_ms = o->breaker_open_max_ms,
        .probes = o->breaker_probes};

    shed_breaker_init(breaker, &rule, now_ms);
}
