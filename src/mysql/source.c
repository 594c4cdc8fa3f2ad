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
    struct shed_mysql_select select;
    struct pacer pacer;
};

/* The state of one loader thread. */
struct loader {
    struct shed_mysql_connection connection;
    struct shed_mysql_statements statements;
    bool is_probe; /* its load */
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

static void drop_connection(struct loader *l)
{
    shed_mysql_connection_close(&l->connection);
    shed_mysql_statements_drop(&l->statements);
}

/* Open a connection unless the thread has one that is fit for use. */
static bool ensure_connection(struct mysql_source *s, struct loader *l,
                              struct shed_mysql_failure *failure)
{
    unsigned round;

    if (shed_mysql_connection_is_fit(&l->connection))
        return true;
    drop_connection(l);
    *failure = (struct shed_mysql_failure){0};
    if (!ask_pacer(&s->pacer, l->is_probe, &round, &failure->error))
        return false;
    if (!shed_mysql_connection_open(&l->connection, failure)) {
        /* a failure on a new connection is not a passing one */
        failure->is_passing = false;
        report_failure(&s->pacer, round, &failure->error);
        return false;
    }
    report_success(&s->pacer);
    return true;
}

/* Drop a connection on which something failed. */
static void drop_failed(struct mysql_source *s, struct loader *l,
                        const struct shed_mysql_failure *failure,
                        uint64_t began_ms)
{
    shed_mysql_connection_abandon(&l->connection, failure, began_ms);
    shed_mysql_statements_drop(&l->statements);
    if (shed_mysql_is_overload(failure->number))
        report_failure(&s->pacer, 0, &failure->error);
    shed_mysql_connection_end_lost(&l->connection);
}

/* Query the keys that the column can hold. If it can hold none and its type was
 * learnt earlier, learn it again, because the table may have been altered. */
static bool run_query(struct shed_mysql_run *run, struct shed_mysql_part *part,
                      struct shed_mysql_failure *failure)
{
    const struct shed_mysql_statements *known = run->statements;
    bool was_known = known->is_column_known;

    if (!shed_mysql_run_learn(run, false, failure))
        return false;
    shed_mysql_part_start(part, &known->column);
    if (part->asked_count == 0 && was_known) {
        if (!shed_mysql_run_learn(run, true, failure))
            return false;
        shed_mysql_part_start(part, &known->column);
    }
    run->count = part->asked_count;
    return part->asked_count == 0 || shed_mysql_run_query(run, failure);
}

/* Run the query once. A failure costs the connection, unless it is known to
 * have left the connection as it was. */
static bool try_query(struct mysql_source *s, struct loader *l,
                      struct shed_mysql_part *part,
                      struct shed_mysql_failure *failure)
{
    struct shed_mysql_run run = {.select = &s->select,
                                 .statements = &l->statements,
                                 .connection = &l->connection,
                                 .count = part->count,
                                 .value_limit_bytes =
                                     part->batch->value_limit_bytes,
                                 .parameter = shed_mysql_part_parameter,
                                 .row = shed_mysql_part_row,
                                 .user = part};

    if (!ensure_connection(s, l, failure))
        return false;
    if (run_query(&run, part, failure))
        return true;
    if (!failure->is_kept)
        drop_failed(s, l, failure, run.began_ms);
    return false;
}

/* ---------------------------------------------------------------- batches */

/* Enough to find three odd keys of a batch, with two queries each for every
 * halving, and more of them if they are adjacent. After that, the keys of a
 * part that still has odd ones fail together: keys may come from strangers and
 * must not multiply the queries. */
enum { QUERIES_PER_HALVING = 6 };

/* A load while its keys are answered. */
struct answering {
    struct mysql_source *s;
    struct loader *l;
    struct shed_load *load;
    size_t spare_queries; /* for halves */
    bool has_repeated;    /* a query, after a passing failure */
    bool is_given_up;     /* the remaining keys fail with failure */
    struct shed_mysql_failure failure;
};

/* Query a part. A read can be repeated; once is enough for passing failures,
 * where the server had closed an idle connection or was restarted. */
static bool ask_part(struct answering *a, struct shed_mysql_part *part)
{
    if (try_query(a->s, a->l, part, &a->failure))
        return true;
    if (!a->failure.is_passing || a->has_repeated ||
        shed_load_remaining_ms(a->load) == 0)
        return false;
    a->has_repeated = true;
    return try_query(a->s, a->l, part, &a->failure);
}

static void answer_part(struct answering *a, struct shed_mysql_part *part);

/* Answer a part by its halves. Returns false if no spare queries are left. */
static bool answer_halves(struct answering *a,
                          const struct shed_mysql_part *part)
{
    enum { HALVES = 2 };
    struct shed_mysql_part halves[HALVES];

    if (a->spare_queries < HALVES || shed_load_remaining_ms(a->load) == 0)
        return false;
    a->spare_queries -= HALVES;
    shed_mysql_part_halve(part, halves);
    for (size_t i = 0; i < HALVES; i++)
        answer_part(a, &halves[i]);
    return true;
}

/* Rows came back for keys that were not asked for: find out which keys caused
 * them. */
static void answer_open(struct answering *a, struct shed_mysql_part *part)
{
    if (part->count == 0 || answer_halves(a, part))
        return;
    shed_mysql_part_fail_strays(part);
}

/* Answer every key of a part. */
static void answer_part(struct answering *a, struct shed_mysql_part *part)
{
    if (part->count == 0)
        return;
    if (!a->is_given_up && ask_part(a, part)) {
        shed_mysql_part_finish(part);
        answer_open(a, part);
        return;
    }
    if (!a->is_given_up && a->failure.is_by_key) {
        part->count = part->asked_count; /* the others are absent */
        if (part->count > 1 && answer_halves(a, part))
            return;
    } else {
        a->is_given_up = true;
    }
    shed_mysql_part_fail(part, a->failure.error.reason);
}

static void answer_batch(struct mysql_source *s, struct loader *l,
                         struct shed_mysql_batch *batch)
{
    struct shed_mysql_part whole = shed_mysql_batch_whole(batch);
    struct answering a = {.s = s, .l = l, .load = batch->load};

