/* See awaited.h. */
#include "support/awaited.h"

#include <stdio.h>
#include <string.h>

#include "support/testing.h"

void note_ending(void *user, enum shed_code code, struct shed_value *value,
                 const struct shed_error *reason)
{
    struct ending *e = user;

    e->code = code;
    e->value = value;
    snprintf(e->reason, sizeof(e->reason), "%s",
             reason != NULL ? reason->reason : "");
    atomic_fetch_add(&e->calls, 1);
}

/* code: what the call has returned. */
static enum shed_code await(struct ending *e, enum shed_code code,
                            struct shed_error *err)
{
    if (code != SHED_OK)
        return code; /* err has it */
    while (atomic_load(&e->calls) == 0)
        usleep(50);
    if (e->code != SHED_OK && err != NULL) {
        err->code = e->code;
        memcpy(err->reason, e->reason, sizeof(err->reason));
    }
    return e->code;
}

enum shed_code awaited_get(struct shed_cache *cache, struct shed_bytes key,
                           const struct shed_get_options *options,
                           struct shed_value **value, struct shed_error *err)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};
    enum shed_code code = await(
        &e, shed_get_async(cache, key, options, &then, NULL, NULL, err), err);

    *value = e.value;
    return code;
}

enum shed_code awaited_get_many(struct shed_cache *cache,
                                struct shed_item *items, size_t count,
                                const struct shed_get_options *options,
                                struct shed_error *err)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};

    return await(
        &e, shed_get_many_async(cache, items, count, options, &then, NULL, err),
        err);
}

enum shed_code awaited_put(struct shed_cache *cache, struct shed_bytes key,
                           struct shed_bytes row,
                           const struct shed_put_options *options,
                           struct shed_error *err)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};

    return await(&e, shed_put_async(cache, key, row, options, &then, NULL, err),
                 err);
}

enum shed_code awaited_invalidate(struct shed_cache *cache,
                                  struct shed_bytes key, uint64_t timeout_ms,
                                  struct shed_error *err)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};

    return await(
        &e, shed_invalidate_async(cache, key, timeout_ms, &then, NULL, err),
        err);
}
