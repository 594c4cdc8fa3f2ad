/*
 * The health of one server. Its invariants: a failure counts once, however many
 * tries it ends; a term never goes back; what is UP stays so for as long as
 * each try, and each call, succeeds.
 */
#include "redis/health.h"

#include "base/backoff.h"
#include "base/clock.h"

/* A server that is silent costs each try a whole timeout, one that refuses a
 * connection costs nothing: so silence counts as this many failures where the
 * pause before the next try is chosen. */
#define SILENCE_WEIGHT 5

void shed_health_init(struct shed_health *h,
                      const struct shed_client_options *o, uint64_t now_ms)
{
    uint64_t patience_ms =
        o->breaker.slow_ms > 0 ? o->breaker.slow_ms : o->command_timeout_ms;

    *h = (struct shed_health){.connect_timeout_ms = o->connect_timeout_ms,
                              .heard_ms = now_ms};
    shed_breaker_init(&h->breaker, &o->breaker, patience_ms, now_ms);
}

static void move_to(struct shed_health *h, enum shed_health_state state,
                    uint64_t pause_ms, uint64_t now_ms)
{
    h->state = state;
    h->pause_ms = pause_ms;
    h->retry_ms = h->link_retry_ms = now_ms + pause_ms;
}

/* ------------------------------------------------------------- connections */

/* A link that may try in spite of a failure is followed by another one only
 * after another pause, however soon its caller gives up. */
enum shed_health_state shed_health_connect(struct shed_health *h,
                                           enum shed_health_user user,
                                           uint64_t now_ms,
                                           struct shed_health_try *try)
{
    bool is_link = user == SHED_HEALTH_LINK;

    if ((h->state == SHED_HEALTH_SILENT && user != SHED_HEALTH_COMMANDS) ||
        now_ms < (is_link ? h->link_retry_ms : h->retry_ms))
        return h->state;
    if (is_link && h->state != SHED_HEALTH_UP)
        h->link_retry_ms = now_ms + h->pause_ms;
    *try = (struct shed_health_try){user, h->term, h->round};
    return SHED_HEALTH_UP;
}

/* Choose the pause after a failure. */
static uint64_t count_failure(struct shed_health *h, unsigned weight,
                              uint64_t random)
{
    h->failures += weight;
    h->round++;
    return shed_backoff_ms(h->failures - 1, SHED_PAUSE_MIN_MS,
                           SHED_PAUSE_MAX_MS, random);
}

/* Those who fail wait: a link's failure does not keep the session from its try,
 * nor the session's a link. */
static void begin_pause(struct shed_health *h,
                        const struct shed_health_try *try, unsigned weight,
                        uint64_t now_ms, uint64_t random)
{
    bool is_counted = try->round == h->round;
    uint64_t *retry_ms =
        try->user == SHED_HEALTH_LINK ? &h->link_retry_ms : &h->retry_ms;

    if (!is_counted && h->state == SHED_HEALTH_UP)
        return;
    if (is_counted)
        h->pause_ms = count_failure(h, weight, random);
    h->state = SHED_HEALTH_PAUSED;
    if (*retry_ms < now_ms + h->pause_ms)
        *retry_ms = now_ms + h->pause_ms;
}

/* What was heard in the first half may have come before the server stopped, and
 * have been read late by a thread that did not run. */
static bool is_silent(const struct shed_health *h, uint64_t since_ms,
                      uint64_t now_ms)
{
    return h->has_session && h->heard_ms <= since_ms + (now_ms - since_ms) / 2;
}

/* The first try is made at once, because perhaps only one connection was
 * dead. */
static void fall_silent(struct shed_health *h, uint64_t now_ms, uint64_t random)
{
    bool is_first = h->failures == 0;
    uint64_t pause_ms = count_failure(h, SILENCE_WEIGHT, random);

    move_to(h, SHED_HEALTH_SILENT, is_first ? 0 : pause_ms, now_ms);
}

