/*
 * An nginx module: GET .../N is answered with row N of a snowshed cache.
 *
 * Each worker process opens a client, a cache and a queue of its own. nginx's
 * event loop watches the queue's descriptor, so calls end on the worker's only
 * thread, and no request waits on a thread. A request that a call is under way
 * for is suspended; when its client goes away, the call is cancelled.
 */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <snowshed/async.h>
#include <snowshed/mysql.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEADER_BYTES                                                           \
    32 /* of a header's value, the longest of which is ETag                    \
        */
#define COLLECT_AT_ONCE 64 /* calls, before nginx looks at its other events */
#define HOLD_MS 100        /* see struct worker */

extern ngx_module_t ngx_http_snowshed_module;

/* What nginx.conf says, in its http block. */
struct settings {
    ngx_str_t redis;
    ngx_str_t mysql;
    ngx_str_t query;
    ngx_str_t name;
    ngx_msec_t ttl;
    ngx_msec_t stale;
    ngx_msec_t timeout;
    size_t near;
    ngx_int_t loads;
    ngx_int_t requests;
    ngx_flag_t is_used;
};

/* Of this process. */
static struct worker {
    struct shed_cache *cache;
    struct shed_queue *queue;
    ngx_connection_t *watch; /* of the queue's descriptor */
    size_t calls;            /* under way */
    ngx_event_t hold; /* a timer: a worker that shall quit waits for timers, and
                         so for calls */
} worker;

/* A call of shed_get_async. It is not in the request's pool, because it may
 * outlive the request. */
struct call {
    ngx_http_request_t *request; /* NULL: its client has gone away */
    ngx_http_cleanup_t *cleanup; /* of the request */
    struct shed_pending *pending;
};

/* ----------------------------------------------------------------- answers */

/* format is one of ngx_sprintf's, for at most this number. */
static ngx_table_elt_t *add_header(ngx_http_request_t *r, const char *name,
                                   const char *format, uint64_t number)
{
    ngx_table_elt_t *header = ngx_list_push(&r->headers_out.headers);
    u_char *text = ngx_pnalloc(r->pool, HEADER_BYTES);

    if (header == NULL)
        return NULL;
    ngx_memzero(header, sizeof(*header));
    if (text == NULL)
        return NULL; /* nginx leaves out a header whose hash is 0 */
    header->hash = 1;
    header->key.data = (u_char *)name;
    header->key.len = ngx_strlen(name);
    header->value.data = text;
    header->value.len =
        (size_t)(ngx_snprintf(text, HEADER_BYTES, format, number) - text);
    return header;
}

static ngx_int_t status_of(enum shed_code code)
{
    switch (code) {
    case SHED_EBUSY:
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    case SHED_ETIMEDOUT:
        return NGX_HTTP_GATEWAY_TIME_OUT;
    case SHED_EINVAL:
    case SHED_ENOMEM:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    default:
        return NGX_HTTP_BAD_GATEWAY;
    }
}

/* Returns: the status, of which nginx makes an answer, as for any module. */
static ngx_int_t fail(ngx_http_request_t *r, const struct shed_error *err)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "snowshed: %s: %s",
                  shed_code_name(err->code), err->reason);
    if (err->code == SHED_EBUSY)
        (void)add_header(r, "Retry-After", "1", 0);
    return status_of(err->code);
}

static const char *origin_of(const struct shed_value *value)
{
    switch (value->origin) {
    case SHED_ORIGIN_REDIS:
        return "hit";
    case SHED_ORIGIN_STALE:
        return "stale";
    case SHED_ORIGIN_WAITED:
        return "waited";
    default:
        return "miss";
    }
}

/* nginx compares the ETag with If-None-Match itself, and answers 304. */
static ngx_int_t send_headers(ngx_http_request_t *r,
                              const struct shed_value *value)
{
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = (off_t)value->size;
    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.etag = add_header(r, "ETag", "\"%016xL\"",
                                     XXH3_64bits(value->data, value->size));
    (void)add_header(r, "Age", "%uL", value->age_ms / 1000);
    return ngx_http_send_header(r);
}

