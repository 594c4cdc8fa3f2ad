/* What each script leaves behind when the server refuses one of its commands.
 * Redis does not undo what a script has written before an error. So each script
 * is called with each of its commands forbidden in turn, with each of its keys
 * of another type, and without memory: if that is an error, its keys are as
 * they were, except for what its row of the table allows, and the same call
 * succeeds when the fault is gone. */
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "entry/entry.h"
#include "wire/script.h"
#include "support/server.h"
#include "support/testing.h"

/* A lease of ours and of another process, and the parts of an entry. */
#define VERSION "AAAAAAAAAAAAAAAA"
#define ME "0123456789abcdef"
#define OTHER "fedcba9876543210"
#define FLIGHT "ffff"
#define TAIL "tailtail"
#define OURS VERSION " " ME " " FLIGHT
#define HEAD "\xf5shd\2Vxx" VERSION ME
#define IN_TIME "9999999999999" /* how long a put may come */
#define ROW HEAD " " TAIL " row 30000 "
#define LIFE " 60000"
#define ACQUIRE OURS " 1 20000 60000 0 '' '' ''"
#define ACQUIRE_PATIENTLY OURS " 1 20000 60000 100 '' '' ''"
/* The clocks of a budget's slots, and the end of some. */
#define SLOTS "ZADD c 1 wall 10 time 20000 "
/* The keys and arguments of a lock's script: of its token, handle, process and
 * run of the server, lease and grace. */
#define TOKEN "tokentokentoken1"
#define DEAD "deaddeaddeaddead"
#define RUN "runrunrunrunrun1"
#define HOLDER TOKEN " handle " ME " " RUN LIFE " 300 "
#define HELD "SET l LK1" TOKEN ME RUN " PX" LIFE
#define ALONE HOLDER "'' " WAITS
#define FAIR HOLDER WAITS " 0"
#define WAITS "9000000000000"
#define LOCK "l f z w q o"
#define PLAIN "l f z w"

enum { WORDS_MAX = 20, KEYS_MAX = 6, LINE_BYTES = 512 };

