/*
 * A twin of the store, in memory and with virtual time: what the scripts of
 * src/redis/ do to a key, byte for byte, with the same arguments. test_scripts
 * holds it against a real Redis; test_sim runs on it.
 *
 * Keys, processes and clients are small numbers. A client is a connection with
 * tracking; the process p has the id of 16 hexadecimal digits that is p.
 */
#ifndef TWIN_H
#define TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/entry.h"
#include "redis/script.h"

#define TWIN_KEYS 8
#define TWIN_PROCESSES 64
#define TWIN_BYTES_MAX 192
#define TWIN_ARGS_MAX 8

struct twin_bytes {
    size_t size;
    unsigned char at[TWIN_BYTES_MAX];
};

struct twin_slot {
    enum { TWIN_ABSENT, TWIN_STRING, TWIN_LIST } type;
    struct twin_bytes bytes; /* of a string */
    bool has_ttl;
    uint64_t expires_ms;
    uint64_t trackers; /* clients that have read it since it last changed */
};

struct twin {
    uint64_t now_ms; /* the server's clock */
    bool is_full;    /* writes that need memory are refused */
    struct twin_slot slot[TWIN_KEYS];
    struct twin_slot refresh[TWIN_KEYS];
    uint64_t channels;          /* processes that are subscribed, a bit each */
    uint64_t pushed[TWIN_KEYS]; /* clients that were sent a push; a reader
                                   takes them out */
};

struct twin_call {
    enum shed_script script;
    size_t key;
    unsigned client;
    bool is_tracked; /* CLIENT CACHING YES came before it */
    size_t argc;
    struct twin_bytes argv[TWIN_ARGS_MAX];
};

struct twin_reply {
    enum { TWIN_PARTS, TWIN_INTEGER, TWIN_OOM, TWIN_ERROR } type;
    size_t count; /* of parts */
    struct twin_bytes part[3];
    long long integer; /* the number; of WAIT, its ms */
};

/* By what the entries of a key are known as its own. */
struct shed_entry_key twin_key(size_t key);

void twin_call(struct twin *twin, const struct twin_call *call,
               struct twin_reply *reply);

/* The commands of others. */
void twin_del(struct twin *twin, size_t key);
void twin_set(struct twin *twin, size_t key, const void *bytes, size_t size);
void twin_flush(struct twin *twin);

/* Remove the keys whose time is over, as the server does sooner or later. */
void twin_expire(struct twin *twin);

/* What stands at a key now. */
const struct twin_slot *twin_peek(struct twin *twin, size_t key);

/* Arguments and calls. */
void twin_bytes_set(struct twin_bytes *out, const void *bytes, size_t size);
void twin_bytes_number(struct twin_bytes *out, uint64_t number);
bool twin_bytes_are(const struct twin_bytes *bytes, const char *text);
uint64_t twin_get_u64(const unsigned char *at);

struct twin_owner {
    unsigned process;
    uint64_t flight;
    unsigned char version[16];
};

struct twin_lease_times {
    uint64_t lease_ms, record_ms, grace_ms;
};

/* seen is the beginning of an entry seen to be corrupt, or NULL. */
void twin_make_acquire(struct twin_call *call, size_t key,
                       const struct twin_owner *owner, bool has_channel,
                       const struct twin_lease_times *times,
                       const struct twin_bytes *seen);
void twin_make_publish(struct twin_call *call, size_t key,
                       const unsigned char *version, bool is_row,
                       const void *payload, size_t size, uint64_t ttl_ms);
void twin_make_fail(struct twin_call *call, size_t key,
                    const struct twin_owner *owner, const char *reason,
                    uint64_t ttl_ms);
void twin_make_renew(struct twin_call *call, size_t key,
                     const struct twin_owner *owner, uint64_t lease_ms);
void twin_make_invalidate(struct twin_call *call, size_t key);
void twin_make_put(struct twin_call *call, size_t key, const void *payload,
                   size_t size, uint64_t ttl_ms);

#endif
