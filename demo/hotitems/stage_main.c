/*
 * hotitems-stage: three lanes of the service under the same traffic, on one
 * page, with buttons that make trouble. See stage.h.
 */
#include "stage.h"
#include "stage_servers.h"

#include <errno.h>
#include <mysql.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/place.h"
#include "wait.h"

#define TICK_MS 100
#define PATH_BYTES 512
#define CONNECTIONS_MAX 64 /* of browsers; a page has a few */
#define REQUEST_MS 30000   /* a button may take a while */
#define SPARE_CONNECTIONS 100

#define CLI_OPTIONS struct stage_options
static const struct cli_option options[] = {
#include "stage_main.def"
};

/* Each literal is a line of the text. */
/* clang-format off */
static const char help[] =
    "usage: hotitems-stage --redis URI --mysql URI [OPTION...]\n"
    "\n"
    "Three lanes of the service hotitems under the same traffic: without protection,\n"
    "with a SETNX lock, and with snowshed. Serves a page on 127.0.0.1 that shows them\n"
    "and has buttons that make trouble. Its first line of output is its address.\n"
    "SIGTERM or Ctrl-C ends it, and all that it started.\n"
    "\n"
    "  --redis URI          redis://[user:password@]host[:port][/db] or\n"
    "                       unix:/path[?db=n]. A button EMPTIES THAT DATABASE\n"
    "  --mysql URI          mysql://user[:password]@host[:port]/database or\n"
    "                       mysql://user@/database?socket=/path, with the tables of\n"
    "                       schema, items, fence, hotitems and capacity in sql/\n"
    "  --port N             of the page; default 0: any that is free\n"
    "  --clients N          for each lane (default 200); the page has a slider\n"
    "  --skew X             of the Zipf distribution of items (default 1.0)\n"
    "  --think-ms N         mean pause of a client between requests (default 150)\n"
    "  --items N            items that are asked for (default 2000)\n"
    "  --instances N        processes for each lane, 1 to 4 (default 2)\n"
    "  --db-slots N         queries that a lane's database executes at a time\n"
    "                       (default 16); the others queue in the server\n"
    "  --db-cost-ms N       how long it executes a query (default 150)\n"
    "  --redis-pid N        the process of Redis, which buttons may stop for 5 s, or\n"
    "                       kill; default 0: they may not. What is started in its\n"
    "                       place ends with this program\n"
    "  --db-pid N           the same for the database\n"
    "  --outage-s N         a killed server is started again after this time, if no\n"
    "                       button has done it (default 20)\n"
    "  --tour SECONDS       run unattended this long, with an expiry, a kill and a\n"
    "                       change of a price, and print a table; 0: run until it\n"
    "                       is ended (default)\n"
    "  --hotitems PATH      the service; default: beside this program\n"
    "  --snowshed PATH      the command-line tool; default: of this build, or in PATH\n"
    "  --logs DIR           write the instances' access logs there: LANE-NUMBER.log\n"
    "  --timeout-ms N       the instances' options (see hotitems --help): default\n"
    "  --ttl-ms N           2000, 3600000 (an hour, so that nothing expires unless\n"
    "  --connections N      a button is pressed), 600, 16 and 64\n"
    "  --db-connections N\n"
    "  --read-connections N\n"
    "  --loads N            those of the lane snowshed: default 16, ...\n"
    "  --adaptive-loads N   1, because two instances with 16 each are too many, ...\n"
    "  --refresh-after-pct N 50, ...\n"
    "  --stale-ms N         60000, ...\n"
    "  --soft-timeout-ms N  200, ...\n"
    "  --stale-if-error-ms N\n"
    "                       3600000, which is an hour, ...\n"
    "  --breaker-failure-pct N, --redis-breaker-failure-pct N\n"
    "                       50 and 50\n"
    "  --breaker-open-ms N, --breaker-open-max-ms N\n"
    "                       1000 and 4000\n"
    "  --help               this text\n"
    "\n"
    "Exit status: 0; 1 if it cannot start, or an instance cannot; 2 for a wrong\n"
    "option.\n";
