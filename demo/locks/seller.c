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

#include "common/redis.h"

#define THREADS_MAX 256
#define CONNECT_TIMEOUT_MS 5000
#define ANSWER_TIMEOUT_MS 60000  /* above the server's wait for a row's lock */
#define COMMAND_TIMEOUT_MS 10000 /* a slow host is not a dead server */

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

static bool connect_servers(struct counter *c, char *why, size_t size)
{
    const struct seller *s = c->seller;
    struct shed_mysql_options options = SHED_MYSQL_OPTIONS_INIT;

    options.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    options.read_timeout_ms = ANSWER_TIMEOUT_MS;
    c->db = statements_open(s->mysql_uri, &options, s->way->statements,
                            s->way->files, why, size);
    if (c->db != NULL && !s->way->has_locks)
        c->redis =
            demo_redis_open(s->redis_uri, DEMO_REDIS_PATIENT_MS, why, size);
    return c->db != NULL && (s->way->has_locks || c->redis != NULL);
}

static void *run_thread(void *arg)
{
    struct counter c = {.seller = arg};
    char line[LINE_BYTES], why[SHED_REASON_BYTES + 16];
    bool is_open = connect_servers(&c, why, sizeof(why));

    if (!is_open)
        complain(why);
    while (is_open && seller_hear(line)) {
        c.err.code = SHED_EINVAL;
        (void)snprintf(c.err.reason, sizeof(c.err.reason),
                       "a line of another kind: %.100s", line);
        if (!c.seller->way->serve(&c, line))
            complain(c.err.code != SHED_OK ? c.err.reason
                                           : statements_why(c.db));
    }
    if (c.redis != NULL)
        redisFree(c.redis);
    statements_close(c.db);
    mysql_thread_end();
    return NULL;
}

static void run_threads(struct seller *seller, size_t count)
{
    pthread_t threads[THREADS_MAX];
    size_t started = 0;

    while (started < count && started < THREADS_MAX &&
           pthread_create(&threads[started], NULL, run_thread, seller) == 0)
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

static enum shed_code open_seller(struct seller *s, struct shed_error *err)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    enum shed_code code = SHED_OK;

    options.command_timeout_ms = COMMAND_TIMEOUT_MS;
    if (s->way->has_locks)
        code = shed_client_open(s->redis_uri, &options, &s->client, err);
    return code == SHED_OK && s->way->open != NULL ? s->way->open(s, err)
                                                   : code;
}

int main(int argc, char **argv)
{
    struct shed_error err = {SHED_OK, ""};
    const struct way *way = argc == 6 ? find_way(argv[1]) : NULL;
    struct seller seller;

    if (way == NULL) {
        (void)fprintf(stderr, "usage: seller WAY REDIS MYSQL ITEM THREADS, for "
                              "the scripts of demo/locks\n");
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    seller = (struct seller){.way = way,
                             .redis_uri = argv[2],
                             .mysql_uri = argv[3],
                             .item = strtoull(argv[4], NULL, 10)};
    if (mysql_library_init(0, NULL, NULL) == 0 &&
        open_seller(&seller, &err) == SHED_OK)
        run_threads(&seller, (size_t)strtoull(argv[5], NULL, 10));
    else
        complain(err.reason);
    if (way->close != NULL)
        way->close(seller.shop);
    shed_client_close(seller.client);
    mysql_library_end();
    return EXIT_SUCCESS;
}
