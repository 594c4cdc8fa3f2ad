/* The model of a lock's server compared with a real one: a table of scenarios,
 * whose exchanges run on both. After each step both must have given the same
 * answer and contain the same. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/lock_model.h"
#include "support/server.h"
#include "support/testing.h"

#define KEY "lock:{job}"

enum {
    STEP_BYTES = 64,
    WORDS_MAX = 3,
    LEASE_MS = 3600000,
    SHORT_MS = 10000,
    GRACE_MS = 60000,
    LOOK_MS = 100,
    OFFER_LIFE_MS = 2500,
    WAIT_MS = 100000,
    APART_MS = 10000, /* the ends of keys are no further apart */
    SEVERAL = 26,
    PARTS_MAX = 8
};

/* steps: what happens, and after a colon how the exchange ends: after OOM
 * Redis refused it for want of memory, and the model, which has memory, was not
 * asked. Holders are letters; the process of A is 0, that of B 1, and so on; a
 * is A with another handle. "spread" is a quorum's extension. "blank": the
 * process has no channel; "elsewhere": it had one on another run of the server.
 */
struct scenario {
    const char *name;
    const struct shed_algorithm *algorithm;
    bool is_fair;
    const char *steps;
};

struct step {
    const char *what, *end; /* "": it is no exchange */
};

