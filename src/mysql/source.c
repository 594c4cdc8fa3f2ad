/*
 * The MySQL source: a source whose loads run a query, on a connection that each
 * loader thread has to itself. Its one invariant: a load is done only when none
 * of its queries can still run in the server, so that max_loads limits the
 * queries there, including those for which nobody waits any longer.
 *
 * Design notes.
 *
 * Reads are current. A connection is used only in autocommit and outside of a
 * transaction, according to the server's status flags: then each SELECT reads a
 * snapshot of its own (MySQL manual, "Consistent Nonlocking Reads"), taken
 * after the load began. connection.c checks it.
 *
 * An error is never taken for an absent row. Rows are counted as they come, but
 * keys without a row are answered only when the result was read to its end
 * without an error (statement.c). Otherwise the failure answers every key of
 * the part, even those that had a row.
 *
 * A failure costs the connection, because a late reply would answer the next
 * query. The exceptions are errors that the server reports in place of a
 * result and that leave the connection as it was: failure.is_kept.
 *
 * A query outlives a lost connection: a server that executes it does not notice
 * that the client is gone. So a thread that has lost its connection does not
 * report its load as done before the query is known to be over, because of a
 * KILL over another connection (MySQL manual, "KILL Statement") or because the
 * statement limit has passed.
 *
 * One odd key must not fail its batch. If an error depends on the keys, or rows
 * came back for keys that were not asked for, the batch is queried again in
 * halves until the odd key is alone, with a bounded number of queries.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/mysql.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/random.h"
#include "mysql/batch.h"
#include "mysql/compat.h"
#include "mysql/config.h"
#include "mysql/connection.h"
#include "mysql/query.h"
#include "mysql/statement.h"

/* The first and the longest pause after a failure to connect. */
enum { PAUSE_MIN_MS = 50, PAUSE_MAX_MS = 5000 };

/* Limits the attempts to connect to a server that refuses us: after a failure
 * only one thread tries at a time, with growing pauses, and the loads of the
 * other threads fail at once. Not so the probes of the source's breaker, which
 * has pauses of its own: one that failed here would say nothing of the server,
 * and be counted against it. */
struct pacer {
    struct shed_mutex mu;
    /* under mu */
    unsigned failures;              /* in a row */
    uint64_t next_ms;               /* no attempt before this time */
    char reason[SHED_REASON_BYTES]; /* of the last failure */
};

struct mysql_source {
    /* set at creation */
    struct shed_mysql_config config;
    struct shed_mysql_query query;
    struct pacer pacer;
};

/* The state of one loader thread. */
struct loader {
    struct mysql_source *source;
    struct shed_mysql_session session;
    /* of its load */
    struct shed_load *load;
    size_t spare_queries; /* for halves */
    bool has_repeated;    /* a query, after a failure that passes */
    bool is_given_up;     /* the remaining keys fail with failure */
    struct shed_mysql_failure failure;
};

/* ------------------------------------------------------------------ pacer */

/* Whether a connection may be tried now; if not, err says why. *round is for
 * report_failure. */
static bool ask_pacer(struct pacer *p, bool is_probe, unsigned *round,
                      struct shed_error *err)
{
    uint64_t now_ms = shed_now_ms();
    bool may;

    shed_mutex_lock(&p->mu);
    *round = p->failures;
    may = p->failures == 0 || is_probe || now_ms >= p->next_ms;
    if (!may)
        (void)shed_fail(err, SHED_ESOURCE,
                        "MySQL: the next try is in %u ms; the last one: %s",
                        (unsigned)shed_left_ms(p->next_ms, now_ms), p->reason);
    else if (p->failures > 0)
        p->next_ms =
            now_ms +
            PAUSE_MAX_MS; /* nobody else tries before this one reports */
    shed_mutex_unlock(&p->mu);
    return may;
}

/* Attempts of the same round that fail together count once. */
static void report_failure(struct pacer *p, unsigned round,
                           const struct shed_error *error)
{
    shed_mutex_lock(&p->mu);
    if (p->failures == round) {
        p->next_ms = shed_now_ms() +
                     shed_backoff_equal_ms(p->failures, PAUSE_MIN_MS,
                                           PAUSE_MAX_MS, shed_random_jitter());
        p->failures++;
        memcpy(p->reason, error->reason, sizeof(p->reason));
    }
    shed_mutex_unlock(&p->mu);
}

