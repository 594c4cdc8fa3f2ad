/*
 * locks: shows who holds a lock and who waits, or a line of each lock that is
 * held; and releases one whose holder is dead. Only the release writes, and it
 * never removes a lock whose holder could be alive.
 */
#include <string.h>

#include "base/clock.h"
#include "cli/lock_view.h"
#include "cli/key.h"
#include "cli/walk.h"

#define COMMANDS_PER_LOCK 10

#define MAIN "lock:{"   /* NAME} */
#define EXACT "lock:={" /* TAG}NAME, and a suffix */
#define COUNTER ":f"

const struct cli_lock_names cli_lock_states[CLI_LOCK_STATES] = {
    [CLI_LOCK_FREE] = {"free", "free"},
    [CLI_LOCK_HELD] = {"held",
                       "held; whether by a live process cannot be seen"},
    [CLI_LOCK_STAMP] = {"timestamp",
                        "held: a TIMESTAMP lock, or another client's"},
    [CLI_LOCK_TEXT] = {"text",
                       "held: a SETNX or EXPIRE lock, or another client's"},
    [CLI_LOCK_UNKNOWN] = {"unknown",
                          "held: a record that this version does not know"},
    [CLI_LOCK_NO_LOCK] = {"no lock", "no lock: the key holds a list, hash, set "
                                     "or stream"}};

/* What a list has of a lock, too. */
static void show_state(const struct cli_lock *lock, json_t *out)
{
    long long left_ms =
        lock->stamp_ms > 0
            ? (long long)shed_left_ms(lock->stamp_ms, lock->now_ms)
            : lock->pttl;

    cli_out_bytes(out, "name", lock->name);
    cli_out_flag(out, "is_exact_key", lock->is_exact);
    cli_out_text(out, "state", cli_lock_states[lock->state].name);
    cli_out_ms(out, "left_ms", left_ms);
    cli_out_number(out, "queued", (uint64_t)lock->queued);
}

static void show_queue(const struct cli_lock *lock, json_t *out)
{
    json_t *queue = cli_out_list(out, "queue");

    cli_out_flag(out, "is_waited_for", lock->queued > 0 || lock->has_mark);
    for (long long i = 0; i < lock->queued && i < CLI_QUEUE_SHOWN; i++) {
        const struct cli_waiter *w = &lock->waiters[i];
        json_t *item = cli_out_item(queue);
        cli_presence_members(item, &w->presence);
        cli_out_number(item, "waited_ms",
                       shed_left_ms(lock->now_ms, w->since_ms));
        cli_out_number(item, "limit_ms", w->wait_ms);
    }
}

static void show_lock(const struct cli_lock *lock, json_t *out)
{
    bool is_held = lock->state == CLI_LOCK_HELD;
    json_t *holder;

    show_state(lock, out);
    cli_out_text(
        out, "description",
        lock->presence.life == CLI_ALIVE  ? "held by a process that is alive"
        : lock->presence.life == CLI_GONE ? "held by a process that is gone"
                                          : cli_lock_states[lock->state].text);
    cli_out_bytes(out, "redis_key", cli_lock_key(lock));
    cli_out_maybe(out, "stamp_ms", lock->stamp_ms > 0,
                  (long long)lock->stamp_ms);
    cli_out_maybe(out, "number", lock->number > 0, lock->number);
    if (is_held) {
        holder = cli_out_object(out, "holder");
        cli_presence_members(holder, &lock->presence);
        cli_out_text(holder, "token",
                     cli_hex(lock->token, SHED_TOKEN_BYTES).at);
        cli_out_flag(holder, "is_of_former_run", lock->is_restarted);
    } else {
        cli_out_text(out, "holder", NULL);
    }
    show_queue(lock, out);
}

/* ------------------------------------------------------------ release-dead */

/* KEYS  1 the lock
 * ARGV  1 the record that is to be there   2 the channel of its process
 * Returns 1: removed; 0: something else is there; 2: the process is there */
static const char script[] =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
    "if redis.call('PUBSUB', 'NUMSUB', ARGV[2])[2] ~= 0 then return 2 end\n"
    "return redis.call('DEL', KEYS[1])\n";

static const char *refusal(const struct cli_lock *lock)
{
    if (lock->state == CLI_LOCK_FREE)
        return "the lock is free";
    if (!cli_lock_has_process(lock))
        return "it names no process, so nobody can see whether its holder is "
               "dead. If you know that it is, delete the key with redis-cli";
    if (lock->presence.life == CLI_ALIVE)
        return "its holder is alive";
    if (lock->presence.life == CLI_GONE)
        return NULL;
    return lock->is_restarted
               ? "Redis was restarted since it was taken, so its holder may "
                 "just not be back yet. It ends with its lease"
               : "whether its holder is alive cannot be seen (that needs the "
                 "rights to PUBSUB NUMSUB and INFO)";
}

