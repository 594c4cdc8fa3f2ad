/* A client of server-sent events, of one kind: lines of "data: {...}". */
#include "stage_feed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stage_hub.h"

#define RETRY_MS 250

void feed_close(struct feed *feed)
{
    if (feed->fd != -1)
        (void)close(feed->fd);
    feed->fd = -1;
    feed->size = 0;
    feed->is_sent = false;
}

/* Loopback: it connects, or fails, at once or nearly so. */
static void connect_feed(struct feed *feed, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    feed->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (feed->fd != -1 &&
        connect(feed->fd, (struct sockaddr *)&address, sizeof(address)) != 0 &&
        errno != EINPROGRESS)
        feed_close(feed);
}

/* HTTP/1.0: the events come as they are, up to the end of the connection. */
static bool send_request(struct feed *feed)
{
    static const char request[] = "GET /events HTTP/1.0\r\n"
                                  "Host: 127.0.0.1\r\n\r\n";
    ssize_t sent = send(feed->fd, request, sizeof(request) - 1, MSG_NOSIGNAL);

    feed->is_sent = sent == (ssize_t)sizeof(request) - 1;
    return feed->is_sent || errno == EAGAIN || errno == ENOTCONN;
}

static uint64_t number(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));

    return value > 0 ? (uint64_t)value : 0;
}

static void parse_hot(const json_t *list, struct sample *sample)
{
    size_t count = json_array_size(list);

    sample->hots = count < SAMPLE_HOT_MAX ? count : SAMPLE_HOT_MAX;
    for (size_t i = 0; i < sample->hots; i++) {
        const json_t *row = json_array_get(list, i);
        sample->hot[i].id = number(row, "id");
        sample->hot[i].wanted = number(row, "wanted");
    }
}

static bool parse(const char *text, size_t size, struct sse *hub,
                  struct sample *sample)
{
    json_t *object = json_loadb(text, size, 0, NULL);

    if (!json_is_object(object)) {
        json_decref(object);
        return false;
    }
    sample->serial++;
    sample->time_ms = number(object, "time_ms");
    sample->requests = number(object, "requests");
    sample->errors = number(object, "errors");
    sample->queries = number(object, "queries");
    sample->most_waiting = number(object, "most_waiting");
    sample->p50_us = number(object, "p50_us");
    sample->p99_us = number(object, "p99_us");
    parse_hot(json_object_get(object, "hot"), sample);
    hub_tell(hub, "sample", object);
    return true;
}

/* Take whole lines out of the buffer. */
static bool take_lines(struct feed *feed, struct sse *hub,
                       struct sample *sample)
{
    static const char name[] = "data: ";
    const size_t name_size = sizeof(name) - 1;
    char *begin = feed->data, *end;
    bool is_new = false;

    while ((end = memchr(begin, '\n',
                         feed->size - (size_t)(begin - feed->data))) != NULL) {
        size_t size = (size_t)(end - begin);
        if (size > name_size && memcmp(begin, name, name_size) == 0)
            is_new |= parse(begin + name_size, size - name_size, hub, sample);
        begin = end + 1;
    }
    feed->size -= (size_t)(begin - feed->data);
    memmove(feed->data, begin, feed->size);
    return is_new;
}

bool feed_read(struct feed *feed, uint16_t port, uint64_t now_ms,
               struct sse *hub, struct sample *sample)
{
    bool is_new = false;
    ssize_t got;

    if (feed->fd == -1 && now_ms >= feed->retry_ms) {
        feed->retry_ms = now_ms + RETRY_MS;
        connect_feed(feed, port);
    }
    if (feed->fd == -1)
        return false;
    if (!feed->is_sent && !send_request(feed)) {
        feed_close(feed);
        return false;
    }
    while ((got = recv(feed->fd, feed->data + feed->size,
                       sizeof(feed->data) - feed->size, MSG_DONTWAIT)) > 0) {
        feed->size += (size_t)got;
        is_new |= take_lines(feed, hub, sample);
        if (feed->size == sizeof(feed->data))
            break; /* no line of ours is that long */
    }
    if (got == 0 || feed->size == sizeof(feed->data) ||
        (got == -1 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN))
        feed_close(feed);
    return is_new;
}
