/* shed_mysql_connect: the properties of the connection, and each failure. Needs
 * SHED_TEST_MYSQL. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/un.h>

#include "support/mysql_testing.h"
#include "support/painted_stack.h"

#define PASSWORD "s3cret:@/?%"
#define PASSWORD_IN_URI "s3cret%3A%40%2F%3F%25"

static struct site site;
static char user[32];
static MYSQL *mysql;
static struct shed_error err;

static void set_up(void)
{
    open_site(&site, getenv("SHED_TEST_MYSQL"));
    make_words(&site);
    snprintf(user, sizeof(user), "shed_test_%ld", (long)getpid());
    run_sql(&site, "DROP USER IF EXISTS %s@localhost", user);
    run_sql(&site, "CREATE USER %s@localhost IDENTIFIED BY '%s'", user,
            PASSWORD);
    run_sql(&site, "GRANT ALL ON %s.* TO %s@localhost", site.database, user);
    mysql = mysql_init(NULL);
    ck_assert_ptr_nonnull(mysql);
}

static void tear_down(void)
{
    mysql_close(mysql);
    run_sql(&site, "DROP USER %s@localhost", user);
    close_site(&site);
}

/* The site's URI, with a user, a password and a database in it. */
static const char *uri_of(const char *who, const char *password,
                          const char *database)
{
    static char uri[TEXT_BYTES];

    snprintf(uri, sizeof(uri), "mysql://%s:%s@/%s%s", who, password, database,
             strchr(site.uri, '?'));
    return uri;
}

static void connects(const char *uri, const struct shed_mysql_options *options,
                     unsigned long flags)
{
    ck_assert_msg(shed_mysql_connect(mysql, uri, options, flags, &err) ==
                      SHED_OK,
                  "%s: %s", uri, err.reason);
}

/* The connection's own answer, as text. */
static const char *answer(const char *sql)
{
    static char text[TEXT_BYTES];
    MYSQL_RES *result;
    MYSQL_ROW row;

    ck_assert_msg(mysql_query(mysql, sql) == 0, "%s", mysql_error(mysql));
    result = mysql_store_result(mysql);
    ck_assert_ptr_nonnull(result);
    row = mysql_fetch_row(result);
    ck_assert(row != NULL && row[0] != NULL);
    snprintf(text, sizeof(text), "%s", row[0]);
    mysql_free_result(result);
    return text;
}

static void refuses(const char *uri, enum shed_code code, const char *says)
{
    ck_assert_int_eq(shed_mysql_connect(mysql, uri, NULL, 0, &err), code);
    ck_assert_int_eq(err.code, code);
    ck_assert_msg(strstr(err.reason, says) != NULL, "%s: %s", uri, err.reason);
    ck_assert_ptr_null(strstr(err.reason, "s3cret"));
}

TEST(user_password_and_database_are_the_uris)
{
    connects(uri_of(user, PASSWORD_IN_URI, site.database), NULL, 0);
    ck_assert_str_eq(answer("SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"),
                     user);
    ck_assert_str_eq(answer("SELECT DATABASE()"), site.database);
    ck_assert_str_eq(answer("SELECT v FROM word WHERE k = 'a'"), "A");
}

TEST(characters_are_utf8mb4)
{
    connects(site.uri, NULL, 0);
    ck_assert_str_eq(mysql_character_set_name(mysql), "utf8mb4");
    ck_assert_str_eq(answer("SELECT @@character_set_client"), "utf8mb4");
    ck_assert_str_eq(answer("SELECT @@character_set_results"), "utf8mb4");
    ck_assert_str_eq(answer("SELECT CHAR_LENGTH('\xf0\x9f\x8f\x94')"), "1");
}

TEST_EACH(client_flags_are_passed_on, 0, 2)
{
    connects(site.uri, NULL, _i == 0 ? 0 : CLIENT_FOUND_ROWS);
    ck_assert_int_eq(
        mysql_query(mysql, "UPDATE word SET v = 'A' WHERE k = 'a'"), 0);
    ck_assert_uint_eq(mysql_affected_rows(mysql), (unsigned)_i);
}

TEST(a_server_that_is_silent_for_the_read_timeout_is_left)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;
    unsigned long id;

    options.read_timeout_ms = 1000;
    connects(site.uri, &options, 0);
    id = mysql_thread_id(mysql);
    ck_assert_int_ne(mysql_query(mysql, "SELECT SLEEP(400)"), 0);
    run_sql(&site, "KILL %lu", id);
}

