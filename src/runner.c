/*
 * Flights under way. Its invariants: a flight's machine is stepped on the
 * reactor thread only; a flight is freed only when it is over, out of the
 * table, and nothing that was sent for it is still to come back.
 */
#include "runner.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "entry.h"
#include "error.h"
#include "flight.h"
#include "freshness.h"
#include "random.h"
#include "value.h"

#define US_PER_MS 1000
/* A lease record outlives the longest load, by as much as it takes to publish
 * what was loaded. */
#define RECORD_MARGIN_MS 5000
/* Room for the decimal digits of 64 bits. */
#define DIGITS 24

struct shed_runner {
    /* set at creation */
    struct shed_airport *airport;
    struct shed_source *source;
    struct shed_cache_options options;
    struct shed_counters *counters;
    struct shed_flight_policy policy;
    char lease_ms[DIGITS], record_ms[DIGITS], grace_ms[DIGITS];
    struct shed_timer *wake; /* wakes the source after a turn of the loop */

    pthread_mutex_t mu;
    pthread_cond_t idle;
    /* under mu */
    size_t runs;
};

/* One flight, its callers, and what it is made of. */
struct run {
    struct shed_seats seats; /* first: a run is found by its seats */
    struct shed_runner *runner;
    struct shed_post post;   /* its start, or its load's end */
    struct shed_key key;     /* redis points behind this struct */
    unsigned char number[8]; /* of the flight, as the scripts want it */
    /* reactor thread only */
    struct shed_flight flight;
    struct shed_timer *timer;
    struct shed_call call;       /* acquire, publish, fail */
    struct shed_call renew_call; /* renew */
    uint64_t call_request, renew_request, load_request;
    enum shed_flight_send sent;                      /* what call is */
    unsigned char version[SHED_ENTRY_VERSION_BYTES]; /* of our lease */
    unsigned char seen[SHED_ENTRY_HEADER_BYTES];     /* of a corrupt entry */
    size_t seen_size;
    struct shed_value *entry; /* of the event: what stood in Redis */
    struct shed_error error;  /* of the event */
    bool is_loading;
    /* handed over with post */
    struct shed_job job;
    struct shed_loaded loaded;
};

static void drive(struct run *run, struct shed_flight_event event);

/* ----------------------------------------------------------------- values */

static uint64_t age_ms(const struct shed_airport *airport, uint64_t written_ms)
{
    uint64_t server_ms = shed_push_server_ms(airport->push);

    return shed_left_ms(server_ms, written_ms);
}

struct shed_value *shed_runner_value(struct shed_airport *airport,
                                     struct shed_counters *counters,
                                     struct shed_reply *reply,
                                     enum shed_entry_state *state)
{
    struct shed_entry entry;
    struct shed_value *value;
    enum shed_kind kind = SHED_ROW;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    *state = bytes != NULL ? shed_entry_decode(bytes, size, &entry)
                           : SHED_ENTRY_FOREIGN;
    if (*state != SHED_ENTRY_OK)
        return NULL;
    if (entry.type == SHED_ENTRY_NEGATIVE)
        kind = SHED_ABSENT;
    else if (entry.type != SHED_ENTRY_VALUE) {
        *state = SHED_ENTRY_FOREIGN; /* a lease or a marker is no value */
        return NULL;
    } else if (entry.flags & SHED_ENTRY_NULL)
        kind = SHED_NULL;
    value = shed_value_wrap(kind, SHED_FROM_REDIS, entry.payload,
                            entry.payload_size, reply, shed_reply_free);
    if (value == NULL)
        return NULL;
    value->age_ms = age_ms(airport, entry.written_ms);
    shed_count(kind == SHED_ABSENT ? &counters->negative_hits : &counters->hits,
               1);
    return value;
}

/* ---------------------------------------------------------------- answers */

static void give(struct shed_caller *caller, struct shed_value *value,
                 const struct shed_error *error)
{
    if (value != NULL) {
        caller->code = SHED_OK;
        caller->value = shed_value_ref(value);
    } else {
        caller->code = error->code;
        caller->error = *error;
    }
    shed_gate_open(caller->gate, 1); /* caller is gone now */
}

