/* Which request is answered by what, and how failures are told. */
#include <string.h>

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>

#include "sample.h"
#include "service.h"

#define RETRY_AFTER_S 1

bool service_parse_number(const char *text, const char **end, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (INT64_MAX - digit) / 10) /* JSON's integers are signed */
            return false;
        value = value * 10 + digit;
    }
    *end = at;
    *out = value;
    return at > text && (*text != '0' || at == text + 1);
}

bool service_parse_body(const struct http_request *request, const char *name,
                        json_int_t least, json_int_t most, uint64_t *out,
                        struct http_reply *reply)
{
    json_error_t error;
    json_t *body = json_loadb(request->body, request->body_size,
                              JSON_REJECT_DUPLICATES, &error);
    json_int_t value = 0;
    bool is_good = false;

    if (body == NULL)
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                         "the body is not JSON: %s", error.text);
    else if (json_unpack_ex(body, &error, JSON_STRICT, "{s:I}", name, &value) !=
             0)
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                         "the body must be {\"%s\": n}: %s", name, error.text);
    else if (value < least || value > most)
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                         "%s must be a number from %lld to %lld", name,
                         (long long)least, (long long)most);
    else
        is_good = true;
    json_decref(body);
    *out = (uint64_t)value;
    return is_good;
}

void service_reply_failure(struct http_reply *reply,
                           const struct shed_error *err)
{
    (void)snprintf(reply->why, sizeof(reply->why), "%s: %s",
                   shed_code_name(err->code), err->reason);
    switch (err->code) {
    case SHED_ETIMEDOUT:
        http_reply_error(reply, MHD_HTTP_GATEWAY_TIMEOUT,
                         "not answered in time");
        break;
    case SHED_EBUSY:
    case SHED_EREDIS:
    case SHED_ESOURCE:
    case SHED_ELOST:
    case SHED_ECLOSED:
        reply->retry_after_s = RETRY_AFTER_S;
        http_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "too busy, or out of order; try again later");
        break;
    default:
        http_reply_error(reply, MHD_HTTP_INTERNAL_SERVER_ERROR,
                         "the service is at fault");
        break;
    }
}

void service_reply_db(struct http_reply *reply, enum statement_code code,
                      const char *why)
{
    struct shed_error err = {code == STATEMENT_BUSY ? SHED_EBUSY : SHED_ESOURCE,
                             ""};

    (void)snprintf(err.reason, sizeof(err.reason), "%s",
                   code == STATEMENT_AGAIN
                       ? "the transaction lost to others each time; try again"
                       : why);
    service_reply_failure(reply, &err);
}

static const char plain[] = "text/plain; version=0.0.4; charset=utf-8";

/* The library's text, and the service's own after it. */
static void get_metrics(struct service *s, const struct http_request *request,
                        struct http_reply *reply)
{
    struct lane_stats lane;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)request;
    if (out != NULL) {
        lane_metrics(s->lane, out);
        lane_read_stats(s->lane, &lane);
        metrics_lane_text(out, lane_name(s->lane), &lane);
        metrics_locks_text(out, "item", &s->metrics);
        metrics_write(out, &s->metrics);
        (void)fclose(out);
    }
    http_reply_text(reply, MHD_HTTP_OK, plain, text);
}

/* Alive: a process that answers. Ready: send traffic. With Redis down it still
 * serves, within the bounds of its source; where Redis refuses it, it cannot.
 */
static void get_ready(struct service *s, const struct http_request *request,
                      struct http_reply *reply)
{
    struct shed_client_status status = {0};
    struct shed_error err = {SHED_OK, ""};

    (void)request;
    if (shed_client_status_read(s->client, &status, sizeof(status), &err)) {
        service_reply_failure(reply, &err);
        return;
    }
    if (status.is_up == 0 && status.last.code == SHED_EDENIED) {
        reply->retry_after_s = RETRY_AFTER_S;
        (void)snprintf(reply->why, sizeof(reply->why), "%.190s",
                       status.last.reason);
        http_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "Redis refuses this service");
        return;
    }
    http_reply_json(
        reply, MHD_HTTP_OK,
        json_pack("{s:b,s:b}", "ready", 1, "redis_up", status.is_up != 0));
}

