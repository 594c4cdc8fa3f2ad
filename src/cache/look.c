/*
 * Judging what GET has found. Its invariants: a value that is no longer fresh
 * is handed out only within the cache's windows, and says so by its origin; a
 * hit that is due costs its caller no round trip.
 */
#include "cache/look.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/value.h"
#include "entry/entry_value.h"

#define US_PER_MS 1000

static enum shed_freshness judge(const struct shed_freshness_rule *given,
                                 const struct shed_value *value,
                                 const struct shed_freshness_times *times,
                                 uint64_t now_ms)
{
    const struct shed_freshness_rule rule =
        shed_freshness_rule_of_kind(given, value->kind);
    uint64_t random =
        rule.refresh_after_pct > 0 ? shed_random_jitter() : UINT64_MAX;

    return shed_freshness_judge(&rule, times, now_ms, random);
}

/* outcome and reason: what the call would have ended with. */
static void tell_stale(struct shed_cache *cache, const struct shed_key *key,
                       const struct shed_value *value, enum shed_code outcome,
                       const char *reason)
{
    const struct shed_event event = {.kind = SHED_EVENT_STALE_SERVED,
                                     .outcome = outcome,
                                     .name = shed_str(cache->name),
                                     .key = shed_key_bytes(key),
                                     .duration_us = value->age_ms * US_PER_MS,
                                     .reason = reason};

    shed_count(&cache->counters.stale, 1);
    shed_events_tell(cache->client->events, &event);
}

/* A value from Redis that answers a call. */
static void note_hit(struct shed_cache *cache, const struct shed_key *key,
                     const struct shed_value *value)
{
    if (value->origin == SHED_ORIGIN_STALE)
        tell_stale(cache, key, value, SHED_OK, "it is past its ttl");
    shed_entry_value_count(&cache->counters, value);
}

static void find_aged(struct shed_look *look, const struct shed_value *value,
                      bool is_revoked)
{
    look->found = SHED_FOUND_AGED;
    look->is_revoked = is_revoked;
    shed_entry_identity(shed_value_header(value), look->aged);
}

static void refresh(struct shed_cache *cache, const struct shed_key *key,
                    const struct shed_value *value)
{
    unsigned char identity[SHED_ENTRY_IDENTITY_BYTES];

    if (shed_value_header(value) != NULL)
        shed_entry_identity(shed_value_header(value), identity);
    shed_flights_refresh(cache->flights, key,
                         shed_value_header(value) != NULL ? identity : NULL);
}

/* A row that a tag's invalidation has made a miss is gone, whatever its age:
 * it is not given out as stale either. */
static bool is_revoked(const struct shed_cache *cache,
                       const struct shed_value *value)
{
    return cache->tag_log != NULL &&
           !shed_tag_log_admits(cache->tag_log, shed_value_header(value));
}

/* Take a value over, and decide what it is worth. Returns: whether it answers
 * the call; another GET's, to fall back on, does not. */
static bool take_value(const struct shed_terms *terms, struct shed_value *value,
                       enum shed_freshness freshness, struct shed_look *out)
{
    if (freshness >= SHED_FRESHNESS_OVER) {
        shed_value_unref(value);
        return false;
    }
    out->value = value;
    out->worth = freshness == SHED_FRESHNESS_EXPIRED || terms->is_second
                     ? SHED_LOOK_OLD
                     : SHED_LOOK_ANSWERS;
    return out->worth == SHED_LOOK_ANSWERS;
}

/* Take over the value of an entry. now_ms is 0 where the server's clock is not
 * known. */
static void weigh(struct shed_cache *cache, const struct shed_key *key,
                  const struct shed_terms *terms, struct shed_value *value,
                  const struct shed_freshness_times *times, uint64_t now_ms,
                  struct shed_look *out)
{
    struct shed_freshness_rule rule = shed_terms_rule(terms, cache);
    enum shed_freshness freshness = judge(&rule, value, times, now_ms);

    if (is_revoked(cache, value)) {
        out->must_learn = !shed_tag_log_is_known(cache->tag_log);
        find_aged(out, value, true);
        shed_value_unref(value);
        return;
    }
    /* before anybody shares it */
    if (freshness == SHED_FRESHNESS_STALE ||
        freshness == SHED_FRESHNESS_EXPIRED)
        value->origin = SHED_ORIGIN_STALE;
    if (cache->local != NULL)
        shed_local_keep_entry(cache->local, key->redis, out->mark, value, times,
                              now_ms);
    /* without a clock (no right to TIME) the slow path decides */
    if (freshness >= SHED_FRESHNESS_EXPIRED && terms->max_age_ms > 0 &&
        now_ms > 0)
        find_aged(out, value, false);
    if (!take_value(terms, value, freshness, out))
        return;
    if (freshness != SHED_FRESHNESS_FRESH && !terms->only_cached)
        refresh(cache, key, value);
    note_hit(cache, key, value);
}