static void answer(struct run *run, enum shed_flight_answer what, uint64_t upto)
{
    struct shed_value *value = NULL;
    struct shed_caller *caller, *next;

    if (what == SHED_ANSWER_ENTRY)
        value = run->entry;
    else if (what != SHED_ANSWER_FAILURE)
        value = run->loaded.value;
    if (what == SHED_ANSWER_LOADED)
        value->origin = SHED_FROM_LOAD;
    caller = shed_table_take(run->runner->airport->table, &run->seats, upto);
    for (; caller != NULL; caller = next) {
        next = caller->next;
        give(caller, value, &run->error);
    }
}

/* -------------------------------------------------------- what comes back */

static void drop_entry(struct run *run)
{
    shed_value_unref(run->entry);
    run->entry = NULL;
}

static void drop_loaded(struct run *run)
{
    shed_value_unref(run->loaded.value);
    run->loaded.value = NULL;
}

/* An error reply, or none at all. */
static void on_trouble(struct run *run, uint64_t request,
                       struct shed_reply *reply, enum shed_trouble trouble,
                       const struct shed_error *err)
{
    struct shed_flight_event event = {
        .type = SHED_EV_TROUBLE, .request = request, .trouble = trouble};

    if (reply != NULL) {
        const char *text = shed_reply_error(reply);
        event.trouble = shed_reply_trouble(reply);
        (void)shed_fail(
            &run->error,
            event.trouble == SHED_TROUBLE_DENIED ? SHED_EDENIED : SHED_EREDIS,
            "Redis: %s", text != NULL ? text : "a reply of an unknown form");
    } else {
        run->error = *err;
    }
    drive(run, event);
}

/* Keep the beginning of a corrupt entry, by which acquire may replace it. */
static void remember_corrupt(struct run *run, const struct shed_reply *reply)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    run->seen_size = size < sizeof(run->seen) ? size : sizeof(run->seen);
    memcpy(run->seen, bytes, run->seen_size);
}

/* The entry in the second place of a reply. Returns: false if it does not
 * decode. */
static bool take_entry(struct run *run, struct shed_reply *reply)
{
    struct shed_reply *bytes = shed_reply_take(reply, 1);
    enum shed_entry_state state;

    drop_entry(run);
    run->entry = shed_runner_value(run->runner->airport, run->runner->counters,
                                   bytes, &state);
    if (run->entry != NULL)
        return true;
    if (state == SHED_ENTRY_CORRUPT)
        remember_corrupt(run, bytes);
    (void)shed_fail(&run->error, SHED_EREDIS,
                    "the entry in Redis is corrupt, and comes back so");
    shed_reply_free(bytes);
    return false;
}

static void take_marker(struct run *run, const struct shed_reply *reply)
{
    struct shed_entry entry;
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);
    enum shed_code code = SHED_ESOURCE;

    if (bytes == NULL ||
        shed_entry_decode(bytes, size, &entry) != SHED_ENTRY_OK) {
        (void)shed_fail(&run->error, code, "a load failed a moment ago");
        return;
    }
    if (entry.row_version == SHED_ETOOBIG)
        code = SHED_ETOOBIG;
    (void)shed_fail(&run->error, code, "a load failed a moment ago: %.*s",
                    (int)(entry.payload_size < SHED_REASON_BYTES
                              ? entry.payload_size
                              : SHED_REASON_BYTES),
                    (const char *)entry.payload);
}

static void take_lease(struct run *run, const struct shed_reply *reply)
{
    struct shed_counters *c = run->runner->counters;
    const struct shed_reply *how = shed_reply_at(reply, 2);
    size_t size = 0;
    const char *version = shed_reply_bytes(shed_reply_at(reply, 1), &size);

    if (version != NULL && size == sizeof(run->version))
        memcpy(run->version, version, size);
    run->seen_size = 0;
    if (shed_reply_begins(how, "takeover"))
        shed_count(&c->leases_taken_over, 1);
    else if (!shed_reply_begins(how, "mine"))
        shed_count(&c->leases_won, 1);
    if (shed_reply_begins(how, "foreign"))
        shed_count(&c->foreign_entries, 1);
    if (shed_reply_begins(how, "corrupt"))
        shed_count(&c->corrupt_entries, 1);
}

static void on_acquired(void *arg, struct shed_reply *reply,
                        enum shed_trouble trouble, const struct shed_error *err)
{
    struct run *run = arg;
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    struct shed_flight_event event = {.request = run->call_request};

