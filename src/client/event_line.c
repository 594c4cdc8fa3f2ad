/* The kinds of events, and their lines in the log. Whatever a program's names
 * and keys are, a line is one line of printable text that fits. */
#include "client/event_line.h"

#include <stdio.h>
#include <string.h>

#define NAME_SHOWN_BYTES 96 /* of a name or a key */

enum { LOG_NEVER = -1 };

/* How often a kind gets a line in the log. */
enum pace {
    PACE_REPEATED, /* an outage brings the same again and again */
    PACE_CHANGES,  /* each takes back the one before, whatever its outcome */
    PACE_LOCKS     /* each is about another lock; all locks together */
};

/* Lines in an interval of a kind of which each is news. */
#define NEWS_MOST 10

/* One row per kind: its text, the log levels of successes and of troubles, and
 * its pace. */
static const struct kind {
    const char *words;
    int level_ok, level_trouble;
    enum pace pace;
} kinds[] = {
    [SHED_EVENT_SUPPRESSED] = {"events left out", LOG_NEVER, LOG_NEVER,
                               PACE_REPEATED},
    [SHED_EVENT_CONNECTED] = {"connected to Redis", SHED_LOG_INFO,
                              SHED_LOG_INFO, PACE_CHANGES},
    [SHED_EVENT_DISCONNECTED] = {"without Redis", LOG_NEVER, SHED_LOG_WARNING,
                                 PACE_CHANGES},
    [SHED_EVENT_LOAD_FINISHED] = {"load finished", LOG_NEVER, SHED_LOG_WARNING,
                                  PACE_REPEATED},
    [SHED_EVENT_TAKEOVER] = {"load taken over", SHED_LOG_WARNING,
                             SHED_LOG_WARNING, PACE_REPEATED},
    [SHED_EVENT_PUBLISH_REFUSED] = {"publish refused", SHED_LOG_INFO,
                                    SHED_LOG_WARNING, PACE_REPEATED},
    [SHED_EVENT_CORRUPT_ENTRY] = {"corrupt entry", SHED_LOG_WARNING,
                                  SHED_LOG_WARNING, PACE_REPEATED},
    [SHED_EVENT_INVALIDATED] = {"invalidated", LOG_NEVER, LOG_NEVER,
                                PACE_REPEATED},
    [SHED_EVENT_LOCK_ACQUIRED] = {"lock acquired", LOG_NEVER, LOG_NEVER,
                                  PACE_LOCKS},
    [SHED_EVENT_LOCK_TAKEN_OVER] = {"lock taken over", SHED_LOG_WARNING,
                                    SHED_LOG_WARNING, PACE_LOCKS},
    [SHED_EVENT_LOCK_RELEASED] = {"lock released", LOG_NEVER, SHED_LOG_WARNING,
                                  PACE_LOCKS},
    [SHED_EVENT_LOCK_LOST] = {"lock lost", SHED_LOG_WARNING, SHED_LOG_WARNING,
                              PACE_LOCKS},
    [SHED_EVENT_BREAKER] = {"breaker", SHED_LOG_INFO, SHED_LOG_WARNING,
                            PACE_CHANGES},
    [SHED_EVENT_INVALIDATION_UNDELIVERED] = {"invalidation undelivered",
                                             SHED_LOG_WARNING, SHED_LOG_WARNING,
                                             PACE_REPEATED},
    [SHED_EVENT_INVALIDATION_DELIVERED] = {"invalidation delivered",
                                           SHED_LOG_INFO, SHED_LOG_INFO,
                                           PACE_REPEATED},
    [SHED_EVENT_INVALIDATION_DROPPED] = {"invalidation dropped", SHED_LOG_ERROR,
                                         SHED_LOG_ERROR, PACE_REPEATED},
    [SHED_EVENT_STALE_SERVED] = {"stale row served", SHED_LOG_INFO,
                                 SHED_LOG_INFO, PACE_REPEATED},
    [SHED_EVENT_FLEET] = {"fleet_loads applies again", SHED_LOG_INFO,
                          SHED_LOG_WARNING, PACE_CHANGES},
    [SHED_EVENT_LACKING] = {"Redis refuses a command", SHED_LOG_WARNING,
                            SHED_LOG_WARNING, PACE_CHANGES},
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

static int level_of(enum shed_event_kind kind, enum shed_code outcome)
{
    if (kind == SHED_EVENT_DISCONNECTED && outcome == SHED_EDENIED)
        return SHED_LOG_ERROR;
    return shed_event_is_trouble(kind, outcome) ? kinds[kind].level_trouble
                                                : kinds[kind].level_ok;
}

bool shed_event_has_line(const struct shed_event *e)
{
    return level_of(e->kind, e->outcome) != LOG_NEVER;
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

static void write_text(const struct shed_event *e, size_t keys,
                       struct shed_event_line *out)
{
    char *line = out->text, more[32] = "";
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
    out->line.text = line;
}

static void set_kind(const struct shed_event *e, struct shed_log_line *line)
{
    enum shed_event_kind kind = e->kind;
    enum pace pace = kinds[kind].pace;

    if (kind == SHED_EVENT_DISCONNECTED)
        kind = SHED_EVENT_CONNECTED;
    line->kind = 2 * kind + (pace == PACE_REPEATED &&
                             shed_event_is_trouble(kind, e->outcome));
    line->most = pace == PACE_REPEATED ? 1 : NEWS_MOST;
}

bool shed_event_line_write(const struct shed_event *e, size_t keys,
                           struct shed_event_line *out)
{
    int level = level_of(e->kind, e->outcome);

    if (level == LOG_NEVER)
        return false;
    out->line = (struct shed_log_line){.level = (enum shed_log_level)level};
    set_kind(e, &out->line);
    write_text(e, keys, out);
    return true;
}