/* Of what is no value. */
static enum shed_look_found found_in(const struct shed_reply *reply)
{
    struct shed_entry lease;

    if (shed_entry_is_lease(reply, &lease))
        return SHED_FOUND_LEASE;
    return shed_reply_is_nil(reply) ? SHED_FOUND_NOTHING : SHED_FOUND_NO_VALUE;
}

/* A reply that is not the key's entry may be the answer to another GET: then
 * the connection is in doubt. */
static void read_entry(struct shed_cache *cache, const struct shed_key *key,
                       const struct shed_terms *terms, struct shed_reply *reply,
                       const struct shed_link_use *use, struct shed_look *out)
{
    struct shed_freshness_times times;
    uint64_t now_ms = shed_client_server_ms(cache->client, key->redis);
    enum shed_entry_state state;
    struct shed_value *value =
        shed_entry_value(key->redis, reply, now_ms, &times, &state);

    if (value != NULL) {
        weigh(cache, key, terms, value, &times, now_ms, out);
        return;
    }
    if (state == SHED_ENTRY_FOREIGN)
        out->found = (unsigned char)found_in(reply);
    shed_reply_free(reply);
    if (state == SHED_ENTRY_CORRUPT)
        shed_client_doubt(cache->client, key->redis, use);
}

/* ----------------------------------------------------------- in place of it */

static void refresh_near(struct shed_cache *cache, struct shed_bytes key,
                         const struct shed_value *value)
{
    struct shed_named_key named;

    shed_key_name(cache->name, key, &named);
    refresh(cache, &named.key, value);
}

/* By its tags. While the log is not known, a get has it read first. */
static bool is_admitted(const struct shed_cache *cache,
                        const struct shed_value *value)
{
    struct shed_tag_log *log = cache->tag_log;

    return log == NULL || (shed_tag_log_is_known(log) &&
                           shed_tag_log_admits(log, shed_value_header(value)));
}

struct shed_value *shed_look_near_by(struct shed_cache *cache,
                                     struct shed_bytes key,
                                     const struct shed_freshness_rule *rule,
                                     bool only_cached)
{
    struct shed_local_near found;
    enum shed_freshness freshness;
    bool is_due, is_taken;

    if (!shed_cache_takes_near(cache) ||
        !shed_local_begin_near(cache->local, key, shed_awake_by_ms(), &found))
        return NULL;
    freshness = shed_local_judge(&found.row, rule);
    is_due = freshness == SHED_FRESHNESS_DUE;
    is_taken = (freshness == SHED_FRESHNESS_FRESH || is_due) &&
               is_admitted(cache, found.row.value);
    shed_local_end_near(&found, is_taken);
    if (!is_taken)
        return NULL;
    if (is_due && !only_cached)
        refresh_near(cache, key, found.row.value);
    return found.row.value;
}

/* ----------------------------------------------------------- without Redis */

/* A value that differs from the one that is kept in its origin and age. */
static struct shed_value *make_stale(const struct shed_local_row *row)
{
    struct shed_value *value = shed_value_split(row->value);

    shed_value_unref(row->value);
    if (value == NULL)
        return NULL;
    value->origin = SHED_ORIGIN_STALE;
    value->age_ms = row->age_ms;
    value->fresh_ms = 0;
    return value;
}

/* Judge what is kept as if GET had found it, except that a row within its ttl
 * is not refreshed: the database has enough to do without Redis. */
static enum shed_freshness judge_local(const struct shed_cache *cache,
                                       const struct shed_terms *terms,
                                       const struct shed_local_row *row)
{
    struct shed_freshness_rule rule = shed_terms_rule(terms, cache);

    rule.refresh_after_pct = 0;
    return shed_local_judge(row, &rule);
}

/* By its own entry; a row that was loaded without Redis has none, and its tags
 * are not known. */
static bool is_local_revoked(const struct shed_cache *cache,
                             const struct shed_local_row *row)
{
    if (cache->tag_log == NULL)
        return false;
    if (shed_value_header(row->value) != NULL)
        return !shed_tag_log_admits(cache->tag_log,
                                    shed_value_header(row->value));
    return row->position < shed_tag_log_position(cache->tag_log);
}

