/* For lanes: what each of them has, and how it is found. */
#ifndef HOTITEMS_LANE_TYPE_H
#define HOTITEMS_LANE_TYPE_H

#include "lane.h"

/* A lane's functions, as those of lane.h without their prefix. */
struct lane_type {
    const char *name;
    struct lane *(*open)(const struct lane_options *options,
                         struct shed_error *err);
    void (*close)(struct lane *lane);
    enum shed_code (*get)(struct lane *lane, struct lane_item *items,
                          size_t count, uint64_t timeout_ms,
                          struct shed_error *err);
    void (*release)(struct lane_item *item);
    enum shed_code (*forget)(struct lane *lane, uint64_t id,
                             uint64_t timeout_ms, struct shed_error *err);
    enum shed_code (*expire)(struct lane *lane, uint64_t id, uint64_t in_ms,
                             uint64_t timeout_ms, struct shed_error *err);
    void (*read_stats)(struct lane *lane, struct lane_stats *out); /* zeroed */
    size_t (*metrics)(struct lane *lane, char *buffer, size_t capacity);
};

/* The first member of each lane. */
struct lane {
    const struct lane_type *type;
    _Atomic uint64_t waiting, most_waiting; /* see struct lane_stats */
};

extern const struct lane_type lane_none, lane_setnx, lane_snowshed;

#endif