    if (shed_reply_begins(kind, "LEAD")) {
        take_lease(run, reply);
        event.type = SHED_EV_LEAD;
    } else if (shed_reply_begins(kind, "HIT")) {
        event.type = take_entry(run, reply) ? SHED_EV_HIT : SHED_EV_CORRUPT;
    } else if (shed_reply_begins(kind, "FAILED")) {
        take_marker(run, shed_reply_at(reply, 1));
        event.type = SHED_EV_MARKER;
    } else if (shed_reply_begins(kind, "WAIT")) {
        long long left = shed_reply_integer(shed_reply_at(reply, 1));
        event.type = SHED_EV_WAIT;
        event.wait_ms = left > 0 ? (uint64_t)left : 0;
        if (run->flight.waits == 0)
            shed_count(&run->runner->counters->waits, 1);
    } else {
        on_trouble(run, run->call_request, reply, trouble, err);
        return;
    }
    drive(run, event);
}

static void on_published(void *arg, struct shed_reply *reply,
                         enum shed_trouble trouble,
                         const struct shed_error *err)
{
    struct run *run = arg;
    struct shed_counters *c = run->runner->counters;
    const struct shed_reply *kind = shed_reply_at(reply, 0);
    struct shed_flight_event event = {.request = run->call_request};

    if (shed_reply_begins(kind, "STORED")) {
        event.type = SHED_EV_STORED;
        shed_count(&c->published, 1);
    } else if (shed_reply_begins(kind, "SUPERSEDED")) {
        event.type =
            take_entry(run, reply) ? SHED_EV_SUPERSEDED : SHED_EV_INVALIDATED;
        shed_count(&c->publishes_superseded, 1);
    } else if (shed_reply_begins(kind, "INVALIDATED")) {
        event.type = SHED_EV_INVALIDATED;
        shed_count(&c->publishes_invalidated, 1);
    } else {
        on_trouble(run, run->call_request, reply, trouble, err);
        return;
    }
    drive(run, event);
}

static void on_ended(void *arg, struct shed_reply *reply,
                     enum shed_trouble trouble, const struct shed_error *err)
{
    struct run *run = arg;
    struct shed_flight_event event = {.type = SHED_EV_ENDED,
                                      .request = run->call_request};

    (void)err;
    /* run's error stays the load's, for the marker of the next try */
    if (shed_reply_integer(reply) < 0) {
        event.type = SHED_EV_TROUBLE;
        event.trouble = reply != NULL ? shed_reply_trouble(reply) : trouble;
    }
    drive(run, event);
}

static void send_renew(struct run *run, uint64_t request, bool by_text);

static void on_renewed(void *arg, struct shed_reply *reply,
                       enum shed_trouble trouble, const struct shed_error *err)
{
    struct run *run = arg;
    struct shed_flight_event event = {.type = SHED_EV_RENEWED,
                                      .request = run->renew_request};

    (void)trouble;
    (void)err;
    if (shed_script_is_unknown(reply)) {
        send_renew(run, run->renew_request, true);
        return;
    }
    if (shed_reply_integer(reply) == 0) {
        event.type = SHED_EV_LEASE_LOST;
        shed_count(&run->runner->counters->leases_lost, 1);
    }
    drive(run, event);
}

/* NOSCRIPT: the server was flushed or has begun anew since the scripts were
 * loaded. The whole call is made again, by text, under the same number. */
static void send_call(struct run *run, bool by_text);

static void on_call(void *arg, struct shed_reply *reply,
                    enum shed_trouble trouble, const struct shed_error *err)
{
    struct run *run = arg;

    if (shed_script_is_unknown(reply))
        send_call(run, true);
    else if (run->sent == SHED_SEND_ACQUIRE)
        on_acquired(arg, reply, trouble, err);
    else if (run->sent == SHED_SEND_PUBLISH)
        on_published(arg, reply, trouble, err);
    else
        on_ended(arg, reply, trouble, err);
}

/* -------------------------------------------------------------- what goes */

static void write_number(char digits[DIGITS], uint64_t number)
{
    (void)snprintf(digits, DIGITS, "%llu", (unsigned long long)number);
}

static void add_number(struct shed_args *args, char digits[DIGITS],
                       uint64_t number)
{
    write_number(digits, number);
    shed_args_add_text(args, digits);
}

static void add_holder(struct shed_args *args, const struct run *run)
{
    shed_args_add(args, run->runner->airport->process,
                  SHED_ENTRY_PROCESS_BYTES);
    shed_args_add(args, run->number, sizeof(run->number));
}

