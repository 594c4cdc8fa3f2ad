/* The translation of scenarios into calls, and of replies into words; the model
 * as a store. */
#include "support/scenarios.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"
#include "support/testing.h"

#define WRITTEN_AT 40
#define UNTIL_AT 48
#define WORDS_MAX 8
#define GRACE_MS 10000
#define HOUR_MS 3600000
#define SLACK_MS 5000
#define CLOCK_MIN 1000000000000 /* ms, in 2001 */
#define MODEL_START_MS 1700000000000

static const struct model_lease_times times = {.lease_ms = 20000,
                                               .record_ms = 80000};

/* ------------------------------------------------------------------- steps */

struct words {
    char text[STEP_TEXT_BYTES];
    char *at[WORDS_MAX];
    size_t count;
};

static void split(struct words *words, const char *step)
{
    char *save = NULL;

    words->count = 0;
    snprintf(words->text, sizeof(words->text), "%s", step);
    for (char *word = strtok_r(words->text, " ", &save);
         word != NULL && words->count < WORDS_MAX;
         word = strtok_r(NULL, " ", &save))
        words->at[words->count++] = word;
}

static bool has(const struct words *words, const char *word)
{
    for (size_t i = 1; i < words->count; i++)
        if (strcmp(words->at[i], word) == 0)
            return true;
    return false;
}

static const char *word_at(const struct words *words, size_t i)
{
    ck_assert_msg(i < words->count, "%s: a word is missing", words->at[0]);
    return words->at[i];
}

static uint64_t number_at(const struct words *words, size_t i)
{
    return (uint64_t)strtoll(word_at(words, i), NULL, 10);
}

static struct model_owner owner_at(const struct words *words, size_t i)
{
    struct model_owner owner = {.process = (unsigned)number_at(words, i),
                                .flight = (uint32_t)number_at(words, i + 1),
                                .epoch = 1};

    memset(owner.version, *word_at(words, i + 2), sizeof(owner.version));
    for (size_t at = i + 3; at < words->count; at++)
        if (strncmp(words->at[at], "epoch=", 6) == 0)
            owner.epoch = (uint32_t)strtoul(words->at[at] + 6, NULL, 10);
    return owner;
}

/* The nonce that a word names, NULL if there is none. */
static const unsigned char *
nonce_of(const struct words *words, const char *prefix, unsigned char nonce[16])
{
    for (size_t i = 1; i < words->count; i++)
        if (strncmp(words->at[i], prefix, strlen(prefix)) == 0)
            return memset(nonce, words->at[i][strlen(prefix)], 16);
    return NULL;
}

/* The value that the words from i on describe: a row, its ttl, and perhaps its
 * version. */
static struct model_value value_at(const struct words *words, size_t i)
{
    const char *row = word_at(words, i);
    struct model_value value = {.is_row = strcmp(row, "-") != 0,
                                .payload = row,
                                .fresh_ms = number_at(words, i + 1),
                                .ttl_ms = number_at(words, i + 1)};

    value.size = value.is_row ? strlen(row) : 0;
    memset(value.nonce, *row, sizeof(value.nonce));
    if (value.ttl_ms > 0)
        value.ttl_ms += SCENARIO_WINDOW_MS;
    for (size_t at = i + 2; at < words->count; at++) {
        if (*words->at[at] != '@')
            continue;
        value.has_version = true;
        value.version = strtoull(words->at[at] + 1, NULL, 10);
    }
    return value;
}

static void make_acquire(struct store *store, const struct words *words,
                         struct model_call *call)
{
    struct model_owner owner = owner_at(words, 1);
    struct model_lease_times t = times;
    struct store_state now;
    struct model_bytes seen = {.size = 0};
    unsigned char due[SHED_ENTRY_IDENTITY_BYTES], nonce[16];
    bool is_due = nonce_of(words, "due=", nonce) != NULL;

    store->get(store, false, &now);
    shed_entry_identity(now.bytes.at, due); /* of when it was written */
    memcpy(due, nonce, sizeof(nonce));
    if (has(words, "earlier"))
        due[sizeof(due) - 1]--;
    if (has(words, "seen"))
        model_bytes_set(&seen, now.bytes.at, SHED_ENTRY_HEADER_BYTES);
    if (has(words, "other"))
        model_bytes_set(&seen, "other bytes", 11);
    if (has(words, "grace"))
        t.grace_ms = GRACE_MS;
    if (has(words, "patient"))
        t.grace_ms = 2 * times.lease_ms;
    model_make_acquire(call, 0, &owner, &t, &seen, is_due ? due : NULL,
                       has(words, "waited"));
    call->client = owner.process;
    call->is_tracked = has(words, "tracked");
}

