#include "soak/trouble.h"

unsigned soak_trouble_begin(struct soak_troubles *t, uint64_t now_ms)
{
    unsigned number = atomic_fetch_add(&t->count, 1) % SOAK_TROUBLES;

    atomic_store(&t->begun_ms[number], now_ms);
    atomic_store(&t->ended_ms[number], UINT64_MAX);
    return number;
}

void soak_trouble_end(struct soak_troubles *t, unsigned number, uint64_t now_ms)
{
    atomic_store(&t->ended_ms[number], now_ms);
}

uint64_t soak_trouble_ms(const struct soak_troubles *t, uint64_t from_ms,
                         uint64_t to_ms)
{
    uint64_t all_ms = 0;

    for (unsigned i = 0; i < SOAK_TROUBLES; i++) {
        uint64_t begun_ms = atomic_load(&t->begun_ms[i]);
        uint64_t ended_ms = atomic_load(&t->ended_ms[i]);

        if (ended_ms == UINT64_MAX)
            ended_ms = to_ms;
        if (ended_ms != 0 && ended_ms >= begun_ms && begun_ms <= to_ms &&
            ended_ms + t->after_ms >= from_ms)
            all_ms += ended_ms - begun_ms + t->after_ms;
    }
    return all_ms;
}
