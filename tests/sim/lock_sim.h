/*
 * The simulation of locks: processes with handles of one lock, each a machine
 * with its voters, one to five servers (lock_model), and a network between
 * them. Time is virtual, one event happens at a time, and the invariants are
 * checked after each. A schedule is determined by its seed.
 */
#ifndef LOCK_SIM_H
#define LOCK_SIM_H

#include "lock/machine.h"
#include "sim/sim_shared.h"
#include "support/lock_model.h"

#define SIM_SERVERS 5
#define SIM_PROCESSES 6
#define SIM_HANDLES 8
#define SIM_CALLS 400
#define SIM_REQUESTS 192
#define SIM_EVENTS 768

/* How long a command waits for its answer. */
#define SIM_TIMEOUT_MS UINT64_C(60)

enum sim_algorithm {
    SIM_SETNX,
    SIM_EXPIRE,
    SIM_TIMESTAMP,
    SIM_LEASE,
    SIM_FAIR,
    SIM_QUORUM,
    SIM_ALGORITHMS
};

/* What can go wrong, in percent of the occasions or as the maximum per
 * schedule. */
struct sim_mode {
    const char *name;
    unsigned algorithms; /* a bit each; one of them is drawn */
    unsigned calls;
    unsigned latency_ms;  /* maximum, one way */
    unsigned link_pct;    /* of the calls, for which a thread waits */
    unsigned no_push_pct; /* processes that wait by timer only */
    unsigned push_lost_pct, push_twice_pct;
    unsigned twice_pct; /* commands over links that arrive twice */
    unsigned lost_pct;  /* replies that are lost, which breaks the connection */
    unsigned cuts, kills, stalls, restarts, wipes, freezes, flushes, jumps;
    unsigned closes;                                 /* handles */
    unsigned extend_pct, advance_pct, forgotten_pct; /* of the holds */
    unsigned cancel_pct;   /* of the acquires that wait */
    unsigned ageless_pct;  /* sessions that do not know the server's age */
    unsigned twins_pct;    /* schedules in which two addresses are one server */
    unsigned processes;    /* 0: one to four */
    unsigned lease_ms;     /* 0: any */
    unsigned push_late_ms; /* in addition to a latency */
    unsigned outage_ms;    /* of the first server, at the beginning */
    unsigned hold_ms;      /* maximum; 0: any */
    unsigned drift_pm;     /* maximum of a process's clock, in thousandths */
    unsigned skew_ms;      /* maximum, of wall clocks */
    unsigned is_calm;      /* nothing goes wrong, and nothing is lost */
    unsigned is_quick; /* no command is late, so that each algorithm excludes */
    unsigned is_crowd; /* each handle acquires the lock repeatedly */
    unsigned
        breaks_exclusion; /* the faults are more than a lock can withstand */
    unsigned breaks_numbers;
    unsigned is_prompt; /* a free lock is acquired at once */
};

struct sim_process {
    bool is_alive, has_pushes, is_settled;
    uint64_t stalled_until_ms, stalled_ms;
    uint64_t offset_ms; /* of its clock */
    int drift_pm;
    uint64_t skew_ms;    /* of its wall clock */
    uint64_t changed_ms; /* when a session began or ended */
    struct {
        bool is_up;
        bool is_deaf;      /* it is not, but its connection for commands is */
        bool has_told_age; /* the server, by INFO */
        uint64_t number;   /* of the connection */
        char run[SHED_RUN_BYTES];
    } session[SIM_SERVERS];
};

struct sim_server {
    struct lock_model model;
    bool is_down;
    uint64_t frozen_until_ms;
    uint64_t since_ms; /* of this run */
    uint64_t runs;
    int64_t jump_ms;  /* of its clock */
    bool is_expiring; /* that is planned */
};

