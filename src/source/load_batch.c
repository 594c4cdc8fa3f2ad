/* The answers of a load. Its invariant: a key has at most one answer, the last
 * that was given. */
#include "source/load_batch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/value.h"
#include "entry/entry.h"

uint64_t shed_load_remaining_ms(const struct shed_load *load)
{
    const struct shed_load_batch *batch = (const struct shed_load_batch *)load;

    return shed_left_ms(batch->deadline_ms, shed_now_ms());
}

/* ------------------------------------------------------------- one answer */

/* A row without one of its tags has failed: it could not be invalidated by
 * that. */
static bool take_tags(const struct shed_answer *answer, struct shed_loaded *l)
{
    bool is_good = answer->tags_count <= SHED_TAGS_MAX;
    size_t room = 0;

    for (size_t t = 0; is_good && t < answer->tags_count; t++) {
        const struct shed_bytes *tag = &answer->tags[t];
        is_good = tag->data != NULL && tag->size > 0 &&
                  tag->size <= SHED_TAG_MAX_BYTES;
        room = SHED_ENTRY_TAG_ROOM_BYTES(room, tag->size);
    }
    if (!is_good) {
        (void)shed_fail(&l->error, SHED_ESOURCE,
                        "the source gave the row more than %d tags, or one "
                        "that is empty or longer than %d bytes",
                        SHED_TAGS_MAX, SHED_TAG_MAX_BYTES);
        return false;
    }
    if (answer->tags_count == 0)
        return true;
    l->tags = malloc(room);
    if (l->tags == NULL) {
        (void)shed_fail_nomem(&l->error, "a tag of the row");
        return false;
    }
    for (size_t t = 0; t < answer->tags_count; t++)
        l->tags_size = shed_entry_add_tag(
            l->tags, l->tags_size, answer->tags[t].data, answer->tags[t].size);
    return true;
}

/* A value, or the error in *l. */
static void take_value(const struct shed_job *job, enum shed_kind kind,
                       struct shed_bytes row, struct shed_loaded *l)
{
    if (row.size > job->value_limit_bytes) {
        (void)shed_fail(&l->error, SHED_ETOOBIG,
                        "the value has %zu bytes, value_limit_bytes is %zu",
                        row.size, job->value_limit_bytes);
        return;
    }
    l->value =
        shed_value_create(kind, SHED_ORIGIN_UNPUBLISHED, row.data, row.size);
    if (l->value == NULL)
        (void)shed_fail_nomem(&l->error, "a loaded value");
}

static void take_failure(enum shed_code code, const char *reason,
                         struct shed_loaded *l)
{
    (void)shed_fail(&l->error, code, "%s",
                    reason != NULL ? reason : "the source gave no reason");
}

static void take_kind(const struct shed_job *job,
                      const struct shed_answer *answer, struct shed_loaded *l)
{
    static const enum shed_kind kinds[] = {
        [SHED_ANSWER_ROW] = SHED_KIND_ROW,
        [SHED_ANSWER_NULL] = SHED_KIND_NULL,
        [SHED_ANSWER_ABSENT] = SHED_KIND_ABSENT,
        [SHED_ANSWER_UNMODIFIED] = SHED_KIND_ROW};
    const struct shed_bytes none = shed_bytes(NULL, 0);

    l->is_unmodified = answer->kind == SHED_ANSWER_UNMODIFIED;
    if (answer->kind > SHED_ANSWER_TOO_BIG)
        take_failure(SHED_ESOURCE,
                     "the source gave an answer of a kind that there is not",
                     l);
    else if (answer->kind == SHED_ANSWER_TOO_BIG)
        take_failure(SHED_ETOOBIG, answer->reason, l);
    else if (answer->kind == SHED_ANSWER_FAILED)
        take_failure(SHED_ESOURCE, answer->reason, l);
    else if (l->is_unmodified && !job->old_version.is_known)
        take_failure(SHED_ESOURCE,
                     "the source answered \"unmodified\" for a row whose old "
                     "version it was not given",
                     l);
    else
        take_value(job, kinds[answer->kind],
                   answer->kind == SHED_ANSWER_ROW ? answer->row : none, l);
}

static void drop_value(struct shed_loaded *l)
{
    shed_value_unref(l->value);
    l->value = NULL;
}

