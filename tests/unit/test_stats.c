/* stats: reads and the text agree with what was counted. */
#include "base/stats.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "stats/text.h"
#include "support/testing.h"

enum { FILE_BYTES = 1 << 18 };

static struct shed_counters counters;

static struct shed_lock_counters lock_counters;

/* A list contains names; all of them have the same counters. */
static struct shed_subject cache_of(const void *names, size_t i)
{
    const char *name = ((const char *const *)names)[i];
    struct shed_subject subject = {
        .name = name, .name_size = strlen(name), .counters = &counters};
    uint64_t n = 0;

#define SET(gauge, help) subject.gauge = ++n;
    SHED_GAUGES(SET)
#undef SET
    return subject;
}

static struct shed_subject lock_of(const void *names, size_t i)
{
    struct shed_subject subject = cache_of(names, i);

    subject.counters = &lock_counters;
    return subject;
}

/* The text of caches and locks, for the caller to free. */
static char *write_text(struct shed_subjects caches, struct shed_subjects locks)
{
    size_t length = shed_stats_text(&caches, &locks, NULL, 0);
    char *text = malloc(length + 1);

    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(shed_stats_text(&caches, &locks, text, length + 1),
                      length);
    ck_assert_uint_eq(strlen(text), length);
    return text;
}

static const struct shed_subjects none;

static char *caches_text(const char *const *names, size_t count)
{
    return write_text((struct shed_subjects){cache_of, names, count}, none);
}

static char *text_of(const char *cache)
{
    return caches_text(&cache, 1);
}

static char *lock_text(const char *lock)
{
    return write_text(none, (struct shed_subjects){lock_of, &lock, 1});
}

static void assert_line(const char *text, const char *line)
{
    ck_assert_msg(strstr(text, line) != NULL, "no line %s in %s", line, text);
}

struct border {
    uint64_t value;
    size_t bucket;
};

static const struct border borders[] = {
    {0, 0},
    {1, 0},
    {2, 1},
    {3, 2},
    {4, 2},
    {5, 3},
    {(uint64_t)1 << (SHED_BUCKETS - 2), SHED_BUCKETS - 2},
    {((uint64_t)1 << (SHED_BUCKETS - 2)) + 1, SHED_BUCKETS - 1},
    {UINT64_MAX, SHED_BUCKETS - 1},
};

TEST_EACH(a_bucket_holds_what_is_at_most_its_power_of_two, 0, COUNT_OF(borders))
{
    struct shed_stats stats;

    shed_histogram_add(&counters.load_us, borders[_i].value);
    shed_counters_read(&counters, 4, &stats, sizeof(stats));
    for (size_t i = 0; i < SHED_BUCKETS; i++)
        ck_assert_uint_eq(stats.load_us.bucket[i], i == borders[_i].bucket);
    ck_assert_uint_eq(stats.load_us.count, 1);
    ck_assert_uint_eq(stats.load_us.sum, borders[_i].value);
}

TEST(each_histogram_is_read_from_its_own)
{
    struct shed_stats stats;

    shed_histogram_add(&counters.hit_us, 1);
    shed_histogram_add(&counters.miss_us, 20);
    shed_histogram_add(&counters.load_us, 300);
    shed_histogram_add(&counters.batch_keys, 4000);
    shed_counters_read(&counters, 4, &stats, sizeof(stats));
    ck_assert_uint_eq(stats.hit_us.sum, 1);
    ck_assert_uint_eq(stats.miss_us.sum, 20);
    ck_assert_uint_eq(stats.load_us.sum, 300);
    ck_assert_uint_eq(stats.batch_keys.sum, 4000);
}

TEST(each_counter_is_read_from_its_own)
{
    struct shed_stats stats;
    uint64_t n = 0;

#define COUNT(field, help) shed_count(&counters.field, ++n);
    SHED_COUNTERS(COUNT)
#undef COUNT
    shed_counters_read(&counters, 4, &stats, sizeof(stats));
    n = 0;
#define COMPARE(field, help) ck_assert_uint_eq(stats.field, ++n);
    SHED_COUNTERS(COMPARE)
#undef COMPARE
}

