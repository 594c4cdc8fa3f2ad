/* The MySQL source, and connections of the program, over TLS: which
 * certificates are accepted. With a private MariaDB or MySQL on 127.0.0.1, and
 * certificates made by openssl. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/own_site.h"

enum { PATH_BYTES = 256, WORDS_MAX = 24, SEARCH_BYTES = 1024 };

static unsigned port;
static char uri[TEXT_BYTES]; /* of the site's database, by TCP */

/* A file of the server's directory. */
struct path {
    char text[PATH_BYTES];
};

static struct path path_of(const char *name)
{
    struct path path;

    snprintf(path.text, sizeof(path.text), "%s/%s", server.dir, name);
    return path;
}

/* ------------------------------------------------------------ certificates */

_Noreturn static void become_openssl(char *arguments)
{
    char *argv[WORDS_MAX + 1] = {"openssl"};
    char *rest = NULL, *word = strtok_r(arguments, " ", &rest);
    int log;

    for (size_t i = 1; word != NULL && i < WORDS_MAX; i++) {
        argv[i] = word;
        word = strtok_r(NULL, " ", &rest);
    }
    if (chdir(server.dir) != 0)
        _exit(127);
    log = open("openssl.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(log, STDERR_FILENO);
    (void)execvp(argv[0], argv);
    _exit(127);
}

/* Run openssl in the server's directory; arguments are separated by single
 * spaces. */
static void openssl(const char *arguments)
{
    char copy[TEXT_BYTES];
    int status = 0;
    pid_t pid;

    ck_assert_uint_lt(strlen(arguments), sizeof(copy));
    snprintf(copy, sizeof(copy), "%s", arguments);
    pid = fork();
    if (pid == 0)
        become_openssl(copy);
    ck_assert_int_ge(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "openssl %s: see %s", arguments,
                  own_database_keep_log(&server, "openssl.log"));
}

#define NEW_KEY "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"

/* Make NAME.pem and NAME.key, self-signed. */
static void make_authority(const char *name)
{
    char arguments[TEXT_BYTES];

    snprintf(arguments, sizeof(arguments),
             "req -x509 " NEW_KEY " -keyout %s.key -out %s.pem -subj /CN=%s "
             "-days 2",
             name, name, name);
    openssl(arguments);
}

/* Make NAME.pem and NAME.key for this common name, signed by the authority ca.
 */
static void make_certificate(const char *name, const char *common_name)
{
    char arguments[TEXT_BYTES];

    snprintf(arguments, sizeof(arguments),
             "req -new " NEW_KEY " -keyout %s.key -out %s.csr -subj /CN=%s",
             name, name, common_name);
    openssl(arguments);
    snprintf(arguments, sizeof(arguments),
             "x509 -req -in %s.csr -CA ca.pem -CAkey ca.key -CAcreateserial "
             "-out %s.pem -days 2",
             name, name);
    openssl(arguments);
}

/* -------------------------------------------------------------- the server */

static void reload_certificates(void)
{
    run_sql(&site,
            is_mariadb(&site) ? "FLUSH SSL" : "ALTER INSTANCE RELOAD TLS");
}

/* Returns a port that is free at the moment. */
static unsigned find_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    ck_assert_int_eq(close(fd), 0);
    return ntohs(address.sin_port);
}

/* Put a server into PATH before the real one, which adds options to those of
 * own_database.c. */
static void put_options_before_the_server(void)
{
    const char *program = own_database_program();
    char name[PATH_BYTES / 2], search[SEARCH_BYTES];
    struct path script;
    FILE *file;

    ck_assert_int_eq(mkdir(path_of("bin").text, 0700), 0);
    snprintf(name, sizeof(name), "bin/%s", program);
    script = path_of(name);
    file = fopen(script.text, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "#!/bin/sh\nPATH=${PATH#*:}\n"
            "exec %s \"$@\" --skip-networking=0 --port=%u "
            "--bind-address=127.0.0.1 --ssl-ca=%s --ssl-cert=%s --ssl-key=%s\n",
            program, port, path_of("ca.pem").text, path_of("server.pem").text,
            path_of("server.key").text);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(script.text, 0700), 0);
    snprintf(search, sizeof(search), "%s:%s", path_of("bin").text,
             getenv("PATH"));
    ck_assert_int_eq(setenv("PATH", search, 1), 0);
}

static void install(void)
{
    own_site_install();
    make_authority("ca");
    make_authority("other");
    make_certificate("server", "localhost");
    make_certificate("client", "client");
    port = find_port();
    put_options_before_the_server();
}

static void set_up(void)
{
    own_site_up();
    make_user(&site, "reader");
    run_sql(&site, "ALTER USER reader REQUIRE SSL");
    run_sql(&site, "GRANT SELECT ON %s.* TO reader", site.database);
    snprintf(uri, sizeof(uri), "mysql://reader@localhost:%u/%s", port,
             site.database);
}

/* ------------------------------------------------------------------- loads */

