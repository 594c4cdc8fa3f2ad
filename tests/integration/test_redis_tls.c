/* Caches on a Redis that is reached by TLS. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/awaited.h"
#include "support/certificates.h"
#include "support/fixture.h"

static char dir[] = "/tmp/shed-tls-XXXXXX";

static const char *at(const char *file)
{
    return certificates_path(dir, file);
}

static void init(void)
{
    fixture_init_tls(&fixture, dir);
}

/* The server shows another certificate from now on. */
static void show(const char *name)
{
    char pem[CERTIFICATES_PATH_BYTES], key[CERTIFICATES_PATH_BYTES];

    snprintf(pem, sizeof(pem), "%s/%s.pem", dir, name);
    snprintf(key, sizeof(key), "%s/%s.key", dir, name);
    server_do(&fixture.server, "CONFIG SET tls-cert-file %s tls-key-file %s",
              pem, key);
}

static void cut_connections(void)
{
    server_do(&fixture.server, "CLIENT KILL TYPE normal SKIPME yes");
    server_do(&fixture.server, "CLIENT KILL TYPE pubsub");
}

/* ------------------------------------------------------------------- rows */

TEST_EACH(rows_are_loaded_given_out_and_invalidated, 0, 2)
{
    static const char *const schemes[] = {"rediss", "valkeys"};
    char uri[SERVER_URI_BYTES];

    snprintf(uri, sizeof(uri), "%s://127.0.0.1:%u/0", schemes[_i],
             fixture.server.tls_port);
    fixture.uri = uri;
    fixture_open(&fixture);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_LOAD);
    expect_origin(fixture.cache, "k", "k@1", SHED_ORIGIN_REDIS);
    table_update(&fixture.table);
    invalidate(fixture.cache, "k");
    expect_origin(fixture.cache, "k", "k@2", SHED_ORIGIN_LOAD);
}

/* More than the socket and a record take, both ways. 0: by calls that block; 1:
 * by asynchronous ones. */
TEST_EACH(long_rows_go_both_ways, 0, 2)
{
    enum { LONG = 3000000 };
    static char row[LONG];
    struct shed_put_options patient = SHED_PUT_OPTIONS_INIT;
    struct shed_value *value = NULL;

    patient.timeout_ms = scaled_ms(FIXTURE_TIMEOUT_MS);

    for (size_t i = 0; i < LONG; i++)
        row[i] = (char)(i * 7 % 251);
    fixture.cache_options.value_limit_bytes = LONG;
    fixture_open(&fixture);
    for (int i = 0; i < 5; i++) {
        EXPECT_OK((_i == 0 ? shed_put : awaited_put)(
            fixture.cache, shed_str("k"), shed_bytes(row, LONG), &patient,
            NULL));
        EXPECT_OK((_i == 0 ? shed_get : awaited_get)(
            fixture.cache, shed_str("k"), NULL, &value, NULL));
        ck_assert_int_eq(value->origin, SHED_ORIGIN_REDIS);
        ck_assert_uint_eq(value->size, LONG);
        ck_assert_int_eq(memcmp(value->data, row, LONG), 0);
        shed_value_unref(value);
    }
}

/* Many threads on few links: one receives while another one sends. */
TEST(threads_share_links)
{
    fixture.client_options.links = 2;
    fixture_open(&fixture);
    readers_run(&(struct readers){
        .cache = fixture.cache, .threads = 16, .gets = 500, .keys = 50});
    ck_assert_uint_eq(stats_of(fixture.cache).unpublished, 0);
}

TEST(waiters_are_pushed)
{
    fixture_open(&fixture);
    fixture_expect_push(&fixture);
}

/* ------------------------------------------------------- servers that change
 */

static bool is_from_redis(void)
{
    struct shed_value *value = NULL;
    bool is_so =
        shed_get(fixture.cache, shed_str("k"), NULL, &value, NULL) == SHED_OK &&
        value->origin == SHED_ORIGIN_REDIS;

    shed_value_unref(value);
    return is_so;
}

TEST(a_server_that_was_restarted_is_found_again)
{
    fixture_hurry(&fixture, 2000);
    fixture_open(&fixture);
    WAIT_FOR(is_from_redis());
    server_kill(&fixture.server);
    WAIT_FOR(!is_from_redis());
    server_start_again(&fixture.server);
    WAIT_FOR(is_from_redis());
    WAIT_FOR(server_clients(&fixture.server, "flags=t") == 1);
}

