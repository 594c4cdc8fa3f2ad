/*
 * The session. Its invariant: is_on is set only while neither connection has
 * been lost since CLIENT TRACKING was answered, because the server ends
 * tracking silently when either is.
 */
#include "redis/session.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/process.h"
#include "redis/announcements.h"

#define INVALIDATE_CHANNEL "__redis__:invalidate"
/* How long a connection that died silently can go unnoticed. */
#define PING_MS 3000
#define CHANNELS 4
/* redis_mode; server_mode since Valkey 8 */
#define CLUSTER_MODE "_mode:cluster"
#define PLACE_BYTES 256 /* a host name, and the number of a process */
#define EPOCH_DIGITS 10
/* Another untracked connection is made when those before it owe so many more
 * replies. */
#define MANY_OWED 64

/* Its connections. */
enum {
    COMMANDS,
    PUSHES, /* NULL if waiting is by timer only */
    ACKS,
    UNTRACKED, /* the first of those for reads that need no announcement */
    PIPES = UNTRACKED + 4
};

/* Whether it is connected. */
enum standing { UNKNOWN, UP, DOWN, REFUSED };

struct shed_session {
    struct shed_server *server;
    struct shed_pipe *pipe[PIPES];
    struct shed_acks acks;
    struct shed_announcements *announcements; /* NULL without sentinels */
    struct shed_timer *ping;
    struct shed_timer *subscribing; /* ends the wait for its answer */
    uint64_t command_timeout_ms;
    char channel[sizeof(SHED_PROCESS_CHANNEL) + SHED_PROCESS_BYTES];
    char place[PLACE_BYTES]; /* a channel whose name tells host and process */
    uint64_t client_id;      /* of pushes */
    uint64_t asked_id;       /* the one that tracking was asked for */
    const char *prefix;      /* of keys whose changes are all announced; NULL */
    _Atomic uint32_t *epochs;
    atomic_uint channels; /* subscribed to */
    unsigned lacks;       /* a bit for each that was told */
    uint32_t epoch, asked_epoch;
    char epoch_channel[sizeof(SHED_PROCESS_CHANNEL) + SHED_PROCESS_BYTES +
                       EPOCH_DIGITS + 1]; /* of asked_epoch */
    bool has_channel; /* the last try to subscribe has not failed */
    bool is_on;
    bool is_broadcast; /* Redis has granted it */
    atomic_bool is_settled;
    struct shed_post *waiting; /* posted once it is settled */
    /* the session's own calls */
    struct shed_call load[SHED_SCRIPTS];
    struct shed_call time;
    uint64_t time_asked_ms;
    struct shed_call tracking;  /* of what is read over commands */
    struct shed_call broadcast; /* of the prefix */
    struct shed_call untracked_alive;
    struct shed_call id;
    struct shed_call info;
    struct shed_call role;
    struct shed_call numsub;
    struct shed_post follow; /* a link has left the server, or reached it */
    atomic_bool is_reached;
    struct shed_mutex mu;
    /* under mu */
    enum standing standing;
    uint64_t standing_since_us;
    struct shed_error last;            /* why it was last down */
    struct shed_server_run server_run; /* the loop reads it without */
};

/* 0 is no epoch. */
static void number_epoch(struct shed_session *p)
{
    do
        p->epoch = atomic_fetch_add(p->epochs, 1) + 1;
    while (p->epoch == 0);
}

static void tell_epoch(struct shed_session *p)
{
    p->server->hooks.on_epoch(p->server);
}

/* It is subscribed to first, and stays when that of an epoch is left. */
static bool has_process_channel(const struct shed_session *p)
{
    return atomic_load(&p->channels) >= CHANNELS - 1;
}

static void begin_epoch(struct shed_session *p, bool is_on)
{
    p->is_on = is_on;
    atomic_store(&p->is_settled, true);
    tell_epoch(p);
    shed_reactor_post_all(p->server->reactor, p->waiting);
    p->waiting = NULL;
}

