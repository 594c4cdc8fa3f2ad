/* TLS without a socket: whom it believes, what a refusal says, sessions, and
 * what may come between the bytes. The server is OpenSSL's, in this process. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "wire/tls.h"
#include "wire/wire.h"
#include "support/bare.h"
#include "support/certificates.h"
#include "support/sockets.h"
#include "support/testing.h"

enum { TEXT_BYTES = 4 * 1024 * 1024 };

static char dir[] = "/tmp/shed-tls-XXXXXX";
static struct shed_client_options options;

/* The server's end of a connection, and what each end has read. */
static SSL_CTX *context;
static SSL *peer;
static BIO *peer_in, *peer_out;
static struct shed_tls_server *server;
static struct shed_tls *tls;
static char heard[TEXT_BYTES], got[TEXT_BYTES];
static size_t heard_size, got_size;
static size_t portion; /* how many bytes our end is fed at a time */

static const char *at(const char *file)
{
    return file != NULL ? certificates_path(dir, file) : NULL;
}

/* ------------------------------------------------------------- scarcity */

/* While is_scarce, the allocation that is counted down to fails, and no other;
 * OpenSSL's count as ours do. */
static bool is_scarce, has_failed;
static int countdown;

static bool fails_now(void)
{
    if (!is_scarce || countdown-- != 0)
        return false;
    has_failed = true;
    return true;
}

WRAPPED(calloc);

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

static void *scarce_malloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return fails_now() ? NULL : malloc(size);
}

static void *scarce_realloc(void *at, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return fails_now() ? NULL : realloc(at, size);
}

static void plain_free(void *at, const char *file, int line)
{
    (void)file;
    (void)line;
    free(at);
}

/* ------------------------------------------------------------- both ends */

static void start_peer(const char *name, int version)
{
    char file[CERTIFICATES_PATH_BYTES];

    context = SSL_CTX_new(TLS_server_method());
    ck_assert_ptr_nonnull(context);
    snprintf(file, sizeof(file), "%s.pem", name);
    ck_assert_int_eq(SSL_CTX_use_certificate_chain_file(context, at(file)), 1);
    snprintf(file, sizeof(file), "%s.key", name);
    ck_assert_int_eq(
        SSL_CTX_use_PrivateKey_file(context, at(file), SSL_FILETYPE_PEM), 1);
    if (version != 0 && version < TLS1_2_VERSION) {
        /* otherwise no such version may be used */
        SSL_CTX_set_security_level(context, 0);
        ck_assert_int_eq(SSL_CTX_set_min_proto_version(context, version), 1);
    }
    ck_assert_int_eq(SSL_CTX_set_max_proto_version(context, version), 1);
    (void)SSL_CTX_set_session_id_context(context, (const unsigned char *)"t",
                                         1);
}

static const char *expected_host = "localhost";

static void start_server(const char *host)
{
    struct shed_error err;

    expected_host = host;
    ck_assert_msg(shed_tls_server_create("redis:6379", &options, &server,
                                         &err) == SHED_OK,
                  "%s", err.reason);
}

/* is_scarce while our end is created, and fed: see feed. */
static enum shed_code open_ends_within(struct shed_error *err)
{
    enum shed_code code;

    peer = SSL_new(context);
    peer_in = BIO_new(BIO_s_mem());
    peer_out = BIO_new(BIO_s_mem());
    ck_assert(peer != NULL && peer_in != NULL && peer_out != NULL);
    SSL_set_bio(peer, peer_in, peer_out);
    SSL_set_accept_state(peer);
    heard_size = got_size = 0;
    portion = SIZE_MAX;
    is_scarce = true;
    code = shed_tls_create(server, expected_host, &tls, err);
    is_scarce = false;
    return code;
}

static void open_ends(void)
{
    countdown = -1;
    ck_assert_int_eq(open_ends_within(NULL), SHED_OK);
}

static void close_ends(void)
{
    shed_tls_destroy(tls);
    tls = NULL;
    SSL_free(peer);
    peer = NULL;
}

/* Also after each test. */
static void stop(void)
{
    close_ends();
    shed_tls_server_destroy(server);
    server = NULL;
    SSL_CTX_free(context);
    context = NULL;
}

