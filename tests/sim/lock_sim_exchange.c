/* Exchanges: the part of server.c between a machine and a network. Its
 * invariant: an exchange that was asked ends exactly once, by a reply. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sim/lock_sim.h"

#define WALL_MS UINT64_C(1700000000000)

static void identify(const struct sim *s, unsigned p, unsigned server,
                     struct shed_identity *identity)
{
    char text[SHED_PROCESS_BYTES + 1];

    memset(identity, ' ', sizeof(*identity));
    if (!s->process[p].session[server].is_up || !s->process[p].has_pushes)
        return;
    snprintf(text, sizeof(text), "%016x", p);
    memcpy(identity->process, text, sizeof(identity->process));
    memcpy(identity->run, s->process[p].session[server].run, SHED_RUN_BYTES);
}

static void read_clocks(const struct sim *s, unsigned h,
                        struct shed_exchange *exchange)
{
    exchange->now_ms = sim_local_ms(s, s->handle[h].process);
    exchange->wall_ms =
        WALL_MS + s->now_ms + s->process[s->handle[h].process].skew_ms;
}

/* Returns: false if the exchange is over. */
bool sim_send_next(struct sim *s, unsigned h, unsigned server, size_t call,
                   struct shed_exchange *exchange)
{
    struct shed_args args = {0};

    identify(s, s->handle[h].process, server, &exchange->identity);
    read_clocks(s, h, exchange);
    if (!exchange->spec->algorithm->next_command(exchange, &args))
        return false;
    sim_send(s, h, server, call, exchange, &args);
    return true;
}

/* A server that has not told its age is asked again. */
static bool has_no_vote(struct sim *s, unsigned h, unsigned server,
                        struct shed_exchange *exchange, bool is_answered)
{
    bool *has_told =
        &s->process[s->handle[h].process].session[server].has_told_age;
    uint64_t age_ms = s->now_ms - s->server[server].since_ms;

    if (!shed_quorum_is_void(s->server_count, exchange, is_answered,
                             *has_told ? age_ms : SHED_AGE_UNKNOWN))
        return false;
    *has_told = true;
    (void)shed_fail(&exchange->error, SHED_EREDIS, "too young");
    (void)shed_exchange_end(exchange, SHED_EXCHANGE_FAILED);
    return true;
}

void sim_ask(struct sim *s, unsigned h, unsigned server)
{
    static const char *const ops[] = {"asks for", "extends", "gives back",
                                      "undoes", "advances"};
    struct shed_exchange *exchange = &s->handle[h].voter[server].exchange;

    if (exchange->op == SHED_LOCK_OP_ACQUIRE && s->algorithm->has_tokens &&
        s->server_count == 1 && !s->process[s->handle[h].process].is_settled)
        sim_fail(s, "it asks before its session is known");
    sim_trace(s, ops[exchange->op], s->handle[h].process, server,
              exchange->holder.token[0]);
    if (has_no_vote(s, h, server, exchange, false) ||
        !sim_send_next(s, h, server, SIM_CALLS, exchange))
        sim_send(s, h, server, SIM_CALLS, exchange, NULL);
}

static void note_renewal(struct sim *s, const struct sim_request *r,
                         const struct shed_exchange *exchange)
{
    struct sim_call *call = &s->call[sim_find_call(s, &exchange->holder)];
    uint64_t lost = s->handle[r->handle].machine.lost_generation;

    call->is_renewed_late = s->server_count == 1 && call->generation > 0 &&
                            call->generation <= lost;
}

/* Returns: whether the exchange is over. */
bool sim_take_reply(struct sim *s, const struct sim_request *r,
                    struct shed_exchange *exchange)
{
    struct lock_model_memory memory;
    bool goes_on;

    if (r->is_broken) {
        (void)shed_fail(&exchange->error, SHED_EREDIS, "the connection broke");
        (void)shed_exchange_end(exchange, SHED_EXCHANGE_FAILED);
        return true;
    }
    read_clocks(s, r->handle, exchange);
    goes_on = exchange->spec->algorithm->on_reply(
        exchange, lock_model_to_reply(&r->reply, &memory));
    if (exchange->op == SHED_LOCK_OP_EXTEND &&
        exchange->end == SHED_EXCHANGE_YES)
        note_renewal(s, r, exchange);
    if (goes_on && sim_send_next(s, r->handle, r->server, r->call, exchange))
        return false;
    if (r->call == SIM_CALLS)
        (void)has_no_vote(s, r->handle, r->server, exchange, true);
    return true;
}
