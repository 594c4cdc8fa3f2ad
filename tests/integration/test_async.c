/* Gets that do not block, on a real server: what they answer, and that they end
 * exactly once. */
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include <snowshed/async.h>

#include "support/awaited.h"
#include "support/fixture.h"

enum { MANY = 64 };

static struct shed_pending *begin(const char *key,
                                  const struct shed_get_options *options,
                                  struct ending *e, struct shed_queue *queue)
{
    const struct shed_then then = {note_ending, e, queue};
    struct shed_pending *pending;
    struct shed_error err;

    *e = (struct ending){.calls = 0};
    ck_assert_msg(shed_get_async(fixture.cache, shed_str(key), options, &then,
                                 NULL, &pending, &err) == SHED_OK,
                  "%s", err.reason);
    return pending;
}

static void expect_ending(struct ending *e, enum shed_code code)
{
    WAIT_FOR(atomic_load(&e->calls) > 0);
    ck_assert_msg(e->code == code, "%s: %s", shed_code_name(e->code),
                  e->reason);
    ck_assert_uint_eq(atomic_load(&e->calls), 1);
}

static void take_row(struct ending *e, const char *text)
{
    expect_ending(e, SHED_OK);
    check_text(e->value, text);
    shed_value_unref(e->value);
}

static void expect_row(struct ending *e, const char *text,
                       enum shed_origin origin)
{
    expect_ending(e, SHED_OK);
    ck_assert_int_eq(e->value->origin, origin);
    take_row(e, text);
}

/* A get of the key ends so. */
static void expect_async(const char *key,
                         const struct shed_get_options *options,
                         const char *text, enum shed_origin origin)
{
    struct ending e;

    (void)begin(key, options, &e, NULL);
    expect_row(&e, text, origin);
}

static enum shed_code put_async(const char *key, const char *row,
                                const struct shed_put_options *options)
{
    return awaited_put(fixture.cache, shed_str(key), shed_str(row), options,
                       NULL);
}

static struct shed_queue *open_queue(void)
{
    struct shed_queue *queue;

    EXPECT_OK(shed_queue_open(&queue, NULL));
    return queue;
}

static bool is_readable(const struct shed_queue *queue)
{
    struct pollfd fd = {shed_queue_fd(queue), POLLIN, 0};

    return poll(&fd, 1, 0) == 1;
}

/* A done that returns when it may. */
static atomic_bool is_blocking, may_return;

static void block(void *user, enum shed_code code, struct shed_value *value,
                  const struct shed_error *reason)
{
    (void)user;
    (void)code;
    (void)reason;
    shed_value_unref(value);
    atomic_store(&is_blocking, true);
    WAIT_FOR(atomic_load(&may_return));
}

/* ---------------------------------------------------------------- answers */

TEST(a_miss_is_loaded_and_a_hit_is_not)
{
    struct ending e;

    fixture_open(&fixture);
    expect_async("k", NULL, "k@1", SHED_ORIGIN_LOAD);
    expect_async("k", NULL, "k@1", SHED_ORIGIN_REDIS);
    (void)begin("absent", NULL, &e, NULL);
    expect_ending(&e, SHED_OK);
    ck_assert_int_eq(e.value->kind, SHED_KIND_ABSENT);
    shed_value_unref(e.value);
    (void)begin("fail", NULL, &e, NULL);
    expect_ending(&e, SHED_ESOURCE);
    ck_assert_ptr_null(e.value);
    ck_assert_uint_gt(strlen(e.reason), 0);
}

TEST(calls_of_both_kinds_share_a_load)
{
    struct ending e[MANY];
    struct getter getter = {.timeout_ms = 0};

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    for (unsigned i = 0; i < MANY; i++)
        (void)begin("k", NULL, &e[i], NULL);
    WAIT_FOR(stats_of(fixture.cache).joins >= MANY);
    table_release(&fixture.table);
    for (unsigned i = 0; i < MANY; i++)
        expect_row(&e[i], "k@1", SHED_ORIGIN_LOAD);
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
    ck_assert_uint_eq(table_loads(&fixture.table), 1);
}

