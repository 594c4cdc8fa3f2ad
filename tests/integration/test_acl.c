/* The rights that src/redis/README.md lists for a Redis user are enough for
 * everything that the library does: nothing is refused, not even silently. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <snowshed/stats.h>

#include "client/probe.h"
#include "support/bare.h"
#include "support/answers.h"
#include "support/lock_fixture.h"

#define COMMAND "ACL SETUSER shop "
#define PASSWORD "PASSWORD"

enum {
    LEASE_MS = 3600000,
    SHORT_MS = 300,
    SLOW_US = 400000,
    SILENCE_MS = 20000 /* some tests wait for its end */
};

static char uri[SERVER_URI_BYTES + 32];

/* of a test */
static struct shed_client *client;
static struct shed_source *source;
static struct shed_cache *cache;

/* Read the rights from src/redis/README.md: from the command to the next empty
 * line. */
static void read_rights(char *out, size_t size)
{
    FILE *in = fopen(README, "r");
    char line[512];
    bool is_inside = false;

    ck_assert_ptr_nonnull(in);
    *out = '\0';
    while (fgets(line, sizeof(line), in) != NULL) {
        const char *at = strstr(line, COMMAND);
        if (is_inside && line[0] == '\n')
            break;
        is_inside |= at != NULL;
        if (is_inside)
            strncat(out, at != NULL ? at : line, size - strlen(out) - 1);
    }
    fclose(in);
    ck_assert(is_inside);
}

/* The data commands that each use needs; all other commands are needed by all
 * uses but the last two, which go with a cache. */
#define LOCK_COMMANDS                                                          \
    "+get +set +del +pttl +pexpire +incrby +zadd +zrange +zrem "
enum use { CACHE, LOCK, TEXT_LOCK, EXACT_LOCK, TAGS, FLEET, REPLICAS };
static const struct {
    const char *word, *key, *sides; /* of a probe */
    const char *commands;
} uses[] = {
    [CACHE] = {"cache", "item:{snowshed:probe}", "item:{snowshed:probe}",
               "+get +set +del +pttl +pexpire +setrange +unlink "},
    [LOCK] = {"lock", "lock:{job}", "lock:{job}", LOCK_COMMANDS},
    [TEXT_LOCK] = {"text", "lock:job", "lock:job",
                   "+get +set +del +pttl +pexpire +setnx +getset "},
    [EXACT_LOCK] = {"lock", "lock:{b}x", "lock:={b}lock:{b}x", LOCK_COMMANDS},
    [TAGS] = {"tags", "item:tags", "item:tags",
              "+zadd +zrange +zrem +zrangebyscore +unlink "},
    [FLEET] = {"fleet", "item:loads", "item:loads",
               "+zadd +zrem +zrangebyscore +zremrangebyscore +zcount "
               "+unlink +pexpire "},
    [REPLICAS] = {"replicas", "lock:{job}", "lock:{job}", "+wait "}};

enum { USES = COUNT_OF(uses) };

/* Whether a right, as README.md names it, is needed for this use. */
static bool is_needed(enum use use, const char *right)
{
    char word[64];
    bool is_of_data = false;

    snprintf(word, sizeof(word), "%s ", right);
    for (size_t i = 0; i < USES; i++)
        is_of_data |= strstr(uses[i].commands, word) != NULL;
    /* without EVALSHA the probe cannot ask */
    return is_of_data ? strstr(uses[use].commands, word) != NULL
                      : use < TAGS || strcmp(right, "+evalsha") == 0;
}

/* Start a server that has the user, and use it. */
static void set_up(void)
{
    char command[2048];
    redisContext *c;
    redisReply *reply;
    const char *argv[128];
    int argc = 0;

    server_up();
    read_rights(command, sizeof(command));
    for (char *rest = command, *word;
         (word = strtok_r(rest, " \n", &rest)) != NULL && argc < 128;)
        argv[argc++] = word;
    c = redisConnectUnix(server.socket);
    reply = redisCommandArgv(c, argc, argv, NULL);
    ck_assert_msg(reply != NULL && reply->type == REDIS_REPLY_STATUS, "%s",
                  reply != NULL ? reply->str : "no reply");
    freeReplyObject(reply);
    redisFree(c);
    snprintf(uri, sizeof(uri), "unix://shop:" PASSWORD "@%s?db=0",
             server.socket);
}

