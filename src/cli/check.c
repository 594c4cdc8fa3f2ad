/*
 * check: compares entries with the rows of the database.
 *
 * An entry and its row cannot be read at one instant, so a difference is only a
 * suspicion: the row may have been committed a moment ago, and its invalidation
 * be on the way. The entry counts as stale if, a grace period later, the same
 * entry (by its bytes, which include the nonce) is still there and its row
 * still differs. An entry that was invalidated or reloaded meanwhile is
 * compared from the beginning.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <snowshed/mysql.h>

#include "base/clock.h"
#include "base/latch.h"
#include "base/random.h"
#include "source/load.h"
#include "cli/caches.h"
#include "cli/text.h"
#include "cli/walk.h"

#define BATCH 100
#define ROUNDS 6 /* an entry that changes in each of them is not stale */
#define GRACE_DEFAULT_MS 1000
#define RATE_DEFAULT 1000
#define LOAD_TIMEOUT_MS 30000
#define JOB_TIMEOUT_MS 60000 /* a job may wait for another */
#define VALUE_LIMIT_BYTES ((uint64_t)256 << 20)
#define SHOWN_BYTES 200

struct item {
    struct cli_key key;
    struct cli_entry entry; /* as last read */
    bool is_same;           /* it was the same one round earlier */
    struct shed_job job;
    struct shed_latch *latch;
    struct shed_value *value; /* NULL: it could not be loaded */
    struct shed_error error;
};

struct check {
    const struct cli_call *call;
    struct cli_redis *redis;
    struct cli_tags *tags;
    struct shed_source *source;
    struct item *items; /* those of a batch */
    size_t count, batch;
    struct cli_rate rate; /* of the items */
    json_t *stale_list;
    uint64_t compared, equal, stale, failed, changed, skipped;
    uint64_t invalidated;        /* misses by a tag when they were found */
    char why[SHED_REASON_BYTES]; /* of the first failure */
};

/* ----------------------------------------------------------------- reading */

/* Whether a get would look at its value. */
static bool is_comparable(const struct cli_entry *e)
{
    return (e->kind == CLI_VALUE || e->kind == CLI_NEGATIVE) &&
           e->miss.position == 0;
}

static bool are_same(const struct shed_reply *a, const struct shed_reply *b)
{
    size_t m = 0, n = 0;
    const char *x = shed_reply_bytes(a, &m), *y = shed_reply_bytes(b, &n);

    return x != NULL && y != NULL && m == n && memcmp(x, y, m) == 0;
}

/* The log is read in each round, too: a tag may have been invalidated since
 * its entries were found to differ. */
static void read_entries(struct check *c)
{
    cli_tags_read(c->tags);
    for (size_t i = 0; i < c->count; i++) {
        struct shed_args args = {0};
        shed_args_add_text(&args, "GET");
        shed_args_add(&args, c->items[i].key.named.key.redis,
                      c->items[i].key.named.key.redis_size);
        cli_redis_send(c->redis, &args);
    }
    for (size_t i = 0; i < c->count; i++) {
        struct item *item = &c->items[i];
        struct shed_reply *before = item->entry.reply;
        item->entry =
            (struct cli_entry){.key = &item->key,
                               .reply = cli_redis_check_key(
                                   c->redis, cli_redis_hear(c->redis), "GET")};
        cli_entry_decode(&item->entry, item->entry.reply);
        cli_entry_judge(&item->entry, c->tags);
        item->is_same = are_same(before, item->entry.reply);
        shed_reply_free(before);
    }
}

/* Runs on a thread of the source. */
static void settle(struct shed_job *job, struct shed_loaded *loaded)
{
    struct item *item =
        (struct item *)(void *)((char *)job - offsetof(struct item, job));

    item->value = loaded->value;
    item->error = loaded->error;
    shed_latch_count_down(item->latch, 1);
}