/* Subscribe to the last so many of the channels. */
static void subscribe(struct shed_session *p, unsigned count)
{
    const char *const channels[CHANNELS] = {
        p->channel, p->place, INVALIDATE_CHANNEL, p->epoch_channel};
    struct shed_args args = shed_args_of("SUBSCRIBE", NULL);

    (void)snprintf(p->epoch_channel, sizeof(p->epoch_channel), "%s.%" PRIu32,
                   p->channel, p->epoch);
    p->asked_epoch = p->epoch;
    for (unsigned i = CHANNELS - count; i < CHANNELS; i++)
        shed_args_add_text(&args, channels[i]);
    shed_pipe_tell(p->pipe[PUSHES], &args);
    shed_timer_set(p->subscribing, p->command_timeout_ms);
}

/* Go from the channel of the last epoch to that of this one, while the
 * connection for commands is made again, so that leases can name it from the
 * first. Without the right to UNSUBSCRIBE, those of the last epoch seem to be
 * held until they end. */
static void move_channel(struct shed_session *p)
{
    struct shed_args args;
    char last[sizeof(p->epoch_channel)];

    if (p->channels < CHANNELS)
        return;
    memcpy(last, p->epoch_channel, sizeof(last));
    p->channels--;
    subscribe(p, 1);
    args = shed_args_of("UNSUBSCRIBE", last, NULL);
    shed_pipe_tell(p->pipe[PUSHES], &args);
}

static void end_epoch(struct shed_session *p)
{
    number_epoch(p);
    move_channel(p);
    begin_epoch(p, false);
}

/* Stop waiting for the answer whether changes are announced; it may never
 * come. */
static void settle(void *arg)
{
    struct shed_session *p = arg;

    if (!atomic_load(&p->is_settled))
        begin_epoch(p, p->is_on);
}

/* ----------------------------------------------------------- its standing */

/* The connection for commands is set up (why is NULL), or was lost or could not
 * be made (why). */
static void stand(struct shed_session *p, const struct shed_error *why)
{
    enum standing standing = why == NULL                 ? UP
                             : why->code == SHED_EDENIED ? REFUSED
                                                         : DOWN;
    uint64_t now_us = shed_now_us(), before_us;
    bool was_up, has_changed;

    shed_mutex_lock(&p->mu);
    was_up = p->standing == UP;
    has_changed = p->standing != standing;
    before_us = now_us - p->standing_since_us;
    if (was_up != (why == NULL))
        p->standing_since_us = now_us;
    p->standing = standing;
    if (why != NULL)
        p->last = *why;
    shed_mutex_unlock(&p->mu);
    if (why != NULL && shed_gate_is_silent(p->server->gate))
        shed_links_cut(p->server->links);
    if (has_changed)
        p->server->hooks.on_standing(p->server, why,
                                     was_up || why == NULL ? before_us : 0);
}

void shed_session_read(struct shed_session *p, struct shed_server_status *out)
{
    shed_mutex_lock(&p->mu);
    *out = (struct shed_server_status){.is_up = p->standing == UP,
                                       .since_us = p->standing_since_us,
                                       .last = p->last};
    shed_mutex_unlock(&p->mu);
    shed_gate_read(p->server->gate, &out->gate);
}

/* ------------------------------------------------------------- commands */

/* If a command was refused for good, say so, once. */
static void note_lack(struct shed_session *p, enum shed_lack lack,
                      const struct shed_reply *reply)
{
    const char *text = shed_reply_error(reply);

    if (text == NULL || shed_reply_trouble(reply) == SHED_TROUBLE_PASSING ||
        (p->lacks >> lack & 1) != 0)
        return;
    p->lacks |= 1U << lack;
    p->server->hooks.on_lack(p->server, lack, text);
}

/* Send one of the session's own commands, unless its last one is under way. */
static void ask(struct shed_session *p, unsigned pipe, struct shed_call *call,
                shed_pipe_fn *fn, struct shed_args args)
{
    if (call->fn == NULL)
        shed_pipe_call(p->pipe[pipe], call, &args, fn, p);
}

static void on_load(void *arg, const struct shed_call_result *result)
{
    note_lack(arg, SHED_LACK_SCRIPT_LOAD, result->reply);
}

