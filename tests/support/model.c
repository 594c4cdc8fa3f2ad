/* The model of the store. Its one invariant: each script here follows the .lua
 * file of its name, step by step; test_scripts compares the two. */
#include "support/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry/entry.h"
#include "support/testing.h"

/* the layout of src/entry/entry.h */
enum {
    TYPE_AT = 5,
    FLAGS_AT = 7,
    VERSION_AT = 8,
    PROCESS_AT = 24,
    WRITTEN_AT = 40,
    UNTIL_AT = 48,
    FLIGHT_AT = 56,
    EPOCH_AT = 60,
    ROW_VERSION_AT = 56,
    ID_BYTES = 16
};

#define LONGEST_RECORD_MS 4200000

static const unsigned char magic[] = {0xf5, 's', 'h', 'd', 2};

/* ------------------------------------------------------------------- bytes */

void model_bytes_set(struct model_bytes *out, const void *bytes, size_t size)
{
    if (size > sizeof(out->at))
        abort(); /* a test that needs more must raise the limit */
    out->size = size;
    if (size > 0)
        memcpy(out->at, bytes, size);
}

static void append(struct model_bytes *out, const void *bytes, size_t size)
{
    if (size > sizeof(out->at) - out->size)
        abort();
    memcpy(out->at + out->size, bytes, size);
    out->size += size;
}

static void append_u64(struct model_bytes *out, uint64_t value)
{
    unsigned char bytes[8];

    shed_entry_put_u64(bytes, value);
    append(out, bytes, sizeof(bytes));
}

static void append_u32(struct model_bytes *out, uint32_t value)
{
    unsigned char bytes[4];

    shed_entry_put_u32(bytes, value);
    append(out, bytes, sizeof(bytes));
}

void model_bytes_number(struct model_bytes *out, uint64_t number)
{
    char text[24];
    int size = snprintf(text, sizeof(text), "%" PRIu64, number);

    model_bytes_set(out, text, (size_t)size);
}

bool model_bytes_are(const struct model_bytes *bytes, const char *text)
{
    return bytes->size == strlen(text) &&
           memcmp(bytes->at, text, bytes->size) == 0;
}

static bool are_equal(const struct model_bytes *a, const unsigned char *at,
                      size_t size)
{
    return a->size == size && memcmp(a->at, at, size) == 0;
}

static uint64_t number_of(const struct model_bytes *bytes)
{
    char text[24] = "";

    if (bytes->size < sizeof(text))
        memcpy(text, bytes->at, bytes->size);
    return strtoull(text, NULL, 10);
}

uint64_t model_get_u64(const unsigned char *at)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return value;
}

/* ---------------------------------------------------------------- the keys */

static void touch(struct model_slot *slot)
{
    slot->pushed |= slot->trackers;
    slot->trackers = 0;
}

static void expire(const struct model *t, struct model_slot *slot)
{
    if (slot->type == MODEL_ABSENT || !slot->has_ttl ||
        t->now_ms < slot->expires_ms)
        return;
    slot->type = MODEL_ABSENT;
    touch(slot);
}

void model_expire(struct model *t)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        expire(t, &t->slot[i]);
        expire(t, &t->refresh[i]);
    }
}

const struct model_slot *model_peek(const struct model *t,
                                    struct model_slot *slot)
{
    expire(t, slot);
    return slot;
}

void model_del(const struct model *t, struct model_slot *slot)
{
    expire(t, slot);
    if (slot->type == MODEL_ABSENT)
        return;
    slot->type = MODEL_ABSENT;
    touch(slot);
}

void model_set(struct model_slot *slot, const void *bytes, size_t size)
{
    slot->type = MODEL_STRING;
    slot->has_ttl = false;
    model_bytes_set(&slot->bytes, bytes, size);
    touch(slot);
}

void model_flush(struct model *t)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        t->slot[i].type = t->refresh[i].type = MODEL_ABSENT;
        touch(&t->slot[i]);
        touch(&t->refresh[i]);
    }
}

