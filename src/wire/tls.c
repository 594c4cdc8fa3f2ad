/*
 * TLS by OpenSSL, over buffers in memory: so it never meets a socket, its
 * SIGPIPE or its deadline, and a read that has something to send just leaves it
 * in the buffer. Its invariants: nothing is written or read as plain text
 * before the peer's certificate has been accepted for its name; a program that
 * uses OpenSSL itself notices nothing of us.
 *
 * For the latter: all settings are those of our own SSL_CTX; errors that others
 * have left on the thread's queue stay there, and are not taken for ours, as
 * SSL_get_error would; and OpenSSL is not torn down at exit, where the client's
 * thread may still be using it.
 *
 * TLS 1.2 may renegotiate, which could change who the peer is: it is refused.
 */
#include "wire/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/error.h"
#include "base/mutex.h"
#include "base/process.h"

struct shed_tls_server {
    /* set at creation */
    const char *text;
    SSL_CTX *context;
    pid_t pid;
    struct shed_mutex mu;
    /* under mu */
    SSL_SESSION *session; /* NULL: none to resume */
};

struct shed_tls {
    struct shed_tls_server *server;
    SSL *ssl;      /* owns the two buffers */
    BIO *in, *out; /* from the peer, and to it */
    bool is_open;  /* the handshake has ended */
};

/* ------------------------------------------------------------------- errors */

/* Marks where our errors begin on a queue that has others. */
#define OTHERS_END 1

/* To be called before OpenSSL is; unmark_errors afterwards. */
static void mark_errors(void)
{
    (void)ERR_set_mark();
    if (ERR_peek_error() != 0)
        ERR_raise(ERR_LIB_USER, OTHERS_END);
}

/* The last one since then; 0: none. */
static unsigned long last_error(void)
{
    unsigned long error = ERR_peek_last_error();

    return ERR_GET_LIB(error) == ERR_LIB_USER &&
                   ERR_GET_REASON(error) == OTHERS_END
               ? 0
               : error;
}

static void unmark_errors(void)
{
    (void)ERR_pop_to_mark();
}

/* What the reasons of OpenSSL mean for an operator, where they do not say it.
 */
static const struct {
    int reason;
    const char *text;
} meanings[] = {
    {SSL_R_WRONG_VERSION_NUMBER,
     "the server does not speak TLS (is it a port for TLS?)"},
    {SSL_R_UNSUPPORTED_PROTOCOL,
     "no version in common: it needs TLS 1.2 or 1.3"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION,
     "no version in common: it needs TLS 1.2 or 1.3"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
     "the server requires a certificate of ours: tls_cert and tls_key"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA,
     "the server does not know the authority of tls_cert"},
};

static const char *explain(unsigned long error)
{
    const char *text = ERR_reason_error_string(error);

    for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
        if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
            ERR_GET_REASON(error) == meanings[i].reason)
            return meanings[i].text;
    return text != NULL ? text : "failed without a reason";
}

static bool is_unknown_authority(long verdict)
{
    return verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
           verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
           verdict == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE ||
           verdict == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
           verdict == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN;
}

/* Why a connection has failed. error is 0 if the server has just closed it. */
static enum shed_code fail_connection(const struct shed_tls *t,
                                      unsigned long error,
                                      struct shed_error *err)
{
    const char *text = t->server->text;
    long verdict = SSL_get_verify_result(t->ssl);

    if (error == 0)
        return shed_fail(err, SHED_EREDIS,
                         "Redis: connection lost: closed by the server");
    if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE)
        return shed_fail_nomem(err, "a Redis connection");
    if (verdict != X509_V_OK)
        return shed_fail(
            err, SHED_EREDIS,
            "Redis %s: TLS: the server's certificate is not accepted: %s%s",
            text, X509_verify_cert_error_string(verdict),
            is_unknown_authority(verdict) ? " (tls_ca names its authority)"
                                          : "");
    return shed_fail(err, SHED_EREDIS, "Redis %s: TLS: %s", text,
                     explain(error));
}

/* A setting cannot be used. */
static enum shed_code fail_setting(const char *setting, const char *path,
                                   struct shed_error *err)
{
    unsigned long error = last_error();

    if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE)
        return shed_fail_nomem(err, "the TLS of a client");
    return shed_fail(err, SHED_EINVAL, "client %s %s cannot be used: %s",
                     setting, path, explain(error));
}

/* ---------------------------------------------------------------- a server */

