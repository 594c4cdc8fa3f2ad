/*
 * Scenarios of the scripts: calls, and the replies that they must get. Each
 * runs on any store: the model, or a real Redis.
 *
 * A step is a call, and its expected reply; both are words. What other clients
 * do before the call stands before it, with a comma behind each. At the end
 * there is memory again.
 *
 *   acquire PROCESS FLIGHT VERSION [epoch=N] [tracked] [grace] [patient] [seen]
 *       [due=N] [waited]
 *       -> LEAD VERSION HOW | WAIT | HIT ENTRY | FAILED ENTRY; if it is about a
 *       refresh, "of N" follows, the nonce of the value. VERSION is a letter;
 *       the epoch is 1 unless it is named; grace: with a grace of half a lease,
 *       and not of 0; patient: with one that is longer than a lease; seen: the
 *       present value was found corrupt; due: the value with nonce N was found
 *       due
 *   publish VERSION ROW TTL [of=N]
 *       -> STORED | SUPERSEDED ENTRY | INVALIDATED. ROW "-": no such row; N:
 *       the value that a refresh replaces
 *   fail PROCESS FLIGHT VERSION REASON TTL [refresh]      -> 1 | 0
 *   renew PROCESS FLIGHT VERSION [epoch=N] [refresh]      -> 1 | 0
 *   put ROW TTL [too-late] | invalidate | expire
 *       -> a number; LATE: the server's clock
 *   set TEXT | list | del | persist | flip | cut SIZE | age MS | pttl MS
 *       what other clients do: flip changes the last byte, cut shortens, age
 *       moves an entry's times into the past
 *   refresh             a foreign text at the key of the refresh lease
 *   full | room         memory is out, or there is some again
 *   open PROCESS [EPOCH] | close PROCESS [EPOCH]          channels
 *   pushes CLIENT                                         -> 1 | 0
 *
 * ENTRY is its type and payload; the nonce of a stored row is its first letter.
 * A client has the number of its process. OOM is the reply when Redis is out of
 * memory.
 */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#include "support/model.h"

#define SCENARIO_STEPS_MAX 12
#define SCENARIO_WINDOW_MS 60000 /* of a value, after its freshness */

struct scenario {
    const char *name;
    const char *steps[SCENARIO_STEPS_MAX][2];
};

extern const struct scenario scenarios[];
extern const size_t scenario_count;

struct store_state {
    enum { STORE_ABSENT, STORE_STRING, STORE_OTHER } type;
    struct model_bytes bytes;
    bool has_ttl;
    uint64_t pttl_ms;
    uint64_t now_ms;
};

/* A store that a scenario runs on: a key, and that of its refresh lease. */
struct store {
    void (*call)(struct store *, const struct model_call *,
                 struct model_reply *);
    void (*get)(struct store *, bool is_refresh, struct store_state *out);
    void (*set)(struct store *, bool is_refresh, const struct store_state *);
    void (*set_full)(struct store *, bool is_full);
    void (*set_channel)(struct store *, unsigned process, unsigned epoch,
                        bool is_open);
    bool (*take_pushes)(struct store *, unsigned client);
};

#define STEP_TEXT_BYTES 256

/* Run one step, or what another client does; out gets the reply in the form
 * that the table uses, or OK. */
void scenario_step(struct store *store, const char *step,
                   char out[STEP_TEXT_BYTES]);

/* How two states differ; NULL if they do not. Times may differ by a few
 * seconds, which a slow machine needs between two steps. */
const char *scenario_difference(const struct store_state *a,
                                const struct store_state *b);

/* The model as a store. */
struct model_store {
    struct store store;
    struct model model;
};

void model_store_init(struct model_store *store);

#endif
