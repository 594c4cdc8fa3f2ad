/* Keys that a test queues at a source, and what became of each. With a clock
 * that the test moves: the program is linked with --wrap=shed_now_us. */
#ifndef REQUESTS_H
#define REQUESTS_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "source/load.h"
#include "support/testing.h"

WRAPPED(shed_now_us);

static atomic_uint_least64_t passed_us;

uint64_t __wrap_shed_now_us(void)
{
    return __real_shed_now_us() + atomic_load(&passed_us);
}

static inline void pass_ms(uint64_t ms)
{
    atomic_fetch_add(&passed_us, ms * 1000);
}

enum { KEYS_MAX = 4096 };

static struct request {
    struct shed_job job;
    char key[24]; /* "k" and any size_t */
    atomic_uint settled;
} requests[KEYS_MAX];

static inline void note_settled(struct shed_job *job)
{
    atomic_fetch_add(&((struct request *)job)->settled, 1);
}

static inline struct request *make_request(size_t i)
{
    struct request *request = &requests[i];

    snprintf(request->key, sizeof(request->key), "k%zu", i);
    request->job = (struct shed_job){.key = request->key,
                                     .key_size = strlen(request->key),
                                     .deadline_ms = UINT64_MAX,
                                     .value_limit_bytes = 100,
                                     .settle = note_settled};
    return request;
}

/* One for which no caller waits. */
static inline struct request *make_refresh(size_t i)
{
    struct request *request = make_request(i);

    request->job.is_background = true;
    return request;
}

/* Submit one. Returns: why it is refused, if it is. */
static inline enum shed_code submit_request(struct shed_source *source,
                                            struct request *request,
                                            struct shed_error *err)
{
    unsigned settled = atomic_load(&request->settled);
    struct shed_list jobs = {NULL, NULL};

    shed_list_append(&jobs, &request->job.node);
    shed_source_submit(source, &jobs);
    if (atomic_load(&request->settled) == settled ||
        !request->job.loaded.is_refused)
        return SHED_OK;
    if (err != NULL)
        *err = request->job.loaded.error;
    return request->job.loaded.error.code;
}

static inline void expect_queued(struct shed_source *source,
                                 struct request *request)
{
    ck_assert_int_eq(submit_request(source, request, NULL), SHED_OK);
}

#endif