static void add_parts(struct shed_args *args,
                      const struct shed_entry_parts *parts,
                      const struct shed_entry *entry)
{
    shed_args_add(args, parts->head, sizeof(parts->head));
    shed_args_add(args, parts->tail, sizeof(parts->tail));
    shed_args_add(args, entry->payload, entry->payload_size);
}

static void put_call(struct run *run, enum shed_script script,
                     struct shed_args *args, bool by_text)
{
    if (by_text)
        shed_script_by_text(args, script);
    shed_pipe_call(shed_push_pipe(run->runner->airport->push), &run->call, args,
                   on_call, run);
}

static void begin(struct shed_args *args, enum shed_script script,
                  const struct run *run)
{
    shed_script_begin(args, script, "1");
    shed_args_add(args, run->key.redis, run->key.redis_size);
}

/* A new data version or nonce. Without randomness there is nothing to be had
 * but trouble later: the old bytes then serve, which is no worse than a load
 * whose lease was taken over. */
static void draw(unsigned char token[SHED_ENTRY_VERSION_BYTES])
{
    struct shed_error unused;

    if (shed_random_token(token, SHED_ENTRY_VERSION_BYTES, &unused) == SHED_OK)
        return;
    for (size_t i = 0; i < SHED_ENTRY_VERSION_BYTES; i++)
        token[i] = (unsigned char)shed_random_jitter();
}

static void send_acquire(struct run *run, bool by_text)
{
    const struct shed_runner *r = run->runner;
    unsigned flags =
        shed_push_has_channel(r->airport->push) ? SHED_ENTRY_HAS_CHANNEL : 0;
    unsigned char flag_bytes[] = {0, (unsigned char)flags};
    unsigned char version[SHED_ENTRY_VERSION_BYTES];
    struct shed_args args;

    draw(version);
    begin(&args, SHED_SCRIPT_ACQUIRE, run);
    shed_args_add(&args, version, sizeof(version));
    add_holder(&args, run);
    shed_args_add(&args, flag_bytes, sizeof(flag_bytes));
    shed_args_add_text(&args, r->lease_ms);
    shed_args_add_text(&args, r->record_ms);
    shed_args_add_text(&args, r->grace_ms);
    shed_args_add(&args, run->seen, run->seen_size);
    put_call(run, SHED_SCRIPT_ACQUIRE, &args, by_text);
}

static uint64_t ttl_ms(const struct run *run)
{
    const struct shed_cache_options *o = &run->runner->options;

    return shed_freshness_ttl_ms(
        run->loaded.value->kind == SHED_ABSENT ? o->negative_ttl_ms : o->ttl_ms,
        o->ttl_jitter_pct, shed_random_jitter());
}

static void send_publish(struct run *run, bool by_text)
{
    const struct shed_value *v = run->loaded.value;
    uint64_t cost_ms = run->loaded.cost_us / US_PER_MS;
    struct shed_entry entry = {
        .type = v->kind == SHED_ABSENT ? SHED_ENTRY_NEGATIVE : SHED_ENTRY_VALUE,
        .flags = v->kind == SHED_NULL ? SHED_ENTRY_NULL : 0,
        .cost_ms = cost_ms < UINT32_MAX ? (uint32_t)cost_ms : UINT32_MAX,
        .payload = v->data,
        .payload_size = v->size};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_entry_parts parts;
    struct shed_args args;
    char ttl[DIGITS];

    draw(nonce);
    shed_entry_encode(&entry, nonce, &parts);
    begin(&args, SHED_SCRIPT_PUBLISH, run);
    shed_args_add(&args, run->version, sizeof(run->version));
    add_parts(&args, &parts, &entry);
    add_number(&args, ttl, ttl_ms(run));
    put_call(run, SHED_SCRIPT_PUBLISH, &args, by_text);
}

/* How long a failure answers others: jittered down to half. */
static uint64_t failure_ttl_ms(const struct run *run)
{
    const uint64_t half_pct = 50;

    if (run->sent == SHED_SEND_RELEASE)
        return 0;
    return shed_freshness_ttl_ms(run->runner->options.failure_ttl_ms, half_pct,
                                 shed_random_jitter());
}

