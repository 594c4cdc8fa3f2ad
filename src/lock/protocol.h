/*
 * The protocol of a lock with one server. An exchange is one operation on the
 * lock at one server, command by command; an algorithm knows which commands,
 * and what the replies mean. An algorithm is pure, so that a test can be the
 * server.
 */
#ifndef SHED_LOCK_PROTOCOL_H
#define SHED_LOCK_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/lock.h>

#include "redis/script.h"
#include "redis/session.h"

#define SHED_TOKEN_BYTES 16
#define SHED_TOKEN_HEX_BYTES ((size_t)2 * SHED_TOKEN_BYTES)

/* Room for a number in decimal. */
#define SHED_LOCK_DIGITS 24

enum shed_lock_op {
    SHED_LOCK_OP_ACQUIRE,
    SHED_LOCK_OP_EXTEND,
    SHED_LOCK_OP_RELEASE,
    SHED_LOCK_OP_UNDO,   /* remove what a try may have left, if it is there */
    SHED_LOCK_OP_ADVANCE /* make later fencing numbers higher than one */
};

enum shed_exchange_end {
    SHED_EXCHANGE_YES,    /* done: the lock is ours, was ours until now */
    SHED_EXCHANGE_NO,     /* it is another's, or not ours any more */
    SHED_EXCHANGE_FAILED, /* an error, or no answer: it may have been done */
    SHED_EXCHANGE_WRONG   /* never: error says why */
};

/* Who holds it, or wants to. */
struct shed_lock_holder {
    unsigned char token[SHED_TOKEN_BYTES];
    char token_hex[SHED_TOKEN_HEX_BYTES + 1];
    uint64_t wait_ms;  /* how long it waits: its place in a fair queue */
    bool is_unordered; /* a try went over another connection than the reactor's
                          and was not answered: the server may carry it out
                          after what is sent now */
};

enum { /* the keys of a lock, in the order of the scripts' KEYS */
       SHED_LOCK_KEY,
       SHED_LOCK_KEY_COUNTER,
       SHED_LOCK_KEY_SUSPICION,
       SHED_LOCK_KEY_QUEUE,
       SHED_LOCK_KEY_OFFER,
       SHED_LOCK_KEY_WAITERS,
       SHED_LOCK_KEYS
};

/* What a lock is, for all its exchanges; set when it is opened. */
struct shed_lock_spec {
    struct {
        const char *at;
        size_t size;
    } key[SHED_LOCK_KEYS]; /* the first three algorithms have only one */
    const struct shed_lock_options *options;
    unsigned char handle[SHED_TOKEN_BYTES]; /* random: which handle it is */
};

/* What an algorithm remembers from one exchange to the next, of a hold or
 * between tries. Only the algorithm looks into it; all others copy it whole.
 * Zero is nothing. */
#define SHED_SEEN_BYTES 64

struct shed_lock_memory {
    union {
        /* EXPIRE: a lock that was seen without a time to live */
        struct shed_lock_seen {
            uint64_t since_ms; /* 0: none */
            size_t size;
            char bytes[SHED_SEEN_BYTES]; /* the beginning of its value */
        } seen;
        /* TIMESTAMP: the time that we have set as its end; and the one that may
         * be there instead, because a renewal was not answered; 0: none */
        struct shed_lock_times {
            uint64_t expires, pending_expires;
        } times;
    } of;
};

struct shed_algorithm;

struct shed_exchange {
    /* the question */
    const struct shed_algorithm *algorithm;
    const struct shed_lock_spec *spec;
    enum shed_lock_op op;
    struct shed_lock_holder holder;
    uint64_t lease_ms;
    uint64_t fence_number;          /* ADVANCE: later ones are above it */
    struct shed_lock_memory memory; /* also of the answer */
    /* how this process is known to the server, and its clocks; set before each
     * command by the caller of next_command */
    struct shed_identity identity;
    uint64_t wall_ms, now_ms;
    /* under way: the algorithm's own */
    int step;
    unsigned rounds;
    uint64_t expires; /* TIMESTAMP: the end that it wants to set */
    char digits[3][SHED_LOCK_DIGITS];
    enum shed_script script; /* of the last command, if it is one */
    /* the answer */
    enum shed_exchange_end end;
    uint64_t fence;   /* of an ACQUIRE that ended with YES: the number, 0: none;
                         of such an ADVANCE: what the counter was */
    bool has_waiters; /* of a RELEASE that ended with YES */
    bool is_takeover; /* of an ACQUIRE that did: from a dead holder */
    bool is_repeated; /* it was asked twice: the first may have been heard */
    uint64_t look_ms; /* NO: it may be free in so many ms; 0: not known */
    struct shed_error error;
};

