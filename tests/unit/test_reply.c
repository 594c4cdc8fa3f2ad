/* Replies: each accessor on each type, and the meaning of the errors of Redis,
 * as its sources write them. */
#include "support/reply_testing.h"

struct kind {
    const char *wire;
    const char *bytes, *error; /* NULL: none */
    long long integer;
    size_t count;
    bool is_nil;
};

static const struct kind kinds[] = {
    {"$3\r\nabc\r\n", "abc", NULL, -1, 0, false},
    {"$0\r\n\r\n", "", NULL, -1, 0, false},
    {"+OK\r\n", "OK", NULL, -1, 0, false},
    {"-ERR no\r\n", NULL, "ERR no", -1, 0, false},
    {":7\r\n", NULL, NULL, 7, 0, false},
    {":0\r\n", NULL, NULL, 0, 0, false},
    {"$-1\r\n", NULL, NULL, -1, 0, true},
    {"*-1\r\n", NULL, NULL, -1, 0, true},
    {"*2\r\n:1\r\n$1\r\na\r\n", NULL, NULL, -1, 2, false},
    {"*0\r\n", NULL, NULL, -1, 0, false},
};

TEST_EACH(a_reply_of_another_type_reads_as_nothing, 0, COUNT_OF(kinds))
{
    const struct kind *k = &kinds[_i];
    struct shed_reply *reply = parse_reply(k->wire);
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    ck_assert_int_eq(bytes != NULL, k->bytes != NULL);
    if (bytes != NULL) {
        ck_assert_uint_eq(size, strlen(k->bytes));
        ck_assert_mem_eq(bytes, k->bytes, size);
    }
    ck_assert_pstr_eq(shed_reply_error(reply), k->error);
    ck_assert_int_eq(shed_reply_integer(reply), k->integer);
    ck_assert_uint_eq(shed_reply_count(reply), k->count);
    ck_assert_int_eq(shed_reply_is_nil(reply), k->is_nil);
    ck_assert_ptr_null(shed_reply_at(reply, k->count));
    shed_reply_free(reply);
}

TEST(an_error_does_not_quote_what_was_sent)
{
    struct shed_reply *reply = parse_reply(
        "-ERR unknown command `X`, with args beginning with: `secret`\r\n");

    ck_assert_str_eq(shed_reply_error(reply), "ERR unknown command `X`");
    shed_reply_free(reply);
}

TEST(no_reply_reads_as_nothing)
{
    size_t size;

    ck_assert_ptr_null(shed_reply_bytes(NULL, &size));
    ck_assert_ptr_null(shed_reply_error(NULL));
    ck_assert_int_eq(shed_reply_integer(NULL), -1);
    ck_assert_uint_eq(shed_reply_count(NULL), 0);
    ck_assert(!shed_reply_is_nil(NULL));
    ck_assert(!shed_reply_begins(NULL, ""));
    ck_assert_ptr_null(shed_reply_take(NULL, 0));
    shed_reply_free(NULL);
}

TEST(what_is_taken_out_of_an_array_outlives_it)
{
    struct shed_reply *reply = parse_reply("*2\r\n$1\r\na\r\n:5\r\n");
    struct shed_reply *taken = shed_reply_take(reply, 0);

    ck_assert_ptr_null(shed_reply_at(reply, 0));
    ck_assert_int_eq(shed_reply_integer(shed_reply_at(reply, 1)), 5);
    shed_reply_free(reply);
    ck_assert(shed_reply_begins(taken, "a"));
    ck_assert(!shed_reply_begins(taken, "ab"));
    shed_reply_free(taken);
}

/* What the trouble is with a server, and what it says of the server. */
enum { NOTHING, NO_PRIMARY, UNFIT };