static void set_px(const struct model *t, struct model_slot *slot,
                   const struct model_bytes *bytes, uint64_t ttl_ms)
{
    slot->type = MODEL_STRING;
    slot->bytes = *bytes;
    slot->has_ttl = true;
    slot->expires_ms = t->now_ms + ttl_ms;
    touch(slot);
}

/* ------------------------------------------------------------- entry.lua */

/* As read() there: 'f' for a foreign value, 0 for nothing. */
static unsigned char read_key(struct model *t, const struct model_call *call,
                              struct model_slot *slot)
{
    expire(t, slot);
    /* a key that is absent, or of another type, is tracked too */
    if (call->is_tracked)
        slot->trackers |= UINT64_C(1) << call->client;
    if (slot->type == MODEL_ABSENT)
        return 0;
    if (slot->type == MODEL_LIST ||
        slot->bytes.size < SHED_ENTRY_HEADER_BYTES ||
        memcmp(slot->bytes.at, magic, sizeof(magic)) != 0)
        return 'f';
    return slot->bytes.at[TYPE_AT];
}

static void say(struct model_reply *reply, const char *word)
{
    reply->type = MODEL_PARTS;
    reply->count = 1;
    model_bytes_set(&reply->part[0], word, strlen(word));
}

static void say_integer(struct model_reply *reply, long long integer)
{
    reply->type = MODEL_INTEGER;
    reply->integer = integer;
}

static void say_entry(struct model_reply *reply, const char *word,
                      const struct model_bytes *bytes)
{
    say(reply, word);
    reply->count = 2;
    reply->part[1] = *bytes;
}

/* Whether there is memory; if not, the script ends with an error. */
static bool has_room(const struct model *t, struct model_reply *reply)
{
    if (t->is_full)
        reply->type = MODEL_OOM;
    return !t->is_full;
}

/* As store() there, with head, tail and payload from argv. */
static bool store(struct model *t, struct model_slot *slot,
                  const struct model_bytes *argv, uint64_t fresh_ms,
                  uint64_t ttl_ms, struct model_reply *reply)
{
    struct model_bytes entry = argv[0];

    if (!has_room(t, reply))
        return false;
    append_u64(&entry, t->now_ms);
    append_u64(&entry, t->now_ms + fresh_ms);
    append(&entry, argv[1].at, argv[1].size);
    append(&entry, argv[2].at, argv[2].size);
    set_px(t, slot, &entry, ttl_ms);
    return true;
}

/* As value_left() there. */
static uint64_t value_left(const struct model *t, const struct model_slot *slot)
{
    uint64_t least = t->now_ms + LEEWAY_MS + 1;

    if (model_get_u64(slot->bytes.at + UNTIL_AT) == 0 || !slot->has_ttl)
        return 0;
    return slot->expires_ms > least ? slot->expires_ms - least : 0;
}

static void keep_ended(struct model_slot *slot, const struct model_slot *lease)
{
    if (model_get_u64(slot->bytes.at + UNTIL_AT) == 0)
        return;
    slot->has_ttl = true;
    slot->expires_ms = lease->expires_ms;
    shed_entry_put_u64(slot->bytes.at + UNTIL_AT, 0);
    touch(slot);
}

/* The first key of fail and renew. */
static struct model_slot *lease_slot(struct model *t,
                                     const struct model_call *call)
{
    return call->is_refresh ? &t->refresh[call->key] : &t->slot[call->key];
}

/* Whether the lease record is of the call's process and flight. */
static bool is_held_by(const struct model_slot *slot,
                       const struct model_call *call)
{
    return are_equal(&call->argv[1], slot->bytes.at + PROCESS_AT, ID_BYTES) &&
           are_equal(&call->argv[2], slot->bytes.at + FLIGHT_AT,
                     EPOCH_AT - FLIGHT_AT);
}

/* The same, and has the call's version. */
static bool is_owned(const struct model_slot *slot,
                     const struct model_call *call)
{
    return are_equal(&call->argv[0], slot->bytes.at + VERSION_AT, ID_BYTES) &&
           is_held_by(slot, call);
}

static uint32_t epoch_of(const struct model_slot *slot)
{
    return (uint32_t)model_get_u64(slot->bytes.at + FLIGHT_AT);
}

