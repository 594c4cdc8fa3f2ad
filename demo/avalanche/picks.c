/* Which items the threads of a scenario ask for. */
#include "picks.h"

#include <math.h>
#include <stdlib.h>

#include "fleet.h"

#define ABSENT_BASE 1000000 /* no item has an id this high */

size_t pick_hot(void *context, uint64_t *random, uint64_t *ids)
{
    (void)context;
    (void)random;
    ids[0] = HOT_ID;
    return 1;
}

static uint64_t draw_zipf(const struct picks *p, uint64_t *random)
{
    double u = (double)(fleet_random(random) >> 11) / 9007199254740992.0 *
               p->zipf[p->keys - 1];
    uint64_t low = 0, high = p->keys - 1;

    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (p->zipf[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return low + 1;
}

size_t pick_zipf(void *context, uint64_t *random, uint64_t *ids)
{
    struct picks *p = context;

    ids[0] = draw_zipf(p, random);
    return 1;
}

size_t pick_absent(void *context, uint64_t *random, uint64_t *ids)
{
    struct picks *p = context;
    uint64_t n = draw_zipf(p, random);

    p->asked[n - 1] = 1;
    ids[0] = ABSENT_BASE + n;
    return 1;
}

size_t pick_page(void *context, uint64_t *random, uint64_t *ids)
{
    struct picks *p = context;
    uint64_t page = p->page, keys = p->keys;
    uint64_t fresh = (page + 1) / 2;
    uint64_t at = atomic_fetch_add(&p->record->next_in_deck, fresh);
    size_t count = 0;

    if (at >= keys)
        return 0;
    for (; count < fresh && at + count < keys; count++)
        ids[count] = p->deck[at + count];
    while (count < page)
        ids[count++] = draw_zipf(p, random);
    return count;
}

size_t pick_deck(void *context, uint64_t *random, uint64_t *ids)
{
    struct picks *p = context;
    uint64_t page = p->page, keys = p->keys;
    uint64_t at = atomic_fetch_add(&p->record->next_in_deck, page);
    size_t count = 0;

    (void)random;
    for (; count < page && at + count < keys; count++)
        ids[count] = p->deck[at + count];
    return count;
}

bool picks_init(struct picks *p, uint64_t random, double zipf)
{
    double sum = 0;

    p->zipf = calloc(p->keys, sizeof(*p->zipf));
    p->deck = calloc(p->keys, sizeof(*p->deck));
    p->asked = shared_bytes(p->keys);
    if (p->zipf == NULL || p->deck == NULL)
        return false;
    for (uint64_t i = 0; i < p->keys; i++) {
        uint64_t j = fleet_random(&random) % (i + 1);
        sum += 1 / pow((double)(i + 1), zipf);
        p->zipf[i] = sum;
        p->deck[i] = p->deck[j];
        p->deck[j] = i + 1;
    }
    return true;
}

uint64_t picks_asked(const struct picks *p)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < p->keys; i++)
        count += p->asked[i];
    return count;
}
