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

bool shed_write_follow_up(struct shed_cache *cache, const struct shed_key *key,
                          struct shed_delivery_write write,
                          struct shed_error *why)
{
    bool is_safe = shed_delivery_follow_up(cache->delivery, key, write, why);

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

/* ------------------------------------------------------------ many of them */

/* How a sweep ends. */
struct sum {
    enum shed_code code;
    bool are_safe; /* no failed write was dropped */
};

/* Add the end of write i, which why tells. */
static void sum_up(const struct shed_sweep *s, struct sum *sum, size_t i,
                   const struct shed_error *why, bool is_safe,
                   struct shed_error *err)
{
    bool is_first = sum->code == SHED_OK;

    if (why->code == SHED_OK)
        return;
    if (is_first)
        sum->code = why->code;
    if (is_first && s->array == NULL)
        (void)shed_fail(err, sum->code, "%s", why->reason);
    else if (is_first || (sum->are_safe && !is_safe))
        (void)shed_fail(err, sum->code, "%s[%zu]: %s", s->array, i,
                        why->reason);
    sum->are_safe = sum->are_safe && is_safe;
}

/* Returns: how the calls as a whole have ended. */
static struct shed_error send_all(struct shed_sweep *s, struct shed_args *args,
                                  struct shed_reply **replies,
                                  uint64_t timeout_ms)
{
    struct shed_error all = {SHED_OK, ""};

    for (size_t i = 0; i < s->count; i++) {
        s->begin(s, i, &args[i]);
        args[i].is_guarded = true;
    }
    /* twice is as good as once */
    if (shed_client_call(s->cache->client, args, s->count, replies, NULL, NULL,
                         shed_cache_deadline_ms(s->cache, timeout_ms),
                         &all) != SHED_OK)
        memset(replies, 0, s->count * sizeof(struct shed_reply *)); /* none */
    return all;
}

enum shed_code shed_sweep_run(struct shed_sweep *s, uint64_t timeout_ms,
                              struct shed_error *err)
{
    struct shed_args *args = malloc(s->count * sizeof(*args));
    struct shed_reply **replies = calloc(s->count, sizeof(struct shed_reply *));
    struct sum sum = {SHED_OK, true};
    struct shed_error all;

    if (args == NULL || replies == NULL) {
        free(args);
        free(replies);
        return shed_fail_nomem(err, "an invalidation");
    }
    all = send_all(s, args, replies, timeout_ms);
    for (size_t i = 0; i < s->count; i++) {
        struct shed_error why = shed_write_judge(replies[i], &all, s->what);
        bool is_safe = s->follow_up(s, i, replies[i], &why);
        sum_up(s, &sum, i, &why, is_safe, err);
    }
    shed_count_code(&s->cache->counters, sum.code);
    shed_reply_free_all(replies, s->count);
    free(args);
    free(replies);
    return sum.code;
}
