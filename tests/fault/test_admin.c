/* What an operator does to a server while clients use it: connections and users
 * that are removed, commands that the server does not have, limits that are too
 * small. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/lock.h>

#include "client/client.h"
#include "support/awaited.h"
#include "support/fixture.h"

/* ----------------------------------------------------- killed connections */

enum { THREADS = 4, KILLS = 40 };

static atomic_bool is_over;
static atomic_uint rounds, faults;

/* A call that blocks, and an asynchronous one. */
static enum shed_code (*const invalidates[])(struct shed_cache *,
                                             struct shed_bytes, uint64_t,
                                             struct shed_error *) = {
    shed_invalidate, awaited_invalidate};
static enum shed_code (*const gets[])(struct shed_cache *, struct shed_bytes,
                                      const struct shed_get_options *,
                                      struct shed_value **,
                                      struct shed_error *) = {shed_get,
                                                              awaited_get};
static int kind;

/* Each get succeeds, with the row of its key. */
static void *write_and_read(void *user)
{
    const char *key = user;

    while (!atomic_load(&is_over)) {
        struct shed_value *value = NULL;
        enum shed_code told =
            invalidates[kind](fixture.cache, shed_str(key), 0, NULL);
        enum shed_code got =
            gets[kind](fixture.cache, shed_str(key), NULL, &value, NULL);
        bool is_right = got == SHED_OK && value->size == 4 &&
                        memcmp(value->data, key, 2) == 0;
        atomic_fetch_add(&faults,
                         !is_right || (told != SHED_OK && told != SHED_EREDIS));
        atomic_fetch_add(&rounds, 1);
        shed_value_unref(value);
    }
    return NULL;
}

/* A flight that has lost its connection in the wrong moment may leave a lease:
 * the next one does not wait for it. */
TEST_EACH(connections_that_are_killed_cost_no_call_its_answer, 0, 2)
{
    static char keys[THREADS][4] = {"k0", "k1", "k2", "k3"};
    pthread_t threads[THREADS];

    kind = _i;
    fixture.cache_options.lease_ms = 600000;
    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    for (size_t i = 0; i < THREADS; i++)
        start_thread(&threads[i], write_and_read, keys[i]);
    for (size_t i = 0; i < KILLS; i++) {
        unsigned before = atomic_load(&rounds);
        server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
        WAIT_FOR(atomic_load(&rounds) > before + THREADS);
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(atomic_load(&faults), 0);
    WAIT_FOR(undelivered() == 0);
}

/* ------------------------------------------------------------ no such user */

TEST(a_user_that_is_deleted_is_denied_until_it_is_back)
{
    static char uri[SERVER_URI_BYTES + 16];
    struct shed_lock *lock;

    server_do(&fixture.server, "ACL SETUSER shop on >pw ~* &* +@all");
    snprintf(uri, sizeof(uri), "unix://shop:pw@%s", fixture.server.socket);
    fixture.uri = uri;
    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    EXPECT_OK(shed_lock_open(fixture.client, shed_str("l"), NULL, &lock, NULL));
    expect_text(fixture.cache, "k", "k@1");
    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
    server_do(&fixture.server, "ACL DELUSER shop");
    WAIT_FOR(get_code(fixture.cache, "k") == SHED_EDENIED);
    WAIT_FOR(get_code(fixture.cache, "new") == SHED_EDENIED);
    WAIT_FOR(invalidate_code(fixture.cache, "other") == SHED_EDENIED);
    ck_assert_uint_eq(undelivered(), 1);
    WAIT_FOR(shed_lock_extend(lock, 0, NULL) == SHED_EDENIED);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
    server_do(&fixture.server, "ACL SETUSER shop on >pw ~* &* +@all");
    WAIT_FOR(undelivered() == 0);
    WAIT_FOR(get_code(fixture.cache, "k") == SHED_OK);
    WAIT_FOR(shed_lock_release(lock, NULL) != SHED_EDENIED);
    shed_lock_close(lock);
}

/* --------------------------------------------------------- no such command */

static const struct renamed {
    const char *command;
    enum shed_code get, invalidate;
} renamed[] = {
    {"GET", SHED_EDENIED, SHED_OK},  {"EVALSHA", SHED_EDENIED, SHED_EDENIED},
    {"TIME", SHED_EDENIED, SHED_OK}, {"UNLINK", SHED_OK, SHED_EDENIED},
    {"CLIENT", SHED_OK, SHED_OK},    {"SUBSCRIBE", SHED_OK, SHED_OK},
    {"PUBSUB", SHED_OK, SHED_OK},    {"ROLE", SHED_OK, SHED_OK},
    {"INFO", SHED_OK, SHED_OK},
};

TEST_EACH(a_command_that_the_server_lacks_is_denied_if_it_is_needed, 0,
          COUNT_OF(renamed))
{
    const struct renamed *r = &renamed[_i];
    struct shed_error err = {SHED_OK, ""};
    enum shed_code code;

    server_stop(&fixture.server);
    fixture.server =
        (struct server){.options = {"--rename-command", r->command, "renamed"}};
    server_start(&fixture.server);
    fixture_open(&fixture);
    code = get_code(fixture.cache, "k");
    ck_assert_msg(code == r->get, "%s: get: %d", r->command, code);
    code = shed_invalidate(fixture.cache, shed_str("secret"), 0, &err);
    ck_assert_msg(code == r->invalidate, "%s: invalidate: %s", r->command,
                  err.reason);
    ck_assert_ptr_null(strstr(err.reason, "secret"));
    fixture_close(&fixture);
    server_stop(&fixture.server);
}

/* -------------------------------------------------------- limits too small */

/* Redis closes the connection of a client with so much to be read. */
TEST(replies_beyond_the_limit_of_the_server_are_loaded)
{
    enum { KEYS = 40, BYTES = 100000 };
    static char row[BYTES], keys[KEYS][8];
    struct shed_item items[KEYS];

    fixture_open(&fixture);
    memset(row, 'x', sizeof(row));
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
        items[i] = (struct shed_item){.key = shed_str(keys[i])};
        EXPECT_OK(shed_put(fixture.cache, items[i].key,
                           shed_bytes(row, sizeof(row)), NULL, NULL));
    }
    server_do(&fixture.server, "CONFIG SET client-output-buffer-limit %s",
              "normal 1mb 0 0");
    EXPECT_OK(shed_get_many(fixture.cache, items, KEYS, NULL, NULL));
    for (size_t i = 0; i < KEYS; i++) {
        ck_assert_int_eq(items[i].value->kind, SHED_KIND_ROW);
        shed_value_unref(items[i].value);
    }
    EXPECT_OK(get_code(fixture.cache, "k0"));
    EXPECT_OK(get_code(fixture.cache, "k"));
}