/* Load the scripts: after a restart those keys whose calls had to be sent twice
 * would not be loaded together with the others. */
static void load_scripts(struct shed_session *p)
{
    for (int i = 0; i < SHED_SCRIPTS; i++) {
        struct shed_args args = shed_args_of("SCRIPT", "LOAD", NULL);
        shed_args_add(&args, shed_script_texts[i].text,
                      shed_script_texts[i].size);
        ask(p, COMMANDS, &p->load[i], on_load, args);
    }
}

static void on_time(void *arg, const struct shed_call_result *result)
{
    struct shed_session *p = arg;
    uint64_t server_ms = shed_reply_time_ms(result->reply);
    uint64_t now_ms = shed_now_ms();

    if (result->reply != NULL)
        shed_server_run_hear(&p->server_run, now_ms);
    if (server_ms > 0)
        shed_server_clock_note(&p->server->address->clock, p->time_asked_ms,
                               server_ms, now_ms);
}

static void ask_time(struct shed_session *p)
{
    if (p->time.fn == NULL)
        p->time_asked_ms = shed_now_ms();
    ask(p, COMMANDS, &p->time, on_time, shed_args_of("TIME", NULL));
}

static void on_role(void *arg, const struct shed_call_result *result)
{
    struct shed_session *p = arg;

    note_lack(p, SHED_LACK_ROLE, result->reply);
    if (shed_reply_is_other_role(result->reply))
        shed_pipe_leave(p->pipe[COMMANDS]);
}

/* A server that has become a replica still answers reads, so gets alone would
 * not notice. */
static void ask_role(struct shed_session *p)
{
    if (!atomic_load(&p->server->address->is_role_refused) ||
        (p->lacks >> SHED_LACK_ROLE & 1) == 0)
        ask(p, COMMANDS, &p->role, on_role, shed_args_of("ROLE", NULL));
}

/* Learn the server's run id and how long it has been running. */
static void on_info(void *arg, const struct shed_call_result *result)
{
    struct shed_session *p = arg;
    const struct shed_reply *reply = result->reply;
    unsigned changes = p->server_run.changes;
    size_t size = 0;
    const char *text = shed_reply_bytes(reply, &size);
    bool is_refused;

    shed_mutex_lock(&p->mu);
    is_refused =
        !shed_server_run_note(&p->server_run, text, size, shed_now_ms()) &&
        reply != NULL && shed_reply_trouble(reply) != SHED_TROUBLE_PASSING;
    if (is_refused)
        shed_server_run_refuse(&p->server_run);
    shed_mutex_unlock(&p->mu);
    if (is_refused)
        note_lack(p, SHED_LACK_INFO, reply);
    if (p->server_run.changes != changes)
        tell_epoch(p);
    if (!p->server->address->is_node && text != NULL &&
        strstr(text, CLUSTER_MODE) != NULL) {
        atomic_store(&p->server->address->is_in_cluster, true);
        /* no connection to it is set up again */
        shed_pipe_leave(p->pipe[COMMANDS]);
    }
}

static void ask_info(struct shed_session *p)
{
    ask(p, COMMANDS, &p->info, on_info, shed_args_of("INFO", "server", NULL));
}

/* ------------------------------------------------------------- tracking */

static void start_tracking(struct shed_session *p);

static void on_tracking(void *arg, const struct shed_call_result *result)
{
    struct shed_session *p = arg;

    if (p->asked_id != p->client_id) {
        start_tracking(p);
        return;
    }
    /* if it was refused (ACL, an old server), only timers end waits */
    note_lack(p, SHED_LACK_TRACKING, result->reply);
    if (p->channels == CHANNELS)
        begin_epoch(p, shed_reply_begins(result->reply, "OK"));
}

/* Ask, once both connections are there. If it is being asked, the answer shows
 * whether another connection is to hear by then. */
