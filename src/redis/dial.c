/* Connecting. Its one invariant: a wire that is handed out has been set up, and
 * nothing has come on it that was not asked for. */
#include "redis/dial.h"

#include <poll.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "redis/setup.h"

/* A server that says nothing costs each call a whole timeout, one that refuses
 * a connection costs nothing: so the former is left alone for longer. */
#define SILENCE_WEIGHT 5

/* What a failure says about the server. */
struct dialled {
    bool is_silent;     /* nothing came from it until the deadline */
    bool is_no_primary; /* by its own account */
};

/* -------------------------------------------------------------- connecting */

int shed_dial_wait(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    /* poll counts from now; in slices, so that no length overflows its int */
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

static enum shed_code hear_all(struct shed_wire *w, struct shed_setup *setup,
                               struct shed_error *err)
{
    struct shed_reply *reply = NULL;
    enum shed_trouble unused;
    enum shed_code code = SHED_OK;

    while (code == SHED_OK && !shed_setup_is_done(setup)) {
        enum shed_wire_io io = shed_wire_next(w, &reply, err);
        if (io == SHED_WIRE_AGAIN)
            return SHED_OK;
        if (io == SHED_WIRE_LOST)
            return SHED_EREDIS;
        code = shed_setup_hear(setup, reply, &unused, err);
        shed_reply_free(reply);
    }
    return code;
}

/* Send and receive once, waiting for the socket. */
static enum shed_code exchange(struct shed_wire *w, struct shed_setup *setup,
                               uint64_t deadline_ms, bool *is_silent,
                               struct shed_error *err)
{
    enum shed_wire_io sent = shed_wire_flush(w, err);
    short events = sent == SHED_WIRE_AGAIN ? POLLIN | POLLOUT : POLLIN;

    if (sent == SHED_WIRE_LOST)
        return SHED_EREDIS;
    *is_silent = shed_dial_wait(w->fd, events, deadline_ms) == 0;
    if (*is_silent)
        return shed_fail(err, SHED_EREDIS,
                         "Redis %s: no answer to %s within the connect timeout",
                         setup->address->text, shed_setup_awaited(setup));
    if (shed_wire_fill(w, err) == SHED_WIRE_LOST)
        return SHED_EREDIS;
    return hear_all(w, setup, err);
}

static enum shed_code set_up(struct shed_wire *w, struct shed_address *address,
                             uint64_t deadline_ms, struct dialled *dialled,
                             struct shed_error *err)
{
    struct shed_setup setup;
    enum shed_code code;

    shed_setup_begin(&setup, address);
    code = shed_setup_say(&setup, &w->out, err);
    while (code == SHED_OK && !shed_setup_is_done(&setup))
        code = exchange(w, &setup, deadline_ms, &dialled->is_silent, err);
    dialled->is_no_primary = setup.is_no_primary;
    if (code == SHED_OK && !shed_wire_is_quiet(w))
        code =
            shed_fail(err, SHED_EREDIS,
                      "Redis %s: a reply that nobody asked for", address->text);
    return code;
}

static enum shed_code dial(struct shed_wire *w, struct shed_address *address,
                           uint64_t deadline_ms, struct dialled *dialled,
                           struct shed_error *err)
{
    enum shed_code code = shed_wire_open(w, address, err);

    *dialled = (struct dialled){0};
    if (code != SHED_OK)
        return code;
    dialled->is_silent = shed_dial_wait(w->fd, POLLOUT, deadline_ms) == 0;
    if (dialled->is_silent)
        code = shed_fail(err, SHED_EREDIS,
                         "Redis %s: no connection within the connect timeout",
                         address->text);
    else
        code = shed_wire_connected(w, address, err);
    if (code == SHED_OK)
        code = set_up(w, address, deadline_ms, dialled, err);
    if (code != SHED_OK)
        shed_wire_close(w);
    return code;
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

void shed_dialler_hear(struct shed_dialler *d)
{
    if (atomic_load_explicit(&d->silent_since_ms, memory_order_relaxed) > 0)
        atomic_store(&d->silent_since_ms, 0);
    if (atomic_load_explicit(&d->failures, memory_order_relaxed) > 0)
        atomic_store(&d->failures, 0);
}

void shed_dialler_hear_nothing(struct shed_dialler *d,
                               const struct shed_error *failure)
{
    note_failure(d, SILENCE_WEIGHT, failure);
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

/* A try that its caller's deadline cut short says nothing about the server; but
 * where none gets an answer for a whole timeout, the server is silent. */
static void note_silence(struct shed_dialler *d,
                         const struct shed_error *failure)
{
    uint64_t now_ms = shed_now_ms(), since_ms = 0;

    if (atomic_compare_exchange_strong(&d->silent_since_ms, &since_ms,
                                       now_ms) ||
        now_ms - since_ms < d->connect_timeout_ms)
        return;
    atomic_store(&d->silent_since_ms, 0);
    note_failure(d, SILENCE_WEIGHT, failure);
}

enum shed_code shed_dial(struct shed_dialler *d, struct shed_wire *w,
                         unsigned *term, uint64_t deadline_ms,
                         struct shed_error *err)
{
    uint64_t limit_ms = shed_deadline_ms(shed_now_ms(), d->connect_timeout_ms);
    uint64_t until_ms = deadline_ms < limit_ms ? deadline_ms : limit_ms;
    struct dialled dialled;
    enum shed_code code = check_pause(d, err);

    if (code != SHED_OK)
        return code;
    shed_address_await(d->address, until_ms);
    *term = shed_address_term(d->address);
    code = dial(w, d->address, until_ms, &dialled, err);
    if (code == SHED_OK)
        code = shed_wire_block(w, d->command_timeout_ms, err);
    if (dialled.is_silent && deadline_ms < limit_ms)
        note_silence(d, err);
    else if (code != SHED_OK && code != SHED_ENOMEM)
        note_failure(d, dialled.is_silent ? SILENCE_WEIGHT : 1, err);
    if (dialled.is_no_primary)
        shed_dialler_leave(d, *term);
    if (code != SHED_OK)
        shed_wire_close(w);
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
                              .command_timeout_ms = options->command_timeout_ms,
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