/* Keys are letters, '' is an empty word. */
static const struct row {
    const char *name;
    enum shed_script script;
    const char *keys, *args;
    const char *reply; /* its beginning, if nothing is refused */
    const char *steps; /* before the call, with "; " between them */
    /* what a call that fails may leave with another value, and may remove */
    const char *may_change, *may_go;
} rows[] = {
    {"acquire", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD", "", "", ""},
    {"acquire ours", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD", "ours k", "",
     ""},
    {"acquire of the dead", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD",
     "dead k", "", ""},
    {"find somebody dead", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE_PATIENTLY,
     "WAIT", "dead k", "", ""},
    {"acquire what is over", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD",
     "over k", "", ""},
    {"acquire of the future", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "WAIT",
     "future k", "", ""},
    {"acquire a refresh", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD",
     "stale k", "", ""},
    {"acquire a refresh of the dead", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE,
     "LEAD", "stale k; dead r", "", ""},
    {"acquire after a failure", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD",
     "failure k", "", ""},
    {"acquire over a text", SHED_SCRIPT_ACQUIRE, "k r", ACQUIRE, "LEAD",
     "SET k text", "", ""},
    {"publish", SHED_SCRIPT_PUBLISH, "k r", VERSION " " ROW "60000 '' '' ''",
     "STORED", "ours k", "", ""},
    {"publish for nobody", SHED_SCRIPT_PUBLISH, "k r",
     VERSION " " ROW "0 '' '' ''", "STORED", "ours k", "", ""},
    /* the new value is there, and its refresh lease lasts to its end */
    {"publish a refresh", SHED_SCRIPT_PUBLISH, "k r",
     VERSION " " ROW "60000 " VERSION " '' ''", "STORED", "stale k; ours r",
     "k", ""},
    {"publish an unmodified one", SHED_SCRIPT_PUBLISH, "k r",
     VERSION " '' '' '' 30000 60000 " VERSION " keep ''", "STORED",
     "stale k; ours r", "k", ""},
    {"fail", SHED_SCRIPT_FAIL, "k", OURS " " HEAD " " TAIL " why 500 5000", "1",
     "ours k", "", ""},
    {"fail without a marker", SHED_SCRIPT_FAIL, "k",
     OURS " " HEAD " " TAIL " why 0 0", "1", "ours k", "", ""},
    {"renew", SHED_SCRIPT_RENEW, "k", OURS " 20000 1", "1", "ours k", "", ""},
    {"invalidate", SHED_SCRIPT_INVALIDATE, "k r", "", "2", "stale k; ours r",
     "", ""},
    /* a refresh that ends too early was in vain */
    {"expire", SHED_SCRIPT_EXPIRE, "k r", "0", "1", "fresh k; ours r", "", "r"},
    {"expire a lease", SHED_SCRIPT_EXPIRE, "k r", "0", "0", "ours k", "", ""},
    /* what a put could not replace is older than its row */
    {"put", SHED_SCRIPT_PUT, "k r", ROW "60000 '' '' " IN_TIME, "1",
     "fresh k; ours r", "k", "k r"},
    {"put a version", SHED_SCRIPT_PUT, "k r", ROW "60000 version1 '' " IN_TIME,
     "1", "ours k; ours r", "k", "k r"},
    {"put a version over none", SHED_SCRIPT_PUT, "k r",
     ROW "60000 version1 '' " IN_TIME, "3", "fresh k; ours r", "", ""},
    /* the client takes a Redis that refuses for away */
    {"take the first slot", SHED_SCRIPT_SLOTS, "c", "me 2 30000 100 0 1", "1",
     "", "c", ""},
    {"keep and take slots", SHED_SCRIPT_SLOTS, "c", "me 3 30000 100 1 2", "2",
     SLOTS
     "me:2 20000 him:1 90 over:3 -400 him -300 me -90 over; PEXPIRE c" LIFE,
     "c", ""},
    {"keep beyond the budget", SHED_SCRIPT_SLOTS, "c", "me 1 30000 100 2 2",
     "2", SLOTS "him:1; PEXPIRE c" LIFE, "c", ""},
    {"ask for a slot in vain", SHED_SCRIPT_SLOTS, "c", "me 1 30000 100 0 1",
     "0", SLOTS "him:1; PEXPIRE c" LIFE, "c", ""},
    /* nothing is left but the clocks */
    {"give back the last slot", SHED_SCRIPT_SLOTS, "c", "me 2 30000 100 0 0",
     "0", SLOTS "me:1; PEXPIRE c" LIFE, "c", ""},
    {"invalidate a tag", SHED_SCRIPT_INVALIDATE_TAG, "g", "red 10 0", "",
     "ZADD g 1000 red 2000 blue 500 ''", "", ""},
    /* it is invalidated, and what is older is still there */
    {"invalidate all", SHED_SCRIPT_INVALIDATE_TAG, "g", "'' 10 0", "",
     "ZADD g 1000 red 2000 blue 500 ''", "g", ""},
    {"invalidate one tag too many", SHED_SCRIPT_INVALIDATE_TAG, "g",
     "green 2 0", "", "ZADD g 1000 red 2000 blue 500 ''", "", ""},
    /* of a lock the suspicion z, the offer o and the mark w are hints, and its
     * counter f grows */
    {"take a lock", SHED_SCRIPT_LOCK_ACQUIRE, PLAIN, ALONE, "HELD", "", "f",
     ""},
    {"take a lock again", SHED_SCRIPT_LOCK_ACQUIRE, PLAIN, ALONE, "HELD", HELD,
     "f", "l"},
    {"take the lock of the dead", SHED_SCRIPT_LOCK_ACQUIRE, PLAIN, ALONE,
     "HELD", "gone l; SET z " DEAD " PX 400", "f z", "l z"},
    {"suspect a holder", SHED_SCRIPT_LOCK_ACQUIRE, PLAIN, ALONE, "TAKEN",
     "gone l", "z", ""},
    {"wait for a foreign holder", SHED_SCRIPT_LOCK_ACQUIRE, PLAIN, ALONE,
     "TAKEN", "SET l text PX" LIFE, "w", ""},
    {"take a fair lock in turn", SHED_SCRIPT_LOCK_ACQUIRE, LOCK, FAIR, "HELD",
     "ZADD q 1 " TOKEN ME WAITS "; PEXPIRE q" LIFE, "f", ""},
    {"wait for another's turn", SHED_SCRIPT_LOCK_ACQUIRE, LOCK, FAIR, "TAKEN",
     "ZADD q 1 waiter--waiter--" OTHER WAITS "; PEXPIRE q" LIFE, "z q o", "q"},
    {"queue for the lock of the dead", SHED_SCRIPT_LOCK_ACQUIRE, LOCK, FAIR,
     "TAKEN",
     "gone l; SET z " DEAD " PX 400; ZADD q 1 waiter--waiter--" OTHER WAITS,
     "z q o", "l z q"},
    {"release", SHED_SCRIPT_LOCK_RELEASE, PLAIN, ALONE, "2",
     HELD "; SET w another PX" LIFE, "", ""},
    {"release a fair lock", SHED_SCRIPT_LOCK_RELEASE, LOCK, FAIR, "1",
     HELD "; ZADD q 1 " TOKEN ME WAITS "; PEXPIRE q" LIFE, "", "q"},
    {"give up waiting", SHED_SCRIPT_LOCK_RELEASE, LOCK, FAIR, "0",
     "ZADD q 1 " TOKEN ME WAITS "; PEXPIRE q" LIFE, "", "q"},
    {"extend", SHED_SCRIPT_LOCK_EXTEND, PLAIN, ALONE, "1", HELD, "", ""},
    {"extend and rewrite", SHED_SCRIPT_LOCK_EXTEND, PLAIN, ALONE, "1",
     "SET l LK1" TOKEN OTHER RUN " PX" LIFE, "", ""},
    {"take what a quorum has granted", SHED_SCRIPT_LOCK_EXTEND, PLAIN,
     HOLDER "'' 1", "0", "", "", ""},
    {"advance", SHED_SCRIPT_LOCK_ADVANCE, PLAIN, ALONE, "4711",
     "SET f 4711 PX" LIFE, "", ""},
    {"advance a counter that is not there", SHED_SCRIPT_LOCK_ADVANCE, PLAIN,
     ALONE, "0", "", "", ""},
    {"repair", SHED_SCRIPT_LOCK_SWAP, "l", "old new" LIFE, "1", "SET l old", "",
     ""},
    {"swap away", SHED_SCRIPT_LOCK_SWAP, "l", "old '' 0", "1", "SET l old", "",
     ""},
    {"swap", SHED_SCRIPT_LOCK_SWAP, "l", "old new 0", "1", "SET l old", "", ""},
    {"prolong", SHED_SCRIPT_LOCK_SWAP, "l", "old old" LIFE, "1", "SET l old",
     "", ""},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

static const char *const commands[] = {"get",           "set",
                                       "setrange",      "del",
                                       "unlink",        "pttl",
                                       "pexpire",       "time",
                                       "incrby",        "zadd",
                                       "zrange",        "zrem",
                                       "zrangebyscore", "zremrangebyscore",
                                       "zcount",        "info",
                                       "pubsub"};

enum { COMMANDS = sizeof(commands) / sizeof(*commands) };

static struct server server;
static redisContext *admin, *user;
static char run_id[17];

/* ------------------------------------------------------------------- steps */

/* Append the words of a text to argv; '' is an empty one. */
static int add_words(const char **argv, int argc, char *text)
{
    for (char *rest = text, *word;
         (word = strtok_r(rest, " ", &rest)) != NULL;) {
        ck_assert_int_lt(argc, WORDS_MAX);
        argv[argc++] = strcmp(word, "''") == 0 ? "" : word;
    }
    return argc;
}

static redisReply *checked(redisReply *reply, const char *what)
{
    ck_assert_msg(reply != NULL && reply->type != REDIS_REPLY_ERROR, "%s: %s",
                  what, reply != NULL ? reply->str : "no reply");
    return reply;
}

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void tell(const char *format, ...)
{
    char line[LINE_BYTES];
    const char *argv[WORDS_MAX];
    va_list arguments;
    int argc;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    argc = add_words(argv, 0, line);
    freeReplyObject(checked(redisCommandArgv(admin, argc, argv, NULL), format));
}

/* The integer that a command of the administrator returns, or the number in the
 * text; 0 for nothing. */
static long long number(const char *format, ...)
{
    redisReply *reply;
    va_list arguments;
    long long value;

    va_start(arguments, format);
    reply = checked(redisvCommand(admin, format, arguments), format);
    va_end(arguments);
    value = reply->type == REDIS_REPLY_STRING ? atoll(reply->str)
            : reply->type == REDIS_REPLY_NIL  ? 0
                                              : reply->integer;
    freeReplyObject(reply);
    return value;
}

/* Entries, by the word of their step: a value or a marker with the nonce
 * VERSION, or a lease; when they were written and when they end, in s from now.
 */
static const struct kind {
    const char *word;
    char type;
    uint32_t epoch; /* of a lease; no channel is ever subscribed to */
    const char *process;
    int written_s, until_s;
} kinds[] = {
    {"fresh", 'V', 0, OTHER, -10, 50},    {"stale", 'V', 0, OTHER, -50, -10},
    {"failure", 'F', 0, OTHER, -50, -10}, {"ours", 'L', 0, ME, -1, 19},
    {"dead", 'L', 1, OTHER, -10, 10},     {"over", 'L', 0, OTHER, -50, -10},
    {"future", 'L', 0, OTHER, 100, 120},
};

static void set_entry(const char *key, const struct kind *kind)
{
    enum { S = 1000 };
    unsigned char bytes[SHED_ENTRY_HEADER_BYTES] = HEAD;
    int64_t now_ms = (int64_t)shed_wall_ms();

    bytes[5] = (unsigned char)kind->type;
    bytes[6] = bytes[7] = 0;
    memcpy(bytes + SHED_ENTRY_PROCESS_AT, kind->process, strlen(ME));
    shed_entry_put_u64(bytes + SHED_ENTRY_HEAD_BYTES,
                       (uint64_t)(now_ms + kind->written_s * S));
    shed_entry_put_u64(bytes + SHED_ENTRY_HEAD_BYTES + sizeof(uint64_t),
                       (uint64_t)(now_ms + kind->until_s * S));
    memcpy(bytes + sizeof(bytes) - strlen(TAIL), FLIGHT, strlen(FLIGHT));
    shed_entry_put_u32(bytes + sizeof(bytes) - sizeof(kind->epoch),
                       kind->epoch);
    freeReplyObject(checked(
        redisCommand(admin, "SET %s %b PX" LIFE, key, bytes, sizeof(bytes)),
        kind->word));
}

static void do_step(const char *step)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        size_t size = strlen(kinds[i].word);
        if (strncmp(step, kinds[i].word, size) == 0) {
            set_entry(step + size + 1, &kinds[i]);
            return;
        }
    }
    if (strcmp(step, "gone l") == 0) /* its holder was there in this run */
        tell("SET l LK1" DEAD OTHER "%s PX" LIFE, run_id);
    else
        tell("%s", step);
}

