/* Sentinels, clusters, replicas and settings, as doctor judges them. */
#include "cli/findings.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/server.h"
#include "wire/address.h"
#include "wire/sentinel.h"

/* From where on a value is reported. */
#define BEHIND_BYTES (1 << 20)
#define SILENT_S 10
#define NODE_TIMEOUT_MS 5000
#define DOWN_AFTER_MS 5000
#define FULL_PERCENT 80
#define PUBSUB_BYTES (1 << 20)
#define SAVE_MEANS                                                             \
    "Redis refuses writes until a save succeeds, unless "                      \
    "stop-writes-on-bgsave-error is no."
#define SAVE_ADVICE "See its log: most often the disk is full. Then run BGSAVE."
#define IDLE_S 5 /* the library uses a connection of a session every 3 s */

/* In a cluster several servers can have the same trouble: what it means is told
 * once. Returns: whether it was told. */
static bool was_told(struct doctor *d, const char *means)
{
    size_t i = 0;

    while (i < CLI_MEANS_MAX - 1 && d->told[i] != NULL && d->told[i] != means)
        i++;
    if (d->told[i] == means)
        return true;
    d->told[i] = means;
    return false;
}

static void print_finding(struct doctor *d, const char *subject,
                          const char *level, const char *means,
                          const char *advice, const char *text)
{
    enum { MEANS_COLUMN = 9, TO_DO_COLUMN = 16, IS_COLUMN = 23 };
    bool is_of_one = d->is_brief && d->server != NULL;
    struct cli_text line = cli_format("%s%s%s", is_of_one ? d->server : "",
                                      is_of_one ? ": " : "", text);

    printf("%-8s %-13s ", level, subject);
    cli_print_wrapped(cli_escape(shed_str(line.at)).at, IS_COLUMN, IS_COLUMN);
    if (means[0] == '\0' || was_told(d, means))
        return;
    printf("%*s", MEANS_COLUMN, "");
    cli_print_wrapped(means, MEANS_COLUMN, MEANS_COLUMN);
    printf("%*sTo do: ", MEANS_COLUMN, "");
    cli_print_wrapped(advice, TO_DO_COLUMN, MEANS_COLUMN);
}

void cli_find(struct doctor *d, const char *subject, enum level level,
              const char *means, const char *advice, const char *format, ...)
{
    static const char *const levels[] = {[OK] = "ok",
                                         [NOTE] = "note",
                                         [WARNING] = "warning",
                                         [PROBLEM] = "problem"};
    json_t *object = cli_out_item(d->findings);
    char text[SHED_REASON_BYTES + 64];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    d->worst = level > d->worst ? level : d->worst;
    means = level == OK ? "" : means;
    advice = level == OK ? "" : advice;
    cli_out_text(object, "subject", subject);
    cli_out_text(object, "level", levels[level]);
    cli_out_text(object, "server", d->server);
    cli_out_text(object, "means", means);
    cli_out_text(object, "advice", advice);
    cli_out_bytes(object, "is", shed_str(text));
    if (!d->call->is_json && !(level == OK && d->is_brief))
        print_finding(d, subject, levels[level], means, advice, text);
}

/* --------------------------------------------------------------- sentinels */

/* The value of a field in an answer of names and values. */
static struct cli_text field_of(const struct shed_reply *reply,
                                const char *name)
{
    struct cli_text text = {""};

    for (size_t i = 0; i + 1 < shed_reply_count(reply); i += 2) {
        struct shed_bytes is = cli_redis_bytes(shed_reply_at(reply, i));
        if (is.data == NULL || strcmp(is.data, name) != 0)
            continue;
        is = cli_redis_bytes(shed_reply_at(reply, i + 1));
        if (is.data != NULL)
            (void)snprintf(text.at, sizeof(text.at), "%s",
                           (const char *)is.data);
    }
    return text;
}

static long long number_of(const struct shed_reply *reply, const char *name)
{
    return strtoll(field_of(reply, name).at, NULL, 10);
}

/* Whether the sentinels would agree to replace the primary if it died. */
static void check_quorum(struct doctor *d, struct cli_server *sentinel,
                         const char *primary)
{
    struct shed_error err = {.code = SHED_OK};
    struct shed_reply *reply =
        cli_server_ask(sentinel, &err, NULL, "SENTINEL CKQUORUM %s", primary);
    const char *error = shed_reply_error(reply);

    if (error != NULL)
        cli_find(d, "quorum", PROBLEM,
                 "When the primary dies, no replica takes its place.",
                 "Bring the other sentinels back.", "%s says: %s", d->server,
                 error);
    shed_reply_free(reply);
}