/* Find what is kept, if the terms allow it, and judge it. Returns: false: there
 * is nothing; else *row has a reference of the caller's. */
static bool find_local(struct shed_cache *cache, const struct shed_key *key,
                       const struct shed_terms *terms,
                       struct shed_local_row *row,
                       enum shed_freshness *freshness)
{
    if (!terms->takes_local ||
        !shed_local_find(cache->local, key->redis, shed_now_ms(), row))
        return false;
    *freshness = judge_local(cache, terms, row);
    if (!is_local_revoked(cache, row))
        return true;
    /* else it would keep out what is loaded, if that has a lower version */
    shed_local_forget(cache->local, key->redis, row->value);
    shed_value_unref(row->value);
    return false;
}

static bool has_local(struct shed_cache *cache, const struct shed_key *key,
                      const struct shed_terms *terms)
{
    struct shed_local_row row;
    enum shed_freshness freshness;

    if (!find_local(cache, key, terms, &row, &freshness))
        return false;
    shed_value_unref(row.value);
    return freshness <= SHED_FRESHNESS_EXPIRED;
}

uint64_t shed_look_until_ms(struct shed_cache *cache,
                            const struct shed_key *key,
                            const struct shed_terms *terms)
{
    if (shed_terms_are_soft(terms) && has_local(cache, key, terms))
        return shed_terms_soft_deadline_ms(terms);
    return shed_terms_deadline_ms(terms);
}

static void take_local(struct shed_cache *cache, const struct shed_key *key,
                       const struct shed_terms *terms,
                       const struct shed_error *why, struct shed_look *out)
{
    struct shed_local_row row;
    struct shed_value *value;
    enum shed_freshness freshness;

    if (!find_local(cache, key, terms, &row, &freshness))
        return;
    value = make_stale(&row);
    if (value == NULL)
        return;
    out->is_local = true;
    if (!take_value(terms, value, freshness, out))
        return;
    if (freshness == SHED_FRESHNESS_STALE && !terms->only_cached)
        refresh(cache, key, value);
    shed_count(&cache->counters.local_hits, 1);
    tell_stale(cache, key, value, why->code, why->reason);
}

enum shed_code shed_look_without_redis(struct shed_cache *cache,
                                       const struct shed_key *key,
                                       const struct shed_terms *terms,
                                       const struct shed_error *why,
                                       struct shed_look *out)
{
    bool may_load = out->is_refused || /* the flight asks again first */
                    cache->options.redis_down != SHED_REDIS_DOWN_FAIL;
    bool has_time = why->code == SHED_EREDIS;
    enum shed_code code;

    if (why->code != SHED_EREDIS && why->code != SHED_ETIMEDOUT)
        return why->code;
    take_local(cache, key, terms, why, out);
    /* GET ended at the soft timeout for a local row that is gone now */
    if (!shed_look_has(out, SHED_LOOK_OLD) &&
        shed_now_ms() < shed_terms_deadline_ms(terms))
        has_time = true;
    if (shed_look_has(out, SHED_LOOK_ANSWERS) ||
        (has_time && may_load && !terms->only_cached))
        return SHED_OK;
    code = shed_look_fall_back(cache, key, out, why->code, why->reason,
                               &out->value);
    out->worth = SHED_LOOK_ANSWERS;
    return code;
}

/* ------------------------------------------------------------------ a reply */

/* What an error reply to a GET means. What is not an entry (a list, say) can be
 * replaced by the slow path. */
static enum shed_code read_error(const struct shed_reply *reply,
                                 const char *text, struct shed_look *out,
                                 struct shed_error *err)
{
    enum shed_code code = shed_reply_code(reply);

    if (shed_reply_begins(reply, "WRONGTYPE"))
        return SHED_OK;
    out->is_refused = code != SHED_EDENIED;
    return shed_fail(err, code, "Redis refused GET: %s", text);
}

enum shed_code shed_look_at(struct shed_cache *cache,
                            const struct shed_key *key,
                            const struct shed_terms *terms,
                            struct shed_reply *reply,
                            const struct shed_link_use *use,
                            struct shed_look *out, struct shed_error *err)
{
    const char *text = shed_reply_error(reply);
    enum shed_code code = SHED_OK;

    out->is_known = text == NULL && !out->is_missed;
    if (out->is_known) {
        read_entry(cache, key, terms, reply, use, out);
        return SHED_OK;
    }
    if (text != NULL)
        code = read_error(reply, text, out, err);
    shed_reply_free(reply);
    return code;
}

