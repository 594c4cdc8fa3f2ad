/* The set of missed writes: a hash table whose items are also a list. Its
 * invariant: a key is in it at most once. */
#include "known/undelivered.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t chain_of(const char *key, size_t size)
{
    return XXH3_64bits(key, size) % SHED_UNDELIVERED_CHAINS;
}

static void append(struct shed_undelivered *set,
                   struct shed_undelivered_item *item)
{
    item->after = NULL;
    item->before = set->end;
    if (set->end != NULL)
        set->end->after = item;
    else
        set->first = item;
    set->end = item;
}

static void unlink_item(struct shed_undelivered *set,
                        struct shed_undelivered_item *item)
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

static void remove_item(struct shed_undelivered *set,
                        struct shed_undelivered_item *item)
{
    struct shed_undelivered_item **at =
        &set->chains[chain_of(item->key, item->key_size)];

    assert(item->is_in_the_set);
    while (*at != item)
        at = &(*at)->chain;
    *at = item->chain;
    unlink_item(set, item);
    item->is_in_the_set = false;
    set->count--;
}

void shed_undelivered_init(struct shed_undelivered *set, size_t limit)
{
    memset(set, 0, sizeof(*set));
    set->limit = limit;
}

struct shed_undelivered_item *
shed_undelivered_find(const struct shed_undelivered *set, const char *key,
                      size_t size)
{
    struct shed_undelivered_item *item = set->chains[chain_of(key, size)];

    while (item != NULL &&
           (item->key_size != size || memcmp(item->key, key, size) != 0))
        item = item->chain;
    return item;
}

void shed_undelivered_renew(struct shed_undelivered *set,
                            struct shed_undelivered_item *item,
                            enum shed_wish wish)
{
    item->number = ++set->last;
    if (wish > item->wish)
        item->wish = wish;
}

bool shed_undelivered_insert(struct shed_undelivered *set,
                             struct shed_undelivered_item *item,
                             enum shed_wish wish)
{
    struct shed_undelivered_item **chain =
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

struct shed_undelivered_item *
shed_undelivered_settle(struct shed_undelivered *set, const char *key,
                        size_t size, enum shed_wish wish, uint64_t upto)
{
    struct shed_undelivered_item *item = shed_undelivered_find(set, key, size);

    if (item == NULL || item->number > upto || item->wish > wish)
        return NULL;
    remove_item(set, item);
    return item;
}

struct shed_undelivered_item *
shed_undelivered_send(struct shed_undelivered *set)
{
    struct shed_undelivered_item *item = set->first;

    while (item != NULL && item->is_under_way)
        item = item->after;
    if (item == NULL)
        return NULL;
    item->is_under_way = true;
    item->sent = item->number;
    return item;
}

enum shed_undelivered_end
shed_undelivered_return(struct shed_undelivered *set,
                        struct shed_undelivered_item *item, bool is_delivered)
{
    item->is_under_way = false;
    if (!item->is_in_the_set)
        return SHED_UNDELIVERED_DONE_ELSE;
    if (is_delivered && item->number == item->sent) {
        remove_item(set, item);
        return SHED_UNDELIVERED_DONE;
    }
    unlink_item(set, item);
    append(set, item);
    return SHED_UNDELIVERED_STAYS;
}

struct shed_undelivered_item *
shed_undelivered_take(struct shed_undelivered *set)
{
    struct shed_undelivered_item *item = set->first;

    if (item != NULL) {
        assert(!item->is_under_way);
        remove_item(set, item);
    }
    return item;
}
