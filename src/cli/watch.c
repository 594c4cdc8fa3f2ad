/*
 * watch: shows what happens to the keys of a cache, as it happens.
 *
 * Each server tells a second connection which keys with a prefix have changed
 * (CLIENT TRACKING in broadcasting mode, Redis 6), and the first reads them. So
 * no keyspace notifications and no configuration are needed. Changes of a key
 * that come faster than it is read appear as one event. Beyond --rate changes
 * per second the rest is only counted.
 */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/limit.h"
#include "cli/entry.h"

#define CHANNEL "__redis__:invalidate"
#define SLOTS 65536
#define MS_PER_S 1000
/* Tracking ends with the first connection, which is idle while nothing changes.
 * So it is used now and then, before the server's timeout closes it. */
#define LOOK_EVERY_MS 1000

/* What is known about a key that was read before, by its hash. Another key may
 * have taken its slot. */
struct known {
    uint64_t hash;
    enum cli_kind kind;
    unsigned char version[SHED_ENTRY_VERSION_BYTES];
    char process[SHED_ENTRY_PROCESS_BYTES];
    uint64_t end_ms; /* when it expires, by this host's monotonic clock */
};

struct watch {
    const struct cli_call *call;
    struct cli_server *pushes[CLI_REDIS_MAX]; /* one to each of its servers;
                                                 NULL: not yet */
    struct cli_key key;
    uint64_t look_ms;    /* when the servers are looked at next */
    struct known *known; /* SLOTS */
    uint64_t events;
    struct shed_limit limit; /* of the changes that are shown */
};

/* ------------------------------------------------------- what has happened */

/* The event between two states of a key. NULL: nothing worth a line. */
static const char *event_of(const struct known *before, const struct known *now)
{
    static const char *const events[CLI_KINDS] = {
        [CLI_VALUE] = "published", [CLI_NEGATIVE] = "published",
        [CLI_FAILURE] = "failed",  [CLI_DAMAGED] = "damaged",
        [CLI_FOREIGN] = "foreign", [CLI_OTHER] = "foreign"};
    bool is_same =
        before->kind == now->kind &&
        memcmp(before->version, now->version, sizeof(now->version)) == 0;
    bool is_expired = shed_now_ms() >= before->end_ms;

    if (now->kind == CLI_NONE)
        return before->kind == CLI_NONE ? "removed"
               : is_expired             ? "expired"
                                        : "invalidated";
    if (now->kind == CLI_LEASE && is_same)
        return memcmp(before->process, now->process, sizeof(now->process)) == 0
                   ? "renewed"
                   : "taken over";
    if (now->kind == CLI_LEASE)
        return "leased";
    return is_same && cli_kind_is_decoded(now->kind) ? NULL : events[now->kind];
}

/* Remember an entry that was read. Returns: the event since it was read before,
 * as event_of. */
static const char *update(struct watch *w, const struct cli_entry *e)
{
    struct shed_bytes name = e->key->named.key.redis;
    uint64_t hash = shed_hash(name.data, name.size, 0);
    struct known *known = &w->known[hash % SLOTS];
    struct known before = {.kind = CLI_NONE};

    if (known->hash == hash)
        before = *known;
    *known =
        (struct known){.hash = hash, .kind = e->kind, .end_ms = UINT64_MAX};
    if (e->pttl >= 0)
        known->end_ms = shed_now_ms() + (uint64_t)e->pttl;
    if (cli_kind_is_decoded(e->kind))
        memcpy(known->version, shed_entry_version(e->bytes.data),
               sizeof(known->version));
    if (e->kind == CLI_LEASE)
        memcpy(known->process, e->holder.process, sizeof(known->process));
    return event_of(&before, known);
}

/* -------------------------------------------------------------------- lines */

