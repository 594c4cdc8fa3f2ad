/*
 * doctor: finds what is wrong with a Redis, and says what to do. It writes
 * nothing. Each check_... reads a part of what a server says, and judges it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/findings.h"
#include "client/probe.h"
#include "known/tag_log.h"
#include "redis/session.h"

#define PINGS 20

/* From where on a value is reported. */
#define CLOCK_OFF_MS 1000
#define SLOW_MEDIAN_MS 5.0
#define SLOW_WORST_MS 100.0
#define US_PER_MS 1000
#define BEHIND_BYTES (1 << 20)
#define SILENT_S 10

/* ------------------------------------------------------------------ judging */

#define DENIED                                                                 \
    "Without a right, calls of the library fail with SHED_EDENIED, or poll "   \
    "where they could be notified."
#define GRANT                                                                  \
    "Grant what is missing (ACL SETUSER; 'man snowshed' lists all rights), "   \
    "or check another name with --cache NAME or --lock NAME."
#define GRANT_FOR_OPTION "Grant these if you use that option."

static const struct {
    const char *use, *before, *behind; /* of the name in its first key */
    enum level level;                  /* if they are missing */
    const char *subject, *means, *advice;
} rights[] = {
    {"cache", "", SHED_PROBE_SUFFIX, PROBLEM, "cache rights", DENIED, GRANT},
    {"tags", "", SHED_TAG_LOG_SUFFIX, NOTE, "tag rights",
     "A cache with the option tags_limit will fail with SHED_EDENIED.",
     GRANT_FOR_OPTION},
    {"fleet", "", ":loads", NOTE, "fleet rights",
     "A source with the option fleet_loads will load without that budget.",
     GRANT_FOR_OPTION},
    {"lock", "lock:{", "}", PROBLEM, "lock rights", DENIED, GRANT}};

static void check_rights(struct doctor *d)
{
    const struct cli_call *call = d->call;
    const struct shed_client_options options = cli_client_options(call);
    struct shed_client *client = NULL;
    struct shed_error err;

    if (shed_client_open(d->call->redis_uri, &options, &client, &err) !=
        SHED_OK)
        cli_fail_error(call, &err);
    for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++) {
        bool is_lock = strcmp(rights[i].use, "lock") == 0;
        struct cli_text key =
            cli_format("%s%s%s", rights[i].before,
                       is_lock ? call->lock : call->cache, rights[i].behind);
        enum shed_code code = shed_probe(
            client, rights[i].use, shed_str(key.at), shed_str(key.at),
            shed_deadline_ms(shed_now_ms(), call->timeout_ms), &err);
        if (code == SHED_OK || code == SHED_EDENIED)
            cli_find(d, rights[i].subject,
                     code == SHED_OK ? OK : rights[i].level, rights[i].means,
                     rights[i].advice, "%s",
                     code == SHED_OK ? "all granted" : err.reason);
        else
            cli_find(
                d, rights[i].subject, PROBLEM, "The library cannot use it.",
                "Fix this first, then run doctor again.", "%s", err.reason);
        d->is_denied |=
            strcmp(rights[i].use, "cache") == 0 && code == SHED_EDENIED;
    }
    shed_client_close(client);
}

/* Why Redis refuses writes. A server that is full, could not save its data or
 * lacks replicas still answers reads as if nothing were wrong. */
static const struct {
    const char *word, *means, *advice;
} refusals[] = {
    {"OOM",
     "It is full: what is loaded is not stored, so every miss costs a query, "
     "and no lock is granted.",
     "Raise maxmemory, or make room; 'snowshed scan' shows what is large."},
    {"MISCONF",
     "It could not save its data: entries are not stored, locks not granted, "
     "and invalidations fail.",
     "See its log: most often the disk is full. Then run BGSAVE."},
    {"NOREPLICAS",
     "Fewer replicas are connected than min-replicas-to-write requires: "
     "entries are not stored, locks not granted, and invalidations fail.",
     "Bring the replicas back, or lower min-replicas-to-write."},
    {"CLUSTERDOWN",
     "Some slots have no primary, and with cluster-require-full-coverage it "
     "refuses all keys then.",
     "Bring the missing nodes back, or let replicas take over (CLUSTER "
     "FAILOVER TAKEOVER)."},
    {"READONLY", "It is a replica: snowshed does not use it.",
     "Give the address of the primary."},
    {"", "Entries are not stored, locks not granted, and invalidations fail.",
     "See the reason, and Redis's log."}};