TEST(calls_of_one_turn_share_a_get)
{
    struct ending e[MANY];
    long long before;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    expect_async("k", NULL, "k@1", SHED_ORIGIN_REDIS); /* the session is up */
    before = server_calls(&fixture.server, "get");
    server_freeze(&fixture.server);
    for (unsigned i = 0; i < MANY; i++)
        (void)begin("k", NULL, &e[i], NULL);
    server_thaw(&fixture.server);
    for (unsigned i = 0; i < MANY; i++)
        expect_row(&e[i], "k@1", SHED_ORIGIN_REDIS);
    ck_assert_int_le(server_calls(&fixture.server, "get"), before + 2);
    ck_assert_uint_ge(stats_of(fixture.cache).hits, MANY);
}

TEST(a_call_that_waits_for_the_next_get_joins_a_flight)
{
    struct ending first, cancelled, next;
    long long before;

    fixture_open(&fixture);
    expect_async("other", NULL, "other@1",
                 SHED_ORIGIN_LOAD); /* the session is up */
    before = server_calls(&fixture.server, "get");
    server_freeze(&fixture.server);
    (void)begin("k", NULL, &first, NULL);
    /* it ends in a turn of the loop after which the GET has been sent */
    ck_assert_int_eq(shed_cancel(begin("k", NULL, &cancelled, NULL)), 1);
    expect_ending(&cancelled, SHED_ETIMEDOUT);
    (void)begin("k", NULL, &next, NULL);
    server_thaw(&fixture.server);
    expect_row(&first, "k@1", SHED_ORIGIN_LOAD);
    expect_row(&next, "k@1", SHED_ORIGIN_LOAD);
    /* and that of publish */
    ck_assert_int_eq(server_calls(&fixture.server, "get"), before + 2);
}

/* It would cost Redis more than the GET itself. */
TEST(redis_does_not_track_what_a_hit_reads)
{
    char before[32], after[32];

    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    put(fixture.cache, "k", "row");
    server_info(&fixture.server, "tracking_total_keys", before, sizeof(before));
    expect_async("k", NULL, "row", SHED_ORIGIN_REDIS);
    server_info(&fixture.server, "tracking_total_keys", after, sizeof(after));
    ck_assert_str_eq(after, before);
}

TEST(many_calls_go_by_several_connections)
{
    enum { CALLS = 400 };
    static struct ending e[CALLS];
    char text[16];

    fixture_open(&fixture);
    do {
        server_freeze(&fixture.server);
        for (int i = 0; i < CALLS; i++) {
            snprintf(text, sizeof(text), "k%d", i);
            (void)begin(text, NULL, &e[i], NULL);
        }
        server_thaw(&fixture.server);
        for (int i = 0; i < CALLS; i++) {
            snprintf(text, sizeof(text), "k%d@1", i);
            take_row(&e[i], text);
        }
    } while (server_clients(&fixture.server, "cmd=get ") < 3);
}

TEST(the_options_are_those_of_the_call_that_blocks)
{
    const struct shed_get_options *only_cached = GET_WITH(.only_cached = 1);
    struct ending e;

    fixture_open(&fixture);
    (void)begin("k", only_cached, &e, NULL);
    expect_ending(&e, SHED_EMISS);
    expect_text(fixture.cache, "k", "k@1");
    expect_async("k", only_cached, "k@1", SHED_ORIGIN_REDIS);
    table_update(&fixture.table);
    usleep(5000); /* so old does it become */
    expect_async("k", GET_WITH(.max_age_ms = 1), "k@2", SHED_ORIGIN_LOAD);
}

TEST(an_old_row_is_given_at_the_soft_timeout)
{
    fixture.cache_options.ttl_ms = 50;
    fixture.cache_options.stale_if_error_ms = 3600000;
    fixture.cache_options.soft_timeout_ms = 20;
    fixture_open(&fixture);
    WAIT_FOR(knows_the_clock(fixture.cache));
    expect_text(fixture.cache, "k", "k@1");
    table_hold(&fixture.table);
    table_update(&fixture.table);
    usleep(60000); /* the ttl */
    expect_async("k", NULL, "k@1", SHED_ORIGIN_STALE);
    table_release(&fixture.table);
    WAIT_FOR(has_text(fixture.cache, "k@2"));
}

