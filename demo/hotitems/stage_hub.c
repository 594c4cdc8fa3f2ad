/* A ring of events, and the last marks apart, because other events come more
 * often. */
#include "stage_hub.h"

#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wait.h"

#define RING 128
#define MARKS 50
#define TEXT_BYTES 200
/* A proxy or a client that hears nothing for long may close the connection. */
#define KEEP_ALIVE_MS 1000

static const char greeting[] = "retry: 1000\n: what is done to the lanes\n\n";
static const char keep_alive[] = ":\n\n";

struct hub {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* under mu */
    bool is_over;
    size_t listeners;
    /* texts are whole events, malloc'd */
    char *ring[RING];
    uint64_t next; /* the number of the next event */
    char *mark[MARKS];
    size_t next_mark;
};

struct listener {
    struct hub *hub;
    uint64_t next; /* event of the ring */
    char *text;    /* what it is being sent */
    size_t size, sent;
};

uint64_t hub_time_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct hub *hub_new(void)
{
    struct hub *hub = calloc(1, sizeof(*hub));

    if (hub == NULL)
        return NULL;
    wait_init(&hub->mu, &hub->changed);
    return hub;
}

void hub_free(struct hub *hub)
{
    if (hub == NULL)
        return;
    for (size_t i = 0; i < RING; i++)
        free(hub->ring[i]);
    for (size_t i = 0; i < MARKS; i++)
        free(hub->mark[i]);
    (void)pthread_cond_destroy(&hub->changed);
    (void)pthread_mutex_destroy(&hub->mu);
    free(hub);
}

void hub_end(struct hub *hub)
{
    (void)pthread_mutex_lock(&hub->mu);
    hub->is_over = true;
    (void)pthread_cond_broadcast(&hub->changed);
    (void)pthread_mutex_unlock(&hub->mu);
}

/* ------------------------------------------------------------------ tell */

/* As it is sent; NULL: out of memory. */
static char *make_event(const char *event, json_t *data)
{
    char *json = json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII);
    size_t size = json != NULL ? strlen(json) + strlen(event) + 32 : 0;
    char *text = json != NULL ? malloc(size) : NULL;

    if (text != NULL)
        (void)snprintf(text, size, "event: %s\ndata: %s\n\n", event, json);
    free(json);
    return text;
}

static void add_locked(struct hub *hub, char *text)
{
    char **place = &hub->ring[hub->next++ % RING];

    free(*place);
    *place = text;
}

static void add_mark_locked(struct hub *hub, const char *text)
{
    char **place = &hub->mark[hub->next_mark++ % MARKS];

    free(*place);
    *place = strdup(text);
}

void hub_tell(struct hub *hub, const char *event, json_t *data)
{
    char *text = data != NULL ? make_event(event, data) : NULL;

    json_decref(data);
    if (text == NULL)
        return;
    (void)pthread_mutex_lock(&hub->mu);
    if (strcmp(event, "mark") == 0)
        add_mark_locked(hub, text);
    add_locked(hub, text);
    (void)pthread_cond_broadcast(&hub->changed);
    (void)pthread_mutex_unlock(&hub->mu);
}

void hub_mark(struct hub *hub, const char *action, uint64_t time_ms,
              uint64_t id, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    json_t *data;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    data = json_pack("{s:I,s:s,s:s}", "time_ms", (json_int_t)time_ms, "action",
                     action, "text", text);
    if (data != NULL && id != 0)
        (void)json_object_set_new(data, "id", json_integer((json_int_t)id));
    hub_tell(hub, "mark", data);
}

/* ---------------------------------------------------------------- listen */

/* The greeting and the kept marks as one text, oldest first; NULL: out of
 * memory. */
static char *join_marks_locked(const struct hub *hub)
{
    size_t size = sizeof(greeting), used = sizeof(greeting) - 1;
    char *all;

    for (size_t i = 0; i < MARKS; i++)
        size += hub->mark[i] != NULL ? strlen(hub->mark[i]) : 0;
    all = malloc(size);
    if (all == NULL)
        return NULL;
    memcpy(all, greeting, sizeof(greeting));
    for (size_t i = 0; i < MARKS; i++) {
        const char *text = hub->mark[(hub->next_mark + i) % MARKS];
        size_t length = text != NULL ? strlen(text) : 0;
        if (text == NULL)
            continue;
        memcpy(all + used, text, length + 1);
        used += length;
    }
    return all;
}

static bool wait_locked(struct hub *hub, uint64_t next)
{
    uint64_t until_ms = http_now_ms() + KEEP_ALIVE_MS;
    bool is_in_time = true;

    while (!hub->is_over && hub->next == next && is_in_time)
        is_in_time = wait_until(&hub->changed, &hub->mu, until_ms);
    return hub->next != next;
}

/* Wait for the next event, or the time for a sign of life. Returns false at the
 * end. */
static bool next_text(struct listener *l)
{
    struct hub *hub = l->hub;
    bool is_over;

    free(l->text);
    l->text = NULL;
    (void)pthread_mutex_lock(&hub->mu);
    if (wait_locked(hub, l->next)) {
        if (hub->next - l->next > RING)
            l->next = hub->next - RING;
        l->text = strdup(hub->ring[l->next++ % RING]);
    } else {
        l->text = strdup(keep_alive);
    }
    is_over = hub->is_over;
    (void)pthread_mutex_unlock(&hub->mu);
    l->size = l->text != NULL ? strlen(l->text) : 0;
    l->sent = 0;
    return l->text != NULL && !is_over;
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

    (void)pthread_mutex_lock(&l->hub->mu);
    l->hub->listeners--;
    (void)pthread_mutex_unlock(&l->hub->mu);
    free(l->text);
    free(l);
}

static bool admit(struct hub *hub, struct listener *l)
{
    l->hub = hub;
    (void)pthread_mutex_lock(&hub->mu);
    if (!hub->is_over && hub->listeners < HUB_LISTENERS_MAX) {
        l->next = hub->next;
        l->text = join_marks_locked(hub);
        hub->listeners += l->text != NULL;
    }
    (void)pthread_mutex_unlock(&hub->mu);
    l->size = l->text != NULL ? strlen(l->text) : 0;
    return l->text != NULL;
}

void hub_listen(struct hub *hub, struct http_reply *reply)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l == NULL || !admit(hub, l)) {
        free(l);
        reply->retry_after_s = 1;
        http_reply_error(reply, 503,
                         "there are %d listeners, which is the most",
                         HUB_LISTENERS_MAX);
        return;
    }
    reply->status = 200;
    reply->type = "text/event-stream";
    reply->stream = (struct http_stream){l, read_listener, close_listener};
}