static void report_success(struct pacer *p)
{
    shed_mutex_lock(&p->mu);
    p->failures = 0;
    shed_mutex_unlock(&p->mu);
}

/* ------------------------------------------------------------------ loads */

/* Open a connection unless the thread has one that is fit for use. */
static bool ensure_connection(struct loader *l)
{
    struct shed_mysql_connection *c = &l->session.connection;
    struct pacer *pacer = &l->source->pacer;
    unsigned round;

    if (shed_mysql_connection_is_fit(c))
        return true;
    shed_mysql_session_close(&l->session, NULL);
    if (!ask_pacer(pacer, l->load->is_probe != 0, &round, &l->failure.error))
        return false;
    if (!shed_mysql_connection_open(c, &l->failure)) {
        /* on a new connection nothing passes, and no key is to blame */
        l->failure.cause = SHED_MYSQL_UNREACHABLE;
        report_failure(pacer, round, &l->failure.error);
        return false;
    }
    report_success(pacer);
    return true;
}

/* Query a part once. A failure costs the connection, unless it is known to have
 * left the connection as it was. */
static bool try_part(struct loader *l, struct shed_mysql_part *part)
{
    l->failure = (struct shed_mysql_failure){0};
    if (!ensure_connection(l))
        return false;
    if (shed_mysql_session_ask(&l->session, part, &l->failure))
        return true;
    if (l->failure.is_kept)
        return false;
    shed_mysql_session_close(&l->session, &l->failure);
    if (l->failure.cause == SHED_MYSQL_FULL)
        report_failure(&l->source->pacer, 0, &l->failure.error);
    shed_mysql_connection_end_lost(&l->session.connection);
    return false;
}

/* ---------------------------------------------------------------- batches */

/* Enough to find three odd keys of a batch, with two queries each for every
 * halving, and more of them if they are adjacent. After that, the keys of a
 * part that still has odd ones fail together: keys may come from strangers and
 * must not multiply the queries. */
enum { QUERIES_PER_HALVING = 6 };

/* Whether reading again on a new connection can help. */
static bool is_passing(const struct shed_mysql_failure *failure)
{
    return failure->cause == SHED_MYSQL_LOST ||
           failure->cause == SHED_MYSQL_SESSION;
}

/* Query a part. A read can be repeated; once is enough for failures that pass,
 * where the server had closed an idle connection or was restarted. */
static bool ask_part(struct loader *l, struct shed_mysql_part *part)
{
    if (try_part(l, part))
        return true;
    if (!is_passing(&l->failure) || l->has_repeated ||
        shed_load_remaining_ms(l->load) == 0)
        return false;
    l->has_repeated = true;
    return try_part(l, part);
}

static void answer_part(struct loader *l, struct shed_mysql_part *part);

/* Answer a part by its halves. Returns false if no spare queries are left. */
static bool answer_halves(struct loader *l, const struct shed_mysql_part *part)
{
    enum { HALVES = 2 };
    struct shed_mysql_part halves[HALVES];

    if (l->spare_queries < HALVES || shed_load_remaining_ms(l->load) == 0)
        return false;
    l->spare_queries -= HALVES;
    shed_mysql_part_halve(part, halves);
    for (size_t i = 0; i < HALVES; i++)
        answer_part(l, &halves[i]);
    return true;
}

/* Answer every key of a part. */
static void answer_part(struct loader *l, struct shed_mysql_part *part)
{
    const char *reason = l->failure.error.reason;

    if (part->count == 0)
        return;
    if (!l->is_given_up && ask_part(l, part)) {
        shed_mysql_part_finish(part);
        reason = "MySQL: no row has exactly this key, but the server returned "
                 "a row whose key it takes for equal, by the column's "
                 "collation or type; or the query's first column is not the "
                 "key";
    } else if (!l->is_given_up && l->failure.is_kept &&
               l->failure.cause == SHED_MYSQL_KEYS) {
        part->count = part->asked_count; /* the others are absent */
    } else {
        l->is_given_up = true;
    }
    /* which of them is the odd one? */
    if (part->count > 0 && part->asked_count > 1 && !l->is_given_up &&
        answer_halves(l, part))
        return;
    shed_mysql_part_fail(part, reason);
}

