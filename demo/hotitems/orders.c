/*
 * POST /items/ID/orders {"quantity": n}, with an Idempotency-Key header
 * (draft-ietf-httpapi-idempotency-key-header).
 *
 * The lock keeps buyers of one item from piling up in the database; the fencing
 * guard, in the transaction, is what makes sure that no stalled holder writes
 * after its successor. A client that got no answer repeats its request: the
 * unique key finds the order, or places it now.
 */
#include <microhttpd.h>
#include <snowshed/lock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service.h"
#include "wait.h"

#define QUANTITY_MAX 100
#define NAME_BYTES 32
#define LEASE_MS 5000
#define ROUNDS_MAX 5 /* of one request, each after a conflict */

/* ----------------------------------------------------------- transaction */

/* The outcome of an order. */
enum outcome {
    PLACED,
    REPEATED, /* it was placed before */
    MISUSED,  /* the key belongs to an order of another kind */
    SOLD_OUT,
    NO_ITEM,
    LOST, /* refused by the guard: advance to newest, and try again */
    CONFLICT,
    FAILED,
    UNKNOWN /* the connection broke during COMMIT */
};

struct sale {
    struct statements *db;
    struct shed_lock *lock;
    char name[NAME_BYTES]; /* of the lock, and of the guard's resource */
    struct shed_fence fence;
    uint64_t newest;
    struct db_order order;
    uint64_t stock; /* SOLD_OUT: what is left */
    struct shed_error err;
};

static enum outcome fail(struct sale *sale, enum statement_code code)
{
    if (code == STATEMENT_AGAIN || code == STATEMENT_DUPLICATE)
        return CONFLICT;
    sale->err.code = SHED_ESOURCE;
    (void)snprintf(sale->err.reason, sizeof(sale->err.reason), "%s",
                   statements_why(sale->db));
    return FAILED;
}

static enum outcome pass_guard(struct sale *sale)
{
    switch (statements_pass_guard(sale->db, sale->name, &sale->fence,
                                  &sale->newest, &sale->err)) {
    case STATEMENT_OK:
        return PLACED;
    case STATEMENT_AGAIN:
        return CONFLICT;
    default:
        return sale->err.code == SHED_ELOST ? LOST : FAILED;
    }
}

static enum outcome refuse(struct sale *sale)
{
    enum statement_code code =
        db_read_stock(sale->db, sale->order.item, &sale->stock);

    if (code == STATEMENT_OK)
        return SOLD_OUT;
    return code == STATEMENT_NONE ? NO_ITEM : fail(sale, code);
}

static enum outcome place(struct sale *sale)
{
    struct db_order found = {.key = sale->order.key};
    enum statement_code code = db_find_order(sale->db, &found);

    if (code == STATEMENT_OK) {
        bool is_same = found.item == sale->order.item &&
                       found.quantity == sale->order.quantity;
        sale->order = found;
        return is_same ? REPEATED : MISUSED;
    }
    if (code != STATEMENT_NONE)
        return fail(sale, code);
    code = db_take_stock(sale->db, sale->order.item, sale->order.quantity);
    if (code == STATEMENT_NONE)
        return refuse(sale);
    if (code != STATEMENT_OK)
        return fail(sale, code);
    sale->order.token = sale->fence.number;
    code = db_add_order(sale->db, &sale->order);
    return code == STATEMENT_OK ? PLACED : fail(sale, code);
}

static enum outcome transact(struct sale *sale)
{
    enum statement_code code = statements_run(sale->db, "START TRANSACTION");
    enum outcome outcome =
        code == STATEMENT_OK ? pass_guard(sale) : fail(sale, code);

    if (code == STATEMENT_OK && outcome == PLACED)
        outcome = place(sale);
    if (outcome != PLACED) {
        (void)statements_settle(sale->db, STATEMENT_FAILED);
        return outcome;
    }
    code = statements_settle(sale->db, STATEMENT_OK);
    if (code == STATEMENT_OK)
        return PLACED;
    outcome = fail(sale, code);
    return outcome == FAILED ? UNKNOWN : outcome;
}

/* One hold of the lock. */
static enum outcome sell_once(struct sale *sale, uint64_t wait_ms)
{
    struct shed_lock *lock = sale->lock;
    struct shed_error released = {SHED_OK, ""};
    enum outcome outcome = FAILED;

    if (shed_lock_acquire(lock, wait_ms, &sale->err))
        return FAILED;
    if (shed_lock_fence(lock, &sale->fence, &sale->err) == SHED_OK)
        outcome = transact(sale);
    else if (sale->err.code == SHED_ELOST)
        outcome = CONFLICT;
    /* If it was lost meanwhile, that no longer matters: the guard has decided.
     */
    if (shed_lock_release(lock, &released) && outcome == FAILED &&
        sale->err.code == SHED_OK)
        sale->err = released;
    return outcome;
}

static enum shed_code open_lock(struct shed_client *client, struct sale *sale)
{
    struct shed_lock_options options = SHED_LOCK_OPTIONS_INIT;