/* The server has logged every refusal. */
static void tear_down(void)
{
    redisReply *log;

    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    log = server_run(&server, "ACL LOG");
    ck_assert_int_eq(log->type, REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < log->elements; i++)
        ck_abort_msg("refused: %s %s", log->element[i]->element[3]->str,
                     log->element[i]->element[7]->str);
    freeReplyObject(log);
    server_down();
}

/* A slow machine must not look like a Redis that is away. */
static void open_shop(void)
{
    struct shed_client_options o = bare_client();
    struct shed_error err;

    o.command_timeout_ms = SILENCE_MS;
    ck_assert_msg(shed_client_open(uri, &o, &client, &err) == SHED_OK, "%s",
                  err.reason);
}

/* Revoke what neither of the two uses needs. */
static void leave_only(enum use use, enum use other)
{
    char rights[2048];

    read_rights(rights, sizeof(rights));
    for (char *rest = rights, *word;
         (word = strtok_r(rest, " \n", &rest)) != NULL;)
        if (*word == '+' && !is_needed(use, word) && !is_needed(other, word))
            server_do(&server, "ACL SETUSER shop -%s", word + 1);
}

/* "a" has a row, other keys have none. */
static void load(void *user, void *thread, struct shed_load *load)
{
    (void)user;
    (void)thread;
    for (size_t i = 0; i < load->count; i++) {
        struct shed_bytes asked = load->keys[i].key;
        const char *key = asked.data;
        if (asked.size == 1 && *key == 's')
            usleep(SLOW_US); /* long enough that the lease has to be renewed */
        if (asked.size == 1 && *key == 'a')
            answer_row(load, i, shed_str("row"));
        else if (asked.size == 1 && *key == 'f')
            answer_failed(load, i, "no");
        else
            answer_absent(load, i);
    }
    shed_load_done(load);
}

static void open_cache(const struct shed_cache_options *options,
                       uint64_t fleet_loads)
{
    struct shed_source_options so = bare_source();

    so.fleet_loads = fleet_loads;
    open_shop();
    EXPECT_OK(shed_source_open_batch(load, NULL, &so, &source, NULL));
    EXPECT_OK(shed_cache_open(client, "item", source, options, &cache, NULL));
}

/* Every option that needs rights. */
static void open_all(void)
{
    struct shed_cache_options o = bare_cache();

    o.tags_limit = 10;
    o.stale_while_revalidate_ms = PLENTY_MS;
    open_cache(&o, 2);
}

static void get(const char *key, enum shed_code code)
{
    struct shed_value *value;
    struct shed_error err;

    ck_assert_msg(shed_get(cache, shed_str(key), NULL, &value, &err) == code,
                  "%s", err.reason);
    shed_value_unref(value);
}

static struct shed_stats read_stats(void)
{
    struct shed_stats stats;

    EXPECT_OK(shed_stats_read(cache, &stats, sizeof(stats), NULL));
    return stats;
}

TEST(a_cache_needs_no_more_rights)
{
    struct shed_cache_options o = bare_cache();

    leave_only(CACHE, CACHE);
    o.lease_ms = SHORT_MS;
    open_cache(&o, 0);
    get("s", SHED_OK);
    for (unsigned i = 0; i < 2; i++) {
        get("a", SHED_OK);
        get("b", SHED_OK);
        get("f", SHED_ESOURCE);
        EXPECT_OK(shed_put(cache, shed_str("a"), shed_str("new"), NULL, NULL));
        get("a", SHED_OK);
        server_do(&server, "SET item:{a} foreign EX 100");
        get("a", SHED_OK);
        EXPECT_OK(shed_invalidate(cache, shed_str("a"), 0, NULL));
        server_do(&server, "SCRIPT FLUSH");
    }
    WAIT_FOR(server_clients(&server, "flags=t") == 1);
    WAIT_FOR(server_calls(&server, "ping") > 1); /* the fixture has sent one */
}