static void get_alive(struct service *s, const struct http_request *request,
                      struct http_reply *reply)
{
    (void)s;
    (void)request;
    http_reply_text(reply, MHD_HTTP_OK, plain, strdup("ok\n"));
}

static void get_sample(struct service *s, const struct http_request *request,
                       struct http_reply *reply)
{
    const char *after = http_argument(request, "after");
    uint64_t after_ms = 0;

    if (after != NULL &&
        (!service_parse_number(after, &after, &after_ms) || *after != '\0'))
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                         "after must be the time_ms of a sample");
    else
        sample_reply(s->sampler, after_ms, reply);
}

/* ----------------------------------------------------------------- routes */

static void refuse_method(struct http_reply *reply, const char *allow)
{
    reply->allow = allow;
    http_reply_error(reply, MHD_HTTP_METHOD_NOT_ALLOWED, "allowed here: %s",
                     allow);
}

static void route_items(struct service *s, const struct http_request *request,
                        struct http_reply *reply)
{
    const char *ids = http_argument(request, "ids");

    reply->route = "/items";
    if (request->method != HTTP_GET)
        refuse_method(reply, "GET, HEAD");
    else if (ids == NULL)
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST, "ask for ids=1,2,3");
    else
        items_get_many(s, request, ids, reply);
}

static void route_item(struct service *s, const struct http_request *request,
                       const char *rest, struct http_reply *reply)
{
    uint64_t id = 0;
    const char *end = rest;

    if (strcmp(rest, "expire") == 0) {
        if (request->method == HTTP_POST)
            items_expire(s, request, reply);
        else
            refuse_method(reply, "POST");
        return;
    }
    reply->route = "/items/{id}";
    if (!service_parse_number(rest, &end, &id) ||
        (*end != '\0' && *end != '/')) {
        http_reply_error(reply, MHD_HTTP_BAD_REQUEST,
                         "'%.40s' is not an id: give a decimal number without "
                         "leading zeros",
                         rest);
    } else if (strcmp(end, "/orders") == 0) {
        reply->route = "/items/{id}/orders";
        if (request->method == HTTP_POST)
            orders_post(s, request, id, reply);
        else
            refuse_method(reply, "POST");
    } else if (*end == '/') {
        reply->route = "other";
        http_reply_error(reply, MHD_HTTP_NOT_FOUND, "there is no such page");
    } else if (request->method == HTTP_GET) {
        items_get_one(s, request, id, reply);
    } else if (request->method == HTTP_PATCH) {
        items_patch(s, request, id, reply);
    } else {
        refuse_method(reply, "GET, HEAD, PATCH");
    }
}

static void route_page(struct service *s, const struct http_request *request,
                       struct http_reply *reply)
{
    static const struct {
        const char *path;
        void (*answer)(struct service *s, const struct http_request *request,
                       struct http_reply *reply);
    } pages[] = {{"/metrics", get_metrics},
                 {"/readyz", get_ready},
                 {"/healthz", get_alive},
                 {"/sample", get_sample}};

    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        if (strcmp(request->path, pages[i].path) == 0) {
            reply->route = pages[i].path;
            if (request->method == HTTP_GET)
                pages[i].answer(s, request, reply);
            else
                refuse_method(reply, "GET, HEAD");
            return;
        }
    http_reply_error(reply, MHD_HTTP_NOT_FOUND, "there is no such page");
}

void service_handle(void *service, const struct http_request *request,
                    struct http_reply *reply)
{
    static const char items[] = "/items";
    size_t size = sizeof(items) - 1;

    if (*request->state != NULL)
        items_conclude(*request->state, reply);
    else if (strncmp(request->path, items, size) != 0)
        route_page(service, request, reply);
    else if (request->path[size] == '\0')
        route_items(service, request, reply);
    else if (request->path[size] == '/')
        route_item(service, request, request->path + size + 1, reply);
    else
        route_page(service, request, reply);
}

/* A sample is waited for. */
bool service_is_quick(void *service, const struct http_request *request)
{
    const struct service *s = service;

    return request->method == HTTP_GET && lane_is_async(s->lane) &&
           strcmp(request->path, "/sample") != 0;
}
