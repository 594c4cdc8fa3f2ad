/*
 * The samples that an instance sends as server-sent events, read without
 * waiting, and passed on to the listeners of the stage.
 */
#ifndef HOTITEMS_STAGE_FEED_H
#define HOTITEMS_STAGE_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLE_HOT_MAX 10

/* What an instance counts; see GET /events of hotitems. */
struct sample {
    uint64_t serial; /* of the sample, since this stage started; 0: none */
    uint64_t time_ms;
    uint64_t requests, errors, queries; /* since the instance started */
    uint64_t most_waiting;   /* callers at a time, since the sample before */
    uint64_t p50_us, p99_us; /* of the last second */
    struct {
        uint64_t id, wanted;
    } hot[SAMPLE_HOT_MAX];
    size_t hots;
};

#define FEED_BYTES 8192 /* of a line, at most */

struct feed {
    int fd; /* -1: closed */
    uint64_t retry_ms;
    bool is_sent; /* the request */
    char data[FEED_BYTES];
    size_t size;
};

#define FEED_CLOSED ((struct feed){.fd = -1})

/* Connect to the instance at this port if that is due, read what is there, and
 * tell the hub. Returns whether *sample is a new one. */
struct sse;
bool feed_read(struct feed *feed, uint16_t port, uint64_t now_ms,
               struct sse *hub, struct sample *sample);
void feed_close(struct feed *feed);

#endif