/* How long a marker is there: as long as it answers everybody, or longer. */
static uint64_t kept_ms(const struct words *words)
{
    return has(words, "kept") ? SCENARIO_WINDOW_MS : number_at(words, 5);
}

static void make_publish(const struct words *words, struct model_call *call)
{
    struct model_value value = value_at(words, 2);
    unsigned char version[16], nonce[16];

    memset(version, *word_at(words, 1), sizeof(version));
    model_make_publish(call, 0, version, &value, nonce_of(words, "of=", nonce),
                       has(words, "keep")           ? "keep"
                       : has(words, "keep-and-get") ? "keep and get"
                                                    : "");
}

/* Returns false if the step calls no script. */
static bool make_call(struct store *store, const struct words *words,
                      struct model_call *call)
{
    const char *verb = words->at[0];
    bool is_refresh = has(words, "refresh");
    struct model_owner owner;
    struct model_value value;
    struct store_state now;

    if (strcmp(verb, "acquire") == 0) {
        make_acquire(store, words, call);
    } else if (strcmp(verb, "publish") == 0) {
        make_publish(words, call);
    } else if (strcmp(verb, "fail") == 0) {
        owner = owner_at(words, 1);
        model_make_fail(call, 0, is_refresh, &owner, word_at(words, 4),
                        number_at(words, 5), kept_ms(words));
    } else if (strcmp(verb, "renew") == 0) {
        owner = owner_at(words, 1);
        model_make_renew(call, 0, is_refresh, &owner, times.lease_ms);
    } else if (strcmp(verb, "put") == 0) {
        store->get(store, false, &now);
        value = value_at(words, 1);
        model_make_put(call, 0, &value,
                       now.now_ms + (has(words, "too-late") ? 0 : HOUR_MS));
    } else if (strcmp(verb, "invalidate") == 0) {
        model_make_invalidate(call, 0);
    } else if (strcmp(verb, "expire") == 0) {
        model_make_expire(call, 0, words->count > 1 ? number_at(words, 1) : 0);
    } else {
        return false;
    }
    return true;
}

static bool change_bytes(struct model_bytes *bytes, const struct words *words)
{
    const char *verb = words->at[0];

    if (strcmp(verb, "flip") == 0) {
        bytes->at[bytes->size - 1] ^= 4; /* w becomes s */
    } else if (strcmp(verb, "cut") == 0) {
        bytes->size = (size_t)number_at(words, 1);
    } else if (strcmp(verb, "age") == 0) {
        for (size_t at = WRITTEN_AT; at <= UNTIL_AT; at += 8)
            shed_entry_put_u64(bytes->at + at, model_get_u64(bytes->at + at) -
                                                   number_at(words, 1));
    } else {
        return false;
    }
    return true;
}

/* Returns false for an unknown verb. */
static bool change_state(struct store_state *state, const struct words *words)
{
    const char *verb = words->at[0];

    if (strcmp(verb, "set") == 0 || strcmp(verb, "refresh") == 0) {
        const char *text = *verb == 's' ? word_at(words, 1) : "token";
        *state = (struct store_state){.type = STORE_STRING};
        model_bytes_set(&state->bytes, text, strlen(text));
    } else if (strcmp(verb, "list") == 0) {
        *state = (struct store_state){.type = STORE_OTHER};
    } else if (strcmp(verb, "del") == 0) {
        state->type = STORE_ABSENT;
    } else if (strcmp(verb, "persist") == 0) {
        state->has_ttl = false;
    } else if (strcmp(verb, "pttl") == 0) {
        state->has_ttl = true;
        state->pttl_ms = number_at(words, 1);
    } else {
        return state->type == STORE_STRING &&
               change_bytes(&state->bytes, words);
    }
    return true;
}

/* Do what another client does. Returns false for an unknown verb. */
static bool interfere(struct store *store, const struct words *words)
{
    const char *verb = words->at[0];
    bool is_refresh = strcmp(verb, "refresh") == 0;
    struct store_state state;

    if (strcmp(verb, "full") == 0 || strcmp(verb, "room") == 0) {
        store->set_full(store, *verb == 'f');
        return true;
    }
    if (strcmp(verb, "open") == 0 || strcmp(verb, "close") == 0) {
        store->set_channel(store, (unsigned)number_at(words, 1),
                           words->count > 2 ? (unsigned)number_at(words, 2) : 1,
                           *verb == 'o');
        return true;
    }
    store->get(store, is_refresh, &state);
    if (!change_state(&state, words))
        return false;
    store->set(store, is_refresh, &state);
    return true;
}

/* ----------------------------------------------------------------- replies */

