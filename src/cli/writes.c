/*
 * Finds out whether Redis accepts writes: SETRANGE of an empty string is
 * checked like any other write, but changes no key, and creates none.
 */
#include "cli/writes.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *word, *means, *advice;
} table[] = {
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

void cli_writes_read(struct cli_redis *redis, struct shed_bytes key,
                     struct cli_writes *out)
{
    struct cli_server *server;
    struct shed_reply *reply;
    struct shed_redirect to;
    struct shed_error err;
    const char *error;

    *out = (struct cli_writes){.means = "", .advice = ""};
    cli_redis_about(redis, key);
    server = cli_redis_server(redis);
    reply = cli_server_ask(server, &err, NULL, "SETRANGE %.*s 0 %s",
                           (int)key.size, (const char *)key.data, "");
    error = shed_reply_error(reply);
    if (reply == NULL && err.code != SHED_ETIMEDOUT)
        cli_fail_error(server->call, &err);
    if (reply == NULL) {
        out->is_silent = true;
        (void)snprintf(out->error, sizeof(out->error),
                       "no answer within %llu ms",
                       (unsigned long long)server->call->timeout_ms);
        out->means = "Writes wait, though reads are answered: it is paused "
                     "(CLIENT PAUSE, a failover), or busy.";
        out->advice = "Run CLIENT UNPAUSE, or wait for the failover to end.";
    } else if (error != NULL && !cli_redis_is_denied(reply) &&
               !shed_reply_redirect(reply, "", &to) &&
               !shed_reply_begins(reply, "WRONGTYPE")) {
        const char *end = strstr(error, ". "); /* the first sentence will do */
        size_t i = 0;
        (void)snprintf(out->error, sizeof(out->error), "%.*s",
                       end != NULL ? (int)(end - error) + 1 : INT_MAX, error);
        while (!cli_begins(error, table[i].word))
            i++;
        out->means = table[i].means;
        out->advice = table[i].advice;
    }
    shed_reply_free(reply);
}
