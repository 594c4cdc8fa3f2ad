/*
 * The lock torture: every algorithm under every fault, with real processes,
 * real servers and a resource outside Redis, and the resulting matrix. A cell
 * is a test: it fails when a promise is broken, and also when a known weakness
 * does not show. Whether a weakness shows is chance, and a lease of a second
 * ends if processes do not run for that long; such a cell is repeated.
 *
 *     lock_torture [TEXT]
 *
 * runs all cells, or those of the algorithm TEXT and those of which it is part
 * of what happens, and prints the matrix; src/lock/README.md explains it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/torture_check.h"
#include "fault/torture_contender.h"
#include "fault/torture_pulse.h"
#include "lock/protocol.h"
#include "support/mysql_testing.h"
#include "support/own_cluster.h"
#include "support/server.h"

enum {
    LEASE_MS = 1000,
    LONGEST_LEASE_MS = 4 * LEASE_MS,
    NEVER_LEASES = 3,   /* the lock is stuck if nobody gets it for this long */
    TRIES_MAX = 8,      /* of a cell */
    CALM_ENTRIES = 8,   /* once all is well again */
    QUIET_ENTRIES = 25, /* in cells without a fault */
    NAP_US = 1000,
    US_PER_MS = 1000,
    SKEW_S = 3600,
    GET_DELAY_US = 10000,
    SLOW_MS = 40,
    RECORDS_MAX = 20000,
    PUSH_CUTS = 3,
    CELL_TIMEOUT_S = 600
};

/* In shared memory, where the tests' processes write what they saw. */
static struct cell (*cells)[ALGORITHMS];

/* ------------------------------------------------ the environment of a cell */

static struct {
    struct server servers[TORTURE_SERVERS_MAX];
    struct server replica, successor;
    struct own_cluster cluster; /* a primary and its replica */
    struct proxy proxy; /* in front of the last server, if that is to be slow */
    size_t count;
    struct site site;
    struct torture_shared *shared;
    struct torture_setup setup[CONTENDERS];
    pid_t contenders[CONTENDERS]; /* 0: it has ended */
    char file[64];
    uint64_t fault_us; /* from when on another may get the lock */
    uint64_t lease_ms;
    struct torture_pulse pulse;
    uint64_t stall_ms; /* reported at the end */
    struct torture_record records[RECORDS_MAX];
    size_t record_count;
} env;

static bool is_quorum(const struct cell *cell)
{
    return cell->algorithm == TORTURE_QUORUM;
}

static bool is_failover(const struct cell *cell)
{
    return cell->fault == FAULT_FAILOVER || cell->fault == FAULT_FAILOVER_ACKED;
}

static bool has_cluster(const struct cell *cell)
{
    return cell->fault == FAULT_CLUSTER || cell->fault == FAULT_CLUSTER_ACKED;
}

static bool is_acknowledged(const struct cell *cell)
{
    return cell->fault == FAULT_FAILOVER_ACKED ||
           cell->fault == FAULT_CLUSTER_ACKED;
}

/* A server at this port, and which of another one it is a replica; NULL:
 * none. */
static void start_at(struct server *s, const char *port, const char *primary)
{
    *s = (struct server){.options = {"--port", port, "--bind", "127.0.0.1",
                                     "--repl-diskless-sync-delay", "0",
                                     primary != NULL ? "--replicaof" : NULL,
                                     "127.0.0.1", primary}};
    server_start(s);
}

static char ports[3][8];

static void start_pair(void)
{
    for (size_t i = 0; i < sizeof(ports) / sizeof(*ports); i++)
        snprintf(ports[i], sizeof(ports[i]), "%u", server_free_port());
    start_at(&env.servers[0], ports[0], NULL);
    start_at(&env.replica, ports[1], ports[0]);
}

static void start_cluster(void)
{
    enum { UNUSED_TIMEOUT_MS = 60000 };

    env.cluster = (struct own_cluster){
        .primaries = 1, .replicas = 1, .node_timeout_ms = UNUSED_TIMEOUT_MS};
    own_cluster_start(&env.cluster);
    env.servers[0] = env.cluster.node[0]; /* for its directory and socket */
}