static void go_unanswered(struct shed_health *h,
                          const struct shed_health_try *try, uint64_t since_ms,
                          uint64_t now_ms, uint64_t random)
{
    if (h->state != SHED_HEALTH_SILENT && !is_silent(h, since_ms, now_ms))
        begin_pause(h, try, SILENCE_WEIGHT, now_ms, random);
    else if (h->state != SHED_HEALTH_SILENT || try->round == h->round)
        fall_silent(h, now_ms, random);
}

/* One that was cut short tells nothing about the server. But if no try gets an
 * answer for a whole timeout, none might ever get one. */
static void be_cut_short(struct shed_health *h,
                         const struct shed_health_try *try, uint64_t now_ms,
                         uint64_t random)
{
    uint64_t since_ms = h->unanswered_ms;

    if (since_ms <= h->heard_ms) {
        h->unanswered_ms = now_ms;
    } else if (now_ms - since_ms >= h->connect_timeout_ms) {
        h->unanswered_ms = 0;
        go_unanswered(h, try, since_ms, now_ms, random);
    }
}

/* The next server is looked for at once; if this happens repeatedly within a
 * short time, after a pause that grows. */
static void leave(struct shed_health *h, uint64_t now_ms, uint64_t random)
{
    uint64_t pause_ms = 0;

    if (now_ms - h->left_ms > 2 * SHED_PAUSE_MAX_MS)
        h->left_count = 0;
    if (h->left_count > 0)
        pause_ms = shed_backoff_equal_ms(h->left_count - 1, SHED_PAUSE_MIN_MS,
                                         SHED_PAUSE_MAX_MS, random);
    h->left_count++;
    h->left_ms = h->heard_ms = now_ms;
    h->term++;
    h->failures = 0;
    move_to(h, pause_ms > 0 ? SHED_HEALTH_PAUSED : SHED_HEALTH_UP, pause_ms,
            now_ms);
}

static void hear(struct shed_health *h, uint64_t now_ms)
{
    h->heard_ms = now_ms;
    h->failures = 0;
    if (h->state == SHED_HEALTH_SILENT)
        move_to(h, SHED_HEALTH_UP, 0, now_ms);
}

/* If others are answered, the connection that was missed is dead by itself. */
static void miss(struct shed_health *h, uint64_t since_ms, uint64_t now_ms,
                 uint64_t random)
{
    if (h->state != SHED_HEALTH_SILENT && is_silent(h, since_ms, now_ms))
        fall_silent(h, now_ms, random);
}

void shed_health_tell(struct shed_health *h, const struct shed_health_event *e,
                      uint64_t now_ms, uint64_t random)
{
    if (e->type < SHED_HEALTH_HEARD && e->try.term != h->term)
        return;
    switch (e->type) {
    case SHED_HEALTH_REACHED:
        h->heard_ms = now_ms;
        move_to(h, SHED_HEALTH_UP, 0, now_ms);
        break;
    case SHED_HEALTH_REFUSED:
        h->heard_ms = now_ms;
        begin_pause(h, &e->try, 1, now_ms, random);
        break;
    case SHED_HEALTH_UNANSWERED:
        go_unanswered(h, &e->try, e->since_ms, now_ms, random);
        break;
    case SHED_HEALTH_CUT_SHORT:
        be_cut_short(h, &e->try, now_ms, random);
        break;
    case SHED_HEALTH_NO_PRIMARY:
        leave(h, now_ms, random);
        break;
    case SHED_HEALTH_HEARD:
        hear(h, now_ms);
        break;
    case SHED_HEALTH_MISSED:
        miss(h, e->since_ms, now_ms, random);
        break;
    case SHED_HEALTH_HURRY:
        h->retry_ms = now_ms;
        break;
    }
}

uint64_t shed_health_pause_left_ms(const struct shed_health *h, uint64_t now_ms)
{
    return shed_left_ms(h->retry_ms, now_ms);
}

/* ----------------------------------------------------------- guarded calls */

