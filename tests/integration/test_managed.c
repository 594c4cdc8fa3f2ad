/* Servers that lack a command, by a new name or by the ACL, as managed ones and
 * proxies do: what is not needed is done without, and told once; what is needed
 * is refused with a clear code. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <snowshed/event.h>
#include <snowshed/lock.h>

#include "support/fixture.h"

/* What a client still does without the command. */
static const struct row {
    const char *command; /* all of it is renamed; the first word of acl */
    const char *acl;     /* as ACL SETUSER takes it */
    const char
        *told; /* the beginning of the reason of the one event; NULL:
                  nothing is told, because calls say it or nobody needs it */
    const char *told_renamed; /* the same if the command was renamed, if that
                                 differs */
    enum shed_code get, invalidate, acquire, release;
} rows[] = {
    {"CLIENT", "-client|tracking", .told = "CLIENT TRACKING, at ",
     .told_renamed = "CLIENT ID, at "},
    {"CLIENT", "-client|id", .told = "CLIENT ID, at "},
    {"SUBSCRIBE", "-subscribe", .told = "SUBSCRIBE, at "},
    {"PUBSUB", "-pubsub", .told = "PUBSUB NUMSUB, at "},
    {"INFO", "-info", .told = "INFO, at "},
    {"ROLE", "-role", .told = "ROLE, at "},
    {"SCRIPT", "-script", .told = "SCRIPT LOAD, at "},
    {"CONFIG", "-config", .told = NULL},
    {"SELECT", "-select", .told = NULL},
    {"COMMAND", "-command", .told = NULL},
    {"MULTI", "-multi", .told = NULL},
    {"WAIT", "-wait", .told = NULL},
    {"GET", "-get", .get = SHED_EDENIED, .release = SHED_EDENIED},
    {"UNLINK", "-unlink", .invalidate = SHED_EDENIED},
    {"EVALSHA", "-evalsha", .get = SHED_EDENIED, .invalidate = SHED_EDENIED,
     .acquire = SHED_EDENIED},
    {"TIME", "-time", .get = SHED_EDENIED, .acquire = SHED_EDENIED},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

static atomic_uint told;
static char told_reason[SHED_REASON_BYTES]; /* of the first */

static void on_event(void *user, const struct shed_event *event)
{
    (void)user;
    if (event->kind == SHED_EVENT_LACKING && atomic_load(&told) == 0)
        snprintf(told_reason, sizeof(told_reason), "%s", event->reason);
    if (event->kind == SHED_EVENT_LACKING)
        atomic_fetch_add(&told, 1);
}

/* A server without the command: under another name, or for our user. */
static void up(const struct row *r, bool is_renamed)
{
    static char uri[SERVER_URI_BYTES + 16];

    fixture_init(&fixture);
    if (is_renamed) {
        server_stop(&fixture.server);
        fixture.server = (struct server){
            .options = {"--rename-command", r->command, "renamed"}};
        server_start(&fixture.server);
        snprintf(uri, sizeof(uri), "unix:%s?db=0", fixture.server.socket);
    } else {
        server_do(&fixture.server, "ACL SETUSER shop on >pw ~* &* +@all %s",
                  r->acl);
        snprintf(uri, sizeof(uri), "unix://shop:pw@%s?db=0",
                 fixture.server.socket);
    }
    fixture.uri = uri;
    atomic_store(&told, 0);
    fixture.client_options.on_event = on_event;
    fixture_open(&fixture);
}

/* A load of one client answers a caller of the other. */
static void expect_waiter(struct peer *peer)
{
    struct getter leader = {0}, waiter = {0};

    getter_hold(&leader, &fixture, "new");
    getter_start(&waiter, peer->cache, "new");
    WAIT_FOR(stats_of(peer->cache).waits > 0);
    table_release(&fixture.table);
    getter_expect(&leader, "new@1", SHED_ORIGIN_LOAD);
    getter_expect(&waiter, "new@1", SHED_ORIGIN_WAITED);
}

static void expect_lock(struct shed_client *client, const struct row *r)
{
    struct shed_lock *lock;
    struct shed_error err = {SHED_OK, ""};

    EXPECT_OK(shed_lock_open(client, shed_str("l"), NULL, &lock, NULL));
    ck_assert_msg(shed_lock_acquire(lock, 0, &err) == r->acquire, "acquire: %s",
                  err.reason);
    if (r->acquire == SHED_OK)
        ck_assert_int_eq(shed_lock_release(lock, NULL), r->release);
    shed_lock_close(lock);
}

static void expect_told(const char *reason)
{
    usleep(20000); /* a second one would come by now */
    if (reason == NULL) {
        ck_assert_msg(atomic_load(&told) == 0, "told: %s", told_reason);
        return;
    }
    WAIT_FOR(atomic_load(&told) > 0);
    ck_assert_msg(strncmp(told_reason, reason, strlen(reason)) == 0, "told: %s",
                  told_reason);
    ck_assert_uint_eq(atomic_load(&told), 1);
}

TEST_EACH(what_is_missing_is_told_once_and_done_without, 0, 2 * ROWS)
{
    const struct row *r = &rows[_i / 2];
    bool is_renamed = _i % 2 == 1;
    struct shed_value *value = NULL;
    struct shed_error err = {SHED_OK, ""};
    struct peer peer;

    up(r, is_renamed);
    ck_assert_msg(shed_get(fixture.cache, shed_str("k"), NULL, &value, &err) ==
                      r->get,
                  "%s: get: %s", r->acl, err.reason);
    shed_value_unref(value);
    if (r->get == SHED_OK) {
        expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
        fixture.client_options.on_event = NULL;
        peer_open(&peer, &fixture);
        expect_waiter(&peer);
        peer_close(&peer);
    }
    ck_assert_msg(shed_invalidate(fixture.cache, shed_str("k"), 0, &err) ==
                      r->invalidate,
                  "%s: invalidate: %s", r->acl, err.reason);
    expect_lock(fixture.client, r);
    expect_told(is_renamed && r->told_renamed != NULL ? r->told_renamed
                                                      : r->told);
    fixture_down(&fixture);
}

int main(void)
{
    return run_tests("managed");
}
