/* The model of a lock's server. Its invariant: it does what the scripts do,
 * step by step, and does not know who sends the commands. */
#include "support/lock_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_BYTES = 51,
    TOKEN_AT = 3,
    PROCESS_AT = 19,
    RUN_AT = 35,
    OFFER_MS = 250,
    SLACK_MS = 1000,
    OFFER_LIFE_MS = 10 * OFFER_MS,
    LOOK_MS = 100,
    US_PER_MS = 1000,
    MS_PER_S = 1000,
    HEXADECIMAL = 16
};
#define COUNTER_MS UINT64_C(86400000)

/* The arguments of the scripts of LEASE. */
enum { TOKEN, HANDLE, PROCESS, RUN, LEASE, GRACE, WAIT, LEAST };

/* ------------------------------------------------------------------ texts */

static bool is_same(const struct lock_model_text *a,
                    const struct lock_model_text *b)
{
    return a->size == b->size && memcmp(a->at, b->at, a->size) == 0;
}

/* ------------------------------------------------------------------- keys */

static uint64_t now_ms(const struct lock_model *t)
{
    return t->now_us / US_PER_MS;
}

static uint64_t us(struct lock_model *t)
{
    return t->now_us;
}

static bool has_ended(const struct lock_model *t, uint64_t ends_ms)
{
    return ends_ms != 0 && now_ms(t) > ends_ms;
}

static void end_slot(const struct lock_model *t, struct lock_model_slot *slot)
{
    if (slot->is_set && has_ended(t, slot->ends_ms))
        slot->is_set = false;
}

static void push(struct lock_model *t)
{
    t->pushed |= t->trackers;
    t->trackers = 0;
}

void lock_model_expire(struct lock_model *t)
{
    if (t->lock.is_set && has_ended(t, t->lock.ends_ms)) {
        t->lock.is_set = false;
        push(t);
    }
    end_slot(t, &t->suspicion);
    end_slot(t, &t->offer);
    end_slot(t, &t->waiters);
    if (has_ended(t, t->counter_ends_ms))
        t->has_counter = false;
    if (has_ended(t, t->queue_ends_ms))
        t->queue_count = 0;
}

void lock_model_flush(struct lock_model *t)
{
    t->lock.is_set = t->suspicion.is_set = t->offer.is_set = t->waiters.is_set =
        t->has_counter = false;
    t->queue_count = 0;
    push(t);
}

static void set(const struct lock_model *t, struct lock_model_slot *slot,
                const struct lock_model_text *value, uint64_t lease_ms)
{
    slot->is_set = true;
    slot->value = *value;
    slot->ends_ms = lease_ms > 0 ? now_ms(t) + lease_ms : 0;
}

static void set_lock(struct lock_model *t, const struct lock_model_text *value,
                     uint64_t lease_ms)
{
    set(t, &t->lock, value, lease_ms);
    push(t);
}

static bool del_lock(struct lock_model *t)
{
    bool was_set = t->lock.is_set;

    t->lock.is_set = false;
    if (was_set)
        push(t);
    return was_set;
}

static long long pttl(const struct lock_model *t,
                      const struct lock_model_slot *slot)
{
    if (!slot->is_set)
        return -2;
    return slot->ends_ms == 0 ? -1 : (long long)(slot->ends_ms - now_ms(t));
}

/* ---------------------------------------------------------------- scripts */

static bool is_record(const struct lock_model_slot *slot)
{
    return slot->is_set && slot->value.size == RECORD_BYTES &&
           memcmp(slot->value.at, "LK1", TOKEN_AT) == 0;
}

static bool is_token(const struct lock_model_slot *slot, const char *token)
{
    return is_record(slot) &&
           memcmp(slot->value.at + TOKEN_AT, token, SHED_TOKEN_BYTES) == 0;
}

