/* See rewrites.h. */
#include "support/rewrites.h"

#include <stdio.h>
#include <string.h>

const char *rewrite_key(unsigned i, char key[16])
{
    snprintf(key, 16, "w%u", i);
    return key;
}

static const char *row_at(const char *key, unsigned version, char row[32])
{
    snprintf(row, 32, "%s@%u", key, version);
    return row;
}

static enum shed_code write_one(struct shed_cache *cache, unsigned i,
                                unsigned number)
{
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;
    const uint64_t version = number;
    char key[16], row[32];
    struct shed_bytes k = shed_str(rewrite_key(i, key));

    o.version = &version;
    if (i % 3 == 0)
        return shed_invalidate(cache, k, 0, NULL);
    if (i % 3 == 1)
        return shed_expire(cache, k, 0, 0, NULL);
    return shed_put(cache, k, shed_str(row_at(key, number, row)), &o, NULL);
}

void rewrite_all(void)
{
    table_update(&fixture.table);
    for (unsigned i = 0; i < REWRITES; i++)
        EXPECT_OK(write_one(fixture.cache, i, fixture.table.version));
}

unsigned rewrites_missed(struct shed_cache *cache, unsigned version)
{
    unsigned missed = 0;
    char key[16], row[32];

    for (unsigned i = 0; i < REWRITES; i++) {
        struct shed_value *value = NULL;
        rewrite_key(i, key);
        row_at(key, version, row);
        EXPECT_OK(shed_get(cache, shed_str(key), NULL, &value, NULL));
        missed += value->size != strlen(row) ||
                  memcmp(value->data, row, strlen(row)) != 0;
        shed_value_unref(value);
    }
    return missed;
}

void expect_rewrites(struct shed_cache *cache)
{
    ck_assert_uint_eq(rewrites_missed(cache, fixture.table.version), 0);
}
