/*
 * The MySQL source: a source whose loads run a query, on a connection that
 * each loader thread has to itself. Its one invariant: a load is done only
 * when no query of it can be alive in the server, so that max_loads bounds the
 * queries there, those included that nobody waits for any more.
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
#include "base/random.h"
#include "mysql/batch.h"
#include "mysql/compat.h"
#include "mysql/config.h"
#include "mysql/connection.h"
#include "mysql/query.h"
#include "mysql/statement.h"

/* The pause after a connection that could not be opened: the first, and the
 * longest. */
enum { PAUSE_MIN_MS = 50, PAUSE_MAX_MS = 5000 };

/* Keeps the threads of a source from besieging a server that does not let them
 * in: after a failure one of them tries at a time, with growing pauses, and
 * the loads of the others fail at once. */
struct pacer {
    pthread_mutex_t mu;
    /* under mu */
    unsigned failures; /* in a row */
    uint64_t next_ms;
    char reason[SHED_REASON_BYTES]; /* of the last one */
};

struct mysql_source {
    /* set at creation */
    struct shed_mysql_config config;
    struct shed_mysql_select select;
    struct pacer pacer;
};

/* What a loader thread has. */
struct loader {
    struct shed_mysql_connection connection;
    struct shed_mysql_statements statements;
};

/* ------------------------------------------------------------------ pacer */

/* May a connection be tried now? *round is for report. */
static bool ask_pacer(struct pacer *p, unsigned *round, struct shed_error *err)
{
    uint64_t now_ms = shed_now_ms();
    bool may;

    pthread_mutex_lock(&p->mu);
    *round = p->failures;
    may = p->failures == 0 || now_ms >= p->next_ms;
    if (!may)
        (void)shed_fail(err, SHED_ESOURCE,
                        "MySQL: not tried again before %u ms, after: %s",
                        (unsigned)shed_left_ms(p->next_ms, now_ms), p->reason);
    else if (p->failures > 0)
        p->next_ms = now_ms + PAUSE_MAX_MS; /* until it has reported */
    pthread_mutex_unlock(&p->mu);
    return may;
}

/* Several that fail together, having begun in the same round, count once. */
static void report_failure(struct pacer *p, unsigned round,
                           const struct shed_error *error)
{
    pthread_mutex_lock(&p->mu);
    if (p->failures == round) {
        p->next_ms = shed_now_ms() +
                     shed_backoff_equal_ms(p->failures, PAUSE_MIN_MS,
                                           PAUSE_MAX_MS, shed_random_jitter());
        p->failures++;
        memcpy(p->reason, error->reason, sizeof(p->reason));
    }
    pthread_mutex_unlock(&p->mu);
}

static void report_success(struct pacer *p)
{
    pthread_mutex_lock(&p->mu);
    p->failures = 0;
    pthread_mutex_unlock(&p->mu);
}

/* ------------------------------------------------------------------ loads */

static void drop_connection(struct loader *l)
{
    shed_mysql_connection_close(&l->connection);
    shed_mysql_statements_drop(&l->statements);
}

/* Have a connection that reads the present. */
static bool ensure_connection(struct mysql_source *s, struct loader *l,
                              struct shed_mysql_failure *failure)
{
    unsigned round;

    if (shed_mysql_connection_is_fit(&l->connection))
        return true;
    drop_connection(l);
    *failure = (struct shed_mysql_failure){0};
    if (!ask_pacer(&s->pacer, &round, &failure->error))
        return false;
    if (!shed_mysql_connection_open(&l->connection, failure)) {
        /* The same trouble on a new one again is not passing. */
        failure->is_passing = false;
        report_failure(&s->pacer, round, &failure->error);
        return false;
    }
    report_success(&s->pacer);
    return true;
}

/* Drop the connection on which something failed. */
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

/* Ask for the keys that the column can hold. Where it can hold none, and it was
 * not looked at just now, look again: a table can be altered. */
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

/* Run the query once. What fails costs the connection, unless it is known to
 * have left it as it was. */
static bool try_query(struct mysql_source *s, struct loader *l,
                      struct shed_mysql_part *part,
                      struct shed_mysql_failure *failure)
{
    struct shed_mysql_run run = {.select = &s->select,
                                 .statements = &l->statements,
                                 .connection = &l->connection,
                                 .count = part->count,
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

/* Three odd keys of a batch are found, each by two queries for every halving,
 * and more where they lie side by side. Beyond that the keys among which odd
 * ones are left fail together: keys come from anybody, and must not multiply
 * the queries. */
enum { QUERIES_PER_HALVING = 6 };

/* One load as it is answered. */
struct answering {
    struct mysql_source *s;
    struct loader *l;
    struct shed_load *load;
    size_t spare_queries; /* for halves */
    bool has_repeated;
    bool is_given_up; /* as failure says */
    struct shed_mysql_failure failure;
};

/* A read can be repeated, and one repetition is enough for what passes: a
 * connection that the server has closed while it was idle, a restart. */
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

/* Answer a part by its halves, if queries for them can be spared. */
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

/* Some rows were of other keys than those asked for: find out whose they are.
 */
static void answer_open(struct answering *a, struct shed_mysql_part *part)
{
    if (part->count == 0 || answer_halves(a, part))
        return;
    shed_mysql_part_fail_strays(part);
}

/* Answer the keys of a part, all of them. */
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
    answer_part(&a, &whole);
}

static void fail_all(struct shed_load *load, const char *reason)
{
    for (size_t i = 0; i < shed_load_count(load); i++)
        shed_load_fail(load, i, reason);
}

static void run_load(void *user, void *thread, struct shed_load *load)
{
    struct mysql_source *s = user;
    struct shed_mysql_batch batch = {0};

    if (thread == NULL ||
        !shed_mysql_batch_init(&batch, load, s->select.is_integer))
        fail_all(load, "out of memory for a batch");
    else if (batch.distinct_count > 0)
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
    pthread_mutex_destroy(&s->pacer.mu);
    free(s);
}

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static int library_failure;

/* Once in a process, and never ended: the program may use the library too. Its
 * first use sets SIGPIPE to be ignored, whoever makes it. That stays where the
 * signal would end the process: the program's own connections rely on it, and
 * the library does not set it a second time. A handler of the program's is put
 * back: it was set on purpose, and ends nothing by itself. */
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
        code = shed_fail(err, SHED_EINVAL,
                         "MySQL source: its callbacks must be NULL");
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
    s->select.is_integer = o->key == SHED_MYSQL_KEY_INTEGER;
    s->select.max_keys = (size_t)source->max_batch;
    s->select.value_limit_bytes = (size_t)o->value_limit_bytes;
    return SHED_OK;
}

static enum shed_code create_source(struct mysql_source **out,
                                    struct shed_error *err)
{
    struct mysql_source *s = calloc(1, sizeof(*s));

    if (s == NULL || pthread_mutex_init(&s->pacer.mu, NULL) != 0) {
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
        code = shed_source_open(run_load, s, &source, out, err);
    if (code != SHED_OK)
        destroy_source(s);
    return code;
}
