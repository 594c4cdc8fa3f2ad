/*
 * The servers of a client: one; or those of a Redis Cluster, of which each has
 * the keys of some slots. A cluster's map (cluster_map.h) is asked for over one
 * connection of its own, the scout: to whichever node answers, a primary or a
 * replica, every few seconds, and at once when a call was redirected or a node
 * was lost. Every few seconds another node is asked: one that is cut off does
 * not know of its successor, and does not notice that for long. Meanwhile the
 * servers in use are asked in turn whether a new epoch of the cluster has
 * begun.
 *
 * Its invariants: the owner of each slot has a server; a server is destroyed
 * only when it has no slot and nobody holds it. A server that is not of a
 * cluster has all slots for ever, so nobody has to hold it.
 *
 * A thread looks up the owner of a slot and holds its server without a lock: it
 * counts itself as a user of that place, and then looks whether the server is
 * still there. The reactor thread, before it destroys a server, takes it out of
 * its place, and then looks whether the place has users. So one of the two sees
 * the other. A thread whose slot has moved meanwhile asks a server that no
 * longer has it, and is redirected.
 *
 * Only the reactor thread changes the map, by a whole answer at a time. A
 * redirection changes nothing but the call that it answers: it is a reason to
 * ask.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/latch.h"
#include "client/client.h"
#include "client/cluster_map.h"
#include "redis/pipe.h"
#include "wire/address.h"

/* How long a server without slots is kept: calls may be under way to it, and
 * its slots may come back. */
#define IDLE_MS 10000

/* After so many questions in a row without a map of this epoch, an earlier
 * epoch is that of a new cluster. */
#define TRIES_BEHIND 16

/* How often a server is asked for the epoch. Of two in a row one is not cut
 * off, so a takeover is known within twice this. */
#define WATCH_MS 350

/* And if it refuses that: each refusal is in its ACL LOG. */
#define WATCH_REFUSED_MS 60000

/* An epoch begins with an election. For so long its outcome may be missing in
 * the map of a node that knows of the epoch. */
#define ELECTION_MS 2000

/* How often one call of the loop follows a redirection. */
#define REDIRECTS_MAX 5

struct shed_servers {
    /* set at creation */
    struct shed_client *client;
    struct shed_client_options options; /* but those of TLS */
    bool is_cluster; /* false: there is only one server, at place 0 */
    /* atomic */
    _Atomic(struct shed_server *) server[SHED_CLUSTER_NODES_MAX];
    atomic_size_t users[SHED_CLUSTER_NODES_MAX];
    atomic_uint changes;
    atomic_bool is_settled;
    struct shed_post wake;

    struct shed_mutex mu;
    pthread_cond_t settled;
    /* under mu; its owners are read without, and changed by the reactor */
    struct shed_cluster_map map;

    /* reactor thread only */
    struct shed_timer *timer;
    struct shed_pipe *scout; /* NULL: there is none */
    struct shed_place scout_at;
    struct shed_call info, slots; /* what it asks */
    bool is_cut_off;              /* its node says that it misses most of the
                                     cluster, so that others may know better */
    bool is_behind;               /* its epoch is an earlier one than this: */
    unsigned long long epoch;     /* the cluster's, as far as it was told */
    uint64_t elected_ms;          /* since when, if another one was before */
    size_t candidate;             /* where it is */
    size_t tries;                 /* in a row that have failed */
    struct shed_timer *watch;
    size_t watched;            /* the place that was asked last for the epoch */
    struct shed_post *waiting; /* posted once it is settled */
};

/* -------------------------------------------------------------- the servers */

static void on_change(void *arg, const char *key, size_t size)
{
    const struct shed_server *server = arg;
    struct shed_client *client = server->owner;

    shed_listeners_change(client->listeners, shed_bytes(key, size));
}

/* Its other reasons are known where they come from: here it may be that a
 * server is another run. */
static void on_epoch(void *arg)
{
    struct shed_server *server = arg;
    struct shed_client *client = server->owner;
    unsigned changes = shed_session_server_changes(server->session);

    atomic_fetch_add(&client->servers->changes, changes - server->changes);
    server->changes = changes;
    shed_listeners_epoch(client->listeners);
}

static void follow_map(struct shed_servers *c);

static void hurry_locked(struct shed_servers *c,
                         const struct shed_redirect *redirect, bool is_down)
{
    bool is_earlier =
        shed_cluster_map_hurry(&c->map, redirect, is_down, shed_now_ms());

    if (is_earlier)
        shed_reactor_wake(c->client->reactor, &c->wake);
}