static void judge_sentinel(struct doctor *d, const struct shed_reply *reply,
                           size_t count, struct shed_sentinel_answer *out)
{
    long long known = number_of(reply, "num-other-sentinels") + 1;
    long long after_ms = number_of(reply, "down-after-milliseconds");

    (void)snprintf(out->host, sizeof(out->host), "%.*s",
                   (int)sizeof(out->host) - 1, field_of(reply, "ip").at);
    (void)snprintf(out->port, sizeof(out->port), "%.*s",
                   (int)sizeof(out->port) - 1, field_of(reply, "port").at);
    cli_find(d, "sentinel", OK, "", "",
             "%s says: %s:%s; quorum %lld of %lld sentinels", d->server,
             out->host, out->port, number_of(reply, "quorum"), known);
    if (strcmp(field_of(reply, "flags").at, "master") != 0)
        cli_find(d, "sentinel", WARNING,
                 "It takes the primary for dead, or is just replacing it.",
                 "Wait for the failover, or see why it cannot reach it.",
                 "%s says of the primary: %s", d->server,
                 field_of(reply, "flags").at);
    if (known != (long long)count)
        cli_find(d, "sentinels", NOTE,
                 "snowshed needs more than half of the sentinels in its URI to "
                 "agree; the sentinels need more than half of all that they "
                 "know.",
                 "Name all of them, and let old ones be forgotten (SENTINEL "
                 "RESET).",
                 "%s knows %lld, the URI names %zu", d->server, known, count);
    if (after_ms > DOWN_AFTER_MS)
        cli_find(d, "down-after", NOTE,
                 "For that long a dead primary is not replaced: calls fail, or "
                 "go to the database.",
                 "SENTINEL SET down-after-milliseconds: 5000 is safe in one "
                 "data centre.",
                 "%s waits for %lld ms", d->server, after_ms);
}

/* Ask one of count sentinels. */
static void ask_sentinel(struct doctor *d, struct cli_server *sentinel,
                         const char *primary, size_t count,
                         struct shed_sentinel_answer *out)
{
    struct shed_reply *reply = NULL;
    struct shed_error err;

    if (cli_server_open(sentinel, &err))
        reply = cli_server_ask(sentinel, &err, "SENTINEL MASTER",
                               "SENTINEL MASTER %s", primary);
    if (reply == NULL)
        cli_find(d, "sentinel", WARNING,
                 "It does not help to find the primary; more than half of the "
                 "sentinels must.",
                 "Start it, or let it watch this primary; or take it out of "
                 "the URI.",
                 "%s", err.reason);
    else
        judge_sentinel(d, reply, count, out);
    if (out->host[0] != '\0')
        check_quorum(d, sentinel, primary);
    shed_reply_free(reply);
}

static bool judge_agreement(struct doctor *d, const char *primary,
                            const struct shed_sentinel_answer *answers,
                            size_t count)
{
    const struct shed_sentinel_answer *of =
        shed_sentinels_agree(answers, count);
    size_t equal = 0;

    for (size_t i = 0; i < count && of != NULL; i++)
        equal += strcmp(answers[i].host, of->host) == 0 &&
                 strcmp(answers[i].port, of->port) == 0;
    if (of != NULL)
        cli_find(d, "primary", OK, "", "",
                 "%s is at %s:%s, as %zu of %zu sentinels say", primary,
                 of->host, of->port, equal, count);
    else
        cli_find(d, "primary", PROBLEM,
                 "snowshed cannot use it: more than half of the sentinels must "
                 "name the same server.",
                 "See what the sentinels say above.",
                 "where %s is, is not known", primary);
    return of != NULL;
}

/* Ask a primary's sentinels. */
static bool ask_sentinels(struct doctor *d, struct shed_address *address)
{
    const struct shed_client_options options = cli_client_options(d->call);
    struct shed_sentinel_answer answers[SHED_SENTINELS_MAX] = {{.host = ""}};
    struct shed_address *one;
    struct shed_error err;

    if (shed_address_use_tls(address, &options, &err) != SHED_OK)
        cli_fail_error(d->call, &err);
    for (size_t i = 0; i < address->count; i++) {
        const struct shed_place *place = &address->sentinels[i];
        struct cli_server *sentinel;
        if (shed_address_create_at(address, place->host, place->port, &one,
                                   &err) != SHED_OK)
            cli_fail_error(d->call, &err);
        sentinel = cli_server_create(d->call, one);
        d->server = one->text;
        ask_sentinel(d, sentinel, address->host, address->count, &answers[i]);
        cli_server_destroy(sentinel);
    }
    d->server = NULL;
    return judge_agreement(d, address->host, answers, address->count);
}

