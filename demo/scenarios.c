/* The five scenarios: what callers do in each, and what befalls them. */
#include <stdio.h>
#include <string.h>

#include "conductor.h"

#define HOT_ID 1
#define THINK_MS 20      /* a caller's pause, so that hits do not fill the CPU */
#define PAGE_THINK_MS 40 /* after a page */
#define LOOK_MS 2
#define GONE_MS 3          /* after PEXPIRE 1, until the value is gone */
#define ONE_LOAD_MS 60000  /* longest wait for a value, a load */
#define BEFORE_MS 600      /* of plain hits */
#define AFTER_MS 600
#define CRASH_LOADS 4 /* a load of crash is so much longer */
#define MISSING_ID 10000000 /* above every item */
#define MISSING_PART 10     /* of the keys */

/* ------------------------------------------------------- the hot key */

static void read_hot(struct caller *caller)
{
    const uint64_t id = HOT_ID;

    caller_request(caller, &id, 1);
    caller_pause(caller, THINK_MS);
}

static void prepare_hot(struct conductor *c)
{
    c->task.deck_keys = 1;
    c->task.turn = read_hot;
    c->task.is_extra_measured = true;
}

/* Does a row stand at the hot key? -1 on failure. */
static int sees_hot(struct conductor *c)
{
    char key[32];
    redisReply *reply;
    int is_there;

    (void)snprintf(key, sizeof(key), c->task.way->layout->key_format,
                   (unsigned long long)HOT_ID);
    reply = conductor_ask(c, "GET %s", key);
    if (reply == NULL)
        return -1;
    is_there = reply->type == REDIS_REPLY_STRING &&
               c->task.way->layout->is_row(reply->str, reply->len);
    freeReplyObject(reply);
    return is_there;
}

static bool await_hot(struct conductor *c)
{
    uint64_t late_us = demo_now_us() + ONE_LOAD_MS * 1000;
    int is_there;

    while ((is_there = sees_hot(c)) == 0) {
        if (demo_now_us() > late_us) {
            (void)fputs("\navalanche: no value comes back\n", stderr);
            return false;
        }
        if (!conductor_nap(c, LOOK_MS))
            return false;
    }
    return is_there > 0;
}

/* Let the row that stands there expire; *has_expired if one did. */
static bool expire_hot(struct conductor *c, bool *has_expired)
{
    char key[32];
    redisReply *reply;

    (void)snprintf(key, sizeof(key), c->task.way->layout->key_format,
                   (unsigned long long)HOT_ID);
    reply = conductor_ask(c, "PEXPIRE %s 1", key);
    if (reply == NULL)
        return false;
    *has_expired = reply->integer == 1;
    freeReplyObject(reply);
    return conductor_nap(c, GONE_MS);
}

static bool play_breakdown(struct conductor *c)
{
    struct result *result = c->result;
    bool has_expired;

    if (!conductor_nap(c, BEFORE_MS))
        return false;
    while (result->expiries < c->options->expiries) {
        if (!expire_hot(c, &has_expired))
            return false;
        result->expiries += has_expired;
        /* The pause lets those finish who load without need. */
        if (!await_hot(c) || !conductor_nap(c, c->options->load_ms + THINK_MS))
            return false;
    }
    return true;
}

/* -------------------------------------------------------------- crash */

static void prepare_crash(struct conductor *c)
{
    prepare_hot(c);
    atomic_store(&c->record->load_ms, c->options->load_ms * CRASH_LOADS);
}

/* Wait until a process has begun to load since; returns it, 0 on failure. */
static pid_t await_loader(struct conductor *c, uint64_t starts)
{
    uint64_t late_us = demo_now_us() + ONE_LOAD_MS * 1000;

    while (atomic_load(&c->record->load_starts) == starts)
        if (demo_now_us() > late_us || !conductor_nap(c, 1))
            return 0;
    if (!conductor_nap(c, c->options->load_ms)) /* into its middle */
        return 0;
    return (pid_t)atomic_load(&c->record->loading_pid);
}

static void raise_to(double *at, double value)
{
    if (*at < value)
        *at = value;
}

/* Measure from the kill: when the next load starts, when a value is back. */
static bool await_recovery(struct conductor *c, uint64_t killed_us,
                           uint64_t starts)
{
    struct result *result = c->result;
    uint64_t next_us;

    if (!await_hot(c))
        return false;
    raise_to(&result->back_ms, (double)(demo_now_us() - killed_us) / 1000);
    /* The first load after the kill noted its start, unless others have begun
     * after it: those of "none" had begun before, and do not count. */
    next_us = atomic_load(&c->record->next_load_us);
    if (atomic_load(&c->record->load_starts) > starts && next_us > killed_us) {
        result->restarts++;
        raise_to(&result->restart_ms, (double)(next_us - killed_us) / 1000);
    }
    return true;
}

static bool kill_loader(struct conductor *c)
{
    uint64_t starts = atomic_load(&c->record->load_starts), killed_us;
    bool has_expired;
    pid_t pid;

    if (!expire_hot(c, &has_expired) || (pid = await_loader(c, starts)) == 0)
        return false;
    atomic_store(&c->record->next_load_us, 0);
    starts = atomic_load(&c->record->load_starts);
    killed_us = demo_now_us();
    if (!crew_kill(&c->crew, pid))
        return false;
    c->result->expiries++;
    return await_recovery(c, killed_us, starts) && crew_replace(&c->crew) &&
           conductor_nap(c, BEFORE_MS);
}

