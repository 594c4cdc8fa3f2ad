/*
 * The state machine of a flight. Pure. Its invariants: at most one acquire,
 * load or publish is under way; a state that waits has a timer running or a
 * reply outstanding; nobody is answered with something older than its call.
 *
 * Design notes
 *
 * A flight is what Go's singleflight is for one process (one call per key,
 * shared by all who ask meanwhile), with a lease in Redis that does the same
 * for all processes. The lease is that of R. Nishtala et al., "Scaling Memcache
 * at Facebook", NSDI 2013, section 3.2.1: a token given to one client at a
 * miss, ended by an invalidation, without which nothing is stored. Two things
 * differ: here the lease names its holder, so that a dead one is replaced at
 * once, and a load outlives its lease, because what may be stored is decided by
 * the data version and not by who holds the lease.
 *
 * Singleflight gives every caller the answer of the call that it joined. Here a
 * caller may not be given what was read before it asked, or its own write could
 * be missing. So callers have numbers and each acquire, load and publish has a
 * cutoff, the newest caller when it began. An answer goes to the callers up to
 * a cutoff; those after it are still there when restart() looks, and go round
 * again, all of them together. A failure is not a value, so it may be given to
 * everybody.
 *
 * Troubles of Redis are of four kinds (base/trouble.h). A passing one is met by
 * sending the same again, a few times: the scripts allow it, because they
 * recognise the flight's own lease. When Redis is down the flight loads without
 * a lease, if the cache's options say so. What is refused ends the flight.
 *
 * A lease names the epoch of the session in which it was taken or renewed. What
 * a flight that lost Redis has left behind, because it has ended meanwhile or
 * never heard that it was granted, is over soon after that epoch. So a flight
 * that still loads renews its lease when another epoch begins.
 *
 * A refresh is a load whose lease is in a key of its own: to the machine it is
 * the same. One that works in the background has none; it is over when the
 * value has been replaced, by whomever. While another process refreshes it
 * waits as a caller would, to take over if that one dies, and keeps its own
 * process from asking Redis again at each hit. For that reason one that has
 * failed stays for a pause.
 *
 * Nothing here waits for ever: an acquire, publish or fail ends with a reply or
 * with the connection's timeout; a wait has a timer as well as a push; a load
 * has its deadline, after which the flight is ABANDONED: everybody has been
 * answered, newcomers start another flight, and only the source's end is still
 * awaited.
 */
#include "flight/flight.h"

#include <assert.h>

#include "base/backoff.h"

/* With pushes it polls only to find dead holders and expiries, which nobody
 * announces in time: about SHED_LEASE_GRACE_MS is soon enough. */
#define PUSHED_POLL_MIN_MS 100
#define PUSHED_POLL_MAX_MS 150
/* A lost connection is back within a few tries, or it counts as down. */
#define TROUBLE_MIN_MS 10
#define TROUBLE_MAX_MS 200
#define TROUBLES_MAX 3
/* Each try replaces the corrupt bytes that were seen; a writer that puts them
 * back faster than that is broken. */
#define CORRUPT_MAX 3
/* Three renewals fit in a lease, so that two may fail. */
#define RENEWALS_PER_LEASE 3

void shed_flight_init(struct shed_flight *flight,
                      const struct shed_flight_policy *policy,
                      struct shed_pace *pace)
{
    *flight = (struct shed_flight){
        .policy = policy, .pace = pace, .state = SHED_FLIGHT_OVER};
}

static void send(struct shed_flight *f, enum shed_flight_send what)
{
    assert(f->act.send == SHED_SEND_NOTHING);
    f->act.send = what;
}

static void set_timer(struct shed_flight *f, uint64_t delay_ms)
{
    assert(!f->act.set_timer);
    f->act.set_timer = true;
    f->act.timer_ms = delay_ms;
}

static void answer(struct shed_flight *f, enum shed_flight_answer what,
                   uint64_t upto)
{
    assert(f->act.answer == SHED_ANSWER_NOTHING);
    f->act.answer = what;
    f->act.answer_upto = upto;
    f->act.has_waited = what == SHED_ANSWER_ENTRY && f->had_holder;
    /* There is a value in Redis now: later callers read it there. */
    if (what == SHED_ANSWER_ENTRY || what == SHED_ANSWER_LOADED)
        f->act.detach = true;
    if (f->newest <= upto)
        f->newest = 0;
}

