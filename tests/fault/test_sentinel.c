/* A primary that sentinels watch: it is found and followed, whatever becomes of
 * it, of some of the sentinels, and of what they say; and what a process wrote
 * last survives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"
#include "client/client.h"
#include "redis/pipe.h"
#include "redis/reactor.h"
#include "support/certificates.h"
#include "support/fixture.h"
#include "support/rewrites.h"
#include "support/traffic.h"
#include "support/watched.h"
#include "wire/sentinel.h"

/* The fixture's own server is not used. */
static struct watched watched;
static char certificates[32], authority[64];
static bool has_proxy; /* in front of the first primary */

static void init_with(const char *sentinel_password, const char *dir)
{
    fixture_init(&fixture);
    fixture_hurry(&fixture, 400);
    watched = (struct watched){.sentinel_password = sentinel_password,
                               .has_proxy = has_proxy,
                               .certificates = dir};
    watched_start(&watched);
    fixture.uri = watched.uri;
}

static void up(void)
{
    init_with(NULL, NULL);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
}

/* The same with TLS to everybody; believe NAME.pem of certificates_make. */
static void up_with_tls(const char *name)
{
    strcpy(certificates, "/tmp/shed-watched-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(certificates));
    certificates_make(certificates);
    snprintf(authority, sizeof(authority), "%s/%s.pem", certificates, name);
    init_with(NULL, certificates);
    fixture.client_options.tls_ca = authority;
    fixture_open(&fixture);
}

static void down(void)
{
    fixture_down(&fixture);
    watched_stop(&watched);
    if (certificates[0] != '\0')
        certificates_remove(certificates);
}

/* Whether so many clients have their session with this server. */
static bool is_used_by(size_t i, int clients)
{
    return shed_client_is_up(fixture.client) &&
           server_clients(&watched.server[i], "flags=t") == clients;
}

static bool is_used(size_t i)
{
    return is_used_by(i, 1);
}

/* A row that is stored there comes from there. */
static void expect_use(size_t i)
{
    WAIT_FOR(is_used(i));
    WAIT_FOR(has_text(fixture.cache, "k@1"));
    WAIT_FOR(server_int(&watched.server[i], "EXISTS t:{k}") == 1);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
}

/* ------------------------------------------------------ the primary moves */

TEST(with_tls_to_everybody_it_is_found_and_followed)
{
    size_t next;

    up_with_tls("ca");
    expect_use(0);
    server_stop(&watched.server[0]);
    next = watched_primary(&watched, 0);
    expect_use(next);
}

/* Whether the client is without Redis because the certificates are not
 * believed. */
static bool is_mistrustful(void)
{
    struct shed_client_status status = status_of(fixture.client);

    ck_assert(!status.is_up);
    return strstr(status.last.reason, "more than half must agree") != NULL &&
           strstr(status.last.reason, "tls_ca") != NULL;
}

TEST(sentinels_whose_certificates_are_of_strangers_are_not_believed)
{
    up_with_tls("other");
    WAIT_UNTIL(is_mistrustful(), status_of(fixture.client).last.reason);
}

TEST_EACH(the_primary_is_found_and_used, 0, 2)
{
    init_with(_i == 0 ? NULL : "secret+co", NULL);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    expect_use(0);
    ck_assert_int_eq(server_clients(&watched.server[1], "flags=t"), 0);
}

TEST(a_primary_that_dies_is_replaced)
{
    size_t next;

    up();
    server_kill(&watched.server[0]);
    next = watched_primary(&watched, 0);
    expect_use(next);
}

enum loss { KILLED, STOPPED, PARTED, LOSSES };

static void lose(enum loss how)
{
    if (how == KILLED)
        server_kill(&watched.server[0]);
    if (how == STOPPED)
        server_freeze(&watched.server[0]);
    if (how == PARTED)
        proxy_set(&watched.proxy, PROXY_PART, 0, NULL);
}

static void bring_back(enum loss how)
{
    if (how == STOPPED)
        server_thaw(&watched.server[0]);
    if (how == PARTED)
        proxy_set(&watched.proxy, PROXY_PASS, 0, NULL);
}

/* By calls that block, then by asynchronous ones. The next primary is replaced
 * by SENTINEL FAILOVER, and goes on for a moment. */
TEST_EACH(a_primary_that_is_lost_under_load_is_replaced_at_once, 0, 2 * LOSSES)
{
    static struct traffic traffic;
    enum loss how = (enum loss)(_i % LOSSES);
    size_t next;

    has_proxy = how == PARTED;
    init_with(NULL, NULL);
    fixture.cache_options.failover_memory_ms = 600000;
    fixture_open(&fixture);
    traffic_start(&traffic, &fixture, _i >= LOSSES);
    WAIT_FOR(gives_hits(fixture.cache, &watched.server[0], "k"));
    lose(how);
    next = watched_primary(&watched, 0);
    expect_hits_soon(fixture.cache, &watched.server[next], "k");
    traffic_go_on(&traffic);
    bring_back(how);
    traffic_go_on(&traffic);
    next = watched_fail_over(&watched, next);
    expect_hits_soon(fixture.cache, &watched.server[next], "k");
    traffic_go_on(&traffic);
    WAIT_FOR(is_used_by(next, 3));
    traffic_stop(&traffic);
    traffic_check(&traffic, false);
    WAIT_FOR(traffic_count_old(&traffic) == 0);
    traffic_close(&traffic);
}

/* It comes back as a primary, until a sentinel tells it otherwise. */
TEST(a_primary_that_stood_still_is_left_and_not_used_again)
{
    size_t next;

    up();
    server_freeze(&watched.server[0]);
    next = watched_primary(&watched, 0);
    expect_use(next);
    server_thaw(&watched.server[0]);
    expect_use(next);
    WAIT_FOR(server_clients(&watched.server[0], "flags=t") == 0);
}

/* As in a partition: it answers, as a primary, and sentinels have another one.
 */
TEST(a_primary_that_was_replaced_is_left_though_it_answers)
{
    up();
    for (size_t i = 0; i < WATCHED_SENTINELS; i++)
        server_do(&watched.sentinel[i], "SENTINEL REMOVE %s", WATCHED_NAME);
    server_do(&watched.server[1], "REPLICAOF NO ONE");
    expect_use(0);
    for (size_t i = 0; i < WATCHED_SENTINELS; i++)
        server_do(&watched.sentinel[i], "SENTINEL MONITOR %s 127.0.0.1 %u 2",
                  WATCHED_NAME, watched.port[1]);
    expect_use(1);
}

/* SHED_TEST_FAILOVERS: how many, for a longer hunt. */
static unsigned failovers(void)
{
    return (unsigned)number_in("SHED_TEST_FAILOVERS", 2);
}

static bool is_replica(const struct server *server)
{
    char role[8];

    server_info(server, "role", role, sizeof(role));
    return *role == 's' && server_follows(server);
}

/* The session does nothing every 3 s. */
static atomic_bool is_idle;

WRAPPED(shed_timer_set);

void __wrap_shed_timer_set(struct shed_timer *timer, uint64_t delay_ms)
{
    enum { REGULAR_MS = 3000, NEVER_MS = 600000 };

    __real_shed_timer_set(timer, atomic_load(&is_idle) && delay_ms == REGULAR_MS
                                     ? NEVER_MS
                                     : delay_ms);
}

/* How long the client takes to follow a failover that its former primary
 * survives, and says nothing of, from when most of the sentinels know. */
static uint64_t follow_failover(size_t *primary)
{
    uint64_t known_ms;

    for (size_t i = 0; i < WATCHED_SERVERS; i++)
        if (i != *primary)
            WAIT_FOR(is_replica(&watched.server[i]));
    *primary = watched_fail_over(&watched, *primary);
    known_ms = shed_now_ms();
    WAIT_FOR(is_used(*primary));
    return shed_now_ms() - known_ms;
}

/* Nobody asks without a reason. After 8 s sentinels would make the former
 * primary a replica, which says so. */
TEST(an_announced_primary_is_followed_at_once)
{
    enum { AT_ONCE_MS = 4000, FAILOVERS = 2 };
    size_t primary = 0;

    atomic_store(&is_idle, true);
    up();
    for (unsigned i = 0; i < FAILOVERS; i++)
        ck_assert_uint_lt(follow_failover(&primary), scaled_ms(AT_ONCE_MS));
}

/* An answer of the sentinels can be held up, and then is an old one. */
enum { ANSWERS_PASS, HOLD_NEXT, ANSWER_HELD };
static atomic_int answers;

WRAPPED(shed_sentinels_ask);

enum shed_code __wrap_shed_sentinels_ask(const struct shed_address *address,
                                         struct shed_place *out,
                                         struct shed_error *err)
{
    enum shed_code code = __real_shed_sentinels_ask(address, out, err);
    int is_next = HOLD_NEXT;

    if (atomic_compare_exchange_strong(&answers, &is_next, ANSWER_HELD))
        WAIT_FOR(atomic_load(&answers) == ANSWERS_PASS);
    return code;
}

/* How often the session had a reason to ask. */
static atomic_uint reasons;

WRAPPED(shed_pipe_check_address);

void __wrap_shed_pipe_check_address(struct shed_pipe *pipe)
{
    atomic_fetch_add(&reasons, 1);
    __real_shed_pipe_check_address(pipe);
}

/* The former primary answers as one for good, and nobody asks without a
 * reason. */
TEST(sentinels_that_are_being_asked_are_asked_once_more)
{
    size_t next;

    up();
    server_do(&watched.server[0], "ACL SETUSER default -slaveof -replicaof");
    atomic_store(&answers, HOLD_NEXT);
    WAIT_FOR(atomic_load(&answers) == ANSWER_HELD);
    atomic_store(&is_idle, true);
    atomic_store(&reasons, 0);
    WAIT_FOR(atomic_load(&reasons) > 0); /* the last regular one */
    for (size_t i = 1; i < WATCHED_SERVERS; i++)
        WAIT_FOR(is_replica(&watched.server[i]));
    atomic_store(&reasons, 0);
    next = watched_fail_over(&watched, 0);
    /* all announce the switch, and the one that leads the promotion before */
    WAIT_FOR(atomic_load(&reasons) >= WATCHED_SENTINELS + 1);
    atomic_store(&answers, ANSWERS_PASS);
    WAIT_FOR(is_used(next));
}

/* ----------------------------------------------------------- what is lost */

static void each_replica(size_t primary, void (*act)(const struct server *))
{
    for (size_t i = 0; i < WATCHED_SERVERS; i++)
        if (i != primary)
            act(&watched.server[i]);
}

static void cut_replicas(size_t primary)
{
    for (size_t i = 0; i < WATCHED_SERVERS; i++)
        if (i != primary)
            server_cut_replica(&watched.server[i], &watched.server[primary]);
}

static void await_rows(const struct server *replica)
{
    WAIT_FOR(server_follows(replica));
    WAIT_FOR(server_int(replica, "EXISTS t:{w%d}", REWRITES - 1) == 1);
}

/* The primary dies with what only it has been told. Returns: the next one,
 * which the dead one follows when it is back. */
static size_t lose_primary(size_t primary)
{
    size_t next;

    server_kill(&watched.server[primary]);
    each_replica(primary, server_join_replica);
    next = watched_primary(&watched, primary);
    server_start_again(&watched.server[primary]);
    server_do(&watched.server[primary], "REPLICAOF 127.0.0.1 %u",
              watched.port[next]);
    return next;
}

/* 0: they are remembered; 1: not, which shows that they are lost. */
TEST_EACH(replicas_that_lost_their_link_take_no_write_of_a_living_process_back,
          0, 2)
{
    size_t primary = 0;
    struct peer peer;
    unsigned old = 0, rounds = _i == 0 ? failovers() : 1;

    init_with(NULL, NULL);
    fixture.cache_options.failover_memory_ms = _i == 0 ? 600000 : 0;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    for (unsigned i = 0; i < rounds; i++) {
        WAIT_FOR(is_used_by(primary, 2));
        expect_rewrites(peer.cache);
        each_replica(primary, await_rows);
        cut_replicas(primary);
        rewrite_all();
        primary = lose_primary(primary);
        WAIT_FOR(is_used_by(primary, 2));
        if (_i == 0)
            WAIT_FOR(stats_of(fixture.cache).invalidations_repeated ==
                     (uint64_t)REWRITES * (i + 1));
        old += rewrites_missed(peer.cache, fixture.table.version);
    }
    ck_assert_uint_eq(old, _i == 0 ? 0 : REWRITES);
    peer_close(&peer);
}

/* The first primary loses its sentinels and replicas, but no client. It goes on
 * as a primary, and what it has been told by then no other server has. */
TEST(in_a_partition_nothing_old_is_read_once_there_is_a_new_primary)
{
    enum { AT_ONCE_MS = 1000, TIMES = 10 };
    struct peer peer;
    uint64_t known_ms;
    size_t next;

    has_proxy = true;
    init_with(NULL, NULL);
    fixture.cache_options.failover_memory_ms = 600000;
    fixture_open(&fixture);
    peer_open(&peer, &fixture);
    WAIT_FOR(is_used_by(0, 2));
    expect_rewrites(peer.cache);
    each_replica(0, await_rows);
    proxy_set(&watched.proxy, PROXY_PART, 0, NULL);
    rewrite_all();
    next = watched_primary(&watched, 0);
    known_ms = shed_now_ms();
    WAIT_FOR(is_used_by(next, 2));
    WAIT_FOR(stats_of(fixture.cache).invalidations_repeated == REWRITES);
    ck_assert_uint_lt(shed_now_ms() - known_ms, scaled_ms(AT_ONCE_MS));
    for (unsigned i = 0; i < TIMES; i++) {
        expect_rewrites(peer.cache);
        expect_rewrites(fixture.cache);
        server_do(&watched.server[0], "SET other %u PX 60000", i);
        rewrite_all();
    }
    ck_assert_int_eq(server_clients(&watched.server[0], "flags=t"), 0);
    proxy_set(&watched.proxy, PROXY_PASS, 0, NULL);
    WAIT_FOR(is_replica(&watched.server[0]));
    expect_rewrites(peer.cache);
    peer_close(&peer);
}

/* -------------------------------------------------- sentinels that fail */

/* Wait until a write cannot reach Redis for this reason. Returns: the whole
 * reason. */
static const char *await_refusal(struct shed_cache *cache, const char *words)
{
    static struct shed_error err;

    WAIT_FOR(shed_invalidate(cache, shed_str("k"), 0, &err) == SHED_EREDIS &&
             strstr(err.reason, words) != NULL);
    return err.reason;
}

/* Let some sentinels name a server that is none. */
static void let_lie(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        server_do(&watched.sentinel[i], "SENTINEL REMOVE %s", WATCHED_NAME);
        server_do(&watched.sentinel[i], "SENTINEL MONITOR %s 127.0.0.1 %u 2",
                  WATCHED_NAME, server_free_port());
    }
}