static void run_load(void *user, void *thread, struct shed_load *load)
{
    struct shed_mysql_part whole = {0};
    struct shed_answer failed = SHED_ANSWER_INIT;
    struct loader *l = thread;

    (void)user;
    failed.reason = "out of memory for a batch";
    if (l != NULL && shed_mysql_part_init(&whole, load)) {
        l->load = load;
        l->spare_queries = 0;
        for (size_t left = whole.count; left > 1; left = (left + 1) / 2)
            l->spare_queries += QUERIES_PER_HALVING;
        l->has_repeated = l->is_given_up = false;
        answer_part(l, &whole);
    } else {
        for (size_t i = 0; i < load->count; i++)
            shed_load_answer(load, i, &failed);
    }
    shed_load_done(load);
    shed_mysql_part_fini(&whole);
}

static void *start_loader(void *user)
{
    struct loader *l;

    if (mysql_thread_init() != 0)
        return NULL;
    l = calloc(1, sizeof(*l));
    if (l == NULL) {
        mysql_thread_end();
        return NULL;
    }
    l->source = user;
    l->session.connection.config = &l->source->config;
    l->session.query = &l->source->query;
    return l;
}

static void stop_loader(void *user, void *thread)
{
    struct loader *l = thread;

    (void)user;
    if (l == NULL)
        return;
    shed_mysql_session_close(&l->session, NULL);
    free(l);
    mysql_thread_end();
}

/* ---------------------------------------------------------------- opening */

static void destroy_source(void *user)
{
    struct mysql_source *s = user;

    shed_mysql_config_fini(&s->config);
    shed_mysql_query_fini(&s->query);
    shed_mutex_destroy(&s->pacer.mu);
    free(s);
}

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static int library_failure;

/* Once per process, and never undone, because the program may use the library
 * too. The library's first use in a process makes SIGPIPE ignored. That is kept
 * if the signal would otherwise end the process: the program's own connections
 * rely on it, and the library does not set it a second time. If the program has
 * a handler, it is restored, because it was set on purpose and does not end the
 * process. */
static void init_library(void)
{
    struct sigaction before;
    bool is_known = sigaction(SIGPIPE, NULL, &before) == 0;

    library_failure = mysql_library_init(0, NULL, NULL);
    if (is_known && before.sa_handler != SIG_DFL)
        (void)sigaction(SIGPIPE, &before, NULL);
}

static enum shed_code take_load_options(const struct shed_source_options *given,
                                        struct shed_source_options *out,
                                        struct shed_error *err)
{
    enum shed_code code = shed_options_take(out, sizeof(*out), given,
                                            "struct shed_source_options", err);

    if (code == SHED_OK && (out->thread_start != NULL ||
                            out->thread_stop != NULL || out->on_close != NULL))
        code =
            shed_fail(err, SHED_EINVAL,
                      "MySQL source: the callbacks thread_start, thread_stop "
                      "and on_close must be NULL, it has its own");
    out->thread_start = start_loader;
    out->thread_stop = stop_loader;
    out->on_close = destroy_source;
    return code;
}

/* Fill in the source, and open it. */
static enum shed_code open_source(struct mysql_source *s, const char *uri,
                                  const char *query,
                                  const struct shed_mysql_options *options,
                                  struct shed_source **out,
                                  struct shed_error *err)
{
    struct shed_source_options load = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options o;
    enum shed_code code =
        shed_mysql_config_init(&s->config, uri, options, &o, err);

    if (code == SHED_OK)
        code = take_load_options(o.source, &load, err);
    if (code == SHED_OK)
        code = shed_mysql_query_parse(query, &s->query, err);
    if (code != SHED_OK)
        return code;
    s->config.statement_limit_ms = load.load_timeout_ms;
    if (pthread_once(&library_once, init_library) == 0 && library_failure != 0)
        return shed_fail_nomem(err, "the MySQL client library");
    return shed_source_open_batch(run_load, s, &load, out, err);
}

enum shed_code shed_mysql_source_open(const char *uri, const char *query,
                                      const struct shed_mysql_options *options,
                                      struct shed_source **out,
                                      struct shed_error *err)
{
    struct mysql_source *s;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "MySQL source: out is NULL");
    *out = NULL;
    if (uri == NULL || query == NULL)
        return shed_fail(err, SHED_EINVAL, "MySQL source: %s is NULL",
                         uri == NULL ? "uri" : "query");
    s = calloc(1, sizeof(*s));
    if (s == NULL || shed_mutex_init(&s->pacer.mu, SHED_RANK_PACER) != 0) {
        free(s);
        return shed_fail_nomem(err, "a MySQL source");
    }
    code = open_source(s, uri, query, options, out, err);
    if (code != SHED_OK)
        destroy_source(s);
    return code;
}
