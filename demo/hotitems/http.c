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
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wait.h"

#define THREAD_STACK_BYTES ((size_t)512 * 1024)
#define TICK_US 20000
#define SPARE_PART 8 /* connections that are kept free: one in so many */

enum peer_state {
    ARRIVING, /* its request is not complete; it begins like that */
    WORKING,  /* its request is being handled, for as long as that takes */
    TAKING    /* its answer is being sent */
};

/* A connection, from accept to close. */
struct peer {
    struct peer *next, **link;
    int fd;
    /* under mu */
    enum peer_state state;
    uint64_t since_ms;
    bool is_shut; /* its thread is about to close it */
};

struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    uint16_t port;
    pthread_mutex_t mu;
    /* under mu */
    struct peer *peers;
    size_t running; /* exchanges between their head and their end */
    bool is_ending; /* none begins any more */
};

/* One request and its answer. */
struct exchange {
    struct http *http;
    struct peer *peer;
    char *path;
    const char *method; /* libmicrohttpd's, while the exchange lasts */
    uint64_t begun_us;
    struct http_request request;
    void *state; /* the handler's */
    struct http_reply reply;
    bool is_answered;
    bool is_too_big;
    bool is_ambiguous; /* a header that there may be once is there twice */
    size_t body_size;
    char body[HTTP_BODY_MAX_BYTES];
};

static uint64_t now_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

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
           (!reply->is_last || add_header(response, "Connection", "close")) &&
           (!reply->is_replay ||
            add_header(response, "Idempotency-Replayed", "true"));
}

static void set_state(struct http *http, struct peer *peer,
                      enum peer_state state)
{
    (void)pthread_mutex_lock(&http->mu);
    peer->state = state;
    peer->since_ms = wait_now_ms();
    (void)pthread_mutex_unlock(&http->mu);
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

static struct exchange *begin_exchange(struct http *http,
                                       struct MHD_Connection *connection,
                                       const char *path, const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *x = calloc(1, sizeof(*x));

    if (x == NULL || info == NULL || info->socket_context == NULL ||
        (x->path = strdup(path)) == NULL) {
        free(x);
        return NULL;
    }
    x->http = http;
    x->peer = info->socket_context;
    x->method = method;
    x->begun_us = now_us();
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

static bool is_announced_too_big(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(
        connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return length != NULL && strtoull(length, NULL, 10) > HTTP_BODY_MAX_BYTES;
}

static enum MHD_Result count_single(void *user, enum MHD_ValueKind kind,
                                    const char *name, const char *value)
{
    unsigned *counts = user;

    (void)kind;
    (void)value;
    counts[0] += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    counts[1] += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    return MHD_YES;
}

/* A proxy in front may heed the other one, and see other requests than we do.
 */
static bool is_ambiguous(struct MHD_Connection *connection)
{
    unsigned counts[2] = {0};

    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, count_single,
                                    counts);
    return counts[0] > 1 || counts[1] > 1;
}

/* A request that was suspended has been admitted before. */
static void handle(struct exchange *x)
{
    if (x->state != NULL) {
        x->http->options.handle(x->http->options.user, &x->request, &x->reply);
        return;
    }
    x->reply.route = "other";
    x->reply.is_last = x->is_ambiguous;
    if (x->is_ambiguous)
        http_reply_error(&x->reply, MHD_HTTP_BAD_REQUEST,
                         "there is more than one Content-Length, or Host");
    else if (x->is_too_big)
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
        *state = x = begin_exchange(user, connection, url, method);
        if (x == NULL)
            return MHD_NO;
        x->is_ambiguous = is_ambiguous(connection);
        x->is_too_big = is_announced_too_big(connection);
        if (!x->is_ambiguous && !x->is_too_big)
            return MHD_YES; /* others are answered before the body is sent */
        *size = 0;
    }
    if (*size != 0) {
        take_body(x, data, *size);
        *size = 0;
        return MHD_YES;
    }
    set_state(x->http, x->peer, WORKING);
    if (!answer(x, connection))
        return MHD_YES; /* it is called again */
    set_state(x->http, x->peer, TAKING);
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
                                  now_us() - x->begun_us,
                                  why == MHD_REQUEST_TERMINATED_COMPLETED_OK};
    if (x->reply.status != 0)
        http->options.done(http->options.user, &record);
    set_state(http, x->peer, ARRIVING);
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

/* --------------------------------------------------------- connections */

static void shut_locked(struct peer *peer)
{
    (void)shutdown(peer->fd, SHUT_RDWR);
    peer->is_shut = true;
}

static bool is_idle(const struct peer *p, uint64_t now_ms)
{
    return !p->is_shut &&
           (p->state == ARRIVING ||
            (p->state != WORKING && now_ms - p->since_ms >= HTTP_TAKING_MS));
}

/* Of the connections that wait for their clients, that which has done so for
 * longest, but not the newest; NULL: there is none. *count: of all. */
static struct peer *find_idle_locked(const struct http *http, uint64_t now_ms,
                                     size_t *count)
{
    struct peer *idle = NULL;

    *count = 0;
    for (struct peer *p = http->peers; p != NULL; p = p->next) {
        *count += !p->is_shut;
        if (p != http->peers && is_idle(p, now_ms) &&
            (idle == NULL || p->since_ms < idle->since_ms))
            idle = p;
    }
    return idle;
}

/* Close idle connections before the limit of connections is reached: at the
 * limit libmicrohttpd refuses new clients. */
static void make_room_locked(struct http *http, uint64_t now_ms)
{
    size_t most = http->options.connections_max, count;
    struct peer *idle;

    while ((idle = find_idle_locked(http, now_ms, &count)) != NULL &&
           count > most - most / SPARE_PART)
        shut_locked(idle);
}

static void admit(struct http *http, struct MHD_Connection *connection,
                  void **state)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct peer *peer = calloc(1, sizeof(*peer));