/* redirect NULL: the node that has told the map may be wrong. */
static void hurry(struct shed_servers *c, const struct shed_redirect *redirect)
{
    shed_mutex_lock(&c->mu);
    hurry_locked(c, redirect, redirect == NULL);
    shed_mutex_unlock(&c->mu);
}

/* The cluster gives slots to a server that this process has never reached. */
static bool is_astray(const struct shed_servers *c,
                      const struct shed_server *server,
                      const struct shed_error *why, uint64_t before_us)
{
    return why != NULL && why->code == SHED_EREDIS && before_us == 0 &&
           c->map.is_known && c->map.node[server->place].slots > 0;
}

static void on_standing(void *arg, const struct shed_error *why,
                        uint64_t before_us)
{
    const struct shed_server *server = arg;
    const struct shed_client *client = server->owner;
    struct shed_servers *c = client->servers;
    struct shed_error astray;

    if (is_astray(c, server, why, before_us)) {
        (void)shed_fail(&astray, why->code,
                        "%s. The node announces this address: if it is up, set "
                        "its cluster-announce-ip (or -hostname, -port) to one "
                        "that clients reach",
                        why->reason);
        why = &astray;
    }
    shed_client_tell_standing(server, why, before_us);
    if (why == NULL || !c->is_cluster)
        return;
    shed_mutex_lock(&c->mu);
    hurry_locked(c, NULL, false);
    shed_mutex_unlock(&c->mu);
}

static bool on_elsewhere(void *arg, struct shed_call *call,
                         const struct shed_reply *reply);

/* Make the server of a place, if it has none; it is opened later. */
static enum shed_code make_server_locked(struct shed_servers *c, size_t i,
                                         struct shed_error *err)
{
    const struct shed_server_hooks hooks = {
        .on_change = on_change,
        .on_epoch = on_epoch,
        .on_standing = on_standing,
        .on_lack = shed_client_tell_lack,
        .on_breaker = shed_client_tell_breaker,
        .on_elsewhere = c->is_cluster ? on_elsewhere : NULL};
    const struct shed_cluster_node *node = &c->map.node[i];
    struct shed_client *client = c->client;
    struct shed_address *address = NULL; /* of a node */
    struct shed_server *server;
    enum shed_code code = SHED_OK;

    if (atomic_load(&c->server[i]) != NULL)
        return SHED_OK;
    if (c->is_cluster)
        code =
            shed_address_create_at(client->address, &node->at, &address, err);
    if (code == SHED_OK)
        code = shed_server_create(
            client->reactor, address != NULL ? address : client->address,
            &c->options, client->process, &client->last_epoch, &hooks, client,
            &server, err);
    shed_address_unref(address);
    if (code != SHED_OK)
        return code;
    server->place = i;
    atomic_store(&c->server[i], server);
    return SHED_OK;
}

static bool may_own(void *arg, size_t i)
{
    return make_server_locked(arg, i, NULL) == SHED_OK;
}

static struct shed_server *take(struct shed_servers *c, size_t i)
{
    struct shed_server *server;

    atomic_fetch_add(&c->users[i], 1);
    server = atomic_load(&c->server[i]);
    if (server == NULL)
        atomic_fetch_sub(&c->users[i], 1);
    return server;
}

static size_t owner_of(const struct shed_servers *c, struct shed_bytes key)
{
    return atomic_load_explicit(&c->map.owner[shed_hash_slot(key)],
                                memory_order_relaxed);
}

struct shed_server *shed_client_hold(struct shed_client *client,
                                     struct shed_bytes key)
{
    struct shed_servers *c = client->servers;
    struct shed_server *server;

    if (!c->is_cluster)
        return atomic_load_explicit(&c->server[0], memory_order_relaxed);
    do
        server = take(c, owner_of(c, key));
    while (server == NULL); /* the slot has moved just now */
    return server;
}

void shed_client_give_back(struct shed_client *client,
                           struct shed_server *server)
{
    if (client->servers->is_cluster)
        atomic_fetch_sub(&client->servers->users[server->place], 1);
}