static void find_refusal(struct doctor *d, const char *error)
{
    size_t i = 0;

    while (!cli_begins(error, refusals[i].word))
        i++;
    cli_find(d, "writes", PROBLEM, refusals[i].means, refusals[i].advice, "%s",
             error);
}

/* SETRANGE of an empty string is checked like any other write, but changes no
 * key, and creates none. */
static void check_writes(struct doctor *d)
{
    struct shed_redirect to;
    struct shed_reply *reply;
    struct shed_error err;
    struct cli_text key;
    unsigned i = 0;

    /* a key of the cache that the chosen server has; its name begins like that
     * of the probe of rights (client/probe.c) */
    do
        key = cli_format("%.*s:{snowshed:probe%u}", SHED_NAME_MAX_BYTES,
                         d->call->cache, i++);
    while (!cli_redis_has(d->redis, shed_str(key.at)));
    reply = cli_server_ask(cli_redis_server(d->redis), &err, NULL,
                           "SETRANGE %s 0 %s", key.at, "");
    if (reply == NULL && err.code != SHED_ETIMEDOUT)
        cli_fail_error(d->call, &err);
    if (reply == NULL)
        cli_find(d, "writes", PROBLEM,
                 "Writes wait, though reads are answered: it is paused (CLIENT "
                 "PAUSE, a failover), or busy.",
                 "Run CLIENT UNPAUSE, or wait for the failover to end.",
                 "no answer within %" PRIu64 " ms", d->call->timeout_ms);
    else if (shed_reply_error(reply) != NULL && !cli_redis_is_denied(reply) &&
             !shed_reply_redirect(reply, "", &to))
        find_refusal(d, shed_reply_error(reply));
    else if (!d->is_denied)
        cli_find(d, "writes", OK, "", "", "taken");
    shed_reply_free(reply);
}

/* What the library does without, as it does it itself. */
static void check_commands(struct doctor *d)
{
    static const struct {
        enum shed_lack lack;
        const char *command;
    } commands[] = {
        {SHED_LACK_INFO, "INFO"},
        {SHED_LACK_TRACKING, "CLIENT TRACKING ON"},
        {SHED_LACK_ROLE, "ROLE"},
        {SHED_LACK_CLIENT_ID, "CLIENT ID"},
        {SHED_LACK_NUMSUB, "PUBSUB NUMSUB " SHED_PROCESS_CHANNEL},
        {SHED_LACK_SUBSCRIBE, "SUBSCRIBE " SHED_PROCESS_CHANNEL},
        {SHED_LACK_UNSUBSCRIBE, "UNSUBSCRIBE " SHED_PROCESS_CHANNEL},
    };
    bool is_complete = true;

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        struct shed_reply *reply = cli_find_answer(
            d, "commands", WARNING, shed_lacks[commands[i].lack].cost,
            commands[i].command);
        is_complete &= reply != NULL;
        shed_reply_free(reply);
    }
    if (is_complete)
        cli_find(d, "commands", OK, "", "", "all there; keys tracked now: %lld",
                 cli_info_number(d->info, "tracking_total_keys"));
}