static const struct scenario scenarios[] = {
    {"one holds it, another waits for its release", &shed_lock_lease, false,
     "acquire A: YES, acquire B: NO long, acquire A: YES, extend B: NO, "
     "extend A: YES, release B: NO, release A: YES waiters, release A: NO, "
     "acquire B: YES, release B: YES"},
    {"a waiter by the same handle is no other", &shed_lock_lease, false,
     "acquire A: YES, acquire a: NO long, release A: YES"},
    {"a try is undone, and nobody else's lock", &shed_lock_lease, false,
     "acquire A: YES, undo B: NO, undo A: YES, acquire B: YES"},
    {"a record can be written again without a longer life", &shed_lock_lease,
     false, "acquire A: YES, life 5000, rewrite A: YES, acquire B: NO short"},
    {"what has no end is given one", &shed_lock_lease, false,
     "acquire A: YES, persist, acquire B: NO long"},
    {"numbers are above what was advanced to", &shed_lock_lease, false,
     "acquire A: YES, release A: YES, advance 4000000000000000: YES, "
     "acquire A: YES, advance 5: YES, release A: YES, acquire B: YES"},
    {"a holder that is absent for the grace is gone", &shed_lock_lease, false,
     "acquire A: YES, acquire B: NO long, suspected 30000, "
     "acquire B: NO long, suspected 60000, acquire B: YES"},
    {"a holder that was there meanwhile stays", &shed_lock_lease, false,
     "open A, acquire A: YES, acquire B: NO long, suspected 60000, "
     "acquire B: NO long, close A, acquire B: NO long, open A, "
     "acquire B: NO long, close A, suspected 60000, acquire B: NO long, "
     "suspected 60000, acquire B: YES"},
    {"another holder gets a suspicion of its own", &shed_lock_lease, false,
     "acquire A: YES, acquire B: NO long, del, acquire C: YES, "
     "suspected 60000, acquire B: NO long, suspected 60000, acquire B: YES"},
    {"a clock that is set back costs a suspicion one grace", &shed_lock_lease,
     false,
     "acquire A: YES, acquire B: NO long, suspected -3600000, "
     "acquire B: NO long, suspected 60000, acquire B: YES"},
    {"a holder that was present on another run is not gone", &shed_lock_lease,
     false,
     "acquire A elsewhere: YES, acquire B: NO long, suspected 60000, "
     "acquire B: NO long"},
    {"a holder that was never present is not gone", &shed_lock_lease, false,
     "acquire A blank: YES, acquire B: NO long, suspected 60000, "
     "acquire B: NO long"},
    {"what is not renewed keeps its end when it is written again",
     &shed_lock_lease, false, "acquire A: YES, persist, rewrite A blank: YES"},
    {"a quorum's extension takes a free lock, and does not count it",
     &shed_lock_lease, false,
     "spread A: NO, extend A: YES, spread B: NO, release A: YES, "
     "set foreign, spread A: NO, del, extend A: NO, acquire B: YES"},
    {"a foreign client's lock is waited for", &shed_lock_lease, false,
     "set foreign, acquire A: NO short, extend A: NO, undo A: NO, "
     "release A: NO, del, extend A: NO, acquire A: YES"},
    {"first come, first served", &shed_lock_lease, true,
     "acquire A: YES, acquire B: NO long, acquire C: NO long, "
     "release A: YES, acquire C: NO short, acquire B: YES, release B: YES, "
     "acquire C: YES"},
    {"waiters that are absent for the grace are gone together",
     &shed_lock_lease, true,
     "open A, open D, acquire A: YES, acquire B: NO long, "
     "acquire C: NO long, release A: YES, acquire D: NO short, "
     "suspected 60000, acquire D: YES"},
    {"a waiter without a channel is not gone with the others", &shed_lock_lease,
     true,
     "open A, open D, acquire A: YES, acquire B: NO long, "
     "acquire C blank: NO long, release A: YES, acquire D: NO short, "
     "suspected 60000, acquire D: NO short"},
    {"a dead holder's lock is free while dead waiters are found out",
     &shed_lock_lease, true,
     "acquire A: YES, acquire B: NO long, acquire C: NO long, "
     "suspected 60000, acquire C: NO short, suspected 60000, acquire C: YES"},
    {"a live waiter keeps its turn", &shed_lock_lease, true,
     "open B, acquire A: YES, acquire B: NO long, release A: YES, "
     "acquire C: NO short, suspected 60000, offered 0, acquire C: NO short"},
    {"a waiter that comes back within the grace keeps its turn",
     &shed_lock_lease, true,
     "acquire A: YES, acquire B: NO long, release A: YES, "
     "acquire C: NO short, open B, offered 0, acquire C: NO short, close B, "
     "suspected 60000, offered 0, acquire C: NO short"},
    {"a waiter without a channel loses its turn when it does not take it",
     &shed_lock_lease, true,
     "acquire A: YES, acquire B blank: NO long, release A: YES, "
     "acquire C: NO short, suspected 60000, offered 0, acquire C: NO short, "
     "offered 250, acquire C: YES"},
    {"one that joined without a channel leaves nothing in the queue",
     &shed_lock_lease, true,
     "acquire A: YES, acquire B blank: NO long, acquire B: NO long, "
     "undo B: NO"},
    {"one that gives up leaves the queue", &shed_lock_lease, true,
     "acquire A: YES, acquire B: NO long, acquire C: NO long, undo B: NO, "
     "release A: YES, acquire C: YES"},
    {"a waiter of version 0.1 keeps its turn", &shed_lock_lease, true,
     "old B, acquire C: NO short"},
    {"without memory a lock is extended and written again", &shed_lock_lease,
     false,
     "acquire A: YES, life 60000, memory 1, extend A: YES, "
     "extend A blank: YES, life 60000, rewrite A: YES, extend B: NO"},
    {"without memory what is held is taken, and what is free refused",
     &shed_lock_lease, false,
     "open A, acquire A: YES, memory 1, acquire B: NO long, acquire A: YES, "
     "del, acquire B: OOM"},
    {"without memory the lock of a dead holder is taken", &shed_lock_lease,
     false, "acquire A: YES, acquire B: NO long, memory 1, acquire B: NO long"},
    {"without memory a fair lock of a dead holder is taken", &shed_lock_lease,
     true, "acquire A: YES, memory 1, acquire B: NO long, acquire B: NO long"},
    {"without memory the first waiter keeps its place", &shed_lock_lease, true,
     "acquire A: YES, acquire B: NO long, acquire C: NO long, "
     "release A: YES, memory 1, acquire B: OOM, memory 0, acquire B: YES"},
    {"without memory a foreign lock is taken", &shed_lock_lease, false,
     "set foreign, memory 1, acquire A: NO short"},
    {"SETNX holds it until DEL", &shed_lock_setnx, false,
     "acquire A: YES, acquire B: NO, acquire A: YES, undo B: NO, "
     "release A: YES, release A: NO, acquire B: YES, undo B: YES, "
     "acquire A: YES, set foreign, extend A: NO"},
    {"EXPIRE has a lease", &shed_lock_expire, false,
     "acquire A: YES, acquire B: NO long, extend B: NO, extend A: YES, "
     "undo B: NO, release A: YES, acquire B: YES, set foreign, extend B: NO"},
    {"past its lease EXPIRE removes another's lock", &shed_lock_expire, false,
     "acquire A: YES, del, acquire B: YES, release A: YES, release B: NO"},
    {"EXPIRE looks twice at what has no end", &shed_lock_expire, false,
     "set foreign, acquire A: NO short, later 30, acquire A: YES"},
    {"TIMESTAMP takes what has ended", &shed_lock_timestamp, false,
     "set 1700000000000, acquire A: YES, acquire B: NO long, extend A: YES, "
     "release A: YES, acquire B: YES, set 99999999999999, extend B: NO"},
    {"past its end TIMESTAMP leaves another's lock alone", &shed_lock_timestamp,
     false,
     "acquire A: YES, later 4000000, acquire B: YES, extend A: NO, "
     "release A: NO, release B: YES"},
};

