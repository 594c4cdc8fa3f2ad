/*
 * The simulation: processes with their flights, the model of the store, a
 * database of row versions, and a network between them. Time is virtual, one
 * event happens at a time, and the invariants are checked after each. A
 * schedule is determined by its seed.
 *
 * A row's value is the number of its version, which each commit increments. A
 * version is "out" when a DEL, by whatever program, was executed after a newer
 * version had been committed; floor is the oldest version that is not out.
 *
 * With refresh a caller looks first, as shed_get does, and starts a background
 * flight if the entry that it finds is due; without refresh every caller has a
 * flight.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flight/flight.h"
#include "sim/sim_shared.h"
#include "support/model.h"

#define SIM_KEYS 3
#define SIM_FLIGHTS 256
#define SIM_CALLERS 256
#define SIM_EVENTS 2048
#define SIM_REQUESTS 512
#define SIM_VERSIONS 1024
#define SIM_WRITTEN_AT 40 /* in an entry */
#define SIM_UNTIL_AT 48
/* A marker is kept for waiters, beyond its ttl. */
#define SIM_LATE_LOOK_MS 1000
#define SIM_JUMP_MS UINT64_C(30000) /* the server's clock jumps by less */

enum sim_fault {
    SIM_KILL,
    SIM_STALL,
    SIM_DOWN,
    SIM_FULL,
    SIM_EPOCH,
    SIM_FLUSH,
    SIM_JUMP,
    SIM_CORRUPT,
    SIM_FOREIGN
};
#define SIM_FAULTS (SIM_FOREIGN + 1)

/* What can go wrong, in percent of the occasions or as the maximum per
 * schedule. */
struct sim_mode {
    const char *name;
    unsigned calls;
    unsigned writes;
    uint64_t latency_ms; /* one way, at most */
    uint64_t ttl_ms;     /* maximum, of values */
    unsigned lost_pct;   /* requests, before or after their effect */
    unsigned late_pct;   /* of the lost ones: their effect comes even later */
    unsigned no_push_pct;
    unsigned twice_pct; /* pushes that arrive twice */
    unsigned fail_pct;  /* loads */
    unsigned refuse_pct;
    unsigned slow_pct;           /* loads that take longer than a lease */
    unsigned overdue_pct;        /* loads that take longer than load_timeout */
    unsigned leave_pct;          /* callers whose own deadline passes */
    unsigned faults[SIM_FAULTS]; /* of each kind */
    bool is_strict; /* nothing goes wrong: one load per data version, and only
                       those of fail_pct fail */
    bool is_prompt; /* and pushes reach waiters at once */
    uint64_t fixed_load_ms;  /* of every load; 0: random */
    uint64_t fixed_lease_ms; /* 0: random */
    uint64_t answer_max_ms;  /* the longest that a caller may wait; 0: any */
    unsigned looks_max;      /* of a waiter with pushes; 0: any number */
    bool is_burst;           /* all calls come at the beginning */
    unsigned expire_pct;     /* writers that expire instead of invalidating */
    unsigned refresh_pct; /* part of the ttl after which a value is refreshed;
                             0: callers do not look first */
    uint64_t stale_ms;    /* how long stale values are served */
    bool is_never_late;   /* no caller waits after the first value was stored */
    uint64_t served_max_ms; /* the greatest age of a value served; 0: any */
    bool no_channels;
    bool no_pushes;
    uint64_t told_max_ms;  /* of a waiter that knows of a load: how long after
                              the value was stored it is answered; 0: any */
    bool is_holder_killed; /* during the first load */
};

struct sim_caller {
    size_t key;
    unsigned process;
    uint64_t joined_ms;
    uint64_t oldest; /* the oldest version that it may get */
    enum { SIM_WAITS, SIM_ANSWERED, SIM_LEFT } state;
    uint64_t answered_ms;
};

struct sim_flight {
    uint64_t number; /* 0: not in use */
    unsigned process;
    size_t key;
    bool is_detached, is_background;
    unsigned char due[SHED_ENTRY_IDENTITY_BYTES]; /* if it is behind: the
                                                     value it refreshes */
    bool is_refresh;            /* it has the lease of a refresh */
    unsigned char replaced[16]; /* if so, the nonce of the value */
    uint64_t old_version;       /* of that value's row; 0: not known */
    struct shed_flight machine;
    struct model_owner owner;
    unsigned looks; /* since callers were last answered */
    bool has_seen;
    struct model_bytes seen; /* to be corrupt */
    uint64_t loaded;         /* version */
    bool is_unmodified;      /* it is the old one */
    uint64_t entry;          /* the version in the last entry */
    uint64_t timer;          /* the one that counts */
    size_t caller_count;
    size_t caller[SIM_CALLERS]; /* the caller of number i + 1 */
};

struct sim_process {
    bool is_alive, wants_pushes, has_pushes;
    uint64_t stalled_until_ms;
    uint32_t epoch;
    uint64_t lost_ms;      /* when the epoch before it ended */
    uint64_t joined_ms[2]; /* when its channel was there, and that of the
                              epoch before it; UINT64_MAX: never */
    uint64_t
        own[SIM_KEYS]; /* the newest version for which it has invalidated */
    struct shed_pace pace;
    uint64_t learnt_ms; /* when that had its first load; 0: not yet */
};

/* A lease as it was last taken or renewed. */
struct sim_lease {
    unsigned process;
    uint64_t flight;
    uint32_t epoch;
    uint64_t at_ms;
};

