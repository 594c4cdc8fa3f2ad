/* Private servers. The one invariant: when a test ends, what it has started is
 * gone, including the directory, except the log of a failed test. */
#define _GNU_SOURCE /* accept4, pipe2, memmem */
#include "support/server.h"

#include "base/random.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/sockets.h"
#include "support/testing.h"

/* ----------------------------------------------------------------- servers */

#define LOG_NAME "log"
#define SKEW_NAME "skew"

/* Remove a directory of sockets, a log and directories of append-only files.
 * The file called kept stays. */
static void remove_dir(const char *name, const char *kept)
{
    DIR *dir = opendir(name);
    char path[PATH_MAX];

    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, kept) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", name, e->d_name);
        if (unlink(path) != 0)
            remove_dir(path, "");
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(name);
}

/* A guardian must not keep descriptors of the test open, in particular not the
 * pipes of other servers' guardians. */
static void close_all_but(int kept)
{
    enum { FDS_MAX = 256 };

    for (int fd = STDERR_FILENO + 1; fd < FDS_MAX; fd++)
        if (fd != kept)
            close(fd);
}

/* Returns whether the test has reached server_stop. */
static bool wait_for_the_end(int pipe_end)
{
    ssize_t n;
    char byte;

    do
        n = read(pipe_end, &byte, 1);
    while (n < 0);
    return n == 1;
}

/* Check ends a failed test without notice. So the directory is removed by a
 * process that waits until nobody has the other end of its pipe open. */
static void start_guardian(struct server *s)
{
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    s->guardian = fork();
    if (s->guardian == 0) {
        setsid(); /* Check kills the test's whole group */
        close_all_but(ends[0]);
        remove_dir(s->dir, wait_for_the_end(ends[0]) ? "" : LOG_NAME);
        if (access(s->dir, F_OK) == 0)
            fprintf(stderr, "the log of a failed test's Redis: %s/%s\n", s->dir,
                    LOG_NAME);
        _exit(0);
    }
    ck_assert_int_ge(s->guardian, 0);
    close(ends[0]);
    s->guarded = ends[1];
}

void server_skew(struct server *s, int64_t seconds)
{
    char path[SERVER_PATH_BYTES];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", s->dir, SKEW_NAME);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, &seconds, sizeof(seconds)), sizeof(seconds));
    close(fd);
}

/* See skewed_clock.c. */
static void preload_clock(const struct server *s)
{
    char path[SERVER_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", s->dir, SKEW_NAME);
    setenv("SHED_TEST_SKEW", path, 1);
    setenv("LD_PRELOAD", SKEWED_CLOCK, 1);
}

/* Returns: how many options were added. */
static size_t add_tls(const struct server *s, const char **argv)
{
    static char text[4][PATH_MAX];
    const char *options[SERVER_TLS_OPTIONS] = {
        "--tls-port",         text[0], "--tls-cert-file",    text[1],
        "--tls-key-file",     text[2], "--tls-ca-cert-file", text[3],
        "--tls-auth-clients", "no"};

    snprintf(text[0], PATH_MAX, "%u", s->tls_port);
    snprintf(text[1], PATH_MAX, "%s/server.pem", s->certificates);
    snprintf(text[2], PATH_MAX, "%s/server.key", s->certificates);
    snprintf(text[3], PATH_MAX, "%s/ca.pem", s->certificates);
    memcpy(argv, options, sizeof(options));
    return SERVER_TLS_OPTIONS;
}

/* A sentinel keeps what it learns in its file. Returns: the file's path. */
static const char *write_sentinel(const struct server *s)
{
    static char path[SERVER_PATH_BYTES + 16];
    FILE *file;

    snprintf(path, sizeof(path), "%s/sentinel.conf", s->dir);
    file = fopen(path, "we");
    if (file == NULL || fputs(s->sentinel, file) < 0 || fclose(file) != 0)
        _exit(EXIT_FAILURE);
    return path;
}

static _Noreturn void exec_server(const struct server *s)
{
    const char *argv[SERVER_OPTIONS_MAX + SERVER_TLS_OPTIONS + 24] = {
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        s->socket,
        "--dir",
        s->dir,
        "--logfile",
        LOG_NAME,
        "--save",
        "",
        "--appendonly",
        "no",
        "--enable-debug-command",
        "yes"};
    size_t n = 15;

    if (s->sentinel != NULL) {
        memmove(&argv[3], &argv[1], (n - 1) * sizeof(*argv));
        argv[1] = write_sentinel(s);
        argv[2] = "--sentinel";
        n += 2;
    }
    for (size_t i = 0; s->options[i] != NULL; i++)
        argv[n++] = s->options[i];
    if (s->password != NULL) {
        argv[n++] = "--requirepass";
        argv[n++] = s->password;
    }
    if (s->certificates != NULL)
        n += add_tls(s, &argv[n]);
    if (s->has_clock)
        preload_clock(s);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[0], (char *const *)(size_t)argv);
    perror("redis-server (it must be in PATH)");
    _exit(EXIT_FAILURE);
}

