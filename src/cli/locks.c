/*
 * locks: shows who holds a lock and who waits, or a line of each lock that is
 * held. It writes nothing. src/redis/lock.lua defines the record of a lock, and
 * a member of its queue.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/key.h"
#include "cli/presence.h"
#include "cli/walk.h"
#include "lock/keys.h"

#define COMMANDS_PER_LOCK 10

#define MAIN "lock:{"   /* NAME} */
#define EXACT "lock:={" /* TAG}NAME, and a suffix */
#define COUNTER ":f"

#define MAGIC "LK1"
#define FAMILY "LK" /* the part of the magic that all versions share */

#define DIGITS "0123456789"
#define US_PER_MS 1000
#define MS_PER_S 1000

enum state {
    FREE,
    HELD,    /* by a LEASE or QUORUM lock of this library */
    STAMP,   /* a number: TIMESTAMP, or a foreign client's token */
    TEXT,    /* any other string: SETNX, EXPIRE, or a foreign client */
    UNKNOWN, /* a record of an unknown version of this library */
    NO_LOCK  /* not a string */
};

/* What states are called: as a word, and in a sentence. */
static const struct {
    const char *name, *text;
} states[] = {
    [FREE] = {"free", "free"},
    [HELD] = {"held", "held; whether by a live process cannot be seen"},
    [STAMP] = {"timestamp", "held: a TIMESTAMP lock, or another client's"},
    [TEXT] = {"text", "held: a SETNX or EXPIRE lock, or another client's"},
    [UNKNOWN] = {"unknown", "held: a record that this version does not know"},
    [NO_LOCK] = {"no lock",
                 "no lock: the key holds a list, hash, set or stream"}};

/* All of these are bytes, so they are at the places that lock.lua says. */
struct holder {
    unsigned char token[SHED_TOKEN_BYTES];
    char process[SHED_PROCESS_BYTES];
};

struct record {
    char magic[sizeof(MAGIC) - 1];
    struct holder holder;
    char run[SHED_RUN_BYTES];
};

/* A lock as it is in Redis now. */
struct lock {
    struct shed_bytes name;
    struct shed_lock_options options; /* the spec points to them */
    struct shed_lock_spec spec;
    char *room;               /* the keys point into it */
    struct shed_reply *reply; /* what is at the key; the record points there */
    enum state state;
    const struct record *record;  /* if it is HELD */
    struct cli_presence presence; /* of its holder */
};

/* ----------------------------------------------------------------- reading */

static enum state state_of(const struct shed_reply *reply)
{
    struct shed_bytes record = cli_redis_bytes(reply);
    const char *at = record.data;

    if (at == NULL)
        return shed_reply_is_nil(reply) || cli_redis_is_denied(reply) ? FREE
                                                                      : NO_LOCK;
    if (record.size == sizeof(struct record) && cli_begins(at, MAGIC))
        return HELD;
    if (record.size > strlen(MAGIC) && cli_begins(at, FAMILY) &&
        strspn(at + strlen(FAMILY), DIGITS) == 1)
        return UNKNOWN;
    return record.size > 0 && strspn(at, DIGITS) == record.size ? STAMP : TEXT;
}

/* The end of a TIMESTAMP lock, by some host's clock, which counts in ms or in
 * seconds. A number that is not a plausible date in either unit is another
 * client's token: 0. */
static uint64_t stamp_of(const struct lock *lock)
{
    const uint64_t earliest_ms = 1000000000000; /* the year 2001 */
    const uint64_t latest_ms = 253402300799999; /* the end of the year 9999 */
    uint64_t number = 0;

    if (lock->state == STAMP)
        number = strtoull(cli_redis_bytes(lock->reply).data, NULL, 10);
    if (number < earliest_ms && number <= UINT64_MAX / MS_PER_S)
        number *= MS_PER_S;
    return number >= earliest_ms && number <= latest_ms ? number : 0;
}

static struct shed_bytes key_of(const struct lock *lock, int which)
{
    return lock->spec.key[which];
}

static void look(struct cli_redis *redis, bool is_exact, struct lock *lock)
{
    lock->options.exact_key = is_exact;
    (void)shed_lock_keys_name(&lock->spec, true, lock->name.data,
                              lock->name.size, lock->room);
    shed_reply_free(lock->reply);
    cli_redis_send_key(redis, "GET KEY", key_of(lock, SHED_LOCK_KEY));
    lock->reply = cli_redis_hear_key(redis, "GET", true);
    lock->state = state_of(lock->reply);
}

/* On another run of the server than that of the record, a process that is not
 * subscribed can be about to return. */
static void read_life(struct cli_redis *redis, struct lock *lock)
{
    const struct record *record = lock->record;
    struct shed_reply *info;

    cli_presence_read(redis, record->holder.process, 0, &lock->presence);
    if (lock->presence.life != CLI_GONE)
        return;
    info = cli_redis_ask(redis, "INFO server");
    if (strncmp(cli_info(info, "run_id").at, record->run, SHED_RUN_BYTES) != 0)
        lock->presence.life = CLI_LIFE_UNKNOWN;
    shed_reply_free(info);
}

