/*
 * One key of a cache, as it is in Redis now: read, then shown as text or as
 * JSON, by get, why, watch and check.
 */
#ifndef CLI_ENTRY_VIEW_H
#define CLI_ENTRY_VIEW_H

#include "cache/cache.h"
#include "entry/entry.h"
#include "cli/tags.h"
#include "cli/presence.h"

/* A key of a cache; named points into the struct, so it must not be copied. */
struct cli_key {
    const char *cache;
    struct shed_named_key named;
};

enum cli_kind {
    CLI_NONE,     /* the key does not exist */
    CLI_VALUE,    /* a row, possibly NULL */
    CLI_NEGATIVE, /* no such row */
    CLI_LEASE,
    CLI_FAILURE,
    CLI_DAMAGED, /* ours, but its length or checksum is wrong */
    CLI_FOREIGN, /* a string that this version does not know */
    CLI_OTHER    /* a list, a hash, ... */
};

#define CLI_KINDS 8

const char *cli_kind_name(enum cli_kind kind);

struct cli_entry {
    const struct cli_key *key;
    enum cli_kind kind;
    struct shed_entry entry;         /* of VALUE, NEGATIVE, LEASE, FAILURE */
    struct shed_entry_holder holder; /* of LEASE */
    struct cli_presence presence;    /* of the holder */
    struct cli_miss miss; /* of VALUE and NEGATIVE, once judged; points into the
                             reply */
    int format;           /* of FOREIGN; -1: unknown */
    size_t size;          /* bytes, with the header */
    long long pttl;       /* -1: no expiry; -2: no key */
    long long refresh_pttl;    /* of the refresh's lease or failure marker; -2:
                                  none */
    bool has_refresh_failed;   /* it is a marker */
    struct shed_entry refresh; /* if so; its payload is not kept */
    uint64_t now_ms;           /* by the server's clock */
    struct shed_reply *reply;  /* entry points into it */
};

/* Set a key from the words of a call; ends the program if they are not valid.
 * With --escaped the key is unescaped in place. */
void cli_key_init(struct cli_key *key, const struct cli_call *call,
                  const char *cache, char *text);

/* The same from bytes. Returns: NULL, or what is wrong. */
const char *cli_key_set(struct cli_key *key, const char *cache,
                        const void *bytes, size_t size);

/* Why this cannot be the name of a cache; NULL: it can. */
const char *cli_fault_of_name(const char *name);

/* End the program if this cannot be the name of a cache. */
void cli_check_cache(const struct cli_call *call, const char *name);

/* Set a key from its name in Redis, NAME:{KEY}. Returns: false if it does not
 * belong to the cache, or is a side key. */
bool cli_key_parse(struct cli_key *key, const char *cache, const char *redis,
                   size_t size);

/* The key as the program knows it; named.key.size bytes. */
const char *cli_key_bytes(const struct cli_key *key);

/* The same as cli_word has it, to be freed; or as object["key"]. */
char *cli_key_word(const struct cli_key *key);
void cli_key_json(json_t *object, const struct cli_key *key);

/* Read the entry at key, in several round trips. entry keeps a pointer to
 * key. */
void cli_entry_read(struct cli_redis *redis, const struct cli_key *key,
                    struct cli_entry *out);
void cli_entry_free(struct cli_entry *entry);

/* Send the GETRANGE of the header of an entry, by its key in Redis. */
void cli_entry_send_header(struct cli_redis *redis, const char *name,
                           size_t size);

/* What an entry is by its type. */
enum cli_kind cli_kind_of(enum shed_entry_type type);

/* Send the UNLINK of an entry and its refresh lease, by its key in Redis. */
void cli_entry_send_unlink(struct cli_redis *redis, const char *name,
                           size_t size);

/* Set miss. */
void cli_entry_judge(struct cli_entry *entry, const struct cli_tags *tags);

/* Decode the reply to GET; sets kind, entry, holder, format and size. The reply
 * remains the caller's. */
void cli_entry_decode(struct cli_entry *entry, const struct shed_reply *reply);

/* Whether it is a value that is no longer fresh. */
bool cli_entry_is_stale(const struct cli_entry *entry);
uint64_t cli_entry_age_ms(const struct cli_entry *entry);

/* How long a lease still counts, or a failure answers callers; 0: it is over.
 */
uint64_t cli_entry_left_ms(const struct cli_entry *entry);

/* How long ago a refresh has failed, and how long it is not tried again. */
uint64_t cli_refresh_failed_ms(const struct cli_entry *entry);
uint64_t cli_refresh_pause_ms(const struct cli_entry *entry);

/* Print the header, and the payload or the reason. */
void cli_entry_print(const struct cli_entry *entry);
json_t *cli_entry_json(const struct cli_entry *entry);

/* Print the first line of a text about a key: CACHE:{KEY}, and what it is. */
void cli_entry_print_title(const struct cli_entry *entry);

#endif