TEST(a_program_that_is_started_does_not_inherit_it)
{
    connects(site.uri, NULL, 0);
    ck_assert_int_ne(fcntl((int)mysql->net.fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST(it_does_not_reconnect_by_itself)
{
    shed_mysql_flag on = 1;

    ck_assert_int_eq(mysql_options(mysql, MYSQL_OPT_RECONNECT, &on), 0);
    ck_assert(shed_mysql_reconnects(mysql));
    connects(site.uri, NULL, 0);
    ck_assert(!shed_mysql_reconnects(mysql));
}

/* Options that the program has set before are kept. */
TEST(an_option_of_the_programs_holds)
{
    ck_assert_int_eq(
        mysql_options(mysql, MYSQL_INIT_COMMAND, "SET @mine = 'kept'"), 0);
    connects(site.uri, NULL, 0);
    ck_assert_str_eq(answer("SELECT @mine"), "kept");
}

static void connect_and_guard(void)
{
    struct shed_fence fence = {.number = 7};
    uint64_t newest;

    connects(site.uri, NULL, 0);
    ck_assert_int_eq(mysql_query(mysql, "BEGIN"), 0);
    ck_assert_msg(shed_mysql_fence(mysql, shed_str("stock:7"), &fence, &newest,
                                   &err) == SHED_OK,
                  "%s", err.reason);
    ck_assert_uint_eq(newest, 7);
    ck_assert_int_eq(mysql_query(mysql, "COMMIT"), 0);
}

TEST(the_guard_works_on_it)
{
    make_fence(&site);
    connect_and_guard();
}

TEST(connecting_and_the_guard_need_little_stack)
{
    make_fence(&site);
    check_stack_use("connect and guard", stack_use_of(connect_and_guard),
                    16 * 1024);
}

TEST(a_wrong_password_is_the_servers_refusal)
{
    refuses(uri_of(user, "s3cret", site.database), SHED_ESOURCE, "(1045)");
    ck_assert_uint_eq(mysql_errno(mysql), 1045);
}

TEST(an_unknown_database_is_named)
{
    refuses(uri_of("root", "", "no_such_database"), SHED_ESOURCE,
            "no_such_database");
    ck_assert_uint_eq(mysql_errno(mysql), 1049);
}

TEST(a_server_that_is_not_there_is_an_error_of_the_source)
{
    static const char *const uris[] = {
        "mysql://u:s3cret@127.0.0.1:1/d",
        "mysql://u:s3cret@/d?socket=/nowhere/my.sock",
        "mysql://u:s3cret@no.such.host.invalid/d"};

    for (size_t i = 0; i < sizeof(uris) / sizeof(*uris); i++) {
        refuses(uris[i], SHED_ESOURCE, "MySQL: ");
        mysql_close(mysql);
        mysql = mysql_init(NULL);
    }
}

TEST(a_handle_that_is_connected_is_refused)
{
    connects(site.uri, NULL, 0);
    refuses(site.uri, SHED_EINVAL, "already connected");
}

TEST(arguments_are_checked)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    refuses(NULL, SHED_EINVAL, "uri is NULL");
    refuses("mysql://u:s3cret@h", SHED_EINVAL, "database");
    options.read_timeout_ms = 1;
    EXPECT_CODE(shed_mysql_connect(mysql, site.uri, &options, 0, &err),
                SHED_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.reason, "read_timeout_ms"));
    EXPECT_CODE(shed_mysql_connect(NULL, site.uri, NULL, 0, &err), SHED_ENOMEM);
    EXPECT_CODE(shed_mysql_connect(NULL, site.uri, NULL, 0, NULL), SHED_ENOMEM);
}

/* ---------------------------------------------------------------- SIGPIPE */

/* A server that greets as the real one does, but reads nothing: the client's
 * first write fails with EPIPE. */
struct deaf_server {
    struct sockaddr_un name;
    int fd;
    pthread_t thread;
};

static int dial(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    ck_assert_uint_lt(strlen(path), sizeof(name.sun_path));
    strcpy(name.sun_path, path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

static void *greet(void *arg)
{
    struct deaf_server *server = arg;
    int real_fd = dial(strchr(site.uri, '=') + 1);
    int fd = accept(server->fd, NULL, NULL);
    char greeting[TEXT_BYTES];
    ssize_t size = read(real_fd, greeting, sizeof(greeting));

    ck_assert_int_gt(size, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(shutdown(fd, SHUT_RD), 0);
    ck_assert_int_eq(write(fd, greeting, (size_t)size), size);
    (void)read(real_fd, greeting, sizeof(greeting));
    close(real_fd);
    close(fd);
    return NULL;
}

TEST(no_sigpipe_is_raised)
{
    struct deaf_server server = {.name.sun_family = AF_UNIX};
    char uri[TEXT_BYTES];

    snprintf(server.name.sun_path, sizeof(server.name.sun_path),
             "/tmp/snowshed.%ld.sock", (long)getpid());
    server.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(
        bind(server.fd, (struct sockaddr *)&server.name, sizeof(server.name)),
        0);
    ck_assert_int_eq(listen(server.fd, 1), 0);
    start_thread(&server.thread, greet, &server);
    snprintf(uri, sizeof(uri), "mysql://u@/d?socket=%s", server.name.sun_path);
    ck_assert(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    refuses(uri, SHED_ESOURCE, "MySQL: ");
    ck_assert_int_eq(pthread_join(server.thread, NULL), 0);
    close(server.fd);
    ck_assert_int_eq(unlink(server.name.sun_path), 0);
}

int main(void)
{
    tcase_add_checked_fixture(test_case(), set_up, tear_down);
    return run_tests("mysql_connect");
}
