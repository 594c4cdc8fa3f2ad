/*
 * The rows that a process keeps: a hash table in shards, each with a lock of
 * its own and an equal part of the memory. Its invariant: whenever a lock is
 * free, what its shard has allocated is within its part.
 *
 * Many threads may read one row that is near, so reads must not write to memory
 * that threads on other processors write. A shard's lock is a "big reader"
 * lock (of Linux's lglocks, by I. Molnar and R. Russell): a mutex for each
 * processor, of which a reader takes that of its own, and a writer takes all.
 * And a row gives out handles of its value, one for each processor, which are
 * counted apart (shed_value_split). Both cost a reader two atomic operations on
 * memory that its processor has already. What was ruled out: epochs or a
 * seqlock with deferred freeing spare the mutex, about 10 ns of a hit, but not
 * the count, and need a list of all threads.
 *
 * What leaves when a shard is full is decided by SIEVE (Y. Zhang, J. Yang,
 * Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is Simpler than LRU: an Efficient
 * Turn-Key Eviction Algorithm for Web Caches", NSDI 2024). Rows are in a queue
 * in the order in which they came. A use of a row sets a bit in it and moves
 * nothing. A hand goes from the oldest row to the newest and then begins again;
 * it clears the bits that it finds set, and takes the first row that has none.
 * On Zipf's law and on shapes of published traces it keeps as good rows as
 * S3-FIFO does, and has 1.14 times the hits of LRU: tests/bench.
 */
#include "known/local.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/value.h"
#include "entry/key.h"
#include "wire/reply.h"

#define SHARDS ((size_t)16)
/* A drop makes all rows that are being read of keys with its number be refused,
 * so there are enough numbers that writes of other keys seldom matter. */
#define NUMBERS ((size_t)4096)
/* A chain for each so many bytes of rows: they take less than 2 percent, and
 * are short even where rows are small. */
#define CHAIN_BYTES 512
/* What malloc adds to an allocation, at most; a large one it maps, in whole
 * pages. glibc maps what is larger than this (M_MMAP_THRESHOLD), or, once such
 * a one was freed, than that: then this counts too much. */
#define MALLOC_BYTES 24
#define MAPPED_BYTES ((size_t)128 << 10)

struct row {
    struct shed_map_node in_map;
    struct shed_node in_order;
    struct shed_local_row kept; /* as it was at kept_ms */
    uint64_t kept_ms;           /* monotonic */
    uint64_t end_ms;            /* the age from which it is never given out */
    size_t bytes;               /* that are freed with it */
    uint64_t known_ms;     /* when it was last known to be current; awake */
    uint64_t known_age_ms; /* then */
    unsigned epoch;        /* of the shard, then; 0: it never was */
    atomic_bool is_visited;
    struct shed_value *handle[]; /* of its value, for each processor; NULL: not
                                    made yet. Under its lane's mutex alone.
                                    Behind them is the key */
};

/* A processor's mutex of a shard. */
struct shed_local_lane {
    _Alignas(SHED_CPU_LINE_BYTES) struct shed_mutex mu;
    uint64_t hits, negative_hits; /* under mu */
};

struct shard {
    struct shed_local_lane *lane;
    atomic_uint changes; /* pushes, and what else may end that a row is near;
                            written under all lanes' mutexes */
    /* read under any lane's mutex, written under all */
    unsigned epoch;
    struct shed_map map;
    struct shed_list order; /* the oldest first */
    struct shed_node *hand; /* NULL: at the oldest */
    size_t rows, bytes;
};

struct shed_local {
    /* set at creation */
    const struct shed_freshness_rule *rule;
    struct shed_counters *counters;
    uint64_t near_ms;
    size_t page_bytes;
    unsigned lanes;               /* of a shard */
    struct shed_local_lane *lane; /* of all shards */
    size_t mutexes;               /* of lane that were made */
    size_t chains;                /* of a shard */
    struct shed_map_node **chain; /* of all shards */
    size_t limit_bytes;           /* of the rows of a shard */
    /* atomic; written under the lock of the key's shard */
    atomic_uint drops[NUMBERS];

    struct shard shard[SHARDS];
};

/* ------------------------------------------------------------- one shard */

/* Rows are known by what the program calls them, so that a near hit needs no
 * name in Redis. */
static struct shed_map_key map_key_of(struct shed_bytes key)
{
    return shed_map_key(shed_key_of_name(key));
}

/* Keys of one number are in one shard. */
static atomic_uint *drops_of(struct shed_local *local, struct shed_map_key key)
{
    return &local->drops[key.hash % NUMBERS];
}