static void set_times(struct model *t, struct model_slot *slot,
                      uint64_t length_ms)
{
    unsigned char *record = slot->bytes.at;

    shed_entry_put_u64(record + WRITTEN_AT, t->now_ms);
    shed_entry_put_u64(record + UNTIL_AT, t->now_ms + length_ms);
    touch(slot);
}

/* As renew() there; the life of the record stays. */
static void renew_lease(struct model *t, struct model_slot *slot,
                        uint64_t epoch, uint64_t length_ms)
{
    if (epoch > 0 && epoch < epoch_of(slot))
        epoch = epoch_of(slot);
    set_times(t, slot, length_ms);
    shed_entry_put_u32(slot->bytes.at + EPOCH_AT, (uint32_t)epoch);
}

/* ----------------------------------------------------------- acquire.lua */

/* The lease that an acquire wants: that of the key, or that of the refresh of
 * the value with this nonce. */
struct aim {
    struct model_slot *slot;
    struct model_slot *value;         /* NULL: none */
    const unsigned char *nonce;       /* of that value; NULL: none */
    uint64_t left_ms;                 /* it may be given out for */
    const unsigned char *row_version; /* of that value; NULL: none */
};

/* As version_of_row in entry.lua. */
static const unsigned char *row_version(const struct model_slot *slot)
{
    const unsigned char *at = slot->bytes.at;

    return (at[FLAGS_AT] & SHED_ENTRY_ROW_VERSION) != 0 ? at + ROW_VERSION_AT
                                                        : NULL;
}

static void add_nonce(struct model_reply *reply, const struct aim *aim)
{
    if (aim->nonce != NULL)
        model_bytes_set(&reply->part[reply->count++], aim->nonce, ID_BYTES);
}

static void say_lead(struct model_reply *reply, const struct aim *aim,
                     const unsigned char *version, const char *how)
{
    say(reply, "LEAD");
    reply->count = 3;
    model_bytes_set(&reply->part[1], version, ID_BYTES);
    model_bytes_set(&reply->part[2], how, strlen(how));
    add_nonce(reply, aim);
    reply->integer = (long long)aim->left_ms;
    if (aim->nonce != NULL)
        model_bytes_number(&reply->part[reply->count++], aim->left_ms);
    if (aim->row_version != NULL)
        model_bytes_set(&reply->part[reply->count++], aim->row_version, 8);
}

static void lead(struct model *t, const struct model_call *call,
                 const struct aim *aim, const unsigned char *version,
                 const char *how, struct model_reply *reply)
{
    struct model_bytes record = {0};

    if (!has_room(t, reply))
        return;
    say_lead(reply, aim, version, how);
    append(&record, magic, sizeof(magic));
    append(&record, "L\0\0", 3);
    append(&record, reply->part[1].at, ID_BYTES);
    append(&record, call->argv[1].at, call->argv[1].size);
    append_u64(&record, t->now_ms);
    append_u64(&record, t->now_ms + number_of(&call->argv[4]));
    append(&record, call->argv[2].at, call->argv[2].size);
    append_u32(&record, (uint32_t)number_of(&call->argv[3]));
    set_px(t, aim->slot, &record, number_of(&call->argv[5]));
}

static bool is_gone(const struct model *t, const struct model_slot *slot)
{
    char id[ID_BYTES + 1] = "";
    unsigned process, epoch = epoch_of(slot);

    memcpy(id, slot->bytes.at + PROCESS_AT, ID_BYTES);
    process = (unsigned)strtoull(id, NULL, 16) % MODEL_PROCESSES;
    return epoch != 0 &&
           (t->channels[process] >> epoch % MODEL_EPOCHS & 1) == 0;
}

static uint64_t end_of(const struct model_slot *slot)
{
    return model_get_u64(slot->bytes.at + UNTIL_AT);
}

static bool is_over(struct model *t, const struct model_call *call,
                    struct model_slot *slot)
{
    uint64_t grace = number_of(&call->argv[6]);

