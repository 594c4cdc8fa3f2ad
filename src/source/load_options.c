/* The options of a source. Its one invariant: what is taken is in the ranges
 * that snowshed.h states. */
#include "source/load_options.h"

#include "base/breaker.h"
#include "base/error.h"
#include "entry/key.h"

/* The ranges that snowshed.h states. */
#define LOADS_MAX 1024
#define BATCH_MAX 10000
#define BATCH_WAIT_MAX_MS 1000
#define QUEUE_MAX 10000000
#define TIMEOUT_MAX_MS 3600000
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
        {o->callers_limit, 0, QUEUE_MAX, "source callers_limit"},
        {o->fleet_loads, 0, FLEET_LOADS_MAX, "source fleet_loads"},
    };

    enum shed_code code =
        shed_check_ranges(ranges, sizeof(ranges) / sizeof(*ranges), err);

    if (code == SHED_OK)
        code = shed_breaker_check(&o->breaker, "source", err);
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
