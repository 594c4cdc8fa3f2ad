/*
 * Publishing. Its invariant: an exchange is in the list of those to be
 * published, or in that of a call under way, exactly while is_publishing is
 * set.
 *
 * Rows of keys that expired together are loaded in batches, and would be
 * published by a call each, of which Redis spends most on the call. So rows
 * that come together share one. The bounds keep it so short that other commands
 * do not wait for it.
 */
#include "flight/flight_publish.h"

#include <assert.h>

#include "base/container.h"
#include "base/random.h"
#include "base/value.h"
#include "entry/freshness.h"
#include "flight/flight_load.h"
#include "flight/flight_reply.h"

#define US_PER_MS 1000
/* Of one call: its keys are two of each row, behind three other arguments. */
#define ROWS_MAX 6
#define BYTES_MAX ((size_t)16384)
_Static_assert(3 + 2 * ROWS_MAX <= SHED_ARGS_MAX, "there is room for the keys");

/* The arguments of one row, and what they borrow. */
struct row {
    struct shed_args args;
    struct shed_entry_parts parts;
    char fresh[SHED_DIGITS], kept[SHED_DIGITS];
};

static struct shed_flight_exchange *exchange_of(struct shed_node *node)
{
    return node != NULL
               ? shed_container_of(node, struct shed_flight_exchange, node)
               : NULL;
}

/* ---------------------------------------------------------------- one row */

/* How long what was loaded is fresh, and how long Redis keeps it: "no such row"
 * is not kept beyond its freshness. */
static void add_ttls(struct row *row, struct shed_flight_exchange *x)
{
    const struct shed_cache_options *o = &x->shared->cache->options;
    bool is_absent = x->loaded->value->kind == SHED_KIND_ABSENT;
    const struct shed_freshness_rule *rule = &x->shared->cache->rule;
    uint64_t fresh_ms = shed_flight_load_ttl_ms(x->loaded, o);
    uint64_t kept_ms =
        is_absent ? fresh_ms : shed_freshness_kept_ms(rule, fresh_ms);

    x->fresh_ms = fresh_ms;
    shed_args_add_number(&row->args, row->fresh, fresh_ms);
    shed_args_add_number(&row->args, row->kept,
                         shed_freshness_redis_ms(rule, kept_ms));
}

static void add_row(struct row *row, struct shed_flight_exchange *x)
{
    const struct shed_value *v = x->loaded->value;
    uint64_t cost_ms = x->loaded->cost_us / US_PER_MS;
    bool has_version =
        x->loaded->version.is_known && v->kind != SHED_KIND_ABSENT;
    struct shed_entry entry = {
        .type = v->kind == SHED_KIND_ABSENT ? SHED_ENTRY_NEGATIVE
                                            : SHED_ENTRY_VALUE,
        .flags = (v->kind == SHED_KIND_NULL ? SHED_ENTRY_NULL : 0) |
                 (has_version ? SHED_ENTRY_ROW_VERSION : 0),
        .row_version = has_version ? x->loaded->version.number : 0,
        .cost_ms = cost_ms < UINT32_MAX ? (uint32_t)cost_ms : UINT32_MAX,
        .position = x->position,
        .payload = v->data,
        .payload_size = v->size};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_args *args = &row->args;

    if (x->shared->cache->tag_log != NULL) {
        entry.flags |= SHED_ENTRY_POSITION;
        entry.flags |= x->loaded->tags != NULL ? SHED_ENTRY_TAGS : 0;
        entry.tags = x->loaded->tags;
        entry.tags_size = x->loaded->tags_size;
    }
    shed_random_unique(nonce, sizeof(nonce));
    shed_entry_encode(x->key, &entry, nonce, &row->parts);
    args->count = 0;
    shed_args_add(args, x->version, sizeof(x->version));
    shed_args_add(args, row->parts.head, sizeof(row->parts.head));
    shed_args_add(args, row->parts.tail, sizeof(row->parts.tail));
    shed_args_add(args, entry.payload, entry.payload_size);
    add_ttls(row, x);
    shed_args_add(args, x->replaced, x->is_refresh ? sizeof(x->replaced) : 0);
    shed_args_add_text(args, !x->loaded->is_unmodified ? ""
                             : x->has_callers          ? "keep and get"
                                                       : "keep");
    shed_args_add(args, entry.tags, entry.tags_size);
}

/* --------------------------------------------------------------- the calls */

static void on_published(void *arg, const struct shed_call_result *result)
{
    const struct shed_flight_exchange *first = arg;
    struct shed_list rows = first->published;
    struct shed_flight_exchange *x;

    /* an event can be the end of its exchange */
    for (size_t i = 0; (x = exchange_of(shed_list_pop(&rows))) != NULL; i++) {
        struct shed_call_result one = *result;
        struct shed_reply *of_row = shed_reply_at(result->reply, i);
        if (of_row != NULL) /* else an error for all, or for nobody */
            one.reply = of_row;
        x->is_publishing = false;
        x->on_event(x->arg, shed_flight_reply_event(x, &one));
    }
}

/* Take the first that waits, and those behind it that may go with it. Returns:
 * how many. */
static size_t take_some(struct shed_list *waiting,
                        struct shed_flight_exchange *first)
{
    struct shed_flight_exchange *x = first;
    size_t count = 0, bytes = 0;

    first->published = (struct shed_list){NULL, NULL};
    do {
        shed_list_remove(waiting, &x->node);
        shed_list_append(&first->published, &x->node);
        count++;
        bytes += x->loaded->value->size;
        x = exchange_of(waiting->first);
    } while (x != NULL && count < ROWS_MAX &&
             bytes + x->loaded->value->size <= BYTES_MAX &&
             shed_client_is_one_slot(x->shared->cache->client, first->key.at,
                                     first->key.size, x->key.at, x->key.size));
    return count;
}

static void send_some(struct shed_list *waiting)
{
    struct shed_flight_exchange *first = exchange_of(waiting->first);
    size_t count = take_some(waiting, first);
    struct row rows[ROWS_MAX];
    struct row *row = rows;
    struct shed_args args;
    char keys[SHED_DIGITS];

    shed_write_digits(keys, 2 * count);
    shed_script_begin(&args, SHED_SCRIPT_PUBLISH, keys);
    args.more = &rows[0].args;
    for (struct shed_node *n = first->published.first; n != NULL;
         n = n->after, row++) {
        struct shed_flight_exchange *x = exchange_of(n);
        shed_args_add(&args, x->key.at, x->key.size);
        shed_args_add(&args, x->refresh_key.at, x->refresh_key.size);
        add_row(row, x);
        row->args.more = n->after != NULL ? &row[1].args : NULL;
    }
    shed_client_send(first->shared->cache->client, &first->call, &args,
                     on_published, first);
}

void shed_flight_publish_all(void *arg)
{
    struct shed_flight_shared *shared = arg;

    while (shared->to_publish.first != NULL)
        send_some(&shared->to_publish);
}

void shed_flight_publish(struct shed_flight_exchange *x)
{
    struct shed_flight_shared *shared = x->shared;

    assert(x->loaded->value != NULL && !x->is_publishing);
    x->is_publishing = true;
    if (shared->to_publish.first == NULL)
        shed_timer_set(shared->publish, 0);
    shed_list_append(&shared->to_publish, &x->node);
}
