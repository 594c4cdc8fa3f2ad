/* Two rings of texts that are shared with the listeners they are sent to. What
 * is kept has a ring of its own, because other events come more often. */
#include "sse.h"

#include <assert.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

/* A proxy or a client that hears nothing for long may close the connection. */
#define KEEP_ALIVE_MS 1000
#define RETRY_AFTER_S 1 /* there is no memory, or the end has come */

static const char keep_alive[] = ":\n\n";

struct text {
    size_t users; /* rings and listeners that have it; under mu */
    size_t size;
    char bytes[];
};

struct ring {
    struct text **text;
    size_t size;
    uint64_t next; /* the number of the next one that is put in */
};

struct sse {
    const char *greeting;
    size_t listeners_max;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* under mu */
    bool is_over;
    size_t count;               /* of listeners that are not ending */
    struct listener *listeners; /* all, the newest first */
    struct ring events, kept;
};

struct listener {
    struct sse *sse;
    struct listener *next_one, **link;
    bool is_ending;    /* another one has its place; under mu */
    uint64_t next;     /* the number of the next event for it */
    struct text *text; /* what it is being sent; NULL: a sign of life */
    size_t sent;
};

/* ------------------------------------------------------------------- texts */

static struct text *make_text(const char *bytes, size_t size)
{
    struct text *text = malloc(sizeof(*text) + size);

    if (text == NULL)
        return NULL;
    text->users = 0;
    text->size = size;
    memcpy(text->bytes, bytes, size);
    return text;
}

static void drop_locked(struct text *text)
{
    if (text != NULL && --text->users == 0)
        free(text);
}

static bool init_ring(struct ring *ring, size_t size)
{
    ring->text = calloc(size, sizeof(*ring->text));
    ring->size = size;
    return ring->text != NULL;
}

static void free_ring(struct ring *ring)
{
    for (size_t i = 0; ring->text != NULL && i < ring->size; i++)
        drop_locked(ring->text[i]);
    free(ring->text);
}

static void put_locked(struct ring *ring, struct text *text)
{
    struct text **place = &ring->text[ring->next++ % ring->size];

    drop_locked(*place);
    *place = text;
    text->users++;
}

/* --------------------------------------------------------------- open, send */

struct sse *sse_new(const struct sse_options *options)
{
    struct sse *sse = calloc(1, sizeof(*sse));

    assert(options->ring > 0 && options->kept > 0);
    if (sse == NULL)
        return NULL;
    sse->greeting = options->greeting;
    sse->listeners_max = options->listeners_max;
    wait_init(&sse->mu, &sse->changed);
    if (init_ring(&sse->events, options->ring) &&
        init_ring(&sse->kept, options->kept))
        return sse;
    sse_free(sse);
    return NULL;
}

void sse_free(struct sse *sse)
{
    if (sse == NULL)
        return;
    assert(sse->listeners == NULL);
    free_ring(&sse->events);
    free_ring(&sse->kept);
    (void)pthread_cond_destroy(&sse->changed);
    (void)pthread_mutex_destroy(&sse->mu);
    free(sse);
}

void sse_publish(struct sse *sse, const char *bytes, size_t size, bool is_kept)
{
    struct text *text = make_text(bytes, size);

    if (text == NULL)
        return;
    (void)pthread_mutex_lock(&sse->mu);
    put_locked(&sse->events, text);
    if (is_kept)
        put_locked(&sse->kept, text);
    (void)pthread_cond_broadcast(&sse->changed);
    (void)pthread_mutex_unlock(&sse->mu);
}

size_t sse_listeners(struct sse *sse)
{
    size_t count;

    (void)pthread_mutex_lock(&sse->mu);
    count = sse->count;
    (void)pthread_mutex_unlock(&sse->mu);
    return count;
}

void sse_end(struct sse *sse)
{
    (void)pthread_mutex_lock(&sse->mu);
    sse->is_over = true;
    (void)pthread_cond_broadcast(&sse->changed);
    (void)pthread_mutex_unlock(&sse->mu);
}

/* --------------------------------------------------------------- listeners */

/* The next event for it. One that is too late goes on with the oldest there is.
 */
static struct text *take_locked(struct listener *l)
{
    const struct ring *events = &l->sse->events;
    struct text *text;

    if (events->next - l->next > events->size)
        l->next = events->next - events->size;
    text = events->text[l->next++ % events->size];
    text->users++;
    return text;
}