static uint64_t advance(struct lock_model *t, uint64_t step, uint64_t number,
                        uint64_t clock, uint64_t *was)
{
    uint64_t ahead_ms;

    *was = (t->has_counter ? t->counter : 0) + step;
    t->has_counter = true;
    t->counter = *was > number ? *was : number;
    ahead_ms = t->counter > clock ? (t->counter - clock) / US_PER_MS : 0;
    t->counter_ends_ms = now_ms(t) + COUNTER_MS + ahead_ms;
    return t->counter;
}

static struct lock_model_text record_of(const struct lock_model_call *c)
{
    struct lock_model_text record = {.size = RECORD_BYTES, .at = "LK1"};

    memcpy(record.at + TOKEN_AT, c->arg[TOKEN].at, SHED_TOKEN_BYTES);
    memcpy(record.at + PROCESS_AT, c->arg[PROCESS].at, SHED_PROCESS_BYTES);
    memcpy(record.at + RUN_AT, c->arg[RUN].at, SHED_RUN_BYTES);
    return record;
}

static void take(struct lock_model *t, const struct lock_model_call *c,
                 struct lock_model_reply *reply)
{
    struct lock_model_text record = record_of(c);
    uint64_t was;

    set_lock(t, &record, lock_model_number(&c->arg[LEASE]));
    reply->type = LOCK_MODEL_HELD;
    reply->integer = (long long)advance(t, 1, us(t), us(t), &was);
}

static void tell_taken(struct lock_model_reply *reply, uint64_t left_ms)
{
    reply->type = LOCK_MODEL_TAKEN;
    reply->integer = (long long)left_ms;
}

/* A mark that would outlive its life begins again. */
static uint64_t age_of(struct lock_model *t, struct lock_model_slot *mark,
                       const struct lock_model_text *what, uint64_t life_ms)
{
    long long left_ms = pttl(t, mark);

    if (mark->is_set && is_same(&mark->value, what) &&
        left_ms <= (long long)life_ms)
        return life_ms - (uint64_t)left_ms;
    set(t, mark, what, life_ms);
    return 0;
}

static bool has_no_subscriber(const struct lock_model *t, const char *process)
{
    char text[SHED_PROCESS_BYTES + 1] = "";

    memcpy(text, process, SHED_PROCESS_BYTES);
    return text[0] == ' ' ||
           (t->channels >> strtoul(text, NULL, HEXADECIMAL) & 1) == 0;
}

static bool is_absent(const struct lock_model *t)
{
    return has_no_subscriber(t, t->lock.value.at + PROCESS_AT) &&
           memcmp(t->lock.value.at + RUN_AT, t->run, SHED_RUN_BYTES) == 0;
}

/* Returns: false if the process is present. */
static bool is_leaving(struct lock_model *t, uint64_t grace_ms,
                       uint64_t *left_ms)
{
    struct lock_model_text token =
        lock_model_text(t->lock.value.at + TOKEN_AT, SHED_TOKEN_BYTES);
    uint64_t age_ms;

    if (grace_ms == 0 || !is_absent(t)) {
        t->suspicion.is_set = false;
        return false;
    }
    age_ms = age_of(t, &t->suspicion, &token, 2 * grace_ms + LOOK_MS);
    *left_ms = age_ms < grace_ms ? grace_ms - age_ms : 0;
    return true;
}

/* ------------------------------------------------------------- the queue */

static struct lock_model_text member(const struct lock_model_text *token,
                                     const struct lock_model_text *process,
                                     const struct lock_model_text *wait)
{
    struct lock_model_text all = *token;

    memcpy(all.at + all.size, process->at, process->size);
    all.size += process->size;
    memcpy(all.at + all.size, wait->at, wait->size);
    all.size += wait->size;
    return all;
}

static struct lock_model_text member_of(const struct lock_model_call *c)
{
    return member(&c->arg[TOKEN], &c->arg[PROCESS], &c->arg[WAIT]);
}

static const char *process_of(const struct lock_model_text *member)
{
    return member->at + SHED_TOKEN_BYTES;
}

