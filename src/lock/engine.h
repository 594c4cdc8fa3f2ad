/*
 * The engine of a lock: on the home reactor, asks its servers, waits for
 * pushes, renews what is held, says when it was lost.
 *
 * Requests wait in a row. Only the first of the row asks Redis, because no more
 * than one can win, and not while a thread holds the lock by this very handle.
 * In a fair lock each asks once, to stand in the queue.
 */
#ifndef SHED_LOCK_ENGINE_H
#define SHED_LOCK_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "lock/hold.h"
#include "lock/node.h"
#include "lock/quorum.h"
#include "stats.h"

struct shed_lock_request {
    struct shed_lock_request *next;
    /* the question */
    enum shed_lock_op op;
    struct shed_lock_holder holder;
    struct shed_owner *owner; /* ACQUIRE: whose hold it will be */
    uint64_t deadline_ms;     /* ACQUIRE */
    uint64_t lease_ms;        /* ACQUIRE, EXTEND */
    uint64_t number;          /* ADVANCE: the number; EXTEND: of the hold */
    uint64_t stamp;
    uint64_t begun_us; /* ACQUIRE */
    bool is_tried;     /* the engine has asked for it already */
    bool may_stand;    /* a try that nobody heard of may have brought it */
    /* the answer, and who is to be told, on the home reactor; the request is
     * his again then */
    int code;
    struct shed_error error;
    void (*done)(struct shed_lock_request *request);
};

struct shed_lock_row {
    struct shed_lock_request *first;
    struct shed_lock_request **last;
};

/* An operation that is under way on all servers. */
struct shed_lock_round {
    bool is_on;
    unsigned write_backs; /* ACQUIRE on several: its number goes to all now */
    struct shed_lock_request *request; /* NULL: the engine's own */
    uint64_t hold_number;              /* EXTEND: of which hold */
    bool is_rewrite;                   /* EXTEND: the session has changed */
    uint64_t asked_ms;
    unsigned asked_epochs;
    struct shed_talk question;
    struct shed_tally tally;
};

struct shed_lock {
    /* set at creation */
    pid_t pid;
    struct shed_client *home;
    struct shed_lock_options options;
    struct shed_lock_words words;
    const struct shed_lock_way *way;
    struct shed_guest guest;
    const char *name; /* in the first of the words' keys */
    size_t name_size;
    size_t count;

    struct shed_lock_counters counters;

    pthread_mutex_t mu;
    /* under mu */
    struct shed_hold hold;
    uint64_t held_since_us;
    struct shed_lock_row incoming;
    size_t waiting;          /* acquires that are not answered */
    uint64_t armed_until_ms; /* the watch timer runs until then */
    unsigned lost;           /* holds whose loss is to be told */
    uint64_t lost_number;    /* of the last of them */
    struct shed_error lost_reason;
    uint64_t turn_since_ms; /* taken here again and again; 0: it is not */
    uint64_t turn_ended_ms;
    bool is_posted;
    bool is_released; /* here, just now: who waits here may look */
    bool is_given_up; /* a release of it was not answered */
    struct shed_lock_holder given_up;
    bool is_closed;            /* nothing new is taken in */
    struct shed_gate *closing; /* to be opened when all is over */

    /* written under mu: so often pushes began, ended, or were lost */
    atomic_uint epochs;
    struct shed_post post;
    /* home reactor */
    struct shed_timer *retry, *watch;
    struct shed_lock_row acquires, others;
    struct shed_lock_round round;
    bool is_closing;
    bool is_awake; /* the first of the row is to ask */
    unsigned attempts;
    uint64_t retry_at_ms;

    struct shed_node node[]; /* count */
};

/* Timers and nodes. Not on a reactor thread.
 * Returns: SHED_OK, SHED_ENOMEM (then there is nothing to close). */
SHED_MUST_CHECK int shed_lock_engine_open(struct shed_lock *lock,
                                          struct shed_error *err);

/* End what waits with SHED_ECLOSED, release what is held, and stop. */
void shed_lock_engine_close(struct shed_lock *lock);

/* Say in err that the lock is closed. Returns: SHED_ECLOSED. */
int shed_lock_fail_closed(struct shed_error *err);

/* Hand a request over; any thread. done will be called, exactly once. What
 * stands in error of an ACQUIRE is the answer if nobody asks Redis in time.
 * Returns: false, and done will not be called: the lock is being closed. */
SHED_MUST_CHECK bool shed_lock_submit(struct shed_lock *lock,
                                      struct shed_lock_request *request);

/* Under mu, any thread. Begin a hold; what was held until now is lost. Have the
 * engine look after what has changed. */
void shed_lock_grant_locked(struct shed_lock *lock,
                            const struct shed_grant *grant);
void shed_lock_lose_locked(struct shed_lock *lock, const char *reason);
void shed_lock_end_hold_locked(struct shed_lock *lock);
void shed_lock_wake_locked(struct shed_lock *lock);

/* Whether the session with Redis is there, or will not be for now, where
 * others see by it that a holder lives. Who acquires before that, and dies,
 * would be missed by nobody until his lease ends. Any thread. */
bool shed_lock_is_settled(const struct shed_lock *lock);

/* Under mu. The lock was released: who waits here is told. has_waiters: others
 * wait elsewhere. */
void shed_lock_released_locked(struct shed_lock *lock, bool has_waiters);

/* Under mu. What this holder had, or has there, nobody has any more: remove it
 * when Redis can be asked. With one server. */
void shed_lock_give_up_locked(struct shed_lock *lock,
                              const struct shed_lock_holder *holder);

/* How a release ended. Any thread. */
void shed_lock_count_release(struct shed_lock *lock, int code);

/* Under mu. For how long the next acquire is to let others come first, because
 * this handle's turn has ended; 0: not. */
uint64_t shed_lock_step_back_ms(const struct shed_lock *lock);

#endif
