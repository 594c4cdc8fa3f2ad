/*
 * doctor: finds what is wrong with a Redis, and says what to do. It writes
 * nothing.
 *
 * facts_read gathers what the server says. Each check_... judges a part of
 * that, and does not talk to Redis.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/latency.h"
#include "cli/text.h"
#include "cli/writes.h"
#include "client/probe.h"

#define PINGS 20
#define FINDINGS_MAX 32
#define NAME_DEFAULT "snowshed"

/* From where on a value is reported. */
#define CLOCK_OFF_MS 1000
#define SLOW_MEDIAN_MS 5.0
#define SLOW_WORST_MS 100.0
#define FULL_PERCENT 80
#define FORK_US 200000
#define US_PER_MS 1000

enum level { OK, NOTE, WARNING, PROBLEM };

struct finding {
    const char *subject;
    enum level level;
    char is[SHED_REASON_BYTES + 64];
    const char *means; /* "" if all is well */
    const char *advice;
};

struct facts {
    struct shed_reply *info;
    bool has_info;
    char ping[128]; /* why PING is refused, or "" */
    bool has_clock; /* false: TIME is refused */
    struct cli_latency latency;
    long long clock_off_ms; /* by how much the server's clock is ahead */
    bool saves_nothing;     /* false: it saves, or we cannot find out */
    struct cli_writes writes;
    char tracking[128]; /* why CLIENT TRACKING is refused, or "" */
    struct shed_error cache_rights, tag_rights, fleet_rights, lock_rights;
};

struct doctor {
    const struct cli_call *call;
    struct cli_redis *redis;
    struct facts facts;
    struct finding findings[FINDINGS_MAX];
    size_t count;
};

__attribute__((format(printf, 6, 7))) static void
find(struct doctor *d, const char *subject, enum level level, const char *means,
     const char *advice, const char *format, ...)
{
    struct finding *f = &d->findings[d->count];
    va_list list;

    if (d->count == FINDINGS_MAX)
        return;
    d->count++;
    *f = (struct finding){subject, level, "", means, advice};
    va_start(list, format);
    (void)vsnprintf(f->is, sizeof(f->is), format, list);
    va_end(list);
}

/* -------------------------------------------------------------------- facts */

static const char *uri_of(const struct cli_call *call)
{
    return call->count > 0 ? call->words[0] : call->redis;
}

/* Compare the server's clock with the middle of the round trip. */
static void read_clock(struct doctor *d)
{
    uint64_t before_ms = shed_wall_ms(), after_ms;
    struct shed_reply *time = cli_redis_ask(d->redis, "TIME");

    after_ms = shed_wall_ms();
    d->facts.has_clock = shed_reply_error(time) == NULL;
    d->facts.clock_off_ms = (long long)cli_redis_clock_ms(time) -
                            (long long)(before_ms + (after_ms - before_ms) / 2);
    shed_reply_free(time);
}

static void read_latency(struct doctor *d)
{
    struct shed_reply *reply = cli_redis_ask(d->redis, "PING");
    const char *error = shed_reply_error(reply);

    if (error != NULL)
        (void)snprintf(d->facts.ping, sizeof(d->facts.ping), "%s", error);
    else
        cli_latency_measure(d->redis, PINGS, &d->facts.latency);
    shed_reply_free(reply);
}

/* INFO says whether there is an append-only file, but not whether snapshots are
 * made. */
static void read_saves(struct doctor *d)
{
    struct shed_reply *reply = cli_redis_ask(d->redis, "CONFIG GET save");
    size_t size = 1;

    d->facts.saves_nothing =
        shed_reply_bytes(shed_reply_at(reply, 1), &size) != NULL && size == 0;
    shed_reply_free(reply);
}

static const char *cache_of(const struct cli_call *call)
{
    return call->cache != NULL ? call->cache : NAME_DEFAULT;
}