    if (!slot->has_ttl || slot->expires_ms - t->now_ms > LONGEST_RECORD_MS)
        return true;
    if (t->now_ms >= end_of(slot))
        return true;
    if (end_of(slot) <= t->now_ms + grace || !is_gone(t, slot))
        return false;
    if (grace > 0)
        set_times(t, slot, grace);
    return grace == 0;
}

/* Whether its value may be given to nobody any longer. */
static bool is_ended(const struct aim *aim)
{
    return aim->value != NULL && aim->left_ms == 0;
}

/* Its holder has just written it. */
static bool is_alive(const struct model *t, const struct model_call *call,
                     const struct model_slot *slot)
{
    uint64_t written = model_get_u64(slot->bytes.at + WRITTEN_AT);

    return t->now_ms >= written &&
           t->now_ms - written < number_of(&call->argv[6]) / 2 &&
           t->now_ms < end_of(slot);
}

static void say_wait(struct model *t, const struct model_call *call,
                     const struct aim *aim, struct model_reply *reply)
{
    const unsigned char *record = aim->slot->bytes.at;
    uint64_t written = model_get_u64(record + WRITTEN_AT);
    uint64_t until = model_get_u64(record + UNTIL_AT);
    uint64_t life = number_of(&call->argv[5]);
    uint64_t left = aim->slot->expires_ms - t->now_ms;
    uint64_t age = life > left ? life - left : 0;

    if (!is_ended(aim) && is_alive(t, call, aim->slot))
        age = 0; /* not asked */
    if (t->now_ms > written && t->now_ms - written > age)
        age = t->now_ms - written;
    if (t->now_ms < written) {
        set_times(t, aim->slot, until - written);
        until = t->now_ms + (until - written);
    }
    say(reply, "WAIT");
    reply->integer = (long long)(until - t->now_ms);
    reply->count = 3;
    model_bytes_number(&reply->part[1], (uint64_t)reply->integer);
    model_bytes_number(&reply->part[2], age);
    reply->age_ms = age;
    add_nonce(reply, aim);
}

/* With a data version of its own, in place of a value that has ended. */
static void lead_anew(struct model *t, const struct model_call *call,
                      const struct aim *aim, const char *how,
                      struct model_reply *reply)
{
    const struct aim gone = {.slot = &t->slot[call->key]};

    lead(t, call, is_ended(aim) ? &gone : aim, call->argv[0].at, how, reply);
}

static void meet_lease(struct model *t, const struct model_call *call,
                       const struct aim *aim, struct model_reply *reply)
{
    unsigned char *record = aim->slot->bytes.at;

    if (is_held_by(aim->slot, call)) {
        renew_lease(t, aim->slot, number_of(&call->argv[3]),
                    number_of(&call->argv[4]));
        aim->slot->expires_ms = t->now_ms + number_of(&call->argv[5]);
        say_lead(reply, aim, record + VERSION_AT, "mine");
    } else if (!is_ended(aim) && is_alive(t, call, aim->slot)) {
        say_wait(t, call, aim, reply);
    } else if (!is_over(t, call, aim->slot)) {
        if (is_ended(aim))
            keep_ended(aim->value, aim->slot);
        say_wait(t, call, aim, reply);
    } else if (is_ended(aim)) {
        lead_anew(t, call, aim, "takeover", reply);
    } else {
        lead(t, call, aim, record + VERSION_AT, "takeover", reply);
    }
}

static bool is_corrupt(const struct model_call *call,
                       const struct model_slot *slot)
{
    const struct model_bytes *seen = &call->argv[7];

    return seen->size > 0 && slot->bytes.size >= seen->size &&
           memcmp(slot->bytes.at, seen->at, seen->size) == 0;
}

/* Whether a value is to be refreshed. */
static bool is_due(const struct model *t, const struct model_call *call,
                   const struct model_slot *slot)
{
    unsigned char identity[SHED_ENTRY_IDENTITY_BYTES];

    shed_entry_identity(slot->bytes.at, identity);
    return t->now_ms >= model_get_u64(slot->bytes.at + UNTIL_AT) ||
           are_equal(&call->argv[8], identity, sizeof(identity));
}