static void make(const struct row *row)
{
    char steps[LINE_BYTES];

    tell("FLUSHALL");
    snprintf(steps, sizeof(steps), "%s", row->steps);
    for (char *rest = steps, *step;
         (step = strtok_r(rest, ";", &rest)) != NULL;)
        do_step(step + strspn(step, " "));
}

/* -------------------------------------------------------------------- call */

static redisReply *call(const struct row *row)
{
    const struct shed_script_text *script = &shed_script_texts[row->script];
    char keys[16], args[LINE_BYTES], count[12];
    const char *argv[WORDS_MAX] = {"EVAL", script->text, count};
    int argc;

    snprintf(keys, sizeof(keys), "%s", row->keys);
    snprintf(args, sizeof(args), "%s", row->args);
    argc = add_words(argv, 3, keys);
    snprintf(count, sizeof(count), "%d", argc - 3);
    argc = add_words(argv, argc, args);
    argv[argc++] = "1"; /* the call's number */
    return redisCommandArgv(user, argc, argv, NULL);
}

/* A script's own answer, which comes behind the call's number. What it returns
 * without raising it is an error in that place. */
static const redisReply *answer_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY ? reply->element[1] : reply;
}

/* The reply of a call that must succeed begins so. */
static void expect_reply(const struct row *row, const char *expected,
                         const char *when)
{
    redisReply *reply = call(row);
    const redisReply *answer;
    char text[LINE_BYTES];

    ck_assert_ptr_nonnull(reply);
    answer = answer_of(reply);
    ck_assert_msg(answer->type != REDIS_REPLY_ERROR, "%s, %s: %s", row->name,
                  when, answer->str);
    while (answer->type == REDIS_REPLY_ARRAY)
        answer = answer->element[0];
    if (answer->type == REDIS_REPLY_INTEGER)
        snprintf(text, sizeof(text), "%lld", answer->integer);
    else
        snprintf(text, sizeof(text), "%s",
                 answer->str != NULL ? answer->str : "nil");
    ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s, %s: %s",
                  row->name, when, text);
    freeReplyObject(reply);
}