TEST(tags_make_rows_misses)
{
    fixture.cache_options.tags_limit = 100;
    fixture.table.has_tags = true;
    fixture_open(&fixture);
    expect_async("k", NULL, "k@1", SHED_ORIGIN_LOAD);
    table_update(&fixture.table);
    EXPECT_OK(shed_invalidate_tags(
        fixture.cache, (struct shed_bytes[]){shed_str("all")}, 1, 0, NULL));
    expect_async("k", NULL, "k@2", SHED_ORIGIN_LOAD);
}

/* A process that polls learns the log of tags by a read of its own. */
TEST(the_log_of_tags_is_read_where_changes_are_not_announced)
{
    struct ending e;

    fixture.cache_options.tags_limit = 100;
    fixture.client_options.wait = SHED_WAIT_POLL;
    fixture.table.has_tags = true;
    fixture_open(&fixture);
    for (unsigned i = 0; i < MANY; i++) {
        (void)begin("k", NULL, &e, NULL);
        take_row(&e, "k@1");
    }
}

TEST(many_keys_are_answered_together)
{
    struct shed_item items[MANY];
    struct shed_error errors[MANY];
    struct shed_get_options o = SHED_GET_OPTIONS_INIT;
    char keys[MANY][16];
    struct ending e;
    const struct shed_then then = {note_ending, &e, NULL};

    fixture_open(&fixture);
    o.errors = errors;
    for (int round = 0; round < 2; round++) { /* loaded, then cached */
        e = (struct ending){.calls = 0};
        for (int i = 0; i < MANY; i++) {
            snprintf(keys[i], sizeof(keys[i]), "%s%d", i == 7 ? "fail" : "k",
                     i);
            items[i].key = shed_str(keys[i]);
        }
        EXPECT_OK(shed_get_many_async(fixture.cache, items, MANY, &o, &then,
                                      NULL, NULL));
        expect_ending(&e, SHED_ESOURCE);
        ck_assert_ptr_eq(strstr(e.reason, "items[7]: "), e.reason);
        for (int i = 0; i < MANY; i++) {
            char text[16];
            ck_assert_int_eq(errors[i].code, items[i].code);
            ck_assert_int_eq(items[i].code, i == 7 ? SHED_ESOURCE : SHED_OK);
            snprintf(text, sizeof(text), "k%d@1", i);
            if (i != 7)
                check_text(items[i].value, text);
            shed_value_unref(items[i].value);
        }
    }
    e = (struct ending){.calls = 0};
    EXPECT_OK(
        shed_get_many_async(fixture.cache, NULL, 0, NULL, &then, NULL, NULL));
    expect_ending(&e, SHED_OK);
}

TEST(a_cancelled_get_of_many_gives_what_it_has)
{
    struct shed_item items[2] = {{.key = shed_str("there")},
                                 {.key = shed_str("k")}};
    struct shed_pending *pending;
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};

    fixture_open(&fixture);
    expect_text(fixture.cache, "there", "there@1");
    table_hold(&fixture.table);
    EXPECT_OK(shed_get_many_async(fixture.cache, items, 2, NULL, &then,
                                  &pending, NULL));
    WAIT_FOR(table_running(&fixture.table) > 0);
    ck_assert_int_eq(shed_cancel(pending), 1);
    expect_ending(&e, SHED_ETIMEDOUT);
    check_text(items[0].value, "there@1");
    shed_value_unref(items[0].value);
    ck_assert_ptr_null(items[1].value);
    EXPECT_CODE(items[1].code, SHED_ETIMEDOUT);
    table_release(&fixture.table);
}

/* ------------------------------------------------------------------ queue */

static struct shed_queue *collected;
static char told[4];