static uint64_t sum_of_errors(const struct shed_stats *stats)
{
    return stats->errors_timeout + stats->errors_busy + stats->errors_redis +
           stats->errors_source + stats->errors_other;
}

TEST(each_failure_counts_as_its_kind)
{
    struct shed_stats stats;

    for (enum shed_code code = SHED_OK; code <= SHED_ELOST; code++) {
        shed_count_code(&counters, (enum shed_code)code);
        shed_counters_read(&counters, 4, &stats, sizeof(stats));
        ck_assert_uint_eq(sum_of_errors(&stats), (uint64_t)code);
    }
    ck_assert_uint_eq(stats.errors_timeout, 1);
    ck_assert_uint_eq(stats.errors_busy, 1);
    ck_assert_uint_eq(stats.errors_redis, 1);
    ck_assert_uint_eq(stats.errors_source, 1);
    ck_assert_uint_eq(stats.errors_other, SHED_ELOST - 4);
    shed_count_code(&counters, SHED_EMISS);
    shed_counters_read(&counters, 4, &stats, sizeof(stats));
    ck_assert_uint_eq(sum_of_errors(&stats), SHED_ELOST);
}

TEST(the_text_tells_every_counter_with_type_and_help)
{
    char *text;

    shed_count(&counters.hits, UINT64_MAX);
    text = text_of("item");
    assert_line(text, "# HELP snowshed_hits_total keys answered with a row or "
                      "a NULL from Redis\n"
                      "# TYPE snowshed_hits_total counter\n"
                      "snowshed_hits_total{cache=\"item\"} "
                      "18446744073709551615\n");
#define LOOK_UP(field, help)                                                   \
    assert_line(text, "\nsnowshed_" #field "_total{cache=\"item\"} ");
    SHED_COUNTERS(LOOK_UP)
#undef LOOK_UP
    free(text);
}

TEST(a_histogram_of_times_is_told_in_seconds_and_cumulative)
{
    char *text;

    shed_histogram_add(&counters.load_us, 1);
    shed_histogram_add(&counters.load_us, 2);
    shed_histogram_add(&counters.load_us, 2000000);
    text = text_of("item");
    assert_line(text, "# TYPE snowshed_load_seconds histogram\n"
                      "snowshed_load_seconds_bucket{cache=\"item\","
                      "le=\"0.000001\"} 1\n"
                      "snowshed_load_seconds_bucket{cache=\"item\","
                      "le=\"0.000002\"} 2\n");
    assert_line(text, "le=\"1.048576\"} 2\n");
    assert_line(text, "le=\"67.108864\"} 3\n"
                      "snowshed_load_seconds_bucket{cache=\"item\","
                      "le=\"+Inf\"} 3\n"
                      "snowshed_load_seconds_sum{cache=\"item\"} 2.000003\n"
                      "snowshed_load_seconds_count{cache=\"item\"} 3\n");
    free(text);
}

TEST(a_histogram_of_sizes_is_told_in_whole_numbers)
{
    char *text;

    shed_histogram_add(&counters.batch_keys, 100);
    text = text_of("item");
    assert_line(text, "snowshed_batch_keys_bucket{cache=\"item\","
                      "le=\"64\"} 0\n"
                      "snowshed_batch_keys_bucket{cache=\"item\","
                      "le=\"128\"} 1\n");
    assert_line(text, "snowshed_batch_keys_sum{cache=\"item\"} 100\n");
    free(text);
}

TEST(gauges_tell_what_is_true_now)
{
    char *text = text_of("item"), line[80];
    unsigned n = 0;

    assert_line(text, "# HELP snowshed_redis_up whether the client is connected"
                      " to Redis\n# TYPE snowshed_redis_up gauge\n"
                      "snowshed_redis_up{cache=\"item\"} 1\n");
#define LOOK_UP(gauge, help)                                                   \
    (void)snprintf(line, sizeof(line),                                         \
                   "\nsnowshed_" #gauge "{cache=\"item\"} %u\n", ++n);         \
    assert_line(text, line);
    SHED_GAUGES(LOOK_UP)
#undef LOOK_UP
    free(text);
}

TEST(quotes_and_backslashes_of_a_name_are_escaped)
{
    char *text = text_of("a\"b\\c");

    assert_line(text, "snowshed_hits_total{cache=\"a\\\"b\\\\c\"} 0\n");
    free(text);
}

TEST(the_longest_name_is_told_whole)
{
    char name[SHED_NAME_MAX_BYTES + 1], line[3 * SHED_NAME_MAX_BYTES];
    char *text;
    int at;

    memset(name, '"', SHED_NAME_MAX_BYTES);
    name[SHED_NAME_MAX_BYTES] = '\0';
    at = snprintf(line, sizeof(line), "cache=\"");
    for (int i = 0; i < SHED_NAME_MAX_BYTES; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, "\\\"");
    (void)snprintf(line + at, sizeof(line) - (size_t)at, "\"} 0\n");
    text = text_of(name);
    assert_line(text, line);
    free(text);
}

/* The format wants the lines of a metric together, after one HELP and TYPE. */
TEST(caches_are_told_together)
{
    const char *const names[] = {"item", "order"};
    char *text;

    shed_count(&counters.hits, 7);
    shed_histogram_add(&counters.load_us, 1);
    text = caches_text(names, 2);
    assert_line(text, "# TYPE snowshed_hits_total counter\n"
                      "snowshed_hits_total{cache=\"item\"} 7\n"
                      "snowshed_hits_total{cache=\"order\"} 7\n#");
    assert_line(text, "snowshed_load_seconds_count{cache=\"item\"} 1\n"
                      "snowshed_load_seconds_bucket{cache=\"order\","
                      "le=\"0.000001\"} 1\n");
    free(text);
    ck_assert_uint_eq(shed_stats_text(&none, &none, NULL, 0), 0);
}

TEST(locks_are_told_under_names_of_their_own)
{
    const char *const name = "a\x01\xff";
    uint64_t n = 0;
    struct shed_lock_stats stats;
    char *text;

#define COUNT(field, help) shed_count(&lock_counters.field, ++n);
    SHED_LOCK_COUNTERS(COUNT)
#undef COUNT
    shed_histogram_add(&lock_counters.wait_us, 20);
    shed_histogram_add(&lock_counters.hold_us, 300);
    shed_counters_read(&lock_counters, 2, &stats, sizeof(stats));
    n = 0;
#define COMPARE(field, help) ck_assert_uint_eq(stats.field, ++n);
    SHED_LOCK_COUNTERS(COMPARE)
#undef COMPARE
    ck_assert_uint_eq(stats.wait_us.sum, 20);
    ck_assert_uint_eq(stats.hold_us.sum, 300);
    text = lock_text(name);
    assert_line(text, "# HELP snowshed_lock_acquired_total holds that began\n"
                      "# TYPE snowshed_lock_acquired_total counter\n"
                      "snowshed_lock_acquired_total{lock=\"a\\\\x01\\\\xff\"} 1"
                      "\n");
#define LOOK_UP(field, help)                                                   \
    assert_line(text, "\nsnowshed_lock_" #field "_total{lock=\"a");
    SHED_LOCK_COUNTERS(LOOK_UP)
#undef LOOK_UP
    assert_line(text, "} 0.000020\nsnowshed_lock_wait_seconds_count{");
    assert_line(text, "} 0.000300\nsnowshed_lock_hold_seconds_count{");
    free(text);
}

static char *read_file(const char *path)
{
    char *text = calloc(1, FILE_BYTES);
    FILE *file = fopen(path, "r");

    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_lt(fread(text, 1, FILE_BYTES, file), FILE_BYTES);
    (void)fclose(file);
    return text;
}

static bool has_word(const char *text, const char *word, size_t size)
{
    static const char of_words[] = "abcdefghijklmnopqrstuvwxyz_";

    for (const char *at = text; (at = strchr(at, word[0])) != NULL; at++)
        if (strncmp(at, word, size) == 0 && strspn(at + size, of_words) == 0 &&
            at > text && strchr(of_words, at[-1]) == NULL)
            return true;
    return false;
}

/* A counter is named by its row, where its name has no prefix and no _total. */
static void assert_named(const char *header, const char *text,
                         const char *prefix)
{
    static const char type[] = "# TYPE ";
    unsigned count = 0;

    for (const char *at = text; (at = strstr(at, type)) != NULL; count++) {
        const char *end = strchr(at += strlen(type), ' '), *name = at;
        if (strncmp(end, " counter", strlen(" counter")) == 0) {
            name += strlen(prefix);
            end -= strlen("_total");
        }
        ck_assert_msg(has_word(header, name, (size_t)(end - name)),
                      "stats.h does not name %.*s", (int)(end - name), name);
    }
    ck_assert_uint_gt(count, 9);
}

/* The lines of one text follow those of the other. */
TEST(caches_and_locks_share_a_text)
{
    const char *const name = "job";
    char *of_cache = text_of(name), *of_lock = lock_text(name);
    char *both = write_text((struct shed_subjects){cache_of, &name, 1},
                            (struct shed_subjects){lock_of, &name, 1});

    ck_assert_uint_eq(strlen(both), strlen(of_cache) + strlen(of_lock));
    ck_assert_mem_eq(both, of_cache, strlen(of_cache));
    ck_assert_str_eq(both + strlen(of_cache), of_lock);
    free(both);
    free(of_cache);
    free(of_lock);
}

TEST(the_header_names_every_metric)
{
    const char *const name = "job";
    char *header = read_file(STATS_H), *of_cache = text_of(name);
    char *of_lock = lock_text(name);

    assert_named(header, of_cache, "snowshed_");
    assert_named(header, of_lock, "snowshed_lock_");
    free(header);
    free(of_cache);
    free(of_lock);
}

/* Every capacity, so that each write is cut once. */
TEST(a_text_that_does_not_fit_is_cut_and_terminated)
{
    const char *const name = "job";
    const struct shed_subjects locks = {lock_of, &name, 1};
    char *whole = lock_text(name);
    size_t length = strlen(whole);
    char *part = malloc(length + 2);

    ck_assert_ptr_nonnull(part);
    for (size_t capacity = 1; capacity <= length + 1; capacity++) {
        memset(part, 'x', length + 2);
        ck_assert_uint_eq(shed_stats_text(&none, &locks, part, capacity),
                          length);
        ck_assert_uint_eq(strlen(part), capacity - 1);
        ck_assert_mem_eq(part, whole, capacity - 1);
        ck_assert_int_eq(part[capacity], 'x');
    }
    free(part);
    free(whole);
}

enum { THREADS = 4, ROUNDS = 20000 };

static void *count(void *user)
{
    (void)user;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        shed_count(&counters.hits, 1);
        shed_histogram_add(&counters.hit_us, i);
    }
    return NULL;
}

TEST(nothing_that_threads_count_is_lost)
{
    pthread_t threads[THREADS];
    struct shed_stats stats;

    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], count, NULL);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    shed_counters_read(&counters, 4, &stats, sizeof(stats));
    ck_assert_uint_eq(stats.hits, THREADS * ROUNDS);
    ck_assert_uint_eq(stats.hit_us.count, THREADS * ROUNDS);
    ck_assert_uint_eq(stats.hit_us.sum,
                      THREADS * (ROUNDS * (uint64_t)(ROUNDS - 1) / 2));
}

int main(void)
{
    return run_tests("stats");
}