static void read_tracking(struct doctor *d)
{
    struct shed_reply *reply = cli_redis_ask(d->redis, "CLIENT TRACKING ON");
    const char *error = shed_reply_error(reply);

    if (error != NULL)
        (void)snprintf(d->facts.tracking, sizeof(d->facts.tracking), "%s",
                       error);
    else
        shed_reply_free(cli_redis_ask(d->redis, "CLIENT TRACKING OFF"));
    shed_reply_free(reply);
}

static void probe(struct shed_client *client, const struct cli_call *call,
                  enum shed_use use, const char *name, struct shed_error *out)
{
    (void)!shed_probe(client, use, shed_str(name),
                      shed_deadline_ms(shed_now_ms(), call->timeout_ms), out);
}

static void read_rights(struct doctor *d)
{
    const struct cli_call *call = d->call;
    struct facts *f = &d->facts;
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_error err;

    options.connect_timeout_ms = options.command_timeout_ms = call->timeout_ms;
    if (shed_client_open(uri_of(call), &options, &client, &err) != SHED_OK)
        cli_fail(call, CLI_FAILED, "%s", err.reason);
    probe(client, call, SHED_USE_CACHE, cache_of(call), &f->cache_rights);
    probe(client, call, SHED_USE_TAGS, cache_of(call), &f->tag_rights);
    probe(client, call, SHED_USE_FLEET, cache_of(call), &f->fleet_rights);
    probe(client, call, SHED_USE_LOCK,
          call->lock != NULL ? call->lock : NAME_DEFAULT, &f->lock_rights);
    shed_client_close(client);
}

static void read_facts(struct doctor *d)
{
    struct facts *f = &d->facts;
    size_t size = 0;

    f->info = cli_redis_ask(d->redis, "INFO");
    if (shed_reply_begins(f->info, "NOAUTH")) /* all else follows from that */
        (void)cli_redis_check(d->redis, f->info, "INFO");
    f->has_info = shed_reply_bytes(f->info, &size) != NULL;
    read_latency(d);
    read_clock(d);
    read_saves(d);
    read_tracking(d);
    read_rights(d);
    cli_writes_read(d->redis, d->call, cache_of(d->call), &f->writes);
}

static bool is(const struct facts *f, const char *name, const char *value)
{
    char text[CLI_INFO_BYTES];

    return strcmp(cli_info_field(f->info, name, text), value) == 0;
}

/* ------------------------------------------------------------------ judging */

static void check_version(struct doctor *d)
{
    char text[CLI_INFO_BYTES];
    long major =
        strtol(cli_info_field(d->facts.info, "redis_version", text), NULL, 10);

    if (!d->facts.has_info)
        find(d, "version", WARNING, "INFO is refused, so little is known.",
             "Grant +info, at least for this call.", "not known");
    else if (major < 6)
        find(d, "version", PROBLEM,
             "It cannot announce changes: waiters poll, and a dead loader is "
             "found at the end of its lease.",
             "Use Redis 6.0 or later, or Valkey.", "%s", text);
    else if (major < 7)
        find(d, "version", NOTE,
             "It works, but it cannot tell beforehand which rights are "
             "missing.",
             "Redis 7 or later names them.", "%s", text);
    else
        find(d, "version", OK, "", "", "%s", text);
}

static void check_role(struct doctor *d)
{
    char text[CLI_INFO_BYTES];

    if (is(&d->facts, "role", "slave"))
        find(
            d, "role", PROBLEM,
            "snowshed does not use a replica: it looks up the host name again.",
            "Give the address of the primary.", "replica");
    else if (d->facts.has_info)
        find(d, "role", OK, "", "", "%s with %lld replicas",
             cli_info_field(d->facts.info, "role", text),
             cli_info_number(d->facts.info, "connected_slaves"));
    if (is(&d->facts, "cluster_enabled", "1"))
        find(d, "cluster", PROBLEM,
             "snowshed speaks to one server: keys of other nodes are refused.",
             "Use a Redis that is not a cluster.", "on");
    if (is(&d->facts, "loading", "1"))
        find(d, "loading", PROBLEM,
             "It refuses commands until it has its data.", "Wait.",
             "its data set is being loaded");
}

