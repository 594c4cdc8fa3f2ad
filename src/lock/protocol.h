/*
 * The protocol of a lock with one server. An exchange is one operation on the
 * lock at one server, command by command. An algorithm knows which commands to
 * send and what the replies mean. It is pure, so that a test can play the
 * server.
 */
#ifndef SHED_LOCK_PROTOCOL_H
#define SHED_LOCK_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include <snowshed/lock.h>

#include "wire/script.h"
#include "client/client.h"

#define SHED_TOKEN_BYTES 16
#define SHED_TOKEN_HEX_BYTES ((size_t)2 * SHED_TOKEN_BYTES)

enum shed_lock_op {
    SHED_LOCK_OP_ACQUIRE,
    SHED_LOCK_OP_EXTEND,
    SHED_LOCK_OP_RELEASE,
    SHED_LOCK_OP_UNDO,    /* remove what a try may have left, if it is there */
    SHED_LOCK_OP_ADVANCE, /* make later fencing numbers higher than one */
    SHED_LOCK_OP_CONFIRM  /* have replicas acknowledge it; no command of its
                             algorithm's: shed_exchange_on_ack ends it */
};

enum shed_exchange_end {
    SHED_EXCHANGE_YES,    /* done: the lock is ours, or was until now */
    SHED_EXCHANGE_NO,     /* it is another's, or no longer ours */
    SHED_EXCHANGE_FAILED, /* an error, or no answer: it may have happened */
    SHED_EXCHANGE_WRONG,  /* it can never succeed: error says why */
    SHED_EXCHANGE_ENDS
};

/* Who holds the lock, or wants to. */
struct shed_lock_holder {
    unsigned char token[SHED_TOKEN_BYTES];
    char token_hex[SHED_TOKEN_HEX_BYTES + 1];
    uint64_t wait_ms; /* how long it waits: it keeps its place in a fair queue
                         for this long */
    /* TIMESTAMP: the end that it has set; and the one that is being set, or may
     * be there because that was not answered; 0: none */
    uint64_t expires, pending_expires;
    bool is_unordered; /* a try went over another connection than the reactor's
                          and was not answered: the server may execute it after
                          what is sent now */
};

enum { /* the keys of a lock, in the order of the scripts' KEYS */
       SHED_LOCK_KEY,
       SHED_LOCK_KEY_COUNTER,
       SHED_LOCK_KEY_SUSPICION,
       SHED_LOCK_KEY_WAITERS,
       SHED_LOCK_KEY_QUEUE, /* from here on of a fair lock */
       SHED_LOCK_KEY_OFFER,
       SHED_LOCK_KEYS
};

/* The lock, as all its exchanges know it; set when it is opened. */
struct shed_lock_spec {
    struct shed_bytes
        key[SHED_LOCK_KEYS]; /* the first three algorithms have only one */
    const struct shed_lock_options *options;
    const struct shed_algorithm *algorithm; /* that of the options */
    unsigned char handle[SHED_TOKEN_BYTES]; /* random: identifies the handle */
};

/* EXPIRE: a lock that was seen without a time to live. */
#define SHED_SEEN_BYTES 64

struct shed_lock_seen {
    uint64_t since_ms; /* 0: none */
    size_t size;
    char bytes[SHED_SEEN_BYTES]; /* the beginning of its value */
};