static void describe_parts(const struct model_reply *reply,
                           char out[STEP_TEXT_BYTES])
{
    const struct model_bytes *part = reply->part;
    int used = snprintf(out, STEP_TEXT_BYTES, "%.*s", (int)part[0].size,
                        (const char *)part[0].at);

    size_t usual = 2;

    if (model_bytes_are(&part[0], "LEAD")) {
        used += snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " %c %.*s",
                         part[1].at[0], (int)part[2].size,
                         (const char *)part[2].at);
        usual = 3;
    } else if (model_bytes_are(&part[0], "WAIT")) {
        usual = 3;
    } else if (reply->count >= 2) {
        used +=
            snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " %c %.*s",
                     part[1].at[5], (int)part[1].size - SHED_ENTRY_HEADER_BYTES,
                     (const char *)part[1].at + SHED_ENTRY_HEADER_BYTES);
    }
    if (reply->count > usual)
        used += snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " of %c",
                         part[usual].at[0]);
    if (model_bytes_are(&part[0], "LEAD") && reply->count > usual + 2)
        snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " @%" PRIu64,
                 model_get_u64(part[usual + 2].at));
}

static void describe(const struct model_reply *reply, char out[STEP_TEXT_BYTES])
{
    if (reply->type == MODEL_PARTS)
        describe_parts(reply, out);
    else if (reply->type == MODEL_INTEGER && reply->integer >= CLOCK_MIN)
        snprintf(out, STEP_TEXT_BYTES, "LATE");
    else if (reply->type == MODEL_INTEGER)
        snprintf(out, STEP_TEXT_BYTES, "%lld", reply->integer);
    else if (reply->type == MODEL_OOM)
        snprintf(out, STEP_TEXT_BYTES, "OOM");
    else
        snprintf(out, STEP_TEXT_BYTES, "ERROR %.*s", (int)reply->part[0].size,
                 (const char *)reply->part[0].at);
}

/* The lease is as old as its record, or as the record's life that is over. */
static void check_age(const struct store_state *now, uint64_t age_ms)
{
    uint64_t written = model_get_u64(now->bytes.at + WRITTEN_AT);
    uint64_t age = now->now_ms > written ? now->now_ms - written : 0;

    if (times.record_ms > now->pttl_ms && times.record_ms - now->pttl_ms > age)
        age = times.record_ms - now->pttl_ms;
    ck_assert_uint_le(age_ms, age);
    ck_assert_uint_le(age, age_ms + SLACK_MS);
}

/* A wait lasts as long as the lease. */
static void check_wait(struct store *store, const struct model_reply *reply)
{
    struct store_state now;
    uint64_t left;

    if (reply->type != MODEL_PARTS ||
        !model_bytes_are(&reply->part[0], "WAIT") || reply->count > 3)
        return;
    store->get(store, false, &now);
    left = model_get_u64(now.bytes.at + UNTIL_AT) - now.now_ms;
    ck_assert_int_gt(reply->integer, 0);
    ck_assert_uint_ge((uint64_t)reply->integer, left);
    ck_assert_uint_le((uint64_t)reply->integer, left + SLACK_MS);
    check_age(&now, reply->age_ms);
}

/* Who refreshes a value is told its end, which is before Redis removes it. */
static void check_left(const struct store_state *before,
                       const struct model_reply *reply)
{
    enum { LEFT = 4 };
    char text[STEP_TEXT_BYTES] = "";

    if (reply->type != MODEL_PARTS ||
        !model_bytes_are(&reply->part[0], "LEAD") || reply->count <= LEFT)
        return;
    memcpy(text, reply->part[LEFT].at, reply->part[LEFT].size);
    ck_assert_uint_le(strtoull(text, NULL, 10) + LEEWAY_MS, before->pttl_ms);
}

void scenario_step(struct store *store, const char *step,
                   char out[STEP_TEXT_BYTES])
{
    static struct model_call call;
    static struct model_reply reply;
    struct store_state before;
    struct words words;

    split(&words, step);
    if (make_call(store, &words, &call)) {
        store->get(store, false, &before);
        store->call(store, &call, &reply);
        describe(&reply, out);
        check_wait(store, &reply);
        check_left(&before, &reply);
    } else if (strcmp(words.at[0], "pushes") == 0) {
        snprintf(out, STEP_TEXT_BYTES, "%d",
                 store->take_pushes(store, (unsigned)number_at(&words, 1)));
    } else {
        ck_assert_msg(interfere(store, &words), "no such step: %s", step);
        snprintf(out, STEP_TEXT_BYTES, "OK");
    }
}

/* ------------------------------------------------------------------ states */

static bool are_near(uint64_t a, uint64_t b)
{
    int64_t apart = (int64_t)(a - b);

    return apart >= -SLACK_MS && apart <= SLACK_MS;
}

