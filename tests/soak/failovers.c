/*
 * Failovers. The new primary lacks the last writes, although processes were
 * told that they are done. Each process that lives repeats its own ones soon;
 * until then an old row may be read, afterwards none. In half of the failovers
 * nothing else is written, because a later write could hide a lost one.
 */
#include "soak/failovers.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    CUT_MAX_MS = 300,
    LAST_MS = 50, /* for the writes that are under way */
    /* From a new primary until all has been repeated there. Processes hear of
     * it within a few ms; the rest is for a busy machine. */
    REPEAT_MS = 1500,
    LOOK_MS = 1000, /* then reads are judged */
    BACK_MAX_MS = 700,
    MOVE_MAX_MS = 200
};

/* -------------------------------------------------------------- the servers */

static struct server *server_at(const struct soak_stage *stage, size_t i)
{
    return &stage->place.server[i];
}

/* Primaries and replicas of the cluster are pairs. */
static bool is_replica_of(const struct soak_stage *stage, size_t i,
                          size_t primary)
{
    size_t pairs = stage->cluster.primaries;

    return i != primary &&
           (stage->topology == SOAK_SENTINEL || i % pairs == primary % pairs);
}

static size_t first_replica(const struct soak_stage *stage, size_t primary)
{
    size_t i = 0;

    while (!is_replica_of(stage, i, primary))
        i++;
    return i;
}

static size_t await_primary(struct soak_stage *stage, size_t from)
{
    size_t next;

    if (stage->topology == SOAK_SENTINEL)
        return watched_primary(&stage->watched, from);
    next = first_replica(stage, from);
    own_cluster_await_primary(&stage->cluster, next);
    return next;
}

/* The former primary is told which one it follows. In a cluster the other nodes
 * do that. Sentinels take 8 s, so the soak does it for them, after a while in
 * which the former primary still answers as one, and nobody may use it. */
static void follow(struct soak_stage *stage, size_t former, size_t primary)
{
    if (stage->topology == SOAK_CLUSTER)
        return;
    soak_sleep_ms(soak_stage_draw(stage, BACK_MAX_MS));
    server_do(server_at(stage, former), "REPLICAOF 127.0.0.1 %u",
              stage->watched.port[primary]);
}

static bool follows(const struct server *server)
{
    char role[8];

    server_info(server, "role", role, sizeof(role));
    return *role == 's' && server_follows(server);
}

/* On a busy machine the nodes of a cluster may have elected another primary
 * meanwhile: then the one that we know of follows that. */
static void await_replicas(const struct soak_stage *stage, size_t primary)
{
    for (size_t i = 0; i < stage->place.servers; i++)
        if (is_replica_of(stage, i, primary))
            WAIT_FOR(follows(server_at(stage, i)) ||
                     (stage->topology == SOAK_CLUSTER &&
                      follows(server_at(stage, primary))));
    if (stage->topology == SOAK_CLUSTER)
        own_cluster_await(&stage->cluster);
}

/* --------------------------------------------------------- what is lost */

static long long offset_of(const struct server *server)
{
    char text[24];

    server_info(server, "master_repl_offset", text, sizeof(text));
    return strtoll(text, NULL, 10);
}

/* Wait until the replicas have what a primary has now. */
static void await_offset(const struct soak_stage *stage, size_t primary)
{
    long long offset = offset_of(server_at(stage, primary));

    for (size_t i = 0; i < stage->place.servers; i++)
        if (is_replica_of(stage, i, primary))
            WAIT_FOR(offset_of(server_at(stage, i)) >= offset);
}

/* From now on the replicas of a primary lack what it is told. They have all
 * writes of processes that are dead: nobody would repeat these. */
static void begin_loss(struct soak_stage *stage, size_t primary)
{
    struct soak_history *h = stage->history;
    bool is_quiet = soak_stage_draw(stage, 2) == 0;

    if (is_quiet)
        atomic_store(&h->writes_now, SOAK_NO_TAGS);
    soak_sleep_ms(LAST_MS);
    await_offset(stage, primary);
    atomic_store(&h->lacking_until_ms, UINT64_MAX);
    for (size_t i = 0; i < stage->place.servers; i++)
        if (is_replica_of(stage, i, primary))
            server_cut_replica(server_at(stage, i), server_at(stage, primary));
    soak_sleep_ms(soak_stage_draw(stage, CUT_MAX_MS));
    if (is_quiet)
        atomic_store(&h->writes_now, SOAK_NO_WRITES);
    soak_sleep_ms(LAST_MS);
}