#define WORD "SELECT k, v FROM word WHERE k IN (?)"
#define CIPHER_OF(schema)                                                      \
    "SELECT 'cipher', variable_value FROM " schema                             \
    ".session_status WHERE variable_name = 'Ssl_cipher' AND 'cipher' IN (?)"

/* The options, and the paths that they point to. */
struct tls {
    struct shed_mysql_options options;
    struct path ca, cert, key;
};

/* Set the authority and our certificate, files in the server's directory; NULL:
 * none. */
static void set_tls(struct tls *tls, const char *ca, const char *our)
{
    char name[PATH_BYTES / 2];

    *tls = (struct tls){.options = SHED_MYSQL_OPTIONS_INIT};
    if (ca != NULL) {
        tls->ca = path_of(ca);
        tls->options.tls_ca = tls->ca.text;
    }
    if (our == NULL)
        return;
    snprintf(name, sizeof(name), "%s.pem", our);
    tls->cert = path_of(name);
    snprintf(name, sizeof(name), "%s.key", our);
    tls->key = path_of(name);
    tls->options.tls_cert = tls->cert.text;
    tls->options.tls_key = tls->key.text;
}

/* Load a key with a source of its own. */
static void load_tls(struct ask *ask, const char *query, const char *key,
                     const char *ca, const char *our)
{
    struct shed_source *source;
    struct tls tls;

    set_tls(&tls, ca, our);
    EXPECT_OK(shed_mysql_source_open(uri, query, &tls.options, &source, NULL));
    load_key(source, ask, key);
    shed_source_close(source);
}

/* Connect a handle of the program. *is_tls: whether TLS is in use. */
static enum shed_code connect_tls(const char *ca, const char *our, bool *is_tls,
                                  struct shed_error *err)
{
    MYSQL *mysql = mysql_init(NULL);
    enum shed_code code;
    struct tls tls;

    set_tls(&tls, ca, our);
    code = shed_mysql_connect(mysql, uri, &tls.options, 0, err);
    *is_tls = code == SHED_OK && mysql_get_ssl_cipher(mysql) != NULL;
    mysql_close(mysql);
    return code;
}

TEST(the_right_authority_is_believed)
{
    struct ask ask;

    load_tls(&ask, WORD, "a", "ca.pem", NULL);
    assert_text(&ask, "A");
    load_tls(&ask,
             is_mariadb(&site) ? CIPHER_OF("information_schema")
                               : CIPHER_OF("performance_schema"),
             "cipher", "ca.pem", NULL);
    ck_assert_ptr_nonnull(ask.loaded.value);
    ck_assert_uint_gt(ask.loaded.value->size, 0);
    assert_kind(&ask, SHED_KIND_ROW);
}

TEST(another_authority_is_not)
{
    struct ask ask;

    load_tls(&ask, WORD, "a", "other.pem", NULL);
    assert_failure(&ask, "certificate");
}

TEST(a_certificate_of_another_name_is_not_believed)
{
    struct ask ask;

    make_certificate("server", "elsewhere");
    reload_certificates();
    load_tls(&ask, WORD, "a", "ca.pem", NULL);
    assert_failure(&ask, "MySQL: ");
    make_certificate("server", "localhost");
    reload_certificates();
    load_tls(&ask, WORD, "a", "ca.pem", NULL);
    assert_text(&ask, "A");
}

TEST(without_its_file_an_authority_is_not_believed)
{
    struct ask ask;

    load_tls(&ask, WORD, "a", "missing.pem", NULL);
    assert_failure(&ask, "MySQL: ");
}

TEST(a_certificate_of_ours_is_shown)
{
    struct ask ask;

    run_sql(&site, "ALTER USER reader REQUIRE SUBJECT '/CN=client'");
    load_tls(&ask, WORD, "a", "ca.pem", "client");
    assert_text(&ask, "A");
    load_tls(&ask, WORD, "a", "ca.pem", NULL);
    assert_failure(&ask, "(1045)");
    load_tls(&ask, WORD, "a", "ca.pem", "server");
    assert_failure(&ask, "(1045)");
}

TEST(a_connection_of_the_programs_uses_the_same_files)
{
    struct shed_error err;
    bool is_tls;

    run_sql(&site, "ALTER USER reader REQUIRE SUBJECT '/CN=client'");
    ck_assert_msg(connect_tls("ca.pem", "client", &is_tls, &err) == SHED_OK,
                  "%s", err.reason);
    ck_assert(is_tls);
    EXPECT_CODE(connect_tls("ca.pem", NULL, &is_tls, &err), SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(err.reason, "(1045)"));
    EXPECT_CODE(connect_tls("other.pem", "client", &is_tls, &err),
                SHED_ESOURCE);
    ck_assert_ptr_nonnull(strstr(err.reason, "certificate"));
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), install, own_site_remove);
    tcase_add_checked_fixture(test_case(), set_up, own_site_down);
    return run_tests("mysql_tls");
}
