/*
 * Batches. Its one invariant: a key is absent only if the whole result held
 * neither a row for it nor a row that might have been meant for it.
 *
 * Design notes.
 *
 * A load can contain the same key twice (from two caches of one source): a row
 * answers all keys that have its bytes.
 *
 * A row belongs to the key whose bytes it repeats. The server compares by the
 * column's collation instead (MySQL manual, "Collation Coercibility in
 * Expressions"): for the key "abc" it may return the row of "ABC". Such a row
 * is a stray. With a stray in the result, no key without a row is known to be
 * absent, because the stray may be its row. These keys stay open, and the
 * source asks for them again in halves: a key that is asked for alone and still
 * gets a stray is the odd one.
 *
 * The keys that a query asks for are the first of the part, sorted by bytes, so
 * that a row's key is found by bisection, and each half is a part itself.
 */
#include "mysql/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int compare_keys(const void *a, const void *b)
{
    struct shed_bytes first = ((const struct shed_mysql_asked *)a)->key;
    struct shed_bytes second = ((const struct shed_mysql_asked *)b)->key;
    size_t shorter = first.size < second.size ? first.size : second.size;
    int order = shorter > 0 ? memcmp(first.data, second.data, shorter) : 0;

    if (order != 0)
        return order;
    return (first.size > second.size) - (first.size < second.size);
}

bool shed_mysql_part_init(struct shed_mysql_part *whole, struct shed_load *load)
{
    struct shed_mysql_asked *keys = calloc(load->count, sizeof(*keys));

    if (keys == NULL)
        return false;
    *whole = (struct shed_mysql_part){
        .load = load, .keys = keys, .count = load->count};
    for (size_t i = 0; i < load->count; i++) {
        const struct shed_wanted *wanted = &load->keys[i];
        keys[i] = (struct shed_mysql_asked){.key = wanted->key, .index = i};
        if (wanted->value_limit_bytes > whole->value_limit_bytes)
            whole->value_limit_bytes = (size_t)wanted->value_limit_bytes;
    }
    return true;
}

void shed_mysql_part_fini(struct shed_mysql_part *whole)
{
    free(whole->keys);
}

/* ------------------------------------------------------------------ answers */

/* Give a key an answer without a row. */
static void answer_key(struct shed_load *load,
                       const struct shed_mysql_asked *key,
                       enum shed_answer_kind kind, const char *reason)
{
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = kind;
    answer.reason = reason;
    shed_load_answer(load, key->index, &answer);
}

/* Give a key the answer of its row. */
static void answer_row(struct shed_load *load,
                       const struct shed_mysql_asked *key,
                       const struct shed_answer *row)
{
    const uint64_t *old_version = load->keys[key->index].old_version;
    struct shed_answer answer = *row;

    if (answer.version != NULL && old_version != NULL &&
        *old_version == *answer.version)
        answer.kind = SHED_ANSWER_UNMODIFIED;
    shed_load_answer(load, key->index, &answer);
}

/* -------------------------------------------------------------------- parts */

/* Keep key i: move it behind the keys that were kept before, at the front. */
static void keep(struct shed_mysql_part *part, size_t *kept, size_t i)
{
    struct shed_mysql_asked key = part->keys[i];

    assert(*kept <= i && i < part->count);
    part->keys[i] = part->keys[*kept];
    part->keys[(*kept)++] = key;
}

void shed_mysql_part_start(struct shed_mysql_part *part,
                           const struct shed_mysql_column *column)
{
    part->has_strays = false;
    part->asked_count = 0;
    for (size_t i = 0; i < part->count; i++) {
        struct shed_mysql_asked *key = &part->keys[i];
        key->rows = 0;
        if (shed_mysql_column_holds(column, key->key, &key->number))
            keep(part, &part->asked_count, i);
        else
            answer_key(part->load, key, SHED_ANSWER_ABSENT, NULL);
    }
    qsort(part->keys, part->asked_count, sizeof(*part->keys), compare_keys);
}

void shed_mysql_part_row(struct shed_mysql_part *part, struct shed_bytes key,
                         const struct shed_answer *row)
{
    const struct shed_mysql_asked at = {.key = key};
    struct shed_mysql_asked *end = part->keys + part->asked_count, *found;

    found = bsearch(&at, part->keys, part->asked_count, sizeof(*part->keys),
                    compare_keys);
    if (found == NULL) {
        part->has_strays = true;
        return;
    }
    while (found > part->keys && compare_keys(found - 1, &at) == 0)
        found--;
    for (; found < end && compare_keys(found, &at) == 0; found++)
        if (found->rows++ == 0)
            answer_row(part->load, found, row);
        else /* do not guess which row is meant */
            answer_key(
                part->load, found, SHED_ANSWER_FAILED,
                "MySQL: the query returned more than one row for this key");
}

void shed_mysql_part_finish(struct shed_mysql_part *part)
{
    size_t open = 0;

    for (size_t i = 0; i < part->asked_count; i++) {
        if (part->keys[i].rows > 0)
            continue;
        if (part->has_strays)
            keep(part, &open, i);
        else
            answer_key(part->load, &part->keys[i], SHED_ANSWER_ABSENT, NULL);
    }
    part->count = open;
}

void shed_mysql_part_halve(const struct shed_mysql_part *part,
                           struct shed_mysql_part halves[2])
{
    size_t half = part->count / 2;

    halves[0] = halves[1] = *part;
    halves[0].count = half;
    halves[1].keys += half;
    halves[1].count = part->count - half;
}

void shed_mysql_part_fail(struct shed_mysql_part *part, const char *reason)
{
    for (size_t i = 0; i < part->count; i++)
        answer_key(part->load, &part->keys[i], SHED_ANSWER_FAILED, reason);
}
