/* Judges how many loads are alive. Its invariant: a bound is demanded only of
 * loads that have all begun after the last time when there was none. */
#include "soak/fleet.h"

#include "soak/mark.h"

void soak_fleet_tell(struct soak_fleet *f, unsigned process, bool is_away,
                     uint64_t now_ms)
{
    soak_raise_to(&f->away_ms, now_ms);
    atomic_store(&f->is_away[process], is_away);
}

void soak_fleet_trouble(struct soak_fleet *f)
{
    atomic_store(&f->unseen_ms, UINT64_MAX);
}

void soak_fleet_calm(struct soak_fleet *f, uint64_t now_ms)
{
    atomic_store(&f->unseen_ms, now_ms);
}

/* Whether all processes have had slots since then. */
static bool had_slots(const struct soak_fleet *f, uint64_t since_ms)
{
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        if (atomic_load(&f->is_away[i]))
            return false;
    return atomic_load(&f->away_ms) < since_ms;
}

/* Count a look. Returns: whether the loads were bound. */
static bool count(struct soak_fleet *f, unsigned loads, uint64_t since_ms)
{
    atomic_fetch_add(&f->looks, 1);
    soak_raise_to(&f->most, loads);
    if (atomic_load(&f->unseen_ms) >= since_ms || !had_slots(f, since_ms))
        return false;
    atomic_fetch_add(&f->bound_looks, 1);
    if (loads <= SOAK_FLEET_LOADS)
        soak_raise_to(&f->bound_most, loads);
    return true;
}

unsigned soak_fleet_look(struct soak_fleet *f, struct soak_watch *w,
                         unsigned loads, uint64_t age_ms, uint64_t now_ms)
{
    uint64_t since_ms = now_ms - age_ms - f->slot_ms;
    unsigned excess = w->excess;

    if (w->looked_ms != 0 && now_ms > w->looked_ms + f->stall_ms) {
        soak_raise_to(&f->away_ms, now_ms);
        soak_raise_to(&f->stalled_ms, now_ms);
    }
    w->looked_ms = now_ms;
    if (count(f, loads, since_ms) && loads > SOAK_FLEET_LOADS && excess == 0) {
        w->excess = loads;
        w->excess_ms = now_ms;
        w->since_ms = since_ms;
    }
    if (excess == 0 || now_ms < w->excess_ms + f->event_ms)
        return 0;
    w->excess = 0;
    if (!had_slots(f, w->since_ms))
        return 0;
    soak_raise_to(&f->bound_most, excess);
    return excess;
}
