/* kept: what a process keeps of rows, against a naive model. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/value.h"
#include "entry/key.h"
#include "known/local.h"
#include "wire/reply.h"
#include "support/testing.h"

enum { SHARDS = 16, KEYS = 40, AMPLE_BYTES = 1 << 20 };
enum { TTL_MS = 1000, IF_ERROR_MS = 300 };
enum { MAPPED_BYTES = 128 << 10 }; /* glibc's M_MMAP_THRESHOLD */

static const struct shed_freshness_rule rule = {.revalidate_ms = 100,
                                                .if_error_ms = IF_ERROR_MS};
static char names[KEYS][16];
static struct shed_counters counters;
static struct shed_local *local; /* of ample memory, unless a test opens it */

static struct shed_bytes key_of(unsigned i)
{
    return (struct shed_bytes){names[i], strlen(names[i])};
}

static struct shed_local_mark mark(unsigned i)
{
    return shed_local_mark(local, key_of(i));
}

static void close_local(void)
{
    shed_local_destroy(local);
    local = NULL;
}

static void open_with(size_t limit, uint64_t near_ms)
{
    close_local();
    local = shed_local_create(limit, near_ms, &rule, &counters);
}

static void set_up(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        snprintf(names[i], sizeof(names[i]), "t:{%u}", i);
    open_with(AMPLE_BYTES, 0);
}

static struct shed_value *create_value(enum shed_kind kind, size_t size)
{
    static const char bytes[256 << 10];
    struct shed_value *value =
        shed_value_create(kind, SHED_ORIGIN_UNPUBLISHED, bytes, size);

    ck_assert_ptr_nonnull(value);
    return value;
}

static void keep_at(unsigned i, struct shed_local_mark before,
                    struct shed_value *value, uint64_t age_ms, uint64_t now_ms)
{
    const struct shed_local_row row = {
        .value = value, .age_ms = age_ms, .ttl_ms = TTL_MS};

    shed_local_keep(local, key_of(i), before, &row, now_ms);
}

/* A new row, kept now, to which nobody else has a reference. */
static struct shed_value *keep_new(unsigned i, size_t size)
{
    struct shed_value *value = create_value(SHED_KIND_ROW, size);

    keep_at(i, mark(i), value, 0, 0);
    shed_value_unref(value);
    return value;
}

static bool has(unsigned i, uint64_t now_ms)
{
    struct shed_local_row row;

    if (!shed_local_find(local, key_of(i), now_ms, &row))
        return false;
    shed_value_unref(row.value);
    return true;
}

/* ------------------------------------------------------------- the simple */

TEST(a_row_is_found_until_its_windows_end)
{
    struct shed_value *row = create_value(SHED_KIND_ROW, 3);
    struct shed_value *absent = create_value(SHED_KIND_ABSENT, 0);
    struct shed_local_row found;

    keep_at(0, mark(0), row, 200, 5000);
    keep_at(1, mark(1), absent, 200, 5000);
    ck_assert(shed_local_find(local, key_of(0), 5070, &found));
    ck_assert_ptr_eq(found.value, row);
    ck_assert_uint_eq(found.age_ms, 270);
    ck_assert_uint_eq(found.ttl_ms, TTL_MS);
    shed_value_unref(found.value);
    ck_assert(has(1, 5799));
    ck_assert(!has(1, 5800));
    ck_assert(has(0, 6099));
    ck_assert(!has(0, 6100));
    ck_assert_uint_eq(shed_local_size(local).rows, 0);
    close_local();
    shed_value_unref(row);
    shed_value_unref(absent);
}

/* The reply to a GET, whose entry begins with a header. version 0: none. */
static struct shed_value *read_version(size_t size, char nonce,
                                       unsigned char version)
{
    struct shed_reply *reply =
        shed_reply_create_text(SHED_REPLY_STRING, NULL, size);
    char *bytes = memset(reply->text, 0, size);

    bytes[8] = nonce;
    bytes[7] = version > 0 ? SHED_ENTRY_ROW_VERSION : 0;
    bytes[63] = (char)version;
    return shed_value_init(&reply->value, SHED_KIND_ROW, SHED_ORIGIN_REDIS,
                           bytes, bytes + SHED_ENTRY_HEADER_BYTES,
                           size - SHED_ENTRY_HEADER_BYTES, reply,
                           shed_reply_free);
}