struct sim_handle {
    enum { SIM_UNUSED, SIM_IN_USE, SIM_GONE } life;
    unsigned process;
    struct shed_lock_spec spec;
    struct shed_lock_machine machine;
    struct shed_voter voter[SIM_SERVERS];
    uint64_t timer_at_ms; /* by the process's clock */
    uint64_t timer;       /* the one that counts */
    bool is_posted;
    uint64_t generation;       /* of the last hold seen */
    uint64_t ended_generation; /* of the last hold released */
    uint64_t lost_generation;  /* of the last hold whose loss was reported */
    uint64_t round_since_ms;   /* the round under way, and which one it is */
    uint64_t round_asked_ms;
    unsigned round_numberings;
    uint64_t extended_generation; /* of the last hold that was extended */
    uint64_t closing_ms;          /* 0: it is not closing */
    struct shed_lock_request closer;
    struct shed_lock_counters counters;
    uint64_t tries;      /* of the counters, when closing began */
    uint64_t stalled_ms; /* of the process at that time */
    uint64_t busy_calls; /* calls that must end before it is closed */
};

enum sim_call_state {
    SIM_FREE,
    SIM_TRYING, /* over a link */
    SIM_WAITING,
    SIM_HOLDING,
    SIM_ENDED
};

/* A call of the application: an acquire and what follows it, or another
 * operation. */
struct sim_call {
    struct shed_lock_request request; /* first */
    enum sim_call_state state;
    struct sim *sim;
    unsigned handle;
    unsigned answers;
    bool is_blocking; /* a thread waits for it */
    uint64_t begun_ms;
    uint64_t cancelled_ms; /* 0: it was not */
    uint64_t generation;
    uint64_t stalled_ms; /* of the process, when the call began */
    uint64_t number;     /* the last number to be written back for it */
    uint32_t below; /* the servers that knew no higher number, a bit each */
    bool is_renewed_late; /* renewed on one server after it was lost */
};

enum sim_event_type {
    SIM_CALL,
    SIM_RELEASE,
    SIM_EXTEND,
    SIM_CANCEL,
    SIM_POST,
    SIM_TIMER,
    SIM_EXECUTE,
    SIM_REPLY,
    SIM_BREAK, /* an answer is overdue */
    SIM_PUSH,
    SIM_UP,   /* a session is up */
    SIM_DOWN, /* a process hears that a session is down */
    SIM_EXPIRE_KEYS,
    SIM_FAULT,
    SIM_START, /* a server starts again */
    SIM_CLOSE,
    SIM_LOOK /* at long holds */
};

enum sim_fault {
    SIM_CUT,
    SIM_KILL,
    SIM_STALL,
    SIM_RESTART,
    SIM_WIPE,
    SIM_OUTAGE,
    SIM_FREEZE,
    SIM_FLUSH,
    SIM_JUMP
};

struct sim_event {
    uint64_t at_ms, order;
    enum sim_event_type type;
    unsigned process, server;
    size_t index;    /* of the handle, call, request */
    uint64_t number; /* of the timer, connection, request */
    enum sim_fault fault;
};

/* A command under way. */
struct sim_request {
    bool is_used;
    uint64_t number;
    unsigned process, server, handle;
    uint64_t session;
    size_t call;     /* whose link it goes over; SIM_CALLS: the session */
    unsigned copies; /* copies still to be executed */
    bool has_reply;
    bool is_broken;  /* its answer will never come */
    bool is_dropped; /* and it will not be executed */
    bool was_sent;
    unsigned pending; /* events that need it */
    size_t for_call;  /* the call whose holder it names; SIM_CALLS: none */
    struct lock_model_call command;
    struct lock_model_reply reply;
};

