/*
 * One key of a cache, as it is in Redis now: read, then shown as text or as
 * JSON, by get, watch and check.
 */
#ifndef CLI_ENTRY_H
#define CLI_ENTRY_H

#include "entry/entry.h"
#include "cli/key.h"
#include "cli/presence.h"
#include "cli/tags.h"

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

/* What asks for the header of an entry. */
#define CLI_ASK_HEADER "GETRANGE KEY 0 63"

/* What kinds are called: as a word, and in a sentence. */
extern const struct cli_kind_names {
    const char *name, *text;
} cli_kinds[CLI_KINDS];

/* Whether the entry is one that a load has stored: a row, or no such row. */
bool cli_kind_is_stored(enum cli_kind kind);

/* Whether its header is decoded. */
bool cli_kind_is_decoded(enum cli_kind kind);

/* What an entry of size bytes is by an answer to CLI_ASK_HEADER, or to GET.
 * size -1: it is not known, so neither is whether the entry is DAMAGED. If it
 * is an entry, *out has type, flags and times. */
enum cli_kind cli_kind_of(const struct shed_reply *head, long long size,
                          struct shed_entry *out);

struct cli_entry {
    const struct cli_key *key;
    enum cli_kind kind;
    struct shed_entry entry;         /* of VALUE, NEGATIVE, LEASE, FAILURE */
    struct shed_entry_holder holder; /* of LEASE */
    struct cli_presence presence;    /* of the holder, once read */
    struct cli_miss miss; /* of VALUE and NEGATIVE, once judged; points into the
                             reply */
    long long pttl;       /* -1: no expiry; -2: no key */
    long long refresh_pttl;    /* of the refresh's lease or failure marker; -2:
                                  none */
    bool has_refresh_failed;   /* it is a marker */
    struct shed_entry refresh; /* if so; its payload is not kept */
    uint64_t now_ms;           /* by the server's clock */
    uint64_t left_ms; /* how long a row is fresh, a lease counts, a failure
                         answers callers; 0: no longer */
    struct shed_bytes bytes;  /* all of it, with the header */
    struct shed_reply *reply; /* bytes and entry point into it */
};

/* Read the entry at key, in several round trips. entry keeps a pointer to
 * key. Ownership: entry->reply is to be freed. */
void cli_entry_read(struct cli_redis *redis, const struct cli_key *key,
                    struct cli_entry *out);

/* Send the UNLINK of an entry and its refresh lease, by its key in Redis. */
void cli_entry_send_unlink(struct cli_redis *redis, struct shed_bytes name);

/* Set miss. */
void cli_entry_judge(struct cli_entry *entry, const struct cli_tags *tags);

/* Make an entry of the reply to GET, which it takes over; what only other
 * answers tell is left at zero. */
void cli_entry_decode(struct cli_entry *entry, const struct cli_key *key,
                      struct shed_reply *reply);

/* Whether it is a row whose value is NULL. */
bool cli_entry_is_null(const struct cli_entry *entry);

/* Say what is known of it. */
void cli_entry_show(const struct cli_entry *entry, json_t *out);

#endif