/* The script takes up to six commands, what may go first is one. */
static void acquire(struct shed_flight *f, enum shed_flight_first first)
{
    f->state = SHED_FLIGHT_ACQUIRING;
    f->is_leased = false;
    f->is_pushed = false;
    f->first = SHED_FIRST_NOTHING;
    f->cutoff = f->newest;
    f->act.first = first;
    send(f, SHED_SEND_ACQUIRE);
}

/* Nobody waits. */
static void end(struct shed_flight *f)
{
    f->state = SHED_FLIGHT_OVER;
    if (!f->is_background || !f->has_failed)
        return;
    f->state = SHED_FLIGHT_PAUSING;
    set_timer(f, f->policy->pause_ms);
}

/* Callers that are not answered yet go round again; without any, it is over. */
static void restart(struct shed_flight *f)
{
    f->waits = 0;
    f->had_holder = false;
    f->troubles = 0;
    f->corrupt = 0;
    if (f->newest > 0)
        acquire(f, f->act.detach ? SHED_FIRST_GET : f->first);
    else
        end(f);
}

static void answer_failure(struct shed_flight *f)
{
    f->has_failed = true;
    answer(f, SHED_ANSWER_FAILURE, f->newest);
}

static void fail_all(struct shed_flight *f)
{
    answer_failure(f);
    end(f);
}

/* The value that is refreshed is kept by a renewal at its end. */
static void set_load_timer(struct shed_flight *f)
{
    uint64_t left = f->load_deadline_ms - f->now_ms;
    uint64_t renewal = f->policy->lease_ms / RENEWALS_PER_LEASE;

    assert(f->state == SHED_FLIGHT_LOADING && f->now_ms <= f->load_deadline_ms);
    if (renewal == 0)
        renewal = 1;
    if (f->value_ends_ms > f->now_ms && f->value_ends_ms - f->now_ms < renewal)
        renewal = f->value_ends_ms - f->now_ms;
    set_timer(f, f->is_held && renewal < left ? renewal : left);
}

/* value_ends_ms: of a refresh, else 0. */
static void load(struct shed_flight *f, bool is_leased, uint64_t value_ends_ms)
{
    uint64_t timeout = f->policy->load_timeout_ms;

    f->state = SHED_FLIGHT_LOADING;
    f->is_leased = is_leased;
    f->is_held = is_leased;
    f->load_cutoff = f->newest;
    f->leased_ms = f->now_ms;
    f->value_ends_ms = value_ends_ms;
    f->load_deadline_ms =
        timeout > UINT64_MAX - f->now_ms ? UINT64_MAX : f->now_ms + timeout;
    send(f, SHED_SEND_LOAD);
    set_load_timer(f);
}

/* Whether the same is to be sent again, when the timer runs out. */
static bool tries_again(struct shed_flight *f, enum shed_trouble trouble)
{
    if (trouble != SHED_TROUBLE_PASSING || f->troubles >= TROUBLES_MAX)
        return false;
    set_timer(f, shed_backoff_ms(f->troubles++, TROUBLE_MIN_MS, TROUBLE_MAX_MS,
                                 f->random));
    return true;
}

static void send_ending(struct shed_flight *f)
{
    if (f->ending == SHED_SEND_PUBLISH)
        f->cutoff = f->is_outdated ? f->load_cutoff : f->newest;
    send(f, f->ending);
}

static void end_lease(struct shed_flight *f, enum shed_flight_send how)
{
    if (!f->is_leased) {
        restart(f);
        return;
    }
    f->state = SHED_FLIGHT_ENDING;
    f->troubles = 0;
    f->ending = how;
    send_ending(f);
}

/* Without pushes a waiter learns only by looking. */
static uint64_t look_ms(const struct shed_flight *f)
{
    const struct shed_pace_wait wait = {
        f->now_ms - f->leased_ms, f->now_ms - f->wait_began_ms, f->waits + 1};

    return shed_pace_look_ms(f->pace, &wait, f->random);
}

