/* What a put sends to Redis, and how often. */
#ifndef SHED_CACHE_PUT_H
#define SHED_CACHE_PUT_H

#include "cache/cache.h"

/* A row that is put; its bytes and tags are borrowed. */
struct shed_put_row {
    struct shed_bytes row;
    uint64_t ttl_ms; /* 0: the cache's */
    uint64_t version;
    bool has_version;
    bool has_position; /* the cache has tags */
    uint64_t position; /* of their log */
    const unsigned char *tags;
    size_t tags_size;
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
};

/* The call of the script, and what its arguments are in. */
struct shed_put_args {
    struct shed_args args;
    struct shed_entry_parts parts;
    char fresh[SHED_DIGITS], kept[SHED_DIGITS];
};

/* Whether the log of tags has to be read first: a cache that has just been
 * opened knows no position yet, and with that its row would look older than
 * every invalidation. Without an answer of Redis it does. */
bool shed_put_needs_log(const struct shed_cache *cache);

/* Begin the call, whose last argument is missing: when it is too late, by the
 * server's clock. The suffix of its refresh lease's name is behind the key. All
 * is borrowed. */
void shed_put_begin(struct shed_put_args *out, const struct shed_cache *cache,
                    const struct shed_put_row *put, struct shed_bytes key);

/*
 * The tries of one put. After its call it must not be carried out any more, nor
 * a second time: it would replace what has been written and loaded since, over
 * whatever connection. So each try has a second, or until the end of the call,
 * and a call that has lost a connection with it does not end sooner. What came
 * too late goes once more.
 */
struct shed_put_tries {
    uint64_t deadline_ms; /* of the call; set by its owner */
    uint64_t until_ms;    /* until then the last try can be carried out */
    bool was_lost;        /* the last one, with a connection, and may be carried
                             out: it is sent once more as it was */
    unsigned count;       /* that came too late */
    /* what the last one of these has told; 0: there was none, or another server
       may get the next */
    uint64_t server_ms, heard_ms;
    uint64_t late_ms; /* what the last try was told, see shed_put_begin_try */
};

/* Begin a try. Returns: when it is too late, by the server's clock; 0: that is
 * not known yet, and the try will tell it. */
uint64_t shed_put_begin_try(struct shed_put_tries *tries,
                            struct shed_client *client, struct shed_bytes key);

/* Take its reply, or NULL and in *why why there was none. Returns: whether it
 * came too late, and goes once more; else *why says how the put has ended. */
bool shed_put_is_late(struct shed_put_tries *tries,
                      const struct shed_reply *reply, struct shed_error *why);

/* Whether a write that got this reply, or none because of *why, which is else
 * SHED_OK, was not done; what is what it should have done: then *why says why.
 */
void shed_write_judge(const struct shed_reply *reply, const char *what,
                      struct shed_error *why);

#endif