static struct shard *shard_of(struct shed_local *local, struct shed_map_key key)
{
    return &local->shard[key.hash % SHARDS];
}

/* To write. The order of mutexes knows the first; the others are behind it. */
static void lock(struct shed_local *local, struct shard *shard)
{
    shed_mutex_lock(&shard->lane[0].mu);
    for (unsigned i = 1; i < local->lanes; i++)
        (void)pthread_mutex_lock(&shard->lane[i].mu.mutex);
}

static void unlock(struct shed_local *local, struct shard *shard)
{
    for (unsigned i = local->lanes; i-- > 1;)
        (void)pthread_mutex_unlock(&shard->lane[i].mu.mutex);
    shed_mutex_unlock(&shard->lane[0].mu);
}

static struct row *row_of(struct shed_node *node)
{
    return shed_container_of(node, struct row, in_order);
}

/* Returns: NULL if there is none of this key. */
static struct row *find_locked(const struct shard *shard,
                               struct shed_map_key key)
{
    struct shed_map_node *node = shed_map_find(&shard->map, key);

    return node != NULL ? shed_container_of(node, struct row, in_map) : NULL;
}

/* The row of a key, or NULL, and its shard, locked until unlock. */
static struct row *lock_row(struct shed_local *local, struct shed_map_key key,
                            struct shard **shard)
{
    *shard = shard_of(local, key);
    lock(local, *shard);
    return find_locked(*shard, key);
}

static void visit(struct row *row)
{
    /* it is read first, because a write would take the line from the others */
    if (!atomic_load_explicit(&row->is_visited, memory_order_relaxed))
        atomic_store_explicit(&row->is_visited, true, memory_order_relaxed);
}

/* row may be NULL. */
static void remove_locked(const struct shed_local *local, struct shard *shard,
                          struct row *row)
{
    if (row == NULL)
        return;
    if (shard->hand == &row->in_order)
        shard->hand = row->in_order.after;
    shed_map_remove(&shard->map, &row->in_map);
    shed_list_remove(&shard->order, &row->in_order);
    shard->rows--;
    shard->bytes -= row->bytes;
    for (unsigned i = 0; i < local->lanes; i++)
        shed_value_unref(row->handle[i]);
    shed_value_unref(row->kept.value);
    free(row);
}

static void clear_locked(const struct shed_local *local, struct shard *shard)
{
    while (shard->order.first != NULL)
        remove_locked(local, shard, row_of(shard->order.first));
}

/* There is a row. */
static void evict_locked(const struct shed_local *local, struct shard *shard)
{
    struct shed_node *at =
        shard->hand != NULL ? shard->hand : shard->order.first;

    while (
        atomic_load_explicit(&row_of(at)->is_visited, memory_order_relaxed)) {
        atomic_store_explicit(&row_of(at)->is_visited, false,
                              memory_order_relaxed);
        at = at->after != NULL ? at->after : shard->order.first;
    }
    shard->hand = at;
    remove_locked(local, shard, row_of(at));
}

static void insert_locked(const struct shed_local *local, struct shard *shard,
                          struct row *row)
{
    while (shard->bytes + row->bytes > local->limit_bytes)
        evict_locked(local, shard);
    shed_map_insert(&shard->map, &row->in_map);
    shed_list_append(&shard->order, &row->in_order);
    shard->rows++;
    shard->bytes += row->bytes;
}

/* ------------------------------------------------------------------- rows */

/* The memory that malloc takes for an allocation, at most. */
static size_t allocated_bytes(const struct shed_local *local, size_t size)
{
    size_t bytes = size + MALLOC_BYTES;

    if (bytes <= MAPPED_BYTES)
        return bytes;
    bytes += sizeof(size_t) + local->page_bytes - 1;
    return bytes - bytes % local->page_bytes;
}

/* All that is freed with the last reference of a value. */
static size_t value_bytes(const struct shed_local *local,
                          const struct shed_value *value)
{
    struct shed_entry_tags tags = {.tags_size = 0};

    if (shed_value_block(value)->owner == NULL)
        return allocated_bytes(local,
                               sizeof(struct shed_value_block) + value->size);
    if (shed_value_header(value) != NULL)
        shed_entry_tags(shed_value_header(value), &tags);
    return allocated_bytes(local, sizeof(struct shed_reply) +
                                      SHED_ENTRY_HEADER_BYTES + value->size +
                                      tags.tags_size + 1);
}

