/*
 * The kinds of events, and their lines in the log. The invariants: whatever a
 * program's names and keys are, a line is one line of printable text that fits;
 * while a kind has lines that are suppressed, no other line of it passes: their
 * number comes first.
 */
#include "client/event_log.h"

#include <stdio.h>
#include <string.h>

#define NAME_SHOWN_BYTES 96 /* of a name or a key */
#define MS_PER_S 1000

enum { LOG_NEVER = -1 };

/* Lines in an interval of a kind of which each is news. */
#define NEWS_MOST 10

/* One row per kind: its text, and the log levels of successes and of troubles.
 */
static const struct kind {
    const char *words;
    int level_ok, level_trouble;
    bool is_news; /* each takes back the one before, whatever its outcome, or is
                     about another lock. Of all others an outage brings the
                     same again and again */
} kinds[] = {
    [SHED_EVENT_SUPPRESSED] = {"events left out", LOG_NEVER, LOG_NEVER, false},
    [SHED_EVENT_CONNECTED] = {"connected to Redis", SHED_LOG_INFO,
                              SHED_LOG_INFO, true},
    [SHED_EVENT_DISCONNECTED] = {"without Redis", LOG_NEVER, SHED_LOG_WARNING,
                                 true},
    [SHED_EVENT_LOAD_FINISHED] = {"load finished", LOG_NEVER, SHED_LOG_WARNING,
                                  false},
    [SHED_EVENT_TAKEOVER] = {"load taken over", SHED_LOG_WARNING,
                             SHED_LOG_WARNING, false},
    [SHED_EVENT_PUBLISH_REFUSED] = {"publish refused", SHED_LOG_INFO,
                                    SHED_LOG_WARNING, false},
    [SHED_EVENT_CORRUPT_ENTRY] = {"corrupt entry", SHED_LOG_WARNING,
                                  SHED_LOG_WARNING, false},
    [SHED_EVENT_INVALIDATED] = {"invalidated", LOG_NEVER, LOG_NEVER, false},
    [SHED_EVENT_LOCK_ACQUIRED] = {"lock acquired", LOG_NEVER, LOG_NEVER, true},
    [SHED_EVENT_LOCK_TAKEN_OVER] = {"lock taken over", SHED_LOG_WARNING,
                                    SHED_LOG_WARNING, true},
    [SHED_EVENT_LOCK_RELEASED] = {"lock released", LOG_NEVER, SHED_LOG_WARNING,
                                  true},
    [SHED_EVENT_LOCK_LOST] = {"lock lost", SHED_LOG_WARNING, SHED_LOG_WARNING,
                              true},
    [SHED_EVENT_BREAKER] = {"breaker", SHED_LOG_INFO, SHED_LOG_WARNING, true},
    [SHED_EVENT_INVALIDATION_UNDELIVERED] = {"invalidation undelivered",
                                             SHED_LOG_WARNING, SHED_LOG_WARNING,
                                             false},
    [SHED_EVENT_INVALIDATION_DELIVERED] = {"invalidation delivered",
                                           SHED_LOG_INFO, SHED_LOG_INFO, false},
    [SHED_EVENT_INVALIDATION_DROPPED] = {"invalidation dropped", SHED_LOG_ERROR,
                                         SHED_LOG_ERROR, false},
    [SHED_EVENT_STALE_SERVED] = {"stale row served", SHED_LOG_INFO,
                                 SHED_LOG_INFO, false},
    [SHED_EVENT_FLEET] = {"fleet_loads applies again", SHED_LOG_INFO,
                          SHED_LOG_WARNING, true},
    [SHED_EVENT_LACKING] = {"Redis refuses a command", SHED_LOG_WARNING,
                            SHED_LOG_WARNING, true},
};

_Static_assert(sizeof(kinds) / sizeof(*kinds) == SHED_EVENT_KINDS,
               "one row for each kind");

const char *shed_event_kind_name(enum shed_event_kind kind)
{
    return (size_t)kind < SHED_EVENT_KINDS ? kinds[kind].words
                                           : "unknown event";
}

/* A publish that came too late is not a trouble. */
bool shed_event_is_trouble(enum shed_event_kind kind, enum shed_code outcome)
{
    return outcome != SHED_OK &&
           !(kind == SHED_EVENT_PUBLISH_REFUSED && outcome == SHED_ELOST);
}

/* LOG_NEVER, or an enum shed_log_level. */
static int level_of(const struct shed_event *e)
{
    if (e->kind == SHED_EVENT_DISCONNECTED && e->outcome == SHED_EDENIED)
        return SHED_LOG_ERROR;
    return shed_event_is_trouble(e->kind, e->outcome)
               ? kinds[e->kind].level_trouble
               : kinds[e->kind].level_ok;
}

bool shed_event_has_line(const struct shed_event *e)
{
    return level_of(e) != LOG_NEVER;
}

static const char *words_of(const struct shed_event *e)
{
    if (e->kind == SHED_EVENT_DISCONNECTED && e->outcome == SHED_EDENIED)
        return "refused by Redis";
    if (e->kind == SHED_EVENT_LOAD_FINISHED && e->outcome != SHED_OK)
        return "load failed";
    if (e->kind == SHED_EVENT_BREAKER && e->outcome != SHED_OK)
        return "breaker opened";
    if (e->kind == SHED_EVENT_LOCK_RELEASED && e->outcome != SHED_OK)
        return "lock release not confirmed";
    if (e->kind == SHED_EVENT_FLEET && e->outcome != SHED_OK)
        return "loads go on without fleet_loads";
    return kinds[e->kind].words;
}