static void send_fail(struct run *run, bool by_text)
{
    struct shed_entry entry = {
        .type = SHED_ENTRY_FAILURE,
        .row_version = run->error.code,
        .payload = (const unsigned char *)run->error.reason,
        .payload_size = strnlen(run->error.reason, SHED_REASON_BYTES)};
    unsigned char nonce[SHED_ENTRY_VERSION_BYTES];
    struct shed_entry_parts parts;
    struct shed_args args;
    char ttl[DIGITS];

    draw(nonce);
    shed_entry_encode(&entry, nonce, &parts);
    begin(&args, SHED_SCRIPT_FAIL, run);
    shed_args_add(&args, run->version, sizeof(run->version));
    add_holder(&args, run);
    add_parts(&args, &parts, &entry);
    add_number(&args, ttl, failure_ttl_ms(run));
    put_call(run, SHED_SCRIPT_FAIL, &args, by_text);
}

static void send_call(struct run *run, bool by_text)
{
    if (run->sent == SHED_SEND_ACQUIRE)
        send_acquire(run, by_text);
    else if (run->sent == SHED_SEND_PUBLISH)
        send_publish(run, by_text);
    else
        send_fail(run, by_text);
}

static void send_renew(struct run *run, uint64_t request, bool by_text)
{
    struct shed_args args;

    if (run->renew_call.fn != NULL)
        return; /* the last one is still under way */
    run->renew_request = request;
    begin(&args, SHED_SCRIPT_RENEW, run);
    shed_args_add(&args, run->version, sizeof(run->version));
    add_holder(&args, run);
    shed_args_add_text(&args, run->runner->lease_ms);
    if (by_text)
        shed_script_by_text(&args, SHED_SCRIPT_RENEW);
    shed_pipe_call(shed_push_pipe(run->runner->airport->push), &run->renew_call,
                   &args, on_renewed, run);
}

/* ---------------------------------------------------------------- the load */

static void count_load(struct shed_counters *c, const struct shed_loaded *l)
{
    if (l->batch_keys > 0) {
        shed_count(&c->loads, 1);
        shed_histogram_add(&c->load_us, l->cost_us);
        shed_histogram_add(&c->batch_keys, l->batch_keys);
    }
    shed_count(&c->loaded_keys, 1);
    if (l->value == NULL)
        shed_count(&c->load_failures, 1);
}

static void on_loaded(struct shed_post *post)
{
    struct run *run =
        (struct run *)(void *)((char *)post - offsetof(struct run, post));
    struct shed_flight_event event = {.type = SHED_EV_LOADED,
                                      .request = run->load_request};

    run->is_loading = false;
    count_load(run->runner->counters, &run->loaded);
    if (run->loaded.value == NULL) {
        event.type = SHED_EV_LOAD_FAILED;
        run->error = run->loaded.error;
    }
    drive(run, event);
}

static void settle(struct shed_job *job, struct shed_loaded *loaded)
{
    struct run *run =
        (struct run *)(void *)((char *)job - offsetof(struct run, job));

    run->loaded = *loaded;
    run->post.run = on_loaded;
    shed_reactor_post(run->runner->airport->reactor, &run->post);
}

/* Returns: false if the source refused. */
static bool start_load(struct run *run, uint64_t request)
{
    const struct shed_runner *r = run->runner;

    drop_loaded(run);
    run->load_request = request;
    run->job = (struct shed_job){
        .key = run->key.redis + run->key.at,
        .key_size = run->key.size,
        .deadline_ms =
            shed_deadline_ms(shed_now_ms(), r->policy.load_timeout_ms),
        .value_limit_bytes = (size_t)r->options.value_limit_bytes,
        .settle = settle};
    if (shed_source_queue(r->source, &run->job, &run->error) != SHED_OK)
        return false;
    run->is_loading = true;
    shed_timer_set(r->wake, 0); /* with what else this turn brings */
    return true;
}

static void wake_source(void *arg)
{
    struct shed_runner *r = arg;

    shed_source_wake(r->source);
}

/* --------------------------------------------------------------- the drive */

static void destroy(struct run *run)
{
    struct shed_runner *r = run->runner;

    drop_entry(run);
    drop_loaded(run);
    shed_timer_destroy(run->timer);
    free(run);
    pthread_mutex_lock(&r->mu);
    if (--r->runs == 0)
        pthread_cond_broadcast(&r->idle);
    pthread_mutex_unlock(&r->mu);
}

