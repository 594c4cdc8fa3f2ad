/* The Lua scripts on a real Redis. Each scenario
 * runs there and on the model: both must give the replies of the table, and
 * contain the same after each step. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "entry/entry.h"
#include "support/reply_testing.h"
#include "support/scenarios.h"
#include "support/server.h"
#include "support/testing.h"

#define CLIENTS 4
#define NAME_BYTES 256
#define CALL_NUMBER "4711"
#define ARGS_MAX (MODEL_ARGS_MAX + 6)

struct redis_store {
    struct store store;
    redisContext *main;
    redisContext *channel[CLIENTS]; /* of processes */
    redisContext *data[CLIENTS];    /* of clients that are tracked */
    redisContext *push[CLIENTS];
    char key[64];
    char refresh_key[64];
};

static struct server server; /* of all tests of the program */

/* -------------------------------------------------------------- connections */

static redisContext *open_connection(void)
{
    redisContext *c = server_connect(&server);

    ck_assert_msg(c != NULL, "cannot connect");
    return c;
}

static redisReply *take(redisContext *c, redisReply *reply)
{
    ck_assert_msg(reply != NULL, "no reply: %s", c->errstr);
    return reply;
}

/* Run a command that must not fail. */
#define run(c, ...) checked(c, redisCommand(c, __VA_ARGS__))
#define tell(c, ...) freeReplyObject(run(c, __VA_ARGS__))

static redisReply *checked(redisContext *c, redisReply *reply)
{
    take(c, reply);
    ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s", reply->str);
    return reply;
}

static long long integer(redisReply *reply)
{
    long long value = reply->integer;

    freeReplyObject(reply);
    return value;
}

/* A client like the library's: its reads are tracked on request, and pushes go
 * to a second connection. */
static void open_client(struct redis_store *s, unsigned client)
{
    long long id;

    s->push[client] = open_connection();
    s->data[client] = open_connection();
    id = integer(run(s->push[client], "CLIENT ID"));
    tell(s->push[client], "SUBSCRIBE __redis__:invalidate");
    tell(s->data[client], "CLIENT TRACKING ON REDIRECT %lld OPTIN", id);
}

/* -------------------------------------------------------- Redis as a store */

static struct redis_store *redis_of(struct store *store)
{
    return (struct redis_store *)store;
}

static void add_part(struct model_reply *out, const redisReply *r)
{
    struct model_bytes *part = &out->part[out->count++];

    if (r->type == REDIS_REPLY_INTEGER) {
        if (out->count == 2)
            out->integer = r->integer;
        else
            out->age_ms = (uint64_t)r->integer;
        model_bytes_number(part, (uint64_t)r->integer);
    } else {
        model_bytes_set(part, r->str, (size_t)r->len);
    }
}

static void convert(const redisReply *r, struct model_reply *out)
{
    out->count = 0;
    out->type = MODEL_PARTS;
    if (r->type == REDIS_REPLY_INTEGER) {
        out->type = MODEL_INTEGER;
        out->integer = r->integer;
    } else if (r->type == REDIS_REPLY_ERROR) {
        out->type = strstr(r->str, "OOM") != NULL ? MODEL_OOM : MODEL_ERROR;
        model_bytes_set(&out->part[0], r->str,
                        (size_t)r->len < MODEL_BYTES_MAX ? (size_t)r->len
                                                         : MODEL_BYTES_MAX);
    } else {
        ck_assert_int_eq(r->type, REDIS_REPLY_ARRAY);
        ck_assert_uint_le(r->elements, sizeof(out->part) / sizeof(*out->part));
        for (size_t i = 0; i < r->elements; i++)
            add_part(out, r->element[i]);
    }
}

/* The script's own reply, without the number of the call. That of publish has
 * an element for each row. */
static const redisReply *open_reply(const redisReply *whole,
                                    enum shed_script script)
{
    if (whole->type == REDIS_REPLY_ERROR)
        return whole;
    ck_assert_int_eq(whole->type, REDIS_REPLY_ARRAY);
    ck_assert_uint_eq(whole->elements, 2);
    ck_assert_str_eq(whole->element[0]->str, CALL_NUMBER);
    if (script != SHED_SCRIPT_PUBLISH)
        return whole->element[1];
    ck_assert_uint_eq(whole->element[1]->elements, 1);
    return whole->element[1]->element[0];
}