/* Add bytes from the program, which can have any value. */
static size_t add_bytes(char *line, size_t at, struct shed_bytes bytes)
{
    const unsigned char *b = bytes.data;

    for (size_t i = 0; i < bytes.size && i < NAME_SHOWN_BYTES; i++)
        line[at++] = b[i] < ' ' || b[i] > '~' ? '?' : (char)b[i];
    return at;
}

static size_t add_text(char *line, size_t at, const char *text)
{
    for (size_t i = 0; text[i] != '\0' && i < SHED_REASON_BYTES; i++)
        line[at++] = text[i];
    return at;
}

static void write_line(const struct shed_event *e, size_t keys,
                       char line[SHED_LOG_LINE_BYTES])
{
    char more[32] = "";
    size_t at = add_text(line, 0, words_of(e));

    if (keys > 1)
        (void)snprintf(more, sizeof(more), " and %zu more", keys - 1);
    if (e->name.size > 0)
        at = add_bytes(line, add_text(line, at, ": "), e->name);
    if (e->key.size > 0)
        at = add_text(
            line, add_bytes(line, add_text(line, at, ", key "), e->key), more);
    if (e->reason != NULL && e->reason[0] != '\0')
        at = add_text(line, add_text(line, at, ": "), e->reason);
    line[at] = '\0';
}

/* -------------------------------------------------------------- how often */

/* The lines that an event's is limited with. */
static struct shed_log_kind *kind_of(struct shed_event_log *log,
                                     const struct shed_event *e)
{
    size_t kind = e->kind;

    if (kind == SHED_EVENT_DISCONNECTED)
        kind = SHED_EVENT_CONNECTED;
    return &log->kinds[2 * kind + (!kinds[kind].is_news &&
                                   shed_event_is_trouble(e->kind, e->outcome))];
}

static bool pass(const struct shed_event_log *log, struct shed_log_kind *k,
                 uint64_t now_ms)
{
    bool is_news = kinds[(k - log->kinds) / 2].is_news;

    return shed_limit_pass(&k->limit, is_news ? NEWS_MOST : 1,
                           SHED_LOG_INTERVAL_MS, now_ms);
}

/* Keep what is told of a line that has just been suppressed. */
static void hold_back(struct shed_log_kind *k, const struct shed_event *e,
                      size_t keys, bool is_one_of_many)
{
    enum shed_log_level level = (enum shed_log_level)level_of(e);
    bool is_first = k->limit.suppressed == 1;

    if (is_first || level > k->level)
        k->level = level;
    if (is_first || !is_one_of_many)
        write_line(e, keys, k->text);
}

bool shed_event_log_add(struct shed_event_log *log, const struct shed_event *e,
                        size_t keys, uint64_t now_ms, struct shed_log_line *out)
{
    struct shed_log_kind *k = kind_of(log, e);

    if (k->limit.suppressed > 0 || out == NULL) {
        k->limit.suppressed++;
    } else if (pass(log, k, now_ms)) {
        out->level = (enum shed_log_level)level_of(e);
        write_line(e, keys, out->text);
        return true;
    }
    hold_back(k, e, keys, out == NULL);
    return false;
}

bool shed_event_log_is_waiting(const struct shed_event_log *log)
{
    bool is_waiting = false;

    for (size_t i = 0; i < sizeof(log->kinds) / sizeof(*log->kinds); i++)
        is_waiting |= log->kinds[i].limit.suppressed > 0;
    return is_waiting;
}

/* It counts as a line, so it begins an interval. */
static void take(const struct shed_event_log *log, struct shed_log_kind *k,
                 uint64_t now_ms, struct shed_log_line *out)
{
    unsigned long long count = shed_limit_take(&k->limit);
    unsigned long long last_s =
        (now_ms - k->limit.began_ms + MS_PER_S - 1) / MS_PER_S;

    out->level = k->level;
    if (count > 1)
        (void)snprintf(out->text, sizeof(out->text),
                       "%s (and %llu more of this kind in the last %llu s)",
                       k->text, count - 1, last_s > 0 ? last_s : 1);
    else
        (void)snprintf(out->text, sizeof(out->text), "%s", k->text);
    if (shed_limit_is_over(&k->limit, SHED_LOG_INTERVAL_MS, now_ms))
        (void)pass(log, k, now_ms);
}

bool shed_event_log_take(struct shed_event_log *log, uint64_t now_ms,
                         bool is_last, struct shed_log_line *out)
{
    for (size_t i = 0; i < sizeof(log->kinds) / sizeof(*log->kinds); i++) {
        struct shed_log_kind *k = &log->kinds[i];
        if (k->limit.suppressed > 0 &&
            (is_last ||
             shed_limit_is_over(&k->limit, SHED_LOG_INTERVAL_MS, now_ms))) {
            take(log, k, now_ms, out);
            return true;
        }
    }
    return false;
}