static uint64_t wait_of(const struct lock_model_text *member)
{
    enum { WAIT_AT = SHED_TOKEN_BYTES + SHED_PROCESS_BYTES };
    struct lock_model_text wait =
        lock_model_text(member->at + WAIT_AT, member->size - WAIT_AT);

    return lock_model_number(&wait);
}

static void remove_place(struct lock_model *t, size_t i)
{
    t->queue_count--;
    memmove(&t->queue[i], &t->queue[i + 1],
            (t->queue_count - i) * sizeof(t->queue[0]));
}

static void remove_member(struct lock_model *t,
                          const struct lock_model_text *who)
{
    for (size_t i = t->queue_count; i-- > 0;)
        if (is_same(&t->queue[i].member, who))
            remove_place(t, i);
}

/* The waiter may have joined before its process had a channel. */
static void withdraw(struct lock_model *t, const struct lock_model_call *c)
{
    struct lock_model_text blanks = lock_model_text("                ", 16);
    struct lock_model_text named = member_of(c);
    struct lock_model_text nameless =
        member(&c->arg[TOKEN], &blanks, &c->arg[WAIT]);

    remove_member(t, &named);
    remove_member(t, &nameless);
}

/* Nobody is inserted before an existing waiter, so the queue stays in order. */
static void enlist(struct lock_model *t, const struct lock_model_call *c)
{
    struct lock_model_text me = member_of(c);
    uint64_t ends_ms = now_ms(t) + lock_model_number(&c->arg[WAIT]) + SLACK_MS;
    size_t i = 0;

    while (i < t->queue_count && !is_same(&t->queue[i].member, &me))
        i++;
    if (t->queue_count == 0)
        t->queue_ends_ms = 0;
    if (i == t->queue_count) {
        assert(t->queue_count < LOCK_MODEL_QUEUE);
        t->queue[t->queue_count++] = (struct lock_model_place){me, us(t)};
    }
    if (t->queue_ends_ms < ends_ms)
        t->queue_ends_ms = ends_ms;
}

/* NULL: the queue is empty. */
static const struct lock_model_text *first(struct lock_model *t)
{
    while (t->queue_count > 0) {
        const struct lock_model_place *head = &t->queue[0];
        uint64_t life_ms = wait_of(&head->member) + SLACK_MS;
        if (us(t) < head->since_us + life_ms * US_PER_MS)
            return &head->member;
        remove_place(t, 0);
    }
    return NULL;
}

/* The absent processes of the queue, each once. */
static struct lock_model_text absent_names(const struct lock_model *t)
{
    struct lock_model_text names = {0};

    for (size_t i = 0; i < t->queue_count; i++) {
        const char *process = process_of(&t->queue[i].member);
        size_t at = 0;
        while (at < names.size &&
               memcmp(names.at + at, process, SHED_PROCESS_BYTES) != 0)
            at += SHED_PROCESS_BYTES;
        if (at < names.size || process[0] == ' ' ||
            !has_no_subscriber(t, process))
            continue;
        memcpy(names.at + names.size, process, SHED_PROCESS_BYTES);
        names.size += SHED_PROCESS_BYTES;
    }
    return names;
}

/* Returns: false if the first is present, or that cannot be known. */
static bool is_head_leaving(struct lock_model *t,
                            const struct lock_model_text *head,
                            uint64_t grace_ms, uint64_t *left_ms)
{
    const char *process = process_of(head);
    struct lock_model_text names;
    uint64_t age_ms;

    if (grace_ms == 0 || process[0] == ' ' || !has_no_subscriber(t, process)) {
        t->suspicion.is_set = false;
        return false;
    }
    names = absent_names(t);
    age_ms = age_of(t, &t->suspicion, &names, 2 * grace_ms + LOOK_MS);
    *left_ms = age_ms < grace_ms ? grace_ms - age_ms : 0;
    if (*left_ms > 0)
        return true;
    for (size_t i = t->queue_count; i-- > 0;) {
        process = process_of(&t->queue[i].member);
        if (process[0] != ' ' && has_no_subscriber(t, process))
            remove_place(t, i);
    }
    return true;
}