static void check_rights(struct doctor *d, const char *subject,
                         const struct shed_error *rights, const char *option)
{
    if (is(&d->facts, "role", "slave"))
        find(d, subject, NOTE, "They are checked on the primary only.",
             "Give the address of the primary.", "not known");
    else if (rights->code == SHED_OK)
        find(d, subject, OK, "", "", "all granted");
    else if (rights->code == SHED_EDENIED)
        find(d, subject, PROBLEM,
             "Calls of the library will fail with SHED_EDENIED, or poll where "
             "they could be notified.",
             option, "%s", rights->reason);
    else
        find(d, subject, PROBLEM, "The library cannot use it.",
             "Fix this first, then run doctor again.", "%s", rights->reason);
}

/* Those of an option: whether the program uses it is not known. */
static void check_option_rights(struct doctor *d, const char *subject,
                                const struct shed_error *rights,
                                const char *means)
{
    if (rights->code == SHED_OK)
        find(d, subject, OK, "", "", "all there");
    else if (rights->code == SHED_EDENIED && !is(&d->facts, "role", "slave"))
        find(d, subject, NOTE, means, "Grant these if you use that option.",
             "%s", rights->reason);
}

static void check_writes(struct doctor *d)
{
    const struct cli_writes *w = &d->facts.writes;

    if (w->error[0] != '\0')
        find(d, "writes", PROBLEM, w->means, w->advice, "%s", w->error);
    else if (d->facts.cache_rights.code != SHED_EDENIED)
        find(d, "writes", OK, "", "", "taken");
}

static void check_tracking(struct doctor *d)
{
    long long keys = cli_info_number(d->facts.info, "tracking_total_keys");

    if (d->facts.tracking[0] != '\0')
        find(d, "tracking", WARNING,
             "Waiters are not notified of changes: they poll, up to 150 ms "
             "late.",
             "Grant +client|tracking and +subscribe to "
             "&__redis__:invalidate; a proxy must pass them.",
             "%s", d->facts.tracking);
    else
        find(d, "tracking", OK, "", "", "granted; keys tracked now: %lld",
             keys);
}

static void check_eviction(struct doctor *d)
{
    long long most = cli_info_number(d->facts.info, "maxmemory");
    long long used = cli_info_number(d->facts.info, "used_memory");
    long long percent = most > 0 ? used * 100 / most : 0;
    char policy[CLI_INFO_BYTES], size[CLI_TEXT_BYTES];

    (void)cli_info_field(d->facts.info, "maxmemory_policy", policy);
    if (!d->facts.has_info)
        return;
    if (most == 0)
        find(d, "memory", NOTE,
             "It has no limit: when the host runs out of memory, Redis is "
             "killed, and everything is lost at once.",
             "Set maxmemory.", "%s used, no limit",
             cli_size(size, (uint64_t)used));
    else if (percent >= FULL_PERCENT && strcmp(policy, "noeviction") != 0)
        find(d, "memory", NOTE,
             "It makes room by evicting entries, which costs loads.",
             "If the hit ratio suffers, raise maxmemory.",
             "%lld %% of maxmemory used", percent);
    else if (percent >= FULL_PERCENT)
        find(d, "memory", WARNING,
             "When it is full, nothing more is stored, and no lock is granted.",
             "Raise maxmemory, or shorten ttls; 'snowshed scan' shows what is "
             "large.",
             "%lld %% of maxmemory used", percent);
    else
        find(d, "memory", OK, "", "", "%lld %% of maxmemory used", percent);
    if (strcmp(policy, "noeviction") == 0)
        find(d, "eviction", OK, "", "", "%s", policy);
    else
        find(d, "eviction", WARNING,
             "It may evict locks and leases: two holders, or second loads.",
             "Locks need noeviction (or a Redis of their own), or the fencing "
             "guard. For a cache alone it is fine.",
             "%s, %lld keys evicted so far", policy,
             cli_info_number(d->facts.info, "evicted_keys"));
}