static struct shed_value *read_value(size_t size, char nonce)
{
    return read_version(size, nonce, 0);
}

TEST(the_same_entry_is_kept_once_and_another_replaces_it)
{
    struct shed_value *value[] = {read_value(100, 'a'), read_value(100, 'a'),
                                  read_value(100, 'b')};

    for (size_t i = 0; i < 3; i++) {
        keep_at(0, mark(0), value[i], 0, 0);
        ck_assert_uint_eq(atomic_load(&shed_value_block(value[0])->refs),
                          i < 2 ? 2 : 1);
        ck_assert_uint_eq(atomic_load(&shed_value_block(value[1])->refs), 1);
    }
    ck_assert_uint_eq(shed_local_size(local).rows, 1);
    ck_assert_uint_eq(atomic_load(&shed_value_block(value[2])->refs), 2);
    close_local();
    for (size_t i = 0; i < 3; i++)
        shed_value_unref(value[i]);
}

/* Rows of one key, one after the other: read from Redis, or loaded. version 0:
 * none. */
static const struct {
    bool is_read;
    unsigned char version;
    uint64_t now_ms;
    bool is_kept;
} versions[] = {
    {false, 5, 0, true},
    {false, 4, 0, false},
    {false, 5, 0, true},
    {true, 7, 0, true},
    {false, 6, 0, false},
    {false, 8, 0, true},
    {false, 0, 0, true},
    {false, 1, 0, true},
    {false, 9, 0, true},
    {true, 1, 0, true}, /* what Redis has replaces a higher one */
    {false, 2, 0, true},
    {false, 5, TTL_MS + IF_ERROR_MS - 1, true},
    {false, 4, TTL_MS + IF_ERROR_MS - 1, false},
    {false, 4, 2 * (TTL_MS + IF_ERROR_MS) - 1, true}, /* the other is over */
};

TEST(a_load_replaces_no_higher_version)
{
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        unsigned char version = versions[i].version;
        struct shed_value *value =
            versions[i].is_read ? read_version(100, (char)version, version)
                                : create_value(SHED_KIND_ROW, 3);
        const struct shed_local_row row = {
            .value = value,
            .ttl_ms = TTL_MS,
            .version = {.number = versions[i].is_read ? 0 : version,
                        .is_known = !versions[i].is_read && version > 0}};
        shed_local_keep(local, key_of(0), mark(0), &row, versions[i].now_ms);
        ck_assert_msg((atomic_load(&shed_value_block(value)->refs) == 2) ==
                          versions[i].is_kept,
                      "%zu", i);
        shed_value_unref(value);
    }
}

TEST(a_row_is_forgotten_unless_another_is_there)
{
    struct shed_local_mark before = mark(0);
    struct shed_value *first = create_value(SHED_KIND_ROW, 3);
    struct shed_value *second = create_value(SHED_KIND_ROW, 3);

    keep_at(0, before, second, 0, 0);
    shed_local_forget(local, key_of(0), first);
    ck_assert(has(0, 0));
    shed_local_forget(local, key_of(0), second);
    ck_assert(!has(0, 0));
    shed_local_forget(local, key_of(0), second);
    keep_at(0, before, first, 0, 0); /* its load went on */
    ck_assert(has(0, 0));
    close_local();
    shed_value_unref(first);
    shed_value_unref(second);
}

TEST(an_entry_of_unknown_age_is_not_kept)
{
    struct shed_value *value = read_value(100, 'a');
    const struct shed_freshness_times times = {.written_ms = 70,
                                               .until_ms = 70 + TTL_MS};
    struct shed_local_row found;
    uint64_t now_ms = shed_now_ms();

    shed_local_keep_entry(local, key_of(0), mark(0), value, &times, 0);
    ck_assert(!has(0, now_ms));
    shed_local_keep_entry(local, key_of(0), mark(0), value, &times, 100);
    ck_assert(shed_local_find(local, key_of(0), now_ms, &found));
    ck_assert_uint_eq(found.age_ms, 30);
    ck_assert_uint_eq(found.ttl_ms, TTL_MS);
    shed_value_unref(found.value);
    close_local();
    shed_value_unref(value);
}

