/*
 * A model of the store, in memory and with virtual time: it does what the
 * scripts of src/redis/ do to a key, byte for byte, with the same arguments.
 * test_scripts compares it with a real Redis; test_sim runs on it.
 *
 * Keys, processes and clients are small numbers. A client is a connection with
 * tracking; the process p has the id of 16 hexadecimal digits that is p, and
 * epochs that are numbered from 1.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry/entry.h"
#include "flight/flight.h"
#include "wire/script.h"

#define MODEL_KEYS 8
#define MODEL_PROCESSES 64
#define MODEL_BYTES_MAX 192
#define MODEL_EPOCHS 64
#define MODEL_ARGS_MAX 10

struct model_bytes {
    size_t size;
    unsigned char at[MODEL_BYTES_MAX];
};

struct model_slot {
    enum { MODEL_ABSENT, MODEL_STRING, MODEL_LIST } type;
    struct model_bytes bytes; /* of a string */
    bool has_ttl;
    uint64_t expires_ms;
    uint64_t trackers; /* clients that have read it since it last changed */
    uint64_t pushed;   /* clients that were sent a push; the reader removes
                          them */
};

struct model {
    uint64_t now_ms; /* the server's clock */
    bool is_full;    /* writes that need memory are refused */
    struct model_slot slot[MODEL_KEYS];
    struct model_slot refresh[MODEL_KEYS];
    uint64_t channels[MODEL_PROCESSES]; /* of each process: the epochs whose
                                           channels are subscribed to, a bit
                                           each */
};

struct model_call {
    enum shed_script script;
    size_t key;
    bool is_refresh; /* fail and renew: the lease is that of the refresh */
    unsigned client;
    enum shed_flight_first first; /* of acquire: what goes in its place */
    bool is_tracked;              /* CLIENT CACHING YES came before it */
    size_t argc;
    struct model_bytes argv[MODEL_ARGS_MAX];
};

struct model_reply {
    enum { MODEL_PARTS, MODEL_INTEGER, MODEL_OOM, MODEL_ERROR } type;
    size_t count; /* of parts */
    struct model_bytes part[6];
    long long integer; /* the number; of WAIT, its ms */
    uint64_t age_ms;   /* of WAIT */
};

/* The key with which the checksums of a key's entries, and of its refresh
 * markers, are seeded. */
struct shed_bytes model_key(size_t key);
struct shed_bytes model_refresh_key(size_t key);

void model_call(struct model *model, const struct model_call *call,
                struct model_reply *reply);

/* Commands of other clients. */
void model_del(const struct model *model, struct model_slot *slot);
void model_set(struct model_slot *slot, const void *bytes, size_t size);
void model_flush(struct model *model);

/* Remove expired keys, as the server does sooner or later. */
void model_expire(struct model *model);

/* What the slot contains now. */
const struct model_slot *model_peek(const struct model *model,
                                    struct model_slot *slot);

/* Arguments and calls. */
void model_bytes_set(struct model_bytes *out, const void *bytes, size_t size);
void model_bytes_number(struct model_bytes *out, uint64_t number);
bool model_bytes_are(const struct model_bytes *bytes, const char *text);
uint64_t model_get_u64(const unsigned char *at);

struct model_owner {
    unsigned process;
    uint32_t flight;
    uint32_t epoch; /* 0: it has no channel */
    unsigned char version[16];
};

struct model_lease_times {
    uint64_t lease_ms, record_ms, grace_ms;
};

/* A row, or its absence. It is fresh for fresh_ms. */
struct model_value {
    bool is_row;
    unsigned char nonce[16];
    const void *payload;
    size_t size;
    uint64_t fresh_ms, ttl_ms;
    bool has_version;
    uint64_t version; /* of the row */
};

/* seen: the beginning of an entry that was found corrupt, or NULL. due: the
 * identity of a fresh value that is to be refreshed, or NULL.
 * has_waited: for a load that was under way. */
void model_make_acquire(struct model_call *call, size_t key,
                        const struct model_owner *owner,
                        const struct model_lease_times *times,
                        const struct model_bytes *seen,
                        const unsigned char *due, bool has_waited);
/* replaced: the nonce of the value that a refresh replaces, or NULL. keep: "",
 * or how that value is kept. */
void model_make_publish(struct model_call *call, size_t key,
                        const unsigned char *version,
                        const struct model_value *value,
                        const unsigned char *replaced, const char *keep);
/* is_refresh: the lease is that of a refresh. The marker answers everybody for
 * ttl_ms, and is there for kept_ms; 0: there is none. */
void model_make_fail(struct model_call *call, size_t key, bool is_refresh,
                     const struct model_owner *owner, const char *reason,
                     uint64_t ttl_ms, uint64_t kept_ms);
void model_make_renew(struct model_call *call, size_t key, bool is_refresh,
                      const struct model_owner *owner, uint64_t lease_ms);
void model_make_invalidate(struct model_call *call, size_t key);
void model_make_expire(struct model_call *call, size_t key, uint64_t in_ms);
/* until_ms: when it is too late. */
void model_make_put(struct model_call *call, size_t key,
                    const struct model_value *value, uint64_t until_ms);

#endif