static void release(void *value)
{
    shed_value_unref(value);
}

/* The body is the value's memory. The reference passes to the request, whose
 * pool gives it back when all is sent. */
static ngx_int_t send_value(ngx_http_request_t *r, struct shed_value *value,
                            const char *origin)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, 0);
    ngx_buf_t *body = ngx_calloc_buf(r->pool);
    ngx_chain_t out = {body, NULL};
    ngx_int_t status;

    if (cleanup == NULL || body == NULL) {
        shed_value_unref(value);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    cleanup->handler = release;
    cleanup->data = value;
    (void)add_header(r, "X-Cache", origin, 0);
    if (value->kind != SHED_KIND_ROW)
        return NGX_HTTP_NOT_FOUND;
    status = send_headers(r, value);
    if (status == NGX_ERROR || status > NGX_OK || r->header_only)
        return status;
    body->pos = (u_char *)value->data;
    body->last = body->pos + value->size;
    body->memory = value->size > 0;
    body->last_buf = r == r->main;
    body->last_in_chain = 1;
    return ngx_http_output_filter(r, &out);
}

/* ------------------------------------------------------------------- calls */

/* The done of a call: by collect, on the worker's thread. */
static void end_call(void *user, enum shed_code code, struct shed_value *value,
                     const struct shed_error *reason)
{
    struct call *call = user;
    ngx_http_request_t *r = call->request;
    ngx_connection_t *c;

    worker.calls--;
    if (r == NULL) {
        shed_value_unref(value);
    } else {
        call->cleanup->handler = NULL;
        c = r->connection;
        ngx_http_set_log_request(c->log, r);
        ngx_http_finalize_request(
            r, code == SHED_OK ? send_value(r, value, origin_of(value))
                               : fail(r, reason));
        ngx_http_run_posted_requests(c);
    }
    ngx_free(call);
}

/* The request ends before its call: end_call is still going to be called. */
static void abandon_call(void *data)
{
    struct call *call = data;

    call->request = NULL;
    (void)shed_cancel(call->pending);
}

static ngx_int_t suspend(ngx_http_request_t *r, struct call *call)
{
    call->cleanup->handler = abandon_call;
    call->cleanup->data = call;
    worker.calls++;
    if (!worker.hold.timer_set)
        ngx_add_timer(&worker.hold, HOLD_MS);
    if (!r->discard_body)
        r->read_event_handler = ngx_http_test_reading; /* has it gone away? */
    r->main->count++;
    return NGX_DONE;
}

/* What follows the last slash. The MySQL source asks for no key that its column
 * cannot have. */
static ngx_int_t parse_key(ngx_http_request_t *r, struct shed_bytes *key)
{
    const u_char *end = r->uri.data + r->uri.len;
    const u_char *begin = end;

    while (begin > r->uri.data && begin[-1] != '/')
        begin--;
    *key = shed_bytes(begin, (size_t)(end - begin));
    return key->size > 0 && key->size <= SHED_KEY_MAX_BYTES
               ? NGX_OK
               : NGX_HTTP_NOT_FOUND;
}

static ngx_int_t begin_call(ngx_http_request_t *r, struct shed_bytes key,
                            struct call *call)
{
    const struct shed_then then = {end_call, call, worker.queue};
    struct shed_value *near = NULL;
    struct shed_error err;

