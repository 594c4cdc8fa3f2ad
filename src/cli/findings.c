/* Sentinels and the values of a server, as doctor judges them. */
#include "cli/findings.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/server.h"
#include "wire/address.h"
#include "wire/sentinel.h"

/* From where on a value is reported. */
#define NODE_TIMEOUT_MS 5000
#define FULL_PERCENT 80
#define PUBSUB_BYTES (1 << 20)
#define IDLE_S 5 /* the library uses a connection of a session every 3 s */

/* In a cluster several servers can have the same trouble: what it means is told
 * once. */
static void print_finding(const struct doctor *d, const char *subject,
                          const char *level, const char *means,
                          const char *advice, const char *text)
{
    enum { MEANS_COLUMN = 9, IS_COLUMN = 23 };
    struct cli_text line =
        cli_escape(shed_str(cli_format("%s%s%s", d->is_brief ? d->server : "",
                                       d->is_brief ? ": " : "", text)
                                .at));

    printf("%-8s %-13s ", level, subject);
    cli_print_wrapped(line.at, IS_COLUMN);
    if (means[0] == '\0' || json_object_get(d->told, means) != NULL)
        return;
    cli_out_flag(d->told, means, true);
    printf("%*s", MEANS_COLUMN, "");
    cli_print_wrapped(means, MEANS_COLUMN);
    printf("%*s", MEANS_COLUMN, "");
    cli_print_wrapped(cli_format("To do: %s", advice).at, MEANS_COLUMN);
}

void cli_find(struct doctor *d, const char *subject, enum level level,
              const char *means, const char *advice, const char *format, ...)
{
    static const char *const levels[] = {[OK] = "ok",
                                         [NOTE] = "note",
                                         [WARNING] = "warning",
                                         [PROBLEM] = "problem"};
    char text[SHED_REASON_BYTES + 64];
    json_t *object;
    va_list list;

    va_start(list, format);
    (void)vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    d->worst = level > d->worst ? level : d->worst;
    means = level == OK ? "" : means;
    advice = level == OK ? "" : advice;
    if (!d->call->is_json && !(level == OK && d->is_brief))
        print_finding(d, subject, levels[level], means, advice, text);
    object = cli_out_item(d->findings);
    cli_out_text(object, "subject", subject);
    cli_out_text(object, "level", levels[level]);
    cli_out_text(object, "server", d->server);
    cli_out_text(object, "means", means);
    cli_out_text(object, "advice", advice);
    cli_out_bytes(object, "is", shed_str(text));
}