bool cli_find_sentinels(struct doctor *d)
{
    struct shed_address *address = NULL;
    struct shed_error err;
    bool is_found = true; /* what is wrong with the URI is told later */

    if (d->call->redis_uri != NULL &&
        shed_address_create(d->call->redis_uri, &address, &err) == SHED_OK &&
        address->sentinels != NULL)
        is_found = ask_sentinels(d, address);
    shed_address_unref(address);
    return is_found;
}

/* ----------------------------------------------------------------- cluster */

/* Ask the first primary that can be reached. If none can, its nodes are the
 * findings. */
void cli_find_cluster(struct doctor *d)
{
    struct shed_reply *info = NULL;
    struct shed_error err;
    long long fine;

    for (size_t i = 0; cli_redis_next(d->redis, &i) && info == NULL; i++)
        if (cli_redis_reach(d->redis, &err))
            info = cli_redis_ask(d->redis, "CLUSTER INFO");
    fine = cli_info_number(info, "cluster_slots_ok");
    if (info == NULL)
        return;
    if (shed_reply_error(info) != NULL)
        cli_find(d, "cluster", NOTE,
                 "Whether all slots are served is seen "
                 "from the nodes alone.",
                 "Grant +cluster|info.", "CLUSTER INFO is refused");
    else if (strcmp(cli_info(info, "cluster_state").at, "ok") != 0)
        cli_find(d, "cluster", PROBLEM,
                 "It refuses keys with CLUSTERDOWN: all of them, or with "
                 "cluster-require-full-coverage no those of the slots that "
                 "nobody has.",
                 "Bring the missing nodes back, or let replicas take over "
                 "(CLUSTER FAILOVER TAKEOVER); redis-cli --cluster fix.",
                 "down, %lld of %d slots are served", fine, SHED_HASH_SLOTS);
    else if (fine < SHED_HASH_SLOTS)
        cli_find(d, "cluster", PROBLEM,
                 "Keys of the other slots are neither read nor written.",
                 "Bring the missing nodes back; redis-cli --cluster fix.",
                 "%lld of %d slots are served", fine, SHED_HASH_SLOTS);
    else
        cli_find(d, "cluster", OK, "", "",
                 "%lld primaries, all slots are served",
                 cli_info_number(info, "cluster_size"));
    shed_reply_free(info);
}

