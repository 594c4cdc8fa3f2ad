/*
 * What writes share. Its invariants: however a write of a key ends, callers
 * that come after it do not join a flight from before it, nor get a row that
 * was kept before it; and one that Redis may have missed is undelivered before
 * its call returns.
 */
#include "cache/write.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum shed_code shed_write_check(const struct shed_cache *cache,
                                struct shed_bytes key, uint64_t timeout_ms,
                                struct shed_error *err)
{
    enum shed_code code = shed_cache_check_call(cache, timeout_ms, err);

    return code == SHED_OK ? shed_cache_check_key(key, "key", err) : code;
}

/* ---------------------------------------------------------------- batches */

enum shed_code shed_write_batch_create(struct shed_write_batch *b, size_t count,
                                       struct shed_error *err)
{
    *b = (struct shed_write_batch){
        .count = count,
        .args = malloc(count * sizeof(*b->args)),
        .replies = calloc(count, sizeof(struct shed_reply *))};
    if (b->args != NULL && b->replies != NULL)
        return SHED_OK;
    shed_write_batch_destroy(b);
    return shed_fail_nomem(err, "an invalidation");
}

void shed_write_batch_destroy(struct shed_write_batch *b)
{
    if (b->replies != NULL)
        shed_reply_free_all(b->replies, b->count);
    free(b->args);
    free(b->replies);
}

void shed_write_batch_send(struct shed_write_batch *b,
                           const struct shed_cache *cache, uint64_t deadline_ms)
{
    for (size_t i = 0; i < b->count; i++)
        b->args[i].is_guarded = true;
    /* twice is as good as once */
    if (shed_client_call(cache->client, b->args, b->count, b->replies, NULL,
                         NULL, deadline_ms, &b->all) != SHED_OK)
        memset(b->replies, 0,
               b->count * sizeof(struct shed_reply *)); /* there are none */
}

struct shed_error shed_write_judge(const struct shed_reply *reply,
                                   const struct shed_error *all,
                                   const char *what)
{
    const char *text = shed_reply_error(reply);
    struct shed_error why = *all;

    if (why.code == SHED_OK && shed_reply_integer(reply) < 0)
        (void)shed_fail(&why,
                        text != NULL ? shed_reply_code(reply) : SHED_EREDIS,
                        "Redis refused %s: %s", what,
                        text != NULL ? text : "a reply of an unknown form");
    return why;
}

struct shed_error shed_write_batch_judge(const struct shed_write_batch *b,
                                         size_t i, const char *what)
{
    return shed_write_judge(b->replies[i], &b->all, what);
}

/* ------------------------------------------------------- the end of a write */

bool shed_write_follow_up(struct shed_cache *cache, const struct shed_key *key,
                          struct shed_delivery_write write,
                          struct shed_error *why)
{
    bool is_safe = why->code != SHED_ENOMEM;

    if (why->code == SHED_OK) {
        shed_delivery_settle(cache->delivery, key->redis, key->redis_size,
                             write);
        shed_delivery_remember(cache->delivery, key, write);
    } else if (is_safe)
        is_safe = shed_delivery_add(cache->delivery, key, write.wish, why);
    shed_flights_detach(cache->flights, key);
    shed_local_drop(cache->local, shed_key_of_entry(key));
    return is_safe;
}

void shed_write_count_invalidation(struct shed_cache *cache,
                                   struct shed_bytes key, const char *reason,
                                   enum shed_code code)
{
    const struct shed_event event = {.kind = SHED_EVENT_INVALIDATED,
                                     .name = shed_str(cache->name),
                                     .key = key,
                                     .reason = reason};
    struct shed_counters *counters = &cache->counters;

    if (code != SHED_OK) {
        shed_count(&counters->invalidation_failures, 1);
        return;
    }
    shed_count(reason != NULL ? &counters->tag_invalidations
                              : &counters->invalidations,
               1);
    shed_events_tell(cache->client->events, &event);
}

void shed_write_sum_up(struct shed_write_sum *sum, const char *array, size_t i,
                       const struct shed_error *why, bool is_safe)
{
    bool is_first = sum->code == SHED_OK;

    if (why->code == SHED_OK)
        return;
    if (is_first)
        sum->code = why->code;
    if ((is_first || (sum->are_safe && !is_safe)) && array != NULL)
        (void)shed_fail(sum->err, sum->code, "%s[%zu]: %s", array, i,
                        why->reason);
    else if (is_first)
        (void)shed_fail(sum->err, sum->code, "%s", why->reason);
    sum->are_safe = sum->are_safe && is_safe;
}