redisContext *server_connect(const struct server *s)
{
    /* a virtual machine can stop for half a minute */
    const struct timeval patience = {
        .tv_sec = (time_t)((test_deadline_ms() - shed_now_ms()) / 1000)};
    redisContext *c = redisConnectUnixWithTimeout(s->socket, patience);

    if (c == NULL || c->err != 0 || redisSetTimeout(c, patience) != REDIS_OK) {
        redisFree(c);
        return NULL;
    }
    if (s->password != NULL)
        freeReplyObject(redisCommand(c, "AUTH %s", s->password));
    return c;
}

static bool answers(const struct server *s)
{
    redisContext *c = server_connect(s);
    redisReply *reply = c != NULL ? redisCommand(c, "PING") : NULL;
    bool is_well = reply != NULL && reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    redisFree(c);
    return is_well;
}

void server_start_again(struct server *s)
{
    uint64_t deadline_ms = test_deadline_ms();
    int status;

    unlink(s->socket);
    s->pid = fork();
    if (s->pid == 0)
        exec_server(s);
    /* not in the child, for which a lock of Check's may be held for ever */
    ck_assert_int_ge(s->pid, 0);
    while (!answers(s)) {
        ck_assert_msg(waitpid(s->pid, &status, WNOHANG) == 0,
                      "redis-server ended while starting, with wait status %d",
                      status);
        ck_assert_msg(shed_now_ms() < deadline_ms, "no answer from Redis");
        usleep(1000);
    }
}

enum { HOUR_S = 3600 };

static bool is_an_hour_old(const struct server *s)
{
    char text[32];

    server_info(s, "uptime_in_seconds", text, sizeof(text));
    return strtol(text, NULL, 10) >= HOUR_S;
}

