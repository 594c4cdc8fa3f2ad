/* HTTP by libmicrohttpd: a thread for each connection, or one for all. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "wait.h"

#define THREAD_STACK_BYTES ((size_t)512 * 1024)
#define TICK_US 20000
struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    uint16_t port;
    pthread_mutex_t mu;
    /* under mu */
    size_t running; /* exchanges between their head and their end */
    bool is_ending; /* none begins any more */
};

/* One request and its answer. */
struct exchange {
    struct http *http;
    char *path;
    const char *method; /* libmicrohttpd's, while the exchange lasts */
    uint64_t begun_us;
    struct http_request request;
    void *state; /* the handler's */
    struct http_reply reply;
    bool is_answered;
    bool is_too_big;
    size_t body_size;
    char body[HTTP_BODY_MAX_BYTES];
};

const char *http_argument(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection,
                                       MHD_GET_ARGUMENT_KIND, name);
}

const char *http_header(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                       name);
}

/* -------------------------------------------------------------- answers */

void http_reply_text(struct http_reply *reply, unsigned status,
                     const char *type, char *text)
{
    reply->status = text != NULL ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
    reply->type = type;
    free(reply->body);
    reply->body = text;
    reply->size = text != NULL ? strlen(text) : 0;
}

void http_reply_json(struct http_reply *reply, unsigned status, json_t *body)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    http_reply_text(reply, status, "application/json", text);
}

void http_reply_error(struct http_reply *reply, unsigned status,
                      const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* What a client sent may be quoted in it, and need not be UTF-8. */
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            *at = '?';
    http_reply_json(reply, status, json_pack("{s:s}", "error", text));
}

static bool add_header(struct MHD_Response *response, const char *name,
                       const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool add_headers(struct MHD_Response *response,
                        const struct http_reply *reply)
{
    char seconds[16];

    (void)snprintf(seconds, sizeof(seconds), "%u", reply->retry_after_s);
    return (reply->type == NULL ||
            add_header(response, "Content-Type", reply->type)) &&
           add_header(response, "Cache-Control", "no-store") &&
           add_header(response, "X-Content-Type-Options", "nosniff") &&
           (reply->allow == NULL ||
            add_header(response, "Allow", reply->allow)) &&
           (reply->retry_after_s == 0 ||
            add_header(response, "Retry-After", seconds)) &&
           (!reply->is_replay ||
            add_header(response, "Idempotency-Replayed", "true"));
}

/* A failure here closes the connection, which is all that is left to do. */
static enum MHD_Result send_reply(struct MHD_Connection *connection,
                                  struct exchange *x)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        x->reply.size, x->reply.body, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result = MHD_NO;

    if (response == NULL)
        return MHD_NO;
    x->reply.body = NULL;
    if (add_headers(response, &x->reply))
        result = MHD_queue_response(connection, x->reply.status, response);
    MHD_destroy_response(response);
    return result;
}

/* ------------------------------------------------------------- requests */

static enum http_method method_of(const char *name)
{
    if (strcmp(name, MHD_HTTP_METHOD_GET) == 0 ||
        strcmp(name, MHD_HTTP_METHOD_HEAD) == 0)
        return HTTP_GET;
    if (strcmp(name, MHD_HTTP_METHOD_POST) == 0)
        return HTTP_POST;
    return strcmp(name, MHD_HTTP_METHOD_PATCH) == 0 ? HTTP_PATCH : HTTP_OTHER;
}

static struct exchange *begin_exchange(struct http *http, const char *path,
                                       const char *method)
{
    struct exchange *x = calloc(1, sizeof(*x));

    if (x == NULL || (x->path = strdup(path)) == NULL) {
        free(x);
        return NULL;
    }
    x->http = http;
    x->method = method;
    x->begun_us = demo_now_us();
    (void)pthread_mutex_lock(&http->mu);
    http->running += !http->is_ending;
    if (http->is_ending) {
        free(x->path);
        free(x);
        x = NULL;
    }
    (void)pthread_mutex_unlock(&http->mu);
    return x;
}

static void take_body(struct exchange *x, const char *data, size_t size)
{
    if (size > sizeof(x->body) - x->body_size)
        x->is_too_big = true;
    if (x->is_too_big)
        return;
    memcpy(x->body + x->body_size, data, size);
    x->body_size += size;
}

/* A request that was suspended has been admitted before. */
static void handle(struct exchange *x)
{
    if (x->state != NULL) {
        x->http->options.handle(x->http->options.user, &x->request, &x->reply);
        return;
    }
    x->reply.route = "other";
    if (x->is_too_big)
        http_reply_error(&x->reply, MHD_HTTP_CONTENT_TOO_LARGE,
                         "a body may have %d bytes at most",
                         HTTP_BODY_MAX_BYTES);
    else if (http_admit(&x->request, &x->reply))
        x->http->options.handle(x->http->options.user, &x->request, &x->reply);
}

void http_suspend(const struct http_request *request)
{
    MHD_suspend_connection(request->connection);
}

void http_resume(const struct http_request *request)
{
    MHD_resume_connection(request->connection);
}

static void *handle_apart(void *exchange)
{
    struct exchange *x = exchange;

    handle(x);
    http_resume(&x->request);
    return NULL;
}

