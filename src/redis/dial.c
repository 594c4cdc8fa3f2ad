/* Connecting. Its one invariant: a wire that is handed out has been set up, and
 * nothing has come on it that was not asked for. */
#include "redis/dial.h"

#include <poll.h>

#include "clock.h"
#include "error.h"
#include "redis/setup.h"

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

static int hear_all(struct shed_wire *w, struct shed_setup *setup,
                    struct shed_error *err)
{
    struct shed_reply *reply = NULL;
    enum shed_trouble unused;
    int code = SHED_OK;

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
static int exchange(struct shed_wire *w, struct shed_setup *setup,
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

static int set_up(struct shed_wire *w, const struct shed_address *address,
                  uint64_t deadline_ms, bool *is_silent, struct shed_error *err)
{
    struct shed_setup setup;
    int code;

    shed_setup_begin(&setup, address);
    code = shed_setup_say(&setup, &w->out, err);
    while (code == SHED_OK && !shed_setup_is_done(&setup))
        code = exchange(w, &setup, deadline_ms, is_silent, err);
    if (code == SHED_OK && !shed_wire_is_quiet(w))
        code =
            shed_fail(err, SHED_EREDIS,
                      "Redis %s: a reply that nobody asked for", address->text);
    return code;
}

int shed_dial(struct shed_wire *w, struct shed_address *address,
              uint64_t deadline_ms, bool *is_silent, struct shed_error *err)
{
    int code = shed_wire_open(w, address, err);

    *is_silent = false;
    if (code != SHED_OK)
        return code;
    *is_silent = shed_dial_wait(w->fd, POLLOUT, deadline_ms) == 0;
    if (*is_silent)
        code = shed_fail(err, SHED_EREDIS,
                         "Redis %s: no connection within the connect timeout",
                         address->text);
    else
        code = shed_wire_connected(w, address, err);
    if (code == SHED_OK)
        code = set_up(w, address, deadline_ms, is_silent, err);
    if (code != SHED_OK)
        shed_wire_close(w);
    return code;
}
