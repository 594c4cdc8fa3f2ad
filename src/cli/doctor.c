/*
 * doctor: finds what is wrong with a Redis, and says what to do. It writes
 * nothing. Each check_... reads a part of what a server says, and judges it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/findings.h"
#include "cli/writes.h"
#include "client/probe.h"
#include "redis/session.h"

#define PINGS 20
#define NAME_DEFAULT "snowshed"

/* From where on a value is reported. */
#define CLOCK_OFF_MS 1000
#define SLOW_MEDIAN_MS 5.0
#define SLOW_WORST_MS 100.0
#define US_PER_MS 1000

static const char *or_default(const char *name)
{
    return name != NULL ? name : NAME_DEFAULT;
}

static bool is_replica(const struct doctor *d)
{
    return strcmp(cli_info(d->info, "role").at, "slave") == 0;
}

/* ------------------------------------------------------------------ judging */

static const struct {
    enum shed_use use;
    const char *subject;
    const char *option; /* what the lack of them means where a program has it;
                           NULL: every program needs them */
} rights[] = {
    {SHED_USE_CACHE, "cache rights", NULL},
    {SHED_USE_TAGS, "tag rights",
     "A cache with the option tags_limit will fail with SHED_EDENIED."},
    {SHED_USE_FLEET, "fleet rights",
     "A source with the option fleet_loads will load without that budget."},
    {SHED_USE_LOCK, "lock rights", NULL}};

static void judge_rights(struct doctor *d, const char *subject,
                         const char *option, const struct shed_error *found)
{
    if (is_replica(d) && option == NULL)
        cli_find(d, subject, NOTE, "They are checked on the primary only.",
                 "Give the address of the primary.", "not known");
    else if (found->code == SHED_OK)
        cli_find(d, subject, OK, "", "", "all granted");
    else if (found->code == SHED_EDENIED && option != NULL && !is_replica(d))
        cli_find(d, subject, NOTE, option,
                 "Grant these if you use that option.", "%s", found->reason);
    else if (found->code == SHED_EDENIED && option == NULL)
        cli_find(
            d, subject, PROBLEM,
            "Calls of the library will fail with SHED_EDENIED, or poll where "
            "they could be notified.",
            "Grant these (ACL SETUSER; 'man snowshed' lists them all), or "
            "check another name with --cache NAME or --lock NAME.",
            "%s", found->reason);
    else if (option == NULL)
        cli_find(d, subject, PROBLEM, "The library cannot use it.",
                 "Fix this first, then run doctor again.", "%s", found->reason);
}

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
        bool is_lock = rights[i].use == SHED_USE_LOCK;
        const char *name = or_default(is_lock ? call->lock : call->cache);
        struct shed_error found = {.code = SHED_OK};
        (void)!shed_probe(client, rights[i].use, shed_str(name),
                          shed_deadline_ms(shed_now_ms(), call->timeout_ms),
                          &found);
        judge_rights(d, rights[i].subject, rights[i].option, &found);
        d->is_denied |=
            rights[i].use == SHED_USE_CACHE && found.code == SHED_EDENIED;
    }
    shed_client_close(client);
}

static void check_writes(struct doctor *d)
{
    struct cli_writes w;
    struct cli_text key;
    unsigned i = 0;

    /* a key of the cache that the chosen server has; its name begins like that
     * of the probe of rights (client/probe.c) */
    do
        key = cli_format("%.*s:{snowshed:probe%u}", SHED_NAME_MAX_BYTES,
                         or_default(d->call->cache), i++);
    while (!cli_redis_has(d->redis, shed_str(key.at)));
    cli_writes_read(d->redis, shed_str(key.at), &w);
    if (w.error[0] != '\0' || !d->is_denied)
        cli_find(d, "writes", w.error[0] != '\0' ? PROBLEM : OK, w.means,
                 w.advice, "%s", w.error[0] != '\0' ? w.error : "taken");
}