static void check_persistence(struct doctor *d)
{
    long long fork_us = cli_info_number(d->facts.info, "latest_fork_usec");
    bool has_aof = is(&d->facts, "aof_enabled", "1");

    if (!d->facts.has_info)
        return;
    if (is(&d->facts, "rdb_last_bgsave_status", "err") ||
        (has_aof && is(&d->facts, "aof_last_write_status", "err")))
        find(d, "persistence", PROBLEM,
             "Redis refuses writes until a save succeeds, unless "
             "stop-writes-on-bgsave-error is no.",
             "See its log: most often the disk is full. Then run BGSAVE.",
             "the last save failed");
    else if (fork_us > FORK_US)
        find(d, "persistence", WARNING,
             "All calls wait that long whenever it saves.",
             "Save on a replica, or use less memory per server; look at "
             "transparent huge pages.",
             "the last save stopped it for %lld ms", fork_us / US_PER_MS);
    else if (!has_aof && d->facts.saves_nothing)
        find(d, "persistence", NOTE,
             "After a restart Redis is empty: locks are gone, and the cache is "
             "filled again by a bounded number of loads.",
             "Where a lock guards data, use the fencing guard: its numbers "
             "grow even then. appendonly yes loses less.",
             "none: no snapshots, no append-only file");
    else if (!has_aof)
        find(d, "persistence", NOTE,
             "After a crash, what was written since the last save is gone: "
             "locks and invalidations, too.",
             "Where a lock guards data, use the fencing guard: its numbers "
             "grow even then. appendonly yes loses less.",
             "snapshots at most");
    else
        find(d, "persistence", OK, "", "", "append-only file");
}

static void check_clock(struct doctor *d)
{
    long long off = d->facts.clock_off_ms;

    if (!d->facts.has_clock)
        find(d, "clock", PROBLEM, "The library needs it for leases and ages.",
             "Grant +time.", "not known: TIME is refused");
    else if (llabs(off) > CLOCK_OFF_MS)
        find(d, "clock", WARNING,
             "Leases and ages use the server's clock, and are right; "
             "TIMESTAMP locks and the times in logs are not.",
             "Let both hosts use NTP.", "the server's is %lld ms %s ours",
             llabs(off), off > 0 ? "ahead of" : "behind");
    else
        find(d, "clock", OK, "", "", "%lld ms apart", llabs(off));
}

static void check_latency(struct doctor *d)
{
    const struct cli_latency *l = &d->facts.latency;

    if (d->facts.ping[0] != '\0')
        find(d, "latency", PROBLEM,
             "The library asks by PING whether a connection is alive.",
             "Find out what refuses it; if a right is missing, grant +ping.",
             "not known: %s", d->facts.ping);
    else if (l->median_ms > SLOW_MEDIAN_MS || l->slowest_ms > SLOW_WORST_MS)
        find(d, "latency", WARNING,
             "A hit costs that much, and a call with a short deadline fails.",
             "Move closer; look for slow commands (SLOWLOG GET), swapping, or "
             "a busy host.",
             "median %.2f ms, slowest %.2f ms", l->median_ms, l->slowest_ms);
    else
        find(d, "latency", OK, "", "", "median %.2f ms, slowest %.2f ms",
             l->median_ms, l->slowest_ms);
}