void shed_look_begin(struct shed_cache *cache, const struct shed_key *key,
                     struct shed_look *out)
{
    /* in this order: a write that ends in between refuses the mark */
    *out = (struct shed_look){0};
    if (cache->local != NULL)
        out->mark = shed_local_mark(cache->local, key->redis);
    out->is_missed = shed_delivery_find(cache->delivery, key->redis, NULL);
}

void shed_look_share(struct shed_cache *cache, const struct shed_key *key,
                     const struct shed_look *from, struct shed_look *out)
{
    *out = *from;
    if (out->value != NULL)
        (void)shed_value_ref(out->value);
    if (shed_look_has(out, SHED_LOOK_ANSWERS))
        note_hit(cache, key, out->value);
}

/* ---------------------------------------------------------------- one key */

enum shed_code shed_look(struct shed_cache *cache, const struct shed_key *key,
                         const struct shed_terms *terms, struct shed_look *out,
                         struct shed_error *err)
{
    struct shed_args args;
    struct shed_reply *reply = NULL;
    struct shed_link_use use;
    enum shed_code code;

    shed_look_begin(cache, key, out);
    if (out->is_missed && !shed_cache_takes_local(cache))
        return SHED_OK; /* whatever GET would find is of no use */
    args = shed_args_of("GET", NULL);
    args.is_guarded = true;
    shed_args_add(&args, key->redis.data, key->redis.size);
    code = shed_client_call(cache->client, &args, 1, &reply, &use, NULL,
                            shed_look_until_ms(cache, key, terms), err);
    if (code == SHED_OK)
        code = shed_look_at(cache, key, terms, reply, &use, out, err);
    return code == SHED_OK
               ? SHED_OK
               : shed_look_without_redis(cache, key, terms, err, out);
}

/* ----------------------------------------------------- after the slow path */

/* A value that GET has not seen was written or renewed during the call, and is
 * no older than it: unless a server that took the place of another has brought
 * it back. Its age may be reckoned too high, which costs a load. */
static bool is_new(const struct shed_terms *terms, const struct shed_look *look,
                   const struct shed_value *value)
{
    uint64_t left_ms =
        shed_left_ms(shed_terms_deadline_ms(terms), shed_now_ms());
    uint64_t call_ms = shed_left_ms(terms->timeout_ms, left_ms);

    if (look->found == SHED_FOUND_UNKNOWN ||
        (look->found == SHED_FOUND_AGED &&
         shed_entry_has_identity(shed_value_header(value), look->aged)))
        return false;
    return value->age_ms <= terms->max_age_ms + call_ms;
}

bool shed_look_is_young(const struct shed_cache *cache,
                        const struct shed_key *key,
                        const struct shed_terms *terms, struct shed_look *look,
                        const struct shed_value *value)
{
    uint64_t max_age_ms = terms->max_age_ms;

    if (shed_value_header(value) != NULL && is_revoked(cache, value)) {
        find_aged(look, value, true);
        return false;
    }
    if (max_age_ms == 0 || shed_value_header(value) == NULL ||
        is_new(terms, look, value))
        return true;
    if (look->found == SHED_FOUND_UNKNOWN &&
        shed_client_server_ms(cache->client, key->redis) > 0 &&
        value->age_ms <= max_age_ms)
        return true;
    find_aged(look, value, false);
    return false;
}

/* Of these another caller, or a later one, may hear something else; the others
 * say what the program, its operator or the row must change. */
static bool may_pass(enum shed_code code)
{
    return code == SHED_ESOURCE || code == SHED_EBUSY ||
           code == SHED_ETIMEDOUT || code == SHED_EREDIS || code == SHED_ENOMEM;
}

enum shed_code shed_look_fall_back(struct shed_cache *cache,
                                   const struct shed_key *key,
                                   struct shed_look *look, enum shed_code code,
                                   const char *reason, struct shed_value **out)
{
    struct shed_value *old = look->value;
    bool is_of_use = shed_look_has(look, SHED_LOOK_OLD);

    look->value = NULL;
    if (!is_of_use || !may_pass(code)) {
        shed_value_unref(old);
        return code;
    }
    if (look->is_local)
        shed_count(&cache->counters.local_hits, 1);
    if (old->origin == SHED_ORIGIN_STALE)
        tell_stale(cache, key, old, code, reason);
    else /* stored meanwhile */
        shed_entry_value_count(&cache->counters, old);
    *out = old;
    return SHED_OK;
}