/* What the library does without, as it does it itself. */
static void check_commands(struct doctor *d)
{
    static const struct {
        enum shed_lack lack;
        const char *format; /* of the command, with a channel */
    } commands[] = {
        {SHED_LACK_TRACKING, "CLIENT TRACKING ON"},
        {SHED_LACK_ROLE, "ROLE"},
        {SHED_LACK_CLIENT_ID, "CLIENT ID"},
        {SHED_LACK_NUMSUB, "PUBSUB NUMSUB %s"},
        {SHED_LACK_SUBSCRIBE, "SUBSCRIBE %s"},
        {SHED_LACK_UNSUBSCRIBE, "UNSUBSCRIBE %s"},
    };
    enum { COUNT = sizeof(commands) / sizeof(*commands) };
    unsigned missing = 0;

    for (size_t i = 0; i < COUNT; i++) {
        const struct shed_lack_row *row = &shed_lacks[commands[i].lack];
        struct shed_reply *reply =
            cli_redis_ask(d->redis, commands[i].format, SHED_PROCESS_CHANNEL);
        const char *error = shed_reply_error(reply);
        if (error != NULL) {
            missing++;
            cli_find(d, "commands", WARNING, row->cost,
                     "Grant it to the user; a proxy must pass it.", "no %s: %s",
                     row->command, error);
        }
        shed_reply_free(reply);
    }
    if (missing == 0)
        cli_find(d, "commands", OK, "", "", "all there; keys tracked now: %lld",
                 cli_info_number(d->info, "tracking_total_keys"));
}

/* The server's clock is compared with the middle of the round trip. */
static void check_clock(struct doctor *d)
{
    uint64_t before_ms = shed_wall_ms();
    struct shed_reply *time = cli_redis_ask(d->redis, "TIME");
    uint64_t middle_ms = before_ms + (shed_wall_ms() - before_ms) / 2;
    long long off = (long long)shed_reply_time_ms(time) - (long long)middle_ms;
    bool is_known = shed_reply_error(time) == NULL;

    shed_reply_free(time);
    cli_out_maybe(d->node, "clock_off_ms", is_known, off);
    if (!is_known)
        cli_find(d, "clock", PROBLEM,
                 "The library needs it for leases and ages.", "Grant +time.",
                 "not known: TIME is refused");
    else
        cli_find(d, "clock", llabs(off) > CLOCK_OFF_MS ? WARNING : OK,
                 "Leases and ages use the server's clock, and are right; "
                 "TIMESTAMP locks and the times in logs are not.",
                 "Let both hosts use NTP.", "the server's is %lld ms %s ours",
                 llabs(off), off > 0 ? "ahead of" : "behind");
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
        struct shed_reply *reply = cli_redis_ask(d->redis, "PING");
        const char *error = shed_reply_error(reply);
        if (error != NULL) {
            cli_find(
                d, "latency", PROBLEM,
                "The library asks by PING whether a connection is alive.",
                "Find out what refuses it; if a right is missing, grant +ping.",
                "not known: %s", error);
            cli_out_text(d->node, "latency", NULL);
            shed_reply_free(reply);
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

/* What the chosen server says. */
static void check_server(struct doctor *d)
{
    bool is_node = cli_redis_is_cluster(d->redis);

    shed_reply_free(d->info);
    d->info = cli_redis_ask(d->redis, "INFO");
    if (shed_reply_begins(d->info, "NOAUTH")) /* all else follows from that */
        (void)cli_redis_check(d->redis, d->info, "INFO");
    d->has_info = shed_reply_error(d->info) == NULL;
    d->is_brief = is_node;
    cli_find_values(d);
    cli_find_replicas(d);
    if (!is_node)
        check_rights(d);
    check_writes(d);
    check_commands(d);
    check_clock(d);
    check_latency(d);
    d->is_brief = false;
}

/* The primaries of a cluster, or the one server. */
static void check_servers(struct doctor *d)
{
    json_t *nodes = NULL;

    if (cli_redis_is_cluster(d->redis)) {
        nodes = cli_out_list(d->out, "nodes");
        cli_find_cluster(d);
        check_rights(d);
    }
    d->node = d->out;
    for (size_t i = 0; cli_redis_next(d->redis, &i); i++) {
        if (cli_redis_is_cluster(d->redis))
            d->node = cli_out_item(nodes);
        d->server = cli_redis_server(d->redis);
        if (cli_find_reached(d))
            check_server(d);
    }
}

int cli_doctor(struct cli_call *call)
{
    struct doctor d = {.call = call, .out = call->out};

    if (call->count > 0)
        call->redis_uri = call->words[0];
    d.findings = cli_out_list(d.out, "findings");
    if (cli_find_sentinels(&d)) {
        cli_redis_open(call);
        d.redis = call->redis;
        cli_out_text(d.out, "server", cli_redis_name(d.redis));
        check_servers(&d);
    }
    shed_reply_free(d.info);
    if (!call->is_json) /* it is told already, as it was found */
        (void)json_object_clear(call->out);
    return d.worst >= WARNING ? CLI_NO : CLI_YES;
}