static struct server server;
static struct lock_model model;
static struct shed_lock_options options;
static struct shed_lock_spec spec = {.key = {{KEY, sizeof(KEY) - 1},
                                             {KEY ":f", sizeof(KEY) + 1},
                                             {KEY ":s", sizeof(KEY) + 1},
                                             {KEY ":w", sizeof(KEY) + 1},
                                             {KEY ":q", sizeof(KEY) + 1},
                                             {KEY ":o", sizeof(KEY) + 1}},
                                     .options = &options};
static redisContext *commands, *channels[SEVERAL];
static uint64_t later_ms;       /* how far the wall clock has been set ahead */
static uint64_t last_number[2]; /* of the real server, of the model */
static struct shed_exchange last[2][SEVERAL];

static void set_up(void)
{
    char run[64];

    server = (struct server){0};
    server_start(&server);
    commands = redisConnectUnix(server.socket);
    ck_assert(commands != NULL && commands->err == 0);
    model = (struct lock_model){0};
    server_info(&server, "run_id", run, sizeof(run));
    memcpy(model.run, run, SHED_RUN_BYTES);
}

static void tear_down(void)
{
    for (unsigned i = 0; i < SEVERAL; i++)
        if (channels[i] != NULL)
            redisFree(channels[i]);
    redisFree(commands);
    server_stop(&server);
}

/* ------------------------------------------------------------ an exchange */

static unsigned number_of_holder(char letter)
{
    return (unsigned)(letter >= 'a' ? letter - 'a' : letter - 'A');
}

static void begin(struct shed_exchange *exchange,
                  const struct scenario *scenario, enum shed_lock_op op,
                  char letter, const char *how, unsigned side)
{
    struct shed_lock_holder holder = {.wait_ms = WAIT_MS};
    const struct shed_exchange *before = &last[side][number_of_holder(letter)];
    char process[SHED_PROCESS_BYTES + 1];

    memset(holder.token, letter, sizeof(holder.token));
    memset(holder.token_hex, letter, sizeof(holder.token_hex) - 1);
    /* a uses A's handle */
    memset(spec.handle, letter & ~('a' - 'A'), sizeof(spec.handle));
    spec.algorithm = scenario->algorithm;
    *exchange = shed_exchange_make(&spec, op, &holder);
    exchange->lease_ms = LEASE_MS;
    exchange->seen = before->seen;
    exchange->holder.expires = before->holder.expires;
    snprintf(process, sizeof(process), "%016x", number_of_holder(letter));
    memcpy(exchange->identity.process, process,
           sizeof(exchange->identity.process));
    memcpy(exchange->identity.run, model.run, SHED_RUN_BYTES);
    if (strcmp(how, "blank") == 0)
        memset(&exchange->identity, ' ', sizeof(exchange->identity));
    else if (strcmp(how, "elsewhere") == 0)
        memset(exchange->identity.run, '?', SHED_RUN_BYTES);
}