/* Note the end of the call whose name this is; of "a" after the next one's. */
static void note_in_order(void *name, enum shed_code code,
                          struct shed_value *value,
                          const struct shed_error *reason)
{
    (void)reason;
    EXPECT_OK(code);
    shed_value_unref(value);
    if (strcmp(name, "a") == 0)
        ck_assert_uint_eq(shed_queue_collect(collected, 1), 1);
    strcat(told, name);
}

TEST(a_done_that_collects_gets_the_next_call)
{
    static char names[3][2] = {"a", "b", "c"};
    struct ending last;

    fixture_open(&fixture);
    collected = open_queue();
    for (unsigned i = 0; i < 3; i++) {
        const struct shed_then then = {note_in_order, names[i], collected};
        EXPECT_OK(shed_get_async(fixture.cache, shed_str(names[i]), NULL, &then,
                                 NULL, NULL, NULL));
        WAIT_FOR(stats_of(fixture.cache).misses_ended == i + 1);
    }
    (void)begin("d", NULL, &last, NULL); /* ends when they are in the queue */
    take_row(&last, "d@1");
    ck_assert_uint_eq(shed_queue_collect(collected, 10), 2);
    ck_assert_str_eq(told, "bac");
    shed_queue_close(collected);
}

TEST(a_queue_is_readable_while_it_has_calls)
{
    struct shed_queue *queue = open_queue();
    struct ending e[3];

    fixture_open(&fixture);
    ck_assert(!is_readable(queue));
    ck_assert_uint_eq(shed_queue_collect(queue, 10), 0);
    for (int i = 0; i < 3; i++)
        (void)begin("k", NULL, &e[i], queue);
    WAIT_FOR(is_readable(queue));
    ck_assert_uint_eq(atomic_load(&e[0].calls), 0);
    WAIT_FOR(shed_queue_collect(queue, 1) == 1);
    WAIT_FOR(shed_queue_collect(queue, 1) == 1);
    WAIT_FOR(is_readable(queue));
    ck_assert_uint_eq(shed_queue_collect(queue, 10), 1);
    ck_assert(!is_readable(queue));
    for (int i = 0; i < 3; i++)
        take_row(&e[i], "k@1");
    shed_queue_close(queue);
}

/* ---------------------------------------------------------------- endings */

TEST(a_call_ends_at_its_deadline)
{
    struct ending e;
    struct getter getter = {.timeout_ms = 0};

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    (void)begin("k", WITHIN(30), &e, NULL);
    expect_ending(&e, SHED_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(e.reason, "a load of the key by this"));
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
}

/* Nor do they wait for a write's time, which is five seconds. */
TEST(a_callback_that_takes_long_holds_up_no_read)
{
    const struct shed_then then = {block, NULL, NULL};
    const struct shed_get_options *soon = WITHIN(50);
    struct shed_item items[] = {{.key = shed_str("many")},
                                {.key = shed_str("cached")},
                                {.key = shed_str("old")}};
    struct shed_value *value;
    struct shed_error err;

    fixture.cache_options.stale_if_error_ms = 60000;
    fixture_open(&fixture);
    expect_text(fixture.cache, "cached", "cached@1");
    expect_text(fixture.cache, "old", "old@1");
    EXPECT_OK(shed_expire(fixture.cache, shed_str("old"), 0,
                          SHED_TIMEOUT_DEFAULT, NULL));
    EXPECT_OK(shed_get_async(fixture.cache, shed_str("k"), NULL, &then, NULL,
                             NULL, NULL));
    WAIT_FOR(atomic_load(&is_blocking));
    EXPECT_CODE(shed_get(fixture.cache, shed_str("one"), soon, &value, &err),
                SHED_ETIMEDOUT);
    ck_assert_msg(strstr(err.reason, "callback") != NULL, "%s", err.reason);
    EXPECT_OK(shed_get(fixture.cache, shed_str("old"), soon, &value, NULL));
    check_text(value, "old@1");
    shed_value_unref(value);
    EXPECT_CODE(shed_get(fixture.cache, shed_str("two"),
                         GET_WITH(.timeout_ms = 50, .only_cached = 1), &value,
                         NULL),
                SHED_EMISS);
    EXPECT_CODE(shed_get_many(fixture.cache, items, 3, soon, &err),
                SHED_ETIMEDOUT);
    ck_assert_ptr_eq(strstr(err.reason, "items[0]"), err.reason);
    EXPECT_CODE(items[0].code, SHED_ETIMEDOUT);
    EXPECT_OK(items[1].code);
    check_text(items[1].value, "cached@1");
    shed_value_unref(items[1].value);
    EXPECT_OK(items[2].code);
    check_text(items[2].value, "old@1");
    shed_value_unref(items[2].value);
    atomic_store(&may_return, true);
    expect_text(fixture.cache, "one", "one@1");
}

