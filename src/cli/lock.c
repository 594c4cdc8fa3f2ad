/*
 * lock: shows who holds a lock and who waits, and releases a lock whose holder
 * is dead. Only the release writes, and it never removes a lock whose holder
 * could be alive.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/lock_view.h"
#include "cli/rate.h"
#include "cli/text.h"

#define GRACE_DEFAULT_MS 1000

const char *cli_lock_state(const struct cli_lock *lock)
{
    static const char *const names[CLI_LOCK_STATES] = {
        [CLI_LOCK_FREE] = "free",       [CLI_LOCK_HELD] = "held",
        [CLI_LOCK_STAMP] = "timestamp", [CLI_LOCK_TEXT] = "text",
        [CLI_LOCK_UNKNOWN] = "unknown", [CLI_LOCK_NO_LOCK] = "no lock"};

    return names[lock->state];
}

static const char *describe(const struct cli_lock *lock)
{
    switch (lock->state) {
    case CLI_LOCK_FREE:
        return "free";
    case CLI_LOCK_HELD:
        return lock->presence.life == CLI_ALIVE
                   ? "held by a process that is alive"
               : lock->presence.life == CLI_GONE
                   ? "held by a process that is gone"
                   : "held; whether by a live process "
                     "cannot be seen";
    case CLI_LOCK_STAMP:
        return "held: a TIMESTAMP lock, or another client's";
    case CLI_LOCK_TEXT:
        return "held: a SETNX or EXPIRE lock, or another client's";
    case CLI_LOCK_UNKNOWN:
        return "held: a record that this version does not know";
    case CLI_LOCK_NO_LOCK:
        break;
    }
    return "no lock: the key holds a list, hash, set or stream";
}

static void print_holder(const struct cli_lock *lock)
{
    char hex[2 * SHED_TOKEN_BYTES + 1];

    cli_field("process");
    if (lock->process[0] == ' ')
        (void)fputs("not known: it has no channel (SHED_WAIT_POLL)", stdout);
    else
        cli_presence_print(lock->process, &lock->presence);
    (void)putchar('\n');
    if (lock->is_restarted)
        cli_line("", "Redis was restarted since the lock was taken");
    cli_line("token", "%s", cli_hex(hex, lock->token, SHED_TOKEN_BYTES));
}

static void print_left(const struct cli_lock *lock)
{
    char text[CLI_TEXT_BYTES];

    if (lock->state == CLI_LOCK_FREE)
        return;
    if (lock->stamp_ms > lock->now_ms)
        cli_line("left", "%s by its stamp, unless it is renewed",
                 cli_duration(text, lock->stamp_ms - lock->now_ms));
    else if (lock->stamp_ms > 0)
        cli_line("left",
                 "none: by its stamp it ended %s ago; the next caller takes it",
                 cli_duration(text, lock->now_ms - lock->stamp_ms));
    else if (lock->pttl >= 0)
        cli_line("left", "%s, unless it is renewed",
                 cli_duration(text, (uint64_t)lock->pttl));
    else
        cli_line("left", "no end: it stays until it is released");
}

static uint64_t waited_ms(const struct cli_lock *lock,
                          const struct cli_waiter *waiter)
{
    return lock->now_ms > waiter->since_ms ? lock->now_ms - waiter->since_ms
                                           : 0;
}

static size_t shown(const struct cli_lock *lock)
{
    return lock->queued < CLI_QUEUE_SHOWN ? (size_t)lock->queued
                                          : CLI_QUEUE_SHOWN;
}

static void print_waiters(const struct cli_lock *lock)
{
    char waited[CLI_TEXT_BYTES], limit[CLI_TEXT_BYTES];

    if (lock->queued > 0)
        cli_line("waiters", "%lld, in this order:", lock->queued);
    else
        cli_line("waiters", "%s",
                 lock->has_mark
                     ? "there are some (only a fair lock counts them)"
                     : "none seen");
    for (size_t i = 0; i < shown(lock); i++) {
        const struct cli_waiter *w = &lock->waiters[i];
        cli_field("");
        cli_presence_print(w->process, &w->presence);
        printf("  for %s of %s\n", cli_duration(waited, waited_ms(lock, w)),
               cli_duration(limit, w->wait_ms));
    }
    if (lock->queued > CLI_QUEUE_SHOWN)
        cli_line("", "...");
}

static void print_lock(const struct cli_lock *lock)
{
    cli_print_escaped(stdout, lock->spec.key[SHED_LOCK_KEY].at,
                      lock->spec.key[SHED_LOCK_KEY].size, SIZE_MAX);
    printf("  %s\n", describe(lock));
    if (lock->state == CLI_LOCK_HELD)
        print_holder(lock);
    print_left(lock);
    if (lock->number > 0)
        cli_line("number", "%lld, the last that was given", lock->number);
    print_waiters(lock);
}

/* -------------------------------------------------------------------- JSON */

static json_t *holder_json(const struct cli_lock *lock)
{
    char hex[2 * SHED_TOKEN_BYTES + 1];
    json_t *holder = json_object();

    (void)cli_hex(hex, lock->token, SHED_TOKEN_BYTES);
    json_object_set_new(holder, "token", json_string(hex));
    cli_presence_json(holder, lock->process, &lock->presence);
    if (lock->process[0] == ' ')
        json_object_set_new(holder, "process", json_null());
    return holder;
}

