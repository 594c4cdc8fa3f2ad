/*
 * What doctor finds: a table with a row per finding, in text or as JSON; and
 * those checks that are about more than one server, or about their settings.
 */
#ifndef CLI_FINDINGS_H
#define CLI_FINDINGS_H

#include "cli/out.h"
#include "cli/redis.h"

enum level { OK, NOTE, WARNING, PROBLEM };

#define CLI_MEANS_MAX 64

struct doctor {
    const struct cli_call *call;
    struct cli_redis *redis;
    json_t *out, *findings, *node; /* node: what is measured of a server */
    enum level worst;              /* of the findings */
    /* of the chosen server */
    const char *server; /* its name; NULL: what is found is about none */
    bool is_brief;      /* in text, only what is not well is told */
    struct shed_reply *info;
    bool has_info;
    bool is_denied;                  /* rights to the cache are missing */
    const char *told[CLI_MEANS_MAX]; /* meanings that are not repeated */
};

/* Report a finding. means and advice are constants; they do not count if all is
 * OK. */
__attribute__((format(printf, 6, 7))) void
cli_find(struct doctor *d, const char *subject, enum level level,
         const char *means, const char *advice, const char *format, ...);

/* Judge what sentinels say, if the URI names some. Returns: false: they do not
 * tell where the primary is. */
bool cli_find_sentinels(struct doctor *d);

/* Judge the state of a cluster. */
void cli_find_cluster(struct doctor *d);

/* Connect to the chosen server, and say which slots it has. Returns: false: it
 * is not there, which is the finding. */
bool cli_find_reached(struct doctor *d);

/* Judge its replicas; and what it tells of itself, and its settings. */
void cli_find_replicas(struct doctor *d);
void cli_find_values(struct doctor *d);

#endif
