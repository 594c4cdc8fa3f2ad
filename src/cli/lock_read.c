/* Reading a lock. It writes nothing. src/redis/lock.lua defines the record. */
#include "cli/lock_view.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "LK1"
#define MAGIC_BYTES 3
#define FAMILY_BYTES 2 /* the part of the magic that all versions share */
#define RECORD_BYTES                                                           \
    (MAGIC_BYTES + SHED_TOKEN_BYTES + SHED_PROCESS_BYTES + SHED_RUN_BYTES)
#define MEMBER_BYTES (SHED_TOKEN_BYTES + SHED_PROCESS_BYTES)

#define US_PER_MS 1000
#define MS_PER_S 1000

static bool is_number(const char *bytes, size_t size)
{
    return size > 0 && strspn(bytes, "0123456789") == size;
}

/* TIMESTAMP counts in ms or in seconds. A number that is not a plausible date
 * in either unit is another client's token. */
static uint64_t stamp_of(const char *text)
{
    const uint64_t earliest_ms = 1000000000000; /* the year 2001 */
    const uint64_t latest_ms = 253402300799999; /* the end of the year 9999 */
    uint64_t number = strtoull(text, NULL, 10);

    if (number < earliest_ms && number <= UINT64_MAX / MS_PER_S)
        number *= MS_PER_S;
    return number >= earliest_ms && number <= latest_ms ? number : 0;
}

static void judge(struct cli_lock *lock)
{
    struct shed_bytes record = cli_redis_bytes(lock->reply);
    const char *bytes = record.data;
    size_t size = record.size;

    if (bytes == NULL) {
        lock->state =
            shed_reply_is_nil(lock->reply) ? CLI_LOCK_FREE : CLI_LOCK_NO_LOCK;
    } else if (size == RECORD_BYTES && memcmp(bytes, MAGIC, MAGIC_BYTES) == 0) {
        lock->state = CLI_LOCK_HELD;
        lock->token = (const unsigned char *)bytes + MAGIC_BYTES;
        lock->run = bytes + size - SHED_RUN_BYTES;
        memcpy(lock->presence.process, lock->token + SHED_TOKEN_BYTES,
               SHED_PROCESS_BYTES);
    } else if (size > MAGIC_BYTES && memcmp(bytes, MAGIC, FAMILY_BYTES) == 0 &&
               is_number(bytes + FAMILY_BYTES, 1)) {
        lock->state = CLI_LOCK_UNKNOWN;
    } else {
        lock->state = is_number(bytes, size) ? CLI_LOCK_STAMP : CLI_LOCK_TEXT;
        lock->stamp_ms = lock->state == CLI_LOCK_STAMP ? stamp_of(bytes) : 0;
    }
}

static struct shed_bytes key_of(const struct cli_lock *lock, int which)
{
    return shed_bytes(lock->spec.key[which].at, lock->spec.key[which].size);
}

struct shed_bytes cli_lock_key(const struct cli_lock *lock)
{
    return key_of(lock, SHED_LOCK_KEY);
}

static void look(struct cli_redis *redis, bool is_exact, struct cli_lock *lock)
{
    lock->is_exact = is_exact;
    lock->options.exact_key = is_exact;
    lock->spec.options = &lock->options;
    (void)shed_lock_keys_name(&lock->spec, true, lock->name.data,
                              lock->name.size, lock->room);
    shed_reply_free(lock->reply);
    cli_redis_send_key(redis, "GET KEY", cli_lock_key(lock));
    lock->reply = cli_redis_hear(redis, NULL);
    lock->is_denied = cli_redis_is_denied(lock->reply);
    if (!lock->is_denied)
        (void)cli_redis_check_key(redis, lock->reply, "GET");
    judge(lock);
    if (lock->is_denied)
        lock->state = CLI_LOCK_FREE;
}