static void print_entry(const struct cli_entry *e)
{
    struct shed_bytes reason =
        shed_bytes(e->entry.payload, e->entry.payload_size);

    printf("  %s", cli_escape(e->key->named.key.redis).at);
    if (cli_kind_is_stored(e->kind)) {
        printf("  %s, %s%s",
               e->kind == CLI_NEGATIVE ? "no such row"
                                       : cli_size(e->entry.payload_size).at,
               e->pttl < 0 ? "no ttl" : "ttl ",
               e->pttl < 0 ? "" : cli_duration((uint64_t)e->pttl).at);
    } else if (e->kind == CLI_LEASE) {
        printf(
            "  process %s",
            cli_escape(shed_bytes(e->holder.process, SHED_PROCESS_BYTES)).at);
    } else if (e->kind == CLI_FAILURE) {
        printf("  %s: %s", shed_code_name((enum shed_code)e->entry.row_version),
               cli_escape(reason).at);
    }
}

/* Print what has happened to an entry, or, if e is NULL, so many times. */
static void print_event(const struct watch *w, const char *event,
                        const struct cli_entry *e, uint64_t count)
{
    uint64_t now_ms = shed_wall_ms();
    json_t *out = cli_out_open();

    if (w->call->is_json) {
        cli_out_number(out, "at_ms", now_ms);
        cli_out_text(out, "event", event);
        if (e != NULL)
            cli_entry_show(e, cli_out_object(out, "entry"));
        else
            cli_out_number(out, "count", count);
    } else {
        printf("%s  %-11s", cli_date(now_ms).at, event);
        if (e != NULL)
            print_entry(e);
        else if (count > 0)
            printf("  %" PRIu64, count);
        (void)putchar('\n');
    }
    cli_out_close(w->call, out);
}

/* --------------------------------------------------------------- the pushes */

/* Tell how many changes were not shown, once their second is over, or the
 * watch. */
static void tell_missed(struct watch *w, bool is_last)
{
    if (w->limit.suppressed > 0 &&
        (is_last || shed_limit_is_over(&w->limit, MS_PER_S, shed_now_ms())))
        print_event(w, "not shown", NULL, shed_limit_take(&w->limit));
}

/* name: that of an entry, or of its refresh. */
static void on_change(struct watch *w, struct shed_bytes name)
{
    struct shed_bytes of = shed_entry_key_of(name);
    bool is_refresh = of.size < name.size;
    struct cli_key key;
    struct cli_entry entry;
    const char *event;

    if (!cli_key_parse(&key, w->call->words[0], of) ||
        !shed_limit_pass(&w->limit, w->call->rate, MS_PER_S, shed_now_ms()))
        return;
    cli_entry_read(w->call->redis, &key, &entry);
    event = !is_refresh                ? update(w, &entry)
            : entry.has_refresh_failed ? "failed"
            : entry.refresh_pttl != -2 ? "refreshing"
                                       : NULL;
    if (event != NULL)
        print_event(w, event, &entry, 0);
    w->events += event != NULL;
    shed_reply_free(entry.reply);
}

static bool is_over(const struct watch *w)
{
    return w->call->count_limit > 0 && w->events >= w->call->count_limit;
}

/* ["message", channel, [key...]]; no keys: the database was emptied. */
static void on_push(struct watch *w, const struct shed_reply *push)
{
    const struct shed_reply *keys = shed_reply_at(push, 2);

    if (shed_reply_is_nil(keys)) {
        memset(w->known, 0, SLOTS * sizeof(*w->known));
        print_event(w, "emptied", NULL, 0);
        w->events++;
    }
    for (size_t i = 0; i < shed_reply_count(keys) && !is_over(w); i++) {
        struct shed_bytes name = cli_redis_bytes(shed_reply_at(keys, i));
        if (name.data != NULL)
            on_change(w, name);
    }
}

/* --------------------------------------------------------------- the set-up */

/* Be told by the chosen server of changes. Returns: the connection that says
 * so. */
static struct cli_server *track(struct watch *w)
{
    struct cli_server *pushes = cli_redis_connect(w->call->redis);
    struct cli_text all = cli_format("%s:{", w->call->words[0]);
    struct shed_bytes prefix =
        w->call->count > 1 ? w->key.named.key.redis : shed_str(all.at);
    struct shed_reply *number, *answer;
    struct shed_error err;
    struct cli_text id;