struct sim {
    const struct sim_mode *mode;
    uint64_t seed, random;
    uint64_t now_ms;
    bool is_tracing;
    enum sim_algorithm kind;
    const struct shed_algorithm *algorithm;
    struct shed_lock_options options;
    struct shed_error refusal;
    bool has_twins; /* two addresses are one server, and that is known */
    uint64_t twins_ms;
    bool is_watched; /* on_lost is set */
    size_t server_count;
    unsigned process_count, handle_count;
    uint64_t faults_end_ms, calls_end_ms;
    struct sim_server server[SIM_SERVERS];
    struct sim_process process[SIM_PROCESSES];
    size_t event_count, call_count;
    uint64_t event_order, last_number, commands;
    uint64_t floor;    /* later holders get higher numbers */
    uint64_t floor_ms; /* since when */
    uint64_t advanced, advanced_ms;
    uint64_t idle_since_ms; /* since when no server has the lock */
    uint64_t stuck_ms;      /* since when it has had no expiry */
    uint64_t freed_ms;      /* since when nobody holds it; 0: somebody does */
    unsigned grants, last_holder;
    uint64_t cohort_since_ms; /* since when only one handle has had it while
                                 others wait */
    bool has_deaths;
    /* large, and not cleared */
    struct sim_handle handle[SIM_HANDLES];
    struct sim_call call[SIM_CALLS + 1]; /* the last one is a dummy */
    struct sim_request request[SIM_REQUESTS];
    struct sim_event event[SIM_EVENTS];
};

/* lock_sim.c: clocks. */
uint64_t sim_local_ms(const struct sim *sim, unsigned process);
void sim_trace(const struct sim *sim, const char *what, unsigned process,
               size_t server, uint64_t number);

/* lock_sim_net.c: commands, sessions, servers. */
void sim_send(struct sim *sim, unsigned handle, unsigned server, size_t call,
              const struct shed_exchange *exchange,
              const struct shed_args *args);
void sim_on_execute(struct sim *sim, const struct sim_event *event);
void sim_on_break(struct sim *sim, const struct sim_event *event);
void sim_on_up(struct sim *sim, const struct sim_event *event);
void sim_on_start(struct sim *sim, const struct sim_event *event);
void sim_on_expire(struct sim *sim, const struct sim_event *event);
void sim_on_fault(struct sim *sim, const struct sim_event *event);
void sim_tick(struct sim *sim, unsigned server);

/* lock_sim_process.c: handles, calls. */
void sim_open_handle(struct sim *sim, unsigned process);
void sim_on_call(struct sim *sim, const struct sim_event *event);
void sim_on_release(struct sim *sim, const struct sim_event *event);
void sim_on_extend(struct sim *sim, const struct sim_event *event);
void sim_on_cancel(struct sim *sim, const struct sim_event *event);
void sim_on_close(struct sim *sim, const struct sim_event *event);
void sim_on_post(struct sim *sim, const struct sim_event *event);
void sim_on_timer(struct sim *sim, const struct sim_event *event);
void sim_on_reply(struct sim *sim, const struct sim_event *event);
void sim_on_push(struct sim *sim, const struct sim_event *event);
void sim_on_epoch(struct sim *sim, unsigned process, unsigned server);

/* lock_sim_exchange.c: exchanges between a machine and the network. */
void sim_ask(struct sim *sim, unsigned handle, unsigned server);
/* Send the next command; false: the exchange is over. */
bool sim_send_next(struct sim *sim, unsigned handle, unsigned server,
                   size_t call, struct shed_exchange *exchange);
/* Take a reply, and send the next command; true: the exchange is over. */
bool sim_take_reply(struct sim *sim, const struct sim_request *request,
                    struct shed_exchange *exchange);

/* lock_sim_leftovers.c. */
void sim_check_orphans(struct sim *sim);
void sim_check_server(struct sim *sim, unsigned server);
bool sim_is_leftover(const struct shed_voter *voter,
                     const struct shed_lock_holder *holder);

/* lock_sim_check.c: each ends the test where an invariant is broken. */
void sim_check_grant(struct sim *sim, unsigned handle);
void sim_check_step(struct sim *sim, unsigned handle,
                    const struct shed_lock_act *act, bool was_gone);
void sim_check_answer(struct sim *sim, const struct sim_call *call);
void sim_check_world(struct sim *sim);
bool sim_is_alive(const struct sim *sim, unsigned handle);
size_t sim_find_call(const struct sim *sim,
                     const struct shed_lock_holder *holder);
void sim_check_epoch(struct sim *sim, unsigned handle, unsigned server);
void sim_check_holds(struct sim *sim);
void sim_check_end(struct sim *sim);

#endif