/* Take a server away that nobody uses any more. */
static void retire_locked(struct shed_servers *c, size_t i, uint64_t now_ms)
{
    struct shed_cluster_node *node = &c->map.node[i];
    struct shed_server *server = atomic_load(&c->server[i]);

    if (!node->is_used || node->slots > 0 || now_ms - node->idle_ms < IDLE_MS)
        return;
    if (server != NULL) {
        atomic_store(&c->server[i], NULL);
        /* its last user may have left a post for the session */
        if (atomic_load(&c->users[i]) > 0 ||
            !shed_session_is_idle(server->session)) {
            atomic_store(&c->server[i], server);
            return;
        }
        shed_server_close(server);
        shed_server_destroy(server);
    }
    shed_cluster_map_forget(&c->map, i);
}

/* ---------------------------------------------------------------- the scout */

#define PLACES (SHED_CLUSTER_NODES_MAX + SHED_SEEDS_MAX)

/* The i-th place to ask: the nodes with slots come first, then, unless one of
 * these has just told the map, the seeds, of which some may hang. */
static bool find_candidate_locked(const struct shed_servers *c, size_t i,
                                  struct shed_place *place)
{
    const struct shed_address *cluster = c->client->address;
    const struct shed_cluster_node *node;

    if (i >= SHED_CLUSTER_NODES_MAX) {
        i -= SHED_CLUSTER_NODES_MAX;
        if (i >= cluster->count || (c->map.is_known && !c->map.is_doubted))
            return false;
        *place = cluster->seeds[i];
        return true;
    }
    node = &c->map.node[i];
    if (!c->map.is_known || !node->is_used || node->slots == 0)
        return false;
    *place = node->at;
    return true;
}

/* The next place to send the scout to: one behind the last, so that it comes to
 * all of them. There is a seed. */
static void next_candidate_locked(struct shed_servers *c,
                                  struct shed_place *place)
{
    do
        c->candidate = (c->candidate + 1) % PLACES;
    while (!find_candidate_locked(c, c->candidate, place));
}

/* Returns: false when out of memory. */
static bool send_scout(struct shed_servers *c)
{
    const struct shed_pipe_hooks hooks = {0};

    shed_pipe_close(c->scout);
    if (shed_pipe_create_guide(c->client->reactor, c->client->address,
                               &c->scout_at, &c->options, &hooks, &c->scout,
                               NULL) != SHED_OK)
        return false;
    shed_pipe_open(c->scout);
    return true;
}

static void settle(struct shed_servers *c)
{
    if (atomic_exchange(&c->is_settled, true))
        return;
    shed_reactor_post_all(c->client->reactor, c->waiting);
    c->waiting = NULL;
    shed_mutex_lock(&c->mu);
    (void)pthread_cond_broadcast(&c->settled);
    shed_mutex_unlock(&c->mu);
}

/* Slots have moved: a lease that was taken on another server names an epoch
 * that nobody sees there. The new one is above it, and the load that has the
 * lease names it from now on. What pushes have told of those slots is over,
 * too. */
static void follow_move(struct shed_servers *c, bool was_replaced)
{
    atomic_fetch_add(&c->changes, was_replaced);
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++) {
        struct shed_server *server = atomic_load(&c->server[i]);
        if (!c->map.node[i].has_gained)
            continue;
        c->map.node[i].has_gained = false;
        shed_session_end_epoch(server->session,
                               shed_session_epoch(server->session));
    }
    shed_listeners_epoch(c->client->listeners);
}

/* The server of a place, if it has slots. Reactor thread. */
static struct shed_server *in_use_locked(const struct shed_servers *c, size_t i)
{
    return c->map.node[i].slots > 0 ? atomic_load(&c->server[i]) : NULL;
}

static bool is_up(const struct shed_server *server)
{
    struct shed_server_status status;

    shed_session_read(server->session, &status);
    return status.is_up;
}

/* A server that is lost may be replaced by now. */
static bool is_any_down_locked(const struct shed_servers *c)
{
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++) {
        const struct shed_server *server = in_use_locked(c, i);
        if (server != NULL && !is_up(server))
            return true;
    }
    return false;
}

/* Each new primary begins one, of which a node that is cut off is not told.
 * text: an answer to CLUSTER INFO; NULL: there is none. */
static unsigned long long epoch_in(const struct shed_servers *c,
                                   const char *text)
{
    static const char field[] = "cluster_current_epoch:";
    const char *at = text != NULL ? strstr(text, field) : NULL;

    return at != NULL ? strtoull(at + sizeof(field) - 1, NULL, 10) : c->epoch;
}