/* Our end is given bytes, and read. */
static enum shed_code feed(const char *bytes, size_t size,
                           struct shed_error *err)
{
    enum shed_code code = SHED_OK;
    size_t more;

    is_scarce = true;
    while (size > 0 && code == SHED_OK) {
        size_t part = size < portion ? size : portion;
        for (more = 1; code == SHED_OK && more > 0; got_size += more) {
            code = shed_tls_read(tls, bytes, part, got + got_size,
                                 sizeof(got) - got_size, &more, err);
            bytes += part;
            size -= part;
            part = 0;
        }
    }
    is_scarce = false;
    return code;
}

/* Move bytes until both ends have read all. Returns: whether any were. */
static bool pump_once(enum shed_code *code, struct shed_error *err)
{
    static char bytes[20480];
    bool has_moved = false;
    const char *output;
    size_t size = shed_tls_output(tls, &output);
    int n;

    if (size > 0) {
        ck_assert_int_eq(BIO_write(peer_in, output, (int)size), (int)size);
        shed_tls_clear(tls);
        has_moved = true;
    }
    while ((n = SSL_read(peer, heard + heard_size,
                         (int)(sizeof(heard) - heard_size))) > 0)
        heard_size += (size_t)n;
    ERR_clear_error();
    while (*code == SHED_OK &&
           (n = BIO_read(peer_out, bytes, (int)sizeof(bytes))) > 0) {
        *code = feed(bytes, (size_t)n, err);
        has_moved = true;
    }
    return has_moved && *code == SHED_OK;
}

static enum shed_code pump(struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    while (pump_once(&code, err))
        ;
    return code;
}

/* Connect. */
static void shake(void)
{
    struct shed_error err;

    open_ends();
    ck_assert_msg(pump(&err) == SHED_OK, "%s", err.reason);
    ck_assert(shed_tls_is_open(tls));
}

static void say(const char *text, size_t size)
{
    size_t taken;

    for (; size > 0; text += taken, size -= taken) {
        ck_assert_int_eq(shed_tls_write(tls, text, size, &taken, NULL),
                         SHED_OK);
        ck_assert_uint_gt(taken, 0);
        ck_assert_int_eq(pump(NULL), SHED_OK);
    }
}

static void answer(const char *text, size_t size)
{
    ck_assert_int_eq(SSL_write(peer, text, (int)size), (int)size);
    ck_assert_int_eq(pump(NULL), SHED_OK);
}

static void expect_talk(void)
{
    size_t heard_before = heard_size, got_before = got_size;

    say("PING", 4);
    answer("PONG", 4);
    ck_assert_uint_eq(heard_size, heard_before + 4);
    ck_assert_uint_eq(got_size, got_before + 4);
    ck_assert_int_eq(memcmp(heard + heard_before, "PING", 4), 0);
    ck_assert_int_eq(memcmp(got + got_before, "PONG", 4), 0);
}

/* --------------------------------------------------------- whom it believes */

static const struct believed {
    const char *certificate, *host, *ca, *own;
    int version; /* of the server at most; 0: any */
} believed[] = {
    {"server", "localhost", "ca.pem", NULL, 0},
    {"server", "LOCALHOST", "ca.pem", NULL, 0},
    {"server", "localhost", "ca.pem", NULL, TLS1_2_VERSION},
    {"server", "127.0.0.1", "ca.pem", NULL, 0},
    {"server", "::1", "ca.pem", NULL, 0},
    {"server", "localhost", "authorities", NULL, 0},
    {"server", "localhost", "server.pem", NULL, 0}, /* itself */
    {"server", "localhost", "ca.pem", "client", 0},
    {"server", "localhost", "ca.pem", "client", TLS1_2_VERSION},
};

static void use_own(const char *name)
{
    char file[CERTIFICATES_PATH_BYTES];

    if (name == NULL)
        return;
    snprintf(file, sizeof(file), "%s.pem", name);
    options.tls_cert = at(file);
    snprintf(file, sizeof(file), "%s.key", name);
    options.tls_key = at(file);
}

