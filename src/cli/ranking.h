/* Names of keys, each once, of which those with the highest ranks are kept. */
#ifndef CLI_RANKING_H
#define CLI_RANKING_H

#include <snowshed/snowshed.h>

struct cli_ranked {
    struct shed_bytes name; /* in Redis; its bytes are ours */
    long long rank;
};

/* {.max = n} is an empty one. */
struct cli_ranking {
    size_t max; /* how many are kept */
    struct cli_ranked *at;
    size_t count, room;
};

/* Add a name. It may be there already, as SCAN can return a key twice. */
void cli_ranking_add(struct cli_ranking *r, struct shed_bytes name,
                     long long rank);

/* Sort it, the highest rank first, then by name; each name once, with its
 * highest rank; at most max of them. */
void cli_ranking_sort(struct cli_ranking *r);

/* Keep the first count of it. */
void cli_ranking_cut(struct cli_ranking *r, size_t count);

void cli_ranking_fini(struct cli_ranking *r);

#endif