static bool is_in_election(const struct shed_servers *c, uint64_t now_ms)
{
    return c->elected_ms > 0 && now_ms - c->elected_ms < ELECTION_MS;
}

static void learn_epoch(struct shed_servers *c, unsigned long long epoch)
{
    if (epoch != c->epoch && c->epoch > 0)
        c->elected_ms = shed_now_ms();
    c->epoch = epoch;
}

/* Without the right to CLUSTER INFO the node is believed. */
static void on_info(void *arg, const struct shed_call_result *result)
{
    struct shed_servers *c = arg;
    size_t size = 0;
    const char *text = shed_reply_bytes(result->reply, &size);
    unsigned long long epoch = epoch_in(c, text);

    c->is_cut_off = text != NULL && strstr(text, "cluster_state:fail") != NULL;
    c->is_behind = epoch < c->epoch && c->tries < TRIES_BEHIND;
    if (!c->is_behind)
        learn_epoch(c, epoch);
}

/* reply: NULL: there is none. */
static void take_map(struct shed_servers *c, const struct shed_reply *reply)
{
    uint64_t now_ms = shed_now_ms();
    struct shed_cluster_change change;

    shed_mutex_lock(&c->mu);
    change = shed_cluster_map_take(&c->map, reply, c->scout_at.host, now_ms,
                                   may_own, c);
    if (change.is_valid &&
        (c->is_cut_off || is_any_down_locked(c) || is_in_election(c, now_ms)))
        (void)shed_cluster_map_hurry(&c->map, NULL, c->is_cut_off, now_ms);
    shed_mutex_unlock(&c->mu);
    c->tries = change.is_valid ? 0 : c->tries + 1;
    if (change.is_valid || /* or none of them answers */
        c->tries >= c->client->address->count)
        settle(c);
    if (change.has_moved)
        follow_move(c, change.was_replaced);
    follow_map(c);
}

static void on_slots(void *arg, const struct shed_call_result *result)
{
    struct shed_servers *c = arg;

    take_map(c, c->is_behind ? NULL : result->reply);
}

static struct shed_args ask_info(void)
{
    return shed_args_of("CLUSTER", "INFO", NULL);
}

/* Ask: by the scout that is there, or by a new one. */
static void ask(struct shed_servers *c)
{
    const struct shed_args info = ask_info();
    const struct shed_args slots = shed_args_of("CLUSTER", "SLOTS", NULL);
    bool is_new;

    shed_mutex_lock(&c->mu);
    is_new = c->scout == NULL || !shed_pipe_is_open(c->scout) ||
             c->map.is_doubted || !c->map.is_hurried;
    if (is_new)
        next_candidate_locked(c, &c->scout_at);
    shed_cluster_map_ask(&c->map, shed_now_ms());
    shed_mutex_unlock(&c->mu);
    if (is_new && !send_scout(c)) {
        take_map(c, NULL);
        return;
    }
    shed_pipe_call(c->scout, &c->info, &info, on_info, c);
    shed_pipe_call(c->scout, &c->slots, &slots, on_slots, c);
}

/* Open new servers, retire unused ones, and set the timer for the next
 * question. */
static void follow_map(struct shed_servers *c)
{
    uint64_t now_ms = shed_now_ms(), ask_ms;

    shed_mutex_lock(&c->mu);
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++) {
        struct shed_server *server = atomic_load(&c->server[i]);
        if (server != NULL && !server->is_open) {
            server->is_open = true;
            shed_mutex_unlock(&c->mu);
            shed_session_open(server->session);
            shed_mutex_lock(&c->mu);
        }
        retire_locked(c, i, now_ms);
    }
    ask_ms = c->map.ask_ms;
    shed_mutex_unlock(&c->mu);
    if (c->is_cluster && c->slots.fn == NULL)
        shed_timer_set(c->timer, shed_left_ms(ask_ms, now_ms));
}

static void on_timer(void *arg)
{
    struct shed_servers *c = arg;

    if (c->slots.fn == NULL)
        ask(c);
}

static void on_wake(struct shed_post *post)
{
    struct shed_servers *c = shed_container_of(post, struct shed_servers, wake);

    if (c->timer != NULL) /* not closed meanwhile */
        follow_map(c);
}