TEST(a_redis_that_hangs_holds_nobody_beyond_the_deadline)
{
    struct ending e;

    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    server_freeze(&fixture.server);
    (void)begin("k", WITHIN(30), &e, NULL);
    expect_ending(&e, SHED_ETIMEDOUT);
    server_thaw(&fixture.server);
    expect_async("k", NULL, "k@1", SHED_ORIGIN_REDIS);
}

TEST(a_cancelled_call_ends_at_once)
{
    struct ending e;
    struct getter getter = {.timeout_ms = 0};
    struct shed_pending *pending;

    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    pending = begin("k", NULL, &e, NULL);
    ck_assert_int_eq(shed_cancel(pending), 1);
    expect_ending(&e, SHED_ETIMEDOUT);
    ck_assert_str_eq(e.reason, "the call was cancelled");
    table_release(&fixture.table);
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
}

TEST(a_call_in_a_queue_is_too_late_to_be_cancelled)
{
    struct shed_queue *queue = open_queue();
    struct shed_pending *pending;
    struct ending e;

    fixture_open(&fixture);
    pending = begin("k", NULL, &e, queue);
    WAIT_FOR(is_readable(queue));
    ck_assert_int_eq(shed_cancel(pending), 0);
    ck_assert_uint_eq(shed_queue_collect(queue, 1), 1);
    expect_row(&e, "k@1", SHED_ORIGIN_LOAD);
    shed_queue_close(queue);
}

/* Whichever comes first, it ends once, and as shed_cancel has said. */
TEST(a_cancel_that_races_with_the_answer_ends_it_once)
{
    struct shed_queue *queue = open_queue();

    fixture_open(&fixture);
    for (unsigned i = 0; i < 2000; i++) {
        struct ending e;
        struct shed_pending *pending;
        char key[16];
        bool is_cancelled;
        snprintf(key, sizeof(key), "k%u", i % 7);
        pending = begin(key, NULL, &e, queue);
        for (unsigned spin = 0; spin < i % 300; spin++)
            (void)is_readable(queue);
        is_cancelled = shed_cancel(pending) == 1;
        WAIT_FOR(shed_queue_collect(queue, 1) == 1);
        expect_ending(&e, is_cancelled ? SHED_ETIMEDOUT : SHED_OK);
        ck_assert_int_eq(e.value == NULL, is_cancelled);
        shed_value_unref(e.value);
    }
    ck_assert_uint_eq(shed_queue_collect(queue, 1), 0);
    shed_queue_close(queue);
}

TEST(beyond_the_limit_calls_are_turned_away)
{
    const struct shed_then then = {note_ending, NULL, NULL};
    struct getter getter = {.timeout_ms = 0};
    struct shed_item items[] = {{.key = shed_str("a")}, {.key = shed_str("b")}};
    struct ending e[2];
    struct shed_error err;

    fixture.cache_options.async_limit = 2;
    fixture.source_options.callers_limit = 1; /* bounds blocking calls */
    fixture_open(&fixture);
    getter_hold(&getter, &fixture, "k");
    (void)begin("k", NULL, &e[0], NULL);
    EXPECT_CODE(
        shed_get_many_async(fixture.cache, items, 2, NULL, &then, NULL, &err),
        SHED_EBUSY); /* each key counts */
    (void)begin("k", NULL, &e[1], NULL);
    EXPECT_CODE(shed_get_async(fixture.cache, shed_str("k"), NULL, &then, NULL,
                               NULL, &err),
                SHED_EBUSY);
    table_release(&fixture.table);
    for (int i = 0; i < 2; i++)
        take_row(&e[i], "k@1");
    getter_expect(&getter, "k@1", SHED_ORIGIN_LOAD);
}