/* Returns: false if it has been freed, or will be when the last call is
 * back; true if somebody came in the last moment. */
static bool goes_on(struct run *run)
{
    if (run->seats.key == NULL)
        return false; /* out of the table already */
    if (!shed_table_remove(run->runner->airport->table, &run->seats))
        return true;
    run->seats.key = NULL;
    return false;
}

static void perform(struct run *run, const struct shed_flight_act *act,
                    struct shed_flight_event *next)
{
    if (act->detach)
        shed_table_detach_seats(run->runner->airport->table, &run->seats);
    /* who has joined since the step would wait for an end of the load */
    if (run->flight.state == SHED_FLIGHT_ABANDONED && act->detach)
        answer(run, act->answer, UINT64_MAX);
    else if (act->answer != SHED_ANSWER_NOTHING)
        answer(run, act->answer, act->answer_upto);
    if (act->set_timer)
        shed_timer_set(run->timer, act->timer_ms);
    switch (act->send) {
    case SHED_SEND_NOTHING:
        break;
    case SHED_SEND_LOAD:
        if (!start_load(run, act->request))
            *next = (struct shed_flight_event){.type = SHED_EV_LOAD_REFUSED,
                                               .request = act->request};
        break;
    case SHED_SEND_RENEW:
        send_renew(run, act->request, false);
        break;
    case SHED_SEND_ACQUIRE:
    case SHED_SEND_PUBLISH:
    case SHED_SEND_FAIL:
    case SHED_SEND_RELEASE:
        run->sent = act->send;
        run->call_request = act->request;
        send_call(run, false);
        break;
    }
}

static void drive(struct run *run, struct shed_flight_event event)
{
    const struct shed_flight_event none = {.type = SHED_EV_START};
    bool again = true;

    while (again) {
        struct shed_flight_event next = none;
        struct shed_flight_act act;
        if (run->seats.key != NULL)
            run->flight.newest =
                shed_table_newest(run->runner->airport->table, &run->seats);
        run->flight.has_pushes = shed_push_is_on(run->runner->airport->push);
        act = shed_flight_step(&run->flight, &event, shed_now_ms(),
                               shed_random_jitter());
        /* one that was invalidated has a counter of its own */
        if (act.answer == SHED_ANSWER_UNPUBLISHED &&
            event.type != SHED_EV_INVALIDATED)
            shed_count(&run->runner->counters->unpublished, 1);
        perform(run, &act, &next);
        event = next;
        again = next.type != SHED_EV_START ||
                (run->flight.state == SHED_FLIGHT_OVER && goes_on(run));
    }
    if (run->seats.key == NULL && run->call.fn == NULL &&
        run->renew_call.fn == NULL && !run->is_loading)
        destroy(run);
}

static void on_timer(void *arg)
{
    struct run *run = arg;

    if (run->flight.state == SHED_FLIGHT_ABANDONED ||
        run->flight.state == SHED_FLIGHT_OVER)
        return;
    if (run->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&run->runner->counters->polls, 1);
    if (run->flight.state == SHED_FLIGHT_LOADING &&
        shed_now_ms() >= run->flight.load_deadline_ms)
        (void)shed_fail(&run->error, SHED_ESOURCE,
                        "the source has not answered within its load timeout");
    drive(run, (struct shed_flight_event){.type = SHED_EV_TIMER});
}

static void push(struct run *run)
{
    if (run->flight.state == SHED_FLIGHT_WAITING)
        shed_count(&run->runner->counters->pushes, 1);
    if (run->flight.state == SHED_FLIGHT_WAITING ||
        run->flight.state == SHED_FLIGHT_ACQUIRING)
        drive(run, (struct shed_flight_event){.type = SHED_EV_PUSH});
}

void shed_runner_on_change(void *arg, const char *key, size_t size)
{
    struct shed_airport *airport = arg;
    struct shed_seats *seats =
        shed_table_next_of(airport->table, NULL, key, size);

    while (seats != NULL) {
        struct shed_seats *next =
            shed_table_next_of(airport->table, seats, key, size);
        push((struct run *)(void *)seats);
        seats = next;
    }
}

static void push_seats(struct shed_seats *seats)
{
    push((struct run *)(void *)seats);
}

void shed_runner_on_epoch(void *arg)
{
    struct shed_airport *airport = arg;

    shed_table_each(airport->table, push_seats);
}

/* -------------------------------------------------------- begin and end */

