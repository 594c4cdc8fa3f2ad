/* The map of a cluster: what answers change, which of them are believed, and
 * when the next one is asked for. */
#include "client/cluster_map.h"

#include <stdio.h>

#include "support/random.h"
#include "support/reply_testing.h"

static struct shed_cluster_map map;
static bool may_nobody_own;

static bool may_own(void *arg, size_t i)
{
    (void)arg;
    (void)i;
    return !may_nobody_own;
}

static void setup(void)
{
    static const struct shed_place seed = {"seed", "7000"};

    may_nobody_own = false;
    map = (struct shed_cluster_map){.is_known = false};
    shed_cluster_map_init(&map, &seed, 0);
}

/* What a node answers: {first, last, {host, port}}. NULL: its own host. */
struct range {
    unsigned first, last;
    const char *host;
    unsigned port;
};

static struct shed_reply *answer_of(const struct range *ranges, size_t count)
{
    char wire[4096];
    int at = snprintf(wire, sizeof(wire), "*%zu\r\n", count);

    for (size_t i = 0; i < count; i++) {
        const struct range *r = &ranges[i];
        at += snprintf(wire + at, sizeof(wire) - (size_t)at,
                       "*3\r\n:%u\r\n:%u\r\n*2\r\n", r->first, r->last);
        if (r->host != NULL)
            at += snprintf(wire + at, sizeof(wire) - (size_t)at,
                           "$%zu\r\n%s\r\n", strlen(r->host), r->host);
        else
            at += snprintf(wire + at, sizeof(wire) - (size_t)at, "$-1\r\n");
        at +=
            snprintf(wire + at, sizeof(wire) - (size_t)at, ":%u\r\n", r->port);
    }
    return parse_reply(wire);
}

static struct shed_cluster_change take(const struct range *ranges, size_t count,
                                       uint64_t now_ms)
{
    struct shed_reply *reply = answer_of(ranges, count);
    struct shed_cluster_change change;

    shed_cluster_map_ask(&map, now_ms);
    change = shed_cluster_map_take(&map, reply, "own", now_ms, may_own, NULL);
    shed_reply_free(reply);
    return change;
}

/* Where a slot is, as host:port. */
static const char *place_of(unsigned slot)
{
    static char place[SHED_HOST_BYTES + SHED_PORT_BYTES];
    const struct shed_cluster_node *node = &map.node[map.owner[slot]];

    (void)snprintf(place, sizeof(place), "%s:%s", node->at.host, node->at.port);
    return place;
}

static size_t find(const char *host, const char *port)
{
    struct shed_place at = {.host = ""};

    (void)snprintf(at.host, sizeof(at.host), "%s", host);
    (void)snprintf(at.port, sizeof(at.port), "%s", port);
    return shed_cluster_map_find(&map, &at, 0);
}

static size_t slots_of(const char *host, const char *port)
{
    return map.node[find(host, port)].slots;
}

static const struct range halves[] = {{0, 8191, "a", 1}, {8192, 16383, "b", 2}};

TEST(before_the_first_answer_all_slots_are_at_the_seed)
{
    ck_assert_str_eq(place_of(0), "seed:7000");
    ck_assert_str_eq(place_of(16383), "seed:7000");
    ck_assert(!map.is_known);
    ck_assert_uint_eq(map.ask_ms, 0);
}

TEST(an_answer_gives_each_slot_its_node)
{
    struct shed_cluster_change change = take(halves, 2, 0);

    ck_assert(change.is_valid && change.has_moved);
    ck_assert(!change.was_replaced); /* the seed was only a guess */
    ck_assert_str_eq(place_of(8191), "a:1");
    ck_assert_str_eq(place_of(8192), "b:2");
    ck_assert_uint_eq(slots_of("seed", "7000"), 0);
    change = take(halves, 2, 1);
    ck_assert(change.is_valid && !change.has_moved);
}

TEST(a_slot_that_nobody_serves_stays_where_it_was)
{
    (void)take(halves, 2, 0);
    (void)take(halves, 1, 1);
    ck_assert_str_eq(place_of(16383), "b:2");
}

TEST(a_node_that_lost_all_its_slots_was_replaced)
{
    const struct range moved[] = {{0, 8191, "a", 1}, {8192, 16383, "c", 3}};
    const struct range part[] = {{0, 9000, "a", 1}, {9001, 16383, "c", 3}};

    (void)take(halves, 2, 0);
    ck_assert(take(moved, 2, 1).was_replaced);
    ck_assert(take(part, 2, 2).has_moved);
    ck_assert(!take(part, 2, 3).was_replaced);
}

