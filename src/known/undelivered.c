/* The set of missed writes: a hash table whose items are also a list. Its
 * invariant: a key is in it at most once. */
#include "known/undelivered.h"

#include <assert.h>
#include <string.h>

#include "base/container.h"

static struct shed_undelivered_item *item_of(struct shed_node *node)
{
    return shed_container_of(node, struct shed_undelivered_item, in_order);
}

static void remove_item(struct shed_undelivered *set,
                        struct shed_undelivered_item *item)
{
    assert(item->is_in_the_set);
    shed_map_remove(&set->map, &item->in_map);
    if (!item->is_under_way)
        shed_list_remove(&set->order, &item->in_order);
    item->is_in_the_set = false;
    set->count--;
}

void shed_undelivered_init(struct shed_undelivered *set, size_t limit)
{
    memset(set, 0, sizeof(*set));
    set->limit = limit;
    shed_map_init(&set->map, set->chains, SHED_UNDELIVERED_CHAINS);
}

struct shed_undelivered_item *
shed_undelivered_find(const struct shed_undelivered *set, const char *key,
                      size_t size)
{
    struct shed_map_node *node =
        shed_map_find(&set->map, shed_map_key(key, size));

    return node != NULL
               ? shed_container_of(node, struct shed_undelivered_item, in_map)
               : NULL;
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
    if (set->count >= set->limit)
        return false;
    item->wish = wish;
    item->number = ++set->last;
    item->sent = 0;
    item->is_under_way = false;
    item->is_in_the_set = true;
    shed_map_insert(&set->map, &item->in_map);
    shed_list_append(&set->order, &item->in_order);
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
    struct shed_node *node = shed_list_pop(&set->order);
    struct shed_undelivered_item *item;

    if (node == NULL)
        return NULL;
    item = item_of(node);
    item->is_under_way = true;
    item->sent = item->number;
    return item;
}

enum shed_undelivered_end
shed_undelivered_return(struct shed_undelivered *set,
                        struct shed_undelivered_item *item, bool is_delivered)
{
    bool is_done = is_delivered && item->number == item->sent;
    enum shed_undelivered_end end = SHED_UNDELIVERED_DONE_ELSE;

    if (item->is_in_the_set && is_done) {
        remove_item(set, item);
        end = SHED_UNDELIVERED_DONE;
    } else if (item->is_in_the_set) {
        shed_list_append(&set->order, &item->in_order);
        end = SHED_UNDELIVERED_STAYS;
    }
    item->is_under_way = false;
    return end;
}