    *call = (struct call){r, ngx_http_cleanup_add(r, 0), NULL};
    if (call->cleanup == NULL) {
        ngx_free(call);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (shed_get_async(worker.cache, key, NULL, &then, &near, &call->pending,
                       &err)) {
        ngx_free(call);
        return fail(r, &err);
    }
    if (near == NULL)
        return suspend(r, call);
    ngx_free(call);
    return send_value(r, near, "near");
}

/* The handler of a location. */
static ngx_int_t get_item(ngx_http_request_t *r)
{
    struct shed_bytes key;
    struct call *call;
    ngx_int_t status;

    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    status = ngx_http_discard_request_body(r);
    if (status == NGX_OK)
        status = parse_key(r, &key);
    if (status != NGX_OK)
        return status;
    call = ngx_alloc(sizeof(*call), r->connection->log);
    return call != NULL ? begin_call(r, key, call)
                        : NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* ------------------------------------------------------------------ worker */

/* If more have ended, the descriptor stays readable. */
static void collect(ngx_event_t *event)
{
    (void)event;
    (void)shed_queue_collect(worker.queue, COLLECT_AT_ONCE);
}

static void hold(ngx_event_t *event)
{
    if (worker.calls > 0)
        ngx_add_timer(event, HOLD_MS);
}

static const char *text(ngx_str_t string)
{
    return (const char *)string.data; /* nginx ends a parameter with a zero */
}

static enum shed_code open_cache(const struct settings *settings,
                                 struct shed_error *err)
{
    struct shed_client_options client_options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_source_options source_options = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options mysql_options = SHED_MYSQL_OPTIONS_INIT;
    struct shed_cache_options options = SHED_CACHE_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    int failed;

    client_options.on_log = shed_log_stderr; /* which is the error log */
    source_options.max_loads = (uint64_t)settings->loads;
    mysql_options.source = &source_options;
    options.ttl_ms = settings->ttl;
    options.stale_while_revalidate_ms = settings->stale;
    options.timeout_ms = settings->timeout;
    options.async_limit = (uint64_t)settings->requests;
    options.near_bytes = settings->near;
    options.redis_down = SHED_REDIS_DOWN_STALE;
    failed =
        shed_client_open(text(settings->redis), &client_options, &client,
                         err) ||
        shed_mysql_source_open(text(settings->mysql), text(settings->query),
                               &mysql_options, &source, err) ||
        shed_cache_open(client, text(settings->name), source, &options,
                        &worker.cache, err) ||
        shed_queue_open(&worker.queue, err);
    shed_source_close(source); /* the cache keeps both alive */
    shed_client_close(client);
    return failed ? err->code : SHED_OK;
}

static ngx_int_t watch_queue(ngx_log_t *log)
{
    worker.watch = ngx_get_connection(shed_queue_fd(worker.queue), log);
    if (worker.watch == NULL)
        return NGX_ERROR;
    worker.watch->read->handler = collect;
    worker.watch->read->log = log;
    worker.hold.handler = hold;
    worker.hold.log = log;
    worker.hold.data = worker.watch; /* where nginx expects a connection */
    return ngx_add_event(worker.watch->read, NGX_READ_EVENT, NGX_LEVEL_EVENT);
}

/* After the fork, which a client does not survive. */
static ngx_int_t open_worker(ngx_cycle_t *cycle)
{
    const struct settings *settings = NULL;
    struct shed_error err;

    if (ngx_get_conf(cycle->conf_ctx, ngx_http_module) != NULL)
        settings = ngx_http_cycle_get_module_main_conf(
            cycle, ngx_http_snowshed_module);
    if (settings == NULL || !settings->is_used ||
        (ngx_process != NGX_PROCESS_WORKER &&
         ngx_process != NGX_PROCESS_SINGLE))
        return NGX_OK;
    if (open_cache(settings, &err) != SHED_OK) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "snowshed: %s", err.reason);
        return NGX_ERROR;
    }
    return watch_queue(cycle->log);
}

/* Calls are under way only if nginx was not told to quit but to stop. */
static void close_worker(ngx_cycle_t *cycle)
{
    (void)cycle;
    shed_cache_close(worker.cache);
    while (worker.calls > 0 && shed_queue_collect(worker.queue, 1) > 0)
        continue;
    if (worker.watch != NULL) {
        worker.watch->fd = (ngx_socket_t)-1; /* the queue closes it */
        ngx_free_connection(worker.watch);
    }
    shed_queue_close(worker.queue);
}