bool cli_find_reached(struct doctor *d)
{
    struct shed_error err;
    bool is_reached;
    size_t slots;

    if (!cli_redis_is_cluster(d->redis))
        return true; /* or the program had ended */
    slots = cli_redis_slots(d->redis);
    is_reached = cli_redis_reach(d->redis, &err);
    cli_out_text(d->node, "server", d->server);
    cli_out_number(d->node, "slots", slots);
    cli_out_flag(d->node, "is_reached", is_reached);
    if (is_reached)
        cli_find(d, "node", OK, "", "", "%s: %zu slots", d->server, slots);
    else
        cli_find(
            d, "node", PROBLEM,
            "Keys of its slots are neither read nor written.",
            "Start it, or let a replica take over. Clients must reach it under "
            "this address, which it announces (cluster-announce-ip).",
            "%zu slots: %s", slots, err.reason);
    return is_reached;
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

void cli_find_replicas(struct doctor *d)
{
    json_t *list = cli_out_list(d->node, "replicas");
    bool was_brief = d->is_brief;
    struct cli_text line;

    d->is_brief = false; /* their names and lags are told */
    for (unsigned i = 0;; i++) {
        line = cli_info(d->info, cli_format("slave%u", i).at);
        if (line.at[0] == '\0')
            break;
        judge_replica(d, line.at, cli_out_item(list));
    }
    d->is_brief = was_brief;
    if (cli_redis_is_cluster(d->redis) && d->has_info &&
        cli_info_number(d->info, "connected_slaves") == 0)
        cli_find(d, "replica", NOTE,
                 "When it dies, the keys of its slots are refused until it is "
                 "back.",
                 "Give each primary a replica.", "it has none");
}

/* ------------------------------------------------------ values of a server */

/* From low to high a value hurts, if a number of INFO (NULL: always) is this
 * part of it, and at least 1, too. Values are those of INFO, or settings; rules
 * for one value follow each other. */
static const struct {
    const char *subject, *name;
    long long low, high;
    const char *if_info;
    long long percent;
    enum level level;
    const char *means, *advice;
} rules[] = {
    {"version", "redis_version", 0, 5, NULL, 0, PROBLEM,
     "It cannot announce changes: waiters poll, and a dead loader is found at "
     "the end of its lease.",
     "Use Redis 6.0 or later, or Valkey."},
    {"version", "redis_version", 6, 6, NULL, 0, NOTE,
     "It works, but it cannot tell beforehand which rights are missing.",
     "Redis 7 or later names them."},
    {"role", "role", 1, 1, NULL, 0, PROBLEM,
     "snowshed does not use a replica: it looks up the host name again.",
     "Give the address of the primary."},
    {"cluster", "cluster_enabled", 1, 1, NULL, 0, PROBLEM,
     "It is a node of one, and with this URI only this node is asked: keys of "
     "others are refused.",
     "Use a URI that begins with redis+cluster://."},
    {"loading", "loading", 1, 1, NULL, 0, PROBLEM,
     "It refuses commands until it has its data.", "Wait."},
    {"memory", "maxmemory", 0, 0, NULL, 0, NOTE,
     "It has no limit: when the host runs out of memory, Redis is killed, and "
     "everything is lost at once.",
     "Set maxmemory."},
    {"memory", "maxmemory", 1, LLONG_MAX, "used_memory", FULL_PERCENT, WARNING,
     "When it is full, it evicts entries, which costs loads; with noeviction "
     "nothing more is stored, and no lock is granted.",
     "Raise maxmemory, or shorten ttls; 'snowshed scan' shows what is large."},
    {"eviction", "maxmemory_policy", 1, 1, NULL, 0, WARNING,
     "It may evict locks and leases: two holders, or second loads.",
     "Locks need noeviction (or a Redis of their own), or the fencing guard. "
     "For a cache alone it is fine."},
    {"persistence", "rdb_last_bgsave_status", 1, 1, NULL, 0, PROBLEM,
     SAVE_MEANS, SAVE_ADVICE},
    {"persistence", "aof_last_write_status", 1, 1, NULL, 0, PROBLEM, SAVE_MEANS,
     SAVE_ADVICE},
    {"persistence", "latest_fork_usec", 200001, LLONG_MAX, NULL, 0, WARNING,
     "All calls wait that long whenever it saves.",
     "Save on a replica, or use less memory per server; look at transparent "
     "huge pages."},
    {"persistence", "aof_enabled", 0, 0, NULL, 0, NOTE,
     "After a crash, what was written since the last snapshot, or all if there "
     "are none, is gone: locks and invalidations, too. The cache is filled "
     "again by a bounded number of loads.",
     "Where a lock guards data, use the fencing guard: its numbers grow even "
     "then. appendonly yes loses less."},
    {"connections", "maxclients", 1, LLONG_MAX, "connected_clients",
     FULL_PERCENT, WARNING,
     "Beyond the limit new ones are refused, and processes start without a "
     "cache.",
     "Raise maxclients (and the limit of open files); a snowshed client has 2 "
     "and its links."},
    {"connections", "rejected_connections", 1, LLONG_MAX, NULL, 0, WARNING,
     "Connections have been refused since Redis started.",
     "Raise maxclients (and the limit of open files)."},
    {"setting", "cluster-require-full-coverage", 1, 1, NULL, 0, NOTE,
     "When one primary is gone without a replica, all others refuse their "
     "keys, too.",
     "no: the keys of the other slots are served."},
    {"setting", "cluster-node-timeout", NODE_TIMEOUT_MS + 1, LLONG_MAX, NULL, 0,
     NOTE,
     "For that long, and about a second more, the keys of a primary that died "
     "are refused.",
     "5000 is safe in one data centre."},
    {"setting", "min-replicas-to-write", 0, 0, "connected_slaves", 0, NOTE,
     "A primary that is cut off from its replicas goes on taking writes, which "
     "are lost when it is replaced.",
     "1, with min-replicas-max-lag 10, where losing a lock is worse than "
     "getting none."},
    {"setting", "tracking-table-max-keys", 1, LLONG_MAX, "tracking_total_keys",
     FULL_PERCENT, WARNING,
     "It is nearly full: then Redis says of keys that they have changed to "
     "forget them, and waiters look in vain.",
     "Raise it."},
    {"setting", "client-output-buffer-limit", 1, PUBSUB_BYTES - 1, NULL, 0,
     WARNING,
     "Some changes at a time close the connection over which they are told; "
     "until it is back, waiters poll.",
     "At least 8mb for pubsub."},
    {"setting", "timeout", 1, IDLE_S, NULL, 0, WARNING,
     "Redis closes the library's connections while they are idle, again and "
     "again.",
     "0, or a minute."}};

#define RULES (sizeof(rules) / sizeof(*rules))

/* A word is 1, unless it says that all is well; of limits by class, the hard
 * one of pubsub. */
static long long number_in(const char *value)
{
    static const char pubsub[] = "pubsub ";
    static const char *const fine[] = {"no", "ok", "master", "noeviction"};
    const char *at = strstr(value, pubsub);

    for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++)
        if (strcmp(value, fine[i]) == 0)
            return 0;
    if (at == NULL && (*value < '0' || *value > '9'))
        return 1;
    return strtoll(at != NULL ? at + strlen(pubsub) : value, NULL, 10);
}

