/*
 * The undelivered writes, which Redis has missed: a bounded set of keys, each
 * with the strongest write that it still needs, in the order in which they are
 * to be delivered. Pure: no clock, no lock, no memory of its own.
 *
 * Failed writes are numbered. A delivery, or another write of the key, makes up
 * for those that had failed when it was sent, and for no later one.
 */
#ifndef SHED_UNDELIVERED_H
#define SHED_UNDELIVERED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"

/* What is to be done to a key. A greater one does what a lesser one does. */
enum shed_wish {
    SHED_WISH_EXPIRE,
    SHED_WISH_INVALIDATE,
    SHED_WISH_TAG /* its keys are tags and no others */
};

/* Part of its owner's memory. */
struct shed_undelivered_item {
    struct shed_map_node in_map; /* its key is set by the owner */
    /* the set's */
    enum shed_wish wish;
    uint64_t number;    /* of the newest failed write of the key */
    uint64_t sent;      /* what number was when its delivery began */
    bool is_under_way;  /* being delivered; not in the order */
    bool is_in_the_set; /* false: settled while it was under way */
    struct shed_node in_order;
};

/* Enough for short chains at the largest limit that snowshed.h allows. */
#define SHED_UNDELIVERED_CHAINS ((size_t)4096)

struct shed_undelivered {
    size_t limit;
    atomic_size_t count;    /* may be read without the owner's lock */
    uint64_t last;          /* number given */
    struct shed_list order; /* in which they are to be sent */
    struct shed_map map;
    struct shed_map_node *chains[SHED_UNDELIVERED_CHAINS];
};

/* Begin empty; it has at most limit keys. */
void shed_undelivered_init(struct shed_undelivered *set, size_t limit);

/* Returns: NULL if the key is not in the set. */
struct shed_undelivered_item *
shed_undelivered_find(const struct shed_undelivered *set, const char *key,
                      size_t size);

/* Note that a write of an item of the set has failed again. */
void shed_undelivered_renew(struct shed_undelivered *set,
                            struct shed_undelivered_item *item,
                            enum shed_wish wish);

/* Add an item whose key is not in the set. Returns: false if the set is full.
 */
bool shed_undelivered_insert(struct shed_undelivered *set,
                             struct shed_undelivered_item *item,
                             enum shed_wish wish);

/* A write of the key has been carried out that was sent when the last number
 * was upto: take its item out of the set if that was enough.
 * Returns: the item, which is to be freed unless it is under way (then when it
 * returns); NULL: there is none, or it needs more. */
struct shed_undelivered_item *
shed_undelivered_settle(struct shed_undelivered *set, const char *key,
                        size_t size, enum shed_wish wish, uint64_t upto);

/* Begin to deliver the first item that is not under way. Returns: NULL if
 * there is none. */
struct shed_undelivered_item *
shed_undelivered_send(struct shed_undelivered *set);

enum shed_undelivered_end {
    SHED_UNDELIVERED_STAYS, /* in the set, to be sent again, behind the others
                             */
    SHED_UNDELIVERED_DONE,  /* it has left the set just now: to be freed */
    SHED_UNDELIVERED_DONE_ELSE /* it had left the set before: to be freed */
};

/* The delivery of an item is over. */
enum shed_undelivered_end
shed_undelivered_return(struct shed_undelivered *set,
                        struct shed_undelivered_item *item, bool is_delivered);

#endif