static json_t *queue_json(const struct cli_lock *lock)
{
    json_t *queue = json_array();

    for (size_t i = 0; i < shown(lock); i++) {
        const struct cli_waiter *w = &lock->waiters[i];
        json_t *waiter = json_object();
        cli_presence_json(waiter, w->process, &w->presence);
        json_object_set_new(waiter, "waited_ms",
                            json_integer((json_int_t)waited_ms(lock, w)));
        json_object_set_new(waiter, "limit_ms",
                            json_integer((json_int_t)w->wait_ms));
        json_array_append_new(queue, waiter);
    }
    return queue;
}

json_t *cli_lock_json(const struct cli_lock *lock)
{
    json_t *object = json_object();

    cli_json_set_bytes(object, "name", lock->name, lock->name_size);
    cli_json_set_bytes(object, "redis_key", lock->spec.key[SHED_LOCK_KEY].at,
                       lock->spec.key[SHED_LOCK_KEY].size);
    json_object_set_new(object, "state", json_string(cli_lock_state(lock)));
    json_object_set_new(object, "is_exact_key", json_boolean(lock->is_exact));
    json_object_set_new(object, "holder",
                        lock->state == CLI_LOCK_HELD ? holder_json(lock)
                                                     : json_null());
    json_object_set_new(object, "left_ms", cli_json_ms(lock->pttl));
    json_object_set_new(
        object, "stamp_ms",
        cli_json_ms(lock->stamp_ms > 0 ? (long long)lock->stamp_ms : -1));
    json_object_set_new(object, "number",
                        lock->number > 0 ? json_integer(lock->number)
                                         : json_null());
    json_object_set_new(object, "queued", json_integer(lock->queued));
    json_object_set_new(object, "queue", queue_json(lock));
    json_object_set_new(object, "is_waited_for",
                        json_boolean(lock->queued > 0 || lock->has_mark));
    return object;
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
    if (lock->state != CLI_LOCK_HELD || lock->process[0] == ' ')
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

static long long remove_lock(struct cli_redis *redis,
                             const struct cli_lock *lock)
{
    struct shed_args args = {0};
    char channel[CLI_CHANNEL_BYTES];
    size_t size;
    const char *record = shed_reply_bytes(lock->reply, &size);
    struct shed_reply *reply;
    long long answer;

    shed_args_add_text(&args, "EVAL");
    shed_args_add_text(&args, script);
    shed_args_add_text(&args, "1");
    shed_args_add(&args, lock->spec.key[SHED_LOCK_KEY].at,
                  lock->spec.key[SHED_LOCK_KEY].size);
    shed_args_add(&args, record, size);
    shed_args_add_text(&args, cli_process_channel(channel, lock->process));
    reply = cli_redis_check(redis, cli_redis_call(redis, &args), "EVAL");
    answer = shed_reply_integer(reply);
    shed_reply_free(reply);
    return answer;
}

/* A live process that has lost its connection returns within a few ms. So the
 * process must be absent at two looks, grace apart, and when the lock is
 * removed. */
static const char *release_dead(const struct cli_call *call,
                                struct cli_redis *redis,
                                const struct cli_lock *first)
{
    uint64_t grace_ms = call->grace_ms > 0 ? call->grace_ms : GRACE_DEFAULT_MS;
    const char *why = refusal(first);
    struct cli_lock second;

    if (why != NULL)
        return why;
    cli_sleep_ms(grace_ms);
    cli_lock_read(redis, first->name, first->name_size, first->is_exact,
                  &second);
    if (!cli_lock_is_same(first, &second))
        why = "it has changed hands meanwhile: look again";
    else
        why = refusal(&second);
    if (why == NULL && remove_lock(redis, &second) != 1)
        why = "it has changed hands, or its holder is back: look again";
    cli_lock_free(&second);
    return why;
}

static int conclude_release(const struct cli_call *call,
                            const struct cli_lock *lock, const char *why)
{
    if (call->is_json) {
        cli_json_print(call,
                       json_pack("{s:b, s:o, s:o}", "is_released",
                                 (int)(why == NULL), "reason",
                                 why != NULL ? json_string(why) : json_null(),
                                 "was", cli_lock_json(lock)));
    } else {
        print_lock(lock);
        if (why == NULL)
            printf("\nReleased. Whatever its holder was doing may be half "
                   "done.\n");
        else
            printf("\nNot released: %s.\n", why);
    }
    return why == NULL ? CLI_YES : CLI_NO;
}

int cli_lock(struct cli_call *call)
{
    char *name = call->words[0];
    size_t size = call->is_escaped ? cli_unescape(name) : strlen(name);
    struct cli_redis *redis;
    struct cli_lock lock;
    int status;

    if (size == 0 || size > SHED_LOCK_NAME_MAX_BYTES)
        cli_fail(call, CLI_USAGE,
                 "a lock name must have 1 to %d bytes (and with --escaped, "
                 "each \\ must be followed by \\ or xNN)",
                 SHED_LOCK_NAME_MAX_BYTES);
    redis = cli_redis_open(call, NULL);
    cli_lock_read(redis, name, size, call->is_exact, &lock);
    if (lock.is_denied)
        (void)cli_redis_check(redis, lock.reply, "GET");
    status = lock.state == CLI_LOCK_FREE || lock.state == CLI_LOCK_NO_LOCK
                 ? CLI_NO
                 : CLI_YES;
    if (call->is_release)
        status =
            conclude_release(call, &lock, release_dead(call, redis, &lock));
    else if (call->is_json)
        cli_json_print(call, cli_lock_json(&lock));
    else
        print_lock(&lock);
    cli_lock_free(&lock);
    cli_redis_close(redis);
    return status;
}