/* A row that was loaded has no header: it is not told from others. */
static bool has_header(const struct row *row, const void *header)
{
    const void *own = shed_value_header(row->kept.value);

    return own != NULL && header != NULL &&
           memcmp(header, own, SHED_ENTRY_HEADER_BYTES) == 0;
}

static struct shed_row_version version_of(const struct shed_local_row *row)
{
    const void *header = shed_value_header(row->value);

    return header != NULL ? shed_entry_row_version(header) : row->version;
}

/* Returns: NULL if it is over, too large, or memory is out. */
static struct row *create_row(const struct shed_local *local,
                              struct shed_map_key key,
                              const struct shed_local_row *from,
                              uint64_t now_ms)
{
    const struct shed_freshness_rule rule =
        shed_freshness_rule_of_kind(local->rule, from->value->kind);
    const uint64_t end_ms = shed_freshness_kept_ms(&rule, from->ttl_ms);
    const size_t handles = local->lanes * sizeof(struct shed_value *);
    const size_t size = sizeof(struct row) + handles + key.size;
    size_t bytes =
        allocated_bytes(local, size) + value_bytes(local, from->value);
    struct row *row;

    if (local->near_ms > 0)
        bytes += local->lanes *
                 (SHED_VALUE_SPLIT_BYTES + SHED_CPU_LINE_BYTES + MALLOC_BYTES);
    if (from->age_ms >= end_ms || bytes > local->limit_bytes)
        return NULL;
    row = calloc(1, size);
    if (row == NULL)
        return NULL;
    *row = (struct row){
        .kept = *from, .kept_ms = now_ms, .end_ms = end_ms, .bytes = bytes};
    (void)shed_value_ref(row->kept.value);
    row->kept.version = version_of(from);
    row->in_map.key = key;
    row->in_map.key.at = memcpy(row->handle + local->lanes, key.at, key.size);
    return row;
}

static uint64_t age_of(const struct row *row, uint64_t now_ms)
{
    return shed_deadline_ms(row->kept.age_ms,
                            shed_left_ms(now_ms, row->kept_ms));
}

/* Whether a source that lags has loaded an older row than is kept. */
static bool is_older(const struct shed_local_row *loaded, const struct row *old,
                     uint64_t now_ms)
{
    return age_of(old, now_ms) < old->end_ms &&
           shed_row_version_is_lower(loaded->version, old->kept.version);
}

struct shed_local_mark shed_local_mark(struct shed_local *local,
                                       struct shed_bytes key)
{
    struct shed_map_key marked;

    if (local == NULL)
        return (struct shed_local_mark){0};
    marked = map_key_of(key);
    return (struct shed_local_mark){
        .drops = atomic_load(drops_of(local, marked)),
        .changes = atomic_load(&shard_of(local, marked)->changes),
        .at_ms = shed_awake_ms()};
}

void shed_local_keep(struct shed_local *local, struct shed_bytes key,
                     struct shed_local_mark mark,
                     const struct shed_local_row *row, uint64_t now_ms)
{
    struct shed_map_key kept;
    struct shard *shard;
    struct row *at;

    if (local == NULL)
        return;
    kept = map_key_of(key);
    at = lock_row(local, kept, &shard);
    if (at != NULL && (has_header(at, shed_value_header(row->value)) ||
                       is_older(row, at, now_ms))) {
        visit(at);
    } else if (atomic_load(drops_of(local, kept)) == mark.drops) {
        /* even if the new one cannot be kept, that is older */
        remove_locked(local, shard, at);
        at = create_row(local, kept, row, now_ms);
        if (at != NULL)
            insert_locked(local, shard, at);
    }
    if (at != NULL && mark.is_announced &&
        mark.changes == atomic_load(&shard->changes)) {
        at->known_ms = mark.at_ms;
        at->known_age_ms = age_of(at, now_ms);
        at->epoch = shard->epoch;
    }
    unlock(local, shard);
}

void shed_local_keep_entry(struct shed_local *local, struct shed_bytes key,
                           struct shed_local_mark mark,
                           struct shed_value *value,
                           const struct shed_freshness_times *times,
                           uint64_t server_ms)
{
    struct shed_local_row row;

    if (local == NULL || server_ms == 0)
        return;
    row = (struct shed_local_row){
        .value = value,
        .age_ms = shed_left_ms(server_ms, times->written_ms),
        .ttl_ms = shed_left_ms(times->until_ms, times->written_ms),
        .cost_ms = times->cost_ms};
    shed_local_keep(local, key, mark, &row, shed_now_ms());
}