/* There is a new primary. Returns: when reads have been judged for long enough.
 */
static uint64_t end_loss(struct soak_stage *stage)
{
    uint64_t repeated_ms = shed_now_ms() + scaled_ms(REPEAT_MS);

    atomic_store(&stage->history->lacking_until_ms, repeated_ms);
    for (size_t i = 0; i < stage->place.servers; i++)
        if (server_at(stage, i)->pid != 0)
            server_join_replica(server_at(stage, i));
    return repeated_ms + LOOK_MS;
}

static void look(struct soak_stage *stage, uint64_t until_ms)
{
    while (shed_now_ms() < until_ms)
        soak_sleep_ms(1);
    atomic_store(&stage->history->writes_now, SOAK_ALL_WRITES);
}

/* ------------------------------------------------------------ failovers */

void soak_kill_primary(struct soak_stage *stage)
{
    size_t from = soak_stage_draw_primary(stage), to;
    uint64_t until_ms;

    begin_loss(stage, from);
    server_kill(server_at(stage, from));
    to = await_primary(stage, from);
    until_ms = end_loss(stage);
    server_start_again(server_at(stage, from));
    follow(stage, from, to);
    await_replicas(stage, to);
    look(stage, until_ms);
}

void soak_stop_primary(struct soak_stage *stage)
{
    size_t from = soak_stage_draw_primary(stage), to;
    uint64_t until_ms;

    begin_loss(stage, from);
    server_freeze(server_at(stage, from));
    to = await_primary(stage, from);
    server_thaw(server_at(stage, from));
    until_ms = end_loss(stage);
    follow(stage, from, to);
    await_replicas(stage, to);
    look(stage, until_ms);
}

/* The primary of a cluster gives its place up when its replica has all. With
 * sentinels it goes on for a moment. */
void soak_fail_over(struct soak_stage *stage)
{
    size_t from = soak_stage_draw_primary(stage), to;
    uint64_t until_ms = 0;

    if (stage->topology == SOAK_CLUSTER) {
        to = first_replica(stage, from);
        own_cluster_fail_over(&stage->cluster, to, "");
    } else {
        begin_loss(stage, from);
        to = watched_fail_over(&stage->watched, from);
        until_ms = end_loss(stage);
    }
    await_replicas(stage, to);
    look(stage, until_ms);
}

static void seize(struct soak_stage *stage, const char *how)
{
    size_t from = soak_stage_draw_primary(stage);
    size_t to = first_replica(stage, from);
    uint64_t until_ms;

    begin_loss(stage, from);
    own_cluster_fail_over(&stage->cluster, to, how);
    until_ms = end_loss(stage);
    await_replicas(stage, to);
    look(stage, until_ms);
}

void soak_force(struct soak_stage *stage)
{
    seize(stage, "FORCE");
}

void soak_take_over(struct soak_stage *stage)
{
    seize(stage, "TAKEOVER");
}

/* ---------------------------------------------------------------- moves */

static unsigned draw_slot(struct soak_stage *stage)
{
    static const char *const shared[] = {"soak:tags", "long:tags", "soak:loads",
                                         "lock:{soak}"};
    const uint64_t count = sizeof(shared) / sizeof(*shared);
    uint64_t i = soak_stage_draw(stage, SOAK_KEYS + count);
    char key[24];

    if (i >= SOAK_KEYS)
        return own_cluster_slot(shared[i - SOAK_KEYS]);
    (void)snprintf(key, sizeof(key), "soak:{%u}", (unsigned)i + 1);
    return own_cluster_slot(key);
}

static void pause_move(struct soak_stage *stage)
{
    soak_sleep_ms(soak_stage_draw(stage, MOVE_MAX_MS));
}

void soak_move_slot(struct soak_stage *stage)
{
    struct own_move move;

    move.first = move.last = draw_slot(stage);
    move.from =
        own_cluster_owner(&stage->cluster, move.first, CLUSTER_NODES_MAX);
    do
        move.to = soak_stage_draw_primary(stage);
    while (move.to == move.from);
    own_cluster_begin_move(&stage->cluster, &move);
    pause_move(stage);
    while (own_cluster_move_key(&stage->cluster, &move))
        pause_move(stage);
    own_cluster_end_move(&stage->cluster, &move);
}
