/*
 * Questions whether rows are current. Its invariant: a row becomes near only by
 * a read that was sent while changes were announced, and no change was
 * announced between the read and its answer. Mostly that read is a question,
 * over the connection of which changes are announced; where all changes of the
 * key are, it is the GET. The reactor thread sends the questions, takes the
 * answers, and ends the epochs.
 */
#include "known/near.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/latch.h"
#include "base/value.h"
#include "known/local.h"
#include "known/tag_log.h"

/* The questions that may be under way. A row that finds no place is asked for
 * at its next GET. */
#define QUESTIONS_MAX 4096

/* The last byte of the header. */
#define LAST_BYTE "63"
_Static_assert(SHED_ENTRY_HEADER_BYTES == 64, "that is its last byte");

struct question {
    struct shed_post post;
    struct shed_near *near;
    struct shed_call call;
    struct shed_local_mark mark;
    size_t size;
    char key[];
};

struct shed_near {
    /* set at creation */
    struct shed_cache *cache;
    struct shed_local *local;
    /* atomic */
    atomic_size_t count; /* of all questions */
    /* reactor thread only */
    bool is_closing;
    struct shed_latch end; /* then: waits for the last question */
};

static struct shed_bytes key_of(const struct question *q)
{
    return shed_bytes(q->key, q->size);
}

/* ----------------------------------------------------------- the questions */

static void leave(struct shed_near *near)
{
    if (atomic_fetch_sub(&near->count, 1) == 1 && near->is_closing)
        shed_latch_count_down(&near->end, 1);
}

/* header: NULL if there is no answer. */
static void end(struct question *q, const void *header)
{
    struct shed_near *near = q->near;

    shed_local_confirm(near->local, key_of(q), q->mark, header);
    free(q);
    leave(near);
}

static void on_answer(void *arg, const struct shed_call_result *result)
{
    struct question *q = arg;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(result->reply, &size);

    end(q, size == SHED_ENTRY_HEADER_BYTES ? bytes : NULL);
}

static void send_question(struct shed_post *post)
{
    struct question *q = shed_container_of(post, struct question, post);
    struct shed_near *near = q->near;
    struct shed_client *client = near->cache->client;
    struct shed_args args = {0};

    if (near->is_closing ||
        !shed_session_is_on(shed_client_session(client, key_of(q)))) {
        end(q, NULL);
        return;
    }
    q->mark = shed_local_mark(near->local, key_of(q));
    args.is_guarded = true;
    shed_args_add_text(&args, "GETRANGE");
    shed_args_add(&args, q->key, q->size);
    shed_args_add_text(&args, "0");
    shed_args_add_text(&args, LAST_BYTE);
    shed_client_send(client, &q->call, &args, on_answer, q);
}

static struct question *create_question(struct shed_near *near,
                                        struct shed_bytes key)
{
    struct question *q = calloc(1, sizeof(*q) + key.size);

    if (q == NULL)
        return NULL;
    q->post.run = send_question;
    q->near = near;
    q->size = key.size;
    memcpy(q->key, key.data, key.size);
    return q;
}

void shed_near_ask(struct shed_near *near, const struct shed_key *key,
                   struct shed_local_mark mark, const void *header)
{
    struct question *q = NULL;

    if (!shed_local_asks(near->local, key->redis, shed_awake_by_ms()))
        return;
    if (shed_client_hears_all(near->cache->client, key->redis)) {
        shed_local_confirm(near->local, key->redis, mark, header);
        return;
    }
    if (atomic_load_explicit(&near->count, memory_order_relaxed) <
        QUESTIONS_MAX)
        q = create_question(near, key->redis);
    if (q == NULL) {
        shed_local_confirm(near->local, key->redis, mark, NULL);
        return;
    }
    atomic_fetch_add(&near->count, 1);
    shed_reactor_post(near->cache->client->reactor, &q->post);
}

/* ---------------------------------------------------------------- the hits */

/* By its tags. While the log is not known, the GET reads it. */
static bool is_admitted(const struct shed_near *near,
                        const struct shed_value *value)
{
    struct shed_tag_log *log = near->cache->tag_log;

    return log == NULL || (shed_tag_log_is_known(log) &&
                           shed_tag_log_admits(log, shed_value_header(value)));
}

struct shed_value *shed_near_get(struct shed_near *near, struct shed_bytes key,
                                 const struct shed_freshness_rule *rule,
                                 bool *is_due)
{
    struct shed_local_near found;
    enum shed_freshness freshness;
    bool is_taken;

    if (!shed_local_begin_near(near->local, key, shed_awake_by_ms(), &found))
        return NULL;
    freshness = shed_local_judge(&found.row, rule);
    *is_due = freshness == SHED_FRESHNESS_DUE;
    is_taken = (freshness == SHED_FRESHNESS_FRESH || *is_due) &&
               is_admitted(near, found.row.value);
    shed_local_end_near(&found, is_taken);
    return is_taken ? found.row.value : NULL;
}

void shed_near_count(struct shed_near *near)
{
    struct shed_counters *counters = &near->cache->counters;
    struct shed_local_hits hits = shed_local_take_hits(near->local);

    shed_count(&counters->hits, hits.rows);
    shed_count(&counters->negative_hits, hits.absent);
    shed_count(&counters->near_hits, hits.rows + hits.absent);
}

/* ------------------------------------------------------------------ pushes */

void shed_near_change(struct shed_near *near, struct shed_bytes key)
{
    if (near != NULL && /* no lease of a refresh */
        ((const char *)key.data)[key.size - 1] == '}')
        shed_local_change(near->local, key);
}

void shed_near_epoch(struct shed_near *near)
{
    if (near != NULL)
        shed_local_change_all(near->local);
}

/* ----------------------------------------------------------- begin and end */

struct shed_near *shed_near_create(struct shed_cache *cache)
{
    struct shed_near *near = calloc(1, sizeof(*near));

    if (near == NULL)
        return NULL;
    near->cache = cache;
    near->local = cache->local;
    shed_latch_init(&near->end, 1);
    return near;
}

static void close_on_reactor(void *arg)
{
    struct shed_near *near = arg;

    near->is_closing = true;
    if (atomic_load(&near->count) == 0)
        shed_latch_count_down(&near->end, 1);
}

void shed_near_close(struct shed_near *near)
{
    if (near == NULL)
        return;
    shed_reactor_run(near->cache->client->reactor, close_on_reactor, near);
    (void)shed_latch_wait(&near->end, UINT64_MAX);
}

void shed_near_destroy(struct shed_near *near)
{
    free(near);
}