/* A request that has to block, on a thread of its own. */
static void start_apart(struct exchange *x)
{
    pthread_attr_t attr;
    pthread_t thread;

    x->is_answered = true; /* when it is resumed */
    http_suspend(&x->request);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    if (pthread_create(&thread, &attr, handle_apart, x) != 0) {
        http_reply_error(&x->reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "there are too many threads");
        http_resume(&x->request);
    }
    (void)pthread_attr_destroy(&attr);
}

/* Returns false while the exchange is suspended. */
static bool answer(struct exchange *x, struct MHD_Connection *connection)
{
    http_is_quick *is_quick = x->http->options.is_quick;

    if (x->is_answered)
        return true;
    x->request = (struct http_request){
        .method = method_of(x->method),
        .path = x->path,
        .body = x->body,
        .body_size = x->body_size,
        .deadline_ms = x->begun_us / 1000 + x->http->options.timeout_ms,
        .state = &x->state,
        .connection = connection};
    x->request.may_block =
        is_quick == NULL || !is_quick(x->http->options.user, &x->request);
    if (is_quick != NULL && x->request.may_block) {
        start_apart(x);
        return false;
    }
    handle(x);
    return x->reply.status != 0;
}

/* libmicrohttpd calls it with the head, with each piece of the body, and at the
 * end with none. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *connection,
                                  const char *url, const char *method,
                                  const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct exchange *x = *state;

    (void)version;
    if (x == NULL) {
        *state = begin_exchange(user, url, method);
        return *state != NULL ? MHD_YES : MHD_NO;
    }
    if (*size != 0) {
        take_body(x, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (!answer(x, connection))
        return MHD_YES; /* it is called again */
    return send_reply(connection, x);
}

static void on_end(void *user, struct MHD_Connection *connection, void **state,
                   enum MHD_RequestTerminationCode why)
{
    struct http *http = user;
    struct exchange *x = *state;
    struct http_record record;

    (void)connection;
    if (x == NULL)
        return;
    record = (struct http_record){x->method, x->path, &x->reply,
                                  demo_now_us() - x->begun_us,
                                  why == MHD_REQUEST_TERMINATED_COMPLETED_OK};
    if (x->reply.status != 0)
        http->options.done(http->options.user, &record);
    (void)pthread_mutex_lock(&http->mu);
    http->running--;
    (void)pthread_mutex_unlock(&http->mu);
    if (x->state != NULL)
        http->options.drop(x->state);
    free(x->reply.body);
    free(x->path);
    free(x);
    *state = NULL;
}

/* -------------------------------------------------------- start and stop */

static bool read_port(struct http *http)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);

    if (info == NULL)
        return false;
    http->port = info->port;
    return true;
}

static bool start_daemon(struct http *http, const struct sockaddr_in *address)
{
    const unsigned kind =
        http->options.is_quick == NULL
            ? MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_THREAD_PER_CONNECTION
            : MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;

    http->daemon = MHD_start_daemon(
        kind, 0, NULL, NULL, on_request, http,                           /**/
        MHD_OPTION_SOCK_ADDR, (const struct sockaddr *)address,          /**/
        MHD_OPTION_CONNECTION_LIMIT, http->options.connections_max,      /**/
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEAD_MAX_BYTES, /**/
        MHD_OPTION_THREAD_STACK_SIZE, THREAD_STACK_BYTES,                /**/
        MHD_OPTION_NOTIFY_COMPLETED, on_end, http,                       /**/
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_MAX_S,        /**/
        MHD_OPTION_END);
    return http->daemon != NULL;
}

struct http *http_start(const struct http_options *options, char *why,
                        size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(options->port)};
    struct http *http;

    if (inet_pton(AF_INET, options->address, &address.sin_addr) != 1) {
        (void)snprintf(why, size, "%s is not an IPv4 address",
                       options->address);
        return NULL;
    }
    http = calloc(1, sizeof(*http));
    if (http == NULL) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    http->options = *options;
    (void)pthread_mutex_init(&http->mu, NULL);
    if (start_daemon(http, &address) && read_port(http))
        return http;
    (void)snprintf(why, size, "cannot listen on %s port %u: %s",
                   options->address, options->port, strerror(errno));
    if (http->daemon != NULL)
        MHD_stop_daemon(http->daemon);
    (void)pthread_mutex_destroy(&http->mu);
    free(http);
    return NULL;
}

uint16_t http_port(const struct http *http)
{
    return http->port;
}

/* Wait for the requests under way. Every request has a deadline, so this ends;
 * while one is suspended libmicrohttpd cannot be stopped. */
static void wait_for_none(struct http *http)
{
    for (;;) {
        (void)pthread_mutex_lock(&http->mu);
        http->is_ending = http->running == 0;
        (void)pthread_mutex_unlock(&http->mu);
        if (http->is_ending)
            return;
        demo_nap(TICK_US);
    }
}

void http_stop(struct http *http)
{
    MHD_socket listening = MHD_quiesce_daemon(http->daemon);

    wait_for_none(http);
    MHD_stop_daemon(http->daemon);
    if (listening != MHD_INVALID_SOCKET)
        (void)close(listening);
    (void)pthread_mutex_destroy(&http->mu);
    free(http);
}
