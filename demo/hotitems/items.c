/* Items: read through the lane, changed in the database and then forgotten by
 * the lane. */
#include <inttypes.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service.h"
#include "wait.h"

#define EXPIRE_IN_MAX_MS 86400000

/* What was read is a JSON object already; NULL if it is not. */
static json_t *item_json(const struct lane_item *item)
{
    json_t *row = json_loadb(item->data, item->size, 0, NULL);
    json_t *object = json_pack("{s:I}", "id", (json_int_t)item->id);
    const char *origin = lane_origin_name(item->origin);

    if (json_object_update(object, row) != 0 ||
        json_object_set_new(object, "origin", json_string(origin)) != 0 ||
        (item->age_ms != LANE_AGE_UNKNOWN &&
         json_object_set_new(object, "age_ms",
                             json_integer((json_int_t)item->age_ms)) != 0)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(row);
    return object;
}

/* ------------------------------------------------------------------- read */

/* A request for items. */
struct read {
    struct service *s;
    const struct http_request *request;
    bool is_list;
    atomic_bool is_met;    /* its end, or its suspension, has come; by whichever
                              comes second it is resumed */
    enum shed_code code;   /* when it has ended */
    struct shed_error err; /* why */
    size_t count;
    struct lane_item item[];
};

static struct read *new_read(struct service *s, size_t capacity,
                             const struct http_request *request,
                             struct http_reply *reply)
{
    struct read *r = calloc(1, sizeof(*r) + capacity * sizeof(r->item[0]));

    if (r == NULL) {
        http_reply_json(reply, MHD_HTTP_OK, NULL);
        return NULL;
    }
    r->s = s;
    r->request = request;
    return r;
}

void items_drop(void *read)
{
    struct read *r = read;

    lane_release(r->s->lane, r->item, r->count);
    free(r);
}

static void reply_item(const struct lane_item *item, struct http_reply *reply)
{
    reply->origin = lane_origin_name(item->origin);
    if (item->is_there)
        http_reply_json(reply, MHD_HTTP_OK, item_json(item));
    else
        http_reply_error(reply, MHD_HTTP_NOT_FOUND, "there is no item %" PRIu64,
                         item->id);
}

/* Into one of three lists: items, absent, failed. */
static bool add_item(const struct lane_item *item, json_t *const list[3])
{
    if (item->code != SHED_OK)
        return json_array_append_new(list[2],
                                     json_integer((json_int_t)item->id)) == 0;
    if (!item->is_there)
        return json_array_append_new(list[1],
                                     json_integer((json_int_t)item->id)) == 0;
    return json_array_append_new(list[0], item_json(item)) == 0;
}

static void reply_list(const struct read *r, struct http_reply *reply)
{
    json_t *list[3] = {json_array(), json_array(), json_array()};
    bool is_good = list[0] != NULL && list[1] != NULL && list[2] != NULL;

    for (size_t i = 0; is_good && i < r->count; i++)
        is_good = add_item(&r->item[i], list);
    http_reply_json(reply, MHD_HTTP_OK,
                    is_good ? json_pack("{s:O,s:O,s:O}", "items", list[0],
                                        "absent", list[1], "failed", list[2])
                            : NULL);
    for (size_t i = 0; i < 3; i++)
        json_decref(list[i]);
}

/* A failure of some is told beside the others; of all, it is the answer. */
void items_conclude(void *read, struct http_reply *reply)
{
    const struct read *r = read;
    bool is_any = r->code == SHED_OK;

    for (size_t i = 0; i < r->count; i++)
        is_any |= r->item[i].code == SHED_OK;
    for (size_t i = 0; is_any && i < r->count; i++)
        popular_count(&r->s->popular, r->item[i].id, wait_now_ms());
    if (!is_any)
        service_reply_failure(reply, &r->err);
    else if (r->is_list)
        reply_list(r, reply);
    else
        reply_item(&r->item[0], reply);
}

/* Perhaps on the library's thread; the answer is made on the one of requests.
 */
static void end(void *user, enum shed_code code, const struct shed_error *err)
{
    struct read *r = user;

    r->code = code;
    if (code != SHED_OK)
        r->err = *err;
    if (atomic_exchange(&r->is_met, true))
        http_resume(r->request);
}

/* Takes the read. */
static void run(struct read *r, struct http_reply *reply)
{
    struct lane *lane = r->s->lane;
    uint64_t timeout_ms = wait_left_ms(r->request->deadline_ms);

    if (r->request->may_block) {
        r->code = lane_get(lane, r->item, r->count, timeout_ms, &r->err);
        items_conclude(r, reply);
        items_drop(r);
        return;
    }
    *r->request->state = r;
    lane_begin(lane, r->item, r->count, timeout_ms, end, r);
    if (atomic_load(&r->is_met)) { /* at once, as a near item does */
        items_conclude(r, reply);
        return;
    }
    http_suspend(r->request);
    if (atomic_exchange(&r->is_met, true))
        http_resume(r->request);
}

void items_get_one(struct service *s, const struct http_request *request,
                   uint64_t id, struct http_reply *reply)
{
    struct read *r = new_read(s, 1, request, reply);

    if (r == NULL)
        return;
    r->count = 1;
    r->item[0].id = id;
    run(r, reply);
}

static bool parse_ids(const char *text, struct read *r,
                      struct http_reply *reply)
{
    for (const char *at = text;; at++) {
        if (r->count == LANE_ITEMS_MAX) {
            http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                             "ask for %d ids at most", LANE_ITEMS_MAX);
            return false;
        }
        if (!service_parse_number(at, &at, &r->item[r->count].id) ||
            (*at != ',' && *at != '\0')) {
            http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                             "ids must be decimal numbers separated by commas, "
                             "not '%.40s'",
                             at);
            return false;
        }
        r->count++;
        if (*at == '\0')
            return true;
    }
}