/* The server wants a certificate by ca. */
static void demand_certificate(void)
{
    SSL_CTX_set_verify(context,
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    ck_assert_int_eq(SSL_CTX_load_verify_file(context, at("ca.pem")), 1);
}

TEST_EACH(the_server_of_a_known_authority_and_the_right_name_is_believed, 0,
          COUNT_OF(believed))
{
    const struct believed *row = &believed[_i];

    start_peer(row->certificate, row->version);
    if (row->own != NULL)
        demand_certificate();
    options.tls_ca = at(row->ca);
    use_own(row->own);
    start_server(row->host);
    shake();
    expect_talk();
}

static const struct refused {
    const char *certificate, *host, *ca, *own;
    int version;
    bool is_demanding;
    const char *says;
} refusals[] = {
    {"server", "localhost", "other.pem", NULL, 0, false,
     "not accepted: unable to get local issuer certificate (tls_ca names its "
     "authority)"},
    {"server", "localhost", NULL, NULL, 0, false, "(tls_ca names"},
    {"other", "localhost", "ca.pem", NULL, 0, false,
     "self-signed certificate (tls_ca names"},
    {"expired", "localhost", "ca.pem", NULL, 0, false,
     "not accepted: certificate has expired"},
    {"elsewhere", "localhost", "ca.pem", NULL, 0, false,
     "not accepted: hostname mismatch"},
    {"elsewhere", "127.0.0.1", "ca.pem", NULL, 0, false,
     "not accepted: IP address mismatch"},
    /* an address is not a name */
    {"server", "localhost.", "ca.pem", NULL, 0, false, "hostname mismatch"},
    {"server", "localhost", "ca.pem", NULL, TLS1_1_VERSION, false,
     "no version in common"},
    {"server", "localhost", "ca.pem", NULL, 0, true,
     "the server requires a certificate of ours"},
    {"server", "localhost", "ca.pem", NULL, TLS1_2_VERSION, true,
     "handshake failure"},
    {"server", "localhost", "ca.pem", "stranger", 0, true,
     "does not know the authority of tls_cert"},
};

TEST_EACH(a_refusal_names_its_cause, 0, COUNT_OF(refusals))
{
    const struct refused *row = &refusals[_i];
    struct shed_error err = {SHED_OK, ""};
    size_t taken;

    start_peer(row->certificate, row->version);
    if (row->is_demanding)
        demand_certificate();
    options.tls_ca = at(row->ca);
    use_own(row->own);
    start_server(row->host);
    open_ends();
    ck_assert_int_eq(pump(&err), SHED_EREDIS);
    ck_assert_msg(strstr(err.reason, row->says) != NULL, "%s", err.reason);
    ck_assert_ptr_nonnull(strstr(err.reason, "redis:6379"));
    /* nothing that was to be secret has been sent */
    ck_assert(row->is_demanding ||
              (shed_tls_write(tls, "secret", 6, &taken, NULL) == SHED_OK &&
               taken == 0));
    ck_assert_uint_eq(heard_size, 0);
}

TEST(a_server_that_speaks_no_tls_is_named)
{
    static const char *const texts[] = {"-ERR unknown command\r\n",
                                        "HTTP/1.1 400 Bad Request\r\n\r\n"};
    struct shed_error err;

    for (size_t i = 0; i < 2; i++) {
        start_peer("server", 0);
        start_server("localhost");
        open_ends();
        ck_assert_int_eq(feed(texts[i], strlen(texts[i]), &err), SHED_EREDIS);
        ck_assert_msg(strstr(err.reason, "does not speak TLS") != NULL, "%s",
                      err.reason);
        stop();
    }
}

static char seen_name[64];

static int note_name(SSL *ssl, int *alert, void *arg)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    (void)alert;
    (void)arg;
    snprintf(seen_name, sizeof(seen_name), "%s", name != NULL ? name : "none");
    return SSL_TLSEXT_ERR_OK;
}

TEST(a_name_is_told_to_the_server_and_an_address_is_not)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1"};

    for (int i = 0; i < 2; i++) {
        start_peer("server", 0);
        SSL_CTX_set_tlsext_servername_callback(context, note_name);
        start_server(hosts[i]);
        shake();
        ck_assert_str_eq(seen_name, i == 0 ? "localhost" : "none");
        stop();
    }
}

/* ----------------------------------------------------------------- settings */