/* 0: a value that has ended */
static bool are_same_end(uint64_t a_ms, uint64_t a_now_ms, uint64_t b_ms,
                         uint64_t b_now_ms)
{
    if (a_ms == 0 || b_ms == 0)
        return a_ms == b_ms;
    return are_near(a_ms - a_now_ms, b_ms - b_now_ms);
}

static bool is_entry(const struct model_bytes *bytes)
{
    return bytes->size >= SHED_ENTRY_HEADER_BYTES &&
           memcmp(bytes->at, "\xf5shd", 4) == 0;
}

static const char *entries_difference(const struct store_state *a,
                                      const struct store_state *b)
{
    const unsigned char *x = a->bytes.at, *y = b->bytes.at;

    if (memcmp(x, y, WRITTEN_AT) != 0 ||
        memcmp(x + UNTIL_AT + 8, y + UNTIL_AT + 8,
               a->bytes.size - UNTIL_AT - 8) != 0)
        return "bytes";
    if (!are_near(model_get_u64(x + WRITTEN_AT) - a->now_ms,
                  model_get_u64(y + WRITTEN_AT) - b->now_ms))
        return "time of writing";
    if (!are_same_end(model_get_u64(x + UNTIL_AT), a->now_ms,
                      model_get_u64(y + UNTIL_AT), b->now_ms))
        return "end";
    return NULL;
}

const char *scenario_difference(const struct store_state *a,
                                const struct store_state *b)
{
    if (a->type != b->type)
        return "type";
    if (a->type == STORE_ABSENT)
        return NULL;
    if (a->has_ttl != b->has_ttl ||
        (a->has_ttl && !are_near(a->pttl_ms, b->pttl_ms)))
        return "ttl";
    if (a->type == STORE_OTHER)
        return NULL;
    if (a->bytes.size != b->bytes.size)
        return "size";
    if (is_entry(&a->bytes) && is_entry(&b->bytes))
        return entries_difference(a, b);
    return memcmp(a->bytes.at, b->bytes.at, a->bytes.size) == 0 ? NULL
                                                                : "bytes";
}

/* --------------------------------------------------------- model as a store */

static struct model *model_of(struct store *store)
{
    return &((struct model_store *)store)->model;
}

static void model_store_call(struct store *store, const struct model_call *call,
                             struct model_reply *reply)
{
    model_call(model_of(store), call, reply);
}

static struct model_slot *slot_of(struct store *store, bool is_refresh)
{
    return is_refresh ? &model_of(store)->refresh[0]
                      : &model_of(store)->slot[0];
}

static void model_store_get(struct store *store, bool is_refresh,
                            struct store_state *out)
{
    const struct model *model = model_of(store);
    const struct model_slot *slot =
        model_peek(model, slot_of(store, is_refresh));

    out->type = slot->type == MODEL_ABSENT   ? STORE_ABSENT
                : slot->type == MODEL_STRING ? STORE_STRING
                                             : STORE_OTHER;
    out->bytes = slot->bytes;
    out->has_ttl = slot->has_ttl;
    out->pttl_ms = slot->expires_ms - model->now_ms;
    out->now_ms = model->now_ms;
}

static void model_store_set(struct store *store, bool is_refresh,
                            const struct store_state *state)
{
    struct model *model = model_of(store);
    struct model_slot *slot = slot_of(store, is_refresh);

    if (state->type == STORE_ABSENT) {
        model_del(model, slot);
        return;
    }
    model_set(slot, state->bytes.at, state->bytes.size);
    if (state->type == STORE_OTHER)
        slot->type = MODEL_LIST;
    slot->has_ttl = state->has_ttl;
    slot->expires_ms = model->now_ms + state->pttl_ms;
}

static void model_store_set_full(struct store *store, bool is_full)
{
    model_of(store)->is_full = is_full;
}

static void model_store_set_channel(struct store *store, unsigned process,
                                    unsigned epoch, bool is_open)
{
    uint64_t bit = UINT64_C(1) << epoch;

    if (is_open)
        model_of(store)->channels[process] |= bit;
    else
        model_of(store)->channels[process] &= ~bit;
}

static bool model_store_take_pushes(struct store *store, unsigned client)
{
    uint64_t bit = UINT64_C(1) << client;
    bool was_pushed = false;

    for (int i = 0; i < 2; i++) {
        struct model_slot *slot = slot_of(store, i == 1);
        was_pushed |= (slot->pushed & bit) != 0;
        slot->pushed &= ~bit;
    }
    return was_pushed;
}

void model_store_init(struct model_store *store)
{
    *store = (struct model_store){
        .store = {model_store_call, model_store_get, model_store_set,
                  model_store_set_full, model_store_set_channel,
                  model_store_take_pushes},
        .model = {.now_ms = MODEL_START_MS}};
}