/* ----------------------------------------------------------- configuration */

static void *create_settings(ngx_conf_t *cf)
{
    struct settings *settings = ngx_pcalloc(cf->pool, sizeof(*settings));

    if (settings == NULL)
        return NULL;
    settings->ttl = NGX_CONF_UNSET_MSEC;
    settings->stale = NGX_CONF_UNSET_MSEC;
    settings->timeout = NGX_CONF_UNSET_MSEC;
    settings->near = NGX_CONF_UNSET_SIZE;
    settings->loads = NGX_CONF_UNSET;
    settings->requests = NGX_CONF_UNSET;
    return settings;
}

static char *check_settings(ngx_conf_t *cf, void *data)
{
    struct settings *settings = data;

    (void)cf;
    ngx_conf_init_msec_value(settings->ttl, 300000);
    ngx_conf_init_msec_value(settings->stale, 0);
    ngx_conf_init_msec_value(settings->timeout, 5000);
    ngx_conf_init_size_value(settings->near, 0);
    ngx_conf_init_value(settings->loads, 4);
    ngx_conf_init_value(settings->requests, 10000);
    if (settings->is_used &&
        (settings->redis.len == 0 || settings->mysql.len == 0 ||
         settings->query.len == 0 || settings->name.len == 0))
        return "snowshed_items needs snowshed_redis, snowshed_mysql, "
               "snowshed_query and snowshed_cache";
    return NGX_CONF_OK;
}

static char *set_items(ngx_conf_t *cf, ngx_command_t *command, void *data)
{
    ngx_http_core_loc_conf_t *location =
        ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    struct settings *settings =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_snowshed_module);

    (void)command, (void)data;
    location->handler = get_item;
    settings->is_used = 1;
    return NGX_CONF_OK;
}

#define HTTP_VALUE (NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1)

static ngx_command_t commands[] = {
    {ngx_string("snowshed_redis"), HTTP_VALUE, ngx_conf_set_str_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, redis), NULL},
    {ngx_string("snowshed_mysql"), HTTP_VALUE, ngx_conf_set_str_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, mysql), NULL},
    {ngx_string("snowshed_query"), HTTP_VALUE, ngx_conf_set_str_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, query), NULL},
    {ngx_string("snowshed_cache"), HTTP_VALUE, ngx_conf_set_str_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, name), NULL},
    {ngx_string("snowshed_ttl"), HTTP_VALUE, ngx_conf_set_msec_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, ttl), NULL},
    {ngx_string("snowshed_stale"), HTTP_VALUE, ngx_conf_set_msec_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, stale), NULL},
    {ngx_string("snowshed_timeout"), HTTP_VALUE, ngx_conf_set_msec_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, timeout), NULL},
    {ngx_string("snowshed_near"), HTTP_VALUE, ngx_conf_set_size_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, near), NULL},
    {ngx_string("snowshed_loads"), HTTP_VALUE, ngx_conf_set_num_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, loads), NULL},
    {ngx_string("snowshed_requests"), HTTP_VALUE, ngx_conf_set_num_slot,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(struct settings, requests), NULL},
    {ngx_string("snowshed_items"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS,
     set_items, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command};

static ngx_http_module_t module = {
    .create_main_conf = create_settings,
    .init_main_conf = check_settings,
};

ngx_module_t ngx_http_snowshed_module = {
    NGX_MODULE_V1, &module,      commands,    NGX_HTTP_MODULE,
    NULL,          NULL,         open_worker, NULL,
    NULL,          close_worker, NULL,        NGX_MODULE_V1_PADDING};

/* What nginx looks up in a dynamic module. */
ngx_module_t *ngx_modules[] = {&ngx_http_snowshed_module, NULL};
char *ngx_module_names[] = {"ngx_http_snowshed_module", NULL};
char *ngx_module_order[] = {NULL};