static void submit(struct check *c, struct item *item)
{
    enum shed_code code;

    item->job = (struct shed_job){
        .key = cli_key_bytes(&item->key),
        .key_size = item->key.named.key.size,
        .deadline_ms = shed_deadline_ms(shed_now_ms(), JOB_TIMEOUT_MS),
        .value_limit_bytes = VALUE_LIMIT_BYTES,
        .settle = settle};
    code = shed_source_queue(c->source, &item->job, &item->error);
    if (code != SHED_OK)
        cli_fail(c->call, CLI_FAILED, "the database cannot be queried: %s",
                 item->error.reason);
}

static void load_rows(struct check *c)
{
    struct shed_latch latch;

    if (c->count == 0)
        return;
    shed_latch_init(&latch, c->count);
    for (size_t i = 0; i < c->count; i++) {
        shed_value_unref(c->items[i].value);
        c->items[i].value = NULL;
        c->items[i].latch = &latch;
        submit(c, &c->items[i]);
    }
    shed_source_wake(c->source);
    (void)shed_latch_wait(&latch,
                          UINT64_MAX); /* bounded: each load has a time limit */
}

/* --------------------------------------------------------------- comparing */

static enum shed_kind kind_of(const struct cli_entry *e)
{
    if (e->kind == CLI_NEGATIVE)
        return SHED_KIND_ABSENT;
    return (e->entry.flags & SHED_ENTRY_NULL) != 0 ? SHED_KIND_NULL
                                                   : SHED_KIND_ROW;
}

static bool is_equal(const struct item *item)
{
    const struct shed_entry *entry = &item->entry.entry;
    enum shed_kind kind = kind_of(&item->entry);

    if (item->value->kind != kind)
        return false;
    return kind != SHED_KIND_ROW || (item->value->size == entry->payload_size &&
                                     (entry->payload_size == 0 ||
                                      memcmp(item->value->data, entry->payload,
                                             entry->payload_size) == 0));
}

static void print_side(const char *name, enum shed_kind kind, const void *bytes,
                       size_t size)
{
    cli_field(name);
    if (kind == SHED_KIND_ABSENT)
        (void)fputs("(no such row)", stdout);
    else if (kind == SHED_KIND_NULL)
        (void)fputs("(NULL)", stdout);
    else
        cli_print_escaped(stdout, bytes, size, SHOWN_BYTES);
    (void)putchar('\n');
}

static json_t *side_json(enum shed_kind kind, const void *bytes, size_t size)
{
    json_t *side = json_pack("{s:s}", "kind", shed_kind_name(kind));

    if (kind == SHED_KIND_ROW)
        cli_json_set_bytes(side, "value", bytes, size);
    return side;
}

static void report(struct check *c, const struct item *item)
{
    const struct shed_entry *entry = &item->entry.entry;
    const void *row = item->value->data;
    size_t row_size = item->value->size;
    char date[CLI_TEXT_BYTES];
    json_t *object;

    c->stale++;
    if (!c->call->is_json) {
        (void)fputs("STALE ", stdout);
        cli_print_escaped(stdout, item->key.named.key.redis,
                          item->key.named.key.redis_size, SIZE_MAX);
        printf("  written %s\n", cli_date(date, entry->written_ms));
        print_side("cache", kind_of(&item->entry), entry->payload,
                   entry->payload_size);
        print_side("database", item->value->kind, row, row_size);
        cli_flush(c->call);
        return;
    }
    object = json_object();
    cli_key_json(object, &item->key);
    json_object_set_new(object, "written_ms",
                        json_integer((json_int_t)entry->written_ms));
    json_object_set_new(
        object, "cache",
        side_json(kind_of(&item->entry), entry->payload, entry->payload_size));
    json_object_set_new(object, "database",
                        side_json(item->value->kind, row, row_size));
    json_array_append_new(c->stale_list, object);
}

/* ------------------------------------------------------------- the rounds */

static void fini_item(struct item *item)
{
    cli_entry_free(&item->entry);
    shed_value_unref(item->value);
    item->value = NULL;
}

/* Take an item out of the round; the last one moves to its place. Keys point
 * into themselves, so the moved key is initialised again. */