static void start_servers(const struct cell *cell)
{
    bool keeps_data = cell->fault == FAULT_RESTART_DATA;

    env.count = is_quorum(cell) ? TORTURE_SERVERS_MAX : 1;
    if (is_failover(cell))
        start_pair();
    if (has_cluster(cell))
        start_cluster();
    if (is_failover(cell) || has_cluster(cell))
        return;
    for (size_t i = 0; i < env.count; i++) {
        env.servers[i] = (struct server){.has_clock = is_quorum(cell),
                                         .is_old = is_quorum(cell)};
        if (keeps_data)
            env.servers[i] = (struct server){
                .options = {"--appendonly", "yes", "--appendfsync", "always"}};
        server_start(&env.servers[i]);
    }
    if (cell->fault == FAULT_ONE_SLOW) {
        proxy_listen(&env.proxy, &env.servers[env.count - 1]);
        proxy_set(&env.proxy, PROXY_DELAY, SLOW_MS, NULL);
    }
}

static void stop_servers(const struct cell *cell)
{
    if (cell->fault == FAULT_ONE_SLOW)
        proxy_stop(&env.proxy);
    if (has_cluster(cell)) {
        own_cluster_stop(&env.cluster);
        return;
    }
    for (size_t i = 0; i < env.count; i++) {
        if (env.servers[i].pid > 0)
            server_thaw(&env.servers[i]);
        server_stop(&env.servers[i]);
    }
    if (is_failover(cell))
        server_stop(&env.replica);
    if (cell->fault == FAULT_FAILOVER_ACKED)
        server_stop(&env.successor);
}

static void open_tables(void)
{
    open_site(&env.site, getenv("SHED_TEST_MYSQL"));
    run_sql(&env.site, "CREATE TABLE snowshed_fence ("
                       "resource VARBINARY(255) NOT NULL PRIMARY KEY,"
                       "number BIGINT UNSIGNED NOT NULL,"
                       "owner BINARY(16) NOT NULL) ENGINE = InnoDB");
    run_sql(&env.site, "CREATE TABLE torture_row (contender INT NOT NULL,"
                       "entered_us BIGINT NOT NULL) ENGINE = InnoDB");
    run_sql(&env.site, "INSERT INTO torture_row VALUES (0, 0)");
    run_sql(&env.site, "CREATE TABLE torture_log ("
                       "id BIGINT PRIMARY KEY AUTO_INCREMENT,"
                       "contender INT NOT NULL, entered_us BIGINT NOT NULL"
                       ") ENGINE = InnoDB");
}

static void start_contenders(const struct cell *cell)
{
    struct shed_lock_options o = SHED_LOCK_OPTIONS_INIT;

    o.algorithm = cell->algorithm == TORTURE_QUORUM ? SHED_LOCK_LEASE
                                                    : (uint64_t)cell->algorithm;
    o.lease_ms = env.lease_ms;
    if (cell->fault == FAULT_OVERRUN)
        o.watchdog_ms = 0;
    o.replicas = is_acknowledged(cell);
    for (unsigned i = 0; i < CONTENDERS; i++) {
        struct torture_setup *p = &env.setup[i];
        *p = (struct torture_setup){.shared = env.shared,
                                    .servers = env.count,
                                    .mysql_uri = getenv("SHED_TEST_MYSQL"),
                                    .database = env.site.database,
                                    .file = env.file,
                                    .options = o,
                                    .number = i};
        for (size_t s = 0; s < env.count; s++)
            p->uris[s] = env.servers[s].uri;
        if (has_cluster(cell))
            p->uris[0] = env.cluster.uri;
        if (cell->fault == FAULT_ONE_SLOW)
            p->uris[env.count - 1] = env.proxy.uri;
        if (cell->fault == FAULT_CLOCKS && i < 2)
            p->skew_s = i == 0 ? SKEW_S : -SKEW_S;
        if (cell->fault ==
            FAULT_LATE_GETSET) /* no two may write the same time */
            p->get_delay_us = i * GET_DELAY_US;
        env.contenders[i] = torture_contender_start(p);
        ck_assert_int_gt(env.contenders[i], 0);
    }
}