/* The reply that is in a redisReply, with its elements in the array part. */
static struct shed_reply convert(const redisReply *from,
                                 struct shed_reply *part,
                                 struct shed_reply **parts)
{
    static const enum shed_reply_type types[] = {
        [REDIS_REPLY_STRING] = SHED_REPLY_STRING,
        [REDIS_REPLY_ARRAY] = SHED_REPLY_ARRAY,
        [REDIS_REPLY_INTEGER] = SHED_REPLY_INTEGER,
        [REDIS_REPLY_NIL] = SHED_REPLY_NIL,
        [REDIS_REPLY_STATUS] = SHED_REPLY_STRING,
        [REDIS_REPLY_ERROR] = SHED_REPLY_ERROR};
    struct shed_reply to = {.type = types[from->type],
                            .size = from->type == REDIS_REPLY_ARRAY
                                        ? from->elements
                                        : (size_t)from->len,
                            .integer = from->integer,
                            .text = from->str,
                            .at = parts};

    for (size_t i = 0; to.type == SHED_REPLY_ARRAY && i < to.size; i++) {
        ck_assert_uint_lt(i, PARTS_MAX);
        part[i] = convert(from->element[i], NULL, NULL);
        parts[i] = &part[i];
    }
    return to;
}

static bool execute_real(struct shed_exchange *exchange, struct shed_args *args)
{
    char digits[SHED_DIGITS];
    bool is_script = memcmp(args->at[0], "EVALSHA", args->size[0]) == 0;
    struct shed_reply part[PARTS_MAX], *parts[PARTS_MAX], reply;
    redisReply *whole;
    bool goes_on;

    if (is_script) {
        shed_args_add_number(args, digits, 1);
        shed_script_by_text(args);
    }
    whole = redisCommandArgv(commands, args->count, args->at, args->size);
    ck_assert_ptr_nonnull(whole);
    if (is_script && whole->type != REDIS_REPLY_ERROR)
        reply = convert(whole->element[1], part, parts);
    else
        reply = convert(whole, part, parts);
    goes_on = exchange->spec->algorithm->on_reply(exchange, &reply);
    freeReplyObject(whole);
    return goes_on;
}

static bool execute_model(struct shed_exchange *exchange,
                          const struct shed_args *args)
{
    struct lock_model_memory room;
    struct lock_model_call call = {0};
    struct lock_model_reply reply;

    lock_model_read(&call, exchange->script, args);
    lock_model_execute(&model, &call, &reply);
    return exchange->spec->algorithm->on_reply(
        exchange, lock_model_to_reply(&reply, &room));
}

static void run_commands(struct shed_exchange *exchange, unsigned side,
                         uint64_t wall_ms)
{
    struct shed_args args;
    bool goes_on = true;

    while (goes_on) {
        args = (struct shed_args){0};
        exchange->wall_ms = wall_ms;
        exchange->now_ms = wall_ms;
        if (!exchange->spec->algorithm->next_command(exchange, &args))
            return;
        goes_on = side == 0 ? execute_real(exchange, &args)
                            : execute_model(exchange, &args);
    }
}

static void describe(const struct shed_exchange *exchange, char *out,
                     size_t size)
{
    static const char *const ends[] = {"YES", "NO", "FAILED", "WRONG"};
    bool is_oom = strstr(exchange->error.reason, "OOM") != NULL;

    snprintf(out, size, "%s%s%s", is_oom ? "OOM" : ends[exchange->end],
             exchange->has_waiters ? " waiters" : "",
             exchange->look_ms == 0          ? ""
             : exchange->look_ms <= SHORT_MS ? " short"
                                             : " long");
}

/* Numbers grow on both, and are not below the server's clock. */
static void check_number(const struct shed_exchange *exchange, unsigned side)
{
    if (exchange->op != SHED_LOCK_OP_ACQUIRE ||
        exchange->end != SHED_EXCHANGE_YES ||
        !exchange->spec->algorithm->has_tokens)
        return;
    ck_assert_uint_gt(exchange->fence, last_number[side]);
    ck_assert_uint_ge(exchange->fence, model.now_us);
    last_number[side] = exchange->fence;
}