static void wait_for_holder(struct shed_flight *f,
                            const struct shed_flight_event *e)
{
    uint64_t leased_ms = e->age_ms < f->now_ms ? f->now_ms - e->age_ms : 0;
    uint64_t delay;

    f->state = SHED_FLIGHT_WAITING;
    if (f->waits == 0 || !e->may_be_older || leased_ms < f->leased_ms)
        f->leased_ms = leased_ms;
    if (f->waits == 0)
        f->wait_began_ms = f->now_ms;
    if (f->has_pushes || f->is_background)
        delay = shed_backoff_equal_ms(f->waits, PUSHED_POLL_MIN_MS,
                                      PUSHED_POLL_MAX_MS, f->random);
    else
        delay = look_ms(f);
    f->waits++;
    /* one more, because it runs out after its last millisecond */
    set_timer(f, e->wait_ms < delay ? e->wait_ms + 1 : delay);
}

/* What a waiter has found was loaded under the lease that it saw, and written
 * so long ago, which can be well before this look. */
static void note_awaited_load(struct shed_flight *f,
                              const struct shed_flight_event *e)
{
    uint64_t since_lease = f->now_ms - f->leased_ms;

    if (f->waits > 0 && e->age_ms <= since_lease)
        shed_pace_note(f->pace, since_lease - e->age_ms);
}

/* A Redis that only refuses writes still has the row that is refreshed. */
static bool may_load_without_redis(const struct shed_flight *f,
                                   enum shed_trouble trouble)
{
    if (f->newest > 0)
        return f->policy->load_when_down;
    return f->is_background && f->policy->refresh_when_down &&
           trouble != SHED_TROUBLE_NO_WRITE;
}

/* With Redis down: from the source within its bounds, or not at all. */
static void on_acquire_trouble(struct shed_flight *f, enum shed_trouble trouble)
{
    if (tries_again(f, trouble))
        f->state = SHED_FLIGHT_WAITING;
    else if (trouble == SHED_TROUBLE_DENIED ||
             !may_load_without_redis(f, trouble))
        fail_all(f);
    else
        load(f, false, 0);
}

static void on_acquiring(struct shed_flight *f,
                         const struct shed_flight_event *e)
{
    switch (e->type) {
    case SHED_EV_PUSH:
    case SHED_EV_EPOCH:
        f->is_pushed = true;
        break;
    case SHED_EV_LEAD:
        /* one more, because it runs out after its last millisecond */
        load(f, true, e->is_refresh ? f->now_ms + e->wait_ms + 1 : 0);
        break;
    case SHED_EV_HIT:
        answer(f, SHED_ANSWER_ENTRY, f->cutoff);
        note_awaited_load(f, e);
        restart(f);
        break;
    case SHED_EV_CORRUPT:
        if (f->corrupt++ < CORRUPT_MAX)
            acquire(f, SHED_FIRST_NOTHING);
        else
            fail_all(f);
        break;
    case SHED_EV_MARKER:
        fail_all(f);
        break;
    case SHED_EV_WAIT:
        f->troubles = 0;
        f->corrupt = 0;
        f->had_holder = true;
        /* a push that overtook this reply will not come again */
        if (f->is_background && !e->is_refresh)
            end(f); /* the value is gone, and another process loads it */
        else if (f->is_pushed && (f->newest > 0 || f->is_background))
            acquire(f, SHED_FIRST_GET);
        else
            wait_for_holder(f, e);
        break;
    case SHED_EV_TROUBLE:
        on_acquire_trouble(f, e->trouble);
        break;
    default:
        break;
    }
}

static void on_waiting(struct shed_flight *f, const struct shed_flight_event *e)
{
    if (e->type != SHED_EV_TIMER && e->type != SHED_EV_PUSH &&
        e->type != SHED_EV_EPOCH)
        return;
    if (f->newest > 0 || f->is_background)
        acquire(f,
                e->type == SHED_EV_PUSH ? SHED_FIRST_GET : SHED_FIRST_NOTHING);
    else
        f->state = SHED_FLIGHT_OVER;
}

static void renew(struct shed_flight *f)
{
    if (f->is_held)
        send(f, SHED_SEND_RENEW);
}

static void on_load_timer(struct shed_flight *f)
{
    if (f->now_ms >= f->load_deadline_ms) {
        /* also callers that join until it is detached: nothing else would
           answer them */
        answer(f, SHED_ANSWER_FAILURE, UINT64_MAX);
        f->act.detach = true;
        f->state = SHED_FLIGHT_ABANDONED;
        if (f->is_leased)
            f->act.send = SHED_SEND_FAIL; /* it is not sent again */
        return;
    }
    renew(f);
    set_load_timer(f);
}

