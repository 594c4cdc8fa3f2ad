/*
 * Lets callers of one key share a GET.
 *
 * A caller may be given what was current at some instant during its call. So it
 * may share a GET only if that is sent after the call began. With many callers,
 * one GET of a key is under way, and all that arrive in the meantime share the
 * next one: one command for Redis, and one reply to parse, for all of them.
 *
 * Any thread.
 */
#ifndef SHED_READS_H
#define SHED_READS_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "cache/found.h"
#include "entry/key.h"

struct shed_reads;

/* What a GET has brought its caller. */
struct shed_read {
    enum shed_code code;
    struct shed_look look;
    struct shed_error error; /* where code is not SHED_OK */
};

/* Sends GET in this thread, and sets *out. */
typedef void shed_read_fn(void *user, struct shed_read *out);

/* Nothing is shared while there are no more callers than alone_max, of whatever
 * keys. Returns NULL when memory is out. */
struct shed_reads *shed_reads_create(size_t alone_max);

/* No call is under way. NULL is allowed. */
void shed_reads_destroy(struct shed_reads *reads);

/*
 * Answer a call by a GET of key that is sent after this function was called:
 * call read, at most once, or take part in what it has brought another caller.
 * A failure that is the other's own (its deadline, its memory) is not shared;
 * another of those that wait calls its read then.
 *
 * Blocks: what read does, and until deadline_ms (shed_now_ms) for others.
 * Returns: true if *out is another caller's result; its values are references
 * of this caller's.
 */
SHED_MUST_CHECK bool shed_reads_run(struct shed_reads *reads,
                                    const struct shed_key *key,
                                    uint64_t deadline_ms, shed_read_fn *read,
                                    void *user, struct shed_read *out);

#endif