static void check_connections(struct doctor *d)
{
    long long now = cli_info_number(d->facts.info, "connected_clients");
    long long most = cli_info_number(d->facts.info, "maxclients");
    long long refused = cli_info_number(d->facts.info, "rejected_connections");

    if (!d->facts.has_info)
        return;
    if (most > 0 && now * 100 / most >= FULL_PERCENT)
        find(d, "connections", WARNING,
             "Beyond the limit new ones are refused, and processes start "
             "without a cache.",
             "Raise maxclients (and the limit of open files); a snowshed "
             "client has 2 and its links.",
             "%lld of %lld", now, most);
    else if (refused > 0)
        find(d, "connections", WARNING,
             "Connections have been refused since Redis started.",
             "Raise maxclients (and the limit of open files).",
             "%lld, and %lld were refused", now, refused);
    else
        find(d, "connections", OK, "", "", "%lld of %lld", now, most);
}

static void judge(struct doctor *d)
{
    check_version(d);
    check_role(d);
    check_rights(
        d, "cache rights", &d->facts.cache_rights,
        "Grant these (ACL SETUSER; 'man snowshed' lists them all), or check "
        "another name with --cache NAME.");
    check_option_rights(
        d, "tag rights", &d->facts.tag_rights,
        "A cache with the option tags_limit will fail with SHED_EDENIED.");
    check_option_rights(
        d, "fleet rights", &d->facts.fleet_rights,
        "A source with the option fleet_loads will load without that budget.");
    check_rights(
        d, "lock rights", &d->facts.lock_rights,
        "Grant these (ACL SETUSER; 'man snowshed' lists them all), or check "
        "another name with --lock NAME.");
    check_writes(d);
    check_tracking(d);
    check_eviction(d);
    check_persistence(d);
    check_clock(d);
    check_latency(d);
    check_connections(d);
}

/* ----------------------------------------------------------------- showing */

static const char *const level_names[] = {
    [OK] = "ok", [NOTE] = "note", [WARNING] = "warning", [PROBLEM] = "problem"};

enum { MEANS_COLUMN = 9, TO_DO_COLUMN = 16, IS_COLUMN = 23 };

static void print_findings(const struct doctor *d)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct finding *f = &d->findings[i];
        char *is = cli_escape(f->is, strlen(f->is));
        printf("%-8s %-13s ", level_names[f->level], f->subject);
        cli_print_wrapped(is, IS_COLUMN, IS_COLUMN);
        free(is);
        if (f->level == OK)
            continue;
        printf("%*s", MEANS_COLUMN, "");
        cli_print_wrapped(f->means, MEANS_COLUMN, MEANS_COLUMN);
        printf("%*sTo do: ", MEANS_COLUMN, "");
        cli_print_wrapped(f->advice, TO_DO_COLUMN, MEANS_COLUMN);
    }
}

static json_t *findings_json(const struct doctor *d)
{
    json_t *list = json_array();

    for (size_t i = 0; i < d->count; i++) {
        const struct finding *f = &d->findings[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:s}", "subject",
                                   f->subject, "level", level_names[f->level],
                                   "means", f->means, "advice", f->advice);
        cli_json_set_bytes(object, "is", f->is, strlen(f->is));
        json_array_append_new(list, object);
    }
    return json_pack(
        "{s:s, s:o, s:o, s:o}", "server", cli_redis_name(d->redis), "findings",
        list, "latency",
        d->facts.ping[0] == '\0' ? cli_latency_json(&d->facts.latency)
                                 : json_null(),
        "clock_off_ms",
        d->facts.has_clock ? json_integer((json_int_t)d->facts.clock_off_ms)
                           : json_null());
}

int cli_doctor(struct cli_call *call)
{
    struct doctor d = {.call = call};
    enum level worst = OK;

    d.redis = cli_redis_open(call, uri_of(call));
    read_facts(&d);
    judge(&d);
    for (size_t i = 0; i < d.count; i++)
        worst = d.findings[i].level > worst ? d.findings[i].level : worst;
    if (call->is_json)
        cli_json_print(call, findings_json(&d));
    else
        print_findings(&d);
    shed_reply_free(d.facts.info);
    cli_redis_close(d.redis);
    return worst >= WARNING ? CLI_NO : CLI_YES;
}