/* What was loaded is not in Redis now. An unmodified row was only there. */
static void answer_unpublished(struct shed_flight *f)
{
    if (!f->is_unmodified)
        answer(f, SHED_ANSWER_UNPUBLISHED, f->load_cutoff);
}

static void on_loading(struct shed_flight *f, const struct shed_flight_event *e)
{
    switch (e->type) {
    case SHED_EV_TIMER:
        on_load_timer(f);
        break;
    case SHED_EV_EPOCH:
        renew(f);
        break;
    case SHED_EV_LEASE_LOST:
        /* nothing is left to renew; the data version decides whether what is
           being loaded may be published */
        f->is_held = false;
        break;
    case SHED_EV_LOADED:
        f->is_unmodified = e->is_unmodified;
        assert(f->is_leased || !f->is_unmodified);
        if (!f->is_leased)
            answer(f, SHED_ANSWER_UNPUBLISHED, f->load_cutoff);
        end_lease(f, SHED_SEND_PUBLISH);
        break;
    case SHED_EV_LOAD_FAILED:
        answer_failure(f);
        end_lease(f, SHED_SEND_FAIL);
        break;
    case SHED_EV_LOAD_REFUSED:
        /* without a marker: another process may have room */
        answer_failure(f);
        end_lease(f, SHED_SEND_RELEASE);
        break;
    default:
        break;
    }
}

/* A lease that is not ended holds up all others until it runs out. */
static void on_ending_trouble(struct shed_flight *f, enum shed_trouble trouble)
{
    if (tries_again(f, trouble))
        return;
    if (f->ending == SHED_SEND_PUBLISH) {
        f->has_failed = true;
        if (f->is_unmodified)
            answer_failure(f);
        answer_unpublished(f);
    }
    /* a Redis without memory still deletes */
    if (trouble == SHED_TROUBLE_NO_WRITE && f->ending != SHED_SEND_RELEASE) {
        end_lease(f, SHED_SEND_RELEASE);
        return;
    }
    f->act.leaves_lease = true;
    restart(f);
}

static void on_ending(struct shed_flight *f, const struct shed_flight_event *e)
{
    switch (e->type) {
    case SHED_EV_TIMER:
        if (f->troubles > 0) /* else it is that of the load */
            send_ending(f);
        break;
    case SHED_EV_TROUBLE:
        on_ending_trouble(f, e->trouble);
        break;
    case SHED_EV_STORED:
        answer(f, SHED_ANSWER_LOADED, f->cutoff);
        shed_pace_note(f->pace, f->now_ms - f->leased_ms);
        restart(f);
        break;
    case SHED_EV_SUPERSEDED:
        answer(f, SHED_ANSWER_ENTRY, f->cutoff);
        restart(f);
        break;
    case SHED_EV_INVALIDATED:
        answer_unpublished(f);
        restart(f);
        break;
    case SHED_EV_ENDED:
        restart(f);
        break;
    default:
        break;
    }
}

struct shed_flight_act shed_flight_step(struct shed_flight *f,
                                        const struct shed_flight_event *e,
                                        uint64_t now_ms, uint64_t random)
{
    f->act = (struct shed_flight_act){0};
    f->now_ms = now_ms;
    f->random = random;
    switch (f->state) {
    case SHED_FLIGHT_ACQUIRING:
        on_acquiring(f, e);
        break;
    case SHED_FLIGHT_WAITING:
        on_waiting(f, e);
        break;
    case SHED_FLIGHT_PAUSING:
        if (e->type == SHED_EV_TIMER)
            f->state = SHED_FLIGHT_OVER;
        break;
    case SHED_FLIGHT_LOADING:
        on_loading(f, e);
        break;
    case SHED_FLIGHT_ENDING:
        on_ending(f, e);
        break;
    case SHED_FLIGHT_ABANDONED:
        if (e->type == SHED_EV_LOADED || e->type == SHED_EV_LOAD_FAILED ||
            e->type == SHED_EV_LOAD_REFUSED)
            f->state = SHED_FLIGHT_OVER;
        f->act.leaves_lease = e->type == SHED_EV_TROUBLE;
        break;
    case SHED_FLIGHT_OVER:
        if (e->type == SHED_EV_START && f->is_background)
            acquire(f, SHED_FIRST_NOTHING);
        else if (e->type == SHED_EV_START)
            restart(f);
        break;
    }
    return f->act;
}