static void start_tracking(struct shed_session *p)
{
    struct shed_args args =
        shed_args_of("CLIENT", "TRACKING", "ON", "REDIRECT", NULL);
    char digits[SHED_DIGITS];

    if (!shed_pipe_is_open(p->pipe[COMMANDS]) || p->channels < CHANNELS ||
        p->tracking.fn != NULL)
        return;
    p->asked_id = p->client_id;
    shed_args_add_number(&args, digits, p->client_id);
    ask(p, COMMANDS, &p->tracking, on_tracking, args);
}

static void on_broadcast(void *arg, const struct shed_call_result *result)
{
    struct shed_session *p = arg;

    note_lack(p, SHED_LACK_TRACKING, result->reply);
    p->is_broadcast = shed_reply_begins(result->reply, "OK");
}

/* Pushes come to the connection that asks for them: this must be before it
 * subscribes, and they begin when it has. */
static void ask_broadcast(struct shed_session *p)
{
    struct shed_args args =
        shed_args_of("CLIENT", "TRACKING", "ON", "REDIRECT", NULL);
    char digits[SHED_DIGITS];

    p->is_broadcast = false;
    if (p->prefix == NULL)
        return;
    shed_args_add_number(&args, digits, p->client_id);
    shed_args_add_text(&args, "BCAST");
    shed_args_add_text(&args, "PREFIX");
    shed_args_add_text(&args, p->prefix);
    ask(p, PUSHES, &p->broadcast, on_broadcast, args);
}

static void follow(struct shed_session *p, bool is_reached)
{
    for (size_t i = 0; i < PIPES; i++)
        shed_pipe_follow(p->pipe[i], is_reached);
}

static void on_commands_open(void *arg)
{
    struct shed_session *p = arg;

    stand(p, NULL);
    ask_info(p);
    load_scripts(p);
    ask_time(p);
    start_tracking(p);
    follow(p, true);
    if (p->pipe[PUSHES] == NULL)
        tell_epoch(p);
}

static void on_commands_lost(void *arg, bool was_open,
                             const struct shed_error *why)
{
    struct shed_session *p = arg;

    stand(p, why);
    if (!was_open) {
        settle(p);
        return;
    }
    shed_mutex_lock(&p->mu);
    shed_server_run_lose(&p->server_run);
    shed_mutex_unlock(&p->mu);
    end_epoch(p);
}

static bool on_elsewhere(void *arg, struct shed_call *call,
                         const struct shed_reply *reply)
{
    const struct shed_session *p = arg;

    return p->server->hooks.on_elsewhere(p->server, call, reply);
}

/* --------------------------------------------------------------- pushes */

static void do_without_channel(struct shed_session *p)
{
    bool had_channel = p->has_channel;

    p->has_channel = false;
    settle(p);
    if (had_channel)
        tell_epoch(p);
}

static void on_client_id(void *arg, const struct shed_call_result *result)
{
    struct shed_session *p = arg;
    long long id = shed_reply_integer(result->reply);

    note_lack(p, SHED_LACK_CLIENT_ID, result->reply);
    if (id < 0) {
        do_without_channel(p); /* refused */
        return;
    }
    p->client_id = (uint64_t)id;
    ask_broadcast(p);
    subscribe(p, CHANNELS);
}

/* SUBSCRIBE is not a call, so the pipe does not notice a missing answer. */
static void on_unsubscribed(void *arg)
{
    struct shed_session *p = arg;

    shed_pipe_drop(p->pipe[PUSHES], "no answer to SUBSCRIBE");
}

static void on_pushes_open(void *arg)
{
    struct shed_session *p = arg;

    p->channels = 0;
    ask(p, PUSHES, &p->id, on_client_id, shed_args_of("CLIENT", "ID", NULL));
}

static void on_pushes_lost(void *arg, bool was_open,
                           const struct shed_error *why)
{
    struct shed_session *p = arg;

    (void)why; /* the other connection reports it */
    if (!was_open) {
        do_without_channel(p);
        return;
    }
    if (p->channels == 0) /* it never got any */
        p->has_channel = false;
    p->channels = 0;
    shed_timer_stop(p->subscribing);
    end_epoch(p);
}