static const struct meaning {
    const char *error;
    enum shed_trouble trouble;
    int says;
} meanings[] = {
    {"LOADING Redis is loading the dataset in memory", SHED_TROUBLE_PASSING,
     UNFIT},
    {"BUSY Redis is busy running a script.", SHED_TROUBLE_PASSING, UNFIT},
    {"MASTERDOWN Link with MASTER is down", SHED_TROUBLE_PASSING, NO_PRIMARY},
    {"CLUSTERDOWN The cluster is down", SHED_TROUBLE_PASSING, UNFIT},
    {"CLUSTERDOWN Hash slot not served", SHED_TROUBLE_PASSING, NOTHING},
    {"MOVED 1 h:2", SHED_TROUBLE_PASSING, NOTHING},
    {"ASK 1 h:2", SHED_TROUBLE_PASSING, NOTHING},
    {"TRYAGAIN Multiple keys request during rehashing of slot",
     SHED_TROUBLE_DOWN, NOTHING},
    {"ERR max number of clients reached", SHED_TROUBLE_PASSING, UNFIT},
    {"OOM command not allowed when used memory > 'maxmemory'.",
     SHED_TROUBLE_NO_WRITE, NOTHING},
    {"OOM not READONLY", SHED_TROUBLE_NO_WRITE, NOTHING},
    /* as Redis 6 reports an error inside a script */
    {"ERR Error running script (call to f_1): @user_script:1: -OOM command "
     "not allowed",
     SHED_TROUBLE_NO_WRITE, NOTHING},
    {"ERR Error running script (call to f_1): @user_script:1: -READONLY You "
     "can't write against a read only replica.",
     SHED_TROUBLE_PASSING, NO_PRIMARY},
    /* as Redis 7 reports one that the script has raised */
    {"ERR user_script:28: OOM command not allowed when used memory > "
     "'maxmemory'. script: f, on @user_script:28.",
     SHED_TROUBLE_NO_WRITE, NOTHING},
    {"READONLY You can't write against a read only replica. script: f, on "
     "@user_script:1.",
     SHED_TROUBLE_PASSING, NO_PRIMARY},
    {"MISCONF Redis is configured to save RDB snapshots", SHED_TROUBLE_NO_WRITE,
     NOTHING},
    {"NOREPLICAS Not enough good replicas to write.", SHED_TROUBLE_NO_WRITE,
     NOTHING},
    {"READONLY You can't write against a read only replica.",
     SHED_TROUBLE_PASSING, NO_PRIMARY},
    {"NOAUTH Authentication required.", SHED_TROUBLE_DENIED, NOTHING},
    {"ERR Protocol error: unauthenticated multibulk length",
     SHED_TROUBLE_DENIED, NOTHING},
    {"ERR Protocol error: unauthenticated bulk length", SHED_TROUBLE_DENIED,
     NOTHING},
    {"WRONGPASS invalid username-password pair or user is disabled.",
     SHED_TROUBLE_DENIED, NOTHING},
    {"ERR invalid password", SHED_TROUBLE_DENIED, NOTHING},
    {"NOPERM this user has no permissions to run the 'get' command",
     SHED_TROUBLE_DENIED, NOTHING},
    /* Redis 7.2 names the user */
    {"NOPERM User ROOMS has no permissions to run the 'get' command",
     SHED_TROUBLE_DENIED, NOTHING},
    {"NOPERM User READONLY has no permissions to run the 'set' command",
     SHED_TROUBLE_DENIED, NOTHING},
    {"NOPERM User for-READONLY has no permissions to run the 'set' command",
     SHED_TROUBLE_DENIED, NOTHING},
    {"NOPERM User app-OOM has no permissions to run the 'get' command",
     SHED_TROUBLE_DENIED, NOTHING},
    {"NOPERM No permissions to access a key", SHED_TROUBLE_DENIED, NOTHING},
    {"DENIED Redis is running in protected mode because protected mode is "
     "enabled",
     SHED_TROUBLE_DENIED, NOTHING},
    {"ERR The user executing the script can't run this command or subcommand",
     SHED_TROUBLE_DENIED, NOTHING},
    {"ERR ACL failure in script: User LOADING has no permissions to run the "
     "'get' "
     "command",
     SHED_TROUBLE_DENIED, NOTHING},
    {"ERR unknown command 'FOO'", SHED_TROUBLE_DENIED, NOTHING},
    {"ERR Unknown Redis command called from script", SHED_TROUBLE_DENIED,
     NOTHING},
    {"WRONGTYPE Operation against a key holding the wrong kind of value",
     SHED_TROUBLE_DOWN, NOTHING},
};

