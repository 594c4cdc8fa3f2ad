/*
 * A source's slots of the fleet's budget: a load has one while it is under way.
 * Pure.
 *
 * Redis has how many slots each source has (slots.lua); here is how many of
 * them are in use, what to ask Redis for, and when. An exchange says how many
 * this source has in any case, and how many it wants. It may be sent again, so
 * one that has failed leaves nothing to be made up for. While Redis is away,
 * loads begin without a slot; the first exchange after that has all of them
 * counted.
 *
 * Where others wait for a slot too, all ask at random times, and nobody takes
 * back at once what it has just given. So no source is ahead of another.
 */
#ifndef SHED_SLOTS_H
#define SHED_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Asks that are refused are at least this far apart. */
#define SHED_SLOTS_ASK_MIN_MS 2

/* What to send. */
struct shed_slots_exchange {
    size_t keep;        /* slots that it has, whatever the budget is */
    size_t want;        /* slots that it is to have, if the budget allows */
    uint64_t passed_ms; /* since the last that was answered */
};

struct shed_slots {
    /* set by init */
    size_t budget;
    uint64_t life_ms; /* of a slot */
    /* its own */
    size_t wanted; /* loads that could begin now */
    size_t busy;   /* loads under way */
    size_t ready;  /* slots for the next loads */
    size_t held; /* slots that Redis has counted for it; while it answers, those
                    of busy and ready are among them; SIZE_MAX: unknown */
    bool is_asking; /* an exchange is under way: */
    struct shed_slots_exchange asked;
    uint64_t asked_ms;   /* when it was sent */
    bool is_away;        /* Redis is, or nobody asks it */
    uint64_t heard_ms;   /* when the last that was answered was sent; 0: none */
    uint64_t ask_ms;     /* not to ask for more before */
    bool is_refused;     /* the last exchange was, at least in part: Redis takes
                            this source to wait for slots */
    uint64_t refused_us; /* since when a load has waited; 0: none does */
    size_t others;       /* that wait, as seen last */
    size_t in_use;       /* of all, as seen last */
    uint64_t load_us;    /* how long loads take, an average */
};

struct shed_slots_answer {
    size_t slots, in_use; /* its own, and those of all */
    size_t others;        /* sources that wait for one */
};

/* Begin without a slot, and as away. */
void shed_slots_init(struct shed_slots *s, size_t budget, uint64_t life_ms);

/* How many loads could begin now, with slots. */
void shed_slots_want(struct shed_slots *s, size_t wanted);

/* Whether a load may begin now. */
bool shed_slots_may_begin(const struct shed_slots *s);

/* A load begins. Returns: how long it has waited for a slot, in us; 0: not at
 * all. */
uint64_t shed_slots_begin(struct shed_slots *s, uint64_t now_us);

/* A load has ended, after cost_us. */
void shed_slots_end(struct shed_slots *s, uint64_t cost_us);

/* What to do now. Returns: true: send *out, and call shed_slots_settle when
 * that has ended. false: come again in *delay_ms, and when anything has
 * changed; UINT64_MAX: only then. */
bool shed_slots_next(struct shed_slots *s, uint64_t now_ms,
                     struct shed_slots_exchange *out, uint64_t *delay_ms);

/* The exchange under way has ended. answer: NULL: perhaps it was not carried
 * out. */
void shed_slots_settle(struct shed_slots *s,
                       const struct shed_slots_answer *answer, uint64_t now_us,
                       uint64_t random);

/* Redis is to be asked from now on; or loads begin without a slot, until it has
 * answered. */
void shed_slots_attach(struct shed_slots *s);
void shed_slots_go_without(struct shed_slots *s);

/* Whether none is in use, or still to be given back, and Redis does not take
 * this source to wait. */
bool shed_slots_is_idle(const struct shed_slots *s);

#endif