/* clang-format on */

static const struct cli cli = {"hotitems-stage", help, options,
                               sizeof(options) / sizeof(options[0])};

/* ------------------------------------------------------------- shared */

void stage_wake(struct stage *stage)
{
    const uint64_t one = 1;

    (void)!write(stage->wake, &one, sizeof(one)); /* full: it is awake */
}

bool stage_wait_locked(struct stage *stage, uint64_t until_ms)
{
    uint64_t now_ms = http_now_ms();

    if (now_ms >= until_ms)
        return false;
    (void)wait_until(&stage->changed, &stage->mu, until_ms);
    return true;
}

/* ----------------------------------------------------------------- loop */

/* Wait for a child's output or end, a request of another thread, a signal.
 * Returns false when it is to end. */
static bool wait_for_any(struct stage *stage, int signals)
{
    struct pollfd fds[2 + LANES_FDS_MAX] = {{signals, POLLIN, 0},
                                            {stage->wake, POLLIN, 0}};
    struct signalfd_siginfo info;
    uint64_t waste;
    bool is_end = false;

    (void)poll(fds, 2 + lanes_poll(stage, fds + 2), TICK_MS);
    (void)!read(stage->wake, &waste, sizeof(waste));
    while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        is_end |= info.ssi_signo != SIGCHLD;
    return !is_end;
}

/* Whether what is waited for has come. */
typedef bool is_enough(struct stage *stage);

static bool is_warm_or_cold(struct stage *stage)
{
    bool is;

    stage_lock(stage);
    is = stage->is_warm || stage->is_cold;
    stage_unlock(stage);
    return is;
}

static void end(struct stage *stage)
{
    stage_lock(stage);
    stage->is_ending = true;
    (void)pthread_cond_broadcast(&stage->changed);
    stage_unlock(stage);
}

/* Until that, or until the stage is to end. Returns false if an instance cannot
 * be started. */