/* The server's clock is compared with the middle of the round trip. */
static void check_clock(struct doctor *d)
{
    uint64_t before_ms = shed_wall_ms();
    struct shed_reply *time =
        cli_find_answer(d, "clock", PROBLEM,
                        "The library needs it for leases and ages.", "TIME");
    uint64_t middle_ms = before_ms + (shed_wall_ms() - before_ms) / 2;
    long long off = (long long)shed_reply_time_ms(time) - (long long)middle_ms;

    cli_out_maybe(d->node, "clock_off_ms", time != NULL, off);
    if (time != NULL)
        cli_find(d, "clock", llabs(off) > CLOCK_OFF_MS ? WARNING : OK,
                 "Leases and ages use the server's clock, and are right; "
                 "TIMESTAMP locks and the times in logs are not.",
                 "Let both hosts use NTP.", "the server's is %lld ms %s ours",
                 llabs(off), off > 0 ? "ahead of" : "behind");
    shed_reply_free(time);
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void check_latency(struct doctor *d)
{
    double ms[PINGS], median_ms, slowest_ms;
    bool is_slow;
    json_t *latency;

    for (size_t i = 0; i < PINGS; i++) {
        uint64_t begin_us = shed_now_us();
        struct shed_reply *reply = cli_find_answer(
            d, "latency", PROBLEM,
            "The library asks by PING whether a connection is alive.", "PING");
        if (reply == NULL) {
            cli_out_text(d->node, "latency", NULL);
            return;
        }
        shed_reply_free(reply);
        ms[i] = (double)(shed_now_us() - begin_us) / US_PER_MS;
    }
    qsort(ms, PINGS, sizeof(*ms), compare);
    median_ms = ms[PINGS / 2];
    slowest_ms = ms[PINGS - 1];
    latency = cli_out_object(d->node, "latency");
    cli_out_number(latency, "count", PINGS);
    cli_out_set(latency, "fastest_ms", json_real(ms[0]));
    cli_out_set(latency, "median_ms", json_real(median_ms));
    cli_out_set(latency, "slowest_ms", json_real(slowest_ms));
    is_slow = median_ms > SLOW_MEDIAN_MS || slowest_ms > SLOW_WORST_MS;
    cli_find(d, "latency", is_slow ? WARNING : OK,
             "A hit costs that much, and a call with a short deadline fails.",
             "Move closer; look for slow commands (SLOWLOG GET), swapping, or "
             "a busy host.",
             "median %.2f ms, slowest %.2f ms", median_ms, slowest_ms);
}

/* ---------------------------------------------------------------- replicas */

static struct cli_text part_of(const char *line, const char *name)
{
    return cli_field(line, name, '=', ",");
}

/* ip=...,port=...,state=...,offset=...,lag=... */
static void judge_replica(struct doctor *d, const char *line, json_t *out)
{
    long long behind = cli_info_number(d->info, "master_repl_offset") -
                       strtoll(part_of(line, "offset").at, NULL, 10);
    long long lag_s = strtoll(part_of(line, "lag").at, NULL, 10);
    struct cli_text host = part_of(line, "ip"), port = part_of(line, "port");
    struct cli_text state = part_of(line, "state");
    bool is_online = strcmp(state.at, "online") == 0;
    bool is_well = is_online && behind <= BEHIND_BYTES && lag_s <= SILENT_S;

    cli_out_text(out, "host", host.at);
    cli_out_text(out, "port", port.at);
    cli_out_text(out, "state", state.at);
    cli_out_maybe(out, "behind_bytes", is_online, behind);
    cli_out_maybe(out, "silent_s", is_online, lag_s);
    cli_find(d, "replica", is_well ? OK : WARNING,
             "If it takes its primary's place, what it lacks is lost: leases, "
             "locks, and invalidations whose process has died, too.",
             "See the network, and whether its host is busy.",
             "%s:%s of %s, %s, %lld bytes behind, last heard %lld s ago",
             host.at, port.at, d->server, state.at, is_online ? behind : -1,
             lag_s);
}

static void check_replicas(struct doctor *d)
{
    json_t *list = cli_out_list(d->node, "replicas");
    struct cli_text line = cli_info(d->info, "slave0");

    for (unsigned i = 1; line.at[0] != '\0'; i++) {
        judge_replica(d, line.at, cli_out_item(list));
        line = cli_info(d->info, cli_format("slave%u", i).at);
    }
    if (cli_redis_is_cluster(d->redis) &&
        strcmp(cli_info(d->info, "connected_slaves").at, "0") == 0)
        cli_find(d, "replica", NOTE,
                 "When it dies, the keys of its slots are refused until it is "
                 "back.",
                 "Give each primary a replica.", "%s: it has none", d->server);
}

/* ----------------------------------------------------------------- servers */

/* What the chosen server says. */
static void check_server(struct doctor *d)
{
    bool is_node = cli_redis_is_cluster(d->redis);

    shed_reply_free(d->info);
    d->info = cli_redis_ask(d->redis, "INFO");
    if (shed_reply_begins(d->info, "NOAUTH")) /* all else follows from that */
        (void)cli_redis_check(d->redis, d->info, "INFO");
    check_replicas(d);
    d->is_brief = is_node;
    cli_find_values(d);
    if (!is_node && strcmp(cli_info(d->info, "role").at, "slave") != 0)
        check_rights(d); /* those on a replica tell nothing of its primary */
    check_writes(d);
    check_commands(d);
    check_clock(d);
    check_latency(d);
    d->is_brief = false;
}

/* Look at a primary of a cluster, if it can be reached. */
static void check_node(struct doctor *d)
{
    size_t slots = cli_redis_slots(d->redis);
    struct shed_error err = {.reason = ""};
    bool is_reached = cli_server_open(cli_redis_server(d->redis), &err);

    cli_out_text(d->node, "server", d->server);
    cli_out_number(d->node, "slots", slots);
    cli_out_flag(d->node, "is_reached", is_reached);
    cli_find(d, "node", is_reached ? OK : PROBLEM,
             "Keys of its slots are neither read nor written.",
             "Start it, or let a replica take over. Clients must reach it "
             "under this address, which it announces (cluster-announce-ip).",
             "%s: %zu slots%s%s", d->server, slots, is_reached ? "" : ": ",
             is_reached ? "" : err.reason);
    if (is_reached)
        check_server(d);
}

static void check_cluster(struct doctor *d)
{
    json_t *nodes = cli_out_list(d->node, "nodes");
    size_t primaries = 0, slots = 0;

    for (size_t i = 0; cli_redis_next(d->redis, &i); i++) {
        primaries++;
        slots += cli_redis_slots(d->redis);
    }
    cli_find(d, "cluster", slots == SHED_HASH_SLOTS ? OK : PROBLEM,
             "Keys of the other slots are neither read nor written.",
             "Bring the missing nodes back; redis-cli --cluster fix.",
             "%zu primaries have %zu of %d slots", primaries, slots,
             SHED_HASH_SLOTS);
    check_rights(d);
    for (size_t i = 0; cli_redis_next(d->redis, &i); i++) {
        d->node = cli_out_item(nodes);
        d->server = cli_redis_server(d->redis)->address->text;
        check_node(d);
    }
}

int cli_doctor(struct cli_call *call)
{
    struct doctor d = {.call = call, .node = call->out, .told = cli_out_open()};

    if (call->count > 0)
        call->redis_uri = call->words[0];
    d.findings = cli_out_list(call->out, "findings");
    if (cli_find_sentinels(&d)) {
        cli_redis_open(call);
        d.redis = call->redis;
        cli_out_text(call->out, "server", cli_redis_name(d.redis));
        if (cli_redis_is_cluster(d.redis)) {
            check_cluster(&d);
        } else {
            d.server = cli_redis_server(d.redis)->address->text;
            check_server(&d);
        }
    }
    shed_reply_free(d.info);
    json_decref(d.told);
    if (!call->is_json) /* it is told already, as it was found */
        (void)json_object_clear(call->out);
    return d.worst >= WARNING ? CLI_NO : CLI_YES;
}