/* A server that knows of a later epoch than the scout is asked for the map. */
static void on_watched(void *arg, const struct shed_call_result *result)
{
    const struct shed_server *server = arg;
    const struct shed_client *client = server->owner;
    struct shed_servers *c = client->servers;
    size_t size = 0;
    unsigned long long epoch =
        epoch_in(c, shed_reply_bytes(result->reply, &size));

    if (shed_reply_error(result->reply) != NULL && c->watch != NULL)
        shed_timer_set(c->watch, WATCH_REFUSED_MS);
    if (epoch <= c->epoch)
        return;
    learn_epoch(c, epoch);
    c->candidate = (server->place + PLACES - 1) % PLACES; /* it comes next */
    hurry(c, NULL);
}

/* Ask the next server that is up. One that hangs does not hold up the others.
 */
static void on_watch(void *arg)
{
    struct shed_servers *c = arg;
    const struct shed_args info = ask_info();
    struct shed_server *server = NULL;

    shed_mutex_lock(&c->mu);
    for (size_t i = 0; server == NULL && i < SHED_CLUSTER_NODES_MAX; i++) {
        c->watched = (c->watched + 1) % SHED_CLUSTER_NODES_MAX;
        server = in_use_locked(c, c->watched);
        if (server != NULL && (server->watch.fn != NULL || !is_up(server)))
            server = NULL;
    }
    shed_mutex_unlock(&c->mu);
    if (server != NULL)
        shed_session_call(server->session, &server->watch, &info, on_watched,
                          server);
    shed_timer_set(c->watch, WATCH_MS);
}

/* ---------------------------------------------------------------- the calls */

void shed_client_wait(struct shed_client *client, uint64_t deadline_ms)
{
    struct shed_servers *c = client->servers;

    if (atomic_load(&c->is_settled))
        return;
    shed_mutex_lock(&c->mu);
    while (!atomic_load(&c->is_settled) &&
           shed_cond_wait(&c->settled, &c->mu, deadline_ms))
        ;
    shed_mutex_unlock(&c->mu);
}

bool shed_client_knows_servers(struct shed_client *client,
                               struct shed_post *post)
{
    struct shed_servers *c = client->servers;

    if (atomic_load(&c->is_settled))
        return true;
    if (post != NULL) {
        post->next = c->waiting;
        c->waiting = post;
    }
    return false;
}

struct shed_bytes shed_servers_key(const struct shed_args *args)
{
    int i = args->script != NULL ? 3 : 1;

    assert(i < args->count);
    return shed_bytes(args->at[i], args->size[i]);
}

/* The server that a redirection names, held. Returns: NULL: there is no memory
 * for it, or there are too many. */
static struct shed_server *hold_at(struct shed_servers *c,
                                   const struct shed_redirect *redirect)
{
    struct shed_server *server = NULL;
    bool is_new = false;
    size_t i;

    shed_mutex_lock(&c->mu);
    i = shed_cluster_map_find(&c->map, &redirect->to, shed_now_ms());
    if (i < SHED_CLUSTER_NODES_MAX) {
        is_new = atomic_load(&c->server[i]) == NULL;
        if (make_server_locked(c, i, NULL) == SHED_OK)
            server = take(c, i);
    }
    if (is_new && server != NULL)
        shed_reactor_wake(c->client->reactor, &c->wake);
    shed_mutex_unlock(&c->mu);
    return server;
}

struct shed_server *shed_servers_follow(struct shed_client *client,
                                        const struct shed_server *from,
                                        const struct shed_reply *reply,
                                        bool *is_ask)
{
    struct shed_redirect redirect;

    if (shed_reply_begins(reply, "CLUSTERDOWN"))
        hurry(client->servers, NULL);
    if (!shed_reply_redirect(reply, from->address->host, &redirect))
        return NULL;
    *is_ask = redirect.is_ask;
    if (!redirect.is_ask)
        hurry(client->servers, &redirect);
    return hold_at(client->servers, &redirect);
}

/* Follow a redirection. A slot that is being moved, or that nobody serves, is
 * for the owner of the call, which tries again later. */
static bool on_elsewhere(void *arg, struct shed_call *call,
                         const struct shed_reply *reply)
{
    const struct shed_server *server = arg;
    struct shed_client *client = server->owner;
    unsigned redirects = call->redirects + 1;
    struct shed_server *target;
    struct shed_args *args;
    bool is_ask;

    if (redirects > REDIRECTS_MAX)
        return false;
    target = shed_servers_follow(client, server, reply, &is_ask);
    if (target == NULL)
        return false;
    args = shed_call_leave(call);
    args->is_asking = is_ask;
    shed_session_call(target->session, call, args, call->fn, call->arg);
    call->redirects = redirects;
    free(args);
    shed_client_give_back(client, target);
    return true;
}