TEST(a_row_that_is_too_large_takes_the_place_of_the_older_one_all_the_same)
{
    open_with(65536, 0);
    (void)keep_new(0, 10);
    ck_assert(has(0, 0));
    (void)keep_new(0, 4096);
    ck_assert(!has(0, 0));
    ck_assert_uint_eq(shed_local_size(local).rows, 0);
}

/* What malloc has given. */
static size_t in_all(void)
{
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* Of that, in pages of their own. */
static size_t in_pages(void)
{
    return mallinfo2().hblkhd;
}

/* No allocation is left out. (With a sanitizer's allocator nothing is seen.) */
static void keep_and_compare(size_t rows, size_t size, size_t limit,
                             size_t (*given)(void))
{
    struct shed_value **values = calloc(rows, sizeof(*values));
    size_t before, used;

    close_local();
    before = given();
    open_with(limit, 0);
    for (size_t i = 0; i < rows; i++) {
        char key[16];
        struct shed_bytes at = {key, 0};
        at.size = (size_t)snprintf(key, sizeof(key), "t:{%zu}", i);
        values[i] = i % 2 ? read_value(size + 64 + i, 'a')
                          : create_value(SHED_KIND_ROW, size + i);
        shed_local_keep(
            local, at, shed_local_mark(local, at),
            &(struct shed_local_row){.value = values[i], .ttl_ms = TTL_MS}, 0);
    }
    used = given() - before;
    ck_assert_uint_eq(shed_local_size(local).rows, rows);
    ck_assert_uint_le(used, shed_local_size(local).bytes);
    for (size_t i = 0; i < rows; i++)
        shed_value_unref(values[i]);
    close_local();
    free(values);
}

TEST(a_full_object_is_within_its_bound)
{
    enum { LIMIT = 65536, MANY = 2000 };
    open_with(LIMIT, 0);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(names[0], sizeof(names[0]), "t:{%u}", i);
        (void)keep_new(0, 100);
    }
    ck_assert_uint_gt(shed_local_size(local).bytes, LIMIT * 9 / 10);
    ck_assert_uint_le(shed_local_size(local).bytes, LIMIT);
}

TEST(what_is_counted_is_at_least_what_malloc_gives)
{
    keep_and_compare(2000, 0, 16 << 20, in_all);
}

/* With a local_bytes that maps the chains, too. */
TEST(a_row_that_malloc_maps_is_counted_by_its_pages)
{
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES); /* else it grows */
    keep_and_compare(100, MAPPED_BYTES, 1 << 30, in_pages);
}

/* -------------------------------------------------------- random schedules */

/* What may be found of each key, and what must not. */
static struct model {
    uint64_t now_ms;
    struct {
        struct shed_value *value; /* NULL: nothing; else a reference */
        uint64_t written_ms;
        struct shed_local_mark mark; /* taken some time ago */
        uint64_t marked, dropped;    /* the steps of it and of the last drop; 0:
                                        none */
    } key[KEYS];
} m;

static void forget(unsigned i)
{
    shed_value_unref(m.key[i].value);
    m.key[i].value = NULL;
}

static void model_keep(unsigned i, unsigned random)
{
    struct shed_value *value;
    uint64_t age_ms = random / 8 % 200;

    if (m.key[i].marked == 0)
        return;
    value = create_value(SHED_KIND_ROW, random % 700);
    keep_at(i, m.key[i].mark, value, age_ms, m.now_ms);
    if (m.key[i].marked <= m.key[i].dropped) {
        shed_value_unref(value);
        return;
    }
    forget(i);
    m.key[i].value = value;
    m.key[i].written_ms = m.now_ms - age_ms;
}

