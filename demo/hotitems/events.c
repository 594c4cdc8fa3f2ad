/* The newest sample, under one mutex, and those who wait for the next. */
#include "events.h"

#include <assert.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

/* A proxy or a client that hears nothing for long may close the connection. */
#define KEEP_ALIVE_MS 1000
#define RETRY_AFTER_S 1

static const char greeting[] = "retry: 1000\n: the instance's counters\n\n";
static const char keep_alive[] = ":\n\n";

struct events {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* under mu */
    size_t listeners;
    bool is_over;
    uint64_t number; /* of the newest event; 0: there is none yet */
    size_t size;
    char text[EVENTS_BYTES];
};

struct listener {
    struct events *events;
    uint64_t seen; /* number of the event that it has */
    size_t size, sent;
    char text[EVENTS_BYTES]; /* what it is being sent */
};

struct events *events_new(void)
{
    struct events *e = calloc(1, sizeof(*e));

    if (e == NULL)
        return NULL;
    wait_init(&e->mu, &e->changed);
    return e;
}

void events_free(struct events *e)
{
    if (e == NULL)
        return;
    assert(e->listeners == 0);
    (void)pthread_cond_destroy(&e->changed);
    (void)pthread_mutex_destroy(&e->mu);
    free(e);
}

void events_publish(struct events *e, const char *text, size_t size)
{
    assert(size <= EVENTS_BYTES);
    (void)pthread_mutex_lock(&e->mu);
    memcpy(e->text, text, size);
    e->size = size;
    e->number++;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->mu);
}

size_t events_listeners(struct events *e)
{
    size_t count;

    (void)pthread_mutex_lock(&e->mu);
    count = e->listeners;
    (void)pthread_mutex_unlock(&e->mu);
    return count;
}

void events_end(struct events *e)
{
    (void)pthread_mutex_lock(&e->mu);
    e->is_over = true;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->mu);
}

/* ---------------------------------------------------------------- listeners */

static void send_text(struct listener *l, const char *text, size_t size)
{
    memcpy(l->text, text, size);
    l->size = size;
    l->sent = 0;
}

/* Wait for the next event, or the time for a sign of life. Returns false at the
 * end. */
static bool next_text(struct listener *l)
{
    struct events *e = l->events;
    uint64_t until_ms = http_now_ms() + KEEP_ALIVE_MS;
    bool is_in_time = true;
    bool is_over;

    (void)pthread_mutex_lock(&e->mu);
    while (!e->is_over && e->number == l->seen && is_in_time)
        is_in_time = wait_until(&e->changed, &e->mu, until_ms);
    is_over = e->is_over;
    if (e->number != l->seen)
        send_text(l, e->text, e->size);
    else
        send_text(l, keep_alive, sizeof(keep_alive) - 1);
    l->seen = e->number;
    (void)pthread_mutex_unlock(&e->mu);
    return !is_over;
}

static size_t read_listener(void *user, char *buffer, size_t capacity)
{
    struct listener *l = user;
    size_t size;

    if (l->sent == l->size && !next_text(l))
        return 0;
    size = l->size - l->sent < capacity ? l->size - l->sent : capacity;
    memcpy(buffer, l->text + l->sent, size);
    l->sent += size;
    return size;
}

static void close_listener(void *user)
{
    struct listener *l = user;

    (void)pthread_mutex_lock(&l->events->mu);
    l->events->listeners--;
    (void)pthread_mutex_unlock(&l->events->mu);
    free(l);
}

static bool admit(struct events *e)
{
    bool has_room;

    (void)pthread_mutex_lock(&e->mu);
    has_room = !e->is_over && e->listeners < EVENTS_LISTENERS_MAX;
    if (has_room)
        e->listeners++;
    (void)pthread_mutex_unlock(&e->mu);
    return has_room;
}

void events_listen(struct events *e, struct http_reply *reply)
{
    struct listener *l = calloc(1, sizeof(*l));

    reply->is_for_all = true;
    if (l == NULL || !admit(e)) {
        free(l);
        reply->retry_after_s = RETRY_AFTER_S;
        http_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "there are %d listeners, which is the most",
                         EVENTS_LISTENERS_MAX);
        return;
    }
    l->events = e;
    send_text(l, greeting, sizeof(greeting) - 1);
    reply->status = MHD_HTTP_OK;
    reply->type = "text/event-stream";
    reply->stream = (struct http_stream){l, read_listener, close_listener};
}