static void on_invalidate(struct shed_session *p, const struct shed_reply *keys)
{
    /* nil: the whole database was flushed */
    if (shed_reply_is_nil(keys))
        tell_epoch(p);
    for (size_t i = 0; i < shed_reply_count(keys); i++) {
        size_t size;
        const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
        if (key != NULL)
            p->server->hooks.on_change(p->server, key, size);
    }
}

static void on_numsub(void *arg, const struct shed_call_result *result)
{
    note_lack(arg, SHED_LACK_NUMSUB, result->reply);
}

/* Scripts ask that to find out who is alive, and do without the answer. */
static void ask_numsub(struct shed_session *p)
{
    ask(p, COMMANDS, &p->numsub, on_numsub,
        shed_args_of("PUBSUB", "NUMSUB", p->channel, NULL));
}

static void on_subscribed(struct shed_session *p)
{
    p->has_channel = true;
    if (p->asked_epoch != p->epoch) {
        move_channel(p);
        return;
    }
    shed_timer_stop(p->subscribing);
    start_tracking(p);
    ask_numsub(p);
}

static void on_push(void *arg, struct shed_reply *reply)
{
    struct shed_session *p = arg;

    if (shed_reply_error(reply) != NULL && p->channels < CHANNELS) {
        shed_timer_stop(p->subscribing);
        note_lack(p, SHED_LACK_SUBSCRIBE, reply);
        do_without_channel(p);
    } else if (shed_reply_error(reply) != NULL) {
        note_lack(p, SHED_LACK_UNSUBSCRIBE, reply);
    } else if (shed_reply_begins(shed_reply_at(reply, 0), "subscribe")) {
        if (++p->channels == CHANNELS)
            on_subscribed(p);
    } else if (shed_reply_begins(shed_reply_at(reply, 0), "message") &&
               shed_reply_begins(shed_reply_at(reply, 1), INVALIDATE_CHANNEL)) {
        on_invalidate(p, shed_reply_at(reply, 2));
    }
}

static void on_ping(void *arg)
{
    struct shed_session *p = arg;

    shed_timer_set(p->ping, PING_MS);
    shed_links_close_idle(p->server->links);
    settle(p);
    ask_time(p);
    ask_role(p);
    shed_announcements_check(p->announcements);
    shed_pipe_check_address(p->pipe[COMMANDS]);
    if (has_process_channel(p))
        shed_pipe_ping(p->pipe[PUSHES]);
    /* without an answer it is dropped */
    if (shed_pipe_is_open(p->pipe[UNTRACKED]))
        ask(p, UNTRACKED, &p->untracked_alive, shed_call_ignore,
            shed_args_of("PING", NULL));
}

/* ------------------------------------------------------------ a failover */

static void follow_posted(struct shed_post *post)
{
    struct shed_session *p =
        shed_container_of(post, struct shed_session, follow);

    follow(p, atomic_exchange(&p->is_reached, false));
}

/* A pipe or a link has left the server, or found it silent: drop the others,
 * too. Or a link has reached it: until the session does, no lease can be taken,
 * and each miss costs a load. So its pause ends. */
static void on_move(void *arg, bool is_reached)
{
    struct shed_session *p = arg;

    if (is_reached)
        atomic_store(&p->is_reached, true);
    if (shed_reactor_is_current(p->server->reactor))
        follow(p, false);
    else
        shed_reactor_wake(p->server->reactor, &p->follow);
}

/* -------------------------------------------------------- begin and end */

static void name_channels(struct shed_session *p, const char *process)
{
    char host[PLACE_BYTES / 2] = "";

    if (gethostname(host, sizeof(host) - 1) != 0)
        (void)snprintf(host, sizeof(host), "?");
    (void)snprintf(p->channel, sizeof(p->channel), SHED_PROCESS_CHANNEL "%.*s",
                   SHED_PROCESS_BYTES, process);
    (void)snprintf(p->place, sizeof(p->place), "%s:%s:%ld", p->channel, host,
                   (long)shed_process_id());
}