static bool has_reason(const char *words)
{
    return strstr(status_of(fixture.client).last.reason, words) != NULL;
}

/* A server's certificate is replaced while it runs: connections go on, and
 * later ones must be able to believe it. */
TEST(a_certificate_may_be_replaced)
{
    fixture_hurry(&fixture, 2000);
    fixture_open(&fixture);
    WAIT_FOR(is_from_redis());
    certificate_make(
        dir, &(struct certificate){"successor", "ca", "DNS:localhost", 3});
    show("successor");
    ck_assert(is_from_redis());
    cut_connections();
    WAIT_FOR(is_from_redis());
    show("expired");
    ck_assert(is_from_redis());
    cut_connections();
    WAIT_FOR(has_reason("certificate has expired"));
    ck_assert(!is_from_redis());
    show("server");
    WAIT_FOR(is_from_redis());
}

TEST(a_server_that_wants_a_certificate_is_shown_ours)
{
    struct shed_client *client = NULL;
    struct shed_client_options options;

    fixture_hurry(&fixture, 2000);
    server_do(&fixture.server, "CONFIG SET tls-auth-clients yes");
    options = fixture.client_options;
    fixture.client_options.tls_cert = at("client.pem");
    fixture.client_options.tls_key = at("client.key");
    fixture_open(&fixture);
    WAIT_FOR(is_from_redis());
    fixture_close(&fixture);
    fixture.client_options = options;
    fixture_open(&fixture);
    WAIT_FOR(has_reason("requires a certificate of ours"));
    client = fixture.client;
    ck_assert_uint_eq(status_of(client).is_up, 0);
}

/* -------------------------------------------------------------------- fork */

/* ThreadSanitizer lets no thread be started in a child. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_OPENS false
#else
#define CHILD_OPENS true
#endif

static bool opens_its_own(void)
{
    struct shed_client *client = NULL;

    if (shed_client_open(fixture.uri, &fixture.client_options, &client, NULL) !=
        SHED_OK)
        return false;
    shed_client_close(client);
    return true;
}

/* A child that closes what it has inherited leaves the parent's connections as
 * they are, and has its own. */
TEST(a_child_opens_its_own)
{
    pid_t child;

    fixture_open(&fixture);
    WAIT_FOR(is_from_redis());
    child = fork();
    if (child == 0) {
        shed_cache_close(fixture.cache);
        shed_client_close(fixture.client);
        _exit(CHILD_OPENS && !opens_its_own());
    }
    expect_success(child);
    for (int i = 0; i < 20; i++)
        ck_assert(is_from_redis());
}

/* ------------------------------------------------------------------ the end */

/* What the tool prints about a key, or why it fails. */
static void ask_tool(const char *options, char *answer, size_t size)
{
    char command[512];
    FILE *tool;
    size_t got;

    snprintf(command, sizeof(command),
             TOOL " get cache k --redis rediss://127.0.0.1:%u %s 2>&1",
             fixture.server.tls_port, options);
    tool = popen(command, "r");
    ck_assert_ptr_nonnull(tool);
    got = fread(answer, 1, size - 1, tool);
    answer[got] = '\0';
    pclose(tool);
}

TEST(the_tool_verifies_the_certificate)
{
    char answer[1024], options[300];

    if (TOOL[0] == '\0')
        return; /* it is not built */
    server_do(&fixture.server, "CONFIG SET tls-auth-clients yes");
    snprintf(options, sizeof(options), "--cacert %s --cert %s --key %s",
             at("ca.pem"), at("client.pem"), at("client.key"));
    ask_tool(options, answer, sizeof(answer));
    ck_assert_msg(strstr(answer, "no entry") != NULL, "%s", answer);
    ask_tool("", answer, sizeof(answer));
    ck_assert_msg(strstr(answer, "certificate is not accepted") != NULL, "%s",
                  answer);
}

static void install(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    certificates_make(dir);
}

static void remove_all(void)
{
    certificates_remove(dir);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), install, remove_all);
    tcase_add_checked_fixture(test_case(), init, fixture_tear_down);
    return run_tests("redis_tls");
}