    if (peer == NULL || info == NULL) {
        free(peer); /* its requests are refused, see begin_exchange */
        return;
    }
    peer->fd = info->connect_fd;
    peer->state = ARRIVING;
    peer->since_ms = wait_now_ms();
    (void)pthread_mutex_lock(&http->mu);
    peer->next = http->peers;
    peer->link = &http->peers;
    if (peer->next != NULL)
        peer->next->link = &peer->next;
    http->peers = peer;
    make_room_locked(http, wait_now_ms());
    (void)pthread_mutex_unlock(&http->mu);
    *state = peer;
}

static void dismiss(struct http *http, struct peer *peer)
{
    if (peer == NULL)
        return;
    (void)pthread_mutex_lock(&http->mu);
    *peer->link = peer->next;
    if (peer->next != NULL)
        peer->next->link = peer->link;
    (void)pthread_mutex_unlock(&http->mu);
    free(peer);
}

static void on_connection(void *user, struct MHD_Connection *connection,
                          void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        admit(user, connection, state);
    else
        dismiss(user, *state);
}

void http_tick(struct http *http)
{
    uint64_t now_ms;

    (void)pthread_mutex_lock(&http->mu);
    now_ms = wait_now_ms(); /* not before any peer's since_ms */
    for (struct peer *p = http->peers; p != NULL; p = p->next)
        if (p->state != WORKING && now_ms - p->since_ms > HTTP_ARRIVAL_MAX_MS)
            shut_locked(p);
    make_room_locked(http, now_ms);
    (void)pthread_mutex_unlock(&http->mu);
}

/* A %00 stays as it is: decoded, it would end the text before its end. */
static size_t unescape(void *user, struct MHD_Connection *connection,
                       char *text)
{
    char *to = text;

    (void)user;
    (void)connection;
    for (const char *at = text; *at != '\0'; at++) {
        char digits[3] = {0};
        char *end;
        long code;
        if (*at == '%' && at[1] != '\0') {
            memcpy(digits, at + 1, at[2] != '\0' ? 2 : 1);
            code = strtol(digits, &end, 16);
            if (end == digits + 2 && digits[0] != '-' && digits[0] != '+' &&
                code != 0) {
                *to++ = (char)code;
                at += 2;
                continue;
            }
        }
        *to++ = *at;
    }
    *to = '\0';
    return (size_t)(to - text);
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
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,               /**/
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,                    /**/
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

/* Wait for the requests under way, and drop clients that have stalled. Every
 * request has a deadline, so this ends; while one is suspended libmicrohttpd
 * cannot be stopped. */
static void wait_for_none(struct http *http)
{
    for (;;) {
        (void)pthread_mutex_lock(&http->mu);
        http->is_ending = http->running == 0;
        (void)pthread_mutex_unlock(&http->mu);
        if (http->is_ending)
            return;
        http_tick(http);
        (void)usleep(TICK_US);
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
