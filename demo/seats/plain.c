/*
 * Selling seats without protection, as in a first attempt: look which seats are
 * free, let the card service charge for one of them, write the buyer into it.
 * Two buyers that saw the same free seat are both charged, and the one that
 * writes last has it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/fleet.h"
#include "ledger.h"
#include "strategies.h"

struct thread {
    struct showing *showing;
    struct statements *sql;
};

static void *open_plain(const struct settings *settings, char *why, size_t size)
{
    (void)why;
    (void)size;
    return showing_of(settings->record);
}

static void leave_plain(void *arg)
{
    struct thread *t = arg;

    statements_close(t->sql);
    free(t);
    mysql_thread_end();
}

static void *enter_plain(void *process, char *why, size_t size)
{
    struct thread *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->showing = process;
    t->sql = ledger_open(why, size);
    if (t->sql != NULL)
        return t;
    leave_plain(t);
    return NULL;
}

static enum statement_code pay(struct thread *t, struct visit *v, uint64_t seat,
                               uint64_t buyer)
{
    enum statement_code code;

    showing_arrive(t->showing, v, STEP_SEAT, v->plan.choose_ms);
    showing_arrive(t->showing, v, STEP_CARD, v->plan.card_ms);
    code = ledger_charge(t->sql, seat, buyer, 0);
    return code == STATEMENT_OK ? ledger_overwrite(t->sql, seat, buyer) : code;
}

static bool get_plain(void *thread, const uint64_t *ids, size_t count,
                      struct got *got, char *why, size_t size)
{
    struct thread *t = thread;
    struct visit *v = &t->showing->visit[ids[0]];
    uint64_t random = t->showing->seed + ids[0], seats[SEATS_IN_SIGHT];
    size_t free_seats = 0;
    enum statement_code code = ledger_list_free(
        t->sql, t->showing->number, seats, SEATS_IN_SIGHT, &free_seats);

    (void)count; /* one */
    (void)got;
    if (code == STATEMENT_OK && free_seats > 0)
        code = pay(t, v, seats[fleet_random(&random) % free_seats], ids[0] + 1);
    if (code != STATEMENT_OK) {
        (void)snprintf(why, size, "%s", statements_why(t->sql));
        return false;
    }
    showing_tell(v, free_seats > 0 ? ANSWER_BOUGHT : ANSWER_SOLD);
    return true;
}

const struct strategy seats_plain = {.name = "without",
                                     .open = open_plain,
                                     .enter = enter_plain,
                                     .leave = leave_plain,
                                     .get = get_plain};
