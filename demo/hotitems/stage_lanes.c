/* The instances: started, watched, and started again when they end. An instance
 * that dies is back at once; one that keeps dying, after a pause that grows. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

#define STABLE_MS 5000 /* one that lived this long did not fail to start */
#define RETRY_MIN_MS 250
#define RETRY_MAX_MS 10000
#define START_MAX_MS 60000   /* to its address; MySQL may be slow */
#define IDENTIFY_MAX_MS 3000 /* see may_start */
#define END_PATIENCE_MS 8000 /* it answers its requests first */
#define ARGUMENTS_MAX 48
#define BREAKER_MIN_LOADS "10" /* it opens while one looks */
#define REDIS_BREAKER_WINDOW_MS "1000"
#define LOG_PATH_BYTES 512

const char *const stage_lane_names[STAGE_LANES] = {"none", "setnx", "snowshed"};

/* One file for an instance and its successors. */
static bool open_log(const char *folder, struct instance *it, char *why,
                     size_t size)
{
    char path[LOG_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s-%u.log", folder,
                          stage_lane_names[it->lane], it->number);

    if (length < 0 || (size_t)length >= sizeof(path)) {
        (void)snprintf(why, size, "--logs: the path is too long");
        return false;
    }
    it->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (it->log == -1)
        (void)snprintf(why, size, "--logs: %s: %s", path, strerror(errno));
    return it->log != -1;
}

bool lanes_init(struct stage *stage, char *why, size_t size)
{
    size_t each = (size_t)stage->options.instances;
    bool is_good = true;

    stage->instances = STAGE_LANES * each;
    for (size_t i = 0; i < stage->instances; i++) {
        struct instance *it = &stage->instance[i];
        it->lane = (enum stage_lane)(i / each);
        it->number = (unsigned)(i % each);
        it->log = -1;
        it->service = it->clients = it->absent = CHILD_NONE;
        it->feed = FEED_CLOSED;
        if (is_good && stage->options.logs != NULL)
            is_good = open_log(stage->options.logs, it, why, size);
    }
    return is_good;
}

/* ---------------------------------------------------------------- start */

/* Numbers as texts, while a command line is put together. */
struct numbers {
    char text[16][24];
    size_t count;
};

static const char *print(struct numbers *n, uint64_t value)
{
    char *text = n->text[n->count++];

    (void)snprintf(text, sizeof(n->text[0]), "%" PRIu64, value);
    return text;
}

static bool start_service(const struct stage_options *o, struct instance *it)
{
    struct numbers n = {.count = 0};
    const char *lane = stage_lane_names[it->lane];
    /* one option a line */
    /* clang-format off */
    const char *argv[ARGUMENTS_MAX] = {
        o->hotitems,
        "--redis", o->redis,
        "--mysql", o->mysql,
        "--lane", lane,
        "--work",
        "--timeout-ms", print(&n, o->timeout_ms),
        "--ttl-ms", print(&n, o->ttl_ms),
        "--connections", print(&n, o->connections),
        "--db-connections", print(&n, o->db_connections),
        "--read-connections", print(&n, o->read_connections),
        "--loads", print(&n, o->loads),
        "--refresh-after-pct", print(&n, o->refresh_after_pct),
        "--stale-ms", print(&n, o->stale_ms),
        "--stale-if-error-ms", print(&n, o->stale_if_error_ms),
        "--soft-timeout-ms", print(&n, o->soft_timeout_ms),
        "--adaptive-loads", print(&n, o->adaptive_loads),
        "--breaker-failure-pct", print(&n, o->breaker_failure_pct),
        "--breaker-min-loads", BREAKER_MIN_LOADS,
        "--breaker-open-ms", print(&n, o->breaker_open_ms),
        "--breaker-open-max-ms", print(&n, o->breaker_open_max_ms),
        "--redis-breaker-failure-pct", print(&n, o->redis_breaker_failure_pct),
        "--redis-breaker-min-calls", BREAKER_MIN_LOADS,
        "--redis-breaker-window-ms", REDIS_BREAKER_WINDOW_MS,
        NULL};
    /* clang-format on */

    if (!child_start(&it->service, argv, -1, true))
        return false;
    it->service.copy = it->log;
    return true;
}

/* Instances are started one at a time, because the library's name of a process
 * is found as the one that Redis did not have before. It appears before the
 * instance prints its address, unless Redis is stopped. */
static bool may_start(struct stage *stage, const struct instance *it,
                      uint64_t now_ms)
{
    bool may = true;

    stage_lock(stage);
    for (size_t i = 0; i < stage->instances; i++) {
        const struct instance *other = &stage->instance[i];
        may &= other == it || other->state == INSTANCE_DOWN ||
               other->process[0] != '\0' ||
               (other->state == INSTANCE_UP &&
                now_ms >= other->changed_ms + IDENTIFY_MAX_MS);
    }
    stage_unlock(stage);
    return may;
}

