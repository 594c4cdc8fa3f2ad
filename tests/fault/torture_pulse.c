/* See torture_pulse.h. Its invariant: what the cell does to a server or a
 * contender does not count as a stall. Neither does a killed server, and a
 * frozen one answers when the cell is over. */
#include "fault/torture_pulse.h"

#include <unistd.h>

#include "support/testing.h"

enum { NAP_US = 5000 };

static bool is_over(const struct torture_watch *w)
{
    return atomic_load(&w->owner->own.is_over);
}

/* Ask the server until it is gone. */
static void ask(const struct torture_watch *w, redisContext *c)
{
    redisReply *reply = NULL;

    do {
        uint64_t begin_ms = shed_now_ms();
        freeReplyObject(reply);
        usleep(NAP_US);
        reply = redisCommand(c, "PING");
        if (reply != NULL)
            pulse_note(&w->owner->own, shed_now_ms() - begin_ms);
    } while (reply != NULL && !is_over(w));
    freeReplyObject(reply);
}

static void *watch(void *arg)
{
    const struct torture_watch *w = arg;

    while (!is_over(w)) {
        redisContext *c = redisConnectUnix(w->server->socket);
        if (c != NULL && c->err == 0)
            ask(w, c);
        redisFree(c);
        usleep(NAP_US);
    }
    return NULL;
}

void torture_pulse_start(struct torture_pulse *p, const struct server *servers,
                         size_t count)
{
    *p = (struct torture_pulse){.count = count};
    pulse_start(&p->own);
    for (size_t i = 0; i < count; i++) {
        p->watches[i] = (struct torture_watch){&servers[i], p, 0};
        start_thread(&p->watches[i].thread, watch, &p->watches[i]);
    }
}

void torture_pulse_stop(struct torture_pulse *p)
{
    pulse_stop(&p->own);
    for (size_t i = 0; i < p->count; i++)
        ck_assert_int_eq(pthread_join(p->watches[i].thread, NULL), 0);
}

uint64_t torture_pulse_stall_ms(struct torture_pulse *p,
                                struct torture_shared *shared)
{
    uint64_t longest_ms = pulse_longest_ms(&p->own);

    for (unsigned i = 0; i < CONTENDERS; i++) {
        uint64_t ms = atomic_load(&shared->pulses[i].longest_ms);
        if (!p->is_stopped[i] && ms > longest_ms)
            longest_ms = ms;
    }
    return longest_ms;
}