/* Not when shed_cancel returns: when the call has ended, collected or not. */
TEST(a_cancelled_call_makes_room_when_it_has_ended)
{
    struct shed_queue *queue = open_queue();
    struct ending first, e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, queue};
    struct shed_pending *pending;

    fixture.cache_options.async_limit = 1;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    pending = begin("k", NULL, &first, queue);
    WAIT_FOR(table_running(&fixture.table) == 1);
    EXPECT_CODE(shed_get_async(fixture.cache, shed_str("l"), NULL, &then, NULL,
                               NULL, NULL),
                SHED_EBUSY);
    ck_assert_int_eq(shed_cancel(pending), 1);
    WAIT_FOR(is_readable(queue));
    EXPECT_OK(shed_get_async(fixture.cache, shed_str("l"), NULL, &then, NULL,
                             NULL, NULL));
    table_release(&fixture.table);
    WAIT_FOR((shed_queue_collect(queue, 2), atomic_load(&e.calls) == 1));
    expect_ending(&first, SHED_ETIMEDOUT);
    expect_row(&e, "l@1", SHED_ORIGIN_LOAD);
    shed_queue_close(queue);
}

TEST(closing_the_cache_ends_calls)
{
    struct shed_queue *queue = open_queue();
    struct ending e[2];

    fixture.table.is_async = true;
    fixture_open(&fixture);
    table_hold(&fixture.table);
    (void)begin("k", NULL, &e[0], NULL);
    (void)begin("l", NULL, &e[1], queue);
    WAIT_FOR(table_running(&fixture.table) > 0);
    server_freeze(&fixture.server); /* its load cannot be published */
    server_thaw(&fixture.server);
    table_release(&fixture.table);
    shed_cache_close(fixture.cache);
    fixture.cache = NULL;
    ck_assert_uint_eq(atomic_load(&e[0].calls), 1);
    ck_assert_uint_eq(shed_queue_collect(queue, 10), 1);
    for (int i = 0; i < 2; i++) {
        ck_assert(e[i].code == SHED_ECLOSED || e[i].code == SHED_OK);
        shed_value_unref(e[i].value);
    }
    shed_queue_close(queue);
}

struct late {
    struct shed_item item;
    struct ending e;
};

static void get_late(void *user, enum shed_code code, struct shed_value *value,
                     const struct shed_error *reason)
{
    struct late *late = user;
    const struct shed_then then = {note_ending, &late->e, NULL};

    (void)reason;
    ck_assert_int_eq(code, SHED_ECLOSED);
    ck_assert_ptr_null(value);
    EXPECT_OK(shed_get_many_async(fixture.cache, &late->item, 1, NULL, &then,
                                  NULL, NULL));
}

TEST(a_get_of_many_that_begins_while_the_cache_closes_says_so)
{
    struct late late = {.item = {.key = shed_str("l")}};
    const struct shed_then then = {get_late, &late, NULL};

    fixture.client_options.command_timeout_ms = scaled_ms(200);
    fixture_open(&fixture);
    expect_async("k", NULL, "k@1", SHED_ORIGIN_LOAD); /* there is a session */
    server_freeze(&fixture.server);
    EXPECT_OK(shed_get_async(fixture.cache, shed_str("k"), NULL, &then, NULL,
                             NULL, NULL));
    shed_cache_close(fixture.cache);
    fixture.cache = NULL;
    server_thaw(&fixture.server);
    expect_ending(&late.e, SHED_ECLOSED);
    ck_assert_int_eq(late.item.code, SHED_ECLOSED);
}