static bool is_answer(const struct model *t, const struct model_call *call,
                      const struct model_slot *marker)
{
    if (t->now_ms < model_get_u64(marker->bytes.at + WRITTEN_AT))
        return false;
    return t->now_ms < model_get_u64(marker->bytes.at + UNTIL_AT) ||
           call->argv[9].size > 0;
}

static void acquire(struct model *t, const struct model_call *call,
                    struct model_reply *reply)
{
    struct model_slot *slot = &t->slot[call->key];
    struct aim aim = {.slot = slot};
    unsigned char kind;

    expire(t, slot);
    kind = read_key(t, call, slot);
    if ((kind == 'V' || kind == 'N') && !is_corrupt(call, slot)) {
        if (!is_due(t, call, slot)) {
            say_entry(reply, "HIT", &slot->bytes);
            return;
        }
        aim = (struct aim){&t->refresh[call->key], slot,
                           slot->bytes.at + VERSION_AT, value_left(t, slot),
                           row_version(slot)};
        slot = aim.slot;
        kind = read_key(t, call, slot);
    }
    if (kind == 'L' && slot->bytes.size == SHED_ENTRY_HEADER_BYTES) {
        meet_lease(t, call, &aim, reply);
    } else if (kind != 0 && kind != 'f' && is_corrupt(call, slot)) {
        lead_anew(t, call, &aim, "corrupt", reply);
    } else if (kind == 'F' && is_answer(t, call, slot)) {
        say_entry(reply, "FAILED", &slot->bytes);
        add_nonce(reply, &aim);
    } else {
        lead_anew(t, call, &aim, kind == 0 || kind == 'F' ? "new" : "foreign",
                  reply);
    }
}

/* In place of acquire: the reply is one of acquire's, or 1: there is nothing,
 * or 0: acquire has to decide. */
static void look(struct model *t, const struct model_call *call,
                 struct model_reply *reply)
{
    const struct aim aim = {.slot = &t->slot[call->key]};
    unsigned char kind = read_key(t, call, aim.slot);

    if ((kind == 'V' || kind == 'N') && !is_due(t, call, aim.slot))
        say_entry(reply, "HIT", &aim.slot->bytes);
    else if (kind == 'L' && is_alive(t, call, aim.slot))
        say_wait(t, call, &aim, reply);
    else
        say_integer(reply, aim.slot->type == MODEL_ABSENT);
}

static void claim(struct model *t, const struct model_call *call,
                  struct model_reply *reply)
{
    const struct aim aim = {.slot = &t->slot[call->key]};

    expire(t, aim.slot);
    if (aim.slot->type == MODEL_ABSENT)
        lead(t, call, &aim, call->argv[0].at, "new", reply);
    else
        say_integer(reply, 0);
}

static void try_acquire(struct model *t, const struct model_call *call,
                        struct model_reply *reply)
{
    if (call->first == SHED_FIRST_GET || call->first == SHED_FIRST_BOTH)
        look(t, call, reply);
    else if (call->first == SHED_FIRST_SET)
        claim(t, call, reply);
    else
        acquire(t, call, reply);
}

/* ----------------------------------------------------------- publish.lua */

static bool has_version(struct model *t, const struct model_call *call,
                        struct model_slot *slot)
{
    return read_key(t, call, slot) == 'L' &&
           are_equal(&call->argv[0], slot->bytes.at + VERSION_AT, ID_BYTES);
}

/* Returns: whether the key holds something that may not be replaced. */
static bool is_refused(struct model *t, const struct model_call *call,
                       struct model_reply *reply)
{
    struct model_slot *slot = &t->slot[call->key];
    unsigned char kind = read_key(t, call, slot);
    bool is_value = kind == 'V' || kind == 'N';
    bool is_refresh = call->argv[6].size > 0;

