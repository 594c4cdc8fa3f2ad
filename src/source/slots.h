/*
 * A source's slots of the fleet's budget: a load has one while it is under way.
 * Pure.
 *
 * They are in Redis (slots.lua); here is how many of them this source has, what
 * to ask Redis for, and when. A source's slots have consecutive numbers: new
 * ones come at the end, and those at the front, which end first, are given
 * back. What is asked goes in one exchange at a time. While Redis is away,
 * loads begin without a slot; when it is back, the first exchange makes it have
 * the slots of all that are under way, and no others of this source.
 *
 * Where others wait for a slot too, all ask at random times, at intervals by
 * which about four asks come to each slot that is given back; and nobody takes
 * back at once what it has just given. So no source is ahead of another.
 */
#ifndef SHED_SLOTS_H
#define SHED_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHED_SLOTS_NAME_BYTES 16

/* Asks that are refused are at least this far apart. */
#define SHED_SLOTS_ASK_MIN_MS 2

/* What to send. The numbers go from the first up to the second, without it. */
struct shed_slots_exchange {
    uint64_t give[2];   /* to give back */
    uint64_t keep[2];   /* then to keep for longer, or to take in any case */
    size_t take;        /* then to take, if the budget allows: the next ones */
    uint64_t passed_ms; /* since the last that was answered */
};

struct shed_slots {
    /* set by init */
    size_t budget;
    uint64_t life_ms; /* of a slot */
    char name[SHED_SLOTS_NAME_BYTES + 1];
    /* its own */
    size_t wanted;        /* loads that could begin now */
    size_t busy;          /* loads under way */
    size_t ready;         /* slots for the next loads */
    uint64_t first;       /* the number of the first slot of all these */
    uint64_t in_redis[2]; /* Redis has no others of this source; and, unless
                             it is away, it has all of these */
    uint64_t keep_ms;     /* when all are to be prolonged */
    bool is_asking;       /* an exchange is under way: */
    struct shed_slots_exchange asked;
    uint64_t asked_first; /* first, when it was sent */
    uint64_t asked_ms;    /* when that was */
    bool is_away;         /* Redis is, or nobody asks it */
    bool is_refused;      /* the last ask was, at least in part */
    uint64_t heard_ms;   /* when the last that was answered was sent; 0: none */
    uint64_t ask_ms;     /* not to ask again before */
    uint64_t refused_us; /* since when a load has waited; 0: none does */
    size_t others;       /* that wait, as seen last */
    size_t in_use;       /* of all, as seen last */
    uint64_t load_us;    /* how long loads take, an average */
};

struct shed_slots_answer {
    size_t taken, in_use, waiting;
};

/* Begin without a slot, and as away. name is unique. */
void shed_slots_init(struct shed_slots *s, size_t budget, uint64_t life_ms,
                     uint64_t name);

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

/* Whether none is in use, or still to be given back. */
bool shed_slots_is_idle(const struct shed_slots *s);

#endif