/* Read a lock: at lock:{NAME}; at NAME if nothing is there, or with
 * is_exact. */
static void read_lock(struct cli_redis *redis, struct shed_bytes name,
                      bool is_exact, struct lock *lock)
{
    *lock = (struct lock){.name = name};
    lock->spec.options = &lock->options;
    lock->room = cli_alloc(shed_lock_keys_bytes(name.size), 1);
    look(redis, is_exact, lock);
    if (lock->state == FREE && !is_exact) {
        look(redis, true, lock);
        if (lock->state == FREE)
            look(redis, false, lock);
    }
    if (lock->state == HELD) {
        lock->record = cli_redis_bytes(lock->reply).data;
        read_life(redis, lock);
    }
}

static void free_lock(struct lock *lock)
{
    shed_reply_free(lock->reply);
    free(lock->room);
}

/* Whether somebody holds it, as far as can be seen. */
static bool is_held(const struct lock *lock)
{
    return lock->state != FREE && lock->state != NO_LOCK;
}

/* ----------------------------------------------------------------- showing */

/* What a list has of a lock, too. Returns: the server's clock. */
static uint64_t show_state(struct cli_redis *redis, const struct lock *lock,
                           json_t *out)
{
    uint64_t stamp_ms = stamp_of(lock), now_ms;
    long long left_ms, queued;

    cli_redis_send_key(redis, "PTTL KEY", key_of(lock, SHED_LOCK_KEY));
    cli_redis_send_key(redis, "ZCARD KEY", key_of(lock, SHED_LOCK_KEY_QUEUE));
    cli_redis_send(redis, "TIME");
    left_ms = cli_redis_hear_integer(redis, NULL);
    queued = cli_redis_hear_integer(redis, NULL); /* or no right to read it */
    now_ms = cli_redis_hear_clock_ms(redis);
    if (stamp_ms > 0)
        left_ms = (long long)shed_left_ms(stamp_ms, now_ms);
    cli_out_bytes(out, "name", lock->name);
    cli_out_flag(out, "is_exact_key", lock->options.exact_key != 0);
    cli_out_text(out, "state", states[lock->state].name);
    cli_out_maybe(out, "left_ms", left_ms >= 0, left_ms);
    cli_out_number(out, "queued", queued > 0 ? (uint64_t)queued : 0);
    return now_ms;
}

/* A member is the token, the process, and how long it waits, in ms; its score
 * is when it came. */
static void show_waiter(struct cli_redis *redis, json_t *out,
                        struct shed_bytes member, uint64_t since_ms,
                        uint64_t now_ms)
{
    const struct holder *waiter = member.data;
    bool is_member = member.size >= sizeof(*waiter);
    struct cli_presence presence;

    cli_presence_read(redis, is_member ? waiter->process : NULL, 0, &presence);
    cli_presence_members(out, &presence);
    cli_out_number(out, "waited_ms", shed_left_ms(now_ms, since_ms));
    cli_out_number(out, "limit_ms",
                   is_member ? strtoull((const char *)(waiter + 1), NULL, 10)
                             : 0);
}

/* The first ones. Without a queue a mark says that somebody waited a moment
 * ago. */
static void show_queue(struct cli_redis *redis, const struct lock *lock,
                       json_t *out, uint64_t now_ms)
{
    json_t *queue = cli_out_list(out, "queue");
    struct shed_reply *members;
    bool has_mark;
    size_t count;

    cli_redis_send_key(redis, "PTTL KEY", key_of(lock, SHED_LOCK_KEY_WAITERS));
    cli_redis_send_key(redis, "ZRANGE KEY 0 9 WITHSCORES",
                       key_of(lock, SHED_LOCK_KEY_QUEUE));
    has_mark = cli_redis_hear_integer(redis, NULL) >= 0;
    members = cli_redis_hear(redis, NULL);
    count = shed_reply_count(members) / 2;
    cli_out_flag(out, "is_waited_for", count > 0 || has_mark);
    for (size_t i = 0; i < count; i++)
        show_waiter(redis, cli_out_item(queue),
                    cli_redis_bytes(shed_reply_at(members, 2 * i)),
                    shed_reply_digits(shed_reply_at(members, 2 * i + 1)) /
                        US_PER_MS,
                    now_ms);
    shed_reply_free(members);
}

static void show_holder(const struct lock *lock, json_t *out)
{
    json_t *holder;

    if (lock->state != HELD) {
        cli_out_text(out, "holder", NULL);
        return;
    }
    holder = cli_out_object(out, "holder");
    cli_presence_members(holder, &lock->presence);
    cli_out_text(holder, "token",
                 cli_hex(lock->record->holder.token, SHED_TOKEN_BYTES).at);
}