enum { SHED_POLL_PUSHED, SHED_POLL_ALONE, SHED_POLLS };

struct shed_algorithm {
    bool has_tokens; /* fencing tokens, and keys that are named for it */
    bool has_lease;  /* it ends by itself */
    bool can_undo;   /* what a try has left is known from what others set */
    bool may_repeat; /* an exchange that is run twice does no harm */
    /* How long to wait before looking again: while pushes come, and without
     * them. */
    uint64_t poll_ms[SHED_POLLS];
    /* The next command. Returns: false, and the end is set, when there is
     * none. */
    bool (*next_command)(struct shed_exchange *exchange,
                         struct shed_args *args);
    /* What came back; never NULL, never NOSCRIPT. Returns: true when there is
     * another command; false: the end is set. */
    bool (*on_reply)(struct shed_exchange *exchange,
                     const struct shed_reply *reply);
};

extern const struct shed_algorithm shed_lock_setnx, shed_lock_expire,
    shed_lock_timestamp, shed_lock_lease;

const struct shed_algorithm *
shed_algorithm_of(const struct shed_lock_options *options);

/* Draw a new token. Returns: SHED_OK, SHED_EBUSY. */
SHED_MUST_CHECK enum shed_code
shed_lock_holder_init(struct shed_lock_holder *holder, uint64_t wait_ms,
                      struct shed_error *err);

/* For the algorithms. The i-th key. */
void shed_exchange_add_key(const struct shed_exchange *exchange,
                           struct shed_args *args, int i);
void shed_exchange_add_number(struct shed_exchange *exchange, unsigned slot,
                              struct shed_args *args, uint64_t number);

/* Renew by compare-and-set of what stands at the key; lease_ms 0: no end; to
 * empty: remove it. */
void shed_exchange_add_swap(struct shed_exchange *exchange,
                            struct shed_args *args, const char *from,
                            const char *to, uint64_t lease_ms);

/* Whether a reply is the text that SETNX and EXPIRE have set for us. */
bool shed_exchange_is_ours(const struct shed_exchange *exchange,
                           const struct shed_reply *reply);

/* End it; always false. */
bool shed_exchange_end(struct shed_exchange *exchange,
                       enum shed_exchange_end end);

/* Say in error that what stands at the key is no lock. */
void shed_exchange_refuse(struct shed_exchange *exchange);

/* End it because of an error reply, or of one that makes no sense. */
bool shed_exchange_fail(struct shed_exchange *exchange,
                        const struct shed_reply *reply);

/* Begin again, because what stood there is gone; a few times at most. */
bool shed_exchange_again(struct shed_exchange *exchange);

/* The fields that differ from one exchange of an operation to the next. */
void shed_exchange_begin(struct shed_exchange *exchange, enum shed_lock_op op,
                         const struct shed_lock_holder *holder);

struct shed_links;

/* Run an exchange to its end in the caller's thread; may_repeat ones only. */
void shed_exchange_run_blocking(struct shed_exchange *exchange,
                                struct shed_links *links,
                                struct shed_session *session,
                                uint64_t deadline_ms);

/* The same step by step, for the reactor: what to send next, and what
 * came (NULL: nothing, err says why). Both return false when the exchange is
 * over. */
bool shed_exchange_next_command(struct shed_exchange *exchange,
                                struct shed_session *session,
                                struct shed_args *args);
bool shed_exchange_on_reply(struct shed_exchange *exchange,
                            const struct shed_reply *reply,
                            const struct shed_error *err);

#endif