TEST_EACH(a_sentinel_that_is_away_or_hangs_costs_nothing, 0, 2)
{
    init_with(NULL, NULL);
    if (_i == 0)
        server_kill(&watched.sentinel[0]);
    else
        server_freeze(&watched.sentinel[0]);
    fixture_open(&fixture);
    WAIT_FOR(is_used(0));
    if (_i == 1)
        server_thaw(&watched.sentinel[0]);
}

/* One alone may be cut off, with a primary that was replaced. */
TEST(without_a_majority_nobody_is_believed_and_a_connection_goes_on)
{
    struct peer late;
    const char *reason;

    up();
    server_kill(&watched.sentinel[1]);
    server_kill(&watched.sentinel[2]);
    expect_use(0);
    peer_open(&late, &fixture);
    reason = await_refusal(late.cache, "1 of its 3 sentinels answer");
    ck_assert_ptr_nonnull(strstr(reason, "Connection refused"));
    peer_close(&late);
    server_start_again(&watched.sentinel[1]);
    expect_use(0);
}

static atomic_bool is_resolver_slow;

WRAPPED(shed_address_is_known);
WRAPPED(shed_address_resolve);

bool __wrap_shed_address_is_known(struct shed_address *address)
{
    return !atomic_load(&is_resolver_slow) &&
           __real_shed_address_is_known(address);
}