static void show_lock(struct cli_redis *redis, const struct lock *lock,
                      json_t *out)
{
    uint64_t stamp_ms = stamp_of(lock), now_ms, number;
    struct shed_reply *counter;

    cli_redis_send_key(redis, "GET KEY", key_of(lock, SHED_LOCK_KEY_COUNTER));
    counter = cli_redis_hear(redis, NULL);
    number = shed_reply_digits(counter);
    shed_reply_free(counter);
    now_ms = show_state(redis, lock, out);
    cli_out_text(
        out, "description",
        lock->presence.life == CLI_ALIVE  ? "held by a process that is alive"
        : lock->presence.life == CLI_GONE ? "held by a process that is gone"
                                          : states[lock->state].text);
    cli_out_bytes(out, "redis_key", key_of(lock, SHED_LOCK_KEY));
    cli_out_maybe(out, "stamp_ms", stamp_ms > 0, (long long)stamp_ms);
    cli_out_maybe(out, "number", number > 0, (long long)number);
    show_holder(lock, out);
    show_queue(redis, lock, out, now_ms);
}

/* Show a lock. Returns: whether it is held. */
static bool show_one(const struct cli_call *call, struct shed_bytes name)
{
    struct lock lock;
    bool is_yes;

    read_lock(call->redis, name, call->is_exact, &lock);
    if (cli_redis_is_denied(lock.reply))
        (void)cli_redis_check(call->redis, lock.reply, "GET");
    is_yes = is_held(&lock);
    show_lock(call->redis, &lock, call->out);
    free_lock(&lock);
    return is_yes;
}

/* ----------------------------------------------------------- all of them */

/* The name of the lock from its key; .data is NULL if it is none's. A lock with
 * an exact key can be found by the key of its fencing numbers (lock/keys.h). */
static struct shed_bytes lock_of(struct shed_bytes key, bool *is_exact)
{
    const char *at = key.data, *tag;
    struct shed_bytes name = {NULL, 0};

    if (at == NULL)
        return name;
    *is_exact = cli_begins(at, EXACT);
    if (!*is_exact && cli_begins(at, MAIN) && at[key.size - 1] == '}')
        name = shed_bytes(at + strlen(MAIN), key.size - strlen(MAIN "}"));
    tag = *is_exact ? memchr(at, '}', key.size - strlen(COUNTER)) : NULL;
    if (tag != NULL &&
        memcmp(at + key.size - strlen(COUNTER), COUNTER, strlen(COUNTER)) == 0)
        name = shed_bytes(tag + 1,
                          key.size - strlen(COUNTER) - (size_t)(tag + 1 - at));
    return name.size > 0 && name.size <= SHED_LOCK_NAME_MAX_BYTES
               ? name
               : shed_bytes(NULL, 0);
}

/* List the lock that a key belongs to, if it is held: it can have been released
 * since the walk found its key. Returns: whether it is. */
static bool list_one(const struct cli_call *call, struct shed_bytes name,
                     bool is_exact, json_t *list, uint64_t *denied)
{
    struct lock lock;
    bool is_yes;

    read_lock(call->redis, name, is_exact, &lock);
    *denied += cli_redis_is_denied(lock.reply);
    is_yes = is_held(&lock);
    if (is_yes) {
        json_t *item = cli_out_item(list);
        (void)show_state(call->redis, &lock, item);
        cli_presence_members(item, &lock.presence);
    }
    free_lock(&lock);
    return is_yes;
}

static bool list_all(const struct cli_call *call)
{
    json_t *list = cli_out_list(call->out, "locks");
    uint64_t held = 0, denied = 0;
    struct cli_walk walk;
    bool is_exact;

    cli_walk_begin_pattern(&walk, call->redis, "lock:*{*", call->rate);
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++) {
            struct shed_bytes name = lock_of(walk.found[i].name, &is_exact);
            if (name.data == NULL)
                continue;
            cli_rate_keep(&walk.rate, COMMANDS_PER_LOCK);
            held += list_one(call, name, is_exact, list, &denied);
        }
    cli_out_number(call->out, "held", held);
    cli_out_number(call->out, "denied", denied);
    return held > 0;
}

int cli_locks(struct cli_call *call)
{
    struct shed_bytes name = {NULL, 0};
    bool is_yes;

    if (call->count > 0)
        name = cli_key_word(call, call->words[0]);
    else if (call->is_exact)
        cli_fail(call, CLI_USAGE, "--exact-key needs the NAME of a lock");
    if (call->count > 0 &&
        (name.size == 0 || name.size > SHED_LOCK_NAME_MAX_BYTES))
        cli_fail(call, CLI_USAGE, "a lock name must have 1 to %d bytes",
                 SHED_LOCK_NAME_MAX_BYTES);
    cli_redis_open(call);
    is_yes = call->count > 0 ? show_one(call, name) : list_all(call);
    return is_yes ? CLI_YES : CLI_NO;
}
