/* The distance of two words, row by row: cost[i][j] is that of the first i
 * characters of one and the first j of the other. Only three rows are kept. */
#include "cli/near.h"

#include <stdint.h>
#include <string.h>

#define WORD_MAX 64
#define ROWS 3

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t cost[ROWS][WORD_MAX + 1], m = strlen(a), n = strlen(b);

    if (m > WORD_MAX || n > WORD_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= m; i++) {
        size_t *now = cost[i % ROWS], *before = cost[(i + 2) % ROWS];
        now[0] = i;
        for (size_t j = 1; j <= n; j++) {
            if (i == 0) {
                now[j] = j;
                continue;
            }
            now[j] = least(least(now[j - 1], before[j]) + 1,
                           before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], cost[(i + 1) % ROWS][j - 2] + 1);
        }
    }
    return cost[m % ROWS][n];
}

void cli_near_offer(struct cli_near *near, const char *name)
{
    size_t size = strlen(near->word), most = size < 3 ? 1 : size / 3;
    size_t is = distance(near->word, name);

    if (is > most || (near->best != NULL && is >= near->distance))
        return;
    near->best = name;
    near->distance = is;
}