enum shed_health_state shed_health_pass(struct shed_health *h, uint64_t now_ms,
                                        struct shed_health_pass *pass)
{
    bool is_probe = h->refusals > 0;

    if (!shed_breaker_has_pass(&h->breaker, now_ms))
        return SHED_HEALTH_OPEN;
    if (h->state == SHED_HEALTH_SILENT)
        return SHED_HEALTH_SILENT;
    if (is_probe && now_ms < h->work_ms)
        return SHED_HEALTH_PAUSED;
    (void)shed_breaker_pass(&h->breaker, now_ms);
    if (is_probe)
        h->work_ms = now_ms + SHED_PAUSE_MAX_MS;
    *pass = (struct shed_health_pass){h->breaker.term, is_probe};
    return SHED_HEALTH_UP;
}

/* A call that its caller has given up has failed only if its answer would have
 * been too late in any case. Else how long it has waited is all that it tells.
 */
enum shed_health_told shed_health_judge(const struct shed_health *h,
                                        const struct shed_health_end *end)
{
    uint64_t took_ms = end->ended_ms - end->began_ms;
    uint64_t slow_ms = h->breaker.rule.slow_ms;

    if (end->why == NULL)
        return end->refusal != NULL || (slow_ms > 0 && took_ms > slow_ms)
                   ? SHED_HEALTH_TOLD_FAILURE
                   : SHED_HEALTH_TOLD_SUCCESS;
    switch (end->why->code) {
    case SHED_EDENIED: /* an answer, which nobody should miss */
        return end->was_tried ? SHED_HEALTH_TOLD_SUCCESS
                              : SHED_HEALTH_TOLD_NOTHING;
    case SHED_EREDIS:
    case SHED_ETIMEDOUT:
        return end->was_tried || took_ms >= h->breaker.patience_ms
                   ? SHED_HEALTH_TOLD_FAILURE
                   : SHED_HEALTH_TOLD_NOTHING;
    default:
        return SHED_HEALTH_TOLD_NOTHING;
    }
}

uint64_t shed_health_waited_ms(const struct shed_health_end *end)
{
    bool is_unanswered = end->why != NULL && (end->why->code == SHED_EREDIS ||
                                              end->why->code == SHED_ETIMEDOUT);

    return is_unanswered ? end->ended_ms - end->began_ms : 0;
}

/* A call that cannot be carried out now begins a pause, unless one has begun
 * since it was sent; any other answer ends it. */
static void learn_work(struct shed_health *h,
                       const struct shed_health_pass *pass,
                       const struct shed_health_end *end, uint64_t now_ms,
                       uint64_t random)
{
    if (end->why == NULL && end->refusal == NULL)
        h->refusals = 0;
    else if (end->refusal != NULL && (h->refusals == 0 || pass->is_probe))
        h->work_ms =
            now_ms + shed_backoff_equal_ms(h->refusals++, SHED_PAUSE_MIN_MS,
                                           SHED_PAUSE_MAX_MS, random);
}

bool shed_health_learn(struct shed_health *h,
                       const struct shed_health_pass *pass,
                       const struct shed_health_end *end, uint64_t now_ms,
                       uint64_t random)
{
    enum shed_health_told told = shed_health_judge(h, end);
    const struct shed_breaker_sample sample = {
        .term = pass->term,
        .passes = 1,
        .has_failed = told == SHED_HEALTH_TOLD_FAILURE};

    learn_work(h, pass, end, now_ms, random);
    if (pass->term != h->breaker.term)
        return false;
    if (told == SHED_HEALTH_TOLD_NOTHING)
        return shed_breaker_give_up(&h->breaker, shed_health_waited_ms(end),
                                    now_ms, random);
    return shed_breaker_add(&h->breaker, &sample, now_ms, random);
}

bool shed_health_is_clear(const struct shed_health *h)
{
    return h->state != SHED_HEALTH_SILENT && h->refusals == 0 &&
           h->breaker.state == SHED_BREAKER_CLOSED;
}