/* Returns: whether it was found. */
static bool model_find(unsigned i)
{
    struct shed_local_row row;
    struct shed_value *expected = m.key[i].value;

    if (!shed_local_find(local, key_of(i), m.now_ms, &row))
        return false;
    ck_assert_ptr_nonnull(expected);
    ck_assert_ptr_eq(row.value, expected);
    ck_assert_uint_eq(row.age_ms, m.now_ms - m.key[i].written_ms);
    ck_assert_uint_lt(row.age_ms, TTL_MS + rule.if_error_ms);
    shed_value_unref(row.value);
    return true;
}

static void model_drop(unsigned i, uint64_t step)
{
    shed_local_drop(local, key_of(i));
    forget(i);
    m.key[i].dropped = step;
}

static void model_drop_all(uint64_t step)
{
    shed_local_drop_all(local);
    ck_assert_uint_eq(shed_local_size(local).rows, 0);
    for (unsigned i = 0; i < KEYS; i++) {
        forget(i);
        m.key[i].dropped = step;
    }
}

static void step(uint64_t number, size_t limit)
{
    unsigned random = (unsigned)rand(), i = random % KEYS;

    if (random / KEYS / 8 % 128 == 0) {
        model_drop_all(number);
        return;
    }
    switch (random / KEYS % 8) {
    case 0:
    case 1:
        m.key[i].mark = shed_local_mark(local, key_of(i));
        m.key[i].marked = number;
        break;
    case 2:
    case 3:
    case 4:
        model_keep(i, random / KEYS / 8);
        break;
    case 5:
        model_drop(i, number);
        break;
    case 6:
        m.now_ms += random / KEYS / 8 % 40;
        break;
    default:
        (void)model_find(i);
    }
    ck_assert_uint_le(shed_local_size(local).bytes, limit);
}

/* With ample memory everything is found that the model has. */
static void run_schedule(unsigned seed, size_t limit)
{
    memset(&m, 0, sizeof(m));
    srand(seed);
    open_with(limit, 0);
    m.now_ms = 1000000;
    for (uint64_t number = 1; number <= 300; number++)
        step(number, limit);
    for (unsigned i = 0; i < KEYS; i++) {
        bool is_over =
            m.key[i].value != NULL &&
            m.now_ms - m.key[i].written_ms >= TTL_MS + rule.if_error_ms;
        bool is_found = model_find(i);
        if (limit == AMPLE_BYTES)
            ck_assert_msg(is_found == (m.key[i].value != NULL && !is_over),
                          "seed %u, key %u", seed, i);
        ck_assert_msg(!is_found || !is_over, "seed %u, key %u", seed, i);
    }
    close_local();
    for (unsigned i = 0; i < KEYS; i++) {
        if (m.key[i].value != NULL)
            ck_assert_uint_eq(
                atomic_load(&shed_value_block(m.key[i].value)->refs), 1);
        forget(i);
    }
}

TEST(in_every_schedule_the_newest_row_or_none_is_found)
{
    for (unsigned seed = 0; seed < 3000; seed++)
        run_schedule(seed, seed % 2 ? 65536 : AMPLE_BYTES);
}

/* ------------------------------------------------------------------ SIEVE */

/* The algorithm as the paper's figure has it, on an array: [0] is the oldest.
 */
static struct sieve {
    unsigned queue[KEYS];
    bool is_visited[KEYS]; /* of a key */
    size_t size, capacity, hand;
} s;

static bool sieve_has(unsigned i)
{
    for (size_t at = 0; at < s.size; at++)
        if (s.queue[at] == i)
            return true;
    return false;
}

static void sieve_remove(size_t at)
{
    s.size--;
    memmove(&s.queue[at], &s.queue[at + 1], (s.size - at) * sizeof(*s.queue));
    if (s.hand > at)
        s.hand--;
}

static void sieve_evict(void)
{
    if (s.hand >= s.size)
        s.hand = 0;
    while (s.is_visited[s.queue[s.hand]]) {
        s.is_visited[s.queue[s.hand]] = false;
        s.hand = (s.hand + 1) % s.size;
    }
    sieve_remove(s.hand);
}

static void sieve_insert(unsigned i)
{
    if (s.size == s.capacity)
        sieve_evict();
    /* a hand at the end is at the oldest, not at what comes now */
    if (s.hand >= s.size)
        s.hand = 0;
    s.queue[s.size++] = i;
    s.is_visited[i] = false;
}

