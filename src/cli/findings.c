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
    struct cli_text slots;
    bool is_reached;
    size_t count;

    if (!cli_redis_is_cluster(d->redis))
        return true; /* or the program had ended */
    is_reached = cli_redis_reach(d->redis, &err);
    slots = cli_redis_slots(d->redis, &count);
    cli_out_text(d->node, "server", d->server);
    cli_out_text(d->node, "slots", slots.at);
    cli_out_number(d->node, "slot_count", count);
    cli_out_flag(d->node, "is_reached", is_reached);
    if (is_reached)
        cli_find(d, "node", OK, "", "", "%s: %zu slots, %s", d->server, count,
                 slots.at);
    else
        cli_find(
            d, "node", PROBLEM,
            "Keys of its slots are neither read nor written.",
            "Start it, or let a replica take over. Clients must reach it under "
            "this address, which it announces (cluster-announce-ip).",
            "slots %s: %s", slots.at, err.reason);
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

/* ---------------------------------------------------------------- settings */

/* From low to high a setting hurts, if a number of INFO (NULL: always) is this
 * part of it, and at least 1, too. */
static const struct {
    const char *name;
    long long low, high;
    const char *if_info;
    long long percent;
    enum level level;
    const char *means, *advice;
} settings[] = {
    {"cluster-require-full-coverage", 1, 1, NULL, 0, NOTE,
     "When one primary is gone without a replica, all others refuse their "
     "keys, too.",
     "no: the keys of the other slots are served."},
    {"cluster-node-timeout", NODE_TIMEOUT_MS + 1, LLONG_MAX, NULL, 0, NOTE,
     "For that long, and about a second more, the keys of a primary that died "
     "are refused.",
     "5000 is safe in one data centre."},
    {"min-replicas-to-write", 0, 0, "connected_slaves", 0, NOTE,
     "A primary that is cut off from its replicas goes on taking writes, which "
     "are lost when it is replaced.",
     "1, with min-replicas-max-lag 10, where losing a lock is worse than "
     "getting none."},
    {"tracking-table-max-keys", 1, LLONG_MAX, "tracking_total_keys",
     FULL_PERCENT, WARNING,
     "It is nearly full: then Redis says of keys that they have changed to "
     "forget them, and waiters look in vain.",
     "Raise it."},
    {"client-output-buffer-limit", 1, PUBSUB_BYTES - 1, NULL, 0, WARNING,
     "Some changes at a time close the connection over which they are told; "
     "until it is back, waiters poll.",
     "At least 8mb for pubsub."},
    {"timeout", 1, IDLE_S, NULL, 0, WARNING,
     "Redis closes the library's connections while they are idle, again and "
     "again.",
     "0, or a minute."}};

/* yes is 1; of limits by class, the hard one of pubsub. */
static long long number_in(const char *value)
{
    static const char pubsub[] = "pubsub ";
    const char *at = strstr(value, pubsub);

    if (strcmp(value, "yes") == 0)
        return 1;
    return strtoll(at != NULL ? at + strlen(pubsub) : value, NULL, 10);
}

static bool hurts(const struct doctor *d, size_t i, const char *value)
{
    const char *info = settings[i].if_info;
    long long number = number_in(value);
    long long least = number * settings[i].percent / 100;

    return number >= settings[i].low && number <= settings[i].high &&
           (info == NULL ||
            cli_info_number(d->info, info) >= (least > 0 ? least : 1));
}

bool cli_find_setting(struct doctor *d, const char *name,
                      struct cli_text *value)
{
    struct shed_reply *reply = cli_redis_ask(d->redis, "CONFIG GET %s", name);
    struct shed_bytes bytes = cli_redis_bytes(shed_reply_at(reply, 1));
    bool is_there = bytes.data != NULL;

    d->config_is_refused |= shed_reply_error(reply) != NULL;
    if (is_there)
        (void)snprintf(value->at, sizeof(value->at), "%s",
                       (const char *)bytes.data);
    shed_reply_free(reply);
    return is_there;
}

void cli_find_settings(struct doctor *d)
{
    bool is_cluster = cli_redis_is_cluster(d->redis), has_hurt = false;

    d->config_is_refused = false;
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        struct cli_text value;
        if (!is_cluster && cli_begins(settings[i].name, "cluster-"))
            continue;
        if (!cli_find_setting(d, settings[i].name, &value) ||
            !hurts(d, i, value.at))
            continue;
        has_hurt = true;
        cli_find(d, "setting", settings[i].level, settings[i].means,
                 settings[i].advice, "%s %s", settings[i].name, value.at);
    }
    if (d->config_is_refused)
        cli_find(d, "settings", NOTE,
                 "Timeouts and limits that hurt the library are not seen.",
                 "Grant +config|get, at least for this call.",
                 "CONFIG GET is refused");
    else if (!has_hurt)
        cli_find(d, "settings", OK, "", "", "none of them hurts");
}