static void start(struct shed_post *post)
{
    struct run *run =
        (struct run *)(void *)((char *)post - offsetof(struct run, post));

    run->timer =
        shed_timer_create(run->runner->airport->reactor, on_timer, run);
    if (run->timer == NULL) {
        (void)shed_fail_nomem(&run->error, "a flight's timer");
        do
            answer(run, SHED_ANSWER_FAILURE, UINT64_MAX);
        while (goes_on(run));
        destroy(run);
        return;
    }
    drive(run, (struct shed_flight_event){.type = SHED_EV_START});
}

static struct run *create_run(struct shed_runner *r, const struct shed_key *key)
{
    struct run *run = calloc(1, sizeof(*run) + key->redis_size);

    if (run == NULL)
        return NULL;
    memcpy(run + 1, key->redis, key->redis_size);
    run->key = *key;
    run->key.redis = (char *)(run + 1);
    run->seats.key = run->key.redis;
    run->seats.key_size = key->redis_size;
    run->runner = r;
    run->post.run = start;
    shed_entry_put_u64(run->number,
                       atomic_fetch_add(&r->airport->last_flight, 1) + 1);
    shed_flight_init(&run->flight, &r->policy);
    return run;
}

int shed_runner_join(struct shed_runner *r, const struct shed_key *key,
                     struct shed_caller *caller, struct shed_post **starts,
                     struct shed_error *err)
{
    struct shed_table *table = r->airport->table;
    struct run *run;

    if (shed_table_join(table, key->redis, key->redis_size, caller)) {
        shed_count(&r->counters->joins, 1);
        return SHED_OK;
    }
    run = create_run(r, key);
    if (run == NULL)
        return shed_fail_nomem(err, "a flight");
    pthread_mutex_lock(&r->mu);
    r->runs++;
    pthread_mutex_unlock(&r->mu);
    if (shed_table_insert(table, &run->seats, caller)) {
        run->post.next = *starts;
        *starts = &run->post;
        return SHED_OK;
    }
    shed_count(&r->counters->joins, 1);
    destroy(run);
    return SHED_OK;
}

void shed_runner_start(struct shed_runner *r, struct shed_post *starts)
{
    shed_reactor_post_all(r->airport->reactor, starts);
}

static void create_timer(void *arg)
{
    struct shed_runner *r = arg;

    r->wake = shed_timer_create(r->airport->reactor, wake_source, r);
}

static void destroy_timer(void *arg)
{
    struct shed_runner *r = arg;

    shed_timer_destroy(r->wake);
}

int shed_runner_create(struct shed_airport *airport, struct shed_source *source,
                       const struct shed_cache_options *options,
                       struct shed_counters *counters, struct shed_runner **out,
                       struct shed_error *err)
{
    struct shed_runner *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (r == NULL)
        return shed_fail_nomem(err, "a cache");
    r->airport = airport;
    r->source = source;
    r->options = *options;
    r->counters = counters;
    r->policy = (struct shed_flight_policy){
        .lease_ms = options->lease_ms,
        .load_timeout_ms = shed_source_load_timeout_ms(source),
        .load_when_down = options->redis_down == SHED_DOWN_SOURCE};
    write_number(r->lease_ms, options->lease_ms);
    write_number(r->grace_ms, options->grace_ms);
    write_number(r->record_ms, r->policy.load_timeout_ms + options->lease_ms +
                                   RECORD_MARGIN_MS);
    if (pthread_mutex_init(&r->mu, NULL) != 0)
        goto fail;
    if (shed_cond_init(&r->idle) != 0)
        goto fail_mutex;
    shed_reactor_run(airport->reactor, create_timer, r);
    if (r->wake == NULL)
        goto fail_cond;
    *out = r;
    return SHED_OK;

fail_cond:
    pthread_cond_destroy(&r->idle);
fail_mutex:
    pthread_mutex_destroy(&r->mu);
fail:
    free(r);
    return shed_fail_nomem(err, "a cache");
}

void shed_runner_close(struct shed_runner *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->mu);
    while (r->runs > 0)
        pthread_cond_wait(&r->idle, &r->mu);
    pthread_mutex_unlock(&r->mu);
    shed_reactor_run(r->airport->reactor, destroy_timer, r);
    pthread_cond_destroy(&r->idle);
    pthread_mutex_destroy(&r->mu);
    free(r);
}