static bool is_our_turn(struct lock_model *t, const struct lock_model_call *c,
                        uint64_t *left_ms)
{
    const struct lock_model_text *head;

    while ((head = first(t)) != NULL &&
           memcmp(head->at, c->arg[TOKEN].at, SHED_TOKEN_BYTES) != 0) {
        struct lock_model_text other = *head;
        uint64_t gone_ms = 0;
        uint64_t age_ms = age_of(t, &t->offer, &other, OFFER_LIFE_MS);
        bool is_leaving_us = is_head_leaving(
            t, &other, lock_model_number(&c->arg[GRACE]), &gone_ms);
        if (age_ms < OFFER_MS && !(is_leaving_us && gone_ms == 0)) {
            *left_ms = OFFER_MS - age_ms;
            if (is_leaving_us && gone_ms < *left_ms)
                *left_ms = gone_ms;
            return false;
        }
        remove_member(t, &other);
    }
    return true;
}

static void take_in_turn(struct lock_model *t, const struct lock_model_call *c,
                         struct lock_model_reply *reply)
{
    uint64_t left_ms;

    if (c->is_fair && !is_our_turn(t, c, &left_ms)) {
        (void)del_lock(t); /* a dead holder's */
        enlist(t, c);
        tell_taken(reply, left_ms);
        return;
    }
    take(t, c, reply);
    if (c->is_fair)
        withdraw(t, c);
}

static void wait_for_foreign(struct lock_model *t,
                             const struct lock_model_call *c,
                             struct lock_model_reply *reply)
{
    long long left_ms = pttl(t, &t->lock);

    if (c->is_fair) {
        t->offer.is_set = false;
        enlist(t, c);
    } else {
        set(t, &t->waiters, &c->arg[HANDLE], 2 * LOOK_MS);
    }
    tell_taken(reply, left_ms < 0 ? LOOK_MS : (uint64_t)left_ms);
}

static void acquire(struct lock_model *t, const struct lock_model_call *c,
                    struct lock_model_reply *reply)
{
    uint64_t gone_ms = 0;
    uint64_t left_ms;
    bool is_going;

    if (!c->is_fair && !t->lock.is_set) {
        take(t, c, reply);
        return;
    }
    t->trackers |= UINT32_C(1) << c->client;
    if (!t->lock.is_set) {
        take_in_turn(t, c, reply);
        return;
    }
    if (!is_record(&t->lock)) {
        wait_for_foreign(t, c, reply);
        return;
    }
    if (is_token(&t->lock, c->arg[TOKEN].at)) {
        take(t, c, reply);
        return;
    }
    if (t->lock.ends_ms == 0)
        t->lock.ends_ms = now_ms(t) + lock_model_number(&c->arg[LEASE]);
    left_ms = (uint64_t)pttl(t, &t->lock);
    is_going = is_leaving(t, lock_model_number(&c->arg[GRACE]), &gone_ms);
    if (is_going && gone_ms == 0) {
        take_in_turn(t, c, reply);
        return;
    }
    if (c->is_fair)
        enlist(t, c);
    else
        set(t, &t->waiters, &c->arg[HANDLE], 2 * LOOK_MS);
    tell_taken(reply, is_going && gone_ms < left_ms ? gone_ms : left_ms);
}

static long long release(struct lock_model *t, const struct lock_model_call *c)
{
    if (c->is_fair)
        withdraw(t, c);
    t->trackers |= UINT32_C(1) << c->client;
    if (!is_token(&t->lock, c->arg[TOKEN].at))
        return 0;
    (void)del_lock(t);
    if (c->is_fair)
        return 1;
    return t->waiters.is_set && !is_same(&t->waiters.value, &c->arg[HANDLE])
               ? 2
               : 1;
}

