/* Names are gathered up to twice the number that is kept, and then sorted. */
#include "cli/ranking.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"

static int compare_names(const struct cli_ranked *x, const struct cli_ranked *y)
{
    int order = (x->name.size > y->name.size) - (x->name.size < y->name.size);

    return order != 0 ? order
                      : memcmp(x->name.data, y->name.data, x->name.size);
}

static int compare_ranks(const struct cli_ranked *x, const struct cli_ranked *y)
{
    return (x->rank < y->rank) - (x->rank > y->rank);
}

static int by_name(const void *x, const void *y)
{
    int order = compare_names(x, y);

    return order != 0 ? order : compare_ranks(x, y);
}

static int by_rank(const void *x, const void *y)
{
    int order = compare_ranks(x, y);

    return order != 0 ? order : compare_names(x, y);
}

static void drop(const struct cli_ranked *ranked)
{
    free((void *)(uintptr_t)ranked->name.data);
}

void cli_ranking_cut(struct cli_ranking *r, size_t count)
{
    while (r->count > count)
        drop(&r->at[--r->count]);
}

void cli_ranking_sort(struct cli_ranking *r)
{
    size_t kept = 0;

    if (r->count == 0)
        return;
    qsort(r->at, r->count, sizeof(*r->at), by_name);
    for (size_t i = 0; i < r->count; i++)
        if (kept > 0 && compare_names(&r->at[kept - 1], &r->at[i]) == 0)
            drop(&r->at[i]);
        else
            r->at[kept++] = r->at[i];
    r->count = kept;
    qsort(r->at, r->count, sizeof(*r->at), by_rank);
    cli_ranking_cut(r, r->max);
}

void cli_ranking_add(struct cli_ranking *r, struct shed_bytes name,
                     long long rank)
{
    char *copy = cli_alloc(name.size, 1);

    if (r->count / 2 >= r->max)
        cli_ranking_sort(r);
    if (r->count == r->room) {
        r->room = r->room > 0 ? 2 * r->room : 64;
        r->at = realloc(r->at, r->room * sizeof(*r->at));
        if (r->at == NULL)
            cli_fail_nomem();
    }
    memcpy(copy, name.data, name.size);
    r->at[r->count++] = (struct cli_ranked){shed_bytes(copy, name.size), rank};
}

void cli_ranking_fini(struct cli_ranking *r)
{
    cli_ranking_cut(r, 0);
    free(r->at);
}
