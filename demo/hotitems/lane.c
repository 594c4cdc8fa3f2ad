/* The choice of a lane. */
#include "lane.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/histogram.h"

const char *lane_origin_name(enum lane_origin origin)
{
    return origin == LANE_NEGATIVE ? "negative"
                                   : shed_origin_name((enum shed_origin)origin);
}

struct lane *lane_open(const char *name, const struct lane_options *options,
                       struct shed_error *err)
{
    const struct lane_type *type =
        strcmp(name, "snowshed") == 0 ? &lane_snowshed : &lane_plain;
    struct lane *lane = type->open(name, options, err);

    if (lane != NULL) {
        lane->type = type;
        lane->name = name;
    }
    return lane;
}

void lane_close(struct lane *lane)
{
    if (lane != NULL)
        lane->type->close(lane);
}

const char *lane_name(const struct lane *lane)
{
    return lane->name;
}

static void enter(struct lane *lane)
{
    histogram_raise(&lane->most_waiting, ++lane->waiting);
}

void lane_leave(struct lane *lane)
{
    lane->waiting--;
}

enum shed_code lane_get(struct lane *lane, struct lane_item *items,
                        size_t count, uint64_t timeout_ms,
                        struct shed_error *err)
{
    enum shed_code code;

    enter(lane);
    code = lane->type->get(lane, items, count, timeout_ms, err);
    lane_leave(lane);
    return code;
}

bool lane_is_async(const struct lane *lane)
{
    return lane->type->begin != NULL;
}

void lane_begin(struct lane *lane, struct lane_item *items, size_t count,
                uint64_t timeout_ms, lane_done *done, void *user)
{
    enter(lane);
    lane->type->begin(lane, items, count, timeout_ms, done, user);
}

void lane_release(struct lane *lane, struct lane_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        lane->type->release(&items[i]);
}

enum shed_code lane_forget(struct lane *lane, uint64_t id, uint64_t timeout_ms,
                           struct shed_error *err)
{
    return lane->type->forget(lane, id, timeout_ms, err);
}

enum shed_code lane_expire(struct lane *lane, uint64_t id, uint64_t in_ms,
                           uint64_t timeout_ms, struct shed_error *err)
{
    return lane->type->expire(lane, id, in_ms, timeout_ms, err);
}

void lane_read_stats(struct lane *lane, struct lane_stats *out)
{
    *out = (struct lane_stats){.waiting = lane->waiting};
    lane->type->read_stats(lane, out);
}

uint64_t lane_take_most_waiting(struct lane *lane)
{
    return atomic_exchange(&lane->most_waiting, lane->waiting);
}

void lane_metrics(struct lane *lane, FILE *out)
{
    if (lane->type->metrics != NULL)
        lane->type->metrics(lane, out);
}
