#include "soak/stage.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/random.h"

uint64_t soak_stage_draw(struct soak_stage *stage, uint64_t below)
{
    return random_next(&stage->random_states[stage->is_calm]) % below;
}

void soak_sleep_ms(uint64_t ms)
{
    usleep((useconds_t)(ms * 1000));
}

/* --------------------------------------------------------------- workers */

void soak_stage_start_worker(struct soak_stage *stage, unsigned number)
{
    pid_t pid = fork();

    if (pid == 0)
        soak_work(stage->history, &stage->place, number,
                  stage->seed + stage->generation * 1000 + number);
    ck_assert_int_ge(pid, 0);
    stage->workers[number] = pid;
    stage->generation++;
}

bool soak_stage_end_workers(struct soak_stage *stage)
{
    bool is_well = true;

    atomic_store(&stage->history->is_over, true);
    for (unsigned i = 0; i < SOAK_WORKERS; i++) {
        int status = 0;
        uint64_t until_ms = test_deadline_ms();
        while (waitpid(stage->workers[i], &status, WNOHANG) == 0) {
            if (shed_now_ms() > until_ms)
                kill(stage->workers[i], SIGABRT); /* one of its calls hangs */
            soak_sleep_ms(10);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS) {
            printf("process %u ended with the status %d\n", i, status);
            is_well = false;
        }
    }
    return is_well;
}

/* --------------------------------------------------------------- servers */

/* How long a primary is away before it is replaced: a busy machine must not
 * seem to be. */
enum { AWAY_MS = 3000 };

static void start_redis(struct soak_stage *stage)
{
    struct soak_place *place = &stage->place;
    struct watched *w = &stage->watched;
    struct own_cluster *c = &stage->cluster;

    switch (stage->topology) {
    case SOAK_SINGLE:
        server_start(&stage->single);
        *place =
            (struct soak_place){stage->single.uri, NULL, &stage->single, 1, 0};
        break;
    case SOAK_SENTINEL:
        w->down_ms = AWAY_MS;
        watched_start(w);
        *place = (struct soak_place){w->uri, NULL, w->server, WATCHED_SERVERS,
                                     WATCHED_SERVERS - 1};
        break;
    case SOAK_CLUSTER:
        c->primaries = 3;
        c->replicas = 1;
        c->node_timeout_ms = AWAY_MS;
        own_cluster_start(c);
        *place = (struct soak_place){c->uri, NULL, c->node, c->count, 1};
    }
}

size_t soak_stage_draw_primary(struct soak_stage *stage)
{
    size_t i = soak_stage_draw(stage, stage->place.servers);
    char role[8] = "";

    for (;; i = (i + 1) % stage->place.servers) {
        server_info(&stage->place.server[i], "role", role, sizeof(role));
        if (strcmp(role, "master") == 0)
            return i;
    }
}

void soak_stage_open(struct soak_stage *stage, enum soak_topology topology,
                     uint64_t seed)
{
    *stage = (struct soak_stage){.topology = topology,
                                 .seed = seed,
                                 .random_states = {(seed + 1) * 2654435761U}};
    stage->random_states[1] = stage->random_states[0] + 1;
    stage->history = mmap(NULL, sizeof(*stage->history), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stage->history, MAP_FAILED);
    own_database_install(&stage->database);
    own_database_start(&stage->database);
    open_site(&stage->site, stage->database.uri);
    run_sql(&stage->site, "CREATE TABLE item (id BIGINT PRIMARY KEY, "
                          "version INT, tag VARCHAR(8))");
    for (unsigned key = 0; key < SOAK_KEYS; key++)
        run_sql(&stage->site, "INSERT INTO item VALUES (%u, 0, 'tag%u')",
                key + 1, soak_tag_of(key));
    start_redis(stage);
    stage->place.mysql_uri = stage->site.uri;
}

static void stop_redis(struct soak_stage *stage)
{
    switch (stage->topology) {
    case SOAK_SINGLE:
        server_stop(&stage->single);
        break;
    case SOAK_SENTINEL:
        watched_stop(&stage->watched);
        break;
    case SOAK_CLUSTER:
        own_cluster_stop(&stage->cluster);
    }
}

void soak_stage_close(struct soak_stage *stage)
{
    stop_redis(stage);
    close_site(&stage->site);
    own_database_signal(&stage->database, SIGKILL);
    own_database_remove(&stage->database);
}