struct shed_exchange {
    /* the question */
    const struct shed_lock_spec *spec;
    enum shed_lock_op op;
    struct shed_lock_holder holder; /* then with what the algorithm has set */
    uint64_t lease_ms;
    uint64_t asked_ms; /* before it was sent */
    bool may_grant;    /* EXTEND: if nobody has the lock there, it is granted */
    unsigned epochs;   /* of the lock at that time */
    uint64_t fence;    /* ADVANCE: later ones are above it; CONFIRM: the token;
                          then, of the answer YES: ACQUIRE, CONFIRM: the token, 0:
                          none; ADVANCE: the counter before it */
    struct shed_lock_seen seen; /* a server's, from one exchange to the next */
    /* how this process is known to the server, and its clocks; set before each
     * command by the caller of next_command */
    struct shed_identity identity;
    uint64_t wall_ms, now_ms;
    /* while it is under way; used by the algorithm */
    int step;
    char digits[4][SHED_DIGITS];
    enum shed_script script; /* of the last command, if that was a script */
    /* the answer */
    enum shed_exchange_end end;
    bool has_waiters; /* RELEASE, YES: others wait */
    bool is_takeover; /* ACQUIRE, YES: taken from a dead holder */
    bool is_repeated; /* it was sent twice; the first one may have been executed
                       */
    bool is_unsent;   /* FAILED: it was never sent; the breaker has refused it,
                         or it waited too long for a link */
    bool is_by_link;  /* it went over another connection than the session's: the
                         key's next change is not announced, and if it failed
                         the server may execute it after what is sent now */
    uint64_t look_ms; /* NO: in how many ms it may be free; 0: unknown */
    struct shed_error error;
};

struct shed_algorithm {
    bool has_tokens;  /* fencing tokens, and keys that are named for it; all its
                         commands compare the holder's token, so an exchange that
                         is run twice does no harm */
    bool has_lease;   /* it expires */
    bool can_undo;    /* what a try has left can be told from what others set */
    uint64_t poll_ms; /* the pause before the next look, while pushes arrive */
    /* Add the next command to args. Returns: false when there is none; then end
     * is set. */
    bool (*next_command)(struct shed_exchange *exchange,
                         struct shed_args *args);
    /* Take a reply, never NULL and never NOSCRIPT. Returns: true when there is
     * another command to send; false: end is set. */
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

/* For the algorithms: add the i-th key. */
void shed_exchange_add_key(const struct shed_exchange *exchange,
                           struct shed_args *args, int i);
void shed_exchange_add_number(struct shed_exchange *exchange, unsigned slot,
                              struct shed_args *args, uint64_t number);

/* Add the script that sets the key to "to" if its value is "from". lease_ms 0:
 * without an expiry. If "to" is empty the key is removed. If it is another
 * value, with an expiry, then only a key without one is set. */
void shed_exchange_add_swap(struct shed_exchange *exchange,
                            struct shed_args *args, struct shed_bytes from,
                            const char *to, uint64_t lease_ms);

/* End the exchange. Returns: false, always. */
bool shed_exchange_end(struct shed_exchange *exchange,
                       enum shed_exchange_end end);

/* End it by its error: YES if there is none, WRONG if it is denied, else
 * FAILED. Returns: false, always. */
bool shed_exchange_end_by_error(struct shed_exchange *exchange);

/* End it with YES or NO. Returns: false, always. */
bool shed_exchange_answer(struct shed_exchange *exchange, bool is_yes);

/* End it because the value at the key is not a lock. Returns: false, always. */
bool shed_exchange_refuse(struct shed_exchange *exchange);

/* End the exchange because of an error reply, or of one that makes no sense. */
bool shed_exchange_fail(struct shed_exchange *exchange,
                        const struct shed_reply *reply);

/* End it with NO: it may be free in so many ms. Returns: false, always. */
bool shed_exchange_lose(struct shed_exchange *exchange, uint64_t look_ms);

/* A question about the lock, with the lease of its options. */
struct shed_exchange shed_exchange_make(const struct shed_lock_spec *spec,
                                        enum shed_lock_op op,
                                        const struct shed_lock_holder *holder);

/* End a CONFIRM by its answer. */
void shed_exchange_on_ack(struct shed_exchange *exchange,
                          const struct shed_ack *ack);

/* Run an exchange step by step: the next command to send, and the reply (NULL:
 * none came, and err says why). Both return false when the exchange is over;
 * with an algorithm that has tokens, the first reply ends it. */
bool shed_exchange_next_command(struct shed_exchange *exchange,
                                struct shed_client *client,
                                struct shed_args *args);
bool shed_exchange_on_reply(struct shed_exchange *exchange,
                            const struct shed_reply *reply,
                            const struct shed_error *err);

#endif
