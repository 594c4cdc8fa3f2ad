/* Calls to a cluster that threads wait for: to several servers at a time, and
 * on to wherever a key has moved. Any thread. */
#ifndef SHED_CLIENT_CLUSTER_CALL_H
#define SHED_CLIENT_CLUSTER_CALL_H

#include <snowshed/snowshed.h>

#include "client/cluster.h"

/* As shed_client_call. If servers fail while others answer, the commands for
 * them have error replies, which say why. */
SHED_MUST_CHECK enum shed_code
shed_cluster_call(struct shed_cluster *cluster,
                  const struct shed_args *commands, size_t count,
                  struct shed_reply **replies, struct shed_link_use *uses,
                  unsigned *sent, uint64_t deadline_ms, struct shed_error *err);

#endif