void server_start(struct server *s)
{
    snprintf(s->dir, sizeof(s->dir), "/tmp/snowshed-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(s->dir));
    snprintf(s->socket, sizeof(s->socket), "%s/redis.sock", s->dir);
    snprintf(s->uri, sizeof(s->uri), "unix:%s", s->socket);
    start_guardian(s);
    if (s->certificates != NULL && s->tls_port == 0)
        s->tls_port = server_free_port();
    if (s->has_clock)
        server_skew(s, s->is_old ? -HOUR_S : 0);
    server_start_again(s);
    if (s->is_old) {
        server_skew(s, 0);
        WAIT_FOR(is_an_hour_old(s));
    }
}

void server_add_option(struct server *s, const char *name, const char *value)
{
    size_t n = 0;

    while (s->options[n] != NULL)
        n++;
    ck_assert_uint_lt(n + 2, SERVER_OPTIONS_MAX);
    s->options[n] = name;
    s->options[n + 1] = value;
}

void server_kill(struct server *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    s->pid = 0;
}

void server_stop(struct server *s)
{
    server_kill(s);
    if (s->guardian == 0)
        return;
    /* if this fails, only the log is kept */
    (void)!write(s->guarded, "", 1);
    close(s->guarded);
    waitpid(s->guardian, NULL, 0);
    s->guardian = 0;
}

unsigned server_free_port(void)
{
    unsigned port;

    close(bind_any_port(&port));
    return port;
}

void server_freeze(struct server *s)
{
    int status;

    ck_assert_int_eq(kill(s->pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(s->pid, &status, WUNTRACED), s->pid);
    ck_assert(WIFSTOPPED(status));
}

void server_thaw(struct server *s)
{
    ck_assert_int_eq(kill(s->pid, SIGCONT), 0);
}

/* ---------------------------------------------------------------- commands */

/* A sentinel that makes a server a replica drops its clients: what was not
 * answered is sent once more. */
static redisReply *run(const struct server *s, const char *format,
                       va_list arguments)
{
    redisReply *reply = NULL;

    for (unsigned tries = 2; reply == NULL; tries--) {
        redisContext *c = server_connect(s);
        va_list copy;
        ck_assert_msg(c != NULL, "cannot connect to the test's Redis");
        va_copy(copy, arguments);
        reply = redisvCommand(c, format, copy);
        va_end(copy);
        ck_assert_msg(reply != NULL || tries > 1, "no reply to %s: %s", format,
                      c->errstr);
        redisFree(c);
    }
    return reply;
}

redisReply *server_run(const struct server *s, const char *format, ...)
{
    redisReply *reply;
    va_list arguments;

    va_start(arguments, format);
    reply = run(s, format, arguments);
    va_end(arguments);
    return reply;
}

long long server_int(const struct server *s, const char *format, ...)
{
    redisReply *reply;
    va_list arguments;
    long long value;

    va_start(arguments, format);
    reply = run(s, format, arguments);
    va_end(arguments);
    ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s: %s", format,
                  reply->str);
    value = reply->integer;
    freeReplyObject(reply);
    return value;
}

redisContext *server_send(const struct server *s, const char *format, ...)
{
    redisContext *c = server_connect(s);
    va_list arguments;

    ck_assert_ptr_nonnull(c);
    va_start(arguments, format);
    ck_assert_int_eq(redisvAppendCommand(c, format, arguments), REDIS_OK);
    va_end(arguments);
    for (int is_done = 0; !is_done;)
        ck_assert_int_eq(redisBufferWrite(c, &is_done), REDIS_OK);
    return c;
}

void server_await(redisContext *c)
{
    redisReply *reply = NULL;

    ck_assert_int_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
    freeReplyObject(reply);
    redisFree(c);
}

void server_info(const struct server *s, const char *field, char *value,
                 size_t size)
{
    redisReply *reply = server_run(s, "INFO");
    char name[64];
    const char *at;

    snprintf(name, sizeof(name), "\n%s:", field);
    ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
    at = strstr(reply->str, name);
    ck_assert_msg(at != NULL, "INFO has no field %s", field);
    at += strlen(name);
    snprintf(value, size, "%.*s", (int)strcspn(at, "\r\n"), at);
    freeReplyObject(reply);
}

static bool has_failed_to_save(const struct server *s)
{
    char status[8];

    server_info(s, "rdb_last_bgsave_status", status, sizeof(status));
    return strcmp(status, "err") == 0;
}

/* At the path of the dump there is a directory, which a file cannot replace. */
void server_fail_to_save(const struct server *s)
{
    char path[SERVER_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/dump.rdb", s->dir);
    ck_assert_int_eq(mkdir(path, S_IRWXU), 0);
    server_do(s, "CONFIG SET save %s", "3600 1");
    server_do(s, "BGSAVE");
    WAIT_FOR(has_failed_to_save(s));
}

long long server_calls(const struct server *s, const char *command)
{
    redisReply *reply = server_run(s, "INFO commandstats");
    char name[64];
    const char *at;
    long long calls = 0;

    snprintf(name, sizeof(name), "cmdstat_%s:calls=", command);
    ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
    at = strstr(reply->str, name);
    if (at != NULL)
        calls = strtoll(at + strlen(name), NULL, 10);
    freeReplyObject(reply);
    return calls;
}

int server_clients(const struct server *s, const char *text)
{
    redisReply *reply = server_run(s, "CLIENT LIST");
    int count = 0;

    for (char *rest = reply->str, *line;
         (line = strtok_r(rest, "\n", &rest)) != NULL;)
        count += strstr(line, text) != NULL;
    freeReplyObject(reply);
    return count;
}

bool server_follows(const struct server *replica)
{
    char status[8];

    server_info(replica, "master_link_status", status, sizeof(status));
    return strcmp(status, "up") == 0;
}

/* By a password that the primary does not have. It drops all replicas, and the
 * others come back. */
void server_cut_replica(const struct server *replica,
                        const struct server *primary)
{
    server_do(replica, "CONFIG SET masterauth wrong");
    /* repeated, because it may just be connecting with the right one */
    WAIT_FOR((server_do(primary, "CLIENT KILL TYPE replica"),
              !server_follows(replica)));
}

void server_join_replica(const struct server *replica)
{
    const char *password = replica->password != NULL ? replica->password : "";

    server_do(replica, "CONFIG SET masterauth %b", password, strlen(password));
}

/* Of a cache's tags: it has to outlive every entry. */
static bool is_log(const redisReply *key)
{
    static const char suffix[] = ":tags";
    const size_t size = sizeof(suffix) - 1;

    return key->len >= size &&
           memcmp(key->str + key->len - size, suffix, size) == 0;
}

void server_check_ttls(const struct server *s)
{
    redisReply *keys = server_run(s, "KEYS *");

    for (size_t i = 0; i < keys->elements; i++) {
        const redisReply *key = keys->element[i];
        if (is_log(key))
            continue;
        ck_assert_msg(server_int(s, "PTTL %b", key->str, (size_t)key->len) !=
                          -1,
                      "%s has no time to live", key->str);
    }
    freeReplyObject(keys);
}

/* ------------------------------------------------------------------- proxy */

#define CHUNK_BYTES 65536

struct pair {
    int client, upstream; /* -1: free */
    char held[CHUNK_BYTES];
    size_t size, sent;
    uint64_t due_ms;
    char copy[CHUNK_BYTES]; /* DOUBLE: what was held before */
    size_t copy_size;
    bool is_callers; /* the last request reads an entry or calls a script */
    bool is_script;  /* the last request calls one */
    bool is_claim;   /* it is a SET NX */
    bool is_subscribed;
    bool is_watcher; /* a sentinel or a replica */
    char *late;      /* a request that is held back; NULL: none */
    size_t late_size;
    uint64_t late_due_ms; /* UINT64_MAX: HOLD_ONE */
    atomic_int *holds;    /* HOLD_ONE: the proxy's; else NULL */
};

static void pass_late(struct pair *pair)
{
    (void)!send(pair->upstream, pair->late, pair->late_size, MSG_NOSIGNAL);
    free(pair->late);
    pair->late = NULL;
    if (pair->holds != NULL)
        atomic_store(pair->holds, 0);
    pair->holds = NULL;
}

static void close_pair(struct pair *pair)
{
    if (pair->late != NULL)
        pass_late(pair);
    close(pair->client);
    close(pair->upstream);
    pair->client = pair->upstream = -1;
    pair->size = pair->sent = pair->copy_size = 0;
    pair->is_subscribed = pair->is_watcher = false;
}

/* Returns: a descriptor, -1 if the server is not there. */
static int connect_upstream(const struct server *s)
{
    struct sockaddr_un path = socket_name(s->socket);
    struct sockaddr_in port = loopback(s->tls_port);
    bool is_path = s->tls_port == 0;
    int fd = open_socket(is_path ? AF_UNIX : AF_INET);
    int result = is_path ? connect(fd, (struct sockaddr *)&path, sizeof(path))
                         : connect(fd, (struct sockaddr *)&port, sizeof(port));

    if (result == 0)
        return fd;
    close(fd);
    return -1;
}

static void accept_pair(struct proxy *p, struct pair *pair)
{
    pair->client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    if (pair->client < 0)
        return;
    atomic_fetch_add(&p->accepted, 1);
    pair->upstream = connect_upstream(p->server);
    if (pair->upstream < 0)
        close_pair(pair);
}

/* Whether a request is made for a caller, not by the set-up or the session. */
static bool is_of_caller(const char *bytes, size_t size)
{
    static const char *const names[] = {"$3\r\nGET\r\n", "$4\r\nEVAL\r\n",
                                        "$7\r\nEVALSHA\r\n"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (memmem(bytes, size, names[i], strlen(names[i])) != NULL)
            return true;
    return false;
}

/* A message between nodes of a cluster names its sender. */
static bool is_of_watcher(const char *bytes, size_t size, const char *id)
{
    enum { ID_AT = 40, ID_BYTES = 40 };

    if (id != NULL)
        return size >= ID_AT + ID_BYTES &&
               memcmp(bytes + ID_AT, id, ID_BYTES) == 0;
    return memmem(bytes, size, "sentinel", 8) != NULL ||
           memmem(bytes, size, "REPLCONF", 8) != NULL;
}

/* Whether a request is held back from now on. */
static bool holds_back(struct proxy *p, struct pair *pair, const char *bytes,
                       size_t size)
{
    int mode = atomic_load(&p->mode);
    bool is_one = mode == PROXY_HOLD_ONE && pair->is_script && pair->is_callers;
    uint64_t random = shed_random_jitter();

    if (!is_one &&
        (mode != PROXY_STALL || random % atomic_load(&p->every) != 0))
        return false;
    pair->late = malloc(size);
    memcpy(pair->late, bytes, size);
    pair->late_size = size;
    pair->late_due_ms =
        is_one ? UINT64_MAX
               : shed_now_ms() + random / 1024 % atomic_load(&p->delay_ms);
    pair->holds = is_one ? &p->holds : NULL;
    if (is_one) {
        atomic_store(&p->mode, PROXY_PASS);
        atomic_store(&p->holds, 1);
    }
    return true;
}

static void pass_request(struct proxy *p, struct pair *pair)
{
    char bytes[CHUNK_BYTES];
    ssize_t n = recv(pair->client, bytes, sizeof(bytes), 0);
    int mode = atomic_load(&p->mode);
    bool subscribes = n > 0 && memmem(bytes, (size_t)n, "SUBSCRIBE", 9) != NULL;

    atomic_fetch_add(&p->requests, 1);
    /* in other modes the text is something else */
    pair->is_watcher |=
        n > 0 &&
        is_of_watcher(bytes, (size_t)n, mode == PROXY_PART ? p->text : NULL);
    if (n > 0 &&
        (mode == PROXY_SWALLOW || (mode == PROXY_PART && pair->is_watcher) ||
         (mode == PROXY_SWALLOW_SUBSCRIBE && subscribes)))
        return;
    pair->is_subscribed |= subscribes;
    pair->is_callers = n > 0 && is_of_caller(bytes, (size_t)n);
    pair->is_script = n > 0 && memmem(bytes, (size_t)n, "EVAL", 4) != NULL;
    pair->is_claim = n > 0 && memmem(bytes, (size_t)n, "\r\nNX\r\n", 6) != NULL;
    if (n > 0 && pair->copy_size > 0) {
        if (send(pair->client, pair->copy, pair->copy_size, MSG_NOSIGNAL) < 0)
            n = 0;
        pair->copy_size = 0;
        if (n > 0 && mode == PROXY_STAND_IN)
            return;
    }
    if (n > 0 && holds_back(p, pair, bytes, (size_t)n))
        return;
    if (n <= 0 || send(pair->upstream, bytes, (size_t)n, MSG_NOSIGNAL) != n)
        close_pair(pair);
}

/* Move on with a request that is held back. */
static void serve_late(struct proxy *p, struct pair *pair)
{
    bool is_one = pair->late_due_ms == UINT64_MAX;

    if (is_one && atomic_load(&p->holds) == 2) {
        (void)shutdown(pair->client, SHUT_RDWR);
        atomic_store(&p->holds, 3);
    }
    if (is_one ? atomic_load(&p->holds) == 4
               : shed_now_ms() >= pair->late_due_ms)
        pass_late(pair);
}

/* Read replies from the server into held, which is empty. */
static void take_reply(struct proxy *p, struct pair *pair, unsigned *reads)
{
    ssize_t n = recv(pair->upstream, pair->held, sizeof(pair->held), 0);
    unsigned every = atomic_load(&p->every);
    int mode = atomic_load(&p->mode);

    if (n <= 0) {
        close_pair(pair);
        return;
    }
    pair->size = (size_t)n;
    pair->due_ms = shed_now_ms();
    if (mode == PROXY_DELAY && (every < 2 || ++*reads % every == 0))
        pair->due_ms += atomic_load(&p->delay_ms);
    if (mode == PROXY_DROP ||
        (mode == PROXY_DROP_LEASES && (pair->is_script || pair->is_claim)) ||
        (mode == PROXY_DROP_PUSHES && pair->is_subscribed) ||
        (mode == PROXY_PART && pair->is_watcher))
        pair->size = 0;
    if (mode == PROXY_DOUBLE || (mode == PROXY_STAND_IN && pair->is_callers)) {
        memcpy(pair->copy, pair->held, pair->size);
        pair->copy_size = pair->size;
    }
    if (mode == PROXY_ANSWER) {
        pair->size = strlen(p->text);
        memcpy(pair->held, p->text, pair->size);
    }
}

static void pass_reply(struct proxy *p, struct pair *pair)
{
    int mode = atomic_load(&p->mode);
    bool is_cut = mode == PROXY_CUT || mode == PROXY_CUT_ONE;
    size_t left = pair->size - pair->sent;
    size_t n = mode == PROXY_DRIP || is_cut ? 1 : left;

    if (mode == PROXY_CUT_ONE)
        atomic_store(&p->mode, PROXY_PASS);
    if (send(pair->client, pair->held + pair->sent, n, MSG_NOSIGNAL) !=
            (ssize_t)n ||
        is_cut) {
        close_pair(pair);
        return;
    }
    pair->sent += n;
    pair->due_ms = shed_now_ms() + atomic_load(&p->delay_ms);
    if (pair->sent == pair->size)
        pair->size = pair->sent = 0;
}

static void serve_pair(struct proxy *p, struct pair *pair,
                       const struct pollfd *fds, unsigned *reads)
{
    if (pair->client >= 0 && pair->late != NULL)
        serve_late(p, pair);
    else if (pair->client >= 0 && fds[0].revents != 0)
        pass_request(p, pair);
    if (pair->client >= 0 && fds[1].revents != 0)
        take_reply(p, pair, reads);
    if (pair->client >= 0 && pair->size > 0 && shed_now_ms() >= pair->due_ms)
        pass_reply(p, pair);
}

/* Returns: whether it is to accept nothing. */
static bool close_if_deaf(struct proxy *p, struct pair *pairs)
{
    bool is_deaf = atomic_load(&p->mode) == PROXY_BLACKHOLE;

    for (size_t i = 0; is_deaf && i < PROXY_PAIRS_MAX; i++)
        if (pairs[i].client >= 0)
            close_pair(&pairs[i]);
    atomic_store(&p->is_deaf, is_deaf);
    return is_deaf;
}

static void *run_proxy(void *arg)
{
    struct proxy *p = arg;
    struct pair *pairs = calloc(PROXY_PAIRS_MAX, sizeof(*pairs));
    unsigned reads = 0;

    for (size_t i = 0; i < PROXY_PAIRS_MAX; i++)
        pairs[i].client = pairs[i].upstream = -1;
    while (!atomic_load(&p->is_stopping)) {
        struct pollfd fds[1 + 2 * PROXY_PAIRS_MAX] = {{p->listener, POLLIN, 0}};
        struct pair *unused = NULL;
        bool is_deaf = close_if_deaf(p, pairs);

        for (size_t i = 0; i < PROXY_PAIRS_MAX; i++) {
            struct pollfd *fd = &fds[1 + 2 * i];
            fd[0] = (struct pollfd){
                pairs[i].late == NULL ? pairs[i].client : -1, POLLIN, 0};
            /* the next reply waits until this one is passed on */
            fd[1] = (struct pollfd){pairs[i].size == 0 ? pairs[i].upstream : -1,
                                    POLLIN, 0};
            if (pairs[i].client < 0 && !is_deaf)
                unused = &pairs[i];
        }
        if (unused == NULL)
            fds[0].fd = -1;
        (void)poll(fds, 1 + 2 * PROXY_PAIRS_MAX, 1);
        for (size_t i = 0; i < PROXY_PAIRS_MAX; i++)
            serve_pair(p, &pairs[i], &fds[1 + 2 * i], &reads);
        if (unused != NULL && fds[0].revents != 0)
            accept_pair(p, unused);
    }
    for (size_t i = 0; i < PROXY_PAIRS_MAX; i++)
        if (pairs[i].client >= 0)
            close_pair(&pairs[i]);
    free(pairs);
    return NULL;
}

void proxy_listen(struct proxy *p, const struct server *s)
{
    p->server = s;
    p->filler = -1;
    snprintf(p->socket, sizeof(p->socket), "%s/proxy.sock", s->dir);
    if (p->is_tcp) {
        p->listener = bind_any_port(&p->port);
        snprintf(p->uri, sizeof(p->uri), "%s://127.0.0.1:%u",
                 s->tls_port != 0 ? "rediss" : "redis", p->port);
    } else {
        p->listener = bind_path(p->socket);
        snprintf(p->uri, sizeof(p->uri), "unix:%s", p->socket);
    }
    ck_assert_int_eq(listen(p->listener, PROXY_PAIRS_MAX), 0);
}

void proxy_serve(struct proxy *p)
{
    start_thread(&p->thread, run_proxy, p);
}

void proxy_start(struct proxy *p, const struct server *s)
{
    proxy_listen(p, s);
    proxy_serve(p);
}

/* Linux drops a SYN when the listener's queue is full (tcp_conn_request). A
 * backlog of 0 holds one connection: the filler. */
static void begin_blackhole(struct proxy *p)
{
    struct sockaddr_in name = loopback(p->port);

    ck_assert(p->is_tcp && p->filler < 0);
    WAIT_FOR(atomic_load(&p->is_deaf));
    ck_assert_int_eq(listen(p->listener, 0), 0);
    p->filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)connect(p->filler, (struct sockaddr *)&name, sizeof(name));
}

static void end_blackhole(struct proxy *p)
{
    if (p->filler < 0)
        return;
    close(p->filler);
    p->filler = -1;
    ck_assert_int_eq(listen(p->listener, PROXY_PAIRS_MAX), 0);
}

void proxy_set(struct proxy *p, enum proxy_mode mode, unsigned delay_ms,
               const char *text)
{
    if (text != NULL)
        p->text = text;
    atomic_store(&p->delay_ms, delay_ms);
    atomic_store(&p->mode, mode);
    if (mode == PROXY_BLACKHOLE)
        begin_blackhole(p);
    else
        end_blackhole(p);
}

void proxy_wait_held(struct proxy *p)
{
    WAIT_FOR(atomic_load(&p->holds) == 1);
}

void proxy_cut_off(struct proxy *p)
{
    atomic_store(&p->holds, 2);
    WAIT_FOR(atomic_load(&p->holds) == 3);
}

void proxy_release(struct proxy *p)
{
    int now = atomic_load(&p->holds);

    while (now != 0 && !atomic_compare_exchange_weak(&p->holds, &now, 4))
        ;
    WAIT_FOR(atomic_load(&p->holds) == 0);
}

void proxy_stop(struct proxy *p)
{
    atomic_store(&p->is_stopping, true);
    ck_assert_int_eq(pthread_join(p->thread, NULL), 0);
    end_blackhole(p);
    close(p->listener);
}
