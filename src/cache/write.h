/*
 * The writes of a cache: what is sent to Redis, and sent again; how that ends,
 * and what follows. A program awaits one as an asynchronous call, or in a
 * thread.
 */
#ifndef SHED_WRITE_H
#define SHED_WRITE_H

#include "cache/cache.h"
#include "cache/pending.h"
#include "cache/put.h"

struct sent;
struct shed_await;

/* Of a key, or of a tag. */
struct shed_write {
    struct shed_pending pending; /* first */
    /* set by its maker */
    struct shed_delivery_write mark; /* from before it was sent */
    bool is_put;
    struct shed_put_row put;
    struct shed_put_tries tries; /* what is no put uses only their deadline */
    char number[SHED_DIGITS];    /* of an expiry: when; of a tag: the end of the
                                    log; else 0 */
    struct shed_await *await;    /* of a call that makes many, and counts them;
                                    else NULL */
    /* reactor thread only */
    struct sent *sent; /* NULL: none is under way */
    struct shed_tag_learner learner;
    unsigned char repeats;
    bool is_waiting; /* to be sent again, in a moment */
    bool is_decided; /* how it ends: pending has code and why */
    unsigned short at, key_size, redis_size; /* of the key in refresh */
    char refresh[]; /* the name of its refresh lease, which begins with the
                       key's; behind it, of a put the tags and the row */
};

/* Make a write of a key that has been checked; or with SHED_WISH_TAG of a tag,
 * one of no bytes for all entries. more: room behind the names. The memory is
 * the caller's; NULL when out of memory. */
struct shed_write *shed_write_create(struct shed_cache *cache,
                                     enum shed_wish wish, struct shed_bytes key,
                                     uint64_t timeout_ms, size_t more);

/* These take writes over, and free them in any case. */

/* Returns: SHED_OK, SHED_EBUSY. */
SHED_MUST_CHECK enum shed_code shed_write_submit(struct shed_write *write,
                                                 const struct shed_then *then,
                                                 struct shed_pending **out,
                                                 struct shed_error *err);

/* Wait until it has ended. Returns: how. */
SHED_MUST_CHECK enum shed_code shed_write_await(struct shed_write *write,
                                                struct shed_error *err);

/* The same for one or more, which the caller has in an array of this name.
 * Returns: why the first one failed that did; the reason is that of the first
 * that was dropped, else of the first. */
SHED_MUST_CHECK enum shed_code shed_writes_await(struct shed_write **writes,
                                                 size_t count,
                                                 const char *array,
                                                 struct shed_error *err);

#endif