TEST(a_budget_of_loads_needs_no_more_rights)
{
    leave_only(CACHE, FLEET);
    open_cache(BARE_CACHE, 1);
    get("a", SHED_OK);
    ck_assert_uint_eq(read_stats().fleet_failures, 0);
}

TEST(a_cache_with_tags_needs_no_more_rights)
{
    struct shed_cache_options o = bare_cache();
    struct shed_bytes tag = shed_str("red");

    leave_only(CACHE, TAGS);
    o.tags_limit = 1;
    open_cache(&o, 0);
    get("a", SHED_OK);
    for (unsigned i = 0; i < 2; i++) {
        EXPECT_OK(shed_invalidate_all(cache, 0, NULL));
        get("a", SHED_OK);
        EXPECT_OK(shed_invalidate_tags(cache, &tag, 1, 0, NULL));
        tag = shed_str("blue"); /* one too many */
        get("a", SHED_OK);
        server_do(&server, "SCRIPT FLUSH");
    }
}

static void put_versions(struct shed_bytes tag)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    uint64_t version = 7;

    o.version = &version;
    o.tags = &tag;
    o.tags_count = 1;
    EXPECT_OK(shed_put(cache, shed_str("a"), shed_str("seven"), &o, NULL));
    EXPECT_OK(
        shed_put(cache, shed_str("a"), shed_str("six"), AT_VERSION(6), NULL));
}

/* Nothing was revoked: what src/redis/README.md lists is enough for all of it
 * together. */
TEST(with_every_option_on_a_cache_needs_no_more_rights)
{
    struct shed_bytes tag = shed_str("red"), keys[] = {tag, shed_str("a")};

    open_all();
    put_versions(tag);
    get("a", SHED_OK);
    EXPECT_OK(shed_expire(cache, shed_str("a"), 0, 0, NULL));
    do /* until it knows the server's clock well enough */
        get("a", SHED_OK);
    while (read_stats().stale == 0);
    WAIT_FOR(read_stats().published == 1); /* a refresh */
    EXPECT_OK(shed_invalidate_tags(cache, &tag, 1, 0, NULL));
    EXPECT_OK(shed_invalidate_all(cache, 0, NULL));
    EXPECT_OK(shed_invalidate_many(cache, keys, 2, 0, NULL));
    get("a", SHED_OK);
    ck_assert_uint_eq(read_stats().fleet_failures, 0);
    ck_assert_uint_eq(read_stats().stale, 1);
}

static struct shed_lock *open_job(enum shed_lock_algorithm algorithm, bool fair)
{
    struct shed_lock_options o = options_of(algorithm);
    struct shed_lock *lock;

    o.lease_ms = LEASE_MS;
    o.fair = fair;
    EXPECT_OK(shed_lock_open(client, shed_str("lock:job"), &o, &lock, NULL));
    return lock;
}

