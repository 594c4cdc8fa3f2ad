/*
 * A node: one server, as one lock sees it. Talks with it go over its client's
 * reactor, one at a time, and end on the lock's home reactor, which is the
 * first client's.
 *
 * Home reactor thread only, but for create and destroy.
 */
#ifndef SHED_LOCK_NODE_H
#define SHED_LOCK_NODE_H

#include <stdatomic.h>

#include "client.h"
#include "lock/hall.h"
#include "lock/talk.h"

#define SHED_LEFT_MAX 8

struct shed_node {
    /* set at creation */
    struct shed_client *client;
    struct shed_reactor *home;
    bool is_quorum;
    /* what to call, on the home reactor: a talk has ended; the key may have
     * changed, and with is_epoch, pushes too */
    void (*on_end)(struct shed_node *node);
    void (*on_change)(struct shed_node *node, bool is_epoch);
    void *arg;

    /* home reactor */
    bool is_busy;
    uint64_t busy_since_ms;
    bool is_asked;    /* the talk under way is a question of the round */
    bool is_next;     /* it is to be asked the round's question after it */
    bool is_short;    /* it said last that it does not have the lock */
    bool owes_answer; /* the release that is owed is the round's */
    bool is_undone;   /* what the talk under way brings is to be given back */
    bool is_owed;     /* a release is to follow the talk under way */
    struct shed_lock_holder owed;
    /* what could not be given back, for want of a connection, and until when to
     * try; is_tidying: the talk under way is of the first */
    struct {
        struct shed_lock_holder holder;
        uint64_t until_ms;
    } left[SHED_LEFT_MAX];
    size_t left_count;
    uint64_t left_at_ms; /* when to try it again */
    bool is_tidying;

    /* whose reactor's turn it is, while busy; else home's */
    struct shed_talk talk;
    struct shed_call call;
    struct shed_post go, back;

    /* the client's reactor; the flags atomic */
    struct shed_watch watch;
    struct shed_post change;
    atomic_bool is_changing, is_epoch;
};

/* Begin and end to hear of changes; the fields set at creation are, and the
 * talk's way and words. Not on a reactor thread. No talk may be under way. */
void shed_node_open(struct shed_node *node);
void shed_node_close(struct shed_node *node);

/* Carry on the talk that has been begun in node->talk; on_end follows, never
 * before the return. It must not be busy. */
void shed_node_ask(struct shed_node *node);

/* Give back what a try of the holder's, just now, brought or may still bring;
 * and, of a busy node, release at the end of the talk under way what holder has
 * there (false: it has nothing, it was not asked). Who hears of the end of a
 * talk calls pay. */
void shed_node_undo(struct shed_node *node,
                    const struct shed_lock_holder *holder);
SHED_MUST_CHECK bool shed_node_owe(struct shed_node *node,
                                   const struct shed_lock_holder *holder);
void shed_node_pay(struct shed_node *node);

/* What holder has there, or may have, is to be given back some time; or not,
 * because he holds the lock. */
void shed_node_leave(struct shed_node *node,
                     const struct shed_lock_holder *holder);
void shed_node_forget(struct shed_node *node,
                      const struct shed_lock_holder *holder);

/* Try again to give back what could not be, if it is time and it is not busy;
 * and when it will be time, UINT64_MAX: never. */
void shed_node_tidy(struct shed_node *node, uint64_t now_ms);
uint64_t shed_node_tidy_at_ms(const struct shed_node *node);

#endif
