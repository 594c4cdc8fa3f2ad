/* The answers of a load. Its invariant: a key has at most one answer, the last
 * that was given. */
#include "source/load_batch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/value.h"
#include "entry/entry.h"

size_t shed_load_count(const struct shed_load *load)
{
    return load->count;
}

struct shed_bytes shed_load_key(const struct shed_load *load, size_t i)
{
    if (i >= load->count)
        return shed_bytes(NULL, 0);
    return shed_bytes(load->jobs[i]->key, load->jobs[i]->key_size);
}

uint64_t shed_load_remaining_ms(const struct shed_load *load)
{
    return shed_left_ms(load->deadline_ms, shed_now_ms());
}

int shed_load_is_probe(const struct shed_load *load)
{
    return load->admitted.is_probe;
}

int shed_load_old_version(const struct shed_load *load, size_t i,
                          uint64_t *version)
{
    const struct shed_row_version none = {.is_known = false};
    const struct shed_row_version old =
        i < load->count ? load->jobs[i]->old_version : none;

    if (old.is_known)
        *version = old.number;
    return old.is_known;
}

void shed_load_version(struct shed_load *load, size_t i, uint64_t version)
{
    if (i >= load->count)
        return;
    pthread_mutex_lock(&load->mu);
    load->answers[i].version =
        (struct shed_row_version){.number = version, .is_known = true};
    pthread_mutex_unlock(&load->mu);
}

void shed_load_ttl(struct shed_load *load, size_t i, uint64_t ttl_ms)
{
    if (i >= load->count)
        return;
    pthread_mutex_lock(&load->mu);
    load->answers[i].ttl_ms =
        ttl_ms < SHED_TTL_MAX_MS ? ttl_ms : SHED_TTL_MAX_MS;
    load->answers[i].has_ttl = true;
    pthread_mutex_unlock(&load->mu);
}

static enum shed_code add_tag(struct shed_loaded *l, struct shed_bytes tag)
{
    size_t at = 0, size, count = 0;
    unsigned char *tags;

    while (shed_entry_next_tag(l->tags, l->tags_size, &at, &size) != NULL)
        count++;
    if (tag.data == NULL || tag.size == 0 || tag.size > SHED_TAG_MAX_BYTES ||
        count == SHED_TAGS_MAX)
        return SHED_EINVAL;
    tags = realloc(l->tags, SHED_ENTRY_TAG_ROOM_BYTES(l->tags_size, tag.size));
    if (tags == NULL)
        return SHED_ENOMEM;
    l->tags = tags;
    l->tags_size = shed_entry_add_tag(tags, l->tags_size, tag.data, tag.size);
    return SHED_OK;
}

void shed_load_tag(struct shed_load *load, size_t i, struct shed_bytes tag)
{
    if (i >= load->count)
        return;
    pthread_mutex_lock(&load->mu);
    if (load->answers[i].tag_code == SHED_OK)
        load->answers[i].tag_code = add_tag(&load->answers[i], tag);
    pthread_mutex_unlock(&load->mu);
}

static void answer(struct shed_load *load, size_t i, struct shed_value *value,
                   const struct shed_error *error, bool is_unmodified)
{
    struct shed_value *before;

    pthread_mutex_lock(&load->mu);
    before = load->answers[i].value;
    load->answers[i].value = value;
    load->answers[i].is_unmodified = is_unmodified;
    if (error != NULL)
        load->answers[i].error = *error;
    pthread_mutex_unlock(&load->mu);
    shed_value_unref(before);
}

static void answer_value(struct shed_load *load, size_t i, enum shed_kind kind,
                         struct shed_bytes row)
{
    struct shed_value *value = NULL;
    struct shed_error error;
    size_t limit;

    if (i >= load->count)
        return;
    limit = load->jobs[i]->value_limit_bytes;
    if (row.size > limit) {
        (void)shed_fail(&error, SHED_ETOOBIG,
                        "the value has %zu bytes, value_limit_bytes is %zu",
                        row.size, limit);
    } else {
        value = shed_value_create(kind, SHED_ORIGIN_UNPUBLISHED, row.data,
                                  row.size);
        if (value == NULL)
            (void)shed_fail_nomem(&error, "a loaded value");
    }
    answer(load, i, value, value == NULL ? &error : NULL, false);
}

void shed_load_value(struct shed_load *load, size_t i, struct shed_bytes row)
{
    answer_value(load, i, SHED_KIND_ROW, row);
}

void shed_load_null(struct shed_load *load, size_t i)
{
    answer_value(load, i, SHED_KIND_NULL, shed_bytes(NULL, 0));
}

void shed_load_absent(struct shed_load *load, size_t i)
{
    answer_value(load, i, SHED_KIND_ABSENT, shed_bytes(NULL, 0));
}

static void answer_failure(struct shed_load *load, size_t i,
                           enum shed_code code, const char *reason)
{
    struct shed_error error;

