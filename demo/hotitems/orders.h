/* Orders: pieces of an item are sold under its lock and the fencing guard, once
 * for each idempotency key, and never more than there are. */
#ifndef HOTITEMS_ORDERS_H
#define HOTITEMS_ORDERS_H

#include <snowshed/snowshed.h>
#include <snowshed/stats.h>

#define ORDER_QUANTITY_MAX 100

/* The locks of orders: a handle for each order. */
struct order_locks;

struct order_locks *order_locks_new(struct shed_client *client);
void order_locks_free(struct order_locks *locks); /* no order is under way */

/* What the locks of all items have done together. */
void order_locks_stats(struct order_locks *locks, struct shed_lock_stats *out);

#endif
