/* What the requests of one instance share, and what answers them. */
#ifndef HOTITEMS_SERVICE_H
#define HOTITEMS_SERVICE_H

#include <stdint.h>

#include <snowshed/snowshed.h>

#include "database.h"
#include "http.h"
#include "lane.h"
#include "metrics.h"
#include "popular.h"

struct sampler; /* sample.h */

struct service {
    struct shed_client *client;
    struct lane *lane;
    struct db *db;
    struct popular popular;
    struct sampler *sampler;
    struct metrics metrics;
    unsigned port;
};

/* The routes: a http_handler whose user is the service. */
void service_handle(void *service, const struct http_request *request,
                    struct http_reply *reply);

bool service_is_quick(void *service, const struct http_request *request);

/* A request for items that was suspended: its answer, and its end. */
void items_conclude(void *read, struct http_reply *reply);
void items_drop(void *read);

/* Each answers one route. */
void items_get_one(struct service *s, const struct http_request *request,
                   uint64_t id, struct http_reply *reply);
void items_get_many(struct service *s, const struct http_request *request,
                    const char *ids, struct http_reply *reply);
void items_expire(struct service *s, const struct http_request *request,
                  struct http_reply *reply);
void items_patch(struct service *s, const struct http_request *request,
                 uint64_t id, struct http_reply *reply);
void orders_post(struct service *s, const struct http_request *request,
                 uint64_t id, struct http_reply *reply);

/* Parse a decimal number up to INT64_MAX, without a sign or leading zeros. *end
 * is the first byte behind it. */
bool service_parse_number(const char *text, const char **end, uint64_t *out);

/* Parse a body {"NAME": n} with a number in this range. Returns false with the
 * reply. */
bool service_parse_body(const struct http_request *request, const char *name,
                        json_int_t least, json_int_t most, uint64_t *out,
                        struct http_reply *reply);

/* Answer with what a call of snowshed, or of the database, failed with. */
void service_reply_failure(struct http_reply *reply,
                           const struct shed_error *err);
void service_reply_db(struct http_reply *reply, enum statement_code code,
                      const char *why);

#endif