/* ------------------------------------------------------------------ states */

/* Of the keys of a row: what DUMP gives, and PTTL. */
struct state {
    redisReply *value[KEYS_MAX];
    bool has_ttl[KEYS_MAX];
};

static size_t count_keys(const struct row *row)
{
    return (strlen(row->keys) + 1) / 2;
}

static char key_at(const struct row *row, size_t i)
{
    return row->keys[2 * i];
}

static void read_state(const struct row *row, struct state *out)
{
    for (size_t i = 0; i < count_keys(row); i++) {
        const char *key = row->keys + 2 * i;
        out->value[i] =
            checked(redisCommand(admin, "DUMP %b", key, (size_t)1), row->name);
        out->has_ttl[i] = number("PTTL %b", key, (size_t)1) >= 0;
    }
}

static void free_state(const struct row *row, struct state *s)
{
    for (size_t i = 0; i < count_keys(row); i++)
        freeReplyObject(s->value[i]);
}

static bool is_same(const struct state *a, const struct state *b, size_t i)
{
    const redisReply *x = a->value[i], *y = b->value[i];

    if (x->type != y->type || a->has_ttl[i] != b->has_ttl[i])
        return false;
    return x->type == REDIS_REPLY_NIL ||
           (x->len == y->len && memcmp(x->str, y->str, (size_t)x->len) == 0);
}