    options.lease_ms = LEASE_MS;
    (void)snprintf(sale->name, sizeof(sale->name), "item:%llu",
                   (unsigned long long)sale->order.item);
    return shed_lock_open(client, shed_str(sale->name), &options, &sale->lock,
                          &sale->err);
}

static void close_lock(struct metrics *m, struct shed_lock *lock)
{
    struct shed_lock_stats stats;

    if (shed_lock_stats_read(lock, &stats, sizeof(stats), NULL) == SHED_OK)
        metrics_locks_add(m, &stats);
    shed_lock_close(lock);
}

static enum outcome sell(struct sale *sale, const struct http_request *request)
{
    enum outcome outcome = FAILED;

    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        outcome = sell_once(sale, wait_left_ms(request->deadline_ms));
        if (outcome == LOST &&
            shed_lock_advance(sale->lock, sale->newest, &sale->err))
            return FAILED;
        if (outcome != LOST && outcome != CONFLICT)
            break;
    }
    return outcome;
}

/* ----------------------------------------------------------------- HTTP */

static void reply_order(struct http_reply *reply, unsigned status,
                        const struct db_order *order)
{
    http_reply_json(reply, status,
                    json_pack("{s:I,s:I,s:I}", "order", (json_int_t)order->id,
                              "item", (json_int_t)order->item, "quantity",
                              (json_int_t)order->quantity));
}

static void count_sale(struct service *s, const struct sale *sale)
{
    s->metrics.orders++;
    s->metrics.pieces += sale->order.quantity;
}

/* After each outcome that may have taken pieces: the instance that placed the
 * repeated order may have died between its COMMIT and its invalidation. */
static void show_sale(struct service *s, const struct http_request *request,
                      const struct sale *sale)
{
    struct shed_error err = {SHED_OK, ""};

    if (lane_forget(s->lane, sale->order.item,
                    wait_left_ms(request->deadline_ms), &err))
        s->metrics.stale++;
}

static void reply_outcome(struct service *s, enum outcome outcome,
                          struct sale *sale, struct http_reply *reply)
{
    switch (outcome) {
    case PLACED:
        reply_order(reply, MHD_HTTP_CREATED, &sale->order);
        break;
    case REPEATED:
        s->metrics.replays++;
        reply->is_replay = true;
        reply_order(reply, MHD_HTTP_OK, &sale->order);
        break;
    case MISUSED:
        http_reply_error(reply, MHD_HTTP_UNPROCESSABLE_CONTENT,
                         "this Idempotency-Key was used for another order");
        break;
    case SOLD_OUT:
        s->metrics.sold_out++;
        http_reply_json(reply, MHD_HTTP_CONFLICT,
                        json_pack("{s:s,s:I}", "error", "too few pieces left",
                                  "stock", (json_int_t)sale->stock));
        break;
    case NO_ITEM:
        http_reply_error(reply, MHD_HTTP_NOT_FOUND, "there is no such item");
        break;
    case LOST:
    case CONFLICT:
        sale->err.code = SHED_EBUSY;
        service_reply_failure(reply, &sale->err);
        break;
    case FAILED:
        service_reply_failure(reply, &sale->err);
        break;
    case UNKNOWN:
        service_reply_failure(reply, &sale->err);
        http_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "it is not known whether the order was placed: repeat "
                         "the request with the same Idempotency-Key");
        break;
    }
}

/* Printable ASCII, so that it is what it looks like in a log. */
static bool is_key(const char *key)
{
    size_t size = 0;

    for (; key[size] != '\0'; size++)
        if (size == DB_KEY_MAX_BYTES || key[size] < '!' || key[size] > '~')
            return false;
    return size > 0;
}

static bool parse_order(const struct http_request *request,
                        struct db_order *order, struct http_reply *reply)
{
    order->key = http_header(request, "Idempotency-Key");
    if (!service_parse_body(request, "quantity", 1, QUANTITY_MAX,
                            &order->quantity, reply))
        return false;
    if (order->key != NULL && is_key(order->key))
        return true;
    http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                     "an order needs a header Idempotency-Key: 1 to %d "
                     "printable characters that no other order has",
                     DB_KEY_MAX_BYTES);
    return false;
}

void orders_post(struct service *s, const struct http_request *request,
                 uint64_t id, struct http_reply *reply)
{
    struct sale sale = {.order = {.item = id}};
    enum outcome outcome;
    enum statement_code code;

    if (!parse_order(request, &sale.order, reply))
        return;
    if (open_lock(s->client, &sale) != SHED_OK) {
        service_reply_failure(reply, &sale.err);
        return;
    }
    code = db_borrow(s->db, request->deadline_ms, &sale.db, sale.err.reason,
                     sizeof(sale.err.reason));
    if (code == STATEMENT_OK) {
        outcome = sell(&sale, request);
        if (outcome == PLACED)
            count_sale(s, &sale);
        if (outcome == PLACED || outcome == REPEATED || outcome == UNKNOWN)
            show_sale(s, request, &sale);
        reply_outcome(s, outcome, &sale, reply);
        db_give_back(s->db, sale.db);
    } else {
        service_reply_db(reply, code, sale.err.reason);
    }
    close_lock(&s->metrics, sale.lock);
}