    say(reply, "INVALIDATED");
    if (is_value &&
        (!is_refresh ||
         !are_equal(&call->argv[6], slot->bytes.at + VERSION_AT, ID_BYTES))) {
        if (t->now_ms < model_get_u64(slot->bytes.at + UNTIL_AT))
            say_entry(reply, "SUPERSEDED", &slot->bytes);
        return true;
    }
    if (is_refresh)
        return !is_value || !has_version(t, call, &t->refresh[call->key]);
    return !has_version(t, call, slot);
}

static void keep(struct model *t, struct model_slot *slot, uint64_t fresh_ms,
                 uint64_t ttl_ms)
{
    slot->has_ttl = true;
    slot->expires_ms = t->now_ms + ttl_ms;
    set_times(t, slot, fresh_ms);
}

static void publish(struct model *t, const struct model_call *call,
                    struct model_reply *reply)
{
    struct model_slot *slot = &t->slot[call->key];
    uint64_t fresh_ms = number_of(&call->argv[4]);
    uint64_t ttl_ms = number_of(&call->argv[5]);
    bool is_kept = call->argv[7].size > 0;

    if (!is_refused(t, call, reply)) {
        if (is_kept)
            keep(t, slot, fresh_ms, ttl_ms);
        else if (ttl_ms > 0 &&
                 !store(t, slot, call->argv + 1, fresh_ms, ttl_ms, reply))
            return;
        say(reply, "STORED");
        if (model_bytes_are(&call->argv[7], "keep and get"))
            say_entry(reply, "KEPT", &slot->bytes);
        if (ttl_ms == 0)
            model_del(t, &t->slot[call->key]);
    }
    if (call->argv[6].size > 0 && has_version(t, call, &t->refresh[call->key]))
        model_del(t, &t->refresh[call->key]);
}

/* ------------------------------------------------------ the other scripts */

static void fail_lease(struct model *t, const struct model_call *call,
                       struct model_reply *reply)
{
    struct model_slot *slot = lease_slot(t, call);
    uint64_t ttl_ms = number_of(&call->argv[7]);

    say_integer(reply, 0);
    if (read_key(t, call, slot) != 'L' || !is_owned(slot, call))
        return;
    say_integer(reply, 1);
    if (ttl_ms == 0)
        model_del(t, slot);
    else
        store(t, slot, call->argv + 3, number_of(&call->argv[6]), ttl_ms,
              reply);
}

static void keep_for_refresh(struct model *t, const struct model_call *call)
{
    struct model_slot *value = &t->slot[call->key];
    unsigned char kind;

    expire(t, value);
    if (value->type == MODEL_ABSENT ||
        (value->has_ttl && value->expires_ms > t->now_ms + LEEWAY_MS + 1))
        return;
    kind = read_key(t, call, value);
    if (kind == 'V' || kind == 'N')
        keep_ended(value, &t->refresh[call->key]);
}

static void renew(struct model *t, const struct model_call *call,
                  struct model_reply *reply)
{
    struct model_slot *slot = lease_slot(t, call);

    say_integer(reply, 0);
    if (read_key(t, call, slot) != 'L' || !is_owned(slot, call))
        return;
    renew_lease(t, slot, number_of(&call->argv[4]), number_of(&call->argv[3]));
    say_integer(reply, 1);
    if (call->is_refresh)
        keep_for_refresh(t, call);
}

static void invalidate(struct model *t, const struct model_call *call,
                       struct model_reply *reply)
{
    model_expire(t);
    say_integer(reply, (t->slot[call->key].type != MODEL_ABSENT) +
                           (t->refresh[call->key].type != MODEL_ABSENT));
    model_del(t, &t->slot[call->key]);
    model_del(t, &t->refresh[call->key]);
}

static void expire_value(struct model *t, const struct model_call *call,
                         struct model_reply *reply)
{
    struct model_slot *slot = &t->slot[call->key];
    uint64_t until_ms = t->now_ms + number_of(&call->argv[0]);

    say_integer(reply, 0);
    model_del(t, &t->refresh[call->key]);
    if (read_key(t, call, slot) != 'V' ||
        model_get_u64(slot->bytes.at + UNTIL_AT) == 0) {
        model_del(t, slot);
        return;
    }
    say_integer(reply, 1);
    if (until_ms >= model_get_u64(slot->bytes.at + UNTIL_AT))
        return;
    shed_entry_put_u64(slot->bytes.at + UNTIL_AT, until_ms);
    touch(slot);
}

