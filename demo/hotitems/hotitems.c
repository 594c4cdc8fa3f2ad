/*
 * A web backend on snowshed: items of a MySQL table over HTTP, read through
 * Redis. One program, as many instances as one likes; they share nothing but
 * the two servers.
 */
#include <inttypes.h>
#include <mysql.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cli.h"
#include "sample.h"
#include "service.h"
#include "wait.h"

/* Connections to Redis for threads that wait. Each client has a thread, so
 * there are far more threads than processors: then it costs less if callers of
 * a hot item share a GET than if each has a connection. */
#define LINKS 2
#define REDIS_SLOW_MS 500 /* for its breaker, as in hello/service.c */

struct choice {
    uint64_t port, connections, db_connections;
    struct shed_client_options client;
    struct lane_options lane;
    const char *name; /* of the lane */
    bool is_async;
};

#define CLI_OPTIONS struct choice
static const struct cli_option options[] = {
#include "hotitems.def"
};

/* Each literal is a line of the text. */
/* clang-format off */
static const char help[] =
    "usage: hotitems --redis URI --mysql URI [OPTION...]\n"
    "\n"
    "Serves the items of sql/schema.sql over HTTP, on 127.0.0.1, and takes orders\n"
    "for them. Its first line of output is its address; a line for each request\n"
    "follows. Changes of Redis' state go to standard error. On SIGTERM and\n"
    "SIGINT it answers the requests under way, and ends.\n"
    "\n"
    "  GET /items/ID            an item, with the origin and age of the answer\n"
    "  GET /items?ids=1,2,3     several\n"
    "  PATCH /items/ID          {\"price_cents\": n}\n"
    "  POST /items/ID/orders    {\"quantity\": n}, with an Idempotency-Key header\n"
    "  POST /items/expire?ids=1,2,3&in_ms=1000\n"
    "                           their time to live ends in this time (default 0)\n"
    "  GET /healthz, /readyz    whether it is alive; whether it can serve\n"
    "  GET /metrics             for Prometheus\n"
    "  GET /sample?after=TIME   the newest counters as JSON, taken four times a\n"
    "                           second, once they are newer than time_ms TIME\n"
    "\n"
    "  --redis URI          redis://[user:password@]host[:port][/db] or\n"
    "                       unix:/path[?db=n]\n"
    "  --mysql URI          mysql://user[:password]@host[:port]/database or\n"
    "                       mysql://user@/database?socket=/path, with the tables of\n"
    "                       sql/schema.sql, sql/hotitems.sql and sql/fence.sql\n"
    "  --port N             default 0: any that is free\n"
    "  --timeout-ms N       time for a request (default 2000)\n"
    "  --ttl-ms N           how long Redis keeps an item (default 60000)\n"
    "  --connections N      clients at a time, a thread each (default 512)\n"
    "  --db-connections N   connections to MySQL for writes (default 16)\n"
    "  --async              one thread serves all clients, and reads wait without\n"
    "                       one; what writes, and other lanes, have one a request\n"
    "  --lane LANE          how items are read: snowshed (default), or what is\n"
    "                       written without it: none, with no protection; setnx,\n"
    "                       a lock whose losers look again every 10 ms\n"
    "  --loads N            snowshed: queries for items at a time (default 4)\n"
    "  --near               snowshed: with a near cache, which asks Redis nothing\n"
    "                       until an item changes\n"
    "  --refresh-after-pct N\n"
    "                       snowshed: an item that is read when this much of its\n"
    "                       ttl is over is loaded again in the background\n"
    "                       (default 0: never)\n"
    "  --stale-ms N         snowshed: this long after its ttl an item is still\n"
    "                       the answer while one process loads it (default 0)\n"
    "  --stale-if-error-ms N\n"
    "                       snowshed: the same where the load fails (default 0)\n"
    "  --soft-timeout-ms N  snowshed: a request that could get such an item waits\n"
    "                       only this long for the load (default 0: to its end)\n"
    "  --adaptive-loads N   snowshed: 1: the number of queries at a time adapts to\n"
    "                       how long they take, up to --loads (default 0)\n"
    "  --breaker-failure-pct N\n"
    "                       snowshed: when this percentage of the queries fails, a\n"
    "                       breaker opens, and none begins (default 0: never)\n"
    "  --breaker-min-loads N\n"
    "                       of at least N queries (default 20) in the last 10 s\n"
    "  --breaker-open-ms N  it stays open for N ms (default 1000), and longer each\n"
    "                       time that queries still fail, up to ten times that\n"
    "  --redis-breaker-failure-pct N\n"
    "                       snowshed: when this percentage of the calls to Redis\n"
    "                       fails, it is not asked for a while (default 0: never)\n"
    "  --redis-breaker-min-calls N, --redis-breaker-window-ms N\n"
    "                       of at least N calls (default 20), in the last N ms\n"
    "                       (default 10000); open as long as the other breaker\n"
    "  --read-connections N\n"
    "                       none, setnx: connections to MySQL for reads\n"
    "                       (default 64)\n"
    "  --work               each query for items costs what db_work('LANE') of\n"
    "                       sql/capacity.sql, which is loaded then, says\n"
    "  --help               this text\n"
    "\n"
    "Exit status: 0; 1 if it cannot start; 2 for a wrong option.\n";
/* clang-format on */

static const struct cli cli = {"hotitems", help, options,
                               sizeof(options) / sizeof(options[0])};

/* ------------------------------------------------------------------- log */