TEST(a_host_that_is_not_told_is_that_of_the_node)
{
    const struct range own[] = {{0, 8191, NULL, 1}, {8192, 16383, "", 2}};

    ck_assert(take(own, 2, 0).is_valid);
    ck_assert_str_eq(place_of(0), "own:1");
    ck_assert_str_eq(place_of(16383), "own:2");
}

TEST(what_is_no_map_changes_nothing_and_another_node_is_asked)
{
    static const char *const wires[] = {
        "-ERR This instance has cluster support disabled\r\n",
        "*0\r\n",
        "+OK\r\n",
        "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:0\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\n?\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n:1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:4\r\n",
        "*2\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n:7\r\n",
    };

    (void)take(halves, 2, 0);
    for (size_t i = 0; i < sizeof(wires) / sizeof(*wires); i++) {
        struct shed_reply *reply = parse_reply(wires[i]);
        struct shed_cluster_change change;
        shed_cluster_map_ask(&map, 10000 * i);
        change =
            shed_cluster_map_take(&map, reply, "own", 10000 * i, may_own, NULL);
        shed_reply_free(reply);
        ck_assert_msg(!change.is_valid && !change.has_moved, "%s", wires[i]);
        ck_assert(map.is_doubted);
        ck_assert_str_eq(place_of(0), "a:1");
        ck_assert_uint_le(map.ask_ms, 10000 * i + SHED_MAP_SOON_MS);
    }
}

TEST(a_node_that_cannot_be_used_gets_no_slots)
{
    may_nobody_own = true;
    ck_assert(!take(halves, 2, 0).has_moved);
    ck_assert_str_eq(place_of(0), "seed:7000");
}

static const struct shed_redirect to_c = {.slot = 5, .to = {"c", "3"}};

TEST(an_answer_that_contradicts_a_newer_redirection_is_doubted)
{
    const struct range moved[] = {{0, 8191, "c", 3}, {8192, 16383, "b", 2}};
    struct shed_reply *old = answer_of(halves, 2);

    (void)take(halves, 2, 0);
    shed_cluster_map_ask(&map, 10000);
    (void)shed_cluster_map_hurry(&map, &to_c, false, 10001);
    (void)shed_cluster_map_take(&map, old, "own", 10002, may_own, NULL);
    shed_reply_free(old);
    ck_assert(map.is_doubted);
    ck_assert_uint_lt(map.ask_ms, 10002 + SHED_MAP_EVERY_MS);
    (void)take(moved, 2, 11000);
    ck_assert(!map.is_doubted);
    ck_assert_uint_eq(map.ask_ms, 11000 + SHED_MAP_EVERY_MS);
}

TEST(a_redirection_asks_at_once_and_another_one_a_little_later)
{
    uint64_t now_ms = 1000;

    (void)take(halves, 2, 0);
    ck_assert(shed_cluster_map_hurry(&map, &to_c, false, now_ms));
    ck_assert_uint_eq(map.ask_ms, now_ms);
    ck_assert(!shed_cluster_map_hurry(&map, &to_c, false, now_ms));
    (void)take(halves, 2, now_ms); /* nothing new */
    (void)shed_cluster_map_hurry(&map, NULL, false, now_ms + 1);
    ck_assert_uint_eq(map.ask_ms, now_ms + SHED_MAP_SOON_MS);
}

TEST(a_cluster_that_is_down_is_asked_elsewhere)
{
    (void)take(halves, 2, 0);
    (void)shed_cluster_map_hurry(&map, NULL, true, 10000);
    ck_assert(map.is_doubted);
}

TEST(there_are_no_more_nodes_than_fit)
{
    char port[SHED_PORT_BYTES];

    for (unsigned i = 0; i < SHED_CLUSTER_NODES_MAX - 1; i++) {
        (void)snprintf(port, sizeof(port), "%u", i);
        ck_assert_uint_lt(find("h", port), SHED_CLUSTER_NODES_MAX);
    }
    ck_assert_uint_eq(find("other", "1"), SHED_CLUSTER_NODES_MAX);
    shed_cluster_map_forget(&map, find("h", "7"));
    ck_assert_uint_lt(find("other", "1"), SHED_CLUSTER_NODES_MAX);
}