bool shed_local_find(struct shed_local *local, struct shed_bytes key,
                     uint64_t now_ms, struct shed_local_row *out)
{
    struct shard *shard;
    struct row *row;
    bool is_found;

    if (local == NULL)
        return false;
    row = lock_row(local, map_key_of(key), &shard);
    is_found = row != NULL && age_of(row, now_ms) < row->end_ms;
    if (is_found) {
        visit(row);
        *out = row->kept;
        out->age_ms = age_of(row, now_ms);
        (void)shed_value_ref(out->value);
    } else {
        remove_locked(local, shard, row);
    }
    unlock(local, shard);
    return is_found;
}

enum shed_freshness shed_local_judge(const struct shed_local_row *row,
                                     const struct shed_freshness_rule *rule)
{
    const uint64_t written_ms = 1; /* 0 would be an unknown clock */
    const struct shed_freshness_times times = {
        .written_ms = written_ms,
        .until_ms = shed_deadline_ms(written_ms, row->ttl_ms),
        .cost_ms = row->cost_ms};
    const struct shed_freshness_rule own =
        shed_freshness_rule_of_kind(rule, row->value->kind);

    return shed_freshness_judge(&own, &times,
                                shed_deadline_ms(written_ms, row->age_ms),
                                shed_random_jitter());
}

void shed_local_forget(struct shed_local *local, struct shed_bytes key,
                       const struct shed_value *value)
{
    struct shard *shard;
    struct row *row = lock_row(local, map_key_of(key), &shard);

    if (row != NULL && row->kept.value == value)
        remove_locked(local, shard, row);
    unlock(local, shard);
}

void shed_local_drop(struct shed_local *local, struct shed_bytes key)
{
    struct shed_map_key dropped;
    struct shard *shard;
    struct row *row;

    if (local == NULL)
        return;
    dropped = map_key_of(key);
    row = lock_row(local, dropped, &shard);
    atomic_fetch_add(drops_of(local, dropped), 1);
    atomic_fetch_add(&shard->changes, 1);
    remove_locked(local, shard, row);
    unlock(local, shard);
}

void shed_local_drop_all(struct shed_local *local)
{
    for (size_t i = 0; local != NULL && i < SHARDS; i++) {
        struct shard *shard = &local->shard[i];
        lock(local, shard);
        for (size_t n = i; n < NUMBERS; n += SHARDS)
            atomic_fetch_add(&local->drops[n], 1);
        atomic_fetch_add(&shard->changes, 1);
        clear_locked(local, shard);
        unlock(local, shard);
    }
}

/* ------------------------------------------------------------------- near */

static bool is_near(const struct shed_local *local, const struct shard *shard,
                    const struct row *row, uint64_t now_ms)
{
    return row->epoch == shard->epoch &&
           shed_left_ms(now_ms, row->known_ms) < local->near_ms;
}

/* The handle of a lane, which shows this age. Without memory for a new handle
 * the old one is returned, which shows a lower age. Returns: NULL: there is no
 * old one either. */
static struct shed_value *handle_of(struct row *row, ptrdiff_t lane,
                                    uint64_t age_ms)
{
    struct shed_value *old = row->handle[lane], *value;

    if (old != NULL && age_ms < old->age_ms + SHED_LOCAL_AGE_STEP_MS)
        return old;
    value = shed_value_split(row->kept.value);
    if (value == NULL)
        return old;
    value->origin = SHED_ORIGIN_REDIS;
    value->age_ms = age_ms;
    value->fresh_ms = shed_left_ms(row->kept.ttl_ms, age_ms);
    shed_value_unref(old);
    row->handle[lane] = value;
    return value;
}

/* Looks under the mutex of the processor's own lane. */
bool shed_local_begin_near(struct shed_local *local, struct shed_bytes key,
                           uint64_t now_ms, struct shed_local_near *out)
{
    struct shed_map_key wanted = shed_map_key(key);
    struct shard *shard = shard_of(local, wanted);
    struct shed_local_lane *lane = &shard->lane[shed_cpu_copy(local->lanes)];
    struct row *row;

    shed_mutex_lock(&lane->mu);
    row = find_locked(shard, wanted);
    if (row != NULL && is_near(local, shard, row, now_ms)) {
        out->row = row->kept;
        out->row.age_ms = shed_deadline_ms(row->known_age_ms,
                                           shed_left_ms(now_ms, row->known_ms));
        out->row.value = handle_of(row, lane - shard->lane, out->row.age_ms);
        out->lane = lane;
        visit(row);
        if (out->row.value != NULL)
            return true;
    }
    shed_mutex_unlock(&lane->mu);
    return false;
}