/* Returns: whether what is there stays, or is removed, for its row version. */
static bool is_put_refused(struct model *t, const struct model_call *call,
                           struct model_reply *reply)
{
    const struct model_bytes *version = &call->argv[5];
    struct model_slot *slot = &t->slot[call->key];
    const unsigned char *there;
    unsigned char kind;

    if (version->size == 0)
        return false;
    kind = read_key(t, call, slot);
    if (kind != 'V' && kind != 'N')
        return false;
    there = row_version(slot);
    if (there != NULL) {
        say_integer(reply, 2);
        return memcmp(version->at, there, 8) < 0;
    }
    say_integer(reply, 3);
    model_del(t, &t->slot[call->key]);
    model_del(t, &t->refresh[call->key]);
    return true;
}

static void put(struct model *t, const struct model_call *call,
                struct model_reply *reply)
{
    say_integer(reply, (long long)t->now_ms);
    if (t->now_ms >= number_of(&call->argv[7]) ||
        is_put_refused(t, call, reply))
        return;
    say_integer(reply, 1);
    if (!store(t, &t->slot[call->key], call->argv, number_of(&call->argv[3]),
               number_of(&call->argv[4]), reply))
        model_del(t, &t->slot[call->key]);
    model_del(t, &t->refresh[call->key]);
}

void model_call(struct model *t, const struct model_call *call,
                struct model_reply *reply)
{
    static void (*const scripts[])(struct model *, const struct model_call *,
                                   struct model_reply *) = {
        [SHED_SCRIPT_ACQUIRE] = try_acquire,
        [SHED_SCRIPT_PUBLISH] = publish,
        [SHED_SCRIPT_FAIL] = fail_lease,
        [SHED_SCRIPT_RENEW] = renew,
        [SHED_SCRIPT_INVALIDATE] = invalidate,
        [SHED_SCRIPT_EXPIRE] = expire_value,
        [SHED_SCRIPT_PUT] = put,
    };

    reply->count = 0;
    scripts[call->script](t, call, reply);
}

/* --------------------------------------------------------------- arguments */

static struct model_bytes *add(struct model_call *call)
{
    return &call->argv[call->argc++];
}

struct shed_bytes model_key(size_t key)
{
    static const char names[MODEL_KEYS + 1] = "01234567";

    return (struct shed_bytes){&names[key], 1};
}

struct shed_bytes model_refresh_key(size_t key)
{
    static const char names[2 * MODEL_KEYS + 1] = "0r1r2r3r4r5r6r7r";

    return (struct shed_bytes){&names[2 * key], 2};
}

static void begin(struct model_call *call, enum shed_script script, size_t key)
{
    call->script = script;
    call->key = key;
    call->is_refresh = false;
    call->client = 0;
    call->is_tracked = false;
    call->argc = 0;
}

static void add_owner(struct model_call *call, const struct model_owner *owner)
{
    char id[ID_BYTES + 1];
    unsigned char flight[4];

    snprintf(id, sizeof(id), "%016x", owner->process);
    shed_entry_put_u32(flight, owner->flight);
    model_bytes_set(add(call), owner->version, ID_BYTES);
    model_bytes_set(add(call), id, ID_BYTES);
    model_bytes_set(add(call), flight, sizeof(flight));
}

static void add_entry(struct model_call *call, const struct shed_entry *entry,
                      const unsigned char *nonce)
{
    struct shed_entry_parts parts;

    shed_entry_encode(call->is_refresh ? model_refresh_key(call->key)
                                       : model_key(call->key),
                      entry, nonce, &parts);
    model_bytes_set(add(call), parts.head, sizeof(parts.head));
    model_bytes_set(add(call), parts.tail, sizeof(parts.tail));
    model_bytes_set(add(call), entry->payload, entry->payload_size);
}