    if (i >= load->count)
        return;
    (void)shed_fail(&error, code, "%s",
                    reason != NULL ? reason : "the source gave no reason");
    answer(load, i, NULL, &error, false);
}

void shed_load_too_big(struct shed_load *load, size_t i, const char *reason)
{
    answer_failure(load, i, SHED_ETOOBIG, reason);
}

void shed_load_fail(struct shed_load *load, size_t i, const char *reason)
{
    answer_failure(load, i, SHED_ESOURCE, reason);
}

void shed_load_unmodified(struct shed_load *load, size_t i)
{
    struct shed_value *value;
    struct shed_error error;

    if (i >= load->count)
        return;
    if (!load->jobs[i]->old_version.is_known) {
        shed_load_fail(load, i,
                       "the source answered \"unmodified\" for a row whose "
                       "old version it was not given");
        return;
    }
    value = shed_value_create(SHED_KIND_ROW, SHED_ORIGIN_UNPUBLISHED, NULL, 0);
    if (value == NULL)
        (void)shed_fail_nomem(&error, "a loaded value");
    answer(load, i, value, value == NULL ? &error : NULL, value != NULL);
}

static void fail_tags(struct shed_error *error, enum shed_code code)
{
    if (code == SHED_ENOMEM)
        (void)shed_fail_nomem(error, "a tag of the row");
    else
        (void)shed_fail(error, SHED_ESOURCE,
                        "the source gave the row more than %d tags, or one "
                        "that is empty or longer than %d bytes",
                        SHED_TAGS_MAX, SHED_TAG_MAX_BYTES);
}

/* An error is not absence: a key that was passed over has failed. So has one
 * without one of its tags, which could not be invalidated by it. */
static void fail_unanswered(struct shed_load *load)
{
    for (size_t i = 0; i < load->count; i++) {
        struct shed_loaded *l = &load->answers[i];
        if (l->value != NULL && l->tag_code != SHED_OK) {
            shed_value_unref(l->value);
            l->value = NULL;
            fail_tags(&l->error, l->tag_code);
        }
        if (l->value == NULL && l->error.code == SHED_OK)
            (void)shed_fail(&l->error, SHED_ESOURCE,
                            "the source gave no answer for this key");
    }
}

/* A query fails for one reason, and rarely do its rows for a few. */
#define REASONS_MAX 4

static bool are_alike(const struct shed_load *load, size_t i, size_t j)
{
    const struct shed_error *a = &load->answers[i].error;
    const struct shed_error *b = &load->answers[j].error;

    return load->jobs[i]->group == load->jobs[j]->group && a->code == b->code &&
           strcmp(a->reason, b->reason) == 0;
}

/* Count the failures for each reason, so that one line can tell of them all. */
static void count_failures(struct shed_load *load)
{
    size_t first[REASONS_MAX], reasons = 0;

    for (size_t i = 0; i < load->count; i++) {
        size_t r = 0;
        if (load->answers[i].value != NULL)
            continue;
        while (r < reasons && !are_alike(load, first[r], i))
            r++;
        if (r == reasons && r < REASONS_MAX)
            first[reasons++] = i;
        load->answers[r < reasons ? first[r] : i].failed_keys++;
    }
}

uint64_t shed_load_id(const struct shed_load *load)
{
    if (load->count != 1)
        return 0;
    return XXH3_64bits(load->jobs[0]->key, load->jobs[0]->key_size) | 1;
}

bool shed_load_settle(struct shed_load *load, uint64_t cost_us)
{
    bool has_failed = load->count > 0;

    fail_unanswered(load);
    count_failures(load);
    for (size_t i = 0; i < load->count; i++) {
        if (load->answers[i].value != NULL ||
            load->answers[i].error.code != SHED_ESOURCE)
            has_failed = false;
        load->answers[i].cost_us = cost_us;
        load->answers[i].batch_keys = i == 0 ? load->count : 0;
        load->jobs[i]->settle(load->jobs[i], &load->answers[i]);
    }
    return has_failed;
}

/* -------------------------------------------------------- begin and end */

struct shed_load *shed_load_create(struct shed_source *source, size_t capacity)
{
    struct shed_load *load = calloc(1, sizeof(*load));

    if (load == NULL || pthread_mutex_init(&load->mu, NULL) != 0) {
        free(load);
        return NULL;
    }
    load->source = source;
    load->jobs = calloc(capacity, sizeof(struct shed_job *));
    load->answers = calloc(capacity, sizeof(*load->answers));
    if (load->jobs == NULL || load->answers == NULL) {
        shed_load_destroy(load);
        return NULL;
    }
    return load;
}

void shed_load_destroy(struct shed_load *load)
{
    pthread_mutex_destroy(&load->mu);
    free(load->answers);
    free(load->jobs);
    free(load);
}