static redisReply *evaluate(struct redis_store *s, redisContext *c,
                            const struct model_call *call)
{
    bool has_value = call->script == SHED_SCRIPT_RENEW && call->is_refresh;
    bool has_two = has_value || (call->script != SHED_SCRIPT_FAIL &&
                                 call->script != SHED_SCRIPT_RENEW);
    const char *argv[ARGS_MAX] = {
        "EVALSHA", shed_script_texts[call->script].sha1, has_two ? "2" : "1",
        call->is_refresh ? s->refresh_key : s->key,
        has_value ? s->key : s->refresh_key};
    size_t sizes[ARGS_MAX];
    size_t argc = has_two ? 5 : 4;

    for (size_t i = 0; i < argc; i++)
        sizes[i] = strlen(argv[i]);
    for (size_t i = 0; i < call->argc; i++) {
        argv[argc] = (const char *)call->argv[i].at;
        sizes[argc++] = call->argv[i].size;
    }
    argv[argc] = CALL_NUMBER;
    sizes[argc++] = strlen(CALL_NUMBER);
    return take(c, redisCommandArgv(c, (int)argc, argv, sizes));
}

static void redis_call(struct store *store, const struct model_call *call,
                       struct model_reply *out)
{
    struct redis_store *s = redis_of(store);
    redisContext *c = s->main;
    redisReply *reply;

    if (call->is_tracked) {
        ck_assert_uint_lt(call->client, CLIENTS);
        if (s->data[call->client] == NULL)
            open_client(s, call->client);
        c = s->data[call->client];
        tell(c, "CLIENT CACHING YES");
    }
    reply = evaluate(s, c, call);
    convert(open_reply(reply, call->script), out);
    freeReplyObject(reply);
}

static uint64_t read_clock(redisContext *c)
{
    redisReply *reply = run(c, "TIME");
    uint64_t now_ms = strtoull(reply->element[0]->str, NULL, 10) * 1000 +
                      strtoull(reply->element[1]->str, NULL, 10) / 1000;

    freeReplyObject(reply);
    return now_ms;
}

static const char *key_of(struct store *store, bool is_refresh)
{
    struct redis_store *s = redis_of(store);

    return is_refresh ? s->refresh_key : s->key;
}

static void redis_get(struct store *store, bool is_refresh,
                      struct store_state *out)
{
    const char *key = key_of(store, is_refresh);
    redisContext *c = redis_of(store)->main;
    redisReply *reply = take(c, redisCommand(c, "GET %s", key));
    long long pttl = integer(run(c, "PTTL %s", key));

    out->type = reply->type == REDIS_REPLY_STRING ? STORE_STRING
                : reply->type == REDIS_REPLY_NIL  ? STORE_ABSENT
                                                  : STORE_OTHER;
    if (out->type == STORE_STRING)
        model_bytes_set(&out->bytes, reply->str, (size_t)reply->len);
    out->has_ttl = pttl >= 0;
    out->pttl_ms = (uint64_t)pttl;
    out->now_ms = read_clock(c);
    freeReplyObject(reply);
}

static void redis_set(struct store *store, bool is_refresh,
                      const struct store_state *state)
{
    const char *key = key_of(store, is_refresh);
    redisContext *c = redis_of(store)->main;

    if (state->type == STORE_STRING)
        tell(c, "SET %s %b", key, state->bytes.at, state->bytes.size);
    else
        tell(c, "DEL %s", key);
    if (state->type == STORE_OTHER)
        tell(c, "RPUSH %s one", key);
    if (state->type != STORE_ABSENT && state->has_ttl)
        tell(c, "PEXPIRE %s %llu", key, (unsigned long long)state->pttl_ms);
}

static void redis_set_full(struct store *store, bool is_full)
{
    struct redis_store *s = redis_of(store);

    tell(s->main, "CONFIG SET maxmemory %s", is_full ? "1" : "0");
}

/* Wait until Redis knows about the subscription or its end. */
static void await_subscribers(struct redis_store *s, unsigned process,
                              unsigned epoch, long long count)
{
    const uint64_t deadline = test_deadline_ms();
    long long now;

    do {
        redisReply *reply = run(
            s->main, "PUBSUB NUMSUB snowshed:process:%016x.%u", process, epoch);

        now = reply->element[1]->integer;
        freeReplyObject(reply);
    } while (now != count && shed_now_ms() < deadline);
    ck_assert_int_eq(now, count);
}

static void redis_set_channel(struct store *store, unsigned process,
                              unsigned epoch, bool is_open)
{
    struct redis_store *s = redis_of(store);

    ck_assert_uint_lt(process, CLIENTS);
    if (s->channel[process] != NULL)
        redisFree(s->channel[process]);
    s->channel[process] = NULL;
    if (is_open) {
        s->channel[process] = open_connection();
        tell(s->channel[process], "SUBSCRIBE snowshed:process:%016x.%u",
             process, epoch);
    }
    await_subscribers(s, process, epoch, is_open);
}

