/* What goes wrong between a client and a Redis that speaks TLS, or does not:
 * the reason is told, calls do without Redis, and all is well again afterwards.
 */
#include <stdio.h>
#include <string.h>

#include "support/certificates.h"
#include "support/fixture.h"

static char dir[] = "/tmp/shed-tls-XXXXXX";
static struct proxy proxy;

static void init(void)
{
    fixture_init_tls(&fixture, dir);
    fixture_hurry(&fixture, 500);
}

static void init_with_proxy(void)
{
    init();
    proxy = (struct proxy){.is_tcp = true};
    proxy_start(&proxy, &fixture.server);
    fixture.proxy = &proxy;
    fixture.uri = proxy.uri;
}

/* ------------------------------------------------------------------- faults */

/* The server shows another certificate from now on. */
static void show(const char *name)
{
    char pem[CERTIFICATES_PATH_BYTES], key[CERTIFICATES_PATH_BYTES];

    snprintf(pem, sizeof(pem), "%s/%s.pem", dir, name);
    snprintf(key, sizeof(key), "%s/%s.key", dir, name);
    server_do(&fixture.server, "CONFIG SET tls-cert-file %s tls-key-file %s",
              pem, key);
}

/* Another server has the port. */
static void speak_no_tls(void)
{
    server_do(&fixture.server, "CONFIG SET tls-port 0");
    server_do(&fixture.server, "CONFIG SET port %u", fixture.server.tls_port);
}

static void speak_tls(void)
{
    server_do(&fixture.server, "CONFIG SET port 0");
    server_do(&fixture.server, "CONFIG SET tls-port %u",
              fixture.server.tls_port);
}

static void hang(void)
{
    server_freeze(&fixture.server);
}

static void end_hang(void)
{
    server_thaw(&fixture.server);
}

static void pass(void)
{
    proxy_set(&proxy, PROXY_PASS, 0, NULL);
}

/* What is wrong with a server, or with what a proxy before it does. */
static const struct row {
    const char *name, *says;
    const char *certificate;
    const char *setting, *value, *usual;
    void (*make)(void), (*end)(void);
    enum proxy_mode mode;
    const char *answer;
} rows[] = {
    {"expired", "certificate has expired", .certificate = "expired"},
    {"another name", "hostname mismatch", .certificate = "elsewhere"},
    {"unknown authority", "tls_ca names its authority",
     .certificate = "stranger"},
    {"no certificate of ours", "requires a certificate of ours",
     .setting = "tls-auth-clients", .value = "yes", .usual = "no"},
    {"no common version", "no version in common", .setting = "tls-protocols",
     .value = "TLSv1.1", .usual = ""},
    {"no TLS", "is it a port for TLS?", .make = speak_no_tls, .end = speak_tls},
    {"stopped", "no answer to the TLS handshake", .make = hang,
     .end = end_hang},
    {"swallowed", "no answer to the TLS handshake", .mode = PROXY_SWALLOW},
    {"cut", "closed by the server in the TLS handshake", .mode = PROXY_CUT},
    {"garbage", "does not speak TLS", .mode = PROXY_ANSWER,
     .answer = "-ERR unknown command\r\n"},
    /* a record, in which nothing is as it should be */
    {"a bad record", "TLS", .mode = PROXY_ANSWER,
     .answer = "\x16\x03\x03\x01\x10garbage of a server hello: garbage, "
               "garbage, garbage"},
};

static void make(const struct row *row)
{
    if (row->certificate != NULL)
        show(row->certificate);
    if (row->setting != NULL)
        server_do(&fixture.server, "CONFIG SET %s %s", row->setting,
                  row->value);
    if (row->make != NULL)
        row->make();
    if (row->mode != PROXY_PASS)
        proxy_set(&proxy, row->mode, 0, row->answer);
}

static void end(const struct row *row)
{
    if (row->certificate != NULL)
        show("server");
    if (row->setting != NULL)
        server_do(&fixture.server, "CONFIG SET %s %s", row->setting,
                  row->usual);
    if (row->end != NULL)
        row->end();
    if (row->mode != PROXY_PASS)
        pass();
}

/* ------------------------------------------------------------------- calls */

/* A handshake of OpenSSL 3.5, whose post-quantum keys take a kilobyte more,
 * lasts for seconds if a byte arrives per millisecond. */
enum { CALL_MS = 20000 };