static void add_value(struct model_call *call, const struct model_value *value)
{
    const struct shed_entry entry = {
        .type = value->is_row ? SHED_ENTRY_VALUE : SHED_ENTRY_NEGATIVE,
        .flags = value->has_version ? SHED_ENTRY_ROW_VERSION : 0,
        .row_version = value->version,
        .payload = value->payload,
        .payload_size = value->size};

    add_entry(call, &entry, value->nonce);
    model_bytes_number(add(call), value->fresh_ms);
    /* as the client does for a value that can be refreshed */
    model_bytes_number(add(call),
                       value->ttl_ms > 0 ? value->ttl_ms + LEEWAY_MS : 0);
}

static void add_or_nothing(struct model_call *call, const unsigned char *bytes,
                           size_t size)
{
    model_bytes_set(add(call), bytes, bytes != NULL ? size : 0);
}

void model_make_acquire(struct model_call *call, size_t key,
                        const struct model_owner *owner,
                        const struct model_lease_times *times,
                        const struct model_bytes *seen,
                        const unsigned char *due, bool has_waited)
{
    begin(call, SHED_SCRIPT_ACQUIRE, key);
    call->first = SHED_FIRST_NOTHING;
    add_owner(call, owner);
    model_bytes_number(add(call), owner->epoch);
    model_bytes_number(add(call), times->lease_ms);
    model_bytes_number(add(call), times->record_ms);
    model_bytes_number(add(call), times->grace_ms);
    if (seen != NULL)
        *add(call) = *seen;
    else
        model_bytes_set(add(call), "", 0);
    add_or_nothing(call, due, SHED_ENTRY_IDENTITY_BYTES);
    model_bytes_set(add(call), "waited", has_waited ? strlen("waited") : 0);
}

void model_make_publish(struct model_call *call, size_t key,
                        const unsigned char *version,
                        const struct model_value *value,
                        const unsigned char *replaced, const char *keep)
{
    begin(call, SHED_SCRIPT_PUBLISH, key);
    model_bytes_set(add(call), version, ID_BYTES);
    add_value(call, value);
    add_or_nothing(call, replaced, ID_BYTES);
    model_bytes_set(add(call), keep, strlen(keep));
    model_bytes_set(add(call), "", 0); /* tags */
}

void model_make_fail(struct model_call *call, size_t key, bool is_refresh,
                     const struct model_owner *owner, const char *reason,
                     uint64_t ttl_ms, uint64_t kept_ms)
{
    static const unsigned char nonce[] = "nnnnnnnnnnnnnnnn";
    const struct shed_entry entry = {.type = SHED_ENTRY_FAILURE,
                                     .payload = (const unsigned char *)reason,
                                     .payload_size = strlen(reason)};

    begin(call, SHED_SCRIPT_FAIL, key);
    call->is_refresh = is_refresh;
    add_owner(call, owner);
    add_entry(call, &entry, nonce);
    model_bytes_number(add(call), ttl_ms);
    model_bytes_number(add(call), kept_ms);
}

void model_make_renew(struct model_call *call, size_t key, bool is_refresh,
                      const struct model_owner *owner, uint64_t lease_ms)
{
    begin(call, SHED_SCRIPT_RENEW, key);
    call->is_refresh = is_refresh;
    add_owner(call, owner);
    model_bytes_number(add(call), lease_ms);
    model_bytes_number(add(call), owner->epoch);
}

void model_make_invalidate(struct model_call *call, size_t key)
{
    begin(call, SHED_SCRIPT_INVALIDATE, key);
}

void model_make_expire(struct model_call *call, size_t key, uint64_t in_ms)
{
    begin(call, SHED_SCRIPT_EXPIRE, key);
    model_bytes_number(add(call), in_ms);
}

void model_make_put(struct model_call *call, size_t key,
                    const struct model_value *value, uint64_t until_ms)
{
    unsigned char version[8];

    begin(call, SHED_SCRIPT_PUT, key);
    add_value(call, value);
    shed_entry_put_u64(version, value->version);
    model_bytes_set(add(call), version,
                    value->has_version ? sizeof(version) : 0);
    model_bytes_set(add(call), "", 0); /* tags */
    model_bytes_number(add(call), until_ms);
}
