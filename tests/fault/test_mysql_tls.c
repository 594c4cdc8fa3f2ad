/* The MySQL source, and connections of the program, over TLS: which
 * certificates are accepted. With a private MariaDB or MySQL on 127.0.0.1. */
#include <stdio.h>
#include <string.h>

#include <sys/stat.h>

#include "support/certificates.h"
#include "support/own_site.h"
#include "support/server.h"

enum { SEARCH_BYTES = 1024 };

static unsigned port;
static char uri[TEXT_BYTES]; /* of the site's database, by TCP */

static const char *path_of(const char *file)
{
    return certificates_path(server.dir, file);
}

/* -------------------------------------------------------------- the server */

/* Put a server into PATH before the real one, which adds options to those of
 * own_database.c. */
static void put_options_before_the_server(void)
{
    const char *program = own_database_program();
    char name[CERTIFICATES_PATH_BYTES / 2], search[SEARCH_BYTES];
    FILE *file;

    ck_assert_int_eq(mkdir(path_of("bin"), 0700), 0);
    snprintf(name, sizeof(name), "bin/%s", program);
    file = fopen(path_of(name), "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "#!/bin/sh\nPATH=${PATH#*:}\n"
            "exec %s \"$@\" --skip-networking=0 --port=%u "
            "--bind-address=127.0.0.1 --ssl-ca=%s --ssl-cert=%s --ssl-key=%s\n",
            program, port, path_of("ca.pem"), path_of("server.pem"),
            path_of("server.key"));
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path_of(name), 0700), 0);
    snprintf(search, sizeof(search), "%s:%s", path_of("bin"), getenv("PATH"));
    ck_assert_int_eq(setenv("PATH", search, 1), 0);
}

static void install(void)
{
    own_site_install();
    certificates_make(server.dir);
    port = server_free_port();
    put_options_before_the_server();
}

/* Give the server a certificate for another host, or its own again. */
static void serve_as(const char *hosts)
{
    certificate_make(server.dir, &(const struct certificate){.name = "server",
                                                             .issuer = "ca",
                                                             .hosts = hosts,
                                                             .days = 2});
    run_sql(&site,
            is_mariadb(&site) ? "FLUSH SSL" : "ALTER INSTANCE RELOAD TLS");
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

/* The authority and our certificate are files in the server's directory; NULL:
 * none. */
static struct shed_mysql_options options_of(const char *ca, const char *our)
{
    struct shed_mysql_options o = SHED_MYSQL_OPTIONS_INIT;
    char name[CERTIFICATES_PATH_BYTES / 2];

    o.tls_ca = path_of(ca);
    if (our == NULL)
        return o;
    snprintf(name, sizeof(name), "%s.pem", our);
    o.tls_cert = path_of(name);
    snprintf(name, sizeof(name), "%s.key", our);
    o.tls_key = path_of(name);
    return o;
}

/* Load a key with a source of its own. */
static void load_tls(struct ask *ask, const char *query, const char *key,
                     const char *ca, const char *our)
{
    const struct shed_mysql_options o = options_of(ca, our);
    struct shed_source *source;

    EXPECT_OK(shed_mysql_source_open(uri, query, &o, &source, NULL));
    load_key(source, ask, key);
    shed_source_close(source);
}

/* Load a, and expect its row; or a failure for this reason. */
static void expect_load(const char *ca, const char *our, const char *why)
{
    struct ask ask;

    load_tls(&ask, WORD, "a", ca, our);
    if (why == NULL)
        assert_text(&ask, "A");
    else
        assert_failure(&ask, why);
}

/* Connect a handle of the program. *is_tls: whether TLS is in use. */
static enum shed_code connect_tls(const char *ca, const char *our, bool *is_tls,
                                  struct shed_error *err)
{
    const struct shed_mysql_options o = options_of(ca, our);
    MYSQL *mysql = mysql_init(NULL);
    enum shed_code code = shed_mysql_connect(mysql, uri, &o, 0, err);

    *is_tls = code == SHED_OK && mysql_get_ssl_cipher(mysql) != NULL;
    mysql_close(mysql);
    return code;
}

TEST(the_right_authority_is_believed_and_no_other)
{
    struct ask ask;

    expect_load("ca.pem", NULL, NULL);
    load_tls(&ask,
             is_mariadb(&site) ? CIPHER_OF("information_schema")
                               : CIPHER_OF("performance_schema"),
             "cipher", "ca.pem", NULL);
    ck_assert_ptr_nonnull(ask.loaded.value);
    ck_assert_uint_gt(ask.loaded.value->size, 0);
    assert_kind(&ask, SHED_KIND_ROW);
    expect_load("other.pem", NULL, "certificate");
    expect_load("missing.pem", NULL, "MySQL: ");
}

TEST(a_certificate_of_another_name_is_not_believed)
{
    serve_as("DNS:elsewhere");
    expect_load("ca.pem", NULL, "MySQL: ");
    serve_as("DNS:localhost");
    expect_load("ca.pem", NULL, NULL);
}

TEST(a_certificate_of_ours_is_shown)
{
    run_sql(&site, "ALTER USER reader REQUIRE SUBJECT '/CN=client'");
    expect_load("ca.pem", "client", NULL);
    expect_load("ca.pem", NULL, "(1045)");
    expect_load("ca.pem", "server", "(1045)");
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

TEST(a_connection_killed_while_idle_is_opened_again)
{
    struct shed_source_options loads = SHED_SOURCE_OPTIONS_INIT;
    struct shed_mysql_options o = options_of("ca.pem", NULL);
    struct shed_source *source;

    loads.max_loads = 1;
    o.source = &loads;
    EXPECT_OK(shed_mysql_source_open(uri, WORD, &o, &source, NULL));
    expect_loaded(source, "a", "A");
    run_sql(&site, "KILL CONNECTION %lu", only_connection(&site));
    expect_loaded(source, "b", "B");
    shed_source_close(source);
}

int main(void)
{
    tcase_add_unchecked_fixture(test_case(), install, own_site_remove);
    tcase_add_checked_fixture(test_case(), set_up, own_site_down);
    return run_tests("mysql_tls");
}