/* --------------------------------------------------------------- its state */

unsigned shed_client_server_changes(struct shed_client *client)
{
    return atomic_load(&client->servers->changes);
}

static void add_status(struct shed_server_status *all,
                       const struct shed_server_status *one)
{
    struct shed_breaker_status *breaker = &all->gate.breaker;

    if (!one->is_up && all->is_up)
        *all = (struct shed_server_status){
            .since_us = one->since_us, .last = one->last, .gate = all->gate};
    else if (one->is_up == all->is_up && one->since_us > all->since_us)
        all->since_us = one->since_us;
    if (all->last.code == SHED_OK)
        all->last = one->last;
    if (one->gate.breaker.state > breaker->state) {
        breaker->state = one->gate.breaker.state;
        breaker->left_ms = one->gate.breaker.left_ms;
    }
    breaker->openings += one->gate.breaker.openings;
    all->gate.refused += one->gate.refused;
}

void shed_client_read(struct shed_client *client,
                      struct shed_server_status *out)
{
    struct shed_servers *c = client->servers;

    *out = (struct shed_server_status){.is_up = true};
    shed_mutex_lock(&c->mu);
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++) {
        struct shed_server_status one;
        struct shed_server *server =
            c->map.node[i].slots > 0 ? take(c, i) : NULL;
        if (server == NULL)
            continue;
        shed_session_read(server->session, &one);
        shed_client_give_back(client, server);
        add_status(out, &one);
    }
    shed_mutex_unlock(&c->mu);
}

/* ----------------------------------------------------------- begin and end */

/* Make the first server: the only one, or the first seed. */
static enum shed_code make_first(struct shed_servers *c, struct shed_error *err)
{
    const struct shed_place nowhere = {.host = ""};
    enum shed_code code;

    shed_mutex_lock(&c->mu);
    shed_cluster_map_init(&c->map,
                          c->is_cluster ? c->client->address->seeds : &nowhere,
                          shed_now_ms());
    code = make_server_locked(c, 0, err);
    shed_mutex_unlock(&c->mu);
    return code;
}

enum shed_code shed_servers_create(struct shed_client *client,
                                   const struct shed_client_options *options,
                                   struct shed_error *err)
{
    struct shed_servers *c = calloc(1, sizeof(*c));

    if (c == NULL || shed_mutex_init(&c->mu, SHED_RANK_CLUSTER) != 0) {
        free(c);
        return shed_fail_nomem(err, "a client");
    }
    if (shed_cond_init(&c->settled) != 0) {
        shed_mutex_destroy(&c->mu);
        free(c);
        return shed_fail_nomem(err, "a client");
    }
    client->servers = c;
    c->client = client;
    c->options = *options;
    c->is_cluster = client->address->seeds != NULL;
    atomic_init(&c->is_settled, !c->is_cluster);
    c->wake.run = on_wake;
    c->candidate = SHED_CLUSTER_NODES_MAX - 1; /* the seeds come next */
    if (c->is_cluster) {
        c->timer = shed_timer_create(client->reactor, on_timer, c);
        c->watch = shed_timer_create(client->reactor, on_watch, c);
    }
    if (c->is_cluster && (c->timer == NULL || c->watch == NULL))
        return shed_fail_nomem(err, "a client");
    return make_first(c, err);
}

void shed_servers_open(struct shed_servers *c)
{
    follow_map(c);
    if (c->is_cluster)
        shed_timer_set(c->watch, WATCH_MS);
}

void shed_servers_close(struct shed_servers *c)
{
    shed_timer_destroy(c->timer);
    shed_timer_destroy(c->watch);
    c->timer = c->watch = NULL;
    shed_pipe_close(c->scout);
    c->scout = NULL;
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++)
        if (atomic_load(&c->server[i]) != NULL)
            shed_server_close(atomic_load(&c->server[i]));
}

void shed_servers_destroy(struct shed_servers *c, bool is_forked)
{
    if (c == NULL)
        return;
    if (is_forked)
        shed_pipe_forget(c->scout);
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++)
        if (is_forked)
            shed_server_forget(atomic_load(&c->server[i]));
        else
            shed_server_destroy(atomic_load(&c->server[i]));
    pthread_cond_destroy(&c->settled);
    shed_mutex_destroy(&c->mu);
    free(c);
}
