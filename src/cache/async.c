/*
 * Calls that do not block. This first form gives each call a thread of its own
 * that makes the call which blocks.
 */
#include <snowshed/async.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/get.h"
#include "cache/pending.h"

struct call {
    struct shed_pending pending;
    struct shed_post post;
    struct shed_cache *cache;
    struct shed_get_options options;
    size_t size;
    char key[];
};

static struct call *call_of(struct shed_pending *pending)
{
    return shed_container_of(pending, struct call, pending);
}

static void destroy(struct shed_pending *pending)
{
    free(call_of(pending));
}

static void tell(struct shed_post *post)
{
    shed_pending_tell(&shed_container_of(post, struct call, post)->pending);
}

static void *run(void *arg)
{
    struct call *call = arg;
    struct shed_pending *p = &call->pending;
    struct shed_error err;

    p->code = shed_get(call->cache, shed_bytes(call->key, call->size),
                       &call->options, &p->value, &err);
    if (p->code != SHED_OK && (p->why = malloc(sizeof(err))) != NULL)
        *p->why = err;
    atomic_fetch_sub(&call->cache->async_calls, 1);
    if (p->then.queue != NULL)
        shed_queue_add(p->then.queue, p);
    else
        shed_reactor_post(call->cache->client->reactor, &call->post);
    return NULL;
}

static enum shed_code start(struct call *call, struct shed_error *err)
{
    struct shed_cache *cache = call->cache;
    pthread_t thread;

    if (atomic_fetch_add(&cache->async_calls, 1) >= cache->options.async_limit)
        (void)shed_fail(err, SHED_EBUSY,
                        "%llu asynchronous calls are under way already (see "
                        "the cache's async_limit)",
                        (unsigned long long)cache->options.async_limit);
    else if (shed_thread_start(&thread, run, call) == 0)
        return pthread_detach(thread), SHED_OK;
    else
        (void)shed_fail(err, SHED_EBUSY, "no thread is available for a call");
    atomic_fetch_sub(&cache->async_calls, 1);
    free(call);
    return SHED_EBUSY;
}

enum shed_code shed_get_async(struct shed_cache *cache, struct shed_bytes key,
                              const struct shed_get_options *options,
                              const struct shed_then *then,
                              struct shed_value **near,
                              struct shed_pending **pending,
                              struct shed_error *err)
{
    const struct shed_get_options defaults = SHED_GET_OPTIONS_INIT;
    struct shed_named_key named;
    struct call *call;
    enum shed_code code = shed_pending_check(then, err);

    if (near != NULL)
        *near = NULL;
    if (pending != NULL)
        *pending = NULL;
    if (code == SHED_OK && cache == NULL)
        code = shed_fail(err, SHED_EINVAL, "cache is NULL");
    if (code == SHED_OK)
        code = shed_client_check(cache->client, err);
    if (code == SHED_OK)
        code = shed_cache_check_key(key, "key", err);
    if (code != SHED_OK)
        return code;
    shed_key_name(cache->name, key, &named);
    if (near != NULL && options == NULL)
        *near = shed_look_near(cache, &named.key, &cache->rule, false);
    if (near != NULL && *near != NULL)
        return SHED_OK;
    call = calloc(1, sizeof(*call) + key.size);
    if (call == NULL)
        return shed_fail_nomem(err, "a call");
    call->pending.then = *then;
    call->pending.destroy = destroy;
    call->post.run = tell;
    call->cache = cache;
    call->options = options != NULL ? *options : defaults;
    call->size = key.size;
    memcpy(call->key, key.data, key.size);
    if (pending != NULL)
        *pending = &call->pending;
    code = start(call, err);
    if (code != SHED_OK && pending != NULL)
        *pending = NULL;
    return code;
}

int shed_cancel(struct shed_pending *pending)
{
    (void)pending;
    return 0;
}
