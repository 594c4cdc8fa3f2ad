#include "soak/stage.h"

#include <signal.h>
#include <stdio.h>
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

void soak_stage_open(struct soak_stage *stage, uint64_t seed)
{
    *stage = (struct soak_stage){.redis = {.options = {NULL}},
                                 .seed = seed,
                                 .random_states = {(seed + 1) * 2654435761U}};
    stage->random_states[1] = stage->random_states[0] + 1;
    stage->history = mmap(NULL, sizeof(*stage->history), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stage->history, MAP_FAILED);
    own_mariadb_install(&stage->database);
    own_mariadb_start(&stage->database);
    open_site(&stage->site, stage->database.uri);
    run_sql(&stage->site, "CREATE TABLE item (id BIGINT PRIMARY KEY, "
                          "version INT, tag VARCHAR(8))");
    for (unsigned key = 0; key < SOAK_KEYS; key++)
        run_sql(&stage->site, "INSERT INTO item VALUES (%u, 0, 'tag%u')",
                key + 1, soak_tag_of(key));
    server_start(&stage->redis);
    stage->place = (struct soak_place){stage->redis.uri, stage->redis.socket,
                                       stage->site.uri};
}

void soak_stage_close(struct soak_stage *stage)
{
    server_stop(&stage->redis);
    close_site(&stage->site);
    own_mariadb_signal(&stage->database, SIGKILL);
    own_mariadb_remove(&stage->database);
}