/* Everything that comes before PONG was sent before PING. */
static bool redis_take_pushes(struct store *store, unsigned client)
{
    redisContext *c = redis_of(store)->push[client];
    bool was_pushed = false;

    if (c == NULL)
        return false;
    ck_assert_int_eq(redisAppendCommand(c, "PING"), REDIS_OK);
    for (;;) {
        void *next = NULL;
        redisReply *reply;
        bool is_pong;

        ck_assert_int_eq(redisGetReply(c, &next), REDIS_OK);
        reply = next;
        is_pong = strcmp(reply->element[0]->str, "pong") == 0;
        freeReplyObject(reply);
        if (is_pong)
            return was_pushed;
        was_pushed = true;
    }
}

static void load_scripts(redisContext *c)
{
    for (size_t i = 0; i < SHED_SCRIPTS; i++) {
        redisReply *reply = run(c, "SCRIPT LOAD %b", shed_script_texts[i].text,
                                shed_script_texts[i].size);

        ck_assert_str_eq(reply->str, shed_script_texts[i].sha1);
        freeReplyObject(reply);
    }
}

static void open_redis(struct redis_store *s)
{
    *s = (struct redis_store){.store = {redis_call, redis_get, redis_set,
                                        redis_set_full, redis_set_channel,
                                        redis_take_pushes},
                              .main = open_connection()};
    snprintf(s->key, sizeof(s->key), "scripts:{%ld}", (long)getpid());
    snprintf(s->refresh_key, sizeof(s->refresh_key), "scripts:{%ld}:refresh",
             (long)getpid());
    load_scripts(s->main);
    tell(s->main, "DEL %s %s", s->key, s->refresh_key);
}

static void close_one(redisContext *c)
{
    if (c != NULL)
        redisFree(c);
}

static void close_redis(struct redis_store *s)
{
    redis_set_full(&s->store, false);
    tell(s->main, "DEL %s %s", s->key, s->refresh_key);
    for (size_t i = 0; i < CLIENTS; i++) {
        close_one(s->channel[i]);
        close_one(s->data[i]);
        close_one(s->push[i]);
    }
    redisFree(s->main);
}

/* ---------------------------------------------------------------- the tests */

/* Every key that a script leaves has a time to live; other clients may do as
 * they like. */
static void check_ttl(const char *step, const char *reply,
                      const struct store_state *state)
{
    if (strncmp(reply, "LEAD", 4) == 0 || strncmp(step, "put", 3) == 0)
        ck_assert_msg(state->type == STORE_ABSENT || state->has_ttl,
                      "%s left a key without a ttl", step);
}

static void run_step(const char *name, const char *step, const char *expected,
                     struct store *model, struct store *redis)
{
    char ours[STEP_TEXT_BYTES], theirs[STEP_TEXT_BYTES];
    struct store_state a, b;

    scenario_step(redis, step, theirs);
    ck_assert_msg(strcmp(theirs, expected) == 0,
                  "%s: %s: Redis: %s, expected: %s", name, step, theirs,
                  expected);
    scenario_step(model, step, ours);
    ck_assert_msg(strcmp(ours, theirs) == 0, "%s: %s: the model: %s, Redis: %s",
                  name, step, ours, theirs);
    for (int is_refresh = 0; is_refresh < 2; is_refresh++) {
        const char *difference;
        model->get(model, is_refresh, &a);
        redis->get(redis, is_refresh, &b);
        difference = scenario_difference(&a, &b);
        ck_assert_msg(
            difference == NULL, "%s: after %s: %smodel and Redis differ in %s",
            name, step, is_refresh ? "of the refresh lease, " : "", difference);
        check_ttl(step, theirs, &b);
    }
}

/* What others do, and the call behind it. */
static void run_steps(const char *name, const char *const row[2],
                      struct store *model, struct store *redis)
{
    char text[STEP_TEXT_BYTES], *step = text, *comma;

    snprintf(text, sizeof(text), "%s", row[0]);
    while ((comma = strchr(step, ',')) != NULL) {
        *comma = '\0';
        run_step(name, step, "OK", model, redis);
        step = comma + 1;
    }
    run_step(name, step, row[1], model, redis);
}

TEST_EACH(redis_and_the_model_do_what_the_scenario_says, 0, (int)scenario_count)
{
    const struct scenario *scenario = &scenarios[_i];
    struct redis_store redis;
    struct model_store model;

    open_redis(&redis);
    model_store_init(&model);
    for (size_t i = 0; i < SCENARIO_STEPS_MAX; i++)
        if (scenario->steps[i][0] != NULL)
            run_steps(scenario->name, scenario->steps[i], &model.store,
                      &redis.store);
    close_redis(&redis);
}

static void expect_reply(struct redis_store *s, const char *step,
                         const char *expected)
{
    char reply[STEP_TEXT_BYTES];

    scenario_step(&s->store, step, reply);
    ck_assert_str_eq(reply, expected);
}