static _Noreturn void hold_and_stay(int told, bool fair)
{
    open_shop();
    acquire(open_job(SHED_LOCK_LEASE, fair), PLENTY_MS);
    if (write(told, "", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* Wait behind a holder that is alive, and then dies. */
static void wait_for_the_dead(bool fair)
{
    int told[2];
    char byte;
    struct shed_lock *lock;
    pid_t pid;

    ck_assert_int_eq(pipe(told), 0);
    pid = fork();
    if (pid == 0)
        hold_and_stay(told[1], fair);
    ck_assert_int_ge(pid, 0);
    ck_assert_int_eq(read(told[0], &byte, 1), 1);
    open_shop();
    lock = open_job(SHED_LOCK_LEASE, fair);
    /* on a slow machine the first try may end before there is a connection */
    WAIT_FOR(shed_lock_acquire(lock, 50, NULL) == SHED_ETIMEDOUT);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    acquire(lock, PLENTY_MS);
    release(lock);
    shed_client_close(client);
    close(told[0]);
    close(told[1]);
}

TEST(a_lock_needs_no_more_rights)
{
    leave_only(LOCK, LOCK);
    wait_for_the_dead(false);
    wait_for_the_dead(true);
    server_do(&server, "ACL SETUSER shop +setnx +getset");
    open_shop();
    for (unsigned i = SHED_LOCK_SETNX; i <= SHED_LOCK_LEASE + 1; i++) {
        bool is_fair = i > SHED_LOCK_LEASE;
        enum shed_lock_algorithm algorithm = is_fair ? SHED_LOCK_LEASE : i;
        struct shed_lock *lock = open_job(algorithm, is_fair);
        struct shed_lock *second = open_job(algorithm, is_fair);
        acquire(lock, 0);
        WAIT_FOR(shed_lock_acquire(second, 50, NULL) == SHED_ETIMEDOUT);
        EXPECT_OK(shed_lock_extend(lock, 0, NULL));
        release(lock);
        if (algorithm == SHED_LOCK_LEASE)
            EXPECT_OK(shed_lock_advance(lock, 1, NULL));
        shed_lock_close(lock);
        shed_lock_close(second);
    }
}

/* What was left by a process that died between its commands, or by a waiter
 * whose time is over. */
TEST(leftovers_of_others_need_no_more_rights)
{
    static const struct {
        const char *text;
        enum shed_lock_algorithm algorithm;
    } leftovers[] = {{"orphan", SHED_LOCK_EXPIRE}, {"1", SHED_LOCK_TIMESTAMP}};

    open_shop();
    for (size_t i = 0; i < COUNT_OF(leftovers); i++) {
        struct shed_lock *lock;
        server_do(&server, "SET lock:job %s", leftovers[i].text);
        lock = open_job(leftovers[i].algorithm, false);
        acquire(lock, PLENTY_MS);
        shed_lock_close(lock);
    }
}

/* ------------------------------------------------------- asked beforehand */

static enum shed_code probe_lock(struct shed_bytes key, struct shed_error *err)
{
    return shed_probe(client, "lock", key, key, test_deadline_ms(), err);
}

static enum shed_code probe(enum use use, struct shed_error *err)
{
    return shed_probe(client, uses[use].word, shed_str(uses[use].key),
                      shed_str(uses[use].sides), test_deadline_ms(), err);
}

TEST(with_these_rights_nothing_is_missing)
{
    open_shop();
    for (unsigned use = 0; use < USES; use++) {
        struct shed_error err = {0};
        ck_assert_msg(probe(use, &err) == SHED_OK, "%s", err.reason);
    }
    ck_assert_int_eq(server_int(&server, "DBSIZE"), 0);
}

/* Whether a probe of the use reports a missing right. */
static bool is_named(enum use use, const char *right)
{
    struct shed_error err = {0};

    return probe(use, &err) == SHED_EDENIED &&
           strstr(err.reason, right) != NULL;
}

/* The commands that src/redis/README.md names, except the one without which
 * there is no connection. */
TEST(a_command_that_is_missing_is_named)
{
    char rights[2048];
    unsigned count = 0;

    open_shop();
    read_rights(rights, sizeof(rights));
    for (char *rest = rights, *word;
         (word = strtok_r(rest, " \n", &rest)) != NULL;) {
        if (*word != '+' || strcmp(word, "+select") == 0)
            continue;
        server_do(&server, "ACL SETUSER shop -%s", word + 1);
        for (unsigned use = 0; use < USES; use++)
            ck_assert_msg(is_named(use, word + 1) == is_needed(use, word),
                          "%s, use %u", word, use);
        server_do(&server, "ACL SETUSER shop %s", word);
        count++;
    }
    ck_assert_uint_gt(count, 20);
    server_do(&server, "ACL LOG RESET");
}

/* Words of ACL SETUSER. */
static void grant(const char *rights)
{
    char words[256];

    snprintf(words, sizeof(words), "%s", rights);
    for (char *rest = words, *word;
         (word = strtok_r(rest, " ", &rest)) != NULL;)
        server_do(&server, "ACL SETUSER shop %s", word);
}

TEST(keys_and_channels_that_are_missing_are_named)
{
    static const struct {
        const char *rights;
        enum use use;
        const char *missing;
    } rows[] = {
        {"~lock:*", CACHE, "~item:{snowshed:probe}"},
        {"~item:{*}", CACHE, "~item:{snowshed:probe}:refresh"},
        {"~lock:{job", LOCK, "~lock:{job}"},
        {"~lock:{job}", LOCK, "~lock:{job}:f"},
        {"~lock:{job}", TEXT_LOCK, "~lock:job"},
        {"~lock:={b}*", EXACT_LOCK, "~lock:{b}x"},
        {"~lock:{b}x", EXACT_LOCK, "~lock:={b}lock:{b}x:f"},
        {"~item:{*}*", TAGS, "~item:tags"},
        {"~item:{*}*", FLEET, "~item:loads"},
        {"~* resetchannels &__redis__:invalidate", CACHE,
         "&snowshed:process:*"},
        {"~* resetchannels &snowshed:process:*", LOCK, "&__redis__:invalidate"},
    };

    open_shop();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        server_do(&server, "ACL SETUSER shop resetkeys");
        grant(rows[i].rights);
        ck_assert_msg(is_named(rows[i].use, rows[i].missing),
                      "%s is not missed", rows[i].missing);
    }
    server_do(&server, "ACL LOG RESET");
}

/* Grant what a probe lists, as it is. */
static void grant_what_is_listed(struct shed_bytes key)
{
    static const char before[] = "does not grant: ";
    char rights[SHED_REASON_BYTES];
    struct shed_error err = {0};
    const char *list;

    EXPECT_CODE(probe_lock(key, &err), SHED_EDENIED);
    list = strstr(err.reason, before);
    ck_assert_ptr_nonnull(list);
    snprintf(rights, sizeof(rights), "%s", list + sizeof(before) - 1);
    rights[strcspn(rights, "(")] = '\0'; /* the number of the others */
    grant(rights);
}

static bool misses(enum shed_code code, const struct shed_error *err,
                   const char *right)
{
    return code == SHED_EDENIED && strstr(err->reason, right) != NULL;
}

TEST(a_cache_asks_for_what_its_tags_and_its_budget_need)
{
    struct shed_error err;

    open_all();
    server_do(&server, "ACL SETUSER shop resetkeys ~item:{*}*");
    ck_assert(misses(shed_cache_probe(cache, 0, &err), &err, "~item:tags"));
    server_do(&server, "ACL SETUSER shop ~item:tags");
    ck_assert(misses(shed_cache_probe(cache, 0, &err), &err, "~item:loads"));
    server_do(&server, "ACL SETUSER shop ~item:loads");
    EXPECT_OK(shed_cache_probe(cache, 0, &err));
    server_do(&server, "ACL LOG RESET");
}

TEST(a_lock_asks_for_the_keys_of_its_algorithm)
{
    static const struct {
        enum shed_lock_algorithm algorithm;
        uint64_t exact_key;
        const char *enough, *missing;
    } rows[] = {
        {SHED_LOCK_SETNX, 0, "~job", "~job"},
        {SHED_LOCK_LEASE, 0, "~lock:{job}*", "~lock:{job}"},
        {SHED_LOCK_LEASE, 1, "~job ~lock:={job}*", "~job"},
    };
    struct shed_lock *lock;
    struct shed_error err;

    open_shop();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct shed_lock_options o = options_of(rows[i].algorithm);
        o.exact_key = rows[i].exact_key;
        EXPECT_OK(shed_lock_open(client, shed_str("job"), &o, &lock, NULL));
        server_do(&server, "ACL SETUSER shop resetkeys");
        ck_assert(
            misses(shed_lock_probe(lock, 0, &err), &err, rows[i].missing));
        grant(rows[i].enough);
        ck_assert_msg(shed_lock_probe(lock, 0, &err) == SHED_OK, "%s",
                      err.reason);
        shed_lock_close(lock);
    }
    server_do(&server, "ACL LOG RESET");
}

TEST(what_is_listed_can_be_granted_as_it_is)
{
    enum { ROUNDS = 3 };
    static const char revoked[] = "-role -ping -time -info -client|id "
                                  "-client|tracking -pubsub|numsub -get -set "
                                  "-del -pttl -pexpire -incrby -zadd -zrange "
                                  "-zrem resetchannels";
    static char long_key[SHED_KEY_MAX_BYTES];
    const struct shed_bytes keys[] = {shed_str("lock:{job}"),
                                      shed_str("lock:{a b*[c]\\\n}"),
                                      {long_key, sizeof(long_key)}};
    struct shed_error err = {0};

    open_shop();
    memset(long_key, 'k', sizeof(long_key));
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        server_do(&server, "ACL SETUSER shop resetkeys");
        grant(revoked);
        /* the keys, and then what is needed on them */
        for (unsigned round = 0; round < ROUNDS; round++)
            if (probe_lock(keys[i], NULL) != SHED_OK)
                grant_what_is_listed(keys[i]);
        ck_assert_msg(probe_lock(keys[i], &err) == SHED_OK, "%s", err.reason);
    }
    server_do(&server, "ACL LOG RESET");
}

