/* Shared by the tests of caches and locks on a cluster. */
#ifndef CLUSTER_FIXTURE_H
#define CLUSTER_FIXTURE_H

#include "support/fixture.h"
#include "support/own_cluster.h"

enum { NODES = 3 }; /* primaries, each with a replica */

extern struct own_cluster cluster;

/* A cluster that lives as long as the program, for an unchecked fixture: none
 * of its nodes may be ended. */
void cluster_install(void);
void cluster_remove(void);

/* Let fixture use the cluster and not its own server, whose primaries are
 * emptied; nothing is open. */
void cluster_init(void);

/* The same, with a cluster that starts now, whose nodes may be ended. A primary
 * that is away is replaced by its replica, if it has one. */
void cluster_init_own(size_t replicas);

/* cluster_init, and open all. */
void cluster_up(void);

/* Close all; the own cluster ends. Each key must have had a ttl. */
void cluster_down(void);
void cluster_down_own(void);

/* The n-th key of a node; the row of a key. */
const char *key_of(size_t node, unsigned n, char key[16]);
const char *row_of(const char *key, unsigned version, char row[32]);

#endif
