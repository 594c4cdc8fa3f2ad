/*
 * What doctor finds, in text or as JSON; and those checks that are about more
 * than one server, or about the values that one tells of itself.
 */
#ifndef CLI_FINDINGS_H
#define CLI_FINDINGS_H

#include "cli/out.h"
#include "cli/redis.h"

enum level { OK, NOTE, WARNING, PROBLEM };

struct doctor {
    const struct cli_call *call;
    struct cli_redis *redis;
    json_t *findings, *node; /* node: what is measured of a server */
    json_t *told;            /* what has been said of meanings */
    enum level worst;        /* of the findings */
    /* of the chosen server */
    const char *server; /* its name; NULL: what is found is about none */
    bool is_brief;      /* in text, only what is not well is told */
    struct shed_reply *info;
    bool is_denied; /* rights to the cache are missing */
};

/* Report a finding. means and advice do not count if all is OK. */
__attribute__((format(printf, 6, 7))) void
cli_find(struct doctor *d, const char *subject, enum level level,
         const char *means, const char *advice, const char *format, ...);

/* Ask the chosen server. Returns: the answer, to be freed; NULL: it is an
 * error, which is the finding. */
struct shed_reply *cli_find_answer(struct doctor *d, const char *subject,
                                   enum level level, const char *means,
                                   const char *command);

/* Judge what sentinels say, if the URI names some. Returns: false: they do not
 * tell where the primary is. */
bool cli_find_sentinels(struct doctor *d);

/* Judge what the chosen server tells of itself, and its settings. */
void cli_find_values(struct doctor *d);

#endif
