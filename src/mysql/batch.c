/*
 * Batches. Its one invariant: a key is absent only if the whole result held
 * neither a row for it nor a row that might have been meant for it.
 *
 * Design notes.
 *
 * A load can contain the same key twice (from two caches of one source). The
 * query contains it once, and the answer goes to all its twins.
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

static int compare_bytes(const void *a, size_t a_size, const void *b,
                         size_t b_size)
{
    size_t shorter = a_size < b_size ? a_size : b_size;
    int order = shorter > 0 ? memcmp(a, b, shorter) : 0;

    if (order != 0)
        return order;
    return (a_size > b_size) - (a_size < b_size);
}

static int compare_keys(const void *a, const void *b)
{
    const struct shed_mysql_asked *const *first = a, *const *second = b;

    return compare_bytes((*first)->data, (*first)->size, (*second)->data,
                         (*second)->size);
}

static void answer_kind(struct shed_load *load, size_t i,
                        enum shed_answer_kind kind, const char *reason)
{
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = kind;
    answer.reason = reason;
    shed_load_answer(load, i, &answer);
}

static void take_keys(struct shed_mysql_batch *batch)
{
    for (size_t i = 0; i < batch->load->count; i++) {
        const struct shed_wanted *wanted = &batch->load->keys[i];
        struct shed_mysql_asked *key = &batch->keys[i];
        key->index = i;
        key->data = wanted->key.data;
        key->size = wanted->key.size;
        batch->distinct[i] = key;
        if (wanted->value_limit_bytes > batch->value_limit_bytes)
            batch->value_limit_bytes = (size_t)wanted->value_limit_bytes;
    }
    batch->distinct_count = batch->load->count;
}

/* Sort, and chain equal keys to the first of them. */
static void join_twins(struct shed_mysql_batch *batch)
{
    struct shed_mysql_asked **d = batch->distinct;
    size_t kept = 0;

    qsort(d, batch->distinct_count, sizeof(struct shed_mysql_asked *),
          compare_keys);
    for (size_t i = 0; i < batch->distinct_count; i++) {
        if (kept > 0 && compare_keys(&d[kept - 1], &d[i]) == 0) {
            d[i]->twin = d[kept - 1]->twin;
            d[kept - 1]->twin = d[i];
        } else {
            d[kept++] = d[i];
        }
    }
    batch->distinct_count = kept;
}

bool shed_mysql_batch_init(struct shed_mysql_batch *batch,
                           struct shed_load *load)
{
    size_t count = load->count;

    *batch = (struct shed_mysql_batch){.load = load};
    batch->keys = calloc(count, sizeof(*batch->keys));
    batch->distinct = calloc(count, sizeof(struct shed_mysql_asked *));
    if (batch->keys == NULL || batch->distinct == NULL)
        return false;
    take_keys(batch);
    join_twins(batch);
    return true;
}

void shed_mysql_batch_fini(struct shed_mysql_batch *batch)
{
    free(batch->keys);
    free(batch->distinct);
}

struct shed_mysql_part shed_mysql_batch_whole(struct shed_mysql_batch *batch)
{
    return (struct shed_mysql_part){.batch = batch,
                                    .keys = batch->distinct,
                                    .count = batch->distinct_count};
}

/* ------------------------------------------------------------------ answers */

static void fail_key(struct shed_load *load, const struct shed_mysql_asked *key,
                     const char *reason)
{
    for (; key != NULL; key = key->twin)
        answer_kind(load, key->index, SHED_ANSWER_FAILED, reason);
}

static void miss_key(struct shed_load *load, const struct shed_mysql_asked *key)
{
    for (; key != NULL; key = key->twin)
        answer_kind(load, key->index, SHED_ANSWER_ABSENT, NULL);
}

static bool separates(char c)
{
    return c == ',' || c == ' ';
}

/* One tag more than an entry may have is enough for the key to fail. */
enum { TAGS_ROOM = SHED_TAGS_MAX + 1 };

static size_t split_tags(const struct shed_mysql_row *row,
                         struct shed_bytes tags[TAGS_ROOM])
{
    size_t begin = 0, count = 0;

    for (size_t at = 0; at <= row->tags_size && count < TAGS_ROOM; at++) {
        if (at < row->tags_size && !separates(row->tags[at]))
            continue;
        if (at > begin)
            tags[count++] = shed_bytes(row->tags + begin, at - begin);
        begin = at + 1;
    }
    return count;
}

static enum shed_answer_kind kind_of(const struct shed_wanted *wanted,
                                     const struct shed_mysql_row *row)
{
    if (row->has_version && wanted->old_version != NULL &&
        *wanted->old_version == row->version)
        return SHED_ANSWER_UNMODIFIED;
    if (row->is_too_big)
        return SHED_ANSWER_TOO_BIG;
    if (row->problem != NULL)
        return SHED_ANSWER_FAILED;
    return row->is_null ? SHED_ANSWER_NULL : SHED_ANSWER_ROW;
}

