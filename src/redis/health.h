/*
 * What is known of one server, and the one answer to "may I use it now?". Pure:
 * no clock, no I/O, no threads; gate.h is what threads share.
 *
 * Two things are asked for: to make a connection, and to send a guarded call
 * (shed_args.is_guarded) over one. What ends something that was begun (a
 * publish, a renewal, a release) is no guarded call: it is always sent, because
 * it shortens the trouble of others, and only silence stops it.
 *
 *            a link connects     the session connects     a guarded call
 *   UP       yes                 yes                      yes
 *   PAUSED   one in each pause   after its own pause      yes, but see LOADING
 *   SILENT   no                  for commands, likewise   no
 *   OPEN     yes                 yes                      probes only
 *
 * A server that says that it cannot work now (LOADING its data, or BUSY with a
 * script) answers on each connection: so connections are made, and guarded
 * calls are PAUSED, with one call in each pause.
 */
#ifndef SHED_REDIS_HEALTH_H
#define SHED_REDIS_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/breaker.h"
#include "wire/reply.h"

enum shed_health_state {
    SHED_HEALTH_UP,     /* nothing speaks against it */
    SHED_HEALTH_PAUSED, /* the last try failed, or the server was left again
                           and again: the next one has to wait */
    SHED_HEALTH_SILENT, /* it hangs: no connection was answered for a whole
                           timeout. The session alone tries, nobody else waits
                         */
    SHED_HEALTH_OPEN    /* too many guarded calls have failed (breaker.h) */
};

/* Who wants to connect. */
enum shed_health_user {
    SHED_HEALTH_LINK,     /* a caller's thread */
    SHED_HEALTH_COMMANDS, /* the session, whose try ends a silence */
    SHED_HEALTH_PUSHES    /* its second connection, of no use without that */
};

/* A try to connect, and the connection that comes of it. */
struct shed_health_try {
    enum shed_health_user user;
    unsigned term;
    uint64_t round;
};

/* What happened to one of these. */
enum shed_health_event_type {
    /* how a try has ended; it tells nothing of a later term */
    SHED_HEALTH_REACHED,    /* it is set up */
    SHED_HEALTH_REFUSED,    /* at once, or by an answer: it does not hang */
    SHED_HEALTH_UNANSWERED, /* by a whole timeout */
    SHED_HEALTH_CUT_SHORT,  /* by its caller's deadline, before that */
    /* of a try or its connection, in the same way */
    SHED_HEALTH_NO_PRIMARY, /* the server is none, or the host name leads
                               elsewhere: it is left, and a new term begins */
    /* of a connection that is set up */
    SHED_HEALTH_HEARD,  /* an answer came, whatever it says */
    SHED_HEALTH_MISSED, /* none came for a whole timeout */
    /* of the session */
    SHED_HEALTH_HURRY /* it cannot wait for the end of its pause */
};

struct shed_health_event {
    enum shed_health_event_type type;
    struct shed_health_try try; /* not of HEARD, MISSED and HURRY */
    uint64_t since_ms;          /* UNANSWERED, MISSED: when that began */
};

/* A guarded call that was let through. */
struct shed_health_pass {
    uint64_t term; /* the breaker's */
    bool is_probe; /* the one call of a pause after LOADING */
};

/* How a guarded call has ended. */
struct shed_health_end {
    bool was_tried; /* false: a connection could not be made now, or the
                       caller's deadline came before it was known how it would
                       end */
    /* monotonic, of the wait for it */
    uint64_t began_ms, ended_ms;
    const struct shed_error *why;     /* NULL: it was answered */
    const struct shed_reply *refusal; /* an answer that says that Redis cannot
                                         work now; NULL: none does */
};

/* What a guarded call tells. */
enum shed_health_told {
    SHED_HEALTH_TOLD_NOTHING,
    SHED_HEALTH_TOLD_SUCCESS,
    SHED_HEALTH_TOLD_FAILURE
};

/* Pauses after failures double from the one to the other, with jitter: a server
 * that is back is missed as soon as it is, and the connects of a thousand
 * clients that wait for it cost it little. */
#define SHED_PAUSE_MIN_MS ((uint64_t)20)
#define SHED_PAUSE_MAX_MS ((uint64_t)1000)

struct shed_health {
    /* set by init */
    uint64_t connect_timeout_ms;
    bool has_session; /* false: nobody would end a silence, so there is none */
    /* its own */
    enum shed_health_state state; /* never OPEN: that is the breaker's */
    uint64_t pause_ms;            /* how long the present pause is */
    uint64_t retry_ms;            /* when the session may try */
    uint64_t link_retry_ms;       /* when a link may */
    uint64_t round;               /* of tries: grows with each that failed */
    unsigned failures;            /* in a row, weighted */
    uint64_t heard_ms;            /* the last answer, over any connection */
    uint64_t unanswered_ms; /* since when tries were cut short, unless an answer
                               came later */
    unsigned term;          /* grows each time the server is left */
    unsigned left_count;    /* how often in a row */
    uint64_t left_ms;       /* when it was left last */
    unsigned refusals;      /* in a row, of guarded calls: LOADING, BUSY */
    uint64_t work_ms;       /* while there are: when the next one may be sent */
    struct shed_breaker breaker;
};

/* Begin UP. */
void shed_health_init(struct shed_health *health,
                      const struct shed_client_options *options,
                      uint64_t now_ms);

/* ----------------------------------------------------------- connections */

/* Whether to connect. Returns: UP, and *try, whose end is to be told; else the
 * state that forbids it. */
enum shed_health_state shed_health_connect(struct shed_health *health,
                                           enum shed_health_user user,
                                           uint64_t now_ms,
                                           struct shed_health_try *try);

/* The one function that moves between the states. random is any 64 bits. */
void shed_health_tell(struct shed_health *health,
                      const struct shed_health_event *event, uint64_t now_ms,
                      uint64_t random);

/* What is left of the session's pause. */
uint64_t shed_health_pause_left_ms(const struct shed_health *health,
                                   uint64_t now_ms);

/* ---------------------------------------------------------- guarded calls */

/* Whether a guarded call may be sent. Returns: UP, and *pass, with which
 * shed_health_learn is to be called; else the state that forbids it. */
enum shed_health_state shed_health_pass(struct shed_health *health,
                                        uint64_t now_ms,
                                        struct shed_health_pass *pass);

/* What a call has told; of one that tells nothing else, how long it has waited
 * for an answer. */
enum shed_health_told shed_health_judge(const struct shed_health *health,
                                        const struct shed_health_end *end);
uint64_t shed_health_waited_ms(const struct shed_health_end *end);

/* Learn from a call. Returns: whether the breaker opened or closed. */
bool shed_health_learn(struct shed_health *health,
                       const struct shed_health_pass *pass,
                       const struct shed_health_end *end, uint64_t now_ms,
                       uint64_t random);

/* Whether every guarded call may pass, and may be learnt from later if it
 * succeeds. */
bool shed_health_is_clear(const struct shed_health *health);

#endif
