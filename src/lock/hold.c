/* Holds. Its invariant: valid_until_ms counts from before a command was sent;
 * it grows only when Redis has confirmed a lease, and shrinks before a shorter
 * one is requested. */
#include "lock/hold.h"

#include <assert.h>

#include "base/backoff.h"
#include "lock/quorum.h"

/* A renewal is sent at a third of the lease, so that two may fail, and repeated
 * after at most a twentieth of it. A rewrite is repeated sooner, because others
 * take the holder for dead after a few hundred ms. */
#define RENEW_DIVISOR 3
#define RETRY_DIVISOR 20
#define RETRY_FIRST_MS 5
#define REWRITE_MS 40

static void renew_at(struct shed_hold *h, uint64_t at_ms)
{
    h->renew_at_ms = at_ms < h->renew_until_ms ? at_ms : UINT64_MAX;
}

void shed_hold_renew(struct shed_hold *h, const struct shed_exchange *exchange)
{
    const struct shed_lock_spec *spec = exchange->spec;

    assert(h->is_held);
    h->lease_ms = exchange->lease_ms;
    h->valid_until_ms = shed_lock_valid_until_ms(exchange);
    h->renew_until_ms = h->since_ms + spec->options->watchdog_ms;
    h->renew_at_ms = UINT64_MAX;
    if (spec->algorithm->has_lease)
        renew_at(h, exchange->asked_ms + exchange->lease_ms / RENEW_DIVISOR);
}

void shed_hold_begin(struct shed_hold *h, struct shed_owner *owner,
                     const struct shed_exchange *exchange)
{
    assert(!h->is_held);
    *h = (struct shed_hold){.is_held = true,
                            .owner = shed_owner_ref(owner),
                            .count = 1,
                            .generation = h->generation + 1,
                            .holder = exchange->holder,
                            .fence = exchange->fence,
                            .memory = exchange->memory,
                            .since_ms = exchange->asked_ms,
                            .rewrite_at_ms = UINT64_MAX};
    shed_hold_renew(h, exchange);
}

void shed_hold_retry(struct shed_hold *h, bool is_rewrite, uint64_t now_ms,
                     uint64_t random)
{
    if (is_rewrite)
        h->rewrite_at_ms =
            now_ms + shed_backoff_equal_ms(0, REWRITE_MS, REWRITE_MS, random);
    if (h->renew_at_ms != UINT64_MAX)
        renew_at(h,
                 now_ms + shed_backoff_equal_ms(
                              0, RETRY_FIRST_MS + h->lease_ms / RETRY_DIVISOR,
                              h->lease_ms, random));
}

void shed_hold_end(struct shed_hold *h)
{
    shed_owner_unref(h->owner);
    h->owner = NULL;
    h->is_held = false;
}

bool shed_hold_is_safe(const struct shed_hold *h, uint64_t now_ms)
{
    return h->is_held && now_ms < h->valid_until_ms;
}

bool shed_hold_is_mine(const struct shed_hold *h,
                       const struct shed_owner *owner)
{
    return h->is_held && (h->owner == NULL || h->owner == owner);
}

uint64_t shed_hold_due_ms(const struct shed_hold *h, bool is_watched)
{
    uint64_t due_ms = is_watched || h->renew_at_ms != UINT64_MAX
                          ? h->valid_until_ms
                          : UINT64_MAX;

    due_ms = shed_lock_sooner_ms(due_ms, h->renew_at_ms);
    due_ms = shed_lock_sooner_ms(due_ms, h->rewrite_at_ms);
    return h->is_held ? due_ms : UINT64_MAX;
}

const char *shed_hold_reason(const struct shed_hold *h)
{
    if (shed_owner_has_ended(h->owner))
        return "the thread that held the lock has ended without a release";
    if (h->renew_at_ms != UINT64_MAX)
        return "the lease has ended: no renewal succeeded";
    if (h->renew_until_ms > h->since_ms)
        return "the lease has ended: watchdog_ms has passed";
    return "the lease has ended";
}