static void answer_row(struct shed_load *load, size_t i,
                       const struct shed_mysql_row *row)
{
    struct shed_answer answer = SHED_ANSWER_INIT;
    struct shed_bytes tags[TAGS_ROOM];

    answer.kind = kind_of(&load->keys[i], row);
    answer.row = shed_bytes(row->value, row->value_size);
    answer.reason = row->problem;
    answer.version = row->has_version ? &row->version : NULL;
    answer.tags = tags;
    answer.tags_count = split_tags(row, tags);
    shed_load_answer(load, i, &answer);
}

/* -------------------------------------------------------------------- parts */

static bool fits(const struct shed_mysql_column *column,
                 struct shed_mysql_asked *key)
{
    if (!shed_mysql_column_is_integer(column))
        return shed_mysql_column_holds_string(column, key->data, key->size);
    return shed_mysql_integer_parse(key->data, key->size, &key->number) &&
           shed_mysql_column_holds_integer(column, &key->number);
}

/* Keep key i: move it behind the keys that were kept before, at the front. */
static void keep(struct shed_mysql_part *part, size_t *kept, size_t i)
{
    struct shed_mysql_asked *key = part->keys[i];

    assert(*kept <= i && i < part->count);
    part->keys[i] = part->keys[*kept];
    part->keys[(*kept)++] = key;
}

void shed_mysql_part_start(struct shed_mysql_part *part,
                           const struct shed_mysql_column *column)
{
    part->strays = 0;
    part->asked_count = 0;
    part->is_integer = shed_mysql_column_is_integer(column);
    for (size_t i = 0; i < part->count; i++) {
        part->keys[i]->rows = 0;
        if (fits(column, part->keys[i]))
            keep(part, &part->asked_count, i);
        else
            miss_key(part->batch->load, part->keys[i]);
    }
    qsort(part->keys, part->asked_count, sizeof(struct shed_mysql_asked *),
          compare_keys);
}

void shed_mysql_part_parameter(void *user, size_t i,
                               struct shed_mysql_parameter *out)
{
    struct shed_mysql_part *part = user;
    struct shed_mysql_asked *key = part->keys[i];

    assert(i < part->asked_count);
    *out = (struct shed_mysql_parameter){.data = key->data, .size = key->size};
    if (part->is_integer) {
        out->data = &key->number.bits;
        out->is_unsigned = key->number.is_unsigned;
    }
}

static struct shed_mysql_asked *find(const struct shed_mysql_part *part,
                                     const void *data, size_t size)
{
    struct shed_mysql_asked wanted = {.data = data, .size = size};
    struct shed_mysql_asked *key = &wanted;
    struct shed_mysql_asked **found =
        bsearch(&key, part->keys, part->asked_count,
                sizeof(struct shed_mysql_asked *), compare_keys);

    return found != NULL ? *found : NULL;
}

void shed_mysql_part_row(void *user, const struct shed_mysql_row *row)
{
    struct shed_mysql_part *part = user;
    struct shed_mysql_asked *key = find(part, row->key, row->key_size);

    if (key == NULL) {
        part->strays++;
        return;
    }
    if (key->rows++ > 0) {
        /* do not guess which row is meant */
        fail_key(part->batch->load, key,
                 "MySQL: the query returned more than one row for this key");
        return;
    }
    for (; key != NULL; key = key->twin)
        answer_row(part->batch->load, key->index, row);
}

void shed_mysql_part_finish(struct shed_mysql_part *part)
{
    bool is_alone = part->asked_count == 1;
    size_t open = 0;

    for (size_t i = 0; i < part->asked_count; i++) {
        if (part->keys[i]->rows > 0)
            continue;
        if (part->strays == 0)
            miss_key(part->batch->load, part->keys[i]);
        else
            keep(part, &open, i);
    }
    part->asked_count = part->count = open;
    if (is_alone)
        shed_mysql_part_fail_strays(part);
}

void shed_mysql_part_halve(const struct shed_mysql_part *part,
                           struct shed_mysql_part halves[2])
{
    size_t half = part->asked_count / 2;

    assert(part->asked_count > 0 && part->asked_count == part->count);
    halves[0] = halves[1] = *part;
    halves[0].count = half;
    halves[1].keys += half;
    halves[1].count = part->asked_count - half;
}

void shed_mysql_part_fail_strays(struct shed_mysql_part *part)
{
    shed_mysql_part_fail(
        part, "MySQL: no row has exactly this key, but the server returned a "
              "row whose key it takes for equal, by the column's collation or "
              "type; or the query's first column is not the key");
    part->asked_count = part->count = 0;
}

void shed_mysql_part_fail(struct shed_mysql_part *part, const char *reason)
{
    for (size_t i = 0; i < part->count; i++)
        fail_key(part->batch->load, part->keys[i], reason);
}