static struct shed_loaded take(const struct shed_job *job,
                               const struct shed_answer *answer)
{
    struct shed_loaded l = {.has_ttl = answer->ttl_ms != 0};

    take_kind(job, answer, &l);
    if (l.value != NULL && !take_tags(answer, &l))
        drop_value(&l);
    /* "no such row" has none, whatever the source says */
    if (answer->version != NULL && answer->kind != SHED_ANSWER_ABSENT)
        l.version = (struct shed_row_version){.number = *answer->version,
                                              .is_known = true};
    if (l.has_ttl && answer->ttl_ms != SHED_TTL_NONE)
        l.ttl_ms =
            answer->ttl_ms < SHED_TTL_MAX_MS ? answer->ttl_ms : SHED_TTL_MAX_MS;
    return l;
}

void shed_load_answer(struct shed_load *load, size_t i,
                      const struct shed_answer *answer)
{
    struct shed_load_batch *batch = shed_load_batch_of(load);
    struct shed_answer known = SHED_ANSWER_INIT;
    struct shed_loaded taken, replaced;

    /* an older program has fewer fields */
    memcpy(&known, answer,
           answer->size < sizeof(known) ? answer->size : sizeof(known));
    if (i < load->count) {
        taken = take(batch->jobs[i], &known);
        shed_mutex_lock(&batch->mu);
        replaced = batch->jobs[i]->loaded;
        batch->jobs[i]->loaded = taken;
        shed_mutex_unlock(&batch->mu);
        drop_value(&replaced);
        free(replaced.tags);
    }
    free(known.memory);
}

/* -------------------------------------------------------------- the batch */

/* A query fails for one reason, and rarely do its rows for a few. */
#define REASONS_MAX 4

static bool are_alike(const struct shed_job *a, const struct shed_job *b)
{
    return a->group == b->group &&
           a->loaded.error.code == b->loaded.error.code &&
           strcmp(a->loaded.error.reason, b->loaded.error.reason) == 0;
}

/* Count the failures for each reason, so that one line can tell of them all. An
 * error is not absence: a key that was passed over has failed. */
static void count_failures(struct shed_load_batch *batch)
{
    struct shed_job *first[REASONS_MAX];
    size_t reasons = 0;

    for (size_t i = 0; i < batch->load.count; i++) {
        struct shed_job *job = batch->jobs[i];
        size_t r = 0;
        if (job->loaded.value != NULL)
            continue;
        if (job->loaded.error.code == SHED_OK)
            (void)shed_fail(&job->loaded.error, SHED_ESOURCE,
                            "the source gave no answer for this key");
        while (r < reasons && !are_alike(first[r], job))
            r++;
        if (r == reasons && r < REASONS_MAX)
            first[reasons++] = job;
        (r < reasons ? first[r] : job)->loaded.failed_keys++;
    }
}

uint64_t shed_load_batch_id(const struct shed_load_batch *batch)
{
    if (batch->load.count != 1)
        return 0;
    return shed_hash(batch->jobs[0]->key, batch->jobs[0]->key_size, 0) | 1;
}

bool shed_load_batch_settle(struct shed_load_batch *batch,
                            struct shed_error *why)
{
    bool has_failed = batch->load.count > 0;

    count_failures(batch);
    if (has_failed)
        *why = batch->jobs[0]->loaded.error;
    for (size_t i = 0; i < batch->load.count; i++) {
        struct shed_job *job = batch->jobs[i];
        if (job->loaded.value != NULL || job->loaded.error.code != SHED_ESOURCE)
            has_failed = false;
        job->loaded.cost_us = batch->admitted.cost_us;
        job->loaded.batch_keys = i == 0 ? batch->load.count : 0;
        job->settle(job);
    }
    return has_failed;
}

/* -------------------------------------------------------- begin and end */

struct shed_load_batch *shed_load_batch_create(struct shed_source *source,
                                               size_t capacity)
{
    struct shed_load_batch *batch =
        calloc(1, sizeof(*batch) + capacity * (sizeof(*batch->keys) +
                                               sizeof(struct shed_job *)));

    if (batch == NULL || shed_mutex_init(&batch->mu, SHED_RANK_BATCH) != 0) {
        free(batch);
        return NULL;
    }
    batch->source = source;
    batch->load.keys = batch->keys;
    batch->jobs = (struct shed_job **)(batch->keys + capacity);
    return batch;
}

void shed_load_batch_destroy(struct shed_load_batch *batch)
{
    shed_mutex_destroy(&batch->mu);
    free(batch);
}

void shed_load_batch_add(struct shed_load_batch *batch, struct shed_job *job)
{
    size_t i = batch->load.count++;

    batch->jobs[i] = job;
    batch->keys[i] = (struct shed_wanted){
        shed_bytes(job->key, job->key_size),
        job->old_version.is_known ? &job->old_version.number : NULL,
        job->value_limit_bytes};
}
