/*
 * Local rows: what a process still has of a cache's rows: of each key the row
 * that it was given or has loaded last, in a bounded memory. It keeps
 * references of values and copies none. A row has two uses: it is given out
 * while Redis cannot be read (SHED_REDIS_DOWN_STALE), and in place of a GET
 * while it is *near* (near_bytes): known to be what Redis has.
 *
 * A row that was read before its key was dropped must not be kept afterwards.
 * So a reader takes a mark before it begins to read. If the key is dropped
 * after the mark, the row is refused.
 *
 * Pushes drop nothing: they come for few keys, and also for what this process
 * has published itself. A push ends that a row is near. A row becomes near when
 * it is kept from a read of which Redis announces changes, and no push has come
 * since before that read was sent; it is so for near_ms at most.
 *
 * Any thread. local may be NULL where nothing is kept.
 */
#ifndef SHED_LOCAL_H
#define SHED_LOCAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/stats.h"
#include "entry/entry.h"
#include "entry/freshness.h"

struct shed_local;

/* Keep rows in up to limit_bytes, which covers all memory in use here. A row
 * that takes more than a sixteenth of it is not kept. rule says how long a row
 * may be given out; it and counters must outlive the object. near_ms 0: no row
 * is near. Returns: NULL when out of memory. */
struct shed_local *shed_local_create(size_t limit_bytes, uint64_t near_ms,
                                     const struct shed_freshness_rule *rule,
                                     struct shed_counters *counters);
void shed_local_destroy(struct shed_local *local);

/* The state of a key before it is read. */
struct shed_local_mark {
    unsigned drops;
    unsigned changes;  /* pushes that may have been for it */
    uint64_t at_ms;    /* when that was; awake */
    bool is_announced; /* set behind the read: if Redis has what was read, and
                          there was no push, shed_local_change will be called
                          when it changes */
};

struct shed_local_mark shed_local_mark(struct shed_local *local,
                                       struct shed_bytes key);

struct shed_local_row {
    struct shed_value *value;
    uint64_t age_ms;  /* now */
    uint64_t ttl_ms;  /* how long it is fresh, from age 0 */
    uint64_t cost_ms; /* of its load; as of an entry */
    /* of a row that was loaded; what Redis has carries its own */
    uint64_t position; /* see tags.h */
    struct shed_row_version version;
};

/* Keep a row, of which it takes a reference, unless the key was dropped after
 * the mark or the row is over. If the entry in Redis is the one that is kept,
 * that stays, and its use is noted. If its changes are announced, what is kept
 * is near now, unless there was a push after the mark. A row that was loaded
 * does not replace one of a higher version; what Redis has replaces any,
 * because versions that begin again begin there. mark is the key's; now_ms is
 * monotonic. */
void shed_local_keep(struct shed_local *local, struct shed_bytes key,
                     struct shed_local_mark mark,
                     const struct shed_local_row *row, uint64_t now_ms);

/* Keep a value that was read from Redis when its clock was server_ms; with an
 * unknown clock, 0, it is of unknown age and not kept. */
void shed_local_keep_entry(struct shed_local *local, struct shed_bytes key,
                           struct shed_local_mark mark,
                           struct shed_value *value,
                           const struct shed_freshness_times *times,
                           uint64_t server_ms);

/* Returns: true and *out, with a reference of the caller's; false if there is
 * no row, or it is past its ttl and its stale windows. */
bool shed_local_find(struct shed_local *local, struct shed_bytes key,
                     uint64_t now_ms, struct shed_local_row *out);

/* Judge a row by its age, as if Redis had it. */
enum shed_freshness shed_local_judge(const struct shed_local_row *row,
                                     const struct shed_freshness_rule *rule);

/* Remove a row that was found, and can no longer be given out, unless another
 * is there by now. What is being read is not refused. */
void shed_local_forget(struct shed_local *local, struct shed_bytes key,
                       const struct shed_value *value);

/* Drop what is kept of a key; what was read before is refused from now on. */
void shed_local_drop(struct shed_local *local, struct shed_bytes key);

/* The same for all keys. */
void shed_local_drop_all(struct shed_local *local);

/* ----------------------------------------------------------------- near */

/* A row that is near. The value's age_ms is up to SHED_LOCAL_AGE_STEP_MS
 * behind. */
struct shed_local_near {
    struct shed_local_row row;
    struct shed_local_lane *lane; /* for shed_local_end_near */
};

#define SHED_LOCAL_AGE_STEP_MS 100

/* Look at a row that is near, by the KEY of its name. Threads that run on
 * different processors write to no common memory here. now_ms is
 * shed_awake_by_ms, which is read in a quarter of the time.
 * While the machine is suspended near_ms does not go on; afterwards the
 * session's PING finds a connection that was lost. Returns: false: there is
 * none; true: the row stays as it is until shed_local_end_near, which must
 * follow at once. */
bool shed_local_begin_near(struct shed_local *local, struct shed_bytes key,
                           uint64_t now_ms, struct shed_local_near *out);

/* is_taken: it is a hit, and the value is a reference of the caller's. */
void shed_local_end_near(const struct shed_local_near *near, bool is_taken);

/* Add the near hits since it was last called to the counters. */
void shed_local_count_hits(struct shed_local *local);

/* A push: the key has changed. The row is near no longer. */
void shed_local_change(struct shed_local *local, struct shed_bytes key);

/* Pushes have ended, or may have been lost: no row is near. */
void shed_local_change_all(struct shed_local *local);

struct shed_local_size {
    uint64_t rows, bytes;
};

struct shed_local_size shed_local_size(struct shed_local *local);

#endif