static enum shed_code make_pipes(struct shed_session *p,
                                 const struct shed_client_options *options,
                                 struct shed_error *err)
{
    bool (*elsewhere)(void *, struct shed_call *, const struct shed_reply *) =
        p->server->hooks.on_elsewhere != NULL ? on_elsewhere : NULL;
    const struct shed_pipe_hooks hooks[UNTRACKED + 1] = {
        [COMMANDS] = {p, on_commands_open, on_commands_lost, NULL, elsewhere},
        [PUSHES] = {p, on_pushes_open, on_pushes_lost, on_push, NULL},
        /* the connection for commands reports what these lose, too */
        [ACKS] = {.arg = p},
        [UNTRACKED] = {.arg = p, .on_elsewhere = elsewhere}};
    bool has_pushes = options->wait != SHED_WAIT_POLL;
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < PIPES && code == SHED_OK; i++) {
        struct shed_client_options o = *options;
        if (i == PUSHES && !has_pushes)
            continue;
        if (i == ACKS)
            o.command_timeout_ms += SHED_ACKS_LATE_MS;
        code = shed_pipe_create(
            p->server->reactor, p->server->gate,
            i == COMMANDS ? SHED_HEALTH_COMMANDS : SHED_HEALTH_PUSHES, &o,
            &hooks[i < UNTRACKED ? i : UNTRACKED], &p->pipe[i], err);
    }
    return code;
}

enum shed_code shed_session_create(struct shed_server *server,
                                   const struct shed_client_options *options,
                                   const char *process,
                                   _Atomic uint32_t *epochs,
                                   struct shed_session **out,
                                   struct shed_error *err)
{
    struct shed_session *p = calloc(1, sizeof(*p));
    enum shed_code code;

    *out = NULL;
    if (p == NULL || shed_mutex_init(&p->mu, SHED_RANK_SESSION) != 0) {
        free(p);
        return shed_fail_nomem(err, "the Redis session");
    }
    shed_server_run_init(&p->server_run);
    p->server = server;
    p->standing_since_us = shed_now_us();
    p->epochs = epochs;
    number_epoch(p);
    p->follow.run = follow_posted;
    atomic_init(&p->is_settled, options->wait == SHED_WAIT_POLL);
    name_channels(p, process);
    p->command_timeout_ms = options->command_timeout_ms;
    p->prefix = options->tracking_prefix;
    p->ping = shed_timer_create(server->reactor, on_ping, p);
    p->subscribing = shed_timer_create(server->reactor, on_unsubscribed, p);
    code = p->ping != NULL && p->subscribing != NULL
               ? make_pipes(p, options, err)
               : shed_fail_nomem(err, "the Redis session");
    if (code == SHED_OK && server->address->sentinels != NULL)
        code = shed_announcements_create(server->reactor, server->address,
                                         options, p->pipe[COMMANDS],
                                         &p->announcements, err);
    if (code != SHED_OK) {
        shed_session_close(p);
        return code;
    }
    p->acks = (struct shed_acks){.pipe = p->pipe[ACKS],
                                 .timeout_ms = options->command_timeout_ms};
    shed_gate_follow(server->gate, on_move, p);
    *out = p;
    return SHED_OK;
}

void shed_session_open(struct shed_session *p)
{
    shed_timer_set(p->ping, PING_MS);
    shed_pipe_open(p->pipe[COMMANDS]);
    shed_pipe_open(p->pipe[PUSHES]);
    shed_announcements_open(p->announcements);
}

void shed_session_close(struct shed_session *p)
{
    if (p == NULL)
        return;
    shed_timer_destroy(p->ping);
    shed_timer_destroy(p->subscribing);
    for (size_t i = 0; i < PIPES; i++)
        shed_pipe_close(p->pipe[i]);
    shed_announcements_close(p->announcements);
    shed_mutex_destroy(&p->mu);
    free(p);
}

void shed_session_forget(struct shed_session *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < PIPES; i++)
        shed_pipe_forget(p->pipe[i]);
    shed_announcements_forget(p->announcements);
}

bool shed_session_is_idle(const struct shed_session *p)
{
    bool is_idle = p->waiting == NULL && !atomic_load(&p->follow.is_posted);

    for (size_t i = 0; i < PIPES; i++)
        is_idle &= shed_pipe_is_idle(p->pipe[i]);
    return is_idle;
}