/* A member is the token, the process, and how long it waits, in ms. */
static void read_waiter(struct cli_waiter *waiter,
                        const struct shed_reply *list, size_t i)
{
    struct shed_bytes member = cli_redis_bytes(shed_reply_at(list, 2 * i));
    const char *bytes = member.data;

    memset(waiter->presence.process, ' ', SHED_PROCESS_BYTES);
    if (member.size < MEMBER_BYTES)
        return;
    memcpy(waiter->presence.process, bytes + SHED_TOKEN_BYTES,
           SHED_PROCESS_BYTES);
    waiter->wait_ms = strtoull(bytes + MEMBER_BYTES, NULL, 10);
    waiter->since_ms =
        shed_reply_digits(shed_reply_at(list, 2 * i + 1)) / US_PER_MS;
}

static void hear_around(struct cli_redis *redis, struct cli_lock *lock)
{
    struct shed_reply *reply;

    lock->pttl = cli_redis_hear_integer(redis, NULL);
    reply = cli_redis_hear(redis, NULL);
    lock->number = (long long)shed_reply_digits(reply);
    shed_reply_free(reply);
    lock->queued = cli_redis_hear_integer(redis, NULL);
    if (lock->queued < 0)
        lock->queued = 0; /* no queue, or no right to read it */
    reply = cli_redis_hear(redis, NULL);
    for (size_t i = 0; i < shed_reply_count(reply) / 2 && i < CLI_QUEUE_SHOWN;
         i++)
        read_waiter(&lock->waiters[i], reply, i);
    shed_reply_free(reply);
    lock->has_mark = cli_redis_hear_integer(redis, NULL) >= 0;
    lock->now_ms = cli_redis_hear_clock_ms(redis);
}

/* After a restart of the server nobody is subscribed for a moment, which does
 * not mean that the holder is gone. */
static void read_life(struct cli_redis *redis, struct cli_lock *lock)
{
    struct shed_reply *info;
    struct cli_text run;

    if (!cli_lock_has_process(lock))
        return;
    cli_presence_read(redis, 0, &lock->presence);
    info = cli_redis_ask(redis, "INFO server");
    run = cli_info(info, "run_id");
    lock->is_restarted =
        run.at[0] != '\0' && strncmp(run.at, lock->run, SHED_RUN_BYTES) != 0;
    if (lock->presence.life == CLI_GONE &&
        (run.at[0] == '\0' || lock->is_restarted))
        lock->presence.life = CLI_LIFE_UNKNOWN;
    shed_reply_free(info);
}

void cli_lock_read(struct cli_redis *redis, struct shed_bytes name,
                   bool is_exact, struct cli_lock *lock)
{
    *lock = (struct cli_lock){.name = name};
    memset(lock->presence.process, ' ', SHED_PROCESS_BYTES);
    lock->room = cli_alloc(shed_lock_keys_bytes(name.size), 1);
    look(redis, is_exact, lock);
    if (lock->state == CLI_LOCK_FREE && !is_exact) {
        look(redis, true, lock);
        if (lock->state == CLI_LOCK_FREE)
            look(redis, false, lock);
    }
    cli_redis_send_key(redis, "PTTL KEY", cli_lock_key(lock));
    cli_redis_send_key(redis, "GET KEY", key_of(lock, SHED_LOCK_KEY_COUNTER));
    cli_redis_send_key(redis, "ZCARD KEY", key_of(lock, SHED_LOCK_KEY_QUEUE));
    cli_redis_send_key(redis, "ZRANGE KEY 0 9 WITHSCORES",
                       key_of(lock, SHED_LOCK_KEY_QUEUE));
    cli_redis_send_key(redis, "PTTL KEY", key_of(lock, SHED_LOCK_KEY_WAITERS));
    cli_redis_send(redis, "TIME");
    hear_around(redis, lock);
    read_life(redis, lock);
    for (long long i = 0; i < lock->queued && i < CLI_QUEUE_SHOWN; i++)
        cli_presence_read(redis, 0, &lock->waiters[i].presence);
}

void cli_lock_free(struct cli_lock *lock)
{
    shed_reply_free(lock->reply);
    free(lock->room);
}

bool cli_lock_is_held(const struct cli_lock *lock)
{
    return lock->state != CLI_LOCK_FREE && lock->state != CLI_LOCK_NO_LOCK;
}

bool cli_lock_has_process(const struct cli_lock *lock)
{
    return lock->state == CLI_LOCK_HELD && lock->presence.process[0] != ' ';
}