TEST_EACH(an_error_means_what_its_code_says, 0, COUNT_OF(meanings))
{
    const struct meaning *m = &meanings[_i];
    struct shed_reply *reply =
        shed_reply_create_text(SHED_REPLY_ERROR, m->error, strlen(m->error));

    ck_assert_int_eq(shed_reply_trouble(reply), m->trouble);
    EXPECT_CODE(shed_reply_code(reply),
                m->trouble == SHED_TROUBLE_DENIED ? SHED_EDENIED : SHED_EREDIS);
    ck_assert_int_eq(shed_reply_is_no_primary(reply), m->says == NO_PRIMARY);
    ck_assert_int_eq(shed_reply_is_unfit(reply), m->says == UNFIT);
    shed_reply_free(reply);
}

TEST(what_is_no_error_says_nothing_of_a_server)
{
    static const char *const wires[] = {"+BUSY\r\n", "+MOVED 1 h:2\r\n"};

    ck_assert(!shed_reply_is_unfit(NULL));
    for (size_t i = 0; i < COUNT_OF(wires); i++) {
        struct shed_reply *reply = parse_reply(wires[i]);
        ck_assert(!shed_reply_is_unfit(reply));
        ck_assert(!shed_reply_is_elsewhere(reply));
        shed_reply_free(reply);
    }
}

TEST(a_role_is_that_of_a_primary_or_another)
{
    static const struct {
        const char *reply;
        bool is_other;
    } rows[] = {{"*1\r\n$6\r\nmaster\r\n", false},
                {"*1\r\n$5\r\nslave\r\n", true},
                {"*1\r\n$8\r\nsentinel\r\n", true},
                {"-NOPERM no\r\n", false},
                {"*0\r\n", false},
                {"+OK\r\n", false}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct shed_reply *reply = parse_reply(rows[i].reply);
        ck_assert(shed_reply_is_other_role(reply) == rows[i].is_other);
        shed_reply_free(reply);
    }
}

static const struct redirection {
    const char *wire;
    bool is_one;
    struct shed_redirect to;
} redirections[] = {
    {"-MOVED 3999 127.0.0.1:6381\r\n",
     true,
     {false, 3999, {"127.0.0.1", "6381"}}},
    {"-ASK 16383 redis-1:7\r\n", true, {true, 16383, {"redis-1", "7"}}},
    {"-MOVED 0 ::1:6379\r\n", true, {false, 0, {"::1", "6379"}}},
    /* the node's own */
    {"-MOVED 5 :6379\r\n", true, {false, 5, {"here", "6379"}}},
    {"-MOVED 16384 h:1\r\n", false, {0}},
    {"-MOVED 5\r\n", false, {0}},
    {"-MOVED 5 h\r\n", false, {0}},
    {"-MOVED  h:1\r\n", false, {0}},
    {"-MOVED 5 h:123456789012\r\n", false, {0}},
    {"-ASKING 5 h:1\r\n", false, {0}},
    {"-TRYAGAIN Multiple keys\r\n", false, {0}},
    {"+MOVED 5 h:1\r\n", false, {0}},
};

TEST_EACH(a_redirection_names_slot_host_and_port, 0, COUNT_OF(redirections))
{
    const struct redirection *r = &redirections[_i];
    struct shed_reply *reply = parse_reply(r->wire);
    struct shed_redirect to;

    ck_assert_int_eq(shed_reply_redirect(reply, "here", &to), r->is_one);
    if (r->is_one) {
        ck_assert_int_eq(to.is_ask, r->to.is_ask);
        ck_assert_uint_eq(to.slot, r->to.slot);
        ck_assert_str_eq(to.to.host, r->to.to.host);
        ck_assert_str_eq(to.to.port, r->to.to.port);
    }
    shed_reply_free(reply);
}

int main(void)
{
    return run_tests("reply");
}