/* All lookups of an inquiry together take longer than sentinels are waited for.
 */
void __wrap_shed_address_resolve(struct shed_address *address)
{
    if (atomic_load(&is_resolver_slow))
        usleep(SHED_SENTINELS_ASK_MS * 1000 / 2);
    __real_shed_address_resolve(address);
}

TEST(sentinels_whose_names_are_looked_up_for_long_are_heard)
{
    init_with(NULL, NULL);
    atomic_store(&is_resolver_slow, true);
    fixture_open(&fixture);
    WAIT_FOR(is_used(0));
}

/* It names a replica, which would refuse, or another primary, which would not.
 */
TEST(a_sentinel_that_lies_is_not_believed)
{
    init_with(NULL, NULL);
    let_lie(1);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    expect_use(0);
}

TEST(sentinels_that_all_disagree_are_reported)
{
    init_with(NULL, NULL);
    let_lie(WATCHED_SENTINELS - 1);
    fixture_open(&fixture);
    (void)await_refusal(fixture.cache, "sentinels name different servers");
}

TEST(a_wrong_password_of_the_sentinels_is_reported)
{
    init_with("secret", NULL);
    *strchr(watched.uri, '?') = '\0';
    fixture_open(&fixture);
    ck_assert_ptr_null(
        strstr(await_refusal(fixture.cache, "NOAUTH"), "secret"));
}

int main(void)
{
    tcase_set_timeout(test_case(), TEST_TIMEOUT_S + 10 * failovers());
    tcase_add_checked_fixture(test_case(), NULL, down);
    return run_tests("sentinel");
}
