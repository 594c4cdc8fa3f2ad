/*
 * Judging what GET has found. Its invariants: a value that is no longer fresh
 * is handed out only within the cache's windows, and says so by its origin; a
 * hit that is due costs its caller no round trip.
 */
#include "cache/look.h"

#include "base/error.h"
#include "base/random.h"
#include "base/value.h"

/* "No such row" is neither refreshed nor handed out when it is over: a row that
 * has been inserted is seen at the end of negative_ttl_ms. */
static enum shed_freshness judge(const struct shed_cache *cache,
                                 const struct shed_value *value,
                                 const struct shed_freshness_times *times)
{
    const struct shed_freshness_rule strict = {.ttl_ms = 0};
    const struct shed_freshness_rule *rule =
        value->kind == SHED_KIND_ABSENT ? &strict : &cache->rule;
    uint64_t random =
        rule->refresh_after_ms > 0 ? shed_random_jitter() : UINT64_MAX;

    /* the clock was read for the age; where it is not known, that is 0 */
    return shed_freshness_judge(rule, times, times->written_ms + value->age_ms,
                                random);
}

static void hand_out_stale(struct shed_cache *cache, struct shed_value *value)
{
    value->origin = SHED_ORIGIN_STALE;
    shed_count(&cache->counters.stale, 1);
}

/* Take over the value of an entry whose header begins at entry. */
static void weigh(struct shed_cache *cache, const struct shed_key *key,
                  const void *entry, struct shed_value *value,
                  const struct shed_freshness_times *times,
                  struct shed_look *out)
{
    enum shed_freshness freshness = judge(cache, value, times);

    if (freshness == SHED_FRESHNESS_EXPIRED) {
        out->old = value;
        return;
    }
    if (freshness == SHED_FRESHNESS_OVER) {
        shed_value_unref(value);
        return;
    }
    if (freshness != SHED_FRESHNESS_FRESH) {
        unsigned char identity[SHED_ENTRY_IDENTITY_BYTES];
        shed_entry_identity(entry, identity);
        shed_flights_refresh(cache->flights, key, identity);
    }
    if (freshness == SHED_FRESHNESS_STALE)
        hand_out_stale(cache, value);
    shed_flight_redis_count_hit(&cache->counters, value);
    out->value = value;
}

/* A reply that is not the key's entry may be the answer to another GET: then
 * the connection is in doubt. */
static enum shed_code read_entry(struct shed_cache *cache,
                                 const struct shed_key *key,
                                 struct shed_reply *reply,
                                 const struct shed_link_use *use,
                                 struct shed_look *out, struct shed_error *err)
{
    struct shed_freshness_times times;
    enum shed_entry_state state;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);
    struct shed_value *value = shed_flight_redis_value(
        cache->client->session, shed_cache_entry_key(key), reply, &times,
        &state);

    if (value != NULL) {
        weigh(cache, key, bytes, value, &times, out);
        return SHED_OK;
    }
    shed_reply_free(reply);
    if (state == SHED_ENTRY_CORRUPT)
        shed_links_doubt(cache->client->links, use);
    return state == SHED_ENTRY_OK ? shed_fail_nomem(err, "a value") : SHED_OK;
}

enum shed_code shed_look_at(struct shed_cache *cache,
                            const struct shed_key *key,
                            struct shed_reply *reply,
                            const struct shed_link_use *use,
                            struct shed_look *out, struct shed_error *err)
{
    const char *text = shed_reply_error(reply);
    enum shed_code code = SHED_OK;

    *out = (struct shed_look){NULL, NULL};
    if (text == NULL)
        return read_entry(cache, key, reply, use, out, err);
    if (shed_reply_trouble(reply) == SHED_TROUBLE_DENIED)
        code = shed_fail(err, SHED_EDENIED, "Redis refused GET: %s", text);
    shed_reply_free(reply);
    return code;
}

/* Of these another caller, or a later one, may hear something else; the others
 * say what the program, its operator or the row must change. */
static bool may_pass(enum shed_code code)
{
    return code == SHED_ESOURCE || code == SHED_EBUSY ||
           code == SHED_ETIMEDOUT || code == SHED_EREDIS || code == SHED_ENOMEM;
}

enum shed_code shed_look_fall_back(struct shed_cache *cache,
                                   struct shed_look *look, enum shed_code code,
                                   struct shed_value **out)
{
    struct shed_value *old = look->old;

    look->old = NULL;
    if (old == NULL)
        return code;
    if (!may_pass(code)) {
        shed_value_unref(old);
        return code;
    }
    hand_out_stale(cache, old);
    *out = old;
    return SHED_OK;
}