/* Wait for the next event, or the time for a sign of life. Returns false at the
 * end. */
static bool next_text(struct listener *l)
{
    struct sse *sse = l->sse;
    uint64_t until_ms = http_now_ms() + KEEP_ALIVE_MS;
    bool is_in_time = true;
    bool is_over;

    (void)pthread_mutex_lock(&sse->mu);
    drop_locked(l->text);
    l->text = NULL;
    l->sent = 0;
    while (!sse->is_over && !l->is_ending && sse->events.next == l->next &&
           is_in_time)
        is_in_time = wait_until(&sse->changed, &sse->mu, until_ms);
    if (sse->events.next != l->next)
        l->text = take_locked(l);
    is_over = sse->is_over || l->is_ending;
    (void)pthread_mutex_unlock(&sse->mu);
    return !is_over;
}

static size_t read_listener(void *user, char *buffer, size_t capacity)
{
    struct listener *l = user;
    size_t size = l->text != NULL ? l->text->size : sizeof(keep_alive) - 1;

    if (l->sent == size) {
        if (!next_text(l))
            return 0;
        size = l->text != NULL ? l->text->size : sizeof(keep_alive) - 1;
    }
    size -= l->sent;
    if (size > capacity)
        size = capacity;
    memcpy(buffer, (l->text != NULL ? l->text->bytes : keep_alive) + l->sent,
           size);
    l->sent += size;
    return size;
}

static void close_listener(void *user)
{
    struct listener *l = user;

    (void)pthread_mutex_lock(&l->sse->mu);
    l->sse->count -= !l->is_ending;
    *l->link = l->next_one;
    if (l->next_one != NULL)
        l->next_one->link = l->link;
    drop_locked(l->text);
    (void)pthread_mutex_unlock(&l->sse->mu);
    free(l);
}

/* The greeting and what is kept as one text, the oldest first; NULL: no memory.
 */
static struct text *join_kept_locked(const struct sse *sse)
{
    const struct ring *kept = &sse->kept;
    size_t size = strlen(sse->greeting);
    struct text *all;

    for (size_t i = 0; i < kept->size; i++)
        size += kept->text[i] != NULL ? kept->text[i]->size : 0;
    all = malloc(sizeof(*all) + size);
    if (all == NULL)
        return NULL;
    *all = (struct text){.users = 1, .size = strlen(sse->greeting)};
    memcpy(all->bytes, sse->greeting, all->size);
    for (size_t i = 0; i < kept->size; i++) {
        const struct text *text = kept->text[(kept->next + i) % kept->size];
        if (text == NULL)
            continue;
        memcpy(all->bytes + all->size, text->bytes, text->size);
        all->size += text->size;
    }
    return all;
}

/* One that does not read cannot be told from one that does, as long as buffers
 * take what is sent. A page that loses its stream comes back. */
static void end_oldest_locked(struct sse *sse)
{
    struct listener *oldest = NULL;

    for (struct listener *l = sse->listeners; l != NULL; l = l->next_one)
        if (!l->is_ending)
            oldest = l;
    oldest->is_ending = true;
    sse->count--;
    (void)pthread_cond_broadcast(&sse->changed);
}

static void add_locked(struct sse *sse, struct listener *l)
{
    if (sse->count == sse->listeners_max)
        end_oldest_locked(sse);
    l->next = sse->events.next;
    l->next_one = sse->listeners;
    l->link = &sse->listeners;
    if (l->next_one != NULL)
        l->next_one->link = &l->next_one;
    sse->listeners = l;
    sse->count++;
}

static bool admit(struct sse *sse, struct listener *l)
{
    l->sse = sse;
    (void)pthread_mutex_lock(&sse->mu);
    l->text = sse->is_over ? NULL : join_kept_locked(sse);
    if (l->text != NULL)
        add_locked(sse, l);
    (void)pthread_mutex_unlock(&sse->mu);
    return l->text != NULL;
}

void sse_listen(struct sse *sse, struct http_reply *reply)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l == NULL || !admit(sse, l)) {
        free(l);
        reply->retry_after_s = RETRY_AFTER_S;
        http_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "there can be no more listeners now");
        return;
    }
    reply->status = MHD_HTTP_OK;
    reply->type = "text/event-stream";
    reply->stream = (struct http_stream){l, read_listener, close_listener};
}
