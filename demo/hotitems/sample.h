/*
 * What an instance reports over GET /sample: its counters, now and so far. The
 * main thread takes a sample every SAMPLE_MS; requests wait for the next one.
 */
#ifndef HOTITEMS_SAMPLE_H
#define HOTITEMS_SAMPLE_H

#include <stdint.h>

#include "http.h"

struct service;

struct sampler;

#define SAMPLE_MS 250

/* NULL: out of memory. */
struct sampler *sample_new(void);
void sample_free(struct sampler *sampler);

void sample_take(struct sampler *sampler, struct service *s);

/* Answer with the newest sample, once that is newer than after_ms, or after a
 * while. */
void sample_reply(struct sampler *sampler, uint64_t after_ms,
                  struct http_reply *reply);

#endif