TEST(wrong_arguments_are_refused_and_nothing_is_called)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL},
                           none = {NULL, &e, NULL};
    struct shed_pending *pending = (struct shed_pending *)&e;
    const struct shed_bytes k = shed_str("k");
    struct shed_cache *cache;

    fixture_open(&fixture);
    cache = fixture.cache;
    const enum shed_code codes[] = {
        shed_get_async(cache, shed_str(""), NULL, &then, NULL, &pending, NULL),
        shed_get_async(cache, k, NULL, &none, NULL, NULL, NULL),
        shed_get_async(cache, k, NULL, NULL, NULL, NULL, NULL),
        shed_get_async(cache, k, GET_WITH(.only_cached = 2), &then, NULL, NULL,
                       NULL),
        shed_get_async(NULL, k, NULL, &then, NULL, NULL, NULL),
        shed_queue_open(NULL, NULL)};
    ck_assert_ptr_null(pending);
    for (size_t i = 0; i < COUNT_OF(codes); i++)
        EXPECT_CODE(codes[i], SHED_EINVAL);
    shed_queue_close(NULL);
    fixture_down(&fixture);
    ck_assert_uint_eq(atomic_load(&e.calls), 0);
}

/* ----------------------------------------------------------------- writes */

TEST(a_put_is_read_after_its_end)
{
    fixture_open(&fixture);
    for (int i = 0; i < 20; i++) {
        char row[16];
        snprintf(row, sizeof(row), "row %d", i);
        EXPECT_OK(put_async("k", row, NULL));
        expect_text(fixture.cache, "k", row);
    }
    EXPECT_OK(put_async("v", "later", AT_VERSION(7)));
    EXPECT_OK(put_async("v", "earlier", AT_VERSION(3)));
    expect_text(fixture.cache, "v", "later");
    ck_assert_uint_eq(stats_of(fixture.cache).puts, 22);
}

TEST(a_put_can_have_tags)
{
    const struct shed_bytes tag = shed_str("red");
    struct shed_put_options o = SHED_PUT_OPTIONS_INIT;

    fixture.cache_options.tags_limit = 100;
    fixture_open(&fixture);
    o.tags = &tag;
    o.tags_count = 1;
    EXPECT_OK(put_async("k", "put", &o));
    expect_text(fixture.cache, "k", "put");
    EXPECT_OK(shed_invalidate_tags(fixture.cache, &tag, 1, 0, NULL));
    expect_text(fixture.cache, "k", "k@1");
}

TEST(an_invalidated_row_is_loaded_again)
{
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    EXPECT_OK(awaited_invalidate(fixture.cache, shed_str("k"), 0, NULL));
    expect_text(fixture.cache, "k", "k@2");
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations, 1);
}

TEST(a_write_that_redis_may_have_missed_is_delivered)
{
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1");
    table_update(&fixture.table);
    server_freeze(&fixture.server);
    EXPECT_CODE(awaited_invalidate(fixture.cache, shed_str("k"), 30, NULL),
                SHED_ETIMEDOUT);
    ck_assert_uint_eq(stats_of(fixture.cache).invalidations_undelivered, 1);
    server_thaw(&fixture.server);
    expect_text(fixture.cache, "k", "k@2");
}

/* It is not carried out after its end: what is stored then stays. */
TEST(a_put_that_is_cancelled_on_its_way_ends_when_it_cannot_be_late)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};
    struct shed_pending *pending;
    uint64_t begun_ms;

    fixture_open(&fixture);
    EXPECT_OK(put_async("k", "first", NULL));
    server_freeze(&fixture.server);
    EXPECT_OK(shed_put_async(fixture.cache, shed_str("k"), shed_str("second"),
                             NULL, &then, &pending, NULL));
    usleep(20000); /* it is sent */
    begun_ms = shed_now_ms();
    ck_assert_int_eq(shed_cancel(pending), 1);
    expect_ending(&e, SHED_ETIMEDOUT);
    ck_assert_ptr_null(e.value);
    ck_assert_uint_ge(shed_now_ms() - begun_ms, 900);
    server_thaw(&fixture.server);
    expect_text(fixture.cache, "k", "k@1"); /* it was invalidated */
}