/* Both get the same wall clock, or TIMESTAMP would write two values. */
static void run_exchange(const struct scenario *scenario,
                         const struct step *step, enum shed_lock_op op,
                         const char *who, const char *how)
{
    uint64_t wall_ms = model.now_us / 1000 + later_ms;
    char letter = op == SHED_LOCK_OP_ADVANCE ? 'A' : who[0];
    unsigned sides = strcmp(step->end, "OOM") == 0 ? 1 : 2;

    for (unsigned side = 0; side < sides; side++) {
        struct shed_exchange exchange;
        char end[32];
        begin(&exchange, scenario, op, letter, how, side);
        if (strncmp(step->what, "rewrite", strlen("rewrite")) == 0)
            exchange.lease_ms = 0;
        exchange.may_grant =
            strncmp(step->what, "spread", strlen("spread")) == 0;
        if (op == SHED_LOCK_OP_ADVANCE)
            exchange.fence = strtoull(who, NULL, 10);
        run_commands(&exchange, side, wall_ms);
        last[side][number_of_holder(letter)] = exchange;
        describe(&exchange, end, sizeof(end));
        ck_assert_msg(strcmp(end, step->end) == 0, "%s: %s: %s: %s %s, not %s",
                      scenario->name, step->what, side == 0 ? "redis" : "model",
                      end, exchange.error.reason, step->end);
        check_number(&exchange, side);
    }
}

/* --------------------------------------------------------------- the others */

static void wait_for_subscribers(unsigned p, long long count)
{
    uint64_t end_ms = test_deadline_ms();
    long long seen = -1;

    while (seen != count) {
        redisReply *reply =
            server_run(&server, "PUBSUB NUMSUB snowshed:process:%016x", p);
        seen = reply->element[1]->integer;
        freeReplyObject(reply);
        ck_assert_uint_lt(shed_now_ms(), end_ms);
    }
}

static void set_channel(unsigned p, bool is_open)
{
    if (is_open) {
        channels[p] = redisConnectUnix(server.socket);
        freeReplyObject(
            redisCommand(channels[p], "SUBSCRIBE snowshed:process:%016x", p));
        model.channels |= UINT32_C(1) << p;
    } else {
        redisFree(channels[p]);
        channels[p] = NULL;
        model.channels &= ~(UINT32_C(1) << p);
    }
    wait_for_subscribers(p, is_open);
}

static void set_life(const char *suffix, struct lock_model_slot *slot,
                     uint64_t life_ms)
{
    server_do(&server, "PEXPIRE " KEY "%s %llu", suffix,
              (unsigned long long)life_ms);
    slot->ends_ms = model.now_us / 1000 + life_ms;
}

static void set_text(const char *text)
{
    server_do(&server, "SET " KEY " %s", text);
    model.lock =
        (struct lock_model_slot){.is_set = true, .value.size = strlen(text)};
    memcpy(model.lock.value.at, text, strlen(text));
}

/* Its member of the queue names no process. */
static void enlist_old(char letter)
{
    struct lock_model_place *place = &model.queue[model.queue_count++];
    char text[64];

    snprintf(text, sizeof(text), "%*s9000000000000",
             SHED_TOKEN_BYTES + SHED_PROCESS_BYTES, "");
    memset(text, letter, SHED_TOKEN_BYTES);
    *place = (struct lock_model_place){lock_model_text(text, strlen(text)), 1};
    server_do(&server, "ZADD " KEY ":q 1 %b9000000000000", text,
              (size_t)SHED_TOKEN_BYTES);
}

static void run_other(const char *verb, const char *word)
{
    if (strcmp(verb, "open") == 0 || strcmp(verb, "close") == 0) {
        set_channel(number_of_holder(word[0]), verb[0] == 'o');
    } else if (strcmp(verb, "life") == 0) {
        set_life("", &model.lock, strtoull(word, NULL, 10));
    } else if (strcmp(verb, "suspected") == 0) {
        set_life(":s", &model.suspicion,
                 2 * GRACE_MS + LOOK_MS - strtoull(word, NULL, 10));
    } else if (strcmp(verb, "offered") == 0) {
        set_life(":o", &model.offer, OFFER_LIFE_MS - strtoull(word, NULL, 10));
    } else if (strcmp(verb, "persist") == 0) {
        server_do(&server, "PERSIST " KEY);
        model.lock.ends_ms = 0;
    } else if (strcmp(verb, "set") == 0) {
        set_text(word);
    } else if (strcmp(verb, "old") == 0) {
        enlist_old(word[0]);
    } else if (strcmp(verb, "memory") == 0) {
        server_do(&server, "CONFIG SET maxmemory %s", word);
    } else if (strcmp(verb, "later") == 0) {
        later_ms += strtoull(word, NULL, 10);
    } else {
        ck_assert_str_eq(verb, "del");
        server_do(&server, "DEL " KEY);
        model.lock.is_set = false;
    }
}

