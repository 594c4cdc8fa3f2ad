/* Processes and threads. A child dies with its parent, so nothing is left
 * behind when the load test is interrupted. */
#include "fleet.h"

#include <err.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_US (60 * 1000000ULL)
#define STACK_BYTES ((size_t)1 << 20)

struct worker {
    pthread_t thread;
    struct fleet *fleet;
    void *process;
    const _Atomic uint64_t *least; /* prices, by id */
    uint64_t random;
};

/* splitmix64, by S. Vigna, public domain: prng.di.unimi.it/splitmix64.c */
uint64_t fleet_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Note how long after the end of somebody else's load of the hot key a caller
 * that waited for it returned. */
static void note_wait(struct record *r, uint64_t start_us)
{
    uint64_t end_us = atomic_load(&r->last_load_end_us);
    uint64_t now_us = demo_now_us();

    if (end_us > start_us && end_us <= now_us)
        histogram_add(&r->extra, now_us - end_us);
}

static void read_once(struct worker *w, void *thread, const uint64_t *ids,
                      size_t count)
{
    struct record *r = w->fleet->settings.record;
    uint64_t least =
        count == 1 && ids[0] < PRICES ? atomic_load(&w->least[ids[0]]) : 0;
    bool is_busy = atomic_load(&r->under_way) > 0;
    uint64_t limit_us = w->fleet->settings.timeout_ms * 1000, us;
    uint64_t start_us = demo_now_us();
    struct got got = {.price = 0};
    char why[160] = "";

    if (!w->fleet->strategy->get(thread, ids, count, &got, why, sizeof(why)))
        record_error(r, why);
    else if (w->fleet->has_hot_key && !got.did_load)
        note_wait(r, start_us);
    if (got.did_wait || got.did_load)
        atomic_fetch_add(&r->waited, 1);
    if (got.price > 0 && got.price < least)
        atomic_fetch_add(&r->stale, 1);
    is_busy = is_busy || atomic_load(&r->under_way) > 0;
    us = demo_now_us() - start_us;
    histogram_add(is_busy ? &r->busy : &r->calm, us);
    if (us > limit_us)
        histogram_add(&r->over, us - limit_us);
    record_call(r, start_us);
}

static void *run_thread(void *arg)
{
    struct worker *w = arg;
    struct fleet *f = w->fleet;
    struct record *r = f->settings.record;
    uint64_t ids[PAGE_MAX];
    char why[160] = "";
    void *thread = f->strategy->enter(w->process, why, sizeof(why));
    size_t count;

    if (thread == NULL) {
        record_error(r, why);
        return NULL;
    }
    while (!atomic_load(&r->is_over) &&
           (count = f->pick(f->context, &w->random, ids)) > 0) {
        read_once(w, thread, ids, count);
        if (f->think_us > 0)
            record_sleep(r, fleet_random(&w->random) % (2 * f->think_us));
    }
    f->strategy->leave(thread);
    return NULL;
}

static void *run_aside(void *arg)
{
    struct worker *w = arg;

    w->fleet->aside(w->fleet->aside_context, w->process);
    return NULL;
}

static void run_threads(struct fleet *f, void *process, uint64_t number)
{
    struct worker *worker = calloc(f->threads, sizeof(*worker));
    struct record *r = f->settings.record;
    struct worker aside = {.fleet = f, .process = process};
    bool has_aside = f->aside != NULL && number == 0;
    pthread_attr_t attr;
    uint64_t started = 0;

    if (worker == NULL || pthread_attr_init(&attr) != 0)
        return;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (has_aside &&
        pthread_create(&aside.thread, &attr, run_aside, &aside) != 0) {
        record_error(r, "a thread cannot be started");
        has_aside = false;
    }
    for (; started < f->threads; started++) {
        worker[started] = (struct worker){
            .fleet = f,
            .process = process,
            .least = has_aside ? r->own_price : r->price,
            .random = f->seed * 1000003 + number * f->threads + started};
        if (pthread_create(&worker[started].thread, &attr, run_thread,
                           &worker[started]) != 0)
            break;
    }
    for (uint64_t i = 0; i < started; i++)
        (void)pthread_join(worker[i].thread, NULL);
    if (has_aside)
        (void)pthread_join(aside.thread, NULL);
    (void)pthread_attr_destroy(&attr);
    free(worker);
}

static void run_process(struct fleet *f, uint64_t number, pid_t parent)
{
    char why[160] = "";
    void *process;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE); /* the parent died before prctl took effect */
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    process =
        f->strategy->open != NULL
            ? f->strategy->open(f->strategy, &f->settings, why, sizeof(why))
            : (void *)&f->settings;
    if (process == NULL) {
        record_error(f->settings.record, why);
        _exit(EXIT_FAILURE);
    }
    run_threads(f, process, number);
    if (f->strategy->close != NULL)
        f->strategy->close(process);
    _exit(EXIT_SUCCESS);
}

static pid_t start_process(struct fleet *f, uint64_t number)
{
    pid_t parent = getpid(), pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0)
        run_process(f, number, parent);
    if (pid < 0)
        err(EXIT_FAILURE, "fork"); /* the children die with us */
    return pid;
}

void fleet_start(struct fleet *f)
{
    f->pids = calloc(f->processes, sizeof(*f->pids));
    if (f->pids == NULL)
        err(EXIT_FAILURE, "the processes");
    for (uint64_t i = 0; i < f->processes; i++)
        f->pids[i] = start_process(f, i);
}

void fleet_replace(struct fleet *f, pid_t dead)
{
    for (uint64_t i = 0; i < f->processes; i++)
        if (f->pids[i] == dead)
            f->pids[i] = start_process(f, i);
}

unsigned fleet_wait(struct fleet *f)
{
    uint64_t deadline_us = demo_now_us() + PATIENCE_US;
    unsigned killed = 0;

    for (uint64_t i = 0; i < f->processes; i++) {
        while (waitpid(f->pids[i], NULL, WNOHANG) == 0) {
            if (demo_now_us() > deadline_us) {
                (void)kill(f->pids[i], SIGKILL);
                (void)waitpid(f->pids[i], NULL, 0);
                killed++;
                break;
            }
            demo_nap(1000);
        }
    }
    free(f->pids);
    f->pids = NULL;
    return killed;
}