struct shed_reply *cli_find_answer(struct doctor *d, const char *subject,
                                   enum level level, const char *means,
                                   const char *command)
{
    /* the words are ours, and none of them takes an argument */
    struct shed_reply *reply = cli_redis_ask(d->redis, command, "");
    const char *error = shed_reply_error(reply);

    if (error == NULL)
        return reply;
    cli_find(d, subject, level, means,
             cli_redis_is_denied(reply)
                 ? "Grant it to the user; a proxy must pass it."
                 : "See the error; fix this first, then run doctor again. A "
                   "proxy must pass the command.",
             "no %s: %s", command, error);
    shed_reply_free(reply);
    return NULL;
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

/* Judge the answer to SENTINEL MASTER of one of count sentinels. Returns:
 * whether its primary is the one that most agree on. */
static bool judge_sentinel(struct doctor *d, const struct shed_reply *reply,
                           size_t count, const struct shed_place *agreed)
{
    struct cli_text host = field_of(reply, "ip"),
                    port = field_of(reply, "port");
    struct cli_text flags = field_of(reply, "flags");
    long long known = number_of(reply, "num-other-sentinels") + 1;

    cli_find(d, "sentinel", strcmp(flags.at, "master") == 0 ? OK : WARNING,
             "It takes the primary for dead, or is just replacing it.",
             "Wait for the failover, or see why it cannot reach it.",
             "%s says: %s:%s; quorum %lld of %lld sentinels; flags %s",
             d->server, host.at, port.at, number_of(reply, "quorum"), known,
             flags.at);
    if (known != (long long)count)
        cli_find(d, "sentinels", NOTE,
                 "snowshed needs more than half of the sentinels in its URI to "
                 "agree; the sentinels need more than half of all that they "
                 "know.",
                 "Name all of them, and let old ones be forgotten (SENTINEL "
                 "RESET).",
                 "%s knows %lld, the URI names %zu", d->server, known, count);
    return strcmp(host.at, agreed->host) == 0 &&
           strcmp(port.at, agreed->port) == 0;
}

static bool ask_sentinel(struct doctor *d, struct cli_server *sentinel,
                         const struct shed_address *address,
                         const struct shed_place *agreed)
{
    struct shed_error err;
    struct shed_reply *reply = cli_server_ask(
        sentinel, &err, "SENTINEL MASTER", "SENTINEL MASTER %s", address->host);
    bool agrees = false;

    if (reply != NULL) {
        agrees = judge_sentinel(d, reply, address->count, agreed);
        check_quorum(d, sentinel, address->host);
    } else {
        cli_find(d, "sentinel", WARNING,
                 "It does not help to find the primary; more than half of the "
                 "sentinels must.",
                 "Start it, or let it watch this primary; or take it out of "
                 "the URI.",
                 "%s", err.reason);
    }
    shed_reply_free(reply);
    return agrees;
}

/* Ask a primary's sentinels, first as the library does. */
static bool ask_sentinels(struct doctor *d, struct shed_address *address)
{
    struct shed_place agreed = {.host = ""};
    struct shed_error why;
    enum shed_code code = shed_sentinels_ask(address, &agreed, &why);
    size_t agree = 0;

    for (size_t i = 0; i < address->count; i++) {
        struct cli_server *sentinel =
            cli_server_create(d->call, address, &address->sentinels[i]);
        d->server = sentinel->address->text;
        agree += ask_sentinel(d, sentinel, address, &agreed);
        cli_server_destroy(sentinel);
    }
    d->server = NULL;
    if (code == SHED_OK)
        cli_find(d, "primary", OK, "", "",
                 "%s is at %s:%s, as %zu of %zu sentinels say", address->host,
                 agreed.host, agreed.port, agree, address->count);
    else
        cli_find(d, "primary", PROBLEM, "snowshed cannot use it.",
                 "See what the sentinels say above.",
                 "where %s is, is not known: %s", address->host, why.reason);
    return code == SHED_OK;
}

bool cli_find_sentinels(struct doctor *d)
{
    struct shed_address *address = cli_server_address(d->call);
    bool is_found = address->sentinels == NULL || ask_sentinels(d, address);

    shed_address_unref(address);
    return is_found;
}

/* ------------------------------------------------------ values of a server */

/* A value hurts unless it is this word; or, if there is none, from low to high,
 * if a number of INFO (NULL: always) is at least 1 and FULL_PERCENT of it, too.
 * Values are those of INFO; then come the settings. */
static const struct {
    const char *subject, *name;
    const char *fine;
    long long low, high;
    const char *if_info;
    enum level level;
    const char *means, *advice;
} rules[] = {
    {"version", "redis_version", NULL, 0, 5, NULL, PROBLEM,
     "It cannot announce changes: waiters poll, and a dead loader is found at "
     "the end of its lease.",
     "Use Redis 6.0 or later, or Valkey."},
    {"role", "role", "master", 0, 0, NULL, PROBLEM,
     "snowshed does not use a replica: it looks up the host name again.",
     "Give the address of the primary."},
    {"cluster", "cluster_enabled", NULL, 1, 1, NULL, PROBLEM,
     "It is a node of one, and with this URI only this node is asked: keys of "
     "others are refused.",
     "Use a URI that begins with redis+cluster://."},
    {"memory", "maxmemory", NULL, 0, 0, NULL, NOTE,
     "It has no limit: when the host runs out of memory, Redis is killed, and "
     "everything is lost at once.",
     "Set maxmemory."},
    {"memory", "maxmemory", NULL, 1, LLONG_MAX, "used_memory", WARNING,
     "When it is full, it evicts entries, which costs loads; with noeviction "
     "nothing more is stored, and no lock is granted.",
     "Raise maxmemory, or shorten ttls; 'snowshed scan' shows what is large."},
    {"eviction", "maxmemory_policy", "noeviction", 0, 0, NULL, WARNING,
     "It may evict locks and leases: two holders, or second loads.",
     "Locks need noeviction (or a Redis of their own), or the fencing guard. "
     "For a cache alone it is fine."},
    {"persistence", "rdb_last_bgsave_status", "ok", 0, 0, NULL, PROBLEM,
     "Redis refuses writes until a save succeeds, unless "
     "stop-writes-on-bgsave-error is no.",
     "See its log: most often the disk is full. Then run BGSAVE."},
    {"persistence", "latest_fork_usec", NULL, 200001, LLONG_MAX, NULL, WARNING,
     "All calls wait that long whenever it saves.",
     "Save on a replica, or use less memory per server; look at transparent "
     "huge pages."},
    {"persistence", "aof_enabled", NULL, 0, 0, NULL, NOTE,
     "After a crash, what was written since the last snapshot, or all if there "
     "are none, is gone: locks and invalidations, too. The cache is filled "
     "again by a bounded number of loads.",
     "Where a lock guards data, use the fencing guard: its numbers grow even "
     "then. appendonly yes loses less."},
    {"connections", "maxclients", NULL, 1, LLONG_MAX, "connected_clients",
     WARNING,
     "Beyond the limit new ones are refused, and processes start without a "
     "cache.",
     "Raise maxclients (and the limit of open files); a snowshed client has 2 "
     "and its links."},
    {"connections", "rejected_connections", NULL, 1, LLONG_MAX, NULL, WARNING,
     "Connections have been refused since Redis started.",
     "Raise maxclients (and the limit of open files)."},
    {"setting", "cluster-require-full-coverage", "no", 0, 0, NULL, NOTE,
     "When one primary is gone without a replica, all others refuse their "
     "keys, too.",
     "no: the keys of the other slots are served."},
    {"setting", "cluster-node-timeout", NULL, NODE_TIMEOUT_MS + 1, LLONG_MAX,
     NULL, NOTE,
     "For that long, and about a second more, the keys of a primary that died "
     "are refused.",
     "5000 is safe in one data centre."},
    {"setting", "min-replicas-to-write", NULL, 0, 0, "connected_slaves", NOTE,
     "A primary that is cut off from its replicas goes on taking writes, which "
     "are lost when it is replaced.",
     "1, with min-replicas-max-lag 10, where losing a lock is worse than "
     "getting none."},
    {"setting", "tracking-table-max-keys", NULL, 1, LLONG_MAX,
     "tracking_total_keys", WARNING,
     "It is nearly full: then Redis says of keys that they have changed to "
     "forget them, and waiters look in vain.",
     "Raise it."},
    {"setting", "client-output-buffer-limit", NULL, 1, PUBSUB_BYTES - 1, NULL,
     WARNING,
     "Some changes at a time close the connection over which they are told; "
     "until it is back, waiters poll.",
     "At least 8mb for pubsub."},
    {"setting", "timeout", NULL, 1, IDLE_S, NULL, WARNING,
     "Redis closes the library's connections while they are idle, again and "
     "again.",
     "0, or a minute."}};

#define RULES (sizeof(rules) / sizeof(*rules))

/* Of limits by class, the hard one of pubsub counts. */
static bool hurts(const struct doctor *d, size_t i, const char *value)
{
    static const char pubsub[] = "pubsub ";
    const char *at = strstr(value, pubsub);
    long long number =
        strtoll(at != NULL ? at + strlen(pubsub) : value, NULL, 10);
    long long least = number * FULL_PERCENT / 100;

    if (rules[i].fine != NULL)
        return strcmp(value, rules[i].fine) != 0;
    return number >= rules[i].low && number <= rules[i].high &&
           (rules[i].if_info == NULL ||
            cli_info_number(d->info, rules[i].if_info) >=
                (least > 0 ? least : 1));
}

/* Get the value for a rule; "": it is not told. Returns: false: settings are
 * not told. */
static bool get_value(struct doctor *d, size_t i, struct cli_text *value)
{
    bool is_setting = strcmp(rules[i].subject, "setting") == 0;
    struct shed_reply *reply;

    *value = cli_info(d->info, rules[i].name);
    if (!is_setting)
        return true;
    reply = cli_find_answer(
        d, "settings", NOTE,
        "Timeouts and limits that hurt the library are not seen.",
        cli_format("CONFIG GET %s", rules[i].name).at);
    *value = field_of(reply, rules[i].name);
    shed_reply_free(reply);
    return reply != NULL;
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
    struct cli_text value;

    for (size_t i = 0; i < RULES; i++) {
        const char *name = rules[i].name, *info = rules[i].if_info;
        if (!is_meant(d, i))
            continue;
        if (!get_value(d, i, &value))
            break; /* nor will the other settings be told */
        if (value.at[0] != '\0')
            cli_find(d, rules[i].subject,
                     hurts(d, i, value.at) ? rules[i].level : OK,
                     rules[i].means, rules[i].advice,
                     info != NULL ? "%s %s, %s %s" : "%s %s", name, value.at,
                     info, info != NULL ? cli_info(d->info, info).at : "");
    }
}
