/* One showing, in memory that its buyers' processes share: each buyer's plan,
 * its progress, and what it was told. */
#ifndef DEMO_SEATS_SHOWING_H
#define DEMO_SEATS_SHOWING_H

#include "common/record.h"

/* Where a buyer is; it passes them in this order. */
enum step {
    STEP_OUTSIDE, /* nobody has begun to serve it */
    STEP_DOOR,    /* about to ask for a seat */
    STEP_SEAT,    /* holds a seat, and chooses */
    STEP_CARD,    /* the card service is working; nothing is charged yet */
    STEP_EXIT,    /* has been told how it ended */
};

/* A set of steps. */
#define AT(step) (1U << (step))

/* What a buyer is told. */
enum answer {
    ANSWER_NONE, /* nothing, because its process ended before */
    ANSWER_BOUGHT,
    ANSWER_TAKEN, /* others hold it */
    ANSWER_SOLD,  /* others have bought it; in a hall: all seats */
    ANSWER_LOST,  /* the hold has ended: not charged */
    ANSWER_LEFT,  /* the buyer gave it back */
    ANSWERS,
    ANSWER_FAILED
};

enum then { THEN_PAY, THEN_GIVE_BACK, THEN_END_PROCESS };

struct plan {
    uint64_t seat; /* 0: any of the hall */
    uint64_t hold_ms;
    uint64_t wait_ms;   /* how long to wait for a seat that another holds */
    uint64_t choose_ms; /* at STEP_SEAT */
    uint64_t card_ms;   /* how long the card service takes */
    uint64_t limit_ms;  /* how long it may take; the hold is renewed to this */
    enum then then;
    unsigned stops; /* the steps where it waits for showing_let_pass */
};

struct visit {
    struct plan plan;
    atomic_int step;   /* enum step */
    atomic_int answer; /* enum answer */
    atomic_uint passes;
    _Atomic uint64_t held_us; /* since when it held its last seat; 0: never */
    _Atomic uint64_t told_us;
};

struct showing {
    struct record record; /* first: showing_of */
    uint64_t number;      /* in the database */
    uint64_t first_seat, seats;
    uint64_t buyers; /* number n, from 1, is visit[n - 1] */
    uint64_t seed;
    uint64_t size;            /* of the mapping */
    _Atomic uint64_t refused; /* payments, by the guard */
    _Atomic uint64_t lost;    /* holds that had ended when they were released */
    struct visit visit[];
};

/* Create a showing with zero plans. Exits on failure. */
struct showing *showing_create(uint64_t buyers);
void showing_destroy(struct showing *showing);

/* The showing whose record this is. */
struct showing *showing_of(struct record *record);

/* --------------------------------------------------------------- processes */

/* Claim a buyer that nobody serves yet, among count buyers from first on.
 * Returns false if there is none. */
bool showing_claim(struct showing *showing, uint64_t first, uint64_t count,
                   uint64_t *index);

/* Arrive at a step, stay for stay_ms, and then, if the plan says so, until
 * the runner lets the buyer pass. */
void showing_arrive(struct showing *showing, struct visit *visit,
                    enum step step, uint64_t stay_ms);

/* Tell the buyer the answer, at the last step. */
void showing_tell(struct visit *visit, enum answer answer);

void showing_sleep_ms(uint64_t ms);

/* --------------------------------------------------------------- runner */

void showing_let_pass(struct visit *visit, unsigned steps);

/* Wait until the buyer has reached this step, or a later one. Returns false
 * after patience_ms, or when a process reported an error. */
bool showing_await(const struct showing *showing, const struct visit *visit,
                   enum step step, uint64_t patience_ms);

/* How many were told this; for ANSWER_NONE, of those who had come in. */
uint64_t showing_count(const struct showing *showing, enum answer answer);

/* How many are at a step. */
uint64_t showing_count_at(const struct showing *showing, enum step step);

#endif