TEST(without_the_right_to_numsub_a_waiter_waits_for_the_lease_to_end)
{
    struct redis_store redis;

    open_redis(&redis);
    tell(redis.main, "ACL SETUSER shedtest on nopass ~* &* +@all -pubsub");
    tell(redis.main, "AUTH shedtest any");
    expect_reply(&redis, "acquire 1 1 A", "LEAD A new");
    expect_reply(&redis, "acquire 2 1 B", "WAIT");
    expect_reply(&redis, "age 21000", "OK");
    expect_reply(&redis, "acquire 2 1 B", "LEAD A takeover");
    close_redis(&redis);
}

static bool is_denied(const char *text)
{
    char wire[STEP_TEXT_BYTES + 4];
    struct shed_reply *reply;
    bool is;

    (void)snprintf(wire, sizeof(wire), "-%s\r\n", text);
    reply = parse_reply(wire);
    is = shed_reply_code(reply) == SHED_EDENIED;
    shed_reply_free(reply);
    return is;
}

TEST(without_the_right_to_read_the_error_says_so)
{
    struct redis_store redis;
    char reply[STEP_TEXT_BYTES];

    open_redis(&redis);
    expect_reply(&redis, "acquire 1 1 A", "LEAD A new");
    tell(redis.main, "ACL SETUSER shedtest on nopass ~* &* +@all -get");
    tell(redis.main, "AUTH shedtest any");
    scenario_step(&redis.store, "publish A row 30000", reply);
    /* every server words it differently; the library must know them all */
    ck_assert_msg(strncmp(reply, "ERROR ", 6) == 0 && is_denied(reply + 6),
                  "%s", reply);
    tell(redis.main, "ACL SETUSER shedtest +get");
    expect_reply(&redis, "publish A row 30000", "STORED");
    close_redis(&redis);
}

/* Read a value, as a client that is tracked, so many ms before it expires. On a
 * busy machine it may have expired before. The change of its ttl is announced,
 * too. */
static bool is_read_in_time(struct redis_store *s, unsigned ms)
{
    char step[STEP_TEXT_BYTES], reply[STEP_TEXT_BYTES];

    expect_reply(s, "put row 30000", "1");
    snprintf(step, sizeof(step), "pttl %u", ms);
    expect_reply(s, step, "OK");
    (void)redis_take_pushes(&s->store, 2);
    scenario_step(&s->store, "acquire 2 1 B tracked", reply);
    return strcmp(reply, "HIT V row") == 0;
}

TEST(a_push_comes_when_a_value_expires)
{
    const uint64_t deadline = test_deadline_ms();
    struct redis_store redis;
    unsigned ms = 300;
    bool was_pushed;

    open_redis(&redis);
    while (!is_read_in_time(&redis, ms))
        ms *= 2;
    do /* Redis notices it at the latest when the key is read */
        tell(redis.main, "EXISTS %s", redis.key);
    while (!(was_pushed = redis_take_pushes(&redis.store, 2)) &&
           shed_now_ms() < deadline);
    ck_assert(was_pushed);
    ck_assert_int_eq(integer(run(redis.main, "EXISTS %s", redis.key)), 0);
    close_redis(&redis);
}

TEST(a_payload_with_every_byte_comes_back)
{
    unsigned char payload[100];
    struct redis_store redis;
    struct model_call call;
    struct model_reply reply;
    struct shed_entry entry;

    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (unsigned char)(i * 3);
    open_redis(&redis);
    model_make_put(&call, 0,
                   &(struct model_value){.is_row = true,
                                         .payload = payload,
                                         .size = sizeof(payload),
                                         .fresh_ms = 30000,
                                         .ttl_ms = 60000},
                   INT64_MAX);
    redis_call(&redis.store, &call, &reply);
    model_make_acquire(&call, 0, &(struct model_owner){.process = 1},
                       &(struct model_lease_times){20000, 80000, 0}, NULL, NULL,
                       false);
    redis_call(&redis.store, &call, &reply);
    ck_assert(model_bytes_are(&reply.part[0], "HIT"));
    ck_assert_int_eq(shed_entry_decode(model_key(0), reply.part[1].at,
                                       reply.part[1].size, &entry),
                     SHED_ENTRY_OK);
    ck_assert_uint_eq(entry.payload_size, sizeof(payload));
    ck_assert_mem_eq(entry.payload, payload, sizeof(payload));
    ck_assert_uint_eq(entry.until_ms - entry.written_ms, 30000);
    close_redis(&redis);
}

static void start(void)
{
    server_start(&server);
}

static void stop(void)
{
    server_stop(&server);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), start, stop);
    return run_tests("scripts");
}
