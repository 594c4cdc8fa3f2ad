/*
 * What a flight and Redis tell each other: the struct that is shared by the
 * calls (flight_redis), their replies (flight_reply) and the flight's driver.
 * Reactor thread only.
 */
#ifndef SHED_FLIGHT_EXCHANGE_H
#define SHED_FLIGHT_EXCHANGE_H

#include <stdbool.h>

#include <snowshed/snowshed.h>

#include "entry/entry.h"
#include "flight/flight_shared.h"
#include "entry/freshness.h"
#include "known/tag_log.h"
#include "known/local.h"
#include "known/delivery.h"
#include "redis/session.h"

struct shed_flight_exchange {
    /* set by the flight's owner; the rest begins as zero */
    struct shed_flight_shared *shared;
    struct shed_entry_key key;
    struct shed_entry_key refresh_key; /* of the lease of a refresh */
    unsigned char due[SHED_ENTRY_IDENTITY_BYTES]; /* a value that is to be
                                                     replaced though it may be
                                                     fresh; zero: none */
    struct shed_bytes user_key; /* as its callers know it; in key */
    unsigned char number[4];    /* of the flight, as the scripts want it */
    const struct shed_loaded *loaded; /* what is to be published */
    uint64_t position; /* of the log of tags, when its load began */
    bool has_callers;  /* who need a value that is kept */
    void (*on_event)(void *arg, struct shed_flight_event event);
    void *arg;
    /* for the owner to read, with an event */
    struct shed_value *entry;            /* what was found in Redis */
    struct shed_row_version old_version; /* of the value that our lease is to
                                            refresh; not known: it has none, or
                                            there is no such value */
    uint64_t fresh_ms;                   /* of what is being published */
    struct shed_error error; /* what went wrong; the owner sets it for a
                                failure marker */
    /* set by the owner before it sends ACQUIRE */
    bool has_waited; /* for a load that was under way */
    enum shed_flight_first first;
    /* its own */
    struct shed_call call; /* acquire, and what is to be delivered before it;
                              fail, release; publish, of all in published */
    struct shed_node node; /* in a list while it is_publishing */
    struct shed_list published;
    struct shed_delivery_write delivered;
    struct shed_call renew_call; /* renew */
    uint64_t call_request, renew_request;
    struct shed_local_mark mark; /* from before call */
    enum shed_flight_send sent;  /* what call is */
    uint32_t epoch;              /* that a lease of ours names */
    unsigned char version[SHED_ENTRY_VERSION_BYTES]; /* of our lease */
    bool is_publishing;
    bool is_refresh; /* our lease is that of a refresh */
    unsigned char replaced[SHED_ENTRY_VERSION_BYTES]; /* then: nonce of the
                                                         value */
    unsigned char seen[SHED_ENTRY_HEADER_BYTES];      /* of a corrupt entry */
    size_t seen_size;
};

/* Tell the client's events of something about this key. */
void shed_flight_tell(const struct shed_flight_exchange *exchange,
                      enum shed_event_kind kind, enum shed_code outcome,
                      uint64_t duration_us, const char *reason);

#endif