static void expect_kept(const struct row *row, const char *fault,
                        const struct state *before)
{
    struct state after;

    read_state(row, &after);
    for (size_t i = 0; i < count_keys(row); i++) {
        bool is_gone = after.value[i]->type == REDIS_REPLY_NIL;
        const char *may = is_gone ? row->may_go : row->may_change;
        ck_assert_msg(is_same(before, &after, i) ||
                          strchr(may, key_at(row, i)) != NULL,
                      "%s, %s: %c is %s", row->name, fault, key_at(row, i),
                      is_gone ? "gone" : "changed");
    }
    free_state(row, &after);
}

/* No earlier invalidation of a tag is forgotten. */
static void expect_positions(const struct row *row, const char *fault)
{
    static const struct {
        const char *tag;
        long long position;
    } was[] = {{"red", 1000}, {"blue", 2000}, {"", 500}};
    long long all = number("ZSCORE g %s", "");

    for (size_t i = 0; i < sizeof(was) / sizeof(*was); i++)
        ck_assert_msg(all >= was[i].position ||
                          number("ZSCORE g %s", was[i].tag) >= was[i].position,
                      "%s, %s: that of '%s' is forgotten", row->name, fault,
                      was[i].tag);
}

/* Call the script of a row that has been made, with a fault. Returns whether
 * that was an error. */
