/* What the stage answers. A button does harm: a foreign page cannot make a
 * browser send JSON unasked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "page.h"
#include "stage.h"
#include "stage_entry.h"

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    const size_t size = sizeof(json) - 1;

    return type != NULL && strncasecmp(type, json, size) == 0 &&
           (type[size] == '\0' || type[size] == ';');
}

/* --------------------------------------------------------------- routes */

static void reply_file(const struct page_file *file,
                       const struct http_request *request,
                       struct http_reply *reply)
{
    const char *known = http_header(request, "If-None-Match");

    (void)snprintf(reply->etag, sizeof(reply->etag), "%s", file->etag);
    if (known != NULL && strstr(known, file->etag) != NULL) {
        reply->status = 304;
        return;
    }
    reply->body = malloc(file->size);
    if (reply->body == NULL) {
        http_reply_error(reply, 500, "out of memory");
        return;
    }
    memcpy(reply->body, file->bytes, file->size);
    reply->size = file->size;
    reply->type = file->type;
    reply->status = 200;
}

static void get_lanes(struct stage *stage, const struct http_request *request,
                      struct http_reply *reply)
{
    (void)request;
    http_reply_json(reply, 200, lanes_json(stage));
}

static void get_events(struct stage *stage, const struct http_request *request,
                       struct http_reply *reply)
{
    (void)request;
    sse_listen(stage->hub, reply);
}

static void get_entry(struct stage *stage, const struct http_request *request,
                      struct http_reply *reply)
{
    const char *lane = http_argument(request, "lane");
    const char *id = http_argument(request, "id");

    entry_reply(stage, lane != NULL ? lane : "", id != NULL ? id : "", reply);
}

static void post_action(struct stage *stage, const struct http_request *request,
                        struct http_reply *reply)
{
    const char *name = request->path + strlen("/actions/");
    struct action_result result = {0};

    if (!actions_exists(name)) {
        http_reply_error(reply, 404, "there is no action '%.40s'", name);
        return;
    }
    actions_run(stage, name, &result);
    if (result.status == 200)
        http_reply_json(reply, 200, json_pack("{s:s}", "text", result.text));
    else
        http_reply_error(reply, result.status, "%s", result.text);
}

/* Both values, or one of them. */
static bool parse_traffic(const struct http_request *request,
                          json_int_t *clients, double *skew,
                          struct http_reply *reply)
{
    json_error_t error;
    json_t *body = json_loadb(request->body, request->body_size,
                              JSON_REJECT_DUPLICATES, &error);
    bool is_good =
        body != NULL && json_unpack_ex(body, &error, JSON_STRICT, "{s?I,s?F}",
                                       "clients", clients, "skew", skew) == 0;

    if (!is_good)
        http_reply_error(reply, 400,
                         "the body must be {\"clients\": n, \"skew\": x}: %s",
                         error.text);
    else if (*clients < 0 || *clients > STAGE_CLIENTS_MAX)
        http_reply_error(reply, 400, "clients must be a number from 0 to %d",
                         STAGE_CLIENTS_MAX);
    else if (!(*skew >= 0 && *skew <= STAGE_SKEW_MAX))
        http_reply_error(reply, 400, "skew must be a number from 0 to %.1f",
                         STAGE_SKEW_MAX);
    json_decref(body);
    return is_good && reply->status == 0;
}

static void post_traffic(struct stage *stage,
                         const struct http_request *request,
                         struct http_reply *reply)
{
    uint64_t time_ms = hub_time_ms();
    json_int_t clients;
    double skew;

    stage_lock(stage);
    clients = (json_int_t)stage->clients;
    skew = stage->skew;
    stage_unlock(stage);
    if (!parse_traffic(request, &clients, &skew, reply))
        return;
    stage_lock(stage);
    stage->clients = (uint64_t)clients;
    stage->skew = skew;
    stage->settings++;
    stage_unlock(stage);
    stage_wake(stage);
    hub_mark(stage->hub, "traffic", time_ms, 0,
             "%d clients for each lane, skew %.2f", (int)clients, skew);
    hub_tell(stage->hub, "lanes", lanes_json(stage));
    http_reply_json(reply, 200,
                    json_pack("{s:I,s:f}", "clients", clients, "skew", skew));
}

static const struct route {
    const char *path;
    bool is_prefix;
    enum http_method method;
    const char *name, *allow;
    void (*answer)(struct stage *stage, const struct http_request *request,
                   struct http_reply *reply);
} routes[] = {
    {"/lanes", false, HTTP_GET, "lanes", "GET, HEAD", get_lanes},
    {"/events", false, HTTP_GET, "events", "GET, HEAD", get_events},
    {"/entry", false, HTTP_GET, "entry", "GET, HEAD", get_entry},
    {"/actions/", true, HTTP_POST, "actions", "POST", post_action},
    {"/traffic", false, HTTP_POST, "traffic", "POST", post_traffic},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct route *r = &routes[i];
        if (r->is_prefix ? strncmp(path, r->path, strlen(r->path)) == 0
                         : strcmp(path, r->path) == 0)
            return r;
    }
    return NULL;
}

void stage_handle(void *user, const struct http_request *request,
                  struct http_reply *reply)
{
    const struct route *r = find_route(request->path);
    const struct page_file *file = page_find(request->path);

    reply->policy = page_policy;
    if (request->method == HTTP_POST &&
        !is_json(http_header(request, "Content-Type"))) {
        http_reply_error(reply, 415, "Content-Type must be application/json");
        return;
    }
    if (file != NULL && request->method == HTTP_GET) {
        reply->route = "page";
        reply_file(file, request, reply);
        return;
    }
    if (r == NULL) {
        http_reply_error(reply, 404, "there is nothing at '%.60s'",
                         request->path);
        return;
    }
    reply->route = r->name;
    if (r->method == request->method) {
        r->answer(user, request, reply);
        return;
    }
    reply->allow = r->allow;
    http_reply_error(reply, 405, "%s takes %s", request->path, r->allow);
}