static bool run(struct stage *stage, int signals, is_enough *enough)
{
    while (!enough(stage)) {
        if (!wait_for_any(stage, signals)) {
            end(stage);
            return true;
        }
        servers_tick(stage);
        if (stage->http != NULL)
            http_tick(stage->http);
        if (!lanes_tick(stage)) {
            end(stage);
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------- open and close */

static void ignore_exchange(void *user, const struct http_record *record)
{
    (void)user;
    (void)record;
}

static void end_streams(void *user)
{
    struct stage *stage = user;

    sse_end(stage->hub);
}

static bool serve(struct stage *stage, char *why, size_t size)
{
    struct http_options o = {.address = "127.0.0.1",
                             .port = (uint16_t)stage->options.port,
                             .connections_max = CONNECTIONS_MAX,
                             .streams_max = HUB_LISTENERS_MAX,
                             .stop_streams = end_streams,
                             .timeout_ms = REQUEST_MS,
                             .handle = stage_handle,
                             .done = ignore_exchange,
                             .user = stage};

    stage->http = http_start(&o, why, size);
    return stage->http != NULL;
}

static void init_sync(struct stage *stage)
{
    wait_init(&stage->mu, &stage->changed);
}

static bool open_stage(struct stage *stage, char *why, size_t size)
{
    struct shed_error err = {SHED_OK, ""};

    servers_init(stage);
    stage->clients = stage->options.clients;
    stage->skew = stage->options.skew;
    stage->settings = 1;
    init_sync(stage);
    stage->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    stage->script = traffic_open_script();
    stage->hub = hub_new();
    if (stage->wake == -1 || stage->script == -1 || stage->hub == NULL) {
        (void)snprintf(why, size, "%s", strerror(errno));
        return false;
    }
    if (!lanes_init(stage, why, size))
        return false;
    if (!traffic_can_start()) {
        (void)snprintf(why, size,
                       "wrk, which makes the traffic, is not "
                       "installed (Debian's package is wrk)");
        return false;
    }
    if (place_use(stage->options.mysql, &err) != SHED_OK) {
        (void)snprintf(why, size, "%s", err.reason);
        return false;
    }
    stage->actions = actions_new(stage, why, size);
    return stage->actions != NULL;
}

/* Redis continues first: the instances' last requests may wait for it. */
static void close_stage(struct stage *stage)
{
    end(stage);
    servers_continue(stage);
    warm_stop(stage);
    (void)tour_stop(stage);
    if (stage->http != NULL)
        http_stop(stage->http);
    lanes_end(stage);
    actions_free(stage->actions);
    servers_end(stage);
    sse_free(stage->hub);
    (void)close(stage->wake);
    (void)close(stage->script);
    (void)pthread_cond_destroy(&stage->changed);
    (void)pthread_mutex_destroy(&stage->mu);
}

/* ------------------------------------------------------------------ main */

/* The service beside this program, the tool where the build puts it. */
static void find_programs(struct stage_options *o)
{
    static char dir[PATH_BYTES], hotitems[PATH_BYTES + 32],
        snowshed[PATH_BYTES + 32];
    ssize_t size = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    char *slash;

    dir[size > 0 ? size : 0] = '\0';
    slash = strrchr(dir, '/');
    if (slash != NULL)
        *slash = '\0';
    (void)snprintf(hotitems, sizeof(hotitems), "%s/hotitems", dir);
    (void)snprintf(snowshed, sizeof(snowshed), "%s/../src/cli/snowshed", dir);
    if (o->hotitems == NULL)
        o->hotitems = hotitems;
    if (o->snowshed == NULL)
        o->snowshed = access(snowshed, X_OK) == 0 ? snowshed : "snowshed";
}

/* Blocked in all threads; the main one reads them. */
static int open_signals(void)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN); /* a browser may close a connection */
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool perform(struct stage *stage, int signals, char *why, size_t size)
{
    if (!run(stage, signals, lanes_are_up))
        return false;
    if (stage_is_ending(stage))
        return true;
    if (!warm_start(stage))
        return false;
    if (!run(stage, signals, is_warm_or_cold))
        return false;
    if (stage_is_ending(stage))
        return true;
    if (stage->is_cold)
        return false;
    if (stage->options.tour_s != 0)
        return tour_start(stage) && run(stage, signals, stage_is_ending) &&
               tour_stop(stage);
    if (!serve(stage, why, size))
        return false;
    (void)printf("http://127.0.0.1:%u\n", http_port(stage->http));
    (void)fflush(stdout);
    return run(stage, signals, stage_is_ending);
}

int main(int argc, char **argv)
{
    static struct stage stage = {
        .options = {.clients = 200,
                    .skew = 1.0,
                    .think_ms = 150,
                    .items = 2000,
                    .instances = 2,
                    .db_slots = 16,
                    .db_cost_ms = 150,
                    .outage_s = 20,
                    .timeout_ms = 2000,
                    .ttl_ms = 3600000,
                    .connections = STAGE_CLIENTS_MAX / 2 + SPARE_CONNECTIONS,
                    .db_connections = 16,
                    .read_connections = 64,
                    .loads = 16,
                    .adaptive_loads = 1,
                    .refresh_after_pct = 50,
                    .stale_ms = 60000,
                    .soft_timeout_ms = 200,
                    .stale_if_error_ms = 3600000,
                    .breaker_failure_pct = 50,
                    .redis_breaker_failure_pct = 50,
                    .breaker_open_ms = 1000,
                    .breaker_open_max_ms = 4000}};
    char why[300] = "";
    bool is_good;
    int signals;

    cli_parse(&cli, &stage.options, argc, argv);
    find_programs(&stage.options);
    signals = open_signals();
    (void)mysql_library_init(0, NULL, NULL);
    /* For the tool. On a command line everybody could read it. */
    is_good = setenv("SNOWSHED_REDIS", stage.options.redis, 1) == 0 &&
              open_stage(&stage, why, sizeof(why)) &&
              perform(&stage, signals, why, sizeof(why));
    if (why[0] != '\0' && !is_good)
        (void)fprintf(stderr, "hotitems-stage: %s\n", why);
    close_stage(&stage);
    mysql_library_end();
    return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
