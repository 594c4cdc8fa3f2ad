/* See cluster_fixture.h. */
#include "support/cluster_fixture.h"

#include <stdio.h>

struct own_cluster cluster;

void cluster_install(void)
{
    enum { UNUSED_TIMEOUT_MS = 60000 };

    cluster = (struct own_cluster){.primaries = NODES,
                                   .replicas = 1,
                                   .node_timeout_ms = UNUSED_TIMEOUT_MS};
    own_cluster_start(&cluster);
}

void cluster_remove(void)
{
    own_cluster_stop(&cluster);
}

void cluster_init(void)
{
    for (size_t i = 0; i < NODES; i++) {
        server_do(&cluster.node[i], "FLUSHALL");
        server_do(&cluster.node[i], "CONFIG RESETSTAT");
    }
    fixture_init(&fixture);
    fixture.uri = cluster.uri;
}

void cluster_init_own(size_t replicas)
{
    cluster = (struct own_cluster){.primaries = NODES, .replicas = replicas};
    own_cluster_start(&cluster);
    cluster_init();
}

void cluster_up(void)
{
    cluster_init();
    fixture_open(&fixture);
}

void cluster_down(void)
{
    fixture_down(&fixture);
    for (size_t i = 0; i < cluster.count; i++)
        if (cluster.node[i].pid != 0 && own_cluster_is_primary(&cluster, i))
            server_check_ttls(&cluster.node[i]);
}

void cluster_down_own(void)
{
    cluster_down();
    own_cluster_stop(&cluster);
}

const char *key_of(size_t node, unsigned n, char key[16])
{
    own_cluster_key(&cluster, node, n, key);
    return key;
}

const char *row_of(const char *key, unsigned version, char row[32])
{
    snprintf(row, 32, "%s@%u", key, version);
    return row;
}
