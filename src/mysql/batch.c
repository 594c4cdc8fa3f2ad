/*
 * Batches. Its one invariant: a key is absent only if the whole result held
 * neither a row for it nor a row that might have been meant for it.
 */
#include "batch.h"

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

/* Put the keys that can be asked for into distinct. */
static void take_keys(struct shed_mysql_batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct shed_mysql_asked *key = &batch->keys[i];
        key->index = i;
        key->data = shed_load_key(batch->load, i, &key->size);
        if (batch->is_integer &&
            !shed_mysql_integer_parse(key->data, key->size, &key->number))
            shed_load_fail(batch->load, i,
                           "MySQL: the key is not a decimal integer of 64 "
                           "bits, without zeros before it");
        else
            batch->distinct[batch->distinct_count++] = key;
    }
}

/* Sort, and hang what is the same on the first of its kind. */
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
                           struct shed_load *load, bool is_integer)
{
    size_t count = shed_load_count(load);

    *batch = (struct shed_mysql_batch){.load = load, .is_integer = is_integer};
    batch->keys = calloc(count, sizeof(*batch->keys));
    batch->distinct = calloc(count, sizeof(struct shed_mysql_asked *));
    if (batch->keys == NULL || batch->distinct == NULL)
        return false;
    take_keys(batch, count);
    join_twins(batch);
    return true;
}

void shed_mysql_batch_fini(struct shed_mysql_batch *batch)
{
    free(batch->keys);
    free(batch->distinct);
}

void shed_mysql_batch_parameter(void *user, size_t i,
                                struct shed_mysql_parameter *out)
{
    struct shed_mysql_batch *batch = user;
    struct shed_mysql_asked *key = batch->distinct[i];

    *out = (struct shed_mysql_parameter){.data = key->data, .size = key->size};
    if (batch->is_integer) {
        out->data = &key->number.bits;
        out->is_unsigned = key->number.is_unsigned;
    }
}

static struct shed_mysql_asked *find(struct shed_mysql_batch *batch,
                                     const void *data, size_t size)
{
    struct shed_mysql_asked wanted = {.data = data, .size = size};
    struct shed_mysql_asked *key = &wanted;
    struct shed_mysql_asked **found =
        bsearch(&key, batch->distinct, batch->distinct_count,
                sizeof(struct shed_mysql_asked *), compare_keys);

    return found != NULL ? *found : NULL;
}

static void answer(struct shed_load *load, size_t i,
                   const struct shed_mysql_row *row)
{
    if (row->is_too_big)
        shed_load_too_big(load, i, row->problem);
    else if (row->problem != NULL)
        shed_load_fail(load, i, row->problem);
    else if (row->is_null)
        shed_load_null(load, i);
    else
        shed_load_value(load, i, row->value, row->value_size);
}

static void fail_key(struct shed_mysql_batch *batch,
                     struct shed_mysql_asked *key, const char *reason)
{
    for (; key != NULL; key = key->twin)
        shed_load_fail(batch->load, key->index, reason);
}

void shed_mysql_batch_row(void *user, const struct shed_mysql_row *row)
{
    struct shed_mysql_batch *batch = user;
    struct shed_mysql_asked *key = find(batch, row->key, row->key_size);

    if (key == NULL) {
        batch->strays++;
        return;
    }
    if (key->rows++ > 0) {
        /* Which of them is meant is nothing to guess at. */
        fail_key(batch, key,
                 "MySQL: the query gives more than one row for "
                 "this key");
        return;
    }
    for (; key != NULL; key = key->twin)
        answer(batch->load, key->index, row);
}

void shed_mysql_batch_restart(struct shed_mysql_batch *batch)
{
    batch->strays = 0;
    for (size_t i = 0; i < batch->distinct_count; i++)
        batch->distinct[i]->rows = 0;
}

void shed_mysql_batch_finish(struct shed_mysql_batch *batch)
{
    for (size_t i = 0; i < batch->distinct_count; i++) {
        struct shed_mysql_asked *key = batch->distinct[i];
        if (key->rows > 0)
            continue;
        if (batch->strays > 0)
            fail_key(batch, key,
                     "MySQL: no row has just this key, but the server returned "
                     "one with another that is equal to a key by the column's "
                     "collation or type");
        else
            for (; key != NULL; key = key->twin)
                shed_load_absent(batch->load, key->index);
    }
}

void shed_mysql_batch_fail(struct shed_mysql_batch *batch, const char *reason)
{
    for (size_t i = 0; i < batch->distinct_count; i++)
        fail_key(batch, batch->distinct[i], reason);
}