/* NULL: the next handshake is a whole one. */
static void set_session(struct shed_tls_server *s, SSL_SESSION *session)
{
    SSL_SESSION *before;

    shed_mutex_lock(&s->mu);
    before = s->session;
    s->session = session;
    shed_mutex_unlock(&s->mu);
    SSL_SESSION_free(before);
}

/* OpenSSL has a session that can be resumed. Returns: 1, since it is kept. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    set_session(SSL_get_app_data(ssl), session);
    return 1;
}

/* Let a connection resume the last session. If it cannot be resumed, the
 * handshake is a whole one. */
static void offer_session(struct shed_tls_server *s, SSL *ssl)
{
    shed_mutex_lock(&s->mu);
    if (s->session != NULL)
        (void)SSL_set_session(ssl, s->session);
    shed_mutex_unlock(&s->mu);
}

/* Without it OpenSSL would ask for a passphrase at the terminal. */
static int refuse_passphrase(char *out, int size, int is_writing, void *arg)
{
    (void)out;
    (void)size;
    (void)is_writing;
    (void)arg;
    return -1;
}

/* Whether a file, or a directory, is there and ours to read. */
static enum shed_code check_path(const char *setting, const char *path,
                                 struct shed_error *err)
{
    if (access(path, R_OK) == 0)
        return SHED_OK;
    return shed_fail(err, SHED_EINVAL, "client %s %s cannot be read: %s",
                     setting, path, shed_errno_text(errno));
}

static enum shed_code believe(SSL_CTX *context, const char *ca,
                              struct shed_error *err)
{
    enum shed_code code = SHED_OK;
    struct stat about;
    bool is_loaded;

    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (ca != NULL)
        code = check_path("tls_ca", ca, err);
    if (code != SHED_OK)
        return code;
    if (ca == NULL)
        is_loaded = SSL_CTX_set_default_verify_paths(context) == 1;
    else if (stat(ca, &about) == 0 && S_ISDIR(about.st_mode))
        is_loaded = SSL_CTX_load_verify_dir(context, ca) == 1;
    else
        is_loaded = SSL_CTX_load_verify_file(context, ca) == 1;
    return is_loaded
               ? SHED_OK
               : fail_setting("tls_ca", ca != NULL ? ca : "of the system", err);
}

static enum shed_code show(SSL_CTX *context, const char *cert, const char *key,
                           struct shed_error *err)
{
    enum shed_code code = check_path("tls_cert", cert, err);

    if (code == SHED_OK)
        code = check_path("tls_key", key, err);
    if (code != SHED_OK)
        return code;
    SSL_CTX_set_default_passwd_cb(context, refuse_passphrase);
    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        return fail_setting("tls_cert", cert, err);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return fail_setting("tls_key", key, err);
    return SHED_OK;
}

/* The certificate must be for host; a name is sent as SNI, too. Returns: false
 * when out of memory. */
static bool expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

    /* tls_ca may be the server's own certificate */
    if (X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN) != 1)
        return false;
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1)
        return true;
    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, host, 0) == 1 &&
           SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* The system's settings may demand a later version, never an earlier one. */
static bool set_rules(SSL_CTX *context)
{
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT |
                                                SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, keep_session);
    return SSL_CTX_get_min_proto_version(context) >= TLS1_2_VERSION ||
           SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
}

static enum shed_code set_up(struct shed_tls_server *s,
                             const struct shed_client_options *o,
                             struct shed_error *err)
{
    enum shed_code code;

    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) == 1)
        s->context = SSL_CTX_new(TLS_client_method());
    if (s->context == NULL || !set_rules(s->context))
        return shed_fail_nomem(err, "the TLS of a client");
    code = believe(s->context, o->tls_ca, err);
    if (code == SHED_OK && o->tls_cert != NULL)
        code = show(s->context, o->tls_cert, o->tls_key, err);
    return code;
}

/* Without a context. Returns: NULL when out of memory. */
static struct shed_tls_server *alloc(const char *text)
{
    struct shed_tls_server *s = calloc(1, sizeof(*s));

    if (s == NULL || shed_mutex_init(&s->mu, SHED_RANK_TLS) != 0) {
        free(s);
        return NULL;
    }
    s->text = text;
    s->pid = shed_process_id();
    return s;
}

enum shed_code shed_tls_server_create(const char *text,
                                      const struct shed_client_options *options,
                                      struct shed_tls_server **out,
                                      struct shed_error *err)
{
    struct shed_tls_server *s = alloc(text);
    enum shed_code code;