/* A path comes from a client: log one line, printable, and not endless. */
static void print_path(char *to, size_t size, const char *path)
{
    size_t i = 0;

    for (; i < size - 1 && path[i] != '\0'; i++)
        to[i] = path[i] > ' ' && path[i] <= '~' ? path[i] : '?';
    to[i] = '\0';
}

/* stdio locks the stream, so a line is not torn. */
static void log_request(void *user, const struct http_record *record)
{
    struct service *s = user;
    const struct http_reply *reply = record->reply;
    char at[32], path[200];
    struct timespec now;
    struct tm tm;

    metrics_count(&s->metrics, reply->route, reply->status, record->took_us);
    print_path(path, sizeof(path), record->path);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)printf("%s.%03ldZ %s %s %u %zuB %.3fms %s%s%s%s%s\n", at,
                 now.tv_nsec / 1000000, record->method, path, reply->status,
                 reply->size, (double)record->took_us / 1000,
                 reply->origin != NULL ? reply->origin : "-",
                 record->is_complete ? "" : " (client left)",
                 reply->why[0] != '\0' ? " \"" : "", reply->why,
                 reply->why[0] != '\0' ? "\"" : "");
}

/* ---------------------------------------------------------- open and close */

static void close_service(struct service *s)
{
    sample_free(s->sampler);
    db_close(s->db);
    lane_close(s->lane);
    shed_client_close(s->client);
}

static bool open_lane(struct service *s, const struct choice *choice,
                      struct shed_error *err)
{
    struct shed_client_options client = choice->client;
    struct lane_options lane = choice->lane;

    client.breaker.slow_ms = REDIS_SLOW_MS;
    client.breaker.open_ms = lane.source.breaker.open_ms;
    client.on_log = shed_log_stderr;
    client.links = LINKS;
    lane.has_redis_breaker = client.breaker.failure_pct > 0;
    if (shed_client_open(lane.redis_uri, &client, &s->client, err) != SHED_OK)
        return false;
    lane.client = s->client;
    s->lane = lane_open(choice->name, &lane, err);
    return s->lane != NULL;
}

static bool open_service(struct service *s, const struct choice *choice,
                         char *why, size_t size)
{
    struct shed_error err = {SHED_OK, "out of memory"};

    if (open_lane(s, choice, &err) && (s->sampler = sample_new()) != NULL) {
        s->db =
            db_open(choice->lane.mysql_uri, (unsigned)choice->db_connections,
                    choice->lane.cache.timeout_ms, why, size);
        if (s->db != NULL)
            return true;
    } else {
        (void)snprintf(why, size, "%s", err.reason);
    }
    close_service(s);
    return false;
}

/* Until SIGTERM or SIGINT, which all threads block. */
static void serve(struct service *s, const sigset_t *ends)
{
    uint64_t next_ms = wait_now_ms();
    struct timespec pause;

    do {
        uint64_t now_ms = wait_now_ms();
        if (now_ms >= next_ms) {
            sample_take(s->sampler, s);
            next_ms += SAMPLE_MS;
            if (next_ms < now_ms)
                next_ms = now_ms; /* late: the missed ones are left out */
        }
        pause.tv_sec = 0;
        pause.tv_nsec = (long)(next_ms - now_ms) * 1000000;
    } while (sigtimedwait(ends, NULL, &pause) == -1);
}

int main(int argc, char **argv)
{
    struct choice choice = {.connections = 512,
                            .db_connections = 16,
                            .client = SHED_CLIENT_OPTIONS_INIT,
                            .lane = {.read_connections = 64,
                                     .cache = SHED_CACHE_OPTIONS_INIT,
                                     .source = SHED_SOURCE_OPTIONS_INIT},
                            .name = "snowshed"};
    struct service service = {.popular.mu = PTHREAD_MUTEX_INITIALIZER,
                              .metrics.mu = PTHREAD_MUTEX_INITIALIZER};
    struct http_options http_options;
    struct http *http;
    sigset_t ends;
    char why[300] = "";

    /* what is off, or another value, than by the library's defaults */
    choice.lane.cache.timeout_ms = 2000;
    choice.lane.cache.ttl_ms = 60000;
    choice.lane.cache.refresh_after_pct = 0;
    choice.lane.source.adaptive_loads = 0;
    choice.lane.source.breaker.failure_pct = 0;
    choice.client.breaker.failure_pct = 0;
    cli_parse(&cli, &choice, argc, argv);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)signal(SIGPIPE, SIG_IGN); /* a client that leaves is no matter */
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL);
    (void)mysql_library_init(0, NULL, NULL); /* before there are threads */
    if (!open_service(&service, &choice, why, sizeof(why))) {
        (void)fprintf(stderr, "hotitems: %s\n", why);
        return EXIT_FAILURE;
    }
    http_options = (struct http_options){
        .address = "127.0.0.1",
        .port = (uint16_t)choice.port,
        .connections_max = (unsigned)choice.connections,
        .timeout_ms = choice.lane.cache.timeout_ms,
        .handle = service_handle,
        .is_quick = choice.is_async ? service_is_quick : NULL,
        .drop = items_drop,
        .done = log_request,
        .user = &service};
    http = http_start(&http_options, why, sizeof(why));
    if (http == NULL) {
        (void)fprintf(stderr, "hotitems: %s\n", why);
        close_service(&service);
        return EXIT_FAILURE;
    }
    service.port = http_port(http);
    (void)printf("http://127.0.0.1:%u\n", service.port);
    serve(&service, &ends);
    http_stop(http);
    close_service(&service);
    return EXIT_SUCCESS;
}
