/*
 * Publishing. Its invariant: a task is in the list of those to be
 * published, or in that of a call under way, exactly while is_publishing is
 * set.
 *
 * Rows of keys that expired together are loaded in batches, and would be
 * published by a call each, of which Redis spends most on the call. So rows
 * that come together share one. The bounds keep it so short that other commands
 * do not wait for it.
 */
#include "flight/flight_task.h"

#include <assert.h>

#include "base/container.h"
#include "base/random.h"
#include "base/value.h"

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

static struct shed_flight_task *task_of(struct shed_node *node)
{
    return node != NULL ? shed_container_of(node, struct shed_flight_task, node)
                        : NULL;
}

/* ---------------------------------------------------------------- one row */

/* How long what was loaded is fresh, and how long Redis keeps it: "no such row"
 * is not kept beyond its freshness. */
static void add_ttls(struct row *row, const struct shed_flight_task *t)
{
    bool is_absent = t->job.loaded.value->kind == SHED_KIND_ABSENT;
    const struct shed_freshness_rule *rule = &t->flights->cache->rule;
    uint64_t kept_ms =
        is_absent ? t->fresh_ms : shed_freshness_kept_ms(rule, t->fresh_ms);

    shed_args_add_number(&row->args, row->fresh, t->fresh_ms);
    shed_args_add_number(&row->args, row->kept,
                         shed_freshness_redis_ms(rule, kept_ms));
}

static void add_row(struct row *row, const struct shed_flight_task *t)
{
    const struct shed_value *v = t->job.loaded.value;
    uint64_t cost_ms = t->job.loaded.cost_us / US_PER_MS;
    bool has_version = t->job.loaded.version.is_known;
    struct shed_entry entry = {
        .type = v->kind == SHED_KIND_ABSENT ? SHED_ENTRY_NEGATIVE
                                            : SHED_ENTRY_VALUE,
        .flags = (v->kind == SHED_KIND_NULL ? SHED_ENTRY_NULL : 0) |
                 (has_version ? SHED_ENTRY_ROW_VERSION : 0),
        .row_version = t->job.loaded.version.number,
        .cost_ms = cost_ms < UINT32_MAX ? (uint32_t)cost_ms : UINT32_MAX,
        .position = t->position,
        .payload = v->data,
        .payload_size = v->size};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_args *args = &row->args;

    if (t->flights->cache->tag_log != NULL) {
        entry.flags |= SHED_ENTRY_POSITION;
        entry.flags |= t->job.loaded.tags != NULL ? SHED_ENTRY_TAGS : 0;
        entry.tags = t->job.loaded.tags;
        entry.tags_size = t->job.loaded.tags_size;
    }
    shed_random_unique(nonce, sizeof(nonce));
    shed_entry_encode(t->key, &entry, nonce, &row->parts);
    args->count = 0;
    shed_args_add(args, t->version, sizeof(t->version));
    shed_args_add(args, row->parts.head, sizeof(row->parts.head));
    shed_args_add(args, row->parts.tail, sizeof(row->parts.tail));
    shed_args_add(args, entry.payload, entry.payload_size);
    add_ttls(row, t);
    shed_args_add(args, t->replaced, t->is_refresh ? sizeof(t->replaced) : 0);
    shed_args_add_text(args, !t->job.loaded.is_unmodified ? ""
                             : t->flight.newest > 0       ? "keep and get"
                                                          : "keep");
    shed_args_add(args, entry.tags, entry.tags_size);
}

/* --------------------------------------------------------------- the calls */

static void on_published(void *arg, const struct shed_call_result *result)
{
    const struct shed_flight_task *first = arg;
    struct shed_list rows = first->published;
    struct shed_flight_task *t;

    /* an event can be the end of its task */
    for (size_t i = 0; (t = task_of(shed_list_pop(&rows))) != NULL; i++) {
        struct shed_call_result one = *result;
        struct shed_reply *of_row = shed_reply_at(result->reply, i);
        if (of_row != NULL) /* else an error for all, or for nobody */
            one.reply = of_row;
        t->is_publishing = false;
        shed_flight_task_drive(t, shed_flight_reply_event(t, &one));
    }
}

/* Take the first that waits, and those behind it that may go with it. Returns:
 * how many. */
static size_t take_some(struct shed_list *waiting,
                        struct shed_flight_task *first)
{
    struct shed_flight_task *t = first;
    size_t count = 0, bytes = 0;

    first->published = (struct shed_list){NULL, NULL};
    do {
        shed_list_remove(waiting, &t->node);
        shed_list_append(&first->published, &t->node);
        count++;
        bytes += t->job.loaded.value->size;
        t = task_of(waiting->first);
    } while (
        t != NULL && count < ROWS_MAX &&
        bytes + t->job.loaded.value->size <= BYTES_MAX &&
        shed_client_is_one_slot(t->flights->cache->client, first->key, t->key));
    return count;
}

static void send_some(struct shed_list *waiting)
{
    struct shed_flight_task *first = task_of(waiting->first);
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
        struct shed_flight_task *t = task_of(n);
        shed_args_add(&args, t->key.data, t->key.size);
        shed_args_add(&args, t->refresh_key.data, t->refresh_key.size);
        add_row(row, t);
        row->args.more = n->after != NULL ? &row[1].args : NULL;
    }
    shed_client_send(first->flights->cache->client, &first->call, &args,
                     on_published, first);
}

void shed_flight_publish_all(struct shed_flights *flights)
{
    while (flights->to_publish.first != NULL)
        send_some(&flights->to_publish);
}

void shed_flight_publish(struct shed_flight_task *t)
{
    struct shed_flights *flights = t->flights;

    assert(t->job.loaded.value != NULL && !t->is_publishing);
    t->is_publishing = true;
    shed_list_append(&flights->to_publish, &t->node);
    shed_timer_set(flights->turn, 0);
}