static bool play_crash(struct conductor *c)
{
    /* A lock that nobody opens lasts as long as the lease: once is enough. */
    uint64_t kills = c->task.way == &way_setnx ? 1 : c->options->kills;

    if (!conductor_nap(c, BEFORE_MS))
        return false;
    while (c->result->expiries < kills)
        if (!kill_loader(c))
            return false;
    return true;
}

/* ---------------------------------------------------------- avalanche */

static void read_popular_page(struct caller *caller)
{
    const struct task *task = caller_task(caller);
    uint64_t ids[PAGE_MAX], random = caller_random(caller);

    for (size_t i = 0; i < task->deck_page; i++)
        ids[i] = 1 + zipf_draw(task->zipf, &random);
    caller_request(caller, ids, task->deck_page);
}

static void read_pages(struct caller *caller)
{
    const struct task *task = caller_task(caller);
    uint64_t ids[PAGE_MAX];
    size_t count = 0;

    if (atomic_load(&task->record->is_deck_open))
        count = deck_draw(task, ids);
    if (count > 0) {
        caller_request(caller, ids, count);
        deck_done(task);
    }
    read_popular_page(caller);
    caller_pause(caller, PAGE_THINK_MS);
}

static void prepare_avalanche(struct conductor *c)
{
    c->task.turn = read_pages;
}

/* The server's clock, in milliseconds; 0 on failure. */
static uint64_t server_ms(struct conductor *c)
{
    redisReply *reply = conductor_ask(c, "TIME");
    uint64_t ms = 0;

    if (reply != NULL)
        ms = strtoull(reply->element[0]->str, NULL, 10) * 1000 +
             strtoull(reply->element[1]->str, NULL, 10) / 1000;
    if (reply != NULL)
        freeReplyObject(reply);
    return ms;
}

/* Give every key the same instant to expire at, in one pipeline. */
static bool expire_all_at(struct conductor *c, uint64_t at_ms)
{
    char key[32];
    redisReply *reply;

    for (uint64_t id = 1; id <= c->options->keys; id++) {
        (void)snprintf(key, sizeof(key), c->task.way->layout->key_format,
                       (unsigned long long)id);
        (void)redisAppendCommand(c->redis, "PEXPIREAT %s %llu", key,
                                 (unsigned long long)at_ms);
    }
    c->commands += c->options->keys;
    for (uint64_t id = 1; id <= c->options->keys; id++) {
        if (redisGetReply(c->redis, (void **)&reply) != REDIS_OK)
            return false;
        c->result->expiries += reply->integer == 1;
        freeReplyObject(reply);
    }
    return true;
}

static bool play_avalanche(struct conductor *c)
{
    uint64_t at_ms = server_ms(c) + 2 * (uint64_t)BEFORE_MS, now_ms;
    uint64_t late_us = demo_now_us() + 2 * (uint64_t)ONE_LOAD_MS * 1000;

    if (!expire_all_at(c, at_ms))
        return false;
    while ((now_ms = server_ms(c)) < at_ms)
        if (now_ms == 0 || !conductor_nap(c, LOOK_MS))
            return false;
    atomic_store(&c->record->is_deck_open, true);
    while (!deck_is_read(&c->task)) {
        if (demo_now_us() > late_us) {
            (void)fputs("\navalanche: not all pages are read\n", stderr);
            return false;
        }
        if (!conductor_nap(c, LOOK_MS))
            return false;
    }
    return conductor_nap(c, AFTER_MS);
}

/* -------------------------------------------------------- penetration */

static uint64_t missing_keys(const struct options *o)
{
    return o->keys < MISSING_PART ? 1 : o->keys / MISSING_PART;
}

static void read_missing(struct caller *caller)
{
    const struct task *task = caller_task(caller);
    uint64_t random = caller_random(caller), id;

    id = MISSING_ID +
         zipf_draw(task->zipf, &random) % missing_keys(task->options);
    caller_request(caller, &id, 1);
    caller_pause(caller, THINK_MS);
}

static void prepare_penetration(struct conductor *c)
{
    c->task.turn = read_missing;
    c->task.deck_keys = 1;
}

static bool nap_for(struct conductor *c, uint64_t ms)
{
    uint64_t until_us = demo_now_us() + ms * 1000;

    while (demo_now_us() < until_us)
        if (!conductor_nap(c, LOOK_MS))
            return false;
    return true;
}

static bool play_penetration(struct conductor *c)
{
    c->result->expiries = missing_keys(c->options);
    return nap_for(c, c->options->seconds * 1000);
}

/* --------------------------------------------------------------- cold */

static void read_popular(struct caller *caller)
{
    uint64_t random = caller_random(caller);
    uint64_t id = 1 + zipf_draw(caller_task(caller)->zipf, &random);

    caller_request(caller, &id, 1);
    caller_pause(caller, THINK_MS);
}

static void prepare_cold(struct conductor *c)
{
    c->task.turn = read_popular;
}

static bool play_cold(struct conductor *c)
{
    uint64_t before_ms = c->options->seconds * 1000 / 4;
    redisReply *reply;

    if (!nap_for(c, before_ms) ||
        (reply = conductor_ask(c, "FLUSHDB")) == NULL)
        return false;
    freeReplyObject(reply);
    c->result->expiries = c->options->keys;
    return nap_for(c, c->options->seconds * 1000 - before_ms);
}

const struct script scripts[SCENARIOS] = {
    [BREAKDOWN] = {prepare_hot, play_breakdown},
    [AVALANCHE] = {prepare_avalanche, play_avalanche},
    [PENETRATION] = {prepare_penetration, play_penetration},
    [COLD] = {prepare_cold, play_cold},
    [CRASH] = {prepare_crash, play_crash},
};
