/*
 * HTTP for a service that blocks: each connection has a thread of its own, and
 * a handler answers one request on it, so it may wait for Redis and MySQL. Or
 * one thread serves all connections: a quick request waits without a thread,
 * and a request that must block gets one. All that a client can make large or
 * slow is bounded here: connections, headers, body, and how long a client may
 * be silent.
 */
#ifndef HOTITEMS_HTTP_H
#define HOTITEMS_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define HTTP_BODY_MAX_BYTES 4096
#define HTTP_HEAD_MAX_BYTES 16384 /* libmicrohttpd answers 431 to more */
#define HTTP_IDLE_MAX_S                                                        \
    10 /* a connection whose client sends nothing, or takes nothing, for this  \
          long is closed */

enum http_method { HTTP_GET, HTTP_POST, HTTP_PATCH, HTTP_OTHER };

struct http_request {
    enum http_method method; /* HEAD is a GET whose body is not sent */
    const char *path;        /* percent-decoded */
    const char *body;
    size_t body_size;
    uint64_t deadline_ms; /* by wait_now_ms */
    bool may_block;       /* else it is on the one thread; see http_suspend */
    void **state; /* the handler's, NULL at first; the option drop frees it */
    void *connection;
};

/* The value of a query argument or of a header; NULL without one. */
const char *http_argument(const struct http_request *request, const char *name);
const char *http_header(const struct http_request *request, const char *name);

struct http_reply {
    unsigned status;
    const char *type; /* of the body: static */
    char *body;       /* malloc'd, freed by the server; may be NULL */
    size_t size;
    const char *route;  /* static; for the log and the metrics */
    const char *origin; /* static; where the answer came from, for the log */
    const char *allow;  /* static; 405: the methods that exist */
    unsigned retry_after_s;
    bool is_replay; /* an order that was placed before */
    char why[300];  /* for the log: what the client need not know */
};

/* Answer with a text of a static type, which the server frees. NULL is 500: out
 * of memory. */
void http_reply_text(struct http_reply *reply, unsigned status,
                     const char *type, char *text);

/* Answer with a JSON document, which is consumed. NULL is 500: out of memory.
 */
void http_reply_json(struct http_reply *reply, unsigned status, json_t *body);

/* Answer {"error": text}. */
void http_reply_error(struct http_reply *reply, unsigned status,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns false, with the reply, for a request that a page of another origin
 * may have sent. Every request is checked before it is handled. */
bool http_admit(const struct http_request *request, struct http_reply *reply);

/* Must set status, unless it has called http_suspend. */
typedef void http_handler(void *user, const struct http_request *request,
                          struct http_reply *reply);

/* A request that may not block waits. Once http_resume has been called, by any
 * thread, perhaps before the handler has returned, the handler is called again.
 */
void http_suspend(const struct http_request *request);
void http_resume(const struct http_request *request);

/* Whether the handler answers it without blocking. */
typedef bool http_is_quick(void *user, const struct http_request *request);

/* Told of each exchange when it has ended. bytes is the size of the body. */
struct http_record {
    const char *method, *path;
    const struct http_reply *reply;
    uint64_t took_us;
    bool is_complete; /* false: the client left before it had the answer */
};
typedef void http_done(void *user, const struct http_record *record);

struct http_options {
    const char *address;
    uint16_t port; /* 0: any that is free */
    unsigned connections_max;
    uint64_t timeout_ms; /* from a request's head to its deadline */
    http_handler *handle;
    http_is_quick *is_quick;   /* NULL: each connection has a thread */
    void (*drop)(void *state); /* what a request has left in it */
    http_done *done;
    void *user;
};

struct http;

/* Serve. Returns NULL with why. */
struct http *http_start(const struct http_options *options, char *why,
                        size_t size);
uint16_t http_port(const struct http *http);

/* Accept nothing more, let the requests under way end, and close. */
void http_stop(struct http *http);

#endif
