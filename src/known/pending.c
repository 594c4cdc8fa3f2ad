/* The set of missed writes: a hash table whose items are also a list. Its
 * invariant: a key is in it at most once. */
#include "known/pending.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t chain_of(const char *key, size_t size)
{
    return XXH3_64bits(key, size) % SHED_PENDING_CHAINS;
}

static void append(struct shed_pending *set, struct shed_pending_item *item)
{
    item->after = NULL;
    item->before = set->end;
    if (set->end != NULL)
        set->end->after = item;
    else
        set->first = item;
    set->end = item;
}

static void unlink_item(struct shed_pending *set,
                        struct shed_pending_item *item)
{
    if (item->before != NULL)
        item->before->after = item->after;
    else
        set->first = item->after;
    if (item->after != NULL)
        item->after->before = item->before;
    else
        set->end = item->before;
}

static void remove_item(struct shed_pending *set,
                        struct shed_pending_item *item)
{
    struct shed_pending_item **at =
        &set->chains[chain_of(item->key, item->key_size)];

    assert(item->is_in_the_set);
    while (*at != item)
        at = &(*at)->chain;
    *at = item->chain;
    unlink_item(set, item);
    item->is_in_the_set = false;
    set->count--;
}

void shed_pending_init(struct shed_pending *set, size_t limit)
{
    memset(set, 0, sizeof(*set));
    set->limit = limit;
}

struct shed_pending_item *shed_pending_find(const struct shed_pending *set,
                                            const char *key, size_t size)
{
    struct shed_pending_item *item = set->chains[chain_of(key, size)];

    while (item != NULL &&
           (item->key_size != size || memcmp(item->key, key, size) != 0))
        item = item->chain;
    return item;
}

void shed_pending_renew(struct shed_pending *set,
                        struct shed_pending_item *item, enum shed_wish wish)
{
    item->number = ++set->last;
    if (wish > item->wish)
        item->wish = wish;
}

bool shed_pending_insert(struct shed_pending *set,
                         struct shed_pending_item *item, enum shed_wish wish)
{
    struct shed_pending_item **chain =
        &set->chains[chain_of(item->key, item->key_size)];

    if (set->count >= set->limit)
        return false;
    item->wish = wish;
    item->number = ++set->last;
    item->sent = 0;
    item->is_under_way = false;
    item->is_in_the_set = true;
    item->chain = *chain;
    *chain = item;
    append(set, item);
    set->count++;
    return true;
}

struct shed_pending_item *shed_pending_settle(struct shed_pending *set,
                                              const char *key, size_t size,
                                              enum shed_wish wish,
                                              uint64_t upto)
{
    struct shed_pending_item *item = shed_pending_find(set, key, size);

    if (item == NULL || item->number > upto || item->wish > wish)
        return NULL;
    remove_item(set, item);
    return item;
}

struct shed_pending_item *shed_pending_send(struct shed_pending *set)
{
    struct shed_pending_item *item = set->first;

    while (item != NULL && item->is_under_way)
        item = item->after;
    if (item == NULL)
        return NULL;
    item->is_under_way = true;
    item->sent = item->number;
    return item;
}

enum shed_pending_end shed_pending_return(struct shed_pending *set,
                                          struct shed_pending_item *item,
                                          bool is_delivered)
{
    item->is_under_way = false;
    if (!item->is_in_the_set)
        return SHED_PENDING_DONE_ELSE;
    if (is_delivered && item->number == item->sent) {
        remove_item(set, item);
        return SHED_PENDING_DONE;
    }
    unlink_item(set, item);
    append(set, item);
    return SHED_PENDING_STAYS;
}

struct shed_pending_item *shed_pending_take(struct shed_pending *set)
{
    struct shed_pending_item *item = set->first;

    if (item != NULL) {
        assert(!item->is_under_way);
        remove_item(set, item);
    }
    return item;
}