static bool fails(const struct row *row, const char *fault)
{
    struct state before;
    redisReply *reply;
    bool is_error;

    read_state(row, &before);
    reply = call(row);
    ck_assert_ptr_nonnull(reply);
    is_error = answer_of(reply)->type == REDIS_REPLY_ERROR;
    if (is_error)
        expect_kept(row, fault, &before);
    freeReplyObject(reply);
    free_state(row, &before);
    return is_error;
}

static void expect_whole(const struct row *row, const char *fault)
{
    ck_assert_msg(row->script != SHED_SCRIPT_SLOTS || number("PTTL c") != -1,
                  "%s, %s: the slots have no time to live", row->name, fault);
    if (row->script == SHED_SCRIPT_INVALIDATE_TAG)
        expect_positions(row, fault);
}

/* ------------------------------------------------------------------- tests */

static void open_both(void)
{
    admin = server_connect(&server);
    user = server_connect(&server);
    tell("CONFIG SET maxmemory 0");
    tell("ACL SETUSER shop on nopass ~* &* +@all");
    freeReplyObject(checked(redisCommand(user, "AUTH shop any"), "AUTH"));
    server_info(&server, "run_id", run_id, sizeof(run_id));
}

static void close_both(void)
{
    redisFree(user);
    redisFree(admin);
}

TEST_EACH(without_one_right_a_script_does_all_or_nothing, 0, ROWS)
{
    const struct row *row = &rows[_i];
    unsigned errors = 0;

    open_both();
    make(row);
    expect_reply(row, row->reply, "with all rights");
    for (size_t i = 0; i < COMMANDS; i++) {
        bool has_failed;
        make(row);
        tell("ACL SETUSER shop -%s", commands[i]);
        has_failed = fails(row, commands[i]);
        tell("ACL SETUSER shop +%s", commands[i]);
        expect_whole(row, commands[i]);
        if (has_failed)
            expect_reply(row, "", commands[i]);
        errors += has_failed;
    }
    ck_assert_uint_gt(errors, 0);
    close_both();
}

TEST_EACH(with_a_key_of_another_type_a_script_does_all_or_nothing, 0, ROWS)
{
    const struct row *row = &rows[_i];

    open_both();
    for (size_t i = 0; i < count_keys(row); i++) {
        const char key[] = {key_at(row, i), '\0'};
        make(row);
        tell("DEL %s", key);
        tell("RPUSH %s item", key);
        (void)fails(row, key);
    }
    close_both();
}

TEST_EACH(without_memory_a_script_does_all_or_nothing, 0, ROWS)
{
    const struct row *row = &rows[_i];
    bool has_failed;

    open_both();
    make(row);
    tell("CONFIG SET maxmemory 1");
    has_failed = fails(row, "no memory");
    tell("CONFIG SET maxmemory 0");
    expect_whole(row, "no memory");
    if (has_failed)
        expect_reply(row, "", "no memory");
    close_both();
}

TEST(every_script_that_writes_has_a_row)
{
    bool has_row[SHED_SCRIPTS] = {[SHED_SCRIPT_PROBE] = true};

    for (size_t i = 0; i < ROWS; i++)
        has_row[rows[i].script] = true;
    for (size_t i = 0; i < SHED_SCRIPTS; i++)
        ck_assert_msg(has_row[i], "%s", shed_script_texts[i].name);
}

/* One server for all rows. */
static void start_server(void)
{
    server_start(&server);
}

static void stop_server(void)
{
    server_stop(&server);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), start_server, stop_server);
    return run_tests("script errors");
}