    *out = NULL;
    if (s == NULL)
        return shed_fail_nomem(err, "the TLS of a client");
    mark_errors();
    code = set_up(s, options, err);
    unmark_errors();
    if (code == SHED_OK)
        *out = s;
    else
        shed_tls_server_destroy(s);
    return code;
}

struct shed_tls_server *
shed_tls_server_like(const struct shed_tls_server *other, const char *text)
{
    struct shed_tls_server *s = alloc(text);

    if (s != NULL && SSL_CTX_up_ref(other->context) == 1)
        s->context = other->context;
    return s;
}

void shed_tls_server_destroy(struct shed_tls_server *s)
{
    if (s == NULL)
        return;
    if (s->pid == shed_process_id()) {
        SSL_SESSION_free(s->session);
        SSL_CTX_free(s->context);
    }
    shed_mutex_destroy(&s->mu);
    free(s);
}

/* ------------------------------------------------------------ a connection */

/* A call of OpenSSL has ended, for which errors were marked. Returns: SHED_OK
 * also if it needs more input. */
static enum shed_code conclude(struct shed_tls *t, int result,
                               struct shed_error *err)
{
    unsigned long error = last_error();
    bool is_closed = SSL_get_shutdown(t->ssl) & SSL_RECEIVED_SHUTDOWN;

    unmark_errors();
    if (result > 0 || (error == 0 && !is_closed)) {
        t->is_open = t->is_open || SSL_is_init_finished(t->ssl);
        return SHED_OK;
    }
    if (!t->is_open)
        set_session(t->server, NULL);
    return fail_connection(t, error, err);
}

static enum shed_code start(struct shed_tls *t, const char *host,
                            struct shed_error *err)
{
    t->ssl = SSL_new(t->server->context);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (t->ssl == NULL || t->in == NULL || t->out == NULL ||
        SSL_set_app_data(t->ssl, t->server) != 1 ||
        !expect_host(t->ssl, host)) {
        BIO_free(t->in);
        BIO_free(t->out);
        unmark_errors();
        return shed_fail_nomem(err, "a Redis connection");
    }
    SSL_set_bio(t->ssl, t->in, t->out);
    offer_session(t->server, t->ssl);
    SSL_set_connect_state(t->ssl);
    return conclude(t, SSL_do_handshake(t->ssl), err);
}

enum shed_code shed_tls_create(struct shed_tls_server *server, const char *host,
                               struct shed_tls **out, struct shed_error *err)
{
    struct shed_tls *t = calloc(1, sizeof(*t));
    enum shed_code code;

    *out = NULL;
    if (t == NULL)
        return shed_fail_nomem(err, "a Redis connection");
    t->server = server;
    mark_errors();
    code = start(t, host, err);
    if (code == SHED_OK)
        *out = t;
    else
        shed_tls_destroy(t);
    return code;
}

/* Without its shutdown, which sends nothing here, OpenSSL would no longer
 * resume the session of TLS 1.2. */
static void free_connection(SSL *ssl)
{
    if (ssl == NULL)
        return;
    SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(ssl);
}

void shed_tls_destroy(struct shed_tls *t)
{
    if (t == NULL)
        return;
    if (t->server->pid == shed_process_id())
        free_connection(t->ssl);
    free(t);
}

bool shed_tls_is_open(const struct shed_tls *t)
{
    return t->is_open;
}

enum shed_code shed_tls_write(struct shed_tls *t, const char *plain,
                              size_t size, size_t *taken,
                              struct shed_error *err)
{
    *taken = 0;
    if (!t->is_open)
        return SHED_OK;
    mark_errors();
    return conclude(t, SSL_write_ex(t->ssl, plain, size, taken), err);
}

size_t shed_tls_output(const struct shed_tls *t, const char **out)
{
    char *at = NULL;
    long size = BIO_get_mem_data(t->out, &at);

    *out = at;
    return size > 0 ? (size_t)size : 0;
}

void shed_tls_clear(struct shed_tls *t)
{
    (void)BIO_reset(t->out);
}

enum shed_code shed_tls_read(struct shed_tls *t, const char *sealed,
                             size_t sealed_size, char *plain, size_t size,
                             size_t *got, struct shed_error *err)
{
    *got = 0;
    mark_errors();
    if (sealed_size == 0 ||
        BIO_write(t->in, sealed, (int)sealed_size) == (int)sealed_size)
        return conclude(t, SSL_read_ex(t->ssl, plain, size, got), err);
    unmark_errors();
    return shed_fail_nomem(err, "what Redis has sent");
}