static bool hurts(const struct doctor *d, size_t i, const char *value)
{
    const char *info = rules[i].if_info;
    long long number = number_in(value);
    long long least = number * rules[i].percent / 100;

    return number >= rules[i].low && number <= rules[i].high &&
           (info == NULL ||
            cli_info_number(d->info, info) >= (least > 0 ? least : 1));
}

/* Get the value for a rule; "": it is not told. Returns: false: CONFIG GET is
 * refused. */
static bool get_value(const struct doctor *d, size_t i, struct cli_text *value)
{
    bool is_setting = strcmp(rules[i].subject, "setting") == 0, is_refused;
    struct shed_reply *reply;
    struct shed_bytes bytes;

    *value = cli_info(d->info, rules[i].name);
    if (!is_setting)
        return true;
    reply = cli_redis_ask(d->redis, "CONFIG GET %s", rules[i].name);
    bytes = cli_redis_bytes(shed_reply_at(reply, 1));
    is_refused = shed_reply_error(reply) != NULL;
    *value = cli_format("%.*s", (int)bytes.size,
                        bytes.data != NULL ? (const char *)bytes.data : "");
    shed_reply_free(reply);
    return !is_refused;
}

/* Whether a rule is about servers like this one. */
static bool is_meant(const struct doctor *d, size_t i)
{
    bool is_cluster = cli_redis_is_cluster(d->redis);

    return cli_begins(rules[i].name, "cluster-")   ? is_cluster
           : cli_begins(rules[i].name, "cluster_") ? !is_cluster
                                                   : true;
}

void cli_find_values(struct doctor *d)
{
    bool is_told = true, has_hurt = false, does_hurt;
    struct cli_text value;

    if (!d->has_info)
        cli_find(d, "version", WARNING, "INFO is refused, so little is known.",
                 "Grant +info, at least for this call.", "not known");
    for (size_t i = 0; i < RULES; i++) {
        const char *name = rules[i].name, *info = rules[i].if_info;
        bool is_last = i + 1 == RULES || strcmp(name, rules[i + 1].name) != 0;
        if (i == 0 || strcmp(name, rules[i - 1].name) != 0)
            has_hurt = false;
        if (!is_meant(d, i))
            continue;
        is_told = get_value(d, i, &value) && is_told;
        if (value.at[0] == '\0')
            continue;
        does_hurt = hurts(d, i, value.at);
        has_hurt |= does_hurt;
        if (does_hurt || (is_last && !has_hurt))
            cli_find(d, rules[i].subject, does_hurt ? rules[i].level : OK,
                     rules[i].means, rules[i].advice,
                     info != NULL ? "%s %s, %s %s" : "%s %s", name, value.at,
                     info, info != NULL ? cli_info(d->info, info).at : "");
    }
    if (!is_told)
        cli_find(d, "settings", NOTE,
                 "Timeouts and limits that hurt the library are not seen.",
                 "Grant +config|get, at least for this call.",
                 "CONFIG GET is refused");
}