static void sieve_drop(unsigned i)
{
    for (size_t at = 0; at < s.size; at++)
        if (s.queue[at] == i)
            sieve_remove(at);
}

/* Of KEY alone, between "t:{" and "}". */
static uint64_t hash_of_key(const char *name)
{
    return XXH3_64bits(name + 3, strlen(name) - 4);
}

/* Keys of one shard. */
static void name_keys_of_a_shard(void)
{
    unsigned number = 0;

    for (unsigned i = 0; i < KEYS; i++)
        do
            snprintf(names[i], sizeof(names[i]), "t:{%u}", number++);
        while (hash_of_key(names[i]) % SHARDS != 0);
}

/* How many rows of one size a shard keeps. */
static size_t find_capacity(size_t limit)
{
    size_t rows;

    open_with(limit, 0);
    for (unsigned i = 0; i < KEYS; i++)
        (void)keep_new(i, 100);
    rows = shed_local_size(local).rows;
    close_local();
    ck_assert_uint_gt(rows, 4);
    ck_assert_uint_lt(rows, KEYS - 4);
    return rows;
}

static void sieve_step(void)
{
    unsigned random = (unsigned)rand(), i = random % KEYS;

    if (sieve_has(i) && random / KEYS % 4 > 0) {
        ck_assert(has(i, 0));
        s.is_visited[i] = true;
    } else if (sieve_has(i)) {
        shed_local_drop(local, key_of(i));
        sieve_drop(i);
    } else {
        ck_assert(!has(i, 0));
        (void)keep_new(i, 100);
        sieve_insert(i);
    }
    ck_assert_uint_eq(shed_local_size(local).rows, s.size);
}

TEST(rows_leave_as_sieve_says)
{
    enum { LIMIT = 96 << 10 };
    size_t capacity;

    name_keys_of_a_shard();
    capacity = find_capacity(LIMIT);
    for (unsigned seed = 0; seed < 1000; seed++) {
        open_with(LIMIT, 0);
        srand(seed);
        s = (struct sieve){.capacity = capacity};
        for (int i = 0; i < 200; i++)
            sieve_step();
    }
}

/* ------------------------------------------------------------------- near */

enum { NEAR_MS = 100 };

/* Of one entry, which is read again and again. */
static unsigned char header[SHED_ENTRY_HEADER_BYTES];

static void near_up(void)
{
    open_with(AMPLE_BYTES, NEAR_MS);
}

static void keep_nothing(void *owner)
{
    free(owner);
}

static void read_with(struct shed_bytes key, struct shed_local_mark before)
{
    struct shed_value_block *block = calloc(1, sizeof(*block));
    struct shed_value *value =
        shed_value_init(block, SHED_KIND_ROW, SHED_ORIGIN_REDIS, header, "row",
                        3, block, keep_nothing);
    const struct shed_local_row row = {.value = value, .ttl_ms = TTL_MS};

    shed_local_keep(local, key, before, &row, shed_now_ms());
    shed_value_unref(value);
}

/* Whether a row is near; then it is taken, or only looked at. */
static bool looks(const char *key, uint64_t now_ms, bool is_taken)
{
    struct shed_local_near near;

    if (!shed_local_begin_near(local, shed_str(key), now_ms, &near))
        return false;
    shed_local_end_near(&near, is_taken);
    if (is_taken)
        shed_value_unref(near.row.value);
    return true;
}

static bool has_near(uint64_t now_ms)
{
    return looks("0", now_ms, false);
}

/* At 1000. */
static struct shed_local_mark mark_of(struct shed_bytes key)
{
    struct shed_local_mark at = shed_local_mark(local, key);

    at.at_ms = 1000;
    at.is_announced = true;
    return at;
}

static void read_it(struct shed_local_mark before)
{
    read_with(key_of(0), before);
}

