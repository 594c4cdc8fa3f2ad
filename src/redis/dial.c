/* Connecting in the caller's thread. Its one invariant: each try that the gate
 * has let through ends by telling it how. */
#include "redis/dial.h"

#include <assert.h>

#include "base/clock.h"
#include "base/error.h"

/* Drive the connection until it is set up or has failed; it fails at
 * until_ms. */
static void drive(struct shed_conn *c, unsigned term, uint64_t until_ms)
{
    shed_conn_start(c, term, shed_now_ms());
    while (c->state == SHED_CONN_CONNECTING || c->state == SHED_CONN_SETTING_UP)
        if (!shed_conn_step(c, until_ms))
            shed_conn_tick(c, shed_conn_due_ms(c));
}

/* is_cut_short: nothing had come when the caller's deadline did, which was
 * before the connect timeout. */
static void tell_failure(struct shed_gate *gate,
                         const struct shed_health_try *try,
                         const struct shed_conn_failure *f, bool is_cut_short)
{
    enum shed_health_event_type type = is_cut_short   ? SHED_HEALTH_CUT_SHORT
                                       : f->is_silent ? SHED_HEALTH_UNANSWERED
                                                      : SHED_HEALTH_REFUSED;

    if (f->error.code != SHED_ENOMEM)
        shed_gate_tell(gate, type, try, f->since_ms, &f->error);
    if (f->is_no_primary)
        shed_gate_tell(gate, SHED_HEALTH_NO_PRIMARY, try, 0, NULL);
}

enum shed_code shed_dial(struct shed_gate *gate, struct shed_conn *c,
                         uint64_t deadline_ms, bool *was_tried,
                         struct shed_error *err)
{
    uint64_t limit_ms = shed_deadline_ms(shed_now_ms(), c->connect_timeout_ms);
    uint64_t until_ms = deadline_ms < limit_ms ? deadline_ms : limit_ms;
    struct shed_health_try try;
    struct shed_error why;
    enum shed_code code;
    bool is_cut_short;

    assert(c->state == SHED_CONN_CLOSED);
    code = shed_gate_connect(gate, SHED_HEALTH_LINK, &try, err);
    *was_tried = code == SHED_OK;
    if (code != SHED_OK)
        return code;
    shed_address_await(c->address, try.term, until_ms);
    drive(c, try.term, until_ms);
    if (c->state == SHED_CONN_OPEN &&
        shed_wire_block(&c->wire, c->command_timeout_ms, &why) != SHED_OK)
        shed_conn_fail(c, SHED_TROUBLE_DOWN, &why);
    if (c->state == SHED_CONN_OPEN) {
        shed_gate_tell(gate, SHED_HEALTH_REACHED, &try, 0, NULL);
        return SHED_OK;
    }
    is_cut_short = c->failure.is_silent && deadline_ms < limit_ms;
    *was_tried = !is_cut_short;
    tell_failure(gate, &try, &c->failure, is_cut_short);
    if (is_cut_short)
        code = shed_fail(err, SHED_EREDIS,
                         "Redis %s: no connection before the deadline of the "
                         "call that tried",
                         c->address->text);
    else
        code = shed_fail(err, c->failure.error.code, "%s",
                         c->failure.error.reason);
    shed_conn_close(c);
    return code;
}
