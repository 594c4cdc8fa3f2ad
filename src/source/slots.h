/*
 * A source's slots of the fleet's budget: a load has one while it is under way.
 * Pure.
 *
 * They are in Redis (slots.lua); here is which of them this source has, what to
 * ask Redis for, and when. What is asked goes in one exchange at a time: slots
 * to give back, to keep for longer, and to take. While Redis is away, loads
 * begin without a slot, and those that are under way when it is back are added
 * to the set then.
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
#define SHED_SLOTS_ID_BYTES (SHED_SLOTS_NAME_BYTES + 8)
#define SHED_SLOTS_EXCHANGE_MAX 32 /* of a kind; more wait for the next one */
#define SHED_SLOTS_NONE SIZE_MAX

/* Asks that are refused are at least this far apart. */
#define SHED_SLOTS_ASK_MIN_MS 2

enum shed_slot_state {
    SHED_SLOT_FREE = 0, /* an unused element */
    SHED_SLOT_ASKED,    /* to be taken by the exchange under way */
    SHED_SLOT_READY,    /* for the next load */
    SHED_SLOT_BUSY,     /* of a load under way */
    SHED_SLOT_LEAVING,  /* to be given back */
    SHED_SLOT_GIVEN     /* to be given back by the exchange under way */
};

struct shed_slot {
    enum shed_slot_state state;
    bool is_kept;      /* to be kept by the exchange under way */
    uint32_t number;   /* in its id */
    uint64_t until_ms; /* Redis has it until then; 0: it does not */
    uint64_t sent_ms;  /* Redis may have it until then; 0: it cannot */
};

struct shed_slots {
    /* set by init */
    size_t budget;
    uint64_t life_ms; /* of a slot */
    char name[SHED_SLOTS_NAME_BYTES + 1];
    struct shed_slot *at;
    size_t capacity;
    /* its own */
    size_t wanted; /* loads that could begin now */
    size_t ready;
    uint32_t last;       /* the number of the newest slot */
    bool is_asking;      /* an exchange is under way */
    bool is_away;        /* Redis is, or nobody asks it */
    bool is_refused;     /* the last ask was, at least in part */
    uint64_t asked_ms;   /* when the exchange under way was sent */
    uint64_t heard_ms;   /* when the last that was answered was sent; 0: none */
    uint64_t ask_ms;     /* not to ask again before */
    uint64_t refused_us; /* since when a load has waited; 0: none does */
    size_t others;       /* that wait, as seen last */
    size_t in_use;       /* of all, as seen last */
    uint64_t load_us;    /* how long loads take, an average */
};

/* What to send: ids without anything between them. */
struct shed_slots_exchange {
    size_t give_count, keep_count, take_count;
    uint64_t passed_ms; /* since the last that was answered */
    char give[SHED_SLOTS_EXCHANGE_MAX * SHED_SLOTS_ID_BYTES + 1];
    char keep[SHED_SLOTS_EXCHANGE_MAX * SHED_SLOTS_ID_BYTES + 1];
    char take[SHED_SLOTS_EXCHANGE_MAX * SHED_SLOTS_ID_BYTES + 1];
};

struct shed_slots_answer {
    size_t taken, in_use, waiting;
};

/* Begin without a slot, and as away. at has capacity elements, at least twice
 * the loads that may be under way, all zero; name is unique. */
void shed_slots_init(struct shed_slots *s, size_t budget, uint64_t life_ms,
                     uint64_t name, struct shed_slot *at, size_t capacity);

/* How many loads could begin now, with slots. */
void shed_slots_want(struct shed_slots *s, size_t wanted);

/* Whether a load may begin now. */
bool shed_slots_may_begin(const struct shed_slots *s);

/* A load begins. *waited_us: how long it has waited for a slot; 0: not at all.
 * Returns: its slot, for shed_slots_end. */
size_t shed_slots_begin(struct shed_slots *s, uint64_t now_us,
                        uint64_t *waited_us);

/* A load has ended, after cost_us. */
void shed_slots_end(struct shed_slots *s, size_t slot, uint64_t cost_us);

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
