/*
 * What this process knows of the invalidations of a cache's tags, and how it
 * learns of them: from the cache's log in Redis, NAME:tags, a sorted set (see
 * invalidate_tag.lua).
 *
 * The reactor reads the log over the session, so that Redis announces its next
 * change; then it reads what has been added. From the announcement to the end
 * of that read, and before the first one, the log is not known, and a get waits
 * for it before its GET. Where changes are not announced, the log is read only
 * for those who wait, and a read counts for SHED_TAG_LOG_TRUST_MS.
 *
 * A log that ends below a position that this process knows, or has seen in an
 * entry, has lost its end: to a failover, an eviction, DEL. What was noted
 * there is lost to others, and the next positions could be below those of
 * entries. So the process that finds this writes "everything" above what it
 * knows. It is found by a read, because each begins at the last position that
 * was read.
 *
 * Any thread, except for the functions that say otherwise.
 */
#ifndef SHED_TAG_LOG_H
#define SHED_TAG_LOG_H

#include <snowshed/snowshed.h>

#include "known/tags.h"
#include "entry/key.h"
#include "entry/parts.h"

/* The key of the log is the cache's name with this suffix. */
#define SHED_TAG_LOG_SUFFIX ":tags"

/* How long a read of the log counts where changes are not announced. */
#define SHED_TAG_LOG_TRUST_MS 1000

struct shed_tag_log;

/* The command that reads the log at key from a position on, as many of its
 * members as one reply holds. key and digits, which are written, are borrowed.
 */
void shed_tag_log_ask(struct shed_bytes key, uint64_t position,
                      char digits[SHED_DIGITS], struct shed_args *out);

/* What a reply to it holds. */
enum shed_tag_heard {
    SHED_TAG_HEARD_ALL,  /* what there is */
    SHED_TAG_HEARD_PART, /* as much as fits: ask for the rest */
    SHED_TAG_HEARD_LOST, /* all of it, and it ends below due */
    SHED_TAG_HEARD_OTHER /* a score that is no position: no log */
};

/* Note what the reply to a read from *position on holds, up to a score that is
 * no position, and set *position to its last one; 0: it holds none. The log
 * reached due when it was asked. */
enum shed_tag_heard shed_tag_log_hear(struct shed_tags *tags,
                                      uint64_t *position, uint64_t due,
                                      const struct shed_reply *reply);

/* Make the log of a cache, which keeps about tags_limit tags, and begin to
 * follow it. Borrows cache. Not on the reactor thread. Returns: NULL when out
 * of memory. */
struct shed_tag_log *shed_tag_log_create(const struct shed_cache *cache);

/* Nobody may use it. Not on the reactor thread. NULL is allowed. */
void shed_tag_log_close(struct shed_tag_log *log);

/* Whether an entry can be judged without another read of the log. NULL, of a
 * cache without tags: it can. */
bool shed_tag_log_is_known(const struct shed_tag_log *log);

/* Who waits for the log to be read; all zero at the beginning. */
struct shed_tag_learner;

/* Called once, on the reactor thread: the log has been read (why is NULL), or
 * could not be. */
typedef void shed_tag_learnt_fn(struct shed_tag_learner *learner,
                                const struct shed_error *why);

struct shed_tag_learner {
    /* used by the log */
    shed_tag_learnt_fn *fn; /* NULL: it does not wait */
    struct shed_node node;
    uint64_t term;
};

/* Have the log read, and its end restored if it is lost. A read that was under
 * way will do, unless the log may have changed since it was sent. fn is never
 * called before this returns. Reactor thread. */
void shed_tag_log_await(struct shed_tag_log *log,
                        struct shed_tag_learner *learner,
                        shed_tag_learnt_fn *fn);

/* Wait no longer; a learner that does not wait is allowed. Reactor thread. */
void shed_tag_log_leave(struct shed_tag_log *log,
                        struct shed_tag_learner *learner);

/* Whether an entry that decode has accepted is no miss by one of its tags, as
 * far as the log is known. One that is newer than that is a miss, and the log
 * counts as known no longer. */
bool shed_tag_log_admits(struct shed_tag_log *log, const void *entry);

/* The position for the entry of a load that begins now. */
uint64_t shed_tag_log_position(struct shed_tag_log *log);

/* How often an invalidation of a tag has become known, or was added: before
 * the log counts as known again. While this stays as it is, what is being
 * loaded has been outdated by none. */
uint64_t shed_tag_log_news(const struct shed_tag_log *log);
void shed_tag_log_add_news(struct shed_tag_log *log);

/* Write the newest position that is known or was seen, for the calls of the
 * script. */
void shed_tag_log_mark(struct shed_tag_log *log, char digits[SHED_DIGITS]);

/* Make the call of the script that invalidates a tag. The tag, one of no
 * bytes for all entries, and mark are borrowed. */
void shed_tag_log_write(const struct shed_tag_log *log, struct shed_bytes tag,
                        const char mark[SHED_DIGITS], struct shed_args *out);

/* A tag where keys of entries are, too: as a key of a name that no entry has,
 * which is written to room. */
#define SHED_TAG_NAME_MAX_BYTES                                                \
    (SHED_NAME_MAX_BYTES + 8 + SHED_ENTRY_TAG_MAX_BYTES)

struct shed_key shed_tag_log_key(const struct shed_tag_log *log,
                                 struct shed_bytes tag,
                                 char room[SHED_TAG_NAME_MAX_BYTES]);

/* A tag was invalidated at this position. */
void shed_tag_log_note(struct shed_tag_log *log, struct shed_bytes tag,
                       uint64_t position);

/* See tags.h. */
SHED_MUST_CHECK bool shed_tag_log_hold(struct shed_tag_log *log,
                                       struct shed_bytes tag);
void shed_tag_log_release(struct shed_tag_log *log, struct shed_bytes tag);

#endif