    number = cli_server_ask(pushes, &err, "CLIENT ID", "CLIENT ID");
    answer = number == NULL ? NULL
                            : cli_server_ask(pushes, &err, "SUBSCRIBE",
                                             "SUBSCRIBE " CHANNEL);
    if (answer == NULL)
        cli_fail_error(w->call, &err);
    id = cli_format("%lld", shed_reply_integer(number));
    shed_reply_free(number);
    shed_reply_free(answer);
    cli_redis_send(w->call->redis,
                   "CLIENT TRACKING ON REDIRECT %s BCAST PREFIX %.*s", id.at,
                   (int)prefix.size, (const char *)prefix.data);
    shed_reply_free(cli_redis_hear(w->call->redis, "CLIENT TRACKING"));
    return pushes;
}

/* Use each server, and subscribe at the new ones of a cluster. */
static void look(struct watch *w)
{
    cli_redis_follow(w->call->redis);
    for (size_t i = 0; cli_redis_next(w->call->redis, &i); i++) {
        if (w->pushes[i] == NULL)
            w->pushes[i] = track(w);
        cli_redis_send(w->call->redis, "PING");
        shed_reply_free(cli_redis_hear(w->call->redis, "PING"));
    }
    w->look_ms = shed_now_ms() + LOOK_EVERY_MS;
}

/* Take a push of each server that has sent one. Returns: whether any has. */
static bool take_pushes(struct watch *w)
{
    bool has_any = false;

    for (size_t i = 0; i < CLI_REDIS_MAX && !is_over(w); i++) {
        struct shed_reply *push = NULL;
        struct shed_error err;
        if (w->pushes[i] == NULL)
            continue;
        if (!cli_server_hear(w->pushes[i], 0, &push, &err))
            cli_fail_error(w->call, &err);
        if (push != NULL)
            on_push(w, push);
        has_any |= push != NULL;
        shed_reply_free(push);
    }
    return has_any;
}

/* Wait until a server sends something, or until end_ms. */
static void await_push(const struct watch *w, uint64_t end_ms)
{
    uint64_t left_ms = shed_left_ms(end_ms, shed_now_ms());
    struct pollfd polled[CLI_REDIS_MAX];
    nfds_t count = 0;

    for (size_t i = 0; i < CLI_REDIS_MAX; i++)
        if (w->pushes[i] != NULL)
            polled[count++] = (struct pollfd){.fd = w->pushes[i]->conn.wire.fd,
                                              .events = POLLIN};
    (void)poll(polled, count, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
}

int cli_watch(struct cli_call *call)
{
    struct watch w = {.call = call,
                      .known = cli_alloc(SLOTS, sizeof(*w.known))};
    struct cli_entry entry;
    uint64_t end_ms = call->seconds > 0
                          ? shed_now_ms() + call->seconds * MS_PER_S
                          : UINT64_MAX;

    if (call->count > 1)
        cli_key_init(&w.key, call);
    cli_redis_open(call);
    look(&w);
    if (call->count > 1) { /* so that its first change gets the right name */
        cli_entry_read(call->redis, &w.key, &entry);
        (void)update(&w, &entry);
        shed_reply_free(entry.reply);
    }
    if (!call->is_json)
        (void)fprintf(stderr, "watching %s at %s; Ctrl-C ends it\n",
                      call->words[0], cli_redis_name(call->redis));
    while (!is_over(&w) && shed_now_ms() < end_ms) {
        if (!take_pushes(&w))
            await_push(&w, end_ms < w.look_ms ? end_ms : w.look_ms);
        tell_missed(&w, false);
        if (shed_now_ms() >= w.look_ms)
            look(&w);
    }
    tell_missed(&w, true);
    for (size_t i = 0; i < CLI_REDIS_MAX; i++)
        cli_server_destroy(w.pushes[i]);
    free(w.known);
    return w.events > 0 ? CLI_YES : CLI_NO;
}
