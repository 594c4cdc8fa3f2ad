/* Ending a server, noticing that it has ended, and starting it again, by the
 * command line of the first one. The main thread does it, because a child ends
 * with the thread that started it. */
#include <fcntl.h>
#include <mysql.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/place.h"
#include "common/redis.h"
#include "stage.h"
#include "stage_servers.h"

#define STOP_MS 5000
#define FAILED_START_MS 1000
#define PROBE_MS 100 /* between two questions, and for an answer */
#define END_PATIENCE_MS 8000

/* What differs. */
static const struct kind {
    const char *name;
    const char *came_back; /* the action that a mark names */
} kinds[SERVERS] = {[SERVER_REDIS] = {"Redis", "start-redis"},
                    [SERVER_DATABASE] = {"the database", "db-up"}};

const char *servers_name(enum server_id id)
{
    return kinds[id].name;
}

/* ----------------------------------------------------------------- begin */

/* The words of /proc/PID/cmdline. A server that has changed its title has only
 * one, which is no program's path. */
static void read_command(struct server *s)
{
    char path[48];
    int fd;
    ssize_t size;

    (void)snprintf(path, sizeof(path), "/proc/%ld/cmdline", (long)s->given);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    size = fd != -1 ? read(fd, s->command, sizeof(s->command) - 1) : 0;
    if (fd != -1)
        (void)close(fd);
    /* room for two more, and NULL */
    for (char *at = s->command;
         at < s->command + size && s->arguments < SERVER_ARGUMENTS_MAX - 3;
         at += strlen(at) + 1)
        s->argv[s->arguments++] = at;
    if (s->arguments > 0 && access(s->argv[0], X_OK) != 0)
        s->arguments = 0;
}

const char *servers_refusal(const struct server *server)
{
    if (server->given == 0)
        return "its process is not known: start the stage with --redis-pid and "
               "--db-pid";
    if (server->pidfd == -1 || server->arguments == 0)
        return "its command line cannot be read, so it could not be started "
               "again; Redis needs --set-proc-title no";
    return NULL;
}

void servers_init(struct stage *stage)
{
    const uint64_t pids[SERVERS] = {[SERVER_REDIS] = stage->options.redis_pid,
                                    [SERVER_DATABASE] = stage->options.db_pid};

    for (int i = 0; i < SERVERS; i++) {
        struct server *s = &stage->server[i];
        s->child = s->keeper = CHILD_NONE;
        s->given = (pid_t)pids[i];
        s->pidfd =
            s->given == 0 ? -1 : (int)syscall(SYS_pidfd_open, s->given, 0);
        if (s->given != 0)
            read_command(s);
    }
}

pid_t servers_pid_locked(const struct server *server)
{
    if (server->starts > 0)
        return server->child.pid;
    return server->state == SERVER_DOWN ? 0 : server->given;
}

/* ------------------------------------------------------------------ state */

static void set_state(struct stage *stage, struct server *s,
                      enum server_state state)
{
    stage_lock(stage);
    s->state = state;
    if (state == SERVER_UP)
        s->keeps_data = false;
    (void)pthread_cond_broadcast(&stage->changed);
    stage_unlock(stage);
    hub_tell(stage->hub, "lanes", lanes_json(stage));
}

static void note_stop(struct stage *stage, struct server *s, bool is_stopped)
{
    set_state(stage, s, is_stopped ? SERVER_STOPPED : SERVER_UP);
    hub_mark(stage->hub, is_stopped ? "stop-redis" : "continue-redis",
             hub_time_ms(), 0, "Redis %s",
             is_stopped ? "is stopped" : "continues");
}

static void tick_stop(struct stage *stage, struct server *s)
{
    bool wants_stop, wants_continue;
    pid_t pid;
    int status;

    stage_lock(stage);
    wants_stop = s->wants_stop;
    wants_continue = s->wants_continue;
    s->wants_stop = s->wants_continue = false;
    pid = servers_pid_locked(s);
    stage_unlock(stage);
    if (child_reap(&s->keeper, &status) && s->state == SERVER_STOPPED)
        note_stop(stage, s, false);
    if (wants_continue)
        child_signal(&s->keeper, SIGTERM);
    if (wants_stop && s->keeper.pid == 0 && s->state == SERVER_UP && pid != 0 &&
        kill(pid, 0) == 0 && child_start_stopping(&s->keeper, pid, STOP_MS))
        note_stop(stage, s, true);
}

