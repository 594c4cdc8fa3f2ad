/* See near.h. */
#include "cli/near.h"

#include <string.h>

/* How many characters of the longer word are left without what both have at
 * their beginnings and at their ends. */
static size_t distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b), begin = 0, end = 0;
    size_t shorter = m < n ? m : n;

    while (begin < shorter && a[begin] == b[begin])
        begin++;
    while (end < shorter - begin && a[m - 1 - end] == b[n - 1 - end])
        end++;
    return (m > n ? m : n) - begin - end;
}

void cli_near_offer(struct cli_near *near, const char *name)
{
    size_t most = strlen(near->word) / 3 + 1;
    size_t is = distance(near->word, name);

    if (is > most || (near->best != NULL && is >= near->distance))
        return;
    near->best = name;
    near->distance = is;
}