struct shed_pipe *shed_session_pipe(struct shed_session *p)
{
    return p->pipe[COMMANDS];
}

/* A command goes over one that is not set up only if it is the first, so it
 * waits for none while another could answer. */
static struct shed_pipe *choose_untracked(struct shed_session *p)
{
    struct shed_pipe *best = p->pipe[UNTRACKED];

    for (size_t i = UNTRACKED + 1; i < PIPES; i++) {
        struct shed_pipe *other = p->pipe[i];
        if (shed_pipe_owed(best) <= shed_pipe_owed(other) + MANY_OWED)
            continue;
        shed_pipe_open(other);
        if (!shed_pipe_is_open(other))
            break; /* soon; a call on it would wait until it is set up */
        best = other;
    }
    return best;
}

void shed_session_call(struct shed_session *p, struct shed_call *call,
                       const struct shed_args *args, shed_pipe_fn *fn,
                       void *arg)
{
    struct shed_pipe *pipe =
        args->is_untracked ? choose_untracked(p) : p->pipe[COMMANDS];

    shed_pipe_open(pipe);
    shed_pipe_call(pipe, call, args, fn, arg);
}

void shed_session_doubt(struct shed_session *p)
{
    for (size_t i = UNTRACKED; i < PIPES; i++)
        shed_pipe_drop(p->pipe[i], "a reply that is not the entry of its key");
}

struct shed_acks *shed_session_acks(struct shed_session *p)
{
    return &p->acks;
}

bool shed_session_is_on(const struct shed_session *p)
{
    return p->is_on;
}

bool shed_session_is_broadcast(const struct shed_session *p)
{
    return p->is_broadcast && has_process_channel(p);
}

bool shed_session_is_settled(const struct shed_session *p)
{
    return atomic_load(&p->is_settled);
}

void shed_session_await(struct shed_session *p, struct shed_post *post)
{
    post->next = p->waiting;
    p->waiting = post;
}

uint32_t shed_session_epoch(const struct shed_session *p)
{
    return p->has_channel ? p->epoch : 0;
}

/* The next one begins when its channel is there: tracking goes on. */
void shed_session_end_epoch(struct shed_session *p, uint32_t epoch)
{
    if (epoch != p->epoch)
        return;
    number_epoch(p);
    move_channel(p);
}

/* Any thread. Returns: false: it is unknown. */
static bool read_run(struct shed_session *p, char run[SHED_RUN_BYTES])
{
    bool is_told;

    shed_mutex_lock(&p->mu);
    is_told = p->server_run.state == SHED_RUN_TOLD;
    memcpy(run, p->server_run.id, SHED_RUN_BYTES);
    shed_mutex_unlock(&p->mu);
    return is_told;
}

bool shed_session_is_same_server(struct shed_session *a, struct shed_session *b)
{
    char run[SHED_RUN_BYTES], other[SHED_RUN_BYTES];

    return read_run(a, run) && read_run(b, other) &&
           memcmp(run, other, sizeof(run)) == 0;
}

void shed_session_identify(struct shed_session *p,
                           struct shed_identity *identity)
{
    if (read_run(p, identity->run) && has_process_channel(p))
        memcpy(identity->process, p->channel + strlen(SHED_PROCESS_CHANNEL),
               sizeof(identity->process));
    else
        memset(identity, ' ', sizeof(*identity));
}

uint64_t shed_session_server_age_ms(const struct shed_session *p)
{
    return shed_server_run_age_ms(&p->server_run, shed_now_ms());
}

unsigned shed_session_server_changes(const struct shed_session *p)
{
    return p->server_run.changes;
}

enum shed_code shed_session_learn_age(struct shed_session *p,
                                      struct shed_error *err)
{
    enum shed_code code =
        shed_server_run_explain(&p->server_run, p->server->address->text, err);

    assert(shed_reactor_is_current(p->server->reactor));
    if (code != SHED_OK)
        ask_info(p);
    return code;
}