void items_get_many(struct service *s, const struct http_request *request,
                    const char *ids, struct http_reply *reply)
{
    struct read *r = new_read(s, LANE_ITEMS_MAX, request, reply);

    if (r != NULL && parse_ids(ids, r, reply)) {
        r->is_list = true;
        run(r, reply);
    } else {
        free(r);
    }
}

static void expire(struct read *r, const char *in, struct http_reply *reply)
{
    uint64_t in_ms = 0;

    if (in != NULL && (!service_parse_number(in, &in, &in_ms) || *in != '\0' ||
                       in_ms > EXPIRE_IN_MAX_MS)) {
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                         "in_ms must be a number up to %d", EXPIRE_IN_MAX_MS);
        return;
    }
    for (size_t i = 0; i < r->count; i++)
        if (lane_expire(r->s->lane, r->item[i].id, in_ms,
                        wait_left_ms(r->request->deadline_ms), &r->err)) {
            service_reply_failure(reply, &r->err);
            return;
        }
    http_reply_json(reply, MHD_HTTP_OK,
                    json_pack("{s:I}", "expired", (json_int_t)r->count));
}

void items_expire(struct service *s, const struct http_request *request,
                  struct http_reply *reply)
{
    const char *ids = http_argument(request, "ids");
    struct read *r = new_read(s, LANE_ITEMS_MAX, request, reply);

    if (r != NULL && parse_ids(ids != NULL ? ids : "", r, reply))
        expire(r, http_argument(request, "in_ms"), reply);
    free(r);
}

/* ----------------------------------------------------------------- change */

/* Committed, or not at all. */
static enum statement_code commit_price(struct statements *db, uint64_t id,
                                        uint64_t cents)
{
    enum statement_code code = statements_run(db, "START TRANSACTION");

    if (code == STATEMENT_OK)
        code = db_change_price(db, id, cents);
    return statements_settle(db, code);
}

/* After COMMIT, never before. */
static void show_change(struct service *s, const struct http_request *request,
                        uint64_t id, struct http_reply *reply)
{
    struct shed_error err = {SHED_OK, ""};

    if (lane_forget(s->lane, id, wait_left_ms(request->deadline_ms), &err)) {
        s->metrics.stale++;
        service_reply_failure(reply, &err);
        http_reply_error(
            reply, MHD_HTTP_SERVICE_UNAVAILABLE,
            "the change is stored, but others may see the old item "
            "for a while: repeat the request");
        return;
    }
    items_get_one(s, request, id, reply);
}

void items_patch(struct service *s, const struct http_request *request,
                 uint64_t id, struct http_reply *reply)
{
    struct statements *db = NULL;
    enum statement_code code;
    uint64_t cents;
    char why[200];

    if (!service_parse_body(request, "price_cents", 0, UINT32_MAX, &cents,
                            reply))
        return;
    code = db_borrow(s->db, request->deadline_ms, &db, why, sizeof(why));
    if (code == STATEMENT_OK)
        code = commit_price(db, id, cents);
    if (code == STATEMENT_OK)
        show_change(s, request, id, reply);
    else if (code == STATEMENT_NONE)
        http_reply_error(reply, MHD_HTTP_NOT_FOUND, "there is no item %" PRIu64,
                         id);
    else
        service_reply_db(reply, code, db != NULL ? statements_why(db) : why);
    db_give_back(s->db, db);
}