/* ------------------------------------------------------------ a simulation */

enum { NODES = 4, PIECES = 16, PIECE = SHED_HASH_SLOTS / PIECES, STEPS = 400 };

/* A cluster whose nodes hear late of what has moved. */
struct world {
    unsigned truth[PIECES];
    unsigned told[NODES][PIECES]; /* what each node says */
    unsigned asked;               /* node */
    uint64_t now_ms, asked_ms;
};

static struct shed_reply *answer_from(const struct world *w)
{
    static const char *const hosts[NODES] = {"n0", "n1", "n2", "n3"};
    struct range ranges[PIECES];

    for (unsigned i = 0; i < PIECES; i++)
        ranges[i] = (struct range){i * PIECE, (i + 1) * PIECE - 1,
                                   hosts[w->told[w->asked][i]], 1};
    return answer_of(ranges, PIECES);
}

static bool is_true(const struct world *w)
{
    for (unsigned i = 0; i < PIECES; i++)
        if (map.node[map.owner[i * PIECE]].at.host[1] - '0' != (int)w->truth[i])
            return false;
    return true;
}

static void check_counts(void)
{
    size_t slots[SHED_CLUSTER_NODES_MAX] = {0};

    for (unsigned i = 0; i < SHED_HASH_SLOTS; i++)
        slots[map.owner[i]]++;
    for (size_t i = 0; i < SHED_CLUSTER_NODES_MAX; i++)
        ck_assert_uint_eq(map.node[i].slots, slots[i]);
}

/* A call finds the present owner, who redirects it if the map is wrong. */
static void call(struct world *w, uint64_t *state)
{
    unsigned piece = (unsigned)(random_next(state) % PIECES);
    struct shed_redirect to = {.slot = piece * PIECE, .to = {.port = "1"}};

    (void)snprintf(to.to.host, sizeof(to.to.host), "n%u", w->truth[piece]);
    if (strcmp(map.node[map.owner[to.slot]].at.host, to.to.host) != 0)
        (void)shed_cluster_map_hurry(&map, &to, false, w->now_ms);
}

static void ask(struct world *w)
{
    struct shed_reply *reply;

    ck_assert_uint_ge(w->now_ms, w->asked_ms);
    if (w->asked_ms > 0)
        ck_assert_uint_ge(w->now_ms - w->asked_ms, SHED_MAP_SOON_MS);
    w->asked_ms = w->now_ms;
    if (map.is_doubted)
        w->asked = (w->asked + 1) % NODES;
    shed_cluster_map_ask(&map, w->now_ms);
    reply = answer_from(w);
    ck_assert(
        shed_cluster_map_take(&map, reply, "own", w->now_ms, may_own, NULL)
            .is_valid);
    shed_reply_free(reply);
    ck_assert_uint_le(map.ask_ms, w->now_ms + SHED_MAP_EVERY_MS);
}

TEST_EACH(once_nothing_moves_calls_bring_the_map_to_the_truth, 0, 200)
{
    uint64_t state = (uint64_t)_i + 1;
    struct world w = {.now_ms = 1};

    setup();
    for (int step = 0; step < STEPS; step++) {
        uint64_t choice = random_next(&state) % 8;
        unsigned piece = (unsigned)(random_next(&state) % PIECES);
        bool still = step > STEPS / 2;
        w.now_ms += random_next(&state) % 40;
        if (w.now_ms >= map.ask_ms)
            ask(&w);
        if (choice == 0 && !still)
            w.truth[piece] = (unsigned)(random_next(&state) % NODES);
        else if (choice < 3) /* one node, the last one never, hears of it */
            w.told[random_next(&state) % (NODES - 1)][piece] = w.truth[piece];
        else
            call(&w, &state);
    }
    check_counts();
    for (unsigned n = 0; n + 1 < NODES; n++)
        memcpy(w.told[n], w.truth, sizeof(w.truth));
    for (int step = 0; step < 4 * PIECES * NODES && !is_true(&w); step++) {
        call(&w, &state);
        w.now_ms += 20;
        if (w.now_ms >= map.ask_ms)
            ask(&w);
    }
    while (!is_true(&w) && w.now_ms < 1000000) {
        for (int i = 0; i < PIECES; i++)
            call(&w, &state);
        w.now_ms = map.ask_ms;
        ask(&w);
    }
    ck_assert(is_true(&w));
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), setup, NULL);
    return run_tests("cluster_map");
}
