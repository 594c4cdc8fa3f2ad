/*
 * The slow path of one key in one process, as a state machine: take the lease
 * or wait for its holder, load, publish, answer. Pure: events go in, what to do
 * comes out; no I/O, no clock, no threads.
 *
 * Callers are numbered in the order in which they join, from 1. The rule behind
 * every answer: a caller may be given what was current at some instant during
 * its call. So each acquire, load and publish remembers the newest caller at
 * the moment when it began (its cutoff), and answers callers up to that one;
 * later ones go round again.
 *
 * A flight without callers works in the background: it refreshes a value that
 * is served meanwhile, or watches the process that does.
 */
#ifndef SHED_FLIGHT_H
#define SHED_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/trouble.h"
#include "flight/pace.h"

/* A holder that seems dead is replaced this long after that was seen: it may be
 * connecting again. */
#define SHED_LEASE_GRACE_MS 100
/* For so long after it has taken or renewed a lease its holder counts as alive
 * (half of the grace, as acquire.lua has it). */
#define SHED_LEASE_ALIVE_MS (SHED_LEASE_GRACE_MS / 2)

enum shed_flight_state {
    SHED_FLIGHT_ACQUIRING, /* an acquire is under way */
    SHED_FLIGHT_WAITING,   /* another flight holds the lease, or Redis had a
                              passing trouble; a timer runs, a push may
                              come */
    SHED_FLIGHT_PAUSING,   /* in the background, and it has failed: until the
                              timer no other one is started */
    SHED_FLIGHT_LOADING,   /* the source works; if there is a lease, it is
                              renewed */
    SHED_FLIGHT_ENDING,    /* our lease is: a publish, fail or release is under
                              way, or will be by timer */
    SHED_FLIGHT_ABANDONED, /* all are answered; the source is overdue, and
                              only its end is awaited */
    SHED_FLIGHT_OVER       /* nothing is under way, nobody waits */
};

enum shed_flight_event_type {
    SHED_EV_START, /* the first caller has joined, or it is background */
    /* replies to an acquire */
    SHED_EV_LEAD,    /* the lease is ours */
    SHED_EV_HIT,     /* a row, or "no such row" */
    SHED_EV_CORRUPT, /* an entry that does not decode */
    SHED_EV_MARKER,  /* a failure marker */
    SHED_EV_WAIT,    /* another's lease, for wait_ms at most */
    /* replies to a publish; SUPERSEDED by an entry that does not decode is
       INVALIDATED, and a value that is kept for callers is SUPERSEDED */
    SHED_EV_STORED,
    SHED_EV_SUPERSEDED,
    SHED_EV_INVALIDATED,
    /* other replies */
    SHED_EV_ENDED,      /* to a fail or release, whatever it did */
    SHED_EV_RENEWED,    /* to a renew, or none */
    SHED_EV_LEASE_LOST, /* to a renew: it is no longer ours */
    SHED_EV_TROUBLE,    /* in place of any other reply; trouble says which */
    /* from the source */
    SHED_EV_LOADED,
    SHED_EV_LOAD_FAILED,
    SHED_EV_LOAD_REFUSED, /* nothing was begun: its queue is full, say */
    /* at any time */
    SHED_EV_TIMER,
    SHED_EV_PUSH, /* the key may have changed in Redis */
    SHED_EV_EPOCH /* so may all keys; and our lease is to name another epoch */
};

struct shed_flight_event {
    enum shed_flight_event_type type;
    enum shed_trouble trouble;
    uint64_t wait_ms;   /* of WAIT: for how long at most; of LEAD: for how long
                           the value that is refreshed may be given out */
    uint64_t age_ms;    /* of WAIT: of the lease; of HIT: of the entry */
    bool is_refresh;    /* of WAIT, LEAD: the lease is that of a refresh */
    bool may_be_older;  /* of WAIT: the lease, which may have been renewed */
    bool is_unmodified; /* of LOADED: the value in Redis is the row, and nothing
                           else has it */
};

enum shed_flight_send {
    SHED_SEND_NOTHING,
    SHED_SEND_ACQUIRE,
    SHED_SEND_LOAD, /* submit to the source */
    SHED_SEND_PUBLISH,
    SHED_SEND_FAIL,    /* put a failure marker */
    SHED_SEND_RELEASE, /* end the lease without a marker */
    SHED_SEND_RENEW
};