/* Redis closes the connection of a client that sends so much. */
TEST(a_row_beyond_the_limit_of_the_server_harms_no_other_key)
{
    enum { MIB = 1048576, BYTES = 2 * MIB };
    static char row[BYTES];

    fixture.cache_options.value_limit_bytes = BYTES;
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_do(&fixture.server, "CONFIG SET proto-max-bulk-len 1mb");
    EXPECT_CODE(shed_put(fixture.cache, shed_str("big"),
                         shed_bytes(row, sizeof(row)), NULL, NULL),
                SHED_EREDIS);
    expect_text(fixture.cache, "k", "k@1");
    WAIT_FOR(undelivered() == 0); /* the key is invalidated instead */
    expect_text(fixture.cache, "l", "l@1");
}

/* Nobody reads what comes over the connection for pushes while a callback
 * blocks. */
static atomic_bool is_blocked, may_go_on;

static void block(void *user, struct shed_lock *l, enum shed_code code,
                  const struct shed_error *reason)
{
    (void)user;
    (void)l;
    (void)code;
    (void)reason;
    atomic_store(&is_blocked, true);
    while (!atomic_load(&may_go_on))
        usleep(1000);
}

static struct shed_lock *open_lock(struct shed_client *client,
                                   const struct shed_lock_options *o)
{
    struct shed_lock *lock;

    EXPECT_OK(shed_lock_open(client, shed_str("l"), o, &lock, NULL));
    return lock;
}

/* Redis closes the connection for pushes of a client that does not read. Its
 * hits are not disturbed, and soon pushes come again. */