TEST(a_row_is_near_for_a_while_from_a_read_whose_changes_are_announced)
{
    struct shed_local_mark unannounced = mark_of(key_of(0));

    near_up();
    unannounced.is_announced = false;
    read_it(unannounced);
    ck_assert(has(0, shed_now_ms()));
    ck_assert(!has_near(1000));
    for (int i = 0; i < 2; i++) {
        read_it(mark_of(key_of(0)));
        ck_assert(has_near(1000));
        ck_assert(has_near(1000 + NEAR_MS - 1));
        ck_assert(!has_near(1000 + NEAR_MS));
        read_it(unannounced);
        ck_assert(has_near(1000));
    }
}

static void change_it(void)
{
    shed_local_change(local, key_of(0));
}

static void change_all(void)
{
    shed_local_change_all(local);
}

static void drop_it(void)
{
    shed_local_drop(local, key_of(0));
}

static void drop_all(void)
{
    shed_local_drop_all(local);
}

static void (*const ends[])(void) = {change_it, change_all, drop_it, drop_all};

TEST_EACH(what_ends_it_also_rules_out_a_read_under_way, 0, 4)
{
    struct shed_local_mark before;

    near_up();
    before = mark_of(key_of(0));
    read_it(before);
    ck_assert(has_near(1000));
    ends[_i]();
    ck_assert(!has_near(1000));
    read_it(before);
    ck_assert(!has_near(1000));
    ck_assert_uint_ne(mark_of(key_of(0)).changes, before.changes);
}

TEST(another_entry_is_not_near)
{
    near_up();
    read_it(mark_of(key_of(0)));
    ck_assert(has_near(1000));
    (void)keep_new(0, 3);
    ck_assert(!has_near(1000));
}

/* In Redis the first of them are t:{\\}x}, t:{\\\\}x} and t:{\\\\x}. */
static const char *const odd_keys[] = {"}x", "\\}x", "\\x", "x", "x}"};

TEST_EACH(a_near_row_is_found_by_its_own_key_alone, 0, COUNT_OF(odd_keys))
{
    struct shed_named_key named;
    struct shed_bytes key;

    near_up();
    shed_key_name("t", shed_str(odd_keys[_i]), &named);
    key = named.key.redis;
    read_with(key, mark_of(key));
    for (int i = 0; i < (int)(sizeof(odd_keys) / sizeof(*odd_keys)); i++) {
        ck_assert_int_eq(looks(odd_keys[i], 1000, false), i == _i);
    }
}

TEST(what_is_taken_is_counted_once)
{
    struct shed_stats stats;

    near_up();
    read_it(mark_of(key_of(0)));
    ck_assert(looks("0", 1000, true));
    ck_assert(has_near(1000));
    ck_assert(looks("0", 1000, true));
    for (int i = 0; i < 2; i++) {
        shed_local_count_hits(local);
        shed_counters_read(&counters, 4, &stats, sizeof(stats));
        ck_assert_uint_eq(stats.hits, 2);
        ck_assert_uint_eq(stats.negative_hits, 0);
        ck_assert_uint_eq(stats.near_hits, 2);
    }
}

/* A server may announce a change of any key. */
TEST(what_is_no_name_of_an_entry_is_no_change)
{
    static const char *const others[] = {"t:0}", "}", "t:{", "t:{\\}", "t:{}"};
    near_up();
    read_it(mark_of(key_of(0)));
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        shed_local_change(local,
                          (struct shed_bytes){others[i], strlen(others[i])});
    ck_assert(has_near(1000));
}

TEST(handles_outlive_their_row)
{
    struct shed_local_near near;

    near_up();
    read_it(mark_of(key_of(0)));
    ck_assert(shed_local_begin_near(local, shed_str("0"), 1000, &near));
    shed_local_end_near(&near, true);
    close_local();
    ck_assert_mem_eq(near.row.value->data, "row", 3);
    shed_value_unref(near.row.value);
}

TEST(without_an_object_nothing_is_kept)
{
    struct shed_local_row row;

    shed_local_keep(NULL, key_of(0), shed_local_mark(NULL, key_of(0)), NULL, 0);
    shed_local_drop(NULL, key_of(0));
    shed_local_drop_all(NULL);
    ck_assert(!shed_local_find(NULL, key_of(0), 0, &row));
    ck_assert_uint_eq(shed_local_size(NULL).bytes, 0);
    shed_local_destroy(NULL);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, close_local);
    return run_tests("kept");
}