/* What goes before the script of an ACQUIRE, because it may be enough. */
enum shed_flight_first {
    SHED_FIRST_NOTHING,
    SHED_FIRST_GET, /* the key probably has a value, or another's lease */
    SHED_FIRST_SET, /* it has probably nothing */
    SHED_FIRST_BOTH /* GET, and then SET if that finds nothing */
};

enum shed_flight_answer {
    SHED_ANSWER_NOTHING,
    SHED_ANSWER_ENTRY,       /* with the entry of this event */
    SHED_ANSWER_LOADED,      /* with what was loaded and published */
    SHED_ANSWER_UNPUBLISHED, /* with what was loaded and not kept */
    SHED_ANSWER_FAILURE      /* with the error of this event */
};

/* What to do after a step, in the order of the fields. */
struct shed_flight_act {
    enum shed_flight_answer answer;
    uint64_t answer_upto; /* the newest caller that gets the answer */
    bool has_waited;   /* of ENTRY: for the holder of a lease, before it came */
    bool detach;       /* callers that come now start a flight of their own */
    bool leaves_lease; /* our lease could not be ended: end the epoch that it
                          names */
    enum shed_flight_send send;
    enum shed_flight_first first; /* of ACQUIRE */
    bool set_timer;               /* replaces a timer that runs */
    uint64_t timer_ms;            /* from now */
};

struct shed_flight_policy {
    uint64_t lease_ms;
    uint64_t load_timeout_ms;
    bool load_when_down;    /* with Redis down, load without a lease */
    bool refresh_when_down; /* the same in the background, because what was
                               loaded is kept in the process */
    uint64_t pause_ms;      /* of PAUSING */
};

struct shed_flight {
    const struct shed_flight_policy *policy;
    struct shed_pace *pace;
    enum shed_flight_state state;
    uint64_t newest;  /* the newest caller that waits, 0 for none; set by the
                         driver before each step */
    bool is_outdated; /* of what it loads, a tag may have been invalidated
                         since the load began: set by the driver, after newest
                       */
    uint64_t cutoff;  /* newest when the acquire or publish under way began */
    uint64_t load_cutoff; /* newest when the load began */
    uint64_t load_deadline_ms;
    uint64_t leased_ms;     /* when the lease was taken that we have or await */
    uint64_t value_ends_ms; /* of a refresh: when its value may no longer be
                               given out; else 0 */
    uint64_t wait_began_ms; /* of the first wait in a row */
    enum shed_flight_send ending; /* what ends our lease */
    unsigned waits;               /* in a row */
    unsigned troubles;            /* in a row */
    unsigned corrupt;             /* in a row */
    bool is_leased;  /* we took the lease, and the load is under it */
    bool is_held;    /* as far as we know it is still ours, to be renewed */
    bool had_holder; /* another flight had the lease, since this one began or
                        went round */
    bool is_pushed;  /* a push came while the acquire was under way */
    bool has_pushes; /* pushes can be expected; set by the driver */
    enum shed_flight_first first; /* by what its first caller has found; set by
                                     the driver before the START */
    bool is_unmodified;           /* what was loaded is the value in Redis */
    bool is_background; /* set by the driver: it works in the background, until
                           that clears this; nobody joins it */
    bool has_failed;    /* of a background one: it did not do its work */
    /* of the step under way */
    struct shed_flight_act act;
    uint64_t now_ms, random;
};

/* Begin in the state OVER. policy is borrowed, and so is pace, which all
 * flights of a cache share: what this one learns of how long loads take goes
 * there. */
void shed_flight_init(struct shed_flight *flight,
                      const struct shed_flight_policy *policy,
                      struct shed_pace *pace);

/* Make one step. now_ms is monotonic, random any 64 bits. Each send but a
 * renewal has exactly one reply, before the next send. An event that does not
 * belong to the state (a push that nobody awaits, a timer of an earlier state)
 * does nothing. */
struct shed_flight_act shed_flight_step(struct shed_flight *flight,
                                        const struct shed_flight_event *event,
                                        uint64_t now_ms, uint64_t random);

#endif
