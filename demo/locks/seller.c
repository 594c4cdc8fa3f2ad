/* The process, and its threads. */
#include "seller.h"

#include <mysql.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define THREADS_MAX 256
#define CONNECT_TIMEOUT_MS 5000
#define ANSWER_TIMEOUT_MS 60000 /* above the server's wait for a row's lock */

static const struct way *const ways[] = {&way_plain, &way_held, &way_none,
                                         &way_expire, &way_snowshed};

void seller_say(uint64_t buyer, const char *format, ...)
{
    char line[2 * LINE_BYTES];
    int size = snprintf(line, sizeof(line), "%llu ", (unsigned long long)buyer);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line + size, sizeof(line) - (size_t)size - 1, format, args);
    va_end(args);
    (void)strcat(line, "\n");
    (void)!write(STDOUT_FILENO, line, strlen(line));
}

/* A line of its own, because a stdio stream is locked. */
bool seller_hear(char line[LINE_BYTES])
{
    return fgets(line, LINE_BYTES, stdin) != NULL;
}

/* Buyer 0 is nobody. */
static void complain(const char *why)
{
    seller_say(0, "failed %s", why);
}

struct shop {
    const struct way *way;
    const char *mysql_uri;
    void *process;
};

static struct statements *connect_server(const struct shop *shop, char *why,
                                         size_t size)
{
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    options.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    options.read_timeout_ms = ANSWER_TIMEOUT_MS;
    return statements_open(shop->mysql_uri, &options, shop->way->statements,
                           shop->way->files, why, size);
}

static void *run_thread(void *arg)
{
    const struct shop *shop = arg;
    const struct way *way = shop->way;
    char line[LINE_BYTES], why[SHED_REASON_BYTES + 16] = "out of memory";
    struct statements *sql = connect_server(shop, why, sizeof(why));
    void *thread =
        sql != NULL ? way->enter(shop->process, sql, why, sizeof(why)) : NULL;

    if (thread == NULL)
        complain(why);
    while (thread != NULL && seller_hear(line))
        if (!way->serve(thread, line, why, sizeof(why)))
            complain(why);
    if (thread != NULL)
        way->leave(thread);
    statements_close(sql);
    mysql_thread_end();
    return NULL;
}

static void run_threads(struct shop *shop, size_t count)
{
    pthread_t threads[THREADS_MAX];
    size_t started = 0;

    while (started < count && started < THREADS_MAX &&
           pthread_create(&threads[started], NULL, run_thread, shop) == 0)
        started++;
    while (started > 0)
        (void)pthread_join(threads[--started], NULL);
}

static const struct way *find_way(const char *name)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i]->name, name) == 0)
            return ways[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct seller_options options;
    struct shed_error err = {SHED_OK, ""};
    struct shop shop;

    if (argc != 6 || (shop.way = find_way(argv[1])) == NULL) {
        (void)fprintf(stderr, "usage: seller WAY REDIS MYSQL ITEM THREADS, for "
                              "the scripts of demo/locks\n");
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    options =
        (struct seller_options){argv[2], argv[3], strtoull(argv[4], NULL, 10)};
    shop.mysql_uri = options.mysql_uri;
    if (mysql_library_init(0, NULL, NULL) == 0 &&
        (shop.process = shop.way->open(shop.way, &options, &err)) != NULL) {
        run_threads(&shop, (size_t)strtoull(argv[5], NULL, 10));
        shop.way->close(shop.process);
    } else {
        complain(err.reason);
    }
    mysql_library_end();
    return EXIT_SUCCESS;
}