/* ---------------------------------------------------------------- the steps */

/* Both must have the same value at this key, with about the same time to live,
 * or none. */
static void compare_key(const char *suffix, const struct lock_model_slot *slot,
                        const char *scenario, const char *step)
{
    redisReply *value = server_run(&server, "GET " KEY "%s", suffix);
    long long life_ms = server_int(&server, "PTTL " KEY "%s", suffix);
    long long left_ms = (long long)(slot->ends_ms - model.now_us / 1000);

    ck_assert_msg((value->type == REDIS_REPLY_STRING) == slot->is_set,
                  "%s: %s: only one has it", scenario, step);
    if (slot->is_set) {
        ck_assert_uint_eq(value->len, slot->value.size);
        ck_assert_msg(memcmp(value->str, slot->value.at, value->len) == 0,
                      "%s: %s: %s", scenario, step, value->str);
        ck_assert_msg(slot->ends_ms == 0 ? life_ms == -1
                                         : llabs(life_ms - left_ms) < APART_MS,
                      "%s: %s: it ends in %lld and %lld ms", scenario, step,
                      life_ms, left_ms);
    }
    freeReplyObject(value);
}

static void compare(const char *scenario, const char *step)
{
    compare_key("", &model.lock, scenario, step);
    compare_key(":s", &model.suspicion, scenario, step);
    ck_assert_int_eq(server_int(&server, "ZCARD " KEY ":q"),
                     (long long)model.queue_count);
}

static void set_clock(void)
{
    redisReply *reply = server_run(&server, "TIME");

    model.now_us = strtoull(reply->element[0]->str, NULL, 10) * 1000000 +
                   strtoull(reply->element[1]->str, NULL, 10);
    freeReplyObject(reply);
}

static void run_step(const struct scenario *scenario, const struct step *step)
{
    static const char *const verbs[] = {"acquire", "extend",  "release", "undo",
                                        "advance", "rewrite", "spread"};
    static const enum shed_lock_op ops[] = {
        SHED_LOCK_OP_ACQUIRE, SHED_LOCK_OP_EXTEND,  SHED_LOCK_OP_RELEASE,
        SHED_LOCK_OP_UNDO,    SHED_LOCK_OP_ADVANCE, SHED_LOCK_OP_EXTEND,
        SHED_LOCK_OP_EXTEND};
    char verb[16] = "", word[32] = "", how[16] = "";
    size_t i = 0;

    ck_assert_int_ge(sscanf(step->what, "%15s %31s %15s", verb, word, how), 1);
    set_clock();
    while (i < sizeof(ops) / sizeof(*ops) && strcmp(verb, verbs[i]) != 0)
        i++;
    if (i < sizeof(ops) / sizeof(*ops))
        run_exchange(scenario, step, ops[i], word, how);
    else
        run_other(verb, word);
    compare(scenario->name, step->what);
}

TEST_EACH(the_model_does_what_redis_does, 0, COUNT_OF(scenarios))
{
    const struct scenario *scenario = &scenarios[_i];

    options = (struct shed_lock_options)SHED_LOCK_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    options.death_grace_ms = GRACE_MS;
    options.fair = scenario->is_fair;
    for (const char *at = scenario->steps; *at != '\0';) {
        char text[STEP_BYTES] = "", *colon;
        size_t size = strcspn(at, ",");
        struct step step = {text, ""};
        ck_assert_uint_lt(size, sizeof(text));
        memcpy(text, at, size);
        colon = strstr(text, ": ");
        if (colon != NULL) {
            *colon = '\0';
            step.end = colon + 2;
        }
        run_step(scenario, &step);
        at += size + strspn(at + size, ", ");
    }
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("lock model");
}
