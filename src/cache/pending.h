/*
 * What asynchronous calls of a cache have in common: how they are begun, woken,
 * due, and ended, exactly once.
 *
 * A call is driven on the reactor thread, by its step function: when it has
 * been submitted, and then for each event. Between two steps it costs no more
 * than its memory.
 */
#ifndef SHED_CACHE_PENDING_H
#define SHED_CACHE_PENDING_H

#include <stdatomic.h>
#include <stdbool.h>

#include <snowshed/async.h>

#include "base/heap.h"
#include "base/list.h"
#include "entry/key.h"
#include "entry/parts.h"
#include "redis/call.h"

struct shed_async;

/* Events. A step is told of all that have come since the last one. */
enum {
    SHED_ASYNC_START = 1,    /* the first one */
    SHED_ASYNC_ANSWERED = 2, /* its flights have answered */
    SHED_ASYNC_DUE = 4,      /* what shed_async_set_due was told */
    SHED_ASYNC_STOP = 8      /* is_stopped is set */
};

/* The beginning of every call; the memory of a call is freed with free(). */
struct shed_pending {
    /* set by its maker */
    struct shed_cache *cache;
    void (*step)(struct shed_pending *pending, unsigned events);
    struct shed_then then;
    /* under async's mu */
    struct shed_pending *next; /* in a list of events; once ended, in a queue */
    unsigned char events;
    bool is_listed;
    bool is_cancelled;
    atomic_bool is_ended; /* written under mu; handed over, or to be, when it
                             leaves the list */
    /* reactor thread only */
    unsigned short weight; /* set by submit: keys, towards async_limit */
    bool has_due;
    bool is_stopped; /* it was cancelled, or the cache is being closed; code and
                        why are set: end as soon as nothing refers to it */
    enum shed_code code; /* of its end */
    /* its step's: it is a get of one key, and this is where it stands */
    unsigned char phase;
    bool is_softly; /* it has a soft timeout to come */
    union {
        struct shed_heap_node due; /* until it has ended */
        struct shed_value *value;  /* then */
    };
    struct shed_error *why; /* see shed_error_keep */
};

/* Make what a cache's calls share. Borrows cache, whose other parts have been
 * made. Returns: SHED_OK, SHED_ENOMEM. */
SHED_MUST_CHECK enum shed_code shed_async_create(struct shed_cache *cache,
                                                 struct shed_async **out,
                                                 struct shed_error *err);

/* End all calls, and wait until nothing of theirs is under way. Not on the
 * reactor thread. NULL is allowed. */
void shed_async_close(struct shed_async *async);

/* NULL is allowed. */
void shed_async_destroy(struct shed_async *async);

/* Check what follows a call, and set *pending to NULL, unless that is NULL.
 * Returns: SHED_OK; SHED_EINVAL. */
SHED_MUST_CHECK enum shed_code shed_async_check(const struct shed_then *then,
                                                struct shed_pending **pending,
                                                struct shed_error *err);

/* Begin a call of so many keys, whose own fields are set, and tell it to the
 * program in *out, unless that is NULL. Any thread. Returns: SHED_OK;
 * SHED_EBUSY: there are too many, and it remains the caller's. */
SHED_MUST_CHECK enum shed_code shed_async_submit(struct shed_pending *pending,
                                                 size_t keys,
                                                 const struct shed_then *then,
                                                 struct shed_pending **out,
                                                 struct shed_error *err);

/* Begin calls of one cache, in one turn of the loop. They are linked by next,
 * and have their then. This is for calls that a thread waits for, and for parts
 * of other calls: they do not count towards async_limit. Takes the calls over.
 * Any thread; on the reactor's this returns before the first step. */
void shed_async_begin(struct shed_pending *first);

/* Have it stepped with these events, in another turn of the loop. Any thread.
 */
void shed_async_wake(struct shed_pending *pending, unsigned events);

/* For steps, on the reactor thread. */

/* Have it stepped at this time; an earlier wish is forgotten. */
void shed_async_set_due(struct shed_pending *pending, uint64_t at_ms);

/* Have shed_async_flush called in a moment. */
void shed_async_flush_later(struct shed_async *async);

/* It has ended: code and why are set, and nothing else refers to it. Takes over
 * a reference of value, which may be NULL. It is gone when this returns. */
void shed_async_end(struct shed_pending *pending, struct shed_value *value);

/* ------------------------------------------------------------------- reads */

struct shed_async_reads;

/* A key that a call has asked Redis for. */
struct shed_asker {
    struct shed_node node;
    struct shed_list *list; /* NULL: it asks for none */
    bool *is_let_through; /* NULL, or of all keys of its call: the gate has let
                             one pass, and counts them as one */
};

/* Send GET for a key at the end of this turn of the loop. Askers that may share
 * get the answer to the same one, which is sent after the last of them has
 * asked. Returns: false when out of memory. */
SHED_MUST_CHECK bool shed_async_ask(struct shed_async_reads *reads,
                                    struct shed_asker *asker,
                                    const struct shed_key *key, bool may_share);

/* Wait for it no longer. */
void shed_async_leave(struct shed_asker *asker);

/* Whether a get need not ask any longer, because its key has a flight by now
 * that it may join: then it is told SHED_OK, and that nothing was found. */
bool shed_async_get_can_fly(struct shed_asker *asker);

/* How the gets hear of it: judge what has come, by the terms of one asker; then
 * each of the others takes part in what that one has found, and at last it
 * takes that itself (from is NULL). is_announced: as of a mark of local rows;
 * why: of a code that is not SHED_OK. */
enum shed_code shed_async_get_judge(struct shed_asker *asker,
                                    const struct shed_call_result *result,
                                    bool is_announced, struct shed_error *why);
void shed_async_get_take(struct shed_asker *asker, enum shed_code code,
                         const struct shed_error *why, struct shed_asker *from);

/* Borrows cache. NULL when out of memory; destroy allows it. */
struct shed_async_reads *shed_async_reads_create(struct shed_cache *cache);
void shed_async_reads_destroy(struct shed_async_reads *reads);

/* For async.c: send what was asked for, and what is to be sent again. */
void shed_async_flush(struct shed_async_reads *reads);
void shed_async_send_again(struct shed_async_reads *reads);

/* Something of the calls is under way, or no longer: closing waits for it. */
void shed_async_hold(struct shed_async *async);
void shed_async_drop(struct shed_async *async);

/* ------------------------------------------------------------------- queue */

/* Call the done of a call that has ended, and free it. */
void shed_pending_tell(struct shed_pending *pending);

/* Add calls that have ended, linked by next; last is that of the last. Any
 * thread. */
void shed_queue_add(struct shed_queue *queue, struct shed_pending *first,
                    struct shed_pending **last);

#endif
