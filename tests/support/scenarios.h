/*
 * Scenarios of the scripts: calls and the replies that they must get. Each runs
 * on any store: on the model and on a real Redis.
 *
 * A step is a line of words, and so is the reply that is expected:
 *   acquire PROCESS FLIGHT VERSION [tracked] [nochannel] [young] [seen] [due=N]
 *           (VERSION is a letter; young: with a long grace period; seen: the
 *           present value was seen to be corrupt; due: the value of nonce N was
 *           found due)      -> LEAD VERSION HOW | WAIT | HIT ENTRY | FAILED
 * ENTRY If it is about a refresh, "of N" follows, the nonce of the value.
 *   publish VERSION ROW TTL [of=N]  (ROW - : no such row; N: the value that a
 *           refresh replaces)          -> STORED | SUPERSEDED ENTRY |
 * INVALIDATED fail PROCESS FLIGHT VERSION REASON TTL [refresh]    -> 1 | 0
 *   renew PROCESS FLIGHT VERSION [refresh]              -> 1 | 0
 *   put ROW TTL, invalidate, expire            -> number
 *           (The nonce of what is stored is the first letter of its row.)
 *   set TEXT, list, del, persist, flip, cut SIZE, age MS, pttl MS: what other
 *           clients do; flip changes the last byte, cut shortens, age moves an
 *           entry's times into the past    refresh: takes the refresh lease
 *   full, room: memory    open PROCESS, close PROCESS: channels
 *   pushes CLIENT                              -> 1 | 0
 * ENTRY is its type and payload. A client has the number of its process. OOM is
 * the reply where Redis is out of memory.
 */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#include "support/model.h"

#define SCENARIO_STEPS_MAX 12

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

/* What a scenario runs on. All functions are about one key. */
struct store {
    void (*call)(struct store *, const struct model_call *,
                 struct model_reply *);
    void (*get)(struct store *, struct store_state *out);
    void (*get_refresh)(struct store *, struct store_state *out);
    void (*set)(struct store *, const struct model_bytes *, bool keep_ttl);
    void (*set_list)(struct store *);
    void (*set_refresh)(struct store *); /* the key of the refresh lease */
    void (*del)(struct store *);
    void (*set_pttl)(struct store *, uint64_t pttl_ms); /* 0: none */
    void (*set_full)(struct store *, bool is_full);
    void (*set_channel)(struct store *, unsigned process, bool is_open);
    bool (*take_pushes)(struct store *, unsigned client);
};

#define STEP_TEXT_BYTES 256

/* Run one step; out gets the reply as the table writes it. */
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