static void drop(struct check *c, size_t i)
{
    struct item *last = &c->items[--c->count];
    struct item *item = &c->items[i];

    fini_item(item);
    if (item == last)
        return;
    *item = *last;
    (void)cli_key_set(&item->key, last->key.cache, cli_key_bytes(&last->key),
                      last->key.named.key.size);
    item->entry.key = &item->key;
    last->entry.reply = NULL;
    last->value = NULL;
}

static void drop_incomparable(struct check *c, unsigned round)
{
    for (size_t i = c->count; i-- > 0;) {
        if (is_comparable(&c->items[i].entry))
            continue;
        if (round > 0)
            c->changed++;
        else if (c->items[i].entry.miss.position > 0)
            c->invalidated++;
        else
            c->skipped++;
        drop(c, i);
    }
}

/* Keep the first reason. */
static void count_failure(struct check *c, const char *reason)
{
    if (c->failed++ == 0)
        (void)snprintf(c->why, sizeof(c->why), "%s", reason);
}

static void compare(struct check *c, unsigned round)
{
    for (size_t i = c->count; i-- > 0;) {
        struct item *item = &c->items[i];
        if (item->value == NULL) {
            count_failure(c, item->error.reason);
        } else if (is_equal(item)) {
            c->equal++;
        } else if (round > 0 && item->is_same) {
            report(c, item);
        } else {
            continue; /* a suspicion, for the next round */
        }
        drop(c, i);
    }
}

static uint64_t grace_ms(const struct check *c)
{
    return c->call->grace_ms > 0 ? c->call->grace_ms : GRACE_DEFAULT_MS;
}

/* Compare the gathered items, and remove them. */
static void settle_batch(struct check *c)
{
    if (c->count == 0)
        return; /* after the last whole batch */
    cli_rate_keep(&c->rate, c->count);
    for (unsigned round = 0; round < ROUNDS && c->count > 0; round++) {
        if (round > 0)
            cli_sleep_ms(grace_ms(c));
        read_entries(c);
        drop_incomparable(c, round);
        if (round == 0)
            c->compared += c->count;
        load_rows(c);
        compare(c, round);
    }
    c->changed += c->count;
    while (c->count > 0)
        drop(c, c->count - 1);
    if (c->failed > 0 && c->failed == c->compared)
        cli_fail(c->call, CLI_FAILED, "no row can be compared: %s", c->why);
}

static void gather(struct check *c, const char *key, size_t size)
{
    struct item *item = &c->items[c->count];

    *item = (struct item){0};
    if (!cli_key_parse(&item->key, c->call->words[0], key, size))
        return; /* the key of a refresh lease */
    if (++c->count == c->batch)
        settle_batch(c);
}

/* ------------------------------------------------------ all, or a sample */

static void check_all(struct check *c, struct cli_walk *walk)
{
    struct shed_reply *keys;
    size_t size = 0;

    while ((keys = cli_walk_next(walk)) != NULL) {
        for (size_t i = 0; i < shed_reply_count(keys); i++) {
            const char *key = shed_reply_bytes(shed_reply_at(keys, i), &size);
            if (key != NULL)
                gather(c, key, size);
        }
        shed_reply_free(keys);
    }
}

struct sampled {
    struct shed_reply *key;
};

/* Every key of the walk has the same chance to be in the sample: J. Vitter,
 * "Random Sampling with a Reservoir", 1985, algorithm R. */
static void check_sample(struct check *c, struct cli_walk *walk)
{
    size_t most = (size_t)c->call->sample, kept = 0, size = 0;
    struct sampled *sample = cli_alloc(most, sizeof(*sample));
    struct shed_reply *keys;
    uint64_t seen = 0;

    while ((keys = cli_walk_next(walk)) != NULL) {
        for (size_t i = 0; i < shed_reply_count(keys); i++) {
            uint64_t at =
                kept < most ? kept : shed_random_jitter() % (seen + 1);
            seen++;
            if (at >= most)
                continue;
            kept += kept < most;
            shed_reply_free(sample[at].key);
            sample[at].key = shed_reply_take(keys, i);
        }
        shed_reply_free(keys);
    }
    for (size_t i = 0; i < kept; i++) {
        const char *key = shed_reply_bytes(sample[i].key, &size);
        if (key != NULL)
            gather(c, key, size);
        shed_reply_free(sample[i].key);
    }
    free(sample);
}