static void set_up(const struct cell *cell)
{
    env.fault_us = 0;
    env.shared = mmap(NULL, sizeof(*env.shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(env.shared, MAP_FAILED);
    atomic_store(&env.shared->victim, TORTURE_NOBODY);
    atomic_store(&env.shared->hooked, TORTURE_NOBODY);
    atomic_store(&env.shared->inside, TORTURE_NOBODY);
    open_tables();
    start_servers(cell);
    /* there it is removed with the server, however the test ends */
    (void)snprintf(env.file, sizeof(env.file), "%s/records",
                   env.servers[0].dir);
    start_contenders(cell);
    if (cell->fault == FAULT_ONE_SLOW)
        proxy_serve(&env.proxy);
    torture_pulse_start(&env.pulse, env.servers, env.count);
}

/* ----------------------------------------------------------------- records */

static void read_records(void)
{
    FILE *in = fopen(env.file, "r");
    unsigned long long at_us, number;
    unsigned contender;
    char kind;

    ck_assert_ptr_nonnull(in);
    env.record_count = 0;
    while (fscanf(in, "%llu %u %c %llu\n", &at_us, &contender, &kind,
                  &number) == 4) {
        ck_assert_uint_lt(env.record_count, RECORDS_MAX);
        env.records[env.record_count++] = (struct torture_record){
            at_us, contender, (enum torture_kind)kind, number};
    }
    fclose(in);
}

/* ------------------------------------------------------------- conditions */

static unsigned entries(void)
{
    return atomic_load(&env.shared->entries);
}

static void wait_for_entries(unsigned more)
{
    unsigned last = entries(), wanted = last + more;

    while (last < wanted) {
        WAIT_UNTIL(entries() != last, "another entry");
        last = entries();
    }
}

/* Wait until a contender that was left alone gets the lock, and for a few more
 * entries. */
static void wait_for_entries_of_others(void)
{
    unsigned victim = atomic_load(&env.shared->victim);

    WAIT_UNTIL(
        (read_records(), torture_next_entry_us(env.records, env.record_count,
                                               victim, env.fault_us)) != 0,
        "an entry of another");
    wait_for_entries(CALM_ENTRIES);
}

/* Make a contender stay inside, and return which one. */
static unsigned catch_holder(void)
{
    atomic_store(&env.shared->victim, TORTURE_NOBODY);
    atomic_store(&env.shared->shall_stay, true);
    WAIT_UNTIL(atomic_load(&env.shared->victim) != TORTURE_NOBODY, "a holder");
    return atomic_load(&env.shared->victim);
}

static void let_go(void)
{
    atomic_store(&env.shared->shall_stay, false);
}

static void note_fault(void)
{
    env.fault_us = torture_now_us();
}

/* Wait until another is inside and has written, so that a later write of the
 * victim is old; or until it is clear that nobody will. */
static void wait_for_another(void)
{
    unsigned before = atomic_load(&env.shared->writes);
    uint64_t end_ms = shed_now_ms() + NEVER_LEASES * env.lease_ms;

    while (atomic_load(&env.shared->writes) == before && shed_now_ms() < end_ms)
        usleep(NAP_US);
}

/* For longer than a lease, nobody may enter beside the holder. */
static void observe(void)
{
    uint64_t end_ms = shed_now_ms() + env.lease_ms + env.lease_ms / 2;

    while (shed_now_ms() < end_ms)
        usleep(NAP_US);
}

/* ------------------------------------------------------------------ faults */

static void reap(unsigned contender)
{
    const struct torture_record record = {torture_now_us(), contender,
                                          TORTURE_KILLED, 0};

    ck_assert_int_eq(waitpid(env.contenders[contender], NULL, 0),
                     env.contenders[contender]);
    env.contenders[contender] = 0;
    torture_record(env.file, &record);
}

static void kill_holder(void)
{
    unsigned victim = catch_holder();

    note_fault();
    ck_assert_int_eq(kill(env.contenders[victim], SIGKILL), 0);
    reap(victim);
    let_go();
}

static void wait_until_stopped(unsigned contender)
{
    int status;

    ck_assert_int_eq(waitpid(env.contenders[contender], &status, WUNTRACED),
                     env.contenders[contender]);
    ck_assert(WIFSTOPPED(status));
    env.pulse.is_stopped[contender] = true;
}

static void stop_holder(void)
{
    unsigned victim = catch_holder();

    note_fault();
    ck_assert_int_eq(kill(env.contenders[victim], SIGSTOP), 0);
    wait_until_stopped(victim);
    wait_for_another();
    let_go();
    ck_assert_int_eq(kill(env.contenders[victim], SIGCONT), 0);
}

static void overrun(void)
{
    (void)catch_holder();
    note_fault();
    wait_for_another();
    let_go();
}

static unsigned wait_for_hook(enum torture_hook hook)
{
    atomic_store(&env.shared->hook, hook);
    WAIT_UNTIL(atomic_load(&env.shared->hooked) != TORTURE_NOBODY, "the hook");
    return atomic_load(&env.shared->hooked);
}

static void die_between(void)
{
    unsigned dead = wait_for_hook(HOOK_DIE_BEFORE_EXPIRE);

    note_fault();
    atomic_store(&env.shared->victim, dead);
    reap(dead);
}

/* The contender that repairs stays inside until the slow one is inside, too. */
static void stop_between(void)
{
    unsigned slow = wait_for_hook(HOOK_STOP_BEFORE_EXPIRE);

    wait_until_stopped(slow);
    note_fault();
    (void)catch_holder();
    ck_assert_int_eq(kill(env.contenders[slow], SIGCONT), 0);
    wait_for_another();
    let_go();
}

static bool has_loss(void);

/* Wait until one is told that it lost the lock, or until it is clear that
 * nobody will be. */
static void wait_for_loss(void)
{
    uint64_t end_ms = shed_now_ms() + NEVER_LEASES * env.lease_ms;

    while (!has_loss() && shed_now_ms() < end_ms)
        usleep(NAP_US);
}

/* The holder dies. Of the contenders that find its time over, one is delayed
 * before its GETSET and another wins; then the late one changes the winner's
 * time. */
static void send_late_getset(void)
{
    unsigned dead = catch_holder();

    atomic_store(&env.shared->entries_before,
                 atomic_load(&env.shared->entries));
    atomic_store(&env.shared->hook, HOOK_LATE_GETSET);
    ck_assert_int_eq(kill(env.contenders[dead], SIGKILL), 0);
    reap(dead);
    note_fault();
    (void)catch_holder();
    WAIT_UNTIL(atomic_load(&env.shared->hooked) != TORTURE_NOBODY, "the hook");
    wait_for_loss();
    let_go();
    atomic_store(&env.shared->victim, dead);
}

static void start_again(struct server *s)
{
    server_kill(s);
    server_start_again(s);
}

static void cut_pushes(void)
{
    (void)catch_holder();
    for (unsigned i = 0; i < PUSH_CUTS; i++) {
        for (size_t s = 0; s < env.count; s++)
            server_do(&env.servers[s], "CLIENT KILL TYPE pubsub");
        observe();
    }
    note_fault();
    let_go();
}

static void restart_with_data(void)
{
    (void)catch_holder();
    start_again(&env.servers[0]);
    observe();
    note_fault();
    let_go();
}

static void restart_empty(void)
{
    (void)catch_holder();
    start_again(&env.servers[0]);
    note_fault();
    wait_for_another();
    let_go();
}

static bool is_replicating(void)
{
    redisReply *reply = server_run(&env.replica, "INFO replication");
    bool is = strstr(reply->str, "master_link_status:up") != NULL;

    freeReplyObject(reply);
    return is;
}

/* The replica is disconnected before the lock is granted. Then the primary
 * dies, and the replica is promoted and gets its address. */
static void fail_over(void)
{
    WAIT_UNTIL(is_replicating(), "a replica");
    server_do(&env.replica, "REPLICAOF NO ONE");
    server_do(&env.replica, "DEL %s lock:{%s}", TORTURE_LOCK_NAME,
              TORTURE_LOCK_NAME); /* disconnected while nobody held it */
    (void)catch_holder();
    server_kill(&env.servers[0]);
    ck_assert_int_eq(rename(env.replica.socket, env.servers[0].socket), 0);
    note_fault();
    wait_for_another();
    let_go();
}

/* The replica has acknowledged the lock before its link is lost. The next
 * primary has a replica, too, or nobody could acquire. */
static void fail_over_acknowledged(void)
{
    WAIT_UNTIL(is_replicating(), "a replica");
    (void)catch_holder();
    server_do(&env.replica, "REPLICAOF NO ONE");
    server_kill(&env.servers[0]);
    ck_assert_int_eq(rename(env.replica.socket, env.servers[0].socket), 0);
    start_at(&env.successor, ports[2], ports[1]);
    observe();
    note_fault();
    let_go();
}

static void take_over_cluster(void)
{
    server_kill(&env.cluster.node[0]);
    own_cluster_fail_over(&env.cluster, 1, "TAKEOVER");
    server_join_replica(&env.cluster.node[1]);
}

/* As fail_over: what the replica knew of the lock was of another holder. */
static void fail_over_cluster(void)
{
    server_cut_replica(&env.cluster.node[1], &env.cluster.node[0]);
    (void)catch_holder();
    take_over_cluster();
    server_do(&env.cluster.node[1], "DEL lock:{%s}", TORTURE_LOCK_NAME);
    note_fault();
    wait_for_another();
    let_go();
}

static void fail_over_cluster_acknowledged(void)
{
    (void)catch_holder();
    server_cut_replica(&env.cluster.node[1], &env.cluster.node[0]);
    take_over_cluster();
    server_start_again(&env.cluster.node[0]); /* it is the replica now */
    observe();
    note_fault();
    let_go();
}

/* Whether one contender has the lock on all servers. That a key is there says
 * less: the tries of others, which are undone later, may have a minority, and a
 * bare majority is lost with the first of its servers that restarts empty. */
static bool is_held_everywhere(void)
{
    enum { TOKEN_AT = 3, RECORD_BYTES = 51 };
    char token[SHED_TOKEN_BYTES];
    bool is_same = true;

    for (size_t i = 0; i < env.count && is_same; i++) {
        redisReply *record =
            server_run(&env.servers[i], "GET lock:{%s}", TORTURE_LOCK_NAME);
        is_same =
            record->type == REDIS_REPLY_STRING && record->len == RECORD_BYTES;
        if (is_same && i == 0)
            memcpy(token, record->str + TOKEN_AT, sizeof(token));
        is_same = is_same &&
                  memcmp(token, record->str + TOKEN_AT, sizeof(token)) == 0;
        freeReplyObject(record);
    }
    return is_same;
}

/* Something happens to some of the five servers while one contender is
 * inside. */
static void hurt_servers(void (*hurt)(struct server *), size_t count)
{
    (void)catch_holder();
    /* the hold may begin with a bare majority; the watchdog adds the others */
    WAIT_UNTIL(is_held_everywhere(), "the lock on all servers");
    for (size_t i = 0; i < count; i++)
        hurt(&env.servers[i]);
    observe();
    note_fault();
    let_go();
}

static void let_them_work(void)
{
    wait_for_entries(QUIET_ENTRIES);
}

/* --------------------------------------------------------------- the cells */

#define S (1U << SHED_LOCK_SETNX)
#define E (1U << SHED_LOCK_EXPIRE)
#define T (1U << SHED_LOCK_TIMESTAMP)
#define L (1U << SHED_LOCK_LEASE)
#define Q (1U << TORTURE_QUORUM)
#define SINGLE (S | E | T | L)

/* Sets of algorithms: those to which it applies, and what is promised, or a
 * known weakness, of them. */
static const struct {
    const char *what;
    unsigned tried, broken, stuck;
    void (*inflict)(void);
    /* or what happens to some of five servers */
    void (*hurt)(struct server *server);
    size_t count;
} faults[FAULTS] = {
    [FAULT_NONE] = {"nothing happens", SINGLE | Q, 0, 0,
                    .inflict = let_them_work},
    [FAULT_KILLED] = {"the holder is killed", SINGLE | Q, 0, S,
                      .inflict = kill_holder},
    [FAULT_DIES_BETWEEN] = {"killed between SETNX and EXPIRE", E, 0, 0,
                            .inflict = die_between},
    [FAULT_STOPS_BETWEEN] = {"stopped between SETNX and EXPIRE", E, E, 0,
                             .inflict = stop_between},
    [FAULT_STOPPED] = {"the holder stops past its lease", SINGLE | Q,
                       E | T | L | Q, 0, .inflict = stop_holder},
    [FAULT_OVERRUN] = {"it works past its lease, unrenewed", SINGLE | Q,
                       E | T | L | Q, 0, .inflict = overrun},
    [FAULT_LATE_GETSET] = {"a loser's GETSET comes late", T, 0, 0,
                           .inflict = send_late_getset},
    [FAULT_CLOCKS] = {"wall clocks 1 h ahead and behind", SINGLE | Q, T, 0,
                      .inflict = let_them_work},
    [FAULT_PUSHES_CUT] = {"its push connection is cut", SINGLE | Q, 0, 0,
                          .inflict = cut_pushes},
    [FAULT_RESTART_DATA] = {"Redis restarts with its data", SINGLE, 0, 0,
                            .inflict = restart_with_data},
    [FAULT_RESTART_EMPTY] = {"Redis restarts empty", SINGLE, SINGLE, 0,
                             .inflict = restart_empty},
    [FAULT_FAILOVER] = {"failover to a replica without it", SINGLE, SINGLE, 0,
                        .inflict = fail_over},
    [FAULT_FAILOVER_ACKED] = {"failover, with replicas = 1", L, 0, 0,
                              .inflict = fail_over_acknowledged},
    [FAULT_CLUSTER] = {"failover in a cluster, without it", L, L, 0,
                       .inflict = fail_over_cluster},
    [FAULT_CLUSTER_ACKED] = {"failover in a cluster, replicas = 1", L, 0, 0,
                             .inflict = fail_over_cluster_acknowledged},
    [FAULT_ONE_SLOW] = {"1 of 5 servers is slow", Q, 0, 0,
                        .inflict = let_them_work},
    [FAULT_ONE_KILLED] = {"1 of 5 servers is killed", Q, 0, 0, NULL,
                          server_kill, 1},
    [FAULT_TWO_KILLED] = {"2 of 5 servers are killed", Q, 0, 0, NULL,
                          server_kill, 2},
    [FAULT_TWO_FROZEN] = {"2 of 5 servers are frozen", Q, 0, 0, NULL,
                          server_freeze, 2},
    [FAULT_ONE_EMPTY] = {"1 of 5 restarts empty", Q, 0, 0, NULL, start_again,
                         1},
    [FAULT_THREE_KILLED] = {"3 of 5 servers are killed", Q, 0, Q, NULL,
                            server_kill, 3}};

#undef S
#undef E
#undef T
#undef L
#undef Q

/* only: an algorithm's name, or part of what happens; NULL: all. Returns:
 * whether there is such a cell. */
static bool make_cells(const char *only)
{
    bool is_any = false;

    for (enum fault f = FAULT_NONE; f < FAULTS; f++)
        for (unsigned a = 0; a < ALGORITHMS; a++) {
            cells[f][a] = (struct cell){
                .algorithm = a,
                .fault = f,
                .what = faults[f].what,
                .is_broken = (faults[f].broken >> a & 1) != 0,
                .is_stuck = (faults[f].stuck >> a & 1) != 0,
                .is_chosen = (faults[f].tried >> a & 1) != 0 &&
                             (only == NULL || strstr(faults[f].what, only) ||
                              strcmp(algorithm_names[a], only) == 0)};
            is_any |= cells[f][a].is_chosen;
        }
    return is_any;
}

static void inflict(const struct cell *cell)
{
    if (faults[cell->fault].inflict != NULL)
        faults[cell->fault].inflict();
    else
        hurt_servers(faults[cell->fault].hurt, faults[cell->fault].count);
}

/* ----------------------------------------------------------------- records */

static bool has_loss(void)
{
    read_records();
    for (size_t i = 0; i < env.record_count; i++)
        if (env.records[i].kind == TORTURE_LOST)
            return true;
    return false;
}

static void end_contenders(void)
{
    int status;

    atomic_store(&env.shared->is_over, true);
    for (unsigned i = 0; i < CONTENDERS; i++) {
        if (env.contenders[i] == 0)
            continue;
        WAIT_UNTIL(waitpid(env.contenders[i], &status, WNOHANG) ==
                       env.contenders[i],
                   "the end of a contender");
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                      "contender %u failed", i);
    }
}

static void judge(struct cell *cell)
{
    unsigned victim = atomic_load(&env.shared->victim);
    uint64_t next_us;

    read_records();
    cell->verdict = torture_judge(env.records, env.record_count, victim);
    next_us = torture_next_entry_us(env.records, env.record_count, victim,
                                    env.fault_us);
    cell->recovered_ms = env.fault_us == 0 ? 0
                         : next_us == 0
                             ? UINT64_MAX
                             : (next_us - env.fault_us) / US_PER_MS + 1;
    cell->old_writes = ask_sql(
        &env.site,
        "SELECT COUNT(*) FROM torture_log a WHERE EXISTS (SELECT 1 FROM "
        "torture_log b WHERE b.id < a.id AND b.contender <> a.contender AND "
        "b.entered_us > a.entered_us)");
    cell->has_run = true;
}

static void tear_down(const struct cell *cell)
{
    stop_servers(cell);
    torture_pulse_stop(&env.pulse);
    close_site(&env.site);
    munmap(env.shared, sizeof(*env.shared));
}

/* ----------------------------------------------------------------- a cell */

/* Whether a hold that ended was lost, and why, tells a lost lease from a lock
 * that was granted twice. */
static void tell_losses(void)
{
    for (unsigned i = 0; i < CONTENDERS; i++)
        if (env.shared->loss[i][0] != '\0')
            (void)fprintf(stderr, "contender %u lost it: %s\n", i,
                          env.shared->loss[i]);
}

/* Run it once. */
static enum torture_outcome run_cell(struct cell *cell, char *text)
{
    enum torture_outcome outcome;

    set_up(cell);
    wait_for_entries(CONTENDERS);
    inflict(cell);
    if (cell->is_stuck)
        wait_for_another();
    else
        wait_for_entries_of_others();
    end_contenders();
    judge(cell);
    env.stall_ms = torture_pulse_stall_ms(&env.pulse, env.shared);
    outcome = torture_check(cell, env.stall_ms, env.lease_ms, text);
    if (outcome == TORTURE_DISTURBED || outcome == TORTURE_WRONG)
        tell_losses();
    tear_down(cell);
    return outcome;
}

TEST_EACH(what_is_promised_holds_and_what_is_weak_shows, 0, FAULTS *ALGORITHMS)
{
    struct cell *cell = &cells[_i / ALGORITHMS][_i % ALGORITHMS];
    enum torture_outcome outcome;
    char text[TORTURE_TEXT_BYTES];

    if (!cell->is_chosen)
        return;
    env.lease_ms = LEASE_MS;
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        (void)fprintf(stderr, "%-10s %-28s ", algorithm_names[cell->algorithm],
                      cell->what);
        outcome = run_cell(cell, text);
        if (outcome != TORTURE_NOT_SHOWN && outcome != TORTURE_DISTURBED)
            break;
        (void)fprintf(stderr, "again: %s; processes did not run for %llu ms\n",
                      text, (unsigned long long)env.stall_ms);
        if (outcome == TORTURE_DISTURBED && env.lease_ms < LONGEST_LEASE_MS)
            env.lease_ms *= 2;
    }
    (void)fprintf(stderr, "%s\n",
                  cell->verdict.overlaps > 0 ? "BROKEN" : "kept");
    ck_assert_msg(outcome == TORTURE_AS_EXPECTED,
                  "%s; processes did not run for %llu ms", text,
                  (unsigned long long)env.stall_ms);
}

int main(int argc, char **argv)
{
    int status;

    cells = mmap(NULL, sizeof(*cells) * FAULTS, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (cells == MAP_FAILED) {
        perror("lock_torture: mmap");
        return EXIT_FAILURE;
    }
    if (!make_cells(argc > 1 ? argv[1] : NULL)) {
        (void)fprintf(stderr, "lock_torture: nothing is called '%s'\n",
                      argv[1]);
        return EXIT_FAILURE;
    }
    tcase_set_timeout(test_case(), CELL_TIMEOUT_S);
    status = run_tests("lock torture");
    print_matrix(stdout, (const struct cell(*)[ALGORITHMS])cells);
    return status;
}
