/* What a program and the MySQL source share: the disposition of SIGPIPE, which
 * is kept, and the client library's own state, which the program may remove.
 * The guard raises no signal. Needs SHED_TEST_MYSQL. With Oracle's client
 * library a write to a closed connection raises the signal; MariaDB's library
 * asks the system not to. Each test is a process that has not used the library
 * before. */
#include <signal.h>
#include <string.h>

#include <sys/socket.h>

#include "support/mysql_testing.h"

static volatile sig_atomic_t handled;

static void note_signal(int number)
{
    (void)number;
    handled++;
}

static void set_sigpipe(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    ck_assert_int_eq(sigaction(SIGPIPE, &action, NULL), 0);
}

static void (*sigpipe_now(void))(int)
{
    struct sigaction action;

    ck_assert_int_eq(sigaction(SIGPIPE, NULL, &action), 0);
    return action.sa_handler;
}

static void open_and_close_source(void)
{
    struct shed_source *source;

    EXPECT_OK(shed_mysql_source_open("mysql://nowhere/x", "(?)", NULL, &source,
                                     NULL));
    shed_source_close(source);
}

/* A dead connection of the program, whose end the library has not noticed. */
static MYSQL *dead_connection(void)
{
    const char *uri = getenv("SHED_TEST_MYSQL");
    MYSQL *mysql = mysql_init(NULL);

    ck_assert_ptr_nonnull(uri);
    EXPECT_OK(shed_mysql_connect(mysql, uri, NULL, 0, NULL));
    ck_assert_int_eq(mysql_query(mysql, "BEGIN"), 0);
    ck_assert_int_eq(shutdown((int)mysql->net.fd, SHUT_RDWR), 0);
    return mysql;
}

static void guard_fails(MYSQL *mysql)
{
    struct shed_fence fence = {.number = 1};

    EXPECT_CODE(shed_mysql_fence(mysql, shed_str("stock"), &fence, NULL, NULL),
                SHED_ESOURCE);
}

static bool is_pending(void)
{
    sigset_t pending;

    ck_assert_int_eq(sigpending(&pending), 0);
    return sigismember(&pending, SIGPIPE) == 1;
}

static bool is_blocked(void)
{
    sigset_t blocked;

    ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    return sigismember(&blocked, SIGPIPE) == 1;
}

TEST(a_dropped_connection_does_not_end_the_program)
{
    MYSQL *mysql;

    set_sigpipe(SIG_DFL);
    open_and_close_source();
    mysql = dead_connection();
    ck_assert_int_ne(mysql_query(mysql, "DO 1"), 0);
    mysql_close(mysql);
    /* as after the program's own first use */
    ck_assert(sigpipe_now() == SIG_IGN);
}

TEST(a_handler_of_the_programs_stays)
{
    set_sigpipe(note_signal);
    open_and_close_source();
    ck_assert(sigpipe_now() == note_signal);
}

TEST_EACH(the_guard_raises_no_sigpipe, 0, 2)
{
    MYSQL *mysql;

    open_and_close_source();
    mysql = dead_connection();
    set_sigpipe(_i == 0 ? note_signal : SIG_DFL);
    guard_fails(mysql);
    ck_assert_int_eq(handled, 0);
    ck_assert(!is_pending());
    ck_assert(!is_blocked());
    mysql_close(mysql);
}

TEST(a_sigpipe_that_was_pending_before_the_guard_is_pending_after)
{
    MYSQL *mysql;
    sigset_t sigpipe;

    open_and_close_source();
    mysql = dead_connection();
    set_sigpipe(note_signal);
    ck_assert_int_eq(sigemptyset(&sigpipe), 0);
    ck_assert_int_eq(sigaddset(&sigpipe, SIGPIPE), 0);
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &sigpipe, NULL), 0);
    ck_assert_int_eq(raise(SIGPIPE), 0);
    guard_fails(mysql);
    ck_assert(is_pending());
    ck_assert(is_blocked());
    ck_assert_int_eq(pthread_sigmask(SIG_UNBLOCK, &sigpipe, NULL), 0);
    ck_assert_int_eq(handled, 1);
    mysql_close(mysql);
}

/* The library counts nobody's use. A source that has connections then goes on,
 * or fails; it does not crash. */
TEST(a_program_may_end_the_client_library_while_a_source_is_open)
{
    struct shed_source *source;
    struct site site;
    struct ask ask;

    open_site(&site, getenv("SHED_TEST_MYSQL"));
    make_words(&site);
    source = OPEN_WITH(&site, "SELECT k, v FROM word WHERE k IN (?)",
                       .max_loads = 1);
    expect_loaded(source, "a", "A");
    mysql_library_end();
    for (int i = 0; i < 2; i++) {
        load_key(source, &ask, "b");
        if (ask.loaded.value == NULL) {
            assert_failure(&ask, "MySQL: ");
            continue;
        }
        assert_text(&ask, "B");
        run_sql(&site, "KILL %lu", only_connection(&site));
    }
    shed_source_close(source);
    source = open_source(&site, "SELECT k, v FROM word WHERE k IN (?)", NULL);
    expect_loaded(source, "b", "B");
    shed_source_close(source);
    close_site(&site);
}

int main(void)
{
    return run_tests("mysql_signals");
}