/* ------------------------------------------------------------------ the end */

static void open_source(struct check *c)
{
    struct shed_source_options loads = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;
    struct shed_error err;
    enum shed_code code;

    loads.max_loads =
        1; /* one query at a time, because others use the database */
    loads.max_batch = BATCH;
    loads.load_timeout_ms = LOAD_TIMEOUT_MS;
    options.source = &loads;
    code = shed_mysql_source_open(c->call->mysql, c->call->query, &options,
                                  &c->source, &err);
    if (code != SHED_OK)
        cli_fail(c->call, code == SHED_EINVAL ? CLI_USAGE : CLI_FAILED, "%s",
                 err.reason);
}

static void print_summary(const struct check *c)
{
    char advice[CLI_ADVICE_BYTES];

    if (c->call->is_json) {
        cli_json_print(
            c->call,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "compared",
                      (json_int_t)c->compared, "equal", (json_int_t)c->equal,
                      "changed_meanwhile", (json_int_t)c->changed, "failed",
                      (json_int_t)c->failed, "invalidated",
                      (json_int_t)c->invalidated, "not_comparable",
                      (json_int_t)c->skipped, "reason",
                      c->failed > 0 ? json_string(c->why) : json_null(),
                      "stale", c->stale_list));
        return;
    }
    json_decref(c->stale_list);
    printf("%" PRIu64 " compared: %" PRIu64 " equal, %" PRIu64
           " stale, %" PRIu64 " invalidated or loaded meanwhile, %" PRIu64
           " failed\n",
           c->compared, c->equal, c->stale, c->changed, c->failed);
    if (c->invalidated > 0)
        printf("%" PRIu64 " invalidated, by a tag or with all entries, and not "
               "compared\n",
               c->invalidated);
    if (c->skipped > 0)
        printf("%" PRIu64 " had no value to compare (leases, failures, unknown "
               "bytes)\n",
               c->skipped);
    if (c->failed > 0)
        printf("the first failure: %s\n", c->why);
    if (c->compared == 0 && c->invalidated > 0)
        printf("nothing was proven: no caller is given these entries\n");
    else if (c->compared == 0 && c->skipped == 0)
        printf("nothing was proven: there are no entries of '%s': %s\n",
               c->call->words[0],
               cli_cache_advice(c->redis, c->call->words[0], advice));
}

int cli_check(struct cli_call *call)
{
    struct check c = {
        .call = call,
        .stale_list = json_array(),
        .rate = {.per_s = call->rate > 0 ? call->rate : RATE_DEFAULT}};
    struct cli_walk walk;

    cli_check_cache(call, call->words[0]);
    if (call->mysql == NULL || call->query == NULL)
        cli_fail(call, CLI_USAGE,
                 "check needs --mysql URI (or SNOWSHED_MYSQL) and --query "
                 "'SELECT id, value FROM t WHERE id IN (?)'");
    open_source(&c);
    c.batch = c.rate.per_s < BATCH ? (size_t)c.rate.per_s : BATCH;
    c.items = cli_alloc(c.batch, sizeof(*c.items));
    c.redis = cli_redis_open(call, NULL);
    c.tags = cli_tags_open(c.redis, call->words[0]);
    cli_walk_begin(&walk, c.redis, call->words[0], 0);
    if (call->sample > 0)
        check_sample(&c, &walk);
    else
        check_all(&c, &walk);
    settle_batch(&c);
    cli_walk_end(&walk);
    print_summary(&c);
    shed_source_close(c.source);
    cli_tags_close(c.tags);
    cli_redis_close(c.redis);
    free(c.items);
    if (c.stale > 0 || c.compared == 0)
        return CLI_NO;
    return c.failed > 0 ? CLI_FAILED : CLI_YES;
}