static const struct mistake {
    const char *ca, *cert, *key, *says;
} mistakes[] = {
    {"missing.pem", NULL, NULL, "tls_ca"},
    {"missing.pem", NULL, NULL, "No such file or directory"},
    {"ca.key", NULL, NULL, "tls_ca"},
    {"ca.pem", "missing.pem", "client.key", "tls_cert"},
    {"ca.pem", "client.key", "client.key", "tls_cert"},
    {"ca.pem", "client.pem", "missing.key", "tls_key"},
    {"ca.pem", "client.pem", "server.key", "tls_key"},
    {"ca.pem", "client.pem", "client.pem", "tls_key"},
    {"ca.pem", "client.pem", "encrypted.key", "tls_key"},
};

TEST_EACH(a_file_that_cannot_be_used_is_named, 0, COUNT_OF(mistakes))
{
    const struct mistake *row = &mistakes[_i];
    struct shed_error err;

    options.tls_ca = at(row->ca);
    options.tls_cert = at(row->cert);
    options.tls_key = at(row->key);
    ck_assert_int_eq(
        shed_tls_server_create("redis:6379", &options, &server, &err),
        SHED_EINVAL);
    ck_assert_ptr_null(server);
    ck_assert_msg(strstr(err.reason, row->says) != NULL, "%s", err.reason);
    ck_assert_uint_eq(ERR_peek_error(), 0);
}

/* ----------------------------------------------------------------- sessions */

TEST(a_session_is_resumed_by_all_later_connections)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

    for (int i = 0; i < 2; i++) {
        start_peer("server", versions[i]);
        start_server("localhost");
        for (int j = 0; j < 4; j++) {
            shake();
            expect_talk();
            ck_assert_msg(SSL_session_reused(peer) == (j > 0), "%d: %d", i, j);
            close_ends();
        }
        /* of a server that was restarted it is none */
        SSL_CTX_free(context);
        start_peer("server", versions[i]);
        shake();
        ck_assert_int_eq(SSL_session_reused(peer), 0);
        stop();
    }
}

TEST(a_certificate_is_checked_again_after_a_failure)
{
    struct shed_error err;

    start_peer("server", 0);
    start_server("localhost");
    shake();
    expect_talk();
    close_ends();
    SSL_CTX_free(context);
    start_peer("expired", 0);
    open_ends();
    ck_assert_int_eq(pump(&err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "expired"));
    close_ends();
    SSL_CTX_free(context);
    start_peer("server", 0);
    shake();
    ck_assert_int_eq(SSL_session_reused(peer), 0);
}

/* ------------------------------------------------------- between the bytes */

static void set_up_one(int version)
{
    start_peer("server", version);
    start_server("localhost");
}

TEST(bytes_may_come_one_at_a_time)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

    for (int i = 0; i < 2; i++) {
        set_up_one(versions[i]);
        open_ends();
        portion = 1;
        ck_assert_int_eq(pump(NULL), SHED_OK);
        ck_assert(shed_tls_is_open(tls));
        expect_talk();
        stop();
    }
}

TEST(a_long_text_goes_in_parts)
{
    enum { LONG = 1000000 };
    static char text[LONG];

    for (size_t i = 0; i < LONG; i++)
        text[i] = (char)(i % 251);
    set_up_one(0);
    shake();
    say(text, LONG);
    ck_assert_uint_eq(heard_size, LONG);
    ck_assert_int_eq(memcmp(heard, text, LONG), 0);
    answer(text, LONG);
    ck_assert_uint_eq(got_size, LONG);
    ck_assert_int_eq(memcmp(got, text, LONG), 0);
}