/* A zombie, whose parent has not looked, has ended, too. Under mu: an action
 * must not meet another's process id. */
static bool has_ended_locked(struct server *s)
{
    struct pollfd fd = {s->pidfd, POLLIN, 0};
    int status;

    if (s->starts > 0)
        return s->child.pid != 0 && child_reap(&s->child, &status);
    return s->pidfd != -1 && poll(&fd, 1, 0) == 1;
}

static void watch_end(struct stage *stage, enum server_id id)
{
    struct server *s = &stage->server[id];
    bool has_ended;

    stage_lock(stage);
    has_ended = s->state != SERVER_DOWN && servers_refusal(s) == NULL &&
                has_ended_locked(s);
    if (has_ended)
        s->due_ms = http_now_ms() + (s->state == SERVER_STARTING
                                         ? FAILED_START_MS
                                         : stage->options.outage_s * 1000);
    stage_unlock(stage);
    if (has_ended) {
        child_signal(&s->keeper, SIGTERM);
        set_state(stage, s, SERVER_DOWN);
    }
}

/* ------------------------------------------------------------------ start */

/* Redis loads the file that the last one has saved, or one that nobody has. */
static void choose_file(struct server *s)
{
    if (!s->keeps_data)
        (void)snprintf(s->file, sizeof(s->file), "stage-%ld-%u.rdb",
                       (long)getpid(), s->starts);
    if (s->file[0] == '\0')
        return;
    s->argv[s->arguments] = "--dbfilename";
    s->argv[s->arguments + 1] = s->file;
}

static void start_server(struct stage *stage, enum server_id id)
{
    struct server *s = &stage->server[id];
    bool is_started;

    stage_lock(stage);
    if (id == SERVER_REDIS)
        choose_file(s);
    is_started = child_start(&s->child, s->argv, -1, false);
    s->starts += is_started;
    s->due_ms = http_now_ms() + FAILED_START_MS;
    stage_unlock(stage);
    if (is_started)
        set_state(stage, s, SERVER_STARTING);
}

static bool does_redis_answer(const struct stage *stage)
{
    char why[128];
    redisContext *redis = demo_redis_open_within(stage->options.redis, PROBE_MS,
                                                 why, sizeof(why));
    redisReply *reply = redis != NULL ? redisCommand(redis, "PING") : NULL;
    bool does = reply != NULL && reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    if (redis != NULL)
        redisFree(redis);
    return does;
}

static bool does_database_answer(void)
{
    struct shed_error err;
    MYSQL *mysql = mysql_init(NULL);
    bool does = mysql != NULL && place_connect(mysql, 0, &err) == SHED_OK;

    mysql_close(mysql);
    return does;
}

static void watch_start(struct stage *stage, enum server_id id)
{
    struct server *s = &stage->server[id];

    if (http_now_ms() < s->probe_ms)
        return;
    if (id == SERVER_REDIS ? does_redis_answer(stage)
                           : does_database_answer()) {
        hub_mark(stage->hub, kinds[id].came_back, hub_time_ms(), 0,
                 "%s is back", kinds[id].name);
        set_state(stage, s, SERVER_UP);
    }
    s->probe_ms = http_now_ms() + PROBE_MS;
}

static bool is_due(struct stage *stage, const struct server *s)
{
    bool is;

    stage_lock(stage);
    is = s->state == SERVER_DOWN && http_now_ms() >= s->due_ms;
    stage_unlock(stage);
    return is;
}

void servers_tick(struct stage *stage)
{
    tick_stop(stage, &stage->server[SERVER_REDIS]);
    for (enum server_id id = 0; id < SERVERS; id++) {
        watch_end(stage, id);
        if (is_due(stage, &stage->server[id]))
            start_server(stage, id);
        if (stage->server[id].state == SERVER_STARTING)
            watch_start(stage, id);
    }
}

/* -------------------------------------------------------------------- end */

void servers_continue(struct stage *stage)
{
    struct child *keeper = &stage->server[SERVER_REDIS].keeper;

    child_end_all(&keeper, 1, STOP_MS);
}

void servers_end(struct stage *stage)
{
    struct child *children[SERVERS];

    for (int i = 0; i < SERVERS; i++)
        children[i] = &stage->server[i].child;
    child_end_all(children, SERVERS, END_PATIENCE_MS);
    for (int i = 0; i < SERVERS; i++)
        if (stage->server[i].pidfd != -1)
            (void)close(stage->server[i].pidfd);
}