/* Whether a get ends so; it is never late, and never without its row. */
static bool gets(int origin)
{
    uint64_t late_ms = test_deadline_ms() + scaled_ms(CALL_MS);
    struct shed_value *value = NULL;
    bool is_so;

    EXPECT_OK(shed_get(fixture.cache, shed_str("k"), WITHIN(scaled_ms(CALL_MS)),
                       &value, NULL));
    ck_assert_uint_lt(shed_now_ms(), late_ms);
    check_text(value, "k@1");
    is_so = (int)value->origin == origin;
    shed_value_unref(value);
    return is_so;
}

static bool has_reason(const char *words)
{
    return strstr(status_of(fixture.client).last.reason, words) != NULL;
}

TEST_EACH(the_cause_is_told_and_calls_do_without_redis, 0, COUNT_OF(rows))
{
    const struct row *row = &rows[_i];

    if (row->mode != PROXY_PASS)
        init_with_proxy();
    else
        init();
    make(row);
    fixture_open(&fixture);
    WAIT_UNTIL(has_reason(row->says), status_of(fixture.client).last.reason);
    WAIT_UNTIL(gets(SHED_ORIGIN_UNPUBLISHED), row->name);
    ck_assert_uint_eq(status_of(fixture.client).is_up, 0);
    end(row);
    WAIT_UNTIL(gets(SHED_ORIGIN_REDIS), row->name);
}

TEST(a_plain_client_is_told_that_the_server_speaks_tls)
{
    char uri[SERVER_URI_BYTES];

    init();
    snprintf(uri, sizeof(uri), "redis://localhost:%u", fixture.server.tls_port);
    fixture.uri = uri;
    fixture.client_options.tls_ca = NULL;
    fixture_open(&fixture);
    WAIT_UNTIL(has_reason("use rediss://"),
               status_of(fixture.client).last.reason);
    ck_assert(gets(SHED_ORIGIN_UNPUBLISHED));
}

/* A caller that cannot wait for long does not wait for a handshake. */
TEST(a_handshake_does_not_outlast_the_deadline_of_a_call)
{
    enum { SHORT_MS = 100 };
    struct shed_value *value = NULL;
    uint64_t before_ms;
    enum shed_code code;

    init_with_proxy();
    fixture.client_options.connect_timeout_ms = scaled_ms(FIXTURE_SILENCE_MS);
    proxy_set(&proxy, PROXY_SWALLOW, 0, NULL);
    fixture_open(&fixture);
    before_ms = shed_now_ms();
    code =
        shed_get(fixture.cache, shed_str("k"), WITHIN(SHORT_MS), &value, NULL);
    ck_assert(code == SHED_ETIMEDOUT || code == SHED_OK);
    shed_value_unref(value);
    ck_assert_uint_lt(shed_now_ms() - before_ms,
                      SHORT_MS + scaled_ms(FIXTURE_SILENCE_MS) / 2);
    pass();
}

/* ------------------------------------------------- when all has been well */

static const enum proxy_mode spoils[] = {PROXY_CUT_ONE, PROXY_CUT, PROXY_ANSWER,
                                         PROXY_DOUBLE};

/* A record that is cut, replaced or repeated is nobody's reply: each costs its
 * connection. */
TEST_EACH(a_spoilt_record_is_no_reply, 0, COUNT_OF(spoils))
{
    init_with_proxy();
    fixture_open(&fixture);
    WAIT_UNTIL(gets(SHED_ORIGIN_REDIS), "healthy");
    proxy_set(&proxy, spoils[_i], 0, "\x17\x03\x03\x00\x07garbage");
    for (int i = 0; i < 50; i++)
        (void)gets(SHED_ORIGIN_REDIS);
    pass();
    WAIT_UNTIL(gets(SHED_ORIGIN_REDIS), "healthy again");
}

TEST(a_byte_at_a_time_is_enough)
{
    init_with_proxy();
    fixture_hurry(&fixture, FIXTURE_SILENCE_MS);
    proxy_set(&proxy, PROXY_DRIP, 0, NULL);
    fixture_open(&fixture);
    WAIT_UNTIL(gets(SHED_ORIGIN_REDIS), "dripping");
    pass();
}

/* ------------------------------------------------------------------ the end */

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
    tcase_add_checked_fixture(test_case(), NULL, fixture_tear_down);
    return run_tests("redis_tls_faults");
}