static long long extend(struct lock_model *t, const struct lock_model_call *c)
{
    uint64_t ends_ms = t->lock.ends_ms;
    uint64_t lease_ms = lock_model_number(&c->arg[LEASE]);
    struct lock_model_text record = record_of(c);
    bool is_taken =
        !t->lock.is_set && c->arg[LEAST].at[0] == '1' && lease_ms > 0;
    bool is_ours = is_token(&t->lock, c->arg[TOKEN].at);

    t->trackers |= UINT32_C(1) << c->client;
    if (is_taken || is_ours)
        set_lock(t, &record, lease_ms);
    if (is_ours && lease_ms == 0)
        t->lock.ends_ms = ends_ms;
    return is_ours;
}

/* the old value, the new value, the lease */
static long long swap(struct lock_model *t, const struct lock_model_call *c)
{
    t->trackers |= UINT32_C(1) << c->client;
    if (!t->lock.is_set || !is_same(&t->lock.value, &c->arg[0]))
        return 0;
    if (c->arg[1].size == 0)
        (void)del_lock(t);
    else if (c->arg[2].at[0] == '0')
        set_lock(t, &c->arg[1], 0);
    else if (!is_same(&c->arg[1], &c->arg[0]) && pttl(t, &t->lock) != -1)
        return 0;
    else
        set_lock(t, &c->arg[1], lock_model_number(&c->arg[2]));
    return 1;
}

static void run_script(struct lock_model *t, const struct lock_model_call *c,
                       struct lock_model_reply *reply)
{
    uint64_t was;

    switch (c->script) {
    case SHED_SCRIPT_LOCK_ACQUIRE:
        acquire(t, c, reply);
        return;
    case SHED_SCRIPT_LOCK_RELEASE:
        reply->integer = release(t, c);
        return;
    case SHED_SCRIPT_LOCK_EXTEND:
        reply->integer = extend(t, c);
        return;
    case SHED_SCRIPT_LOCK_ADVANCE:
        (void)advance(t, 0, lock_model_number(&c->arg[LEAST]), us(t), &was);
        reply->integer = (long long)was;
        return;
    case SHED_SCRIPT_LOCK_SWAP:
        reply->integer = swap(t, c);
        return;
    default:
        abort();
    }
}

/* --------------------------------------------------------------- commands */

static void get(struct lock_model *t, struct lock_model_reply *reply)
{
    reply->type = t->lock.is_set ? LOCK_MODEL_STRING : LOCK_MODEL_NIL;
    reply->string = t->lock.value;
}

void lock_model_execute(struct lock_model *t, const struct lock_model_call *c,
                        struct lock_model_reply *reply)
{
    bool was_set;

    lock_model_expire(t);
    was_set = t->lock.is_set;
    *reply = (struct lock_model_reply){.type = LOCK_MODEL_INTEGER};
    switch (c->what) {
    case LOCK_MODEL_SETNX:
        reply->integer = !was_set;
        if (!was_set)
            set_lock(t, &c->arg[0], 0);
        break;
    case LOCK_MODEL_GETSET:
        get(t, reply);
        set_lock(t, &c->arg[0], 0);
        break;
    case LOCK_MODEL_GET:
        t->trackers |= UINT32_C(1) << c->client;
        get(t, reply);
        break;
    case LOCK_MODEL_DEL:
        reply->integer = del_lock(t);
        break;
    case LOCK_MODEL_EXPIRE: /* in ms */
        reply->integer = was_set;
        t->lock.ends_ms = now_ms(t) + lock_model_number(&c->arg[0]);
        break;
    case LOCK_MODEL_PTTL:
        t->trackers |= UINT32_C(1) << c->client;
        reply->integer = pttl(t, &t->lock);
        break;
    case LOCK_MODEL_SCRIPT:
        run_script(t, c, reply);
        break;
    }
}

bool lock_model_is_held_by(const struct lock_model *t,
                           const struct shed_lock_holder *holder)
{
    const struct lock_model_slot *slot = &t->lock;

    if (!slot->is_set || has_ended(t, slot->ends_ms))
        return false;
    return is_token(slot, (const char *)holder->token) ||
           (slot->value.size == SHED_TOKEN_HEX_BYTES &&
            memcmp(slot->value.at, holder->token_hex, slot->value.size) == 0);
}