TEST(closing_the_cache_ends_writes)
{
    struct shed_queue *queue = open_queue();
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, queue};

    fixture.cache_options.timeout_ms =
        scaled_ms(500); /* of the last delivery */
    fixture.client_options.command_timeout_ms = scaled_ms(200);
    fixture_open(&fixture);
    expect_text(fixture.cache, "k", "k@1"); /* there is a session */
    server_freeze(&fixture.server);
    EXPECT_OK(shed_invalidate_async(fixture.cache, shed_str("k"), 3600000,
                                    &then, NULL, NULL));
    shed_cache_close(fixture.cache);
    fixture.cache = NULL;
    server_thaw(&fixture.server);
    ck_assert_uint_eq(shed_queue_collect(queue, 2), 1);
    expect_ending(&e, SHED_ECLOSED);
    shed_queue_close(queue);
}

/* ------------------------------------------------------------------- fork */

/* Returns: 0: it is refused all. */
static int use_in_child(struct shed_queue *queue, struct shed_pending *pending)
{
    struct shed_cache *cache = fixture.cache;
    struct shed_bytes k = shed_str("k");
    struct shed_item item = {.key = k};
    struct ending e;
    const struct shed_then then = {note_ending, &e, queue};
    const enum shed_code codes[] = {
        shed_get_async(cache, k, NULL, &then, NULL, NULL, NULL),
        shed_get_many_async(cache, &item, 1, NULL, &then, NULL, NULL),
        shed_put_async(cache, k, k, NULL, &then, NULL, NULL),
        shed_invalidate_async(cache, k, 0, &then, NULL, NULL)};

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i] != SHED_EFORKED)
            return (int)i + 1;
    if (shed_cancel(pending) != 0 || shed_queue_collect(queue, 2) != 0)
        return 10;
    shed_queue_close(queue);
    shed_cache_close(cache);
    shed_client_close(fixture.client);
    return 0;
}

TEST(a_child_is_refused_and_the_calls_of_the_parent_go_on)
{
    struct shed_queue *queue = open_queue();
    struct shed_pending *pending;
    struct ending e[2];
    long long clients;
    pid_t child;

    fixture_open(&fixture);
    expect_text(fixture.cache, "there", "there@1");
    wait_for_pushes(&fixture);
    (void)begin("there", NULL, &e[0], queue);
    WAIT_FOR(is_readable(queue));
    table_hold(&fixture.table);
    pending = begin("k", NULL, &e[1], queue);
    WAIT_FOR(table_running(&fixture.table) > 0);
    clients = server_clients(&fixture.server, "");
    child = fork();
    if (child == 0)
        _exit(use_in_child(queue, pending));
    expect_success(child);
    table_release(&fixture.table);
    for (size_t ended = 0; ended < 2; ended += shed_queue_collect(queue, 2))
        ;
    expect_row(&e[0], "there@1", SHED_ORIGIN_REDIS);
    expect_row(&e[1], "k@1", SHED_ORIGIN_LOAD);
    ck_assert_int_eq(server_clients(&fixture.server, ""), clients);
    shed_queue_close(queue);
}

/* ------------------------------------------------------------------- near */

TEST(a_near_row_is_given_at_once)
{
    struct ending e = {.calls = 0};
    const struct shed_then then = {note_ending, &e, NULL};
    struct shed_value *near = NULL;

    fixture.cache_options.near_bytes = 1 << 20;
    fixture_open(&fixture);
    wait_for_pushes(&fixture);
    WAIT_FOR((expect_text(fixture.cache, "k", "k@1"),
              stats_of(fixture.cache).near_hits > 0));
    EXPECT_OK(shed_get_async(fixture.cache, shed_str("k"), NULL, &then, &near,
                             NULL, NULL));
    ck_assert_ptr_nonnull(near);
    check_text(near, "k@1");
    shed_value_unref(near);
    ck_assert_uint_eq(atomic_load(&e.calls), 0);
    expect_async("k", NULL, "k@1", SHED_ORIGIN_REDIS);
}

int main(void)
{
    return run_fixture_tests("async");
}
