/* Connecting in the caller's thread, and the pause after a failure. Its one
 * invariant: each failure is noted once, for all connections together. */
#include "redis/dial.h"

#include <assert.h>
#include <poll.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

/* -------------------------------------------------------------- connecting */

int shed_dial_wait(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    /* in slices, because poll's timeout is an int */
    const uint64_t slice_ms = 60000;

    for (;;) {
        uint64_t left = shed_left_ms(deadline_ms, shed_now_ms());
        int n = poll(&pfd, 1, (int)(left < slice_ms ? left : slice_ms));
        if (n > 0)
            return pfd.revents;
        if (left == 0)
            return 0;
    }
}

/* Drive the connection until it is set up or has failed; it fails at
 * until_ms. */
static void drive(struct shed_conn *c, uint64_t until_ms)
{
    shed_conn_start(c, shed_address_term(c->address), shed_now_ms());
    while (c->state == SHED_CONN_CONNECTING ||
           c->state == SHED_CONN_SETTING_UP) {
        int events = shed_dial_wait(c->wire.fd, shed_conn_want(c), until_ms);
        if (events != 0)
            shed_conn_ready(c, events, shed_now_ms());
        else
            shed_conn_tick(c, shed_conn_due_ms(c));
    }
}

/* ------------------------------------------------------- whether to connect */

static enum shed_code check_pause(struct shed_dialler *d,
                                  struct shed_error *err)
{
    uint64_t now_ms = shed_now_ms();
    uint64_t pause_ms = shed_address_pause_ms(d->address);
    enum shed_code code = SHED_OK;

    if (pause_ms > 0)
        return shed_fail(err, SHED_EREDIS,
                         "Redis %s was not a primary (next try in %llu ms)",
                         d->address->text, (unsigned long long)pause_ms);
    pthread_mutex_lock(&d->mu);
    if (now_ms < d->retry_ms)
        code = shed_fail(err, d->last.code, "%s (next try in %llu ms)",
                         d->last.reason,
                         (unsigned long long)(d->retry_ms - now_ms));
    pthread_mutex_unlock(&d->mu);
    return code;
}

static void note_failure(struct shed_dialler *d, unsigned weight,
                         const struct shed_error *failure)
{
    pthread_mutex_lock(&d->mu);
    d->last = *failure;
    atomic_fetch_add(&d->failures, weight);
    d->retry_ms =
        shed_now_ms() +
        shed_backoff_equal_ms(atomic_load(&d->failures), d->reconnect_min_ms,
                              d->reconnect_max_ms, shed_random_jitter());
    pthread_mutex_unlock(&d->mu);
}

void shed_dialler_hear(struct shed_dialler *d, uint64_t now_ms)
{
    shed_address_hear(d->address, now_ms);
    if (atomic_load_explicit(&d->failures, memory_order_relaxed) > 0)
        atomic_store(&d->failures, 0);
}

void shed_dialler_hear_nothing(struct shed_dialler *d,
                               const struct shed_conn_failure *failure)
{
    note_failure(d, SHED_CONN_SILENCE_WEIGHT, &failure->error);
    shed_address_hear_nothing(d->address, failure->since_ms, &failure->error);
}

void shed_dialler_go_on(struct shed_dialler *d)
{
    pthread_mutex_lock(&d->mu);
    d->retry_ms = 0;
    pthread_mutex_unlock(&d->mu);
}

void shed_dialler_leave(struct shed_dialler *d, unsigned term)
{
    shed_address_leave(d->address, term, d->reconnect_min_ms,
                       d->reconnect_max_ms);
}

/* A try that the caller's deadline has cut short tells nothing about the
 * server. But if no try gets an answer for a whole timeout, the server is
 * silent. */
static void note_silence(struct shed_dialler *d,
                         const struct shed_error *failure)
{
    uint64_t now_ms = shed_now_ms();
    uint64_t since_ms = atomic_load(&d->silent_since_ms);

    if (since_ms <= atomic_load(&d->address->heard_ms)) {
        atomic_store(&d->silent_since_ms, now_ms);
    } else if (now_ms - since_ms >= d->connect_timeout_ms) {
        atomic_store(&d->silent_since_ms, 0);
        note_failure(d, SHED_CONN_SILENCE_WEIGHT, failure);
        shed_address_hear_nothing(d->address, since_ms, failure);
    }
}

/* Note a failure. is_cut_short: nothing had come when the caller's deadline
 * did, which was before the connect timeout. */
static void note(struct shed_dialler *d, const struct shed_conn_failure *f,
                 bool is_cut_short)
{
    if (is_cut_short)
        note_silence(d, &f->error);
    else if (f->is_silent)
        shed_dialler_hear_nothing(d, f);
    else if (f->error.code != SHED_ENOMEM)
        note_failure(d, 1, &f->error);
}

enum shed_code shed_dial(struct shed_dialler *d, struct shed_conn *c,
                         uint64_t deadline_ms, bool *was_tried,
                         struct shed_error *err)
{
    uint64_t limit_ms = shed_deadline_ms(shed_now_ms(), c->connect_timeout_ms);
    uint64_t until_ms = deadline_ms < limit_ms ? deadline_ms : limit_ms;
    enum shed_code code = check_pause(d, err);
    struct shed_error why;
    bool is_cut_short;

    assert(c->state == SHED_CONN_CLOSED);
    *was_tried = code == SHED_OK;
    if (code != SHED_OK)
        return code;
    shed_address_await(d->address, until_ms);
    drive(c, until_ms);
    if (c->state == SHED_CONN_OPEN &&
        shed_wire_block(&c->wire, c->command_timeout_ms, &why) != SHED_OK)
        shed_conn_fail(c, SHED_TROUBLE_DOWN, &why);
    if (c->state == SHED_CONN_OPEN) {
        if (d->address->on_move != NULL)
            d->address->on_move(d->address->on_move_arg, true);
        return SHED_OK;
    }
    is_cut_short = c->failure.is_silent && deadline_ms < limit_ms;
    *was_tried = !is_cut_short;
    note(d, &c->failure, is_cut_short);
    if (c->failure.is_no_primary)
        shed_dialler_leave(d, c->term);
    if (is_cut_short)
        code = shed_fail(err, SHED_EREDIS,
                         "Redis %s: no connection before the deadline of the "
                         "call that tried",
                         d->address->text);
    else
        code = shed_fail(err, c->failure.error.code, "%s",
                         c->failure.error.reason);
    shed_conn_close(c);
    return code;
}

/* ------------------------------------------------------------ begin and end */

enum shed_code shed_dialler_init(struct shed_dialler *d,
                                 struct shed_address *address,
                                 const struct shed_client_options *options,
                                 struct shed_error *err)
{
    *d =
        (struct shed_dialler){.address = address,
                              .connect_timeout_ms = options->connect_timeout_ms,
                              .reconnect_min_ms = options->reconnect_min_ms,
                              .reconnect_max_ms = options->reconnect_max_ms};
    if (pthread_mutex_init(&d->mu, NULL) != 0)
        return shed_fail_nomem(err, "the Redis links");
    return SHED_OK;
}

void shed_dialler_fini(struct shed_dialler *d)
{
    pthread_mutex_destroy(&d->mu);
}