TEST(a_client_that_waits_by_timer_needs_no_channel)
{
    struct shed_client_options o = bare_client();

    server_do(&server, "ACL SETUSER shop resetchannels -subscribe");
    o.wait = SHED_WAIT_POLL;
    EXPECT_OK(shed_client_open(uri, &o, &client, NULL));
    EXPECT_OK(probe(CACHE, NULL));
}

TEST(a_server_that_is_not_there_is_told)
{
    static const char before[] = "timeout_ms is 3600001, must be in";
    struct shed_lock *lock;
    struct shed_error err;

    open_all();
    lock = open_job(SHED_LOCK_LEASE, false);
    EXPECT_CODE(shed_cache_probe(NULL, 0, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_lock_probe(NULL, 0, NULL), SHED_EINVAL);
    EXPECT_CODE(shed_cache_probe(cache, 3600001, &err), SHED_EINVAL);
    ck_assert_ptr_eq(strstr(err.reason, before), err.reason);
    EXPECT_CODE(shed_lock_probe(lock, 3600001, &err), SHED_EINVAL);
    ck_assert_ptr_eq(strstr(err.reason, before), err.reason);
    server_kill(&server);
    WAIT_FOR(shed_cache_probe(cache, 0, NULL) == SHED_EREDIS);
    WAIT_FOR(shed_lock_probe(lock, 0, NULL) == SHED_EREDIS);
    server_start_again(&server); /* without the user */
    WAIT_FOR(shed_cache_probe(cache, 0, NULL) == SHED_EDENIED);
    WAIT_FOR(shed_lock_probe(lock, 0, NULL) == SHED_EDENIED);
    shed_lock_close(lock);
    server_do(&server, "ACL LOG RESET");
}

/* Without INFO nobody knows whether a server has restarted and forgotten the
 * lock. However long one would wait, it is said at once which right is missing.
 */
TEST(a_majority_of_a_quorum_that_refuses_info_is_denied)
{
    enum { SERVERS = 3, TIMES = 3 };
    struct server servers[SERVERS];
    struct shed_client *clients[SERVERS];
    struct shed_lock *lock;
    struct shed_error err;

    for (unsigned i = 0; i < SERVERS; i++) {
        servers[i] = (struct server){.has_clock = true, .is_old = true};
        server_start(&servers[i]);
        if (i > 0)
            server_do(&servers[i], "ACL SETUSER default -info");
        clients[i] = open_client(&servers[i], SHED_WAIT_AUTO);
    }
    EXPECT_OK(shed_lock_open_quorum(clients, SERVERS, shed_str(LOCK_NAME), NULL,
                                    &lock, NULL));
    for (unsigned i = 0; i < TIMES; i++) {
        EXPECT_CODE(shed_lock_acquire(lock, PLENTY_MS, &err), SHED_EDENIED);
        ck_assert_ptr_nonnull(strstr(err.reason, "INFO"));
    }
    for (unsigned i = 0; i < SERVERS; i++)
        WAIT_FOR(server_int(&servers[i], "EXISTS %s", LEASE_KEY) == 0);
    /* it is asked again, over the same connection */
    server_do(&servers[1], "ACL SETUSER default +info");
    WAIT_FOR(shed_lock_acquire(lock, 0, NULL) == SHED_OK);
    release(lock);
    shed_lock_close(lock);
    for (unsigned i = 0; i < SERVERS; i++) {
        close_client(clients[i]);
        server_stop(&servers[i]);
    }
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("acl");
}