static uint64_t pause_ms(unsigned failures)
{
    uint64_t pause = RETRY_MIN_MS;

    if (failures == 0)
        return 0;
    while (--failures > 0 && pause < RETRY_MAX_MS)
        pause *= 2;
    return pause < RETRY_MAX_MS ? pause : RETRY_MAX_MS;
}

static void set_state(struct stage *stage, struct instance *it,
                      enum instance_state state, uint64_t now_ms)
{
    stage_lock(stage);
    it->state = state;
    it->changed_ms = now_ms;
    (void)pthread_cond_broadcast(&stage->changed);
    stage_unlock(stage);
}

static void start_instance(struct stage *stage, struct instance *it,
                           uint64_t now_ms)
{
    bool is_started;

    it->line_size = 0;
    stage_lock(stage);
    it->process[0] = '\0';
    is_started = start_service(&stage->options, it);
    it->starts++;
    if (!is_started)
        it->retry_ms = now_ms + pause_ms(++it->failures);
    stage_unlock(stage);
    if (is_started)
        set_state(stage, it, INSTANCE_STARTING, now_ms);
}

/* ------------------------------------------------------------- address */

static bool parse_address(const char *line, uint16_t *port)
{
    static const char begin[] = "http://127.0.0.1:";
    unsigned long value;
    char *end;

    if (strncmp(line, begin, sizeof(begin) - 1) != 0)
        return false;
    value = strtoul(line + sizeof(begin) - 1, &end, 10);
    *port = (uint16_t)value;
    return *end == '\0' && value > 0 && value <= UINT16_MAX;
}

static void greet(struct stage *stage, struct instance *it, uint16_t port,
                  uint64_t now_ms)
{
    uint64_t serial = it->sample.serial;

    stage_lock(stage);
    it->port = port;
    it->sample = (struct sample){.serial = serial};
    stage_unlock(stage);
    set_state(stage, it, INSTANCE_UP, now_ms);
    hub_tell(stage->hub, "lanes", lanes_json(stage));
    if (it->starts > 1)
        hub_mark(stage->hub, "restart", hub_time_ms(), 0,
                 "an instance of %s is back", stage_lane_names[it->lane]);
}

/* Take a whole line. One that is no address is kept: it may say why the start
 * fails. */
static void take_line(struct stage *stage, struct instance *it, uint64_t now_ms)
{
    uint16_t port;

    it->line[it->line_size] = '\0';
    it->line_size = 0;
    if (parse_address(it->line, &port))
        greet(stage, it, port, now_ms);
    else
        memcpy(it->last_line, it->line, sizeof(it->line));
}

/* Its output up to its address. What follows is its log. */
static void read_output(struct stage *stage, struct instance *it,
                        uint64_t now_ms)
{
    char data[4096];
    ssize_t got;

    if (it->service.out == -1)
        return;
    while ((got = child_take(&it->service, data, sizeof(data))) > 0)
        for (ssize_t i = 0; it->state == INSTANCE_STARTING && i < got; i++)
            if (data[i] == '\n')
                take_line(stage, it, now_ms);
            else if (it->line_size < sizeof(it->line) - 1)
                it->line[it->line_size++] = data[i];
}

/* ----------------------------------------------------------------- end */

/* Returns false if it has never been up: a new one would fail as well. */
static bool note_end(struct stage *stage, struct instance *it, int status,
                     uint64_t now_ms)
{
    bool was_up = it->state == INSTANCE_UP;

    traffic_kill(it);
    feed_close(&it->feed);
    if (was_up && now_ms - it->changed_ms >= STABLE_MS)
        it->failures = 0;
    stage_lock(stage);
    it->retry_ms = now_ms + pause_ms(it->failures++);
    it->port = 0;
    stage_unlock(stage);
    set_state(stage, it, INSTANCE_DOWN, now_ms);
    if (was_up || it->starts > 1) {
        hub_tell(stage->hub, "lanes", lanes_json(stage));
        return true;
    }
    (void)fprintf(stderr,
                  "hotitems-stage: %s --lane %s ended with status %d before it "
                  "could serve: %s\n",
                  stage->options.hotitems, stage_lane_names[it->lane],
                  WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                  it->last_line);
    return false;
}