void shed_local_end_near(const struct shed_local_near *near, bool is_taken)
{
    struct shed_local_lane *lane = near->lane;

    if (is_taken && shed_value_ref(near->row.value)->kind == SHED_KIND_ABSENT)
        lane->negative_hits++;
    else if (is_taken)
        lane->hits++;
    shed_mutex_unlock(&lane->mu);
}

void shed_local_count_hits(struct shed_local *local)
{
    for (size_t i = 0; local != NULL && i < SHARDS * local->lanes; i++) {
        struct shed_local_lane *lane = &local->lane[i];
        shed_mutex_lock(&lane->mu);
        shed_count(&local->counters->hits, lane->hits);
        shed_count(&local->counters->negative_hits, lane->negative_hits);
        shed_count(&local->counters->near_hits,
                   lane->hits + lane->negative_hits);
        lane->hits = lane->negative_hits = 0;
        shed_mutex_unlock(&lane->mu);
    }
}

void shed_local_change(struct shed_local *local, struct shed_bytes key)
{
    struct shard *shard;
    struct row *row;

    if (local == NULL)
        return;
    row = lock_row(local, map_key_of(key), &shard);
    atomic_fetch_add(&shard->changes, 1);
    if (row != NULL)
        row->epoch = 0;
    unlock(local, shard);
}

void shed_local_change_all(struct shed_local *local)
{
    for (size_t i = 0; local != NULL && i < SHARDS; i++) {
        struct shard *shard = &local->shard[i];
        lock(local, shard);
        atomic_fetch_add(&shard->changes, 1);
        if (++shard->epoch == 0)
            shard->epoch = 1;
        unlock(local, shard);
    }
}

/* ---------------------------------------------------------- begin and end */

static size_t lanes_bytes(const struct shed_local *local)
{
    return SHARDS * local->lanes * sizeof(struct shed_local_lane);
}

static size_t chains_bytes(const struct shed_local *local)
{
    return SHARDS * local->chains * sizeof(struct shed_map_node *);
}

static size_t overhead_bytes(const struct shed_local *local)
{
    return allocated_bytes(local, sizeof(*local)) +
           allocated_bytes(local, lanes_bytes(local)) +
           allocated_bytes(local, chains_bytes(local));
}

/* Returns: false when memory is out. */
static bool init_shards(struct shed_local *local)
{
    local->lane = aligned_alloc(SHED_CPU_LINE_BYTES, lanes_bytes(local));
    local->chain = malloc(chains_bytes(local));
    if (local->lane == NULL || local->chain == NULL)
        return false;
    memset(local->lane, 0, lanes_bytes(local));
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &local->shard[i];
        shard->lane = local->lane + i * local->lanes;
        shard->epoch = 1;
        shed_map_init(&shard->map, local->chain + i * local->chains,
                      local->chains);
    }
    for (; local->mutexes < SHARDS * local->lanes; local->mutexes++)
        if (shed_mutex_init(&local->lane[local->mutexes].mu, SHED_RANK_LOCAL) !=
            0)
            return false;
    return true;
}

struct shed_local *shed_local_create(size_t limit_bytes, uint64_t near_ms,
                                     const struct shed_freshness_rule *rule,
                                     struct shed_counters *counters)
{
    struct shed_local *local = calloc(1, sizeof(*local));
    size_t overhead;

    if (local == NULL)
        return NULL;
    local->rule = rule;
    local->counters = counters;
    local->near_ms = near_ms;
    local->lanes = near_ms > 0 ? shed_cpu_copies() : 1;
    local->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    local->chains = limit_bytes / SHARDS / CHAIN_BYTES + 1;
    overhead = overhead_bytes(local);
    if (limit_bytes > overhead)
        local->limit_bytes = (limit_bytes - overhead) / SHARDS;
    if (init_shards(local))
        return local;
    shed_local_destroy(local);
    return NULL;
}

void shed_local_destroy(struct shed_local *local)
{
    if (local == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++)
        clear_locked(local, &local->shard[i]);
    while (local->mutexes-- > 0)
        shed_mutex_destroy(&local->lane[local->mutexes].mu);
    free(local->chain);
    free(local->lane);
    free(local);
}

struct shed_local_size shed_local_size(struct shed_local *local)
{
    struct shed_local_size size = {0};

    if (local != NULL)
        size.bytes = overhead_bytes(local);
    for (size_t i = 0; local != NULL && i < SHARDS; i++) {
        struct shard *shard = &local->shard[i];
        lock(local, shard);
        size.rows += shard->rows;
        size.bytes += shard->bytes;
        unlock(local, shard);
    }
    return size;
}