    for (size_t left = whole.count; left > 1; left = (left + 1) / 2)
        a.spare_queries += QUERIES_PER_HALVING;
    l->is_probe = batch->load->is_probe != 0;
    answer_part(&a, &whole);
}

static void fail_all(struct shed_load *load, const char *reason)
{
    struct shed_answer failed = SHED_ANSWER_INIT;

    failed.reason = reason;
    for (size_t i = 0; i < load->count; i++)
        shed_load_answer(load, i, &failed);
}

static void run_load(void *user, void *thread, struct shed_load *load)
{
    struct mysql_source *s = user;
    struct shed_mysql_batch batch = {0};

    if (thread == NULL || !shed_mysql_batch_init(&batch, load))
        fail_all(load, "out of memory for a batch");
    else
        answer_batch(s, thread, &batch);
    shed_load_done(load);
    shed_mysql_batch_fini(&batch);
}

static void *start_loader(void *user)
{
    struct mysql_source *s = user;
    struct loader *l;

    if (mysql_thread_init() != 0)
        return NULL;
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        mysql_thread_end();
    else
        l->connection.config = &s->config;
    return l;
}

static void stop_loader(void *user, void *thread)
{
    (void)user;
    if (thread == NULL)
        return;
    drop_connection(thread);
    free(thread);
    mysql_thread_end();
}

/* ---------------------------------------------------------------- opening */

static void destroy_source(void *user)
{
    struct mysql_source *s = user;

    shed_mysql_config_fini(&s->config);
    shed_mysql_query_fini(&s->select.query);
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

static enum shed_code take_options(const struct shed_mysql_options *given,
                                   struct shed_mysql_options *o,
                                   struct shed_source_options *source,
                                   struct shed_error *err)
{
    enum shed_code code = shed_mysql_options_take(given, o, err);

    if (code == SHED_OK)
        code = shed_options_take(source, sizeof(*source), o->source,
                                 "struct shed_source_options", err);
    if (code == SHED_OK &&
        (source->thread_start != NULL || source->thread_stop != NULL ||
         source->on_close != NULL))
        code =
            shed_fail(err, SHED_EINVAL,
                      "MySQL source: the callbacks thread_start, thread_stop "
                      "and on_close must be NULL, it has its own");
    source->thread_start = start_loader;
    source->thread_stop = stop_loader;
    source->on_close = destroy_source;
    return code;
}

static enum shed_code fill_source(struct mysql_source *s, const char *uri,
                                  const char *query,
                                  const struct shed_mysql_options *o,
                                  const struct shed_source_options *source,
                                  struct shed_error *err)
{
    enum shed_code code = shed_mysql_config_init(&s->config, uri, o, err);

    if (code == SHED_OK)
        code = shed_mysql_query_parse(query, &s->select.query, err);
    if (code != SHED_OK)
        return code;
    s->config.statement_limit_ms = source->load_timeout_ms;
    s->select.max_keys = (size_t)source->max_batch;
    return SHED_OK;
}

static enum shed_code create_source(struct mysql_source **out,
                                    struct shed_error *err)
{
    struct mysql_source *s = calloc(1, sizeof(*s));

    if (s == NULL || shed_mutex_init(&s->pacer.mu, SHED_RANK_PACER) != 0) {
        free(s);
        return shed_fail_nomem(err, "a MySQL source");
    }
    *out = s;
    return SHED_OK;
}

enum shed_code shed_mysql_source_open(const char *uri, const char *query,
                                      const struct shed_mysql_options *options,
                                      struct shed_source **out,
                                      struct shed_error *err)
{
    struct shed_mysql_options o;
    struct shed_source_options source = SHED_SOURCE_OPTIONS_INIT;
    struct mysql_source *s = NULL;
    enum shed_code code;

    if (out == NULL)
        return shed_fail(err, SHED_EINVAL, "MySQL source: out is NULL");
    *out = NULL;
    if (uri == NULL || query == NULL)
        return shed_fail(err, SHED_EINVAL, "MySQL source: %s is NULL",
                         uri == NULL ? "uri" : "query");
    code = take_options(options, &o, &source, err);
    if (code == SHED_OK)
        code = create_source(&s, err);
    if (code != SHED_OK)
        return code;
    code = fill_source(s, uri, query, &o, &source, err);
    if (code == SHED_OK && pthread_once(&library_once, init_library) == 0 &&
        library_failure != 0)
        code = shed_fail_nomem(err, "the MySQL client library");
    if (code == SHED_OK)
        code = shed_source_open_batch(run_load, s, &source, out, err);
    if (code != SHED_OK)
        destroy_source(s);
    return code;
}