TEST(new_keys_are_used_and_answered)
{
    size_t taken;

    set_up_one(TLS1_3_VERSION);
    shake();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(SSL_key_update(peer, SSL_KEY_UPDATE_REQUESTED), 1);
        expect_talk();
        ck_assert_int_eq(SSL_key_update(peer, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        expect_talk();
    }
    /* also while a command waits to be sent */
    heard_size = got_size = 0;
    ck_assert_int_eq(shed_tls_write(tls, "PING", 4, &taken, NULL), SHED_OK);
    ck_assert_int_eq(SSL_key_update(peer, SSL_KEY_UPDATE_REQUESTED), 1);
    answer("PONG", 4);
    ck_assert_uint_eq(heard_size, 4);
    ck_assert_uint_eq(got_size, 4);
    expect_talk();
}

/* The answer is a warning, and no handshake: what the server makes of it is its
 * matter. */
TEST(a_renegotiation_is_refused)
{
    const char *output;
    char bytes[256];
    int size;

    set_up_one(TLS1_2_VERSION);
    shake();
    ck_assert_int_eq(SSL_renegotiate(peer), 1);
    (void)SSL_do_handshake(peer);
    size = BIO_read(peer_out, bytes, sizeof(bytes));
    ck_assert_int_gt(size, 0);
    ck_assert_int_eq(feed(bytes, (size_t)size, NULL), SHED_OK);
    ck_assert(shed_tls_is_open(tls));
    ck_assert_uint_gt(shed_tls_output(tls, &output), 0);
    ck_assert_int_eq(output[0], SSL3_RT_ALERT);
}

TEST(the_end_of_the_server_is_one_of_the_connection)
{
    struct shed_error err;

    set_up_one(0);
    shake();
    (void)SSL_shutdown(peer);
    ck_assert_int_eq(pump(&err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "closed by the server"));
}

/* A program that uses OpenSSL on the same thread finds its errors, and no
 * others; they are not taken for ours. */
TEST(the_errors_of_others_are_left_alone)
{
    struct shed_error err;
    size_t taken;

    set_up_one(0);
    open_ends();
    ck_assert_int_eq(pump(NULL), SHED_OK);
    ERR_raise(ERR_LIB_USER, ERR_R_PASSED_INVALID_ARGUMENT);
    ck_assert_int_eq(shed_tls_write(tls, "PING", 4, &taken, NULL), SHED_OK);
    ck_assert_int_eq(
        shed_tls_read(tls, NULL, 0, got, sizeof(got), &taken, NULL), SHED_OK);
    ck_assert_uint_eq(taken, 0);
    /* bytes that are no record end it */
    ck_assert_int_eq(feed("garbage", 7, &err), SHED_EREDIS);
    ck_assert_ptr_nonnull(strstr(err.reason, "redis:6379: TLS: "));
    ck_assert_uint_eq(got_size, 0);
    ck_assert_int_eq(ERR_GET_LIB(ERR_get_error()), ERR_LIB_USER);
    ck_assert_uint_eq(ERR_peek_error(), 0);
}

/* ----------------------------------------------------------------- a wire */

static struct shed_address *address;
static struct shed_wire wire;

/* Both ends go on with the handshake, and read what there is. */
static bool is_wire_open(void)
{
    struct shed_error err;

    (void)SSL_accept(peer);
    ERR_clear_error();
    ck_assert_msg(shed_wire_flush(&wire, &err) != SHED_WIRE_LOST, "%s",
                  err.reason);
    ck_assert_msg(shed_wire_fill(&wire, false, &err) != SHED_WIRE_LOST, "%s",
                  err.reason);
    return !shed_wire_is_in_handshake(&wire) && SSL_is_init_finished(peer) &&
           !shed_wire_is_unsent(&wire);
}

/* A wire, and the server's end of its socket. */
static void open_wire(void)
{
    unsigned port;
    int listener = bind_any_port(&port), fd;
    char uri[64];

    ck_assert_int_eq(listen(listener, 1), 0);
    snprintf(uri, sizeof(uri), "rediss://127.0.0.1:%u", port);
    ck_assert_int_eq(shed_address_create(uri, &address, NULL), SHED_OK);
    ck_assert_int_eq(shed_address_use_tls(address, &options, NULL), SHED_OK);
    shed_wire_init(&wire);
    ck_assert_int_eq(shed_wire_open(&wire, address, NULL), SHED_OK);
    fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    close(listener);
    ck_assert_int_eq(shed_wire_connected(&wire, address, NULL), SHED_OK);
    peer = SSL_new(context);
    ck_assert_int_eq(SSL_set_fd(peer, fd), 1);
    WAIT_FOR(is_wire_open());
}

static void close_wire(void)
{
    close(SSL_get_fd(peer));
    shed_wire_close(&wire);
    shed_address_unref(address);
}

static bool has_come(void)
{
    return recv(wire.fd, &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

/* A connection may be used after it was idle, though the server has sent a
 * session or changed its keys meanwhile; not after a reply that nobody asked
 * for. */
TEST(what_tls_says_for_itself_is_no_reply)
{
    start_peer("server", TLS1_3_VERSION);
    open_wire();
    ck_assert(shed_wire_is_quiet(&wire));
    ck_assert_int_eq(SSL_new_session_ticket(peer), 1);
    ck_assert_int_eq(SSL_do_handshake(peer), 1);
    WAIT_FOR(has_come());
    ck_assert(shed_wire_is_quiet(&wire));
    ck_assert_int_eq(SSL_key_update(peer, SSL_KEY_UPDATE_REQUESTED), 1);
    ck_assert_int_eq(SSL_do_handshake(peer), 1);
    WAIT_FOR(has_come());
    ck_assert(shed_wire_is_quiet(&wire));
    ck_assert_int_eq(SSL_write(peer, "+OK\r\n", 5), 5);
    WAIT_FOR(has_come());
    ck_assert(!shed_wire_is_quiet(&wire));
    close_wire();
}

/* ------------------------------------------------------------------ memory */

static void expect_bearable(enum shed_code code, const struct shed_error *err)
{
    ck_assert_msg(code == SHED_OK || code == SHED_ENOMEM ||
                      code == SHED_EREDIS || code == SHED_EINVAL,
                  "%s", err->reason);
}

/* The first allocations one by one, then fewer and fewer: each takes as long as
 * OpenSSL needs for a whole context. */
TEST(a_server_bears_that_memory_is_out)
{
    struct shed_error err;
    enum shed_code code;
    int n = 0;

    use_own("client");
    do {
        has_failed = false;
        countdown = n;
        n += 1 + n / 20;
        is_scarce = true;
        code = shed_tls_server_create("redis:6379", &options, &server, &err);
        is_scarce = false;
        expect_bearable(code, &err);
        shed_tls_server_destroy(server);
        server = NULL;
        ck_assert_uint_eq(ERR_peek_error(), 0);
    } while (has_failed);
    ck_assert_int_gt(n, 100);
    ck_assert_int_eq(code, SHED_OK);
}

/* From the handshake to the first reply. */
static enum shed_code connect_and_talk(struct shed_error *err)
{
    size_t taken = 0;
    enum shed_code code = open_ends_within(err);

    if (code == SHED_OK)
        code = pump(err);
    if (code == SHED_OK) {
        is_scarce = true;
        code = shed_tls_write(tls, "PING", 4, &taken, err);
        is_scarce = false;
    }
    if (code == SHED_OK)
        code = pump(err);
    if (code == SHED_OK && heard_size == 4)
        ck_assert_int_eq(SSL_write(peer, "PONG", 4), 4);
    return code == SHED_OK ? pump(err) : code;
}

TEST(a_connection_bears_that_memory_is_out)
{
    struct shed_error err;
    enum shed_code code;
    int n = 0;

    set_up_one(0);
    do {
        has_failed = false;
        countdown = n++;
        code = connect_and_talk(&err);
        expect_bearable(code, &err);
        ck_assert_uint_eq(ERR_peek_error(), 0);
        ck_assert(has_failed || (code == SHED_OK && got_size == 4));
        close_ends();
    } while (has_failed);
    ck_assert_int_gt(n, 100);
    shake();
    expect_talk();
}

/* ------------------------------------------------------------------ the end */

/* The key of client, with a passphrase. */
static void make_encrypted(void)
{
    char command[200];

    snprintf(command, sizeof(command),
             "openssl pkey -in %s/client.key -aes256 -passout pass:secret "
             "-out %s/encrypted.key",
             dir, dir);
    ck_assert_int_eq(system(command), 0);
}

static void install(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    certificates_make(dir);
    make_encrypted();
}

static void remove_all(void)
{
    certificates_remove(dir);
}

static void set_up(void)
{
    options = bare_client();
    options.tls_ca = at("ca.pem");
}

int main(void)
{
    /* before OpenSSL allocates anything */
    if (CRYPTO_set_mem_functions(scarce_malloc, scarce_realloc, plain_free) !=
        1)
        return EXIT_FAILURE;

    tcase_add_unchecked_fixture(test_case(), install, remove_all);
    tcase_add_checked_fixture(test_case(), set_up, stop);
    return run_tests("tls");
}
