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
#include <stdlib.h>
#include <string.h>

#include <snowshed/mysql.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/latch.h"
#include "base/random.h"
#include "source/load.h"
#include "cli/entry.h"
#include "cli/walk.h"

#define BATCH 100
#define ROUNDS 6 /* an entry that changes in each of them is not stale */
#define LOAD_TIMEOUT_MS 30000
#define JOB_TIMEOUT_MS 60000 /* a job may wait for another */
#define VALUE_LIMIT_BYTES ((uint64_t)256 << 20)

struct item {
    struct cli_key key;
    struct cli_entry entry; /* as last read */
    bool is_same;           /* it was the same one round earlier */
    struct shed_job job;    /* its last load */
    struct shed_latch *latch;
};

/* What becomes of an item. CHANGED: in each round, or it is no row any longer;
 * FAILED: its row could not be loaded. The last two are not compared: when it
 * was found it was a miss by a tag, or no row. */
enum outcome { EQUAL, STALE, CHANGED, FAILED, INVALIDATED, NOT_COMPARABLE };

struct check {
    const struct cli_call *call;
    struct cli_tags *tags;
    struct shed_source *source;
    struct item *items[BATCH]; /* those without an outcome */
    size_t count, batch;
    struct cli_rate rate; /* of the items */
    uint64_t seen;        /* entries from which the sample was drawn */
    json_t *stale_list;   /* of the answer */
    uint64_t outcomes[NOT_COMPARABLE + 1]; /* how many have each */
    char why[SHED_REASON_BYTES];           /* of the first failure */
};

/* ----------------------------------------------------------------- reading */

/* The log is read in each round, too: a tag may have been invalidated since
 * its entries were found to differ. */
static void read_entries(struct check *c)
{
    cli_tags_read(c->tags);
    for (size_t i = 0; i < c->count; i++)
        cli_redis_send_key(c->call->redis, "GET KEY",
                           c->items[i]->key.named.key.redis);
    for (size_t i = 0; i < c->count; i++) {
        struct item *item = c->items[i];
        struct cli_entry before = item->entry;
        cli_entry_decode(&item->entry, &item->key,
                         cli_redis_hear_key(c->call->redis, "GET", false));
        cli_entry_judge(&item->entry, c->tags);
        item->is_same = cli_are_same(before.bytes, item->entry.bytes);
        shed_reply_free(before.reply);
    }
}

/* Runs on a thread of the source. */
static void settle(struct shed_job *job)
{
    shed_latch_count_down(shed_container_of(job, struct item, job)->latch, 1);
}

static void load_rows(struct check *c)
{
    struct shed_list jobs = {NULL, NULL};
    struct shed_latch latch;

    if (c->count == 0)
        return;
    shed_latch_init(&latch, c->count);
    for (size_t i = 0; i < c->count; i++) {
        struct item *item = c->items[i];
        shed_value_unref(item->job.loaded.value);
        item->latch = &latch;
        item->job = (struct shed_job){
            .key = shed_key_bytes(&item->key.named.key).data,
            .key_size = shed_key_bytes(&item->key.named.key).size,
            .deadline_ms = shed_deadline_ms(shed_now_ms(), JOB_TIMEOUT_MS),
            .value_limit_bytes = VALUE_LIMIT_BYTES,
            .settle = settle};
        shed_list_append(&jobs, &item->job.node);
    }
    shed_source_submit(c->source, &jobs);
    (void)shed_latch_wait(&latch,
                          UINT64_MAX); /* bounded: each load has a time limit */
}

/* --------------------------------------------------------------- comparing */

/* The row that an entry has, which stays the entry's. */
static struct shed_value row_of(const struct cli_entry *e)
{
    return (struct shed_value){.kind = e->kind == CLI_NEGATIVE
                                           ? SHED_KIND_ABSENT
                                       : cli_entry_is_null(e) ? SHED_KIND_NULL
                                                              : SHED_KIND_ROW,
                               .data = e->entry.payload,
                               .size = e->entry.payload_size};
}