/* A live process that has lost its connection returns within a few ms. So the
 * process must be absent at two looks, grace apart, and when the lock is
 * removed. */
static const char *release_dead(const struct cli_call *call,
                                const struct cli_lock *first)
{
    const char *why = refusal(first);
    struct shed_bytes key = cli_lock_key(first);
    struct shed_bytes record = cli_redis_bytes(first->reply);
    struct cli_lock second;

    if (why != NULL)
        return why;
    cli_sleep_ms(call->grace_ms);
    cli_lock_read(call->redis, first->name, first->is_exact, &second);
    if (!cli_are_same(record, cli_redis_bytes(second.reply)))
        why = "it has changed hands meanwhile: look again";
    else
        why = refusal(&second);
    cli_lock_free(&second);
    if (why != NULL)
        return why;
    cli_redis_about(call->redis, key);
    cli_redis_send(call->redis, "EVAL %s 1 %.*s %.*s %s", script, (int)key.size,
                   (const char *)key.data, (int)record.size,
                   (const char *)record.data,
                   cli_presence_channel(&first->presence).at);
    return cli_redis_hear_integer(call->redis, "EVAL") == 1
               ? NULL
               : "it has changed hands, or its holder is back: look again";
}

/* Show a lock, and release it with --release-dead. Returns: whether it is held,
 * or was released. */
static bool show_one(const struct cli_call *call, struct shed_bytes name)
{
    struct cli_lock lock;
    const char *why;
    bool is_yes;

    cli_lock_read(call->redis, name, call->is_exact, &lock);
    if (lock.is_denied)
        (void)cli_redis_check(call->redis, lock.reply, "GET");
    is_yes = cli_lock_is_held(&lock);
    if (call->is_release) {
        why = release_dead(call, &lock);
        is_yes = why == NULL;
        cli_out_flag(call->out, "is_released", is_yes);
        cli_out_text(call->out, "reason", why);
        show_lock(&lock, cli_out_object(call->out, "was"));
        if (is_yes)
            cli_out_hint(call->out,
                         "Whatever its holder was doing may be half done.");
    } else {
        show_lock(&lock, call->out);
    }
    cli_lock_free(&lock);
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
    struct cli_lock lock;
    bool is_held;

    cli_lock_read(call->redis, name, is_exact, &lock);
    is_held = !lock.is_denied && cli_lock_is_held(&lock);
    *denied += lock.is_denied;
    if (is_held) {
        json_t *item = cli_out_item(list);
        show_state(&lock, item);
        cli_presence_members(item, &lock.presence);
    }
    cli_lock_free(&lock);
    return is_held;
}

/* SCAN can return a key twice. */
static bool is_new(json_t *seen, struct shed_bytes key)
{
    struct cli_text text = cli_escape(key);

    if (json_object_get(seen, text.at) != NULL)
        return false;
    cli_out_flag(seen, text.at, true);
    return true;
}

static bool list_all(const struct cli_call *call)
{
    json_t *list = cli_out_list(call->out, "locks"), *seen = cli_out_open();
    uint64_t held = 0, denied = 0;
    struct cli_walk walk;
    bool is_exact;

    cli_walk_begin_pattern(&walk, call->redis, "lock:*{*", call->rate);
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++) {
            struct shed_bytes key = walk.found[i].name;
            struct shed_bytes name = lock_of(key, &is_exact);
            if (name.data == NULL || !is_new(seen, key))
                continue;
            cli_rate_keep(&walk.rate, COMMANDS_PER_LOCK);
            held += list_one(call, name, is_exact, list, &denied);
        }
    cli_out_number(call->out, "held", held);
    cli_out_number(call->out, "denied", denied);
    json_decref(seen);
    return held > 0;
}

int cli_locks(struct cli_call *call)
{
    struct shed_bytes name = {NULL, 0};
    bool is_yes;

    if (call->count > 0)
        name = cli_key_word(call, call->words[0]);
    else if (call->is_exact || call->is_release)
        cli_fail(call, CLI_USAGE,
                 "--exact-key and --release-dead need the NAME of a lock");
    if (call->count > 0 &&
        (name.size == 0 || name.size > SHED_LOCK_NAME_MAX_BYTES))
        cli_fail(call, CLI_USAGE, "a lock name must have 1 to %d bytes",
                 SHED_LOCK_NAME_MAX_BYTES);
    cli_redis_open(call);
    is_yes = call->count > 0 ? show_one(call, name) : list_all(call);
    return is_yes ? CLI_YES : CLI_NO;
}