TEST(pushes_beyond_the_limit_of_the_server_come_again_afterwards)
{
    enum { BYTES = 65536 };
    static char text[BYTES];
    struct shed_lock *lock;
    struct peer peer;

    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    lock = open_lock(peer.client, NULL);
    expect_text(fixture.cache, "k", "k@1");
    WAIT_FOR(server_clients(&fixture.server, "flags=t") == 2);
    server_do(&fixture.server, "CONFIG SET client-output-buffer-limit %s",
              "pubsub 64kb 0 0");
    EXPECT_OK(shed_lock_acquire_async(lock, 0, block, NULL, NULL));
    WAIT_FOR(atomic_load(&is_blocked));
    WAIT_FOR((server_do(&fixture.server, "PUBLISH snowshed:process:%s %b",
                        peer.client->process, text, sizeof(text)),
              server_clients(&fixture.server, "sub=4") == 1));
    expect_origin(peer.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    atomic_store(&may_go_on, true);
    peer_expect_push(&peer, &fixture, "new");
    WAIT_FOR(server_clients(&fixture.server, "sub=4") == 2);
    shed_lock_close(lock);
    peer_close(&peer);
}

/* ---------------------------------------------------------- evicted locks */

static atomic_uint losses;
static struct shed_error loss; /* the last one's reason */

static void note_loss(void *user, struct shed_lock *lock,
                      const struct shed_error *reason)
{
    (void)user;
    (void)lock;
    loss = *reason;
    atomic_fetch_add(&losses, 1);
}

static void evict_all(void)
{
    server_do(&fixture.server, "CONFIG SET maxmemory-policy allkeys-random");
    server_do(&fixture.server, "CONFIG SET maxmemory 1");
    WAIT_FOR((freeReplyObject(server_run(&fixture.server, "SET x y PX 1")),
              server_int(&fixture.server, "DBSIZE") == 0));
    server_do(&fixture.server, "CONFIG SET maxmemory 0");
}

/* The number of the next hold is higher, though the counter is gone, too. */
static void lose_by_eviction(const struct shed_lock_options *o)
{
    unsigned before = atomic_load(&losses);
    struct shed_lock *lock = open_lock(fixture.client, o);
    struct shed_fence first, second;

    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
    EXPECT_OK(shed_lock_fence(lock, &first, NULL));
    evict_all();
    if (!o->watchdog_ms)
        EXPECT_CODE(shed_lock_extend(lock, 0, NULL), SHED_ELOST);
    WAIT_FOR(atomic_load(&losses) > before);
    ck_assert_int_eq(shed_lock_is_mine(lock), 0);
    EXPECT_CODE(shed_lock_release(lock, NULL), SHED_ELOST);
    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
    EXPECT_OK(shed_lock_fence(lock, &second, NULL));
    ck_assert_uint_gt(second.number, first.number);
    shed_lock_close(lock);
}

/* By the first renewal, or extension. (On a busy machine the lease may end
 * before that; a defect is there with any.) */
TEST_EACH(a_lock_that_was_evicted_is_lost_and_its_holder_told, 0, 2)
{
    enum { SHORT_MS = 1500, FACTOR = 3, LONGEST_MS = 27 * SHORT_MS };
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;

    fixture_open(&fixture);
    if (_i == 0)
        o.watchdog_ms = 0;
    o.on_lost = note_loss;
    for (o.lease_ms = SHORT_MS; strstr(loss.reason, "key was removed") == NULL;
         o.lease_ms *= FACTOR) {
        ck_assert_uint_le(o.lease_ms, LONGEST_MS);
        lose_by_eviction(&o);
    }
}

/* ----------------------------------------------------- a refused release */

static void lack_replicas(const struct server *s)
{
    server_do(s, "CONFIG SET min-replicas-to-write 1");
}

static const struct refusal {
    const char *word;
    void (*begin)(const struct server *s);
    const char *end;
} refusals[] = {
    {"NOREPLICAS", lack_replicas, "CONFIG SET min-replicas-to-write 0"},
    {"MISCONF", server_fail_to_save,
     "CONFIG SET stop-writes-on-bgsave-error no"},
};

TEST_EACH(a_release_that_the_server_refuses_says_so, 0, COUNT_OF(refusals))
{
    const struct refusal *refusal = &refusals[_i];
    struct shed_error err = {SHED_OK, ""};
    struct shed_lock *lock;

    fixture_open(&fixture);
    lock = open_lock(fixture.client, NULL);
    EXPECT_OK(shed_lock_acquire(lock, 0, NULL));
    refusal->begin(&fixture.server);
    EXPECT_CODE(shed_lock_release(lock, &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, refusal->word));
    ck_assert_int_eq(server_int(&fixture.server, "EXISTS lock:{l}"), 1);
    server_do(&fixture.server, refusal->end);
    WAIT_FOR(server_int(&fixture.server, "EXISTS lock:{l}") == 0);
    shed_lock_close(lock);
}

int main(void)
{
    return run_fixture_tests("admin");
}