static bool is_equal(const struct shed_value *a, const struct shed_value *b)
{
    return a->kind == b->kind && a->size == b->size &&
           (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

static void show_side(json_t *item, const char *name,
                      const struct shed_value *row)
{
    json_t *object = cli_out_object(item, name);

    cli_out_text(object, "kind", shed_kind_name(row->kind));
    if (row->kind == SHED_KIND_ROW)
        cli_out_bytes(object, "value", shed_bytes(row->data, row->size));
}

/* As text, at once. */
static void report(struct check *c, const struct item *item,
                   const struct shed_value *cached)
{
    bool is_json = c->call->is_json;
    json_t *object = is_json ? cli_out_item(c->stale_list) : cli_out_open();
    json_t *stale = is_json ? object : cli_out_object(object, "stale_entry");

    cli_out_bytes(stale, "key", shed_key_bytes(&item->key.named.key));
    cli_out_number(stale, "written_ms", item->entry.entry.written_ms);
    show_side(stale, "cache", cached);
    show_side(stale, "database", item->job.loaded.value);
    if (!is_json)
        cli_out_close(c->call, object);
}

/* ------------------------------------------------------------- the rounds */

/* Take an item out of the round; the last one moves to its place. */
static void settle_item(struct check *c, size_t i, enum outcome outcome)
{
    struct item *item = c->items[i];

    c->outcomes[outcome]++;
    c->items[i] = c->items[--c->count];
    shed_reply_free(item->entry.reply);
    shed_value_unref(item->job.loaded.value);
    free(item);
}

/* Leave out what no get would look at. */
static void leave_out(struct check *c, unsigned round)
{
    for (size_t i = c->count; i-- > 0;) {
        const struct cli_entry *e = &c->items[i]->entry;
        bool is_miss = e->miss.position > 0;
        if (is_miss || !cli_kind_is_stored(e->kind))
            settle_item(c, i,
                        round > 0 ? CHANGED
                        : is_miss ? INVALIDATED
                                  : NOT_COMPARABLE);
    }
}

static void compare(struct check *c, unsigned round)
{
    for (size_t i = c->count; i-- > 0;) {
        const struct item *item = c->items[i];
        const struct shed_loaded *loaded = &item->job.loaded;
        struct shed_value cached = row_of(&item->entry);
        if (loaded->value == NULL) {
            if (c->why[0] == '\0')
                (void)snprintf(c->why, sizeof(c->why), "%s",
                               loaded->error.reason);
            settle_item(c, i, FAILED);
        } else if (is_equal(&cached, loaded->value)) {
            settle_item(c, i, EQUAL);
        } else if (round > 0 && item->is_same) {
            report(c, item, &cached);
            settle_item(c, i, STALE);
        } /* else it is a suspicion, for the next round */
    }
}

static uint64_t count_compared(const struct check *c)
{
    return c->outcomes[EQUAL] + c->outcomes[STALE] + c->outcomes[CHANGED] +
           c->outcomes[FAILED];
}

/* Compare the gathered items, and remove them. */
static void settle_batch(struct check *c)
{
    if (c->count == 0)
        return; /* after the last whole batch */
    cli_rate_keep(&c->rate, c->count);
    for (unsigned round = 0; round < ROUNDS && c->count > 0; round++) {
        if (round > 0)
            shed_sleep_until(shed_now_ms() + c->call->grace_ms);
        read_entries(c);
        leave_out(c, round);
        load_rows(c);
        compare(c, round);
    }
    while (c->count > 0)
        settle_item(c, c->count - 1, CHANGED);
    if (c->outcomes[FAILED] > 0 && c->outcomes[FAILED] == count_compared(c))
        cli_fail(c->call, CLI_FAILED, "no row can be compared: %s", c->why);
}

static struct item *new_item(const struct check *c, struct shed_bytes name)
{
    struct item *item = cli_alloc(1, sizeof(*item));

    (void)cli_key_parse(&item->key, c->call->words[0], name);
    return item;
}

static void gather(struct check *c, struct item *item)
{
    c->items[c->count++] = item;
    if (c->count == c->batch)
        settle_batch(c);
}

/* Of the entries so far, each has the same chance to be in the sample
 * (J. Vitter, "Random Sampling with a Reservoir", 1985, algorithm R). */
static void draw(struct check *c, struct item **sample, struct shed_bytes name)
{
    uint64_t i = c->seen < c->call->sample
                     ? c->seen
                     : shed_random_jitter() % (c->seen + 1);

    c->seen++;
    if (i >= c->call->sample)
        return;
    free(sample[i]);
    sample[i] = new_item(c, name);
}

/* Compare all entries, or a sample of them. */
static void check_entries(struct check *c, struct cli_walk *walk)
{
    size_t size = (size_t)c->call->sample;
    struct item **sample = cli_alloc(size, sizeof(struct item *));

    while (cli_walk_next(walk))
        for (size_t i = 0; i < walk->count; i++) {
            const struct cli_found *found = &walk->found[i];
            if (!found->is_entry || found->is_refresh)
                continue;
            if (size == 0)
                gather(c, new_item(c, found->name));
            else
                draw(c, sample, found->name);
        }
    for (size_t i = 0; i < size && sample[i] != NULL; i++)
        gather(c, sample[i]);
    free(sample);
    settle_batch(c);
}

/* ------------------------------------------------------------------ the end */

static void open_source(struct check *c)
{
    struct shed_source_options loads = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;
    struct shed_error err;

    loads.max_loads =
        1; /* one query at a time, because others use the database */
    loads.max_batch = BATCH;
    loads.load_timeout_ms = LOAD_TIMEOUT_MS;
    options.source = &loads;
    if (shed_mysql_source_open(c->call->mysql, c->call->query, &options,
                               &c->source, &err) != SHED_OK)
        cli_fail_error(c->call, &err);
}

static void show_summary(const struct check *c)
{
    json_t *out = c->call->out;
    uint64_t invalidated = c->outcomes[INVALIDATED];

    cli_out_number(out, "compared", count_compared(c));
    cli_out_number(out, "equal", c->outcomes[EQUAL]);
    cli_out_number(out, "stale_count", c->outcomes[STALE]);
    cli_out_number(out, "changed_meanwhile", c->outcomes[CHANGED]);
    cli_out_number(out, "failed", c->outcomes[FAILED]);
    cli_out_text(out, "reason", c->why[0] != '\0' ? c->why : NULL);
    cli_out_number(out, "invalidated", invalidated);
    cli_out_number(out, "not_comparable", c->outcomes[NOT_COMPARABLE]);
    if (count_compared(c) > 0)
        return;
    cli_out_hint(out, invalidated > 0 ? "Nothing was proven: no caller is "
                                        "given entries that are invalidated."
                                      : "Nothing was proven.");
    if (invalidated + c->outcomes[NOT_COMPARABLE] == 0)
        cli_key_hint_none(c->call);
}

int cli_check(struct cli_call *call)
{
    struct check c = {.call = call, .rate = {.per_s = call->rate}};
    struct cli_walk walk;

    c.stale_list = cli_out_list(call->out, "stale");
    if (call->mysql == NULL || call->query == NULL)
        cli_fail(call, CLI_USAGE,
                 "check needs --mysql URI (or SNOWSHED_MYSQL) and --query "
                 "'SELECT id, value FROM t WHERE id IN (?)'");
    open_source(&c);
    cli_redis_open(call);
    c.batch = c.rate.per_s < BATCH ? (size_t)c.rate.per_s : BATCH;
    c.tags = cli_tags_open(call->redis, call->words[0]);
    cli_walk_begin(&walk, call->redis, call->words[0], CLI_KEYS_PER_S);
    check_entries(&c, &walk);
    show_summary(&c);
    shed_source_close(c.source);
    cli_tags_close(c.tags);
    if (c.outcomes[STALE] > 0 || count_compared(&c) == 0)
        return CLI_NO;
    return c.outcomes[FAILED] > 0 ? CLI_FAILED : CLI_YES;
}