enum sim_event_type {
    SIM_CALL,
    SIM_LEAVE,
    SIM_COMMIT,
    SIM_DEL,     /* by a program of another language */
    SIM_EXECUTE, /* a request reaches the store */
    SIM_REPLY,
    SIM_TIMER,
    SIM_PUSH,
    SIM_LOAD_READ, /* a load takes its snapshot */
    SIM_LOAD_END,
    SIM_FAULT,
    SIM_REPAIR,
    SIM_JOIN, /* a process is back, in its next epoch */
    SIM_CYCLE /* the store removes what has expired */
};

struct sim_event {
    uint64_t at_ms;
    uint64_t order;
    enum sim_event_type type;
    unsigned process;
    size_t key;
    size_t index;    /* of the flight, caller or request */
    uint64_t number; /* of the flight or epoch */
    uint64_t timer;
    enum sim_fault fault;
};

/* Something under way between a process and the store, or a load. */
struct sim_request {
    bool is_used, is_lost;
    bool is_refused;            /* the store is down */
    enum shed_flight_send what; /* NOTHING: an invalidation */
    unsigned process;
    size_t flight;
    uint64_t flight_number;
    uint32_t epoch;   /* of the process, when it was sent */
    uint64_t version; /* that an invalidation is for, or that a load has read */
    bool is_expiry;   /* an invalidation that keeps the value */
    bool has_failed;  /* a load */
    unsigned pending; /* events that need it */
    struct model_call call;
    struct model_reply reply;
};

struct sim {
    const struct sim_mode *mode;
    uint64_t seed, random;
    uint64_t now_ms;
    struct shed_flight_policy policy;
    struct model_lease_times lease;
    uint64_t ttl_ms, failure_ttl_ms;
    uint64_t faults_end_ms;
    struct model model;
    bool is_down;
    bool is_tracing;
    bool is_kill_planned;
    uint64_t row[SIM_KEYS];         /* newest committed version */
    uint64_t floor[SIM_KEYS];       /* oldest that is not out */
    uint64_t fresh_floor[SIM_KEYS]; /* oldest that may count as fresh */
    uint64_t last_flight;
    struct sim_lease held[SIM_KEYS], refreshing[SIM_KEYS];
    unsigned process_count, alive_count;
    struct sim_process process[MODEL_PROCESSES];
    size_t caller_count, event_count;
    uint64_t event_order;
    /* counted for the invariants */
    uint64_t absences;  /* found by an acquire */
    uint64_t elections; /* of a refresher, when there was none */
    uint64_t takeovers, stored_ms[SIM_KEYS];
    uint64_t killed_ms, reloaded_ms; /* the first holder; the load after it */
    unsigned loads[SIM_KEYS];        /* that were begun */
    size_t version_count;
    /* large, and not cleared */
    unsigned char version[SIM_VERSIONS]
                         [16]; /* data versions under which rows were loaded */
    struct sim_flight flight[SIM_FLIGHTS];
    struct sim_caller caller[SIM_CALLERS];
    struct sim_request request[SIM_REQUESTS];
    struct sim_event event[SIM_EVENTS];
};

/* sim_world.c: requests. */
void sim_trace(const struct sim *sim, const char *what, unsigned process,
               size_t key, uint64_t number);
void sim_plan_request(struct sim *sim, uint64_t delay_ms,
                      enum sim_event_type type, size_t index);
struct sim_request *sim_make_request(struct sim *sim, size_t *index);
void sim_transmit(struct sim *sim, size_t index);
void sim_end_epoch(struct sim *sim, unsigned process, uint64_t for_ms);

/* sim_process.c. */
unsigned sim_pick_process(struct sim *sim);
void sim_tell_epoch(struct sim *sim, unsigned process);
void sim_send_invalidation(struct sim *sim, unsigned process, size_t key,
                           uint64_t version, bool is_expiry);
void sim_on_call(struct sim *sim, const struct sim_event *event);
void sim_on_reply(struct sim *sim, size_t request);
void sim_on_load_end(struct sim *sim, size_t request);
void sim_on_push(struct sim *sim, const struct sim_event *event);
void sim_on_timer(struct sim *sim, const struct sim_event *event);

/* sim_check.c: each ends the test where an invariant is broken. */
void sim_check_store(const struct sim *sim);
void sim_check_answer(const struct sim *sim, const struct sim_caller *caller,
                      enum shed_flight_answer answer, uint64_t version);
void sim_check_load(struct sim *sim, const struct sim_flight *flight,
                    bool is_leased);
void sim_check_look(const struct sim *sim, const struct sim_flight *flight);
void sim_check_served(const struct sim *sim, const struct sim_caller *caller,
                      uint64_t version, uint64_t age_ms);
void sim_check_wait(const struct sim *sim, const struct sim_caller *caller);
void sim_check_takeover(const struct sim *sim, const struct model_slot *before,
                        const struct sim_lease *lease,
                        const struct sim_request *request, bool has_ended);
void sim_check_publish(const struct sim *sim, const struct model_call *call,
                       const struct model_reply *reply);
void sim_check_owner(const struct sim *sim, const struct model_slot *before,
                     const struct model_call *call);
void sim_check_end(const struct sim *sim);

/* Whether it was granted a lease. */
bool sim_leads(const struct sim_request *request);

/* Whether it holds a row, or "no such row". */
bool sim_is_value(const struct model_slot *slot);

/* The version that an entry holds. */
uint64_t sim_version_of(const struct model_bytes *entry);

#endif