static bool watch_end(struct stage *stage, struct instance *it, uint64_t now_ms)
{
    bool has_ended;
    int status = 0;

    stage_lock(stage); /* lanes_kill must not meet another's process id */
    has_ended = child_reap(&it->service, &status);
    stage_unlock(stage);
    if (has_ended) {
        read_output(stage, it, now_ms); /* its last words */
        child_close(&it->service);
        return note_end(stage, it, status, now_ms);
    }
    if (it->state == INSTANCE_STARTING &&
        now_ms - it->changed_ms > START_MAX_MS)
        child_signal(&it->service, SIGKILL);
    return true;
}

/* ---------------------------------------------------------------- loop */

static void read_feed(struct stage *stage, struct instance *it, uint64_t now_ms)
{
    struct sample sample = it->sample;

    if (it->state != INSTANCE_UP ||
        !feed_read(&it->feed, it->port, now_ms, stage->hub, &sample))
        return;
    stage_lock(stage);
    it->sample = sample;
    (void)pthread_cond_broadcast(&stage->changed);
    stage_unlock(stage);
}

bool lanes_tick(struct stage *stage)
{
    bool is_good = true;

    for (size_t i = 0; i < stage->instances; i++) {
        struct instance *it = &stage->instance[i];
        uint64_t now_ms = http_now_ms();
        read_output(stage, it, now_ms);
        is_good &= watch_end(stage, it, now_ms);
        if (it->state == INSTANCE_DOWN && it->service.pid == 0 &&
            now_ms >= it->retry_ms && may_start(stage, it, now_ms))
            start_instance(stage, it, now_ms);
        read_feed(stage, it, now_ms);
        traffic_tick(stage, it, now_ms);
    }
    return is_good;
}

size_t lanes_poll(struct stage *stage, struct pollfd *fds)
{
    size_t count = 0;

    for (size_t i = 0; i < stage->instances; i++) {
        const struct instance *it = &stage->instance[i];
        if (it->service.out != -1)
            fds[count++] = (struct pollfd){it->service.out, POLLIN, 0};
        if (it->feed.fd != -1)
            fds[count++] = (struct pollfd){
                it->feed.fd, it->feed.is_sent ? POLLIN : POLLOUT, 0};
    }
    return count;
}

void lanes_end(struct stage *stage)
{
    struct child *children[LANES_FDS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < stage->instances; i++) {
        feed_close(&stage->instance[i].feed);
        traffic_kill(&stage->instance[i]);
        children[count++] = &stage->instance[i].clients;
        children[count++] = &stage->instance[i].absent;
        children[count++] = &stage->instance[i].service;
    }
    child_end_all(children, count, END_PATIENCE_MS);
    for (size_t i = 0; i < stage->instances; i++)
        if (stage->instance[i].log != -1)
            (void)close(stage->instance[i].log);
}

/* ------------------------------------------------------------ questions */

bool lanes_are_up(struct stage *stage)
{
    bool are_up = true;

    stage_lock(stage);
    for (size_t i = 0; i < stage->instances; i++)
        are_up &= stage->instance[i].state == INSTANCE_UP;
    stage_unlock(stage);
    return are_up;
}

bool lanes_kill(struct stage *stage, struct instance *instance, pid_t pid)
{
    bool is_alive;

    stage_lock(stage);
    is_alive = instance->state == INSTANCE_UP && instance->service.pid != 0 &&
               (pid == 0 || instance->service.pid == pid);
    if (is_alive)
        child_signal(&instance->service, SIGKILL);
    stage_unlock(stage);
    return is_alive;
}

static json_t *instances_json_locked(const struct stage *stage,
                                     enum stage_lane lane)
{
    json_t *list = json_array();

    for (size_t i = 0; i < stage->instances; i++) {
        const struct instance *it = &stage->instance[i];
        if (it->lane == lane && it->state == INSTANCE_UP)
            (void)json_array_append_new(
                list, json_pack("{s:i,s:I}", "port", (int)it->port, "pid",
                                (json_int_t)it->service.pid));
    }
    return list;
}

json_t *lanes_json(struct stage *stage)
{
    json_t *lanes = json_array(), *actions = actions_json(stage), *all;

    stage_lock(stage);
    for (size_t i = 0; i < STAGE_LANES; i++)
        (void)json_array_append_new(
            lanes,
            json_pack("{s:s,s:o}", "name", stage_lane_names[i], "instances",
                      instances_json_locked(stage, (enum stage_lane)i)));
    all = json_pack("{s:o,s:o,s:{s:I,s:f,s:i,s:f},s:I}", "lanes", lanes,
                    "actions", actions, "traffic", "clients",
                    (json_int_t)stage->clients, "skew", stage->skew,
                    "clients_max", STAGE_CLIENTS_MAX, "skew_max",
                    STAGE_SKEW_MAX, "items", (json_int_t)stage->options.items);
    stage_unlock(stage);
    return all;
}
